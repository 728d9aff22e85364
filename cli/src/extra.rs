//! The channels after a picture's colours: their meaning, and the treatment of alpha.

use std::sync::atomic::{AtomicBool, Ordering};

use apron::{Alpha, Extra, Image, Number, threads};

use crate::spread::{chunk, threads_for};

/// The channels after the colours in a format with straight alpha.
pub(crate) fn straight(alpha: bool) -> Vec<Extra> {
    if alpha { vec![Extra::Straight] } else { Vec::new() }
}

/// The channels after the colours of an array, which does not state their meaning. Two and four
/// channels are one and three colours with one more; of more than four, the first is a colour.
pub(crate) fn of_array(channels: usize) -> Vec<Extra> {
    match channels {
        1 | 3 => Vec::new(),
        2 | 4 => vec![Extra::Unspecified],
        _ => vec![Extra::Unspecified; channels - 1],
    }
}

/// The name of pixels with this number of colours and these channels after them: "grey", "RGBA",
/// "RGB+band", "7 channels of".
pub(crate) fn name(colours: usize, extras: &[Extra]) -> String {
    let name = match (colours, extras) {
        (1, []) => "grey",
        (3, []) => "RGB",
        (4, []) => "CMYK",
        (1, [Extra::Band]) => "grey+band",
        (3, [Extra::Band]) => "RGB+band",
        (1, [_]) => "grey+alpha",
        (3, [_]) => "RGBA",
        _ => return format!("{} channels of", colours + extras.len()),
    };
    name.to_owned()
}

/// The meaning of the channels of a picture and of its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// The number of the channel that the mode is about, and what it is. None if all channels are
    /// filtered in the same way.
    pub(crate) treated: Option<(usize, Extra)>,
    /// The meaning of that channel in the result. `None` if it was removed, or if there is none.
    pub(crate) kept: Option<Extra>,
    /// The meaning of each channel after the colours of the result.
    pub(crate) extras: Vec<Extra>,
}

impl Meaning {
    /// For a picture with this number of channels, of which `extras` come after the colours. If
    /// none is alpha and the mode treats alpha, the mode applies to the last channel.
    pub(crate) fn of(channels: usize, extras: &[Extra], mode: Alpha) -> Self {
        let named = !matches!(mode, Alpha::Auto | Alpha::Filter);
        let alpha = extras.iter().position(|extra| extra.is_alpha());
        let mut extras = extras.to_vec();
        let Some(at) = alpha.or_else(|| extras.len().checked_sub(1).filter(|_| named)) else {
            return Self { treated: None, kept: None, extras };
        };
        let treated = Some((channels - extras.len() + at, extras[at]));
        let kept = mode.of_result(extras[at]);
        match kept {
            Some(kind) => extras[at] = kind,
            None => drop(extras.remove(at)),
        }
        Self { treated, kept, extras }
    }
}

/// The conversion of a result's colours to a format's type of alpha.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ByAlpha {
    #[default]
    AsTheyAre,
    /// From premultiplied colours to straight ones.
    Divided,
    /// From straight colours to premultiplied ones.
    Multiplied,
}

impl ByAlpha {
    /// The conversion of colours from one type of alpha to the other.
    pub(crate) fn between(from: Option<Extra>, to: Extra) -> Self {
        match (from, to) {
            (Some(Extra::Premultiplied), Extra::Straight) => Self::Divided,
            (Some(Extra::Straight), Extra::Premultiplied) => Self::Multiplied,
            _ => Self::AsTheyAre,
        }
    }

    /// Converts a colour at this alpha; `opaque` is the value of full alpha.
    pub(crate) fn of(self, colour: f64, alpha: f64, opaque: f64) -> f64 {
        match self {
            Self::AsTheyAre => colour,
            Self::Divided if alpha > 0.0 => colour * opaque / alpha,
            // A transparent pixel has no colour.
            Self::Divided => 0.0,
            Self::Multiplied => colour * alpha / opaque,
        }
    }

