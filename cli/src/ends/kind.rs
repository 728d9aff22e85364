//! Formats that are told by how they begin.

/// A format with a signature at its start.
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
    /// An MP4 video or a HEIC picture. The tool reads neither.
    Video,
}
