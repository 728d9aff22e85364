//! Pictures in files: which formats there are, reading within limits, writing all or nothing.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use apron::{Image, Shape};
use image::codecs::pnm::{GraymapHeader, PixmapHeader, PnmEncoder, PnmHeader, SampleEncoding};
use image::codecs::{bmp, farbfeld, gif, hdr, jpeg, openexr, png, qoi, tga, tiff, webp};
use image::metadata::Orientation;
use image::{ColorType, ExtendedColorType, ImageDecoder, ImageEncoder, ImageFormat, ImageReader, ImageResult};

use super::args::{Limits, PixelType};
use super::{Failure, Result, npy};

/// The values of a picture, as they are stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pixels {
    U8(Image<u8>),
    U16(Image<u16>),
    F16(Image<apron::f16>),
    F32(Image<f32>),
}

/// The same expression for every type of values.
macro_rules! each {
    ($pixels:expr, $image:ident => $body:expr) => {
        match $pixels {
            $crate::cli::files::Pixels::U8($image) => $body,
            $crate::cli::files::Pixels::U16($image) => $body,
            $crate::cli::files::Pixels::F16($image) => $body,
            $crate::cli::files::Pixels::F32($image) => $body,
        }
    };
}
pub(super) use each;

impl Pixels {
    pub(super) fn kind(&self) -> PixelType {
        match self {
            Self::U8(_) => PixelType::U8,
            Self::U16(_) => PixelType::U16,
            Self::F16(_) => PixelType::F16,
            Self::F32(_) => PixelType::F32,
        }
    }

    pub(super) fn shape(&self) -> Shape {
        each!(self, image => image.shape())
    }

    fn bytes(&self) -> &[u8] {
        each!(self, image => bytemuck::cast_slice(image.as_slice()))
    }
}

impl PixelType {
    /// Bytes of a value.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Picture {
    pub(super) pixels: Pixels,
    /// Whether the last channel is alpha. An array has none: its channels are all alike.
    pub(super) alpha: bool,
    /// Whether an array has an axis for its channels, even for a single one.
    pub(super) channel_axis: bool,
    /// The colour profile.
    pub(super) icc: Option<Vec<u8>>,
    /// How the pixels are to be turned for display.
    pub(super) orientation: Orientation,
}

impl Picture {
    pub(super) fn new(pixels: Pixels) -> Self {
        let channel_axis = pixels.shape().channels > 1;
        Self { pixels, alpha: false, channel_axis, icc: None, orientation: Orientation::NoTransforms }
    }

    /// Such as "512x512 RGB u8".
    pub(super) fn describe(&self) -> String {
        let shape = self.pixels.shape();
        format!("{}x{} {} {}", shape.width, shape.height, colours(shape.channels), self.pixels.kind())
    }

    /// The name that the `image` crate has for the pixels.
    fn colour(&self) -> Option<ExtendedColorType> {
        Some(match (self.pixels.kind(), self.pixels.shape().channels) {
            (PixelType::U8, 1) => ExtendedColorType::L8,
            (PixelType::U8, 2) => ExtendedColorType::La8,
            (PixelType::U8, 3) => ExtendedColorType::Rgb8,
            (PixelType::U8, 4) => ExtendedColorType::Rgba8,
            (PixelType::U16, 1) => ExtendedColorType::L16,
            (PixelType::U16, 2) => ExtendedColorType::La16,
            (PixelType::U16, 3) => ExtendedColorType::Rgb16,
            (PixelType::U16, 4) => ExtendedColorType::Rgba16,
            (PixelType::F32, 3) => ExtendedColorType::Rgb32F,
            (PixelType::F32, 4) => ExtendedColorType::Rgba32F,
            _ => return None,
        })
    }
}

fn colours(channels: usize) -> &'static str {
    match channels {
        1 => "grey",
        2 => "grey+alpha",
        3 => "RGB",
        _ => "RGBA",
    }
}

trait Sink: Write + Seek {}
impl<W: Write + Seek> Sink for W {}

