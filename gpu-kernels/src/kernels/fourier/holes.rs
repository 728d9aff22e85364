//! Results whose windows have NaN, infinities or pixels too large for spectra.
//!
//! The other kernels of the family transform 0 in place of such a pixel, a hole, and count the
//! warps that find one. This kernel runs after them. Without holes it ends at once. Otherwise it
//! overwrites each result with a hole under its window:
//!
//! - NaN, if there is a NaN, or an infinity under a tap of 0;
//! - the sum of all taps in the direct family's order, if there is a pixel too large for spectra;
//! - else the infinity of the products' sign, or NaN if they have both signs.
//!
//! Tiling: a block takes 64 columns and 32 rows of results, a thread 2 columns and every eighth
//! row. The block marks the holes under its windows in bit planes, one plane for each type of hole.
//! It takes as many rows at a time as shared memory holds, and `WORDS` words of columns. The signs
//! of the taps are bit planes too, so a few instructions test 32 taps. Shared memory: for each row
//! a word that says whether it has holes, then the words of the four planes. Limits: copies at the
//! border are left to `keep.rs`.

use crate::abi::{Pass, Window};
use crate::border;
use crate::device::*;
use crate::pixel::{F32, U8, of_bits};
use crate::tile::view::{Source, Target};

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 8);
/// Columns and rows of a block's results.
pub const TILE: (u32, u32) = (64, 32);
/// Bytes of shared memory.
pub const SHARED: u32 = 32 << 10;
/// Words of taps in a round, 32 taps each.
const WORDS: i32 = 64;
/// Results of a thread in a column, and in a row.
const DOWN: usize = 4;
const BESIDE: usize = 2;

/// Bits for the holes under a result's window; an infinity by the sign of its product.
const NAN: u32 = 1;
const PLUS: u32 = 2;
const MINUS: u32 = 4;
const LARGE: u32 = 8;

/// Where holes are and how to recompute results.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Holes {
    /// The whole window.
    pub window: Window,
    /// The greatest magnitude of a pixel that is no hole.
    pub greatest: f32,
    /// The address of a word that counts the earlier kernels' warps with a hole. The word is 0
    /// before these kernels.
    pub noted: u64,
    /// The address of bit masks for each row of taps: the words of taps above 0, then the words of
    /// taps below 0.
    pub signs: u64,
}

/// Counts the warp if one of its threads has a hole.
///
/// # Safety
/// If there is a hole, the address is [`Holes::noted`]; the whole warp calls this.
#[inline(always)]
pub(super) unsafe fn note(noted: u64, has_hole: bool) {
    // SAFETY: as the caller promised.
    unsafe {
        if ballot(has_hole) != 0 && thread_x() & 31 == 0 {
            atomic_add(noted, 1);
        }
    }
}

/// The number of words that hold `bits` bits.
#[inline(always)]
pub const fn words(bits: i32) -> i32 {
    (bits + 31) / 32
}

/// The holes in some rows of pixels, under a part of the window's columns.
#[derive(Clone, Copy)]
struct Found {
    shared: Shared,
    /// The first word of taps, and the number of words.
    first: i32,
    taps: i32,
    /// Words from one row of a plane to the next.
    pitch: i32,
    /// Column and row of the first pixel in the image.
    left: i32,
    top: i32,
    /// Rows of pixels in a round, and the most that shared memory holds.
    rows: i32,
    most: i32,
}

impl Found {
    /// For taps from word `first` on, and results from column `x` on.
    #[inline(always)]
    fn new(window: &Window, x: i32, first: i32) -> Self {
        let left_over = words(window.cols) - first;
        let taps = if left_over < WORDS { left_over } else { WORDS };
        // The last result's window ends in the word after its own.
        let pitch = taps + TILE.0 as i32 / 32;
        let most = (SHARED as i32 / 4) / (4 * pitch + 1);
        let left = x - window.anchor_x + 32 * first;
        Self { shared: Shared::dynamic(), first, taps, pitch, left, top: 0, rows: 0, most }
    }

    /// The shared-memory word of a row that is not 0 if the row has holes.
    #[inline(always)]
    fn any(self, row: i32) -> i32 {
        row
    }

