//! Lists of problems as tests with names, once for the CPU and once for the GPU.

use apron::{Device, Family};
use libtest_mimic::{Failed, Trial};

use crate::problem::Group;
use crate::product::{Gpu, Product};
use crate::runner;

/// The two tests of one list of problems: `name::cpu` and `name::gpu`. Both run every variant of the family.
pub fn trials(
    name: &str,
    family: Family,
    gpu: &Gpu,
    groups: impl Fn() -> Vec<Group> + Clone + Send + 'static,
) -> [Trial; 2] {
    let on = |device: Device| {
        let (name, groups) = (format!("{name}::{device}"), groups.clone());
        move || check(&name, &Product::family(family, device), &groups())
    };
    [Trial::test(format!("{name}::cpu"), on(Device::Cpu)), gpu_trial(&format!("{name}::gpu"), gpu, on(Gpu::DEVICE))]
}

/// A test that needs the GPU: ignored where there is none, failed at once where there is one that does not work.
pub fn gpu_trial(name: &str, gpu: &Gpu, test: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    let missing = match gpu {
        Gpu::Ready => return Trial::test(name, test),
        Gpu::Missing(reason) | Gpu::Broken(reason) => reason.clone(),
    };
    let ignored = matches!(gpu, Gpu::Missing(_));
    Trial::test(name, move || Err(missing.into())).with_ignored_flag(ignored)
}

/// Runs the groups, and fails with the first few failures, or if an implementation solved nothing.
pub fn check<I: runner::Implementation>(name: &str, implementations: &[I], groups: &[Group]) -> Result<(), Failed> {
    let started = std::time::Instant::now();
    let solved = runner::run(implementations, groups).verdict(implementations)?;
    eprintln!("{name}: {solved} runs in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}
