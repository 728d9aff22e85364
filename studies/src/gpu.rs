//! Launches the studies' kernels on apron's streams and images.

use std::ffi::c_void;

use apron::gpu::{DeviceImage, Function, Gpu, Grid, Stream, Tier, embedded};
use apron::{Border, Error, Filter, Image, Result, Shape};
use study_kernels::abi::{
    Epilogue, MAX_CONSTANT_TAPS, Pass, Plane, Region, Strides, UncertainList, Window, scalar,
};
use study_kernels::border;
use study_kernels::frame::Frame;
use study_kernels::sizes::CLASS_BLOCK;

use crate::table::{Argument, Channels, Entry, Launch, Size};
use crate::texture::Textures;
use crate::{Problem, Study};

static TIERS: &[Tier] = include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// The studies' kernels, embedded by the build. The kernels of apron that studies launch are in
/// [`apron::gpu::embedded`].
pub fn kernels() -> &'static [Tier] {
    TIERS
}

/// An image with row-interleaved channels. Each row begins at a multiple of 8 floats, the least for
/// vector loads and for textures.
///
/// # Errors
/// As [`Gpu::image`].
pub fn image_by_rows(gpu: &Gpu, shape: Shape) -> Result<DeviceImage> {
    let plane = shape.width.next_multiple_of(8);
    gpu.image_with(shape, plane.saturating_mul(shape.channels), plane)
}

/// A study, ready to filter images on a GPU. It owns an intermediate image, so the work of one plan
/// belongs in one stream at a time.
#[derive(Debug)]
pub struct StudyPlan {
    study: Study,
    filter: Filter,
    border: Border,
    gpu: Gpu,
    size: Size,
    window: Window,
    functions: Vec<Function>,
    taps: Taps,
    // Dropped before the textures: the driver frees memory only when the device has finished all
    // work that may use either.
    middle: Option<DeviceImage>,
    textures: Textures,
}

/// The taps in each layout that kernels read.
#[derive(Debug)]
struct Taps {
    dense: Vec<f32>,
    row: Vec<f32>,
    column: Vec<f32>,
    pair: Vec<f32>,
    /// All taps, row by row, as an image of one row.
    buffer: DeviceImage,
    count: usize,
}

impl Taps {
    fn new(gpu: &Gpu, filter: &Filter) -> Result<Self> {
        let (cols, rows) = (filter.cols(), filter.rows());
        let all: Vec<f32> =
            (0..cols * rows).map(|i| filter.tap(i / cols, i % cols) as f32).collect();
        let count = all.len();
        let buffer = gpu.upload(&Image::from_vec(all.clone(), count, 1, 1)?.view())?;
        // Padded to the most taps that any entry takes by value.
        let padded = |taps: &mut dyn Iterator<Item = f32>| {
            let mut taps: Vec<_> = taps.collect();
            taps.resize(taps.len().max(MAX_CONSTANT_TAPS), 0.0);
            taps
        };
        let (row, column) = filter.separated().unwrap_or_default();
        let narrow = |taps: &[f64]| -> Vec<f32> { taps.iter().map(|&tap| tap as f32).collect() };
        let (row, column) = (narrow(row), narrow(column));
        Ok(Self {
            dense: padded(&mut all.into_iter()),
            pair: padded(&mut row.iter().chain(&column).copied()),
            row: padded(&mut row.into_iter()),
            column: padded(&mut column.into_iter()),
            buffer,
            count,
        })
    }
}

impl std::fmt::Debug for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{} taps, blocks of {:?}", self.cols, self.rows, self.any)
    }
}

