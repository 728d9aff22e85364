//! Loads and stores of bytes for folded tiles in shared memory: four rows of a warp together.
//!
//! Threads: in transforms 8 lanes share a row, each with every eighth column (see `tiles.rs`). If
//! they loaded these columns directly, each load of a warp would touch four rows, and the L1 cache
//! would be busy four times. So 32 lanes load neighbours of one row. Then the four lanes with the
//! same place in their rows transpose their bytes: byte `k` of the lane of row `r` becomes byte `r`
//! of the lane of row `k`. Stores take the same steps backwards. Limits: pixels of 1, 3 or 4 bytes
//! have their stride in the instructions; other strides take two registers each.

use super::fft::{Complex, ZERO};
use crate::device::*;
use crate::pixel::{high_bits, joined, note, of_byte_less_middle, to_near_byte};
use crate::tile::view::{Source, Target, finished};

/// Rows of a warp, and bytes of a word.
const ROWS: usize = 4;
/// Columns of a row that a warp loads or stores together.
const COLUMNS: i32 = 32;
/// Most words of a lane for half a line.
const WORDS: usize = 4;

/// The row of a lane among the four rows of its warp. The two rows of a half-warp are two apart,
/// which avoids bank conflicts.
#[inline(always)]
pub(super) fn row_of(lane: i32) -> i32 {
    (lane >> 3 & 1) << 1 | lane >> 4
}

/// Transposes bytes among the four lanes with the same place in their rows: byte `k` of the lane of
/// row `r` becomes byte `r` of the lane of row `k`.
///
/// # Safety
/// The whole warp calls this.
#[inline(always)]
unsafe fn turned(word: u32) -> u32 {
    let row = row_of(thread_x());
    // SAFETY: as the caller promised; the rows of the exchanging lanes differ by 1, then by 2.
    unsafe {
        let word = permute_by(word, exchange(word, 16), if row & 1 == 0 { 0x6240 } else { 0x3715 });
        permute_by(word, exchange(word, 8), if row & 2 == 0 { 0x5410 } else { 0x3276 })
    }
}

/// The lane's line of four rows of a tile, from `(left, top)` on: real parts, and imaginary parts
/// from `8 M` columns further right.
///
/// # Safety
/// The rows and columns lie in the image; the whole warp calls this.
#[inline(always)]
pub(super) unsafe fn load<const M: usize>(
    source: &Source<'_>,
    (left, top): (i32, i32),
) -> [Complex; M] {
    let plane = source.plane();
    let x = left + 8 * row_of(thread_x()) + (thread_x() & 7);
    let at = source.row_inside(top).at(x);
    // SAFETY: as the caller promised.
    let words = unsafe {
        match plane.pixel {
            1 => words::<M, 1>(at, plane.row as u64, 1),
            3 => words::<M, 3>(at, plane.row as u64, 3),
            4 => words::<M, 4>(at, plane.row as u64, 4),
            pixel => words::<M, 0>(at, plane.row as u64, opaque(pixel)),
        }
    };
    let high = high_bits();
    let mut line = [ZERO; M];
    let mut q = 0;
    while 4 * q < M {
        // SAFETY: as the caller promised.
        let [re, im] = unsafe { [turned(words[0][q]), turned(words[1][q])] };
        let mut k = 0;
        while k < ROWS {
            line[4 * q + k] = Complex {
                re: of_byte_less_middle(re, k, high),
                im: of_byte_less_middle(im, k, high),
            };
            k += 1;
        }
        q += 1;
    }
    line
}

