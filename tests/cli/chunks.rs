//! Large arrays filtered from file to file in chunks: the same output as in one piece, with less
//! memory.

use std::ffi::OsString;

use libtest_mimic::{Failed, Trial};

use crate::scipy;
use crate::tool::{Bench, npy, refuse, said};

const SCRIPT: &str = include_str!("../scipy/chunks.py");

/// The Python with the libraries for checks, or the reason why there is none.
pub(crate) fn probe() -> Result<OsString, String> {
    scipy::python_with("import numpy, tifffile, PIL.Image")
}

pub(crate) fn trials(python: &Result<OsString, String>) -> Vec<Trial> {
    let judge = python.clone();
    vec![
        Trial::test("chunks::files_are_the_same", same),
        Trial::test("chunks::tiffs_are_the_same", tiffs),
        Trial::test("chunks::arrays_need_not_fit_in_memory", memory),
        Trial::test("chunks::what_is_cut_off_is_refused", cut_off),
        Trial::test("chunks::other_programs", move || {
            scipy::judged("chunks::other_programs", SCRIPT, judge?)
        })
        .with_ignored_flag(python.is_err()),
    ]
}

/// The format of a TIFF.
#[derive(Clone, Copy, Debug)]
struct Kind {
    big: bool,
    /// Whether the most significant byte is first.
    reversed: bool,
    rows_per_strip: usize,
    compression: u16,
    /// 1 for grey, 2 for RGB; 0 for grey where white is 0.
    photometric: u16,
    /// Bytes of a sample, and its format: 1 for integers, 3 for floats.
    sample: (usize, u16),
}

/// A TIFF of this many rows, columns and channels, with its strips in reverse order.
fn tiff(kind: Kind, (height, width, channels): (usize, usize, usize), values: &[u8]) -> Vec<u8> {
    let number = |value: u64, bytes: usize| {
        let all = value.to_le_bytes();
        let mut bytes = all[..bytes].to_vec();
        if kind.reversed {
            bytes.reverse();
        }
        bytes
    };
    let (bytes, format) = kind.sample;
    let mut file = if kind.reversed { b"MM".to_vec() } else { b"II".to_vec() };
    // The directory's offset is written later.
    file.extend(number(if kind.big { 43 } else { 42 }, 2));
    if kind.big {
        file.extend([number(8, 2), number(0, 2)].concat());
    }
    let place = file.len();
    let wide = if kind.big { 8 } else { 4 };
    file.extend(number(0, wide));
    let mut samples = values.to_vec();
    if kind.reversed {
        samples.chunks_mut(bytes).for_each(<[u8]>::reverse);
    }
    let strips: Vec<_> = samples.chunks(kind.rows_per_strip * width * channels * bytes).collect();
    let mut offsets = vec![0; strips.len()];
    for (strip, offset) in strips.iter().zip(&mut offsets).rev() {
        *offset = file.len() as u64;
        file.extend_from_slice(strip);
    }
    let counts: Vec<u64> = strips.iter().map(|strip| strip.len() as u64).collect();
    let short = |tag: u64, value: u64| (tag, 3, vec![value]);
    let entries = [
        short(256, width as u64),
        short(257, height as u64),
        (258, 3, vec![8 * bytes as u64; channels]),
        short(259, kind.compression.into()),
        short(262, kind.photometric.into()),
        (273, if kind.big { 16 } else { 4 }, offsets),
        short(277, channels as u64),
        short(278, kind.rows_per_strip as u64),
        (279, if kind.big { 16 } else { 4 }, counts),
        (339, 3, vec![format.into(); channels]),
    ];
    let mut parts = Vec::new();
    for (tag, code, values) in entries {
        let size = match code {
            3 => 2,
            4 => 4,
            _ => 8,
        };
        let data: Vec<u8> = values.iter().flat_map(|&value| number(value, size)).collect();
        let inside = if data.len() <= wide {
            let mut inside = data;
            inside.resize(wide, 0);
            inside
        } else {
            let at = file.len() as u64;
            file.extend(data);
            number(at, wide)
        };
        parts.push(
            [number(tag, 2), number(code, 2), number(values.len() as u64, wide), inside].concat(),
        );
    }
    let directory = file.len() as u64;
    file.extend(number(parts.len() as u64, if kind.big { 8 } else { 2 }));
    file.extend(parts.concat());
    file.extend(number(0, wide));
    file[place..place + wide].copy_from_slice(&number(directory, wide));
    file
}

