//! `bench cliffs`: times of 8-bit results beside f32 results, over filters, sizes and contents. It
//! also finds steps at which time grows much faster than work. On the CPU, sources are bytes for
//! both results. On a GPU, whose memory holds the pictures, f32 results come from planes of f32.
//!
//! A byte is correctly rounded, so results that f32 leaves uncertain are computed again. Their
//! number depends on the filter and on the picture. The rules:
//!
//! - 8-bit results take at most 1.1 times as long as f32 while under 0.5 % of the results are
//!   uncertain, else at most 2.3 times. 3 us are added. A result counts as uncertain if it lies
//!   within `2^-24 * 255 * (cols + rows) / 2` of a half. This is about the error of sequential f32
//!   sums whose taps add up to 1.
//! - Tables of more than 10,000 taps take at most 4 times as long as f32. No other rule holds for
//!   them.
//! - On patterns, where all results may be uncertain, products of a row and a column, their sums
//!   and means take at most 4 times as long as on noise. Tables take at most 4 times as long as
//!   f32.
//! - From one size to the next, time grows at most 1.6 times as fast as work. Work is the time of a
//!   copy, and of the cheapest algorithm at the processor's speed: tap by tap, by rows and columns,
//!   or by spectra. Windows of a single tap are left out of this comparison.
//!
//! Rows that break a rule are measured again, because the machine may have been slow at that time.
//!
//! Last come float pictures with NaN, infinities, huge and subnormal pixels (`special.rs`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use apron::gpu::{DeviceImage, Gpu};
use apron::{Device, Filter, Image, Layout, Plan, Scalar, Shape};
use rayon::prelude::*;
use serde::Serialize;

use crate::contents::{self, Page};
use crate::measure::{self, Bed};
use crate::{output, special};

/// The options.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where to run: cpu or gpu:N.
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Columns and rows of the pictures: 1536 on the CPU, 4096 on a GPU, unless set.
    #[arg(long)]
    side: Option<usize>,
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
    /// How often the whole list is gone through; the least time counts. For machines that are slow
    /// for seconds at a time.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// How often rows that break a rule are then measured again; the least time counts.
    #[arg(long, default_value_t = 2)]
    again: usize,
    /// Count the time that the threads were running, divided by their number: for machines with
    /// other load. Linux only.
    #[arg(long)]
    cpu_time: bool,
    /// The folder of the picture.
    #[arg(long, default_value = "assets")]
    assets: PathBuf,
    /// Also write the results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The cheapest algorithm for a filter.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Dense,
    /// By this many pairs of a row and a column.
    Passes(usize),
    /// By running sums.
    Counted,
}

