//! `bench cliffs`: on the CPU, 8-bit results beside the same into f32, over filters, sizes and contents; and the steps where time grows much
//! faster than work.
//!
//! An 8-bit result is correctly rounded, so some are computed again in f64 (see `host/src/round/mod.rs`). How many depends on the filter and
//! on the picture. The rules:
//!
//! - 8 bits take at most 1.1 times as long as f32 while under 0.5 % of the results are in doubt, else at most 2.3 times; and 3 us more. A
//!   result counts as in doubt if it lies within `2^-24 * 255 * (cols + rows) / 2` of a half: about the error of f32 sums in sequence whose
//!   taps add up to 1.
//! - What lies within 4e-5 of a half is taken for an exact tie, which only the sum that defines the byte can decide: a chain of
//!   additions in f64, one for each tap. For each, 0.3 ns a tap are allowed beside.
//! - From one size to the next, time grows at most 1.6 times as fast as work: what the cheapest way takes at the processor's speed, be it
//!   tap by tap, by rows and columns, by spectra, or by memory alone.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apron::{Device, Filter, Image, Plan};
use serde::Serialize;

use crate::{measure, output};

/// The options.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Columns and rows of the pictures.
    #[arg(long, default_value_t = 1536)]
    side: usize,
    /// Channels of the pictures.
    #[arg(long, default_value_t = 3)]
    channels: usize,
    /// Only filters whose text contains this, or one of several, separated by commas.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Only contents whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    content: String,
    /// How often each is measured; the least time counts.
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// Take the time that the threads were running, divided by their number: for machines with other work. Linux alone tells it.
    #[arg(long)]
    cpu_time: bool,
    /// The folder of the picture.
    #[arg(long, default_value = "assets")]
    assets: PathBuf,
    /// Also write the results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What the pictures show.
const CONTENTS: [&str; 5] = ["noise", "photograph", "flat", "gradient", "saturated"];

/// How a filter can be computed at least cost.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Dense,
    /// By so many rows and columns.
    Passes(usize),
    /// By running sums.
    Counted,
}

/// Every filter with its text and the way it can be computed: in each list, in order of size.
fn filters() -> Result<Vec<Vec<(String, Filter, Way)>>> {
    let presets = |name: &str, values: &[f64], way: Way| -> Result<Vec<_>> {
        values
            .iter()
            .map(|value| {
                let text = format!("{name}{value}");
                let filter = text.parse::<Filter>()?;
                Ok((text, filter, way))
            })
            .collect()
    };
    let random = |sizes: &[(usize, usize)]| -> Result<Vec<_>> {
        sizes
            .iter()
            .map(|&(cols, rows)| {
                let count = cols * rows;
                let taps: Vec<f32> =
                    (0..count).map(|i| (i * 7919 + 13) as f32 % 997.0 / (498 * count) as f32).collect();
                Ok((format!("random {cols}x{rows}"), Filter::from_taps(cols, rows, &taps)?, Way::Dense))
            })
            .collect()
    };
    Ok(vec![
        presets("gaussian:sigma=", &[0.3, 0.8, 1.5, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0], Way::Passes(1))?,
        presets("unsharp:sigma=", &[0.8, 1.5, 2.0, 5.0, 10.0, 20.0, 50.0], Way::Passes(1))?,
        presets("log:sigma=", &[1.5, 2.0, 5.0, 10.0, 20.0], Way::Passes(2))?,
        presets("dog:sigma=", &[1.0, 2.0, 5.0, 10.0], Way::Passes(2))?,
        presets("box:size=", &[3.0, 4.0, 5.0, 6.0, 9.0, 12.0], Way::Passes(1))?,
        presets("box:size=", &[14.0, 20.0, 31.0, 65.0, 101.0, 250.0, 401.0], Way::Counted)?,
        random(&[1, 3, 5, 9, 17, 31, 51, 65, 101, 301, 401].map(|size| (size, size)))?,
        random(&[3, 9, 31, 101, 401].map(|size| (size, 1)))?,
        random(&[3, 9, 31, 101, 401].map(|size| (1, size)))?,
    ])
}

/// Nanoseconds for a result at the processor's speed, about: of one core with AVX-512.
fn work(filter: &Filter, way: Way) -> f64 {
    const MEMORY: f64 = 0.4;
    const TAP: f64 = 0.0125;
    const PASS_TAP: f64 = 0.025;
    // Lines and sums are converted and stored, whatever the filter.
    const LINE: f64 = 0.2;
    let (cols, rows) = (filter.cols() as f64, filter.rows() as f64);
    let spectra = 10.0 * (1.0 + cols.max(rows) / 256.0).powi(2);
    match way {
        Way::Counted => 1.0 + 0.002 * cols,
        Way::Dense => MEMORY + (TAP * cols * rows).min(spectra),
        Way::Passes(terms) => MEMORY + (TAP * cols * rows).min(terms as f64 * (LINE + PASS_TAP * (cols + rows))),
    }
}

/// A measured case.
#[derive(Debug, Serialize)]
struct Row {
    content: &'static str,
    filter: String,
    bytes_ms: f64,
    floats_ms: f64,
    /// Part of the results.
    in_doubt: f64,
    ties: f64,
    /// What breaks a rule.
    broken: Option<String>,
}

