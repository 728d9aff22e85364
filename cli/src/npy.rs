//! NumPy's `.npy` files, read and written as pictures and as taps.
//!
//! A header is a line of Python,
//! `{'descr': '<f4', 'fortran_order': False, 'shape': (480, 640, 3), }`, and values follow it. The
//! parser reads only what that line needs and does not recurse. Memory grows with the values that
//! arrive, not with the size that the header claims.

use std::io::{self, Read, Seek, Write};

use apron::{Filter, Image, Number, Scalar, Shape};
use bytemuck::Pod;
use half::f16;

use crate::codec::io::{Source, Wide, widened};
use crate::codec::options::{Axes, Reading};
use crate::picture::{Document, Picture, Pixels, Stored, each};

type Result<T, E = String> = std::result::Result<T, E>;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The longest header to read, in bytes: many times what an array of numbers needs.
const MAX_HEADER: usize = 10_000;

const TOO_EARLY: &str = "the .npy file ends too early";

/// Whether a file with these first bytes is a `.npy` file.
pub(crate) fn is_npy(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}

/// A parsed header.
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

/// Reads the slices of an array as pictures, or the slice that `--page` asks for.
pub(crate) fn read_document(source: &mut dyn Source, options: &Reading) -> Result<Document> {
    let mut reader = io::BufReader::new(source);
    let mut header = Header::read(&mut reader)?;
    let axes = header.axes(options.axes)?;
    let slice_axis = matches!(axes, Axes::Zyx | Axes::Zyxc);
    if slice_axis && let Some(page) = options.page {
        let slices = header.shape[0];
        if page as usize > slices {
            return Err(format!("there is no slice {page}: the array has {slices}"));
        }
        header.skip_to(&mut reader, page as usize - 1)?;
    } else if !slice_axis && options.page.is_some_and(|page| page > 1) {
        return Err(format!("there are no slices in an array of shape {}", header.shape_text()));
    }
    let stack = slice_axis && options.page.is_none();
    let (slices, rest) =
        if stack { (header.shape[0], &header.shape[1..]) } else { (1, &header.shape[..]) };
    let (height, width, channels) = match *rest {
        [height, width] => (height, width, 1),
        [height, width, channels] => (height, width, channels),
        _ => return Err(format!("an array of shape {} is not a picture", header.shape_text())),
    };
    let extents = Extents { slices, width, height, channels };
    let (pages, stored) = match &*header.kind {
        "u1" => (extents.pages::<u8>(&header, &mut reader, options)?, None),
        "u2" => (extents.pages::<u16>(&header, &mut reader, options)?, None),
        "f2" => (extents.pages::<f16>(&header, &mut reader, options)?, None),
        "f4" => (extents.pages::<f32>(&header, &mut reader, options)?, None),
        "b1" => {
            let (pages, short) = extents.values::<u8>(&header, &mut reader, options)?;
            let values = pages.iter().map(|&value| f64::from(u8::from(value != 0))).collect();
            ((extents.cut(values)?, short), Some(Stored::Bool))
        }
        "i1" => extents.widened::<i8>(&header, &mut reader, options)?,
        "i2" => extents.widened::<i16>(&header, &mut reader, options)?,
        "i4" => extents.widened::<i32>(&header, &mut reader, options)?,
        "i8" => extents.widened::<i64>(&header, &mut reader, options)?,
        "u4" => extents.widened::<u32>(&header, &mut reader, options)?,
        "u8" => extents.widened::<u64>(&header, &mut reader, options)?,
        "f8" => extents.widened::<f64>(&header, &mut reader, options)?,
        other => {
            return Err(format!(
                "values of type {other} are not supported; convert them to f4, as with .astype(\"f4\")"
            ));
        }
    };
    let (pages, short) = pages;
    let channel_axis = matches!(axes, Axes::Yxc | Axes::Zyxc);
    let pages = pages
        .into_iter()
        .map(|pixels| Picture { channel_axis, stored, ..Picture::new(pixels) })
        .collect();
    let mut document = Document { slice_axis: stack, ..Document::of(pages) };
    document
        .notes
        .extend(short.then(|| "the .npy file ends too early; the missing values are 0".to_owned()));
    Ok(document)
}

