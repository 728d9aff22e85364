//! One or two products of a row and a column of taps as whole numbers of three digits, for the
//! tensor cores.

use super::{GREATEST, digit};
use crate::filter::Fact;
use crate::{Filter, Why};

/// The most taps of a row or a column, so that no sum of a digit overflows.
const LIMIT: usize = 1024;

/// The most products of a row and a column.
const MAX_TERMS: usize = 2;

/// The taps of a filter's terms, each a product of a row and a column, as multiples of powers of
/// two, for the kernel's two passes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProductDigits {
    /// One or two.
    pub(crate) terms: Vec<TermDigits>,
    /// What the sums of the second weight begin with, bits of a joined sum behind the point, and
    /// the distance from a half at which one is uncertain.
    pub(crate) start: i32,
    pub(crate) shift: i32,
    pub(crate) near: i32,
    /// What a value itself is multiplied by, beside the products, in units of a joined sum.
    pub(crate) point: i32,
}

/// A term.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TermDigits {
    pub(crate) row: Vec<i32>,
    pub(crate) column: Vec<i32>,
    pub(crate) joining: Joining,
}

/// A row of taps as whole numbers.
struct RowDigits {
    taps: Vec<i32>,
    /// Bits of a tap behind the point, and of a row sum as it is cut.
    tap_bits: i32,
    sum_bits: i32,
}

impl RowDigits {
    /// A single tap of 1, which is a digit of its own, and so are a row sum's greatest eight bits:
    /// the byte. The others are 0.
    fn one() -> Self {
        Self { taps: vec![1 << 22], tap_bits: 22, sum_bits: 16 }
    }

    /// With as many bits of a row sum as 24 have room for beside its range.
    fn new(row: &[f64]) -> Option<Self> {
        let greatest = greatest(row);
        let most =
            (-32..=48).rev().find(|&bits| (greatest * 2f64.powi(bits)).round() <= GREATEST)?;
        (-32..=most - 8).rev().find_map(|sum_bits| {
            let tap_bits = most.min(sum_bits + 16);
            let taps = rounded(row, tap_bits);
            let range: f64 = taps.iter().map(|&tap| 255.0 * f64::from(tap).abs()).sum();
            let fits = range * 2f64.powi(sum_bits - tap_bits) + 4.0 < 2f64.powi(24);
            fits.then_some(Self { taps, tap_bits, sum_bits })
        })
    }
}

/// The greatest magnitude of the taps.
fn greatest(taps: &[f64]) -> f64 {
    taps.iter().fold(0.0, |greatest: f64, tap| greatest.max(tap.abs()))
}

/// Taps as whole numbers, with so many bits behind the point.
fn rounded(taps: &[f64], bits: i32) -> Vec<i32> {
    taps.iter().map(|tap| (tap * 2f64.powi(bits)).round() as i32).collect()
}

/// How a row pass's digits make a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Joining {
    /// Its bits beyond those of the second digit's sums: 0 to 8, or more if the lower digits'
    /// are 0.
    pub(crate) more: i32,
    /// What is added to those.
    pub(crate) start: i32,
}

/// The most bits of a joined sum behind the point; and how many numbers of them are tried, from the
/// greatest on for which there is room.
const MAX_BITS: i32 = 22;
const SHIFTS: usize = 2;

/// The value in the middle of all bytes, by which what is cut off is known but for its half.
const MIDDLE: f64 = 127.5;

/// A term's taps, with its row as whole numbers.
struct Term {
    row: Vec<f64>,
    column: Vec<f64>,
    whole: RowDigits,
}

/// What a term adds to the joined sum and to its error, in units of a joined sum.
struct Part {
    error: f64,
    /// What is lost of bytes of 127.5, which is added.
    middle: f64,
    /// What it has too much, as its row sums are moved.
    moved: f64,
}

/// What a column's sums lack as low digits are left out of them, in units of a joined sum.
#[derive(Default)]
struct Low {
    /// The products of low digits and of bytes of 127.5, and by how much other bytes change them.
    middle: f64,
    range: f64,
    /// What row sums lose as they are cut to 24 bits.
    cut: f64,
}

