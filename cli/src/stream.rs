//! Standard input, standard output and pipes as files, since decoders and encoders seek.

use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Cursor, IsTerminal, Read, Seek, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::failure::{Failure, Result};

/// Maximum number of bytes to read from a pipe, which may never end: twice the default
/// `--max-bytes`.
const LIMIT: u64 = 4 << 30;

/// Whether the path stands for standard input or output.
pub(crate) fn is_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether the file is a named pipe.
pub(crate) fn is_pipe(found: &Metadata) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::FileTypeExt::is_fifo(&found.file_type());
    #[cfg(not(unix))]
    {
        let _ = found;
        false
    }
}

/// Whether the path is standard input or output, or a named pipe. There, data arrives as it is
/// made, and written data is gone at once.
pub(crate) fn is_streamed(path: &Path) -> bool {
    is_stream(path) || std::fs::metadata(path).is_ok_and(|found| is_pipe(&found))
}

/// Standard input or output as a file. [`io::Stdout`] would search every write for its last line
/// end.
#[cfg(unix)]
fn unbuffered(stream: &impl std::os::fd::AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

#[cfg(windows)]
fn unbuffered(stream: &impl std::os::windows::io::AsHandle) -> io::Result<File> {
    Ok(stream.as_handle().try_clone_to_owned()?.into())
}

/// The first bytes of standard input, if they were looked at.
static PEEKED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Whether a file, or standard input, begins with these bytes. Later, [`open`] begins with them
/// too. A named pipe is not read, and does not.
pub(crate) fn begins_with(path: &Path, start: &[u8]) -> io::Result<bool> {
    let mut found = Vec::new();
    let most = start.len() as u64;
    if !is_stream(path) {
        if fs::metadata(path)?.is_file() {
            File::open(path)?.take(most).read_to_end(&mut found)?;
        }
    } else if !io::stdin().is_terminal() {
        unbuffered(&io::stdin())?.take(most).read_to_end(&mut found)?;
        PEEKED.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&found);
    }
    Ok(found == start)
}

/// Opens standard input or a pipe.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read + Send>> {
    match is_stream(path) {
        true if io::stdin().is_terminal() => Err(Failure::usage(
            "standard input is a terminal: pipe a picture into it, as in: apron filter - out.png < in.png",
        )),
        true => {
            let rest = unbuffered(&io::stdin()).map_err(|error| Failure::at(path, error))?;
            let start = std::mem::take(&mut *PEEKED.lock().unwrap_or_else(PoisonError::into_inner));
            // Most often nothing was read before, and reads go to the file itself.
            if start.is_empty() {
                return Ok(Box::new(rest));
            }
            Ok(Box::new(Cursor::new(start).chain(rest)))
        }
        false => Ok(Box::new(File::open(path).map_err(|error| Failure::at(path, error))?)),
    }
}

/// Opens standard output or a pipe.
pub(crate) fn create(path: &Path) -> Result<Box<dyn Write + Send>> {
    match is_stream(path) {
        true => Ok(Box::new(unbuffered(&io::stdout()).map_err(|error| Failure::at(path, error))?)),
        false => {
            let pipe =
                File::options().write(true).open(path).map_err(|error| Failure::at(path, error))?;
            Ok(Box::new(pipe))
        }
    }
}

/// Reads all data of standard input or a pipe into an unnamed file.
pub(crate) fn read(path: &Path) -> Result<File> {
    let source = open(path)?;
    let spooled = || {
        let mut file = tempfile::tempfile()?;
        let len = io::copy(&mut source.take(LIMIT + 1), &mut file)?;
        file.rewind()?;
        Ok((file, len))
    };
    let (file, len) = spooled().map_err(|error: io::Error| Failure::at(path, error))?;
    if len > LIMIT {
        return Err(Failure::at(
            path,
            format!(
                "standard input has more than {} GiB: write it to a file, and name that file",
                LIMIT >> 30
            ),
        ));
    }
    Ok(file)
}

/// Writes to standard output or a pipe, once all data is ready.
pub(crate) fn write(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> Result) -> Result {
    let fail = |error: io::Error| Failure::at(path, error);
    let mut file = tempfile::tempfile().map_err(fail)?;
    let mut out = BufWriter::with_capacity(1 << 18, &file);
    write(&mut out)?;
    out.flush().map_err(fail)?;
    drop(out);
    file.rewind().map_err(fail)?;
    let mut target = create(path)?;
    match io::copy(&mut file, &mut target).and_then(|_| target.flush()) {
        // A reader that stops early is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(fail(error)),
        _ => Ok(()),
    }
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
