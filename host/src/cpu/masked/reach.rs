//! Which results have unknown pixels under their windows, in strips of columns.
//!
//! ```text
//! for each row of the mask, each block of columns:   what it holds     Holds
//! for each strip of results, each line under it:     the union of the blocks under its windows
//! for each row of results:                           the union of its lines, by running counts
//! ```

use std::ops::{BitOr, Range};

use super::Job;
use crate::Result;
use crate::cpu::bands;
use crate::cpu::share::share;
use crate::image::{ImageView, Pixel, Shape};
use crate::progress::Stage;
use crate::simd::{Isa, Lanes, Vectorized};
use crate::window::Window;

/// Columns whose pixels are looked at together.
const BLOCK: usize = 64;

/// Columns of results in a strip: where few pixels are unknown, few results beside those that they
/// reach are in a strip with them.
const STRIP: usize = 128;

/// What a part of a mask holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::cpu) struct Holds(u8);

impl Holds {
    const UNKNOWN: u8 = 1;
    const KNOWN: u8 = 2;
    const PARTLY: u8 = 4;

    /// Of a pixel outside the image.
    fn outside(is_known: bool) -> Self {
        Self(if is_known { Self::KNOWN } else { Self::UNKNOWN })
    }

    #[inline(always)]
    fn of(bytes: &[u8]) -> Self {
        let (mut all, mut any, mut between) = (255, 0, 0);
        for &byte in bytes {
            all &= byte;
            any |= byte;
            // 255 and 0 become 0 and 1.
            between |= byte.wrapping_add(1);
        }
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let (unknown, known) = (flag(all != 255, Self::UNKNOWN), flag(any != 0, Self::KNOWN));
        Self(unknown | known | flag(between > 1, Self::PARTLY))
    }

    /// Whether a byte is not 255.
    pub(in crate::cpu) fn has_unknown(self) -> bool {
        self.0 & Self::UNKNOWN != 0
    }

    /// Whether a byte is not 0.
    pub(super) fn has_known(self) -> bool {
        self.0 & Self::KNOWN != 0
    }

    /// Whether a byte is neither.
    pub(super) fn has_weights(self) -> bool {
        self.0 & Self::PARTLY != 0
    }
}

impl BitOr for Holds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What the blocks of a row hold.
struct Row<'a> {
    bytes: &'a [u8],
    /// Bytes of a block.
    block: usize,
    holds: &'a mut [Holds],
}

impl Vectorized for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { bytes, block, holds } = self;
        // Many rows are known as a whole, in less time than block by block.
        match Holds::of(bytes) {
            all if all.0.is_power_of_two() => holds.fill(all),
            _ => holds
                .iter_mut()
                .zip(bytes.chunks(block))
                .for_each(|(holds, bytes)| *holds = Holds::of(bytes)),
        }
    }
}

/// A rectangle of results.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tile {
    pub(super) columns: Range<usize>,
    pub(super) rows: Range<usize>,
}

/// What lies under the windows of each row of results, strip by strip.
pub(in crate::cpu) struct Reach {
    shape: Shape,
    /// Of the whole mask.
    pub(super) all: Holds,
    /// For each strip, its rows.
    strips: Vec<Vec<Holds>>,
}

