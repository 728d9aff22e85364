//! Picture files, one module for each format: reading all pages, and writing.

mod frames;
mod gif;
mod headers;
pub(crate) mod io;
mod jpeg;
pub(crate) mod options;
mod other;
mod png;
mod png_chunks;
mod raw;
mod segments;
mod tags;
mod tiff;
mod tiff_write;
mod webp;

use image::ImageFormat;

use self::io::{Result, Source, no_page};
use self::options::Reading;
use crate::picture::Document;

pub(crate) use other::{Encoded, write as write_other};
pub(crate) use png_chunks::fits as fits_png;
pub(crate) use segments::{
    MOST_EXIF as MOST_EXIF_OF_JPEG, MOST_XMP as MOST_XMP_OF_JPEG, fits as fits_jpeg,
};
pub(crate) use tiff::{Strips, strips as tiff_strips};
pub(crate) use tiff_write::{
    Described, TakeRows, write as write_tiff, write_rows as write_tiff_rows,
};
pub(crate) use {gif::write as write_gif, jpeg::write as write_jpeg, png::write as write_png};
pub(crate) use {raw::write as write_raw, webp::write as write_webp};

type Result<T, E = String> = std::result::Result<T, E>;

/// The input of a decoder.
pub(crate) trait Source: BufRead + Seek {}
impl<R: BufRead + Seek> Source for R {}

/// The output of an encoder.
pub(crate) trait Sink: Write + Seek + Send {}
impl<W: Write + Seek + Send> Sink for W {}

/// How files are read.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Reading {
    /// Read files without a header: rows of pixels of this size, with interleaved channels; TYPE is
    /// u8, u16 or f32 [default: u8]
    #[arg(long, value_name = "WxHxC[:TYPE]", value_parser = Raw::parse, help_heading = "Files")]
    pub(crate) raw: Option<Raw>,

    /// Axes of arrays: y are rows, x columns, z slices and c channels [default: by shape]
    #[arg(long, value_name = "AXES", help_heading = "Files")]
    pub(crate) axes: Option<crate::npy::Axes>,

    /// Take this page, frame or slice alone, counted from 1 [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Files")]
    pub(crate) page: Option<u32>,

    /// Keep what can be read of a file that is damaged or cut off, and say so
    #[arg(long, help_heading = "Files")]
    pub(crate) lenient: bool,

    /// Rotate and mirror the pixels as the picture is to be shown
    #[arg(long, help_heading = "Files")]
    pub(crate) auto_orient: bool,

    #[command(flatten)]
    pub(crate) limits: Limits,
}

/// How files are written.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Writing {
    /// Quality of JPEG output [default: 90]
    #[arg(long, value_name = "1-100", value_parser = clap::value_parser!(u8).range(1..=100), help_heading = "Files")]
    pub(crate) quality: Option<u8>,

    /// Colour of JPEG output: 444 at full resolution, 422 at half of the width, 420 at half of both
    /// [default: as a JPEG input, else 444]
    #[arg(long, value_name = "KIND", help_heading = "Files")]
    pub(crate) subsampling: Option<Subsampling>,

    /// Compression of TIFF output, without loss [default: none]
    #[arg(long, value_name = "KIND", help_heading = "Files")]
    pub(crate) compression: Option<Compression>,
}

/// The lossless compression of a TIFF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Compression {
    None,
    Lzw,
    #[value(alias = "zip")]
    Deflate,
    Packbits,
}

/// Reads a file. The content tells the format; if it does not, the extension does.
pub(crate) fn read(
    source: &mut dyn Source,
    extension: Option<&str>,
    options: &Reading,
) -> Result<Document> {
    let document = pages(source, extension, options)?;
    if options.auto_orient {
        document.map(|page| page.upright().map_err(|error| error.to_string()))
    } else {
        Ok(document)
    }
}

fn pages(source: &mut dyn Source, extension: Option<&str>, options: &Reading) -> Result<Document> {
    if let Some(raw) = options.raw {
        return only(raw::read(source, raw, &options.limits)?.into(), options);
    }
    let mut start = [0; 16];
    let mut len = 0;
    while let read @ 1.. = source.read(&mut start[len..]).map_err(|error| error.to_string())? {
        len += read;
    }
    source.rewind().map_err(|error| error.to_string())?;
    let named_npy = extension.is_some_and(|extension| extension.eq_ignore_ascii_case("npy"));
    match &start[..len] {
        start if named_npy || crate::npy::is_npy(start) => {
            return crate::npy::read_document(source, options);
        }
        [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => {
            return tiff::read(source, options);
        }
        _ => {}
    }
    let format =
        image::guess_format(&start[..len]).ok().or_else(|| ImageFormat::from_extension(extension?));
    match format {
        Some(ImageFormat::Jpeg) => only(jpeg::read(source, options)?, options),
        Some(ImageFormat::Png) => png::read(source, options),
        Some(ImageFormat::Gif) => gif::read(source, options),
        Some(ImageFormat::WebP) => webp::read(source, options),
        Some(ImageFormat::Tiff) => tiff::read(source, options),
        Some(format) => only(other::read(source, format, options)?, options),
        None => Err("neither the content nor the name tells a picture format; \
            for a file without a header, give its size with --raw WxHxC"
            .to_owned()),
    }
}

/// Refuses a page number above 1 for a file of one picture.
fn only(document: Document, options: &Reading) -> Result<Document> {
    match options.page {
        Some(page @ 2..) => Err(no_page(page, 1)),
        _ => Ok(document),
    }
}

fn no_page(page: u32, pages: usize) -> String {
    format!("there is no page {page}: the file has {pages}")
}

/// Collects the pages of a file, with the limits applied to all of them together.
struct Pages<'a> {
    options: &'a Reading,
    found: usize,
    bytes: u64,
    kept: Vec<Picture>,
}

