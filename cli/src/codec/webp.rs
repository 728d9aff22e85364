//! WebP and its animations. Both are written losslessly.

use std::io::{BufReader, Cursor, SeekFrom};

use apron::Shape;
use image_webp::{ColorType, DecodingError, LoopCount, WebPDecoder, WebPEncoder};

use super::frames::{Disposal, Frames, Part, as_rgba};
use super::io::{Pages, Result, Sink, Source, damaged, image_of, kept_in_part, said, zeroes};
use super::options::Reading;
use super::other::meta;
use crate::carried::{Carried, Kind, printable, xmp_is_kept};
use crate::exif;
use crate::extra::straight;
use crate::limits::Limits;
use crate::picture::{Document, Picture, Pixels};

pub(super) fn read(source: &mut dyn Source, options: &Reading) -> Result<Document> {
    let limits = &options.limits;
    let reason = |error| match error {
        DecodingError::MemoryLimitExceeded => limits.exceeded(),
        error => said(&error),
    };
    let mut decoder = WebPDecoder::new(BufReader::new(&mut *source)).map_err(reason)?;
    decoder.set_memory_limit(usize::try_from(limits.max_bytes).unwrap_or(usize::MAX));
    let (width, height) = decoder.dimensions();
    let alpha = decoder.has_alpha();
    let channels = if alpha { 4 } else { 3 };
    let mut pages = Pages::new(options);
    pages.check(width.into(), height.into(), channels as u64)?;
    let icc = decoder.icc_profile().map_err(reason)?;
    let mut meta = meta(decoder.exif_metadata().ok().flatten().as_deref(), icc, channels);
    if let Some(packet) = decoder.xmp_metadata().map_err(reason)? {
        match xmp_is_kept(&packet) {
            true => meta.xmp = Some(packet),
            false => meta.carried.push(Carried::left_out(Kind::WebpChunk, "XMP")),
        }
    }
    let (animated, plays) = match decoder.loop_count() {
        _ if !decoder.is_animated() => (false, 0),
        LoopCount::Forever => (true, 0),
        LoopCount::Times(times) => (true, times.get().into()),
    };
    drop(decoder);
    let parts = chunks(source)?;
    let known = [b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"ICCP", b"EXIF", b"XMP "];
    let unknown = parts.iter().filter(|chunk| !known.contains(&&chunk.name));
    meta.carried
        .extend(unknown.map(|chunk| Carried::left_out(Kind::WebpChunk, printable(&chunk.name))));
    if !animated {
        source.rewind().map_err(|error| error.to_string())?;
        let mut decoder = WebPDecoder::new(BufReader::new(source)).map_err(reason)?;
        decoder.set_memory_limit(usize::try_from(limits.max_bytes).unwrap_or(usize::MAX));
        let mut values = zeroes::<u8>(width as usize * height as usize * channels)?;
        let failed = decoder.read_image(&mut values).map_err(reason).err();
        let pixels = Pixels::U8(image_of(values, width, height, channels)?);
        pages.push(Picture { extras: straight(alpha), meta, ..Picture::new(pixels) });
        let mut document = pages.finish(None, None)?;
        return match failed {
            Some(reason) if !options.lenient => Err(damaged(&reason)),
            failed => {
                document.notes.extend(failed.map(|reason| kept_in_part(&reason)));
                Ok(document)
            }
        };
    }
    let mut frames = Frames::<u8>::new(pages, (width, height), meta)?;
    let mut failed = None;
    for chunk in parts.iter().filter(|chunk| chunk.name == *b"ANMF") {
        if frames.pages.done() {
            break;
        }
        match chunk.data(source, limits).and_then(|data| frame(&data, limits)) {
            Ok((part, delay, pixels)) => frames.push(part, &pixels, delay)?,
            Err(reason) => {
                failed = Some(reason);
                break;
            }
        }
    }
    frames.finish(channels, plays, failed)
}

