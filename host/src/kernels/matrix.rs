//! Bytes to bytes on the tensor cores: taps as whole numbers, in digits, and the bands that are
//! made of them; launches `gpu-kernels/src/kernels/matrix.rs`.

use gpu_kernels::kernels::matrix::{ENTRIES, Matrix, TILES};
use gpu_kernels::tile::strip::Ring;
#[cfg(feature = "gpu")]
use gpu_kernels::{kernels::matrix::Bands, tile::whole::Rounding};

use super::cost::{DECLINED, LAUNCH};
use super::prepared::{Kernel, Launcher, Prepared};
#[cfg(feature = "gpu")]
use super::strip::Strips;
use super::strip::{self, Layout};
use super::uncertain::resolving;
#[cfg(feature = "gpu")]
use crate::gpu::stream::Stream;
use crate::problem::Problem;
use crate::problem::machine::{Bound, Time, Times};
#[cfg(feature = "gpu")]
use crate::whole::{self, window::WindowDigits};
use crate::{Variant, Why};

pub(super) static MATRIX: Kernel = Kernel {
    variant: Variant::Matrix,
    entries: || {
        let keep = gpu_kernels::kernels::keep::keep_edges.name();
        ENTRIES.iter().map(|entry| entry.entry.name()).chain([keep]).collect()
    },
    prepare: |problem| {
        WindowProducts::find(problem).map(|products| Prepared::new(Variant::Matrix, products))
    },
    time: |problem, machine| {
        // By steps times digits.
        const TIMES: Times = Times(
            Bound::Floats,
            &[
                (3.0, 0.97),
                (9.0, 1.25),
                (15.0, 1.42),
                (21.0, 1.85),
                (27.0, 2.2),
                (39.0, 2.9),
                (51.0, 3.6),
                (96.0, 6.5),
                (114.0, 7.8),
                (150.0, 10.8),
                (384.0, 40.0),
                (600.0, 63.0),
            ],
        );
        // The first tile: small pictures have few.
        const FIRST: Time = Time::start(8.0);
        // Multiply-adds of 8-bit integers for a result, step and digit.
        const PRODUCTS: f64 = 32.0;
        // To split channels.
        const PLANAR: f64 = 0.5;
        let (Some(digits), Ok(WindowProducts { layout, .. })) =
            (problem.numbers.window, WindowProducts::find(problem))
        else {
            return DECLINED;
        };
        let products = layout.steps(problem.rows) * digits.count as usize;
        let planar = if layout.planar { PLANAR } else { 0.0 };
        let each = TIMES.on(machine, problem.bytes(), products as f64)
            + machine.time(Bound::Floats, 0.0, planar);
        let each = each.or(machine.products(PRODUCTS * products as f64))
            + resolving(problem, digits.share);
        // A small picture takes the time of a strip of 16 rows, for each step.
        let step = if layout.planar { 0.5 } else { 0.3 };
        let steps = Time::start(step * layout.steps(problem.rows) as f64);
        // Strips end later that have uncertain results: 256x256 to 6000x4000x3.
        let later = if digits.share > 0.0 { (0.04 * problem.taps()).min(12.0) } else { 0.0 };
        let later = Time::start(later * problem.millions().min(1.0));
        LAUNCH + FIRST + later + (each * problem.millions()).or(steps)
    },
    rule: |_| Ok(()),
};

