//! Which variant of a filter's family runs: a pure function of the problem and of measured times.
//! Results of other types than bytes have the bits of one family, which [`super::family`] decides.

use std::time::Duration;

use super::problem::{Place, Problem};
use super::processor;
use crate::cpu::Way;
use crate::kernels::prepared::Kernel;
#[cfg(feature = "gpu")]
use crate::kernels::prepared::Prepared;
use crate::kernels::sliding::takes_as_they_lie;
use crate::kernels::whole::exact_passes;
use crate::kernels::{KERNELS, fourier, kernel};
use crate::round::{Order, Rounding};
use crate::{Error, Family, Result, Scalar, Variant, Why, spectrum};

/// A variant, with its predicted time or the reason why it is not chosen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// The variant.
    pub variant: Variant,
    /// How long it should take, with pictures in the device's memory, and what it takes to round
    /// bytes made of bytes: as measured on an H200, on an H100, or on processor cores with AVX-512,
    /// for the number of pixels and of threads. For other GPUs an H200's time is scaled by the
    /// memory's speed; their order is much the same. `None` if the variant is declined.
    pub predicted: Option<Duration>,
    /// Why it cannot be chosen, however fast it is; `None` if it can.
    pub declined: Option<Why>,
}

/// Microseconds to start a kernel and to fill the device with its blocks.
const LAUNCH: f64 = 4.0;

/// Microseconds besides: for the first tile of kernels whose tiles are long work, as measured on an
/// H200 with pictures of few tiles, and for the second of two passes.
const BESIDES: &[(Variant, f64)] = &[
    (Variant::Separable, LAUNCH),
    (Variant::Fourier, 25.0),
    (Variant::Matrix, 8.0),
    (Variant::SeparableMatrix, 9.0),
    (Variant::RunningSums, 6.0),
];

/// Results in a row of all strips that a GPU works on at a time, about; the rows of a strip, of a
/// small picture at least and of a large one; and microseconds for a row of a strip, if there are
/// few. From an H200.
const STRIPS: f64 = 200e3;
const LEAST_ROWS: f64 = 7.0;
const LARGE_ROWS: f64 = 200.0;
const STRIP_ROW: f64 = 0.3;

/// Microseconds to resolve what is uncertain of bytes on a GPU: for a launch; for each of a million
/// results, and its taps; and for a tap of a result that its threads take alone. Reckoned for an
/// H200.
const RESOLVE: f64 = 3.0;
const RESOLVE_EACH: f64 = 200.0;
const RESOLVE_TAP: f64 = 0.4;
const RESOLVE_ALONE: f64 = 0.002;

/// The CPU's code, by the variants that stand for it. All variants of a family run the same code
/// there, but for means of bytes, which are counted.
const ON_CPU: [Variant; 4] =
    [Variant::DirectNaive, Variant::Separable, Variant::Fourier, Variant::RunningSums];

impl Problem {
    /// The kernel with the shortest predicted time among those that take the problem, ready to
    /// launch. Slower ones are not prepared.
    #[cfg(feature = "gpu")]
    pub(crate) fn choose_kernel(&self) -> Result<Prepared> {
        let mut kernels: Vec<_> =
            KERNELS.iter().map(|kernel| (self.order(kernel), kernel)).collect();
        kernels.sort_by_key(|&(rank, _)| rank);
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
            declined.unwrap_or((Variant::DirectNaive, "no kernel is allowed".into()));
        Err(unsupported(variant, &why))
    }

    /// The kernel of a variant that was found to be fast, if a plan may choose it.
    #[cfg(feature = "gpu")]
    pub(crate) fn prepare_allowed(&self, variant: Variant) -> Option<Prepared> {
        self.rule(variant).and_then(|()| (kernel(variant).prepare)(self)).ok()
    }

    /// The kernel of the requested variant, ready to launch.
    #[cfg(feature = "gpu")]
    pub(crate) fn prepare(&self, variant: Variant) -> Result<Prepared> {
        (kernel(variant).prepare)(self).map_err(|why| unsupported(variant, &why))
    }

