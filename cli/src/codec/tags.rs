//! TIFF's tags beside the pixels: which are used, written again, or left out.

use ::tiff::decoder::IfdDecoder;
use ::tiff::encoder::{DirectoryEncoder, TiffKind};
use ::tiff::tags::{ByteOrder, Tag, Type, ValueBuffer};
use ::tiff::{Directory, TiffResult};

use super::io::Sink;
use crate::carried::{Carried, Kind, RestsOn, Value, xmp_is_kept};
use crate::meta::Meta;

/// How a tag is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The reader uses it, and the writer makes its own.
    Used,
    /// Kept among the Exif fields, which go into other formats too.
    Exif,
    /// Written again.
    Kept(RestsOn),
    /// Written again, if the picture keeps its inks.
    Ink(RestsOn),
    Xmp,
    Iptc,
    /// A text for people, or one that a program wrote about the file.
    Description,
    /// GDAL's metadata items, which may include statistics of the pixels.
    Gdal,
    Left,
}

/// The fate of a tag, and its name.
fn fate(number: u16) -> (Fate, &'static str) {
    use Fate::{Description, Exif, Gdal, Ink, Iptc, Kept, Left, Used, Xmp};
    use RestsOn::{Nothing, Place, Values};
    match number {
        254 => (Kept(Nothing), "NewSubfileType"),
        // Extents, samples, compression, strips and tiles.
        256..=259 | 262 | 266 | 273 | 277..=279 | 284 | 288 | 289 | 292 | 293 | 317 | 320 => {
            (Used, "")
        }
        322..=328 | 338 | 339 | 347 | 512..=515 | 517 | 519..=521 | 529..=531 => (Used, ""),
        // Orientation, resolution, profile and the directories of Exif.
        274 | 282 | 283 | 296 | 34665 | 34675 | 34853 => (Used, ""),
        269
        | 271
        | 272
        | 305
        | 306
        | 315
        | 316
        | 318
        | 319
        | 18246
        | 18249
        | 33432
        | 40091..=40095 => (Exif, ""),
        270 => (Description, "ImageDescription"),
        280 => (Left, "MinSampleValue"),
        281 => (Left, "MaxSampleValue"),
        285 => (Kept(Nothing), "PageName"),
        286 => (Kept(Place), "XPosition"),
        287 => (Kept(Place), "YPosition"),
        290 => (Kept(Values), "GrayResponseUnit"),
        291 => (Kept(Values), "GrayResponseCurve"),
        297 => (Kept(Nothing), "PageNumber"),
        301 => (Kept(Values), "TransferFunction"),
        321 => (Left, "HalftoneHints"),
        330 => (Left, "SubIFDs"),
        332 => (Ink(Nothing), "InkSet"),
        333 => (Ink(Nothing), "InkNames"),
        334 => (Ink(Nothing), "NumberOfInks"),
        336 => (Ink(Values), "DotRange"),
        337 => (Kept(Nothing), "TargetPrinter"),
        340 => (Left, "SMinSampleValue"),
        341 => (Left, "SMaxSampleValue"),
        532 => (Left, "ReferenceBlackWhite"),
        700 => (Xmp, "XMP"),
        32781 => (Kept(Nothing), "ImageID"),
        // Gel scanners' tags give the meaning of a value.
        33445..=33452 => (Kept(Values), "MD"),
        33550 => (Kept(Place), "ModelPixelScale"),
        33723 => (Iptc, "IPTC"),
        33920 => (Kept(Place), "IrasBTransformation"),
        33922 => (Kept(Place), "ModelTiepoint"),
        34118 => (Kept(Nothing), "SEM"),
        34264 => (Kept(Place), "ModelTransformation"),
        34377 => (Left, "Photoshop"),
        34680 | 34682 => (Kept(Nothing), "FEI"),
        34735 => (Kept(Place), "GeoKeyDirectory"),
        34736 => (Kept(Place), "GeoDoubleParams"),
        34737 => (Kept(Place), "GeoAsciiParams"),
        37439 => (Kept(Values), "StoNits"),
        37724 => (Left, "ImageSourceData"),
        42112 => (Gdal, "GDAL_METADATA"),
        42113 => (Kept(Values), "GDAL_NODATA"),
        50838 | 50839 => (Left, "ImageJ"),
        50844 => (Kept(Place), "RPCCoefficient"),
        50909 => (Kept(Place), "GEO_METADATA"),
        51023 => (Kept(Nothing), "Fibics"),
        _ => (Left, ""),
    }
}

/// "330 (SubIFDs)".
fn shown(number: u16) -> String {
    match fate(number).1 {
        "" => number.to_string(),
        name => format!("{number} ({name})"),
    }
}

