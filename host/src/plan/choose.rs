//! Which variant runs: a pure function of the problem and of measured times.

use std::time::Duration;

use super::machine::{Curve, interpolated};
use super::problem::{Place, Problem};
use crate::kernels::prepared::Kernel;
#[cfg(feature = "gpu")]
use crate::kernels::prepared::Prepared;
use crate::kernels::{KERNELS, kernel};
use crate::{Error, Family, Result, Scalar, Variant, Why, spectrum};

/// A variant, with its predicted time or the reason why it is not chosen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// The variant.
    pub variant: Variant,
    /// How long it should take: as measured on an H200, on an H100, or on two processor cores with AVX-512, scaled to the
    /// number of pixels and of threads. For other GPUs an H200's time is scaled by the memory's speed; their order is much
    /// the same. `None` if the variant is declined.
    pub predicted: Option<Duration>,
    /// Why it cannot be chosen, however fast it is; `None` if it can.
    pub declined: Option<Why>,
}

/// The most taps for which variants must give the direct family's bits, because the direct kernels are fast there: beyond
/// them, the Fourier family's error is taken into account.
pub(super) const DIRECT_TAPS: usize = 17 * 17;

/// The most taps for which a separable filter still runs in the direct family.
const ONE_BY_ONE: usize = 9;

/// Microseconds to start a kernel and to fill the device with its blocks.
const LAUNCH: f64 = 5.0;

/// The CPU's families, each by one of its variants, all of which run the same code there: microseconds for a million results
/// on two processor cores with AVX-512, by the taps that are taken; for Fourier, by the pixels transformed for each result.
/// From `cargo xtask bench --device cpu` with 2048x2048 pixels.
const ON_TWO_CORES: &[(Variant, Curve)] = &[
    (Variant::DirectNaive, &[(9.0, 900.0), (25.0, 800.0), (81.0, 1290.0), (289.0, 4800.0), (961.0, 8800.0)]),
    (Variant::Separable, &[(6.0, 690.0), (18.0, 880.0), (34.0, 1160.0), (62.0, 1500.0)]),
    (Variant::Fourier, &[(1.5, 15000.0), (3.0, 18000.0)]),
];

impl Problem {
    /// The kernel with the shortest predicted time among those that take the problem, ready to launch. Slower ones are not prepared.
    #[cfg(feature = "gpu")]
    pub(crate) fn choose_kernel(&self) -> Result<Prepared> {
        let mut kernels: Vec<_> = KERNELS.iter().map(|kernel| (self.predict(kernel), kernel)).collect();
        kernels.sort_by_key(|&(time, _)| time);
        let allowed = kernels.into_iter().filter(|(_, kernel)| self.rule(kernel.variant).is_ok());
        let prepared = allowed.map(|(_, kernel)| (kernel.prepare)(self).map_err(|why| (kernel.variant, why)));
        let mut declined = None;
        for outcome in prepared {
            match outcome {
                Ok(prepared) => return Ok(prepared),
                Err(why) => declined = Some(why),
            }
        }
        let (variant, why) = declined.unwrap_or((Variant::DirectNaive, "no kernel is allowed".into()));
        Err(unsupported(variant, &why))
    }

    /// The kernel of the requested variant, ready to launch.
    #[cfg(feature = "gpu")]
    pub(crate) fn prepare(&self, variant: Variant) -> Result<Prepared> {
        (kernel(variant).prepare)(self).map_err(|why| unsupported(variant, &why))
    }

    /// The family with the shortest predicted time on the CPU, as the variant that represents it.
    pub(crate) fn choose_on_cpu(&self) -> Variant {
        self.candidates().first().map_or(Variant::DirectNaive, |candidate| candidate.variant)
    }

