//! The first argument of every study: whole planes of f32, as in their documents.

/// Source and destination of one launch: `planes` (the grid's z extent) planes of `width` by
/// `height` pixels.
///
/// Strides count elements, not bytes, and are below 2^32. Source and destination never overlap.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// First pixel of the first source plane.
    pub src: *const f32,
    /// First pixel of the first destination plane.
    pub dst: *mut f32,
    /// Elements from one source row to the next.
    pub src_stride: usize,
    /// Elements from one destination row to the next.
    pub dst_stride: usize,
    /// Elements from one source plane to the next.
    pub src_plane: usize,
    /// Elements from one destination plane to the next.
    pub dst_plane: usize,
    /// Pixels in a row.
    pub width: i32,
    /// Rows.
    pub height: i32,
    /// One of the `border::` mode constants.
    pub border: u32,
    /// The value outside the image under [`crate::border::CONSTANT`].
    pub border_value: f32,
}
