//! A filter for each image of a batch on a GPU: launches the entries that read a table of products,
//! in `separable_any.rs`, `separable_tile.rs` and `resolve.rs` of `gpu-kernels/src/kernels`.
//!
//! Each filter is a product of a row and a column. Windows may differ in size: small square ones go
//! by tiles, others by two passes. A launch takes all images of its kind.

use gpu_kernels::abi::{Each, Pass, UncertainList, Window};
use gpu_kernels::kernels::resolve::{ImageProduct, resolve_each};
use gpu_kernels::kernels::separable::{COLUMNS_BLOCK, ROWS_BLOCK, ROWS_TILE};
use gpu_kernels::kernels::separable_any::{
    self, COLUMN_ROWS, ImageTaps, rows_tile, rows_warps, separable_columns_each,
    separable_rows_each,
};
use gpu_kernels::kernels::separable_tile::{self, separable_tile_each};

use super::device::Gpu;
use super::engine::{MAX_PLANES, Part, part_of, window_of};
use super::launch::Grid;
use super::memory::Memory;
use super::stream::Stream;
use super::view::{DeviceView, DeviceViewMut, View};
use crate::filter::whole::WholeTaps;
use crate::image::Shape;
use crate::kernels::passes::no_product;
use crate::kernels::prepared::scratch;
use crate::kernels::resolve::{self, push_term};
use crate::kernels::uncertain::{Exactly, Uncertainty, few};
use crate::{Border, Filter, Result, Variant};

/// Images of a launch have at most so many bytes of intermediate results, unless one has more. More
/// make no difference, and 24 MB, which the level-2 cache holds, take 1.1 to 1.3 times as long.
const SCRATCH: usize = 256 << 20;

/// The products of images in a GPU's memory.
#[derive(Debug)]
pub(crate) struct Products {
    border: Border,
    /// The taps as [`ImageTaps`].
    taps: Memory,
    /// Of each image, whether its window is one for tiles.
    tiled: Vec<bool>,
    /// Bytes of shared memory of the row pass, of the column pass and of tiles.
    shared: [u32; 3],
    /// For bytes made of bytes.
    bytes: Option<Bytes>,
}

/// What resolves bytes that estimates leave uncertain.
#[derive(Debug)]
struct Bytes {
    uncertainty: Uncertainty,
    /// The products in whole numbers as [`ImageProduct`], each in a window that holds all windows.
    products: Memory,
    window: Window,
}

impl Products {
    /// Whether bytes by this filter go by an estimate: not if too many would be uncertain.
    pub(crate) fn estimates(gpu: &Gpu, filter: &Filter) -> Result<bool> {
        let is_product = filter.byte_filter()?.whole.is_product();
        Ok(is_product && uncertainty(gpu, filter)?.passes != Some(Exactly::Always))
    }

    /// Of filters, each a product of a row and a column, for bytes made of bytes or for values that
    /// are added up in f32.
    pub(crate) fn new(
        gpu: &Gpu,
        filters: &[&Filter],
        border: Border,
        is_bytes: bool,
    ) -> Result<Self> {
        let (_, outside) = border.code();
        let (mut tiled, mut shared) = (Vec::with_capacity(filters.len()), [0; 3]);
        let make = |filter: &Filter, row: u64, words: &mut Vec<u32>| {
            // Bytes have the whole taps over their divisor.
            let filter = if is_bytes { &filter.byte_filter()?.filter } else { filter };
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
        let taps = table(gpu, filters, make)?;
        let bytes = if is_bytes { Some(Bytes::new(gpu, filters)?) } else { None };
        Ok(Self { border, taps, tiled, shared, bytes })
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
        let image = 4 * shape.width.next_multiple_of(32) * shape.height * shape.channels;
        let most = (SCRATCH / image).clamp(1, (MAX_PLANES / shape.channels).max(1));
        for done in (0..count).step_by(most) {
            let images = (first + done, most.min(count - done));
            self.launch((&src.parts, &dst.parts), images, product + done, stream)?;
        }
        Ok(())
    }

    /// As [`Products::enqueue`], by one launch of each kernel.
    fn launch(
        &self,
        (src, dst): (&View, &View),
        (first, count): (usize, usize),
        product: usize,
        stream: &mut Stream,
    ) -> Result<()> {
        let Shape { width, height, channels } = src.shape;
        let part = Part::whole(src.shape);
        let pass = part_of(self.border, (src, dst), &part, first, (channels, count));
        let planes = (channels * count) as u32;
        let uncertain = match &self.bytes {
            Some(bytes) => bytes.uncertainty.list(width * height * planes as usize, stream)?,
            None => UncertainList::NONE,
        };
        let pass = Pass { uncertain, ..pass };
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
                stream.enqueue(separable_tile_each, grid, &(pass, each))?;
            }
            if tiled.contains(&false) {
                let [middle] = scratch(&pass, (channels as u32, planes), 0, 0..height, stream)?;
                let across = Pass { dst: middle, uncertain: UncertainList::NONE, ..pass };
                let tile = (ROWS_TILE as u32, rows_tile(1) as u32);
                let block = (ROWS_BLOCK.0, rows_warps(1) as u32);
                let of_rows = grid(tile, block, rows, stream);
                stream.enqueue(separable_rows_each, of_rows, &(across, each))?;
                let down = Pass { src: middle, ..pass };
                let tile = (COLUMNS_BLOCK.0, COLUMN_ROWS as u32);
                let of_columns = grid(tile, COLUMNS_BLOCK, columns, stream);
                stream.enqueue(separable_columns_each, of_columns, &(down, pass.src, each))?;
            }
        }
        match &self.bytes {
            Some(bytes) if uncertain.list != 0 => {
                bytes.resolve(&pass, (channels, planes), product, stream)
            }
            _ => Ok(()),
        }
    }
}

