//! Where pictures end: every byte of an input belongs to a picture, or the tool names it.
//!
//! [`KINDS`] tells a format by its first bytes. Each format has a walker, which skips one picture
//! without decoding it. On a pipe, the walker finds the frames. In a file, it finds the data that
//! the decoder did not read:
//!
//! ```text
//! walk the picture
//! while there are bytes: pass over zeros, then over a picture or a video if one begins
//!   here, else to the end
//! ```

mod input;
mod kind;
mod tiff;
mod walk;

use std::fmt;
use std::io::{self, BufReader, Read, Seek};

pub(crate) use input::{Bytes, Input, spool};
pub(crate) use kind::Kind;
use walk::Walk;

struct Format {
    kind: Kind,
    name: &'static str,
    /// The signatures. A dot is any byte.
    starts: &'static [&'static [u8]],
    /// Skips one picture; `None` if only the end of the file ends it.
    walk: Option<Walk>,
}

const KINDS: &[Format] = &[
    Format { kind: Kind::Png, name: "PNG", starts: &[b"\x89PNG\r\n\x1a\n"], walk: Some(walk::png) },
    Format { kind: Kind::Jpeg, name: "JPEG", starts: &[b"\xff\xd8\xff"], walk: Some(walk::jpeg) },
    Format {
        kind: Kind::Npy,
        name: "npy",
        starts: &[b"\x93NUMPY"],
        walk: Some(walk::array_of_numpy),
    },
    Format {
        kind: Kind::Pnm,
        name: "PNM",
        starts: &[
            b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"P7", b"PF\n", b"Pf\n", b"PF ", b"Pf ",
            b"PF\r", b"Pf\r",
        ],
        walk: Some(walk::pnm),
    },
    Format { kind: Kind::Bmp, name: "BMP", starts: &[b"BM"], walk: Some(walk::bmp) },
    Format { kind: Kind::Gif, name: "GIF", starts: &[b"GIF87a", b"GIF89a"], walk: Some(walk::gif) },
    Format { kind: Kind::WebP, name: "WebP", starts: &[b"RIFF....WEBP"], walk: Some(walk::webp) },
    Format { kind: Kind::Qoi, name: "QOI", starts: &[b"qoif"], walk: Some(walk::qoi) },
    Format {
        kind: Kind::Farbfeld,
        name: "farbfeld",
        starts: &[b"farbfeld"],
        walk: Some(walk::farbfeld),
    },
    Format { kind: Kind::Hdr, name: "Radiance", starts: &[b"#?RADIANCE"], walk: Some(walk::hdr) },
    Format {
        kind: Kind::Exr,
        name: "OpenEXR",
        starts: &[b"\x76\x2f\x31\x01"],
        walk: Some(walk::exr),
    },
    Format {
        kind: Kind::Tiff,
        name: "TIFF",
        // BigTIFF has 43 for 42.
        starts: &[b"II\x2a\0", b"MM\0\x2a", b"II\x2b\0", b"MM\0\x2b"],
        walk: None,
    },
    Format {
        kind: Kind::Video,
        name: "MP4 or HEIC",
        starts: &[b"....ftyp"],
        walk: Some(walk::boxes),
    },
];

impl Kind {
    fn format(self) -> &'static Format {
        KINDS.iter().find(|format| format.kind == self).expect("every kind is in the table")
    }

    /// As in "frame 2 is no PNG".
    pub(crate) fn name(self) -> &'static str {
        self.format().name
    }

    /// Whether the bytes of such a picture say where it ends, so that pictures can follow one
    /// another.
    pub(crate) fn ends_itself(self) -> bool {
        self.format().walk.is_some() && self != Self::Video
    }

    /// The format that begins here. Reads no more bytes than are needed to tell.
    pub(crate) fn next(input: &mut dyn Bytes) -> io::Result<Option<Self>> {
        let begins = |start: &[u8], there: &[u8]| {
            start.iter().zip(there).all(|(&expected, &byte)| expected == b'.' || expected == byte)
        };
        for count in 1.. {
            let there = input.peek(count)?;
            let mut open = false;
            for format in KINDS {
                for start in format.starts.iter().filter(|start| begins(start, there)) {
                    if start.len() <= there.len() {
                        return Ok(Some(format.kind));
                    }
                    open = true;
                }
            }
            if !open || there.len() < count {
                break;
            }
        }
        Ok(None)
    }

    /// Skips one picture of this format, which begins here.
    pub(crate) fn walk(self, input: &mut dyn Bytes) -> io::Result<()> {
        match self.format().walk {
            Some(walk) => walk(input),
            None => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "only the end of the file ends it"))
            }
        }
    }
}

/// Whether a JPEG has its end marker. Decoders fill in missing data without an error.
pub(crate) fn jpeg_is_whole(mut data: &[u8]) -> bool {
    walk::jpeg(&mut data).is_ok()
}

