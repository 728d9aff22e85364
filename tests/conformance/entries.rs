//! Every entry once, at a small awkward shape: tiles that the image leaves a part of, windows that leave the image, grids that end
//! before it does. The list that `conformance sanitize` runs under compute-sanitizer.

#[cfg(feature = "gpu")]
use std::collections::BTreeSet;

use apron::Family;
#[cfg(feature = "gpu")]
use apron::{Border, Variant};
#[cfg(feature = "gpu")]
use conformance::problem::{Group, Problem, Window};
use conformance::product::Gpu;
#[cfg(feature = "gpu")]
use conformance::product::OnDevice;
#[cfg(feature = "gpu")]
use conformance::select;
use conformance::suite;
use libtest_mimic::{Failed, Trial};
#[cfg(feature = "gpu")]
use studies::Study;

#[cfg(feature = "gpu")]
use crate::ladder;

/// What the names of these tests begin with.
pub(crate) const NAME: &str = "entries::";

pub(crate) fn trials(gpu: &Gpu) -> Vec<Trial> {
    let family = |name: &str, family| {
        let name = format!("{NAME}{name}::gpu");
        suite::gpu_trial(&name.clone(), gpu, move || of_family(&name, family))
    };
    vec![
        family("direct", Family::Direct),
        family("separable", Family::Separable),
        family("fourier", Family::Fourier),
        suite::gpu_trial(&format!("{NAME}studies::gpu"), gpu, of_studies),
    ]
}

#[cfg(not(feature = "gpu"))]
fn of_family(_: &str, _: Family) -> Result<(), Failed> {
    suite::no_gpu()
}

#[cfg(not(feature = "gpu"))]
fn of_studies() -> Result<(), Failed> {
    suite::no_gpu()
}

/// The number of taps that an entry has been compiled for, as the last part of its name says.
#[cfg(feature = "gpu")]
fn size_of(entry: &str) -> Option<usize> {
    entry.rsplit('_').next().and_then(|part| part.parse().ok())
}

/// One problem for each of a variant's entries, and for those that take any window.
#[cfg(feature = "gpu")]
fn groups(variant: Variant) -> Vec<Group> {
    let window = |cols, rows| match variant.family() {
        Family::Separable => Window::random_pair(cols, rows, 4000 + cols as u64),
        _ => Window::random(cols, rows, 4000 + cols as u64),
    };
    let sizes: BTreeSet<usize> = variant.entries().filter_map(size_of).collect();
    // A block's tile or a warp's strip, and some; and the windows that no entry has been compiled for.
    let (size, others): ((usize, usize), &[(usize, usize)]) = match variant {
        Variant::DirectNaive | Variant::DirectConstant => ((35, 29), &[(4, 3)]),
        Variant::DirectShared | Variant::DirectUnrolled => ((35, 29), &[(4, 3), (33, 32)]),
        Variant::DirectSliding | Variant::SeparableFused => ((131, 19), &[]),
        Variant::Separable => ((259, 67), &[(4, 6), (260, 2), (2, 260)]),
        // Tiles in pairs, and a window in parts.
        _ => ((251, 125), &[(5, 5), (100, 3)]),
    };
    let sized = sizes.iter().filter(|_| variant.family() != Family::Fourier).map(|&taps| window(taps, taps));
    let windows: Vec<_> =
        sized.chain(others.iter().map(|&(cols, rows)| window(cols, rows).anchored(0, rows - 1))).collect();
    let group = |(i, window): (usize, Window)| {
        // The first has pixels to be copied, by a kernel of their own.
        let border = [Border::Keep, Border::Reflect, Border::Constant(-7.25), Border::Wrap][i % 4];
        let problem = Problem::new(size.0, size.1, select::seed(51, i)).gaps(0, i % 2);
        Group { window, border, problems: vec![problem] }
    };
    windows.into_iter().enumerate().map(group).collect()
}

#[cfg(feature = "gpu")]
fn of_family(name: &str, family: Family) -> Result<(), Failed> {
    let variants = || Variant::all().filter(|variant| variant.family() == family);
    for variant in variants() {
        suite::check(&format!("{name}, {variant}"), &[OnDevice { variant }], &groups(variant))?;
    }
    launched(variants().flat_map(Variant::entries))
}

#[cfg(feature = "gpu")]
fn of_studies() -> Result<(), Failed> {
    for (studies, groups) in ladder::of_entries() {
        let on_device: Vec<_> =
            studies.iter().map(|&study| conformance::study::OnDevice { study, by_rows: false }).collect();
        suite::check(&format!("{NAME}studies, {}", studies[0]), &on_device, &groups)?;
    }
    launched(Study::all().flat_map(Study::entries))
}

/// Whether this process has launched them all.
#[cfg(feature = "gpu")]
fn launched(entries: impl Iterator<Item = &'static str>) -> Result<(), Failed> {
    // The larger of these that a block has shared memory for stands for both.
    let one = |entry| if entry == "fourier_64" { "fourier_128" } else { entry };
    let launches = apron::gpu::Gpu::open(0)?.launches();
    let launched: BTreeSet<_> = launches.into_iter().map(|(entry, _)| one(entry)).collect();
    let missing: BTreeSet<_> = entries.map(one).filter(|entry| !launched.contains(entry)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("never launched: {missing:?}").into()) }
}
