//! Lists of problems as tests with names, once for the CPU and once for the GPU.

use std::ops::Range;

use apron::{Device, Family, Variant};
use libtest_mimic::{Failed, Trial};
use studies::Study;

use crate::problem::Group;
use crate::product::{self, Gpu, Product};
use crate::report;
use crate::runner::{self, Tally};
use crate::sample::Kind;
use crate::select::Selection;
use crate::study::OnCpu;

/// The tests of one list of problems: `name::cpu`, `name::gpu` with images in host memory, and
/// `name::gpu-memory` for problems with results in f32. Each runs every variant of the family on
/// its device.
pub fn trials(
    name: &str,
    family: Family,
    gpu: &Gpu,
    groups: impl Fn() -> Vec<Group> + Clone + Send + 'static,
) -> [Trial; 3] {
    let variants = |device| -> Vec<_> {
        product::variants(device).into_iter().filter(|variant| variant.family() == family).collect()
    };
    let names = ["cpu", "gpu", "gpu-memory"].map(|place| format!("{name}::{place}"));
    let on = |name: &str, device| {
        let (name, groups, products) =
            (name.to_owned(), groups.clone(), products(&variants(device), device));
        move || check(&name, &products, &groups())
    };
    let (on_cpu, on_gpu) = (on(&names[0], Device::Cpu), on(&names[1], Gpu::DEVICE));
    let in_memory = {
        let (name, variants) = (names[2].clone(), variants(Gpu::DEVICE));
        move || in_device_memory(&name, &variants, groups())
    };
    [
        Trial::test(&names[0], on_cpu),
        gpu_trial(&names[1], gpu, on_gpu),
        gpu_trial(&names[2], gpu, in_memory),
    ]
}

fn products(variants: &[Variant], device: Device) -> Vec<Product> {
    variants.iter().map(|&variant| Product { variant: Some(variant), device }).collect()
}

/// The tests of one list of problems for studies, which take only problems with results in f32:
/// `name::cpu`, `name::gpu-memory`, and `name::gpu-rows` with channels interleaved row by row.
pub fn trials_of_studies(
    name: &str,
    studies: &'static [Study],
    gpu: &Gpu,
    groups: impl Fn() -> Vec<Group> + Clone + Send + 'static,
) -> [Trial; 3] {
    let [cpu, memory, rows] =
        ["cpu", "gpu-memory", "gpu-rows"].map(|place| format!("{name}::{place}"));
    let on_cpu = {
        let (name, groups) = (cpu.clone(), groups.clone());
        let studies: Vec<_> = studies.iter().map(|&study| OnCpu(study)).collect();
        move || check(&name, &studies, &in_f32(groups()))
    };
    let on_gpu = |name: &str, by_rows| {
        let (name, groups) = (name.to_owned(), groups.clone());
        gpu_trial(&name.clone(), gpu, move || {
            studies_in_device_memory(&name, studies, by_rows, groups())
        })
    };
    [Trial::test(&cpu, on_cpu), on_gpu(&memory, false), on_gpu(&rows, true)]
}

/// The problems with results in f32.
fn in_f32(mut groups: Vec<Group>) -> Vec<Group> {
    for group in &mut groups {
        group.problems.retain(|problem| problem.output == Kind::F32);
    }
    groups
}

#[cfg(feature = "cust")]
fn in_device_memory(name: &str, variants: &[Variant], groups: Vec<Group>) -> Result<(), Failed> {
    let on = |interleaved| move |&variant| crate::product::OnDevice { variant, interleaved };
    // These have kernels of their own for interleaved channels.
    let own = [Variant::DirectSliding, Variant::SeparableFused];
    let own = variants.iter().filter(|variant| own.contains(variant)).map(on(true));
    let all: Vec<_> = variants.iter().map(on(false)).chain(own).collect();
    check(name, &all, &in_f32(groups))
}

#[cfg(not(feature = "cust"))]
fn in_device_memory(_: &str, _: &[Variant], _: Vec<Group>) -> Result<(), Failed> {
    no_gpu()
}

#[cfg(feature = "cust")]
fn studies_in_device_memory(
    name: &str,
    studies: &[Study],
    by_rows: bool,
    groups: Vec<Group>,
) -> Result<(), Failed> {
    let studies: Vec<_> =
        studies.iter().map(|&study| crate::study::OnDevice { study, by_rows }).collect();
    check(name, &studies, &in_f32(groups))
}

#[cfg(not(feature = "cust"))]
fn studies_in_device_memory(_: &str, _: &[Study], _: bool, _: Vec<Group>) -> Result<(), Failed> {
    no_gpu()
}

/// Replaces a test that a build without these kernels does not have.
///
/// # Errors
/// Always.
#[cfg(not(feature = "cust"))]
pub fn no_gpu() -> Result<(), Failed> {
    Err("this build has no GPU support".into())
}

/// A test that needs the GPU: ignored if there is none, and failed at once if there is one that
/// does not work.
pub fn gpu_trial(
    name: &str,
    gpu: &Gpu,
    test: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let missing = match gpu {
        Gpu::Ready => return Trial::test(name, test),
        Gpu::Missing(reason) | Gpu::Broken(reason) => reason.clone(),
    };
    let ignored = matches!(gpu, Gpu::Missing(_));
    Trial::test(name, move || Err(missing.into())).with_ignored_flag(ignored)
}

/// Four tests that need the GPU, each with a quarter of the problems by number: 6,000 in all in the
/// full selection.
pub fn quarters(
    name: &str,
    selection: Selection,
    gpu: &Gpu,
    test: fn(Range<usize>) -> Result<(), Failed>,
) -> impl Iterator<Item = Trial> {
    let count: usize = match selection {
        Selection::Full => 6000,
        Selection::Small => 60,
        Selection::Emulated => 400,
    };
    (0..4).map(move |number| {
        let numbers = number * count / 4..(number + 1) * count / 4;
        gpu_trial(&format!("{name}_{number}::gpu"), gpu, move || test(numbers))
    })
}

/// Runs the groups, and fails with the first few failures, or if an implementation solved nothing.
pub fn check<I: runner::Implementation>(
    name: &str,
    implementations: &[I],
    groups: &[Group],
) -> Result<(), Failed> {
    let started = std::time::Instant::now();
    let tally = runner::run_into(Tally::reporting(report::folder()), implementations, groups);
    let solved = tally.verdict(implementations)?;
    println!("{name}: {solved} runs in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}