    /// What runs on the CPU, as the variant that stands for it: the filter's family, or for bytes
    /// made of bytes what has the shortest predicted time. Every call asks for it.
    pub(crate) fn choose_on_cpu(&self) -> Variant {
        match (self.family(), self.place) {
            (Some((family, _)), _) => self.on_cpu(family),
            (None, Place::Gpu(_)) => Variant::DirectNaive,
            (None, Place::Cpu { threads }) => {
                let allowed = ON_CPU.into_iter().filter(|&variant| self.runs(variant).is_ok());
                // The first of equal times.
                let first = allowed.min_by(|&a, &b| {
                    let time = |variant: Variant| processor::time(self, variant.family(), threads);
                    time(a).total_cmp(&time(b))
                });
                first.unwrap_or(Variant::DirectNaive)
            }
        }
    }

    /// Why a variant may not be chosen, if it may not.
    fn declined(&self, variant: Variant) -> Option<Why> {
        self.runs(variant).and_then(|()| self.rule(variant)).err()
    }

    /// Every variant of the device: those that may run, the one to choose first, then the others.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let candidate = |variant, rank: Duration, predicted: &dyn Fn() -> Duration| {
            let declined = self.declined(variant);
            (rank, Candidate { variant, predicted: declined.is_none().then(predicted), declined })
        };
        let mut candidates: Vec<_> = match self.place {
            Place::Cpu { .. } => ON_CPU
                .into_iter()
                .map(|variant| {
                    let time = self.time_of(variant);
                    candidate(variant, time, &|| time)
                })
                .collect(),
            Place::Gpu(_) => KERNELS
                .iter()
                .map(|kernel| {
                    candidate(kernel.variant, self.order(kernel), &|| self.predict(kernel))
                })
                .collect(),
        };
        // The sort keeps the table's order where times are equal.
        candidates.sort_by_key(|(rank, candidate)| (candidate.declined.is_some(), *rank));
        candidates.into_iter().map(|(_, candidate)| candidate).collect()
    }

    /// How long a variant takes, whether a plan may choose it or not.
    pub(crate) fn time_of(&self, variant: Variant) -> Duration {
        match self.place {
            Place::Cpu { threads } => {
                microseconds(processor::time(self, variant.family(), threads))
            }
            Place::Gpu(_) => self.predict(kernel(variant)),
        }
    }

    /// How long the fastest of the direct family takes, whether a plan may choose it or not:
    /// gradients and weighted colours are predicted by it.
    pub(crate) fn time_of_direct(&self) -> Duration {
        // On the CPU tap by tap, as no other code of bytes takes these.
        let problem = match self.place {
            Place::Cpu { .. } => Self { rounding: None, ..*self },
            Place::Gpu(_) => *self,
        };
        let direct = Variant::all().filter(|variant| variant.family() == Family::Direct);
        let runs =
            direct.filter(|&variant| problem.place.is_cpu() || problem.runs(variant).is_ok());
        runs.map(|variant| problem.time_of(variant)).min().unwrap_or_default()
    }

    /// Whether a variant takes the problem; on the CPU, whether its code is what runs for its
    /// family.
    fn runs(&self, variant: Variant) -> Result<(), Why> {
        match self.place {
            Place::Gpu(_) => (kernel(variant).prepare)(self).map(|_| ()),
            Place::Cpu { .. } => self.has_family(variant.family()).and_then(|()| {
                match (self.way(variant.family()), variant) {
                    (None, Variant::RunningSums) => Err(Why::BYTES_ALONE),
                    (Some(Way::Counted { .. }), Variant::RunningSums) => Ok(()),
                    (_, Variant::RunningSums) => {
                        Err("the taps are not equal, or too few to be counted".into())
                    }
                    (Some(way), _) if way.variant() != variant => Err(way.why().into()),
                    _ => Ok(()),
                }
            }),
        }
    }

    /// Whether a family exists for the filter on the CPU.
    fn has_family(&self, family: Family) -> Result<(), Why> {
        match family {
            Family::Direct => Ok(()),
            Family::Separable if self.separable || self.sum.is_some() => Ok(()),
            Family::Separable => Err(Why::NOT_SEPARABLE),
            Family::Fourier => spectrum::has_room(self.cols, self.rows, self.weight),
        }
    }

    /// The variant that stands for what the CPU runs for a family.
    fn on_cpu(&self, family: Family) -> Variant {
        match (self.way(family), family) {
            (Some(way), _) => way.variant(),
            (None, Family::Direct) => Variant::DirectNaive,
            (None, Family::Separable) => Variant::Separable,
            (None, Family::Fourier) => Variant::Fourier,
        }
    }

    /// By which code the CPU makes bytes of bytes in a family; none for other types.
    pub(super) fn way(&self, family: Family) -> Option<Way> {
        let pixels = self.width * self.height;
        self.rounding.map(|rounding| rounding.on_cpu.way(family, pixels, self.side_by_side))
    }

    /// Whether the requested variant runs on the CPU, where any variant of a family that exists
    /// does.
    pub(crate) fn check_on_cpu(&self, variant: Variant) -> Result<Variant> {
        self.has_family(variant.family())
            .map(|()| variant)
            .map_err(|why| unsupported(variant, &why))
    }

    /// Whether a plan may choose a variant by its time. These rules keep a result's bits
    /// independent of which variant is fastest.
    fn rule(&self, variant: Variant) -> Result<(), Why> {
        self.may_be(variant.family())?;
        if variant == Variant::SpectraPasses && self.rounding.is_none() {
            return Err(
                "its sums have other bits than its family's, so it makes bytes that are rounded correctly alone".into(),
            );
        }
        let (Place::Gpu(_), Some(rounding)) = (self.place, self.rounding) else { return Ok(()) };
        // Of pixels of one value a sum is that value then, which is never uncertain; else all of a
        // flat part of a picture could be.
        let in_passes = self.separable && !(self.is_in_passes() && rounding.keeps_levels);
        match variant {
            Variant::Fourier if in_passes => {
                Err("a row and a column of taps leave fewer bytes uncertain".into())
            }
            Variant::Fourier if self.numbers.mean.is_some() => {
                Err("means are made of sums of pixels, whose time hardly depends on the window"
                    .into())
            }
            // Whatever the kernel, those passes would be launched in its place.
            variant if variant != Variant::Separable && self.goes_by_passes(variant) => {
                Err("bytes of such taps are made by two exact passes, as separable's".into())
            }
            _ => Ok(()),
        }
    }

    /// By what a kernel is chosen: its own time, and what a launch takes that resolves results, if
    /// it takes one; those for bytes alone have that in theirs. The rest of rounding takes all of
    /// them about as long; but sums by 2-D spectra leave many more uncertain.
    fn order(&self, kernel: &Kernel) -> Duration {
        if self.makes_bytes() && kernel.variant == Variant::Fourier {
            return self.predict(kernel);
        }
        let resolves = self.makes_bytes() && !kernel.variant.takes_bytes_alone();
        self.rank(kernel) + if resolves { microseconds(RESOLVE) } else { Duration::ZERO }
    }

    /// Microseconds to resolve such a share of a million results.
    pub(crate) fn resolving(&self, share: f64) -> f64 {
        share * (RESOLVE_EACH + RESOLVE_TAP * self.taps())
    }

    /// A kernel's own time.
    fn rank(&self, kernel: &Kernel) -> Duration {
        // Kernels without entries of their own for stored pixels read and write them one by one;
        // measured on an H200.
        let slower = match kernel.variant {
            _ if self.source == Scalar::F32 || kernel.variant.takes_bytes_alone() => 1.0,
            Variant::DirectSliding | Variant::SeparableFused => 1.0,
            Variant::Fourier if self.makes_bytes() => 1.07,
            Variant::Fourier => 1.2,
            Variant::Separable => 1.2,
            _ => 2.3,
        };
        let each = slower * (kernel.cost)(self, self.place.machine());
        let work = match kernel.variant {
            Variant::DirectSliding | Variant::SeparableFused => self.in_strips(each),
            Variant::Separable if self.makes_bytes() && self.is_in_passes() => {
                self.millions() * self.exact_passes()
            }
            _ => self.millions() * each,
        };
        let besides = BESIDES
            .iter()
            .find(|&&(variant, _)| variant == kernel.variant)
            .map_or(0.0, |&(_, time)| time);
        microseconds(LAUNCH + besides + work)
    }

    /// Microseconds of kernels that walk down strips, which take so long for a million results of a
    /// large picture: the lower the strips of a small one, the more of their rows are filtered
    /// twice; and a strip takes its rows one after the other.
    fn in_strips(&self, each: f64) -> f64 {
        let height = (1e6 * self.millions() / STRIPS).clamp(LEAST_ROWS, LARGE_ROWS);
        let rows = |height: f64| height + self.rows as f64 - 1.0;
        let twice = (rows(height) / height) / (rows(LARGE_ROWS) / LARGE_ROWS);
        (self.millions() * each * twice).max(STRIP_ROW * rows(height))
    }

    /// Whether a GPU makes the bytes of a product by exact passes.
    fn is_in_passes(&self) -> bool {
        self.goes_by_passes(Variant::Separable)
    }

    /// Whether a GPU makes bytes by exact passes where this variant was asked for.
    fn goes_by_passes(&self, variant: Variant) -> bool {
        let goes = |rounding: Rounding| {
            self.numbers.few.is_some_and(|few| rounding.share(self.order_of(variant)) > few)
        };
        !variant.takes_bytes_alone() && self.rounding.is_some_and(goes)
    }

    /// The order of a variant's f32 sums on a GPU, which bounds their error.
    fn order_of(&self, variant: Variant) -> Order {
        match variant {
            Variant::Fourier => {
                fourier::order((self.cols, self.rows), self.point, self.place.machine())
            }
            _ => variant.family().into(),
        }
    }

    /// Microseconds for a million results of exact passes.
    fn exact_passes(&self) -> f64 {
        let terms = self.sum.map_or(1, |(terms, _)| terms);
        self.place.machine().slower() * exact_passes(terms, self.cols, self.rows)
    }

    /// A kernel's time, and that of rounding.
    fn predict(&self, kernel: &Kernel) -> Duration {
        let own = matches!(kernel.variant, Variant::DirectSliding | Variant::SeparableFused);
        if kernel.variant.takes_bytes_alone() {
            return self.rank(kernel);
        }
        let Some(rounding) = self.rounding else {
            // The entries for stored pixels were measured on bytes made of bytes. Of 16 bits, some
            // are taken as they lie, too; others pass through shared memory.
            let slower = match self.source {
                Scalar::U16 | Scalar::F16 if own && takes_as_they_lie(kernel.variant, self) => 0.9,
                Scalar::F32 => 1.0,
                _ if own => 1.7,
                _ => 1.0,
            };
            return self.rank(kernel).mul_f64(slower);
        };
        if kernel.variant.family() == Family::Separable && self.is_in_passes() {
            return microseconds(2.0 * LAUNCH + self.millions() * self.exact_passes());
        }
        // Bytes of two channels are parted.
        let parted = if own && self.side_by_side == 2 { 2.0 } else { 1.0 };
        let share = match own {
            // The measured times have it in them.
            true => 0.0,
            false => rounding.share(self.order_of(kernel.variant)),
        };
        let alone =
            if 1e6 * self.millions() * share >= 1.0 { RESOLVE_ALONE * self.taps() } else { 0.0 };
        let each = (self.millions() * self.resolving(share)).max(alone);
        self.rank(kernel).mul_f64(parted) + microseconds(RESOLVE + each)
    }
}

fn microseconds(count: f64) -> Duration {
    Duration::from_secs_f64(count / 1e6)
}

fn unsupported(variant: Variant, why: &Why) -> Error {
    Error::Unsupported { variant: variant.name(), reason: why.to_string() }
}
