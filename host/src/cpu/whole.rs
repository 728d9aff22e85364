//! A row pass over bytes in whole numbers, where the results become bytes again.
//!
//! A tap is rounded to `(2^shift * high + low) * unit`, both parts of 16 bits. One instruction
//! multiplies two such numbers with two pixels and adds both products to a sum of 32 bits
//! (`vpdpwssd`; else `vpmaddwd`, and an addition), so the row is laid out in pairs of pixels that
//! lie under neighbouring taps. Both parts of a sum are exact, and nothing is rounded until they
//! are joined to an f32: far fewer results are uncertain than after sums in f32 (`RowPass` in
//! `host/src/round/bound.rs`).
//!
//! Where it makes sums of many taps smaller, and so their roundings, pixels are taken less
//! [`MIDDLE`]: sums begin at as much times the taps. The column pass's sums then lack what [`lack`]
//! says. So it is where a column has no row beside it.
//!
//! ```text
//! for each tile of N vectors:
//!     for each pair of taps:
//!         for each vector:
//!             load it from the pairs                         unaligned
//!             sum of the high parts += pixels * taps         exact
//!             sum of the low parts  += pixels * taps         exact
//!     out = 2^shift * unit * high + unit * low               rounded three times
//! ```

#![expect(
    clippy::needless_range_loop,
    reason = "an index says which register; iterators do not always leave them there"
)]

use super::tile::SLACK;
use crate::simd::{Isa, Lanes, Pairs, Vectorized};
use crate::whole::row::WholeRow;

impl WholeRow {
    /// How many pairs a row of so many sums reads, if its pixels have so many channels.
    pub(super) fn pairs_read(&self, len: usize, channels: usize) -> usize {
        len + SLACK + 2 * (self.taps.len() - 1) * channels
    }
}

/// Lays out a row as pairs: each element, and the one `step` further.
pub(super) struct Pair<'a> {
    pub(super) values: &'a [u8],
    pub(super) step: usize,
    pub(super) pairs: &'a mut [u32],
}

impl Vectorized for Pair<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let both = self.values.iter().zip(&self.values[self.step..]);
        for (pair, (&first, &second)) in self.pairs.iter_mut().zip(both) {
            *pair = u32::from(first) | u32::from(second) << 16;
        }
    }
}

/// The sums of a row.
pub(super) struct RowSums<'a> {
    pub(super) row: &'a WholeRow,
    pub(super) pairs: &'a [u32],
    /// Pairs between neighbouring pixels.
    pub(super) channels: usize,
    /// The sums; those after `len` are overwritten, as far as [`SLACK`].
    pub(super) out: &'a mut [f32],
    pub(super) len: usize,
}

impl Vectorized for RowSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        assert!(
            self.row.pairs_read(self.len, self.channels) <= self.pairs.len()
                && self.len + SLACK <= self.out.len()
        );
        // SAFETY: a tile ends at most SLACK after the row, where there are pairs and room, as is
        // asserted; see `pairs_read`.
        unsafe {
            // Two sums for each vector, and the taps: that fits into 32 registers of the one kind,
            // and 16 of the other.
            match (L::LEN, L::Pairs::fuses()) {
                (16, true) => self.tiles::<L, 8, true>(),
                (16, false) => self.tiles::<L, 8, false>(),
                _ => self.tiles::<L, 4, false>(),
            }
        }
    }
}

impl RowSums<'_> {
    /// # Safety
    /// `len` rounded up to whole tiles of `N` vectors can be written, and as many pairs can be read
    /// from each pair of taps on.
    #[inline(always)]
    unsafe fn tiles<L: Lanes, const N: usize, const FUSED: bool>(self) {
        const { assert!(N * L::LEN <= SLACK) };
        let Self { row, pairs, channels, out, len } = self;
        // SAFETY: the caller's promise; this is in `Vectorized::run`.
        unsafe {
            let units = row.units.map(|unit| L::splat(unit));
            let start = row.start.map(|start| [L::Pairs::splat(start); N]);
            for at in (0..len).step_by(N * L::LEN) {
                let [high, low] =
                    tile::<L, N, 2, FUSED>(&row.taps, start, pairs.as_ptr().add(at), channels);
                for v in 0..N {
                    let low = L::of_ints(low[v]).mul_add(units[1], L::splat(0.0));
                    L::of_ints(high[v])
                        .mul_add(units[0], low)
                        .store(out.as_mut_ptr().add(at + v * L::LEN));
                }
            }
        }
    }
}

