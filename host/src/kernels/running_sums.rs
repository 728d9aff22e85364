//! Means of bytes by running sums in whole numbers; launches
//! `gpu-kernels/src/kernels/running_sums.rs`.

#[cfg(feature = "gpu")]
use gpu_kernels::abi::Window;
use gpu_kernels::kernels::running_sums::{
    ENTRIES, FAR_DIVISOR, MAX_ROWS, MAX_WARPS, NEAR_DIVISOR, RunningSums, VALUES, shared_bytes,
    words,
};

use super::cost::{DECLINED, LAUNCH};
#[cfg(feature = "gpu")]
use super::prepared::PassJob;
use super::prepared::{Kernel, Launcher, Prepared};
use super::strip;
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::problem::Problem;
use crate::problem::machine::{Bound, Time};
use crate::{Filter, Variant, Why};

pub(super) static RUNNING_SUMS: Kernel = Kernel {
    variant: Variant::RunningSums,
    entries: || {
        let keep = gpu_kernels::kernels::keep::keep_edges.name();
        ENTRIES.iter().map(|entry| entry.entry.name()).chain([keep]).collect()
    },
    prepare: |problem| Sums::find(problem).map(|sums| Prepared::new(Variant::RunningSums, sums)),
    time: |problem, machine| {
        // The first block: small pictures have few.
        const FIRST: Time = Time::start(6.0);
        match Sums::find(problem) {
            Ok(sums) => {
                let bytes = problem.bytes() * problem.millions();
                let all = machine.time(Bound::Integers, bytes, sums.time(problem));
                LAUNCH + FIRST + all
            }
            Err(_) => DECLINED,
        }
    },
    rule: |_| Ok(()),
};

/// The divisor of a mean that these kernels take: every tap is one part of it, and they add up to 1
/// at most.
pub(crate) fn mean(filter: &Filter) -> Option<u32> {
    let (numerator, divisor) = filter.byte_filter().ok()?.whole.mean()?;
    // In lowest terms.
    let numerator = u64::try_from(numerator)
        .ok()
        .filter(|&numerator| numerator > 0 && divisor % numerator == 0)?;
    let (divisor, taps) = (divisor / numerator, filter.cols().checked_mul(filter.rows())? as u64);
    (divisor >= 2 && taps <= divisor)
        .then(|| u32::try_from(divisor).ok())
        .flatten()
        .filter(|&all| all <= FAR_DIVISOR)
}

/// The launch for a problem.
#[derive(Clone, Debug)]
struct Sums {
    entry: &'static RunningSums,
    /// Warps of a block.
    warps: i32,
    /// Values that a window reaches further than a result.
    reach: i32,
    /// What sums are divided by.
    divisor: u32,
}

/// Rows of a strip, among which a launch chooses.
const HEIGHTS: [u32; 11] = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512];

/// The greatest reach at which one warp has enough results.
const NEAR: usize = 144;

/// The time of a row that completes no results, relative to a row that does: of one channel in a
/// far entry, and of others. Then the fixed time of a strip, in rows that do.
const BEFORE: [f64; 2] = [0.3, 0.15];
const BESIDES: f64 = 6.0;

impl Sums {
    fn find(problem: &Problem) -> Result<Self, Why> {
        let channels = strip::channels(problem)?;
        let Problem { cols, rows, width, .. } = *problem;
        let divisor =
            problem.numbers.mean.ok_or("the taps must all be 1/N, with N a whole number")?;
        // A thread finds values so many left of the image, too.
        const BESIDE: usize = 1 << 28;
        if width > BESIDE {
            return Err(format!("{width} columns, the limit is {BESIDE}").into());
        }
        let reach = (cols - 1) * channels;
        let is_near = rows <= MAX_ROWS as usize && reach <= NEAR && divisor <= NEAR_DIVISOR;
        // The fewest warps with which most of a block's columns are results.
        let has_results = |warps: &i32| 2 * 4 * words(*warps, reach as i32) >= 32 * VALUES * warps;
        let warps = match is_near {
            true => 1,
            false => [4, 8, MAX_WARPS].into_iter().find(has_results).ok_or_else(|| {
                let most = (32 * VALUES * MAX_WARPS) as usize / 2 / channels;
                Why::from(format!(
                    "{cols} columns of taps, the limit is about {most} for {channels} channels"
                ))
            })?,
        };
        let entry =
            ENTRIES.iter().find(|entry| (entry.channels, entry.is_near) == (channels, is_near));
        let entry = entry.ok_or("it has no kernel for these channels")?;
        let sums = Self { entry, warps, reach: reach as i32, divisor };
        problem.fits_shared_memory(sums.shared(rows) as usize, "its rows")?;
        Ok(sums)
    }

    /// Bytes of shared memory of a block.
    fn shared(&self, rows: usize) -> u32 {
        shared_bytes(self.warps, self.reach, if self.entry.is_near { rows as i32 } else { 0 })
    }

    /// Strips side by side for so many values of a row.
    fn across(&self, values: usize) -> usize {
        // They begin at a multiple of four.
        (values + 3).div_ceil(4 * words(self.warps, self.reach) as usize)
    }

    /// The height of strips that ends soonest, where `at_once` strips run at a time; and the rows
    /// that this takes. Means of 31 to 401 columns, 512x512 to 8192x8192.
    fn height(&self, rows: usize, strips: impl Fn(usize) -> f64, at_once: f64) -> (u32, f64) {
        /// Fewer waves than these end no sooner, as strips at the image's edge take longer: of far
        /// and of near entries. And the waves that their strips take at least.
        const LEAST: [(f64, f64); 2] = [(1.6, 1.0), (2.5, 1.3)];
        let (no_sooner, least) = LEAST[usize::from(self.entry.is_near)];
        let before = BEFORE[usize::from(self.entry.is_near || self.entry.channels > 1)];
        let each = |height: u32| f64::from(height) + BESIDES + before * (rows - 1) as f64;
        let waves = |height: u32| strips(height as usize) / at_once + 0.3;
        let cost = |height: u32| each(height) * waves(height).max(no_sooner);
        let soonest = HEIGHTS.into_iter().min_by(|&a, &b| cost(a).total_cmp(&cost(b)));
        let height = soonest.expect("there are heights");
        (height, each(height) * waves(height).max(least))
    }

