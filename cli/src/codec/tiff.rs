//! The TIFF reader: all pages, all number types, and the metadata in the tags.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use ::tiff::decoder::{ChunkType, Decoder, DecodingResult, Limits};
use ::tiff::tags::{
    ByteOrder, ExtraSamples, IfdPointer, PhotometricInterpretation, Tag, Type, ValueBuffer,
};
use ::tiff::{ColorType, TiffError, TiffResult};
use apron::{Extra, Scalar, Shape};
use exif::{Context, Field, In, Value};
use image::metadata::Orientation;

use super::io::{Pages, Result, Source, Wide, image_of};
use super::io::{kept_in_part, said, widened, zeroes};
use super::options::Reading;
use super::tags::{self, Bytes};
use crate::carried::{Carried, Kind};
use crate::meta::{Meta, Resolution};
use crate::picture::{Document, Picture, Pixels, Stored};

type Tiff<'a> = Decoder<Patched<'a>>;

/// The layout of an uncompressed picture in its file.
pub(crate) struct Strips {
    pub(crate) shape: Shape,
    pub(crate) scalar: Scalar,
    /// Whether the byte order differs from this machine's.
    pub(crate) swapped: bool,
    /// The byte offset of each strip, and the rows of a strip; the last may have fewer.
    pub(crate) offsets: Vec<u64>,
    pub(crate) rows: usize,
    /// The meaning of each channel after the colours.
    pub(crate) extras: Vec<Extra>,
    pub(crate) meta: Meta,
}

/// The only picture of a file, if the file holds its rows in memory order and without alpha.
/// Returns `None` for anything else.
pub(crate) fn strips(file: &File) -> Option<Strips> {
    let length = file.metadata().ok()?.len();
    let mut source = BufReader::new(file.try_clone().ok()?);
    source.rewind().ok()?;
    let decoder: Tiff<'_> = Decoder::new(Patched::new(&mut source)).ok()?;
    let mut decoder = decoder.with_limits(limits(MAX_OF_TAG));
    let (width, height) = decoder.dimensions().ok()?;
    let number =
        |decoder: &mut Tiff<'_>, tag, default: u64| match decoder.find_tag_unsigned::<u64>(tag) {
            Ok(found) => Some(found.unwrap_or(default)),
            Err(_) => None,
        };
    let channels = number(&mut decoder, Tag::SamplesPerPixel, 1)?;
    let compression = number(&mut decoder, Tag::Compression, 1)?;
    let predictor = number(&mut decoder, Tag::Predictor, 1)?;
    let planar = number(&mut decoder, Tag::PlanarConfiguration, 1)?;
    let order = number(&mut decoder, Tag::FillOrder, 1)?;
    let photometric = number(&mut decoder, Tag::PhotometricInterpretation, u64::MAX)?;
    let colours = match photometric {
        1 => 1,
        2 => 3,
        // 0 (white is zero) needs the values inverted.
        _ => return None,
    };
    let extras = extras(&mut decoder, (channels as usize).checked_sub(colours)?);
    let plain = (compression, predictor, planar, order) == (1, 1, 1, 1)
        && !extras.iter().any(|extra| extra.is_alpha());
    if !plain || decoder.more_images() || decoder.get_chunk_type() != ChunkType::Strip {
        return None;
    }
    let formats =
        decoder.find_tag_unsigned_vec::<u16>(Tag::SampleFormat).ok()?.unwrap_or_else(|| vec![1]);
    let first = *formats.first()?;
    let bits =
        decoder.find_tag_unsigned_vec::<u16>(Tag::BitsPerSample).ok()?.unwrap_or_else(|| vec![1]);
    let scalar = match (first, *bits.first()?) {
        _ if formats.iter().any(|&format| format != first)
            || bits.iter().any(|&it| it != bits[0]) =>
        {
            return None;
        }
        (1, 8) => Scalar::U8,
        (1, 16) => Scalar::U16,
        (3, 16) => Scalar::F16,
        (3, 32) => Scalar::F32,
        _ => return None,
    };
    let channels =
        usize::try_from(channels).ok().filter(|&channels| channels <= Shape::MAX_CHANNELS)?;
    let shape = Shape { width: width as usize, height: height as usize, channels };
    let rows = number(&mut decoder, Tag::RowsPerStrip, u64::from(height))?
        .clamp(1, u64::from(height).max(1));
    let offsets = decoder.find_tag_unsigned_vec::<u64>(Tag::StripOffsets).ok()??;
    let counts = decoder.find_tag_unsigned_vec::<u64>(Tag::StripByteCounts).ok()??;
    let row = (shape.row_len() * scalar.bytes()) as u64;
    let count = u64::from(height).div_ceil(rows) as usize;
    let whole = |(number, (&offset, &bytes)): (usize, (&u64, &u64))| {
        let of_strip = rows.min(u64::from(height) - rows * number as u64) * row;
        bytes >= of_strip && offset.checked_add(of_strip).is_some_and(|end| end <= length)
    };
    if (offsets.len(), counts.len()) != (count, count)
        || !offsets.iter().zip(&counts).enumerate().all(whole)
    {
        return None;
    }
    let little = decoder.byte_order() == ByteOrder::LittleEndian;
    let meta = meta(&mut decoder, colours, false);
    Some(Strips {
        shape,
        scalar,
        swapped: little != cfg!(target_endian = "little"),
        offsets,
        rows: rows as usize,
        extras,
        meta,
    })
}

