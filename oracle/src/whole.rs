//! The reference for 8-bit results of 8-bit images: taps as whole numbers over one denominator,
//! exact sums, one rounding.

use apron::{Border, Filter, Form, Shape};
use multiversion::multiversion;

use crate::{fold, kept};

/// The numbers that a filter was made from.
#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    /// Taps, row by row.
    Table(Vec<f64>),
    /// A row and a column.
    Product(Vec<f64>, Vec<f64>),
    /// Products of a row and a column, and a factor for the pixel under the middle of the window.
    Sum {
        /// The pixel's factor.
        point: f64,
        /// Rows and columns.
        terms: Vec<(Vec<f64>, Vec<f64>)>,
    },
}

impl Made {
    /// The numbers that the library says a filter was made from.
    ///
    /// # Panics
    /// If the form is not listed here.
    pub fn of(filter: &Filter) -> Self {
        match filter.form() {
            Form::Table(taps) => Self::Table(taps.to_vec()),
            Form::Product { row, column } => Self::Product(row.to_vec(), column.to_vec()),
            Form::Sum { point, terms } => Self::Sum { point, terms: terms.to_vec() },
            other => panic!("the oracle knows no form {other:?}: add it here"),
        }
    }
}

/// The largest denominator that is tried for taps that are fractions with one denominator (a mean).
const GREATEST_DENOMINATOR: u64 = 1 << 16;

/// The largest numerator of a mean. Also the largest d where all taps are the same 1/d.
const GREATEST_NUMERATOR: u64 = 1 << 45;

/// The largest sum of the absolute numerators of a row or a column.
const FACTOR: u64 = 1 << 37;

/// The largest sum of the absolute numerators of a table: with bytes up to 255, sums stay within
/// 2^53.
const TABLE: u64 = (1 << 53) / 255;

/// The numerators of the taps and their common denominator. They define each result byte exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Whole {
    pub(crate) cols: usize,
    pub(crate) rows: usize,
    anchor: (usize, usize),
    /// Numerators.
    pub taps: WholeTaps,
    /// The divisor of the sum of numerators times bytes.
    pub denominator: Denominator,
}

/// Numerators.
#[derive(Clone, Debug, PartialEq)]
pub enum WholeTaps {
    /// Row by row.
    Table(Vec<i64>),
    /// Products of a row and a column, and the numerator of the pixel under the middle of the
    /// window.
    Products(Vec<(Vec<i64>, Vec<i64>)>, i128),
}

/// The divisor of a sum of numerators times bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Denominator {
    /// The denominator of a mean.
    Count(u64),
    /// 2 to this power.
    Power(i32),
}

impl Whole {
    /// The whole taps of a filter of `cols` by `rows` taps that was made from `made`.
    pub fn new((cols, rows): (usize, usize), anchor: (usize, usize), made: &Made) -> Self {
        let (taps, denominator) = match made {
            Made::Table(taps) => table(taps),
            Made::Product(row, column) => means(row, column)
                .unwrap_or_else(|| products(0.0, &[(row.clone(), column.clone())])),
            Made::Sum { point, terms } => products(*point, terms),
        };
        Self { cols, rows, anchor, taps, denominator }
    }

    /// The whole taps of a filter of the library.
    pub fn of(filter: &Filter) -> Self {
        Self::new((filter.cols(), filter.rows()), filter.anchor(), &Made::of(filter))
    }

    /// Whether [`Border::Keep`] copies pixel number `i` of an image.
    fn is_kept(&self, i: usize, (width, height): (usize, usize)) -> bool {
        kept(i % width, self.anchor.0, self.cols, width)
            || kept(i / width, self.anchor.1, self.rows, height)
    }
}

fn table(taps: &[f64]) -> (WholeTaps, Denominator) {
    if let Some((counts, denominator)) = mean(taps)
        && size(&counts) <= TABLE.into()
    {
        return (WholeTaps::Table(counts), Denominator::Count(denominator));
    }
    let power = greatest_power(taps, TABLE).unwrap_or(0);
    (WholeTaps::Table(scaled(taps, power)), Denominator::Power(power))
}

