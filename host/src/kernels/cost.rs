//! What kernels' costs have in common. All times are microseconds, from an H200 unless a kernel
//! says otherwise.

use super::uncertain::{exact_passes, goes_by_passes, order, resolving, share};
use crate::problem::Problem;
use crate::problem::machine::Machine;
use crate::round::Order;
use crate::{Scalar, Variant};

/// A kernel's predicted times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// By which kernels are compared: of the kernel itself, and of the launch that resolves bytes,
    /// if it takes one. To round bytes takes all of them about as long besides.
    pub(crate) rank: f64,
    /// Of a whole call, with pictures in the device's memory.
    pub(crate) time: f64,
}

/// To start a kernel and to fill the device with its blocks.
pub(super) const LAUNCH: f64 = 4.0;

/// To start the launch that resolves bytes.
const RESOLVE: f64 = 3.0;

impl Cost {
    /// Of a problem that a kernel declines: longer than anything else takes.
    pub(super) const DECLINED: Self = Self { rank: 1e9, time: 1e9 };

    /// Of a kernel that makes bytes of bytes alone: its own time has the rounding in it.
    pub(super) fn of_bytes(own: f64) -> Self {
        Self { rank: own, time: own }
    }

    /// Of any other kernel, whose own time is `own`.
    pub(super) fn of(variant: Variant, problem: &Problem, own: f64) -> Self {
        if !problem.makes_bytes() {
            return Self { rank: own, time: own };
        }
        let rank = own + RESOLVE;
        if problem.rounding.is_none() {
            return Self { rank, time: own };
        }
        Self { rank, time: own + RESOLVE + rounding(variant, problem) }
    }

    /// Of a kernel whose measured time has in it what resolving takes.
    pub(super) fn with_resolving(problem: &Problem, own: f64) -> Self {
        let launch = if problem.makes_bytes() { RESOLVE } else { 0.0 };
        Self { rank: own + launch, time: own + launch }
    }
}

/// Exact passes in a kernel's place, if a GPU makes a product's bytes by them.
pub(super) fn by_exact_passes(problem: &Problem) -> Option<f64> {
    goes_by_passes(problem, Variant::Separable)
        .then(|| 2.0 * LAUNCH + problem.millions() * exact_passes_of(problem, machine(problem)))
}

/// Exact passes over a million results.
pub(super) fn exact_passes_of(problem: &Problem, machine: &Machine) -> f64 {
    let terms = problem.sum.map_or(1, |(terms, _)| terms);
    machine.slower() * exact_passes(terms, problem.cols, problem.rows)
}

fn machine(problem: &Problem) -> &Machine {
    problem.place.machine()
}

/// To resolve what a variant's sums leave uncertain.
fn rounding(variant: Variant, problem: &Problem) -> f64 {
    /// For a tap of a result that its threads take alone.
    const ALONE: f64 = 0.002;
    let share = share(problem, order_of(variant, problem));
    let any = 1e6 * problem.millions() * share >= 1.0;
    let alone = if any { ALONE * problem.taps() } else { 0.0 };
    (problem.millions() * resolving(problem, share)).max(alone)
}

fn order_of(variant: Variant, problem: &Problem) -> Order {
    order(variant, (problem.cols, problem.rows), problem.point, machine(problem))
}

/// How many times as long a kernel takes that has no entries for stored pixels, which it reads and
/// writes one by one.
pub(super) fn stored(problem: &Problem, slower: f64) -> f64 {
    if problem.source == Scalar::F32 { 1.0 } else { slower }
}

/// Kernels that walk down strips, which take so long for a million results of a large picture: the
/// lower the strips of a small one, the more of their rows are filtered twice; and a strip takes
/// its rows one after the other.
pub(super) fn in_strips(problem: &Problem, each: f64) -> f64 {
    /// Results in a row of all strips that a GPU works on at a time, about.
    const STRIPS: f64 = 200e3;
    /// The rows of a strip, of a small picture at least and of a large one.
    const LEAST_ROWS: f64 = 7.0;
    const LARGE_ROWS: f64 = 200.0;
    /// For a row of a strip, if there are few.
    const STRIP_ROW: f64 = 0.3;
    let height = (1e6 * problem.millions() / STRIPS).clamp(LEAST_ROWS, LARGE_ROWS);
    let rows = |height: f64| height + problem.rows as f64 - 1.0;
    let twice = (rows(height) / height) / (rows(LARGE_ROWS) / LARGE_ROWS);
    LAUNCH + (problem.millions() * each * twice).max(STRIP_ROW * rows(height))
}