/// Every filter, with its text and its cheapest algorithm. Each list is in order of size.
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
                let taps: Vec<f32> = (0..count)
                    .map(|i| (i * 7919 + 13) as f32 % 997.0 / (498 * count) as f32)
                    .collect();
                Ok((
                    format!("random {cols}x{rows}"),
                    Filter::from_taps(cols, rows, &taps)?,
                    Way::Dense,
                ))
            })
            .collect()
    };
    Ok(vec![
        presets(
            "gaussian:sigma=",
            &[0.3, 0.8, 1.5, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0],
            Way::Passes(1),
        )?,
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

/// A processor's approximate speed, in nanoseconds for one result.
struct Speed {
    /// To read and write one byte: a copy.
    memory: f64,
    /// For one tap of a window, and for one tap of a pass.
    tap: f64,
    pass_tap: f64,
    /// To convert and store one result of a pass.
    line: f64,
    /// By spectra, for small windows.
    spectra: f64,
    /// By running sums, and the increase for each column of the window. `None` if the processor has
    /// no such algorithm.
    counted: Option<(f64, f64)>,
}

/// One core with AVX-512. `memory` is for pictures that fit the cache, as those of the list do.
const CORE: Speed = Speed {
    memory: 0.03,
    tap: 0.0125,
    pass_tap: 0.025,
    line: 0.2,
    spectra: 10.0,
    counted: Some((1.0, 0.002)),
};

/// An H200: its memory, and its multiply-adds.
const H200: Speed = Speed {
    memory: 5e-4,
    tap: 3.1e-5,
    pass_tap: 3.1e-5,
    line: 2e-4,
    spectra: 5.6e-3,
    counted: None,
};

/// The work for one result: estimated nanoseconds at a processor's speed.
fn work(speed: &Speed, filter: &Filter, way: Way) -> f64 {
    let (cols, rows) = (filter.cols() as f64, filter.rows() as f64);
    let dense = speed.tap * cols * rows;
    let passes =
        |terms: usize| dense.min(terms as f64 * (speed.line + speed.pass_tap * (cols + rows)));
    match (way, speed.counted) {
        (Way::Counted, Some((each, column))) => each + column * cols,
        (Way::Counted, None) => speed.memory + passes(1),
        (Way::Dense, _) => {
            speed.memory + dense.min(speed.spectra * (1.0 + cols.max(rows) / 256.0).powi(2))
        }
        (Way::Passes(terms), _) => speed.memory + passes(terms),
    }
}

/// A measured case, and the rule that it breaks.
#[derive(Debug, Serialize)]
struct Row {
    content: &'static str,
    filter: String,
    /// The least times.
    bytes_ms: f64,
    floats_ms: f64,
    /// The fraction of the results that are uncertain.
    uncertain: f64,
    /// How the case breaks a rule, if it does.
    broken: Option<String>,
}

/// A row of either list.
#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Bytes(&'a Row),
    Special(&'a special::Row),
}

/// Measures everything and prints a table, with the rule that each row breaks.
///
/// # Errors
/// If the picture cannot be read, if no case is left, if the engine fails, or if a rule is broken.
pub fn run(options: &Options) -> Result<()> {
    let Options { device, channels, turns, rounds, .. } = *options;
    let gpu = match device {
        Device::Cpu => None,
        Device::Gpu(ordinal) => Some(Gpu::open(ordinal)?),
        other => anyhow::bail!("{other}: cpu or gpu:N is needed"),
    };
    let (usual, speed) = if gpu.is_some() { (4096, &H200) } else { (1536, &CORE) };
    let side = options.side.unwrap_or(usual);
    let is_some = side > 0 && turns > 0 && rounds > 0;
    ensure!(
        (1..=4).contains(&channels) && is_some,
        "a side, 1 to 4 channels, a turn and a round are needed"
    );
    let place = match &gpu {
        Some(gpu) => gpu.info().name.clone(),
        None => format!("{} threads", rayon::current_num_threads()),
    };
    println!("{side}x{side}x{channels}, {place}, least of {}", turns * rounds);
    let all = || contents::ORDINARY.into_iter().chain(contents::PATTERNS);
    let is_wanted = |name: &&str| name.contains(&options.content);
    // Patterns are compared with noise, so noise is measured too.
    let noise = contents::PATTERNS.into_iter().any(|name| is_wanted(&name));
    let contents: Vec<_> =
        all().filter(|name| is_wanted(name) || noise && *name == "noise").collect();
    let is_meant = |text: &str| options.filter.split(',').any(|part| text.contains(part));
    let lists: Vec<Vec<_>> = filters()?
        .into_iter()
        .map(|list| list.into_iter().filter(|(text, ..)| is_meant(text)).collect())
        .collect();
    let mut rows: Vec<Row> = Vec::new();
    for round in 0..rounds + options.again {
        let mut number = 0;
        for &content in &contents {
            // The first rounds measure all rows, later rounds only rows that break a rule.
            let is_due = |number: usize| round < rounds || rows[number].broken.is_some();
            let due: Vec<_> = lists
                .iter()
                .flatten()
                .zip(number..)
                .filter(|&(_, number)| is_due(number))
                .collect();
            number += lists.iter().map(Vec::len).sum::<usize>();
            if due.is_empty() {
                continue;
            }
            let page = Page { side, channels, assets: &options.assets };
            let src = Image::from_vec(contents::pixels(content, &page)?, side, side, channels)?;
            let on_gpu = gpu.as_ref().map(|gpu| OnGpu::new(gpu, &src)).transpose()?;
            for ((text, filter, _), number) in due {
                let plan = Plan::builder(filter).device(device).build()?;
                let (bytes_ms, floats_ms, sums) = match &on_gpu {
                    Some(pictures) => pictures.measure(turns, &plan)?,
                    None => on_cpu(options, &src, &plan)?,
                };
                if let Some(row) = rows.get_mut(number) {
                    row.bytes_ms = row.bytes_ms.min(bytes_ms);
                    row.floats_ms = row.floats_ms.min(floats_ms);
                } else {
                    let error = 255.0 * f32::EPSILON / 4.0 * (filter.cols() + filter.rows()) as f32;
                    let (filter, uncertain) = (text.clone(), share(&sums, error));
                    rows.push(Row {
                        content,
                        filter,
                        bytes_ms,
                        floats_ms,
                        uncertain,
                        broken: None,
                    });
                }
            }
        }
        let on_noise: BTreeMap<_, _> = rows
            .iter()
            .filter(|row| row.content == "noise")
            .map(|row| (row.filter.clone(), row.bytes_ms))
            .collect();
        let mut measured = rows.iter_mut();
        for list in contents.iter().flat_map(|_| &lists) {
            judge(speed, &on_noise, list, &mut measured);
        }
    }

    if !rows.is_empty() {
        println!(
            "{:<12}{:<22}{:>10}{:>10}{:>8}{:>11}",
            "content", "filter", "u8, ms", "f32, ms", "ratio", "uncertain"
        );
    }
    for Row { content, filter, bytes_ms: bytes, floats_ms: floats, uncertain, broken } in &rows {
        let ratio = bytes / floats;
        println!(
            "{content:<12}{filter:<22}{bytes:>10.3}{floats:>10.3}{ratio:>8.2}{:>9.3} %  {}",
            100.0 * uncertain,
            broken.as_deref().unwrap_or_default()
        );
    }
    let wants = |content: &str, text: &str| content.contains(&options.content) && is_meant(text);
    let special = special::run(device, gpu.as_ref(), (side, turns * rounds), wants)?;
    let lines: Vec<_> =
        rows.iter().map(Line::Bytes).chain(special.iter().map(Line::Special)).collect();
    ensure!(!lines.is_empty(), "nothing is left to measure");
    if let Some(path) = &options.json {
        output::write(path, output::json(&lines)?.as_bytes())?;
    }
    let is_broken = |line: &&Line| match line {
        Line::Bytes(row) => row.broken.is_some(),
        Line::Special(row) => row.broken.is_some(),
    };
    let broken = lines.iter().filter(is_broken).count();
    ensure!(broken == 0, "{broken} of {} break a rule", lines.len());
    output::print(&format!("none of {} breaks a rule\n", lines.len()))
}

/// Notes which rows of a list break a rule.
fn judge<'a>(
    speed: &Speed,
    on_noise: &BTreeMap<String, f64>,
    list: &[(String, Filter, Way)],
    rows: &mut impl Iterator<Item = &'a mut Row>,
) {
    let mut before: Option<(f64, f64)> = None;
    for ((text, filter, way), row) in list.iter().zip(rows) {
        let Row { bytes_ms: bytes, floats_ms: floats, uncertain, .. } = *row;
        let (taps, is_large) = (filter.cols() * filter.rows(), is_large_table(filter));
        let is_pattern = contents::PATTERNS.contains(&row.content);
        let allowed = match way {
            Way::Dense if is_pattern || is_large => 4.0 * floats,
            _ if is_pattern => 4.0 * on_noise.get(text).copied().unwrap_or(f64::INFINITY),
            _ if uncertain < 0.005 => 1.1 * floats,
            _ => 2.3 * floats,
        };
        let allowed = allowed + 3e-3;
        let work = work(speed, filter, *way);
        let steep = before
            .map(|(time, less)| bytes / time / (work / less))
            .filter(|&steep| steep > 1.6 && !is_large);
        if taps > 1 {
            before = Some((bytes, work));
        }
        row.broken = if bytes > allowed {
            Some(format!("{:.2} times what is allowed", bytes / allowed))
        } else {
            steep.map(|steep| format!("{steep:.2} times as steep as its work"))
        };
    }
}

/// Whether a filter is a table of more than 10,000 taps. A result that floats do not determine, or
/// that spectra cannot hold, takes a sum over all of them.
pub(crate) fn is_large_table(filter: &Filter) -> bool {
    !filter.is_separable() && filter.summed().is_none() && filter.cols() * filter.rows() > 10_000
}

/// The fraction of sums that lie within `error` of a half.
fn share(sums: &[f32], error: f32) -> f64 {
    let near = |sum: &&f32| (0.0..=255.0).contains(*sum) && ((*sum).fract() - 0.5).abs() < error;
    sums.par_iter().filter(near).count() as f64 / sums.len() as f64
}

/// Milliseconds from bytes to bytes and from bytes to f32, and the sums.
fn on_cpu(options: &Options, src: &Image<u8>, plan: &Plan) -> Result<(f64, f64, Vec<f32>)> {
    /// With `cpu_time`, runs are timed together for this long.
    const SPAN: Duration = Duration::from_millis(30);
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
    // The first turn prepares taps and spectra, and does not count.
    for turn in 0..=options.turns {
        let one = time(&mut || plan.run(&src.view(), &mut bytes.view_mut()))?;
        let other = time(&mut || plan.run(&src.view(), &mut floats.view_mut()))?;
        if turn > 0 {
            least = (least.0.min(one), least.1.min(other));
        }
    }
    Ok((least.0, least.1, floats.as_slice().to_vec()))
}

/// A picture in a GPU's memory: as interleaved bytes, and as planes of f32.
struct OnGpu<'a> {
    gpu: &'a Gpu,
    shape: Shape,
    bytes: DeviceImage,
    floats: DeviceImage,
}

