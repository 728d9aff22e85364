//! Gradients: the magnitude or the angle of two derivatives.

use crate::{Error, Filter, Result};

/// The gradient of an image, computed from both derivatives in one pass.
///
/// A result is the magnitude, `sqrt(dx * dx + dy * dy)`, or the angle, see [`Gradient::angle`].
/// Each channel has its own gradient. The derivatives of [`Gradient::sobel`] are
/// [`Filter::sobel_x`] and [`Filter::sobel_y`]; the other operators correspond likewise.
///
/// 8-bit magnitudes of 8-bit pixels are correctly rounded. All other results are computed in f32,
/// with the same bits on the GPU and on the CPU, in this order:
///
/// 1. Each of the three rows gives the difference `right - left` and the smoothed pixels
///    `smooth(left, middle, right)`. Here `smooth(a, c, b)` is `side * (a + b) + centre * c`: the
///    sum, then its product, then a fused multiply-add.
/// 2. `dx` is `smooth` of the three differences, top to bottom. `dy` is the smoothed pixels of the
///    last row minus those of the first.
/// 3. The magnitude is the root of `dy * dy`, plus `dx * dx` by a fused multiply-add.
///
/// The pixel itself has weight 0. Derivatives beyond 1.8e19 give an infinite magnitude.
///
/// ```
/// use apron::{Device, Gradient, Image, Plan};
///
/// let plan = Plan::builder(Gradient::sobel()).device(Device::Cpu).build()?;
/// let ramp = Image::from_vec((0..48u8).map(|i| 3 * (i % 8) + 4 * (i / 8)).collect(), 8, 6, 1)?;
/// let edges: Image<u8> = plan.filter(&ramp.view())?;
/// // A slope of 3 to the right and of 4 downwards is one of 5; a Sobel filter's taps sum to 8.
/// assert_eq!(edges.view().row(3)[4], 40);
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gradient {
    operator: Operator,
    is_angle: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operator {
    Sobel,
    Scharr,
    Prewitt,
}

impl Gradient {
    /// The name in text and the summary of each gradient.
    pub const NAMES: &'static [(&'static str, &'static str)] = &[
        ("sobel", "magnitude of the gradient, from sobel-x and sobel-y in one pass"),
        ("scharr", "magnitude of the gradient, from scharr-x and scharr-y in one pass"),
        ("prewitt", "magnitude of the gradient, from prewitt-x and prewitt-y in one pass"),
        (
            "sobel-angle",
            "angle of the Sobel gradient, in radians from -pi to pi, clockwise from the right",
        ),
        ("scharr-angle", "angle of the Scharr gradient, in the same units"),
        ("prewitt-angle", "angle of the Prewitt gradient, in the same units"),
    ];

    const ALL: [Self; 6] = [
        Self::sobel(),
        Self::scharr(),
        Self::prewitt(),
        Self::sobel().angle(),
        Self::scharr().angle(),
        Self::prewitt().angle(),
    ];

    /// The magnitude, each derivative smoothed by `1 2 1`.
    pub const fn sobel() -> Self {
        Self { operator: Operator::Sobel, is_angle: false }
    }

    /// The magnitude, each derivative smoothed by `3 10 3`.
    pub const fn scharr() -> Self {
        Self { operator: Operator::Scharr, is_angle: false }
    }

    /// The magnitude, each derivative smoothed by `1 1 1`.
    pub const fn prewitt() -> Self {
        Self { operator: Operator::Prewitt, is_angle: false }
    }

    /// The angle instead of the magnitude: the direction of the steepest rise, in radians from -pi
    /// to pi. The angle is 0 to the right, pi/2 downwards, and 0 for a zero gradient. The error is
    /// at most 5e-7. Results must be f16 or f32.
    ///
    /// ```
    /// use apron::{Device, Gradient, Image, Plan};
    ///
    /// let plan = Plan::builder(Gradient::scharr().angle()).device(Device::Cpu).build()?;
    /// let ramp = Image::from_vec((0..48u8).map(|i| 200 - 7 * (i / 8)).collect(), 8, 6, 1)?;
    /// let mut angles = Image::<f32>::zeroed(8, 6, 1)?;
    /// plan.run(&ramp.view(), &mut angles.view_mut())?;
    /// assert!((angles.view().row(3)[4] + std::f32::consts::FRAC_PI_2).abs() < 1e-6);
    /// # Ok::<(), apron::Error>(())
    /// ```
    #[must_use]
    pub const fn angle(self) -> Self {
        Self { is_angle: true, ..self }
    }

    /// Whether results are angles.
    pub const fn is_angle(self) -> bool {
        self.is_angle
    }

    /// The smoothing weights of a side and of the centre.
    pub(crate) fn weights(self) -> [f32; 2] {
        match self.operator {
            Operator::Sobel => [1.0, 2.0],
            Operator::Scharr => [3.0, 10.0],
            Operator::Prewitt => [1.0, 1.0],
        }
    }

    /// The derivative along x, whose window is the window of the gradient.
    pub(crate) fn window(self) -> Result<Filter> {
        let [side, centre] = self.weights();
        Filter::separable(&[-1.0, 0.0, 1.0], &[side, centre, side])
    }
}

/// Reads a name from [`Gradient::NAMES`].
///
/// ```
/// use apron::Gradient;
///
/// assert_eq!("scharr-angle".parse::<Gradient>()?, Gradient::scharr().angle());
/// assert_eq!(Gradient::sobel().to_string(), "sobel");
/// # Ok::<(), apron::Error>(())
/// ```
impl std::str::FromStr for Gradient {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = || Self::NAMES.iter().map(|&(name, _)| name);
        known()
            .zip(Self::ALL)
            .find(|&(name, _)| name == text.trim())
            .map(|(_, gradient)| gradient)
            .ok_or_else(|| {
                let expected = format!("one of {}", known().collect::<Vec<_>>().join(", "));
                Error::Parameter { name: "the gradient", value: text.to_owned(), expected }
            })
    }
}

/// Prints the name from [`Gradient::NAMES`].
impl std::fmt::Display for Gradient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = Self::ALL.iter().zip(Self::NAMES).find(|(gradient, _)| *gradient == self);
        f.pad(named.map_or("", |(_, (name, _))| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_they_print() {
        for (&(name, _), gradient) in Gradient::NAMES.iter().zip(Gradient::ALL) {
            assert_eq!(
                (name.parse::<Gradient>().unwrap(), gradient.to_string()),
                (gradient, name.to_owned())
            );
        }
        let message = "sobel-z".parse::<Gradient>().unwrap_err().to_string();
        assert!(message.contains("sobel-z") && message.contains("prewitt-angle"), "{message}");
    }

    #[test]
    fn windows_are_those_of_the_filters() {
        assert_eq!(Gradient::sobel().window().unwrap(), Filter::sobel_x());
        assert_eq!(Gradient::scharr().window().unwrap(), Filter::scharr_x());
        assert_eq!(Gradient::prewitt().window().unwrap(), Filter::prewitt_x());
    }
}
