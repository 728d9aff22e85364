//! A warp's own ring of image rows in shared memory, filled asynchronously ahead of use.
//!
//! A warp that filters a strip of the image from top to bottom needs each input row once. The ring holds the next STAGES
//! rows of its strip: while the warp computes on some, the others are on their way, so that enough bytes are in flight
//! whatever the number of warps. Only the warp is synchronized, never the block.
//!
//! A row buffer is `apron` floats, the strip's 32 * PX pixels and `apron` floats more; `apron` is a multiple of 4, so that
//! the image's 16-byte pieces stay aligned in it. Rows come in groups of R, copied together: one 16-byte piece a lane for
//! each row, and the pieces that are over, of all R rows, by one more copy. Strips at the left and right edge of the image
//! have floats beyond it: each lane copies one of them, from a column that is resolved once. So these strips take hardly
//! longer than the others, which matters, because a launch ends with its slowest warp. Rows above and below the image are
//! resolved when they are due.
//!
//! Limits: rows of the source begin at multiples of 16 bytes, less than 4 GiB apart.

use crate::abi::{Frame, ring_apron, ring_floats, ring_row};
use crate::border;
use crate::device::*;

/// Room for the floats of a row that a lane reads; the compiler keeps those that are used.
pub(crate) const MAX_SHARE: usize = 68;

/// The rows of one strip; K is the number of tap columns.
pub(crate) struct Ring<'a, const K: usize, const PX: usize, const R: usize, const STAGES: usize> {
    frame: &'a Frame,
    shared: Shared,
    /// First float of the ring.
    base: i32,
    /// Image column of a row buffer's first float.
    left: i32,
    /// The part of a row buffer that lies in the image, in whole pieces; from `hi` to `end`, single floats.
    lo: i32,
    hi: i32,
    end: i32,
    /// The lane's piece of image row 0, its share of the pieces that are over in a group of rows from row 0 on, and its
    /// single float of row 0.
    from: *const u8,
    over: *const u8,
    single: *const u8,
    /// Where the single float goes in a row buffer; negative if there is none.
    single_to: i32,
    pitch: u32,
}

impl<'a, const K: usize, const PX: usize, const R: usize, const STAGES: usize> Ring<'a, K, PX, R, STAGES> {
    const ROW: i32 = ring_row(K as i32, PX as i32);
    const ROWS: i32 = R as i32;
    const STAGES: i32 = STAGES as i32;
    /// 16-byte pieces of a row, and those that 32 lanes leave over.
    const PIECES: i32 = Self::ROW / 4;
    const OVER: i32 = if Self::PIECES > 32 { Self::PIECES - 32 } else { 0 };

