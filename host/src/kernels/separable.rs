//! The separable family in two passes: launches `gpu-kernels/src/kernels/separable.rs` and
//! `separable_any.rs`. The row pass writes scratch memory, the column pass reads it. For the sum of
//! two terms there are two row passes, and one pass along the columns of both.
//!
//! A window of one row or one column is one pass of these from source to destination, and a variant
//! of the direct family.

#[cfg(feature = "gpu")]
use gpu_kernels::abi::{Epilogue, Region, UncertainList, scalar};
use gpu_kernels::abi::{Pass, Plane, Window};
use gpu_kernels::entry::{Entry, TapsEntry};
use gpu_kernels::kernels::separable::{
    COLUMNS, COLUMNS_BLOCK, COLUMNS_TILE, ROWS, ROWS_BLOCK, ROWS_TILE, columns_shared, rows_shared,
};
use gpu_kernels::kernels::separable_any::{
    self, COLUMN_ROWS, SUMMED_SHARED, rows_tile, rows_warps, separable_columns,
    separable_columns_summed,
};

use super::cost::{LAUNCH, by_exact_passes, rounded, stored};
#[cfg(feature = "gpu")]
use super::prepared::PassJob;
use super::prepared::{Kernel, Launcher, Prepared};
use crate::Variant;
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::problem::Problem;
use crate::problem::machine::{Bound, Time, Times};

pub(super) static SEPARABLE: Kernel = Kernel {
    variant: Variant::Separable,
    entries: || Line::entries().chain([separable_columns_summed.name()]).collect(),
    prepare: |problem| {
        let terms = problem.terms()?;
        let columns = match problem.sum {
            Some(_) => ColumnPass::Summed { terms, entry: separable_columns_summed },
            None => ColumnPass::of(problem.rows),
        };
        Ok(Prepared::new(Variant::Separable, Launch { rows: RowPass::of(problem.cols), columns }))
    },
    time: |problem, machine| {
        const TIMES: Times = Times(Bound::Floats, &[(10.0, 4.8), (34.0, 5.6)]);
        // Sums of products, with columns of any number of taps.
        const SUMMED: Times =
            Times(Bound::Floats, &[(18.0, 10.5), (34.0, 12.5), (66.0, 22.0), (130.0, 39.0)]);
        // Without entries for the number of taps, 8192x8192.
        const ANY: Times = Times(
            Bound::Floats,
            &[(12.0, 5.6), (66.0, 8.6), (130.0, 9.0), (322.0, 16.6), (1602.0, 74.0)],
        );
        let known = matches!(RowPass::of(problem.cols), RowPass::Known { .. })
            && matches!(ColumnPass::of(problem.rows), ColumnPass::Known { .. });
        let times = match problem.sum {
            Some(_) => SUMMED,
            None if known => TIMES,
            None => ANY,
        };
        // How many times as long stored pixels take.
        const STORED: f64 = 1.2;
        // For a tap, however small the picture: 1920x1080 and 401 + 401 taps.
        const BLOCK_TAP: f64 = 0.13;
        if let Some(passes) = by_exact_passes(problem) {
            return passes;
        }
        let slower = stored(problem, STORED);
        let bytes = problem.bytes_of_passes() / slower;
        let each = times.on(machine, bytes, problem.pair_taps()) * slower;
        // A block takes its taps one after the other.
        let block = Time::start(BLOCK_TAP * problem.pair_taps());
        let own = LAUNCH * 2.0 + (each * problem.millions()).or(block);
        rounded(Variant::Separable, problem, own)
    },
    // Exact passes count as this variant.
    rule: |_| Ok(()),
};

/// An entry of the row pass: one for a fixed number of taps, or the one for any number.
#[derive(Clone, Copy, Debug)]
pub(super) enum RowPass {
    Known {
        taps: i32,
        entry: TapsEntry<(Pass, Window)>,
    },
    /// With several channels, the source's are interleaved, and the destination's pixels are
    /// values: see [`of_values`].
    Any {
        channels: u32,
        entry: Entry<(Pass, Window, *const f32)>,
    },
}

/// An entry of the column pass, likewise. The argument after the window is the image before the row
/// pass.
#[derive(Clone, Copy, Debug)]
pub(super) enum ColumnPass {
    Known {
        taps: i32,
        entry: TapsEntry<(Pass, Window, Plane)>,
    },
    Any(Entry<(Pass, Window, Plane, *const f32)>),
    /// For sums: the arguments go on with the number of terms, the second term's image, and the
    /// value outside it.
    Summed {
        terms: usize,
        entry: Entry<(Pass, Window, Plane, i32, Plane, f32, *const f32)>,
    },
}

impl RowPass {
    fn of(taps: usize) -> Self {
        match ROWS.iter().find(|(known, _)| *known as usize == taps) {
            Some(&(taps, entry)) => Self::Known { taps, entry },
            None => Self::interleaved(1),
        }
    }

    /// The entry for any number of taps on so many interleaved channels, or on planes if it is 1.
    const fn interleaved(channels: u32) -> Self {
        Self::Any { channels, entry: separable_any::ROWS[channels as usize - 1] }
    }
}

