//! What a picture's last channel is, when it is no colour.

/// What a picture's last channel is, when it is no colour: what a file says of its fourth sample.
///
/// [`Pipeline::run_with_extra`](crate::Pipeline::run_with_extra) takes one beside an
/// [`Alpha`](crate::Alpha):
///
/// | kind | [`Alpha::Auto`](crate::Alpha::Auto) in averages | [`Alpha::Auto`](crate::Alpha::Auto) in other steps |
/// | --- | --- | --- |
/// | [`Extra::Straight`] | colours weighted by alpha, alpha filtered | colours filtered, alpha copied |
/// | [`Extra::Premultiplied`] | every channel filtered | colours filtered, alpha copied |
/// | [`Extra::Band`], [`Extra::Unspecified`] | every channel filtered | every channel filtered |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extra {
    /// Alpha, of which the colours know nothing: PNG, WebP, GIF, TIFF's "unassociated".
    Straight,
    /// Alpha, with which the colours are multiplied: OpenEXR, TIFF's "associated".
    Premultiplied,
    /// Another band, such as near infrared.
    Band,
    /// Nobody says: an array, or TIFF's "unspecified".
    Unspecified,
}

impl Extra {
    /// Whether it is alpha.
    pub fn is_alpha(self) -> bool {
        matches!(self, Self::Straight | Self::Premultiplied)
    }
}
