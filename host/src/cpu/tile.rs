//! The engine's kernel: sums for a few rows of output at a time, in vectors, for the direct filter
//! and for both passes of a separable one.
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
//! The number of tap columns is not a compile-time constant: with 3 or 5, or 1 for the column pass,
//! the compiler moves loads ahead until the registers run out, and 5x5 taps take half as long
//! again.
//!
//! So a sum takes its taps row by row, left to right. Of the R + rows - 1 lines, the first and the
//! last R - 1 lie under the windows of only some rows.

#![expect(
    clippy::needless_range_loop,
    reason = "an index says which register; iterators do not always leave them there"
)]

pub(super) use crate::round::ROWS;
use crate::simd::{Float, Lanes, Vector, Vectorized};

/// Floats by which sums may be written past their ends: the widest tile.
pub(super) const SLACK: usize = 128;

/// Floats by which lines may be read past their ends: the widest tile and a vector.
pub(super) const MARGIN: usize = SLACK + 16;

/// The destination of the sums.
pub(super) enum Outs<'a, 'b, E> {
    /// As they are.
    Floats(&'a mut [&'b mut [E]]),
    /// With what they `lack`, rounded half to even and saturated. Columns of sums whose distance
    /// from an integer is `limit` or more are noted, of each row in ascending order. No sum is 2^31
    /// or more, or NaN. The sums go on from those in `from`, if there are any: as many rows.
    Bytes {
        rows: &'a mut [&'b mut [u8]],
        lack: E,
        limit: E,
        noted: &'a mut [Vec<usize>; ROWS],
        from: &'a [&'a [E]],
    },
}

impl<E: Float> Outs<'_, '_, E> {
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Floats(rows) => rows.len(),
            Self::Bytes { rows, .. } => rows.len(),
        }
    }

    /// The least length of a row.
    fn len(&self) -> usize {
        let least = match self {
            Self::Floats(rows) => rows.iter().map(|row| row.len()).min(),
            Self::Bytes { rows, from, .. } => {
                rows.iter().map(|row| row.len()).chain(from.iter().map(|row| row.len())).min()
            }
        };
        least.unwrap_or(0)
    }

    /// The sums that a tile starts with: its own floats to `resume`, the sums that bytes go on
    /// from, or zero. Its columns begin at `at`.
    ///
    /// # Safety
    /// There are `R` rows, and each has, from `at` on, as many floats as `V` vectors.
    #[inline(always)]
    unsafe fn start<L: Vector<Float = E>, const R: usize, const V: usize>(
        &self,
        at: usize,
        resume: bool,
    ) -> [[L; V]; R] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [[L::splat(E::default()); V]; R];
            match self {
                Self::Floats(outs) if resume => {
                    for r in 0..R {
                        for v in 0..V {
                            sums[r][v] =
                                L::load(outs.get_unchecked(r).as_ptr().add(at + v * L::LEN));
                        }
                    }
                }
                Self::Bytes { from, .. } if !from.is_empty() => {
                    for r in 0..R {
                        for v in 0..V {
                            sums[r][v] =
                                L::load(from.get_unchecked(r).as_ptr().add(at + v * L::LEN));
                        }
                    }
                }
                _ => {}
            }
            sums
        }
    }

    /// Stores all rows of a tile, as `store` does.
    ///
    /// # Safety
    /// There are `R` rows, and each has room for all sums from `at` on.
    #[inline(always)]
    unsafe fn store_all<L: Vector<Float = E>, const R: usize, const V: usize>(
        &mut self,
        columns: (usize, usize),
        sums: &[[L; V]; R],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            // Not a loop, so that the sums stay in registers.
            self.store(0, columns, &sums[0]);
            if R > 1 {
                self.store(1, columns, &sums[1 % R]);
            }
            if R > 2 {
                self.store(2, columns, &sums[2 % R]);
            }
            if R > 3 {
                self.store(3, columns, &sums[3 % R]);
            }
            if R > 4 {
                self.store(4, columns, &sums[4 % R]);
            }
            if R > 5 {
                self.store(5, columns, &sums[5 % R]);
            }
        }
    }

    /// Stores a row of a tile, of which the columns before `new` have been stored already.
    ///
    /// # Safety
    /// Row `r` exists, and has room for all sums from `at` on.
    #[inline(always)]
    unsafe fn store<L: Vector<Float = E>, const V: usize>(
        &mut self,
        r: usize,
        (at, new): (usize, usize),
        sums: &[L; V],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Floats(rows) => {
                    let out = rows.get_unchecked_mut(r).as_mut_ptr().add(at);
                    for v in 0..V {
                        sums[v].store(out.add(v * L::LEN));
                    }
                }
                Self::Bytes { rows, lack, limit, noted, .. } => {
                    let mut sums = *sums;
                    if *lack != E::default() {
                        for v in 0..V {
                            sums[v] = sums[v].add(L::splat(*lack));
                        }
                    }
                    let out = rows.get_unchecked_mut(r).as_mut_ptr().add(at);
                    let noted = noted.get_unchecked_mut(r);
                    round(&sums, L::splat(*limit), out, |column| {
                        if at + column >= new {
                            noted.push(at + column);
                        }
                    });
                }
            }
        }
    }
}

