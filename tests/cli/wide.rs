//! Files of f64, and of integers that kernels do not take: filtered in f64. Results are compared
//! with hand-computed values, and with NumPy in `scipy/wide.py`.

use std::ffi::OsString;

use libtest_mimic::{Failed, Trial};

use crate::scipy;
use crate::tool::{Bench, npy, refuse};

const SCRIPT: &str = include_str!("../scipy/wide.py");

pub(crate) fn trials(python: &Result<OsString, String>) -> Vec<Trial> {
    let judge = python.clone();
    vec![
        Trial::test("wide::every_type", every_type),
        Trial::test("wide::what_is_lost_is_said", lost),
        Trial::test("wide::refused", refused),
        Trial::test("wide::numpy", move || scipy::judged("wide::numpy", SCRIPT, judge?))
            .with_ignored_flag(python.is_err()),
    ]
}

/// A type's name in `.npy`, its bytes for a number, and its limits, as far as f64 holds them.
type Kind = (&'static str, fn(i64) -> Vec<u8>, i64, i64);

const KINDS: [Kind; 8] = [
    ("|b1", |value| vec![u8::from(value != 0)], 0, 1),
    ("|i1", |value| (value as i8).to_le_bytes().to_vec(), -128, 127),
    ("<i2", |value| (value as i16).to_le_bytes().to_vec(), -32768, 32767),
    ("<i4", |value| (value as i32).to_le_bytes().to_vec(), i32::MIN as i64, i32::MAX as i64),
    ("<u4", |value| (value as u32).to_le_bytes().to_vec(), 0, u32::MAX as i64),
    ("<i8", |value| value.to_le_bytes().to_vec(), -(1 << 53), 1 << 53),
    ("<u8", |value| (value as u64).to_le_bytes().to_vec(), 0, 1 << 53),
    ("<f8", |value| (value as f64).to_le_bytes().to_vec(), -(1 << 53), 1 << 53),
];

fn array(kind: &Kind, values: &[i64]) -> Vec<u8> {
    npy(
        kind.0,
        &format!("(1, {})", values.len()),
        &values.iter().flat_map(|&value| kind.1(value)).collect::<Vec<_>>(),
    )
}

/// Limits of types through an identity, differences beyond f32, halves, and values that no integer
/// type holds.
fn every_type() -> Result<(), Failed> {
    let bench = Bench::new();
    let is_equal = |kind: &Kind, output: &str, expected: &[i64]| match bench.get(output)?
        == array(kind, expected)
    {
        true => Ok(()),
        false => Err(Failed::from(format!("{}: {output} is not {expected:?}", kind.0))),
    };
    for kind in &KINDS {
        let (least, greatest) = (kind.2, kind.3);
        let values = [least, greatest, 1, 0, greatest - 1, greatest];
        bench.put("in.npy", &array(kind, &values));
        let run = |output: &str, more: &[&str]| {
            bench.succeed(
                &[&["filter", "in.npy", output, "--overwrite", "--device", "cpu"], more].concat(),
            )
        };
        run("same.npy", &["--filter", "identity"])?;
        is_equal(kind, "same.npy", &values)?;
        if kind.0 != "|b1" {
            run("same.tif", &["--filter", "identity"])?;
            bench.succeed(&[
                "filter",
                "same.tif",
                "back.npy",
                "--overwrite",
                "--filter",
                "identity",
                "--device",
                "cpu",
            ])?;
            is_equal(kind, "back.npy", &values)?;
        }
        // Half of each value's left neighbour.
        run("half.npy", &["--taps", "0.5 0 0", "--border", "replicate"])?;
        let even = |value: i64| value / 2 + i64::from(value % 4 == 3) - i64::from(value % 4 == -3);
        let halves = [least, least, greatest, 1, 0, greatest - 1].map(|value| match kind.0 {
            "|b1" => 0,
            _ => even(value),
        });
        if kind.0 != "<f8" {
            is_equal(kind, "half.npy", &halves)?;
        }
        // Two steps. The result of the first exceeds the type, but is rounded and saturated only
        // once, after the second.
        run("twice.npy", &["--filter", "taps:4", "--filter", "taps:0.25"])?;
        is_equal(kind, "twice.npy", &values)?;
        run("offset.npy", &["--filter", "identity", "--abs", "--offset", "1"])?;
        let raised = values.map(|value| match kind.0 {
            "|b1" => 1,
            "<f8" => value.abs() + 1,
            "<i8" | "<u8" => value.abs() + 1,
            _ => (value.abs() + 1).min(greatest),
        });
        // Beyond 2^53 the sum is rounded to f64.
        let raised = raised.map(|value| if value > 1 << 53 { 1 << 53 } else { value });
        is_equal(kind, "offset.npy", &raised)?;
    }
    Ok(())
}

/// Negative derivatives in unsigned types, and types that the output format does not have.
fn lost() -> Result<(), Failed> {
    let bench = Bench::new();
    for (number, word) in [(4, "--offset 2147483648"), (6, "negative and became 0")] {
        bench.put("in.npy", &array(&KINDS[number], &[7, 9, 1, 2, 5, 5]));
        let output = bench.run(&[
            "filter",
            "in.npy",
            "out.npy",
            "--overwrite",
            "--filter",
            "sobel-x",
            "--border",
            "wrap",
        ])?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || !said.contains(word) || said.lines().count() != 1 {
            return Err(format!("{}: {said}", KINDS[number].0).into());
        }
    }
    bench.put("in.npy", &npy("<f8", "(1, 2, 3)", &[0; 48]));
    let output = bench.run(&["filter", "in.npy", "out.exr", "--filter", "identity"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() && said.contains("f64 became f32") && said.lines().count() == 1 {
        Ok(())
    } else {
        Err(said.into_owned().into())
    }
}

fn refused() -> Result<(), Failed> {
    let bench = Bench::new();
    for (kind, value) in
        [(&KINDS[5], (1i64 << 53) + 1), (&KINDS[5], i64::MIN), (&KINDS[6], i64::MAX)]
    {
        bench.put("in.npy", &array(kind, &[1, value]));
        let words = [&*value.to_string(), "9007199254740992", "convert"];
        refuse(&bench, &["filter", "in.npy", "out.npy", "--filter", "identity"], &words)?;
    }
    bench.put("in.npy", &array(&KINDS[3], &[1, 2]));
    refuse(
        &bench,
        &["filter", "in.npy", "out.npy", "--filter", "sobel-angle"],
        &["i32", "--output-type"],
    )?;
    let variant = [
        "filter",
        "in.npy",
        "out.npy",
        "--filter",
        "identity",
        "--variant",
        "fourier",
        "--device",
        "cpu",
    ];
    refuse(&bench, &variant, &["fourier", "f64"])
}