/// The whole taps of a product whose row and column are both means; otherwise `None`.
fn means(row: &[f64], column: &[f64]) -> Option<(WholeTaps, Denominator)> {
    let ((across, of_row), (down, of_column)) = (mean(row)?, mean(column)?);
    // Sums and denominators up to 2^61 fit i128 with room. `FACTOR` bounds the sums along a row.
    let limit = 1u128 << 61;
    let denominator = u128::from(of_row) * u128::from(of_column);
    let is_small = denominator <= limit
        && [&across, &down].into_iter().all(|counts| size(counts) <= FACTOR.into())
        && 255 * size(&across) * size(&down) <= limit;
    is_small.then(|| {
        (WholeTaps::Products(vec![(across, down)], 0), Denominator::Count(denominator as u64))
    })
}

fn products(point: f64, terms: &[(Vec<f64>, Vec<f64>)]) -> (WholeTaps, Denominator) {
    let across = terms.iter().filter_map(|(row, _)| greatest_power(row, FACTOR)).min().unwrap_or(0);
    let mut down =
        terms.iter().filter_map(|(_, column)| greatest_power(column, FACTOR)).min().unwrap_or(0);
    while point != 0.0 && point.abs() >= two_to(74 - across - down) {
        down -= 1;
    }
    let whole =
        terms.iter().map(|(row, column)| (scaled(row, across), scaled(column, down))).collect();
    let point = nearest(point, across + down).expect("it is below 2^74");
    (WholeTaps::Products(whole, point), Denominator::Power(across + down))
}

/// 2 to a power, at least the smallest subnormal f64.
fn two_to(power: i32) -> f64 {
    f64::from(power.max(-1074)).exp2()
}

fn size(counts: &[i64]) -> u128 {
    counts.iter().map(|count| u128::from(count.unsigned_abs())).sum()
}

/// The numerators and the smallest common denominator, if each tap is such a fraction rounded to
/// f64. Taps that are all the same may also be one fraction rounded to f32.
fn mean(taps: &[f64]) -> Option<(Vec<i64>, u64)> {
    let is_one = taps.iter().all(|tap| *tap == taps[0]);
    let fraction = |tap: f64, denominator: u64| {
        let count = (tap * denominator as f64).round();
        let is_count =
            count.abs() <= GREATEST_NUMERATOR as f64 && count / denominator as f64 == tap;
        is_count.then_some(count as i64)
    };
    let fractions = |denominator: u64| {
        taps.iter().map(|&tap| fraction(tap, denominator)).collect::<Option<Vec<i64>>>()
    };
    // Testing the first 8 taps alone rules out most denominators.
    let few = &taps[..taps.len().min(8)];
    for denominator in 1..=GREATEST_DENOMINATOR {
        if few.iter().all(|&tap| fraction(tap, denominator).is_some())
            && let Some(counts) = fractions(denominator)
        {
            return Some((counts, denominator));
        }
    }
    if !is_one {
        return None;
    }
    let turned = (1.0 / taps[0].abs()).round();
    if turned <= GREATEST_NUMERATOR as f64
        && let Some(counts) = fractions(turned as u64)
    {
        return Some((counts, turned as u64));
    }
    let narrow = taps[0] as f32;
    if f64::from(narrow) != taps[0] {
        return None;
    }
    (1..=GREATEST_DENOMINATOR).find_map(|denominator| {
        let count = (taps[0] * denominator as f64).round();
        let is_count =
            count.abs() <= f64::from(1 << 24) && (count / denominator as f64) as f32 == narrow;
        is_count.then(|| (vec![count as i64; taps.len()], denominator))
    })
}

/// The largest power of two by which the taps may be multiplied so that the absolute values of the
/// products, rounded to integers, add up to `limit` at most. `None` if all taps are zero.
fn greatest_power(taps: &[f64], limit: u64) -> Option<i32> {
    let greatest = taps.iter().fold(0.0, |greatest: f64, tap| greatest.max(tap.abs()));
    if greatest == 0.0 {
        return None;
    }
    // With this power, the largest tap alone exceeds 2^63.
    let mut power = 64 - greatest.log2().floor() as i32;
    let fits = |power: i32| {
        let sum = |sum: u128, tap: &f64| {
            let sum = sum + nearest(*tap, power)?.unsigned_abs();
            (sum <= limit.into()).then_some(sum)
        };
        taps.iter().try_fold(0, sum).is_some()
    };
    while !fits(power) {
        power -= 1;
    }
    Some(power)
}