    /// Whether the conversion loses colours: premultiplied ones of pixels with an alpha of 0.
    pub(crate) fn loses<S: Number>(self, sums: &Image<S>) -> bool {
        let channels = sums.shape().channels;
        let is_glow = |pixel: &[S]| match pixel.split_last() {
            Some((alpha, colours)) => {
                alpha.to_f64() <= 0.0 && colours.iter().any(|colour| colour.to_f64() != 0.0)
            }
            None => false,
        };
        if self != Self::Divided {
            return false;
        }
        let (sums, found) = (sums.as_slice(), AtomicBool::new(false));
        threads::for_each(
            threads_for(sums.len()),
            sums.chunks(chunk(channels)),
            |(): &mut (), sums| {
                if !found.load(Ordering::Relaxed) && sums.chunks_exact(channels).any(is_glow) {
                    found.store(true, Ordering::Relaxed);
                }
            },
        );
        found.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Extra::{Band, Premultiplied, Straight, Unspecified};

    #[test]
    fn a_mode_is_about_alpha_or_the_channel_that_it_calls_so() {
        let of = |channels, extras: &[Extra], mode: &str| {
            let meaning = Meaning::of(channels, extras, mode.parse().unwrap());
            meaning.treated.map(|(at, _)| (at, meaning.extras))
        };
        assert_eq!(of(3, &[], "premultiply"), None);
        assert_eq!(of(4, &[Straight], "auto"), Some((3, vec![Straight])));
        assert_eq!(of(4, &[Straight], "premultiplied"), Some((3, vec![Premultiplied])));
        assert_eq!(of(2, &[Premultiplied], "premultiply"), Some((1, vec![Straight])));
        assert_eq!(of(2, &[Premultiplied], "filter"), Some((1, vec![Premultiplied])));
        assert_eq!(of(4, &[Premultiplied], "drop"), Some((3, vec![])));
        for extra in [Band, Unspecified] {
            for mode in ["auto", "filter"] {
                assert_eq!(of(4, &[extra], mode), None);
            }
            assert_eq!(of(4, &[extra], "keep"), Some((3, vec![extra])));
            assert_eq!(of(4, &[extra], "premultiply"), Some((3, vec![Straight])));
            assert_eq!(of(4, &[extra], "flatten=white"), Some((3, vec![])));
            assert_eq!(of(7, &[extra; 6], "drop"), Some((6, vec![extra; 5])));
        }
        // Alpha need not be the last one.
        assert_eq!(
            of(6, &[Band, Straight, Unspecified], "drop"),
            Some((4, vec![Band, Unspecified]))
        );
    }

    #[test]
    fn pixels_have_names() {
        let cases = [
            (1, vec![], "grey"),
            (3, vec![], "RGB"),
            (1, vec![Straight], "grey+alpha"),
            (3, vec![Premultiplied], "RGBA"),
            (3, of_array(4), "RGBA"),
            (4, vec![], "CMYK"),
            (3, vec![Band], "RGB+band"),
            (1, vec![Band], "grey+band"),
            (1, vec![Unspecified; 3], "4 channels of"),
            (1, of_array(7), "7 channels of"),
        ];
        for (colours, extras, expected) in cases {
            assert_eq!(name(colours, &extras), expected);
        }
    }

    #[test]
    fn colours_are_divided_and_multiplied() {
        assert_eq!(ByAlpha::Divided.of(64.0, 128.0, 255.0), 127.5);
        assert_eq!(ByAlpha::Multiplied.of(255.0, 128.0, 255.0), 128.0);
        assert_eq!(ByAlpha::Multiplied.of(7.0, 0.0, 1.0), 0.0);
        for nothing in [0.0, -0.5, f64::NAN] {
            assert_eq!(ByAlpha::Divided.of(0.5, nothing, 1.0), 0.0);
        }
        let image =
            |values: &[f32]| Image::from_vec(values.to_vec(), values.len() / 2, 1, 2).unwrap();
        assert!(ByAlpha::Divided.loses(&image(&[0.5, 1.0, 0.25, 0.0])));
        assert!(!ByAlpha::Divided.loses(&image(&[0.5, 1.0, 0.0, 0.0])));
        assert!(!ByAlpha::AsTheyAre.loses(&image(&[0.25, 0.0])));
    }
}