/// Measures everything and prints what breaks a rule.
///
/// # Errors
/// If the picture cannot be read, if no case is left, if the engine fails, or if a rule is broken.
pub fn run(options: &Options) -> Result<()> {
    let Options { side, channels, turns, .. } = *options;
    ensure!((1..=4).contains(&channels) && side > 0 && turns > 0, "a side, 1 to 4 channels and a turn are needed");
    println!("{side}x{side}x{channels}, {} threads, least of {turns}", rayon::current_num_threads());
    println!(
        "{:<12}{:<22}{:>10}{:>10}{:>8}{:>11}{:>10}",
        "content", "filter", "u8, ms", "f32, ms", "ratio", "in doubt", "ties"
    );
    let mut rows = Vec::new();
    for content in CONTENTS.into_iter().filter(|name| name.contains(&options.content)) {
        let src = Image::from_vec(pixels(content, options)?, side, side, channels)?;
        for list in filters()? {
            let mut before: Option<(f64, f64)> = None;
            for (text, filter, way) in list {
                if !options.filter.split(',').any(|part| text.contains(part)) {
                    continue;
                }
                let Measured { bytes, floats, in_doubt, ties } = measured(options, &src, &filter)?;
                let results = (side * side * channels) as f64;
                let factor = if in_doubt < 0.005 { 1.1 } else { 2.3 };
                let chains = 0.3e-6 * ties * results * (filter.cols() * filter.rows()) as f64;
                let allowed = factor * floats + chains + 3e-3;
                let work = work(&filter, way);
                let steep = before.map(|(time, less)| bytes / time / (work / less)).filter(|&steep| steep > 1.6);
                before = Some((bytes, work));
                let broken = if bytes > allowed {
                    Some(format!("{:.2} times what is allowed", bytes / allowed))
                } else {
                    steep.map(|steep| format!("{steep:.2} times as steep as its work"))
                };
                let (ratio, shares) = (bytes / floats, [in_doubt, ties].map(|share| 100.0 * share));
                let verdict = broken.as_deref().unwrap_or_default();
                println!(
                    "{content:<12}{text:<22}{bytes:>10.2}{floats:>10.2}{ratio:>8.2}{:>9.3} %{:>8.3} %  {verdict}",
                    shares[0], shares[1]
                );
                let row = Row { content, filter: text, bytes_ms: bytes, floats_ms: floats, in_doubt, ties, broken };
                rows.push(row);
            }
        }
    }
    ensure!(!rows.is_empty(), "nothing is left to measure");
    if let Some(path) = &options.json {
        output::write(path, output::json(&rows)?.as_bytes())?;
    }
    let broken = rows.iter().filter(|row| row.broken.is_some()).count();
    ensure!(broken == 0, "{broken} of {} break a rule", rows.len());
    output::print(&format!("none of {} breaks a rule\n", rows.len()))
}

struct Measured {
    /// Milliseconds.
    bytes: f64,
    floats: f64,
    /// Part of the results.
    in_doubt: f64,
    ties: f64,
}

fn measured(options: &Options, src: &Image<u8>, filter: &Filter) -> Result<Measured> {
    /// How long runs are counted together, where the time of threads is.
    const SPAN: Duration = Duration::from_millis(30);
    let plan = Plan::builder(filter).device(Device::Cpu).build()?;
    let shape = src.shape();
    let mut bytes = Image::<u8>::zeroed(shape.width, shape.height, shape.channels)?;
    let mut floats = Image::<f32>::zeroed(shape.width, shape.height, shape.channels)?;
    let time = |run: &mut dyn FnMut() -> apron::Result<()>| -> Result<f64> {
        let start = Instant::now();
        if !options.cpu_time {
            run()?;
            return Ok(1e3 * start.elapsed().as_secs_f64());
        }
        let (before, mut runs) = (measure::running()?, 0);
        while runs == 0 || start.elapsed() < SPAN {
            run()?;
            runs += 1;
        }
        let threads = rayon::current_num_threads() as u32;
        Ok(1e3 * ((measure::running()? - before) / runs / threads).as_secs_f64())
    };
    let mut least = (f64::MAX, f64::MAX);
    // The first turn makes taps and spectra, and is not counted.
    for turn in 0..=options.turns {
        let one = time(&mut || plan.run(&src.view(), &mut bytes.view_mut()))?;
        let other = time(&mut || plan.run(&src.view(), &mut floats.view_mut()))?;
        if turn > 0 {
            least = (least.0.min(one), least.1.min(other));
        }
    }
    let error = 255.0 * f32::EPSILON / 4.0 * (filter.cols() + filter.rows()) as f32;
    let values = floats.as_slice();
    let share = |error: f32| {
        let near = |value: &&f32| (0.0..=255.0).contains(*value) && ((*value).fract() - 0.5).abs() < error;
        values.iter().filter(near).count() as f64 / values.len() as f64
    };
    // Ties in f32 lie a few roundings beside a half.
    Ok(Measured { bytes: least.0, floats: least.1, in_doubt: share(error), ties: share(error.min(4e-5)) })
}

fn pixels(content: &str, options: &Options) -> Result<Vec<u8>> {
    let Options { side, channels, .. } = *options;
    let len = side * side * channels;
    let mut random = fastrand::Rng::with_seed(1);
    Ok(match content {
        "photograph" => {
            let path = options.assets.join("astronaut.png");
            let photo = image::open(&path).with_context(|| path.display().to_string())?.to_rgb8();
            let at = |i: usize| {
                let (x, y) = ((i / channels % side) as u32, (i / channels / side) as u32);
                photo.get_pixel(x % photo.width(), y % photo.height())[i % channels % 3]
            };
            (0..len).map(at).collect()
        }
        "flat" => vec![77; len],
        "gradient" => (0..len).map(|i| (i / channels % side * 255 / side) as u8).collect(),
        "saturated" => (0..len).map(|_| if random.bool() { 255 } else { 0 }).collect(),
        _ => (0..len).map(|_| random.u8(..)).collect(),
    })
}
