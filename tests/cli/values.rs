//! Values of results: scaled between types, saturated, signed. Each is compared with numbers worked
//! out here.

use libtest_mimic::{Failed, Trial};

use crate::places::picture;
use crate::tool::{Bench, npy, refuse, said};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("values::ranges_are_scaled", scaled),
        Trial::test("values::sixteen_bits_keep_their_look_as_eight", sixteen_to_eight),
        Trial::test("values::floats_are_not_guessed_at", floats),
        Trial::test("values::lost_signs_are_told", signs),
        Trial::test("values::other_types_are_not_flattened", other_types),
        Trial::test("values::hints_can_be_followed", hints),
        Trial::test("values::options_without_effect_are_told", ignored),
        Trial::test("values::alpha_stays_opaque", alpha),
        Trial::test("values::names_of_other_programs", names),
        Trial::test("values::lost_nans_are_told", nans),
    ]
}

const IDENTITY: [&str; 4] = ["--filter", "identity", "--device", "cpu"];

fn u16s(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn holds(bench: &Bench, name: &str, expected: &[u8]) -> Result<(), Failed> {
    let found = bench.get(name)?;
    match found == expected {
        true => Ok(()),
        false => {
            Err(format!("{name}: {} for {}", found.escape_ascii(), expected.escape_ascii()).into())
        }
    }
}

fn scaled() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("bytes.npy", &npy("|u1", "(1, 4)", &[0, 1, 51, 255]));
    bench.put("words.npy", &npy("<u2", "(1, 4)", &u16s(&[0, 257, 1024, 65535])));
    bench.put("floats.npy", &npy("<f4", "(1, 4)", &f32s(&[-1.0, 0.0, 0.5, 3.0])));
    let bytes = |values: [u8; 4]| npy("|u1", "(1, 4)", &values);
    let words = |values: [u16; 4]| npy("<u2", "(1, 4)", &u16s(&values));
    let floats = |values: [f32; 4]| npy("<f4", "(1, 4)", &f32s(&values));
    let cases: [(&str, &[&str], Vec<u8>); 11] = [
        ("bytes.npy", &["--output-type", "f32"], floats([0.0, 1.0, 51.0, 255.0])),
        (
            "bytes.npy",
            &["--output-type", "f32", "--scale", "full"],
            floats([0.0, 1.0 / 255.0, 0.2, 1.0]),
        ),
        (
            "bytes.npy",
            &["--output-type", "u16", "--scale", "full"],
            words([0, 257, 51 * 257, 65535]),
        ),
        ("bytes.npy", &["--output-type", "u16", "--scale", "none"], words([0, 1, 51, 255])),
        ("words.npy", &["--output-type", "u8", "--scale", "none"], bytes([0, 255, 255, 255])),
        ("words.npy", &["--output-type", "u8", "--scale", "0..1024"], bytes([0, 64, 255, 255])),
        ("floats.npy", &["--output-type", "u8", "--scale", "full"], bytes([0, 0, 128, 255])),
        ("floats.npy", &["--output-type", "u8", "--scale", "-1..3"], bytes([0, 64, 96, 255])),
        ("floats.npy", &["--output-type", "u8", "--normalize"], bytes([0, 64, 96, 255])),
        (
            "floats.npy",
            &["--output-type", "u8", "--scale", "none", "--abs", "--offset", "10"],
            bytes([11, 10, 10, 13]),
        ),
        ("bytes.npy", &["--offset", "-1.5"], bytes([0, 0, 50, 254])),
    ];
    for (input, options, expected) in cases {
        bench.succeed(
            &[&["filter", input, "out.npy", "--overwrite"], &IDENTITY[..], options].concat(),
        )?;
        holds(&bench, "out.npy", &expected)
            .map_err(|error| format!("{options:?}: {}", error.message().unwrap_or("")))?;
    }
    Ok(())
}

/// White stays white, and the tool reports the scaling.
fn sixteen_to_eight() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.npy", &npy("<u2", "(1, 3)", &u16s(&[0, 32896, 65535])));
    let line = said(
        &bench,
        &[&["filter", "in.npy", "out.npy", "--output-type", "u8"], &IDENTITY[..]].concat(),
    )?;
    if !line.contains("--scale full") || !line.contains("--scale none") || line.lines().count() != 1
    {
        return Err(format!("it did not say how: {line}").into());
    }
    holds(&bench, "out.npy", &npy("|u1", "(1, 3)", &[0, 128, 255]))
}

