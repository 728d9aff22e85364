//! The samples of a page of a TIFF, of all number types.

use ::tiff::ColorType;
use ::tiff::decoder::DecodingResult;
use ::tiff::decoder::ifd::Value;
use ::tiff::tags::{CompressionMethod, ExtraSamples, PhotometricInterpretation, Tag};
use apron::Extra;

use super::io::{Pages, Result, Wide, image_of, kept_in_part, said, widened, zeroes};
use super::tiff::{Refused, limits, meta};
use super::tiff_edit::{Chunks, Edit, Luma, Palette, Tiff, coloured, edit};
use super::tiff_edit::{is_packed, samples, unpacked};
use crate::picture::{Picture, Pixels, Stored};

/// What the tags say of the samples.
struct Facts {
    width: u32,
    height: u32,
    /// Samples of a pixel.
    held: u16,
    bits: u8,
    photometric: u16,
    compression: u16,
    /// Whether each sample has a plane of its own.
    planar: bool,
    /// The width and the height of a tile, if there are tiles.
    tile: Option<(u32, u32)>,
    /// Whether the first bit of a byte is its lowest one.
    reversed: bool,
    /// The colours of the levels.
    palette: Option<Palette>,
    luma: Luma,
}

impl Facts {
    fn of(decoder: &mut Tiff<'_>) -> Result<Self, Refused> {
        let (width, height) = decoder.dimensions()?;
        let number = |decoder: &mut Tiff<'_>, tag, default| {
            decoder.find_tag_unsigned::<u16>(tag).map(|found| found.unwrap_or(default))
        };
        let bits = decoder.find_tag_unsigned_vec::<u16>(Tag::BitsPerSample)?.unwrap_or_default();
        let bits = u8::try_from(bits.first().copied().unwrap_or(1)).unwrap_or(u8::MAX);
        let photometric = number(decoder, Tag::PhotometricInterpretation, 1)?;
        let held = number(decoder, Tag::SamplesPerPixel, 1)?;
        let across = decoder.find_tag_unsigned::<u32>(Tag::TileWidth)?;
        let palette = if photometric == PhotometricInterpretation::RGBPalette.to_u16() {
            if held != 1 || !matches!(bits, 1 | 2 | 4 | 8 | 16) {
                let text = format!("a TIFF with a palette, {held} samples and {bits} bits");
                return Err(Refused::AsItIs(text + " cannot be read"));
            }
            let map = decoder.find_tag_unsigned_vec::<u16>(Tag::ColorMap)?.unwrap_or_default();
            Some(Palette::new(map, bits)?)
        } else {
            None
        };
        Ok(Self {
            width,
            height,
            held,
            bits,
            photometric,
            compression: number(decoder, Tag::Compression, 1)?,
            planar: number(decoder, Tag::PlanarConfiguration, 1)? == 2,
            tile: across.zip(decoder.find_tag_unsigned::<u32>(Tag::TileLength)?),
            reversed: number(decoder, Tag::FillOrder, 1)? == 2,
            palette,
            luma: luma(decoder),
        })
    }

    fn is(&self, photometric: PhotometricInterpretation) -> bool {
        self.photometric == photometric.to_u16()
    }

    /// Whether the decoder does not read samples of these bits.
    fn is_odd(&self) -> bool {
        let grey = self.held == 1 && matches!(self.bits, 1 | 2 | 4);
        self.bits < 16 && self.bits != 8 && !grey
    }

    /// Samples of a pixel in a strip or tile.
    fn together(&self) -> u64 {
        if self.planar { 1 } else { self.held.into() }
    }

    /// Bytes of a row of a strip or tile, of this width.
    fn row_bytes(&self, width: u32) -> u64 {
        (u64::from(width) * self.together()).saturating_mul(self.bits.into()).div_ceil(8)
    }

    /// The samples of the picture, and bytes of each.
    fn result(&self) -> (usize, u64) {
        match &self.palette {
            Some(palette) => (3, if palette.bytes().is_some() { 1 } else { 2 }),
            None => (self.held.into(), u64::from(self.bits.div_ceil(8)).next_power_of_two()),
        }
    }

    /// The changes that make the decoder read all samples, as they are.
    fn edits(&self, decoder: &mut Tiff<'_>) -> Result<Vec<(Tag, Edit)>, Refused> {
        let grey = PhotometricInterpretation::BlackIsZero.to_u16();
        let grey = (Tag::PhotometricInterpretation, Edit::Short(grey));
        if self.palette.is_some() {
            return Ok(vec![grey]);
        }
        if self.is_odd() {
            return self.as_bytes(decoder, grey);
        }
        // The decoder drops or refuses samples after the colours that are not alpha. Of grey, it
        // reads every sample.
        let coloured = self.is(PhotometricInterpretation::RGB) && self.held > 3
            || self.is(PhotometricInterpretation::CMYK) && self.held > 4;
        let every = |colour: ColorType| {
            colour.num_samples() == self.held && !matches!(colour, ColorType::CMYKA(_))
        };
        let dropped = coloured && !decoder.colortype().is_ok_and(every);
        Ok(if dropped { vec![grey] } else { Vec::new() })
    }

    /// The changes that make the decoder read the rows' bytes.
    fn as_bytes(
        &self,
        decoder: &mut Tiff<'_>,
        grey: (Tag, Edit),
    ) -> Result<Vec<(Tag, Edit)>, Refused> {
        let whole = |value: u16| value == 1;
        let plain = decoder.find_tag_unsigned::<u16>(Tag::Predictor)?.is_none_or(whole)
            && decoder
                .find_tag_unsigned_vec::<u16>(Tag::SampleFormat)?
                .is_none_or(|formats| formats.iter().all(|&format| format == 1))
            && self.compression != CompressionMethod::ModernJPEG.to_u16()
            && (!self.planar || self.held == 1)
            && self.photometric <= 5;
        let tile = self.tile.map_or(0, |(width, _)| width);
        let bits = u64::from(tile) * self.together() * u64::from(self.bits);
        let row = match tile {
            0 => self.row_bytes(self.width),
            _ => self.row_bytes(tile) * u64::from(self.width.div_ceil(tile)),
        };
        let (Ok(row), Ok(tile)) = (u32::try_from(row), u32::try_from(self.row_bytes(tile))) else {
            return Err(Refused::AsItIs("a row of this TIFF has more than 4 GiB".to_owned()));
        };
        if !plain || !bits.is_multiple_of(8) {
            return Err(Refused::AsItIs(format!(
                "a TIFF of {} bits with a predictor, JPEG, planes, signed numbers or tiles of odd \
                 width cannot be read",
                self.bits
            )));
        }
        Ok(vec![
            grey,
            (Tag::ImageWidth, Edit::Long(row)),
            (Tag::TileWidth, Edit::Long(tile)),
            (Tag::BitsPerSample, Edit::Short(8)),
            (Tag::SamplesPerPixel, Edit::Short(1)),
            (Tag::ExtraSamples, Edit::Hide),
            (Tag::SampleFormat, Edit::Hide),
        ])
    }

    /// The strips or tiles.
    fn chunks(&self, decoder: &mut Tiff<'_>) -> Result<Chunks, Refused> {
        let mut list = |tag| decoder.find_tag_unsigned_vec::<u64>(tag);
        let (offsets, lengths) = match self.tile {
            Some(_) => (list(Tag::TileOffsets)?, list(Tag::TileByteCounts)?),
            None => (list(Tag::StripOffsets)?, list(Tag::StripByteCounts)?),
        };
        let (offsets, lengths) = (offsets.unwrap_or_default(), lengths.unwrap_or_default());
        let rows = decoder.find_tag_unsigned::<u32>(Tag::RowsPerStrip)?.unwrap_or(self.height);
        let rows = rows.clamp(1, self.height.max(1));
        let of_plane = u64::from(self.height.div_ceil(rows)).max(1);
        let bytes = |number: u64| match self.tile {
            Some((width, height)) => self.row_bytes(width).saturating_mul(height.into()),
            None => {
                let above = number % of_plane * u64::from(rows);
                let rows = u64::from(self.height).saturating_sub(above).min(rows.into());
                self.row_bytes(self.width).saturating_mul(rows)
            }
        };
        let bytes = (0..offsets.len() as u64).map(bytes).collect();
        Ok(Chunks { offsets, lengths, bytes, compression: self.compression })
    }
}