/// One call of the kernel: a few rows of output, each of `len` sums.
pub(super) struct Tiles<'a, 'b, E> {
    /// Where the lines are.
    pub(super) ring: &'a [E],
    /// Where in the ring each line begins: those under the first row's window, then one more for
    /// each further row.
    pub(super) lines: &'a [usize],
    /// Taps, row by row.
    pub(super) taps: &'a [E],
    /// Tap columns.
    pub(super) cols: usize,
    /// Floats between the pixels under neighbouring taps.
    pub(super) step: usize,
    /// The rows of output: [`rows_at_once`] of them, or one.
    pub(super) outs: Outs<'a, 'b, E>,
    /// Sums in each row. Outputs longer than this by [`SLACK`] are written past it.
    pub(super) len: usize,
    /// The stored pixels to prefetch, which are read next: a line for each row, and the bytes that
    /// one float is stored in.
    pub(super) ahead: ([*const u8; ROWS], usize),
    /// Whether to go on from the sums that the outputs hold, rather than from zero.
    pub(super) resume: bool,
    /// How many taps of a row, or of a column if it is the only one, to sum apart, to add these
    /// sums then: shorter chains of roundings. The first and the last block of a column are up to
    /// [`ROWS`] - 1 longer. All taps are taken in sequence if `usize::MAX`.
    pub(super) block: usize,
}

/// The rows of output that are computed together under a window of so many rows: at most as many,
/// so that the first and the last lines are different ones.
pub(super) fn rows_at_once(tap_rows: usize) -> usize {
    match tap_rows {
        0..=2 => 1,
        3 => 3,
        4 => 4,
        5 => 5,
        _ => ROWS,
    }
}

/// Vectors of the last tile of a row of which no more are left, where a tile has four: with six
/// rows their sums still keep the multipliers busy.
const HALF: usize = 2;

/// How a sum takes its taps: one after the other; blocks of each row apart; or blocks of a column.
type Mode = u8;
const IN_SEQUENCE: Mode = 0;
const BY_ROWS: Mode = 1;
const BY_BLOCKS: Mode = 2;

impl<E: Float> Vectorized for Tiles<'_, '_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let rows = self.taps.len() / self.cols;
        let count = self.outs.count();
        assert_eq!((self.lines.len(), rows * self.cols), (rows + count - 1, self.taps.len()));
        let reach = self.len + (self.cols - 1) * self.step + MARGIN;
        assert!(self.lines.iter().all(|line| line + reach <= self.ring.len()));
        assert!(self.outs.len() >= self.len && (count == 1 || rows >= count));
        assert!(
            !matches!(&self.outs, Outs::Bytes { from, .. } if !from.is_empty() && from.len() != count)
        );
        let mode = match (self.block, self.cols) {
            (usize::MAX, _) => IN_SEQUENCE,
            (_, 1) => BY_BLOCKS,
            _ => BY_ROWS,
        };
        // SAFETY: the lines are in the ring, as far as a tile that ends at most SLACK behind the
        // row's end reads.
        unsafe {
            match (count, mode) {
                (1, IN_SEQUENCE) => self.all::<E::Vector<L>, 1, W, IN_SEQUENCE>(rows),
                (3, IN_SEQUENCE) => self.all::<E::Vector<L>, 3, V, IN_SEQUENCE>(rows),
                (4, IN_SEQUENCE) => self.all::<E::Vector<L>, 4, V, IN_SEQUENCE>(rows),
                (5, IN_SEQUENCE) => self.all::<E::Vector<L>, 5, V, IN_SEQUENCE>(rows),
                (6, IN_SEQUENCE) => self.all::<E::Vector<L>, 6, V, IN_SEQUENCE>(rows),
                (1, BY_ROWS) => self.all::<E::Vector<L>, 1, W, BY_ROWS>(rows),
                (3, BY_ROWS) => self.all::<E::Vector<L>, 3, V, BY_ROWS>(rows),
                (4, BY_ROWS) => self.all::<E::Vector<L>, 4, V, BY_ROWS>(rows),
                (5, BY_ROWS) => self.all::<E::Vector<L>, 5, V, BY_ROWS>(rows),
                (6, BY_ROWS) => self.all::<E::Vector<L>, 6, V, BY_ROWS>(rows),
                (1, BY_BLOCKS) => self.all::<E::Vector<L>, 1, V, BY_BLOCKS>(rows),
                (3, BY_BLOCKS) => self.all::<E::Vector<L>, 3, V, BY_BLOCKS>(rows),
                (4, BY_BLOCKS) => self.all::<E::Vector<L>, 4, V, BY_BLOCKS>(rows),
                (5, BY_BLOCKS) => self.all::<E::Vector<L>, 5, V, BY_BLOCKS>(rows),
                (6, BY_BLOCKS) => self.all::<E::Vector<L>, 6, V, BY_BLOCKS>(rows),
                _ => unreachable!("rows_at_once gives 1, 3, 4, 5 or 6"),
            }
        }
    }
}

