//! A row and a column of taps, or the sum of two such products, by 1-D spectra: launches
//! `gpu-kernels/src/kernels/fourier/lines.rs`, a kernel for the rows and one for the columns.
//!
//! The filter alone decides the sizes of lines and how windows are cut into parts. So the f32 sums
//! are functions of the picture's coordinates, as long as the rows of whole tiles are there.
//! [`Launcher::tiles`] asks for them, except over bytes, whose results are exact in any case.

mod errors;
mod fit;

#[cfg(feature = "gpu")]
use gpu_kernels::abi::{Epilogue, Pass, Plane, Region, UncertainList};
#[cfg(feature = "gpu")]
use gpu_kernels::kernels::fourier::MIDDLE;
use gpu_kernels::kernels::fourier::lines::{COLUMNS, ROWS};
#[cfg(feature = "gpu")]
use gpu_kernels::kernels::fourier::lines::{LineEntry, LineKernel, Lines, Marks, Sum};

use super::cost::{DECLINED, LAUNCH, exact_passes_of, resolving_one};
use super::prepared::{Kernel, Launcher, Prepared};
#[cfg(feature = "gpu")]
use super::prepared::{PassJob, Tiles};
use super::uncertain;
use crate::filter::Fact;
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::problem::Problem;
use crate::problem::machine::{Bound, Time};
use crate::{Filter, Variant, Why};
pub(crate) use errors::error;
#[cfg(feature = "gpu")]
use errors::{Errors, middle, near, point};
use fit::Fit;

pub(super) static SPECTRA_PASSES: Kernel = Kernel {
    variant: Variant::SpectraPasses,
    entries: || {
        let keep = gpu_kernels::kernels::keep::keep_edges.name();
        ROWS.iter().chain(&COLUMNS).flat_map(|kernel| kernel.names()).chain([keep]).collect()
    },
    prepare: |problem| {
        LinePasses::find(problem).map(|passes| Prepared::new(Variant::SpectraPasses, passes))
    },
    time: |problem, machine| {
        /// The second launch, and one tile of each pass: 2048x2048 f32.
        const SECOND: Time = Time::start(29.0);
        /// The launches that resolve bytes.
        const RESOLVE: Time = Time::start(3.0);
        /// The time of bytes, which are resolved in the same pass, and of other types relative to
        /// that of transforms alone: 8192x8192 and 8192x8192x3, sigma 16 to 200.
        const BYTES: f64 = 1.4;
        const STORED: f64 = 1.15;
        let Ok(passes) = LinePasses::find(problem) else { return DECLINED };
        let (resolving, launches) = match problem.numbers.lines {
            Some(error) if problem.makes_bytes() => {
                (resolving(problem, error), RESOLVE + resolving_one(problem))
            }
            _ => (Time::NONE, Time::NONE),
        };
        // Bytes pair rows, other types pair tiles.
        let together = if problem.makes_bytes() { 1 } else { 2 };
        let rows = passes.terms as f64 * passes.rows.time_over(problem.width, together);
        let columns = passes.columns.time_over(problem.height, 1) * passes.slower_columns(problem);
        let passes = if problem.makes_bytes() { BYTES } else { STORED } * (rows + columns);
        let passes = machine.time(Bound::Floats, problem.bytes_of_passes(), passes);
        LAUNCH + SECOND + launches + (passes + resolving) * problem.millions()
    },
    rule: |problem| match problem.makes_bytes() && problem.rounding.is_none() {
        false => Ok(()),
        true => Err("its bytes are not rounded correctly here".into()),
    },
};

/// The uncertain results among a million bytes, from sums with this error. Either each is resolved,
/// or exact passes compute all: the faster counts.
fn resolving(problem: &Problem, error: f64) -> Time {
    let share = 2.0 * error;
    match problem.numbers.few {
        Some(few) => exact_passes_of(problem) * (share / few).min(1.0),
        None => uncertain::resolving(problem, share),
    }
}

/// Whether a filter is a product of a row and a column, or a sum of two, whose spectra fit f32.
#[derive(Clone, Copy, Debug)]
struct IsTaken(bool);

