//! Bytes made of bytes: launches the entries of `gpu-kernels/src/kernels/separable_matrix.rs` that
//! read a table of bands, and `resolve_each` of `resolve.rs` for what these leave uncertain.
//!
//! Images whose windows reach about equally far share a launch, in the smallest window that holds
//! all of theirs: whole numbers stay exact with zeros around them. In the launch, a block of any
//! other image returns at once.

use std::sync::Arc;

use gpu_kernels::abi::{Pass, Window, scalar};
use gpu_kernels::kernels::resolve::{ImageProduct, resolve_each};
use gpu_kernels::kernels::separable_matrix::{Bands, IMAGE_WORDS, ImageBands};
use gpu_kernels::tile::flat::takes_outside;

use super::{each, table};
use crate::filter::Fact;
use crate::filter::whole::WholeTaps;
use crate::gpu::device::Gpu;
use crate::gpu::engine::window_of;
use crate::gpu::memory::Memory;
use crate::gpu::stream::Stream;
use crate::kernels::passes::no_product;
use crate::kernels::resolve::{self, push_term};
use crate::kernels::separable_matrix::MatrixPasses;
use crate::kernels::strip::no_form;
use crate::kernels::uncertain::Uncertainty;
use crate::threads::{self, Effort};
use crate::whole::products::{ProductDigits, TermDigits};
use crate::{Border, Error, Filter, Result, Variant};

/// Windows that reach at most so many pixels from their anchor in each direction share a launch,
/// if they reach further than those of the limit before.
const REACHES: [i32; 7] = [8, 16, 32, 64, 128, 256, 512];

/// Forms that are tried for a filter's digits: one takes about two microseconds.
const FORMS: usize = 4;

/// Nanoseconds that a filter's fragments take.
const FRAGMENTS: f64 = 2e4;

/// The taps of images in a GPU's memory.
#[derive(Debug)]
pub(super) struct Bytes {
    classes: Vec<Class>,
    /// Of all images, the taps as whole numbers ([`ImageProduct`]), in a window that holds all.
    products: Memory,
    window: Window,
    uncertainty: Uncertainty,
}

/// Images that share a launch.
#[derive(Debug)]
struct Class {
    /// Of each image, whether it is one of them.
    has: Vec<bool>,
    passes: MatrixPasses,
    /// Their [`ImageBands`], and the bands of the first of them.
    table: Memory,
    bands: Bands,
}

impl Bytes {
    /// See [`super::Products::takes_bytes`].
    pub(super) fn takes(
        gpu: &Gpu,
        (filter, border): (&Filter, Border),
        channels: usize,
    ) -> Result<bool> {
        let (mode, outside) = border.code();
        if !(1..=4).contains(&channels) || !takes_outside(scalar::U8, mode, outside) {
            return Ok(false);
        }
        let bytes = filter.byte_filter()?;
        let Some(reach) = REACHES.into_iter().find(|&limit| reach(filter) <= limit) else {
            return Ok(false);
        };
        let (cols, rows) = (2 * reach + 1, 2 * reach + 1);
        let most = Window { cols, rows, anchor_x: reach, anchor_y: reach };
        Ok(bytes.whole.is_product()
            && fits(gpu, &passes(channels, &most)?)
            && bytes.filter.fact::<Digits>().0.is_some())
    }

