//! Reading a pass's source through the border rule, and writing its destination.
//!
//! A [`Source`] and a [`Target`] belong to one block: the block's z index selects the channel and
//! the image.

use crate::abi::{Epilogue, Pass, Plane};
use crate::border;
use crate::device::*;
use crate::pixel::{
    F32, MIDDLE, U8, U16, high_bits, is_uncertain, load_value, note, of_bits, of_byte,
    of_byte_less_middle, of_half, store_bits, to_bits, to_near_byte,
};

/// For [`load_tile`]: no column is too far right.
pub(crate) const NO_END: i32 = i32::MAX;

/// What a kernel is compiled for, which decides how much code it has. `PLANES`: f32 planes, with
/// slower code for other types. `STORED`: any stored type. `BYTES`: bytes from bytes only.
pub(crate) const PLANES: u32 = 0;
/// See [`PLANES`].
pub(crate) const STORED: u32 = 1;
/// See [`PLANES`].
pub(crate) const BYTES: u32 = 2;

/// The offset of a row in a plane.
#[inline(always)]
fn row_offset(plane: &Plane, y: i32) -> u64 {
    (y as i64 * plane.row) as u64
}

/// The offset of `rows` rows of a plain plane.
#[inline(always)]
fn plain_offset(plane: &Plane, rows: i32) -> u64 {
    mul_wide(rows, plane.plain_row) as u64
}

/// The channel that a block reads.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) pass: &'a Pass,
    plane: &'a Plane,
    origin: u64,
}

impl<'a> Source<'a> {
    #[inline(always)]
    pub(crate) fn new(pass: &'a Pass) -> Self {
        Self::of(&pass.src, pass)
    }

    /// This block's channel of a plane other than the pass's source, with the same extent and
    /// number of channels.
    #[inline(always)]
    pub(crate) fn of(plane: &'a Plane, pass: &'a Pass) -> Self {
        Self::of_channel(plane, pass, block_z())
    }

    /// Channel number `z` on the grid's z axis.
    #[inline(always)]
    pub(crate) fn of_channel(plane: &'a Plane, pass: &'a Pass, z: i32) -> Self {
        Self { pass, plane, origin: plane.origin(z, &pass.channels) }
    }

