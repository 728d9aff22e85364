//! Files without a header: values alone, in this machine's byte order.

use apron::{Shape, with_pixels};

use super::io::{Result, Sink, Source, image_of, zeroes};
use super::options::Raw;
use crate::limits::Limits;
use crate::picture::{Document, Picture, Pixels};

pub(super) fn read(source: &mut dyn Source, raw: Raw, limits: &Limits) -> Result<Picture> {
    let Raw { shape: Shape { width, height, channels }, scalar } = raw;
    let bytes_per_pixel = (channels * scalar.bytes()) as u64;
    limits.check(width as u64, height as u64, bytes_per_pixel)?;
    let expected = raw.bytes();
    let found = source.seek(std::io::SeekFrom::End(0)).map_err(|error| error.to_string())?;
    source.rewind().map_err(|error| error.to_string())?;
    if found != expected {
        let bits = 8 * scalar.bytes();
        return Err(format!(
            "{width}x{height}x{channels} pixels of {bits} bits are {expected} bytes, the file has {found}"
        ));
    }
    let count = usize::try_from(expected)
        .map_err(|_| format!("{width}x{height} pixels do not fit in memory"))?
        / scalar.bytes();
    let (w, h) = (width as u32, height as u32);
    let pixels = with_pixels!(scalar, P => {
        Pixels::from(image_of(values::<P>(source, count)?, w, h, channels)?)
    });
    Ok(Picture::new(pixels))
}

fn values<P: bytemuck::Pod>(source: &mut dyn Source, count: usize) -> Result<Vec<P>> {
    let mut values = zeroes::<P>(count)?;
    source.read_exact(bytemuck::cast_slice_mut(&mut values)).map_err(|error| error.to_string())?;
    Ok(values)
}

pub(crate) fn write(document: &Document, out: &mut dyn Sink) -> Result<()> {
    out.write_all(document.first().pixels.bytes()).map_err(|error| error.to_string())
}
