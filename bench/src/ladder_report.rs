//! The results of one run of the ladder as text, Markdown, page and charts.

use std::fmt::Write as _;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::chart::Chart;
use crate::text::{self, escape, number};
use crate::{charts, output, page};

/// All results of one run. `--from` reads them back.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The device and the rounds.
    pub(crate) heading: Vec<String>,
    /// The device's name.
    pub(crate) device: String,
    /// Multiplications and additions a second, measured in the same run.
    pub(crate) peak_flops: Option<f64>,
    pub(crate) rounds: usize,
    pub(crate) sources: Vec<Section>,
}

/// The results of one document.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) published_on: String,
    pub(crate) notes: Vec<String>,
    pub(crate) tables: Vec<Table>,
    pub(crate) sweeps: Vec<Sweep>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) image: String,
    /// Pixels times channels.
    pub(crate) values: usize,
    pub(crate) taps: String,
    pub(crate) border: String,
    /// The copy of the image on the device, measured in the same rounds.
    pub(crate) copy_us: f64,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) step: String,
    pub(crate) variant: String,
    /// Multiply-adds for each value.
    pub(crate) steps: usize,
    pub(crate) us: f64,
    pub(crate) published_us: Option<f64>,
    pub(crate) checked: String,
    /// The distance from the oracle's result, relative to that result.
    pub(crate) distance: Option<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sweep {
    pub(crate) name: String,
    pub(crate) title: String,
    /// The image of the first point.
    pub(crate) image: String,
    pub(crate) axis: String,
    pub(crate) rate: bool,
    /// Each point's label on the axis, and the number of values in its image.
    pub(crate) points: Vec<(String, usize)>,
    pub(crate) series: Vec<Series>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) label: String,
    pub(crate) variant: String,
    /// For each point; `None` where the variant does not accept its image.
    pub(crate) us: Vec<Option<f64>>,
}

/// Cells of a table: the heading, how many columns hold text, the rows.
type Cells = (Vec<String>, usize, Vec<Vec<String>>);

impl Table {
    /// The table's title.
    fn caption(&self) -> String {
        let Self { title, image, taps, border, copy_us, .. } = self;
        format!(
            "{title}: {image}, {taps} taps, border {border}; the device copies it in {} us",
            number(*copy_us)
        )
    }

    fn cells(&self, peak: Option<f64>) -> Cells {
        let published = self.rows.iter().any(|row| row.published_us.is_some());
        let distance = self.rows.iter().any(|row| row.distance.is_some());
        let mut header = vec!["step", "variant"];
        if published {
            header.extend(["theirs", "their speed-up"]);
        }
        header.extend(["us", "speed-up", "GB/s", "% of copy", "GFLOP/s"]);
        if peak.is_some() {
            header.push("% of peak");
        }
        header.push("FPS");
        if distance {
            header.push("from the CPU's");
        }
        let first = self.rows.first();
        let rows = self.rows.iter().map(|row| {
            let mut cells = vec![row.step.clone(), row.variant.clone()];
            if published {
                let ratio = first.and_then(|first| Some(first.published_us? / row.published_us?));
                cells.push(row.published_us.map_or_else(String::new, duration));
                cells.push(ratio.map_or_else(String::new, times));
            }
            let flops = 2e6 * (row.steps * self.values) as f64 / row.us;
            cells.extend([
                number(row.us),
                first.map_or_else(String::new, |first| times(first.us / row.us)),
                number(8e-3 * self.values as f64 / row.us),
                number(100.0 * self.copy_us / row.us),
                number(flops / 1e9),
            ]);
            cells.extend(peak.map(|peak| number(100.0 * flops / peak)));
            cells.push(number(1e6 / row.us));
            if distance {
                cells.push(
                    row.distance.map_or_else(String::new, |distance| format!("{distance:.1e}")),
                );
            }
            cells
        });
        (header.into_iter().map(str::to_owned).collect(), 2, rows.collect())
    }
}

impl Sweep {
    fn caption(&self) -> String {
        format!("{}: {}", self.title, self.image)
    }

    fn cells(&self) -> Cells {
        let mut header = vec![self.axis.clone()];
        header.extend(self.series.iter().map(|series| format!("{}, us", series.label)));
        let rows = self.points.iter().enumerate().map(|(i, (label, _))| {
            let cell = |series: &Series| series.us[i].map_or_else(|| "-".to_owned(), number);
            std::iter::once(label.clone()).chain(self.series.iter().map(cell)).collect()
        });
        (header, 1, rows.collect())
    }
}

/// A time in the unit that suits it.
fn duration(us: f64) -> String {
    if us >= 1000.0 { format!("{} ms", us / 1e3) } else { format!("{us} us") }
}

fn times(ratio: f64) -> String {
    format!("{}x", number(ratio))
}

