//! `bench`: checks every case, then measures it.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use apron::gpu::Gpu;
use apron::{Accuracy, Border, Device, Error, Family, Image, Plan, Scalar, Step, Variant, f16};
use oracle::Order;

use crate::cases::{Case, Class, Form, Random, Suite, cases};
use crate::contest::{Contender, Entry, Must, OnCpu, OnGpu, Problem};
use crate::linked::{Beside, Linked, linked};
use crate::measure::Turn;
use crate::peers::{Found, On, Peers, Taker};
use crate::pictures::{CHOSEN, OF_RANGE, Pictures};
use crate::report::{CpuReport, GpuReport, Report, Row, Rows, Skipped, Who, duels};
use crate::{charts, compilers, family_name, output, page, why};

/// The benchmark's options.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where to measure: auto, cpu, gpu:N. With a GPU, the CPU is measured in small cases.
    #[arg(long, default_value = "auto")]
    device: Device,
    /// Only cases whose name contains this text, such as 8192x8192, or one of several texts
    /// separated by commas: f32-,u8 are the cases of docs/cpu.md.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter_case: String,
    /// Also measure cases of up to 32768x32768 pixels.
    #[arg(long)]
    large: bool,
    /// Also measure other libraries, if they are installed: on the GPU NPP, cuDNN, cuFFT, CuPy and
    /// CV-CUDA, on the CPU OpenCV and SciPy, all through python3; and, in a build with feature
    /// "peers", imageproc, libblur and image.
    #[arg(long)]
    peers: bool,
    /// Instead, compare the embedded kernels with those of a PTX file: times, registers,
    /// instructions, load time, and whether results agree.
    #[arg(long, requires = "ptx", conflicts_with_all = ["peers", "html", "svg", "markdown"])]
    compare_compilers: bool,
    /// The PTX file, as `cargo xtask ptx --compiler rust-cuda --arch sm_90 --out FILE` writes it.
    #[arg(long, value_name = "FILE", requires = "compare_compilers")]
    ptx: Option<PathBuf>,
    #[command(flatten)]
    common: output::Common,
}

/// The most multiply-adds with which the CPU measures a case of the GPU's suite: where there is a
/// GPU; on the CPU alone in few rounds; on the CPU alone in all rounds.
const CPU_WORK: [usize; 3] = [1 << 28, 1 << 31, 1 << 32];

/// The most runs of a contender on the CPU.
const TURNS: usize = 7;

/// The most values with which launch overhead matters: such cases are also replayed from graphs.
const SMALL: usize = 1 << 22;

/// The variants that are measured on pictures beside the one that a plan chooses.
const FAST: [Variant; 10] = [
    Variant::DirectUnrolled,
    Variant::DirectSliding,
    Variant::Separable,
    Variant::SeparableTile,
    Variant::SeparableFused,
    Variant::Fourier,
    Variant::Matrix,
    Variant::SeparableMatrix,
    Variant::RunningSums,
    Variant::SpectraPasses,
];