impl Study {
    /// Prepares the study for a GPU; `block` is the shape of a block in threads, if the study's
    /// kernel takes any shape.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the study never supports this filter with this border; memory and
    /// driver errors.
    pub fn plan(
        self,
        filter: &Filter,
        border: Border,
        gpu: &Gpu,
        block: Option<(u32, u32)>,
    ) -> Result<StudyPlan> {
        let smallest = Shape { width: 1, height: 1, channels: 1 };
        let shared_memory = gpu.info().shared_memory;
        self.check(&Problem { filter, border, shape: smallest, shared_memory })?;
        let (cols, rows) = (filter.cols() as i32, filter.rows() as i32);
        let (anchor_x, anchor_y) = filter.anchor();
        let any = block
            .map_or((CLASS_BLOCK, CLASS_BLOCK), |(width, height)| (width as i32, height as i32));
        let load = |launch: &Launch| match launch.entry {
            Entry::One(entry) => gpu.load(kernels(), entry),
            Entry::Apron(entry) => gpu.load(embedded(), entry),
            Entry::ByTaps(entries) => match entries.iter().find(|&&(count, _)| count == cols) {
                Some(&(_, entry)) => gpu.load(kernels(), entry),
                None => {
                    let reason = format!("it has no kernel for {cols} tap columns");
                    Err(Error::Unsupported { variant: self.name(), reason })
                }
            },
        };
        Ok(StudyPlan {
            study: self,
            filter: filter.clone(),
            border,
            gpu: gpu.clone(),
            size: Size { cols, rows, any },
            window: Window { cols, rows, anchor_x: anchor_x as i32, anchor_y: anchor_y as i32 },
            functions: self.row().launches.iter().map(load).collect::<Result<_>>()?,
            taps: Taps::new(gpu, filter)?,
            middle: None,
            textures: Textures::default(),
        })
    }
}

impl StudyPlan {
    /// Whether the study takes images of this shape.
    ///
    /// # Errors
    /// [`Error::Unsupported`], which names the limit, if it does not.
    pub fn takes(&self, shape: Shape) -> Result<()> {
        let shared_memory = self.gpu.info().shared_memory;
        self.study.check(&Problem {
            filter: &self.filter,
            border: self.border,
            shape,
            shared_memory,
        })
    }

    /// Filters an image on the device into another one there. The work is queued in `stream` and
    /// may not have finished when the function returns.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if sizes differ, [`Error::Parameter`] if an argument belongs to another
    /// GPU; otherwise as [`StudyPlan::takes`]; memory and driver errors.
    pub fn run_on_device(
        &mut self,
        src: &DeviceImage,
        dst: &mut DeviceImage,
        stream: &mut Stream,
    ) -> Result<()> {
        if src.shape() != dst.shape() {
            return Err(Error::Mismatch {
                src: src.shape().to_string(),
                dst: dst.shape().to_string(),
            });
        }
        for (name, image) in [("the source", src), ("the destination", &*dst)] {
            let (here, there) = (self.gpu.info().ordinal, image.gpu().info().ordinal);
            if here != there {
                let expected = format!("on GPU {here}: all images of a call share one GPU");
                return Err(Error::Parameter { name, value: format!("on GPU {there}"), expected });
            }
        }
        self.takes(src.shape())?;
        let frame = frame(src, dst, self.border);
        let launches = self.study.row().launches;
        if let [only] = launches {
            return self.launch(0, only, frame, src.shape(), stream);
        }
        let (middle, stride, plane) = self.middle(dst, stream)?;
        let last = launches.len() - 1;
        for (i, launch) in launches.iter().enumerate() {
            let mut pass = frame;
            if i > 0 {
                (pass.src, pass.src_stride, pass.src_plane) = (middle as *const f32, stride, plane);
                // A row of border values has one filtered value everywhere.
                let row = self.taps.row.iter().take(self.size.cols as usize);
                pass.border_value = row.fold(0.0, |sum, tap| tap.mul_add(frame.border_value, sum));
            }
            if i < last {
                (pass.dst, pass.dst_stride, pass.dst_plane) = (middle as *mut f32, stride, plane);
            }
            self.launch(i, launch, pass, src.shape(), stream)?;
        }
        Ok(())
    }

    /// The intermediate image: its address, stride and plane stride. It has the layout of the
    /// destination.
    fn middle(&mut self, dst: &DeviceImage, stream: &Stream) -> Result<(u64, usize, usize)> {
        let layout = |image: &DeviceImage| (image.shape(), image.stride(), image.plane_stride());
        if self.middle.as_ref().is_none_or(|middle| layout(middle) != layout(dst)) {
            // Work in flight may still use the old image.
            stream.synchronize()?;
            self.middle = None;
        }
        let middle = match self.middle.take() {
            Some(middle) => middle,
            None => self.gpu.image_like(dst)?,
        };
        let middle = self.middle.insert(middle);
        Ok((middle.address(), middle.stride(), middle.plane_stride()))
    }

