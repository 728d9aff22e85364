//! The results of one run, compared with limits, goals and rivals.

use std::time::Duration;

use apron::gpu::Gpu;
use serde::Serialize;

use crate::cases::{Case, Class, Goal};
use crate::check::Checked;
use crate::measure::{median, micros};
use crate::pictures::CHOSEN;
use crate::text;

/// The measurements of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) version: &'static str,
    pub(crate) gpu: Option<GpuReport>,
    pub(crate) cpu: CpuReport,
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<Row>,
    #[serde(rename = "contests")]
    pub(crate) duels: Vec<Duel>,
    /// Cases and libraries that were left out, and why.
    pub(crate) skipped: Vec<Skipped>,
}

#[derive(Debug, Serialize)]
pub(crate) struct GpuReport {
    pub(crate) name: String,
    pub(crate) capability: (u32, u32),
    pub(crate) driver: (u32, u32),
    pub(crate) kernels: u32,
    pub(crate) compiler: Option<&'static str>,
    pub(crate) fma_teraflops: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CpuReport {
    pub(crate) name: Option<String>,
    pub(crate) threads: usize,
}

/// One contender's times in one case. Fields skipped in JSON follow from the others.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) case: String,
    /// The image: size, stored type and channels.
    pub(crate) image: String,
    /// The stored type and channels alone.
    #[serde(skip)]
    pub(crate) pixel: String,
    /// The filter in words, in cases whose every value is compared.
    #[serde(skip)]
    pub(crate) picture: Option<String>,
    /// Values in the result.
    #[serde(skip)]
    pub(crate) values: usize,
    /// Millions of pixels.
    #[serde(skip)]
    pub(crate) megapixels: f64,
    pub(crate) taps: usize,
    /// A variant of ours, a peer, or the copy.
    pub(crate) variant: String,
    pub(crate) who: Who,
    /// The form of the filter: all taps, or a row and a column.
    pub(crate) class: Option<Class>,
    pub(crate) device: String,
    pub(crate) median_us: f64,
    pub(crate) min_us: f64,
    pub(crate) max_us: f64,
    #[serde(skip)]
    pub(crate) gigapixels_per_second: f64,
    /// The larger of two times: the copy's, and, where the device's peak is known, that of the
    /// multiply-adds at this peak.
    pub(crate) limit_us: Option<f64>,
    #[serde(skip)]
    pub(crate) percent_of_limit: Option<f64>,
    /// Multiplications and additions for each byte read and written.
    #[serde(skip)]
    pub(crate) flops_per_byte: Option<f64>,
    /// The goal for the best of a class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) met: Option<bool>,
    /// The reference with which the result was compared before it was measured.
    pub(crate) checked: String,
    /// The greatest difference from that reference, if the bits may differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) difference: Option<f64>,
    /// How many of another library's values differ, if they are integers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) differ: Option<u64>,
    /// The XXH3 checksum of the result's bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checksum: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Who {
    Copy,
    Apron,
    Peer,
}

/// Ours against the best rival in one case.
#[derive(Debug, Serialize)]
pub(crate) struct Duel {
    pub(crate) case: String,
    pub(crate) class: Class,
    pub(crate) device: String,
    pub(crate) ours: String,
    pub(crate) ours_us: f64,
    pub(crate) rival: String,
    pub(crate) rival_us: f64,
    /// Our time divided by the rival's.
    pub(crate) ratio: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Skipped {
    pub(crate) what: String,
    pub(crate) why: String,
}

/// Rows of one case on one device.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    case: &'a Case,
    device: String,
    copy: Duration,
    /// Multiplications and additions a second.
    peak: Option<f64>,
    pub(crate) list: Vec<Row>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(
        case: &'a Case,
        device: String,
        copies: &[Duration],
        peak: Option<f64>,
    ) -> Self {
        let mut rows = Self { case, device, copy: median(copies.to_vec()), peak, list: Vec::new() };
        rows.add("copy".to_owned(), Who::Copy, None, copies, Checked::default(), 0);
        rows
    }

