//! Transfer functions: from stored values to light, and back.

use std::sync::Arc;

use crate::{Error, Result};

/// The function that turns stored values from 0 (black) to 1 (white) into light from 0 to 1, and
/// its inverse.
///
/// ```
/// use apron::Transfer;
///
/// let srgb = Transfer::srgb();
/// assert!((srgb.decode(0.5) - 0.214).abs() < 1e-3);
/// assert!((srgb.encode(0.214) - 0.5).abs() < 1e-3);
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer(Function);

#[derive(Clone, Debug, PartialEq)]
enum Function {
    Parametric(Parametric),
    /// Light at equal steps of the stored value.
    Table(Arc<[f64]>),
    Pq,
    Hlg,
}

/// `(a x + b)^g + e` for x from d on, and `c x + f` below: ICC's parametric curve of type 4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Parametric {
    pub(super) g: f64,
    pub(super) a: f64,
    pub(super) b: f64,
    pub(super) c: f64,
    pub(super) d: f64,
    pub(super) e: f64,
    pub(super) f: f64,
}

/// SMPTE ST 2084.
mod pq {
    pub(super) const M1: f64 = 2610.0 / 16384.0;
    pub(super) const M2: f64 = 2523.0 / 4096.0 * 128.0;
    pub(super) const C1: f64 = 3424.0 / 4096.0;
    pub(super) const C2: f64 = 2413.0 / 4096.0 * 32.0;
    pub(super) const C3: f64 = 2392.0 / 4096.0 * 32.0;
}

/// ITU-R BT.2100, hybrid log-gamma: `a`, `b = 1 - 4 a` and `c = 1/2 - a ln(4 a)`.
mod hlg {
    pub(super) const A: f64 = 0.17883277;
    pub(super) const B: f64 = 1.0 - 4.0 * A;
    pub(super) const C: f64 = 0.559_910_729_529_562;
}

impl Transfer {
    /// sRGB's function (IEC 61966-2-1): that of nearly all pictures on the web and from cameras.
    pub fn srgb() -> Self {
        let (g, a, b) = (2.4, 1.0 / 1.055, 0.055 / 1.055);
        Self::of(Parametric { g, a, b, c: 1.0 / 12.92, d: 0.04045, e: 0.0, f: 0.0 })
    }

    /// The inverse of the camera's function of ITU-R BT.709, which BT.601 and BT.2020 share.
    pub fn bt709() -> Self {
        let (g, a, b) = (1.0 / 0.45, 1.0 / 1.099, 0.099 / 1.099);
        Self::of(Parametric { g, a, b, c: 1.0 / 4.5, d: 0.081, e: 0.0, f: 0.0 })
    }

