//! The demonstration behind `cargo xtask run`: pictures filtered, shown and timed. It needs no
//! source tree: it finds pictures by `--assets`, and kernels are embedded in it.

mod sheet;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
#[cfg(feature = "gpu")]
use apron::gpu::Gpu;
use apron::{Device, Filter, Image, ImageView, Pixel, Plan};
use clap::Parser;
use image::{DynamicImage, RgbImage};

/// Filters the demo pictures: PNGs, a contact sheet, and a table of times.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Where to run: cpu, gpu:N, or auto for the first GPU, and the CPU where there is none.
    #[arg(long, default_value = "auto")]
    device: Device,
    /// The folder with the pictures.
    #[arg(long, value_name = "DIR", default_value = "assets")]
    assets: PathBuf,
    /// The folder for results.
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// The contact sheet's file, if not contact-sheet.png among the results; its ending names the
    /// format.
    #[arg(long, value_name = "FILE")]
    sheet: Option<PathBuf>,
}

/// A picture, and the corner of the part that the contact sheet shows.
struct Picture {
    file: &'static str,
    corner: (u32, u32),
}

const PICTURES: &[Picture] = &[
    Picture { file: "astronaut.png", corner: (90, 10) },
    Picture { file: "moon.png", corner: (40, 10) },
    Picture { file: "hubble_deep_field.jpg", corner: (340, 480) },
];

/// How a result is shown as a picture.
#[derive(Clone, Copy)]
enum View {
    /// As it is.
    Plain,
    /// Derivatives have a sign: zero is shown as middle grey, and this many units of the result as
    /// one level.
    Offset(f32),
    /// Without its sign, this many units of the result as one level.
    Absolute(f32),
}

const FILTERS: &[(&str, View)] = &[
    ("gaussian:sigma=2", View::Plain),
    ("gaussian:sigma=12", View::Plain),
    ("box:size=9", View::Plain),
    ("motion:length=25,angle=30", View::Plain),
    ("unsharp:sigma=2,amount=1.5", View::Plain),
    ("emboss", View::Plain),
    ("sobel-x", View::Offset(4.0)),
    ("sobel-y", View::Offset(4.0)),
    ("scharr-x", View::Absolute(8.0)),
    ("laplacian:neighbours=8", View::Offset(2.0)),
    ("log:sigma=2", View::Offset(0.1)),
];

/// Size of each picture on the contact sheet.
const THUMBNAIL: (u32, u32) = (232, 168);

/// Pictures in a row of the contact sheet: two rows for each original and its results.
const COLUMNS: u32 = 6;

/// Timed runs of each filter.
const RUNS: usize = 9;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let header = ["filter", "picture", "variant", "device", "ms", "Mpx/s", "off CPU by"];
    let mut lines = vec![header.map(str::to_owned)];
    let mut thumbnails = Vec::new();
    let (device, no_gpu) = match options.device {
        Device::Auto => preferred(),
        device => (device, None),
    };
    let mut heading = None;
    for picture in PICTURES {
        let path = options.assets.join(picture.file);
        let source = image::open(&path).with_context(|| {
            format!(
                "reading {}; name the folder of the demo pictures with --assets",
                path.display()
            )
        })?;
        let name = picture.file.split('.').next().unwrap_or(picture.file);
        thumbnails.push((name.to_owned(), thumbnail(&source, picture.corner)));
        for &(text, view) in FILTERS {
            let filter: Filter = text.parse()?;
            let plan = Plan::builder(&filter).device(device).build()?;
            if heading.is_none() {
                heading = Some(describe(&plan, no_gpu.as_deref())?);
            }
            // Grey stays grey; alpha is not shown.
            let done = match &source {
                DynamicImage::ImageLuma8(grey) => {
                    filter_one(&plan, &filter, view, grey.as_raw(), &source, 1)?
                }
                other => filter_one(&plan, &filter, view, other.to_rgb8().as_raw(), &source, 3)?,
            };
            let file =
                options.out.join(format!("{name}-{}.png", text.replace([':', '=', ','], "-")));
            save(&file, &done.picture)?;
            thumbnails.push((
                format!("{text}{}", view.label()),
                thumbnail(&done.picture, picture.corner),
            ));
            let megapixels = f64::from(source.width()) * f64::from(source.height()) / 1e6;
            lines.push([
                text.to_owned(),
                name.to_owned(),
                done.variant,
                plan.device().to_string(),
                format!("{:.2}", done.seconds * 1e3),
                format!("{:.0}", megapixels / done.seconds),
                done.difference.map_or_else(|| "-".to_owned(), |difference| difference.to_string()),
            ]);
        }
    }
    let sheet = options.sheet.clone().unwrap_or_else(|| options.out.join("contact-sheet.png"));
    save(&sheet, &sheet::compose(&thumbnails, COLUMNS).into())?;

    print(&format!(
        "{}\n{}\n\
         ms: median of warm runs, from host memory to host memory. off CPU by: greatest difference of a pixel from the \
         CPU's result, in the result's units; - where the CPU ran it.\n\
         {} pictures in {}, contact sheet {}\n",
        heading.unwrap_or_default(),
        table(&lines),
        lines.len() - 1,
        options.out.display(),
        sheet.display()
    ))
}