pub(super) fn read(source: &mut dyn Source, options: &Reading) -> Result<Document> {
    let reason = |error: TiffError| match error {
        TiffError::LimitsExceeded => options.limits.exceeded(),
        error => said(&error),
    };
    let limits = limits(options.limits.max_bytes);
    let mut decoder = Decoder::new(Patched::new(source)).map_err(reason)?.with_limits(limits);
    let mut pages = Pages::new(options);
    let mut notes: Vec<String> = Vec::new();
    let (mut failed, mut said_first) = (None, None);
    loop {
        if pages.found == 0 && !pages.wants() {
            said_first = description(&mut decoder);
        }
        if pages.wants() {
            match page(&mut decoder, &pages) {
                Ok((picture, note)) => {
                    pages.push(picture);
                    notes.extend(note.filter(|note| !notes.contains(note)));
                }
                // An error even with `--lenient`: no part of the picture can be kept.
                Err(Refused::AsItIs(text)) => return Err(text),
                Err(Refused::Damaged(error)) => failed = Some(reason(error)),
            }
        } else {
            pages.skip();
        }
        if failed.is_some() || pages.done() || !decoder.more_images() {
            break;
        }
        if let Err(error) = decoder.next_image() {
            failed = Some(reason(error));
            break;
        }
    }
    let mut document = pages.finish(None, failed)?;
    document.pages[0].meta.carried.extend(said_first.into_iter().flatten());
    document.notes.extend(notes);
    Ok(document)
}

/// The part of ImageJ's description in the first page that stays true of a page that is read alone.
fn description(decoder: &mut Tiff<'_>) -> Option<Vec<Carried>> {
    let mut meta = Meta::default();
    let text = Bytes::of(&mut decoder.image_ifd(), Tag::ImageDescription)?;
    let is_imagej = text.data.starts_with(b"ImageJ=");
    tags::read(
        &mut |tag| Bytes::of(&mut decoder.image_ifd(), tag),
        &[Tag::ImageDescription],
        true,
        &mut meta,
    );
    is_imagej.then_some(meta.carried)
}

/// Maximum size of a tag's value, in bytes. CMYK profiles and lists of strips exceed the decoder's
/// default.
const MAX_OF_TAG: u64 = 256 << 20;

/// The decoder's limits for pictures of up to `max_bytes`.
fn limits(max_bytes: u64) -> Limits {
    let max = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let mut limits = Limits::default();
    limits.decoding_buffer_size = max;
    limits.intermediate_buffer_size = max;
    limits.ifd_value_size = max.min(MAX_OF_TAG as usize);
    limits
}

