//! Means of bytes by running sums in whole numbers; launches `gpu-kernels/src/kernels/running_sums.rs`.

#[cfg(feature = "gpu")]
use gpu_kernels::abi::Window;
use gpu_kernels::kernels::means;
use gpu_kernels::kernels::running_sums::{
    ENTRIES, MOST_ROWS, MOST_WARPS, RunningSums, VALUES, shared_bytes, wait, words,
};

#[cfg(feature = "gpu")]
use super::prepared::Job;
use super::prepared::{Kernel, Prepared, Work};
use super::whole;
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::plan::problem::Problem;
use crate::round::MAX_WINDOW;
use crate::{Filter, Variant, Why};

pub(super) static RUNNING_SUMS: Kernel = Kernel {
    variant: Variant::RunningSums,
    entries: || {
        let keep = gpu_kernels::kernels::keep::keep_edges.name();
        ENTRIES.iter().map(|entry| entry.entry.name()).chain([keep]).collect()
    },
    prepare: |problem| Sums::find(problem).map(|sums| Prepared::new(Variant::RunningSums, sums)),
    cost: |problem, machine| match Sums::find(problem) {
        Ok(sums) => machine.slower() * sums.time(problem) / problem.millions(),
        Err(_) => whole::DECLINED,
    },
};

/// The value of every tap, if sums of pixels in whole numbers decide the bytes: all taps are equal, and their sum is so near to 1 that it makes no
/// difference but at ties.
///
/// A sum of bytes divided by `n` taps lies on a half, or `1 / 2n` from it at least. What the taps are off, and what the order of a sum in f64 changes, must
/// be less. Where passes define the bytes, there must be no ties.
pub(crate) fn tap(filter: &Filter, reordering: f64) -> Option<f64> {
    /// So that a sum of bytes has room, and its division is exact.
    const MOST: usize = 1 << 20;
    let taps = filter.cols() * filter.rows();
    let has_room = (2..=MOST).contains(&taps) && (taps <= MAX_WINDOW || !taps.is_multiple_of(2));
    let count = taps as f64;
    filter.equal_tap().filter(|tap| {
        // Two passes round as often as a sum in any order, at most.
        let error = 255.0 * (tap * count - 1.0).abs() + reordering.max(255.0 * count * f64::EPSILON);
        has_room && error < 0.25 / count
    })
}

/// The launch for a problem.
#[derive(Clone, Debug)]
struct Sums {
    entry: &'static RunningSums,
    /// Warps of a block.
    warps: i32,
    /// Values that a window reaches further than a result.
    reach: i32,
    /// Whether no sum is a tie, or ties are settled in place.
    settles: bool,
}

/// Rows of a strip, among which a launch chooses.
const HEIGHTS: [u32; 11] = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512];

/// The greatest reach with which a warp by itself has enough results.
const NEAR: usize = 144;

/// What a row takes that is added up before the first result, of one with results; and how many of these a strip takes as long as besides.
const BEFORE: f64 = 0.15;
const BESIDES: f64 = 6.0;

impl Sums {
    fn find(problem: &Problem) -> Result<Self, Why> {
        let channels = whole::channels(problem)?;
        let Problem { cols, rows, width, .. } = *problem;
        if !problem.numbers.mean {
            return Err("it takes equal taps whose sum is 1".into());
        }
        // A thread finds values so many left of the image, too.
        const BESIDE: usize = 1 << 28;
        if width > BESIDE {
            return Err(format!("{width} columns, it takes {BESIDE}").into());
        }
        let reach = (cols - 1) * channels;
        // Ties of larger windows are settled by all lanes of a warp together.
        let is_near = rows <= MOST_ROWS as usize && reach <= NEAR && cols * rows < means::LEAST as usize;
        // Most of a block's columns are to be results', with as few warps as that needs.
        let has_results = |warps: &i32| 2 * 4 * words(*warps, reach as i32) >= 32 * VALUES * warps;
        let warps = match is_near {
            true => 1,
            false => [4, 8, MOST_WARPS].into_iter().find(has_results).ok_or_else(|| {
                let most = (32 * VALUES * MOST_WARPS) as usize / 2 / channels;
                Why::from(format!("{cols} columns of taps, it takes about {most} for {channels} channels"))
            })?,
        };
        let entry = ENTRIES.iter().find(|entry| (entry.channels, entry.is_near) == (channels, is_near));
        let entry = entry.ok_or("it has no kernel for these channels")?;
        let sums = Self { entry, warps, reach: reach as i32, settles: is_near || !(cols * rows).is_multiple_of(2) };
        problem.fits_shared_memory(sums.shared(rows) as usize, "its rows")?;
        Ok(sums)
    }

    /// Bytes of shared memory of a block.
    fn shared(&self, rows: usize) -> u32 {
        shared_bytes(self.warps, self.reach, if self.entry.is_near { rows as i32 + wait(rows as i32) } else { 0 })
    }

    /// Strips side by side for so many values of a row.
    fn across(&self, values: usize) -> usize {
        // They begin at a multiple of four.
        (values + 3).div_ceil(4 * words(self.warps, self.reach) as usize)
    }

    /// The height of strips with which all are soonest done, where so many run at a time; and how many rows all of these take then.
    fn height(&self, rows: usize, strips: impl Fn(usize) -> f64, at_once: f64) -> (u32, f64) {
        /// Strips at the image's edge come first, and take as long as so many others: what is left is done meanwhile.
        const EDGE: f64 = 2.5;
        let each = |height: u32| f64::from(height) + BESIDES + BEFORE * (rows - 1) as f64;
        let waves = |height: u32| strips(height as usize) / at_once;
        let cost = |height: u32| each(height) * (waves(height) + 0.3).max(EDGE);
        let least = HEIGHTS.into_iter().min_by(|&a, &b| cost(a).total_cmp(&cost(b)));
        let height = least.expect("there are heights");
        (height, each(height) * (waves(height).max(1.0) + 0.3))
    }

