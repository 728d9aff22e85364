//! Notes to the user on pictures that were written. Each note is one line, whatever the number of
//! pictures.

use std::path::{Path, PathBuf};

use crate::ends::Left;
use crate::output::report;
use crate::scaling::Cut;

/// A note on a picture.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Note {
    /// A sentence without the picture's name.
    Text(String),
    /// Values of the result outside the range of its type.
    Cut(Cut),
    /// Values of the result that are NaN, in a type without NaN.
    Nan { count: u64, total: u64 },
    /// Bytes of the input that are not read.
    Left(Left),
}

impl Note {
    /// Adds the counts of another picture's note. Returns false if the two notes have no counts to
    /// add up.
    fn counts(&mut self, more: &Self) -> bool {
        match (self, more) {
            (Self::Cut(sum), Self::Cut(more)) if sum.middle == more.middle => sum.add(*more),
            (Self::Nan { count, total }, Self::Nan { count: more, total: all }) => {
                *count += more;
                *total += all;
            }
            (Self::Left(sum), Self::Left(more)) => sum.add(more.clone()),
            _ => return false,
        }
        true
    }
}

/// Adds a note to those of one picture.
pub(crate) fn add(notes: &mut Vec<Note>, note: Note) {
    if !notes.iter_mut().any(|known| known.counts(&note)) {
        notes.push(note);
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Cut { below, above, total, middle } = match self {
            Self::Text(text) => return f.write_str(text),
            Self::Left(left) => return left.fmt(f),
            Self::Nan { count, total } => {
                return write!(
                    f,
                    "{count} of {total} values are NaN and became 0; --output-type f32 keeps them"
                );
            }
            Self::Cut(cut) => *cut,
        };
        let share = |part: u64| match part as f64 * 100.0 / total.max(1) as f64 {
            percent if percent < 1.0 => "less than 1 %".to_owned(),
            percent => format!("{percent:.0} %"),
        };
        write!(f, "{} of the values are negative and became 0", share(below))?;
        if above > 0 {
            write!(f, ", {} are too large and became the greatest value", share(above))?;
        }
        write!(
            f,
            "; --abs keeps their magnitude, --offset {middle} shows both signs, --output-type f32 keeps all"
        )
    }
}

/// The notes of all pictures.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Each note, the first picture that it is about, and the number of pictures.
    found: Vec<(Note, PathBuf, usize)>,
}

impl Notes {
    /// Adds a note on a picture.
    pub(crate) fn add(&mut self, path: &Path, note: Note) {
        self.count(path.to_owned(), note, 1);
    }

    /// Adds the notes on a stream's frames. `name` turns the path of a note into the path to show.
    pub(crate) fn merge(&mut self, frames: Self, name: impl Fn(&Path) -> PathBuf) {
        for (note, path, count) in frames.found {
            self.count(name(&path), note, count);
        }
    }

    fn count(&mut self, path: PathBuf, note: Note, pictures: usize) {
        for (known, _, count) in &mut self.found {
            if known.counts(&note) || *known == note {
                *count += pictures;
                return;
            }
        }
        self.found.push((note, path, pictures));
    }

    pub(crate) fn report(&self) {
        self.found.iter().for_each(|(note, path, count)| report(&line(note, path, *count)));
    }
}

fn line(note: &Note, path: &Path, count: usize) -> String {
    match count {
        1 => format!("{}: {note}", path.display()),
        2 => format!("{} and 1 other: {note}", path.display()),
        _ => format!("{} and {} others: {note}", path.display(), count - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_said_once() {
        let mut notes = Notes::default();
        for (name, below) in [("a.png", 50), ("b.png", 0), ("c.png", 25)] {
            notes.add(Path::new(name), Note::Text("no orientation".to_owned()));
            if below > 0 {
                notes.add(
                    Path::new(name),
                    Note::Cut(Cut { below, above: 0, total: 100, middle: 128 }),
                );
            }
        }
        let lines: Vec<_> =
            notes.found.iter().map(|(note, path, count)| line(note, path, *count)).collect();
        assert_eq!(lines[0], "a.png and 2 others: no orientation");
        assert!(
            lines[1].starts_with(
                "a.png and 1 other: 38 % of the values are negative and became 0; --abs"
            ),
            "{}",
            lines[1]
        );
        assert_eq!(lines.len(), 2);
    }
}
