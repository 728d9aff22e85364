//! `bench`: every case checked, then measured.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use apron::gpu::{DeviceImage, Gpu};
use apron::{Device, Error, Filter, Image, Plan, Variant};
use rayon::prelude::*;
use serde::Serialize;

use crate::cases::{CASES, Case};
use crate::measure::{Bed, Rhythm, median, on_host};
use crate::{family_name, output, why};

/// What can be asked of the benchmark.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where to measure: auto, cpu, gpu:N. The CPU is measured in any case.
    #[arg(long, default_value = "auto")]
    device: Device,
    /// Only cases whose name contains this, as 8192x8192.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter_case: String,
    /// Fewer rounds: less exact, and sooner done.
    #[arg(long)]
    quick: bool,
    /// Also write the results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// All that one run measured.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    gpu: Option<GpuReport>,
    cpu_threads: usize,
    rounds: usize,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct GpuReport {
    name: String,
    capability: (u32, u32),
    driver: (u32, u32),
    kernels: u32,
    compiler: Option<&'static str>,
}

/// One variant's times in one case.
#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    variant: &'static str,
    device: String,
    median_us: f64,
    min_us: f64,
    max_us: f64,
    gigapixels_per_second: f64,
    /// Each pixel read once and written once.
    gigabytes_per_second: f64,
    percent_of_copy: f64,
    /// What the result was compared with before it was measured.
    checked: &'static str,
}

/// Runs the benchmark and prints its table.
///
/// # Errors
/// If no case has the name, if a result is wrong, or if something fails.
pub fn run(options: &Options) -> Result<()> {
    let cases: Vec<_> = CASES.iter().filter(|case| case.name.contains(&options.filter_case)).collect();
    ensure!(
        !cases.is_empty(),
        "no case's name contains \"{}\"; there are: {}",
        options.filter_case,
        CASES.iter().map(|case| case.name).collect::<Vec<_>>().join(", ")
    );
    let mut fallback = String::new();
    let gpu = match options.device {
        Device::Cpu => None,
        Device::Gpu(ordinal) => Some((ordinal, Gpu::open(ordinal)?)),
        Device::Auto => match Gpu::open(0) {
            Ok(gpu) => Some((0, gpu)),
            Err(error @ (Error::NoGpu { .. } | Error::NoSuchGpu { .. })) => {
                fallback = why(&error);
                None
            }
            Err(error) => return Err(error.into()),
        },
    };
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION"),
        gpu: gpu.as_ref().map(|(_, gpu)| GpuReport::new(gpu)),
        cpu_threads: rayon::current_num_threads(),
        rounds: if options.quick { 3 } else { 21 },
        rows: Vec::new(),
    };
    output::print(&report.heading(&fallback))?;
    for case in cases {
        let gpu = gpu.as_ref().map(|(ordinal, gpu)| (*ordinal, gpu));
        let rows = measure(case, gpu, report.rounds).with_context(|| format!("case {}", case.name))?;
        report.rows.extend(rows);
    }
    output::print(&report.table())?;
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        output::write(path, json.as_bytes())?;
    }
    Ok(())
}

/// Checks and measures one case: on the CPU, and on the GPU if there is one.
fn measure(case: &'static Case, gpu: Option<(u32, &Gpu)>, rounds: usize) -> Result<Vec<Row>> {
    let filter = case.filter()?;
    let src = Image::from_vec(case.pixels(), case.width, case.height, 1)?;
    let mut dst = Image::<f32>::zeroed(case.width, case.height, 1)?;
    // Processors vary less than they are slow.
    let cpu_rounds = rounds.div_ceil(4);

    let (input, output) = (src.as_slice(), &mut vec![0.0f32; src.as_slice().len()]);
    let copies = on_host(cpu_rounds, || {
        output.par_chunks_mut(1 << 16).zip(input.par_chunks(1 << 16)).for_each(|(to, from)| to.copy_from_slice(from));
        anyhow::Ok(())
    })?;
    let mut rows = Rows::new(case, "cpu".to_owned(), &copies);

    let mut expected = Vec::new();
    for &family in case.families {
        let variant =
            Variant::all().find(|variant| variant.family() == family).context("a family without a variant")?;
        let plan = Plan::builder(&filter).device(Device::Cpu).variant(variant).build()?;
        let times = on_host(cpu_rounds, || plan.run(&src.view(), &mut dst.view_mut()))?;
        check_spots(&filter, &src, &dst)?;
        rows.add(family_name(family), &times, "f64, 1000 pixels");
        expected.push((family, dst.clone()));
    }
    let mut all = rows.list;

    if let Some((ordinal, gpu)) = gpu {
        let device_src = gpu.upload(&src.view())?;
        let mut bed = Bed::new(gpu, &device_src)?;
        let mut runners = Vec::new();
        for variant in Variant::all() {
            let Some((_, expected)) = expected.iter().find(|(family, _)| *family == variant.family()) else { continue };
            let plan = Plan::builder(&filter).device(Device::Gpu(ordinal)).variant(variant).build();
            let plan = match plan.and_then(|plan| plan.variant_for(src.shape()).map(|_| plan)) {
                Err(Error::Unsupported { .. }) => continue,
                plan => plan?,
            };
            check_on(gpu, &plan, &device_src, expected).with_context(|| variant.name())?;
            let rhythm = bed.rhythm(|src, dst, stream| plan.run_on_device(src, dst, stream))?;
            runners.push(Runner { variant, plan, rhythm, times: Vec::new() });
        }

        let copy = bed.rhythm(|src, dst, stream| dst.copy_from(src, stream))?;
        let mut copies = Vec::new();
        // Round by round, so that a clock that changes changes it for all.
        for _ in 0..rounds {
            copies.push(bed.time(copy, |src, dst, stream| dst.copy_from(src, stream))?);
            for Runner { plan, rhythm, times, .. } in &mut runners {
                times.push(bed.time(*rhythm, |src, dst, stream| plan.run_on_device(src, dst, stream))?);
            }
        }
        let mut rows = Rows::new(case, format!("gpu:{ordinal}"), &copies);
        for runner in &runners {
            rows.add(runner.variant.name(), &runner.times, "CPU, all bits");
        }
        all.extend(rows.list);
    }
    Ok(all)
}

