//! The runner: solves a problem with an implementation, and compares every pixel and every gap with
//! its expected value.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use apron::{Border, Error, Result, Shape, f16};
use fastrand::Rng;
use oracle::{Order, Padded};
use rayon::prelude::*;

use crate::bounds::{bound, room};
use crate::problem::{Group, Problem, Window};
use crate::report::{self, Wrong};
use crate::sample::{Data, Kind, Sample};

/// Something that filters: a variant of the product on a device, or a sabotaged stand-in.
pub trait Implementation: Sync {
    /// What [`Implementation::prepare`] returns.
    type Ready: Ready;

    /// The name in messages.
    fn name(&self) -> String;

    /// Whether it promises to run this window under this border, for pictures of any size.
    fn must_take(&self, window: &Window, border: Border) -> bool;

    /// Gets ready for a window under a border.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it never runs this window.
    fn prepare(&self, window: &Window, border: Border) -> Result<Self::Ready>;
}

/// An implementation prepared for a window and a border.
pub trait Ready: Sync {
    /// The order of sums for an image of this shape; `None` if no order is promised, as for
    /// spectra.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it does not run this shape.
    fn order(&self, shape: Shape) -> Result<Option<Order>>;

    /// Whether errors are relative to the greatest finite pixel, so that a large pixel may spoil
    /// results whose windows lack it, as for 1-D spectra.
    fn is_of_range(&self, _: Shape) -> bool {
        false
    }

    /// Filters a picture of this shape.
    ///
    /// # Errors
    /// Whatever stops it.
    fn run<S: Sample, D: Sample>(
        &self,
        shape: Shape,
        src: Source<'_, S>,
        dst: Target<'_, D>,
    ) -> Result<()>;
}

/// A picture to read: rows that begin `stride` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a, S> {
    /// From the first row's first element to the last row's last gap.
    pub data: &'a [S],
    /// Elements from one row to the next.
    pub stride: usize,
}

/// A picture to write, between two guards.
#[derive(Debug)]
pub struct Target<'a, D> {
    /// Guard, rows with their gaps, guard.
    pub buffer: &'a mut [D],
    /// Where the first row begins.
    pub start: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

/// The outcome of a run over many groups.
#[derive(Debug, Default)]
pub struct Tally {
    runs: Mutex<BTreeMap<String, usize>>,
    failures: Mutex<Vec<String>>,
    full: AtomicBool,
    /// The folder in which failures are drawn, if any.
    reports: Option<PathBuf>,
}

impl Tally {
    /// Failures after which a run gives up.
    const ENOUGH: usize = 5;

    /// A tally that draws its failures into a folder, if there is one: see [`report`].
    pub fn reporting(folder: Option<PathBuf>) -> Self {
        Self { reports: folder, ..Self::default() }
    }

    /// How many problems each implementation solved, right or wrong.
    pub fn runs(&self) -> BTreeMap<String, usize> {
        self.runs.lock().expect("no test panics with the tally").clone()
    }

    /// The first few failures.
    pub fn failures(&self) -> Vec<String> {
        self.failures.lock().expect("no test panics with the tally").clone()
    }

    fn count(&self, name: &str) {
        *self
            .runs
            .lock()
            .expect("no test panics with the tally")
            .entry(name.to_owned())
            .or_default() += 1;
    }

    fn fail(&self, failure: String) {
        self.fail_with(failure, || Ok(String::new()));
    }

    /// Records a failure. If it is one of the first few, adds the text that `report` returns.
    fn fail_with(&self, mut failure: String, report: impl FnOnce() -> Result<String, String>) {
        let mut failures = self.failures.lock().expect("no test panics with the tally");
        if failures.len() < Self::ENOUGH {
            let report =
                report().unwrap_or_else(|error| format!("; it could not be drawn: {error}"));
            failure.push_str(&report);
            failures.push(failure);
        }
        self.full.store(failures.len() == Self::ENOUGH, Ordering::Relaxed);
    }

