//! The table of kernels: what each variant is called, which entries it needs, and what it accepts.

use std::ops::RangeInclusive;

use gpu_kernels::{abi, border};

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
    /// Every tap for every pixel, each the product of a row's tap and a column's, column by column: see
    /// [`Variant::ClassNaive`]. Needs a filter that separates.
    Product,
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
    /// Study of a blog's ladder: pixels from a tile, for blocks of any shape.
    BlogShared,
    /// Study of a blog's ladder: the same, 5 x 5 taps known to the compiler.
    BlogUnrolled,
    /// Study of a class project, step 0: pixels from global memory, each tap the product of two.
    ///
    /// `pixel * row tap` is rounded and added by a fused multiply-add with the column's tap; column by column, top to bottom.
    ClassNaive,
    /// Step 1: pixels from a tile in shared memory, laid out column by column.
    ClassShared,
    /// Step 1 with 24-bit multiplications.
    ClassMul24,
    /// Step 2: two passes, tiles laid out column by column.
    ClassConflicts,
    /// Step 3: two passes, tiles laid out row by row.
    ClassSeparable,
    /// Step 4: two passes, eight results a thread, an aligned apron.
    ClassSteps,
    /// Study of NVIDIA's white paper: two passes, loops over taps unrolled.
    PaperSeparable,
    /// The same, loops not unrolled.
    PaperLooped,
    /// Both passes through a texture.
    PaperTexture,
    /// One thread for each pixel of a tile with its apron: most are idle.
    PaperIdle,
    /// One column of threads for each column of results.
    PaperHalfIdle,
    /// As many threads as results, each loading several pixels.
    PaperBusy,
    /// Study of a comparison of blurs: without a tile, channels row by row.
    StripUntiled,
    /// The same with a tile.
    StripTiled,
    /// Study of a blog on one dimension: taps and neighbours from global memory.
    LineNaive,
    /// Taps from the constant bank.
    LineConstant,
    /// Neighbours from a tile without apron, else from global memory.
    LineShared,
    /// Neighbours from a tile with its apron.
    LineGhost,
    /// Vector loads, four results a thread.
    LineVector,
}

