//! Factors a table of taps into a row and a column, if it is their product, or into two of each, if
//! it is the sum of two products.

use crate::Result;

/// Taps of a row and of a column. Their product is a window of taps.
pub type RowAndColumn = (Vec<f64>, Vec<f64>);

/// A row and a column of taps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Factors {
    pub(super) row: Vec<f64>,
    pub(super) column: Vec<f64>,
}

/// See [`Filter::SEPARABLE_TOLERANCE`](crate::Filter::SEPARABLE_TOLERANCE).
pub(super) const TOLERANCE: f64 = f32::EPSILON as f64;

/// The factors of taps given row by row, if they are a product within [`TOLERANCE`].
///
/// If the taps are a product, the row and the column through the greatest tap are the factors, up
/// to scale. If the row consists of small multiples of one number, the row is scaled to integers
/// and the product is compared exactly: this reproduces Sobel and binomial taps exactly. Otherwise
/// the greatest tap of the row is scaled to 1, and the factors are refined towards the nearest
/// product.
pub(super) fn factors(cols: usize, rows: usize, taps: &[f64]) -> Result<Option<Factors>> {
    let greatest = greatest(taps);
    let pivot = taps[greatest];
    let (pivot_row, pivot_col) = (greatest / cols, greatest % cols);
    let mut row = crate::memory::reserve(cols)?;
    row.extend_from_slice(&taps[pivot_row * cols..][..cols]);
    let mut column = crate::memory::reserve(rows)?;
    if pivot == 0.0 {
        column.resize(rows, 1.0);
        return Ok(Some(Factors { row, column }));
    }
    if rows == 1 {
        column.push(1.0);
        return Ok(Some(Factors { row, column }));
    }
    let through_pivot = taps[pivot_col..].iter().step_by(cols);
    if cols == 1 {
        column.extend(through_pivot);
        return Ok(Some(Factors { row: vec![1.0], column }));
    }

    column.extend(through_pivot);
    let cross = Factors { row, column };
    if let Some(unit) = common_divisor(&cross.row) {
        let factors = cross.clone().scaled(unit, pivot_col);
        if factors.greatest_difference(taps) == 0.0 {
            return Ok(Some(factors));
        }
    }
    let mut factors = cross.scaled(pivot.abs(), pivot_col);
    let tolerance = TOLERANCE * pivot.abs();
    let mut error = factors.greatest_difference(taps);
    // The pivot's row and column carry rounding errors of their own. They may miss by a few times
    // the tolerance where a better product does not.
    if error > 0.0 && error <= 4.0 * tolerance {
        let mut refined = factors.clone();
        refined.refine(taps);
        let refined_error = refined.greatest_difference(taps);
        if refined_error < error {
            (factors, error) = (refined, refined_error);
        }
    }
    Ok((error <= tolerance).then_some(factors))
}

