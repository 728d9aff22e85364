//! TIFFs that the decoder does not read, in a form that it reads.
//!
//! In an [`Edited`] file, entries of a directory are replaced, and more data follows its end. So
//! extra samples are read as bands, palettes as grey levels, samples of 12 bits as bytes, and LZMA
//! and Zstandard as uncompressed data.

use std::io::{self, Read, Seek, SeekFrom};

use ::tiff::TiffResult;
use ::tiff::decoder::Decoder;
use ::tiff::tags::{ByteOrder, CompressionMethod, IfdPointer, Tag};
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

use super::io::Source;

pub(super) type Tiff<'a> = Decoder<Edited<'a>>;

/// A file with edits.
pub(super) struct Edited<'a> {
    source: &'a mut dyn Source,
    /// The file's length, in bytes.
    length: u64,
    /// The position of the next read.
    at: u64,
    /// Positions in the file, and the bytes that replace those there.
    patches: Vec<(u64, Vec<u8>)>,
    /// Data behind the file's end.
    behind: Vec<u8>,
}

impl<'a> Edited<'a> {
    pub(super) fn new(source: &'a mut dyn Source) -> io::Result<Self> {
        let length = source.seek(SeekFrom::End(0))?;
        source.rewind()?;
        Ok(Self { source, length, at: 0, patches: Vec::new(), behind: Vec::new() })
    }
}

impl Read for Edited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(start) = self.at.checked_sub(self.length) {
            let start = usize::try_from(start).unwrap_or(usize::MAX);
            let read = self.behind.get(start..).unwrap_or_default().read(buffer)?;
            self.at += read as u64;
            return Ok(read);
        }
        let read = self.source.read(buffer)?;
        for (start, bytes) in &self.patches {
            for (place, &byte) in (*start..).zip(bytes) {
                let to = place.checked_sub(self.at).and_then(|place| usize::try_from(place).ok());
                if let Some(to) = to.and_then(|to| buffer[..read].get_mut(to)) {
                    *to = byte;
                }
            }
        }
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Edited<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let end = self.length + self.behind.len() as u64;
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => end.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = target.ok_or(io::ErrorKind::InvalidInput)?;
        self.source.seek(SeekFrom::Start(self.at.min(self.length)))?;
        Ok(self.at)
    }
}

/// The change of an entry.
pub(super) enum Edit {
    /// A single number of 16 bits.
    Short(u16),
    /// A single number of 32 bits.
    Long(u32),
    /// Offsets or lengths.
    Wide(Vec<u64>),
    /// Nothing reads the entry.
    Hide,
}

impl Edit {
    /// Whether it needs more than 32 bits for offsets if its list begins at this offset.
    fn needs_offsets_beyond(&self, end: u64) -> bool {
        match self {
            Self::Wide(list) => end.saturating_add(4 * list.len() as u64) > u32::MAX.into(),
            _ => false,
        }
    }
}

/// A tag that has no meaning.
const HIDDEN: u16 = 65000;

/// How a file writes numbers.
#[derive(Clone, Copy)]
struct Numbers {
    little: bool,
    /// Bytes of a count and of an offset: 8 in BigTIFF.
    word: usize,
}

impl Numbers {
    fn read(self, bytes: &[u8]) -> u64 {
        let add = |sum, &byte| sum << 8 | u64::from(byte);
        if self.little { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) }
    }

    fn write(self, number: u64, count: usize) -> Vec<u8> {
        if self.little {
            number.to_le_bytes()[..count].to_vec()
        } else {
            number.to_be_bytes()[8 - count..].to_vec()
        }
    }

    /// An entry with a single number of type `kind`, of this many bytes.
    fn single(self, tag: u16, (kind, bytes): (u64, usize), number: u64) -> Vec<u8> {
        let mut value = self.write(number, bytes);
        value.resize(self.word, 0);
        [self.write(tag.into(), 2), self.write(kind, 2), self.write(1, self.word), value].concat()
    }

    /// An entry with several numbers. Those that the entry has no room for go to `behind`, which
    /// begins at `start` of the file.
    fn several(self, tag: u16, numbers: &[u64], (start, behind): (u64, &mut Vec<u8>)) -> Vec<u8> {
        // LONG8, or LONG where the format has no wider type.
        let kind = if self.word == 8 { 16 } else { 4 };
        if let &[number] = numbers {
            return self.single(tag, (kind, self.word), number);
        }
        let place = start + behind.len() as u64;
        behind.extend(numbers.iter().flat_map(|&number| self.write(number, self.word)));
        let count = self.write(numbers.len() as u64, self.word);
        let place = self.write(place, self.word);
        [self.write(tag.into(), 2), self.write(kind, 2), count, place].concat()
    }
}

