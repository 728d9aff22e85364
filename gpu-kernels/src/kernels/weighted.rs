//! Colours weighted by alpha: for taps that are not negative and sum to 1.
//!
//! A colour becomes `sum(tap * colour * alpha) / sum(tap * alpha)`, 0 where the divisor is 0, and
//! alpha becomes `sum(tap * alpha)`. Each is rounded once. So transparent pixels do not contribute
//! to a colour.
//! - Bytes made of bytes: exact sums over integer taps (`host/src/filter/whole.rs`), in any order.
//! - Other types: sums in f64, row by row, left to right, each product and each sum rounded.
//!   `colour * alpha` is exact.
//!
//! Thread mapping: a thread a pixel, with all its channels; alpha is the last. The grid's z axis
//! counts images. Taps: in global memory, in f64 row by row, or as [`Weights`] says. Limits: at
//! least two channels; no epilogue.

use crate::abi::{Pass, Window};
use crate::border;
use crate::device::*;
use crate::divisor::{Divisor, ratio};
use crate::pixel::{U8, f64_to_bits, load_value, store_bits};
use crate::tile::view::{Row, Source, Target};

/// Threads of a block.
pub const BLOCK: (u32, u32) = (32, 8);

/// Integer taps, as a sum of products of a column and a row. A table is one product: of a column of
/// ones, and of a row that differs for each row of the window.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// The address of the first column; its row or rows follow. Numbers are 64 bits.
    pub taps: u64,
    /// Bytes from one product to the next.
    pub apart: i64,
    /// The number of products.
    pub terms: i32,
    /// Taps from a row of the window to the next; 0 where all rows of the window share one row.
    pub row: i32,
    /// The numerator of an extra term for the pixel under the middle of the window: 128 bits, low
    /// half first.
    pub point: [u64; 2],
    /// The divisor of the sums.
    pub divisor: Divisor,
}

kernel! {
    /// Any types. `taps` is the address of the window's taps; `colours` channels come before alpha.
    fn weighted(pass: Pass, window: Window, taps: u64, colours: i32) {
        each_pixel(&pass, &window, &InF64(taps), colours)
    }

    /// As `weighted`, for bytes made of bytes.
    fn weighted_bytes(pass: Pass, window: Window, weights: Weights, colours: i32) {
        each_pixel(&pass, &window, &weights, colours)
    }
}

/// A type of arithmetic for the sums.
trait Sums {
    /// Stores the results of a pixel.
    ///
    /// # Safety
    /// The pass describes allocated memory, no other thread stores the pixel, and the taps can be
    /// read.
    unsafe fn store<const M: usize>(&self, under: &Under<'_, M>);
}

/// Computes all pixels of this thread.
///
/// # Safety
/// The pass describes allocated memory; the taps can be read.
#[inline(always)]
unsafe fn each_pixel(pass: &Pass, window: &Window, sums: &impl Sums, colours: i32) {
    let x = pass.region.x0 + block_x() * block_width() + thread_x();
    let mut y = pass.region.y0 + block_y() * block_height() + thread_y();
    let first = block_z() * (colours + 1);
    // SAFETY: as the caller promised; the pixel lies in the region, and only this thread stores it.
    unsafe {
        while x < pass.region.x1 && y < pass.region.y1 {
            let leaves = border::leaves(x - window.anchor_x, window.cols, pass.width)
                || border::leaves(y - window.anchor_y, window.rows, pass.height);
            let mut c = opaque(0);
            if leaves && border::copies(pass.border) {
                while c <= colours {
                    let source = Source::of_channel(&pass.src, pass, first + c);
                    Target::of_channel(pass, first + c).write_plain(
                        x,
                        y,
                        source.pixel_inside(x, y),
                    );
                    c += 1;
                }
            } else {
                while c + 3 <= colours {
                    sums.store(&Under::<4>::new(pass, window, (x, y), (first, c, colours), leaves));
                    c += 3;
                }
                while c < colours {
                    sums.store(&Under::<2>::new(pass, window, (x, y), (first, c, colours), leaves));
                    c += 1;
                }
            }
            y += grid_height() * block_height();
        }
    }
}

/// A window on the source: M channels, the last of which is alpha.
struct Under<'a, const M: usize> {
    pass: &'a Pass,
    window: &'a Window,
    x: i32,
    y: i32,
    /// The first of these channels, the image's first channel, and the alpha channel.
    colour: i32,
    first: i32,
    last: i32,
    /// Whether the window leaves the image.
    leaves: bool,
    alpha: Source<'a>,
    /// Bytes from alpha to each channel.
    offsets: [u64; M],
}