    /// The address of column 0 of row 0.
    #[inline(always)]
    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    /// The memory layout of the pixels.
    #[inline(always)]
    pub(crate) fn plane(&self) -> &'a Plane {
        self.plane
    }

    /// Whether the pixels form a plain array: see [`Row::at_plain`].
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.plane.is_plain()
    }

    /// The offset of `rows` rows of a plain source.
    #[inline(always)]
    pub(crate) fn plain_offset(&self, rows: i32) -> isize {
        plain_offset(self.plane, rows) as isize
    }

    /// Whether rows from `top` to before `bottom` are all in memory.
    #[inline(always)]
    pub(crate) fn has_rows(&self, top: i32, bottom: i32) -> bool {
        top >= self.plane.first_row && bottom <= self.plane.end_row
    }

    /// The row for coordinate `y` under the border rule. If that row is not in memory, no result
    /// needs it, and the nearest row in memory stands for it.
    #[inline(always)]
    pub(crate) fn row(&self, y: i32) -> Row<'a> {
        let y = border::resolve(self.pass.border, y, self.pass.height);
        let (first, last) = (self.plane.first_row, self.plane.end_row - 1);
        let there = if y < first {
            first
        } else if y > last {
            last
        } else {
            y
        };
        Row {
            source: *self,
            start: self.origin.wrapping_add(row_offset(self.plane, there)),
            outside: y < 0,
        }
    }

    /// Row `y`, which is in memory.
    #[inline(always)]
    pub(crate) fn row_inside(&self, y: i32) -> Row<'a> {
        Row {
            source: *self,
            start: self.origin.wrapping_add(row_offset(self.plane, y)),
            outside: false,
        }
    }

    /// Row `y`, which is in memory, of a plain source.
    #[inline(always)]
    pub(crate) fn plain_row(&self, y: i32) -> Row<'a> {
        let offset = plain_offset(self.plane, y);
        Row { source: *self, start: self.origin.wrapping_add(offset), outside: false }
    }

    /// The pixel at `(x, y)`, or the border's value there.
    ///
    /// # Safety
    /// The pass describes allocated memory.
    #[inline(always)]
    pub(crate) unsafe fn pixel(&self, x: i32, y: i32) -> f32 {
        // SAFETY: as the caller promised.
        unsafe { self.row(y).pixel(x) }
    }

    /// PX (2 or 4) pixels side by side from `(x, y)` on; 0 for those outside the image.
    ///
    /// # Safety
    /// The pass describes allocated memory, and the source is plain. Its rows begin at multiples of
    /// 16 bytes. `x` is a multiple of PX and not negative, and row `y` is in memory.
    #[inline(always)]
    pub(crate) unsafe fn pixels<const PX: usize>(&self, (x, y): (i32, i32)) -> [f32; PX] {
        let from = self.plain_row(y).at_plain(x);
        // SAFETY: the pixels lie in the image.
        unsafe {
            if x + PX as i32 <= self.pass.width {
                return load_words::<PX>(from as u64).map(f32::from_bits);
            }
            let mut values = [0.0; PX];
            let mut i = 0;
            while i < PX {
                if x + (i as i32) < self.pass.width {
                    values[i] = load(from, i);
                }
                i += 1;
            }
            values
        }
    }

    /// Sums for a column of pixels plus the pass's `point` times each pixel that lies in the
    /// region.
    ///
    /// # Safety
    /// The pass describes allocated memory; `(x, y)` lies in the region.
    #[inline(always)]
    pub(crate) unsafe fn with_point_down<const N: usize>(
        &self,
        (x, y): (i32, i32),
        sums: [f32; N],
    ) -> [f32; N] {
        let mut sums = sums;
        let mut i = 0;
        while i < N {
            let y = opaque(y + i as i32);
            if y < self.pass.region.y1 {
                // SAFETY: the pixel lies in the region, and so in the image.
                let value = unsafe { self.pixel_inside(x, y) };
                sums[i] = fma(self.pass.point, value, sums[i]);
            }
            i += 1;
        }
        sums
    }

    /// The pixel at `(x, y)`.
    ///
    /// # Safety
    /// The pixel lies in the image and is in memory.
    #[inline(always)]
    pub(crate) unsafe fn pixel_inside(&self, x: i32, y: i32) -> f32 {
        // Hidden, so that nothing is computed ahead for the few pixels that a border copies.
        // SAFETY: as the caller promised.
        unsafe {
            load_value(
                opaque(self.plane.scalar as i32) as u32,
                self.row_inside(opaque(y)).at(opaque(x)),
            )
        }
    }
}

/// A row of a source, or one that lies outside the image.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    source: Source<'a>,
    start: u64,
    outside: bool,
}

