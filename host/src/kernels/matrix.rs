//! Bytes to bytes on the tensor cores: taps as whole numbers, in digits, and the bands that are made of them; launches
//! `gpu-kernels/src/kernels/matrix.rs`.

use gpu_kernels::kernels::matrix::{ENTRIES, HEIGHT, Matrix};
use gpu_kernels::tile::whole::{Frame, WIDTH};
#[cfg(feature = "gpu")]
use gpu_kernels::{kernels::matrix::Bands, tile::whole::Rounding};

use super::prepared::{Kernel, Prepared, Work};
#[cfg(any(feature = "gpu", test))]
use super::whole::digit;
use super::whole::{self, Begin, Digits, GREATEST};
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
    prepare: |problem| Products::find(problem).map(|products| Prepared::new(Variant::Matrix, products)),
    cost: |problem, machine| {
        // By products, as `Layout::time` weighs them, and digits, for one channel; from an H200 alone.
        const TIMES: Times = Times {
            h200: &[(14.0, 1.27), (42.0, 1.82), (105.0, 2.75), (195.0, 4.4), (255.0, 5.3), (525.0, 8.3), (750.0, 13.6)],
            h100: &[(14.0, 1.27), (42.0, 1.82), (105.0, 2.75), (195.0, 4.4), (255.0, 5.3), (525.0, 8.3), (750.0, 13.6)],
        };
        let (Some(digits), Ok(layout)) = (problem.numbers.window, Layout::find(problem)) else {
            return whole::DECLINED;
        };
        let products = layout.time(problem.rows) * digits.count as usize;
        TIMES.on(machine, products as f64) + whole::SETTLE * digits.share * problem.taps()
    },
};

/// Taps as multiples of a power of two, in balanced digits to the base 256.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    /// Row by row: taps times 2 to the power of `bits`, rounded unless there are fewer than three digits.
    taps: Vec<i32>,
    bits: i32,
    digits: u32,
    /// With three digits, what the lowest and the second one's sums begin with, and the distance from a half at which a sum is in doubt; in
    /// units of a joined sum, which lacks the lowest 8 bits.
    start: [i32; 2],
    near: i32,
}

/// The most taps: 128 * 255 times so many, and what is carried, is below 2^31.
const MOST_TAPS: usize = 65536;

/// The greatest tap in two digits: 127 in each.
const GREATEST_OF_TWO: f64 = 32_639.0;

/// The most bits behind the point: more would not be seen, as sums go up to 255.
const MOST_BITS: i32 = 30;

impl Whole {
    /// The taps of a filter, of whose sums those in f64 in two orders are at most `reordering` apart; or why they have no such form.
    pub(crate) fn new(filter: &Filter, reordering: f64) -> Result<Self, Why> {
        let (cols, rows) = (filter.cols(), filter.rows());
        if cols.checked_mul(rows).is_none_or(|count| count > MOST_TAPS) {
            return Err(format!("{cols}x{rows} taps, it takes {MOST_TAPS}").into());
        }
        let taps: Vec<f64> = (0..cols * rows).map(|i| filter.tap(i / cols, i % cols)).collect();
        let greatest = taps.iter().fold(0.0, |greatest: f64, tap| greatest.max(tap.abs()));
        Self::exact(&taps, greatest)
            .or_else(|| Self::rounded(&taps, greatest, reordering))
            .ok_or_else(|| format!("a tap of {greatest} is too large beside the results, which are bytes").into())
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
        let start = if bits == 0 { [0, 0] } else { [(1 << (bits - 1)) - 1, 1] };
        Some(Self { taps, bits, digits, start, near: 0 })
    }

