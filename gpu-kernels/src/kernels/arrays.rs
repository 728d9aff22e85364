//! Sums in f64 over windows of arrays: any number of dimensions, any strides, all types of NumPy's
//! numbers but f16 and complex ones.
//!
//! Thread mapping: blocks of [`THREADS`] threads in a grid-stride loop. A thread computes one
//! result at a time; of `array_paired` [`RUN`] results, of `array_running` one line. Adjacent
//! threads compute adjacent elements of the first dimension, which the host chooses. Elements are
//! read from global memory; neighbours find them in the L1 cache. Order of accumulation: that of
//! `host/src/passes`, which is SciPy's. Each product and each sum is rounded on its own, so that
//! the bits are those of the CPU. Results are converted as C does on x86-64: truncated,
//! out-of-range values as that processor's instructions leave them. A NaN may have another payload
//! than on a CPU.

use crate::array::{ArrayPass, DIMS, TAP_WORDS, element, join};
use crate::border;
use crate::device::*;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Results of a thread of `array_paired`, side by side along the window's dimension.
pub const RUN: usize = 4;

/// Calls a function for the type of the source's elements, so that no loop distinguishes types.
macro_rules! by_type {
    ($function:ident($pass:expr $(, $argument:expr)*)) => {
        match $pass.from {
            element::U8 => $function::<U8>($pass $(, $argument)*),
            element::I8 => $function::<I8>($pass $(, $argument)*),
            element::U16 => $function::<U16>($pass $(, $argument)*),
            element::I16 => $function::<I16>($pass $(, $argument)*),
            element::U32 => $function::<U32>($pass $(, $argument)*),
            element::I32 => $function::<I32>($pass $(, $argument)*),
            element::U64 => $function::<U64>($pass $(, $argument)*),
            element::I64 => $function::<I64>($pass $(, $argument)*),
            element::F32 => $function::<F32>($pass $(, $argument)*),
            _ => $function::<F64>($pass $(, $argument)*),
        }
    };
}

kernel! {
    /// Adds the products of `count` taps at the address `taps` to `start`, one after the other.
    fn array_in_order(pass: ArrayPass, taps: u64, count: i32, start: f64) {
        by_type!(in_order(&pass, taps, count, start))
    }

    /// Adds to the product of the centre tap those of pairs of elements, from the outermost
    /// inwards: the left one plus `sign` times the right one, times the pair's tap. Dimension
    /// number `along` has a window, of `2 * pairs + 1` elements; it counts runs of [`RUN`] results,
    /// and its strides are a run's. `taps` is the address of the centre tap, which the pairs' taps
    /// follow.
    fn array_paired(pass: ArrayPass, along: i32, taps: u64, pairs: i32, sign: f64) {
        by_type!(paired(&pass, along, taps, pairs, sign))
    }

    /// Running means of `size` elements along the last dimension, of which one element is computed:
    /// a thread walks along the whole line.
    fn array_running(pass: ArrayPass, size: i32) {
        by_type!(running(&pass, size))
    }

    /// Converts each element to the target's type, as C does: integers wrap around.
    fn array_converted(pass: ArrayPass) {
        by_type!(convert(&pass))
    }

    /// Joins each element of the source with the target's, and stores the result in the target,
    /// which has the same type: `steps` are those of [`join`].
    fn array_joined(pass: ArrayPass, steps: u32) {
        match pass.to {
            element::F32 => join_floats::<F32>(&pass, steps),
            element::F64 => join_floats::<F64>(&pass, steps),
            _ => by_type!(join_integers(&pass, steps)),
        }
    }
}

/// A type of stored elements.
trait Element {
    /// Bytes of an element.
    const BYTES: u64;