/// A table whose first four columns are text and whose others are numbers.
fn table(lines: &[[String; 7]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let cell = |(column, text): (usize, &String)| match (column, width(column)) {
        (0..4, width) => format!("{text:width$}"),
        (_, width) => format!("{text:>width$}"),
    };
    let line = |cells: &[String; 7]| {
        cells.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ") + "\n"
    };
    lines.iter().map(line).collect()
}

/// Prints to standard output. A closed pipe is no error.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("writing")
        }
        _ => Ok(()),
    }
}

/// The first GPU, or the CPU and why there is no GPU.
fn preferred() -> (Device, Option<String>) {
    #[cfg(feature = "gpu")]
    return match Gpu::open(0) {
        Ok(_) => (Device::Gpu(0), None),
        Err(apron::Error::NoGpu { reason }) => (Device::Cpu, Some(reason)),
        Err(other) => (Device::Cpu, Some(other.to_string())),
    };
    #[cfg(not(feature = "gpu"))]
    (Device::Cpu, Some("nvidia-smi finds none".to_owned()))
}

/// The device as text, and why it is no GPU.
fn describe(plan: &Plan, no_gpu: Option<&str>) -> Result<String> {
    Ok(match plan.device() {
        #[cfg(feature = "gpu")]
        Device::Gpu(ordinal) => {
            format!("gpu:{ordinal} is {}\n", Gpu::open(ordinal)?.info().name)
        }
        _ => {
            let why = no_gpu.map_or_else(String::new, |reason| format!("; no GPU: {reason}"));
            format!("CPU: {} threads{why}\n", rayon::current_num_threads())
        }
    })
}

/// One filter's work on one picture.
struct Done {
    picture: DynamicImage,
    variant: String,
    seconds: f64,
    difference: Option<f32>,
}

fn filter_one(
    plan: &Plan,
    filter: &Filter,
    view: View,
    pixels: &[u8],
    source: &DynamicImage,
    channels: usize,
) -> Result<Done> {
    let (width, height) = (source.width() as usize, source.height() as usize);
    let src = ImageView::new(pixels, width, height, channels)?;
    let variant = plan.variant_for(src.shape())?;
    // On the CPU every variant of a family runs the same code.
    let variant = match plan.device() {
        Device::Cpu => format!("{:?}", variant.family()).to_lowercase(),
        _ => variant.name().to_owned(),
    };
    let (shown, seconds, difference) = match view {
        View::Plain => {
            let (result, seconds, difference) = time::<u8>(plan, filter, &src)?;
            (result.into_vec(), seconds, difference)
        }
        view => {
            // Results in f32 keep the sign.
            let (result, seconds, difference) = time::<f32>(plan, filter, &src)?;
            (
                result.as_slice().iter().map(|&value| view.level(value)).collect(),
                seconds,
                difference,
            )
        }
    };
    let (width, height) = (source.width(), source.height());
    let picture = match channels {
        1 => image::GrayImage::from_raw(width, height, shown).map(DynamicImage::from),
        _ => RgbImage::from_raw(width, height, shown).map(DynamicImage::from),
    };
    Ok(Done {
        picture: picture.context("a result has the source's size")?,
        variant,
        seconds,
        difference,
    })
}