impl Bytes {
    fn new(gpu: &Gpu, filters: &[&Filter]) -> Result<Self> {
        let mut uncertainty = Uncertainty::NONE;
        let mut window = Window { cols: 0, rows: 0, anchor_x: 0, anchor_y: 0 };
        let (mut right, mut below) = (0, 0);
        for filter in filters {
            uncertainty = uncertainty.or(&self::uncertainty(gpu, filter)?);
            let own = window_of(filter);
            window.anchor_x = window.anchor_x.max(own.anchor_x);
            window.anchor_y = window.anchor_y.max(own.anchor_y);
            right = right.max(own.cols - own.anchor_x);
            below = below.max(own.rows - own.anchor_y);
        }
        (window.cols, window.rows) = (window.anchor_x + right, window.anchor_y + below);
        // Whole numbers stay exact with zeros around them.
        let padded = |taps: &[i64], before: i32, len: i32| -> Vec<i64> {
            let mut line = vec![0; len as usize];
            line[before as usize..before as usize + taps.len()].copy_from_slice(taps);
            line
        };
        let make = |filter: &Filter, taps: u64, words: &mut Vec<u32>| {
            let whole = &filter.byte_filter()?.whole;
            let WholeTaps::Products { terms, .. } = &whole.taps else { return Err(no_product()) };
            let (row, column) = terms.first().ok_or_else(no_product)?;
            let own = window_of(filter);
            let row = padded(row, window.anchor_x - own.anchor_x, window.cols);
            let column = padded(column, window.anchor_y - own.anchor_y, window.rows);
            push_term(words, &row, &column);
            Ok(ImageProduct { taps, unused: 0, divisor: whole.divisor.into() }.to_words())
        };
        Ok(Self { uncertainty, products: table(gpu, filters, make)?, window })
    }

    /// Resolves the uncertain results of a pass over so many channels and planes.
    fn resolve(
        &self,
        pass: &Pass,
        (channels, planes): (usize, u32),
        product: usize,
        stream: &mut Stream,
    ) -> Result<()> {
        let team = resolve::team_of_products(&self.window);
        let each = each(&self.products, size_of::<ImageProduct>(), product, channels);
        let grid = resolve::grid(pass, planes, team);
        // SAFETY: the kernel takes so many of these blocks; the pass has a list, and describes
        // allocated memory; the table has an entry for each image.
        unsafe {
            stream.enqueue(resolve_each, grid, &(*pass, self.window, each, team, planes as i32))
        }
    }
}

/// How bytes by a filter are estimated and resolved.
fn uncertainty(gpu: &Gpu, filter: &Filter) -> Result<Uncertainty> {
    Uncertainty::of_f32(Variant::Separable, filter, few(filter), &gpu.machine())
}

/// A table from entry number `first` on, of so many bytes each, for images of so many planes.
fn each(table: &Memory, bytes: usize, first: usize, planes: usize) -> Each {
    Each::new(table.address() + (first * bytes) as u64, planes as u32)
}

/// Puts an entry of N words for each filter into the GPU's memory, and the taps behind them. `make`
/// returns an entry, whose taps begin so many bytes behind it, and appends the taps to the words.
fn table<const N: usize>(
    gpu: &Gpu,
    filters: &[&Filter],
    mut make: impl FnMut(&Filter, u64, &mut Vec<u32>) -> Result<[u32; N]>,
) -> Result<Memory> {
    let (mut entries, mut taps) = (Vec::with_capacity(N * filters.len()), Vec::new());
    for (number, filter) in filters.iter().enumerate() {
        let distance = N * (filters.len() - number) + taps.len();
        entries.extend(make(filter, 4 * distance as u64, &mut taps)?);
    }
    entries.append(&mut taps);
    gpu.holding(&entries, "uploading taps")
}