fn scaled(taps: &[f64], power: i32) -> Vec<i64> {
    let whole = |&tap: &f64| {
        nearest(tap, power).and_then(|whole| i64::try_from(whole).ok()).expect("the sum fits")
    };
    taps.iter().map(whole).collect()
}

/// `value * 2^power`, rounded half to even; `None` beyond 2^110.
fn nearest(value: f64, power: i32) -> Option<i128> {
    // Exponent and fraction of the f64.
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 2047) as i32, i128::from(bits & ((1 << 52) - 1)));
    let (whole, unit) =
        if exponent == 0 { (fraction, -1074) } else { (fraction + (1 << 52), exponent - 1075) };
    let steps = unit + power;
    let size = if whole == 0 || steps < -60 {
        0
    } else if steps >= 0 {
        (steps < 57).then(|| whole << steps)?
    } else {
        let step = 1i128 << -steps;
        let (below, rest) = (whole.div_euclid(step), whole.rem_euclid(step));
        match (2 * rest).cmp(&step) {
            std::cmp::Ordering::Less => below,
            std::cmp::Ordering::Greater => below + 1,
            std::cmp::Ordering::Equal => below + below % 2,
        }
    };
    Some(if value < 0.0 { -size } else { size })
}

impl Denominator {
    /// The byte of a sum of numerators: the quotient rounded half to even, saturated.
    pub fn byte(self, sum: i128) -> u8 {
        match self {
            Self::Count(count) => nearest_byte(sum, count.into()),
            // Sums are below 2^86. Divided by 2^100 or more they round to 0; multiplied by more
            // than 2^16 they saturate.
            Self::Power(100..) => 0,
            Self::Power(power @ 0..) => nearest_byte(sum, 1 << power),
            Self::Power(power @ -16..) => nearest_byte(sum << -power, 1),
            Self::Power(_) => {
                if sum > 0 {
                    255
                } else {
                    0
                }
            }
        }
    }
}

/// A quotient by a positive number, rounded half to even, saturated.
fn nearest_byte(sum: i128, denominator: i128) -> u8 {
    // The result is greater than n if the quotient exceeds n + 1/2, or equals it and n is odd.
    let is_beyond = |n: u8| {
        let half = (2 * i128::from(n) + 1) * denominator;
        2 * sum > half || 2 * sum == half && n % 2 == 1
    };
    let (mut least, mut most) = (0, 255);
    while least < most {
        let n = least + (most - least) / 2;
        if is_beyond(n) { least = n + 1 } else { most = n }
    }
    least
}

/// The row or column that the border maps a coordinate to; `None` for the border's constant.
type Place = Option<usize>;

/// The byte of each pixel of a plane: the exact sum of whole taps times bytes over their
/// denominator.
///
/// # Panics
/// If the border's constant is not a byte: such a filter has no 8-bit results.
pub fn bytes(plane: &[u8], size: (usize, usize), whole: &Whole, border: Border) -> Vec<u8> {
    let values: Vec<i64> = plane.iter().map(|&byte| byte.into()).collect();
    let sums = sums(&values, size, whole, border, constant_byte(border).into());
    let byte = |(i, sum): (usize, i128)| {
        if border == Border::Keep && whole.is_kept(i, size) {
            plane[i]
        } else {
            whole.denominator.byte(sum)
        }
    };
    sums.into_iter().enumerate().map(byte).collect()
}

