//! A filter's taps in each place that kernels read them from: by value, in memory, as spectra. Each is made on first use.

use std::sync::OnceLock;

use gpu_kernels::abi::MAX_CONSTANT_TAPS;
use gpu_kernels::kernels::settle::PADDING;
use gpu_kernels::tile::flat::{MAX_SUM, MIN_TAP, TAP_SCALE};

use super::device::Gpu;
use super::memory::Memory;
use crate::kernels::matrix::Whole;
use crate::kernels::prepared::Taken;
use crate::kernels::separable_matrix::WholePair;
use crate::memory::once;
use crate::{Error, Filter, Result, Variant};

/// The taps of one filter on one GPU. Those by value are rounded to f32 and padded with zeros to as many as any entry takes.
#[derive(Debug)]
pub(crate) struct TapHomes {
    gpu: Gpu,
    filter: Filter,
    /// What a side and the centre weigh, if the window is a gradient's.
    weights: [f32; 2],
    dense: OnceLock<Vec<f32>>,
    pair: OnceLock<Pair>,
    flat: [OnceLock<Option<Vec<f32>>>; 3],
    dense_in_memory: OnceLock<Memory>,
    row_in_memory: OnceLock<Memory>,
    column_in_memory: OnceLock<Memory>,
    spectra: OnceLock<Memory>,
    exact: OnceLock<Memory>,
    exact_pair: OnceLock<Memory>,
    whole: OnceLock<Option<Whole>>,
    whole_pair: OnceLock<Option<WholePair>>,
    /// For 1 to 4 channels side by side, of all taps, and of a row and a column.
    bands: [OnceLock<Memory>; 4],
    pair_bands: [OnceLock<Memory>; 4],
}

/// A row and a column, by value.
#[derive(Debug)]
struct Pair {
    row: Vec<f32>,
    column: Vec<f32>,
    /// The row's taps, then the column's.
    both: Vec<f32>,
}

impl TapHomes {
    pub(super) fn new(gpu: &Gpu, filter: &Filter, weights: [f32; 2]) -> Self {
        Self {
            gpu: gpu.clone(),
            filter: filter.clone(),
            weights,
            dense: OnceLock::new(),
            pair: OnceLock::new(),
            flat: Default::default(),
            dense_in_memory: OnceLock::new(),
            row_in_memory: OnceLock::new(),
            column_in_memory: OnceLock::new(),
            spectra: OnceLock::new(),
            exact: OnceLock::new(),
            exact_pair: OnceLock::new(),
            whole: OnceLock::new(),
            whole_pair: OnceLock::new(),
            bands: Default::default(),
            pair_bands: Default::default(),
        }
    }

    /// The filter whose taps these are.
    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// All taps, row by row.
    pub(crate) fn dense(&self) -> Result<&[f32]> {
        once(&self.dense, || self.filter.dense_f32().map(padded)).map(Vec::as_slice)
    }

    /// The row's taps.
    pub(crate) fn row(&self) -> Result<&[f32]> {
        Ok(&self.pair()?.row)
    }

    /// The column's taps.
    pub(crate) fn column(&self) -> Result<&[f32]> {
        Ok(&self.pair()?.column)
    }

    /// The row's taps, then the column's.
    pub(crate) fn row_and_column(&self) -> Result<&[f32]> {
        Ok(&self.pair()?.both)
    }

    /// What a side and the centre weigh in a gradient.
    pub(crate) fn weights(&self) -> &[f32; 2] {
        &self.weights
    }

