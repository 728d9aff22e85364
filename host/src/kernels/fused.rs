//! Both passes of the separable family in one kernel: launches `gpu-kernels/src/kernels/fused.rs`,
//! and for sums `gpu-kernels/src/kernels/summed.rs`.

use gpu_kernels::kernels::fused::ENTRIES;
use gpu_kernels::kernels::{flat, summed};

use super::cost::by_exact_passes;
use super::prepared::Kernel;
use super::sliding::{self, Strips, entries};
use super::taken::Taken;
use super::uncertain::estimates;
use crate::problem::machine::{Bound, Time, Times};
use crate::{Scalar, Variant};

pub(super) static FUSED: Kernel = Kernel {
    variant: Variant::SeparableFused,
    entries: || {
        let sums = summed::TWO.iter().chain(summed::POINT).map(|strip| strip.entry.name());
        entries(ENTRIES, flat::FUSED).into_iter().chain(sums).collect()
    },
    prepare: |problem| {
        let tables = match (problem.terms()?, problem.sum) {
            (1, None) => (ENTRIES, flat::FUSED),
            (1, Some(_)) => (summed::POINT, &[][..]),
            (2, Some((_, false))) => (summed::TWO, &[][..]),
            _ => {
                return Err("it has no kernel for two separable terms plus the pixel itself".into());
            }
        };
        Strips::prepare(Variant::SeparableFused, Taken::Pairs, tables, problem)
    },
    time: |problem, machine| {
        const TIMES: Times = Times(
            Bound::Floats,
            &[(6.0, 2.25), (10.0, 2.27), (34.0, 2.4), (50.0, 3.3), (66.0, 4.1), (130.0, 9.1)],
        );
        // Bytes made of bytes, uncertain results included.
        const STORED: Times = Times(
            Bound::Floats,
            &[(6.0, 0.82), (10.0, 1.05), (14.0, 1.3), (18.0, 1.7), (34.0, 4.5), (66.0, 12.0)],
        );
        // One term and the pixel; two terms.
        const POINT: Times =
            Times(Bound::Floats, &[(18.0, 2.4), (34.0, 2.7), (50.0, 3.5), (66.0, 4.1)]);
        const TWO: Times =
            Times(Bound::Floats, &[(18.0, 2.3), (34.0, 3.4), (50.0, 4.9), (66.0, 7.0)]);
        let times = match problem.sum {
            Some((1, _)) => POINT,
            Some(_) => TWO,
            _ if problem.source == Scalar::F32 => TIMES,
            _ => STORED,
        };
        let work = problem.pair_taps();
        let strips =
            || sliding::time(Variant::SeparableFused, problem, machine, &times, work, flat::FUSED);
        // Floats made of bytes take no less, whatever the size: 640x480x3 and 1920x1080.
        const LEAST: Time = Time::start(17.5);
        let time = by_exact_passes(problem).unwrap_or_else(strips);
        if problem.source == Scalar::U8 && !problem.makes_bytes() { time.or(LEAST) } else { time }
    },
    rule: |problem| estimates(problem, Variant::SeparableFused),
};
