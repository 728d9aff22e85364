//! Where rows of an image repeat, and where all pixels are 0 or 255: for kernels that settle results under large windows (see `means.rs` and `padded.rs`). Windows that hold the same
//! pixels have the same result, so that one of them is computed and stored for all.
//!
//! Tiling: tiles of 128 x 32 pixels of one channel, a byte for each. It says whether every row of the tile is like the row above it, and whether all of its pixels are 0 or 255. The rows of
//! results are taken 256 at a time. Those in one column whose windows hold the same as the first row's share a word: which of them are in doubt is not known, as sums may be rounded
//! otherwise in each, and the one that comes first to the word is computed. Any other result is computed for itself.
//! Thread mapping: `find_alike` has a warp for each tile, which goes down four rows at a time as long as something holds; a lane has four columns. A block has 32 x 8 threads, for tiles below each
//! other. The grid's z axis counts planes. `choose_different` has a thread for each result in doubt.
//! Limits: bytes.

use super::counted::Counts;
use super::means::Ties;
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
/// Rows of results that are stored together: a power of two.
const TOGETHER: i32 = 256;
const _: () = assert!(TOGETHER & (TOGETHER - 1) == 0 && TOGETHER >= TILE.1);

/// Every row of the tile is like the one above, but for the first of all.
pub(super) const ROWS: u32 = 1;
/// All pixels of the tile are 0 or 255.
const TWO_VALUES: u32 = 2;

/// What `find_alike` finds, in memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Alike {
    /// The address of a byte for each tile, row by row of them, plane by plane; 0 if nothing was looked for.
    pub at: u64,
    /// The address of a word for each column of tiles' pixels and each `TOGETHER` rows of results, plane by plane.
    pub taken: u64,
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
    /// Rows of words.
    pub bands: i32,
}

/// The rows of results below each other whose windows hold the same.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) first: i32,
    pub(super) last: i32,
}

impl Alike {
    /// Nothing was looked for.
    pub const NONE: Self = Self { at: 0, taken: 0, left: 0, top: 0, right: 0, bottom: 0, across: 0, down: 0, bands: 0 };

    /// Of the pixels from `(left, top)` to before `(right, bottom)`, which nobody has looked at, for so many rows of results.
    pub const fn new((left, top): (i32, i32), (right, bottom): (i32, i32), rows: i32) -> Self {
        let across = (right - left + TILE.0 - 1) / TILE.0;
        let down = (bottom - top + TILE.1 - 1) / TILE.1;
        let bands = (rows + TOGETHER - 1) / TOGETHER;
        Self { at: 0, taken: 0, left, top, right, bottom, across, down, bands }
    }

    /// Bytes of so many planes.
    pub const fn bytes(&self, planes: u32) -> usize {
        self.tiles(planes) + 4 * (self.across * TILE.0) as usize * self.bands as usize * planes as usize
    }

    /// The same with what is found in memory from an address on, a multiple of 16.
    pub const fn found_at(self, at: u64, planes: u32) -> Self {
        Self { at, taken: at.wrapping_add(self.tiles(planes) as u64), ..self }
    }

    /// Bytes of all tiles, and some more.
    const fn tiles(&self, planes: u32) -> usize {
        (self.across as usize * self.down as usize * planes as usize).next_multiple_of(16)
    }

    /// Whether something holds in all tiles of plane `z` under so many columns and rows, from `(left, top)` on. What leaves the pixels that were looked at may find any
    /// other of them in the same direction, whatever the border's rule: then it has to hold in all tiles of these rows, or of these columns.
    ///
    /// # Safety
    /// The tiles were looked at.
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
        let mut holds = true;
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
    /// As for [`Self::are_alike`].
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

    /// The first row of those whose results may be alike, down to this one's.
    #[inline(always)]
    fn first(&self, pass: &Pass, y: i32) -> i32 {
        pass.region.y0 + ((y - pass.region.y0) & !(TOGETHER - 1))
    }

    /// Whether the windows of results from row `first` down to row `y` hold the same, of which this place's begins at `corner`.
    ///
    /// # Safety
    /// The pixels that they meet were looked at.
    #[inline(always)]
    unsafe fn are_alike(
        &self,
        pass: &Pass,
        window: &Window,
        place: &Place,
        (left, top): (i32, i32),
        (first, y): (i32, i32),
    ) -> bool {
        let (top, rows) = (top - (place.y - first), window.rows + y - first);
        // Windows that leave the image upwards or downwards hold the same if all rows do, but for what lies outside.
        let is_so = match pass.border {
            border::CONSTANT => self.has_rows(top, rows),
            // These are no sums.
            border::KEEP => !border::leaves(top, rows, pass.height),
            _ => true,
        };
        // SAFETY: as the caller promised.
        is_so && unsafe { self.holds(ROWS, place.z, (left, top), (window.cols, rows)) }
    }

