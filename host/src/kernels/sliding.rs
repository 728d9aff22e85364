//! The direct family's sliding kernel: launches `gpu-kernels/src/kernels/sliding.rs`. Cuts the
//! image into strips, for the fused kernel too.

use gpu_kernels::abi::{Epilogue, Plane, scalar};
use gpu_kernels::kernels::flat::{DIRECT, Flat, VALUES};
use gpu_kernels::kernels::sliding::{self, ENTRIES, Strip};
use gpu_kernels::tile::flat::{flat_bytes, takes_outside};
use gpu_kernels::tile::planar::{MAX_CHANNELS, planar_bytes};
use gpu_kernels::tile::ring::ring_floats;

use super::cost::{in_strips, resolved};
#[cfg(feature = "gpu")]
use super::prepared::PassJob;
use super::prepared::{Kernel, Launcher, Prepared};
use super::taken::Taken;
use super::uncertain::estimates;
#[cfg(feature = "gpu")]
use crate::gpu::{launch::Grid, stream::Stream};
use crate::problem::Problem;
use crate::problem::machine::{Bound, Machine, Time, Times};
use crate::{Scalar, Variant, Why};

pub(super) static SLIDING: Kernel = Kernel {
    variant: Variant::DirectSliding,
    entries: || entries(ENTRIES, DIRECT),
    prepare: |problem| {
        Strips::prepare(Variant::DirectSliding, Taken::Window, (ENTRIES, DIRECT), problem)
    },
    time: |problem, machine| {
        const TIMES: Times = Times(
            Bound::Floats,
            &[
                (9.0, 2.3),
                (25.0, 2.28),
                (49.0, 2.7),
                (81.0, 3.95),
                (121.0, 5.4),
                (169.0, 7.35),
                (225.0, 9.6),
                (289.0, 12.0),
            ],
        );
        // Bytes made of bytes, uncertain results included.
        const STORED: Times =
            Times(Bound::Floats, &[(9.0, 0.88), (25.0, 1.65), (49.0, 2.9), (289.0, 27.0)]);
        let times = if problem.source == Scalar::F32 { TIMES } else { STORED };
        time(Variant::DirectSliding, problem, machine, &times, problem.taps(), DIRECT)
    },
    rule: |problem| estimates(problem, Variant::DirectSliding),
};

/// The time of strips with these times for so much `work`. `flat` are the variant's entries for
/// values in memory order.
pub(super) fn time(
    variant: Variant,
    problem: &Problem,
    machine: &Machine,
    times: &Times,
    work: f64,
    flat: &'static [Flat],
) -> Time {
    // The times were measured on bytes made of bytes. Floats made of bytes take 1.05 times as long,
    // or 1.35 times with several channels; values of 16 bits 0.9 times in memory order, and 1.7
    // times through shared memory.
    let slower = match problem.source {
        _ if problem.rounding.is_some() => 1.0,
        Scalar::U8 if problem.side_by_side > 1 => 1.35,
        Scalar::U8 => 1.05,
        Scalar::U16 | Scalar::F16 if as_they_lie(flat, problem).is_some() => 0.9,
        Scalar::F32 if problem.side_by_side > 1 => 1.15,
        Scalar::F32 => 1.0,
        _ => 1.7,
    };
    let own = in_strips(problem, machine, times.on(machine, problem.bytes() / slower, work));
    if problem.rounding.is_some() {
        // Bytes of two channels are split by channel.
        let split = if problem.side_by_side == 2 { 2.0 } else { 1.0 };
        return resolved(variant, problem, own * split);
    }
    own * slower
}

/// The names of two tables' entries, and of the kernel that restores what a border copies.
pub(super) fn entries(table: &'static [Strip], flat: &'static [Flat]) -> Vec<&'static str> {
    let planar =
        table.iter().flat_map(|strip| strip.planar).flatten().map(|planar| planar.entry.name());
    let flat = flat.iter().map(|strip| strip.entry.name());
    table
        .iter()
        .map(|strip| strip.entry.name())
        .chain(planar)
        .chain(flat)
        .chain([gpu_kernels::kernels::keep::keep_edges.name()])
        .collect()
}