/// An array whose rows lie in the file in memory order.
pub(crate) struct Rows {
    pub(crate) shape: Shape,
    pub(crate) scalar: Scalar,
    /// Whether the byte order differs from this machine's.
    pub(crate) swapped: bool,
    /// Whether the channels have an axis of their own.
    pub(crate) channel_axis: bool,
}

/// Reads a header, up to the first value. Returns `None` for anything but one picture of a pixel
/// type in C order.
pub(crate) fn rows(reader: &mut impl Read, axes: Option<Axes>) -> Option<Rows> {
    let header = Header::read(reader).ok()?;
    let channel_axis = match header.axes(axes).ok()? {
        Axes::Yx => false,
        Axes::Yxc => true,
        Axes::Zyx | Axes::Zyxc => return None,
    };
    let scalar = *Scalar::ALL.iter().find(|scalar| scalar.numpy() == header.kind)?;
    let shape = match *header.shape {
        [height, width] => Shape { width, height, channels: 1 },
        [height, width, channels] => Shape { width, height, channels },
        _ => return None,
    };
    // For other shapes, `read_document` reports the error.
    let is_picture =
        shape.width.checked_mul(shape.channels).is_some_and(|row| (1..1 << 29).contains(&row));
    (!header.fortran && is_picture && shape.height > 0).then_some(Rows {
        shape,
        scalar,
        swapped: header.swapped,
        channel_axis,
    })
}

/// Writes the header of a picture whose rows the caller writes next.
pub(crate) fn write_rows_header(
    writer: &mut (impl Write + ?Sized),
    scalar: Scalar,
    shape: Shape,
    channel_axis: bool,
) -> io::Result<()> {
    let extents = [shape.height, shape.width, shape.channels];
    write_header(writer, scalar.numpy(), &extents[..if channel_axis { 3 } else { 2 }])
}

/// Reads a header, up to the first value. Returns the size of all values in bytes.
///
/// # Errors
/// `UnexpectedEof` if the input ends in the header, `InvalidData` if the header is damaged or names
/// a type without a size.
pub(crate) fn value_bytes(reader: &mut impl Read) -> io::Result<u64> {
    let wrong = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let header = Header::read(reader).map_err(|reason| match &*reason {
        TOO_EARLY => io::ErrorKind::UnexpectedEof.into(),
        _ => wrong(reason),
    })?;
    let digits = header.kind.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
    let size: u64 = digits
        .parse()
        .map_err(|_| wrong(format!("values of type {} have no size", header.kind)))?;
    // NumPy's text has 4 bytes for each character.
    let size = if header.kind.starts_with('U') { size.saturating_mul(4) } else { size };
    Ok(header.shape.iter().fold(size, |bytes, &extent| bytes.saturating_mul(extent as u64)))
}

/// The extents of an array of pictures.
struct Extents {
    slices: usize,
    height: usize,
    width: usize,
    channels: usize,
}

/// Pixels, and whether the file ended before the last of them.
type ArrayData = (Vec<Pixels>, bool);

impl Extents {
    fn values<P: Pod>(
        &self,
        header: &Header,
        reader: &mut impl Read,
        options: &Reading,
    ) -> Result<(Vec<P>, bool)> {
        let rows = (self.height as u64).saturating_mul(self.slices as u64);
        options.limits.check(
            self.width as u64,
            rows,
            (self.channels as u64).saturating_mul(size_of::<P>() as u64),
        )?;
        header.values(reader, options.lenient).map_err(|reason| match &*reason {
            TOO_EARLY => format!("{reason}; --lenient keeps what can be read"),
            _ => reason,
        })
    }

