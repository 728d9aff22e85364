//! Filters over light: launches `gpu-kernels/src/kernels/light.rs` before and after a kernel for
//! f32.
//!
//! ```text
//! the rows that windows read: stored values, decoded into planes
//! a kernel for f32: planes to planes
//! the results: sums, encoded; bytes whose sums are uncertain, exactly
//! ```

use std::ops::Range;
use std::sync::Arc;

use gpu_kernels::abi::scalar::{F32, U8};
use gpu_kernels::abi::{Channels, Epilogue, Pass, Plane, Region, Strides, UncertainList};
use gpu_kernels::kernels::fourier::Large;
use gpu_kernels::kernels::light::{
    BLOCK, Curve, NO_ALPHA, SHARED, TEAM, TILE, Thresholds, bytes_of_light, light_exactly,
    light_of_bytes, light_of_values, values_of_light,
};

use super::prepared::{Launcher, PassJob, Prepared, Tiles};
use super::uncertain::Uncertainty;
use super::weighted::weights_of_bytes;
use super::{keep, resolve};
use crate::gpu::launch::Grid;
use crate::gpu::stream::Stream;
use crate::light::error::{self, Made};
use crate::light::smooth::Smooth;
use crate::light::{Tables, white};
use crate::plan::ran::Ran;
use crate::problem::{Numbers, Problem, rows_read};
use crate::{Accuracy, Family, Filter, Result, Scalar, Variant, spectrum};

/// The share of bytes that the list has room for at least.
const LISTED: f64 = 0.02;

impl Problem {
    /// The problem of the sums over light. If `weighted`, the last channel is alpha and weighs the
    /// others.
    pub(crate) fn of_light(&self, weighted: bool) -> Self {
        let light = Self {
            source: Scalar::F32,
            target: Scalar::F32,
            side_by_side: 1,
            source_is_aligned: true,
            numbers: Numbers::default(),
            rounding: None,
            ..*self
        };
        // Errors of spectra are relative to white: too great for quotients where alpha is small.
        let is_far = matches!(light.family(), Some((Family::Fourier | Family::SpectraPasses, _)));
        let accuracy = match light.accuracy {
            _ if weighted && is_far => Some(Accuracy::Window),
            Some(Accuracy::Range) if self.makes_bytes() => None,
            accuracy => accuracy,
        };
        Self { accuracy, ..light }
    }
}

/// The launch for the light of a picture. `sums` is a kernel for [`Problem::of_light`].
pub(crate) fn prepare(
    sums: Prepared,
    tables: Arc<Tables>,
    (source, target): (Scalar, Scalar),
    weighted: bool,
) -> Prepared {
    let launch = Launch { sums, tables, white: white(source, target), weighted };
    Prepared { ran: Ran::Light, launcher: Box::new(launch) }
}

#[derive(Debug)]
struct Launch {
    sums: Prepared,
    tables: Arc<Tables>,
    /// The value that stands for white.
    white: f32,
    weighted: bool,
}

impl Launcher for Launch {
    fn launch(&self, job: &PassJob<'_>, stream: &mut Stream) -> Result<()> {
        let (pass, alpha) = (job.pass, self.alpha(job));
        let region = pass.region;
        let read = match self.tiles(job.taps.filter()) {
            Some(_) => pass.src.first_row..pass.src.end_row,
            None => {
                let window = (job.window.anchor_y as usize, job.window.rows as usize);
                let rows = region.y0 as usize..region.y1 as usize;
                let read = rows_read(pass.border, window, rows, pass.height as usize);
                read.start as i32..read.end as i32
            }
        };
        let decoded = Region { x0: 0, y0: read.start, x1: pass.width, y1: read.end };
        let bytes = |region: &Region| Planes::bytes(job, region, stream);
        let (of_light, of_sums) = (bytes(&decoded)?, bytes(&region)?);
        let all =
            of_light.checked_add(of_sums).ok_or_else(|| stream.gpu().out_of_memory(u64::MAX))?;
        let memory = stream.light(all)?;
        let light = Planes::new(job, decoded, memory);
        let sums = Planes::new(job, region, memory + of_light as u64);

        let plain = Pass { epilogue: Epilogue::NONE, uncertain: UncertainList::NONE, ..pass };
        self.decode(
            job,
            &Pass { dst: light.plane(0..job.channels), region: decoded, ..plain },
            stream,
        )?;
        let outside = self.outside(pass.src.scalar, pass.outside);
        // What lies outside has one value in a pass, and alpha has another than colours.
        for channels in self.parts(job) {
            let count = channels.len() as u32;
            let outside = if channels.start as i32 == alpha { outside.1 } else { outside.0 };
            let part = Pass {
                src: light.plane(channels.clone()),
                dst: sums.plane(channels),
                channels: Channels::new(count, job.planes / job.channels),
                outside,
                ..keep::left_out(plain)
            };
            let planes = job.planes / job.channels * count;
            let part = PassJob { pass: part, channels: count, filtered: count, planes, ..*job };
            self.sums.launcher.launch(&part, stream)?;
        }
        self.encode(job, &Pass { src: sums.plane(0..job.channels), ..plain }, stream)?;
        keep::restore(job, stream)
    }

