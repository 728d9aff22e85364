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

use super::cost::{DECLINED, LAUNCH, resolving_launches};
use super::prepared::{Kernel, Launcher, Prepared};
#[cfg(feature = "gpu")]
use super::strip::Strips;
use super::strip::{self, Layout};
use super::uncertain::resolving;
#[cfg(feature = "gpu")]
use crate::gpu::stream::Stream;
use crate::problem::Problem;
use crate::problem::machine::{Bound, Machine, Time, Times};
#[cfg(feature = "gpu")]
use crate::whole::{
    digit,
    products::{Joining, ProductDigits, TermDigits},
};
use crate::{Variant, Why};

pub(super) static SEPARABLE_MATRIX: Kernel = Kernel {
    variant: Variant::SeparableMatrix,
    entries: || {
        let keep = gpu_kernels::kernels::keep::keep_edges.name();
        ENTRIES.iter().map(|entry| entry.entry.name()).chain([keep]).collect()
    },
    prepare: |problem| {
        MatrixPasses::find(problem).map(|passes| Prepared::new(Variant::SeparableMatrix, passes))
    },
    time: |problem, machine| {
        // By products for 256 results, rows that tiles share included; one channel.
        const TIMES: Times = Times(
            Bound::Floats,
            &[
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
            ],
        );
        // The first strip: small pictures have few.
        const FIRST: Time = Time::start(8.0);
        // Multiply-adds of 8-bit integers for a result, in a product for 256.
        const PRODUCTS: f64 = 16.0;
        // Strips that keep a multiprocessor busy.
        const BUSY: f64 = 12.0;
        let (Some(share), Ok(passes)) = (problem.numbers.terms, MatrixPasses::find(problem)) else {
            return DECLINED;
        };
        let idle = (BUSY / passes.strips(machine)).max(1.0);
        let products = passes.products();
        let each = TIMES.on(machine, problem.bytes(), products) * idle;
        let each = each.or(machine.products(PRODUCTS * products)) + resolving(problem, share);
        let strip = machine.time(Bound::Floats, 0.0, passes.strip(problem, machine));
        let launches = resolving_launches(problem, share);
        LAUNCH + FIRST + launches + (each * problem.millions()).or(strip)
    },
    rule: |_| Ok(()),
};

