//! A row and a column of taps over bytes, or the sum of two such products, by 1-D spectra: launches
//! `gpu-kernels/src/kernels/fourier/lines.rs`, a kernel for the rows and one for the columns.
//!
//! The filter alone decides the sizes of lines and how windows are cut into parts. So the f32 sums
//! are functions of the picture's coordinates, as long as the rows of whole tiles are there.

#[cfg(feature = "gpu")]
use gpu_kernels::abi::{Epilogue, Pass, Plane, Region, UncertainList};
#[cfg(feature = "gpu")]
use gpu_kernels::kernels::fourier::lines::{FACTOR_OF, LineEntry, Lines, Marks, Sum};
use gpu_kernels::kernels::fourier::{
    MIDDLE,
    lines::{COLUMNS, LineKernel, ROWS},
};

use super::cost::{Cost, LAUNCH};
#[cfg(feature = "gpu")]
use super::prepared::PassJob;
use super::prepared::{Kernel, Launcher, Prepared};
use super::uncertain;
use crate::filter::Fact;
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::problem::Problem;
use crate::problem::machine::{Curve, interpolated};
use crate::{Filter, Scalar, Variant, Why};

pub(super) static SPECTRA_PASSES: Kernel = Kernel {
    variant: Variant::SpectraPasses,
    entries: || {
        let keep = gpu_kernels::kernels::keep::keep_edges.name();
        ROWS.iter().chain(&COLUMNS).map(|kernel| kernel.entry.name()).chain([keep]).collect()
    },
    prepare: |problem| {
        LinePasses::find(problem).map(|passes| Prepared::new(Variant::SpectraPasses, passes))
    },
    cost: |problem, machine| {
        /// Microseconds for the second launch and for one tile of each pass. By calculation.
        const SECOND: f64 = 10.0;
        let (Some(error), Ok(passes)) = (problem.numbers.lines, LinePasses::find(problem)) else {
            return Cost::DECLINED;
        };
        // Either each uncertain result is resolved, or exact passes compute all: the faster counts.
        let share = 2.0 * error;
        let settling = match problem.numbers.few {
            Some(few) => {
                uncertain::exact_passes(passes.terms, problem.cols, problem.rows)
                    * (share / few).min(1.0)
            }
            None => uncertain::resolving(problem, share),
        };
        let rows = passes.terms as f64 * passes.rows.time_over(problem.width);
        let columns = passes.columns.time_over(problem.height) * passes.slower_columns(problem);
        let each = rows + columns + settling;
        Cost::of_bytes(LAUNCH + machine.slower() * (problem.millions() * each + SECOND))
    },
    rule: |problem| {
        if problem.rounding.is_some() {
            return Ok(());
        }
        Err("its sums differ in bits from its family's, so it runs only for correctly rounded u8 results".into())
    },
};

/// The error that leaves a quarter of the results uncertain. With more, other kernels are faster.
const GREATEST_ERROR: f64 = 0.125;

/// The least and the greatest `sum |tap|` of a row and of a column with which products and spectra
/// fit f32.
const WEIGHTS: (f64, f64) = (1e-15, 1e15);

/// The most taps of a row or a column.
const LIMIT: usize = 1 << 20;

/// The most products of a row and a column.
const MAX_TERMS: usize = 2;

/// How taps along a line are computed.
#[derive(Clone, Copy, Debug)]
struct Fit {
    kernel: &'static LineKernel,
    /// Taps of a part of the window, and how many parts there are.
    part: usize,
    parts: usize,
    /// Microseconds for a million results of whole tiles.
    time: f64,
}

impl Fit {
    /// For rows, each term by itself. Times are microseconds for a million numbers transformed and
    /// transformed back, by the length of a line (8192x8192 f32, an H200).
    fn of_rows(taps: usize) -> Self {
        const TIMES: Curve = &[(1024.0, 2.4), (2048.0, 2.65), (4096.0, 3.05)];
        Self::fastest((taps, 1), &ROWS, TIMES, false)
    }

    /// For the columns of so many terms, likewise. A sum of products has a kernel of its own.
    fn of_columns(taps: usize, terms: usize, is_sum: bool) -> Self {
        const TIMES: Curve = &[(1024.0, 2.85), (2048.0, 3.25)];
        Self::fastest((taps, terms), &COLUMNS, TIMES, is_sum)
    }