/// One row of the table.
struct Row {
    variant: Variant,
    name: &'static str,
    family: Family,
    /// The document that it is a study of.
    study: Option<&'static str>,
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
        study: None,
        summary: "taps and pixels from global memory",
        entries: &[&[(0, "direct_naive")]],
        accepts: |_| Ok(()),
    },
    Row {
        variant: Variant::DirectConstant,
        name: "direct-constant",
        family: Family::Direct,
        study: None,
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
        study: None,
        summary: "pixels from a tile with its apron in shared memory",
        entries: &[&[(0, "direct_shared"), (0, "direct_shared_buffer")]],
        accepts: direct_tile_fits,
    },
    Row {
        variant: Variant::DirectUnrolled,
        name: "direct-unrolled",
        family: Family::Direct,
        study: None,
        summary: "as direct-shared, window size known to the compiler: 3 5 7 9 11 13 15 17 21 31 51, else direct-shared",
        entries: &[abi::DIRECT_UNROLLED, &[(0, "direct_shared"), (0, "direct_shared_buffer")]],
        accepts: direct_tile_fits,
    },
    Row {
        variant: Variant::DirectSliding,
        name: "direct-sliding",
        family: Family::Direct,
        study: None,
        summary: "a window that slides down the image in registers: 3x3, 5x5 to 17x17, anchor column in the middle",
        entries: &[DIRECT_SLIDING, &[(0, "keep_edges")]],
        accepts: |problem| slides(problem, abi::SLIDING),
    },
    Row {
        variant: Variant::Separable,
        name: "separable",
        family: Family::Separable,
        study: None,
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
        study: None,
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
        study: None,
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
    study(
        Variant::BlogShared,
        "blog-shared",
        (Family::Direct, BLOG),
        "pixels from a tile with its apron; blocks of any shape",
        &[&[(0, "blog_shared")]],
        |problem| blog(problem, 1..=abi::MAX_CONSTANT_TAPS),
    ),
    study(
        Variant::BlogUnrolled,
        "blog-unrolled",
        (Family::Direct, BLOG),
        "as blog-shared, 5x5 taps known to the compiler",
        &[&[(5, "blog_unrolled_5")]],
        |problem| square(problem, 5..=5).and_then(|()| blog(problem, 25..=25)),
    ),
    study(
        Variant::ClassNaive,
        "class-naive",
        (Family::Product, CLASS),
        "pixels from global memory, each of 17x17 taps the product of two",
        &[&[(0, "class_naive")]],
        |problem| class(problem, SIDE),
    ),
    study(
        Variant::ClassShared,
        "class-shared",
        (Family::Product, CLASS),
        "pixels from a tile that lies in shared memory column by column",
        &[&[(0, "class_shared")]],
        |problem| class(problem, SIDE).and_then(|()| short_indices(problem, i32::MAX as usize)),
    ),
    study(
        Variant::ClassMul24,
        "class-mul24",
        (Family::Product, CLASS),
        "as class-shared, indices multiplied in 24 bits",
        &[&[(0, "class_mul24")]],
        |problem| class(problem, SIDE).and_then(|()| short_indices(problem, (1 << 23) - 32)),
    ),
    study(
        Variant::ClassConflicts,
        "class-conflicts",
        (Family::Separable, CLASS),
        "two passes of 17 taps; lanes meet in one bank of shared memory",
        &[&[(0, "class_rows_2d"), (0, "class_columns_2d")]],
        |problem| class(problem, SIDE),
    ),
    study(
        Variant::ClassSeparable,
        "class-separable",
        (Family::Separable, CLASS),
        "as class-conflicts, tiles laid out so that lanes do not meet",
        &[&[(0, "class_rows"), (0, "class_columns")]],
        |problem| class(problem, SIDE),
    ),
    study(
        Variant::ClassSteps,
        "class-steps",
        (Family::Separable, CLASS),
        "two passes of 17 taps with eight results a thread and an aligned apron",
        &[&[(0, "steps_rows"), (0, "steps_columns")]],
        |problem| class(problem, 4),
    ),
    study(
        Variant::PaperSeparable,
        "paper-separable",
        (Family::Separable, PAPER),
        "two passes of 3, 5 to 33 taps, unrolled; aligned leading threads, tall thin tiles",
        &[abi::PAPER_ROWS, abi::PAPER_COLUMNS],
        paper,
    ),
    study(
        Variant::PaperLooped,
        "paper-looped",
        (Family::Separable, PAPER),
        "as paper-separable, not unrolled",
        &[&[(0, "paper_rows"), (0, "paper_columns")]],
        paper,
    ),
    study(
        Variant::PaperTexture,
        "paper-texture",
        (Family::Separable, PAPER),
        "two passes of 3, 5 to 33 taps through a texture, one channel",
        &[abi::TEXTURE_ROWS, abi::TEXTURE_COLUMNS],
        texture,
    ),
    study(
        Variant::PaperIdle,
        "paper-idle",
        (Family::Direct, PAPER),
        "one thread for each pixel of a tile with its apron, at most 1024",
        &[&[(0, "idle_threads")]],
        |problem| idle(problem, (SIDE + problem.cols - 1) * (SIDE + problem.rows - 1)),
    ),
    study(
        Variant::PaperHalfIdle,
        "paper-half-idle",
        (Family::Direct, PAPER),
        "16 threads for each row of a tile with its apron, at most 1024",
        &[&[(0, "idle_threads")]],
        |problem| idle(problem, SIDE * (SIDE + problem.rows - 1)),
    ),
    study(
        Variant::PaperBusy,
        "paper-busy",
        (Family::Direct, PAPER),
        "16x16 threads, each loading several pixels of a tile with its apron",
        &[&[(0, "idle_threads")]],
        |problem| idle(problem, SIDE * SIDE),
    ),
    study(
        Variant::StripUntiled,
        "strip-untiled",
        (Family::Direct, STRIP),
        "windows of 3x3, 5x5 to 33x33 straight from global memory, border keep",
        &[abi::STRIP_UNTILED],
        strip,
    ),
    study(
        Variant::StripTiled,
        "strip-tiled",
        (Family::Direct, STRIP),
        "as strip-untiled, through a tile in shared memory",
        &[abi::STRIP_TILED],
        strip,
    ),
    study(
        Variant::LineNaive,
        "line-naive",
        (Family::Direct, LINE),
        "5 taps along a row, taps and neighbours from global memory",
        &[&[(0, "line_naive")]],
        line,
    ),
    study(
        Variant::LineConstant,
        "line-constant",
        (Family::Direct, LINE),
        "as line-naive, taps from the constant bank",
        &[&[(0, "line_constant")]],
        line,
    ),
    study(
        Variant::LineShared,
        "line-shared",
        (Family::Direct, LINE),
        "as line-constant, neighbours from a tile where they are in it",
        &[&[(0, "line_shared")]],
        line,
    ),
    study(
        Variant::LineGhost,
        "line-ghost",
        (Family::Direct, LINE),
        "as line-constant, all neighbours from a tile with ghost cells",
        &[&[(0, "line_ghost")]],
        line,
    ),
    study(
        Variant::LineVector,
        "line-vector",
        (Family::Direct, LINE),
        "as line-constant, vector loads and four results a thread",
        &[&[(0, "line_vector")]],
        line,
    ),
];

