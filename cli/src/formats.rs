//! The formats that the tool writes.

use std::path::Path;

use apron::{Extra, Scalar};
use image::metadata::Orientation;

use crate::carried::{self, Carried, Value};
use crate::codec::io::Sink;
use crate::codec::options::Writing;
use crate::codec::{self, Encoded, Netpbm};
use crate::exif;
use crate::extra::{self, ByAlpha, Meaning};
use crate::failure::{Failure, Result};
use crate::meta::{Resolution, Unit};
use crate::npy;
use crate::picture::{Document, Stored};

/// A format that the tool writes.
#[derive(Debug)]
pub(crate) struct FileFormat {
    /// File extensions; the first is the format's name.
    extensions: &'static [&'static str],
    /// Whether the format can hold pixels of this type and number of channels.
    pub(crate) holds: fn(Scalar, usize) -> bool,
    /// Whether a file can hold several pictures.
    pub(crate) pages: Several,
    /// The metadata that a file can hold.
    pub(crate) keeps: &'static [Kept],
    /// The meaning of a channel after the colours.
    pub(crate) extras: Extras,
    pub(crate) encode: Encode,
}

/// Whether and how one file holds several pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Several {
    /// One picture only.
    No,
    /// Pictures of any extents and types.
    Any,
    /// Pictures that all have the same extents and type.
    Uniform,
    /// Pictures of the same extents and type, each with the time for which it is shown.
    Animation,
}

/// Metadata that a file can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Profile,
    Exif,
    Xmp,
    Orientation,
    Resolution,
}

/// The channels that a format holds after the colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extras {
    /// One channel: alpha of this type.
    Alpha(Extra),
    /// Any channels, whose meaning the file states.
    Stated,
    /// Any channels, whose meaning the file does not state.
    Unstated,
}

/// How a format is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Encode {
    Array,
    Raw,
    Png,
    Jpeg,
    Tiff,
    WebP,
    Gif,
    Exr,
    Netpbm(Netpbm),
    /// By an encoder of the `image` crate.
    Other(Encoded),
    /// Frame by frame, from a video alone.
    Video,
}

