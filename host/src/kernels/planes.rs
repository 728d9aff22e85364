//! Planes of f32 in scratch memory, before and after a kernel that sums them.

use std::ops::Range;

use gpu_kernels::abi::scalar::F32;
use gpu_kernels::abi::{Channels, Epilogue, Pass, Plane, Region, Strides, UncertainList};
use gpu_kernels::kernels::fourier::Large;
use gpu_kernels::kernels::light::{BLOCK, TILE};

use super::keep;
use super::prepared::{PassJob, Prepared};
use super::uncertain::Uncertainty;
use crate::gpu::{launch::Grid, stream::Stream};
use crate::light::error::Made;
use crate::problem::{Numbers, Problem, rows_read};
use crate::{Accuracy, Family, Filter, Result, Scalar, Variant, spectrum};

impl Problem {
    /// The problem of sums over planes of f32 that are made of the pixels. If they are `divided` by
    /// others, no family errs relative to more than the window's values.
    pub(crate) fn of_planes(&self, divided: bool) -> Self {
        let planes = Self {
            source: Scalar::F32,
            target: Scalar::F32,
            side_by_side: 1,
            source_is_aligned: true,
            numbers: Numbers::default(),
            rounding: None,
            ..*self
        };
        // Errors of spectra are relative to the greatest value: too great where a divisor is small.
        let is_far = matches!(planes.family(), Some((Family::Fourier | Family::SpectraPasses, _)));
        let accuracy = match planes.accuracy {
            _ if divided && is_far => Some(Accuracy::Window),
            Some(Accuracy::Range) if self.makes_bytes() => None,
            accuracy => accuracy,
        };
        Self { accuracy, ..planes }
    }
}

/// The share of bytes that a list of uncertain results has room for at least.
const LISTED: f64 = 0.02;

/// The least places of a segment of the list.
const LEAST_PLACES: u32 = 64;

/// Planes of a job's images in scratch memory, whose rows begin at multiples of 128 bytes.
pub(super) struct Planes {
    first: u64,
    strides: Strides,
    rows: (i32, i32),
}

impl Planes {
    /// Bytes of a row of a region, and of a plane.
    fn row_and_plane(region: &Region) -> (usize, usize) {
        let row = 4 * ((region.x1 - region.aligned_left()) as usize).next_multiple_of(32);
        (row, row * (region.y1 - region.y0) as usize)
    }

    /// Memory for planes of regions, so many of each: where each of these begins.
    pub(super) fn allocate<const N: usize>(
        regions: [(&Region, u32); N],
        stream: &mut Stream,
    ) -> Result<[u64; N]> {
        let (mut all, mut starts) = (Some(0usize), [0; N]);
        for (start, (region, count)) in starts.iter_mut().zip(regions) {
            *start = all.unwrap_or(0) as u64;
            // Each factor fits in the device's address space.
            let bytes = Self::row_and_plane(region).1.checked_mul(count as usize);
            all = all.and_then(|all| all.checked_add(bytes?));
        }
        let all = all.ok_or_else(|| stream.gpu().out_of_memory(u64::MAX))?;
        let memory = stream.beneath(all)?;
        Ok(starts.map(|start| memory + start))
    }

    /// So many planes for each image, in memory from an address on.
    pub(super) fn new(region: &Region, of_image: u32, memory: u64) -> Self {
        let (row, plane) = Self::row_and_plane(region);
        let image = plane as i64 * i64::from(of_image);
        let strides = Strides { row: row as i64, pixel: 4, channel: plane as i64, image };
        // Column 0 may lie before the memory, and is not touched.
        let first = memory.wrapping_sub(4 * region.aligned_left() as u64);
        Self { first, strides, rows: (region.y0, region.y1) }
    }

    /// Some planes of each image.
    pub(super) fn plane(&self, planes: Range<u32>) -> Plane {
        let first = self.first + u64::from(planes.start) * self.strides.channel as u64;
        Plane::new(F32, first, self.strides, planes.len() as u32, self.rows)
    }
}

/// What a kernel for the sums reads of the image: whole rows.
pub(super) fn read(sums: &Prepared, job: &PassJob<'_>) -> Region {
    let (pass, window) = (&job.pass, &job.window);
    let rows = match sums.launcher.tiles(job.taps.filter()) {
        Some(_) => pass.src.first_row..pass.src.end_row,
        None => {
            let window = (window.anchor_y as usize, window.rows as usize);
            let rows = pass.region.y0 as usize..pass.region.y1 as usize;
            let read = rows_read(pass.border, window, rows, pass.height as usize);
            read.start as i32..read.end as i32
        }
    };
    Region { x0: 0, y0: rows.start, x1: pass.width, y1: rows.end }
}

/// Sums planes into others, of which each image has so many. `outside` is the value outside.
pub(super) fn sum(
    sums: &Prepared,
    job: &PassJob<'_>,
    (src, dst): (Plane, Plane),
    (channels, outside): (u32, f32),
    stream: &mut Stream,
) -> Result<()> {
    let images = job.planes / job.channels;
    let pass = Pass {
        src,
        dst,
        outside,
        channels: Channels::new(channels, images),
        epilogue: Epilogue::NONE,
        uncertain: UncertainList::NONE,
        ..keep::left_out(job.pass)
    };
    let planes = images * channels;
    let job = PassJob { pass, channels, filtered: channels, planes, ..*job };
    sums.launcher.launch(&job, stream)
}

/// How a kernel makes its sums over the light of bytes, or of bytes times their weights.
pub(super) fn made(sums: &Prepared, view: &Filter) -> Made {
    let (cols, rows) = (view.cols(), view.rows());
    match sums.variant().map(Variant::family) {
        Some(Family::Fourier | Family::SpectraPasses) => {
            Made::BySpectra { side: spectrum::greatest_side().max(f64::from(Large::SIDE)) }
        }
        Some(Family::Separable) => {
            Made::InSteps(cols + 1 + rows * view.sum().map_or(1, |sum| sum.terms.len()))
        }
        _ => Made::InSteps(cols * rows),
    }
}

/// See [`Launcher::scratch`](super::prepared::Launcher::scratch): for so many values in planes.
pub(super) fn scratch(sums: &Prepared, values: usize) -> usize {
    /// Of the list of uncertain results.
    const LIST: usize = 1;
    values * size_of::<f32>() + LIST + sums.launcher.scratch()
}

/// See [`Launcher::reserved`](super::prepared::Launcher::reserved).
pub(super) fn reserved(sums: &Prepared) -> u64 {
    UncertainList::bytes(LEAST_PLACES) + sums.launcher.reserved()
}

/// A list for uncertain results of a job.
pub(super) fn list(job: &PassJob<'_>, stream: &mut Stream) -> Result<UncertainList> {
    let Region { x0, y0, x1, y1 } = job.pass.region;
    let results = (x1 - x0) as usize * (y1 - y0) as usize * job.planes as usize;
    let segments = UncertainList::SEGMENTS as usize;
    stream.uncertain(Uncertainty::listing(LISTED).places(results, segments), 1.0)
}

/// The grid for a region of so many planes.
pub(super) fn grid(region: &Region, planes: u32, stream: &Stream) -> Grid {
    stream.gpu().fitting(Grid::covering(region, region.x0, TILE, BLOCK), planes)
}
