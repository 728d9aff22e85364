//! `apron plan`, and the measurements that `--autotune` stores.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use apron::Variant;
use conformance::built;
use conformance::product::Gpu;
use conformance::suite::gpu_trial;
use libtest_mimic::{Failed, Trial};

use crate::tool::{Bench, PICTURES, npy};

pub(crate) fn trials(gpu: &Gpu) -> Vec<Trial> {
    vec![
        Trial::test("plan::names_the_choice_and_its_reason", choice),
        Trial::test("plan::estimates_without_a_driver", || {
            let gpu = cfg!(feature = "gpu");
            let why = if gpu { "no-such-library.so" } else { "this build has no GPU support" };
            estimates(OsStr::new("no-such-library.so"), &[why])
        }),
        Trial::test("plan::estimates_with_a_gpu", estimates_with_gpu)
            .with_ignored_flag(built::no_emulator().is_some()),
        Trial::test("plan::verbose_says_what_ran::cpu", || says(None)),
        Trial::test("plan::verbose_says_what_ran::emulated", || says(Some(built::emulator()?)))
            .with_ignored_flag(built::no_emulator().is_some()),
        gpu_trial("plan::autotune_remembers", gpu, remembers),
    ]
}

/// Words of the first line, the chosen variant, and words that another line must have.
type Case = (&'static [&'static str], &'static str, &'static str);

const CASES: &[Case] = &[
    (
        &["--filter", "gaussian:sigma=2", "--size", "8192x8192", "--gpu", "h200"],
        "separable-matrix",
        "separable-fused",
    ),
    (
        &["--filter", "gaussian:sigma=2", "--size", "8192x8192", "--type", "f32", "--gpu", "h200"],
        "separable-fused",
        "separable",
    ),
    (
        &["--taps", "0 1 2; 3 4 5; 6 7 9", "--size", "640x480x3", "--gpu", "h200"],
        "direct-sliding",
        "not separable",
    ),
    (
        &[
            "--filter",
            "motion:length=51,angle=30",
            "--size",
            "999x700",
            "--type",
            "f32",
            "--gpu",
            "h200",
        ],
        "fourier",
        "it has no kernel for",
    ),
    (
        &["--filter", "gaussian:sigma=2", "--size", "30x30", "--type", "f32", "--gpu", "h200"],
        "separable-tile",
        "on every device",
    ),
    (
        &["--filter", "gaussian:sigma=2", "--size", "100x100", "--device", "cpu"],
        "separable",
        "direct-naive",
    ),
];

fn choice() -> Result<(), Failed> {
    let bench = Bench::new();
    for (arguments, chosen, other) in CASES {
        let output = bench.run(&[&["plan"], *arguments].concat())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains("<- chosen")).unwrap_or_default();
        if !output.status.success() || line.split_whitespace().next() != Some(chosen) {
            return Err(
                format!("apron plan {arguments:?}: {chosen} is not chosen in: {text}").into()
            );
        }
        if !text.contains(other) {
            return Err(
                format!("apron plan {arguments:?}: \"{other}\" is missing in: {text}").into()
            );
        }
    }
    for size in ["0x5", "5", "5x5x5", "5x5x1x1", "axb", "600000000x1"] {
        let output = bench.run(&["plan", "--filter", "emboss", "--size", size])?;
        if output.status.code() != Some(2)
            || String::from_utf8_lossy(&output.stderr).lines().count() != 1
        {
            return Err(format!("--size {size}: {}", output.status).into());
        }
    }
    Ok(())
}

/// The device that `auto` chooses for a small picture, with this driver: the CPU. Other lines must
/// have these words.
fn estimates(driver: &OsStr, words: &[&str]) -> Result<(), Failed> {
    let bench = Bench::new();
    let arguments =
        ["plan", "--filter", "gaussian:sigma=2", "--size", "64x64x3", "--pictures", "2"];
    let output = bench.run_with(&arguments, &[("APRON_DRIVER", driver)])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = ["2 pictures of u8, from ordinary memory", "    cpu ", "    gpu:0 ", " on cpu"];
    match all.iter().chain(words).find(|word| !text.contains(**word)) {
        None if output.status.success() => Ok(()),
        missing => Err(format!("{}, without {missing:?}: {text}", output.status).into()),
    }
}

fn estimates_with_gpu() -> Result<(), Failed> {
    let words = [
        "GB/s up",
        "kernel",
        "staging",
        "to open gpu:0",
        "first call: cpu",
        "in the long run: cpu",
    ];
    estimates(built::emulator()?.as_os_str(), &words)
}

