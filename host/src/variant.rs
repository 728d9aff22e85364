//! The variants: names, families and summaries.

use crate::{Error, Result};

/// An order of summation. Variants of a family add in the same order; on the CPU all run the
/// same code.
///
/// Unless a plan is told a variant, the filter alone decides the family, on every device and for
/// every size of picture:
///
/// | filter | family |
/// | --- | --- |
/// | a row or a column of taps, or up to 9 taps | direct |
/// | others that separate | separable |
/// | sums of products (see [`Family::Separable`]) with up to 66 taps in a row and a column together | separable |
/// | others of up to 17x17 taps | direct |
/// | others | Fourier |
///
/// Taps of 0 count. Filters whose taps add up to too little or too much for spectra (`sum |tap|`
/// below 1e-20 or above 1e30) keep to the other two families. Bytes made of bytes have the same
/// bits in every family, so there the fastest is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Every tap for every pixel. All its variants, on every device, give the same bits.
    Direct,
    /// A pass along the rows, then one along the columns; needs a filter that separates, or that is
    /// the sum of two that do, or of one and the pixel times a factor: unsharp masks, Laplacians of
    /// Gaussians, differences of Gaussians, and taps that were found to be so. There each term has
    /// its own row pass; a sum goes down the columns of both at a time, for each tap row the first
    /// term's product and then the second's, and ends with the pixel times its factor.
    Separable,
    /// The product of spectra, tile by tile. Its error is relative to the greatest pixel and the
    /// sum of all taps, not to each pixel's own sum: see [`Variant::Fourier`].
    Fourier,
}

/// One way of computing a filter on a GPU. On the CPU, a variant runs as its family does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Variant {
    /// Taps and pixels from global memory.
    DirectNaive,
    /// Taps from the constant bank.
    DirectConstant,
    /// Pixels from a tile in shared memory.
    DirectShared,
    /// The window's size known to the compiler. A window of one row or one column is a pass of the
    /// separable kernels, with the same bits.
    DirectUnrolled,
    /// The window slides down the image in registers.
    DirectSliding,
    /// Two passes through shared memory. Bytes of which f32 would leave many uncertain are made by
    /// two passes in whole numbers.
    Separable,
    /// Both passes in one kernel that slides down the image.
    SeparableFused,
    /// Tiles transformed, multiplied with the taps' spectrum and transformed back; for large
    /// windows that do not separate.
    ///
    /// A result is off by at most 8 units in the last place of `sum |tap| * max |pixel|`, the
    /// greatest pixel of the tile (less than 256 pixels away, or 2048 for the largest windows)
    /// counted; less than 2 were seen. Where few taps outweigh all others it may be more: 5.5 of
    /// these units, and 18 of `sqrt(sum tap^2) * max |pixel|` for tiles of 128 pixels each way, in
    /// proportion for others. NaN and infinities change the results under whose windows they lie,
    /// and no others. So do finite pixels beyond 1e30: on a GPU the results under whose windows
    /// they lie are summed tap by tap, on the CPU all of their tile. Devices differ from each other
    /// within that error.
    Fourier,
    /// Bytes made of bytes on the tensor cores: taps as whole numbers of up to three bytes, whose
    /// sums are exact. Results whose byte the rounding of these taps could change are computed
    /// exactly.
    Matrix,
    /// The same for a filter that separates, or that is the sum of two that do: a pass along the
    /// rows and one along the columns, in one kernel.
    SeparableMatrix,
    /// Means of bytes, which become bytes: pixels under the window are added up as whole numbers,
    /// row by row and column by column, those that enter less those that leave, so that the time
    /// hardly depends on the window's size. The quotient is exact.
    RunningSums,
    /// Bytes made of bytes by a filter that separates: its rows and then its columns are products
    /// of 1-D spectra in f32, so that the time hardly depends on the number of taps. Uncertain
    /// results are computed exactly.
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
        summary: "taps from the constant bank, at most 961 of them",
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
        summary: "as direct-shared, window size known to the compiler: 3 5 7 9 11 13 15 17 21 31 51, else direct-shared",
    },
    Row {
        variant: Variant::DirectSliding,
        name: "direct-sliding",
        family: Family::Direct,
        summary: "a window that slides down the image in registers: 3x3, 5x5 to 17x17, anchor column in the middle",
    },
    Row {
        variant: Variant::Separable,
        name: "separable",
        family: Family::Separable,
        summary: "a row pass and a column pass through shared memory; any number of taps",
    },
    Row {
        variant: Variant::SeparableFused,
        name: "separable-fused",
        family: Family::Separable,
        summary: "both passes in one kernel that slides down the image: 3, 5 to 65 taps each way, anchor column in the middle",
    },
    Row {
        variant: Variant::Fourier,
        name: "fourier",
        family: Family::Fourier,
        summary: "tiles multiplied as spectra: windows of any size",
    },
    Row {
        variant: Variant::Matrix,
        name: "matrix",
        family: Family::Direct,
        summary: "bytes to bytes in whole numbers, on the tensor cores: 1 to 4 channels, windows of up to 65536 taps that fit a tile",
    },
    Row {
        variant: Variant::SeparableMatrix,
        name: "separable-matrix",
        family: Family::Separable,
        summary: "bytes to bytes in whole numbers, on the tensor cores, both passes in one kernel, of one product or two: 1 to 4 channels, up to 65536 taps, 1024 each way",
    },
    Row {
        variant: Variant::RunningSums,
        name: "running-sums",
        family: Family::Separable,
        summary: "bytes to bytes, means alone: pixels that enter the window are added, those that leave are taken away; 1 to 4 channels",
    },
    Row {
        variant: Variant::SpectraPasses,
        name: "spectra-passes",
        family: Family::Separable,
        summary: "bytes to bytes, a row and a column of any length: each pass a product of 1-D spectra",
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

    /// The variant's family: the order in which it adds.
    pub fn family(self) -> Family {
        self.row().family
    }

    /// Whether it makes bytes of bytes and nothing else. They are the same as every variant's.
    pub fn takes_bytes_alone(self) -> bool {
        matches!(
            self,
            Self::Matrix | Self::SeparableMatrix | Self::RunningSums | Self::SpectraPasses
        )
    }

    /// One line on how it works.
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
