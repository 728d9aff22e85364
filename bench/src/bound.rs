//! `bench bound`: the benchmark's rows on GPUs that are not here. What a plan would choose, how
//! long that would take, and how long an ideal kernel would take. All of it is calculated.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use apron::{Bound, Candidate, Device, GpuModel, Plan, Scalar, Shape, Variant};

use crate::cases::{Case, Form, Suite, cases};
use crate::measure::micros;
use crate::{output, text};

/// The options of `bench bound`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The GPU; may be given more than once. All that have a name, unless set.
    #[arg(long)]
    gpu: Vec<GpuModel>,
    /// Only rows whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Write the tables to this file, as Markdown, instead of printing them.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// The greatest ratio to an ideal kernel's time that needs no reason.
const FAR: f64 = 2.5;

/// A row on a GPU.
struct Predicted {
    variant: Variant,
    bound: Bound,
    /// Microseconds of the chosen variant, and of an ideal kernel.
    us: f64,
    ideal: f64,
    /// Whether a plan chooses another variant than on an H200.
    is_other: bool,
}

impl Predicted {
    /// With the variant that a plan chooses on an H200.
    fn of(plan: &Plan, case: &Case, gpu: &GpuModel, on_h200: Option<Variant>) -> Option<Self> {
        let Candidate { variant, predicted, bound, .. } = chosen(plan, case, gpu)?;
        Some(Self {
            variant,
            bound: bound?,
            us: micros(predicted?),
            ideal: ideal(case, gpu),
            is_other: on_h200 != Some(variant),
        })
    }

    fn ratio(&self) -> f64 {
        self.us / self.ideal
    }

    fn cell(&self) -> String {
        let mark = if self.is_other { "\\*" } else { "" };
        format!("{} {:.1}{mark}", text::number(self.us), self.ratio())
    }
}

/// What a plan chooses for a case.
fn chosen(plan: &Plan, case: &Case, gpu: &GpuModel) -> Option<Candidate> {
    // A batch takes about the time of one picture with all rows.
    let shape = Shape { height: case.rows(), ..case.shape() };
    plan.candidates_on(gpu, shape, case.stored, case.target).into_iter().next()
}

/// Microseconds of an ideal kernel. It reads each pixel once and writes each result once, as fast
/// as a copy. It adds up the taps in the way that its results' definition allows, with no other
/// instruction than multiply-adds, at the full rate.
fn ideal(case: &Case, gpu: &GpuModel) -> f64 {
    /// The share of the memory's rate that a copy reaches: an H200.
    const COPY: f64 = 0.85;
    /// Multiply-adds of a result by spectra, two transforms in tiles of N = 1024 x 1024 numbers:
    /// about `2.5 log2 N` operations each, two of them at a time.
    const SPECTRA: f64 = 50.0;
    /// Additions of a result by running sums.
    const SUMS: f64 = 4.0;
    /// The digits of taps for bytes on tensor cores.
    const DIGITS: f64 = 3.0;
    let values = case.values() as f64;
    let memory = values * (case.stored.bytes() + case.target.bytes()) as f64;
    let steps = case.steps(case.form.class()) as f64;
    let is_bytes = (case.stored, case.target) == (Scalar::U8, Scalar::U8);
    // Bytes are rounded correctly, by whatever method. The sums of others are defined by the filter
    // alone: see `Plan::family`.
    let by_spectra = is_bytes || case.form == Form::Random && case.taps > 17;
    let floats = match case.form {
        Form::Mean if is_bytes => SUMS,
        _ if by_spectra => steps.min(SPECTRA),
        _ => steps,
    };
    let by_floats = floats / gpu.float_rate();
    let by_tensor_cores = DIGITS * steps / gpu.tensor_rate();
    let each = if is_bytes { by_floats.min(by_tensor_cores) } else { by_floats };
    1e6 * (values * each).max(memory / (COPY * gpu.bandwidth))
}

