//! Problems generated from a seed, and shrunk when they fail.
//!
//! - `generated::problems`: any legal problem, through every variant that takes it, against the
//!   oracle and the families' bits.
//! - `generated::bytes`: bytes made of bytes, with taps of every form and size, against
//!   whole-number taps.
//! - `generated::weighted`: the same for colours weighted by alpha.
//! - `generated::stored`: problems in device memory, of any type and in any layout, filtered whole
//!   or in pieces, against the same.
//! - The others need no reference. They test relations between results: an impulse gives the taps,
//!   sums of images give sums of results, and so on. They find an error that oracle and product
//!   share.
//!
//! `APRON_GENERATED` is the number of problems, `APRON_SEED` the seed of the first batch. A failure
//! names both.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use apron::{Alpha, Border, Device, Error, Family, Filter, Image, ImageView, Plan, Shape, Variant};
use conformance::bounds::bound;
use conformance::problem::{Group, Window};
use conformance::product::{self, Gpu, Product};
use conformance::report;
use conformance::runner::{self, Implementation, Ready, Source, Tally, Target};
use conformance::select::Selection;
use conformance::suite::gpu_trial;
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};
use oracle::{Order, fold};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use crate::recipes::{Recipe, Taps, WORK, recipes, recipes_of_bytes};

/// Problems of a batch. Each batch has its own seed.
const BATCH: usize = 32;

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let mut trials = vec![Trial::test("generated::refused", refused)];
    for property in &PROPERTIES {
        // Only a GPU has device memory.
        let devices: &[_] =
            if property.name == "stored" { &[Gpu::DEVICE] } else { &[Device::Cpu, Gpu::DEVICE] };
        for &device in devices {
            let place = if device == Device::Cpu { "cpu" } else { "gpu" };
            let name = format!("generated::{}::{place}", property.name);
            let test = {
                let name = name.clone();
                move || run(&name, device, property, selection)
            };
            trials.push(if device == Device::Cpu {
                Trial::test(name, test)
            } else {
                gpu_trial(&name, gpu, test)
            });
        }
    }
    trials
}

/// Checks a recipe with the implementations. Records which of them took it.
type Check = fn(&Recipe, &[Product], &Counts) -> Result<(), String>;

/// A property that all implementations must have, and the recipes that test it.
struct Property {
    name: &'static str,
    recipes: fn(usize) -> BoxedStrategy<Recipe>,
    check: Check,
    /// The share of the requested number of problems.
    share: f64,
}

impl Property {
    const fn new(name: &'static str, share: f64, check: Check) -> Self {
        Self { name, recipes, check, share }
    }
}

const PROPERTIES: [Property; 10] = [
    Property::new("problems", 1.0, problems),
    // 10,240 of a full run, 512 on the emulator.
    Property { recipes: recipes_of_bytes, ..Property::new("bytes", 20.0, problems) },
    Property { recipes: recipes_of_bytes, ..Property::new("weighted", 1.0, weighted) },
    Property::new("stored", 0.5, stored),
    Property::new("impulse", 0.125, impulse),
    Property::new("linear", 0.125, linear),
    Property::new("shift", 0.125, shift),
    Property::new("mirrored", 0.125, mirrored),
    Property::new("outer", 0.125, outer),
    Property::new("padded", 0.125, padded),
];

/// The number of problems for a property.
fn count(property: &Property, selection: Selection) -> Result<usize, String> {
    let few = match selection {
        Selection::Full => 512,
        Selection::Small | Selection::Emulated => 32,
    };
    let all = number("APRON_GENERATED")?.map_or(few, |count| count as usize);
    let most = match selection {
        Selection::Full => property.share,
        Selection::Emulated => 16.0,
        // Under compute-sanitizer each problem takes seconds.
        Selection::Small => 1.0,
    };
    Ok((all as f64 * property.share.min(most)).ceil() as usize)
}

/// A whole number from the environment.
fn number(variable: &str) -> Result<Option<u64>, String> {
    match std::env::var(variable) {
        Err(_) => Ok(None),
        Ok(text) => text
            .parse()
            .map(Some)
            .map_err(|_| format!("{variable} is \"{text}\": a whole number is needed")),
    }
}

