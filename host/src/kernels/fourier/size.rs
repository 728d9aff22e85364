//! Which tiles a window has: a function of the window, the types and the machine.

use gpu_kernels::kernels::fourier::{ENTRIES, Large, Tiled};

use crate::problem::Problem;
use crate::problem::machine::Machine;
use crate::round::Order;
use crate::spectrum::folded::{Packing, TileShape, greatest_side};

/// The entry for a machine, with the largest tile that fits: larger tiles lose a smaller share to
/// wrap-around.
pub(super) fn largest(machine: &Machine) -> Option<&'static Tiled> {
    ENTRIES.iter().find(|tiled| tiled.shared as usize <= machine.shared_memory)
}

/// Tiles of `size` for columns that do not fill a large folded tile: folded ones, if no tap is left
/// out of the spectra.
pub(super) fn small(problem: &Problem, size: i32) -> Option<TileShape> {
    Some(shape_of(problem, size)).filter(|shape| shape.packing == Packing::Folded && !problem.point)
}

/// Whether a window's tiles are large. The picture's size has no part in it, so that it does not
/// decide bits. Without room for tiles of 128, folding does not avoid large tiles.
pub(super) fn is_large(problem: &Problem, machine: &Machine) -> bool {
    are_large((problem.cols, problem.rows), problem.makes_bytes(), machine)
}

/// The same for so many columns and rows of taps, to make bytes of bytes, or any other results.
pub(super) fn are_large(taps: (usize, usize), bytes: bool, machine: &Machine) -> bool {
    let folds = bytes && largest(machine).is_some_and(|tiled| tiled.size == 128);
    has_large(machine) && greatest_side(taps, folds) == Large::SIDE
}

/// Whether a GPU has room for large tiles.
pub(super) fn has_large(machine: &Machine) -> bool {
    machine.shared_memory >= Large::COLUMN_SHARED as usize
}

/// Tiles for a problem.
pub(super) fn shape_of(problem: &Problem, size: i32) -> TileShape {
    TileShape::new((problem.cols, problem.rows), size, problem.makes_bytes())
}

/// The order that bounds the error of a GPU's sums over bytes, for a window of so many columns and
/// rows. If large tiles would leave the anchor's tap out but have no room, the bound of the largest
/// tiles with this tap.
pub(in crate::kernels) fn order(
    taps: (usize, usize),
    leaves_point_out: bool,
    machine: &Machine,
) -> Order {
    let size = largest(machine).map_or(0, |tiled| tiled.size);
    match TileShape::new(
        taps,
        if are_large(taps, true, machine) { Large::SIDE } else { size },
        true,
    )
    .packing
    {
        _ if leaves_point_out && !has_large(machine) => Order::LargeSpectra,
        Packing::Folded => Order::FoldedSpectra,
        _ => Order::Spectra,
    }
}