/// Every format that can be written. Tests compare this table with the encoders, and the table in
/// `cli/README.md` with this one.
pub(crate) const FORMATS: &[FileFormat] = {
    use Kept::{Exif, Orientation, Profile, Resolution, Xmp};
    use Scalar::{F16, F32, U8, U16};
    // Formats without `behind` have straight alpha, by definition or because readers take it so.
    &[
        FileFormat {
            extensions: &["png"],
            holds: |scalar, channels| matches!(scalar, U8 | U16) && channels <= 4,
            pages: Several::Animation,
            keeps: &[Profile, Exif, Xmp, Orientation, Resolution],
            encode: Encode::Png,
            ..PLAIN
        },
        FileFormat {
            extensions: &["jpg", "jpeg"],
            holds: |scalar, channels| scalar == U8 && matches!(channels, 1 | 3),
            pages: Several::No,
            keeps: &[Profile, Exif, Xmp, Orientation, Resolution],
            encode: Encode::Jpeg,
            ..PLAIN
        },
        FileFormat {
            extensions: &["tif", "tiff"],
            holds: |_, _| true,
            pages: Several::Any,
            keeps: &[Profile, Exif, Xmp, Orientation, Resolution],
            extras: Extras::Stated,
            encode: Encode::Tiff,
        },
        FileFormat {
            extensions: &["webp"],
            holds: |scalar, channels| scalar == U8 && channels <= 4,
            pages: Several::Animation,
            keeps: &[Profile, Exif, Xmp, Orientation],
            encode: Encode::WebP,
            ..PLAIN
        },
        FileFormat {
            extensions: &["bmp"],
            // The encoder also takes grey with alpha, but drops the alpha.
            holds: |scalar, channels| scalar == U8 && matches!(channels, 1 | 3 | 4),
            keeps: &[Resolution],
            encode: Encode::Other(Encoded::Bmp),
            ..PLAIN
        },
        FileFormat {
            extensions: &["gif"],
            // The palette has 256 colours, one of them transparent.
            holds: |scalar, channels| scalar == U8 && matches!(channels, 3 | 4),
            pages: Several::Animation,
            encode: Encode::Gif,
            ..PLAIN
        },
        FileFormat {
            extensions: &["qoi"],
            holds: |scalar, channels| scalar == U8 && matches!(channels, 3 | 4),
            encode: Encode::Other(Encoded::Qoi),
            ..PLAIN
        },
        FileFormat {
            extensions: &["tga"],
            holds: |scalar, channels| scalar == U8 && channels <= 4,
            encode: Encode::Other(Encoded::Tga),
            ..PLAIN
        },
        FileFormat {
            extensions: &["pgm"],
            holds: |scalar, channels| matches!(scalar, U8 | U16) && channels == 1,
            encode: Encode::Netpbm(Netpbm::Pnm),
            ..PLAIN
        },
        FileFormat {
            extensions: &["ppm"],
            holds: |scalar, channels| matches!(scalar, U8 | U16) && channels == 3,
            encode: Encode::Netpbm(Netpbm::Pnm),
            ..PLAIN
        },
        FileFormat {
            extensions: &["pnm"],
            holds: |scalar, channels| matches!(scalar, U8 | U16) && matches!(channels, 1 | 3),
            encode: Encode::Netpbm(Netpbm::Pnm),
            ..PLAIN
        },
        FileFormat {
            extensions: &["pam"],
            holds: |scalar, channels| matches!(scalar, U8 | U16) && channels <= 4,
            encode: Encode::Netpbm(Netpbm::Pam),
            ..PLAIN
        },
        FileFormat {
            extensions: &["pfm"],
            holds: |scalar, channels| scalar == F32 && matches!(channels, 1 | 3),
            encode: Encode::Netpbm(Netpbm::Pfm),
            ..PLAIN
        },
        FileFormat {
            extensions: &["ff"],
            holds: |scalar, channels| scalar == U16 && channels == 4,
            encode: Encode::Other(Encoded::Farbfeld),
            ..PLAIN
        },
        FileFormat {
            extensions: &["hdr"],
            holds: |scalar, channels| scalar == F32 && channels == 3,
            encode: Encode::Other(Encoded::Hdr),
            ..PLAIN
        },
        FileFormat {
            extensions: &["exr"],
            holds: |scalar, channels| matches!(scalar, F16 | F32) && channels <= 4,
            extras: Extras::Alpha(Extra::Premultiplied),
            encode: Encode::Exr,
            ..PLAIN
        },
        FileFormat {
            extensions: &["npy"],
            pages: Several::Uniform,
            extras: Extras::Unstated,
            ..PLAIN
        },
        FileFormat {
            extensions: &["raw"],
            holds: |scalar, _| matches!(scalar, U8 | U16 | F32),
            extras: Extras::Unstated,
            encode: Encode::Raw,
            ..PLAIN
        },
    ]
};

/// y4m, which holds no pictures.
pub(crate) const VIDEO: &FileFormat =
    &FileFormat { extensions: &["y4m"], holds: |_, _| false, encode: Encode::Video, ..PLAIN };

/// A format of pixels without metadata.
const PLAIN: FileFormat = FileFormat {
    extensions: &[],
    holds: |_, _| true,
    pages: Several::No,
    keeps: &[],
    extras: Extras::Alpha(Extra::Straight),
    encode: Encode::Array,
};