#[cfg(feature = "gpu")]
impl ProductDigits {
    /// The fragments of the rows, those of the columns, and what sums begin with, as
    /// `gpu-kernels/src/kernels/separable_matrix.rs` reads them.
    #[cfg(feature = "gpu")]
    pub(crate) fn fragments(&self, passes: &MatrixPasses) -> Vec<u32> {
        let MatrixPasses { layout, terms, .. } = passes;
        let (steps, pairs, apart) = (passes.steps(), passes.pairs(), layout.value_stride());
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
            // A lane's four rows of a block are two neighbours and the two 8 rows further down. The
            // blocks of two terms alternate.
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
#[cfg(feature = "gpu")]
const FRAGMENT: usize = 384;

/// Up to so many steps of all row passes, channels are never split.
const MAX_STEPS: usize = 3;

/// The heights that a launch may choose for strips. Higher strips share fewer rows.
const HEIGHTS: [u32; 6] = [96, 80, 64, 48, 32, 16];

/// The launch for a problem.
#[derive(Debug)]
pub(crate) struct MatrixPasses {
    pub(crate) layout: Layout,
    /// Products of a row and a column.
    terms: usize,
    /// Blocks of 16 rows that 16 rows of results need, of each term.
    blocks: usize,
    /// Whether a multiple of the pixel itself is added.
    point: bool,
    pub(crate) entry: &'static SeparableMatrix,
}

impl MatrixPasses {
    fn find(problem: &Problem) -> Result<Self, Why> {
        let channels = strip::channels(problem)?;
        if problem.numbers.terms.is_none() {
            return Err(
                "its rows and columns cannot be scaled to integers: too long, or too large for u8 results".into(),
            );
        }
        let (terms, point) = (problem.terms()?, problem.sum.is_some_and(|(_, point)| point));
        let size = (problem.cols, problem.rows);
        let passes = Self::of(channels, size, problem.anchor_x, (terms, point), |_| true)?;
        problem.fits_shared_memory(passes.shared_bytes(&passes.ring(0)), "its rows")?;
        Ok(passes)
    }

    /// For a window of so many columns and rows, with its anchor in a column, and for so many
    /// products, perhaps with a multiple of the pixel itself: the first of the entries that serve.
    pub(crate) fn of(
        channels: usize,
        (cols, rows): (usize, usize),
        anchor_x: usize,
        (terms, point): (usize, bool),
        serves: impl Fn(&SeparableMatrix) -> bool,
    ) -> Result<Self, Why> {
        let [plain, apart] =
            [false, true].map(|planar| Layout::new(channels, planar, (cols, anchor_x)));
        // Splitting channels takes time for each 16 values of a row: measured with 9 to 101 taps,
        // on 640x480 to 4096x4096 pixels.
        let planar = channels > 2
            && terms * plain.steps(1) > MAX_STEPS
            && plain.halves >= 2 * apart.halves + 2;
        let layout = if planar { apart } else { plain };
        // At least one block is summed and one is stored.
        let (blocks, steps) = ((15 + rows).div_ceil(16).max(2), layout.steps(1));
        let takes = |entry: &&SeparableMatrix| {
            serves(entry)
                && (entry.blocks == 0 || entry.blocks == blocks)
                && (entry.steps == 0 || entry.steps == steps)
                && (entry.planar, entry.terms) == (layout.parts(), terms)
        };
        let entry = ENTRIES.iter().find(takes).ok_or("it has no kernel for these channels")?;
        Ok(Self { layout, terms, blocks, point, entry })
    }

    /// The rows of a strip. The rows of all blocks are loaded, and kept while their values are
    /// still added: results lie `anchor_y` rows below their window's first row.
    pub(crate) fn ring(&self, anchor_y: usize) -> Ring {
        let kept = if self.point { self.blocks - anchor_y / 16 } else { 1 };
        self.layout.ring(self.entry.tiles, kept, (16 * self.blocks - 15, anchor_y))
    }

    /// Bytes of shared memory that a block of threads needs.
    pub(crate) fn shared_bytes(&self, ring: &Ring) -> usize {
        // An entry for a number of blocks keeps the last ones in registers.
        let stored = if self.entry.blocks > 0 { self.blocks - 1 } else { self.blocks };
        ring.with_queue(self.entry.queues) as usize
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

    /// Products for 256 results; splitting channels counts as the products that take the same time.
    fn products(&self) -> f64 {
        const PLANAR: f64 = 7.0;
        /// Rows of most strips of large pictures.
        const HEIGHT: f64 = 96.0;
        let twice = (HEIGHT + 16.0 * (self.blocks - 1) as f64) / HEIGHT;
        let planar = if self.layout.planar { PLANAR * self.layout.halves as f64 } else { 0.0 };
        6.0 * (self.terms * self.steps()) as f64 * twice + 12.0 * self.pairs() as f64 + planar
    }

    /// The most strips at a time on a multiprocessor, limited by registers.
    const MAX_STRIPS: f64 = 16.0;

    /// Strips at a time on a multiprocessor, limited by shared memory.
    fn strips(&self, machine: &Machine) -> f64 {
        const RESERVED: f64 = 1024.0;
        let shared = machine.shared_memory as f64 + RESERVED;
        (shared / (self.shared_bytes(&self.ring(0)) as f64 + RESERVED))
            .floor()
            .clamp(1.0, Self::MAX_STRIPS)
    }

    /// Microseconds of a strip at the image's edge, with few results to resolve: the time of a
    /// small picture. From an H200.
    fn strip(&self, problem: &Problem, machine: &Machine) -> f64 {
        /// For 16 rows, and for each half of 16 bytes in them, without and with split channels, if
        /// shared memory has room for the most strips.
        const ROWS: [(f64, f64); 2] = [(0.0, 0.45), (2.2, 0.95)];
        /// For each tap.
        const SETTLED: f64 = 0.001;

        let Layout { channels, planar, halves, .. } = self.layout;
        let width = TILE as usize * if planar { 1 } else { self.entry.tiles };
        let across = (problem.width * self.layout.value_stride()).div_ceil(width);
        let images = problem.planes / channels;
        let strips = self.strips(machine);
        let besides = self.blocks as f64 - 1.0;
        let rows = strip::height_of_strips(&HEIGHTS, besides, |rows| {
            (across * problem.height.div_ceil(rows as usize) * images) as f64
                / (machine.multiprocessors * strips)
        });
        let (group, half) = ROWS[usize::from(planar)];
        let each = (group + half * halves as f64) * Self::MAX_STRIPS / strips;
        (f64::from(rows / 16) + besides) * each + SETTLED * problem.taps()
    }
}

#[cfg(feature = "gpu")]
impl MatrixPasses {
    /// The kernel's bands, whose fragments begin at address `row`.
    pub(crate) fn bands(&self, whole: &ProductDigits, row: u64, ring: Ring) -> Bands {
        let column = row + 4 * (FRAGMENT * self.terms * self.steps()) as u64;
        let across = |term: &TermDigits| {
            let Joining { more, .. } = term.joining;
            Across { down: (8 - more).max(0), second: 1 << more, third: 256 << more }
        };
        Bands {
            row,
            column,
            begin: column + 4 * (FRAGMENT * self.pairs()) as u64,
            steps: self.steps() as i32,
            last: if self.layout.halves.is_multiple_of(2) { 16 } else { 0 },
            blocks: self.blocks as i32,
            // With one term, the kernel does not read the second.
            across: [0, self.terms - 1].map(|term| across(&whole.terms[term])),
            point: whole.point,
            ring,
            rounding: Rounding::of_three(whole.start, whole.shift, whole.near),
        }
    }

    /// The strips of a launch.
    pub(crate) fn strips_of<'a>(&'a self, ring: &'a Ring) -> Strips<'a> {
        Strips {
            layout: &self.layout,
            ring,
            tiles: self.entry.tiles,
            shared: self.shared_bytes(ring) as u32,
            heights: &HEIGHTS,
            besides: self.blocks as f64 - 1.0,
        }
    }
}

impl Launcher for MatrixPasses {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &super::prepared::PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
        let whole = job.taps.filter().fact::<Option<ProductDigits>>();
        let whole =
            whole.as_ref().as_ref().ok_or_else(|| strip::no_form(Variant::SeparableMatrix))?;
        // Only one layout serves a number of channels.
        let make = || Ok((whole.fragments(self), ()));
        let (row, ()) = job.taps.table(("digits of products", self.layout.channels), make)?;
        let ring = self.ring(job.window.anchor_y as usize);
        let bands = self.bands(whole, row, ring);
        let strips = self.strips_of(&ring);
        // SAFETY: `find` checked the limits, and the shared memory; the bands are the filter's, for
        // this problem; the pass describes allocated memory, and has a list.
        unsafe { strip::launch(self.entry.entry, bands, &strips, job, stream) }
    }

    fn takes_pixels(&self) -> bool {
        self.layout.channels > 1
    }
}
