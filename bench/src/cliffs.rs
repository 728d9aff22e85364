//! `bench cliffs`: on the CPU, 8-bit results beside the same into f32, over filters, sizes and contents; and the steps where time grows much
//! faster than work.
//!
//! An 8-bit result is correctly rounded, so some are computed again in f64 (see `host/src/round/mod.rs`). How many depends on the filter and
//! on the picture. The rule that is checked: at most 1.1 times the time of f32 while under 0.5 % of the results are in doubt, else at most
//! 2.3 times. A result counts as in doubt if it lies within `2^-24 * 255 * (cols + rows) / 2` of a half: about the error of f32 sums in
//! sequence whose taps add up to 1.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use apron::{Device, Filter, Image, Plan};

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
    /// The folder of the picture.
    #[arg(long, default_value = "assets")]
    assets: PathBuf,
}

/// What the pictures show.
const CONTENTS: [&str; 5] = ["noise", "photograph", "flat", "gradient", "saturated"];

/// Every filter with its text: in each list, in order of size.
fn filters() -> Result<Vec<Vec<(String, Filter)>>> {
    let presets = |texts: &[String]| -> Result<Vec<_>> {
        texts.iter().map(|text| Ok((text.clone(), text.parse::<Filter>()?))).collect()
    };
    let sigmas = [0.3, 0.8, 1.5, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0];
    let sizes = [1, 3, 5, 9, 17, 31, 51, 101, 301];
    let each = |name: &str, sigmas: &[f64]| -> Vec<String> {
        sigmas.iter().map(|sigma| format!("{name}:sigma={sigma}")).collect()
    };
    let boxes: Vec<_> = [3, 14, 31, 101, 250, 401].iter().map(|size| format!("box:size={size}")).collect();
    let random = sizes.iter().map(|&size| {
        let taps: Vec<f32> =
            (0..size * size).map(|i| (i * 7919 + 13) as f32 % 997.0 / (498 * size * size) as f32).collect();
        Ok((format!("random {size}x{size}"), Filter::from_taps(size, size, &taps)?))
    });
    Ok(vec![
        presets(&each("gaussian", &sigmas))?,
        presets(&each("unsharp", &sigmas[1..8]))?,
        presets(&each("log", &sigmas[2..7]))?,
        presets(&boxes)?,
        random.collect::<Result<_>>()?,
    ])
}

/// Measures everything and prints what breaks a rule.
///
/// # Errors
/// If the picture cannot be read, if no case is left, or if the engine fails.
pub fn run(options: &Options) -> Result<()> {
    let Options { side, channels, turns, .. } = *options;
    ensure!((1..=4).contains(&channels) && side > 0 && turns > 0, "a side, 1 to 4 channels and a turn are needed");
    println!("{side}x{side}x{channels}, {} threads, least of {turns}", rayon::current_num_threads());
    println!("{:<12}{:<28}{:>10}{:>10}{:>8}{:>10}", "content", "filter", "u8, ms", "f32, ms", "ratio", "in doubt");
    let (mut cases, mut broken) = (0, 0);
    for content in CONTENTS.into_iter().filter(|name| name.contains(&options.content)) {
        let src = Image::from_vec(pixels(content, options)?, side, side, channels)?;
        for list in filters()? {
            let mut before: Option<(f64, f64)> = None;
            for (text, filter) in list {
                if !options.filter.split(',').any(|part| text.contains(part)) {
                    continue;
                }
                cases += 1;
                let Measured { bytes, floats, in_doubt } = measure(&src, &filter, turns)?;
                // Half a millisecond is what a call may wait for a thread.
                let allowed = if in_doubt < 0.005 { 1.1 } else { 2.3 };
                let slow = bytes > allowed * floats + 0.5;
                // The cheapest way, by bytes or by multiply-adds: rows and columns, or spectra.
                let taps =
                    if filter.is_separable() { filter.cols() + filter.rows() } else { filter.cols() * filter.rows() };
                let work = 8.0 + (taps as f64).min(300.0 + filter.cols() as f64);
                let steep = before.is_some_and(|(time, less)| bytes / time > 1.6 * work / less && bytes > 1.0);
                before = Some((bytes, work));
                broken += usize::from(slow) + usize::from(steep);
                let verdict = match (slow, steep) {
                    (true, _) => format!("  more than {allowed} times"),
                    (_, true) => "  steeper than its work".to_owned(),
                    _ => String::new(),
                };
                let ratio = bytes / floats;
                let share = 100.0 * in_doubt;
                println!("{content:<12}{text:<28}{bytes:>10.2}{floats:>10.2}{ratio:>8.2}{share:>8.3} %{verdict}");
            }
        }
    }
    ensure!(cases > 0, "nothing is left to measure");
    println!("{broken} of {cases} break a rule");
    Ok(())
}

struct Measured {
    /// Milliseconds.
    bytes: f64,
    floats: f64,
    in_doubt: f64,
}

fn measure(src: &Image<u8>, filter: &Filter, turns: usize) -> Result<Measured> {
    let plan = Plan::builder(filter).device(Device::Cpu).build()?;
    let shape = src.shape();
    let mut bytes = Image::<u8>::zeroed(shape.width, shape.height, shape.channels)?;
    let mut floats = Image::<f32>::zeroed(shape.width, shape.height, shape.channels)?;
    let mut least = (f64::MAX, f64::MAX);
    // The first turn makes taps and spectra, and is not counted.
    for turn in 0..=turns {
        let start = Instant::now();
        plan.run(&src.view(), &mut bytes.view_mut())?;
        let middle = Instant::now();
        plan.run(&src.view(), &mut floats.view_mut())?;
        if turn > 0 {
            least.0 = least.0.min(1e3 * (middle - start).as_secs_f64());
            least.1 = least.1.min(1e3 * middle.elapsed().as_secs_f64());
        }
    }
    let error = 255.0 * f32::EPSILON / 4.0 * (filter.cols() + filter.rows()) as f32;
    let near = |value: &&f32| (0.0..=255.0).contains(*value) && ((*value).fract() - 0.5).abs() < error;
    let values = floats.as_slice();
    let in_doubt = values.iter().filter(near).count() as f64 / values.len() as f64;
    Ok(Measured { bytes: least.0, floats: least.1, in_doubt })
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
