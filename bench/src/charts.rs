//! Charts: time against size, time against the number of taps, roofline; for the ladder, bars and
//! lines.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::cases::Class;
use crate::chart::Chart;
use crate::report::{Report, Row, Who};
use crate::text::{number, short};

/// A series of a chart.
struct Figure {
    name: String,
    title: String,
    x: &'static str,
    y: &'static str,
    series: Vec<Series>,
}

struct Series {
    label: String,
    /// In order of x.
    points: Vec<(f64, f64)>,
    /// Drawn as a line only, in the colour of the axes.
    bound: bool,
    /// Whether a line joins the points.
    joined: bool,
}

const SIZE: (u32, u32) = (720, 420);

type Failure = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;

/// Readable on white and on black.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x2f, 0x7e, 0xd8),
    RGBColor(0xd9, 0x6a, 0x1c),
    RGBColor(0x2c, 0x9a, 0x5b),
    RGBColor(0xc2, 0x45, 0x8f),
    RGBColor(0x8b, 0x6f, 0xd6),
    RGBColor(0xa8, 0x8a, 0x12),
    RGBColor(0x1d, 0x97, 0xa3),
    RGBColor(0xb5, 0x55, 0x4d),
];

/// Placeholder colours of ink and grid; [`STYLE`] replaces them with those of the reader's scheme.
const INK: RGBColor = RGBColor(0x01, 0x02, 0x03);
const GRID: RGBColor = RGBColor(0x03, 0x02, 0x01);

/// The style that gives [`INK`] and [`GRID`] their colours.
pub(crate) const STYLE: &str = "svg{color-scheme:light dark}svg text{font-family:system-ui,sans-serif}\
    svg [fill=\"#010203\"]{fill:#222}svg [stroke=\"#010203\"]{stroke:#222}\
    svg [fill=\"#030201\"]{fill:#ddd}svg [stroke=\"#030201\"]{stroke:#ddd}\
    @media(prefers-color-scheme:dark){\
    svg [fill=\"#010203\"]{fill:#ddd}svg [stroke=\"#010203\"]{stroke:#ddd}\
    svg [fill=\"#030201\"]{fill:#3a3a3a}svg [stroke=\"#030201\"]{stroke:#3a3a3a}}";

/// The charts for which a report has enough cases.
pub(crate) fn draw(report: &Report) -> Result<Vec<Chart>> {
    let by_size = |row: &Row| (format!("{} {}", row.pixel, row.taps), row.megapixels);
    let by_taps = |row: &Row| (row.image.clone(), row.taps as f64);
    let mut figures = Vec::new();
    for (key, rows) in groups(report, by_size) {
        let (pixel, taps) = key.2.split_once(' ').map_or(("", ""), |parts| parts);
        let title = format!("{taps}x{taps} taps {}, {pixel}, on {}", form(key.1), key.0);
        figures.push(Figure::new("size", &key, title, "megapixels", rows));
    }
    for (key, rows) in groups(report, by_taps) {
        let title = format!("{} {}, on {}", key.2, form(key.1), key.0);
        figures.push(Figure::new("taps", &key, title, "tap columns and rows", rows));
    }
    figures.extend(roofline(report));
    figures
        .iter()
        .map(|figure| figure.draw().map_err(|error| anyhow!("drawing {}: {error}", figure.name)))
        .collect()
}

fn form(class: Class) -> &'static str {
    match class {
        Class::Dense => "as a window",
        Class::Pair => "as a row and a column",
    }
}

/// Device, class, and the value that the rows share.
type Key = (String, Class, String);

/// Rows with the same key, each with its x; only groups with at least two values of x.
fn groups(
    report: &Report,
    split: impl Fn(&Row) -> (String, f64),
) -> BTreeMap<Key, Vec<(f64, &Row)>> {
    let mut groups: BTreeMap<Key, Vec<(f64, &Row)>> = BTreeMap::new();
    for row in &report.rows {
        let Some(class) = row.class else { continue };
        let (shared, x) = split(row);
        groups.entry((row.device.clone(), class, shared)).or_default().push((x, row));
    }
    groups.retain(|_, rows| rows.iter().any(|(x, _)| *x != rows[0].0));
    groups
}

