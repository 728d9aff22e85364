//! The steps of a call, as plans, and the treatment of alpha.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use apron::{
    Alpha, Border, Extra, Image, Light, Number, Pipeline, Pixel, Plan, Progress, Ran, Scalar,
    Shape, Step, with_pixels,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::FilterArgs;
use crate::failure::Result;
use crate::picture::Pixels;

/// The longest time without a bar.
const BRIEF: Duration = Duration::from_millis(500);

/// A progress bar for one picture, shown if the picture takes a while. Each step fills the bar
/// once.
pub(crate) fn bar_of_one() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {percent} %, {eta} left");
    let style = style.expect("a literal that is well formed");
    ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(style)
}

/// A callback that shows a picture's progress in a bar of [`bar_of_one`].
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

/// Steps in order, ready to run. If there is a bar, it shows the progress.
pub(crate) fn pipeline(
    steps: Vec<Step>,
    border: Border,
    (args, light): (&FilterArgs, Light),
    bar: Option<&ProgressBar>,
) -> Result<Pipeline> {
    let plan = |step| {
        let builder = Plan::builder(step)
            .border(border)
            .device(args.device)
            .variant(args.variant)
            .accuracy(args.accuracy)
            .autotune(args.autotune)
            .memory(args.gpu_memory.unwrap_or(u64::MAX))
            .nan(args.nan)
            .light(light.clone())
            .unknown(args.unknown.unwrap_or(f64::NAN));
        match bar {
            Some(bar) => builder.progress(shown_by(bar)).build(),
            None => builder.build(),
        }
    };
    let plans: apron::Result<Vec<_>> = steps.into_iter().map(plan).collect();
    Ok(Pipeline::new(plans?)?.in_f32(args.in_f32))
}

/// The meaning of the last channel, and the alpha mode. With `None`, all channels are filtered in
/// the same way.
pub(crate) type Last = Option<(Extra, Alpha)>;

/// Filters pixels into their sums: f64 for types that are filtered in f64, else f32.
pub(crate) fn sums(pipeline: &Pipeline, pixels: &Pixels, last: Last) -> apron::Result<Pixels> {
    match pixels {
        Pixels::F64(src) => in_f64(pipeline, src, last).map(Pixels::F64),
        _ => filtered(pipeline, pixels, last, Scalar::F32),
    }
}

/// Filters pixels into values of type `target`.
pub(crate) fn filtered(
    pipeline: &Pipeline,
    pixels: &Pixels,
    last: Last,
    target: Scalar,
) -> apron::Result<Pixels> {
    with_pixels!(target, P => into::<P>(pipeline, pixels, last).map(Pixels::from))
}

fn into<D: Pixel>(pipeline: &Pipeline, pixels: &Pixels, last: Last) -> apron::Result<Image<D>> {
    match pixels {
        Pixels::U8(src) => of(pipeline, src, last),
        Pixels::U16(src) => of(pipeline, src, last),
        Pixels::F16(src) => of(pipeline, src, last),
        Pixels::F32(src) => of(pipeline, src, last),
        Pixels::F64(src) => in_f64(pipeline, src, last),
    }
}

fn of<S: Pixel, D: Pixel>(
    pipeline: &Pipeline,
    src: &Image<S>,
    last: Last,
) -> apron::Result<Image<D>> {
    let mut dst = result_of(src.shape(), last)?;
    match last {
        Some((extra, mode)) => {
            pipeline.run_with_extra(&src.view(), &mut dst.view_mut(), extra, mode)?
        }
        None => pipeline.run(&src.view(), &mut dst.view_mut())?,
    }
    Ok(dst)
}

fn in_f64<D: Number>(pipeline: &Pipeline, src: &Image<f64>, last: Last) -> apron::Result<Image<D>> {
    let mut dst = result_of(src.shape(), last)?;
    match last {
        Some((extra, mode)) => {
            pipeline.run_f64_with_extra(&src.view(), &mut dst.view_mut(), extra, mode)?
        }
        None => pipeline.run_f64(&src.view(), &mut dst.view_mut())?,
    }
    Ok(dst)
}

/// Memory for the result of a picture of this shape.
fn result_of<D: Number>(
    Shape { width, height, channels }: Shape,
    last: Last,
) -> apron::Result<Image<D>> {
    Image::zeroed(width, height, last.map_or(channels, |(_, mode)| mode.channels(channels)))
}

/// The variants and devices of this thread's last call of the pipeline, for each step:
/// `direct-sliding, gradient on gpu:0`.
pub(crate) fn ran(pipeline: &Pipeline) -> String {
    let plans = pipeline.plans();
    let name =
        |plan: &Plan| plan.ran().iter().map(Ran::to_string).collect::<Vec<_>>().join(" and ");
    format!("{} on {}", plans.iter().map(name).collect::<Vec<_>>().join(", "), plans[0].ran_on())
}

#[cfg(test)]
mod tests {
    use apron::{Device, Filter};

    use super::*;

    #[test]
    fn the_bar_ends_with_the_picture() {
        let bar = bar_of_one();
        let filter: Filter = "box:size=3".parse().unwrap();
        let plan =
            Plan::builder(&filter).device(Device::Cpu).progress(shown_by(&bar)).build().unwrap();
        let src = Image::from_vec(vec![7u8; 300 * 200], 300, 200, 1).unwrap();
        plan.run(&src.view(), &mut Image::<u8>::zeroed(300, 200, 1).unwrap().view_mut()).unwrap();
        assert_eq!((bar.position(), bar.length()), (300 * 200, Some(300 * 200)));
        // The work was too short for a bar.
        assert!(bar.is_hidden());
    }
}
