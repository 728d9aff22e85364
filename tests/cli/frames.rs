//! Sequences of pictures, on pipes and with `--frames`, and bytes after a picture: the tool reads
//! every byte of an input as part of a picture, or names it.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::pipes::{Repeated, in_time, peak, piped, started};
use crate::tool::{Bench, npy, refuse, said};

pub(crate) fn trials() -> Vec<Trial> {
    let on_unix = |name: &str, test: fn() -> Result<(), Failed>| {
        Trial::test(format!("frames::{name}"), test).with_ignored_flag(!cfg!(unix))
    };
    let on_linux = |name: &str, test: fn() -> Result<(), Failed>| {
        Trial::test(format!("frames::{name}"), test).with_ignored_flag(!cfg!(target_os = "linux"))
    };
    vec![
        on_unix("each_frame_is_one_picture", each_is_one),
        on_unix("what_is_no_frame_is_named", not_frames),
        on_unix("a_truncated_frame_is_named", truncated),
        on_unix("a_pipe_that_pauses_gets_its_result", pauses),
        on_unix("a_closed_output_ends_the_work", closed),
        on_linux("memory_does_not_grow_with_frames", memory),
        on_unix("formats_that_cannot_follow_refuse", refused_formats),
        on_unix("files_of_frames", files),
        on_unix("a_jpegs_own_pictures_are_no_frames", multi_picture),
        Trial::test("frames::what_follows_in_a_file_is_named", trailers),
        Trial::test("frames::chunks_name_what_follows", chunks),
        Trial::test("frames::taps_are_alone_in_their_file", taps),
    ]
}

const IDENTITY: [&str; 4] = ["--filter", "identity", "--device", "cpu"];

/// How a test makes pictures of a format.
#[derive(Clone, Copy)]
enum Source {
    /// The tool writes them in this format, from an array of this type and number of channels.
    Tool(&'static str, &'static str, usize),
    /// By hand: the number of a PNM format, and its bits.
    Pnm(u8, u8),
}

/// Every format whose files say where they end, each with an output format that holds its pixels.
const KINDS: [(Source, &str); 24] = [
    (Source::Tool("png", "|u1", 3), "pam"),
    (Source::Tool("png", "<u2", 1), "pam"),
    (Source::Tool("jpg", "|u1", 3), "ppm"),
    (Source::Tool("npy", "|u1", 3), "ppm"),
    (Source::Tool("npy", "<f4", 1), "npy"),
    (Source::Tool("bmp", "|u1", 3), "ppm"),
    (Source::Tool("bmp", "|u1", 1), "npy"),
    (Source::Tool("gif", "|u1", 3), "ppm"),
    (Source::Tool("webp", "|u1", 4), "pam"),
    (Source::Tool("qoi", "|u1", 4), "pam"),
    (Source::Tool("ff", "<u2", 4), "pam"),
    (Source::Tool("hdr", "<f4", 3), "npy"),
    (Source::Tool("exr", "<f4", 3), "npy"),
    (Source::Tool("exr", "<f2", 1), "npy"),
    (Source::Tool("pfm", "<f4", 3), "npy"),
    (Source::Tool("ppm", "<u2", 3), "pam"),
    (Source::Pnm(1, 1), "pgm"),
    (Source::Pnm(2, 8), "pgm"),
    (Source::Pnm(3, 8), "ppm"),
    (Source::Pnm(4, 1), "pgm"),
    (Source::Pnm(5, 16), "pgm"),
    (Source::Pnm(5, 8), "png"),
    (Source::Pnm(6, 8), "jpg"),
    (Source::Pnm(7, 16), "npy"),
];

impl Source {
    fn name(self) -> String {
        match self {
            Self::Tool(format, descr, channels) => format!("{format} of {channels} {descr}"),
            Self::Pnm(form, bits) => format!("P{form} of {bits} bits"),
        }
    }

