//! What a file says about a picture beside its pixels.

use image::metadata::Orientation;

use crate::carried::{self, Carried, Kind, RestsOn};

/// Pixels in a unit of length, horizontally and vertically.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Resolution {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) unit: Unit,
}

/// The unit of length of a [`Resolution`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A unit that another part of the file names, or none: only the ratio counts.
    Unnamed = 1,
    Inch = 2,
    Centimetre = 3,
}

impl Resolution {
    pub(crate) fn per_inch(x: f64, y: f64) -> Self {
        Self { x, y, unit: Unit::Inch }
    }

    /// A resolution from the two ratios and the unit number of TIFF and Exif. Without a number, the
    /// unit is the inch.
    pub(crate) fn of(x: f64, y: f64, unit: Option<u32>) -> Option<Self> {
        let unit = match unit {
            None | Some(2) => Unit::Inch,
            Some(3) => Unit::Centimetre,
            Some(_) => Unit::Unnamed,
        };
        // Writers put a ratio of 1 without a unit if they know no resolution.
        (unit != Unit::Unnamed || (x, y) != (1.0, 1.0)).then_some(Self { x, y, unit })
    }

    /// In pixels per inch, if the unit is known.
    pub(crate) fn in_inches(self) -> Option<(f64, f64)> {
        match self.unit {
            Unit::Unnamed => None,
            Unit::Inch => Some((self.x, self.y)),
            Unit::Centimetre => Some((self.x * 2.54, self.y * 2.54)),
        }
    }

    /// As whole numbers up to `most`, if both are whole.
    pub(crate) fn whole(self, most: u32) -> Option<(u32, u32)> {
        let whole = |value: f64| {
            (value.fract() == 0.0 && value >= 1.0 && value <= most.into()).then_some(value as u32)
        };
        whole(self.x).zip(whole(self.y))
    }
}

/// The simplest ratio that is as close to a positive number as f64 can tell, by its continued
/// fraction.
pub(crate) fn ratio(value: f64) -> (u32, u32) {
    let (mut before, mut last) = ((0u64, 1u64), (1u64, 0u64));
    let mut rest = value;
    while rest.is_finite() && rest < f64::from(u32::MAX) {
        let whole = rest.floor() as u64;
        let next = (whole * last.0 + before.0, whole * last.1 + before.1);
        if next.0.max(next.1) > u32::MAX.into() {
            break;
        }
        (before, last) = (last, next);
        if (last.0 as f64 / last.1 as f64 - value).abs() <= value * f64::EPSILON {
            break;
        }
        rest = 1.0 / (rest - rest.floor());
    }
    match last {
        // The number is too large or too small for a ratio.
        (_, 0) => (u32::MAX, 1),
        (0, _) => (1, u32::MAX),
        (num, denom) => (num as u32, denom as u32),
    }
}

/// The resolution of colour in a JPEG: full, half the width, or half the width and height.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Subsampling {
    #[value(name = "444", alias = "4:4:4")]
    S444,
    #[value(name = "422", alias = "4:2:2")]
    S422,
    #[value(name = "420", alias = "4:2:0")]
    S420,
}

/// The metadata of a picture.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Meta {
    /// The colour profile.
    pub(crate) icc: Option<Vec<u8>>,
    /// Exif data as a camera writes it, without its signature.
    pub(crate) exif: Option<Vec<u8>>,
    /// XMP data.
    pub(crate) xmp: Option<Vec<u8>>,
    pub(crate) resolution: Option<Resolution>,
    /// How to rotate or mirror the pixels for display.
    pub(crate) orientation: Orientation,
    /// The subsampling of colour in the JPEG that was read.
    pub(crate) subsampling: Option<Subsampling>,
    /// Whether values are light, as the format says.
    pub(crate) is_linear: bool,
    /// All other chunks, tags and segments, which this tool does not use.
    pub(crate) carried: Vec<Carried>,
}

impl Meta {
    /// Takes a colour profile if its colour space fits the pixels: grey, RGB or CMYK.
    pub(crate) fn set_profile(&mut self, profile: Option<Vec<u8>>, colours: usize) {
        let space = match colours {
            1 | 2 => b"GRAY",
            3 => b"RGB ",
            _ => b"CMYK",
        };
        match profile.filter(|profile| !profile.is_empty()) {
            Some(profile) if profile.get(16..20) == Some(space) => self.icc = Some(profile),
            Some(_) => self
                .carried
                .push(Carried::left_out(Kind::Phrase, "a colour profile for other colours")),
            None => {}
        }
    }

    /// Drops metadata that is untrue of values of another type or scale.
    pub(crate) fn values_changed(&mut self) {
        carried::change(&mut self.carried, RestsOn::Values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ratio in lowest terms comes back unchanged.
    #[test]
    fn ratios() {
        for (num, denom) in [
            (4, 1),
            (300, 1),
            (1_234_567, 1_000_000),
            (1, 65_521),
            (72_009, 1000),
            (4_000_000_000, 1),
        ] {
            assert_eq!(ratio(f64::from(num) / f64::from(denom)), (num, denom));
        }
        for value in [1e-12, 1e12, std::f64::consts::PI, 0.1 + 0.2] {
            let (num, denom) = ratio(value);
            assert!(num > 0 && denom > 0, "{value}");
        }
    }
}
