//! The Fourier family: launches `gpu-kernels/src/kernels/fourier`. The window alone decides whether
//! its tiles are those of a block's shared memory (`tiles.rs`) or larger (`large.rs`), and whether
//! bytes come from pairs of tiles or from folded ones.

mod large;
mod tiles;

#[cfg(feature = "gpu")]
use gpu_kernels::abi::{Doubts, Epilogue, Pass, scalar};
use gpu_kernels::kernels::fourier::{self as kernels, ENTRIES, Large, MIDDLE, Tiled};
#[cfg(feature = "gpu")]
use gpu_kernels::kernels::fourier::{
    Parts,
    holes::{self, Holes},
};

#[cfg(feature = "gpu")]
use super::keep;
#[cfg(feature = "gpu")]
use super::prepared::Job;
use super::prepared::{Kernel, Prepared};
#[cfg(feature = "gpu")]
use crate::gpu::taps::{Spectra, TapHomes};
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::plan::machine::Machine;
use crate::plan::problem::Problem;
use crate::round::Order;
use crate::spectrum::{self, Cut};
use crate::{Filter, Scalar, Variant};

pub(super) static FOURIER: Kernel = Kernel {
    variant: Variant::Fourier,
    entries: || {
        let sizes = ENTRIES
            .iter()
            .flat_map(|tiled| [tiled.entry, tiled.stored, tiled.bytes].map(|entry| entry.name()));
        let large = [
            kernels::fourier_large_rows.name(),
            kernels::fourier_large_rows_stored.name(),
            kernels::fourier_large_rows_bytes.name(),
            kernels::fourier_large_rows_stacked.name(),
            kernels::fourier_large_columns.name(),
            kernels::fourier_large_results.name(),
            kernels::fourier_large_results_stored.name(),
            kernels::fourier_large_results_bytes.name(),
            kernels::fourier_large_results_stacked.name(),
            kernels::fourier_holes.name(),
            gpu_kernels::kernels::keep::keep_edges.name(),
        ];
        sizes.chain(large).collect()
    },
    prepare: |problem| {
        spectrum::has_room(problem.cols, problem.rows, problem.weight)?;
        let machine = problem.place.machine();
        let Some(tiled) = largest(machine) else {
            let bytes = machine.shared_memory;
            return Err(format!(
                "its tile does not fit in the {bytes} bytes of shared memory of a block"
            )
            .into());
        };
        let of_planes =
            (problem.source, problem.target, problem.side_by_side) == (Scalar::F32, Scalar::F32, 1);
        Ok(match is_large(problem, machine) {
            true => {
                let shape = Shape::of(problem, Large::SIDE);
                let small = small(problem, tiled.size);
                let small = small.map(|shape| tiles::Launch { shape, tiled, entry: tiled.bytes });
                Prepared::new(Variant::Fourier, large::Launch { shape, of_planes, small })
            }
            false => {
                let shape = Shape::of(problem, tiled.size);
                let entry = match shape.way {
                    Way::Folded => tiled.bytes,
                    _ if of_planes => tiled.entry,
                    _ => tiled.stored,
                };
                Prepared::new(Variant::Fourier, tiles::Launch { shape, tiled, entry })
            }
        })
    },
    cost: |problem, machine| {
        if is_large(problem, machine) {
            return large::time(problem, machine);
        }
        let shape = Shape::of(problem, largest(machine).map_or(128, |tiled| tiled.size));
        tiles::time(shape, (problem.cols, problem.rows), machine)
    },
};

/// The entry for a machine: the larger the tile, the smaller the share of it that is wrapped
/// around.
fn largest(machine: &Machine) -> Option<&'static Tiled> {
    ENTRIES.iter().find(|tiled| tiled.shared as usize <= machine.shared_memory)
}

/// Tiles of `size` that can take columns which do not fill a large folded tile: folded ones, if no
/// tap is left out of the spectra.
fn small(problem: &Problem, size: i32) -> Option<Shape> {
    Some(Shape::of(problem, size)).filter(|shape| shape.way == Way::Folded && !problem.point)
}