impl Row<'_> {
    /// The pixel for coordinate `x` of the row under the border rule, or the border's value.
    ///
    /// # Safety
    /// The pass describes allocated memory.
    #[inline(always)]
    pub(crate) unsafe fn pixel(self, x: i32) -> f32 {
        let pass = self.source.pass;
        let x = border::resolve(pass.border, x, pass.width);
        if self.outside || x < 0 {
            return pass.outside;
        }
        // SAFETY: row and column lie in the image.
        unsafe { load_value(self.source.plane.scalar, self.at(x)) }
    }

    /// The address of the pixel at `x`.
    #[inline(always)]
    pub(crate) fn at(self, x: i32) -> u64 {
        self.start.wrapping_add((x as i64 * self.source.plane.pixel as i64) as u64)
    }

    /// Whether `count` columns from `left` on lie in the image, and the row does, too.
    #[inline(always)]
    pub(crate) fn has_columns(self, left: i32, count: i32) -> bool {
        !self.outside && left >= 0 && left + count <= self.source.pass.width
    }

    /// N pixels, `stride` columns apart, from `x` on. If KIND is BYTES, bytes minus [`MIDDLE`].
    /// Each type has its own loads, so that all loads are in flight at once.
    ///
    /// # Safety
    /// The pass describes allocated memory, and the pixels lie in the image.
    #[inline(always)]
    pub(crate) unsafe fn pixels_strided<const N: usize, const KIND: u32>(
        self,
        x: i32,
        stride: i32,
    ) -> [f32; N] {
        let scalar = if KIND == BYTES { U8 } else { self.source.plane.scalar };
        let (at, step) = (self.at(x), stride * self.source.plane.pixel);
        let high = high_bits();
        // SAFETY: as the caller promised.
        unsafe {
            match scalar {
                F32 => each_strided(at, step, |at| load(at as *const f32, 0)),
                U8 if KIND == BYTES => {
                    each_strided(at, step, |at| of_byte_less_middle(load_u8(at), 0, high))
                }
                U8 => each_strided(at, step, |at| of_byte(load_u8(at), 0, high)),
                U16 => each_strided(at, step, |at| of_half(U16, load_u16(at), 0, high)),
                _ => each_strided(at, step, |at| half_to_f32(load_u16(at))),
            }
        }
    }

    /// The values for N coordinates, `stride` columns apart, from `x` on, as in
    /// [`Row::pixels_strided`]; the border's value where it applies. All loads are in flight at
    /// once.
    ///
    /// # Safety
    /// The pass describes allocated memory.
    #[inline(always)]
    pub(crate) unsafe fn found_strided<const N: usize, const KIND: u32>(
        self,
        x: i32,
        stride: i32,
    ) -> [f32; N] {
        let pass = self.source.pass;
        // For coordinates outside, an unused pixel is loaded.
        let (mut at, mut outside) = ([0; N], [self.outside; N]);
        let mut i = 0;
        while i < N {
            let column = border::resolve_briefly(pass.border, x + stride * i as i32, pass.width);
            outside[i] |= column < 0;
            at[i] = self.at(if column < 0 { 0 } else { column });
            i += 1;
        }
        let less = if KIND == BYTES { MIDDLE } else { 0.0 };
        // SAFETY: as the caller promised.
        let mut values = unsafe {
            match if KIND == BYTES { U8 } else { self.source.plane.scalar } {
                F32 => at.map(|at| load(at as *const f32, 0)),
                U8 if KIND == BYTES => at.map(|at| load_u8(at) as f32 - less),
                U8 => at.map(|at| load_u8(at) as f32),
                scalar => at.map(|at| of_bits(scalar, load_u16(at))),
            }
        };
        i = 0;
        while i < N {
            if outside[i] {
                values[i] = if KIND == BYTES { pass.outside - less } else { pass.outside };
            }
            i += 1;
        }
        values
    }

    /// The address of the pixel at `x`, for a plain source.
    #[inline(always)]
    pub(crate) fn at_plain(self, x: i32) -> *const f32 {
        (self.start as *const f32).wrapping_offset(x as isize)
    }

    /// Whether the row lies in the image.
    #[inline(always)]
    pub(crate) fn is_inside(self) -> bool {
        !self.outside
    }

    /// The row `count` rows below; both rows are in memory and the source is plain.
    #[inline(always)]
    pub(crate) fn below(self, count: i32) -> Self {
        Self { start: self.start.wrapping_add(plain_offset(self.source.plane, count)), ..self }
    }
}

/// The values that `load` returns for N addresses, `step` bytes apart. The step is hidden:
/// otherwise the compiler computes the addresses once, ahead, for all types, and each takes a
/// register.
#[inline(always)]
fn each_strided<const N: usize>(start: u64, step: i32, load: impl Fn(u64) -> f32) -> [f32; N] {
    let mut values = [0.0; N];
    let step = opaque(step);
    let mut i = 0;
    while i < N {
        values[i] = load(start.wrapping_add(mul_wide(step, i as i32) as u64));
        i += 1;
    }
    values
}

