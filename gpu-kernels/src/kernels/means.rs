//! Bytes of means over large windows whose sums are ties: the sums that define them (see `settle.rs`), by all lanes of a warp.
//!
//! Thread mapping: a warp for each result, that which is next (see `counted.rs`). It takes a chunk of the window at a time, TAPS products a lane: whole rows,
//! or 256 taps of a row. Rows of fewer than 32 taps lie beside each other in the warp. The pixels of the next chunk are under way meanwhile.
//! Order of accumulation: row by row, left to right, each product and each sum rounded. But it is not computed one by one: as long as a sum grows and stays below the next
//! power of two, its steps do not change, and so each product is rounded to a multiple of the same step, whatever comes before it. Those of all lanes are
//! added at once then, as whole numbers of steps. As many chunks as cannot reach the next power of two, however bright they are, are added before the
//! lanes' sums are. Where a sum passes a power of two, or a product lies in the middle between two multiples, which the
//! sum before it decides, as many products as needed are added one by one.
//! Where windows below each other hold the same, one of them is computed and stored for all (see `alike.rs`). Where all pixels under a window are 0 or 255, a tie's sum is one
//! of as many products as there are 255: which of two bytes it makes, a table says, and it does not come here.
//! Shared memory: each warp's products in f64; then a word for each.
//! Limits: as `settle.rs`; all taps are the same, and positive; what is outside the image is a byte.

use super::alike::Alike;
use super::counted::Counts;
use super::settle::{Place, added};
use crate::abi::{Pass, Window};
use crate::border;
use crate::device::*;
use crate::pixel::{product_of_byte, to_byte};
use crate::tile::view::Source;

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 8);
/// The least taps of a window for which this is faster than `ties.rs`.
pub const LEAST: i32 = 1024;
/// Products of a lane at a time.
const TAPS: usize = 8;
/// Products of a warp at a time: a chunk.
const AT_ONCE: i32 = 32 * TAPS as i32;
/// The most that the bytes of a chunk add up to.
pub const BRIGHTEST: u32 = 255 * AT_ONCE as u32;
/// The words of shared memory that say which result is a warp's next.
const NEXT: i32 = 2 * AT_ONCE * BLOCK.1 as i32;
/// Bytes of shared memory.
pub const SHARED: u32 = 4 * (NEXT as u32 + BLOCK.1);

kernel! {
    /// Settles the results in the pass's list.
    fn settle_means(pass: Pass, window: Window, mean: Mean, planes: i32, counts: Counts) {
        directive!(".maxnreg 80");
        match window.cols {
            129.. => settle::<8>(&pass, &window, &mean, (planes, counts)),
            33.. => settle::<4>(&pass, &window, &mean, (planes, counts)),
            _ => settle::<1>(&pass, &window, &mean, (planes, counts)),
        }
    }
}

/// The bytes of ties where all pixels are 0 or 255.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ties {
    /// A bit for each byte, the first in the lowest bit of the first word: whether a sum in the middle between it and the one before is rounded up to it.
    pub up: [u32; 8],
    /// Whether these are known, and what is in doubt is a tie, whose byte so far is the greater one.
    pub are_known: i32,
}

impl Ties {
    /// Nothing is known.
    pub const NONE: Self = Self { up: [0; 8], are_known: 0 };

    /// The byte of a tie.
    #[inline(always)]
    pub(super) fn byte(&self, greater: u32) -> u32 {
        // Parameters have no numbers at run time.
        let (mut word, mut n) = (0, 0);
        while n < 8 {
            word = if greater >> 5 == n as u32 { self.up[n] } else { word };
            n += 1;
        }
        greater - (!(word >> (greater & 31)) & 1)
    }
}

/// What the sums are made of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Mean {
    /// The value of every tap.
    pub tap: f64,
    /// So many times [`BRIGHTEST`] bytes add less than 1 to a sum.
    pub chunks: f64,
    /// Where rows repeat.
    pub alike: Alike,
}