    fn takes_pixels(&self) -> bool {
        self.weighted
    }

    fn sums(&self) -> Option<&Prepared> {
        Some(&self.sums)
    }

    fn tiles(&self, filter: &Filter) -> Option<Tiles> {
        self.sums.launcher.tiles(filter)
    }

    fn scratch(&self) -> usize {
        /// Of the list of uncertain results.
        const LIST: usize = 1;
        2 * size_of::<f32>() + LIST + self.sums.launcher.scratch()
    }

    fn reserved(&self) -> u64 {
        UncertainList::bytes(LEAST_PLACES) + self.sums.launcher.reserved()
    }
}

impl Launch {
    /// The number of the alpha channel that weighs the others, as kernels take it.
    fn alpha(&self, job: &PassJob<'_>) -> i32 {
        if self.weighted { job.channels as i32 - 1 } else { NO_ALPHA }
    }

    /// The channels that are filtered together.
    fn parts(&self, job: &PassJob<'_>) -> impl Iterator<Item = Range<u32>> + use<> {
        let colours = job.channels - u32::from(self.weighted);
        [0..colours, colours..job.channels].into_iter().filter(|part| !part.is_empty())
    }

    /// The light of the value outside the image, and as the alpha of a pixel of such values.
    fn outside(&self, source: u32, value: f32) -> (f32, f32) {
        let (light, alpha) = if source == U8 {
            (self.tables.bytes().light[usize::from(value as u8)], value)
        } else {
            let part = value / self.white;
            (self.tables.smooth().decode.of(part), part)
        };
        (if self.weighted { light * alpha } else { light }, alpha)
    }

    fn decode(&self, job: &PassJob<'_>, pass: &Pass, stream: &mut Stream) -> Result<()> {
        let alpha = self.alpha(job);
        let grid = grid(&pass.region, job.planes, stream);
        // SAFETY: the kernels take any grid of such blocks, with the shared memory that they state;
        // the pass describes allocated memory, and the tables are in memory.
        unsafe {
            if pass.src.scalar == U8 {
                let light = self.light_of_bytes(job)?;
                return stream.enqueue(
                    light_of_bytes,
                    grid.sharing(SHARED),
                    &(*pass, light, alpha),
                );
            }
            let curve = curve(job, "light of values", &self.tables.smooth().decode)?;
            stream.enqueue(light_of_values, grid, &(*pass, curve, self.white, alpha))
        }
    }

    fn encode(&self, job: &PassJob<'_>, pass: &Pass, stream: &mut Stream) -> Result<()> {
        let (alpha, source) = (self.alpha(job), job.pass.src.scalar);
        let grid = grid(&pass.region, job.planes, stream);
        if (source, pass.dst.scalar) != (U8, U8) {
            let curve = curve(job, "values of light", &self.tables.smooth().encode)?;
            let unit = if source == U8 { 1.0 } else { self.white };
            // SAFETY: as for `decode`.
            return unsafe {
                stream.enqueue(values_of_light, grid, &(*pass, curve, self.white, unit, alpha))
            };
        }
        let thresholds = self.thresholds(job)?;
        let Region { x0, y0, x1, y1 } = pass.region;
        let results = (x1 - x0) as usize * (y1 - y0) as usize * job.planes as usize;
        let segments = UncertainList::SEGMENTS as usize;
        let places = Uncertainty::listing(LISTED).places(results, segments);
        let uncertain = stream.uncertain(places, 1.0)?;
        let (weights, light) = (weights_of_bytes(job)?, self.light_of_bytes(job)?);
        let of_list = resolve::grid(job, TEAM);
        let listed = Pass { uncertain, ..*pass };
        let exactly = Pass { uncertain, ..job.pass };
        // SAFETY: as for `decode`; the second kernel takes so many of these blocks, and the pass
        // has a list.
        unsafe {
            stream.enqueue(bytes_of_light, grid, &(listed, thresholds, alpha))?;
            stream.enqueue(
                light_exactly,
                of_list,
                &(exactly, job.window, weights, light, thresholds, alpha, job.planes as i32),
            )
        }
    }