/// A variant that is measured.
struct Runner {
    variant: Variant,
    plan: Plan,
    rhythm: Rhythm,
    times: Vec<Duration>,
}

/// A plan's result on the device against what the CPU has: each pixel's bits.
fn check_on(gpu: &Gpu, plan: &Plan, src: &DeviceImage, expected: &Image<f32>) -> Result<()> {
    let mut stream = gpu.stream()?;
    let mut dst = gpu.image(src.shape())?;
    // Memory that the driver hands out may still hold another run's right result.
    dst.fill(f32::NAN, &stream)?;
    plan.run_on_device(src, &mut dst, &mut stream)?;
    stream.synchronize()?;
    let found = gpu.download(&dst)?;
    let pixels = found.as_slice().iter().zip(expected.as_slice());
    if let Some(at) = pixels.clone().position(|(found, expected)| found.to_bits() != expected.to_bits()) {
        let count = pixels.filter(|(found, expected)| found.to_bits() != expected.to_bits()).count();
        let (x, y) = (at % src.shape().width, at / src.shape().width);
        let (found, expected) = (found.as_slice()[at], expected.as_slice()[at]);
        bail!("wrong result: {found} instead of {expected} at ({x}, {y}), and {count} pixels in all");
    }
    Ok(())
}

/// A thousand pixels, those of the corners among them, against the definition computed in f64.
fn check_spots(filter: &Filter, src: &Image<f32>, dst: &Image<f32>) -> Result<()> {
    let shape = src.shape();
    let mut random = fastrand::Rng::with_seed(1);
    let (anchor_x, anchor_y) = filter.anchor();
    // Reflect101 for windows smaller than the image: one fold is enough.
    let fold = |i: isize, n: usize| if i < 0 { -i } else { i.min(2 * (n as isize - 1) - i) } as usize;
    for spot in 0..1000 {
        let (x, y) = match spot {
            0 => (0, 0),
            1 => (shape.width - 1, 0),
            2 => (0, shape.height - 1),
            3 => (shape.width - 1, shape.height - 1),
            _ => (random.usize(..shape.width), random.usize(..shape.height)),
        };
        let (mut sum, mut scale) = (0.0f64, 0.0f64);
        for row in 0..filter.rows() {
            let source = src.view().row(fold((y + row) as isize - anchor_y as isize, shape.height));
            for col in 0..filter.cols() {
                let value = source[fold((x + col) as isize - anchor_x as isize, shape.width)];
                let product = filter.tap(row, col) * f64::from(value);
                sum += product;
                scale += product.abs();
            }
        }
        let found = f64::from(dst.view().row(y)[x]);
        // Each tap, product and sum in f32 is off by half a unit in the last place at most.
        let bound = (filter.cols() * filter.rows() + 2) as f64 * f64::from(f32::EPSILON) * scale;
        ensure!((found - sum).abs() <= bound, "wrong result: {found} instead of {sum} at ({x}, {y})");
    }
    Ok(())
}

/// Rows of one case on one device.
struct Rows {
    case: &'static Case,
    device: String,
    copy: Duration,
    list: Vec<Row>,
}

