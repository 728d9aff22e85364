//! Bytes to bytes on the tensor cores: taps as whole numbers, in digits, and the bands that are
//! made of them; launches `gpu-kernels/src/kernels/matrix.rs`.

use gpu_kernels::kernels::matrix::{ENTRIES, Matrix, TILES};
use gpu_kernels::tile::strip::Ring;
#[cfg(feature = "gpu")]
use gpu_kernels::{kernels::matrix::Bands, tile::whole::Rounding};

use super::prepared::{Kernel, Prepared, Work};
#[cfg(feature = "gpu")]
use super::whole::Strips;
#[cfg(any(feature = "gpu", test))]
use super::whole::digit;
use super::whole::{self, Digits, GREATEST, Layout};
use crate::filter::lowest_bit;
#[cfg(feature = "gpu")]
use crate::gpu::stream::Stream;
use crate::plan::machine::Times;
use crate::plan::problem::Problem;
use crate::{Filter, Variant, Why};

pub(super) static MATRIX: Kernel = Kernel {
    variant: Variant::Matrix,
    entries: || {
        let keep = gpu_kernels::kernels::keep::keep_edges.name();
        ENTRIES.iter().map(|entry| entry.entry.name()).chain([keep]).collect()
    },
    prepare: |problem| {
        Products::find(problem).map(|products| Prepared::new(Variant::Matrix, products))
    },
    cost: |problem, machine| {
        // By steps times digits; from an H200 alone.
        const TIMES: Times = Times {
            h200: &[
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
            h100: &[(3.0, 0.97), (15.0, 1.42), (51.0, 3.6), (150.0, 10.8), (600.0, 63.0)],
        };
        // To part channels.
        const PARTED: f64 = 0.5;
        let (Some(digits), Ok(Products { layout, .. })) =
            (problem.numbers.window, Products::find(problem))
        else {
            return whole::DECLINED;
        };
        let products = layout.steps(problem.rows) * digits.count as usize;
        let parted = if layout.parted { PARTED } else { 0.0 };
        let each = TIMES.on(machine, products as f64)
            + parted
            + machine.slower() * problem.resolving(digits.share);
        // A small picture takes as long as a strip of 16 rows, for each step.
        let step = if layout.parted { 0.5 } else { 0.3 };
        each.max(machine.slower() * step * layout.steps(problem.rows) as f64 / problem.millions())
    },
};

/// Taps as multiples of a power of two, in balanced digits to the base 256.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    /// Row by row: taps times 2 to the power of `bits`, rounded unless there are fewer than three
    /// digits.
    taps: Vec<i32>,
    bits: i32,
    digits: u32,
    /// With three digits, what the second one's sums begin with, and the distance from a half at
    /// which a sum is in doubt; in units of a joined sum, which lacks the lowest 8 bits.
    start: i32,
    near: i32,
}

/// The most taps: 128 * 255 times so many, and what is carried, is below 2^31.
const MOST_TAPS: usize = 65536;

/// The greatest tap in two digits: 127 in each.
const GREATEST_OF_TWO: f64 = 32_639.0;

/// The most bits behind the point: more would not be seen, as sums go up to 255.
const MOST_BITS: i32 = 30;

impl Whole {
    /// The taps of a filter for bytes, or why they have no such form.
    pub(crate) fn new(filter: &Filter) -> Result<Self, Why> {
        let (cols, rows) = (filter.cols(), filter.rows());
        if cols.checked_mul(rows).is_none_or(|count| count > MOST_TAPS) {
            return Err(format!("{cols}x{rows} taps, it takes {MOST_TAPS}").into());
        }
        let taps: Vec<f64> = (0..cols * rows).map(|i| filter.tap(i / cols, i % cols)).collect();
        let greatest = taps.iter().fold(0.0, |greatest: f64, tap| greatest.max(tap.abs()));
        Self::exact(&taps, greatest).or_else(|| Self::rounded(&taps, greatest)).ok_or_else(|| {
            format!("a tap of {greatest} is too large beside the results, which are bytes").into()
        })
    }

    /// Those that one or two digits hold as they are.
    fn exact(taps: &[f64], greatest: f64) -> Option<Self> {
        let bits = (-lowest_bit(taps)).max(0);
        if bits > MOST_BITS || greatest * 2f64.powi(bits) > GREATEST_OF_TWO {
            return None;
        }
        let taps: Vec<i32> = taps.iter().map(|tap| (tap * 2f64.powi(bits)) as i32).collect();
        let sum: i64 = taps.iter().map(|&tap| i64::from(tap.abs())).sum();
        if 255 * sum + (1 << bits) > i64::from(i32::MAX) {
            return None;
        }
        let digits = if taps.iter().all(|tap| (-128..128).contains(tap)) { 1 } else { 2 };
        Some(Self { taps, bits, digits, start: 0, near: 0 })
    }