    /// Every variant of the device: those that may run, the fastest first, then the others.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let candidate = |variant, time: &dyn Fn() -> Duration| {
            let declined = self.rule(variant).and_then(|()| self.runs(variant)).err();
            Candidate { variant, predicted: declined.is_none().then(time), declined }
        };
        let mut candidates: Vec<_> = match self.place {
            Place::Cpu { threads } => ON_TWO_CORES
                .iter()
                .map(|&(variant, times)| candidate(variant, &|| self.predict_on_cpu(variant, times, threads)))
                .collect(),
            Place::Gpu(_) => KERNELS.iter().map(|kernel| candidate(kernel.variant, &|| self.predict(kernel))).collect(),
        };
        // The sort keeps the table's order where times are equal.
        candidates.sort_by_key(|candidate| (candidate.declined.is_some(), candidate.predicted));
        candidates
    }

    /// Whether a variant takes the problem; on the CPU, whether its family exists for the filter.
    fn runs(&self, variant: Variant) -> Result<(), Why> {
        match self.place {
            Place::Gpu(_) => (kernel(variant).prepare)(self).map(|_| ()),
            Place::Cpu { .. } => match variant.family() {
                Family::Direct => Ok(()),
                Family::Separable if self.separable => Ok(()),
                Family::Separable => Err(Why::NOT_SEPARABLE),
                Family::Fourier => spectrum::has_room(self.cols, self.rows, self.weight),
            },
        }
    }

    /// Whether the requested variant runs on the CPU.
    pub(crate) fn check_on_cpu(&self, variant: Variant) -> Result<Variant> {
        self.runs(variant).map(|()| variant).map_err(|why| unsupported(variant, &why))
    }

    /// Whether a plan may choose a variant by its time. These rules keep a result's bits independent of which variant is fastest.
    fn rule(&self, variant: Variant) -> Result<(), Why> {
        if matches!(self.place, Place::Gpu(_)) && self.source != Scalar::F32 {
            // Bytes made of bytes are correctly rounded on a GPU whatever the family. Other results have the bits that pixels
            // converted to f32 before would give.
            let bytes = (self.source, self.target) == (Scalar::U8, Scalar::U8);
            let any = bytes || variant.family() == self.family_of_f32();
            return if any {
                Ok(())
            } else {
                Err("pixels of this type are summed in the order of those of f32".into())
            };
        }
        match variant.family() {
            Family::Fourier if self.cols * self.rows <= DIRECT_TAPS => {
                Err("up to 17x17 taps the direct family is fast, and more exact".into())
            }
            Family::Separable if self.separable && self.cols * self.rows <= ONE_BY_ONE => {
                Err("9 taps at most are taken one by one, for the direct family's bits".into())
            }
            _ => Ok(()),
        }
    }

    /// The family that is chosen for the same problem with pixels of f32 in planes.
    fn family_of_f32(&self) -> Family {
        let (source, target) = (Scalar::F32, Scalar::F32);
        let same = Self { source, target, side_by_side: 1, source_is_aligned: true, ..*self };
        same.candidates().first().map_or(Family::Direct, |candidate| candidate.variant.family())
    }

    fn predict(&self, kernel: &Kernel) -> Duration {
        // Kernels without entries of their own for stored pixels read and write them one by one, in about twice the time; as measured
        // for spectra on an H200.
        let own = matches!(kernel.variant, Variant::DirectSliding | Variant::SeparableFused | Variant::Matrix);
        let slower = if own || self.source == Scalar::F32 { 1.0 } else { 2.3 };
        microseconds(LAUNCH + self.millions() * slower * (kernel.cost)(self, self.place.machine()))
    }

    fn predict_on_cpu(&self, variant: Variant, times: Curve, threads: usize) -> Duration {
        let work = match variant.family() {
            Family::Direct => self.taps(),
            Family::Separable => self.pair_taps(),
            Family::Fourier => {
                let (cols, rows) = (self.cols as i32, self.rows as i32);
                let size = spectrum::cpu_tile(cols, rows);
                spectrum::work(cols, size) * spectrum::work(rows, size)
            }
        };
        microseconds(self.millions() * interpolated(times, work) * 2.0 / threads as f64)
    }

    /// Millions of results.
    fn millions(&self) -> f64 {
        self.width as f64 * self.height as f64 * self.planes as f64 / 1e6
    }
}

fn microseconds(count: f64) -> Duration {
    Duration::from_secs_f64(count / 1e6)
}

fn unsupported(variant: Variant, why: &Why) -> Error {
    Error::Unsupported { variant: variant.name(), reason: why.to_string() }
}
