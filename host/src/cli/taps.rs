//! `apron taps`: a filter's taps as text or as an array.

use std::io::{self, Write};

use apron::Filter;

use super::args::TapsArgs;
use super::{Failure, Result, files, npy, print};

pub(super) fn run(args: &TapsArgs) -> Result {
    let filter = args.choice.filter()?;
    match &args.out {
        None => print(|out| write_text(out, &filter)),
        Some(path) => files::replace(path, |out| {
            let array = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"));
            if array { npy::write_taps(out, &filter) } else { write_text(out, &filter) }
                .map_err(|error| Failure::at(path, error))
        }),
    }
}

/// A line for each row, in the shortest digits that read back as the same f64.
fn write_text(out: &mut (impl Write + ?Sized), filter: &Filter) -> io::Result<()> {
    for row in 0..filter.rows() {
        for col in 0..filter.cols() {
            // Adding 0 makes a zero of -0.
            let tap = filter.tap(row, col) + 0.0;
            let blank = if col == 0 { "" } else { " " };
            // Without a hundred zeros.
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
