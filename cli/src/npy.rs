//! NumPy's `.npy` files, read and written as pictures and as taps.
//!
//! A header is a line of Python, `{'descr': '<f4', 'fortran_order': False, 'shape': (480, 640, 3), }`, and values follow
//! it. The parser reads only what that line needs and does not recurse. Memory grows with the values that arrive, not with the
//! size that the header claims.

use std::io::{self, BufRead, Read, Write};

use apron::{Filter, Image};
use bytemuck::Pod;
use half::f16;

use crate::limits::Limits;
use crate::picture::{Picture, Pixels, each};

type Result<T, E = String> = std::result::Result<T, E>;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The longest header to read, in bytes: many times what an array of numbers needs.
const MAX_HEADER: usize = 10_000;

/// Whether the file begins as a `.npy` file does.
pub(crate) fn is_npy(reader: &mut impl BufRead) -> io::Result<bool> {
    Ok(reader.fill_buf()?.starts_with(MAGIC))
}

/// What a header says.
#[derive(Debug, PartialEq)]
struct Header {
    /// The type without its byte order, such as `f4`.
    kind: String,
    /// Whether the byte order differs from this machine's.
    swapped: bool,
    /// Whether the first index varies fastest.
    fortran: bool,
    shape: Vec<usize>,
}

/// A type of values, as NumPy calls it.
trait Value: Pod {
    const KIND: &'static str;
}

impl Value for u8 {
    const KIND: &'static str = "u1";
}
impl Value for u16 {
    const KIND: &'static str = "u2";
}
impl Value for f16 {
    const KIND: &'static str = "f2";
}
impl Value for f32 {
    const KIND: &'static str = "f4";
}
impl Value for f64 {
    const KIND: &'static str = "f8";
}

/// Reads an array of `height x width` or `height x width x channels`.
pub(crate) fn read_picture(reader: &mut impl Read, limits: &Limits) -> Result<Picture> {
    let header = Header::read(reader)?;
    let (height, width, channels, channel_axis) = match *header.shape {
        [height, width] => (height, width, 1, false),
        [height, width, channels @ 1..=4] => (height, width, channels, true),
        _ => {
            return Err(format!(
                "an array of shape {} is not a picture: height x width, or height x width x channels with 1 to 4 channels",
                header.shape_text()
            ));
        }
    };
    let extents = (width, height, channels);
    let pixels = match &*header.kind {
        "u1" => Pixels::U8(image(&header, reader, extents, limits)?),
        "u2" => Pixels::U16(image(&header, reader, extents, limits)?),
        "f2" => Pixels::F16(image(&header, reader, extents, limits)?),
        "f4" => Pixels::F32(image(&header, reader, extents, limits)?),
        other => {
            return Err(format!(
                "pixels of type {other} are not supported; convert them to u1, u2, f2 or f4, as with .astype(\"f4\")"
            ));
        }
    };
    Ok(Picture { channel_axis, ..Picture::new(pixels) })
}

fn image<P: Pod + apron::Pixel>(
    header: &Header,
    reader: &mut impl Read,
    (width, height, channels): (usize, usize, usize),
    limits: &Limits,
) -> Result<Image<P>> {
    limits.check(width as u64, height as u64, channels as u64 * P::SCALAR.bytes() as u64)?;
    let values = header.values(reader)?;
    Image::from_vec(values, width, height, channels).map_err(|error| error.to_string())
}

