//! What a picture's last channel is, when it is no colour.

use crate::Alpha;

/// What a picture's last channel is, when it is no colour: what a file says of its fourth sample.
///
/// [`Pipeline::run_with_extra`](crate::Pipeline::run_with_extra) takes one beside an [`Alpha`]:
///
/// | kind | [`Alpha::Auto`] in averages | [`Alpha::Auto`] in other steps |
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

impl Alpha {
    /// What the last channel of a result is, for a source whose last channel is `extra`; none if it
    /// was taken away.
    ///
    /// [`Alpha::Premultiply`] and [`Alpha::Premultiplied`] say what the channel is, whatever its
    /// source says.
    ///
    /// ```
    /// use apron::{Alpha, Extra};
    ///
    /// assert_eq!(Alpha::Auto.of_result(Extra::Band), Some(Extra::Band));
    /// assert_eq!(Alpha::Premultiply.of_result(Extra::Unspecified), Some(Extra::Straight));
    /// assert_eq!(Alpha::Drop.of_result(Extra::Straight), None);
    /// ```
    pub fn of_result(self, extra: Extra) -> Option<Extra> {
        match self {
            Self::Auto | Self::Keep | Self::Filter => Some(extra),
            Self::Premultiply => Some(Extra::Straight),
            Self::Premultiplied => Some(Extra::Premultiplied),
            Self::Drop | Self::Flatten(_) => None,
        }
    }

    /// The mode that does for straight alpha what this one does for `extra`.
    pub(crate) fn for_kind(self, extra: Extra) -> Self {
        match (self, extra) {
            (Self::Auto, Extra::Premultiplied) => Self::Premultiplied,
            (Self::Auto, Extra::Band | Extra::Unspecified) => Self::Filter,
            (mode, _) => mode,
        }
    }
}
