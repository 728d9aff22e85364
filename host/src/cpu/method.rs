//! A method: code that makes bytes of bytes. All methods give the same bytes, so which one runs is
//! a matter of time alone.

use super::cost::Cost;
use super::forms::Forms;
use super::taps::Bytes;
use crate::filter::ByteFilter;
use crate::image::{ImageView, ImageViewMut};
use crate::problem::Problem;
use crate::progress::Stage;
use crate::round::Resolver;
use crate::simd::Isa;
use crate::window::Window;
use crate::{Family, Result, Variant};

/// Code for some filters over bytes; two of them also predict the time of other types.
pub(crate) struct Method {
    /// The variant that does the same on a GPU.
    pub(crate) variant: Variant,
    /// Why no other method makes the bytes.
    pub(crate) why: &'static str,
    /// Whether it takes a filter and a picture, given that no method before it in the table does.
    pub(super) takes: fn(&Request<'_>) -> bool,
    /// What a problem takes on so many threads.
    pub(crate) cost: fn(&Problem, usize) -> Cost,
    /// Filters a picture.
    pub(super) run: fn(Call<'_, '_, '_>) -> Result<()>,
}

/// What a method is asked to make.
pub(super) struct Request<'a> {
    pub(super) forms: &'a Forms,
    pub(super) pixels: usize,
    pub(super) channels: usize,
    /// The family whose order is preferred, where the filter leaves that open.
    pub(super) family: Family,
}

/// A call over a picture of bytes.
pub(super) struct Call<'a, 'i, 'o> {
    pub(super) isa: Isa,
    pub(super) window: Window,
    pub(super) byte_filter: &'a ByteFilter,
    pub(super) bytes: &'a Bytes,
    pub(super) resolver: &'a Resolver<'a>,
    pub(super) src: &'a ImageView<'i, u8>,
    pub(super) dst: &'a mut ImageViewMut<'o, u8>,
    /// Channels that are filtered; the others are copied.
    pub(super) filtered: usize,
    pub(super) stage: &'a Stage<'a>,
}
