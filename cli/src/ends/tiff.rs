//! Where a TIFF ends: after the last byte that one of its directories names.

use std::collections::HashSet;
use std::io::{self, Read, Seek, SeekFrom};

/// Maximum number of directories to read: more than any file has. The limit also ends cycles.
const LIMIT: usize = 1 << 16;

/// Maximum number of values to read of one list of offsets or lengths.
const MAX_VALUES: u64 = 1 << 24;

/// An open TIFF.
struct Tiff<'a, R> {
    file: &'a mut R,
    little: bool,
    /// Whether offsets have 8 bytes (BigTIFF).
    big: bool,
    /// The largest end found so far, in bytes.
    end: u64,
}

/// One entry of a directory.
struct Entry {
    tag: u64,
    kind: u64,
    count: u64,
    /// The file offset of the values.
    at: u64,
}

/// The end of a TIFF with all pages, thumbnails and metadata, in bytes from its start.
pub(super) fn end(file: &mut (impl Read + Seek)) -> io::Result<u64> {
    let mut start = [0; 4];
    file.rewind()?;
    file.read_exact(&mut start)?;
    let little = start[0] == b'I';
    let big = start.contains(&43);
    let mut tiff = Tiff { file, little, big, end: if big { 16 } else { 8 } };
    let first = if big { tiff.number(8, 8)? } else { tiff.number(4, 4)? };
    let (mut open, mut seen) = (vec![first], HashSet::new());
    while let Some(at) = open.pop() {
        if at == 0 || !seen.insert(at) {
            continue;
        }
        if seen.len() > LIMIT {
            return Err(io::Error::other("too many directories"));
        }
        tiff.directory(at, &mut open)?;
    }
    Ok(tiff.end)
}

impl<R: Read + Seek> Tiff<'_, R> {
    fn number(&mut self, at: u64, bytes: usize) -> io::Result<u64> {
        let mut number = [0; 8];
        self.file.seek(SeekFrom::Start(at))?;
        self.file.read_exact(&mut number[..bytes])?;
        self.end = self.end.max(at + bytes as u64);
        Ok(self.joined(&number[..bytes]))
    }

    /// Joins bytes to a number in the file's byte order.
    fn joined(&self, digits: &[u8]) -> u64 {
        let add = |sum: u64, &byte: &u8| sum << 8 | u64::from(byte);
        if self.little { digits.iter().rev().fold(0, add) } else { digits.iter().fold(0, add) }
    }

    fn reaches(&mut self, at: u64, length: u64) {
        if length > 0 {
            self.end = self.end.max(at.saturating_add(length));
        }
    }

    /// Reads a directory, and adds the directories that it points to.
    fn directory(&mut self, at: u64, open: &mut Vec<u64>) -> io::Result<()> {
        let (count_bytes, entry_bytes, word) = if self.big { (8, 20, 8) } else { (2, 12, 4) };
        let count = self.number(at, count_bytes)?;
        let first = at + count_bytes as u64;
        // Offsets and lengths of strips, of tiles, and of the parts of an old JPEG.
        let (mut offsets, mut lengths): ([Vec<u64>; 3], [Vec<u64>; 3]) = Default::default();
        for index in 0..count.min(1 << 16) {
            let entry = self.entry(first + index * entry_bytes)?;
            match entry.tag {
                273 => offsets[0] = self.values(&entry)?,
                279 => lengths[0] = self.values(&entry)?,
                324 => offsets[1] = self.values(&entry)?,
                325 => lengths[1] = self.values(&entry)?,
                513 => offsets[2] = self.values(&entry)?,
                514 => lengths[2] = self.values(&entry)?,
                // Smaller pictures, Exif data, GPS data and the directory within the Exif data.
                330 | 34665 | 34853 | 40965 => open.extend(self.values(&entry)?),
                _ => {}
            }
        }
        for (offset, length) in offsets.iter().flatten().zip(lengths.iter().flatten()) {
            self.reaches(*offset, *length);
        }
        let next = self.number(first.saturating_add(count.saturating_mul(entry_bytes)), word)?;
        open.push(next);
        Ok(())
    }

    fn entry(&mut self, at: u64) -> io::Result<Entry> {
        let (word, inline) = if self.big { (8, at + 12) } else { (4, at + 8) };
        let (tag, kind) = (self.number(at, 2)?, self.number(at + 2, 2)?);
        let count = self.number(at + 4, word)?;
        let length = count.saturating_mul(size(kind));
        let place = if length > word as u64 { self.number(inline, word)? } else { inline };
        if length > word as u64 {
            self.reaches(place, length);
        }
        Ok(Entry { tag, kind, count, at: place })
    }

    fn values(&mut self, entry: &Entry) -> io::Result<Vec<u64>> {
        let bytes = size(entry.kind);
        if !matches!(bytes, 1 | 2 | 4 | 8) {
            return Ok(Vec::new());
        }
        self.file.seek(SeekFrom::Start(entry.at))?;
        let mut digits = Vec::new();
        (&mut *self.file).take(entry.count.min(MAX_VALUES) * bytes).read_to_end(&mut digits)?;
        Ok(digits.chunks_exact(bytes as usize).map(|digits| self.joined(digits)).collect())
    }
}

/// Size of one value in bytes (TIFF 6.0, page 15, and BigTIFF).
fn size(kind: u64) -> u64 {
    match kind {
        3 | 8 => 2,
        4 | 9 | 11 | 13 => 4,
        5 | 10 | 12 | 16 | 17 | 18 => 8,
        _ => 1,
    }
}