impl<'a> OnGpu<'a> {
    fn new(gpu: &'a Gpu, src: &Image<u8>) -> Result<Self> {
        let Shape { width, height, channels } = src.shape();
        let floats = src.as_slice().par_iter().map(|&byte| f32::from(byte)).collect();
        let floats = gpu.upload(&Image::from_vec(floats, width, height, channels)?.view())?;
        Ok(Self { gpu, shape: src.shape(), bytes: gpu.upload_stored(&src.view())?, floats })
    }

    /// As [`on_cpu`], but the second time is from f32 to f32.
    fn measure(&self, turns: usize, plan: &Plan) -> Result<(f64, f64, Vec<f32>)> {
        let Self { gpu, shape, .. } = *self;
        let least = |source, target: Scalar, layout| -> Result<f64> {
            let mut bed = Bed::between(gpu, source, &gpu.image_of(shape, target, layout)?)?;
            let times =
                bed.times(turns, |src, dst, stream| plan.run_on_device(src, dst, stream))?;
            Ok(1e3 * times.into_iter().min().unwrap_or_default().as_secs_f64())
        };
        let bytes = least(&self.bytes, Scalar::U8, Layout::Interleaved)?;
        let floats = least(&self.floats, Scalar::F32, Layout::Planar)?;
        let (mut sums, mut stream) = (gpu.image(shape)?, gpu.stream()?);
        plan.run_on_device(&self.floats, &mut sums, &mut stream)?;
        stream.synchronize()?;
        Ok((bytes, floats, gpu.download(&sums)?.into_vec()))
    }
}
