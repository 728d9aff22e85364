//! A filter's taps in each place that kernels read them from: by value, in memory, as spectra. Each
//! is made on first use.

use std::sync::OnceLock;

use gpu_kernels::abi::{MAX_CONSTANT_TAPS, scalar};
use gpu_kernels::kernels::fourier::holes;
use gpu_kernels::kernels::passes as exact;
use gpu_kernels::kernels::weighted::Weights;
use gpu_kernels::tile::flat::{MAX_SUM, MIN_TAP, MIN_TAP_OF_PAIR, TAP_SCALE};

use super::device::Gpu;
use super::memory::Memory;
use crate::kernels::matrix::Whole;
use crate::kernels::passes;
use crate::kernels::prepared::Taken;
use crate::kernels::resolve::Numerators;
use crate::kernels::separable_matrix::WholeTerms;
use crate::kernels::weighted;
use crate::memory::once;
use crate::{Error, Filter, Result, Variant, Why, spectrum};

/// The taps of one filter on one GPU. Those by value are rounded to f32 and padded with zeros to as
/// many as any entry takes.
#[derive(Debug)]
pub(crate) struct TapHomes {
    gpu: Gpu,
    /// The filter whose taps these are: the one that the caller gave, or what stands for it where
    /// bytes are made of bytes.
    filter: Filter,
    given: Filter,
    /// What a side and the centre weigh, if the window is a gradient's.
    weights: [f32; 2],
    dense: OnceLock<Vec<f32>>,
    pairs: OnceLock<Pairs>,
    /// For bytes, and for u16.
    flat: [[OnceLock<Option<Vec<f32>>>; 3]; 2],
    dense_in_memory: OnceLock<Memory>,
    signs: OnceLock<Memory>,
    /// For each term of a sum.
    row_in_memory: [OnceLock<Memory>; 2],
    columns_in_memory: OnceLock<Memory>,
    /// For pairs of tiles, for folded ones, for large folded ones, and for stacked ones.
    spectra: [OnceLock<(Memory, f32)>; 4],
    /// For the rows of each term, and for all columns, one by one.
    lines: [OnceLock<Memory>; 3],
    point: OnceLock<f32>,
    middle: OnceLock<f32>,
    exact: OnceLock<Memory>,
    numerators: OnceLock<(Memory, Numerators)>,
    weighted: OnceLock<(Memory, Weights)>,
    exact_bands: OnceLock<Memory>,
    whole: OnceLock<Option<Whole>>,
    whole_terms: OnceLock<Option<WholeTerms>>,
    /// For 1 to 4 channels side by side, of all taps, and of a row and a column.
    bands: [OnceLock<Memory>; 4],
    terms_bands: [OnceLock<Memory>; 4],
}

/// The row and the column of each term, by value.
#[derive(Debug)]
struct Pairs {
    rows: Vec<Vec<f32>>,
    columns: Vec<Vec<f32>>,
    /// The rows' taps in turn, then the columns'.
    all: Vec<f32>,
}

/// The spectra of a window's parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spectra {
    /// Their address, behind tables of factors.
    pub(crate) numbers: *const f32,
    /// See [`spectrum::greatest_pixel`].
    pub(crate) greatest: f32,
}

impl TapHomes {
    pub(super) fn new(gpu: &Gpu, filter: &Filter, weights: [f32; 2]) -> Self {
        Self {
            gpu: gpu.clone(),
            filter: filter.clone(),
            given: filter.clone(),
            weights,
            dense: OnceLock::new(),
            pairs: OnceLock::new(),
            flat: Default::default(),
            dense_in_memory: OnceLock::new(),
            signs: OnceLock::new(),
            row_in_memory: Default::default(),
            columns_in_memory: OnceLock::new(),
            spectra: Default::default(),
            lines: Default::default(),
            point: OnceLock::new(),
            middle: OnceLock::new(),
            exact: OnceLock::new(),
            numerators: OnceLock::new(),
            weighted: OnceLock::new(),
            exact_bands: OnceLock::new(),
            whole: OnceLock::new(),
            whole_terms: OnceLock::new(),
            bands: Default::default(),
            terms_bands: Default::default(),
        }
    }

