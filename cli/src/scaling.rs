//! Conversion of results to the type of the output: `--scale` and the options beside it.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use apron::threads;
use apron::{Image, Number, Pixel, Scalar, with_pixels};
use clap::Args;

use crate::extra::ByAlpha;
use crate::picture::Pixels;
use crate::spread::{chunk, threads_for};

/// What is done to results, in this order: the sign is dropped, the range is scaled, an offset is
/// added.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct Scaling {
    /// How to convert values to another type: full (the whole range of one type becomes that of the
    /// other; the range of floats is 0 to 1), none (keep the values) or MIN..MAX (MIN becomes 0,
    /// MAX the greatest value of the type) [default: full between u8 and u16, none to floats;
    /// required from floats to integers]
    #[arg(
        long,
        value_name = "full|none|MIN..MAX",
        allow_hyphen_values = true,
        conflicts_with = "normalize",
        help_heading = "Values"
    )]
    pub(crate) scale: Option<Scale>,

    /// Scale each result so that its least value becomes 0 and its greatest value becomes the
    /// greatest of the type (1 for floats)
    #[arg(long, help_heading = "Values")]
    pub(crate) normalize: bool,

    /// Add V to each value, after scaling; 128 shows both signs of a derivative in 8 bits
    #[arg(long, value_name = "V", allow_hyphen_values = true, value_parser = finite, help_heading = "Values")]
    pub(crate) offset: Option<f64>,

    /// Drop the sign of each value, before scaling
    #[arg(long, help_heading = "Values")]
    pub(crate) abs: bool,
}

/// The conversion of values between two types.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// Maps the range of the input's type to the range of the output's type.
    Full,
    /// Keeps the values.
    None,
    /// Maps these two values to 0 and the greatest value.
    Range(f64, f64),
}

impl FromStr for Scale {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "full" => Ok(Self::Full),
            "none" => Ok(Self::None),
            _ => text
                .split_once("..")
                .and_then(|(min, max)| Some((finite(min).ok()?, finite(max).ok()?)))
                .filter(|(min, max)| min != max)
                .map(|(min, max)| Self::Range(min, max))
                .ok_or("full, none or two different numbers are needed, as in 0..4095"),
        }
    }
}

fn finite(text: &str) -> Result<f64, &'static str> {
    text.trim()
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
        .ok_or("a finite number is needed, as in 128 or -0.5")
}

/// The conversion of the results of one picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finish {
    abs: bool,
    range: Range,
    offset: f64,
    /// For channels that are not filtered, such as alpha: the value that becomes white.
    opaque: f64,
    /// The conversion of colours by alpha, which comes first, and the value of opaque alpha.
    by_alpha: (ByAlpha, f64),
}

/// The values that become 0 and white.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Range {
    Given(f64, f64),
    /// The least and the greatest value of the result.
    Found,
}

/// The value that stands for white: the greatest of integers, 1 for floats.
pub(crate) fn white(scalar: Scalar) -> f64 {
    scalar.greatest().unwrap_or(1.0)
}

pub(crate) fn is_integer(scalar: Scalar) -> bool {
    scalar.greatest().is_some()
}

impl Scaling {
    /// The conversion from one type to another; `None` if the values stay the same. The note names
    /// a conversion that the user did not ask for.
    pub(crate) fn finish(
        &self,
        from: Scalar,
        to: Scalar,
        by_alpha: ByAlpha,
    ) -> Result<(Option<Finish>, Option<String>), String> {
        let integers = (is_integer(from), is_integer(to));
        let mut note = None;
        let scale = match self.scale {
            Some(scale) => scale,
            None if self.normalize || from == to => Scale::None,
            None => match integers {
                (true, true) => {
                    note = Some(format!(
                        "{from} became {to} with --scale full, which keeps the appearance; --scale none keeps the numbers"
                    ));
                    Scale::Full
                }
                (_, false) => Scale::None,
                (false, true) => {
                    return Err(format!(
                        "{from} into {to} needs a scale: --scale full (1.0 becomes {0}), --scale none (1.0 becomes 1), --scale MIN..MAX or \
                         --normalize",
                        white(to)
                    ));
                }
            },
        };
        let range = match scale {
            _ if self.normalize => Range::Found,
            Scale::Full => Range::Given(0.0, white(from)),
            Scale::None => Range::Given(0.0, white(to)),
            Scale::Range(min, max) => Range::Given(min, max),
        };
        // Opaque alpha stays opaque, unless the values are kept.
        let opaque = if scale == Scale::None && !self.normalize { white(to) } else { white(from) };
        let by_alpha = (by_alpha, white(from));
        let finish =
            Finish { abs: self.abs, range, offset: self.offset.unwrap_or(0.0), opaque, by_alpha };
        let scales = finish.abs || finish.offset != 0.0 || range != Range::Given(0.0, white(to));
        let changes = scales || by_alpha.0 != ByAlpha::AsTheyAre;
        Ok((changes.then_some(finish), note))
    }

