//! Walkers: each skips one picture, from its first byte to its last, without decoding it.
//!
//! A walker asks for no byte after the picture, so that a pipe may pause there. It fails with
//! `UnexpectedEof` if the input ends early, and with `InvalidData` if the bytes break the format's
//! rules.

use std::io::{self, Read, Seek, SeekFrom};

use exr::meta::{BlockDescription, MetaData};
use memchr::memchr;

use super::input::{Bytes, cut_off};
use super::kind::Kind;
use crate::npy;

pub(super) type Walk = fn(&mut dyn Bytes) -> io::Result<()>;

type Walked = io::Result<()>;

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn byte(bytes: &mut dyn Bytes) -> io::Result<u8> {
    let byte = *bytes.fill_buf()?.first().ok_or_else(cut_off)?;
    bytes.consume(1);
    Ok(byte)
}

fn array<const N: usize>(bytes: &mut dyn Bytes) -> io::Result<[u8; N]> {
    let mut array = [0; N];
    bytes.read_exact(&mut array)?;
    Ok(array)
}

/// The product of a header's numbers, saturated.
fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product: u64, &factor| product.saturating_mul(factor))
}

/// Chunks up to `IEND` (PNG specification, 5.3): a length, a name, the data and a checksum.
pub(super) fn png(bytes: &mut dyn Bytes) -> Walked {
    bytes.skip(8)?;
    loop {
        let length = u32::from_be_bytes(array(bytes)?);
        let name: [u8; 4] = array(bytes)?;
        if length > i32::MAX as u32 || !name.iter().all(u8::is_ascii_alphabetic) {
            return Err(broken("a chunk of this PNG is damaged"));
        }
        bytes.skip(u64::from(length) + 4)?;
        if &name == b"IEND" {
            return Ok(());
        }
    }
}

/// Segments with lengths and coded data between them, up to the end marker.
pub(super) fn jpeg(bytes: &mut dyn Bytes) -> Walked {
    loop {
        let there = bytes.fill_buf()?;
        let (count, found) = (there.len(), memchr(0xff, there));
        if count == 0 {
            return Err(cut_off());
        }
        bytes.consume(found.map_or(count, |found| found + 1));
        if found.is_none() {
            continue;
        }
        let mut marker = byte(bytes)?;
        // Fill bytes.
        while marker == 0xff {
            marker = byte(bytes)?;
        }
        match marker {
            0xd9 => return Ok(()),
            // An escaped 0xff, restart markers and the start marker have no length.
            0 | 1 | 0xd0..=0xd8 => {}
            _ => {
                let length = u16::from_be_bytes(array(bytes)?);
                bytes.skip(u64::from(length.saturating_sub(2)))?;
            }
        }
    }
}

/// The offsets at which a JPEG says that further pictures of its own begin, from its first byte.
/// The Multi-Picture Format (CIPA DC-007) stores gain maps, depth maps and previews after the
/// picture's end.
pub(super) fn pictures_behind(jpeg: &mut (impl Read + Seek)) -> io::Result<Vec<u64>> {
    let mut at = 2;
    loop {
        jpeg.seek(SeekFrom::Start(at))?;
        let mut segment = [0; 8];
        jpeg.read_exact(&mut segment)?;
        let length = u64::from(u16::from_be_bytes([segment[2], segment[3]])).max(2);
        match segment {
            [0xff, 0xe2, _, _, b'M', b'P', b'F', 0] => {
                let mut index = Vec::new();
                jpeg.take(length.saturating_sub(6)).read_to_end(&mut index)?;
                return Ok(offsets(&index)
                    .unwrap_or_default()
                    .into_iter()
                    .map(|offset| at + 8 + offset)
                    .collect());
            }
            // The coded data begins.
            [0xff, 0xda | 0xd9, ..] => return Ok(Vec::new()),
            [0xff, ..] => at += 2 + length,
            _ => return Ok(Vec::new()),
        }
    }
}

/// The offsets in an index of the Multi-Picture Format, without the first picture's.
fn offsets(index: &[u8]) -> Option<Vec<u64>> {
    let little = index.starts_with(b"II");
    let word = |at: usize| {
        let word: [u8; 4] = index.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) } as usize)
    };
    let half = |at: usize| {
        let half: [u8; 2] = index.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if little { u16::from_le_bytes(half) } else { u16::from_be_bytes(half) })
    };
    let directory = word(4)?;
    let entries = usize::from(half(directory)?);
    let entry = (0..entries)
        .map(|entry| directory + 2 + 12 * entry)
        .find(|&entry| half(entry) == Some(0xb002))?;
    let (length, table) = (word(entry + 4)?, word(entry + 8)?);
    let offsets = (0..length / 16).map_while(|picture| word(table.checked_add(16 * picture + 8)?));
    Some(offsets.filter(|&offset| offset > 0).map(|offset| offset as u64).collect())
}

