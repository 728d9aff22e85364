//! `--volume`: a pass along the slices of a stack, before each slice is filtered.
//!
//! The stack is one picture for this pass: its rows are the slices, each with all its pixels one
//! after the other. So a column of taps runs along the slices, on any device, in bands of slices
//! where memory is short. The sums stay in f32, or in f64 for types that are filtered in f64.

use apron::{Filter, Form, Image, Light, Nan, Number, Pipeline, Shape, Step};
use bytemuck::Pod;

use crate::args::FilterArgs;
use crate::failure::{Failure, Result};
use crate::jobs::Job;
use crate::picture::{Document, Picture, Pixels, each};
use crate::steps;

/// The pass along the slices.
pub(crate) struct Volume(Pipeline);

impl Volume {
    /// The pass that the user asked for, if so.
    pub(crate) fn new(args: &FilterArgs, filters: &[Step]) -> Result<Option<Self>> {
        let Some(given) = &args.volume else { return Ok(None) };
        let others = [
            (args.mask.is_some(), "--mask"),
            (args.nan != Nan::default(), "--nan ignore and fill"),
            (args.linear.is_some(), "--linear"),
            (args.channels.is_some(), "--channels"),
        ];
        if let Some((_, option)) = others.into_iter().find(|(is_given, _)| *is_given) {
            let reason = format!("--volume does not go together with {option} yet: leave one out");
            return Err(Failure::usage(reason));
        }
        let [filter] = filters else {
            let reason = "--volume is for a single --filter: run the tool again for the next";
            return Err(Failure::usage(reason));
        };
        let step = given.as_ref().unwrap_or(filter);
        let Some(column) = along_slices(step) else {
            let reason = "--volume needs taps along the slices that add up to 1: name their filter, \
                          as in --volume=gaussian:sigma=1";
            return Err(Failure::usage(reason));
        };
        let step = vec![Step::Filter(column.map_err(|error| Failure::usage(error.to_string()))?)];
        steps::pipeline(step, args.border, (args, Light::default()), None).map(|it| Some(Self(it)))
    }

    /// Filters along the slices. The slices' values are sums then.
    pub(crate) fn filter(&self, mut document: Document, job: &Job) -> Result<Document> {
        let fail = |reason: String| Failure::at(&job.input, reason);
        let failed = |error| Failure::at(&job.input, error);
        if document.plays.is_some() || !document.parts.is_empty() {
            let reason = "--volume is for the slices of arrays (.npy) and the pages of TIFFs";
            return Err(fail(reason.to_owned()));
        }
        if !document.uniform() {
            return Err(fail("--volume needs slices of one size and type".to_owned()));
        }
        if !document.first().extras.is_empty() {
            return Err(fail("--volume is for slices without alpha".to_owned()));
        }
        let stack = each!(&document.first().pixels, first => stacked(first, &document.pages));
        let sums = steps::sums(&self.0, &stack.map_err(failed)?, None).map_err(failed)?;
        for (slice, page) in document.pages.iter_mut().enumerate() {
            let shape = page.pixels.shape();
            let of_slice = each!(&sums, sums => row(sums, slice, shape).map(Pixels::from));
            page.sums_of = Some(page.pixels.scalar());
            page.pixels = of_slice.map_err(failed)?;
        }
        Ok(document)
    }

    /// The variant that ran, and where.
    pub(crate) fn ran(&self) -> String {
        format!("along the slices {}", steps::ran(&self.0))
    }
}

/// A filter's column, for taps along the slices: that of a product whose taps add up to 1.
fn along_slices(step: &Step) -> Option<apron::Result<Filter>> {
    let Step::Filter(filter) = step else { return None };
    let Form::Product { row, column } = filter.form() else { return None };
    let of_row: f64 = row.iter().sum();
    let taps: Vec<_> = column.iter().map(|tap| of_row * tap).collect();
    let is_one = (taps.iter().sum::<f64>() - 1.0).abs() < 1e-6;
    let (_, anchor) = filter.anchor();
    is_one.then(|| Filter::separable_f64(&[1.0], &taps)?.anchored(0, anchor))
}

/// Slices like the first one as the rows of one picture.
fn stacked<P: Number + Pod>(first: &Image<P>, pages: &[Picture]) -> apron::Result<Pixels>
where
    Pixels: From<Image<P>>,
{
    let Shape { width, height, channels } = first.shape();
    let mut stack = Image::<P>::zeroed(width * height, pages.len(), channels)?;
    let rows = stack.as_mut_slice().chunks_exact_mut(width * height * channels);
    for (row, page) in rows.zip(pages) {
        bytemuck::cast_slice_mut(row).copy_from_slice(page.pixels.bytes());
    }
    Ok(stack.into())
}

/// Row `slice` of a stack as a picture of this shape.
fn row<P: Number>(stack: &Image<P>, slice: usize, shape: Shape) -> apron::Result<Image<P>> {
    let Shape { width, height, channels } = shape;
    let mut picture = Image::zeroed(width, height, channels)?;
    let values = width * height * channels;
    picture.as_mut_slice().copy_from_slice(&stack.as_slice()[slice * values..][..values]);
    Ok(picture)
}
