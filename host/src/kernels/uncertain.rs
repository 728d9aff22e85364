//! Which bytes a kernel's sums leave uncertain, what resolves them, and how long that takes.

#[cfg(feature = "gpu")]
use gpu_kernels::abi::UncertainList;

use super::fourier::size;
use crate::filter::ByteFilter;
#[cfg(feature = "gpu")]
use crate::gpu::stream::Stream;
use crate::problem::machine::{self, Machine, Time};
use crate::problem::{Numbers, Problem};
use crate::round::{self, Bound, Order};
use crate::spectrum::folded::LeftOut;
use crate::{Family, Filter, Variant, Why};

/// How bytes are rounded where a kernel tests its sums and lists the uncertain results.
#[derive(Clone, Debug)]
pub(crate) struct Uncertainty {
    /// A sum at least this far from an integer is uncertain; `None` if no sum ever is.
    pub(crate) near: Option<f32>,
    /// The share of results that are uncertain if sums are spread evenly.
    share: f64,
    /// The share of results that the list has room for at least.
    least: f64,
    /// When exact passes compute all results, if ever.
    pub(crate) passes: Option<Exactly>,
}

/// When exact passes compute all results: see `passes.rs`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Exactly {
    /// Always, without an estimate.
    Always,
    /// If more than this share of an estimate's results are uncertain.
    Beyond(f64),
}

impl Uncertainty {
    /// No result is uncertain.
    pub(crate) const NONE: Self = Self { near: None, share: 0.0, least: 0.0, passes: None };

    /// For a variant's kernel and a filter over bytes, on a machine.
    #[cfg(feature = "gpu")]
    pub(crate) fn new(variant: Variant, filter: &Filter, machine: &Machine) -> crate::Result<Self> {
        let numbers = *filter.fact::<Numbers>();
        let share = match variant {
            Variant::Matrix => numbers.window.map(|digits| digits.share),
            Variant::SeparableMatrix => numbers.terms,
            Variant::SpectraPasses => numbers.lines.map(|error| 2.0 * error),
            _ => return Self::of_f32(variant, filter, numbers.few, machine),
        };
        let ByteFilter { filter: view, .. } = filter.byte_filter()?;
        Ok(match share.filter(|&share| share > 0.0) {
            None => Self::NONE,
            Some(share) => {
                Self { passes: numbers.few.map(Exactly::Beyond), ..Self::of_share(view, share) }
            }
        })
    }

    /// For kernels that test their sums against a bound of their own, which leaves this share of
    /// results uncertain; of the taps as bytes have them.
    #[cfg(feature = "gpu")]
    pub(crate) fn of_share(view: &Filter, share: f64) -> Self {
        let ties = round::ties(view);
        let least = least_listed(view, ties);
        Self { near: Some(1.0), share: share.max(ties), least, passes: None }
    }

    /// For sums in f32, and the share of results from which exact passes are faster: see [`few`].
    #[cfg(feature = "gpu")]
    fn of_f32(
        variant: Variant,
        filter: &Filter,
        few: Option<f64>,
        machine: &Machine,
    ) -> crate::Result<Self> {
        let ByteFilter { filter: view, .. } = filter.byte_filter()?;
        let (size, ties) = ((view.cols(), view.rows()), round::ties(view));
        let point = view.fact::<LeftOut>().point;
        let order = order(variant, size, point != 0.0, machine);
        let Bound { in_f32: error, tame, .. } = Bound::of(view, order);
        let near = round::limit(error, tame);
        let share = (2.0 * error).min(1.0).max(ties);
        let passes = near.and(few).map(|few| match share > few {
            true => Exactly::Always,
            false => Exactly::Beyond(few),
        });
        Ok(Self { near, share, least: least_listed(view, ties), passes })
    }

    /// For results of either kind: those uncertain by one of them are.
    #[cfg(feature = "gpu")]
    pub(crate) fn or(&self, other: &Self) -> Self {
        let near = match (self.near, other.near) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        let (share, least) = (self.share.max(other.share), self.least.max(other.least));
        Self { near, share, least, passes: None }
    }

    /// A list for so many results; [`UncertainList::NONE`] if none is ever uncertain.
    #[cfg(feature = "gpu")]
    pub(crate) fn list(&self, results: usize, stream: &mut Stream) -> crate::Result<UncertainList> {
        let places = || self.places(results, UncertainList::SEGMENTS as usize);
        self.near.map_or(Ok(UncertainList::NONE), |near| stream.uncertain(places(), near))
    }

