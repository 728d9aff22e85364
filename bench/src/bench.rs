//! `bench`: every case checked, then measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use apron::gpu::{DeviceImage, Gpu, Stream};
use apron::{Border, Device, Error, Family, Filter, Image, Plan, Scalar, Variant};
use rayon::prelude::*;

use crate::cases::{Case, Class, Random, Stored, Suite, cases};
use crate::linked::{Linked, linked};
use crate::measure::{Bed, Rhythm, Turn, copy};
use crate::peers::{Agreement, On, Peers};
use crate::report::{Checked, CpuReport, GpuReport, Report, Row, Rows, Skipped, Who, contests};
use crate::{charts, check, compilers, family_name, output, page, why};

/// What can be asked of the benchmark.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where to measure: auto, cpu, gpu:N. With a GPU, the CPU is measured in small cases.
    #[arg(long, default_value = "auto")]
    device: Device,
    /// Only cases whose name contains this, as 8192x8192, or one of several: f32-,u8 are those of docs/cpu.md.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter_case: String,
    /// Also cases of up to 32768x32768 pixels.
    #[arg(long)]
    large: bool,
    /// Also other libraries, those that are installed: on the GPU NPP, cuDNN, cuFFT, CuPy, on the CPU OpenCV and SciPy, all
    /// through python3, and in a build with feature "peers" imageproc, libblur and image.
    #[arg(long)]
    peers: bool,
    /// Instead, measure the embedded kernels beside those of a PTX file: times, registers, instructions, load time, and
    /// whether results agree.
    #[arg(long, requires = "ptx", conflicts_with_all = ["peers", "html", "svg", "markdown"])]
    compare_compilers: bool,
    /// The PTX file, as `cargo xtask ptx --compiler rust-cuda --arch sm_90 --out FILE` writes it.
    #[arg(long, value_name = "FILE", requires = "compare_compilers")]
    ptx: Option<PathBuf>,
    #[command(flatten)]
    common: output::Common,
}

/// Multiply-adds up to which a case of the GPU's suite is measured on the CPU: beside a GPU, on the CPU alone in few rounds,
/// in all rounds.
const CPU_WORK: [usize; 3] = [1 << 28, 1 << 31, 1 << 32];

/// After this long a contender's rounds end, if there were three.
const BUDGET: Duration = Duration::from_millis(1200);

/// The most turns of a contender on the CPU.
const TURNS: usize = 7;

/// Values up to which starting a kernel counts: such cases are also replayed from graphs.
const SMALL: usize = 1 << 22;

/// Runs the benchmark and prints its table.
///
/// # Errors
/// If no case has the name, if a result is wrong, or if something fails.
pub fn run(options: &Options) -> Result<()> {
    let all = cases();
    let chosen: Vec<_> =
        all.iter().filter(|case| options.filter_case.split(',').any(|part| case.name().contains(part))).collect();
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
        contests: Vec::new(),
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
        let mut left_out = |why: &str| report.skipped.push(Skipped { what: case.name(), why: why.to_owned() });
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
        let most = if gpu.is_some() { CPU_WORK[0] } else { CPU_WORK[2 - usize::from(options.common.quick)] };
        let on_cpu = case.suite == Suite::Cpu || case.values() * case.steps(case.form.class()) <= most;
        if gpu.is_none() && !on_cpu {
            left_out("too much for the CPU in reasonable time");
            continue;
        }
        let context = || format!("case {}", case.name());
        eprintln!("{}", case.name());
        // Peers run where we are compared with them.
        if on_cpu {
            let peers = if gpu.is_none() { peers.as_mut() } else { None };
            let with_linked = options.peers && gpu.is_none();
            let rows = match case.stored {
                Stored::U8 => bench.on_cpu::<u8>(peers, with_linked, &mut report.skipped),
                Stored::F32 => bench.on_cpu::<f32>(peers, with_linked, &mut report.skipped),
            };
            report.rows.extend(rows.with_context(context)?);
        }
        if let Some((ordinal, gpu)) = &gpu {
            let rows = bench.on_gpu(*ordinal, gpu, peak, peers.as_mut(), &mut report.skipped).with_context(context)?;
            report.rows.extend(rows);
        }
    }
    report.contests = contests(&report.rows);
    output::print(&format!("\n{}", report.text()))?;
    let put = |file: &str| output::put_between(file, "bench", |names| report.beside(names));
    options.common.write(&report, || charts::draw(&report), |charts| page::write(&report, &fallback, charts), put)
}