/// A RIFF chunk.
struct Chunk {
    name: [u8; 4],
    at: u64,
    len: u32,
}

impl Chunk {
    fn data(&self, source: &mut dyn Source, limits: &Limits) -> Result<Vec<u8>> {
        if u64::from(self.len) > limits.max_bytes {
            return Err(limits.exceeded());
        }
        let mut data = zeroes(self.len as usize)?;
        source
            .seek(SeekFrom::Start(self.at))
            .and_then(|_| source.read_exact(&mut data))
            .map_err(|error| said(&error))?;
        Ok(data)
    }
}

/// The chunks of a file. The last one may be cut off.
fn chunks(source: &mut dyn Source) -> Result<Vec<Chunk>> {
    let io = |error: std::io::Error| error.to_string();
    let end = source.seek(SeekFrom::End(0)).map_err(io)?;
    let mut header = [0; 8];
    source
        .seek(SeekFrom::Start(4))
        .and_then(|_| source.read_exact(&mut header))
        .map_err(|error| said(&error))?;
    let end = end.min(8 + u64::from(u32_of(header)));
    let (mut found, mut at) = (Vec::new(), 12);
    while at + 8 <= end {
        source
            .seek(SeekFrom::Start(at))
            .and_then(|_| source.read_exact(&mut header))
            .map_err(io)?;
        let [a, b, c, d, len @ ..] = header;
        let len = u32::from_le_bytes(len);
        found.push(Chunk { name: [a, b, c, d], at: at + 8, len });
        at += 8 + u64::from(len) + u64::from(len % 2);
    }
    Ok(found)
}

fn u32_of([a, b, c, d, ..]: [u8; 8]) -> u32 {
    u32::from_le_bytes([a, b, c, d])
}

/// Decodes a frame of an animation: its position, its duration in milliseconds, and RGBA.
///
/// The decoder's own composition ignores disposal and is off by one, so this function passes each
/// frame to the decoder as a still picture.
fn frame(data: &[u8], limits: &Limits) -> Result<(Part, f64, Vec<u8>)> {
    let (header, bitstream) = data.split_at_checked(16).ok_or("a frame is cut off")?;
    let three = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], 0]);
    let (width, height) = (three(6) + 1, three(9) + 1);
    let mut still = b"RIFF\0\0\0\0WEBP".to_vec();
    if bitstream.starts_with(b"ALPH") {
        // Only extended files may have alpha beside a lossy picture.
        chunk(&mut still, b"VP8X", &[&[0b1_0000, 0, 0, 0][..], &header[6..12]].concat());
    }
    still.extend_from_slice(bitstream);
    let len = still.len() as u32 - 8;
    still[4..8].copy_from_slice(&len.to_le_bytes());
    let failed = |error| match error {
        DecodingError::MemoryLimitExceeded => limits.exceeded(),
        error => said(&error),
    };
    let mut decoder = WebPDecoder::new(Cursor::new(&still)).map_err(failed)?;
    decoder.set_memory_limit(usize::try_from(limits.max_bytes).unwrap_or(usize::MAX));
    if decoder.is_animated() || decoder.dimensions() != (width, height) {
        return Err("a frame's picture differs in size from the frame".to_owned());
    }
    let channels = if decoder.has_alpha() { 4 } else { 3 };
    let bytes = u64::from(width) * u64::from(height) * channels;
    limits.check(width.into(), height.into(), channels)?;
    let mut pixels = zeroes::<u8>(bytes as usize)?;
    decoder.read_image(&mut pixels).map_err(failed)?;
    let part = Part {
        x: 2 * three(0) as usize,
        y: 2 * three(3) as usize,
        width: width as usize,
        height: height as usize,
        over: header[15] & 0b10 == 0,
        disposal: if header[15] & 1 == 0 { Disposal::Keep } else { Disposal::Clear },
    };
    let rgba = if channels == 4 { pixels } else { as_rgba(&pixels, 3)? };
    Ok((part, f64::from(three(12)), rgba))
}

