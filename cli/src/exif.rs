//! Exif data: which fields are kept, and the orientation and the resolution in them.
//!
//! Fields are copied one by one. The thumbnail and the camera maker's notes are left out: they may
//! hold a small copy of the picture before filtering, which whoever blurs a face wants gone.

use std::io::Cursor;

use exif::experimental::Writer;
use exif::{Context, Field, In, Reader, Tag, Value};
use image::metadata::Orientation;

use crate::carried::{self, Carried, Kind, RestsOn};
use crate::meta::{Meta, Resolution, ratio};

/// The orientation, the resolution and the kept fields of Exif data. `None` if it cannot be read.
pub(crate) fn read(data: &[u8]) -> Option<Meta> {
    // In other formats too, some writers put the signature of JPEG's segment first.
    let data = data.strip_prefix(b"Exif\0\0").unwrap_or(data);
    let exif = match Reader::new().continue_on_error(true).read_raw(data.to_vec()) {
        Ok(exif) => exif,
        Err(error) => error.distill_partial_result(|_| {}).ok()?,
    };
    let uint = |tag| exif.get_field(tag, In::PRIMARY).and_then(|field| field.value.get_uint(0));
    let rational = |tag| match &exif.get_field(tag, In::PRIMARY)?.value {
        Value::Rational(values) => {
            values.first().map(exif::Rational::to_f64).filter(|value| value.is_normal())
        }
        _ => None,
    };
    let orientation =
        uint(Tag::Orientation).and_then(|value| Orientation::from_exif(u8::try_from(value).ok()?));
    let resolution = rational(Tag::XResolution).zip(rational(Tag::YResolution));
    let unit = uint(Tag::ResolutionUnit);
    let (main, others): (Vec<_>, Vec<_>) =
        exif.fields().cloned().partition(|field| field.ifd_num == In::PRIMARY);
    let mut carried = left_out(&main);
    if !others.is_empty() {
        carried.push(Carried::left_out(Kind::Phrase, "the thumbnail in the Exif data"));
    }
    Some(Meta {
        exif: collected(main),
        orientation: orientation.unwrap_or(Orientation::NoTransforms),
        resolution: resolution.and_then(|(x, y)| Resolution::of(x, y, unit)),
        carried,
        ..Meta::default()
    })
}

/// The metadata in a file's Exif data, if there is any.
pub(crate) fn read_from(data: Option<&[u8]>) -> Meta {
    let damaged = || {
        let carried = vec![Carried::left_out(Kind::Phrase, "Exif data that cannot be read")];
        Meta { carried, ..Meta::default() }
    };
    data.map_or_else(Meta::default, |data| read(data).unwrap_or_else(damaged))
}

/// The fields that are neither kept nor written anew.
pub(crate) fn left_out(fields: &[Field]) -> Vec<Carried> {
    let lost = |field: &&Field| match field.tag {
        tag if is_kept(tag) => matches!(field.value, Value::Unknown(..)),
        tag => !is_made_anew(tag),
    };
    let named = |field: &Field| match field.tag {
        Tag::MakerNote => Carried::left_out(Kind::Phrase, "the camera maker's notes"),
        Tag(_, number) => Carried::left_out(Kind::ExifField, format!("{number:#06x}")),
    };
    fields.iter().filter(lost).map(named).collect()
}

impl Meta {
    /// Drops metadata that is untrue of pixels that were rotated or mirrored.
    pub(crate) fn pixels_moved(&mut self) {
        carried::change(&mut self.carried, RestsOn::Place);
        if without_places(self) {
            self.carried.push(Carried::left_out(
                Kind::Phrase,
                "the position of the subject in the Exif data",
            ));
        }
        if self.xmp.take_if(|data| carried::xmp_rests_on_place(data)).is_some() {
            self.carried.push(Carried::left_out(Kind::Phrase, "the XMP data"));
        }
    }
}

/// Removes the fields that give positions in the picture. Returns whether there were any.
fn without_places(meta: &mut Meta) -> bool {
    let all = fields(meta.exif.as_deref());
    let is_place = |field: &Field| matches!(field.tag, Tag::SubjectArea | Tag::SubjectLocation);
    if !all.iter().any(is_place) {
        return false;
    }
    meta.exif = written(all.iter().filter(|field| !is_place(field)));
    true
}

/// Whether the writer makes a field anew: one for the storage, size or orientation of the pixels.
fn is_made_anew(tag: Tag) -> bool {
    let Tag(Context::Tiff, number) = tag else { return false };
    matches!(number, 0x0100..=0x0103 | 0x0106 | 0x0111 | 0x0112 | 0x0115..=0x0117 | 0x011a..=0x011c | 0x0128)
        || matches!(number, 0x0201 | 0x0202 | 0x0211..=0x0213 | 0x8769 | 0x8825)
}

/// Whether a field with this tag is kept.
pub(crate) fn is_kept(tag: Tag) -> bool {
    match tag {
        Tag::MakerNote => false,
        // Texts, ratings and primaries. The others describe how a TIFF stores its pixels, or hold
        // previews.
        Tag(Context::Tiff, number) => {
            matches!(number, 0x010d..=0x0110 | 0x0131 | 0x0132 | 0x013b..=0x013c | 0x013e..=0x013f | 0x8298)
                || matches!(number, 0x4746 | 0x4749 | 0x9c9b..=0x9c9f)
        }
        _ => true,
    }
}

/// The kept fields, as Exif data.
pub(crate) fn collected(fields: Vec<Field>) -> Option<Vec<u8>> {
    written(
        fields
            .iter()
            .filter(|field| is_kept(field.tag) && !matches!(field.value, Value::Unknown(..))),
    )
}

