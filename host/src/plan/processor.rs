//! How long the CPU engine takes a call: the cost of its method (`host/src/cpu/method.rs`), shared
//! among threads as far as there are jobs, and the memory's share: see `host/src/threads.rs`.

use crate::Family;
use crate::cpu;
use crate::cpu::cost::{Cost, results};
use crate::problem::Problem;
use crate::threads::Effort;

/// Nanoseconds for a call.
const CALL: f64 = 1500.0;

/// Bytes of pixels and results from which no cache holds them.
const CACHED: f64 = 16e6;

/// Microseconds for a problem in a family's order where so many threads are available.
pub(super) fn time(problem: &Problem, family: Family, available: usize) -> f64 {
    let threads = effort(problem, family).threads(available);
    let Cost { nanoseconds, jobs } = cpu::cost(problem, family, threads);
    let used = threads.min(jobs).max(1);
    // The work ends with the thread that has most jobs.
    let uneven = (jobs.div_ceil(used) * used) as f64 / jobs.max(1) as f64;
    (CALL + Effort { nanoseconds: nanoseconds * uneven, bytes: moved(problem) }.time(used)) / 1e3
}

/// What a problem in a family's order takes, from which the number of its threads follows.
pub(super) fn effort(problem: &Problem, family: Family) -> Effort {
    Effort { nanoseconds: cpu::cost(problem, family, 1).nanoseconds, bytes: moved(problem) }
}

/// Bytes that pass through memory: a picture that no cache holds is copied, as it were.
fn moved(problem: &Problem) -> f64 {
    let bytes = results(problem) * (problem.source.bytes() + problem.target.bytes()) as f64;
    if bytes > CACHED { 0.5 * bytes } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::{Channels, Plan};
    use super::*;
    use crate::image::Shape;
    use crate::problem::Place;
    use crate::{Device, Filter, Scalar};

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