/// Loads words of bytes from four rows each, for both halves of a line: every [`COLUMNS`]-th pixel.
/// The pixel stride is PIXEL bytes, or `pixel` if PIXEL is 0.
///
/// # Safety
/// The bytes lie in allocated memory.
#[inline(always)]
unsafe fn words<const M: usize, const PIXEL: i32>(
    mut at: u64,
    row: u64,
    pixel: i32,
) -> [[u32; WORDS]; 2] {
    let pixel = if PIXEL == 0 { pixel } else { PIXEL };
    let mut bytes = [[[0; ROWS]; WORDS]; 2];
    let mut r = 0;
    while r < ROWS {
        let mut q = 0;
        while 4 * q < 2 * M {
            let offset = mul_wide(COLUMNS * pixel, q as i32) as u64;
            // SAFETY: as the caller promised.
            bytes[4 * q / M][q % (M / 4)][r] = unsafe { load_u8(at.wrapping_add(offset)) };
            q += 1;
        }
        at = at.wrapping_add(row);
        r += 1;
    }
    bytes.map(|half| half.map(joined))
}

/// Stores M sums of the lane's row as bytes, in `count` rows from `top` on, left of column `end`.
/// The sums are 8 columns apart, from the lane's place right of `left` on.
///
/// # Safety
/// The results lie in the region, and no other warp stores them; the whole warp calls this.
#[inline(always)]
pub(super) unsafe fn store<const M: usize>(
    target: &Target<'_>,
    (left, top): (i32, i32),
    (end, count): (i32, i32),
    sums: [f32; M],
) {
    let pass = target.pass();
    let (row, place) = (row_of(thread_x()), thread_x() & 7);
    let values = finished(pass, sums);
    let (mut bytes, mut distances, mut greatest) = ([0; M], [0.0; M], -1.0f32);
    let mut m = 0;
    while m < M {
        (bytes[m], distances[m]) = to_near_byte(values[m]);
        greatest = greatest.max(distances[m]);
        m += 1;
    }
    // Few results are uncertain. They are found before the stores.
    let mut noted = 0;
    if pass.uncertain.list != 0 && greatest >= pass.uncertain.near && row < count {
        m = 0;
        while m < M {
            let is_noted =
                left + place + 8 * (m as i32) < end && distances[m] >= pass.uncertain.near;
            noted |= (is_noted as u32) << m;
            m += 1;
        }
    }
    let mut words = [0; WORDS];
    let mut q = 0;
    while 4 * q < M {
        // SAFETY: as the caller promised.
        words[q] = unsafe {
            turned(joined([bytes[4 * q], bytes[4 * q + 1], bytes[4 * q + 2], bytes[4 * q + 3]]))
        };
        q += 1;
    }
    let x = left + 8 * row + place;
    let at = target.at(x, top);
    let (below, columns) = (pass.dst.row as u64, end - x);
    // SAFETY: as the caller promised.
    unsafe {
        match pass.dst.pixel {
            1 => store_words::<M, 1>(at, below, 1, (columns, count), words),
            3 => store_words::<M, 3>(at, below, 3, (columns, count), words),
            4 => store_words::<M, 4>(at, below, 4, (columns, count), words),
            pixel => store_words::<M, 0>(at, below, opaque(pixel), (columns, count), words),
        }
        while noted != 0 {
            keep_rolled();
            let m = noted.trailing_zeros() as i32;
            note(pass, left + place + 8 * m, top + row, target.z());
            noted &= noted - 1;
        }
    }
}

/// Stores words of bytes to the first `count` of four rows each, in the layout of [`words`]. Only
/// `columns` more columns are results.
///
/// # Safety
/// The bytes lie in allocated memory, and no other thread stores there.
#[inline(always)]
unsafe fn store_words<const M: usize, const PIXEL: i32>(
    mut at: u64,
    row: u64,
    pixel: i32,
    (columns, count): (i32, i32),
    words: [u32; WORDS],
) {
    let pixel = if PIXEL == 0 { pixel } else { PIXEL };
    let mut r = 0;
    while r < ROWS {
        if (r as i32) < count {
            let mut q = 0;
            while 4 * q < M {
                if COLUMNS * (q as i32) < columns {
                    let offset = mul_wide(COLUMNS * pixel, q as i32) as u64;
                    // SAFETY: as the caller promised.
                    unsafe { store_u8(at.wrapping_add(offset), words[q] >> (8 * r)) };
                }
                q += 1;
            }
        }
        at = at.wrapping_add(row);
        r += 1;
    }
}