/// Two rows and columns whose products add up to taps given row by row, within [`TOLERANCE`], if
/// the taps are such a sum. `None` if the taps are small integer multiples of one number, so that
/// sums over bytes are exact tap by tap.
///
/// The first cross passes through the greatest tap, the second through the greatest remainder.
/// Together they nearly span the rows. Two rounds of subspace iteration then approach the leading
/// two singular vectors (Golub and Van Loan, Matrix Computations, section 8.2). Rows are
/// orthonormal, so that no term is much greater than the taps.
pub(super) fn two_products(cols: usize, rows: usize, taps: &[f64]) -> Option<[RowAndColumn; 2]> {
    const FROM_CROSSES: f64 = 256.0 * TOLERANCE;
    let first = greatest(taps);
    let pivot = taps[first];
    if cols < 2 || rows < 2 || pivot == 0.0 {
        return None;
    }
    // In units of the greatest tap: squares of very small taps would underflow.
    let tap = |row: usize, col: usize| taps[row * cols + col] / pivot;
    let (top, left) = (first / cols, first % cols);
    let rest = |row: usize, col: usize| tap(row, col) - tap(row, left) * tap(top, col);
    let places = || (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
    let sized = places().map(|(row, col)| (rest(row, col).abs(), (row, col)));
    let (_, second) = sized.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let pivot_two = rest(second.0, second.1);
    if pivot_two == 0.0 {
        return None;
    }
    let missed = |row: usize, col: usize| {
        rest(row, col) - rest(row, second.1) * rest(second.0, col) / pivot_two
    };
    if places().any(|(row, col)| missed(row, col).abs() > FROM_CROSSES) {
        return None;
    }
    // Tested after the crosses, because it takes longer and the crosses reject most windows.
    let exact = common_divisor(taps).is_some_and(|unit| {
        let weight: f64 = taps.iter().map(|tap| (tap / unit).abs()).sum();
        255.0 * weight < f64::from(1 << 24)
    });
    if exact {
        return None;
    }
    let of_crosses = [
        (0..cols).map(|col| tap(top, col)).collect(),
        (0..cols).map(|col| rest(second.0, col)).collect(),
    ];
    let (across, mut down) = refined(of_crosses, cols, taps, pivot);
    let [a, b] = &across;
    let [p, q] = &down;
    let found = |row: usize, col: usize| a[col] * p[row] + b[col] * q[row];
    let within = |(row, col)| (tap(row, col) - found(row, col)).abs() <= TOLERANCE;
    if !places().all(within) {
        return None;
    }
    down.iter_mut().flatten().for_each(|tap| *tap *= pivot);
    let [first, second] = across;
    let [top, bottom] = down;
    Some([(first, top), (second, bottom)])
}

/// The rows and columns of the two products nearest to `taps / pivot`, by subspace iteration from
/// rows close to theirs.
fn refined(
    mut across: [Vec<f64>; 2],
    cols: usize,
    taps: &[f64],
    pivot: f64,
) -> ([Vec<f64>; 2], [Vec<f64>; 2]) {
    let rows = taps.len() / cols;
    let mut down = [vec![0.0; rows], vec![0.0; rows]];
    for round in 0..3 {
        orthonormal(&mut across);
        for (down, across) in down.iter_mut().zip(&across) {
            for (down, taps) in down.iter_mut().zip(taps.chunks_exact(cols)) {
                *down = taps.iter().zip(across).map(|(tap, across)| tap / pivot * across).sum();
            }
        }
        if round < 2 {
            orthonormal(&mut down);
            for (across, down) in across.iter_mut().zip(&down) {
                across.fill(0.0);
                for (down, taps) in down.iter().zip(taps.chunks_exact(cols)) {
                    for (across, tap) in across.iter_mut().zip(taps) {
                        *across += down * tap / pivot;
                    }
                }
            }
        }
    }
    (across, down)
}

/// Makes two vectors orthogonal and of length 1. The second keeps only its part orthogonal to the
/// first.
fn orthonormal(pair: &mut [Vec<f64>; 2]) {
    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }
    fn scale(vector: &mut [f64]) {
        let length = dot(vector, vector).sqrt();
        if length > 0.0 {
            vector.iter_mut().for_each(|value| *value /= length);
        }
    }
    let [first, second] = pair;
    scale(first);
    scale(second);
    // Twice: the first pass leaves rounding errors if the vectors are nearly parallel.
    for _ in 0..2 {
        let along = dot(first, second);
        second.iter_mut().zip(&*first).for_each(|(value, part)| *value -= along * part);
        scale(second);
    }
}

/// The index of the tap of greatest magnitude.
pub(super) fn greatest(taps: &[f64]) -> usize {
    let mut best = 0;
    for (index, tap) in taps.iter().enumerate() {
        if tap.abs() > taps[best].abs() {
            best = index;
        }
    }
    best
}

impl Factors {
    /// Factors from the row and the column that cross at `row[pivot]`. The row is divided by
    /// `unit`, and the column so that the product stays the same.
    fn scaled(mut self, unit: f64, pivot: usize) -> Self {
        self.row.iter_mut().for_each(|tap| *tap /= unit);
        let pivot = self.row[pivot];
        self.column.iter_mut().for_each(|tap| *tap /= pivot);
        self
    }

    fn greatest_difference(&self, taps: &[f64]) -> f64 {
        let mut greatest = 0.0f64;
        for (taps, &down) in taps.chunks_exact(self.row.len()).zip(&self.column) {
            for (&tap, &across) in taps.iter().zip(&self.row) {
                greatest = greatest.max((tap - down * across).abs());
            }
        }
        greatest
    }