    /// Whether an option maps values to the range of their type, which is 0 to 1 for f32.
    pub(crate) fn sets_range(&self) -> bool {
        self.normalize || self.scale.is_some_and(|scale| scale != Scale::None)
    }

    /// Whether an option says how to convert negative results, so that their loss needs no note.
    pub(crate) fn handles_negatives(&self) -> bool {
        self.abs || self.normalize || self.offset.is_some() || self.scale.is_some()
    }
}

impl Finish {
    /// The factor of the conversion; 1 if the results determine it.
    pub(crate) fn factor(&self, to: Scalar) -> f64 {
        match self.range {
            Range::Given(min, max) => white(to) / (max - min),
            Range::Found => 1.0,
        }
    }

    /// Converts sums to type `to`, or to f64 if `to` is `None`. The first `filtered` channels are
    /// results, the others were copied. Arithmetic is in f64, rounded once.
    pub(crate) fn apply(
        &self,
        sums: &Pixels,
        filtered: usize,
        to: Option<Scalar>,
    ) -> apron::Result<Pixels> {
        match sums {
            Pixels::F32(sums) => self.values_of(sums, filtered, to),
            Pixels::F64(sums) => self.values_of(sums, filtered, to),
            _ => unreachable!("sums are taken in f32 or f64"),
        }
    }

    fn values_of<S: Number>(
        &self,
        sums: &Image<S>,
        filtered: usize,
        to: Option<Scalar>,
    ) -> apron::Result<Pixels> {
        match to {
            Some(to) => {
                with_pixels!(to, P => self.values::<S, P>(sums, filtered).map(Pixels::from))
            }
            None => self.values(sums, filtered).map(Pixels::F64),
        }
    }

    fn values<S: Number, D: Number>(
        &self,
        sums: &Image<S>,
        filtered: usize,
    ) -> apron::Result<Image<D>> {
        let shape = sums.shape();
        let white = if D::IS_INTEGER { D::from_f64(f64::INFINITY).to_f64() } else { 1.0 };
        let (min, max) = match self.range {
            Range::Given(min, max) => (min, max),
            Range::Found => self.extremes(sums, filtered),
        };
        let value = |sum: f64| {
            // A flat result has no range, so it becomes black. The division comes last, so that
            // whole numbers stay exact.
            let scaled = if min == max { 0.0 } else { (sum - min) * white / (max - min) };
            scaled + self.offset
        };
        let mut result = Image::<D>::zeroed(shape.width, shape.height, shape.channels)?;
        let chunk = chunk(shape.channels);
        let chunks = result.as_mut_slice().chunks_mut(chunk).zip(sums.as_slice().chunks(chunk));
        threads::for_each(
            threads_for(sums.as_slice().len()),
            chunks,
            |(): &mut (), (result, sums)| {
                let pixels =
                    result.chunks_exact_mut(shape.channels).zip(sums.chunks_exact(shape.channels));
                for (result, sums) in pixels {
                    for (channel, (result, &sum)) in result.iter_mut().zip(sums).enumerate() {
                        let value = if channel < filtered {
                            value(self.colour(sum, sums))
                        } else {
                            sum.to_f64() * white / self.opaque
                        };
                        *result = D::from_f64(value);
                    }
                }
            },
        );
        Ok(result)
    }

    /// The value of a colour after the conversion by alpha.
    fn colour<S: Number>(&self, sum: S, pixel: &[S]) -> f64 {
        let (by_alpha, opaque) = self.by_alpha;
        let alpha = pixel.last().map_or(0.0, |alpha| alpha.to_f64());
        let sum = by_alpha.of(sum.to_f64(), alpha, opaque);
        if self.abs { sum.abs() } else { sum }
    }