    /// The taps of a filter for bytes made of bytes: the whole numbers that define these, over
    /// their divisor.
    pub(super) fn of_bytes(gpu: &Gpu, filter: &Filter) -> Result<Self> {
        let given = filter.clone();
        Ok(Self { given, ..Self::new(gpu, &filter.of_bytes()?.filter, [0.0; 2]) })
    }

    /// The filter whose taps these are.
    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The filter that the caller gave.
    pub(crate) fn given(&self) -> &Filter {
        &self.given
    }

    /// All taps, row by row.
    pub(crate) fn dense(&self) -> Result<&[f32]> {
        once(&self.dense, || self.filter.dense_f32().map(padded)).map(Vec::as_slice)
    }

    /// The taps of a term's row: that of the only one is number 0.
    pub(crate) fn row(&self, term: usize) -> Result<&[f32]> {
        self.pairs()?.rows.get(term).map(Vec::as_slice).ok_or_else(no_factors)
    }

    /// The taps of a term's column.
    pub(crate) fn column(&self, term: usize) -> Result<&[f32]> {
        self.pairs()?.columns.get(term).map(Vec::as_slice).ok_or_else(no_factors)
    }

    /// The taps of every term's row in turn, tap by tap, then those of the columns.
    pub(crate) fn rows_and_columns(&self) -> Result<&[f32]> {
        Ok(&self.pairs()?.all)
    }

    /// What a side and the centre weigh in a gradient.
    pub(crate) fn weights(&self) -> &[f32; 2] {
        &self.weights
    }

    /// The taps of a dense window, of the row and the column, or the weights, as kernels for bytes
    /// or u16 in rows as they lie in memory take them: those that meet stored values times a power
    /// of two. None if sums or taps are beyond what these kernels take.
    pub(crate) fn flat(&self, taken: Taken, source: u32) -> Result<Option<&[f32]>> {
        let is_u16 = source == scalar::U16;
        let made = once(&self.flat[usize::from(is_u16)][taken as usize], || {
            let (taps, scaled) = match taken {
                Taken::Window => (self.dense()?, usize::MAX),
                Taken::Pairs => (self.rows_and_columns()?, self.filter.cols()),
                Taken::Weights => (&self.weights[..], usize::MAX),
            };
            let least = if is_u16 && scaled != usize::MAX { MIN_TAP_OF_PAIR } else { MIN_TAP };
            let greatest = if is_u16 { f64::from(u16::MAX) } else { f64::from(u8::MAX) };
            let in_range = |tap: &f32| *tap == 0.0 || (least..MAX_SUM).contains(&tap.abs());
            if greatest * self.filter.weight() >= f64::from(MAX_SUM) || !taps.iter().all(in_range) {
                return Ok(None);
            }
            let factor = |index| if index < scaled { TAP_SCALE } else { 1.0 };
            Ok(Some(taps.iter().enumerate().map(|(index, tap)| tap * factor(index)).collect()))
        })?;
        Ok(made.as_deref())
    }

    /// The address of all taps, row by row, in the GPU's memory.
    pub(crate) fn dense_in_memory(&self) -> Result<*const f32> {
        let count = self.filter.cols() * self.filter.rows();
        let memory = once(&self.dense_in_memory, || {
            self.gpu.holding(&self.dense()?[..count], "uploading taps")
        })?;
        Ok(memory.pointer())
    }

    /// The address of a bit for each tap above 0, and one for each below, row by row: words of the
    /// former, then as many of the latter.
    pub(crate) fn signs_in_memory(&self) -> Result<u64> {
        let memory = once(&self.signs, || {
            let (cols, rows) = (self.filter.cols(), self.filter.rows());
            let words = holes::words(cols as i32) as usize;
            let mut signs = crate::memory::zeroed::<u32>(2 * words * rows)?;
            for (taps, signs) in
                self.dense()?.chunks_exact(cols).zip(signs.chunks_exact_mut(2 * words))
            {
                for (at, &tap) in taps.iter().enumerate() {
                    signs[at / 32] |= u32::from(tap > 0.0) << (at % 32);
                    signs[words + at / 32] |= u32::from(tap < 0.0) << (at % 32);
                }
            }
            self.gpu.holding(&signs, "uploading taps")
        })?;
        Ok(memory.address())
    }

