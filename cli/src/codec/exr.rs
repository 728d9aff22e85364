//! OpenEXR: every part, layer and channel of a file, with its name and its type.
//!
//! A page of the document is what is filtered together: the colours of a layer with their alpha, or
//! one other channel. [`Document::parts`] keeps the headers, so that a file is written as it was:
//! attributes, windows, tiles or scan lines, compression.

use std::collections::HashMap;

use apron::threads::{self, Effort};
use apron::{Extra, Image, Number, Scalar, Shape};
use bytemuck::Pod;
use exr::block::chunk::Chunk;
use exr::block::lines::{LineRef, LineRefMut};
use exr::block::reader::ChunksReader;
use exr::block::writer::ChunksWriter;
use exr::block::{self, UncompressedBlock};
use exr::compression::Compression;
use exr::error::{Error, UnitResult};
use exr::image::Encoding;
use exr::math::{RoundingMode, Vec2};
use exr::meta::attribute::{
    ChannelDescription, ChannelList, LevelMode, LineOrder, SampleType, Text, TileDescription,
};
use exr::meta::header::Header;
use exr::meta::{BlockDescription, MetaData};
use half::f16;
use image::ImageFormat;

use super::headers;
use super::io::{Result, Sink, Source, damaged, image_of, kept_in_part, zeroes};
use super::options::Reading;
use crate::carried::{Carried, Kind, printable};
use crate::channels::Named;
use crate::limits::Limits;
use crate::meta::Meta;
use crate::picture::{Document, Picture, Pixels, Stored, each};

pub(super) fn read(source: &mut dyn Source, options: &Reading) -> Result<Document> {
    let mut meta = Meta { is_linear: true, ..Meta::default() };
    headers::read(source, ImageFormat::OpenExr, &mut meta).map_err(|error| error.to_string())?;
    let reader = block::read(&mut *source, false).map_err(|error| said(&error))?;
    let mut parts = reader.headers().to_vec();
    check(&parts, &options.limits)?;
    let (mut pages, places) = blank(&parts)?;
    let failed = reader
        .filter_chunks(false, |_, tile, _| tile.level_index == Vec2(0, 0))
        .and_then(|chunks| {
            blocks(chunks, |meta, block| {
                let channels = &meta.headers[block.index.layer].channels;
                let places = &places[block.index.layer];
                for line in block.lines(channels) {
                    let Place { page, at } = places[line.location.channel];
                    let kind = channels.list[line.location.channel].sample_type;
                    put(&line, kind, &mut pages[page].pixels, at);
                }
            })
        })
        .err()
        .map(|error| said(&error));
    let known: Vec<String> =
        parts[0].all_named_attributes().map(|(name, _)| printable(name)).collect();
    // The header lacks attributes whose values cannot be read.
    meta.carried.iter_mut().filter(|it| !known.contains(&it.name)).for_each(|it| it.value = None);
    parts.iter_mut().for_each(|part| simplify(part, &mut meta));
    pages[0].meta = meta;
    let mut document = Document { parts, slice_axis: false, ..Document::of(pages) };
    match failed {
        Some(reason) if !options.lenient => Err(damaged(&reason)),
        failed => {
            document.notes.extend(failed.map(|reason| kept_in_part(&reason)));
            Ok(document)
        }
    }
}

/// Blocks that threads compress at the same time.
const BATCH: usize = 64;
/// Nanoseconds to compress or decompress a byte: the fastest method.
const BYTE: f64 = 1.0;