impl ColumnPass {
    fn of(taps: usize) -> Self {
        match COLUMNS.iter().find(|(known, _)| *known as usize == taps) {
            Some(&(taps, entry)) => Self::Known { taps, entry },
            None => Self::Any(separable_columns),
        }
    }
}

/// The taps of a pass: those of a product, or all of a window that is a line.
#[cfg(feature = "gpu")]
#[derive(Clone, Copy, Debug)]
enum Of {
    Term(usize),
    Line,
}

/// Most tap columns for interleaved channels of other types than f32. 8192x8192x3 u16 on an H200:
/// with 81 taps 2405 us instead of 2598, with 161 3699 instead of 3544.
#[cfg(feature = "gpu")]
const MOST_STORED: i32 = 96;

/// A job on interleaved channels as one on images of a single channel, whose pixels are values, if
/// a row pass takes them. It copies no pixels for the border. Else the job as it is.
#[cfg(feature = "gpu")]
fn of_values<'j>(job: &PassJob<'j>) -> PassJob<'j> {
    let (pass, channels) = (super::keep::left_out(job.pass), job.channels);
    // Sources of other types come to shared memory one by one, and take longer so.
    let most = if pass.src.scalar == scalar::F32 { i32::MAX } else { MOST_STORED };
    let takes = (2..=separable_any::ROWS.len() as u32).contains(&channels)
        && job.window.cols <= most
        && pass.src.is_interleaved(channels)
        && pass.dst.is_interleaved(channels)
        && pass.width <= i32::MAX / 8
        // The list has pixels.
        && pass.uncertain.list == 0;
    if !takes {
        return *job;
    }
    let (pass, planes) = (pass.as_values(channels), job.planes / channels);
    PassJob { pass, channels: 1, filtered: 1, planes, ..*job }
}

/// Copies the pixels that the border copies, if a job of values did not.
#[cfg(feature = "gpu")]
fn restore(job: &PassJob<'_>, values: &PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
    if values.pass.border == job.pass.border {
        return Ok(());
    }
    super::keep::restore(job, stream)
}

#[derive(Debug)]
struct Launch {
    rows: RowPass,
    columns: ColumnPass,
}

impl Launcher for Launch {
    #[cfg(feature = "gpu")]
    fn scratch(&self) -> usize {
        self.columns.terms() * size_of::<f32>()
    }

    #[cfg(feature = "gpu")]
    fn launch(&self, job: &PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
        let (pass, window) = (job.pass, job.window);
        // The intermediate image has the rows that the column pass reads.
        let rows = crate::problem::rows_read(
            pass.border,
            (window.anchor_y as usize, window.rows as usize),
            pass.region.y0 as usize..pass.region.y1 as usize,
            pass.height as usize,
        );
        let values = of_values(job);
        let images = match self.columns.terms() {
            1 => [values.scratch::<1>(0, rows, stream)?[0]; 2],
            _ => values.scratch::<2>(0, rows, stream)?,
        };
        for (term, dst) in images.into_iter().enumerate().take(self.columns.terms()) {
            let region = Region { y0: dst.first_row, y1: dst.end_row, ..pass.region };
            let across = Pass {
                dst,
                region,
                epilogue: Epilogue::NONE,
                point: 0.0,
                uncertain: UncertainList::NONE,
                ..pass
            };
            self.rows.into_values(job, &values).launch(job, Of::Term(term), across, stream)?;
        }
        self.columns.launch(&values, Of::Term(0), images, stream)?;
        restore(job, &values, stream)
    }
}

/// The pass for a window of one row or one column: the direct family's bits, as its taps are added
/// up in order, in one accumulator.
#[derive(Debug)]
pub(super) enum Line {
    Row(RowPass),
    Column(ColumnPass),
}

impl Line {
    /// The pass for a problem, if its window is a line.
    pub(super) fn of(problem: &Problem) -> Option<Self> {
        match (problem.cols, problem.rows) {
            (cols, 1) => Some(Self::Row(RowPass::of(cols))),
            (1, rows) => Some(Self::Column(ColumnPass::of(rows))),
            _ => None,
        }
    }

    /// The names of all entries for one product.
    pub(super) fn entries() -> impl Iterator<Item = &'static str> {
        let rows = ROWS.iter().map(|(_, entry)| entry.name());
        let columns = COLUMNS.iter().map(|(_, entry)| entry.name());
        let any = separable_any::ROWS.iter().map(|entry| entry.name());
        rows.chain(columns).chain(any).chain([separable_columns.name()])
    }

    /// By the number of taps: 4096x4096x3, the mean of a row's and a column's.
    pub(super) const TIMES: Times =
        Times(Bound::Floats, &[(3.0, 2.55), (9.0, 2.85), (41.0, 4.0), (101.0, 6.1), (401.0, 19.6)]);
}

