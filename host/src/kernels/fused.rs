//! Both passes of the separable family in one kernel: launches `gpu-kernels/src/kernels/fused.rs`.

use gpu_kernels::kernels::flat;
use gpu_kernels::kernels::fused::ENTRIES;

use super::prepared::Kernel;
use super::sliding::{Strips, entries};
use crate::plan::machine::Times;
use crate::{Scalar, Variant, Why};

pub(super) static FUSED: Kernel = Kernel {
    variant: Variant::SeparableFused,
    entries: || entries(ENTRIES, flat::FUSED),
    prepare: |problem| {
        if !problem.separable {
            return Err(Why::NOT_SEPARABLE);
        }
        Strips::prepare(Variant::SeparableFused, (ENTRIES, flat::FUSED), problem)
    },
    cost: |problem, machine| {
        const TIMES: Times = Times {
            h200: &[(6.0, 2.25), (10.0, 2.27), (34.0, 2.4), (50.0, 3.3), (66.0, 4.1), (130.0, 9.1)],
            // The pair of 130 taps was timed on an H200 alone.
            h100: &[(6.0, 3.06), (10.0, 3.08), (14.0, 3.21), (34.0, 3.36), (66.0, 4.3), (130.0, 9.1)],
        };
        // Bytes made of bytes, what is in doubt included; from an H200 alone.
        const STORED: Times = Times {
            h200: &[(10.0, 1.25), (34.0, 4.5), (66.0, 16.4), (98.0, 34.0), (130.0, 58.0)],
            h100: &[(10.0, 1.25), (34.0, 4.5), (66.0, 16.4), (98.0, 34.0), (130.0, 58.0)],
        };
        let times = if problem.source == Scalar::F32 { TIMES } else { STORED };
        times.on(machine, problem.pair_taps())
    },
};
