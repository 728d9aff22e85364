//! The treatment of alpha, the last channel of an image that has one.

use crate::image::{Image, ImageView, Number, Shape};
use crate::{Error, Extra, Filter, Result};

/// The treatment of alpha, an image's last channel, in
/// [`Pipeline::run_with_alpha`](crate::Pipeline::run_with_alpha).
///
/// White pixels on a transparent black background get a dark rim when blurred channel by channel,
/// because the background's black enters the colours. [`Alpha::Premultiply`] weights each colour by
/// its alpha.
///
/// | mode | in text | colours | alpha | channels of the result |
/// | --- | --- | --- | --- | --- |
/// | [`Alpha::Auto`] | `auto` | as `premultiply` for steps that average, else as `keep` | likewise | as the source |
/// | [`Alpha::Premultiply`] | `premultiply` | weighted by alpha | filtered | as the source |
/// | [`Alpha::Premultiplied`] | `premultiplied` | filtered | filtered by steps that average, else copied | as the source |
/// | [`Alpha::Keep`] | `keep` | filtered | copied | as the source |
/// | [`Alpha::Filter`] | `filter` | filtered | filtered | as the source |
/// | [`Alpha::Drop`] | `drop` | filtered | - | one fewer |
/// | [`Alpha::Flatten`] | `flatten=COLOUR` | composited on the colour, then filtered | - | one fewer |
///
/// ```
/// use apron::Alpha;
///
/// assert_eq!("keep".parse::<Alpha>()?, Alpha::Keep);
/// assert_eq!("flatten=white".parse::<Alpha>()?, Alpha::Flatten([1.0; 3]));
/// assert_eq!("flatten=#ff0033".parse::<Alpha>()?, Alpha::Flatten([1.0, 0.0, 0.2]));
/// assert!("blend".parse::<Alpha>().is_err());
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Alpha {
    /// [`Alpha::Premultiply`] in steps that are averages (see [`Filter::is_average`]), and
    /// [`Alpha::Keep`] in all others.
    #[default]
    Auto,
    /// In each step, a colour becomes `sum(tap * colour * alpha) / sum(tap * alpha)`, or 0 where
    /// all pixels under the window are transparent. Alpha becomes `sum(tap * alpha)`. Each is
    /// rounded once. For bytes in and bytes out, results are quotients of exact sums over integer
    /// taps ([`Filter::form`]). Other types have sums in f64, row by row. GPU and CPU give the same
    /// results. Every step must be an average.
    Premultiply,
    /// The colours are already multiplied by alpha, as OpenEXR stores them. A step that averages
    /// filters every channel; any other step copies alpha. Colours where alpha is 0, such as glows,
    /// are filtered as any other colour. A derivative or a sharpened colour is that of the image on
    /// black. Alpha is copied there because the derivative of alpha would make the image
    /// transparent.
    Premultiplied,
    /// Alpha is copied.
    Keep,
    /// Alpha is filtered as any other channel.
    Filter,
    /// Alpha is removed.
    Drop,
    /// The image is first composited on this colour: red, green and blue, each from 0 to 1, where 1
    /// is the greatest value of integers. Grey images use the colour's luma,
    /// `0.2126 r + 0.7152 g + 0.0722 b`. Alpha is clamped to 0 to that greatest value, and colours
    /// are rounded once.
    Flatten([f64; 3]),
}

/// The named colours of the text form.
const COLOURS: &[(&str, [f64; 3])] =
    &[("black", [0.0; 3]), ("white", [1.0; 3]), ("grey", [0.5; 3]), ("gray", [0.5; 3])];

impl Alpha {
    /// The number of channels of the results, for a source with `of_source` channels, the last of
    /// them alpha.
    pub fn channels(self, of_source: usize) -> usize {
        of_source - usize::from(self.takes_alpha_away()).min(of_source)
    }

    pub(crate) fn takes_alpha_away(self) -> bool {
        matches!(self, Self::Drop | Self::Flatten(_))
    }

