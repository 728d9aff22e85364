//! Computes in f64 the bytes that f32 sums leave in doubt: launches `settle.rs`, `wide.rs`, `ties.rs`, `means.rs` or `padded.rs` in `gpu-kernels/src/kernels`.

use gpu_kernels::abi::{Doubts, Pass, Plane, Region, Strides, scalar};
use gpu_kernels::kernels::alike::{self, Alike};
use gpu_kernels::kernels::counted::{self, Counts};
use gpu_kernels::kernels::means::{self, Mean, Ties};
use gpu_kernels::kernels::padded::{BEYOND, BLOCK, Padded, TILE, pad_bytes, settle_padded};
use gpu_kernels::kernels::{settle, ties, wide};
use gpu_kernels::tile::flat::takes_outside;

use super::keep;
use super::prepared::Job;
use super::uncertain::Uncertainty;
use crate::Result;
use crate::gpu::{launch::Grid, stream::Stream};
use crate::plan::choose::are_many;

/// Blocks of `settle_padded` and `settle_means` on a multiprocessor: as many as have room.
const PADDED_BLOCKS: u32 = 2;
const MEANS_BLOCKS: u32 = 3;

/// Taps of a mean from which on it is worth to look where rows repeat: ties of smaller ones take hardly longer than that.
const ALIKE_FROM: i32 = 1 << 12;

/// Settles the results in the list of the job's pass, whose channels are those that are filtered. There may be so many bytes of scratch.
pub(crate) fn launch(job: &Job<'_>, uncertainty: &Uncertainty, room: usize, stream: &mut Stream) -> Result<()> {
    let grid = |block: (u32, u32), shared| Grid {
        blocks: (Doubts::SEGMENTS as u32, 1, 1),
        block: (block.0, block.1, 1),
        shared,
    };
    let multiprocessors = stream.gpu().info().multiprocessors;
    let filling = |block, each, shared| Grid { blocks: (each * multiprocessors, 1, 1), ..grid(block, shared) };
    let planes = job.planes as i32;
    // SAFETY: the kernels take any number of such blocks; the pass has a list, and describes allocated memory.
    unsafe {
        let count = job.window.cols * job.window.rows;
        let region = &job.pass.region;
        let results = i64::from(region.x1 - region.x0) * i64::from(region.y1 - region.y0) * i64::from(planes);
        // Such kernels count bytes from one pixel of a row to another in 32 bits.
        let row = i64::from(job.pass.width) * i64::from(job.pass.src.pixel);
        let is_mean = count >= means::LEAST
            && i32::try_from(row).is_ok()
            && results <= i64::from(i32::MAX)
            && takes_outside(scalar::U8, job.pass.border, job.pass.outside);
        let equal = job.taps.filter().equal_tap().filter(|&tap| tap > 0.0 && is_mean);
        if let (true, Some(tap)) = (uncertainty.ties, equal) {
            // Rounded down by more than sums of products can be rounded up.
            let chunks = (1.0 - 1e-6) / (f64::from(means::BRIGHTEST) * tap);
            let (rows, columns) = ((job.pass.src.first_row, job.pass.src.end_row), job.pass.width);
            let seen = (count >= ALIKE_FROM).then(|| Alike::new((0, rows.0), (columns, rows.1), region.y1 - region.y0));
            let choice = seen.map(|seen| Choice { seen, most: most(job.pass.doubts.capacity), sorts: false });
            let memory = stream.scratch(Counts::BYTES + choice.map_or(0, |choice| choice.bytes(job)))?;
            let (counts, alike) = count_doubts(job, memory, (choice, memory + Counts::BYTES as u64), stream)?;
            find_alike(job, alike, counts, stream)?;
            let ties = if uncertainty.counted { job.taps.ties() } else { Ties::NONE };
            choose_different(job, (alike, ties), counts, stream)?;
            let arguments = (job.pass, job.window, Mean { tap, chunks, alike }, planes, counts);
            return stream.enqueue(means::settle_means, filling(means::BLOCK, MEANS_BLOCKS, means::SHARED), &arguments);
        }
        let taps = job.taps.exact_in_memory()?;
        if uncertainty.ties {
            let arguments = (job.pass, job.window, taps, planes);
            return stream.enqueue(ties::settle_ties, grid(ties::BLOCK, ties::SHARED), &arguments);
        }
        if count >= wide::LEAST {
            let many = are_many(uncertainty.share(), f64::from(count));
            if let Some((from, counts, alike)) = if many { pad(job, room, stream)? } else { None } {
                choose_different(job, (alike, Ties::NONE), counts, stream)?;
                let digits = job.taps.digits_in_memory()?;
                let padded = Padded {
                    from,
                    counts,
                    alike,
                    digits: digits.address,
                    unit: digits.unit,
                    point: digits.point,
                    error: digits.error,
                };
                let grid = filling(wide::BLOCK, PADDED_BLOCKS, wide::SHARED);
                return stream.enqueue(settle_padded, grid, &(job.pass, job.window, taps, planes, padded));
            }
            let arguments = (job.pass, job.window, taps, uncertainty.reordering, planes);
            return stream.enqueue(wide::settle_wide, grid(wide::BLOCK, wide::SHARED), &arguments);
        }
        let arguments = (job.pass, job.window, taps, uncertainty.reordering, planes);
        stream.enqueue(settle::settle, grid(settle::BLOCK, settle::SHARED), &arguments)
    }
}

