//! y4m on pipes and in files, compared with plain loops over planes; and raw frames.

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::documents::succeed;
use crate::pipes::{Repeated, in_time, peak, piped, started};
use crate::tool::{Bench, refuse, said};

pub(crate) fn trials(ffmpeg: &Result<(), String>) -> Vec<Trial> {
    let on_unix = |name: &str, test: fn() -> Result<(), Failed>| {
        Trial::test(format!("video::{name}"), test).with_ignored_flag(!cfg!(unix))
    };
    let on_linux = |name: &str, test: fn() -> Result<(), Failed>| {
        Trial::test(format!("video::{name}"), test).with_ignored_flag(!cfg!(target_os = "linux"))
    };
    vec![
        Trial::test("video::planes_are_those_of_plain_loops", planes),
        Trial::test("video::headers_and_parameters_are_kept", kept),
        Trial::test("video::what_chroma_has_no_taps_for_is_copied", copied),
        Trial::test("video::alpha_and_borders", alpha_and_borders),
        Trial::test("video::wrong_streams_are_named", wrong),
        on_unix("a_truncated_stream_is_named", truncated),
        on_unix("a_thousand_frames_keep_their_order", order),
        on_linux("memory_does_not_grow_with_frames", memory),
        on_unix("a_pipe_that_pauses_gets_its_result", pauses),
        on_unix("a_closed_output_ends_the_work", closed),
        on_unix("raw_frames_follow_one_another", raw),
        on_unix("every_frame_is_reported", reported),
        on_unix("a_video_needs_no_format", unnamed),
        Trial::test("video::planes_are_those_that_ffmpeg_decodes", by_ffmpeg)
            .with_ignored_flag(ffmpeg.is_err()),
        Trial::test("video::the_readmes_pipeline_makes_a_video", pipeline)
            .with_ignored_flag(ffmpeg.is_err() || !cfg!(unix)),
    ]
}

/// Whether there is an ffmpeg on the path.
pub(crate) fn probe() -> Result<(), String> {
    let found = Command::new("ffmpeg").arg("-version").output();
    match found.map_err(|error| format!("ffmpeg: {error}"))?.status {
        status if status.success() => Ok(()),
        status => Err(format!("ffmpeg: {status}")),
    }
}

/// A kind of y4m.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// The value of the header's parameter C; empty for a header without one.
    name: &'static str,
    /// Columns and rows of luma for each sample of chroma.
    chroma: Option<(usize, usize)>,
    bits: u32,
}

const fn kind(name: &'static str, chroma: Option<(usize, usize)>, bits: u32) -> Kind {
    Kind { name, chroma, bits }
}

const KINDS: [Kind; 20] = [
    kind("", Some((2, 2)), 8),
    kind("420", Some((2, 2)), 8),
    kind("420jpeg", Some((2, 2)), 8),
    kind("420mpeg2", Some((2, 2)), 8),
    kind("420paldv", Some((2, 2)), 8),
    kind("411", Some((4, 1)), 8),
    kind("422", Some((2, 1)), 8),
    kind("444", Some((1, 1)), 8),
    kind("mono", None, 8),
    kind("mono9", None, 9),
    kind("mono10", None, 10),
    kind("mono16", None, 16),
    kind("420p9", Some((2, 2)), 9),
    kind("420p10", Some((2, 2)), 10),
    kind("420p16", Some((2, 2)), 16),
    kind("422p10", Some((2, 1)), 10),
    kind("422p12", Some((2, 1)), 12),
    kind("444p10", Some((1, 1)), 10),
    kind("444p14", Some((1, 1)), 14),
    kind("444p16", Some((1, 1)), 16),
];

impl Kind {
    fn header(self, (width, height): (usize, usize)) -> String {
        let name = if self.name.is_empty() { "" } else { &format!(" C{}", self.name) };
        format!("YUV4MPEG2 W{width} H{height} F30000:1001 Ip A1:1{name} XCOLORRANGE=LIMITED\n")
    }

