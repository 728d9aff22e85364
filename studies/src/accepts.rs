//! The limits of each study: problems that its document describes, and little else.

use std::ops::RangeInclusive;

use apron::{Border, Shape};
use study_kernels::abi::MAX_CONSTANT_TAPS;
use study_kernels::sizes::CLASS_BLOCK;

use crate::Problem;

/// Threads along each side of the blocks of several studies.
pub(crate) const SIDE: usize = CLASS_BLOCK as usize;

/// Whether a study's document has the border.
fn bordered(problem: &Problem<'_>, has: fn(Border) -> bool, which: &str) -> Result<(), String> {
    if has(problem.border) {
        Ok(())
    } else {
        Err(format!("the border is {}, but supported is {which}", problem.border))
    }
}

fn constant(problem: &Problem<'_>) -> Result<(), String> {
    bordered(problem, |border| matches!(border, Border::Constant(_)), "only constant")
}

/// Whether the window is square, of an odd size in this range, with its anchor in the middle.
fn square(problem: &Problem<'_>, sizes: RangeInclusive<usize>) -> Result<(), String> {
    let (cols, rows) = (problem.filter.cols(), problem.filter.rows());
    let (least, most) = (sizes.start(), sizes.end());
    if cols != rows || cols % 2 == 0 || !sizes.contains(&cols) {
        let to =
            if least == most { String::new() } else { format!(", and odd sizes to {most}x{most}") };
        return Err(format!("{cols}x{rows} taps, but only {least}x{least}{to} are supported"));
    }
    let (x, y) = problem.filter.anchor();
    if (x, y) == (cols / 2, rows / 2) {
        Ok(())
    } else {
        Err(format!("the anchor is {x},{y}, not the middle"))
    }
}

/// Whether a grid of blocks of `rows` rows covers the image.
fn covered(problem: &Problem<'_>, rows: usize) -> Result<(), String> {
    let (height, most) = (problem.shape.height, rows * 65535);
    if height <= most { Ok(()) } else { Err(format!("{height} rows, a grid covers {most}")) }
}

fn separates(problem: &Problem<'_>) -> Result<(), String> {
    if problem.filter.is_separable() { Ok(()) } else { Err("the filter is not separable".into()) }
}

/// Whether the pixels of a block and their apron fit in shared memory.
fn tile_fits(problem: &Problem<'_>, width: usize, height: usize) -> Result<(), String> {
    let (cols, rows, most) = (problem.filter.cols(), problem.filter.rows(), problem.shared_memory);
    let bytes = 4 * (cols + width - 1) * (rows + height - 1);
    if bytes <= most {
        Ok(())
    } else {
        Err(format!(
            "a tile for {cols}x{rows} taps needs {bytes} bytes of shared memory, a block has {most}"
        ))
    }
}

/// Whether a launch can pass all taps by value.
fn carried(problem: &Problem<'_>) -> Result<(), String> {
    let taps = problem.filter.cols() * problem.filter.rows();
    if taps <= MAX_CONSTANT_TAPS {
        Ok(())
    } else {
        Err(format!("{taps} taps, a launch carries {MAX_CONSTANT_TAPS}"))
    }
}

pub(crate) fn any_block(problem: &Problem<'_>) -> Result<(), String> {
    // Benchmarks try blocks of a single row.
    covered(problem, 1)
}

pub(crate) fn any_block_carried(problem: &Problem<'_>) -> Result<(), String> {
    carried(problem).and_then(|()| any_block(problem))
}

pub(crate) fn blog(problem: &Problem<'_>) -> Result<(), String> {
    carried(problem)?;
    bordered(problem, |border| border != Border::Keep, "all others")?;
    // Benchmarks try blocks of up to 32 x 32 threads.
    tile_fits(problem, 32, 32)?;
    any_block(problem)
}

pub(crate) fn blog_unrolled(problem: &Problem<'_>) -> Result<(), String> {
    square(problem, 5..=5).and_then(|()| blog(problem))
}

