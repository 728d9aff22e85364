//! What the costs of kernels share. Times are microseconds, from an H200 unless stated otherwise.

use super::uncertain::{exact_passes, goes_by_passes, order, resolving, share};
use crate::problem::Problem;
use crate::problem::machine::{Bound, Machine, Time};
use crate::round::Order;
use crate::{Scalar, Variant};

/// A kernel's predicted times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// By which kernels are compared: the kernel, and the launch that resolves bytes, if any. The
    /// resolving itself takes about the same time after any kernel.
    pub(crate) rank: f64,
    /// Of a whole call on pictures in the device's memory.
    pub(crate) time: Time,
}

/// The start of a kernel, until its blocks fill the device.
pub(super) const LAUNCH: Time = Time::start(4.0);

/// The start of the launch that resolves bytes.
const RESOLVE: Time = Time::start(3.0);

impl Cost {
    /// For a problem that a kernel declines: longer than any other time.
    pub(super) const DECLINED: Self = Self { rank: 1e9, time: Time::start(1e9) };

    /// For a kernel that makes only bytes of bytes: its own time includes the rounding.
    pub(super) fn of_bytes(own: Time) -> Self {
        Self { rank: own.us, time: own }
    }

    /// For any other kernel, whose own time is `own`.
    pub(super) fn of(variant: Variant, problem: &Problem, own: Time) -> Self {
        if !problem.makes_bytes() {
            return Self { rank: own.us, time: own };
        }
        let resolved = own + RESOLVE;
        let time = match problem.rounding {
            Some(_) => resolved + rounding(variant, problem),
            None => own,
        };
        Self { rank: resolved.us, time }
    }

    /// For a kernel whose measured time includes the resolving.
    pub(super) fn with_resolving(problem: &Problem, own: Time) -> Self {
        let time = if problem.makes_bytes() { own + RESOLVE } else { own };
        Self { rank: time.us, time }
    }
}

/// Exact passes in a kernel's place, if they make the product's bytes.
pub(super) fn by_exact_passes(problem: &Problem) -> Option<Time> {
    goes_by_passes(problem, Variant::Separable)
        .then(|| LAUNCH * 2.0 + exact_passes_of(problem) * problem.millions())
}

/// Exact passes, for a million results.
pub(super) fn exact_passes_of(problem: &Problem) -> Time {
    let terms = problem.sum.map_or(1, |(terms, _)| terms);
    let measured = exact_passes(terms, problem.cols, problem.rows);
    machine(problem).time(Bound::Integers, problem.bytes_of_passes(), measured)
}

fn machine(problem: &Problem) -> &Machine {
    problem.place.machine()
}

/// Resolving the results that a variant's sums leave uncertain.
fn rounding(variant: Variant, problem: &Problem) -> Time {
    /// For a tap of a single result.
    const ALONE: f64 = 0.002;
    let share = share(problem, order_of(variant, problem));
    let any = 1e6 * problem.millions() * share >= 1.0;
    let alone = if any { ALONE * problem.taps() } else { 0.0 };
    (resolving(problem, share) * problem.millions()).or(Time::start(alone))
}

fn order_of(variant: Variant, problem: &Problem) -> Order {
    order(variant, (problem.cols, problem.rows), problem.point, machine(problem))
}

/// How many times as long a kernel takes without entries for stored pixels: it reads and writes
/// them one by one.
pub(super) fn stored(problem: &Problem, slower: f64) -> f64 {
    if problem.source == Scalar::F32 { 1.0 } else { slower }
}

/// A kernel that walks down strips, with `each` for a million results of a large picture. The lower
/// the strips of a small picture, the more rows are filtered twice. A strip takes its rows one
/// after the other.
pub(super) fn in_strips(problem: &Problem, machine: &Machine, each: Time) -> Time {
    /// About the results in one row of all strips that run at a time on a multiprocessor.
    const STRIPS: f64 = 200e3 / 132.0;
    /// The rows of a strip: the least, and those in large pictures.
    const LEAST_ROWS: f64 = 7.0;
    const LARGE_ROWS: f64 = 200.0;
    /// For a row of a strip, if few strips run.
    const STRIP_ROW: f64 = 0.3;
    let at_once = STRIPS * machine.multiprocessors;
    let height = (1e6 * problem.millions() / at_once).clamp(LEAST_ROWS, LARGE_ROWS);
    let rows = |height: f64| height + problem.rows as f64 - 1.0;
    let twice = (rows(height) / height) / (rows(LARGE_ROWS) / LARGE_ROWS);
    let all = each * (problem.millions() * twice);
    LAUNCH + all.or(Time::start(STRIP_ROW * rows(height)))
}
