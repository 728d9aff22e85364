//! Files in and out: the output has the requested contents.

use libtest_mimic::{Failed, Trial};

use crate::tool::{Bench, PICTURES, npy};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("files::array", array),
        Trial::test("files::raw", raw),
        Trial::test("files::output_may_be_the_input", in_place),
        Trial::test("files::info_and_help", info),
    ]
}

/// A small array, against sums computed by hand.
fn array() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.npy", &npy("|u1", "(2, 3)", &[1, 2, 3, 4, 5, 60]));
    let taps = ["--taps", "-1 0 1", "--border", "replicate", "--device", "cpu"];
    bench.succeed(&[&["filter", "in.npy", "bytes.npy"], &taps[..]].concat())?;
    bench.succeed(
        &[&["filter", "in.npy", "floats.npy", "--output-type", "f32"], &taps[..]].concat(),
    )?;
    let floats: Vec<u8> =
        [1.0f32, 2.0, 1.0, 1.0, 56.0, 55.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    for (name, expected) in [
        ("bytes.npy", npy("|u1", "(2, 3)", &[1, 2, 1, 1, 56, 55])),
        ("floats.npy", npy("<f4", "(2, 3)", &floats)),
    ] {
        let found = bench.get(name)?;
        if found != expected {
            return Err(format!(
                "{name}: {} for {}",
                found.escape_ascii(),
                expected.escape_ascii()
            )
            .into());
        }
    }
    Ok(())
}

/// Files without a header, against the same pixels in a PNG: in, out, and both.
fn raw() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.png", PICTURES[0].1);
    let filter = ["--filter", "gaussian:sigma=1.5", "--device", "cpu"];
    let filtered = |input: &str, output: &str, more: &[&str]| {
        bench.succeed(&[&["filter", input, output], &filter[..], more].concat())
    };
    let identity = ["--filter", "identity", "--device", "cpu"];
    bench.succeed(&[&["filter", "in.png", "in.raw"], &identity[..]].concat())?;
    // The picture is RGB, and its size is in the header.
    let number = |at: usize| {
        PICTURES[0].1[at..at + 4].iter().fold(0, |number, &byte| 256 * number + usize::from(byte))
    };
    let (width, height, channels) = (number(16), number(20), 3);
    if bench.get("in.raw")?.len() != width * height * channels {
        return Err("the raw file is not width x height x channels bytes long".into());
    }
    let size = format!("{width}x{height}x{channels}");
    filtered("in.png", "expected.npy", &[])?;
    filtered("in.raw", "found.npy", &["--raw", &size])?;
    filtered("in.raw", "found.raw", &["--raw", &size])?;
    let (expected, found, raw) =
        (bench.get("expected.npy")?, bench.get("found.npy")?, bench.get("found.raw")?);
    if expected != found || !expected.ends_with(&raw) || raw.len() != width * height * channels {
        return Err("raw pixels give another result than those of a PNG".into());
    }
    Ok(())
}

/// Overwriting the input gives the same file as writing a new one.
fn in_place() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("a.png", PICTURES[2].1);
    let filter = ["--filter", "sharpen", "--device", "cpu"];
    bench.succeed(&[&["filter", "a.png", "b.png"], &filter[..]].concat())?;
    bench.succeed(&[&["filter", "a.png", "a.png"], &filter[..]].concat())?;
    if bench.get("a.png")? != bench.get("b.png")? || bench.get("a.png")? == PICTURES[2].1 {
        return Err("the input was not replaced by the result".into());
    }
    let left: Vec<_> = bench.contents().into_keys().collect();
    if left.len() == 2 {
        Ok(())
    } else {
        Err(format!("more than two files are left: {left:?}").into())
    }
}

fn info() -> Result<(), Failed> {
    let bench = Bench::new();
    for (arguments, word) in [
        (&["info"][..], "direct-naive"),
        (&["--help"], "Examples"),
        (&["filter", "--help"], "Examples"),
        (&["filters"], "sobel-x"),
        (&["filters"], "required: "),
        (&["help"], "Examples"),
        (&["help", "filter"], "--skip-existing"),
        (&["completions", "bash"], "--skip-existing"),
        (&["completions", "zsh"], "--skip-existing"),
        (&["man"], ".TH"),
        (&["man", "filter"], "skip\\-existing"),
    ] {
        let output = bench.run(arguments)?;
        if !output.status.success() || !String::from_utf8_lossy(&output.stdout).contains(word) {
            return Err(
                format!("apron {arguments:?}: {}, \"{word}\" is not there", output.status).into()
            );
        }
    }
    Ok(())
}
