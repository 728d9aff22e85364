//! JPEG's segments beside the pixels: which are used, written again, or left out.

use crate::carried::{Carried, Kind, RestsOn, Value, printable, xmp_is_kept};
use crate::meta::Meta;

const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
const MORE_XMP: &[u8] = b"http://ns.adobe.com/xmp/extension/\0";
const PHOTOSHOP: &[u8] = b"Photoshop 3.0\0";

/// Maximum size of XMP data in one segment, in bytes. The encoder does not split the data.
pub(crate) const MAX_XMP: usize = 65_533 - XMP.len();

/// Maximum size of Exif data in one segment, in bytes.
pub(crate) const MAX_EXIF: usize = 65_533 - b"Exif\0\0".len();

/// Whether a comment or IPTC data fits in a segment, together with the segment's own headers.
pub(crate) fn fits(data: &[u8]) -> bool {
    data.len() <= 65_400
}

/// The markers and data of the segments before the picture that are not needed for decoding.
fn segments(data: &[u8]) -> Vec<(u8, &[u8])> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(next) =
        data.get(at..).and_then(|rest| rest.iter().position(|&byte| byte == 0xff))
    {
        at += next + 1;
        match data.get(at) {
            Some(0xd9 | 0xda) | None => break,
            // Fill bytes, an escaped 0xff, restart markers and the start marker have no length.
            Some(0xff) => {}
            Some(0 | 1 | 0xd0..=0xd8) => at += 1,
            Some(&marker) => {
                let Some(&[high, low]) = data.get(at + 1..at + 3) else { break };
                let len = usize::from(u16::from_be_bytes([high, low])).max(2);
                let Some(body) = data.get(at + 3..at + 1 + len) else { break };
                if matches!(marker, 0xe0..=0xef | 0xfe) {
                    found.push((marker, body));
                }
                at += 1 + len;
            }
        }
    }
    found
}

/// Adds to `meta` the segments that the decoders do not use.
pub(super) fn read(data: &[u8], meta: &mut Meta) {
    for (marker, body) in segments(data) {
        let found = match (marker, body) {
            // What follows the header's 14 bytes is a thumbnail.
            (0xe0, [b'J', b'F', b'I', b'F', 0, ..]) => {
                let thumbnail = body.len() > 14;
                thumbnail.then(|| Carried::left_out(Kind::JpegSegment, "APP0 (the thumbnail)"))
            }
            (0xe1, [b'E', b'x', b'i', b'f', 0, ..])
            | (0xee, [b'A', b'd', b'o', b'b', b'e', ..]) => None,
            (0xe1, _) if body.starts_with(XMP) => packet(&body[XMP.len()..], meta),
            (0xe1, _) if body.starts_with(MORE_XMP) => {
                Some(Carried::left_out(Kind::JpegSegment, "APP1 (extended XMP)"))
            }
            (0xe2, _) if body.starts_with(b"ICC_PROFILE\0") => None,
            (0xed, _) if body.starts_with(PHOTOSHOP) => {
                resources(&body[PHOTOSHOP.len()..], meta);
                None
            }
            (0xfe, _) => {
                let value = Value::Comment(body.to_vec());
                Some(Carried::new(Kind::JpegSegment, "COM", value, RestsOn::Nothing))
            }
            _ => {
                let label = body.split(|&byte| byte == 0).next().unwrap_or_default();
                let name = format!("APP{} ({})", marker & 15, printable(label));
                Some(Carried::left_out(Kind::JpegSegment, name))
            }
        };
        meta.carried.extend(found);
    }
}

/// Takes the XMP data, unless it must not be kept.
fn packet(data: &[u8], meta: &mut Meta) -> Option<Carried> {
    if meta.xmp.is_some() || !xmp_is_kept(data) {
        return Some(Carried::left_out(Kind::JpegSegment, "APP1 (XMP)"));
    }
    meta.xmp = Some(data.to_vec());
    None
}

/// Photoshop's resources: IPTC data is kept. The others are Photoshop's own, including thumbnails.
fn resources(mut data: &[u8], meta: &mut Meta) {
    let mut others = data.is_empty();
    while let Some((number, value, rest)) = resource(data) {
        match number {
            0x0404 => {
                let iptc = Value::Iptc(value.to_vec());
                meta.carried.push(Carried::new(
                    Kind::JpegSegment,
                    "APP13 (IPTC)",
                    iptc,
                    RestsOn::Nothing,
                ));
            }
            _ => others = true,
        }
        data = rest;
    }
    if others || !data.is_empty() {
        meta.carried.push(Carried::left_out(Kind::JpegSegment, "APP13 (Photoshop)"));
    }
}

/// The number and the value of the first resource, and the data after it.
fn resource(data: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let rest = data.strip_prefix(b"8BIM")?;
    let (&[high, low], rest) = rest.split_first_chunk::<2>()?;
    // A name with its length before it, then the value. Both are padded to an even size.
    let name = 1 + usize::from(*rest.first()?);
    let rest = rest.get(name + name % 2..)?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let len = u32::from_be_bytes(*len) as usize;
    let value = rest.get(..len)?;
    Some((u16::from_be_bytes([high, low]), value, rest.get(len + len % 2..).unwrap_or_default()))
}
