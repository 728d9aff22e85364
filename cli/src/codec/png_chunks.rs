//! PNG's chunks beside the pixels: which are used, written again, or left out.

use std::io::SeekFrom;

use super::io::Source;
use crate::carried::{Carried, Kind, RestsOn, Value, printable, xmp_is_kept};
use crate::meta::Meta;

/// Maximum size of a chunk that is written again, in bytes.
const LIMIT: u32 = 64 << 20;

/// How a chunk is treated.
enum Fate {
    /// The reader uses it, and the writer makes its own.
    Used,
    /// Written again if it has this size in bytes; 0 stands for any size.
    Kept(usize, RestsOn),
    Text,
    /// The background, in the samples of the file.
    Background,
    Left,
}

fn fate(name: [u8; 4]) -> Fate {
    use Fate::{Background, Kept, Left, Text, Used};
    match &name {
        b"IHDR" | b"PLTE" | b"IDAT" | b"IEND" | b"tRNS" | b"acTL" | b"fcTL" | b"fdAT" => Used,
        b"iCCP" | b"eXIf" | b"pHYs" => Used,
        b"gAMA" => Kept(4, RestsOn::Nothing),
        b"cHRM" => Kept(32, RestsOn::Nothing),
        b"sRGB" => Kept(1, RestsOn::Nothing),
        b"cICP" => Kept(4, RestsOn::Nothing),
        b"mDCV" => Kept(24, RestsOn::Nothing),
        b"cLLI" | b"cLLi" => Kept(8, RestsOn::Nothing),
        b"bKGD" => Background,
        b"pCAL" => Kept(0, RestsOn::Values),
        b"sCAL" => Kept(0, RestsOn::Place),
        b"oFFs" => Kept(9, RestsOn::Place),
        b"sTER" => Kept(1, RestsOn::Place),
        b"tEXt" | b"zTXt" | b"iTXt" => Text,
        // These describe the old pixels or when they changed, or sign them.
        b"hIST" | b"sBIT" | b"sPLT" | b"tIME" | b"dSIG" => Left,
        // A small last letter means that the chunk stays valid when the pixels change.
        [_, _, _, last]
            if last.is_ascii_lowercase() && name.iter().all(u8::is_ascii_alphabetic) =>
        {
            Kept(0, RestsOn::Nothing)
        }
        _ => Left,
    }
}

/// The sample format of a file, to read its background.
#[derive(Clone, Copy, Default)]
struct Samples {
    depth: u8,
    colour: u8,
}

/// Adds to `meta` the chunks that the decoder does not use. Stops at the first chunk that is cut
/// off, since the decoder reports it.
pub(super) fn read(source: &mut dyn Source, meta: &mut Meta) -> std::io::Result<()> {
    let (mut samples, mut palette) = (Samples::default(), Vec::new());
    let mut header = [0; 8];
    source.seek(SeekFrom::Start(8))?;
    while source.read_exact(&mut header).is_ok() {
        let [a, b, c, d, name @ ..] = header;
        let len = u32::from_be_bytes([a, b, c, d]);
        match (&name, fate(name)) {
            (b"IEND", _) => break,
            (b"IHDR" | b"PLTE", _) => {}
            (_, Fate::Used) => {
                skip(source, len)?;
                continue;
            }
            _ => {}
        }
        let Some(data) = body(source, name, len) else {
            meta.carried.push(Carried::left_out(Kind::PngChunk, printable(&name)));
            continue;
        };
        match (&name, fate(name)) {
            (b"IHDR", _) if data.len() == 13 => {
                samples = Samples { depth: data[8], colour: data[9] }
            }
            (b"PLTE", _) => palette = data,
            (_, Fate::Text) => text(name, data, meta),
            (_, fate) => meta.carried.push(carried(name, fate, data, samples, &palette)),
        }
    }
    source.rewind()
}

/// Moves to the end of a chunk's data and checksum.
fn skip(source: &mut dyn Source, len: u32) -> std::io::Result<()> {
    source.seek_relative(i64::from(len) + 4)
}