impl Low {
    fn new(column: &[i32]) -> Self {
        let mut low = Self::default();
        for &tap in column {
            let [lowest, second] = [0, 1].map(|i| f64::from(digit(tap, i)));
            low.middle += MIDDLE * (257.0 * lowest + 256.0 * second) / 2f64.powi(24);
            low.range += MIDDLE * (257.0 * lowest.abs() + 256.0 * second.abs()) / 2f64.powi(24);
            low.cut += (0.5 + 2f64.powi(-8)) * f64::from(tap.abs()) / 2f64.powi(24);
        }
        low
    }
}

/// A row and a column of taps.
type Product = (Vec<f64>, Vec<f64>);

/// Sums of products that are the same filter, each with how far its taps may be from those of the
/// given one. Twice `r c + s d` is `(r + s)(c + d) + (r - s)(c - d)`: where two products are alike
/// but for their sign, as in a difference of Gaussians, one factor of each of the new ones is
/// small, and so is what is lost of it.
fn mixed(products: Vec<Product>) -> Vec<(Vec<Product>, f64)> {
    let mut all = Vec::with_capacity(2);
    if let [(r, c), (s, d)] = &products[..] {
        let joined = |a: &[f64], b: &[f64], factor: f64| -> Vec<f64> {
            a.iter().zip(b).map(|(a, b)| a + factor * b).collect()
        };
        let half = |taps: Vec<f64>| -> Vec<f64> { taps.into_iter().map(|tap| 0.5 * tap).collect() };
        let weight = |taps: &[f64]| taps.iter().map(|tap| tap.abs()).sum::<f64>();
        // Each tap of a factor is rounded once, and so are products and sums as they are compared.
        let lost = 8.0 * f64::EPSILON * (weight(r) + weight(s)) * (weight(c) + weight(d));
        let sums = (half(joined(r, s, 1.0)), joined(c, d, 1.0));
        all.push((vec![sums, (half(joined(r, s, -1.0)), joined(c, d, -1.0))], lost));
    }
    all.push((products, 0.0));
    all
}

impl Term {
    /// So many forms of a row and a column: what the one is multiplied by, the other is divided by.
    /// Of some, more is lost as digits are left out than of others, by chance.
    fn forms(row: &[f64], column: &[f64], factors: usize) -> Vec<Self> {
        let times = |taps: &[f64], factor: f64| taps.iter().map(|&tap| factor * tap).collect();
        if let &[tap] = row {
            return vec![Self {
                row: vec![1.0],
                column: times(column, tap),
                whole: RowDigits::one(),
            }];
        }
        let form = |step: usize| {
            let factor = 2f64.powf(step as f64 / factors as f64);
            let row: Vec<f64> = times(row, factor);
            let whole = RowDigits::new(&row)?;
            Some(Self { row, column: times(column, 1.0 / factor), whole })
        };
        (0..factors).filter_map(form).collect()
    }

