//! Large arrays from file to file in chunks: the same files as in one piece, with less memory.

use libtest_mimic::{Failed, Trial};

use crate::tool::{Bench, npy, refuse, said};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("chunks::files_are_the_same", same),
        Trial::test("chunks::arrays_need_not_fit_in_memory", memory),
        Trial::test("chunks::what_is_cut_off_is_refused", cut_off),
    ]
}

/// So many values of a type, each another than its neighbours.
fn values(descr: &str, count: usize) -> Vec<u8> {
    let value = |i: usize| (i * 7919 % 251) as u8;
    let bytes = |i| match descr {
        "|u1" => vec![value(i)],
        ">u2" => (u16::from(value(i)) * 200).to_be_bytes().to_vec(),
        _ => f32::from(value(i)).to_le_bytes().to_vec(),
    };
    (0..count).flat_map(bytes).collect()
}

/// Filters a file in chunks and in one piece.
fn both(bench: &Bench, input: &str, output: &str, more: &[&str]) -> Result<(), Failed> {
    let filter = |output: &str, above: &str| {
        let arguments = ["filter", input, output, "--filter", "gaussian:2", "--device", "cpu", "--chunk-above", above];
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
            both(&bench, input, "floats.npy", &["--border", border, "--output-type", "f32", "--overwrite"])?;
        }
        both(&bench, "bare.raw", "bare.raw", &["--raw", "30x41x1", "--border", border, "--overwrite"])?;
        both(&bench, "bare.raw", "bare.npy", &["--raw", "30x41x1", "--border", border, "--overwrite"])?;
    }
    Ok(())
}

/// Limits are on what is in memory.
fn memory() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.npy", &npy("<f4", "(100, 90)", &values("<f4", 9000)));
    let arguments = ["filter", "in.npy", "out.npy", "--filter", "box:3", "--device", "cpu", "--max-bytes", "1K"];
    refuse(&bench, &arguments, &["--max-bytes 1K"])?;
    Ok(bench.succeed(&[&arguments[..], &["--chunk-above", "1K"]].concat())?)
}

fn cut_off() -> Result<(), Failed> {
    let bench = Bench::new();
    let whole = npy("<f4", "(100, 90)", &values("<f4", 9000));
    bench.put("in.npy", &whole[..whole.len() - 1]);
    let arguments = ["filter", "in.npy", "out.npy", "--filter", "box:3", "--device", "cpu", "--chunk-above", "0"];
    refuse(&bench, &arguments, &["in.npy", "too early"])?;
    let left = bench.contents();
    if left.len() == 1 { Ok(()) } else { Err(format!("{:?} are left", left.keys()).into()) }
}
