//! Integer taps of a filter, for bytes in and bytes out.
//!
//! A result is the exact sum of integer taps times bytes over one divisor, rounded half to even and
//! saturated. Integer sums are exact in any order, so a result does not depend on the order of
//! summation. The form in which the filter was given ([`Filter::form`](crate::Filter::form))
//! decides the integers:
//!
//! 1. **A mean.** Every tap is k/d rounded to f64, for integers k and one d of at most 65,536, the
//!    least that fits. Failing that, all taps are the same 1/d rounded to f64, for an integer d of
//!    at most 2^45; or the same k/d rounded to f32, for d of at most 65,536. The integer taps are
//!    the k, and the divisor is d. A product of a row and a column is a mean if both are: its
//!    divisor is the product of theirs.
//! 2. **A product, or a sum of products and the pixel itself**, as an unsharp mask. The row is
//!    `round-half-even(t 2^a)` with the greatest a for which `sum |r| <= 2^37`. The column uses b
//!    likewise. An integer tap is the exact product, and the divisor is `2^(a + b)`. All terms of a
//!    sum share a and b, the least over the terms. If the pixel's factor exceeds `2^(74 - a - b)`,
//!    b is reduced.
//! 3. **A table.** `round-half-even(t 2^s)` with the greatest s for which `255 sum |w| <= 2^53`.
//!
//! t is the tap in f64, as the filter stores it. The exponents may be negative. A mean counts only
//! if its k satisfy the limit of their form (`255 sum |k| <= 2^53`, `sum |k| <= 2^37`).
//!
//! Sums over a table, and row sums of a product, are exact in f64 and i64, in any order. Sums over
//! a product fit 128 bits.

use crate::Result;

/// The greatest d of a mean, unless all its taps are 1/d.
const GREATEST_DIVISOR: u64 = 1 << 16;

/// The greatest `sum |r|` of a row and of a column.
const FACTOR_SUM: u64 = 1 << 37;

/// The greatest `sum |w|` of a table, so that sums over bytes stay below 2^53.
const TABLE_SUM: u64 = (1 << 53) / 255;

/// A filter's integer taps and their divisor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Whole {
    pub(crate) taps: WholeTaps,
    pub(crate) divisor: Divisor,
}

/// The integer taps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WholeTaps {
    /// Row by row.
    Table(Vec<i64>),
    /// Rows and columns whose products add up. `divisors` are the divisors of the rows and of the
    /// columns; their product is [`Whole::divisor`]. `point` is the numerator of the pixel itself,
    /// added under the window's middle cell, `(cols / 2, rows / 2)`.
    Products { terms: Vec<(Vec<i64>, Vec<i64>)>, point: i128, divisors: (Divisor, Divisor) },
}

/// The divisor of integer taps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Divisor {
    /// The divisor of a mean.
    Number(u64),
    /// 2 to this power, which may be negative.
    PowerOfTwo(i32),
}

impl Divisor {
    /// The result byte for a sum of numerators: the quotient rounded half to even, saturated.
    pub(crate) fn byte(self, sum: i128) -> u8 {
        if sum <= 0 {
            return 0;
        }
        let (quotient, rest, half, is_even) = match self {
            Self::Number(divisor) => {
                let divisor = i128::from(divisor);
                (sum / divisor, 2 * (sum % divisor), divisor, true)
            }
            Self::PowerOfTwo(shift @ 1..=126) => {
                (sum >> shift, sum & ((1 << shift) - 1), 1 << (shift - 1), true)
            }
            // The sum is below 2^126.
            Self::PowerOfTwo(127..) => (0, 0, 1, true),
            Self::PowerOfTwo(shift) => {
                let is_small = shift > -8 && sum < 256;
                (if is_small { sum << -shift } else { 256 }, 0, 1, true)
            }
        };
        let up = rest > half || is_even && rest == half && quotient & 1 == 1;
        (quotient + i128::from(up)).min(255) as u8
    }