    fn cut<P: Number>(&self, values: Vec<P>) -> Result<Vec<Pixels>>
    where
        Image<P>: Into<Pixels>,
    {
        let image = |values| {
            let image = Image::from_vec(values, self.width, self.height, self.channels);
            image.map(Into::into).map_err(|error| error.to_string())
        };
        if self.slices == 1 {
            return Ok(vec![image(values)?]);
        }
        let len = self.width * self.height * self.channels;
        if len == 0 || values.is_empty() {
            return Err("an array without values is not a picture".to_owned());
        }
        values.chunks_exact(len).map(|slice| image(slice.to_vec())).collect()
    }

    fn pages<P: Pod + apron::Pixel>(
        &self,
        header: &Header,
        reader: &mut impl Read,
        options: &Reading,
    ) -> Result<ArrayData>
    where
        Image<P>: Into<Pixels>,
    {
        let (values, short) = self.values::<P>(header, reader, options)?;
        Ok((self.cut(values)?, short))
    }

    fn widened<N: Wide>(
        &self,
        header: &Header,
        reader: &mut impl Read,
        options: &Reading,
    ) -> Result<(ArrayData, Option<Stored>)> {
        let (values, short) = self.values::<N>(header, reader, options)?;
        Ok(((self.cut(widened(&values)?)?, short), Some(N::STORED)))
    }
}

/// Reads taps: an array of rows and columns, or one row.
pub(crate) fn read_taps(reader: &mut impl Read) -> Result<Filter> {
    let header = Header::read(reader)?;
    let (rows, cols) = match *header.shape {
        [rows, cols] => (rows, cols),
        [cols] => (1, cols),
        _ => {
            return Err(format!(
                "an array of shape {} cannot be taps: rows x columns are needed",
                header.shape_text()
            ));
        }
    };
    if rows > Filter::MAX_EXTENT || cols > Filter::MAX_EXTENT {
        return Err(format!(
            "{cols}x{rows} taps, at most {0}x{0} are possible",
            Filter::MAX_EXTENT
        ));
    }
    let taps: Vec<f64> = match &*header.kind {
        "u1" => header.values::<u8>(reader, false)?.0.into_iter().map(f64::from).collect(),
        "u2" => header.values::<u16>(reader, false)?.0.into_iter().map(f64::from).collect(),
        "u4" => header.values::<u32>(reader, false)?.0.into_iter().map(f64::from).collect(),
        "u8" => header.values::<u64>(reader, false)?.0.into_iter().map(|tap| tap as f64).collect(),
        "i1" => header.values::<i8>(reader, false)?.0.into_iter().map(f64::from).collect(),
        "i2" => header.values::<i16>(reader, false)?.0.into_iter().map(f64::from).collect(),
        "i4" => header.values::<i32>(reader, false)?.0.into_iter().map(f64::from).collect(),
        "i8" => header.values::<i64>(reader, false)?.0.into_iter().map(|tap| tap as f64).collect(),
        "f2" => header.values::<f16>(reader, false)?.0.into_iter().map(f64::from).collect(),
        "f4" => header.values::<f32>(reader, false)?.0.into_iter().map(f64::from).collect(),
        "f8" => header.values(reader, false)?.0,
        other => return Err(format!("taps of type {other} are not supported; convert them to f8")),
    };
    Filter::from_taps_f64(cols, rows, &taps).map_err(|error| error.to_string())
}

/// Writes pictures of the same extents and type as one array, in this machine's byte order.
pub(crate) fn write_document(
    writer: &mut (impl Write + ?Sized),
    document: &Document,
) -> io::Result<()> {
    let first = document.first();
    let shape = first.pixels.shape();
    let mut extents = Vec::new();
    if document.slice_axis || document.pages.len() > 1 {
        extents.push(document.pages.len());
    }
    extents.extend([shape.height, shape.width]);
    if shape.channels > 1 || first.channel_axis {
        extents.push(shape.channels);
    }
    match (&first.pixels, first.stored) {
        (Pixels::F64(_), Some(stored)) => write_header(writer, stored_kind(stored), &extents)?,
        (pixels, _) => {
            each!(pixels, image => write_header(writer, kind_of(image.as_slice()), &extents))?
        }
    }
    for page in &document.pages {
        match (&page.pixels, page.stored) {
            (Pixels::F64(image), Some(stored)) => write_stored(writer, stored, image.as_slice())?,
            (pixels, _) => writer.write_all(pixels.bytes())?,
        }
    }
    Ok(())
}

