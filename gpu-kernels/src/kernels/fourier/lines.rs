//! A row and a column of taps as products of 1-D spectra in f32: a kernel for the rows, then one
//! for the columns. For wide windows: the time hardly depends on the number of taps.
//!
//! Tiling: a line of N = 256 R numbers (R is 4, 8 or 16) gives `N + 1 - taps` results that
//! wrap-around does not reach (overlap-save). Two image lines are the real and the imaginary parts
//! of one complex line: taps are real, so the two never mix. The row pass pairs rows 2k and 2k + 1,
//! the column pass columns 2k and 2k + 1; tile t begins at result `t (N + 1 - taps)`. So tiles and
//! partners depend on image coordinates alone, not on the region or band. Longer windows have
//! parts: registers add the spectra of their products before one inverse transform. The columns of
//! two terms are added in the same manner.
//!
//! Threads: 16 R threads share a line (`line.rs`). A block of the row pass takes 16 / R pairs of
//! rows; a block of the column pass takes J = 32 / R neighbouring pairs of columns, so that a warp
//! has all threads of one k1. Order of sums: fixed by the transforms. Error: see
//! `host/src/kernels/lines.rs`. For each tile of a pair of rows the row pass stores a mark: a bound
//! of its error in a sum. The column pass takes the maximum over its rows. Limits: one channel of a
//! plane at a time; copies at the border are left to `keep.rs`; the intermediate image is f32, with
//! rows aligned to 8 bytes.

use super::fft::{Complex, ZERO};
use super::line::{EACH, FACTORS, Line};
pub use super::line::{Lines, Marks};
use crate::abi::{Pass, Plane};
use crate::border;
use crate::device::*;
use crate::pixel::{note, to_near_byte};
use crate::tile::view::{BYTES, Row, Source, Target, finished};

kernel! {
    /// The row pass for windows of one part, to a plane of f32. `numbers` has factors and spectra,
    /// as [`Lines`] says.
    fn spectra_1024_rows(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 8, 1");
        directive!(".minnctapersm 4");
        rows::<4, BYTES, false>(&pass, &lines, numbers)
    }

    /// As `spectra_1024_rows`, with lines of 2048 numbers.
    fn spectra_2048_rows(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 8, 1");
        directive!(".minnctapersm 4");
        rows::<8, BYTES, false>(&pass, &lines, numbers)
    }

    /// As `spectra_1024_rows`, with lines of 4096 numbers.
    fn spectra_4096_rows(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 8, 1");
        directive!(".minnctapersm 4");
        rows::<16, BYTES, false>(&pass, &lines, numbers)
    }

    /// As `spectra_4096_rows`, for windows in parts.
    fn spectra_rows_in_parts(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 8, 1");
        directive!(".minnctapersm 2");
        rows::<16, BYTES, true>(&pass, &lines, numbers)
    }

    /// The column pass for windows of one part, from the row pass's plane to bytes.
    fn spectra_1024_columns(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 16, 1");
        directive!(".minnctapersm 2");
        columns::<4, 8, BYTES, false>(&pass, &lines, numbers, &Sum::of_one(&pass))
    }

    /// As `spectra_1024_columns`, with lines of 2048 numbers.
    fn spectra_2048_columns(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 16, 1");
        directive!(".minnctapersm 2");
        columns::<8, 4, BYTES, false>(&pass, &lines, numbers, &Sum::of_one(&pass))
    }

    /// As `spectra_2048_columns`, for windows in parts, and for sums of products.
    fn spectra_columns_in_parts(pass: Pass, lines: Lines, numbers: *const f32, sum: Sum) {
        directive!(".maxntid 32, 16, 1");
        columns::<8, 4, BYTES, true>(&pass, &lines, numbers, &sum)
    }
}

/// The frequency of each factor in a table.
pub const FACTOR_OF: [usize; FACTORS] = [1, 2, 3, 4, 8, 12];

/// Arguments of the column pass for sums of products.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    /// The number of terms, 1 or 2. The spectra of the second term's parts follow those of the
    /// first.
    pub terms: i32,
    /// The value of rows outside the image in the second term's plane.
    pub outside: f32,
    /// Bytes from the first term's plane to the second term's.
    pub apart: i64,
    /// Bytes from the first term's marks to the second term's.
    pub marks_apart: i64,
    /// Multiplier of the result's own pixel, which is added to the sum; 0 for none.
    pub point: f32,
    /// The pixels for `point`.
    pub pixels: Plane,
}