/// The header and the rows, of PBM, PGM, PPM, PAM and PFM. In the text forms: the numbers of all
/// pixels, and the white space after the last.
pub(super) fn pnm(bytes: &mut dyn Bytes) -> Walked {
    let [_, form]: [u8; 2] = array(bytes)?;
    if form == b'7' {
        return pam(bytes);
    }
    let (width, height) = (number(bytes)?, number(bytes)?);
    if matches!(form, b'F' | b'f') {
        // The scale: a number, and one byte of white space.
        let mut length = 0;
        while !is_white(byte(bytes)?) {
            length += 1;
            if length > MAX_LINES {
                return Err(broken("the header of this PFM does not end"));
            }
        }
        return bytes.skip(product(&[width, height, if form == b'F' { 12 } else { 4 }]));
    }
    let greatest = if matches!(form, b'1' | b'4') { 1 } else { number(bytes)? };
    let values = product(&[width, height, if matches!(form, b'3' | b'6') { 3 } else { 1 }]);
    match form {
        b'1' => text(bytes, values, true),
        b'2' | b'3' => text(bytes, values, false),
        b'4' => bytes.skip(product(&[width.div_ceil(8), height])),
        _ => bytes.skip(product(&[values, if greatest > 255 { 2 } else { 1 }])),
    }
}

pub(super) fn is_white(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ')
}

/// A header's number and the white space after it. Skips comments before the number.
fn number(bytes: &mut dyn Bytes) -> io::Result<u64> {
    let (mut number, mut found, mut comment) = (0u64, false, false);
    loop {
        match byte(bytes)? {
            b'\r' | b'\n' if comment => comment = false,
            _ if comment => {}
            b'#' => comment = true,
            digit @ b'0'..=b'9' => {
                number = number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
                found = true;
            }
            white if is_white(white) => {}
            _ => return Err(broken("a number is expected in the header of this PNM")),
        }
        // A comment may stand between the digits and the white space after them.
        if found && !comment {
            match bytes.peek(1)?.first().copied() {
                Some(b'0'..=b'9' | b'#') => {}
                Some(white) if is_white(white) => return byte(bytes).map(|_| number),
                Some(_) => {
                    return Err(broken(
                        "no white space follows a number in the header of this PNM",
                    ));
                }
                None => return Err(cut_off()),
            }
        }
    }
}

/// Numbers as text. In bitmaps each digit is one.
fn text(bytes: &mut dyn Bytes, mut values: u64, digits: bool) -> Walked {
    let mut inside = false;
    while values > 0 {
        let byte = match bytes.fill_buf()?.first() {
            // The end of the input also ends the last number.
            None if inside && values == 1 => return Ok(()),
            None => return Err(cut_off()),
            Some(&byte) => byte,
        };
        bytes.consume(1);
        match byte {
            b'0'..=b'9' if digits => values -= 1,
            b'0'..=b'9' => inside = true,
            white if is_white(white) => {
                values -= u64::from(inside);
                inside = false;
            }
            _ => {
                return Err(broken("a pixel of this PNM is not a number"));
            }
        }
    }
    Ok(())
}

/// Maximum size of a PAM's header, in bytes.
const MAX_LINES: usize = 1 << 16;

fn pam(bytes: &mut dyn Bytes) -> Walked {
    let mut numbers = [None::<u64>; 4];
    let mut read = 0;
    loop {
        let mut line = Vec::new();
        loop {
            read += 1;
            match byte(bytes)? {
                b'\n' => break,
                _ if read > MAX_LINES => {
                    return Err(broken("the header of this PAM does not end"));
                }
                byte => line.push(byte),
            }
        }
        let line = String::from_utf8_lossy(&line);
        let (name, value) =
            line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let which = match name {
            "ENDHDR" => break,
            "WIDTH" => 0,
            "HEIGHT" => 1,
            "DEPTH" => 2,
            "MAXVAL" => 3,
            _ => continue,
        };
        numbers[which] = value.trim().parse().ok();
    }
    let [Some(width), Some(height), Some(depth), Some(greatest)] = numbers else {
        return Err(broken("the header of this PAM lacks a number"));
    };
    bytes.skip(product(&[width, height, depth, if greatest > 255 { 2 } else { 1 }]))
}

/// The header and the values.
pub(super) fn array_of_numpy(bytes: &mut dyn Bytes) -> Walked {
    let length = npy::value_bytes(&mut &mut *bytes)?;
    bytes.skip(length)
}