    /// Two rounds of alternating least squares. The start is close, so the result is close to the
    /// leading singular pair.
    fn refine(&mut self, taps: &[f64]) {
        let cols = self.row.len();
        for _ in 0..2 {
            let norm: f64 = self.row.iter().map(|tap| tap * tap).sum();
            for (down, taps) in self.column.iter_mut().zip(taps.chunks_exact(cols)) {
                *down = taps.iter().zip(&self.row).map(|(tap, across)| tap * across).sum::<f64>()
                    / norm;
            }
            // Taps may be as small as 1e-300: in units of the greatest tap, their squares do not
            // underflow.
            let scale = self.column[greatest(&self.column)];
            let norm: f64 = self.column.iter().map(|tap| (tap / scale) * (tap / scale)).sum();
            self.row.fill(0.0);
            for (&down, taps) in self.column.iter().zip(taps.chunks_exact(cols)) {
                for (across, &tap) in self.row.iter_mut().zip(taps) {
                    *across += tap / scale * (down / scale);
                }
            }
            self.row.iter_mut().for_each(|across| *across /= norm);
        }
    }
}

/// The greatest number of which all taps are integer multiples, if those multiples are at most
/// 2^24, so that an f32 holds them. Every f64 is an integer multiple of a power of two, so only the
/// range of the taps matters.
pub(super) fn common_divisor(taps: &[f64]) -> Option<f64> {
    let smallest_bit = lowest_bit(taps);
    let mut divisor = 0u64;
    for &tap in taps.iter().filter(|&&tap| tap != 0.0) {
        let (mantissa, exponent) = split(tap);
        let shift = exponent + mantissa.trailing_zeros() as i32 - smallest_bit;
        let odd = mantissa >> mantissa.trailing_zeros();
        if shift + (64 - odd.leading_zeros() as i32) > 53 {
            // Not even an f64 holds the multiple.
            return None;
        }
        divisor = gcd(odd << shift, divisor);
    }
    let greatest = taps[greatest(taps)].abs();
    // Two steps, because the power of two alone may be subnormal.
    let half = smallest_bit / 2;
    let unit = divisor as f64 * 2f64.powi(half) * 2f64.powi(smallest_bit - half);
    (greatest / unit <= f64::from(1 << 24)).then_some(unit)
}

/// The greatest power of two, as an exponent, of which all taps are integer multiples; 0 if all
/// taps are zero.
pub(crate) fn lowest_bit(taps: &[f64]) -> i32 {
    let bits = taps.iter().filter(|&&tap| tap != 0.0).map(|&tap| {
        let (mantissa, exponent) = split(tap);
        exponent + mantissa.trailing_zeros() as i32
    });
    bits.min().unwrap_or(0)
}

