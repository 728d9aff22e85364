//! Bands of pictures: their steps, what bands of one kind share, and the memory that they need.

use std::ops::Range;

use gpu_kernels::abi::UncertainList;

use super::engine::Engine;
use super::image::{ROW_ALIGNMENT, pitch};
use super::timeline::Noted;
use crate::Result;
use crate::image::stored::{StoredView, StoredViewMut};
use crate::image::{Scalar, Shape};
use crate::kernels::prepared::{Prepared, Tiles};
use crate::kernels::uncertain::Exactly;
use crate::plan::ran::Launched;
use crate::plan::schedule::{Bands, Extent, Job};

/// Finds the kernel for a shape, a number of filtered channels, and the types of source and
/// results.
type Prepare<'a> = dyn Fn(Shape, usize, (Scalar, Scalar)) -> Result<Prepared> + Sync + 'a;

/// One of the steps that pictures go through, one after the other on the device.
pub(crate) struct Step<'a> {
    /// One for each GPU.
    pub(crate) engines: &'a [Engine],
    pub(crate) prepare: Box<Prepare<'a>>,
    /// The type of the results. For the last step, the picture's type counts.
    pub(crate) target: Scalar,
    /// Whether the step filters all channels, whatever the picture says.
    pub(crate) takes_all: bool,
    /// Notes what a band has launched.
    pub(crate) launched: &'a Launched,
}

/// A band of a picture.
pub(super) struct Band<'q> {
    /// Its number in an attempt.
    pub(super) ticket: usize,
    pub(super) picture: usize,
    pub(super) plan: &'q Planned,
    pub(super) job: Job,
    /// The rows of results that it needs of each step but the last.
    pub(super) between: Vec<Range<usize>>,
    /// The picture.
    pub(super) src: StoredView<'q>,
    /// The rows of the job's results.
    pub(super) dst: StoredViewMut<'q>,
}

impl Band<'_> {
    /// Bytes from row to row in the lane's staging memory: without gaps for copies, aligned for
    /// kernels.
    pub(super) fn staged_pitch(&self, scalar: Scalar) -> usize {
        let values = self.plan.shape.row_len();
        if self.plan.in_place { pitch(scalar, values) } else { scalar.bytes() * values }
    }
}

/// A band under way, with its times if they are wanted.
pub(super) type UnderWay<'q> = (Band<'q>, Option<Noted>);

/// What the bands of pictures of one kind share.
pub(super) struct Planned {
    pub(super) shape: Shape,
    pub(super) steps: Vec<PlannedStep>,
    pub(super) bands: Bands,
    /// Bytes of a lane.
    pub(super) bytes: u64,
    /// Whether kernels read and write the lane's staged rows.
    pub(super) in_place: bool,
}

/// The same about one step.
pub(super) struct PlannedStep {
    pub(super) prepared: Prepared,
    pub(super) filtered: usize,
    pub(super) target: Scalar,
    pub(super) extent: Extent,
}

impl Planned {
    /// The job for the band of results that begins at row `first`, and the results of all steps but
    /// the last that it needs.
    pub(super) fn job(&self, first: usize) -> (Job, Vec<Range<usize>>) {
        let (last, before) = last(&self.steps);
        let mut job = last.extent.job(first, self.bands);
        let mut between = Vec::new();
        for step in before.iter().rev() {
            let results = step.extent.widened(job.there);
            job.there = step.extent.read(&results);
            between.push(results);
        }
        if !between.is_empty() {
            between.reverse();
            job.source = vec![job.there.clone()];
        }
        (job, between)
    }
}

/// The last one, and those before it.
pub(super) fn last<T>(steps: &[T]) -> (&T, &[T]) {
    let Some(parts) = steps.split_last() else { unreachable!("there is a step") };
    parts
}