    /// The bits of the element at an address.
    ///
    /// # Safety
    /// At the address lies an element, which no thread of this launch writes.
    #[inline(always)]
    unsafe fn bits(at: u64) -> u64 {
        // SAFETY: as the caller promised.
        unsafe {
            match Self::BYTES {
                1 => load_u8(at) as u64,
                2 => load_u16(at) as u64,
                4 => load_words::<1>(at)[0] as u64,
                _ => joined(load_words(at)),
            }
        }
    }

    /// As [`Element::bits`], of an element that this thread alone writes.
    ///
    /// # Safety
    /// At the address lies an element.
    #[inline(always)]
    unsafe fn own_bits(at: u64) -> u64 {
        // SAFETY: as the caller promised.
        unsafe {
            match Self::BYTES {
                1 => reload_small::<1>(at) as u64,
                2 => reload_small::<2>(at) as u64,
                4 => reload_word(at) as u64,
                _ => joined([reload_word(at), reload_word(at + 4)]),
            }
        }
    }

    /// The value of an element with these bits, above which lies anything.
    fn value(bits: u64) -> f64;

    /// The same, rounded to f32 once.
    fn single(bits: u64) -> f32;

    /// The same of an integer, as an integer modulo 2^64.
    fn whole(bits: u64) -> u64;

    /// The value of the element at an address.
    ///
    /// # Safety
    /// As for [`Element::bits`].
    #[inline(always)]
    unsafe fn load(at: u64) -> f64 {
        // SAFETY: as the caller promised.
        Self::value(unsafe { Self::bits(at) })
    }
}

macro_rules! elements {
    ($($name:ident: $bytes:literal, $bits:ident => $value:expr;)*) => {$(
        struct $name;

        impl Element for $name {
            const BYTES: u64 = $bytes;

            #[inline(always)]
            fn value($bits: u64) -> f64 {
                $value as f64
            }

            #[inline(always)]
            fn single($bits: u64) -> f32 {
                $value as f32
            }

            #[inline(always)]
            fn whole($bits: u64) -> u64 {
                $value as i64 as u64
            }
        }
    )*};
}

elements! {
    U8: 1, bits => bits as u8;
    I8: 1, bits => bits as i8;
    U16: 2, bits => bits as u16;
    I16: 2, bits => bits as i16;
    U32: 4, bits => bits as u32;
    I32: 4, bits => bits as i32;
    U64: 8, bits => bits;
    I64: 8, bits => bits as i64;
    F32: 4, bits => f32::from_bits(bits as u32);
    F64: 8, bits => f64::from_bits(bits);
}

#[inline(always)]
fn joined([low, high]: [u32; 2]) -> u64 {
    (high as u64) << 32 | low as u64
}

#[inline(always)]
fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// Stores the lowest bits of a number as an element of this type.
///
/// # Safety
/// As for [`store_as`].
#[inline(always)]
unsafe fn store_bits(to: u32, at: u64, bits: u64) {
    // SAFETY: as the caller promised.
    unsafe {
        match to {
            element::U8 | element::I8 => store_u8(at, bits as u8 as u32),
            element::U16 | element::I16 => store_u16(at, bits as u16 as u32),
            element::U32 | element::I32 | element::F32 => store_words(at, [bits as u32]),
            _ => store_words(at, halves(bits)),
        }
    }
}

/// Stores a result as an element of this type.
///
/// # Safety
/// At the address there is room for it, which no other thread accesses.
#[inline(always)]
unsafe fn store_as(to: u32, at: u64, value: f64) {
    let bits = match to {
        element::U32 | element::I64 => int64(value) as u64,
        element::U64 => unsigned64(value),
        element::F32 => (value as f32).to_bits() as u64,
        element::F64 => value.to_bits(),
        _ => int32(value) as u64,
    };
    // SAFETY: as the caller promised.
    unsafe { store_bits(to, at, bits) }
}

/// `i32::MIN` for NaN and every value out of range.
#[inline(always)]
fn int32(value: f64) -> i32 {
    if value > -2_147_483_649.0 && value < 2_147_483_648.0 { value as i32 } else { i32::MIN }
}