/// The table's entry for the problem's window, channels and types.
fn as_they_lie(table: &'static [Flat], problem: &Problem) -> Option<&'static Flat> {
    let sizes = [problem.cols, problem.rows, problem.side_by_side];
    let types = [problem.source, problem.target].map(Scalar::code);
    let fits = |flat: &&Flat| {
        let [taps, channels] = [flat.taps, flat.channels].map(|count| count as usize);
        ([taps, taps, channels], [flat.source, flat.result]) == (sizes, types)
    };
    table.iter().find(fits)
}

/// Warps of a block. Neighbouring strips in one block read adjacent parts of a row. One and four
/// warps differ by less than 2 %.
const WARPS: u32 = 4;

/// The fixed cost of a strip, in rows: filling the ring and starting the warp.
const START: u32 = 4;

/// How strips get their heights.
struct Heights {
    /// Numbers of taps, each with the greatest height for up to so many: measured on an H200, used
    /// for all GPUs.
    most: &'static [(i32, u32)],
    /// The time for a row of all strips with one block on each multiprocessor, relative to the time
    /// with as many blocks as fit. In between, time grows with the most blocks on a multiprocessor.
    alone: f64,
}

/// For f32.
///
/// | taps | rows | measured on an H200, 8192x8192, us |
/// | --- | --- | --- |
/// | 5 | 32 | direct 5x5: 156 with 16 rows, 155 with 32, 157 with 48, 162 with 96; 2048x2048 13.9 with 16, 13.2 with 32, 15.4 with 64 |
/// | 7 | 50 | direct 7x7, 6500x5200x3: 273 with 50 rows, 276 with 100, 283 with 200, 297 with 386, one wave |
/// | any | 512 | direct 9x9: 269 with 249 rows, one wave of strips; 281 with 125, two waves; 304 with 64 |
///
/// A row takes 0.23 us with a block of 17 taps on each multiprocessor, 0.32 with two and 0.4 with
/// three, which is all that fit. Pictures of f32, in us (17 taps one row at a time, as they were
/// taken then):
///
/// | rows | 4 | 6 | 8 | 10 | 16 | 20 | 24 | 32 | 48 | 64 | chosen |
/// | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
/// | direct 5x5, 1024x1024 | 6.7 | 6.3 | 6.4 | 5.8 | 6.6 | 6.8 | 7.4 | 9.0 | 11.2 | 14.2 | 8 |
/// | fused 9, 1024x1024 | 8.8 | 8.0 | 7.9 | 7.2 | 8.1 | 7.8 | 8.4 | 10.1 | 11.8 | 14.5 | 8 |
/// | fused 17, 1024x1024 | 20.6 | 15.0 | 13.9 | 14.0 | 13.9 | 14.5 | 15.4 | 17.4 | 21.0 | 24.9 | 16 |
/// | direct 9x9, 2048x2048 | 47.5 | 38.1 | 34.8 | 32.9 | 31.7 | 29.1 | 24.9 | 23.7 | 30.7 | 26.3 | 22 |
/// | fused 17, 2048x2048 | 53.1 | 40.2 | 35.6 | 33.2 | 29.0 | 26.4 | 21.7 | 21.6 | 26.1 | 25.1 | 32 |
/// | fused 17, 4096x4096 | 183 | 136 | 114 | 98 | 80 | 73 | 67 | 62 | 56 | 65 | 84 |
const F32: Heights = Heights { most: &[(5, 32), (7, 50), (i32::MAX, 512)], alone: 0.4 };

/// For values of 8 and 16 bits. Strips at the image's edges take longer than others, so a launch
/// should have several waves.
///
/// | taps | rows | measured on an H200, 8192x8192 u8, 1 channel / 3 channels, us |
/// | --- | --- | --- |
/// | 7 | 32 | direct 3x3: 158 / 492 with 32 rows, 158 / 515 with 16, 171 / 500 with 64, 231 / 565 with 128 |
/// | any | 64 | fused 17: 423 / 1307 with 64 rows, 450 / 1451 with 32, 432 / 1292 with 128, 494 / 1356 with one wave |
///
/// A wave that is not full counts as one: with 0.3, 9x9 of 2048x2048 u16 takes 51.7 us and not
/// 49.1, 17 taps of 1920x1080x3 u8 into f32 67.8 and not 65.5.
const PLANAR: Heights = Heights { most: &[(7, 32), (i32::MAX, 64)], alone: 1.0 };

/// The most rows of a strip of values in memory order.
const MAX_FLAT: u32 = 84;

/// The time of a strip for a row when it runs alone, relative to a full GPU's time for a row of all
/// strips.
///
/// A launch takes the time of a full GPU for all rows, then that of one strip alone: strips end at
/// different times, so their number counts, not the number of waves. Measured on an H200, us, by
/// the height of strips; bold is nearest to the chosen height:
///
/// | u8 | 4 | 6 | 8 | 12 | 24 | 32 | 40 | 48 |
/// | --- | --- | --- | --- | --- | --- | --- | --- | --- |
/// | direct 3x3, 1920x1080x3 | **11.7** | 12.1 | 13.0 | 15.0 | 19.6 | | | |
/// | direct 5x5, 1920x1080x3 | 20.0 | **18.6** | 20.0 | 23.0 | | | | |
/// | fused 9, 1920x1080x3 | | 26.6 | **27.4** | 29.1 | | | | |
/// | direct 3x3, 8192x8192x3 | | | | | **154** | 154 | 154 | 157 |
/// | fused 5, 8192x8192x3 | | | | | 191 | **189** | 187 | |
/// | fused 9, 8192x8192x3 | | | | | | 305 | | **295** |
const ALONE_FLAT: f64 = 1.05;

/// An entry that slides down strips of the image, chosen for a problem.
#[derive(Debug)]
pub(super) struct Strips {
    taken: Taken,
    entry: &'static Strip,
    /// The channels that a block takes, if it takes values of 8 or 16 bits.
    planar: Option<Planar>,
}

/// The kernel for interleaved values of 8 or 16 bits.
#[derive(Clone, Copy, Debug)]
struct Planar {
    strip: sliding::Planar,
    channels: u32,
    /// The kernel for values in memory order, if there is one, for passes that [`flat_takes`]
    /// accepts.
    flat: Option<&'static Flat>,
}

impl Strips {
    /// The launch of the table's entry for the problem's window, with these taps of the filter.
    pub(super) fn prepare(
        variant: Variant,
        taken: Taken,
        tables: (&'static [Strip], &'static [Flat]),
        problem: &Problem,
    ) -> Result<Prepared, Why> {
        Self::find(taken, tables, problem).map(|strips| Prepared::new(variant, strips))
    }

    /// The table's entry for the problem's window.
    pub(super) fn find(
        taken: Taken,
        (table, flat): (&'static [Strip], &'static [Flat]),
        problem: &Problem,
    ) -> Result<Self, Why> {
        let Problem { cols, rows, anchor_x, .. } = *problem;
        // Only f32 has entries of its own for interleaved channels.
        let floats = problem.source == Scalar::F32;
        let side_by_side = if floats { problem.side_by_side } else { 1 };
        let fits = |entry: &&Strip| {
            let [taps, channels] = [entry.taps, entry.channels].map(|count| count as usize);
            (taps, taps, channels) == (cols, rows, side_by_side)
        };
        let Some(entry) = table.iter().find(fits) else {
            return Err(match side_by_side {
                1 => format!("it has no kernel for {cols}x{rows} taps"),
                n => format!("it has no kernel for {cols}x{rows} taps on {n} interleaved channels"),
            }
            .into());
        };
        if anchor_x != cols / 2 {
            return Err(format!("the anchor's column is {anchor_x}, not {}", cols / 2).into());
        }
        if !floats {
            let channels = problem.side_by_side as u32;
            if channels > MAX_CHANNELS {
                return Err(format!(
                    "{channels} interleaved channels, the limit is {MAX_CHANNELS}"
                )
                .into());
            }
            let Some([bits8, bits16]) = entry.planar else {
                return Err("it takes only planar f32 images".into());
            };
            let strip = if problem.source == Scalar::U8 { bits8 } else { bits16 };
            let planar = Planar { strip, channels, flat: as_they_lie(flat, problem) };
            let bytes = planar_bytes(
                entry.taps,
                planar.strip.pixels,
                channels as i32,
                problem.target.bytes() as i32,
            );
            problem.fits_shared_memory(bytes as usize, "its rows")?;
            return Ok(Self { taken, entry, planar: Some(planar) });
        }
        if !problem.source_is_aligned {
            return Err(
                "the source's rows must begin at multiples of 16 bytes, with no gaps between \
                 pixels; interleaved channels must be so in the result, and all of them filtered"
                    .into(),
            );
        }
        let span = sliding::span(entry.taps, entry.channels) as i32;
        let bytes = 4 * WARPS as usize * ring_floats(span, entry.pixels, entry.stages) as usize;
        problem.fits_shared_memory(bytes, "its rings")?;
        Ok(Self { taken, entry, planar: None })
    }

    /// The rows of a strip for a region of `height` rows that is `across` blocks wide (all planes
    /// together), on a device that runs `slots` blocks of the kernel at a time, on so many
    /// multiprocessors.
    ///
    /// Where strips meet, `taps - 1` rows are computed twice, so strips should be high. But a
    /// launch ends with its last strip, so the strips should also fill whole waves, or load all
    /// multiprocessors equally.
    #[cfg(any(feature = "gpu", test))]
    fn rows(
        &self,
        heights: &Heights,
        height: u32,
        across: u64,
        (slots, multiprocessors): (u64, u32),
    ) -> u32 {
        let step = self.planar.map_or(self.entry.rows, |planar| planar.strip.rows) as u32;
        let taps = self.entry.taps;
        let most =
            heights.most.iter().find(|&&(most, _)| taps <= most).map_or(512, |&(_, rows)| rows);
        let multiprocessors = u64::from(multiprocessors.max(1));
        // Of a multiprocessor.
        let places = (slots / multiprocessors).max(1);
        let cost = |rows: u32| {
            let blocks = (across * u64::from(height.div_ceil(rows))).div_ceil(multiprocessors);
            let last = match blocks % places {
                0 => 0.0,
                left => heights.alone + (1.0 - heights.alone) * left as f64 / places as f64,
            };
            f64::from(rows + taps as u32 - 1 + START) * ((blocks / places) as f64 + last)
        };
        // A strip reads whole groups of rows. Rows of a group that complete no result would be
        // computed for nothing.
        let all = (1..=most.div_ceil(step)).map(|groups| groups * step - (taps as u32 - 1) % step);
        all.min_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap_or(step)
    }

    /// The same of values in memory order.
    fn rows_flat(&self, height: u32, across: u64, slots: u64) -> u32 {
        let cost = |rows: u32| {
            let strips = (across * u64::from(height.div_ceil(rows))) as f64;
            f64::from(rows + self.entry.taps as u32) * (strips / slots.max(1) as f64 + ALONE_FLAT)
        };
        (1..=MAX_FLAT).min_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap_or(1)
    }
}

#[cfg(feature = "gpu")]
impl Strips {
    /// The taps that the kernels take.
    fn taps<'j>(&self, job: &PassJob<'j>) -> crate::Result<&'j [f32]> {
        match self.taken {
            Taken::Window => job.taps.dense(),
            Taken::Pairs => job.taps.rows_and_columns(),
            Taken::Weights => Ok(job.taps.weights()),
        }
    }
}

