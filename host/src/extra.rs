//! The type of an image's last channel, if it is not a colour.

/// The type of an image's last channel, if it is not a colour. Files state it for the sample after
/// the colours.
///
/// [`Pipeline::run_with_extra`](crate::Pipeline::run_with_extra) takes an `Extra` and an
/// [`Alpha`](crate::Alpha):
///
/// | type | [`Alpha::Auto`](crate::Alpha::Auto) in averages | [`Alpha::Auto`](crate::Alpha::Auto) in other steps |
/// | --- | --- | --- |
/// | [`Extra::Straight`] | colours weighted by alpha, alpha filtered | colours filtered, alpha copied |
/// | [`Extra::Premultiplied`] | every channel filtered | colours filtered, alpha copied |
/// | [`Extra::Band`], [`Extra::Unspecified`] | every channel filtered | every channel filtered |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extra {
    /// Alpha that is not multiplied into the colours: PNG, WebP, GIF, TIFF's "unassociated".
    Straight,
    /// Alpha that is multiplied into the colours: OpenEXR, TIFF's "associated".
    Premultiplied,
    /// Another spectral band, such as near infrared.
    Band,
    /// Not stated: an array, or TIFF's "unspecified".
    Unspecified,
}

impl Extra {
    /// Whether the channel is alpha.
    pub fn is_alpha(self) -> bool {
        matches!(self, Self::Straight | Self::Premultiplied)
    }
}
