//! Which results have unknown pixels under their windows, in strips of columns.
//!
//! ```text
//! for each row of the mask, each block of columns:   what it holds     Holds
//! for each strip of results, each line under it:     the union of the blocks under its windows
//! for each row of results:                           the union of its lines, by running counts
//! ```

use std::ops::{BitOr, Range};

use crate::Result;
use crate::cpu::bands;
use crate::cpu::share::share;
use crate::image::{ImageView, Shape};
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
pub(super) struct Holds(u8);

impl Holds {
    const UNKNOWN: u8 = 1;
    const KNOWN: u8 = 2;
    const PARTLY: u8 = 4;

    /// Of a pixel outside the image.
    pub(super) fn outside(is_known: bool) -> Self {
        Self(if is_known { Self::KNOWN } else { Self::UNKNOWN })
    }

    /// Of some bytes: a vector of the greatest and of the least.
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
    pub(super) fn has_unknown(self) -> bool {
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
        let blocks = self.bytes.chunks(self.block);
        self.holds.iter_mut().zip(blocks).for_each(|(holds, bytes)| *holds = Holds::of(bytes));
    }
}

/// A rectangle of results.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tile {
    pub(super) columns: Range<usize>,
    pub(super) rows: Range<usize>,
}

/// What lies under the windows of each row of results, strip by strip.
pub(super) struct Reach {
    shape: Shape,
    /// Of the whole mask.
    pub(super) all: Holds,
    /// For each strip, its rows.
    strips: Vec<Vec<Holds>>,
}

impl Reach {
    pub(super) fn new(
        isa: Isa,
        window: &Window,
        mask: &ImageView<'_, u8>,
        outside: Holds,
        stage: &Stage<'_>,
    ) -> Result<Self> {
        let shape @ Shape { width, height, channels } = mask.shape();
        let blocks = width.div_ceil(BLOCK);
        let mut holds: Vec<Holds> = crate::memory::reserve(blocks * height)?;
        holds.resize(blocks * height, Holds::default());
        let band = bands::band(height, 1, 1, stage.cut_for());
        let rows = holds.chunks_mut(band * blocks).enumerate();
        share(stage, rows, |_: &mut (), (number, holds)| {
            for (y, holds) in (number * band..).zip(holds.chunks_exact_mut(blocks)) {
                isa.run(Row { bytes: mask.row(y), block: BLOCK * channels, holds });
            }
            Ok(())
        })?;
        let strip = |number: usize| {
            let columns = number * STRIP..width.min((number + 1) * STRIP);
            let mut under: Vec<_> = (columns.start..columns.end + window.cols - 1)
                .map(|at| window.column(at, 0, width).map(|x| x / BLOCK))
                .collect();
            under.dedup();
            under.sort_unstable();
            under.dedup();
            let line = |line: usize| match window.row(line, 0, height) {
                Some(y) => under
                    .iter()
                    .map(|block| block.map_or(outside, |block| holds[y * blocks + block]))
                    .fold(Holds::default(), BitOr::bitor),
                None => outside,
            };
            windows((0..height + window.rows - 1).map(line), window.rows)
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
    pub(super) fn under(&self, columns: &Range<usize>, y: usize) -> Holds {
        self.strips[columns.start / STRIP..columns.end.div_ceil(STRIP)]
            .iter()
            .fold(Holds::default(), |all, strip| all | strip[y])
    }

    /// The columns of row `y` in strips with an unknown pixel under a window.
    pub(super) fn unknown(&self, y: usize) -> impl Iterator<Item = Range<usize>> {
        let strips =
            (0..self.strips.len()).filter(move |&strip| self.strips[strip][y].has_unknown());
        strips.map(|strip| self.columns(strip))
    }

    /// The columns of a strip.
    fn columns(&self, strip: usize) -> Range<usize> {
        strip * STRIP..self.shape.width.min((strip + 1) * STRIP)
    }

    /// The tiles of results with unknown pixels, of at most so many rows. Rows between are taken
    /// with them if they are fewer than `gap`.
    pub(super) fn tiles(&self, gap: usize, most: usize) -> Vec<Tile> {
        let mut tiles = Vec::new();
        for (number, strip) in self.strips.iter().enumerate() {
            let columns = self.columns(number);
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
fn windows(lines: impl Iterator<Item = Holds>, rows: usize) -> Vec<Holds> {
    let lines: Vec<Holds> = lines.collect();
    let flags = [Holds::UNKNOWN, Holds::KNOWN, Holds::PARTLY];
    let mut counts = [0usize; 3];
    let mut found = Vec::with_capacity(lines.len() + 1 - rows);
    for (at, line) in lines.iter().enumerate() {
        let leaving = at.checked_sub(rows).map_or(Holds::default(), |at| lines[at]);
        let mut all = 0;
        for (count, flag) in counts.iter_mut().zip(flags) {
            *count += usize::from(line.0 & flag != 0);
            *count -= usize::from(leaving.0 & flag != 0);
            all |= if *count != 0 { flag } else { 0 };
        }
        if at + 1 >= rows {
            found.push(Holds(all));
        }
    }
    found
}
