//! What the predicted times of kernels share. Numbers are microseconds, measured on an H200.

use super::uncertain::{exact_passes, goes_by_passes, order, resolving, share};
use crate::problem::Problem;
use crate::problem::machine::{Bound, Machine, Time};
use crate::{Scalar, Variant};

/// The start of a kernel, until its blocks fill the device.
pub(super) const LAUNCH: Time = Time::start(4.0);

/// The time of a problem that a kernel declines: longer than any other.
pub(super) const DECLINED: Time = Time::start(1e9);

/// The launches that resolve bytes, if such a share of them is uncertain, without the time of each
/// result.
pub(super) fn resolving_launches(problem: &Problem, share: f64) -> Time {
    /// Launches that find none: Gaussians of sigma 2 to 20, of 64x64 to 2048x2048 u8.
    const NONE: f64 = 3.0;
    if share == 0.0 {
        return Time::NONE;
    }
    let some = (1e6 * problem.millions() * share).min(1.0);
    Time::start(NONE) + resolving_one(problem) * some
}

/// Resolving one result. Threads share the taps of a large window: Gaussians of sigma 2 to 100,
/// means of 401x401, random taps of 301x301.
pub(super) fn resolving_one(problem: &Problem) -> Time {
    const START: f64 = 5.0;
    const TAP: f64 = 0.003;
    const SIDE: f64 = 0.25;
    Time::start(START + (TAP * problem.taps()).min(SIDE * problem.taps().sqrt()))
}

/// A kernel's time where its measured time `own` includes the resolving of each byte.
pub(super) fn resolved(variant: Variant, problem: &Problem, own: Time) -> Time {
    own + resolving_launches(problem, share_of(variant, problem))
}

/// A kernel's time where it takes `own` without the rounding of bytes.
pub(super) fn rounded(variant: Variant, problem: &Problem, own: Time) -> Time {
    let share = share_of(variant, problem);
    own + resolving(problem, share) * problem.millions() + resolving_launches(problem, share)
}

/// The share of bytes that a variant's sums leave uncertain. The mean of an odd number of pixels is
/// never near a half, so next to none is uncertain.
fn share_of(variant: Variant, problem: &Problem) -> f64 {
    let window = (problem.cols, problem.rows);
    let share = share(problem, order(variant, window, problem.point, machine(problem)));
    match problem.numbers.mean {
        Some(divisor) if divisor % 2 == 1 && share * f64::from(divisor) < 1.0 => share.min(1e-12),
        _ => share,
    }
}

/// Exact passes in a kernel's place, if they make the product's bytes.
pub(super) fn by_exact_passes(problem: &Problem) -> Option<Time> {
    goes_by_passes(problem, Variant::Separable).then(|| all_by_exact_passes(problem))
}

/// Exact passes over all results.
pub(super) fn all_by_exact_passes(problem: &Problem) -> Time {
    LAUNCH * 2.0 + exact_passes_of(problem) * problem.millions()
}

/// Exact passes, for a million results.
pub(super) fn exact_passes_of(problem: &Problem) -> Time {
    let terms = problem.sum.map_or(1, |(terms, _)| terms);
    let measured = exact_passes(terms, problem.cols, problem.rows);
    machine(problem).time(Bound::Tensor, problem.bytes_of_passes(), measured)
}

fn machine(problem: &Problem) -> &Machine {
    problem.place.machine()
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
    const STRIP_ROW: f64 = 0.15;
    let at_once = STRIPS * machine.multiprocessors;
    let height = (1e6 * problem.millions() / at_once).clamp(LEAST_ROWS, LARGE_ROWS);
    let rows = |height: f64| height + problem.rows as f64 - 1.0;
    let twice = (rows(height) / height) / (rows(LARGE_ROWS) / LARGE_ROWS);
    let all = each * (problem.millions() * twice);
    LAUNCH + all.or(Time::start(STRIP_ROW * rows(height)))
}