    /// Any others, with as many bits as three digits and the joined sum have room for.
    fn rounded(exact: &[f64], greatest: f64) -> Option<Self> {
        // A mean's taps are rounded to f64.
        let in_f64 = 255.0 * f64::EPSILON * exact.iter().map(|tap| tap.abs()).sum::<f64>();
        (9..=MOST_BITS).rev().find_map(|bits| {
            let unit = 2f64.powi(bits);
            if (greatest * unit).round() > GREATEST {
                return None;
            }
            let taps: Vec<i32> = exact.iter().map(|tap| (tap * unit).round() as i32).collect();
            let loss =
                || exact.iter().zip(&taps).map(|(exact, &tap)| exact * unit - f64::from(tap));
            // Bytes are 127.5 and up to as much more or less: the sum for all 127.5 is known, so
            // half of the error remains.
            let centre = 127.5 * loss().sum::<f64>() / 256.0;
            let error = 127.5 * loss().map(f64::abs).sum::<f64>() * (1.0 + 1e-9) / 256.0;
            // A joined sum lacks 8 bits: half of what they can be is added, and the other half is
            // an error. So is half a unit of what is added.
            let error = 0.5 + 0.5 + error + in_f64 * unit / 256.0;
            let half = 1i64 << (bits - 9);
            if error >= half as f64 / 2.0 {
                return None;
            }
            let near = error as i64 + 1;
            let start = half + near + (centre + 0.5).round() as i64;
            let sum: i64 = taps.iter().map(|&tap| i64::from(tap.abs())).sum();
            let fits = 255 * sum / 256 + start.abs() + 2 <= i64::from(i32::MAX);
            fits.then_some(Self { taps, bits, digits: 3, start: start as i32, near: near as i32 })
        })
    }

    /// What a problem's kernel depends on.
    pub(crate) fn digits(&self) -> Digits {
        Digits { count: self.digits, share: self.share() }
    }

    /// The share of results that are in doubt if sums are spread evenly.
    pub(crate) fn share(&self) -> f64 {
        if self.is_exact() { 0.0 } else { 2.0 * f64::from(self.near) / 2f64.powi(self.bits - 8) }
    }

    /// Whether no result is in doubt.
    pub(crate) fn is_exact(&self) -> bool {
        self.digits < 3
    }

