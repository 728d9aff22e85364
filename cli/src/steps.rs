//! The steps of a call, as plans, and what becomes of alpha.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use apron::{Alpha, Image, Pipeline, Pixel, Plan, Progress, Scalar, Shape, Step};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::FilterArgs;
use crate::failure::Result;
use crate::picture::{Picture, Pixels, each};

/// A picture that takes no longer than this needs no bar.
const BRIEF: Duration = Duration::from_millis(500);

/// A bar for how far one picture has come, which is seen if that takes a while. Each step fills it once more.
pub(crate) fn bar_of_one() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {percent} %, {eta} left");
    let style = style.expect("a literal that is well formed");
    ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(style)
}

/// What tells a bar of [`bar_of_one`] how far the picture has come.
fn shown_by(bar: &ProgressBar) -> impl Fn(Progress) -> ControlFlow<()> + Send + Sync + use<> {
    let (bar, start) = (bar.clone(), Instant::now());
    move |progress| {
        if bar.is_hidden() && start.elapsed() > BRIEF {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        ControlFlow::Continue(())
    }
}

/// The call's steps, in order, ready to run. How far a picture has come goes to the bar, if there is one.
pub(crate) fn pipeline(steps: Vec<Step>, args: &FilterArgs, bar: Option<&ProgressBar>) -> Result<Pipeline> {
    let plan = |step| {
        let builder = Plan::builder(step)
            .border(args.border)
            .device(args.device)
            .variant(args.variant)
            .autotune(args.autotune)
            .memory(args.gpu_memory.unwrap_or(u64::MAX));
        match bar {
            Some(bar) => builder.progress(shown_by(bar)).build(),
            None => builder.build(),
        }
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

#[cfg(test)]
mod tests {
    use apron::{Device, Filter};

    use super::*;

    #[test]
    fn the_bar_ends_with_the_picture() {
        let bar = bar_of_one();
        let filter: Filter = "box:size=3".parse().unwrap();
        let plan = Plan::builder(&filter).device(Device::Cpu).progress(shown_by(&bar)).build().unwrap();
        let src = Image::from_vec(vec![7u8; 300 * 200], 300, 200, 1).unwrap();
        plan.run(&src.view(), &mut Image::<u8>::zeroed(300, 200, 1).unwrap().view_mut()).unwrap();
        assert_eq!((bar.position(), bar.length()), (300 * 200, Some(300 * 200)));
        // It took too little time for a bar.
        assert!(bar.is_hidden());
    }
}