    /// The sizes of the planes, and each plane's columns and rows of luma for one sample.
    fn planes(self, (width, height): (usize, usize)) -> Vec<((usize, usize), (usize, usize))> {
        let mut planes = vec![((width, height), (1, 1))];
        if let Some((across, down)) = self.chroma {
            let size = (width.div_ceil(across), height.div_ceil(down));
            planes.extend([(size, (across, down)); 2]);
        }
        planes
    }

    /// Random samples of a frame, plane by plane.
    fn frame(self, rng: &mut fastrand::Rng, size: (usize, usize)) -> Vec<Vec<u16>> {
        let greatest = ((1u32 << self.bits) - 1) as u16;
        let plane = |((width, height), _)| {
            (0..width * height).map(|_| rng.u16(..=greatest)).collect::<Vec<_>>()
        };
        self.planes(size).into_iter().map(plane).collect()
    }

    /// Samples as they are stored.
    fn bytes(self, planes: &[Vec<u16>]) -> Vec<u8> {
        let samples = planes.iter().flatten();
        match self.bits {
            8 => samples.map(|&sample| sample as u8).collect(),
            _ => samples.flat_map(|sample| sample.to_le_bytes()).collect(),
        }
    }

    fn samples(self, bytes: &[u8]) -> Vec<u16> {
        match self.bits {
            8 => bytes.iter().map(|&byte| u16::from(byte)).collect(),
            _ => bytes.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect(),
        }
    }
}

/// The taps of one axis for a plane that has one sample for `step` of luma.
type Axis = fn(step: usize) -> Vec<f64>;

/// `box:size=5`: the share of each sample in a stretch of 5 of luma.
fn mean(step: usize) -> Vec<f64> {
    match step {
        1 => vec![0.2; 5],
        2 => vec![0.3, 0.4, 0.3],
        _ => vec![0.1, 0.8, 0.1],
    }
}

/// `boxblur:radius=2,times=2`: the same mean twice.
fn mean_twice(step: usize) -> Vec<f64> {
    let once = mean(step);
    let mut taps = vec![0.0; 2 * once.len() - 1];
    for (at, tap) in once.iter().enumerate() {
        taps[at..].iter_mut().zip(&once).for_each(|(to, part)| *to += tap * part);
    }
    taps
}

/// `gaussian:2`, of radius 4 sigma.
fn blur(step: usize) -> Vec<f64> {
    let sigma = 2.0 / step as f64;
    let radius = (4.0 * sigma + 0.5) as i32;
    let taps: Vec<f64> =
        (-radius..=radius).map(|x| (-0.5 * (f64::from(x) / sigma).powi(2)).exp()).collect();
    let sum: f64 = taps.iter().sum();
    taps.into_iter().map(|tap| tap / sum).collect()
}

/// `unsharp:sigma=2,amount=0.5` is the plane and half of its difference from this blur.
const AMOUNT: f64 = 0.5;

/// Filters a plane by a row and a column, under the border `reflect101`.
fn plain(
    samples: &[u16],
    (width, height): (usize, usize),
    row: &[f64],
    column: &[f64],
) -> Vec<f64> {
    let inside = |at: isize, length: usize| {
        let (mut at, last) = (at, length as isize - 1);
        while last > 0 && !(0..=last).contains(&at) {
            at = if at < 0 { -at } else { 2 * last - at };
        }
        if last == 0 { 0 } else { at as usize }
    };
    let mut results = Vec::new();
    for (y, x) in (0..height as isize).flat_map(|y| (0..width as isize).map(move |x| (y, x))) {
        let mut sum = 0.0;
        for (r, down) in column.iter().enumerate() {
            let y = inside(y + r as isize - (column.len() / 2) as isize, height);
            for (c, across) in row.iter().enumerate() {
                let x = inside(x + c as isize - (row.len() / 2) as isize, width);
                sum += down * across * f64::from(samples[y * width + x]);
            }
        }
        results.push(sum);
    }
    results
}

/// The arguments for pictures from a pipe to a pipe.
fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["filter", "-", "-", "--device", "cpu"], more].concat()
}

/// The tool's output for a stream.
fn streamed(bench: &Bench, more: &[&str], input: &[u8]) -> Result<Output, Failed> {
    piped(bench, &arguments(more), input)
}

