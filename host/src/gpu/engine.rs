//! A filter on a GPU: its taps in device memory, and passes over images in device memory.

use std::ops::Range;
use std::sync::OnceLock;

use gpu_kernels::abi::{Channels, Epilogue, Pass, Region, UncertainList, Window};

use super::device::Gpu;
use super::stream::Stream;
use super::taps::TapHomes;
use super::view::{DeviceView, DeviceViewMut, View};
use crate::image::{Scalar, Shape};
use crate::kernels::prepared::{PassJob, Prepared};
use crate::kernels::uncertain::{Exactly, Uncertainty};
use crate::kernels::{keep, passes, resolve};
use crate::plan::ran::Ran;
use crate::plan::schedule::Limits;
use crate::problem::rows_read;
use crate::{Border, Error, Filter, Gradient, Result, Variant};

/// The most planes on a grid's z axis.
pub(super) const MAX_PLANES: usize = 65_535;

/// Runs one filter on one GPU, from any thread.
#[derive(Debug)]
pub(crate) struct Engine {
    gpu: Gpu,
    border: Border,
    window: Window,
    taps: TapHomes,
    /// Those for bytes made of bytes.
    taps_of_bytes: OnceLock<TapHomes>,
    is_gradient: bool,
    limits: Limits,
}

/// Which results are computed, and the epilogue for their sums.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) columns: Range<usize>,
    pub(crate) rows: Range<usize>,
    /// How many channels are filtered; the others are copied.
    pub(crate) filtered: usize,
    pub(crate) epilogue: Epilogue,
}

/// A part at the image's edge.
struct Edge {
    /// The image's columns that its windows reach. The part's columns count from the first of them.
    there: Range<usize>,
    part: Part,
}

impl Part {
    /// All results, without an epilogue.
    pub(crate) fn whole(shape: Shape) -> Self {
        let Shape { width, height, channels } = shape;
        Self { columns: 0..width, rows: 0..height, filtered: channels, epilogue: Epilogue::NONE }
    }
}

