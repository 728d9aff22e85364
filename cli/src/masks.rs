//! Which pixels of a picture are known: `--mask`, and the nodata value of a TIFF.

use std::path::Path;

use apron::{
    Alpha, Coverage, Image, ImageView, Mask, Nan, Number, Pipeline, Pixel, Scalar, Shape,
    with_pixels,
};

use crate::args::FilterArgs;
use crate::carried::Value;
use crate::codec::options::Reading;
use crate::failure::{Failure, Result};
use crate::files;
use crate::meta::Meta;
use crate::picture::{Pixels, each};
use crate::steps::Last;

/// GDAL's tag for the value of unknown pixels, as text.
const GDAL_NODATA: u16 = 42113;

/// A mask in memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MaskImage {
    /// 0 is unknown, 255 known.
    Bytes(Image<u8>),
    Weights(Image<f32>),
}

/// Refuses a mask for several filters, and for video.
pub(crate) fn check_option(args: &FilterArgs, has_video: bool) -> Result {
    if args.linear.is_some() && args.mask.is_some() {
        let reason = "--linear and --mask do not go together yet: leave one of them out";
        return Err(Failure::usage(reason));
    }
    let reason = match (args.mask.is_some(), has_video) {
        (false, _) => return Ok(()),
        (true, true) => "--mask is for pictures: leave it out for y4m",
        _ if args.choice.steps()?.len() > 1 => {
            "--mask is for a single --filter: run the tool again for the next"
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(reason))
}

/// Reads the mask that the user gave.
pub(crate) fn load(args: &FilterArgs) -> Result<Option<MaskImage>> {
    let Some(path) = &args.mask else { return Ok(None) };
    let reading = Reading { raw: None, axes: None, page: None, ..args.reading.clone() };
    let document = files::load(path, &reading)?;
    if document.pages.len() > 1 {
        let reason = format!("has {}, and a mask is one picture", document.count());
        return Err(Failure::at(path, reason));
    }
    let channels = document.first().pixels.shape().channels;
    if !document.first().extras.is_empty() {
        let reason = format!(
            "has {channels} channels with alpha: a mask is grey, or has a channel for each of the picture's"
        );
        return Err(Failure::at(path, reason));
    }
    let page = document.pages.into_iter().next();
    page.map(|page| of_pixels(page.pixels, path)).transpose()
}

fn of_pixels(pixels: Pixels, path: &Path) -> Result<MaskImage> {
    let floats = |shape: Shape, values: Vec<f32>| {
        Image::from_vec(values, shape.width, shape.height, shape.channels)
            .map(MaskImage::Weights)
            .map_err(|error| Failure::at(path, error))
    };
    let shape = pixels.shape();
    match pixels {
        Pixels::U8(image) => Ok(MaskImage::Bytes(image)),
        Pixels::U16(image) => {
            floats(shape, image.as_slice().iter().map(|&v| f32::from(v) / 65535.0).collect())
        }
        Pixels::F32(image) => Ok(MaskImage::Weights(image)),
        Pixels::F16(image) => floats(shape, image.as_slice().iter().map(|v| v.to_f32()).collect()),
        Pixels::F64(image) => floats(shape, image.as_slice().iter().map(|&v| v as f32).collect()),
    }
}

/// What is known of one page beside NaN.
pub(crate) struct Known<'a> {
    mask: Option<&'a MaskImage>,
    /// The value of unknown pixels in the file.
    pub(crate) nodata: Option<f64>,
    /// Whether results without known pixels get this value, so that the file's tag stays true.
    keeps_nodata: bool,
}

impl<'a> Known<'a> {
    /// `None` if nothing but NaN and what lies outside the picture is unknown.
    pub(crate) fn of(args: &FilterArgs, mask: Option<&'a MaskImage>, meta: &Meta) -> Option<Self> {
        let nodata = if args.nan == Nan::Spread { None } else { nodata(meta) };
        let keeps_nodata = args.unknown.is_none();
        (mask.is_some() || nodata.is_some()).then_some(Self { mask, nodata, keeps_nodata })
    }

