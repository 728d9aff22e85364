//! The arguments of the kernels for arrays of any number of dimensions (`kernels/arrays.rs`).

/// The types of an array's elements.
pub mod element {
    /// Unsigned integers of 8 bits.
    pub const U8: u32 = 0;
    /// Signed integers of 8 bits.
    pub const I8: u32 = 1;
    /// Unsigned integers of 16 bits.
    pub const U16: u32 = 2;
    /// Signed integers of 16 bits.
    pub const I16: u32 = 3;
    /// Unsigned integers of 32 bits.
    pub const U32: u32 = 4;
    /// Signed integers of 32 bits.
    pub const I32: u32 = 5;
    /// Unsigned integers of 64 bits.
    pub const U64: u32 = 6;
    /// Signed integers of 64 bits.
    pub const I64: u32 = 7;
    /// IEEE 754 binary32.
    pub const F32: u32 = 8;
    /// IEEE 754 binary64.
    pub const F64: u32 = 9;
}

/// The steps of the kernel that joins the elements of two arrays, in this order. After each, the
/// result is an element of the arrays' type: rounded, or wrapped around.
pub mod join {
    /// Squares the target's element.
    pub const SQUARE_TARGET: u32 = 1;
    /// Squares the source's element.
    pub const SQUARE_SOURCE: u32 = 2;
    /// Adds the source's element to the target's. Without it the source is not read.
    pub const ADD: u32 = 4;
    /// Takes the root.
    pub const ROOT: u32 = 8;
}

/// Dimensions of a launch. Unused ones have one element.
pub const DIMS: usize = 4;

/// The most elements along one dimension, and the most results of a launch: sums of coordinates
/// with a window's extent, and of indices with a grid's threads, stay inside `i32` and `u32`.
pub const MAX_LEN: usize = 1 << 29;

/// The most elements of a window along one dimension.
pub const MAX_WINDOW: usize = 1 << 20;

/// One dimension of the source and the target.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim {
    /// Bytes from one element of the source to the next.
    pub source: i64,
    /// Bytes from one element of the target to the next.
    pub target: i64,
    /// Elements of the array, for the border rule.
    pub len: i32,
    /// The first element that is computed.
    pub first: i32,
    /// How many elements are computed, from the first on.
    pub count: i32,
    /// Elements of the window before the element at the result's position.
    pub before: i32,
    /// Elements of the window after it.
    pub behind: i32,
}

impl Dim {
    /// A dimension that is not used.
    pub const NONE: Self =
        Self { source: 0, target: 0, len: 1, first: 0, count: 1, before: 0, behind: 0 };
}

/// One pass over an array. Source and target do not overlap.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrayPass {
    /// The address of the source's element 0.
    pub source: u64,
    /// The address of the target's element 0.
    pub target: u64,
    /// The value outside the array under [`crate::border::CONSTANT`].
    pub outside: f64,
    /// The dimensions. Adjacent threads compute adjacent elements of the first.
    pub dims: [Dim; DIMS],
    /// The type of the source's elements: one of the constants in [`element`].
    pub from: u32,
    /// The type of the target's elements.
    pub to: u32,
    /// One of the `border::` mode constants, but [`crate::border::KEEP`].
    pub border: u32,
}

/// A tap of a window in memory, in words: the bytes from the element at the result's position to
/// the tap's (two words), the tap as f64 (two words), and the elements in between along each
/// dimension.
pub type ArrayTap = [u32; 4 + DIMS];

/// Words of an [`ArrayTap`].
pub const TAP_WORDS: usize = 4 + DIMS;
