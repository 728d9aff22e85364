//! Sums in f32: launches the entries of `separable_any.rs` and `separable_tile.rs` in
//! `gpu-kernels/src/kernels` that read a table of taps.
//!
//! Small square windows go by tiles, others by two passes. A launch takes all images of its kind.

use gpu_kernels::abi::Pass;
use gpu_kernels::kernels::separable::{COLUMNS_BLOCK, ROWS_BLOCK, ROWS_TILE};
use gpu_kernels::kernels::separable_any::{
    self, COLUMN_ROWS, ImageTaps, rows_tile, rows_warps, separable_columns_each,
    separable_rows_each,
};
use gpu_kernels::kernels::separable_tile::{self, separable_tile_each};

use super::{each, table};
use crate::gpu::device::Gpu;
use crate::gpu::engine::window_of;
use crate::gpu::launch::Grid;
use crate::gpu::memory::Memory;
use crate::gpu::stream::Stream;
use crate::image::Shape;
use crate::kernels::passes::no_product;
use crate::kernels::prepared::scratch;
use crate::{Border, Filter, Result};

/// Images of a launch have at most so many bytes of intermediate results, unless one has more. More
/// make no difference, and 24 MB, which the level-2 cache holds, take 1.1 to 1.3 times as long.
const SCRATCH: usize = 256 << 20;

/// The taps of images in a GPU's memory.
#[derive(Debug)]
pub(super) struct Values {
    /// The taps as [`ImageTaps`].
    taps: Memory,
    /// Of each image, whether its window is one for tiles.
    tiled: Vec<bool>,
    /// Bytes of shared memory of the row pass, of the column pass and of tiles.
    shared: [u32; 3],
}

impl Values {
    pub(super) fn new(gpu: &Gpu, filters: &[&Filter], border: Border) -> Result<Self> {
        let (_, outside) = border.code();
        let (mut tiled, mut shared) = (Vec::with_capacity(filters.len()), [0; 3]);
        let make = |number: usize, row: u64, words: &mut Vec<u32>| {
            let filter = filters[number];
            let products = filter.products();
            let &(across, down) = products.first().ok_or_else(no_product)?;
            let window = window_of(filter);
            let tile = separable_tile::ENTRIES
                .iter()
                .map(|&(taps, _)| taps)
                .find(|&taps| (window.cols, window.rows) == (taps, taps));
            tiled.push(tile.is_some());
            let needed = match tile {
                Some(taps) => [0, 0, separable_tile::shared(taps)],
                None => {
                    let rows = separable_any::rows_shared(window.cols, 1);
                    [rows, separable_any::columns_shared(window.rows), 0]
                }
            };
            shared = std::array::from_fn(|pass| shared[pass].max(needed[pass]));
            for line in [across, down] {
                words.extend(line.iter().map(|&tap| (tap as f32).to_bits()));
                words.resize(words.len().next_multiple_of(4), 0);
            }
            let column = row + 4 * across.len().next_multiple_of(4) as u64;
            // The row pass maps a row of the border's value to this value.
            let outside =
                across.iter().fold(0.0f32, |sum, &tap| (tap as f32).mul_add(outside, sum));
            let tile = tile.unwrap_or(0);
            Ok(ImageTaps { window, row, column, outside, tile, unused: [0; 2] }.to_words())
        };
        let taps = table(gpu, filters.len(), make)?;
        Ok(Self { taps, tiled, shared })
    }

    /// How many images of a shape go into a launch, because of the intermediate results.
    pub(super) fn at_once(shape: Shape) -> usize {
        SCRATCH / (4 * shape.width.next_multiple_of(32) * shape.height * shape.channels)
    }

    /// Filters so many images of so many channels by the taps from entry `product` on: one launch
    /// of each kernel.
    pub(super) fn launch(
        &self,
        pass: &Pass,
        (channels, count): (usize, usize),
        product: usize,
        stream: &mut Stream,
    ) -> Result<()> {
        let planes = (channels * count) as u32;
        let grid = |tile, block, shared, stream: &Stream| {
            let grid = Grid::covering(&pass.region, 0, tile, block).sharing(shared);
            stream.gpu().fitting(grid, planes)
        };
        let each = each(&self.taps, size_of::<ImageTaps>(), product, channels);
        let tiled = &self.tiled[product..product + count];
        let [rows, columns, tile] = self.shared;
        // SAFETY: blocks and shared memory are those that the kernels' contracts state for these
        // windows; the pass describes allocated memory, and scratch has a place for each result of
        // the row pass. The tables have an entry for each image.
        unsafe {
            if tiled.contains(&true) {
                let (across, down) = separable_tile::TILE;
                let of_tiles = (across as u32, down as u32);
                let grid = grid(of_tiles, separable_tile::BLOCK, tile, stream);
                stream.enqueue(separable_tile_each, grid, &(*pass, each))?;
            }
            if tiled.contains(&false) {
                let rows_of_all = 0..pass.height as usize;
                let [middle] = scratch(pass, (channels as u32, planes), 0, rows_of_all, stream)?;
                let across = Pass { dst: middle, ..*pass };
                let tile = (ROWS_TILE as u32, rows_tile(1) as u32);
                let block = (ROWS_BLOCK.0, rows_warps(1) as u32);
                let of_rows = grid(tile, block, rows, stream);
                stream.enqueue(separable_rows_each, of_rows, &(across, each))?;
                let down = Pass { src: middle, ..*pass };
                let tile = (COLUMNS_BLOCK.0, COLUMN_ROWS as u32);
                let of_columns = grid(tile, COLUMNS_BLOCK, columns, stream);
                stream.enqueue(separable_columns_each, of_columns, &(down, pass.src, each))?;
            }
        }
        Ok(())
    }
}