/// From a pixel's address, the address of the pixel below.
#[inline(always)]
pub(crate) fn one_below(pass: &Pass, at: *const f32) -> *const f32 {
    at.wrapping_byte_offset(pass.src.row as isize)
}

/// Loads a rectangle of the source into shared memory: `width` by `height` pixels from column
/// `left` and row `top` on. Column `x` of row `y` goes to float `place(x, y)`. All threads of a
/// block call together; the block is 32 threads wide. A warp loads row `thread_y()` and every
/// `block_height()`-th row below, 32 columns at a time, and has BATCH such loads in flight. No
/// pixel at or right of column `end` is read: the last one before it takes its place.
///
/// # Safety
/// The pass describes allocated memory, and the floats lie inside the memory that the launch
/// reserved.
#[inline(always)]
pub(crate) unsafe fn load_tile<const BATCH: usize>(
    pass: &Pass,
    tile: Shared,
    place: impl Fn(i32, i32) -> i32,
    (left, top): (i32, i32),
    (width, height): (i32, i32),
    end: i32,
) {
    let source = Source::new(pass);
    let mut at = (0, thread_y());
    if left >= 0
        && left + width <= pass.width
        && left + width <= end
        && source.has_rows(top, top + height)
        && source.is_plain()
    {
        // Most tiles lie inside the image, and need no border rule.
        let mut from = source.plain_row(top).below(thread_y()).at_plain(left + thread_x());
        let next_row = source.plain_offset(block_height());
        while at.1 < height {
            let mut values = [0.0; BATCH];
            let mut loaded = at;
            let mut i = 0;
            while i < BATCH {
                if loaded.0 + thread_x() < width && loaded.1 < height {
                    // SAFETY: the tile lies inside the image.
                    values[i] = unsafe { load(from, loaded.0 as usize) };
                }
                let y = loaded.1;
                loaded = next_columns(loaded, width);
                if loaded.1 != y {
                    from = from.wrapping_byte_offset(next_row);
                }
                i += 1;
            }
            let mut i = 0;
            while i < BATCH {
                let (x, y) = (at.0 + thread_x(), at.1);
                if x < width && y < height {
                    // SAFETY: the tile also has this place.
                    unsafe { tile.store(place(x, y), values[i]) };
                }
                at = next_columns(at, width);
                i += 1;
            }
        }
    } else {
        // SAFETY: as the caller promised.
        unsafe {
            load_tile_at_edge(pass, tile, place, (left, top), (width, height), end);
        }
    }
}

/// The warp's next 32 columns of a tile: in the same row, or the first in the warp's next row.
#[inline(always)]
fn next_columns((x, y): (i32, i32), width: i32) -> (i32, i32) {
    if x + 32 < width { (x + 32, y) } else { (0, y + block_height()) }
}

/// As [`load_tile`], through the border rule.
///
/// # Safety
/// As for [`load_tile`].
#[inline(always)]
unsafe fn load_tile_at_edge(
    pass: &Pass,
    tile: Shared,
    place: impl Fn(i32, i32) -> i32,
    (left, top): (i32, i32),
    (width, height): (i32, i32),
    end: i32,
) {
    let pass = &Pass { width: opaque(pass.width), height: opaque(pass.height), ..*pass };
    let source = Source::new(pass);
    let mut at = (0, thread_y());
    while at.1 < height {
        let (x, y) = (at.0 + thread_x(), at.1);
        if x < width {
            let column = if left + x < end { left + x } else { end - 1 };
            // SAFETY: the place lies in the tile; the border rule finds a pixel for any coordinate.
            unsafe { tile.store(place(x, y), source.pixel(column, top + y)) };
        }
        at = next_columns(at, width);
    }
}

/// The channel that a block writes.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pass: &'a Pass,
    origin: u64,
    /// The channel's number on the z axis.
    z: i32,
    /// Whether the plane is plain and there is no epilogue, as in most launches. Code for other
    /// cases is kept apart and short, because a kernel's loop needs the registers and the
    /// instruction cache.
    is_simple: bool,
}

