//! Bands: cuts a picture into jobs that overlap in time and fit in a device's memory.
//!
//! A job is a band of results and the rows of the source that it needs. The whole picture decides
//! the kernel, and a band's results are those of the whole picture, bit for bit. If results depend
//! on a grid of tiles, as with spectra, bands begin on that grid and have every row that their
//! tiles read.

use std::ops::Range;

use gpu_kernels::border;

use crate::problem::rows_read;

/// Bands of a medium picture: enough to overlap copies both ways with kernels, few enough that
/// starting them costs little.
pub(super) const BANDS: usize = 16;

/// The same where threads copy a band from or to pinned memory: starting them costs more.
pub(super) const STAGED_BANDS: usize = 8;

/// The least and the most bytes of a band, in its larger direction. Below, driver calls cost more
/// than the overlap saves; above, staging memory exceeds the processor's cache.
pub(super) const BAND: Range<usize> = 2 << 20..8 << 20;

/// A band is at least so many times as high as the rows that it shares with its neighbours: these
/// are copied twice.
const APRONS: usize = 4;

/// A picture, as the schedule sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Extent {
    pub(crate) height: usize,
    /// One of the `border::` mode constants.
    pub(crate) border: u32,
    /// The window's anchor row.
    pub(crate) anchor: usize,
    /// Rows from the first to the last that a result's window, or its tile for it, reads.
    pub(crate) reach: usize,
    /// Bands begin at multiples of so many rows.
    pub(crate) step: usize,
    /// Further rows that a band shares with its neighbours, for the windows of earlier steps.
    pub(crate) beside: usize,
    /// Bytes of a row of the source or of results, whichever has more.
    pub(crate) row: usize,
    /// Whether no other picture is under way at the same time.
    pub(crate) alone: bool,
    /// Whether threads copy its rows from or to pinned memory.
    pub(crate) staged: bool,
    /// The height of bands where memory does not limit it, if given.
    pub(crate) rows: Option<usize>,
}

/// The limits of a plan's runs.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Bytes of a GPU's memory for pictures and scratch.
    pub(crate) memory: u64,
    /// See [`Extent::rows`].
    pub(crate) rows: Option<usize>,
    #[cfg(feature = "gpu")]
    pub(crate) flow: FlowOptions,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: u64::MAX,
            rows: None,
            #[cfg(feature = "gpu")]
            flow: FlowOptions::default(),
        }
    }
}

/// Overrides of how bands go through GPUs, for tests and the benchmark.
#[cfg(feature = "gpu")]
#[derive(Clone, Debug, Default)]
pub struct FlowOptions {
    /// Threads that feed each GPU.
    pub feeders: Option<usize>,
    /// Bands under way at once on each GPU.
    pub lanes: Option<usize>,
    /// Bytes of the pieces in which threads share a copy.
    pub share: Option<usize>,
    /// Bands of pinned pictures in a lane at once.
    pub deep: Option<usize>,
    /// Whether kernels read and write the rows that threads copy, without the device's copies.
    pub in_place: Option<bool>,
    /// Where to note the times of each step.
    pub timeline: Option<crate::gpu::Timeline>,
}

/// The height of bands, and the number under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bands {
    pub(crate) rows: usize,
    pub(crate) lanes: usize,
}

/// A band of results, and where it finds its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// The rows of the picture that it computes.
    pub(crate) results: Range<usize>,
    /// The rows of the picture that it needs, in the order of the band's memory.
    pub(crate) source: Vec<Range<usize>>,
    /// The height of the image that the kernel sees: the picture's, unless the band needs rows of
    /// both ends of the picture. Then the band is an image of its own, with the rows outside in
    /// place.
    pub(crate) height: usize,
    /// The rows of that image that are computed.
    pub(crate) region: Range<usize>,
    /// The rows of that image that are there.
    pub(crate) there: Range<usize>,
}

