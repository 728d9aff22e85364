//! Several filters in one call, gradients, and the treatment of alpha.

use libtest_mimic::{Failed, Trial};

use crate::tool::{Bench, PICTURES};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("steps::chain", chain),
        Trial::test("steps::alpha", alpha),
        Trial::test("steps::refused", refused),
    ]
}

/// Two filters in one call give the result of two calls.
fn chain() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.png", PICTURES[0].1);
    let run = |input: &str, output: &str, options: &[&str]| {
        bench.succeed(&[&["filter", input, output, "--device", "cpu", "--quiet"], options].concat())
    };
    run("in.png", "blurred.npy", &["-f", "gaussian:sigma=1.5"])?;
    run("blurred.npy", "expected.npy", &["-f", "sobel"])?;
    run("in.png", "found.npy", &["-f", "gaussian:sigma=1.5", "-f", "sobel"])?;
    run("in.png", "exact.npy", &["-f", "gaussian:sigma=1.5", "-f", "sobel", "--in-f32"])?;
    if bench.get("found.npy")? != bench.get("expected.npy")? {
        return Err("two filters in one call give another result than two calls".into());
    }
    if bench.get("exact.npy")? == bench.get("expected.npy")? {
        return Err("--in-f32 changes nothing".into());
    }
    Ok(())
}

/// White next to transparent black, under each mode.
fn alpha() -> Result<(), Failed> {
    let bench = Bench::new();
    let header =
        "P7\nWIDTH 4\nHEIGHT 1\nDEPTH 2\nMAXVAL 255\nTUPLTYPE GRAYSCALE_ALPHA\nENDHDR\n".as_bytes();
    bench.put("in.pam", &[header, &[255, 255, 255, 255, 0, 0, 0, 0]].concat());
    let cases: [(&[&str], &[u8]); 7] = [
        (&[], &[255, 255, 255, 170, 255, 85, 0, 0]),
        (&["--alpha", "auto"], &[255, 255, 255, 170, 255, 85, 0, 0]),
        (&["--alpha", "premultiply"], &[255, 255, 255, 170, 255, 85, 0, 0]),
        (&["--alpha", "keep"], &[255, 255, 170, 255, 85, 0, 0, 0]),
        (&["--alpha", "filter"], &[255, 255, 170, 170, 85, 85, 0, 0]),
        (&["--alpha", "drop"], &[255, 170, 85, 0]),
        (&["--alpha", "flatten=grey"], &[255, 213, 170, 128]),
    ];
    for (number, (options, expected)) in cases.into_iter().enumerate() {
        let output = format!("{number}.pam");
        let filter =
            ["filter", "in.pam", &output, "-f", "box:cols=3,rows=1", "--device", "cpu", "--quiet"];
        bench.succeed(&[&filter[..], options].concat())?;
        let found = bench.get(&output)?;
        let values = &found[found.len().saturating_sub(expected.len())..];
        if values != expected || (found.len() - expected.len()) > 100 {
            return Err(format!("{options:?}: {values:?}, not {expected:?}").into());
        }
    }
    Ok(())
}

/// An impossible request gives one line that names it, and no file.
fn refused() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.png", PICTURES[0].1);
    let cases: [(&[&str], &[&str]); 4] = [
        (&["filter", "in.png", "out.png", "-f", "sobel-angle"], &["u8", "f32"]),
        (
            &["filter", "in.png", "out.png", "-f", "sobel", "--variant", "direct-naive"],
            &["direct-naive", "sobel"],
        ),
        (
            &["filter", "in.png", "out.png", "-f", "sobel", "-f", "box:size=3", "--anchor", "1,1"],
            &["--anchor"],
        ),
        (&["taps", "-f", "scharr"], &["scharr", "gradient"]),
    ];
    for (arguments, words) in cases {
        let output = bench.run(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let told =
            words.iter().all(|word| said.contains(word)) && said.trim_end().lines().count() == 1;
        if output.status.success() || !told || bench.contents().len() != 1 {
            return Err(format!("apron {arguments:?}: {}: {said:?}", output.status).into());
        }
    }
    Ok(())
}
