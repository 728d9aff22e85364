//! What errors are relative to, on pictures whose values span many orders of magnitude: an HDR
//! picture with a sun, depths with 0 for unknown, a hot pixel, and a dark 16-bit picture with a
//! lamp. Each filter runs by default, with [`Accuracy::Window`] and with [`Accuracy::Range`].
//!
//! Sums in passes or tap by tap err by at most `steps * u` times `sum |w p|`, where u is half a
//! unit in the last place of 1. Spectra err relative to the picture's greatest value: see
//! [`Variant::Fourier`](apron::Variant::Fourier) and
//! [`Variant::SpectraPasses`](apron::Variant::SpectraPasses).

use apron::{Accuracy, Border, Device, Family, Filter, Image, Plan, Shape};
use conformance::product::Gpu;
use conformance::sample::Sample;
use conformance::select::Selection;
use conformance::suite::gpu_trial;
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};
use oracle::fold;

const FILTERS: &[&str] =
    &["gaussian:sigma=3", "gaussian:sigma=20", "unsharp:sigma=9", "motion:length=40,angle=30"];

/// Half a unit in the last place of 1.
const U: f64 = f32::EPSILON as f64 / 2.0;

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let shape = match selection {
        Selection::Emulated => Shape { width: 420, height: 90, channels: 1 },
        _ => Shape { width: 1500, height: 400, channels: 1 },
    };
    vec![
        Trial::test("accuracy::pictures::cpu", move || on(Device::Cpu, shape)),
        gpu_trial("accuracy::pictures::gpu", gpu, move || on(Gpu::DEVICE, shape)),
    ]
}

fn on(device: Device, shape: Shape) -> Result<(), Failed> {
    for text in FILTERS {
        let filter: Filter = text.parse()?;
        check::<f32>(device, &filter, "a sun", &sun(shape))?;
        check::<f32>(device, &filter, "depths", &depths(shape))?;
        check::<f32>(device, &filter, "a hot pixel", &hot(shape))?;
        check::<u16>(device, &filter, "a lamp", &lamp(shape))?;
    }
    Ok(())
}

/// A picture of values by place.
fn picture<P: Sample>(shape: Shape, mut value: impl FnMut(usize, usize) -> f32) -> Image<P> {
    let Shape { width, height, channels } = shape;
    let places = (0..width * height).map(|at| (at % width, at / width));
    let values = places.map(|(x, y)| P::from_f32(value(x, y))).collect();
    Image::from_vec(values, width, height, channels).expect("so many values")
}

/// Shadows of 0.001 to 10, and a sun of 60,000.
fn sun(shape: Shape) -> Image<f32> {
    let mut rng = Rng::with_seed(1);
    picture(shape, |x, y| match x.abs_diff(60).pow(2) + y.abs_diff(30).pow(2) < 64 {
        true => 6e4,
        false => 10f32.powf(4.0 * rng.f32() - 3.0),
    })
}

/// Metres to slanted walls, and areas of 0.
fn depths(shape: Shape) -> Image<f32> {
    picture(shape, |x, y| match (x / 37 + y / 23) % 5 {
        0 => 0.0,
        part => 0.5 * part as f32 + 0.013 * x as f32 + 0.007 * y as f32,
    })
}

/// Values of 0.1 to 1.1, and one pixel of 1e30.
fn hot(shape: Shape) -> Image<f32> {
    let mut rng = Rng::with_seed(2);
    picture(shape, |x, y| if (x, y) == (90, 20) { 1e30 } else { 0.1 + rng.f32() })
}

/// Values of 1 to 40, and a lamp of 65,535.
fn lamp(shape: Shape) -> Image<u16> {
    let mut rng = Rng::with_seed(3);
    picture(shape, |x, y| match x.abs_diff(70) + y.abs_diff(60) < 5 {
        true => 65_535.0,
        false => rng.u32(1..40) as f32,
    })
}

