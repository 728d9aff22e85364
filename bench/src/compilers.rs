//! `bench --compare-compilers`: the embedded kernels compared with those of a PTX file, in one run.
//!
//! The driver compiles both from PTX, so one assembler makes the code of both. They alternate. If
//! the order of operations is fixed, every bit of their results must agree.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use apron::gpu::{Gpu, Kernels, embedded, use_kernels};
use apron::{Border, Device, Error, Image, Plan, Variant};
use kernel_builder::module::instructions;
use oracle::Order;
use serde::Serialize;

use crate::cases::{Case, Suite};
use crate::contest::{Contender, Must, OnGpu, Problem};
use crate::measure::{median, micros};
use crate::{check, text};

/// The results of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    gpu: String,
    driver: (u32, u32),
    /// The embedded kernels' compiler, and the file's.
    compilers: [String; 2],
    /// Entries that the file lacks; for these, both sides run the embedded kernel.
    missing: Vec<&'static str>,
    rows: Vec<Row>,
    entries: Vec<Entry>,
}

/// A variant's times in a case.
#[derive(Debug, Serialize)]
struct Row {
    case: String,
    variant: &'static str,
    median_us: [f64; 2],
    /// Whether every bit of both results is the same.
    same_bits: bool,
    /// The greatest difference between the results, and the bound for it.
    difference: f64,
    bound: f64,
}

/// The cost of an entry.
#[derive(Debug, Default, Serialize)]
struct Entry {
    entry: &'static str,
    /// Registers of a thread.
    registers: [u32; 2],
    /// Bytes of a thread's local memory.
    local: [u32; 2],
    /// Instructions in PTX.
    instructions: [usize; 2],
    /// How long the driver took to compile it.
    load_ms: [f64; 2],
}

/// Runs each case's variants with both sets of kernels.
pub(crate) fn compare(
    ordinal: u32,
    file: &Path,
    cases: &[&Case],
    rounds: usize,
    large: bool,
) -> Result<Comparison> {
    let gpu = Gpu::open(ordinal)?;
    let tier = embedded()
        .iter()
        .find(|tier| tier.arch == gpu.tier())
        .context("the GPU's tier is embedded")?;
    let sides = [Kernels::embedded(tier)?, Kernels::read(file)?];
    let mut comparison = Comparison {
        gpu: gpu.info().name.clone(),
        driver: gpu.info().driver,
        compilers: sides.map(|side| side.compiler().to_owned()),
        missing: sides[1].missing().collect(),
        rows: Vec::new(),
        entries: Vec::new(),
    };
    for case in cases.iter().filter(|case| case.suite == Suite::Gpu && (large || !case.large)) {
        eprintln!("{}", case.name());
        let rows = on_case(ordinal, &gpu, case, sides, rounds)
            .with_context(|| format!("case {}", case.name()))?;
        comparison.rows.extend(rows);
    }
    use_kernels(None);
    comparison.entries = entries(&gpu, sides)?;
    Ok(comparison)
}

fn on_case(
    ordinal: u32,
    gpu: &Gpu,
    case: &Case,
    sides: [&'static Kernels; 2],
    rounds: usize,
) -> Result<Vec<Row>> {
    let filter = case.filter()?;
    let src = Image::from_vec(case.pixels::<f32>(), case.width, case.height, case.channels)?;
    let problem = Problem { filter: &filter, border: Border::default(), src: &src };
    let mut contest = OnGpu::new(gpu, problem, gpu.upload(&src.view())?)?;
    let mut rows = Vec::new();
    for variant in Variant::all().filter(|variant| !variant.takes_only_bytes()) {
        let plan = Plan::builder(&filter).device(Device::Gpu(ordinal)).variant(variant).build();
        let plan = match plan.and_then(|plan| plan.variant_for(src.shape()).map(|_| plan)) {
            Err(Error::Unsupported { .. }) => continue,
            plan => Rc::new(plan?),
        };
        let family = variant.family();
        let mut enter = |side: &'static Kernels, must: Must| {
            let plan = Rc::clone(&plan);
            contest.enter(Contender {
                name: format!("{variant} by {}", side.compiler()),
                must,
                run: Box::new(move |src, dst, stream| {
                    use_kernels(Some(side));
                    plan.run_on_device(src, dst, stream)
                }),
            })
        };
        // Wrong results of the file's kernels are no error here: the table shows them.
        let own = enter(sides[0], Must::of(Order::of(family), case.sum(family)))?;
        let other = enter(sides[1], Must::Unjudged)?;
        rows.push(Row {
            case: case.name(),
            variant: variant.name(),
            median_us: [0.0; 2],
            same_bits: check::same(&other, &own).is_ok(),
            difference: check::difference(&other, &own),
            bound: if Order::of(family).is_some() {
                0.0
            } else {
                2.0 * check::tolerance(&filter, &src)
            },
        });
    }
    let times = contest.time(rounds)?;
    for (row, pair) in rows.iter_mut().zip(times.entries.chunks(2)) {
        row.median_us = [&pair[0], &pair[1]].map(|entry| micros(median(entry.times.clone())));
    }
    Ok(rows)
}

