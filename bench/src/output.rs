//! Output: options, files, JSON and Markdown.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;

use crate::chart::Chart;

/// Options for the number of rounds and for files with the results.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Fewer rounds: faster and less exact. On the CPU, `bench` leaves out large cases.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Also write the results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Also write a page with tables and charts to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Also write the charts to this folder, as SVG.
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Also put tables into this Markdown file; may be given more than once. Between "<!-- ladder
    /// NAME -->" and "<!-- end -->" goes the table of a document, after "<!-- bench NAME -->" the
    /// comparison with the libraries of this name, after "<!-- bench pictures -->" the table of
    /// pictures on a GPU, after "<!-- bench wide -->" that of wide filters.
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Vec<PathBuf>,
}

impl Common {
    /// Writes the requested files. `put` returns a Markdown file's text with its tables filled in.
    pub(crate) fn write(
        &self,
        results: &impl Serialize,
        charts: impl FnOnce() -> Result<Vec<Chart>>,
        page: impl FnOnce(&[Chart]) -> String,
        put: impl Fn(&str) -> Result<String>,
    ) -> Result<()> {
        if let Some(path) = &self.json {
            write(path, json(results)?.as_bytes())?;
        }
        if self.html.is_some() || self.svg.is_some() {
            let charts = charts()?;
            for chart in self.svg.iter().flat_map(|_| &charts) {
                let folder = self.svg.as_deref().unwrap_or(Path::new("."));
                write(&folder.join(format!("{}.svg", chart.name)), chart.svg.as_bytes())?;
            }
            if let Some(path) = &self.html {
                write(path, page(&charts).as_bytes())?;
            }
        }
        for path in &self.markdown {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("reading {}", path.display()))?;
            let text = put(&text).with_context(|| format!("{}", path.display()))?;
            write(path, text.as_bytes())?;
        }
        Ok(())
    }
}

/// A Markdown file with its tables. If `table` returns a text for NAME, the text goes between the
/// line "<!-- WORD NAME -->" and the next "<!-- end -->".
pub(crate) fn put_between(
    file: &str,
    word: &str,
    table: impl Fn(&str) -> Option<String>,
) -> Result<String> {
    let (mut text, mut rest, mut put) = (String::new(), file, false);
    let begin = format!("<!-- {word} ");
    while let Some(at) = rest.find(&begin) {
        let (name, _) = rest[at + begin.len()..]
            .split_once(" -->\n")
            .with_context(|| format!("\"{begin}\" has no end"))?;
        let (before, after) = rest.split_at(at + begin.len() + name.len() + " -->\n".len());
        let end = after
            .find("<!-- end -->")
            .with_context(|| format!("no \"<!-- end -->\" after {begin}{name}"))?;
        let table = table(name).map(|table| format!("\n{table}\n"));
        put |= table.is_some();
        text += before;
        text += table.as_deref().unwrap_or(&after[..end]);
        rest = &after[end..];
    }
    ensure!(put, "there is no line \"{begin}NAME -->\" for any of the tables");
    Ok(text + rest)
}

/// Results as JSON: numbers with five digits, each member of a list on its own line.
pub(crate) fn json(results: &impl Serialize) -> Result<String> {
    let mut value = serde_json::to_value(results)?;
    shorten(&mut value);
    let Value::Object(members) = value else { return Ok(format!("{value}\n")) };
    let members = members.into_iter().map(|(name, value)| match value {
        Value::Array(list) if !list.is_empty() => {
            let lines: Vec<_> = list.iter().map(Value::to_string).collect();
            format!("\"{name}\": [\n  {}\n]", lines.join(",\n  "))
        }
        value => format!("\"{name}\": {value}"),
    });
    Ok(format!("{{\n{}\n}}\n", members.collect::<Vec<_>>().join(",\n")))
}

/// Rounds numbers that are not integers to five digits.
fn shorten(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(shorten),
        Value::Object(members) => members.values_mut().for_each(shorten),
        Value::Number(number) if number.is_f64() => {
            let rounded =
                number.as_f64().and_then(|number| format!("{number:.4e}").parse::<f64>().ok());
            *value = rounded.map_or(Value::Null, Value::from);
        }
        _ => {}
    }
}

/// Prints to standard output. A closed pipe is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("writing")
        }
        _ => Ok(()),
    }
}

/// Writes a file completely or not at all.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = || format!("writing {}", path.display());
    std::fs::create_dir_all(folder).with_context(name)?;
    let mut file =
        tempfile::Builder::new().prefix(".apron-").tempfile_in(folder).with_context(name)?;
    file.write_all(bytes).with_context(name)?;
    let mut permissions = file.as_file().metadata().with_context(name)?.permissions();
    readable(&mut permissions);
    file.as_file().set_permissions(permissions).with_context(name)?;
    file.persist(path).with_context(name)?;
    Ok(())
}

/// A temporary file is readable only by its owner; a result is readable by all.
fn readable(permissions: &mut std::fs::Permissions) {
    #[cfg(unix)]
    std::os::unix::fs::PermissionsExt::set_mode(permissions, 0o644);
    #[cfg(not(unix))]
    permissions.set_readonly(false);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_are_put_between_their_marks_and_no_others() {
        let table = |name: &str| (name != "b").then(|| format!("table {name}\n"));
        let file = "x\n<!-- t a -->\nold\n<!-- end -->\ny\n<!-- t b -->\nkept\n<!-- end -->\nz\n";
        let once = put_between(file, "t", table).unwrap();
        let found =
            "x\n<!-- t a -->\n\ntable a\n\n<!-- end -->\ny\n<!-- t b -->\nkept\n<!-- end -->\nz\n";
        assert_eq!(once, found);
        assert_eq!(put_between(&once, "t", table).unwrap(), once);
        for wrong in ["nothing", "<!-- t b -->\n<!-- end -->\n", "<!-- t a -->\nno end"] {
            assert!(put_between(wrong, "t", table).is_err(), "{wrong}");
        }
    }

    #[test]
    fn json_has_a_line_for_each_row_and_five_digits() {
        let text = json(
            &json!({"rows": [{"us": 1234.5678, "taps": 1234567}, {"us": 1e-9 / 3.0}], "none": [], "x": null}),
        );
        assert_eq!(
            text.unwrap(),
            "{\n\"none\": [],\n\"rows\": [\n  {\"taps\":1234567,\"us\":1234.6},\n  {\"us\":3.3333e-10}\n],\n\"x\": null\n}\n"
        );
    }
}