    /// Adds a contender. `steps` is the number of multiply-adds that each value needs at least, 0
    /// if unknown.
    pub(crate) fn add(
        &mut self,
        variant: String,
        who: Who,
        class: Option<Class>,
        times: &[Duration],
        checked: Checked,
        steps: usize,
    ) {
        let case = self.case;
        let middle = median(times.to_vec());
        let extreme = |time: Option<&Duration>| micros(time.copied().unwrap_or(middle));
        let pixels = (case.width * case.rows()) as f64;
        let flops = 2.0 * (steps * case.values()) as f64;
        let limit = class.map(|_| limit(micros(self.copy), flops, self.peak));
        let planes =
            if case.channels == 1 { String::new() } else { format!(" x{}", case.channels) };
        let to = if case.target == case.stored {
            String::new()
        } else {
            format!(" to {}", case.target.name())
        };
        let pixel = format!("{}{planes}{to}", case.stored.name());
        let many = if case.images == 1 { String::new() } else { format!("{} of ", case.images) };
        self.list.push(Row {
            case: case.name(),
            image: format!("{many}{}x{} {pixel}", case.width, case.height),
            pixel,
            picture: case.is_compared().then(|| case.filter_in_words()),
            values: case.values(),
            megapixels: pixels / 1e6,
            taps: case.taps,
            variant,
            who,
            class,
            device: self.device.clone(),
            median_us: micros(middle),
            min_us: extreme(times.iter().min()),
            max_us: extreme(times.iter().max()),
            gigapixels_per_second: pixels / middle.as_secs_f64() / 1e9,
            limit_us: limit,
            percent_of_limit: limit.map(|limit| 100.0 * limit / micros(middle)),
            flops_per_byte: (steps > 0).then(|| {
                flops / ((case.stored.bytes() + case.target.bytes()) * case.values()) as f64
            }),
            goal: None,
            met: None,
            checked: checked.against.to_string(),
            difference: checked.difference,
            differ: checked.differ,
            checksum: checked.checksum.map(|sum| format!("{sum:016x}")),
        });
    }

    /// Writes each class's goal, and whether it was reached, into the row of our fastest variant.
    /// Goals in microseconds apply only with `h200`.
    pub(crate) fn judge(&mut self, h200: bool) {
        for class in Class::ALL {
            let Some(goal) = self.case.goal(class) else { continue };
            let fastest = |who: Who, name: &str| {
                let rows = self.list.iter().enumerate();
                rows.filter(|(_, row)| {
                    row.who == who && row.class == Some(class) && row.variant.contains(name)
                })
                .min_by(|(_, left), (_, right)| left.median_us.total_cmp(&right.median_us))
                .map(|(index, row)| (index, row.median_us))
            };
            let Some((index, us)) = fastest(Who::Apron, "") else { continue };
            // The limit assumes that every tap is computed; a variant with fewer operations may
            // beat it.
            let ours =
                self.list.iter().filter(|row| row.who == Who::Apron && row.class == Some(class));
            let limit = self.peak.and(ours.filter_map(|row| row.limit_us).max_by(f64::total_cmp));
            // No filter is faster than memory. If one seems to be, the copy was slow, and there is
            // no limit.
            let limit = limit.filter(|_| us >= 0.9 * micros(self.copy));
            let met = match goal {
                Goal::Limit(percent) => limit.map(|limit| 100.0 * limit / us >= percent),
                Goal::Micros(most) => h200.then_some(us <= most),
                Goal::Rivals => fastest(Who::Peer, "").map(|(_, rival)| us <= rival),
                Goal::OpenCv(part) => {
                    fastest(Who::Peer, "OpenCV").map(|(_, rival)| us <= part * rival)
                }
            };
            self.list[index].goal = Some(goal.to_string());
            self.list[index].met = met;
        }
    }
}

