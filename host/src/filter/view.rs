//! A filter's integer taps as a filter in f64.

use super::factor::{Factors, RowAndColumn};
use super::whole::{Divisor, Whole, WholeTaps};
use super::{Filter, Sum, Taps};

impl Whole {
    /// The filter whose f64 taps are the integer taps over their divisor. For a power of two the
    /// taps are exact, for a mean they are correctly rounded. Cost and error estimates use this
    /// filter.
    pub(super) fn view(&self, filter: &Filter) -> Filter {
        let mut view = filter.clone();
        view.forget_facts();
        let (cols, middle) = (view.cols, view.rows / 2 * view.cols + view.cols / 2);
        match (&self.taps, &mut view.taps) {
            (WholeTaps::Table(numerators), Taps::Dense { taps, .. }) => {
                taps.iter_mut()
                    .zip(numerators)
                    .for_each(|(tap, &numerator)| *tap = self.divisor.quotient(numerator));
            }
            (WholeTaps::Table(_), Taps::Product(_)) => {}
            (WholeTaps::Products { terms, point, divisors }, taps) => {
                let over = |taps: &[i64], divisor: Divisor| {
                    taps.iter().map(|&tap| divisor.quotient(tap)).collect()
                };
                let mut pairs: Vec<RowAndColumn> = terms
                    .iter()
                    .map(|(row, column)| (over(row, divisors.0), over(column, divisors.1)))
                    .collect();
                match taps {
                    Taps::Product(factors) => {
                        let (row, column) = pairs.swap_remove(0);
                        *factors = Factors { row, column };
                    }
                    Taps::Dense { taps, .. } => {
                        for (at, tap) in taps.iter_mut().enumerate() {
                            let product = |(row, column): &(Vec<i64>, Vec<i64>)| {
                                i128::from(row[at % cols]) * i128::from(column[at / cols])
                            };
                            let start = if at == middle { *point } else { 0 };
                            *tap =
                                self.divisor.over(start + terms.iter().map(product).sum::<i128>());
                        }
                        let point = self.divisor.over(*point);
                        view.sum = Some(Sum { point, terms: pairs, is_given: true });
                    }
                }
            }
        }
        view
    }
}
