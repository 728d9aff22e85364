//! How long the CPU engine takes, by what it does: see `host/src/cpu/mod.rs`.
//!
//! The times are those of one thread on a core with AVX-512 (Emerald Rapids), the least of several
//! calls, from `cargo xtask bench plan`. Threads share the work as far as there are jobs, and the
//! memory: `host/src/threads.rs` says how.

use super::machine::{Curve, interpolated};
use super::problem::{Place, Problem};
use super::{Channels, Plan};
use crate::cpu::{self, Resolving, Way};
use crate::image::Shape;
use crate::round::Order;
use crate::spectrum::{Precision, Tile};
use crate::threads::Effort;
use crate::{Family, Scalar, spectrum};

/// Nanoseconds for a result in the direct order, by the taps.
const DENSE: Curve = &[
    (9.0, 0.345),
    (25.0, 0.575),
    (49.0, 0.87),
    (81.0, 1.24),
    (169.0, 2.3),
    (289.0, 3.73),
    (529.0, 6.8),
    (961.0, 12.0),
];

/// Nanoseconds for a result in the direct order, in f32.
pub(crate) fn direct(taps: usize) -> f64 {
    interpolated(DENSE, taps as f64)
}

/// The same for a row pass and a column pass, by the taps of both.
const PASSES: Curve = &[
    (10.0, 0.57),
    (18.0, 0.69),
    (34.0, 0.95),
    (66.0, 1.6),
    (130.0, 3.1),
    (258.0, 6.06),
    (1602.0, 42.0),
];

/// The part of [`PASSES`] that is the row pass.
const ACROSS: f64 = 0.6;

/// How much faster it is over bytes that become bytes, in whole numbers.
const WHOLE: f64 = 0.62;

/// Nanoseconds for a result of equal taps that are counted, with one channel and with several, and
/// for a value beyond a row's ends.
const COUNTED: [f64; 2] = [0.72, 0.52];
const BESIDE: f64 = 2.0;

/// The same for a mean of a few pixels: for any, for a column of the window, and for ties, if 16
/// bits do not decide them.
const MEAN: f64 = 0.13;
const MEAN_COLUMN: f64 = 0.011;
const TIES: f64 = 0.3;

/// Nanoseconds for a result of three and of five symmetric taps each way that are summed up in 16
/// bits.
const SMOOTH: [f64; 2] = [0.22, 0.43];

/// Nanoseconds for the pixel's own term of a sum.
const POINT: f64 = 0.14;

/// How many times as long as other direct sums those weighted by alpha take, about.
const WEIGHTED: f64 = 3.0;

/// Nanoseconds for a row, and for a call.
const ROW: f64 = 60.0;
const CALL: f64 = 1500.0;

/// Bytes of pixels and results from which no cache holds them.
const CACHED: f64 = 16e6;

/// What a call has to do.
struct Work {
    /// In how much time on one thread.
    nanoseconds: f64,
    /// How many parts of it there are for threads.
    jobs: usize,
}

/// Microseconds for a problem in a family's order where so many threads are available.
pub(super) fn time(problem: &Problem, family: Family, available: usize) -> f64 {
    let threads = effort(problem, family).threads(available);
    let Work { nanoseconds, jobs } = work(problem, family, threads);
    let used = threads.min(jobs).max(1);
    // The work ends with the thread that has most jobs.
    let uneven = (jobs.div_ceil(used) * used) as f64 / jobs.max(1) as f64;
    (CALL + Effort { nanoseconds: nanoseconds * uneven, bytes: moved(problem) }.time(used)) / 1e3
}

/// What a problem in a family's order takes, from which the number of its threads follows.
fn effort(problem: &Problem, family: Family) -> Effort {
    Effort { nanoseconds: work(problem, family, 1).nanoseconds, bytes: moved(problem) }
}

impl Plan {
    /// What a picture takes on the CPU.
    pub(super) fn effort(
        &self,
        family: Family,
        channels: Channels,
        shape: Shape,
        kinds: (Scalar, Scalar),
    ) -> Effort {
        let (filtered, times) = match channels {
            Channels::First(filtered) => (filtered, 1.0),
            Channels::Weighted => (shape.channels, WEIGHTED),
        };
        let problem = self.problem_for(shape, filtered, kinds, Place::Cpu { threads: 1 });
        let effort = effort(&problem, family);
        Effort { nanoseconds: times * effort.nanoseconds, ..effort }
    }
}

/// Bytes that pass through memory: a picture that no cache holds is copied, as it were.
fn moved(problem: &Problem) -> f64 {
    let bytes = results(problem) * (problem.source.bytes() + problem.target.bytes()) as f64;
    if bytes > CACHED { 0.5 * bytes } else { 0.0 }
}

