//! The gradient of an image: its magnitude, or its angle, both derivatives from one read.
//!
//! | entry | source | result |
//! | --- | --- | --- |
//! | `gradient` | planes of f32 | magnitude |
//! | `gradient_8bit`, `gradient_16bit` | 1 to 4 interleaved channels of 8 or 16 bits | magnitude |
//! | `gradient_flat_cN` | rows of bytes, N interleaved channels | magnitude, as bytes |
//! | `gradient_floats_cN` | rows of bytes, N interleaved channels | magnitude, as f32 |
//! | `gradient_any` | any | magnitude or angle |
//!
//! Tiling and threads: as in `sliding.rs` and `flat.rs`, for windows of 3x3. A lane keeps the
//! differences and the smoothed pixels of the last two rows. `gradient_any`: a thread a pixel.
//! Order: that of `gradient.rs` in `src`; then the root. Rounding of bytes made of bytes: correct,
//! even by a root that is off by one unit in the last place. The sums of squares are integers,
//! exact in f32 below 2^24, as long as their root is at most 255. No integer's root is half-way
//! between two bytes; the nearest, that of 255 * 256, is 16 units in the last place away. Taps: the
//! weights of a side and of the centre; in `gradient_flat_cN` and `gradient_floats_cN` times
//! `TAP_SCALE` (`tile/flat.rs`). Limits: those of the files above; the value outside an image of
//! bytes is a byte; copies at the border are left to `keep.rs`, except in `gradient_any`.

use crate::abi::{Pass, Taps};
use crate::border;
use crate::device::*;
use crate::gradient::{angle, smoothed, squares};
use crate::kernels::flat::{self, VALUES, slide_flat};
use crate::kernels::sliding::{Share, Step, slide, slide_planar};
use crate::pixel::{F32, U8};
use crate::tile::flat::{value, words};
use crate::tile::ring::ring_apron;
use crate::tile::view::{Source, Target};

/// Threads of a block of `gradient_any`.
pub const BLOCK: (u32, u32) = (32, 8);

