//! Separable correlation in two passes with any number of taps: rows into an intermediate image of
//! f32, then columns. A thread has 8 or 16 neighbouring results in registers, and loads each tap
//! and each value once for all of them.
//!
//! Row pass: a tile of 256 columns with their apron in shared memory. Half a warp shares a line,
//! which is a row of one channel; a thread has 16 results side by side. The values under its
//! results move through registers. A block has 8 rows of one channel, or 2 rows of C interleaved
//! channels. Results of interleaved channels go through shared memory, so that neighbouring threads
//! store neighbouring values.
//!
//! Column pass: block 32 x 8, a tile of 32 columns with their apron. A thread has results below
//! each other; the taps above them move through registers. Interleaved channels are one row of
//! values.
//!
//! Taps: in device memory, up to [`CHUNK`] at a time ([`SUMMED_CHUNK`] for sums).
//!
//! `separable_rows_each` and `separable_columns_each` take planes, and each image has taps of its
//! own: [`ImageTaps`]. `separable_tile_each` takes the small windows among them.
//!
//! Order, borders and sums of two terms: as `separable.rs`.

use super::separable::{COLUMNS_BLOCK, COLUMNS_TILE, ROWS_TILE, finish, load_columns};
use crate::abi::{Each, Pass, Plane, Window};
use crate::device::*;
use crate::pixel::F32;
use crate::tile::unrolled::by;
use crate::tile::view::{Row, STORED, Source, Target};

/// Most taps that a pass takes at a time.
pub const CHUNK: i32 = 256;
/// Most taps of each column that the pass for sums takes at a time: both terms' tiles fit in the
/// shared memory that any block may have.
pub const SUMMED_CHUNK: i32 = 64;
/// Warps in a block of the row pass for so many interleaved channels, 1 for planes. Each warp has
/// lines of one channel.
pub const fn rows_warps(channels: i32) -> i32 {
    if channels == 1 { 4 } else { channels }
}

/// Lines that a block of the row pass computes: rows, times interleaved channels.
const fn lines(channels: i32) -> i32 {
    rows_warps(channels) * 32 / SHARE
}

/// Rows that a block of the row pass computes.
pub const fn rows_tile(channels: i32) -> i32 {
    lines(channels) / channels
}

/// Rows that a block of the column pass computes.
pub const COLUMN_ROWS: i32 = COLUMNS_BLOCK.1 as i32 * RUN as i32;

/// Results of a thread.
const RUN: usize = 16;
/// Results of a thread in the column pass for sums, whose block computes [`COLUMNS_TILE`] rows.
const SUMMED_RUN: usize = COLUMNS_TILE as usize / COLUMNS_BLOCK.1 as usize;
/// Threads that share a line of the row pass.
const SHARE: i32 = ROWS_TILE / RUN as i32;
/// Floats from one run of [`RUN`] pixels to the next in the row pass's tile: with four floats of
/// padding, 16-byte accesses of neighbouring threads have no bank conflicts.
const APART: i32 = RUN as i32 + 4;

/// The taps at a time if `taps` are taken in equal chunks of at most `most`: a multiple of 16.
pub const fn chunk(taps: i32, most: i32) -> i32 {
    let chunks = (taps + most - 1) / most;
    // `checked`, so that no panic is compiled in; there is a tap.
    let each = match (taps + chunks - 1).checked_div(chunks) {
        Some(each) => each,
        None => 0,
    };
    (each + RUN as i32 - 1) / RUN as i32 * RUN as i32
}

/// Floats from one line of the row pass's tile to the next, with `chunk` taps at a time.
const fn pitch(chunk: i32) -> i32 {
    (SHARE + 1 + chunk / RUN as i32) * APART
}

/// The float of column `x` in a line of the row pass's tile.
#[inline(always)]
const fn padded(x: i32) -> i32 {
    x + (x as u32 / RUN as u32) as i32 * (APART - RUN as i32)
}

/// Bytes of shared memory for the row pass.
pub const fn rows_shared(taps: i32, channels: i32) -> u32 {
    4 * (lines(channels) * pitch(chunk(taps, CHUNK))) as u32
}

/// Bytes of shared memory for the column pass of one term.
pub const fn columns_shared(taps: i32) -> u32 {
    4 * COLUMNS_BLOCK.0 * (COLUMN_ROWS + chunk(taps, CHUNK)) as u32
}

