//! Pictures that are read and written as rows, in chunks: every byte equals that of the whole
//! picture. Also tests the progress that a plan reports during its runs.

use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use apron::{Border, Device, Error, Image, Plan, Progress, Result, RowSource, Shape, Variant};
use conformance::problem::Window;
use conformance::product::Gpu;
use conformance::sample::{Data, Sample};
use conformance::select::{BORDERS, Selection, seed};
use conformance::suite::gpu_trial;
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};

type Test = fn(Device, Selection) -> Result<(), Failed>;

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let tests: [(&str, Test); 4] =
        [("chunks", chunks), ("faults", faults), ("progress", progress), ("cancelled", cancelled)];
    let trials = tests.into_iter().flat_map(|(name, test)| {
        let on_cpu =
            Trial::test(format!("streamed::{name}::cpu"), move || test(Device::Cpu, selection));
        [
            on_cpu,
            gpu_trial(&format!("streamed::{name}::gpu"), gpu, move || test(Gpu::DEVICE, selection)),
        ]
    });
    trials.collect()
}

/// Rows of a picture in memory. Each row must be requested once and in order, unless the source
/// goes back.
struct Rows<'a, P> {
    values: &'a [P],
    row: usize,
    next: usize,
    goes_back: bool,
}

impl<P: Sample> RowSource<P> for Rows<'_, P> {
    fn read(&mut self, rows: Range<usize>, into: &mut [P]) -> io::Result<()> {
        if !self.goes_back && rows.start != self.next {
            return Err(io::Error::other(format!(
                "rows {rows:?} were asked for where {} was next",
                self.next
            )));
        }
        self.next = rows.end;
        into.copy_from_slice(&self.values[self.row * rows.start..self.row * rows.end]);
        Ok(())
    }

    fn goes_back(&self) -> bool {
        self.goes_back
    }
}

/// A sink that requires rows in order.
fn collect<P: Sample>(
    found: &mut Vec<P>,
    row: usize,
) -> impl FnMut(Range<usize>, &[P]) -> io::Result<()> + Send {
    move |rows, from| {
        if found.len() != row * rows.start || from.len() != row * rows.len() {
            return Err(io::Error::other(format!(
                "{} values are there, and {rows:?} came",
                found.len()
            )));
        }
        found.extend_from_slice(from);
        Ok(())
    }
}

fn random<P: Sample>(shape: Shape, seed: u64) -> Vec<P> {
    let mut rng = Rng::with_seed(seed);
    (0..shape.row_len() * shape.height).map(|_| P::random(&mut rng, Data::Random)).collect()
}

/// Compares a picture in chunks with the same in one piece; `false` if the variant declines it.
fn holds<S: Sample, D: Sample>(
    window: &Window,
    (border, device): (Border, Device),
    variant: Option<Variant>,
    shape: Shape,
    rows: usize,
    (sources, seed): (&[bool], u64),
) -> Result<bool, Failed> {
    let builder = || Plan::builder(&window.filter).border(border).device(device).variant(variant);
    let src = Image::from_vec(random::<S>(shape, seed), shape.width, shape.height, shape.channels)?;
    let mut expected = Image::<D>::zeroed(shape.width, shape.height, shape.channels)?;
    let plan = builder().build();
    match plan.and_then(|plan| plan.run(&src.view(), &mut expected.view_mut())) {
        Err(Error::Unsupported { .. }) => return Ok(false),
        outcome => outcome?,
    }
    let row = shape.row_len();
    let plan = builder().band_rows(rows).build()?;
    for &goes_back in sources {
        let mut found = Vec::new();
        let mut source = Rows { values: src.as_slice(), row, next: 0, goes_back };
        let outcome = plan.run_streamed(shape, &mut source, &mut collect::<D>(&mut found, row));
        if border == Border::Wrap && !goes_back {
            match outcome {
                Err(Error::Rows { what: "read", error, .. })
                    if error.to_string().contains("wrap") && found.is_empty() =>
                {
                    continue;
                }
                other => {
                    return Err(format!("wrap from a source that cannot go back: {other:?}").into());
                }
            }
        }
        outcome?;
        let wrong = found
            .iter()
            .zip(expected.as_slice())
            .position(|(found, right)| found.bits() != right.bits());
        if found.len() != expected.as_slice().len() || wrong.is_some() {
            let wrong = wrong
                .map_or("rows are missing".to_owned(), |at| format!("row {} is wrong", at / row));
            let variant = variant.map_or("the chosen variant", Variant::name);
            return Err(format!(
                "{variant}, {window}, border {border}, {shape}, chunks of {rows} bands: {wrong}"
            )
            .into());
        }
    }
    Ok(true)
}

