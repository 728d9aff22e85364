//! Images in pinned host memory.

use std::marker::PhantomData;

use super::device::Gpu;
use super::memory::Pinned;
use crate::image::convert::{AsImage, AsImageMut};
use crate::image::{ImageView, ImageViewMut, Pixel, Shape};
use crate::{Error, Result};

/// An image in host memory that GPUs copy from and to by themselves (pinned, or page-locked,
/// memory), rows without gaps.
///
/// [`crate::Plan::run`] copies a view of such an image straight to the device, or results straight
/// into it, where other host memory goes through pinned memory of the plan's. To pin memory takes
/// longer than to copy it once or twice, so such an image is worth having where it is used again
/// and again. The memory is taken from the whole machine: it cannot be swapped out.
///
/// ```no_run
/// use apron::gpu::{Gpu, HostImage};
/// use apron::{Device, Filter, Plan, Shape};
///
/// let gpu = Gpu::open(0)?;
/// let shape = Shape { width: 1920, height: 1080, channels: 3 };
/// let mut frame = HostImage::<u8>::zeroed(&gpu, shape)?;
/// let mut filtered = HostImage::<u8>::zeroed(&gpu, shape)?;
/// frame.as_mut_slice().fill(7);
/// let plan = Plan::builder(Filter::gaussian(2.0)?).device(Device::Gpu(0)).build()?;
/// plan.run(&frame.view(), &mut filtered.view_mut())?;
/// assert!(filtered.as_slice().iter().all(|&value| value == 7));
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Debug)]
pub struct HostImage<P> {
    memory: Pinned,
    shape: Shape,
    pixels: PhantomData<P>,
}

impl<P: Pixel> HostImage<P> {
    /// An image with every value zero.
    ///
    /// # Errors
    /// [`Error::Geometry`] if a limit is passed, [`Error::HostMemory`] if there is no room for it;
    /// driver errors.
    pub fn zeroed(gpu: &Gpu, shape: Shape) -> Result<Self> {
        shape.check()?;
        let values = shape.row_len().checked_mul(shape.height);
        let bytes = values.and_then(|values| values.checked_mul(size_of::<P>()));
        let bytes = bytes.ok_or(Error::HostMemory { bytes: usize::MAX })?;
        let mut memory = gpu.pin(bytes)?;
        memory.bytes_mut().fill(0);
        Ok(Self { memory, shape, pixels: PhantomData })
    }

    /// Width, height and channels.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The values, row by row, channels interleaved.
    pub fn as_slice(&self) -> &[P] {
        bytemuck::cast_slice(self.memory.bytes())
    }

    /// The values, row by row, channels interleaved, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [P] {
        bytemuck::cast_slice_mut(self.memory.bytes_mut())
    }

    /// The whole image, to read.
    pub fn view(&self) -> ImageView<'_, P> {
        ImageView::of_pinned(self.as_slice(), self.shape)
    }

    /// The whole image, to write.
    pub fn view_mut(&mut self) -> ImageViewMut<'_, P> {
        let shape = self.shape;
        ImageViewMut::of_pinned(self.as_mut_slice(), shape)
    }
}

impl<P: Pixel> AsImage for HostImage<P> {
    type Value = P;

    fn as_image(&self) -> Result<ImageView<'_, P>> {
        Ok(self.view())
    }
}

impl<P: Pixel> AsImageMut for HostImage<P> {
    type Value = P;

    fn as_image_mut(&mut self) -> Result<ImageViewMut<'_, P>> {
        Ok(self.view_mut())
    }
}