/// A format that pictures are written in.
#[derive(Debug)]
pub(super) struct Format {
    /// File extensions; the first is the format's name.
    extensions: &'static [&'static str],
    /// Whether it can hold values of a type, in this many channels.
    holds: fn(PixelType, usize) -> bool,
    /// Whether it can say how a picture is to be turned.
    turns: bool,
    encode: Encode,
}

#[derive(Clone, Copy, Debug)]
enum Encode {
    Array,
    /// The values alone.
    Raw,
    Picture(fn(&Picture, &mut dyn Sink, quality: u8) -> ImageResult<()>),
}

/// Every format that can be written. A test holds the table to what the encoders do.
const FORMATS: &[Format] = {
    use PixelType::{F32, U8, U16};
    &[
        Format {
            extensions: &["png"],
            holds: |kind, _| matches!(kind, U8 | U16),
            turns: true,
            encode: Encode::Picture(|picture, out, _| encode(png::PngEncoder::new(out), picture)),
        },
        Format {
            extensions: &["jpg", "jpeg"],
            holds: |kind, channels| kind == U8 && matches!(channels, 1 | 3),
            turns: true,
            encode: Encode::Picture(|picture, out, quality| {
                encode(jpeg::JpegEncoder::new_with_quality(out, quality), picture)
            }),
        },
        Format {
            extensions: &["tif", "tiff"],
            holds: |kind, channels| match kind {
                U8 | U16 => channels != 2,
                kind => kind == F32 && channels >= 3,
            },
            turns: false,
            encode: Encode::Picture(|picture, out, _| encode(tiff::TiffEncoder::new(out), picture)),
        },
        Format {
            extensions: &["webp"],
            holds: |kind, _| kind == U8,
            turns: true,
            encode: Encode::Picture(|picture, out, _| encode(webp::WebPEncoder::new_lossless(out), picture)),
        },
        Format {
            extensions: &["bmp"],
            // The encoder takes grey with alpha too, and loses the alpha.
            holds: |kind, channels| kind == U8 && channels != 2,
            turns: false,
            encode: Encode::Picture(|picture, mut out, _| encode(bmp::BmpEncoder::new(&mut out), picture)),
        },
        Format {
            extensions: &["gif"],
            // Through a palette of 256 colours, one of them transparent.
            holds: |kind, channels| kind == U8 && channels >= 3,
            turns: false,
            encode: Encode::Picture(|picture, out, _| encode(gif::GifEncoder::new(out), picture)),
        },
        Format {
            extensions: &["qoi"],
            holds: |kind, channels| kind == U8 && channels >= 3,
            turns: false,
            encode: Encode::Picture(|picture, out, _| encode(qoi::QoiEncoder::new(out), picture)),
        },
        Format {
            extensions: &["tga"],
            holds: |kind, _| kind == U8,
            turns: false,
            encode: Encode::Picture(|picture, out, _| encode(tga::TgaEncoder::new(out), picture)),
        },
        Format {
            extensions: &["pgm"],
            holds: |kind, channels| matches!(kind, U8 | U16) && channels == 1,
            turns: false,
            encode: Encode::Picture(|picture, out, _| encode(pnm(picture, out), picture)),
        },
        Format {
            extensions: &["ppm"],
            // The encoder has no 16-bit PPM.
            holds: |kind, channels| kind == U8 && channels == 3,
            turns: false,
            encode: Encode::Picture(|picture, out, _| encode(pnm(picture, out), picture)),
        },
        Format {
            extensions: &["pnm"],
            holds: |kind, channels| kind == U8 && matches!(channels, 1 | 3) || kind == U16 && channels == 1,
            turns: false,
            encode: Encode::Picture(|picture, out, _| encode(pnm(picture, out), picture)),
        },
        Format {
            extensions: &["pam"],
            // The encoder has no 16-bit grey with alpha.
            holds: |kind, channels| kind == U8 || kind == U16 && channels != 2,
            turns: false,
            encode: Encode::Picture(|picture, out, _| encode(PnmEncoder::new(out), picture)),
        },
        Format {
            extensions: &["ff"],
            holds: |kind, channels| kind == U16 && channels == 4,
            turns: false,
            encode: Encode::Picture(|picture, out, _| encode(farbfeld::FarbfeldEncoder::new(out), picture)),
        },
        Format {
            extensions: &["hdr"],
            holds: |kind, channels| kind == F32 && channels == 3,
            turns: false,
            encode: Encode::Picture(|picture, out, _| encode(hdr::HdrEncoder::new(out), picture)),
        },
        Format {
            extensions: &["exr"],
            holds: |kind, channels| kind == F32 && channels >= 3,
            turns: false,
            encode: Encode::Picture(|picture, out, _| encode(openexr::OpenExrEncoder::new(out), picture)),
        },
        Format { extensions: &["npy"], holds: |_, _| true, turns: false, encode: Encode::Array },
        Format { extensions: &["raw"], holds: |kind, _| kind == U8, turns: false, encode: Encode::Raw },
    ]
};