    /// The address of the taps of a term's row in the GPU's memory.
    pub(crate) fn row_in_memory(&self, term: usize) -> Result<*const f32> {
        let taps = &self.row(term)?[..self.filter.cols()];
        let memory = once(&self.row_in_memory[term], || self.gpu.holding(taps, "uploading taps"))?;
        Ok(memory.pointer())
    }

    /// The address of the taps of the columns in the GPU's memory, one term's after the other's.
    pub(crate) fn columns_in_memory(&self) -> Result<*const f32> {
        let memory = once(&self.columns_in_memory, || {
            let columns =
                self.pairs()?.columns.iter().flat_map(|column| &column[..self.filter.rows()]);
            self.gpu.holding(&columns.copied().collect::<Vec<_>>(), "uploading taps")
        })?;
        Ok(memory.pointer())
    }

    /// The address of all taps in f64, row by row, in the GPU's memory.
    pub(crate) fn exact_in_memory(&self) -> Result<u64> {
        let (cols, rows) = (self.filter.cols(), self.filter.rows());
        let memory = once(&self.exact, || {
            let mut taps: Vec<f64> = crate::memory::reserve(cols * rows)?;
            taps.extend(
                (0..rows).flat_map(|row| (0..cols).map(move |col| self.filter.tap(row, col))),
            );
            self.gpu.holding(&taps, "uploading taps")
        })?;
        Ok(memory.address())
    }

    /// The whole numbers that define bytes, in the GPU's memory.
    pub(crate) fn numerators(&self) -> Result<Numerators> {
        let size = (self.filter.cols(), self.filter.rows());
        let (_, numerators) = once(&self.numerators, || {
            let (words, numerators) = Numerators::new(&self.given.of_bytes()?.whole, size)?;
            let memory = self.gpu.holding(&words, "uploading taps")?;
            let numerators = numerators.at(memory.address());
            Ok((memory, numerators))
        })?;
        Ok(*numerators)
    }

    /// The same for colours weighted by alpha.
    pub(crate) fn weighted(&self) -> Result<Weights> {
        let size = (self.filter.cols(), self.filter.rows());
        let (_, weights) = once(&self.weighted, || {
            let whole = &self.given.of_bytes()?.whole;
            let memory = self.gpu.holding(&weighted::numbers(whole, size)?, "uploading taps")?;
            let weights = weighted::weights(memory.address(), whole, size);
            Ok((memory, weights))
        })?;
        Ok(*weights)
    }

    /// For each term of a product that defines bytes: the addresses of its row's band and of its
    /// column's, in the GPU's memory.
    pub(crate) fn exact_bands_in_memory(&self) -> Result<Vec<(u64, u64)>> {
        let memory = once(&self.exact_bands, || {
            self.gpu.holding(&passes::bands(&self.given)?, "uploading taps")
        })?;
        let bytes = |taps: usize| exact::band_bytes(taps as i32);
        let (row, column) = (bytes(self.filter.cols()), bytes(self.filter.rows()));
        let starts = (0..2).map(|term| memory.address() + term * (row + column));
        Ok(starts.map(|start| (start, start + row)).collect())
    }

    /// The rows and columns whose products the filter is, or is the sum of: one at least.
    fn products(&self) -> Result<Vec<(&[f64], &[f64])>> {
        let products = self.filter.products();
        if products.is_empty() { Err(no_factors()) } else { Ok(products) }
    }

    /// The pixel's own tap, if spectra for bytes leave it out; else 0.
    pub(crate) fn point(&self) -> f32 {
        *self.point.get_or_init(|| crate::kernels::fourier::point(&self.filter))
    }

    /// What the others make of pixels in the middle of all bytes.
    pub(crate) fn middle(&self) -> f32 {
        *self.middle.get_or_init(|| crate::kernels::fourier::middle(&self.filter, self.point()))
    }