/// Settles the warp's results, of whose windows a lane takes STEPS products of a row at a time, 32 columns apart.
///
/// # Safety
/// The pass describes allocated memory; the launch has the block shape and the shared memory stated above; the whole block calls.
#[inline(always)]
unsafe fn settle<const STEPS: usize>(pass: &Pass, window: &Window, mean: &Mean, (planes, counts): (i32, Counts)) {
    let (shared, word) = (Shared::dynamic(), NEXT + thread_y());
    // SAFETY: as the caller promised, and for the warp together, which meets between what a lane stores and what others load.
    unsafe {
        let left = counts.left();
        loop {
            keep_rolled();
            warp_barrier();
            if thread_x() == 0 {
                shared.store(word, f32::from_bits(counts.take(1) as u32));
            }
            warp_barrier();
            let next = shared.load_word(word) as i32;
            if next >= left {
                break;
            }
            let (place, alone) = counts.result(pass, window, planes, next);
            if !place.is_there() {
                continue;
            }
            let byte = to_byte(defined::<STEPS>(pass, window, mean, place)).0;
            if alone {
                if thread_x() == 0 {
                    place.store(pass, byte);
                }
                continue;
            }
            let rows = mean.alike.rows(pass, window, &place, place.corner(pass, window).0);
            let mut y = rows.first + thread_x();
            while y <= rows.last {
                Place { y, ..place }.store(pass, byte);
                y += 32;
            }
        }
    }
}

/// The sum that defines a result, in all lanes.
///
/// # Safety
/// As for [`settle`], for the whole warp.
#[inline(always)]
unsafe fn defined<const STEPS: usize>(pass: &Pass, window: &Window, mean: &Mean, place: Place) -> f64 {
    let (shared, products_at) = (Shared::dynamic(), 2 * AT_ONCE * thread_y());
    let mut ahead = Chunks::<STEPS>::new(pass, window, place);
    // From it on a sum is so much greater than each product that all of them are rounded alike.
    let least = mul_f64(mean.tap, 1024.0);
    let (mut binade, mut sum) = (Binade::NONE, 0.0);
    // Chunks that are added together, and the lane's part of those that have been.
    let (mut sure, mut part) = (0, Part::NONE);
    let mut next = [0; TAPS];
    // The first turn only loads.
    let mut left = opaque(ahead.count() + 1);
    let count = left - 1;
    // SAFETY: as the caller promised; the whole warp is here, with the same sum in all lanes. The words of shared memory are its own, and it meets between what
    // a lane stores and what others load.
    unsafe {
        while left > 0 {
            let bytes = next;
            next = ahead.load();
            left -= 1;
            if left == count {
                continue;
            }
            if sure == 0 {
                binade = binade.of(sum, least, mean.tap);
                sure = binade.chunks(sum, mean.chunks).min(left + 1);
            }
            if sure > 0 {
                part.add(&binade, &bytes);
                sure -= 1;
                if sure == 0 {
                    sum = add_f64(sum, part.total(&binade));
                    part = Part::NONE;
                }
                continue;
            }
            let products = bytes.map(|byte| product_of_byte(mean.tap, byte));
            let (all, fits) = together(sum, least, &products);
            if fits {
                sum = all;
                continue;
            }
            let mut n = 0;
            while n < TAPS {
                shared.store_f64(products_at + 2 * (32 * n as i32 + thread_x()), products[n]);
                n += 1;
            }
            warp_barrier();
            let mut first = opaque(products_at);
            while first < products_at + 2 * AT_ONCE {
                let (all, fits) = together(sum, least, &[shared.load_f64(first + 2 * thread_x())]);
                sum = if fits { all } else { one_by_one(sum, first) };
                first = opaque(first + 64);
            }
            warp_barrier();
        }
    }
    sum
}

/// A warp's way through a window, chunk by chunk: where the lane's next pixels are.
struct Chunks<'a, const STEPS: usize> {
    source: Source<'a>,
    /// The size of the window, its corner, and whether it leaves the image.
    size: (i32, i32),
    corner: (i32, i32),
    leaves: bool,
    /// Column and row of the lane's first tap of the next chunk; behind the window there are none.
    column: i32,
    row: i32,
    /// How many rows of the window lie beside each other in the warp.
    beside: i32,
    /// The address of that row of a window that lies in the image, and how far it is from there to the lane's next.
    start: u64,
    below: u64,
    /// How far the lane's pixels are from their row's first one; of columns outside the image, their border's value counts.
    offsets: [i32; STEPS],
    outside: [bool; STEPS],
}

impl<'a, const STEPS: usize> Chunks<'a, STEPS> {
    /// Columns of a chunk, if all lanes have taps of the same row.
    const COLS: i32 = 32 * STEPS as i32;
    /// Rows of a chunk, of those that lie beside each other.
    const ROWS: i32 = (TAPS / STEPS) as i32;

