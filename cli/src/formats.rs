//! The formats that pictures are written in.

use std::io::{Seek, Write};
use std::path::Path;

use apron::Scalar;
use image::codecs::pnm::{GraymapHeader, PixmapHeader, PnmEncoder, PnmHeader, SampleEncoding};
use image::codecs::{bmp, farbfeld, gif, hdr, jpeg, openexr, png, qoi, tga, tiff, webp};
use image::metadata::Orientation;
use image::{ImageEncoder, ImageResult};

use crate::failure::{Failure, Result};
use crate::npy;
use crate::picture::{Picture, colours};

/// What an encoder writes to.
pub(crate) trait Sink: Write + Seek {}
impl<W: Write + Seek> Sink for W {}

/// A format that pictures are written in.
#[derive(Debug)]
pub(crate) struct FileFormat {
    /// File extensions; the first is the format's name.
    extensions: &'static [&'static str],
    /// Whether the format can hold pixels of this type and number of channels.
    pub(crate) holds: fn(Scalar, usize) -> bool,
    /// Whether the file can store how to rotate the picture for display.
    pub(crate) keeps_orientation: bool,
    pub(crate) encode: Encode,
}

/// How a format is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Encode {
    /// By this crate, as an array.
    Array,
    /// As the values alone.
    Raw,
    /// By an encoder of the `image` crate.
    Picture(fn(&Picture, &mut dyn Sink, quality: u8) -> ImageResult<()>),
}

/// Every format that can be written. A test holds the table to what the encoders do.
pub(crate) const FORMATS: &[FileFormat] = {
    use Scalar::{F32, U8, U16};
    &[
        FileFormat {
            extensions: &["png"],
            holds: |scalar, _| matches!(scalar, U8 | U16),
            keeps_orientation: true,
            encode: Encode::Picture(|picture, out, _| encode(png::PngEncoder::new(out), picture)),
        },
        FileFormat {
            extensions: &["jpg", "jpeg"],
            holds: |scalar, channels| scalar == U8 && matches!(channels, 1 | 3),
            keeps_orientation: true,
            encode: Encode::Picture(|picture, out, quality| {
                encode(jpeg::JpegEncoder::new_with_quality(out, quality), picture)
            }),
        },
        FileFormat {
            extensions: &["tif", "tiff"],
            holds: |scalar, channels| match scalar {
                U8 | U16 => channels != 2,
                scalar => scalar == F32 && channels >= 3,
            },
            keeps_orientation: false,
            encode: Encode::Picture(|picture, out, _| encode(tiff::TiffEncoder::new(out), picture)),
        },
        FileFormat {
            extensions: &["webp"],
            holds: |scalar, _| scalar == U8,
            keeps_orientation: true,
            encode: Encode::Picture(|picture, out, _| encode(webp::WebPEncoder::new_lossless(out), picture)),
        },
        FileFormat {
            extensions: &["bmp"],
            // The encoder takes grey with alpha too, and loses the alpha.
            holds: |scalar, channels| scalar == U8 && channels != 2,
            keeps_orientation: false,
            encode: Encode::Picture(|picture, mut out, _| encode(bmp::BmpEncoder::new(&mut out), picture)),
        },
        FileFormat {
            extensions: &["gif"],
            // Through a palette of 256 colours, one of them transparent.
            holds: |scalar, channels| scalar == U8 && channels >= 3,
            keeps_orientation: false,
            encode: Encode::Picture(|picture, out, _| encode(gif::GifEncoder::new(out), picture)),
        },
        FileFormat {
            extensions: &["qoi"],
            holds: |scalar, channels| scalar == U8 && channels >= 3,
            keeps_orientation: false,
            encode: Encode::Picture(|picture, out, _| encode(qoi::QoiEncoder::new(out), picture)),
        },
        FileFormat {
            extensions: &["tga"],
            holds: |scalar, _| scalar == U8,
            keeps_orientation: false,
            encode: Encode::Picture(|picture, out, _| encode(tga::TgaEncoder::new(out), picture)),
        },
        FileFormat {
            extensions: &["pgm"],
            holds: |scalar, channels| matches!(scalar, U8 | U16) && channels == 1,
            keeps_orientation: false,
            encode: Encode::Picture(|picture, out, _| encode(pnm(picture, out), picture)),
        },
        FileFormat {
            extensions: &["ppm"],
            // The encoder has no 16-bit PPM.
            holds: |scalar, channels| scalar == U8 && channels == 3,
            keeps_orientation: false,
            encode: Encode::Picture(|picture, out, _| encode(pnm(picture, out), picture)),
        },
        FileFormat {
            extensions: &["pnm"],
            holds: |scalar, channels| scalar == U8 && matches!(channels, 1 | 3) || scalar == U16 && channels == 1,
            keeps_orientation: false,
            encode: Encode::Picture(|picture, out, _| encode(pnm(picture, out), picture)),
        },
        FileFormat {
            extensions: &["pam"],
            // The encoder has no 16-bit grey with alpha.
            holds: |scalar, channels| scalar == U8 || scalar == U16 && channels != 2,
            keeps_orientation: false,
            encode: Encode::Picture(|picture, out, _| encode(PnmEncoder::new(out), picture)),
        },
        FileFormat {
            extensions: &["ff"],
            holds: |scalar, channels| scalar == U16 && channels == 4,
            keeps_orientation: false,
            encode: Encode::Picture(|picture, out, _| encode(farbfeld::FarbfeldEncoder::new(out), picture)),
        },
        FileFormat {
            extensions: &["hdr"],
            holds: |scalar, channels| scalar == F32 && channels == 3,
            keeps_orientation: false,
            encode: Encode::Picture(|picture, out, _| encode(hdr::HdrEncoder::new(out), picture)),
        },
        FileFormat {
            extensions: &["exr"],
            holds: |scalar, channels| scalar == F32 && channels >= 3,
            keeps_orientation: false,
            encode: Encode::Picture(|picture, out, _| encode(openexr::OpenExrEncoder::new(out), picture)),
        },
        FileFormat { extensions: &["npy"], holds: |_, _| true, keeps_orientation: false, encode: Encode::Array },
        FileFormat {
            extensions: &["raw"],
            holds: |scalar, _| scalar == U8,
            keeps_orientation: false,
            encode: Encode::Raw,
        },
    ]
};

