//! Numbers and tables as text.

use comfy_table::{CellAlignment, Table, presets};

/// A table whose first `left` columns are text and whose others are numbers.
pub(crate) fn table(
    header: &[&str],
    left: usize,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
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

/// A Markdown table whose first `left` columns are text and whose others are numbers.
pub(crate) fn markdown<T: AsRef<str>>(header: &[T], left: usize, rows: &[Vec<String>]) -> String {
    let rule: Vec<_> = (0..header.len()).map(|i| if i < left { "---" } else { "---:" }).collect();
    let header: Vec<_> = header.iter().map(AsRef::as_ref).collect();
    let rows: String = rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
    format!("| {} |\n| {} |\n{rows}", header.join(" | "), rule.join(" | "))
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