/// The bytes of an image with interleaved channels, the last of which is alpha. A colour is the sum
/// of taps times colour times alpha, divided by the sum of taps times alpha. It is 0 where that
/// divisor is 0.
///
/// # Panics
/// As [`bytes`].
pub fn bytes_weighted_by_alpha(src: &[u8], shape: Shape, whole: &Whole, border: Border) -> Vec<u8> {
    let Shape { width, height, channels } = shape;
    let (size, constant) = ((width, height), i64::from(constant_byte(border)));
    let plane =
        |channel: usize| src.iter().skip(channel).step_by(channels).map(|&byte| i64::from(byte));
    let alpha: Vec<i64> = plane(channels - 1).collect();
    let weights = sums(&alpha, size, whole, border, constant);
    let mut dst: Vec<u8> = vec![0; src.len()];
    for (i, &weight) in weights.iter().enumerate() {
        dst[(i + 1) * channels - 1] = whole.denominator.byte(weight);
    }
    for channel in 0..channels - 1 {
        let colours: Vec<i64> =
            plane(channel).zip(&alpha).map(|(colour, alpha)| colour * alpha).collect();
        let sums = sums(&colours, size, whole, border, constant * constant);
        for (i, (sum, &weight)) in
            sums.into_iter().zip(&weights).enumerate().filter(|(_, (_, weight))| **weight != 0)
        {
            dst[i * channels + channel] = nearest_byte(sum * weight.signum(), weight.abs());
        }
    }
    let is_kept = |i: &usize| border == Border::Keep && whole.is_kept(*i, size);
    for i in (0..width * height).filter(is_kept) {
        dst[i * channels..][..channels].copy_from_slice(&src[i * channels..][..channels]);
    }
    dst
}

/// The sums of whole taps times the values of a plane. Values are at most 2^16; `constant` is the
/// value outside for [`Border::Constant`].
fn sums(
    plane: &[i64],
    (width, height): (usize, usize),
    whole: &Whole,
    border: Border,
    constant: i64,
) -> Vec<i128> {
    let places = |anchor: usize, len: usize, extent: usize| -> Vec<Place> {
        (0..extent + len - 1).map(|i| fold(border, i as i64 - anchor as i64, extent)).collect()
    };
    let columns = places(whole.anchor.0, whole.cols, width);
    let rows = places(whole.anchor.1, whole.rows, height);
    let value =
        |row: Place, column: Place| row.zip(column).map_or(constant, |(y, x)| plane[y * width + x]);
    let line =
        |row: Place| -> Vec<i64> { columns.iter().map(|&column| value(row, column)).collect() };
    let mut sums = vec![0i128; width * height];
    match &whole.taps {
        WholeTaps::Table(taps) => {
            let lines: Vec<Vec<i64>> = rows.iter().map(|&row| line(row)).collect();
            for (y, sums) in sums.chunks_mut(width).enumerate() {
                // i64 suffices: sums stay below 2^62 in any order.
                let mut narrow = vec![0i64; width];
                for (taps, line) in taps.chunks(whole.cols).zip(&lines[y..]) {
                    for (col, &tap) in taps.iter().enumerate() {
                        accumulate(tap, &line[col..][..width], &mut narrow);
                    }
                }
                sums.iter_mut().zip(narrow).for_each(|(sum, narrow)| *sum = narrow.into());
            }
        }
        WholeTaps::Products(terms, point) => {
            for (row, column) in terms {
                // Sums along each row of the image, then along a row of the constant.
                let across = |place: Place| {
                    let line = line(place);
                    let mut sums = vec![0i64; width];
                    for (col, &tap) in row.iter().enumerate() {
                        accumulate(tap, &line[col..][..width], &mut sums);
                    }
                    sums
                };
                let middle: Vec<Vec<i64>> =
                    (0..height).map(Some).chain([None]).map(across).collect();
                for (y, sums) in sums.chunks_mut(width).enumerate() {
                    for (&tap, place) in column.iter().zip(&rows[y..]) {
                        let values = &middle[place.unwrap_or(height)];
                        sums.iter_mut()
                            .zip(values)
                            .for_each(|(sum, &value)| *sum += i128::from(tap) * i128::from(value));
                    }
                }
            }
            for (i, sum) in sums.iter_mut().enumerate() {
                let (row, column) =
                    (rows[i / width + whole.rows / 2], columns[i % width + whole.cols / 2]);
                *sum += point * i128::from(value(row, column));
            }
        }
    }
    sums
}