fn kind_of<V: Value>(_: &[V]) -> &'static str {
    V::KIND
}

fn stored_kind(stored: Stored) -> &'static str {
    match stored {
        Stored::Bool => "b1",
        Stored::I8 => "i1",
        Stored::I16 => "i2",
        Stored::I32 => "i4",
        Stored::I64 => "i8",
        Stored::U32 => "u4",
        Stored::U64 => "u8",
        Stored::F64 => "f8",
    }
}

/// Writes values in the input's type.
fn write_stored(
    writer: &mut (impl Write + ?Sized),
    stored: Stored,
    values: &[f64],
) -> io::Result<()> {
    fn rounded<N: Wide>(writer: &mut (impl Write + ?Sized), values: &[f64]) -> io::Result<()> {
        for part in values.chunks(1 << 16) {
            let part: Vec<N> = part.iter().map(|&value| N::from_f64(value)).collect();
            writer.write_all(bytemuck::cast_slice(&part))?;
        }
        Ok(())
    }
    match stored {
        Stored::Bool => values
            .chunks(1 << 16)
            .map(|part| {
                part.iter()
                    .map(|value| u8::from(value.round_ties_even() != 0.0))
                    .collect::<Vec<_>>()
            })
            .try_for_each(|part| writer.write_all(&part)),
        Stored::I8 => rounded::<i8>(writer, values),
        Stored::I16 => rounded::<i16>(writer, values),
        Stored::I32 => rounded::<i32>(writer, values),
        Stored::I64 => rounded::<i64>(writer, values),
        Stored::U32 => rounded::<u32>(writer, values),
        Stored::U64 => rounded::<u64>(writer, values),
        Stored::F64 => rounded::<f64>(writer, values),
    }
}

/// Writes taps as rows and columns of f8.
pub(crate) fn write_taps(writer: &mut (impl Write + ?Sized), filter: &Filter) -> io::Result<()> {
    write_header(writer, f64::KIND, &[filter.rows(), filter.cols()])?;
    for row in 0..filter.rows() {
        for col in 0..filter.cols() {
            writer.write_all(&filter.tap(row, col).to_ne_bytes())?;
        }
    }
    Ok(())
}

fn write_header(writer: &mut (impl Write + ?Sized), kind: &str, shape: &[usize]) -> io::Result<()> {
    let order = match (kind.ends_with('1'), cfg!(target_endian = "big")) {
        (true, _) => '|',
        (_, true) => '>',
        (_, false) => '<',
    };
    let mut line = format!(
        "{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': {}, }}",
        shape_text(shape)
    );
    // Magic, version and length take 10 bytes; the values begin at a multiple of 64.
    let len = (10 + line.len() + 1).next_multiple_of(64) - 10;
    line.extend(std::iter::repeat_n(' ', len - 1 - line.len()));
    line.push('\n');
    writer.write_all(MAGIC)?;
    writer.write_all(&[1, 0])?;
    writer.write_all(&(len as u16).to_le_bytes())?;
    writer.write_all(line.as_bytes())
}