impl FileFormat {
    /// The format of files with this extension.
    pub(crate) fn from_extension(extension: &str) -> Result<&'static Self, String> {
        let lower = extension.trim_start_matches('.').to_lowercase();
        FORMATS.iter().find(|format| format.extensions.contains(&&*lower)).ok_or_else(|| {
            let known: Vec<_> = FORMATS.iter().map(Self::name).collect();
            format!("pictures cannot be written as \"{extension}\"; there are {}", known.join(", "))
        })
    }

    /// The format that a path's extension names.
    pub(crate) fn from_path(path: &Path) -> Result<&'static Self> {
        match path.extension() {
            Some(extension) => Self::from_extension(&extension.to_string_lossy()),
            None => Err(format!(
                "there is no such folder, and the name has no extension that tells a format, as in {0}.png; for a new folder, write {0}/",
                path.display()
            )),
        }
        .map_err(|reason| Failure::at(path, reason))
    }

    /// Writes a picture that the format can hold.
    pub(crate) fn write(&self, picture: &Picture, out: &mut dyn Sink, quality: u8) -> Result<(), String> {
        match self.encode {
            Encode::Array => npy::write_picture(out, picture).map_err(|error| error.to_string()),
            Encode::Raw => out.write_all(picture.pixels.bytes()).map_err(|error| error.to_string()),
            Encode::Picture(encode) => encode(picture, out, quality).map_err(|error| error.to_string()),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.extensions[0]
    }

    /// Checks that the format can hold pixels of this type and number of channels. The error names formats that can.
    pub(crate) fn check(&self, scalar: Scalar, channels: usize) -> Result<(), String> {
        if (self.holds)(scalar, channels) {
            return Ok(());
        }
        let can: Vec<_> = FORMATS.iter().filter(|format| (format.holds)(scalar, channels)).map(Self::name).collect();
        let other = [Scalar::U8, Scalar::U16, Scalar::F32].into_iter().find(|&scalar| (self.holds)(scalar, channels));
        let convert = other.map(|other| {
            // Between integers, and between floats, the look is kept without asking.
            let integers = [scalar, other].map(|scalar| matches!(scalar, Scalar::U8 | Scalar::U16));
            let scale = if integers[0] == integers[1] { "" } else { " --scale full" };
            format!(", or convert with --output-type {other}{scale}")
        });
        let convert = convert.unwrap_or_default();
        Err(format!("{} cannot hold {} {scalar}; write {}{convert}", self.name(), colours(channels), can.join(", ")))
    }
}

/// The header of PGM or PPM: most readers of those formats cannot read PAM.
fn pnm<'a>(picture: &Picture, out: &'a mut dyn Sink) -> PnmEncoder<&'a mut dyn Sink> {
    let shape = picture.pixels.shape();
    let (width, height) = (shape.width as u32, shape.height as u32);
    let greatest = if picture.pixels.scalar() == Scalar::U8 { 0xff } else { 0xffff };
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
    // An encoder refuses what its format cannot hold; the picture is written without it.
    if let Some(profile) = &picture.icc {
        let _ = encoder.set_icc_profile(profile.clone());
    }
    if picture.orientation != Orientation::NoTransforms {
        let _ = encoder.set_exif_metadata(exif(picture.orientation));
    }
    encoder.write_image(picture.pixels.bytes(), shape.width as u32, shape.height as u32, colour)
}

/// Exif data with the orientation and nothing else. The input's own is not copied: it may hold a small copy of the picture
/// before filtering, and whoever blurs a face wants that gone.
fn exif(orientation: Orientation) -> Vec<u8> {
    let mut tiff = b"II*\0\x08\0\0\0".to_vec();
    tiff.extend(b"\x01\0");
    // Tag 0x0112, type SHORT, one value.
    tiff.extend(b"\x12\x01\x03\0\x01\0\0\0");
    tiff.extend([orientation.to_exif(), 0, 0, 0]);
    tiff.extend([0; 4]);
    tiff
}