    /// The fragments, as `gpu-kernels/src/kernels/matrix.rs` reads them.
    #[cfg(any(feature = "gpu", test))]
    fn bands(&self, layout: &Layout, (cols, rows): (usize, usize)) -> Vec<u32> {
        let (Layout { lead, halves, .. }, apart) = (*layout, layout.apart());
        let steps = layout.steps(rows);
        let byte = |half: usize, digit: u32, band: usize, lane: usize, i: usize| {
            // The last step may have a half too many, whose taps are zero.
            let (row, number) = (half / halves, half % halves);
            let (group, turn) = (lane / 4, lane % 4);
            let result = 4 * (group / 2) + 2 * band + group % 2;
            let offset = (16 * number + 4 * turn + i).checked_sub(lead + result);
            let col = offset.filter(|offset| offset % apart == 0).map(|offset| offset / apart);
            match col {
                Some(col) if col < cols && row < rows => {
                    self::digit(self.taps[row * cols + col], digit) as u8
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

/// The heights of strips among which the launch chooses. Taller ones have fewer rows in common, but
/// rows of many of them are spread over memory: measured on an H200, 8192x8192 u8 under 3x3 74 us
/// with 64 rows, 84 with 128.
#[cfg(feature = "gpu")]
const HEIGHTS: [u32; 4] = [64, 48, 32, 16];

/// The launch for a problem.
#[derive(Debug)]
struct Products {
    layout: Layout,
    entry: &'static Matrix,
}

impl Products {
    fn find(problem: &Problem) -> Result<Self, Why> {
        let channels = whole::channels(problem)?;
        let Some(digits) = problem.numbers.window else {
            return Err(
                "its taps have no form as whole numbers: too many, or too large beside the results"
                    .into(),
            );
        };
        // Entries for a number of steps have a step for each row.
        let fits = |layout: &Layout, entry: &Matrix| {
            let steps = entry.steps == 0 || (entry.steps, 2) == (problem.rows, layout.halves);
            entry.digits == digits.count && entry.parted == layout.parts() && steps
        };
        let find =
            |layout: Layout| Some((layout, ENTRIES.iter().find(|entry| fits(&layout, entry))?));
        // To part channels takes time, too.
        let (layout, entry) = [false, true]
            .into_iter()
            .filter_map(|parted| find(Layout::new(channels, parted, problem)))
            .min_by_key(|(layout, _)| layout.steps(problem.rows))
            .ok_or("it has no kernel for these digits")?;
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
        ring.with_doubts(self.entry.waits) as u32
    }
}

impl Work for Products {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &super::prepared::Job<'_>, stream: &mut Stream) -> crate::Result<()> {
        let (channels, taps) = (self.layout.channels, job.window.rows as usize);
        let (whole, fragments) =
            job.taps.bands(channels, |whole, size| whole.bands(&self.layout, size))?;
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
            // Rows of which no results are made yet are only brought.
            besides: 0.4 * f64::from((taps as u32 - 1).div_ceil(16)),
        };
        // SAFETY: `find` checked the limits, and the shared memory; the bands are the filter's, for
        // this layout; the pass describes allocated memory, and has a list if results may be in
        // doubt.
        unsafe { whole::launch(self.entry.entry, bands, &strips, job, stream) }
    }

    fn takes_pixels(&self) -> bool {
        self.layout.channels > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(filter: &Filter) -> Whole {
        Whole::new(filter).unwrap()
    }

    #[test]
    fn digits_make_up_the_taps() {
        let taps = [0.5, -0.25, 1.0 / 3.0, -0.000_123, 1.0, 0.0];
        let dense = whole(&Filter::from_taps_f64(3, 2, &taps).unwrap());
        assert_eq!((dense.digits, dense.bits), (3, 22));
        for (i, tap) in taps.into_iter().enumerate() {
            let sum: i64 = (0..3)
                .map(|digit| i64::from(super::digit(dense.taps[i], digit)) << (8 * digit))
                .sum();
            assert_eq!(sum, (tap * f64::from(1 << 22)).round() as i64);
        }
        let cases: [(&str, u32, i32); 6] = [
            ("taps:1 2 1", 1, 0),
            ("taps:1 4 6 4 1/4", 1, 2),
            ("taps:0.5 0.25", 1, 2),
            ("taps:255 -1", 2, 0),
            ("taps:32639 -32639", 2, 0),
            ("taps:0 0", 1, 0),
        ];
        for (text, digits, bits) in cases {
            let found = whole(&text.parse().unwrap());
            assert_eq!((found.digits, found.bits), (digits, bits), "{text}");
            assert_eq!(found.is_exact(), digits < 3);
        }
        let gaussian = whole(&Filter::gaussian(2.5).unwrap());
        assert!(gaussian.share() > 0.0 && gaussian.share() < 2e-4, "{gaussian:?}");
    }

    #[test]
    fn taps_that_have_no_such_form() {
        for text in ["taps:20000.5 0.3", "taps:32639 -32640", "taps:1e9", "box:cols=65537,rows=1"] {
            assert!(Whole::new(&text.parse().unwrap()).is_err(), "{text}");
        }
    }

    #[test]
    fn bands_have_each_tap_where_its_byte_is() {
        use crate::Scalar;
        use crate::plan::machine::Machine;
        use crate::plan::problem::Place;

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
                    sum: None,
                    rounding: None,
                    numbers: crate::kernels::whole::Numbers::default(),
                    source: Scalar::U8,
                    target: Scalar::U8,
                    side_by_side: channels,
                    source_is_aligned: true,
                    place: Place::Gpu(Machine::H200),
                };
                for parted in [false, true] {
                    let layout = Layout::new(channels, parted, &problem);
                    check(&layout, anchor_x, &whole(&filter).bands(&layout, (cols, rows)));
                }
            }
        }

        fn check(layout: &Layout, anchor_x: usize, fragments: &[u32]) {
            let (cols, rows) = (5, 3);
            let (apart, pitch) = (layout.apart(), 1000);
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
                let first = layout.left - apart * anchor_x + result;
                let expected =
                    (0..15).map(|i| ((i / cols, first + apart * (i % cols)), i as u8 + 1));
                assert_eq!(met, expected.collect(), "{layout:?}, result {result}");
            }
        }
    }
}
