//! The engine that every plan runs on the CPU. All variants of a family run the same code here. A family is an order of
//! summation, and the engine gives the bits of that order, except where results are rounded to 8 bits.
//!
//! | file | what it computes |
//! | --- | --- |
//! | [`bands`], with the kernel in [`tile`] | the direct and the separable family |
//! | [`boxes`] | equal taps over bytes |
//! | [`smooth`] | symmetric rows and columns of a few taps over bytes |
//! | [`whole`] | rows of taps over bytes |
//! | [`table`] | one tap over bytes |
//! | [`fourier`] | the product of spectra |
//! | [`special`] | NaN, infinities, and numbers that spectra cannot hold |
//! | [`patch`] | tiles with numbers too great for spectra, tap by tap |
//! | [`gradient`] | gradients |
//! | [`weighted`] | colours weighted by alpha |
//! | [`share`] | jobs shared among the threads of a call |
//! | [`way`] | which of these makes bytes of bytes |

mod bands;
mod boxes;
mod fourier;
mod gradient;
mod patch;
mod share;
mod smooth;
mod special;
mod table;
#[cfg(test)]
mod tests;
mod tile;
mod way;
mod weighted;
mod whole;

use std::sync::OnceLock;

pub(crate) use bands::{Settling, band, strip_values};
pub(crate) use tile::ROWS;
pub(crate) use way::{Way, Ways};
pub(crate) use whole::{WholeRow, lack};

use crate::image::stored::{StoredView, StoredViewMut, with_pixels};
use crate::image::{ImageView, ImageViewMut, Pixel, Scalar};
use crate::progress::Stage;
use crate::round::{self, Bounds, Order, Rounder, Settler};
use crate::simd::Isa;
use crate::spectrum::Precision;
use crate::window::Window;
use crate::{Border, Family, Filter, Gradient, Result, Variant};
use bands::{Frame, Passes, Run, Terms};
use fourier::InF64;
use smooth::Smooth;
use table::Table;

/// A filter's taps, ready for the CPU, and the border.
#[derive(Debug)]
pub(crate) struct Engine {
    isa: Isa,
    filter: Filter,
    border: Border,
    /// Of 8-bit results.
    bounds: Bounds,
    dense: OnceLock<Vec<f32>>,
    /// By which code 8-bit results are made.
    ways: OnceLock<Ways>,
    /// The filter in whole numbers, where it has few symmetric taps; for 8-bit results.
    smooth: OnceLock<Option<Smooth>>,
    factors: Option<Factors>,
    /// The terms of the filter's sum, where it has one.
    sum: Option<Vec<Factors>>,
    spectra: fourier::Cache<f32>,
    /// For 8-bit results.
    exact_spectra: fourier::Cache<f64>,
    spread: OnceLock<Vec<f64>>,
}

impl Engine {
    pub(crate) fn new(filter: &Filter, border: Border) -> Result<Self> {
        let outside = Window::new(filter, border).border_value.into();
        Ok(Self {
            isa: Isa::chosen()?,
            filter: filter.clone(),
            border,
            bounds: Bounds::default(),
            dense: OnceLock::new(),
            ways: OnceLock::new(),
            smooth: OnceLock::new(),
            factors: filter.separated().map(|(row, column)| Factors::new(row, column, outside)),
            sum: filter
                .sum()
                .map(|sum| sum.terms.iter().map(|(row, column)| Factors::new(row, column, outside)).collect()),
            spectra: fourier::Cache::default(),
            exact_spectra: fourier::Cache::default(),
            spread: OnceLock::new(),
        })
    }

