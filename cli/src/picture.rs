//! Pictures in memory: the pixels, and the metadata of a file.

use apron::{Extra, Image, Number, Pixel, Scalar, Shape, threads};
use exr::meta::header::Header;
use half::f16;
use image::ExtendedColorType;
use image::metadata::Orientation;

use crate::carried::{Carried, Kind};
use crate::channels::Named;
use crate::extra;
use crate::meta::{Meta, Resolution};
use crate::spread::{chunk, threads_for};

/// The values of a picture, in one of the types that the library filters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pixels {
    U8(Image<u8>),
    U16(Image<u16>),
    F16(Image<f16>),
    F32(Image<f32>),
    /// Values of a [`Stored`] type. They are filtered in f64.
    F64(Image<f64>),
}

/// Evaluates one expression for the type that the values have.
macro_rules! each {
    ($pixels:expr, $image:ident => $body:expr) => {
        match $pixels {
            $crate::picture::Pixels::U8($image) => $body,
            $crate::picture::Pixels::U16($image) => $body,
            $crate::picture::Pixels::F16($image) => $body,
            $crate::picture::Pixels::F32($image) => $body,
            $crate::picture::Pixels::F64($image) => $body,
        }
    };
}
pub(crate) use each;

impl Pixels {
    /// The type of the values. It is f32 for values in f64: formats and scaling treat both as
    /// floats.
    pub(crate) fn scalar(&self) -> Scalar {
        match self {
            Self::U8(_) => Scalar::U8,
            Self::U16(_) => Scalar::U16,
            Self::F16(_) => Scalar::F16,
            Self::F32(_) | Self::F64(_) => Scalar::F32,
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        each!(self, image => image.shape())
    }

    /// The values as bytes, in this machine's byte order.
    pub(crate) fn bytes(&self) -> &[u8] {
        each!(self, image => bytemuck::cast_slice(image.as_slice()))
    }

    /// The pixels rotated and mirrored as the orientation says.
    fn oriented(self, orientation: Orientation) -> apron::Result<Self> {
        Ok(match self {
            Self::U8(image) => Self::U8(oriented(image, orientation)?),
            Self::U16(image) => Self::U16(oriented(image, orientation)?),
            Self::F16(image) => Self::F16(oriented(image, orientation)?),
            Self::F32(image) => Self::F32(oriented(image, orientation)?),
            Self::F64(image) => Self::F64(oriented(image, orientation)?),
        })
    }
}

impl From<Image<u8>> for Pixels {
    fn from(image: Image<u8>) -> Self {
        Self::U8(image)
    }
}

impl From<Image<u16>> for Pixels {
    fn from(image: Image<u16>) -> Self {
        Self::U16(image)
    }
}

impl From<Image<f16>> for Pixels {
    fn from(image: Image<f16>) -> Self {
        Self::F16(image)
    }
}

impl From<Image<f32>> for Pixels {
    fn from(image: Image<f32>) -> Self {
        Self::F32(image)
    }
}

impl From<Image<f64>> for Pixels {
    fn from(image: Image<f64>) -> Self {
        Self::F64(image)
    }
}

fn oriented<P: Number>(image: Image<P>, orientation: Orientation) -> apron::Result<Image<P>> {
    use Orientation::*;
    if orientation == NoTransforms {
        return Ok(image);
    }
    let Shape { width, height, channels } = image.shape();
    let turned = matches!(orientation, Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH);
    let (across, down) = if turned { (height, width) } else { (width, height) };
    let mut result = Image::zeroed(across, down, channels)?;
    let src = image.as_slice();
    for (index, pixel) in result.as_mut_slice().chunks_exact_mut(channels).enumerate() {
        let (x, y) = (index % across, index / across);
        let (from_x, from_y) = match orientation {
            NoTransforms => (x, y),
            FlipHorizontal => (width - 1 - x, y),
            Rotate180 => (width - 1 - x, height - 1 - y),
            FlipVertical => (x, height - 1 - y),
            // Exif's 5: the transpose.
            Rotate90FlipH => (y, x),
            Rotate90 => (y, height - 1 - x),
            // Exif's 7: the transpose along the other diagonal.
            Rotate270FlipH => (width - 1 - y, height - 1 - x),
            Rotate270 => (width - 1 - y, x),
        };
        let at = (from_y * width + from_x) * channels;
        pixel.copy_from_slice(&src[at..at + channels]);
    }
    Ok(result)
}

/// Converts CMYK to RGB with the formula of the `image` crate. Channels after the inks stay.
fn rgb_of_inks<P: Pixel>(
    image: &Image<P>,
    greatest: u64,
    wide: fn(P) -> u64,
    narrow: fn(u64) -> P,
) -> apron::Result<Image<P>> {
    let Shape { width, height, channels } = image.shape();
    let mut result = Image::zeroed(width, height, channels - 1)?;
    let pixels = image.as_slice().chunks_exact(channels);
    for (rgb, inks) in result.as_mut_slice().chunks_exact_mut(channels - 1).zip(pixels) {
        let light = greatest - wide(inks[3]);
        for (to, &ink) in rgb.iter_mut().zip(&inks[..3]) {
            *to = narrow(((greatest - wide(ink)) * light + greatest / 2) / greatest);
        }
        rgb[3..].copy_from_slice(&inks[4..]);
    }
    Ok(result)
}

/// A type of values in files that kernels do not take. Such values are filtered in f64, on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U32,
    U64,
    F64,
}

