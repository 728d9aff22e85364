//! The number types of images, including the types that kernels do not take.

use half::f16;

mod sealed {
    /// A supertrait of `Number` that other crates cannot implement.
    pub trait Sealed: bytemuck::Pod {}
}

/// A type of numbers that [`Plan::run_f64`](crate::Plan::run_f64) reads and writes: integers of 8
/// to 64 bits, f16, f32 and f64.
///
/// Values are not scaled. Integers are rounded half to even and saturated when stored, and NaN
/// becomes 0.
///
/// ```
/// use apron::Number;
///
/// assert_eq!([2.5, -2.5, 1e9, f64::NAN].map(i16::from_f64), [2, -2, 32767, 0]);
/// assert!(i64::is_exact(-(1 << 53)) && !u64::is_exact((1 << 53) + 2));
/// ```
pub trait Number:
    sealed::Sealed + Copy + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static
{
    /// The greatest magnitude up to which f64 holds every integer: 2^53.
    const GREATEST_EXACT: u64 = 1 << f64::MANTISSA_DIGITS;

    /// The type's name, as Rust spells it.
    const NAME: &'static str;

    /// Whether values are integers.
    const IS_INTEGER: bool;

    /// The nearest f64; the value itself for all types but i64 and u64.
    fn to_f64(self) -> f64;

    /// The nearest value of the type; NaN becomes 0 in integer types.
    fn from_f64(value: f64) -> Self;

    /// Whether [`Plan::run_f64`](crate::Plan::run_f64) accepts the value: the magnitude of an
    /// integer is at most [`Number::GREATEST_EXACT`].
    fn is_exact(self) -> bool {
        true
    }
}

macro_rules! integers {
    ($($number:ty: $is_exact:expr;)*) => { $(
        impl sealed::Sealed for $number {}

        impl Number for $number {
            const NAME: &'static str = stringify!($number);
            const IS_INTEGER: bool = true;

            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value.round_ties_even() as Self
            }

            #[inline(always)]
            fn is_exact(self) -> bool {
                $is_exact(self)
            }
        }
    )* };
}

integers! {
    i8: |_| true;
    i16: |_| true;
    i32: |_| true;
    u32: |_| true;
    i64: |value: i64| value.unsigned_abs() <= Self::GREATEST_EXACT;
    u64: |value| value <= Self::GREATEST_EXACT;
}

macro_rules! small_integers {
    ($($number:ty)*) => { $(
        impl sealed::Sealed for $number {}

        impl Number for $number {
            const NAME: &'static str = stringify!($number);
            const IS_INTEGER: bool = true;

            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.into()
            }

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                rounded(value, Self::MAX.into()) as Self
            }
        }
    )* };
}

small_integers! { u8 u16 }

impl sealed::Sealed for f16 {}

impl Number for f16 {
    const NAME: &'static str = "f16";
    const IS_INTEGER: bool = false;

    #[inline(always)]
    fn to_f64(self) -> f64 {
        f32::from(self).into()
    }

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        let near = value as f32;
        let (wide, size) = (f64::from(near.abs()), value.abs());
        if wide == size || value.is_nan() {
            return Self::from_f32(near);
        }
        // Rounding twice, to f32 and then to f16, must give the same result as rounding once. Of
        // the two f32 neighbours of the value, the one whose last bit is 1 rounds to f16 as the
        // value does (round to odd).
        let below = if wide > size { near.to_bits() - 1 } else { near.to_bits() };
        Self::from_f32(f32::from_bits(below | 1))
    }
}

impl sealed::Sealed for f32 {}

impl Number for f32 {
    const NAME: &'static str = "f32";
    const IS_INTEGER: bool = false;

    #[inline(always)]
    fn to_f64(self) -> f64 {
        self.into()
    }

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value as Self
    }
}

impl sealed::Sealed for f64 {}

impl Number for f64 {
    const NAME: &'static str = "f64";
    const IS_INTEGER: bool = false;

    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value
    }
}

/// The nearest integer in 0 to `greatest`, half to even, for a `greatest` below 2^32.
#[inline(always)]
fn rounded(value: f64, greatest: f64) -> u64 {
    // An f64 from 2^52 to 2^53 has no fraction, and its last bits are the integer: the addition
    // rounds, on every processor.
    const SHIFT: f64 = 4_503_599_627_370_496.0;
    (value.max(0.0).min(greatest) + SHIFT).to_bits() - SHIFT.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values next to the type's ends, next to ties, and NaN, compared with integers of 128 bits.
    #[test]
    fn integers_are_rounded_half_to_even_and_saturated() {
        fn check<N: Number + Into<i128>>(least: i128, greatest: i128) {
            let ends = [least, greatest, 0].map(|end| end as f64);
            let near = ends
                .into_iter()
                .flat_map(|end| (-12..=12).map(move |step| end + 0.25 * f64::from(step)));
            let far =
                [1e300, -1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 2.0f64.powi(53), -0.0];
            for value in near.chain(far) {
                let floor = value.floor();
                let up = match value - floor {
                    0.5 => floor % 2.0 != 0.0,
                    part => part > 0.5,
                };
                let whole =
                    if value.is_nan() { 0 } else { (floor as i128).saturating_add(up.into()) };
                assert_eq!(
                    N::from_f64(value).into(),
                    whole.clamp(least, greatest),
                    "{value} as {}",
                    N::NAME
                );
            }
        }
        check::<u8>(0, u8::MAX.into());
        check::<i8>(i8::MIN.into(), i8::MAX.into());
        check::<u16>(0, u16::MAX.into());
        check::<i16>(i16::MIN.into(), i16::MAX.into());
        check::<u32>(0, u32::MAX.into());
        check::<i32>(i32::MIN.into(), i32::MAX.into());
        check::<u64>(0, u64::MAX.into());
        check::<i64>(i64::MIN.into(), i64::MAX.into());
    }

    #[test]
    fn halves_are_rounded_once() {
        // Next to the midpoint of two values, by less than an f32 can resolve.
        let (one, next) = (f16::from_f32(1.0), f16::from_bits(0x3c01));
        let middle = (f64::from(f32::from(one)) + f64::from(f32::from(next))) / 2.0;
        assert_eq!(<f16 as Number>::from_f64(middle), one);
        assert_eq!(<f16 as Number>::from_f64(middle + 1e-13), next);
        assert_eq!(<f16 as Number>::from_f64(-middle - 1e-13), -next);
        assert!(<f16 as Number>::from_f64(f64::NAN).is_nan());
    }
}