impl Extent {
    /// The bands for a device with room for `room` bytes and at most `lanes` lanes. `bytes` gives
    /// the bytes of a lane for a height of bands; it never falls as the height rises.
    ///
    /// # Errors
    /// The bytes needed, if there is no room for the lowest band.
    pub(crate) fn bands(
        &self,
        room: u64,
        lanes: usize,
        bytes: impl Fn(usize) -> u64,
    ) -> Result<Bands, u64> {
        let bands = Bands { rows: self.preferred(), lanes };
        let fits = |bands: &Bands| {
            bytes(bands.rows).saturating_mul(self.lanes_in_use(bands) as u64) <= room
        };
        let mut next = Some(bands);
        // Halving uses at least half of the room.
        while let Some(bands) = next {
            if fits(&bands) {
                return Ok(bands);
            }
            next = self.smaller(bands);
        }
        Err(bytes(self.lowest()))
    }

    /// The next smaller bands: half as high; then fewer at once. `None` if there are none.
    pub(crate) fn smaller(&self, Bands { rows, lanes }: Bands) -> Option<Bands> {
        let half = self.on_grid(rows / 2);
        if half < rows {
            Some(Bands { rows: half, lanes })
        } else {
            (lanes > 1).then_some(Bands { rows, lanes: 1 })
        }
    }

    /// How many lanes have work.
    pub(crate) fn lanes_in_use(&self, bands: &Bands) -> usize {
        if self.alone { bands.lanes.min(self.height.div_ceil(bands.rows)) } else { bands.lanes }
    }

    /// The most rows of the source that a band of so many rows needs.
    pub(crate) fn source_rows(&self, rows: usize) -> usize {
        let needed = rows.next_multiple_of(self.step).saturating_add(self.reach - 1);
        // Under WRAP, a window that is higher than the image finds rows more than once.
        if rows >= self.height || self.border != border::WRAP {
            needed.min(self.height)
        } else {
            needed + self.anchor.next_multiple_of(self.step) - self.anchor
        }
    }

    /// The job for the band of results that begins at row `first`.
    pub(crate) fn job(&self, first: usize, bands: Bands) -> Job {
        let results = first..first.saturating_add(bands.rows).min(self.height);
        let height = self.height;
        if results.len() == height {
            let there = 0..height;
            return Job {
                region: results.clone(),
                source: vec![there.clone()],
                there,
                height,
                results,
            };
        }
        let read = self.read(&results);
        let unresolved = results.len().next_multiple_of(self.step) + self.reach - 1;
        if self.border != border::WRAP || read.len() <= unresolved {
            return Job {
                region: results.clone(),
                there: read.clone(),
                height,
                source: vec![read],
                results,
            };
        }
        let window = (self.anchor, self.reach);
        let (source, above) = wrapped(&results, window, self.step, height);
        let height = source.iter().map(ExactSizeIterator::len).sum();
        let region = above..above + results.len();
        Job { results, source, height, region, there: 0..height }
    }

    /// The rows of the source that these results need. The results begin where a band may begin.
    pub(crate) fn read(&self, results: &Range<usize>) -> Range<usize> {
        if results.len() == self.height {
            return 0..self.height;
        }
        // A tile reads all its rows, however few of its results are needed.
        let tiles = results.start..results.start + results.len().next_multiple_of(self.step);
        rows_read(self.border, (self.anchor, self.reach), tiles, self.height)
    }

    /// The results with these among them, from a row where a band may begin.
    pub(crate) fn widened(&self, results: Range<usize>) -> Range<usize> {
        results.start / self.step * self.step..results.end
    }

    /// The height of bands where memory does not limit it.
    fn preferred(&self) -> usize {
        if let Some(rows) = self.rows {
            return self.on_grid(rows);
        }
        let total = self.row.saturating_mul(self.height);
        // Pictures of a batch overlap each other.
        let bands = if self.staged { STAGED_BANDS } else { BANDS };
        let band = if self.alone { (total / bands).clamp(BAND.start, BAND.end) } else { BAND.end };
        let count = (total / band).clamp(1, self.height);
        self.on_grid(self.height.div_ceil(count).max(APRONS * (self.reach - 1 + self.beside)))
    }