    /// The ring of this warp for the strip that begins at column `x`.
    ///
    /// # Safety
    /// The launch reserved [`ring_floats`] floats for each warp of the block; all lanes call together.
    #[inline(always)]
    pub(crate) unsafe fn new(frame: &'a Frame, x: i32) -> Self {
        const { assert!(Self::ROWS * Self::OVER <= 32 && STAGES.is_multiple_of(R) && STAGES.is_power_of_two()) }
        let apron = ring_apron(K as i32);
        let left = x - apron;
        let inside = frame.width - left;
        let pitch = 4 * frame.src_stride as u32;
        let plane = frame.src.wrapping_add(block_z() as usize * frame.src_plane);
        let strip = plane.wrapping_offset(left as isize);
        let (over_row, over_at) = Self::over();
        let mut ring = Self {
            frame,
            shared: Shared::dynamic(),
            base: thread_y() * ring_floats(K as i32, PX as i32, Self::STAGES),
            left,
            lo: if left < 0 { apron } else { 0 },
            hi: if inside < Self::ROW { inside & !3 } else { Self::ROW },
            end: if inside + apron < Self::ROW { inside + apron } else { Self::ROW },
            from: strip.wrapping_add(4 * thread_x() as usize).cast(),
            over: strip.wrapping_add(over_at as usize).cast::<u8>().wrapping_add((over_row as u32 * pitch) as usize),
            single: plane.cast(),
            single_to: -1,
            pitch,
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

    /// The row in a group, and the place in the row buffer, of the lane's piece among those that are over.
    #[inline(always)]
    fn over() -> (i32, i32) {
        if Self::OVER > 0 { (thread_x() / Self::OVER, 4 * (32 + thread_x() % Self::OVER)) } else { (0, 0) }
    }

    /// Whether the strip touches the image's left or right edge.
    #[inline(always)]
    fn edge(&self) -> bool {
        self.lo > 0 || self.hi < Self::ROW
    }

    /// How many floats of a row are copied one by one: those left of `lo`, then those from `hi` to `end`.
    #[inline(always)]
    fn singles(&self) -> i32 {
        self.lo + self.end - self.hi
    }

    /// The place of single float `index` in a row buffer.
    #[inline(always)]
    fn position(&self, index: i32) -> i32 {
        if index < self.lo { index } else { index - self.lo + self.hi }
    }

    /// The image column that single float `index` comes from, or [`border::OUTSIDE`].
    #[inline(always)]
    fn column(&self, index: i32) -> i32 {
        border::resolve(self.frame.border, self.left + self.position(index), self.frame.width)
    }

    /// Writes, into all rows of the ring, the floats that no copy brings: those that have the border's value, and those
    /// right of `end`, which are read but take no part in a result that is stored.
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
                    unsafe { self.shared.store(self.base + stage * Self::ROW + at, self.frame.border_value) };
                    stage += 1;
                }
            }
            at += 32;
        }
        warp_barrier();
    }

    /// The first float of the buffer that row number `i` of the strip takes.
    #[inline(always)]
    pub(crate) fn row(&self, i: i32) -> i32 {
        self.base + (i & (Self::STAGES - 1)) * Self::ROW
    }

    /// Starts copying image rows `y` to `y + R - 1` as rows `i` to `i + R - 1`; `i` is a multiple of R.
    ///
    /// # Safety
    /// No lane still reads the rows that had these buffers; all lanes call together.
    #[inline(always)]
    pub(crate) unsafe fn fetch(&self, y: i32, i: i32) {
        let to = self.row(i);
        // More single floats than lanes: an image not much wider than its apron.
        if y < 0 || y + Self::ROWS > self.frame.height || self.singles() > 32 {
            // SAFETY: as the caller promised.
            unsafe { self.fetch_beyond(y, to) };
            return;
        }
        let offset = y as u32 as usize * self.pitch as usize;
        let piece = 4 * thread_x();
        let (over_row, over_at) = Self::over();
        // SAFETY: rows and pieces lie in the image and in the ring.
        unsafe {
            if piece >= self.lo && piece < self.hi {
                let mut r = 0;
                while r < Self::ROWS {
                    let from = self.from.wrapping_add(offset + (r as u32 * self.pitch) as usize);
                    self.shared.copy4(to + r * Self::ROW + piece, from.cast());
                    r += 1;
                }
            }
            if Self::OVER > 0 && over_row < Self::ROWS && over_at < self.hi {
                self.shared.copy4(to + over_row * Self::ROW + over_at, self.over.wrapping_add(offset).cast());
            }
            if self.single_to >= 0 {
                let mut r = 0;
                while r < Self::ROWS {
                    let from = self.single.wrapping_add(offset + (r as u32 * self.pitch) as usize);
                    self.shared.copy1(to + r * Self::ROW + self.single_to, from.cast());
                    r += 1;
                }
            }
        }
    }

    /// As [`Ring::fetch`], wherever rows lie, and however many single floats there are.
    ///
    /// # Safety
    /// As for [`Ring::fetch`].
    #[inline(always)]
    unsafe fn fetch_beyond(&self, y: i32, to: i32) {
        let mut r = opaque(0);
        while r < Self::ROWS {
            let y = border::resolve(self.frame.border, y + r, self.frame.height);
            let to = to + r * Self::ROW;
            let offset = y as u32 as usize * self.pitch as usize;
            let mut at = 4 * opaque(thread_x());
            // SAFETY: as in `fetch`.
            unsafe {
                while at < self.hi {
                    if at >= self.lo {
                        if y < 0 {
                            let mut i = 0;
                            while i < 4 {
                                self.shared.store(to + at + i, self.frame.border_value);
                                i += 1;
                            }
                        } else {
                            let from = self.from.wrapping_add(offset).cast::<f32>();
                            self.shared.copy4(to + at, from.wrapping_offset((at - 4 * thread_x()) as isize));
                        }
                    }
                    at += 128;
                }
                let row = self.frame.src.wrapping_add(block_z() as usize * self.frame.src_plane).cast::<u8>();
                let mut index = opaque(thread_x());
                while index < self.singles() {
                    let column = self.column(index);
                    let at = to + self.position(index);
                    if y < 0 || column < 0 {
                        self.shared.store(at, self.frame.border_value);
                    } else {
                        self.shared.copy1(at, row.wrapping_add(offset + 4 * column as usize).cast());
                    }
                    index += 32;
                }
            }
            r += 1;
        }
    }

    /// The first `count` floats, a multiple of PX, of row `i` from where the lane's share begins: float
    /// `ring_apron(K) - K / 2` of them is the leftmost that its first pixel needs.
    ///
    /// # Safety
    /// The row has arrived; `count` is at most `PX + 2 * ring_apron(K)`.
    #[inline(always)]
    pub(crate) unsafe fn read(&self, i: i32, count: usize) -> [f32; MAX_SHARE] {
        let at = self.row(i) + PX as i32 * thread_x();
        let mut values = [0.0; MAX_SHARE];
        let mut n = 0;
        while n < count {
            // SAFETY: the last lane's share ends with the row buffer.
            unsafe {
                if PX == 4 {
                    let four = self.shared.load4(at + n as i32);
                    values[n] = four[0];
                    values[n + 1] = four[1];
                    values[n + 2] = four[2];
                    values[n + 3] = four[3];
                    n += 4;
                } else {
                    let two = self.shared.load2(at + n as i32);
                    values[n] = two[0];
                    values[n + 1] = two[1];
                    n += 2;
                }
            }
        }
        values
    }
}
