//! Arrays in memory, and the conversion of their values to f64 and back.

use std::ops::Range;

use multiversion::multiversion;

use crate::image::{ImageView, ImageViewMut, Number, Shape};

/// A type of stored values.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Bytes of a value.
    pub size: usize,
    /// The type's name, as Rust spells it.
    pub name: &'static str,
    /// Whether values are integers.
    pub is_integer: bool,
    /// Whether sums become values as by C: see [`Kind::cast`].
    pub is_cast: bool,
    /// Converts values to f64. Arguments: the address of the first value, the stride in bytes, and
    /// the output.
    ///
    /// # Safety
    /// At the address, and at each stride after it, lies a value: one for each element of the
    /// slice.
    pub(crate) load: unsafe fn(*const u8, isize, &mut [f64]),
    /// Converts sums to values. Arguments: the address of the first value, the stride in bytes, and
    /// the sums.
    ///
    /// # Safety
    /// At the address, and at each stride after it, there is room for a value: one for each element
    /// of the slice.
    pub(crate) store: unsafe fn(*mut u8, isize, &[f64]),
    /// The index and the text of the first value that f64 may not represent exactly. Arguments: the
    /// address of the first value, the stride in bytes, and the number of values.
    ///
    /// # Safety
    /// At the address, and at each stride after it, lies a value: as many as the last argument.
    pub(crate) inexact: unsafe fn(*const u8, isize, usize) -> Option<(usize, String)>,
}

impl Kind {
    /// Values that are rounded and saturated as in [`Number::from_f64`].
    pub const fn of<T: Number>() -> Self {
        Self {
            size: size_of::<T>(),
            name: T::NAME,
            is_integer: T::IS_INTEGER,
            is_cast: false,
            load: load::<T>,
            store: store_rounded::<T>,
            inexact: inexact::<T>,
        }
    }

    /// Values that are converted as by C on x86-64, and so as by SciPy: the fraction is truncated,
    /// and values out of the type's range wrap.
    pub const fn cast<T: Cast>() -> Self {
        Self { is_cast: true, store: store_cast::<T>, ..Self::of::<T>() }
    }
}

/// Number types with C's conversion from f64.
pub trait Cast: Number {
    /// The result of C's conversion.
    fn cast(value: f64) -> Self;
}

macro_rules! casts {
    ($($type:ty: $cast:expr;)*) => {$(
        impl Cast for $type {
            #[inline(always)]
            fn cast(value: f64) -> Self {
                $cast(value) as Self
            }
        }
    )*};
}

casts! {
    u8: int32;
    i8: int32;
    u16: int32;
    i16: int32;
    i32: int32;
    u32: int64;
    i64: int64;
    u64: unsigned64;
    f32: std::convert::identity;
    f64: std::convert::identity;
}

/// The result of the x86-64 conversion to 32 bits: `i32::MIN` for NaN and every value out of range.
#[inline(always)]
fn int32(value: f64) -> i32 {
    if value > -2_147_483_649.0 && value < 2_147_483_648.0 {
        // SAFETY: the truncated value is in range and not NaN. Rust's saturating conversion is not
        // vectorized.
        unsafe { value.to_int_unchecked() }
    } else {
        i32::MIN
    }
}

#[inline(always)]
fn int64(value: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) {
        value as i64
    } else {
        i64::MIN
    }
}

#[inline(always)]
fn unsigned64(value: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if value >= HALF { (int64(value - HALF) as u64) ^ (1 << 63) } else { int64(value) as u64 }
}

/// An array in memory.
#[derive(Clone, Debug)]
pub struct Array {
    /// The first value's address.
    pub data: *mut u8,
    /// The type of its values.
    pub kind: Kind,
    /// Values along each axis.
    pub shape: Vec<usize>,
    /// Bytes from one value to the next along each axis.
    pub strides: Vec<isize>,
}

// SAFETY: the pointer is only an address. Code that dereferences it states why that is allowed.
unsafe impl Send for Array {}
// SAFETY: likewise.
unsafe impl Sync for Array {}