/// How luma and chroma are to be understood.
fn luma(decoder: &mut Tiff<'_>) -> Luma {
    let mut list = |tag| match decoder.find_tag(tag) {
        Ok(Some(Value::List(values))) => values.iter().map(real).collect::<Option<Vec<f64>>>(),
        _ => None,
    };
    let mut luma = Luma::DEFAULT;
    if let Some(&[red, green, blue]) = list(Tag::from_u16_exhaustive(529)).as_deref() {
        luma.weights = [red, green, blue];
    }
    if let Some(Ok(codes)) = list(Tag::from_u16_exhaustive(532)).map(TryInto::try_into) {
        luma.codes = codes;
    }
    let [red, green, blue] = luma.weights;
    let ranges = luma.codes.as_chunks::<2>().0.iter().all(|[zero, full]| zero != full);
    if ranges && green > 0.0 && red >= 0.0 && blue >= 0.0 { luma } else { Luma::DEFAULT }
}

fn real(value: &Value) -> Option<f64> {
    match *value {
        Value::Rational(_, 0) => None,
        Value::Rational(num, denom) => Some(f64::from(num) / f64::from(denom)),
        Value::Unsigned(value) => Some(value.into()),
        Value::Short(value) => Some(value.into()),
        _ => None,
    }
}