#[cfg(feature = "gpu")]
impl WindowDigits {
    /// The fragments, as `gpu-kernels/src/kernels/matrix.rs` reads them.
    fn bands(&self, layout: &Layout, (cols, rows): (usize, usize)) -> Vec<u32> {
        let (Layout { lead, halves, .. }, value_stride) = (*layout, layout.value_stride());
        let steps = layout.steps(rows);
        let byte = |half: usize, digit: u32, band: usize, lane: usize, i: usize| {
            // The last step may have one half too many: its taps are zero.
            let (row, number) = (half / halves, half % halves);
            let (group, turn) = (lane / 4, lane % 4);
            let result = 4 * (group / 2) + 2 * band + group % 2;
            let offset = (16 * number + 4 * turn + i).checked_sub(lead + result);
            let col = offset
                .filter(|offset| offset % value_stride == 0)
                .map(|offset| offset / value_stride);
            match col {
                Some(col) if col < cols && row < rows => {
                    whole::digit(self.taps[row * cols + col], digit) as u8
                }
                _ => 0,
            }
        };
        let mut words = Vec::with_capacity(128 * steps * self.digits as usize);
        for step in 0..steps {
            for digit in 0..self.digits {
                for lane in 0..32 {
                    for (band, part) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                        let bytes =
                            [0, 1, 2, 3].map(|i| byte(2 * step + part, digit, band, lane, i));
                        words.push(u32::from_le_bytes(bytes));
                    }
                }
            }
        }
        words
    }
}

/// The heights that a launch may choose for strips. Higher strips share fewer rows, but spread
/// accesses over memory: on an H200, 3x3 on 8192x8192 u8 takes 74 us with 64 rows, 84 us with 128.
#[cfg(feature = "gpu")]
const HEIGHTS: [u32; 4] = [64, 48, 32, 16];

/// The launch for a problem.
#[derive(Debug)]
struct WindowProducts {
    layout: Layout,
    entry: &'static Matrix,
}

impl WindowProducts {
    fn find(problem: &Problem) -> Result<Self, Why> {
        let channels = strip::channels(problem)?;
        let Some(digits) = problem.numbers.window else {
            return Err(
                "its taps cannot be scaled to integers: too many, or too large for u8 results"
                    .into(),
            );
        };
        // An entry for a fixed number of steps takes one step a row.
        let fits = |layout: &Layout, entry: &Matrix| {
            let steps = entry.steps == 0 || (entry.steps, 2) == (problem.rows, layout.halves);
            entry.digits == digits.count && entry.planar == layout.parts() && steps
        };
        let find =
            |layout: Layout| Some((layout, ENTRIES.iter().find(|entry| fits(&layout, entry))?));
        // Splitting channels takes time, too.
        let (layout, entry) = [false, true]
            .into_iter()
            .filter_map(|planar| {
                find(Layout::new(channels, planar, (problem.cols, problem.anchor_x)))
            })
            .min_by_key(|(layout, _)| layout.steps(problem.rows))
            .ok_or("it has no kernel for taps of this precision")?;
        let products = Self { layout, entry };
        problem.fits_shared_memory(
            products.shared_bytes(&products.ring(problem.rows, 0)) as usize,
            "its rows",
        )?;
        Ok(products)
    }

    /// The rows of a strip.
    fn ring(&self, rows: usize, anchor_y: usize) -> Ring {
        self.layout.ring(TILES, (15 + rows).div_ceil(16), (rows, anchor_y))
    }

    /// Bytes of shared memory that a block of threads needs.
    fn shared_bytes(&self, ring: &Ring) -> u32 {
        ring.with_queue(self.entry.queues) as u32
    }
}

