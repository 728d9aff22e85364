//! Bad input: one line that names it, a nonzero exit code, and no output written.

use libtest_mimic::{Failed, Trial};

use crate::tool::{Bench, PICTURES, npy, refuse};

/// Name, arguments, and words that the line must have.
type Case = (&'static str, &'static [&'static str], &'static [&'static str]);

const CASES: &[Case] = &[
    ("missing_file", &["filter", "nothing.png", "out.png", "--filter", "emboss"], &["nothing.png"]),
    ("not_an_image", &["filter", "text.png", "out.png", "--filter", "emboss"], &["text.png"]),
    ("empty_file", &["filter", "empty.png", "out.png", "--filter", "emboss"], &["empty.png"]),
    (
        "truncated_picture",
        &["filter", "truncated.png", "out.png", "--filter", "emboss"],
        &["truncated.png", "cut off"],
    ),
    (
        "truncated_array",
        &["filter", "truncated.npy", "out.npy", "--filter", "emboss"],
        &["truncated.npy"],
    ),
    (
        "array_of_complex_numbers",
        &["filter", "complex.npy", "out.npy", "--filter", "emboss"],
        &["complex.npy", "c8"],
    ),
    ("array_that_lies", &["filter", "huge.npy", "out.npy", "--filter", "emboss"], &["huge.npy"]),
    ("folder_as_input", &["filter", "folder", "out.png", "--filter", "emboss"], &["folder"]),
    (
        "negative_sigma",
        &["filter", "in.png", "out.png", "--filter", "gaussian:sigma=-1"],
        &["sigma", "-1"],
    ),
    (
        "sigma_not_a_number",
        &["filter", "in.png", "out.png", "--filter", "gaussian:sigma=nan"],
        &["sigma"],
    ),
    (
        "sigma_too_large",
        &["filter", "in.png", "out.png", "--filter", "gaussian:sigma=1e30"],
        &["sigma", "1e30"],
    ),
    (
        "unknown_filter",
        &["filter", "in.png", "out.png", "--filter", "blurr"],
        &["blurr", "gaussian"],
    ),
    (
        "unknown_parameter",
        &["filter", "in.png", "out.png", "--filter", "gaussian:sgma=1"],
        &["sgma", "sigma"],
    ),
    ("no_filter", &["filter", "in.png", "out.png"], &["--filter"]),
    ("ragged_taps", &["filter", "in.png", "out.png", "--taps", "1 2; 3"], &["2", "1"]),
    ("no_taps", &["filter", "in.png", "out.png", "--taps", ""], &["tap"]),
    ("taps_not_numbers", &["filter", "in.png", "out.png", "--taps", "1 two 3"], &["two"]),
    ("infinite_tap", &["filter", "in.png", "out.png", "--taps", "1 inf 3"], &["inf"]),
    (
        "taps_file_missing",
        &["filter", "in.png", "out.png", "--taps-file", "none.txt"],
        &["none.txt"],
    ),
    (
        "ragged_taps_file",
        &["filter", "in.png", "out.png", "--taps-file", "ragged.txt"],
        &["ragged.txt"],
    ),
    (
        "anchor_below_zero",
        &["filter", "in.png", "out.png", "--filter", "sobel-x", "--anchor", "-1,0"],
        &["-1,0", "--anchor", "counted from 0"],
    ),
    (
        "anchor_outside",
        &["filter", "in.png", "out.png", "--filter", "sobel-x", "--anchor", "3,0"],
        &["3,0"],
    ),
    (
        "unknown_border",
        &["filter", "in.png", "out.png", "--filter", "emboss", "--border", "reflex"],
        &["reflex", "reflect"],
    ),
    (
        "unknown_variant",
        &["filter", "in.png", "out.png", "--filter", "emboss", "--variant", "fast"],
        &["fast", "direct-naive"],
    ),
    (
        "variant_that_cannot",
        &[
            "filter",
            "in.png",
            "out.png",
            "--filter",
            "laplacian",
            "--variant",
            "separable",
            "--device",
            "cpu",
        ],
        &["separable"],
    ),
    (
        "memory_not_a_number",
        &["filter", "in.png", "out.png", "--filter", "emboss", "--gpu-memory", "much"],
        &["much", "as in 512M"],
    ),
    (
        "unknown_device",
        &["filter", "in.png", "out.png", "--filter", "emboss", "--device", "tpu"],
        &["tpu", "cpu"],
    ),
    (
        "device_not_there",
        &["filter", "in.png", "out.png", "--filter", "emboss", "--device", "gpu:7"],
        &["GPU"],
    ),
    (
        "unknown_option",
        &["filter", "in.png", "out.png", "--filter", "emboss", "--bordr", "wrap"],
        &["--bordr"],
    ),
    (
        "output_folder_not_there",
        &["filter", "in.png", "none/out.png", "--filter", "emboss"],
        &["none"],
    ),
    (
        "file_where_a_folder_should_be",
        &["filter", "in.png", "in.png/out.png", "--filter", "emboss"],
        &["in.png"],
    ),
    (
        "unwritable_output",
        &["filter", "in.png", "/proc/apron.png", "--filter", "emboss"],
        &["/proc"],
    ),
    ("unknown_format", &["filter", "in.png", "out.docx", "--filter", "emboss"], &["out.docx"]),
    ("no_format", &["filter", "in.png", "out", "--filter", "emboss"], &["out"]),
    (
        "type_the_format_lacks",
        &["filter", "in.png", "out.jpg", "--filter", "emboss", "--output-type", "f32"],
        &["f32"],
    ),
    (
        "many_into_one_file",
        &["filter", "in.png", "moon.png", "out.png", "--filter", "emboss"],
        &["out.png"],
    ),
    (
        "too_many_pixels",
        &["filter", "in.png", "out.png", "--filter", "emboss", "--max-pixels", "1000"],
        &["--max-pixels 1000", "--max-bytes 2G"],
    ),
    (
        "raw_of_another_size",
        &["filter", "text.png", "out.png", "--filter", "emboss", "--raw", "4x3x2"],
        &["24", "23"],
    ),
    (
        "raw_without_channels",
        &["filter", "text.png", "out.png", "--filter", "emboss", "--raw", "4x3"],
        &["--raw", "4x3"],
    ),
    (
        "raw_too_large",
        &["filter", "text.png", "out.png", "--filter", "emboss", "--raw", "500000000x500000000x4"],
        &["--max-pixels"],
    ),
    (
        "raw_unasked",
        &["filter", "text.raw", "out.png", "--filter", "emboss"],
        &["text.raw", "--raw"],
    ),
    (
        "halves_as_raw",
        &["filter", "in.png", "out.raw", "--filter", "emboss", "--output-type", "f16"],
        &["raw", "f16"],
    ),
    (
        "raw_of_a_type_unknown",
        &["filter", "text.png", "out.png", "--filter", "emboss", "--raw", "4x3x1:f64"],
        &["4x3x1:f64", "f32"],
    ),
    (
        "page_not_there",
        &["filter", "in.png", "out.png", "--filter", "emboss", "--page", "2"],
        &["in.png", "page 2"],
    ),
    (
        "page_zero",
        &["filter", "in.png", "out.png", "--filter", "emboss", "--page", "0"],
        &["--page", "0"],
    ),
    (
        "stack_or_channels",
        &["filter", "cube.npy", "out.npy", "--filter", "emboss"],
        &["--axes zyx", "--axes yxc"],
    ),
    (
        "axes_that_are_not_there",
        &["filter", "cube.npy", "out.npy", "--filter", "emboss", "--axes", "yx"],
        &["(5, 6, 7)", "2 axes"],
    ),
    ("unknown_command", &["flter", "in.png", "out.png"], &["flter", "filter"]),
    ("no_command", &[], &["--help"]),
    ("help_of_no_command", &["help", "flter"], &["flter"]),
    ("page_of_no_command", &["man", "flter"], &["flter", "filter"]),
    ("completions_of_no_shell", &["completions", "tcsh"], &["tcsh", "bash"]),
    #[cfg(feature = "gpu")]
    ("ptx_missing", &["--ptx", "none.ptx", "info"], &["none.ptx"]),
    #[cfg(feature = "gpu")]
    ("ptx_that_is_none", &["info", "--ptx", "in.png"], &["in.png", "not PTX"]),
    ("taps_into_no_folder", &["taps", "--filter", "sobel-x", "--out", "none/taps.npy"], &["none"]),
];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<_> = CASES
        .iter()
        .map(|case| {
            let unix_only = case.1.iter().any(|argument| argument.starts_with("/proc"));
            Trial::test(format!("bad_input::{}", case.0), || refused(case))
                .with_ignored_flag(unix_only && !cfg!(unix))
        })
        .collect();
    trials.push(Trial::test("bad_input::old_output_is_kept", old_output_is_kept));
    trials
}

/// A folder with good and bad files.
fn bench() -> Bench {
    let bench = Bench::new();
    let (_, moon) = PICTURES[2];
    bench.put("in.png", moon);
    bench.put("moon.png", moon);
    bench.put("text.png", b"This is not a picture.\n");
    bench.put("text.raw", b"This is not a picture.\n");
    bench.put("empty.png", b"");
    bench.put("truncated.png", &moon[..moon.len() / 2]);
    bench.put("truncated.npy", &npy("<f4", "(5, 7)", &[0; 4 * 34]));
    bench.put("complex.npy", &npy("<c8", "(1, 2)", &[0; 16]));
    bench.put("cube.npy", &npy("|u1", "(5, 6, 7)", &[0; 210]));
    bench.put("huge.npy", &npy("|u1", "(1000000000, 1000000000)", &[0; 16]));
    bench.put("ragged.txt", b"1 2 3\n4 5\n");
    std::fs::create_dir(bench.path().join("folder")).expect("a temporary folder");
    bench
}

fn refused(&(_, arguments, words): &Case) -> Result<(), Failed> {
    let bench = bench();
    refuse(&bench, arguments, words)
}

/// An old output file is unchanged after a failure of input or output.
fn old_output_is_kept() -> Result<(), Failed> {
    let bench = bench();
    bench.put("out.png", b"something that somebody needs");
    let filter = |input, more: &[&'static str]| {
        [&["filter", input, "out.png", "--overwrite", "--filter", "emboss"], more].concat()
    };
    refuse(&bench, &filter("truncated.png", &[]), &["truncated.png"])?;
    refuse(&bench, &filter("in.png", &["--device", "gpu:7"]), &["GPU"])?;
    refuse(&bench, &filter("truncated.npy", &[]), &["truncated.npy"])
}
