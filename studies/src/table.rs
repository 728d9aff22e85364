//! The table of studies: each one's name, limits and launches.
#![cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "without kernels nothing is launched"))]

use oracle::Order;
use study_kernels::sizes::{
    CLASS_BLOCK, CLASS_TAPS, LINE_BLOCK, LINE_RUN, PAPER_COLUMN, PAPER_COLUMN_THREADS,
    PAPER_COLUMNS, PAPER_LEAD, PAPER_ROW, PAPER_ROWS, STEPS, STEPS_COLUMNS_BLOCK, STEPS_ROWS_BLOCK,
    STRIP_TILED, STRIP_UNTILED, TEXTURE_BLOCK, TEXTURE_COLUMNS, TEXTURE_ROWS,
};

use crate::{Problem, Study, accepts};

/// One row of the table.
pub(crate) struct Row {
    pub(crate) study: Study,
    pub(crate) name: &'static str,
    pub(crate) document: &'static str,
    pub(crate) order: Order,
    pub(crate) summary: &'static str,
    pub(crate) accepts: fn(&Problem<'_>) -> Result<(), String>,
    /// Its kernels in order: one, or a row pass into an intermediate image and a column pass from
    /// it.
    pub(crate) launches: &'static [Launch],
}

/// How one kernel covers an image.
pub(crate) struct Launch {
    pub(crate) entry: Entry,
    /// Pixels that a block computes.
    pub(crate) tile: fn(&Size) -> (i32, i32),
    /// Threads of a block.
    pub(crate) block: fn(&Size) -> (i32, i32),
    /// Floats of a block's shared memory.
    pub(crate) floats: fn(&Size) -> i32,
    /// The grid axis of the channels.
    pub(crate) channels: Channels,
    /// The entry's arguments after the frame.
    pub(crate) arguments: &'static [Argument],
}

/// The values that determine a launch's sizes.
pub(crate) struct Size {
    /// Tap columns and rows.
    pub(crate) cols: i32,
    pub(crate) rows: i32,
    /// Threads of a block, for kernels that take any shape.
    pub(crate) any: (i32, i32),
}

/// A kernel's name.
pub(crate) enum Entry {
    /// An entry of the studies' kernels.
    One(&'static str),
    /// An entry of the studies' kernels, chosen by the number of tap columns.
    ByTaps(&'static [(i32, &'static str)]),
    /// An entry of apron's kernels.
    Apron(&'static str),
}

impl Entry {
    /// All names that it may stand for.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        let (one, several) = match *self {
            Self::One(name) | Self::Apron(name) => (Some(name), &[][..]),
            Self::ByTaps(names) => (None, names),
        };
        one.into_iter().chain(several.iter().map(|&(_, name)| name))
    }
}

/// The grid axis of an image's channels.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Channels {
    /// The z axis counts the channels.
    InDepth,
    /// The x axis counts the columns of all channels.
    SideBySide,
}

/// A kernel's argument.
#[derive(Clone, Copy)]
pub(crate) enum Argument {
    /// The window's size and anchor.
    Window,
    /// The number of tap columns.
    Cols,
    /// The number of channels.
    Channels,
    /// A texture of the source.
    Texture,
    /// All taps by value, row by row, as many as the entry takes.
    Dense,
    /// The address of all taps in device memory.
    DenseAddress,
    /// The address of all taps; omitted if a launch passes all of them by value.
    RestAddress,
    /// A row's taps.
    Row,
    /// A column's taps.
    Column,
    /// A row's taps, then a column's.
    Pair,
}

use Argument::{Cols, Column, Dense, DenseAddress, Pair, RestAddress, Texture, Window};
use Entry::{Apron, ByTaps, One};

/// A number of pixels or threads, across and down.
type Extent = fn(&Size) -> (i32, i32);

/// Blocks of 16 x 16 threads, one pixel a thread.
const SIDE: Extent = |_| (CLASS_BLOCK, CLASS_BLOCK);
/// Blocks of the requested shape.
const ANY: Extent = |size| size.any;
/// Pixels along a side of a 16 x 16 block with the class project's apron.
const LONG: i32 = CLASS_BLOCK + CLASS_TAPS - 1;