    /// The shared-memory word for word `at` of a row in a plane.
    #[inline(always)]
    fn word(self, plane: i32, row: i32, at: i32) -> i32 {
        self.most + (plane * self.most + row) * self.pitch + at
    }

    /// Marks the holes of `rows` rows from `top` on; a warp takes a row.
    ///
    /// # Safety
    /// The pass describes allocated memory; the whole block calls this, between barriers.
    #[inline(always)]
    unsafe fn find(self, source: &Source<'_>, greatest: f32) {
        let mut row = thread_y();
        while row < self.rows {
            let line = source.row(self.top + row);
            let (mut any, mut at) = (0, 0);
            while at < self.pitch {
                // SAFETY: as the caller promised; the whole warp is here, and only this warp stores
                // to these words.
                unsafe {
                    let value = line.pixel(self.left + 32 * at + thread_x());
                    // Every comparison with NaN is false.
                    let is_plain = value.abs() <= greatest;
                    let all = ballot(!is_plain);
                    any |= all;
                    let (nan, plus, minus) = match all {
                        0 => (0, 0, 0),
                        _ => (
                            ballot(value.is_nan()),
                            ballot(value == f32::INFINITY),
                            ballot(value == f32::NEG_INFINITY),
                        ),
                    };
                    if thread_x() == 0 {
                        let kinds = [nan, plus, minus, all & !(nan | plus | minus)];
                        let mut plane = 0;
                        while plane < 4 {
                            self.shared.store(
                                self.word(plane as i32, row, at),
                                f32::from_bits(kinds[plane]),
                            );
                            plane += 1;
                        }
                    }
                }
                at += 1;
            }
            if thread_x() == 0 {
                // SAFETY: only this warp stores to this word.
                unsafe { self.shared.store(self.any(row), f32::from_bits(any)) };
            }
            row += block_height();
        }
    }

    /// The types of holes under row `r` of a result's window. The result lies `32 * beside` columns
    /// right of the thread's first result.
    ///
    /// # Safety
    /// [`Found::find`] has marked the rows; `signs` are as in [`Holes`].
    #[inline(always)]
    unsafe fn under(self, window: &Window, signs: u64, (row, r): (i32, i32), beside: i32) -> u32 {
        let (shift, all) = (thread_x() as u32, words(window.cols));
        let (mut seen, mut word) = (0, 0);
        while word < self.taps {
            let number = self.first + word;
            let left_over = window.cols - 32 * number;
            let mask = if left_over < 32 { (1 << left_over) - 1 } else { u32::MAX };
            // SAFETY: as the caller promised.
            unsafe {
                let holes = |plane: i32| {
                    let at = self.word(plane, row, beside + word);
                    funnel(self.shared.load_word(at), self.shared.load_word(at + 1), shift) & mask
                };
                let (nan, plus, minus, large) = (holes(0), holes(1), holes(2), holes(3));
                if (nan | plus | minus | large) != 0 {
                    let at =
                        signs.wrapping_add(4 * mul_wide(2 * r, all) as u64 + 4 * number as u64);
                    let [above] = load_words::<1>(at);
                    let [below] = load_words::<1>(at.wrapping_add(4 * all as u64));
                    let bit = |bits: u32, kind: u32| if bits != 0 { kind } else { 0 };
                    seen |= bit(nan | (plus | minus) & !(above | below), NAN);
                    seen |= bit(plus & above | minus & below, PLUS);
                    seen |= bit(plus & below | minus & above, MINUS);
                    seen |= bit(large, LARGE);
                }
            }
            word += 1;
        }
        seen
    }

    /// Adds the types of holes in row `row` to those of the thread's results, whose tile's windows
    /// begin at row `top`.
    ///
    /// # Safety
    /// As for [`Found::under`].
    #[inline(always)]
    unsafe fn add_seen(self, seen: &mut [[u32; BESIDE]; DOWN], holes: &Holes, row: i32, top: i32) {
        let window = &holes.window;
        let mut down = 0;
        while down < DOWN {
            let r = self.top + row - (top + thread_y() + BLOCK.1 as i32 * down as i32);
            if r >= 0 && r < window.rows {
                let mut beside = 0;
                while beside < BESIDE {
                    // SAFETY: as the caller promised.
                    seen[down][beside] |=
                        unsafe { self.under(window, holes.signs, (row, r), beside as i32) };
                    beside += 1;
                }
            }
            down += 1;
        }
    }
}