/// As [`bytes`], for an image whose channels are interleaved.
///
/// # Panics
/// As [`bytes`].
pub fn bytes_of_image(src: &[u8], shape: Shape, whole: &Whole, border: Border) -> Vec<u8> {
    let Shape { width, height, channels } = shape;
    let mut dst = vec![0; src.len()];
    for channel in 0..channels {
        let plane: Vec<u8> = src.iter().skip(channel).step_by(channels).copied().collect();
        let found = bytes(&plane, (width, height), whole, border);
        dst.iter_mut().skip(channel).step_by(channels).zip(found).for_each(|(to, from)| *to = from);
    }
    dst
}

/// The byte of one pixel of a plane; `pixel` returns the plane's byte at a column and a row.
///
/// # Panics
/// As [`bytes`].
pub fn byte_at(
    (width, height): (usize, usize),
    (x, y): (usize, usize),
    whole: &Whole,
    border: Border,
    pixel: impl Fn(usize, usize) -> u8,
) -> u8 {
    let is_kept =
        kept(x, whole.anchor.0, whole.cols, width) || kept(y, whole.anchor.1, whole.rows, height);
    if border == Border::Keep && is_kept {
        return pixel(x, y);
    }
    let constant = constant_byte(border);
    let value = |row: usize, col: usize| -> i128 {
        let across = fold(border, (x + col) as i64 - whole.anchor.0 as i64, width);
        let down = fold(border, (y + row) as i64 - whole.anchor.1 as i64, height);
        across.zip(down).map_or(constant, |(x, y)| pixel(x, y)).into()
    };
    let along = |row: usize, taps: &[i64]| -> i128 {
        taps.iter().enumerate().map(|(col, &tap)| i128::from(tap) * value(row, col)).sum()
    };
    let sum: i128 = match &whole.taps {
        WholeTaps::Table(taps) => {
            taps.chunks(whole.cols).enumerate().map(|(row, taps)| along(row, taps)).sum()
        }
        WholeTaps::Products(terms, point) => {
            let of = |(across, down): &(Vec<i64>, Vec<i64>)| -> i128 {
                down.iter()
                    .enumerate()
                    .map(|(row, &tap)| i128::from(tap) * along(row, across))
                    .sum()
            };
            point * value(whole.rows / 2, whole.cols / 2) + terms.iter().map(of).sum::<i128>()
        }
    };
    whole.denominator.byte(sum)
}

/// Whether 8-bit images have 8-bit results under this border: a constant must be a byte.
pub fn takes_bytes(border: Border) -> bool {
    match border {
        Border::Constant(value) => (0.0..=255.0).contains(&value) && value.fract() == 0.0,
        _ => true,
    }
}

fn constant_byte(border: Border) -> u8 {
    assert!(takes_bytes(border), "{border} has no byte");
    if let Border::Constant(value) = border { value as u8 } else { 0 }
}

