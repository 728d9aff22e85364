//! The Fourier family: correlation as a product of spectra. This file has the entries.
//!
//! - `layout.rs`: the layout of tiles, and the parts of a window.
//! - `tiles.rs`, `bytes.rs`: an image tile by tile in shared memory; its loads and stores of bytes.
//! - `large.rs`: larger tiles, in three kernels, for larger windows.
//! - `fft.rs`: transforms of the values in a lane's registers.
//! - `holes.rs`: results whose windows have pixels that spectra cannot represent.
//! - `lines.rs`, `line.rs`: rows and columns one by one, for products.
//!
//! Pixels and taps are real, so a complex number has room for two pixels:
//! - A pair of tiles: the real part and the imaginary part, which never mix. Of the SIZE columns of
//!   each, `cols - 1` give no results.
//! - A folded tile has `2 SIZE` columns: column `n` is the real part, column `n + SIZE` the
//!   imaginary part of number `n`. Times the twist `exp(i pi n / (2 SIZE))`, a line's transform is
//!   its spectrum at every second odd frequency. The product of two is a right-angle convolution,
//!   which changes its sign where it wraps around (Crandall and Fagin, Discrete weighted transforms
//!   and large-integer arithmetic, 1994). Of all columns `cols - 1` give no results.
//!
//! Bytes made of bytes are folded unless the window has parts: rounding is correct either way. For
//! all other types the method decides the bits, and tiles are pairs.

mod bytes;
mod columns;
mod fft;
pub mod holes;
mod large;
mod layout;
mod line;
pub mod lines;
mod rows;
mod tiles;

use self::holes::Holes;
use self::layout::{BESIDE, FOLDED, STACKED};
pub use self::layout::{Large, Layout, Pairs, Parts};
use crate::abi::Pass;
use crate::device::*;
pub use crate::pixel::MIDDLE;
use crate::tile::view::{BYTES, PLANES, STORED};

kernel! {
    /// Correlates with a window whose parts' spectra are given.
    /// `spectra` is the table of twiddle factors, then the spectra.
    fn fourier_128(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 16, 1");
        tiles::correlate::<16, PLANES>(&pass, &parts, spectra)
    }

    /// As `fourier_128`, for devices with less shared memory.
    fn fourier_64(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 8, 1");
        tiles::correlate::<8, PLANES>(&pass, &parts, spectra)
    }

    /// As `fourier_128`, for pixels or results that are not planes of f32.
    fn fourier_stored_128(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 16, 1");
        tiles::correlate::<16, STORED>(&pass, &parts, spectra)
    }

    /// As `fourier_64`, for pixels or results that are not planes of f32.
    fn fourier_stored_64(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 8, 1");
        tiles::correlate::<8, STORED>(&pass, &parts, spectra)
    }

    /// As `fourier_128`, for bytes made of bytes, and windows of one part.
    fn fourier_bytes_128(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 16, 1");
        tiles::correlate::<16, BYTES>(&pass, &parts, spectra)
    }

    /// As `fourier_64`, for bytes made of bytes, and windows of one part.
    fn fourier_bytes_64(pass: Pass, parts: Parts, spectra: *const f32) {
        directive!(".maxntid 32, 8, 1");
        tiles::correlate::<8, BYTES>(&pass, &parts, spectra)
    }

    /// Transforms the rows of pairs of large tiles, from planes of f32. `spectra` is as for
    /// `fourier_128`.
    fn fourier_large_rows(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        directive!(".minnctapersm 3");
        large::rows::<PLANES, BESIDE>(&pass, &parts, &pairs, spectra)
    }

    /// As `fourier_large_rows`, from pixels of any type.
    fn fourier_large_rows_stored(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        directive!(".minnctapersm 3");
        large::rows::<STORED, BESIDE>(&pass, &parts, &pairs, spectra)
    }

    /// As `fourier_large_rows`, for bytes made of bytes and windows of one part: tiles are folded.
    fn fourier_large_rows_bytes(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        directive!(".minnctapersm 3");
        large::rows::<BYTES, FOLDED>(&pass, &parts, &pairs, spectra)
    }

    /// As `fourier_large_rows`, for bytes made of bytes: tiles are stacked.
    fn fourier_large_rows_stacked(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        directive!(".minnctapersm 3");
        large::rows::<BYTES, STACKED>(&pass, &parts, &pairs, spectra)
    }

    /// Transforms the columns of large tiles, multiplies with the taps' spectrum and transforms
    /// back.
    fn fourier_large_columns(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 8, 1");
        large::columns(&pass, &parts, &pairs, spectra)
    }

    /// Transforms the rows of large tiles back, to results in planes of f32.
    fn fourier_large_results(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        large::results::<PLANES, BESIDE>(&pass, &parts, &pairs, spectra)
    }

    /// As `fourier_large_results`, to results of any type.
    fn fourier_large_results_stored(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        large::results::<STORED, BESIDE>(&pass, &parts, &pairs, spectra)
    }

    /// As `fourier_large_results`, to bytes, of stacked tiles.
    fn fourier_large_results_stacked(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        large::results::<BYTES, STACKED>(&pass, &parts, &pairs, spectra)
    }

    /// As `fourier_large_results`, to bytes, of folded tiles.
    fn fourier_large_results_bytes(pass: Pass, parts: Parts, pairs: Pairs, spectra: *const f32) {
        directive!(".maxntid 32, 4, 1");
        large::results::<BYTES, FOLDED>(&pass, &parts, &pairs, spectra)
    }

    /// Recomputes results whose windows have pixels that are not finite or too large for spectra.
    /// `taps` are the window's, row by row.
    fn fourier_holes(pass: Pass, holes: Holes, taps: *const f32) {
        directive!(".maxntid 32, 8, 1");
        holes::mend(&pass, &holes, taps)
    }
}

host! {
    /// A kernel of the Fourier family.
    #[derive(Clone, Copy, Debug)]
    pub struct Tiled {
        /// The entry: the pass, the window's parts, twiddle factors and spectra.
        pub entry: crate::entry::Entry<(Pass, Parts, *const f32)>,
        /// The entry for pixels or results that are not planes of f32; also right for planes, but
        /// slower.
        pub stored: crate::entry::Entry<(Pass, Parts, *const f32)>,
        /// The entry for bytes made of bytes and windows of one part: its tiles are folded.
        pub bytes: crate::entry::Entry<(Pass, Parts, *const f32)>,
        /// Pixels along each side of its tile.
        pub size: i32,
        /// Threads of a block.
        pub block: (u32, u32),
        /// Bytes of shared memory.
        pub shared: u32,
    }

    /// The entries of the Fourier family, the largest tile first.
    pub const ENTRIES: &[Tiled] = &[
        Tiled { entry: fourier_128, stored: fourier_stored_128, bytes: fourier_bytes_128, size: Layout::<16>::SIZE, block: (32, 16), shared: Layout::<16>::SHARED },
        Tiled { entry: fourier_64, stored: fourier_stored_64, bytes: fourier_bytes_64, size: Layout::<8>::SIZE, block: (32, 8), shared: Layout::<8>::SHARED },
    ];

    impl Tiled {
        /// The position of frequency (`kx`, `ky`) of the tile's spectrum in the buffer, in complex
        /// numbers after the tables.
        pub const fn place(&self, kx: usize, ky: usize) -> usize {
            8 * self.size as usize * (ky / 8) + 32 * (kx / 4) + kx % 4 + 4 * (ky % 8)
        }
    }
}