    fn fastest(
        (taps, terms): (usize, usize),
        kernels: &'static [LineKernel],
        times: Curve,
        is_sum: bool,
    ) -> Self {
        /// With fewer results in a tile, a whole window takes longer than one in parts.
        const LEAST_RESULTS: usize = 64;
        let fits = kernels.iter().flat_map(|kernel| {
            let longest = kernel.size - LEAST_RESULTS;
            let least = taps.div_ceil(longest);
            let fewest = if is_sum { 1 } else { 2 };
            let parts = if kernel.in_parts { least.max(fewest)..=4 * least + 8 } else { 1..=1 };
            let takes = kernel.in_parts || least == 1 && !is_sum;
            parts.filter(move |_| takes).map(move |parts| {
                let part = taps.div_ceil(parts);
                // Each part of each term is transformed, and their sum is transformed back.
                let work = kernel.size as f64 / (kernel.size + 1 - part) as f64
                    * (1 + terms * parts) as f64
                    / 2.0;
                Self {
                    kernel,
                    part,
                    parts: taps.div_ceil(part),
                    time: work * interpolated(times, kernel.size as f64),
                }
            })
        });
        fits.min_by(|a, b| a.time.total_cmp(&b.time))
            .expect("a kernel in parts takes any number of taps")
    }

    /// The error bound of a tile's sums, in units of half a last place of 1: how many root mean
    /// squares of the complex numbers that the tile begins with, how many of its sums, and how many
    /// times its greatest sum.
    ///
    /// It has four parts for taps t, and lines of N numbers:
    /// - Roundings of the forward transform. The 2-norm of their error grows with the number of
    ///   butterflies on the way, `log2 N`, and with the line's norm (Higham, Accuracy and Stability
    ///   of Numerical Algorithms, section 24.1). They spread over all frequencies, and the taps
    ///   leave the part `sqrt(sum t^2)` of them.
    /// - Roundings of constants, the taps' spectrum and the factors. They spread likewise, but a
    ///   picture may be aligned with them: at most `sqrt(N)` times the norm of the taps for the
    ///   spectrum, of which 0.4 are allowed.
    /// - Roundings of the inverse transform, relative to the norm of the sums.
    /// - Roundings of its last butterflies, which are relative to the sum itself where few are
    ///   great.
    ///
    /// A result has its share of an error: what is proved takes all roundings for one direction,
    /// and is a hundred times as much as what is seen. A search in runs, waves, noise of two values
    /// and single pixels, for N from 1024 to 4096, found at most 0.55 of this bound. The searches
    /// `worst::lines_bred` and `worst::lines_constants` hold these bounds.
    fn units(&self, taps: &[f64]) -> [f64; 3] {
        const OF_INPUT: [f64; 2] = [9.0, 0.4];
        const OF_OUTPUT: f64 = 14.0;
        const OF_GREATEST: f64 = 5.0;
        let norm = taps.iter().map(|tap| tap * tap).sum::<f64>().sqrt();
        // Each part beyond the first adds a rounding.
        let parts = self.parts as f64;
        [
            (OF_INPUT[0] + OF_INPUT[1] * (self.kernel.size as f64).sqrt()) * norm,
            OF_OUTPUT + parts - 1.0,
            OF_GREATEST,
        ]
    }

    /// Microseconds for a million results of lines of so many: the last tile takes as long as any.
    fn time_over(&self, results: usize) -> f64 {
        self.time * (results.div_ceil(self.step()) * self.step()) as f64 / results as f64
    }

    /// Results of a tile.
    fn step(&self) -> usize {
        self.kernel.size + 1 - self.part
    }