impl Engine {
    pub(crate) fn new(
        (filter, gradient): (&Filter, Option<Gradient>),
        border: Border,
        ordinal: u32,
        limits: Limits,
    ) -> Result<Self> {
        let window = window_of(filter);
        let gpu = Gpu::open(ordinal)?;
        let taps = TapHomes::new(&gpu, filter, gradient.map(Gradient::weights).unwrap_or_default());
        Ok(Self {
            gpu,
            border,
            window,
            taps,
            taps_of_bytes: OnceLock::new(),
            is_gradient: gradient.is_some(),
            limits,
        })
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Whether a host image becomes planes of f32 on the device: more kernels take those than
    /// interleaved channels.
    pub(crate) fn takes_planes(scalar: Scalar, channels: usize) -> bool {
        scalar == Scalar::F32 && channels > 1
    }

    pub(super) fn border(&self) -> Border {
        self.border
    }

    /// The taps for results of the second type from pixels of the first.
    pub(super) fn taps(&self, kinds: (Scalar, Scalar)) -> Result<&TapHomes> {
        match kinds == (Scalar::U8, Scalar::U8) && !self.is_gradient {
            true => crate::memory::once(&self.taps_of_bytes, || {
                TapHomes::of_bytes(&self.gpu, self.taps.filter())
            }),
            false => Ok(&self.taps),
        }
    }

    /// The filter.
    pub(super) fn filter(&self) -> &Filter {
        self.taps.filter()
    }

    /// The anchor's row, and the rows of the window.
    pub(super) fn reach(&self) -> (usize, usize) {
        (self.window.anchor_y as usize, self.window.rows as usize)
    }

    /// The limits of a run.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Copies a part of an image on the device into another layout or type.
    pub(super) fn copy(
        &self,
        src: &DeviceView<'_>,
        dst: &mut DeviceViewMut<'_>,
        part: &Part,
        stream: &mut Stream,
    ) -> Result<()> {
        let (src, dst) = (&src.parts, &dst.parts);
        self.gpu.enter()?;
        let channels = src.shape.channels;
        keep::copy(
            &part_of(self.border, (src, dst), part, 0, (channels, 1)),
            channels as u32,
            stream,
        )
    }

    /// Filters images on the device, in stream order. `prepared` is a kernel for this part and
    /// these types. Returns what was launched: exact passes may take the kernel's place.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if sizes differ; [`Error::Parameter`] if a view or the stream is another
    /// GPU's, or lacks rows, or if the views overlap.
    pub(crate) fn enqueue(
        &self,
        prepared: &Prepared,
        src: &DeviceView<'_>,
        dst: &mut DeviceViewMut<'_>,
        part: &Part,
        stream: &mut Stream,
    ) -> Result<Ran> {
        let (src, dst) = (&src.parts, &dst.parts);
        self.check(src, dst, part, stream)?;
        self.gpu.enter()?;
        let split = prepared.launcher.inside().and_then(|inside| {
            let (middle, edges) = self.split(src.shape, part)?;
            Some((inside, middle, edges))
        });
        let Some((inside, middle, edges)) = split else {
            return self.enqueue_part(prepared, (src, dst), part, stream);
        };
        self.enqueue_part(inside, (src, dst), &middle, stream)?;
        for Edge { there, part } in edges {
            if !part.rows.is_empty() && !part.columns.is_empty() {
                let views = (&src.columns(&there), &dst.columns(&there));
                self.enqueue_part(prepared, views, &part, stream)?;
            }
        }
        Ok(prepared.ran)
    }

    /// The part whose windows lie inside the image, and what is above, below, left and right of it.
    /// `None` if the part is so small that launches for five parts take longer than those for one.
    fn split(&self, shape: Shape, part: &Part) -> Option<(Part, [Edge; 4])> {
        /// Results from which it is worth it, on an H200.
        const WORTH_IT: usize = 1 << 22;
        let Window { cols, rows, anchor_x, anchor_y } = self.window;
        let inside = |range: &Range<usize>, anchor: i32, len: i32, all: usize| {
            let end = (all + anchor as usize + 1).saturating_sub(len as usize);
            range.start.max(anchor as usize)..range.end.min(end)
        };
        let columns = inside(&part.columns, anchor_x, cols, shape.width);
        let rows = inside(&part.rows, anchor_y, rows, shape.height);
        if columns.len().saturating_mul(rows.len()).saturating_mul(part.filtered) < WORTH_IT {
            return None;
        }
        let cut = |columns: Range<usize>, rows| Part { columns, rows, ..part.clone() };
        let edge = |there: Range<usize>, columns: &Range<usize>, rows: &Range<usize>| {
            let columns = columns.start - there.start..columns.end - there.start;
            Edge { there, part: cut(columns, rows.clone()) }
        };
        let (all, width) = (&part.columns, shape.width);
        let left = 0..width.min(columns.start + cols as usize);
        let right = columns.end - anchor_x as usize..width;
        let edges = [
            edge(0..width, all, &(part.rows.start..rows.start)),
            edge(0..width, all, &(rows.end..part.rows.end)),
            edge(left, &(all.start..columns.start), &rows),
            edge(right, &(columns.end..all.end), &rows),
        ];
        Some((cut(columns, rows), edges))
    }

    /// As [`Engine::enqueue`], by one kernel, for arguments that are checked.
    fn enqueue_part(
        &self,
        prepared: &Prepared,
        (src, dst): (&View, &View),
        part: &Part,
        stream: &mut Stream,
    ) -> Result<Ran> {
        let channels = src.shape.channels;
        let kinds = (src.scalar, dst.scalar);
        // Results of an epilogue are rounded from f32.
        let uncertainty = match part.epilogue {
            Epilogue::NONE => self.uncertainty_of(prepared, kinds)?,
            _ => Uncertainty::NONE,
        };
        let is_exact = uncertainty.passes == Some(Exactly::Always);
        let is_given = prepared.launcher.takes_values();
        let taps = if is_given { &self.taps } else { self.taps(kinds)? };
        // The factor of the pixel itself in a sum of products. No other kernel reads it.
        let point = taps.filter().sum().map_or(0.0, |sum| sum.point as f32);
        let takes_pixels = prepared.launcher.takes_pixels();
        let counted = if takes_pixels { channels } else { part.filtered };
        let at_once = (MAX_PLANES / channels).max(1);
        for first in (0..src.images).step_by(at_once) {
            let count = at_once.min(src.images - first);
            let job = |channels: usize, uncertain| PassJob {
                pass: Pass {
                    point,
                    uncertain,
                    ..part_of(self.border, (src, dst), part, first, (channels, count))
                },
                channels: channels as u32,
                filtered: part.filtered as u32,
                planes: (count * channels) as u32,
                window: self.window,
                taps,
            };
            let results = part.columns.len() * part.rows.len() * count * part.filtered;
            let mut uncertain = UncertainList::NONE;
            if !is_exact {
                uncertain = uncertainty.list(results, stream)?;
                prepared.launcher.launch(&job(counted, uncertain), stream)?;
            }
            resolve_uncertain(&uncertainty, &job(part.filtered, uncertain), stream)?;
            let least = self.filter().least_change();
            if least > 0.0 {
                let PassJob { pass, planes, .. } = job(part.filtered, UncertainList::NONE);
                keep::restore_nearly_same(&pass, least, planes, stream)?;
            }
            if !takes_pixels || is_exact {
                self.copy_channels(
                    &job(channels, UncertainList::NONE).pass,
                    part.filtered..channels,
                    count,
                    stream,
                )?;
            }
        }
        Ok(if is_exact { Ran::Variant(Variant::Separable) } else { prepared.ran })
    }

    /// Checks views of whole images, and enters their GPU.
    pub(crate) fn enter_with(
        &self,
        (src, dst): (&DeviceView<'_>, &DeviceViewMut<'_>),
        stream: &Stream,
    ) -> Result<()> {
        self.check(&src.parts, &dst.parts, &Part::whole(src.shape()), stream)?;
        self.gpu.enter()
    }

    /// Checks the arguments of [`Engine::enqueue`].
    fn check(&self, src: &View, dst: &View, part: &Part, stream: &Stream) -> Result<()> {
        self.gpu.same("the stream", stream.gpu())?;
        self.gpu.same("the source", &src.gpu)?;
        self.gpu.same("the destination", &dst.gpu)?;
        if (src.shape, src.images) != (dst.shape, dst.images) {
            let described = |view: &View| format!("{}, {} images", view.shape, view.images);
            return Err(Error::Mismatch { src: described(src), dst: described(dst) });
        }
        if src.overlaps(dst) {
            return Err(Error::Parameter {
                name: "the destination",
                value: "memory that the source uses".into(),
                expected: "separate memory: the kernel would read results as pixels".into(),
            });
        }
        let (mode, _) = self.border.code();
        let read = rows_read(mode, self.reach(), part.rows.clone(), src.shape.height);
        within("the range of rows to compute", &part.rows, &dst.there())?;
        within("the range of columns to compute", &part.columns, &(0..src.shape.width))?;
        within("the range of source rows needed", &read, &src.there())
    }

    /// Copies some channels of a pass that has all of them.
    fn copy_channels(
        &self,
        pass: &Pass,
        channels: Range<usize>,
        count: usize,
        stream: &mut Stream,
    ) -> Result<()> {
        let all = channels.end;
        for channel in channels {
            let of_one =
                |plane: &gpu_kernels::abi::Plane| plane.channel_alone(channel as i64, all as u32);
            let pass = Pass {
                src: of_one(&pass.src),
                dst: of_one(&pass.dst),
                channels: Channels::new(1, count as u32),
                epilogue: Epilogue::NONE,
                ..*pass
            };
            keep::copy(&pass, count as u32, stream)?;
        }
        Ok(())
    }

    /// How a kernel's results are rounded. Bytes made of bytes are rounded correctly.
    pub(super) fn uncertainty_of(
        &self,
        prepared: &Prepared,
        kinds: (Scalar, Scalar),
    ) -> Result<Uncertainty> {
        match prepared.variant().filter(|_| kinds == (Scalar::U8, Scalar::U8)) {
            Some(variant) if !prepared.launcher.resolves() => {
                Uncertainty::new(variant, self.filter(), &self.gpu.machine())
            }
            _ => Ok(Uncertainty::NONE),
        }
    }
}

/// The pass over a part of `channels` of each of `count` images, from number `first` on.
pub(super) fn part_of(
    border: Border,
    (src, dst): (&View, &View),
    part: &Part,
    first: usize,
    (channels, count): (usize, usize),
) -> Pass {
    let (border, outside) = border.code();
    Pass {
        src: src.plane_from(first, channels),
        dst: dst.plane_from(first, channels),
        width: src.shape.width as i32,
        height: src.shape.height as i32,
        region: Region {
            x0: part.columns.start as i32,
            y0: part.rows.start as i32,
            x1: part.columns.end as i32,
            y1: part.rows.end as i32,
        },
        channels: Channels::new(channels as u32, count as u32),
        border,
        outside,
        epilogue: part.epilogue,
        point: 0.0,
        uncertain: UncertainList::NONE,
    }
}

/// Computes exactly the results that the kernel before left uncertain, or all.
fn resolve_uncertain(
    uncertainty: &Uncertainty,
    job: &PassJob<'_>,
    stream: &mut Stream,
) -> Result<()> {
    match uncertainty.passes {
        Some(Exactly::Always) => passes::launch(job, stream),
        Some(Exactly::Beyond(few)) => {
            passes::judge(job, few, stream)?;
            resolve::launch(job, stream)?;
            passes::launch(job, stream)
        }
        None if uncertainty.near.is_some() => resolve::launch(job, stream),
        None => Ok(()),
    }
}

/// Whether a range is not empty and lies in another one.
pub(super) fn within(name: &'static str, range: &Range<usize>, all: &Range<usize>) -> Result<()> {
    if !range.is_empty() && range.start >= all.start && range.end <= all.end {
        return Ok(());
    }
    let expected = format!("a range within {}..{}, not empty", all.start, all.end);
    Err(Error::Parameter { name, value: format!("{}..{}", range.start, range.end), expected })
}

/// A filter's window.
pub(super) fn window_of(filter: &Filter) -> Window {
    let (anchor_x, anchor_y) = filter.anchor();
    Window {
        cols: filter.cols() as i32,
        rows: filter.rows() as i32,
        anchor_x: anchor_x as i32,
        anchor_y: anchor_y as i32,
    }
}