/// Uncompressed strips of any height and order, in both byte orders and both forms of TIFF. Files
/// with other layouts are read as a whole.
fn tiffs() -> Result<(), Failed> {
    let bench = Bench::new();
    let plain = Kind {
        big: false,
        reversed: false,
        rows_per_strip: 41,
        compression: 1,
        photometric: 1,
        sample: (1, 1),
    };
    let rgb = Kind { photometric: 2, rows_per_strip: 3, ..plain };
    for (number, (kind, channels)) in [
        (plain, 1),
        (Kind { rows_per_strip: 1, ..plain }, 1),
        (Kind { big: true, sample: (2, 1), ..rgb }, 3),
        (Kind { reversed: true, sample: (2, 1), ..rgb }, 3),
        (Kind { big: true, reversed: true, sample: (4, 3), rows_per_strip: 7, ..plain }, 1),
        (Kind { sample: (2, 3), rows_per_strip: 100, ..plain }, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let descr = match kind.sample {
            (1, _) => "|u1",
            (2, _) => "<u2",
            _ => "<f4",
        };
        // 16-bit floats: whole numbers from 0 to 250, given by their bits.
        let values: Vec<u8> = match kind.sample {
            (2, 3) => (0..41 * 30 * channels)
                .flat_map(|i| half::f16::from_f32((i * 7919 % 251) as f32).to_le_bytes())
                .collect(),
            _ => values(descr, 41 * 30 * channels),
        };
        bench.put("in.tif", &tiff(kind, (41, 30, channels), &values));
        for border in ["reflect101", "wrap"] {
            for output in ["same.tif", "same.npy"] {
                both(&bench, "in.tif", output, &["--border", border, "--overwrite"]).map_err(
                    |failed| {
                        format!("{number}, {kind:?}: {}", failed.message().unwrap_or_default())
                    },
                )?;
            }
        }
    }
    for kind in [Kind { photometric: 0, ..plain }, Kind { compression: 5, ..plain }] {
        bench.put("other.tif", &tiff(kind, (41, 30, 1), &values("|u1", 41 * 30)));
        let output = bench.run(&[
            "filter",
            "other.tif",
            "other.npy",
            "--filter",
            "box:3",
            "--device",
            "cpu",
            "--verbose",
            "--chunk-above",
            "0",
            "--overwrite",
        ])?;
        if String::from_utf8_lossy(&output.stderr).contains("in chunks") {
            return Err(format!("{kind:?} was filtered in chunks").into());
        }
    }
    // Also from an array, with any strips in the result.
    bench.put("words.npy", &npy("<u2", "(410, 300, 3)", &values("<u2", 410 * 300 * 3)));
    both(&bench, "words.npy", "words.tif", &[])
}

/// Values of a type, each different from its neighbours.
fn values(descr: &str, count: usize) -> Vec<u8> {
    let value = |i: usize| (i * 7919 % 251) as u8;
    let bytes = |i| match descr {
        "|u1" => vec![value(i)],
        ">u2" => (u16::from(value(i)) * 200).to_be_bytes().to_vec(),
        "<u2" => (u16::from(value(i)) * 200).to_le_bytes().to_vec(),
        _ => f32::from(value(i)).to_le_bytes().to_vec(),
    };
    (0..count).flat_map(bytes).collect()
}

/// Filters a file in chunks and in one piece.
fn both(bench: &Bench, input: &str, output: &str, more: &[&str]) -> Result<(), Failed> {
    let filter = |output: &str, above: &str| {
        let arguments = [
            "filter",
            input,
            output,
            "--filter",
            "gaussian:2",
            "--device",
            "cpu",
            "--chunk-above",
            above,
        ];
        said(bench, &[&arguments[..], more, &["--verbose"]].concat())
    };
    let (chunks, whole) = (format!("chunks-{output}"), format!("whole-{output}"));
    let (in_chunks, in_one) = (filter(&chunks, "0")?, filter(&whole, "1G")?);
    if !in_chunks.contains("in chunks") || in_one.contains("in chunks") {
        return Err(format!("{input} {more:?}: {in_chunks} {in_one}").into());
    }
    if bench.get(&chunks)? == bench.get(&whole)? {
        Ok(())
    } else {
        Err(format!("{input} {more:?}: other files").into())
    }
}

fn same() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("bytes.npy", &npy("|u1", "(41, 30, 3)", &values("|u1", 41 * 30 * 3)));
    bench.put("words.npy", &npy(">u2", "(41, 30)", &values(">u2", 41 * 30)));
    bench.put("floats.npy", &npy("<f4", "(41, 30, 1)", &values("<f4", 41 * 30)));
    bench.put("bare.raw", &values("|u1", 41 * 30));
    for border in ["reflect101", "wrap", "keep"] {
        for input in ["bytes.npy", "words.npy", "floats.npy"] {
            both(&bench, input, "same.npy", &["--border", border, "--overwrite"])?;
            both(
                &bench,
                input,
                "floats.npy",
                &["--border", border, "--output-type", "f32", "--overwrite"],
            )?;
        }
        both(
            &bench,
            "bare.raw",
            "bare.raw",
            &["--raw", "30x41x1", "--border", border, "--overwrite"],
        )?;
        both(
            &bench,
            "bare.raw",
            "bare.npy",
            &["--raw", "30x41x1", "--border", border, "--overwrite"],
        )?;
    }
    Ok(())
}