/// Changes entries in the directory of the decoder's page, if they are there.
pub(super) fn edit(decoder: &mut Tiff<'_>, page: usize, edits: &[(Tag, Edit)]) -> TiffResult<()> {
    let Some(IfdPointer(directory)) = decoder.ifd_pointer() else { return Ok(()) };
    let little = decoder.byte_order() == ByteOrder::LittleEndian;
    let file = decoder.inner();
    file.patches.clear();
    let mut start = [0; 4];
    file.rewind()?;
    file.read_exact(&mut start)?;
    let numbers = Numbers { little, word: 4 };
    let big = numbers.read(&start[2..]) == 43;
    let numbers = Numbers { word: if big { 8 } else { 4 }, ..numbers };
    // A directory is a count and entries. An entry holds a tag, a type, a value count and the
    // values, or their offset.
    let (count, length) = if big { (8, 20) } else { (2, 12) };
    let mut entry = vec![0; count];
    file.seek(SeekFrom::Start(directory))?;
    file.read_exact(&mut entry)?;
    let end = file.length + file.behind.len() as u64;
    if !big && edits.iter().any(|(_, edit)| edit.needs_offsets_beyond(end)) {
        let text =
            "unpacked, this TIFF has more than the 4 GiB of its offsets: make a BigTIFF of it";
        return Err(io::Error::other(text).into());
    }
    let entries = numbers.read(&entry);
    entry.resize(length, 0);
    for index in 0..entries {
        let place = directory + count as u64 + index * length as u64;
        file.seek(SeekFrom::Start(place))?;
        file.read_exact(&mut entry)?;
        let number = numbers.read(&entry[..2]);
        let Some((tag, edit)) = edits.iter().find(|(tag, _)| number == u64::from(tag.to_u16()))
        else {
            continue;
        };
        let tag = tag.to_u16();
        let changed = match edit {
            Edit::Hide => numbers.write(HIDDEN.into(), 2),
            Edit::Short(value) => numbers.single(tag, (3, 2), u64::from(*value)),
            Edit::Long(value) => numbers.single(tag, (4, 4), u64::from(*value)),
            Edit::Wide(values) => numbers.several(tag, values, (file.length, &mut file.behind)),
        };
        file.patches.push((place, changed));
    }
    decoder.seek_to_image(page)
}

/// The compression methods that are undone here. The decoder knows one of them only with a library
/// in C.
const LZMA: u16 = 34925;
const OLD_ZSTD: u16 = 34926;

pub(super) fn is_packed(compression: u16) -> bool {
    [LZMA, OLD_ZSTD, CompressionMethod::ZSTD.to_u16()].contains(&compression)
}

/// The strips or tiles of a page.
pub(super) struct Chunks {
    pub(super) offsets: Vec<u64>,
    pub(super) lengths: Vec<u64>,
    /// The size of each without compression, in bytes.
    pub(super) bytes: Vec<u64>,
    pub(super) compression: u16,
}

/// Unpacks strips or tiles to the end of the file. Returns their offsets there. `most` is the
/// greatest number of bytes for all; a damaged chunk is an error, or with `lenient` black.
pub(super) fn unpacked(
    decoder: &mut Tiff<'_>,
    chunks: &Chunks,
    (most, lenient): (u64, bool),
) -> io::Result<(Vec<u64>, Option<io::Error>)> {
    let all = chunks.bytes.iter().fold(0u64, |sum, &bytes| sum.saturating_add(bytes));
    let file = decoder.inner();
    file.behind = Vec::new();
    if all > most {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let mut failed = None;
    let mut offsets = Vec::with_capacity(chunks.bytes.len());
    for ((&offset, &length), &bytes) in
        chunks.offsets.iter().zip(&chunks.lengths).zip(&chunks.bytes)
    {
        offsets.push(file.length + file.behind.len() as u64);
        file.source.seek(SeekFrom::Start(offset))?;
        let packed = Read::take(&mut *file.source, length);
        let end = file.behind.len() + bytes as usize;
        let read = match chunks.compression {
            LZMA => {
                let kibibytes = u32::try_from(most >> 10).unwrap_or(u32::MAX);
                let mut chunk = XzReader::new_mem_limit(packed, false, kibibytes).take(bytes);
                chunk.read_to_end(&mut file.behind).map(drop)
            }
            _ => StreamingDecoder::new(packed)
                .map_err(io::Error::other)
                .and_then(|chunk| chunk.take(bytes).read_to_end(&mut file.behind).map(drop)),
        };
        let read = read.and_then(|()| {
            let whole = file.behind.len() == end;
            if whole { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        });
        match read {
            Err(error) if !lenient => return Err(error),
            read => failed = failed.or(read.err()),
        }
        file.behind.resize(end, 0);
    }
    Ok((offsets, failed))
}

/// Samples of any number of bits up to 16, in rows that begin at a byte boundary; the first bit of
/// a sample is the highest one. `reversed`: the first bit of a byte is the lowest one.
pub(super) fn samples(row: &[u8], bits: u8, reversed: bool) -> impl Iterator<Item = u16> + '_ {
    let (mut held, mut count) = (0u32, 0);
    let mut bytes = row.iter();
    std::iter::from_fn(move || {
        while count < u32::from(bits) {
            let byte = *bytes.next()?;
            let byte = if reversed { byte.reverse_bits() } else { byte };
            held = held << 8 | u32::from(byte);
            count += 8;
        }
        count -= u32::from(bits);
        Some((held >> count & ((1 << bits) - 1)) as u16)
    })
}

/// The colours of a palette: three lists, for red, green and blue, of one number for each level.
pub(super) struct Palette(Vec<u16>);

impl Palette {
    /// A palette for levels of this many bits.
    pub(super) fn new(map: Vec<u16>, bits: u8) -> Result<Self, String> {
        if map.len() != 3 << bits {
            return Err(format!(
                "the palette of a TIFF with {bits} bits has {} numbers, not {}",
                map.len(),
                3u32 << bits
            ));
        }
        Ok(Self(map))
    }

    /// The colours in 8 bits, if they have no more: some writers fill the lower byte with zeros,
    /// others repeat the upper one or leave the upper one out.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        let all = |is: fn(u16) -> bool| self.0.iter().all(|&number| is(number));
        if all(|number| number < 256) {
            Some(self.0.iter().map(|&number| number as u8).collect())
        } else if all(|number| number & 255 == 0) || all(|number| number % 257 == 0) {
            Some(self.0.iter().map(|&number| (number >> 8) as u8).collect())
        } else {
            None
        }
    }

    /// The colours in 16 bits.
    pub(super) fn words(&self) -> &[u16] {
        &self.0
    }
}

