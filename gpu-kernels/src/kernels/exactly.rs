//! Exact sums of whole taps times small whole numbers, for bytes whose sums in f32 are uncertain: a
//! warp a result, its lanes side by side.

use crate::abi::Window;
use crate::border;
use crate::device::*;

use super::resolve::{OUTSIDE, Place, Team, exchanged};
use super::weighted::{Weights, load_i64};

/// The threads that share a result: a warp.
pub const TEAM: Team = Team { lanes: 5, across: 32, down: 1, is_block: 0 };

/// A pixel under a window.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    /// Negative outside the image.
    pub(super) x: i32,
    /// A row in memory.
    pub(super) y: i32,
}

impl Spot {
    #[inline(always)]
    pub(super) fn is_inside(&self) -> bool {
        self.x >= 0
    }
}

impl Weights {
    /// The sums of whole taps times N numbers of each pixel, below 2^32, for all lanes of a warp.
    /// `numbers` gives them.
    ///
    /// # Safety
    /// The whole warp calls this. If `is_there`, the taps and the pixels are in memory.
    #[inline(always)]
    pub(super) unsafe fn sums<const N: usize>(
        &self,
        at: &Place<'_>,
        window: &Window,
        is_there: bool,
        numbers: impl Fn(Spot) -> [i64; N],
    ) -> [i128; N] {
        let mut sums = [0; N];
        let (mut term, mut column_taps) = (opaque(0), self.taps);
        // SAFETY: as the caller promised.
        unsafe {
            while is_there && term < self.terms {
                let rows_taps = column_taps.wrapping_add(mul_wide(window.rows, 8) as u64);
                let mut col = thread_x();
                while col < window.cols {
                    let across = rows_taps.wrapping_add(mul_wide(col, 8) as u64);
                    // A table has rows of its own, products share one.
                    let (taps, step) = match self.row {
                        0 => (column_taps, 8),
                        taps => (across, mul_wide(taps, 8)),
                    };
                    let factor = if self.row == 0 { load_i64(across) } else { 1 };
                    let halves = at.halves(window, col, (taps, step), &numbers);
                    let mut n = 0;
                    while n < N {
                        let sum = ((halves[n][0] as i128) << 16) + halves[n][1] as i128;
                        sums[n] += factor as i128 * sum;
                        n += 1;
                    }
                    col += 32;
                }
                column_taps = column_taps.wrapping_add(self.apart as u64);
                term = opaque(term + 1);
            }
            let point = (self.point[1] as i128) << 64 | self.point[0] as i128;
            if is_there && point != 0 && thread_x() == 0 {
                let spot = at.spot(window.rows >> 1, window.cols >> 1);
                let (numbers, mut n) = (numbers(spot), 0);
                while n < N {
                    sums[n] += point * numbers[n] as i128;
                    n += 1;
                }
            }
            added(sums)
        }
    }
}

impl Place<'_> {
    /// The pixel under a cell of the window.
    #[inline(always)]
    pub(super) fn spot(&self, row: i32, col: i32) -> Spot {
        self.under(row, self.across(col))
    }

    /// The image's column under a column of the window; negative outside the image.
    #[inline(always)]
    fn across(&self, col: i32) -> i32 {
        let pass = self.source.pass;
        border::resolve_briefly(pass.border, self.left + col, pass.width)
    }

    /// The pixel under a row of the window, in a column of the image.
    #[inline(always)]
    fn under(&self, row: i32, x: i32) -> Spot {
        if self.is_inside {
            return Spot { x, y: self.top + row };
        }
        let (y, is_there) = self.line(self.top + row);
        Spot { x: if is_there { x } else { -1 }, y }
    }

    /// The byte at a spot.
    ///
    /// # Safety
    /// The pixels are in memory.
    #[inline(always)]
    pub(super) unsafe fn byte_at(&self, spot: Spot) -> u32 {
        let plane = self.source.plane();
        let column = if spot.is_inside() { mul_wide(spot.x, plane.pixel) } else { OUTSIDE };
        // SAFETY: as the caller promised.
        unsafe { self.byte(spot.y as i64 * plane.row, column) }
    }

    /// Sums down a column of the window of taps, which lie `step` bytes apart, times the upper and
    /// the lower 16 bits of each number: below 2^61.
    ///
    /// # Safety
    /// The taps are in memory, and the pixels.
    #[inline(always)]
    unsafe fn halves<const N: usize>(
        &self,
        window: &Window,
        col: i32,
        (mut taps, step): (u64, i64),
        numbers: &impl Fn(Spot) -> [i64; N],
    ) -> [[i64; 2]; N] {
        let x = self.across(col);
        let (mut halves, mut row) = ([[0i64; 2]; N], opaque(0));
        while row < window.rows {
            // SAFETY: as the caller promised.
            let tap = unsafe { load_i64(taps) };
            let (numbers, mut n) = (numbers(self.under(row, x)), 0);
            while n < N {
                halves[n][0] += tap * (numbers[n] >> 16);
                halves[n][1] += tap * (numbers[n] & 0xffff);
                n += 1;
            }
            taps = taps.wrapping_add(step as u64);
            row += 1;
        }
        halves
    }
}

/// The sums of a warp's parts, for all of its lanes.
///
/// # Safety
/// The whole warp calls this.
#[inline(always)]
unsafe fn added<const N: usize>(mut sums: [i128; N]) -> [i128; N] {
    let mut apart = opaque(16);
    while apart > 0 {
        let mut n = 0;
        while n < N {
            // SAFETY: as the caller promised.
            let (high, low) = unsafe {
                (
                    exchanged((sums[n] >> 64) as i64, apart as u32),
                    exchanged(sums[n] as i64, apart as u32),
                )
            };
            sums[n] += (high as i128) << 64 | low as u64 as i128;
            n += 1;
        }
        apart >>= 1;
    }
    sums
}
