//! The CPU: the engine that a plan runs, and the families' plain twins, which a plan for a variant runs.
//!
//! The twins have one file each, named as the kernels' files, and compute in the kernels' order; the engine gives the same
//! bits (see [`bands`]).

mod bands;
mod boxes;
mod direct;
mod fourier;
mod separable;
pub(crate) mod simd;
mod tile;

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use gpu_kernels::border::KEEP;

use crate::exact::{Exact, Order};
use crate::image::planes::{self as pixels, Planes};
use crate::image::{ImageView, ImageViewMut, Pixel, Shape};
use crate::{Border, Family, Filter, Result};
use bands::{Passes, Run};
use simd::Isa;

/// A filter's taps, ready for the CPU.
#[derive(Debug)]
pub(crate) struct Engine {
    isa: Isa,
    filter: Filter,
    dense: OnceLock<Vec<f32>>,
    pair: Option<separable::Pair>,
    spectra: OnceLock<fourier::Spectra>,
}

impl Engine {
    pub(crate) fn new(filter: &Filter) -> Result<Self> {
        Ok(Self {
            isa: Isa::chosen()?,
            filter: filter.clone(),
            dense: OnceLock::new(),
            pair: filter.separated().map(|(row, column)| separable::Pair::new(row, column)),
            spectra: OnceLock::new(),
        })
    }

    /// Filters the first `filtered` channels in a family's order and copies the others.
    pub(crate) fn run<S: Pixel, D: Pixel>(
        &self,
        family: Family,
        border: Border,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
        filtered: usize,
    ) -> Result<()> {
        let window = Window::new(&self.filter, border);
        let bytes = src.as_bytes().filter(|_| D::bytes_mut(&mut []).is_some());
        if let (Some(src), Some(tap)) = (bytes, boxes::tap(&self.filter, &window, src.shape())) {
            let exact = Exact::new(src, filtered, &self.filter, border, Order::Counted)?;
            return boxes::run(self.isa, &window, tap, &src, dst, filtered, &exact);
        }
        // 8-bit results are right to the last bit, and tap by tap that is known with less doubt.
        if family == Family::Fourier && bytes.is_none() {
            return fourier::run(&window, self.dense()?, self.spectra()?, src, dst, filtered);
        }
        let (passes, order) = match (family, &self.pair) {
            (Family::Separable, Some(pair)) => {
                (Passes { across: Some(pair.row()), taps: pair.column() }, Order::TwoPasses)
            }
            _ => {
                let by_rows = self.filter.cols() >= BY_ROWS && self.filter.rows() > 1;
                let order = if by_rows { Order::ByRows } else { Order::TapByTap };
                (Passes { across: None, taps: self.dense()? }, order)
            }
        };
        let exact = bytes.map(|src| Exact::new(src, filtered, &self.filter, border, order)).transpose()?;
        Run::new(self.isa, window, passes, src, dst, filtered, exact.as_ref()).run()
    }

    /// Does the same with the family's twin.
    pub(crate) fn run_twin<S: Pixel, D: Pixel>(
        &self,
        family: Family,
        border: Border,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
        filtered: usize,
    ) -> Result<()> {
        let shape = src.shape();
        let len = pixels::planes_len(shape, filtered)?;
        let mut input = crate::memory::zeroed(len)?;
        pixels::split(src, filtered, &mut input);
        let mut output = crate::memory::zeroed(len)?;
        let planes = Planes::new(&input, shape.width, shape.height);
        let window = Window::new(&self.filter, border);
        match (family, &self.pair) {
            (Family::Separable, Some(pair)) => separable::run(&window, pair, planes, &mut output)?,
            (Family::Fourier, _) => {
                for (plane, out) in input.chunks(len / filtered).zip(output.chunks_mut(len / filtered)) {
                    let plane = ImageView::new(plane, shape.width, shape.height, 1)?;
                    let mut out = ImageViewMut::new(out, shape.width, shape.height, 1)?;
                    fourier::run(&window, self.dense()?, self.spectra()?, &plane, &mut out, 1)?;
                }
            }
            _ => direct::run(&window, self.dense()?, planes, &mut output),
        }
        pixels::join(&output, src, dst, filtered, &self.filter, border, family)
    }

    fn spectra(&self) -> Result<&fourier::Spectra> {
        crate::memory::once(&self.spectra, || fourier::Spectra::new(&self.filter))
    }

    /// All taps, row by row.
    fn dense(&self) -> Result<&[f32]> {
        crate::memory::once(&self.dense, || self.filter.dense_f32()).map(Vec::as_slice)
    }
}

/// Tap columns from which 8-bit results are summed row by row: what is in doubt then costs more than adding up the rows.
const BY_ROWS: usize = 13;

/// The window's geometry and the border rule, as the kernels' `Frame` and `Window` have them.
#[derive(Clone, Copy, Debug)]
struct Window {
    cols: usize,
    rows: usize,
    anchor_x: usize,
    anchor_y: usize,
    border: u32,
    border_value: f32,
}

