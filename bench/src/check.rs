//! Checks of results.

use anyhow::{Result, bail, ensure};
use apron::{Border, Filter, Image, Pixel, Scalar};
use oracle::{Layout, Whole};
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use crate::cases::Random;

/// How a result was checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checked {
    pub(crate) against: Against,
    /// The greatest difference, if the bits may differ.
    pub(crate) difference: Option<f64>,
    /// How many values differ, for integers of another library.
    pub(crate) differ: Option<u64>,
    pub(crate) checksum: Option<u64>,
}

/// The reference with which a result was compared.
#[derive(Clone, Debug, Default)]
pub(crate) enum Against {
    /// Nothing: it is a copy, or was not checked.
    #[default]
    Nothing,
    /// Sums in f64, or the bytes of whole taps, at up to a thousand places.
    F64,
    /// As [`Against::F64`], and a checksum.
    F64AndSum,
    /// All bits of the first contender's result in the same order, whose name this is.
    First(String),
    /// Every value of the CPU's result, which was compared with the definition.
    Cpu,
    /// The direct result, within the tolerance for spectra.
    Direct,
    /// All bits of the same work, run without a recording.
    NotRecorded,
    /// Our result, for another library's result. With a remark.
    Apron(String),
}

impl Checked {
    pub(crate) fn against(against: Against) -> Self {
        Self { against, ..Self::default() }
    }
}

impl std::fmt::Display for Against {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("-"),
            Self::F64 => f.write_str("f64"),
            Self::F64AndSum => f.write_str("f64, checksum"),
            Self::First(name) => write!(f, "{name}, all bits"),
            Self::Cpu => f.write_str("the CPU's, all bits"),
            Self::Direct => f.write_str("direct"),
            Self::NotRecorded => f.write_str("the same, not recorded, all bits"),
            Self::Apron(note) if note.is_empty() => f.write_str("apron"),
            Self::Apron(note) => write!(f, "apron ({note})"),
        }
    }
}

/// The tolerance for a result by spectra.
pub(crate) fn tolerance<P: Pixel>(filter: &Filter, src: &Image<P>) -> f64 {
    let greatest =
        src.as_slice().par_iter().map(|pixel| pixel.to_f32().abs()).reduce(|| 0.0, f32::max);
    oracle::with_taps(filter, |taps| oracle::tolerance(taps, greatest.into()))
}

/// The XXH3 checksum of an image's stored bytes.
pub(crate) fn sum<P: Random>(image: &Image<P>) -> u64 {
    xxh3_64(bytemuck::cast_slice(image.as_slice()))
}

/// Compares the bits of every pixel with another image.
pub(crate) fn same<P: Random>(found: &Image<P>, expected: &Image<P>) -> Result<()> {
    let bytes = |pixel: &P| bytemuck::bytes_of(pixel).to_vec();
    let (left, right) = (found.as_slice(), expected.as_slice());
    ensure!(
        left.len() == right.len(),
        "wrong result: {} values instead of {}",
        left.len(),
        right.len()
    );
    if bytemuck::cast_slice::<P, u8>(left) == bytemuck::cast_slice::<P, u8>(right) {
        return Ok(());
    }
    let wrong = |i: &usize| bytes(&left[*i]) != bytes(&right[*i]);
    let count = (0..left.len()).into_par_iter().filter(wrong).count();
    let at = (0..left.len()).find(wrong).unwrap_or(0);
    bail!(
        "wrong result: {:?} instead of {:?} at {}, and {count} values in all",
        left[at],
        right[at],
        place(found, at)
    );
}

/// The greatest difference between two images of one size; NaN anywhere counts as infinite.
pub(crate) fn difference<P: Pixel>(found: &Image<P>, expected: &Image<P>) -> f64 {
    let pairs = found.as_slice().par_iter().zip(expected.as_slice());
    let of_pair = |(left, right): (&P, &P)| {
        let difference = f64::from((left.to_f32() - right.to_f32()).abs());
        if difference.is_nan() { f64::INFINITY } else { difference }
    };
    pairs.map(of_pair).reduce(|| 0.0, f64::max)
}

/// Compares an image with another one within a bound; returns the greatest difference.
pub(crate) fn near<P: Pixel>(found: &Image<P>, expected: &Image<P>, bound: f64) -> Result<f64> {
    let difference = difference(found, expected);
    ensure!(difference <= bound, "wrong result: off by {difference:e}, more than {bound:e}");
    Ok(difference)
}

/// Compares up to a thousand values with sums in f64, or 8-bit results of 8-bit images with their
/// definition: see [`oracle::spots`].
pub(crate) fn spots<S: Random, D: Random>(
    filter: &Filter,
    border: Border,
    src: &Image<S>,
    dst: &Image<D>,
    slack: f64,
) -> Result<()> {
    if (S::SCALAR, D::SCALAR) == (Scalar::U8, Scalar::U8) {
        let bytes = (bytemuck::cast_slice(src.as_slice()), bytemuck::cast_slice(dst.as_slice()));
        return Ok(oracle::byte_spots(&Whole::of(filter), border, src.shape(), bytes)?);
    }
    let layout = Layout { shape: src.shape(), most: (D::SCALAR == Scalar::U8).then_some(255.0) };
    let images = (src.as_slice(), dst.as_slice());
    Ok(oracle::with_taps(filter, |taps| oracle::spots(taps, border, layout, images, slack))?)
}