    pub(super) fn new(gpu: &Gpu, filters: &[&Filter], channels: usize) -> Result<Self> {
        let (mut all, mut uncertainty) = (Vec::with_capacity(filters.len()), Uncertainty::NONE);
        for filter in filters {
            let view = &filter.byte_filter()?.filter;
            let digits = view.fact::<Digits>();
            let share = digits.0.as_ref().ok_or_else(none)?.share();
            uncertainty = uncertainty.or(&Uncertainty::of_share(view, share));
            all.push(digits);
        }
        let limits = [&[-1][..], &REACHES].concat();
        let class = |limits: &[i32]| {
            let is_one = |filter: &&Filter| (limits[0] + 1..=limits[1]).contains(&reach(filter));
            let has: Vec<_> = filters.iter().map(is_one).collect();
            has.contains(&true).then(|| Class::new(gpu, (filters, &all), has, channels))
        };
        let classes = limits.windows(2).filter_map(class).collect::<Result<_>>()?;
        let window = joined(filters.iter().copied());
        let make = |number: usize, taps: u64, words: &mut Vec<u32>| {
            let whole = &filters[number].byte_filter()?.whole;
            let WholeTaps::Products { terms, .. } = &whole.taps else { return Err(no_product()) };
            let (row, column) = terms.first().ok_or_else(no_product)?;
            let [row, column] = padded([row, column], filters[number], &window);
            push_term(words, &row, &column);
            Ok(ImageProduct { taps, unused: 0, divisor: whole.divisor.into() }.to_words())
        };
        let products = table(gpu, filters.len(), make)?;
        Ok(Self { classes, products, window, uncertainty })
    }

    /// Filters so many images of so many channels by the taps from entry `product` on: one launch
    /// for each class, and one for the uncertain results of all.
    pub(super) fn launch(
        &self,
        pass: &Pass,
        (channels, count): (usize, usize),
        product: usize,
        stream: &mut Stream,
    ) -> Result<()> {
        let planes = channels * count;
        let results = pass.width as usize * pass.height as usize * planes;
        let uncertain = self.uncertainty.list(results, stream)?;
        let (pass, planes) = (Pass { uncertain, ..*pass }, planes as u32);
        for class in &self.classes {
            if class.has[product..product + count].contains(&true) {
                class.launch(&pass, (channels, planes), product, stream)?;
            }
        }
        let team = resolve::team_of_products(&self.window);
        let of_plane = each(&self.products, size_of::<ImageProduct>(), product, channels);
        let grid = resolve::grid(&pass, planes, team);
        let arguments = (pass, self.window, of_plane, team, planes as i32);
        // SAFETY: the kernel takes so many of these blocks; the pass has a list, and describes
        // allocated memory; the table has an entry for each image.
        unsafe { stream.enqueue(resolve_each, grid, &arguments) }
    }
}

impl Class {
    fn new(
        gpu: &Gpu,
        (filters, digits): (&[&Filter], &[Arc<Digits>]),
        has: Vec<bool>,
        channels: usize,
    ) -> Result<Self> {
        let own = filters.iter().zip(&has).filter(|&(_, &is_one)| is_one);
        let window = joined(own.map(|(&filter, _)| filter));
        let passes = passes(channels, &window)?;
        let padded = |number: usize| {
            let mut digits = digits[number].0.clone()?;
            for TermDigits { row, column, .. } in &mut digits.terms {
                [*row, *column] = self::padded([row, column], filters[number], &window);
            }
            let fragments = digits.fragments(&passes);
            Some((digits, fragments))
        };
        let mut all: Vec<_> = has.iter().map(|_| None).collect();
        let own = all.iter_mut().enumerate().filter(|&(number, _)| has[number]);
        let threads = Effort::of_work(FRAGMENTS * has.len() as f64).threads_now();
        threads::for_each(threads, own, |(): &mut (), (number, place)| *place = padded(number));
        let mut found = None;
        let make = |number: usize, row: u64, words: &mut Vec<u32>| {
            let Some((digits, fragments)) = &mut all[number] else { return Ok([0; IMAGE_WORDS]) };
            words.append(fragments);
            let bands = passes.bands(digits, row, passes.ring(window.anchor_y as usize));
            found.get_or_insert((number, bands));
            let [across, _] = bands.across;
            Ok(ImageBands { row, across, rounding: bands.rounding }.to_words())
        };
        let table = table(gpu, filters.len(), make)?;
        let (number, mut bands) = found.expect("the class has an image");
        let entry = table.address() + (4 * IMAGE_WORDS * number) as u64;
        for address in [&mut bands.row, &mut bands.column, &mut bands.begin] {
            *address += entry;
        }
        Ok(Self { has, passes, table, bands })
    }

