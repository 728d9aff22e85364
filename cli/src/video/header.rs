//! The text of a y4m stream (YUV4MPEG2): a header, and a line before each frame.
//!
//! ```text
//! YUV4MPEG2 W1920 H1080 F25:1 Ip A1:1 C420jpeg XCOLORRANGE=LIMITED
//! FRAME
//! luma, then both planes of chroma, then alpha
//! FRAME Ip
//! ...
//! ```
//!
//! A parameter is a letter and a value. Parameters that the tool does not read are kept.

use std::io::{BufRead, Read};
use std::ops::Range;

use crate::limits::Limits;

/// The first word of a stream.
pub(crate) const MAGIC: &[u8] = b"YUV4MPEG2";

/// The first word of a frame.
const FRAME: &[u8] = b"FRAME";

/// Maximum length of a line, in bytes. ffmpeg reads 96 bytes of a header.
const LONGEST: u64 = 4096;

/// Characters of a line to show in a message.
const SHOWN: usize = 32;

/// The header of a stream.
#[derive(Debug, PartialEq)]
pub(super) struct Header {
    /// The line, with its end.
    pub(super) line: Vec<u8>,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) sampling: Sampling,
    /// Whether frames are, or may be, two fields of different times.
    pub(super) interlaced: bool,
}

/// The planes of a frame and the type of their samples.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sampling {
    /// As the header names it, as in `420jpeg`.
    pub(super) name: String,
    /// Columns and rows of luma for each sample of chroma; `None` for luma alone.
    pub(super) chroma: Option<(usize, usize)>,
    pub(super) alpha: bool,
    /// Bits of a sample, 8 to 16. More than 8 are stored in 2 bytes, the low byte first.
    pub(super) bits: u32,
}

/// The meaning of a plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part {
    Luma,
    Chroma,
    Alpha,
}

/// One plane of a frame.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plane {
    pub(super) part: Part,
    pub(super) width: usize,
    pub(super) height: usize,
    /// Where it is in the frame, in samples.
    pub(super) at: Range<usize>,
}

impl Header {
    /// Reads the header of a stream. `None` if the input begins with another word.
    pub(super) fn read(input: &mut impl BufRead, limits: &Limits) -> Result<Option<Self>, String> {
        let line = line(input)?;
        if !begins_with(&line, MAGIC) {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') {
            return Err(endless(&line, "the header"));
        }
        let header = Self::parse(line)?;
        let samples = header.samples_in_u64();
        let bytes = samples.saturating_mul(header.sampling.bytes() as u64);
        let (width, height) = (header.width as u64, header.height as u64);
        limits.check(width, height, bytes.div_ceil(width.saturating_mul(height)))?;
        Ok(Some(header))
    }

    fn parse(line: Vec<u8>) -> Result<Self, String> {
        let text = String::from_utf8_lossy(&line).into_owned();
        let (mut width, mut height, mut sampling, mut interlaced) = (None, None, None, false);
        for word in text.split_ascii_whitespace().skip(1) {
            let Some((letter, value)) = word.split_at_checked(1) else { continue };
            match letter {
                "W" => width = Some(extent(word, value, "a width")?),
                "H" => height = Some(extent(word, value, "a height")?),
                "C" => sampling = Some(Sampling::parse(value)?),
                "I" => interlaced = matches!(value, "t" | "b" | "m"),
                _ => {}
            }
        }
        let missing = |what: &str| format!("the header \"{}\" has no {what}", shown(&line));
        Ok(Self {
            width: width.ok_or_else(|| missing("width, as in W1920"))?,
            height: height.ok_or_else(|| missing("height, as in H1080"))?,
            sampling: sampling.unwrap_or_else(Sampling::unnamed),
            interlaced,
            line,
        })
    }

    /// The number of columns and rows of chroma.
    fn chroma(&self) -> Option<(usize, usize)> {
        let (across, down) = self.sampling.chroma?;
        Some((self.width.div_ceil(across), self.height.div_ceil(down)))
    }

    /// Samples of a frame. The header may claim more than memory holds.
    fn samples_in_u64(&self) -> u64 {
        let area = |(width, height): (usize, usize)| (width as u64).saturating_mul(height as u64);
        let luma = area((self.width, self.height));
        let chroma = self.chroma().map_or(0, area).saturating_mul(2);
        luma.saturating_mul(1 + u64::from(self.sampling.alpha)).saturating_add(chroma)
    }