impl Figure {
    /// Our best time at each x, the limit, and every peer.
    fn new(kind: &str, key: &Key, title: String, x: &'static str, rows: Vec<(f64, &Row)>) -> Self {
        let mut lines: BTreeMap<(u8, String), BTreeMap<u64, f64>> = BTreeMap::new();
        let mut least = |order, label: &str, x: f64, y: f64| {
            // The bits of positive floats sort as the numbers do.
            let best =
                lines.entry((order, label.to_owned())).or_default().entry(x.to_bits()).or_insert(y);
            *best = best.min(y);
        };
        for (x, row) in rows {
            match row.who {
                Who::Apron => least(0, "apron", x, row.median_us),
                Who::Peer => least(1, &row.variant, x, row.median_us),
                Who::Copy => {}
            }
            if let (Some(limit), Who::Apron) = (row.limit_us, row.who) {
                least(2, "limit", x, limit);
            }
        }
        let series = lines.into_iter().map(|((order, label), points)| Series {
            label,
            points: points.into_iter().map(|(x, y)| (f64::from_bits(x), y)).collect(),
            bound: order == 2,
            joined: true,
        });
        let name = format!("{kind}-{}-{}-{}", key.0, key.1.name(), key.2);
        Self { name: file_name(&name), title, x, y: "microseconds", series: series.collect() }
    }

    fn draw(&self) -> Result<Chart, Failure> {
        chart(&self.name, &self.title, SIZE, |root| self.draw_on(root))
    }

    fn draw_on(&self, root: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Failure> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let range = |of: fn(&(f64, f64)) -> f64, margin: f64| {
            let least = points().map(of).fold(f64::INFINITY, f64::min);
            let most = points().map(of).fold(0.0, f64::max);
            (least / margin..most * margin).log_scale()
        };
        let mut chart = ChartBuilder::on(root)
            .margin(12)
            .caption(&self.title, ("sans-serif", 20).into_font().color(&INK))
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(range(|point| point.0, 1.15), range(|point| point.1, 1.5))?;
        let text = ("sans-serif", 15).into_font().color(&INK);
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .label_style(text.clone())
            .axis_desc_style(text.clone())
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| short(*y))
            .draw()?;
        let mut colours = COLOURS.iter().cycle();
        for series in &self.series {
            let colour = if series.bound { INK } else { *colours.next().unwrap_or(&INK) };
            chart
                .draw_series(LineSeries::new(
                    series.points.iter().copied().filter(|_| series.joined),
                    colour.stroke_width(2),
                ))?
                .label(series.label.clone())
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2))
                });
            if !series.bound {
                chart.draw_series(
                    series.points.iter().map(|&point| Circle::new(point, 3, colour.filled())),
                )?;
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(text)
            .draw()?;
        Ok(())
    }
}

/// A drawing with its style inside.
fn chart(
    name: &str,
    title: &str,
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Failure>,
) -> Result<Chart, Failure> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&root)?;
        root.present()?;
    }
    // Right after the opening tag.
    let at = svg.find('>').map_or(0, |at| at + 1);
    svg.insert_str(at, &format!("<style>{STYLE}</style>"));
    Ok(Chart { name: name.to_owned(), title: title.to_owned(), svg })
}

/// Horizontal bars with their values at the end.
pub(crate) struct Bars {
    pub(crate) name: String,
    pub(crate) title: String,
    /// One for each group of bars.
    pub(crate) labels: Vec<String>,
    /// A name, and a value for each group.
    pub(crate) series: Vec<(String, Vec<Option<f64>>)>,
}

/// Lines over labels on an axis, at equal distances.
pub(crate) struct Lines {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: &'static str,
    /// One for each place on the axis.
    pub(crate) labels: Vec<String>,
    pub(crate) series: Vec<(String, Vec<Option<f64>>)>,
}