    /// The greatest integer that is at most a sum of numerators over the divisor; of integers
    /// beyond 2^64, the nearest in these.
    pub(crate) fn floor(self, sum: i128) -> i128 {
        const MOST: i128 = 1 << 64;
        match self {
            Self::Number(divisor) => sum.div_euclid(divisor.into()),
            Self::PowerOfTwo(shift @ 0..) => sum >> shift.min(127),
            Self::PowerOfTwo(_) if sum.abs() >= MOST => sum,
            Self::PowerOfTwo(shift) => sum << (-shift).min(62),
        }
        .clamp(-MOST, MOST)
    }

    /// The value of a numerator of 1, rounded to f64.
    pub(crate) fn unit(self) -> f64 {
        match self {
            Self::Number(divisor) => 1.0 / divisor as f64,
            Self::PowerOfTwo(shift) => power(-shift),
        }
    }

    /// A numerator over the divisor, rounded to f64 once.
    pub(super) fn quotient(self, numerator: i64) -> f64 {
        self.over(numerator.into())
    }

    pub(super) fn over(self, numerator: i128) -> f64 {
        match self {
            Self::Number(divisor) => numerator as f64 / divisor as f64,
            Self::PowerOfTwo(shift) => scaled(numerator as f64, -shift),
        }
    }
}

impl From<Divisor> for gpu_kernels::divisor::Divisor {
    fn from(divisor: Divisor) -> Self {
        match divisor {
            Divisor::Number(number) => Self::number(number),
            Divisor::PowerOfTwo(exponent) => Self::power_of_two(exponent),
        }
    }
}

impl Whole {
    pub(super) fn of_table(taps: &[f64]) -> Result<Self> {
        if let Some((numerators, divisor)) =
            mean(taps).filter(|(numerators, _)| sum(numerators) <= TABLE_SUM.into())
        {
            return Ok(Self {
                taps: WholeTaps::Table(numerators),
                divisor: Divisor::Number(divisor),
            });
        }
        let shift = greatest_shift(taps, TABLE_SUM).unwrap_or(0);
        let mut numerators = crate::memory::reserve(taps.len())?;
        numerators.extend(taps.iter().map(|&tap| rounded(tap, shift) as i64));
        Ok(Self { taps: WholeTaps::Table(numerators), divisor: Divisor::PowerOfTwo(shift) })
    }

    pub(super) fn of_product(row: &[f64], column: &[f64]) -> Self {
        if let (Some((across, by_row)), Some((down, by_column))) = (mean(row), mean(column)) {
            let divisor = by_row.checked_mul(by_column).filter(|divisor| *divisor <= 1 << 61);
            let is_small = 255 * sum(&across).saturating_mul(sum(&down)) <= 1 << 61;
            let each_is = sum(&across).max(sum(&down)) <= FACTOR_SUM.into();
            if let (Some(divisor), true, true) = (divisor, is_small, each_is) {
                let divisors = (Divisor::Number(by_row), Divisor::Number(by_column));
                let taps = WholeTaps::Products { terms: vec![(across, down)], point: 0, divisors };
                return Self { taps, divisor: Divisor::Number(divisor) };
            }
        }
        Self::of_sum(0.0, &[(row, column)])
    }

    pub(super) fn of_sum(point: f64, terms: &[(&[f64], &[f64])]) -> Self {
        let least = |taps: &mut dyn Iterator<Item = &[f64]>| {
            let shifts = taps.filter_map(|taps| greatest_shift(taps, FACTOR_SUM));
            shifts.min().unwrap_or(0)
        };
        let across = least(&mut terms.iter().map(|term| term.0));
        let down = least(&mut terms.iter().map(|term| term.1));
        // At most 2^74, even after rounding.
        let down = if point == 0.0 { down } else { down.min(73 - exponent(point) - across) };
        let whole = |taps: &[f64], shift: i32| {
            taps.iter().map(|&tap| rounded(tap, shift) as i64).collect::<Vec<_>>()
        };
        let terms =
            terms.iter().map(|(row, column)| (whole(row, across), whole(column, down))).collect();
        let divisors = (Divisor::PowerOfTwo(across), Divisor::PowerOfTwo(down));
        let taps = WholeTaps::Products { terms, point: rounded(point, across + down), divisors };
        Self { taps, divisor: Divisor::PowerOfTwo(across + down) }
    }

