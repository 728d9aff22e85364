//! Metadata that this tool does not use: written again into a file of the same format, or named.
//!
//! Readers put every unused chunk, tag and segment here. A format that can hold one writes it
//! again. The note on the output's losses names everything else.

use tiff::tags::Type;

/// A piece of metadata in a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Carried {
    pub(crate) kind: Kind,
    /// Its name, unique for its kind.
    pub(crate) name: String,
    /// The value to write again; `None` if it may be untrue of the new picture.
    pub(crate) value: Option<Value>,
    pub(crate) rests_on: RestsOn,
}

/// The place of metadata in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    PngChunk,
    TiffTag,
    JpegSegment,
    WebpChunk,
    GifBlock,
    ExrAttribute,
    ExifField,
    HeaderField,
    /// No particular place: the name is a phrase of its own.
    Phrase,
}

/// A value that can be written again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A chunk of PNG.
    Chunk([u8; 4], Vec<u8>),
    /// A tag of TIFF: its number, its type and its bytes in this machine's order.
    Tag(u16, Type, Vec<u8>),
    /// A tag of TIFF, for CMYK pictures only.
    InkTag(u16, Type, Vec<u8>),
    /// A comment, in any encoding.
    Comment(Vec<u8>),
    /// IPTC data.
    Iptc(Vec<u8>),
    /// An attribute of OpenEXR, which the headers of the document's parts hold.
    Attribute,
}

/// The property of a picture that must stay the same for metadata to stay true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestsOn {
    Nothing,
    /// The type and the meaning of the values: scaling changes both.
    Values,
    /// The positions of the pixels: rotation changes them.
    Place,
}

impl Carried {
    /// Metadata that is written again where the format can hold it.
    pub(crate) fn new(
        kind: Kind,
        name: impl Into<String>,
        value: Value,
        rests_on: RestsOn,
    ) -> Self {
        Self { kind, name: name.into(), value: Some(value), rests_on }
    }

    /// Metadata that is not written again.
    pub(crate) fn left_out(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into(), value: None, rests_on: RestsOn::Nothing }
    }
}

/// Drops values that a change makes untrue.
pub(crate) fn change(carried: &mut [Carried], changed: RestsOn) {
    carried.iter_mut().filter(|it| it.rests_on == changed).for_each(|it| it.value = None);
}

/// Maximum number of names in a note: a damaged file may have thousands.
const LIMIT: usize = 2000;

/// The phrases that name these, such as "the PNG chunks gAMA and cHRM".
pub(crate) fn phrases<'a>(all: impl Iterator<Item = &'a Carried>) -> Vec<String> {
    let mut groups: Vec<(Kind, Vec<&str>)> = Vec::new();
    for Carried { kind, name, .. } in all {
        match groups.iter_mut().find(|(known, _)| known == kind) {
            Some((_, names)) if names.contains(&&**name) => {}
            Some((_, names)) => names.push(name),
            None => groups.push((*kind, vec![name])),
        }
    }
    let mut phrases = Vec::new();
    for (kind, names) in groups {
        let more = names.len().saturating_sub(LIMIT);
        let mut names: Vec<String> = names.into_iter().take(LIMIT).map(str::to_owned).collect();
        if more > 0 {
            names.push(format!("{more} more"));
        }
        let noun = match kind {
            Kind::PngChunk => "PNG chunk",
            Kind::TiffTag => "TIFF tag",
            Kind::JpegSegment => "JPEG segment",
            Kind::WebpChunk => "WebP chunk",
            Kind::GifBlock => "GIF block",
            Kind::ExrAttribute => "OpenEXR attribute",
            Kind::ExifField => "Exif field",
            Kind::HeaderField => "header field",
            Kind::Phrase => {
                phrases.extend(names);
                continue;
            }
        };
        let plural = if names.len() > 1 { "s" } else { "" };
        phrases.push(format!("the {noun}{plural} {}", listed(&names)));
    }
    phrases
}

/// "a, b and c".
pub(crate) fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [name] => name.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// A name from a file, without characters that a terminal may interpret.
pub(crate) fn printable(name: &[u8]) -> String {
    let shown = name
        .iter()
        .take(40)
        .map(|&byte| if matches!(byte, b' '..=b'~') { byte as char } else { '?' });
    shown.collect::<String>().trim().to_owned()
}

/// Whether XMP data can be written again. A thumbnail shows the picture before filtering, so it
/// must not be.
pub(crate) fn xmp_is_kept(data: &[u8]) -> bool {
    !holds(data, b"humbnails") && !holds(data, b"xmpGImg:")
}

/// Whether XMP data gives positions in the picture, or its orientation.
pub(crate) fn xmp_rests_on_place(data: &[u8]) -> bool {
    [&b"rientation"[..], b"GPano:", b"mwg-rs:", b"Area"].iter().any(|word| holds(data, word))
}

fn holds(data: &[u8], word: &[u8]) -> bool {
    data.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_grouped_and_said_once() {
        let left = |kind, name: &str| Carried::left_out(kind, name);
        let all = [
            left(Kind::PngChunk, "gAMA"),
            left(Kind::TiffTag, "330 (SubIFDs)"),
            left(Kind::PngChunk, "cHRM"),
            left(Kind::PngChunk, "gAMA"),
            left(Kind::Phrase, "the thumbnail"),
        ];
        assert_eq!(
            phrases(all.iter()),
            ["the PNG chunks gAMA and cHRM", "the TIFF tag 330 (SubIFDs)", "the thumbnail"]
        );
        let many: Vec<_> =
            (0..2040).map(|number| left(Kind::TiffTag, &number.to_string())).collect();
        assert!(phrases(many.iter())[0].ends_with("1999 and 40 more"));
        assert_eq!(printable(b" a\x1b[31m\n"), "a?[31m?");
    }
}