    /// Microseconds on an H200.
    fn time(&self, problem: &Problem) -> f64 {
        /// For a row of a strip on a full GPU: a near entry, and a warp of a far entry.
        const ROW: [f64; 2] = [1.15, 1.95];
        const MULTIPROCESSORS: f64 = 132.0;
        const SHARED: f64 = 228.0 * 1024.0;
        const WARPS: f64 = 24.0;
        let channels = self.entry.channels;
        let images = (problem.planes / channels) as f64;
        let across = self.across(problem.width * channels) as f64;
        let by_memory = (SHARED / f64::from(self.shared(problem.rows) + 1024)).floor();
        let at_once =
            MULTIPROCESSORS * by_memory.min((WARPS / f64::from(self.warps)).floor()).max(1.0);
        let strips = |height: usize| images * across * problem.height.div_ceil(height) as f64;
        let (_, rows) = self.height(problem.rows, strips, at_once);
        rows * ROW[usize::from(!self.entry.is_near)]
    }
}

impl Launcher for Sums {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
        use gpu_kernels::kernels::running_sums::Mean;

        let (pass, channels) = (super::keep::left_out(job.pass), self.entry.channels as i32);
        let Window { rows, .. } = job.window;
        let region = &pass.region;
        let begin = (region.x0 * channels) & !3;
        // From that multiple of four on.
        let across = ((region.x1 * channels - begin) as u32)
            .div_ceil(4 * words(self.warps, self.reach) as u32);
        let (height, images) = ((region.y1 - region.y0) as u32, job.planes / channels as u32);
        let shared = self.shared(rows as usize);
        let threads = 32 * self.warps as u32;
        let at_once =
            stream.gpu().resident_blocks(self.entry.entry.name(), threads, shared)?.max(1) as f64;
        let strips =
            |rows: usize| f64::from(across * height.div_ceil(rows as u32)) * f64::from(images);
        let (of_strip, _) = self.height(rows as usize, strips, at_once);
        let blocks = (across * height.div_ceil(of_strip), 1, 1);
        let grid = stream
            .gpu()
            .fitting(Grid { blocks, block: (32, self.warps as u32, 1), shared }, images);
        // A plane of its own is all that a kernel for one channel has.
        let filtered = if channels > 1 { job.filtered } else { 1 };
        let arguments = (
            pass,
            Mean::new(job.window, self.divisor, self.entry.is_near),
            filtered as i32,
            of_strip as i32,
        );
        // SAFETY: `find` checked the limits, and the shared memory; the pass describes allocated
        // memory.
        unsafe { stream.enqueue(self.entry.entry, grid, &arguments)? };
        super::keep::restore(job, stream)
    }

    fn takes_pixels(&self) -> bool {
        self.entry.channels > 1
    }

    #[cfg(feature = "gpu")]
    fn resolves(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use gpu_kernels::abi::Window;
    use gpu_kernels::kernels::running_sums::Mean;

    use super::*;
    use crate::filter::whole::Divisor;

    /// Sums near each half and each whole quotient, by integers and by f32, against the definition.
    #[test]
    fn quotients_are_exact() {
        let window = Window { cols: 1, rows: 2, anchor_x: 0, anchor_y: 0 };
        let far = [65_536, 65_025, 1_046_529, 1 << 20, 8_386_560, (1 << 23) - 1, FAR_DIVISOR];
        for divisor in (2..400).chain([2304, 6960, 12_288, 16_382, NEAR_DIVISOR]).chain(far) {
            let means = [true, false].map(|is_near| Mean::new(window, divisor, is_near));
            for half in 0..=510u32 {
                let middle = u64::from(half) * u64::from(divisor) / 2;
                for sum in (middle.saturating_sub(2)..=middle + 2)
                    .filter(|&sum| sum <= 255 * u64::from(divisor))
                {
                    let expected = u32::from(Divisor::Number(divisor.into()).byte(sum.into()));
                    assert_eq!(means[1].byte(sum as u32), expected, "{sum} of {divisor}");
                    if divisor <= NEAR_DIVISOR {
                        let scaled = sum as f32 * 2f32.powi(-67) * 2f32.powi(-66);
                        let byte = means[0].byte_of_f32(scaled, f32::mul_add) & 0xff;
                        assert_eq!(byte, expected, "{sum} of {divisor} in f32");
                    }
                }
            }
        }
    }

    #[test]
    fn filters_that_are_means() {
        let divisor = |text: &str| mean(&text.parse().unwrap());
        for (text, expected) in [
            ("box:size=2", 4),
            ("box:size=6", 36),
            ("box:cols=1,rows=64", 64),
            ("box:size=401", 160_801),
            ("box:size=1025", 1_050_625),
            ("taps:0.25 0.25", 4),
            ("taps:0.02777778 0.02777778", 36_000_000),
        ] {
            assert_eq!(
                divisor(text),
                Some(expected).filter(|&number| number <= FAR_DIVISOR),
                "{text}"
            );
        }
        for text in [
            "gaussian:sigma=2",
            "taps:0.5 0.25 0.25",
            "taps:1 1",
            "taps:0.75 0.75",
            "identity",
            "box:size=3001",
        ] {
            assert_eq!(divisor(text), None, "{text}");
        }
    }
}
