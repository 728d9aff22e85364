//! The TIFF reader: all pages, and the metadata in the tags.

use std::fs::File;
use std::io::{BufReader, Seek};

use ::tiff::TiffError;
use ::tiff::decoder::{ChunkType, Decoder, Limits};
use ::tiff::tags::{ByteOrder, IfdPointer, Tag, Type, ValueBuffer};
use apron::{Extra, Scalar, Shape};
use exif::{Context, Field, In, Value};
use image::metadata::Orientation;

use super::io::{Pages, Result, Source, said};
use super::options::Reading;
use super::tags::{self, Bytes};
use super::tiff_edit::{Edited, Tiff};
use super::tiff_page::{extra_samples, extras, read as read_page};
use crate::carried::{Carried, Kind};
use crate::meta::{Meta, Resolution};
use crate::picture::Document;

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
    let decoder: Tiff<'_> = Decoder::new(Edited::new(&mut source).ok()?).ok()?;
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
    let extras = extras(&extra_samples(&mut decoder), (channels as usize).checked_sub(colours)?);
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
    let edited = Edited::new(source).map_err(|error| said(&error))?;
    let mut decoder = Decoder::new(edited).map_err(reason)?.with_limits(limits);
    let mut pages = Pages::new(options);
    let mut notes: Vec<String> = Vec::new();
    let (mut failed, mut said_first) = (None, None);
    loop {
        if pages.found == 0 && !pages.wants() {
            said_first = description(&mut decoder);
        }
        if pages.wants() {
            match read_page(&mut decoder, &pages) {
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
pub(super) fn limits(max_bytes: u64) -> Limits {
    let max = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let mut limits = Limits::default();
    limits.decoding_buffer_size = max;
    limits.intermediate_buffer_size = max;
    limits.ifd_value_size = max.min(MAX_OF_TAG as usize);
    limits
}

pub(super) enum Refused {
    /// No part of the page can be kept.
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

/// The metadata in the tags of a page. `alone`: the user asked for one page of several.
pub(super) fn meta(decoder: &mut Tiff<'_>, colours: usize, alone: bool) -> Meta {
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