/// Draws bars.
pub(crate) fn bars(bars: &Bars) -> Result<Chart> {
    const HEAD: i32 = 68;
    const THICK: i32 = 15;
    // x where labels end and bars begin; the longest bar leaves room for its value.
    const LEFT: i32 = 232;
    const LONGEST: i32 = 420;
    let group = THICK * bars.series.len() as i32 + 10;
    let size = (SIZE.0, (HEAD + group * bars.labels.len() as i32 + 6) as u32);
    let most =
        bars.series.iter().flat_map(|(_, values)| values).flatten().copied().fold(0.0, f64::max);
    let drawn = chart(&bars.name, &bars.title, size, |root| {
        let text = |size: i32, side: HPos| {
            ("sans-serif", size).into_font().color(&INK).pos(Pos::new(side, VPos::Center))
        };
        root.draw(&Text::new(bars.title.clone(), (SIZE.0 as i32 / 2, 20), text(18, HPos::Center)))?;
        let mut x = LEFT;
        for ((name, _), colour) in bars.series.iter().zip(COLOURS) {
            root.draw(&Rectangle::new([(x, 41), (x + 12, 53)], colour.filled()))?;
            root.draw(&Text::new(name.clone(), (x + 18, 48), text(14, HPos::Left)))?;
            // About the width of the text.
            x += 40 + 8 * name.chars().count() as i32;
        }
        for (i, label) in bars.labels.iter().enumerate() {
            let top = HEAD + group * i as i32;
            let middle = top + (group - 10) / 2;
            root.draw(&Text::new(label.clone(), (LEFT - 8, middle), text(14, HPos::Right)))?;
            for (j, ((_, values), colour)) in bars.series.iter().zip(COLOURS).enumerate() {
                let Some(value) = values[i] else { continue };
                let top = top + THICK * j as i32;
                let end = LEFT + ((f64::from(LONGEST) * value / most).round() as i32).max(1);
                root.draw(&Rectangle::new([(LEFT, top), (end, top + THICK - 2)], colour.filled()))?;
                let value = number(value);
                root.draw(&Text::new(value, (end + 6, top + THICK / 2), text(13, HPos::Left)))?;
            }
        }
        Ok(())
    });
    drawn.map_err(|error| anyhow!("drawing {}: {error}", bars.name))
}

/// Draws lines, over a logarithmic axis if the values differ by more than a factor of 6.
pub(crate) fn lines(lines: &Lines) -> Result<Chart> {
    let values = || lines.series.iter().flat_map(|(_, values)| values).flatten().copied();
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let drawn = chart(&lines.name, &lines.title, SIZE, |root| {
        // Room for the legend above the lines.
        if most > 6.0 * least {
            lines.draw_on(root, (least / 1.3..most * (most / least).sqrt()).log_scale())
        } else {
            lines.draw_on(root, 0.0..most * 1.45)
        }
    });
    drawn.map_err(|error| anyhow!("drawing {}: {error}", lines.name))
}

impl Lines {
    fn draw_on<Y>(&self, root: &DrawingArea<SVGBackend<'_>, Shift>, y: Y) -> Result<(), Failure>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let text = ("sans-serif", 15).into_font().color(&INK);
        let mut chart = ChartBuilder::on(root)
            .margin(12)
            .caption(&self.title, ("sans-serif", 18).into_font().color(&INK))
            .x_label_area_size(42)
            .y_label_area_size(72)
            .build_cartesian_2d(0.5..self.labels.len() as f64 + 0.5, y)?;
        let label = |x: &f64| {
            let at = (x.round() as usize).wrapping_sub(1);
            let is_whole = (x - x.round()).abs() < 1e-6;
            self.labels.get(at).filter(|_| is_whole).cloned().unwrap_or_default()
        };
        chart
            .configure_mesh()
            .x_desc(self.x.clone())
            .y_desc(self.y)
            .x_labels(self.labels.len())
            .label_style(text.clone())
            .axis_desc_style(text.clone())
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&label)
            .y_label_formatter(&|y| short(*y))
            .draw()?;
        for ((name, values), colour) in self.series.iter().zip(COLOURS) {
            let points: Vec<_> = values
                .iter()
                .enumerate()
                .filter_map(|(i, value)| Some((i as f64 + 1.0, (*value)?)))
                .collect();
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
                .label(name.clone())
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2))
                });
            chart.draw_series(
                points.into_iter().map(|point| Circle::new(point, 3, colour.filled())),
            )?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(text)
            .draw()?;
        Ok(())
    }
}