kernel! {
    fn gradient(pass: Pass, anchor_y: i32, rows: i32, weights: Taps<2>) {
        slide::<3, 3, 1, 4, 2, 8, _>(&pass, anchor_y, rows, Magnitude(parameter!(gradient, 3, weights)))
    }

    fn gradient_8bit(pass: Pass, anchor_y: i32, rows: i32, filtered: i32, weights: Taps<2>) {
        directive!(".maxnreg 128");
        let magnitude = Magnitude(parameter!(gradient_8bit, 4, weights));
        slide_planar::<1, 3, 8, 2, _>(&pass, anchor_y, rows, filtered, magnitude)
    }

    fn gradient_16bit(pass: Pass, anchor_y: i32, rows: i32, filtered: i32, weights: Taps<2>) {
        let magnitude = Magnitude(parameter!(gradient_16bit, 4, weights));
        slide_planar::<2, 3, 4, 2, _>(&pass, anchor_y, rows, filtered, magnitude)
    }

    fn gradient_flat_c1(pass: Pass, anchor_y: i32, rows: i32, filtered: i32, weights: Taps<2>) {
        directive!(".maxnreg 96");
        let magnitude = Bytes::<false>(parameter!(gradient_flat_c1, 4, weights));
        slide_flat::<U8, U8, 3, 1, VALUES, { words(U8, 3, 1, VALUES) }, _>(&pass, anchor_y, rows, filtered, magnitude)
    }

    fn gradient_flat_c3(pass: Pass, anchor_y: i32, rows: i32, filtered: i32, weights: Taps<2>) {
        directive!(".maxnreg 96");
        let magnitude = Bytes::<false>(parameter!(gradient_flat_c3, 4, weights));
        slide_flat::<U8, U8, 3, 3, VALUES, { words(U8, 3, 3, VALUES) }, _>(&pass, anchor_y, rows, filtered, magnitude)
    }

    fn gradient_flat_c4(pass: Pass, anchor_y: i32, rows: i32, filtered: i32, weights: Taps<2>) {
        directive!(".maxnreg 96");
        let magnitude = Bytes::<false>(parameter!(gradient_flat_c4, 4, weights));
        slide_flat::<U8, U8, 3, 4, VALUES, { words(U8, 3, 4, VALUES) }, _>(&pass, anchor_y, rows, filtered, magnitude)
    }

    fn gradient_floats_c1(pass: Pass, anchor_y: i32, rows: i32, filtered: i32, weights: Taps<2>) {
        directive!(".maxnreg 96");
        let magnitude = Bytes::<true>(parameter!(gradient_floats_c1, 4, weights));
        slide_flat::<U8, F32, 3, 1, VALUES, { words(U8, 3, 1, VALUES) }, _>(&pass, anchor_y, rows, filtered, magnitude)
    }

    fn gradient_floats_c3(pass: Pass, anchor_y: i32, rows: i32, filtered: i32, weights: Taps<2>) {
        directive!(".maxnreg 96");
        let magnitude = Bytes::<true>(parameter!(gradient_floats_c3, 4, weights));
        slide_flat::<U8, F32, 3, 3, VALUES, { words(U8, 3, 3, VALUES) }, _>(&pass, anchor_y, rows, filtered, magnitude)
    }

    fn gradient_floats_c4(pass: Pass, anchor_y: i32, rows: i32, filtered: i32, weights: Taps<2>) {
        directive!(".maxnreg 96");
        let magnitude = Bytes::<true>(parameter!(gradient_floats_c4, 4, weights));
        slide_flat::<U8, F32, 3, 4, VALUES, { words(U8, 3, 4, VALUES) }, _>(&pass, anchor_y, rows, filtered, magnitude)
    }

    /// The magnitude, or the angle if `is_angle` is not 0.
    fn gradient_any(pass: Pass, side: f32, centre: f32, is_angle: i32) {
        let (source, target) = (Source::new(&pass), Target::new(&pass));
        let x = pass.region.x0 + block_x() * block_width() + thread_x();
        let mut y = pass.region.y0 + block_y() * block_height() + thread_y();
        while x < pass.region.x1 && y < pass.region.y1 {
            if border::copies(pass.border) && leaves(&pass, x, y) {
                target.write_plain(x, y, source.pixel_inside(x, y));
            } else {
                let weights = [side, centre];
                let (mut across, mut along) = ([0.0; 3], [0.0; 3]);
                let mut r = 0;
                while r < 3 {
                    let row = source.row(y + r as i32 - 1);
                    let three = [row.pixel(x - 1), row.pixel(x), row.pixel(x + 1)];
                    across[r] = three[2] - three[0];
                    along[r] = smoothed(three, weights, 0.0, fma);
                    r += 1;
                }
                let (dx, dy) = (smoothed(across, weights, 0.0, fma), along[2] - along[0]);
                let value = if is_angle != 0 { angle(dx, dy, fma) } else { sqrt(squares(dx, dy, 0.0, fma)) };
                target.write(x, y, value);
            }
            y += grid_height() * block_height();
        }
    }
}

/// Whether the 3x3 window at `(x, y)` leaves the image.
#[inline(always)]
fn leaves(pass: &Pass, x: i32, y: i32) -> bool {
    border::leaves(x - 1, 3, pass.width) || border::leaves(y - 1, 3, pass.height)
}