    fn launch(
        &mut self,
        index: usize,
        launch: &Launch,
        frame: Frame,
        shape: Shape,
        stream: &mut Stream,
    ) -> Result<()> {
        let unsigned = |(x, y): (i32, i32)| (x as u32, y as u32);
        let (tile, block) =
            (unsigned((launch.tile)(&self.size)), unsigned((launch.block)(&self.size)));
        // The study's limits keep columns, rows and channels in the range of a grid.
        let (width, height, channels) =
            (shape.width as u32, shape.height as u32, shape.channels as u32);
        let (columns, depth) = match launch.channels {
            Channels::InDepth => (width, channels),
            Channels::SideBySide => (width * channels, 1),
        };
        let grid = Grid {
            blocks: (columns.div_ceil(tile.0), height.div_ceil(tile.1), depth),
            block: (block.0, block.1, 1),
            shared: 4 * (launch.floats)(&self.size) as u32,
        };
        let texture =
            match launch.arguments.iter().any(|argument| matches!(argument, Argument::Texture)) {
                true => self.textures.of(&self.gpu, &frame, stream)?,
                false => 0,
            };
        let (channels, address) = (channels as i32, self.taps.buffer.address());
        let carried = self.taps.count <= MAX_CONSTANT_TAPS;
        let of = |argument: &Argument| -> Option<*const c_void> {
            Some(match argument {
                Argument::Window => (&raw const self.window).cast(),
                Argument::Cols => (&raw const self.size.cols).cast(),
                Argument::Channels => (&raw const channels).cast(),
                Argument::Texture => (&raw const texture).cast(),
                Argument::Dense => self.taps.dense.as_ptr().cast(),
                Argument::DenseAddress => (&raw const address).cast(),
                Argument::RestAddress if carried => return None,
                Argument::RestAddress => (&raw const address).cast(),
                Argument::Row => self.taps.row.as_ptr().cast(),
                Argument::Column => self.taps.column.as_ptr().cast(),
                Argument::Pair => self.taps.pair.as_ptr().cast(),
            })
        };
        let pass = pass(&frame, shape);
        let first: *const c_void = match launch.entry {
            Entry::Apron(_) => (&raw const pass).cast(),
            Entry::One(_) | Entry::ByTaps(_) => (&raw const frame).cast(),
        };
        let arguments: Vec<_> =
            [first].into_iter().chain(launch.arguments.iter().filter_map(of)).collect();
        // SAFETY: every entry of a study takes a frame, and apron's entries take a pass. The other
        // arguments are those of the entry's row in the table, with at least as many taps as the
        // entry takes by value. The frame describes images of this GPU, as large as the shape that
        // the study accepted. Images and taps are freed only when the device has finished all work.
        unsafe { stream.launch(&self.functions[index], grid, &arguments) }
    }
}

fn frame(src: &DeviceImage, dst: &DeviceImage, border: Border) -> Frame {
    let (border, border_value) = match border {
        Border::Constant(value) => (border::CONSTANT, value as f32),
        Border::Replicate => (border::REPLICATE, 0.0),
        Border::Reflect => (border::REFLECT, 0.0),
        Border::Reflect101 => (border::REFLECT_101, 0.0),
        Border::Wrap => (border::WRAP, 0.0),
        Border::Keep => (border::KEEP, 0.0),
        Border::None => (border::CONSTANT, 0.0),
    };
    Frame {
        src: src.address() as *const f32,
        dst: dst.address() as *mut f32,
        src_stride: src.stride(),
        dst_stride: dst.stride(),
        src_plane: src.plane_stride(),
        dst_plane: dst.plane_stride(),
        width: src.shape().width as i32,
        height: src.shape().height as i32,
        border,
        border_value,
    }
}

/// The same frame as a pass for apron's own kernels.
fn pass(frame: &Frame, shape: Shape) -> Pass {
    let channels = shape.channels as u32;
    let plane = |base: u64, stride: usize, plane: usize| {
        let strides =
            Strides { row: 4 * stride as i64, pixel: 4, channel: 4 * plane as i64, image: 0 };
        Plane::new(scalar::F32, base, strides, channels, (0, frame.height))
    };
    Pass {
        src: plane(frame.src as u64, frame.src_stride, frame.src_plane),
        dst: plane(frame.dst as u64, frame.dst_stride, frame.dst_plane),
        width: frame.width,
        height: frame.height,
        region: Region { x0: 0, y0: 0, x1: frame.width, y1: frame.height },
        channels: study_kernels::abi::Channels::new(channels, 1),
        border: frame.border,
        outside: frame.border_value,
        epilogue: Epilogue::NONE,
        point: 0.0,
        uncertain: UncertainList::NONE,
    }
}
