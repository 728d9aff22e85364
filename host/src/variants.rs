//! The table of kernels: what each variant is called, which entries it needs, and what it accepts.

use gpu_kernels::abi;

use crate::choice::{Place, Problem};
use crate::{Error, Result, spectrum, tuning};

/// Kernels that compute the same thing in the same order. On the CPU all variants of a family are
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Every tap for every pixel. All its variants, on every device, give the same bits.
    Direct,
    /// A pass along the rows, then one along the columns; needs a filter that separates.
    Separable,
    /// The product of spectra, tile by tile. Its error is relative to the greatest pixel and the sum of all taps, not to
    /// each pixel's own sum: see [`Variant::Fourier`].
    Fourier,
}

/// One way of computing a filter. On the CPU, a variant stands for its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Variant {
    /// Taps and pixels from global memory.
    DirectNaive,
    /// Taps from the constant bank.
    DirectConstant,
    /// Pixels from a tile in shared memory.
    DirectShared,
    /// The window's size known to the compiler.
    DirectUnrolled,
    /// The window slides down the image in registers.
    DirectSliding,
    /// Two passes through shared memory.
    Separable,
    /// Both passes in one kernel that slides down the image.
    SeparableFused,
    /// Tiles transformed, multiplied with the taps' spectrum and transformed back; for large windows that do not separate.
    ///
    /// A result is off by at most 8 units in the last place of `sum |tap| * max |pixel|`, the greatest pixel of the tile
    /// (less than 256 pixels away) counted; less than 2 were seen. A tile with a pixel that is not finite, or is beyond 1e30,
    /// is computed tap by tap. Devices differ from each other within that error.
    Fourier,
}

