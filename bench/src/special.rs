//! The part of `bench cliffs` about float pictures with special values. Such a picture may take,
//! compared with a clean one:
//!
//! - with NaN, subnormal or huge pixels at most twice the time, with infinities at most four times;
//!   10 ms are added;
//! - and in no case more than 1.1 times the direct variant's time for the same picture, where the
//!   tenth allows for the clock. Only this limit holds for a picture with a pixel too large for
//!   spectra, and for tables of more than 10,000 taps.
//!
//! On a GPU, the direct variant is the fastest that has a kernel for the filter. Direct runs that
//! would take seconds are left out, and their rows lack this limit.

use std::time::{Duration, Instant};

use anyhow::Result;
use apron::gpu::Gpu;
use apron::{Device, Error, Family, Filter, Image, Pixel, Plan, Scalar, Variant, f16};
use serde::Serialize;

use crate::cliffs::is_large_table;
use crate::measure::Bed;

/// Contents: a name, the special value as f32 and as f16, the distance in pixels between two of
/// them if there are several, and the largest allowed factor over a clean picture's time.
const CONTENTS: [(&str, [f32; 2], Option<usize>, f64); 8] = [
    ("one NaN", [f32::NAN; 2], None, 2.0),
    ("scattered NaN", [f32::NAN; 2], Some(50), 2.0),
    ("NaN alone", [f32::NAN; 2], Some(1), 2.0),
    ("one infinity", [f32::INFINITY; 2], None, 4.0),
    ("scattered infinities", [f32::NEG_INFINITY; 2], Some(50), 4.0),
    ("one hot pixel", [1e30, 6e4], None, 2.0),
    ("too hot for spectra", [3e38, 6e4], Some(100_003), f64::INFINITY),
    ("subnormal alone", [1e-40, 3e-7], Some(1), 2.0),
];

/// Filters by text. The names and sides of dense filters: "random" has a few zero taps and no
/// negative ones, "signed" has both signs.
const PRESETS: [&str; 2] = ["gaussian:sigma=5", "motion:length=41,angle=30"];
const DENSE: [(&str, &[usize]); 2] = [("random", &[31, 51, 101, 301]), ("signed", &[51, 101])];

/// Multiply-adds of a direct run that take about a second on two cores.
const MAX_ON_CPU: usize = 100_000_000_000;

/// The same for a few seconds on an H200, by its slowest direct kernel.
const MAX_ON_GPU: usize = 10_000_000_000_000;

/// A measured case, and the limit that it breaks.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    content: &'static str,
    filter: String,
    stored: &'static str,
    clean_ms: f64,
    special_ms: f64,
    direct_ms: Option<f64>,
    pub(crate) broken: Option<String>,
}

fn filters() -> Result<Vec<(String, Filter)>> {
    let mut all = Vec::new();
    for text in PRESETS {
        all.push((text.to_owned(), text.parse()?));
    }
    for (name, sides) in DENSE {
        for &side in sides {
            let middle = if name == "signed" { 498.0 } else { 0.0 };
            let tap =
                |i: usize| ((i * 7919 + 13) as f32 % 997.0 - middle) / (498 * side * side) as f32;
            let taps: Vec<f32> = (0..side * side).map(tap).collect();
            all.push((format!("{name} {side}x{side}"), Filter::from_taps(side, side, &taps)?));
        }
    }
    Ok(all)
}

/// Measures all contents and filters whose names are wanted, on pictures of `side` by `side`, and
/// prints them. The least of `turns` times counts.
pub(crate) fn run(
    device: Device,
    gpu: Option<&Gpu>,
    (side, turns): (usize, usize),
    wants: impl Fn(&str, &str) -> bool,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (text, filter) in filters()? {
        if CONTENTS.iter().any(|(content, ..)| wants(content, &text)) {
            let bed = Measured { device, gpu, side, turns, text: &text, filter: &filter };
            rows.extend(bed.rows::<f32>("f32", 0, &wants)?);
            rows.extend(bed.rows::<f16>("f16", 1, &wants)?);
        }
    }
    if !rows.is_empty() {
        println!(
            "{:<22}{:<27}{:>5}{:>11}{:>12}{:>11}",
            "content", "filter", "", "clean, ms", "special, ms", "direct, ms"
        );
    }
    for Row { content, filter, stored, clean_ms, special_ms, direct_ms, broken } in &rows {
        let direct = direct_ms.map_or_else(String::new, |time| format!("{time:.3}"));
        let broken = broken.as_deref().unwrap_or_default();
        println!(
            "{content:<22}{filter:<27}{stored:>5}{clean_ms:>11.3}{special_ms:>12.3}{direct:>11}  {broken}"
        );
    }
    Ok(rows)
}

