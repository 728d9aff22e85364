//! The engine that every plan runs on the CPU. All variants of a family run the same code here. A
//! family is an order of summation, and the engine gives the bits of that order, except where
//! results are rounded to 8 bits.
//!
//! | file | what it computes |
//! | --- | --- |
//! | [`bands`], with the kernel in [`tile`] | the direct and the separable family, over rectangles of a [`frame`] |
//! | [`lines`], [`rows`] | the lines under a window, and what is done to a row before a pass and after it |
//! | [`resolving`] | when exact passes take over from single uncertain results |
//! | [`boxes`] | means of equal taps over bytes |
//! | [`smooth`] | symmetric rows and columns of a few taps over bytes |
//! | [`whole`] | rows of taps over bytes |
//! | [`table`] | one tap over bytes |
//! | [`exact`] | exact sums over bytes, where many results are uncertain |
//! | [`fourier`], of a window's [`spectra`] | the product of spectra |
//! | [`special`] | NaN, infinities, and numbers that spectra cannot hold |
//! | [`patch`] | tiles with numbers too great for spectra, tap by tap |
//! | [`gradient`] | gradients |
//! | [`weighted`] | colours weighted by alpha |
//! | [`weighted_bytes`] | the same, bytes made of bytes |
//! | [`share`] | jobs shared among the threads of a call |
//! | [`way`] | which of these makes bytes of bytes |

mod bands;
mod boxes;
mod exact;
mod fourier;
mod frame;
mod gradient;
mod lines;
mod patch;
mod resolving;
mod rows;
mod share;
mod smooth;
mod special;
mod spectra;
mod table;
#[cfg(test)]
mod tests;
mod tile;
mod way;
mod weighted;
mod weighted_bytes;
mod whole;

use std::sync::OnceLock;

pub(crate) use bands::{band, strip_values};
pub(crate) use exact::taps_taken;
pub(crate) use resolving::Resolving;
pub(crate) use tile::ROWS;
pub(crate) use way::{Way, Ways};
pub(crate) use whole::{WholeRow, lack};

use crate::filter::OfBytes;
use crate::image::stored::{StoredView, StoredViewMut, with_pixels};
use crate::image::{ImageView, ImageViewMut, Pixel, Scalar};
use crate::progress::Stage;
use crate::round::{Bounds, Order, Resolver, Rounder};
use crate::simd::Isa;
use crate::spectrum::Precision;
use crate::window::Window;
use crate::{Border, Family, Filter, Gradient, Result, Variant};
use bands::Run;
use boxes::Mean;
use exact::Exact;
use fourier::Finer;
use frame::{Frame, Passes, Terms};
use smooth::Smooth;
use table::Table;

/// A filter, ready for the CPU, and the border.
#[derive(Debug)]
pub(crate) struct Engine {
    isa: Isa,
    border: Border,
    /// For all results but bytes made of bytes.
    taps: Taps,
    bytes: OnceLock<Bytes>,
}

/// A filter's taps in f32, and their spectra.
#[derive(Debug)]
struct Taps {
    filter: Filter,
    dense: OnceLock<Vec<f32>>,
    factors: Option<Factors>,
    /// The terms of the filter's sum, where it has one.
    sum: Option<Vec<Factors>>,
    spectra: spectra::Cache<f32>,
}

/// What makes bytes of bytes.
#[derive(Debug)]
struct Bytes {
    /// Of the filter's view in f64 ([`OfBytes`]).
    taps: Taps,
    ways: Ways,
    bounds: Bounds,
    smooth: Option<Smooth>,
    mean: Option<Mean>,
    spectra_in_f64: spectra::Cache<f64>,
}

impl Engine {
    pub(crate) fn new(filter: &Filter, border: Border) -> Result<Self> {
        Ok(Self { isa: Isa::chosen()?, border, taps: Taps::new(filter), bytes: OnceLock::new() })
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
        let terms = match (family, &taps.factors) {
            (Family::Separable, Some(factors)) => Some(factors.passes().into()),
            (Family::Separable, None) => taps.terms(Factors::passes),
            _ => None,
        };
        let (variant, terms) = match terms {
            Some(terms) => (Variant::Separable, terms),
            None => (Variant::DirectNaive, Passes::dense(taps.dense()?).into()),
        };
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
        let (window, shape, of_bytes) = (self.window(), src.shape(), self.taps.filter.of_bytes()?);
        let bytes = self.bytes.get_or_init(|| Bytes::new(of_bytes, &window));
        let way = bytes.ways.way(family, shape.width * shape.height, shape.channels);
        let resolver = Resolver::new(*src, filtered, of_bytes, self.border);
        match (way, &bytes.smooth, &bytes.mean) {
            (Way::Table, ..) => {
                let table =
                    Table::new(Resolver::of_single_pixels(of_bytes), bytes.taps.filter.tap(0, 0));
                table.run(self.isa, src, (dst, filtered), stage)
            }
            (Way::Smooth(_), Some(smooth), _) => {
                let rounder = Rounder::in_f32(&resolver, &bytes.bounds, Order::BlockPasses);
                smooth::run(self.isa, smooth, &window, src, (dst, filtered), &rounder, stage)
            }
            (Way::Counted { .. }, _, Some(mean)) => {
                boxes::run(self.isa, &window, *mean, src, (dst, filtered), stage)
            }
            (Way::Spectra, ..) => self.run_spectra(bytes, &resolver, src, (dst, filtered), stage),
            _ => self.run_passes(way, (bytes, of_bytes), &resolver, src, (dst, filtered), stage),
        }?;
        Ok(way.variant())
    }