    /// Factors, and the spectra of each term's parts, as the kernel reads them.
    #[cfg(feature = "gpu")]
    fn numbers(&self, terms: &[&[f64]]) -> crate::Result<Vec<f32>> {
        use rustfft::num_complex::Complex;

        let (size, threads) = (self.kernel.size, self.kernel.size / 16);
        let factors = |elements: usize, circle: usize| {
            let factor = move |k: usize, t: usize| {
                let turn = (k * t % circle) as f64 / circle as f64;
                Complex::from_polar(1.0, -std::f64::consts::TAU * turn)
            };
            FACTOR_OF.into_iter().flat_map(move |k| (0..elements).map(move |t| factor(k, t)))
        };
        let mut numbers: Vec<Complex<f64>> =
            crate::memory::reserve(6 * (threads + 16) + terms.len() * self.parts * size)?;
        numbers.extend(factors(threads, size).chain(factors(size / 256, threads)));
        for part in terms.iter().flat_map(|taps| taps.chunks(self.part)) {
            let spectrum = crate::spectrum::of_taps((size, 1), (part.len(), 1), |x, _| part[x])?;
            let places = (0..16).flat_map(|n| (0..threads).map(move |t| (n, t)));
            numbers.extend(places.map(|(n, t)| spectrum[self.kernel.frequency(n, t)]));
        }
        Ok(numbers.iter().flat_map(|number| [number.re as f32, number.im as f32]).collect())
    }
}

/// `sum |tap|`.
fn weight(taps: &[f64]) -> f64 {
    taps.iter().map(|tap| tap.abs()).sum()
}

/// Error bounds of sums over bytes, compared with the exact sums over the whole taps.
#[derive(Clone, Debug)]
struct Errors {
    /// For each term, the error of its row pass relative to root mean squares and to the greatest
    /// sum of a tile: see [`Fit::units`].
    rows: Vec<[f64; 3]>,
    /// The error of the column pass, likewise.
    columns: [f64; 3],
    /// The errors that do not depend on the pixels.
    others: f64,
    /// What a constant border adds to them.
    outside: f64,
    /// The bound for any bytes.
    all: f64,
}

impl Fact for Option<Errors> {
    /// Of a filter's view; `None` if it is no product, nor the sum of one or two.
    fn of(filter: &Filter) -> Self {
        /// Half a unit in the last place of 1.
        const HALF: f64 = f32::EPSILON as f64 / 2.0;
        /// The greatest root mean square of two lines of bytes less their middle.
        const GREATEST: f64 = std::f64::consts::SQRT_2 * MIDDLE as f64;
        let terms = filter.products();
        let is_sum = filter.sum().is_some();
        let scaled = |units: [f64; 3], factor: f64| units.map(|unit| HALF * factor * unit);
        let (mut rows, mut columns) = (Vec::new(), [0.0; 3]);
        let (mut all, mut outside, mut size) = (0.0, 0.0, point(filter).abs());
        for (row, column) in &terms {
            let (across, down) = (weight(row), weight(column));
            let of_row = scaled(Fit::of_rows(row.len()).units(row), down);
            let of_column =
                scaled(Fit::of_columns(column.len(), terms.len(), is_sum).units(column), 1.0);
            // For any bytes: the root mean square of two lines is greater than that of either.
            let most = |[input, output, greatest]: [f64; 3], weight: f64| {
                GREATEST * (input + output * weight) + f64::from(MIDDLE) * greatest * weight
            };
            all += most(of_row, across) + most(of_column, down) * across;
            rows.push(of_row);
            // The squares of both terms' numbers are added up, and so are their sums.
            columns = [columns[0] + of_column[0], of_column[1].max(columns[1]), of_column[2]];
            // A row outside the image has one sum, which is rounded.
            outside += f64::from(MIDDLE) * across * down;
            size += across * down;
        }
        // The sum with the middle is rounded: between 128 and 256 to a multiple of 2^-16. A sum
        // above 256 becomes 255 in any case. With a point, that sum may be greater, and a product
        // is added to it.
        let rounded = if is_sum { 255.0 * point(filter).abs() + 2.0 * 256.5 } else { 128.0 };
        let of_middle = (middle(filter) - f64::from(middle(filter) as f32)).abs();
        // A table of taps may differ from its factors or terms.
        let apart = match (filter.dense_f64(), filter.sum()) {
            (Some(_), Some(sum)) if sum.is_given => 0.0,
            (Some(_), Some(sum)) => crate::round::terms_loss(filter, sum),
            (Some(taps), None) => terms
                .first()
                .map_or(0.0, |(row, column)| crate::round::products_loss(taps, row, column)),
            (None, _) => 0.0,
        };
        // The taps of means are rounded to f64; the bound itself is computed in f32.
        let taps = 2.0 * f64::EPSILON * size;
        let others = HALF * rounded + of_middle + 255.0 * (apart + taps) + 1e-6 * all;
        let outside = HALF * outside;
        let all = all + others + outside;
        (!terms.is_empty()).then_some(Errors { rows, columns, others, outside, all })
    }
}

