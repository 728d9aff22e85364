//! Bytes to bytes on the tensor cores, a row and a column of taps: both as whole numbers, and the bands that are made of them; launches
//! `gpu-kernels/src/kernels/separable_matrix.rs`.

use gpu_kernels::kernels::separable_matrix::{ENTRIES, SeparableMatrix, stored_bytes};
use gpu_kernels::tile::strip::Ring;
#[cfg(feature = "gpu")]
use gpu_kernels::{kernels::separable_matrix::Bands, tile::whole::Rounding};

use super::prepared::{Kernel, Prepared, Work};
#[cfg(feature = "gpu")]
use super::whole::Strips;
use super::whole::{self, GREATEST, Layout, digit};
#[cfg(feature = "gpu")]
use crate::gpu::stream::Stream;
use crate::plan::machine::Times;
use crate::plan::problem::Problem;
use crate::{Filter, Variant, Why};

pub(super) static SEPARABLE_MATRIX: Kernel = Kernel {
    variant: Variant::SeparableMatrix,
    entries: || {
        let keep = gpu_kernels::kernels::keep::keep_edges.name();
        ENTRIES.iter().map(|entry| entry.entry.name()).chain([keep]).collect()
    },
    prepare: |problem| Passes::find(problem).map(|passes| Prepared::new(Variant::SeparableMatrix, passes)),
    cost: |problem, machine| {
        // By products for 256 results, those of rows that tiles share counted; for one channel.
        const TIMES: Times = Times {
            h200: &[(19.0, 1.5), (26.0, 1.5), (33.0, 1.6), (40.0, 2.4), (66.0, 3.6), (96.0, 7.5)],
            h100: &[(19.0, 1.5), (26.0, 1.5), (33.0, 1.6), (40.0, 2.4), (66.0, 3.6), (96.0, 7.5)],
        };
        let (Some(share), Ok(passes)) = (problem.numbers.pair, Passes::find(problem)) else { return whole::DECLINED };
        TIMES.on(machine, passes.products()) + machine.slower() * whole::SETTLE * share * problem.taps()
    },
};

/// A row and a column of taps as multiples of powers of two, for the kernel's two passes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WholePair {
    row: Vec<i32>,
    column: Vec<i32>,
    across: Across,
    /// What the sums of the second weight begin with, bits of a joined sum behind the point, and the distance from a half at which one is in
    /// doubt.
    start: i32,
    shift: i32,
    near: i32,
    /// What a value itself is multiplied by, beside the product, in units of a joined sum.
    point: i32,
}

/// A row of taps as whole numbers.
struct WholeRow {
    taps: Vec<i32>,
    /// Bits of a tap behind the point, and of a row sum as it is cut.
    tap_bits: i32,
    sum_bits: i32,
}

impl WholeRow {
    /// With as many bits of a row sum as 24 have room for beside its range.
    fn new(row: &[f64]) -> Option<Self> {
        let greatest = greatest(row);
        let most = (-32..=48).rev().find(|&bits| (greatest * 2f64.powi(bits)).round() <= GREATEST)?;
        (-32..=most - 9).rev().find_map(|sum_bits| {
            let tap_bits = most.min(sum_bits + 16);
            let taps = rounded(row, tap_bits);
            let range: f64 = taps.iter().map(|&tap| 255.0 * f64::from(tap).abs()).sum();
            let fits = range * 2f64.powi(sum_bits - tap_bits) + 4.0 < 2f64.powi(24);
            fits.then_some(Self { taps, tap_bits, sum_bits })
        })
    }
}

/// The greatest magnitude of the taps.
fn greatest(taps: &[f64]) -> f64 {
    taps.iter().fold(0.0, |greatest: f64, tap| greatest.max(tap.abs()))
}

/// Taps as whole numbers, with so many bits behind the point.
fn rounded(taps: &[f64], bits: i32) -> Vec<i32> {
    taps.iter().map(|tap| (tap * 2f64.powi(bits)).round() as i32).collect()
}

/// How the row pass's digits make a number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Across {
    /// Its bits beyond those of the second digit's sums: 0 to 7.
    more: i32,
    /// What is added to those.
    start: i32,
}

/// The most bits of a joined sum behind the point.
const MOST_BITS: i32 = 22;

/// The value in the middle of all bytes, by which what is cut off is known but for its half.
const MIDDLE: f64 = 127.5;

