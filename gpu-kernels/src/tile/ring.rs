//! A warp's own ring of image rows in shared memory, filled by asynchronous copies.
//!
//! A warp that filters a strip of the image from top to bottom needs each input row once. The ring
//! holds the next STAGES rows of its strip. While the warp computes on some rows, copies fill the
//! others, so enough bytes are in flight for any number of warps. Only the warp synchronizes, never
//! the block.
//!
//! A row buffer has `apron` floats, the strip's 32 * PX pixels and `apron` floats more; `apron` is
//! a multiple of 4, so that 16-byte pieces stay aligned. R rows are copied together: one 16-byte
//! piece a lane for each row, and one more copy for the remainder of all R rows. At the image's
//! left and right edge, each lane also copies one float beyond the image, from a column resolved
//! once. These strips take hardly longer than others, which matters because the slowest warp ends
//! the launch. Rows above and below the image are resolved when they are needed.
//!
//! Limits: neighbouring pixels of the source are neighbours in memory; its rows begin at multiples
//! of 16 bytes, less than 2 GiB apart.

use crate::abi::Pass;
use crate::border;
use crate::device::*;
use crate::tile::view::Source;

/// Floats of a ring's row left and right of its pixels, for K tap columns: a multiple of 4.
pub const fn ring_apron(k: i32) -> i32 {
    (k / 2 + 3) / 4 * 4
}

/// Floats of a ring's row: 32 lanes of `px` pixels, and both aprons.
pub const fn ring_row(k: i32, px: i32) -> i32 {
    32 * px + 2 * ring_apron(k)
}

/// Floats of a warp's ring of `stages` rows.
pub const fn ring_floats(k: i32, px: i32, stages: i32) -> i32 {
    stages * ring_row(k, px)
}

/// Room for a lane's floats of a row; the compiler keeps only those that are used.
pub(crate) const MAX_SHARE: usize = 68;

/// The rows of one strip; K is the number of floats from a window's first to its last. The floats
/// are pixels of a channel, or, with C more than 1, the channels of pixels.
pub(crate) struct Ring<
    'a,
    const K: usize,
    const C: usize,
    const PX: usize,
    const R: usize,
    const STAGES: usize,
> {
    source: Source<'a>,
    shared: Shared,
    /// First float of the ring.
    base: i32,
    /// Image column of a row buffer's first float.
    left: i32,
    /// Whole pieces in the image are floats `lo` to before `hi` of a row buffer; single floats
    /// follow up to `end`.
    lo: i32,
    hi: i32,
    end: i32,
    /// The lane's piece of image row 0, its share of the remainder of a group from row 0 on, and
    /// its single float of row 0.
    from: *const u8,
    remainder: *const u8,
    single: *const u8,
    /// The single float's place in a row buffer; negative if the lane has none.
    single_to: i32,
    /// Bytes from one row of the source to the next, plus a zero that the assembler does not know.
    /// So it stays in a register; a load from the constant bank for each row would add latency.
    pitch: i32,
}