    fn lowest(&self) -> usize {
        self.on_grid(1)
    }

    /// The least height from this one up after which the next band may begin.
    fn on_grid(&self, rows: usize) -> usize {
        rows.max(1).next_multiple_of(self.step).min(self.height)
    }
}

/// The rows under the windows of results, in a picture of `height` rows that wraps around, and how
/// many of them are above the results. A window has an anchor row and a reach. Tiles of `step` rows
/// are whole, and the grid of tiles begins at the first of the rows.
pub(crate) fn wrapped(
    results: &Range<usize>,
    (anchor, reach): (usize, usize),
    step: usize,
    height: usize,
) -> (Vec<Range<usize>>, usize) {
    let above = anchor.next_multiple_of(step);
    let mut left = above + results.len().next_multiple_of(step) + reach - 1 - anchor;
    let mut at = (results.start as i64 - above as i64).rem_euclid(height as i64) as usize;
    let mut source = Vec::new();
    while left > 0 {
        let end = height.min(at + left);
        source.push(at..end);
        left -= end - at;
        at = 0;
    }
    (source, above)
}

#[cfg(test)]
mod tests {
    use gpu_kernels::border::{self, WRAP, resolve};

    use super::*;

    /// Every row that a band's tiles read, by way of the border rule of the image that the kernel
    /// sees, is the one that the rule of the whole picture finds.
    fn check(extent: &Extent, job: &Job) {
        let Extent { height, border, anchor, reach, step, .. } = *extent;
        let staged: Vec<usize> = job.source.iter().cloned().flatten().collect();
        assert_eq!(staged.len(), job.there.len(), "{extent:?} {job:?}");
        assert_eq!(job.region.len(), job.results.len());
        // Tiles lie on the grid of the image that the kernel sees, too.
        assert_eq!(job.region.start % step, job.results.start % step, "{extent:?} {job:?}");
        assert!(staged.len() <= extent.source_rows(job.results.len()), "{extent:?} {job:?}");
        for row in 0..job.results.len().next_multiple_of(step) {
            for tap in 0..reach {
                let seen = resolve(
                    border,
                    (job.region.start + row + tap) as i32 - anchor as i32,
                    job.height as i32,
                );
                let right = resolve(
                    border,
                    (job.results.start + row + tap) as i32 - anchor as i32,
                    height as i32,
                );
                // Beyond a whole image on the lowest tile, only what the rule finds.
                let found =
                    if seen < 0 { seen } else { staged[seen as usize - job.there.start] as i32 };
                assert_eq!(found, right, "{extent:?} {job:?}: row {row} tap {tap}");
            }
        }
    }

    #[test]
    fn bands_cover_the_picture_and_have_their_rows() {
        for border in border::ALL {
            for height in 1..12 {
                for (reach, anchor) in
                    (1..9).flat_map(|reach| (0..reach).map(move |anchor| (reach, anchor)))
                {
                    for (step, rows) in
                        [(1, 1), (1, 2), (1, 3), (1, 5), (2, 2), (3, 3), (3, 6), (4, 4), (20, 20)]
                    {
                        let extent = Extent {
                            height,
                            border,
                            anchor,
                            reach,
                            step,
                            beside: 0,
                            row: 1,
                            alone: true,
                            staged: false,
                            rows: None,
                        };
                        let bands = Bands { rows, lanes: 2 };
                        let mut next = 0;
                        while next < height {
                            let job = extent.job(next, bands);
                            assert_eq!((job.results.start, next % step), (next, 0));
                            check(&extent, &job);
                            next = job.results.end;
                        }
                        assert_eq!(next, height);
                    }
                }
            }
        }
    }

