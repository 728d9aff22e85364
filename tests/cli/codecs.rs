//! Pictures in files, through the tool alone: every format passes its contents on to the next.
//! Where Python has the libraries, `scipy/codecs.py`, `scipy/animations.py`, `scipy/metadata.py`,
//! `scipy/extra.py`, `scipy/exr.py` and `scipy/tiffs.py` check them with other programs.

use std::ffi::OsString;

use libtest_mimic::{Failed, Trial};

use crate::scipy;
use crate::tool::{Bench, PICTURES, npy};

const SCRIPT: &str = include_str!("../scipy/codecs.py");
const ANIMATIONS: &str = include_str!("../scipy/animations.py");
const EXTRA: &str = include_str!("../scipy/extra.py");
const METADATA: &str = include_str!("../scipy/metadata.py");
const OPENEXR: &str = include_str!("../scipy/exr.py");
const TIFFS: &str = include_str!("../scipy/tiffs.py");

/// The Python with the libraries for checks, or the reason why there is none.
pub(crate) fn probe() -> Result<OsString, String> {
    scipy::python_with("import cv2, numpy, tifffile, PIL.Image")
}

/// As [`probe`], for the checks of extra samples after the colours and of OpenEXR.
pub(crate) fn probe_extra() -> Result<OsString, String> {
    scipy::python_with("import cv2, numpy, OpenEXR, scipy.ndimage, tifffile, PIL.Image")
}

pub(crate) fn trials(
    python: &Result<OsString, String>,
    of_extra: &Result<OsString, String>,
) -> Vec<Trial> {
    let by = |name: &'static str, script: &'static str, python: &Result<OsString, String>| {
        let judge = python.clone();
        Trial::test(name, move || scipy::judged(name, script, judge?))
            .with_ignored_flag(python.is_err())
    };
    vec![
        Trial::test("codecs::frames", frames),
        Trial::test("codecs::pages_that_cannot_be_kept", pages_that_cannot_be_kept),
        Trial::test("codecs::damaged", damaged),
        Trial::test("codecs::slices_are_filtered_alone", slices),
        Trial::test("codecs::types", types),
        Trial::test("codecs::raw", raw),
        by("codecs::other_programs", SCRIPT, python),
        by("codecs::animations", ANIMATIONS, python),
        by("codecs::extra_samples", EXTRA, of_extra),
        by("codecs::metadata", METADATA, python),
        by("codecs::openexr", OPENEXR, of_extra),
        by("codecs::tiffs", TIFFS, python),
    ]
}

/// Four pictures of 6x5 RGB with few colours, so that a GIF holds them exactly.
fn stack() -> Vec<u8> {
    (0..4 * 5 * 6 * 3).map(|i: usize| ((i / 90 + 1) * 50 + i % 2 * 5) as u8).collect()
}

const IDENTITY: [&str; 4] = ["--filter", "identity", "--device", "cpu"];

fn copied(bench: &Bench, input: &str, output: &str, more: &[&str]) -> Result<(), Failed> {
    Ok(bench.succeed(&[&["filter", input, output, "--quiet"], &IDENTITY[..], more].concat())?)
}

/// Through every format for several pictures, and one by one.
fn frames() -> Result<(), Failed> {
    let bench = Bench::new();
    let array = npy("|u1", "(4, 5, 6, 3)", &stack());
    bench.put("a.npy", &array);
    for (from, to) in [
        ("a.npy", "a.gif"),
        ("a.gif", "a.png"),
        ("a.png", "a.webp"),
        ("a.webp", "a.tif"),
        ("a.tif", "b.npy"),
    ] {
        copied(&bench, from, to, &[])?;
    }
    if bench.get("b.npy")? != array {
        return Err("pages changed on their way through the formats".into());
    }
    for from in ["a.gif", "a.png", "a.webp", "a.tif", "a.npy"] {
        for page in 1..=4 {
            let name = format!("{from}-{page}.npy");
            copied(&bench, from, &name, &["--page", &page.to_string()])?;
            if bench.get(&name)? != npy("|u1", "(5, 6, 3)", &stack()[(page - 1) * 90..page * 90]) {
                return Err(format!("page {page} of {from} is another").into());
            }
        }
    }
    Ok(())
}

fn pages_that_cannot_be_kept() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("a.npy", &npy("|u1", "(4, 5, 6, 3)", &stack()));
    copied(&bench, "a.npy", "a.gif", &[])?;
    for output in ["out.jpg", "out.bmp", "out.raw"] {
        let done = bench.run(&[&["filter", "a.gif", output], &IDENTITY[..]].concat())?;
        let line = String::from_utf8_lossy(&done.stderr);
        let named = line.contains("4 frames") && line.contains("--page") && line.contains("tif");
        if done.status.code() != Some(1) || !named || bench.path().join(output).exists() {
            return Err(format!("{}: {line}", done.status).into());
        }
    }
    Ok(())
}

