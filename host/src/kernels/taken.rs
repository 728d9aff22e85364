//! Which taps a kernel takes.

/// The numbers of a step that a kernel reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Every tap of the window.
    Window,
    /// A row and a column, or those of every term of a sum.
    Pairs,
    /// A gradient's weights.
    Weights,
}