    /// Sums up the run: an error if anything failed, or if an implementation solved no problem.
    ///
    /// # Errors
    /// All the failures kept, in one text.
    pub fn verdict<I: Implementation>(&self, implementations: &[I]) -> Result<usize, String> {
        let mut failures = self.failures();
        if self.full.load(Ordering::Relaxed) {
            failures.push("the run gave up here".into());
        }
        let runs = self.runs();
        if failures.is_empty() {
            for name in implementations.iter().map(Implementation::name) {
                if !runs.contains_key(&name) {
                    failures.push(format!("{name}: not one case was run"));
                }
            }
            if implementations.is_empty() {
                failures.push("there is nothing to test".into());
            }
        }
        if failures.is_empty() { Ok(runs.values().sum()) } else { Err(failures.join("\n")) }
    }
}

/// Solves every group with every implementation.
pub fn run<I: Implementation>(implementations: &[I], groups: &[Group]) -> Tally {
    run_into(Tally::default(), implementations, groups)
}

/// As [`run`], with the caller's tally.
pub fn run_into<I: Implementation>(tally: Tally, implementations: &[I], groups: &[Group]) -> Tally {
    groups.par_iter().filter(|group| !group.problems.is_empty()).for_each(|group| {
        let mut ready = Vec::new();
        for implementation in implementations {
            let (name, must_take) =
                (implementation.name(), implementation.must_take(&group.window, group.border));
            match implementation.prepare(&group.window, group.border) {
                Ok(engine) => ready.push(Prepared { name, must_take, engine }),
                Err(error) => declined(&name, must_take, &error, group, &tally),
            }
        }
        group.problems.par_iter().for_each(|problem| {
            if !tally.full.load(Ordering::Relaxed) {
                solve(&ready, group, problem, &tally);
            }
        });
    });
    tally
}

/// A prepared implementation, with its name and its promise.
struct Prepared<R> {
    name: String,
    must_take: bool,
    engine: R,
}

/// An implementation may decline only windows that it has not promised. Anything else is a failure.
fn declined(name: &str, must_take: bool, error: &Error, group: &Group, tally: &Tally) {
    if must_take || !matches!(error, Error::Unsupported { .. }) {
        tally.fail(format!("{name}: {}, border {}: declined: {error}", group.window, group.border));
    }
}

fn solve<R: Ready>(ready: &[Prepared<R>], group: &Group, problem: &Problem, tally: &Tally) {
    match problem.input {
        Kind::U8 => solve_from::<R, u8>(ready, group, problem, tally),
        Kind::U16 => solve_from::<R, u16>(ready, group, problem, tally),
        Kind::F16 => solve_from::<R, f16>(ready, group, problem, tally),
        Kind::F32 => solve_from::<R, f32>(ready, group, problem, tally),
    }
}

fn solve_from<R: Ready, S: Sample>(
    ready: &[Prepared<R>],
    group: &Group,
    problem: &Problem,
    tally: &Tally,
) {
    match problem.output {
        Kind::U8 => solve_as::<R, S, u8>(ready, group, problem, tally),
        Kind::U16 => solve_as::<R, S, u16>(ready, group, problem, tally),
        Kind::F16 => solve_as::<R, S, f16>(ready, group, problem, tally),
        Kind::F32 => solve_as::<R, S, f32>(ready, group, problem, tally),
    }
}