/// A truncated picture is refused. With `--lenient`, the existing part is kept.
fn damaged() -> Result<(), Failed> {
    let bench = Bench::new();
    for (name, whole) in [("cut.png", PICTURES[0].1), ("cut.jpg", PICTURES[1].1)] {
        for len in [whole.len() / 3, whole.len() - 20] {
            bench.put(name, &whole[..len]);
            let refused = bench.run(&[&["filter", name, "out.npy"], &IDENTITY[..]].concat())?;
            let line = String::from_utf8_lossy(&refused.stderr);
            if refused.status.code() != Some(1)
                || !line.contains("cut off")
                || !line.contains("--lenient")
            {
                return Err(format!("{name} of {len} bytes: {}, {line}", refused.status).into());
            }
        }
        bench.put(name, &whole[..whole.len() / 3]);
        let kept =
            bench.run(&[&["filter", name, "out.npy", "--lenient"], &IDENTITY[..]].concat())?;
        let line = String::from_utf8_lossy(&kept.stderr);
        if !kept.status.success() || line.lines().count() != 1 || !line.contains("only a part") {
            return Err(format!("{name}: {}, {line}", kept.status).into());
        }
        std::fs::remove_file(bench.path().join("out.npy"))?;
    }
    Ok(())
}

/// A window spans rows, never slices.
fn slices() -> Result<(), Failed> {
    let bench = Bench::new();
    let values: Vec<u8> = [[10u8; 20], [200; 20], [0; 20]].concat();
    bench.put("a.npy", &npy("|u1", "(3, 4, 5)", &values));
    let taps = ["--taps", "1; 1; 1", "--border", "constant:0", "--device", "cpu", "--axes", "zyx"];
    bench.succeed(
        &[&["filter", "a.npy", "b.npy", "--output-type", "u16", "--scale", "none"], &taps[..]]
            .concat(),
    )?;
    let row = |value: u16| [value; 5];
    let expected: Vec<u8> = [10u16, 200, 0]
        .iter()
        .flat_map(|&value| {
            [row(2 * value), row(3 * value), row(3 * value), row(2 * value)].concat()
        })
        .flat_map(u16::to_le_bytes)
        .collect();
    if bench.get("b.npy")? == npy("<u2", "(3, 4, 5)", &expected) {
        Ok(())
    } else {
        Err("slices run into each other".into())
    }
}

/// Types that are filtered as f32 return to their type, rounded and saturated.
fn types() -> Result<(), Failed> {
    let bench = Bench::new();
    let of =
        |values: [i16; 4]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    bench.put("a.npy", &npy("<i2", "(2, 2)", &of([-300, 7, 32767, 1])));
    let half = ["--taps", "0.5", "--device", "cpu"];
    let twice = ["--taps", "2", "--device", "cpu"];
    bench.succeed(&[&["filter", "a.npy", "half.tif"], &half[..]].concat())?;
    copied(&bench, "half.tif", "half.npy", &[])?;
    bench.succeed(&[&["filter", "a.npy", "twice.npy"], &twice[..]].concat())?;
    // 3.5, 0.5 and 16383.5 go to the even neighbour.
    let right = bench.get("half.npy")? == npy("<i2", "(2, 2)", &of([-150, 4, 16384, 0]))
        && bench.get("twice.npy")? == npy("<i2", "(2, 2)", &of([-600, 14, 32767, 2]));
    if right { Ok(()) } else { Err("the values are others".into()) }
}

/// Values without a header, of each type.
fn raw() -> Result<(), Failed> {
    let bench = Bench::new();
    let bytes: Vec<u8> = (0..3 * 2 * 2 * 4).collect();
    for (kind, descr) in [("u8", "|u1"), ("u16", "<u2"), ("f32", "<f4")] {
        let width = match kind {
            "u8" => 12,
            "u16" => 6,
            _ => 3,
        };
        bench.put("a.raw", &bytes);
        copied(&bench, "a.raw", "a.npy", &["--raw", &format!("{width}x2x2:{kind}")])?;
        if bench.get("a.npy")? != npy(descr, &format!("(2, {width}, 2)"), &bytes) {
            return Err(format!("raw {kind} is read as something else").into());
        }
        copied(&bench, "a.npy", "b.raw", &[])?;
        if bench.get("b.raw")? != bytes {
            return Err(format!("raw {kind} is written as something else").into());
        }
        for name in ["a.npy", "b.raw"] {
            std::fs::remove_file(bench.path().join(name))?;
        }
    }
    Ok(())
}