impl<'a, const K: usize, const C: usize, const PX: usize, const R: usize, const STAGES: usize>
    Ring<'a, K, C, PX, R, STAGES>
{
    const ROW: i32 = ring_row(K as i32, PX as i32);
    const ROWS: i32 = R as i32;
    const STAGES: i32 = STAGES as i32;
    /// 16-byte pieces of a row, and those that remain after one for each of 32 lanes.
    const PIECES: i32 = Self::ROW / 4;
    const REMAINDER: i32 = if Self::PIECES > 32 { Self::PIECES - 32 } else { 0 };

    /// The ring of this warp for the strip that begins at column `x`.
    ///
    /// # Safety
    /// The launch reserved [`ring_floats`] floats for each warp of the block; all lanes call
    /// together.
    #[inline(always)]
    pub(crate) unsafe fn new(pass: &'a Pass, x: i32) -> Self {
        const {
            assert!(
                Self::ROWS * Self::REMAINDER <= 32
                    && STAGES.is_multiple_of(R)
                    && STAGES.is_power_of_two()
            )
        }
        let apron = ring_apron(K as i32);
        let left = x - apron;
        let inside = pass.width - left;
        let source = Source::new(pass);
        let plane = source.origin() as *const f32;
        let strip = plane.wrapping_offset(left as isize);
        let (remainder_row, remainder_at) = Self::remainder();
        let mut ring = Self {
            source,
            shared: Shared::dynamic(),
            base: thread_y() * ring_floats(K as i32, PX as i32, Self::STAGES),
            left,
            lo: if left < 0 { -left } else { 0 },
            hi: if inside < Self::ROW { inside & !3 } else { Self::ROW },
            end: if inside + apron < Self::ROW { inside + apron } else { Self::ROW },
            from: strip.wrapping_add(4 * thread_x() as usize).cast(),
            remainder: strip
                .wrapping_add(remainder_at as usize)
                .cast::<u8>()
                .wrapping_offset(source.plain_offset(remainder_row)),
            single: plane.cast(),
            single_to: -1,
            pitch: pass.src.plain_row + first_tap() as i32,
        };
        if ring.edge() {
            let column = ring.column(thread_x());
            if thread_x() < ring.singles() && column >= 0 {
                ring.single = plane.wrapping_add(column as usize).cast();
                ring.single_to = ring.position(thread_x());
            }
            // SAFETY: as the caller promised.
            unsafe { ring.fill_beyond() };
        }
        ring
    }

    #[inline(always)]
    fn pass(&self) -> &'a Pass {
        self.source.pass
    }

    /// The row in a group, and the place in the row buffer, of the lane's piece of the remainder.
    #[inline(always)]
    fn remainder() -> (i32, i32) {
        if Self::REMAINDER > 0 {
            (thread_x() / Self::REMAINDER, 4 * (32 + thread_x() % Self::REMAINDER))
        } else {
            (0, 0)
        }
    }

    /// Whether the strip touches the image's left or right edge.
    #[inline(always)]
    fn edge(&self) -> bool {
        self.lo > 0 || self.hi < Self::ROW
    }

    /// Floats of a row that are copied one by one: those left of `lo`, then those from `hi` to
    /// `end`.
    #[inline(always)]
    fn singles(&self) -> i32 {
        self.lo + self.end - self.hi
    }

    /// The place of single float `index` in a row buffer.
    #[inline(always)]
    fn position(&self, index: i32) -> i32 {
        if index < self.lo { index } else { index - self.lo + self.hi }
    }

    /// The place in the image's row of single float `index`, or [`border::OUTSIDE`].
    #[inline(always)]
    fn column(&self, index: i32) -> i32 {
        let at = self.left + self.position(index);
        if C == 1 {
            return border::resolve(self.pass().border, at, self.pass().width);
        }
        // No strip begins as many floats left of the image. Unsigned numbers are cheaper to divide.
        let (channels, ahead) = (C as i32, K as u32);
        let pixel = ((at + channels * K as i32) as u32 / C as u32 - ahead) as i32;
        let there = border::resolve(self.pass().border, pixel, self.pass().width / channels);
        if there < 0 { there } else { channels * there + (at - channels * pixel) }
    }

    /// Fills the floats of all row buffers that no copy writes. These are floats with the border's
    /// value, and floats right of `end`, which affect no stored result.
    ///
    /// # Safety
    /// As for [`Ring::new`].
    #[inline(always)]
    unsafe fn fill_beyond(&self) {
        let mut at = opaque(thread_x());
        while at < Self::ROW {
            if at < self.lo || at >= self.hi {
                let mut stage = opaque(0);
                while stage < Self::STAGES {
                    // SAFETY: inside the ring.
                    unsafe {
                        self.shared.store(self.base + stage * Self::ROW + at, self.pass().outside)
                    };
                    stage += 1;
                }
            }
            at += 32;
        }
        warp_barrier();
    }

    /// The first float of the buffer for row number `i` of the strip.
    #[inline(always)]
    pub(crate) fn row(&self, i: i32) -> i32 {
        self.base + (i & (Self::STAGES - 1)) * Self::ROW
    }

    /// Starts copying image rows `y` to `y + R - 1` as rows `i` to `i + R - 1`; `i` is a multiple
    /// of R.
    ///
    /// # Safety
    /// No lane still reads the previous rows of these buffers; all lanes call together.
    #[inline(always)]
    pub(crate) unsafe fn fetch(&self, y: i32, i: i32) {
        let to = self.row(i);
        // With more single floats than lanes, the image is not much wider than its apron.
        if !self.source.has_rows(y, y + Self::ROWS) || self.singles() > 32 {
            // SAFETY: as the caller promised.
            unsafe { self.fetch_beyond(y, to) };
            return;
        }
        let offset = mul_wide(y, self.pitch) as isize;
        let piece = 4 * thread_x();
        let (remainder_row, remainder_at) = Self::remainder();
        // SAFETY: rows and pieces lie in the image and in the ring.
        unsafe {
            if piece >= self.lo && piece < self.hi {
                let mut r = 0;
                while r < Self::ROWS {
                    let from = self.from.wrapping_offset(offset + mul_wide(r, self.pitch) as isize);
                    self.shared.copy4(to + r * Self::ROW + piece, from.cast());
                    r += 1;
                }
            }
            if Self::REMAINDER > 0 && remainder_row < Self::ROWS && remainder_at < self.hi {
                self.shared.copy4(
                    to + remainder_row * Self::ROW + remainder_at,
                    self.remainder.wrapping_offset(offset).cast(),
                );
            }
            if self.single_to >= 0 {
                let mut r = 0;
                while r < Self::ROWS {
                    let from =
                        self.single.wrapping_offset(offset + mul_wide(r, self.pitch) as isize);
                    self.shared.copy1(to + r * Self::ROW + self.single_to, from.cast());
                    r += 1;
                }
            }
        }
    }

    /// As [`Ring::fetch`], for any rows and any number of single floats.
    ///
    /// # Safety
    /// As for [`Ring::fetch`].
    #[inline(always)]
    unsafe fn fetch_beyond(&self, y: i32, to: i32) {
        let mut r = opaque(0);
        while r < Self::ROWS {
            let row = self.source.row(y + r);
            let to = to + r * Self::ROW;
            let mut at = 4 * opaque(thread_x());
            // SAFETY: as in `fetch`.
            unsafe {
                while at < self.hi {
                    if at >= self.lo {
                        if !row.is_inside() {
                            let mut i = 0;
                            while i < 4 {
                                self.shared.store(to + at + i, self.pass().outside);
                                i += 1;
                            }
                        } else {
                            self.shared.copy4(to + at, row.at_plain(self.left + at));
                        }
                    }
                    at += 128;
                }
                let mut index = opaque(thread_x());
                while index < self.singles() {
                    let column = self.column(index);
                    let at = to + self.position(index);
                    if !row.is_inside() || column < 0 {
                        self.shared.store(at, self.pass().outside);
                    } else {
                        self.shared.copy1(at, row.at_plain(column));
                    }
                    index += 32;
                }
            }
            r += 1;
        }
    }

    /// The first `count` floats (a multiple of PX) of the lane's share of row `i`. Float
    /// `ring_apron(K) - K / 2` is the leftmost that its first pixel needs.
    ///
    /// # Safety
    /// The row has arrived; `count` is at most `PX + 2 * ring_apron(K)`.
    #[inline(always)]
    pub(crate) unsafe fn read(&self, i: i32, count: usize) -> [f32; MAX_SHARE] {
        // SAFETY: the last lane's share ends with the row buffer.
        unsafe { read_share::<PX>(self.shared, self.row(i) + PX as i32 * thread_x(), count) }
    }
}

/// `count` floats (a multiple of PX) from float `at` of shared memory on.
///
/// # Safety
/// The floats have been written, and a barrier separates the writes from this read.
#[inline(always)]
pub(crate) unsafe fn read_share<const PX: usize>(
    shared: Shared,
    at: i32,
    count: usize,
) -> [f32; MAX_SHARE] {
    let mut values = [0.0; MAX_SHARE];
    let mut n = 0;
    while n < count {
        // SAFETY: as the caller promised.
        unsafe {
            if PX.is_multiple_of(4) {
                let four = shared.load4(at + n as i32);
                values[n] = four[0];
                values[n + 1] = four[1];
                values[n + 2] = four[2];
                values[n + 3] = four[3];
                n += 4;
            } else {
                let two = shared.load2(at + n as i32);
                values[n] = two[0];
                values[n + 1] = two[1];
                n += 2;
            }
        }
    }
    values
}