/// The colour of each level.
pub(super) fn coloured<P: Copy>(levels: impl Iterator<Item = u16>, map: &[P]) -> Vec<P> {
    let count = map.len() / 3;
    let colour = |level: u16| {
        let level = usize::from(level).min(count - 1);
        [map[level], map[count + level], map[2 * count + level]]
    };
    levels.flat_map(colour).collect()
}

/// Luma and chroma as a file describes them.
pub(super) struct Luma {
    /// The weights of red, green and blue in luma.
    pub(super) weights: [f64; 3],
    /// For luma, blue and red chroma: the codes of black and white, or of none and all.
    pub(super) codes: [f64; 6],
}

impl Luma {
    pub(super) const DEFAULT: Self =
        Self { weights: [0.299, 0.587, 0.114], codes: [0.0, 255.0, 128.0, 255.0, 128.0, 255.0] };

    /// Converts pixels to RGB (TIFF 6.0, section 21). Values outside of the range are clamped.
    pub(super) fn to_rgb(&self, pixels: &mut [u8]) {
        let [red, green, blue] = self.weights;
        let range = |code: u8, at: usize, range: f64| {
            let (zero, full) = (self.codes[2 * at], self.codes[2 * at + 1]);
            (f64::from(code) - zero) * range / (full - zero)
        };
        for pixel in pixels.as_chunks_mut::<3>().0 {
            let [luma, cb, cr] = *pixel;
            let (luma, cb, cr) = (range(luma, 0, 255.0), range(cb, 1, 127.0), range(cr, 2, 127.0));
            let r = cr * (2.0 - 2.0 * red) + luma;
            let b = cb * (2.0 - 2.0 * blue) + luma;
            let g = (luma - blue * b - red * r) / green;
            *pixel = [r, g, b].map(|value| value.round() as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_any_bits() {
        let row = [0xab, 0xcd, 0xef, 0x12];
        assert_eq!(samples(&row[..3], 12, false).collect::<Vec<_>>(), [0xabc, 0xdef]);
        assert_eq!(samples(&row, 10, false).collect::<Vec<_>>(), [0x2af, 0xde, 0x3c4]);
        assert_eq!(samples(&row[..1], 4, false).collect::<Vec<_>>(), [0xa, 0xb]);
        assert_eq!(samples(&[0xd5], 4, true).collect::<Vec<_>>(), [0xa, 0xb]);
        assert_eq!(samples(&row, 16, false).collect::<Vec<_>>(), [0xabcd, 0xef12]);
    }

    #[test]
    fn palettes_of_eight_and_sixteen_bits() {
        let of = |map: [u16; 6]| Palette::new(map.to_vec(), 1).unwrap();
        assert_eq!(of([0, 255, 1, 2, 3, 4]).bytes().unwrap(), [0, 255, 1, 2, 3, 4]);
        assert_eq!(of([0, 0xff00, 0x100, 0, 0, 0]).bytes().unwrap(), [0, 255, 1, 0, 0, 0]);
        assert_eq!(of([0, 0xffff, 0x101, 0, 0, 0]).bytes().unwrap(), [0, 255, 1, 0, 0, 0]);
        assert_eq!(of([0, 0xffff, 0x100, 0, 0, 0]).bytes(), None);
        assert_eq!(
            coloured([1, 0, 9].into_iter(), &[1, 2, 3, 4, 5, 6]),
            [2, 4, 6, 1, 3, 5, 2, 4, 6]
        );
        assert!(Palette::new(vec![0; 5], 1).is_err());
    }

    #[test]
    fn luma_and_chroma_are_those_of_jpeg() {
        let mut pixels = [255, 128, 128, 0, 128, 128, 76, 85, 255, 150, 44, 21];
        Luma::DEFAULT.to_rgb(&mut pixels);
        assert_eq!(pixels, [255, 255, 255, 0, 0, 0, 254, 0, 0, 0, 255, 1]);
    }
}