/// The offsets, after a JPEG's end, of further pictures that it lists.
pub(crate) fn pictures_behind(jpeg: &mut (impl Read + Seek)) -> Vec<u64> {
    walk::pictures_behind(jpeg).unwrap_or_default()
}

/// The unread data after a picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Left {
    /// For each part: a name, the count, and the size in bytes.
    parts: Vec<(&'static str, u64, u64)>,
    /// Whether `--frames` would read some of it.
    frames: bool,
}

const ZEROS: &str = "zeros";
const UNKNOWN: &str = "of an unknown format";

impl Left {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn put(&mut self, name: &'static str, count: u64, bytes: u64) {
        match self.parts.iter_mut().find(|(known, ..)| *known == name) {
            _ if bytes == 0 => {}
            Some((_, counted, sum)) => (*counted, *sum) = (*counted + count, *sum + bytes),
            None => self.parts.push((name, count, bytes)),
        }
    }

    pub(crate) fn zeros(&mut self, bytes: u64) {
        self.put(ZEROS, 1, bytes);
    }

    pub(crate) fn unknown(&mut self, bytes: u64) {
        self.put(UNKNOWN, 1, bytes);
    }

    pub(crate) fn part(&mut self, kind: Kind, bytes: u64) {
        self.put(kind.name(), 1, bytes);
    }

    /// Adds the unread data of another input.
    pub(crate) fn add(&mut self, more: Self) {
        for (name, count, bytes) in more.parts {
            self.put(name, count, bytes);
        }
        self.frames |= more.frames;
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: u64 = self.parts.iter().map(|(.., bytes)| bytes).sum();
        let said: Vec<_> = self
            .parts
            .iter()
            .map(|&(name, count, bytes)| match (name, count) {
                (ZEROS, _) => format!("{bytes} zeros"),
                (UNKNOWN, _) => format!("{bytes} {UNKNOWN}"),
                (_, 1) => format!("{bytes} of 1 {name} file"),
                _ => format!("{bytes} of {count} {name} files"),
            })
            .collect();
        let bytes = if all == 1 { "1 byte" } else { &format!("{all} bytes") };
        write!(f, "{bytes} after the picture were not read: {}", said.join(", "))?;
        if self.frames {
            write!(f, "; --frames reads pictures that follow one another")
        } else {
            Ok(())
        }
    }
}

/// Skips zeros, and white space where the format allows it between pictures. Returns the number of
/// zeros.
pub(crate) fn pass_padding(input: &mut dyn Bytes, kind: Kind) -> io::Result<u64> {
    let padding = |byte: &u8| *byte == 0 || kind == Kind::Pnm && walk::is_white(*byte);
    let mut zeros = 0;
    while input.peek(1)?.first().is_some_and(padding) {
        // A video begins with zeros too: its first box's size.
        if Kind::next(input)? == Some(Kind::Video) {
            break;
        }
        let there = input.fill_buf()?;
        let run = there.iter().take_while(|byte| padding(byte)).count();
        let count = run.saturating_sub(3).max(1);
        zeros += there[..count].iter().filter(|&&byte| byte == 0).count() as u64;
        input.consume(count);
    }
    Ok(zeros)
}

/// The data after the picture at a file's start. It is empty if the picture's end is unknown.
pub(crate) fn left_over(
    mut file: impl Read + Seek + Send + 'static,
    extension: Option<&str>,
) -> Left {
    let found = (|| {
        file.rewind()?;
        let mut input = BufReader::new(&mut file);
        let mut start = [0; 12];
        let length = fill(&mut input, &mut start)?;
        let kind = Kind::next(&mut &start[..length])?;
        if kind == Some(Kind::Tiff) {
            let end = tiff::end(&mut input)?;
            let mut input = Input::of_file(file)?;
            input.skip(end.saturating_sub(4))?;
            let last: Vec<u8> = input.peek(8)?.to_vec();
            input.skip(end.min(4))?;
            // GDAL repeats the last 4 bytes of a tile that it wrote as a whole.
            if last.len() == 8 && last[..4] == last[4..] && input.peek(5)?.len() == 4 {
                input.skip(4)?;
            }
            // Writers align the end of a page.
            let rest = input.peek(TIFF_ALIGNMENT)?;
            let padding = rest.len();
            if padding < TIFF_ALIGNMENT && rest.iter().all(|&byte| byte == 0) {
                input.skip(padding as u64)?;
            }
            return behind(&mut input, Kind::Tiff);
        }
        let mut input = Input::of_file(file)?;
        match kind {
            Some(kind) if kind.ends_itself() => {
                kind.walk(&mut input)?;
                behind(&mut input, kind)
            }
            None if extension.is_some_and(|extension| extension.eq_ignore_ascii_case("tga")) => {
                walk::tga(&mut input)?;
                behind_tga(&mut input)
            }
            _ => Ok(Left::default()),
        }
    })();
    found.unwrap_or_default()
}