    /// The address of the light of each byte, in the GPU's memory.
    fn light_of_bytes(&self, job: &PassJob<'_>) -> Result<u64> {
        let make = || Ok((self.tables.bytes().light.to_vec(), ()));
        Ok(job.taps.table(("light of bytes", 0), make)?.0)
    }

    /// The thresholds between bytes, and how far sums may be off.
    fn thresholds(&self, job: &PassJob<'_>) -> Result<Thresholds> {
        let (number, view) = (usize::from(self.weighted), job.taps.filter());
        let make = || {
            let (places, shift, first) = self.tables.bytes().thresholds();
            let (relative, absolute) = error::of_sums(view, self.made(view), self.weighted);
            let (count, absolute) = (places.len() as i32 / 2, absolute + LEAST);
            let of = Thresholds { places: 0, count, shift, first, relative, absolute, unused: 0 };
            Ok((places, of))
        };
        let (places, thresholds) = job.taps.table(("thresholds", number), make)?;
        Ok(Thresholds { places, ..thresholds })
    }

    /// How the kernel makes its sums.
    fn made(&self, view: &Filter) -> Made {
        let (cols, rows) = (view.cols(), view.rows());
        match self.sums.variant().map(Variant::family) {
            Some(Family::Fourier | Family::SpectraPasses) => {
                Made::BySpectra { side: spectrum::greatest_side().max(f64::from(Large::SIDE)) }
            }
            Some(Family::Separable) => {
                Made::InSteps(cols + 1 + rows * view.sum().map_or(1, |sum| sum.terms.len()))
            }
            _ => Made::InSteps(cols * rows),
        }
    }
}

/// What underflows is less.
const LEAST: f32 = 1e-30;

/// The least places of a segment of the list.
const LEAST_PLACES: u32 = 64;

/// The grid for a region of so many planes.
fn grid(region: &Region, planes: u32, stream: &Stream) -> Grid {
    stream.gpu().fitting(Grid::covering(region, region.x0, TILE, BLOCK), planes)
}

/// A function in the GPU's memory.
fn curve(job: &PassJob<'_>, name: &'static str, smooth: &Smooth) -> Result<Curve> {
    let make = || {
        let numbers: Vec<[f32; 4]> = smooth.numbers().collect();
        let (shift, first, end) = smooth.parts();
        let (kink, slope, start) = smooth.line();
        let count = numbers.len() as i32;
        Ok((numbers, Curve { parts: 0, count, shift, first, end, kink, slope, start, unused: 0 }))
    };
    let (parts, curve) = job.taps.table((name, 0), make)?;
    Ok(Curve { parts, ..curve })
}

/// All channels of a job's images in scratch memory, each as a plane of f32, whose rows begin at
/// multiples of 128 bytes.
struct Planes {
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

    /// Bytes of all planes.
    fn bytes(job: &PassJob<'_>, region: &Region, stream: &Stream) -> Result<usize> {
        // Each factor fits in the device's address space.
        let all = Self::row_and_plane(region).1.checked_mul(job.planes as usize);
        all.ok_or_else(|| stream.gpu().out_of_memory(u64::MAX))
    }

    /// For a region, in memory from an address on.
    fn new(job: &PassJob<'_>, region: Region, memory: u64) -> Self {
        let (row, plane) = Self::row_and_plane(&region);
        let image = plane as i64 * i64::from(job.channels);
        let strides = Strides { row: row as i64, pixel: 4, channel: plane as i64, image };
        // Column 0 may lie before the memory, and is not touched.
        let first = memory.wrapping_sub(4 * region.aligned_left() as u64);
        Self { first, strides, rows: (region.y0, region.y1) }
    }

    /// Some channels of each image.
    fn plane(&self, channels: Range<u32>) -> Plane {
        let first = self.first + u64::from(channels.start) * self.strides.channel as u64;
        Plane::new(F32, first, self.strides, channels.len() as u32, self.rows)
    }
}
