//! `apron plan`: which variant would run, its predicted time, and why the others would not run.
//! With `--device auto` also on which device.

use std::io::{self, Write};
use std::time::Duration;

use apron::{Bound, CallEstimate, Candidate, Device, Error, Plan, Work};

use crate::args::PlanArgs;
use crate::failure::Result;
use crate::info::why_no_gpu;
use crate::output::print;

pub(crate) fn run(args: &PlanArgs) -> Result {
    let filter = args.choice.filter()?;
    let on = |device| {
        let builder = Plan::builder(&filter).accuracy(args.accuracy).autotune(args.autotune);
        builder.device(device).build()
    };
    let open = args.device == Device::Auto && args.gpu.is_none() && !args.autotune;
    let estimated = if open { Some(Estimated::new(&on(Device::Auto)?, args)) } else { None };
    let device = match (&estimated, args.device) {
        (Some(estimated), _) => estimated.usual(),
        // Only GPUs are measured.
        (None, Device::Auto) if args.autotune => Device::Gpu(0),
        (None, device) => device,
    };
    let plan = match on(device) {
        Err(Error::NoGpu { .. }) if args.device == Device::Auto => on(Device::Cpu)?,
        plan => plan?,
    };
    let (source, target) = (args.scalar, args.output_type.unwrap_or(args.scalar));
    let chosen = plan.variant_of(args.size, source, target)?;
    let (place, candidates) = match &args.gpu {
        Some(gpu) => (gpu.to_string(), plan.candidates_on(gpu, args.size, source, target)),
        None => (plan.device().to_string(), plan.candidates_for(args.size, source, target)),
    };
    let chosen = if args.gpu.is_some() { candidates[0].variant } else { chosen };
    let product = match filter.summed().map(|(centre, terms)| (centre != 0.0, terms.len())) {
        _ if filter.is_separable() => "separable",
        Some((true, 1)) => "separable plus a multiple of the pixel itself",
        Some(_) => "the sum of two separable filters",
        None => "not separable",
    };
    print(|out| {
        let types =
            if source == target { source.to_string() } else { format!("{source} to {target}") };
        writeln!(
            out,
            "{}x{} taps, {product}; {} of {types} on {place}",
            filter.cols(),
            filter.rows(),
            args.size
        )?;
        estimated.as_ref().map_or(Ok(()), |estimated| estimated.write(out, args))?;
        let shortest = candidates.iter().filter_map(|candidate| candidate.predicted).min();
        candidates.iter().try_for_each(|candidate| {
            let verdict = match (chosen == candidate.variant, args.autotune) {
                (false, _) => "",
                (true, true) => "  <- chosen: measured here, the fastest",
                (true, false) if candidate.predicted == shortest => {
                    "  <- chosen: the shortest time"
                }
                (true, false) => "  <- chosen: the least work",
            };
            writeln!(out, "  {}{verdict}", line(candidate))
        })
    })
}

fn line(candidate: &Candidate) -> String {
    let time = match (&candidate.declined, candidate.predicted) {
        (Some(reason), _) => format!("{:>12}  {reason}", "-"),
        (None, None) => format!("{:>12}", "unknown"),
        (None, Some(time)) => {
            let bound = candidate.bound.map_or("", Bound::name);
            format!("{:>12}  {bound}", show(time)).trim_end().to_owned()
        }
    };
    format!("{:<16} {time}", candidate.variant.name())
}

fn show(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 0.01 => format!("{:.1} us", seconds * 1e6),
        seconds => format!("{:.1} ms", seconds * 1e3),
    }
}

/// The estimates by which `auto` chooses a device.
struct Estimated {
    /// The estimates before a GPU is open, and after.
    first: CallEstimate,
    open: CallEstimate,
    /// Why the GPU cannot be opened.
    failed: Option<Error>,
}

impl Estimated {
    fn new(plan: &Plan, args: &PlanArgs) -> Self {
        let work = Work {
            shape: args.size,
            source: args.scalar,
            target: args.output_type.unwrap_or(args.scalar),
            pictures: args.pictures.get() as usize,
            pinned: args.pinned,
        };
        let first = plan.estimate(&work);
        // Opening the GPU also measures the link.
        #[cfg(feature = "gpu")]
        let failed = first.gpu.as_ref().and_then(|_| apron::gpu::Gpu::open(0).err());
        #[cfg(not(feature = "gpu"))]
        let failed = None;
        Self { open: plan.estimate(&work), first, failed }
    }

    /// The device of calls once a GPU is open.
    fn usual(&self) -> Device {
        match (self.open.cpu, &self.open.gpu) {
            _ if self.failed.is_some() => Device::Cpu,
            (Some(cpu), Some(gpu)) if gpu.total < cpu => Device::Gpu(0),
            (None, Some(_)) => Device::Gpu(0),
            _ => Device::Cpu,
        }
    }

    fn write(&self, out: &mut dyn Write, args: &PlanArgs) -> io::Result<()> {
        let memory = if args.pinned { "pinned" } else { "ordinary" };
        let pictures = if args.pictures.get() > 1 {
            format!("{} pictures", args.pictures)
        } else {
            "a picture".into()
        };
        writeln!(out, "  {pictures} of {}, from {memory} memory to {memory} memory", args.scalar)?;
        let threads = self.open.threads;
        let threads =
            if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        match self.open.cpu {
            Some(time) => writeln!(out, "    cpu    {:>10}  {threads}", show(time))?,
            None => writeln!(out, "    cpu    {:>10}  it cannot run this variant", "-")?,
        }
        let gpu = match (&self.failed, &self.open.gpu) {
            (None, Some(gpu)) => gpu,
            (failed, _) => {
                let why = failed.as_ref().map_or_else(|| self.open.why.clone(), why_no_gpu);
                return writeln!(out, "    gpu:0  {:>10}  {why}", "-");
            }
        };
        let (link, kernel, staging) = (show(gpu.link), show(gpu.kernel), show(gpu.staging));
        let rates = gpu.measured.map_or_else(String::new, |(up, down)| {
            format!(" ({:.1} GB/s up, {:.1} GB/s down)", up / 1e9, down / 1e9)
        });
        writeln!(
            out,
            "    gpu:0  {:>10}  link {link}{rates}, kernel {kernel}, staging {staging}, calls {}",
            show(gpu.total),
            show(gpu.call)
        )?;
        let opening = self.first.gpu.as_ref().map_or(Duration::ZERO, |gpu| gpu.opening);
        writeln!(
            out,
            "    once: {} to open gpu:0, {} for a plan's first call there",
            show(opening),
            show(gpu.setup)
        )?;
        writeln!(out, "    a program's first call: {}, {}", self.first.device, self.first.why)?;
        writeln!(out, "    when gpu:0 is open: {}, {}", self.open.device, self.open.why)?;
        writeln!(out, "    in the long run: {}", self.usual())
    }
}
