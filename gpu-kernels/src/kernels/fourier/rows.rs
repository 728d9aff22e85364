//! The row pass by 1-D spectra: see `lines.rs`.

use super::fft::{Complex, ZERO};
use super::line::{EACH, Line, Lines, greatest, is_finite, moved};
use crate::abi::Pass;
use crate::device::*;
use crate::tile::view::{BYTES, Row, Source, Target};

/// Pixels that are loaded together at the image's edges.
const TOGETHER: usize = 8;

/// Two image lines in one complex line, the first as real parts, the second as imaginary parts.
struct Pair<'a> {
    /// The rows in the image.
    rows: [Row<'a>; 2],
    /// The column of each line's first result.
    first: [i32; 2],
    /// Whether the image has the second line.
    has_second: bool,
}

impl<'a> Pair<'a> {
    /// The rows of a pair.
    const fn height(kind: u32) -> i32 {
        if kind == BYTES { 2 } else { 1 }
    }

    /// The pair at row `y`. Its lines are rows `y` and `y + 1` of bytes, or two tiles of row `y`,
    /// `step` columns apart.
    #[inline(always)]
    fn new<const KIND: u32>(source: &Source<'a>, y: i32, first: i32, step: i32) -> Self {
        let height = source.pass.height;
        let row = source.row(y);
        if KIND == BYTES {
            let below = source.row((y + 1).min(height - 1));
            return Self { rows: [row, below], first: [first; 2], has_second: y + 1 < height };
        }
        Self { rows: [row; 2], first: [first, first + step], has_second: true }
    }
}

/// Each block takes pairs of lines of one column of tiles.
///
/// # Safety
/// The pass describes allocated memory. Its destination is plain, of f32, and has a place for each
/// result of the region. `numbers` are made for these lines. Blocks have the shape and the shared
/// memory of the entry.
#[inline(always)]
pub(super) unsafe fn rows<const R: usize, const KIND: u32, const IN_PARTS: bool>(
    pass: &Pass,
    lines: &Lines,
    numbers: *const f32,
) {
    let line = Line::<R, 1>::of_thread();
    let step = Line::<R, 1>::SIZE + 1 - lines.part;
    let (height, tiles) = (Pair::height(KIND), if KIND == BYTES { 1 } else { 2 });
    let (block, plane) = lines.block();
    let first = (lines.first + tiles * block) * step;
    let source = Source::of_channel(&pass.src, pass, plane);
    let region = &pass.region;
    let (groups, group) = (Line::<R, 1>::GROUPS, Line::<R, 1>::group());
    let mut y = (region.y0 & -height) + height * (groups * block_y() + group);
    let last = (region.y1 - 1) & -height;
    while y - height * group < region.y1 {
        let line = line.here();
        // Pairs below the region repeat its last pair and are not stored.
        let pair = Pair::new::<KIND>(&source, y.min(last), first, step);
        // SAFETY: as the caller promised; only one thread stores to each place.
        unsafe {
            let (mut sums, squares) = line.filtered::<IN_PARTS>(lines, 1, numbers, |_, tap| {
                load_pair::<R, KIND>(&line, pass, lines, &pair, tap)
            });
            if KIND != BYTES && !is_finite(&sums) {
                sums = by_taps::<R, KIND>(&line.here(), pass, lines, numbers, &pair);
            }
            store_pair::<R, KIND>(&line.here(), pass, lines, (first, y), &sums);
            if KIND == BYTES {
                let (squares, greatest) = line.here().totals(squares, [0.0, greatest(&sums)]);
                if line.thread == 0 && y < region.y1 {
                    let mark = moved::<R>(lines, squares, greatest[1]);
                    let (block, plane) = lines.block();
                    let place = lines.marks.place(plane, (y >> 1) - lines.marks.pair, block);
                    store(place, 0, mark);
                }
            }
            // The next pair overwrites the same shared memory.
            barrier();
        }
        y += height * groups * grid_height();
    }
}

/// Stores the results of a pair that lie in the region.
///
/// # Safety
/// As for [`rows`].
#[inline(always)]
unsafe fn store_pair<const R: usize, const KIND: u32>(
    line: &Line<R, 1>,
    pass: &Pass,
    lines: &Lines,
    (first, y): (i32, i32),
    sums: &[Complex; EACH],
) {
    let (_, plane) = lines.block();
    let (region, target) = (&pass.region, Target::of_channel(pass, plane));
    let step = Line::<R, 1>::SIZE + 1 - lines.part;
    let mut half = 0;
    while half < 2 {
        let (left, y) = if KIND == BYTES { (first, y + half) } else { (first + half * step, y) };
        if y >= region.y0 && y < region.y1 {
            let (from, end) = (region.x0 - left, step.min(region.x1 - left));
            let to = target.at_plain(left + line.thread, y);
            let mut m = 0;
            while m < EACH {
                let n = line.thread + (16 * R * m) as i32;
                if n >= from && n < end {
                    // SAFETY: as the caller promised.
                    unsafe {
                        store(to, 16 * R * m, if half == 0 { sums[m].re } else { sums[m].im })
                    };
                }
                m += 1;
            }
        }
        half += 1;
    }
}

