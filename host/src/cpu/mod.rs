//! The engine that every plan runs on the CPU. All variants of a family run the same code here. A family is an order of
//! summation, and the engine gives the bits of that order, except where results are rounded to 8 bits.
//!
//! | file | what it computes |
//! | --- | --- |
//! | [`bands`], with the kernel in [`tile`] | the direct and the separable family |
//! | [`boxes`] | equal taps over bytes |
//! | [`fourier`] | the product of spectra |
//! | [`share`] | which thread does what |

mod bands;
mod boxes;
mod fourier;
mod share;
#[cfg(test)]
mod tests;
mod tile;

use std::sync::OnceLock;

use crate::image::{ImageView, ImageViewMut, Pixel};
use crate::round::{Order, Rounder, Settler};
use crate::simd::Isa;
use crate::window::Window;
use crate::{Border, Family, Filter, Result};
use bands::{Frame, Passes, Run};

/// A filter's taps, ready for the CPU.
#[derive(Debug)]
pub(crate) struct Engine {
    isa: Isa,
    filter: Filter,
    dense: OnceLock<Vec<f32>>,
    factors: Option<Factors>,
    spectra: OnceLock<fourier::Spectra<f32>>,
    /// For 8-bit results.
    exact_spectra: OnceLock<fourier::Spectra<f64>>,
}

impl Engine {
    pub(crate) fn new(filter: &Filter) -> Result<Self> {
        Ok(Self {
            isa: Isa::chosen()?,
            filter: filter.clone(),
            dense: OnceLock::new(),
            factors: filter.separated().map(|(row, column)| Factors { row: rounded(row), column: rounded(column) }),
            spectra: OnceLock::new(),
            exact_spectra: OnceLock::new(),
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
        let settler = bytes.map(|src| Settler::new(src, filtered, &self.filter, border));
        if let (Some(src), Some(settler), Some(tap)) = (bytes, &settler, boxes::tap(&self.filter, &window, src.shape()))
        {
            return boxes::run(self.isa, &window, tap, &src, dst, filtered, &Rounder::in_f32(settler, Order::Counted));
        }
        if family == Family::Fourier {
            let Some(settler) = &settler else {
                return fourier::run(&window, self.dense()?, self.spectra()?, None, src, dst, filtered);
            };
            let rounder = Rounder::in_f64(settler, Order::Spectra);
            if rounder.limit().is_some() {
                let spectra = crate::memory::once(&self.exact_spectra, || fourier::Spectra::new(&self.filter))?;
                return fourier::run(&window, &[], spectra, Some((self.isa, &rounder)), src, dst, filtered);
            }
        }
        let (passes, order) = match (family, &self.factors) {
            (Family::Separable, Some(Factors { row, column })) => {
                (Passes { across: Some(row), taps: column }, Order::BlockPasses)
            }
            _ => {
                let by_rows = self.filter.cols() >= BY_ROWS && self.filter.rows() > 1;
                let order = if by_rows { Order::ByRows } else { Order::TapByTap };
                (Passes { across: None, taps: self.dense()? }, order)
            }
        };
        let frame = Frame::new(self.isa, window, src, dst, filtered);
        let Some(settler) = &settler else {
            return bands::run(Some(&Run::new(&frame, passes, None)), None);
        };
        let narrow = Rounder::in_f32(settler, order);
        let wide =
            Rounder::in_f64(settler, if order == Order::BlockPasses { Order::TwoPasses } else { Order::TapByTap });
        let in_f32 = Run::new(&frame, passes, Some(&narrow));
        // In f64 only where that can decide.
        let passes = match (order, self.filter.separated()) {
            _ if wide.limit().is_none() || narrow.share() == 0.0 => None,
            (Order::BlockPasses, Some((row, column))) => Some(Passes { across: Some(row), taps: column }),
            _ => self.filter.dense_f64().map(|taps| Passes { across: None, taps }),
        };
        let in_f64 = passes.map(|passes| Run::new(&frame, passes, Some(&wide)));
        match &in_f64 {
            Some(in_f64) if in_f64.is_better(narrow.share()) => bands::run(None, Some(in_f64)),
            in_f64 => bands::run(Some(&in_f32), in_f64.as_ref()),
        }
    }

    fn spectra(&self) -> Result<&fourier::Spectra<f32>> {
        crate::memory::once(&self.spectra, || fourier::Spectra::new(&self.filter))
    }

    /// All taps, row by row.
    fn dense(&self) -> Result<&[f32]> {
        crate::memory::once(&self.dense, || self.filter.dense_f32()).map(Vec::as_slice)
    }
}

/// The factors of a filter that separates, in f32.
#[derive(Debug)]
struct Factors {
    row: Vec<f32>,
    column: Vec<f32>,
}

fn rounded(taps: &[f64]) -> Vec<f32> {
    taps.iter().map(|&tap| tap as f32).collect()
}

/// Tap columns from which 8-bit results are summed row by row. That is more work, but leaves fewer results in doubt.
const BY_ROWS: usize = 13;
