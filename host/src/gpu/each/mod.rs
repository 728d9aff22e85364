//! A filter for each image of a batch on a GPU: kernels that read a table with an entry for each
//! image. Each filter is a product of a row and a column; windows may differ in size.

mod bytes;
mod values;

use gpu_kernels::abi::Each;

use self::bytes::Bytes;
use self::values::Values;
use super::device::Gpu;
use super::engine::{MAX_PLANES, Part, part_of};
use super::memory::Memory;
use super::stream::Stream;
use super::view::{DeviceView, DeviceViewMut};
use crate::{Border, Filter, Result};

/// The products of images in a GPU's memory.
#[derive(Debug)]
pub(crate) struct Products {
    border: Border,
    taps: Taps,
}

#[derive(Debug)]
enum Taps {
    /// For values that are added up in f32.
    Values(Values),
    /// For bytes made of bytes.
    Bytes(Bytes),
}

impl Products {
    /// Whether images of bytes with so many channels side by side share launches with those of
    /// other filters.
    pub(crate) fn takes_bytes(
        gpu: &Gpu,
        filter: (&Filter, Border),
        channels: usize,
    ) -> Result<bool> {
        Bytes::takes(gpu, filter, channels)
    }

    /// Of filters that are products of a row and a column: for values, or for bytes of images with
    /// so many channels side by side.
    pub(crate) fn new(
        gpu: &Gpu,
        filters: &[&Filter],
        border: Border,
        bytes: Option<usize>,
    ) -> Result<Self> {
        let taps = match bytes {
            Some(channels) => Taps::Bytes(Bytes::new(gpu, filters, channels)?),
            None => Taps::Values(Values::new(gpu, filters, border)?),
        };
        Ok(Self { border, taps })
    }

    /// Filters images in stream order: `count` from number `first` on, by the products from number
    /// `product` on. The views are checked.
    pub(crate) fn enqueue(
        &self,
        (src, dst): (&DeviceView<'_>, &DeviceViewMut<'_>),
        (first, count): (usize, usize),
        product: usize,
        stream: &mut Stream,
    ) -> Result<()> {
        let shape = src.shape();
        let most = match self.taps {
            Taps::Values(_) => Values::at_once(shape),
            Taps::Bytes(_) => MAX_PLANES,
        };
        let most = most.clamp(1, (MAX_PLANES / shape.channels).max(1));
        let (views, part) = ((&src.parts, &dst.parts), Part::whole(shape));
        for done in (0..count).step_by(most) {
            let images = (shape.channels, most.min(count - done));
            let pass = part_of(self.border, views, &part, first + done, images);
            match &self.taps {
                Taps::Values(values) => values.launch(&pass, images, product + done, stream)?,
                Taps::Bytes(bytes) => bytes.launch(&pass, images, product + done, stream)?,
            }
        }
        Ok(())
    }
}

/// A table from entry number `first` on, of so many bytes each, for images of so many planes.
fn each(table: &Memory, bytes: usize, first: usize, planes: usize) -> Each {
    Each::new(table.address() + (first * bytes) as u64, planes as u32)
}

/// Puts so many entries of N words into the GPU's memory, and the taps behind them. For an entry's
/// number, `make` returns its words, and appends its taps, which begin so many bytes behind it.
fn table<const N: usize>(
    gpu: &Gpu,
    count: usize,
    mut make: impl FnMut(usize, u64, &mut Vec<u32>) -> Result<[u32; N]>,
) -> Result<Memory> {
    let (mut entries, mut taps) = (Vec::with_capacity(N * count), Vec::new());
    for number in 0..count {
        let distance = N * (count - number) + taps.len();
        entries.extend(make(number, 4 * distance as u64, &mut taps)?);
    }
    entries.append(&mut taps);
    gpu.holding(&entries, "uploading taps")
}