/// Runs batches of recipes on all threads. Returns the first failure, shrunk.
fn run(
    name: &str,
    device: Device,
    property: &'static Property,
    selection: Selection,
) -> Result<(), Failed> {
    let count = count(property, selection)?;
    // Less work for each problem where a GPU's threads are emulated.
    let work = if selection == Selection::Full || device == Device::Cpu { WORK } else { WORK / 16 };
    let recipes = move || (property.recipes)(work);
    let started = std::time::Instant::now();
    let first = number("APRON_SEED")?.unwrap_or(1);
    // The plan's choice, and every variant that differs on this device. Problems with stored pixels
    // include bytes, so variants for bytes alone run too.
    let all = name.contains("::stored::") || name.contains("::bytes::gpu");
    let variants = if all { Variant::all().collect() } else { product::variants(device) };
    // Only the plan's choice: colours are weighted by one algorithm.
    let variants = variants.into_iter().filter(|_| property.name != "weighted");
    let choices = [None].into_iter().chain(variants.map(Some));
    let implementations: Vec<_> = choices.map(|variant| Product { variant, device }).collect();
    let (counts, failures) = (Counts::default(), Mutex::new(Vec::new()));
    let next = AtomicUsize::new(0);
    let batches = count.div_ceil(BATCH);
    let cases = count.clamp(BATCH / 2, BATCH);
    std::thread::scope(|scope| {
        for _ in 0..rayon::current_num_threads().min(batches) {
            scope.spawn(|| {
                loop {
                    let batch = next.fetch_add(1, Ordering::Relaxed);
                    if batch >= batches
                        || !failures.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
                    {
                        break;
                    }
                    let seed = first.wrapping_add(batch as u64);
                    if let Err(failure) = run_batch(seed, cases, &recipes(), &|recipe| {
                        let of_recipe = thinned(&implementations, recipe, selection);
                        (property.check)(recipe, &of_recipe, &counts)
                    }) {
                        let again =
                            format!("APRON_SEED={seed} APRON_GENERATED=256, --exact {name}");
                        failures
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(format!("{failure}\nagain: {again}"));
                    }
                }
            });
        }
    });
    if let Some(failure) =
        failures.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().next()
    {
        return Err(failure.into());
    }
    let (runs, seen) = (
        counts.runs.into_inner(),
        counts.seen.into_inner().unwrap_or_else(PoisonError::into_inner),
    );
    // A few problems may not reach every variant.
    let due = implementations.iter().filter(|_| count >= 4 * BATCH).map(Implementation::name);
    let missing: Vec<_> = due.filter(|name| !seen.contains(name)).collect();
    if runs == 0 || !missing.is_empty() {
        return Err(format!("{runs} runs, but not one of {}", missing.join(", ")).into());
    }
    let took = started.elapsed().as_secs_f64();
    println!("{name}: {} problems from seed {first}, {runs} runs in {took:.1} s", batches * cases);
    Ok(())
}

/// The implementations to run a recipe with: all, or on the emulator the plan's choice and a third
/// of the others.
fn thinned(implementations: &[Product], recipe: &Recipe, selection: Selection) -> Vec<Product> {
    let every = if selection == Selection::Emulated { 3 } else { 1 };
    let first = recipe.seed as usize % every;
    let (chosen, others) = implementations.split_at(1);
    chosen.iter().chain(others.iter().skip(first).step_by(every)).copied().collect()
}

/// Counts of all batches.
#[derive(Debug, Default)]
struct Counts {
    runs: AtomicUsize,
    seen: Mutex<BTreeSet<String>>,
}

impl Counts {
    fn add(&self, name: String, runs: usize) {
        self.runs.fetch_add(runs, Ordering::Relaxed);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }
}

