//! Errors.

use std::borrow::Cow;

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a request failed. Each message names the value, the limit and a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter of a filter, plan or border has a value that is not allowed.
    #[error("{name} is {value}, but must be {expected}")]
    Parameter {
        /// The parameter's name.
        name: &'static str,
        /// The value given.
        value: String,
        /// The values accepted, as a phrase that follows "must be".
        expected: String,
    },
    /// The number of taps does not match the size of the window.
    #[error("{cols}x{rows} taps need {expected} numbers, {found} given")]
    TapCount {
        /// Tap columns.
        cols: usize,
        /// Tap rows.
        rows: usize,
        /// `cols * rows`.
        expected: usize,
        /// The number of taps given.
        found: usize,
    },
    /// A filter's text form could not be read.
    #[error("cannot read filter \"{text}\": {reason}")]
    FilterSyntax {
        /// The text.
        text: String,
        /// The error, and the expected text.
        reason: String,
    },
    /// An image's slice, stride and size do not fit together.
    #[error("image of {width}x{height} pixels, {channels} channels, stride {stride}: {reason}")]
    Geometry {
        /// Pixels in a row.
        width: usize,
        /// Rows.
        height: usize,
        /// Channels of a pixel.
        channels: usize,
        /// Elements from one row to the next.
        stride: usize,
        /// The error, and the limit.
        reason: String,
    },
    /// Source and destination differ in size or channels.
    #[error(
        "source is {src} but destination is {dst}: they must agree (width x height x channels)"
    )]
    Mismatch {
        /// The source's size.
        src: String,
        /// The destination's size.
        dst: String,
    },
    /// No variant has this name.
    #[error("no variant is called \"{name}\"; the variants are: {known}")]
    UnknownVariant {
        /// The name given.
        name: String,
        /// All names.
        known: String,
    },
    /// The requested variant cannot run this problem.
    #[error(
        "variant {variant} cannot run this: {reason}; leave the variant out to have one chosen"
    )]
    Unsupported {
        /// The variant's name.
        variant: &'static str,
        /// The limit that is exceeded.
        reason: String,
    },
    /// No GPU can be used.
    #[error("no GPU: {reason}; the CPU gives the same results")]
    NoGpu {
        /// The reason.
        reason: String,
    },
    /// The machine has GPUs, but not this one.
    #[error("no GPU {ordinal}: this machine has {count}, numbered from 0")]
    NoSuchGpu {
        /// The requested number, counted from 0.
        ordinal: u32,
        /// The number of GPUs.
        count: u32,
    },
    /// The device ran out of memory. The plan stays usable, and a smaller image may fit.
    #[error(
        "GPU memory exhausted: {}{free} bytes free of {total}; use a smaller image, or the CPU",
        if *needed == 0 { String::new() } else { format!("{needed} more bytes needed, ") }
    )]
    DeviceMemory {
        /// Bytes requested; 0 if the driver itself failed to allocate and does not report a size.
        needed: u64,
        /// Bytes free.
        free: u64,
        /// Total bytes of the device.
        total: u64,
    },
    /// An image of a batch could not be filtered. All images before it are complete.
    #[error("picture {picture} of the batch, counted from 0: {error}")]
    InBatch {
        /// The image's index in the batch, counted from 0.
        picture: usize,
        /// The cause.
        #[source]
        error: Box<Error>,
    },
    /// The progress function ended the call: see [`crate::PlanBuilder::progress`].
    #[error("cancelled when {done} of {total} pixels were done")]
    Cancelled {
        /// Pixels with finished results.
        done: u64,
        /// Pixels of all images of the call.
        total: u64,
    },
    /// A row source or a row sink failed: see [`crate::Plan::run_streamed`].
    #[error("rows {} to {} cannot be {what}: {error}", rows.start, rows.end.saturating_sub(1))]
    Rows {
        /// The failed operation: "read" or "written".
        what: &'static str,
        /// The rows, counted from 0.
        rows: std::ops::Range<usize>,
        /// The cause.
        #[source]
        error: std::io::Error,
    },
    /// The host ran out of memory.
    #[error("host memory exhausted: {bytes} more bytes needed")]
    HostMemory {
        /// Bytes requested.
        bytes: usize,
    },
    /// A call to the GPU driver failed.
    #[error("{call} failed: {message}")]
    Driver {
        /// The name of the call.
        call: &'static str,
        /// The driver's message.
        message: String,
    },
    /// Kernels from a file cannot be used.
    #[error("the kernels in {} cannot be used: {reason}", path.display())]
    Kernels {
        /// The file.
        path: std::path::PathBuf,
        /// The reason.
        reason: String,
    },
    /// This crate does not support the image's pixel type.
    #[error(
        "pixel format {format} is not supported; convert it to 8-bit, 16-bit or 32-bit float channels first"
    )]
    PixelFormat {
        /// The format.
        format: String,
    },
    /// An image could not be decoded or encoded.
    #[cfg(feature = "image")]
    #[error(transparent)]
    Picture(#[from] image::ImageError),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: std::path::PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// The reason why a kernel cannot run a problem, or why a plan does not choose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why(Cow<'static, str>);

impl Why {
    pub(crate) const NOT_SEPARABLE: Self =
        Self(Cow::Borrowed("the filter is not separable into a row and a column"));
    pub(crate) const NO_LINES: Self = Self(Cow::Borrowed(
        "1-D spectra take a separable filter or a sum of two, of 1 to 2^20 taps in each direction, whose sums of |tap| are from 1e-15 to 1e15",
    ));
    pub(crate) const BYTES_ALONE: Self =
        Self(Cow::Borrowed("it takes only u8 images with u8 results"));
}

impl From<&'static str> for Why {
    fn from(text: &'static str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Why {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}