impl<'a> Target<'a> {
    #[inline(always)]
    pub(crate) fn new(pass: &'a Pass) -> Self {
        Self::of_channel(pass, block_z())
    }

    /// As [`Target::new`], but computed at the call and not ahead, so that its registers are free
    /// until then.
    #[inline(always)]
    pub(crate) fn late(pass: &'a Pass) -> Self {
        Self::of_channel(pass, opaque(block_z()))
    }

    /// Channel number `z` on the grid's z axis.
    #[inline(always)]
    pub(crate) fn of_channel(pass: &'a Pass, z: i32) -> Self {
        let is_simple = pass.dst.is_plain() && pass.epilogue.flags == 0;
        Self { pass, origin: pass.dst.origin(z, &pass.channels), z, is_simple }
    }

    /// The pass.
    #[inline(always)]
    pub(crate) fn pass(&self) -> &'a Pass {
        self.pass
    }

    /// The channel's number on the z axis.
    #[inline(always)]
    pub(crate) fn z(&self) -> i32 {
        self.z
    }

    /// Whether the destination is plain and there is no epilogue.
    #[inline(always)]
    pub(crate) fn is_simple(&self) -> bool {
        self.is_simple
    }

    /// The address of the result at `(x, y)`, for a plain destination.
    #[inline(always)]
    pub(crate) fn at_plain(&self, x: i32, y: i32) -> *mut f32 {
        let row = self.origin.wrapping_add(plain_offset(&self.pass.dst, y));
        (row as *mut f32).wrapping_offset(x as isize)
    }

    /// The address of the result at `(x, y)`, for any destination. Hidden, so that nothing is
    /// computed ahead.
    #[inline(always)]
    pub(crate) fn at(&self, x: i32, y: i32) -> u64 {
        let origin = self.pass.dst.origin(opaque(self.z), &self.pass.channels);
        let row = origin.wrapping_add(row_offset(&self.pass.dst, opaque(y)));
        row.wrapping_add((opaque(x) as i64 * self.pass.dst.pixel as i64) as u64)
    }

    /// Stores a sum as the result at `(x, y)`.
    ///
    /// # Safety
    /// `(x, y)` lies in the region, and no other thread stores there.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, x: i32, y: i32, sum: f32) {
        // SAFETY: as the caller promised.
        unsafe {
            if self.is_simple {
                store(self.at_plain(x, y), 0, sum);
            } else {
                let [value] = finished(self.pass, [sum]);
                self.put(self.at(x, y), (x, y), value);
            }
        }
    }

    /// Stores a value, after the epilogue, as the result at `(x, y)`, whose address is `at`. Notes
    /// it if it is uncertain.
    ///
    /// # Safety
    /// As for [`Target::write`].
    #[inline(always)]
    unsafe fn put(&self, at: u64, (x, y): (i32, i32), value: f32) {
        let scalar = self.pass.dst.scalar;
        // SAFETY: as the caller promised.
        unsafe {
            if scalar == F32 {
                store(at as *mut f32, 0, value);
                return;
            }
            store_bits(scalar, at, to_bits(scalar, value));
            if scalar == U8
                && self.pass.uncertain.list != 0
                && is_uncertain(&self.pass.uncertain, value)
            {
                note(self.pass, x, y, self.z);
            }
        }
    }

    /// Stores a value without the epilogue at `(x, y)`: a pixel that the border copies, or the
    /// partial sum of a window.
    ///
    /// # Safety
    /// As for [`Target::write`].
    #[inline(always)]
    pub(crate) unsafe fn write_plain(&self, x: i32, y: i32, value: f32) {
        let scalar = opaque(self.pass.dst.scalar as i32) as u32;
        // SAFETY: as the caller promised.
        unsafe { store_bits(scalar, self.at(x, y), to_bits(scalar, value)) }
    }

    /// The result at `(x, y)`, which a launch before this one stored.
    ///
    /// # Safety
    /// `(x, y)` lies in the region, and no other thread stores there.
    #[inline(always)]
    pub(crate) unsafe fn stored(&self, x: i32, y: i32) -> f32 {
        let (scalar, at) = (self.pass.dst.scalar, self.at(x, y));
        // SAFETY: as the caller promised.
        unsafe {
            match scalar {
                F32 => reload(at as *const f32, 0),
                U8 => of_bits(U8, reload_small::<1>(at)),
                _ => of_bits(scalar, reload_small::<2>(at)),
            }
        }
    }

    /// The value that this thread stored at `(x, y)` earlier, in a destination of f32.
    ///
    /// # Safety
    /// `(x, y)` lies in the region, and no other thread stores there.
    #[inline(always)]
    pub(crate) unsafe fn written(&self, x: i32, y: i32) -> f32 {
        // SAFETY: as the caller promised.
        unsafe { reload(self.at(x, y) as *const f32, 0) }
    }

    /// Stores the sums of N pixels of a column that lie in the region: `(x, y)` and those below.
    ///
    /// # Safety
    /// `x` lies in the region, `y` not above it, and no other thread stores there.
    #[inline(always)]
    pub(crate) unsafe fn write_column<const N: usize>(&self, x: i32, y: i32, sums: [f32; N]) {
        let end = self.pass.region.y1;
        // SAFETY: each pixel is stored only if it lies in the region.
        unsafe {
            if self.is_simple {
                let mut at = self.at_plain(x, y);
                let mut i = 0;
                while i < N {
                    if y + (i as i32) < end {
                        store(at, 0, sums[i]);
                    }
                    at = at.wrapping_byte_add(plain_offset(&self.pass.dst, 1) as usize);
                    i += 1;
                }
            } else {
                let values = finished(self.pass, sums);
                let mut at = self.at(x, y);
                let mut i = 0;
                while i < N {
                    if y + (i as i32) < end {
                        self.put(at, (x, y + i as i32), values[i]);
                    }
                    at = at.wrapping_add(self.pass.dst.row as u64);
                    i += 1;
                }
            }
        }
    }

    /// Stores the sums of N pixels of a row, `stride` columns apart, from `(x, y)` on, that lie
    /// left of column `end`. A sum of -0 becomes 0, as for a window in parts, whose sums are added
    /// to 0.
    ///
    /// # Safety
    /// The stored pixels lie in the region, and no other thread stores there.
    #[inline(always)]
    pub(crate) unsafe fn write_strided<const N: usize, const KIND: u32>(
        &self,
        (x, y): (i32, i32),
        stride: i32,
        end: i32,
        sums: [f32; N],
    ) {
        let uncertain = &self.pass.uncertain;
        let scalar = if KIND == BYTES { U8 } else { self.pass.dst.scalar };
        let (start, step) = (self.at(x, y), opaque(stride * self.pass.dst.pixel));
        let at = |i: usize| start.wrapping_add(mul_wide(step, i as i32) as u64);
        let stored = (end - x + stride - 1) / stride;
        // SAFETY: as the caller promised.
        unsafe {
            if scalar != U8 {
                return self.write_wide(scalar, at, stored, sums);
            }
            let mut i = 0;
            let values = finished(self.pass, sums);
            // Only the store is conditional, so that it needs no branch.
            let mut greatest = -1.0;
            while i < N {
                let (byte, distance) = to_near_byte(values[i]);
                if (i as i32) < stored {
                    store_u8(at(i), byte);
                }
                greatest = distance.max(greatest);
                i += 1;
            }
            // Few results are uncertain, so the test for each comes after the stores.
            if uncertain.list == 0 || greatest < uncertain.near {
                return;
            }
            let mut noted = 0;
            i = 0;
            while i < N {
                let is_noted = (i as i32) < stored && to_near_byte(values[i]).1 >= uncertain.near;
                noted |= (is_noted as u32) << i;
                i += 1;
            }
            let mut i = opaque(0);
            while i < N as i32 {
                if noted >> i & 1 != 0 {
                    note(self.pass, x + stride * i, y, self.z);
                }
                i = opaque(i + 1);
            }
        }
    }

    /// [`Target::write_strided`] for types other than u8: stores the first `stored` results, number
    /// `i` at address `at(i)`.
    ///
    /// # Safety
    /// As for [`Target::write_strided`].
    #[inline(always)]
    unsafe fn write_wide<const N: usize>(
        &self,
        scalar: u32,
        at: impl Fn(usize) -> u64,
        stored: i32,
        mut sums: [f32; N],
    ) {
        let mut i = 0;
        while i < N {
            sums[i] += 0.0;
            i += 1;
        }
        let values = finished(self.pass, sums);
        i = 0;
        // SAFETY: as the caller promised.
        unsafe {
            if scalar == F32 {
                while i < N {
                    if (i as i32) < stored {
                        store(at(i) as *mut f32, 0, values[i]);
                    }
                    i += 1;
                }
                return;
            }
            // One loop for both types: a branch for each would double the code.
            while i < N {
                let (whole, half) = (to_bits(U16, values[i]), f32_to_half(values[i]));
                if (i as i32) < stored {
                    store_u16(at(i), if scalar == U16 { whole } else { half });
                }
                i += 1;
            }
        }
    }

    /// PX (2 or 4) pixels side by side, from column `x` on, in any row.
    #[inline(always)]
    pub(crate) fn run<const PX: usize>(self, x: i32) -> Run<'a, PX> {
        let region = &self.pass.region;
        let is_whole = x >= region.x0 && x + PX as i32 <= region.x1;
        let aligned = (self.at_plain(x, 0) as usize | self.pass.dst.plain_row as usize)
            .is_multiple_of(4 * PX);
        Run { target: self, x, is_vector: self.is_simple && is_whole && aligned }
    }
}