impl Fact for IsTaken {
    fn of(filter: &Filter) -> Self {
        let terms = 1..=MAX_TERMS;
        let fits = filter.cols().max(filter.rows()) <= LIMIT && errors::fits_f32(filter);
        Self(terms.contains(&filter.products().len()) && fits)
    }
}

/// See [`Problem::has_lines`].
pub(crate) fn takes(filter: &Filter) -> bool {
    filter.fact::<IsTaken>().0
}

/// The error that leaves a quarter of the results uncertain. With more, other kernels are faster.
const GREATEST_ERROR: f64 = 0.125;

/// The most taps of a row or a column.
const LIMIT: usize = 1 << 20;

/// The most products of a row and a column.
const MAX_TERMS: usize = 2;

/// The launch for a problem.
#[derive(Debug)]
struct LinePasses {
    /// Products of a row and a column.
    terms: usize,
    /// Whether bytes are made of bytes.
    makes_bytes: bool,
    rows: Fit,
    columns: Fit,
}

impl LinePasses {
    fn find(problem: &Problem) -> Result<Self, Why> {
        let (mode, outside) = problem.border.code();
        let makes_bytes = problem.makes_bytes();
        if makes_bytes
            && !gpu_kernels::tile::flat::takes_outside(gpu_kernels::abi::scalar::U8, mode, outside)
        {
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
        let error = problem.numbers.lines.filter(|error| makes_bytes && *error > GREATEST_ERROR);
        if let Some(error) = error {
            return Err(format!(
                "its sums may be off by {error:.3}, the limit is {GREATEST_ERROR}"
            )
            .into());
        }
        let columns = Fit::of_columns(rows, terms, problem.sum.is_some());
        if !makes_bytes && !problem.has_lines {
            return Err(Why::NO_LINES);
        }
        let passes = Self { terms, makes_bytes, rows: Fit::of_rows(cols), columns };
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
        let filter = job.taps.given();
        let filter = if self.makes_bytes { &filter.byte_filter()?.filter } else { filter };
        let errors = match self.makes_bytes {
            true => filter.fact::<Option<Errors>>().as_ref().as_ref().cloned().unwrap_or_default(),
            false => Errors::default(),
        };
        let pass = super::keep::left_out(job.pass);
        let rows = self.rows_of_tiles(&pass, job);
        // Pairs of columns are whole, and begin where a column block does.
        let even = Region {
            x0: pass.region.x0 & !1,
            x1: (pass.region.x1 + 1) & !1,
            y0: rows.start as i32,
            y1: rows.end as i32,
        };
        // Over bytes, the marks of each term come first.
        let marks = Marks {
            at: 0,
            first: even.x0 / self.rows.step() as i32,
            across: self.rows.tiles(even.x0, even.x1) as i32,
            step: self.rows.step() as i32,
            pair: even.y0 >> 1,
            pairs: ((even.y1 + 1) >> 1) - (even.y0 >> 1),
        };
        let marks_apart = match self.makes_bytes {
            true => 4 * marks.across as usize * marks.pairs as usize * job.planes as usize,
            false => 0,
        };
        let behind = (self.terms * marks_apart).next_multiple_of(128);
        let region = Region { x0: pass.region.x0 & !15, ..even };
        let blocks = PassJob { pass: Pass { region, ..pass }, ..*job };
        let between: [Plane; MAX_TERMS] = match self.terms {
            1 => [blocks.scratch::<1>(behind, rows, stream)?[0]; MAX_TERMS],
            _ => blocks.scratch(behind, rows, stream)?,
        };
        // The same memory: it is reserved by now.
        let marks = Marks { at: stream.scratch(behind)?, ..marks };
        let line_job = LineJob {
            passes: self,
            job,
            filter,
            errors: &errors,
            pass,
            even,
            marks,
            marks_apart,
            between,
        };
        line_job.launch_rows(stream)?;
        line_job.launch_columns(stream)?;
        super::keep::restore(job, stream)
    }

    #[cfg(feature = "gpu")]
    fn tiles(&self, _: &Filter) -> Option<Tiles> {
        let Fit { part, parts, .. } = self.columns;
        let tiles = Tiles { step: self.columns.step(), reach: part * parts };
        (!self.makes_bytes).then_some(tiles)
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
        let pairs = fit.kernel.pairs;
        let (across, down) = match self.passes.makes_bytes {
            true => (marks.across as u32, (marks.pairs as u32).div_ceil(pairs)),
            // Pairs of tiles, of which the first is even.
            false => (
                (marks.across + (marks.first & 1)).unsigned_abs().div_ceil(2),
                ((even.y1 - even.y0) as u32).div_ceil(pairs),
            ),
        };
        let grid = grid(fit, across, down);
        for (term, (row, _)) in self.filter.products().iter().enumerate() {
            let make = || Ok((fit.numbers(&[row])?, ()));
            let numbers = job.taps.table(("spectra of rows", term), make)?.0 as *const f32;
            let window = (job.window.cols, job.window.anchor_x);
            let errors = self.errors.rows.get(term).copied().unwrap_or_default();
            let mut lines = self.lines(fit, errors, window, even.x0);
            if !self.passes.makes_bytes {
                lines.first &= !1;
            }
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
            unsafe { self.enqueue(fit, grid, (across, lines, numbers), sum, stream)? };
        }
        Ok(())
    }

    /// Enqueues the column pass.
    fn launch_columns(&self, stream: &mut Stream) -> crate::Result<()> {
        let Self { job, pass, between, .. } = *self;
        let (fit, region, terms) = (&self.passes.columns, pass.region, self.filter.products());
        let makes_bytes = self.passes.makes_bytes;
        let outside = |term: usize| {
            let (row, _) = terms[term.min(terms.len() - 1)];
            let outside =
                f64::from(pass.outside) - if makes_bytes { f64::from(MIDDLE) } else { 0.0 };
            row.iter().map(|tap| tap * outside).sum::<f64>() as f32
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
        let width = 2 * fit.kernel.pairs;
        let across = (region.x1 - region.x0 / width as i32 * width as i32) as u32;
        let grid = grid(fit, across.div_ceil(width), fit.tiles(region.y0, region.y1));
        let columns: Vec<_> = terms.iter().map(|(_, column)| *column).collect();
        let make = || Ok((fit.numbers(&columns)?, ()));
        let numbers = job.taps.table(("spectra of columns", 0), make)?.0 as *const f32;
        // SAFETY: as for the rows; the scratch has all that the row passes stored, and the region's
        // pixels are there.
        unsafe { self.enqueue(fit, grid, (down, lines, numbers), sum, stream) }
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
            planes: self.job.planes as i32,
        }
    }

    /// Enqueues a kernel.
    ///
    /// # Safety
    /// As the kernel's contract says.
    unsafe fn enqueue(
        &self,
        fit: &Fit,
        grid: Grid,
        (pass, lines, numbers): (Pass, Lines, *const f32),
        sum: Sum,
        stream: &mut Stream,
    ) -> crate::Result<()> {
        let (across, down, _) = grid.blocks;
        let grid = Grid { blocks: (across.saturating_mul(self.job.planes), down, 1), ..grid };
        let grid = stream.gpu().fitting(grid, 1);
        // SAFETY: as the caller promised.
        unsafe {
            match fit.kernel.entry(self.passes.makes_bytes) {
                LineEntry::Whole(entry) => stream.enqueue(entry, grid, &(pass, lines, numbers)),
                LineEntry::Summed(entry) => {
                    stream.enqueue(entry, grid, &(pass, lines, numbers, sum))
                }
            }
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
        // Only under WRAP do rows outside the image count for tiles that leave it.
        let end = match pass.border {
            gpu_kernels::border::WRAP => bottom * step,
            _ => (bottom * step).min(height),
        };
        let results = top * step..end;
        let anchor = (job.window.anchor_y as usize, part * parts);
        let read = crate::problem::rows_read(pass.border, anchor, results, height);
        read.start.max(pass.src.first_row as usize)..read.end.min(pass.src.end_row as usize)
    }
}

/// So many blocks across and down, in one plane.
#[cfg(feature = "gpu")]
fn grid(fit: &Fit, across: u32, down: u32) -> Grid {
    let LineKernel { block: (width, height), shared, .. } = *fit.kernel;
    Grid { blocks: (across, down, 1), block: (width, height, 1), shared }
}
