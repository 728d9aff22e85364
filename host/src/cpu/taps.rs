//! A filter's taps as the CPU engine reads them, each form made once.

use std::sync::OnceLock;

use super::boxes::mean::Mean;
use super::forms::Forms;
use super::frame::{Passes, Terms};
use super::smooth::numbers::Smooth;
use super::spectra;
use crate::filter::ByteFilter;
use crate::whole::row::{WholeRow, lack};
use crate::window::Window;
use crate::{Family, Filter, Result, Variant};

/// A filter's taps in f32, and their spectra.
#[derive(Debug)]
pub(super) struct Taps {
    pub(super) filter: Filter,
    dense: OnceLock<Vec<f32>>,
    pub(super) factors: Option<Factors>,
    /// The terms of the filter's sum, where it has one.
    sum: Option<Vec<Factors>>,
    pub(super) spectra: spectra::Cache<f32>,
}

/// What makes bytes of bytes.
#[derive(Debug)]
pub(super) struct Bytes {
    /// Of the filter's view in f64 ([`ByteFilter`]).
    pub(super) taps: Taps,
    pub(super) forms: Forms,
    pub(super) smooth: Option<Smooth>,
    pub(super) mean: Option<Mean>,
    pub(super) spectra_in_f64: spectra::Cache<f64>,
}

impl Taps {
    pub(super) fn new(filter: &Filter) -> Self {
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
    pub(super) fn terms<'a>(&'a self, passes: fn(&'a Factors) -> Passes<'a>) -> Option<Terms<'a>> {
        let (sum, factors) = (self.filter.sum()?, self.sum.as_ref()?);
        let point = Some(sum.point as f32).filter(|&point| point != 0.0);
        Some(Terms { point, passes: factors.iter().map(passes).collect() })
    }

    /// The filter as a family sums it in the picture, and the variant that stands for it. 1-D
    /// spectra are for GPUs: here passes are faster, and their errors are smaller.
    pub(super) fn ordered(&self, family: Family) -> Result<(Variant, Terms<'_>)> {
        let passes = || match &self.factors {
            Some(factors) => Some(factors.passes().into()),
            None => self.terms(Factors::passes),
        };
        let (variant, terms) = match family {
            Family::Separable => (Variant::Separable, passes()),
            Family::SpectraPasses => (Variant::SpectraPasses, passes()),
            Family::Direct | Family::Fourier => (Variant::DirectNaive, None),
        };
        Ok(match terms {
            Some(terms) => (variant, terms),
            None => (Variant::DirectNaive, Passes::dense(self.dense()?).into()),
        })
    }

    /// All taps, row by row.
    pub(super) fn dense(&self) -> Result<&[f32]> {
        crate::memory::once(&self.dense, || self.filter.dense_f32()).map(Vec::as_slice)
    }
}

impl Bytes {
    pub(super) fn new(byte_filter: &ByteFilter, window: &Window) -> Self {
        Self {
            taps: Taps::new(&byte_filter.filter),
            forms: Forms::new(byte_filter, window),
            smooth: Smooth::new(&byte_filter.filter, window),
            mean: Mean::new(&byte_filter.whole),
            spectra_in_f64: spectra::Cache::default(),
        }
    }
}

/// The factors of a filter that separates, in f32.
#[derive(Debug)]
pub(super) struct Factors {
    row: Vec<f32>,
    column: Vec<f32>,
    /// The row in whole numbers.
    whole: Option<WholeRow>,
    /// What its results lack.
    lacks: f64,
}

impl Factors {
    pub(super) fn new(row: &[f64], column: &[f64]) -> Self {
        let whole = WholeRow::new(row, column.len());
        let lacks = whole.as_ref().map_or(0.0, |whole| lack(whole.middle, row, column));
        Self { row: rounded(row), column: rounded(column), whole, lacks }
    }

    pub(super) fn passes(&self) -> Passes<'_> {
        Passes::new(&self.row, &self.column)
    }

    /// For bytes that bytes are made of.
    pub(super) fn of_bytes(&self) -> Passes<'_> {
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