    /// Microseconds on an H200.
    fn time(&self, problem: &Problem) -> f64 {
        /// For a row of a strip, where a GPU is full, of a near entry and of a warp of a far one.
        const ROW: [f64; 2] = [1.15, 1.6];
        /// To find ties and to settle them, for a million results, in place and by a launch; the launch, and for a tap of the only one that a warp has.
        const TIES: f64 = 1.6;
        const LISTED: f64 = 6.3;
        const SETTLE: f64 = 6.0;
        const SETTLE_TAP: f64 = 0.012;
        const MULTIPROCESSORS: f64 = 132.0;
        const SHARED: f64 = 228.0 * 1024.0;
        const WARPS: f64 = 24.0;
        let channels = self.entry.channels;
        let images = (problem.planes / channels) as f64;
        let across = self.across(problem.width * channels) as f64;
        let by_memory = (SHARED / f64::from(self.shared(problem.rows) + 1024)).floor();
        let at_once = MULTIPROCESSORS * by_memory.min((WARPS / f64::from(self.warps)).floor()).max(1.0);
        let strips = |height: usize| images * across * problem.height.div_ceil(height) as f64;
        let (_, rows) = self.height(problem.rows, strips, at_once);
        let taps = problem.cols * problem.rows;
        let ties = match (taps.is_multiple_of(2), self.settles) {
            (false, _) => 0.0,
            (true, true) => TIES * problem.millions(),
            (true, false) => SETTLE + (LISTED * problem.millions()).max(SETTLE_TAP * taps as f64),
        };
        rows * ROW[usize::from(!self.entry.is_near)] + ties
    }
}

impl Work for Sums {
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &Job<'_>, stream: &mut Stream) -> crate::Result<()> {
        use gpu_kernels::kernels::running_sums::Mean;

        let (pass, channels) = (super::keep::left_out(job.pass), self.entry.channels as i32);
        let Window { rows, .. } = job.window;
        let tap = job.taps.filter().equal_tap().ok_or_else(|| crate::Error::Unsupported {
            variant: Variant::RunningSums.name(),
            reason: "its taps are not equal".to_owned(),
        })?;
        let region = &pass.region;
        let begin = (region.x0 * channels) & !3;
        // From that multiple of four on.
        let across = ((region.x1 * channels - begin) as u32).div_ceil(4 * words(self.warps, self.reach) as u32);
        let (height, images) = ((region.y1 - region.y0) as u32, job.planes / channels as u32);
        let shared = self.shared(rows as usize);
        let threads = 32 * self.warps as u32;
        let at_once = stream.gpu().resident_blocks(self.entry.entry.name(), threads, shared)?.max(1) as f64;
        let strips = |rows: usize| f64::from(across * height.div_ceil(rows as u32)) * f64::from(images);
        let (of_strip, _) = self.height(rows as usize, strips, at_once);
        let blocks = (across * height.div_ceil(of_strip), 1, 1);
        let grid = stream.gpu().fitting(Grid { blocks, block: (32, self.warps as u32, 1), shared }, images);
        // A plane of its own is all that a kernel for one channel has.
        let filtered = if channels > 1 { job.filtered } else { 1 };
        let arguments = (pass, Mean::new(job.window, tap), filtered as i32, of_strip as i32);
        // SAFETY: `find` checked the limits, and the shared memory; the pass describes allocated memory, and has a list if ties are not settled in place.
        unsafe { stream.enqueue(self.entry.entry, grid, &arguments)? };
        super::keep::restore(job, stream)
    }

    fn takes_pixels(&self) -> bool {
        self.entry.channels > 1
    }

    #[cfg(feature = "gpu")]
    fn settles(&self) -> bool {
        self.settles
    }
}

#[cfg(test)]
mod tests {
    use gpu_kernels::abi::Window;
    use gpu_kernels::kernels::running_sums::Mean;

    use super::*;

    /// Every sum of bytes near a half, and others, for windows of all sizes.
    #[test]
    fn quotients_are_exact() {
        let windows = (2..400).map(|taps| (taps, 1)).chain([
            (16, 16),
            (257, 1),
            (250, 250),
            (256, 256),
            (255, 257),
            (1023, 1023),
            (1024, 1024),
        ]);
        for (cols, rows) in windows {
            let window = Window { cols, rows, anchor_x: 0, anchor_y: 0 };
            let (mean, taps) = (Mean::new(window, 1.0 / f64::from(cols * rows)), (cols * rows) as u64);
            for byte in 0..=255u64 {
                for beside in [0, 1, taps / 2, taps / 2 + 1, taps - 1] {
                    let moved = byte * taps + beside;
                    if beside < taps && moved <= 255 * taps + taps / 2 {
                        assert_eq!(u64::from(mean.byte(moved as u32)), byte, "{moved} of {taps}");
                    }
                }
            }
        }
    }

    #[test]
    fn filters_whose_sums_of_pixels_decide() {
        let takes = |text: &str| {
            let filter: Filter = text.parse().unwrap();
            tap(&filter, crate::round::reordering(&filter)).is_some()
        };
        for text in ["box:size=2", "box:size=6", "box:size=101", "box:size=250", "box:cols=1,rows=64", "box:size=401"] {
            assert!(takes(text), "{text}");
        }
        // Taps of f32 that are no mean; ties that passes define; others.
        for text in ["box:size=258", "gaussian:sigma=2", "taps:0.5 0.25 0.25", "taps:1 1", "identity", "box:size=1025"]
        {
            assert!(!takes(text), "{text}");
        }
    }
}