impl Format {
    /// The format of files with this extension.
    pub(super) fn from_extension(extension: &str) -> Result<&'static Self, String> {
        let lower = extension.trim_start_matches('.').to_lowercase();
        FORMATS.iter().find(|format| format.extensions.contains(&&*lower)).ok_or_else(|| {
            let known: Vec<_> = FORMATS.iter().map(Self::name).collect();
            format!("pictures cannot be written as \"{extension}\"; there are {}", known.join(", "))
        })
    }

    /// The format that a path's extension names.
    pub(super) fn from_path(path: &Path) -> Result<&'static Self> {
        match path.extension() {
            Some(extension) => Self::from_extension(&extension.to_string_lossy()),
            None => Err("neither a folder, nor has it an extension that names a format, as in out.png".to_owned()),
        }
        .map_err(|reason| Failure::at(path, reason))
    }

    pub(super) fn name(&self) -> &'static str {
        self.extensions[0]
    }

    /// Whether the format can hold values of this type, in this many channels; if not, which can.
    pub(super) fn check(&self, kind: PixelType, channels: usize) -> Result<(), String> {
        if (self.holds)(kind, channels) {
            return Ok(());
        }
        let can: Vec<_> = FORMATS.iter().filter(|format| (format.holds)(kind, channels)).map(Self::name).collect();
        let other =
            [PixelType::U8, PixelType::U16, PixelType::F32].into_iter().find(|&kind| (self.holds)(kind, channels));
        let convert = other.map(|kind| format!(", or convert with --output-type {kind}")).unwrap_or_default();
        Err(format!("{} cannot hold {} {kind}; write {}{convert}", self.name(), colours(channels), can.join(", ")))
    }
}

/// The classic header for grey and RGB: readers of PGM and PPM seldom know PAM.
fn pnm<'a>(picture: &Picture, out: &'a mut dyn Sink) -> PnmEncoder<&'a mut dyn Sink> {
    let shape = picture.pixels.shape();
    let (width, height) = (shape.width as u32, shape.height as u32);
    let greatest = if picture.pixels.kind() == PixelType::U8 { 0xff } else { 0xffff };
    let encoding = SampleEncoding::Binary;
    let header: PnmHeader = if shape.channels == 1 {
        GraymapHeader { encoding, height, width, maxwhite: greatest }.into()
    } else {
        PixmapHeader { encoding, height, width, maxval: greatest }.into()
    };
    PnmEncoder::new(out).with_header(header)
}

fn encode(mut encoder: impl ImageEncoder, picture: &Picture) -> ImageResult<()> {
    let shape = picture.pixels.shape();
    let Some(colour) = picture.colour() else {
        unreachable!("no format but npy holds these");
    };
    // What the format cannot hold is left out.
    if let Some(profile) = &picture.icc {
        let _ = encoder.set_icc_profile(profile.clone());
    }
    if picture.orientation != Orientation::NoTransforms {
        let _ = encoder.set_exif_metadata(exif(picture.orientation));
    }
    encoder.write_image(picture.pixels.bytes(), shape.width as u32, shape.height as u32, colour)
}