    /// Filters the known pixels into values of type `target`; values in f64 into f64.
    pub(crate) fn filter(
        &self,
        pipeline: &Pipeline,
        pixels: &Pixels,
        last: Last,
        target: Option<Scalar>,
    ) -> apron::Result<Pixels> {
        let mask = self.combined(pixels)?;
        let mask = match &mask {
            Some(mask) => Mask::from(mask),
            None => self.given(),
        };
        let call = Call { known: self, pipeline, mask, last };
        match (pixels, target) {
            (Pixels::F64(src), None) => call.in_f64::<f64>(src).map(Pixels::F64),
            (_, None) => call.of::<f32>(pixels).map(Pixels::F32),
            (_, Some(target)) => {
                with_pixels!(target, P => call.of::<P>(pixels).map(Pixels::from))
            }
        }
    }

    fn given(&self) -> Mask<'_> {
        match self.mask {
            Some(MaskImage::Bytes(image)) => image.into(),
            Some(MaskImage::Weights(image)) => image.into(),
            None => Mask::All,
        }
    }

    /// The mask of the file and of nodata, if there is nodata.
    fn combined(&self, pixels: &Pixels) -> apron::Result<Option<Image<f32>>> {
        let Some(nodata) = self.nodata else { return Ok(None) };
        let shape @ Shape { width, height, channels } = pixels.shape();
        let mut weights = Image::<f32>::zeroed(width, height, channels)?;
        each!(pixels, image => mark(image, nodata, weights.as_mut_slice()));
        let (of_mask, given) = match self.mask {
            Some(MaskImage::Bytes(image)) => (image.shape(), image.view().into()),
            Some(MaskImage::Weights(image)) => (image.shape(), image.view().into()),
            None => return Ok(Some(weights)),
        };
        let fits = (of_mask.width, of_mask.height) == (width, height)
            && (of_mask.channels == 1 || of_mask.channels == channels);
        if !fits {
            return Err(apron::Error::Parameter {
                name: "the mask's shape",
                value: of_mask.to_string(),
                expected: format!("{width}x{height}x1, or {shape}, as the picture's"),
            });
        }
        let weight = |at: usize| match given {
            Mask::Bytes(view) => f32::from(at_of(&view, at)) / 255.0,
            Mask::Weights(view) => at_of(&view, at),
            _ => 1.0,
        };
        for (at, value) in weights.as_mut_slice().iter_mut().enumerate() {
            // What nodata leaves out stays so, even where a weight is not finite.
            if *value != 0.0 {
                *value = weight(at * of_mask.channels / channels);
            }
        }
        Ok(Some(weights))
    }
}

/// A value of an image without gaps between rows.
fn at_of<P: Pixel>(view: &ImageView<'_, P>, at: usize) -> P {
    let row = view.shape().row_len();
    view.row(at / row)[at % row]
}

/// Weighs values 1, and those that are nodata 0.
fn mark<P: Number>(image: &Image<P>, nodata: f64, weights: &mut [f32]) {
    // In the precision of the values: a float's text has more digits than an f32.
    let nodata = P::from_f64(nodata).to_f64();
    for (weight, value) in weights.iter_mut().zip(image.as_slice()) {
        *weight = if value.to_f64() == nodata { 0.0 } else { 1.0 };
    }
}

/// A page's value of unknown pixels.
fn nodata(meta: &Meta) -> Option<f64> {
    let text = meta.carried.iter().find_map(|carried| match &carried.value {
        Some(Value::Tag(GDAL_NODATA, _, data)) => Some(String::from_utf8_lossy(data).into_owned()),
        _ => None,
    })?;
    text.trim_matches(|c: char| c == '\0' || c.is_whitespace()).parse().ok()
}

