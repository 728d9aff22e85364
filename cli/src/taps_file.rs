//! Files of taps: text or arrays.

use std::io::{self, BufRead, Read, Write};
use std::path::Path;

use apron::Filter;

use crate::failure::{Failure, Result};
use crate::replace::replace;
use crate::{files, npy};

/// Reads a filter; its content says whether the file is text or an array.
pub(crate) fn read(path: &Path) -> Result<Filter> {
    let mut reader = files::open(path)?;
    if npy::is_npy(reader.fill_buf().map_err(|error| Failure::at(path, error))?) {
        let filter = npy::read_taps(&mut reader).map_err(|reason| Failure::at(path, reason))?;
        match io::copy(&mut reader, &mut io::sink()).map_err(|error| Failure::at(path, error))? {
            0 => Ok(filter),
            more => Err(Failure::at(
                path,
                format!("{more} bytes follow the taps: write one array to a file"),
            )),
        }
    } else {
        let text = read_text(reader).map_err(|error| Failure::at(path, error))?;
        Filter::parse_taps(&text).map_err(|error| Failure::at(path, error))
    }
}

/// Reads a text file of a limited size.
fn read_text(reader: impl Read) -> Result<String, String> {
    const LIMIT: u64 = 256 << 20;
    let mut text = String::new();
    let read =
        reader.take(LIMIT + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if read as u64 > LIMIT {
        Err(format!("the text has more than {LIMIT} bytes, the limit for a file of taps"))
    } else {
        Ok(text)
    }
}

/// Writes a filter: an array if the name ends in `.npy`, else text.
pub(crate) fn write(path: &Path, filter: &Filter) -> Result {
    let array = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"));
    replace(path, |out| {
        let written = if array { npy::write_taps(out, filter) } else { write_text(out, filter) };
        written.map_err(|error| Failure::at(path, error))
    })
}

/// Writes one line for each row, in the shortest digits that read back as the same f64.
pub(crate) fn write_text(out: &mut (impl Write + ?Sized), filter: &Filter) -> io::Result<()> {
    for row in 0..filter.rows() {
        for col in 0..filter.cols() {
            // -0 + 0 is 0: the text has no negative zero.
            let tap = filter.tap(row, col) + 0.0;
            let blank = if col == 0 { "" } else { " " };
            // Very small and very large taps would need many zeros.
            if tap == 0.0 || (1e-5..1e16).contains(&tap.abs()) {
                write!(out, "{blank}{tap}")?;
            } else {
                write!(out, "{blank}{tap:e}")?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back() {
        for name in ["sobel-x", "gaussian:sigma=2.3", "motion:length=9,angle=20", "log:sigma=1"] {
            let filter: Filter = name.parse().unwrap();
            let mut text = Vec::new();
            write_text(&mut text, &filter).unwrap();
            let read = Filter::parse_taps(std::str::from_utf8(&text).unwrap()).unwrap();
            assert_eq!((read.cols(), read.rows()), (filter.cols(), filter.rows()));
            for row in 0..filter.rows() {
                for col in 0..filter.cols() {
                    assert_eq!(read.tap(row, col), filter.tap(row, col), "{name}");
                }
            }
        }
    }
}
