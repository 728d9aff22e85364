//! What is printed and written.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};

/// Prints; a reader that has gone away is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("writing"),
        _ => Ok(()),
    }
}

/// A table whose first `left` columns are text and whose others are numbers.
pub(crate) fn table(header: &[&str], left: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header).add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index >= left {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    lines.concat()
}

/// Writes a file that is there whole or not at all.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = || format!("writing {}", path.display());
    std::fs::create_dir_all(folder).with_context(name)?;
    let mut file = tempfile::Builder::new().prefix(".apron-").tempfile_in(folder).with_context(name)?;
    file.write_all(bytes).with_context(name)?;
    let mut permissions = file.as_file().metadata().with_context(name)?.permissions();
    readable(&mut permissions);
    file.as_file().set_permissions(permissions).with_context(name)?;
    file.persist(path).with_context(name)?;
    Ok(())
}

/// A temporary file is its owner's alone; a result is for everyone to read.
fn readable(permissions: &mut std::fs::Permissions) {
    #[cfg(unix)]
    std::os::unix::fs::PermissionsExt::set_mode(permissions, 0o644);
    #[cfg(not(unix))]
    permissions.set_readonly(false);
}

/// A number with about three digits.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// A number for an axis: no more digits than it needs.
pub(crate) fn short(value: f64) -> String {
    if value >= 1e3 { format!("{value:.0}") } else { format!("{}", (value * 1e3).round() / 1e3) }
}

/// Text for XML and HTML, in elements and attributes.
pub(crate) fn escape(text: &str) -> String {
    let escaped = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}