impl Sum {
    /// A single term, without a point.
    #[inline(always)]
    pub const fn of_one(pass: &Pass) -> Self {
        Self { terms: 1, outside: 0.0, apart: 0, marks_apart: 0, point: 0.0, pixels: pass.src }
    }
}

host! {
    /// An entry: it takes the pass, its lines, factors and spectra.
    #[derive(Clone, Copy, Debug)]
    pub enum LineEntry {
        /// No further arguments.
        Whole(crate::entry::Entry<(Pass, Lines, *const f32)>),
        /// For columns of windows in parts, or of a sum of products.
        Summed(crate::entry::Entry<(Pass, Lines, *const f32, Sum)>),
    }

    impl LineEntry {
        /// The entry's name in PTX.
        pub const fn name(&self) -> &'static str {
            match self {
                Self::Whole(entry) => entry.name(),
                Self::Summed(entry) => entry.name(),
            }
        }
    }

    /// A kernel for rows or columns.
    #[derive(Clone, Copy, Debug)]
    pub struct LineKernel {
        /// The entry to launch.
        pub entry: LineEntry,
        /// Numbers of a line.
        pub size: usize,
        /// Whether the kernel takes windows in several parts.
        pub in_parts: bool,
        /// Threads of a block.
        pub block: (u32, u32),
        /// Lines of the image that a block takes.
        pub lines: u32,
        /// Bytes of shared memory.
        pub shared: u32,
    }

    impl LineKernel {
        const fn of<const R: usize, const J: i32>(entry: LineEntry, in_parts: bool) -> Self {
            let (size, pairs) = (256 * R, (J * Line::<R, J>::GROUPS) as u32);
            let (block, shared) = ((32, R as u32 * pairs / 2), 8 * size as u32 * pairs);
            Self { entry, size, in_parts, block, lines: 2 * pairs, shared }
        }

        /// The frequency of number `n` of thread `t`.
        pub const fn frequency(&self, n: usize, t: usize) -> usize {
            let r = self.size / 256;
            let (k1, k2, k3) = (t / r, t % r + r * (n / r), n % r);
            k1 + 16 * (k2 + 16 * k3)
        }
    }

    /// The kernels for rows.
    pub const ROWS: [LineKernel; 4] = [
        LineKernel::of::<4, 1>(LineEntry::Whole(spectra_1024_rows), false),
        LineKernel::of::<8, 1>(LineEntry::Whole(spectra_2048_rows), false),
        LineKernel::of::<16, 1>(LineEntry::Whole(spectra_4096_rows), false),
        LineKernel::of::<16, 1>(LineEntry::Whole(spectra_rows_in_parts), true),
    ];

    /// The kernels for columns.
    pub const COLUMNS: [LineKernel; 3] = [
        LineKernel::of::<4, 8>(LineEntry::Whole(spectra_1024_columns), false),
        LineKernel::of::<8, 4>(LineEntry::Whole(spectra_2048_columns), false),
        LineKernel::of::<8, 4>(LineEntry::Summed(spectra_columns_in_parts), true),
    ];
}

/// The row pass: each block takes pairs of rows of one column of tiles.
///
/// # Safety
/// The pass describes allocated memory. Its destination is plain, of f32, and has a place for each
/// result of the region. `numbers` are made for these lines. Blocks have the shape and the shared
/// memory of the entry.
#[inline(always)]
unsafe fn rows<const R: usize, const KIND: u32, const IN_PARTS: bool>(
    pass: &Pass,
    lines: &Lines,
    numbers: *const f32,
) {
    let line = Line::<R, 1>::of_thread();
    let step = Line::<R, 1>::SIZE + 1 - lines.part;
    let first = (lines.first + block_x()) * step;
    let (source, target) = (Source::new(pass), Target::new(pass));
    let region = &pass.region;
    let (from, end) = (region.x0 - first, step.min(region.x1 - first));
    let groups = Line::<R, 1>::GROUPS;
    let mut y = (region.y0 & !1) + 2 * (groups * block_y() + Line::<R, 1>::group());
    let last = (region.y1 - 1) & !1;
    while y - 2 * Line::<R, 1>::group() < region.y1 {
        let line = line.here();
        // Pairs below the region repeat its last pair and are not stored.
        let above = y.min(last);
        let pair = [source.row(above), source.row((above + 1).min(pass.height - 1))];
        let is_pair = above + 1 < pass.height;
        // SAFETY: as the caller promised; only one thread stores to each place.
        unsafe {
            let (sums, squares) = line.filtered::<IN_PARTS>(lines, 1, numbers, |_, tap| {
                load_rows::<R, KIND>(&line, pass, lines, (pair, is_pair), (first, tap))
            });
            let line = line.here();
            let mut row = 0;
            while row < 2 {
                if y + row >= region.y0 && y + row < region.y1 {
                    let to = target.at_plain(first + line.thread, y + row);
                    let mut m = 0;
                    while m < EACH {
                        let n = line.thread + (16 * R * m) as i32;
                        if n >= from && n < end {
                            store(to, 16 * R * m, if row == 0 { sums[m].re } else { sums[m].im });
                        }
                        m += 1;
                    }
                }
                row += 1;
            }
            let (squares, greatest) = line.here().totals(squares, [0.0, greatest(&sums)]);
            if line.thread == 0 && y < region.y1 {
                let mark = moved::<R>(lines, squares, greatest[1]);
                store(lines.marks.place((y >> 1) - lines.marks.pair, block_x()), 0, mark);
            }
            // The next pair overwrites the same shared memory.
            barrier();
        }
        y += 2 * groups * grid_height();
    }
}

