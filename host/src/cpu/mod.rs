//! The engine that every plan runs on the CPU. All variants of a family run the same code here. A
//! family is an order of summation, and the engine gives the bits of that order, except where
//! results are rounded to 8 bits.
//!
//! | file | what it computes |
//! | --- | --- |
//! | [`method`] | what a method for bytes is; the table of them is [`METHODS`] |
//! | [`passes`] | methods: the terms of a sum, a row and a column, all taps |
//! | [`boxes`] | methods: means of equal taps |
//! | [`smooth`] | method: symmetric rows and columns of a few taps |
//! | [`by_spectra`] | method: products of spectra |
//! | [`table`] | method: one tap |
//! | [`cost`], [`forms`] | what methods' costs have in common, and what decides among them |
//! | [`bands`], of a [`run`], with the kernel in [`tile`] | the direct and the separable family, over rectangles of a [`frame`] |
//! | [`lines`], [`rows`], [`whole`] | the lines under a window, and what is done to a row before a pass and after it |
//! | [`exact`], [`resolving`] | exact sums over bytes, and when they take over from single uncertain results |
//! | [`fourier`], of a window's [`spectra`] in [`real`] numbers of a [`channel`] | the product of spectra |
//! | [`special`], [`patch`] | NaN, infinities, and numbers that spectra cannot hold |
//! | [`gradient`] | gradients |
//! | [`weighted`], [`weighted_bytes`] | colours weighted by alpha |
//! | [`light`] | filters over the light that values stand for |
//! | [`masked`] | sums over known pixels |
//! | [`taps`] | a filter's taps in all these forms |
//! | [`share`] | jobs shared among the threads of a call |

mod bands;
mod boxes;
mod by_spectra;
mod channel;
pub(crate) mod cost;
mod exact;
pub(crate) mod forms;
mod fourier;
mod frame;
mod gradient;
mod light;
mod lines;
mod masked;
mod method;
mod passes;
mod patch;
mod real;
mod resolving;
mod rows;
mod run;
mod share;
mod smooth;
mod special;
mod spectra;
mod table;
mod taps;
#[cfg(test)]
mod tests;
mod tile;
mod weighted;
mod weighted_bytes;
mod whole;

use std::sync::OnceLock;

#[cfg(feature = "gpu")]
pub(crate) use masked::sum_of_taps;
pub(crate) use method::Method;

use crate::image::stored::{StoredView, StoredViewMut};
use crate::image::{ImageView, ImageViewMut, Pixel, Scalar};
use crate::problem::Problem;
use crate::progress::Stage;
use crate::round::Resolver;
use crate::simd::Isa;
use crate::window::Window;
use crate::{Border, Family, Filter, Gradient, Result, Variant, with_pixels};
use cost::Cost;
use frame::Frame;
use method::{Call, Request};
use run::Run;
use taps::{Bytes, Taps};

/// The methods for bytes made of bytes. The first that takes a request runs.
static METHODS: [&Method; 8] = [
    &table::TABLE,
    &boxes::OF_FEW,
    &smooth::SMOOTH,
    &boxes::OF_MANY,
    &passes::TERMS,
    &passes::PASSES,
    &by_spectra::SPECTRA,
    &passes::DENSE,
];

fn method_of(request: &Request<'_>) -> &'static Method {
    METHODS.into_iter().find(|method| (method.takes)(request)).unwrap_or(&passes::DENSE)
}

/// The method that makes a problem's bytes, where a family is preferred; `None` for other types.
pub(crate) fn method(problem: &Problem, family: Family) -> Option<&'static Method> {
    let forms = &problem.rounding.as_ref()?.forms;
    let pixels = problem.width * problem.height;
    Some(method_of(&Request { forms, pixels, channels: problem.side_by_side, family }))
}

/// The variants that stand for the engine's code. All variants of a family run the same code, but
/// for means of bytes, which are counted.
pub(crate) const VARIANTS: [Variant; 5] = [
    Variant::DirectNaive,
    Variant::Separable,
    Variant::Fourier,
    Variant::RunningSums,
    Variant::SpectraPasses,
];

/// The variant that stands for what runs for a problem in a family.
pub(crate) fn variant(problem: &Problem, family: Family) -> Variant {
    match (method(problem, family), family) {
        (Some(method), _) => method.variant,
        (None, Family::Direct) => Variant::DirectNaive,
        (None, Family::Separable) => Variant::Separable,
        (None, Family::Fourier) => Variant::Fourier,
        (None, Family::SpectraPasses) => Variant::SpectraPasses,
    }
}

/// What a problem takes in a family's order, on so many threads.
pub(crate) fn cost(problem: &Problem, family: Family, threads: usize) -> Cost {
    let method = method(problem, family).unwrap_or(match family {
        Family::Direct => &passes::DENSE,
        Family::Separable | Family::SpectraPasses if problem.sum.is_some() => &passes::TERMS,
        Family::Separable | Family::SpectraPasses => &passes::PASSES,
        Family::Fourier => &by_spectra::SPECTRA,
    });
    (method.cost)(problem, threads)
}