    /// The planes of a frame, in order.
    pub(super) fn planes(&self) -> Vec<Plane> {
        let luma = (self.width, self.height);
        let mut parts = vec![(Part::Luma, luma)];
        parts.extend(self.chroma().into_iter().flat_map(|size| [(Part::Chroma, size); 2]));
        parts.extend(self.sampling.alpha.then_some((Part::Alpha, luma)));
        let mut end = 0;
        let placed = |(part, (width, height))| {
            let start = end;
            end += width * height;
            Plane { part, width, height, at: start..end }
        };
        parts.into_iter().map(placed).collect()
    }
}

impl Sampling {
    /// The sampling of a header that names none.
    fn unnamed() -> Self {
        Self { name: "420".to_owned(), chroma: Some((2, 2)), alpha: false, bits: 8 }
    }

    /// Bytes of a sample.
    pub(super) fn bytes(&self) -> usize {
        if self.bits > 8 { 2 } else { 1 }
    }

    fn parse(name: &str) -> Result<Self, String> {
        let (chroma, bits) = match name {
            "420jpeg" | "420mpeg2" | "420paldv" => (Some((2, 2)), Some(8)),
            "444alpha" => (Some((1, 1)), Some(8)),
            "mono" => (None, Some(8)),
            _ if name.starts_with("mono") => (None, bits(&name[4..])),
            _ => match name.split_at_checked(3) {
                Some((sampling, depth)) => {
                    let bits = if depth.is_empty() {
                        Some(8)
                    } else {
                        depth.strip_prefix('p').and_then(bits)
                    };
                    let chroma = match sampling {
                        "420" => Some((2, 2)),
                        "422" => Some((2, 1)),
                        "444" => Some((1, 1)),
                        "411" => Some((4, 1)),
                        _ => None,
                    };
                    // Only "mono" has no chroma.
                    (chroma, bits.filter(|_| chroma.is_some()))
                }
                None => (None, None),
            },
        };
        match bits {
            Some(bits) => {
                Ok(Self { name: name.to_owned(), chroma, alpha: name == "444alpha", bits })
            }
            None => Err(format!(
                "its planes are C{}, and the tool knows mono, 411, 420, 422 and 444 of 8 bits \
                 (C420jpeg) and of 9 to 16 (C420p10, Cmono12), and 444alpha: convert it, as by \
                 ffmpeg's -pix_fmt yuv420p",
                shown(name.as_bytes())
            )),
        }
    }
}

/// The number of bits, as text.
fn bits(text: &str) -> Option<u32> {
    text.parse().ok().filter(|bits| (9..=16).contains(bits))
}

fn extent(word: &str, value: &str, what: &str) -> Result<usize, String> {
    let number = value.parse::<u32>().ok().filter(|&number| number > 0);
    number.map(|number| number as usize).ok_or_else(|| {
        format!(
            "the header says {}: {what} is a whole number from 1 to {}",
            shown(word.as_bytes()),
            u32::MAX
        )
    })
}

/// Why a frame is unusable.
#[derive(Debug, PartialEq)]
pub(super) enum Fault {
    /// The input ends within it.
    Cut(String),
    /// It is no frame, or cannot be read.
    Damaged(String),
}

/// Reads the line before a frame, with its end. `None` if the input ends before it.
pub(super) fn frame_line(input: &mut impl BufRead) -> Result<Option<Vec<u8>>, Fault> {
    let line = line(input).map_err(Fault::Damaged)?;
    if line.is_empty() {
        return Ok(None);
    }
    // The start of the word counts as a line that the input's end cuts off.
    if !begins_with(&line, FRAME) && !FRAME.starts_with(&line) {
        return Err(Fault::Damaged(format!(
            "\"{}\" is where FRAME must be: the stream is damaged, or its header gives a wrong \
             size or sampling",
            shown(&line)
        )));
    }
    if line.last() != Some(&b'\n') {
        let is_cut = (line.len() as u64) < LONGEST;
        let reason = endless(&line, "its first line");
        return Err(if is_cut { Fault::Cut(reason) } else { Fault::Damaged(reason) });
    }
    Ok(Some(line))
}

/// The bytes up to the end of a line, at most [`LONGEST`].
fn line(input: &mut impl BufRead) -> Result<Vec<u8>, String> {
    let mut line = Vec::new();
    input.take(LONGEST).read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
    Ok(line)
}

fn begins_with(line: &[u8], word: &[u8]) -> bool {
    line.strip_prefix(word).is_some_and(|rest| matches!(rest.first(), None | Some(b' ' | b'\n')))
}