    /// Spectra in the GPU's memory, which `make` computes on the first call: for tiles of each
    /// kind, by number. On a GPU each of them has one size, so `make` is always the same.
    pub(crate) fn spectra(
        &self,
        kind: usize,
        make: impl FnOnce(&Filter) -> Result<Vec<f32>>,
    ) -> Result<Spectra> {
        let filter = &self.filter;
        let (memory, greatest) = once(&self.spectra[kind], || {
            let memory = self.gpu.holding(&make(filter)?, "uploading spectra")?;
            Ok((memory, spectrum::greatest_pixel(filter.weight())))
        })?;
        Ok(Spectra { numbers: memory.pointer(), greatest: *greatest })
    }

    /// Factors and spectra for a pass along lines in the GPU's memory, which `make` computes on the
    /// first call: of a term's rows (0 or 1) or of all columns (2). A filter has one size of lines
    /// each, so `make` is always the same.
    pub(crate) fn lines(
        &self,
        pass: usize,
        make: impl FnOnce() -> Result<Vec<f32>>,
    ) -> Result<*const f32> {
        let memory = once(&self.lines[pass], || self.gpu.holding(&make()?, "uploading spectra"))?;
        Ok(memory.pointer())
    }

    /// The taps as whole numbers, if they have such a form.
    pub(crate) fn whole(&self) -> Option<&Whole> {
        let make = || Whole::new(&self.filter).ok();
        self.whole.get_or_init(make).as_ref()
    }

    /// The taps as whole numbers; and, for so many channels side by side, the address of what
    /// `make` makes of them on the first call, for the window's columns and rows. Only one layout
    /// serves a number of channels, so `make` is always the same.
    pub(crate) fn bands(
        &self,
        channels: usize,
        make: impl FnOnce(&Whole, (usize, usize)) -> Vec<u32>,
    ) -> Result<(&Whole, u64)> {
        let whole = self.whole().ok_or_else(|| no_form(Variant::Matrix))?;
        let size = (self.filter.cols(), self.filter.rows());
        let memory = once(&self.bands[channels - 1], || {
            self.gpu.holding(&make(whole, size), "uploading taps")
        })?;
        Ok((whole, memory.address()))
    }

    /// Products of a row and a column as whole numbers, if they have such a form.
    pub(crate) fn whole_terms(&self) -> Option<&WholeTerms> {
        let make = || WholeTerms::new(&self.filter).ok();
        self.whole_terms.get_or_init(make).as_ref()
    }

    /// As [`TapHomes::bands`], of products of a row and a column.
    pub(crate) fn terms_bands(
        &self,
        channels: usize,
        make: impl FnOnce(&WholeTerms) -> Vec<u32>,
    ) -> Result<(&WholeTerms, u64)> {
        let whole = self.whole_terms().ok_or_else(|| no_form(Variant::SeparableMatrix))?;
        let memory = once(&self.terms_bands[channels - 1], || {
            self.gpu.holding(&make(whole), "uploading taps")
        })?;
        Ok((whole, memory.address()))
    }

    fn pairs(&self) -> Result<&Pairs> {
        once(&self.pairs, || {
            let narrow = |taps: &[f64]| taps.iter().map(|&tap| tap as f32).collect::<Vec<_>>();
            let terms = self.products()?;
            let (rows, columns): (Vec<_>, Vec<_>) =
                terms.into_iter().map(|(row, column)| (narrow(row), narrow(column))).unzip();
            let in_turn = |lines: &[Vec<f32>], len: usize| -> Vec<f32> {
                (0..len).flat_map(|tap| lines.iter().map(move |line| line[tap])).collect()
            };
            let all = [in_turn(&rows, self.filter.cols()), in_turn(&columns, self.filter.rows())]
                .concat();
            let padded_each = |taps: Vec<Vec<f32>>| taps.into_iter().map(padded).collect();
            Ok(Pairs { rows: padded_each(rows), columns: padded_each(columns), all: padded(all) })
        })
    }
}

fn no_factors() -> Error {
    let reason = Why::NOT_SEPARABLE.to_string();
    Error::Unsupported { variant: Variant::Separable.name(), reason }
}

fn no_form(variant: Variant) -> Error {
    Error::Unsupported {
        variant: variant.name(),
        reason: "its taps have no form as whole numbers".to_owned(),
    }
}

fn padded(mut taps: Vec<f32>) -> Vec<f32> {
    taps.resize(taps.len().max(MAX_CONSTANT_TAPS), 0.0);
    taps
}