fn solve_as<R: Ready, S: Sample, D: Sample>(
    ready: &[Prepared<R>],
    group: &Group,
    problem: &Problem,
    tally: &Tally,
) {
    let picture = Picture::<S>::new(problem);
    let mut references = References::new(group, problem, &picture);
    let mut taken = false;
    for Prepared { name, must_take, engine } in ready {
        let order = match engine.order(problem.shape) {
            Ok(order) => order,
            Err(error) => {
                declined(name, *must_take, &error, group, tally);
                continue;
            }
        };
        let attempted = if is_of_bytes(problem) && !oracle::takes_bytes(group.border) {
            refused::<R, S, D>(engine, problem, &picture).map_err(Fault::from)
        } else {
            let expected = references.expected::<D>(order, engine.is_of_range(problem.shape));
            expected
                .map_err(Fault::from)
                .and_then(|expected| attempt(engine, problem, &picture, &expected))
        };
        if !must_take && matches!(&attempted, Err(fault) if fault.is_declined) {
            continue;
        }
        taken = true;
        if let Err(Fault { what, wrong, .. }) = attempted {
            let told = format!("{problem}, {}, border {}", group.window, group.border);
            tally.fail_with(format!("{name}: {told}: {what}"), || match &tally.reports {
                Some(folder) if !wrong.is_empty() => {
                    report::write(folder, name, &told, problem.shape, &wrong)
                        .map(|path| format!("; drawn in {path}"))
                }
                _ => Ok(String::new()),
            });
        }
        tally.count(name);
    }
    if !taken {
        tally.fail(format!(
            "{problem}, {}, border {}: nothing takes this",
            group.window, group.border
        ));
    }
}

/// Elements before and after an image that nobody may touch.
const GUARD: usize = 67;

/// A picture to filter, in a slice with gaps between its rows.
struct Picture<S> {
    data: Vec<S>,
    stride: usize,
    /// Each channel's values, row by row.
    planes: Vec<Vec<f64>>,
}

/// Whether source and destination are bytes: then whole-number taps define the results.
fn is_of_bytes(problem: &Problem) -> bool {
    (problem.input, problem.output) == (Kind::U8, Kind::U8)
}

impl<S: Sample> Picture<S> {
    fn new(problem: &Problem) -> Self {
        let Shape { width, height, channels } = problem.shape;
        let stride = width * channels + problem.gaps.0;
        let mut data = vec![S::POISON; stride * height];
        let mut planes = vec![Vec::with_capacity(width * height); channels];
        let mut rng = Rng::with_seed(problem.seed);
        let mut above: Vec<S> = Vec::new();
        for (y, row) in data.chunks_mut(stride).enumerate() {
            let row = &mut row[..width * channels];
            for (i, value) in row.iter_mut().enumerate() {
                *value = match problem.data {
                    Data::Repeated if 3 * y >= 2 * height => S::random(&mut rng, Data::Extremes),
                    Data::Repeated
                        if y > 0 && (y != 2 * height / 5 || 2 * i < width * channels) =>
                    {
                        above[i]
                    }
                    data => match data.placed((i / channels, y), i % channels) {
                        Some(byte) => S::nearest(byte.into()),
                        None => S::random(&mut rng, data),
                    },
                };
                planes[i % channels].push(value.value());
            }
            above = row.to_vec();
        }
        if problem.data == Data::Lone {
            data[stride * (height - 1) + width * channels - 1] = S::nearest(f64::INFINITY);
            planes[channels - 1][width * height - 1] = f64::INFINITY;
        }
        let special = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        let special = match problem.data {
            Data::Holes => &special[..],
            Data::Infinite => &special[..2],
            _ => &[],
        };
        if !special.is_empty() {
            // So few that most windows hold one or none.
            for _ in 0..channels * (1 + width * height / 700) {
                let (x, y, channel) =
                    (rng.usize(0..width), rng.usize(0..height), rng.usize(0..channels));
                let value = special[rng.usize(0..special.len())];
                data[stride * y + x * channels + channel] = S::nearest(value);
                planes[channel][y * width + x] = value;
            }
        }
        Self { data, stride, planes }
    }
}

/// The expected results.
struct Expected<D> {
    values: Vec<D>,
    /// The oracle's values.
    oracle: Vec<f64>,
    /// How far each result may lie from the oracle's value, before conversion; `None` where bits
    /// are promised.
    allowed: Vec<Option<f64>>,
}