/// The shortest possible time in microseconds: the larger of the copy's and the arithmetic's.
fn limit(copy_us: f64, flops: f64, peak: Option<f64>) -> f64 {
    peak.map_or(copy_us, |peak| copy_us.max(flops / peak * 1e6))
}

/// The best of ours against the best rival, for each case, class and device that has both.
pub(crate) fn duels(rows: &[Row]) -> Vec<Duel> {
    let mut duels: Vec<Duel> = Vec::new();
    for row in rows.iter().filter(|row| row.who == Who::Apron) {
        let Some(class) = row.class else { continue };
        let same = |other: &&Row| {
            other.case == row.case && other.class == row.class && other.device == row.device
        };
        let best = |who| {
            let rows = rows.iter().filter(same).filter(|other| other.who == who);
            rows.min_by(|left, right| left.median_us.total_cmp(&right.median_us))
        };
        let (Some(ours), Some(rival)) = (best(Who::Apron), best(Who::Peer)) else { continue };
        if !std::ptr::eq(ours, row) {
            continue;
        }
        duels.push(Duel {
            case: row.case.clone(),
            class,
            device: row.device.clone(),
            ours: ours.variant.clone(),
            ours_us: ours.median_us,
            rival: rival.variant.clone(),
            rival_us: rival.median_us,
            ratio: ours.median_us / rival.median_us,
        });
    }
    duels
}

impl GpuReport {
    /// A line that describes it.
    pub(crate) fn line(&self) -> String {
        let Self {
            name,
            capability: (major, minor),
            driver: (driver_major, driver_minor),
            kernels,
            ..
        } = self;
        let compiler = self.compiler.unwrap_or("an unknown compiler");
        let peak =
            self.fma_teraflops.map(|peak| format!("; multiply-adds measured: {peak:.1} TFLOP/s"));
        format!(
            "GPU: {name}, compute capability {major}.{minor}, driver for CUDA {driver_major}.{driver_minor}; \
             kernels for sm_{kernels} by {compiler}{}",
            peak.unwrap_or_default()
        )
    }

    pub(crate) fn new(gpu: &Gpu, peak: Option<f64>) -> Self {
        let info = gpu.info();
        Self {
            name: info.name.clone(),
            capability: info.capability,
            driver: info.driver,
            kernels: gpu.tier(),
            compiler: apron::gpu::embedded()
                .iter()
                .find(|tier| tier.arch == gpu.tier())
                .map(|tier| tier.compiler),
            fma_teraflops: peak.map(|peak| peak / 1e12),
        }
    }
}

impl CpuReport {
    /// A line that describes it.
    pub(crate) fn line(&self) -> String {
        match &self.name {
            Some(name) => format!("CPU: {name}, {} threads", self.threads),
            None => format!("CPU: {} threads", self.threads),
        }
    }

    pub(crate) fn new() -> Self {
        // Linux names the processor. On other systems, the report has only the number of threads.
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            name: name.map(|(_, name)| name.trim().to_owned()),
            threads: rayon::current_num_threads(),
        }
    }
}

impl Report {
    /// The devices and the rounds, as text.
    pub(crate) fn heading(&self, fallback: &str) -> String {
        let cpu = self.cpu.line() + fallback + "\n";
        let gpu = self.gpu.as_ref().map_or_else(String::new, |gpu| gpu.line() + "\n");
        cpu + &gpu + &format!("border reflect101; medians of up to {} rounds\n\n", self.rounds)
    }