/// Adds `tap` times each value to its sum. The versions for other instruction sets only serve
/// speed: integers are exact in each.
#[multiversion(targets("x86_64+avx2"))]
fn accumulate(tap: i64, values: &[i64], sums: &mut [i64]) {
    for (sum, &value) in sums.iter_mut().zip(values) {
        *sum += tap * value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_table(taps: &[f64]) -> Whole {
        Whole::new((taps.len(), 1), (taps.len() / 2, 0), &Made::Table(taps.to_vec()))
    }

    /// The examples of the definition in `docs/reliability.md`, worked out by hand.
    #[test]
    fn whole_taps_are_those_of_the_definition() {
        let counts = |taps: &[f64]| {
            let Whole {
                taps: WholeTaps::Table(counts),
                denominator: Denominator::Count(count),
                ..
            } = of_table(taps)
            else {
                panic!("{taps:?} are no mean")
            };
            (counts, count)
        };
        assert_eq!(counts(&[0.25, 0.5, 0.25]), (vec![1, 2, 1], 4));
        assert_eq!(counts(&[1.0 / 36.0; 36]), (vec![1; 36], 36));
        assert_eq!(counts(&[f64::from(1f32 / 36.0); 36]), (vec![1; 36], 36));
        assert_eq!(counts(&[-5.0 / 65_536.0, 1.0 / 65_536.0]), (vec![-5, 1], 65_536));
        assert_eq!(counts(&[0.0, -0.0]), (vec![0, 0], 1));
        assert_eq!(counts(&[1e-9; 4]), (vec![1; 4], 1_000_000_000));
        for taps in [[0.027_777_78; 36], [f64::from(0.027_777_78_f32 * 1.000_01); 36]] {
            assert!(matches!(of_table(&taps).denominator, Denominator::Power(_)), "{taps:?}");
        }
        // 255 * 0.3 * 2^46 = 2^52.26 is within 2^53; twice that is not.
        let two = of_table(&[0.3, 2f64.powi(-40)]);
        assert_eq!(two.denominator, Denominator::Power(46));
        assert_eq!(
            two.taps,
            WholeTaps::Table(vec![(0.3 * 2f64.powi(46)).round_ties_even() as i64, 64])
        );
    }

    #[test]
    fn factors_share_their_powers() {
        let row = vec![0.3, 0.7];
        let made = Made::Sum {
            point: 0.5,
            terms: vec![(row.clone(), vec![1e-3, 0.1]), (vec![3.0, 0.0], row)],
        };
        let whole = Whole::new((2, 2), (1, 1), &made);
        // The row (3, 0) allows 2^35, because 3 * 2^35 is within 2^37. The column (0.3, 0.7) allows
        // 2^37.
        assert_eq!(whole.denominator, Denominator::Power(35 + 37));
        let WholeTaps::Products(terms, point) = whole.taps else { panic!("it is a sum") };
        assert_eq!((terms[1].0[0], point), (3 << 35, 1 << 71));
        let of_huge = products(1e30, &[(vec![1.0], vec![1.0])]);
        let Denominator::Power(power) = of_huge.1 else { panic!("it is no mean") };
        // 1e30 lies between 2^99 and 2^100.
        assert_eq!(power, 74 - 100);
    }

    #[test]
    fn single_pixels_are_those_of_the_plane() {
        let mut random = fastrand::Rng::with_seed(3);
        let plane: Vec<u8> = (0..9 * 7).map(|_| random.u8(..)).collect();
        let mut taps = |count: usize| (0..count).map(|_| random.f64() - 0.3).collect::<Vec<_>>();
        let (row, column) = (taps(5), taps(4));
        let terms = vec![(row.clone(), column.clone()), (taps(5), taps(4))];
        for made in
            [Made::Table(taps(20)), Made::Product(row, column), Made::Sum { point: -0.7, terms }]
        {
            for anchor in [(2, 2), (0, 3), (4, 0)] {
                let whole = Whole::new((5, 4), anchor, &made);
                for border in [
                    Border::Constant(77.0),
                    Border::Reflect,
                    Border::Reflect101,
                    Border::Wrap,
                    Border::Keep,
                ] {
                    let found = bytes(&plane, (9, 7), &whole, border);
                    for (i, &found) in found.iter().enumerate() {
                        let at = byte_at((9, 7), (i % 9, i / 9), &whole, border, |x, y| {
                            plane[y * 9 + x]
                        });
                        assert_eq!(at, found, "{made:?} {anchor:?} {border}");
                    }
                    assert!(found.iter().any(|&byte| byte > 0));
                }
            }
        }
    }

    #[test]
    fn halves_go_to_the_even_byte() {
        let cases = [
            (1, 0),
            (3, 2),
            (5, 2),
            (507, 254),
            (509, 254),
            (510, 255),
            (511, 255),
            (-3, 0),
            (1 << 80, 255),
        ];
        for (sum, byte) in cases {
            assert_eq!(Denominator::Count(2).byte(sum), byte, "{sum} halves");
            assert_eq!(Denominator::Power(1).byte(sum), byte, "{sum} halves");
        }
        assert_eq!(Denominator::Power(-3).byte(5), 40);
        assert_eq!(Denominator::Power(-300).byte(1), 255);
        assert_eq!(Denominator::Power(-300).byte(0), 0);
        assert_eq!(Denominator::Power(300).byte(1 << 85), 0);
    }
}