const fn launch(
    entry: Entry,
    tile: Extent,
    block: Extent,
    floats: fn(&Size) -> i32,
    arguments: &'static [Argument],
) -> Launch {
    Launch { entry, tile, block, floats, channels: Channels::InDepth, arguments }
}

/// Pixels of a block and its apron.
fn with_apron((width, height): (i32, i32), size: &Size) -> i32 {
    (width + size.cols - 1) * (height + size.rows - 1)
}

const fn any(entry: Entry, floats: fn(&Size) -> i32, arguments: &'static [Argument]) -> Launch {
    launch(entry, ANY, ANY, floats, arguments)
}

const fn class(entry: &'static str, floats: fn(&Size) -> i32, taps: &'static [Argument]) -> Launch {
    launch(One(entry), SIDE, SIDE, floats, taps)
}

const fn idle(block: Extent) -> Launch {
    launch(One("idle_threads"), SIDE, block, |size| with_apron(SIDE(size), size), &[Window, Dense])
}

const fn paper_rows(entry: Entry, arguments: &'static [Argument]) -> Launch {
    let block: Extent = |size| (PAPER_LEAD + PAPER_ROW + size.cols / 2, 1);
    launch(entry, |_| (PAPER_ROW, 1), block, |size| PAPER_ROW + size.cols - 1, arguments)
}

const fn paper_columns(entry: Entry, arguments: &'static [Argument]) -> Launch {
    let floats = |size: &Size| PAPER_COLUMN.0 * (PAPER_COLUMN.1 + size.rows - 1);
    launch(entry, |_| PAPER_COLUMN, |_| (PAPER_COLUMN.0, PAPER_COLUMN_THREADS), floats, arguments)
}

const fn texture(entry: Entry, arguments: &'static [Argument]) -> Launch {
    const BLOCK: Extent = |_| (TEXTURE_BLOCK.0 as i32, TEXTURE_BLOCK.1 as i32);
    launch(entry, BLOCK, BLOCK, |_| 0, arguments)
}

const fn strip(entry: Entry, floats: fn(&Size) -> i32) -> Launch {
    let arguments = &[Argument::Channels, Dense, RestAddress];
    Launch { channels: Channels::SideBySide, ..launch(entry, SIDE, SIDE, floats, arguments) }
}

const fn line(
    entry: &'static str,
    run: Extent,
    floats: fn(&Size) -> i32,
    taps: &'static [Argument],
) -> Launch {
    launch(One(entry), run, |_| (LINE_BLOCK, 1), floats, taps)
}

const ONE_EACH: Extent = |_| (LINE_BLOCK, 1);

const BLOG: &str = "a blog's ladder of 5x5 kernels";
const CLASS: &str = "a class project of 2008";
const PAPER: &str = "NVIDIA's white paper on separable convolution";
const STRIP: &str = "a comparison of tiled and untiled blurs";
const LINE: &str = "a blog on one-dimensional convolution";