impl Reach {
    /// Of a job; all pixels of its image are known if there is no mask.
    pub(super) fn new<S: Pixel>(
        isa: Isa,
        window: &Window,
        mask: Option<&ImageView<'_, u8>>,
        job: &Job<'_, S>,
        stage: &Stage<'_>,
    ) -> Result<Self> {
        let shape @ Shape { width, height, .. } = job.src.shape();
        let outside = Holds::outside(job.known.outside() != 0.0);
        let blocks = width.div_ceil(BLOCK);
        let mut holds: Vec<Holds> = crate::memory::reserve(blocks * height)?;
        holds.resize(blocks * height, Holds::outside(true));
        if let Some(mask) = mask {
            let band = bands::band(height, 1, 1, stage.cut_for());
            let rows = holds.chunks_mut(band * blocks).enumerate();
            let block = BLOCK * mask.shape().channels;
            share(stage, rows, |_: &mut (), (number, holds)| {
                for (y, holds) in (number * band..).zip(holds.chunks_exact_mut(blocks)) {
                    isa.run(Row { bytes: mask.row(y), block, holds });
                }
                Ok(())
            })?;
        }
        let lines: Vec<_> =
            (0..height + window.rows - 1).map(|line| window.row(line, 0, height)).collect();
        let strip = |number: usize| {
            let columns = number * STRIP..width.min((number + 1) * STRIP);
            let mut under: Vec<_> = (columns.start..columns.end + window.cols - 1)
                .map(|at| window.column(at, 0, width).map(|x| x / BLOCK))
                .collect();
            under.dedup();
            under.sort_unstable();
            under.dedup();
            let line = |row: &Option<usize>| match row {
                Some(y) => under
                    .iter()
                    .map(|block| block.map_or(outside, |block| holds[y * blocks + block]))
                    .fold(Holds::default(), BitOr::bitor),
                None => outside,
            };
            windows(lines.iter().map(line).collect(), window.rows)
        };
        let all = holds.iter().copied().fold(Holds::default(), BitOr::bitor);
        Ok(Self { shape, all, strips: (0..width.div_ceil(STRIP)).map(strip).collect() })
    }

    /// The share of results in a strip's row with an unknown pixel.
    pub(super) fn share(&self) -> f64 {
        let rows = self.strips.iter().flatten();
        let reached = rows.clone().filter(|holds| holds.has_unknown()).count();
        reached as f64 / rows.count() as f64
    }

    /// What lies under the windows of these columns of row `y`.
    pub(in crate::cpu) fn under(&self, columns: &Range<usize>, y: usize) -> Holds {
        self.strips[columns.start / STRIP..columns.end.div_ceil(STRIP)]
            .iter()
            .fold(Holds::default(), |all, strip| all | strip[y])
    }

    /// The columns of each strip.
    pub(in crate::cpu) fn strips(&self) -> impl Iterator<Item = Range<usize>> {
        let width = self.shape.width;
        (0..width).step_by(STRIP).map(move |x| x..width.min(x + STRIP))
    }

    /// The tiles of results with unknown pixels, of at most so many rows. Rows between are taken
    /// with them if they are fewer than `gap`.
    pub(super) fn tiles(&self, gap: usize, most: usize) -> Vec<Tile> {
        let mut tiles = Vec::new();
        for (columns, strip) in self.strips().zip(&self.strips) {
            let mut y = 0;
            while let Some(first) = (y..strip.len()).find(|&y| strip[y].has_unknown()) {
                let last = strip.len().min(first + most);
                let mut end = first + 1;
                while let Some(next) = (end..last.min(end + gap)).find(|&y| strip[y].has_unknown())
                {
                    end = next + 1;
                }
                tiles.push(Tile { columns: columns.clone(), rows: first..end });
                y = end;
            }
        }
        tiles
    }
}

/// The unions of so many lines in sequence.
fn windows(lines: Vec<Holds>, rows: usize) -> Vec<Holds> {
    /// Bits of a count of lines that hold something.
    const BITS: u32 = 32;
    let flags = [Holds::UNKNOWN, Holds::KNOWN, Holds::PARTLY];
    let ones: [u128; 8] = std::array::from_fn(|holds| {
        let of = |at: usize| u128::from(holds as u8 & flags[at] != 0) << (at as u32 * BITS);
        of(0) | of(1) | of(2)
    });
    let mut counts = 0;
    let mut found = Vec::with_capacity(lines.len() + 1 - rows);
    for (at, line) in lines.iter().enumerate() {
        counts += ones[usize::from(line.0)];
        if let Some(first) = (at + 1).checked_sub(rows) {
            let flag = |at: usize| {
                let is_some = (counts >> (at as u32 * BITS)) as u32 != 0;
                if is_some { flags[at] } else { 0 }
            };
            found.push(Holds(flag(0) | flag(1) | flag(2)));
            counts -= ones[usize::from(lines[first].0)];
        }
    }
    found
}
