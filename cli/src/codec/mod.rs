//! Picture files, one module for each format: reading all pages, and writing.

mod exr;
mod frames;
mod gif;
mod headers;
pub(crate) mod io;
mod jpeg;
pub(crate) mod options;
mod other;
mod png;
mod png_chunks;
mod pnm;
mod raw;
mod segments;
mod tags;
mod tiff;
mod tiff_edit;
mod tiff_page;
mod tiff_write;
mod webp;

use image::ImageFormat;

use self::io::{Result, Source, no_page};
use self::options::Reading;
use crate::picture::Document;
use crate::video;

pub(crate) use self::exr::{sample_type, write as write_exr};
pub(crate) use io::zeroes;
pub(crate) use other::{Encoded, write as write_other};
pub(crate) use png_chunks::fits as fits_png;
pub(crate) use pnm::{Netpbm, write as write_pnm};
pub(crate) use segments::{
    MAX_EXIF as MAX_EXIF_OF_JPEG, MAX_XMP as MAX_XMP_OF_JPEG, fits as fits_jpeg,
};
pub(crate) use tiff::{Strips, strips as tiff_strips};
pub(crate) use tiff_write::{
    Described, TakeRows, write as write_tiff, write_rows as write_tiff_rows,
};
pub(crate) use {gif::write as write_gif, jpeg::write as write_jpeg, png::write as write_png};
pub(crate) use {raw::write as write_raw, webp::write as write_webp};

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
        start if pnm::is_pfm(start) => return only(pnm::read_pfm(source, options)?, options),
        start if start.starts_with(video::MAGIC) => return Err(video::not_a_picture()),
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
        Some(ImageFormat::OpenExr) => only(exr::read(source, options)?, options),
        Some(format) => only(other::read(source, format, options)?, options),
        None => Err("neither the content nor the name identifies a picture format; \
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