impl WholePair {
    /// The taps of a filter, of whose sums those in f64 in two orders are at most `reordering` apart; or why they have no such form.
    ///
    /// Let `r` and `c` be the taps of the row and the column, and all of it be counted in units of a joined sum, of which `2^shift` are one
    /// step of a byte. Between a sum over the exact taps and the joined one lie:
    /// - the row's taps, rounded: `sum |c| * sum |r's error| * 127.5`, if what they do to bytes of 127.5 is added;
    /// - a row sum, cut to 24 bits: half of its last bit, and 2^-8 of it for the lowest digit's sums that are shifted down;
    /// - the column's taps, rounded: their error times half of the row sums' range;
    /// - the products of low digits that are left out: bytes of a row sum are 127.5 and up to as much more or less, so half of the most that
    ///   those products can be, if their middle is added;
    /// - the lowest weight's sums, shifted down: half a unit;
    /// - the factor of a value itself, where a filter has one beside the product, rounded: its error times half of a byte's range;
    /// - taps of a filter that are not quite the products of the row and the column.
    pub(crate) fn new(filter: &Filter, reordering: f64) -> Result<Self, Why> {
        let ((row, column), point, apart) = match (filter.separated(), filter.sum()) {
            (Some((row, column)), _) => {
                let apart = filter.dense_f64().map_or(0.0, |taps| crate::round::products_loss(taps, row, column));
                ((row, column), 0.0, apart)
            }
            (None, Some(sum)) if let [(row, column)] = &sum.terms[..] => {
                ((&row[..], &column[..]), sum.point, crate::round::terms_loss(filter, sum))
            }
            _ => return Err(Why::NOT_SEPARABLE),
        };
        if column.len() > MOST_ROWS || row.len() > MOST_COLS {
            let (cols, rows) = (row.len(), column.len());
            return Err(format!("{cols}+{rows} taps, it takes {MOST_COLS}+{MOST_ROWS}").into());
        }
        let whole_row = WholeRow::new(row);
        (1..=MOST_BITS)
            .rev()
            .find_map(|shift| {
                Self::with_bits((row, whole_row.as_ref()?), column, point, shift, 255.0 * apart + reordering)
            })
            .ok_or_else(|| "its taps are too large or too unlike each other beside the results, which are bytes".into())
    }

    /// With so many bits behind the point, if there is room, and if not too many results are in doubt.
    fn with_bits(
        (row, whole_row): (&[f64], &WholeRow),
        column: &[f64],
        point: f64,
        shift: i32,
        others: f64,
    ) -> Option<Self> {
        let weight = |taps: &[f64]| taps.iter().map(|tap| tap.abs()).sum::<f64>();
        let (row_weight, column_weight) = (weight(row), weight(column));
        let sum = |taps: &[i32]| taps.iter().map(|&tap| i64::from(tap)).sum::<i64>();
        let &WholeRow { taps: ref row_taps, tap_bits: row_bits, sum_bits: bits } = whole_row;
        let across = bits + 16 - row_bits;
        let column_bits = shift + 24 - bits;
        if greatest(column) * 2f64.powi(column_bits) > GREATEST {
            return None;
        }
        let column_taps = rounded(column, column_bits);
        // No number is negative: what the negative taps can make is added, and half of what is cut off.
        let negative: i64 = row_taps.iter().map(|&tap| i64::from(tap.min(0))).sum();
        let moved = (-255.0 * negative as f64 * 2f64.powi(across - 16)).ceil() as i64 + 1;

        // From here on in units of a joined sum.
        let unit = 2f64.powi(shift);
        let lost = |taps: &[f64], whole: &[i32], bits: i32| -> (f64, f64) {
            let each = || taps.iter().zip(whole).map(|(tap, &whole)| tap - f64::from(whole) * 2f64.powi(-bits));
            (each().sum(), each().map(f64::abs).sum())
        };
        let (row_middle, row_lost) = lost(row, row_taps, row_bits);
        let (column_middle, column_lost) = lost(column, &column_taps, column_bits);
        // What a row of bytes of 127.5 makes, over the whole taps.
        let row_sum = MIDDLE * sum(row_taps) as f64 * 2f64.powi(-row_bits);
        let (mut low_middle, mut low_range, mut cut) = (0.0, 0.0, 0.0);
        for &tap in &column_taps {
            let [lowest, second] = [0, 1].map(|i| f64::from(digit(tap, i)));
            low_middle += MIDDLE * (257.0 * lowest + 256.0 * second) / 2f64.powi(24);
            low_range += MIDDLE * (257.0 * lowest.abs() + 256.0 * second.abs()) / 2f64.powi(24);
            cut += (0.5 + 2f64.powi(-8)) * f64::from(tap.abs()) / 2f64.powi(24);
        }
        let whole_point = (point * unit).round();
        let point_lost = point * unit - whole_point;
        let error = unit * column_weight * MIDDLE * row_lost
            + MIDDLE * point_lost.abs()
            + cut
            + unit * column_lost * MIDDLE * row_weight
            + low_range
            + 0.5
            + unit * others;
        // All of this is in f64, and the middle is rounded.
        let error = error * (1.0 + 1e-9) + 0.51;
        let half = 2f64.powi(shift - 1);
        if error >= half / 2.0 {
            return None;
        }
        let near = error as i64 + 1;
        let middle =
            unit * (column.iter().sum::<f64>() * MIDDLE * row_middle + column_middle * row_sum) + low_middle + 0.5;
        let middle = middle + MIDDLE * point_lost;
        let moved_sum = moved as f64 * sum(&column_taps) as f64 / 2f64.powi(24);
        let start = (middle + half + near as f64 - moved_sum).round() as i64;
        let weight = row_weight * column_weight + point.abs();
        let greatest_sum = 255.0 * weight * unit + half + 2.0 * near as f64 + error;
        let start = i32::try_from(start).ok().filter(|_| greatest_sum < 2f64.powi(31))?;
        Some(Self {
            row: row_taps.clone(),
            column: column_taps,
            across: Across { start: ((256 * moved + 128) >> across) as u32 as i32, more: across },
            start,
            shift,
            near: near as i32,
            point: whole_point as i32,
        })
    }

