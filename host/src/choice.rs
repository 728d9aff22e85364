//! Which variant runs: a pure function of the problem and of one table of measured times.

use std::time::Duration;

use crate::{Border, Family, Result, Variant, tuning};

/// All that the choice of a variant depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Problem {
    /// Pixels in a row.
    pub(crate) width: usize,
    /// Rows.
    pub(crate) height: usize,
    /// Planes: channels of the image.
    pub(crate) planes: usize,
    /// Tap columns.
    pub(crate) cols: usize,
    /// Tap rows.
    pub(crate) rows: usize,
    /// The anchor's column and row.
    pub(crate) anchor_x: usize,
    pub(crate) anchor_y: usize,
    /// What lies outside the image.
    pub(crate) border: Border,
    /// `sum |tap|`.
    pub(crate) weight: f64,
    /// Whether the filter is the product of a row and a column.
    pub(crate) separable: bool,
    /// Where it runs.
    pub(crate) place: Place,
}

/// What of a device the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Cpu {
        threads: usize,
    },
    Gpu {
        /// Bytes of shared memory that a block can have.
        shared_memory: usize,
    },
}

impl Place {
    /// An H200, for questions where there is none.
    pub(crate) const H200: Self = Self::Gpu { shared_memory: 227 << 10 };

    /// Bytes of shared memory that a block can have; no limit on the CPU.
    pub(crate) fn shared_memory(self) -> usize {
        match self {
            Self::Cpu { .. } => usize::MAX,
            Self::Gpu { shared_memory } => shared_memory,
        }
    }
}

/// A variant, and what a plan thinks of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// The variant.
    pub variant: Variant,
    /// How long it should take: as measured on an H200, or on two processor cores with AVX-512, scaled to the number of
    /// pixels and of threads. Other devices take other times, in much the same order. `None` if it was not measured.
    pub predicted: Option<Duration>,
    /// Why it is not chosen whatever its time; `None` if it may be.
    pub declined: Option<String>,
}

/// The greatest window for which variants must give the direct family's bits, because the direct kernels are fast there:
/// beyond it, the Fourier family's error is taken into account.
const EXACT: usize = 17 * 17;

/// Microseconds for a million pixels on an H200, and on two processor cores with AVX-512, each with what it grows with.
///
/// The work is `cols * rows` for the direct family, `cols + rows` for the separable one, and for Fourier the pixels
/// transformed for each result. Between two rows the time is interpolated, beyond the last it grows on as before. From
/// `cargo xtask bench` with 8192x8192 pixels on the GPU (4096x4096 for 17x17 by the slow ones), 2048x2048 on the CPU.
const ON_H200: &[(Variant, &[(f64, f64)])] = &[
    (
        Variant::DirectSliding,
        &[
            (9.0, 2.3),
            (25.0, 2.28),
            (49.0, 2.7),
            (81.0, 3.95),
            (121.0, 5.4),
            (169.0, 7.35),
            (225.0, 9.6),
            (289.0, 12.0),
        ],
    ),
    (Variant::SeparableFused, &[(6.0, 2.25), (10.0, 2.27), (34.0, 2.4), (50.0, 3.3), (66.0, 4.1), (130.0, 9.1)]),
    (Variant::Separable, &[(10.0, 5.0), (34.0, 6.9), (102.0, 14.0)]),
    (
        Variant::DirectUnrolled,
        &[(25.0, 5.3), (49.0, 6.5), (81.0, 8.5), (121.0, 11.0), (289.0, 21.9), (961.0, 70.0), (2601.0, 190.0)],
    ),
    (Variant::DirectShared, &[(25.0, 14.8), (289.0, 82.9)]),
    (Variant::DirectConstant, &[(25.0, 16.9), (289.0, 116.4)]),
    (Variant::DirectNaive, &[(25.0, 19.8), (289.0, 133.8)]),
    (Variant::Fourier, &[(1.3, 5.56), (2.7, 9.6), (4.0, 13.1)]),
];