fn work(problem: &Problem, family: Family, threads: usize) -> Work {
    let Problem { height, cols, rows, .. } = *problem;
    let results = results(problem);
    let way = problem.way(family);
    if let Some(Way::Smooth(reach)) = way {
        let jobs = height.div_ceil(cpu::band(height, 2 * reach + 1, 1, threads));
        let nanoseconds = results * SMOOTH[usize::from(reach > 1)] + ROW * height as f64;
        return Work { nanoseconds, jobs };
    }
    if let Some(Way::Counted { few }) = way {
        let jobs = height.div_ceil(cpu::band(height, rows, 1, threads));
        let taps = cols * rows;
        let ties = if taps % 2 == 0 && !taps.is_power_of_two() { TIES } else { 0.0 };
        let of_mean = MEAN + MEAN_COLUMN * cols as f64 + ties;
        let each = if few { of_mean } else { COUNTED[usize::from(problem.planes > 1)] };
        let again = 0.3 * (jobs * rows) as f64 / height as f64;
        let beside = BESIDE * (cols * problem.planes * height) as f64;
        return Work { nanoseconds: results * each * (1.0 + again) + beside, jobs };
    }
    if let Some((terms, point)) =
        problem.sum.filter(|_| way == Some(Way::Terms) || family == Family::Separable)
    {
        let (once, jobs) = passes(problem, threads);
        let doubts = doubts(problem, Order::Terms, terms as f64 * problem.pair_taps(), terms);
        let point = if point { POINT } else { 0.0 };
        return Work {
            nanoseconds: terms as f64 * once + results * (doubts + point + conversion(problem)),
            jobs,
        };
    }
    let family = way.map_or(family, |way| way.variant().family());
    match family {
        Family::Fourier => spectra(problem),
        Family::Separable => {
            let (both, jobs) = passes(problem, threads);
            let doubts = doubts(problem, Order::BlockPasses, problem.pair_taps(), 1);
            Work { nanoseconds: both + results * (doubts + conversion(problem)), jobs }
        }
        Family::Direct => {
            let (jobs, _) = jobs(problem, threads);
            let each = direct(cols * rows);
            let by_rows = problem.rounding.is_some() && cpu::sums_by_rows(cols, rows);
            let order = if by_rows { Order::ByRows } else { Order::TapByTap };
            let apart = if by_rows { 2.8 / cols as f64 * each } else { 0.0 };
            let doubts = doubts(problem, order, problem.taps(), 0);
            let padded = in_tiles(problem, 64) * each;
            Work {
                nanoseconds: padded
                    + results * (apart + doubts + conversion(problem))
                    + ROW * height as f64,
                jobs,
            }
        }
    }
}

fn results(problem: &Problem) -> f64 {
    problem.width as f64 * problem.height as f64 * problem.planes as f64
}

/// Results, and those that are made beside them where a row is no multiple of a tile of so many
/// values.
fn in_tiles(problem: &Problem, tile: usize) -> f64 {
    (problem.width * problem.planes).next_multiple_of(tile) as f64 * problem.height as f64
}

/// How many jobs the engine makes, and how many of them lie one below the other.
fn jobs(problem: &Problem, threads: usize) -> (usize, usize) {
    if threads == 1 {
        return (1, 1);
    }
    let values = problem.width * problem.planes;
    let strips = values.div_ceil(cpu::strip_values(problem.rows));
    let bands = problem.height.div_ceil(cpu::band(problem.height, problem.rows, strips, threads));
    (bands * strips, bands)
}

/// Nanoseconds of a row pass and a column pass, and the jobs.
fn passes(problem: &Problem, threads: usize) -> (f64, usize) {
    let Problem { height, rows, .. } = *problem;
    let (jobs, bands) = jobs(problem, threads);
    // Lines under the windows of two bands are made twice; those of an image that is less high than
    // a window, once for each band.
    let lines = if height < rows { bands * height } else { height + bands * (rows - 1) };
    let each = interpolated(PASSES, problem.pair_taps());
    let whole = if problem.rounding.is_some() { WHOLE } else { 1.0 };
    let across = whole * ACROSS * in_tiles(problem, 128) * lines as f64 / height as f64;
    let down = (1.0 - ACROSS) * in_tiles(problem, 64);
    (each * (across + down) + ROW * (lines + height) as f64, jobs)
}

/// Nanoseconds for a result to resolve the uncertain ones after sums in this order of so many taps
/// and of so many columns, or for exact passes instead.
fn doubts(problem: &Problem, order: Order, taps: f64, columns: usize) -> f64 {
    let Some(rounding) = problem.rounding else { return 0.0 };
    let columns = rounding.left(order).map(|left| (columns * problem.rows, left));
    let resolving = Resolving::new(
        (problem.cols, problem.rows),
        problem.planes,
        (taps, rounding.exact_taps),
        columns,
    );
    (rounding.share(order) * resolving.alone()).min(resolving.per_result)
}

