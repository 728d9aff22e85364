//! `apron plan`, and what `--autotune` keeps.

use std::ffi::OsStr;

use conformance::built;
use conformance::product::Gpu;
use conformance::suite::gpu_trial;
use libtest_mimic::{Failed, Trial};

use crate::tool::{Bench, PICTURES};

pub(crate) fn trials(gpu: &Gpu) -> Vec<Trial> {
    vec![
        Trial::test("plan::names_the_choice_and_its_reason", choice),
        Trial::test("plan::reckons_without_a_driver", || {
            reckons(OsStr::new("no-such-library.so"), &["no-such-library.so"])
        }),
        Trial::test("plan::reckons_with_a_gpu", reckons_with_gpu).with_ignored_flag(built::no_emulator().is_some()),
        gpu_trial("plan::autotune_remembers", gpu, remembers),
    ]
}

/// The first line's words, the variant chosen, and words that some other line must hold.
type Case = (&'static [&'static str], &'static str, &'static str);

const CASES: &[Case] = &[
    (&["--filter", "gaussian:sigma=2", "--size", "8192x8192", "--h200"], "separable-matrix", "separable-fused"),
    (
        &["--filter", "gaussian:sigma=2", "--size", "8192x8192", "--type", "f32", "--h200"],
        "separable-fused",
        "separable",
    ),
    (&["--taps", "0 1 2; 3 4 5; 6 7 9", "--size", "640x480x3", "--h200"], "direct-sliding", "does not separate"),
    (
        &["--filter", "motion:length=51,angle=30", "--size", "999x700", "--type", "f32", "--h200"],
        "fourier",
        "it has no kernel for",
    ),
    (&["--filter", "gaussian:sigma=2", "--size", "100x100", "--device", "cpu"], "separable", "direct-naive"),
];

fn choice() -> Result<(), Failed> {
    let bench = Bench::new();
    for (arguments, chosen, other) in CASES {
        let output = bench.run(&[&["plan"], *arguments].concat())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains("<- chosen")).unwrap_or_default();
        if !output.status.success() || line.split_whitespace().next() != Some(chosen) {
            return Err(format!("apron plan {arguments:?}: {chosen} is not chosen in: {text}").into());
        }
        if !text.contains(other) {
            return Err(format!("apron plan {arguments:?}: \"{other}\" is missing in: {text}").into());
        }
    }
    for size in ["0x5", "5", "5x5x5", "5x5x1x1", "axb", "600000000x1"] {
        let output = bench.run(&["plan", "--filter", "emboss", "--size", size])?;
        if output.status.code() != Some(2) || String::from_utf8_lossy(&output.stderr).lines().count() != 1 {
            return Err(format!("--size {size}: {}", output.status).into());
        }
    }
    Ok(())
}

/// Where `auto` would run a small picture, with the driver of this name: the CPU. Other lines have these words.
fn reckons(driver: &OsStr, words: &[&str]) -> Result<(), Failed> {
    let bench = Bench::new();
    let arguments = ["plan", "--filter", "gaussian:sigma=2", "--size", "64x64x3", "--pictures", "2"];
    let output = bench.run_with(&arguments, &[("APRON_DRIVER", driver)])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = ["2 pictures of u8, from ordinary memory", "    cpu ", "    gpu:0 ", " on cpu"];
    match all.iter().chain(words).find(|word| !text.contains(**word)) {
        None if output.status.success() => Ok(()),
        missing => Err(format!("{}, without {missing:?}: {text}", output.status).into()),
    }
}

fn reckons_with_gpu() -> Result<(), Failed> {
    let words = ["GB/s up", "kernel", "staging", "to open gpu:0", "first call: cpu", "in the long run: cpu"];
    reckons(built::emulator()?.as_os_str(), &words)
}

/// Measurements are written once and read back, and lines that cannot be parsed are ignored.
fn remembers() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("a.png", PICTURES[2].1);
    bench.put("tuned", b"nonsense\n\xff\xfe and more\n");
    let run = |name: &str, more: &[&str]| {
        let arguments = [&["filter", "a.png", name, "--filter", "sharpen", "--device", "gpu:0"], more].concat();
        bench.run_with(&arguments, &[("APRON_CACHE", bench.path().as_os_str())])
    };
    let mut kept = Vec::new();
    for (name, more) in [("plain.png", &[][..]), ("first.png", &["--autotune"]), ("second.png", &["--autotune"])] {
        let output = run(name, more)?;
        if !output.status.success() || bench.get(name)? != bench.get("plain.png")? {
            return Err(format!("{name}: {}, or another picture", output.status).into());
        }
        kept.push(bench.get("tuned")?.len());
    }
    if kept[0] < kept[1] && kept[1] == kept[2] { Ok(()) } else { Err(format!("bytes kept: {kept:?}").into()) }
}