fn run_batch(
    seed: u64,
    cases: usize,
    recipes: &BoxedStrategy<Recipe>,
    check: &dyn Fn(&Recipe) -> Result<(), String>,
) -> Result<(), String> {
    let config = Config {
        cases: cases as u32,
        failure_persistence: None,
        max_shrink_iters: 400,
        ..Config::default()
    };
    let bytes: Vec<u8> = (0..4).flat_map(|_| seed.to_le_bytes()).collect();
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    // A kernel's illegal address ends all work on its GPU. Later failures say nothing about simpler
    // recipes.
    let lost = Cell::new(false);
    let check = |recipe: Recipe| match check(&recipe) {
        Err(failure) if !lost.get() => {
            lost.set(failure.contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
            Err(TestCaseError::fail(failure))
        }
        _ => Ok(()),
    };
    runner.run(recipes, check).map_err(|error| match error {
        TestError::Fail(reason, recipe) => format!("{reason}\nshrunk to: {recipe:?}"),
        TestError::Abort(reason) => format!("gave up: {reason}"),
    })
}

/// A recipe as it is, against the references.
fn problems(recipe: &Recipe, implementations: &[Product], counts: &Counts) -> Result<(), String> {
    let group = Group {
        window: recipe.window_of(recipe.taps),
        border: recipe.border,
        problems: vec![recipe.problem()],
    };
    // Tap by tap, or by spectra of all taps, the largest windows would take minutes.
    let taps = group.window.cols * group.window.rows;
    let work = taps * recipe.size.0 * recipe.size.1 * recipe.channels;
    let is_due = |product: &&Product| match product.variant.map(Variant::family) {
        Some(Family::Direct) => work <= 4 * WORK,
        Some(Family::Fourier) => taps <= 1 << 17,
        _ => true,
    };
    let implementations: Vec<_> = implementations.iter().filter(is_due).copied().collect();
    let solve = |tally| runner::run_into(tally, &implementations, std::slice::from_ref(&group));
    let tally = solve(Tally::default());
    if tally.failures().is_empty() {
        tally.runs().into_iter().for_each(|(name, runs)| counts.add(name, runs));
        return Ok(());
    }
    // Shrinking writes the same file again and again, unless the last digit differs.
    Err(solve(Tally::reporting(report::folder())).failures().join("\n"))
}

/// Colours weighted by alpha, under taps that are averages.
fn weighted(recipe: &Recipe, implementations: &[Product], counts: &Counts) -> Result<(), String> {
    let (window, (width, height)) = (recipe.window_of(recipe.taps).average(), recipe.size);
    let shape = Shape { width, height, channels: recipe.channels.max(2) };
    let src = recipe.with_alpha(shape);
    let run = |product: &Product| -> apron::Result<Vec<u8>> {
        let plan =
            Plan::builder(&window.filter).border(recipe.border).device(product.device).build()?;
        let mut dst = Image::<u8>::zeroed(width, height, shape.channels)?;
        let src = ImageView::new(&src, width, height, shape.channels)?;
        plan.run_with_alpha(&src, &mut dst.view_mut(), Alpha::Premultiply)?;
        Ok(dst.into_vec())
    };
    // Kernels sum tap by tap.
    let work = window.cols * window.rows * src.len();
    let is_due = |product: &&Product| product.device == Device::Cpu || work <= 4 * WORK;
    for product in implementations.iter().filter(is_due) {
        let right = oracle::bytes_weighted_by_alpha(&src, shape, &window.whole(), recipe.border);
        let found = run(product)
            .map_err(|error| format!("{}: {shape}, {window}: {error}", product.name()))?;
        if let Some(at) = found.iter().zip(&right).position(|(found, right)| found != right) {
            let (pixel, channel) = (at / shape.channels, at % shape.channels);
            return Err(format!(
                "{}: weighted by alpha: {window}, border {}, picture of {shape}: channel {channel} of pixel ({}, {}): {} expected, {} found",
                product.name(),
                recipe.border,
                pixel % width,
                pixel / width,
                right[at],
                found[at]
            ));
        }
        counts.add(product.name(), 1);
    }
    Ok(())
}

/// The same as [`problems`], in device memory.
#[cfg(feature = "gpu")]
fn stored(recipe: &Recipe, implementations: &[Product], counts: &Counts) -> Result<(), String> {
    let turns = [2, 5, 17].map(|prime| (recipe.seed >> 7) as usize / prime);
    let solve = |tally| {
        let group = Group {
            window: recipe.window_of(recipe.taps),
            border: recipe.border,
            problems: vec![recipe.problem()],
        };
        crate::stored::solve(implementations, group, turns, tally)
    };
    let tally = solve(Tally::default());
    if tally.failures().is_empty() {
        // After a comma, the name says in which pieces the picture was filtered.
        let of = |name: String| name.split(", ").next().unwrap_or_default().to_owned();
        tally.runs().into_iter().for_each(|(name, runs)| counts.add(of(name), runs));
        return Ok(());
    }
    Err(solve(Tally::reporting(report::folder())).failures().join("\n"))
}

#[cfg(not(feature = "gpu"))]
fn stored(_: &Recipe, _: &[Product], _: &Counts) -> Result<(), String> {
    Err("this build has no GPU support".into())
}

/// The order of sums of a plane, and its results.
type Filtered = (Option<Order>, Vec<f32>);

/// Filters a plane of f32; `None` if the implementation declines.
fn filtered(
    product: &Product,
    window: &Window,
    border: Border,
    plane: &[f32],
    (width, height): (usize, usize),
) -> Result<Option<Filtered>, String> {
    let shape = Shape { width, height, channels: 1 };
    let fail = |error: Error| match error {
        Error::Unsupported { .. } if !product.must_take(window, border) => Ok(None),
        error => Err(format!("{}: {shape}, {window}, border {border}: {error}", product.name())),
    };
    let ready = match product.prepare(window, border) {
        Ok(ready) => ready,
        Err(error) => return fail(error),
    };
    let order = match ready.order(shape) {
        Ok(order) => order,
        Err(error) => return fail(error),
    };
    let mut found = vec![f32::NAN; width * height];
    let target = Target { buffer: &mut found, start: 0, stride: width };
    Ready::run(&ready, shape, Source { data: plane, stride: width }, target)
        .map_err(|error| error.to_string())?;
    Ok(Some((order, found)))
}

/// The error that an order may have where sums are exact in f32: 0 except for spectra.
fn slack(order: Option<Order>, window: &Window, greatest: f64) -> f64 {
    if order.is_none() { bound(order, window, greatest) } else { 0.0 }
}

/// Fails at the first pixel where two planes differ by more than is allowed.
fn same(
    what: &str,
    product: &Product,
    window: &Window,
    border: Border,
    width: usize,
    allowed: f64,
    pairs: impl IntoIterator<Item = (f32, f32)>,
) -> Result<(), String> {
    for (i, (expected, found)) in pairs.into_iter().enumerate() {
        let near = (f64::from(expected) - f64::from(found)).abs() <= allowed;
        if !near {
            let (x, y) = (i % width, i / width);
            return Err(format!(
                "{}: {what}: {window}, border {border}: pixel ({x}, {y}) of rows of {width}: {expected} expected, {found} \
                 found, {allowed} allowed",
                product.name()
            ));
        }
    }
    Ok(())
}

/// The same rule with another constant.
fn with_constant(border: Border, value: f64) -> Border {
    if let Border::Constant(_) = border { Border::Constant(value) } else { border }
}

/// A pixel of 1 among zeros gives the taps, rotated by 180 degrees.
fn impulse(recipe: &Recipe, implementations: &[Product], counts: &Counts) -> Result<(), String> {
    let window = recipe.window_of(Taps::Whole);
    let (border, (width, height)) = (Border::Constant(0.0), recipe.size);
    let (x, y) = (recipe.seed as usize % width, (recipe.seed >> 32) as usize % height);
    let mut plane = vec![0.0; width * height];
    plane[y * width + x] = 1.0;
    let expected: Vec<f32> = (0..width * height)
        .map(|i| {
            let (col, row) = (
                (x + window.anchor.0).wrapping_sub(i % width),
                (y + window.anchor.1).wrapping_sub(i / width),
            );
            if col < window.cols && row < window.rows {
                window.taps[row * window.cols + col] as f32
            } else {
                0.0
            }
        })
        .collect();
    for product in implementations {
        let Some((family, found)) = filtered(product, &window, border, &plane, recipe.size)? else {
            continue;
        };
        let allowed = slack(family, &window, 1.0);
        same(
            "an impulse",
            product,
            &window,
            border,
            width,
            allowed,
            expected.iter().copied().zip(found),
        )?;
        counts.add(product.name(), 1);
    }
    Ok(())
}

/// The result of `a + 2 b` is the result of `a` plus twice that of `b`.
fn linear(recipe: &Recipe, implementations: &[Product], counts: &Counts) -> Result<(), String> {
    let window = recipe.window_of(Taps::Whole);
    let border = with_constant(recipe.border, 0.0);
    let (a, b) = (recipe.plane(true, 1, recipe.size), recipe.plane(true, 2, recipe.size));
    let sum: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + 2.0 * b).collect();
    for product in implementations {
        let run = |plane: &[f32]| filtered(product, &window, border, plane, recipe.size);
        let (Some((family, a)), Some((_, b)), Some((_, sum))) = (run(&a)?, run(&b)?, run(&sum)?)
        else {
            continue;
        };
        let allowed = 3.0 * slack(family, &window, 300.0);
        let expected = a.iter().zip(b).map(|(a, b)| a + 2.0 * b);
        same("a sum", product, &window, border, recipe.size.0, allowed, expected.zip(sum))?;
        counts.add(product.name(), 1);
    }
    Ok(())
}