    /// The share of results that are in doubt if sums are spread evenly.
    pub(crate) fn share(&self) -> f64 {
        2.0 * f64::from(self.near) / 2f64.powi(self.shift)
    }

    /// The fragments of the row, those of the column, and what sums begin with, as `gpu-kernels/src/kernels/separable_matrix.rs` reads them.
    #[cfg(any(feature = "gpu", test))]
    fn bands(&self, passes: &Passes) -> Vec<u32> {
        let Passes { layout, .. } = passes;
        let (steps, pairs, apart) = (passes.steps(), passes.pairs(), layout.apart());
        let mut words = Vec::with_capacity(FRAGMENT * (steps + pairs) + 8);
        let mut fragments = |steps: usize, taps: &[i32], tap: &dyn Fn(usize, usize, usize, usize) -> Option<usize>| {
            for step in 0..steps {
                for number in 0..3 {
                    for lane in 0..32 {
                        for word in 0..4 {
                            // Rows `group` and `group + 8` of the first 16 of 32 elements, then of the others.
                            let (group, turn, upper, part) = (lane / 4, lane % 4, word % 2, word / 2);
                            let byte = |i: usize| {
                                let found = tap(group, upper, 2 * step + part, 4 * turn + i);
                                found.and_then(|at| taps.get(at)).map_or(0, |&tap| digit(tap, number) as u8)
                            };
                            words.push(u32::from_le_bytes([0, 1, 2, 3].map(byte)));
                        }
                    }
                }
            }
        };
        fragments(steps, &self.row, &|group, upper, part, i| {
            let result = 4 * (group / 2) + 2 * upper + group % 2;
            let offset = (16 * part + i).checked_sub(layout.lead + result)?;
            (offset % apart == 0).then_some(offset / apart)
        });
        fragments(pairs, &self.column, &|group, upper, block, i| {
            // A lane's four rows of a block are two neighbours, and two that are 8 rows further down.
            let row = 16 * block + 2 * (i / 4) + 8 * (i % 4 / 2) + i % 2;
            row.checked_sub(group + 8 * upper)
        });
        words.extend([self.across.start; 4].map(|start| start as u32));
        words.extend([self.start; 4].map(|start| start as u32));
        words
    }
}

/// Words of the three digits' fragments of a step.
#[cfg(any(feature = "gpu", test))]
const FRAGMENT: usize = 384;

/// The most taps of a row, so that no sum of a digit overflows, and of a column, beyond which other kernels are faster.
const MOST_COLS: usize = 1024;
const MOST_ROWS: usize = 97;

/// The most steps of the row pass for which channels are not parted: to part them takes as long as two or three steps.
const MOST_STEPS: usize = 3;