/// The entries that were loaded from both.
fn entries(gpu: &Gpu, sides: [&'static Kernels; 2]) -> Result<Vec<Entry>> {
    let mut entries = BTreeMap::<_, Entry>::new();
    for kernel in gpu.loaded()? {
        let side =
            sides.iter().position(|side| kernel.from.is_some_and(|from| std::ptr::eq(from, *side)));
        let Some(i) = side else { continue };
        let entry = entries.entry(kernel.entry).or_default();
        entry.entry = kernel.entry;
        entry.registers[i] = kernel.registers;
        entry.local[i] = kernel.local;
        entry.load_ms[i] = kernel.time.as_secs_f64() * 1e3;
        let ptx = sides[i].entries().find(|(name, _)| *name == kernel.entry);
        entry.instructions[i] = ptx.map_or(0, |(_, ptx)| instructions(ptx));
    }
    Ok(entries
        .into_values()
        .filter(|entry| entry.registers.iter().all(|&registers| registers > 0))
        .collect())
}

impl Row {
    fn is_right(&self) -> bool {
        self.same_bits || (self.bound > 0.0 && self.difference <= self.bound)
    }

    fn verdict(&self) -> String {
        match (self.same_bits, self.is_right()) {
            (true, _) => "same bits".into(),
            (false, true) => format!("off by {:.1e}, may be {:.1e}", self.difference, self.bound),
            (false, false) => format!("WRONG: off by {:.1e}", self.difference),
        }
    }
}

impl Comparison {
    /// The tables.
    pub(crate) fn text(&self) -> String {
        let [own, other] = &self.compilers;
        let mut text = format!(
            "{}, driver for CUDA {}.{}\nA: {own}, embedded\nB: {other}, from the file\n",
            self.gpu, self.driver.0, self.driver.1
        );
        if !self.missing.is_empty() {
            text += &format!(
                "Not in the file, and so A's in both columns: {}\n",
                self.missing.join(" ")
            );
        }
        let rows = self.rows.iter().map(|row| {
            let [a, b] = row.median_us;
            let times = [a, b, b / a].map(text::number);
            [vec![row.case.clone(), row.variant.to_owned(), row.verdict()], times.to_vec()].concat()
        });
        text += "\n";
        text += &text::table(&["case", "variant", "results", "A, us", "B, us", "B / A"], 3, rows);
        let entries = self.entries.iter().map(|entry| {
            let pair = |pair: [String; 2]| pair.to_vec();
            let mut cells = vec![entry.entry.to_owned()];
            cells.extend(pair(entry.registers.map(|count| count.to_string())));
            cells.extend(pair(entry.local.map(|bytes| bytes.to_string())));
            cells.extend(pair(entry.instructions.map(|count| count.to_string())));
            cells.extend(pair(entry.load_ms.map(text::number)));
            cells
        });
        let header = [
            "entry",
            "registers A",
            "B",
            "local bytes A",
            "B",
            "PTX instructions A",
            "B",
            "load, ms A",
            "B",
        ];
        text += "\n";
        text += &text::table(&header, 1, entries);
        text
    }

    /// Whether all results agree as they must.
    pub(crate) fn verify(&self) -> Result<()> {
        let wrong: Vec<_> = self
            .rows
            .iter()
            .filter(|row| !row.is_right())
            .map(|row| format!("{} {}", row.case, row.variant))
            .collect();
        ensure!(wrong.is_empty(), "the compilers' results differ: {}", wrong.join(", "));
        ensure!(!self.rows.is_empty(), "nothing was compared");
        Ok(())
    }
}