/// Runs the benchmark and prints its table.
///
/// # Errors
/// If no case has the name, if a result is wrong, or if something fails.
pub fn run(options: &Options) -> Result<()> {
    let all = cases();
    let chosen: Vec<_> = all
        .iter()
        .filter(|case| options.filter_case.split(',').any(|part| case.name().contains(part)))
        .collect();
    ensure!(
        !chosen.is_empty(),
        "no case's name contains \"{}\"; there are: {}",
        options.filter_case,
        all.iter().map(Case::name).collect::<Vec<_>>().join(", ")
    );
    if let Some(file) = &options.ptx {
        return options.compare(file, &chosen);
    }
    let mut fallback = String::new();
    let gpu = match options.device {
        Device::Cpu => None,
        Device::Gpu(ordinal) => Some((ordinal, Gpu::open(ordinal)?)),
        Device::Gpus(_) | Device::AllGpus => {
            bail!("kernels are measured on one GPU: name it with gpu:N")
        }
        Device::Auto => match Gpu::open(0) {
            Ok(gpu) => Some((0, gpu)),
            Err(error @ (Error::NoGpu { .. } | Error::NoSuchGpu { .. })) => {
                fallback = why(&error);
                None
            }
            Err(error) => return Err(error.into()),
        },
    };
    let peak = gpu.as_ref().map(|(_, gpu)| gpu.fma_peak()).transpose()?;
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION"),
        gpu: gpu.as_ref().map(|(_, gpu)| GpuReport::new(gpu, peak)),
        cpu: CpuReport::new(),
        rounds: match (options.common.quick, gpu.is_some()) {
            (true, _) => 3,
            (false, true) => 21,
            (false, false) => TURNS,
        },
        rows: Vec::new(),
        duels: Vec::new(),
        skipped: Vec::new(),
    };
    output::print(&report.heading(&fallback))?;
    let mut peers = None;
    if options.peers {
        let on = match &gpu {
            Some((ordinal, gpu)) => On::Gpu(*ordinal, gpu.info().l2_cache),
            None => On::Cpu(report.cpu.threads),
        };
        peers = Some(start_peers(on, &mut report.skipped)?);
    }
    for case in chosen {
        let bench = Bench { case, quick: options.common.quick, rounds: report.rounds };
        let mut left_out =
            |why: &str| report.skipped.push(Skipped { what: case.name(), why: why.to_owned() });
        if case.large && !options.large {
            left_out("large; --large includes it");
            continue;
        }
        if gpu.is_some() && case.suite == Suite::Cpu {
            if !options.filter_case.is_empty() {
                left_out("for the CPU; --device cpu measures it");
            }
            continue;
        }
        if gpu.is_none() && case.is_compared() {
            if !options.filter_case.is_empty() {
                left_out("for a GPU");
            }
            continue;
        }
        let most = if gpu.is_some() {
            CPU_WORK[0]
        } else {
            CPU_WORK[2 - usize::from(options.common.quick)]
        };
        let small =
            case.suite == Suite::Gpu && case.values() * case.steps(case.form.class()) <= most;
        let on_cpu = case.suite == Suite::Cpu || small;
        if gpu.is_none() && !on_cpu {
            left_out("too much for the CPU in reasonable time");
            continue;
        }
        let context = || format!("case {}", case.name());
        eprintln!("{}", case.name());
        // The CPU's peers run only where no GPU is measured.
        if on_cpu {
            let peers = if gpu.is_none() { peers.as_mut() } else { None };
            let with_linked = options.peers && gpu.is_none();
            let rows = match case.stored {
                Scalar::U8 => bench.on_cpu::<u8>(peers, with_linked, &mut report.skipped),
                Scalar::F32 => bench.on_cpu::<f32>(peers, with_linked, &mut report.skipped),
                // Only pictures in a GPU's memory have these types.
                Scalar::U16 | Scalar::F16 => Ok(Vec::new()),
            };
            report.rows.extend(rows.with_context(context)?);
        }
        if let Some((ordinal, gpu)) = &gpu {
            let (peers, skipped) = (peers.as_mut(), &mut report.skipped);
            let rows = match (case.suite, case.stored, case.target) {
                (Suite::Pictures | Suite::Wide, Scalar::U8, Scalar::U8) => {
                    bench.pictures::<u8, u8>(*ordinal, gpu, peak, peers, skipped)
                }
                (Suite::Pictures | Suite::Wide, Scalar::U8, _) => {
                    bench.pictures::<u8, f32>(*ordinal, gpu, peak, peers, skipped)
                }
                (Suite::Pictures | Suite::Wide, Scalar::U16, _) => {
                    bench.pictures::<u16, u16>(*ordinal, gpu, peak, peers, skipped)
                }
                (Suite::Pictures | Suite::Wide, Scalar::F16, _) => {
                    bench.pictures::<f16, f16>(*ordinal, gpu, peak, peers, skipped)
                }
                (Suite::Pictures | Suite::Wide, Scalar::F32, _) => {
                    bench.pictures::<f32, f32>(*ordinal, gpu, peak, peers, skipped)
                }
                _ => bench.on_gpu(*ordinal, gpu, peak, peers, skipped),
            };
            report.rows.extend(rows.with_context(context)?);
        }
    }
    report.duels = duels(&report.rows);
    output::print(&format!("\n{}", report.text()))?;
    let put = |file: &str| {
        output::put_between(file, "bench", |names| match names {
            "pictures" => report.pictures(),
            "wide" => report.wide(),
            names => report.beside(names),
        })
    };
    options.common.write(
        &report,
        || charts::draw(&report),
        |charts| page::write(&report, &fallback, charts),
        put,
    )
}

