//! Bytes to bytes on the tensor cores, a row and a column of taps, or the sum of two such products:
//! all as whole numbers, and the bands that are made of them; launches
//! `gpu-kernels/src/kernels/separable_matrix.rs`.

use gpu_kernels::kernels::separable_matrix::{ENTRIES, SeparableMatrix, stored_bytes};
use gpu_kernels::tile::strip::{Ring, TILE};
#[cfg(feature = "gpu")]
use gpu_kernels::{
    kernels::separable_matrix::{Across, Bands},
    tile::whole::Rounding,
};

use super::prepared::{Kernel, Prepared, Work};
#[cfg(feature = "gpu")]
use super::whole::Strips;
use super::whole::{self, GREATEST, Layout, digit};
#[cfg(feature = "gpu")]
use crate::gpu::stream::Stream;
use crate::plan::machine::{Curve, Times};
use crate::plan::problem::Problem;
use crate::{Filter, Variant, Why};

pub(super) static SEPARABLE_MATRIX: Kernel = Kernel {
    variant: Variant::SeparableMatrix,
    entries: || {
        let keep = gpu_kernels::kernels::keep::keep_edges.name();
        ENTRIES.iter().map(|entry| entry.entry.name()).chain([keep]).collect()
    },
    prepare: |problem| {
        Passes::find(problem).map(|passes| Prepared::new(Variant::SeparableMatrix, passes))
    },
    cost: |problem, machine| {
        // By products for 256 results, those of rows that tiles share counted; for one channel.
        const POINTS: Curve = &[
            (19.0, 1.5),
            (26.0, 1.5),
            (33.0, 1.6),
            (40.0, 2.4),
            (52.0, 2.6),
            (56.0, 2.9),
            (69.0, 4.2),
            (84.0, 4.8),
            (106.0, 6.0),
            (138.0, 6.8),
            (155.0, 8.7),
            (245.0, 14.0),
        ];
        // Strips that a multiprocessor needs to be busy.
        const BUSY: f64 = 12.0;
        const TIMES: Times = Times { h200: POINTS, h100: POINTS };
        let (Some(share), Ok(passes)) = (problem.numbers.terms, Passes::find(problem)) else {
            return whole::DECLINED;
        };
        let idle = (BUSY / passes.strips()).max(1.0);
        let each = idle * TIMES.on(machine, passes.products())
            + machine.slower() * problem.resolving(share);
        each.max(machine.slower() * passes.strip(problem) / problem.millions())
    },
};

/// The taps of a filter's terms, each a product of a row and a column, as multiples of powers of
/// two, for the kernel's two passes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WholeTerms {
    /// One or two.
    terms: Vec<WholeTerm>,
    /// What the sums of the second weight begin with, bits of a joined sum behind the point, and
    /// the distance from a half at which one is in doubt.
    start: i32,
    shift: i32,
    near: i32,
    /// What a value itself is multiplied by, beside the products, in units of a joined sum.
    point: i32,
}

/// A term.
#[derive(Clone, Debug, PartialEq)]
struct WholeTerm {
    row: Vec<i32>,
    column: Vec<i32>,
    joining: Joining,
}

/// A row of taps as whole numbers.
struct WholeRow {
    taps: Vec<i32>,
    /// Bits of a tap behind the point, and of a row sum as it is cut.
    tap_bits: i32,
    sum_bits: i32,
}

impl WholeRow {
    /// A single tap of 1, which is a digit of its own, and so are a row sum's greatest eight bits:
    /// the byte. The others are 0.
    fn one() -> Self {
        Self { taps: vec![1 << 22], tap_bits: 22, sum_bits: 16 }
    }

