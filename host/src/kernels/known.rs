//! Sums over known pixels: launches `gpu-kernels/src/kernels/known.rs` before and after a kernel
//! for f32.
//!
//! ```text
//! the rows that windows read: stored values, as planes of products and of weights
//! a kernel for f32: planes to planes, of products and of weights
//! the results: quotients, or sums; bytes that are uncertain, exactly
//! ```

use std::sync::Arc;

use gpu_kernels::abi::scalar::U8;
use gpu_kernels::abi::{Epilogue, Pass, Plane, UncertainList};
use gpu_kernels::kernels::exactly::TEAM;
use gpu_kernels::kernels::known::{
    AVERAGE, Known, QUOTIENT, SUM, known_bytes, known_exactly, known_results, known_weigh,
};

use super::planes::{self, Planes};
use super::prepared::{Launcher, PassJob, Prepared, Tiles};
use super::weighted::weights_of_bytes;
use super::{keep, resolve};
use crate::gpu::stream::Stream;
use crate::light::error;
use crate::mask::{Nan, Rule, Unknown};
use crate::plan::ran::Ran;
use crate::{Border, Filter, Result, Scalar};

/// What is known of a picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knows {
    pub(crate) unknown: Unknown,
    pub(crate) border: Border,
    /// The mask of the pass's picture, if it has one, and its channels.
    pub(crate) mask: Option<(Plane, u32)>,
    /// Where sums of weights go, and what says which results are known.
    pub(crate) to: [Option<Plane>; 2],
}

/// The kernels for known pixels.
#[derive(Debug)]
pub(crate) struct Kernels {
    /// For [`of_planes`](crate::problem::Problem::of_planes).
    pub(crate) sums: Prepared,
    /// For results under whose window all is known, if these can be told by their place.
    pub(crate) inside: Option<Prepared>,
}

impl Knows {
    /// Whether bytes made of bytes are exact: not under weights in f32.
    fn is_exact(&self) -> bool {
        self.mask.is_none_or(|(mask, _)| mask.scalar == U8)
    }

    /// Whether all pixels of this type inside the image are known, and nothing else is asked.
    pub(crate) fn knows_inside(&self, source: Scalar) -> bool {
        let is_plain = self.mask.is_none() && self.to.iter().all(Option::is_none);
        is_plain && !self.unknown.is_nan(source) && self.unknown.nan != Nan::Fill
    }
}

/// The launch for the known pixels of a picture. `ones` is the sum of the taps in the kernel's
/// order.
pub(crate) fn prepare(
    kernels: Kernels,
    filter: &Filter,
    ones: f32,
    source: Scalar,
    knows: Knows,
) -> Prepared {
    let (rule, is_nan) = (Rule::of(filter), knows.unknown.is_nan(source));
    let weight = filter.weight() as f32;
    Prepared {
        ran: Ran::Masked,
        launcher: Arc::new(Launch { kernels, rule, ones, weight, is_nan, knows }),
    }
}

#[derive(Debug)]
struct Launch {
    kernels: Kernels,
    rule: Rule,
    /// The sums of the taps, and of their magnitudes.
    ones: f32,
    weight: f32,
    /// Whether pixels that are NaN are unknown.
    is_nan: bool,
    knows: Knows,
}

impl Launcher for Launch {
    fn launch(&self, job: &PassJob<'_>, stream: &mut Stream) -> Result<()> {
        let of_image = job.channels + self.of_weights(job);
        let (values, weights) = (0..job.channels, job.channels..of_image);
        let (pass, read) = (keep::left_out(job.pass), planes::read(&self.kernels.sums, job));
        let count = job.planes / job.channels * of_image;
        let memory = Planes::allocate([(&read, count), (&pass.region, count)], stream)?;
        let weighed = Planes::new(&read, of_image, memory[0]);
        let summed = Planes::new(&pass.region, of_image, memory[1]);
        let below = summed.plane(weights.clone());
        let known = Known {
            weights: weighed.plane(weights.clone()),
            below: if self.needs_below() { below } else { Plane::NONE },
            ..self.known(job)?
        };

        let plain = Pass { epilogue: Epilogue::NONE, uncertain: UncertainList::NONE, ..pass };
        let products = Pass { dst: weighed.plane(values.clone()), region: read, ..plain };
        let grid = planes::grid(&read, job.planes, stream);
        // SAFETY: the kernel takes any grid of such blocks; the passes and planes describe
        // allocated memory.
        unsafe { stream.enqueue(known_weigh, grid, &(products, known))? };
        let [value, weight] = self.outside(pass.outside);
        // What lies outside has one value in a launch.
        let parts = match self.needs_below() {
            false => [Some((values.clone(), value)), None],
            true if value == weight => [Some((0..of_image, value)), None],
            true => [Some((values.clone(), value)), Some((weights, weight))],
        };
        for (part, outside) in parts.into_iter().flatten() {
            let (between, count) =
                ((weighed.plane(part.clone()), summed.plane(part.clone())), part.len());
            planes::sum(&self.kernels.sums, job, between, (count as u32, outside), stream)?;
        }
        self.results(job, (&plain, &known, summed.plane(values)), stream)?;
        keep::restore(job, stream)
    }