/// Reads the decoder's current picture.
pub(super) fn read(
    decoder: &mut Tiff<'_>,
    pages: &Pages<'_>,
) -> Result<(Picture, Option<String>), Refused> {
    let facts = Facts::of(decoder)?;
    let Facts { width, height, .. } = facts;
    let said_extras = extra_samples(decoder);
    let colours = match facts.photometric {
        0 | 1 => 1,
        // Separated colours, as CMYK.
        5 => 4,
        _ => 3,
    };
    let mut meta = meta(decoder, colours, pages.options.page.is_some());
    let (samples, bytes) = facts.result();
    pages.check(width.into(), height.into(), samples as u64 * bytes)?;
    let mut note = prepare(decoder, &facts, pages)?;
    let colour = decoder.colortype()?;
    match colour {
        ColorType::Gray(1 | 2 | 4 | 8..) | ColorType::CMYK(8 | 16) | ColorType::YCbCr(8) => {}
        ColorType::GrayA(8..)
        | ColorType::RGB(8..)
        | ColorType::RGBA(8..)
        | ColorType::Multiband { bit_depth: 8.., .. } => {}
        _ => return Err(Refused::AsItIs(format!("a TIFF of {colour:?} cannot be read"))),
    }
    let (pixels, stored, damage) = pixels(decoder, &facts, pages)?;
    note = damage.or(note);
    let channels = pixels.shape().channels;
    if facts.is_odd() {
        meta.values_changed();
        let wide = if facts.bits < 8 { 8 } else { 16 };
        note =
            note.or_else(|| Some(format!("{} bits became {wide}: white stays white", facts.bits)));
    }
    let held = usize::from(facts.held);
    if held > channels && note.is_none() {
        note = Some(format!(
            "{} further samples of each pixel are not read: the file does not say what they are",
            held - channels
        ));
    }
    if facts.is(PhotometricInterpretation::YCbCr) {
        // The conversion to RGB has used it.
        meta.carried.retain(|it| !it.name.starts_with("532 "));
    }
    let picture = Picture {
        extras: extras(&said_extras, channels.saturating_sub(colours)),
        channel_axis: channels > 1,
        stored,
        meta,
        ..Picture::new(pixels)
    };
    Ok((picture, note))
}