/// Whether the tag is kept among the Exif fields.
pub(super) fn is_exif(number: u16) -> bool {
    fate(number).0 == Fate::Exif
}

/// A tag that is left out.
pub(super) fn left_out(number: u16) -> Carried {
    Carried::left_out(Kind::TiffTag, shown(number))
}

/// Maximum size of all kept tags of a page, in bytes. Tags may point to the same bytes of a file,
/// so the file's size is no limit.
const LIMIT: usize = 256 << 20;

/// Adds to `meta` the tags of a page that the decoder does not use. `alone`: the user asked for one
/// page of several, so statements about all pages are no longer true.
pub(super) fn read(
    directory: &mut dyn FnMut(Tag) -> Option<Bytes>,
    all: &[Tag],
    alone: bool,
    meta: &mut Meta,
) {
    let mut room = LIMIT;
    for &tag in all {
        let number = tag.to_u16();
        let (fate, _) = fate(number);
        if matches!(fate, Fate::Used | Fate::Exif) {
            continue;
        }
        let bytes = if fate == Fate::Left { None } else { directory(tag) };
        let Some(bytes) = bytes.filter(|bytes| bytes.data.len() <= room) else {
            meta.carried.push(left_out(number));
            continue;
        };
        let Bytes { kind, data } = bytes;
        room -= data.len();
        let kept = |data: Vec<u8>, rests_on| {
            Carried::new(Kind::TiffTag, shown(number), Value::Tag(number, kind, data), rests_on)
        };
        let text = matches!(kind, Type::ASCII | Type::BYTE | Type::UNDEFINED);
        let carried = match fate {
            // 0 means a whole page, which is the default.
            Fate::Kept(_) if number == 254 && data.iter().all(|&byte| byte == 0) => continue,
            Fate::Kept(rests_on) => kept(data, rests_on),
            Fate::Ink(rests_on) => Carried::new(
                Kind::TiffTag,
                shown(number),
                Value::InkTag(number, kind, data),
                rests_on,
            ),
            Fate::Xmp if text && meta.xmp.is_none() && xmp_is_kept(&data) => {
                meta.xmp = Some(data);
                continue;
            }
            Fate::Iptc if text => {
                Carried::new(Kind::TiffTag, shown(number), Value::Iptc(data), RestsOn::Nothing)
            }
            Fate::Iptc => kept(data, RestsOn::Nothing),
            Fate::Gdal => {
                let items = without_statistics(&data);
                if items != data {
                    meta.carried.push(Carried::left_out(Kind::Phrase, "GDAL's statistics"));
                }
                kept(items, RestsOn::Values)
            }
            Fate::Description if is_for_people(&data) => continue,
            Fate::Description => match described(&data, alone) {
                (Some(mut data), lost) => {
                    // ASCII values end with a byte of 0, which the last line held.
                    if kind == Type::ASCII && !data.ends_with(&[0]) {
                        data.push(0);
                    }
                    meta.carried.extend(lost.map(|name| Carried::left_out(Kind::Phrase, name)));
                    let rests_on = if is_ome(&data) { RestsOn::Values } else { RestsOn::Nothing };
                    kept(data, rests_on)
                }
                (None, _) => left_out(number),
            },
            _ => left_out(number),
        };
        meta.carried.push(carried);
    }
}

/// Whether a description is for people. Programs describe types, ranges and pages.
pub(super) fn is_for_people(data: &[u8]) -> bool {
    !data.starts_with(b"ImageJ=") && !data.starts_with(b"{\"shape\":") && !is_ome(data)
}

fn is_ome(data: &[u8]) -> bool {
    data.windows(5).take(4096).any(|window| window == b"<OME ")
}

/// The part of a program's description that stays true, and the name of the part that does not.
fn described(data: &[u8], alone: bool) -> (Option<Vec<u8>>, Option<&'static str>) {
    if !data.starts_with(b"ImageJ=") {
        return ((!alone).then(|| data.to_vec()), None);
    }
    let (mut kept, mut lost) = (Vec::new(), None);
    for line in data.split_inclusive(|&byte| byte == b'\n') {
        let key = line.split(|&byte| byte == b'=').next().unwrap_or_default();
        match key {
            b"min" | b"max" => lost = Some("ImageJ's range of display (min and max)"),
            b"images" | b"channels" | b"slices" | b"frames" | b"hyperstack" if alone => {}
            _ => kept.extend_from_slice(line),
        }
    }
    (Some(kept), lost)
}

