//! The benchmark of apron, behind `cargo xtask bench`.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`cases`] | the benchmark's problems, as data |
//! | [`bench`](mod@bench) | runs the cases: checks each result, then measures |
//! | `compilers` | the embedded kernels compared with those of a PTX file |
//! | `jobs` | thirty jobs on the CPU, on the GPU and where the library chooses |
//! | [`flow`], `lanes` | times from host memory to host memory; a timeline drawing |
//! | [`plan`] | predicted times beside measured ones |
//! | [`cliffs`] | 8-bit results beside f32 results: where they are slow |
//! | [`cores`] | jobs with more and more threads, which must not take longer |
//! | [`ladder`] | the steps of other documents, `sources`, with their published times; `ladder_report` shows them |
//! | [`measure`] | times on a GPU's stream and on the CPU |
//! | `contest` | all contenders on one problem: checked, then timed round by round |
//! | `check` | compares results with the oracle, with checksums, with each other |
//! | `pictures` | a contest on pictures in a GPU's memory, of any stored type |
//! | `peers`, `linked` | other libraries: through Python, and linked in |
//! | `report`, `charts`, `page`, `text`, `output` | output: tables, JSON, SVG, HTML |
//!
//! The program needs no source tree: it finds pictures by `--assets`, and kernels are embedded in
//! it.

pub mod bench;
pub mod bound;
pub mod cases;
mod chart;
mod charts;
mod check;
pub mod cliffs;
mod compilers;
mod contents;
mod contest;
pub mod cores;
pub mod flow;
mod jobs;
pub mod ladder;
mod ladder_report;
mod lanes;
mod linked;
pub mod measure;
mod output;
mod page;
mod peers;
mod pictures;
pub mod plan;
mod report;
mod sources;
mod special;
mod text;

use apron::{Error, Family};
use oracle::Order;

/// A family's name in tables, for the CPU: all variants of a family are the same code there.
fn family_name(family: Family) -> &'static str {
    Order::of(family).map_or("fourier", Order::name)
}

/// Why the CPU is used, for a heading.
fn why(error: &Error) -> String {
    match error {
        Error::NoGpu { reason } => format!("; no GPU: {reason}"),
        other => format!("; no GPU: {other}"),
    }
}