/// Floats may have any range, so none is assumed.
fn floats() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.npy", &npy("<f4", "(1, 2)", &f32s(&[0.25, 1.0])));
    let line = [&["filter", "in.npy", "out.npy", "--output-type", "u8"], &IDENTITY[..]].concat();
    refuse(&bench, &line, &["--scale full", "--scale none", "--scale MIN..MAX", "--normalize"])
}

/// Negative derivatives that saturate are counted.
fn signs() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.npy", &npy("|u1", "(1, 5)", &[0, 100, 0, 100, 0]));
    let taps = ["--taps", "-1 1", "--border", "replicate", "--device", "cpu"];
    let line = said(&bench, &[&["filter", "in.npy", "out.npy"], &taps[..]].concat())?;
    for word in ["in.npy", "out.npy", "40 %", "--abs", "--offset 128", "--output-type f32"] {
        if word != "in.npy" && !line.contains(word) {
            return Err(format!("{word} is not named: {line}").into());
        }
    }
    // The anchor is the second tap: differences to the left neighbour are 0, 100, -100, 100, -100.
    holds(&bench, "out.npy", &npy("|u1", "(1, 5)", &[0, 100, 0, 100, 0]))?;
    for (options, expected) in [
        (&["--abs"][..], [0u8, 100, 100, 100, 100]),
        (&["--offset", "128"], [128, 228, 28, 228, 28]),
        (&["--normalize"], [128, 255, 0, 255, 0]),
        (&["--scale", "none"], [0, 100, 0, 100, 0]),
        (&["--quiet"], [0, 100, 0, 100, 0]),
    ] {
        bench.succeed(
            &[&["filter", "in.npy", "out.npy", "--overwrite"], &taps[..], options].concat(),
        )?;
        holds(&bench, "out.npy", &npy("|u1", "(1, 5)", &expected))?;
    }
    // The tool reports nothing if no value is lost.
    bench.put("ramp.npy", &npy("|u1", "(1, 3)", &[0, 1, 2]));
    Ok(bench.succeed(&[&["filter", "ramp.npy", "out.npy", "--overwrite"], &taps[..]].concat())?)
}

/// Numbers of other types keep their type, except where they are scaled to 0 to 1: rounding would
/// leave only 0 and 1.
fn other_types() -> Result<(), Failed> {
    let bench = Bench::new();
    let i16s =
        |values: [i16; 3]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    bench.put("in.npy", &npy("<i2", "(1, 3)", &i16s([-100, 0, 300])));
    let filter = |options: &[&'static str]| {
        [&["filter", "in.npy", "out.npy", "--overwrite"], &IDENTITY[..], options].concat()
    };
    bench.succeed(&filter(&["--offset", "-5"]))?;
    holds(&bench, "out.npy", &npy("<i2", "(1, 3)", &i16s([-105, -5, 295])))?;
    bench.succeed(&filter(&["--normalize"]))?;
    holds(&bench, "out.npy", &npy("<f4", "(1, 3)", &f32s(&[0.0, 0.25, 1.0])))
}

/// A hint names every option that is needed.
fn hints() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.npy", &npy("<f4", "(1, 1, 3)", &f32s(&[0.0, 0.2, 1.0])));
    let line = [&["filter", "in.npy", "out.bmp"], &IDENTITY[..]].concat();
    refuse(&bench, &line, &["--output-type u8 --scale full"])?;
    bench.succeed(&[&line[..], &["--output-type", "u8", "--scale", "full"]].concat())?;
    let pixels = image::load_from_memory(&bench.get("out.bmp")?)?.to_rgb8();
    if pixels.as_raw() != &[0, 51, 255] {
        return Err(format!("{pixels:?}").into());
    }
    bench.put("bytes.npy", &npy("|u1", "(1, 1, 3)", &[0, 51, 255]));
    let line = [&["filter", "bytes.npy", "out.hdr"], &IDENTITY[..]].concat();
    refuse(&bench, &line, &["--output-type f32 --scale full"])
}