    fn takes_values(&self) -> bool {
        !self.knows.is_exact()
    }

    fn inside(&self) -> Option<&Prepared> {
        self.kernels.inside.as_ref()
    }

    fn sums(&self) -> Option<&Prepared> {
        Some(self.kernels.inside.as_ref().unwrap_or(&self.kernels.sums))
    }

    fn tiles(&self, filter: &Filter) -> Option<Tiles> {
        self.kernels.sums.launcher.tiles(filter)
    }

    fn scratch(&self) -> usize {
        planes::scratch(&self.kernels.sums, 4)
    }

    fn reserved(&self) -> u64 {
        planes::reserved(&self.kernels.sums)
    }
}

impl Launch {
    /// Planes of weights of an image.
    fn of_weights(&self, job: &PassJob<'_>) -> u32 {
        match self.knows.mask {
            _ if self.is_nan => job.channels,
            Some((_, channels)) => channels,
            None => 1,
        }
    }

    fn needs_below(&self) -> bool {
        self.rule != Rule::Sum || self.knows.to[0].is_some()
    }

    /// The value and the weight of what lies outside the image where the border finds no pixel.
    fn outside(&self, value: f32) -> [f32; 2] {
        let is_known = self.knows.border != Border::None && !(self.is_nan && value.is_nan());
        if is_known { [value, 1.0] } else { [0.0, 0.0] }
    }

    /// What kernels know, but for planes in scratch memory.
    fn known(&self, job: &PassJob<'_>) -> Result<Known> {
        /// Beyond roundings of the sums of weights.
        const SURELY: f32 = 1.001;
        let Knows { unknown, mask, to, .. } = self.knows;
        let is_weight = |(mask, _): (Plane, u32)| mask.scalar != U8;
        let view = job.taps.filter();
        let (relative, absolute) =
            error::of_sums(view, planes::made(&self.kernels.sums, view), false);
        Ok(Known {
            mask: mask.map_or(Plane::NONE, |(mask, _)| mask),
            weights: Plane::NONE,
            below: Plane::NONE,
            to_weights: to[0].unwrap_or(Plane::NONE),
            to_known: to[1].unwrap_or(Plane::NONE),
            taps: match self.rule {
                Rule::Average => 0,
                _ => job.taps.dense_in_memory()? as u64,
            },
            channels: job.channels as i32,
            of_mask: mask.map_or(1, |(_, channels)| channels as i32),
            of_weights: self.of_weights(job) as i32,
            is_nan: self.is_nan.into(),
            keeps: (unknown.nan == Nan::Fill).into(),
            rule: match self.rule {
                Rule::Average => AVERAGE,
                Rule::Quotient => QUOTIENT,
                Rule::Sum => SUM,
            },
            ones: self.ones,
            unknown: unknown.result as f32,
            outside: self.outside(job.pass.outside)[1],
            // Bytes of a mask weigh at most 1.
            sure: match mask.is_some_and(is_weight) {
                true => f32::INFINITY,
                false => Rule::CANCELLED as f32 * SURELY * self.weight,
            },
            relative,
            absolute,
        })
    }

    /// Makes the results of sums.
    fn results(
        &self,
        job: &PassJob<'_>,
        (pass, known, sums): (&Pass, &Known, Plane),
        stream: &mut Stream,
    ) -> Result<()> {
        let grid = planes::grid(&pass.region, job.planes, stream);
        let window = job.window;
        let is_bytes = (pass.src.scalar, pass.dst.scalar) == (U8, U8);
        if !is_bytes || !self.knows.is_exact() {
            // SAFETY: as for `launch`; the taps are in memory.
            return unsafe { stream.enqueue(known_results, grid, &(*pass, window, *known, sums)) };
        }
        let list = planes::list(job, stream)?;
        let (weights, of_list) =
            (weights_of_bytes(job)?, resolve::grid(&job.pass, job.planes, TEAM));
        let listed = Pass { uncertain: list, ..*pass };
        // SAFETY: likewise; the second kernel takes so many of these blocks, and the pass has a
        // list.
        unsafe {
            stream.enqueue(known_bytes, grid, &(listed, window, *known, sums))?;
            let last = (listed, window, weights, *known, job.planes as i32);
            stream.enqueue(known_exactly, of_list, &last)
        }
    }
}