    /// Any others, with as many bits as three digits and the joined sum have room for.
    fn rounded(exact: &[f64], greatest: f64, reordering: f64) -> Option<Self> {
        (9..=MOST_BITS).rev().find_map(|bits| {
            let unit = 2f64.powi(bits);
            if (greatest * unit).round() > GREATEST {
                return None;
            }
            let taps: Vec<i32> = exact.iter().map(|tap| (tap * unit).round() as i32).collect();
            let loss = || exact.iter().zip(&taps).map(|(exact, &tap)| exact * unit - f64::from(tap));
            // Bytes are 127.5 and up to as much more or less: the sum for all 127.5 is known, so half of the error remains.
            let centre = (127.5 * loss().sum::<f64>()).round();
            let error = 127.5 * loss().map(f64::abs).sum::<f64>() * (1.0 + 1e-9) + 0.5;
            // A joined sum lacks 8 bits; half of what they can be is added, so that it is off by half a unit more.
            let error = 0.5 + error / 256.0 + reordering * unit / 256.0;
            let half = 1i64 << (bits - 9);
            if error >= half as f64 / 2.0 {
                return None;
            }
            let near = error as i64 + 1;
            let sum: i64 = taps.iter().map(|&tap| i64::from(tap.abs())).sum();
            let greatest_sum = (255 * sum + centre.abs() as i64 + 128) / 256 + half + near + 1;
            let fits = greatest_sum <= i64::from(i32::MAX);
            let start = [centre as i32 + 128, (half + near) as i32];
            fits.then_some(Self { taps, bits, digits: 3, start, near: near as i32 })
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

    /// The fragments, [`Layout::fragments`] words, and then the places of the halves, as `gpu-kernels/src/kernels/matrix.rs` reads them.
    #[cfg(any(feature = "gpu", test))]
    fn bands(&self, layout: &Layout, (cols, rows): (usize, usize)) -> Vec<u32> {
        let Layout { channels, bands, pitch, begin: Begin { base, lead, .. }, halves, .. } = *layout;
        let steps = layout.steps(rows);
        // The place of a half, and its row of taps and number; the last step may have one too many, whose taps are zero.
        let half = |number: usize| (number / halves, number % halves);
        let place = |number: usize| {
            let (row, number) = half(number.min(rows * halves - 1));
            ((row * pitch as usize + base + 16 * number) / 4) as u32
        };
        let byte = |number: usize, digit: u32, band: usize, lane: usize, i: usize| {
            let (row, number) = half(number);
            let (group, turn) = (lane / 4, lane % 4);
            let result = if bands == 2 { 4 * (group / 2) + 2 * band + group % 2 } else { group };
            let offset = (16 * number + 4 * turn + i).checked_sub(lead + result);
            let col = offset.filter(|offset| offset % channels == 0).map(|offset| offset / channels);
            match col {
                Some(col) if col < cols && row < rows => self::digit(self.taps[row * cols + col], digit) as u8,
                _ => 0,
            }
        };
        let mut words = Vec::with_capacity(layout.fragments(rows, self.digits) + 2 * steps + 2);
        for step in 0..steps {
            for digit in 0..self.digits {
                for band in 0..bands {
                    for lane in 0..32 {
                        for part in 0..2 {
                            let bytes = [0, 1, 2, 3].map(|i| byte(2 * step + part, digit, band, lane, i));
                            words.push(u32::from_le_bytes(bytes));
                        }
                    }
                }
            }
        }
        words.extend((0..2 * steps + 2).map(place));
        words
    }
}

/// Where the bytes lie that a row of taps needs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Layout {
    channels: usize,
    /// Bands of a digit in a step: 2 if 16 values share the image's bytes.
    bands: usize,
    pitch: i32,
    begin: Begin,
    /// Halves of 16 bytes that a row of taps reaches.
    halves: usize,
    /// Pieces of 16 bytes of a fetched row.
    chunks: usize,
}

impl Layout {
    /// The one that takes the least time; or why there is none.
    fn find(problem: &Problem) -> Result<Self, Why> {
        let channels = whole::channels(problem)?;
        let Problem { cols, rows, anchor_x, .. } = *problem;
        let layout = |entry: &Matrix| {
            let reach = channels.checked_mul(cols - 1)?;
            let begin = Begin::of(channels, anchor_x);
            let bands = entry.bands as usize;
            let halves = (begin.lead + 8 * bands + reach).div_ceil(16);
            // The last warp's values begin behind those of the others; of 16 with bytes of their own, the last 8 begin further.
            let end = WIDTH as usize - 16 + 8 * (2 - bands) + begin.base + 16 * halves;
            let chunks = end.div_ceil(16);
            let pitch = entry.pitch;
            (16 * chunks <= pitch as usize).then_some(Self { channels, bands, pitch, begin, halves, chunks })
        };
        // Where rows are narrower, there is more room for other blocks; the table has those first.
        let fastest = ENTRIES.iter().filter_map(layout).min_by_key(|layout| layout.time(rows));
        fastest.ok_or_else(|| format!("rows of {cols} taps are too long for {channels} channels side by side").into())
    }

    /// Products for each digit and band.
    fn steps(&self, rows: usize) -> usize {
        (rows * self.halves).div_ceil(2)
    }

    /// What a product takes, in proportion: with bytes of their own, results read shared memory more often. As measured on an H200.
    fn time(&self, rows: usize) -> usize {
        self.steps(rows) * if self.bands == 2 { 5 } else { 7 }
    }

    /// The rows of a tile.
    fn frame(&self, rows: usize, anchor_y: usize) -> Frame {
        Frame {
            height: HEIGHT,
            rows: rows as i32,
            anchor_y: anchor_y as i32,
            left: self.begin.left as i32,
            chunks: self.chunks as i32,
            pitch: self.pitch,
        }
    }

    /// Words of all fragments.
    #[cfg(any(feature = "gpu", test))]
    fn fragments(&self, rows: usize, digits: u32) -> usize {
        64 * self.steps(rows) * digits as usize * self.bands
    }
}

/// The launch for a problem.
#[derive(Debug)]
#[cfg_attr(not(feature = "gpu"), expect(dead_code, reason = "it is launched on GPUs"))]
struct Products {
    layout: Layout,
    entry: &'static Matrix,
}

impl Products {
    fn find(problem: &Problem) -> Result<Self, Why> {
        let layout = Layout::find(problem)?;
        let Some(digits) = problem.numbers.window else {
            return Err("its taps have no form as whole numbers: too many, or too large beside the results".into());
        };
        let same = |entry: &&Matrix| {
            (entry.digits, entry.bands as usize, entry.pitch) == (digits.count, layout.bands, layout.pitch)
        };
        let entry = ENTRIES.iter().find(same).ok_or("it has no kernel for these digits")?;
        let frame = layout.frame(problem.rows, 0);
        problem.fits_shared_memory(frame.shared_bytes() as usize, "its rows")?;
        Ok(Self { layout, entry })
    }
}

impl Work for Products {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &super::prepared::Job<'_>, stream: &mut Stream) -> crate::Result<()> {
        let Layout { channels, .. } = self.layout;
        let rows = job.window.rows as usize;
        let (whole, fragments) = job.taps.bands(channels, |whole, size| whole.bands(&self.layout, size))?;
        let exact = whole.is_exact();
        let frame = self.layout.frame(rows, job.window.anchor_y as usize);
        let bands = |frame| Bands {
            places: fragments + 4 * self.layout.fragments(rows, whole.digits) as u64,
            fragments,
            steps: self.layout.steps(rows) as i32,
            frame,
            rounding: Rounding {
                start: whole.start,
                shift: if exact { whole.bits } else { whole.bits - 8 },
                near: if exact { 0 } else { (2 * whole.near as u32) << (40 - whole.bits) },
            },
        };
        // SAFETY: `find` checked the limits, and the shared memory; the bands are the filter's, for this layout; the pass describes
        // allocated memory, and has a list if results may be in doubt.
        unsafe { whole::launch(self.entry.entry, bands, (frame, &[HEIGHT]), job, channels as u32, stream) }
    }

    fn takes_pixels(&self) -> bool {
        self.layout.channels > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(filter: &Filter) -> Whole {
        Whole::new(filter, 1e-9).unwrap()
    }

    #[test]
    fn digits_make_up_the_taps() {
        let taps = [0.5, -0.25, 1.0 / 3.0, -0.000_123, 1.0, 0.0];
        let dense = whole(&Filter::from_taps_f64(3, 2, &taps).unwrap());
        assert_eq!((dense.digits, dense.bits), (3, 22));
        for (i, tap) in taps.into_iter().enumerate() {
            let sum: i64 = (0..3).map(|digit| i64::from(super::digit(dense.taps[i], digit)) << (8 * digit)).sum();
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
            assert!(Whole::new(&text.parse().unwrap(), 1e-9).is_err(), "{text}");
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
                let layout = Layout::find(&problem).unwrap();
                let fragments = whole(&filter).bands(&layout, (cols, rows));
                let places = &fragments[layout.fragments(rows, 1)..];
                // The taps that a result of a tile's first 16 meets, by the row and the byte of shared memory.
                for result in 0..16 {
                    let mut met = std::collections::BTreeMap::new();
                    let (band, group) = match layout.bands {
                        2 => (result % 4 / 2, 2 * (result / 4) + result % 2),
                        _ => (0, result % 8),
                    };
                    let beside = if layout.bands == 2 { 0 } else { 8 * (result / 8) };
                    for step in 0..layout.steps(rows) {
                        for (part, turn, i) in (0..32).map(|k| (k / 16, k / 4 % 4, k % 4)) {
                            let word = 64 * (step * layout.bands + band) + 2 * (4 * group + turn) + part;
                            let at = 4 * places[2 * step + part] as usize + beside + 4 * turn + i;
                            let tap = fragments[word].to_le_bytes()[i];
                            if tap != 0 {
                                met.insert((at / layout.pitch as usize, at % layout.pitch as usize), tap);
                            }
                        }
                    }
                    let first = layout.begin.left - channels * anchor_x + result;
                    let expected = (0..15).map(|i| ((i / cols, first + channels * (i % cols)), i as u8 + 1));
                    assert_eq!(met, expected.collect(), "{layout:?}, result {result}");
                }
            }
        }
    }
}