/// Exif data with the orientation and nothing else. The input's own is not copied: it may hold a small copy of the picture
/// as it was, and who blurs a face wants it gone.
fn exif(orientation: Orientation) -> Vec<u8> {
    let mut tiff = b"II*\0\x08\0\0\0".to_vec();
    tiff.extend(b"\x01\0");
    // Tag 0x0112, type SHORT, one value.
    tiff.extend(b"\x12\x01\x03\0\x01\0\0\0");
    tiff.extend([orientation.to_exif(), 0, 0, 0]);
    tiff.extend([0; 4]);
    tiff
}

/// Opens a file to read. Folders, and pipes that may never say anything, are refused.
pub(super) fn open(path: &Path) -> Result<BufReader<File>> {
    let found = fs::metadata(path).map_err(|error| Failure::at(path, error))?;
    if found.is_dir() {
        return Err(Failure::at(path, "is a folder; name the files in it"));
    }
    if !found.is_file() {
        return Err(Failure::at(path, "is not a regular file"));
    }
    Ok(BufReader::new(File::open(path).map_err(|error| Failure::at(path, error))?))
}

/// The whole of a text file, if it is of a size for text.
pub(super) fn read_text(reader: impl Read) -> Result<String, String> {
    const MOST: u64 = 256 << 20;
    let mut text = String::new();
    let read = reader.take(MOST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if read as u64 > MOST { Err(format!("more than {MOST} bytes of text")) } else { Ok(text) }
}

/// Reads a picture; its format is known by its content, else by its name. With `raw`, it has none: the file holds 8-bit
/// pixels of this shape.
pub(super) fn load(path: &Path, limits: &Limits, raw: Option<Shape>) -> Result<Picture> {
    let mut reader = open(path)?;
    if let Some(shape) = raw {
        return read_raw(reader, shape, limits).map_err(|reason| Failure::at(path, reason));
    }
    let named_npy = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"));
    if named_npy || npy::is_npy(&mut reader).map_err(|error| Failure::at(path, error))? {
        return npy::read_picture(&mut reader, limits).map_err(|reason| Failure::at(path, reason));
    }
    decode(reader, ImageFormat::from_path(path).ok(), limits).map_err(|reason| Failure::at(path, reason))
}

fn decode(reader: BufReader<File>, named: Option<ImageFormat>, limits: &Limits) -> Result<Picture, String> {
    let mut reader = ImageReader::new(reader);
    if let Some(format) = named {
        reader.set_format(format);
    }
    let mut reader = reader.with_guessed_format().map_err(|error| error.to_string())?;
    if reader.format().is_none() {
        let hint = "; of a file without a header, --raw WxHxC says what it holds";
        return Err(format!("neither the content nor the name is that of a picture{hint}"));
    }
    let mut allowed = image::Limits::default();
    allowed.max_alloc = Some(limits.max_bytes);
    reader.limits(allowed);
    let mut decoder = reader.into_decoder().map_err(|error| told(error, limits))?;
    let (width, height) = decoder.dimensions();
    let colour = decoder.color_type();
    limits.check(width.into(), height.into(), colour.bytes_per_pixel().into())?;
    let icc = decoder.icc_profile().ok().flatten().filter(|profile| describes(profile, colour));
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);

    let channels = usize::from(colour.channel_count());
    let pixels = match colour {
        ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8 => {
            Pixels::U8(values(decoder, channels, limits)?)
        }
        ColorType::L16 | ColorType::La16 | ColorType::Rgb16 | ColorType::Rgba16 => {
            Pixels::U16(values(decoder, channels, limits)?)
        }
        ColorType::Rgb32F | ColorType::Rgba32F => Pixels::F32(values(decoder, channels, limits)?),
        other => return Err(apron::Error::PixelFormat { format: format!("{other:?}") }.to_string()),
    };
    Ok(Picture { alpha: colour.has_alpha(), icc, orientation, ..Picture::new(pixels) })
}

