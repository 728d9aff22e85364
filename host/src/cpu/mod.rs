//! The families on the CPU: one file each, named as the kernels' files, computing in the kernels' order.

mod direct;
mod separable;

use std::sync::OnceLock;

use crate::pixels::Planes;
use crate::{Border, Family, Filter, Result, Variant};

/// A filter's taps, ready for the CPU.
#[derive(Debug)]
pub(crate) struct Engine {
    filter: Filter,
    dense: OnceLock<Vec<f32>>,
    pair: Option<separable::Pair>,
}

impl Engine {
    pub(crate) fn new(filter: &Filter) -> Result<Self> {
        Ok(Self {
            filter: filter.clone(),
            dense: OnceLock::new(),
            pair: filter.separated().map(|(row, column)| separable::Pair::new(row, column)),
        })
    }

    /// Filters every plane of `src` into `dst`.
    pub(crate) fn run(&self, variant: Variant, border: Border, src: Planes<'_>, dst: &mut [f32]) -> Result<()> {
        let window = Window::new(&self.filter, border);
        match (variant.family(), &self.pair) {
            (Family::Separable, Some(pair)) => separable::run(&window, pair, src, dst)?,
            _ => {
                let taps = match self.dense.get() {
                    Some(taps) => taps,
                    None => {
                        let taps = self.filter.dense_f32()?;
                        self.dense.get_or_init(|| taps)
                    }
                };
                direct::run(&window, taps, src, dst);
            }
        }
        Ok(())
    }
}

/// The window's geometry and the border rule, as the kernels' `Frame` and `Window` have them.
#[derive(Clone, Copy, Debug)]
struct Window {
    cols: usize,
    rows: usize,
    anchor_x: usize,
    anchor_y: usize,
    border: u32,
    border_value: f32,
}

impl Window {
    fn new(filter: &Filter, border: Border) -> Self {
        let (border, border_value) = border.code();
        let (anchor_x, anchor_y) = filter.anchor();
        Self { cols: filter.cols(), rows: filter.rows(), anchor_x, anchor_y, border, border_value }
    }
}

/// Where coordinate `position + offset - anchor` finds its pixel in `0..extent`; `None` if it has the border's value.
fn resolve(border: u32, position: usize, offset: usize, anchor: usize, extent: usize) -> Option<usize> {
    // Image and window sizes are at most 2^29, so the sums stay in range.
    let coordinate = (position + offset) as i32 - anchor as i32;
    usize::try_from(gpu_kernels::border::resolve(border, coordinate, extent as i32)).ok()
}

/// Whether the window at `position` leaves `0..extent`.
fn leaves(position: usize, anchor: usize, len: usize, extent: usize) -> bool {
    gpu_kernels::border::leaves(position as i32 - anchor as i32, len as i32, extent as i32)
}