impl Launcher for Strips {
    /// Puts the kernel into the stream; then, if the border says so, the one that copies the pixels
    /// to keep.
    #[cfg(feature = "gpu")]
    fn launch(&self, job: &PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
        match self.planar {
            Some(planar) => self.launch_planar(planar, job, stream)?,
            None => self.launch_f32(job, stream)?,
        }
        super::keep::restore(job, stream)
    }

    fn takes_pixels(&self) -> bool {
        self.planar.is_some_and(|planar| planar.channels > 1)
    }
}

#[cfg(feature = "gpu")]
impl Strips {
    /// Strips of f32, a warp each.
    fn launch_f32(&self, job: &PassJob<'_>, stream: &mut Stream) -> crate::Result<()> {
        let Strip { entry, taps: k, channels, pixels, stages, .. } = *self.entry;
        let channels = channels as u32;
        let pass = super::keep::left_out(job.pass);
        let (pass, planes) = match channels {
            1 => (pass, job.planes),
            _ => (pass.as_values(channels), job.planes / channels),
        };
        let (k, region) = (sliding::span(k, channels as i32) as i32, &pass.region);
        let (left, height) = (region.aligned_left(), (region.y1 - region.y0) as u32);
        let strip = 32 * pixels as u32;
        let across = ((region.x1 - left) as u32).div_ceil(strip);
        let taps = self.taps(job)?;
        // The number of warps that leaves the fewest idle.
        let warps = across.div_ceil(across.div_ceil(WARPS));
        let shared = 4 * warps * ring_floats(k, pixels, stages) as u32;
        let slots = stream.gpu().resident_blocks(entry.name(), 32 * warps, shared)?;
        let columns = u64::from(across.div_ceil(warps)) * u64::from(planes);
        let rows = self.rows(&F32, height, columns, (slots, stream.gpu().info().multiprocessors));
        let grid = Grid::covering(region, left, (warps * strip, rows), (32, warps)).sharing(shared);
        let grid = stream.gpu().fitting(grid, planes);
        let arguments = (pass, job.window.anchor_y, rows as i32);
        // SAFETY: `find` checked the source's alignment, and that both images have as many channels
        // side by side; the block has a ring for each warp; the pass describes allocated memory.
        unsafe { stream.enqueue_with_taps(entry, grid, &arguments, taps) }
    }

