//! apron's kernels: for each variant, which problems it takes, its predicted time, and its launch.
//! There is one file for each kernel file in `gpu-kernels/src/kernels`, with the same name.

pub(crate) mod cost;
mod direct;
pub(crate) mod fourier;
mod fused;
#[cfg(feature = "gpu")]
pub(crate) mod gradient;
#[cfg(feature = "gpu")]
pub(crate) mod keep;
#[cfg(feature = "gpu")]
pub(crate) mod known;
#[cfg(feature = "gpu")]
pub(crate) mod light;
pub(crate) mod lines;
pub(crate) mod matrix;
#[cfg(feature = "gpu")]
pub(crate) mod passes;
#[cfg(feature = "gpu")]
mod planes;
pub(crate) mod prepared;
#[cfg(feature = "gpu")]
pub(crate) mod resolve;
pub(crate) mod running_sums;
mod separable;
pub(crate) mod separable_matrix;
mod separable_tile;
pub(crate) mod sliding;
pub(crate) mod strip;
pub(crate) mod taken;
pub(crate) mod uncertain;
#[cfg(feature = "gpu")]
pub(crate) mod weighted;

use prepared::Kernel;

use crate::filter::Fact;
use crate::problem::Numbers;
use crate::whole::{products::ProductDigits, window::WindowDigits};
use crate::{Filter, Variant};

/// Every variant's kernel. Each direct kernel improves on the one before it.
pub(crate) static KERNELS: [&Kernel; 13] = [
    &direct::NAIVE,
    &direct::CONSTANT,
    &direct::SHARED,
    &direct::UNROLLED,
    &sliding::SLIDING,
    &separable::SEPARABLE,
    &separable_tile::TILES,
    &fused::FUSED,
    &fourier::FOURIER,
    &matrix::MATRIX,
    &separable_matrix::SEPARABLE_MATRIX,
    &running_sums::RUNNING_SUMS,
    &lines::SPECTRA_PASSES,
];

impl Fact for Numbers {
    /// For the filter that a caller gave.
    fn of(filter: &Filter) -> Self {
        // Without memory for the view, whoever runs the plan says so.
        let view = filter.byte_filter().map_or(filter, |bytes| &bytes.filter);
        let window = view.fact::<Option<WindowDigits>>();
        let terms = view.fact::<Option<ProductDigits>>();
        Self {
            window: window.as_ref().as_ref().map(WindowDigits::digits),
            terms: terms.as_ref().as_ref().map(ProductDigits::share),
            mean: running_sums::mean(filter),
            few: uncertain::few(filter),
            lines: lines::error(filter),
        }
    }
}

/// The kernel of a variant.
pub(crate) fn kernel(variant: Variant) -> &'static Kernel {
    KERNELS
        .iter()
        .find(|kernel| kernel.variant == variant)
        .expect("every variant has a kernel: a test holds the table to it")
}

impl Variant {
    /// The PTX entries that this variant may launch.
    pub fn entries(self) -> impl Iterator<Item = &'static str> {
        (kernel(self).entries)().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Border;
    use crate::problem::machine::Machine;
    use crate::problem::{Place, Problem};

    #[test]
    fn every_variant_has_one_kernel() {
        for variant in Variant::all() {
            assert_eq!(
                KERNELS.iter().filter(|kernel| kernel.variant == variant).count(),
                1,
                "{variant}"
            );
        }
        assert_eq!(Variant::all().count(), KERNELS.len());
    }

    #[test]
    fn what_a_kernel_cannot_take_it_declines_with_the_value_and_the_limit() {
        let problem = Problem {
            width: 100,
            height: 100,
            planes: 1,
            cols: 32,
            rows: 32,
            anchor_x: 16,
            border: Border::Replicate,
            weight: 1.0,
            point: false,
            separable: false,
            has_lines: false,
            accuracy: None,
            numbers: Numbers::default(),
            source: crate::Scalar::F32,
            target: crate::Scalar::F32,
            side_by_side: 1,
            source_is_aligned: true,
            sum: None,
            rounding: None,
            place: Place::Gpu(Machine::H200),
        };
        let why =
            |variant| (kernel(variant).prepare)(&problem).map(|_| ()).unwrap_err().to_string();
        let constant = why(Variant::DirectConstant);
        assert!(constant.contains("1024 taps") && constant.contains("961"), "{constant}");
        let separable = why(Variant::Separable);
        assert!(separable.contains("not separable"), "{separable}");
        assert!((kernel(Variant::DirectNaive).prepare)(&problem).is_ok());
    }
}
