//! Limits on the pictures that are read.

use clap::Args;

/// The largest picture to read: a small file may decode to more than memory holds.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Limits {
    /// Largest number of pixels in a picture; K, M, G and T are powers of 1024
    #[arg(long, value_name = "N", default_value = "256M", value_parser = amount, help_heading = "Files")]
    pub(crate) max_pixels: u64,

    /// Largest number of bytes of a decoded picture; K, M, G and T are powers of 1024
    #[arg(long, value_name = "N", default_value = "2G", value_parser = amount, help_heading = "Files")]
    pub(crate) max_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_pixels: 256 << 20, max_bytes: 2 << 30 }
    }
}

impl Limits {
    /// Checks a picture's size before its memory is allocated.
    pub(crate) fn check(
        &self,
        width: u64,
        height: u64,
        bytes_per_pixel: u64,
    ) -> Result<(), String> {
        let pixels = width.saturating_mul(height);
        let bytes = pixels.saturating_mul(bytes_per_pixel);
        if pixels <= self.max_pixels && bytes <= self.max_bytes {
            return Ok(());
        }
        Err(format!(
            "{width}x{height} pixels ({pixels} in all) take {bytes} bytes; {}",
            self.advice()
        ))
    }

    /// The error for a file whose decoder needs more memory.
    pub(crate) fn exceeded(&self) -> String {
        format!("takes more memory to decode than is allowed; {}", self.advice())
    }

    /// Both limits, and what to do about them.
    pub(crate) fn advice(&self) -> String {
        format!(
            "the limits are --max-pixels {} and --max-bytes {}: raise them if you trust the file",
            amount_text(self.max_pixels),
            amount_text(self.max_bytes)
        )
    }
}

/// A number in the form that [`amount`] reads.
fn amount_text(number: u64) -> String {
    let suffixes = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let found =
        suffixes.into_iter().find(|(shift, _)| number > 0 && number.trailing_zeros() >= *shift);
    found.map_or(number.to_string(), |(shift, suffix)| format!("{}{suffix}", number >> shift))
}

/// Reads a whole number; a suffix K, M, G or T multiplies it by a power of 1024.
pub(crate) fn amount(text: &str) -> Result<u64, &'static str> {
    let (digits, shift) = match text.char_indices().last() {
        Some((end, 'K' | 'k')) => (&text[..end], 10),
        Some((end, 'M' | 'm')) => (&text[..end], 20),
        Some((end, 'G' | 'g')) => (&text[..end], 30),
        Some((end, 'T' | 't')) => (&text[..end], 40),
        _ => (text, 0),
    };
    digits
        .parse()
        .ok()
        .and_then(|number: u64| number.checked_mul(1 << shift))
        .ok_or("a whole number is needed, which may end in K, M, G or T, as in 512M")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        assert_eq!(amount("0"), Ok(0));
        assert_eq!(amount("512M"), Ok(512 << 20));
        assert_eq!(amount("3k"), Ok(3 << 10));
        assert_eq!(amount("2T"), Ok(2 << 40));
        for bad in ["", "M", "-1", "1.5", "1KB", "16777216T", "１"] {
            assert!(amount(bad).is_err(), "{bad}");
        }
        for (number, text) in [
            (0, "0"),
            (1000, "1000"),
            (256 << 20, "256M"),
            (2 << 30, "2G"),
            (3 << 10, "3K"),
            (1 << 40, "1T"),
        ] {
            assert_eq!((amount_text(number), amount(text)), (text.to_owned(), Ok(number)));
        }
    }

    #[test]
    fn limits_cannot_be_overflowed() {
        let limits = Limits { max_pixels: u64::MAX - 1, max_bytes: u64::MAX - 1 };
        assert!(limits.check(u64::MAX, u64::MAX, 8).is_err());
        assert!(limits.check(1 << 20, 1 << 20, 1 << 40).is_err());
        assert!(limits.check(1 << 20, 1 << 20, 16).is_ok());
        // A telephone's picture of 200 megapixels, with alpha, fits.
        let default =
            Limits { max_pixels: amount("256M").unwrap(), max_bytes: amount("2G").unwrap() };
        assert_eq!(default.check(16320, 12240, 4), Ok(()));
        let message = default.check(30000, 30000, 3).unwrap_err();
        assert!(
            message.contains("--max-pixels 256M") && message.contains("--max-bytes 2G"),
            "{message}"
        );
    }
}