    /// Filters its images among those of a pass, from entry `product` on.
    fn launch(
        &self,
        pass: &Pass,
        (channels, planes): (usize, u32),
        product: usize,
        stream: &mut Stream,
    ) -> Result<()> {
        let entry = self.passes.entry.each.ok_or_else(none)?;
        let strips = self.passes.strips_of(&self.bands.ring);
        let (grid, rows) = strips.grid(entry.name(), &pass.region, planes, stream)?;
        // Its z axis counts images, or planes.
        let together = self.passes.layout.channels;
        let of_block = each(&self.table, 4 * IMAGE_WORDS, product, channels / together);
        let arguments = (*pass, self.bands, together as i32, together as i32, rows, of_block);
        // SAFETY: `takes` checked the limits and the shared memory; the table has the bands of each
        // image of the class, for this window; the pass describes allocated memory, and has a list.
        unsafe { stream.enqueue(entry, grid, &arguments) }
    }
}

/// The smallest window that holds those of these filters, with their anchors in one cell.
fn joined<'a>(filters: impl Iterator<Item = &'a Filter>) -> Window {
    let mut window = Window { cols: 0, rows: 0, anchor_x: 0, anchor_y: 0 };
    let (mut right, mut below) = (0, 0);
    for own in filters.map(window_of) {
        window.anchor_x = window.anchor_x.max(own.anchor_x);
        window.anchor_y = window.anchor_y.max(own.anchor_y);
        right = right.max(own.cols - own.anchor_x);
        below = below.max(own.rows - own.anchor_y);
    }
    Window { cols: window.anchor_x + right, rows: window.anchor_y + below, ..window }
}

/// A filter's row and column of taps with zeros around them, in a window that holds its own.
fn padded<T: Copy + Default>(
    [row, column]: [&[T]; 2],
    filter: &Filter,
    window: &Window,
) -> [Vec<T>; 2] {
    let own = window_of(filter);
    let line = |taps: &[T], before: i32, len: i32| {
        let mut line = vec![T::default(); len as usize];
        line[before as usize..before as usize + taps.len()].copy_from_slice(taps);
        line
    };
    [
        line(row, window.anchor_x - own.anchor_x, window.cols),
        line(column, window.anchor_y - own.anchor_y, window.rows),
    ]
}

/// The furthest that a window reaches from its anchor.
fn reach(filter: &Filter) -> i32 {
    let Window { cols, rows, anchor_x, anchor_y } = window_of(filter);
    [anchor_x, anchor_y, cols - 1 - anchor_x, rows - 1 - anchor_y].into_iter().fold(0, i32::max)
}

/// The launch for a window, of pixels of so many channels.
fn passes(channels: usize, window: &Window) -> Result<MatrixPasses> {
    let size = (window.cols as usize, window.rows as usize);
    MatrixPasses::of(channels, size, window.anchor_x as usize, (1, false), |entry| {
        entry.each.is_some()
    })
    .map_err(|_| none())
}

/// Whether a block's shared memory has room for what a launch needs.
fn fits(gpu: &Gpu, passes: &MatrixPasses) -> bool {
    passes.shared_bytes(&passes.ring(0)) <= gpu.machine().shared_memory
}

/// The taps of a product as three digits, as bytes have them; of a batch's filter, which may serve
/// for one call.
struct Digits(Option<ProductDigits>);

impl Fact for Digits {
    fn of(view: &Filter) -> Self {
        let digits = ProductDigits::of_forms(view, FORMS).ok();
        Self(digits.filter(|digits| digits.terms.len() == 1 && digits.point == 0))
    }
}

/// The error where there is no launch.
fn none() -> Error {
    no_form(Variant::SeparableMatrix)
}