    /// The numerator that all taps share and the divisor, if the filter is a mean with equal taps.
    pub(crate) fn mean(&self) -> Option<(i64, u64)> {
        let equal = |taps: &[i64]| taps.iter().all(|tap| *tap == taps[0]).then_some(taps[0]);
        let Divisor::Number(divisor) = self.divisor else { return None };
        let numerator = match &self.taps {
            WholeTaps::Table(taps) => equal(taps)?,
            WholeTaps::Products { terms, point: 0, .. } => match &terms[..] {
                [(row, column)] => equal(row)?.checked_mul(equal(column)?)?,
                _ => return None,
            },
            WholeTaps::Products { .. } => return None,
        };
        Some((numerator, divisor))
    }

    /// Whether the integer taps are a product of a row and a column, and nothing else.
    #[cfg(feature = "gpu")]
    pub(crate) fn is_product(&self) -> bool {
        matches!(&self.taps, WholeTaps::Products { terms, point: 0, .. } if terms.len() == 1)
    }

    /// The rows and columns of the integer taps, if they are a product or a sum of two.
    pub(crate) fn two_terms(&self) -> Option<&[(Vec<i64>, Vec<i64>)]> {
        match &self.taps {
            WholeTaps::Products { terms, .. } if terms.len() <= 2 => Some(terms),
            _ => None,
        }
    }
}

/// `sum |tap|`.
fn sum(taps: &[i64]) -> u128 {
    taps.iter().map(|tap| u128::from(tap.unsigned_abs())).sum()
}

/// The numerators of taps and the least common divisor that fits, if the taps are a mean.
fn mean(taps: &[f64]) -> Option<(Vec<i64>, u64)> {
    /// The greatest numerator, and the greatest d of equal taps 1/d.
    const GREATEST: f64 = (1u64 << 45) as f64;
    let first = *taps.first()?;
    if taps.iter().all(|&tap| tap == 0.0) {
        return Some((vec![0; taps.len()], 1));
    }
    let numerator = |tap: f64, divisor: u64| (tap * divisor as f64).round_ties_even();
    let in_f64 = |tap: f64, divisor: u64| {
        let k = numerator(tap, divisor);
        k.abs() <= GREATEST && k / divisor as f64 == tap
    };
    let all = |divisor: u64| taps.iter().map(|&tap| numerator(tap, divisor) as i64).collect();
    // The tap that failed with one divisor is likely to fail with the next: test that tap first.
    let mut tells = taps.iter().position(|&tap| tap != 0.0)?;
    let step = steps(taps[tells]);
    let mut in_all = |&divisor: &u64| {
        in_f64(taps[tells], divisor)
            && taps
                .iter()
                .position(|&tap| !in_f64(tap, divisor))
                .inspect(|&at| tells = at)
                .is_none()
    };
    let divisor =
        step.and_then(|step| (step..=GREATEST_DIVISOR).step_by(step as usize).find(&mut in_all));
    if let Some(divisor) = divisor {
        return Some((all(divisor), divisor));
    }
    if taps.iter().any(|&tap| tap != first) {
        return None;
    }
    let reciprocal = (1.0 / first.abs()).round();
    if reciprocal <= GREATEST && in_f64(first, reciprocal as u64) {
        return Some((all(reciprocal as u64), reciprocal as u64));
    }
    let in_f32 = |&divisor: &u64| {
        let k = numerator(first, divisor);
        k.abs() <= f64::from(1 << 24) && f64::from((k / divisor as f64) as f32) == first
    };
    if f64::from(first as f32) != first {
        return None;
    }
    (1..=GREATEST_DIVISOR).find(in_f32).map(|divisor| (all(divisor), divisor))
}