/// GDAL's items without statistics of the values: `<Item name="STATISTICS_MEAN">..</Item>`.
fn without_statistics(data: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.split("<Item ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("</Item>") {
            Some((item, rest)) if item.contains("name=\"STATISTICS_") => {
                kept.push_str(rest.trim_start())
            }
            _ => {
                kept.push_str("<Item ");
                kept.push_str(part);
            }
        }
    }
    if kept == text { data.to_vec() } else { kept.into_bytes() }
}

/// A tag's type and bytes, in this machine's order.
pub(super) struct Bytes {
    pub(super) kind: Type,
    pub(super) data: Vec<u8>,
}

impl Bytes {
    /// The bytes of a tag, if every TIFF can hold them. 64-bit values that do not fit in 32 bits
    /// and file offsets give `None`.
    pub(super) fn of(directory: &mut IfdDecoder<'_>, tag: Tag) -> Option<Self> {
        let mut buffer = ValueBuffer::empty(Type::BYTE);
        directory.find_tag_buf(tag, &mut buffer).ok()??;
        buffer.set_byte_order(ByteOrder::native());
        let (kind, data) = (buffer.data_type(), buffer.as_bytes());
        match kind {
            _ if data.is_empty() => None,
            Type::IFD | Type::IFD8 => None,
            Type::LONG8 => {
                let narrow = |bytes: &[u8; 8]| {
                    u32::try_from(u64::from_ne_bytes(*bytes)).ok().map(u32::to_ne_bytes)
                };
                let data: Option<Vec<_>> = data.as_chunks::<8>().0.iter().map(narrow).collect();
                Some(Self { kind: Type::LONG, data: data?.concat() })
            }
            Type::SLONG8 => {
                let narrow = |bytes: &[u8; 8]| {
                    i32::try_from(i64::from_ne_bytes(*bytes)).ok().map(i32::to_ne_bytes)
                };
                let data: Option<Vec<_>> = data.as_chunks::<8>().0.iter().map(narrow).collect();
                Some(Self { kind: Type::SLONG, data: data?.concat() })
            }
            _ => Some(Self { kind, data: data.to_vec() }),
        }
    }
}

/// Writes the kept tags of a page.
pub(super) fn write<K: TiffKind>(
    directory: &mut DirectoryEncoder<'_, &mut dyn Sink, K>,
    meta: &Meta,
    ink: bool,
) -> TiffResult<()> {
    let mut put = |number, kind, data: &[u8]| {
        let entry = directory.write_entry_bytes(kind, data)?;
        let mut one = Directory::empty();
        one.extend([(Tag::from_u16_exhaustive(number), entry)]);
        directory.extend_from(&one);
        Ok(())
    };
    for carried in &meta.carried {
        match &carried.value {
            Some(Value::Tag(number, kind, data)) => put(*number, *kind, data)?,
            Some(Value::InkTag(number, kind, data)) if ink => put(*number, *kind, data)?,
            Some(Value::Iptc(data)) => put(33723, Type::UNDEFINED, data)?,
            _ => {}
        }
    }
    match &meta.xmp {
        Some(packet) => put(700, Type::BYTE, packet),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_go_and_the_rest_stays() {
        let item = |name: &str| format!("  <Item name=\"{name}\" sample=\"0\">1</Item>\n");
        let of = |items: &[String]| format!("<GDALMetadata>\n{}</GDALMetadata>\n", items.concat());
        let all = of(&[item("STATISTICS_MEAN"), item("SCALE"), item("STATISTICS_MINIMUM")]);
        let kept = String::from_utf8(without_statistics(all.as_bytes())).unwrap();
        assert!(
            kept.contains("SCALE")
                && !kept.contains("STATISTICS")
                && kept.ends_with("</GDALMetadata>\n"),
            "{kept}"
        );
        assert_eq!(
            without_statistics(of(&[item("SCALE")]).as_bytes()),
            of(&[item("SCALE")]).into_bytes()
        );
        assert_eq!(without_statistics(b"<Item name=\"STATISTICS_"), b"<Item name=\"STATISTICS_");
    }

    #[test]
    fn descriptions_by_programs() {
        let text = b"ImageJ=1.53\nimages=3\nslices=3\nunit=um\nmin=0.0\nmax=9.0\n";
        let (kept, lost) = described(text, false);
        assert_eq!(kept.as_deref(), Some(&b"ImageJ=1.53\nimages=3\nslices=3\nunit=um\n"[..]));
        assert!(lost.is_some());
        assert_eq!(described(text, true).0.as_deref(), Some(&b"ImageJ=1.53\nunit=um\n"[..]));
        assert_eq!(described(b"{\"shape\": [3, 4]}", true).0, None);
        assert!(is_for_people(b"A cat") && !is_for_people(b"<?xml version='1.0'?><OME xmlns='x'>"));
    }
}