/// `i64::MIN` for NaN and every value out of range.
#[inline(always)]
fn int64(value: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&value) { value as i64 } else { i64::MIN }
}

#[inline(always)]
fn unsigned64(value: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if value >= HALF { int64(add_f64(value, -HALF)) as u64 ^ 1 << 63 } else { int64(value) as u64 }
}

/// A result's place: its coordinates, and the addresses of the element there in the source and in
/// the target.
struct Place {
    at: [i32; DIMS],
    source: u64,
    target: u64,
    /// Whether the whole window lies inside the array.
    inside: bool,
}

/// The place of result number `index`.
#[inline(always)]
fn place(pass: &ArrayPass, index: u32) -> Place {
    let mut place = Place { at: [0; DIMS], source: pass.source, target: pass.target, inside: true };
    let mut left = index;
    let mut d = 0;
    while d < DIMS {
        let dim = pass.dims[d];
        let count = dim.count as u32;
        // No count is 0. `checked`, so that no panic is compiled into a kernel.
        let above = left.checked_div(count).unwrap_or(0);
        let at = dim.first + left.wrapping_sub(above.wrapping_mul(count)) as i32;
        left = above;
        place.at[d] = at;
        place.source = place.source.wrapping_add((at as i64 * dim.source) as u64);
        place.target = place.target.wrapping_add((at as i64 * dim.target) as u64);
        place.inside &= at >= dim.before && at + dim.behind < dim.len;
        d += 1;
    }
    place
}

/// Calls `compute` for the place of each of this thread's results.
#[inline(always)]
fn for_each(pass: &ArrayPass, mut compute: impl FnMut(Place)) {
    let mut results = 1;
    let mut d = 0;
    while d < DIMS {
        results *= pass.dims[d].count as u32;
        d += 1;
    }
    let mut index = (block_x() * block_width() + thread_x()) as u32;
    while index < results {
        compute(place(pass, index));
        index += (grid_width() * block_width()) as u32;
    }
}

/// The bytes from element 0 along a dimension to the element that coordinate `at` reads; `None` if
/// it has the border's value.
#[inline(always)]
fn resolved(pass: &ArrayPass, at: i32, len: i32, stride: i64) -> Option<u64> {
    match border::resolve(pass.border, at, len) {
        border::OUTSIDE => None,
        inside => Some((inside as i64 * stride) as u64),
    }
}

/// # Safety
/// As for the kernel `array_in_order`.
#[inline(always)]
unsafe fn in_order<E: Element>(pass: &ArrayPass, taps: u64, count: i32, start: f64) {
    for_each(pass, |place| {
        let mut sum = start;
        let mut at = taps;
        let mut tap = 0;
        while tap < count {
            // SAFETY: `count` taps lie there; the element is one of the source's.
            unsafe {
                let [offset @ .., low, high] = load_words::<4>(at);
                let value = if place.inside {
                    E::load(place.source.wrapping_add(joined(offset)))
                } else {
                    element_at::<E>(pass, &place.at, load_words(at + 16))
                };
                sum = add_f64(sum, mul_f64(value, f64::from_bits(joined([low, high]))));
            }
            at += 4 * TAP_WORDS as u64;
            tap += 1;
        }
        // SAFETY: each result is that of one thread.
        unsafe { store_as(pass.to, place.target, sum) }
    });
}

/// The element so many steps away from a place, by the border rule.
///
/// # Safety
/// The pass describes memory.
#[inline(always)]
unsafe fn element_at<E: Element>(pass: &ArrayPass, at: &[i32; DIMS], steps: [u32; DIMS]) -> f64 {
    let mut address = pass.source;
    let mut is_there = true;
    let mut d = 0;
    while d < DIMS {
        let dim = pass.dims[d];
        match resolved(pass, at[d] + steps[d] as i32, dim.len, dim.source) {
            Some(bytes) => address = address.wrapping_add(bytes),
            None => is_there = false,
        }
        d += 1;
    }
    // SAFETY: the coordinates lie inside the array.
    if is_there { unsafe { E::load(address) } } else { pass.outside }
}