    #[inline(always)]
    fn new(pass: &'a Pass, window: &Window, place: Place) -> Self {
        let (corner, leaves) = place.corner(pass, window);
        // Lanes that share a row.
        let mut lanes = opaque(32);
        while STEPS == 1 && lanes / 2 >= window.cols {
            lanes = opaque(lanes / 2);
        }
        let divided = |number: i32| (number as u32).checked_div(lanes as u32).unwrap_or(0) as i32;
        let (column, row, beside) = (thread_x() & (lanes - 1), divided(thread_x()), divided(32));
        let source = Source::of_channel(&pass.src, pass, place.z);
        let start = source.row_inside(opaque(corner.1 + row)).at(0);
        let below = pass.src.row.wrapping_mul(beside as i64) as u64;
        let (offsets, outside) = ([0; STEPS], [false; STEPS]);
        let size = (window.cols, window.rows);
        let mut new = Self { source, size, corner, leaves, column, row, beside, start, below, offsets, outside };
        new.find_columns();
        new
    }

    /// How many chunks the window has.
    #[inline(always)]
    fn count(&self) -> i32 {
        let (rows, across) = (Self::ROWS * self.beside, (self.size.0 + Self::COLS - 1) / Self::COLS);
        ((self.size.1 + rows - 1) as u32).checked_div(rows as u32).unwrap_or(0) as i32 * across
    }

    #[inline(always)]
    fn find_columns(&mut self) {
        let pass = self.source.pass;
        let mut n = 0;
        while n < STEPS {
            let mut x = self.corner.0 + self.column + 32 * n as i32;
            if self.leaves {
                x = border::resolve_briefly(pass.border, x, pass.width);
                self.outside[n] = x < 0;
            }
            self.offsets[n] = x * pass.src.pixel;
            n += 1;
        }
    }

    /// The bytes under the lane's taps of the next chunk, 0 where there is no tap, and behind the window.
    ///
    /// # Safety
    /// The pass describes allocated memory.
    #[inline(always)]
    unsafe fn load(&mut self) -> [u32; TAPS] {
        // SAFETY: as the caller promised; the window is as said.
        let bytes = unsafe { if self.leaves { self.bytes::<true>() } else { self.bytes::<false>() } };
        if STEPS == 8 && self.size.0 > Self::COLS {
            self.column += Self::COLS;
            if self.column - thread_x() >= self.size.0 {
                self.column = thread_x();
                self.row += 1;
                self.start = self.start.wrapping_add(self.below);
            }
            self.find_columns();
        } else {
            self.row += Self::ROWS * self.beside;
            self.start = self.start.wrapping_add(self.below.wrapping_mul(Self::ROWS as u64));
        }
        bytes
    }

    /// The same, of a window that leaves the image or does not.
    ///
    /// # Safety
    /// As for [`Self::load`].
    #[inline(always)]
    unsafe fn bytes<const LEAVES: bool>(&self) -> [u32; TAPS] {
        let pass = self.source.pass;
        // A bit for each that the border's value takes the place of.
        let (mut bytes, mut border) = ([0; TAPS], 0);
        let (mut start, mut row) = (self.start, self.row);
        let mut r = 0;
        while r < TAPS / STEPS {
            let mut inside = true;
            if LEAVES {
                let y = border::resolve_briefly(pass.border, self.corner.1 + row, pass.height);
                (start, inside) = (self.source.row_inside(y).at(0), y >= 0);
            }
            if !LEAVES && pass.src.pixel == 3 {
                // SAFETY: as the caller promised.
                unsafe { self.pixels_of::<3>(start, row, &mut bytes, r) };
            } else if !LEAVES && pass.src.pixel == 1 {
                // SAFETY: as the caller promised.
                unsafe { self.pixels_of::<1>(start, row, &mut bytes, r) };
            }
            let mut n = if !LEAVES && (pass.src.pixel == 3 || pass.src.pixel == 1) { STEPS } else { 0 };
            while n < STEPS {
                let there = row < self.size.1 && self.column + 32 * (n as i32) < self.size.0;
                let inside = !LEAVES || inside && !self.outside[n];
                let at = start.wrapping_add(self.offsets[n] as u64);
                // SAFETY: as the caller promised; it is a pixel of the image where it is loaded.
                bytes[r * STEPS + n] = unsafe { load_u8_if(there && inside, at) };
                border |= ((there && !inside) as u32) << (r * STEPS + n);
                n += 1;
            }
            row += self.beside;
            start = start.wrapping_add(self.below);
            r += 1;
        }
        // Behind all loads, none of which is waited for before the last is issued. Hidden, so that it stays there.
        let border = opaque(border as i32);
        let mut n = 0;
        while LEAVES && n < TAPS {
            bytes[n] = if border >> n & 1 != 0 { pass.outside as u32 } else { bytes[n] };
            n += 1;
        }
        bytes
    }