impl<E: Float> Tiles<'_, '_, E> {
    /// Every tile of the rows.
    ///
    /// # Safety
    /// The lines can be read `len + (cols - 1) * step + MARGIN` floats from their begin, there are
    /// `rows + R - 1` of them, `R` outputs of at least `len` floats, and `rows >= R`.
    #[inline(always)]
    unsafe fn all<L: Vector<Float = E>, const R: usize, const V: usize, const MODE: Mode>(
        mut self,
        rows: usize,
    ) {
        const { assert!(V * L::LEN <= SLACK) };
        let width = V * L::LEN;
        const { assert!(V.is_multiple_of(L::GROUP)) };
        let slack = matches!(self.outs, Outs::Floats(_)) && self.outs.len() >= self.len + SLACK;
        assert!(
            slack || (self.len >= width && !self.resume),
            "rows this short, or resumed, have outputs with slack"
        );
        let mut x = 0;
        while x < self.len {
            // Without slack, the last tile ends where the row ends, and computes some sums again.
            let at = if slack || x + width <= self.len { x } else { self.len - width };
            for ahead in self.ahead.0.into_iter().take(R) {
                for line in 0..(width * self.ahead.1).div_ceil(64) {
                    L::prefetch(ahead.wrapping_add(at * self.ahead.1 + line * 64));
                }
            }
            // SAFETY: the caller's promise; the tile's columns are below
            // `len + width <= len + SLACK`, or below `len`.
            unsafe {
                if V > HALF
                    && R == ROWS
                    && MODE == IN_SEQUENCE
                    && slack
                    && self.len - x <= HALF * L::LEN
                {
                    self.tile::<L, R, HALF, MODE>((at, x), rows);
                } else {
                    self.tile::<L, R, V, MODE>((at, x), rows);
                }
            }
            x += width;
        }
    }

    /// One tile, whose columns begin at `at`; those before `new` have been stored already.
    ///
    /// # Safety
    /// As for `all`; the tile's columns are below `len + SLACK`.
    #[inline(always)]
    unsafe fn tile<L: Vector<Float = E>, const R: usize, const V: usize, const MODE: Mode>(
        &mut self,
        (at, new): (usize, usize),
        rows: usize,
    ) {
        // SAFETY: the caller's promise. Lines 0 to rows + R - 2 are used, and of the taps only
        // those that lie on each.
        unsafe {
            let mut sums = self.outs.start::<L, R, V>(at, self.resume);
            // Blocks are added to the totals; else the sums go on from them.
            let mut totals = sums;
            if MODE == BY_BLOCKS {
                sums = [[L::splat(E::default()); V]; R];
            }
            self.upper_lines::<L, R, V, MODE>(at, &mut sums);
            let mut first = R - 1;
            loop {
                let end = if MODE == BY_BLOCKS {
                    rows.min(first.saturating_add(self.block))
                } else {
                    rows
                };
                for line in first..end {
                    self.line::<L, R, V, 0, R, MODE>(line, at, &mut sums);
                }
                first = end;
                if first == rows {
                    break;
                }
                for r in 0..R {
                    for v in 0..V {
                        totals[r][v] = totals[r][v].add(sums[r][v]);
                        sums[r][v] = L::splat(E::default());
                    }
                }
            }
            self.lower_lines::<L, R, V, MODE>(at, rows, &mut sums);
            if MODE == BY_BLOCKS {
                for r in 0..R {
                    for v in 0..V {
                        sums[r][v] = totals[r][v].add(sums[r][v]);
                    }
                }
            }
            self.outs.store_all((at, new), &sums);
        }
    }

    /// Adds the lines that lie under the first rows of output only.
    ///
    /// # Safety
    /// As for `tile`.
    #[inline(always)]
    unsafe fn upper_lines<
        L: Vector<Float = E>,
        const R: usize,
        const V: usize,
        const MODE: Mode,
    >(
        &self,
        at: usize,
        sums: &mut [[L; V]; R],
    ) {
        // SAFETY: the caller's promise: line `l` holds tap row `l - r` of each output row `r` up to
        // `l`.
        unsafe {
            if R > 1 {
                self.line::<L, R, V, 0, 1, MODE>(0, at, sums);
            }
            if R > 2 {
                self.line::<L, R, V, 0, 2, MODE>(1, at, sums);
            }
            if R > 3 {
                self.line::<L, R, V, 0, 3, MODE>(2, at, sums);
            }
            if R > 4 {
                self.line::<L, R, V, 0, 4, MODE>(3, at, sums);
            }
            if R > 5 {
                self.line::<L, R, V, 0, 5, MODE>(4, at, sums);
            }
        }
    }