/// Overwrites the results with holes under their windows.
///
/// # Safety
/// `pass` describes allocated memory, and the fields of `holes` hold; `taps` points to the window's
/// taps, row by row. The launch has the block and the shared memory stated above.
#[inline(always)]
pub(super) unsafe fn mend(pass: &Pass, holes: &Holes, taps: *const f32) {
    // SAFETY: as the caller promised; the branch is uniform over the block.
    unsafe {
        if reload_word(holes.noted) == 0 {
            return;
        }
        let x = pass.region.x0 + TILE.0 as i32 * block_x();
        let mut y = pass.region.y0 + TILE.1 as i32 * block_y();
        while y < pass.region.y1 {
            mend_tile(pass, holes, taps, (x, y));
            y += TILE.1 as i32 * grid_height();
        }
    }
}

/// Overwrites results of the tile whose first result is at `(x, y)`.
///
/// # Safety
/// As for [`mend`].
#[inline(always)]
unsafe fn mend_tile(pass: &Pass, holes: &Holes, taps: *const f32, (x, y): (i32, i32)) {
    let (window, source, target) = (&holes.window, Source::new(pass), Target::new(pass));
    // SAFETY: as the caller promised.
    let seen = unsafe { seen_in_tile(&source, holes, (x, y)) };
    let (x, y) = (x + thread_x(), y + thread_y());
    let mut any = 0;
    let mut down = 0;
    while down < DOWN {
        let mut beside = 0;
        while beside < BESIDE {
            any |= if seen[down][beside] & NAN == 0 { seen[down][beside] & LARGE } else { 0 };
            beside += 1;
        }
        down += 1;
    }
    let mut sums = [[0.0; BESIDE]; DOWN];
    if any != 0 {
        // SAFETY: as the caller promised.
        sums = unsafe { sums_of_taps(&source, window, taps, (x, y)) };
    }
    down = 0;
    while down < DOWN {
        let mut beside = 0;
        while beside < BESIDE {
            let (x, y) = (x + 32 * beside as i32, y + BLOCK.1 as i32 * down as i32);
            let seen = seen[down][beside];
            if seen != 0 && x < pass.region.x1 && y < pass.region.y1 {
                let value = if seen & NAN != 0 {
                    f32::NAN
                } else if seen & LARGE != 0 {
                    sums[down][beside]
                } else if seen == PLUS {
                    f32::INFINITY
                } else if seen == MINUS {
                    f32::NEG_INFINITY
                } else {
                    f32::NAN
                };
                // SAFETY: the pixel lies in the region, and only this thread stores it.
                unsafe { target.write(x, y, value) };
            }
            beside += 1;
        }
        down += 1;
    }
}

/// The types of holes under the windows of a thread's results, in the tile whose first result is at
/// `(x, y)`.
///
/// # Safety
/// As for [`mend`].
#[inline(always)]
unsafe fn seen_in_tile(
    source: &Source<'_>,
    holes: &Holes,
    (x, y): (i32, i32),
) -> [[u32; BESIDE]; DOWN] {
    let window = &holes.window;
    let mut seen = [[0u32; BESIDE]; DOWN];
    let (top, end) = (y - window.anchor_y, y - window.anchor_y + TILE.1 as i32 + window.rows - 1);
    let mut first = 0;
    while first < words(window.cols) {
        let mut found = Found::new(window, x, first);
        found.top = top;
        while found.top < end {
            let left_over = end - found.top;
            found.rows = if left_over < found.most { left_over } else { found.most };
            // SAFETY: as the caller promised; all threads of the block reach the barriers.
            unsafe {
                barrier();
                found.find(source, holes.greatest);
                barrier();
                let mut row = 0;
                while row < found.rows {
                    if found.shared.load_word(found.any(row)) != 0 {
                        found.add_seen(&mut seen, holes, row, top);
                    }
                    row += 1;
                }
            }
            found.top += found.rows;
        }
        first += WORDS;
    }
    seen
}