    /// Those of row number `r` of a chunk, of a window inside the image, whose pixels lie PIXEL bytes apart: one address for all.
    ///
    /// # Safety
    /// As for [`Self::load`].
    #[inline(always)]
    unsafe fn pixels_of<const PIXEL: usize>(&self, start: u64, row: i32, bytes: &mut [u32; TAPS], r: usize) {
        let first = start.wrapping_add(self.offsets[0] as u64);
        let mut n = 0;
        while n < STEPS {
            let there = row < self.size.1 && self.column + 32 * (n as i32) < self.size.0;
            // SAFETY: as the caller promised.
            bytes[r * STEPS + n] = unsafe { load_u8_if(there, first.wrapping_add((32 * n * PIXEL) as u64)) };
            n += 1;
        }
    }
}

/// Sums from a power of two to below the next.
#[derive(Clone, Copy)]
struct Binade {
    /// The power of two; 0 if no sum is rounded as those products need that are added at once.
    power: f64,
    /// Whether the product of a byte lies in the middle between two multiples of the sums' step; or the tap has too many bits for [`Part`].
    has_middles: bool,
    /// The tap in steps: a whole number, and what is left of it, times `2^24`.
    whole: f64,
    rest: u32,
}

impl Binade {
    const NONE: Self = Self { power: 0.0, has_middles: true, whole: 0.0, rest: 0 };

    /// That of a sum, which may be this one.
    ///
    /// # Safety
    /// The whole warp calls, with the same sum.
    #[inline(always)]
    unsafe fn of(self, sum: f64, least: f64, tap: f64) -> Self {
        let power = power_below(sum, least);
        if power == self.power {
            return self;
        }
        let new = Self { power, ..Self::NONE };
        let (middle, mut found) = (mul_f64(power, HALF_STEP), 0.0);
        let mut byte = opaque(thread_x());
        while byte < 256 {
            let product = product_of_byte(tap, byte as u32);
            let off = add_f64(product, -new.rounded(product));
            found = if off == middle || off == -middle { 1.0 } else { found };
            byte += 32;
        }
        // Powers of two: nothing is rounded.
        let steps = mul_f64(mul_f64(tap, IN_POWER), reciprocal(power));
        // SAFETY: as the caller promised. A sum is 512 times the tap at least, so that these are below `2^44`.
        unsafe {
            let (mut whole, mut rest) = (0.0, 0);
            let mut has_middles = added(found) > 0.0;
            if power > 0.0 {
                whole = steps.to_int_unchecked::<i64>() as f64;
                let left = mul_f64(add_f64(steps, -whole), REST);
                rest = left.to_int_unchecked();
                has_middles |= rest as f64 != left;
            }
            Self { power, has_middles, whole, rest }
        }
    }

    /// How many chunks a sum takes without passing the next power of two, or coming upon a middle.
    #[inline(always)]
    fn chunks(self, sum: f64, chunks_for_one: f64) -> i32 {
        if self.has_middles || self.power == 0.0 {
            return 0;
        }
        let room = add_f64(mul_f64(self.power, 2.0), -sum);
        // More than a window has are as good as any number.
        let chunks = mul_f64(room, chunks_for_one).min(1e9);
        // SAFETY: it is from 0 to a billion.
        unsafe { chunks.to_int_unchecked() }
    }

    /// A product rounded to a multiple of the sums' step.
    #[inline(always)]
    fn rounded(self, product: f64) -> f64 {
        // Half as much again as the power stays between it and the next.
        let shift = mul_f64(self.power, 1.5);
        add_f64(add_f64(product, shift), -shift)
    }
}

