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

use gpu_kernels::abi::scalar::U8;
use gpu_kernels::abi::{Epilogue, Pass, UncertainList};
use gpu_kernels::kernels::exactly::TEAM;
use gpu_kernels::kernels::light::{
    Curve, NO_ALPHA, SHARED, Thresholds, bytes_of_light, light_exactly, light_of_bytes,
    light_of_values, values_of_light,
};

use super::planes::{self, Planes};
use super::prepared::{Launcher, PassJob, Prepared};
use super::weighted::weights_of_bytes;
use super::{keep, resolve};
use crate::gpu::stream::Stream;
use crate::light::error;
use crate::light::smooth::Smooth;
use crate::light::{Tables, white};
use crate::plan::ran::Ran;
use crate::{Result, Scalar};

/// The launch for the light of a picture. `sums` is a kernel for
/// [`of_planes`](crate::problem::Problem::of_planes).
pub(crate) fn prepare(
    sums: Prepared,
    tables: Arc<Tables>,
    (source, target): (Scalar, Scalar),
    weighted: bool,
) -> Prepared {
    let launch = Launch { sums, tables, white: white(source, target), weighted };
    Prepared { ran: Ran::Light, launcher: Arc::new(launch) }
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
        let (pass, alpha, all) = (job.pass, self.alpha(job), 0..job.channels);
        let decoded = planes::read(&self.sums, job);
        let memory =
            Planes::allocate([(&decoded, job.planes), (&pass.region, job.planes)], stream)?;
        let light = Planes::new(&decoded, job.channels, memory[0]);
        let sums = Planes::new(&pass.region, job.channels, memory[1]);

        let plain = Pass { epilogue: Epilogue::NONE, uncertain: UncertainList::NONE, ..pass };
        let of_light = Pass { dst: light.plane(all.clone()), region: decoded, ..plain };
        self.decode(job, &of_light, stream)?;
        let outside = self.outside(pass.src.scalar, pass.outside);
        // What lies outside has one value in a pass, and alpha has another than colours.
        for channels in self.parts(job) {
            let count = channels.len() as u32;
            let outside = if channels.start as i32 == alpha { outside.1 } else { outside.0 };
            let between = (light.plane(channels.clone()), sums.plane(channels));
            planes::sum(&self.sums, job, between, (count, outside), stream)?;
        }
        self.encode(job, &Pass { src: sums.plane(all), ..plain }, stream)?;
        keep::restore(job, stream)
    }

    fn takes_pixels(&self) -> bool {
        self.weighted
    }

    fn sums(&self) -> Option<&Prepared> {
        Some(&self.sums)
    }

    fn scratch(&self) -> usize {
        planes::scratch(&self.sums, 2)
    }

    fn reserved(&self) -> u64 {
        planes::reserved(&self.sums)
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
        let grid = planes::grid(&pass.region, job.planes, stream);
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
        let grid = planes::grid(&pass.region, job.planes, stream);
        if (source, pass.dst.scalar) != (U8, U8) {
            let curve = curve(job, "values of light", &self.tables.smooth().encode)?;
            let unit = if source == U8 { 1.0 } else { self.white };
            // SAFETY: as for `decode`.
            return unsafe {
                stream.enqueue(values_of_light, grid, &(*pass, curve, self.white, unit, alpha))
            };
        }
        let thresholds = self.thresholds(job)?;
        let uncertain = planes::list(job, stream)?;
        let (weights, light) = (weights_of_bytes(job)?, self.light_of_bytes(job)?);
        let of_list = resolve::grid(&job.pass, job.planes, TEAM);
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
            let (relative, absolute) =
                error::of_sums(view, planes::made(&self.sums, view), self.weighted);
            let (count, absolute) = (places.len() as i32 / 2, absolute + LEAST);
            let of = Thresholds { places: 0, count, shift, first, relative, absolute, unused: 0 };
            Ok((places, of))
        };
        let (places, thresholds) = job.taps.table(("thresholds", number), make)?;
        Ok(Thresholds { places, ..thresholds })
    }
}

/// What underflows is less.
const LEAST: f32 = 1e-30;

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