    /// Whether no result above this one, as far as they are settled together, has the same window.
    ///
    /// # Safety
    /// As for [`Self::are_alike`].
    #[inline(always)]
    unsafe fn is_alone(&self, pass: &Pass, window: &Window, place: &Place, corner: (i32, i32)) -> bool {
        let first = self.first(pass, place.y);
        // SAFETY: as the caller promised.
        place.y > first && unsafe { !self.are_alike(pass, window, place, corner, (first, place.y)) }
    }

    /// Rows of results with the same window as this one, which is not alone.
    ///
    /// # Safety
    /// As for [`Self::are_alike`].
    #[inline(always)]
    pub(super) unsafe fn rows(&self, pass: &Pass, window: &Window, place: &Place, corner: (i32, i32)) -> Rows {
        let first = self.first(pass, place.y);
        // The last row is most often the one, or none is.
        let (mut last, mut behind) = (place.y, (first + TOGETHER).min(pass.region.y1));
        let mut next = behind - 1;
        while last < next {
            // SAFETY: as the caller promised.
            if unsafe { self.are_alike(pass, window, place, corner, (first, next)) } {
                last = next;
            } else {
                behind = next;
            }
            next = (last + behind) / 2;
        }
        Rows { first, last }
    }

    /// The address of the word of column `x`, in row `band` of words.
    #[inline(always)]
    fn word(&self, (x, band, z): (i32, i32, i32)) -> u64 {
        let number = mul_wide(z * self.bands + band, self.across * TILE.0) + (x - self.left) as i64;
        self.taken.wrapping_add(4 * number as u64)
    }

    /// Stores what was found in a tile, and clears the words of as many columns.
    ///
    /// # Safety
    /// There is room for both; the whole warp calls.
    #[inline(always)]
    pub(super) unsafe fn note(&self, (column, row, z): (i32, i32, i32), found: u32) {
        // SAFETY: as the caller promised. A tile has fewer rows than a word has results, so that there are as many rows of tiles, or more.
        unsafe {
            if row < self.bands {
                let x = self.left + TILE.0 * column + 4 * thread_x();
                store_words(self.word((x, row, z)), [0; 4]);
            }
            if thread_x() == 0 {
                let at = self.at.wrapping_add(mul_wide(z * self.down + row, self.across) as u64);
                store_u8(at.wrapping_add(column as u64), found);
            }
        }
    }
}

kernel! {
    /// Looks at these pixels of so many planes, if there are results to settle.
    fn find_alike(pass: Pass, from: Plane, alike: Alike, counts: Counts) {
        let mut row = block_y() * block_height() + thread_y();
        while row < alike.down && counts.all() != 0 {
            let found = look(&pass, &from, &alike, (block_x(), row));
            alike.note((block_x(), row, block_z()), found);
            row += grid_height() * block_height();
        }
    }

    /// Chooses the results in doubt that are to be computed (see `counted.rs`): of those whose windows hold the same, one. Stores ties under windows of two values.
    fn choose_different(pass: Pass, window: Window, planes: i32, alike: Alike, counts: Counts, ties: Ties) {
        if counts.are_chosen() {
            let all = counts.all();
            let mut number = block_width() * (block_x() * block_height() + thread_y()) + thread_x();
            while number < all {
                let chosen = choose(&pass, &window, planes, &alike, counts, &ties, number);
                counts.note(&pass, planes, number, chosen);
                number += block_width() * block_height() * grid_width();
            }
        }
    }
}

/// Where result number `number` is; whether it is to be computed, and if so, whether for itself alone.
///
/// # Safety
/// There is one, in a pass that describes allocated memory.
#[inline(always)]
unsafe fn choose(
    pass: &Pass,
    window: &Window,
    planes: i32,
    alike: &Alike,
    counts: Counts,
    ties: &Ties,
    number: i32,
) -> (Place, Option<bool>) {
    // SAFETY: as the caller promised. Of results whose windows hold the same, one alone finds the word as it was cleared.
    unsafe {
        let (place, was_in_doubt) = counts.place(pass, window, planes, number);
        if !place.is_there() {
            return (place, None);
        }
        let (corner, _) = place.corner(pass, window);
        if ties.are_known != 0 && was_in_doubt && alike.has_two_values(pass, window, &place, corner) {
            place.store(pass, ties.byte(reload_u8(place.at(pass))));
            return (place, None);
        }
        if alike.is_alone(pass, window, &place, corner) {
            return (place, Some(true));
        }
        let band = (place.y - pass.region.y0) / TOGETHER;
        (place, (atomic_add(alike.word((place.x, band, place.z)), 1) == 0).then_some(false))
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
