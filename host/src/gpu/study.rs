//! Launches the studies' kernels: `gpu-kernels/src/{blog,class,idle,line,paper,strip,texture}.rs`.

use std::ffi::c_void;

use gpu_kernels::abi::{
    CLASS_BLOCK, CLASS_TAPS, Frame, LINE_BLOCK, LINE_RUN, PAPER_COLUMN, PAPER_COLUMN_THREADS, PAPER_COLUMNS,
    PAPER_LEAD, PAPER_ROW, PAPER_ROWS, STEPS, STEPS_COLUMNS_BLOCK, STEPS_ROWS_BLOCK, STRIP_TILED, STRIP_UNTILED,
    TEXTURE_BLOCK, TEXTURE_COLUMNS, TEXTURE_ROWS, Window,
};

use super::engine::{Engine, Grid, argument};
use super::separable::{laid_out, outside};
use super::stream::Stream;
use crate::{Family, Result, Variant};

/// What a study's variant is to do; it accepts the problem.
pub(super) struct Job {
    pub(super) frame: Frame,
    pub(super) planes: usize,
    pub(super) window: Window,
    /// The shape of a block, where the kernel takes any.
    pub(super) block: Option<(u32, u32)>,
}

/// How one kernel covers an image.
struct Pass {
    entry: &'static str,
    /// Pixels that a block computes.
    tile: (i32, i32),
    /// Its threads.
    block: (i32, i32),
    /// Floats of shared memory.
    floats: i32,
}

impl Pass {
    fn grid(&self, frame: &Frame) -> Grid {
        let unsigned = |(x, y): (i32, i32)| (x as u32, y as u32);
        Grid::covering(frame, unsigned(self.tile), unsigned(self.block), 4 * self.floats as u32)
    }
}

/// Blocks of 16 x 16 threads, a pixel for each.
const SIDE: (i32, i32) = (CLASS_BLOCK, CLASS_BLOCK);
/// Pixels along a side of such a block with the class project's apron.
const LONG: i32 = CLASS_BLOCK + CLASS_TAPS - 1;

/// Puts a study's variant into the stream.
pub(super) fn launch(variant: Variant, job: &Job, engine: &Engine, stream: &mut Stream) -> Result<()> {
    match variant.family() {
        Family::Separable => two_passes(variant, job, engine, stream),
        Family::Product => {
            let (entry, floats) = match variant {
                Variant::ClassNaive => ("class_naive", 0),
                Variant::ClassShared => ("class_shared", LONG * LONG),
                _ => ("class_mul24", LONG * LONG),
            };
            let pass = Pass { entry, tile: SIDE, block: SIDE, floats };
            let taps = argument(engine.fused()?);
            // SAFETY: these entries take the frame and the taps of a row and of a column, by value.
            unsafe { pass.grid(&job.frame).launch(entry, job.frame, job.planes, &[taps], stream) }
        }
        _ => one_pass(variant, job, engine, stream),
    }
}

/// The variants with the direct family's bits.
fn one_pass(variant: Variant, job: &Job, engine: &Engine, stream: &mut Stream) -> Result<()> {
    let Job { frame, planes, window, .. } = job;
    let (cols, rows) = (window.cols, window.rows);
    let of_tile = |(width, height): (i32, i32)| (width + cols - 1) * (height + rows - 1);
    let any = job.block.map_or(SIDE, |(width, height)| (width as i32, height as i32));
    let line = |entry, floats| Pass { entry, tile: (LINE_BLOCK, 1), block: (LINE_BLOCK, 1), floats };
    let idle = |block| Pass { entry: "idle_threads", tile: SIDE, block, floats: of_tile(SIDE) };
    let pass = match variant {
        Variant::BlogShared => Pass { entry: "blog_shared", tile: any, block: any, floats: of_tile(any) },
        Variant::BlogUnrolled => Pass { entry: "blog_unrolled_5", tile: any, block: any, floats: of_tile(any) },
        Variant::PaperIdle => idle((CLASS_BLOCK + cols - 1, CLASS_BLOCK + rows - 1)),
        Variant::PaperHalfIdle => idle((CLASS_BLOCK, CLASS_BLOCK + rows - 1)),
        Variant::PaperBusy => idle(SIDE),
        Variant::StripUntiled => Pass { entry: of(STRIP_UNTILED, cols), tile: SIDE, block: SIDE, floats: 0 },
        Variant::StripTiled => Pass { entry: of(STRIP_TILED, cols), tile: SIDE, block: SIDE, floats: of_tile(SIDE) },
        Variant::LineNaive => line("line_naive", 0),
        Variant::LineConstant => line("line_constant", 0),
        Variant::LineShared => line("line_shared", LINE_BLOCK),
        Variant::LineGhost => line("line_ghost", LINE_BLOCK + cols - 1),
        _ => Pass { tile: (LINE_BLOCK * LINE_RUN, 1), ..line("line_vector", 0) },
    };
    let taps = engine.dense()?;
    let pointer = taps.pointer();
    // The strips' largest window has more than a launch carries, so its entry takes the first of them.
    let leading: *const c_void = taps.constant.as_ref().map_or(taps.host.as_ptr().cast(), |taps| argument(&**taps));
    let all = taps.constant.is_none().then(|| argument(&pointer));
    let taps = if variant == Variant::LineNaive { argument(&pointer) } else { leading };
    let grid = pass.grid(frame);
    let window_of = argument(window);
    let channels = *planes as i32;
    // SAFETY: each entry takes the frame, then the window unless it knows it, or for strips the number of channels, then its
    // taps: a pointer for `line_naive`, else the taps themselves, of which it knows how many; where those are not all, a
    // pointer to all follows.
    unsafe {
        match variant {
            Variant::StripUntiled | Variant::StripTiled => {
                // The kernel counts the columns of all channels.
                let side_by_side = Frame { width: frame.width * channels, ..*frame };
                let grid = Grid { blocks: pass.grid(&side_by_side).blocks, ..grid };
                let arguments: Vec<_> = [argument(&channels), taps].into_iter().chain(all).collect();
                grid.launch(pass.entry, *frame, 1, &arguments, stream)
            }
            Variant::LineNaive
            | Variant::LineConstant
            | Variant::LineShared
            | Variant::LineGhost
            | Variant::LineVector => grid.launch(pass.entry, *frame, *planes, &[taps], stream),
            _ => grid.launch(pass.entry, *frame, *planes, &[window_of, taps], stream),
        }
    }
}