/// Whether pixels of a page may be unknown though they are numbers.
pub(crate) fn has_nodata(args: &FilterArgs, meta: &Meta) -> bool {
    args.nan != Nan::Spread && nodata(meta).is_some()
}

/// A call over known pixels.
struct Call<'a> {
    known: &'a Known<'a>,
    pipeline: &'a Pipeline,
    mask: Mask<'a>,
    last: Last,
}

impl Call<'_> {
    fn of<D: Pixel>(&self, pixels: &Pixels) -> apron::Result<Image<D>> {
        match pixels {
            Pixels::U8(src) => self.typed(src),
            Pixels::U16(src) => self.typed(src),
            Pixels::F16(src) => self.typed(src),
            Pixels::F32(src) => self.typed(src),
            Pixels::F64(src) => self.in_f64(src),
        }
    }

    fn typed<S: Pixel, D: Pixel>(&self, src: &Image<S>) -> apron::Result<Image<D>> {
        self.run(src, |dst, coverage| {
            let plan = &self.pipeline.plans()[0];
            plan.run_masked_with(src, self.mask, dst, coverage)
        })
    }

    fn in_f64<D: Number>(&self, src: &Image<f64>) -> apron::Result<Image<D>> {
        self.run(src, |dst, coverage| {
            let plan = &self.pipeline.plans()[0];
            plan.run_masked_f64(&src.view(), self.mask, &mut dst.view_mut(), coverage)
        })
    }

    fn run<S: Number, D: Number>(
        &self,
        src: &Image<S>,
        run: impl FnOnce(&mut Image<D>, Coverage<'_>) -> apron::Result<()>,
    ) -> apron::Result<Image<D>> {
        let Shape { width, height, channels } = src.shape();
        let copies = match self.last {
            None => false,
            Some((extra, Alpha::Auto)) => extra.is_alpha(),
            Some((_, Alpha::Keep)) => true,
            Some((_, Alpha::Filter)) => false,
            Some((_, mode)) => {
                return Err(apron::Error::Parameter {
                    name: "alpha",
                    value: mode.to_string(),
                    expected: "keep or filter with a mask or nodata".to_owned(),
                });
            }
        };
        let mut dst = Image::<D>::zeroed(width, height, channels)?;
        let nodata = self.known.nodata.filter(|_| self.known.keeps_nodata);
        let len = if nodata.is_some() { (width, height) } else { (1, 1) };
        let mut known = Image::<u8>::zeroed(len.0, len.1, channels)?;
        let coverage = match nodata {
            Some(_) => Coverage { known: Some(known.view_mut()), ..Coverage::default() },
            None => Coverage::default(),
        };
        run(&mut dst, coverage)?;
        if let Some(nodata) = nodata {
            let each = dst.as_mut_slice().iter_mut().zip(known.as_slice());
            each.filter(|(_, known)| **known == 0).for_each(|(out, _)| *out = D::from_f64(nodata));
        }
        if copies {
            let pixels = dst.as_mut_slice().chunks_exact_mut(channels);
            for (out, pixel) in pixels.zip(src.as_slice().chunks_exact(channels)) {
                out[channels - 1] = D::from_f64(pixel[channels - 1].to_f64());
            }
        }
        Ok(dst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodata_is_compared_in_the_precision_of_the_values() {
        let image = Image::from_vec(vec![-3.402_823e38f32, 0.1, 5.0, f32::NAN], 4, 1, 1).unwrap();
        let marked = |nodata: f64| {
            let mut weights = [9.0; 4];
            mark(&image, nodata, &mut weights);
            weights
        };
        assert_eq!(marked(0.1), [1.0, 0.0, 1.0, 1.0]);
        assert_eq!(marked(-3.402_823e38), [0.0, 1.0, 1.0, 1.0]);
        assert_eq!(marked(f64::NAN), [1.0; 4]);
    }
}
