//! Preparation as a value: for a problem, a kernel returns a finished launch, or the reason why it
//! cannot run.

use std::fmt::Debug;
use std::sync::Arc;

#[cfg(feature = "gpu")]
use crate::gpu::{stream::Stream, taps::TapHomes};
use crate::plan::ran::Ran;
use crate::problem::Problem;
use crate::problem::machine::{Machine, Time};
use crate::{Variant, Why};

/// A variant's entries, preparation and time.
pub(crate) struct Kernel {
    pub(crate) variant: Variant,
    /// Every entry it may launch.
    pub(crate) entries: fn() -> Vec<&'static str>,
    /// Finds the entries for a problem.
    pub(crate) prepare: fn(&Problem) -> Result<Prepared, Why>,
    /// How long a problem takes on a machine.
    pub(crate) time: fn(&Problem, &Machine) -> Time,
    /// Whether a plan without a given variant may choose the kernel for its time.
    pub(crate) rule: fn(&Problem) -> Result<(), Why>,
}

/// A kernel prepared for a problem, ready for any pass of it.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// What the launch counts as. A kernel without a variant stores bytes correctly rounded.
    pub(crate) ran: Ran,
    pub(crate) launcher: Arc<dyn Launcher>,
}

impl Prepared {
    pub(crate) fn new(variant: Variant, launcher: impl Launcher + 'static) -> Self {
        Self { ran: Ran::Variant(variant), launcher: Arc::new(launcher) }
    }

    pub(crate) fn variant(&self) -> Option<Variant> {
        if let Ran::Variant(variant) = self.ran { Some(variant) } else { None }
    }
}

/// The launch of a prepared kernel.
pub(crate) trait Launcher: Debug + Send + Sync {
    /// Enqueues the kernels.
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &PassJob<'_>, stream: &mut Stream) -> crate::Result<()>;

    /// Whether the kernels take all channels of a pixel at once, and copy those that are not
    /// filtered. If not, they take each filtered channel as a plane.
    fn takes_pixels(&self) -> bool {
        false
    }

    /// Whether bytes made of bytes are rounded from f32, by the taps as given.
    #[cfg(feature = "gpu")]
    fn takes_values(&self) -> bool {
        false
    }

    /// The kernel for results whose windows lie inside the image, if another one takes these.
    #[cfg(feature = "gpu")]
    fn inside(&self) -> Option<&Prepared> {
        None
    }

    /// The kernel for the sums, if this launch makes planes for it, and results of its sums.
    #[cfg(feature = "gpu")]
    fn sums(&self) -> Option<&Prepared> {
        None
    }

    /// Whether the kernels store all bytes correctly rounded: they leave no result uncertain, or
    /// resolve it themselves.
    #[cfg(feature = "gpu")]
    fn resolves(&self) -> bool {
        false
    }

    /// The grid of tiles that results depend on, if any.
    #[cfg(feature = "gpu")]
    fn tiles(&self, filter: &crate::Filter) -> Option<Tiles> {
        self.sums()?.launcher.tiles(filter)
    }

    /// At most so many bytes of scratch memory for each source value of a launch.
    #[cfg(feature = "gpu")]
    fn scratch(&self) -> usize {
        0
    }

    /// Bytes of scratch memory in addition, for a pass of any size.
    #[cfg(feature = "gpu")]
    fn reserved(&self) -> u64 {
        0
    }
}

/// A grid of tiles that begins at the image's first row.
#[cfg(feature = "gpu")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles {
    /// Rows of results in a tile.
    pub(crate) step: usize,
    /// Rows read for a result: those of the window, rounded up to whole parts.
    pub(crate) reach: usize,
}

/// The work of a launch: a pass of the problem that it was prepared for.
#[cfg(feature = "gpu")]
#[derive(Clone, Copy)]
pub(crate) struct PassJob<'a> {
    pub(crate) pass: gpu_kernels::abi::Pass,
    /// Channels of an image, as the pass counts them.
    pub(crate) channels: u32,
    /// How many of them are filtered: all, unless the kernels take pixels.
    pub(crate) filtered: u32,
    /// Channels of all images.
    pub(crate) planes: u32,
    pub(crate) window: gpu_kernels::abi::Window,
    /// The filter's taps, in each place that kernels read them from.
    pub(crate) taps: &'a TapHomes,
}

#[cfg(feature = "gpu")]
impl PassJob<'_> {
    /// Images of f32 in the stream's scratch memory, from byte `behind` on (a multiple of 128):
    /// these rows of the region's columns, each channel as a plane, each row at a multiple of 128
    /// bytes.
    pub(crate) fn scratch<const IMAGES: usize>(
        &self,
        behind: usize,
        rows: std::ops::Range<usize>,
        stream: &mut Stream,
    ) -> crate::Result<[gpu_kernels::abi::Plane; IMAGES]> {
        scratch(&self.pass, (self.channels, self.planes), behind, rows, stream)
    }
}

/// As [`PassJob::scratch`], for a pass over so many planes of images of so many channels.
#[cfg(feature = "gpu")]
pub(crate) fn scratch<const IMAGES: usize>(
    pass: &gpu_kernels::abi::Pass,
    (channels, planes): (u32, u32),
    behind: usize,
    rows: std::ops::Range<usize>,
    stream: &mut Stream,
) -> crate::Result<[gpu_kernels::abi::Plane; IMAGES]> {
    use gpu_kernels::abi::{Plane, Strides, scalar};

    let region = &pass.region;
    let left = region.aligned_left();
    let row = 4 * ((region.x1 - left) as usize).next_multiple_of(32);
    let plane = row * rows.len();
    // Each factor fits in the device's address space.
    let bytes = plane.checked_mul(planes as usize);
    let bytes = bytes.and_then(|one| Some((one, one.checked_mul(IMAGES)?.checked_add(behind)?)));
    let (one, all) = bytes.ok_or_else(|| stream.gpu().out_of_memory(u64::MAX))?;
    // Column 0 may lie before the memory, and is not touched.
    let start = (stream.scratch(all)? + behind as u64).wrapping_sub(4 * left as u64);
    let image = plane as i64 * i64::from(channels);
    let strides = Strides { row: row as i64, pixel: 4, channel: plane as i64, image };
    let place = (rows.start as i32, rows.end as i32);
    let images = std::array::from_fn(|number| start.wrapping_add((number * one) as u64));
    Ok(images.map(|start| Plane::new(scalar::F32, start, strides, channels, place)))
}