/// Alignment of pages in a TIFF, in bytes. Fewer zeros than that at the end belong to the file.
const TIFF_ALIGNMENT: usize = 16;

fn fill(input: &mut impl Read, start: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while let read @ 1.. = input.read(&mut start[length..])? {
        length += read;
    }
    Ok(length)
}

/// Names all data up to the end of the input.
fn behind(input: &mut Input, kind: Kind) -> io::Result<Left> {
    let mut left = Left::default();
    loop {
        left.zeros(pass_padding(input, kind)?);
        let start = input.position();
        let Some(next) = next_part(input)? else {
            left.unknown(input.position() - start + input.drain()?);
            return Ok(left);
        };
        left.frames |= next == kind && next.ends_itself();
        left.part(next, input.position() - start);
    }
}

/// Skips a picture or a video, if one begins here. If the data only looks like one, the input may
/// have moved all the same.
fn next_part(input: &mut Input) -> io::Result<Option<Kind>> {
    let Some(kind) = Kind::next(input)?.filter(|kind| kind.format().walk.is_some()) else {
        return Ok(None);
    };
    Ok(kind.walk(input).is_ok().then_some(kind))
}

/// The signature at the end of a TGA of version 2. The areas lie between the pixels and this
/// signature.
const TGA_FOOTER: &[u8] = b"TRUEVISION-XFILE.\0";

/// Maximum size of a TGA's areas to search for the footer, in bytes.
const MAX_AREAS: u64 = 64 << 20;

fn behind_tga(input: &mut Input) -> io::Result<Left> {
    let mut rest = Vec::new();
    input.by_ref().take(MAX_AREAS).read_to_end(&mut rest)?;
    let end = memchr::memmem::rfind(&rest, TGA_FOOTER).map_or(0, |at| at + TGA_FOOTER.len());
    let mut left = behind(&mut Input::of_file(io::Cursor::new(rest.split_off(end)))?, Kind::Tiff)?;
    left.unknown(input.drain()?);
    Ok(left)
}

#[cfg(test)]
mod tests {
    use apron::{Image, Scalar};

    use super::*;
    use crate::codec::options::Writing;
    use crate::formats::{FORMATS, FileFormat};
    use crate::picture::{Document, Picture, Pixels};

    /// A file of any picture in this format.
    fn file(format: &FileFormat) -> Vec<u8> {
        let (width, height) = (19, 7);
        for channels in [3, 1, 4] {
            let count = width * height * channels;
            let values = || (0..count).map(|i| (i * 37 % 251) as u16);
            let image = |scalar| match scalar {
                Scalar::U8 => {
                    Image::from_vec(values().map(|v| v as u8).collect(), width, height, channels)
                        .map(Pixels::U8)
                }
                Scalar::U16 => {
                    Image::from_vec(values().collect(), width, height, channels).map(Pixels::U16)
                }
                _ => Image::from_vec(values().map(f32::from).collect(), width, height, channels)
                    .map(Pixels::F32),
            };
            let mut scalars = [Scalar::U8, Scalar::U16, Scalar::F32].into_iter();
            if let Some(scalar) = scalars.find(|&scalar| (format.holds)(scalar, channels)) {
                let picture = Picture::new(image(scalar).unwrap());
                let mut out = io::Cursor::new(Vec::new());
                format.write(&Document::from(picture), &mut out, &Writing::default()).unwrap();
                return out.into_inner();
            }
        }
        panic!("{} holds nothing", format.name());
    }

    #[test]
    fn formats_end_where_their_pictures_do() {
        for format in FORMATS {
            let file = file(format);
            let kind = Kind::next(&mut &file[..]).unwrap();
            assert_eq!(kind.is_some_and(Kind::ends_itself), format.follows(), "{}", format.name());
            let Some(kind) = kind.filter(|kind| kind.ends_itself()) else { continue };
            for behind in [&b""[..], b"\0\0", b"P5 something else", &file] {
                let all = [&file[..], behind].concat();
                let pipe = Input::of_pipe(Box::new(io::Cursor::new(all.clone()))).0;
                for mut input in [Input::of_file(io::Cursor::new(all.clone())).unwrap(), pipe] {
                    kind.walk(&mut input).unwrap();
                    assert_eq!(input.position(), file.len() as u64, "{}", format.name());
                }
            }
            for length in 0..file.len() {
                let error = kind.walk(&mut &file[..length]).unwrap_err();
                assert_eq!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof,
                    "{} of {length} bytes",
                    format.name()
                );
            }
        }
    }

    #[test]
    fn damaged_files_are_walked_to_some_end() {
        for format in FORMATS {
            let file = file(format);
            for at in 0..file.len().min(200) {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut damaged = file.clone();
                    damaged[at] = value;
                    left_over(io::Cursor::new(damaged), Some(format.name()));
                }
            }
        }
    }
}