/// A part of a picture gives the same bits as the whole, wherever the window stays inside the part.
fn shift(recipe: &Recipe, implementations: &[Product], counts: &Counts) -> Result<(), String> {
    let window = recipe.window_of(Taps::Unit);
    let border = with_constant(recipe.border, -7.25);
    let (left, top) = (recipe.gaps.0 * 5, recipe.gaps.1 * 3);
    // The part has at least one result with its whole window inside, and ends before the picture.
    let part = (window.cols + recipe.size.0 / 2, window.rows + recipe.size.1 / 2);
    let whole = (left + part.0 + recipe.channels, top + part.1 + recipe.channels - 1);
    let plane = recipe.plane(false, 3, whole);
    let crop: Vec<f32> = (0..part.1)
        .flat_map(|y| plane[(top + y) * whole.0 + left..][..part.0].iter().copied())
        .collect();
    let inside = (part.0 - window.cols + 1, part.1 - window.rows + 1);
    for product in implementations {
        let all = filtered(product, &window, border, &plane, whole)?;
        let some = filtered(product, &window, border, &crop, part)?;
        let (Some((family, all)), Some((other, some))) = (all, some) else { continue };
        // The plan may choose another variant for another size.
        if family != other {
            continue;
        }
        let allowed = 2.0 * slack(family, &window, 1000.0);
        let pixels = (0..inside.0 * inside.1).map(|i| {
            let (x, y) = (i % inside.0 + window.anchor.0, i / inside.0 + window.anchor.1);
            (all[(top + y) * whole.0 + left + x], some[y * part.0 + x])
        });
        same("a part", product, &window, border, inside.0, allowed, pixels)?;
        counts.add(product.name(), 1);
    }
    Ok(())
}