/// Bytes of shared memory for the column pass of sums.
pub const SUMMED_SHARED: u32 = 8 * COLUMNS_BLOCK.0 * (COLUMNS_TILE + SUMMED_CHUNK) as u32;

kernel! {
    /// Filters along the rows.
    fn separable_rows(pass: Pass, window: Window, taps: *const f32) {
        directive!(".maxnreg 80");
        rows::<1>(&pass, &window, taps)
    }

    /// Filters along the rows of images of two interleaved channels.
    fn separable_rows_c2(pass: Pass, window: Window, taps: *const f32) {
        directive!(".maxnreg 80");
        rows::<2>(&pass, &window, taps)
    }

    /// Filters along the rows of images of three interleaved channels.
    fn separable_rows_c3(pass: Pass, window: Window, taps: *const f32) {
        directive!(".maxnreg 80");
        rows::<3>(&pass, &window, taps)
    }

    /// Filters along the rows of images of four interleaved channels.
    fn separable_rows_c4(pass: Pass, window: Window, taps: *const f32) {
        directive!(".maxnreg 80");
        rows::<4>(&pass, &window, taps)
    }

    /// Filters along the rows of images with taps of their own: a table of [`ImageTaps`].
    fn separable_rows_each(pass: Pass, each: Each) {
        directive!(".maxnreg 80");
        let taps = ImageTaps::of_block(&each);
        if taps.tile == 0 {
            rows::<1>(&pass, &taps.window, taps.row as *const f32)
        }
    }

    /// Filters along the columns of these images. The pass's value outside is not used.
    fn separable_columns_each(pass: Pass, original: Plane, each: Each) {
        directive!(".maxnreg 64");
        let taps = ImageTaps::of_block(&each);
        if taps.tile == 0 {
            let (pass, column) = (Pass { outside: taps.outside, ..pass }, taps.column as *const f32);
            columns::<RUN, CHUNK, false>([&pass; 2], 1, &taps.window, &original, column)
        }
    }

    /// Filters along the columns.
    fn separable_columns(pass: Pass, window: Window, original: Plane, taps: *const f32) {
        directive!(".maxnreg 64");
        columns::<RUN, CHUNK, false>([&pass; 2], 1, &window, &original, taps)
    }

    /// Filters along the columns of one or two intermediate images, the pass's source and `second`.
    /// Adds the results, and the pass's point times the original image. `taps` are the first
    /// term's, then the second's. `outside` is the value outside the second image.
    fn separable_columns_summed(pass: Pass, window: Window, original: Plane, terms: i32, second: Plane, outside: f32, taps: *const f32) {
        directive!(".maxnreg 80");
        let second = Pass { src: second, outside, ..pass };
        columns::<SUMMED_RUN, SUMMED_CHUNK, true>([&pass, &second], terms, &window, &original, taps)
    }
}

/// The taps of an image of a batch with taps for each: an entry of their table.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ImageTaps {
    /// The window.
    pub window: Window,
    /// Bytes from this entry to the row's taps, which begin at a multiple of 16 bytes.
    pub row: u64,
    /// Bytes from this entry to the column's taps, likewise.
    pub column: u64,
    /// The value outside the intermediate image.
    pub outside: f32,
    /// The taps of the row and of the column, if `separable_tile_each` takes the image; else 0.
    pub tile: i32,
    /// Rounds an entry up to a multiple of 16 bytes.
    pub unused: [u32; 2],
}

impl ImageTaps {
    /// The entry as the table has it.
    pub const fn to_words(&self) -> [u32; 12] {
        let Self { window, row, column, outside, tile, unused: [a, b] } = *self;
        let [cols, rows, x, y] = window.to_words();
        let (low, high) = (row as u32, (row >> 32) as u32);
        let [column_low, column_high] = [column as u32, (column >> 32) as u32];
        [cols, rows, x, y, low, high, column_low, column_high, outside.to_bits(), tile as u32, a, b]
    }