    /// With so many bits of a joined sum behind the point, if there is room.
    fn with_bits(&self, shift: i32) -> Option<(TermDigits, Part)> {
        let Self { row, column, whole } = self;
        let weight = |taps: &[f64]| taps.iter().map(|tap| tap.abs()).sum::<f64>();
        let (row_weight, column_weight) = (weight(row), weight(column));
        let sum = |taps: &[i32]| taps.iter().map(|&tap| i64::from(tap)).sum::<i64>();
        let &RowDigits { taps: ref row_taps, tap_bits: row_bits, sum_bits: bits } = whole;
        let more = bits + 16 - row_bits;
        let column_bits = shift + 24 - bits;
        if greatest(column) * 2f64.powi(column_bits) > GREATEST {
            return None;
        }
        let column_taps = rounded(column, column_bits);
        // Whether row sums are whole bytes, of which nothing is cut off.
        let is_byte = row.len() == 1;
        // No number is negative: what the negative taps can make is added.
        let negative: i64 = row_taps.iter().map(|&tap| i64::from(tap.min(0))).sum();
        let moved = match is_byte {
            true => 0,
            false => (-255.0 * negative as f64 * 2f64.powi(more - 16)).ceil() as i64 + 1,
        };
        // And half of what is cut off, as far as the second digit's sums have bits for it; else the
        // column's sums take it into account.
        let half = if is_byte || more > 7 { 0 } else { 128 };
        let short = if is_byte || half > 0 { 0.0 } else { 0.5 };

        let unit = 2f64.powi(shift);
        let lost = |taps: &[f64], whole: &[i32], bits: i32| -> (f64, f64) {
            let each = || {
                taps.iter()
                    .zip(whole)
                    .map(|(tap, &whole)| tap - f64::from(whole) * 2f64.powi(-bits))
            };
            (each().sum(), each().map(f64::abs).sum())
        };
        let (row_middle, row_lost) = lost(row, row_taps, row_bits);
        let (column_middle, column_lost) = lost(column, &column_taps, column_bits);
        // What a row of bytes of 127.5 makes, over the whole taps.
        let row_sum = MIDDLE * sum(row_taps) as f64 * 2f64.powi(-row_bits);
        // The other two bytes of a row sum are 0 if it is a byte.
        let low = if is_byte { Low::default() } else { Low::new(&column_taps) };
        let part = Part {
            error: unit * MIDDLE * (column_weight * row_lost + column_lost * row_weight)
                + low.cut
                + low.range,
            middle: unit
                * (column.iter().sum::<f64>() * MIDDLE * row_middle + column_middle * row_sum)
                + low.middle,
            moved: (moved as f64 - short) * sum(&column_taps) as f64 / 2f64.powi(24),
        };
        let joining = Joining { start: ((256 * moved + half) >> more) as u32 as i32, more };
        Some((TermDigits { row: row_taps.clone(), column: column_taps, joining }, part))
    }
}

impl ProductDigits {
    /// The taps of a filter for bytes, or why they have no such form.
    ///
    /// Let `r` and `c` be the taps of a term's row and column, and all of it be counted in units of
    /// a joined sum, of which `2^shift` are one step of a byte. Between a sum over the exact taps
    /// and the joined one lie, for each term:
    /// - the row's taps, rounded: `sum |c| * sum |r's error| * 127.5`, if what they do to bytes of
    ///   127.5 is added;
    /// - a row sum, cut to 24 bits: half of its last bit, and 2^-8 of it for the lowest digit's
    ///   sums that are shifted down; nothing for a row of one tap, whose sums are the bytes (the
    ///   tap itself goes to the column);
    /// - the column's taps, rounded: their error times half of the row sums' range;
    /// - the products of low digits that are left out: bytes of a row sum are 127.5 and up to as
    ///   much more or less, so half of the most that those products can be, if their middle is
    ///   added;
    ///
    /// and, once for all of them:
    /// - the lowest weight's sums, shifted down: half a unit;
    /// - the factor of a value itself, where a filter has one beside the products, rounded: its
    ///   error times half of a byte's range;
    /// - taps of a filter that are not quite the products of rows and columns.
    pub(crate) fn new(filter: &Filter) -> Result<Self, Why> {
        /// So many taps are gone through for the best form.
        const TAPS: usize = 1 << 14;
        Self::of_forms(filter, (TAPS / (filter.cols() + filter.rows())).clamp(32, 1024))
    }