impl Array {
    /// An image as rows, columns and channels. Nobody may write to the array.
    pub(crate) fn of<T: Number>(view: &ImageView<'_, T>) -> Self {
        Self::new::<T>(view.as_ptr().cast_mut().cast(), view.shape(), view.stride())
    }

    /// An image that is written, as rows, columns and channels.
    pub(crate) fn of_mut<T: Number>(view: &mut ImageViewMut<'_, T>) -> Self {
        Self::new::<T>(view.as_mut_ptr().cast(), view.shape(), view.stride())
    }

    fn new<T: Number>(
        data: *mut u8,
        Shape { width, height, channels }: Shape,
        stride: usize,
    ) -> Self {
        let bytes = [stride, channels, 1].map(|values| (values * size_of::<T>()) as isize);
        Self {
            data,
            kind: Kind::of::<T>(),
            shape: vec![height, width, channels],
            strides: bytes.to_vec(),
        }
    }

    /// The part of the array with the indices `range` along one axis.
    pub(crate) fn part(&self, axis: usize, range: Range<usize>) -> Self {
        let mut part = self.clone();
        part.data = part.data.wrapping_offset(range.start as isize * self.strides[axis]);
        part.shape[axis] = range.len();
        part
    }
}

/// See [`Kind::load`].
///
/// # Safety
/// From `source` on, elements of type `S` lie `stride` bytes apart: one for each element of `out`.
#[multiversion(targets("x86_64+avx2"))]
unsafe fn load<S: Number>(source: *const u8, stride: isize, out: &mut [f64]) {
    if stride == size_of::<S>() as isize {
        for (index, out) in out.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *out = unsafe { source.cast::<S>().add(index).read_unaligned() }.to_f64();
        }
    } else {
        for (index, out) in out.iter_mut().enumerate() {
            // SAFETY: likewise.
            *out = unsafe { source.offset(index as isize * stride).cast::<S>().read_unaligned() }
                .to_f64();
        }
    }
}

/// See [`Kind::store`].
///
/// # Safety
/// From `target` on, there is room for elements of type `D`, `stride` bytes apart: one for each
/// sum.
#[multiversion(targets("x86_64+avx2"))]
unsafe fn store_rounded<D: Number>(target: *mut u8, stride: isize, sums: &[f64]) {
    // SAFETY: the caller's promise.
    unsafe { store(target, stride, sums, D::from_f64) }
}

/// See [`Kind::store`].
///
/// # Safety
/// As for [`store_rounded`].
#[multiversion(targets("x86_64+avx2"))]
unsafe fn store_cast<D: Cast>(target: *mut u8, stride: isize, sums: &[f64]) {
    // SAFETY: the caller's promise.
    unsafe { store(target, stride, sums, D::cast) }
}

/// # Safety
/// As for [`store_rounded`].
#[inline(always)]
unsafe fn store<D: Copy>(target: *mut u8, stride: isize, sums: &[f64], convert: impl Fn(f64) -> D) {
    if stride == size_of::<D>() as isize {
        for (index, &sum) in sums.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { target.cast::<D>().add(index).write_unaligned(convert(sum)) };
        }
    } else {
        for (index, &sum) in sums.iter().enumerate() {
            // SAFETY: likewise.
            unsafe {
                target.offset(index as isize * stride).cast::<D>().write_unaligned(convert(sum))
            };
        }
    }
}

/// See [`Kind::inexact`].
///
/// # Safety
/// From `source` on, `count` elements of type `S` lie `stride` bytes apart.
unsafe fn inexact<S: Number>(
    source: *const u8,
    stride: isize,
    count: usize,
) -> Option<(usize, String)> {
    // SAFETY: the caller's promise.
    let value = |index: usize| unsafe {
        source.offset(index as isize * stride).cast::<S>().read_unaligned()
    };
    let found = (0..count).find(|&index| !value(index).is_exact())?;
    Some((found, format!("{:?}", value(found))))
}