    /// The entry for this block's plane, with addresses instead of distances.
    ///
    /// # Safety
    /// The table has it.
    #[inline(always)]
    pub(super) unsafe fn of_block(each: &Each) -> Self {
        let at = each.entry(block_z(), size_of::<Self>());
        // SAFETY: as the caller promised.
        let (window, taps, [outside, tile]) =
            unsafe { (load_words(at), load_words::<4>(at + 16), load_words(at + 32)) };
        let address = |low: u32, high: u32| at.wrapping_add((high as u64) << 32 | low as u64);
        Self {
            window: Window::of_words(window),
            row: address(taps[0], taps[1]),
            column: address(taps[2], taps[3]),
            outside: f32::from_bits(outside),
            tile: tile as i32,
            unused: [0; 2],
        }
    }
}

host! {
    /// The row passes, for 1 channel (planes) to 4 interleaved channels.
    pub const ROWS: [crate::entry::Entry<(Pass, Window, *const f32)>; 4] =
        [separable_rows, separable_rows_c2, separable_rows_c3, separable_rows_c4];
}

/// N neighbouring taps.
///
/// # Safety
/// `taps` holds them, and is aligned to all of them if N is a multiple of 4.
#[inline(always)]
pub(super) unsafe fn load_taps<const N: usize>(taps: *const f32) -> [f32; N] {
    let (mut loaded, mut i) = ([0.0; N], 0);
    // SAFETY: as the caller promised.
    unsafe {
        while i + 4 <= N {
            let four = load_words::<4>(taps.wrapping_add(i) as u64);
            let mut j = 0;
            while j < 4 {
                loaded[i + j] = f32::from_bits(four[j]);
                j += 1;
            }
            i += 4;
        }
        while i < N {
            loaded[i] = load(taps, i);
            i += 1;
        }
    }
    loaded
}

/// The row pass, on planes or on C interleaved channels.
///
/// # Safety
/// `pass` and `window` describe allocated memory, `taps` holds `window.cols` taps and is aligned to
/// 16 bytes, and the launch has the block shape and the shared memory stated above. With C more
/// than 1, the source's pixels are C values side by side, the destination's are values
/// ([`Plane::as_values`]), and the grid's z axis counts images.
#[inline(always)]
unsafe fn rows<const C: i32>(pass: &Pass, window: &Window, taps: *const f32) {
    let (tile, lane) = (Shared::dynamic(), thread_x());
    let chunk = chunk(window.cols, CHUNK);
    let pitch = pitch(chunk);
    let line = thread_y() + const { rows_warps(C) } * (lane / SHARE);
    let own = line * pitch + lane % SHARE * APART;
    let left = pass.region.aligned_left() + block_x() * ROWS_TILE;
    let mut top = pass.region.y0 + block_y() * const { rows_tile(C) };
    while top < pass.region.y1 {
        let mut sums = [0.0; RUN];
        let mut done = opaque(0);
        // SAFETY: indices stay in the tile. A warp loads the lines that its threads read, and
        // passes barriers before it loads them and after. The region guards the writes.
        unsafe {
            while done < window.cols {
                let count = if window.cols - done < chunk { window.cols - done } else { chunk };
                load_lines::<C>(pass, tile, pitch, (left + done - window.anchor_x, top), count);
                warp_barrier();
                Across::new(tile, own).add(&mut sums, taps.wrapping_add(done as usize), count);
                warp_barrier();
                done += count;
            }
            if C > 1 {
                // All warps have read their lines.
                barrier();
                interleave::<C>(tile, (lane % SHARE * RUN as i32, line), sums);
                barrier();
                store_values::<C>(pass, tile, left, top);
                barrier();
            } else if top + line < pass.region.y1 {
                let (x, y) = (left + lane % SHARE * RUN as i32, top + line);
                let (target, mut i) = (Target::late(pass), 0);
                while i < RUN {
                    let four = [sums[i], sums[i + 1], sums[i + 2], sums[i + 3]];
                    target.run(x + i as i32).write(y, four);
                    i += 4;
                }
            }
        }
        top += grid_height() * const { rows_tile(C) };
    }
}

/// The float of value number `at` of a block's results: with one float of padding after 32.
#[inline(always)]
const fn value_place(at: i32) -> i32 {
    at + (at as u32 / 32) as i32
}

/// Puts a thread's results, from column `x` of a line on, in memory order into shared memory.
///
/// # Safety
/// The tile is not in use; the launch is that of [`rows`].
#[inline(always)]
unsafe fn interleave<const C: i32>(tile: Shared, (x, line): (i32, i32), sums: [f32; RUN]) {
    let mut i = 0;
    while i < RUN {
        let value = (line / C * ROWS_TILE + x + i as i32) * C + line % C;
        // SAFETY: as the caller promised; with its padding, a line of results is shorter than one
        // of values.
        unsafe { tile.store(value_place(value), sums[i]) };
        i += 1;
    }
}