fn ignored() -> Result<(), Failed> {
    let bench = Bench::new();
    // Large enough that a JPEG's tables are a small part of it.
    let textured = image::RgbImage::from_fn(160, 120, |x, y| {
        image::Rgb([x * y, x * 3, y * 5].map(|value| value as u8))
    });
    textured.save(bench.path().join("in.png"))?;
    let filter = |output: &'static str, more: &[&'static str]| {
        [&["filter", "in.png", output], &IDENTITY[..], more].concat()
    };
    refuse(&bench, &filter("out.png", &["--quality", "80"]), &["--quality", "JPEG", "out.png"])?;
    refuse(&bench, &filter("out.jpg", &["--format", "png"]), &["out.jpg", "--format", "png"])?;
    bench.succeed(&filter("out.jpg", &["--quality", "80"]))?;
    bench.succeed(&filter("out.jpeg", &["--format", "jpg", "--quality", "10"]))?;
    bench.succeed(&filter("out.dat", &["--format", "png"]))?;
    if bench.get("out.jpeg")?.len() >= bench.get("out.jpg")?.len()
        || !bench.get("out.dat")?.starts_with(b"\x89PNG")
    {
        return Err("the quality or the format is not what was asked for".into());
    }
    for option in [&["--autotune"][..], &["--gpu-memory", "1G"]] {
        let line = said(&bench, &filter("out.png", &[option, &["--overwrite"]].concat()))?;
        if !line.contains(option[0]) || !line.contains("no effect") {
            return Err(format!("{option:?}: {line}").into());
        }
    }
    Ok(())
}

/// Alpha is scaled with its type, independently of the colours.
fn alpha() -> Result<(), Failed> {
    let bench = Bench::new();
    let pixels =
        image::RgbaImage::from_fn(3, 1, |x, _| image::Rgba([10, 20, 30, [0, 51, 255][x as usize]]));
    pixels.save(bench.path().join("in.png"))?;
    let filter = |options: &[&'static str]| {
        [&["filter", "in.png", "out.png", "--overwrite"], &IDENTITY[..], options].concat()
    };
    bench.succeed(&filter(&["--output-type", "u16", "--scale", "10..30", "--alpha", "keep"]))?;
    let found = image::load_from_memory(&bench.get("out.png")?)?.to_rgba16();
    let expected: Vec<u16> =
        [0, 51 * 257, 65535].into_iter().flat_map(|alpha| [0, 32768, 65535, alpha]).collect();
    if found.as_raw() != &expected {
        return Err(format!("{found:?}").into());
    }
    Ok(())
}

/// Other programs' names for the same parameters.
fn names() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.png", &picture(10, image::ImageFormat::Png));
    let taps = |filter: &str| {
        let output = bench.run(&["taps", "--filter", filter])?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(Failed::from(filter.to_owned()))
        }
    };
    for (alias, name) in [
        ("blur:2", "gaussian:sigma=2"),
        ("gaussian:radius=2", "gaussian:sigma=2"),
        ("laplacian:neighbors=8", "laplacian:neighbours=8"),
    ] {
        if taps(alias)? != taps(name)? {
            return Err(format!("{alias} is not {name}").into());
        }
    }
    for (alias, name) in [("mirror", "reflect101"), ("nearest", "replicate"), ("edge", "replicate")]
    {
        for (border, output) in [(alias, "alias.png"), (name, "name.png")] {
            let line = [
                "filter",
                "in.png",
                output,
                "--filter",
                "blur:2",
                "--border",
                border,
                "--device",
                "cpu",
                "--overwrite",
            ];
            bench.succeed(&line)?;
        }
        if bench.get("alias.png")? != bench.get("name.png")? {
            return Err(format!("{alias} is not {name}").into());
        }
    }
    refuse(
        &bench,
        &["taps", "--filter", "laplacian:neighbours=6"],
        &["neighbours is 6, but must be 4 or 8"],
    )
}