/// Reads taps: an array of rows and columns, or one row.
pub(crate) fn read_taps(reader: &mut impl Read) -> Result<Filter> {
    let header = Header::read(reader)?;
    let (rows, cols) = match *header.shape {
        [rows, cols] => (rows, cols),
        [cols] => (1, cols),
        _ => return Err(format!("an array of shape {} is no table of taps: rows x columns", header.shape_text())),
    };
    if rows > Filter::MAX_EXTENT || cols > Filter::MAX_EXTENT {
        return Err(format!("{cols}x{rows} taps, at most {0}x{0} are possible", Filter::MAX_EXTENT));
    }
    let taps: Vec<f64> = match &*header.kind {
        "u1" => header.values::<u8>(reader)?.into_iter().map(f64::from).collect(),
        "u2" => header.values::<u16>(reader)?.into_iter().map(f64::from).collect(),
        "u4" => header.values::<u32>(reader)?.into_iter().map(f64::from).collect(),
        "u8" => header.values::<u64>(reader)?.into_iter().map(|tap| tap as f64).collect(),
        "i1" => header.values::<i8>(reader)?.into_iter().map(f64::from).collect(),
        "i2" => header.values::<i16>(reader)?.into_iter().map(f64::from).collect(),
        "i4" => header.values::<i32>(reader)?.into_iter().map(f64::from).collect(),
        "i8" => header.values::<i64>(reader)?.into_iter().map(|tap| tap as f64).collect(),
        "f2" => header.values::<f16>(reader)?.into_iter().map(f64::from).collect(),
        "f4" => header.values::<f32>(reader)?.into_iter().map(f64::from).collect(),
        "f8" => header.values(reader)?,
        other => return Err(format!("taps of type {other} are not supported; convert them to f8")),
    };
    Filter::from_taps_f64(cols, rows, &taps).map_err(|error| error.to_string())
}

/// Writes a picture as an array of its own type, in this machine's byte order.
pub(crate) fn write_picture(writer: &mut (impl Write + ?Sized), picture: &Picture) -> io::Result<()> {
    each!(&picture.pixels, image => {
        let shape = image.shape();
        let (height, width) = (shape.height, shape.width);
        if shape.channels == 1 && !picture.channel_axis {
            write(writer, &[height, width], image.as_slice())
        } else {
            write(writer, &[height, width, shape.channels], image.as_slice())
        }
    })
}

/// Writes taps as rows and columns of f8.
pub(crate) fn write_taps(writer: &mut (impl Write + ?Sized), filter: &Filter) -> io::Result<()> {
    write_header::<f64>(writer, &[filter.rows(), filter.cols()])?;
    for row in 0..filter.rows() {
        for col in 0..filter.cols() {
            writer.write_all(&filter.tap(row, col).to_ne_bytes())?;
        }
    }
    Ok(())
}

fn write<V: Value>(writer: &mut (impl Write + ?Sized), shape: &[usize], values: &[V]) -> io::Result<()> {
    write_header::<V>(writer, shape)?;
    writer.write_all(bytemuck::cast_slice(values))
}

fn write_header<V: Value>(writer: &mut (impl Write + ?Sized), shape: &[usize]) -> io::Result<()> {
    let order = match (size_of::<V>(), cfg!(target_endian = "big")) {
        (1, _) => '|',
        (_, true) => '>',
        (_, false) => '<',
    };
    let mut line =
        format!("{{'descr': '{order}{}', 'fortran_order': False, 'shape': {}, }}", V::KIND, shape_text(shape));
    // Magic, version and length take 10 bytes; the values begin at a multiple of 64.
    let len = (10 + line.len() + 1).next_multiple_of(64) - 10;
    line.extend(std::iter::repeat_n(' ', len - 1 - line.len()));
    line.push('\n');
    writer.write_all(MAGIC)?;
    writer.write_all(&[1, 0])?;
    writer.write_all(&(len as u16).to_le_bytes())?;
    writer.write_all(line.as_bytes())
}

/// As Python writes a tuple.
fn shape_text(shape: &[usize]) -> String {
    let extents: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("({}{})", extents.join(", "), if shape.len() == 1 { "," } else { "" })
}

impl Header {
    fn read(reader: &mut impl Read) -> Result<Self> {
        let mut start = [0; 8];
        fill(reader, &mut start)?;
        if &start[..6] != MAGIC {
            return Err("not a .npy file".to_owned());
        }
        let len = match start[6] {
            1 => {
                let mut len = [0; 2];
                fill(reader, &mut len)?;
                usize::from(u16::from_le_bytes(len))
            }
            2 | 3 => {
                let mut len = [0; 4];
                fill(reader, &mut len)?;
                u32::from_le_bytes(len) as usize
            }
            version => return Err(format!("version {version} of .npy is not supported, only 1 to 3 are")),
        };
        if len > MAX_HEADER {
            return Err(format!("a .npy header of {len} bytes is more than an array of numbers needs"));
        }
        let mut line = vec![0; len];
        fill(reader, &mut line)?;
        let line = std::str::from_utf8(&line).map_err(|_| "the .npy header is not text".to_owned())?;
        Self::parse(line).ok_or_else(|| {
            format!(
                "the .npy header is not that of an array of numbers: {:?}",
                line.trim().get(..200).unwrap_or(line.trim())
            )
        })
    }