/// A shape as Python writes a tuple.
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
            version => {
                return Err(format!("version {version} of .npy is not supported, only 1 to 3 are"));
            }
        };
        if len > MAX_HEADER {
            return Err(format!(
                "a .npy header of {len} bytes is more than an array of numbers needs"
            ));
        }
        let mut line = vec![0; len];
        fill(reader, &mut line)?;
        let line =
            std::str::from_utf8(&line).map_err(|_| "the .npy header is not text".to_owned())?;
        Self::parse(line).ok_or_else(|| {
            format!(
                "the .npy header does not describe an array of numbers: {:?}",
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

    /// The axes that the user named, or the only axes that the shape allows.
    fn axes(&self, told: Option<Axes>) -> Result<Axes> {
        let count = |axes| match axes {
            Axes::Yx => 2,
            Axes::Yxc | Axes::Zyx => 3,
            Axes::Zyxc => 4,
        };
        match (told, &*self.shape) {
            (Some(axes), shape) if shape.len() == count(axes) => Ok(axes),
            (Some(axes), _) => Err(format!(
                "an array of shape {} does not have {} axes",
                self.shape_text(),
                count(axes)
            )),
            (None, [_, _]) => Ok(Axes::Yx),
            (None, [_, _, 1..=4]) => Ok(Axes::Yxc),
            (None, [_, _, _, 1..=4]) => Ok(Axes::Zyxc),
            (None, [_, _, _]) => Err(format!(
                "an array of shape {} is ambiguous: --axes zyx reads a stack of slices, --axes yxc a picture of many channels",
                self.shape_text()
            )),
            (None, [_, _, _, _]) => Err(format!(
                "an array of shape {} may be a stack of pictures of many channels: pass --axes zyxc to read it as one",
                self.shape_text()
            )),
            _ => Err(format!(
                "an array of shape {} is not a picture: 2 to 4 axes are needed",
                self.shape_text()
            )),
        }
    }

    /// Moves the reader to one slice. The header then describes that slice alone, without the first
    /// axis.
    fn skip_to(&mut self, reader: &mut (impl Read + Seek), slice: usize) -> Result<()> {
        let too_far = || TOO_EARLY.to_owned();
        if self.fortran {
            // In Fortran order, the values of all slices are interleaved.
            return Err(
                "a slice of an array in Fortran order cannot be read alone; leave --page out"
                    .to_owned(),
            );
        }
        let bytes = match &*self.kind {
            "b1" | "u1" | "i1" => 1,
            "u2" | "i2" | "f2" => 2,
            "u4" | "i4" | "f4" => 4,
            _ => 8,
        };
        let len = self.shape[1..]
            .iter()
            .try_fold(bytes, |n: usize, &extent| n.checked_mul(extent))
            .ok_or_else(too_far)?;
        let offset = len
            .checked_mul(slice)
            .and_then(|offset| i64::try_from(offset).ok())
            .ok_or_else(too_far)?;
        reader.seek(io::SeekFrom::Current(offset)).map_err(|error| error.to_string())?;
        self.shape.remove(0);
        Ok(())
    }

    /// Reads all values, so that the last index varies fastest. If the file ends early and
    /// `lenient` is set, missing values are 0 and the returned flag is true.
    fn values<P: Pod>(&self, reader: &mut impl Read, lenient: bool) -> Result<(Vec<P>, bool)> {
        let too_many = || format!("an array of shape {} does not fit in memory", self.shape_text());
        let total = self
            .shape
            .iter()
            .try_fold(1usize, |n, &extent| n.checked_mul(extent))
            .ok_or_else(too_many)?;
        let mut values: Vec<P> = Vec::new();
        let mut short = false;
        while values.len() < total {
            let start = values.len();
            let end = total.min(start + (4 << 20) / size_of::<P>());
            values.try_reserve(end - start).map_err(|_| too_many())?;
            values.resize(end, P::zeroed());
            let bytes = bytemuck::cast_slice_mut::<P, u8>(&mut values[start..]);
            match fill(reader, bytes) {
                Err(reason) if !(lenient && reason == TOO_EARLY) => return Err(reason),
                filled => short |= filled.is_err(),
            }
            if self.swapped {
                bytes.chunks_exact_mut(size_of::<P>()).for_each(<[u8]>::reverse);
            }
        }
        let values =
            if self.fortran { self.transposed(&values).ok_or_else(too_many)? } else { values };
        Ok((values, short))
    }

    /// Reorders values from Fortran order to C order.
    fn transposed<P: Pod>(&self, values: &[P]) -> Option<Vec<P>> {
        let mut extents = [1; 4];
        extents.get_mut(..self.shape.len())?.copy_from_slice(&self.shape);
        let [first, second, third, fourth] = extents;
        let mut result = Vec::new();
        result.try_reserve_exact(values.len()).ok()?;
        for i in 0..first {
            for j in 0..second {
                for k in 0..third {
                    result.extend(
                        (0..fourth).map(|l| values[i + first * (j + second * (k + third * l))]),
                    );
                }
            }
        }
        Some(result)
    }
}

fn fill(reader: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    reader.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => TOO_EARLY.to_owned(),
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
    use crate::limits::Limits;

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

    fn read_as(bytes: &[u8], options: &Reading) -> Result<Document> {
        read_document(&mut io::Cursor::new(bytes), options)
    }

    fn read(bytes: &[u8]) -> Result<Picture> {
        read_as(bytes, &Reading::default()).map(|mut document| document.pages.remove(0))
    }

    fn written(picture: &Picture) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_document(&mut bytes, &picture.clone().into()).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (width, height, channels) in
            [(1, 1, 1), (5, 3, 1), (3, 5, 2), (7, 2, 3), (2, 7, 4), (300, 200, 3)]
        {
            let n = width * height * channels;
            let pixels = [
                Pixels::U8(
                    Image::from_vec((0..n).map(|i| i as u8).collect(), width, height, channels)
                        .unwrap(),
                ),
                Pixels::U16(
                    Image::from_vec(
                        (0..n).map(|i| (i % 9000) as u16 * 7).collect(),
                        width,
                        height,
                        channels,
                    )
                    .unwrap(),
                ),
                Pixels::F16(
                    Image::from_vec(
                        (0..n).map(|i| f16::from_f32(i as f32)).collect(),
                        width,
                        height,
                        channels,
                    )
                    .unwrap(),
                ),
                Pixels::F32(
                    Image::from_vec(
                        (0..n).map(|i| i as f32 / -3.0).collect(),
                        width,
                        height,
                        channels,
                    )
                    .unwrap(),
                ),
            ];
            for pixels in pixels {
                for channel_axis in [false, true] {
                    let picture = Picture {
                        channel_axis: channel_axis || channels > 1,
                        ..Picture::new(pixels.clone())
                    };
                    let bytes = written(&picture);
                    assert_eq!((bytes.len() - n * picture.pixels.scalar().bytes()) % 64, 0);
                    assert_eq!(read(&bytes).unwrap(), picture);
                }
            }
        }
    }

    #[test]
    fn stacks_and_many_channels() {
        let line = |shape: &str| {
            format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n")
        };
        let values: Vec<u8> = (0..60).collect();
        let told = |axes| Reading { axes: Some(axes), ..Reading::default() };
        // A third axis of 5 may hold channels, or the columns of slices.
        let bytes = file(1, &line("(3, 4, 5)"), &values);
        let message = read(&bytes).unwrap_err();
        assert!(message.contains("--axes zyx") && message.contains("--axes yxc"), "{message}");
        let picture = read_as(&bytes, &told(Axes::Yxc)).unwrap();
        assert_eq!(
            picture.first().pixels,
            Pixels::U8(Image::from_vec(values.clone(), 4, 3, 5).unwrap())
        );
        let stack = read_as(&bytes, &told(Axes::Zyx)).unwrap();
        assert_eq!(stack.pages.len(), 3);
        let slice = |index: usize| {
            Pixels::U8(Image::from_vec(values[index * 20..][..20].to_vec(), 5, 4, 1).unwrap())
        };
        assert!(stack.pages.iter().enumerate().all(|(index, page)| page.pixels == slice(index)));
        for document in [&picture, &stack] {
            let mut again = Vec::new();
            write_document(&mut again, document).unwrap();
            assert!(
                String::from_utf8_lossy(&again).contains("(3, 4, 5)") && again.ends_with(&values)
            );
        }
        let one = read_as(&bytes, &Reading { page: Some(2), ..told(Axes::Zyx) }).unwrap();
        assert_eq!((one.pages.len(), one.slice_axis, &one.first().pixels), (1, false, &slice(1)));
        let message = read_as(&bytes, &Reading { page: Some(4), ..told(Axes::Zyx) }).unwrap_err();
        assert!(message.contains("no slice 4"), "{message}");
        let colours =
            read_as(&file(1, &line("(5, 2, 2, 3)"), &values), &Reading::default()).unwrap();
        assert_eq!((colours.pages.len(), colours.first().pixels.shape().channels), (5, 3));
        // Fortran order of four axes.
        let turned = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 1, 2, 3), }\n";
        let stack =
            read_as(&file(1, turned, &[0, 6, 3, 9, 1, 7, 4, 10, 2, 8, 5, 11]), &Reading::default())
                .unwrap();
        assert_eq!(
            stack.pages[1].pixels,
            Pixels::U8(Image::from_vec((6..12).collect(), 2, 1, 3).unwrap())
        );
    }

    #[test]
    fn wide_types_are_read_as_f64() {
        let line = |descr: &str| {
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1, 2), }}\n")
        };
        let cases: &[(&str, Stored, &[u8])] = &[
            ("|b1", Stored::Bool, &[0, 1]),
            ("|i1", Stored::I8, &[0, 1]),
            ("<i2", Stored::I16, &[0, 0, 1, 0]),
            (">i4", Stored::I32, &[0, 0, 0, 0, 0, 0, 0, 1]),
            ("<u4", Stored::U32, &[0, 0, 0, 0, 1, 0, 0, 0]),
            ("<i8", Stored::I64, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
            ("<u8", Stored::U64, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
            (">f8", Stored::F64, &[0, 0, 0, 0, 0, 0, 0, 0, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0]),
        ];
        for (descr, stored, values) in cases {
            let picture = read(&file(1, &line(descr), values)).unwrap();
            assert_eq!(
                picture.pixels,
                Pixels::F64(Image::from_vec(vec![0.0, 1.0], 2, 1, 1).unwrap()),
                "{descr}"
            );
            assert_eq!(picture.stored, Some(*stored));
            assert_eq!(read(&written(&picture)).unwrap(), picture);
        }
        // The last integers that f64 holds exactly, and the first beyond them.
        for (descr, end) in [("<u8", 1 << 53), ("<i8", 1 << 53), ("<i8", -(1i64 << 53))] {
            let values = |end: i64| [end.to_le_bytes(), 3i64.to_le_bytes()].concat();
            let found = read(&file(1, &line(descr), &values(end))).unwrap().pixels;
            assert_eq!(
                found,
                Pixels::F64(Image::from_vec(vec![end as f64, 3.0], 2, 1, 1).unwrap()),
                "{descr}"
            );
            let beyond = end + end.signum();
            let message = read(&file(1, &line(descr), &values(beyond))).unwrap_err();
            assert!(
                message.contains(&beyond.to_string()) && message.contains("9007199254740992"),
                "{message}"
            );
            assert!(message.contains("convert"), "{message}");
        }
        // Rounded half to even, and saturated.
        let pixels = Pixels::F64(Image::from_vec(vec![2.5, -1e9], 2, 1, 1).unwrap());
        let bytes = written(&Picture { stored: Some(Stored::I16), ..Picture::new(pixels) });
        assert!(bytes.ends_with(&[2, 0, 0, 0x80]));
    }

    #[test]
    fn the_header_is_numpys() {
        let pixels = Image::from_vec(vec![1.5f32, -2.0], 2, 1, 1).unwrap();
        let bytes = written(&Picture::new(Pixels::F32(pixels)));
        // numpy.save of numpy.array([[1.5, -2.0]], "f4").
        let mut expected =
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }"
                .to_vec();
        expected.extend([b' '; 58]);
        expected.extend(b"\n\0\0\xc0?\0\0\0\xc0");
        if cfg!(target_endian = "little") {
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn every_byte_order_and_version() {
        let line = |descr: &str| {
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1, 2), }}\n")
        };
        for version in 1..=3 {
            for (descr, values) in [("<u2", [1, 2, 3, 4]), (">u2", [2, 1, 4, 3])] {
                let picture = read(&file(version, &line(descr), &values)).unwrap();
                assert_eq!(
                    picture.pixels,
                    Pixels::U16(Image::from_vec(vec![0x201, 0x403], 2, 1, 1).unwrap())
                );
            }
            let values = [0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0];
            let picture = read(&file(version, &line(">f4"), &values)).unwrap();
            assert_eq!(
                picture.pixels,
                Pixels::F32(Image::from_vec(vec![1.0, -2.0], 2, 1, 1).unwrap())
            );
        }
    }

    #[test]
    fn headers_of_other_writers() {
        let header = |line| Header::parse(line).unwrap();
        let plain =
            header("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }          \n");
        assert_eq!(plain.shape, [2, 3]);
        assert_eq!(header("{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"|u1\"}"), plain);
        assert_eq!(
            header("{ 'shape' : ( 2L , 3L ) , 'descr' : 'u1' , 'fortran_order' : False }"),
            plain
        );
        assert_eq!(header("{'descr': 'f8', 'fortran_order': True, 'shape': (7,)}").shape, [7]);
        assert_eq!(
            header("{'descr': 'f8', 'fortran_order': True, 'shape': ()}").shape,
            [0usize; 0]
        );
    }

    #[test]
    fn fortran_order_is_turned() {
        let line = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 2), }\n";
        // numpy.arange(12).reshape(2, 3, 2), first index fastest.
        let picture = read(&file(1, line, &[0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11])).unwrap();
        assert_eq!(
            picture.pixels,
            Pixels::U8(Image::from_vec((0..12).collect(), 3, 2, 2).unwrap())
        );
        let line = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n";
        let picture = read(&file(1, line, &[0, 3, 1, 4, 2, 5])).unwrap();
        assert_eq!(picture.pixels, Pixels::U8(Image::from_vec((0..6).collect(), 3, 2, 1).unwrap()));
    }

    #[test]
    fn taps_of_every_type() {
        let line = |descr: &str| {
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1, 2), }}\n")
        };
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
            assert_eq!(
                read_taps(&mut &*file(1, &line(descr), values)).unwrap(),
                expected,
                "{descr}"
            );
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
        let line = |descr: &str, shape: &str| {
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n")
        };
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
            "(2, 2, 2, 5)",
            "(2, 2, 0, 2)",
            "(0, 2, 2, 2)",
            "(1, 1, 2, 2, 2)",
            "(2,)",
            "()",
            "(2.0, 2)",
            "[2, 2]",
            "2",
        ] {
            let bytes = file(1, &line("|u1", shape), &[0; 4]);
            assert!(read(&bytes).is_err(), "{shape}");
        }
        // Without limits from the user, the file's length still limits the memory.
        let limits = Limits { max_pixels: u64::MAX, max_bytes: u64::MAX };
        let none = Reading { limits, ..Reading::default() };
        let bytes = file(1, &line("<f4", "(1000000, 1000000)"), &[0; 4]);
        assert!(read_as(&bytes, &none).unwrap_err().contains("too early"));
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
        let message =
            read(&file(1, "{'descr': '<c8', 'fortran_order': False, 'shape': (1, 1)}", &[0; 8]))
                .unwrap_err();
        assert!(message.contains("c8") && message.contains("f4"), "{message}");
    }
}
