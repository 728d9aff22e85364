//! GIF, and what animations of every format have in common.

use std::io::BufReader;

use apron::{Image, Scalar};
use gif::{DisposalMethod, Encoder, Frame, Repeat};
use image::codecs::gif::GifDecoder;
use image::{AnimationDecoder, Frames, ImageDecoder};

use super::other::{allowed, explained};
use super::{Pages, Reading, Result, Sink, Source, image_of, zeroes};
use crate::extra::straight;
use crate::picture::{Document, Meta, Picture, Pixels};

/// How thoroughly colours are chosen for the palette: 1 to 30, the encoder's own default.
const SPEED: i32 = 10;

pub(super) fn read(source: &mut dyn Source, options: &Reading) -> Result<Document> {
    let failed = |error| explained(error, &options.limits);
    let plays = plays(source);
    source.rewind().map_err(|error| error.to_string())?;
    let mut decoder = GifDecoder::new(BufReader::new(source)).map_err(failed)?;
    decoder.set_limits(allowed(&options.limits)).map_err(failed)?;
    let size = decoder.dimensions();
    let icc = decoder.icc_profile().ok().flatten();
    let meta = Meta { icc: icc.filter(|profile| super::describes(profile, 3)), ..Meta::default() };
    frames(decoder.into_frames(), size, 3, meta, plays, options)
}

/// How often an animation is shown: its number says how often it is shown again.
fn plays(source: &mut dyn Source) -> u32 {
    let decoder = gif::DecodeOptions::new().read_info(source).and_then(|mut decoder| {
        decoder.next_frame_info()?;
        Ok(decoder)
    });
    match decoder.map(|decoder| decoder.repeat()) {
        Ok(Repeat::Infinite) => 0,
        Ok(Repeat::Finite(again)) => u32::from(again) + 1,
        // Reading the frames will say what is wrong.
        Err(_) => 1,
    }
}

/// Reads the frames of an animation, each as it is shown. They have as many channels as the file says, or alpha in addition
/// if one of them is not opaque.
pub(super) fn frames(
    all: Frames<'_>,
    (width, height): (u32, u32),
    channels: usize,
    meta: Meta,
    plays: u32,
    options: &Reading,
) -> Result<Document> {
    let mut pages = Pages::new(options);
    let mut failed = None;
    let mut all = all.into_iter();
    pages.check(width.into(), height.into(), 4)?;
    while !pages.done() {
        match all.next() {
            None => break,
            Some(Err(error)) => {
                failed = Some(explained(error, &options.limits));
                break;
            }
            Some(Ok(_)) if !pages.wants() => pages.skip(),
            Some(Ok(frame)) => {
                pages.check(width.into(), height.into(), 4)?;
                let (num, denom) = frame.delay().numer_denom_ms();
                let values = frame.into_buffer().into_raw();
                let pixels = Pixels::U8(image_of(values, width, height, 4)?);
                let delay = Some(f64::from(num) / f64::from(denom.max(1)));
                pages.push(Picture { extras: straight(true), delay, meta: meta.clone(), ..Picture::new(pixels) });
            }
        }
    }
    without_needless_alpha(pages.finish(Some(plays), failed)?, channels)
}

/// Drops alpha if every pixel is opaque; grey becomes one channel again.
pub(super) fn without_needless_alpha(document: Document, channels: usize) -> Result<Document> {
    let opaque = document.pages.iter().all(|page| match &page.pixels {
        Pixels::U8(image) => image.as_slice().chunks_exact(4).all(|pixel| pixel[3] == 255),
        _ => false,
    });
    if !opaque {
        return Ok(document);
    }
    let kept = if channels < 3 { 1 } else { 3 };
    document.map(|page| {
        let shape = page.pixels.shape();
        let mut values = zeroes::<u8>(shape.width * shape.height * kept)?;
        for (to, from) in values.chunks_exact_mut(kept).zip(page.pixels.bytes().chunks_exact(4)) {
            to.copy_from_slice(&from[..kept]);
        }
        let image: Image<u8> = image_of(values, shape.width as u32, shape.height as u32, kept)?;
        Ok(Picture { pixels: Pixels::U8(image), extras: straight(false), channel_axis: kept > 1, ..page })
    })
}

pub(crate) fn write(document: &Document, out: &mut dyn Sink) -> Result<()> {
    let shape = document.first().pixels.shape();
    let (Ok(width), Ok(height)) = (u16::try_from(shape.width), u16::try_from(shape.height)) else {
        return Err(format!("{}x{} pixels are more than the 65535 a side that GIF holds", shape.width, shape.height));
    };
    let said = |error: gif::EncodingError| error.to_string();
    let mut encoder = Encoder::new(out, width, height, &[]).map_err(said)?;
    if document.pages.len() > 1 {
        // Without this block, an animation is shown once.
        match document.plays.unwrap_or(0) {
            0 => encoder.set_repeat(Repeat::Infinite).map_err(said)?,
            1 => {}
            plays => encoder.set_repeat(Repeat::Finite(u16::try_from(plays - 1).unwrap_or(u16::MAX))).map_err(said)?,
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
        // Every frame is whole: what was there before must not show through.
        frame.dispose = DisposalMethod::Background;
        if document.pages.len() > 1 {
            frame.delay = (page.shown_for() / 10.0).round().min(65535.0) as u16;
        }
        encoder.write_frame(&frame).map_err(said)?;
    }
    encoder.into_inner().map(drop).map_err(said)
}