impl Launcher for Line {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
        let values = of_values(job);
        match self {
            Self::Row(rows) => {
                let pass = Pass { dst: values.pass.dst, ..super::keep::left_out(job.pass) };
                rows.into_values(job, &values).launch(job, Of::Line, pass, stream)?;
                super::keep::restore(job, stream)
            }
            Self::Column(columns) => {
                columns.launch(&values, Of::Line, [values.pass.src; 2], stream)?;
                restore(job, &values, stream)
            }
        }
    }
}

#[cfg(feature = "gpu")]
impl RowPass {
    /// The pass from a job's source to the images of [`of_values`]: this one, unless their pixels
    /// are the values of interleaved channels.
    fn into_values(self, job: &PassJob<'_>, values: &PassJob<'_>) -> Self {
        if values.planes < job.planes { Self::interleaved(job.channels) } else { self }
    }

    /// Puts the pass into the stream.
    fn launch(
        &self,
        job: &PassJob<'_>,
        of: Of,
        pass: Pass,
        stream: &mut Stream,
    ) -> crate::Result<()> {
        let (channels, rows, warps, shared) = match *self {
            Self::Known { taps, .. } => (1, ROWS_BLOCK.1, ROWS_BLOCK.1, rows_shared(taps)),
            Self::Any { channels, .. } => {
                let count = channels as i32;
                let shared = separable_any::rows_shared(job.window.cols, count);
                (channels, rows_tile(count) as u32, rows_warps(count) as u32, shared)
            }
        };
        let (tile, block) = ((ROWS_TILE as u32, rows), (ROWS_BLOCK.0, warps));
        let grid =
            Grid::covering(&pass.region, pass.region.aligned_left(), tile, block).sharing(shared);
        let grid = stream.gpu().fitting(grid, job.planes / channels);
        // SAFETY: block and shared memory are those that the kernel's contract states for so many
        // taps; the pass describes allocated memory, and its destination has a place for all of the
        // region.
        unsafe {
            match *self {
                Self::Known { entry, .. } => {
                    let taps = match of {
                        Of::Term(term) => job.taps.row(term)?,
                        Of::Line => job.taps.dense()?,
                    };
                    stream.enqueue_with_taps(entry, grid, &(pass, job.window), taps)
                }
                Self::Any { entry, .. } => {
                    let taps = match of {
                        Of::Term(term) => job.taps.row_in_memory(term)?,
                        Of::Line => job.taps.dense_in_memory()?,
                    };
                    stream.enqueue(entry, grid, &(pass, job.window, taps))
                }
            }
        }
    }
}

#[cfg(feature = "gpu")]
impl ColumnPass {
    /// How many products of a row and a column are added up.
    fn terms(&self) -> usize {
        if let Self::Summed { terms, .. } = *self { terms } else { 1 }
    }

    /// Puts the pass along the columns of these images, one for each term, into the stream.
    fn launch(
        &self,
        job: &PassJob<'_>,
        of: Of,
        [src, second]: [Plane; 2],
        stream: &mut Stream,
    ) -> crate::Result<()> {
        let (pass, window) = (job.pass, job.window);
        // The row pass maps a row of the border's value to this value.
        let filtered = |term| -> crate::Result<f32> {
            let taps = &job.taps.row(term)?[..window.cols as usize];
            Ok(taps.iter().fold(0.0, |sum, &tap: &f32| tap.mul_add(pass.outside, sum)))
        };
        let outside = match of {
            Of::Term(term) => filtered(term)?,
            Of::Line => pass.outside,
        };
        let down = Pass { src, outside, ..pass };
        let (rows, shared) = match self {
            Self::Known { taps, .. } => (COLUMNS_TILE, columns_shared(*taps)),
            Self::Any(_) => (COLUMN_ROWS, separable_any::columns_shared(window.rows)),
            Self::Summed { .. } => (COLUMNS_TILE, SUMMED_SHARED),
        };
        let tile = (COLUMNS_BLOCK.0, rows as u32);
        let grid =
            Grid::covering(&pass.region, pass.region.x0, tile, COLUMNS_BLOCK).sharing(shared);
        let grid = stream.gpu().fitting(grid, job.planes);
        // SAFETY: block and shared memory are those that the kernel's contract states for so many
        // taps; the pass describes allocated memory; the column pass finds every row that it reads
        // in the images, and the image before it where the border copies from.
        unsafe {
            match *self {
                Self::Known { entry, .. } => {
                    let taps = match of {
                        Of::Term(term) => job.taps.column(term)?,
                        Of::Line => job.taps.dense()?,
                    };
                    stream.enqueue_with_taps(entry, grid, &(down, window, pass.src), taps)
                }
                Self::Any(entry) => {
                    let taps = match of {
                        Of::Term(_) => job.taps.columns_in_memory()?,
                        Of::Line => job.taps.dense_in_memory()?,
                    };
                    stream.enqueue(entry, grid, &(down, window, pass.src, taps))
                }
                Self::Summed { terms, entry } => {
                    let (outside, taps) = (filtered(terms - 1)?, job.taps.columns_in_memory()?);
                    stream.enqueue(
                        entry,
                        grid,
                        &(down, window, pass.src, terms as i32, second, outside, taps),
                    )
                }
            }
        }
    }
}