/// Runs the tool on a y4m stream, which must succeed. Returns its output and stderr.
fn filtered(bench: &Bench, more: &[&str], input: &[u8]) -> Result<(Vec<u8>, String), Failed> {
    let output = streamed(bench, &[&["--format", "y4m"], more].concat(), input)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.success() {
        true => Ok((output.stdout, said)),
        false => Err(format!("{more:?}: {}, {said}", output.status).into()),
    }
}

/// Every sampling and number of bits, at odd sizes: each plane is a plain loop's, to the nearest
/// sample.
fn planes() -> Result<(), Failed> {
    let bench = Bench::new();
    let filters: [(&str, Axis, bool); 4] = [
        ("box:size=5", mean, false),
        ("boxblur:radius=2,times=2", mean_twice, false),
        ("gaussian:2", blur, false),
        ("unsharp:sigma=2,amount=0.5", blur, true),
    ];
    let mut rng = fastrand::Rng::with_seed(7);
    for (kind, size) in KINDS.iter().flat_map(|kind| [(kind, (37, 23)), (kind, (1, 1))]) {
        let frames = [kind.frame(&mut rng, size), kind.frame(&mut rng, size)];
        let header = kind.header(size);
        let mut input = header.clone().into_bytes();
        for frame in &frames {
            input.extend([b"FRAME\n", &kind.bytes(frame)[..]].concat());
        }
        for (filter, axis, sharpens) in filters {
            let (output, said) = filtered(&bench, &["--filter", filter], &input)?;
            let name = format!("{filter}, C{}, {size:?}", kind.name);
            if !said.is_empty()
                || !output.starts_with(header.as_bytes())
                || output.len() != input.len()
            {
                return Err(format!("{name}: {} bytes, {said:?}", output.len()).into());
            }
            let mut rest = &output[header.len()..];
            for frame in &frames {
                let length = kind.bytes(frame).len();
                rest = rest.strip_prefix(b"FRAME\n").ok_or_else(|| format!("{name}: no FRAME"))?;
                compare(
                    &name,
                    (*kind, size),
                    frame,
                    &kind.samples(&rest[..length]),
                    (axis, sharpens),
                )?;
                rest = &rest[length..];
            }
        }
    }
    Ok(())
}

fn compare(
    name: &str,
    (kind, size): (Kind, (usize, usize)),
    frame: &[Vec<u16>],
    found: &[u16],
    (axis, sharpens): (Axis, bool),
) -> Result<(), Failed> {
    let greatest = f64::from((1u32 << kind.bits) - 1);
    let mut found = found;
    for (number, (samples, (size, (across, down)))) in
        frame.iter().zip(kind.planes(size)).enumerate()
    {
        let blurred = plain(samples, size, &axis(across), &axis(down));
        for (index, (&sample, blurred)) in samples.iter().zip(blurred).enumerate() {
            let sample = f64::from(sample);
            let right = if sharpens { sample + AMOUNT * (sample - blurred) } else { blurred };
            let right = right.clamp(0.0, greatest);
            // Sums of 16-bit samples are in f32.
            let slack = if kind.bits > 8 { 0.55 } else { 0.500001 };
            if (f64::from(found[index]) - right).abs() > slack {
                return Err(format!(
                    "{name}: sample {index} of plane {number} is {} for {right}",
                    found[index]
                )
                .into());
            }
        }
        found = &found[samples.len()..];
    }
    Ok(())
}

/// A stream of grey-level frames, 4:2:0, each with its own samples.
fn small(frames: usize, (width, height): (usize, usize)) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(frames as u64);
    let mut stream = format!("YUV4MPEG2 W{width} H{height} F25:1 C420jpeg\n").into_bytes();
    let samples = width * height + 2 * width.div_ceil(2) * height.div_ceil(2);
    for _ in 0..frames {
        stream.extend(b"FRAME\n");
        stream.extend((0..samples).map(|_| rng.u8(..)));
    }
    stream
}