/// NaN in floats of every type becomes 0 in integers of every type, under every option for scaling,
/// and is counted.
fn nans() -> Result<(), Failed> {
    let bench = Bench::new();
    let (width, height) = (23, 11);
    let at = [(0, 0), (5, 4), (6, 4), (22, 10), (12, 0)];
    let is_nan = |x: usize, y: usize| at.contains(&(x, y));
    let values: Vec<f64> = (0..width * height)
        .map(|i| if is_nan(i % width, i / width) { f64::NAN } else { (i % 200) as f64 })
        .collect();
    let shape = format!("({height}, {width})");
    let bytes = |descr: &str| -> Vec<u8> {
        match descr {
            "<f2" => {
                values.iter().flat_map(|&value| half::f16::from_f64(value).to_le_bytes()).collect()
            }
            "<f4" => values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect(),
            ">f4" => values.iter().flat_map(|&value| (value as f32).to_be_bytes()).collect(),
            _ => values.iter().flat_map(|&value| value.to_le_bytes()).collect(),
        }
    };
    // Under a 3x3 box, each neighbour of a NaN is NaN too.
    let beside =
        |x: usize, y: usize| at.iter().any(|&(nx, ny)| nx.abs_diff(x) < 2 && ny.abs_diff(y) < 2);
    let dilated = (0..width * height).filter(|i| beside(i % width, i / width)).count();
    for (filter, count) in [("identity", at.len()), ("box:size=3", dilated)] {
        let common =
            ["--filter", filter, "--border", "replicate", "--device", "cpu", "--overwrite"];
        let expected = format!("{count} of {} values are NaN and became 0", width * height);
        for descr in ["<f2", "<f4", ">f4", "<f8"] {
            bench.put("in.npy", &npy(descr, &shape, &bytes(descr)));
            bench.succeed(
                &[&["filter", "in.npy", "in.tif"], &["--filter", "identity", "--overwrite"][..]]
                    .concat(),
            )?;
            for input in ["in.npy", "in.tif"] {
                for target in ["u8", "u16"] {
                    for (scale, option) in [
                        ("--scale", "none"),
                        ("--scale", "full"),
                        ("--scale", "0..300"),
                        ("--normalize", "--abs"),
                    ] {
                        let how = ["--output-type", target, scale, option];
                        for more in [&[][..], &["--chunk-above", "1"]] {
                            let line = said(
                                &bench,
                                &[&["filter", input, "out.npy"], &common[..], &how, more].concat(),
                            )?;
                            if !line.contains(&expected)
                                || line.lines().count() != 1
                                || !line.contains("--output-type f32")
                            {
                                return Err(format!(
                                    "{descr} in {input}, {filter}, {how:?}: {line}"
                                )
                                .into());
                            }
                            // The counted values are those that are 0.
                            let out = bench.get("out.npy")?;
                            let size = if target == "u8" { 1 } else { 2 };
                            let of =
                                |i: usize| &out[out.len() - (width * height - i) * size..][..size];
                            let wrong = (0..width * height)
                                .filter(|i| {
                                    if filter == "identity" {
                                        is_nan(i % width, i / width)
                                    } else {
                                        beside(i % width, i / width)
                                    }
                                })
                                .any(|i| of(i).iter().any(|&byte| byte != 0));
                            if wrong {
                                return Err(format!(
                                    "{descr} in {input}, {filter}, {how:?}: a NaN is not 0"
                                )
                                .into());
                            }
                        }
                        bench.succeed(
                            &[&["filter", input, "out.npy", "-q"], &common[..], &how].concat(),
                        )?;
                    }
                }
                // Floats keep NaN, and the tool reports nothing.
                bench.succeed(
                    &[&["filter", input, "out.npy", "--output-type", "f32"], &common[..]].concat(),
                )?;
            }
        }
    }
    // The pictures of a call are counted together. A picture without NaN adds nothing, and
    // infinities are not counted.
    bench.put("a.npy", &npy("<f4", "(1, 4)", &f32s(&[1.0, f32::NAN, f32::INFINITY, 3.0])));
    bench.put("b.npy", &npy("<f4", "(1, 4)", &f32s(&[f32::NAN, f32::NAN, 2.0, 3.0])));
    bench.put("c.npy", &npy("<f4", "(1, 4)", &f32s(&[1.0, f32::NEG_INFINITY, 2.0, 3.0])));
    let how = ["--output-type", "u8", "--scale", "none"];
    let line = said(
        &bench,
        &[&["filter", "a.npy", "b.npy", "c.npy", "out/"], &IDENTITY[..], &how].concat(),
    )?;
    if !line.contains("and 1 other: 3 of 8 values are NaN") || line.lines().count() != 1 {
        return Err(format!("three pictures: {line}").into());
    }
    // Infinities of both signs add up to NaN.
    bench.put("d.npy", &npy("<f4", "(1, 3)", &f32s(&[f32::INFINITY, 1.0, f32::NEG_INFINITY])));
    let sum = ["--taps", "1 1 1", "--border", "constant:0", "--device", "cpu"];
    let line = said(&bench, &[&["filter", "d.npy", "d-out.npy"], &sum[..], &how].concat())?;
    if !line.contains("1 of 3 values are NaN") {
        return Err(format!("infinities: {line}").into());
    }
    Ok(())
}