/// The heights of strips among which the launch chooses. Taller ones share fewer rows.
#[cfg(feature = "gpu")]
const HEIGHTS: [u32; 6] = [96, 80, 64, 48, 32, 16];

/// The launch for a problem.
#[derive(Debug)]
struct Passes {
    layout: Layout,
    /// Blocks of 16 rows that 16 rows of results need.
    blocks: usize,
    /// Whether the window's own pixel is added besides.
    point: bool,
    entry: &'static SeparableMatrix,
}

impl Passes {
    fn find(problem: &Problem) -> Result<Self, Why> {
        let channels = whole::channels(problem)?;
        let point = matches!(problem.sum, Some((1, _)));
        if !problem.separable && !point {
            return Err(Why::NOT_SEPARABLE);
        }
        if problem.numbers.pair.is_none() {
            return Err(
                "its row and column have no form as whole numbers: too long, or too large beside the results".into()
            );
        }
        let plain = Layout::new(channels, false, problem);
        let parted = channels > 2 && plain.steps(1) > MOST_STEPS;
        let layout = if parted { Layout::new(channels, true, problem) } else { plain };
        // A block is added up at least, and one is stored.
        let (blocks, steps) = ((15 + problem.rows).div_ceil(16).max(2), layout.steps(1));
        let takes = |entry: &&SeparableMatrix| {
            (entry.blocks == 0 || entry.blocks == blocks)
                && (entry.steps == 0 || entry.steps == steps)
                && entry.parted == layout.parts()
        };
        let entry = ENTRIES.iter().find(takes).ok_or("it has no kernel for these channels")?;
        let passes = Self { layout, blocks, point, entry };
        problem.fits_shared_memory(passes.shared_bytes(&passes.ring(0)), "its rows")?;
        Ok(passes)
    }

    /// The rows of a strip. Those of all blocks are fetched, and kept as long as their values are added: results lie `anchor_y` rows below their window's
    /// first row.
    fn ring(&self, anchor_y: usize) -> Ring {
        let kept = if self.point { self.blocks - anchor_y / 16 } else { 1 };
        self.layout.ring(self.entry.tiles, kept, (16 * self.blocks - 15, anchor_y))
    }

    /// Bytes of shared memory that a block of threads needs.
    fn shared_bytes(&self, ring: &Ring) -> usize {
        // An entry for a number of blocks keeps the last one in registers.
        let stored = if self.entry.blocks > 0 { self.blocks - 1 } else { self.blocks };
        ring.shared_bytes() as usize + stored_bytes(stored, self.entry.tiles)
    }

    /// Steps of the row pass: times 32 bytes that 16 results need of a row.
    fn steps(&self) -> usize {
        self.layout.steps(1)
    }

    /// Steps of the column pass.
    fn pairs(&self) -> usize {
        self.blocks.div_ceil(2)
    }

    /// Products for 256 results.
    fn products(&self) -> f64 {
        /// Most strips of large pictures have as many rows.
        const HEIGHT: f64 = 96.0;
        let twice = (HEIGHT + 16.0 * (self.blocks - 1) as f64) / HEIGHT;
        6.0 * self.steps() as f64 * twice + 12.0 * self.pairs() as f64
    }
}