/// All parameters, of the stream and of frames, are written as they are.
fn kept() -> Result<(), Failed> {
    let bench = Bench::new();
    let stream = b"YUV4MPEG2 H2 W3  F0:0 It A0:0 Cmono XYSCSS=MONO X1 Z9\n\
        FRAME It1 Xa=b\nabcdefFRAME\nghijkl";
    let (output, said) = filtered(&bench, &["--filter", "identity"], stream)?;
    if output != stream || !said.contains("interlaced") || said.lines().count() != 1 {
        return Err(format!("{:?}, {said}", String::from_utf8_lossy(&output)).into());
    }
    // A video without frames.
    let (output, said) = filtered(&bench, &["--filter", "identity"], b"YUV4MPEG2 W3 H2\n")?;
    if output != b"YUV4MPEG2 W3 H2\n" || !said.is_empty() {
        return Err(format!("without frames: {said}").into());
    }
    // A file, the file itself as output, a folder, and a line for each frame.
    let stream = small(3, (5, 3));
    bench.put("in.y4m", &stream);
    let identity = ["--filter", "identity", "--device", "cpu"];
    let run = |paths: &[&str], more: &[&str]| {
        bench.succeed(&[&["filter"], paths, &identity[..], more].concat())
    };
    run(&["in.y4m", "out.y4m"], &[])?;
    run(&["in.y4m", "in.y4m"], &[])?;
    run(&[".", "folder/"], &[])?;
    for name in ["in.y4m", "out.y4m", "folder/in.y4m"] {
        if bench.get(name)? != stream {
            return Err(format!("{name} differs").into());
        }
    }
    let lines = said_of(&bench, &["in.y4m", "out.y4m", "--overwrite", "--verbose"])?;
    match lines.lines().count() == 3 && lines.contains("frame 3: in.y4m -> out.y4m: 5x3 420jpeg") {
        true => Ok(()),
        false => Err(lines.into()),
    }
}

/// A line for each frame, in order, and the same output. Other inputs have no frames.
fn reported() -> Result<(), Failed> {
    let bench = Bench::new();
    let stream = small(5, (16, 8));
    let (output, said) = filtered(&bench, &["--filter", "identity", "--every-frame"], &stream)?;
    let picture = b"P5\n2 1 255\nab";
    let pictures = picture.repeat(5);
    let more = ["--format", "pgm", "--filter", "identity", "--every-frame"];
    let frames = streamed(&bench, &more, &pictures)?;
    if output != stream || frames.stdout != pictures {
        return Err(format!("{} of {} bytes, {frames:?}", output.len(), stream.len()).into());
    }
    for said in [said, String::from_utf8_lossy(&frames.stderr).into_owned()] {
        let is_of = |(index, line): (usize, &str)| {
            let start = format!("apron: frame {}: - -> -: ", index + 1);
            let rate = line.strip_prefix(&start).and_then(|rest| rest.strip_suffix(" frames/s"));
            rate.is_some_and(|rate| rate.parse::<f64>().is_ok_and(|rate| rate > 0.0))
        };
        if said.lines().count() != 5 || !said.lines().enumerate().all(is_of) {
            return Err(said.into());
        }
    }
    bench.put("a.pgm", picture);
    let arguments = ["filter", "a.pgm", "b.pgm", "--filter", "identity", "--every-frame"];
    refuse(&bench, &arguments, &["--every-frame", "--frames"])
}

