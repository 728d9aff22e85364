//! What a person should know of pictures that were written all the same: one line for each thing, however many pictures it is true of.

use std::path::{Path, PathBuf};

use crate::output::report;
use crate::scaling::Cut;

/// Something to know of a picture.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Note {
    /// A sentence without the picture's name.
    Text(String),
    /// Values of the result that are below or above what its type holds.
    Cut(Cut),
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Cut { below, above, total, middle } = match self {
            Self::Text(text) => return f.write_str(text),
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
        write!(f, "; --abs keeps their size, --offset {middle} shows both signs, --output-type f32 keeps all")
    }
}

/// The notes of all pictures.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Each with the first picture that it is about, and how many there are.
    found: Vec<(Note, PathBuf, usize)>,
}

impl Notes {
    /// Adds what is to be said of a picture.
    pub(crate) fn add(&mut self, path: &Path, note: Note) {
        for (known, _, count) in &mut self.found {
            let same = match (&mut *known, note.clone()) {
                (Note::Cut(sum), Note::Cut(more)) if sum.middle == more.middle => {
                    sum.add(more);
                    true
                }
                (known, note) => *known == note,
            };
            if same {
                *count += 1;
                return;
            }
        }
        self.found.push((note, path.to_owned(), 1));
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
                notes.add(Path::new(name), Note::Cut(Cut { below, above: 0, total: 100, middle: 128 }));
            }
        }
        let lines: Vec<_> = notes.found.iter().map(|(note, path, count)| line(note, path, *count)).collect();
        assert_eq!(lines[0], "a.png and 2 others: no orientation");
        assert!(
            lines[1].starts_with("a.png and 1 other: 38 % of the values are negative and became 0; --abs"),
            "{}",
            lines[1]
        );
        assert_eq!(lines.len(), 2);
    }
}