/// `--verbose` reports the choice of `apron plan`. On the emulator, that choice must match the
/// launches.
fn says(emulator: Option<&Path>) -> Result<(), Failed> {
    let bench = Bench::new();
    let device = if emulator.is_some() { "gpu:0" } else { "cpu" };
    let launches = bench.path().join("launches");
    let settings = OsString::from(format!("launches={}", launches.display()));
    let more = emulator
        .map(|driver| [("APRON_DRIVER", driver.as_os_str()), ("APRON_EMULATOR", &settings)]);
    let run = |arguments: &[&str]| -> Result<(String, String), Failed> {
        let output = bench.run_with(arguments, more.as_ref().map_or(&[][..], |more| more))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        if output.status.success() {
            Ok((out, said))
        } else {
            Err(format!("{arguments:?}: {said}").into())
        }
    };
    let filters = [
        "gaussian:2",
        "gaussian:12",
        "box:5",
        "box:cols=21,rows=1",
        "unsharp:2",
        "laplacian",
        "motion:length=40,angle=30",
        "sharpen",
    ];
    let types = [("u8", "|u1", 1), ("u16", "<u2", 2), ("f16", "<f2", 2), ("f32", "<f4", 4)];
    let mut seen = BTreeSet::new();
    for (number, (filter, (scalar, descr, bytes))) in
        filters.iter().flat_map(|filter| types.map(|of_type| (filter, of_type))).enumerate()
    {
        let (width, height, channels) =
            [(30, 20, 1), (90, 61, 3), (260, 130, 1), (64, 48, 2), (41, 300, 3)][number % 5];
        bench.put(
            "in.npy",
            &npy(
                descr,
                &format!("({height}, {width}, {channels})"),
                &vec![60; width * height * channels * bytes],
            ),
        );
        let _ = std::fs::remove_file(&launches);
        // Every second run in chunks.
        let above = if number % 2 == 0 { "0" } else { "1G" };
        let (_, said) = run(&[
            "filter",
            "in.npy",
            "out.npy",
            "--filter",
            filter,
            "--device",
            device,
            "--overwrite",
            "--verbose",
            "--chunk-above",
            above,
        ])?;
        let launched = std::fs::read_to_string(&launches).unwrap_or_default();
        let size = format!("{width}x{height}x{channels}");
        let (plan, _) = run(&[
            "plan", "--filter", filter, "--size", &size, "--type", scalar, "--device", device,
        ])?;
        let chosen = plan.lines().find(|line| line.contains("<- chosen")).unwrap_or_default();
        let chosen = chosen.split_whitespace().next().unwrap_or_default();
        let what = format!(
            "{filter} of {size} {scalar} on {device}: {chosen} is planned, launched is {launched:?}, said {said}"
        );
        if !said.contains(&format!(", {chosen} on {device}; ")) {
            return Err(what.into());
        }
        seen.insert(chosen.to_owned());
        if emulator.is_none() {
            continue;
        }
        let chosen: Variant = chosen.parse()?;
        let own: BTreeSet<_> = chosen.entries().collect();
        // Exact passes are part of `separable`, but launch other kernels.
        let in_passes = chosen == Variant::Separable && launched.contains("passes_rows");
        let others: BTreeSet<_> = Variant::all()
            .flat_map(Variant::entries)
            .filter(|entry| !own.contains(entry))
            .collect();
        let right = in_passes || launched.lines().any(|entry| own.contains(entry));
        if !right || launched.lines().any(|entry| others.contains(entry)) {
            return Err(what.into());
        }
    }
    if seen.len() < 4 {
        Err(format!("only {seen:?} ran").into())
    } else {
        says_of_alpha(&run, &bench, device)
    }
}

/// Runs the tool. Returns its stdout and stderr.
type Run<'a> = dyn Fn(&[&str]) -> Result<(String, String), Failed> + 'a;

/// A picture with alpha: messages say where alpha weights the colours, and name each step of a
/// pipeline.
fn says_of_alpha(run: &Run<'_>, bench: &Bench, device: &str) -> Result<(), Failed> {
    let header =
        "P7\nWIDTH 20\nHEIGHT 10\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\n".as_bytes();
    bench.put("in.pam", &[header, &[77; 800]].concat());
    let (plan, _) =
        run(&["plan", "--filter", "gaussian:2", "--size", "20x10x4", "--device", device])?;
    let chosen = plan.lines().find(|line| line.contains("<- chosen")).unwrap_or_default();
    let chosen = chosen.split_whitespace().next().unwrap_or_default();
    for (alpha, expected) in
        [("auto", "weighted by alpha"), ("premultiply", "weighted by alpha"), ("filter", chosen)]
    {
        for (more, after) in [(&[][..], ""), (&["-f", "sobel"], ", gradient")] {
            // A gradient is not an average.
            if alpha == "premultiply" && !more.is_empty() {
                continue;
            }
            let filter = [
                "filter",
                "in.pam",
                "out.pam",
                "-f",
                "gaussian:2",
                "--alpha",
                alpha,
                "--device",
                device,
            ];
            let (_, said) = run(&[&filter[..], more, &["--verbose", "--overwrite"]].concat())?;
            if !said.contains(&format!(", {expected}{after} on {device}; ")) {
                return Err(format!(
                    "--alpha {alpha} {more:?}: {expected}{after} is not said: {said}"
                )
                .into());
            }
        }
    }
    Ok(())
}

/// Measurements are written once and read back. Lines that cannot be parsed are ignored.
fn remembers() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("a.png", PICTURES[2].1);
    bench.put("tuned", b"nonsense\n\xff\xfe and more\n");
    let run = |name: &str, more: &[&str]| {
        let arguments =
            [&["filter", "a.png", name, "--filter", "sharpen", "--device", "gpu:0"], more].concat();
        bench.run_with(&arguments, &[("APRON_CACHE", bench.path().as_os_str())])
    };
    let mut kept = Vec::new();
    for (name, more) in
        [("plain.png", &[][..]), ("first.png", &["--autotune"]), ("second.png", &["--autotune"])]
    {
        let output = run(name, more)?;
        if !output.status.success() || bench.get(name)? != bench.get("plain.png")? {
            return Err(format!("{name}: {}, or another picture", output.status).into());
        }
        kept.push(bench.get("tuned")?.len());
    }
    if kept[0] < kept[1] && kept[1] == kept[2] {
        Ok(())
    } else {
        Err(format!("bytes kept: {kept:?}").into())
    }
}