/// A number that all d are multiples of for which the tap is k/d rounded to f64, with an integer k;
/// `None` if there is no d up to [`GREATEST_DIVISOR`].
///
/// It is the denominator of a convergent of the tap's continued fraction. By Legendre's theorem a
/// fraction k/d is a convergent if it is off by less than 1/(2 d^2), which is 2^-33 or more here.
/// A tap of less than 2^20 is off by at most 2^-34. Other fractions are at least 2^-32 from this
/// one, so all k/d are this fraction, expanded. With denominators up to 2^16, roundings in f64
/// change no quotient, but may split the last one, a, into a - 1 and 1: the same fraction.
fn steps(tap: f64) -> Option<u64> {
    const GREATEST: f64 = (1 << 19) as f64;
    let tap = tap.abs();
    if tap > GREATEST {
        return Some(1);
    }
    let ((mut p, mut q), mut before, mut rest) = ((1.0, 0.0), (0.0, 1.0), tap);
    loop {
        let quotient = rest.floor();
        let next = (quotient * p + before.0, quotient * q + before.1);
        if next.1 > GREATEST_DIVISOR as f64 {
            return None;
        }
        (before, (p, q)) = ((p, q), next);
        if p / q == tap {
            return Some(q as u64);
        }
        rest = 1.0 / (rest - quotient);
    }
}

/// The greatest exponent for which the magnitudes of the taps times 2 to this power, each rounded
/// half to even, add up to at most `limit`; `None` if all taps are 0.
fn greatest_shift(taps: &[f64], limit: u64) -> Option<i32> {
    let limit = u128::from(limit);
    let greatest = taps.iter().fold(0.0, |greatest: f64, tap| greatest.max(tap.abs()));
    let fits = |&shift: &i32| {
        let add = |sum: u128, tap: &f64| {
            let sum = sum + rounded(*tap, shift).unsigned_abs();
            (sum <= limit).then_some(sum)
        };
        taps.iter().try_fold(0, add).is_some()
    };
    // With one more, the greatest tap alone exceeds the limit.
    let most = limit.ilog2() as i32 - exponent(greatest);
    (greatest != 0.0).then(|| (i32::MIN..=most).rev().find(fits).unwrap_or(0))
}

/// The exponent e of a number that is not 0: `2^e <= |value| < 2^(e + 1)`.
fn exponent(value: f64) -> i32 {
    let (mantissa, exponent) = super::factor::split(value);
    exponent + mantissa.checked_ilog2().unwrap_or(0) as i32
}

/// `value * 2^shift`, rounded half to even to an integer. Products of 2^126 or more become 2^126.
fn rounded(value: f64, shift: i32) -> i128 {
    let (mantissa, exponent) = super::factor::split(value);
    let (mantissa, by) = (i128::from(mantissa), exponent + shift);
    let magnitude = match by {
        0..=73 => mantissa << by,
        74.. => {
            if mantissa == 0 {
                0
            } else {
                1 << 126
            }
        }
        -63..0 => {
            let (floor, rest, half) =
                (mantissa >> -by, mantissa & ((1 << -by) - 1), 1 << (-by - 1));
            floor + i128::from(rest > half || rest == half && floor & 1 == 1)
        }
        _ => 0,
    };
    if value < 0.0 { -magnitude } else { magnitude }
}

/// `value * 2^shift`, in steps so that no power of two leaves the range of f64.
fn scaled(value: f64, shift: i32) -> f64 {
    let mut left = shift;
    let mut value = value;
    while left != 0 {
        let step = left.clamp(-1000, 1000);
        value *= power(step);
        left -= step;
    }
    value
}

/// 2 to `exponent`, of at most 1000 in magnitude.
fn power(exponent: i32) -> f64 {
    2f64.powi(exponent)
}

#[cfg(test)]
mod tests {
    use super::super::ByteFilter;
    use super::*;
    use crate::Filter;

    fn whole(filter: &Filter) -> Whole {
        filter.byte_filter().unwrap().whole.clone()
    }