impl<D: Sample> Expected<D> {
    /// Whether a result is right for place `at`.
    fn admits(&self, at: usize, found: D) -> bool {
        let near = |allowed: f64| {
            let end = |sign: f64| D::nearest(self.oracle[at] + sign * allowed).value();
            let is_near = (end(-1.0)..=end(1.0)).contains(&found.value());
            !found.is_poison() && (is_near || allowed == f64::INFINITY)
        };
        found.same(self.values[at]) || self.allowed[at].is_some_and(near)
    }
}

/// References for one problem, each computed when it is first asked for.
struct References<'a> {
    window: &'a Window,
    border: Border,
    problem: &'a Problem,
    /// For each channel.
    planes: &'a [Vec<f64>],
    oracle: Vec<Vec<f64>>,
    bytes: Vec<Vec<u8>>,
    /// Each order's bits, once they were asked for.
    bits: Vec<(Order, Vec<Vec<f32>>)>,
}

impl<'a> References<'a> {
    fn new<S: Sample>(group: &'a Group, problem: &'a Problem, picture: &'a Picture<S>) -> Self {
        Self {
            window: &group.window,
            border: group.border,
            problem,
            planes: &picture.planes,
            oracle: Vec::new(),
            bytes: Vec::new(),
            bits: Vec::new(),
        }
    }

    /// The bits of an order.
    fn bits(&mut self, order: Order) -> &[Vec<f32>] {
        let at = self.bits.iter().position(|(known, _)| *known == order).unwrap_or_else(|| {
            let size = (self.problem.shape.width, self.problem.shape.height);
            let (taps, products) = (self.window.as_taps(), self.window.products());
            let filter = |plane: &Vec<f64>| {
                let narrow: Vec<f32> = plane.iter().map(|&value| value as f32).collect();
                order.filter(&narrow, size, taps, products.as_ref(), self.border)
            };
            self.bits.push((order, self.planes.iter().map(filter).collect()));
            self.bits.len() - 1
        });
        &self.bits[at].1
    }

    /// The bytes that whole-number taps make of each channel.
    fn of_bytes<D: Sample>(&mut self) -> Expected<D> {
        let Shape { width, height, channels } = self.problem.shape;
        if self.bytes.is_empty() {
            let whole = self.window.whole();
            let of = |plane: &Vec<f64>| {
                let plane: Vec<u8> = plane.iter().map(|&value| value as u8).collect();
                oracle::bytes(&plane, (width, height), &whole, self.border)
            };
            self.bytes = self.planes.iter().map(of).collect();
        }
        let len = width * height * channels;
        let oracle: Vec<f64> =
            (0..len).map(|i| self.bytes[i % channels][i / channels].into()).collect();
        let values = oracle.iter().map(|&byte| D::nearest(byte)).collect();
        Expected { values, oracle, allowed: vec![None; len] }
    }