/// Stores a block's results, which are in shared memory in memory order: 32 values at a time.
///
/// # Safety
/// As for [`rows`]; the results are there.
#[inline(always)]
unsafe fn store_values<const C: i32>(pass: &Pass, tile: Shared, left: i32, top: i32) {
    let (region, target) = (&pass.region, Target::late(pass));
    let mut first = opaque(32 * thread_y());
    while first < const { lines(C) } * ROWS_TILE {
        let (row, at) = (first / (C * ROWS_TILE), first % (C * ROWS_TILE) + thread_x());
        let (x, y) = (C * left + at, top + row);
        if x >= C * region.x0 && x < C * region.x1 && y < region.y1 {
            // SAFETY: the value lies in the region, and has a place in shared memory.
            unsafe { target.write(x, y, tile.load(value_place(first + thread_x()))) };
        }
        first += 32 * const { rows_warps(C) };
    }
}

/// Loads the warp's lines of a tile: the values under `count` taps and one more.
///
/// # Safety
/// As for [`rows`]; the warp's part of shared memory is not in use.
#[inline(always)]
unsafe fn load_lines<const C: i32>(
    pass: &Pass,
    tile: Shared,
    pitch: i32,
    (left, top): (i32, i32),
    count: i32,
) {
    let source = Source::of_channel(&pass.src, pass, block_z() * C + thread_y() % C);
    let is_plain = if C == 1 { source.is_plain() } else { source.plane().scalar == F32 };
    let (end, mut line) = (ROWS_TILE + count, thread_y());
    while line < const { lines(C) } {
        let (row, to) = (source.row(top + line / C), line * pitch + padded(thread_x()));
        // SAFETY: as the caller promised; all columns lie in the image, or go through the border
        // rule.
        unsafe {
            if is_plain && row.has_columns(left, end) {
                let from = row.at_plain(C * (left + thread_x()));
                copy_line::<C>(from, tile, to, end - thread_x());
            } else {
                load_line(row, tile, to, left + thread_x(), end - thread_x());
            }
        }
        line += const { rows_warps(C) };
    }
    copies_commit();
    copies_wait::<0>();
}

/// Columns that a warp loads at once, as a number of loads of each thread.
const AT_ONCE: usize = 4;

/// Starts the copies of every 32nd value of a channel, one of C, from address `from` on to shared
/// memory from float `to` on, where they are [`padded`]. The first `end` values are there.
///
/// # Safety
/// The values are in allocated memory, and have places in the tile.
#[inline(always)]
unsafe fn copy_line<const C: i32>(mut from: *const f32, tile: Shared, mut to: i32, mut end: i32) {
    let apart = const { 32 * C as usize };
    while end > 0 {
        let mut i = 0;
        while i < AT_ONCE {
            if 32 * (i as i32) < end {
                // SAFETY: as the caller promised.
                unsafe { tile.copy1(to + padded(32) * i as i32, from.wrapping_add(apart * i)) };
            }
            i += 1;
        }
        from = from.wrapping_add(apart * AT_ONCE);
        to += padded(32) * AT_ONCE as i32;
        end -= 32 * AT_ONCE as i32;
    }
}

/// As [`copy_line`], for any type and through the border rule, from column `x` on.
///
/// # Safety
/// As for [`copy_line`].
#[inline(always)]
unsafe fn load_line(row: Row<'_>, tile: Shared, mut to: i32, mut x: i32, mut end: i32) {
    while end > 0 {
        // SAFETY: columns in the image are loaded as they are, others through the border rule; the
        // places lie in the tile.
        unsafe {
            let values = if row.has_columns(x, 32 * AT_ONCE as i32) {
                row.pixels_strided::<AT_ONCE, STORED>(x, 32)
            } else {
                row.found_strided::<AT_ONCE, STORED>(x, 32)
            };
            let mut i = 0;
            while i < AT_ONCE {
                if 32 * (i as i32) < end {
                    tile.store(to + padded(32) * i as i32, values[i]);
                }
                i += 1;
            }
        }
        x += 32 * AT_ONCE as i32;
        to += padded(32) * AT_ONCE as i32;
        end -= 32 * AT_ONCE as i32;
    }
}