    /// The least and the greatest result, except NaN and infinities.
    fn extremes<S: Number>(&self, sums: &Image<S>, filtered: usize) -> (f64, f64) {
        let channels = sums.shape().channels;
        let wider = |a: (f64, f64), b: (f64, f64)| (a.0.min(b.0), a.1.max(b.1));
        let none = (f64::INFINITY, f64::NEG_INFINITY);
        let all = Mutex::new(none);
        let chunks = sums.as_slice().chunks(chunk(channels));
        threads::for_each(threads_for(sums.as_slice().len()), chunks, |(): &mut (), chunk| {
            let pixels = chunk.chunks_exact(channels);
            let results = pixels
                .flat_map(|pixel| pixel[..filtered].iter().map(|&sum| self.colour(sum, pixel)));
            let found = results
                .filter(|sum| sum.is_finite())
                .fold(none, |found, sum| wider(found, (sum, sum)));
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            *all = wider(*all, found);
        });
        let (least, greatest) = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        if least <= greatest { (least, greatest) } else { (0.0, 0.0) }
    }
}

/// Counts of values that were clamped to an integer type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cut {
    /// Became 0.
    pub(crate) below: u64,
    /// Became the greatest value.
    pub(crate) above: u64,
    /// All values.
    pub(crate) total: u64,
    /// The grey in the middle of the type.
    pub(crate) middle: u64,
}

impl Cut {
    /// Counts the values of another picture too.
    pub(crate) fn add(&mut self, more: Self) {
        self.below += more.below;
        self.above += more.above;
        self.total += more.total;
    }

    /// Counts the sums in the first `filtered` channels that, times `factor`, are outside the range
    /// of integers from 0 to `greatest`.
    pub(crate) fn of(sums: &Pixels, filtered: usize, factor: f64, greatest: f64) -> Self {
        match sums {
            Pixels::F32(sums) => Self::of_values(sums, filtered, factor, greatest),
            Pixels::F64(sums) => Self::of_values(sums, filtered, factor, greatest),
            _ => unreachable!("sums are taken in f32 or f64"),
        }
    }

    fn of_values<S: Number>(sums: &Image<S>, filtered: usize, factor: f64, greatest: f64) -> Self {
        let middle = (greatest as u64).div_ceil(2);
        let pixels = sums.as_slice().chunks_exact(sums.shape().channels);
        let values = pixels.flat_map(|pixel| &pixel[..filtered]).map(|sum| sum.to_f64() * factor);
        values.fold(Self { middle, ..Self::default() }, |cut, value| Self {
            below: cut.below + u64::from(value < -0.5),
            above: cut.above + u64::from(value >= greatest + 0.5),
            total: cut.total + 1,
            middle,
        })
    }
}

/// The absolute value from which on sums may overflow. Infinities of both signs then add up to NaN.
const HUGE: f32 = 1e30;

/// Whether a filter may turn this value into NaN.
pub(crate) fn is_wild<P: Pixel>(value: P) -> bool {
    let size = value.to_f32().abs();
    size.is_nan() || size >= HUGE
}

/// Whether a filter's result on these pixels may contain NaN. Only floats can.
pub(crate) fn may_give_nan(pixels: &Pixels) -> bool {
    fn any<P: Pixel>(values: &[P]) -> bool {
        values.iter().any(|&value| is_wild(value))
    }
    match pixels {
        Pixels::U8(_) | Pixels::U16(_) => false,
        Pixels::F16(image) => any(image.as_slice()),
        Pixels::F32(image) => any(image.as_slice()),
        Pixels::F64(image) => {
            image.as_slice().iter().any(|value| value.is_nan() || value.abs() >= f64::from(HUGE))
        }
    }
}

/// The number of sums that are NaN, and of all sums.
pub(crate) fn nans(sums: &Pixels) -> (u64, u64) {
    let (count, all) = match sums {
        Pixels::F32(sums) => {
            let values = sums.as_slice();
            (values.iter().filter(|value| value.is_nan()).count(), values.len())
        }
        Pixels::F64(sums) => {
            let values = sums.as_slice();
            (values.iter().filter(|value| value.is_nan()).count(), values.len())
        }
        _ => unreachable!("sums are taken in f32 or f64"),
    };
    (count as u64, all as u64)
}

#[cfg(test)]
mod tests {
    use apron::Pixel;

    use super::*;

    fn scaling(scale: &str) -> Scaling {
        Scaling { scale: Some(scale.parse().unwrap()), ..Scaling::default() }
    }

    fn image(values: &[f32], channels: usize) -> Image<f32> {
        Image::from_vec(values.to_vec(), values.len() / channels, 1, channels).unwrap()
    }