impl<'a, const M: usize> Under<'a, M> {
    /// For the image whose channels begin with `first`, and for its colours from number `c` on.
    #[inline(always)]
    fn new(
        pass: &'a Pass,
        window: &'a Window,
        (x, y): (i32, i32),
        (first, c, colours): (i32, i32, i32),
        leaves: bool,
    ) -> Self {
        let (colour, last) = (first + c, first + colours);
        let alpha = Source::of_channel(&pass.src, pass, last);
        let mut offsets = [0; M];
        let mut n = 0;
        while n + 1 < M {
            let source = Source::of_channel(&pass.src, pass, colour + n as i32);
            offsets[n] = source.origin().wrapping_sub(alpha.origin());
            n += 1;
        }
        Self { pass, window, x, y, colour, first, last, leaves, alpha, offsets }
    }

    /// A row of the window.
    #[inline(always)]
    fn row(&self, row: i32) -> Row<'a> {
        let y = self.y - self.window.anchor_y + row;
        if self.leaves { self.alpha.row(y) } else { self.alpha.row_inside(y) }
    }

    /// The address of alpha in a row of the window; `None` outside the image.
    #[inline(always)]
    fn at(&self, row: Row<'a>, col: i32) -> Option<u64> {
        let (pass, x) = (self.pass, self.x - self.window.anchor_x + col);
        let x = if self.leaves { border::resolve(pass.border, x, pass.width) } else { x };
        (x >= 0 && row.is_inside()).then(|| row.at(x))
    }

    /// A byte pixel's colours times its alpha; last, its alpha.
    ///
    /// # Safety
    /// The pixel's alpha is at `at`, and its colours are at their offsets from there.
    #[inline(always)]
    unsafe fn products(&self, at: Option<u64>) -> [u32; M] {
        let byte = |more: u64| match at {
            // SAFETY: as the caller promised.
            Some(at) => unsafe { load_u8(at.wrapping_add(more)) },
            None => self.pass.outside as u32,
        };
        let alpha = byte(0);
        let mut products = [alpha; M];
        let mut n = 0;
        while n + 1 < M {
            products[n] *= byte(self.offsets[n]);
            n += 1;
        }
        products
    }

    /// Stores the bits of the channels. Alpha is stored only with the image's first colour.
    ///
    /// # Safety
    /// As for [`Sums::store`].
    #[inline(always)]
    unsafe fn store(&self, scalar: u32, bits: [u32; M]) {
        let mut n = 0;
        while n < M {
            let channel = if n + 1 < M { self.colour + n as i32 } else { self.last };
            if n + 1 < M || self.colour == self.first {
                let target = Target::of_channel(self.pass, channel);
                // SAFETY: as the caller promised.
                unsafe { store_bits(scalar, target.at(self.x, self.y), bits[n]) };
            }
            n += 1;
        }
    }
}

/// Arithmetic in f64, with the address of the taps.
struct InF64(u64);