/// Reads 8-bit pixels without a header.
fn read_raw(mut reader: BufReader<File>, shape: Shape, limits: &Limits) -> Result<Picture, String> {
    let Shape { width, height, channels } = shape;
    limits.check(width as u64, height as u64, channels as u64)?;
    // Within the limits, or they are as high as memory is large.
    let expected = (width as u64).saturating_mul(height as u64).saturating_mul(channels as u64);
    let found = reader.get_ref().metadata().map_err(|error| error.to_string())?.len();
    let len = usize::try_from(expected).ok().filter(|_| found == expected);
    let len = len.ok_or_else(|| {
        format!("{width}x{height}x{channels} pixels of 8 bits are {expected} bytes, the file has {found}")
    })?;
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| format!("{width}x{height} pixels do not fit in memory"))?;
    values.resize(len, 0);
    reader.read_exact(&mut values).map_err(|error| error.to_string())?;
    let image = Image::from_vec(values, width, height, channels).map_err(|error| error.to_string())?;
    Ok(Picture::new(Pixels::U8(image)))
}

fn told(error: image::ImageError, limits: &Limits) -> String {
    match error {
        image::ImageError::Limits(_) => format!(
            "takes more than {} bytes to decode; raise it with --max-bytes if you trust the file",
            limits.max_bytes
        ),
        error => error.to_string(),
    }
}

/// Decodes into memory that was asked for in a way that can fail.
fn values<P: apron::Pixel + bytemuck::Pod>(
    decoder: impl ImageDecoder,
    channels: usize,
    limits: &Limits,
) -> Result<Image<P>, String> {
    let (width, height) = decoder.dimensions();
    let len = decoder.total_bytes() as usize / size_of::<P>();
    let mut values: Vec<P> = Vec::new();
    values.try_reserve_exact(len).map_err(|_| format!("{width}x{height} pixels do not fit in memory"))?;
    values.resize(len, P::default());
    decoder.read_image(bytemuck::cast_slice_mut(&mut values)).map_err(|error| told(error, limits))?;
    Image::from_vec(values, width as usize, height as usize, channels).map_err(|error| error.to_string())
}

/// Whether a colour profile is one for grey or for RGB as the pixels are: a decoder may have converted them from CMYK.
fn describes(profile: &[u8], colour: ColorType) -> bool {
    profile.get(16..20) == Some(if colour.has_color() { b"RGB " } else { b"GRAY" })
}

/// Writes a picture, all of it or nothing. Returns what could not be kept, if anything.
pub(super) fn save(path: &Path, format: &Format, picture: &Picture, quality: u8) -> Result<Option<&'static str>> {
    let fits = format.check(picture.pixels.kind(), picture.pixels.shape().channels);
    fits.map_err(|reason| Failure::at(path, reason))?;
    replace(path, |out| match format.encode {
        Encode::Array => npy::write_picture(out, picture).map_err(|error| Failure::at(path, error)),
        Encode::Raw => out.write_all(picture.pixels.bytes()).map_err(|error| Failure::at(path, error)),
        Encode::Picture(encode) => encode(picture, out, quality).map_err(|error| Failure::at(path, error)),
    })?;
    let lost = picture.orientation != Orientation::NoTransforms && !format.turns;
    Ok(lost.then_some("this format cannot say that the picture is to be shown turned, so it will not be"))
}