    /// Strips of interleaved pixels of 8 or 16 bits: in memory order if that kernel takes the pass,
    /// else by a block with a warp for each channel.
    fn launch_planar(
        &self,
        planar: Planar,
        job: &PassJob<'_>,
        stream: &mut Stream,
    ) -> crate::Result<()> {
        let k = self.entry.taps;
        let channels = planar.channels as i32;
        let region = &job.pass.region;
        let height = (region.y1 - region.y0) as u32;
        let flat = match planar.flat {
            Some(flat) if flat_takes(flat, job) => match flat.source {
                scalar::F16 => Some(self.taps(job)?),
                source => job.taps.flat(self.taken, source)?,
            }
            .map(|taps| (flat, taps)),
            _ => None,
        };
        let (entry, taps, across, warps, shared) = match flat {
            Some((flat, taps)) => {
                let first = (region.x0 * channels) & -(VALUES as i32);
                let across = ((region.x1 * channels - first) as u32).div_ceil(32 * VALUES as u32);
                (flat.entry, taps, across, 1, flat_bytes(flat.source, k, channels))
            }
            None => {
                let value = scalar::bytes(job.pass.dst.scalar);
                let sliding::Planar { entry, pixels, .. } = planar.strip;
                let shared = planar_bytes(k, pixels, channels, value);
                let width = (region.x1 - region.aligned_left()) as u32;
                let across = width.div_ceil(32 * pixels as u32);
                (entry, self.taps(job)?, across, planar.channels, shared)
            }
        };
        let slots = stream.gpu().resident_blocks(entry.name(), 32 * warps, shared)?;
        let images = job.planes / planar.channels;
        let columns = u64::from(across) * u64::from(images);
        let multiprocessors = stream.gpu().info().multiprocessors;
        let rows = match flat {
            Some(_) => self.rows_flat(height, columns, slots),
            None => self.rows(&PLANAR, height, columns, (slots, multiprocessors)),
        };
        let strips = height.div_ceil(rows);
        // Kernels for values in memory order count all strips along x.
        let blocks = if flat.is_some() { (across * strips, 1, 1) } else { (across, strips, 1) };
        let grid = Grid { blocks, block: (32, warps, 1), shared };
        let grid = stream.gpu().fitting(grid, images);
        let filtered = if self.takes_pixels() { job.filtered } else { 1 };
        let pass = super::keep::left_out(job.pass);
        let arguments = (pass, job.window.anchor_y, rows as i32, filtered as i32);
        // SAFETY: `flat_takes` checked the limits of the one kernel; for the other, a block has
        // a warp for each channel. Both have the shared memory for their rows; the pass
        // describes allocated memory.
        unsafe { stream.enqueue_with_taps(entry, grid, &arguments, taps) }
    }
}

