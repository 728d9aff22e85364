//! A row and a column of taps as products of 1-D spectra in f32: a kernel for the rows, then one
//! for the columns. For wide windows: the time hardly depends on the number of taps.
//!
//! Tiling: a line of N = 256 R numbers (R is 4, 8 or 16) gives `N + 1 - taps` results that
//! wrap-around does not reach (overlap-save). Tile t begins at result `t (N + 1 - taps)`. Two image
//! lines are the real and the imaginary parts of one complex line: taps are real, so the two mix by
//! rounding errors alone. The column pass pairs columns 2k and 2k + 1. The row pass over bytes
//! pairs rows 2k and 2k + 1; over other types it pairs tiles 2k and 2k + 1 of one row, because bits
//! must not depend on rows that a band lacks. So tiles and partners depend on image coordinates
//! alone, not on the region or band. Longer windows have parts: registers add the spectra of their
//! products before one inverse transform. The columns of two terms are added in the same manner.
//!
//! Threads: 16 R threads share a line (`line.rs`). A block of the row pass takes 16 / R pairs; a
//! block of the column pass takes J = 32 / R neighbouring pairs of columns, so that a warp has all
//! threads of one k1. Order of sums: fixed by the transforms. Error: see
//! `host/src/kernels/lines/fit.rs`. Over bytes the row pass stores a mark for each tile of a pair,
//! a bound of its error in a sum. The column pass takes the maximum over its rows.
//!
//! NaN, infinities and overflows spread over a tile's lines. So a thread with a sum that is not
//! finite adds its results tap by tap instead. Limits: one channel of a plane at a time; copies at
//! the border are left to `keep.rs`; the intermediate image is f32, with rows aligned to 8 bytes.

use super::columns::columns;
use super::line::FACTORS;
pub use super::line::{Lines, Marks};
use super::rows::rows;
use crate::abi::{Pass, Plane};
use crate::device::*;
use crate::tile::view::{BYTES, STORED};

kernel! {
    /// The row pass for windows of one part, to a plane of f32. `numbers` has factors and spectra,
    /// as [`Lines`] says.
    fn spectra_1024_rows(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 8, 1");
        directive!(".minnctapersm 4");
        rows::<4, BYTES, false>(&pass, &lines, numbers)
    }

    /// As `spectra_1024_rows`, with lines of 2048 numbers.
    fn spectra_2048_rows(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 8, 1");
        directive!(".minnctapersm 4");
        rows::<8, BYTES, false>(&pass, &lines, numbers)
    }

    /// As `spectra_1024_rows`, with lines of 4096 numbers.
    fn spectra_4096_rows(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 8, 1");
        directive!(".minnctapersm 4");
        rows::<16, BYTES, false>(&pass, &lines, numbers)
    }

    /// As `spectra_4096_rows`, for windows in parts.
    fn spectra_rows_in_parts(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 8, 1");
        directive!(".minnctapersm 2");
        rows::<16, BYTES, true>(&pass, &lines, numbers)
    }

    /// As `spectra_1024_rows`, for any type of pixels.
    fn spectra_1024_rows_stored(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 8, 1");
        directive!(".minnctapersm 4");
        rows::<4, STORED, false>(&pass, &lines, numbers)
    }

    /// As `spectra_2048_rows`, for any type of pixels.
    fn spectra_2048_rows_stored(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 8, 1");
        directive!(".minnctapersm 4");
        rows::<8, STORED, false>(&pass, &lines, numbers)
    }

    /// As `spectra_4096_rows`, for any type of pixels.
    fn spectra_4096_rows_stored(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 8, 1");
        directive!(".minnctapersm 4");
        rows::<16, STORED, false>(&pass, &lines, numbers)
    }

    /// As `spectra_rows_in_parts`, for any type of pixels.
    fn spectra_rows_in_parts_stored(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 8, 1");
        directive!(".minnctapersm 2");
        rows::<16, STORED, true>(&pass, &lines, numbers)
    }

    /// The column pass for windows of one part, from the row pass's plane to bytes.
    fn spectra_1024_columns(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 16, 1");
        directive!(".minnctapersm 2");
        columns::<4, 8, BYTES, false>(&pass, &lines, numbers, &Sum::of_one(&pass))
    }

    /// As `spectra_1024_columns`, with lines of 2048 numbers.
    fn spectra_2048_columns(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 16, 1");
        directive!(".minnctapersm 2");
        columns::<8, 4, BYTES, false>(&pass, &lines, numbers, &Sum::of_one(&pass))
    }

    /// As `spectra_2048_columns`, for windows in parts, and for sums of products.
    fn spectra_columns_in_parts(pass: Pass, lines: Lines, numbers: *const f32, sum: Sum) {
        directive!(".maxntid 32, 16, 1");
        columns::<8, 4, BYTES, true>(&pass, &lines, numbers, &sum)
    }

    /// As `spectra_1024_columns`, for any type of results.
    fn spectra_1024_columns_stored(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 16, 1");
        directive!(".minnctapersm 2");
        columns::<4, 8, STORED, false>(&pass, &lines, numbers, &Sum::of_one(&pass))
    }

    /// As `spectra_2048_columns`, for any type of results.
    fn spectra_2048_columns_stored(pass: Pass, lines: Lines, numbers: *const f32) {
        directive!(".maxntid 32, 16, 1");
        directive!(".minnctapersm 2");
        columns::<8, 4, STORED, false>(&pass, &lines, numbers, &Sum::of_one(&pass))
    }

    /// As `spectra_columns_in_parts`, for any type of pixels and results.
    fn spectra_columns_in_parts_stored(pass: Pass, lines: Lines, numbers: *const f32, sum: Sum) {
        directive!(".maxntid 32, 16, 1");
        columns::<8, 4, STORED, true>(&pass, &lines, numbers, &sum)
    }
}