/// Files that are being written, under names that no one asked for.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes unfinished files when the user interrupts the program or the system ends it.
pub(super) fn clean_up_on_signals() {
    #[cfg(unix)]
    if let Ok(mut signals) = signal_hook::iterator::Signals::new(signal_hook::consts::TERM_SIGNALS) {
        std::thread::spawn(move || {
            for signal in signals.forever() {
                // Not given back: no other file shall begin.
                let unfinished = unfinished();
                for path in unfinished.iter() {
                    let _ = fs::remove_file(path);
                }
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        });
    }
}

/// The file that writing to `path` makes or replaces, the folder it is in, and the permissions it has if it is there.
///
/// Fails if nothing can be written there, as far as that is known beforehand.
pub(super) fn destination(path: &Path) -> Result<(PathBuf, PathBuf, Option<fs::Permissions>)> {
    // Through a link, the file that it names is replaced, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let permissions = match fs::metadata(&target) {
        Ok(found) if found.is_dir() => return Err(Failure::at(path, "is a folder")),
        Ok(found) if !found.is_file() => return Err(Failure::at(path, "is not a regular file")),
        Ok(found) if found.permissions().readonly() => return Err(Failure::at(path, "is read-only")),
        Ok(found) => Some(found.permissions()),
        Err(_) => None,
    };
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    if !folder.is_dir() {
        return Err(Failure::at(path, format!("there is no folder {}", folder.display())));
    }
    Ok((target, folder, permissions))
}