/// The values of a page, the type that they have in the file, and a note on damage.
fn pixels(
    decoder: &mut Tiff<'_>,
    facts: &Facts,
    pages: &Pages<'_>,
) -> Result<(Pixels, Option<Stored>, Option<String>), Refused> {
    let samples = usize::from(decoder.colortype()?.num_samples());
    let layout = decoder.image_buffer_layout()?;
    let mut values = DecodingResult::U8(Vec::new());
    values.resize_to(&layout, &limits(pages.options.limits.max_bytes))?;
    let damage = match decoder.read_image_bytes(values.as_buffer(0).as_bytes_mut()) {
        Err(error) if !pages.options.lenient => return Err(error.into()),
        read => read.err().map(|error| kept_in_part(&said(&error))),
    };
    let (pixels, stored) = match values {
        DecodingResult::U8(values) if facts.is_odd() || facts.bits < 8 => {
            (of_levels(facts, &values)?, None)
        }
        DecodingResult::U8(values) if facts.palette.is_some() => {
            (of_palette(facts, values.into_iter().map(u16::from))?, None)
        }
        DecodingResult::U16(values) if facts.palette.is_some() => {
            (of_palette(facts, values.into_iter())?, None)
        }
        values => of_numbers(values, facts, samples, layout.planes)?,
    };
    Ok((pixels, stored, damage))
}

/// Makes the decoder read a page that it does not know. Returns a note on damage.
fn prepare(
    decoder: &mut Tiff<'_>,
    facts: &Facts,
    pages: &Pages<'_>,
) -> Result<Option<String>, Refused> {
    let options = pages.options;
    let mut edits = facts.edits(decoder)?;
    let mut note = None;
    if is_packed(facts.compression) {
        let chunks = facts.chunks(decoder)?;
        let tags = match facts.tile {
            Some(_) => [Tag::TileOffsets, Tag::TileByteCounts],
            None => [Tag::StripOffsets, Tag::StripByteCounts],
        };
        let most = options.limits.max_bytes;
        let (offsets, failed) = match unpacked(decoder, &chunks, (most, options.lenient)) {
            Ok(unpacked) => unpacked,
            Err(error) if error.kind() == std::io::ErrorKind::OutOfMemory => {
                return Err(Refused::AsItIs(options.limits.exceeded()));
            }
            Err(error) => return Err(Refused::Damaged(error.into())),
        };
        note = failed.map(|error| kept_in_part(&said(&error)));
        edits.push((Tag::Compression, Edit::Short(CompressionMethod::None.to_u16())));
        edits.extend(tags.into_iter().zip([Edit::Wide(offsets), Edit::Wide(chunks.bytes)]));
    }
    if !edits.is_empty() {
        edit(decoder, pages.found, &edits)?;
    }
    Ok(note)
}

/// Samples of fewer than 8 bits, or of 9 to 15, in 8 or 16 bits: white stays white.
fn of_levels(facts: &Facts, bytes: &[u8]) -> Result<Pixels> {
    let Facts { width, height, bits, .. } = *facts;
    let count = width as usize * usize::from(facts.held);
    let row = (bytes.len() / height.max(1) as usize).max(1);
    let reversed = facts.reversed && facts.is_odd();
    let levels = bytes.chunks_exact(row).flat_map(|row| samples(row, bits, reversed).take(count));
    if facts.palette.is_some() {
        return of_palette(facts, levels);
    }
    let greatest = (1u32 << bits) - 1;
    // The decoder has turned those that it knows.
    let dark = facts.is_odd() && facts.is(PhotometricInterpretation::WhiteIsZero);
    let levels = levels.map(|it| if dark { greatest - u32::from(it) } else { u32::from(it) });
    let total = count * height as usize;
    let held = facts.held.into();
    if bits < 8 {
        let mut values = zeroes::<u8>(total)?;
        let scaled = levels.map(|level| ((level * 255 + greatest / 2) / greatest) as u8);
        values.iter_mut().zip(scaled).for_each(|(to, level)| *to = level);
        return Ok(Pixels::U8(image_of(values, width, height, held)?));
    }
    let mut values = zeroes::<u16>(total)?;
    let scaled = levels.map(|level| ((level * 65535 + greatest / 2) / greatest) as u16);
    values.iter_mut().zip(scaled).for_each(|(to, level)| *to = level);
    Ok(Pixels::U16(image_of(values, width, height, held)?))
}