/// Values of a row that move past a thread's results.
struct Across {
    tile: Shared,
    /// The values under the next tap, one for each result.
    window: [f32; RUN],
    /// Where the next value lies in shared memory.
    next: i32,
}

impl Across {
    /// For results whose first values lie from `at` on.
    ///
    /// # Safety
    /// They lie in the tile.
    #[inline(always)]
    unsafe fn new(tile: Shared, at: i32) -> Self {
        // SAFETY: as the caller promised.
        Self { tile, window: unsafe { values::<RUN>(tile, at) }, next: at + APART }
    }

    /// Adds `count` taps times their values to the sums.
    ///
    /// # Safety
    /// `taps` holds the taps and is aligned to 16 bytes; the values are in the tile, with one more.
    #[inline(always)]
    unsafe fn add(mut self, sums: &mut [f32; RUN], mut taps: *const f32, count: i32) {
        let mut left = count;
        // SAFETY: as the caller promised.
        unsafe {
            // Two runs at a time: the values of either take the other's registers.
            while left >= 2 * RUN as i32 {
                self.run(sums, taps);
                self.run(sums, taps.wrapping_add(RUN));
                taps = taps.wrapping_add(2 * RUN);
                left -= 2 * RUN as i32;
            }
            if left >= RUN as i32 {
                self.run(sums, taps);
                taps = taps.wrapping_add(RUN);
                left -= RUN as i32;
            }
            while left >= 4 {
                keep_rolled();
                self.step(sums, load_taps::<4>(taps));
                taps = taps.wrapping_add(4);
                left -= 4;
            }
            while left > 0 {
                keep_rolled();
                self.step(sums, load_taps::<1>(taps));
                taps = taps.wrapping_add(1);
                left -= 1;
            }
        }
    }

    /// Adds a run of taps times their values, and moves on by a run.
    ///
    /// # Safety
    /// As for [`Across::add`].
    #[inline(always)]
    unsafe fn run(&mut self, sums: &mut [f32; RUN], taps: *const f32) {
        // SAFETY: as the caller promised.
        unsafe { self.step(sums, load_taps::<RUN>(taps)) };
        self.next += APART - RUN as i32;
    }

    /// Adds N taps times their values, and moves on by N values.
    ///
    /// # Safety
    /// The values lie in the tile.
    #[inline(always)]
    unsafe fn step<const N: usize>(&mut self, sums: &mut [f32; RUN], taps: [f32; N]) {
        // SAFETY: as the caller promised.
        let new = unsafe { values::<N>(self.tile, self.next) };
        self.next += N as i32;
        let window = self.window;
        let value = |i: usize| if i < RUN { window[i] } else { new[i - RUN] };
        let mut t = 0;
        while t < N {
            let mut i = 0;
            while i < RUN {
                sums[i] = fma(taps[t], value(t + i), sums[i]);
                i += 1;
            }
            t += 1;
        }
        let mut i = 0;
        while i < RUN {
            self.window[i] = value(N + i);
            i += 1;
        }
    }
}

/// N neighbouring values in shared memory.
///
/// # Safety
/// They lie in the tile, aligned to 16 bytes if N is a multiple of 4.
#[inline(always)]
unsafe fn values<const N: usize>(tile: Shared, at: i32) -> [f32; N] {
    let (mut values, mut i) = ([0.0; N], 0);
    // SAFETY: as the caller promised.
    unsafe {
        while i + 4 <= N {
            let four = tile.load4(at + i as i32);
            let mut j = 0;
            while j < 4 {
                values[i + j] = four[j];
                j += 1;
            }
            i += 4;
        }
        while i < N {
            values[i] = tile.load(at + i as i32);
            i += 1;
        }
    }
    values
}