impl Launcher for WindowProducts {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &super::prepared::PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
        let (channels, taps) = (self.layout.channels, job.window.rows as usize);
        let filter = job.taps.filter();
        let whole = filter.fact::<Option<WindowDigits>>();
        let whole = whole.as_ref().as_ref().ok_or_else(|| strip::no_form(Variant::Matrix))?;
        // Only one layout serves a number of channels.
        let size = (filter.cols(), filter.rows());
        let make = || Ok((whole.bands(&self.layout, size), ()));
        let (fragments, ()) = job.taps.table(("digits of a window", channels), make)?;
        let ring = self.ring(taps, job.window.anchor_y as usize);
        let (halves, pitch) = (self.layout.halves as i32, ring.pitch);
        let (second, skip) =
            if halves == 1 { (pitch, 2 * pitch - 32) } else { (16, pitch - 16 * halves) };
        let bands = Bands {
            fragments,
            halves: halves.max(2),
            second,
            skip,
            last: (taps as i32 - 1) * pitch + 16 * (halves - 1),
            steps: self.layout.steps(taps) as i32,
            ring,
            rounding: if whole.is_exact() {
                Rounding::exact(whole.bits)
            } else {
                Rounding::of_three(whole.start, whole.bits - 8, whole.near)
            },
        };
        let strips = Strips {
            layout: &self.layout,
            ring: &ring,
            tiles: TILES,
            shared: self.shared_bytes(&ring),
            heights: &HEIGHTS,
            // The first rows are only loaded: they complete no results.
            besides: 0.4 * f64::from((taps as u32 - 1).div_ceil(16)),
        };
        // SAFETY: `find` checked the limits, and the shared memory; the bands are the filter's, for
        // this layout; the pass describes allocated memory, and has a list if results may be
        // uncertain.
        unsafe { strip::launch(self.entry.entry, bands, &strips, job, stream) }
    }

    fn takes_pixels(&self) -> bool {
        self.layout.channels > 1
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::Filter;

    fn whole(filter: &Filter) -> WindowDigits {
        WindowDigits::new(filter).unwrap()
    }

    #[test]
    fn bands_have_each_tap_where_its_byte_is() {
        use crate::Scalar;
        use crate::problem::Place;
        use crate::problem::machine::Machine;

        let (cols, rows) = (5, 3);
        let taps: Vec<f64> = (1..=15).map(f64::from).collect();
        let filter = Filter::from_taps_f64(cols, rows, &taps).unwrap();
        for channels in 1..=4 {
            for anchor_x in 0..cols {
                let problem = Problem {
                    width: 100,
                    height: 100,
                    planes: channels,
                    cols,
                    rows,
                    anchor_x,
                    border: crate::Border::Replicate,
                    weight: 1.0,
                    point: false,
                    separable: false,
                    has_lines: false,
                    accuracy: None,
                    sum: None,
                    rounding: None,
                    numbers: crate::problem::Numbers::default(),
                    source: Scalar::U8,
                    target: Scalar::U8,
                    side_by_side: channels,
                    source_is_aligned: true,
                    place: Place::Gpu(Machine::H200),
                };
                for planar in [false, true] {
                    let layout = Layout::new(channels, planar, (problem.cols, problem.anchor_x));
                    check(&layout, anchor_x, &whole(&filter).bands(&layout, (cols, rows)));
                }
            }
        }
    }

    /// Each result of a strip's first 16 meets its window's taps, and no others.
    fn check(layout: &Layout, anchor_x: usize, fragments: &[u32]) {
        let (cols, rows) = (5, 3);
        let (value_stride, pitch) = (layout.value_stride(), 1000);
        // The taps that a result of a strip's first 16 meets, by the row and the byte of shared
        // memory.
        for result in 0..16 {
            let mut met = std::collections::BTreeMap::new();
            let (band, group) = (result % 4 / 2, 2 * (result / 4) + result % 2);
            for step in 0..layout.steps(rows) {
                for (part, turn, i) in (0..32).map(|k| (k / 16, k / 4 % 4, k % 4)) {
                    let word = 128 * step + 4 * (4 * group + turn) + 2 * band + part;
                    let (row, number) =
                        ((2 * step + part) / layout.halves, (2 * step + part) % layout.halves);
                    let at = row * pitch + 16 * number + 4 * turn + i;
                    let tap = fragments[word].to_le_bytes()[i];
                    if tap != 0 {
                        met.insert((at / pitch, at % pitch), tap);
                    }
                }
            }
            let first = layout.left - value_stride * anchor_x + result;
            let expected =
                (0..15).map(|i| ((i / cols, first + value_stride * (i % cols)), i as u8 + 1));
            assert_eq!(met, expected.collect(), "{layout:?}, result {result}");
        }
    }
}