    /// The power `x^gamma`. With 1, values are light.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `gamma` is from 0.1 to 10.
    pub fn gamma(gamma: f64) -> Result<Self> {
        if !(0.1..=10.0).contains(&gamma) {
            let expected = "from 0.1 to 10".to_owned();
            return Err(Error::Parameter { name: "gamma", value: gamma.to_string(), expected });
        }
        Self::parametric([gamma, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    }

    /// The perceptual quantizer of SMPTE ST 2084 (HDR10). Light of 1 is 10,000 cd/m2.
    pub fn pq() -> Self {
        Self(Function::Pq)
    }

    /// Hybrid log-gamma of ITU-R BT.2100; light is that of the scene.
    pub fn hlg() -> Self {
        Self(Function::Hlg)
    }

    /// `(a x + b)^g + e` for x from d on, and `c x + f` below, for `[g, a, b, c, d, e, f]`: the
    /// parametric curve of ICC profiles (ICC.1:2010, section 10.16, type 4).
    ///
    /// # Errors
    /// [`Error::Parameter`] unless the function rises from about 0 to about 1.
    pub fn parametric(parameters: [f64; 7]) -> Result<Self> {
        let [g, a, b, c, d, e, f] = parameters;
        let transfer = Self::of(Parametric { g, a, b, c, d, e, f });
        let rises = g > 0.0 && a > 0.0 && c >= 0.0 && a * d + b >= 0.0;
        transfer.checked(rises && parameters.iter().all(|number| number.is_finite()), || {
            format!("{parameters:?}")
        })
    }

    /// Light at equal steps of the stored value from 0 to 1, joined by straight lines: the sampled
    /// curve of ICC profiles.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless there are at least two numbers, which rise from about 0 to
    /// about 1.
    pub fn table(light: &[f64]) -> Result<Self> {
        let rises = light.len() >= 2 && light.is_sorted() && light.iter().all(|y| y.is_finite());
        if !rises {
            return Self::srgb().checked(false, || format!("{} numbers", light.len()));
        }
        Self(Function::Table(light.into())).checked(true, || format!("{} numbers", light.len()))
    }

    fn of(parametric: Parametric) -> Self {
        Self(Function::Parametric(parametric))
    }

    fn checked(self, rises: bool, value: impl Fn() -> String) -> Result<Self> {
        /// How far black and white may be off.
        const BLACK: f64 = 0.02;
        const WHITE: std::ops::Range<f64> = 0.9..1.1;
        let steps = (0..=255).map(|step| self.decode(f64::from(step) / 255.0));
        if rises
            && steps.is_sorted()
            && self.decode(0.0).abs() <= BLACK
            && WHITE.contains(&self.decode(1.0))
        {
            return Ok(self);
        }
        Err(Error::Parameter {
            name: "the transfer function",
            value: value(),
            expected: "a function that rises from 0 to 1".to_owned(),
        })
    }

    /// The light that a stored value stands for. Functions of pure powers and tables take values
    /// beyond 0 and 1 as the nearest of these.
    pub fn decode(&self, value: f64) -> f64 {
        match &self.0 {
            Function::Parametric(Parametric { c, d, f, .. }) if value < *d => c * value + f,
            Function::Parametric(parametric) => parametric.power(value),
            Function::Table(light) => {
                let place = value.clamp(0.0, 1.0) * (light.len() - 1) as f64;
                let before = (place as usize).min(light.len() - 2);
                let part = place - before as f64;
                light[before] + part * (light[before + 1] - light[before])
            }
            Function::Pq => {
                let power = libm::pow(value.max(0.0), 1.0 / pq::M2);
                let below = pq::C2 - pq::C3 * power;
                // Beyond 1.99 the function has no value.
                libm::pow((power - pq::C1).max(0.0) / below.max(0.01), 1.0 / pq::M1)
            }
            Function::Hlg if value <= 0.5 => value * value / 3.0,
            Function::Hlg => (libm::exp((value - hlg::C) / hlg::A) + hlg::B) / 12.0,
        }
    }

    /// The stored value for light: the inverse of [`Transfer::decode`].
    pub fn encode(&self, light: f64) -> f64 {
        match &self.0 {
            Function::Parametric(parametric) if light < parametric.light_at_kink() => {
                let Parametric { c, d, f, .. } = *parametric;
                if c == 0.0 { d } else { (light - f) / c }
            }
            Function::Parametric(parametric) => parametric.root(light),
            Function::Table(table) => {
                let after = table.partition_point(|&y| y < light).clamp(1, table.len() - 1);
                let (low, high) = (table[after - 1], table[after]);
                let part =
                    if high > low { ((light - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 };
                ((after - 1) as f64 + part) / (table.len() - 1) as f64
            }
            Function::Pq => {
                let power = libm::pow(light.max(0.0), pq::M1);
                libm::pow((pq::C1 + pq::C2 * power) / (1.0 + pq::C3 * power), pq::M2)
            }
            Function::Hlg if light <= 1.0 / 12.0 => (3.0 * light.max(0.0)).sqrt(),
            Function::Hlg => hlg::A * libm::log(12.0 * light - hlg::B) + hlg::C,
        }
    }

    /// The parameters, of a function that has them.
    pub(super) fn parameters(&self) -> Option<&Parametric> {
        match &self.0 {
            Function::Parametric(parametric) => Some(parametric),
            _ => None,
        }
    }
}

impl Parametric {
    /// The curve, as it is from `d` on.
    pub(super) fn power(&self, value: f64) -> f64 {
        libm::pow((self.a * value + self.b).max(0.0), self.g) + self.e
    }

    /// The inverse of [`Parametric::power`].
    pub(super) fn root(&self, light: f64) -> f64 {
        (libm::pow((light - self.e).max(0.0), 1.0 / self.g) - self.b) / self.a
    }

    pub(super) fn light_at_kink(&self) -> f64 {
        self.power(self.d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Transfer> {
        let table: Vec<f64> = (0..1024).map(|i| (f64::from(i) / 1023.0).powf(1.8)).collect();
        vec![
            Transfer::srgb(),
            Transfer::bt709(),
            Transfer::gamma(2.2).unwrap(),
            Transfer::gamma(1.0).unwrap(),
            Transfer::pq(),
            Transfer::hlg(),
            Transfer::table(&table).unwrap(),
        ]
    }

    #[test]
    fn each_function_has_its_inverse() {
        for transfer in all() {
            for step in 0..=1000 {
                let value = f64::from(step) / 1000.0;
                let back = transfer.encode(transfer.decode(value));
                // sRGB's halves meet within 1e-5 of each other.
                assert!((back - value).abs() < 2e-5, "{transfer:?}: {value} became {back}");
            }
            assert!((transfer.decode(1.0) - 1.0).abs() < 1e-6, "{transfer:?}");
        }
    }

    /// Values that the standards print.
    #[test]
    fn known_values() {
        assert!((Transfer::srgb().decode(188.0 / 255.0) - 0.5).abs() < 0.004);
        assert!((Transfer::pq().encode(0.01) - 0.508).abs() < 1e-3, "100 cd/m2");
        assert!((Transfer::hlg().encode(1.0 / 12.0) - 0.5).abs() < 1e-12);
        let hlg = 0.5 - hlg::A * (4.0 * hlg::A).ln();
        assert!((hlg::C - hlg).abs() < 1e-14, "{hlg}");
    }

    #[test]
    fn what_does_not_rise_is_refused() {
        for light in [&[0.0][..], &[0.0, 0.7, 0.5, 1.0], &[0.0, f64::NAN, 1.0], &[0.5, 1.0]] {
            assert!(Transfer::table(light).is_err(), "{light:?}");
        }
        for parameters in [
            [0.0; 7],
            [2.2, 1.0, 0.0, 0.0, 0.0, 0.0, f64::NAN],
            [2.2, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        ] {
            assert!(Transfer::parametric(parameters).is_err(), "{parameters:?}");
        }
        assert!(Transfer::gamma(0.0).is_err());
    }
}
