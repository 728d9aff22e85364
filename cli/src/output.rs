//! What the tool prints: results on stdout, messages on stderr.

use std::io::{self, Write};

use crate::failure::{Failure, Result};

/// Prints a message as one line on stderr. An error there is ignored.
pub(crate) fn report(message: &str) {
    let _ = writeln!(io::stderr(), "apron: {}", one_line(message));
}

/// The text on one line, without control characters.
pub(crate) fn one_line(text: &str) -> String {
    let words: Vec<&str> =
        text.split(['\n', '\r', '\t']).map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = words.join(" ");
    line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Writes to stdout. A reader that stops early, as in `apron info | head`, is no failure.
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("stdout: {error}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_on_one_line() {
        assert_eq!(one_line("a\n\n  b\r\nc"), "a b c");
        assert_eq!(one_line("\u{1b}[31mred"), "\u{fffd}[31mred");
    }
}
