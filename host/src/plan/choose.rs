//! Which variant of a filter's family runs: a pure function of the problem and of measured times.
//! Results of other types than bytes have the bits of one family, which [`super::family`] decides.

use std::time::Duration;

use super::processor;
use crate::cpu;
use crate::kernels::prepared::Kernel;
#[cfg(feature = "gpu")]
use crate::kernels::prepared::Prepared;
use crate::kernels::{KERNELS, kernel};
use crate::problem::machine::{Bound, Time};
use crate::problem::{Place, Problem};
use crate::{Error, Family, Result, Variant, Why, spectrum};

/// A variant, with its predicted time or the reason why it is not chosen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// The variant.
    pub variant: Variant,
    /// The predicted time with pictures in the device's memory, the rounding of bytes included. It
    /// comes from measurements on an H200 or on processor cores with AVX-512, for the number of
    /// pixels and of threads. For another GPU it follows from an H200's time and the rates of both:
    /// of the memory, of arithmetic, of tensor cores. `None` if the variant is declined.
    pub predicted: Option<Duration>,
    /// What sets that time on a GPU.
    pub bound: Option<Bound>,
    /// Why it cannot be chosen, however fast it is; `None` if it can.
    pub declined: Option<Why>,
}

impl Problem {
    /// The kernel with the shortest predicted time among those that take the problem, ready to
    /// launch. Slower ones are not prepared.
    #[cfg(feature = "gpu")]
    pub(crate) fn choose_kernel(&self) -> Result<Prepared> {
        let mut kernels: Vec<_> =
            KERNELS.iter().map(|kernel| (self.time_by(kernel).us, kernel)).collect();
        kernels.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let allowed = kernels.into_iter().filter(|(_, kernel)| self.rule(kernel.variant).is_ok());
        let prepared =
            allowed.map(|(_, kernel)| (kernel.prepare)(self).map_err(|why| (kernel.variant, why)));
        let mut declined = None;
        for outcome in prepared {
            match outcome {
                Ok(prepared) => return Ok(prepared),
                Err(why) => declined = Some(why),
            }
        }
        let (variant, why) =
            declined.unwrap_or((KERNELS[0].variant, "no kernel is allowed".into()));
        Err(unsupported(variant, &why))
    }

    /// The kernel of a variant that was measured to be fast, if a plan may choose it.
    #[cfg(feature = "gpu")]
    pub(crate) fn prepare_allowed(&self, variant: Variant) -> Option<Prepared> {
        self.rule(variant).and_then(|()| (kernel(variant).prepare)(self)).ok()
    }

    /// The kernel of the requested variant, ready to launch.
    #[cfg(feature = "gpu")]
    pub(crate) fn prepare(&self, variant: Variant) -> Result<Prepared> {
        (kernel(variant).prepare)(self).map_err(|why| unsupported(variant, &why))
    }

    /// The variant that stands for what runs on the CPU: that of the filter's family, or for bytes
    /// made of bytes the one with the shortest predicted time. Every call asks for it.
    pub(crate) fn choose_on_cpu(&self) -> Variant {
        match (self.family(), self.place) {
            (Some((family, _)), _) => cpu::variant(self, family),
            (None, Place::Gpu(_)) => cpu::VARIANTS[0],
            (None, Place::Cpu { threads }) => {
                let allowed =
                    cpu::VARIANTS.into_iter().filter(|&variant| self.runs(variant).is_ok());
                // The first of equal times.
                let first = allowed.min_by(|&a, &b| {
                    let time = |variant: Variant| processor::time(self, variant.family(), threads);
                    time(a).total_cmp(&time(b))
                });
                first.unwrap_or(cpu::VARIANTS[0])
            }
        }
    }

    /// Why a variant may not be chosen, if so.
    fn declined(&self, variant: Variant) -> Option<Why> {
        self.runs(variant).and_then(|()| self.rule(variant)).err()
    }