/// Writes a file beside `path` and renames it when it is complete: readers see the old file or the new one, never a part.
pub(super) fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> Result) -> Result {
    let fail = |error: io::Error| Failure::at(path, error);
    let (target, folder, permissions) = destination(path)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".apron-").suffix(".tmp");
    #[cfg(unix)]
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(mode);
    let file = {
        let mut unfinished = unfinished();
        let file = builder.tempfile_in(folder).map_err(fail)?;
        unfinished.push(file.path().to_owned());
        file
    };
    let temporary = file.path().to_owned();
    let written = (|| {
        let mut out = BufWriter::with_capacity(1 << 18, file.as_file());
        write(&mut out)?;
        out.flush().map_err(fail)?;
        drop(out);
        if let Some(permissions) = permissions {
            file.as_file().set_permissions(permissions).map_err(fail)?;
        }
        Ok(())
    })();
    let result = written.and_then(|()| file.persist(&target).map(drop).map_err(|error| fail(error.error)));
    unfinished().retain(|path| *path != temporary);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_pixels: 1 << 28, max_bytes: 1 << 29 };

    fn picture(kind: PixelType, channels: usize) -> Picture {
        let (width, height) = (61, 47);
        let n = width * height * channels;
        // Smooth, so that JPEG keeps it.
        let value = move |i: usize| 40 + (i / channels % width * 2 + i / channels / width + i % channels * 9) as u16;
        let pixels = match kind {
            PixelType::U8 => {
                Pixels::U8(Image::from_vec((0..n).map(|i| value(i) as u8).collect(), width, height, channels).unwrap())
            }
            PixelType::U16 => {
                Pixels::U16(Image::from_vec((0..n).map(|i| value(i) * 255).collect(), width, height, channels).unwrap())
            }
            PixelType::F16 => {
                let values = (0..n).map(|i| apron::f16::from_f32(f32::from(value(i)) / 256.0)).collect();
                Pixels::F16(Image::from_vec(values, width, height, channels).unwrap())
            }
            PixelType::F32 => {
                let values = (0..n).map(|i| f32::from(value(i)) / 256.0).collect();
                Pixels::F32(Image::from_vec(values, width, height, channels).unwrap())
            }
        };
        Picture::new(pixels)
    }

    fn every_picture() -> impl Iterator<Item = Picture> {
        [PixelType::U8, PixelType::U16, PixelType::F16, PixelType::F32]
            .into_iter()
            .flat_map(|kind| (1..=4).map(move |channels| picture(kind, channels)))
    }

    /// Red, green, blue and alpha of every pixel, whatever the channels.
    fn rgba(pixels: &Pixels) -> Vec<f32> {
        use apron::Pixel;
        each!(pixels, image => {
            let opaque = if pixels.kind() == PixelType::U8 { 255.0 } else { 1.0 };
            let rgba = |pixel: &[_]| match *pixel {
                [l] => [l, l, l, Pixel::from_f32(opaque)],
                [l, a] => [l, l, l, a],
                [r, g, b] => [r, g, b, Pixel::from_f32(opaque)],
                _ => [pixel[0], pixel[1], pixel[2], pixel[3]],
            };
            let pixels = image.as_slice().chunks_exact(image.shape().channels);
            pixels.flat_map(rgba).map(Pixel::to_f32).collect()
        })
    }

    #[test]
    fn formats_hold_what_the_table_says() {
        let folder = tempfile::tempdir().unwrap();
        for format in FORMATS {
            let path = folder.path().join("picture").with_extension(format.name());
            let mut held = 0;
            for picture in every_picture() {
                let (kind, shape) = (picture.pixels.kind(), picture.pixels.shape());
                if !(format.holds)(kind, shape.channels) {
                    let message = save(&path, format, &picture, 90).unwrap_err().message;
                    assert!(message.contains("npy") && !path.exists(), "{message}");
                    // The encoder refuses too, or the table is too strict.
                    if let (Encode::Picture(encode), Some(_)) = (format.encode, picture.colour()) {
                        let mut out = io::Cursor::new(Vec::new());
                        let narrowed = matches!(format.name(), "pgm" | "ppm" | "pnm" | "bmp");
                        let refused = narrowed || encode(&picture, &mut out, 90).is_err();
                        assert!(refused, "{} can hold {}", format.name(), picture.describe());
                    }
                    continue;
                }
                held += 1;
                save(&path, format, &picture, 100).unwrap_or_else(|failure| panic!("{}", failure.message));
                let raw = Some(shape).filter(|_| format.name() == "raw");
                let read = load(&path, &LIMITS, raw).unwrap_or_else(|failure| panic!("{}", failure.message));
                fs::remove_file(&path).unwrap();
                let widens = matches!(format.name(), "webp" | "gif" | "bmp");
                let read_shape = read.pixels.shape();
                assert_eq!(read.pixels.kind(), kind, "{}", format.name());
                assert!(read_shape == shape || widens && read_shape.channels > shape.channels, "{}", format.name());
                let tolerance = match format.name() {
                    "jpg" => 12.0,
                    // Half transparent is one or the other there.
                    "gif" => {
                        if shape.channels == 4 {
                            255.0
                        } else {
                            12.0
                        }
                    }
                    "hdr" => 0.01,
                    _ => 0.0,
                };
                let (expected, found) = (rgba(&picture.pixels), rgba(&read.pixels));
                let error = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(error <= tolerance, "{} loses {error} of {}", format.name(), picture.describe());
                if !matches!(format.name(), "npy" | "raw") {
                    assert_eq!(read.alpha, matches!(read_shape.channels, 2 | 4), "{}", format.name());
                }
            }
            assert!(held > 0, "{} holds nothing", format.name());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "a file was left");
    }

    #[test]
    fn profile_and_orientation_are_kept_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let mut profile = vec![0u8; 128];
        profile[..4].copy_from_slice(&128u32.to_be_bytes());
        profile[16..20].copy_from_slice(b"RGB ");
        for format in FORMATS.iter().filter(|format| (format.holds)(PixelType::U8, 3)) {
            let path = folder.path().join("picture").with_extension(format.name());
            let picture = Picture {
                icc: Some(profile.clone()),
                orientation: Orientation::Rotate270,
                ..picture(PixelType::U8, 3)
            };
            let lost = save(&path, format, &picture, 90).unwrap();
            assert_eq!(lost.is_some(), !format.turns, "{}", format.name());
            let raw = Some(picture.pixels.shape()).filter(|_| format.name() == "raw");
            let read = load(&path, &LIMITS, raw).unwrap();
            assert_eq!(read.orientation == Orientation::Rotate270, format.turns, "{}", format.name());
            let holds_profile = matches!(format.name(), "png" | "jpg" | "tif" | "webp");
            assert_eq!(read.icc == picture.icc, holds_profile, "{}", format.name());
        }
        assert!(!describes(b"", ColorType::Rgb8));
        profile[16..20].copy_from_slice(b"CMYK");
        assert!(!describes(&profile, ColorType::Rgb8));
        profile[16..20].copy_from_slice(b"GRAY");
        assert!(describes(&profile, ColorType::L16) && !describes(&profile, ColorType::Rgba8));
    }

    #[test]
    fn limits_are_checked_before_decoding() {
        let folder = tempfile::tempdir().unwrap();
        let limits = |max_pixels, max_bytes| Limits { max_pixels, max_bytes };
        for name in ["a.png", "a.tif", "a.webp", "a.npy", "a.jpg", "a.qoi", "a.bmp"] {
            let path = folder.path().join(name);
            save(&path, Format::from_path(&path).unwrap(), &picture(PixelType::U8, 3), 90).unwrap();
            assert!(load(&path, &limits(2866, 1 << 20), None).unwrap_err().message.contains("--max-pixels"), "{name}");
            assert!(load(&path, &limits(2867, 8600), None).unwrap_err().message.contains("--max-bytes"), "{name}");
            load(&path, &limits(2867, 1 << 20), None).unwrap();
        }
    }

    #[test]
    fn broken_pictures_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        for format in FORMATS {
            let Some(picture) =
                every_picture().find(|picture| (format.holds)(picture.pixels.kind(), picture.pixels.shape().channels))
            else {
                panic!("{} holds nothing", format.name());
            };
            let path = folder.path().join("picture").with_extension(format.name());
            save(&path, format, &picture, 90).unwrap();
            let bytes = fs::read(&path).unwrap();
            for len in [0, 1, 7, bytes.len() / 4, bytes.len() / 2] {
                fs::write(&path, &bytes[..len]).unwrap();
                let raw = Some(picture.pixels.shape()).filter(|_| format.name() == "raw");
                let result = super::super::caught(|| load(&path, &LIMITS, raw));
                // JPEG decoders fill in what is missing, as browsers do.
                assert!(result.is_err() || format.name() == "jpg" && len > 100, "{} of {len} bytes", format.name());
            }
            fs::write(&path, b"This is no picture at all, though its name says so.").unwrap();
            assert!(super::super::caught(|| load(&path, &LIMITS, None)).is_err(), "{}", format.name());
        }
    }

    #[test]
    fn content_counts_more_than_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let (png, misnamed) = (folder.path().join("a.png"), folder.path().join("a.jpg"));
        let picture = picture(PixelType::U16, 1);
        save(&png, Format::from_path(&png).unwrap(), &picture, 90).unwrap();
        fs::rename(&png, &misnamed).unwrap();
        assert_eq!(load(&misnamed, &LIMITS, None).unwrap().pixels, picture.pixels);
    }

    #[test]
    fn failed_writes_leave_nothing_and_spoil_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let half = |out: &mut BufWriter<&File>| {
            out.write_all(&[7; 1 << 20]).unwrap();
            Err(Failure::new("no more"))
        };
        replace(&path, half).unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::write(&path, "old").unwrap();
        replace(&path, half).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        replace(&path, |out| out.write_all(b"new").map_err(|error| Failure::new(error.to_string()))).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(unfinished().iter().all(|path| !path.starts_with(folder.path())));

        replace(folder.path(), |_| Ok(())).unwrap_err();
        replace(&folder.path().join("none/file"), |_| Ok(())).unwrap_err();
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).unwrap();
        assert!(replace(&path, |_| Ok(())).unwrap_err().message.contains("read-only"));
    }

    #[cfg(unix)]
    #[test]
    fn modes_and_links_survive() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        let write = |out: &mut BufWriter<&File>| out.write_all(b"new").map_err(|error| Failure::new(error.to_string()));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;

        fs::write(folder.path().join("plain"), "").unwrap();
        replace(&path, write).unwrap();
        assert_eq!(mode(&path), mode(&folder.path().join("plain")), "as any program's files under this umask");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&path, &link).unwrap();
        replace(&link, write).unwrap();
        assert_eq!(mode(&path), 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