/// The error bound of sums over any bytes; `None` if the filter is neither a product nor a sum of
/// one or two. Infinite if f32 has no room.
pub(crate) fn error(filter: &Filter) -> Option<f64> {
    if filter.products().is_empty() {
        return None;
    }
    let filter = &filter.byte_filter().ok()?.filter;
    let weights =
        filter.products().into_iter().flat_map(|(row, column)| [weight(row), weight(column)]);
    if !weights.into_iter().all(|weight| (WEIGHTS.0..=WEIGHTS.1).contains(&weight)) {
        return Some(f64::INFINITY);
    }
    filter.fact::<Option<Errors>>().as_ref().as_ref().map(|errors| errors.all)
}

/// What the rows and columns of a filter make of the middle of bytes.
fn middle(filter: &Filter) -> f64 {
    let sum = |taps: &[f64]| taps.iter().sum::<f64>();
    let all = filter.products().iter().map(|(row, column)| sum(row) * sum(column)).sum::<f64>();
    f64::from(MIDDLE) * all
}

/// The factor of the pixel itself, beside the products.
fn point(filter: &Filter) -> f64 {
    filter.sum().map_or(0.0, |sum| sum.point)
}

/// The launch for a problem.
#[derive(Debug)]
struct LinePasses {
    /// Products of a row and a column.
    terms: usize,
    rows: Fit,
    columns: Fit,
}

impl LinePasses {
    fn find(problem: &Problem) -> Result<Self, Why> {
        if (problem.source, problem.target) != (Scalar::U8, Scalar::U8) {
            return Err(Why::BYTES_ALONE);
        }
        let (mode, outside) = problem.border.code();
        if !gpu_kernels::tile::flat::takes_outside(gpu_kernels::abi::scalar::U8, mode, outside) {
            return Err(format!(
                "the border is constant:{outside}, but must be a whole number from 0 to 255"
            )
            .into());
        }
        let terms = problem.terms()?;
        if terms > MAX_TERMS {
            return Err(
                format!("a sum of {terms} separable terms, the limit is {MAX_TERMS}").into()
            );
        }
        let (cols, rows) = (problem.cols, problem.rows);
        if cols.max(rows) > LIMIT {
            return Err(
                format!("{cols}x{rows} taps, the limit is {LIMIT} in each direction").into()
            );
        }
        // Without a bound, results are rounded from f32, and the error does not matter.
        if let Some(error) = problem.numbers.lines.filter(|error| *error > GREATEST_ERROR) {
            return Err(format!(
                "its sums may be off by {error:.3}, the limit is {GREATEST_ERROR}"
            )
            .into());
        }
        let columns = Fit::of_columns(rows, terms, problem.sum.is_some());
        let passes = Self { terms, rows: Fit::of_rows(cols), columns };
        for fit in [&passes.rows, &passes.columns] {
            problem.fits_shared_memory(fit.kernel.shared as usize, "a tile's lines")?;
        }
        Ok(passes)
    }

    /// The factor on the time of columns for the kernel that takes parts and sums: a multiprocessor
    /// has room for one of its blocks. A sum also loads the pixel itself. Measured on an H200:
    /// gaussian:sigma=1000 and unsharp:sigma=20 of 8192x8192, and unsharp:sigma=10 of 6000x4000
    /// with three channels.
    fn slower_columns(&self, problem: &Problem) -> f64 {
        match (self.columns.kernel.in_parts, problem.sum.is_some(), problem.side_by_side) {
            (false, ..) => 1.0,
            (true, false, _) => 1.6,
            (true, true, 1) => 2.7,
            (true, true, _) => 4.4,
        }
    }
}