impl Rows {
    fn new(case: &'static Case, device: String, copies: &[Duration]) -> Self {
        let mut rows = Self { case, device, copy: median(copies.to_vec()), list: Vec::new() };
        rows.add("copy", copies, "-");
        rows
    }

    fn add(&mut self, variant: &'static str, times: &[Duration], checked: &'static str) {
        let middle = median(times.to_vec());
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let extreme = |time: Option<&Duration>| us(time.copied().unwrap_or(middle));
        let pixels = (self.case.width * self.case.height) as f64;
        let seconds = middle.as_secs_f64();
        self.list.push(Row {
            case: self.case.name,
            variant,
            device: self.device.clone(),
            median_us: us(middle),
            min_us: extreme(times.iter().min()),
            max_us: extreme(times.iter().max()),
            gigapixels_per_second: pixels / seconds / 1e9,
            gigabytes_per_second: 8.0 * pixels / seconds / 1e9,
            percent_of_copy: 100.0 * self.copy.as_secs_f64() / seconds,
            checked,
        });
    }
}

impl GpuReport {
    fn new(gpu: &Gpu) -> Self {
        let info = gpu.info();
        Self {
            name: info.name.clone(),
            capability: info.capability,
            driver: info.driver,
            kernels: gpu.tier(),
            compiler: apron::gpu::embedded().find(|tier| tier.arch == gpu.tier()).map(|tier| tier.compiler),
        }
    }
}

impl Report {
    fn heading(&self, fallback: &str) -> String {
        let mut text = format!("CPU: {} threads{fallback}\n", self.cpu_threads);
        if let Some(gpu) = &self.gpu {
            let GpuReport { name, capability, driver, kernels, compiler } = gpu;
            text += &format!(
                "GPU: {name}, compute capability {}.{}, driver for CUDA {}.{}; kernels for sm_{kernels} by {}\n",
                capability.0,
                capability.1,
                driver.0,
                driver.1,
                compiler.unwrap_or("an unknown compiler")
            );
        }
        text + &format!("f32, one channel, border reflect101; medians of {} rounds\n\n", self.rounds)
    }

    fn table(&self) -> String {
        let header = ["case", "variant", "device", "checked against", "us", "Gpx/s", "GB/s", "% of copy"];
        let rows = self.rows.iter().map(|row| {
            vec![
                row.case.to_owned(),
                row.variant.to_owned(),
                row.device.clone(),
                row.checked.to_owned(),
                format!("{:.1}", row.median_us),
                output::number(row.gigapixels_per_second),
                output::number(row.gigabytes_per_second),
                output::number(row.percent_of_copy),
            ]
        });
        output::table(&header, 4, rows)
    }
}

#[cfg(test)]
mod tests {
    use apron::Family;

    use super::*;

    fn small() -> (Filter, Image<f32>, Image<f32>) {
        let case = Case { name: "small", width: 67, height: 41, taps: 5, families: &[Family::Direct] };
        let filter = case.filter().unwrap();
        let src = Image::from_vec(case.pixels(), case.width, case.height, 1).unwrap();
        let plan = Plan::builder(&filter).device(Device::Cpu).build().unwrap();
        let dst = plan.filter(&src.view()).unwrap();
        (filter, src, dst)
    }

    #[test]
    fn a_right_result_passes_and_a_wrong_pixel_does_not() {
        let (filter, src, dst) = small();
        check_spots(&filter, &src, &dst).unwrap();
        for wrong in [0, 66, 67 * 40, 67 * 41 - 1] {
            let mut pixels = dst.as_slice().to_vec();
            pixels[wrong] += 1e-3;
            let dst = Image::from_vec(pixels, 67, 41, 1).unwrap();
            assert!(check_spots(&filter, &src, &dst).is_err());
        }
    }

    #[test]
    fn a_border_taken_for_another_does_not_pass() {
        let (filter, src, _) = small();
        let plan = Plan::builder(&filter).device(Device::Cpu).border(apron::Border::Reflect).build().unwrap();
        assert!(check_spots(&filter, &src, &plan.filter(&src.view()).unwrap()).is_err());
    }

    #[test]
    fn figures_follow_from_the_median() {
        let ms = Duration::from_millis;
        let mut rows = Rows::new(&CASES[2], "gpu:0".to_owned(), &[ms(1), ms(3), ms(2)]);
        rows.add("x", &[ms(9), ms(4), ms(3)], "-");
        let row = &rows.list[1];
        assert_eq!((row.min_us, row.median_us, row.max_us), (3e3, 4e3, 9e3));
        assert_eq!(row.percent_of_copy, 50.0);
        assert!((row.gigapixels_per_second - 16.777216).abs() < 1e-9);
    }
}