/// A lane's part of products that are rounded to the same step: in steps, a byte's is the byte times [`Binade::whole`], and the byte times [`Binade::rest`] rounded.
#[derive(Clone, Copy)]
struct Part {
    /// The sum of bytes, and of what is rounded.
    bytes: u32,
    rounded: u32,
}

impl Part {
    const NONE: Self = Self { bytes: 0, rounded: 0 };

    #[inline(always)]
    fn add(&mut self, binade: &Binade, bytes: &[u32; TAPS]) {
        let mut n = 0;
        while n < TAPS {
            self.bytes += bytes[n];
            // None lies in the middle.
            self.rounded += (bytes[n].wrapping_mul(binade.rest).wrapping_add(1 << 23)) >> 24;
            n += 1;
        }
    }

    /// The sum of all lanes' products.
    ///
    /// # Safety
    /// The whole warp calls.
    #[inline(always)]
    unsafe fn total(self, binade: &Binade) -> f64 {
        let (mut bytes, mut rounded) = (self.bytes, self.rounded);
        let mut apart = opaque(16);
        while apart > 0 {
            // SAFETY: as the caller promised.
            unsafe {
                bytes += exchange(bytes, apart as u32);
                rounded += exchange(rounded, apart as u32);
            }
            apart /= 2;
        }
        // At most as many steps as a power of two has: exact.
        let steps = fma_f64(binade.whole, bytes as f64, rounded as f64);
        mul_f64(mul_f64(steps, binade.power), 1.0 / IN_POWER)
    }
}

/// Steps of sums up to a power of two, in that.
const IN_POWER: f64 = f64::from_bits((1023 + 52) << 52);

/// `2^24`: see [`Binade::rest`].
const REST: f64 = f64::from_bits((1023 + 24) << 52);

/// One divided by a power of two.
#[inline(always)]
fn reciprocal(power: f64) -> f64 {
    f64::from_bits((2046u64 << 52).wrapping_sub(power.to_bits()))
}

/// `2^-53`: half a step of sums from 1 to 2.
const HALF_STEP: f64 = f64::from_bits((1023 - 53) << 52);

/// The greatest power of two that is not above a sum, if that is at least `least`; else 0.
#[inline(always)]
fn power_below(sum: f64, least: f64) -> f64 {
    const EXPONENT: u64 = 0x7ff << 52;
    if sum >= least { f64::from_bits(sum.to_bits() & EXPONENT) } else { 0.0 }
}

/// A sum plus the products of all lanes, if it does not matter in which order they are added; and whether that is so.
///
/// # Safety
/// The whole warp calls, all lanes with the same sum.
#[inline(always)]
unsafe fn together<const N: usize>(sum: f64, least: f64, products: &[f64; N]) -> (f64, bool) {
    let power = power_below(sum, least);
    let (binade, middle) = (Binade { power, ..Binade::NONE }, mul_f64(power, HALF_STEP));
    let (mut part, mut is_middle) = (0.0, false);
    let mut n = 0;
    while n < N {
        let rounded = binade.rounded(products[n]);
        let off = add_f64(products[n], -rounded);
        is_middle |= off == middle || off == -middle;
        part = add_f64(part, rounded);
        n += 1;
    }
    // A product in the middle makes the total infinite.
    let part = if is_middle && power > 0.0 { f64::INFINITY } else { part };
    // SAFETY: as the caller promised.
    let total = unsafe { added(part) };
    let next = add_f64(sum, total);
    (next, if power > 0.0 { next < mul_f64(power, 2.0) } else { total == 0.0 })
}

/// A sum plus 32 products that stand in shared memory from a word on.
///
/// # Safety
/// They do.
#[inline(always)]
unsafe fn one_by_one(mut sum: f64, first: i32) -> f64 {
    // Loaded together, as the additions wait for each other anyway.
    const TOGETHER: usize = 8;
    let mut at = opaque(first);
    while at < first + 64 {
        let mut products = [0.0; TOGETHER];
        let mut n = 0;
        while n < TOGETHER {
            // SAFETY: as the caller promised.
            products[n] = unsafe { Shared::dynamic().load_f64(at + 2 * n as i32) };
            n += 1;
        }
        n = 0;
        while n < TOGETHER {
            sum = add_f64(sum, products[n]);
            n += 1;
        }
        at = opaque(at + 2 * TOGETHER as i32);
    }
    sum
}
