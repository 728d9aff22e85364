//! Variants: names, families and summaries.

use crate::{Error, Result};

/// An order of summation. Variants of a family add in the same order; on the CPU they all run the
/// same code.
///
/// Unless a plan requests a variant, the filter alone decides the family, on every device and for
/// every image size:
///
/// | filter | family |
/// | --- | --- |
/// | a row or a column of taps, or up to 9 taps | direct |
/// | other separable filters | separable |
/// | sums of products (see [`Family::Separable`]) with up to 66 taps in a row and a column together | separable |
/// | other filters of up to 17x17 taps | direct |
/// | all others | Fourier |
///
/// [`Accuracy`](crate::Accuracy) may request another family: see its table. Taps of 0 count. A
/// filter whose `sum |tap|` is below 1e-20 or above 1e30 exceeds the range of f32 spectra, and gets
/// the separable or the direct family. For bytes in and bytes out, results have the same bits in
/// every family, so the fastest family runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Every tap for every pixel. All its variants, on every device, give the same bits.
    Direct,
    /// A pass along the rows, then a pass along the columns. The filter must be separable, a sum of
    /// two separable filters, or a separable filter plus the pixel times a factor. Examples of such
    /// sums are unsharp masks, Laplacians of Gaussians, differences of Gaussians, and taps in which
    /// a sum was found.
    ///
    /// In a sum, each term has its own row pass. One column pass adds both terms: for each tap row,
    /// the first term's product, then the second's. The pixel times its factor is added last.
    Separable,
    /// Products of spectra, tile by tile. The error is relative to the greatest pixel and to the
    /// sum of all taps, not to each pixel's own sum: see [`Variant::Fourier`].
    Fourier,
    /// A pass along the rows and a pass along the columns, each by products of 1-D spectra on a
    /// GPU, and as in [`Family::Separable`] on a CPU. For the same filters. The error is relative
    /// to the greatest pixel, too: see [`Variant::SpectraPasses`].
    SpectraPasses,
}

/// An algorithm for a filter on a GPU. On the CPU, all variants of a family run the same code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Variant {
    /// Taps and pixels from global memory.
    DirectNaive,
    /// Taps from the constant bank.
    DirectConstant,
    /// Pixels from a tile in shared memory.
    DirectShared,
    /// The window's size is known at compile time. A window of one row or one column runs as a pass
    /// of the separable kernels, with the same bits.
    DirectUnrolled,
    /// The window slides down the image, with its pixels in registers.
    DirectSliding,
    /// Two passes through shared memory. For bytes in and bytes out, two integer passes run instead
    /// where f32 would leave many results uncertain.
    Separable,
    /// Both passes over a tile by one block, through shared memory. For small pictures.
    SeparableTile,
    /// Both passes in one kernel that slides down the image.
    SeparableFused,
    /// Each tile is transformed, multiplied by the taps' spectrum and transformed back. For large
    /// windows that are not separable.
    ///
    /// The error of a result is at most 8 units in the last place of `sum |tap| * max |pixel|`; a
    /// search for bad pixels found at most 4.3. The maximum is over the tile: pixels less than 256
    /// away, or 2048 for the largest windows.
    ///
    /// Where few taps outweigh all others, the bound is greater: 5.5 of these units plus 18 units
    /// in the last place of `sqrt(sum tap^2) * max |pixel|`. The 18 are for tiles of 128 by 128
    /// pixels and scale with the tile's side. Devices differ from each other within these bounds.
    ///
    /// NaN and infinities change only the results whose windows contain them. The same holds for
    /// finite pixels beyond 1e30: a GPU sums those results tap by tap, a CPU all results of the
    /// tile.
    Fourier,
    /// Bytes in and bytes out, on the tensor cores. Taps are integers of up to three bytes, so sums
    /// are exact. Results whose byte the rounding of the taps could change are computed exactly.
    Matrix,
    /// As [`Variant::Matrix`], for a separable filter or a sum of two: a pass along the rows and a
    /// pass along the columns, in one kernel.
    SeparableMatrix,
    /// Means of bytes, as bytes. Integer running sums along rows and columns add the pixels that
    /// enter the window and subtract the pixels that leave it. So the time hardly depends on the
    /// window's size. The quotient is exact.
    RunningSums,
    /// For a separable filter or a sum of two. The row pass and the column pass are products of 1-D
    /// spectra in f32, so the time hardly depends on the number of taps. Bytes made of bytes are
    /// exact: uncertain results are computed again.
    ///
    /// The error of other results is at most `25 + 25 (r + c)` units in the last place of `sum
    /// |tap| * max |pixel|`, where r is the ratio of `sqrt(sum t^2)` to `sum |t|` over the row of
    /// taps, and c over the column: 31 units for a Gaussian of sigma 20. Each further part of a
    /// window longer than 2000 taps adds one. The maximum is over the tiles with the result: pixels
    /// up to 4096 away in each direction, or the window's length. NaN, infinities and overflows
    /// change only the results whose windows contain them. On a CPU the passes of
    /// [`Variant::Separable`] run instead, so bits differ between devices.
    SpectraPasses,
}