impl Stored {
    /// The type's name in this tool's messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F64 => "f64",
        }
    }

    /// Bytes of a value in a file.
    fn bytes(self) -> u64 {
        match self {
            Self::Bool | Self::I8 => 1,
            Self::I16 => 2,
            Self::I32 | Self::U32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Whether results below 0 are lost.
    pub(crate) fn is_unsigned(self) -> bool {
        matches!(self, Self::U32 | Self::U64)
    }

    /// The greatest value.
    pub(crate) fn greatest(self) -> f64 {
        match self {
            Self::Bool => 1.0,
            Self::I8 => i8::MAX.into(),
            Self::I16 => i16::MAX.into(),
            Self::I32 => i32::MAX.into(),
            Self::I64 => i64::MAX as f64,
            Self::U32 => u32::MAX.into(),
            Self::U64 => u64::MAX as f64,
            Self::F64 => f64::MAX,
        }
    }

    /// Whether values are integers.
    pub(crate) fn is_integer(self) -> bool {
        self != Self::F64
    }
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            icc: None,
            exif: None,
            xmp: None,
            resolution: None,
            orientation: Orientation::NoTransforms,
            subsampling: None,
            is_linear: false,
            carried: Vec::new(),
        }
    }
}

/// One picture of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Picture {
    pub(crate) pixels: Pixels,
    /// The meaning of each channel after the colours.
    pub(crate) extras: Vec<Extra>,
    /// Whether an array has an axis for its channels, even for a single one.
    pub(crate) channel_axis: bool,
    /// The type in the file, if kernels do not take it. The pixels are then in f64.
    pub(crate) stored: Option<Stored>,
    /// The type that the pixels had, if they are sums by now.
    pub(crate) sums_of: Option<Scalar>,
    /// The time for which an animation shows the picture, in milliseconds.
    pub(crate) delay: Option<f64>,
    /// The channels of an OpenEXR file that these are; empty for all other formats.
    pub(crate) named: Vec<Named>,
    pub(crate) meta: Meta,
}

impl Picture {
    /// A picture without metadata, such as an array.
    pub(crate) fn new(pixels: Pixels) -> Self {
        let channels = pixels.shape().channels;
        let (channel_axis, extras) = (channels > 1, extra::of_array(channels));
        Self {
            pixels,
            extras,
            channel_axis,
            stored: None,
            sums_of: None,
            delay: None,
            named: Vec::new(),
            meta: Meta::default(),
        }
    }

    /// The type of the results, unless another one is asked for.
    pub(crate) fn scalar(&self) -> Scalar {
        self.sums_of.unwrap_or(self.pixels.scalar())
    }

    /// A description such as "512x512 RGB u8".
    pub(crate) fn describe(&self) -> String {
        let shape = self.pixels.shape();
        let scalar = self.pixels.scalar();
        let scalar = self.stored.map_or(scalar.name(), Stored::name);
        format!(
            "{}x{} {} {scalar}",
            shape.width,
            shape.height,
            extra::name(self.colours(), &self.extras)
        )
    }

    /// The size of the values in a file without compression, in bytes.
    pub(crate) fn bytes_in_file(&self) -> u64 {
        let bytes = self.pixels.bytes().len() as u64;
        self.stored.map_or(bytes, |stored| bytes / size_of::<f64>() as u64 * stored.bytes())
    }

    /// The time for which an animation should show the picture, in milliseconds. The default
    /// is 100.
    pub(crate) fn shown_for(&self) -> f64 {
        self.delay.unwrap_or(100.0)
    }