impl Work for Passes {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &super::prepared::Job<'_>, stream: &mut Stream) -> crate::Result<()> {
        let (whole, row) = job.taps.pair_bands(self.layout.channels, |whole| whole.bands(self))?;
        let column = row + 4 * (FRAGMENT * self.steps()) as u64;
        let ring = self.ring(job.window.anchor_y as usize);
        let Across { more, .. } = whole.across;
        let bands = Bands {
            row,
            column,
            begin: column + 4 * (FRAGMENT * self.pairs()) as u64,
            steps: self.steps() as i32,
            last: if self.layout.halves.is_multiple_of(2) { 16 } else { 0 },
            blocks: self.blocks as i32,
            down: 8 - more,
            second: 1 << more,
            third: 256 << more,
            point: whole.point,
            ring,
            rounding: Rounding::of_three(whole.start, whole.shift, whole.near),
        };
        let strips = Strips {
            layout: &self.layout,
            ring: &ring,
            tiles: self.entry.tiles,
            shared: self.shared_bytes(&ring) as u32,
            heights: &HEIGHTS,
            besides: self.blocks as f64 - 1.0,
        };
        // SAFETY: `find` checked the limits, and the shared memory; the bands are the filter's, for this problem; the pass describes
        // allocated memory, and has a list.
        unsafe { whole::launch(self.entry.entry, bands, &strips, job, stream) }
    }

    fn takes_pixels(&self) -> bool {
        self.layout.channels > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(filter: &Filter) -> WholePair {
        WholePair::new(filter, 1e-9).unwrap()
    }

    /// What the kernel makes of a window of bytes, row by row: the joined sum, by its own arithmetic.
    fn joined(pair: &WholePair, window: &[u8]) -> i32 {
        let mut sums = [0, pair.start];
        let mut greatest = 0;
        for (line, &down) in window.chunks(pair.row.len()).zip(&pair.column) {
            let digits = |number: u32| -> i32 {
                line.iter().zip(&pair.row).map(|(&byte, &tap)| i32::from(byte) * i32::from(digit(tap, number))).sum()
            };
            let Across { more, start } = pair.across;
            let lower = (digits(1).wrapping_add(start) << more).wrapping_add(digits(0) >> (8 - more));
            let number = (digits(2).wrapping_mul(256 << more)).wrapping_add(lower) as u32;
            // Not beyond 32 bits, nor negative: the sum itself says so.
            let exact: i64 = line.iter().zip(&pair.row).map(|(&byte, &tap)| i64::from(byte) * i64::from(tap)).sum();
            let expected = (exact << more >> 8) + (i64::from(start as u32) << more);
            assert!((0..1 << 32).contains(&expected), "{expected}");
            assert!((i64::from(number) - expected).abs() <= 1, "{number}, {expected}");
            let bytes = number.to_le_bytes();
            for d in 0..3 {
                for e in 0..3 {
                    let product = i32::from(digit(down, d as u32)) * i32::from(bytes[e + 1]);
                    match d + e {
                        2 => sums[0] += product,
                        3 => sums[1] = sums[1].wrapping_add(product),
                        4 => greatest += product,
                        _ => {}
                    }
                }
            }
        }
        let centre = window[window.len() / 2];
        sums[1].wrapping_add(sums[0] >> 8).wrapping_add(greatest << 8).wrapping_add(pair.point * i32::from(centre))
    }

    #[test]
    fn joined_sums_are_as_near_as_the_bound_says() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let mut nearest: f64 = 0.0;
        for text in [
            "gaussian:sigma=0.8",
            "gaussian:sigma=2",
            "gaussian:sigma=5",
            "box:size=7",
            "taps:-0.25 0.5 1 0.5 -0.25",
            "gaussian:sigma=12",
            "unsharp:sigma=2,amount=1.7",
            "unsharp:sigma=12",
        ] {
            let filter: Filter = text.parse().unwrap();
            let pair = whole(&filter);
            let (cols, count) = (filter.cols(), filter.cols() * filter.rows());
            for turn in 0..60 {
                // Bytes that make what is cut off as great as it can be, too.
                let window: Vec<u8> = (0..count)
                    .map(|i| match turn % 6 {
                        0 => 255,
                        1 => {
                            if filter.tap(i / cols, i % cols) > 0.0 {
                                255
                            } else {
                                0
                            }
                        }
                        2 => {
                            if digit(pair.row[i % cols], 0) > 0 {
                                255
                            } else {
                                0
                            }
                        }
                        3 => {
                            if digit(pair.column[i / cols], 0) > 0 {
                                255
                            } else {
                                0
                            }
                        }
                        _ => random(),
                    })
                    .collect();
                let exact: f64 = (0..count).map(|i| filter.tap(i / cols, i % cols) * f64::from(window[i])).sum();
                let unit = 2f64.powi(pair.shift);
                let off = f64::from(joined(&pair, &window)) - (exact * unit + unit / 2.0 + f64::from(pair.near));
                assert!(
                    off.abs() <= f64::from(pair.near) && off.abs() < unit,
                    "{text}: off by {off}, bound {}",
                    pair.near
                );
                nearest = nearest.max(off.abs() / f64::from(pair.near));
            }
            assert!(pair.share() < 4e-3, "{text}: {}", pair.share());
        }
        // A bound that nothing comes near would be worth little.
        assert!(nearest > 0.2, "{nearest}");
    }

    #[test]
    fn filters_that_have_no_such_form() {
        for text in ["taps:1e9", "box:cols=3,rows=98", "box:cols=1025,rows=1", "sharpen"] {
            assert!(WholePair::new(&text.parse().unwrap(), 1e-9).is_err(), "{text}");
        }
    }
}