/// Pixels transformed for each result, from which on large tiles are faster. From an H200.
const LARGE_FROM: f64 = 5.5;

/// Whether a window's tiles are large. So a picture's size does not decide its bits. Where there is
/// no room for tiles of 128, folding does not spare large ones.
fn is_large(problem: &Problem, machine: &Machine) -> bool {
    are_large((problem.cols, problem.rows), problem.makes_bytes(), machine)
}

/// The same for so many columns and rows of taps, to make bytes of bytes, or any other results.
fn are_large(taps: (usize, usize), bytes: bool, machine: &Machine) -> bool {
    let folds = bytes && largest(machine).is_some_and(|tiled| tiled.size == 128);
    has_large(machine) && greatest_side(taps, folds) == Large::SIDE
}

/// Whether a GPU has room for large tiles.
fn has_large(machine: &Machine) -> bool {
    machine.shared_memory >= Large::COLUMN_SHARED as usize
}

/// What bounds the error of sums that make bytes of bytes on a GPU, for a window of so many columns
/// and rows. Where large tiles leave a filter's own tap out, and there is no room for them, that of
/// the largest tiles with it.
pub(crate) fn order(taps: (usize, usize), leaves_point_out: bool, machine: &Machine) -> Order {
    let size = largest(machine).map_or(0, |tiled| tiled.size);
    match Shape::new(taps, if are_large(taps, true, machine) { Large::SIDE } else { size }, true)
        .way
    {
        _ if leaves_point_out && !has_large(machine) => Order::LargeSpectra,
        Way::Folded => Order::FoldedSpectra,
        _ => Order::Spectra,
    }
}

/// The side of the tiles for such a window, on a GPU that has room for large ones: where bytes are
/// made of bytes by tiles of 128, or anywhere.
fn greatest_side(taps: (usize, usize), bytes: bool) -> i32 {
    if Shape::new(taps, 128, bytes).transformed(taps) >= LARGE_FROM { Large::SIDE } else { 128 }
}

/// The error bound of a sum that makes a byte of bytes, in units in the last place of the greatest
/// pixel: see [`spectrum::units`].
pub(crate) fn units(filter: &Filter) -> f64 {
    let point = f64::from(point(filter));
    if point == 0.0 { units_without(filter, 0.0) } else { units_beside(filter, point) }
}

/// The error bound of a sum by folded tiles that makes a byte of bytes, for pixels of at most
/// `greatest`, with this value outside the image.
///
/// Pixels are less by [`MIDDLE`], which makes the roundings of a tile's numbers less (see
/// [`spectrum::units`]), but not by half: those of a picture of 0 and 255 hardly change. A search
/// for bad pictures found 0.6 to 0.95 of the error without, with what is added; of the tile's
/// numbers three quarters are allowed. Roundings of the taps' spectrum stay, as pixels that are
/// aligned with them are 0 or 255, of which either is as far from the middle. What the taps make of
/// the middle is rounded, and so is its sum with the rest; where a byte's sum is greater than 256,
/// it is 255 anyway.
pub(crate) fn folded_error(filter: &Filter, greatest: f64, outside: f64) -> f64 {
    /// Half a unit in the last place of 1.
    const HALF: f64 = f32::EPSILON as f64 / 2.0;
    let point = f64::from(point(filter));
    let is_byte = outside.fract() == 0.0 && (0.0..=255.0).contains(&outside);
    let size = if is_byte { 0.75 * greatest } else { greatest + f64::from(MIDDLE) };
    let (weight, norm, side) = less(filter, point);
    let units = spectrum::units_of([size * weight, greatest * norm], side);
    // A value outside that is no byte is rounded as the middle is taken off.
    let outside = if is_byte { 0.0 } else { size * weight };
    let sums = if point == 0.0 { 1.0 } else { 2.0 };
    HALF * (2.0 * units + outside + f64::from(middle(filter, point as f32).abs()) + sums * 256.5)
}