impl Window {
    fn new(filter: &Filter, border: Border) -> Self {
        let (border, border_value) = border.code();
        let (anchor_x, anchor_y) = filter.anchor();
        Self { cols: filter.cols(), rows: filter.rows(), anchor_x, anchor_y, border, border_value }
    }

    /// Puts source pixels where nothing is computed in some columns of row `y`: channels from `filtered` on, which are
    /// copied, and what [`Border::Keep`] keeps.
    fn restore<S: Pixel, D: Pixel>(
        &self,
        src: &ImageView<'_, S>,
        filtered: usize,
        columns: &Range<usize>,
        y: usize,
        part: &mut [D],
    ) {
        let Shape { width, height, channels } = src.shape();
        let row = &src.row(y)[columns.start * channels..columns.end * channels];
        let copy = |out: &mut [D], row: &[S]| {
            out.iter_mut().zip(row).for_each(|(out, value)| *out = D::from_f32(value.to_f32()));
        };
        if filtered < channels {
            for (out, row) in part.chunks_exact_mut(channels).zip(row.chunks_exact(channels)) {
                copy(&mut out[filtered..], &row[filtered..]);
            }
        }
        if self.border == KEEP {
            let inside = self.anchor_x..(width + self.anchor_x + 1).saturating_sub(self.cols);
            let (left, right) = match leaves(y, self.anchor_y, self.rows, height) || inside.is_empty() {
                true => (columns.end, columns.end),
                false => (inside.start.clamp(columns.start, columns.end), inside.end.clamp(columns.start, columns.end)),
            };
            let (left, right) = ((left - columns.start) * channels, (right - columns.start) * channels);
            copy(&mut part[..left], &row[..left]);
            copy(&mut part[right..], &row[right..]);
        }
    }
}

/// Does every job, on the threads of rayon's current pool and on the calling one, which counts as one of theirs; each takes
/// the next job that nobody has. `T` is a thread's memory. The first error ends it.
///
/// The caller does not wait while the pool works: one thread fewer has to be woken, and a virtual machine's Linux may wake
/// two of them on one core, and take many milliseconds to part them (see `docs/cpu.md`).
fn share<T: Default, J: Send>(
    jobs: impl ExactSizeIterator<Item = J> + Send,
    work: impl Fn(&mut T, J) -> Result<()> + Sync,
) -> Result<()> {
    let threads = rayon::current_num_threads().min(jobs.len());
    let (jobs, failed) = (Mutex::new(jobs), OnceLock::new());
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        let mut memory = T::default();
        while let (None, Some(job)) = (failed.get(), next()) {
            if let Err(error) = work(&mut memory, job) {
                // Another thread's error may have come first.
                let _ = failed.set(error);
            }
        }
    };
    rayon::in_place_scope(|scope| spread(scope, threads, &run));
    failed.into_inner().map_or(Ok(()), Err)
}

/// Runs the same on so many threads; each wakes others for half of those that are left.
fn spread<'a>(scope: &rayon::Scope<'a>, mut threads: usize, run: &'a (impl Fn() + Sync)) {
    while threads > 1 {
        let half = threads / 2;
        scope.spawn(move |scope| spread(scope, half, run));
        threads -= half;
    }
    run();
}

/// Where coordinate `position + offset - anchor` finds its pixel in `0..extent`; `None` if it has the border's value.
fn resolve(border: u32, position: usize, offset: usize, anchor: usize, extent: usize) -> Option<usize> {
    // Image and window sizes are at most 2^29, so the sums stay in range.
    let coordinate = (position + offset) as i32 - anchor as i32;
    usize::try_from(gpu_kernels::border::resolve(border, coordinate, extent as i32)).ok()
}

/// Whether the window at `position` leaves `0..extent`.
fn leaves(position: usize, anchor: usize, len: usize, extent: usize) -> bool {
    gpu_kernels::border::leaves(position as i32 - anchor as i32, len as i32, extent as i32)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::Error;

    #[test]
    fn every_job_is_done_once_wherever_it_is_called_from() {
        let once = |jobs: usize| {
            let counts: Vec<_> = (0..jobs).map(|_| AtomicU32::new(0)).collect();
            let work = |memory: &mut usize, job: usize| {
                *memory += 1;
                counts[job].fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            share(0..jobs, work).unwrap();
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{jobs} jobs");
        };
        for threads in 1..=5 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| [0, 1, 2, 3, 100].into_iter().for_each(once));
        }
        [0, 1, 2, 3, 100].into_iter().for_each(once);
    }

    #[test]
    fn an_error_ends_the_work() {
        let done = AtomicU32::new(0);
        let result = share(0..1_000_000, |_: &mut (), job: usize| {
            done.fetch_add(1, Ordering::Relaxed);
            if job == 10 { Err(Error::HostMemory { bytes: job }) } else { Ok(()) }
        });
        assert!(matches!(result, Err(Error::HostMemory { bytes: 10 })));
        assert!(done.load(Ordering::Relaxed) < 1_000_000);
    }
}