    /// The picture rotated and mirrored as its orientation says.
    pub(crate) fn upright(mut self) -> apron::Result<Self> {
        let orientation = std::mem::replace(&mut self.meta.orientation, Orientation::NoTransforms);
        if orientation != Orientation::NoTransforms {
            self.meta.pixels_moved();
        }
        if let Some(Resolution { x, y, .. }) =
            self.meta.resolution.as_mut().filter(|_| orientation.to_exif() >= 5)
        {
            std::mem::swap(x, y);
        }
        Ok(Self { pixels: self.pixels.oriented(orientation)?, ..self })
    }

    /// The picture in RGB, if it is CMYK.
    pub(crate) fn in_rgb(mut self) -> apron::Result<Self> {
        if !self.is_ink() {
            return Ok(self);
        }
        self.pixels = match &self.pixels {
            Pixels::U8(image) => {
                Pixels::U8(rgb_of_inks(image, 255, u64::from, |value| value as u8)?)
            }
            Pixels::U16(image) => {
                Pixels::U16(rgb_of_inks(image, 65535, u64::from, |value| value as u16)?)
            }
            _ => return Ok(self),
        };
        let meta = &mut self.meta;
        meta.carried.push(Carried::left_out(Kind::Phrase, "its CMYK inks, which became RGB"));
        if meta.icc.take().is_some() {
            meta.carried.push(Carried::left_out(Kind::Phrase, "the colour profile of CMYK"));
        }
        Ok(self)
    }

    /// Whether the channels are cyan, magenta, yellow and black, where 0 is no ink.
    pub(crate) fn is_ink(&self) -> bool {
        self.colours() == 4
    }

    /// The name that the `image` crate gives to this type and number of channels.
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

/// The content of a file: a picture, the frames of an animation, the pages of a document or the
/// slices of an array.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Document {
    /// At least one.
    pub(crate) pages: Vec<Picture>,
    /// How often an animation is shown; 0 means endlessly.
    pub(crate) plays: Option<u32>,
    /// Whether an array has an axis for its slices, even for a single one.
    pub(crate) slice_axis: bool,
    /// The headers of an OpenEXR file's parts; empty for all other formats.
    pub(crate) parts: Vec<Header>,
    /// Messages to the user about losses in reading.
    pub(crate) notes: Vec<String>,
}

impl Document {
    /// The pages of one file.
    pub(crate) fn of(pages: Vec<Picture>) -> Self {
        let slice_axis = pages.len() > 1;
        Self { slice_axis, pages, plays: None, parts: Vec::new(), notes: Vec::new() }
    }

    pub(crate) fn first(&self) -> &Picture {
        &self.pages[0]
    }

    /// Replaces every page by the result of `work`.
    pub(crate) fn map<E>(self, work: impl FnMut(Picture) -> Result<Picture, E>) -> Result<Self, E> {
        let pages = self.pages.into_iter().map(work).collect::<Result<_, E>>()?;
        Ok(Self { pages, ..self })
    }

    /// Whether all pages have the same extents, channels and type.
    pub(crate) fn uniform(&self) -> bool {
        let first = self.first();
        self.pages.iter().all(|page| {
            page.pixels.shape() == first.pixels.shape()
                && page.pixels.scalar() == first.pixels.scalar()
                && page.stored == first.stored
        })
    }

    /// "5 frames", "3 pages".
    pub(crate) fn count(&self) -> String {
        let what = if self.plays.is_some() { "frames" } else { "pages" };
        format!("{} {what}", self.pages.len())
    }
}

impl From<Picture> for Document {
    fn from(picture: Picture) -> Self {
        Self::of(vec![picture])
    }
}

impl Picture {
    /// The number of colours.
    pub(crate) fn colours(&self) -> usize {
        self.pixels.shape().channels - self.extras.len()
    }
}

impl Pixels {
    /// Moves a channel to another place. The channels between move by one.
    pub(crate) fn move_channel(&mut self, from: usize, to: usize) {
        if from == to {
            return;
        }
        each!(self, image => {
            let channels = image.shape().channels;
            let values = image.as_mut_slice();
            let threads = threads_for(values.len());
            threads::for_each(threads, values.chunks_mut(chunk(channels)), |(): &mut (), values| {
                values.chunks_exact_mut(channels).for_each(|pixel| {
                    if from < to { pixel[from..=to].rotate_left(1) } else { pixel[to..=from].rotate_right(1) }
                });
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_move_there_and_back() {
        let values: Vec<u8> = (0..10).collect();
        let mut pixels = Pixels::U8(Image::from_vec(values.clone(), 2, 1, 5).unwrap());
        pixels.move_channel(2, 4);
        assert_eq!(pixels.bytes(), [0, 1, 3, 4, 2, 5, 6, 8, 9, 7]);
        pixels.move_channel(4, 2);
        assert_eq!(pixels.bytes(), values);
    }
}