/// Why a kernel takes longer than an ideal one, for those that do.
fn reason(variant: Variant, bound: Bound) -> &'static str {
    match (variant, bound) {
        (_, Bound::Start) => {
            "the picture is small: starting kernels, and those that resolve bytes, set the time"
        }
        (Variant::SpectraPasses, Bound::Memory) => {
            "two passes write and read f32 between them, for results of a byte or two"
        }
        (Variant::Separable | Variant::SpectraPasses, Bound::Tensor) => {
            "exact passes, with products of each byte of a sum and each digit of a tap"
        }
        (Variant::SpectraPasses | Variant::Fourier, _) => {
            "a transform's instructions are not multiply-adds alone, its numbers pass through \
             shared memory, and bytes are resolved"
        }
        (Variant::Separable, Bound::Memory) => "two passes write and read f32 between them",
        (Variant::Separable, _) => "rows and columns of many taps, with a load for each",
        (Variant::Matrix, _) => "bands of taps fill part of the matrices; the rest is zeros",
        (Variant::SeparableMatrix, Bound::Memory) => {
            "shared memory holds few strips at a time, too few to keep the memory busy"
        }
        (Variant::SeparableMatrix, _) => {
            "bands of taps fill part of the matrices, and both passes split their sums in digits"
        }
        (
            Variant::DirectSliding | Variant::SeparableFused | Variant::SeparableTile,
            Bound::Memory,
        ) => "the picture is small: the start of kernels takes as long",
        (Variant::DirectSliding | Variant::SeparableFused | Variant::SeparableTile, _) => {
            "bytes are converted, rounded and tested, with as many instructions as multiply-adds"
        }
        _ => "instructions other than multiply-adds",
    }
}

/// Calculates the tables, and prints or writes them.
///
/// # Errors
/// No row has such a name; a file that cannot be written.
pub fn run(options: &Options) -> Result<()> {
    let gpus = if options.gpu.is_empty() { GpuModel::ALL.to_vec() } else { options.gpu.clone() };
    // Gradients are no sums of taps, and have one kernel.
    let is_row = |case: &Case| {
        let has_plan = case.suite != Suite::Cpu && case.form != Form::Gradient;
        has_plan && case.name().contains(&options.only)
    };
    let cases: Vec<_> = cases().into_iter().filter(is_row).collect();
    ensure!(!cases.is_empty(), "no row has a name with {:?}", options.only);
    let mut rows = Vec::new();
    // By variant and bound: how often, the greatest ratio, and where.
    let mut far = BTreeMap::<_, (usize, f64, String)>::new();
    for case in &cases {
        let plan =
            case.filter().and_then(|filter| Plan::builder(filter).device(Device::Cpu).build());
        let plan = plan.with_context(|| case.name())?;
        let on_h200 = chosen(&plan, case, &GpuModel::H200).map(|candidate| candidate.variant);
        let mut row = vec![case.name()];
        for gpu in &gpus {
            let found = Predicted::of(&plan, case, gpu, on_h200);
            row.push(found.as_ref().map_or_else(String::new, Predicted::cell));
            let Some(found) = found.filter(|found| found.ratio() > FAR) else { continue };
            let key =
                (found.variant.name(), found.bound.name(), reason(found.variant, found.bound));
            let (count, most, place) = far.entry(key).or_default();
            *count += 1;
            if found.ratio() > *most {
                (*most, *place) = (found.ratio(), format!("{} on {gpu}", case.name()));
            }
        }
        rows.push(row);
    }
    let header: Vec<_> = ["row"].into_iter().chain(gpus.iter().map(|gpu| gpu.name)).collect();
    let mut page = format!("{PAGE}\n## Rows\n\n{}", text::markdown(&header, 1, &rows));
    let reasons: Vec<_> = far
        .into_iter()
        .map(|((variant, bound, why), (count, most, place))| {
            let most = format!("{most:.1}: {place}");
            vec![variant.to_owned(), bound.to_owned(), why.to_owned(), count.to_string(), most]
        })
        .collect();
    let header = ["variant", "what sets its time", "why an ideal kernel is faster", "rows", "most"];
    let reasons = text::markdown(&header, 3, &reasons);
    write!(page, "\n## More than {FAR} times an ideal kernel's time\n\n{reasons}")?;
    match &options.markdown {
        Some(path) => output::write(path, page.as_bytes()),
        None => output::print(&page),
    }
}

const PAGE: &str = "\
# GPUs that were not measured

`cargo xtask bench bound` calculates these tables. **Nothing here was measured**, but for the
column h200, whose times follow from measurements. Times are microseconds, of pictures in the GPU's
memory. The number behind a time is its ratio to an ideal kernel's: one that reads each pixel once
and writes each result once, as fast as a copy, and does nothing besides but the multiply-adds that
the results' definition needs. A star marks rows for which a plan chooses another variant than on
an H200.

A kernel's time on an H200 has two parts that run at the same time: what it reads and writes, and
what it computes. For another GPU, each is multiplied by the ratio of the two GPUs' rates, and the
longer one counts (`host/src/problem/machine.rs`; the GPUs' figures are in
`host/src/problem/model.rs`, with the boost clock). An H100's measured times follow from an H200's
in this way within a factor of 1.25: a test holds that. Where a GPU's caches are smaller, or its
power limit lowers the clock, it will take longer.

`apron plan --gpu rtx-4060 --filter gaussian:sigma=2 --size 1920x1080x3` prints one row with all
variants, and what sets the time of each.
";