/// Adds products to sums of `N` vectors of results, one for each part of the taps.
///
/// # Safety
/// This is in `Vectorized::run`; `N` vectors can be read from each pair of taps on; the processor
/// has the instruction if `FUSED`.
#[inline(always)]
unsafe fn tile<L: Lanes, const N: usize, const PARTS: usize, const FUSED: bool>(
    taps: &[[u32; PARTS]],
    mut sums: [[L::Pairs; N]; PARTS],
    mut from: *const u32,
    channels: usize,
) -> [[L::Pairs; N]; PARTS] {
    // SAFETY: the caller's promise.
    unsafe {
        for taps in taps {
            let taps = taps.map(|pair| L::Pairs::splat(pair));
            for v in 0..N {
                let pixels = L::Pairs::load(from.add(v * L::LEN));
                for part in 0..PARTS {
                    sums[part][v] = pixels.dot::<FUSED>(taps[part], sums[part][v]);
                }
            }
            // Beyond the last pair of taps nothing is read.
            from = from.wrapping_add(2 * channels);
        }
        sums
    }
}

/// Digits of a whole number, and the bits of each but the last.
pub(super) const DIGITS: usize = 3;
pub(super) const DIGIT_BITS: u32 = 15;

/// Taps that are summed up together: 32 bits have room for the products of so many digits with
/// pixels.
const DIGIT_BLOCK: usize = 512;

/// The greatest sum of the magnitudes of a row of whole taps.
const WEIGHT: u64 = 1 << 37;

/// A row of whole taps in signed digits. Sums of each digit over pixels are exact, and [`carried`]
/// makes them digits again.
pub(super) struct DigitRow {
    /// Each digit of two neighbouring taps. After the last tap comes a zero.
    taps: Vec<[u32; DIGITS]>,
    /// The digits of the sum over pixels of 127.5, rounded down.
    middle: [i32; DIGITS],
}

impl DigitRow {
    pub(super) fn new(taps: &[i64]) -> Self {
        const {
            // Products of pixels with the lower digits, a sum's digits so far, and what is carried.
            let low = DIGIT_BLOCK << (DIGIT_BITS - 1);
            let high = (WEIGHT >> (2 * DIGIT_BITS)) as usize + DIGIT_BLOCK;
            assert!(
                255 * low + (3 << 16) <= i32::MAX as usize
                    && 255 * high + (3 << 16) <= i32::MAX as usize
            );
        };
        let pair = |pair: &[i64]| {
            let (first, next) = (digits(pair[0]), digits(pair.get(1).copied().unwrap_or(0)));
            std::array::from_fn(|digit| {
                u32::from(first[digit] as u16) | u32::from(next[digit] as u16) << 16
            })
        };
        Self { taps: taps.chunks(2).map(pair).collect(), middle: digits(Self::middle(taps)) }
    }

    /// The sum over pixels of 127.5, rounded down.
    pub(super) fn middle(taps: &[i64]) -> i64 {
        (255 * taps.iter().sum::<i64>()).div_euclid(2)
    }

    /// Pairs of taps that are summed up together, and the first tap of each block.
    fn blocks(&self) -> impl Iterator<Item = (usize, &[[u32; DIGITS]])> {
        let blocks = self.taps.chunks(DIGIT_BLOCK / 2).enumerate();
        blocks.map(|(number, taps)| (number * DIGIT_BLOCK, taps))
    }