/// PX pixels side by side, in any row of a target.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a, const PX: usize> {
    target: Target<'a>,
    x: i32,
    /// Whether one vector store is enough, in every row: tested once, before the loop over rows.
    is_vector: bool,
}

impl<const PX: usize> Run<'_, PX> {
    /// Stores the sums of the pixels in row `y`, as far as they lie in the region.
    ///
    /// # Safety
    /// `y` lies in the region, and no other thread stores there.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, y: i32, sums: [f32; PX]) {
        let Self { target, x, is_vector } = *self;
        let region = &target.pass.region;
        // SAFETY: each pixel is stored only if it lies in the region; the vector only if all do and
        // it is aligned.
        unsafe {
            if is_vector {
                store_run(target.at_plain(x, y), 0, sums);
            } else if target.is_simple {
                let (at, left) = (target.at_plain(x, y), opaque(x));
                let mut i = 0;
                while i < PX {
                    if left + i as i32 >= region.x0 && left + (i as i32) < region.x1 {
                        store(at, i, sums[i]);
                    }
                    i += 1;
                }
            } else {
                let values = finished(target.pass, sums);
                let (left, mut at) = (opaque(x), target.at(x, y));
                let mut i = 0;
                while i < PX {
                    if left + i as i32 >= region.x0 && left + (i as i32) < region.x1 {
                        target.put(at, (left + i as i32, y), values[i]);
                    }
                    at = at.wrapping_add(target.pass.dst.pixel as i64 as u64);
                    i += 1;
                }
            }
        }
    }
}

/// Sums after the pass's epilogue.
#[inline(always)]
pub(crate) fn finished<const N: usize>(pass: &Pass, sums: [f32; N]) -> [f32; N] {
    let Epilogue { flags, scale, offset } = pass.epilogue;
    // Every thread of the launch takes the same branches. Without them, adding 0 would change the
    // sign of a zero. Hidden, so that they stay branches.
    let flags = opaque(flags as i32) as u32;
    let mut values = sums;
    if flags & Epilogue::LINEAR != 0 {
        let mut i = 0;
        while i < N {
            values[i] = fma(values[i], scale, offset);
            i += 1;
        }
    }
    if flags & Epilogue::ABSOLUTE != 0 {
        let mut i = 0;
        while i < N {
            values[i] = values[i].abs();
            i += 1;
        }
    }
    values
}