/// Decompresses all blocks, on several threads. `take` gets them in the file's order.
fn blocks<C: ChunksReader>(
    mut chunks: C,
    mut take: impl FnMut(&MetaData, &UncompressedBlock),
) -> UnitResult {
    loop {
        let (mut batch, mut failed) = (Vec::with_capacity(BATCH), None);
        for chunk in chunks.by_ref().take(BATCH) {
            match chunk {
                Ok(chunk) => batch.push(chunk),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let last = batch.is_empty();
        let meta = chunks.meta_data();
        let bytes =
            |chunk: &Chunk| meta.headers.get(chunk.layer_index).map(Header::max_block_byte_size);
        let blocks = in_threads(
            batch,
            |chunk| bytes(chunk).unwrap_or(0),
            |chunk| UncompressedBlock::decompress_chunk(chunk, meta, false),
        );
        blocks.into_iter().try_for_each(|block| block.map(|block| take(meta, &block)))?;
        match failed {
            Some(error) => return Err(error),
            None if last => return Ok(()),
            None => {}
        }
    }
}

/// The results of `work` on each job, in order. `bytes` is the size of a job.
fn in_threads<J: Send, R: Send>(
    jobs: Vec<J>,
    bytes: impl Fn(&J) -> usize,
    work: impl Fn(J) -> Result<R, Error> + Sync,
) -> Vec<Result<R, Error>> {
    let bytes: f64 = jobs.iter().map(|job| bytes(job) as f64).sum();
    let mut results: Vec<_> = jobs.iter().map(|_| Err(Error::Aborted)).collect();
    let threads = Effort::of_work(BYTE * bytes).threads_now().min(jobs.len());
    threads::for_each(threads, jobs.into_iter().zip(&mut results), |(): &mut (), (job, result)| {
        *result = work(job);
    });
    results
}

/// An error as a sentence.
fn said(error: &Error) -> String {
    match error {
        // The crate's texts.
        Error::Invalid(what) if what == "reference to missing bytes" => {
            "the file is cut off: it ends before the picture does".to_owned()
        }
        Error::NotSupported(what) if what.contains("deep data") => {
            "deep OpenEXR data, with several samples in a pixel, is not read".to_owned()
        }
        Error::NotSupported(what) if what.contains("subsampling") => {
            "OpenEXR channels with fewer samples than pixels (luma and chroma) are not read"
                .to_owned()
        }
        error => format!("this OpenEXR file is damaged, or cannot be read: {error}"),
    }
}

/// Checks the size of all parts before their memory is allocated.
fn check(parts: &[Header], limits: &Limits) -> Result<()> {
    let mut all = 0u64;
    for part in parts {
        let (width, height) = (part.layer_size.0 as u64, part.layer_size.1 as u64);
        if width == 0 || height == 0 {
            return Err(format!("a part of this OpenEXR file has {width}x{height} pixels"));
        }
        if matches!(part.compression, Compression::HTJ2K32 | Compression::HTJ2K256) {
            return Err("OpenEXR files with HTJ2K compression are not read".to_owned());
        }
        let list = &part.channels.list;
        let bytes = |channel: &ChannelDescription| match channel.sample_type {
            SampleType::U32 => size_of::<f64>() as u64,
            SampleType::F16 if list.iter().all(|it| it.sample_type == SampleType::F16) => 2,
            SampleType::F16 | SampleType::F32 => 4,
        };
        let bytes: u64 = list.iter().map(bytes).sum();
        limits.check(width, height, bytes)?;
        all = all.saturating_add(width * height * bytes);
    }
    if all > limits.max_bytes {
        return Err(format!("the parts of this file take {all} bytes; {}", limits.advice()));
    }
    Ok(())
}

/// The position of a channel: the page, and the channel's number in it.
#[derive(Clone, Copy, Default)]
struct Place {
    page: usize,
    at: usize,
}

/// Pages of zeros for the channels of all parts, and each part's channels in them.
fn blank(parts: &[Header]) -> Result<(Vec<Picture>, Vec<Vec<Place>>)> {
    let (mut pages, mut places) = (Vec::new(), Vec::new());
    for (part, header) in parts.iter().enumerate() {
        let channels = &header.channels.list;
        let mut of_part = vec![Place::default(); channels.len()];
        let label = header.own_attributes.layer_name.as_ref().filter(|_| parts.len() > 1);
        for group in groups(channels) {
            for (at, &channel) in group.iter().enumerate() {
                of_part[channel] = Place { page: pages.len(), at };
            }
            let members: Vec<_> = group.iter().map(|&channel| &channels[channel]).collect();
            let (width, height) = (header.layer_size.0 as u32, header.layer_size.1 as u32);
            let all = |kind| members.iter().all(|member| member.sample_type == kind);
            let count = width as usize * height as usize * members.len();
            let (pixels, stored) = if all(SampleType::F16) {
                (Pixels::F16(image_of(zeroes(count)?, width, height, members.len())?), None)
            } else if all(SampleType::U32) {
                let image = image_of(zeroes(count)?, width, height, members.len())?;
                (Pixels::F64(image), Some(Stored::U32))
            } else {
                (Pixels::F32(image_of(zeroes(count)?, width, height, members.len())?), None)
            };
            let extras =
                if matches!(group.len(), 2 | 4) { vec![Extra::Premultiplied] } else { vec![] };
            let named = |channel: &&ChannelDescription| Named {
                part,
                label: label.map(Text::to_string),
                channel: (*channel).clone(),
            };
            let named = members.iter().map(named).collect();
            pages.push(Picture { extras, stored, named, ..Picture::new(pixels) });
        }
        places.push(of_part);
    }
    Ok((pages, places))
}

/// The channels that are filtered together: red, green and blue, or luminance, of one layer with
/// its alpha, and every other channel by itself. A layer is the part of a name before its last dot.
fn groups(channels: &[ChannelDescription]) -> Vec<Vec<usize>> {
    let names: Vec<String> = channels.iter().map(|channel| channel.name.to_string()).collect();
    let float = |&at: &usize| channels[at].sample_type != SampleType::U32;
    let by_name: HashMap<&str, usize> =
        names.iter().enumerate().map(|(at, name)| (&**name, at)).collect();
    let mut taken = vec![false; channels.len()];
    let mut groups = Vec::new();
    for (at, name) in names.iter().enumerate() {
        if taken[at] {
            continue;
        }
        let (layer, own) = name.split_at(name.rfind('.').map_or(0, |dot| dot + 1));
        let find = |own: &str| by_name.get(&*format!("{layer}{own}")).copied().filter(float);
        let colours = |own: &[&str]| own.iter().map(|own| find(own)).collect::<Option<Vec<_>>>();
        let alone = || Some(vec![at]);
        let mut group = match own {
            "R" | "G" | "B" => colours(&["R", "G", "B"]).or_else(alone),
            "A" => colours(&["R", "G", "B"]).or_else(|| colours(&["Y"])).or_else(alone),
            "Y" if find("R").is_none() => colours(&["Y"]).or_else(alone),
            _ => alone(),
        }
        .unwrap_or_default();
        let has_colours = group != [at] || own == "Y" && float(&at);
        group.extend(find("A").filter(|alpha| has_colours && !group.contains(alpha)));
        if group.iter().any(|&member| taken[member]) || !group.contains(&at) {
            group = vec![at];
        }
        group.iter().for_each(|&member| taken[member] = true);
        groups.push(group);
    }
    groups
}

/// Drops what is untrue of the result from a part's header, and names it.
fn simplify(part: &mut Header, meta: &mut Meta) {
    let mut leave_out = |what: &str| {
        if !meta.carried.iter().any(|it| it.name == what) {
            meta.carried.push(Carried::left_out(Kind::Phrase, what));
        }
    };
    if part.own_attributes.preview.take().is_some() {
        leave_out("the preview");
    }
    let mut blocks = part.blocks;
    if let BlockDescription::Tiles(TileDescription { level_mode, .. }) = &mut blocks
        && *level_mode != LevelMode::Singular
    {
        *level_mode = LevelMode::Singular;
        leave_out("the smaller versions of the picture (mip maps)");
    }
    let order = match (blocks, part.line_order) {
        (BlockDescription::ScanLines, LineOrder::Unspecified) => LineOrder::Increasing,
        (_, order) => order,
    };
    *part = part.clone().with_encoding(part.compression, blocks, order);
}

/// Puts a line of one channel into the pixels.
fn put(line: &LineRef<'_>, kind: SampleType, pixels: &mut Pixels, at: usize) {
    let from = line.value;
    let Vec2(x, y) = line.location.position;
    match (pixels, kind) {
        (Pixels::F16(image), SampleType::F16) => {
            scatter(image, (x, y, at), from, f16::from_ne_bytes)
        }
        (Pixels::F32(image), SampleType::F32) => {
            scatter(image, (x, y, at), from, f32::from_ne_bytes)
        }
        (Pixels::F32(image), SampleType::F16) => {
            scatter(image, (x, y, at), from, |bytes| f16::from_ne_bytes(bytes).to_f32())
        }
        (Pixels::F64(image), SampleType::U32) => {
            scatter(image, (x, y, at), from, |bytes| u32::from_ne_bytes(bytes).into())
        }
        _ => unreachable!("a page has the type of its channels"),
    }
}

fn scatter<P: Number, const N: usize>(
    image: &mut Image<P>,
    (x, y, at): (usize, usize, usize),
    from: &[u8],
    value: impl Fn([u8; N]) -> P,
) {
    let Shape { width, channels, .. } = image.shape();
    let start = (y * width + x) * channels + at;
    let to = image.as_mut_slice()[start..].iter_mut().step_by(channels);
    to.zip(from.as_chunks::<N>().0).for_each(|(to, &bytes)| *to = value(bytes));
}

/// Fills a line with one channel of the pixels.
fn take(line: LineRefMut<'_>, kind: SampleType, pixels: &Pixels, at: usize) {
    let Vec2(x, y) = line.location.position;
    let place = (x, y, at);
    match (pixels, kind) {
        (Pixels::F16(image), SampleType::F16) => gather(image, place, line.value, f16::to_ne_bytes),
        (Pixels::F32(image), SampleType::F32) => gather(image, place, line.value, f32::to_ne_bytes),
        (Pixels::F32(image), SampleType::F16) => {
            gather(image, place, line.value, |value| f16::from_f32(value).to_ne_bytes())
        }
        (pixels, kind) => each!(pixels, image => match kind {
            SampleType::U32 => gather(image, place, line.value, |value| {
                u32::from_f64(value.to_f64()).to_ne_bytes()
            }),
            SampleType::F16 => gather(image, place, line.value, |value| {
                f16::from_f64(value.to_f64()).to_ne_bytes()
            }),
            SampleType::F32 => gather(image, place, line.value, |value| {
                (value.to_f64() as f32).to_ne_bytes()
            }),
        }),
    }
}

fn gather<P: Number + Pod, const N: usize>(
    image: &Image<P>,
    (x, y, at): (usize, usize, usize),
    to: &mut [u8],
    bytes: impl Fn(P) -> [u8; N],
) {
    let Shape { width, channels, .. } = image.shape();
    let from = image.as_slice()[(y * width + x) * channels + at..].iter().step_by(channels);
    to.as_chunks_mut::<N>().0.iter_mut().zip(from).for_each(|(to, &value)| *to = bytes(value));
}

/// The type of the samples of a new channel, or of one whose type changes.
pub(crate) fn sample_type(scalar: Scalar, stored: Option<Stored>) -> SampleType {
    match (stored, scalar) {
        (Some(Stored::U32), _) => SampleType::U32,
        (_, Scalar::F16) => SampleType::F16,
        _ => SampleType::F32,
    }
}

/// The channels of a page that comes from another format, by their number.
fn new_channels(page: &Picture) -> Vec<Named> {
    let names: &[&str] = match page.pixels.shape().channels {
        1 => &["Y"],
        2 => &["Y", "A"],
        3 => &["R", "G", "B"],
        _ => &["R", "G", "B", "A"],
    };
    let kind = sample_type(page.pixels.scalar(), page.stored);
    let named = |name: &&str| Named {
        part: 0,
        label: None,
        channel: ChannelDescription::named(*name, kind),
    };
    names.iter().map(named).collect()
}

/// Writes all parts, with the channels that the pages have.
pub(crate) fn write(document: &Document, out: &mut dyn Sink) -> Result<()> {
    let mut parts = document.parts.clone();
    if parts.is_empty() {
        let Shape { width, height, .. } = document.first().pixels.shape();
        let Encoding { compression, line_order, .. } = Encoding::FAST_LOSSLESS;
        let tiles = TileDescription {
            tile_size: Vec2(64, 64),
            level_mode: LevelMode::Singular,
            rounding_mode: RoundingMode::Down,
        };
        let mut part = Header::new(Text::from(""), (width, height), Default::default())
            .with_encoding(compression, BlockDescription::Tiles(tiles), line_order);
        part.own_attributes.layer_name = None;
        parts.push(part);
    }
    let mut channels: Vec<Vec<(Named, Place)>> = vec![Vec::new(); parts.len()];
    for (page, picture) in document.pages.iter().enumerate() {
        let named = match &picture.named[..] {
            [] => new_channels(picture),
            named => named.to_vec(),
        };
        for (at, named) in named.into_iter().enumerate() {
            channels[named.part].push((named, Place { page, at }));
        }
    }
    for (part, channels) in parts.iter_mut().zip(&mut channels) {
        // The format asks for this order.
        channels.sort_by(|(a, _), (b, _)| a.channel.name.as_slice().cmp(b.channel.name.as_slice()));
        let list = channels.iter().map(|(named, _)| named.channel.clone()).collect();
        part.channels = ChannelList::new(list);
    }
    block::write(out, parts.into_iter().collect(), false, |meta, writer| {
        let mut blocks = meta.collect_ordered_blocks(|index| {
            let (header, places) = (&meta.headers[index.layer], &channels[index.layer]);
            UncompressedBlock::from_lines(&header.channels, index, |line| {
                let (named, place) = &places[line.location.channel];
                let pixels = &document.pages[place.page].pixels;
                take(line, named.channel.sample_type, pixels, place.at);
            })
        });
        loop {
            let batch: Vec<_> = blocks.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return Ok(());
            }
            let chunks = in_threads(
                batch,
                |(_, block)| block.data.len(),
                |(number, block)| Ok((number, block.compress_to_chunk(&meta.headers)?)),
            );
            for chunk in chunks {
                let (number, chunk) = chunk?;
                writer.write_chunk(number, chunk)?;
            }
        }
    })
    .map_err(|error| match error {
        Error::Io(error) => error.to_string(),
        error => format!("the OpenEXR file cannot be written: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use exr::image::{AnyChannel, AnyChannels, FlatSamples, Layer, Levels, write::WritableImage};
    use exr::meta::header::LayerAttributes;

    use super::*;

    fn grouped(names: &[(&str, SampleType)]) -> Vec<Vec<String>> {
        let channels: Vec<_> =
            names.iter().map(|&(name, kind)| ChannelDescription::named(name, kind)).collect();
        let name = |at: usize| channels[at].name.to_string();
        groups(&channels).into_iter().map(|it| it.into_iter().map(name).collect()).collect()
    }

    #[test]
    fn colours_of_a_layer_are_one_picture() {
        use SampleType::{F16, F32, U32};
        let all = |kind, names: &str| -> Vec<Vec<String>> {
            grouped(&names.split(' ').map(|name| (name, kind)).collect::<Vec<_>>())
        };
        assert_eq!(all(F16, "A B G R Z"), [&["R", "G", "B", "A"][..], &["Z"]]);
        assert_eq!(all(F32, "A Y a.A a.Y"), [["Y", "A"], ["a.Y", "a.A"]]);
        assert_eq!(all(F32, "A B G"), [["A"], ["B"], ["G"]]);
        assert_eq!(
            all(F32, "N.X N.Y N.Z d.e.B d.e.G d.e.R"),
            [&["N.X"][..], &["N.Y"], &["N.Z"], &["d.e.R", "d.e.G", "d.e.B"]]
        );
        // Numbers are no colours, and only alpha as a number is left out of its layer.
        assert_eq!(all(U32, "A B G R"), [["A"], ["B"], ["G"], ["R"]]);
        assert_eq!(
            grouped(&[("A", U32), ("B", F16), ("G", F32), ("R", F16)]),
            [&["A"][..], &["R", "G", "B"]]
        );
        // A damaged file may name a channel twice.
        assert_eq!(all(F16, "B B G R").into_iter().flatten().count(), 4);
    }

    #[test]
    fn smaller_versions_are_left_out_and_named() {
        let values = |size: usize| FlatSamples::F16(vec![f16::ONE; size * size]);
        let levels = Levels::Mip {
            rounding_mode: RoundingMode::Down,
            level_data: [32, 16, 8, 4, 2, 1].map(values).to_vec(),
        };
        let channels = AnyChannels::sort([AnyChannel::new("Z", levels)].into_iter().collect());
        let encoding = Encoding::FAST_LOSSLESS;
        let layer = Layer::new((32, 32), LayerAttributes::default(), encoding, channels);
        let mut file = std::io::Cursor::new(Vec::new());
        exr::image::Image::from_layer(layer).write().to_buffered(&mut file).unwrap();
        file.set_position(0);
        let document = super::read(&mut file, &Reading::default()).unwrap();
        let one = Image::from_vec(vec![f16::ONE; 32 * 32], 32, 32, 1).unwrap();
        assert_eq!(document.first().pixels, Pixels::F16(one));
        let [left] = &document.first().meta.carried[..] else { panic!("{:?}", document.pages) };
        assert!(left.name.contains("mip maps") && left.value.is_none());
        let mut again = std::io::Cursor::new(Vec::new());
        write(&document, &mut again).unwrap();
        again.set_position(0);
        let read = super::read(&mut again, &Reading::default()).unwrap();
        assert_eq!(read.first().pixels, document.first().pixels);
        assert_eq!((&read.parts, &read.first().meta.carried[..]), (&document.parts, &[][..]));
    }
}