/// Finds the libraries, and says which there are.
fn start_peers(on: On, skipped: &mut Vec<Skipped>) -> Result<Peers> {
    let peers = Peers::start(on)?;
    for peer in &peers.found {
        output::print(&format!("peer: {}, {}\n", peer.name, peer.version))?;
    }
    skipped.extend(peers.missing.iter().map(|(what, why)| Skipped { what: what.clone(), why: why.clone() }));
    Ok(peers)
}

impl Options {
    /// The embedded kernels beside a file's.
    fn compare(&self, file: &Path, chosen: &[&Case]) -> Result<()> {
        let ordinal = match self.device {
            Device::Cpu => bail!("--compare-compilers needs a GPU"),
            Device::Gpu(ordinal) => ordinal,
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

/// Something that filters on the CPU.
enum Contender {
    Ours(Box<Plan>),
    Peer(String),
    Linked(usize),
}

/// A contender, what came of its check, and its times.
struct Entry {
    contender: Contender,
    name: String,
    class: Class,
    checked: Checked,
    /// Multiply-adds for each value that cannot be spared; 0 if that is not known.
    steps: usize,
    times: Vec<Duration>,
}

impl Entry {
    fn is_done(&self) -> bool {
        let spent: Duration = self.times.iter().sum();
        spent > BUDGET && (self.times.len() >= 3 || spent > 3 * BUDGET)
    }
}

impl Bench<'_> {
    /// Ours, and with them the peers, run in turns, so that other load falls on all of them.
    fn on_cpu<P: Linked>(
        &self,
        mut peers: Option<&mut Peers>,
        with_linked: bool,
        skipped: &mut Vec<Skipped>,
    ) -> Result<Vec<Row>> {
        let case = self.case;
        let filter = case.filter()?;
        let src = Image::from_vec(case.pixels::<P>(), case.width, case.height, case.channels)?;
        let mut dst = Image::<P>::zeroed(case.width, case.height, case.channels)?;
        let (input, output) = (src.as_slice(), &mut vec![P::default(); case.values()]);
        let copies = Turn::BRIEF.times(|| {
            let parts = output.par_chunks_mut(1 << 16).zip(input.par_chunks(1 << 16));
            parts.for_each(|(to, from)| to.copy_from_slice(from));
            anyhow::Ok(())
        })?;
        let mut rows = Rows::new(case, "cpu".to_owned(), &copies, None);

        let mut entries = Vec::new();
        // What a user gets: a plan that chooses. One for a variant would run the reference.
        let class = case.form.class();
        let plan = Plan::builder(&filter).device(Device::Cpu).build()?;
        plan.run(&src.view(), &mut dst.view_mut())?;
        let family = plan.variant_for(case.shape())?.family();
        let name = family_name(family).to_owned();
        let checked = self.check(&filter, &src, &dst, family).with_context(|| name.clone())?;
        let steps = if is_exact(family) { case.steps(class) } else { 0 };
        let contender = Contender::Ours(Box::new(plan));
        entries.push(Entry { contender, name, class, checked, steps, times: Vec::new() });

        let mut skip = |peer: &str, why: Option<String>| {
            if let Some(why) = why {
                skipped.push(Skipped { what: format!("{} in {}", peer, case.name()), why });
            }
        };
        if let Some(peers) = &mut peers {
            for peer in peers.open(case, &[class], &filter, &src, &dst)? {
                match peers.check(&peer.name) {
                    Ok(agreement) => entries.push(Entry {
                        contender: Contender::Peer(peer.name.clone()),
                        class: class_of(&peer.class),
                        checked: told(&agreement),
                        steps: case.steps(class_of(&peer.class)),
                        name: peer.name,
                        times: Vec::new(),
                    }),
                    Err(why) => skip(&peer.name, why),
                }
            }
        }
        let mut libraries = if with_linked { linked(case, &filter, &src) } else { Vec::new() };
        for (index, library) in libraries.iter_mut().enumerate() {
            match library.run() {
                Ok(()) => {
                    let agreement = library.compare(&dst, case.taps / 2);
                    entries.push(Entry {
                        contender: Contender::Linked(index),
                        name: library.name.to_owned(),
                        class: library.class,
                        checked: told(&agreement),
                        steps: case.steps(library.class),
                        times: Vec::new(),
                    });
                }
                Err(why) => skip(library.name, Some(why)),
            }
        }

        for _ in 0..self.rounds.min(TURNS) {
            for entry in &mut entries {
                if entry.is_done() {
                    continue;
                }
                let turn = Turn::after(entry.times.last().copied());
                let times = match &entry.contender {
                    Contender::Ours(plan) => Ok(turn.times(|| plan.run(&src.view(), &mut dst.view_mut()))?),
                    Contender::Linked(index) => turn.times(|| libraries[*index].run()).map_err(Some),
                    Contender::Peer(name) => match &mut peers {
                        Some(peers) => peers.take_turn(name, turn),
                        None => continue,
                    },
                };
                match times {
                    Ok(times) => entry.times.extend(times),
                    Err(why) => skip(&entry.name, why),
                }
            }
        }
        for entry in entries.into_iter().filter(|entry| !entry.times.is_empty()) {
            let who = if matches!(entry.contender, Contender::Ours(_)) { Who::Apron } else { Who::Peer };
            rows.add(entry.name, who, Some(entry.class), &entry.times, entry.checked, entry.steps);
        }
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
        let device_src = gpu.upload(&src.view())?;
        let mut bed = Bed::new(gpu, &device_src)?;
        // The first result of each family, which is held to f64 and to the checksum.
        let mut references: Vec<(Family, Image<f32>)> = Vec::new();
        let mut runners = Vec::new();
        for variant in Variant::all() {
            let plan = Plan::builder(&filter).device(Device::Gpu(ordinal)).variant(variant).build();
            let plan = match plan.and_then(|plan| plan.variant_for(src.shape()).map(|_| plan)) {
                Err(Error::Unsupported { .. }) => continue,
                plan => plan?,
            };
            let context = || variant.name().to_owned();
            let found = run_once(gpu, &plan, &device_src).with_context(context)?;
            let family = variant.family();
            let checked = if !is_exact(family) {
                let (_, reference) = references.first().context("the direct variants come first")?;
                let bound = check::tolerance(&filter, &src);
                let difference = check::near(&found, reference, bound).with_context(context)?;
                Checked { difference: Some(difference), ..Checked::against("direct") }
            } else if let Some((_, reference)) = references.iter().find(|(known, _)| *known == family) {
                check::same(&found, reference).with_context(context)?;
                Checked {
                    checksum: Some(check::sum(&found)),
                    ..Checked::against(format!("{}, all bits", first(family)))
                }
            } else {
                let checked = self.check(&filter, &src, &found, family).with_context(context)?;
                references.push((family, found));
                checked
            };
            let rhythm = bed.rhythm(|src, dst, stream| plan.run_on_device(src, dst, stream))?;
            let run: Run = Box::new(move |src, dst, stream| plan.run_on_device(src, dst, stream));
            let name = variant.name().to_owned();
            runners.push(Runner { name, family, run, rhythm, checked, times: Vec::new(), spent: Duration::ZERO });
        }
        if case.values() <= SMALL {
            let plan = Plan::builder(&filter).device(Device::Gpu(ordinal)).build()?;
            let variant = plan.variant_for(src.shape())?;
            let mut replays = bed.recorded(gpu, &plan)?;
            let rhythm = bed.rhythm(|_, _, stream| replays.next(stream))?;
            let name = format!("{variant}, replayed");
            let expected = run_once(gpu, &plan, &device_src)?;
            check::same(&gpu.download(replays.result())?, &expected).with_context(|| name.clone())?;
            let checked = Checked::against("the same, not recorded, all bits");
            let family = variant.family();
            let run: Run = Box::new(move |_, _, stream| replays.next(stream));
            runners.push(Runner { name, family, run, rhythm, checked, times: Vec::new(), spent: Duration::ZERO });
        }

        let copy_rhythm = bed.rhythm(copy)?;
        let mut copies = Vec::new();
        // Round by round, so that a clock that changes changes it for all.
        for _ in 0..self.rounds {
            copies.push(bed.time(copy_rhythm, copy)?);
            for Runner { run, rhythm, times, spent, .. } in &mut runners {
                if times.len() < 3 || *spent < BUDGET {
                    let start = Instant::now();
                    times.push(bed.time(*rhythm, &mut *run)?);
                    *spent += start.elapsed();
                }
            }
        }
        let mut rows = Rows::new(case, format!("gpu:{ordinal}"), &copies, peak);
        for runner in runners {
            let class = Class::of(runner.family);
            let steps = if is_exact(runner.family) { case.steps(class) } else { 0 };
            rows.add(runner.name, Who::Apron, Some(class), &runner.times, runner.checked, steps);
        }
        // Their memory may be needed.
        drop((bed, device_src));
        if let (Some(peers), Some((_, expected))) = (peers, references.first()) {
            let classes: Vec<_> = Class::ALL.into_iter().filter(|&class| case.has(class)).collect();
            for peer in peers.open(case, &classes, &filter, &src, expected)? {
                let (name, class) = (peer.name.clone(), class_of(&peer.class));
                let timed = peers.check(&name).and_then(|agreement| {
                    let rounds = if self.quick { 3 } else { 7 };
                    peers.time(&name, rounds).map(|times| (agreement, times))
                });
                peers.done(&name);
                match timed {
                    Ok((agreement, times)) => {
                        let steps = if name.contains("FFT") { 0 } else { case.steps(class) };
                        rows.add(name, Who::Peer, Some(class), &times, told(&agreement), steps);
                    }
                    Err(Some(why)) => skipped.push(Skipped { what: format!("{name} in {}", case.name()), why }),
                    Err(None) => {}
                }
            }
        }
        rows.judge(gpu.info().name.contains("H200"));
        Ok(rows.list)
    }

    /// Holds a result to f64 in a thousand places and, where its bits are known, to the case's checksum.
    fn check<P: Random>(&self, filter: &Filter, src: &Image<P>, dst: &Image<P>, family: Family) -> Result<Checked> {
        let slack = if is_exact(family) { 0.0 } else { check::tolerance(filter, src) };
        check::spots(filter, Border::default(), src, dst, slack)?;
        let found = check::sum(dst);
        // Integers are rounded as if from the exact sum, in whichever order it was added up.
        let class = self.case.form.class() as usize;
        let expected = match P::SCALAR {
            Scalar::U8 if is_exact(family) => self.case.sums[class],
            _ => self.case.sum(family),
        };
        let against = match expected {
            Some(expected) => {
                ensure!(
                    found == expected,
                    "wrong result: its checksum is {found:#018x}, it should be {expected:#018x}"
                );
                "f64, checksum"
            }
            None => "f64",
        };
        Ok(Checked { checksum: Some(found), ..Checked::against(against) })
    }
}

/// Filters one image on the device into another.
type Run = Box<dyn FnMut(&DeviceImage, &mut DeviceImage, &mut Stream) -> apron::Result<()>>;

/// A variant that is measured.
struct Runner {
    name: String,
    family: Family,
    run: Run,
    rhythm: Rhythm,
    checked: Checked,
    times: Vec<Duration>,
    spent: Duration,
}

/// Whether all variants of a family give the same bits.
pub(crate) fn is_exact(family: Family) -> bool {
    matches!(family, Family::Direct | Family::Separable)
}

/// The family's first variant, which the others are held to.
fn first(family: Family) -> &'static str {
    Variant::all().find(|variant| variant.family() == family).map_or("", Variant::name)
}

fn class_of(name: &str) -> Class {
    Class::ALL.into_iter().find(|class| class.name() == name).unwrap_or(Class::Dense)
}

/// What a peer's result is like.
fn told(agreement: &Agreement) -> Checked {
    let against = if agreement.note.is_empty() { "apron".to_owned() } else { format!("apron ({})", agreement.note) };
    Checked { difference: Some(agreement.difference.unwrap_or(f64::INFINITY)), ..Checked::against(against) }
}

/// A plan's result on the device.
pub(crate) fn run_once(gpu: &Gpu, plan: &Plan, src: &DeviceImage) -> Result<Image<f32>> {
    let mut stream = gpu.stream()?;
    let mut dst = gpu.image(src.shape())?;
    // Memory that the driver hands out may still hold another run's right result.
    dst.fill(f32::NAN, &stream)?;
    plan.run_on_device(src, &mut dst, &mut stream)?;
    stream.synchronize()?;
    Ok(gpu.download(&dst)?)
}