impl Launcher for LinePasses {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
        let filter = &job.taps.given().byte_filter()?.filter;
        let errors = filter.fact::<Option<Errors>>();
        let errors = errors.as_ref().as_ref().ok_or_else(|| crate::Error::Unsupported {
            variant: Variant::SpectraPasses.name(),
            reason: Why::NOT_SEPARABLE.to_string(),
        })?;
        let pass = super::keep::left_out(job.pass);
        let rows = self.rows_of_tiles(&pass, job);
        // Pairs of columns are whole, and begin where a column block does.
        let even = Region {
            x0: pass.region.x0 & !1,
            x1: (pass.region.x1 + 1) & !1,
            y0: rows.start as i32,
            y1: rows.end as i32,
        };
        // The marks of each term come first.
        let marks = Marks {
            at: 0,
            first: even.x0 / self.rows.step() as i32,
            across: self.rows.tiles(even.x0, even.x1) as i32,
            step: self.rows.step() as i32,
            pair: even.y0 >> 1,
            pairs: ((even.y1 + 1) >> 1) - (even.y0 >> 1),
        };
        let marks_apart = 4 * marks.across as usize * marks.pairs as usize * job.planes as usize;
        let behind = (self.terms * marks_apart).next_multiple_of(128);
        let region = Region { x0: pass.region.x0 & !15, ..even };
        let blocks = PassJob { pass: Pass { region, ..pass }, ..*job };
        let between: [Plane; MAX_TERMS] = match self.terms {
            1 => [blocks.scratch::<1>(behind, rows, stream)?[0]; MAX_TERMS],
            _ => blocks.scratch(behind, rows, stream)?,
        };
        // The same memory: it is reserved by now.
        let marks = Marks { at: stream.scratch(behind)?, ..marks };
        let line_job =
            LineJob { passes: self, job, filter, errors, pass, even, marks, marks_apart, between };
        line_job.launch_rows(stream)?;
        line_job.launch_columns(stream)?;
        super::keep::restore(job, stream)
    }

    #[cfg(feature = "gpu")]
    fn scratch(&self) -> usize {
        self.terms * size_of::<f32>()
    }
}

/// What the row passes and the column pass of a call share.
#[cfg(feature = "gpu")]
struct LineJob<'a> {
    passes: &'a LinePasses,
    job: &'a PassJob<'a>,
    filter: &'a Filter,
    errors: &'a Errors,
    pass: Pass,
    /// The results of the row passes.
    even: Region,
    /// The marks of the first term, and the bytes to those of the next.
    marks: Marks,
    marks_apart: usize,
    /// The results of each term's row pass.
    between: [Plane; MAX_TERMS],
}

#[cfg(feature = "gpu")]
impl LineJob<'_> {
    /// Enqueues a row pass for each term.
    fn launch_rows(&self, stream: &mut Stream) -> crate::Result<()> {
        let Self { job, pass, even, marks, .. } = *self;
        let fit = &self.passes.rows;
        let grid =
            grid(fit, marks.across as u32, (2 * marks.pairs as u32).div_ceil(fit.kernel.lines));
        for (term, (row, _)) in self.filter.products().iter().enumerate() {
            let make = || Ok((fit.numbers(&[row])?, ()));
            let numbers = job.taps.table(("spectra of rows", term), make)?.0 as *const f32;
            let window = (job.window.cols, job.window.anchor_x);
            let mut lines = self.lines(fit, self.errors.rows[term], window, even.x0);
            lines.marks.at += (term * self.marks_apart) as u64;
            let across = Pass {
                dst: self.between[term],
                region: even,
                epilogue: Epilogue::NONE,
                point: 0.0,
                uncertain: UncertainList::NONE,
                ..pass
            };
            let sum = Sum::of_one(&pass);
            // SAFETY: blocks and shared memory are those of the kernel; the numbers are those of
            // these lines; the pass describes allocated memory, and the scratch has a place for all
            // that is stored.
            unsafe { enqueue(fit, grid, (across, lines, numbers), sum, job, stream)? };
        }
        Ok(())
    }

    /// Enqueues the column pass.
    fn launch_columns(&self, stream: &mut Stream) -> crate::Result<()> {
        let Self { job, pass, between, .. } = *self;
        let (fit, region, terms) = (&self.passes.columns, pass.region, self.filter.products());
        let outside = |term: usize| {
            let (row, _) = terms[term.min(terms.len() - 1)];
            (row.iter().sum::<f64>() * f64::from(pass.outside - MIDDLE)) as f32
        };
        let sum = Sum {
            terms: terms.len() as i32,
            outside: outside(1),
            apart: between[1].base.wrapping_sub(between[0].base).cast_signed(),
            marks_apart: self.marks_apart as i64,
            point: point(self.filter) as f32,
            pixels: pass.src,
        };
        let down = Pass { src: between[0], outside: outside(0), ..pass };
        let window = (job.window.rows, job.window.anchor_y);
        let lines = self.lines(fit, self.errors.columns, window, region.y0);
        let width = fit.kernel.lines;
        let across = (region.x1 - region.x0 / width as i32 * width as i32) as u32;
        let grid = grid(fit, across.div_ceil(width), fit.tiles(region.y0, region.y1));
        let columns: Vec<_> = terms.iter().map(|(_, column)| *column).collect();
        let make = || Ok((fit.numbers(&columns)?, ()));
        let numbers = job.taps.table(("spectra of columns", 0), make)?.0 as *const f32;
        // SAFETY: as for the rows; the scratch has all that the row passes stored, and the region's
        // pixels are there.
        unsafe { enqueue(fit, grid, (down, lines, numbers), sum, job, stream) }
    }

    /// A pass's argument: its taps, in parts, its errors, and the first tile, which has the result
    /// at `from`.
    fn lines(
        &self,
        fit: &Fit,
        [of_input, of_output, of_greatest]: [f64; 3],
        (taps, anchor): (i32, i32),
        from: i32,
    ) -> Lines {
        let outside = match self.pass.border {
            gpu_kernels::border::CONSTANT => self.errors.outside,
            _ => 0.0,
        };
        Lines {
            taps,
            anchor,
            part: fit.part as i32,
            parts: fit.parts as i32,
            first: from / fit.step() as i32,
            middle: middle(self.filter) as f32,
            near: near(self.errors.others + outside),
            of_input: of_input as f32,
            of_output: of_output as f32,
            of_greatest: of_greatest as f32,
            marks: self.marks,
        }
    }
}