    /// Every variant of the device: first those that may run, the best one ahead, then the others.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let candidate = |variant, time: Duration, bound| {
            let declined = self.declined(variant);
            let (predicted, bound) = match declined {
                None => (Some(time), bound),
                Some(_) => (None, None),
            };
            (time, Candidate { variant, predicted, bound, declined })
        };
        let mut candidates: Vec<_> = match self.place {
            Place::Cpu { .. } => cpu::VARIANTS
                .into_iter()
                .map(|variant| candidate(variant, self.time_of(variant), None))
                .collect(),
            Place::Gpu(_) => KERNELS
                .iter()
                .map(|kernel| {
                    let time = self.time_by(kernel);
                    candidate(kernel.variant, microseconds(time.us), Some(time.bound))
                })
                .collect(),
        };
        // The sort keeps the table's order where times are equal.
        candidates.sort_by_key(|(time, candidate)| (candidate.declined.is_some(), *time));
        candidates.into_iter().map(|(_, candidate)| candidate).collect()
    }

    /// How long a variant takes, whether a plan may choose it or not.
    pub(crate) fn time_of(&self, variant: Variant) -> Duration {
        match self.place {
            Place::Cpu { threads } => {
                microseconds(processor::time(self, variant.family(), threads))
            }
            Place::Gpu(_) => microseconds(self.time_by(kernel(variant)).us),
        }
    }

    /// How long the fastest of the direct family takes, whether a plan may choose it or not: the
    /// prediction for gradients and weighted colours.
    pub(crate) fn time_of_direct(&self) -> Duration {
        // On the CPU tap by tap: no other method for bytes takes these.
        let problem = match self.place {
            Place::Cpu { .. } => Self { rounding: None, ..*self },
            Place::Gpu(_) => *self,
        };
        let direct = Variant::all().filter(|variant| variant.family() == Family::Direct);
        let runs =
            direct.filter(|&variant| problem.place.is_cpu() || problem.runs(variant).is_ok());
        runs.map(|variant| problem.time_of(variant)).min().unwrap_or_default()
    }

    /// Whether a variant takes the problem; on the CPU, whether it stands for the code that runs
    /// for its family.
    fn runs(&self, variant: Variant) -> Result<(), Why> {
        if let Place::Gpu(_) = self.place {
            return (kernel(variant).prepare)(self).map(|_| ());
        }
        self.has_family(variant.family())?;
        match cpu::method(self, variant.family()) {
            None if variant == Variant::RunningSums => Err(Why::BYTES_ALONE),
            Some(method) if method.variant == variant => Ok(()),
            Some(_) if variant == Variant::RunningSums => {
                Err("the taps are not equal, or too few for running sums".into())
            }
            Some(method) => Err(method.why.into()),
            None => Ok(()),
        }
    }

    /// Whether a family exists for the filter on the CPU.
    fn has_family(&self, family: Family) -> Result<(), Why> {
        match family {
            Family::Direct => Ok(()),
            Family::Separable if self.separable || self.sum.is_some() => Ok(()),
            Family::Separable => Err(Why::NOT_SEPARABLE),
            Family::Fourier => spectrum::has_room(self.cols, self.rows, self.weight),
            Family::SpectraPasses if self.has_lines => Ok(()),
            Family::SpectraPasses => Err(Why::NO_LINES),
        }
    }

    /// Whether the requested variant runs on the CPU: every variant of a family that exists does.
    pub(crate) fn check_on_cpu(&self, variant: Variant) -> Result<Variant> {
        self.has_family(variant.family())
            .map(|()| variant)
            .map_err(|why| unsupported(variant, &why))
    }

    /// Whether a plan may choose a variant by its time. These rules keep a result's bits
    /// independent of which variant is fastest.
    fn rule(&self, variant: Variant) -> Result<(), Why> {
        self.may_be(variant.family())?;
        if self.place.is_cpu() { Ok(()) } else { (kernel(variant).rule)(self) }
    }

    fn time_by(&self, kernel: &Kernel) -> Time {
        (kernel.time)(self, self.place.machine())
    }
}

fn microseconds(count: f64) -> Duration {
    Duration::from_secs_f64(count / 1e6)
}

fn unsupported(variant: Variant, why: &Why) -> Error {
    Error::Unsupported { variant: variant.name(), reason: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::super::Plan;
    use crate::image::Shape;
    use crate::problem::Place;
    use crate::problem::machine::Machine;
    use crate::{Device, Filter, GpuModel, Scalar, Variant};

    /// Microseconds for a million results that were measured on an H100, 8192x8192 f32, by the
    /// number of taps in a row and in a column.
    const H100: [(Variant, &[(usize, f64)]); 4] = [
        (Variant::SeparableFused, &[(5, 3.08), (7, 3.21), (17, 3.23), (33, 3.85)]),
        (Variant::Separable, &[(5, 6.0), (17, 6.5), (65, 9.6)]),
        (Variant::DirectSliding, &[(3, 2.99), (5, 3.03), (7, 3.28), (9, 3.91), (17, 12.0)]),
        (Variant::DirectUnrolled, &[(3, 3.8), (5, 4.6), (7, 5.4), (9, 6.5), (17, 15.9)]),
    ];

    const SHAPE: Shape = Shape { width: 8192, height: 8192, channels: 1 };

    /// A mean, as a row and a column.
    fn mean(size: usize) -> Plan {
        let line = vec![1.0 / size as f32; size];
        let filter = Filter::separable(&line, &line).unwrap();
        Plan::builder(filter).device(Device::Cpu).build().unwrap()
    }

    #[test]
    fn an_h100s_times_follow_from_an_h200s() {
        let gpu: GpuModel = "h100".parse().unwrap();
        for (variant, times) in H100 {
            for &(taps, each) in times {
                let place = Place::Gpu(Machine::of(&gpu));
                let problem = mean(taps).problem_for(SHAPE, 1, (Scalar::F32, Scalar::F32), place);
                let predicted = problem.time_of(variant).as_secs_f64() * 1e6;
                let measured = each * problem.millions();
                let ratio = predicted / measured;
                assert!((0.8..1.25).contains(&ratio), "{variant} {taps}: {predicted} {measured}");
            }
        }
    }

    /// A GPU with much arithmetic for its memory takes small windows in one pass over the memory;
    /// what sets its time is the memory.
    #[test]
    fn what_sets_a_time_depends_on_the_gpu() {
        use crate::problem::machine::Bound;

        let bound = |name: &str, size| {
            let gpu = name.parse().unwrap();
            mean(size).candidates_on(&gpu, SHAPE, Scalar::F32, Scalar::F32)[0].bound
        };
        assert_eq!(bound("rtx-4090", 33), Some(Bound::Memory));
        assert_eq!(bound("h100", 33), Some(Bound::Floats));
        assert_eq!(bound("rtx-4090", 401), Some(Bound::Floats));
    }
}