/// The colours of levels.
fn of_palette(facts: &Facts, levels: impl Iterator<Item = u16>) -> Result<Pixels> {
    let Facts { width, height, palette: Some(palette), .. } = facts else {
        return Err("a TIFF without a palette has no colours for its levels".to_owned());
    };
    Ok(match palette.bytes() {
        Some(map) => Pixels::U8(image_of(coloured(levels, &map), *width, *height, 3)?),
        None => Pixels::U16(image_of(coloured(levels, palette.words()), *width, *height, 3)?),
    })
}

/// Numbers of a whole number of bytes.
fn of_numbers(
    values: DecodingResult,
    facts: &Facts,
    samples: usize,
    planes: usize,
) -> Result<(Pixels, Option<Stored>)> {
    let Facts { width, height, .. } = *facts;
    let count = width as usize * height as usize;
    Ok(match values {
        DecodingResult::U8(values) => {
            let mut values = interleaved(values, samples, planes, count)?;
            if facts.is(PhotometricInterpretation::YCbCr) {
                facts.luma.to_rgb(&mut values);
            }
            (Pixels::U8(image_of(values, width, height, samples)?), None)
        }
        DecodingResult::U16(values) => {
            let values = interleaved(values, samples, planes, count)?;
            (Pixels::U16(image_of(values, width, height, samples)?), None)
        }
        DecodingResult::F16(values) => {
            let values = interleaved(values, samples, planes, count)?;
            (Pixels::F16(image_of(values, width, height, samples)?), None)
        }
        DecodingResult::F32(values) => {
            let values = interleaved(values, samples, planes, count)?;
            (Pixels::F32(image_of(values, width, height, samples)?), None)
        }
        DecodingResult::U32(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
        DecodingResult::U64(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
        DecodingResult::F64(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
        DecodingResult::I8(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
        DecodingResult::I16(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
        DecodingResult::I32(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
        DecodingResult::I64(values) => {
            wide(&interleaved(values, samples, planes, count)?, width, height, samples)?
        }
    })
}

/// The codes that a page gives its samples after the colours.
pub(super) fn extra_samples(decoder: &mut Tiff<'_>) -> Vec<u16> {
    decoder.find_tag_unsigned_vec(Tag::ExtraSamples).ok().flatten().unwrap_or_default()
}

/// The meaning of the `count` samples after the colours. Samples that the codes do not reach are
/// bands.
pub(super) fn extras(said: &[u16], count: usize) -> Vec<Extra> {
    let said =
        said.iter().skip(said.len().saturating_sub(count)).map(
            |&code| match ExtraSamples::from_u16(code) {
                Some(ExtraSamples::AssociatedAlpha) => Extra::Premultiplied,
                Some(ExtraSamples::UnassociatedAlpha) => Extra::Straight,
                _ => Extra::Unspecified,
            },
        );
    let unsaid = count - said.len();
    std::iter::repeat_n(Extra::Band, unsaid).chain(said).collect()
}

/// Values of a type that kernels do not take, as f64.
fn wide<N: Wide>(
    values: &[N],
    width: u32,
    height: u32,
    samples: usize,
) -> Result<(Pixels, Option<Stored>)> {
    Ok((Pixels::F64(image_of(widened(values)?, width, height, samples)?), Some(N::STORED)))
}

/// Interleaves the channels of the values, if the file has a plane for each channel.
fn interleaved<P: bytemuck::Pod>(
    values: Vec<P>,
    samples: usize,
    planes: usize,
    count: usize,
) -> Result<Vec<P>> {
    if planes <= 1 || samples <= 1 {
        return Ok(values);
    }
    let stride = values.len() / planes;
    if planes != samples || stride < count {
        return Err(format!("a TIFF of {samples} samples in {planes} planes cannot be read"));
    }
    let mut result = zeroes::<P>(count * samples)?;
    for (index, pixel) in result.chunks_exact_mut(samples).enumerate() {
        for (sample, value) in pixel.iter_mut().enumerate() {
            *value = values[sample * stride + index];
        }
    }
    Ok(result)
}