fn place<P: Pixel>(image: &Image<P>, at: usize) -> String {
    let shape = image.shape();
    let pixel = at / shape.channels;
    format!("({}, {})", pixel % shape.width, pixel / shape.width)
}

#[cfg(test)]
mod tests {
    use apron::{Device, Plan};

    use super::*;
    use crate::cases::{Case, Form, Suite};

    fn case(channels: usize, stored: Scalar, form: Form) -> Case {
        let (width, height, taps) = (67, 41, 5);
        Case {
            suite: Suite::Cpu,
            images: 1,
            width,
            height,
            channels,
            stored,
            target: stored,
            taps,
            form,
            goals: [None; 2],
            sums: [None; 2],
            large: false,
        }
    }

    fn run<P: Random>(case: &Case, border: Border) -> (Filter, Image<P>, Image<P>) {
        let filter = case.filter().unwrap();
        let src = Image::from_vec(case.pixels(), case.width, case.height, case.channels).unwrap();
        let plan = Plan::builder(&filter).device(Device::Cpu).border(border).build().unwrap();
        let mut dst = Image::zeroed(case.width, case.height, case.channels).unwrap();
        plan.run(&src.view(), &mut dst.view_mut()).unwrap();
        (filter, src, dst)
    }

    #[test]
    fn right_results_pass_in_every_form_and_type() {
        for form in [Form::Random, Form::Product, Form::Gaussian] {
            for channels in [1, 3] {
                let (filter, src, dst) =
                    run::<u8>(&case(channels, Scalar::U8, form), Border::Reflect101);
                spots(&filter, Border::Reflect101, &src, &dst, 0.0).unwrap();
                let (filter, src, dst) =
                    run::<f32>(&case(channels, Scalar::F32, form), Border::Reflect101);
                spots(&filter, Border::Reflect101, &src, &dst, 0.0).unwrap();
            }
        }
    }

    #[test]
    fn a_wrong_pixel_does_not_pass() {
        let (filter, src, dst) =
            run::<f32>(&case(1, Scalar::F32, Form::Product), Border::Reflect101);
        for wrong in [0, 66, 67 * 40, 67 * 41 - 1] {
            let mut pixels = dst.as_slice().to_vec();
            pixels[wrong] += 1e-3;
            let changed = Image::from_vec(pixels, 67, 41, 1).unwrap();
            assert!(spots(&filter, Border::Reflect101, &src, &changed, 0.0).is_err());
            let message = same(&changed, &dst).unwrap_err().to_string();
            assert!(
                message.contains(&format!("({}, {}), and 1 values", wrong % 67, wrong / 67)),
                "{message}"
            );
            assert!(near(&changed, &dst, 9e-4).is_err() && near(&changed, &dst, 2e-3).is_ok());
            assert_ne!(sum(&changed), sum(&dst));
        }
    }

    #[test]
    fn a_wrong_byte_does_not_pass() {
        let (filter, src, dst) =
            run::<u8>(&case(1, Scalar::U8, Form::Gaussian), Border::Reflect101);
        let mut pixels = dst.as_slice().to_vec();
        pixels[66] ^= 1;
        let changed = Image::from_vec(pixels, 67, 41, 1).unwrap();
        assert!(spots(&filter, Border::Reflect101, &src, &changed, 0.0).is_err());
    }

    #[test]
    fn a_border_taken_for_another_does_not_pass() {
        for channels in [1, 3] {
            let (filter, src, dst) =
                run::<u8>(&case(channels, Scalar::U8, Form::Random), Border::Reflect);
            assert!(spots(&filter, Border::Reflect101, &src, &dst, 0.0).is_err());
        }
    }

    #[test]
    fn every_border_passes_as_itself_alone() {
        let borders = [
            Border::Constant(0.5),
            Border::Replicate,
            Border::Reflect,
            Border::Reflect101,
            Border::Wrap,
            Border::Keep,
        ];
        for computed in borders {
            let (filter, src, dst) = run::<f32>(&case(3, Scalar::F32, Form::Random), computed);
            for checked in borders {
                let passes = spots(&filter, checked, &src, &dst, 0.0).is_ok();
                assert_eq!(passes, checked == computed, "{computed} as {checked}");
            }
        }
    }

    #[test]
    fn nan_is_no_small_difference() {
        let (_, _, dst) = run::<f32>(&case(1, Scalar::F32, Form::Random), Border::Reflect101);
        let mut pixels = dst.as_slice().to_vec();
        pixels[100] = f32::NAN;
        assert!(near(&Image::from_vec(pixels, 67, 41, 1).unwrap(), &dst, 1e9).is_err());
    }

    #[test]
    fn checksums_are_the_same_everywhere() {
        // The bits of seeded pixels and of both families' results, on any machine.
        let results = [Form::Random, Form::Product]
            .map(|form| sum(&run::<f32>(&case(1, Scalar::F32, form), Border::Reflect101).2));
        assert_eq!(results, [0x82e6_04ab_a88d_01ff, 0xafaa_d259_b7f9_591a]);
    }
}
