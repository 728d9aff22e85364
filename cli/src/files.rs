//! Pictures in files: reading within limits, and writing.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use image::ImageFormat;

use crate::codec;
use crate::codec::io::Sink;
use crate::codec::options::{Reading, Writing};
use crate::ends::{self, Left};
use crate::failure::{Failure, Result};
use crate::formats::FileFormat;
use crate::picture::Document;
use crate::replace::replace;
use crate::stream;

/// Opens a file to read. Standard input (`-`) and pipes are read to their end first.
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

/// Whether the file's extension names a format that the tool reads.
pub(crate) fn is_named_as_picture(path: &Path) -> bool {
    let own = |extension: &OsStr| {
        ["npy", "y4m", "pfm"].iter().any(|known| extension.eq_ignore_ascii_case(known))
    };
    path.extension().is_some_and(own)
        || ImageFormat::from_path(path).is_ok_and(|format| {
            // Other crates than `image` read these formats.
            use ImageFormat::{OpenExr, Tiff, WebP};
            format.reading_enabled() || matches!(format, Tiff | WebP | OpenExr)
        })
}

/// Reads a file. The content tells the format; if it does not, the name does.
pub(crate) fn load(path: &Path, options: &Reading) -> Result<Document> {
    let mut reader = open(path)?;
    let extension = path.extension().and_then(|extension| extension.to_str());
    codec::read(&mut reader, extension, options).map_err(|reason| Failure::at(path, reason))
}

/// Writes all pages or nothing. Returns a note if something could not be kept.
pub(crate) fn save(
    path: &Path,
    format: &FileFormat,
    document: &Document,
    options: &Writing,
) -> Result<Option<String>> {
    check(path, format, document)?;
    replace(path, |out| {
        format.write(document, out, options).map_err(|reason| Failure::at(path, reason))
    })?;
    Ok(format.loses(document))
}

/// Writes all pages to `out`, as [`save`] does to a file. Errors name `path`.
pub(crate) fn encode(
    path: &Path,
    format: &FileFormat,
    document: &Document,
    out: &mut dyn Sink,
    options: &Writing,
) -> Result<Option<String>> {
    check(path, format, document)?;
    format.write(document, out, options).map_err(|reason| Failure::at(path, reason))?;
    Ok(format.loses(document))
}

fn check(path: &Path, format: &FileFormat, document: &Document) -> Result {
    let fail = |reason| Failure::at(path, reason);
    for page in &document.pages {
        format.check(page.pixels.scalar(), page.colours(), &page.extras).map_err(fail)?;
    }
    format.check_pages(document).map_err(fail)
}

/// The data of a file after the pictures that [`load`] reads.
pub(crate) fn left_over(path: &Path) -> Left {
    let extension = path.extension().and_then(|extension| extension.to_str());
    // `load` has just read the file. If opening it again fails, report nothing.
    File::open(path).map_or_else(|_| Left::default(), |file| ends::left_over(file, extension))
}

#[cfg(test)]
mod tests {
    use apron::{Extra, Image, Number, Scalar};
    use image::metadata::Orientation;

    use super::*;
    use crate::codec::options::{Compression, Raw};
    use crate::failure::caught;
    use crate::formats::{Encode, Extras, FORMATS, Kept, Several};
    use crate::limits::Limits;
    use crate::meta::{Meta, Resolution, Subsampling};
    use crate::picture::{Picture, Pixels, Stored, each};

    fn reading() -> Reading {
        Reading::default()
    }

    fn writing() -> Writing {
        Writing::default()
    }

    /// The options to read a file of this picture.
    fn reading_of(format: &FileFormat, picture: &Picture) -> Reading {
        let raw = Raw { shape: picture.pixels.shape(), scalar: picture.pixels.scalar() };
        Reading { raw: Some(raw).filter(|_| format.name() == "raw"), ..reading() }
    }