/// The result, the median time in seconds, and the greatest difference from the CPU's result.
fn time<D: Pixel>(
    plan: &Plan,
    filter: &Filter,
    src: &ImageView<'_, u8>,
) -> Result<(Image<D>, f64, Option<f32>)> {
    let shape = src.shape();
    let mut dst = Image::<D>::zeroed(shape.width, shape.height, shape.channels)?;
    plan.run(src, &mut dst.view_mut())?;
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let start = Instant::now();
        plan.run(src, &mut dst.view_mut())?;
        times.push(start.elapsed());
    }
    times.sort();
    let difference = if plan.device() == Device::Cpu {
        None
    } else {
        let mut expected = Image::<D>::zeroed(shape.width, shape.height, shape.channels)?;
        // The family that the device used.
        let cpu =
            Plan::builder(filter).device(Device::Cpu).variant(plan.variant_for(shape)?).build()?;
        cpu.run(src, &mut expected.view_mut())?;
        let pairs = dst.as_slice().iter().zip(expected.as_slice());
        Some(
            pairs
                .map(|(found, expected)| (found.to_f32() - expected.to_f32()).abs())
                .fold(0.0, f32::max),
        )
    };
    Ok((dst, times[RUNS / 2].as_secs_f64(), difference))
}

impl View {
    fn level(self, value: f32) -> u8 {
        match self {
            Self::Plain => u8::from_f32(value),
            Self::Offset(units) => u8::from_f32(128.0 + value / units),
            Self::Absolute(units) => u8::from_f32(value.abs() / units),
        }
    }

    /// Its text on the contact sheet.
    fn label(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Offset(_) => " (grey=0)",
            Self::Absolute(_) => " (absolute)",
        }
    }
}

/// A part of the picture, pixel for pixel: most filters would not be visible in a smaller copy.
fn thumbnail(picture: &DynamicImage, (x, y): (u32, u32)) -> RgbImage {
    picture.crop_imm(x, y, THUMBNAIL.0, THUMBNAIL.1).to_rgb8()
}

/// Writes a picture completely or not at all.
fn save(path: &Path, picture: &DynamicImage) -> Result<()> {
    let name = || format!("writing {}", path.display());
    let format = image::ImageFormat::from_path(path).with_context(name)?;
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).with_context(name)?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(name)?;
    }
    let unfinished = path.with_extension("unfinished");
    let written = fs::write(&unfinished, bytes.get_ref())
        .and_then(|()| fs::rename(&unfinished, path))
        .with_context(name);
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_can_be_read_and_every_label_fits() {
        for (text, view) in FILTERS {
            text.parse::<Filter>().unwrap();
            // Seven pixels a character, at this font's size.
            assert!(7 * (text.len() + view.label().len()) <= THUMBNAIL.0 as usize, "{text}");
        }
        assert_eq!((FILTERS.len() as u32 + 1) % COLUMNS, 0);
    }

    #[test]
    fn derivatives_are_shown_with_zero_in_the_middle() {
        assert_eq!(View::Offset(4.0).level(0.0), 128);
        assert_eq!(View::Offset(4.0).level(-2000.0), 0);
        assert_eq!(View::Absolute(2.0).level(-100.0), 50);
        assert_eq!(View::Plain.level(300.0), 255);
    }
}