/// The column pass, with at most MOST taps at a time. It reads one intermediate image. If SUMMED,
/// it reads `terms` (one or two) of them and adds the pass's point.
///
/// # Safety
/// As for [`rows`], with `window.rows` taps of one term, then of the other from a multiple of 16
/// bytes on; `original` is the image before the row pass. The passes differ in their source alone.
#[inline(always)]
unsafe fn columns<const N: usize, const MOST: i32, const SUMMED: bool>(
    passes: [&Pass; 2],
    terms: i32,
    window: &Window,
    original: &Plane,
    taps: *const f32,
) {
    let rows = COLUMNS_BLOCK.1 as i32 * N as i32;
    let (pass, tile, two) = (passes[0], Shared::dynamic(), SUMMED && terms == 2);
    let chunk = chunk(window.rows, MOST);
    // The second term's tile and taps follow the first's.
    let apart = [32 * (rows + chunk), (window.rows + 3) & !3];
    let own = thread_y() * N as i32;
    let x = pass.region.x0 + block_x() * 32 + thread_x();
    let mut top = pass.region.y0 + block_y() * rows;
    while top < pass.region.y1 {
        let mut sums = [0.0; N];
        let mut done = opaque(0);
        // SAFETY: indices stay in the tile. The threads of a block share `top`, so all reach the
        // barriers. `finish` guards the writes; those of the region lie in the original.
        unsafe {
            while done < window.rows {
                let count = if window.rows - done < chunk { window.rows - done } else { chunk };
                let first = top + done - window.anchor_y;
                load_tile(pass, (tile, 0), rows + count - 1, first);
                if two {
                    load_tile(passes[1], (tile, apart[0]), rows + count - 1, first);
                }
                barrier();
                let down = Down {
                    tile,
                    at: 32 * own + thread_x(),
                    taps: taps.wrapping_add(done as usize),
                    apart,
                };
                if two {
                    down.add::<N, 2>(&mut sums, count);
                } else {
                    down.add::<N, 1>(&mut sums, count);
                }
                barrier();
                done += count;
            }
            let at = (x, top + own);
            if SUMMED && pass.point != 0.0 && x < pass.region.x1 {
                sums = Source::of(original, pass).with_point_down(at, sums);
            }
            finish(pass, window, original, at, sums);
        }
        top += grid_height() * rows;
    }
}

/// Loads `count` rows of the block's columns, from row `first` on, into shared memory from float
/// `start` on.
///
/// # Safety
/// The pass describes allocated memory; the rows have places in the tile.
#[inline(always)]
unsafe fn load_tile(pass: &Pass, tile: (Shared, i32), count: i32, first: i32) {
    /// Copies between two tests, and rows from one to the next.
    const AT_ONCE: usize = 4;
    const DOWN: i32 = COLUMNS_BLOCK.1 as i32;
    let source = Source::new(pass);
    let is_inside = first >= 0 && first + count <= pass.height && source.is_plain();
    if !is_inside || !source.has_rows(first, first + count) {
        // SAFETY: as the caller promised.
        return unsafe { load_columns(pass, tile, count, first) };
    }
    let x = (pass.region.x0 + block_x() * 32 + thread_x()).min(pass.region.x1 - 1);
    let mut from = source.plain_row(first + thread_y()).at_plain(x);
    let next = source.plain_offset(DOWN);
    let (tile, mut to) = (tile.0, tile.1 + 32 * thread_y() + thread_x());
    let mut left = count - thread_y();
    while left > 0 {
        let mut i = 0;
        while i < AT_ONCE {
            if DOWN * (i as i32) < left {
                // SAFETY: the pixel lies in the image, and has a place in the tile.
                unsafe { tile.copy1(to + 32 * DOWN * i as i32, from) };
            }
            from = from.wrapping_byte_offset(next);
            i += 1;
        }
        to += 32 * DOWN * AT_ONCE as i32;
        left -= DOWN * AT_ONCE as i32;
    }
    copies_commit();
    copies_wait::<0>();
}

/// Where N results, one below the other, find values and taps.
#[derive(Clone, Copy)]
struct Down {
    tile: Shared,
    /// The next value in shared memory, and the next tap.
    at: i32,
    taps: *const f32,
    /// Floats from the first term's value and tap to the second's.
    apart: [i32; 2],
}

/// Which results a step adds to: those at and above its row, all, or those below its row.
const START: u32 = 0;
const MIDDLE: u32 = 1;
const END: u32 = 2;