/// What the taps without the pixel's own, if that is left out, make of pixels of [`MIDDLE`].
pub(crate) fn middle(filter: &Filter, point: f32) -> f32 {
    (f64::from(MIDDLE) * (filter.sum_of_taps() - f64::from(point))) as f32
}

/// The pixel's own tap, if spectra for bytes leave it out; else 0.
pub(crate) fn point(filter: &Filter) -> f32 {
    let (taps, (x, y)) = ((filter.cols(), filter.rows()), filter.anchor());
    let is_large = greatest_side(taps, true) == Large::SIDE
        && Shape::new(taps, Large::SIDE, true).way == Way::Folded;
    let point = filter.tap(y, x) as f32;
    // It costs a load for each result.
    let is_worth =
        is_large && 1.5 * units_beside(filter, f64::from(point)) < units_without(filter, 0.0);
    if is_worth { point } else { 0.0 }
}

/// [`units`] of a filter less a tap of this size.
fn units_without(filter: &Filter, tap: f64) -> f64 {
    let (weight, norm, side) = less(filter, tap);
    spectrum::units(weight, norm, side)
}

/// `sum |tap|` and `sqrt(sum tap^2)` of a filter less a tap of this size, and the side of the tiles
/// for it.
fn less(filter: &Filter, tap: f64) -> (f64, f64, f64) {
    let side = greatest_side((filter.cols(), filter.rows()), false);
    let norm = (filter.norm().powi(2) - tap * tap).max(0.0).sqrt();
    ((filter.weight() - tap.abs()).max(0.0), norm, f64::from(side))
}

/// The same, and what it takes to add the tap's product: the sum is rounded, half a unit for each
/// 255 of it. Where it is greater than 256, the byte is 255 anyway. What the tap loses as f32 stays
/// in the spectrum.
fn units_beside(filter: &Filter, tap: f64) -> f64 {
    const GREATEST: f64 = 256.5 / 255.0;
    units_without(filter, tap) + 0.5 * GREATEST
}

/// What a tile's complex numbers hold: see `gpu-kernels/src/kernels/fourier/mod.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Pairs of tiles beside each other.
    Beside,
    /// A folded tile.
    Folded,
    /// Pairs of tiles one above the other.
    Stacked,
}

/// Tiles of complex numbers.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Numbers of a line.
    size: i32,
    way: Way,
}

impl Shape {
    /// For a window, to make bytes of bytes, or any other results. Tiles are folded that have room
    /// for the whole window, unless pairs would transform less for its parts.
    fn new(taps: (usize, usize), size: i32, bytes: bool) -> Self {
        let (pairs, folded) = (Self { size, way: Way::Beside }, Self { size, way: Way::Folded });
        let (width, height) = folded.tile();
        let has_room = taps.0 < width as usize && taps.1 < height as usize;
        if bytes && has_room && folded.transformed(taps) <= pairs.transformed(taps) {
            folded
        } else {
            pairs
        }
    }

    fn of(problem: &Problem, size: i32) -> Self {
        Self::new((problem.cols, problem.rows), size, problem.makes_bytes())
    }

    /// Columns and rows of a tile.
    fn tile(self) -> (i32, i32) {
        (if self.way == Way::Folded { 2 * self.size } else { self.size }, self.size)
    }

    /// How a window is cut into parts.
    fn cut(self, taps: (usize, usize)) -> Cut {
        if self.way == Way::Beside { Cut::new(taps, self.tile()) } else { Cut::whole(taps) }
    }

    /// Pixels that are transformed for each result.
    fn transformed(self, (cols, rows): (usize, usize)) -> f64 {
        let ((width, height), (cols, rows)) = (self.tile(), (cols as i32, rows as i32));
        match self.way {
            Way::Beside => spectrum::work(cols, width) * spectrum::work(rows, height),
            _ => f64::from(width * height) / f64::from((width + 1 - cols) * (height + 1 - rows)),
        }
    }