/// Loads the thread's share of a pair for the part of the window that begins at tap `tap`. A column
/// that no result in the image needs is 0, and so is a line that the image lacks.
///
/// # Safety
/// As for [`rows`]; shared memory is not in use.
#[inline(always)]
unsafe fn load_pair<const R: usize, const KIND: u32>(
    line: &Line<R, 1>,
    pass: &Pass,
    lines: &Lines,
    pair: &Pair<'_>,
    tap: i32,
) -> [Complex; EACH] {
    let apart = Line::<R, 1>::THREADS;
    let [left, right] = pair.first.map(|first| first - lines.anchor + tap);
    // SAFETY: inside, every column lies in the image; else each column goes through the border
    // rule.
    unsafe {
        if left >= 0 && right + Line::<R, 1>::SIZE <= pass.width {
            let re = pair.rows[0].pixels_strided::<EACH, KIND>(left + line.thread, apart);
            let im = pair.rows[1].pixels_strided::<EACH, KIND>(right + line.thread, apart);
            let mut numbers = [ZERO; EACH];
            let mut m = 0;
            while m < EACH {
                numbers[m] = Complex { re: re[m], im: if pair.has_second { im[m] } else { 0.0 } };
                m += 1;
            }
            return numbers;
        }
        let needed = |half: usize| pass.width - pair.first[half] + lines.taps - 1 - tap;
        let mut m = opaque(0);
        while m < EACH as i32 {
            let n = line.thread + apart * m;
            let re = pair.rows[0].found_strided::<TOGETHER, KIND>(left + n, apart);
            let im = pair.rows[1].found_strided::<TOGETHER, KIND>(right + n, apart);
            let mut i = 0;
            while i < TOGETHER {
                let at = n + apart * i as i32;
                let re = if at < needed(0) { re[i] } else { 0.0 };
                let im = if at < needed(1) && pair.has_second { im[i] } else { 0.0 };
                line.keep(m + i as i32, Complex { re, im });
                i += 1;
            }
            m = opaque(m + TOGETHER as i32);
        }
        line.kept()
    }
}

/// The thread's results of a pair, tap by tap in ascending order.
///
/// # Safety
/// As for [`rows`]; no other thread uses this thread's places in shared memory.
#[inline(always)]
unsafe fn by_taps<const R: usize, const KIND: u32>(
    line: &Line<R, 1>,
    pass: &Pass,
    lines: &Lines,
    numbers: *const f32,
    pair: &Pair<'_>,
) -> [Complex; EACH] {
    let (apart, taps) = (Line::<R, 1>::THREADS, Line::<R, 1>::taps(lines, 1, numbers));
    let [left, right] = pair.first.map(|first| first - lines.anchor + line.thread);
    let end = right + Line::<R, 1>::SIZE + lines.taps;
    let is_inside = pair.first[0] >= lines.anchor && end <= pass.width;
    // SAFETY: as for [`load_pair`].
    unsafe {
        let mut m = opaque(0);
        while m < EACH as i32 {
            let (mut sums, mut tap) = ([[0.0; TOGETHER]; 2], opaque(0));
            while tap < lines.taps {
                let (factor, n) = (load(taps, tap as usize), apart * m + tap);
                let mut half = 0;
                while half < 2 {
                    let x = n + if half == 0 { left } else { right };
                    let row = pair.rows[half];
                    let values = match is_inside {
                        true => row.pixels_strided::<TOGETHER, KIND>(x, apart),
                        false => row.found_strided::<TOGETHER, KIND>(x, apart),
                    };
                    let mut i = 0;
                    while i < TOGETHER {
                        sums[half][i] = fma(factor, values[i], sums[half][i]);
                        i += 1;
                    }
                    half += 1;
                }
                tap = opaque(tap + 1);
            }
            let mut i = 0;
            while i < TOGETHER {
                line.keep(m + i as i32, Complex { re: sums[0][i], im: sums[1][i] });
                i += 1;
            }
            m = opaque(m + TOGETHER as i32);
        }
        line.kept()
    }
}
