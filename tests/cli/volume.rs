//! `--volume`: filters along the slices of arrays and TIFFs.

use libtest_mimic::{Failed, Trial};

use crate::tool::{Bench, PICTURES, npy, refuse};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("volume::three_axes", three_axes),
        Trial::test("volume::pages", pages),
        Trial::test("volume::refused", refused),
    ]
}

const SLICES: usize = 7;
const HEIGHT: usize = 12;
const WIDTH: usize = 15;

/// Values of a volume of u16.
fn volume() -> Vec<u16> {
    let mut random = fastrand::Rng::with_seed(3);
    (0..SLICES * HEIGHT * WIDTH).map(|_| random.u16(..)).collect()
}

fn array(volume: &[u16]) -> Vec<u8> {
    let values: Vec<u8> = volume.iter().flat_map(|value| value.to_le_bytes()).collect();
    npy("<u2", &format!("({SLICES}, {HEIGHT}, {WIDTH})"), &values)
}

/// A pass in f64 along an axis, which mirrors at the edges without repeating them.
fn along(volume: &[f64], axis: usize, sigma: f64) -> Vec<f64> {
    let sizes = [SLICES, HEIGHT, WIDTH];
    let stride: usize = sizes[axis + 1..].iter().product();
    let radius = (4.0 * sigma).round() as isize;
    let taps: Vec<f64> =
        (-radius..=radius).map(|x| (-0.5 * (x as f64 / sigma).powi(2)).exp()).collect();
    let all: f64 = taps.iter().sum();
    let mirrored = |at: isize| {
        let period = 2 * (sizes[axis] as isize - 1);
        let at = at.rem_euclid(period);
        at.min(period - at) as usize
    };
    (0..volume.len())
        .map(|i| {
            let at = i / stride % sizes[axis];
            let begin = i - at * stride;
            let value = |step: usize| mirrored(at as isize + step as isize - radius);
            let sums = taps
                .iter()
                .enumerate()
                .map(|(step, tap)| tap * volume[begin + value(step) * stride]);
            sums.sum::<f64>() / all
        })
        .collect()
}

/// Each axis has its own filter; results are those of passes in f64.
fn three_axes() -> Result<(), Failed> {
    let bench = Bench::new();
    let values = volume();
    bench.put("in.npy", &array(&values));
    let filter = |output: &str, volume: &str, options: &[&str]| {
        let fixed =
            ["filter", "in.npy", output, "--axes", "zyx", "-f", "gaussian:sigma=1.5,size=13"];
        bench.succeed(&[&fixed[..], &["--device", "cpu", "--quiet", volume], options].concat())
    };
    for (option, sigma) in [("--volume", 1.5), ("--volume=gaussian:sigma=0.75,size=7", 0.75)] {
        let floats: Vec<f64> = values.iter().map(|&value| value.into()).collect();
        let expected = along(&along(&along(&floats, 0, sigma), 1, 1.5), 2, 1.5);
        filter("f32.npy", option, &["--output-type", "f32", "--overwrite"])?;
        filter("u16.npy", option, &["--overwrite"])?;
        let (f32s, u16s) = (bench.get("f32.npy")?, bench.get("u16.npy")?);
        let f32s = f32s[f32s.len() - 4 * values.len()..].chunks_exact(4);
        let u16s = u16s[u16s.len() - 2 * values.len()..].chunks_exact(2);
        for (i, (found, rounded)) in f32s.zip(u16s).enumerate() {
            let found = f64::from(f32::from_le_bytes(found.try_into()?));
            let rounded = f64::from(u16::from_le_bytes(rounded.try_into()?));
            if (found - expected[i]).abs() > 0.02 || (rounded - expected[i]).abs() > 0.52 {
                return Err(format!(
                    "{option}: value {i} is {found}, {rounded}, not {}",
                    expected[i]
                )
                .into());
            }
        }
    }
    Ok(())
}

/// The pages of a TIFF are slices, too.
fn pages() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.npy", &array(&volume()));
    let filter = |input: &str, output: &str, options: &[&str]| {
        let fixed = ["filter", input, output, "--device", "cpu", "--quiet"];
        bench.succeed(&[&fixed[..], options].concat())
    };
    filter("in.npy", "in.tif", &["--axes", "zyx", "-f", "identity"])?;
    filter("in.npy", "expected.npy", &["--axes", "zyx", "-f", "box:3", "--volume"])?;
    filter("in.tif", "out.tif", &["-f", "box:3", "--volume"])?;
    filter("out.tif", "found.npy", &["-f", "identity"])?;
    if bench.get("found.npy")? == bench.get("expected.npy")? {
        return Ok(());
    }
    Err("the pages of a TIFF give other results than the slices of an array".into())
}

fn refused() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.npy", &array(&volume()));
    bench.put("in.png", PICTURES[0].1);
    let stack = ["filter", "in.npy", "out.npy", "--axes", "zyx", "--volume"];
    for (options, words) in [
        (&["-f", "sobel-x"][..], &["--volume=gaussian:sigma=1"][..]),
        (&["-f", "sobel"], &["--volume=gaussian:sigma=1"]),
        (&["-f", "box:3", "-f", "box:3"], &["single --filter"]),
        (&["-f", "box:3", "--mask", "in.png"], &["--volume", "--mask"]),
        (&["-f", "box:3", "--nan", "ignore"], &["--volume", "--nan"]),
    ] {
        refuse(&bench, &[&stack[..], options].concat(), words)?;
    }
    let video = ["filter", "-", "-", "--format", "png", "-f", "box:3", "--volume"];
    refuse(&bench, &video, &["--volume", "pipes"])
}