/// Every family under every border, in chunks from a few rows to nearly all. Some windows are
/// higher than a chunk, or than the picture.
fn chunks(device: Device, selection: Selection) -> Result<(), Failed> {
    let windows = [
        Window::random_pair(3, 3, 91),
        Window::random(5, 9, 92).anchored(1, 8),
        Window::blur_pair(7, 33, 93),
        Window::random(2, 75, 94).anchored(0, 3),
    ];
    let families = [Variant::DirectNaive, Variant::Separable, Variant::Fourier];
    let variants: Vec<_> = families.into_iter().map(Some).chain([None]).collect();
    let mut held = vec![0; variants.len()];
    for (i, window) in windows.iter().enumerate() {
        for (j, &border) in BORDERS.iter().enumerate() {
            if selection != Selection::Full && (i + j) % 2 == 1 {
                continue;
            }
            let number = BORDERS.len() * i + j;
            let rows = [1, 5, 30, 11][number % 4];
            for (k, (&variant, held)) in variants.iter().zip(&mut held).enumerate() {
                let on_emulator = selection == Selection::Emulated && device != Device::Cpu;
                if on_emulator && !(number / 2 + k).is_multiple_of(variants.len()) {
                    continue;
                }
                // Several rows of spectral tiles.
                let several = j % 3 == 0 && (!on_emulator || variant == Some(Variant::Fourier));
                let height = if several { 290 } else { 41 + 3 * j };
                let shape = Shape { width: 21 + 5 * i, height, channels: 1 + number % 4 };
                let once = [border == Border::Wrap || number.is_multiple_of(2)];
                let sources = if on_emulator { &once[..] } else { &[false, true] };
                let (on, seeded) = ((border, device), (sources, seed(95, number)));
                let is_held = match number % 3 {
                    0 => holds::<u8, u8>(window, on, variant, shape, rows, seeded)?,
                    1 => holds::<f32, f32>(window, on, variant, shape, rows, seeded)?,
                    _ => holds::<u16, f32>(window, on, variant, shape, rows, seeded)?,
                };
                *held += usize::from(is_held);
            }
        }
    }
    // Several rows of tiles of 1-D spectra.
    let (window, variant) =
        (&Window::random_pair(3, 130, 97).anchored(0, 90), Variant::SpectraPasses);
    for (j, &border) in BORDERS.iter().enumerate() {
        let (shape, seeded) =
            (Shape { width: 7, height: 1900 + j, channels: 1 }, (&[j % 2 == 0][..], seed(96, j)));
        if !holds::<f32, f32>(window, (border, device), Some(variant), shape, 100, seeded)? {
            return Err(format!("{variant} held nothing under {border}").into());
        }
    }
    match held.iter().position(|&held| held == 0) {
        Some(none) => Err(format!("{:?} held nothing", variants[none]).into()),
        None => Ok(()),
    }
}

const SHAPE: Shape = Shape { width: 64, height: 200, channels: 3 };

/// A source or a sink that fails ends the run. The error names the rows and the reason, and earlier
/// rows are right.
fn faults(device: Device, _: Selection) -> Result<(), Failed> {
    let window = Window::preset("gaussian:sigma=1");
    let plan = Plan::builder(&window.filter).device(device).band_rows(5).build()?;
    let src = Image::from_vec(random::<u8>(SHAPE, 96), SHAPE.width, SHAPE.height, SHAPE.channels)?;
    let mut expected = Image::<u8>::zeroed(SHAPE.width, SHAPE.height, SHAPE.channels)?;
    plan.run(&src.view(), &mut expected.view_mut())?;
    let row = SHAPE.row_len();

    let mut found = Vec::<u8>::new();
    let mut source = |rows: Range<usize>, into: &mut [u8]| {
        if rows.end > 100 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        into.copy_from_slice(&src.as_slice()[row * rows.start..row * rows.end]);
        Ok(())
    };
    let outcome = plan.run_streamed(SHAPE, &mut source, &mut collect(&mut found, row));
    match outcome {
        Err(Error::Rows { what: "read", rows, error })
            if rows.contains(&100) && error.kind() == io::ErrorKind::UnexpectedEof => {}
        other => return Err(format!("a source that ends: {other:?}").into()),
    }
    if found.len() < 30 * row || found != expected.as_slice()[..found.len()] {
        return Err(
            format!("a source that ends: {} values came, or wrong ones", found.len()).into()
        );
    }

    let mut taken = 0;
    let mut sink = |rows: Range<usize>, _: &[u8]| {
        taken = rows.end;
        if rows.end > 100 { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) }
    };
    let mut source = Rows { values: src.as_slice(), row, next: 0, goes_back: false };
    match plan.run_streamed(SHAPE, &mut source, &mut sink) {
        Err(Error::Rows { what: "written", rows, error })
            if rows.end == taken && error.kind() == io::ErrorKind::StorageFull =>
        {
            Ok(())
        }
        other => Err(format!("a sink that is full: {other:?}").into()),
    }
}