/// Finds the libraries, and prints which are installed.
fn start_peers(on: On, skipped: &mut Vec<Skipped>) -> Result<Peers> {
    let peers = Peers::start(on)?;
    for peer in &peers.found {
        output::print(&format!("peer: {}, {}\n", peer.name, peer.version))?;
    }
    skipped.extend(
        peers.missing.iter().map(|(what, why)| Skipped { what: what.clone(), why: why.clone() }),
    );
    Ok(peers)
}

impl Options {
    /// Compares the embedded kernels with a file's.
    fn compare(&self, file: &Path, chosen: &[&Case]) -> Result<()> {
        let ordinal = match self.device {
            Device::Cpu => bail!("--compare-compilers needs a GPU"),
            Device::Gpu(ordinal) => ordinal,
            Device::Gpus(_) | Device::AllGpus => {
                bail!("--compare-compilers measures on one GPU: name it with gpu:N")
            }
            Device::Auto => 0,
        };
        let rounds = if self.common.quick { 3 } else { 11 };
        let comparison = compilers::compare(ordinal, file, chosen, rounds, self.large)?;
        output::print(&comparison.text())?;
        if let Some(path) = &self.common.json {
            output::write(path, output::json(&comparison)?.as_bytes())?;
        }
        comparison.verify()
    }
}

/// One case's measurements.
struct Bench<'a> {
    case: &'a Case,
    quick: bool,
    rounds: usize,
}

/// A contender's identity, for its row.
struct Label {
    who: Who,
    class: Class,
    /// Multiply-adds that each value needs at least; 0 if unknown.
    steps: usize,
}