/// Counts the results in the list, and makes a copy of what the job's windows meet, in at most so many bytes of the stream's scratch: none if they are too few, or something
/// outside the image is no byte. Finds, too, where rows of the copy repeat, if there is room for that.
fn pad(job: &Job<'_>, room: usize, stream: &mut Stream) -> Result<Option<(Plane, Counts, Alike)>> {
    let Job { pass, window, .. } = job;
    let region = Region {
        x0: pass.region.x0 - window.anchor_x,
        y0: pass.region.y0 - window.anchor_y,
        x1: pass.region.x1 - window.anchor_x + window.cols - 1 + BEYOND,
        y1: pass.region.y1 - window.anchor_y + window.rows - 1,
    };
    let left = region.aligned_left();
    let (row, rows) = (((region.x1 - left) as usize).next_multiple_of(128), (region.y1 - region.y0) as usize);
    let plane = row.saturating_mul(rows);
    let bytes = plane.saturating_mul(job.planes as usize).saturating_add(Counts::BYTES);
    if bytes > room.min(i32::MAX as usize) || !takes_outside(scalar::U8, pass.border, pass.outside) {
        return Ok(None);
    }
    let seen = Alike::new((left, region.y0), (region.x1, region.y1), pass.region.y1 - pass.region.y0);
    // Of a small picture there may be less room than the list has places.
    let places = Counts::most_sorted(room.saturating_sub(bytes + seen.bytes(job.planes)));
    let choice = Some(Choice { seen, most: most(pass.doubts.capacity).min(places), sorts: true })
        .filter(|choice| choice.most > 0);
    let memory = stream.scratch(bytes + choice.map_or(0, |choice| choice.bytes(job)))?;
    let (counts, alike) = count_doubts(job, memory, (choice, memory + bytes as u64), stream)?;
    let image = plane as i64 * i64::from(job.channels);
    let strides = Strides { row: row as i64, pixel: 1, channel: plane as i64, image };
    let start = counts.at.wrapping_add(Counts::BYTES as u64).wrapping_sub(left as i64 as u64);
    let dst = Plane::new(scalar::U8, start, strides, job.channels, (region.y0, region.y1));
    let (channels, planes) = (job.channels as i32, job.planes as i32);
    let grid = Grid::covering(&region, left, TILE, BLOCK);
    let grid = stream.gpu().fitting(grid, job.planes.div_ceil(job.channels));
    let copied = Pass { dst, region, ..keep::left_out(*pass) };
    // SAFETY: the kernel takes any grid of such blocks; the pass describes allocated memory, the copy with rows that begin at multiples of 128 bytes.
    unsafe { stream.enqueue(pad_bytes, grid, &(copied, channels, planes, counts, alike))? };
    Ok(Some((dst, counts, alike)))
}

/// How results in doubt are chosen that are to be computed: the pixels that are looked at, and how many results may be in doubt at most for that.
#[derive(Clone, Copy)]
struct Choice {
    seen: Alike,
    most: usize,
    /// Whether they are sorted: not those of means, which it takes longer than it spares.
    sorts: bool,
}

