//! Compares the tables of variants and of studies with the PTX that the build embedded, and checks
//! that they are consistent.

use std::collections::BTreeSet;

use apron::{Family, Variant};
use libtest_mimic::{Failed, Trial};
use studies::Study;

use crate::{direct, ladder, separable};

/// The entries that belong to no variant. A plan launches them before, after or instead of a
/// variant's.
#[cfg(feature = "gpu")]
pub(crate) const SHARED: [&str; 43] = [
    "array_converted",
    "array_in_order",
    "array_joined",
    "array_paired",
    "array_running",
    "copy_pixels",
    "keep_nearly_same",
    "bytes_of_light",
    "known_bytes",
    "known_exactly",
    "known_results",
    "known_weigh",
    "light_exactly",
    "light_of_bytes",
    "light_of_values",
    "values_of_light",
    "resolve_table",
    "resolve_products",
    "passes_rows",
    "passes_columns",
    "passes_verdict",
    "resolve_each",
    "separable_rows_each",
    "separable_columns_each",
    "separable_tile_each",
    "separable_matrix_each_17_one",
    "separable_matrix_each_17_two",
    "separable_matrix_each_17_three",
    "separable_matrix_each",
    "separable_matrix_each_rgb",
    "separable_matrix_each_rgba",
    "gradient",
    "gradient_8bit",
    "gradient_16bit",
    "gradient_flat_c1",
    "gradient_flat_c3",
    "gradient_flat_c4",
    "gradient_floats_c1",
    "gradient_floats_c3",
    "gradient_floats_c4",
    "gradient_any",
    "weighted",
    "weighted_bytes",
];

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
    let names: BTreeSet<&str> = Study::all().map(Study::name).collect();
    if names.len() != Study::all().count() {
        return Err(format!("two studies share a name: {names:?}").into());
    }
    for study in Study::all() {
        if study.name().parse::<Study>()? != study {
            return Err(format!("{study} reads as another study").into());
        }
        if study.entries().next().is_none()
            || study.summary().is_empty()
            || study.document().is_empty()
        {
            return Err(format!("{study} has no entry, no summary or no document").into());
        }
    }
    Ok(())
}

/// If an entry is compiled for one window size, as the last part of its name says, the family's
/// list launches it: the list has a square window of that size with the anchor in the middle.
fn sizes() -> Result<(), Failed> {
    let variants = Variant::all().filter_map(|variant| match variant.family() {
        Family::Direct => Some((variant.entries().collect::<Vec<_>>(), direct::windows())),
        Family::Separable => Some((variant.entries().collect(), separable::windows())),
        _ => None,
    });
    let studies = Study::all().map(|study| (study.entries().collect(), ladder::windows()));
    for (entries, windows) in variants.chain(studies) {
        for entry in entries {
            let Some(size) = entry.rsplit('_').next().and_then(|part| part.parse().ok()) else {
                continue;
            };
            let middle = (size / 2, size / 2);
            if !windows
                .iter()
                .any(|window| (window.cols, window.rows, window.anchor) == (size, size, middle))
            {
                return Err(format!("{entry}: no {size}x{size} window is in the lists").into());
            }
        }
    }
    Ok(())
}

/// The packages that become PTX have no dependency and no feature: no code of the emulator can get
/// into them.
fn stand_alone() -> Result<(), Failed> {
    for (name, manifest) in [
        ("gpu-kernels", include_str!("../../gpu-kernels/Cargo.toml")),
        ("study-kernels", include_str!("../../studies/kernels/Cargo.toml")),
    ] {
        let sections: Vec<_> = manifest.lines().filter(|line| line.starts_with('[')).collect();
        if sections != ["[package]", "[lib]", "[lints]"] {
            return Err(format!("{name}: {sections:?}").into());
        }
    }
    Ok(())
}

#[cfg(feature = "gpu")]
fn embedded() -> Result<(), Failed> {
    // The entry `fma_peak` filters nothing: it measures the device.
    let own: BTreeSet<&str> =
        Variant::all().flat_map(Variant::entries).chain(SHARED).chain(["fma_peak"]).collect();
    let (aprons, studies): (Vec<_>, Vec<_>) = Study::all().partition(|study| study.is_aprons());
    let launched: BTreeSet<&str> = aprons.into_iter().flat_map(Study::entries).collect();
    if !launched.is_subset(&own) {
        return Err(format!("apron has not all of {launched:?}").into());
    }
    hold(apron::gpu::embedded(), &own)?;
    hold(studies::kernels(), &studies.into_iter().flat_map(Study::entries).collect())?;
    for kernel in studies::kernels().iter().flat_map(|tier| tier.entries) {
        // No kernel of a study has two barriers in its source. If the compiler copies a barrier
        // into both branches of a condition, a warp can hang.
        if kernel.ptx()?.matches("bar.sync").count() > 1 {
            return Err(format!("{}: its barrier was copied", kernel.name).into());
        }
    }
    Ok(())
}

/// Compares a set of kernels with the entries of a table.
#[cfg(feature = "gpu")]
fn hold(set: &[apron::gpu::Tier], table: &BTreeSet<&str>) -> Result<(), Failed> {
    let mut tiers = BTreeSet::new();
    for tier in set {
        let arch = tier.arch;
        tiers.insert(arch);
        let embedded: BTreeSet<&str> = tier.entries.iter().map(|kernel| kernel.name).collect();
        for (what, list) in [
            ("in no variant", embedded.difference(table).collect::<Vec<_>>()),
            ("not embedded", table.difference(&embedded).collect()),
        ] {
            if !list.is_empty() {
                return Err(format!("sm_{arch}: {what}: {list:?}").into());
            }
        }
        for kernel in tier.entries {
            let (entry, ptx) = (kernel.name, kernel.ptx()?);
            for part in [format!(".entry {entry}("), format!(".target sm_{arch}")] {
                if !ptx.contains(&part) {
                    return Err(format!(
                        "sm_{arch}: the module of {entry} does not contain \"{part}\""
                    )
                    .into());
                }
            }
            // Kernels never panic. A call would mean that a function was not inlined.
            if let Some(word) = ["trap;", "call"].into_iter().find(|word| ptx.contains(word)) {
                return Err(format!("sm_{arch}: {entry}: its PTX contains \"{word}\"").into());
            }
        }
    }
    // Every GPU runs the lowest tier.
    if !tiers.contains(&75) {
        return Err(format!("tiers {tiers:?}: 75 is not among them").into());
    }
    Ok(())
}

#[cfg(not(feature = "gpu"))]
fn embedded() -> Result<(), Failed> {
    Err("this build embeds no PTX".into())
}