    /// The best of so many forms. All serve; a millisecond for 500 of 17 by 17 taps finds one that
    /// leaves a few results fewer uncertain.
    pub(crate) fn of_forms(filter: &Filter, factors: usize) -> Result<Self, Why> {
        let terms = filter.products();
        if !(1..=MAX_TERMS).contains(&terms.len()) {
            return Err(Why::NOT_SEPARABLE);
        }
        let (point, apart) = match (filter.sum(), filter.dense_f64()) {
            (Some(sum), _) => (sum.point, crate::round::terms_loss(filter, sum)),
            (None, Some(taps)) => (0.0, crate::round::products_loss(taps, terms[0].0, terms[0].1)),
            (None, None) => (0.0, 0.0),
        };
        let (cols, rows) = (filter.cols(), filter.rows());
        if cols.max(rows) > LIMIT {
            return Err(
                format!("{cols}x{rows} taps, the limit is {LIMIT} in each direction").into()
            );
        }
        // What a joined sum can be over bytes, in units of 255; and room for taps that are not
        // quite the products.
        let weight = filter.weight() + apart;
        let pairs =
            terms.into_iter().map(|(row, column)| (row.to_vec(), column.to_vec())).collect();
        // A mean's taps are rounded to f64, and so are products of taps.
        let others = 255.0 * (apart + 4.0 * f64::EPSILON * weight);
        let with_bits = |(terms, lost): (Vec<Product>, f64)| {
            let forms: Vec<_> =
                terms.iter().map(|(row, column)| Term::forms(row, column, factors)).collect();
            let bounds = (weight, others + 255.0 * lost);
            let of_bits = |shift| Self::with_bits(&forms, point, shift, bounds);
            (1..=MAX_BITS).rev().filter_map(of_bits).take(SHIFTS).collect::<Vec<_>>()
        };
        mixed(pairs)
            .into_iter()
            .flat_map(with_bits)
            .min_by(|a, b| a.share().total_cmp(&b.share()))
            .ok_or_else(|| "its taps cannot be scaled to integers: too large for u8 results, or too different in size".into())
    }

    /// With so many bits behind the point, if there is room, and if not too many results are
    /// uncertain. The filter's weight says how great sums are, and `others` is an error of theirs
    /// that does not depend on the bits.
    fn with_bits(
        terms: &[Vec<Term>],
        point: f64,
        shift: i32,
        (weight, others): (f64, f64),
    ) -> Option<Self> {
        // In units of a joined sum.
        let unit = 2f64.powi(shift);
        let whole_point = (point * unit).round();
        let point_lost = point * unit - whole_point;
        let mut error = MIDDLE * point_lost.abs() + 0.5 + unit * others;
        let (mut middle, mut moved_sum) = (MIDDLE * point_lost + 0.5, 0.0);
        let mut wholes = Vec::with_capacity(terms.len());
        for forms in terms {
            let (whole, part) = forms
                .iter()
                .filter_map(|term| term.with_bits(shift))
                .min_by(|(_, a), (_, b)| a.error.total_cmp(&b.error))?;
            wholes.push(whole);
            error += part.error;
            middle += part.middle;
            moved_sum += part.moved;
        }
        // All of this is in f64, and the middle is rounded.
        let error = error * (1.0 + 1e-9) + 0.51;
        let half = 2f64.powi(shift - 1);
        if error >= half / 2.0 {
            return None;
        }
        let near = error as i64 + 1;
        let start = (middle + half + near as f64 - moved_sum).round() as i64;
        // Sums on the way there may be greater: what they have too much for 32 bits is taken off
        // again.
        let greatest_sum = 255.0 * weight * unit + half + 2.0 * near as f64 + error;
        let start = i32::try_from(start).ok().filter(|_| greatest_sum < 2f64.powi(31))?;
        Some(Self { terms: wholes, start, shift, near: near as i32, point: whole_point as i32 })
    }

    /// The share of results that are uncertain if sums are spread evenly.
    pub(crate) fn share(&self) -> f64 {
        2.0 * f64::from(self.near) / 2f64.powi(self.shift)
    }
}