impl Choice {
    /// Bytes for that: what is found where rows repeat, then a list of those that are chosen.
    fn bytes(&self, job: &Job<'_>) -> usize {
        self.seen.bytes(job.planes) + Counts::bytes_chosen(self.most, self.sorts)
    }
}

/// The most results in doubt of which some are chosen, for a list with so many places in each segment. There are more if these did not suffice.
fn most(places: u32) -> usize {
    /// A list of 16 MiB, and marks of two.
    const GREATEST: usize = 1 << 20;
    (Doubts::SEGMENTS as usize * places as usize).min(GREATEST)
}

/// Bytes beside the list of results in doubt, of so many results, that are needed to settle those of large means: about as many, as the image's size decides it.
pub(crate) fn beside(taps: usize, uncertainty: &Uncertainty, results: usize) -> u64 {
    if !uncertainty.ties || taps < ALIKE_FROM as usize {
        return 0;
    }
    let list = Counts::bytes_chosen(most(uncertainty.places(results, Doubts::SEGMENTS as usize)), false);
    // A word for 256 results, and a byte for 4096 pixels; where a row or a column of tiles is not full, more.
    (Counts::BYTES + list + results / 32) as u64
}

/// Counts the results in the list of the job's pass, in [`Counts::BYTES`] of memory. What is needed to choose some comes from an address on.
fn count_doubts(
    job: &Job<'_>,
    memory: u64,
    (choice, behind): (Option<Choice>, u64),
    stream: &mut Stream,
) -> Result<(Counts, Alike)> {
    let alike = choice.map_or(Alike::NONE, |choice| choice.seen.found_at(behind, job.planes));
    let counts = Counts::of_all(memory);
    let counts = choice.map_or(counts, |Choice { seen, most, sorts }| {
        counts.choosing(behind + seen.bytes(job.planes) as u64, most, sorts)
    });
    let (width, height) = counted::BLOCK;
    let grid = Grid { blocks: (1, 1, 1), block: (width, height, 1), shared: counted::SHARED };
    // SAFETY: that is the kernel's block; the pass has a list, and the memory room for the counts.
    unsafe { stream.enqueue(counted::count_doubts, grid, &(job.pass, job.planes as i32, counts))? };
    Ok((counts, alike))
}

/// Looks where rows of the job's pixels repeat, if there is memory for what it finds.
fn find_alike(job: &Job<'_>, alike: Alike, counts: Counts, stream: &mut Stream) -> Result<()> {
    if alike.at == 0 {
        return Ok(());
    }
    let (width, height) = alike::BLOCK;
    let blocks = (alike.across as u32, (alike.down as u32).div_ceil(height), 1);
    let grid = Grid { blocks, block: (width, height, 1), shared: 0 };
    let grid = stream.gpu().fitting(grid, job.planes);
    // SAFETY: the kernel takes any grid of such blocks that has as many columns as there are tiles; the plane describes allocated memory, and there is room for what is found.
    unsafe { stream.enqueue(alike::find_alike, grid, &(job.pass, job.pass.src, alike, counts)) }
}

/// Chooses the results in doubt that are to be computed, and sorts them if that is asked for, if there is memory for that. With these bytes, ties under windows of two values are settled.
fn choose_different(job: &Job<'_>, (alike, ties): (Alike, Ties), counts: Counts, stream: &mut Stream) -> Result<()> {
    /// Blocks on a multiprocessor: as many as have room.
    const BLOCKS: u32 = 8;
    if alike.at == 0 {
        return Ok(());
    }
    let (width, height) = alike::BLOCK;
    let blocks = (BLOCKS * stream.gpu().info().multiprocessors, 1, 1);
    let grid = Grid { blocks, block: (width, height, 1), shared: 0 };
    let (sort_width, sort_height) = counted::SORT_BLOCK;
    let sorting = Grid { blocks, block: (sort_width, sort_height, 1), shared: counted::SORT_SHARED };
    let arguments = (job.pass, job.window, job.planes as i32, alike, counts, ties);
    // SAFETY: the kernels take any number of such blocks; the pass describes allocated memory, and the list has room for as many results as are counted.
    unsafe {
        stream.enqueue(alike::choose_different, grid, &arguments)?;
        if counts.tiles == 0 {
            return Ok(());
        }
        stream.enqueue(counted::sort_chosen, sorting, &(job.pass, job.window, job.planes as i32, counts))
    }
}
