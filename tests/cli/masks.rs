//! Masks, NaN and nodata: `scipy/masks.py` compares results over known pixels with SciPy.

use std::ffi::OsString;

use libtest_mimic::{Failed, Trial};

use crate::scipy;
use crate::tool::{Bench, npy};

const SCRIPT: &str = include_str!("../scipy/masks.py");

pub(crate) fn trials(python: &Result<OsString, String>) -> Vec<Trial> {
    let judge = python.clone();
    vec![
        Trial::test("masks::known_pixels", known_pixels),
        Trial::test("masks::scipy", move || scipy::judged("masks::scipy", SCRIPT, judge?))
            .with_ignored_flag(python.is_err()),
    ]
}

fn floats(values: &[f32]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    npy("<f4", &format!("(1, {})", values.len()), &bytes)
}

/// Means of three pixels, by hand: by a mask, by NaN, and beside nothing.
fn known_pixels() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.npy", &floats(&[1.0, f32::NAN, 3.0, 9.0, 6.0]));
    bench.put("mask.npy", &npy("|b1", "(1, 5)", &[1, 0, 0, 0, 1]));
    let run = |more: &[&str], expected: &[f32]| -> Result<(), Failed> {
        let all = ["filter", "in.npy", "out.npy", "--overwrite", "--device", "cpu"];
        let filter = ["--filter", "taps:0.25 0.5 0.25", "--quiet"];
        bench.succeed(&[&all[..], &filter, more].concat())?;
        match bench.get("out.npy")? == floats(expected) {
            true => Ok(()),
            false => Err(format!("{more:?} does not give {expected:?}").into()),
        }
    };
    run(&["--nan", "fill"], &[1.0, 2.0, 3.0, 9.0, 6.0])?;
    run(&["--nan", "ignore", "--border", "replicate"], &[1.0, 2.0, 5.0, 6.75, 6.75])?;
    run(&["--nan", "ignore", "--border", "none"], &[1.0, 2.0, 5.0, 6.75, 7.0])?;
    let mask = ["--mask", "mask.npy", "--border", "none", "--unknown", "-1"];
    run(&mask, &[1.0, 1.0, -1.0, 6.0, 6.0])
}