/// The reports of a run.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Progress>>>);

impl Told {
    /// Checks the reports since the last check: they begin above 0, rise, and end with the total.
    fn check(&self, total: u64, at_least: usize) -> Result<(), Failed> {
        let told = std::mem::take(&mut *self.0.lock().map_err(|_| "a report panicked")?);
        let rises = told.windows(2).all(|pair| pair[0].done < pair[1].done);
        let ends = told.last().is_some_and(|last| last.done == total);
        if rises
            && ends
            && told.len() >= at_least
            && told.iter().all(|told| told.total == total && told.done > 0)
        {
            Ok(())
        } else {
            Err(format!("of {total} pixels it told {told:?}").into())
        }
    }
}

/// Progress rises to the number of pixels, for a picture, a batch and a stream.
fn progress(device: Device, _: Selection) -> Result<(), Failed> {
    let window = Window::random(9, 9, 97);
    let told = Told::default();
    let into = told.clone();
    let report = move |progress| {
        if let Ok(mut told) = into.0.lock() {
            told.push(progress);
        }
        ControlFlow::Continue(())
    };
    let plan =
        Plan::builder(&window.filter).device(device).band_rows(20).progress(report).build()?;
    let pixels = (SHAPE.width * SHAPE.height) as u64;
    let src = Image::from_vec(random::<f32>(SHAPE, 98), SHAPE.width, SHAPE.height, SHAPE.channels)?;
    let mut targets =
        [(); 3].map(|()| Image::<f32>::zeroed(SHAPE.width, SHAPE.height, SHAPE.channels));
    let mut views = Vec::new();
    for target in &mut targets {
        match target {
            Ok(target) => views.push((src.view(), target.view_mut())),
            Err(error) => return Err(error.to_string().into()),
        }
    }
    // A small picture may be a single job on a CPU.
    let several = if device == Device::Cpu { 1 } else { 5 };
    plan.run(&src.view(), &mut views[0].1)?;
    told.check(pixels, several)?;
    plan.run_batch(&mut views)?;
    told.check(3 * pixels, 3 * several)?;
    let mut source =
        Rows { values: src.as_slice(), row: SHAPE.row_len(), next: 0, goes_back: false };
    plan.run_streamed(SHAPE, &mut source, &mut |_: Range<usize>, _: &[f32]| Ok(()))?;
    told.check(pixels, 4)
}

/// A report that returns `Break` ends the run. The plan still works.
fn cancelled(device: Device, _: Selection) -> Result<(), Failed> {
    let window = Window::preset("gaussian:sigma=1");
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let counter = left.clone();
    let report = move |_| match counter.fetch_sub(1, Ordering::Relaxed) {
        0 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let plan =
        Plan::builder(&window.filter).device(device).band_rows(10).progress(report).build()?;
    let src = Image::from_vec(random::<u8>(SHAPE, 99), SHAPE.width, SHAPE.height, SHAPE.channels)?;
    let row = SHAPE.row_len();
    let streamed = |found: &mut Vec<u8>| {
        let mut source = Rows { values: src.as_slice(), row, next: 0, goes_back: false };
        plan.run_streamed(SHAPE, &mut source, &mut collect(found, row))
    };
    let mut expected = Vec::new();
    streamed(&mut expected)?;

    left.store(2, Ordering::Relaxed);
    let mut found = Vec::new();
    match streamed(&mut found) {
        Err(Error::Cancelled { done, total }) if 0 < done && done < total => {}
        other => return Err(format!("a stream that was ended: {other:?}").into()),
    }
    if found.len() == expected.len() || found != expected[..found.len()] {
        return Err(format!(
            "{} values came of a stream that was ended, or wrong ones",
            found.len()
        )
        .into());
    }

    left.store(1, Ordering::Relaxed);
    let mut targets = [(); 4].map(|()| vec![0u8; expected.len()]);
    let views = targets.iter_mut().map(|target| {
        Ok((
            src.view(),
            apron::ImageViewMut::new(target, SHAPE.width, SHAPE.height, SHAPE.channels)?,
        ))
    });
    let mut views = views.collect::<Result<Vec<_>>>()?;
    let done = match plan.run_batch(&mut views) {
        Err(Error::InBatch { picture, error }) if matches!(*error, Error::Cancelled { .. }) => {
            picture
        }
        other => return Err(format!("a batch that was ended: {other:?}").into()),
    };
    drop(views);
    if targets.iter().take(done).any(|target| *target != expected) {
        return Err(format!("of {done} pictures that were done one is wrong").into());
    }

    left.store(u64::MAX, Ordering::Relaxed);
    let mut found = Vec::new();
    streamed(&mut found)?;
    if found == expected { Ok(()) } else { Err("another result after a run that was ended".into()) }
}
