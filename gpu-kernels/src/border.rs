//! Border rules: the pixel that a coordinate outside the image reads. Pure functions, the same on
//! the host and on the GPU.

/// Outside pixels have a fixed value.
pub const CONSTANT: u32 = 0;
/// Outside pixels repeat the edge: `aaa|abcd|ddd`.
pub const REPLICATE: u32 = 1;
/// The image is mirrored, edge pixel included: `cba|abcd|dcb`.
pub const REFLECT: u32 = 2;
/// The image is mirrored about the edge pixel: `dcb|abcd|cba`.
pub const REFLECT_101: u32 = 3;
/// The image repeats: `bcd|abcd|abc`.
pub const WRAP: u32 = 4;
/// An output pixel whose window leaves the image is a copy of the input pixel.
pub const KEEP: u32 = 5;

/// All rules.
pub const ALL: [u32; 6] = [CONSTANT, REPLICATE, REFLECT, REFLECT_101, WRAP, KEEP];

/// Whether an output pixel whose window leaves the image is a copy of the input pixel.
#[inline(always)]
pub const fn copies(mode: u32) -> bool {
    mode == KEEP
}

/// [`resolve`]'s result for a pixel that has the border's value.
pub const OUTSIDE: i32 = -1;

/// Maps coordinate `i` to `0..n`, or to [`OUTSIDE`].
///
/// Exact for any distance from the image: reflections repeat as often as needed. Where a border
/// [`copies`], the sum of a window that leaves the image is not used. Such coordinates resolve as
/// [`REPLICATE`], so that a kernel may still read there.
#[inline(always)]
pub fn resolve(mode: u32, i: i32, n: i32) -> i32 {
    if (i as u32) < n as u32 {
        return i;
    }
    match mode {
        CONSTANT => OUTSIDE,
        REFLECT => {
            let period = 2 * n;
            let m = modulo(i, period);
            if m < n { m } else { period - 1 - m }
        }
        REFLECT_101 => {
            // A single row or column mirrors onto itself, but a period of zero would fail.
            let period = if n > 1 { 2 * (n - 1) } else { 1 };
            let m = modulo(i, period);
            if m < n { m } else { period - m }
        }
        WRAP => modulo(i, n),
        _ => {
            if i < 0 {
                0
            } else {
                n - 1
            }
        }
    }
}

/// As [`resolve`], in less code: one division for all rules that repeat. For kernels that resolve
/// many coordinates at once and must fit in the instruction cache.
#[inline(always)]
pub fn resolve_briefly(mode: u32, i: i32, n: i32) -> i32 {
    if (i as u32) < n as u32 {
        return i;
    }
    let period = match mode {
        CONSTANT => return OUTSIDE,
        REFLECT => 2 * n,
        REFLECT_101 if n > 1 => 2 * (n - 1),
        REFLECT_101 => 1,
        WRAP => n,
        _ => return if i < 0 { 0 } else { n - 1 },
    };
    let m = modulo(i, period);
    if m < n {
        m
    } else if mode == REFLECT {
        period - 1 - m
    } else {
        period - m
    }
}

/// Remainder of `i` by `n > 0`, in `0..n`.
#[inline(always)]
fn modulo(i: i32, n: i32) -> i32 {
    // Every extent is positive. `checked`, so that no panic is compiled into a kernel.
    let m = i.checked_rem(n).unwrap_or(0);
    if m < 0 { m + n } else { m }
}

/// Whether a window of `len` cells that starts at `first` leaves `0..n`.
#[inline(always)]
pub fn leaves(first: i32, len: i32, n: i32) -> bool {
    first < 0 || first + len > n
}
