//! A timeline of lanes: the operations of a run from host memory to host memory, over time.

use std::fmt::Write;
use std::time::Duration;

use apron::gpu::{Span, What};

use crate::charts::STYLE;
use crate::text::escape;

/// Width of the time axis, and of the names beside it.
const WIDTH: f64 = 1180.0;
const NAMES: f64 = 120.0;

/// Height of a line of boxes; a lane has two, the host's and the device's.
const LINE: f64 = 16.0;

/// Each operation: its description, its line within a lane, its colour.
const KINDS: [(What, &str, usize, &str); 5] = [
    (What::Stage, "stage: ordinary to pinned memory", 0, "#d96a1c"),
    (What::Drain, "drain: pinned to ordinary memory", 0, "#a88a12"),
    (What::Upload, "upload", 1, "#2f7ed8"),
    (What::Kernel, "kernels", 1, "#2c9a5b"),
    (What::Download, "download", 1, "#8b6fd6"),
];

/// Draws the spans of one run as SVG.
pub(crate) fn draw(title: &str, spans: &[Span]) -> String {
    let mut lanes: Vec<_> = spans.iter().map(|span| (span.gpu, span.lane)).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let first = spans.iter().map(|span| span.start).min().unwrap_or_default();
    let end = spans.iter().map(|span| span.end).max().unwrap_or_default();
    let total = end.saturating_sub(first).as_secs_f64().max(1e-9);
    let x = |time: Duration| NAMES + WIDTH * time.saturating_sub(first).as_secs_f64() / total;
    let top = 64.0;
    let lane_height = 2.0 * LINE + 8.0;
    let height = top + lane_height * lanes.len() as f64 + 40.0;

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-size=\"11\">\n<style>{STYLE}</style>\n\
         <text x=\"8\" y=\"18\" font-size=\"14\" fill=\"#010203\">{}</text>\n",
        NAMES + WIDTH + 20.0,
        escape(title)
    );
    let mut put = |text: String| {
        // Writing to a string does not fail.
        let _ = svg.write_str(&text);
    };
    let mut at = 8.0;
    for (_, name, _, colour) in KINDS {
        put(format!("<rect x=\"{at}\" y=\"30\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\n"));
        put(format!("<text x=\"{}\" y=\"39\" fill=\"#010203\">{name}</text>\n", at + 14.0));
        at += 34.0 + 6.0 * name.len() as f64;
    }
    let step = tick(total * 1e6);
    let ticks = (total * 1e6 / step) as usize;
    for tick in 0..=ticks {
        let us = tick as f64 * step;
        let x = NAMES + WIDTH * us / (total * 1e6);
        put(format!(
            "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#030201\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#010203\">{us} us</text>\n",
            height - 36.0,
            height - 20.0
        ));
    }
    for (number, &(gpu, lane)) in lanes.iter().enumerate() {
        let y = top + lane_height * number as f64;
        put(format!(
            "<text x=\"8\" y=\"{:.1}\" fill=\"#010203\">GPU {gpu}, lane {lane}</text>\n",
            y + LINE + 4.0
        ));
        for span in spans.iter().filter(|span| (span.gpu, span.lane) == (gpu, lane)) {
            let Some((_, name, line, colour)) = KINDS.into_iter().find(|kind| kind.0 == span.what)
            else {
                continue;
            };
            let (from, to) = (x(span.start), x(span.end));
            let (picture, rows) = (span.picture, &span.rows);
            let took = span.end.saturating_sub(span.start).as_secs_f64() * 1e6;
            put(format!(
                "<rect x=\"{from:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{}\" fill=\"{colour}\" fill-opacity=\"0.85\">\
                 <title>{name}, picture {picture}, rows {} to {}: {took:.1} us</title></rect>\n",
                y + LINE * line as f64,
                (to - from).max(0.3),
                LINE - 1.0,
                rows.start,
                rows.end
            ));
        }
    }
    put(format!(
        "<text x=\"8\" y=\"{:.1}\" fill=\"#010203\">What runs on the device begins, here, when its lane's work before it has ended: a wait \
         for a copy engine or for multiprocessors that other lanes use is a part of it.</text>\n</svg>\n",
        height - 5.0
    ));
    svg
}

/// A round number that fits about ten times into `total`.
fn tick(total: f64) -> f64 {
    let rough = (total / 10.0).max(0.1);
    let power = 10f64.powf(rough.log10().floor());
    let factor =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough).unwrap_or(10.0);
    factor * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_is_drawn_where_it_belongs() {
        let span = |gpu, lane, what, start, end| Span {
            gpu,
            lane,
            picture: 0,
            rows: 10..20,
            what,
            start: Duration::from_micros(start),
            end: Duration::from_micros(end),
        };
        let spans = [
            span(0, 0, What::Stage, 100, 200),
            span(0, 0, What::Upload, 200, 300),
            span(0, 1, What::Kernel, 300, 400),
            span(1, 0, What::Download, 400, 500),
            span(1, 0, What::Drain, 500, 1100),
        ];
        let svg = draw("a <run> & more", &spans);
        let tree = roxmltree::Document::parse(&svg).unwrap();
        let boxes: Vec<_> = tree
            .descendants()
            .filter(|node| node.children().any(|child| child.has_tag_name("title")))
            .collect();
        assert_eq!(boxes.len(), spans.len());
        let number = |node: &roxmltree::Node<'_, '_>, name| {
            node.attribute(name).unwrap().parse::<f64>().unwrap()
        };
        for (node, span) in boxes.iter().zip([0, 1, 2, 3, 4].map(|i: usize| &spans[i])) {
            let from = NAMES + WIDTH * (span.start.as_micros() as f64 - 100.0) / 1000.0;
            assert!((number(node, "x") - from).abs() < 0.01, "{span:?}");
            let width = WIDTH * (span.end - span.start).as_micros() as f64 / 1000.0;
            assert!((number(node, "width") - width).abs() < 0.01, "{span:?}");
        }
        // The first two share a lane, not a line; the third has a lane of its own.
        assert_eq!(number(&boxes[1], "y") - number(&boxes[0], "y"), LINE);
        assert!(number(&boxes[2], "y") > number(&boxes[1], "y") + LINE - 1.0);
        assert_eq!((tick(1000.0), tick(3800.0), tick(12.0)), (100.0, 500.0, 2.0));
        // Nothing to draw is no error.
        assert!(roxmltree::Document::parse(&draw("", &[])).is_ok());
    }
}