impl FileFormat {
    /// The format of files with this extension.
    pub(crate) fn from_extension(extension: &str) -> Result<&'static Self, String> {
        let lower = extension.trim_start_matches('.').to_lowercase();
        let all = || FORMATS.iter().chain([VIDEO]);
        all().find(|format| format.extensions.contains(&&*lower)).ok_or_else(|| {
            let known: Vec<_> = all().map(Self::name).collect();
            format!(
                "pictures cannot be written as \"{extension}\"; the formats are {}",
                known.join(", ")
            )
        })
    }

    /// The format that a path's extension names.
    pub(crate) fn from_path(path: &Path) -> Result<&'static Self> {
        match path.extension() {
            Some(extension) => Self::from_extension(&extension.to_string_lossy()),
            None => Err(format!(
                "there is no such folder, and the name has no extension of a format, as in {0}.png; for a new folder, write {0}/",
                path.display()
            )),
        }
        .map_err(|reason| Failure::at(path, reason))
    }

    /// Writes a document with the metadata that the format can hold.
    pub(crate) fn write(
        &self,
        document: &Document,
        out: &mut dyn Sink,
        options: &Writing,
    ) -> Result<(), String> {
        match self.encode {
            Encode::Array => npy::write_document(out, document).map_err(|error| error.to_string()),
            Encode::Raw => codec::write_raw(document, out),
            Encode::Png => codec::write_png(document, out),
            Encode::Jpeg => codec::write_jpeg(document, out, options),
            Encode::Tiff => codec::write_tiff(document, out, options),
            Encode::WebP => codec::write_webp(document, out),
            Encode::Gif => codec::write_gif(document, out),
            Encode::Exr => codec::write_exr(document, out),
            Encode::Netpbm(kind) => codec::write_pnm(document, out, kind),
            Encode::Other(encoded) => codec::write_other(document, out, encoded),
            Encode::Video => Err("y4m holds a video, no pictures".to_owned()),
        }
    }

    /// Whether files hold a video instead of pictures.
    pub(crate) fn is_video(&self) -> bool {
        matches!(self.encode, Encode::Video)
    }

    /// Whether files hold any number of channels by name.
    pub(crate) fn holds_names(&self) -> bool {
        matches!(self.encode, Encode::Exr)
    }

    /// Whether files have no header.
    pub(crate) fn is_raw(&self) -> bool {
        matches!(self.encode, Encode::Raw)
    }

    /// Whether pictures of this format can follow one another: their own bytes say where each ends.
    pub(crate) fn follows(&self) -> bool {
        !matches!(self.name(), "tif" | "tga" | "raw")
    }

    /// The formats whose pictures can follow one another, for a message.
    pub(crate) fn that_follow() -> String {
        FORMATS
            .iter()
            .filter(|format| format.follows())
            .map(Self::name)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Whether the format has this type, which no kernel takes.
    pub(crate) fn stores(&self, stored: Stored) -> bool {
        match self.encode {
            Encode::Array => true,
            Encode::Tiff => stored != Stored::Bool,
            Encode::Exr => stored == Stored::U32,
            _ => false,
        }
    }

    /// Checks that the format can hold the document's pages. The error names the way out.
    pub(crate) fn check_pages(&self, document: &Document) -> Result<(), String> {
        let several = |format: &&Self| format.pages != Several::No;
        if document.pages.len() == 1
            || !document.parts.is_empty()
            || self.pages == Several::Any
            || self.pages != Several::No && document.uniform()
        {
            return Ok(());
        }
        let (count, name) = (document.count(), self.name());
        if self.pages != Several::No {
            return Err(format!(
                "the {count} differ in size or type, and {name} holds only equal ones; write tif, or choose one with --page 1"
            ));
        }
        let can: Vec<_> = FORMATS.iter().filter(several).map(Self::name).collect();
        Err(format!(
            "the input has {count}, and {name} holds one; write {}, or choose one with --page 1",
            can.join(", ")
        ))
    }

    /// A note on the parts of a document that the format cannot hold.
    pub(crate) fn loses(&self, document: &Document) -> Option<String> {
        let first = document.first();
        let meta = &first.meta;
        let keeps = |kept| self.keeps.contains(&kept);
        let mut lost = Vec::new();
        let mut lose = |is_lost: bool, what: &'static str| {
            if is_lost {
                lost.push(what.to_owned());
            }
        };
        // Arrays and raw values hold no metadata, and users expect none.
        let values = matches!(self.encode, Encode::Array | Encode::Raw);
        // WebP has no grey.
        let for_grey = matches!(self.encode, Encode::WebP) && first.pixels.shape().channels < 3;
        lose(
            !values && meta.icc.is_some() && (!keeps(Kept::Profile) || for_grey),
            "the colour profile",
        );
        lose(
            meta.orientation != Orientation::NoTransforms && !keeps(Kept::Orientation),
            "the orientation, so that the picture will be shown unrotated (--auto-orient rotates the pixels)",
        );
        let shape = first.pixels.shape();
        let holds_exif = || match self.encode {
            Encode::Jpeg => exif::write(meta, shape.width, shape.height)
                .is_none_or(|data| data.len() <= codec::MAX_EXIF_OF_JPEG),
            _ => keeps(Kept::Exif),
        };
        lose(!values && meta.exif.is_some() && !holds_exif(), "the Exif data");
        let holds_xmp = |packet: &Vec<u8>| match self.encode {
            Encode::Jpeg => packet.len() <= codec::MAX_XMP_OF_JPEG,
            _ => keeps(Kept::Xmp),
        };
        lose(!values && meta.xmp.as_ref().is_some_and(|packet| !holds_xmp(packet)), "the XMP data");
        let has_room = |resolution: Resolution| match self.encode {
            Encode::Tiff => true,
            // The resolution fits in the Exif data.
            _ if keeps(Kept::Exif) && meta.exif.is_some() => true,
            Encode::Png => {
                resolution.unit != Unit::Unnamed || resolution.whole(i32::MAX as u32).is_some()
            }
            Encode::Jpeg => resolution.unit != Unit::Unnamed || resolution.whole(65535).is_some(),
            _ => keeps(Kept::Resolution) && resolution.unit != Unit::Unnamed,
        };
        lose(
            !values && meta.resolution.is_some_and(|resolution| !has_room(resolution)),
            "the resolution",
        );
        lose(first.delay.is_some() && self.pages != Several::Animation, "the durations of frames");
        lose(
            first.extras.contains(&Extra::Premultiplied) && self.extras == Extras::Unstated,
            "the fact that its colours are multiplied by alpha",
        );
        let carried =
            || document.pages.iter().flat_map(|page| &page.meta.carried).filter(|_| !values);
        let channels = first.pixels.shape().channels;
        let homeless = |it: &&Carried| {
            it.value.as_ref().is_some_and(|it| !self.carries(it, channels, first.is_ink()))
        };
        lost.extend(carried::phrases(carried().filter(homeless)));
        let untrue = carried::phrases(carried().filter(|it| it.value.is_none()));
        let lost = (!lost.is_empty())
            .then(|| format!("{} cannot hold {}", self.name(), carried::listed(&lost)));
        let untrue = (!untrue.is_empty()).then(|| {
            format!(
                "left out, as it may describe the picture before filtering: {}",
                carried::listed(&untrue)
            )
        });
        match (lost, untrue) {
            (Some(lost), Some(untrue)) => Some(format!("{lost}; {untrue}")),
            (lost, untrue) => lost.or(untrue),
        }
    }

    /// Whether a file with this number of channels, of light or of ink, can hold the value.
    fn carries(&self, value: &Value, channels: usize, ink: bool) -> bool {
        match (self.encode, value) {
            (Encode::Png, Value::Chunk(name, data)) => codec::fits_png(*name, data, channels),
            (Encode::Tiff, Value::InkTag(..)) => ink,
            (Encode::Tiff, Value::Tag(..) | Value::Iptc(_)) => true,
            (Encode::Jpeg, Value::Comment(data) | Value::Iptc(data)) => codec::fits_jpeg(data),
            (Encode::Gif, Value::Comment(_)) | (Encode::Exr, Value::Attribute) => true,
            _ => false,
        }
    }

    /// Whether the format holds CMYK.
    pub(crate) fn holds_inks(&self) -> bool {
        matches!(self.encode, Encode::Tiff | Encode::Jpeg)
    }

    pub(crate) fn name(&self) -> &'static str {
        self.extensions[0]
    }

    /// Whether the format can hold this type, number of colours and channels after the colours.
    fn takes(&self, scalar: Scalar, colours: usize, extras: &[Extra]) -> bool {
        if colours == 4 {
            return match self.encode {
                Encode::Tiff => true,
                Encode::Jpeg => scalar == Scalar::U8 && extras.is_empty(),
                _ => false,
            };
        }
        let behind = match (self.extras, extras) {
            (Extras::Stated | Extras::Unstated, _) | (_, []) => true,
            (Extras::Alpha(_), [extra]) => *extra != Extra::Band && matches!(colours, 1 | 3),
            (Extras::Alpha(_), _) => false,
        };
        behind && (self.holds)(scalar, colours + extras.len())
    }

    /// How the colours of a result are converted for the format, and a note for the user on its
    /// channels.
    pub(crate) fn meets(&self, meaning: &Meaning) -> (ByAlpha, Option<String>) {
        let Extras::Alpha(alpha) = self.extras else { return (ByAlpha::AsTheyAre, None) };
        let text = format!(
            "the input does not say what its last channel is, and in {} it is alpha; --alpha premultiply weights the colours by it",
            self.name()
        );
        let unsaid = meaning.extras.contains(&Extra::Unspecified);
        (ByAlpha::between(meaning.kept, alpha), unsaid.then_some(text))
    }

    /// The type of alpha in a file of this format, given the result's type of alpha.
    pub(crate) fn alpha(&self, of_result: Extra) -> Extra {
        match self.extras {
            Extras::Alpha(kind) if of_result.is_alpha() => kind,
            _ => of_result,
        }
    }

    /// Checks that the format can hold this type, number of colours and channels after the colours.
    /// The error names formats that can, and other ways out.
    pub(crate) fn check(
        &self,
        scalar: Scalar,
        colours: usize,
        extras: &[Extra],
    ) -> Result<(), String> {
        if self.takes(scalar, colours, extras) {
            return Ok(());
        }
        let what = extra::name(colours, extras);
        let can = FORMATS.iter().filter(|format| format.takes(scalar, colours, extras));
        let can = can.map(Self::name).collect::<Vec<_>>().join(", ");
        if (self.holds)(scalar, colours + extras.len()) {
            let ways = match extras {
                [_] => {
                    "; --alpha drop leaves the last band out, --alpha premultiply treats it as alpha"
                }
                _ => "",
            };
            return Err(format!(
                "{} cannot hold {what} {scalar}: its last channel is alpha; write {can}{ways}",
                self.name()
            ));
        }
        let other = [Scalar::U8, Scalar::U16, Scalar::F32];
        let other = other.into_iter().find(|&scalar| self.takes(scalar, colours, extras));
        let convert = other.map(|other| {
            // Between integer types, and between float types, the default scale keeps the
            // appearance.
            let integers = [scalar, other].map(|scalar| matches!(scalar, Scalar::U8 | Scalar::U16));
            let scale = if integers[0] == integers[1] { "" } else { " --scale full" };
            format!(", or convert with --output-type {other}{scale}")
        });
        let convert = convert.unwrap_or_default();
        Err(format!("{} cannot hold {what} {scalar}; write {can}{convert}", self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The README's row of a format.
    fn row(format: &FileFormat) -> String {
        let channels = |scalar| {
            (1..=4).filter(|&channels| (format.holds)(scalar, channels)).collect::<Vec<_>>()
        };
        let mut types: Vec<(String, Vec<usize>)> = Vec::new();
        for scalar in [Scalar::U8, Scalar::U16, Scalar::F16, Scalar::F32] {
            match types.last_mut() {
                _ if channels(scalar).is_empty() => {}
                Some((names, known)) if *known == channels(scalar) => {
                    *names += &format!(", {scalar}")
                }
                _ => types.push((scalar.to_string(), channels(scalar))),
            }
        }
        let text = |(names, channels): &(String, Vec<usize>)| match channels[..] {
            [1, 2, 3, 4] => format!("{names}: 1 to 4"),
            _ => format!(
                "{names}: {}",
                channels.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
            ),
        };
        let pages = match format.pages {
            Several::No => "one",
            Several::Any => "pages",
            Several::Uniform => "slices",
            Several::Animation => "frames",
        };
        let kept = |kept: &Kept| match kept {
            Kept::Profile => "profile",
            Kept::Exif => "Exif",
            Kept::Xmp => "XMP",
            Kept::Orientation => "orientation",
            Kept::Resolution => "resolution",
        };
        let types = types.iter().map(text).collect::<Vec<_>>().join("; ");
        let kept = format.keeps.iter().map(kept).collect::<Vec<_>>().join(", ");
        format!("| {} | {types} | {pages} | {kept} |", format.name()).replace("|  |", "| |")
    }

    #[test]
    fn the_readme_has_the_table() {
        let readme = include_str!("../README.md");
        for format in FORMATS {
            assert!(readme.contains(&row(format)), "the README lacks: {}", row(format));
        }
        let follow = format!("These can follow one another: {}.", FileFormat::that_follow());
        assert!(readme.contains(&follow), "the README lacks: {follow}");
    }
}