    /// Bytes of sums by rows and columns, or tap by tap.
    fn run_passes(
        &self,
        way: Way,
        (bytes, of_bytes): (&Bytes, &OfBytes),
        resolver: &Resolver<'_>,
        src: &ImageView<'_, u8>,
        (dst, filtered): (&mut ImageViewMut<'_, u8>, usize),
        stage: &Stage<'_>,
    ) -> Result<()> {
        let Taps { filter, factors, .. } = &bytes.taps;
        let (terms, order) = match (way, bytes.taps.terms(Factors::of_bytes), factors) {
            (Way::Terms, Some(terms), _) => (terms, Order::Terms),
            (Way::Passes, _, Some(factors)) => (factors.of_bytes().into(), Order::BlockPasses),
            _ => {
                let by_rows = sums_by_rows(filter.cols(), filter.rows());
                let order = if by_rows { Order::ByRows } else { Order::TapByTap };
                (Passes::dense(bytes.taps.dense()?).into(), order)
            }
        };
        let columns = match way {
            Way::Terms | Way::Passes => {
                filter.products().into_iter().map(|(_, column)| column).collect()
            }
            _ => Vec::new(),
        };
        let point = filter.sum().filter(|_| way == Way::Terms).map_or(0.0, |sum| sum.point);
        let frame = Frame::new(self.isa, self.window(), src, dst, filtered);
        let rounder = Rounder::in_f32(resolver, &bytes.bounds, order);
        let in_f32 = Run::new(&frame, &terms, Some(&rounder)).with_columns(
            columns,
            point,
            exact::taps_taken(&of_bytes.whole),
        );
        // Exactly only where that decides something.
        let exact = if rounder.share() > 0.0 { Exact::new(&frame, &of_bytes.whole) } else { None };
        bands::run(&in_f32, exact.as_ref(), stage)
    }

    /// By way of spectra, in f32 or in f64.
    fn run_spectra(
        &self,
        bytes: &Bytes,
        resolver: &Resolver<'_>,
        src: &ImageView<'_, u8>,
        results: (&mut ImageViewMut<'_, u8>, usize),
        stage: &Stage<'_>,
    ) -> Result<()> {
        let (window, width, filter) = (self.window(), src.shape().width, &bytes.taps.filter);
        let in_f64 = Rounder::by_spectra(resolver);
        let in_f32 = Rounder::in_f32(resolver, &bytes.bounds, Order::LargeSpectra);
        let share = Some(in_f32.share()).filter(|&share| share < 1.0);
        let size = (window.cols as i32, window.rows as i32);
        if Precision::of_bytes(size, width as i32, share) == Precision::Double {
            let spectra = bytes.spectra_in_f64.of(filter, width)?;
            return fourier::run(
                self.isa,
                (&window, &[]),
                &spectra,
                Some((&in_f64, None)),
                src,
                results,
                stage,
            );
        }
        let spectra = bytes.taps.spectra.of(filter, width)?;
        let again = || bytes.spectra_in_f64.like(filter, &spectra);
        let finer = Some(Finer { spectra: &again, rounder: &in_f64 });
        fourier::run(
            self.isa,
            (&window, &[]),
            &spectra,
            Some((&in_f32, finer)),
            src,
            results,
            stage,
        )
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
            let whole = &filter.of_bytes()?.whole;
            return weighted_bytes::run(isa, whole, &window, &src.typed(), &mut dst.typed(), stage);
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

impl Taps {
    fn new(filter: &Filter) -> Self {
        let factors = |(row, column): &(Vec<f64>, Vec<f64>)| Factors::new(row, column);
        Self {
            filter: filter.clone(),
            dense: OnceLock::new(),
            factors: filter.separated().map(|(row, column)| Factors::new(row, column)),
            sum: filter.sum().map(|sum| sum.terms.iter().map(factors).collect()),
            spectra: spectra::Cache::default(),
        }
    }

    /// The terms of the filter's sum, in f32.
    fn terms<'a>(&'a self, passes: fn(&'a Factors) -> Passes<'a>) -> Option<Terms<'a>> {
        let (sum, factors) = (self.filter.sum()?, self.sum.as_ref()?);
        let point = Some(sum.point as f32).filter(|&point| point != 0.0);
        Some(Terms { point, passes: factors.iter().map(passes).collect() })
    }

    /// All taps, row by row.
    fn dense(&self) -> Result<&[f32]> {
        crate::memory::once(&self.dense, || self.filter.dense_f32()).map(Vec::as_slice)
    }
}

impl Bytes {
    fn new(of_bytes: &OfBytes, window: &Window) -> Self {
        Self {
            taps: Taps::new(&of_bytes.filter),
            ways: Ways::new(of_bytes, window),
            bounds: Bounds::default(),
            smooth: Smooth::new(&of_bytes.filter, window),
            mean: Mean::new(&of_bytes.whole),
            spectra_in_f64: spectra::Cache::default(),
        }
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
    fn new(row: &[f64], column: &[f64]) -> Self {
        let whole = WholeRow::new(row, column.len());
        let lacks = whole.as_ref().map_or(0.0, |whole| lack(whole.middle, row, column));
        Self { row: rounded(row), column: rounded(column), whole, lacks }
    }

    fn passes(&self) -> Passes<'_> {
        Passes::new(&self.row, &self.column)
    }

    /// For bytes that bytes are made of.
    fn of_bytes(&self) -> Passes<'_> {
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

/// Whether 8-bit results are summed row by row. That is more work, but leaves fewer results in
/// doubt.
pub(crate) fn sums_by_rows(cols: usize, rows: usize) -> bool {
    cols >= 13 && rows > 1
}