#[cfg(feature = "gpu")]
impl LinePasses {
    /// The rows of the source that the region's tiles read, as far as they are there.
    fn rows_of_tiles(&self, pass: &Pass, job: &PassJob<'_>) -> std::ops::Range<usize> {
        let Fit { part, parts, .. } = self.columns;
        let (step, height) = (self.columns.step(), pass.height as usize);
        let (top, bottom) =
            (pass.region.y0 as usize / step, (pass.region.y1 as usize).div_ceil(step));
        let results = top * step..(bottom * step).min(height);
        let anchor = (job.window.anchor_y as usize, part * parts);
        let read = crate::problem::rows_read(pass.border, anchor, results, height);
        read.start.max(pass.src.first_row as usize)..read.end.min(pass.src.end_row as usize)
    }
}

#[cfg(feature = "gpu")]
impl Fit {
    /// How many tiles results from one to before another lie in.
    fn tiles(&self, start: i32, end: i32) -> u32 {
        let step = self.step() as u32;
        (end as u32).div_ceil(step) - start as u32 / step
    }
}

/// Enqueues a kernel.
///
/// # Safety
/// As the kernel's contract says.
#[cfg(feature = "gpu")]
unsafe fn enqueue(
    fit: &Fit,
    grid: Grid,
    (pass, lines, numbers): (Pass, Lines, *const f32),
    sum: Sum,
    job: &PassJob<'_>,
    stream: &mut Stream,
) -> crate::Result<()> {
    let grid = stream.gpu().fitting(grid, job.planes);
    // SAFETY: as the caller promised.
    unsafe {
        match fit.kernel.entry {
            LineEntry::Whole(entry) => stream.enqueue(entry, grid, &(pass, lines, numbers)),
            LineEntry::Summed(entry) => stream.enqueue(entry, grid, &(pass, lines, numbers, sum)),
        }
    }
}

/// So many blocks across and down, in one plane.
#[cfg(feature = "gpu")]
fn grid(fit: &Fit, across: u32, down: u32) -> Grid {
    let LineKernel { block: (width, height), shared, .. } = *fit.kernel;
    Grid { blocks: (across, down, 1), block: (width, height, 1), shared }
}

/// The distance from a byte at which a sum with this error is uncertain, as an f32 that is not
/// greater.
#[cfg(feature = "gpu")]
fn near(error: f64) -> f32 {
    let near = 0.5 - error;
    if near <= 0.0 { -1.0 } else { (near as f32).next_down() }
}