pub(crate) const TABLE: &[Row] = &[
    Row {
        study: Study::DirectNaive,
        name: "direct-naive",
        document: BLOG,
        order: Order::Direct,
        summary: "taps and pixels from global memory; blocks of any shape",
        accepts: accepts::any_block,
        launches: &[any(Apron("direct_naive"), |_| 0, &[Window, DenseAddress])],
    },
    Row {
        study: Study::DirectConstant,
        name: "direct-constant",
        document: BLOG,
        order: Order::Direct,
        summary: "taps from the constant bank; blocks of any shape",
        accepts: accepts::any_block_carried,
        launches: &[any(Apron("direct_constant"), |_| 0, &[Window, Dense])],
    },
    Row {
        study: Study::BlogShared,
        name: "blog-shared",
        document: BLOG,
        order: Order::Direct,
        summary: "pixels from a tile with its apron; blocks of any shape",
        accepts: accepts::blog,
        launches: &[any(One("blog_shared"), |size| with_apron(size.any, size), &[Window, Dense])],
    },
    Row {
        study: Study::BlogUnrolled,
        name: "blog-unrolled",
        document: BLOG,
        order: Order::Direct,
        summary: "as blog-shared, 5x5 taps known to the compiler",
        accepts: accepts::blog_unrolled,
        launches: &[any(
            One("blog_unrolled_5"),
            |size| with_apron(size.any, size),
            &[Window, Dense],
        )],
    },
    Row {
        study: Study::ClassNaive,
        name: "class-naive",
        document: CLASS,
        order: Order::Product,
        summary: "pixels from global memory, each of 17x17 taps the product of two",
        accepts: accepts::class,
        launches: &[class("class_naive", |_| 0, &[Pair])],
    },
    Row {
        study: Study::ClassShared,
        name: "class-shared",
        document: CLASS,
        order: Order::Product,
        summary: "pixels from a tile that lies in shared memory column by column",
        accepts: accepts::class_shared,
        launches: &[class("class_shared", |_| LONG * LONG, &[Pair])],
    },
    Row {
        study: Study::ClassMul24,
        name: "class-mul24",
        document: CLASS,
        order: Order::Product,
        summary: "as class-shared, indices multiplied in 24 bits",
        accepts: accepts::class_mul24,
        launches: &[class("class_mul24", |_| LONG * LONG, &[Pair])],
    },
    Row {
        study: Study::ClassConflicts,
        name: "class-conflicts",
        document: CLASS,
        order: Order::Separable,
        summary: "two passes of 17 taps; lanes meet in one bank of shared memory",
        accepts: accepts::class,
        launches: &[
            class("class_rows_2d", |_| LONG * CLASS_BLOCK, &[Argument::Row]),
            class("class_columns_2d", |_| LONG * CLASS_BLOCK, &[Column]),
        ],
    },
    Row {
        study: Study::ClassSeparable,
        name: "class-separable",
        document: CLASS,
        order: Order::Separable,
        summary: "as class-conflicts, tiles laid out so that lanes do not meet",
        accepts: accepts::class,
        launches: &[
            class("class_rows", |_| LONG * CLASS_BLOCK, &[Argument::Row]),
            class("class_columns", |_| LONG * CLASS_BLOCK, &[Column]),
        ],
    },
    Row {
        study: Study::ClassSteps,
        name: "class-steps",
        document: CLASS,
        order: Order::Separable,
        summary: "two passes of 17 taps with eight results a thread and an aligned apron",
        accepts: accepts::class_steps,
        launches: &[
            launch(
                One("steps_rows"),
                |_| (STEPS * STEPS_ROWS_BLOCK.0, STEPS_ROWS_BLOCK.1),
                |_| STEPS_ROWS_BLOCK,
                |_| STEPS_ROWS_BLOCK.1 * (STEPS + 2) * STEPS_ROWS_BLOCK.0,
                &[Argument::Row],
            ),
            launch(
                One("steps_columns"),
                |_| (STEPS_COLUMNS_BLOCK.0, STEPS * STEPS_COLUMNS_BLOCK.1),
                |_| STEPS_COLUMNS_BLOCK,
                |_| STEPS_COLUMNS_BLOCK.0 * ((STEPS + 2) * STEPS_COLUMNS_BLOCK.1 + 1),
                &[Column],
            ),
        ],
    },
    Row {
        study: Study::PaperSeparable,
        name: "paper-separable",
        document: PAPER,
        order: Order::Separable,
        summary: "two passes of 3, 5 to 33 taps, unrolled; aligned leading threads, tall thin tiles",
        accepts: accepts::paper,
        launches: &[
            paper_rows(ByTaps(PAPER_ROWS), &[Argument::Row]),
            paper_columns(ByTaps(PAPER_COLUMNS), &[Column]),
        ],
    },
    Row {
        study: Study::PaperLooped,
        name: "paper-looped",
        document: PAPER,
        order: Order::Separable,
        summary: "as paper-separable, not unrolled",
        accepts: accepts::paper,
        launches: &[
            paper_rows(One("paper_rows"), &[Cols, Argument::Row]),
            paper_columns(One("paper_columns"), &[Cols, Column]),
        ],
    },
    Row {
        study: Study::PaperTexture,
        name: "paper-texture",
        document: PAPER,
        order: Order::Separable,
        summary: "two passes of 3, 5 to 33 taps through a texture, one channel",
        accepts: accepts::texture,
        launches: &[
            texture(ByTaps(TEXTURE_ROWS), &[Texture, Argument::Row]),
            texture(ByTaps(TEXTURE_COLUMNS), &[Texture, Column]),
        ],
    },
    Row {
        study: Study::PaperIdle,
        name: "paper-idle",
        document: PAPER,
        order: Order::Direct,
        summary: "one thread for each pixel of a tile with its apron, at most 1024",
        accepts: accepts::idle,
        launches: &[idle(|size| (CLASS_BLOCK + size.cols - 1, CLASS_BLOCK + size.rows - 1))],
    },
    Row {
        study: Study::PaperHalfIdle,
        name: "paper-half-idle",
        document: PAPER,
        order: Order::Direct,
        summary: "16 threads for each row of a tile with its apron, at most 1024",
        accepts: accepts::half_idle,
        launches: &[idle(|size| (CLASS_BLOCK, CLASS_BLOCK + size.rows - 1))],
    },
    Row {
        study: Study::PaperBusy,
        name: "paper-busy",
        document: PAPER,
        order: Order::Direct,
        summary: "16x16 threads, each loading several pixels of a tile with its apron",
        accepts: accepts::busy,
        launches: &[idle(SIDE)],
    },
    Row {
        study: Study::StripUntiled,
        name: "strip-untiled",
        document: STRIP,
        order: Order::Direct,
        summary: "windows of 3x3, 5x5 to 33x33 straight from global memory, border keep",
        accepts: accepts::strip,
        launches: &[strip(ByTaps(STRIP_UNTILED), |_| 0)],
    },
    Row {
        study: Study::StripTiled,
        name: "strip-tiled",
        document: STRIP,
        order: Order::Direct,
        summary: "as strip-untiled, through a tile in shared memory",
        accepts: accepts::strip,
        launches: &[strip(ByTaps(STRIP_TILED), |size| with_apron(SIDE(size), size))],
    },
    Row {
        study: Study::LineNaive,
        name: "line-naive",
        document: LINE,
        order: Order::Direct,
        summary: "5 taps along a row, taps and neighbours from global memory",
        accepts: accepts::line,
        launches: &[line("line_naive", ONE_EACH, |_| 0, &[DenseAddress])],
    },
    Row {
        study: Study::LineConstant,
        name: "line-constant",
        document: LINE,
        order: Order::Direct,
        summary: "as line-naive, taps from the constant bank",
        accepts: accepts::line,
        launches: &[line("line_constant", ONE_EACH, |_| 0, &[Dense])],
    },
    Row {
        study: Study::LineShared,
        name: "line-shared",
        document: LINE,
        order: Order::Direct,
        summary: "as line-constant, neighbours from a tile where they are in it",
        accepts: accepts::line,
        launches: &[line("line_shared", ONE_EACH, |_| LINE_BLOCK, &[Dense])],
    },
    Row {
        study: Study::LineGhost,
        name: "line-ghost",
        document: LINE,
        order: Order::Direct,
        summary: "as line-constant, all neighbours from a tile with ghost cells",
        accepts: accepts::line,
        launches: &[line("line_ghost", ONE_EACH, |size| LINE_BLOCK + size.cols - 1, &[Dense])],
    },
    Row {
        study: Study::LineVector,
        name: "line-vector",
        document: LINE,
        order: Order::Direct,
        summary: "as line-constant, vector loads and four results a thread",
        accepts: accepts::line,
        launches: &[line("line_vector", |_| (LINE_BLOCK * LINE_RUN, 1), |_| 0, &[Dense])],
    },
];

// The table has each study at the index of its number.
const _: () = {
    let mut i = 0;
    while i < TABLE.len() {
        assert!(TABLE[i].study as usize == i);
        i += 1;
    }
    assert!(TABLE.len() == Study::LineVector as usize + 1);
};