    /// The image without its alpha: removed, or composited on the colour.
    pub(crate) fn apart<P: Number>(self, src: &ImageView<'_, P>, extra: Extra) -> Result<Image<P>> {
        let Shape { width, height, channels } = src.shape();
        let colours = channels - 1;
        let mut image = Image::zeroed(width, height, colours)?;
        let greatest = if P::IS_INTEGER { P::from_f64(f64::INFINITY).to_f64() } else { 1.0 };
        let ground = match self {
            Self::Flatten(colour) => {
                let [red, green, blue] = colour.map(|part| part * greatest);
                // ITU-R BT.709; in this form the luma of a grey is that grey, to the last bit.
                let luma = red + 0.7152 * (green - red) + 0.0722 * (blue - red);
                Some(if colours == 3 { [red, green, blue] } else { [luma; 3] })
            }
            _ => None,
        };
        for (y, out) in image.as_mut_slice().chunks_exact_mut(width * colours).enumerate() {
            for (out, pixel) in out.chunks_exact_mut(colours).zip(src.row(y).chunks_exact(channels))
            {
                let Some(ground) = ground else {
                    out.copy_from_slice(&pixel[..colours]);
                    continue;
                };
                let alpha = pixel[colours].to_f64().clamp(0.0, greatest);
                let weight = if extra == Extra::Premultiplied { greatest } else { alpha };
                for (c, (out, colour)) in out.iter_mut().zip(pixel).enumerate() {
                    let sum = colour.to_f64() * weight + ground[c % 3] * (greatest - alpha);
                    *out = P::from_f64(sum / greatest);
                }
            }
        }
        Ok(image)
    }
}

impl Filter {
    /// Whether results are averages of pixels: no tap is negative, and the taps sum to 1 within
    /// 1e-6.
    ///
    /// ```
    /// use apron::Filter;
    ///
    /// assert!(Filter::gaussian(2.0)?.is_average());
    /// assert!(!Filter::sharpen(1.0)?.is_average());
    /// # Ok::<(), apron::Error>(())
    /// ```
    pub fn is_average(&self) -> bool {
        // A negative row times a negative column gives positive taps; such filters count as no
        // averages.
        let (row, column) = match (self.dense_f64(), self.separated()) {
            (Some(taps), _) => (taps, &[1.0][..]),
            (None, Some((row, column))) => (row, column),
            (None, None) => return false,
        };
        let sum = row.iter().sum::<f64>() * column.iter().sum::<f64>();
        row.iter().chain(column).all(|&tap| tap >= 0.0) && (sum - 1.0).abs() <= 1e-6
    }
}

/// Reads a mode from the table of [`Alpha`]. A colour is `black`, `white`, `grey` or `gray`, or six
/// hexadecimal digits after a `#`.
impl std::str::FromStr for Alpha {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let colour = |text: &str| {
            let named = COLOURS.iter().find(|(name, _)| *name == text).map(|&(_, colour)| colour);
            let is_hex = |digits: &&str| {
                digits.len() == 6 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
            };
            let digits = text.strip_prefix('#').filter(is_hex);
            let of_digits = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
            named
                .or(of_digits
                    .map(|rgb| [16, 8, 0].map(|shift| f64::from(rgb >> shift & 255) / 255.0)))
        };
        match text {
            "auto" => Some(Self::Auto),
            "premultiply" => Some(Self::Premultiply),
            "premultiplied" => Some(Self::Premultiplied),
            "keep" => Some(Self::Keep),
            "filter" => Some(Self::Filter),
            "drop" => Some(Self::Drop),
            _ => text.strip_prefix("flatten=").and_then(colour).map(Self::Flatten),
        }
        .ok_or_else(|| Error::Parameter {
            name: "alpha",
            value: text.to_owned(),
            expected: "one of auto, premultiply, premultiplied, keep, filter, drop, flatten=COLOUR, where a colour is black, white, grey or #rrggbb".to_owned(),
        })
    }
}

/// Prints text that `FromStr` reads; colours are rounded to 1/255.
impl std::fmt::Display for Alpha {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Premultiply => f.pad("premultiply"),
            Self::Premultiplied => f.pad("premultiplied"),
            Self::Keep => f.pad("keep"),
            Self::Filter => f.pad("filter"),
            Self::Drop => f.pad("drop"),
            Self::Flatten(colour) => {
                let [red, green, blue] =
                    colour.map(|part| (part.clamp(0.0, 1.0) * 255.0).round() as u8);
                f.pad(&format!("flatten=#{red:02x}{green:02x}{blue:02x}"))
            }
        }
    }
}

