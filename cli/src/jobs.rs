//! Which files `apron filter` reads, and which it writes.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::args::FilterArgs;
use crate::failure::{Failure, Result};
use crate::files;
use crate::stream::is_stream;

/// One picture: the file to read and the file to write. `-` is standard input or output.
#[derive(Debug, PartialEq)]
pub(crate) struct Job {
    pub(crate) input: PathBuf,
    pub(crate) output: PathBuf,
    /// Whether the output is in the folder OUT, which is created if needed and whose files are
    /// replaced.
    pub(crate) in_folder: bool,
}

/// A file to read, and its path below the folder that the user named.
struct Source {
    path: PathBuf,
    below: PathBuf,
}

/// The place of the results.
#[derive(Clone, Copy)]
enum Out<'a> {
    /// Beside each input.
    Beside,
    Folder(&'a Path),
    File(&'a Path),
}

impl Job {
    /// Whether the output replaces the input.
    pub(crate) fn is_in_place(&self) -> bool {
        same_file(&self.input, &self.output)
    }
}

/// Gives each input its output.
pub(crate) fn jobs(args: &FilterArgs) -> Result<Vec<Job>> {
    let (inputs, out) = inputs_and_out(args)?;
    let mut sources = Vec::new();
    for input in inputs {
        if input.is_dir() {
            let skipped = if let Out::Folder(out) = out { Some(out) } else { None };
            walk(input, args, skipped, &mut sources)?;
        } else {
            let below = PathBuf::from(input.file_name().unwrap_or(input.as_os_str()));
            sources.push(Source { path: input.clone(), below });
        }
    }
    let jobs =
        sources.into_iter().map(|source| job(source, out, args)).collect::<Result<Vec<_>>>()?;
    check_apart(&jobs)?;
    Ok(jobs)
}

/// Splits the paths into the inputs and OUT.
fn inputs_and_out(args: &FilterArgs) -> Result<(&[PathBuf], Out<'_>)> {
    let (inputs, last) = match &*args.paths {
        [] => {
            return Err(Failure::usage(
                "name a picture to read and a file to write, as in: apron filter in.png out.png",
            ));
        }
        // With --suffix a last path that is no folder is one more input.
        inputs @ [.., last] if args.suffix.is_some() && !(inputs.len() > 1 && is_folder(last)) => {
            return Ok((inputs, Out::Beside));
        }
        [only] => {
            return Err(Failure::usage(format!(
                "{} is the only file named: name the picture to read and then the file or folder to write, or give --suffix to write \
                 beside it",
                only.display()
            )));
        }
        [inputs @ .., last] => (inputs, last),
    };
    let several = inputs.len() > 1 || inputs[0].is_dir();
    if is_folder(last) {
        return Ok((inputs, Out::Folder(last)));
    }
    if !several {
        return Ok((inputs, Out::File(last)));
    }
    // A new path without a picture's extension is a folder to create.
    if !is_stream(last) && !last.exists() && !files::is_named_as_picture(last) {
        return Ok((inputs, Out::Folder(last)));
    }
    let what = if is_stream(last) { "standard output" } else { "one file" };
    Err(Failure::usage(format!(
        "{} is {what}, and several pictures need a folder: name one at the end, as in out/, or give --suffix to write beside each \
         picture",
        last.display()
    )))
}

fn is_folder(path: &Path) -> bool {
    let last = path.as_os_str().as_encoded_bytes().last();
    last.is_some_and(|&byte| std::path::is_separator(byte.into())) || path.is_dir()
}

/// Adds the pictures in a folder, in the order of their names. Skips hidden files, files without a
/// picture's extension, and the folder to write to.
fn walk(
    folder: &Path,
    args: &FilterArgs,
    skipped: Option<&Path>,
    sources: &mut Vec<Source>,
) -> Result {
    let skipped = skipped.and_then(|skipped| skipped.canonicalize().ok());
    let depth = if args.recursive { usize::MAX } else { 1 };
    let entries =
        WalkDir::new(folder).max_depth(depth).sort_by_file_name().into_iter().filter_entry(
            |entry| {
                let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
                let own = || {
                    entry.file_type().is_dir()
                        && skipped.is_some()
                        && entry.path().canonicalize().ok() == skipped
                };
                entry.depth() == 0 || !hidden && !own()
            },
        );
    let before = sources.len();
    for entry in entries {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(folder).to_owned();
            match error.io_error() {
                Some(reason) => Failure::at(&path, reason),
                None => Failure::at(&path, error),
            }
        })?;
        let path = entry.path();
        // A link to a file counts as a file.
        if (if args.reading.raw.is_some() {
            is_named_raw(path)
        } else {
            files::is_named_as_picture(path)
        }) && path.is_file()
        {
            let below = path.strip_prefix(folder).unwrap_or(path).to_owned();
            sources.push(Source { path: path.to_owned(), below });
        }
    }
    if sources.len() > before {
        return Ok(());
    }
    let hint = if args.recursive { "" } else { "; --recursive also reads its subfolders" };
    Err(Failure::at(folder, format!("no file in this folder has the extension of a picture{hint}")))
}

fn is_named_raw(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("raw"))
}

fn job(source: Source, out: Out<'_>, args: &FilterArgs) -> Result<Job> {
    let Source { path: input, below } = source;
    if is_stream(&input) && !matches!(out, Out::File(_)) {
        return Err(Failure::usage(
            "standard input has no name for its result: name the file to write",
        ));
    }
    let renamed = |path: &Path| {
        let extension = match args.format {
            Some(format) => Some(format.name().into()),
            None => path.extension().map(OsString::from),
        };
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push(args.suffix.as_deref().unwrap_or_default());
        if let Some(extension) = extension {
            name.push(".");
            name.push(extension);
        }
        path.with_file_name(name)
    };
    Ok(match out {
        Out::Beside => Job { output: renamed(&input), input, in_folder: false },
        Out::Folder(folder) => Job { output: folder.join(renamed(&below)), input, in_folder: true },
        Out::File(file) => Job { output: file.to_owned(), input, in_folder: false },
    })
}

/// Checks that no output is written twice, and that no output is another picture's input.
fn check_apart(jobs: &[Job]) -> Result {
    if jobs.len() < 2 {
        return Ok(());
    }
    let mut written: HashMap<&Path, &Path> = HashMap::new();
    for job in jobs {
        if let Some(first) = written.insert(&job.output, &job.input) {
            return Err(Failure::usage(format!(
                "{} and {} would both be written to {}",
                first.display(),
                job.input.display(),
                job.output.display()
            )));
        }
    }
    let mut read: HashMap<PathBuf, &Path> = HashMap::new();
    for job in jobs {
        if let Some(first) =
            job.input.canonicalize().ok().and_then(|path| read.insert(path, &job.input))
        {
            return Err(Failure::usage(format!(
                "{} and {} are the same file",
                first.display(),
                job.input.display()
            )));
        }
    }
    for job in jobs {
        let input = job.output.canonicalize().ok().and_then(|path| read.get(&path).copied());
        if input.is_some_and(|input| input != job.input) {
            return Err(Failure::usage(format!(
                "{} would be written as the result of {}, but is also an input",
                job.output.display(),
                job.input.display()
            )));
        }
    }
    Ok(())
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
