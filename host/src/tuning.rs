//! How sliding kernels cut an image into strips, from what was measured.

use gpu_kernels::abi::{FOURIER, FourierEntry, Sliding};

/// Warps of a block: neighbouring strips in one block read whole stretches of a row. One and four differ by less than 2 %.
pub(crate) const WARPS: u32 = 4;

/// A strip's cost beside its rows: filling the ring and starting the warp, in rows.
const START: u32 = 4;

/// The greatest height of a strip, by the greatest number of taps it holds for.
///
/// | taps | rows | measured on an H200, 8192x8192, us |
/// | --- | --- | --- |
/// | 5 | 16 | direct 5x5: 167 with 16 rows, 171 with 32, 182 with 64: the memory prefers strips that end soon |
/// | any | 512 | direct 9x9: 269 with 249 rows, one wave of strips; 281 with 125, two waves; 304 with 64 |
const HEIGHTS: &[(i32, u32)] = &[(5, 16), (i32::MAX, 512)];

/// The rows of a strip for an image of `height` rows that is `across` strips wide (all planes together), on a device that
/// runs `slots` warps of the kernel at a time.
///
/// Where strips meet, `taps - 1` rows are worked on twice, so strips want to be high; but a launch ends with its last
/// strip, so they want to be a whole number of waves.
pub(crate) fn strip_rows(kernel: &Sliding, height: u32, across: u64, slots: u64) -> u32 {
    let step = kernel.rows as u32;
    let most = HEIGHTS.iter().find(|&&(taps, _)| kernel.taps <= taps).map_or(512, |&(_, rows)| rows);
    let cost = |rows: u32| {
        let strips = across * u64::from(height.div_ceil(rows));
        strips.div_ceil(slots.max(1)) * u64::from(rows + kernel.taps as u32 - 1 + START)
    };
    (1..=most.div_ceil(step)).map(|groups| groups * step).min_by_key(|&rows| (cost(rows), rows)).unwrap_or(step)
}

/// The Fourier kernel for a device whose blocks can have this much shared memory: the larger the tile, the smaller the
/// share of it that is wrapped around.
pub(crate) fn fourier(shared_memory: usize) -> Option<&'static FourierEntry> {
    FOURIER.iter().find(|kernel| kernel.shared as usize <= shared_memory)
}

/// How a window's `taps` columns, or rows, are cut for a Fourier kernel with tiles of `size`: where each part begins, and
/// how many taps it has.
///
/// A part of k taps makes `size + 1 - k` results of `size`, and the parts are done one after the other: so few and long
/// parts while they are short beside the tile, then more of them.
pub(crate) fn fourier_parts(taps: i32, size: i32) -> impl Iterator<Item = (i32, i32)> {
    // Beyond three quarters, nearly all of a tile is wrapped around.
    let least = (4 * taps + 3 * size - 1) / (3 * size);
    let longest = move |parts: i32| (taps + parts - 1) / parts;
    let cost = |parts: &i32| i64::from(*parts) * (1 << 20) / i64::from(size + 1 - longest(*parts));
    let parts = (least..=taps.min(2 * least + 2)).min_by_key(cost).unwrap_or(least);
    (0..taps).step_by(longest(parts) as usize).map(move |first| (first, longest(parts).min(taps - first)))
}

/// How many elements of a line are transformed for each result, with tiles of `size`.
pub(crate) fn fourier_work(taps: i32, size: i32) -> f64 {
    fourier_parts(taps, size).map(|(_, part)| f64::from(size) / f64::from(size + 1 - part)).sum()
}

/// The tile of the Fourier family on the CPU for a window: with the least work for each result, as long as a thread's
/// tile stays in its cache.
pub(crate) fn cpu_tile(cols: i32, rows: i32) -> i32 {
    let cost = |size: &i32| fourier_work(cols, *size) * fourier_work(rows, *size) * f64::from(size.ilog2());
    [64, 128, 256, 512].into_iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(256)
}

#[cfg(test)]
mod tests {
    use gpu_kernels::abi::SLIDING;

    use super::*;

    #[test]
    fn parts_cover_a_window() {
        for (taps, size) in (1..2000).flat_map(|taps| [(taps, 64), (taps, 128)]) {
            let parts: Vec<_> = fourier_parts(taps, size).collect();
            let mut next = 0;
            for &(first, part) in &parts {
                assert!(first == next && (1..=size / 4 * 3).contains(&part), "{taps} taps: {parts:?}");
                next += part;
            }
            assert_eq!(next, taps);
        }
        assert_eq!(fourier_parts(51, 128).count(), 1);
        assert_eq!(fourier_parts(101, 128).count(), 2);
    }

    #[test]
    fn strips_fill_waves() {
        let nine = SLIDING.iter().find(|kernel| kernel.taps == 9).unwrap();
        let (across, slots) = (64, 16 * 132);
        let rows = strip_rows(nine, 8192, across, slots);
        let waves = (across * u64::from(8192_u32.div_ceil(rows))) as f64 / slots as f64;
        assert!(rows >= 100 && waves <= waves.ceil() && waves > waves.ceil() - 0.1, "{rows} rows, {waves} waves");
        // A small image is one wave of short strips.
        let rows = strip_rows(nine, 1024, 16, slots);
        assert!(16 * u64::from(1024_u32.div_ceil(rows)) <= slots && rows <= 16, "{rows}");
    }
}