/// The length in the header, but at least the pixels' size: some writers leave the length 0.
pub(super) fn bmp(bytes: &mut dyn Bytes) -> Walked {
    let start: [u8; 18] = array(bytes)?;
    let word = |from: &[u8], at: usize| {
        u32::from_le_bytes([from[at], from[at + 1], from[at + 2], from[at + 3]])
    };
    let half = |from: &[u8], at: usize| u64::from(u16::from_le_bytes([from[at], from[at + 1]]));
    let (length, pixels, header) = (word(&start, 2), word(&start, 10), word(&start, 14));
    if !(12..=1 << 16).contains(&header) {
        return Err(broken("the header of this BMP has an unknown size"));
    }
    let mut info = vec![0; header as usize - 4];
    bytes.read_exact(&mut info)?;
    let (width, height, depth, packed, packed_bytes) = match header {
        0..16 => (half(&info, 0), half(&info, 2), half(&info, 6), 0, 0),
        16..20 => (word(&info, 0).into(), word(&info, 4).into(), half(&info, 10), 0, 0),
        _ => {
            let signed = |at| u64::from((word(&info, at) as i32).unsigned_abs());
            let (packed, size) =
                if header >= 24 { (word(&info, 12), word(&info, 16)) } else { (0, 0) };
            (signed(0), signed(4), half(&info, 10), packed, size)
        }
    };
    // Methods 1, 2, 4 and 5 compress; 3 and 6 store masks of the colours' bits.
    let rows = match packed {
        1 | 2 | 4 | 5 => packed_bytes.into(),
        _ => product(&[product(&[width, depth]).div_ceil(32), 4, height]),
    };
    let end = u64::from(pixels).saturating_add(rows).max(length.into());
    bytes.skip(end.saturating_sub(14 + u64::from(header)))
}

/// Blocks up to the trailer (GIF89a, appendix B).
pub(super) fn gif(bytes: &mut dyn Bytes) -> Walked {
    let table = |flags: u8| if flags & 0x80 != 0 { 6u64 << (flags & 7) } else { 0 };
    let start: [u8; 13] = array(bytes)?;
    bytes.skip(table(start[10]))?;
    loop {
        match byte(bytes)? {
            b'\x3b' => return Ok(()),
            b'\x2c' => {
                let image: [u8; 9] = array(bytes)?;
                // The size of the codes follows the colours.
                bytes.skip(table(image[8]) + 1)?;
            }
            b'\x21' => bytes.skip(1)?,
            _ => return Err(broken("a block of this GIF is of an unknown kind")),
        }
        while let length @ 1.. = byte(bytes)? {
            bytes.skip(length.into())?;
        }
    }
}

/// The length in the RIFF header; a zero follows an odd length.
pub(super) fn webp(bytes: &mut dyn Bytes) -> Walked {
    let start: [u8; 8] = array(bytes)?;
    let length = u64::from(u32::from_le_bytes([start[4], start[5], start[6], start[7]]));
    bytes.skip(length.next_multiple_of(2))
}

/// Codes until each pixel has one, and eight bytes at the end (<https://qoiformat.org>).
pub(super) fn qoi(bytes: &mut dyn Bytes) -> Walked {
    let start: [u8; 14] = array(bytes)?;
    let word = |at: usize| {
        u64::from(u32::from_be_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]))
    };
    let mut pixels = product(&[word(4), word(8)]);
    while pixels > 0 {
        let (more, run) = match byte(bytes)? {
            0xfe => (3, 1),
            0xff => (4, 1),
            code @ 0xc0..0xfe => (0, u64::from(code & 0x3f) + 1),
            0x80..0xc0 => (1, 1),
            _ => (0, 1),
        };
        bytes.skip(more)?;
        pixels = pixels.saturating_sub(run);
    }
    bytes.skip(8)
}

/// Eight bytes for each pixel.
pub(super) fn farbfeld(bytes: &mut dyn Bytes) -> Walked {
    let start: [u8; 16] = array(bytes)?;
    let word = |at: usize| {
        u64::from(u32::from_be_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]))
    };
    bytes.skip(product(&[word(8), word(12), 8]))
}

/// Maximum length of a line in a Radiance header, in bytes.
const MAX_LINE: usize = 1 << 16;

/// Lines up to an empty one, a line with the extents, and rows of coded pixels.
pub(super) fn hdr(bytes: &mut dyn Bytes) -> Walked {
    let mut line = Vec::new();
    let mut next = |bytes: &mut dyn Bytes| {
        line.clear();
        loop {
            match byte(bytes)? {
                b'\n' => return io::Result::Ok(String::from_utf8_lossy(&line).into_owned()),
                _ if line.len() > MAX_LINE => {
                    return Err(broken("a line of this Radiance header does not end"));
                }
                byte => line.push(byte),
            }
        }
    };
    while !next(bytes)?.is_empty() {}
    let extents = next(bytes)?;
    let numbers: Vec<u64> =
        extents.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [rows, width] = numbers[..] else {
        return Err(broken("the extents of this Radiance picture are not two numbers"));
    };
    (0..rows).try_for_each(|_| scanline(bytes, width))
}