    fn expected<D: Sample>(
        &mut self,
        order: Option<Order>,
        of_range: bool,
    ) -> Result<Expected<D>, String> {
        if is_of_bytes(self.problem) {
            return Ok(self.of_bytes());
        }
        let Shape { width, height, channels } = self.problem.shape;
        if self.oracle.is_empty() {
            let of = |plane: &Vec<f64>| {
                oracle::correlate(plane, (width, height), self.window.as_taps(), self.border)
            };
            self.oracle = self.planes.iter().map(of).collect();
        }
        let by_passes = of_range && self.window.products().is_some();
        let reference = order.unwrap_or(if by_passes { Order::Separable } else { Order::Direct });
        let room = room(Some(reference), self.window);
        let is_huge = |value: f64| value.abs() > room;
        // With errors of the range, only what is not finite stays in its windows.
        let wild = |value: f64| match of_range {
            true => !value.is_finite(),
            false => value.is_nan() || is_huge(value),
        };
        let constant =
            if let Border::Constant(value) = self.border { f64::from(value as f32) } else { 0.0 };
        let greatest = |plane: &Vec<f64>| {
            let tame = plane.iter().chain([&constant]).filter(|&&value| !wild(value));
            tame.fold(0.0, |greatest, value| f64::max(greatest, value.abs()))
        };
        // Each channel by itself: pixels beyond the spectra's range affect only their own channel.
        let greatest: Vec<f64> = self.planes.iter().map(greatest).collect();
        let reached = |plane: &Vec<f64>| {
            let marks: Vec<bool> = plane.iter().map(|&value| wild(value)).collect();
            reach(&marks, (width, height), self.window, self.border, wild(constant))
        };
        let wild: Vec<Vec<bool>> = self.planes.iter().map(reached).collect();
        let kept = |x: usize, y: usize| {
            self.border == Border::Keep
                && (oracle::kept(x, self.window.anchor.0, self.window.cols, width)
                    || oracle::kept(y, self.window.anchor.1, self.window.rows, height))
        };
        let keep: Vec<bool> = (0..width * height).map(|i| kept(i % width, i / width)).collect();
        let oracle = self.oracle.clone();
        // Huge pixels may overflow. Which results do, and to NaN or to an infinity, depends on the
        // order of sums.
        let overflows: Vec<bool> = {
            let is_huge = |&value: &f64| value.is_finite() && is_huge(value);
            let any = |plane: &Vec<f64>| plane.iter().chain([&constant]).any(is_huge);
            self.planes.iter().map(|plane| of_range && any(plane)).collect()
        };
        // Beyond the spectra's range, kernels sum tap by tap.
        let loose = order.is_none();
        let bounds = |order: Option<Order>| -> Vec<f64> {
            greatest.iter().map(|&greatest| bound(order, self.window, greatest)).collect()
        };
        let (tolerance, agreement) = (bounds(order), bounds(Some(reference)));
        let bits = self.bits(reference);

        let len = width * height * channels;
        let mut expected = Expected {
            values: Vec::with_capacity(len),
            oracle: Vec::with_capacity(len),
            allowed: Vec::with_capacity(len),
        };
        for i in 0..len {
            let (channel, i) = (i % channels, i / channels);
            let (oracle, bits) = (oracle[channel][i], f64::from(bits[channel][i]));
            if overflows[channel] && !keep[i] && (wild[channel][i] || !bits.is_finite()) {
                expected.values.push(D::nearest(bits));
                expected.oracle.push(oracle);
                expected.allowed.push(Some(f64::INFINITY));
                continue;
            }
            // The references check each other: an order's bits must lie within its bound.
            let of = |bound: f64| match (keep[i], wild[channel][i]) {
                (true, _) => 0.0,
                (false, true) => f64::INFINITY,
                (false, false) => bound,
            };
            let (allowed, tolerance) = (of(agreement[channel]), of(tolerance[channel]));
            expected.allowed.push((loose && tolerance.is_finite()).then_some(tolerance));
            if allowed.is_finite()
                && oracle.is_finite()
                && (bits.is_nan() || (bits - oracle).abs() > allowed)
            {
                return Err(format!(
                    "the references disagree: {bits}, {oracle} in f64, {allowed} allowed"
                ));
            }
            expected.values.push(D::nearest(bits));
            expected.oracle.push(oracle);
        }
        Ok(expected)
    }
}

/// Marks the results whose windows hold a marked pixel, or the border's constant if that is marked.
fn reach(
    marks: &[bool],
    (width, height): (usize, usize),
    window: &Window,
    border: Border,
    constant: bool,
) -> Vec<bool> {
    let mut result = vec![false; width * height];
    if !constant && !marks.contains(&true) {
        return result;
    }
    let padded = Padded::new(marks, (width, height), window.as_taps(), border, constant);
    let along = |row: &[bool]| -> Vec<bool> {
        row.windows(window.cols).map(|cells| cells.contains(&true)).collect()
    };
    let rows: Vec<_> = padded.data.chunks(padded.width).map(along).collect();
    for (result, rows) in result.chunks_mut(width).zip(rows.windows(window.rows)) {
        result
            .iter_mut()
            .enumerate()
            .for_each(|(x, reached)| *reached = rows.iter().any(|row| row[x]));
    }
    result
}