/// # Safety
/// As for the kernel `array_paired`.
#[inline(always)]
unsafe fn paired<E: Element>(pass: &ArrayPass, along: i32, taps: u64, pairs: i32, sign: f64) {
    // As sums, because a compiler that selects among addresses copies the parameter to local
    // memory.
    let (mut len, mut before, mut behind, mut run, mut next) = (0, 0, 0, 0, 0);
    let mut d = 0;
    while d < DIMS {
        let dim = &pass.dims[d];
        let only = |value: i64| if d as i32 == along { value } else { 0 };
        len += only(dim.len as i64) as i32;
        before += only(dim.before as i64) as i32;
        behind += only(dim.behind as i64) as i32;
        run += only(dim.source);
        next += only(dim.target);
        d += 1;
    }
    let (stride, next) = (run / RUN as i64, next / RUN as i64);
    for_each(pass, |place| {
        let (mut start, mut d) = (0, 0);
        while d < DIMS {
            start += if d as i32 == along { place.at[d] * RUN as i32 } else { 0 };
            d += 1;
        }
        let first = start - before;
        let line = place.source.wrapping_sub((start as i64 * stride) as u64);
        let is_inside = first >= 0 && start + RUN as i32 + behind <= len;
        // SAFETY: the taps lie there; the coordinates are inside the array, or go through the
        // border rule.
        let sums = unsafe {
            if is_inside {
                let line = line.wrapping_add((first as i64 * stride) as u64);
                pair_sums(taps, pairs, sign, |step| {
                    let mut at = line.wrapping_add((step as i64 * stride) as u64);
                    let (mut values, mut i) = ([0.0; RUN], 0);
                    while i < RUN {
                        values[i] = E::load(at);
                        at = at.wrapping_add(stride as u64);
                        i += 1;
                    }
                    values
                })
            } else {
                pair_sums(taps, pairs, sign, |step| {
                    let (mut values, mut i) = ([pass.outside; RUN], 0);
                    while i < RUN {
                        let at = resolved(pass, first + step + i as i32, len, stride);
                        if let Some(bytes) = at {
                            values[i] = E::load(line.wrapping_add(bytes));
                        }
                        i += 1;
                    }
                    values
                })
            }
        };
        let (mut target, mut i) = (place.target, 0);
        while i < RUN {
            if start + (i as i32) < len {
                // SAFETY: each result is that of one thread.
                unsafe { store_as(pass.to, target, sums[i]) }
            }
            target = target.wrapping_add(next as u64);
            i += 1;
        }
    });
}

/// Sums for [`RUN`] results side by side. `values` gives so many elements, from the one that lies
/// so many steps behind the first of the first result's window.
///
/// # Safety
/// At `taps` lie the taps of the centre and of each pair.
#[inline(always)]
unsafe fn pair_sums(
    taps: u64,
    pairs: i32,
    sign: f64,
    values: impl Fn(i32) -> [f64; RUN],
) -> [f64; RUN] {
    // SAFETY: as the caller promised.
    let tap = |pair: i32| unsafe { load_f64(taps + 8 * pair as u64) };
    let (mut sums, centre, mut i) = (values(pairs), tap(0), 0);
    while i < RUN {
        sums[i] = mul_f64(sums[i], centre);
        i += 1;
    }
    let mut pair = 0;
    while pair < pairs {
        let (left, right) = (values(pair), values(2 * pairs - pair));
        let tap = tap(1 + pair);
        i = 0;
        while i < RUN {
            // The product with 1 or -1 is exact, so that this is rounded as a sum.
            let both = fma_f64(sign, right[i], left[i]);
            sums[i] = add_f64(sums[i], mul_f64(both, tap));
            i += 1;
        }
        pair += 1;
    }
    sums
}