    /// With as many bits of a row sum as 24 have room for beside its range.
    fn new(row: &[f64]) -> Option<Self> {
        let greatest = greatest(row);
        let most =
            (-32..=48).rev().find(|&bits| (greatest * 2f64.powi(bits)).round() <= GREATEST)?;
        (-32..=most - 8).rev().find_map(|sum_bits| {
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

/// How a row pass's digits make a number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Joining {
    /// Its bits beyond those of the second digit's sums: 0 to 8, or more if the lower digits'
    /// are 0.
    more: i32,
    /// What is added to those.
    start: i32,
}

/// The most bits of a joined sum behind the point; and how many numbers of them are tried, from the
/// greatest on for which there is room.
const MOST_BITS: i32 = 22;
const SHIFTS: usize = 2;

/// The value in the middle of all bytes, by which what is cut off is known but for its half.
const MIDDLE: f64 = 127.5;

/// A term's taps, with its row as whole numbers.
struct Term {
    row: Vec<f64>,
    column: Vec<f64>,
    whole: WholeRow,
}

/// What a term adds to the joined sum and to its error, in units of a joined sum.
struct Part {
    error: f64,
    /// What is lost of bytes of 127.5, which is added.
    middle: f64,
    /// What it has too much, as its row sums are moved.
    moved: f64,
}

/// A row and a column of taps.
type Product = (Vec<f64>, Vec<f64>);

/// Sums of products that are the same filter, each with how far its taps may be from those of the
/// given one. Twice `r c + s d` is `(r + s)(c + d) + (r - s)(c - d)`: where two products are alike
/// but for their sign, as in a difference of Gaussians, one factor of each of the new ones is
/// small, and so is what is lost of it.
fn mixed(products: Vec<Product>) -> Vec<(Vec<Product>, f64)> {
    let mut all = Vec::with_capacity(2);
    if let [(r, c), (s, d)] = &products[..] {
        let joined = |a: &[f64], b: &[f64], factor: f64| -> Vec<f64> {
            a.iter().zip(b).map(|(a, b)| a + factor * b).collect()
        };
        let half = |taps: Vec<f64>| -> Vec<f64> { taps.into_iter().map(|tap| 0.5 * tap).collect() };
        let weight = |taps: &[f64]| taps.iter().map(|tap| tap.abs()).sum::<f64>();
        // Each tap of a factor is rounded once, and so are products and sums as they are compared.
        let lost = 8.0 * f64::EPSILON * (weight(r) + weight(s)) * (weight(c) + weight(d));
        let sums = (half(joined(r, s, 1.0)), joined(c, d, 1.0));
        all.push((vec![sums, (half(joined(r, s, -1.0)), joined(c, d, -1.0))], lost));
    }
    all.push((products, 0.0));
    all
}

impl Term {
    /// Forms of a row and a column: what the one is multiplied by, the other is divided by. Of
    /// some, more is lost as digits are left out than of others, by chance.
    fn forms(row: &[f64], column: &[f64]) -> Vec<Self> {
        /// Factors from 1 to 2: so many taps are gone through.
        const MOST: usize = 1 << 14;
        let factors = (MOST / (row.len() + column.len())).clamp(32, 1024);
        let times = |taps: &[f64], factor: f64| taps.iter().map(|&tap| factor * tap).collect();
        if let &[tap] = row {
            return vec![Self {
                row: vec![1.0],
                column: times(column, tap),
                whole: WholeRow::one(),
            }];
        }
        let form = |step: usize| {
            let factor = 2f64.powf(step as f64 / factors as f64);
            let row: Vec<f64> = times(row, factor);
            let whole = WholeRow::new(&row)?;
            Some(Self { row, column: times(column, 1.0 / factor), whole })
        };
        (0..factors).filter_map(form).collect()
    }

    /// With so many bits of a joined sum behind the point, if there is room.
    fn with_bits(&self, shift: i32) -> Option<(WholeTerm, Part)> {
        let Self { row, column, whole } = self;
        let weight = |taps: &[f64]| taps.iter().map(|tap| tap.abs()).sum::<f64>();
        let (row_weight, column_weight) = (weight(row), weight(column));
        let sum = |taps: &[i32]| taps.iter().map(|&tap| i64::from(tap)).sum::<i64>();
        let &WholeRow { taps: ref row_taps, tap_bits: row_bits, sum_bits: bits } = whole;
        let more = bits + 16 - row_bits;
        let column_bits = shift + 24 - bits;
        if greatest(column) * 2f64.powi(column_bits) > GREATEST {
            return None;
        }
        let column_taps = rounded(column, column_bits);
        // Whether row sums are whole bytes, of which nothing is cut off.
        let is_byte = row.len() == 1;
        // No number is negative: what the negative taps can make is added.
        let negative: i64 = row_taps.iter().map(|&tap| i64::from(tap.min(0))).sum();
        let moved = match is_byte {
            true => 0,
            false => (-255.0 * negative as f64 * 2f64.powi(more - 16)).ceil() as i64 + 1,
        };
        // And half of what is cut off, as far as the second digit's sums have bits for it; else the
        // column's sums take it into account.
        let half = if is_byte || more > 7 { 0 } else { 128 };
        let short = if is_byte || half > 0 { 0.0 } else { 0.5 };

        let unit = 2f64.powi(shift);
        let lost = |taps: &[f64], whole: &[i32], bits: i32| -> (f64, f64) {
            let each = || {
                taps.iter()
                    .zip(whole)
                    .map(|(tap, &whole)| tap - f64::from(whole) * 2f64.powi(-bits))
            };
            (each().sum(), each().map(f64::abs).sum())
        };
        let (row_middle, row_lost) = lost(row, row_taps, row_bits);
        let (column_middle, column_lost) = lost(column, &column_taps, column_bits);
        // What a row of bytes of 127.5 makes, over the whole taps.
        let row_sum = MIDDLE * sum(row_taps) as f64 * 2f64.powi(-row_bits);
        let (mut low_middle, mut low_range, mut cut) = (0.0, 0.0, 0.0);
        for &tap in &column_taps {
            let [lowest, second] = [0, 1].map(|i| f64::from(digit(tap, i)));
            if is_byte {
                // The other two bytes of a row sum are 0.
                continue;
            }
            low_middle += MIDDLE * (257.0 * lowest + 256.0 * second) / 2f64.powi(24);
            low_range += MIDDLE * (257.0 * lowest.abs() + 256.0 * second.abs()) / 2f64.powi(24);
            cut += (0.5 + 2f64.powi(-8)) * f64::from(tap.abs()) / 2f64.powi(24);
        }
        let part = Part {
            error: unit * MIDDLE * (column_weight * row_lost + column_lost * row_weight)
                + cut
                + low_range,
            middle: unit
                * (column.iter().sum::<f64>() * MIDDLE * row_middle + column_middle * row_sum)
                + low_middle,
            moved: (moved as f64 - short) * sum(&column_taps) as f64 / 2f64.powi(24),
        };
        let joining = Joining { start: ((256 * moved + half) >> more) as u32 as i32, more };
        Some((WholeTerm { row: row_taps.clone(), column: column_taps, joining }, part))
    }
}

impl WholeTerms {
    /// The taps of a filter for bytes, or why they have no such form.
    ///
    /// Let `r` and `c` be the taps of a term's row and column, and all of it be counted in units of
    /// a joined sum, of which `2^shift` are one step of a byte. Between a sum over the exact taps
    /// and the joined one lie, for each term:
    /// - the row's taps, rounded: `sum |c| * sum |r's error| * 127.5`, if what they do to bytes of
    ///   127.5 is added;
    /// - a row sum, cut to 24 bits: half of its last bit, and 2^-8 of it for the lowest digit's
    ///   sums that are shifted down; nothing for a row of one tap, whose sums are the bytes (the
    ///   tap itself goes to the column);
    /// - the column's taps, rounded: their error times half of the row sums' range;
    /// - the products of low digits that are left out: bytes of a row sum are 127.5 and up to as
    ///   much more or less, so half of the most that those products can be, if their middle is
    ///   added;
    ///
    /// and, once for all of them:
    /// - the lowest weight's sums, shifted down: half a unit;
    /// - the factor of a value itself, where a filter has one beside the products, rounded: its
    ///   error times half of a byte's range;
    /// - taps of a filter that are not quite the products of rows and columns.
    pub(crate) fn new(filter: &Filter) -> Result<Self, Why> {
        let terms = filter.products();
        if !(1..=MOST_TERMS).contains(&terms.len()) {
            return Err(Why::NOT_SEPARABLE);
        }
        let (point, apart) = match (filter.sum(), filter.dense_f64()) {
            (Some(sum), _) => (sum.point, crate::round::terms_loss(filter, sum)),
            (None, Some(taps)) => (0.0, crate::round::products_loss(taps, terms[0].0, terms[0].1)),
            (None, None) => (0.0, 0.0),
        };
        let (cols, rows) = (filter.cols(), filter.rows());
        if cols.max(rows) > MOST {
            return Err(format!("{cols}+{rows} taps, it takes {MOST} each way").into());
        }
        // What a joined sum can be over bytes, in units of 255; and room for taps that are not
        // quite the products.
        let weight = filter.weight() + apart;
        let pairs =
            terms.into_iter().map(|(row, column)| (row.to_vec(), column.to_vec())).collect();
        // A mean's taps are rounded to f64, and so are products of taps.
        let others = 255.0 * (apart + 4.0 * f64::EPSILON * weight);
        let with_bits = |(terms, lost): (Vec<Product>, f64)| {
            let forms: Vec<_> =
                terms.iter().map(|(row, column)| Term::forms(row, column)).collect();
            let bounds = (weight, others + 255.0 * lost);
            let of_bits = |shift| Self::with_bits(&forms, point, shift, bounds);
            (1..=MOST_BITS).rev().filter_map(of_bits).take(SHIFTS).collect::<Vec<_>>()
        };
        mixed(pairs)
            .into_iter()
            .flat_map(with_bits)
            .min_by(|a, b| a.share().total_cmp(&b.share()))
            .ok_or_else(|| "its taps are too large or too unlike each other beside the results, which are bytes".into())
    }

    /// With so many bits behind the point, if there is room, and if not too many results are in
    /// doubt. The filter's weight says how great sums are, and `others` is an error of theirs that
    /// does not depend on the bits.
    fn with_bits(
        terms: &[Vec<Term>],
        point: f64,
        shift: i32,
        (weight, others): (f64, f64),
    ) -> Option<Self> {
        // In units of a joined sum.
        let unit = 2f64.powi(shift);
        let whole_point = (point * unit).round();
        let point_lost = point * unit - whole_point;
        let mut error = MIDDLE * point_lost.abs() + 0.5 + unit * others;
        let (mut middle, mut moved_sum) = (MIDDLE * point_lost + 0.5, 0.0);
        let mut wholes = Vec::with_capacity(terms.len());
        for forms in terms {
            let (whole, part) = forms
                .iter()
                .filter_map(|term| term.with_bits(shift))
                .min_by(|(_, a), (_, b)| a.error.total_cmp(&b.error))?;
            wholes.push(whole);
            error += part.error;
            middle += part.middle;
            moved_sum += part.moved;
        }
        // All of this is in f64, and the middle is rounded.
        let error = error * (1.0 + 1e-9) + 0.51;
        let half = 2f64.powi(shift - 1);
        if error >= half / 2.0 {
            return None;
        }
        let near = error as i64 + 1;
        let start = (middle + half + near as f64 - moved_sum).round() as i64;
        // Sums on the way there may be greater: what they have too much for 32 bits is taken off
        // again.
        let greatest_sum = 255.0 * weight * unit + half + 2.0 * near as f64 + error;
        let start = i32::try_from(start).ok().filter(|_| greatest_sum < 2f64.powi(31))?;
        Some(Self { terms: wholes, start, shift, near: near as i32, point: whole_point as i32 })
    }

    /// The share of results that are in doubt if sums are spread evenly.
    pub(crate) fn share(&self) -> f64 {
        2.0 * f64::from(self.near) / 2f64.powi(self.shift)
    }

    /// The fragments of the rows, those of the columns, and what sums begin with, as
    /// `gpu-kernels/src/kernels/separable_matrix.rs` reads them.
    #[cfg(any(feature = "gpu", test))]
    fn bands(&self, passes: &Passes) -> Vec<u32> {
        let Passes { layout, terms, .. } = passes;
        let (steps, pairs, apart) = (passes.steps(), passes.pairs(), layout.apart());
        let mut words = Vec::with_capacity(FRAGMENT * (terms * steps + pairs) + 4 * (terms + 1));
        let mut fragments =
            |steps: usize,
             taps: &[i32],
             tap: &dyn Fn(usize, usize, usize, usize) -> Option<usize>| {
                for step in 0..steps {
                    for number in 0..3 {
                        for lane in 0..32 {
                            for word in 0..4 {
                                // Rows `group` and `group + 8` of the first 16 of 32 elements, then
                                // of the others.
                                let (group, turn, upper, part) =
                                    (lane / 4, lane % 4, word % 2, word / 2);
                                let byte = |i: usize| {
                                    let found = tap(group, upper, 2 * step + part, 4 * turn + i);
                                    found
                                        .and_then(|at| taps.get(at))
                                        .map_or(0, |&tap| digit(tap, number) as u8)
                                };
                                words.push(u32::from_le_bytes([0, 1, 2, 3].map(byte)));
                            }
                        }
                    }
                }
            };
        for term in &self.terms {
            fragments(steps, &term.row, &|group, upper, part, i| {
                let result = 4 * (group / 2) + 2 * upper + group % 2;
                let offset = (16 * part + i).checked_sub(layout.lead + result)?;
                (offset % apart == 0).then_some(offset / apart)
            });
        }
        let columns: Vec<_> =
            self.terms.iter().flat_map(|term| term.column.iter().copied()).collect();
        let rows = columns.len() / terms;
        fragments(pairs, &columns, &|group, upper, block, i| {
            // A lane's four rows of a block are two neighbours, and two that are 8 rows further
            // down. The blocks of two terms come in turn.
            let row = 16 * (block / terms) + 2 * (i / 4) + 8 * (i % 4 / 2) + i % 2;
            let tap = row.checked_sub(group + 8 * upper).filter(|&tap| tap < rows)?;
            Some(block % terms * rows + tap)
        });
        let starts = self.terms.iter().map(|term| term.joining.start).chain([self.start]);
        words.extend(starts.flat_map(|start| [start as u32; 4]));
        words
    }
}

/// Words of the three digits' fragments of a step.
#[cfg(any(feature = "gpu", test))]
const FRAGMENT: usize = 384;

/// The most taps of a row or a column, so that no sum of a digit overflows.
const MOST: usize = 1024;

/// The most products of a row and a column.
const MOST_TERMS: usize = 2;

/// The most steps of all row passes for which channels are never parted.
const MOST_STEPS: usize = 3;

/// The heights of strips among which the launch chooses. Taller ones share fewer rows.
const HEIGHTS: [u32; 6] = [96, 80, 64, 48, 32, 16];

/// The launch for a problem.
#[derive(Debug)]
struct Passes {
    layout: Layout,
    /// Products of a row and a column.
    terms: usize,
    /// Blocks of 16 rows that 16 rows of results need, of each term.
    blocks: usize,
    /// Whether the window's own pixel is added besides.
    point: bool,
    entry: &'static SeparableMatrix,
}

impl Passes {
    fn find(problem: &Problem) -> Result<Self, Why> {
        let channels = whole::channels(problem)?;
        let (terms, point) = (problem.terms()?, problem.sum.is_some_and(|(_, point)| point));
        if problem.numbers.terms.is_none() {
            return Err(
                "its rows and columns have no form as whole numbers: too long, or too large beside the results".into(),
            );
        }
        let [plain, apart] = [false, true].map(|parted| Layout::new(channels, parted, problem));
        // To part channels takes time for each 16 values of a row, too: measured from 9 to 101
        // taps, in pictures of 640x480 to 4096x4096.
        let parted = channels > 2
            && terms * plain.steps(1) > MOST_STEPS
            && plain.halves >= 2 * apart.halves + 2;
        let layout = if parted { apart } else { plain };
        // A block is added up at least, and one is stored.
        let (blocks, steps) = ((15 + problem.rows).div_ceil(16).max(2), layout.steps(1));
        let takes = |entry: &&SeparableMatrix| {
            (entry.blocks == 0 || entry.blocks == blocks)
                && (entry.steps == 0 || entry.steps == steps)
                && (entry.parted, entry.terms) == (layout.parts(), terms)
        };
        let entry = ENTRIES.iter().find(takes).ok_or("it has no kernel for these channels")?;
        let passes = Self { layout, terms, blocks, point, entry };
        problem.fits_shared_memory(passes.shared_bytes(&passes.ring(0)), "its rows")?;
        Ok(passes)
    }

    /// The rows of a strip. Those of all blocks are fetched, and kept as long as their values are
    /// added: results lie `anchor_y` rows below their window's first row.
    fn ring(&self, anchor_y: usize) -> Ring {
        let kept = if self.point { self.blocks - anchor_y / 16 } else { 1 };
        self.layout.ring(self.entry.tiles, kept, (16 * self.blocks - 15, anchor_y))
    }

    /// Bytes of shared memory that a block of threads needs.
    fn shared_bytes(&self, ring: &Ring) -> usize {
        // An entry for a number of blocks keeps the last ones in registers.
        let stored = if self.entry.blocks > 0 { self.blocks - 1 } else { self.blocks };
        ring.with_doubts(self.entry.waits) as usize
            + stored_bytes(self.terms * stored, self.entry.tiles)
    }

    /// Steps of a row pass: times 32 bytes that 16 results need of a row.
    fn steps(&self) -> usize {
        self.layout.steps(1)
    }

    /// Steps of the column pass.
    fn pairs(&self) -> usize {
        (self.terms * self.blocks).div_ceil(2)
    }

    /// Products for 256 results, and as many more as it takes as long to part channels as.
    fn products(&self) -> f64 {
        const PARTED: f64 = 7.0;
        /// Most strips of large pictures have as many rows.
        const HEIGHT: f64 = 96.0;
        let twice = (HEIGHT + 16.0 * (self.blocks - 1) as f64) / HEIGHT;
        let parted = if self.layout.parted { PARTED * self.layout.halves as f64 } else { 0.0 };
        6.0 * (self.terms * self.steps()) as f64 * twice + 12.0 * self.pairs() as f64 + parted
    }

    /// The most strips that a multiprocessor works on at a time, as registers allow.
    const MOST_STRIPS: f64 = 16.0;

    /// Strips that one multiprocessor of an H200 works on at a time, as its shared memory has room
    /// for them.
    fn strips(&self) -> f64 {
        const SHARED: f64 = 228.0 * 1024.0;
        const RESERVED: f64 = 1024.0;
        (SHARED / (self.shared_bytes(&self.ring(0)) as f64 + RESERVED))
            .floor()
            .clamp(1.0, Self::MOST_STRIPS)
    }

    /// Microseconds of a strip at the image's edge, and to settle few results: what a small picture
    /// takes. From an H200.
    fn strip(&self, problem: &Problem) -> f64 {
        /// For 16 rows, and for each half of 16 bytes of them, without and with parted channels;
        /// where shared memory has room for the most strips.
        const ROWS: [(f64, f64); 2] = [(0.0, 0.45), (2.2, 0.95)];
        /// For each tap.
        const SETTLED: f64 = 0.001;
        const MULTIPROCESSORS: f64 = 132.0;

        let Layout { channels, parted, halves, .. } = self.layout;
        let width = TILE as usize * if parted { 1 } else { self.entry.tiles };
        let across = (problem.width * self.layout.apart()).div_ceil(width);
        let images = problem.planes / channels;
        let strips = self.strips();
        let besides = self.blocks as f64 - 1.0;
        let rows = whole::height_of_strips(&HEIGHTS, besides, |rows| {
            (across * problem.height.div_ceil(rows as usize) * images) as f64
                / (MULTIPROCESSORS * strips)
        });
        let (group, half) = ROWS[usize::from(parted)];
        let each = (group + half * halves as f64) * Self::MOST_STRIPS / strips;
        (f64::from(rows / 16) + besides) * each + SETTLED * problem.taps()
    }
}

impl Work for Passes {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &super::prepared::Job<'_>, stream: &mut Stream) -> crate::Result<()> {
        let (whole, row) = job.taps.terms_bands(self.layout.channels, |whole| whole.bands(self))?;
        let column = row + 4 * (FRAGMENT * self.terms * self.steps()) as u64;
        let ring = self.ring(job.window.anchor_y as usize);
        let across = |term: &WholeTerm| {
            let Joining { more, .. } = term.joining;
            Across { down: (8 - more).max(0), second: 1 << more, third: 256 << more }
        };
        let bands = Bands {
            row,
            column,
            begin: column + 4 * (FRAGMENT * self.pairs()) as u64,
            steps: self.steps() as i32,
            last: if self.layout.halves.is_multiple_of(2) { 16 } else { 0 },
            blocks: self.blocks as i32,
            // The second is not looked at, if there is one alone.
            across: [0, self.terms - 1].map(|term| across(&whole.terms[term])),
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
        // SAFETY: `find` checked the limits, and the shared memory; the bands are the filter's, for
        // this problem; the pass describes allocated memory, and has a list.
        unsafe { whole::launch(self.entry.entry, bands, &strips, job, stream) }
    }

    fn takes_pixels(&self) -> bool {
        self.layout.channels > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(filter: &Filter) -> WholeTerms {
        WholeTerms::new(filter).unwrap()
    }

    /// What the kernel makes of a window of bytes, row by row: the joined sum, by its own
    /// arithmetic.
    fn joined(whole: &WholeTerms, window: &[u8]) -> i32 {
        let mut sums = [0, whole.start];
        let mut greatest = 0;
        for term in &whole.terms {
            for (line, &down) in window.chunks(term.row.len()).zip(&term.column) {
                let digits = |number: u32| -> i32 {
                    line.iter()
                        .zip(&term.row)
                        .map(|(&byte, &tap)| i32::from(byte) * i32::from(digit(tap, number)))
                        .sum()
                };
                let Joining { more, start } = term.joining;
                let lower = (digits(1).wrapping_add(start) << more)
                    .wrapping_add(digits(0) >> (8 - more).max(0));
                let number = (digits(2).wrapping_mul(256 << more)).wrapping_add(lower) as u32;
                // Not beyond 32 bits, nor negative: the sum itself says so.
                let exact: i64 = line
                    .iter()
                    .zip(&term.row)
                    .map(|(&byte, &tap)| i64::from(byte) * i64::from(tap))
                    .sum();
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
        }
        let centre = window[window.len() / 2];
        sums[1]
            .wrapping_add(sums[0] >> 8)
            .wrapping_add(greatest << 8)
            .wrapping_add(whole.point * i32::from(centre))
    }

    #[test]
    fn joined_sums_are_as_near_as_the_bound_says() {
        let mut state = 1u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
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
            "log:sigma=1.5",
            "dog:sigma=1",
            "dog:sigma=2",
            "taps:0.25;0.5;-0.25;0.4",
            "taps:0.9 0.05 0.05",
            "box:cols=1,rows=9",
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
                            if digit(pair.terms[0].row[i % cols], 0) > 0 {
                                255
                            } else {
                                0
                            }
                        }
                        3 => {
                            if digit(pair.terms[0].column[i / cols], 0) > 0 {
                                255
                            } else {
                                0
                            }
                        }
                        _ => random(),
                    })
                    .collect();
                let exact: f64 =
                    (0..count).map(|i| filter.tap(i / cols, i % cols) * f64::from(window[i])).sum();
                let unit = 2f64.powi(pair.shift);
                let off = f64::from(joined(&pair, &window))
                    - (exact * unit + unit / 2.0 + f64::from(pair.near));
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
        for text in ["taps:1e9", "box:cols=3,rows=1025", "box:cols=1025,rows=1", "sharpen"] {
            assert!(WholeTerms::new(&text.parse().unwrap()).is_err(), "{text}");
        }
    }
}