    /// Columns and rows of results of a pair of tiles, or of a folded one, for a part of a window.
    fn results(self, cut: &Cut) -> (i32, i32) {
        let (width, height) = self.tile();
        let (across, down) = (width + 1 - cut.cols, height + 1 - cut.rows);
        match self.way {
            Way::Beside => (2 * across, down),
            Way::Folded => (across, down),
            Way::Stacked => (across, 2 * down),
        }
    }
}

/// The numbers that kernels of one layout of tiles read: the spectrum of each of the window's
/// parts, and ahead of it tables of factors.
#[cfg(feature = "gpu")]
struct Numbers<Place> {
    shape: Shape,
    /// Factors of a table for each `k`: number `j` of them is `exp(-2 pi i j k / size)`.
    each: usize,
    /// Whether a folded tile's factors with the twist of `k` are read, too, beside those with that
    /// of `j`.
    of_k: bool,
    /// The pixel's own tap, if it is left out.
    point: f32,
    /// Where the frequency of column `kx` and row `ky` is.
    place: Place,
}

#[cfg(feature = "gpu")]
impl<Place: Fn(usize, usize) -> usize> Numbers<Place> {
    /// Of a filter.
    fn make(&self, filter: &crate::Filter) -> crate::Result<Vec<f32>> {
        use rustfft::num_complex::Complex;

        let (size, tables) = (self.shape.size as usize, self.tables());
        let parts: Vec<_> = match self.shape.way {
            Way::Beside => spectrum::parts(filter, self.shape.tile()).collect(),
            _ => vec![spectrum::Part::whole(filter)],
        };
        let folded = self.shape.way == Way::Folded;
        let mut numbers =
            crate::memory::zeroed::<Complex<f32>>(size * (tables + parts.len() * size))?;
        let narrow = |value: Complex<f64>| Complex::new(value.re as f32, value.im as f32);
        let (factors, spectra) = numbers.split_at_mut(size * tables);
        for (at, factor) in factors.iter_mut().enumerate() {
            let (k, j) = (at % size / self.each, at % self.each);
            // In quarters of a full circle through `size`.
            let angle = 4.0 * (j * k) as f64 - [0, j, k][at / size] as f64;
            *factor = narrow(Complex::from_polar(
                1.0,
                -std::f64::consts::TAU * angle / (4 * size) as f64,
            ));
        }
        for (part, spectrum) in parts.iter().zip(spectra.chunks_mut(size * size)) {
            for (at, value) in
                part.spectrum(filter, f64::from(self.point), size, folded)?.into_iter().enumerate()
            {
                spectrum[(self.place)(at % size, at / size)] = narrow(value);
            }
        }
        Ok(numbers.iter().flat_map(|number| [number.re, number.im]).collect())
    }

    /// Tables of factors.
    fn tables(&self) -> usize {
        if self.shape.way == Way::Folded { 2 + usize::from(self.of_k) } else { 1 }
    }

    /// The same in a GPU's memory, and how many tables there are.
    fn in_memory(&self, taps: &TapHomes) -> crate::Result<(Spectra, i32)> {
        let kind = match self.shape.way {
            Way::Beside => 0,
            Way::Folded if self.shape.size < Large::SIDE => 1,
            Way::Folded => 2,
            Way::Stacked => 3,
        };
        Ok((taps.spectra(kind, |filter| self.make(filter))?, self.tables() as i32))
    }
}

/// How a job is cut into tiles.
#[cfg(feature = "gpu")]
struct Tiling {
    parts: Parts,
    /// Rows of pairs of tiles, and rows of results of each.
    down: u32,
    tall: i32,
    /// Whether parts are added in an image of f32 apart.
    apart: bool,
}