/// The fields of Exif data from [`read`] or [`collected`].
pub(crate) fn fields(data: Option<&[u8]>) -> Vec<Field> {
    let exif = data.and_then(|data| Reader::new().read_raw(data.to_vec()).ok());
    exif.map(|exif| exif.fields().cloned().collect()).unwrap_or_default()
}

/// The fields of `exif`, with the orientation, the resolution and the size of the output. `None` if
/// there is no field.
pub(crate) fn write(meta: &Meta, width: usize, height: usize) -> Option<Vec<u8>> {
    let kept = fields(meta.exif.as_deref());
    let set = |tag, value| Field { tag, ifd_num: In::PRIMARY, value };
    let mut own = Vec::new();
    if meta.orientation != Orientation::NoTransforms {
        own.push(set(Tag::Orientation, Value::Short(vec![meta.orientation.to_exif().into()])));
    }
    if !kept.is_empty() {
        if let Some(Resolution { x, y, unit }) = meta.resolution {
            let rational = |value: f64| {
                let (num, denom) = ratio(value);
                Value::Rational(vec![exif::Rational { num, denom }])
            };
            own.push(set(Tag::XResolution, rational(x)));
            own.push(set(Tag::YResolution, rational(y)));
            own.push(set(Tag::ResolutionUnit, Value::Short(vec![unit as u16])));
        }
        own.push(set(Tag::PixelXDimension, Value::Long(vec![u32::try_from(width).ok()?])));
        own.push(set(Tag::PixelYDimension, Value::Long(vec![u32::try_from(height).ok()?])));
    }
    written(kept.iter().filter(|field| !own.iter().any(|it| it.tag == field.tag)).chain(&own))
}

fn written<'a>(fields: impl Iterator<Item = &'a Field>) -> Option<Vec<u8>> {
    let mut writer = Writer::new();
    let mut tags = Vec::new();
    for field in fields {
        // The writer takes each tag once.
        if !tags.contains(&field.tag) {
            tags.push(field.tag);
            writer.push_field(field);
        }
    }
    let mut out = Cursor::new(Vec::new());
    (!tags.is_empty() && writer.write(&mut out, true).is_ok()).then(|| out.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let text = |tag, text: &str| Field {
            tag,
            ifd_num: In::PRIMARY,
            value: Value::Ascii(vec![text.into()]),
        };
        let short = |tag, value, ifd_num| Field { tag, ifd_num, value: Value::Short(vec![value]) };
        let fields = [
            text(Tag::Make, "Maker"),
            text(Tag::DateTimeOriginal, "2026:01:02 03:04:05"),
            text(Tag::GPSLatitudeRef, "N"),
            short(Tag::Orientation, 6, In::PRIMARY),
            short(Tag::ISOSpeed, 100, In::PRIMARY),
            Field {
                tag: Tag::MakerNote,
                ifd_num: In::PRIMARY,
                value: Value::Undefined(b"secret-note".to_vec(), 0),
            },
            Field {
                tag: Tag::XResolution,
                ifd_num: In::PRIMARY,
                value: Value::Rational(vec![exif::Rational { num: 300, denom: 1 }]),
            },
            Field {
                tag: Tag::YResolution,
                ifd_num: In::PRIMARY,
                value: Value::Rational(vec![exif::Rational { num: 150, denom: 1 }]),
            },
            short(Tag::ResolutionUnit, 2, In::PRIMARY),
            short(Tag::Compression, 6, In::THUMBNAIL),
        ];
        let mut writer = Writer::new();
        fields.iter().for_each(|field| writer.push_field(field));
        writer.set_jpeg(b"secret-thumbnail", In::THUMBNAIL);
        let mut out = Cursor::new(Vec::new());
        writer.write(&mut out, false).unwrap();
        out.into_inner()
    }

    #[test]
    fn fields_are_kept_and_previews_are_not() {
        let data = sample();
        let holds =
            |data: &[u8], text: &[u8]| data.windows(text.len()).any(|window| window == text);
        assert!(holds(&data, b"secret-thumbnail") && holds(&data, b"secret-note"));
        let meta = read(&data).unwrap();
        assert_eq!(meta.orientation, Orientation::Rotate90);
        assert_eq!(meta.resolution, Some(Resolution::per_inch(300.0, 150.0)));
        let out = write(&meta, 30, 20).unwrap();
        assert!(!holds(&out, b"secret"));
        assert!(holds(&out, b"Maker") && holds(&out, b"2026:01:02 03:04:05"));
        let again = read(&out).unwrap();
        assert_eq!((again.orientation, again.resolution), (meta.orientation, meta.resolution));
        let found = fields(Some(&out));
        let field = |tag| found.iter().find(|field| field.tag == tag);
        assert_eq!(field(Tag::PixelXDimension).unwrap().value.get_uint(0), Some(30));
        assert!(field(Tag::GPSLatitudeRef).is_some() && field(Tag::ISOSpeed).is_some());
        assert_eq!(read(&[b"Exif\0\0", &data[..]].concat()).unwrap(), meta);
    }

    #[test]
    fn orientation_alone() {
        assert_eq!(write(&Meta::default(), 3, 2), None);
        let out = write(&Meta { orientation: Orientation::FlipVertical, ..Meta::default() }, 3, 2)
            .unwrap();
        assert_eq!(read(&out).unwrap().orientation, Orientation::FlipVertical);
    }

    #[test]
    fn damaged_data_never_panics() {
        let data = sample();
        for at in 0..data.len() {
            for value in [0, 1, 0x7f, 0xff, data[at] ^ 1] {
                let mut damaged = data.clone();
                damaged[at] = value;
                if let Some(meta) = read(&damaged) {
                    let _ = write(&meta, 3, 2);
                }
            }
            let _ = read(&data[..at]);
        }
    }
}