    #[test]
    fn wrapped_bands_take_what_they_need_and_no_more() {
        let extent = Extent {
            height: 1000,
            border: WRAP,
            anchor: 2,
            reach: 5,
            step: 1,
            beside: 0,
            row: 1,
            alone: true,
            staged: false,
            rows: None,
        };
        let bands = Bands { rows: 100, lanes: 3 };
        assert_eq!(extent.job(0, bands).source, [998..1000, 0..102]);
        assert_eq!(extent.job(100, bands).source, std::slice::from_ref(&(98..202)));
        assert_eq!(extent.job(900, bands).source, [898..1000, 0..2]);
    }

    const MIB: usize = 1 << 20;

    fn picture(row: usize, height: usize) -> Extent {
        Extent {
            height,
            border: border::REFLECT_101,
            anchor: 8,
            reach: 17,
            step: 1,
            beside: 0,
            row,
            alone: true,
            staged: false,
            rows: None,
        }
    }

    #[test]
    fn small_pictures_are_one_band_and_large_ones_many() {
        let bands = |row, height| picture(row, height).bands(u64::MAX, 3, |_| 0).unwrap();
        for (row, height, count) in
            [(300, 200, 1), (2 << 10, 2 << 10, 2), (18000, 4000, 16), (32 << 10, 8 << 10, 32)]
        {
            let bands = bands(row, height);
            assert_eq!((height.div_ceil(bands.rows), bands.lanes), (count, 3), "{row} x {height}");
        }
        // One of a batch.
        let batched =
            Extent { alone: false, ..picture(5760, 1080) }.bands(u64::MAX, 3, |_| 0).unwrap();
        assert_eq!((batched.rows, bands(5760, 1080).rows), (1080, 540));
        // Where threads copy, fewer.
        let staged =
            Extent { staged: true, ..picture(18000, 4000) }.bands(u64::MAX, 4, |_| 0).unwrap();
        assert_eq!(staged, Bands { rows: 500, lanes: 4 });
        // Rows as long as a band: the apron says how high it is.
        assert_eq!(bands(64 * MIB, 1000).rows, 64);
    }

    #[test]
    fn memory_bounds_bands() {
        let extent = picture(18000, 4000);
        let bytes = |rows: usize| 36000 * (rows as u64 + 16);
        for room in [1 << 20, 2 << 20, 16 << 20, 256 << 20] {
            let bands = extent.bands(room, 3, bytes).unwrap();
            assert!(bytes(bands.rows) * bands.lanes as u64 <= room, "{room}: {bands:?}");
            let preferred = bands.rows == extent.bands(u64::MAX, 3, bytes).unwrap().rows;
            // At least half of what would fit.
            assert!(preferred || bytes(2 * bands.rows + 2) * 3 > room, "{room}: {bands:?}");
        }
        // Three lanes have no room, one has.
        assert_eq!(extent.bands(36000 * 17, 3, bytes), Ok(Bands { rows: 1, lanes: 1 }));
        assert_eq!(extent.bands(36000 * 17 - 1, 3, bytes), Err(36000 * 17));
    }

    #[test]
    fn bands_shrink_on_the_grid_until_they_cannot() {
        let extent = Extent { step: 96, ..picture(18000, 4000) };
        let mut bands = extent.bands(u64::MAX, 3, |_| 0).unwrap();
        let mut seen = vec![bands];
        while let Some(smaller) = extent.smaller(bands) {
            assert!(smaller.rows.is_multiple_of(96) && smaller != bands, "{seen:?}");
            bands = smaller;
            seen.push(bands);
        }
        assert_eq!(bands, Bands { rows: 96, lanes: 1 });
        // What is lower than a tile is one band.
        let low = Extent { height: 50, ..extent };
        assert_eq!(low.smaller(Bands { rows: 50, lanes: 1 }), None);
    }
}