impl Report {
    /// For a terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = self.heading.join("\n") + "\n";
        for section in &self.sources {
            let _ = write!(text, "\n== {} ==\n", section.title);
            let mut add = |title: &str, (header, left, rows): Cells| {
                let header: Vec<_> = header.iter().map(String::as_str).collect();
                let _ = write!(text, "\n{title}\n{}", text::table(&header, left, rows));
            };
            for table in &section.tables {
                add(&table.caption(), table.cells(self.peak_flops));
            }
            for sweep in &section.sweeps {
                add(&sweep.caption(), sweep.cells());
            }
            let _ = writeln!(text, "\nPublished on: {}.", section.published_on);
            for note in &section.notes {
                let _ = writeln!(text, "{note}");
            }
        }
        text
    }

    /// One document's tables as Markdown.
    fn markdown(&self, section: &Section) -> String {
        let mut text = format!("Theirs: {}. Ours: {}.\n", section.published_on, self.device);
        let mut add = |caption: String, (header, left, rows): Cells| {
            let _ = write!(text, "\n{caption}:\n\n{}", text::markdown(&header, left, &rows));
        };
        section.tables.iter().for_each(|table| add(table.caption(), table.cells(self.peak_flops)));
        section.sweeps.iter().for_each(|sweep| add(sweep.caption(), sweep.cells()));
        text
    }

    /// The text of a Markdown file, with each document's tables between its markers.
    pub(crate) fn put_into(&self, file: &str) -> Result<String> {
        output::put_between(file, "ladder", |name| {
            self.sources
                .iter()
                .find(|section| section.name == name)
                .map(|section| self.markdown(section))
        })
    }

    /// Speed-ups as bars, sweeps as lines.
    pub(crate) fn charts(&self) -> Result<Vec<Chart>> {
        let mut charts = Vec::new();
        for section in &self.sources {
            for (number, table) in section.tables.iter().enumerate() {
                charts.push(charts::bars(&self.bars(section, number, table))?);
            }
            for sweep in &section.sweeps {
                charts.push(charts::lines(&self.lines(section, sweep))?);
            }
        }
        Ok(charts)
    }

    fn bars(&self, section: &Section, number: usize, table: &Table) -> charts::Bars {
        let of = |us: fn(&Row) -> Option<f64>| -> Vec<Option<f64>> {
            let first = table.rows.first().and_then(us);
            table.rows.iter().map(|row| Some(first? / us(row)?)).collect()
        };
        let (theirs, ours) = (of(|row| row.published_us), of(|row| Some(row.us)));
        let mut series = vec![(self.device.clone(), ours)];
        if theirs.iter().any(Option::is_some) {
            series.insert(0, (section.published_on.clone(), theirs));
        }
        charts::Bars {
            name: format!("{}-{}", section.name, number + 1),
            title: format!("{}, {}: times as fast as the first step", table.title, table.image),
            labels: table.rows.iter().map(|row| row.step.clone()).collect(),
            series,
        }
    }

    fn lines(&self, section: &Section, sweep: &Sweep) -> charts::Lines {
        let value = |us: f64, values: usize| if sweep.rate { values as f64 / us } else { us };
        let series = sweep.series.iter().map(|series| {
            let at = |(us, (_, values)): (&Option<f64>, &(String, usize))| {
                us.map(|us| value(us, *values))
            };
            (series.label.clone(), series.us.iter().zip(&sweep.points).map(at).collect())
        });
        charts::Lines {
            name: format!("{}-{}", section.name, sweep.name),
            title: format!("{}, {}", sweep.caption(), self.device),
            x: sweep.axis.clone(),
            y: if sweep.rate { "megapixels a second" } else { "microseconds" },
            labels: sweep.points.iter().map(|(label, _)| label.clone()).collect(),
            series: series.collect(),
        }
    }

    /// The page: one file that needs no other.
    pub(crate) fn page(&self, charts: &[Chart]) -> String {
        let mut body = format!("<pre>{}</pre>\n", escape(&self.heading.join("\n")));
        body += "<p>\"Theirs\" are a document's published times, speed-ups those over its first step. GB/s counts each value read \
                 once and written once; \"% of copy\" is the time of the device's own copy of the image as a part of the \
                 kernel's, \"% of peak\" the multiply-adds as a part of those that the device was measured to do. Before it \
                 was timed, each result was held to the definition computed in f64 in a thousand places, and to all bits of \
                 the first one of its family.</p>\n";
        for section in &self.sources {
            let _ = writeln!(body, "<h2 id=\"{}\">{}</h2>", section.name, escape(&section.title));
            let _ = writeln!(body, "<p>Published on: {}.</p>", escape(&section.published_on));
            let mut add = |title: &str, (header, left, rows): Cells| {
                let header: Vec<_> = header.iter().map(String::as_str).collect();
                let _ = write!(
                    body,
                    "<h3>{}</h3>\n{}",
                    escape(title),
                    page::table(&header, left, rows)
                );
            };
            for table in &section.tables {
                add(&table.caption(), table.cells(self.peak_flops));
            }
            for sweep in &section.sweeps {
                add(&sweep.caption(), sweep.cells());
            }
            if !section.notes.is_empty() {
                body += "<ul>\n";
                for note in &section.notes {
                    let _ = writeln!(body, "<li>{}</li>", escape(note));
                }
                body += "</ul>\n";
            }
            let prefix = format!("{}-", section.name);
            for chart in charts.iter().filter(|chart| chart.name.starts_with(&prefix)) {
                body += &page::figure(chart);
            }
        }
        page::document("apron: ladder", &body)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample() -> Report {
        let row = |step: &str, us: f64, published_us: Option<f64>| Row {
            step: step.to_owned(),
            variant: "direct-naive".to_owned(),
            steps: 25,
            us,
            published_us,
            checked: "f64".to_owned(),
            distance: Some(0.0),
        };
        let table = Table {
            title: "Steps".to_owned(),
            image: "1000x1000".to_owned(),
            values: 1_000_000,
            taps: "5x5".to_owned(),
            border: "reflect101".to_owned(),
            copy_us: 5.0,
            rows: vec![
                row("first", 40.0, Some(2000.0)),
                row("second <1>", 10.0, Some(1250.0)),
                row("third", 8.0, None),
            ],
        };
        let sweep = Sweep {
            name: "radius".to_owned(),
            title: "Over radius".to_owned(),
            image: "1000x1000".to_owned(),
            axis: "radius".to_owned(),
            rate: true,
            points: vec![("1".to_owned(), 1_000_000), ("2".to_owned(), 1_000_000)],
            series: vec![
                Series {
                    label: "a".to_owned(),
                    variant: "a".to_owned(),
                    us: vec![Some(10.0), None],
                },
                Series {
                    label: "b".to_owned(),
                    variant: "b".to_owned(),
                    us: vec![Some(20.0), Some(50.0)],
                },
            ],
        };
        let section = Section {
            name: "one".to_owned(),
            title: "A document".to_owned(),
            published_on: "an old GPU".to_owned(),
            notes: vec!["Something & something else.".to_owned()],
            tables: vec![table],
            sweeps: vec![sweep],
        };
        Report {
            heading: vec!["GPU: H200".to_owned()],
            device: "H200".to_owned(),
            peak_flops: Some(50e12),
            rounds: 3,
            sources: vec![section],
        }
    }

    #[test]
    fn figures_follow_from_times() {
        let report = sample();
        let (header, left, rows) = report.sources[0].tables[0].cells(report.peak_flops);
        assert_eq!(left, 2);
        let theirs = ["theirs", "their speed-up"];
        assert_eq!(header[2..4], theirs);
        // 50 MFLOP in 10 us are 5 TFLOP/s, a tenth of the peak; 8 MB in 10 us are 800 GB/s, half as
        // fast as the copy.
        let second =
            ["1.25 ms", "1.60x", "10.0", "4.00x", "800", "50.0", "5000", "10.0", "100000", "0.0e0"];
        assert_eq!(rows[1][2..], second.map(str::to_owned));
        assert_eq!(rows[2][2..4], [String::new(), String::new()]);
    }

    #[test]
    fn a_report_is_read_back_as_it_was() {
        let json = serde_json::to_string(&sample()).unwrap();
        let read: Report = serde_json::from_str(&json).unwrap();
        assert_eq!(read.text(), sample().text());
        assert_eq!(serde_json::to_string(&read).unwrap(), json);
    }

    #[test]
    fn markdown_is_put_between_its_marks_and_again() {
        let report = sample();
        let file = "before\n<!-- ladder one -->\nstale\n<!-- end -->\nafter\n";
        let once = report.put_into(file).unwrap();
        assert!(
            once.starts_with("before\n<!-- ladder one -->\n\nTheirs")
                && once.ends_with("<!-- end -->\nafter\n")
        );
        assert!(
            !once.contains("stale") && once.contains("| second <1> | direct-naive |"),
            "{once}"
        );
        assert_eq!(report.put_into(&once).unwrap(), once);
        assert!(report.put_into("nothing").unwrap_err().to_string().contains("<!-- ladder"));
    }

    #[test]
    fn the_page_is_well_formed_and_has_every_row() {
        let report = sample();
        let charts = report.charts().unwrap();
        let names: Vec<_> = charts.iter().map(|chart| chart.name.as_str()).collect();
        assert_eq!(names, ["one-1", "one-radius"]);
        let page = report.page(&charts);
        let options =
            roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
        let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
        let count = |name: &str| {
            document.descendants().filter(|node| node.tag_name().name() == name).count()
        };
        assert_eq!((count("tr"), count("svg")), (4 + 3, 2));
        assert!(document.descendants().any(|node| node.text() == Some("second <1>")));
    }
}
