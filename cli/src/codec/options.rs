//! Options of reading and writing files.

use apron::{Scalar, Shape};

use crate::limits::Limits;
use crate::meta::Subsampling;

/// How files are read.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Reading {
    /// Read files without a header: rows of pixels of this size, with interleaved channels; TYPE is
    /// u8, u16 or f32 [default: u8]
    #[arg(long, value_name = "WxHxC[:TYPE]", value_parser = Raw::parse, help_heading = "Files")]
    pub(crate) raw: Option<Raw>,

    /// Axes of arrays: y are rows, x columns, z slices and c channels [default: by shape]
    #[arg(long, value_name = "AXES", help_heading = "Files")]
    pub(crate) axes: Option<Axes>,

    /// Filter only this page, frame or slice, counted from 1 [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Files")]
    pub(crate) page: Option<u32>,

    /// Keep the readable part of a file that is damaged or cut off, and print a note
    #[arg(long, help_heading = "Files")]
    pub(crate) lenient: bool,

    /// Rotate and mirror the pixels as the file's orientation says
    #[arg(long, help_heading = "Files")]
    pub(crate) auto_orient: bool,

    #[command(flatten)]
    pub(crate) limits: Limits,
}

/// How files are written.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Writing {
    /// Quality of JPEG output [default: 90]
    #[arg(long, value_name = "1-100", value_parser = clap::value_parser!(u8).range(1..=100), help_heading = "Files")]
    pub(crate) quality: Option<u8>,

    /// Colour resolution of JPEG output: 444 (full), 422 (half of the width) or 420 (half of the
    /// width and height) [default: as a JPEG input, else 444]
    #[arg(long, value_name = "KIND", help_heading = "Files")]
    pub(crate) subsampling: Option<Subsampling>,

    /// Lossless compression of TIFF output [default: none]
    #[arg(long, value_name = "KIND", help_heading = "Files")]
    pub(crate) compression: Option<Compression>,
}

/// The lossless compression of a TIFF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Compression {
    None,
    Lzw,
    #[value(alias = "zip")]
    Deflate,
    Packbits,
}

/// The content of a file without a header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Raw {
    pub(crate) shape: Shape,
    pub(crate) scalar: Scalar,
}

impl Raw {
    /// Bytes of the picture, which may be more than memory holds.
    pub(crate) fn bytes(self) -> u64 {
        let Shape { width, height, channels } = self.shape;
        let pixels = (width as u64).saturating_mul(height as u64);
        pixels.saturating_mul((channels * self.scalar.bytes()) as u64)
    }

    /// Reads `WxHxC[:TYPE]`.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let complaint = "a width, a height and a number of channels are needed, and u8, u16 or f32 after a colon unless the \
            values are u8, as in 1024x1024x3 or 640x480x1:u16";
        let (extents, scalar) = text.split_once(':').unwrap_or((text, "u8"));
        let scalar =
            scalar.parse().ok().filter(|&scalar| scalar != Scalar::F16).ok_or(complaint)?;
        let numbers: Option<Vec<usize>> =
            extents.split('x').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            // The number of channels cannot be guessed.
            Some(
                &[
                    width @ 1..=0x2000_0000,
                    height @ 1..=0x2000_0000,
                    channels @ 1..=Shape::MAX_CHANNELS,
                ],
            ) => Ok(Self { shape: Shape { width, height, channels }, scalar }),
            _ => Err(complaint),
        }
    }
}

/// The axes of an array: `y` are rows, `x` columns, `z` slices and `c` channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Axes {
    Yx,
    Yxc,
    Zyx,
    Zyxc,
}
