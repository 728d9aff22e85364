//! Pictures in files: reading within limits, and writing.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::Path;

use apron::{Image, Shape};
use image::metadata::Orientation;
use image::{ColorType, ExtendedColorType, ImageDecoder, ImageFormat, ImageReader};

use crate::failure::{Failure, Result};
use crate::formats::FileFormat;
use crate::limits::Limits;
use crate::npy;
use crate::picture::{Picture, Pixels};
use crate::replace::replace;
use crate::stream;

/// Opens a file to read. What standard input (`-`) or a pipe holds is read to its end first.
pub(crate) fn open(path: &Path) -> Result<BufReader<File>> {
    if stream::is_stream(path) {
        return stream::read(path).map(BufReader::new);
    }
    let found = fs::metadata(path).map_err(|error| Failure::at(path, error))?;
    if found.is_dir() {
        return Err(Failure::at(path, "is a folder"));
    }
    if stream::is_pipe(&found) {
        return stream::read(path).map(BufReader::new);
    }
    if !found.is_file() {
        return Err(Failure::at(path, "is neither a regular file nor a pipe"));
    }
    Ok(BufReader::new(File::open(path).map_err(|error| Failure::at(path, error))?))
}

/// Whether the name says that the file is a picture to read.
pub(crate) fn is_named_as_picture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"))
        || ImageFormat::from_path(path).is_ok_and(|format| format.reading_enabled())
}

/// Reads a picture. The content tells the format, else the name does. With `raw`, the file has no header and holds 8-bit
/// pixels of this shape.
pub(crate) fn load(path: &Path, limits: &Limits, raw: Option<Shape>) -> Result<Picture> {
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
        let hint = "; for a file without a header, give its size with --raw WxHxC";
        return Err(format!("neither the content nor the name tells a picture format{hint}"));
    }
    let mut allowed = image::Limits::default();
    allowed.max_alloc = Some(limits.max_bytes);
    reader.limits(allowed);
    let mut decoder = reader.into_decoder().map_err(|error| explained(error, limits))?;
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
    // The limits may be set so high that this overflows.
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

fn explained(error: image::ImageError, limits: &Limits) -> String {
    use std::error::Error;

    use image::error::UnsupportedErrorKind;

    let io = match &error {
        image::ImageError::IoError(error) => Some(error),
        error => std::iter::successors(error.source(), |&error| error.source()).find_map(|error| error.downcast_ref()),
    };
    if io.is_some_and(|error: &std::io::Error| error.kind() == std::io::ErrorKind::UnexpectedEof) {
        return "the file is cut off: it ends before the picture does".to_owned();
    }
    match error {
        image::ImageError::Limits(_) => format!("takes more memory to decode than is allowed; {}", limits.advice()),
        image::ImageError::Unsupported(unsupported) => match unsupported.kind() {
            UnsupportedErrorKind::Color(ExtendedColorType::Unknown(bits)) => {
                format!(
                    "pixels of {bits} bits of this kind are not supported; convert the file to 8 or 16 bits, or to .npy"
                )
            }
            _ => unsupported.to_string(),
        },
        error => error.to_string(),
    }
}

/// Decodes into memory whose allocation may fail.
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
    decoder.read_image(bytemuck::cast_slice_mut(&mut values)).map_err(|error| explained(error, limits))?;
    Image::from_vec(values, width as usize, height as usize, channels).map_err(|error| error.to_string())
}

/// Whether a colour profile is for grey or RGB as the pixels are: a decoder may have converted them from CMYK.
fn describes(profile: &[u8], colour: ColorType) -> bool {
    profile.get(16..20) == Some(if colour.has_color() { b"RGB " } else { b"GRAY" })
}

/// Writes a whole picture or nothing. Returns a note if something could not be kept.
pub(crate) fn save(path: &Path, format: &FileFormat, picture: &Picture, quality: u8) -> Result<Option<&'static str>> {
    let fits = format.check(picture.pixels.scalar(), picture.pixels.shape().channels);
    fits.map_err(|reason| Failure::at(path, reason))?;
    replace(path, |out| format.write(picture, out, quality).map_err(|error| Failure::at(path, error)))?;
    let lost = picture.orientation != Orientation::NoTransforms && !format.keeps_orientation;
    Ok(lost.then_some("this format cannot store the orientation, so the picture will be shown unrotated"))
}

#[cfg(test)]
mod tests {
    use std::io;

    use apron::{Pixel, Scalar};

    use super::*;
    use crate::failure::caught;
    use crate::formats::{Encode, FORMATS};
    use crate::picture::each;

    const LIMITS: Limits = Limits { max_pixels: 1 << 28, max_bytes: 1 << 29 };

