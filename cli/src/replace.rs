//! Writing files: all or nothing.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::NamedTempFile;

use crate::failure::{Failure, Result};
use crate::stream;

/// Temporary files that are not complete yet.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the unfinished files. Keeping the lock stops other threads from beginning one.
#[cfg(any(unix, windows))]
fn clean_up() -> MutexGuard<'static, Vec<PathBuf>> {
    let unfinished = unfinished();
    for path in unfinished.iter() {
        let _ = fs::remove_file(path);
    }
    unfinished
}

/// Removes temporary files when the user interrupts the program or the system ends it.
pub(crate) fn clean_up_on_signals() {
    #[cfg(unix)]
    if let Ok(mut signals) = signal_hook::iterator::Signals::new(signal_hook::consts::TERM_SIGNALS)
    {
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let _lock = clean_up();
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        });
    }
    // Windows sends SIGINT for Ctrl-C, and 21, SIGBREAK, for Ctrl-Break and a closed window.
    #[cfg(windows)]
    for signal in [signal_hook::consts::SIGINT, 21] {
        let end = || {
            let _lock = clean_up();
            // STATUS_CONTROL_C_EXIT, as without a handler.
            std::process::exit(0xc000_013a_u32 as i32)
        };
        // SAFETY: the handler may do anything, because Windows runs it in a thread of its own.
        let _ = unsafe { signal_hook::low_level::register(signal, end) };
    }
}

/// The target of a write.
enum Target {
    /// A file to create or to replace, its folder, and its permissions if it exists.
    File { path: PathBuf, folder: PathBuf, permissions: Option<fs::Permissions> },
    /// Standard output or a pipe.
    Stream,
}

/// Fails if a write to `path` would surely fail. With `make_folder`, the file's folder need not
/// exist yet.
pub(crate) fn check(path: &Path, make_folder: bool) -> Result {
    if stream::is_stream(path) {
        return stream::check_stdout();
    }
    if let Some(folder) =
        path.parent().filter(|folder| make_folder && fs::symlink_metadata(folder).is_err())
    {
        let found =
            folder.ancestors().find(|folder| !folder.as_os_str().is_empty() && folder.exists());
        return match found.filter(|found| !found.is_dir()) {
            Some(file) => Err(Failure::at(path, format!("{} is not a folder", file.display()))),
            None => Ok(()),
        };
    }
    target(path).map(drop)
}

/// Whether Windows takes the name for a device's, in any folder and with any extension.
fn is_device(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_uppercase();
    let stem = name.split('.').next().unwrap_or_default().trim_end();
    let numbered = |kind| {
        let number = stem.strip_prefix(kind);
        number.is_some_and(|number| matches!(number.as_bytes(), [b'0'..=b'9']))
    };
    matches!(stem, "CON" | "PRN" | "AUX" | "NUL") || numbered("COM") || numbered("LPT")
}

fn target(path: &Path) -> Result<Target> {
    if stream::is_stream(path) {
        return Ok(Target::Stream);
    }
    if cfg!(windows) && is_device(path) {
        return Err(Failure::at(path, "names a device on Windows: choose another name"));
    }
    // Through a link, the write replaces the linked file, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let permissions = match fs::metadata(&target) {
        Ok(found) if found.is_dir() => return Err(Failure::at(path, "is a folder")),
        Ok(found) if stream::is_pipe(&found) => return Ok(Target::Stream),
        Ok(found) if !found.is_file() => {
            return Err(Failure::at(
                path,
                "is not a regular file; standard output is written as -",
            ));
        }
        Ok(found) if found.permissions().readonly() => {
            return Err(Failure::at(path, "is read-only"));
        }
        Ok(found) => Some(found.permissions()),
        Err(_) => None,
    };
    let folder = target
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
        .to_owned();
    if !folder.is_dir() {
        return Err(Failure::at(path, format!("there is no folder {}", folder.display())));
    }
    Ok(Target::File { path: target, folder, permissions })
}

/// Writes a file beside `path` and renames it when it is complete: readers see the old file or the
/// new one, never a part. Standard output and pipes get all data at the end.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> Result) -> Result {
    let fail = |error: io::Error| Failure::at(path, error);
    let Target::File { path: target, folder, permissions } = target(path)? else {
        return stream::write(path, write);
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".apron-").suffix(".tmp");
    #[cfg(unix)]
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(mode);
    let file = {
        let mut unfinished = unfinished();
        // The error's own text names the temporary file, which means nothing to the user.
        let file = builder.tempfile_in(&folder).map_err(|error| {
            Failure::at(
                path,
                format!("nothing can be written in {}: {}", folder.display(), error.kind()),
            )
        })?;
        unfinished.push(file.path().to_owned());
        file
    };
    let temporary = file.path().to_owned();
    let written = (|| {
        let mut out = BufWriter::with_capacity(1 << 18, file.as_file());
        write(&mut out)?;
        out.flush().map_err(fail)?;
        drop(out);
        if let Some(permissions) = permissions {
            file.as_file().set_permissions(permissions).map_err(fail)?;
        }
        Ok(())
    })();
    let result = written.and_then(|()| renamed(file, &target).map_err(fail));
    unfinished().retain(|path| *path != temporary);
    result
}

/// Closes a temporary file and gives it this name. The input may be open under it: Windows 10 then
/// replaces it through `fs::rename`, but not through `NamedTempFile::persist`.
fn renamed(file: NamedTempFile, target: &Path) -> io::Result<()> {
    let path = file.into_temp_path().keep()?;
    fs::rename(&path, target).inspect_err(|_| drop(fs::remove_file(&path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_writes_leave_nothing_and_spoil_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let half = |out: &mut BufWriter<&File>| {
            out.write_all(&[7; 1 << 20]).unwrap();
            Err(Failure::new("no more"))
        };
        replace(&path, half).unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::write(&path, "old").unwrap();
        replace(&path, half).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        replace(&path, |out| {
            out.write_all(b"new").map_err(|error| Failure::new(error.to_string()))
        })
        .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(unfinished().iter().all(|path| !path.starts_with(folder.path())));

        replace(folder.path(), |_| Ok(())).unwrap_err();
        replace(&folder.path().join("none/file"), |_| Ok(())).unwrap_err();
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).unwrap();
        assert!(replace(&path, |_| Ok(())).unwrap_err().message.contains("read-only"));
    }

    #[test]
    fn names_of_devices_are_known() {
        for name in ["NUL", "nul.png", "out/Aux.tar.gz", "COM1", "lpt9 .jpg"] {
            assert!(is_device(Path::new(name)), "{name}");
            let written = replace(Path::new(name), |_| Err(Failure::new("it is a file's name")));
            let message = written.unwrap_err().message;
            assert_eq!(message.contains("names a device"), cfg!(windows), "{message}");
        }
        for name in ["null.png", "COM.png", "COM10", "aux-1.png", "nul/picture.png", "-", ".."] {
            assert!(!is_device(Path::new(name)), "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn modes_and_links_survive() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        let write = |out: &mut BufWriter<&File>| {
            out.write_all(b"new").map_err(|error| Failure::new(error.to_string()))
        };
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;

        fs::write(folder.path().join("plain"), "").unwrap();
        replace(&path, write).unwrap();
        assert_eq!(
            mode(&path),
            mode(&folder.path().join("plain")),
            "as any program's files under this umask"
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&path, &link).unwrap();
        replace(&link, write).unwrap();
        assert_eq!(mode(&path), 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