    /// The sums over a row of pixels, less the middle, in digits that are yet to be carried.
    /// `pairs` begin under the first result's first tap, `channels` of them between neighbouring
    /// pixels. For each digit, `out` has `len` sums, and [`SLACK`] more that are overwritten.
    pub(super) fn sums(
        &self,
        isa: Isa,
        pairs: &[u32],
        channels: usize,
        out: &mut [u32],
        len: usize,
    ) {
        for (first, taps) in self.blocks() {
            let start =
                (first == 0).then_some(self.middle.map(|digit| digit.wrapping_neg() as u32));
            let mut out = out.chunks_exact_mut(len + SLACK);
            let out = std::array::from_fn(|_| out.next().unwrap_or_default());
            isa.run(DigitSums {
                taps,
                pairs: &pairs[first * channels..],
                channels,
                start,
                out,
                len,
            });
        }
    }
}

/// A whole number in digits. All but the last have at most half of their range in magnitude.
fn digits(mut number: i64) -> [i32; DIGITS] {
    std::array::from_fn(|digit| {
        let half = 1 << (DIGIT_BITS - 1);
        let rest =
            if digit + 1 < DIGITS { ((number + half) & (2 * half - 1)) - half } else { number };
        number = (number - rest) >> DIGIT_BITS;
        rest as i32
    })
}

/// The digits of the number that sums of digits make.
#[inline(always)]
pub(super) fn carried([low, middle, high]: [i32; DIGITS]) -> [i32; DIGITS] {
    const HALF: i32 = 1 << (DIGIT_BITS - 1);
    let carry = (low + HALF) >> DIGIT_BITS;
    let middle = middle + carry;
    let next = (middle + HALF) >> DIGIT_BITS;
    [low - (carry << DIGIT_BITS), middle - (next << DIGIT_BITS), high + next]
}

/// The sums of each digit of a block of taps.
struct DigitSums<'a> {
    taps: &'a [[u32; DIGITS]],
    pairs: &'a [u32],
    channels: usize,
    /// What sums begin at. `None` if they go on from those in `out`.
    start: Option<[u32; DIGITS]>,
    out: [&'a mut [u32]; DIGITS],
    len: usize,
}

impl Vectorized for DigitSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let read = self.len + SLACK + 2 * (self.taps.len() - 1) * self.channels;
        assert!(
            read <= self.pairs.len() && self.out.iter().all(|out| self.len + SLACK <= out.len())
        );
        // SAFETY: as for `RowSums`.
        unsafe {
            match (L::LEN, L::Pairs::fuses()) {
                (16, true) => self.tiles::<L, 8, true>(),
                (16, false) => self.tiles::<L, 8, false>(),
                _ => self.tiles::<L, 3, false>(),
            }
        }
    }
}

impl DigitSums<'_> {
    /// # Safety
    /// As for [`RowSums::tiles`].
    #[inline(always)]
    unsafe fn tiles<L: Lanes, const N: usize, const FUSED: bool>(self) {
        const { assert!(N * L::LEN <= SLACK) };
        let Self { taps, pairs, channels, start, mut out, len } = self;
        if start.is_none() {
            carry(&mut out);
        }
        for at in (0..len).step_by(N * L::LEN) {
            // SAFETY: the caller's promise; this is in `Vectorized::run`.
            unsafe {
                let mut begin = start.unwrap_or_default().map(|start| [L::Pairs::splat(start); N]);
                if start.is_none() {
                    for digit in 0..DIGITS {
                        for v in 0..N {
                            begin[digit][v] =
                                L::Pairs::load(out[digit].as_ptr().add(at + v * L::LEN));
                        }
                    }
                }
                let sums =
                    tile::<L, N, DIGITS, FUSED>(taps, begin, pairs.as_ptr().add(at), channels);
                for digit in 0..DIGITS {
                    let out = out[digit].as_mut_ptr().add(at);
                    for v in 0..N {
                        sums[digit][v].store(out.add(v * L::LEN));
                    }
                }
            }
        }
    }
}

