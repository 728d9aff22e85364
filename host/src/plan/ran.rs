//! What calls have launched: noted at the launch, kept for the calling thread.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{Device, Variant};

/// What computed a plan's results: see [`Plan::ran`](crate::Plan::ran).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ran {
    /// A variant. On the CPU, it stands for the code that all variants of its family run:
    /// `direct-naive`, `separable`, `fourier`, or `running-sums` for means of bytes.
    Variant(Variant),
    /// A gradient's kernel.
    Gradient,
    /// The kernel that weighs colours by their alpha.
    Weighted,
    /// Sums over known pixels: see [`Plan::run_masked`](crate::Plan::run_masked).
    Masked,
    /// Sums of light: see [`Light`](crate::Light).
    Light,
    /// Passes in f64: see [`Plan::run_f64`](crate::Plan::run_f64).
    InF64,
}

/// A variant's name, `gradient`, `weighted by alpha`, `known pixels`, `linear light` or `passes in
/// f64`.
impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Variant(variant) => variant.fmt(f),
            Self::Gradient => f.pad("gradient"),
            Self::Weighted => f.pad("weighted by alpha"),
            Self::Masked => f.pad("known pixels"),
            Self::Light => f.pad("linear light"),
            Self::InF64 => f.pad("passes in f64"),
        }
    }
}

impl Ran {
    fn all() -> impl Iterator<Item = Self> {
        let others = [Self::Gradient, Self::Weighted, Self::Masked, Self::Light, Self::InF64];
        Variant::all().map(Self::Variant).chain(others)
    }
}

/// What one call launches for one plan, noted from any thread: a bit for each of [`Ran::all`].
#[derive(Debug, Default)]
pub(crate) struct Launched(AtomicU32);

impl Launched {
    pub(crate) fn note(&self, ran: Ran) {
        let bit = Ran::all().take_while(|&other| other != ran).count();
        // Read after the noting threads have been joined.
        self.0.fetch_or(1 << bit, Ordering::Relaxed);
    }
}

/// The last call of a thread.
struct Last {
    /// Its place, if the plans may choose.
    device: Device,
    /// The bits of [`Launched`] for each of its plans, by number.
    plans: Vec<(u64, u32)>,
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last { device: Device::Cpu, plans: Vec::new() }) };
}

/// A number that no other plan of the process has.
pub(super) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Keeps what a call of these plans has launched, and its place if they may choose.
pub(super) fn keep<'l>(device: Option<Device>, plans: impl Iterator<Item = (u64, &'l Launched)>) {
    LAST.with_borrow_mut(|last| {
        last.device = device.unwrap_or(last.device);
        last.plans.clear();
        last.plans
            .extend(plans.map(|(number, launched)| (number, launched.0.load(Ordering::Relaxed))));
    });
}

/// As [`keep`], for a call in f64 of the plans with these numbers.
pub(super) fn keep_in_f64(numbers: impl Iterator<Item = u64>) {
    let launched = Launched::default();
    launched.note(Ran::InF64);
    keep(Some(Device::Cpu), numbers.map(|number| (number, &launched)));
}

/// As [`keep`], for a call on images in a GPU's memory.
#[cfg(feature = "gpu")]
pub(super) fn keep_one(number: u64, ran: Ran) {
    let launched = Launched::default();
    launched.note(ran);
    keep(None, [(number, &launched)].into_iter());
}

/// The place of this thread's last call of plans that may choose.
pub(super) fn last_device() -> Device {
    LAST.with_borrow(|last| last.device)
}

/// What this thread's last call has launched for the plan with this number; nothing if it was a
/// call of other plans.
pub(super) fn of_plan(number: u64) -> Vec<Ran> {
    let bits = LAST.with_borrow(|last| {
        last.plans.iter().find(|(other, _)| *other == number).map_or(0, |plan| plan.1)
    });
    Ran::all().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, ran)| ran).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_bit_and_its_thread() {
        assert!(Ran::all().count() <= u32::BITS as usize);
        let (first, second) = (number(), number());
        for ran in Ran::all() {
            let launched = [Launched::default(), Launched::default()];
            launched[0].note(ran);
            launched[1].note(Ran::Gradient);
            keep(None, [first, second].into_iter().zip(&launched));
            assert_eq!((of_plan(first), of_plan(second)), (vec![ran], vec![Ran::Gradient]));
            assert_eq!(std::thread::spawn(move || of_plan(first)).join().unwrap(), []);
        }
        keep(None, [(second, &Launched::default())].into_iter());
        assert_eq!((of_plan(first), of_plan(second)), (vec![], vec![]));
    }
}