    /// Filters the first `filtered` channels in a family's order and copies the others. It is a `stage` of a call, which may end it.
    /// Says by which code, as the variant that stands for it.
    pub(crate) fn run(
        &self,
        family: Family,
        src: &StoredView<'_>,
        dst: &mut StoredViewMut<'_>,
        filtered: usize,
        stage: &Stage<'_>,
    ) -> Result<Variant> {
        match (src.scalar(), dst.scalar()) {
            (Scalar::U8, Scalar::U8) => self.run_bytes(family, &src.typed(), &mut dst.typed(), filtered, stage),
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
        let window = self.window();
        if family == Family::Fourier {
            let (taps, spectra) = (self.dense()?, self.spectra.of(&self.filter, src.shape().width)?);
            fourier::run(self.isa, (&window, taps), &spectra, (None, None), src, (dst, filtered), stage)?;
            return Ok(Variant::Fourier);
        }
        let terms = match (family, &self.factors) {
            (Family::Separable, Some(factors)) => Some(factors.passes().into()),
            (Family::Separable, None) => self.terms(Factors::passes),
            _ => None,
        };
        let (variant, terms) = match terms {
            Some(terms) => (Variant::Separable, terms),
            None => (Variant::DirectNaive, Passes::dense(self.dense()?).into()),
        };
        let frame = Frame::new(self.isa, window, src, dst, filtered);
        bands::run(&Run::new(&frame, &terms, None), None, false, stage)?;
        Ok(variant)
    }

    /// 8-bit results of 8-bit pixels are correctly rounded, whatever the order of the sums.
    fn run_bytes(
        &self,
        family: Family,
        src: &ImageView<'_, u8>,
        dst: &mut ImageViewMut<'_, u8>,
        filtered: usize,
        stage: &Stage<'_>,
    ) -> Result<Variant> {
        let (window, shape) = (self.window(), src.shape());
        let settler = Settler::new(*src, filtered, &self.filter, self.border, &self.bounds);
        let ways = self.ways.get_or_init(|| Ways::new(&self.filter, &window));
        let way = ways.way(family, shape.width * shape.height, shape.channels);
        let smooth = || self.smooth.get_or_init(|| Smooth::new(&self.filter, &window)).as_ref();
        match (way, smooth(), boxes::tap(&self.filter, &window)) {
            (Way::Table, ..) => {
                let table = Table::new(settler.of_single_pixels(), self.filter.tap(0, 0));
                table.run(self.isa, src, (dst, filtered), stage)
            }
            (Way::Smooth(_), Some(smooth), _) => {
                let rounder = Rounder::in_f32(&settler, Order::BlockPasses);
                smooth::run(self.isa, smooth, &window, src, (dst, filtered), &rounder, stage)
            }
            (Way::Counted { .. }, _, Some(tap)) => {
                let rounder = Rounder::in_f32(&settler, Order::Counted);
                boxes::run(self.isa, &window, tap, src, (dst, filtered), &rounder, stage)
            }
            (Way::Spectra, ..) => self.run_spectra(&settler, src, (dst, filtered), stage),
            _ => self.run_passes(way, &settler, src, (dst, filtered), stage),
        }?;
        Ok(way.variant())
    }

    /// Bytes of sums by rows and columns, or tap by tap.
    fn run_passes(
        &self,
        way: Way,
        settler: &Settler<'_>,
        src: &ImageView<'_, u8>,
        (dst, filtered): (&mut ImageViewMut<'_, u8>, usize),
        stage: &Stage<'_>,
    ) -> Result<()> {
        let window = self.window();
        let (terms, exact, orders) = match (way, self.filter.sum(), self.terms(Factors::of_bytes)) {
            (Way::Terms, Some(sum), Some(terms)) => {
                let exact = sum.terms.iter().map(|(row, column)| Passes::new(row, column)).collect();
                let exact = Terms { point: terms.point.map(|_| sum.point), passes: exact };
                (terms, Some(exact), (Order::Terms, Order::Terms))
            }
            _ => match (way, &self.factors, self.filter.separated()) {
                (Way::Passes, Some(factors), Some((row, column))) => {
                    let exact = Passes::new(row, column);
                    (factors.of_bytes().into(), Some(exact.into()), (Order::BlockPasses, Order::TwoPasses))
                }
                _ => {
                    let by_rows = sums_by_rows(self.filter.cols(), self.filter.rows());
                    let order = if by_rows { Order::ByRows } else { Order::TapByTap };
                    let exact = self.filter.dense_f64().map(|taps| Passes::dense(taps).into());
                    (Passes::dense(self.dense()?).into(), exact, (order, Order::TapByTap))
                }
            },
        };
        let frame = Frame::new(self.isa, window, src, dst, filtered);
        let (narrow, wide) = (Rounder::in_f32(settler, orders.0), Rounder::in_f64(settler, orders.1));
        let mut in_f32 = Run::new(&frame, &terms, Some(&narrow));
        if let Some(exact) = &exact {
            in_f32 = in_f32.with_exact(exact);
        }
        // In f64 only where that decides something.
        let decides = wide.limit().is_some() && narrow.share() > 0.0 && !settler.meets_ties();
        let in_f64 = exact.as_ref().filter(|_| decides).map(|terms| Run::new(&frame, terms, Some(&wide)));
        let likely = in_f64.is_some() && in_f32.is_slower_than_f64();
        bands::run(&in_f32, in_f64.as_ref(), likely, stage)
    }

    /// By way of spectra, in f32 or in f64.
    fn run_spectra(
        &self,
        settler: &Settler<'_>,
        src: &ImageView<'_, u8>,
        results: (&mut ImageViewMut<'_, u8>, usize),
        stage: &Stage<'_>,
    ) -> Result<()> {
        let (window, width) = (self.window(), src.shape().width);
        let in_f64 = &Rounder::in_f64(settler, Order::LargeSpectra);
        let in_f32 = Rounder::in_f32(settler, Order::LargeSpectra);
        let share = round::by_spectra(in_f32.share(), &window);
        let size = (window.cols as i32, window.rows as i32);
        if Precision::of_bytes(size, width as i32, share) == Precision::Double {
            let spectra = self.exact_spectra.of(&self.filter, width)?;
            return fourier::run(self.isa, (&window, &[]), &spectra, (Some(in_f64), None), src, results, stage);
        }
        let spectra = self.spectra.of(&self.filter, width)?;
        let taps = crate::memory::once(&self.spread, || fourier::spread(&self.filter))?;
        let again = || self.exact_spectra.like(&self.filter, &spectra);
        let exact = InF64 { taps, spectra: &again, rounder: in_f64 };
        fourier::run(self.isa, (&window, &[]), &spectra, (Some(&in_f32), Some(&exact)), src, results, stage)
    }

    /// The gradient, whose window the filter is, of the first `filtered` channels; copies the others.
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
        with_pixels!(src.scalar(), S => with_pixels!(dst.scalar(), D => {
            weighted::run::<S, D>(self.isa, &self.filter, &self.window(), &src.typed(), &mut dst.typed(), stage)
        }))
    }

    /// Results of this family in images of this width depend on a grid of tiles of so many rows, which begins at an image's first row.
    pub(crate) fn step(&self, family: Family, width: usize) -> usize {
        if family == Family::Fourier { fourier::step(&self.filter, width) } else { 1 }
    }

    /// The terms of the filter's sum, in f32.
    fn terms<'a>(&'a self, passes: fn(&'a Factors) -> Passes<'a, f32>) -> Option<Terms<'a, f32>> {
        let (sum, factors) = (self.filter.sum()?, self.sum.as_ref()?);
        let point = Some(sum.point as f32).filter(|&point| point != 0.0);
        Some(Terms { point, passes: factors.iter().map(passes).collect() })
    }

    fn window(&self) -> Window {
        Window::new(&self.filter, self.border)
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
    /// The row in whole numbers.
    whole: Option<WholeRow>,
    /// What its results lack.
    lacks: f64,
}

impl Factors {
    /// For images that have this value outside.
    fn new(row: &[f64], column: &[f64], outside: f64) -> Self {
        let whole = WholeRow::new(row, column.len(), outside);
        let lacks = whole.as_ref().map_or(0.0, |whole| lack(whole.middle, row, column));
        Self { row: rounded(row), column: rounded(column), whole, lacks }
    }

    fn passes(&self) -> Passes<'_, f32> {
        Passes::new(&self.row, &self.column)
    }

    /// For bytes that bytes are made of.
    fn of_bytes(&self) -> Passes<'_, f32> {
        match self.row[..] {
            // The column pass goes over the pixels themselves, or what they are less the middle.
            [1.0] => {
                let middle = self.whole.as_ref().map_or(0.0, |whole| whole.middle as f32);
                Passes { middle, lacks: self.lacks, ..Passes::dense(&self.column) }
            }
            _ => Passes { whole: self.whole.as_ref(), lacks: self.lacks, ..self.passes() },
        }
    }
}

fn rounded(taps: &[f64]) -> Vec<f32> {
    taps.iter().map(|&tap| tap as f32).collect()
}

/// The least taps of a row by itself that are summed up faster in whole numbers than tap by tap.
const LONG_ROW: usize = 6;

/// Whether 8-bit results are summed row by row. That is more work, but leaves fewer results in doubt.
pub(crate) fn sums_by_rows(cols: usize, rows: usize) -> bool {
    cols >= 13 && rows > 1
}