/// See [`ON_H200`]. All variants of a family run the same code on the CPU, so one stands for all.
const ON_TWO_CORES: &[(Variant, &[(f64, f64)])] = &[
    (Variant::DirectNaive, &[(9.0, 900.0), (25.0, 800.0), (81.0, 1290.0), (289.0, 4800.0), (961.0, 8800.0)]),
    (Variant::Separable, &[(6.0, 690.0), (18.0, 880.0), (34.0, 1160.0), (62.0, 1500.0)]),
    (Variant::Fourier, &[(1.5, 15000.0), (3.0, 18000.0)]),
];

/// What starting a kernel takes, and filling the device with it.
const LAUNCH: f64 = 5.0;

impl Problem {
    /// The variant that is expected to be fastest: the first of the candidates. Runs ask for it, so that no more variants
    /// have to say why not than are faster.
    pub(crate) fn choose(&self) -> Variant {
        let times = self.measured().iter().map(|&(variant, times)| (self.predict(variant, times), variant));
        let mut times: Vec<_> = times.collect();
        times.sort_by_key(|&(time, _)| time);
        let runs = |&(_, variant): &(Duration, Variant)| self.declined(variant).is_none();
        times.into_iter().find(runs).map_or(Variant::DirectNaive, |(_, variant)| variant)
    }

    /// All variants that the device has of its own: those that may run, the fastest first, then the others.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let mut candidates: Vec<_> =
            self.measured().iter().map(|&(variant, times)| self.candidate(variant, times)).collect();
        // The sort keeps the table's order where times are equal.
        let rank = |candidate: &Candidate| (candidate.declined.is_some(), candidate.predicted);
        candidates.sort_by_key(rank);
        candidates
    }

    /// Whether the variant can run the problem; if not, which limit it meets.
    pub(crate) fn check(&self, variant: Variant) -> Result<Variant> {
        variant.accepts(self).map(|()| variant)
    }

    fn measured(&self) -> &'static [(Variant, &'static [(f64, f64)])] {
        match self.place {
            Place::Cpu { .. } => ON_TWO_CORES,
            Place::Gpu { .. } => ON_H200,
        }
    }

    fn candidate(&self, variant: Variant, times: &[(f64, f64)]) -> Candidate {
        let declined = self.declined(variant);
        let predicted = declined.is_none().then(|| self.predict(variant, times));
        Candidate { variant, predicted, declined }
    }

    /// Why a plan does not choose a variant, if it does not.
    fn declined(&self, variant: Variant) -> Option<String> {
        match variant.accepts(self) {
            Err(crate::Error::Unsupported { reason, .. }) => Some(reason),
            Err(error) => Some(error.to_string()),
            Ok(()) if variant.family() == Family::Fourier && self.cols * self.rows <= EXACT => {
                Some("up to 17x17 taps the direct family is fast, and more exact".to_owned())
            }
            Ok(()) if variant.family() == Family::Separable && self.cols * self.rows <= 9 => {
                Some("9 taps at most are taken one by one, for the direct family's bits".to_owned())
            }
            Ok(()) => None,
        }
    }

    fn predict(&self, variant: Variant, times: &[(f64, f64)]) -> Duration {
        let pixels = self.width as f64 * self.height as f64 * self.planes as f64 / 1e6;
        let microseconds = match self.place {
            Place::Cpu { threads } => pixels * interpolated(times, self.work(variant)) * 2.0 / threads as f64,
            Place::Gpu { .. } => LAUNCH + pixels * interpolated(times, self.work(variant)),
        };
        Duration::from_secs_f64(microseconds / 1e6)
    }

    /// What a variant's time grows with.
    fn work(&self, variant: Variant) -> f64 {
        match variant.family() {
            Family::Direct => self.cols as f64 * self.rows as f64,
            Family::Separable => (self.cols + self.rows) as f64,
            Family::Fourier => {
                let (cols, rows) = (self.cols as i32, self.rows as i32);
                let size = match self.place {
                    Place::Cpu { .. } => tuning::cpu_tile(cols, rows),
                    Place::Gpu { shared_memory } => tuning::fourier(shared_memory).map_or(128, |kernel| kernel.size),
                };
                tuning::fourier_work(cols, size) * tuning::fourier_work(rows, size)
            }
        }
    }
}

