//! A filter's taps in each form that kernels read: by value, in memory, as tables of a kernel's
//! own. Each form is made on first use.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use gpu_kernels::abi::{MAX_CONSTANT_TAPS, scalar};
use gpu_kernels::tile::flat::{MAX_SUM, MAX_TAP, MIN_TAP, MIN_TAP_OF_PAIR, TAP_SCALE};

use super::device::Gpu;
use super::memory::Memory;
use crate::kernels::taken::Taken;
use crate::memory::once;
use crate::{Error, Filter, Result, Variant, Why};

/// The taps of one filter on one GPU. Taps by value are rounded to f32 and padded with zeros to the
/// most that an entry takes.
#[derive(Debug)]
pub(crate) struct TapHomes {
    gpu: Gpu,
    /// The filter of these taps: the given one, or its view for bytes made of bytes.
    filter: Filter,
    given: Filter,
    /// The weights of a side and of the centre, for a gradient's window.
    weights: [f32; 2],
    dense: OnceLock<Vec<f32>>,
    pairs: OnceLock<Pairs>,
    /// For bytes, and for u16.
    flat: [[OnceLock<Option<Vec<f32>>>; 3]; 2],
    tables: Mutex<HashMap<(&'static str, usize), DeviceTable>>,
}

/// A table in the GPU's memory, and what its kernel knows of it.
#[derive(Debug)]
struct DeviceTable {
    memory: Memory,
    about: Box<dyn Any + Send + Sync>,
}

/// The row and the column of each term, by value.
#[derive(Debug)]
struct Pairs {
    rows: Vec<Vec<f32>>,
    columns: Vec<Vec<f32>>,
    /// The taps of all rows, tap by tap, then those of all columns.
    all: Vec<f32>,
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
            tables: Mutex::default(),
        }
    }

    /// The taps of a filter for bytes made of bytes: the whole taps over their divisor.
    pub(super) fn of_bytes(gpu: &Gpu, filter: &Filter) -> Result<Self> {
        let given = filter.clone();
        Ok(Self { given, ..Self::new(gpu, &filter.byte_filter()?.filter, [0.0; 2]) })
    }

    /// The filter of these taps.
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

    /// The taps of a term's row; a single product is term 0.
    pub(crate) fn row(&self, term: usize) -> Result<&[f32]> {
        self.pairs()?.rows.get(term).map(Vec::as_slice).ok_or_else(no_factors)
    }

    /// The taps of a term's column.
    pub(crate) fn column(&self, term: usize) -> Result<&[f32]> {
        self.pairs()?.columns.get(term).map(Vec::as_slice).ok_or_else(no_factors)
    }

    /// The taps of all terms' rows, tap by tap, then those of their columns.
    pub(crate) fn rows_and_columns(&self) -> Result<&[f32]> {
        Ok(&self.pairs()?.all)
    }

    /// The weights of a side and of the centre in a gradient.
    pub(crate) fn weights(&self) -> &[f32; 2] {
        &self.weights
    }

    /// The taps as kernels for bytes or u16 in memory order read them: taps that multiply stored
    /// values are scaled by a power of two. `None` if sums or taps are out of these kernels' range.
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
            let in_range = |tap: &f32| *tap == 0.0 || (least..MAX_TAP).contains(&tap.abs());
            if greatest * self.filter.weight() >= f64::from(MAX_SUM) || !taps.iter().all(in_range) {
                return Ok(None);
            }
            let factor = |index| if index < scaled { TAP_SCALE } else { 1.0 };
            Ok(Some(taps.iter().enumerate().map(|(index, tap)| tap * factor(index)).collect()))
        })?;
        Ok(made.as_deref())
    }

    /// A kernel's table in the GPU's memory: its address, and what `make` returns with it. `make`
    /// is called when the table is first asked for. No other table of this filter has the same name
    /// and number.
    pub(crate) fn table<N: bytemuck::NoUninit, T: Copy + Send + Sync + 'static>(
        &self,
        name: (&'static str, usize),
        make: impl FnOnce() -> Result<(Vec<N>, T)>,
    ) -> Result<(u64, T)> {
        let of = |table: &DeviceTable| Some((table.memory.address(), *table.about.downcast_ref()?));
        let tables = || self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = tables().get(&name).and_then(of) {
            return Ok(found);
        }
        let (numbers, about) = make()?;
        let memory = self.gpu.holding(&numbers, "uploading taps")?;
        // Another thread may have made the same.
        let mut tables = tables();
        let table =
            tables.entry(name).or_insert_with(|| DeviceTable { memory, about: Box::new(about) });
        Ok((table.memory.address(), about))
    }

    /// The address of all taps, row by row, in the GPU's memory.
    pub(crate) fn dense_in_memory(&self) -> Result<*const f32> {
        let count = self.filter.cols() * self.filter.rows();
        let make = || Ok((self.dense()?[..count].to_vec(), ()));
        Ok(self.table(("dense", 0), make)?.0 as *const f32)
    }

    /// The address of the taps of a term's row in the GPU's memory.
    pub(crate) fn row_in_memory(&self, term: usize) -> Result<*const f32> {
        let make = || Ok((self.row(term)?[..self.filter.cols()].to_vec(), ()));
        Ok(self.table(("row", term), make)?.0 as *const f32)
    }

    /// The address of the taps of the columns in the GPU's memory, one term's after the other's;
    /// each begins at a multiple of 16 bytes.
    pub(crate) fn columns_in_memory(&self) -> Result<*const f32> {
        let rows = self.filter.rows();
        let padding = rows.next_multiple_of(4) - rows;
        let make = || {
            let columns = self.pairs()?.columns.iter().flat_map(|column| {
                column[..rows].iter().copied().chain(std::iter::repeat_n(0.0, padding))
            });
            Ok((columns.collect(), ()))
        };
        Ok(self.table(("columns", 0), make)?.0 as *const f32)
    }

    /// The rows and columns whose products add up to the filter: at least one.
    fn products(&self) -> Result<Vec<(&[f64], &[f64])>> {
        let products = self.filter.products();
        if products.is_empty() { Err(no_factors()) } else { Ok(products) }
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

fn padded(mut taps: Vec<f32>) -> Vec<f32> {
    taps.resize(taps.len().max(MAX_CONSTANT_TAPS), 0.0);
    taps
}