    fn table(taps: &[f64]) -> (Vec<i64>, Divisor) {
        match whole(&Filter::from_taps_f64(taps.len(), 1, taps).unwrap()) {
            Whole { taps: WholeTaps::Table(numerators), divisor } => (numerators, divisor),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn means_are_counts() {
        assert_eq!(table(&[0.25, 0.5, 0.25]), (vec![1, 2, 1], Divisor::Number(4)));
        assert_eq!(table(&[1.0 / 6.0, 4.0 / 6.0, 1.0 / 6.0]), (vec![1, 4, 1], Divisor::Number(6)));
        assert_eq!(table(&[-1.0, 0.0, 1.0]), (vec![-1, 0, 1], Divisor::Number(1)));
        assert_eq!(table(&[0.0; 3]), (vec![0; 3], Divisor::Number(1)));
        assert_eq!(table(&[f64::from(1f32 / 36.0); 36]), (vec![1; 36], Divisor::Number(36)));
        assert_eq!(table(&[1.0 / 160_801.0; 5]), (vec![1; 5], Divisor::Number(160_801)));
        for decimal in [0.02777778, 0.333333, 1e-300] {
            assert!(matches!(table(&[decimal; 36]).1, Divisor::PowerOfTwo(_)), "{decimal}");
        }
        for (cols, rows) in [(6, 6), (401, 401), (3, 70_000)] {
            let Whole { taps: WholeTaps::Products { terms, .. }, divisor } =
                whole(&Filter::box_filter(cols, rows).unwrap())
            else {
                panic!("a box is a product");
            };
            assert_eq!(divisor, Divisor::Number((cols * rows) as u64));
            assert!(terms[0].0.iter().chain(&terms[0].1).all(|&count| count == 1));
        }
    }

    /// A repeated mean has the counts of its definition, up to the greatest divisor of an axis.
    #[test]
    fn repeated_means_are_counts() {
        let axis = |radius, times| {
            let Whole { taps: WholeTaps::Products { terms, .. }, divisor } =
                whole(&Filter::box_blur(radius, times).unwrap())
            else {
                panic!("it is a product");
            };
            (terms[0].0.clone(), divisor)
        };
        assert_eq!(axis(1, 3), (vec![1, 3, 6, 7, 6, 3, 1], Divisor::Number(27 * 27)));
        for (radius, times, divisor) in [(5, 3, 1331), (1, 10, 59049), (19, 3, 59319)] {
            let (counts, found) = axis(radius, times);
            assert_eq!(found, Divisor::Number(divisor * divisor));
            assert_eq!((counts[0], sum(&counts)), (1, divisor.into()));
        }
        assert!(matches!(axis(20, 3).1, Divisor::PowerOfTwo(_)));
    }

    /// No divisor is missed: the least that fits is a multiple of the step.
    #[test]
    fn divisors_are_multiples_of_a_step() {
        let least = |tap: f64| {
            (1..=GREATEST_DIVISOR).find(|&divisor| {
                let k = (tap * divisor as f64).round_ties_even();
                k / divisor as f64 == tap
            })
        };
        let mut state = 3u64;
        let mut random = |end: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % end
        };
        let near = |tap: f64| [tap, tap.next_up(), tap.next_down()];
        for divisor in (1..200).chain([65_519, 65_521, 65_535, 65_536]) {
            let tap = (1 + random(2 * divisor)) as f64 / divisor as f64;
            for tap in near(tap) {
                assert_eq!(steps(tap), least(tap), "{tap}");
            }
        }
        for number in 0..300 {
            let greatest = if number % 2 == 0 { 1 << 16 } else { 1 << 32 };
            let tap = random(greatest) as f64 / (1 + random(GREATEST_DIVISOR)) as f64;
            for tap in near(-tap).into_iter().filter(|tap| tap.abs() < f64::from(1 << 19)) {
                assert_eq!(steps(tap), least(tap), "{tap}");
            }
        }
        for tap in [1e-300, f64::MIN_POSITIVE / 2.0, 1e-6, 0.1f32.into(), (-0.5f64).exp()] {
            assert_eq!(steps(tap), least(tap), "{tap}");
        }
    }

    /// The next larger scale exceeds the limit, and this one does not.
    #[test]
    fn scales_are_the_greatest() {
        let mut state = 5u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        for _ in 0..200 {
            let size = 10f64.powf(random() * 60.0 - 40.0);
            let count = 2 + (38.0 * random()) as usize;
            let taps: Vec<f64> = (0..count).map(|_| size * (random() - 0.4)).collect();
            let (numerators, divisor) = table(&taps);
            let Divisor::PowerOfTwo(shift) = divisor else { panic!("{taps:?}") };
            let at = |shift: i32| {
                taps.iter().map(|&tap| rounded(tap, shift).unsigned_abs()).sum::<u128>()
            };
            assert!(at(shift) <= TABLE_SUM.into() && at(shift + 1) > TABLE_SUM.into());
            assert_eq!(at(shift), sum(&numerators));
            for (tap, numerator) in taps.iter().zip(numerators) {
                assert_eq!(scaled(*tap, shift).round_ties_even(), numerator as f64);
            }
        }
    }

    #[test]
    fn views_have_the_same_taps() {
        for text in [
            "gaussian:2",
            "gaussian:sigma-x=1,sigma-y=30",
            "unsharp:sigma=2,amount=0.3",
            "log:5",
            "dog:2",
        ] {
            let filter: Filter = text.parse().unwrap();
            let ByteFilter { whole, filter: view } = filter.byte_filter().unwrap();
            let WholeTaps::Products { terms, point, divisors } = &whole.taps else {
                panic!("{text}")
            };
            let Divisor::PowerOfTwo(shift) = whole.divisor else { panic!("{text}") };
            let pairs = view.separated().map(|pair| vec![pair]).unwrap_or_else(|| {
                view.sum
                    .iter()
                    .flat_map(|sum| &sum.terms)
                    .map(|(row, column)| (&row[..], &column[..]))
                    .collect()
            });
            for ((row, column), (across, down)) in terms.iter().zip(pairs) {
                assert!(sum(row).max(sum(column)) <= FACTOR_SUM.into());
                for (taps, view, divisor) in [(row, across, divisors.0), (column, down, divisors.1)]
                {
                    assert!(
                        taps.iter()
                            .zip(view)
                            .all(|(&tap, &value)| tap as f64 * divisor.unit() == value)
                    );
                }
            }
            let centre = (filter.rows() / 2, filter.cols() / 2);
            let products: i128 = terms
                .iter()
                .map(|(row, column)| i128::from(row[centre.1]) * i128::from(column[centre.0]))
                .sum();
            let exact = (point + products) as f64 * power(-shift);
            assert!((view.tap(centre.0, centre.1) - exact).abs() <= 1e-15 * exact.abs(), "{text}");
            let near = (filter.tap(centre.0, centre.1) - exact).abs();
            assert!(near <= 1e-9 * filter.weight(), "{text}: {near}");
        }
    }

    #[test]
    fn bytes_are_rounded_half_to_even() {
        for (sum, divisor, byte) in [
            (5, Divisor::Number(2), 2),
            (7, Divisor::Number(2), 4),
            (509, Divisor::Number(2), 254),
            (511, Divisor::Number(2), 255),
            (-3, Divisor::Number(2), 0),
            (1 << 80, Divisor::Number(3), 255),
            (5, Divisor::PowerOfTwo(1), 2),
            (7, Divisor::PowerOfTwo(1), 4),
            (3 << 79, Divisor::PowerOfTwo(80), 2),
            ((3 << 79) - 1, Divisor::PowerOfTwo(80), 1),
            (1, Divisor::PowerOfTwo(400), 0),
            (3, Divisor::PowerOfTwo(-2), 12),
            (1, Divisor::PowerOfTwo(-900), 255),
            (0, Divisor::PowerOfTwo(-900), 0),
            (1 << 83, Divisor::PowerOfTwo(0), 255),
        ] {
            assert_eq!(divisor.byte(sum), byte, "{sum} over {divisor:?}");
        }
    }

    #[test]
    fn extreme_taps_keep_their_range() {
        for size in [1e-300, 1e-45, 1e-30, 1.0, 1e30, 3e38] {
            let filter = Filter::from_taps_f64(2, 1, &[size, -0.7 * size]).unwrap();
            let ByteFilter { whole, filter: view } = filter.byte_filter().unwrap();
            assert!(matches!(&whole.taps, WholeTaps::Table(_)));
            assert!((view.tap(0, 1) + 0.7 * size).abs() <= 1e-12 * size, "{size}");
        }
    }
}