    /// The taps of a dense window, of the row and the column, or the weights, as kernels for bytes in rows as they lie in memory take them: those
    /// that meet bytes times a power of two. None if sums or taps are beyond what these kernels take.
    pub(crate) fn flat(&self, taken: Taken) -> Result<Option<&[f32]>> {
        let made = once(&self.flat[taken as usize], || {
            let (taps, scaled) = match taken {
                Taken::Window => (self.dense()?, usize::MAX),
                Taken::Pair => (self.row_and_column()?, self.filter.cols()),
                Taken::Weights => (&self.weights[..], usize::MAX),
            };
            let in_range = |tap: &f32| *tap == 0.0 || (MIN_TAP..MAX_SUM).contains(&tap.abs());
            if 255.0 * self.filter.weight() >= f64::from(MAX_SUM) || !taps.iter().all(in_range) {
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
        let memory = once(&self.dense_in_memory, || self.gpu.holding(&self.dense()?[..count], "uploading taps"))?;
        Ok(memory.pointer())
    }

    /// The address of the row's taps in the GPU's memory.
    pub(crate) fn row_in_memory(&self) -> Result<*const f32> {
        let count = self.filter.cols();
        let memory = once(&self.row_in_memory, || self.gpu.holding(&self.row()?[..count], "uploading taps"))?;
        Ok(memory.pointer())
    }

    /// The address of the column's taps in the GPU's memory.
    pub(crate) fn column_in_memory(&self) -> Result<*const f32> {
        let count = self.filter.rows();
        let memory = once(&self.column_in_memory, || self.gpu.holding(&self.column()?[..count], "uploading taps"))?;
        Ok(memory.pointer())
    }

    /// The address of all taps in f64, row by row, in the GPU's memory; behind them are [`PADDING`] zeros.
    pub(crate) fn exact_in_memory(&self) -> Result<u64> {
        let (cols, rows) = (self.filter.cols(), self.filter.rows());
        let memory = once(&self.exact, || {
            let mut taps: Vec<f64> = crate::memory::reserve(cols * rows + PADDING)?;
            let places = (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
            taps.extend(places.map(|(row, col)| self.filter.tap(row, col)));
            taps.extend([0.0; PADDING]);
            self.gpu.holding(&taps, "uploading taps")
        })?;
        Ok(memory.address())
    }

    /// The addresses of the row's and the column's taps in f64, in the GPU's memory; behind the column's are [`PADDING`] zeros.
    pub(crate) fn exact_pair_in_memory(&self) -> Result<(u64, u64)> {
        let (row, column) = self.factors()?;
        let taps = || [row, column, &[0.0; PADDING][..]].concat();
        let memory = once(&self.exact_pair, || self.gpu.holding(&taps(), "uploading taps"))?;
        Ok((memory.address(), memory.address() + 8 * row.len() as u64))
    }

    /// What the row's taps make of a row of this value, in f64, taps ascending.
    pub(crate) fn row_of(&self, value: f32) -> f64 {
        let row = self.filter.separated().map_or(&[][..], |(row, _)| row);
        row.iter().fold(0.0, |sum, &tap| sum + tap * f64::from(value))
    }

    /// The row and the column.
    fn factors(&self) -> Result<(&[f64], &[f64])> {
        self.filter.separated().ok_or_else(|| Error::Unsupported {
            variant: Variant::Separable.name(),
            reason: "the filter does not separate into a row and a column".into(),
        })
    }

    /// The address of spectra in the GPU's memory, which `make` computes on the first call. Only one kernel
    /// reads them on a GPU, so `make` is always the same.
    pub(crate) fn spectra(&self, make: impl FnOnce(&Filter) -> Result<Vec<f32>>) -> Result<*const f32> {
        let memory = once(&self.spectra, || self.gpu.holding(&make(&self.filter)?, "uploading spectra"))?;
        Ok(memory.pointer())
    }

    /// The taps as whole numbers, if they have such a form.
    pub(crate) fn whole(&self) -> Option<&Whole> {
        let make = || Whole::new(&self.filter, crate::round::reordering(&self.filter)).ok();
        self.whole.get_or_init(make).as_ref()
    }

    /// The taps as whole numbers; and, for so many channels side by side, the address of what `make` makes of them on the first call, for
    /// the window's columns and rows. Only one layout serves a number of channels, so `make` is always the same.
    pub(crate) fn bands(
        &self,
        channels: usize,
        make: impl FnOnce(&Whole, (usize, usize)) -> Vec<u32>,
    ) -> Result<(&Whole, u64)> {
        let whole = self.whole().ok_or_else(|| no_form(Variant::Matrix))?;
        let size = (self.filter.cols(), self.filter.rows());
        let memory = once(&self.bands[channels - 1], || self.gpu.holding(&make(whole, size), "uploading taps"))?;
        Ok((whole, memory.address()))
    }

    /// A row and a column as whole numbers, if they have such a form.
    pub(crate) fn whole_pair(&self) -> Option<&WholePair> {
        let make = || WholePair::new(&self.filter, crate::round::reordering(&self.filter)).ok();
        self.whole_pair.get_or_init(make).as_ref()
    }

    /// As [`TapHomes::bands`], of a row and a column.
    pub(crate) fn pair_bands(
        &self,
        channels: usize,
        make: impl FnOnce(&WholePair) -> Vec<u32>,
    ) -> Result<(&WholePair, u64)> {
        let whole = self.whole_pair().ok_or_else(|| no_form(Variant::SeparableMatrix))?;
        let memory = once(&self.pair_bands[channels - 1], || self.gpu.holding(&make(whole), "uploading taps"))?;
        Ok((whole, memory.address()))
    }

    fn pair(&self) -> Result<&Pair> {
        once(&self.pair, || {
            let (row, column) = self.factors()?;
            let narrow = |taps: &[f64]| taps.iter().map(|&tap| tap as f32).collect::<Vec<_>>();
            let (row, column) = (narrow(row), narrow(column));
            Ok(Pair { both: padded([row.clone(), column.clone()].concat()), row: padded(row), column: padded(column) })
        })
    }
}

fn no_form(variant: Variant) -> Error {
    Error::Unsupported { variant: variant.name(), reason: "its taps have no form as whole numbers".to_owned() }
}

fn padded(mut taps: Vec<f32>) -> Vec<f32> {
    taps.resize(taps.len().max(MAX_CONSTANT_TAPS), 0.0);
    taps
}