pub(crate) fn class(problem: &Problem<'_>) -> Result<(), String> {
    class_of(problem, SIDE)
}

pub(crate) fn class_steps(problem: &Problem<'_>) -> Result<(), String> {
    class_of(problem, 4)
}

fn class_of(problem: &Problem<'_>, rows: usize) -> Result<(), String> {
    separates(problem)?;
    square(problem, 17..=17)?;
    constant(problem)?;
    covered(problem, rows)
}

pub(crate) fn class_shared(problem: &Problem<'_>) -> Result<(), String> {
    class(problem).and_then(|()| short_indices(problem, i32::MAX as usize))
}

pub(crate) fn class_mul24(problem: &Problem<'_>) -> Result<(), String> {
    class(problem).and_then(|()| short_indices(problem, (1 << 23) - 32))
}

/// Whether indices into a plane are below 2^31, and the stride and the number of rows are at most
/// `most`.
fn short_indices(problem: &Problem<'_>, most: usize) -> Result<(), String> {
    let Shape { width, height, channels } = problem.shape;
    // With row-interleaved planes, all planes lie within a stride.
    let stride = width.next_multiple_of(32) * channels;
    if stride.max(height) <= most && stride * height <= i32::MAX as usize {
        Ok(())
    } else {
        Err(format!("{width}x{height} pixels are too many for its short indices"))
    }
}

pub(crate) fn paper(problem: &Problem<'_>) -> Result<(), String> {
    separates(problem)?;
    square(problem, 3..=33)?;
    constant(problem)?;
    covered(problem, 1)
}

pub(crate) fn texture(problem: &Problem<'_>) -> Result<(), String> {
    separates(problem)?;
    square(problem, 3..=33)?;
    let has = |border| matches!(border, Border::Constant(_) | Border::Replicate);
    bordered(problem, has, "constant and replicate")?;
    // The limits of every GPU since compute capability 5.0.
    let (most_wide, most_high) = (131_072, 65_000);
    let Shape { width, height, channels } = problem.shape;
    if channels > 1 || width > most_wide || height > most_high {
        return Err(format!(
            "{} pixels, a texture takes {most_wide}x{most_high} in one channel",
            problem.shape
        ));
    }
    Ok(())
}

pub(crate) fn idle(problem: &Problem<'_>) -> Result<(), String> {
    threads(problem, (SIDE + problem.filter.cols() - 1) * (SIDE + problem.filter.rows() - 1))
}

pub(crate) fn half_idle(problem: &Problem<'_>) -> Result<(), String> {
    threads(problem, SIDE * (SIDE + problem.filter.rows() - 1))
}

pub(crate) fn busy(problem: &Problem<'_>) -> Result<(), String> {
    threads(problem, SIDE * SIDE)
}

fn threads(problem: &Problem<'_>, threads: usize) -> Result<(), String> {
    if threads > 1024 {
        return Err(format!("it needs {threads} threads for a tile, a block has 1024"));
    }
    carried(problem)?;
    constant(problem)?;
    tile_fits(problem, SIDE, SIDE)?;
    covered(problem, SIDE)
}

pub(crate) fn strip(problem: &Problem<'_>) -> Result<(), String> {
    square(problem, 3..=33)?;
    bordered(problem, |border| border == Border::Keep, "only keep")?;
    let columns = problem.shape.width * problem.shape.channels;
    if columns > 1 << 30 {
        return Err(format!("{columns} columns in all channels, the limit is 2^30"));
    }
    covered(problem, SIDE)
}

pub(crate) fn line(problem: &Problem<'_>) -> Result<(), String> {
    let (cols, rows, anchor) =
        (problem.filter.cols(), problem.filter.rows(), problem.filter.anchor().0);
    if (cols, rows, anchor) != (5, 1, 2) {
        return Err(format!(
            "{cols}x{rows} taps with anchor {anchor}, but only 5x1 with anchor 2 is supported"
        ));
    }
    constant(problem)?;
    covered(problem, 1)
}
