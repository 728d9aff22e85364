//! The engine's kernel: sums for a few rows of output at a time, in vectors, for the direct filter and for both passes of
//! a separable one.
//!
//! ```text
//! for each tile of R rows and V vectors:
//!     for each line under it, top to bottom:
//!         for each tap column, left to right:
//!             load V vectors of the line                  used for every one of the R rows
//!             for each of the R rows whose window has this line:
//!                 sums[row] += splat(tap) * vectors       fused
//! ```
//!
//! A sum thus meets its taps row by row, left to right, as in the twins. Of the R + rows - 1 lines, the first and the last
//! R - 1 lie under some of the rows' windows only.

use super::simd::{Lanes, Work};

/// Floats by which lines and sums may be read and written past their ends: the widest tile.
pub(super) const SLACK: usize = 128;

/// One call of the kernel: `outs.len()` rows of output, each of `len` sums.
pub(super) struct Tiles<'a, 'b> {
    /// Where the lines are.
    pub(super) ring: &'a [f32],
    /// Where in the ring each line begins: those under the first row's window, then one more for each further row.
    pub(super) lines: &'a [usize],
    /// Taps, row by row.
    pub(super) taps: &'a [f32],
    /// Tap columns.
    pub(super) cols: usize,
    /// Floats between the pixels under neighbouring taps.
    pub(super) step: usize,
    /// The rows of output: [`rows_at_once`] of them, or one.
    pub(super) outs: &'a mut [&'b mut [f32]],
    /// Sums in each row. Outputs longer than this by [`SLACK`] are written past it.
    pub(super) len: usize,
    /// Whether to go on from the sums that the outputs hold, rather than from zero.
    pub(super) resume: bool,
    /// Whether to sum each row of taps for itself and then add these up: fewer roundings upon each other.
    pub(super) by_rows: bool,
}

/// The rows of output that are made together under a window of so many rows: not more than those, so that the first and the
/// last lines are different ones.
pub(super) fn rows_at_once(tap_rows: usize) -> usize {
    match tap_rows {
        0..=2 => 1,
        3 => 3,
        _ => 4,
    }
}

impl Work for Tiles<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let rows = self.taps.len() / self.cols;
        let count = self.outs.len();
        assert_eq!((self.lines.len(), rows * self.cols), (rows + count - 1, self.taps.len()));
        let reach = self.len + (self.cols - 1) * self.step + SLACK;
        assert!(self.lines.iter().all(|line| line + reach <= self.ring.len()));
        assert!(self.outs.iter().all(|out| out.len() >= self.len) && (count == 1 || rows >= count));
        // SAFETY: the lines are in the ring, as far as a tile that ends at most SLACK behind the row's end reads.
        unsafe {
            match (count, self.by_rows) {
                (1, false) => self.all::<L, 1, W, false>(rows),
                (3, false) => self.all::<L, 3, V, false>(rows),
                (4, false) => self.all::<L, 4, V, false>(rows),
                (1, true) => self.all::<L, 1, V, true>(rows),
                (3, true) => self.all::<L, 3, V, true>(rows),
                (4, true) => self.all::<L, 4, V, true>(rows),
                _ => unreachable!("rows_at_once gives 1, 3 or 4"),
            }
        }
    }
}

impl Tiles<'_, '_> {
    /// Every tile of the rows.
    ///
    /// # Safety
    /// The lines can be read `len + (cols - 1) * step + SLACK` floats from their begin, there are `rows + R - 1` of them,
    /// `R` outputs of at least `len` floats, and `rows >= R`.
    #[inline(always)]
    unsafe fn all<L: Lanes, const R: usize, const V: usize, const APART: bool>(self, rows: usize) {
        const { assert!(V * L::LEN <= SLACK) };
        let width = V * L::LEN;
        let slack = self.outs.iter().all(|out| out.len() >= self.len + SLACK);
        assert!(slack || (self.len >= width && !self.resume), "rows this short, or resumed, have outputs with slack");
        let mut x = 0;
        while x < self.len {
            // Without slack, the last tile ends where the row ends, and makes some sums once more.
            let at = if slack || x + width <= self.len { x } else { self.len - width };
            // SAFETY: the tile's columns are below `len + width <= len + SLACK`, or below `len`. Lines 0 to rows + R - 2
            // are used, and of the taps only those that lie on each.
            unsafe {
                let mut sums = [[L::splat(0.0); V]; R];
                if self.resume {
                    for r in 0..R {
                        for v in 0..V {
                            sums[r][v] = L::load(self.outs[r].as_ptr().add(at + v * L::LEN));
                        }
                    }
                }
                if R > 1 {
                    self.line::<L, R, V, 0, 1, APART>(0, at, &mut sums);
                }
                if R > 2 {
                    self.line::<L, R, V, 0, 2, APART>(1, at, &mut sums);
                }
                if R > 3 {
                    self.line::<L, R, V, 0, 3, APART>(2, at, &mut sums);
                }
                for line in R - 1..rows {
                    self.line::<L, R, V, 0, R, APART>(line, at, &mut sums);
                }
                if R > 1 {
                    self.line::<L, R, V, 1, R, APART>(rows, at, &mut sums);
                }
                if R > 2 {
                    self.line::<L, R, V, 2, R, APART>(rows + 1, at, &mut sums);
                }
                if R > 3 {
                    self.line::<L, R, V, 3, R, APART>(rows + 2, at, &mut sums);
                }
                for r in 0..R {
                    for v in 0..V {
                        sums[r][v].store(self.outs[r].as_mut_ptr().add(at + v * L::LEN));
                    }
                }
            }
            x += width;
        }
    }

    /// Adds a line to the sums of rows `LO` to `HI`.
    ///
    /// # Safety
    /// As for `all`; output row `r` has its tap row `line - r` on this line, for every `r` in `LO..HI`.
    #[inline(always)]
    unsafe fn line<L: Lanes, const R: usize, const V: usize, const LO: usize, const HI: usize, const APART: bool>(
        &self,
        line: usize,
        at: usize,
        totals: &mut [[L; V]; R],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = if APART { [[L::splat(0.0); V]; R] } else { *totals };
            let values_at = self.ring.as_ptr().add(*self.lines.get_unchecked(line) + at);
            let taps = self.taps.as_ptr().add((line - LO) * self.cols);
            for col in 0..self.cols {
                let mut values = [L::splat(0.0); V];
                for v in 0..V {
                    values[v] = L::load(values_at.add(col * self.step + v * L::LEN));
                }
                for r in LO..HI {
                    let tap = L::splat(*taps.add(col).sub((r - LO) * self.cols));
                    for v in 0..V {
                        sums[r][v] = tap.mul_add(values[v], sums[r][v]);
                    }
                }
            }
            for r in LO..HI {
                for v in 0..V {
                    totals[r][v] = if APART { totals[r][v].add(sums[r][v]) } else { sums[r][v] };
                }
            }
        }
    }
}