/// # Safety
/// As for the kernel `array_running`.
#[inline(always)]
unsafe fn running<E: Element>(pass: &ArrayPass, size: i32) {
    for_each(pass, |place| {
        let along = pass.dims[DIMS - 1];
        let value = |at: i32| match resolved(pass, at - along.before, along.len, along.source) {
            // SAFETY: the coordinate lies inside the array.
            Some(bytes) => unsafe { E::load(place.source.wrapping_add(bytes)) },
            None => pass.outside,
        };
        let mut sum = 0.0;
        let mut at = 0;
        while at < size {
            sum = add_f64(sum, value(at));
            at += 1;
        }
        let mut target = place.target;
        let mut at = 0;
        while at < along.len {
            if at > 0 {
                sum = add_f64(sum, add_f64(value(at + size - 1), -value(at - 1)));
            }
            // SAFETY: each line is that of one thread.
            unsafe { store_as(pass.to, target, sum / size as f64) }
            target = target.wrapping_add(along.target as u64);
            at += 1;
        }
    });
}

/// # Safety
/// As for the kernel `array_converted`.
#[inline(always)]
unsafe fn convert<E: Element>(pass: &ArrayPass) {
    for_each(pass, |place| {
        // SAFETY: the element is one of the source's, and each result is that of one thread.
        unsafe {
            let bits = E::bits(place.source);
            if pass.to == element::F32 {
                store_bits(pass.to, place.target, E::single(bits).to_bits() as u64);
            } else if pass.from < element::F32 && pass.to < element::F32 {
                store_bits(pass.to, place.target, E::whole(bits));
            } else {
                store_as(pass.to, place.target, E::value(bits));
            }
        }
    });
}

/// # Safety
/// As for the kernel `array_joined`.
#[inline(always)]
unsafe fn join_integers<E: Element>(pass: &ArrayPass, steps: u32) {
    for_each(pass, |place| {
        // SAFETY: each element of the target is that of one thread.
        let mut bits = unsafe { E::own_bits(place.target) };
        if steps & join::SQUARE_TARGET != 0 {
            bits = bits.wrapping_mul(bits);
        }
        if steps & join::ADD != 0 {
            // SAFETY: the element is one of the source's.
            let mut other = unsafe { E::bits(place.source) };
            if steps & join::SQUARE_SOURCE != 0 {
                other = other.wrapping_mul(other);
            }
            bits = bits.wrapping_add(other);
        }
        // SAFETY: as above.
        unsafe {
            if steps & join::ROOT != 0 {
                store_as(pass.to, place.target, sqrt_f64(E::value(bits)));
            } else {
                store_bits(pass.to, place.target, bits);
            }
        }
    });
}

/// In f64. The product, the sum and the root of f32 values are f32's after the second rounding too.
///
/// # Safety
/// As for the kernel `array_joined`.
#[inline(always)]
unsafe fn join_floats<E: Element>(pass: &ArrayPass, steps: u32) {
    let rounded = |value: f64| if E::BYTES == 4 { value as f32 as f64 } else { value };
    for_each(pass, |place| {
        // SAFETY: each element of the target is that of one thread.
        let mut value = E::value(unsafe { E::own_bits(place.target) });
        if steps & join::SQUARE_TARGET != 0 {
            value = rounded(mul_f64(value, value));
        }
        if steps & join::ADD != 0 {
            // SAFETY: the element is one of the source's.
            let mut other = unsafe { E::load(place.source) };
            if steps & join::SQUARE_SOURCE != 0 {
                other = rounded(mul_f64(other, other));
            }
            value = rounded(add_f64(value, other));
        }
        if steps & join::ROOT != 0 {
            value = sqrt_f64(value);
        }
        // SAFETY: as above.
        unsafe { store_as(pass.to, place.target, value) }
    });
}