/// A mirrored picture under mirrored taps gives the mirrored result. A transposed picture under
/// transposed taps gives the transposed result.
fn mirrored(recipe: &Recipe, implementations: &[Product], counts: &Counts) -> Result<(), String> {
    /// The new place of column `x` and row `y` in `width` by `height` cells.
    type Turn = fn((usize, usize), (usize, usize)) -> (usize, usize);
    const TURNS: [(&str, bool, Turn); 3] = [
        ("left and right changed", false, |(x, y), (width, _)| (width - 1 - x, y)),
        ("up and down changed", false, |(x, y), (_, height)| (x, height - 1 - y)),
        ("transposed", true, |(x, y), _| (y, x)),
    ];
    let (name, swaps, turn) = TURNS[recipe.seed as usize % 3];
    let turned = |values: &[f32], size: (usize, usize)| -> Vec<f32> {
        let mut result = vec![0.0; values.len()];
        let width = if swaps { size.1 } else { size.0 };
        for (i, &value) in values.iter().enumerate() {
            let (x, y) = turn((i % size.0, i / size.0), size);
            result[y * width + x] = value;
        }
        result
    };
    let swapped = |(a, b): (usize, usize)| if swaps { (b, a) } else { (a, b) };

    let window = recipe.window_of(Taps::Whole);
    let taps: Vec<f32> = window.taps.iter().map(|&tap| tap as f32).collect();
    let size = (window.cols, window.rows);
    let (cols, rows) = swapped(size);
    let anchor = turn(window.anchor, size);
    let other = Window::dense(name, cols, rows, &turned(&taps, size)).anchored(anchor.0, anchor.1);
    let border = with_constant(recipe.border, 5.0);
    let plane = recipe.plane(true, 4, recipe.size);
    let turned_plane = turned(&plane, recipe.size);
    for product in implementations {
        let straight = filtered(product, &window, border, &plane, recipe.size)?;
        let other_way = filtered(product, &other, border, &turned_plane, swapped(recipe.size))?;
        let (Some((family, expected)), Some((second, found))) = (straight, other_way) else {
            continue;
        };
        let allowed = slack(family, &window, 99.0) + slack(second, &other, 99.0);
        let expected = turned(&expected, recipe.size);
        same(
            name,
            product,
            &window,
            border,
            swapped(recipe.size).0,
            allowed,
            expected.into_iter().zip(found),
        )?;
        counts.add(product.name(), 1);
    }
    Ok(())
}

