//! The CPU's engine, in the family that the plan chooses: the lists of every family, on every
//! instruction set of the processor.

use std::process::Command;

use apron::{Border, Device};
use conformance::problem::{Group, Problem, Window};
use conformance::product::Product;
use conformance::sample::{Data, Kind};
use conformance::select::{self, Selection};
use conformance::suite;
use libtest_mimic::{Failed, Trial};

use crate::{direct, separable};

/// Makes a list of problems.
type List = fn(Selection) -> Vec<Group>;

/// The lists that the engine solves.
const LISTS: &[(&str, List)] = &[
    ("direct::exhaustive", direct::exhaustive),
    ("direct::awkward", |selection| select::awkward(selection, direct::windows())),
    ("direct::stored", direct::stored),
    ("direct::wild", direct::wild),
    ("direct::ties", direct::ties),
    ("direct::seams", direct::seams),
    ("direct::long", direct::long),
    ("direct::turns", direct::turns),
    ("separable::exhaustive", separable::exhaustive),
    ("separable::awkward", |selection| select::awkward(selection, separable::windows())),
    ("separable::stored", separable::stored),
    ("separable::wild", separable::wild),
    ("separable::ties", separable::ties),
    ("separable::seams", separable::seams),
    ("separable::long", separable::long),
    ("separable::turns", separable::turns),
    ("boxes", boxes),
];

/// Equal taps over 8-bit pictures large enough for running sums, and over a few that are not.
fn boxes(selection: Selection) -> Vec<Group> {
    let shapes = [
        "size=13",
        "size=14",
        "size=31",
        "cols=14,rows=2",
        "cols=1,rows=40",
        "cols=200,rows=9",
        "size=60",
    ];
    let presets = shapes.iter().map(|shape| Window::preset(&format!("box:{shape}")));
    let windows = presets.chain([
        Window::preset("box:size=15").anchored(0, 14),
        Window::dense("minus one", 13, 3, &[-1.0; 39]),
        Window::dense("a half", 5, 16, &[0.5; 80]),
    ]);
    let borders =
        || select::BORDERS.into_iter().chain([Border::Constant(0.0), Border::Constant(255.0)]);
    let mut groups = Vec::new();
    for window in windows {
        for border in borders() {
            let number = groups.len();
            let problems = [(301, 131), (700, 47), (40, 830), (30, 30)].iter().enumerate().map(
                |(i, &(width, height))| {
                    let problem = Problem::new(width, height, select::seed(11, 4 * number + i));
                    let problem = problem
                        .stored(Kind::U8, Kind::U8)
                        .channels(1 + (number + i) % 4)
                        .gaps(i, number % 3);
                    if i == 1 { problem.data(Data::Extremes) } else { problem }
                },
            );
            let problems = selection.cut(9, problems, number);
            groups.push(Group { window: window.clone(), border, problems });
        }
    }
    if selection == Selection::Full {
        // So wide that the sum of all columns exceeds 2^32.
        let wide = Problem::new(66_000, 1, select::seed(12, 0)).stored(Kind::U8, Kind::U8);
        let window = Window::preset("box:cols=13,rows=270");
        groups.push(Group { window, border: Border::Constant(255.0), problems: vec![wide] });
    }
    groups
}

pub(crate) fn trials(selection: Selection) -> Vec<Trial> {
    let engine = LISTS.iter().map(|&(list, groups)| {
        let name = format!("cpu::engine::{list}");
        Trial::test(name.clone(), move || {
            suite::check(
                &name,
                &[Product { variant: None, device: Device::Cpu }],
                &groups(selection),
            )
        })
    });
    let forced = instruction_sets().into_iter().map(|(name, present)| {
        Trial::test(format!("cpu::forced::{name}"), move || forced(name))
            .with_ignored_flag(!present)
    });
    engine.chain(forced).chain([Trial::test("cpu::forced::unknown", unknown)]).collect()
}

/// The values of `APRON_ISA`, and whether this processor has each instruction set.
fn instruction_sets() -> Vec<(&'static str, bool)> {
    let mut sets = vec![("portable", true)];
    #[cfg(target_arch = "x86_64")]
    sets.extend([
        (
            "avx2",
            is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c"),
        ),
        ("avx512", is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl")),
    ]);
    #[cfg(target_arch = "aarch64")]
    sets.push(("neon", true));
    sets
}

/// Runs the engine's tests again, as a process that uses only this instruction set, on fewer
/// problems. The default set has solved all of them. Without fused multiply-add in hardware a sum
/// takes a hundred times as long, so portable code solves the small selection.
fn forced(name: &str) -> Result<(), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["cpu::engine", "--test-threads=1"]).env("APRON_ISA", name);
    command.env("APRON_CONFORMANCE", if name == "portable" { "small" } else { "emulated" });
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let all = format!("ok. {} passed; 0 failed; 0 ignored", LISTS.len());
    if output.status.success() && text.contains(&all) {
        Ok(())
    } else {
        Err(text.into_owned().into())
    }
}

/// An unknown instruction set is refused, which shows that the environment is read.
fn unknown() -> Result<(), Failed> {
    let output = Command::new(std::env::current_exe()?)
        .args(["cpu::engine::direct::ties"])
        .env("APRON_ISA", "mmx")
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() && text.contains("APRON_ISA is mmx") {
        Ok(())
    } else {
        Err(text.into_owned().into())
    }
}