/// Compares results in f32 at some places with sums in f64.
fn check<P: Sample>(
    device: Device,
    filter: &Filter,
    name: &str,
    src: &Image<P>,
) -> Result<(), Failed> {
    let shape = src.shape();
    let bound = Bound::of(filter, src);
    for accuracy in [None, Some(Accuracy::Window), Some(Accuracy::Range)] {
        let plan = Plan::builder(filter.clone())
            .accuracy(accuracy)
            .border(Border::Reflect101)
            .device(device)
            .build()?;
        let mut found = Image::<f32>::zeroed(shape.width, shape.height, shape.channels)?;
        plan.run(src, &mut found)?;
        let family = plan.variant_for(shape)?.family();
        let (mut of_window, mut of_allowed) = (0.0f64, 0.0f64);
        let mut rng = Rng::with_seed(4);
        for _ in 0..PLACES {
            let (x, y) = (rng.usize(..shape.width), rng.usize(..shape.height));
            let (sum, magnitude) = sums(filter, src, (x, y));
            let value = f64::from(found.as_slice()[y * shape.width + x]);
            let allowed = bound.allowed(family, magnitude);
            let error = (value - sum).abs();
            of_window = of_window.max(error / bound.allowed(Family::Separable, magnitude));
            of_allowed = of_allowed.max(error / allowed);
            if error.is_nan() || error > allowed {
                return Err(format!(
                    "{filter}, {name}, {accuracy:?} ({family:?}): {value} at {x},{y}, not {sum} within {allowed:e}"
                )
                .into());
            }
        }
        println!(
            "{filter}, {name}, {accuracy:?} ({family:?}): {of_allowed:.2} of the bound, {of_window:.2e} of the window's"
        );
        let is_range = matches!(family, Family::Fourier | Family::SpectraPasses);
        if accuracy == Some(Accuracy::Window) && is_range {
            return Err(format!("{filter}: errors of the window by {family:?}").into());
        }
    }
    Ok(())
}

/// Results that are compared.
const PLACES: usize = 300;

/// The sum in f64 at a place, and the sum of its products' magnitudes.
fn sums<P: Sample>(filter: &Filter, src: &Image<P>, (x, y): (usize, usize)) -> (f64, f64) {
    let (shape, anchor) = (src.shape(), filter.anchor());
    let place = |at: usize, offset: usize, anchor: usize, extent: usize| {
        let at = (at + offset) as i64 - anchor as i64;
        fold(Border::Reflect101, at, extent).expect("this border finds a pixel")
    };
    let columns: Vec<_> =
        (0..filter.cols()).map(|col| place(x, col, anchor.0, shape.width)).collect();
    let (mut sum, mut magnitude) = (0.0, 0.0);
    for row in 0..filter.rows() {
        let line = place(y, row, anchor.1, shape.height) * shape.width;
        for (col, column) in columns.iter().enumerate() {
            let product = filter.tap(row, col) * src.as_slice()[line + column].value();
            sum += product;
            magnitude += product.abs();
        }
    }
    (sum, magnitude)
}

/// How far results of a filter over a picture may be off.
struct Bound {
    /// Roundings on the way to a result in passes, and tap by tap.
    passes: f64,
    dense: f64,
    /// `sum |tap|`, and the ratio of `sqrt(sum t^2)` to `sum |t|` for a row and a column together.
    weight: f64,
    ratios: f64,
    /// The greatest value.
    greatest: f64,
}

impl Bound {
    fn of<P: Sample>(filter: &Filter, src: &Image<P>) -> Self {
        /// Roundings of taps to f32, and of what sums add besides.
        const BESIDES: f64 = 8.0;
        let (cols, rows) = (filter.cols(), filter.rows());
        let taps = (0..rows).flat_map(|row| (0..cols).map(move |col| filter.tap(row, col)));
        let ratio = |taps: &[f64]| {
            let weight: f64 = taps.iter().map(|tap| tap.abs()).sum();
            taps.iter().map(|tap| tap * tap).sum::<f64>().sqrt() / weight
        };
        Self {
            passes: (cols + 2 * rows) as f64 + BESIDES,
            dense: (cols * rows) as f64 + BESIDES,
            weight: taps.map(f64::abs).sum(),
            // A row and a column of one tap have the greatest ratio.
            ratios: filter.separated().map_or(2.0, |(row, column)| ratio(row) + ratio(column)),
            greatest: src.as_slice().iter().map(|value| value.value().abs()).fold(0.0, f64::max),
        }
    }

    /// For a result whose products have this sum of magnitudes.
    fn allowed(&self, family: Family, magnitude: f64) -> f64 {
        let of_range = self.weight * self.greatest;
        match family {
            Family::Direct => self.dense * U * magnitude,
            Family::Separable => self.passes * U * magnitude,
            Family::Fourier => {
                // Taps of which few outweigh all others.
                const UNEVEN: f64 = 5.5 + 18.0;
                2.0 * U * UNEVEN * of_range
            }
            _ => 2.0 * U * (25.0 + 25.0 * self.ratios) * of_range,
        }
    }
}
