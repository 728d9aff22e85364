//! WebP, and its animations. Both are written without loss.

use std::io::BufReader;

use apron::Shape;
use image_webp::{ColorType, DecodingError, LoopCount, WebPDecoder, WebPEncoder};

use super::gif::without_needless_alpha;
use super::other::meta;
use super::{Pages, Reading, Result, Sink, Source, damaged, image_of, kept_in_part, said, zeroes};
use crate::exif;
use crate::extra::straight;
use crate::picture::{Document, Picture, Pixels};

pub(super) fn read(source: &mut dyn Source, options: &Reading) -> Result<Document> {
    let limits = &options.limits;
    let reason = |error| match error {
        DecodingError::MemoryLimitExceeded => limits.exceeded(),
        error => said(&error),
    };
    let mut decoder = WebPDecoder::new(BufReader::new(source)).map_err(reason)?;
    decoder.set_memory_limit(usize::try_from(limits.max_bytes).unwrap_or(usize::MAX));
    let (width, height) = decoder.dimensions();
    let alpha = decoder.has_alpha();
    let channels = if alpha { 4 } else { 3 };
    let mut pages = Pages::new(options);
    pages.check(width.into(), height.into(), channels as u64)?;
    let icc = decoder.icc_profile().map_err(reason)?;
    let meta = meta(decoder.exif_metadata().ok().flatten().as_deref(), icc, channels);
    let len = width as usize * height as usize * channels;
    let page = |values, delay| {
        let pixels = Pixels::U8(image_of(values, width, height, channels)?);
        Ok::<_, String>(Picture { extras: straight(alpha), delay, meta: meta.clone(), ..Picture::new(pixels) })
    };

    if !decoder.is_animated() {
        let mut values = zeroes::<u8>(len)?;
        let failed = decoder.read_image(&mut values).map_err(reason).err();
        pages.push(page(values, None)?);
        let mut document = pages.finish(None, None)?;
        return match failed {
            Some(reason) if !options.lenient => Err(damaged(&reason)),
            failed => {
                document.notes.extend(failed.map(|reason| kept_in_part(&reason)));
                Ok(document)
            }
        };
    }
    let plays = match decoder.loop_count() {
        LoopCount::Forever => 0,
        LoopCount::Times(times) => u32::from(times.get()),
    };
    let mut failed = None;
    for _ in 0..decoder.num_frames() {
        if pages.done() {
            break;
        }
        pages.check(width.into(), height.into(), channels as u64)?;
        let mut values = zeroes::<u8>(len)?;
        match decoder.read_frame(&mut values) {
            Ok(_) if !pages.wants() => pages.skip(),
            Ok(delay) => pages.push(page(values, Some(f64::from(delay)))?),
            Err(error) => {
                failed = Some(reason(error));
                break;
            }
        }
    }
    let document = pages.finish(Some(plays), failed)?;
    if alpha { without_needless_alpha(document, channels) } else { Ok(document) }
}

pub(crate) fn write(document: &Document, out: &mut dyn Sink) -> Result<()> {
    let first = document.first();
    let shape = first.pixels.shape();
    if shape.width > 16_384 || shape.height > 16_384 {
        return Err(format!("{}x{} pixels are more than the 16384 a side that WebP holds", shape.width, shape.height));
    }
    let fields = exif::write(&first.meta, shape.width, shape.height).unwrap_or_default();
    // Grey becomes RGB, which a profile for grey does not describe.
    let profile = first.meta.icc.clone().filter(|_| shape.channels >= 3).unwrap_or_default();
    if document.pages.len() == 1 {
        let mut encoder = WebPEncoder::new(out);
        encoder.set_icc_profile(profile);
        encoder.set_exif_metadata(fields);
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

/// An animation of whole frames, as in <https://developers.google.com/speed/webp/docs/riff_container>.
fn animation(document: &Document, shape: Shape, profile: &[u8], fields: &[u8]) -> Result<Vec<u8>> {
    let alpha = matches!(shape.channels, 2 | 4);
    let flag = |bit: u8, set: bool| u8::from(set) << bit;
    let flags = flag(1, true) | flag(3, !fields.is_empty()) | flag(4, alpha) | flag(5, !profile.is_empty());
    let three = |value: usize| (value as u32).to_le_bytes()[..3].to_vec();
    let extents = [three(shape.width - 1), three(shape.height - 1)].concat();
    let mut file = b"RIFF\0\0\0\0WEBP".to_vec();
    chunk(&mut file, b"VP8X", &[&[flags, 0, 0, 0][..], &extents].concat());
    if !profile.is_empty() {
        chunk(&mut file, b"ICCP", profile);
    }
    let plays = u16::try_from(document.plays.unwrap_or(0)).unwrap_or(u16::MAX);
    // No colour behind the frames.
    chunk(&mut file, b"ANIM", &[&[0; 4][..], &plays.to_le_bytes()].concat());
    for page in &document.pages {
        let mut still = Vec::new();
        encode(WebPEncoder::new(&mut still), page)?;
        let delay = (page.shown_for().round() as usize).min(0xff_ffff);
        // At the corner; it replaces what was there.
        let header = [&[0; 6][..], &extents, &three(delay), &[0b10]].concat();
        // A still without metadata is the file's header and one chunk.
        chunk(&mut file, b"ANMF", &[&header[..], &still[12..]].concat());
    }
    if !fields.is_empty() {
        chunk(&mut file, b"EXIF", fields);
    }
    let len = u32::try_from(file.len() - 8).map_err(|_| "an animation of more than 4 GiB is no WebP".to_owned())?;
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