impl Sums for InF64 {
    #[inline(always)]
    unsafe fn store<const M: usize>(&self, under: &Under<'_, M>) {
        let (pass, window) = (under.pass, under.window);
        let mut sums = [0.0; M];
        let mut taps = self.0;
        let mut r = opaque(0);
        // SAFETY: as the caller promised; a pixel lies in the image, or is not loaded.
        unsafe {
            while r < window.rows {
                let row = under.row(r);
                let mut col = opaque(0);
                while col < window.cols {
                    let at = under.at(row, col);
                    let value = |more: u64| match at {
                        Some(at) => load_value(pass.src.scalar, at.wrapping_add(more)) as f64,
                        None => pass.outside as f64,
                    };
                    let (tap, alpha) = (load_f64(taps), value(0));
                    let mut n = 0;
                    while n < M {
                        let part =
                            if n + 1 < M { mul_f64(value(under.offsets[n]), alpha) } else { alpha };
                        sums[n] = add_f64(sums[n], mul_f64(tap, part));
                        n += 1;
                    }
                    taps += 8;
                    col += 1;
                }
                r += 1;
            }
            let (scalar, weight) = (pass.dst.scalar, sums[M - 1]);
            let mut bits = [f64_to_bits(scalar, weight); M];
            let mut n = 0;
            while n + 1 < M {
                bits[n] = f64_to_bits(scalar, if weight == 0.0 { 0.0 } else { sums[n] / weight });
                n += 1;
            }
            under.store(scalar, bits);
        }
    }
}

impl Sums for Weights {
    #[inline(always)]
    unsafe fn store<const M: usize>(&self, under: &Under<'_, M>) {
        let window = under.window;
        let mut sums = [0; M];
        let (mut term, mut column) = (opaque(0), self.taps);
        // SAFETY: as the caller promised; a pixel lies in the image, or is not loaded.
        unsafe {
            while term < self.terms {
                let rows = column.wrapping_add(mul_wide(window.rows, 8) as u64);
                let mut r = opaque(0);
                while r < window.rows {
                    let row = under.row(r);
                    let mut taps = rows.wrapping_add((8 * mul_wide(r, self.row)) as u64);
                    // At most 2^61 in magnitude for a table, 2^53 for other products.
                    let mut line = [0; M];
                    let mut col = opaque(0);
                    while col < window.cols {
                        let (tap, products) = (load_i64(taps), under.products(under.at(row, col)));
                        let mut n = 0;
                        while n < M {
                            line[n] += tap * products[n] as i64;
                            n += 1;
                        }
                        taps += 8;
                        col += 1;
                    }
                    let factor = load_i64(column.wrapping_add(mul_wide(r, 8) as u64));
                    add(&mut sums, factor as i128, &line);
                    r += 1;
                }
                column = column.wrapping_add(self.apart as u64);
                term = opaque(term + 1);
            }
            let point = (self.point[1] as i128) << 64 | self.point[0] as i128;
            if point != 0 {
                let products =
                    under.products(under.at(under.row(window.rows >> 1), window.cols >> 1));
                add(&mut sums, point, &products);
            }
            let weight = sums[M - 1];
            let mut bits = [self.divisor.byte((weight >> 64) as i64, weight as u64); M];
            let mut n = 0;
            while n + 1 < M {
                bits[n] = ratio(sums[n], weight);
                n += 1;
            }
            under.store(U8, bits);
        }
    }
}

/// Adds each number times a factor to its sum.
#[inline(always)]
fn add<T: Copy + Into<i128>, const M: usize>(sums: &mut [i128; M], factor: i128, numbers: &[T; M]) {
    let mut n = 0;
    while n < M {
        sums[n] += factor * numbers[n].into();
        n += 1;
    }
}

/// Loads a 64-bit integer.
///
/// # Safety
/// The integer is at this address, and nothing writes it while the kernel runs.
#[inline(always)]
pub(super) unsafe fn load_i64(at: u64) -> i64 {
    // SAFETY: as the caller promised.
    let [low, high] = unsafe { load_words(at) };
    low as i64 | (high as i64) << 32
}
