//! Where rows of an image repeat, and where all pixels are 0 or 255: for kernels that settle results under large windows (see `means.rs` and `padded.rs`). Windows that hold the same
//! pixels have the same result, so that one of them is computed and stored for all.
//!
//! Tiling: tiles of 128 x 32 pixels of one channel, a byte for each. It says whether every row of the tile is like the row above it, and whether all of its pixels are 0 or 255. Results are
//! alike down a column of up to 128 of them: the first one is computed.
//! Thread mapping: a warp for each tile, which goes down four rows at a time as long as something holds; a lane has four columns. A block has 32 x 8 threads, for tiles below each
//! other. The grid's z axis counts planes.
//! Limits: bytes.

use super::counted::Counts;
use super::settle::Place;
use crate::abi::{Pass, Plane, Window};
use crate::border;
use crate::device::*;
use crate::tile::view::Source;

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 8);
/// Pixels of a tile.
pub const TILE: (i32, i32) = (128, 32);
/// Columns of a lane, and rows that it takes at a time.
const COLUMNS: usize = (TILE.0 / 32) as usize;
/// See [`COLUMNS`].
const AT_ONCE: usize = 4;
/// Results of a column that are stored together: a power of two.
const TOGETHER: i32 = 128;
const _: () = assert!(TOGETHER == 1 << 7);
/// `2^32` divided by the golden ratio: the upper bits of its multiples are spread evenly (Knuth, The Art of Computer Programming 3, section 6.4).
const SCATTER: u32 = 0x9e37_79b1;

/// Every row of the tile is like the one above, but for the first of all.
const ROWS: u32 = 1;
/// All pixels of the tile are 0 or 255.
const TWO_VALUES: u32 = 2;

/// What `find_alike` finds, in memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Alike {
    /// The address of a byte for each tile, row by row of them, plane by plane; 0 if nothing was looked for.
    pub at: u64,
    /// The first column and row of the first tile.
    pub left: i32,
    /// See `left`.
    pub top: i32,
    /// The column and the row behind the last.
    pub right: i32,
    /// See `right`.
    pub bottom: i32,
    /// Tiles in a row, and rows of tiles.
    pub across: i32,
    /// See `across`.
    pub down: i32,
}

/// The rows of results below each other whose windows hold the same, of which the first one is computed.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) first: i32,
    pub(super) last: i32,
}

impl Alike {
    /// Nothing was looked for.
    pub const NONE: Self = Self { at: 0, left: 0, top: 0, right: 0, bottom: 0, across: 0, down: 0 };

    /// Of the pixels from `(left, top)` to before `(right, bottom)`, for bytes in memory from an address on, which may be 0.
    pub const fn new(at: u64, (left, top): (i32, i32), (right, bottom): (i32, i32)) -> Self {
        let across = (right - left + TILE.0 - 1) / TILE.0;
        let down = (bottom - top + TILE.1 - 1) / TILE.1;
        Self { at, left, top, right, bottom, across, down }
    }

    /// Bytes of so many planes.
    pub const fn bytes(&self, planes: u32) -> usize {
        self.across as usize * self.down as usize * planes as usize
    }

    /// Whether something holds in all tiles of plane `z` under so many columns and rows, from `(left, top)` on. What leaves the pixels that were looked at may find any
    /// other of them in the same direction, whatever the border's rule: then it has to hold in all tiles of these rows, or of these columns.
    ///
    /// # Safety
    /// The tiles were looked at, if any were.
    #[inline(always)]
    unsafe fn holds(&self, what: u32, z: i32, (left, top): (i32, i32), (cols, rows): (i32, i32)) -> bool {
        let (mut first, mut last) = (0, self.across - 1);
        if self.has_columns(left, cols) {
            (first, last) = ((left - self.left) / TILE.0, (left - self.left + cols - 1) / TILE.0);
        }
        let (mut row, mut end) = (0, self.down - 1);
        if self.has_rows(top, rows) {
            (row, end) = ((top - self.top) / TILE.1, (top - self.top + rows - 1) / TILE.1);
        }
        let mut holds = self.at != 0;
        while holds && row <= end {
            let mut at =
                self.at.wrapping_add(mul_wide(z * self.down + row, self.across) as u64).wrapping_add(first as u64);
            let mut column = first;
            while column <= last {
                // SAFETY: as the caller promised.
                holds &= unsafe { load_u8(at) } & what != 0;
                at = at.wrapping_add(1);
                column += 1;
            }
            row += 1;
        }
        holds
    }

    /// Whether so many columns were looked at.
    #[inline(always)]
    fn has_columns(&self, left: i32, cols: i32) -> bool {
        left >= self.left && left + cols <= self.right
    }

    /// Whether so many rows were.
    #[inline(always)]
    fn has_rows(&self, top: i32, rows: i32) -> bool {
        top >= self.top && top + rows <= self.bottom
    }