/// The magnitude as `mantissa * 2^exponent`.
pub(super) fn split(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factored(cols: usize, rows: usize, taps: &[f64]) -> Option<(Vec<f64>, Vec<f64>)> {
        factors(cols, rows, taps).unwrap().map(|factors| (factors.row, factors.column))
    }

    fn outer(row: &[f64], column: &[f64]) -> Vec<f64> {
        column.iter().flat_map(|down| row.iter().map(move |across| down * across)).collect()
    }

    #[test]
    fn whole_numbers_factor_into_whole_numbers() {
        let cases: [(&[f64], &[f64]); 6] = [
            (&[-1., 0., 1.], &[1., 2., 1.]),
            (&[1., 2., 1.], &[-1., 0., 1.]),
            (&[3., 10., 3.], &[-1., 0., 1.]),
            (&[1., 4., 6., 4., 1.], &[1., 4., 6., 4., 1.]),
            (&[1., -2., 1., 5.], &[0.25, 0.5, 0.25]),
            (&[0., 7., 0.], &[0., 3.]),
        ];
        for (row, column) in cases {
            let (found_row, found_column) =
                factored(row.len(), column.len(), &outer(row, column)).unwrap();
            assert_eq!(outer(&found_row, &found_column), outer(row, column));
            let whole = |tap: &f64| tap.fract() == 0.0;
            assert!(found_row.iter().all(whole), "{found_row:?}");
            let divisor = found_row.iter().fold(0, |divisor, &tap| gcd(tap.abs() as u64, divisor));
            assert_eq!(divisor, 1, "{found_row:?} are not the smallest");
        }
    }

    #[test]
    fn equal_taps_factor_exactly() {
        let (row, column) = factored(5, 7, &[1.0 / 35.0; 35]).unwrap();
        assert_eq!((row, column), (vec![1.0; 5], vec![1.0 / 35.0; 7]));
    }

    #[test]
    fn products_rounded_to_f32_are_recognised() {
        let mut seed = 1u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
        };
        for size in [2, 3, 5, 9, 31] {
            for _ in 0..200 {
                let row: Vec<f64> = (0..size).map(|_| random()).collect();
                let column: Vec<f64> = (0..size + 1).map(|_| random()).collect();
                let taps: Vec<f64> =
                    outer(&row, &column).iter().map(|&tap| f64::from(tap as f32)).collect();
                let (row, column) = factored(size, size + 1, &taps).expect("a product");
                let greatest = taps[greatest(&taps)].abs();
                for (tap, product) in taps.iter().zip(outer(&row, &column)) {
                    assert!((tap - product).abs() <= TOLERANCE * greatest);
                }
            }
        }
    }

    #[test]
    fn what_is_not_a_product_stays_whole() {
        assert_eq!(factored(3, 3, &[0., 1., 0., 1., -4., 1., 0., 1., 0.]), None);
        let mut taps = outer(&[1., 2., 1.], &[1., 2., 1.]);
        taps[8] += 4.0 * 2.0 * TOLERANCE;
        assert_eq!(factored(3, 3, &taps), None);
    }

    #[test]
    fn sums_of_two_products_are_recognised() {
        let gaussian = |sigma: f64| {
            (-8..=8).map(|x| (-0.5 * f64::from(x * x) / (sigma * sigma)).exp()).collect::<Vec<_>>()
        };
        let (narrow, wide) = (gaussian(1.0), gaussian(3.0));
        for scale in [1e-300, 1.0, 1e30] {
            let sum = |a: f64, b: f64| -> Vec<f64> {
                let two = outer(&narrow, &narrow).into_iter().zip(outer(&wide, &wide));
                two.map(|(x, y)| scale * (a * x + b * y)).collect()
            };
            for taps in [sum(1.0, -0.2), sum(1.0, 1e-3), sum(0.5, 0.7)] {
                let rounded: Vec<f64> = taps.iter().map(|&tap| f64::from(tap as f32)).collect();
                for taps in if scale < 1e-30 { vec![taps] } else { vec![taps, rounded] } {
                    assert_eq!(factored(17, 17, &taps), None);
                    let [(a, p), (b, q)] = two_products(17, 17, &taps).expect("a sum of two");
                    let greatest = taps[greatest(&taps)].abs();
                    for (tap, (x, y)) in taps.iter().zip(outer(&a, &p).iter().zip(outer(&b, &q))) {
                        assert!((tap - (x + y)).abs() <= TOLERANCE * greatest, "{tap} {x} {y}");
                        assert!(x.abs() + y.abs() <= 4.0 * greatest);
                    }
                }
            }
        }
    }

    #[test]
    fn other_taps_are_no_sums_of_two_products() {
        let taps: Vec<f64> = (0..17 * 13).map(|i| f64::from(i * 7919 % 997) / 997.1).collect();
        assert!(two_products(17, 13, &taps).is_none());
        // Whole numbers are exact tap by tap.
        let whole: Vec<f64> = (0..17 * 13).map(|i| f64::from(i % 17) + f64::from(i / 17)).collect();
        assert!(two_products(17, 13, &whole).is_none());
        assert!(two_products(1, 5, &[0.1, 0.2, 0.3, 0.4, 0.7]).is_none());
    }

    #[test]
    fn lines_and_zeros_are_products() {
        assert_eq!(factored(3, 1, &[1., 5., 2.]), Some((vec![1., 5., 2.], vec![1.])));
        assert_eq!(factored(1, 3, &[1., 5., 2.]), Some((vec![1.], vec![1., 5., 2.])));
        let (row, column) = factored(2, 2, &[0.0; 4]).unwrap();
        assert_eq!(outer(&row, &column), [0.0; 4]);
    }

    #[test]
    fn extreme_magnitudes_do_not_overflow() {
        for scale in [1e-300, 1e-150, f64::from(f32::MIN_POSITIVE), 3e38] {
            let taps = outer(&[0.1 * scale, 0.7 * scale], &[0.3, 1.0]);
            let (row, column) = factored(2, 2, &taps).expect("a product");
            for (tap, product) in taps.iter().zip(outer(&row, &column)) {
                assert!((tap - product).abs() <= TOLERANCE * 0.7 * scale, "{tap} {product}");
            }
        }
    }
}