    /// Reads a dictionary with the three keys that NumPy writes.
    fn parse(line: &str) -> Option<Self> {
        let mut rest = line.trim().strip_prefix('{')?;
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        loop {
            rest = rest.trim_start();
            if rest == "}" {
                break;
            }
            let (key, after) = quoted(rest)?;
            let value = after.trim_start().strip_prefix(':')?.trim_start();
            let after = match key {
                "descr" => {
                    let (text, after) = quoted(value)?;
                    descr = Some(text);
                    after
                }
                "fortran_order" => {
                    fortran = Some(value.starts_with("True"));
                    value.strip_prefix("True").or_else(|| value.strip_prefix("False"))?
                }
                "shape" => {
                    let (extents, after) = value.strip_prefix('(')?.split_once(')')?;
                    shape = Some(tuple(extents)?);
                    after
                }
                _ => return None,
            };
            rest = after.trim_start();
            rest = rest.strip_prefix(',').or((rest == "}").then_some(rest))?;
        }
        let descr = descr?;
        let kind = descr.trim_start_matches(['<', '>', '=', '|']);
        let big_endian = match descr.strip_suffix(kind)? {
            ">" => true,
            "<" => false,
            "=" | "|" | "" => cfg!(target_endian = "big"),
            _ => return None,
        };
        Some(Self {
            kind: kind.to_owned(),
            swapped: big_endian != cfg!(target_endian = "big"),
            fortran: fortran?,
            shape: shape?,
        })
    }

    fn shape_text(&self) -> String {
        shape_text(&self.shape)
    }

    /// All values; the last index varies fastest.
    fn values<P: Pod>(&self, reader: &mut impl Read) -> Result<Vec<P>> {
        let too_many = || format!("an array of shape {} does not fit in memory", self.shape_text());
        let total = self.shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent)).ok_or_else(too_many)?;
        let mut values: Vec<P> = Vec::new();
        while values.len() < total {
            let start = values.len();
            let end = total.min(start + (4 << 20) / size_of::<P>());
            values.try_reserve(end - start).map_err(|_| too_many())?;
            values.resize(end, P::zeroed());
            let bytes = bytemuck::cast_slice_mut::<P, u8>(&mut values[start..]);
            fill(reader, bytes)?;
            if self.swapped {
                bytes.chunks_exact_mut(size_of::<P>()).for_each(<[u8]>::reverse);
            }
        }
        if self.fortran { self.transposed(&values).ok_or_else(too_many) } else { Ok(values) }
    }

    /// Reorders values whose first index varies fastest, so that the last one does.
    fn transposed<P: Pod>(&self, values: &[P]) -> Option<Vec<P>> {
        let mut extents = [1; 3];
        extents[..self.shape.len()].copy_from_slice(&self.shape);
        let [first, second, third] = extents;
        let mut result = Vec::new();
        result.try_reserve_exact(values.len()).ok()?;
        for i in 0..first {
            for j in 0..second {
                result.extend((0..third).map(|k| values[i + first * (j + second * k)]));
            }
        }
        Some(result)
    }
}

fn fill(reader: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    reader.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => "the .npy file ends too early".to_owned(),
        _ => error.to_string(),
    })
}

