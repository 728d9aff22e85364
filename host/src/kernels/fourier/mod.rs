//! The Fourier family: launches `gpu-kernels/src/kernels/fourier`. The window alone decides whether
//! its tiles are those of a block's shared memory (`tiles.rs`) or larger (`large.rs`), and whether
//! bytes come from pairs of tiles or from folded ones.

mod large;
pub(super) mod size;
mod tiles;
#[cfg(feature = "gpu")]
mod tiling;

use gpu_kernels::kernels::fourier::{self as kernels, ENTRIES, Large};

use super::cost::{LAUNCH, rounded, stored};
use super::prepared::{Kernel, Prepared};
use super::uncertain::{estimates, goes_by_passes};
use crate::problem::machine::Time;
use crate::spectrum::folded::Packing;
use crate::{Scalar, Variant, spectrum};
use size::{is_large, largest, shape_of, small};

pub(super) static FOURIER: Kernel = Kernel {
    variant: Variant::Fourier,
    entries: || {
        let sizes = ENTRIES
            .iter()
            .flat_map(|tiled| [tiled.entry, tiled.stored, tiled.bytes].map(|entry| entry.name()));
        let large = [
            kernels::fourier_large_rows.name(),
            kernels::fourier_large_rows_stored.name(),
            kernels::fourier_large_rows_bytes.name(),
            kernels::fourier_large_rows_stacked.name(),
            kernels::fourier_large_columns.name(),
            kernels::fourier_large_results.name(),
            kernels::fourier_large_results_stored.name(),
            kernels::fourier_large_results_bytes.name(),
            kernels::fourier_large_results_stacked.name(),
            kernels::fourier_holes.name(),
            gpu_kernels::kernels::keep::keep_edges.name(),
        ];
        sizes.chain(large).collect()
    },
    prepare: |problem| {
        spectrum::has_room(problem.cols, problem.rows, problem.weight)?;
        let machine = problem.place.machine();
        let Some(tiled) = largest(machine) else {
            let bytes = machine.shared_memory;
            return Err(format!(
                "its tile does not fit in the {bytes} bytes of shared memory of a block"
            )
            .into());
        };
        let of_planes =
            (problem.source, problem.target, problem.side_by_side) == (Scalar::F32, Scalar::F32, 1);
        Ok(match is_large(problem, machine) {
            true => {
                let shape = shape_of(problem, Large::SIDE);
                let small = small(problem, tiled.size);
                let small = small.map(|shape| tiles::Launch { shape, tiled, entry: tiled.bytes });
                Prepared::new(Variant::Fourier, large::Launch { shape, of_planes, small })
            }
            false => {
                let shape = shape_of(problem, tiled.size);
                let entry = match shape.packing {
                    Packing::Folded => tiled.bytes,
                    _ if of_planes => tiled.entry,
                    _ => tiled.stored,
                };
                Prepared::new(Variant::Fourier, tiles::Launch { shape, tiled, entry })
            }
        })
    },
    time: |problem, machine| {
        // The first tile; and how many times as long stored pixels take: bytes made of
        // bytes, and others.
        const FIRST: Time = Time::start(25.0);
        const STORED: [f64; 2] = [1.07, 1.2];
        let each = if is_large(problem, machine) {
            large::time(problem, machine)
        } else {
            let shape = shape_of(problem, largest(machine).map_or(128, |tiled| tiled.size));
            tiles::time(shape, (problem.cols, problem.rows), machine)
        };
        let slower = stored(problem, STORED[usize::from(!problem.makes_bytes())]);
        let own = LAUNCH + FIRST + each * (problem.millions() * slower);
        rounded(Variant::Fourier, problem, own)
    },
    rule: |problem| {
        // Over equal pixels, a filter that keeps levels gives that value, which is never uncertain.
        // With other filters, all results of a flat area could be uncertain.
        let keeps_levels = problem.rounding.is_some_and(|rounding| rounding.keeps_levels);
        let by_passes = keeps_levels && goes_by_passes(problem, Variant::Separable);
        if problem.rounding.is_some() && problem.separable && !by_passes {
            return Err("row and column passes leave fewer u8 results uncertain".into());
        }
        if problem.rounding.is_some() && problem.numbers.mean.is_some() {
            return Err(
                "running sums give means in a time that hardly depends on the window".into()
            );
        }
        estimates(problem, Variant::Fourier)
    },
};
