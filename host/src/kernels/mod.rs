//! apron's kernels: for each variant, which problems it takes, its predicted time, and its launch. There is one file for each
//! kernel file in `gpu-kernels/src/kernels`, with the same name.

mod direct;
mod fourier;
mod fused;
#[cfg(feature = "gpu")]
mod keep;
pub(crate) mod prepared;
mod separable;
mod sliding;

use prepared::Kernel;

use crate::Variant;

/// Every variant's kernel. Each direct kernel improves on the one before it.
pub(crate) static KERNELS: [&Kernel; 8] = [
    &direct::NAIVE,
    &direct::CONSTANT,
    &direct::SHARED,
    &direct::UNROLLED,
    &sliding::SLIDING,
    &separable::SEPARABLE,
    &fused::FUSED,
    &fourier::FOURIER,
];

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

    #[test]
    fn every_variant_has_one_kernel() {
        for variant in Variant::all() {
            assert_eq!(KERNELS.iter().filter(|kernel| kernel.variant == variant).count(), 1, "{variant}");
        }
        assert_eq!(Variant::all().count(), KERNELS.len());
    }
}