#[cfg(feature = "gpu")]
impl Tiling {
    /// In tiles of this shape.
    fn new(
        job: &Job<'_>,
        (spectra, tables): (Spectra, i32),
        shape: Shape,
        stream: &mut Stream,
    ) -> crate::Result<Self> {
        let Job { pass, window, .. } = job;
        let cut = shape.cut(taps_of(job.taps.filter()));
        let region = &pass.region;
        let (wide, tall) = shape.results(&cut);
        let tiles = |results: i32, tile: i32| (results as u32).div_ceil(tile as u32);
        let width = region.x1 - region.x0;
        // Columns that half a small folded tile has room for.
        let left = width % wide;
        let halves = shape.way == Way::Folded
            && shape.size < Large::SIDE
            && left > 0
            && left <= shape.size + 1 - cut.cols;
        // No byte is too large for spectra.
        let is_tame = pass.src.scalar == scalar::U8 && pass.outside.abs() <= spectra.greatest;
        let parts = Parts {
            window: *window,
            cols: cut.cols,
            rows: cut.rows,
            count: cut.count,
            beside: cut.beside,
            greatest: if is_tame { f32::INFINITY } else { spectra.greatest },
            noted: if is_tame { 0 } else { stream.holes()? },
            across: if halves { width / wide } else { tiles(width, wide) as i32 },
            halves: i32::from(halves),
            in_turn: 1,
            tables,
            point: 0.0,
            middle: job.taps.middle(),
        };
        Ok(Self {
            parts,
            down: tiles(region.y1 - region.y0, tall),
            tall,
            apart: parts.count > 1 && pass.dst.scalar != scalar::F32,
        })
    }

    /// The pass of the kernels that take tiles: to its destination, or to the image apart, behind
    /// some bytes of scratch.
    fn pass(&self, job: &Job<'_>, behind: usize, stream: &mut Stream) -> crate::Result<Pass> {
        let mut pass = keep::left_out(job.pass);
        if self.apart {
            let region = &job.pass.region;
            [pass.dst] = job.scratch(behind, region.y0 as usize..region.y1 as usize, stream)?;
            (pass.epilogue, pass.doubts) = (Epilogue::NONE, Doubts::NONE);
        }
        Ok(pass)
    }

    /// Stores anew what pixels reach that cannot be transformed, if there may be some.
    fn mend(&self, job: &Job<'_>, stream: &mut Stream) -> crate::Result<()> {
        let &Parts { window, greatest, noted, .. } = &self.parts;
        if noted == 0 {
            return Ok(());
        }
        let grid = Grid::covering(&job.pass.region, job.pass.region.x0, holes::TILE, holes::BLOCK);
        let grid = Grid { shared: holes::SHARED, ..stream.gpu().fitting(grid, job.planes) };
        let holes = Holes { window, greatest, noted, signs: job.taps.signs_in_memory()? };
        let arguments = (keep::left_out(job.pass), holes, job.taps.dense_in_memory()?);
        // SAFETY: the kernel takes any grid of such blocks; the pass describes allocated memory,
        // the signs and the taps are the window's.
        unsafe { stream.enqueue(kernels::fourier_holes, grid, &arguments) }
    }

    /// Brings the sums of parts from there to the destination, and copies what the border keeps.
    fn finish(&self, job: &Job<'_>, pass: &Pass, stream: &mut Stream) -> crate::Result<()> {
        if self.apart {
            keep::copy(&Pass { src: pass.dst, ..job.pass }, job.planes, stream)?;
        }
        self.mend(job, stream)?;
        keep::restore(job, stream)
    }
}

/// Columns and rows of a filter's taps.
#[cfg(feature = "gpu")]
fn taps_of(filter: &crate::Filter) -> (usize, usize) {
    (filter.cols(), filter.rows())
}

/// The grid on which results depend, of tiles of this shape.
#[cfg(feature = "gpu")]
fn tiles_of(filter: &crate::Filter, shape: Shape) -> super::prepared::Tiles {
    let cut = shape.cut(taps_of(filter));
    let (step, reach) = (shape.size + 1 - cut.rows, cut.count / cut.beside * cut.rows);
    super::prepared::Tiles { step: step as usize, reach: reach as usize }
}