    /// A picture of this size, different for each seed.
    fn picture(
        self,
        bench: &Bench,
        seed: u64,
        (width, height): (usize, usize),
    ) -> Result<Vec<u8>, Failed> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (format, descr, channels) = match self {
            Self::Tool(format, descr, channels) => (format, descr, channels),
            Self::Pnm(form, bits) => return Ok(pnm(&mut rng, form, bits, width, height)),
        };
        let count = width * height * channels;
        let values: Vec<u8> = match descr {
            "<f4" => (0..count).flat_map(|_| (rng.f32() * 4.0).to_le_bytes()).collect(),
            "<u2" => (0..count).flat_map(|_| rng.u16(..).to_le_bytes()).collect(),
            // Halves from 0 to 1.
            "<f2" => (0..count).flat_map(|_| rng.u16(..0x3c00).to_le_bytes()).collect(),
            _ => (0..count).map(|_| rng.u8(..)).collect(),
        };
        let shape = format!("({height}, {width}, {channels})");
        let array = npy(descr, &shape, &values);
        if format == "npy" {
            return Ok(array);
        }
        let output = piped(
            bench,
            &[&["filter", "-", "-", "--format", format], &IDENTITY[..]].concat(),
            &array,
        )?;
        if output.status.success() && !output.stdout.is_empty() {
            Ok(output.stdout)
        } else {
            Err(format!("{format}: {}", String::from_utf8_lossy(&output.stderr)).into())
        }
    }
}

fn pnm(rng: &mut fastrand::Rng, form: u8, bits: u8, width: usize, height: usize) -> Vec<u8> {
    let channels = if matches!(form, 3 | 6 | 7) { 3 } else { 1 };
    let greatest = (1u32 << bits) - 1;
    let mut header = format!("P{form}\n{width} {height}\n");
    match form {
        1 | 4 => {}
        7 => {
            header = format!(
                "P7\nWIDTH {width}\nHEIGHT {height}\nDEPTH 3\nMAXVAL {greatest}\nTUPLTYPE RGB\nENDHDR\n"
            );
        }
        _ => writeln!(header, "{greatest}").expect("text in memory"),
    }
    let mut file = header.into_bytes();
    let values: Vec<u32> = (0..width * height * channels).map(|_| rng.u32(..=greatest)).collect();
    for row in values.chunks(width * channels) {
        match (form, bits) {
            (1..=3, _) => {
                row.iter().for_each(|value| file.extend(format!("{value} ").as_bytes()));
                file.push(b'\n');
            }
            (4, _) => file.extend((0..width.div_ceil(8)).map(|_| rng.u8(..))),
            (_, 16) => row.iter().for_each(|&value| file.extend((value as u16).to_be_bytes())),
            _ => row.iter().for_each(|&value| file.push(value as u8)),
        }
    }
    file
}

/// A file, and the tool's output for it.
type Pair = (Vec<u8>, Vec<u8>);

/// Pictures of a format in several sizes, and the output for each alone.
fn pictures(bench: &Bench, source: Source, format: &str) -> Result<Vec<Pair>, Failed> {
    let sizes = [(7, 5), (1, 1), (40, 3), (2, 33), (16, 16)];
    let pictures = sizes.into_iter().enumerate().map(|(index, size)| {
        let picture = source.picture(bench, index as u64, size)?;
        let output = piped(bench, &arguments(&["-", "-"], &["--format", format]), &picture)?;
        match output.status.success() && output.stderr.is_empty() && !output.stdout.is_empty() {
            true => Ok((picture, output.stdout)),
            false => Err(Failed::from(format!(
                "{}: {}",
                source.name(),
                String::from_utf8_lossy(&output.stderr)
            ))),
        }
    });
    pictures.collect()
}

fn arguments<'a>(paths: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [&["filter"], paths, &IDENTITY[..], more].concat()
}

fn joined<'a>(parts: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    parts.into_iter().flatten().copied().collect()
}