host! {
    use crate::kernels::flat::Flat;
    use crate::kernels::sliding::{Planar, Strip};

    /// The entries for planes of f32, and for interleaved values of 8 and of 16 bits.
    pub const STRIP: &[Strip] = &[Strip {
        entry: gradient.with_taps(),
        planar: Some([
            Planar { entry: gradient_8bit.with_taps(), pixels: 8, rows: 2 },
            Planar { entry: gradient_16bit.with_taps(), pixels: 4, rows: 2 },
        ]),
        taps: 3,
        channels: 1,
        pixels: 4,
        rows: 2,
        stages: 8,
    }];

    /// The entries for interleaved bytes.
    pub const FLAT: &[Flat] = &[
        Flat { entry: gradient_flat_c1.with_taps(), taps: 3, channels: 1, source: U8, result: U8 },
        Flat { entry: gradient_flat_c3.with_taps(), taps: 3, channels: 3, source: U8, result: U8 },
        Flat { entry: gradient_flat_c4.with_taps(), taps: 3, channels: 4, source: U8, result: U8 },
        Flat { entry: gradient_floats_c1.with_taps(), taps: 3, channels: 1, source: U8, result: F32 },
        Flat { entry: gradient_floats_c3.with_taps(), taps: 3, channels: 3, source: U8, result: F32 },
        Flat { entry: gradient_floats_c4.with_taps(), taps: 3, channels: 4, source: U8, result: F32 },
    ];
}

/// A lane's differences and smoothed pixels of the last two rows, for N pixels, the older row
/// first.
struct Kept<const N: usize> {
    across: [[f32; N]; 2],
    along: [[f32; N]; 2],
}

impl<const N: usize> Kept<N> {
    const NONE: Self = Self { across: [[0.0; N]; 2], along: [[0.0; N]; 2] };

    /// Takes the next row's difference and smoothed pixel at index `i`; returns the sum of the
    /// derivatives' squares.
    #[inline(always)]
    fn take(&mut self, i: usize, (across, along): (f32, f32), weights: [f32; 2]) -> f32 {
        let dx = smoothed([self.across[0][i], self.across[1][i], across], weights, 0.0, fma);
        let dy = along - self.along[0][i];
        self.across[0][i] = self.across[1][i];
        self.across[1][i] = across;
        self.along[0][i] = self.along[1][i];
        self.along[1][i] = along;
        squares(dx, dy, 0.0, fma)
    }
}

/// The magnitude, from rows of f32.
struct Magnitude(Parameter);

impl<const PX: usize, const R: usize> Step<3, PX, R> for Magnitude {
    type State = Kept<PX>;
    const START: Self::State = Kept::NONE;

    #[inline(always)]
    unsafe fn step(&self, rows: [Share; R], state: &mut Self::State) -> [[f32; PX]; R] {
        let skew = ring_apron(3) as usize - 1;
        // SAFETY: as the caller promised.
        let weights = unsafe { [self.0.tap(0), self.0.tap(1)] };
        let mut complete = [[0.0; PX]; R];
        let mut r = 0;
        while r < R {
            let mut i = 0;
            while i < PX {
                let three = [rows[r][skew + i], rows[r][skew + i + 1], rows[r][skew + i + 2]];
                let row = (three[2] - three[0], smoothed(three, weights, 0.0, fma));
                complete[r][i] = sqrt(state.take(i, row, weights));
                i += 1;
            }
            r += 1;
        }
        complete
    }
}

/// The magnitude, from rows of interleaved bytes; its root is correctly rounded if `F`.
struct Bytes<const F: bool>(Parameter);

impl<const F: bool, const C: usize, const V: usize, const W: usize> flat::Step<U8, 3, C, V, W>
    for Bytes<F>
{
    type State = Kept<V>;
    const START: Self::State = Kept::NONE;

    #[inline(always)]
    unsafe fn step(&self, row: &[u32; W], state: &mut Self::State, bias: f32) -> [f32; V] {
        // SAFETY: as the caller promised.
        let weights = unsafe { [self.0.tap(0), self.0.tap(1)] };
        let mut complete = [0.0; V];
        let mut i = 0;
        while i < V {
            let three = [
                value::<U8, 3, C, W>(row, i),
                value::<U8, 3, C, W>(row, C + i),
                value::<U8, 3, C, W>(row, 2 * C + i),
            ];
            let next = (three[2] - three[0], smoothed(three, weights, 0.0, fma));
            let squares = state.take(i, next, weights);
            complete[i] = if F { sqrt(squares) } else { sqrt_near(squares) + bias };
            i += 1;
        }
        complete
    }
}
