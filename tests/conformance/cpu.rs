//! The CPU's engine: what a plan runs there if nobody asks for a variant. Every family's lists, on every instruction set
//! that the processor has.

use std::process::Command;

use apron::Device;
use conformance::problem::Group;
use conformance::product::Product;
use conformance::select::{self, Selection};
use conformance::suite;
use libtest_mimic::{Failed, Trial};

use crate::{direct, separable};

/// Makes a list of problems.
type List = fn(Selection) -> Vec<Group>;

/// Which lists the engine goes through.
const LISTS: &[(&str, List)] = &[
    ("direct::exhaustive", direct::exhaustive),
    ("direct::awkward", |selection| select::awkward(selection, direct::windows())),
    ("direct::stored", direct::stored),
    ("direct::wild", direct::wild),
    ("direct::ties", direct::ties),
    ("direct::long", direct::long),
    ("separable::exhaustive", separable::exhaustive),
    ("separable::awkward", |selection| select::awkward(selection, separable::windows())),
    ("separable::stored", separable::stored),
    ("separable::wild", separable::wild),
    ("separable::ties", separable::ties),
    ("separable::long", separable::long),
];

pub(crate) fn trials(selection: Selection) -> Vec<Trial> {
    let engine = LISTS.iter().map(|&(list, groups)| {
        let name = format!("cpu::engine::{list}");
        Trial::test(name.clone(), move || {
            suite::check(&name, &[Product { variant: None, device: Device::Cpu }], &groups(selection))
        })
    });
    let forced = instruction_sets().into_iter().map(|(name, present)| {
        Trial::test(format!("cpu::forced::{name}"), move || forced(name)).with_ignored_flag(!present)
    });
    engine.chain(forced).chain([Trial::test("cpu::forced::unknown", unknown)]).collect()
}

/// What `APRON_ISA` may name, and whether this processor has it.
fn instruction_sets() -> Vec<(&'static str, bool)> {
    let mut sets = vec![("portable", true)];
    #[cfg(target_arch = "x86_64")]
    sets.extend([
        (
            "avx2",
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c"),
        ),
        ("avx512", is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl")),
    ]);
    #[cfg(target_arch = "aarch64")]
    sets.push(("neon", true));
    sets
}

/// The engine's tests again, in a process of their own that uses this instruction set only. Without a fused multiply-add
/// in hardware a sum takes a hundred times as long, so the portable code solves the small selection.
fn forced(name: &str) -> Result<(), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["cpu::engine", "--test-threads=1"]).env("APRON_ISA", name);
    if name == "portable" {
        command.env("APRON_CONFORMANCE", "small");
    }
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let all = format!("ok. {} passed; 0 failed; 0 ignored", LISTS.len());
    if output.status.success() && text.contains(&all) { Ok(()) } else { Err(text.into_owned().into()) }
}

/// A set that does not exist is refused: the environment is read.
fn unknown() -> Result<(), Failed> {
    let output =
        Command::new(std::env::current_exe()?).args(["cpu::engine::direct::ties"]).env("APRON_ISA", "mmx").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() && text.contains("APRON_ISA is mmx") { Ok(()) } else { Err(text.into_owned().into()) }
}