    fn finished<D: Pixel>(scaling: &Scaling, from: Scalar, values: &[f32]) -> Vec<D> {
        let (finish, _) = scaling.finish(from, D::SCALAR, ByAlpha::AsTheyAre).unwrap();
        finish
            .expect("something to do")
            .values::<f32, D>(&image(values, 1), 1)
            .unwrap()
            .as_slice()
            .to_vec()
    }

    #[test]
    fn ranges_become_ranges() {
        let full = scaling("full");
        assert_eq!(
            finished::<u8>(&full, Scalar::U16, &[0.0, 128.0, 129.0, 257.0, 65535.0, 70000.0]),
            [0, 0, 1, 1, 255, 255]
        );
        assert_eq!(
            finished::<u16>(&full, Scalar::U8, &[0.0, 1.0, 255.0, -3.0]),
            [0, 257, 65535, 0]
        );
        assert_eq!(
            finished::<u8>(&full, Scalar::F32, &[0.0, 0.5, 1.0, 2.0, f32::NAN]),
            [0, 128, 255, 255, 0]
        );
        assert_eq!(finished::<f32>(&full, Scalar::U8, &[0.0, 51.0, 255.0]), [0.0, 0.2, 1.0]);
        assert_eq!(
            finished::<u8>(&scaling("-1..1"), Scalar::F32, &[-1.0, 0.0, 1.0, 9.0]),
            [0, 128, 255, 255]
        );
        assert_eq!(finished::<u8>(&scaling("4095..0"), Scalar::U16, &[4095.0, 0.0]), [0, 255]);
        let both = Scaling { abs: true, offset: Some(10.0), ..scaling("0..100") };
        assert_eq!(finished::<u8>(&both, Scalar::U8, &[-20.0, 20.0, 0.0]), [61, 61, 10]);
    }

    #[test]
    fn results_are_normalised_without_alpha_and_without_infinities() {
        let normalize = Scaling { normalize: true, ..Scaling::default() };
        let sums = [-4.0, 200.0, 6.0, 100.0, f32::INFINITY, 50.0, f32::NAN, 0.0, 1.0, 0.0];
        let (finish, note) = normalize.finish(Scalar::U8, Scalar::U8, ByAlpha::AsTheyAre).unwrap();
        let result = finish.unwrap().values::<f32, u8>(&image(&sums, 2), 1).unwrap();
        assert_eq!(result.as_slice(), [0, 200, 255, 100, 255, 50, 0, 0, 128, 0]);
        assert_eq!(note, None);
        assert_eq!(finished::<u8>(&normalize, Scalar::F32, &[7.0, 7.0]), [0, 0]);
        assert_eq!(finished::<f32>(&normalize, Scalar::U8, &[10.0, 20.0, 30.0]), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn nothing_is_done_unless_needed_and_nothing_in_silence() {
        let plain = Scaling::default();
        for (from, to) in
            [(Scalar::U8, Scalar::U8), (Scalar::U8, Scalar::F32), (Scalar::F16, Scalar::F32)]
        {
            assert_eq!(plain.finish(from, to, ByAlpha::AsTheyAre).unwrap(), (None, None));
        }
        assert_eq!(
            scaling("none").finish(Scalar::U16, Scalar::U8, ByAlpha::AsTheyAre).unwrap(),
            (None, None)
        );
        let (finish, note) = plain.finish(Scalar::U16, Scalar::U8, ByAlpha::AsTheyAre).unwrap();
        assert!(finish.is_some() && note.unwrap().contains("--scale none"));
        let reason = plain.finish(Scalar::F32, Scalar::U8, ByAlpha::AsTheyAre).unwrap_err();
        assert!(reason.contains("--scale full") && reason.contains("--normalize"));
        let offset = Scaling { offset: Some(128.0), ..Scaling::default() };
        assert_eq!(finished::<u8>(&offset, Scalar::U8, &[-128.0, 0.0, 1.0]), [0, 128, 129]);
    }

    #[test]
    fn scales_read_as_people_write_them() {
        assert_eq!("0..4095".parse(), Ok(Scale::Range(0.0, 4095.0)));
        assert_eq!("-0.5..0.5".parse(), Ok(Scale::Range(-0.5, 0.5)));
        for bad in ["", "half", "1", "1..", "..1", "1..1", "nan..1", "0..inf", "0-255"] {
            assert!(bad.parse::<Scale>().is_err(), "{bad}");
        }
    }
}
