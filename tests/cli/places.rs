//! Where pictures are read from and written to: no file is lost unless the user names it, and
//! folders, pipes and names work as documented.

use std::path::Path;
use std::process::Command;

use image::{ImageFormat, RgbImage};
use libtest_mimic::{Failed, Trial};

use crate::pipes::piped;
use crate::tool::{Bench, apron, refuse, said};

pub(crate) fn trials() -> Vec<Trial> {
    let on_unix = |name: &str, test: fn() -> Result<(), Failed>| {
        Trial::test(format!("places::{name}"), test).with_ignored_flag(!cfg!(unix))
    };
    vec![
        Trial::test("places::nothing_is_overwritten_unasked", overwriting),
        Trial::test("places::out_among_several_inputs_is_refused", out_among_inputs),
        Trial::test("places::existing_results_are_skipped", skipping),
        Trial::test("places::a_suffix_writes_beside", suffix),
        Trial::test("places::folders_are_read_and_made", folders),
        Trial::test("places::results_are_kept_apart", apart),
        Trial::test("places::failures_are_counted", counted),
        on_unix("standard_input_and_output", streams),
        on_unix("named_pipes", pipes),
        on_unix("an_unwritable_folder_is_named", unwritable),
    ]
}

/// A small picture, different for each `shade`.
pub(crate) fn picture(shade: u8, format: ImageFormat) -> Vec<u8> {
    let image =
        RgbImage::from_fn(24, 17, |x, y| image::Rgb([shade, (x * 9) as u8, (y * 13) as u8]));
    let mut bytes = std::io::Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).expect("a picture in memory");
    bytes.into_inner()
}

fn png(shade: u8) -> Vec<u8> {
    picture(shade, ImageFormat::Png)
}

/// The identity filter: a result shows which picture it came from.
const FILTER: [&str; 4] = ["--filter", "identity", "--device", "cpu"];

fn arguments<'a>(paths: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [&["filter"], paths, &FILTER[..], more].concat()
}

/// The shade of an output picture.
fn shade(bench: &Bench, name: &str) -> Result<u8, Failed> {
    Ok(shade_of(&bench.get(name)?)?)
}

fn shade_of(bytes: &[u8]) -> Result<u8, String> {
    Ok(image::load_from_memory(bytes).map_err(|error| error.to_string())?.to_rgb8().get_pixel(0, 0)
        [0])
}

fn shades(bench: &Bench, expected: &[(&str, u8)]) -> Result<(), Failed> {
    for (name, value) in expected {
        let found = shade(bench, name)?;
        if found != *value {
            return Err(format!("{name} is the result of picture {found}, not {value}").into());
        }
    }
    Ok(())
}

fn overwriting() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("a.png", &png(10));
    bench.put("b.png", &png(20));
    refuse(&bench, &arguments(&["a.png", "b.png"], &[]), &["b.png", "exists", "--overwrite"])?;
    bench.succeed(&arguments(&["a.png", "b.png"], &["--overwrite"]))?;
    bench.succeed(&arguments(&["a.png", "c.png"], &[]))?;
    // OUT may be IN, under any of its names.
    bench.succeed(&arguments(&["a.png", "a.png"], &[]))?;
    bench.succeed(&arguments(&["a.png", "./a.png"], &[]))?;
    shades(&bench, &[("a.png", 10), ("b.png", 10), ("c.png", 10)])?;
    // Files in a folder given as OUT are replaced.
    std::fs::create_dir(bench.path().join("out"))?;
    bench.put("out/a.png", b"old");
    bench.succeed(&arguments(&["a.png", "out"], &[]))?;
    shades(&bench, &[("out/a.png", 10)])?;
    refuse(&bench, &["taps", "--filter", "sobel-x", "--out", "a.png"], &["a.png", "--overwrite"])?;
    Ok(bench.succeed(&["taps", "--filter", "sobel-x", "--out", "a.png", "--overwrite"])?)
}

fn out_among_inputs() -> Result<(), Failed> {
    let bench = Bench::new();
    for (name, shade) in [("a.png", 10), ("b.png", 20), ("c.png", 30)] {
        bench.put(name, &png(shade));
    }
    // The expansion of *.png by a shell, without OUT.
    refuse(
        &bench,
        &arguments(&["a.png", "b.png", "c.png"], &[]),
        &["c.png", "folder", "--suffix"],
    )?;
    refuse(
        &bench,
        &arguments(&["a.png", "b.png", "c.png"], &["--overwrite"]),
        &["c.png", "folder"],
    )?;
    refuse(&bench, &arguments(&["a.png"], &[]), &["a.png", "only file", "--suffix"])?;
    refuse(&bench, &arguments(&[], &[]), &["name a picture"])?;
    refuse(
        &bench,
        &arguments(&["a.png", "b.png", "new.png"], &[]),
        &["new.png", "one file", "out/"],
    )?;
    refuse(
        &bench,
        &arguments(&["a.png", "b.png", "-"], &["--format", "png"]),
        &["standard output", "folder"],
    )?;
    refuse(&bench, &arguments(&["a.png", "a.png", "out/"], &[]), &["both be written", "out/a.png"])
}

