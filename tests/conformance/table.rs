//! The variant table against the PTX that the build embedded, and against itself.

use std::collections::BTreeSet;

use apron::Variant;
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("table::names", names),
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

#[cfg(feature = "gpu")]
fn embedded() -> Result<(), Failed> {
    let table: BTreeSet<&str> = Variant::all().flat_map(Variant::entries).collect();
    let mut tiers = BTreeSet::new();
    for tier in apron::gpu::embedded() {
        let arch = tier.arch;
        tiers.insert(arch);
        let embedded: BTreeSet<&str> = tier.entries().map(|(entry, _)| entry).collect();
        for (what, list) in [
            ("in no variant", embedded.difference(&table).collect::<Vec<_>>()),
            ("not embedded", table.difference(&embedded).collect()),
        ] {
            if !list.is_empty() {
                return Err(format!("sm_{arch}: {what}: {list:?}").into());
            }
        }
        for (entry, ptx) in tier.entries() {
            for part in [format!(".entry {entry}("), format!(".target sm_{arch}")] {
                if !ptx.contains(&part) {
                    return Err(format!("sm_{arch}: the module of {entry} does not contain \"{part}\"").into());
                }
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