/// Whether the kernel for values in memory order takes a pass: `gpu-kernels/src/tile/flat.rs`
/// has its limits.
#[cfg(feature = "gpu")]
fn flat_takes(flat: &Flat, job: &PassJob<'_>) -> bool {
    let pass = &job.pass;
    let fits = |plane: &Plane, scalar: u32| {
        let bytes = scalar::bytes(scalar);
        // Of what a lane loads or stores at a time.
        let multiple = (VALUES as u64 * bytes as u64).min(16);
        // What leads from one plane to another.
        let channel = if flat.channels == 1 && job.channels > 1 { plane.channel } else { 0 };
        let image = if job.planes > job.channels { plane.image(job.channels) } else { 0 };
        let steps = plane.base | (plane.row | channel | image) as u64;
        plane.scalar == scalar
            && plane.is_interleaved(flat.channels as u32)
            && steps.is_multiple_of(multiple)
            && i32::try_from(plane.row).is_ok()
    };
    let copies = job.filtered < flat.channels as u32;
    fits(&pass.src, flat.source)
        && fits(&pass.dst, flat.result)
        && pass.epilogue.flags == Epilogue::NONE.flags
        && pass.point == 0.0
        && takes_outside(flat.source, pass.border, pass.outside)
        && (!copies || (job.filtered, flat.channels) == (3, 4) && flat.result == flat.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The heights that the table of [`F32`] says, with as many blocks of four warps a
    /// multiprocessor as the entries' registers leave room for.
    #[test]
    fn strips_fill_waves() {
        let measured = [
            (5, 4, 1024, 8),
            (9, 4, 1024, 8),
            (17, 3, 1024, 16),
            (9, 3, 2048, 22),
            (17, 3, 2048, 32),
            (17, 3, 4096, 84),
        ];
        for (taps, blocks, size, expected) in measured {
            let entry = gpu_kernels::kernels::fused::ENTRIES
                .iter()
                .find(|entry| entry.taps == taps)
                .unwrap();
            let strips = Strips { taken: Taken::Window, entry, planar: None };
            let across = u64::from(size / (4 * 32 * entry.pixels as u32));
            let rows = strips.rows(&F32, size, across, (blocks * 132, 132));
            assert_eq!(rows, expected, "{taps} taps, {size} rows");
        }
    }

    /// The heights that the table of [`ALONE_FLAT`] has in bold, with as many warps a
    /// multiprocessor as the entries' registers leave room for.
    #[test]
    fn strips_of_values_as_they_lie() {
        let [small, large] = [(1080, 1920 * 3), (8192, 8192 * 3)];
        let measured = [
            (3, 28, small, 4..=4),
            (5, 21, small, 6..=6),
            (9, 17, small, 8..=10),
            (3, 28, large, 24..=26),
            (5, 25, large, 32..=35),
            (9, 17, large, 44..=56),
        ];
        for (taps, warps, (height, width), expected) in measured {
            let entry = ENTRIES.iter().find(|entry| entry.taps == taps).unwrap();
            let strips = Strips { taken: Taken::Window, entry, planar: None };
            let across = u64::from(u32::div_ceil(width, 32 * VALUES as u32));
            let rows = strips.rows_flat(height, across, warps * 132);
            assert!(expected.contains(&rows), "{taps} taps, {height} rows: {rows}");
        }
    }
}