fn skipping() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("a.png", &png(10));
    bench.put("b.png", &png(20));
    std::fs::create_dir(bench.path().join("out"))?;
    bench.put("out/a.png", &png(99));
    let line = said(&bench, &arguments(&["a.png", "b.png", "out"], &["--skip-existing"]))?;
    if !line.contains("1 of 2 pictures left out") {
        return Err(format!("it did not say that one was left out: {line}").into());
    }
    shades(&bench, &[("out/a.png", 99), ("out/b.png", 20)])?;
    bench.succeed(&arguments(&["a.png", "b.png"], &["--skip-existing", "--quiet"]))?;
    shades(&bench, &[("b.png", 20)])
}

fn suffix() -> Result<(), Failed> {
    let bench = Bench::new();
    std::fs::create_dir(bench.path().join("sub"))?;
    bench.put("a.png", &png(10));
    bench.put("sub/b.c.bmp", &picture(20, ImageFormat::Bmp));
    bench.succeed(&arguments(&["a.png", "sub/b.c.bmp"], &["--suffix", "-new"]))?;
    bench.succeed(&arguments(&["a.png"], &["--suffix", ".1", "--format", "tif"]))?;
    bench.succeed(&arguments(&["a.png", "sub/b.c.bmp", "out/"], &["--suffix", "_x"]))?;
    let expected = [
        ("a-new.png", 10),
        ("sub/b.c-new.bmp", 20),
        ("a.1.tif", 10),
        ("out/a_x.png", 10),
        ("out/b.c_x.bmp", 20),
    ];
    shades(&bench, &expected)?;
    refuse(&bench, &arguments(&["a.png"], &["--suffix", "-new"]), &["a-new.png", "--overwrite"])?;
    // A path that is not a folder is another picture.
    refuse(&bench, &arguments(&["none.png"], &["--suffix", "-new"]), &["none.png"])
}

fn folders() -> Result<(), Failed> {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path().join("in/deep/er"))?;
    for (name, shade) in
        [("in/a.png", 10), ("in/B.PNG", 20), ("in/deep/a.png", 30), ("in/deep/er/c.png", 40)]
    {
        bench.put(name, &png(shade));
    }
    bench.put("in/notes.txt", b"no picture");
    bench.put("in/.hidden.png", b"no picture");
    bench.put("in/README", b"no picture");
    bench.succeed(&arguments(&["in", "flat"], &[]))?;
    shades(&bench, &[("flat/a.png", 10), ("flat/B.PNG", 20)])?;
    let files = |folder: &str| {
        let below = bench.path().join(folder);
        bench
            .contents()
            .into_iter()
            .filter(|(path, found)| path.starts_with(&below) && found.is_some())
            .count()
    };
    bench.succeed(&arguments(&["in", "new/tree/"], &["--recursive", "--format", "bmp"]))?;
    let tree = [("a.bmp", 10), ("B.bmp", 20), ("deep/a.bmp", 30), ("deep/er/c.bmp", 40)];
    for (name, value) in tree {
        shades(&bench, &[(&format!("new/tree/{name}"), value)])?;
    }
    // An output folder inside the input folder is not read.
    for _ in 0..2 {
        bench.succeed(&arguments(&["in", "in/out"], &["--recursive"]))?;
    }
    let counts = [files("flat"), files("new"), files("in/out")];
    if counts != [2, 4, 4] {
        return Err(format!("files written: {counts:?}").into());
    }
    std::fs::create_dir_all(bench.path().join("empty/full"))?;
    bench.put("empty/full/a.png", &png(10));
    refuse(&bench, &arguments(&["empty", "none"], &[]), &["empty", "no file", "--recursive"])?;
    refuse(&bench, &arguments(&["in", "one.png"], &[]), &["one.png", "folder"])?;
    // A folder is created only for a picture that could be read.
    bench.put("bad.png", b"no picture");
    refuse(&bench, &arguments(&["bad.png", "never/"], &[]), &["bad.png"])?;
    refuse(&bench, &arguments(&["in/a.png", "bad.png/"], &[]), &["bad.png"])
}