fn scanline(bytes: &mut dyn Bytes, width: u64) -> Walked {
    let first: [u8; 4] = array(bytes)?;
    if width > 0 && first[0] == 2 && first[1] == 2 && first[2] < 128 {
        // Each channel alone, as runs of one value or of several.
        for _ in 0..4 {
            let mut done = 0;
            while done < width {
                let (count, more) = match byte(bytes)? {
                    0 => return Err(broken("a run of this Radiance picture is empty")),
                    count @ 1..=128 => (count, count),
                    count => (count - 128, 1),
                };
                bytes.skip(more.into())?;
                done += u64::from(count);
            }
        }
        return Ok(());
    }
    let (mut done, mut shift) = (1, 0);
    while done < width {
        let pixel: [u8; 4] = array(bytes)?;
        if pixel[..3] == [1, 1, 1] {
            done += u64::from(pixel[3]) << shift;
            shift = (shift + 8).min(32);
        } else {
            (done, shift) = (done + 1, 0);
        }
    }
    Ok(())
}

/// Headers, tables of offsets, and the number of chunks that the headers give, each with its size.
pub(super) fn exr(bytes: &mut dyn Bytes) -> Walked {
    let found = MetaData::read_from_buffered(&mut *bytes, false).map_err(|error| match error {
        exr::error::Error::Io(error) => error,
        // The reader's text for the end of the input.
        exr::error::Error::Invalid(what) if what == "reference to missing bytes" => cut_off(),
        _ => broken("the header of this OpenEXR file is damaged"),
    })?;
    let chunks = found
        .headers
        .iter()
        .fold(0u64, |sum, header| sum.saturating_add(header.chunk_count as u64));
    bytes.skip(chunks.saturating_mul(8))?;
    for _ in 0..chunks {
        let part = if found.requirements.has_multiple_layers {
            u32::from_le_bytes(array(bytes)?) as usize
        } else {
            0
        };
        let header = found
            .headers
            .get(part)
            .ok_or_else(|| broken("a chunk of this OpenEXR file has no part"))?;
        bytes.skip(if matches!(header.blocks, BlockDescription::Tiles(_)) { 16 } else { 4 })?;
        let size = if header.deep {
            let [table, samples, _] =
                [array(bytes)?, array(bytes)?, array(bytes)?].map(u64::from_le_bytes);
            table.saturating_add(samples)
        } else {
            u32::from_le_bytes(array(bytes)?).into()
        };
        bytes.skip(size)?;
    }
    Ok(())
}

/// Boxes, each with its size, as in MP4 and HEIC (ISO/IEC 14496-12, 4.2). The file ends after the
/// last box.
pub(super) fn boxes(bytes: &mut dyn Bytes) -> Walked {
    loop {
        // The first bytes of some pictures could also be a box.
        if Kind::next(bytes)?.is_some_and(|kind| kind != Kind::Video) {
            return Ok(());
        }
        let start = bytes.peek(16)?;
        let named = start
            .get(4..8)
            .is_some_and(|name| name.iter().all(|&byte| matches!(byte, b' '..=b'~' | 0xa9)));
        if !named {
            return Ok(());
        }
        let size = match u32::from_be_bytes([start[0], start[1], start[2], start[3]]) {
            // A size of 0 means up to the end of the file.
            0 => u64::MAX,
            1 if start.len() == 16 => {
                start[8..].iter().fold(0, |size, &byte| size << 8 | u64::from(byte))
            }
            size => size.into(),
        };
        if size < 8 {
            return Ok(());
        }
        match bytes.skip(size) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            result => result?,
        }
    }
}

/// The header, the palette and the pixels. The areas that the footer of version 2 names follow, up
/// to the end of the file.
pub(super) fn tga(bytes: &mut dyn Bytes) -> Walked {
    let start: [u8; 18] = array(bytes)?;
    let half = |at: usize| u64::from(u16::from_le_bytes([start[at], start[at + 1]]));
    let palette = if start[1] == 1 { half(5) * u64::from(start[7]).div_ceil(8) } else { 0 };
    bytes.skip(u64::from(start[0]) + palette)?;
    let (mut pixels, depth) = (half(12) * half(14), u64::from(start[16]).div_ceil(8));
    if start[2] & 8 == 0 {
        return bytes.skip(pixels * depth);
    }
    while pixels > 0 {
        let packet = byte(bytes)?;
        let count = u64::from(packet & 0x7f) + 1;
        bytes.skip(if packet & 0x80 != 0 { depth } else { count * depth })?;
        pixels = pixels.saturating_sub(count);
    }
    Ok(())
}
