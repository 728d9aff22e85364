//! Studies: convolution as other documents have it, step by step. Each step is a kernel that
//! `docs/ladder.md` measures next to its document's time. The benchmark and the tests run the
//! studies; apron itself does not know them.
//!
//! | module | what it is |
//! | --- | --- |
//! | `table` | every study: its name, its limits, and its launches |
//! | `accepts` | the limits of each document |
//! | `cpu` | the same results on the CPU |
//! | `gpu`, `texture` | launches, on apron's streams and images |
//!
//! The kernels are a separate crate, `studies/kernels`.

mod accepts;
mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
mod table;
#[cfg(feature = "gpu")]
mod texture;

use apron::{Border, Error, Filter, Shape};
use oracle::Order;

pub use cpu::CpuPlan;
#[cfg(feature = "gpu")]
pub use gpu::{StudyPlan, image_by_rows, kernels};
use table::{Row, TABLE};

/// One step of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Study {
    /// A blog's ladder, first step: taps and pixels from global memory. apron's own kernel, with
    /// blocks of any shape.
    DirectNaive,
    /// Taps from the constant bank. apron's own kernel, with blocks of any shape.
    DirectConstant,
    /// Pixels from a tile, for blocks of any shape.
    BlogShared,
    /// As `BlogShared`, with 5 x 5 taps known to the compiler.
    BlogUnrolled,
    /// A class project, step 0: pixels from global memory; each tap is the product of a row tap and
    /// a column tap.
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
    /// NVIDIA's white paper: two passes, loops over taps unrolled.
    PaperSeparable,
    /// As `PaperSeparable`, but loops are not unrolled.
    PaperLooped,
    /// Both passes through a texture.
    PaperTexture,
    /// One thread for each pixel of a tile with its apron: most are idle.
    PaperIdle,
    /// One column of threads for each column of results.
    PaperHalfIdle,
    /// As many threads as results, each loading several pixels.
    PaperBusy,
    /// A comparison of blurs: without a tile, for row-interleaved channels.
    StripUntiled,
    /// The same blur with a tile.
    StripTiled,
    /// A blog on one dimension: taps and neighbours from global memory.
    LineNaive,
    /// Taps from the constant bank.
    LineConstant,
    /// Neighbours from a tile without apron; those outside it from global memory.
    LineShared,
    /// Neighbours from a tile with its apron.
    LineGhost,
    /// Vector loads, four results a thread.
    LineVector,
}

/// An image and a filter that a study is asked to run.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// The filter.
    pub filter: &'a Filter,
    /// The border rule.
    pub border: Border,
    /// Width, height and channels.
    pub shape: Shape,
    /// Bytes of shared memory that a block can have; `usize::MAX` on the CPU.
    pub shared_memory: usize,
}

impl Study {
    /// Every study, in the order of the documents.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.study)
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The document that it is a step of.
    pub fn document(self) -> &'static str {
        self.row().document
    }

    /// One line on how it works.
    pub fn summary(self) -> &'static str {
        self.row().summary
    }

    /// The order of its sums, which determines its bits.
    pub fn order(self) -> Order {
        self.row().order
    }

    /// The entries that it may launch: of the studies' kernels or, for the first two studies, of
    /// apron's.
    pub fn entries(self) -> impl Iterator<Item = &'static str> {
        self.row().launches.iter().flat_map(|launch| launch.entry.names())
    }

    /// Whether its kernels are apron's own.
    pub fn is_aprons(self) -> bool {
        self.row().launches.iter().all(|launch| matches!(launch.entry, table::Entry::Apron(_)))
    }

    /// Whether it can run a problem.
    ///
    /// # Errors
    /// The limit that the problem exceeds, if it cannot.
    pub fn accepts(self, problem: &Problem<'_>) -> Result<(), String> {
        (self.row().accepts)(problem)
    }

    /// As [`Study::accepts`], with apron's error type.
    fn check(self, problem: &Problem<'_>) -> Result<(), Error> {
        self.accepts(problem).map_err(|reason| Error::Unsupported { variant: self.name(), reason })
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}

impl std::fmt::Display for Study {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Study {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::all().map(Self::name).collect::<Vec<_>>().join(", ");
        let found = Self::all().find(|study| study.name() == text);
        found.ok_or_else(|| format!("no study is called \"{text}\"; the studies are: {}", known()))
    }
}
