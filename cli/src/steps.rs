//! The steps of a call, as plans, and what becomes of alpha.

use apron::{Alpha, Image, Pipeline, Pixel, Plan, Scalar, Shape, Step};

use crate::args::FilterArgs;
use crate::failure::Result;
use crate::picture::{Picture, Pixels, each};

/// The call's steps, in order, ready to run.
pub(crate) fn pipeline(steps: Vec<Step>, args: &FilterArgs) -> Result<Pipeline> {
    let plan = |step| {
        Plan::builder(step)
            .border(args.border)
            .device(args.device)
            .variant(args.variant)
            .autotune(args.autotune)
            .memory(args.gpu_memory.unwrap_or(u64::MAX))
            .build()
    };
    let plans: apron::Result<Vec<_>> = steps.into_iter().map(plan).collect();
    Ok(Pipeline::new(plans?)?.in_f32(args.in_f32))
}

/// The channels that a picture's result has.
pub(crate) fn channels(picture: &Picture, alpha: Alpha) -> usize {
    let channels = picture.pixels.shape().channels;
    if picture.alpha { alpha.channels(channels) } else { channels }
}

/// Filters a picture into values of type `target`.
pub(crate) fn filtered(pipeline: &Pipeline, picture: &Picture, alpha: Alpha, target: Scalar) -> apron::Result<Pixels> {
    match target {
        Scalar::U8 => into(pipeline, picture, alpha).map(Pixels::U8),
        Scalar::U16 => into(pipeline, picture, alpha).map(Pixels::U16),
        Scalar::F16 => into(pipeline, picture, alpha).map(Pixels::F16),
        Scalar::F32 => into(pipeline, picture, alpha).map(Pixels::F32),
        other => Err(apron::Error::PixelFormat { format: other.to_string() }),
    }
}

fn into<D: Pixel>(pipeline: &Pipeline, picture: &Picture, alpha: Alpha) -> apron::Result<Image<D>> {
    let shape = picture.pixels.shape();
    let mut dst = Image::zeroed(shape.width, shape.height, channels(picture, alpha))?;
    each!(&picture.pixels, src => match picture.alpha {
        true => pipeline.run_with_alpha(&src.view(), &mut dst.view_mut(), alpha),
        false => pipeline.run(&src.view(), &mut dst.view_mut()),
    })?;
    Ok(dst)
}

/// Which variant runs in each step; a gradient has none.
pub(crate) fn variants(pipeline: &Pipeline, shape: Shape) -> String {
    let name =
        |plan: &Plan| plan.variant_for(shape).map_or_else(|_| "gradient".to_owned(), |variant| variant.to_string());
    pipeline.plans().iter().map(name).collect::<Vec<_>>().join(", ")
}
