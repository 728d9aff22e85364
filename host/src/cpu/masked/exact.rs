//! Exact sums of single results, over bytes under a mask.

use crate::filter::whole::{Whole, WholeTaps};

/// The sums of whole taps times a pixel's product with its weight, and times its weight. `pair`
/// gives these two by the row and the column of a window of so many columns and rows.
pub(super) fn sums(
    whole: &Whole,
    (cols, rows): (usize, usize),
    pair: impl Fn(usize, usize) -> [i64; 2],
) -> [i128; 2] {
    let line = |row: usize, taps: &[i64]| {
        // Below 2^61: 2^45 for the taps of a table, 2^37 for those of a row, and 2^16.
        taps.iter().enumerate().fold([0i64; 2], |[sum, below], (col, tap)| {
            let [product, weight] = pair(row, col);
            [sum + tap * product, below + tap * weight]
        })
    };
    let mut sums = [0i128; 2];
    let mut add = |factor: i128, parts: [i64; 2]| {
        sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += factor * i128::from(part));
    };
    match &whole.taps {
        WholeTaps::Table(taps) => {
            for (row, taps) in taps.chunks_exact(cols).enumerate() {
                add(1, line(row, taps));
            }
        }
        WholeTaps::Products { terms, point, .. } => {
            for (across, down) in terms {
                for (row, &tap) in down.iter().enumerate() {
                    add(tap.into(), line(row, across));
                }
            }
            if *point != 0 {
                add(*point, pair(rows / 2, cols / 2));
            }
        }
    }
    sums
}