/// The frequency of each factor in a table.
pub const FACTOR_OF: [usize; FACTORS] = [1, 2, 3, 4, 8, 12];

/// Arguments of the column pass for sums of products.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    /// The number of terms, 1 or 2. The spectra of the second term's parts follow those of the
    /// first.
    pub terms: i32,
    /// The value of rows outside the image in the second term's plane.
    pub outside: f32,
    /// Bytes from the first term's plane to the second term's.
    pub apart: i64,
    /// Bytes from the first term's marks to the second term's.
    pub marks_apart: i64,
    /// Multiplier of the result's own pixel, which is added to the sum; 0 for none.
    pub point: f32,
    /// The pixels for `point`.
    pub pixels: Plane,
}

impl Sum {
    /// A single term, without a point.
    #[inline(always)]
    pub const fn of_one(pass: &Pass) -> Self {
        Self { terms: 1, outside: 0.0, apart: 0, marks_apart: 0, point: 0.0, pixels: pass.src }
    }
}

host! {
    /// An entry: it takes the pass, its lines, factors and spectra.
    #[derive(Clone, Copy, Debug)]
    pub enum LineEntry {
        /// No further arguments.
        Whole(crate::entry::Entry<(Pass, Lines, *const f32)>),
        /// For columns of windows in parts, or of a sum of products.
        Summed(crate::entry::Entry<(Pass, Lines, *const f32, Sum)>),
    }

    impl LineEntry {
        /// The entry's name in PTX.
        pub const fn name(&self) -> &'static str {
            match self {
                Self::Whole(entry) => entry.name(),
                Self::Summed(entry) => entry.name(),
            }
        }
    }

    /// A kernel for rows or columns.
    #[derive(Clone, Copy, Debug)]
    pub struct LineKernel {
        /// The entries to launch: over bytes, and over any types.
        entries: [LineEntry; 2],
        /// Numbers of a line.
        pub size: usize,
        /// Whether the kernel takes windows in several parts.
        pub in_parts: bool,
        /// Threads of a block.
        pub block: (u32, u32),
        /// Pairs of image lines that a block takes.
        pub pairs: u32,
        /// Bytes of shared memory.
        pub shared: u32,
    }

    impl LineKernel {
        const fn of<const R: usize, const J: i32>(
            entries: [LineEntry; 2],
            in_parts: bool,
        ) -> Self {
            let groups = super::line::Line::<R, J>::GROUPS;
            let (size, pairs) = (256 * R, (J * groups) as u32);
            let (block, shared) = ((32, R as u32 * pairs / 2), 8 * size as u32 * pairs);
            Self { entries, size, in_parts, block, pairs, shared }
        }

        /// The entry that makes bytes of bytes, or the one for any types.
        pub const fn entry(&self, makes_bytes: bool) -> LineEntry {
            self.entries[if makes_bytes { 0 } else { 1 }]
        }

        /// The names of both entries.
        pub fn names(&self) -> [&'static str; 2] {
            self.entries.map(|entry| entry.name())
        }

        /// The frequency of number `n` of thread `t`.
        pub const fn frequency(&self, n: usize, t: usize) -> usize {
            let r = self.size / 256;
            let (k1, k2, k3) = (t / r, t % r + r * (n / r), n % r);
            k1 + 16 * (k2 + 16 * k3)
        }
    }

    const fn whole(
        bytes: crate::entry::Entry<(Pass, Lines, *const f32)>,
        stored: crate::entry::Entry<(Pass, Lines, *const f32)>,
    ) -> [LineEntry; 2] {
        [LineEntry::Whole(bytes), LineEntry::Whole(stored)]
    }

    /// The kernels for rows.
    pub const ROWS: [LineKernel; 4] = [
        LineKernel::of::<4, 1>(whole(spectra_1024_rows, spectra_1024_rows_stored), false),
        LineKernel::of::<8, 1>(whole(spectra_2048_rows, spectra_2048_rows_stored), false),
        LineKernel::of::<16, 1>(whole(spectra_4096_rows, spectra_4096_rows_stored), false),
        LineKernel::of::<16, 1>(whole(spectra_rows_in_parts, spectra_rows_in_parts_stored), true),
    ];

    /// The kernels for columns.
    pub const COLUMNS: [LineKernel; 3] = [
        LineKernel::of::<4, 8>(whole(spectra_1024_columns, spectra_1024_columns_stored), false),
        LineKernel::of::<8, 4>(whole(spectra_2048_columns, spectra_2048_columns_stored), false),
        LineKernel::of::<8, 4>(
            [
                LineEntry::Summed(spectra_columns_in_parts),
                LineEntry::Summed(spectra_columns_in_parts_stored),
            ],
            true,
        ),
    ];
}
