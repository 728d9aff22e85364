//! The GIF reader and writer.

use std::io::BufReader;
use std::num::NonZero;

use apron::Scalar;
use gif::{ColorOutput, DecodeOptions, DisposalMethod, Encoder, Frame, MemoryLimit, Repeat};

use super::frames::{Disposal, Frames, Part};
use super::io::{Pages, Result, Sink, Source, said, zeroes};
use super::options::Reading;
use crate::carried::{Carried, Kind, RestsOn, Value, printable, xmp_is_kept};
use crate::meta::Meta;
use crate::picture::Document;

/// The quality of the palette's colours, from 1 (best) to 30: the encoder's default.
const SPEED: i32 = 10;

pub(super) fn read(source: &mut dyn Source, options: &Reading) -> Result<Document> {
    let reason = |error: gif::DecodingError| match error {
        gif::DecodingError::MemoryLimit | gif::DecodingError::OutOfMemory => {
            options.limits.exceeded()
        }
        error => said(&error),
    };
    let mut meta = Meta::default();
    // The decoder reports any error of the file.
    let _ = blocks(source, &mut meta);
    source.rewind().map_err(|error| said(&error))?;
    let mut decoding = DecodeOptions::new();
    decoding.set_color_output(ColorOutput::RGBA);
    let limit =
        NonZero::new(options.limits.max_bytes).map_or(MemoryLimit::Unlimited, MemoryLimit::Bytes);
    decoding.set_memory_limit(limit);
    let mut decoder = decoding.read_info(BufReader::new(source)).map_err(reason)?;
    let size = (decoder.width().into(), decoder.height().into());
    meta.set_profile(decoder.icc_profile().map(<[u8]>::to_vec), 3);
    if let Some(packet) = decoder.xmp_metadata() {
        match xmp_is_kept(packet) {
            true => meta.xmp = Some(packet.to_vec()),
            false => meta.carried.push(Carried::left_out(Kind::GifBlock, "XMP")),
        }
    }
    let mut frames = Frames::<u8>::new(Pages::new(options), size, meta)?;
    let mut failed = None;
    while !frames.pages.done() {
        match decoder.read_next_frame() {
            Ok(Some(frame)) => {
                frames.push(part(frame), &frame.buffer, f64::from(frame.delay) * 10.0)?
            }
            Ok(None) => break,
            Err(error) => {
                failed = Some(reason(error));
                break;
            }
        }
    }
    // The number in the file counts the repetitions after the first showing.
    let plays = match decoder.repeat() {
        Repeat::Infinite => 0,
        Repeat::Finite(again) => u32::from(again) + 1,
    };
    frames.finish(3, plays, failed)
}

/// Adds to `meta` the data that the decoder does not use, up to the end or the first damage.
fn blocks(source: &mut dyn Source, meta: &mut Meta) -> std::io::Result<()> {
    let palette = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let mut screen = [0; 13];
    source.read_exact(&mut screen)?;
    if screen[12] != 0 {
        meta.carried.push(Carried::left_out(
            Kind::Phrase,
            "the aspect ratio of its pixels, which are not square",
        ));
    }
    source.seek_relative(palette(screen[10]))?;
    loop {
        let mut head = [0; 2];
        source.read_exact(&mut head[..1])?;
        match head[0] {
            0x21 => {
                source.read_exact(&mut head[1..])?;
                let data = sub_blocks(source)?;
                let first = data.first().map_or(&[][..], |first| first);
                let carried = match head[1] {
                    0xf9 => continue,
                    0xfe => Carried::new(
                        Kind::GifBlock,
                        "comment",
                        Value::Comment(data.concat()),
                        RestsOn::Nothing,
                    ),
                    0xff if matches!(
                        first,
                        b"NETSCAPE2.0" | b"ANIMEXTS1.0" | b"XMP DataXMP" | b"ICCRGBG1012"
                    ) =>
                    {
                        continue;
                    }
                    0xff => Carried::left_out(Kind::GifBlock, printable(first)),
                    0x01 => Carried::left_out(Kind::GifBlock, "plain text"),
                    label => Carried::left_out(Kind::GifBlock, format!("{label:#04x}")),
                };
                meta.carried.push(carried);
            }
            0x2c => {
                let mut place = [0; 9];
                source.read_exact(&mut place)?;
                source.seek_relative(palette(place[8]) + 1)?;
                while let len @ 1.. = byte(source)? {
                    source.seek_relative(len.into())?;
                }
            }
            _ => return Ok(()),
        }
    }
}

fn byte(source: &mut dyn Source) -> std::io::Result<u8> {
    let mut byte = [0];
    source.read_exact(&mut byte)?;
    Ok(byte[0])
}

/// The parts of an extension, each of up to 255 bytes.
fn sub_blocks(source: &mut dyn Source) -> std::io::Result<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    while let len @ 1.. = byte(source)? {
        let mut part = vec![0; len.into()];
        source.read_exact(&mut part)?;
        parts.push(part);
    }
    Ok(parts)
}

fn part(frame: &Frame<'_>) -> Part {
    Part {
        x: frame.left.into(),
        y: frame.top.into(),
        width: frame.width.into(),
        height: frame.height.into(),
        over: true,
        disposal: match frame.dispose {
            DisposalMethod::Any | DisposalMethod::Keep => Disposal::Keep,
            DisposalMethod::Background => Disposal::Clear,
            DisposalMethod::Previous => Disposal::Restore,
        },
    }
}

pub(crate) fn write(document: &Document, out: &mut dyn Sink) -> Result<()> {
    let shape = document.first().pixels.shape();
    let (Ok(width), Ok(height)) = (u16::try_from(shape.width), u16::try_from(shape.height)) else {
        return Err(format!(
            "{}x{} pixels are more than the 65535 a side that GIF holds",
            shape.width, shape.height
        ));
    };
    let said = |error: gif::EncodingError| error.to_string();
    let mut encoder = Encoder::new(out, width, height, &[]).map_err(said)?;
    if document.pages.len() > 1 {
        // Without this block, an animation is shown once.
        match document.plays.unwrap_or(0) {
            0 => encoder.set_repeat(Repeat::Infinite).map_err(said)?,
            1 => {}
            plays => encoder
                .set_repeat(Repeat::Finite(u16::try_from(plays - 1).unwrap_or(u16::MAX)))
                .map_err(said)?,
        }
    }
    for carried in &document.first().meta.carried {
        if let Some(Value::Comment(comment)) = &carried.value {
            let parts: Vec<_> = comment.chunks(255).collect();
            encoder.write_raw_extension(gif::Extension::Comment.into(), &parts).map_err(said)?;
        }
    }
    for page in &document.pages {
        debug_assert_eq!(page.pixels.scalar(), Scalar::U8);
        let mut frame = if page.pixels.shape().channels == 4 {
            let mut values = zeroes::<u8>(page.pixels.bytes().len())?;
            values.copy_from_slice(page.pixels.bytes());
            Frame::from_rgba_speed(width, height, &mut values, SPEED)
        } else {
            Frame::from_rgb_speed(width, height, page.pixels.bytes(), SPEED)
        };
        // Every frame is a whole picture, so the frame before must not show through.
        frame.dispose = DisposalMethod::Background;
        if document.pages.len() > 1 {
            frame.delay = (page.shown_for() / 10.0).round().min(65535.0) as u16;
        }
        encoder.write_frame(&frame).map_err(said)?;
    }
    encoder.into_inner().map(drop).map_err(said)
}