const BLOG: &str = "a blog's ladder of 5x5 kernels";
const CLASS: &str = "a class project of 2008";
const PAPER: &str = "NVIDIA's white paper on separable convolution";
const STRIP: &str = "a comparison of tiled and untiled blurs";
const LINE: &str = "a blog on one-dimensional convolution";

type Accepts = fn(&Problem) -> Result<(), String>;

const fn study(
    variant: Variant,
    name: &'static str,
    (family, document): (Family, &'static str),
    summary: &'static str,
    entries: &'static [&'static [(i32, &'static str)]],
    accepts: Accepts,
) -> Row {
    Row { variant, name, family, study: Some(document), summary, entries, accepts }
}

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

/// Threads along each side of the blocks of several studies.
const SIDE: usize = abi::CLASS_BLOCK as usize;

/// Whether the border is one of those that a study's document has.
fn bordered(problem: &Problem, rules: &[u32], which: &str) -> Result<(), String> {
    if rules.contains(&problem.border.code().0) {
        Ok(())
    } else {
        Err(format!("the border is {}, it takes {which}", problem.border))
    }
}

/// Whether the window is square, of an odd size in this range, with its anchor in the middle.
fn square(problem: &Problem, sizes: RangeInclusive<usize>) -> Result<(), String> {
    let Problem { cols, rows, anchor_x, anchor_y, .. } = *problem;
    let (least, most) = (sizes.start(), sizes.end());
    if cols != rows || cols % 2 == 0 || !sizes.contains(&cols) {
        let to = if least == most { String::new() } else { format!(", and odd sizes to {most}x{most}") };
        return Err(format!("{cols}x{rows} taps, it takes {least}x{least}{to}"));
    }
    if (anchor_x, anchor_y) != (cols / 2, rows / 2) {
        return Err(format!("the anchor is {anchor_x},{anchor_y}, not the middle"));
    }
    Ok(())
}

/// Whether a grid of blocks of so many rows covers the image.
fn covered(problem: &Problem, rows: usize) -> Result<(), String> {
    let most = rows * 65535;
    if problem.height <= most { Ok(()) } else { Err(format!("{} rows, a grid covers {most}", problem.height)) }
}

fn separates(problem: &Problem) -> Result<(), String> {
    if problem.separable { Ok(()) } else { Err("the filter does not separate".into()) }
}

fn blog(problem: &Problem, taps: RangeInclusive<usize>) -> Result<(), String> {
    let count = problem.cols * problem.rows;
    if !taps.contains(&count) {
        return Err(format!("{count} taps, it takes {}", taps.end()));
    }
    let rules = [border::CONSTANT, border::REPLICATE, border::REFLECT, border::REFLECT_101, border::WRAP];
    bordered(problem, &rules, "all others")?;
    // Benchmarks try blocks of up to 32 x 32 threads, and as few as one row.
    tile_fits(problem, 32, 32)?;
    covered(problem, 1)
}

fn class(problem: &Problem, rows: usize) -> Result<(), String> {
    separates(problem)?;
    square(problem, 17..=17)?;
    bordered(problem, &[border::CONSTANT], "constant alone")?;
    covered(problem, rows)
}

/// Whether indices into a plane are below 2^31, and a stride and the number of rows at most so much.
fn short_indices(problem: &Problem, most: usize) -> Result<(), String> {
    let Problem { width, height, planes, .. } = *problem;
    // Of planes that take turns row by row, all lie in a stride.
    let stride = width.next_multiple_of(32) * planes;
    if stride.max(height) <= most && stride * height <= i32::MAX as usize {
        Ok(())
    } else {
        Err(format!("{width}x{height} pixels are too many for its short indices"))
    }
}

fn paper(problem: &Problem) -> Result<(), String> {
    separates(problem)?;
    square(problem, 3..=33)?;
    bordered(problem, &[border::CONSTANT], "constant alone")?;
    covered(problem, 1)
}

fn texture(problem: &Problem) -> Result<(), String> {
    separates(problem)?;
    square(problem, 3..=33)?;
    bordered(problem, &[border::CONSTANT, border::REPLICATE], "constant and replicate")?;
    // What every GPU since compute capability 5.0 has.
    let (most_wide, most_high) = (131_072, 65_000);
    let Problem { width, height, planes, .. } = *problem;
    if planes > 1 || width > most_wide || height > most_high {
        return Err(format!(
            "{width}x{height}x{planes} pixels, a texture takes {most_wide}x{most_high} in one channel"
        ));
    }
    Ok(())
}

fn idle(problem: &Problem, threads: usize) -> Result<(), String> {
    if threads > 1024 {
        return Err(format!("it needs {threads} threads for a tile, a block has 1024"));
    }
    let taps = problem.cols * problem.rows;
    if taps > abi::MAX_CONSTANT_TAPS {
        return Err(format!("{taps} taps, the constant bank takes {}", abi::MAX_CONSTANT_TAPS));
    }
    bordered(problem, &[border::CONSTANT], "constant alone")?;
    tile_fits(problem, SIDE, SIDE)?;
    covered(problem, SIDE)
}

fn strip(problem: &Problem) -> Result<(), String> {
    square(problem, 3..=33)?;
    bordered(problem, &[border::KEEP], "keep alone")?;
    let columns = problem.width * problem.planes;
    if columns > 1 << 30 {
        return Err(format!("{columns} columns in all channels, it takes 2^30"));
    }
    covered(problem, SIDE)
}

fn line(problem: &Problem) -> Result<(), String> {
    let Problem { cols, rows, anchor_x, .. } = *problem;
    if (cols, rows, anchor_x) != (5, 1, 2) {
        return Err(format!("{cols}x{rows} taps with anchor {anchor_x}, it takes 5x1 with anchor 2"));
    }
    bordered(problem, &[border::CONSTANT], "constant alone")?;
    covered(problem, 1)
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

    /// The document that it is a study of, for `docs/ladder.md`: plans never choose it, and it takes what that document
    /// describes and little else. `None` for apron's own variants.
    pub fn study(self) -> Option<&'static str> {
        self.row().study
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
