//! Masks: which pixels of an image are known.

use crate::image::{Image, ImageView, ImageViewMut, Pixel, Scalar, Shape};
use crate::{Border, Error, Result};

/// Which pixels of an image are known, for [`Plan::run_masked`](crate::Plan::run_masked).
///
/// A mask is as wide and as high as the image, and has one channel, or the image's channels.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Mask<'a> {
    /// Every pixel is known, unless it is NaN under [`Nan::Ignore`] or [`Nan::Fill`], or lies
    /// outside the image under [`Border::None`](crate::Border::None).
    #[default]
    All,
    /// 0 is unknown and 255 is known. A value v between weighs v/255.
    Bytes(ImageView<'a, u8>),
    /// Weights: finite, and not negative. 0 is unknown.
    Weights(ImageView<'a, f32>),
}

impl<'a> From<ImageView<'a, u8>> for Mask<'a> {
    fn from(view: ImageView<'a, u8>) -> Self {
        Self::Bytes(view)
    }
}

impl<'a> From<ImageView<'a, f32>> for Mask<'a> {
    fn from(view: ImageView<'a, f32>) -> Self {
        Self::Weights(view)
    }
}

impl<'a> From<&'a Image<u8>> for Mask<'a> {
    fn from(image: &'a Image<u8>) -> Self {
        Self::Bytes(image.view())
    }
}

impl<'a> From<&'a Image<f32>> for Mask<'a> {
    fn from(image: &'a Image<f32>) -> Self {
        Self::Weights(image.view())
    }
}

impl Mask<'_> {
    /// The mask's channels, if it has an image.
    pub(crate) fn channels(&self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Bytes(view) => Some(view.shape().channels),
            Self::Weights(view) => Some(view.shape().channels),
        }
    }

    /// Writes the weights of row `y`, from value `first` on, into `out`.
    pub(crate) fn row(&self, y: usize, first: usize, out: &mut [f32]) {
        match self {
            Self::All => out.fill(1.0),
            Self::Bytes(view) => {
                let row = &view.row(y)[first..];
                out.iter_mut().zip(row).for_each(|(out, &byte)| *out = weight(byte));
            }
            Self::Weights(view) => out.copy_from_slice(&view.row(y)[first..first + out.len()]),
        }
    }

    /// # Errors
    /// [`Error::Parameter`] if the mask does not fit an image of this shape, or if a weight is
    /// negative or not finite.
    pub(crate) fn check(&self, image: Shape) -> Result<()> {
        let shape = match self {
            Self::All => return Ok(()),
            Self::Bytes(view) => view.shape(),
            Self::Weights(view) => view.shape(),
        };
        check_shape(shape, image)?;
        let Self::Weights(view) = self else { return Ok(()) };
        let is_wrong = |weight: f32| !(0.0..f32::INFINITY).contains(&weight);
        for y in 0..shape.height {
            let row = view.row(y);
            // Without a branch for each weight, the compiler makes vectors of them.
            if !row.iter().fold(false, |any, &weight| any | is_wrong(weight)) {
                continue;
            }
            let at = row.iter().position(|&weight| is_wrong(weight)).unwrap_or(0);
            return Err(Error::Parameter {
                name: "a mask's weight",
                value: format!("{} in row {y}, column {}", row[at], at / shape.channels),
                expected: "finite and at least 0".to_owned(),
            });
        }
        Ok(())
    }
}

/// # Errors
/// [`Error::Parameter`] if a mask of this shape does not fit the image.
pub(crate) fn check_shape(mask: Shape, image: Shape) -> Result<()> {
    let Shape { width, height, channels } = image;
    if (mask.width, mask.height) == (width, height) && [1, channels].contains(&mask.channels) {
        return Ok(());
    }
    let own = if channels == 1 { String::new() } else { format!(", or {image}") };
    Err(Error::Parameter {
        name: "the mask's shape",
        value: mask.to_string(),
        expected: format!("{width}x{height}x1{own}, as the image's"),
    })
}

/// The weight of a mask's byte.
pub(crate) fn weight(byte: u8) -> f32 {
    f32::from(byte) / 255.0
}

/// The treatment of NaN in images of floating-point numbers, and of what a mask leaves out.
///
/// | mode | in text | a known pixel's result | an unknown pixel's result |
/// | --- | --- | --- | --- |
/// | [`Nan::Spread`] | `spread` | filtered; NaN under the window gives NaN | filtered |
/// | [`Nan::Ignore`] | `ignore` | from the known pixels | from the known pixels |
/// | [`Nan::Fill`] | `fill` | the pixel itself | from the known pixels |
///
/// [`Nan::Ignore`] is `nan_treatment="interpolate"` of `astropy.convolution.convolve`, and
/// [`Nan::Fill`] is its `interpolate_replace_nans`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Nan {
    /// NaN is a number as any other, so it spreads. What a mask leaves out is unknown.
    #[default]
    Spread,
    /// NaN is unknown, as what a mask leaves out.
    Ignore,
    /// As [`Nan::Ignore`]; known pixels are copied.
    Fill,
}

impl std::str::FromStr for Nan {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "spread" => Ok(Self::Spread),
            "ignore" => Ok(Self::Ignore),
            "fill" => Ok(Self::Fill),
            _ => Err(Error::Parameter {
                name: "nan",
                value: text.to_owned(),
                expected: "one of spread, ignore, fill".to_owned(),
            }),
        }
    }
}