    fn picture(scalar: Scalar, channels: usize) -> Picture {
        let (width, height) = (61, 47);
        let n = width * height * channels;
        // Smooth, so that JPEG keeps it.
        let value = move |i: usize| 40 + (i / channels % width * 2 + i / channels / width + i % channels * 9) as u16;
        let pixels = match scalar {
            Scalar::U8 => {
                Pixels::U8(Image::from_vec((0..n).map(|i| value(i) as u8).collect(), width, height, channels).unwrap())
            }
            Scalar::U16 => {
                Pixels::U16(Image::from_vec((0..n).map(|i| value(i) * 255).collect(), width, height, channels).unwrap())
            }
            Scalar::F16 => {
                let values = (0..n).map(|i| half::f16::from_f32(f32::from(value(i)) / 256.0)).collect();
                Pixels::F16(Image::from_vec(values, width, height, channels).unwrap())
            }
            Scalar::F32 => {
                let values = (0..n).map(|i| f32::from(value(i)) / 256.0).collect();
                Pixels::F32(Image::from_vec(values, width, height, channels).unwrap())
            }
            other => panic!("no picture of {other}"),
        };
        Picture::new(pixels)
    }

    fn every_picture() -> impl Iterator<Item = Picture> {
        [Scalar::U8, Scalar::U16, Scalar::F16, Scalar::F32]
            .into_iter()
            .flat_map(|scalar| (1..=4).map(move |channels| picture(scalar, channels)))
    }

    /// Red, green, blue and alpha of every pixel, whatever the channels.
    fn rgba(pixels: &Pixels) -> Vec<f32> {
        each!(pixels, image => {
            let opaque = if pixels.scalar() == Scalar::U8 { 255.0 } else { 1.0 };
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
                let (scalar, shape) = (picture.pixels.scalar(), picture.pixels.shape());
                if !(format.holds)(scalar, shape.channels) {
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
                assert_eq!(read.pixels.scalar(), scalar, "{}", format.name());
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
        for format in FORMATS.iter().filter(|format| (format.holds)(Scalar::U8, 3)) {
            let path = folder.path().join("picture").with_extension(format.name());
            let picture =
                Picture { icc: Some(profile.clone()), orientation: Orientation::Rotate270, ..picture(Scalar::U8, 3) };
            let lost = save(&path, format, &picture, 90).unwrap();
            assert_eq!(lost.is_some(), !format.keeps_orientation, "{}", format.name());
            let raw = Some(picture.pixels.shape()).filter(|_| format.name() == "raw");
            let read = load(&path, &LIMITS, raw).unwrap();
            assert_eq!(read.orientation == Orientation::Rotate270, format.keeps_orientation, "{}", format.name());
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
            save(&path, FileFormat::from_path(&path).unwrap(), &picture(Scalar::U8, 3), 90).unwrap();
            assert!(load(&path, &limits(2866, 1 << 20), None).unwrap_err().message.contains("--max-pixels"), "{name}");
            assert!(load(&path, &limits(2867, 8600), None).unwrap_err().message.contains("--max-bytes"), "{name}");
            load(&path, &limits(2867, 1 << 20), None).unwrap();
        }
    }

    #[test]
    fn broken_pictures_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        for format in FORMATS {
            let Some(picture) = every_picture()
                .find(|picture| (format.holds)(picture.pixels.scalar(), picture.pixels.shape().channels))
            else {
                panic!("{} holds nothing", format.name());
            };
            let path = folder.path().join("picture").with_extension(format.name());
            save(&path, format, &picture, 90).unwrap();
            let bytes = fs::read(&path).unwrap();
            for len in [0, 1, 7, bytes.len() / 4, bytes.len() / 2] {
                fs::write(&path, &bytes[..len]).unwrap();
                let raw = Some(picture.pixels.shape()).filter(|_| format.name() == "raw");
                let result = caught(|| load(&path, &LIMITS, raw));
                // JPEG decoders fill in what is missing, as browsers do.
                assert!(result.is_err() || format.name() == "jpg" && len > 100, "{} of {len} bytes", format.name());
            }
            fs::write(&path, b"This is no picture at all, though its name says so.").unwrap();
            assert!(caught(|| load(&path, &LIMITS, None)).is_err(), "{}", format.name());
        }
    }

    #[test]
    fn content_counts_more_than_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let (png, misnamed) = (folder.path().join("a.png"), folder.path().join("a.jpg"));
        let picture = picture(Scalar::U16, 1);
        save(&png, FileFormat::from_path(&png).unwrap(), &picture, 90).unwrap();
        fs::rename(&png, &misnamed).unwrap();
        assert_eq!(load(&misnamed, &LIMITS, None).unwrap().pixels, picture.pixels);
    }
}
