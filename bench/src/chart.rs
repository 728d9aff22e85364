//! A drawn chart.

/// One chart.
#[derive(Debug)]
pub(crate) struct Chart {
    /// The name in files: letters, digits and hyphens.
    pub(crate) name: String,
    pub(crate) title: String,
    /// The drawing, with its style inside.
    pub(crate) svg: String,
}