/// Nanoseconds for a value to be converted to f32, and from it.
fn conversion(problem: &Problem) -> f64 {
    let of = |scalar: Scalar| match scalar {
        Scalar::U8 => 0.0,
        Scalar::U16 | Scalar::F32 => 0.04,
        Scalar::F16 => 0.2,
    };
    of(problem.source) + of(problem.target)
}

/// Pairs of tiles, each transformed, multiplied and transformed back.
fn spectra(problem: &Problem) -> Work {
    let (cols, rows) = (problem.cols as i32, problem.rows as i32);
    let share = problem.rounding.and_then(|rounding| rounding.by_spectra);
    let precision = match problem.rounding {
        Some(_) => Precision::of_bytes((cols, rows), problem.width as i32, share),
        None => Precision::Single,
    };
    let tile = Tile::new(precision, (cols, rows), problem.width as i32);
    let longest = |taps, size| spectrum::cut(taps, size).next().map_or(1, |(_, part)| part);
    let inside = |taps, size| (size + 1 - longest(taps, size)) as usize;
    let parts = spectrum::cut(cols, tile.width).count() * spectrum::cut(rows, tile.height).count();
    let beside = problem.width.div_ceil(2 * inside(cols, tile.width));
    let jobs = problem.height.div_ceil(inside(rows, tile.height)) * beside;
    let doubts = match (precision, share) {
        (Precision::Single, Some(share)) => {
            share * spectrum::doubt(problem.cols, problem.rows) * results(problem)
        }
        _ => 0.0,
    };
    Work {
        nanoseconds: (jobs * problem.planes * parts) as f64 * tile.time(precision) + doubts,
        jobs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Filter};

    const BYTES: (Scalar, Scalar) = (Scalar::U8, Scalar::U8);
    const FLOATS: (Scalar, Scalar) = (Scalar::F32, Scalar::F32);

    fn plan(filter: &str) -> Plan {
        Plan::builder(filter.parse::<Filter>().unwrap()).device(Device::Cpu).build().unwrap()
    }

    /// What pictures get of 128 threads.
    #[test]
    fn pictures_get_as_many_threads_as_they_have_work_for() {
        for (filter, (width, height, channels), kinds, threads) in [
            ("gaussian:sigma=2", (64, 64, 1), BYTES, 1..=1),
            ("taps:0.5", (256, 256, 1), BYTES, 1..=1),
            ("box:size=5", (256, 256, 1), BYTES, 1..=1),
            ("gaussian:sigma=2", (256, 256, 1), BYTES, 1..=2),
            ("gaussian:sigma=2", (256, 256, 1), FLOATS, 1..=3),
            ("gaussian:sigma=2", (512, 512, 1), BYTES, 2..=6),
            ("gaussian:sigma=2", (1920, 1080, 3), BYTES, 16..=48),
            ("gaussian:sigma=2", (6000, 4000, 3), BYTES, 64..=128),
        ] {
            let (plan, shape) = (plan(filter), Shape { width, height, channels });
            let effort = plan.effort(Family::Separable, Channels::First(channels), shape, kinds);
            let found = effort.threads(128);
            assert!(
                threads.contains(&found),
                "{filter} of {shape}: {found} threads for {effort:?}"
            );
        }
    }

    /// With more threads, no picture's predicted time is much longer, jobs that end late included.
    #[test]
    fn more_threads_are_never_predicted_to_be_slower() {
        for filter in [
            "gaussian:sigma=0.5",
            "gaussian:sigma=2",
            "gaussian:sigma=20",
            "box:size=31",
            "motion:length=15,angle=30",
        ] {
            let plan = plan(filter);
            for side in [16, 64, 256, 512, 1024, 2048, 4096, 16384] {
                for (kinds, channels) in
                    [BYTES, FLOATS].into_iter().flat_map(|kinds| [(kinds, 1), (kinds, 3)])
                {
                    let shape = Shape { width: side, height: side, channels };
                    let problem =
                        plan.problem_for(shape, channels, kinds, Place::Cpu { threads: 1 });
                    let families = [Family::Direct, Family::Separable, Family::Fourier];
                    for family in families
                        .into_iter()
                        .filter(|&family| family != Family::Separable || problem.separable)
                    {
                        let mut before = f64::INFINITY;
                        for available in [1, 2, 4, 8, 16, 32, 64, 128] {
                            let found = time(&problem, family, available);
                            let told =
                                format!("{filter} of {shape} by {family:?}, {available} threads");
                            assert!(
                                found <= 1.15 * before,
                                "{told}: {found} us, {before} with fewer"
                            );
                            before = before.min(found);
                        }
                    }
                }
            }
        }
    }
}