/// One row of the table.
struct Row {
    variant: Variant,
    name: &'static str,
    family: Family,
    summary: &'static str,
    /// Every entry the variant may launch.
    entries: &'static [&'static [(i32, &'static str)]],
    accepts: Accepts,
}

const TABLE: &[Row] = &[
    Row {
        variant: Variant::DirectNaive,
        name: "direct-naive",
        family: Family::Direct,
        summary: "taps and pixels from global memory",
        entries: &[&[(0, "direct_naive")]],
        accepts: |_| Ok(()),
    },
    Row {
        variant: Variant::DirectConstant,
        name: "direct-constant",
        family: Family::Direct,
        summary: "taps from the constant bank, at most 961 of them",
        entries: &[&[(0, "direct_constant")]],
        accepts: |problem| {
            let taps = problem.cols * problem.rows;
            if taps <= abi::MAX_CONSTANT_TAPS {
                Ok(())
            } else {
                Err(format!("{taps} taps, the constant bank takes {}", abi::MAX_CONSTANT_TAPS))
            }
        },
    },
    Row {
        variant: Variant::DirectShared,
        name: "direct-shared",
        family: Family::Direct,
        summary: "pixels from a tile with its apron in shared memory",
        entries: &[&[(0, "direct_shared"), (0, "direct_shared_buffer")]],
        accepts: direct_tile_fits,
    },
    Row {
        variant: Variant::DirectUnrolled,
        name: "direct-unrolled",
        family: Family::Direct,
        summary: "as direct-shared, window size known to the compiler: 3 5 7 9 11 13 15 17 21 31 51, else direct-shared",
        entries: &[abi::DIRECT_UNROLLED, &[(0, "direct_shared"), (0, "direct_shared_buffer")]],
        accepts: direct_tile_fits,
    },
    Row {
        variant: Variant::DirectSliding,
        name: "direct-sliding",
        family: Family::Direct,
        summary: "a window that slides down the image in registers: 3x3, 5x5 to 17x17, anchor column in the middle",
        entries: &[DIRECT_SLIDING, &[(0, "keep_edges")]],
        accepts: |problem| slides(problem, abi::SLIDING),
    },
    Row {
        variant: Variant::Separable,
        name: "separable",
        family: Family::Separable,
        summary: "a row pass and a column pass through shared memory; any number of taps",
        entries: &[abi::SEPARABLE_ROWS, abi::SEPARABLE_COLUMNS, &[(0, "separable_rows"), (0, "separable_columns")]],
        accepts: |problem| {
            if problem.separable { Ok(()) } else { Err("the filter does not separate".into()) }
        },
    },
    Row {
        variant: Variant::SeparableFused,
        name: "separable-fused",
        family: Family::Separable,
        summary: "both passes in one kernel that slides down the image: 3, 5 to 65 taps each way, anchor column in the middle",
        entries: &[SEPARABLE_FUSED, &[(0, "keep_edges")]],
        accepts: |problem| {
            if problem.separable { slides(problem, abi::FUSED) } else { Err("the filter does not separate".into()) }
        },
    },
    Row {
        variant: Variant::Fourier,
        name: "fourier",
        family: Family::Fourier,
        summary: "tiles multiplied as spectra: windows of any size",
        entries: &[FOURIER, &[(0, "keep_edges")]],
        accepts: |problem| {
            let (least, greatest) = spectrum::WEIGHTS;
            if problem.cols.saturating_mul(problem.rows) > i32::MAX as usize {
                Err(format!("{}x{} taps are more than 2^31", problem.cols, problem.rows))
            } else if !(least..=greatest).contains(&problem.weight) {
                Err(format!("the taps' sizes add up to {:e}, not from {least:e} to {greatest:e}", problem.weight))
            } else {
                match problem.place {
                    Place::Gpu { shared_memory } if tuning::fourier(shared_memory).is_none() => {
                        Err(format!("its tile does not fit in the {shared_memory} bytes of shared memory of a block"))
                    }
                    _ => Ok(()),
                }
            }
        },
    },
];

type Accepts = fn(&Problem) -> Result<(), String>;

const DIRECT_SLIDING: &[(i32, &str)] = &names::<{ abi::SLIDING.len() }>(abi::SLIDING);
const SEPARABLE_FUSED: &[(i32, &str)] = &names::<{ abi::FUSED.len() }>(abi::FUSED);

const FOURIER: &[(i32, &str)] = &[(0, abi::FOURIER[0].entry), (0, abi::FOURIER[1].entry)];

/// The taps and entries of a table of sliding kernels.
const fn names<const N: usize>(table: &[abi::Sliding]) -> [(i32, &'static str); N] {
    let mut names = [(0, ""); N];
    let mut i = 0;
    while i < N {
        names[i] = (table[i].taps, table[i].entry);
        i += 1;
    }
    names
}

/// Whether a table of sliding kernels has the problem's window.
fn slides(problem: &Problem, table: &[abi::Sliding]) -> Result<(), String> {
    let (cols, rows, anchor) = (problem.cols, problem.rows, problem.anchor_x);
    let kernel = table.iter().find(|kernel| kernel.taps as usize == cols && cols == rows);
    match kernel {
        None => Err(format!("it has no kernel for {cols}x{rows} taps")),
        Some(_) if anchor != cols / 2 => Err(format!("the anchor's column is {anchor}, not {}", cols / 2)),
        Some(kernel) => {
            let bytes = 4 * abi::ring_floats(kernel.taps, kernel.pixels, kernel.stages) as usize;
            if 4 * bytes <= problem.place.shared_memory() {
                Ok(())
            } else {
                Err(format!(
                    "its rings need {} bytes of shared memory, a block has {}",
                    4 * bytes,
                    problem.place.shared_memory()
                ))
            }
        }
    }
}

fn direct_tile_fits(problem: &Problem) -> Result<(), String> {
    let (width, height) = abi::DIRECT_BLOCK;
    tile_fits(problem, width as usize, height as usize)
}

/// Whether the pixels of a block and their apron fit in shared memory.
fn tile_fits(problem: &Problem, width: usize, height: usize) -> Result<(), String> {
    let bytes = 4 * (problem.cols + width - 1) * (problem.rows + height - 1);
    if bytes <= problem.place.shared_memory() {
        Ok(())
    } else {
        Err(format!(
            "a tile for {}x{} taps needs {bytes} bytes of shared memory, a block has {}",
            problem.cols,
            problem.rows,
            problem.place.shared_memory()
        ))
    }
}

impl Variant {
    /// Every variant, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.variant)
    }

    /// The name used on the command line and in tables.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// What the variant computes, and in which order.
    pub fn family(self) -> Family {
        self.row().family
    }

    /// One line on how it works.
    pub fn summary(self) -> &'static str {
        self.row().summary
    }

    /// The PTX entries it may launch.
    pub fn entries(self) -> impl Iterator<Item = &'static str> {
        self.row().entries.iter().flat_map(|group| group.iter().map(|&(_, entry)| entry))
    }

    /// Whether the variant can run a problem; if not, which limit it meets.
    pub(crate) fn accepts(self, problem: &Problem) -> Result<()> {
        (self.row().accepts)(problem).map_err(|reason| Error::Unsupported { variant: self.name(), reason })
    }

    fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.variant == self).expect("every variant has a row: a test holds the table to it")
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