/// The variants with the separable family's bits.
fn two_passes(variant: Variant, job: &Job, engine: &Engine, stream: &mut Stream) -> Result<()> {
    let Job { frame, planes, window, .. } = job;
    let (row, column) = engine.pair()?;
    let (rows, columns) = passes(variant, window.cols);
    let middle = stream.scratch(laid_out(frame, *planes))?;
    let first = Frame { dst: middle, ..*frame };
    let second = Frame {
        src: middle,
        src_stride: frame.dst_stride,
        src_plane: frame.dst_plane,
        border_value: outside(frame, row),
        ..*frame
    };
    for (pass, frame, taps) in [(rows, first, row), (columns, second, column)] {
        // No study takes more taps than a launch carries.
        let taps: *const c_void = taps.constant.as_ref().map_or(std::ptr::null(), |taps| argument(&**taps));
        let texture = if variant == Variant::PaperTexture { stream.texture(&frame)? } else { 0 };
        let arguments = match variant {
            Variant::PaperLooped => vec![argument(&window.cols), taps],
            Variant::PaperTexture => vec![argument(&texture), taps],
            _ => vec![taps],
        };
        // SAFETY: each entry takes the frame, then the number of taps if it does not know it, or the texture it reads, then
        // its taps. Scratch is as large as the destination.
        unsafe { pass.grid(&frame).launch(pass.entry, frame, *planes, &arguments, stream)? };
    }
    Ok(())
}

/// The row pass and the column pass.
fn passes(variant: Variant, taps: i32) -> (Pass, Pass) {
    let class = |entry| Pass { entry, tile: SIDE, block: SIDE, floats: LONG * CLASS_BLOCK };
    let paper = |rows, columns| {
        let (width, height) = PAPER_COLUMN;
        (
            Pass {
                entry: rows,
                tile: (PAPER_ROW, 1),
                block: (PAPER_LEAD + PAPER_ROW + taps / 2, 1),
                floats: PAPER_ROW + taps - 1,
            },
            Pass {
                entry: columns,
                tile: PAPER_COLUMN,
                block: (width, PAPER_COLUMN_THREADS),
                floats: width * (height + taps - 1),
            },
        )
    };
    match variant {
        Variant::ClassConflicts => (class("class_rows_2d"), class("class_columns_2d")),
        Variant::ClassSeparable => (class("class_rows"), class("class_columns")),
        Variant::ClassSteps => {
            let ((width, lines), (lanes, height)) = (STEPS_ROWS_BLOCK, STEPS_COLUMNS_BLOCK);
            (
                Pass {
                    entry: "steps_rows",
                    tile: (STEPS * width, lines),
                    block: STEPS_ROWS_BLOCK,
                    floats: lines * (STEPS + 2) * width,
                },
                Pass {
                    entry: "steps_columns",
                    tile: (lanes, STEPS * height),
                    block: STEPS_COLUMNS_BLOCK,
                    floats: lanes * ((STEPS + 2) * height + 1),
                },
            )
        }
        Variant::PaperLooped => paper("paper_rows", "paper_columns"),
        Variant::PaperTexture => {
            let block = (TEXTURE_BLOCK.0 as i32, TEXTURE_BLOCK.1 as i32);
            let pass = |entry| Pass { entry, tile: block, block, floats: 0 };
            (pass(of(TEXTURE_ROWS, taps)), pass(of(TEXTURE_COLUMNS, taps)))
        }
        _ => paper(of(PAPER_ROWS, taps), of(PAPER_COLUMNS, taps)),
    }
}

/// The entry for this many taps; the variant has accepted them.
fn of(entries: &'static [(i32, &'static str)], taps: i32) -> &'static str {
    entries.iter().find(|&&(count, _)| count == taps).map_or("", |&(_, entry)| entry)
}