impl Bench<'_> {
    /// Our variants and the peers alternate, so that other load affects all of them.
    fn on_cpu<P: Linked>(
        &self,
        peers: Option<&mut Peers>,
        with_linked: bool,
        skipped: &mut Vec<Skipped>,
    ) -> Result<Vec<Row>> {
        let case = self.case;
        let filter = case.filter()?;
        let src = Image::from_vec(case.pixels::<P>(), case.width, case.height, case.channels)?;
        let problem = Problem { filter: &filter, border: Border::default(), src: &src };
        let peers = peers.map(RefCell::new);
        let mut contest = OnCpu::new(problem, Turn::after)?;

        // The default: a plan that chooses its variant.
        let class = case.form.class();
        let plan = Plan::builder(&filter).device(Device::Cpu).build()?;
        let family = plan.variant_for(case.shape())?.family();
        let result = contest.enter(Contender {
            name: family_name(family).to_owned(),
            must: Must::of(Order::of(family), self.sum::<P>(family)),
            run: Box::new(move |src, dst| plan.run(&src.view(), &mut dst.view_mut())),
        })?;
        let mut labels = vec![self.label(family, class)];
        let peer = |class: Class| Label { who: Who::Peer, class, steps: case.steps(class) };

        let mut skip = |peer: &str, why: Option<String>| {
            if let Some(why) = why {
                skipped.push(Skipped { what: format!("{} in {}", peer, case.name()), why });
            }
        };
        if let Some(peers) = &peers {
            let found = peers.borrow_mut().open(case, &[class], &filter, &src, &result)?;
            for Found { name, class, .. } in found {
                match contest.enter_rival(name.clone(), Taker { peers, name: name.clone() }) {
                    Ok(()) => labels.push(peer(class_of(&class))),
                    Err(why) => skip(&name, why),
                }
            }
        }
        for library in if with_linked { linked(case, &filter, &src) } else { Vec::new() } {
            let (name, class) = (library.name, library.class);
            let rival = Beside { library, expected: Rc::clone(&result), margin: case.taps / 2 };
            match contest.enter_rival(name.to_owned(), rival) {
                Ok(()) => labels.push(peer(class)),
                Err(why) => skip(name, why),
            }
        }

        let times = contest.time(self.rounds.min(TURNS), skip)?;
        let mut rows = Rows::new(case, "cpu".to_owned(), &times.copies, None);
        add(&mut rows, times.entries, labels);
        rows.judge(false);
        Ok(rows.list)
    }

    /// Every variant that accepts the problem, then the peers.
    fn on_gpu(
        &self,
        ordinal: u32,
        gpu: &Gpu,
        peak: Option<f64>,
        peers: Option<&mut Peers>,
        skipped: &mut Vec<Skipped>,
    ) -> Result<Vec<Row>> {
        let case = self.case;
        let filter = case.filter()?;
        let src = Image::from_vec(case.pixels::<f32>(), case.width, case.height, case.channels)?;
        let problem = Problem { filter: &filter, border: Border::default(), src: &src };
        let mut contest = OnGpu::new(gpu, problem, gpu.upload(&src.view())?)?;
        let (mut labels, mut direct) = (Vec::new(), None);
        // Variants for the tensor cores accept only bytes, not f32.
        for variant in Variant::all().filter(|variant| !variant.takes_only_bytes()) {
            let plan = Plan::builder(&filter).device(Device::Gpu(ordinal)).variant(variant).build();
            let plan = match plan.and_then(|plan| plan.variant_for(src.shape()).map(|_| plan)) {
                Err(Error::Unsupported { .. }) => continue,
                plan => plan?,
            };
            let family = variant.family();
            let result = contest.enter(Contender {
                name: variant.name().to_owned(),
                must: Must::of(Order::of(family), case.sum(family)),
                run: Box::new(move |src, dst, stream| plan.run_on_device(src, dst, stream)),
            })?;
            labels.push(self.label(family, Class::of(family)));
            // The direct variants come first.
            direct.get_or_insert(result);
        }
        if case.values() <= SMALL {
            let plan = Plan::builder(&filter).device(Device::Gpu(ordinal)).build()?;
            let variant = plan.variant_for(src.shape())?;
            contest.enter_replayed(format!("{variant}, replayed"), &plan)?;
            labels.push(self.label(variant.family(), Class::of(variant.family())));
        }
        // The peers may need the memory that this frees.
        let times = contest.time(self.rounds)?;
        let mut rows = Rows::new(case, format!("gpu:{ordinal}"), &times.copies, peak);
        add(&mut rows, times.entries, labels);
        if let (Some(peers), Some(expected)) = (peers, direct) {
            let classes: Vec<_> = Class::ALL.into_iter().filter(|&class| case.has(class)).collect();
            let found = peers.open(case, &classes, &filter, &src, &expected)?;
            self.rivals(peers, found, &mut rows, skipped);
        }
        rows.judge(gpu.info().name.contains("H200"));
        Ok(rows.list)
    }

    /// Adds a row for each library that accepted the case on the GPU.
    fn rivals(
        &self,
        peers: &mut Peers,
        found: Vec<Found>,
        rows: &mut Rows<'_>,
        skipped: &mut Vec<Skipped>,
    ) {
        let case = self.case;
        for Found { name, class, .. } in found {
            // Of pictures, there is one class. Otherwise, a library that takes any filter is dense.
            let class = if case.is_compared() { case.form.class() } else { class_of(&class) };
            let start = Instant::now();
            let timed = peers.check(&name).and_then(|agreement| {
                let rounds = if self.quick { 3 } else { 7 };
                peers.time(&name, rounds).map(|times| (agreement, times))
            });
            peers.done(&name);
            eprintln!("  {name}: {:.1} s", start.elapsed().as_secs_f64());
            match timed {
                Ok((agreement, times)) => {
                    let steps = if name.contains("FFT") { 0 } else { case.steps(class) };
                    rows.add(name, Who::Peer, Some(class), &times, agreement.checked(), steps);
                }
                Err(Some(why)) => {
                    skipped.push(Skipped { what: format!("{name} in {}", case.name()), why })
                }
                Err(None) => {}
            }
        }
    }

    /// Measures pictures in a GPU's memory: first the plan that chooses, then variants for the
    /// case's filter, then the peers.
    fn pictures<S: Random, D: Random>(
        &self,
        ordinal: u32,
        gpu: &Gpu,
        peak: Option<f64>,
        peers: Option<&mut Peers>,
        skipped: &mut Vec<Skipped>,
    ) -> Result<Vec<Row>> {
        let case = self.case;
        let step = case.step()?;
        let class = case.form.class();
        let pictures = Pictures::<S, D>::new(case, &step)?;
        let mut contest = pictures.on(gpu)?;
        let builder = || Plan::builder(&step).device(Device::Gpu(ordinal));
        contest.enter(CHOSEN.to_owned(), builder().build()?, None)?;
        let mut labels = vec![Label { who: Who::Apron, class, steps: case.steps(class) }];
        // Bytes are exact, and means are sums, whatever the accuracy is.
        if case.suite == Suite::Wide && case.stored != Scalar::U8 && case.form != Form::Mean {
            let range = Some(Accuracy::Range);
            contest.enter(OF_RANGE.to_owned(), builder().accuracy(range).build()?, range)?;
            labels.push(Label { who: Who::Apron, class, steps: 0 });
        }
        // Naive kernels are not in `FAST`: they would take most of the time.
        let all = !self.quick && case.suite == Suite::Pictures;
        let others = Variant::all().filter(|variant| all && FAST.contains(variant));
        // All taps of a product in integers (`Matrix`) may be faster than its row and its column.
        // Spectra give the CPU's values for bytes alone.
        let of_bytes = (case.stored, case.target) == (Scalar::U8, Scalar::U8);
        let fits = |variant: &Variant| match variant {
            Variant::Matrix => true,
            Variant::SpectraPasses => of_bytes && class == Class::Pair,
            _ => Class::of(variant.family()) == class,
        };
        for variant in others.filter(fits) {
            let plan = builder().variant(variant).build().map_err(anyhow::Error::from);
            match plan.and_then(|plan| contest.enter(variant.name().to_owned(), plan, None)) {
                Ok(()) => labels.push(self.label(variant.family(), class)),
                Err(error) if matches!(error.downcast_ref(), Some(Error::Unsupported { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        let times = contest.time(self.rounds)?;
        let mut rows = Rows::new(case, format!("gpu:{ordinal}"), &times.copies, peak);
        add(&mut rows, times.entries, labels);
        if let (Some(peers), Step::Filter(filter)) = (peers, &step) {
            let found = peers.open(case, &[class], filter, &pictures.src, &pictures.expected)?;
            self.rivals(peers, found, &mut rows, skipped);
        }
        rows.judge(false);
        Ok(rows.list)
    }

    /// The checksum that a family's result should have.
    fn sum<P: Random>(&self, family: Family) -> Option<u64> {
        match Order::of(family) {
            // 8-bit results are rounded as if from the exact sum, so they are the same in any
            // order.
            Some(_) if P::SCALAR == Scalar::U8 => self.case.sums[self.case.form.class() as usize],
            _ => self.case.sum(family),
        }
    }

    /// The label of one of our variants.
    fn label(&self, family: Family, class: Class) -> Label {
        Label {
            who: Who::Apron,
            class,
            steps: Order::of(family).map_or(0, |_| self.case.steps(class)),
        }
    }
}

/// A row for each contender that was timed.
fn add(rows: &mut Rows<'_>, entries: Vec<Entry>, labels: Vec<Label>) {
    for (entry, label) in
        entries.into_iter().zip(labels).filter(|(entry, _)| !entry.times.is_empty())
    {
        rows.add(
            entry.name,
            label.who,
            Some(label.class),
            &entry.times,
            entry.checked,
            label.steps,
        );
    }
}

fn class_of(name: &str) -> Class {
    Class::ALL.into_iter().find(|class| class.name() == name).unwrap_or(Class::Dense)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_has_a_row_for_every_variant_and_one_replayed() {
        let Ok(gpu) = Gpu::open(0) else {
            println!("skipped: no GPU");
            return;
        };
        let case = Case {
            suite: Suite::Gpu,
            images: 1,
            width: 160,
            height: 48,
            channels: 1,
            stored: Scalar::F32,
            target: Scalar::F32,
            taps: 5,
            form: Form::Product,
            goals: [None; 2],
            sums: [None; 2],
            large: false,
        };
        let bench = Bench { case: &case, quick: true, rounds: 1 };
        let rows = bench.on_gpu(0, &gpu, None, None, &mut Vec::new()).unwrap();
        let names: Vec<_> = rows.iter().map(|row| row.variant.as_str()).collect();
        let (replayed, ours) = names[1..].split_last().unwrap();
        assert_eq!(names[0], "copy");
        let of_f32 = Variant::all().filter(|variant| !variant.takes_only_bytes());
        assert_eq!(ours, of_f32.map(Variant::name).collect::<Vec<_>>());
        assert!(replayed.ends_with(", replayed"), "{replayed}");
    }
}