/// The greatest magnitude of a thread's sums.
#[inline(always)]
fn greatest(sums: &[Complex; EACH]) -> f32 {
    let (mut greatest, mut m) = (0.0f32, 0);
    while m < EACH {
        greatest = greatest.max(sums[m].re.abs()).max(sums[m].im.abs());
        m += 1;
    }
    greatest
}

/// Error bound of a pass for the sums of a line of 256 R numbers. `squares` are the sums of squared
/// magnitudes of all frequencies. Before the taps' spectrum that sum is N squared times the mean
/// square of the input; after it, the mean square of the sums.
#[inline(always)]
fn moved<const R: usize>(lines: &Lines, squares: [f32; 2], greatest: f32) -> f32 {
    let part = 1.0 / (256 * R) as f32;
    fma(
        lines.of_input,
        part * sqrt(squares[0]),
        fma(lines.of_output, sqrt(squares[1]), lines.of_greatest * greatest),
    )
}

/// Loads the thread's share of a pair of rows for the part of the window that begins at tap `tap`:
/// the first row as real parts, the second as imaginary parts, 0 if there is none. A column that no
/// result in the image needs is 0.
///
/// # Safety
/// As for [`rows`]; shared memory is not in use.
#[inline(always)]
unsafe fn load_rows<const R: usize, const KIND: u32>(
    line: &Line<R, 1>,
    pass: &Pass,
    lines: &Lines,
    (pair, is_pair): ([Row<'_>; 2], bool),
    (first, tap): (i32, i32),
) -> [Complex; EACH] {
    /// Pixels that are loaded together at the image's edges.
    const TOGETHER: usize = 8;
    let apart = Line::<R, 1>::THREADS;
    let left = first - lines.anchor + tap;
    let x = left + line.thread;
    // SAFETY: inside, every column lies in the image; else each column goes through the border
    // rule.
    unsafe {
        if left >= 0 && left + Line::<R, 1>::SIZE <= pass.width {
            let [re, im] =
                [0, 1].map(|row: usize| pair[row].pixels_strided::<EACH, KIND>(x, apart));
            let mut numbers = [ZERO; EACH];
            let mut m = 0;
            while m < EACH {
                numbers[m] = Complex { re: re[m], im: if is_pair { im[m] } else { 0.0 } };
                m += 1;
            }
            return numbers;
        }
        let needed = pass.width - first + lines.taps - 1 - tap;
        let mut m = opaque(0);
        while m < EACH as i32 {
            let [re, im] = [0, 1]
                .map(|row: usize| pair[row].found_strided::<TOGETHER, KIND>(x + apart * m, apart));
            let mut i = 0;
            while i < TOGETHER {
                let is_needed = line.thread + apart * (m + i as i32) < needed;
                let re = if is_needed { re[i] } else { 0.0 };
                let im = if is_needed && is_pair { im[i] } else { 0.0 };
                line.keep(m + i as i32, Complex { re, im });
                i += 1;
            }
            m = opaque(m + TOGETHER as i32);
        }
        line.kept()
    }
}

/// The column pass: each block takes tiles of J pairs of columns.
///
/// # Safety
/// As for [`rows`], except that the source is plain, of f32, and the destination's values have any
/// type. The source has the region's columns, from and to an even column.
#[inline(always)]
unsafe fn columns<const R: usize, const J: i32, const KIND: u32, const IN_PARTS: bool>(
    pass: &Pass,
    lines: &Lines,
    numbers: *const f32,
    sum: &Sum,
) {
    let line = Line::<R, J>::of_thread();
    let step = Line::<R, J>::SIZE + 1 - lines.part;
    let source = Source::new(pass);
    let region = &pass.region;
    let x = (region.x0 & !(2 * J - 1)) + 2 * (J * block_x() + line.number);
    // Pairs outside the region repeat the nearest pair and are not stored.
    let pair = x.max(region.x0 & !1).min((region.x1 - 1) & !1);
    let mut tile = lines.first + block_y();
    while tile * step < region.y1 {
        let (first, line) = (tile * step, line.here());
        // SAFETY: as the caller promised.
        unsafe {
            let (sums, squares) =
                line.filtered::<IN_PARTS>(lines, sum.terms, numbers, |term, tap| {
                    let (apart, outside) =
                        if term == 0 { (0, pass.outside) } else { (sum.apart, sum.outside) };
                    load_columns(&line, pass, lines, (&source, apart, outside), (pair, first, tap))
                });
            let mark = greatest_mark::<R, J>(pass, lines, sum, opaque(first));
            let (squares, greatest) = line.here().totals(squares, [mark, greatest(&sums)]);
            let near = lines.near - greatest[0] - moved::<R>(lines, squares, greatest[1]);
            store_columns::<R, J, KIND>(
                &line.here(),
                pass,
                (lines, sum, near),
                (x, first),
                step,
                &sums,
            );
            // The next tile overwrites the same shared memory.
            barrier();
        }
        tile += grid_height();
    }
}

/// Loads the thread's share of a pair of columns from `x` on, for the part of the window that
/// begins at tap `tap`. The term's plane is `term` bytes after the source; `beyond` is its value
/// outside the image. A row that no result in the image needs is 0.
///
/// # Safety
/// As for [`columns`]; shared memory is not in use.
#[inline(always)]
unsafe fn load_columns<const R: usize, const J: i32>(
    line: &Line<R, J>,
    pass: &Pass,
    lines: &Lines,
    (source, term, beyond): (&Source<'_>, i64, f32),
    (x, first, tap): (i32, i32, i32),
) -> [Complex; EACH] {
    let top = first - lines.anchor + tap;
    if !source.has_rows(top, top + Line::<R, J>::SIZE) {
        // SAFETY: as the caller promised.
        return unsafe {
            load_columns_at_edge(line, pass, lines, (source, term, beyond), (x, first, tap))
        };
    }
    let row = source.plain_row(top).below(line.thread);
    let mut from = row.at_plain(x).wrapping_byte_offset(term as isize);
    let next = source.plain_offset(Line::<R, J>::THREADS);
    let mut numbers = [ZERO; EACH];
    let mut m = 0;
    while m < EACH {
        // SAFETY: memory has every row.
        let [re, im] = unsafe { load2(from, 0) };
        numbers[m] = Complex { re, im };
        from = from.wrapping_byte_offset(next);
        m += 1;
    }
    numbers
}

/// As [`load_columns`], with each row through the border rule.
///
/// # Safety
/// As for [`load_columns`].
#[inline(always)]
unsafe fn load_columns_at_edge<const R: usize, const J: i32>(
    line: &Line<R, J>,
    pass: &Pass,
    lines: &Lines,
    (source, term, beyond): (&Source<'_>, i64, f32),
    (x, first, tap): (i32, i32, i32),
) -> [Complex; EACH] {
    /// Numbers that are loaded together.
    const TOGETHER: usize = 8;
    let apart = Line::<R, J>::THREADS;
    let top = first - lines.anchor + tap;
    let (there, end) = (pass.src.first_row, pass.src.end_row);
    let needed = pass.height - first + lines.taps - 1 - tap;
    // SAFETY: each row goes through the border rule.
    unsafe {
        let mut m = opaque(0);
        while m < EACH as i32 {
            let (mut pairs, mut outside) = ([[0.0; 2]; TOGETHER], [false; TOGETHER]);
            let mut i = 0;
            while i < TOGETHER {
                let n = line.thread + apart * (m + i as i32);
                let y = border::resolve_briefly(pass.border, top + n, pass.height);
                outside[i] = y < 0;
                // The nearest row in memory stands in for a row that memory lacks.
                let from = source.plain_row(y.max(there).min(end - 1)).at_plain(x);
                pairs[i] = load2(from.wrapping_byte_offset(term as isize), 0);
                i += 1;
            }
            i = 0;
            while i < TOGETHER {
                let is_needed = line.thread + apart * (m + i as i32) < needed;
                let value = |number: f32| match (is_needed, outside[i]) {
                    (true, false) => number,
                    (true, true) => beyond,
                    _ => 0.0,
                };
                line.keep(m + i as i32, Complex { re: value(pairs[i][0]), im: value(pairs[i][1]) });
                i += 1;
            }
            m = opaque(m + TOGETHER as i32);
        }
        line.kept()
    }
}

/// The maximum of the thread's share of the marks for the rows that a tile of columns reads; twice
/// the maximum for two terms.
///
/// # Safety
/// As for [`columns`].
#[inline(always)]
unsafe fn greatest_mark<const R: usize, const J: i32>(
    pass: &Pass,
    lines: &Lines,
    sum: &Sum,
    first: i32,
) -> f32 {
    let (marks, region) = (&lines.marks, &pass.region);
    // Opaque, so that the compiler computes nothing of it early.
    let left = (region.x0 & !(2 * J - 1)) + 2 * J * opaque(block_x());
    let (from, to) = (left.max(region.x0 & !1), (left + 2 * J).min((region.x1 + 1) & !1) - 1);
    let (from, to) = (marks.tile(from), marks.tile(to));
    let top = first - lines.anchor;
    let bottom = top + (lines.parts - 1) * lines.part + Line::<R, J>::SIZE;
    // With rows outside the image, the border rule may give any row.
    let is_inside = top >= pass.src.first_row && bottom <= pass.src.end_row;
    let (mut pair, end) = match is_inside {
        true => ((top >> 1) - marks.pair, ((bottom - 1) >> 1) - marks.pair + 1),
        false => (0, marks.pairs),
    };
    pair += 32 * thread_y() + thread_x();
    let mut greatest = 0.0f32;
    while pair < end {
        let mut tile = from;
        while tile <= to {
            // SAFETY: the row pass stored a mark for each tile of each pair.
            unsafe {
                let place = marks.place(pair, tile) as *const f32;
                greatest = greatest.max(load(place, 0));
                if sum.terms > 1 {
                    greatest =
                        greatest.max(load(place.wrapping_byte_offset(sum.marks_apart as isize), 0));
                }
            }
            tile += 1;
        }
        pair += Line::<R, J>::THREADS * J;
    }
    if sum.terms > 1 { 2.0 * greatest } else { greatest }
}

/// Stores the results of a pair of columns from `x` on, and notes uncertain results in the pass's
/// list.
///
/// # Safety
/// As for [`columns`]; only one thread stores each result.
#[inline(always)]
unsafe fn store_columns<const R: usize, const J: i32, const KIND: u32>(
    line: &Line<R, J>,
    pass: &Pass,
    (lines, sum, near): (&Lines, &Sum, f32),
    (x, first): (i32, i32),
    step: i32,
    sums: &[Complex; EACH],
) {
    const { assert!(KIND == BYTES, "the column pass makes bytes") }
    let results = Results::new(line, pass, (x, first), step);
    let (mut re, mut im) = ([0.0; EACH], [0.0; EACH]);
    let mut m = 0;
    while m < EACH {
        (re[m], im[m]) = (sums[m].re + lines.middle, sums[m].im + lines.middle);
        m += 1;
    }
    if sum.point != 0.0 {
        // SAFETY: as the caller promised.
        unsafe { results.add_point(&Source::of(&sum.pixels, pass), sum.point, (&mut re, &mut im)) };
    }
    let (re, im) = (finished(pass, re), finished(pass, im));
    let target = Target::late(pass);
    // Two bits for each pair of results, so that the sums need no registers.
    let (mut words, mut uncertain) = ([0; EACH], 0u32);
    m = 0;
    while m < EACH {
        let ((left, distance), (right, other)) = (to_near_byte(re[m]), to_near_byte(im[m]));
        words[m] = permute::<0x0040>(left, right);
        uncertain |=
            ((distance >= near) as u32) << (2 * m) | ((other >= near) as u32) << (2 * m + 1);
        m += 1;
    }
    // Opaque, so that the compiler computes it here and keeps no sum for it.
    let uncertain = opaque(uncertain as i32) as u32;
    // SAFETY: as the caller promised; the second call needs a list.
    unsafe {
        results.store(&target, &words);
        if pass.uncertain.list != 0 {
            results.note(&target, uncertain);
        }
    }
}

/// A thread's results of a pair of columns.
struct Results<const R: usize, const J: i32> {
    /// The thread's index in its line.
    thread: i32,
    /// The pair's first column, and the row of the line's first number.
    x: i32,
    first: i32,
    /// The line's numbers that are results in the region: the first, and the end.
    from: i32,
    end: i32,
    /// Whether each column lies in the region.
    has: [bool; 2],
}

impl<const R: usize, const J: i32> Results<R, J> {
    /// Rows from one of the thread's results to the next.
    const APART: i32 = Line::<R, J>::THREADS;

    /// For lines with `step` results.
    #[inline(always)]
    fn new(line: &Line<R, J>, pass: &Pass, (x, first): (i32, i32), step: i32) -> Self {
        let region = &pass.region;
        Self {
            thread: line.thread,
            x,
            first,
            from: region.y0 - first,
            end: step.min(region.y1 - first),
            has: [x >= region.x0 && x < region.x1, x + 1 >= region.x0 && x + 1 < region.x1],
        }
    }

    /// Whether the thread's number `m` is a result.
    #[inline(always)]
    fn is_result(&self, m: usize) -> bool {
        (self.from..self.end).contains(&(self.thread + Self::APART * m as i32))
    }

    /// The row of the thread's number `m`.
    #[inline(always)]
    fn row(&self, m: i32) -> i32 {
        self.first + self.thread + Self::APART * m
    }

    /// Adds `point` times each result's own pixel to the sums.
    ///
    /// # Safety
    /// `pixels` are in allocated memory; the results lie in the image.
    #[inline(always)]
    unsafe fn add_point(
        &self,
        pixels: &Source<'_>,
        point: f32,
        (re, im): (&mut [f32; EACH], &mut [f32; EACH]),
    ) {
        let mut m = 0;
        while m < EACH {
            let row = pixels.row_inside(self.row(m as i32));
            // SAFETY: as the caller promised.
            let (left, right) = unsafe {
                (
                    load_u8_if(self.is_result(m) && self.has[0], row.at(self.x)),
                    load_u8_if(self.is_result(m) && self.has[1], row.at(self.x + 1)),
                )
            };
            re[m] = fma(point, left as f32, re[m]);
            im[m] = fma(point, right as f32, im[m]);
            m += 1;
        }
    }

    /// Stores words of two bytes each.
    ///
    /// # Safety
    /// The region is in allocated memory; no other thread stores these results.
    #[inline(always)]
    unsafe fn store(&self, target: &Target<'_>, words: &[u32; EACH]) {
        let (plane, has) = (&target.pass().dst, self.has);
        let mut at = target.at(self.x, self.row(0));
        let next = (Self::APART as i64).wrapping_mul(plane.row) as u64;
        let beside = plane.pixel as i64 as u64;
        let is_word = has[0] && has[1] && beside == 1 && (at | next) & 1 == 0;
        let mut m = 0;
        // SAFETY: as the caller promised.
        unsafe {
            if is_word {
                while m < EACH {
                    if self.is_result(m) {
                        store_u16(at, words[m]);
                    }
                    at = at.wrapping_add(next);
                    m += 1;
                }
            } else {
                while m < EACH {
                    if self.is_result(m) && has[0] {
                        store_u8(at, words[m]);
                    }
                    if self.is_result(m) && has[1] {
                        store_u8(at.wrapping_add(beside), words[m] >> 8);
                    }
                    at = at.wrapping_add(next);
                    m += 1;
                }
            }
        }
    }

    /// Notes the results whose bits are set: bit `2 m` for number `m` of the first column, the next
    /// bit for that of the second.
    ///
    /// # Safety
    /// The pass has a list.
    #[inline(always)]
    unsafe fn note(&self, target: &Target<'_>, mut uncertain: u32) {
        while uncertain != 0 {
            keep_rolled();
            let bit = uncertain.trailing_zeros() as i32;
            uncertain &= uncertain - 1;
            let has = if bit & 1 == 0 { self.has[0] } else { self.has[1] };
            if self.is_result((bit >> 1) as usize) && has {
                // SAFETY: as the caller promised.
                unsafe { note(target.pass(), self.x + (bit & 1), self.row(bit >> 1), target.z()) };
            }
        }
    }
}
