//! Channels by name, and the choice of some of them (`--channels`).

use std::str::FromStr;

use apron::{Extra, Image, Number, Scalar, Shape};
use exr::meta::attribute::ChannelDescription;

use crate::carried::listed;
use crate::codec::zeroes;
use crate::picture::{Document, Picture, Pixels, each};

/// A channel of an OpenEXR file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named {
    /// The number of its part in the file.
    pub(crate) part: usize,
    /// The name of that part, if the file has several.
    pub(crate) label: Option<String>,
    pub(crate) channel: ChannelDescription,
}

/// The names of the channels to filter, as the user gives them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chosen(Vec<String>);

impl FromStr for Chosen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names: Vec<_> = text.split(',').map(|name| name.trim().to_owned()).collect();
        if names.iter().any(String::is_empty) {
            return Err("names of channels with commas between them are needed, as in R,G,B");
        }
        Ok(Self(names))
    }
}

/// The name of a channel, and the name that it has in its part of the file.
struct Name {
    whole: String,
    own: String,
}

impl Name {
    /// Whether a user's word names this channel, or the layer or the part that it is in.
    fn is(&self, word: &str) -> bool {
        [&self.whole, &self.own]
            .into_iter()
            .filter_map(|name| name.strip_prefix(word))
            .any(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

impl Chosen {
    /// Which channels of a page are chosen.
    pub(crate) fn of(&self, page: &Picture) -> Vec<bool> {
        page.names().iter().map(|name| self.0.iter().any(|word| name.is(word))).collect()
    }

    /// Checks that each name is the name of a channel in a page.
    pub(crate) fn check(&self, pages: &[Picture]) -> Result<(), String> {
        let names: Vec<Name> = pages.iter().flat_map(Picture::names).collect();
        match self.0.iter().find(|word| !names.iter().any(|name| name.is(word))) {
            None => Ok(()),
            Some(word) => {
                Err(format!("there is no channel \"{word}\"; the channels are {}", list(&names)))
            }
        }
    }
}

/// Maximum number of names in a message.
const LIMIT: usize = 40;

/// "A, B, G and R", each name once.
fn list(names: &[Name]) -> String {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        if !found.contains(&name.whole) {
            found.push(name.whole.clone());
        }
        if found.len() == LIMIT {
            found.push("others".to_owned());
            break;
        }
    }
    listed(&found)
}

impl Picture {
    /// The names of the channels: those in the file, or the letters of the colours, `A` for alpha,
    /// and for other bands their number from 1.
    fn names(&self) -> Vec<Name> {
        if !self.named.is_empty() {
            let name = |named: &Named| {
                let own = named.channel.name.to_string();
                let whole = match &named.label {
                    Some(label) => format!("{label}.{own}"),
                    None => own.clone(),
                };
                Name { whole, own }
            };
            return self.named.iter().map(name).collect();
        }
        let colours: &[&str] = match self.colours() {
            1 => &["Y"],
            3 => &["R", "G", "B"],
            4 => &["C", "M", "Y", "K"],
            _ => &[],
        };
        let name = |at: usize| {
            let own = (at + 1).to_string();
            let extra = at.checked_sub(self.colours()).map(|at| self.extras[at]);
            let whole = match (colours.get(at), extra) {
                (Some(colour), _) => (*colour).to_owned(),
                (None, Some(extra)) if extra.is_alpha() => "A".to_owned(),
                _ => own.clone(),
            };
            Name { whole, own }
        };
        (0..self.pixels.shape().channels).map(name).collect()
    }

    /// The picture of the chosen channels alone, without metadata.
    pub(crate) fn picked(&self, chosen: &[bool]) -> Result<Self, String> {
        let wanted = |at: &usize| chosen[*at];
        let colours = self.colours();
        let kept: Vec<usize> = (0..chosen.len()).filter(wanted).collect();
        let mut extras: Vec<Extra> =
            kept.iter().filter(|&&at| at >= colours).map(|&at| self.extras[at - colours]).collect();
        if extras.len() == kept.len() {
            // Without a colour nothing is alpha, and the first channel takes the colour's place.
            extras = vec![Extra::Band; kept.len().saturating_sub(1)];
        }
        let pixels = each!(&self.pixels, image => picked(image, &kept)?.into());
        let named = if self.named.is_empty() {
            Vec::new()
        } else {
            kept.iter().map(|&at| self.named[at].clone()).collect()
        };
        Ok(Self { extras, stored: self.stored, named, ..Self::new(pixels) })
    }

    /// Replaces the chosen channels by those of `results`, in order. Returns false if the type or
    /// the number of channels differs.
    pub(crate) fn replace(&mut self, chosen: &[bool], results: &Pixels) -> bool {
        let places: Vec<usize> = (0..chosen.len()).filter(|&at| chosen[at]).collect();
        if results.shape().channels != places.len() {
            return false;
        }
        match (&mut self.pixels, results) {
            (Pixels::U8(to), Pixels::U8(from)) => replace(to, from, &places),
            (Pixels::U16(to), Pixels::U16(from)) => replace(to, from, &places),
            (Pixels::F16(to), Pixels::F16(from)) => replace(to, from, &places),
            (Pixels::F32(to), Pixels::F32(from)) => replace(to, from, &places),
            (Pixels::F64(to), Pixels::F64(from)) => replace(to, from, &places),
            _ => return false,
        }
        true
    }
}

fn picked<P: Number + bytemuck::Pod>(image: &Image<P>, kept: &[usize]) -> Result<Image<P>, String> {
    let Shape { width, height, channels } = image.shape();
    let mut values = zeroes::<P>(width * height * kept.len())?;
    let pixels = image.as_slice().chunks_exact(channels);
    for (to, from) in values.chunks_exact_mut(kept.len()).zip(pixels) {
        to.iter_mut().zip(kept).for_each(|(to, &at)| *to = from[at]);
    }
    Image::from_vec(values, width, height, kept.len()).map_err(|error| error.to_string())
}

fn replace<P: Number>(to: &mut Image<P>, from: &Image<P>, places: &[usize]) {
    let channels = to.shape().channels;
    let results = from.as_slice().chunks_exact(places.len());
    for (pixel, results) in to.as_mut_slice().chunks_exact_mut(channels).zip(results) {
        places.iter().zip(results).for_each(|(&at, &result)| pixel[at] = result);
    }
}

impl Document {
    /// The picture of an OpenEXR file for a format that holds one picture and no names: the chosen
    /// channels, or the colours and alpha of the main layer. `format` is that format's name, and
    /// `half` tells whether it holds f16.
    pub(crate) fn shown(
        self,
        chosen: Option<&Chosen>,
        format: &str,
        half: fn(Scalar, usize) -> bool,
    ) -> Result<Self, String> {
        if self.parts.is_empty() {
            return Ok(self);
        }
        let Self { mut pages, plays, mut notes, .. } = self;
        let all: Vec<Name> = pages.iter().flat_map(Picture::names).collect();
        let meta = std::mem::take(&mut pages[0].meta);
        let page = match chosen {
            Some(chosen) => joined(&pages, chosen)?,
            None => {
                let main = main(&pages).ok_or_else(|| {
                    format!(
                        "the file has no channels R, G and B; choose some of {} with --channels",
                        list(&all)
                    )
                })?;
                pages.swap_remove(main)
            }
        };
        let written: Vec<String> = page.names().into_iter().map(|name| name.whole).collect();
        let others: Vec<Name> = all.into_iter().filter(|it| !written.contains(&it.whole)).collect();
        if !others.is_empty() {
            let count = match others.len() {
                1 => "1 channel is".to_owned(),
                count => format!("{count} channels are"),
            };
            notes.push(format!(
                "{count} left out, as {format} does not hold channels by name: {}; \
                 --channels chooses others",
                list(&others)
            ));
        }
        let pixels = match page.pixels {
            Pixels::F16(image) if !half(Scalar::F16, image.shape().channels) => {
                let Shape { width, height, channels } = image.shape();
                let values = image.as_slice().iter().map(|value| value.to_f32()).collect();
                let image = Image::from_vec(values, width, height, channels);
                Pixels::F32(image.map_err(|error| error.to_string())?)
            }
            pixels => pixels,
        };
        let page = Picture { pixels, meta, ..page };
        Ok(Self { plays, notes, ..Self::of(vec![page]) })
    }
}

/// The page with the colours of the main layer: of no name, else the first one; else luminance;
/// else the only channel.
fn main(pages: &[Picture]) -> Option<usize> {
    let own = |page: &Picture| page.named[0].channel.name.to_string();
    let colours = |page: &&Picture| page.colours() == 3;
    let find = |wanted: &dyn Fn(&&Picture) -> bool| pages.iter().position(|page| wanted(&page));
    find(&|page| colours(page) && own(page) == "R")
        .or_else(|| find(&colours))
        .or_else(|| find(&|page| own(page) == "Y"))
        .or_else(|| (pages.len() == 1).then_some(0))
}

/// The chosen channels as one picture.
fn joined(pages: &[Picture], chosen: &Chosen) -> Result<Picture, String> {
    let mut found = Vec::new();
    for page in pages {
        let chosen = chosen.of(page);
        if chosen.contains(&true) {
            found.push(page.picked(&chosen)?);
        }
    }
    if let [_] = &found[..] {
        return Ok(found.remove(0));
    }
    let Some(Shape { width, height, .. }) = found.first().map(|page| page.pixels.shape()) else {
        return Err("no channel is chosen".to_owned());
    };
    let same = |page: &Picture| {
        let shape = page.pixels.shape();
        (shape.width, shape.height) == (width, height)
    };
    if !found.iter().all(same) || found.iter().any(|page| page.stored.is_some()) {
        return Err(
            "the chosen channels differ in size or type, and one picture has one of each; \
            choose fewer with --channels, or write exr"
                .to_owned(),
        );
    }
    let channels: usize = found.iter().map(|page| page.pixels.shape().channels).sum();
    let mut values = zeroes::<f32>(width * height * channels)?;
    let mut first = 0;
    for page in &found {
        let count = page.pixels.shape().channels;
        each!(&page.pixels, image => {
            let pixels = image.as_slice().chunks_exact(count);
            for (to, from) in values.chunks_exact_mut(channels).zip(pixels) {
                let to = to[first..first + count].iter_mut();
                to.zip(from).for_each(|(to, from)| *to = from.to_f64() as f32);
            }
        });
        first += count;
    }
    let image = Image::from_vec(values, width, height, channels);
    let pixels = Pixels::F32(image.map_err(|error| error.to_string())?);
    let named = found.into_iter().flat_map(|page| page.named).collect();
    let colours = if channels >= 3 { 3 } else { 1 };
    let extras = vec![Extra::Band; channels - colours];
    Ok(Picture { extras, named, ..Picture::new(pixels) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pixels of 0, 1, 2, ...
    fn picture(channels: usize, extras: Vec<Extra>) -> Picture {
        let values = (0..2 * channels as u8).collect();
        let image = Image::from_vec(values, 2, 1, channels).unwrap();
        Picture { extras, ..Picture::new(Pixels::U8(image)) }
    }

    fn chosen(text: &str, page: &Picture) -> Vec<bool> {
        text.parse::<Chosen>().unwrap().of(page)
    }

    #[test]
    fn channels_have_letters_and_numbers() {
        use Extra::{Band, Straight};
        let page = picture(5, vec![Band, Straight]);
        for (text, expected) in [
            ("R", [true, false, false, false, false]),
            ("A, 1", [true, false, false, false, true]),
            ("4", [false, false, false, true, false]),
            ("B,G", [false, true, true, false, false]),
        ] {
            assert_eq!(chosen(text, &page), expected, "{text}");
        }
        assert_eq!(chosen("K", &picture(4, Vec::new())), [false, false, false, true]);
        assert_eq!(chosen("Y", &picture(1, Vec::new())), [true]);
        for text in ["", "R,", ",", "R,,G"] {
            assert!(text.parse::<Chosen>().is_err(), "{text}");
        }
        let message = "R,5,6".parse::<Chosen>().unwrap().check(&[page]).unwrap_err();
        assert!(message.contains("\"6\"") && message.ends_with("R, G, B, 4 and A"), "{message}");
    }

    #[test]
    fn a_layer_or_a_part_is_all_of_its_channels() {
        let name = |whole: &str, own: &str| Name { whole: whole.to_owned(), own: own.to_owned() };
        let channel = name("left.diffuse.R", "diffuse.R");
        for word in ["left", "left.diffuse", "left.diffuse.R", "diffuse", "diffuse.R"] {
            assert!(channel.is(word), "{word}");
        }
        for word in ["R", "lef", "left.d", "diff", "diffuse.", "left.diffuse.R.x"] {
            assert!(!channel.is(word), "{word}");
        }
    }

    #[test]
    fn chosen_channels_come_out_and_go_back() {
        let mut page = picture(4, vec![Extra::Straight]);
        let some = chosen("G,A", &page);
        let part = page.picked(&some).unwrap();
        assert_eq!((part.pixels.bytes(), &part.extras[..]), (&[1, 3, 5, 7][..], &page.extras[..]));
        // Alpha alone is a picture of one colour.
        assert_eq!(page.picked(&chosen("A", &page)).unwrap().extras, []);
        let results = Pixels::U8(Image::from_vec(vec![10, 11, 12, 13], 2, 1, 2).unwrap());
        assert!(page.replace(&some, &results));
        assert_eq!(page.pixels.bytes(), [0, 10, 2, 11, 4, 12, 6, 13]);
        let fewer = Pixels::U8(Image::from_vec(vec![1, 2], 2, 1, 1).unwrap());
        let floats = Pixels::F32(Image::from_vec(vec![0.0; 4], 2, 1, 2).unwrap());
        assert!(!page.replace(&some, &fewer) && !page.replace(&some, &floats));
        assert_eq!(page.pixels.bytes(), [0, 10, 2, 11, 4, 12, 6, 13]);
    }
}