    /// A list with room for a share of the results.
    #[cfg(feature = "gpu")]
    pub(crate) fn listing(least: f64) -> Self {
        Self { near: Some(1.0), least, ..Self::NONE }
    }

    /// Places in each of the list's `segments` for `results`: four times the expected number, at
    /// least the share of [`least_listed`].
    pub(crate) fn places(&self, results: usize, segments: usize) -> u32 {
        const LIMIT: f64 = 16384.0;
        let evenly = results as f64 / segments as f64;
        ((4.0 * self.share).max(self.least) * evenly + 64.0).min(evenly + 4.0).min(LIMIT) as u32
    }
}

/// The order of a variant's f32 sums on a machine, for a window of so many columns and rows, which
/// bounds their error.
pub(crate) fn order(
    variant: Variant,
    window: (usize, usize),
    leaves_point_out: bool,
    machine: &Machine,
) -> Order {
    match variant.family() {
        Family::Fourier => size::order(window, leaves_point_out, machine),
        family => family.into(),
    }
}

/// The share of a problem's bytes that f32 sums in this order leave uncertain, if sums are spread
/// evenly.
pub(super) fn share(problem: &Problem, order: Order) -> f64 {
    problem.rounding.map_or(0.0, |rounding| rounding.share(order))
}

/// Whether exact passes make a problem's bytes in place of this variant.
pub(crate) fn goes_by_passes(problem: &Problem, variant: Variant) -> bool {
    let order =
        order(variant, (problem.cols, problem.rows), problem.point, problem.place.machine());
    let is_more = |few: f64| share(problem, order) > few;
    problem.rounding.is_some() && problem.numbers.few.is_some_and(is_more)
}

/// The rule of kernels that estimate bytes: exact passes must not take their place.
pub(super) fn estimates(problem: &Problem, variant: Variant) -> Result<(), Why> {
    if goes_by_passes(problem, variant) {
        return Err(
            "for these taps, u8 results come from the two integer passes of separable".into()
        );
    }
    Ok(())
}

/// Resolving `share` of a million results: 1920x1080x3 and 4000x3000x3 u8, Gaussians of sigma 4 to
/// 20.
pub(super) fn resolving(problem: &Problem, share: f64) -> Time {
    const RESULT: f64 = 200.0;
    const TAP: f64 = 1.0;
    let measured = share * (RESULT + TAP * problem.taps());
    problem.place.machine().time(machine::Bound::Integers, 0.0, measured)
}

/// Microseconds of exact passes for a million results. Measured with 801 and 8001 taps on
/// 8192x8192, an H100.
pub(crate) fn exact_passes(terms: usize, cols: usize, rows: usize) -> f64 {
    const RESULT: f64 = 6.0;
    const ROW_TAP: f64 = 0.025;
    const COLUMN_TAP: f64 = 0.125;
    RESULT + terms as f64 * (ROW_TAP * (cols + 15) as f64 + COLUMN_TAP * (rows + 15) as f64)
}

/// The share of uncertain results above which exact passes over all results are faster than
/// resolving each; `None` if they do not take the filter or are hardly ever faster.
pub(crate) fn few(filter: &Filter) -> Option<f64> {
    /// Microseconds to resolve a million results, for each tap, by counted instructions on an H200.
    const RESOLVE: f64 = 0.09;
    let terms = filter.byte_filter().ok()?.whole.two_terms()?.len();
    let (cols, rows) = (filter.cols(), filter.rows());
    let share = exact_passes(terms, cols, rows) / (RESOLVE * cols as f64 * rows as f64);
    (share < 0.5).then_some(share)
}

/// The share of results that the list has room for at least. Pictures have areas where all results
/// are uncertain; a list that is too short costs a pass over all of them.
fn least_listed(filter: &Filter, ties: f64) -> f64 {
    /// For sums that are often ties: pictures of two values and gradients have many.
    const TIES: f64 = 0.2;
    /// For a row or a column of taps: over equal pixels a result is one of 256 sums, which is
    /// uncertain everywhere or nowhere.
    const LINE: f64 = 0.06;
    const LEAST: f64 = 0.01;
    if ties > 0.0 {
        TIES
    } else if filter.cols() == 1 || filter.rows() == 1 {
        LINE
    } else {
        LEAST
    }
}