    /// Adds the lines that lie under the last rows of output only.
    ///
    /// # Safety
    /// As for `tile`.
    #[inline(always)]
    unsafe fn lower_lines<
        L: Vector<Float = E>,
        const R: usize,
        const V: usize,
        const MODE: Mode,
    >(
        &self,
        at: usize,
        rows: usize,
        sums: &mut [[L; V]; R],
    ) {
        // SAFETY: the caller's promise: line `rows + l` holds tap row `rows + l - r` of each output
        // row `r` above `l`.
        unsafe {
            if R > 1 {
                self.line::<L, R, V, 1, R, MODE>(rows, at, sums);
            }
            if R > 2 {
                self.line::<L, R, V, 2, R, MODE>(rows + 1, at, sums);
            }
            if R > 3 {
                self.line::<L, R, V, 3, R, MODE>(rows + 2, at, sums);
            }
            if R > 4 {
                self.line::<L, R, V, 4, R, MODE>(rows + 3, at, sums);
            }
            if R > 5 {
                self.line::<L, R, V, 5, R, MODE>(rows + 4, at, sums);
            }
        }
    }

    /// Adds a line to the sums of rows `LO` to `HI`.
    ///
    /// # Safety
    /// As for `all`; output row `r` has its tap row `line - r` on this line, for every `r` in
    /// `LO..HI`.
    #[inline(always)]
    unsafe fn line<
        L: Vector<Float = E>,
        const R: usize,
        const V: usize,
        const LO: usize,
        const HI: usize,
        const MODE: Mode,
    >(
        &self,
        line: usize,
        at: usize,
        totals: &mut [[L; V]; R],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let values_at = self.ring.as_ptr().add(*self.lines.get_unchecked(line) + at);
            // A column's only line of taps, where a loop would cost registers.
            let cols = if MODE == BY_BLOCKS { 1 } else { self.cols };
            let taps = self.taps.as_ptr().add((line - LO) * cols);
            let mut first = 0;
            while first < cols {
                let end =
                    if MODE == BY_ROWS { cols.min(first.saturating_add(self.block)) } else { cols };
                let mut sums =
                    if MODE == BY_ROWS { [[L::splat(E::default()); V]; R] } else { *totals };
                for col in first..end {
                    // A vector that lies in two cache lines costs as much as four others: too much
                    // for a single row.
                    let values: [L; V] = if R == 1 {
                        L::load_shifted(values_at, col * self.step)
                    } else {
                        let mut values = [L::splat(E::default()); V];
                        for v in 0..V {
                            values[v] = L::load(values_at.add(col * self.step + v * L::LEN));
                        }
                        values
                    };
                    for r in LO..HI {
                        let tap = L::splat(*taps.add(col).sub((r - LO) * cols));
                        for v in 0..V {
                            sums[r][v] = tap.mul_add(values[v], sums[r][v]);
                        }
                    }
                }
                for r in LO..HI {
                    for v in 0..V {
                        totals[r][v] =
                            if MODE == BY_ROWS { totals[r][v].add(sums[r][v]) } else { sums[r][v] };
                    }
                }
                first = end;
            }
        }
    }
}

/// Stores a row of a tile as bytes, and names the columns of sums that are `limit` or more from an
/// integer.
///
/// # Safety
/// `out` points to as many bytes as there are sums.
#[inline(always)]
unsafe fn round<L: Vector, const V: usize>(
    sums: &[L; V],
    limit: L,
    out: *mut u8,
    mut note: impl FnMut(usize),
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut ints = [sums[0].nearest(); V];
        let mut furthest = sums[0].rest(ints[0]).max_abs(sums[0].rest(ints[0]));
        for v in 1..V {
            ints[v] = sums[v].nearest();
            furthest = furthest.max_abs(sums[v].rest(ints[v]));
        }
        for (group, ints) in ints.chunks_exact(L::GROUP).enumerate() {
            L::store_bytes(ints, out.add(group * L::GROUP * L::LEN));
        }
        if furthest.at_least(limit) != 0 {
            for v in 0..V {
                let mut mask = sums[v].rest(ints[v]).at_least(limit);
                while mask != 0 {
                    note(v * L::LEN + mask.trailing_zeros() as usize);
                    mask &= mask - 1;
                }
            }
        }
    }
}