/// No picture's result overwrites another's, or is read as an input.
fn apart() -> Result<(), Failed> {
    let bench = Bench::new();
    std::fs::create_dir(bench.path().join("in"))?;
    bench.put("a.png", &png(10));
    bench.put("a.bmp", &picture(20, ImageFormat::Bmp));
    bench.put("a-x.png", &png(30));
    refuse(
        &bench,
        &arguments(&["a.png", "a.bmp", "out/"], &["--format", "png"]),
        &["a.png and a.bmp", "both"],
    )?;
    refuse(
        &bench,
        &arguments(&["a.png", "a-x.png"], &["--suffix", "-x", "--overwrite"]),
        &["a-x.png", "is also an input"],
    )?;
    refuse(&bench, &arguments(&["a.png", "./a.png"], &["--suffix", "-y"]), &["a.png"])
}

fn counted() -> Result<(), Failed> {
    let bench = Bench::new();
    for name in ["a.png", "b.png"] {
        bench.put(name, b"no picture");
    }
    bench.put("c.png", &png(10));
    for (paths, last) in [
        (&["a.png", "b.png", "out/"][..], "none of the 2 pictures was written"),
        (&["a.png", "b.png", "c.png", "out/"], "2 of 3 pictures failed; the others are done"),
    ] {
        let output = bench.run(&arguments(paths, &[]))?;
        let lines = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() != Some(1)
            || lines.lines().count() != 3
            || !lines.trim_end().ends_with(last)
        {
            return Err(format!("{}: {lines}", output.status).into());
        }
    }
    shades(&bench, &[("out/c.png", 10)])
}

fn streams() -> Result<(), Failed> {
    let bench = Bench::new();
    let taken = |arguments: &[&str], input: &[u8]| {
        let output = piped(&bench, arguments, input)?;
        match output.status.success() && output.stderr.is_empty() {
            true => Ok(output.stdout),
            false => Err(Failed::from(format!(
                "{arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            ))),
        }
    };
    let out = taken(&arguments(&["-", "-"], &["--format", "bmp"]), &png(10))?;
    if !out.starts_with(b"BM") || shade_of(&out)? != 10 {
        return Err("standard output is not the picture as BMP".into());
    }
    taken(&arguments(&["-", "a.png"], &[]), &png(20))?;
    taken(&arguments(&["/dev/stdin", "b.png"], &[]), &png(30))?;
    taken(&arguments(&["-", "c.npy"], &["--raw", "3x2x1"]), b"abcdef")?;
    shades(&bench, &[("a.png", 20), ("b.png", 30)])?;
    if !bench.get("c.npy")?.ends_with(b"abcdef") {
        return Err("raw pixels from standard input are not what came".into());
    }
    for (line, words) in [
        (arguments(&["a.png", "-"], &[]), &["standard output", "--format"][..]),
        (arguments(&["-", "out/"], &[]), &["standard input", "name"]),
        (arguments(&["-", "d.png"], &["--raw", "3x3x1"]), &["9 bytes"]),
        (arguments(&["-"], &["--suffix", "-x"]), &["standard input"]),
    ] {
        let output = piped(&bench, &line, b"abc")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let fine = output.status.code().is_some_and(|code| code > 0) && output.stdout.is_empty();
        if !fine || said.lines().count() != 1 || !words.iter().all(|word| said.contains(word)) {
            return Err(format!("{line:?}: {}, {said}", output.status).into());
        }
    }
    // After an unreadable picture nothing is written to stdout.
    let output = piped(&bench, &arguments(&["-", "-"], &["--format", "png"]), &png(10)[..60])?;
    match output.status.code() == Some(1) && output.stdout.is_empty() {
        true => Ok(()),
        false => Err(format!("{}, {} bytes", output.status, output.stdout.len()).into()),
    }
}

fn pipes() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("a.png", &png(10));
    for name in ["in", "out"] {
        let made = Command::new("mkfifo").arg(bench.path().join(name)).status()?;
        if !made.success() {
            return Err(format!("mkfifo {name}: {made}").into());
        }
    }
    let line = "cat a.png > in & cat out > b.png & \"$0\" \"$@\" && wait";
    let output = Command::new("sh")
        .args(["-c", line])
        .arg(apron()?)
        .args(arguments(&["in", "out"], &["--format", "png"]))
        .current_dir(bench.path())
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    shades(&bench, &[("b.png", 10)])
}

/// The error names the folder and the reason, not the temporary file.
fn unwritable() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("a.png", &png(10));
    // A folder in which nobody may write, not even root.
    if !Path::new("/proc/self/fd").is_dir() {
        return Ok(());
    }
    let output = bench.run(&arguments(&["a.png", "/proc/self/out.png"], &[]))?;
    let line = String::from_utf8_lossy(&output.stderr);
    let right = line.contains("/proc/self/out.png")
        && line.contains("nothing can be written in")
        && !line.contains(".apron-");
    if output.status.code() == Some(1) && right {
        Ok(())
    } else {
        Err(format!("{}: {line}", output.status).into())
    }
}
