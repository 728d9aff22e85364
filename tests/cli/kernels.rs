//! `apron --ptx`: kernels from a file.

use conformance::product::Gpu;
use conformance::suite::gpu_trial;
use libtest_mimic::{Failed, Trial};

use crate::tool::{Bench, PICTURES};

pub(crate) fn trials(gpu: &Gpu) -> Vec<Trial> {
    vec![
        Trial::test("kernels::info_tells_what_a_file_has", told),
        Trial::test("kernels::other_parameters_are_refused", refused),
        gpu_trial("kernels::a_files_kernel_is_run", gpu, run),
    ]
}

/// An entry of the lowest tier.
fn kernel(entry: &str) -> &'static apron::gpu::Kernel {
    let tier =
        apron::gpu::embedded().iter().min_by_key(|tier| tier.arch).expect("a build has kernels");
    tier.entry(entry).expect("the entry is in the build")
}

/// The PTX of an entry.
fn ptx(entry: &str) -> String {
    kernel(entry).ptx().expect("it is what the build packed")
}

fn told() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("one.ptx", format!("// Compiler: a test\n{}", ptx("keep_edges")).as_bytes());
    let output = bench.run(&["--ptx", "one.ptx", "info"])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, found) =
        text.split_once("Kernels taken from one.ptx").ok_or_else(|| format!("not told: {text}"))?;
    let taken = found.lines().nth(1).unwrap_or_default();
    if !output.status.success() || !taken.contains("1 entries") || !taken.ends_with("by a test") {
        return Err(format!("not as it should be: {text}").into());
    }
    let missing = found.lines().find(|line| line.contains("from this build:")).unwrap_or_default();
    if !missing.contains("direct_naive") || missing.contains("keep_edges") {
        return Err(format!("what is missing is not told: {text}").into());
    }
    Ok(())
}

fn refused() -> Result<(), Failed> {
    let bench = Bench::new();
    let size = kernel("keep_edges").parameters[0];
    let [size, less] = [size, size - 8].map(|size| size.to_string());
    bench.put(
        "old.ptx",
        ptx("keep_edges").replace(&format!("[{size}]"), &format!("[{less}]")).as_bytes(),
    );
    let output = bench.run(&["filters", "--ptx", "old.ptx"])?;
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    let words = ["old.ptx", "keep_edges", &less, &size];
    if output.status.code() != Some(1)
        || line.lines().count() != 1
        || !words.iter().all(|word| line.contains(word))
    {
        return Err(format!("{}: {line}", output.status).into());
    }
    Ok(())
}

/// The tool runs the file's kernel, not the embedded one: this kernel stores twice the right value.
fn run() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.png", PICTURES[2].1);
    let own = ptx("direct_naive");
    let doubled = own
        .lines()
        .map(|line| {
            match line.trim().strip_prefix("st.global.f32 ").and_then(|rest| rest.split_once(", "))
            {
                Some((to, value)) => {
                    let value = value.trim_end_matches(';');
                    format!("add.f32 {value}, {value}, {value};\nst.global.f32 {to}, {value};\n")
                }
                None => format!("{line}\n"),
            }
        })
        .collect::<String>();
    if !doubled.contains("add.f32") {
        return Err("the kernel's store is not found".into());
    }
    bench.put("same.ptx", own.as_bytes());
    bench.put("doubled.ptx", doubled.as_bytes());
    let filter = [
        "filter",
        "in.png",
        "out.npy",
        "--overwrite",
        "--filter",
        "emboss",
        "--output-type",
        "f32",
        "--device",
        "gpu:0",
    ];
    let filter = [&filter[..], &["--variant", "direct-naive"]].concat();
    let mut results = Vec::new();
    for more in [&[][..], &["--ptx", "same.ptx"], &["--ptx", "doubled.ptx"]] {
        let output = bench.run(&[&filter[..], more].concat())?;
        if !output.status.success() {
            return Err(format!("{more:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        results.push(bench.get("out.npy")?);
    }
    if results[0] != results[1] {
        return Err("the same kernel from a file gives another result".into());
    }
    if results[0] == results[2] {
        return Err("the file's kernel is not run".into());
    }
    Ok(())
}