/// A row and a column give the same result as their product, given as a table, by the simplest
/// variant.
fn outer(recipe: &Recipe, implementations: &[Product], counts: &Counts) -> Result<(), String> {
    let pair = Recipe { pair: true, ..recipe.clone() }.window_of(if recipe.gaps.0 == 0 {
        Taps::Whole
    } else {
        Taps::Unit
    });
    let taps: Vec<f32> = pair.taps.iter().map(|&tap| tap as f32).collect();
    let whole = Window::dense("their product", pair.cols, pair.rows, &taps)
        .anchored(pair.anchor.0, pair.anchor.1);
    let border = with_constant(recipe.border, 5.0);
    let plane = recipe.plane(false, 5, recipe.size);
    let plain = Product { variant: Some(Variant::DirectNaive), device: Device::Cpu };
    let Some((_, expected)) = filtered(&plain, &whole, border, &plane, recipe.size)? else {
        return Err("the plainest variant takes everything".into());
    };
    for product in implementations {
        let Some((order, found)) = filtered(product, &pair, border, &plane, recipe.size)? else {
            continue;
        };
        let allowed = bound(order, &pair, 1000.0) + bound(Some(Order::Direct), &whole, 1000.0);
        let pixels = expected.iter().copied().zip(found);
        same("a row and a column", product, &pair, border, recipe.size.0, allowed, pixels)?;
        counts.add(product.name(), 1);
    }
    Ok(())
}

/// A picture padded with its border gives the same bits, wherever the window stays inside the
/// padding.
fn padded(recipe: &Recipe, implementations: &[Product], counts: &Counts) -> Result<(), String> {
    let window = recipe.window_of(Taps::Unit);
    let border = if recipe.border == Border::Keep {
        Border::Replicate
    } else {
        with_constant(recipe.border, 5.0)
    };
    let plane = recipe.plane(false, 6, recipe.size);
    let (width, height) = recipe.size;
    let larger = (width + window.cols - 1, height + window.rows - 1);
    let at = |i: usize, anchor: usize, n: usize| fold(border, i as i64 - anchor as i64, n);
    let pixel = |i: usize| {
        let (x, y) =
            (at(i % larger.0, window.anchor.0, width), at(i / larger.0, window.anchor.1, height));
        x.zip(y).map_or(5.0, |(x, y)| plane[y * width + x])
    };
    let all: Vec<f32> = (0..larger.0 * larger.1).map(pixel).collect();
    for product in implementations {
        let within = filtered(product, &window, border, &plane, recipe.size)?;
        // Pixels beyond the padding must not matter. Every variant with a constant border takes the
        // value 0.
        let further = filtered(product, &window, Border::Constant(0.0), &all, larger)?;
        let (Some((family, expected)), Some((other, found))) = (within, further) else { continue };
        if family != other {
            continue;
        }
        let allowed = 2.0 * slack(family, &window, 1000.0);
        let found = |i: usize| {
            found[(i / width + window.anchor.1) * larger.0 + i % width + window.anchor.0]
        };
        let pixels = expected.iter().enumerate().map(|(i, &expected)| (expected, found(i)));
        same("padded beforehand", product, &window, border, width, allowed, pixels)?;
        counts.add(product.name(), 1);
    }
    Ok(())
}

/// Taps that are NaN or infinite are refused, whatever the other taps.
fn refused() -> Result<(), Failed> {
    let mut rng = Rng::with_seed(7);
    for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for _ in 0..50 {
            let (cols, rows) = (rng.usize(1..9), rng.usize(1..9));
            let mut taps: Vec<f32> = (0..cols * rows).map(|_| rng.f32()).collect();
            let at = rng.usize(0..taps.len());
            taps[at] = wrong;
            let results = [
                Filter::from_taps(cols, rows, &taps).map(drop),
                Filter::separable(&taps, &[1.0]).map(drop),
                Filter::separable(&[1.0], &taps).map(drop),
            ];
            if let Some(result) =
                results.iter().find(|result| !matches!(result, Err(Error::Parameter { .. })))
            {
                return Err(format!("{wrong} among {cols}x{rows} taps: {result:?}").into());
            }
        }
    }
    Ok(())
}