/// A quoted string without escapes, and the text after it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// Whole numbers between commas; a comma may follow the last one. Python 2 appended an L to each.
fn tuple(text: &str) -> Option<Vec<usize>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    let number = |part: &str| part.trim().trim_end_matches('L').parse().ok();
    text.strip_suffix(',').unwrap_or(text).split(',').map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_pixels: 1 << 28, max_bytes: 1 << 29 };

    fn file(version: u8, line: &str, values: &[u8]) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend([version, 0]);
        if version == 1 {
            file.extend((line.len() as u16).to_le_bytes());
        } else {
            file.extend((line.len() as u32).to_le_bytes());
        }
        file.extend(line.as_bytes());
        file.extend(values);
        file
    }

    fn read(bytes: &[u8]) -> Result<Picture> {
        read_picture(&mut &bytes[..], &LIMITS)
    }

    fn written(picture: &Picture) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_picture(&mut bytes, picture).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (width, height, channels) in [(1, 1, 1), (5, 3, 1), (3, 5, 2), (7, 2, 3), (2, 7, 4), (300, 200, 3)] {
            let n = width * height * channels;
            let pixels = [
                Pixels::U8(Image::from_vec((0..n).map(|i| i as u8).collect(), width, height, channels).unwrap()),
                Pixels::U16(
                    Image::from_vec((0..n).map(|i| (i % 9000) as u16 * 7).collect(), width, height, channels).unwrap(),
                ),
                Pixels::F16(
                    Image::from_vec((0..n).map(|i| f16::from_f32(i as f32)).collect(), width, height, channels)
                        .unwrap(),
                ),
                Pixels::F32(
                    Image::from_vec((0..n).map(|i| i as f32 / -3.0).collect(), width, height, channels).unwrap(),
                ),
            ];
            for pixels in pixels {
                for channel_axis in [false, true] {
                    let picture =
                        Picture { channel_axis: channel_axis || channels > 1, ..Picture::new(pixels.clone()) };
                    let bytes = written(&picture);
                    assert_eq!((bytes.len() - n * picture.pixels.scalar().bytes()) % 64, 0);
                    assert_eq!(read(&bytes).unwrap(), picture);
                }
            }
        }
    }

    #[test]
    fn the_header_is_numpys() {
        let pixels = Image::from_vec(vec![1.5f32, -2.0], 2, 1, 1).unwrap();
        let bytes = written(&Picture::new(Pixels::F32(pixels)));
        // numpy.save of numpy.array([[1.5, -2.0]], "f4").
        let mut expected =
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }".to_vec();
        expected.extend([b' '; 58]);
        expected.extend(b"\n\0\0\xc0?\0\0\0\xc0");
        if cfg!(target_endian = "little") {
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn every_byte_order_and_version() {
        let line = |descr: &str| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1, 2), }}\n");
        for version in 1..=3 {
            for (descr, values) in [("<u2", [1, 2, 3, 4]), (">u2", [2, 1, 4, 3])] {
                let picture = read(&file(version, &line(descr), &values)).unwrap();
                assert_eq!(picture.pixels, Pixels::U16(Image::from_vec(vec![0x201, 0x403], 2, 1, 1).unwrap()));
            }
            let values = [0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0];
            let picture = read(&file(version, &line(">f4"), &values)).unwrap();
            assert_eq!(picture.pixels, Pixels::F32(Image::from_vec(vec![1.0, -2.0], 2, 1, 1).unwrap()));
        }
    }

    #[test]
    fn headers_of_other_writers() {
        let header = |line| Header::parse(line).unwrap();
        let plain = header("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }          \n");
        assert_eq!(plain.shape, [2, 3]);
        assert_eq!(header("{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"|u1\"}"), plain);
        assert_eq!(header("{ 'shape' : ( 2L , 3L ) , 'descr' : 'u1' , 'fortran_order' : False }"), plain);
        assert_eq!(header("{'descr': 'f8', 'fortran_order': True, 'shape': (7,)}").shape, [7]);
        assert_eq!(header("{'descr': 'f8', 'fortran_order': True, 'shape': ()}").shape, [0usize; 0]);
    }

    #[test]
    fn fortran_order_is_turned() {
        let line = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 2), }\n";
        // numpy.arange(12).reshape(2, 3, 2), first index fastest.
        let picture = read(&file(1, line, &[0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11])).unwrap();
        assert_eq!(picture.pixels, Pixels::U8(Image::from_vec((0..12).collect(), 3, 2, 2).unwrap()));
        let line = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n";
        let picture = read(&file(1, line, &[0, 3, 1, 4, 2, 5])).unwrap();
        assert_eq!(picture.pixels, Pixels::U8(Image::from_vec((0..6).collect(), 3, 2, 1).unwrap()));
    }

    #[test]
    fn taps_of_every_type() {
        let line = |descr: &str| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1, 2), }}\n");
        let expected = Filter::from_taps(2, 1, &[1.0, 2.0]).unwrap();
        let cases: &[(&str, &[u8])] = &[
            ("|u1", &[1, 2]),
            ("|i1", &[1, 2]),
            ("<i2", &[1, 0, 2, 0]),
            (">u4", &[0, 0, 0, 1, 0, 0, 0, 2]),
            ("<i8", &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]),
            (">f2", &[0x3c, 0, 0x40, 0]),
            (">f4", &[0x3f, 0x80, 0, 0, 0x40, 0, 0, 0]),
            (">f8", &[0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (descr, values) in cases {
            assert_eq!(read_taps(&mut &*file(1, &line(descr), values)).unwrap(), expected, "{descr}");
        }
        let mut bytes = Vec::new();
        let filter = Filter::from_taps(3, 2, &[0.1, 2.0, -3.0, 4.0, 5.5, 6.0]).unwrap();
        write_taps(&mut bytes, &filter).unwrap();
        assert_eq!(read_taps(&mut &*bytes).unwrap(), filter);
        let nan = [0x7f, 0xc0, 0, 0, 0, 0, 0, 0];
        assert!(read_taps(&mut &*file(1, &line(">f4"), &nan)).unwrap_err().contains("NaN"));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let pixels = Image::from_vec((0..24).map(|i| i as f32).collect(), 4, 3, 2).unwrap();
        let bytes = written(&Picture::new(Pixels::F32(pixels)));
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_err(), "{len} bytes");
        }
        read(&bytes).unwrap();
    }

    #[test]
    fn corrupt_bytes_never_panic() {
        let pixels = Image::from_vec(vec![1u8; 12], 4, 3, 1).unwrap();
        let bytes = written(&Picture::new(Pixels::U8(pixels)));
        for at in 0..128 {
            for value in 0..=255 {
                let mut corrupt = bytes.clone();
                corrupt[at] = value;
                let _ = read(&corrupt);
                let _ = read_taps(&mut &corrupt[..]);
            }
        }
    }

    #[test]
    fn sizes_are_not_believed() {
        let line =
            |descr: &str, shape: &str| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let huge = "18446744073709551615";
        for shape in [
            "(1000000, 1000000)",
            "(4294967296, 4294967296)",
            &format!("({huge}, {huge})"),
            &format!("({huge}, {huge}, 4)"),
            &format!("({huge}0, 1)"),
            "(-1, 5)",
            "(0, 5)",
            "(5, 0)",
            "(2, 2, 0)",
            "(2, 2, 5)",
            "(2, 2, 2, 2)",
            "(2,)",
            "()",
            "(2.0, 2)",
            "[2, 2]",
            "2",
        ] {
            let bytes = file(1, &line("|u1", shape), &[0; 4]);
            assert!(read(&bytes).is_err(), "{shape}");
        }
        // No limit in the way: the file's own length is one.
        let none = Limits { max_pixels: u64::MAX, max_bytes: u64::MAX };
        let bytes = file(1, &line("<f4", "(1000000, 1000000)"), &[0; 4]);
        assert!(read_picture(&mut &bytes[..], &none).unwrap_err().contains("too early"));
        let bytes = file(1, &line("<f8", &format!("({huge}, {huge})")), &[0; 4]);
        assert!(read_taps(&mut &bytes[..]).is_err());
        let bytes = file(1, &line("<f8", "(30000, 30000)"), &[0; 4]);
        assert!(read_taps(&mut &bytes[..]).unwrap_err().contains("too early"));
    }

    #[test]
    fn headers_are_not_believed() {
        let mut huge = MAGIC.to_vec();
        huge.extend([2, 0, 0xff, 0xff, 0xff, 0xff]);
        assert!(read(&huge).unwrap_err().contains("4294967295"));
        for line in [
            "",
            "{",
            "}",
            "{}",
            "{'descr': '|u1'}",
            "{'descr': '|u1', 'fortran_order': False}",
            "{'descr': '|u1', 'fortran_order': 0, 'shape': (1, 1)}",
            "{'descr': [('x', '|u1')], 'fortran_order': False, 'shape': (1, 1)}",
            "{'descr': '<>u1', 'fortran_order': False, 'shape': (1, 1)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1), 'more': 1}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1)",
            "{'descr': '|u1' 'fortran_order': False 'shape': (1, 1)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (1 1)}",
            "{é: 1}",
            "{'é",
        ] {
            assert!(read(&file(1, line, &[0])).is_err(), "{line}");
        }
        let nested = format!("{{'descr': {}", "[".repeat(9_000));
        assert!(read(&file(2, &nested, &[])).is_err());
        let message = read(&file(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1)}", &[0; 8])).unwrap_err();
        assert!(message.contains("f8") && message.contains("f4"), "{message}");
    }
}
