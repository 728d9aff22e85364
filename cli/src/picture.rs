//! Pictures in memory: the pixels, and what a file says about them.

use apron::{Image, Scalar, Shape};
use half::f16;
use image::ExtendedColorType;
use image::metadata::Orientation;

/// The values of a picture, as they are stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pixels {
    U8(Image<u8>),
    U16(Image<u16>),
    F16(Image<f16>),
    F32(Image<f32>),
}

/// Evaluates one expression for whichever type the values have.
macro_rules! each {
    ($pixels:expr, $image:ident => $body:expr) => {
        match $pixels {
            $crate::picture::Pixels::U8($image) => $body,
            $crate::picture::Pixels::U16($image) => $body,
            $crate::picture::Pixels::F16($image) => $body,
            $crate::picture::Pixels::F32($image) => $body,
        }
    };
}
pub(crate) use each;

impl Pixels {
    /// The type of the values.
    pub(crate) fn scalar(&self) -> Scalar {
        each!(self, image => image.view().format().scalar)
    }

    pub(crate) fn shape(&self) -> Shape {
        each!(self, image => image.shape())
    }

    /// The values as bytes, in this machine's byte order.
    pub(crate) fn bytes(&self) -> &[u8] {
        each!(self, image => bytemuck::cast_slice(image.as_slice()))
    }
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Picture {
    pub(crate) pixels: Pixels,
    /// Whether the last channel is alpha. An array has none: all its channels are equal.
    pub(crate) alpha: bool,
    /// Whether an array has an axis for its channels, even for a single one.
    pub(crate) channel_axis: bool,
    /// The colour profile.
    pub(crate) icc: Option<Vec<u8>>,
    /// How to rotate or mirror the pixels for display.
    pub(crate) orientation: Orientation,
}

impl Picture {
    pub(crate) fn new(pixels: Pixels) -> Self {
        let channel_axis = pixels.shape().channels > 1;
        Self { pixels, alpha: false, channel_axis, icc: None, orientation: Orientation::NoTransforms }
    }

    /// A description such as "512x512 RGB u8".
    pub(crate) fn describe(&self) -> String {
        let shape = self.pixels.shape();
        format!("{}x{} {} {}", shape.width, shape.height, colours(shape.channels), self.pixels.scalar())
    }

    /// The name that the `image` crate has for the pixels.
    pub(crate) fn colour(&self) -> Option<ExtendedColorType> {
        Some(match (self.pixels.scalar(), self.pixels.shape().channels) {
            (Scalar::U8, 1) => ExtendedColorType::L8,
            (Scalar::U8, 2) => ExtendedColorType::La8,
            (Scalar::U8, 3) => ExtendedColorType::Rgb8,
            (Scalar::U8, 4) => ExtendedColorType::Rgba8,
            (Scalar::U16, 1) => ExtendedColorType::L16,
            (Scalar::U16, 2) => ExtendedColorType::La16,
            (Scalar::U16, 3) => ExtendedColorType::Rgb16,
            (Scalar::U16, 4) => ExtendedColorType::Rgba16,
            (Scalar::F32, 3) => ExtendedColorType::Rgb32F,
            (Scalar::F32, 4) => ExtendedColorType::Rgba32F,
            _ => return None,
        })
    }
}

/// The name of pixels with this many channels.
pub(crate) fn colours(channels: usize) -> &'static str {
    match channels {
        1 => "grey",
        2 => "grey+alpha",
        3 => "RGB",
        _ => "RGBA",
    }
}
