//! The variant table against the PTX that the build embedded, and against itself.

use std::collections::BTreeSet;

use apron::{Family, Variant};
use libtest_mimic::{Failed, Trial};

use crate::{direct, ladder, separable};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("table::names", names),
        Trial::test("table::every_size_is_tested", sizes),
        Trial::test("table::kernels_stand_alone", stand_alone),
        Trial::test("table::embedded_ptx", embedded).with_ignored_flag(cfg!(not(feature = "gpu"))),
    ]
}

fn names() -> Result<(), Failed> {
    let names: Vec<&str> = Variant::all().map(Variant::name).collect();
    if names.iter().collect::<BTreeSet<_>>().len() != names.len() {
        return Err(format!("two variants share a name: {names:?}").into());
    }
    for variant in Variant::all() {
        if variant.name().parse::<Variant>()? != variant {
            return Err(format!("{variant} reads as another variant").into());
        }
        if variant.entries().next().is_none() || variant.summary().is_empty() {
            return Err(format!("{variant} has no entry or no summary").into());
        }
    }
    Ok(())
}

/// An entry compiled for one window size, as its name's last part says, is launched by the family's list: a square window
/// of that size, anchor in the middle, is in it.
fn sizes() -> Result<(), Failed> {
    for variant in Variant::all() {
        let windows = match variant.family() {
            _ if variant.study().is_some() => ladder::windows(),
            Family::Direct => direct::windows(),
            Family::Separable => separable::windows(),
            _ => continue,
        };
        for entry in variant.entries() {
            let Some(size) = entry.rsplit('_').next().and_then(|part| part.parse().ok()) else { continue };
            let middle = (size / 2, size / 2);
            if !windows.iter().any(|window| (window.cols, window.rows, window.anchor) == (size, size, middle)) {
                return Err(format!("{entry}: no {size}x{size} window is in the lists").into());
            }
        }
    }
    Ok(())
}

/// The package that becomes PTX has no dependency and no feature: nothing of the emulator can come into it.
fn stand_alone() -> Result<(), Failed> {
    let manifest = include_str!("../../gpu-kernels/Cargo.toml");
    let sections: Vec<_> = manifest.lines().filter(|line| line.starts_with('[')).collect();
    if sections == ["[package]", "[lib]", "[lints]"] {
        Ok(())
    } else {
        Err(format!("gpu-kernels: {sections:?}").into())
    }
}

#[cfg(feature = "gpu")]
fn embedded() -> Result<(), Failed> {
    // One entry filters nothing: it measures the device.
    let table: BTreeSet<&str> = Variant::all().flat_map(Variant::entries).chain(["fma_peak"]).collect();
    let studies: BTreeSet<&str> =
        Variant::all().filter(|variant| variant.study().is_some()).flat_map(Variant::entries).collect();
    let mut tiers = BTreeSet::new();
    for tier in apron::gpu::embedded() {
        let arch = tier.arch;
        tiers.insert(arch);
        let embedded: BTreeSet<&str> = tier.entries.iter().map(|&(entry, _)| entry).collect();
        for (what, list) in [
            ("in no variant", embedded.difference(&table).collect::<Vec<_>>()),
            ("not embedded", table.difference(&embedded).collect()),
        ] {
            if !list.is_empty() {
                return Err(format!("sm_{arch}: {what}: {list:?}").into());
            }
        }
        for &(entry, ptx) in tier.entries {
            for part in [format!(".entry {entry}("), format!(".target sm_{arch}")] {
                if !ptx.contains(&part) {
                    return Err(format!("sm_{arch}: the module of {entry} does not contain \"{part}\"").into());
                }
            }
            // Kernels have nothing to panic about; a call would be of something that was not inlined.
            if let Some(word) = ["trap;", "call"].into_iter().find(|word| ptx.contains(word)) {
                return Err(format!("sm_{arch}: {entry}: its PTX contains \"{word}\"").into());
            }
            // No study's kernel has a second one in its source. A copy in each branch of a condition lets a warp hang.
            if studies.contains(entry) && ptx.matches("bar.sync").count() > 1 {
                return Err(format!("sm_{arch}: {entry}: its barrier was copied").into());
            }
        }
    }
    // A portable tier and one for Hopper, at least.
    if tiers.len() < 2 || !tiers.contains(&75) || !tiers.contains(&90) {
        return Err(format!("tiers {tiers:?}: at least 75 and 90 are wanted").into());
    }
    Ok(())
}

#[cfg(not(feature = "gpu"))]
fn embedded() -> Result<(), Failed> {
    Err("this build embeds no PTX".into())
}
