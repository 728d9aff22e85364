//! What decoders and encoders share: where bytes come from and go, pages, and errors as sentences.

use std::io::{BufRead, Seek, Write};

use apron::{Image, Number};

use super::options::Reading;
use crate::picture::{Document, Picture, Stored};

pub(crate) type Result<T, E = String> = std::result::Result<T, E>;

/// The input of a decoder.
pub(crate) trait Source: BufRead + Seek {}
impl<R: BufRead + Seek> Source for R {}

/// The output of an encoder.
pub(crate) trait Sink: Write + Seek + Send {}
impl<W: Write + Seek + Send> Sink for W {}

pub(crate) fn no_page(page: u32, pages: usize) -> String {
    format!("there is no page {page}: the file has {pages}")
}

/// Collects the pages of a file, with the limits applied to all of them together.
pub(crate) struct Pages<'a> {
    pub(crate) options: &'a Reading,
    pub(crate) found: usize,
    bytes: u64,
    kept: Vec<Picture>,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(options: &'a Reading) -> Self {
        Self { options, found: 0, bytes: 0, kept: Vec::new() }
    }

    /// Whether the user asks for the next page.
    pub(crate) fn wants(&self) -> bool {
        self.options.page.is_none_or(|page| self.found + 1 == page as usize)
    }

    /// Checks the next page's size before its memory is allocated.
    pub(crate) fn check(&self, width: u64, height: u64, bytes_per_pixel: u64) -> Result<()> {
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
    pub(crate) fn push(&mut self, page: Picture) {
        if self.wants() {
            self.bytes += page.pixels.bytes().len() as u64;
            self.kept.push(page);
        }
        self.found += 1;
    }

    /// Counts a page that the user does not ask for.
    pub(crate) fn skip(&mut self) {
        self.found += 1;
    }

    /// Whether the user asks for none of the pages that follow.
    pub(crate) fn done(&self) -> bool {
        self.options.page.is_some_and(|page| self.found >= page as usize)
    }

    /// All pages, and the number of loops of an animation. `failed` says why reading stopped.
    pub(crate) fn finish(self, plays: Option<u32>, failed: Option<String>) -> Result<Document> {
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
pub(crate) fn said(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    match chain.filter_map(|error| error.downcast_ref::<std::io::Error>()).next() {
        Some(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the file is cut off: it ends before the picture does".to_owned()
        }
        _ => error.to_string(),
    }
}

/// The error for a file that could not be read as a whole, with the way out.
pub(crate) fn damaged(reason: &str) -> String {
    format!("{reason}; --lenient keeps what can be read")
}

/// The note for a file that was read in part.
pub(crate) fn kept_in_part(reason: &str) -> String {
    format!("only a part of the picture was read: {reason}")
}

/// Memory for `len` values. The allocation may fail.
pub(crate) fn zeroes<P: bytemuck::Zeroable + Clone>(len: usize) -> Result<Vec<P>> {
    let mut values: Vec<P> = Vec::new();
    values.try_reserve_exact(len).map_err(|_| format!("{len} values do not fit in memory"))?;
    values.resize(len, P::zeroed());
    Ok(values)
}

pub(crate) fn image_of<P: Number>(
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