/// A stream on standard input, or a file, is y4m on standard output without a format. Pictures need
/// one.
fn unnamed() -> Result<(), Failed> {
    let bench = Bench::new();
    let stream = small(3, (9, 5));
    let identity = arguments(&["--filter", "identity"]);
    let output = piped(&bench, &identity, &stream)?;
    if output.stdout != stream || !output.stderr.is_empty() {
        return Err(format!("a pipe: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    bench.put("in.y4m", &stream);
    let output =
        bench.run(&["filter", "in.y4m", "-", "--filter", "identity", "--device", "cpu"])?;
    if output.stdout != stream || !output.stderr.is_empty() {
        return Err(format!("a file: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    for input in [&b"P5\n1 1\n255\nA"[..], b"", b"YUV4"] {
        let output = piped(&bench, &identity, input)?;
        let line = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(2) || !line.contains("--format") {
            return Err(format!("{input:?}: {line}").into());
        }
    }
    Ok(())
}

/// What the tool says about a copy.
fn said_of(bench: &Bench, more: &[&str]) -> Result<String, Failed> {
    said(bench, &[&["filter", "--filter", "identity", "--device", "cpu"], more].concat())
}

/// Filters without lengths, and derivatives, leave chroma as it is, and the tool says so.
fn copied() -> Result<(), Failed> {
    let bench = Bench::new();
    let stream = small(2, (6, 4));
    let frame = 6 + 24 + 12;
    let header = stream.len() - 2 * frame;
    for (filter, name) in [("sobel-x", "sobel-x"), ("sharpen", "sharpen"), ("sobel", "sobel")] {
        let (output, said) = filtered(&bench, &["--filter", filter], &stream)?;
        if !said.contains(&format!("only luma is filtered by {name}")) {
            return Err(said.into());
        }
        for at in [header, header + frame] {
            let luma = at + 6..at + 30;
            let chroma = at + 30..at + frame;
            if output[luma.clone()] == stream[luma] || output[chroma.clone()] != stream[chroma] {
                return Err(format!("{filter}: luma is the same, or chroma is not").into());
            }
        }
    }
    Ok(())
}

fn alpha_and_borders() -> Result<(), Failed> {
    let bench = Bench::new();
    // Columns of two values in each plane: y, u, v and alpha.
    let stream = b"YUV4MPEG2 W2 H1 C444alpha\nFRAME\n\x00\x64\x00\x64\x00\x64\x00\x64";
    let with = |more: &[&str]| {
        filtered(&bench, &[&["--filter", "box:cols=3,rows=1"], more].concat(), stream)
    };
    // Outside: luma 30, grey chroma.
    let border = ["--border", "constant:30"];
    let (output, said) = with(&border)?;
    let right = [43, 43, 76, 76, 76, 76, 0, 100];
    if output[32..] != right || !said.contains("--alpha filter") {
        return Err(format!("{:?}, {said}", &output[32..]).into());
    }
    let (output, said) = with(&["--border", "constant:30", "--alpha", "filter"])?;
    if output[32..38] != right[..6] || output[38..] != [43, 43] || !said.is_empty() {
        return Err(format!("{:?}, {said}", &output[32..]).into());
    }
    bench.put("in.y4m", stream);
    refuse(
        &bench,
        &["filter", "in.y4m", "out.y4m", "--filter", "identity", "--alpha", "premultiply"],
        &["premultiply", "--alpha keep"],
    )
}

/// Each is refused with a line that has these words, and writes nothing.
fn wrong() -> Result<(), Failed> {
    let bench = Bench::new();
    let line = |name: &'static str, more: &'static [&'static str]| {
        [&["filter", "bad", name, "--filter", "identity", "--device", "cpu"], more].concat()
    };
    let good = b"YUV4MPEG2 W1 H1 Cmono\nFRAME\na";
    let cases: &[(&[u8], &[&str])] = &[
        (b"", &["no y4m"]),
        (b"P5\n1 1\n255\nA", &["no y4m", "ffmpeg"]),
        (b"YUV4MPEG2 W0 H1\n", &["W0", "from 1"]),
        (b"YUV4MPEG2 W1 H1 C440\n", &["C440", "444", "-pix_fmt"]),
        (b"YUV4MPEG2 W1 H1 C420p17\n", &["C420p17", "16"]),
        (b"YUV4MPEG2 W99999999 H99999999\n", &["99999999x99999999", "--max-pixels"]),
        (b"YUV4MPEG2 W1", &["cut off"]),
        (b"YUV4MPEG2 W1 H1 Cmono\nFRAME\naFRAM", &["frame 2", "cut off"]),
        (b"YUV4MPEG2 W1 H1 Cmono\nFRAME\nabc\n", &["frame 2", "bc", "FRAME must be"]),
        (b"YUV4MPEG2 W1 H1\nFRAME\nab", &["frame 1", "2 of the frame's 3 bytes", "--lenient"]),
    ];
    for (stream, words) in cases {
        bench.put("bad", stream);
        refuse(&bench, &line("out.y4m", &[]), words)?;
    }
    bench.put("bad", good);
    let options: [&[&str]; 4] =
        [&["--page", "1"], &["--output-type", "f32"], &["--offset", "1"], &["--raw", "1x1x1"]];
    for option in options {
        refuse(
            &bench,
            &[&["filter", "bad", "out.y4m", "--filter", "identity"], option].concat(),
            &[option[0], "for pictures"],
        )?;
    }
    refuse(&bench, &line("out.png", &[]), &["bad", "y4m video", "--format y4m"])?;
    refuse(&bench, &line("out.png", &["--frames"]), &["bad", "y4m video", "--format y4m"])?;
    refuse(
        &bench,
        &["filter", "bad", "out.y4m", "--filter", "sobel-angle", "--device", "cpu"],
        &["angles", "f32"],
    )
}

/// A pipe gets the frames before the one that is cut off; a file is not written.
fn truncated() -> Result<(), Failed> {
    let bench = Bench::new();
    let stream = small(3, (7, 5));
    let frame = 6 + 35 + 24;
    let whole = &stream[..stream.len() - frame];
    for cut in [1, 20, frame - 7, frame - 3] {
        let input = &stream[..stream.len() - cut];
        let output = streamed(&bench, &["--format", "y4m", "--filter", "identity"], input)?;
        let line = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(1)
            || output.stdout != whole
            || !line.contains("frame 3")
            || line.lines().count() != 1
        {
            return Err(
                format!("without {cut} bytes: {} bytes, {line}", output.stdout.len()).into()
            );
        }
    }
    bench.put("in.y4m", &stream[..stream.len() - 1]);
    let arguments = ["filter", "in.y4m", "out.y4m", "--filter", "identity", "--device", "cpu"];
    refuse(&bench, &arguments, &["frame 3", "58 of the frame's 59 bytes", "--lenient"])?;
    let line = said(&bench, &[&arguments[..], &["--lenient"]].concat())?;
    let start = streamed(
        &bench,
        &["--format", "y4m", "--filter", "identity", "--lenient"],
        &stream[..stream.len() - frame + 3],
    )?;
    if !start.status.success() || start.stdout != whole {
        return Err("--lenient does not leave out the start of a line".into());
    }
    match bench.get("out.y4m")? == whole && line.contains("frame 3 is left out") {
        true => Ok(()),
        false => Err(line.into()),
    }
}

fn order() -> Result<(), Failed> {
    let bench = Bench::new();
    let stream = small(1000, (31, 17));
    for jobs in ["1", "2", "7"] {
        let (output, said) = filtered(&bench, &["--filter", "identity", "-j", jobs], &stream)?;
        if output != stream || !said.is_empty() {
            return Err(format!("-j {jobs}: other frames, or another order: {said}").into());
        }
    }
    Ok(())
}

fn memory() -> Result<(), Failed> {
    let bench = Bench::new();
    let one = small(1, (320, 180));
    let (header, frame) =
        one.split_at(one.iter().position(|&byte| byte == b'\n').ok_or("no header")? + 1);
    let stream = Repeated { header, frame, result: frame.len(), limit: Duration::from_secs(300) };
    let arguments = arguments(&["--format", "y4m", "--filter", "box:size=3", "-j", "3"]);
    let peak = |frames| peak(&bench, &arguments, stream, frames);
    let (few, many) = (peak(20)?, peak(1000)?);
    // A thousand frames of 84 KiB; five are in memory, each with its results.
    match many <= few + (8 << 10) {
        true => Ok(()),
        false => Err(format!("20 frames took {few} KiB, 1000 took {many}").into()),
    }
}

/// The next frame is sent after the result of the one before has arrived.
fn pauses() -> Result<(), Failed> {
    let bench = Bench::new();
    let stream = small(3, (64, 48));
    let frame = 6 + 64 * 48 * 3 / 2;
    let header = stream.len() - 3 * frame;
    let mut child = started(&bench, &arguments(&["--format", "y4m", "--filter", "identity"]))?;
    let (mut stdin, mut stdout) = (
        child.stdin.take().expect("it was asked for"),
        child.stdout.take().expect("it was asked for"),
    );
    let mut from = 0;
    for to in (1..=3).map(|frames| header + frames * frame) {
        stdin.write_all(&stream[from..to])?;
        stdin.flush()?;
        let (found, rest) = in_time("a frame", move || {
            let mut found = vec![0; to - from];
            (stdout.read_exact(&mut found).map(|()| found), stdout)
        })?;
        stdout = rest;
        if found? != stream[from..to] {
            return Err("another result".into());
        }
        from = to;
    }
    drop(stdin);
    match in_time("the end", move || child.wait())??.success() {
        true => Ok(()),
        false => Err("it did not end well".into()),
    }
}

/// The reader of the results closes its pipe, while frames still arrive or while none does.
fn closed() -> Result<(), Failed> {
    let bench = Bench::new();
    let stream = small(60, (640, 480));
    for frames in [2, 3, 60] {
        let mut child = started(&bench, &arguments(&["--format", "y4m", "--filter", "identity"]))?;
        let mut stdin = child.stdin.take().expect("it was asked for");
        let mut stdout = child.stdout.take().expect("it was asked for");
        let frame = 6 + 640 * 480 * 3 / 2;
        let header = stream.len() - 60 * frame;
        stdin.write_all(&stream[..header + frame])?;
        stdout.read_exact(&mut [0; 100])?;
        drop(stdout);
        // The input stays open: the tool must end because its output is closed.
        let _ = stdin.write_all(&stream[header + frame..header + frames * frame]);
        let (status, read, said) = in_time("the output is closed", move || {
            let mut said = String::new();
            let read = child.stderr.take().expect("it was asked for").read_to_string(&mut said);
            (child.wait(), read, said)
        })?;
        read?;
        drop(stdin);
        if !status?.success() || !said.is_empty() {
            return Err(format!("{frames} frames into a closed pipe: {said:?}").into());
        }
    }
    Ok(())
}

/// Frames without a header are those of the same pictures one by one.
fn raw() -> Result<(), Failed> {
    let bench = Bench::new();
    let mut rng = fastrand::Rng::with_seed(3);
    let frame = 9 * 7 * 3 * 2;
    let stream: Vec<u8> = (0..5 * frame).map(|_| rng.u8(..)).collect();
    let blur = ["--filter", "box:size=3", "--raw", "9x7x3:u16", "--format", "raw"];
    let mut right = Vec::new();
    for picture in stream.chunks(frame) {
        right.extend(streamed(&bench, &blur, picture)?.stdout);
    }
    let frames = [&blur[..], &["--frames"]].concat();
    let output = streamed(&bench, &frames, &stream)?;
    if !output.status.success() || output.stdout != right || !output.stderr.is_empty() {
        return Err(format!("raw: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    bench.put("in.raw", &stream);
    let files = ["filter", "in.raw", "out.raw", "--device", "cpu"];
    bench.succeed(&[&files[..], &frames].concat())?;
    if bench.get("out.raw")? != right {
        return Err("a file of raw frames gives another result than a pipe".into());
    }
    // A frame that is cut off.
    let output = streamed(&bench, &frames, &stream[..stream.len() - 1])?;
    let line = String::from_utf8_lossy(&output.stderr);
    if output.status.code() != Some(1)
        || output.stdout != right[..4 * frame]
        || !["frame 5", "378 bytes", "377"].iter().all(|word| line.contains(word))
    {
        return Err(format!("cut off: {line}").into());
    }
    Ok(())
}

/// Runs ffmpeg, which must succeed.
fn ffmpeg(bench: &Bench, arguments: &[&str]) -> Result<(), Failed> {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-y"]).args(arguments);
    let output = command.current_dir(bench.path()).stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

/// The samples of all frames of a file, as ffmpeg decodes it.
fn decoded(bench: &Bench, name: &str, kind: Kind) -> Result<Vec<u16>, Failed> {
    ffmpeg(bench, &["-i", name, "-f", "rawvideo", "decoded"])?;
    Ok(kind.samples(&bench.get("decoded")?))
}

/// A frame of samples that follow one another, plane by plane.
fn planes_of(kind: Kind, size: (usize, usize), samples: &[u16]) -> Vec<Vec<u16>> {
    let mut rest = samples;
    let take = |((width, height), _)| {
        let (plane, others) = rest.split_at(width * height);
        rest = others;
        plane.to_vec()
    };
    kind.planes(size).into_iter().map(take).collect()
}

/// ffmpeg makes the video, and decodes the video and the result: each plane is a plain loop's.
fn by_ffmpeg() -> Result<(), Failed> {
    let bench = Bench::new();
    for (format, kind) in [
        ("yuv420p", kind("420jpeg", Some((2, 2)), 8)),
        ("yuv420p10le", kind("420p10", Some((2, 2)), 10)),
        ("yuv420p16le", kind("420p16", Some((2, 2)), 16)),
        ("yuv411p", kind("411", Some((4, 1)), 8)),
        ("yuv422p", kind("422", Some((2, 1)), 8)),
        ("yuv422p12le", kind("422p12", Some((2, 1)), 12)),
        ("yuv444p", kind("444", Some((1, 1)), 8)),
        ("yuv444p14le", kind("444p14", Some((1, 1)), 14)),
        ("gray", kind("mono", None, 8)),
        ("gray12le", kind("mono12", None, 12)),
        ("gray16le", kind("mono16", None, 16)),
    ] {
        // ffmpeg 5.1 writes rows of 2-byte chroma half a sample too short if the width is odd.
        let is_halved = kind.bits > 8 && kind.chroma.is_some_and(|(across, _)| across > 1);
        let size = if is_halved { (76, 51) } else { (75, 51) };
        let source = format!("testsrc=size={}x51:rate=5:duration=0.6", size.0);
        let source = ["-f", "lavfi", "-i", &source];
        let tail = ["-pix_fmt", format, "-strict", "-1", "in.y4m"];
        ffmpeg(&bench, &[&source[..], &tail].concat())?;
        let line = ["filter", "in.y4m", "out.y4m", "--overwrite", "--device", "cpu"];
        bench.succeed(&[&line[..], &["--filter", "gaussian:2"]].concat())?;
        let (before, after) = (decoded(&bench, "in.y4m", kind)?, decoded(&bench, "out.y4m", kind)?);
        let samples = kind.planes(size).iter().map(|((w, h), _)| w * h).sum::<usize>();
        if before.len() != 3 * samples || after.len() != before.len() {
            return Err(format!("{format}: {} and {} samples", before.len(), after.len()).into());
        }
        for (before, after) in before.chunks(samples).zip(after.chunks(samples)) {
            let frame = planes_of(kind, size, before);
            compare(format, (kind, size), &frame, after, (blur, false))?;
        }
    }
    Ok(())
}

/// The README's line makes a video with the same number of frames, each nearer to the filtered
/// frame than to the original.
fn pipeline() -> Result<(), Failed> {
    let bench = Bench::new();
    let (size, kind) = ((160, 90), kind("420jpeg", Some((2, 2)), 8));
    let line = include_str!("../../cli/README.md")
        .lines()
        .find(|line| line.starts_with("ffmpeg -i in.mp4 -f yuv4mpegpipe - | apron filter - - "))
        .ok_or("the README has no such line")?;
    let source = ["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=10:duration=1"];
    ffmpeg(&bench, &[&source[..], &["-pix_fmt", "yuv420p", "in.mp4"]].concat())?;
    succeed(&bench, &line.replace("gaussian:2", "gaussian:2 --device cpu"))?;
    let (before, after) = (decoded(&bench, "in.mp4", kind)?, decoded(&bench, "out.mp4", kind)?);
    let samples = 160 * 90 * 3 / 2;
    if before.len() != 10 * samples || after.len() != before.len() {
        return Err(format!("{} samples became {}", before.len(), after.len()).into());
    }
    for (number, (before, after)) in before.chunks(samples).zip(after.chunks(samples)).enumerate() {
        let (before, after) = (&before[..160 * 90], &after[..160 * 90]);
        let right = plain(before, size, &blur(1), &blur(1));
        let apart = |from: &mut dyn Iterator<Item = f64>| -> f64 {
            from.zip(after).map(|(from, &to)| (from - f64::from(to)).abs()).sum()
        };
        let to_right = apart(&mut right.into_iter());
        let to_original = apart(&mut before.iter().map(|&sample| sample.into()));
        if to_right * 2.0 > to_original {
            return Err(format!("frame {number}: {to_right} to the result, {to_original}").into());
        }
    }
    Ok(())
}