pub(crate) fn write(document: &Document, out: &mut dyn Sink) -> Result<()> {
    let first = document.first();
    let shape = first.pixels.shape();
    if shape.width > 16_384 || shape.height > 16_384 {
        return Err(format!(
            "{}x{} pixels are more than the 16384 a side that WebP holds",
            shape.width, shape.height
        ));
    }
    let fields = exif::write(&first.meta, shape.width, shape.height).unwrap_or_default();
    // Grey is written as RGB, to which a grey profile does not apply.
    let profile = first.meta.icc.clone().filter(|_| shape.channels >= 3).unwrap_or_default();
    if document.pages.len() == 1 {
        let mut encoder = WebPEncoder::new(out);
        encoder.set_icc_profile(profile);
        encoder.set_exif_metadata(fields);
        encoder.set_xmp_metadata(first.meta.xmp.clone().unwrap_or_default());
        return encode(encoder, first);
    }
    animation(document, shape, &profile, &fields)
        .and_then(|file| out.write_all(&file).map_err(|error| error.to_string()))
}

fn encode<W: std::io::Write>(encoder: WebPEncoder<W>, picture: &Picture) -> Result<()> {
    let shape = picture.pixels.shape();
    let colour = match shape.channels {
        1 => ColorType::L8,
        2 => ColorType::La8,
        3 => ColorType::Rgb8,
        _ => ColorType::Rgba8,
    };
    encoder
        .encode(picture.pixels.bytes(), shape.width as u32, shape.height as u32, colour)
        .map_err(|error| error.to_string())
}

/// An animation of whole frames, as in
/// <https://developers.google.com/speed/webp/docs/riff_container>.
fn animation(document: &Document, shape: Shape, profile: &[u8], fields: &[u8]) -> Result<Vec<u8>> {
    let alpha = matches!(shape.channels, 2 | 4);
    let flag = |bit: u8, set: bool| u8::from(set) << bit;
    let packet = document.first().meta.xmp.as_deref().unwrap_or_default();
    let metadata =
        flag(2, !packet.is_empty()) | flag(3, !fields.is_empty()) | flag(5, !profile.is_empty());
    let flags = flag(1, true) | flag(4, alpha) | metadata;
    let three = |value: usize| (value as u32).to_le_bytes()[..3].to_vec();
    let extents = [three(shape.width - 1), three(shape.height - 1)].concat();
    let mut file = b"RIFF\0\0\0\0WEBP".to_vec();
    chunk(&mut file, b"VP8X", &[&[flags, 0, 0, 0][..], &extents].concat());
    if !profile.is_empty() {
        chunk(&mut file, b"ICCP", profile);
    }
    let plays = u16::try_from(document.plays.unwrap_or(0)).unwrap_or(u16::MAX);
    // A transparent background.
    chunk(&mut file, b"ANIM", &[&[0; 4][..], &plays.to_le_bytes()].concat());
    for page in &document.pages {
        let mut still = Vec::new();
        encode(WebPEncoder::new(&mut still), page)?;
        let delay = (page.shown_for().round() as usize).min(0xff_ffff);
        // The frame covers the whole canvas and replaces it.
        let header = [&[0; 6][..], &extents, &three(delay), &[0b10]].concat();
        // A still picture without metadata is the file's header and one chunk.
        chunk(&mut file, b"ANMF", &[&header[..], &still[12..]].concat());
    }
    if !fields.is_empty() {
        chunk(&mut file, b"EXIF", fields);
    }
    if !packet.is_empty() {
        chunk(&mut file, b"XMP ", packet);
    }
    let len = u32::try_from(file.len() - 8)
        .map_err(|_| "the animation takes more than the 4 GiB that WebP holds".to_owned())?;
    file[4..8].copy_from_slice(&len.to_le_bytes());
    Ok(file)
}

fn chunk(file: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    file.extend(name);
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    if data.len() % 2 == 1 {
        file.push(0);
    }
}