/// One measurement: the filter and the device.
struct Measured<'a> {
    device: Device,
    gpu: Option<&'a Gpu>,
    side: usize,
    turns: usize,
    text: &'a str,
    filter: &'a Filter,
}

impl Measured<'_> {
    fn rows<P: Pixel>(
        &self,
        stored: &'static str,
        which: usize,
        wants: &impl Fn(&str, &str) -> bool,
    ) -> Result<Vec<Row>> {
        let plan = Plan::builder(self.filter).device(self.device).build()?;
        let direct = self.direct::<P>()?;
        let clean_ms = self.time::<P>(&plan, None, self.turns)?;
        let mut rows = Vec::new();
        for &(content, values, step, factor) in
            CONTENTS.iter().filter(|(content, ..)| wants(content, self.text))
        {
            let special = Some((values[which], step));
            let special_ms = self.time::<P>(&plan, special, self.turns)?;
            let direct_ms = direct
                .as_ref()
                .map(|direct| self.time::<P>(direct, special, self.turns))
                .transpose()?;
            let factor = if is_large_table(self.filter) { f64::INFINITY } else { factor };
            let limit = (factor * clean_ms + 10.0)
                .min(direct_ms.map_or(f64::INFINITY, |time| 1.1 * time + 0.1));
            let broken = (special_ms > limit)
                .then(|| format!("{:.2} times what is allowed", special_ms / limit));
            let filter = self.text.to_owned();
            rows.push(Row { content, filter, stored, clean_ms, special_ms, direct_ms, broken });
        }
        Ok(rows)
    }

    /// The fastest plan that sums tap by tap; `None` if it would take seconds.
    fn direct<P: Pixel>(&self) -> Result<Option<Plan>> {
        let most = if self.gpu.is_some() { MAX_ON_GPU } else { MAX_ON_CPU };
        if self.filter.cols() * self.filter.rows() * self.side * self.side > most {
            return Ok(None);
        }
        let build =
            |variant| Plan::builder(self.filter).device(self.device).variant(variant).build();
        if self.gpu.is_none() {
            // The engine has one direct algorithm for all variants.
            return Ok(Some(build(Variant::DirectNaive)?));
        }
        let mut fastest: Option<(f64, Plan)> = None;
        for variant in Variant::all().filter(|variant| variant.family() == Family::Direct) {
            let timed = build(variant).map_err(anyhow::Error::from).and_then(|plan| {
                let time = self.time::<P>(&plan, None, 1)?;
                Ok((time, plan))
            });
            match timed {
                Ok(timed) => {
                    fastest = fastest.take().filter(|(least, _)| *least <= timed.0).or(Some(timed))
                }
                // Not every kernel takes every window.
                Err(error) if matches!(error.downcast_ref(), Some(Error::Unsupported { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(fastest.map(|(_, plan)| plan))
    }

    /// Milliseconds for a picture of noise, with a special value once or at regular distances.
    fn time<P: Pixel>(
        &self,
        plan: &Plan,
        special: Option<(f32, Option<usize>)>,
        turns: usize,
    ) -> Result<f64> {
        let (side, len) = (self.side, self.side * self.side);
        let mut random = fastrand::Rng::with_seed(1);
        let mut pixels: Vec<P> = (0..len).map(|_| P::from_f32(random.f32())).collect();
        if let Some((value, step)) = special {
            let first = if step.is_some() { 0 } else { len / 2 + side / 3 };
            pixels[first..]
                .iter_mut()
                .step_by(step.unwrap_or(len))
                .for_each(|pixel| *pixel = P::from_f32(value));
        }
        let src = Image::from_vec(pixels, side, side, 1)?;
        let least =
            |times: Vec<Duration>| 1e3 * times.into_iter().min().unwrap_or_default().as_secs_f64();
        if let Some(gpu) = self.gpu {
            let src = if P::SCALAR == Scalar::F32 {
                gpu.upload(&src.view())?
            } else {
                gpu.upload_stored(&src.view())?
            };
            let mut bed = Bed::new(gpu, &src)?;
            return Ok(least(
                bed.times(turns, |src, dst, stream| plan.run_on_device(src, dst, stream))?,
            ));
        }
        let mut dst = Image::<P>::zeroed(side, side, 1)?;
        let mut times = Vec::new();
        // The first turn prepares taps and spectra, and does not count.
        for turn in 0..=turns {
            let start = Instant::now();
            plan.run(&src.view(), &mut dst.view_mut())?;
            if turn > 0 {
                times.push(start.elapsed());
            }
        }
        Ok(least(times))
    }
}