/// The data of a chunk, if its checksum is right.
fn body(source: &mut dyn Source, name: [u8; 4], len: u32) -> Option<Vec<u8>> {
    if len > LIMIT {
        skip(source, len).ok()?;
        return None;
    }
    let mut data = super::io::zeroes(len as usize).ok()?;
    let mut sum = [0; 4];
    source.read_exact(&mut data).and_then(|()| source.read_exact(&mut sum)).ok()?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&name);
    hasher.update(&data);
    (hasher.finalize() == u32::from_be_bytes(sum)).then_some(data)
}

fn carried(name: [u8; 4], fate: Fate, data: Vec<u8>, samples: Samples, palette: &[u8]) -> Carried {
    let shown = printable(&name);
    let kept = match fate {
        Fate::Kept(len, rests_on) if len == 0 || len == data.len() => Some((data, rests_on)),
        Fate::Background => background(&data, samples, palette).map(|data| (data, RestsOn::Values)),
        _ => None,
    };
    match kept {
        Some((data, rests_on)) => {
            Carried::new(Kind::PngChunk, shown, Value::Chunk(name, data), rests_on)
        }
        None => Carried::left_out(Kind::PngChunk, shown),
    }
}

/// Converts a background to the samples of the output: 8 or 16 bits of grey or RGB.
fn background(data: &[u8], Samples { depth, colour }: Samples, palette: &[u8]) -> Option<Vec<u8>> {
    let wide = |value: u8| [0, value];
    match (colour, data) {
        (3, &[index]) => {
            let [red, green, blue] = *palette.as_chunks::<3>().0.get(usize::from(index))?;
            Some([red, green, blue].map(wide).concat())
        }
        // Levels of fewer than 8 bits are scaled to 8 bits.
        (0, &[_, level]) if depth < 8 => {
            let greatest = (1u16 << depth) - 1;
            Some(wide((u16::from(level).min(greatest) * 255 / greatest) as u8).to_vec())
        }
        (0 | 4, [_, _]) | (2 | 6, [_, _, _, _, _, _]) => Some(data.to_vec()),
        _ => None,
    }
}

/// Whether a PNG with this number of channels can hold the chunk.
pub(crate) fn fits(name: [u8; 4], data: &[u8], channels: usize) -> bool {
    name != *b"bKGD" || data.len() == if channels < 3 { 2 } else { 6 }
}

/// The keyword of a text chunk that holds XMP data.
const XMP: &[u8] = b"XML:com.adobe.xmp\0";

fn text(name: [u8; 4], data: Vec<u8>, meta: &mut Meta) {
    let keyword = data.split(|&byte| byte == 0).next().unwrap_or_default();
    let shown = format!("{} ({})", printable(&name), printable(keyword));
    if let Some(packet) = xmp(name, &data)
        && meta.xmp.is_none()
        && xmp_is_kept(packet)
    {
        meta.xmp = Some(packet.to_vec());
        return;
    }
    // By ImageMagick's convention, compressed metadata of other formats, perhaps with a thumbnail.
    let other = keyword.starts_with(b"Raw profile type") || data.starts_with(XMP);
    meta.carried.push(match other {
        true => Carried::left_out(Kind::PngChunk, shown),
        false => Carried::new(Kind::PngChunk, shown, Value::Chunk(name, data), RestsOn::Nothing),
    });
}

/// The XMP data in a text chunk, if it is not compressed.
fn xmp(name: [u8; 4], data: &[u8]) -> Option<&[u8]> {
    let rest = (name == *b"iTXt").then(|| data.strip_prefix(XMP))??;
    // Two bytes of compression, a language and a translated keyword, each of which ends with 0.
    let mut parts = rest.strip_prefix(&[0, 0])?.splitn(3, |&byte| byte == 0);
    parts.nth(2)
}

/// XMP data as the data of an iTXt chunk.
pub(super) fn xmp_chunk(packet: &[u8]) -> Vec<u8> {
    [XMP, &[0, 0, 0, 0], packet].concat()
}