    fn picture(scalar: Scalar, channels: usize) -> Picture {
        let (width, height) = (61, 47);
        let n = width * height * channels;
        // Smooth, so that JPEG keeps it.
        let value = move |i: usize| {
            40 + (i / channels % width * 2 + i / channels / width + i % channels * 9) as u16
        };
        let pixels = match scalar {
            Scalar::U8 => Pixels::U8(
                Image::from_vec((0..n).map(|i| value(i) as u8).collect(), width, height, channels)
                    .unwrap(),
            ),
            Scalar::U16 => Pixels::U16(
                Image::from_vec((0..n).map(|i| value(i) * 255).collect(), width, height, channels)
                    .unwrap(),
            ),
            Scalar::F16 => {
                let values =
                    (0..n).map(|i| half::f16::from_f32(f32::from(value(i)) / 256.0)).collect();
                Pixels::F16(Image::from_vec(values, width, height, channels).unwrap())
            }
            Scalar::F32 => {
                let values = (0..n).map(|i| f32::from(value(i)) / 256.0).collect();
                Pixels::F32(Image::from_vec(values, width, height, channels).unwrap())
            }
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
                [l] => [l, l, l, Number::from_f64(opaque)],
                [l, a] => [l, l, l, a],
                [r, g, b] => [r, g, b, Number::from_f64(opaque)],
                _ => [pixel[0], pixel[1], pixel[2], pixel[3]],
            };
            let pixels = image.as_slice().chunks_exact(image.shape().channels);
            pixels.flat_map(rgba).map(|value| value.to_f64() as f32).collect()
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
                    let document = picture.into();
                    let message = save(&path, format, &document, &writing()).unwrap_err().message;
                    assert!(message.contains("npy") && !path.exists(), "{message}");
                    // If the encoder accepts the picture, the table is too strict.
                    let narrowed = matches!(format.name(), "pgm" | "ppm" | "pnm" | "bmp");
                    if let (Encode::Other(_), Some(_), false) =
                        (format.encode, document.first().colour(), narrowed)
                    {
                        let refused = format.write(
                            &document,
                            &mut std::io::Cursor::new(Vec::new()),
                            &writing(),
                        );
                        assert!(
                            refused.is_err(),
                            "{} can hold {}",
                            format.name(),
                            document.first().describe()
                        );
                    }
                    continue;
                }
                held += 1;
                let best = Writing { quality: Some(100), ..writing() };
                save(&path, format, &picture.clone().into(), &best)
                    .unwrap_or_else(|failure| panic!("{}", failure.message));
                let read = load(&path, &reading_of(format, &picture))
                    .unwrap_or_else(|failure| panic!("{}", failure.message));
                assert_eq!((read.pages.len(), &*read.notes), (1, &[][..]), "{}", format.name());
                let read = read.first();
                fs::remove_file(&path).unwrap();
                // GIF drops an alpha channel that is opaque everywhere.
                let changes = matches!(format.name(), "webp" | "gif" | "bmp");
                let read_shape = read.pixels.shape();
                assert_eq!(read.pixels.scalar(), scalar, "{}", format.name());
                assert!(
                    read_shape == shape || changes && read_shape.channels >= 3,
                    "{}",
                    format.name()
                );
                let tolerance = match format.name() {
                    "jpg" => 4.0,
                    // GIF's alpha is opaque or transparent, nothing between.
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
                let error =
                    expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(
                    error <= tolerance,
                    "{} loses {error} of {}",
                    format.name(),
                    picture.describe()
                );
                if !matches!(format.name(), "npy" | "raw") {
                    let behind = match (read_shape.channels, format.extras) {
                        (1 | 3, _) => Vec::new(),
                        (_, Extras::Alpha(kind)) => vec![kind],
                        _ => vec![Extra::Unspecified],
                    };
                    assert_eq!(read.extras, behind, "{}", format.name());
                }
            }
            assert!(held > 0, "{} holds nothing", format.name());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "a file was left");
    }

    /// Every type of metadata that a file can hold beside the pixels.
    fn meta(channels: usize) -> Meta {
        let mut profile = vec![0u8; 128];
        profile[..4].copy_from_slice(&128u32.to_be_bytes());
        profile[16..20].copy_from_slice(if channels >= 3 { b"RGB " } else { b"GRAY" });
        let camera = exif::Field {
            tag: exif::Tag::Model,
            ifd_num: exif::In::PRIMARY,
            value: exif::Value::Ascii(vec![b"Camera obscura".to_vec()]),
        };
        Meta {
            icc: Some(profile),
            exif: crate::exif::collected(vec![camera]),
            xmp: Some(b"<x:xmpmeta/>".to_vec()),
            resolution: Some(Resolution::per_inch(300.0, 150.0)),
            orientation: Orientation::Rotate270,
            ..Meta::default()
        }
    }

    #[test]
    fn what_the_table_says_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        for (format, channels) in FORMATS.iter().flat_map(|format| [(format, 1), (format, 3)]) {
            if !(format.holds)(Scalar::U8, channels) {
                continue;
            }
            let path = folder.path().join("picture").with_extension(format.name());
            let picture = Picture { meta: meta(channels), ..picture(Scalar::U8, channels) };
            let lost = save(&path, format, &picture.clone().into(), &writing())
                .unwrap()
                .unwrap_or_default();
            let read = load(&path, &reading_of(format, &picture)).unwrap();
            let read = &read.first().meta;
            let check = |kept, is_there: bool, word: &str| {
                let name = format.name();
                assert_eq!(is_there, format.keeps.contains(&kept), "{name}: {word}");
                // npy and raw hold values alone: only a lost orientation is worth a note.
                let said = kept == Kept::Orientation || !matches!(name, "npy" | "raw");
                assert_eq!(
                    !is_there && said,
                    lost.contains(word),
                    "{name} says {lost:?} of {word}"
                );
            };
            if (format.name(), channels) != ("webp", 1) {
                check(Kept::Profile, read.icc == picture.meta.icc, "profile");
            }
            check(Kept::Xmp, read.xmp == picture.meta.xmp, "XMP");
            check(Kept::Orientation, read.orientation == picture.meta.orientation, "orientation");
            let model = |meta: &Meta| {
                let fields = crate::exif::fields(meta.exif.as_deref());
                fields
                    .into_iter()
                    .find(|field| field.tag == exif::Tag::Model)
                    .map(|field| field.display_value().to_string())
            };
            check(Kept::Exif, read.exif.is_some() && model(read) == model(&picture.meta), "Exif");
            if format.name() != "webp" {
                let near = |Resolution { x, y, .. }: Resolution| {
                    (x - 300.0).abs() < 0.02 && (y - 150.0).abs() < 0.02
                };
                check(Kept::Resolution, read.resolution.is_some_and(near), "resolution");
            }
        }
    }

    #[test]
    fn pages_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        for format in FORMATS {
            let path = folder.path().join("pages").with_extension(format.name());
            let channels = if (format.holds)(Scalar::U8, 3) { 3 } else { 1 };
            let Some(scalar) = [Scalar::U8, Scalar::U16, Scalar::F32]
                .into_iter()
                .find(|&it| (format.holds)(it, channels))
            else {
                continue;
            };
            let mut pages: Vec<_> = (0..3).map(|_| picture(scalar, channels)).collect();
            for (index, page) in pages.iter_mut().enumerate() {
                page.delay = Some(40.0 + 30.0 * index as f64);
                if let Pixels::U8(image) = &mut page.pixels {
                    image.as_mut_slice()[..600].fill(index as u8);
                }
            }
            let document = Document { plays: Some(7), ..Document::of(pages) };
            let saved = save(&path, format, &document, &writing());
            if format.pages == Several::No {
                let message = saved.unwrap_err().message;
                assert!(
                    message.contains("3 frames") && message.contains("--page") && !path.exists(),
                    "{message}"
                );
                continue;
            }
            assert_eq!(
                saved.unwrap().is_some(),
                format.pages != Several::Animation,
                "{}",
                format.name()
            );
            let read = load(&path, &reading()).unwrap();
            assert_eq!(read.pages.len(), 3, "{}", format.name());
            for (index, (page, written)) in read.pages.iter().zip(&document.pages).enumerate() {
                let exact = format.name() != "gif";
                assert!(!exact || page.pixels == written.pixels, "{}", format.name());
                assert_eq!(
                    page.pixels.bytes()[..9],
                    written.pixels.bytes()[..9],
                    "{}",
                    format.name()
                );
                if format.pages == Several::Animation {
                    assert_eq!(
                        (page.delay, read.plays),
                        (written.delay, Some(7)),
                        "{}",
                        format.name()
                    );
                }
                let one =
                    load(&path, &Reading { page: Some(index as u32 + 1), ..reading() }).unwrap();
                assert_eq!(
                    (one.pages.len(), &one.first().pixels),
                    (1, &page.pixels),
                    "{}",
                    format.name()
                );
            }
            let message = load(&path, &Reading { page: Some(4), ..reading() }).unwrap_err().message;
            assert!(message.contains('4') && message.contains('3'), "{message}");
            // An endless loop, and a single pass.
            for plays in [0, 1] {
                save(
                    &path,
                    format,
                    &Document { plays: Some(plays), ..document.clone() },
                    &writing(),
                )
                .unwrap();
                let read = load(&path, &reading()).unwrap();
                assert!(
                    format.pages != Several::Animation || read.plays == Some(plays),
                    "{}",
                    format.name()
                );
            }
            // The limit applies to all pages together.
            let each = document.first().pixels.bytes().len() as u64;
            let limits = Limits { max_bytes: each * 2 + each / 2, ..Limits::default() };
            assert!(
                load(&path, &Reading { limits, ..reading() })
                    .unwrap_err()
                    .message
                    .contains("--max-bytes")
            );
        }
    }

    #[test]
    fn pages_of_several_kinds() {
        let folder = tempfile::tempdir().unwrap();
        let pages = vec![picture(Scalar::U8, 3), picture(Scalar::F32, 1), picture(Scalar::U16, 4)];
        let document = Document::of(pages);
        for format in FORMATS.iter().filter(|format| format.pages != Several::No) {
            let path = folder.path().join("pages").with_extension(format.name());
            if format.name() == "tif" {
                save(&path, format, &document, &writing()).unwrap();
                let read = load(&path, &reading()).unwrap();
                assert!(
                    read.pages
                        .iter()
                        .zip(&document.pages)
                        .all(|(read, page)| read.pixels == page.pixels)
                );
                assert!(read.notes.is_empty());
                assert!(
                    read.pages
                        .iter()
                        .zip(&document.pages)
                        .all(|(read, page)| read.extras == page.extras)
                );
            } else {
                save(&path, format, &document, &writing()).unwrap_err();
            }
        }
    }

    #[test]
    fn types_that_are_filtered_in_f64_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        use Stored::*;
        for stored in [Bool, I8, I16, I32, I64, U32, U64, F64] {
            // Values that f32 cannot hold exactly, for types that have them.
            let size = match stored {
                Bool => 1.0,
                I8 => 77.0,
                I16 => 32_767.0,
                I32 | U32 => 2_147_483_647.0,
                I64 | U64 => 9_007_199_254_740_991.0,
                F64 => 1.0 / 3.0,
            };
            let values = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0].map(|value: f64| value * size);
            let pixels = Pixels::F64(Image::from_vec(values.to_vec(), 3, 2, 1).unwrap());
            let picture = Picture { stored: Some(stored), ..Picture::new(pixels) };
            for format in FORMATS.iter().filter(|format| format.stores(stored)) {
                let path = folder.path().join("picture").with_extension(format.name());
                save(&path, format, &picture.clone().into(), &writing()).unwrap();
                let read = load(&path, &reading()).unwrap();
                // OpenEXR names the channel, and its values are light.
                let found = Picture { named: Vec::new(), ..read.first().clone() };
                let mut expected = picture.clone();
                expected.meta.is_linear = format.name() == "exr";
                assert_eq!(
                    (&found, &*read.notes),
                    (&expected, &[][..]),
                    "{stored:?} in {}",
                    format.name()
                );
            }
        }
    }

    #[test]
    fn compressed_tiffs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tif");
        let format = FileFormat::from_path(&path).unwrap();
        for picture in every_picture() {
            let mut sizes = Vec::new();
            for compression in
                [Compression::None, Compression::Packbits, Compression::Lzw, Compression::Deflate]
            {
                save(
                    &path,
                    format,
                    &picture.clone().into(),
                    &Writing { compression: Some(compression), ..writing() },
                )
                .unwrap();
                assert_eq!(
                    load(&path, &reading()).unwrap().first().pixels,
                    picture.pixels,
                    "{compression:?}"
                );
                sizes.push(fs::metadata(&path).unwrap().len());
            }
            assert!(picture.pixels.scalar() != Scalar::U8 || sizes[3] < sizes[0] / 2, "{sizes:?}");
        }
    }

    #[test]
    fn colour_of_jpegs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        let format = FileFormat::from_path(&path).unwrap();
        let picture = picture(Scalar::U8, 3);
        for subsampling in [Subsampling::S444, Subsampling::S422, Subsampling::S420] {
            let options = Writing { subsampling: Some(subsampling), ..writing() };
            save(&path, format, &picture.clone().into(), &options).unwrap();
            let read = load(&path, &reading()).unwrap();
            assert_eq!(read.first().meta.subsampling, Some(subsampling));
            // Without an option, the output has the input's subsampling.
            save(&path, format, &read, &writing()).unwrap();
            assert_eq!(
                load(&path, &reading()).unwrap().first().meta.subsampling,
                Some(subsampling)
            );
        }
    }

    #[test]
    fn pictures_are_turned_upright() {
        // Rows of 1 2 3 and 4 5 6, oriented like the letter F in the Exif specification.
        let expected: [(u8, usize, [u8; 6]); 8] = [
            (1, 3, [1, 2, 3, 4, 5, 6]),
            (2, 3, [3, 2, 1, 6, 5, 4]),
            (3, 3, [6, 5, 4, 3, 2, 1]),
            (4, 3, [4, 5, 6, 1, 2, 3]),
            (5, 2, [1, 4, 2, 5, 3, 6]),
            (6, 2, [4, 1, 5, 2, 6, 3]),
            (7, 2, [6, 3, 5, 2, 4, 1]),
            (8, 2, [3, 6, 2, 5, 1, 4]),
        ];
        let folder = tempfile::tempdir().unwrap();
        for (number, width, values) in expected {
            let orientation = Orientation::from_exif(number).unwrap();
            let pixels = Pixels::U8(Image::from_vec(vec![1, 2, 3, 4, 5, 6], 3, 2, 1).unwrap());
            let meta = Meta {
                orientation,
                resolution: Some(Resolution::per_inch(100.0, 200.0)),
                ..Meta::default()
            };
            let picture = Picture { meta, ..Picture::new(pixels) };
            for format in FORMATS.iter().filter(|format| matches!(format.name(), "png" | "tif")) {
                let path = folder.path().join("a").with_extension(format.name());
                save(&path, format, &picture.clone().into(), &writing()).unwrap();
                assert_eq!(load(&path, &reading()).unwrap().first().meta.orientation, orientation);
                let read = load(&path, &Reading { auto_orient: true, ..reading() }).unwrap();
                let read = read.first();
                let upright =
                    Pixels::U8(Image::from_vec(values.to_vec(), width, 6 / width, 1).unwrap());
                assert_eq!(
                    (&read.pixels, read.meta.orientation),
                    (&upright, Orientation::NoTransforms),
                    "{number}"
                );
                let Some(Resolution { x, y, .. }) = read.meta.resolution else {
                    panic!("no resolution")
                };
                assert_eq!(x > y, width == 2, "{number}");
            }
        }
    }

    #[test]
    fn limits_are_checked_before_decoding() {
        let folder = tempfile::tempdir().unwrap();
        let limits = |max_pixels, max_bytes| Reading {
            limits: Limits { max_pixels, max_bytes },
            ..reading()
        };
        for name in ["a.png", "a.tif", "a.webp", "a.npy", "a.jpg", "a.qoi", "a.bmp"] {
            let path = folder.path().join(name);
            save(
                &path,
                FileFormat::from_path(&path).unwrap(),
                &picture(Scalar::U8, 3).into(),
                &writing(),
            )
            .unwrap();
            assert!(
                load(&path, &limits(2866, 1 << 20)).unwrap_err().message.contains("--max-pixels"),
                "{name}"
            );
            assert!(
                load(&path, &limits(2867, 8600)).unwrap_err().message.contains("--max-bytes"),
                "{name}"
            );
            load(&path, &limits(2867, 1 << 20)).unwrap();
        }
    }

    #[test]
    fn broken_pictures_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        for format in FORMATS {
            let Some(picture) = every_picture().find(|picture| {
                (format.holds)(picture.pixels.scalar(), picture.pixels.shape().channels)
            }) else {
                panic!("{} holds nothing", format.name());
            };
            let path = folder.path().join("picture").with_extension(format.name());
            save(&path, format, &picture.clone().into(), &writing()).unwrap();
            let bytes = fs::read(&path).unwrap();
            for len in [0, 1, 7, bytes.len() / 4, bytes.len() / 2] {
                fs::write(&path, &bytes[..len]).unwrap();
                let result = caught(|| load(&path, &reading_of(format, &picture)));
                assert!(result.is_err(), "{} of {len} bytes", format.name());
            }
            fs::write(&path, b"This is no picture at all, though its name says so.").unwrap();
            assert!(caught(|| load(&path, &reading())).is_err(), "{}", format.name());
        }
    }

    #[test]
    fn lenient_reading_keeps_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let lenient = Reading { lenient: true, ..reading() };
        for name in ["a.jpg", "a.png", "a.npy", "a.bmp", "a.gif"] {
            let path = folder.path().join(name);
            let format = FileFormat::from_path(&path).unwrap();
            let pages = if name == "a.gif" { 3 } else { 1 };
            let pages = (0..pages).map(|_| picture(Scalar::U8, 3)).collect();
            let document = Document { plays: Some(0), ..Document::of(pages) };
            save(&path, format, &document, &writing()).unwrap();
            let bytes = fs::read(&path).unwrap();
            // Tables fill about half of a small JPEG.
            let cut = if name == "a.jpg" { bytes.len() - 100 } else { bytes.len() * 2 / 3 };
            fs::write(&path, &bytes[..cut]).unwrap();
            let message = load(&path, &reading()).unwrap_err().message;
            assert!(message.contains("--lenient"), "{name}: {message}");
            let read =
                load(&path, &lenient).unwrap_or_else(|failure| panic!("{}", failure.message));
            assert_eq!(read.notes.len(), 1, "{name}: {:?}", read.notes);
            let (found, whole) = (rgba(&read.first().pixels), rgba(&document.first().pixels));
            let tolerance = if matches!(name, "a.jpg" | "a.gif") { 14.0 } else { 0.0 };
            // BMP stores rows from the bottom up, so a cut file keeps the bottom rows.
            let range =
                if name == "a.bmp" { whole.len() - 4 * 61 * 8..whole.len() } else { 0..4 * 61 * 8 };
            assert!(
                found[range.clone()]
                    .iter()
                    .zip(&whole[range])
                    .all(|(a, b)| (a - b).abs() <= tolerance),
                "{name}"
            );
        }
    }

    #[test]
    fn content_counts_more_than_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let (png, misnamed) = (folder.path().join("a.png"), folder.path().join("a.jpg"));
        let picture = picture(Scalar::U16, 1);
        save(&png, FileFormat::from_path(&png).unwrap(), &picture.clone().into(), &writing())
            .unwrap();
        fs::rename(&png, &misnamed).unwrap();
        assert_eq!(load(&misnamed, &reading()).unwrap().first().pixels, picture.pixels);
    }
}