/// A filter, ready for the CPU, and the border.
#[derive(Debug)]
pub(crate) struct Engine {
    isa: Isa,
    border: Border,
    /// For all results but bytes made of bytes.
    taps: Taps,
    bytes: OnceLock<Bytes>,
    /// The magnitudes of both filters' taps, once a mask needed them.
    magnitudes: [OnceLock<Taps>; 2],
}

impl Engine {
    pub(crate) fn new(filter: &Filter, border: Border) -> Result<Self> {
        Ok(Self {
            isa: Isa::chosen()?,
            border,
            taps: Taps::new(filter),
            bytes: OnceLock::new(),
            magnitudes: Default::default(),
        })
    }

    /// Filters the first `filtered` channels in a family's order and copies the others. It is a
    /// `stage` of a call, which may end it. Says by which code, as the variant that stands for it.
    pub(crate) fn run(
        &self,
        family: Family,
        src: &StoredView<'_>,
        dst: &mut StoredViewMut<'_>,
        filtered: usize,
        stage: &Stage<'_>,
    ) -> Result<Variant> {
        match (src.scalar(), dst.scalar()) {
            (Scalar::U8, Scalar::U8) => {
                self.run_bytes(family, &src.typed(), &mut dst.typed(), filtered, stage)
            }
            (source, target) => with_pixels!(source, S => with_pixels!(target, D => {
                self.run_values::<S, D>(family, &src.typed(), &mut dst.typed(), filtered, stage)
            })),
        }
    }

    /// Sums in f32, in the family's order.
    fn run_values<S: Pixel, D: Pixel>(
        &self,
        family: Family,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
        filtered: usize,
        stage: &Stage<'_>,
    ) -> Result<Variant> {
        let (window, taps) = (self.window(), &self.taps);
        if family == Family::Fourier {
            let (dense, spectra) =
                (taps.dense()?, taps.spectra.of(&taps.filter, src.shape().width)?);
            fourier::run(self.isa, (&window, dense), &spectra, None, src, (dst, filtered), stage)?;
            return Ok(Variant::Fourier);
        }
        let (variant, terms) = taps.ordered(family)?;
        let frame = Frame::new(self.isa, window, src, dst, filtered);
        bands::run(&Run::new(&frame, &terms, None), None, stage)?;
        Ok(variant)
    }

    /// Bytes made of bytes are correctly rounded, whatever the order of the sums.
    fn run_bytes(
        &self,
        family: Family,
        src: &ImageView<'_, u8>,
        dst: &mut ImageViewMut<'_, u8>,
        filtered: usize,
        stage: &Stage<'_>,
    ) -> Result<Variant> {
        let (window, shape, byte_filter) =
            (self.window(), src.shape(), self.taps.filter.byte_filter()?);
        let bytes = self.bytes()?;
        let method = method_of(&Request {
            forms: &bytes.forms,
            pixels: shape.width * shape.height,
            channels: shape.channels,
            family,
        });
        let resolver = &Resolver::new(*src, filtered, byte_filter, self.border);
        let isa = self.isa;
        (method.run)(Call {
            isa,
            window,
            byte_filter,
            bytes,
            resolver,
            src,
            dst,
            filtered,
            stage,
        })?;
        Ok(method.variant)
    }

    /// The taps for bytes made of bytes.
    fn bytes(&self) -> Result<&Bytes> {
        let byte_filter = self.taps.filter.byte_filter()?;
        Ok(self.bytes.get_or_init(|| Bytes::new(byte_filter, &self.window())))
    }

    /// The gradient, whose window the filter is, of the first `filtered` channels; copies the
    /// others.
    pub(crate) fn run_gradient(
        &self,
        gradient: Gradient,
        src: &StoredView<'_>,
        dst: &mut StoredViewMut<'_>,
        filtered: usize,
        stage: &Stage<'_>,
    ) -> Result<()> {
        let window = self.window();
        with_pixels!(src.scalar(), S => with_pixels!(dst.scalar(), D => {
            gradient::run::<S, D>(self.isa, &window, gradient, &src.typed(), &mut dst.typed(), filtered, stage)
        }))
    }

    /// Filters all channels, colours weighted by the last one, alpha.
    pub(crate) fn run_weighted(
        &self,
        src: &StoredView<'_>,
        dst: &mut StoredViewMut<'_>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        let (isa, filter, window) = (self.isa, &self.taps.filter, self.window());
        if (src.scalar(), dst.scalar()) == (Scalar::U8, Scalar::U8) {
            let whole = &filter.byte_filter()?.whole;
            let (src, dst) = (&src.typed(), &mut dst.typed());
            return weighted_bytes::run(isa, (whole, 0), &window, src, dst, stage);
        }
        with_pixels!(src.scalar(), S => with_pixels!(dst.scalar(), D => {
            weighted::run::<S, D>(isa, filter, &window, &src.typed(), &mut dst.typed(), stage)
        }))
    }

    /// Results of this family in images of this width depend on a grid of tiles of so many rows,
    /// which begins at an image's first row.
    pub(crate) fn step(&self, family: Family, width: usize) -> usize {
        if family == Family::Fourier { spectra::step(&self.taps.filter, width) } else { 1 }
    }

    fn window(&self) -> Window {
        Window::new(&self.taps.filter, self.border)
    }
}