impl<'a> Pages<'a> {
    fn new(options: &'a Reading) -> Self {
        Self { options, found: 0, bytes: 0, kept: Vec::new() }
    }

    /// Whether the user asks for the next page.
    fn wants(&self) -> bool {
        self.options.page.is_none_or(|page| self.found + 1 == page as usize)
    }

    /// Checks the next page's size before its memory is allocated.
    fn check(&self, width: u64, height: u64, bytes_per_pixel: u64) -> Result<()> {
        self.options.limits.check(width, height, bytes_per_pixel)?;
        let bytes =
            width.saturating_mul(height).saturating_mul(bytes_per_pixel).saturating_add(self.bytes);
        if bytes > self.options.limits.max_bytes && self.wants() {
            return Err(format!(
                "{} pages take {bytes} bytes; {}, or choose one with --page",
                self.found + 1,
                self.options.limits.advice()
            ));
        }
        Ok(())
    }

    /// Takes the next page, if the user asks for it.
    fn push(&mut self, page: Picture) {
        if self.wants() {
            self.bytes += page.pixels.bytes().len() as u64;
            self.kept.push(page);
        }
        self.found += 1;
    }

    /// Counts a page that the user does not ask for.
    fn skip(&mut self) {
        self.found += 1;
    }

    /// Whether the user asks for none of the pages that follow.
    fn done(&self) -> bool {
        self.options.page.is_some_and(|page| self.found >= page as usize)
    }

    /// All pages, and the number of loops of an animation. `failed` says why reading stopped.
    fn finish(self, plays: Option<u32>, failed: Option<String>) -> Result<Document> {
        let note = match failed {
            Some(reason) if !self.options.lenient => return Err(damaged(&reason)),
            Some(reason) if self.kept.is_empty() => return Err(reason),
            Some(reason) => Some(format!("only {} pages could be read: {reason}", self.kept.len())),
            None => None,
        };
        if let Some(page) = self.options.page.filter(|_| self.kept.is_empty()) {
            return Err(no_page(page, self.found));
        }
        if self.kept.is_empty() {
            return Err("the file holds no picture".to_owned());
        }
        let mut document = Document::of(self.kept);
        document.notes.extend(note);
        if document.pages.len() > 1 {
            document.plays = plays;
        } else {
            document.pages[0].delay = None;
        }
        Ok(document)
    }
}

/// A decoder's error as a sentence.
fn said(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    match chain.filter_map(|error| error.downcast_ref::<std::io::Error>()).next() {
        Some(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the file is cut off: it ends before the picture does".to_owned()
        }
        _ => error.to_string(),
    }
}

/// The error for a file that could not be read as a whole, with the way out.
fn damaged(reason: &str) -> String {
    format!("{reason}; --lenient keeps what can be read")
}

/// The note for a file that was read in part.
fn kept_in_part(reason: &str) -> String {
    format!("only a part of the picture was read: {reason}")
}

/// Memory for `len` values. The allocation may fail.
fn zeroes<P: bytemuck::Zeroable + Clone>(len: usize) -> Result<Vec<P>> {
    let mut values: Vec<P> = Vec::new();
    values.try_reserve_exact(len).map_err(|_| format!("{len} values do not fit in memory"))?;
    values.resize(len, P::zeroed());
    Ok(values)
}

fn image_of<P: Number>(
    values: Vec<P>,
    width: u32,
    height: u32,
    channels: usize,
) -> Result<Image<P>> {
    Image::from_vec(values, width as usize, height as usize, channels)
        .map_err(|error| error.to_string())
}

/// A number type that is read as f64 and can be written again.
pub(crate) trait Wide: bytemuck::Pod + Number {
    const STORED: Stored;
}

macro_rules! wide {
    ($($number:ident $stored:ident;)*) => { $(
        impl Wide for $number {
            const STORED: Stored = Stored::$stored;
        }
    )* };
}

wide! {
    i8 I8;
    i16 I16;
    i32 I32;
    i64 I64;
    u32 U32;
    u64 U64;
    f64 F64;
}

/// Values as f64, without rounding.
pub(crate) fn widened<N: Wide>(values: &[N]) -> Result<Vec<f64>> {
    if let Some(value) = values.iter().find(|value| !value.is_exact()) {
        return Err(format!(
            "a value is {value:?}: {} is filtered in f64, which holds integers up to {} (2^53); convert the values to f64 if they may be rounded",
            N::NAME,
            N::GREATEST_EXACT
        ));
    }
    let mut result = zeroes::<f64>(values.len())?;
    result.iter_mut().zip(values).for_each(|(to, from)| *to = from.to_f64());
    Ok(result)
}