impl Fact for Option<ProductDigits> {
    /// `None` if the taps have no such form.
    fn of(filter: &Filter) -> Self {
        ProductDigits::new(filter).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(filter: &Filter) -> ProductDigits {
        ProductDigits::new(filter).unwrap()
    }

    /// What the kernel makes of a window of bytes, row by row: the joined sum, by its own
    /// arithmetic.
    fn joined(whole: &ProductDigits, window: &[u8]) -> i32 {
        let mut sums = [0, whole.start];
        let mut greatest = 0;
        for term in &whole.terms {
            for (line, &down) in window.chunks(term.row.len()).zip(&term.column) {
                let digits = |number: u32| -> i32 {
                    line.iter()
                        .zip(&term.row)
                        .map(|(&byte, &tap)| i32::from(byte) * i32::from(digit(tap, number)))
                        .sum()
                };
                let Joining { more, start } = term.joining;
                let lower = (digits(1).wrapping_add(start) << more)
                    .wrapping_add(digits(0) >> (8 - more).max(0));
                let number = (digits(2).wrapping_mul(256 << more)).wrapping_add(lower) as u32;
                // Not beyond 32 bits, nor negative: the sum itself says so.
                let exact: i64 = line
                    .iter()
                    .zip(&term.row)
                    .map(|(&byte, &tap)| i64::from(byte) * i64::from(tap))
                    .sum();
                let expected = (exact << more >> 8) + (i64::from(start as u32) << more);
                assert!((0..1 << 32).contains(&expected), "{expected}");
                assert!((i64::from(number) - expected).abs() <= 1, "{number}, {expected}");
                let bytes = number.to_le_bytes();
                for d in 0..3 {
                    for e in 0..3 {
                        let product = i32::from(digit(down, d as u32)) * i32::from(bytes[e + 1]);
                        match d + e {
                            2 => sums[0] += product,
                            3 => sums[1] = sums[1].wrapping_add(product),
                            4 => greatest += product,
                            _ => {}
                        }
                    }
                }
            }
        }
        let centre = window[window.len() / 2];
        sums[1]
            .wrapping_add(sums[0] >> 8)
            .wrapping_add(greatest << 8)
            .wrapping_add(whole.point * i32::from(centre))
    }

    #[test]
    fn joined_sums_are_as_near_as_the_bound_says() {
        let mut state = 1u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let mut nearest: f64 = 0.0;
        for text in [
            "gaussian:sigma=0.8",
            "gaussian:sigma=2",
            "gaussian:sigma=5",
            "box:size=7",
            "taps:-0.25 0.5 1 0.5 -0.25",
            "gaussian:sigma=12",
            "unsharp:sigma=2,amount=1.7",
            "unsharp:sigma=12",
            "log:sigma=1.5",
            "dog:sigma=1",
            "dog:sigma=2",
            "taps:0.25;0.5;-0.25;0.4",
            "taps:0.9 0.05 0.05",
            "box:cols=1,rows=9",
        ] {
            let filter: Filter = text.parse().unwrap();
            let pair = whole(&filter);
            let (cols, count) = (filter.cols(), filter.cols() * filter.rows());
            for turn in 0..60 {
                // Bytes that make what is cut off as great as it can be, too.
                let window: Vec<u8> = (0..count)
                    .map(|i| match turn % 6 {
                        0 => 255,
                        1 => {
                            if filter.tap(i / cols, i % cols) > 0.0 {
                                255
                            } else {
                                0
                            }
                        }
                        2 => {
                            if digit(pair.terms[0].row[i % cols], 0) > 0 {
                                255
                            } else {
                                0
                            }
                        }
                        3 => {
                            if digit(pair.terms[0].column[i / cols], 0) > 0 {
                                255
                            } else {
                                0
                            }
                        }
                        _ => random(),
                    })
                    .collect();
                let exact: f64 =
                    (0..count).map(|i| filter.tap(i / cols, i % cols) * f64::from(window[i])).sum();
                let unit = 2f64.powi(pair.shift);
                let off = f64::from(joined(&pair, &window))
                    - (exact * unit + unit / 2.0 + f64::from(pair.near));
                assert!(
                    off.abs() <= f64::from(pair.near) && off.abs() < unit,
                    "{text}: off by {off}, bound {}",
                    pair.near
                );
                nearest = nearest.max(off.abs() / f64::from(pair.near));
            }
            assert!(pair.share() < 4e-3, "{text}: {}", pair.share());
        }
        // A bound that nothing comes near would be worth little.
        assert!(nearest > 0.2, "{nearest}");
    }

    #[test]
    fn filters_that_have_no_such_form() {
        for text in ["taps:1e9", "box:cols=3,rows=1025", "box:cols=1025,rows=1", "sharpen"] {
            assert!(ProductDigits::new(&text.parse().unwrap()).is_err(), "{text}");
        }
    }
}