/// The sums of all taps for a thread's results, the first at `(x, y)`: through the border rule, in
/// the direct family's order. The results are computed together, to hide memory latency.
///
/// # Safety
/// The pass describes allocated memory, and `taps` points to the window's taps, row by row.
#[inline(always)]
unsafe fn sums_of_taps(
    source: &Source<'_>,
    window: &Window,
    taps: *const f32,
    (x, y): (i32, i32),
) -> [[f32; BESIDE]; DOWN] {
    const APART: i32 = BLOCK.1 as i32;
    let (left, top) = (x - window.anchor_x, y - window.anchor_y);
    let (right, bottom) = (
        left + window.cols + 32 * (BESIDE as i32 - 1),
        top + window.rows + APART * (DOWN as i32 - 1),
    );
    let is_plain = source.is_plain()
        && left >= 0
        && right <= source.pass.width
        && source.has_rows(top, bottom);
    if is_plain {
        // SAFETY: as the caller promised; all these pixels lie in the image.
        return unsafe {
            of_each_tap(window, taps, |c, r, values| {
                let mut from = source.plain_row(top + r).at_plain(left + c);
                let apart = source.plain_offset(APART);
                let mut down = 0;
                while down < DOWN {
                    let mut beside = 0;
                    while beside < BESIDE {
                        values[down][beside] = load(from, 32 * beside);
                        beside += 1;
                    }
                    from = from.wrapping_byte_offset(apart);
                    down += 1;
                }
            })
        };
    }
    // SAFETY: as the caller promised.
    unsafe {
        of_each_tap(window, taps, |c, r, values| *values = found(source, (left + c, top + r)))
    }
}

/// The pixels of all of a thread's results under one tap, through the border rule. The first
/// result's pixel is at `(x, y)`. All loads are in flight at once.
///
/// # Safety
/// The pass describes allocated memory.
#[inline(always)]
unsafe fn found(source: &Source<'_>, (x, y): (i32, i32)) -> [[f32; BESIDE]; DOWN] {
    let (pass, scalar) = (source.pass, source.plane().scalar);
    let (mut at, mut outside) = ([[0; BESIDE]; DOWN], [[false; BESIDE]; DOWN]);
    let mut beside = 0;
    while beside < BESIDE {
        let column = border::resolve_briefly(pass.border, x + 32 * beside as i32, pass.width);
        let mut down = 0;
        while down < DOWN {
            let row = source.row(y + BLOCK.1 as i32 * down as i32);
            outside[down][beside] = column < 0 || !row.is_inside();
            // Outside the image, an unused pixel is loaded instead.
            at[down][beside] = row.at(if column < 0 { 0 } else { column });
            down += 1;
        }
        beside += 1;
    }
    // SAFETY: as the caller promised.
    let mut values = unsafe {
        match scalar {
            F32 => at.map(|row| row.map(|at| load(at as *const f32, 0))),
            U8 => at.map(|row| row.map(|at| load_u8(at) as f32)),
            _ => at.map(|row| row.map(|at| of_bits(scalar, load_u16(at)))),
        }
    };
    let mut down = 0;
    while down < DOWN {
        let mut beside = 0;
        while beside < BESIDE {
            values[down][beside] =
                if outside[down][beside] { pass.outside } else { values[down][beside] };
            beside += 1;
        }
        down += 1;
    }
    values
}

/// The sums of taps times pixels, row by row. `load_all` loads one tap's pixels of all results,
/// given the tap's column and row.
///
/// # Safety
/// `taps` points to the window's taps, row by row.
#[inline(always)]
unsafe fn of_each_tap(
    window: &Window,
    taps: *const f32,
    load_all: impl Fn(i32, i32, &mut [[f32; BESIDE]; DOWN]),
) -> [[f32; BESIDE]; DOWN] {
    let mut sums = [[0.0; BESIDE]; DOWN];
    let (mut r, mut at) = (opaque(0), opaque(0));
    while r < window.rows {
        let mut c = opaque(0);
        while c < window.cols {
            // SAFETY: as the caller promised.
            let tap = unsafe { load(taps, at as usize) };
            let mut values = [[0.0; BESIDE]; DOWN];
            load_all(c, r, &mut values);
            let mut down = 0;
            while down < DOWN {
                let mut beside = 0;
                while beside < BESIDE {
                    sums[down][beside] = fma(tap, values[down][beside], sums[down][beside]);
                    beside += 1;
                }
                down += 1;
            }
            c = opaque(c + 1);
            at += 1;
        }
        r += 1;
    }
    sums
}