    /// Column headings, how many columns hold text, and the rows' cells.
    pub(crate) fn cells(&self) -> (&'static [&'static str], usize, Vec<Vec<String>>) {
        const HEADER: &[&str] = &[
            "case",
            "taps",
            "variant",
            "device",
            "checked",
            "us",
            "Gpx/s",
            "limit us",
            "% of limit",
            "goal",
            "",
        ];
        let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), text::number);
        let rows = self.rows.iter().map(|row| {
            let checked = match row.difference {
                Some(difference) => {
                    let differ =
                        row.differ.map_or_else(String::new, |count| format!(" in {count} values"));
                    format!("{}, {difference:.1e} off{differ}", row.checked)
                }
                None => row.checked.clone(),
            };
            vec![
                row.case.clone(),
                row.class.map_or("-", Class::name).to_owned(),
                row.variant.clone(),
                row.device.clone(),
                checked,
                format!("{:.1}", row.median_us),
                text::number(row.gigapixels_per_second),
                text(row.limit_us),
                text(row.percent_of_limit),
                row.goal.clone().unwrap_or_default(),
                row.met.map_or("", |met| if met { "reached" } else { "missed" }).to_owned(),
            ]
        });
        (HEADER, 5, rows.collect())
    }

    /// The table, the duels, and what was left out.
    pub(crate) fn text(&self) -> String {
        let (header, left, rows) = self.cells();
        let mut text = text::table(header, left, rows);
        if !self.duels.is_empty() {
            let rows = self.duels.iter().map(|duel| {
                vec![
                    duel.case.clone(),
                    duel.class.name().to_owned(),
                    duel.device.clone(),
                    duel.ours.clone(),
                    duel.rival.clone(),
                    format!("{:.1}", duel.ours_us),
                    format!("{:.1}", duel.rival_us),
                    format!("{:.2}", duel.ratio),
                ]
            });
            let header =
                ["case", "taps", "device", "ours", "best rival", "ours us", "rival us", "ratio"];
            text += "\n";
            text += &text::table(&header, 5, rows);
            for lost in self.lost() {
                text += &lost;
                text += "\n";
            }
        }
        for table in [self.beside(""), self.pictures()].into_iter().flatten() {
            text += "\n";
            text += &table;
        }
        if !self.skipped.is_empty() {
            text += "\nleft out:\n";
            for Skipped { what, why } in &self.skipped {
                text += &format!("  {what}: {why}\n");
            }
        }
        text
    }

    /// A Markdown table of CPU times beside the libraries whose name contains `names`, or one of
    /// several names separated by commas. It has a row for each image and library, and a column for
    /// each number of taps.
    pub(crate) fn beside(&self, names: &str) -> Option<String> {
        let mut rivals: Vec<&Row> = Vec::new();
        let mut taps: Vec<usize> = Vec::new();
        let on_cpu = self.rows.iter().filter(|row| row.device == "cpu");
        let chosen = |row: &&Row| {
            row.who == Who::Peer && names.split(',').any(|name| row.variant.contains(name))
        };
        for row in on_cpu.clone().filter(chosen) {
            taps.push(row.taps);
            let known = |rival: &&Row| (&rival.image, &rival.variant) == (&row.image, &row.variant);
            if !rivals.iter().any(known) {
                rivals.push(row);
            }
        }
        taps.sort();
        taps.dedup();
        let cell = |rival: &Row, taps: usize| -> Option<String> {
            let here = on_cpu.clone().filter(|row| (&row.image, row.taps) == (&rival.image, taps));
            let theirs = here.clone().find(|row| row.variant == rival.variant)?;
            let ours = here.clone().find(|row| {
                (&row.case, row.who, row.class) == (&theirs.case, Who::Apron, theirs.class)
            })?;
            let missed = ours.goal.as_ref().filter(|_| ours.met == Some(false));
            let goal = missed
                .and_then(|goal| goal.strip_suffix(" x OpenCV"))
                .filter(|_| theirs.variant.contains("OpenCV"));
            let ms = |row: &Row| text::number(row.median_us / 1e3);
            let ratio = text::number(ours.median_us / theirs.median_us);
            let goal = goal.map_or_else(String::new, |goal| format!(", aim {goal}"));
            Some(format!("{} / {} = **{ratio}**{goal}", ms(ours), ms(theirs)))
        };
        let header: Vec<String> = ["image", "beside"]
            .map(str::to_owned)
            .into_iter()
            .chain(taps.iter().map(usize::to_string))
            .collect();
        let rows: Vec<Vec<String>> = rivals
            .iter()
            .map(|rival| {
                let cells = taps.iter().map(|&taps| cell(rival, taps).unwrap_or_default());
                [rival.image.clone(), rival.variant.clone()].into_iter().chain(cells).collect()
            })
            .collect();
        let table = || format!("{}:\n\n{}", self.cpu.line(), text::markdown(&header, 2, &rows));
        (!rows.is_empty()).then(table)
    }

    /// A Markdown table of the pictures in a GPU's memory, a row for each case. It compares the
    /// plan's own choice with a copy of as many bytes, with the limit and with the fastest library.
    pub(crate) fn pictures(&self) -> Option<String> {
        let header = [
            "pictures",
            "filter",
            "us",
            "copies",
            "% of limit",
            "fastest library",
            "its us",
            "ours / its",
            "its values that differ",
        ];
        let row = |ours: &Row| {
            let same = || {
                self.rows
                    .iter()
                    .filter(|row| (&row.case, &row.device) == (&ours.case, &ours.device))
            };
            let copy = same().find(|row| row.who == Who::Copy);
            let rivals = same().filter(|row| row.who == Who::Peer);
            let rival = rivals.min_by(|left, right| left.median_us.total_cmp(&right.median_us));
            let of_rival = |text: &dyn Fn(&Row) -> String| rival.map_or_else(String::new, text);
            vec![
                ours.image.clone(),
                ours.picture.clone().unwrap_or_default(),
                text::number(ours.median_us),
                copy.map_or_else(String::new, |copy| {
                    format!("{:.2}", ours.median_us / copy.median_us)
                }),
                ours.percent_of_limit.map_or_else(String::new, |percent| format!("{percent:.0}")),
                of_rival(&|rival| rival.variant.clone()),
                of_rival(&|rival| text::number(rival.median_us)),
                of_rival(&|rival| format!("**{:.2}**", ours.median_us / rival.median_us)),
                of_rival(&|rival| {
                    let (Some(differ), Some(most)) = (rival.differ, rival.difference) else {
                        return String::new();
                    };
                    let percent = 100.0 * differ as f64 / rival.values as f64;
                    if differ == 0 {
                        "none".to_owned()
                    } else {
                        format!("{}%, by up to {most}", text::number(percent))
                    }
                }),
            ]
        };
        let ours = self.rows.iter().filter(|row| {
            row.picture.is_some() && row.variant == CHOSEN && !row.case.starts_with("wide")
        });
        let rows: Vec<_> = ours.map(row).collect();
        let gpu = self.gpu.as_ref().map_or_else(String::new, |gpu| format!("{}:\n\n", gpu.line()));
        (!rows.is_empty()).then(|| gpu + &text::markdown(&header, 2, &rows))
    }

    /// The table of wide filters on a GPU, with a column for each contender, if there are any.
    pub(crate) fn wide(&self) -> Option<String> {
        let rows: Vec<_> = self.rows.iter().filter(|row| row.case.starts_with("wide")).collect();
        let mut names: Vec<&str> = Vec::new();
        for row in &rows {
            if !names.contains(&row.variant.as_str()) {
                names.push(&row.variant);
            }
        }
        let header: Vec<_> = ["pictures", "filter"].iter().chain(&names).copied().collect();
        let line = |case: &[&Row]| {
            let time = |name: &&str| {
                let row = case.iter().find(|row| row.variant == *name);
                row.map_or_else(String::new, |row| text::number(row.median_us))
            };
            let image = [case[0].image.clone(), case[0].picture.clone().unwrap_or_default()];
            image.into_iter().chain(names.iter().map(time)).collect()
        };
        let lines: Vec<_> = rows.chunk_by(|one, next| one.case == next.case).map(line).collect();
        let gpu = self.gpu.as_ref().map_or_else(String::new, |gpu| format!("{}:\n\n", gpu.line()));
        (!lines.is_empty()).then(|| gpu + &text::markdown(&header, 2, &lines))
    }

    /// A line for each case in which a rival is faster.
    pub(crate) fn lost(&self) -> impl Iterator<Item = String> {
        self.duels.iter().filter(|duel| duel.ratio > 1.0).map(|duel| {
            format!(
                "slower than a rival: {} {} on {}: {} takes {:.2} times as long as {}",
                duel.case,
                duel.class.name(),
                duel.device,
                duel.ours,
                duel.ratio,
                duel.rival
            )
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cases::cases;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn case(name: &str) -> Case {
        cases().into_iter().find(|case| case.name() == name).unwrap()
    }

    fn add(rows: &mut Rows, name: &str, who: Who, class: Class, micros: u64, steps: usize) {
        rows.add(
            name.to_owned(),
            who,
            Some(class),
            &[Duration::from_micros(micros)],
            Checked::default(),
            steps,
        );
    }

    /// Made-up times of one case on one device.
    pub(crate) fn sample(name: &str) -> Report {
        let case = case(name);
        let mut rows =
            Rows::new(&case, "gpu:0".to_owned(), &[Duration::from_micros(130)], Some(60e12));
        add(&mut rows, "direct-naive", Who::Apron, Class::Dense, 1300, case.steps(Class::Dense));
        add(&mut rows, "direct-sliding", Who::Apron, Class::Dense, 140, case.steps(Class::Dense));
        add(&mut rows, "NPP <1> & \"2\"", Who::Peer, Class::Dense, 267, case.steps(Class::Dense));
        add(&mut rows, "separable-fused", Who::Apron, Class::Pair, 150, case.steps(Class::Pair));
        add(&mut rows, "NPP pair", Who::Peer, Class::Pair, 120, case.steps(Class::Pair));
        rows.judge(true);
        let duels = duels(&rows.list);
        Report {
            version: "0",
            gpu: Some(GpuReport {
                name: "H200".to_owned(),
                capability: (9, 0),
                driver: (13, 0),
                kernels: 90,
                compiler: None,
                fma_teraflops: Some(60.0),
            }),
            cpu: CpuReport { name: None, threads: 2 },
            rounds: 3,
            rows: rows.list,
            duels,
            skipped: vec![Skipped { what: "a".to_owned(), why: "b < c".to_owned() }],
        }
    }

    #[test]
    fn the_limit_is_the_copy_or_the_arithmetic() {
        // 8192x8192: 5x5 taps are 3.36 GFLOP, 55 us at 61 TFLOP/s; 17x17 taps 38.8 GFLOP, 636 us.
        let flops = |taps: f64| 2.0 * taps * taps * 8192.0 * 8192.0;
        assert_eq!(limit(129.0, flops(5.0), Some(61e12)), 129.0);
        assert!((limit(129.0, flops(17.0), Some(61e12)) - 635.9).abs() < 0.1);
        assert_eq!(limit(129.0, flops(17.0), None), 129.0);
    }

    #[test]
    fn figures_follow_from_the_median() {
        let case = case("8192x8192-5x5");
        let mut rows = Rows::new(&case, "gpu:0".to_owned(), &[ms(1), ms(3), ms(2)], Some(1e12));
        rows.add(
            "x".to_owned(),
            Who::Apron,
            Some(Class::Dense),
            &[ms(9), ms(4), ms(3)],
            Checked::default(),
            25,
        );
        let row = &rows.list[1];
        assert_eq!((row.min_us, row.median_us, row.max_us), (3e3, 4e3, 9e3));
        assert!((row.gigapixels_per_second - 16.777216).abs() < 1e-9);
        // 50 operations for 8 bytes, 3355 us at 1 TFLOP/s.
        assert_eq!(row.flops_per_byte, Some(6.25));
        assert!((row.limit_us.unwrap() - 3355.4).abs() < 0.1);
        assert!((row.percent_of_limit.unwrap() - 83.9).abs() < 0.1);
    }

    #[test]
    fn goals_are_judged_at_the_best_of_a_class() {
        let report = sample("8192x8192-5x5");
        let verdicts: Vec<_> =
            report.rows.iter().map(|row| (row.goal.as_deref(), row.met)).collect();
        let none = (None, None);
        // 130 of 140 us are 93 %; 130 of 150 us are 87 %.
        assert_eq!(
            verdicts,
            [none, none, (Some("88 %"), Some(true)), none, (Some("90 %"), Some(false)), none]
        );

        let case = case("2048x1024-5x5");
        for (h200, us, met) in [(true, 6, Some(true)), (true, 7, Some(false)), (false, 6, None)] {
            let mut rows =
                Rows::new(&case, "gpu:0".to_owned(), &[Duration::from_micros(4)], Some(60e12));
            add(&mut rows, "direct-sliding", Who::Apron, Class::Dense, us, 25);
            rows.judge(h200);
            assert_eq!(rows.list[1].met, met);
        }
    }

    #[test]
    fn a_copy_slower_than_a_filter_judges_nobody() {
        let case = case("8192x8192-5x5");
        let mut rows =
            Rows::new(&case, "gpu:0".to_owned(), &[Duration::from_micros(319)], Some(60e12));
        add(&mut rows, "direct-sliding", Who::Apron, Class::Dense, 151, 25);
        rows.judge(true);
        assert_eq!((rows.list[1].goal.as_deref(), rows.list[1].met), (Some("88 %"), None));
    }

    #[test]
    fn cpu_goals_are_parts_of_opencv_and_no_other_rival() {
        let case = case("f32-random-5x5");
        for (us, met) in [(699, true), (701, false)] {
            let mut rows = Rows::new(&case, "cpu".to_owned(), &[ms(1)], None);
            add(&mut rows, "apron", Who::Apron, Class::Dense, us, 25);
            add(&mut rows, "OpenCV filter2D", Who::Peer, Class::Dense, 1000, 25);
            add(&mut rows, "SciPy", Who::Peer, Class::Dense, 100, 25);
            rows.judge(false);
            assert_eq!(rows.list[1].met, Some(met));
        }
    }

    #[test]
    fn ours_stand_beside_the_libraries_that_are_named() {
        let mut report = sample("8192x8192-5x5");
        report.rows.clear();
        for (name, opencv) in [("f32-random-3x3", 2000), ("f32-random-5x5", 1000)] {
            let case = case(name);
            let mut rows = Rows::new(&case, "cpu".to_owned(), &[ms(1)], None);
            add(&mut rows, "direct", Who::Apron, Class::Dense, 1250, 25);
            add(&mut rows, "OpenCV filter2D", Who::Peer, Class::Dense, opencv, 25);
            if opencv == 1000 {
                add(&mut rows, "SciPy", Who::Peer, Class::Dense, 100_000, 25);
            }
            rows.judge(false);
            report.rows.extend(rows.list);
        }
        let table = report.beside("OpenCV").unwrap();
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| image | beside | 3 | 5 |",
                "| --- | --- | ---: | ---: |",
                "| 2048x2048 f32 | OpenCV filter2D | 1.25 / 2.00 = **0.625** | 1.25 / 1.00 = **1.25**, aim 0.7 |",
            ]
        );
        let table = report.beside("libblur,SciPy").unwrap();
        assert!(table.ends_with("| 2048x2048 f32 | SciPy | 1.25 / 100 = **0.013** |\n"), "{table}");
        assert_eq!(report.beside("libblur"), None);
    }

    #[test]
    fn pictures_stand_beside_the_copy_and_the_fastest_library() {
        let mut report = sample("8192x8192-5x5");
        assert_eq!(report.pictures(), None);
        report.rows.clear();
        for name in ["picture-u8x3-random-5-64x1920x1080", "picture-u8-to-f32-sobel-3-8192x8192"] {
            let case = case(name);
            let mut rows =
                Rows::new(&case, "gpu:0".to_owned(), &[Duration::from_micros(200)], Some(60e12));
            add(&mut rows, CHOSEN, Who::Apron, case.form.class(), 250, 25);
            if case.images > 1 {
                add(&mut rows, "slow", Who::Peer, Class::Dense, 2000, 25);
                let differ = Some(case.values() as u64 / 1000);
                let checked = Checked { difference: Some(1.0), differ, ..Checked::default() };
                rows.add(
                    "NPP".to_owned(),
                    Who::Peer,
                    Some(Class::Dense),
                    &[Duration::from_micros(500)],
                    checked,
                    25,
                );
            }
            report.rows.extend(rows.list);
        }
        let table = report.pictures().unwrap();
        let rows: Vec<_> = table.lines().skip(4).collect();
        // 25 multiply-adds for each of 398 million values are 332 us.
        assert_eq!(
            rows,
            [
                "| 64 of 1920x1080 u8 x3 | 5x5 | 250 | 1.25 | 133 | NPP | 500 | **0.50** | 0.100%, by up to 1 |",
                "| 8192x8192 u8 to f32 | Sobel 3x3 | 250 | 1.25 | 80 |  |  |  |  |",
            ]
        );
        assert!(report.text().contains("1.0e0 off in 398131 values"), "{}", report.text());
    }

    #[test]
    fn wide_filters_have_a_column_for_each_contender() {
        let mut report = sample("8192x8192-5x5");
        assert_eq!(report.wide(), None);
        for (name, us) in
            [("wide-f32-gaussian-41-8192x8192", 300), ("wide-f32-mean-51-8192x8192", 400)]
        {
            let case = case(name);
            let mut rows =
                Rows::new(&case, "gpu:0".to_owned(), &[Duration::from_micros(130)], Some(60e12));
            add(&mut rows, CHOSEN, Who::Apron, Class::Pair, us, 82);
            if us == 300 {
                add(&mut rows, "cuFFT", Who::Peer, Class::Pair, 2000, 0);
            }
            report.rows.extend(rows.list);
        }
        let table = report.wide().unwrap();
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| pictures | filter | copy | chosen | cuFFT |",
                "| --- | --- | ---: | ---: | ---: |",
                "| 8192x8192 f32 | Gaussian 41+41 | 130 | 300 | 2000 |",
                "| 8192x8192 f32 | mean 51x51 | 130 | 400 |  |",
            ]
        );
        assert!(report.pictures().is_none());
    }

    #[test]
    fn duels_are_between_the_best_of_both_sides() {
        let report = sample("8192x8192-5x5");
        let found: Vec<_> =
            report.duels.iter().map(|c| (c.class, c.ours.as_str(), c.rival.as_str())).collect();
        let dense = (Class::Dense, "direct-sliding", "NPP <1> & \"2\"");
        assert_eq!(found, [dense, (Class::Pair, "separable-fused", "NPP pair")]);
        let lost: Vec<_> = report.lost().collect();
        assert_eq!(lost.len(), 1);
        assert!(
            lost[0].contains("pair on gpu:0: separable-fused takes 1.25 times as long as NPP pair"),
            "{}",
            lost[0]
        );
        assert!(report.text().contains("slower than a rival"));
    }

    #[test]
    fn the_json_has_every_figure_that_is_measured() {
        let report = sample("8192x8192-5x5");
        let json: serde_json::Value =
            serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        let keys = |value: &serde_json::Value| {
            value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(keys(&json), "contests cpu gpu rounds rows skipped version");
        assert_eq!(
            keys(&json["rows"][1]),
            "case checked class device image limit_us max_us median_us min_us taps variant who"
        );
        assert_eq!(
            keys(&json["contests"][0]),
            "case class device ours ours_us ratio rival rival_us"
        );
        assert_eq!(json["rows"][1]["who"], "apron");
        assert_eq!(json["rows"][1]["class"], "dense");
    }
}