/// The tool's answer to a stream: exit code, stdout and stderr.
fn answer(
    bench: &Bench,
    input: &[u8],
    more: &[&str],
) -> Result<(Option<i32>, Vec<u8>, String), Failed> {
    let output = piped(bench, &arguments(&["-", "-"], more), input)?;
    Ok((output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Compares an answer with the expected one. An empty word means that stderr must be empty.
fn expect(
    name: &str,
    (code, out, line): (Option<i32>, Vec<u8>, String),
    expected: (i32, &[u8], &[&str]),
) -> Result<(), Failed> {
    let (right_code, right_out, words) = expected;
    let right = code == Some(right_code)
        && out == right_out
        && words.iter().all(|word| if word.is_empty() { line.is_empty() } else { line.contains(word) })
        // The segments of a JPEG may be named on a line of their own.
        && (right_code == 0 || line.lines().count() == 1);
    if right {
        return Ok(());
    }
    let (found, right) = (out.len(), right_out.len());
    Err(format!(
        "{name}: code {code:?} for {right_code}, {found} bytes for {right}, {line:?} for {words:?}"
    )
    .into())
}

/// 1, 2 and 5 frames of different sizes give the output of each alone, one after the other.
fn each_is_one() -> Result<(), Failed> {
    let bench = Bench::new();
    for (source, format) in KINDS {
        let all = pictures(&bench, source, format)?;
        for count in [1, 2, 5] {
            let (input, expected) = (
                joined(all[..count].iter().map(|it| &it.0)),
                joined(all[..count].iter().map(|it| &it.1)),
            );
            let name = format!("{count} {}", source.name());
            expect(&name, answer(&bench, &input, &["--format", format])?, (0, &expected, &[""]))?;
            // With any number of threads.
            expect(
                &name,
                answer(&bench, &input, &["--format", format, "-j", "1"])?,
                (0, &expected, &[""]),
            )?;
        }
    }
    // A case that a user asked for.
    let two = b"P5\n1 1\n255\nAP5\n1 1\n255\nB";
    let both = b"P5\n1 1 255\nAP5\n1 1 255\nB";
    expect("two bytes", answer(&bench, two, &["--format", "pgm"])?, (0, both, &[""]))
}

fn not_frames() -> Result<(), Failed> {
    let bench = Bench::new();
    let png = Source::Tool("png", "|u1", 3).picture(&bench, 9, (3, 3))?;
    let other = Source::Tool("bmp", "|u1", 3).picture(&bench, 9, (3, 3))?;
    for (source, format) in KINDS {
        let all = pictures(&bench, source, format)?;
        let (one, two) = (joined([&all[0].0]), joined([&all[0].0, &all[1].0]));
        let (first, both) = (joined([&all[0].1]), joined([&all[0].1, &all[1].1]));
        let name = source.name();
        let more = &["--format", format][..];
        // Padding between or after frames is no damage.
        let padded = [&one[..], &[0; 511], &all[1].0, &[0; 1000]].concat();
        expect(&name, answer(&bench, &padded, more)?, (0, &both, &["1511 bytes", "1511 zeros"]))?;
        let trailer = [&one[..], b"\x01 a trailer"].concat();
        expect(
            &name,
            answer(&bench, &trailer, more)?,
            (0, &first, &["11 bytes", "an unknown format"]),
        )?;
        let motion = [&one[..], &video()].concat();
        expect(&name, answer(&bench, &motion, more)?, (0, &first, &["1040 bytes", "MP4"]))?;
        let damaged = [&two[..], b"\x01 rubbish"].concat();
        expect(
            &name,
            answer(&bench, &damaged, more)?,
            (1, &both, &["frame 3", "picture begins here"]),
        )?;
        let stranger = if name.starts_with("png") { &other } else { &png };
        let mixed = [&one[..], stranger].concat();
        expect(&name, answer(&bench, &mixed, more)?, (1, &first, &["frame 2", "one format"]))?;
        // Known data between frames.
        let between = [&two[..], &video(), &all[2].0].concat();
        let three = joined(all[..3].iter().map(|it| &it.1));
        expect(&name, answer(&bench, &between, more)?, (0, &three, &["1040 bytes", "1 MP4"]))?;
    }
    Ok(())
}

/// The data that a camera writes after a motion photo.
fn video() -> Vec<u8> {
    let mut video = b"\0\0\0\x18ftypmp42\0\0\0\0isommp42\0\0\x03\xf8mdat".to_vec();
    video.extend((0..1008u32).map(|i| (i * 31 % 253) as u8));
    video
}

fn truncated() -> Result<(), Failed> {
    let bench = Bench::new();
    for (source, format) in KINDS {
        let all = pictures(&bench, source, format)?;
        let (first, second, expected) = (&all[0].0, &all[2].0, &all[0].1);
        let is_text = matches!(source, Source::Pnm(1..=3, _));
        // Text may lack a digit of its last number, or the final space.
        let cuts = [1, 2, second.len() / 3, second.len() / 2, second.len().saturating_sub(30)];
        for cut in cuts.into_iter().filter(|&cut| cut > if is_text { 8 } else { 0 }) {
            let input = [&first[..], &second[..second.len() - cut]].concat();
            let name = format!("{} without its last {cut} bytes", source.name());
            let answer = answer(&bench, &input, &["--format", format])?;
            expect(&name, answer, (1, expected, &["frame 2", "cut off", "--lenient"]))?;
        }
    }
    // With `--lenient`, the existing part of a frame, if it is large enough.
    let all = pictures(&bench, Source::Pnm(6, 8), "ppm")?;
    let input = [&all[0].0[..], &all[4].0[..all[4].0.len() - 100]].concat();
    let (code, out, line) = answer(&bench, &input, &["--format", "ppm", "--lenient"])?;
    match code == Some(0)
        && out.starts_with(&all[0].1)
        && out.len() > all[4].0.len()
        && line.contains("frame 2")
    {
        true => Ok(()),
        false => Err(format!("lenient: {code:?}, {} bytes, {line}", out.len()).into()),
    }
}

/// The next frame is sent after the result of the one before has arrived.
fn pauses() -> Result<(), Failed> {
    let bench = Bench::new();
    for (source, format) in KINDS {
        let all = pictures(&bench, source, format)?;
        let mut child = started(&bench, &arguments(&["-", "-"], &["--format", format]))?;
        let (mut stdin, mut stdout) = (
            child.stdin.take().expect("it was asked for"),
            child.stdout.take().expect("it was asked for"),
        );
        for (index, (picture, expected)) in all.into_iter().enumerate() {
            stdin.write_all(&picture)?;
            stdin.flush()?;
            let name = format!("{}, frame {}", source.name(), index + 1);
            let (found, rest) = in_time(&name, move || {
                let mut found = vec![0; expected.len()];
                (stdout.read_exact(&mut found).map(|()| found == expected), stdout)
            })?;
            stdout = rest;
            if !found? {
                return Err(format!("{name}: another result").into());
            }
        }
        drop(stdin);
        if !in_time("the end", move || child.wait())??.success() {
            return Err(format!("{} did not end well", source.name()).into());
        }
    }
    Ok(())
}

/// The reader of the results closes its pipe, while frames still arrive or while none does.
fn closed() -> Result<(), Failed> {
    let bench = Bench::new();
    let picture = Source::Pnm(6, 8).picture(&bench, 1, (640, 480))?;
    for frames in [2, 3, 2000] {
        let mut child = started(&bench, &arguments(&["-", "-"], &["--format", "ppm"]))?;
        let mut stdin = child.stdin.take().expect("it was asked for");
        let mut stdout = child.stdout.take().expect("it was asked for");
        let first = picture.clone();
        stdin.write_all(&first)?;
        stdin.flush()?;
        stdout.read_exact(&mut [0; 100])?;
        drop(stdout);
        // The input stays open: the tool must end because its output is closed.
        for _ in 1..frames {
            if stdin.write_all(&first).is_err() {
                break;
            }
        }
        let output = in_time("the output is closed", move || {
            let mut said = String::new();
            let read = child.stderr.take().expect("it was asked for").read_to_string(&mut said);
            (child.wait(), read, said)
        })?;
        drop(stdin);
        let (status, _, said) = output;
        if !status?.success() || !said.is_empty() {
            return Err(format!("{frames} frames into a closed pipe: {said:?}").into());
        }
    }
    Ok(())
}

fn memory() -> Result<(), Failed> {
    let bench = Bench::new();
    let picture = Source::Pnm(6, 8).picture(&bench, 1, (1000, 700))?;
    let length = answer(&bench, &picture, &["--format", "ppm"])?.1.len();
    let limit = Duration::from_secs(120);
    let stream = Repeated { header: &[], frame: &picture, result: length, limit };
    let arguments = arguments(&["-", "-"], &["--format", "ppm", "-j", "3"]);
    let peak = |frames| peak(&bench, &arguments, stream, frames);
    let (few, many) = (peak(12)?, peak(240)?);
    // Three threads hold frames of 2 MiB: encoded, decoded, filtered, and encoded again.
    if many <= few + (24 << 10) && many < 256 << 10 {
        Ok(())
    } else {
        Err(format!("12 frames took {few} KiB, 240 took {many}").into())
    }
}

fn refused_formats() -> Result<(), Failed> {
    let bench = Bench::new();
    let (one, plain) = pictures(&bench, Source::Pnm(6, 8), "ppm")?.swap_remove(0);
    let two = [&one[..], &one].concat();
    for format in ["tif", "tga", "raw"] {
        let (_, first, _) = answer(&bench, &one, &["--format", format])?;
        let answer = answer(&bench, &two, &["--format", format])?;
        expect(format, answer, (1, &first, &["frame 2", format, "a second", "png, jpg"]))?;
        // No partial file is left.
        let name = format!("out.{format}");
        let output = piped(&bench, &arguments(&["-", &name], &[]), &two)?;
        if output.status.code() != Some(1) || !bench.contents().is_empty() {
            return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
    }
    // Files of these formats have no end of their own, but may come through a pipe.
    for format in ["tif", "tga"] {
        let (_, picture, _) = answer(&bench, &one, &["--format", format])?;
        if format == "tif" {
            expect(format, answer(&bench, &picture, &["--format", "ppm"])?, (0, &plain, &[""]))?;
            let behind = [&picture[..], &[0; 40]].concat();
            expect(
                format,
                answer(&bench, &behind, &["--format", "ppm"])?,
                (0, &plain, &["40 zeros"]),
            )?;
        }
        bench.put(&format!("two.{format}"), &[&picture[..], &picture].concat());
        refuse(
            &bench,
            &arguments(&[&format!("two.{format}"), "out.ppm"], &["--frames"]),
            &["frame 1", "leave --frames out"],
        )?;
    }
    // A page of a picture without pages.
    let answer = answer(&bench, &two, &["--format", "ppm", "--page", "2"])?;
    expect("--page", answer, (1, &[], &["no page 2"]))
}

/// The same frames in files: read only with the option, and written completely or not at all.
fn files() -> Result<(), Failed> {
    for (source, format) in KINDS {
        let bench = Bench::new();
        let all = pictures(&bench, source, format)?;
        let (name, output) = (source.name(), format!("out.{format}"));
        let input = joined(all.iter().map(|it| &it.0));
        let expected = joined(all.iter().map(|it| &it.1));
        bench.put("in", &input);
        bench.succeed(&arguments(&["in", &output], &["--frames"]))?;
        if bench.get(&output)? != expected {
            return Err(format!("{name}: --frames gives another result than a pipe").into());
        }
        // Without the option, the first frame is the picture.
        let line = said(&bench, &arguments(&["in", &output], &["--overwrite"]))?;
        // White space between text pictures belongs to the format.
        let behind = match source {
            Source::Pnm(1..=3, _) => "bytes after the picture".to_owned(),
            _ => format!("{} bytes", input.len() - all[0].0.len()),
        };
        if bench.get(&output)? != all[0].1 || !line.contains(&behind) || !line.contains("--frames")
        {
            return Err(format!("{name}: {line}").into());
        }
        // From a pipe into a file: all frames are written, and the tool says so.
        let piped = piped(&bench, &arguments(&["-", &output], &["--overwrite"]), &input)?;
        let line = String::from_utf8_lossy(&piped.stderr);
        if bench.get(&output)? != expected
            || !line.contains("5 pictures")
            || !piped.status.success()
        {
            return Err(format!("{name} from a pipe: {line}").into());
        }
        // After a damaged frame the old file is unchanged.
        bench.put("bad", &input[..input.len() - 20]);
        refuse(
            &bench,
            &arguments(&["bad", &output], &["--overwrite", "--frames"]),
            &["bad", "frame 5"],
        )?;
    }
    // The input may be the output. Frames may come from several files.
    let bench = Bench::new();
    let all = pictures(&bench, Source::Pnm(5, 8), "pgm")?;
    let input = joined(all.iter().map(|it| &it.0));
    std::fs::create_dir(bench.path().join("in"))?;
    bench.put("a.pgm", &input);
    bench.put("in/b.pgm", &input);
    bench.put("in/c.pgm", &all[3].0);
    bench.succeed(&arguments(&["a.pgm", "a.pgm"], &["--frames"]))?;
    bench.succeed(&arguments(&["in", "out/"], &["--frames"]))?;
    let expected = joined(all.iter().map(|it| &it.1));
    if bench.get("a.pgm")? != expected
        || bench.get("out/b.pgm")? != expected
        || bench.get("out/c.pgm")? != all[3].1
    {
        return Err("frames in a folder give other results".into());
    }
    Ok(())
}

/// A JPEG with a Multi-Picture Format index that names a second picture, this many bytes apart.
fn with_index(first: &[u8], second: &[u8], apart: usize) -> Vec<u8> {
    let entry = |tag: u16, kind: u16, count: u32, value: [u8; 4]| {
        [&tag.to_be_bytes()[..], &kind.to_be_bytes(), &count.to_be_bytes(), &value].concat()
    };
    let index = |offset: u32| {
        let picture = |size: u32, offset: u32| [0, size, offset, 0].map(u32::to_be_bytes).concat();
        [
            &b"MPF\0MM\0*\0\0\0\x08\0\x03"[..],
            &entry(0xb000, 7, 4, *b"0100"),
            &entry(0xb001, 4, 1, 2u32.to_be_bytes()),
            &entry(0xb002, 7, 32, 50u32.to_be_bytes()),
            &[0; 4],
            &picture(first.len() as u32, 0),
            &picture(second.len() as u32, offset),
        ]
        .concat()
    };
    let length = index(0).len() + 2;
    // Offsets count from the index's byte order mark, ten bytes into the file.
    let offset = first.len() + 2 + length + apart - 10;
    let segment =
        [&b"\xff\xe2"[..], &(length as u16).to_be_bytes(), &index(offset as u32)].concat();
    [&first[..2], &segment, &first[2..], &vec![0; apart], second].concat()
}

fn multi_picture() -> Result<(), Failed> {
    let bench = Bench::new();
    let jpeg = Source::Tool("jpg", "|u1", 3);
    let (first, second) = (jpeg.picture(&bench, 1, (30, 20))?, jpeg.picture(&bench, 2, (8, 8))?);
    let (_, one, _) = answer(&bench, &first, &["--format", "ppm"])?;
    let (_, other, _) = answer(&bench, &second, &["--format", "ppm"])?;
    for apart in [0, 6] {
        let photo = with_index(&first, &second, apart);
        let bytes = format!("{} bytes", second.len() + apart);
        let words = [&*bytes, "of 1 JPEG file"];
        expect("one photo", answer(&bench, &photo, &["--format", "ppm"])?, (0, &one, &words))?;
        // Three such files, one with a video. A picture that no index names is a frame.
        let three = [&photo[..], &photo, &video(), &photo, &second].concat();
        let expected = [&one[..], &one, &one, &other].concat();
        let words = ["of 3 JPEG files", "1040 of 1 MP4"];
        expect(
            "three photos",
            answer(&bench, &three, &["--format", "ppm"])?,
            (0, &expected, &words),
        )?;
        bench.put("photo.jpg", &[&photo[..], &video()].concat());
        let line = said(&bench, &arguments(&["photo.jpg", "out.ppm"], &["--overwrite"]))?;
        if bench.get("out.ppm")? != one || !line.contains("of 1 JPEG file, 1040 of 1 MP4") {
            return Err(format!("a photo in a file: {line}").into());
        }
    }
    Ok(())
}

/// Every input format, with every type of data that may follow it.
fn trailers() -> Result<(), Failed> {
    let bench = Bench::new();
    let jpeg = Source::Tool("jpg", "|u1", 3).picture(&bench, 3, (9, 9))?;
    let png = Source::Tool("png", "|u1", 3).picture(&bench, 3, (9, 9))?;
    let rest = b"\x01SEFH\x00trailer".to_vec();
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for (index, (source, _)) in KINDS.into_iter().enumerate() {
        files.push((format!("picture{index}"), source.picture(&bench, 5, (21, 14))?));
    }
    for (name, more) in [
        ("plain.tif", &["--format", "tif"][..]),
        ("packed.tif", &["--format", "tif", "--compression", "deflate"]),
        ("old.tga", &["--format", "tga"]),
    ] {
        let (_, bytes, _) = answer(&bench, &png, more)?;
        files.push((name.to_owned(), bytes));
    }
    // The encoder of TGA writes no areas and no footer after the pixels: add them.
    let (_, mut footed) = files[files.len() - 1].clone();
    footed.extend(b"an area\x00\x00\x00\x00\x00\x00\x00\x00TRUEVISION-XFILE.\x00");
    files.push(("new.tga".to_owned(), footed));
    for (name, picture) in files {
        bench.put(&name, &picture);
        bench.succeed(&arguments(&[&name, "expected.npy"], &["--overwrite"]))?;
        let expected = bench.get("expected.npy")?;
        let zeros = vec![0; 300];
        let mixed = [&zeros[..], &jpeg, &zeros, &png, &video(), &rest].concat();
        let (jpeg_bytes, png_bytes) = (format!("{} of", jpeg.len()), format!("{} of", png.len()));
        let cases: [(&str, &[u8], &[&str]); 6] = [
            ("zeros", &zeros, &["300 zeros"]),
            ("rubbish", &rest, &["13 of an unknown format"]),
            ("a JPEG", &jpeg, &[&jpeg_bytes, "1 JPEG file"]),
            ("a video", &video(), &["1040 of 1 MP4"]),
            ("half a JPEG", &jpeg[..jpeg.len() / 2], &["an unknown format"]),
            (
                "all of them",
                &mixed,
                &[
                    "600 zeros",
                    &jpeg_bytes,
                    "1 JPEG",
                    &png_bytes,
                    "1 PNG",
                    "1 MP4",
                    "13 of an unknown format",
                ],
            ),
        ];
        for (what, behind, words) in cases {
            bench.put(&name, &[&picture[..], behind].concat());
            let line = said(&bench, &arguments(&[&name, "out.npy"], &["--overwrite"]))?;
            let all = format!("{} bytes", behind.len());
            let words = [&[&*all], words].concat();
            if bench.get("out.npy")? != expected || line.lines().count() != 1 {
                return Err(format!("{name} with {what}: {line}").into());
            }
            if let Some(word) = words.iter().find(|&&word| !line.contains(word)) {
                return Err(format!("{name} with {what}: {line} lacks {word}").into());
            }
            bench.succeed(&arguments(&[&name, "out.npy"], &["--overwrite", "--quiet"]))?;
        }
    }
    Ok(())
}

/// Files filtered in chunks give the same messages.
fn chunks() -> Result<(), Failed> {
    let bench = Bench::new();
    let picture = Source::Pnm(5, 8).picture(&bench, 5, (21, 14))?;
    let (_, tif, _) = answer(&bench, &picture, &["--format", "tif"])?;
    let array = npy("<f4", "(4, 5)", &[1; 80]);
    for (name, picture) in [("a.npy", array), ("a.tif", tif)] {
        bench.put(name, &picture);
        let output = format!("out-{name}");
        bench.succeed(&arguments(&[name, &output], &["--chunk-above", "1"]))?;
        let expected = bench.get(&output)?;
        bench.put(name, &[&picture[..], &[0; 77]].concat());
        let line = said(
            &bench,
            &arguments(&[name, &output], &["--overwrite", "--chunk-above", "1", "--verbose"]),
        )?;
        if bench.get(&output)? != expected
            || !line.contains("in chunks")
            || !line.contains("77 zeros")
        {
            return Err(format!("{name} in chunks: {line}").into());
        }
    }
    Ok(())
}

fn taps() -> Result<(), Failed> {
    let bench = Bench::new();
    let array = npy("|u1", "(1, 3)", &[1, 2, 1]);
    bench.put("in.npy", &npy("|u1", "(2, 3)", &[1, 2, 3, 4, 5, 6]));
    let arguments = [
        "filter",
        "in.npy",
        "out.npy",
        "--overwrite",
        "--taps-file",
        "taps.npy",
        "--device",
        "cpu",
    ];
    bench.put("taps.npy", &array);
    bench.succeed(&arguments)?;
    for behind in [&[0][..], &array] {
        bench.put("taps.npy", &[&array[..], behind].concat());
        refuse(&bench, &arguments, &["taps.npy", &format!("{} bytes", behind.len())])?;
    }
    Ok(())
}
