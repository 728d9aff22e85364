//! Standard input and output, and pipes, as files: decoders and encoders move about in what they read and write.

use std::fs::{File, Metadata};
use std::io::{self, BufWriter, IsTerminal, Read, Seek, Write};
use std::path::Path;

use crate::failure::{Failure, Result};

/// The most bytes to take from a pipe, which may never end: twice those of the largest picture by default.
const MOST: u64 = 4 << 30;

/// Whether the path stands for standard input or output.
pub(crate) fn is_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether what is there is a pipe with a name, or the end of one.
pub(crate) fn is_pipe(found: &Metadata) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::FileTypeExt::is_fifo(&found.file_type());
    #[cfg(not(unix))]
    return false;
}

/// Everything that standard input or a pipe holds, in a file without a name.
pub(crate) fn read(path: &Path) -> Result<File> {
    let stdin = io::stdin();
    let source: &mut dyn Read = match is_stream(path) {
        true if stdin.is_terminal() => {
            return Err(Failure::usage(
                "standard input is a terminal: pipe a picture into it, as in: apron filter - out.png < in.png",
            ));
        }
        true => &mut stdin.lock(),
        false => &mut File::open(path).map_err(|error| Failure::at(path, error))?,
    };
    let mut spooled = || {
        let mut file = tempfile::tempfile()?;
        let len = io::copy(&mut source.take(MOST + 1), &mut file)?;
        file.rewind()?;
        Ok((file, len))
    };
    let (file, len) = spooled().map_err(|error: io::Error| Failure::at(path, error))?;
    if len > MOST {
        return Err(Failure::at(path, format!("more than {} GiB came: write it to a file, and name that", MOST >> 30)));
    }
    Ok(file)
}

/// Writes to standard output or into a pipe, when all that there is to write is known.
pub(crate) fn write(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> Result) -> Result {
    let fail = |error: io::Error| Failure::at(path, error);
    let mut file = tempfile::tempfile().map_err(fail)?;
    let mut out = BufWriter::with_capacity(1 << 18, &file);
    write(&mut out)?;
    out.flush().map_err(fail)?;
    drop(out);
    file.rewind().map_err(fail)?;
    let target: &mut dyn Write = match is_stream(path) {
        true => &mut io::stdout().lock(),
        false => &mut File::options().write(true).open(path).map_err(fail)?,
    };
    io::copy(&mut file, target).and_then(|_| target.flush()).map_err(fail)
}

/// Checks that pictures can be written to standard output.
pub(crate) fn check_stdout() -> Result {
    match io::stdout().is_terminal() {
        true => Err(Failure::usage(
            "standard output is a terminal: send it into a file or a pipe, as in: apron filter in.png - --format png > out.png",
        )),
        false => Ok(()),
    }
}