/// The time for some work, between two of those measured or beyond the last.
fn interpolated(times: &[(f64, f64)], work: f64) -> f64 {
    let last = times.len().saturating_sub(2);
    let at = times.iter().skip(1).take(last).take_while(|&&(measured, _)| measured <= work).count();
    let ((x0, y0), (x1, y1)) = (times[at], times[at + 1]);
    // Below the first, as much.
    if work <= x0 { y0 } else { y0 + (y1 - y0) * (work - x0) / (x1 - x0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(cols: usize, rows: usize, separable: bool) -> Problem {
        Problem {
            width: 8192,
            height: 8192,
            planes: 1,
            cols,
            rows,
            anchor_x: cols / 2,
            anchor_y: rows / 2,
            border: Border::default(),
            weight: 1.0,
            separable,
            place: Place::H200,
        }
    }

    #[test]
    fn the_fastest_is_chosen() {
        for (cols, rows, separable, chosen) in [
            (1, 1, true, Variant::DirectUnrolled),
            (3, 3, true, Variant::DirectSliding),
            (5, 5, true, Variant::SeparableFused),
            (5, 5, false, Variant::DirectSliding),
            (17, 17, false, Variant::DirectSliding),
            (17, 17, true, Variant::SeparableFused),
            (9, 4, true, Variant::Separable),
            (17, 18, false, Variant::Fourier),
            (51, 51, false, Variant::Fourier),
            (51, 51, true, Variant::SeparableFused),
            (301, 301, true, Variant::Separable),
        ] {
            let problem = problem(cols, rows, separable);
            let candidates = problem.candidates();
            assert_eq!(problem.choose(), chosen, "{cols}x{rows}: {candidates:#?}");
            assert_eq!(candidates[0].variant, chosen, "{cols}x{rows}: {candidates:#?}");
        }
    }

    #[test]
    fn a_device_with_little_shared_memory_has_a_choice_too() {
        let small = Problem { place: Place::Gpu { shared_memory: 1 << 10 }, ..problem(51, 51, false) };
        assert_eq!(small.choose(), Variant::DirectNaive);
        let turing = Problem { place: Place::Gpu { shared_memory: 64 << 10 }, ..problem(51, 51, false) };
        assert_eq!(turing.choose(), Variant::Fourier);
    }

    #[test]
    fn on_the_cpu_spectra_win_later() {
        let cpu = |size| Problem { place: Place::Cpu { threads: 2 }, ..problem(size, size, false) };
        assert_eq!(cpu(31).choose(), Variant::DirectNaive);
        assert_eq!(cpu(61).choose(), Variant::Fourier);
        assert_eq!(Problem { separable: true, ..cpu(61) }.choose(), Variant::Separable);
    }

    #[test]
    fn times_are_interpolated() {
        let times = [(10.0, 1.0), (20.0, 2.0), (40.0, 6.0)];
        for (work, time) in [(5.0, 1.0), (10.0, 1.0), (15.0, 1.5), (20.0, 2.0), (30.0, 4.0), (50.0, 8.0)] {
            assert_eq!(interpolated(&times, work), time, "{work}");
        }
    }

    #[test]
    fn what_may_run_comes_first_and_has_a_time() {
        let candidates = problem(7, 7, false).candidates();
        let declined = candidates.iter().position(|candidate| candidate.declined.is_some()).unwrap();
        assert!(declined > 3 && candidates[declined..].iter().all(|candidate| candidate.predicted.is_none()));
        assert!(candidates[..declined].is_sorted_by_key(|candidate| candidate.predicted));
    }
}