impl Alpha {
    /// The type of a result's last channel, for a source whose last channel is `extra`; `None` if
    /// alpha is removed.
    ///
    /// [`Alpha::Premultiply`] and [`Alpha::Premultiplied`] state the type, whatever the source's
    /// `extra`.
    ///
    /// ```
    /// use apron::{Alpha, Extra};
    ///
    /// assert_eq!(Alpha::Auto.of_result(Extra::Band), Some(Extra::Band));
    /// assert_eq!(Alpha::Premultiply.of_result(Extra::Unspecified), Some(Extra::Straight));
    /// assert_eq!(Alpha::Drop.of_result(Extra::Straight), None);
    /// ```
    pub fn of_result(self, extra: Extra) -> Option<Extra> {
        match self {
            Self::Auto | Self::Keep | Self::Filter => Some(extra),
            Self::Premultiply => Some(Extra::Straight),
            Self::Premultiplied => Some(Extra::Premultiplied),
            Self::Drop | Self::Flatten(_) => None,
        }
    }

    /// The mode for an image whose last channel is `extra`: [`Alpha::Auto`] becomes a specific mode
    /// unless alpha is straight.
    pub(crate) fn for_kind(self, extra: Extra) -> Self {
        match (self, extra) {
            (Self::Auto, Extra::Premultiplied) => Self::Premultiplied,
            (Self::Auto, Extra::Band | Extra::Unspecified) => Self::Filter,
            (mode, _) => mode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_back_as_they_print() {
        let modes = [
            Alpha::Auto,
            Alpha::Premultiply,
            Alpha::Premultiplied,
            Alpha::Keep,
            Alpha::Filter,
            Alpha::Drop,
        ];
        for mode in modes.into_iter().chain([Alpha::Flatten([1.0, 0.0, 0.2])]) {
            assert_eq!(mode.to_string().parse::<Alpha>().unwrap(), mode);
        }
        for text in [
            "",
            "Keep",
            "flatten",
            "flatten=",
            "flatten=#12345",
            "flatten=#12345g",
            "flatten=#+12345",
            "flatten=red",
        ] {
            let message = text.parse::<Alpha>().unwrap_err().to_string();
            assert!(
                message.contains("premultiplied, keep") && message.contains("#rrggbb"),
                "{message}"
            );
        }
    }

    #[test]
    fn averages_are_what_sums_to_1_and_has_no_negative_tap() {
        let average = |text: &str| text.parse::<Filter>().unwrap().is_average();
        for text in [
            "gaussian:sigma=2",
            "box:size=3",
            "motion:length=5,angle=30",
            "identity",
            "taps:1/3 1/3 1/3",
        ] {
            assert!(average(text), "{text}");
        }
        for text in ["sharpen", "sobel-x", "unsharp:sigma=1", "taps:1 1", "taps:2 -1", "laplacian"]
        {
            assert!(!average(text), "{text}");
        }
    }

    #[test]
    fn flattened_colours_are_rounded_once() {
        let src =
            Image::from_vec(vec![200u8, 100, 50, 128, 9, 8, 7, 0, 9, 8, 7, 255], 3, 1, 4).unwrap();
        let flat = Alpha::Flatten([1.0, 0.0, 0.2]).apart(&src.view(), Extra::Straight).unwrap();
        // 200 * 128 / 255 + 127 is 227.39, and 50 * 128 / 255 + 51 * 127 / 255 is 50.498.
        assert_eq!(flat.as_slice(), [227, 50, 50, 255, 0, 51, 9, 8, 7]);
        let grey = Image::from_vec(vec![0.5f32, 0.25], 1, 1, 2).unwrap();
        let found = Alpha::Flatten([1.0, 0.0, 0.0]).apart(&grey.view(), Extra::Straight).unwrap();
        assert_eq!(found.as_slice(), [(0.125 + 0.2126 * 0.75) as f32]);
        // Where colours are premultiplied, alpha weights only the background: 50 + 51 * 127 / 255
        // is 75.4. Values that are too bright saturate.
        let shining = Image::from_vec(vec![200u8, 100, 50, 128, 9, 8, 7, 0], 2, 1, 4).unwrap();
        let laid =
            Alpha::Flatten([1.0, 0.0, 0.2]).apart(&shining.view(), Extra::Premultiplied).unwrap();
        assert_eq!(laid.as_slice(), [255, 100, 75, 255, 8, 58]);
        assert_eq!(
            Alpha::Drop.apart(&src.view(), Extra::Straight).unwrap().as_slice(),
            [200, 100, 50, 9, 8, 7, 9, 8, 7]
        );
    }
}
