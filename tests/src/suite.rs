//! Lists of problems as tests with names, once for the CPU and once for the GPU.

use apron::{Device, Family, Variant};
use libtest_mimic::{Failed, Trial};

use crate::problem::Group;
use crate::product::{self, Gpu, Product};
use crate::report;
use crate::runner::{self, Tally};

/// The tests of one list of problems: `name::cpu`, `name::gpu` with images in host memory, and `name::gpu-memory`, which
/// takes those with results in f32. Each runs every variant that the family has there, but for studies.
pub fn trials(
    name: &str,
    family: Family,
    gpu: &Gpu,
    groups: impl Fn() -> Vec<Group> + Clone + Send + 'static,
) -> [Trial; 3] {
    let variants = |device| -> Vec<_> {
        product::variants(device).into_iter().filter(|variant| variant.family() == family).collect()
    };
    let on_cpu = {
        let (name, groups) = (format!("{name}::cpu"), groups.clone());
        let products = products(&variants(Device::Cpu), Device::Cpu);
        Trial::test(name.clone(), move || check(&name, &products, &groups()))
    };
    let [on_gpu, in_memory] = trials_of(name, &variants(Gpu::DEVICE), gpu, groups);
    [on_cpu, on_gpu, in_memory]
}

/// As [`trials`], for some variants, on a GPU alone.
pub fn trials_of(
    name: &str,
    variants: &[Variant],
    gpu: &Gpu,
    groups: impl Fn() -> Vec<Group> + Clone + Send + 'static,
) -> [Trial; 2] {
    let names = ["gpu", "gpu-memory"].map(|place| format!("{name}::{place}"));
    let on_gpu = {
        let (name, groups, products) = (names[0].clone(), groups.clone(), products(variants, Gpu::DEVICE));
        move || check(&name, &products, &groups())
    };
    let in_memory = {
        let (name, variants) = (names[1].clone(), variants.to_vec());
        move || in_device_memory(&name, &variants, false, groups())
    };
    [gpu_trial(&names[0], gpu, on_gpu), gpu_trial(&names[1], gpu, in_memory)]
}

fn products(variants: &[Variant], device: Device) -> Vec<Product> {
    variants.iter().map(|&variant| Product { variant: Some(variant), device }).collect()
}

/// The test `name::gpu-rows`, as `name::gpu-memory` with images whose channels take turns row by row.
pub fn by_rows(
    name: &str,
    variants: &'static [Variant],
    gpu: &Gpu,
    groups: impl Fn() -> Vec<Group> + Send + 'static,
) -> Trial {
    let name = format!("{name}::gpu-rows");
    gpu_trial(&name.clone(), gpu, move || in_device_memory(&name, variants, true, groups()))
}

#[cfg(feature = "gpu")]
fn in_device_memory(name: &str, variants: &[Variant], by_rows: bool, mut groups: Vec<Group>) -> Result<(), Failed> {
    use crate::product::OnDevice;
    use crate::sample::Kind;

    for group in &mut groups {
        group.problems.retain(|problem| problem.output == Kind::F32);
    }
    let variants: Vec<_> = variants.iter().map(|&variant| OnDevice { variant, by_rows }).collect();
    check(name, &variants, &groups)
}

#[cfg(not(feature = "gpu"))]
fn in_device_memory(_: &str, _: &[Variant], _: bool, _: Vec<Group>) -> Result<(), Failed> {
    no_gpu()
}

/// In the place of a test that a build without the feature `gpu` does not have.
///
/// # Errors
/// Always.
#[cfg(not(feature = "gpu"))]
pub fn no_gpu() -> Result<(), Failed> {
    Err("this build has no GPU support".into())
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
    let tally = runner::run_into(Tally::reporting(report::folder()), implementations, groups);
    let solved = tally.verdict(implementations)?;
    println!("{name}: {solved} runs in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}