/// A failed run in words, and each wrong value.
struct Fault {
    what: String,
    wrong: Vec<Wrong>,
    /// Whether the implementation declined the picture.
    is_declined: bool,
}

impl From<String> for Fault {
    fn from(what: String) -> Self {
        Self { what, wrong: Vec::new(), is_declined: false }
    }
}

/// A border whose constant is no byte is refused for bytes made of bytes, and nothing is written.
fn refused<R: Ready, S: Sample, D: Sample>(
    ready: &R,
    problem: &Problem,
    picture: &Picture<S>,
) -> Result<(), String> {
    let stride = problem.shape.row_len() + problem.gaps.1;
    let mut buffer = vec![D::POISON; stride * problem.shape.height];
    let src = Source { data: &picture.data, stride: picture.stride };
    let target = Target { buffer: &mut buffer, start: 0, stride };
    match ready.run(problem.shape, src, target) {
        Err(Error::Unsupported { .. }) | Ok(()) => {
            Err("a constant that is no byte was taken for one".into())
        }
        Err(error) if !error.to_string().contains("f32") => {
            Err(format!("the message names no way out: {error}"))
        }
        Err(_) if buffer.iter().any(|value| value.bits() != D::POISON.bits()) => {
            Err("refused, but written".into())
        }
        Err(_) => Ok(()),
    }
}

/// One run, from poisoned output to the last guard element.
fn attempt<R: Ready, S: Sample, D: Sample>(
    ready: &R,
    problem: &Problem,
    picture: &Picture<S>,
    expected: &Expected<D>,
) -> Result<(), Fault> {
    let Shape { width, height, channels } = problem.shape;
    let row_len = width * channels;
    let stride = row_len + problem.gaps.1;
    let mut buffer = vec![D::POISON; GUARD + stride * height + GUARD];
    for y in 0..height {
        let row = &mut buffer[GUARD + y * stride..][..row_len];
        for (value, &expected) in row.iter_mut().zip(&expected.values[y * row_len..]) {
            *value = D::poison_for(expected);
        }
    }

    let src = Source { data: &picture.data, stride: picture.stride };
    let dst = Target { buffer: &mut buffer, start: GUARD, stride };
    ready.run(problem.shape, src, dst).map_err(|error| Fault {
        is_declined: matches!(error, Error::Unsupported { .. }),
        ..format!("failed: {error}").into()
    })?;

    let mut wrong = Vec::new();
    for y in 0..height {
        for (i, &found) in buffer[GUARD + y * stride..][..row_len].iter().enumerate() {
            let at = y * row_len + i;
            if !expected.admits(at, found) {
                let right = expected.values[at];
                wrong.push(Wrong {
                    x: i / channels,
                    y,
                    channel: i % channels,
                    expected: (right.value(), right.bits()),
                    found: (found.value(), found.bits()),
                    oracle: expected.oracle[at],
                    poison: found.is_poison(),
                });
            }
        }
    }
    if let Some(&Wrong { x, y, channel, expected, found, oracle, poison }) = wrong.first() {
        let poison = if poison { ", never written" } else { "" };
        let what = format!(
            "pixel ({x}, {y}) channel {channel}: expected {} (bits {:#x}), found {} (bits {:#x}{poison}); in f64 {oracle}; \
             {} of {} values are wrong",
            expected.0,
            expected.1,
            found.0,
            found.1,
            wrong.len(),
            row_len * height,
        );
        return Err(Fault { what, wrong, is_declined: false });
    }

    let inside = |at: usize| {
        let at = at.wrapping_sub(GUARD);
        at < stride * height && at % stride < row_len
    };
    if let Some(at) =
        (0..buffer.len()).find(|&at| !inside(at) && buffer[at].bits() != D::POISON.bits())
    {
        let offset = at as i64 - GUARD as i64;
        return Err(format!(
            "wrote outside the image: element {offset}, stride {stride}, found {:?}",
            buffer[at]
        )
        .into());
    }
    Ok(())
}