/// A variant's description.
struct Row {
    variant: Variant,
    name: &'static str,
    family: Family,
    summary: &'static str,
}

const TABLE: &[Row] = &[
    Row {
        variant: Variant::DirectNaive,
        name: "direct-naive",
        family: Family::Direct,
        summary: "taps and pixels from global memory",
    },
    Row {
        variant: Variant::DirectConstant,
        name: "direct-constant",
        family: Family::Direct,
        summary: "taps from constant memory, at most 961",
    },
    Row {
        variant: Variant::DirectShared,
        name: "direct-shared",
        family: Family::Direct,
        summary: "pixels from a tile with its apron in shared memory",
    },
    Row {
        variant: Variant::DirectUnrolled,
        name: "direct-unrolled",
        family: Family::Direct,
        summary: "direct-shared, with the size of square windows known to the compiler: 3 5 7 9 11 13 15 17 21 31 51; other sizes run direct-shared",
    },
    Row {
        variant: Variant::DirectSliding,
        name: "direct-sliding",
        family: Family::Direct,
        summary: "a window that slides down the image, with its pixels in registers: 3x3, 5x5 to 17x17, anchor in the middle column",
    },
    Row {
        variant: Variant::Separable,
        name: "separable",
        family: Family::Separable,
        summary: "a row pass and a column pass through shared memory; any number of taps",
    },
    Row {
        variant: Variant::SeparableTile,
        name: "separable-tile",
        family: Family::Separable,
        summary: "both passes over a tile by one block, for small pictures: 5x5 to 17x17 taps, odd",
    },
    Row {
        variant: Variant::SeparableFused,
        name: "separable-fused",
        family: Family::Separable,
        summary: "both passes in one kernel that slides down the image: 3, 5 to 65 taps in each direction (to 33 for 8 and 16 bits), anchor in the middle column",
    },
    Row {
        variant: Variant::Fourier,
        name: "fourier",
        family: Family::Fourier,
        summary: "Fourier transforms of tiles, multiplied by that of the taps: windows of any size",
    },
    Row {
        variant: Variant::Matrix,
        name: "matrix",
        family: Family::Direct,
        summary: "u8 to u8, integer sums on the tensor cores: 1 to 4 channels, up to 65536 taps whose tile fits in shared memory",
    },
    Row {
        variant: Variant::SeparableMatrix,
        name: "separable-matrix",
        family: Family::Separable,
        summary: "u8 to u8, integer sums on the tensor cores: separable filters and sums of two, both passes in one kernel; 1 to 4 channels, up to 65536 taps, 1024 in each direction",
    },
    Row {
        variant: Variant::RunningSums,
        name: "running-sums",
        family: Family::Separable,
        summary: "u8 to u8, means only: adds the pixels that enter the window and subtracts those that leave; 1 to 4 channels",
    },
    Row {
        variant: Variant::SpectraPasses,
        name: "spectra-passes",
        family: Family::SpectraPasses,
        summary: "separable filters and sums of two, of any length: each pass multiplies 1-D Fourier transforms",
    },
];

impl Variant {
    /// Every variant, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.variant)
    }

    /// The name used on the command line and in tables.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The variant's family, which gives the order of summation.
    pub fn family(self) -> Family {
        self.row().family
    }

    /// Whether the variant supports only bytes in and bytes out. The bytes are the same as every
    /// variant's.
    pub fn takes_only_bytes(self) -> bool {
        matches!(self, Self::Matrix | Self::SeparableMatrix | Self::RunningSums)
    }

    /// A one-line summary of the algorithm.
    pub fn summary(self) -> &'static str {
        self.row().summary
    }

    fn row(self) -> &'static Row {
        TABLE
            .iter()
            .find(|row| row.variant == self)
            .expect("every variant has a row: a test holds the table to it")
    }
}

impl std::fmt::Display for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Variant {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::all().find(|variant| variant.name() == text).ok_or_else(|| Error::UnknownVariant {
            name: text.to_owned(),
            known: TABLE.iter().map(|row| row.name).collect::<Vec<_>>().join(", "),
        })
    }
}
