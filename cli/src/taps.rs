//! `apron taps`: a filter's taps as text or as an array.

use crate::args::TapsArgs;
use crate::failure::{Failure, Result};
use crate::output::print;
use crate::taps_file;

pub(crate) fn run(args: &TapsArgs) -> Result {
    let filter = args.choice.filter()?;
    match &args.out {
        None => print(|out| taps_file::write_text(out, &filter)),
        Some(path) if path.exists() && !args.overwrite => {
            Err(Failure::at(path, "exists already; --overwrite replaces it"))
        }
        Some(path) => taps_file::write(path, &filter),
    }
}