/// The memory that bands of a picture need.
pub(super) struct Needs {
    pub(super) extent: Extent,
    shape: Shape,
    /// Bytes of a row of the source and of results on the device.
    pub(super) pitches: (usize, usize),
    /// Bytes of a row of planes and of scratch, all channels together.
    beside: usize,
    /// Bytes of scratch of any band.
    reserved: u64,
    /// Bytes of the list of uncertain results, for so many results.
    uncertain: Box<dyn Fn(usize) -> u64>,
}

impl Needs {
    /// Bytes of a lane for bands of so many rows.
    fn bytes(&self, rows: usize) -> u64 {
        let source = self.extent.source_rows(rows) as u64;
        let (src, dst) = (self.pitches.0 as u64, self.pitches.1 as u64);
        let images =
            source.saturating_mul(src + self.beside as u64).saturating_add(rows as u64 * dst);
        images
            .saturating_add(self.reserved)
            .saturating_add((self.uncertain)(self.shape.width.saturating_mul(rows)))
    }
}

/// Bytes of a lane for bands of so many rows: the needs of each step, from the last to the first.
pub(super) fn bytes(needs: &[Needs], rows: usize) -> u64 {
    let (mut bytes, mut results) = (0u64, rows);
    let most_step = needs.iter().map(|needs| needs.extent.step).max().unwrap_or(1);
    for needs in needs.iter().rev() {
        bytes = bytes.saturating_add(needs.bytes(results));
        // The step before begins at the start of one of its tiles.
        results = needs.extent.source_rows(results);
        results = results.saturating_add(most_step - 1).min(needs.extent.height);
    }
    bytes
}

impl Engine {
    /// The grid of tiles that results of this filter depend on.
    pub(crate) fn tiles(&self, prepared: &Prepared, kinds: (Scalar, Scalar)) -> Result<Tiles> {
        let filter = self.taps(kinds)?.filter();
        Ok(prepared.launcher.tiles(filter).unwrap_or(Tiles { step: 1, reach: filter.rows() }))
    }

    /// What a band of a picture needs.
    pub(super) fn needs(
        &self,
        prepared: &Prepared,
        shape: Shape,
        (source, target): (Scalar, Scalar),
        filtered: usize,
        (alone, staged): (bool, bool),
    ) -> Result<Needs> {
        let filter = self.filter();
        let Tiles { step, reach } = self.tiles(prepared, (source, target))?;
        let values = shape.row_len();
        let planes = if Self::takes_planes(source, shape.channels) { 4 } else { 0 };
        let uncertainty = self.uncertainty_of(prepared, (source, target))?;
        let passes = match uncertainty.passes {
            Some(_) => 8 * filter.byte_filter()?.whole.two_terms().map_or(0, <[_]>::len),
            None => 0,
        };
        let (scratch, reserved) = match uncertainty.passes {
            Some(Exactly::Always) => (passes, 0),
            Some(Exactly::Beyond(_)) => {
                (prepared.launcher.scratch().max(passes), prepared.launcher.reserved())
            }
            None => (prepared.launcher.scratch(), prepared.launcher.reserved()),
        };
        let pad = ROW_ALIGNMENT * shape.channels;
        let uncertain = move |pixels: usize| match uncertainty.near {
            Some(_) => {
                let results = pixels.saturating_mul(filtered);
                UncertainList::bytes(uncertainty.places(results, UncertainList::SEGMENTS as usize))
            }
            None => 0,
        };
        Ok(Needs {
            extent: Extent {
                height: shape.height,
                border: self.border().code().0,
                anchor: filter.anchor().1,
                reach,
                step,
                beside: 0,
                row: values * source.bytes().max(target.bytes()),
                alone,
                staged,
                rows: self.limits().rows,
            },
            shape,
            pitches: (pitch(source, values), pitch(target, values)),
            beside: if planes + scratch > 0 { values * (planes + scratch) + 2 * pad } else { 0 },
            reserved,
            uncertain: Box::new(uncertain),
        })
    }
}