impl Down {
    /// Adds `count` taps of each term times their values to the sums.
    ///
    /// # Safety
    /// The taps are in memory, aligned to 16 bytes; the values are in the tile.
    #[inline(always)]
    unsafe fn add<const N: usize, const TERMS: usize>(mut self, sums: &mut [f32; N], count: i32) {
        // SAFETY: as the caller promised.
        unsafe {
            if count < N as i32 {
                return self.add_few::<N, TERMS>(sums, count);
            }
            let mut above = [[0.0; N]; TERMS];
            self.step::<N, N, TERMS, START>(sums, &mut above);
            let mut left = count - N as i32;
            // Two runs at a time: the taps of either take the other's registers.
            while left >= 2 * N as i32 {
                self.step::<N, N, TERMS, MIDDLE>(sums, &mut above);
                self.step::<N, N, TERMS, MIDDLE>(sums, &mut above);
                left -= 2 * N as i32;
            }
            if left >= N as i32 {
                self.step::<N, N, TERMS, MIDDLE>(sums, &mut above);
                left -= N as i32;
            }
            while left >= 4 {
                keep_rolled();
                self.step::<N, 4, TERMS, MIDDLE>(sums, &mut above);
                left -= 4;
            }
            while left > 0 {
                keep_rolled();
                self.step::<N, 1, TERMS, MIDDLE>(sums, &mut above);
                left -= 1;
            }
            self.step::<N, N, TERMS, END>(sums, &mut above);
        }
    }

    /// [`Down::add`] for fewer taps than results.
    ///
    /// # Safety
    /// As for [`Down::add`].
    #[inline(always)]
    unsafe fn add_few<const N: usize, const TERMS: usize>(self, sums: &mut [f32; N], count: i32) {
        by::<2>(count, |row| {
            let mut term = 0;
            while term < TERMS {
                // SAFETY: as the caller promised.
                unsafe {
                    let ([tap], at) =
                        (self.of(term).taps_at::<1>(row), self.of(term).at + 32 * row);
                    let mut i = 0;
                    while i < N {
                        sums[i] = fma(tap, self.tile.load(at + 32 * i as i32), sums[i]);
                        i += 1;
                    }
                }
                term += 1;
            }
        });
    }

    /// The same for one of the terms.
    #[inline(always)]
    fn of(self, term: usize) -> Self {
        let [at, taps] = if term == 0 { [0, 0] } else { self.apart };
        Self { at: self.at + at, taps: self.taps.wrapping_add(taps as usize), ..self }
    }

    /// The first term's M taps from number `first` on.
    ///
    /// # Safety
    /// As for [`Down::add`].
    #[inline(always)]
    unsafe fn taps_at<const M: usize>(self, first: i32) -> [f32; M] {
        // SAFETY: as the caller promised.
        unsafe { load_taps(self.taps.wrapping_add(first as usize)) }
    }

    /// Adds the products of the next M values of each term. Result `i` takes value `row` times the
    /// tap `row - i` after the `N` taps `above`; these move on by M taps.
    ///
    /// # Safety
    /// As for [`Down::add`].
    #[inline(always)]
    unsafe fn step<const N: usize, const M: usize, const TERMS: usize, const PART: u32>(
        &mut self,
        sums: &mut [f32; N],
        above: &mut [[f32; N]; TERMS],
    ) {
        let mut taps = [[0.0; M]; TERMS];
        let mut term = 0;
        // SAFETY: as the caller promised. The last row of the END has no result.
        unsafe {
            while PART != END && term < TERMS {
                taps[term] = self.of(term).taps_at::<M>(0);
                term += 1;
            }
            let mut row = 0;
            while row < if PART == END { M - 1 } else { M } {
                let (mut values, mut term) = ([0.0; TERMS], 0);
                while term < TERMS {
                    values[term] = self.tile.load(self.of(term).at + 32 * row as i32);
                    term += 1;
                }
                let mut i = 0;
                while i < N {
                    term = 0;
                    while term < TERMS {
                        let tap =
                            if row >= i { taps[term][row - i] } else { above[term][N + row - i] };
                        if (PART != END || row < i) && (PART != START || row >= i) {
                            sums[i] = fma(tap, values[term], sums[i]);
                        }
                        term += 1;
                    }
                    i += 1;
                }
                row += 1;
            }
        }
        term = 0;
        while term < TERMS {
            let (old, mut i) = (above[term], 0);
            while i < N {
                above[term][i] = if M + i < N { old[M + i] } else { taps[term][M + i - N] };
                i += 1;
            }
            term += 1;
        }
        self.at += 32 * M as i32;
        self.taps = self.taps.wrapping_add(M);
    }
}