/// Limits apply to the data in memory.
fn memory() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.npy", &npy("<f4", "(100, 90)", &values("<f4", 9000)));
    let arguments = [
        "filter",
        "in.npy",
        "out.npy",
        "--filter",
        "box:3",
        "--device",
        "cpu",
        "--max-bytes",
        "1K",
    ];
    refuse(&bench, &arguments, &["--max-bytes 1K"])?;
    Ok(bench.succeed(&[&arguments[..], &["--chunk-above", "1K"]].concat())?)
}

fn cut_off() -> Result<(), Failed> {
    let bench = Bench::new();
    let whole = npy("<f4", "(100, 90)", &values("<f4", 9000));
    bench.put("in.npy", &whole[..whole.len() - 1]);
    let arguments = [
        "filter",
        "in.npy",
        "out.npy",
        "--filter",
        "box:3",
        "--device",
        "cpu",
        "--chunk-above",
        "0",
    ];
    refuse(&bench, &arguments, &["in.npy", "too early"])?;
    let kind = Kind {
        big: false,
        reversed: false,
        rows_per_strip: 9,
        compression: 1,
        photometric: 1,
        sample: (1, 1),
    };
    let mut cut = tiff(kind, (41, 30, 1), &values("|u1", 41 * 30));
    // The strip sizes exceed the file.
    let end = cut.len() - 60;
    cut.truncate(end);
    bench.put("in.tif", &cut);
    let arguments = [
        "filter",
        "in.tif",
        "out.tif",
        "--filter",
        "box:3",
        "--device",
        "cpu",
        "--chunk-above",
        "0",
    ];
    refuse(&bench, &arguments, &["in.tif"])?;
    let left = bench.contents();
    if left.len() == 2 { Ok(()) } else { Err(format!("{:?} are left", left.keys()).into()) }
}