/// Prints what `FromStr` reads.
impl std::fmt::Display for Nan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Spread => "spread",
            Self::Ignore => "ignore",
            Self::Fill => "fill",
        })
    }
}

/// How a plan treats what is unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unknown {
    pub(crate) nan: Nan,
    /// The result where no pixel under the window is known.
    pub(crate) result: f64,
}

impl Default for Unknown {
    fn default() -> Self {
        Self { nan: Nan::default(), result: f64::NAN }
    }
}

impl Unknown {
    /// Whether pixels of a type are unknown if they are NaN.
    pub(crate) fn is_nan(self, source: Scalar) -> bool {
        self.nan != Nan::Spread && source.greatest().is_none()
    }
}

/// What a call knows of its image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) mask: Mask<'a>,
    pub(crate) unknown: Unknown,
    pub(crate) border: Border,
}

impl Known<'_> {
    /// The weight of what lies outside the image where the border finds no pixel.
    pub(crate) fn outside(&self) -> f32 {
        if self.border == Border::None { 0.0 } else { 1.0 }
    }
}

/// What [`Plan::run_masked_with`](crate::Plan::run_masked_with) writes beside the results, if it is
/// given. Both have the image's shape.
#[derive(Debug, Default)]
pub struct Coverage<'a> {
    /// `sum(w m)`: the sum of the known pixels' weights, each times its tap.
    pub weights: Option<ImageViewMut<'a, f32>>,
    /// 255 where a result comes from known pixels, and 0 where no pixel is known. As a mask, it
    /// says what the results know.
    pub known: Option<ImageViewMut<'a, u8>>,
}

impl Coverage<'_> {
    /// # Errors
    /// [`Error::Mismatch`] if a shape is not the image's.
    pub(crate) fn check(&self, image: Shape) -> Result<()> {
        let shapes = [
            self.weights.as_ref().map(ImageViewMut::shape),
            self.known.as_ref().map(ImageViewMut::shape),
        ];
        match shapes.into_iter().flatten().find(|&shape| shape != image) {
            Some(other) => Err(Error::Mismatch { src: image.to_string(), dst: other.to_string() }),
            None => Ok(()),
        }
    }
}

/// An image's rows in bands; without an image, as many empty places.
pub(crate) fn rows_of<'a, P: Pixel>(
    view: Option<&'a mut ImageViewMut<'_, P>>,
    band: usize,
    height: usize,
) -> Vec<Vec<Option<&'a mut [P]>>> {
    match view {
        Some(view) => {
            view.bands_mut(band).map(|rows| rows.into_iter().map(Some).collect()).collect()
        }
        None => (0..height.div_ceil(band))
            .map(|_| (0..band.min(height)).map(|_| None).collect())
            .collect(),
    }
}

/// How sums over known pixels become results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// `sum(w m p) / (sum(w m) / sum(w))`, where no tap is negative.
    Average,
    /// The same, where some are: the divisor may cancel.
    Quotient,
    /// `sum(w m p)`.
    Sum,
}

impl Rule {
    /// Where a divisor is at most this part of `sum(|w| m)`, it has cancelled.
    pub(crate) const CANCELLED: f64 = 1e-6;

    pub(crate) fn of(filter: &crate::Filter) -> Self {
        if filter.is_average() {
            return Self::Average;
        }
        if (filter.sum_of_taps() - 1.0).abs() <= 1e-6 { Self::Quotient } else { Self::Sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Filter;

    #[test]
    fn modes_read_back_as_they_print() {
        for mode in [Nan::Spread, Nan::Ignore, Nan::Fill] {
            assert_eq!(mode.to_string().parse::<Nan>().unwrap(), mode);
        }
        let message = "Ignore".parse::<Nan>().unwrap_err().to_string();
        assert!(message.contains("spread, ignore, fill"), "{message}");
    }

    #[test]
    fn the_taps_say_what_becomes_of_sums() {
        let rule = |text: &str| Rule::of(&text.parse().unwrap());
        assert_eq!(rule("gaussian:2"), Rule::Average);
        assert_eq!(rule("unsharp:sigma=1"), Rule::Quotient);
        assert_eq!(rule("sobel-x"), Rule::Sum);
        assert_eq!(rule("taps:1 1 1"), Rule::Sum);
        assert_eq!(Rule::of(&Filter::box_filter(5, 5).unwrap()), Rule::Average);
    }

    #[test]
    fn a_mask_fits_its_image() {
        let image = Shape { width: 3, height: 2, channels: 3 };
        let bytes = Image::<u8>::zeroed(3, 2, 1).unwrap();
        assert!(Mask::from(&bytes).check(image).is_ok());
        let pairs = Image::<u8>::zeroed(3, 2, 2).unwrap();
        let message = Mask::from(&pairs).check(image).unwrap_err().to_string();
        assert!(message.contains("3x2x2") && message.contains("3x2x1, or 3x2x3"), "{message}");
        for wrong in [-0.5, f32::NAN, f32::INFINITY] {
            let weights = Image::from_vec(vec![1.0, 1.0, 1.0, 0.0, wrong, 1.0], 3, 2, 1).unwrap();
            let message = Mask::from(&weights).check(image).unwrap_err().to_string();
            assert!(message.contains("row 1, column 1"), "{message}");
        }
    }
}