/// Makes sums of digits digits again.
#[inline(always)]
fn carry([low, middle, high]: &mut [&mut [u32]; DIGITS]) {
    for ((low, middle), high) in low.iter_mut().zip(middle.iter_mut()).zip(high.iter_mut()) {
        let digits = carried([*low as i32, *middle as i32, *high as i32]);
        [*low, *middle, *high] = digits.map(|digit| digit as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Filter;
    use crate::whole::row::{LONG, MIDDLE};

    /// Numbers that look random, below 2^32.
    fn random(i: usize) -> u32 {
        (i as u32)
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b1)
            .rotate_left(13)
            .wrapping_mul(0x85eb_ca6b)
    }

    /// Every sum is as near to the exact one as the row says, on each set of instructions, and the
    /// same bits.
    #[test]
    fn sums_are_as_exact_as_stated() {
        let taps = |count: usize| {
            (0..count).map(|i| f64::from(random(i)) / f64::from(1u32 << 31) - 1.0).collect()
        };
        let mut rows: Vec<Vec<f64>> = [1, 2, 3, 7, 16, 255, 256, 257, 1601].map(taps).into();
        for sigma in [1.0, 20.0, 200.0] {
            let filter: Filter = format!("gaussian:sigma={sigma}").parse().unwrap();
            rows.push(filter.separated().unwrap().0.to_vec());
        }
        rows.extend([
            vec![1.0; 9000],
            vec![-1e-9, 1.0, 1e9],
            vec![0.25, 0.5, 0.25],
            vec![1.0 / 3.0; 65000],
        ]);
        let contents: [fn(usize) -> u8; 3] =
            [|i| random(i) as u8, |_| 255, |i| 255 * (random(i) % 2) as u8];
        for taps in rows {
            let row = WholeRow::new(&taps, 1).unwrap();
            let rounded = (2.0 * row.greatest + 3.0 * row.greatest_low) * 2f64.powi(-24);
            let bound = 255.0 * (row.pixel * row.loss + rounded);
            for (channels, content) in
                [1, 3].into_iter().flat_map(|channels| contents.map(|content| (channels, content)))
            {
                const LEN: usize = 130;
                let count = row.pairs_read(LEN, channels);
                let values: Vec<u8> = (0..count + channels).map(content).collect();
                let mut first: Option<Vec<f32>> = None;
                for isa in Isa::all() {
                    let mut pairs = vec![0; count];
                    isa.run(Pair { values: &values, step: channels, pairs: &mut pairs });
                    let mut out = vec![f32::NAN; LEN + SLACK];
                    isa.run(RowSums {
                        row: &row,
                        pairs: &pairs,
                        channels,
                        out: &mut out,
                        len: LEN,
                    });
                    out.truncate(LEN);
                    for (at, sum) in out.iter().enumerate() {
                        let under = values[at..].iter().step_by(channels);
                        let pixels = under.map(|&value| f64::from(value) - row.middle);
                        let exact: f64 =
                            taps.iter().zip(pixels).map(|(tap, pixel)| tap * pixel).sum();
                        let error = (f64::from(*sum) - exact).abs();
                        // The sum that it is compared with is rounded too.
                        let slack = 1e-6 * bound
                            + 1e-12 * taps.iter().fold(0.0, |sum, tap| sum + 255.0 * tap.abs());
                        assert!(
                            error <= bound + slack,
                            "{} taps, {isa:?}: {error:e}, not {bound:e}",
                            taps.len()
                        );
                    }
                    assert_eq!(
                        *first.get_or_insert_with(|| out.clone()),
                        out,
                        "{} taps, {isa:?}",
                        taps.len()
                    );
                }
            }
        }
    }

    /// Rows of one block of taps and of several, with taps as great as they may be, and digits too.
    #[test]
    fn digits_are_exact() {
        const LEN: usize = 130;
        for cols in [1, 2, 7, DIGIT_BLOCK - 1, DIGIT_BLOCK, DIGIT_BLOCK + 1, 3 * DIGIT_BLOCK + 5] {
            let most = WEIGHT as i64 / cols as i64;
            let low = -(1 << (DIGIT_BITS - 1));
            let kinds: [&dyn Fn(usize) -> i64; 6] = [
                &|_| most,
                &|i| if i % 2 == 0 { most } else { -most },
                &|_| low.max(-most),
                &|_| ((low << DIGIT_BITS) + low).max(-most),
                &|i| if i == cols / 2 { WEIGHT as i64 } else { 0 },
                &|i| ((i128::from(random(i)) * i128::from(most)) >> 32) as i64,
            ];
            for (kind, tap) in kinds.into_iter().enumerate() {
                let taps: Vec<i64> = (0..cols).map(tap).collect();
                let row = DigitRow::new(&taps);
                for (channels, content) in
                    [1, 3].into_iter().flat_map(|channels| [(channels, 0), (channels, 255)])
                {
                    let pixel = |i: usize| if kind % 2 == 0 { content } else { random(i) as u8 };
                    let count = LEN + SLACK + cols * channels;
                    let values: Vec<u8> = (0..count + channels).map(pixel).collect();
                    let expected: Vec<i64> = (0..LEN)
                        .map(|at| {
                            let under = values[at..].iter().step_by(channels);
                            let sum: i64 = taps
                                .iter()
                                .zip(under)
                                .map(|(tap, &value)| tap * i64::from(value))
                                .sum();
                            sum - DigitRow::middle(&taps)
                        })
                        .collect();
                    for isa in Isa::all() {
                        let (mut pairs, mut out) =
                            (vec![0; count], vec![0; DIGITS * (LEN + SLACK)]);
                        isa.run(Pair { values: &values, step: channels, pairs: &mut pairs });
                        row.sums(isa, &pairs, channels, &mut out, LEN);
                        for (at, expected) in expected.iter().enumerate() {
                            let sums =
                                std::array::from_fn(|digit| out[digit * (LEN + SLACK) + at] as i32);
                            let [low, middle, high] = carried(sums).map(i64::from);
                            assert!(
                                low.abs().max(middle.abs()) <= 1 << (DIGIT_BITS - 1)
                                    && high.abs() <= 1 << 15
                            );
                            let found = low + ((middle + (high << DIGIT_BITS)) << DIGIT_BITS);
                            assert_eq!(found, *expected, "{cols} taps, kind {kind}, {isa:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_f32_holds_is_exact() {
        for taps in
            [vec![0.25, 0.5, 0.25], vec![1.0, -2.0, 1.0], vec![65792.0], vec![1.0 / 1024.0; 64]]
        {
            let row = WholeRow::new(&taps, 1).unwrap();
            let values: Vec<u8> =
                (0..).map(|i| (i * 37 % 256) as u8).take(row.pairs_read(64, 1) + 1).collect();
            let mut pairs = vec![0; row.pairs_read(64, 1)];
            Isa::fastest().run(Pair { values: &values, step: 1, pairs: &mut pairs });
            let mut out = vec![0.0; 64 + SLACK];
            Isa::fastest().run(RowSums {
                row: &row,
                pairs: &pairs,
                channels: 1,
                out: &mut out,
                len: 64,
            });
            for (at, sum) in out.iter().take(64).enumerate() {
                let pixels = values[at..].iter().map(|&value| f64::from(value) - row.middle);
                let exact: f64 = taps.iter().zip(pixels).map(|(tap, pixel)| tap * pixel).sum();
                assert_eq!(f64::from(*sum), exact);
            }
            assert_eq!(row.loss, 0.0);
        }
        // No taps, or too many.
        assert!(WholeRow::new(&[2.0], 1).is_some() && WholeRow::new(&[1.0], 1).is_none());
        assert!(WholeRow::new(&[0.0; 5], 1).is_none());
        assert!(WholeRow::new(&[1.0], LONG).is_some_and(|row| row.middle == MIDDLE));
        assert!(
            WholeRow::new(&[1.0; 1 << 17], 1).is_none() && WholeRow::new(&[1e-40], 1).is_none()
        );
    }
}