/// The roofline: arithmetic rate against operations for each byte. Only for a GPU whose peak was
/// measured.
fn roofline(report: &Report) -> Option<Figure> {
    let peak = report.gpu.as_ref()?.fma_teraflops?;
    let rows = || report.rows.iter().filter(|row| row.device.starts_with("gpu"));
    // Launch overhead affects the copy of the largest image least.
    let copy = rows()
        .filter(|row| row.who == Who::Copy)
        .max_by(|a, b| a.megapixels.total_cmp(&b.megapixels))?;
    let channels =
        copy.pixel.split_once(" x").and_then(|(_, count)| count.parse::<f64>().ok()).unwrap_or(1.0);
    // Megabytes in a microsecond are terabytes in a second.
    let terabytes = copy.megapixels * channels * 8.0 / copy.median_us;
    let mut series = Vec::new();
    for (label, class) in [("apron, window", Class::Dense), ("apron, row and column", Class::Pair)]
    {
        let mut best: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for row in rows().filter(|row| row.who == Who::Apron && row.class == Some(class)) {
            let Some(intensity) = row.flops_per_byte else { continue };
            // 8 bytes for each f32 value, which is read and written.
            let bytes = 8.0
                * row.megapixels
                * row.pixel.split_once(" x").map_or(1.0, |(_, n)| n.parse().unwrap_or(1.0));
            let teraflops = intensity * bytes / row.median_us;
            let point = best.entry(&row.case).or_insert((intensity, teraflops));
            point.1 = point.1.max(teraflops);
        }
        let mut points: Vec<_> = best.into_values().collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        if !points.is_empty() {
            series.push(Series { label: label.to_owned(), points, bound: false, joined: false });
        }
    }
    let all =
        || series.iter().flat_map(|series: &Series| series.points.iter().map(|point| point.0));
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    if series.is_empty() {
        return None;
    }
    let ridge = peak / terabytes;
    let mut roof = vec![
        (least / 2.0, (least / 2.0 * terabytes).min(peak)),
        (ridge, peak),
        (2.0 * most.max(ridge), peak),
    ];
    roof.sort_by(|a, b| a.0.total_cmp(&b.0));
    series.push(Series {
        label: format!("{terabytes:.2} TB/s, {peak:.1} TFLOP/s"),
        points: roof,
        bound: true,
        joined: true,
    });
    Some(Figure {
        name: "roofline".to_owned(),
        title: format!("Roofline of {}", copy.device),
        x: "floating-point operations for each byte read or written",
        y: "TFLOP/s",
        series,
    })
}

fn file_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    fn report() -> Report {
        let mut report = sample("8192x8192-5x5");
        for name in ["8192x8192-17x17", "4096x4096-5x5"] {
            report.rows.extend(sample(name).rows);
        }
        report
    }

    #[test]
    fn there_is_a_chart_for_size_for_taps_and_the_roofline() {
        let names: Vec<_> = draw(&report()).unwrap().into_iter().map(|chart| chart.name).collect();
        let expected = [
            "size-gpu-0-dense-f32-5",
            "size-gpu-0-pair-f32-5",
            "taps-gpu-0-dense-8192x8192-f32",
            "taps-gpu-0-pair-8192x8192-f32",
            "roofline",
        ];
        assert_eq!(names, expected);
        // One case gives no line.
        assert_eq!(draw(&sample("8192x8192-5x5")).unwrap().len(), 1);
    }

    #[test]
    fn charts_are_well_formed_and_take_the_readers_colours() {
        for chart in draw(&report()).unwrap() {
            let document = roxmltree::Document::parse(&chart.svg).unwrap();
            assert!(
                document
                    .descendants()
                    .any(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "style")))
            );
            let colours: Vec<_> = document
                .descendants()
                .flat_map(|n| [n.attribute("fill"), n.attribute("stroke")])
                .flatten()
                .collect();
            assert!(colours.contains(&"#010203"), "{}", chart.name);
            // Black or white would be invisible in one of the colour schemes.
            assert!(
                !colours.contains(&"#000000") && !colours.contains(&"#FFFFFF"),
                "{}",
                chart.svg
            );
        }
    }

    #[test]
    fn the_best_of_ours_is_drawn() {
        let report = report();
        let (_, rows) =
            groups(&report, |row| (row.image.clone(), row.taps as f64)).pop_first().unwrap();
        let key = ("gpu:0".to_owned(), Class::Dense, String::new());
        let figure = Figure::new("taps", &key, String::new(), "", rows);
        let labels: Vec<_> = figure.series.iter().map(|series| series.label.as_str()).collect();
        assert_eq!(labels, ["apron", "NPP <1> & \"2\"", "limit"]);
        assert_eq!(figure.series[0].points, [(5.0, 140.0), (17.0, 140.0)]);
    }
}