enum Refused {
    AsItIs(String),
    Damaged(TiffError),
}

impl From<TiffError> for Refused {
    fn from(error: TiffError) -> Self {
        match error {
            TiffError::UnsupportedError(what) => {
                Self::AsItIs(format!("such a TIFF cannot be read: {what}"))
            }
            error => Self::Damaged(error),
        }
    }
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self::AsItIs(reason)
    }
}

/// Reads the decoder's current picture.
fn page(decoder: &mut Tiff<'_>, pages: &Pages<'_>) -> Result<(Picture, Option<String>), Refused> {
    let (width, height) = decoder.dimensions()?;
    let held = usize::from(decoder.find_tag_unsigned::<u16>(Tag::SamplesPerPixel)?.unwrap_or(1));
    let photometric = decoder.find_tag_unsigned::<u16>(Tag::PhotometricInterpretation)?;
    if held > 3
        && photometric == Some(PhotometricInterpretation::RGB.to_u16())
        && !decoder.colortype().is_ok_and(|colour| usize::from(colour.num_samples()) == held)
    {
        show_every_sample(decoder, pages.found)?;
    }
    let colour = decoder.colortype()?;
    let samples = usize::from(colour.num_samples());
    let depth = colour.bit_depth();
    let unknown = || Refused::AsItIs(format!("a TIFF of {colour:?} cannot be read"));
    match colour {
        ColorType::Gray(1 | 2 | 4 | 8..) | ColorType::CMYK(8 | 16) => {}
        ColorType::GrayA(8..)
        | ColorType::RGB(8..)
        | ColorType::RGBA(8..)
        | ColorType::Multiband { bit_depth: 8.., .. } => {}
        _ => return Err(unknown()),
    }
    pages.check(width.into(), height.into(), samples as u64 * u64::from(depth.div_ceil(8)))?;
    let layout = decoder.image_buffer_layout()?;
    let mut values = DecodingResult::U8(Vec::new());
    values.resize_to(&layout, &limits(pages.options.limits.max_bytes))?;
    let mut note = None;
    if let Err(error) = decoder.read_image_bytes(values.as_buffer(0).as_bytes_mut()) {
        if !pages.options.lenient {
            return Err(error.into());
        }
        note = Some(kept_in_part(&said(&error)));
    }
    let planes = layout.planes;
    let count = width as usize * height as usize;
    let (pixels, stored) = match values {
        DecodingResult::U8(values) if depth < 8 => {
            let mut levels = unpacked(&values, width as usize, height as usize, depth)?;
            let greatest = (1u16 << depth) - 1;
            levels.iter_mut().for_each(|level| *level = (u16::from(*level) * 255 / greatest) as u8);
            (Pixels::U8(image_of(levels, width, height, 1)?), None)
        }
        DecodingResult::U8(values) => {
            let values = interleaved(values, samples, planes, count)?;
            (Pixels::U8(image_of(values, width, height, samples)?), None)
        }
        DecodingResult::U16(values) => {
            let values = interleaved(values, samples, planes, count)?;
            (Pixels::U16(image_of(values, width, height, samples)?), None)
        }
        DecodingResult::F16(values) => {
            let values = interleaved(values, samples, planes, count)?;
            (Pixels::F16(image_of(values, width, height, samples)?), None)
        }
        DecodingResult::F32(values) => {
            let values = interleaved(values, samples, planes, count)?;
            (Pixels::F32(image_of(values, width, height, samples)?), None)
        }
        DecodingResult::U32(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
        DecodingResult::U64(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
        DecodingResult::F64(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
        DecodingResult::I8(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
        DecodingResult::I16(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
        DecodingResult::I32(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
        DecodingResult::I64(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
    };
    let channels = pixels.shape().channels;
    if held > samples && note.is_none() {
        note = Some(format!(
            "{} further samples of each pixel are not read: the file does not say what they are",
            held - samples
        ));
    }
    let colours = match photometric {
        Some(0 | 1) => 1,
        // Separated colours, as CMYK.
        Some(5) => 4,
        _ => 3,
    };
    let picture = Picture {
        extras: extras(decoder, channels.saturating_sub(colours)),
        channel_axis: channels > 1,
        stored,
        meta: meta(decoder, colours, pages.options.page.is_some()),
        ..Picture::new(pixels)
    };
    Ok((picture, note))
}

/// The meaning of the `count` samples after the colours. Samples that the tag does not reach are
/// bands.
fn extras(decoder: &mut Tiff<'_>, count: usize) -> Vec<Extra> {
    let said =
        decoder.find_tag_unsigned_vec::<u16>(Tag::ExtraSamples).ok().flatten().unwrap_or_default();
    let said =
        said.iter().skip(said.len().saturating_sub(count)).map(
            |&code| match ExtraSamples::from_u16(code) {
                Some(ExtraSamples::AssociatedAlpha) => Extra::Premultiplied,
                Some(ExtraSamples::UnassociatedAlpha) => Extra::Straight,
                _ => Extra::Unspecified,
            },
        );
    let unsaid = count - said.len();
    std::iter::repeat_n(Extra::Band, unsaid).chain(said).collect()
}

/// Makes the decoder read every sample of a picture. For RGB, the decoder drops or refuses extra
/// samples that are not alpha; for grey, it reads all samples. So a patch makes the tag say grey
/// instead of RGB.
fn show_every_sample(decoder: &mut Tiff<'_>, page: usize) -> TiffResult<()> {
    let Some(IfdPointer(directory)) = decoder.ifd_pointer() else { return Ok(()) };
    let order = decoder.byte_order();
    let source = decoder.inner();
    let number = |bytes: &[u8]| match order {
        ByteOrder::LittleEndian => {
            bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
        }
        ByteOrder::BigEndian => bytes.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
    };
    let mut start = [0; 4];
    source.rewind()?;
    source.read_exact(&mut start)?;
    // A directory is a count and entries. An entry holds a tag, a type, a value count and the
    // values. BigTIFF has wider counts and values.
    let (count, entry, value) = if number(&start[2..]) == 43 { (8, 20, 12) } else { (2, 12, 8) };
    let mut bytes = [0; 20];
    source.seek(SeekFrom::Start(directory))?;
    source.read_exact(&mut bytes[..count])?;
    for index in 0..number(&bytes[..count]) {
        source.read_exact(&mut bytes[..entry])?;
        if number(&bytes[..2]) == u64::from(Tag::PhotometricInterpretation.to_u16()) {
            let grey = PhotometricInterpretation::BlackIsZero.to_u16();
            let grey = if order == ByteOrder::LittleEndian {
                grey.to_le_bytes()
            } else {
                grey.to_be_bytes()
            };
            source.patch = Some((directory + (count + value) as u64 + index * entry as u64, grey));
            break;
        }
    }
    decoder.seek_to_image(page)
}

/// A file in which two bytes are replaced.
struct Patched<'a> {
    source: &'a mut dyn Source,
    /// The position of the next read.
    at: u64,
    patch: Option<(u64, [u8; 2])>,
}

impl<'a> Patched<'a> {
    /// A file at its start.
    fn new(source: &'a mut dyn Source) -> Self {
        Self { source, at: 0, patch: None }
    }
}

impl Read for Patched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.source.read(buffer)?;
        for (place, byte) in self.patch.into_iter().flat_map(|(at, bytes)| (at..).zip(bytes)) {
            let to = place.checked_sub(self.at).and_then(|place| usize::try_from(place).ok());
            if let Some(to) = to.and_then(|to| buffer[..len].get_mut(to)) {
                *to = byte;
            }
        }
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for Patched<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.source.seek(to)?;
        Ok(self.at)
    }
}

/// Values of a type that kernels do not take, as f64.
fn wide<N: Wide>(
    values: &[N],
    width: u32,
    height: u32,
    samples: usize,
) -> Result<(Pixels, Option<Stored>)> {
    Ok((Pixels::F64(image_of(widened(values)?, width, height, samples)?), Some(N::STORED)))
}

/// Interleaves the channels of the values, if the file has a plane for each channel.
fn interleaved<P: bytemuck::Pod>(
    values: Vec<P>,
    samples: usize,
    planes: usize,
    count: usize,
) -> Result<Vec<P>> {
    if planes <= 1 || samples <= 1 {
        return Ok(values);
    }
    let stride = values.len() / planes;
    if planes != samples || stride < count {
        return Err(format!("a TIFF of {samples} samples in {planes} planes cannot be read"));
    }
    let mut result = zeroes::<P>(count * samples)?;
    for (index, pixel) in result.chunks_exact_mut(samples).enumerate() {
        for (sample, value) in pixel.iter_mut().enumerate() {
            *value = values[sample * stride + index];
        }
    }
    Ok(result)
}

/// Unpacks samples of fewer than 8 bits. Each row begins at a byte boundary.
fn unpacked(values: &[u8], width: usize, height: usize, depth: u8) -> Result<Vec<u8>> {
    let mut levels = zeroes::<u8>(width * height)?;
    let (per_byte, mask) = (8 / usize::from(depth), ((1u16 << depth) - 1) as u8);
    for (row, packed) in
        levels.chunks_exact_mut(width).zip(values.chunks_exact(width.div_ceil(per_byte)))
    {
        for (x, level) in row.iter_mut().enumerate() {
            let shift = 8 - usize::from(depth) * (x % per_byte + 1);
            *level = packed[x / per_byte] >> shift & mask;
        }
    }
    Ok(levels)
}

/// The metadata in the tags of a page. `alone`: the user asked for one page of several.
fn meta(decoder: &mut Tiff<'_>, colours: usize, alone: bool) -> Meta {
    let uint = |decoder: &mut Tiff<'_>, tag| decoder.find_tag_unsigned::<u16>(tag).ok().flatten();
    let ratio = |decoder: &mut Tiff<'_>, tag| match decoder.find_tag(tag) {
        Ok(Some(::tiff::decoder::ifd::Value::Rational(num, denom))) if num > 0 && denom > 0 => {
            Some(f64::from(num) / f64::from(denom))
        }
        _ => None,
    };
    let orientation = uint(decoder, Tag::Orientation)
        .and_then(|value| Orientation::from_exif(u8::try_from(value).ok()?));
    let unit = uint(decoder, Tag::ResolutionUnit).map(u32::from);
    let resolution = ratio(decoder, Tag::XResolution).zip(ratio(decoder, Tag::YResolution));
    let mut meta = Meta {
        resolution: resolution.and_then(|(x, y)| Resolution::of(x, y, unit)),
        orientation: orientation.unwrap_or(Orientation::NoTransforms),
        ..Meta::default()
    };
    let all: Vec<Tag> = decoder.image_ifd().directory().iter().map(|(tag, _)| tag).collect();
    if all.contains(&Tag::IccProfile) {
        match decoder.get_tag_u8_vec(Tag::IccProfile) {
            Ok(profile) => meta.set_profile(Some(profile), colours),
            Err(_) => meta.carried.push(tags::left_out(Tag::IccProfile.to_u16())),
        }
    }
    let fields = fields(decoder, &all, &mut meta);
    meta.carried.extend(crate::exif::left_out(&fields));
    meta.exif = crate::exif::collected(fields);
    tags::read(&mut |tag| Bytes::of(&mut decoder.image_ifd(), tag), &all, alone, &mut meta);
    meta
}

/// The Exif fields among the tags. Unreadable tags are named in `meta`.
fn fields(decoder: &mut Tiff<'_>, all: &[Tag], meta: &mut Meta) -> Vec<Field> {
    let mut fields = Vec::new();
    for &tag in all {
        match tag {
            Tag::ExifDirectory => sub_fields(decoder, tag, Context::Exif, &mut fields, meta),
            Tag::GpsDirectory => sub_fields(decoder, tag, Context::Gps, &mut fields, meta),
            Tag::ImageDescription if !is_text_for_people(decoder) => {}
            _ if tag == Tag::ImageDescription || tags::is_exif(tag.to_u16()) => {
                match field(&mut decoder.image_ifd(), tag, Context::Tiff) {
                    Some(field) => fields.push(field),
                    None => meta.carried.push(tags::left_out(tag.to_u16())),
                }
            }
            _ => {}
        }
    }
    fields
}

fn is_text_for_people(decoder: &mut Tiff<'_>) -> bool {
    let text = Bytes::of(&mut decoder.image_ifd(), Tag::ImageDescription);
    text.is_some_and(|text| tags::is_for_people(&text.data))
}

fn sub_fields(
    decoder: &mut Tiff<'_>,
    pointer: Tag,
    context: Context,
    fields: &mut Vec<Field>,
    meta: &mut Meta,
) {
    let offset = decoder.find_tag_unsigned::<u64>(pointer).ok().flatten();
    let Some(directory) = offset.and_then(|offset| decoder.read_directory(IfdPointer(offset)).ok())
    else {
        meta.carried.push(tags::left_out(pointer.to_u16()));
        return;
    };
    let all: Vec<Tag> = directory.iter().map(|(tag, _)| tag).collect();
    for tag in all {
        let number = tag.to_u16();
        match field(&mut decoder.read_directory_tags(&directory), tag, context) {
            // The interoperability directory, inside the Exif directory, is dropped.
            _ if number == 0xa005 => {}
            Some(field) => fields.push(field),
            None => meta.carried.push(Carried::left_out(Kind::ExifField, format!("{number:#06x}"))),
        }
    }
}

fn field(
    directory: &mut ::tiff::decoder::IfdDecoder<'_>,
    tag: Tag,
    context: Context,
) -> Option<Field> {
    // Fields may point to the same bytes of a file, so many large ones could take more memory than
    // the file's size.
    directory.find_entry(tag).filter(|entry| entry.count() <= 1 << 20)?;
    let mut buffer = ValueBuffer::empty(Type::BYTE);
    directory.find_tag_buf(tag, &mut buffer).ok()??;
    buffer.set_byte_order(ByteOrder::LittleEndian);
    let bytes = buffer.as_bytes();
    let halves = || bytes.chunks_exact(2).map(|it| u16::from_le_bytes([it[0], it[1]]));
    let words = || bytes.chunks_exact(4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
    let pairs = || words().step_by(2).zip(words().skip(1).step_by(2));
    let value = match buffer.data_type() {
        Type::BYTE => Value::Byte(bytes.to_vec()),
        Type::ASCII => Value::Ascii(
            bytes
                .strip_suffix(b"\0")
                .unwrap_or(bytes)
                .split(|&byte| byte == 0)
                .map(<[u8]>::to_vec)
                .collect(),
        ),
        Type::SHORT => Value::Short(halves().collect()),
        Type::LONG => Value::Long(words().collect()),
        Type::RATIONAL => {
            Value::Rational(pairs().map(|(num, denom)| exif::Rational { num, denom }).collect())
        }
        Type::SBYTE => Value::SByte(bytes.iter().map(|&byte| byte as i8).collect()),
        Type::UNDEFINED => Value::Undefined(bytes.to_vec(), 0),
        Type::SSHORT => Value::SShort(halves().map(|value| value as i16).collect()),
        Type::SLONG => Value::SLong(words().map(|value| value as i32).collect()),
        Type::SRATIONAL => Value::SRational(
            pairs()
                .map(|(num, denom)| exif::SRational { num: num as i32, denom: denom as i32 })
                .collect(),
        ),
        Type::FLOAT => Value::Float(words().map(f32::from_bits).collect()),
        Type::DOUBLE => Value::Double(
            pairs()
                .map(|(low, high)| f64::from_bits(u64::from(high) << 32 | u64::from(low)))
                .collect(),
        ),
        _ => return None,
    };
    Some(Field { tag: exif::Tag(context, tag.to_u16()), ifd_num: In::PRIMARY, value })
}