    /// Whether all pixels under the window of a result are 0 or 255.
    ///
    /// # Safety
    /// As for [`Self::rows`].
    #[inline(always)]
    pub(super) unsafe fn has_two_values(
        &self,
        pass: &Pass,
        window: &Window,
        place: &Place,
        corner: (i32, i32),
    ) -> bool {
        let is_inside = self.has_columns(corner.0, window.cols) && self.has_rows(corner.1, window.rows);
        let is_so = is_inside || pass.border != border::CONSTANT || pass.outside == 0.0 || pass.outside == 255.0;
        // SAFETY: as the caller promised.
        is_so && unsafe { self.holds(TWO_VALUES, place.z, corner, (window.cols, window.rows)) }
    }

    /// Rows of results with the same window as this one, which is one of them; it may be the only one.
    ///
    /// # Safety
    /// Its window begins at `corner`; the pixels that it meets were looked at, if any were.
    #[inline(always)]
    pub(super) unsafe fn rows(&self, pass: &Pass, window: &Window, place: &Place, (left, top): (i32, i32)) -> Rows {
        let alone = Rows { first: place.y, last: place.y };
        if self.at == 0 {
            return alone;
        }
        // They begin elsewhere in each column: of results beside each other few are the first ones then, and no warp has many of these.
        let begins = ((place.x as u32).wrapping_mul(SCATTER) >> 25) as i32;
        let together = place.y - ((place.y + begins) & (TOGETHER - 1));
        let first = together.max(pass.region.y0);
        let (top, rows) = (top - (place.y - first), window.rows);
        // Windows that leave the image upwards or downwards hold the same if all rows do, but for what lies outside.
        let may_leave = pass.border != border::CONSTANT;
        // SAFETY: as the caller promised.
        let down_to = |y: i32| unsafe {
            let rows = rows + y - first;
            (may_leave || self.has_rows(top, rows)) && self.holds(ROWS, place.z, (left, top), (window.cols, rows))
        };
        if place.y > first {
            return if down_to(place.y) { Rows { first, last: place.y } } else { alone };
        }
        // The last row is most often the one, or none is.
        let (mut last, mut behind) = (first, (together + TOGETHER).min(pass.region.y1));
        let mut next = behind - 1;
        while last < next {
            if down_to(next) {
                last = next;
            } else {
                behind = next;
            }
            next = (last + behind) / 2;
        }
        Rows { first, last }
    }
}

kernel! {
    /// Looks at these pixels of so many planes, if there are results to settle.
    fn find_alike(pass: Pass, from: Plane, alike: Alike, counts: Counts) {
        let mut row = block_y() * block_height() + thread_y();
        while row < alike.down && counts.all() != 0 {
            let found = look(&pass, &from, &alike, (block_x(), row));
            if thread_x() == 0 {
                let at = alike.at.wrapping_add(mul_wide(block_z() * alike.down + row, alike.across) as u64);
                store_u8(at.wrapping_add(block_x() as u64), found);
            }
            row += grid_height() * block_height();
        }
    }
}

/// What holds in a tile.
///
/// # Safety
/// The pixels lie in allocated memory; the whole warp calls.
#[inline(always)]
unsafe fn look(pass: &Pass, from: &Plane, alike: &Alike, (column, row): (i32, i32)) -> u32 {
    let source = Source::of(from, pass);
    let (left, top) = (alike.left + TILE.0 * column + thread_x(), alike.top + TILE.1 * row);
    let end = (top + TILE.1).min(alike.bottom);
    // In place of columns and rows that are not there, the last ones again.
    let column = |beside: i32| mul_wide((left + beside).min(alike.right - 1), from.pixel) as u64;
    let columns = [column(0), column(32), column(64), column(96)];
    const { assert!(COLUMNS == 4) }
    // SAFETY: as the caller promised.
    let of_row = |row: u64| columns.map(|column| unsafe { load_u8(row.wrapping_add(column)) });
    let mut found = ROWS | TWO_VALUES;
    let mut above = of_row(source.row_inside((top - 1).max(alike.top)).at(0));
    let (mut y, mut row) = (top, source.row_inside(top).at(0));
    while y < end && found != 0 {
        let mut rows = [[0; COLUMNS]; AT_ONCE];
        let mut r = 0;
        while r < AT_ONCE {
            rows[r] = of_row(row);
            row = row.wrapping_add(if y + r as i32 + 1 < end { from.row } else { 0 } as u64);
            r += 1;
        }
        let (mut differs, mut is_other) = (false, false);
        let mut n = 0;
        while n < COLUMNS * AT_ONCE {
            let (r, c) = (n / COLUMNS, n % COLUMNS);
            differs |= rows[r][c] != above[c];
            is_other |= rows[r][c] != 0 && rows[r][c] != 255;
            above[c] = rows[r][c];
            n += 1;
        }
        // SAFETY: the whole warp is here.
        unsafe {
            found &= if ballot(differs) != 0 { !ROWS } else { !0 };
            found &= if ballot(is_other) != 0 { !TWO_VALUES } else { !0 };
        }
        y += AT_ONCE as i32;
    }
    found
}
