//! The sums of one tile.

use multiversion::multiversion;

/// Offsets of taps in a tile's buffer.
pub(super) enum Offsets {
    InOrder { start: f64, taps: Vec<(usize, f64)> },
    Paired { middle: (usize, f64), pairs: Vec<(usize, usize, f64)>, sign: f64 },
    Running { along_v: bool, size: usize },
}

/// Computes a tile's sums. `width` is the row length of `source`, `cols` the row length of `sums`.
#[multiversion(targets("x86_64+avx2+avx512f+avx512dq+avx512vl", "x86_64+avx2"))]
pub(super) fn compute(
    source: &[f64],
    width: usize,
    offsets: &Offsets,
    sums: &mut [f64],
    cols: usize,
) {
    // Rows that are contiguous in both buffers are computed as one line.
    let line = if width == cols { sums.len() } else { cols };
    match offsets {
        Offsets::Running { along_v, size } => {
            if *along_v {
                let mut done = 0;
                let rows = sums.len() / cols;
                while done < rows {
                    let (from, to) = (&source[done * width..], &mut sums[done * cols..]);
                    done += match rows - done {
                        8.. => running_rows::<8>(from, width, to, cols, *size),
                        _ => running_rows::<1>(from, width, to, cols, *size),
                    };
                }
            } else {
                let mut done = 0;
                while done < cols {
                    let (from, to) = (&source[done..], &mut sums[done..]);
                    done += match cols - done {
                        16.. => running_columns::<16>(from, width, to, cols, *size),
                        4.. => running_columns::<4>(from, width, to, cols, *size),
                        3 => running_columns::<3>(from, width, to, cols, *size),
                        _ => running_columns::<1>(from, width, to, cols, *size),
                    };
                }
            }
        }
        _ => {
            for (row, sums) in sums.chunks_mut(line).enumerate() {
                let source = &source[row * width..];
                let mut done = 0;
                while done < line {
                    let (from, to) = (&source[done..], &mut sums[done..]);
                    done += match line - done {
                        32.. => several::<32>(from, offsets, to),
                        8.. => several::<8>(from, offsets, to),
                        _ => several::<1>(from, offsets, to),
                    };
                }
            }
        }
    }
}

/// Computes the next `N` sums and returns `N`.
#[inline(always)]
fn several<const N: usize>(source: &[f64], offsets: &Offsets, sums: &mut [f64]) -> usize {
    let at = |offset: usize| -> &[f64; N] { source[offset..][..N].try_into().expect("N elements") };
    let mut acc = [0.0; N];
    match offsets {
        Offsets::InOrder { start, taps } => {
            acc = [*start; N];
            for &(offset, tap) in taps {
                let values = at(offset);
                for lane in 0..N {
                    acc[lane] += values[lane] * tap;
                }
            }
        }
        Offsets::Paired { middle, pairs, sign } => {
            let values = at(middle.0);
            for lane in 0..N {
                acc[lane] = values[lane] * middle.1;
            }
            for &(left, right, tap) in pairs {
                let (left, right) = (at(left), at(right));
                for lane in 0..N {
                    // A product with 1 or -1 is exact.
                    acc[lane] += (left[lane] + sign * right[lane]) * tap;
                }
            }
        }
        Offsets::Running { .. } => {}
    }
    sums[..N].copy_from_slice(&acc);
    N
}

/// Running means along `N` rows; returns `N`. The rows' sums are independent of each other.
#[inline(always)]
fn running_rows<const N: usize>(
    source: &[f64],
    width: usize,
    sums: &mut [f64],
    cols: usize,
    size: usize,
) -> usize {
    let count = size as f64;
    let line = |n: usize| &source[n * width..][..cols + size - 1];
    let (heads, tails): ([&[f64]; N], [&[f64]; N]) = (
        std::array::from_fn(|n| &line(n)[size - 1..][..cols]),
        std::array::from_fn(|n| &line(n)[..cols]),
    );
    let mut rows = sums.chunks_exact_mut(cols);
    let rows: [&mut [f64]; N] = std::array::from_fn(|_| &mut rows.next().expect("N rows")[..cols]);
    let mut sum: [f64; N] =
        std::array::from_fn(|n| line(n)[..size].iter().fold(0.0, |sum, value| sum + value));
    for n in 0..N {
        rows[n][0] = sum[n] / count;
    }
    for at in 1..cols {
        for n in 0..N {
            sum[n] += heads[n][at] - tails[n][at - 1];
            rows[n][at] = sum[n] / count;
        }
    }
    N
}

/// Running means down `N` columns; returns `N`.
#[inline(always)]
fn running_columns<const N: usize>(
    source: &[f64],
    width: usize,
    sums: &mut [f64],
    cols: usize,
    size: usize,
) -> usize {
    let count = size as f64;
    let row = |index: usize| -> &[f64; N] {
        source[index * width..][..N].try_into().expect("N elements")
    };
    let mut sum = [0.0; N];
    for index in 0..size {
        let values = row(index);
        for n in 0..N {
            sum[n] += values[n];
        }
    }
    for (at, means) in sums.chunks_mut(cols).enumerate() {
        if at > 0 {
            let (head, tail) = (row(at + size - 1), row(at - 1));
            for n in 0..N {
                sum[n] += head[n] - tail[n];
            }
        }
        for (mean, sum) in means[..N].iter_mut().zip(&sum) {
            *mean = sum / count;
        }
    }
    N
}
