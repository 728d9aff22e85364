//! Formats that are told by how they begin.

/// What begins with bytes of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Png,
    Jpeg,
    Npy,
    Pnm,
    Bmp,
    Gif,
    WebP,
    Qoi,
    Farbfeld,
    Hdr,
    Exr,
    Tiff,
    /// An MP4 video, or a HEIC picture, which are not read.
    Video,
}
