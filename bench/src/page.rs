//! The page with a run's table and charts: one file that needs no other.

use std::fmt::Write as _;

use crate::chart::Chart;
use crate::report::Report;
use crate::text::escape;

const STYLE: &str = ":root{color-scheme:light dark;--ink:#222;--paper:#fff;--line:#ddd;--good:#1a7f37;--bad:#b3261e}\
    @media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#161616;--line:#3a3a3a;--good:#56c271;--bad:#ff8a80}}\
    body{font:14px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1500px;margin:2em auto;padding:0 1em}\
    table{border-collapse:collapse;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}\
    th,td{padding:2px 10px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\
    .t{text-align:left}.good{color:var(--good)}.bad{color:var(--bad)}pre{white-space:pre-wrap}\
    figure{display:inline-block;margin:1em 1em 0 0;max-width:100%}svg{max-width:100%;height:auto}";

/// The page.
pub(crate) fn write(report: &Report, fallback: &str, charts: &[Chart]) -> String {
    let mut page = format!("<pre>{}</pre>\n", escape(report.heading(fallback).trim_end()));
    let (header, left, rows) = report.cells();
    page += &table(header, left, rows);
    if !report.duels.is_empty() {
        let rows = report.duels.iter().map(|duel| {
            let verdict = if duel.ratio > 1.0 { "slower" } else { "faster" };
            let figures = [duel.ours_us, duel.rival_us].map(|us| format!("{us:.1}"));
            let names = [&duel.case, duel.class.name(), &duel.device, &duel.ours, &duel.rival];
            let ratio = format!("{:.2}", duel.ratio);
            names
                .map(str::to_owned)
                .into_iter()
                .chain(figures)
                .chain([ratio, verdict.to_owned()])
                .collect()
        });
        let header =
            ["case", "taps", "device", "ours", "best rival", "ours us", "rival us", "ratio", ""];
        page += "<h2>Compared with the best rival</h2>\n";
        page += &table(&header, 5, rows);
    }
    if !charts.is_empty() {
        page += "<h2>Charts</h2>\n";
    }
    for chart in charts {
        page += &figure(chart);
    }
    if !report.skipped.is_empty() {
        page += "<h2>Left out</h2>\n<ul>\n";
        for skipped in &report.skipped {
            let _ = writeln!(page, "<li>{}: {}</li>", escape(&skipped.what), escape(&skipped.why));
        }
        page += "</ul>\n";
    }
    document("apron: benchmark", &page)
}

/// A whole HTML document.
pub(crate) fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width\"/><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n{body}</body></html>\n"
    )
}

/// A chart on a page.
pub(crate) fn figure(chart: &Chart) -> String {
    format!("<figure aria-label=\"{}\">{}</figure>\n", escape(&chart.title), chart.svg)
}

pub(crate) fn table(
    header: &[&str],
    left: usize,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut text = "<table>\n".to_owned();
    let mut line = |tag: &str, cells: &[&str]| {
        text += "<tr>";
        for (index, cell) in cells.iter().enumerate() {
            let class = match *cell {
                "reached" | "faster" => "good",
                "missed" | "slower" => "bad",
                _ if index < left => "t",
                _ => "n",
            };
            let _ = write!(text, "<{tag} class=\"{class}\">{}</{tag}>", escape(cell));
        }
        text += "</tr>\n";
    };
    line("th", header);
    for row in rows {
        line("td", &row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text + "</table>\n"
}

#[cfg(test)]
mod tests {
    use crate::report::tests::sample;
    use crate::{charts, page};

    #[test]
    fn the_page_is_well_formed_and_has_every_row() {
        let mut report = sample("8192x8192-5x5");
        report.rows.extend(sample("8192x8192-17x17").rows);
        let charts = charts::draw(&report).unwrap();
        let page = page::write(&report, "", &charts);
        let options =
            roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
        let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
        let count = |name: &str| {
            document.descendants().filter(|node| node.tag_name().name() == name).count()
        };
        assert_eq!(count("tr"), report.rows.len() + report.duels.len() + 2);
        assert_eq!(count("svg"), charts.len());
        assert!(document.descendants().any(|node| node.text() == Some("NPP <1> & \"2\"")));
        assert!(
            !page.contains("http://") || page.matches("http://").count() == charts.len(),
            "only the SVG namespace"
        );
    }
}
