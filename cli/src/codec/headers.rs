//! Metadata in the headers of simple formats, which the decoders ignore.

use std::io::{Read, SeekFrom};

use image::ImageFormat;

use super::io::{Sink, Source};
use crate::carried::{Carried, Kind, RestsOn, Value, printable};
use crate::meta::{Meta, Resolution};

/// Maximum number of header bytes to read.
const LIMIT: u64 = 1 << 20;

/// Pixels per metre of one pixel per inch.
const PER_INCH: f64 = 1.0 / 0.0254;

/// The offset of the resolution in a BMP's header: pixels per metre in two words.
const BMP_RESOLUTION: usize = 38;

/// Adds to `meta` the header's data that the decoder does not use.
pub(super) fn read(
    source: &mut (impl Source + ?Sized),
    format: ImageFormat,
    meta: &mut Meta,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    Read::take(&mut *source, LIMIT).read_to_end(&mut head)?;
    source.rewind()?;
    match format {
        ImageFormat::Bmp => bmp(&head, meta),
        ImageFormat::Hdr => {
            meta.is_linear = true;
            meta.carried.extend(lines(&head));
        }
        ImageFormat::Pnm => meta.carried.extend(has_comment(&head).then(|| field("comment"))),
        ImageFormat::Tga => {
            meta.carried.extend((head.first() > Some(&0)).then(|| field("image ID")))
        }
        ImageFormat::Qoi => {
            meta.is_linear = head.get(13) == Some(&1);
            meta.carried.extend(
                meta.is_linear.then(|| {
                    Carried::left_out(Kind::Phrase, "the fact that its values are linear")
                }),
            );
        }
        ImageFormat::OpenExr => meta.carried.extend(attributes(&head)),
        _ => {}
    }
    Ok(())
}

fn field(name: impl Into<String>) -> Carried {
    Carried::left_out(Kind::HeaderField, name)
}

fn word(head: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?))
}

fn bmp(head: &[u8], meta: &mut Meta) {
    let Some(len @ 40..) = word(head, 14) else { return };
    let resolution = word(head, BMP_RESOLUTION).zip(word(head, BMP_RESOLUTION + 4));
    if let Some((x @ 1.., y @ 1..)) = resolution {
        meta.resolution =
            Some(Resolution::per_inch(f64::from(x) / PER_INCH, f64::from(y) / PER_INCH));
    }
    // From version 4 on: primaries and gamma, or a profile in the file or beside it.
    let space = if len >= 108 { head.get(70..74) } else { None };
    match space {
        Some(&[0, 0, 0, 0])
            if head.get(74..122).is_some_and(|it| it.iter().any(|&byte| byte > 0)) =>
        {
            meta.carried.push(field("primaries and gamma"));
        }
        Some(b"DEBM" | b"KNIL") => {
            meta.carried.push(Carried::left_out(Kind::Phrase, "the colour profile of the BMP"))
        }
        _ => {}
    }
}

/// Writes the resolution into the header of a complete BMP.
pub(super) fn write_resolution(out: &mut dyn Sink, resolution: Resolution) -> std::io::Result<()> {
    let Some((x, y)) = resolution.in_inches() else { return Ok(()) };
    let bytes = [x, y].map(|value| ((value * PER_INCH).round() as u32).to_le_bytes()).concat();
    out.seek(SeekFrom::Start(BMP_RESOLUTION as u64))?;
    out.write_all(&bytes)?;
    out.seek(SeekFrom::End(0)).map(drop)
}

/// The lines of a Radiance header, up to an empty one, without the format's name and the encoding.
fn lines(head: &[u8]) -> Vec<Carried> {
    let lines = head.split(|&byte| byte == b'\n').skip(1).take_while(|line| !line.is_empty());
    let named = lines.filter_map(|line| match line.split(|&byte| byte == b'=').next() {
        Some(b"FORMAT") => None,
        _ if line.starts_with(b"#") => Some(field("comment")),
        key => key.map(|key| field(printable(key))),
    });
    named.collect()
}

/// Whether there is a comment in the header of a PBM, PGM, PPM or PAM.
fn has_comment(head: &[u8]) -> bool {
    if head.starts_with(b"P7") {
        let mut lines =
            head.split(|&byte| byte == b'\n').take_while(|line| !line.starts_with(b"ENDHDR"));
        return lines.any(|line| line.starts_with(b"#"));
    }
    // Two numbers if the form has no levels, else three. The pixels follow one byte after the last.
    let numbers = if matches!(head.get(1), Some(b'1' | b'4')) { 2 } else { 3 };
    let (mut found, mut inside) = (0, false);
    for &byte in head.iter().skip(2) {
        match byte {
            b'#' => return true,
            b'0'..=b'9' => inside = true,
            _ => {
                found += usize::from(std::mem::take(&mut inside));
                if found == numbers {
                    return false;
                }
            }
        }
    }
    false
}

/// The attributes of an OpenEXR's first header, except those that describe its pixels.
fn attributes(head: &[u8]) -> Vec<Carried> {
    let mut found = Vec::new();
    let mut rest = head.get(8..).unwrap_or_default();
    let text = |rest: &[u8]| rest.iter().position(|&byte| byte == 0);
    while let Some(end @ 1..) = text(rest) {
        let (name, after) = (&rest[..end], &rest[end + 1..]);
        let Some(kind) = text(after) else { break };
        let after = &after[kind + 1..];
        let Some((len, after)) = after.split_first_chunk::<4>() else { break };
        let Some(value) = after.get(..u32::from_le_bytes(*len) as usize) else { break };
        let used = match name {
            b"channels" | b"compression" | b"dataWindow" | b"displayWindow" | b"lineOrder"
            | b"chunkCount" => true,
            b"tiles" | b"type" | b"version" | b"name" | b"preview" | b"dwaCompressionLevel" => true,
            b"pixelAspectRatio" | b"screenWindowWidth" => *value == 1f32.to_le_bytes(),
            b"screenWindowCenter" => *value == [0; 8],
            _ => false,
        };
        found.extend((!used).then(|| {
            let name = printable(name);
            Carried::new(Kind::ExrAttribute, name, Value::Attribute, RestsOn::Nothing)
        }));
        rest = &after[value.len()..];
    }
    found
}