fn endless(line: &[u8], what: &str) -> String {
    match line.len() as u64 {
        LONGEST => format!("{what} has more than {LONGEST} bytes: the stream is damaged"),
        read => format!("the stream ends after {read} bytes of {what}: it is cut off"),
    }
}

/// The start of a line, for a message.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line.trim_ascii_end());
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Result<Option<Header>, String> {
        Header::read(&mut text.as_bytes(), &Limits::default())
    }

    #[test]
    fn samplings_are_those_of_ffmpeg() {
        let sampling =
            |name| Sampling::parse(name).ok().map(|found| (found.chroma, found.bits, found.alpha));
        for (name, chroma, bits) in [
            ("420", Some((2, 2)), 8),
            ("420jpeg", Some((2, 2)), 8),
            ("420mpeg2", Some((2, 2)), 8),
            ("420paldv", Some((2, 2)), 8),
            ("420p10", Some((2, 2)), 10),
            ("411", Some((4, 1)), 8),
            ("422", Some((2, 1)), 8),
            ("422p12", Some((2, 1)), 12),
            ("444", Some((1, 1)), 8),
            ("444p16", Some((1, 1)), 16),
            ("mono", None, 8),
            ("mono9", None, 9),
            ("mono16", None, 16),
        ] {
            assert_eq!(sampling(name), Some((chroma, bits, false)), "{name}");
        }
        assert_eq!(sampling("444alpha"), Some((Some((1, 1)), 8, true)));
        for name in ["", "42", "440", "420p", "420p8", "420p17", "420x", "mono8", "monop10", "4é0"]
        {
            assert_eq!(sampling(name), None, "{name}");
        }
    }

    #[test]
    fn planes_of_odd_sizes_are_rounded_up() {
        let header = header("YUV4MPEG2 W5 H3 F25:1 Ip A1:1\n").unwrap().unwrap();
        let planes: Vec<_> =
            header.planes().into_iter().map(|it| (it.part, it.width, it.height, it.at)).collect();
        assert_eq!(
            planes,
            [(Part::Luma, 5, 3, 0..15), (Part::Chroma, 3, 2, 15..21), (Part::Chroma, 3, 2, 21..27)]
        );
        assert_eq!(header.samples_in_u64(), 27);
    }

    #[test]
    fn messages_name_the_value() {
        for (text, words) in [
            ("YUV4MPEG2 H3\n", &["no width", "W1920"][..]),
            ("YUV4MPEG2 W3\n", &["no height"]),
            ("YUV4MPEG2 W0 H3\n", &["W0", "from 1 to 4294967295"]),
            ("YUV4MPEG2 W3 H-1\n", &["H-1"]),
            ("YUV4MPEG2 W3 H3 C440\n", &["C440", "420", "-pix_fmt"]),
            ("YUV4MPEG2 W4000000000 H4000000000\n", &["4000000000x4000000000", "--max-pixels"]),
            ("YUV4MPEG2 W100000 H100000\n", &["100000x100000", "--max-bytes"]),
            ("YUV4MPEG2 W3 H3", &["ends after 15 bytes"]),
        ] {
            let message = header(text).unwrap_err();
            for word in words {
                assert!(message.contains(word), "{text}: {message}");
            }
        }
        let long = format!("YUV4MPEG2 W3 X{}\n", "a".repeat(5000));
        assert!(header(&long).unwrap_err().contains("4096 bytes"));
        assert_eq!(header("P6\n1 1\n255\n"), Ok(None));
        assert_eq!(header(""), Ok(None));
        assert_eq!(header("YUV4MPEG21 W3 H3\n"), Ok(None));
    }

    #[test]
    fn lines_of_frames_keep_their_parameters() {
        let line = |text: &str| frame_line(&mut text.as_bytes());
        assert_eq!(line("FRAME\nab"), Ok(Some(b"FRAME\n".to_vec())));
        assert_eq!(line("FRAME It1 Xa=b\n"), Ok(Some(b"FRAME It1 Xa=b\n".to_vec())));
        assert_eq!(line(""), Ok(None));
        let is = |found, expected: &str| match found {
            Err(Fault::Damaged(reason)) => reason.contains(expected),
            _ => false,
        };
        assert!(is(line("FRAMES\n"), "\"FRAMES\""));
        assert!(is(line("\u{1}\u{2}"), "FRAME must be"));
        assert!(is(line(&"FRAME ".repeat(1000)), "4096 bytes"));
        assert!(matches!(line("FRA"), Err(Fault::Cut(reason)) if reason.contains("3 bytes")));
    }
}
