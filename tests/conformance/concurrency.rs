//! Many threads and streams, on a shared plan and on plans of their own: every result equals that
//! of a single thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;

#[cfg(feature = "gpu")]
use apron::Shape;
use apron::{Border, Device, Error, Filter, Image, Plan, PlanBuilder};
use conformance::product::Gpu;
use conformance::select::Selection;
use conformance::suite::gpu_trial;
#[cfg(not(feature = "gpu"))]
use conformance::suite::{
    no_gpu as dropped_elsewhere, no_gpu as foreign_stream, no_gpu as recording, no_gpu as streams,
};
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let mut trials = vec![
        Trial::test("concurrency::types_may_cross_threads", types),
        Trial::test("concurrency::panics_elsewhere_do_no_harm::cpu", || panics(Device::Cpu)),
        gpu_trial("concurrency::panics_elsewhere_do_no_harm::gpu", gpu, || panics(Gpu::DEVICE)),
        gpu_trial("concurrency::streams::gpu", gpu, streams),
        gpu_trial("concurrency::foreign_stream::gpu", gpu, foreign_stream),
        gpu_trial("concurrency::recording::gpu", gpu, recording),
        gpu_trial("concurrency::dropped_elsewhere::gpu", gpu, dropped_elsewhere),
    ];
    for (name, device) in [("cpu", Device::Cpu), ("gpu", Gpu::DEVICE)] {
        for shared in [true, false] {
            let name = format!(
                "concurrency::{}::{name}",
                if shared { "one_plan" } else { "plans_of_their_own" }
            );
            let test = move || threads(device, shared);
            trials.push(if device == Device::Cpu {
                Trial::test(name, test)
            } else {
                gpu_trial(&name, gpu, test)
            });
        }
    }
    // compute-sanitizer loses track of launches that come from many threads.
    if selection == Selection::Small {
        trials = trials.into_iter().map(|trial| trial.with_ignored_flag(true)).collect();
    }
    trials
}

/// A type that loses `Send` or `Sync` does not compile here.
fn types() -> Result<(), Failed> {
    fn send<T: Send>() {}
    fn both<T: Send + Sync>() {}
    both::<Plan>();
    both::<PlanBuilder>();
    both::<apron::Pipeline>();
    both::<Filter>();
    both::<Image<f32>>();
    both::<Error>();
    #[cfg(feature = "gpu")]
    {
        use apron::gpu::{DeviceImage, Gpu, Mark, Recorded, Stream};
        both::<Gpu>();
        both::<DeviceImage>();
        both::<Stream>();
        both::<Mark>();
        send::<Recorded>();
    }
    send::<Plan>();
    Ok(())
}

const THREADS: usize = 8;
const TURNS: usize = 4;

/// Filters of every family, so that many threads at once trigger all that a plan creates on first
/// use.
pub(crate) const FILTERS: [&str; 5] = [
    "gaussian:sigma=1.5",
    "motion:length=9,angle=30",
    "laplacian",
    "box:size=14",
    "motion:length=41,angle=70",
];

pub(crate) fn plan(filter: &str, device: Device) -> apron::Result<Plan> {
    Plan::builder(filter.parse::<apron::Filter>()?).border(Border::Wrap).device(device).build()
}

/// A different picture for each thread and iteration. Sizes differ, so that scratch memory must
/// grow.
pub(crate) fn picture(thread: usize, turn: usize) -> apron::Result<Image<f32>> {
    let (width, height) = (40 + 13 * thread, 30 + 17 * turn);
    let values =
        (0..width * height).map(|i| ((i * 7919 + thread * 31 + turn) % 1021) as f32).collect();
    Image::from_vec(values, width, height, 1)
}

pub(crate) fn run(plan: &Plan, src: &Image<f32>) -> apron::Result<Image<f32>> {
    let shape = src.shape();
    let mut dst = Image::<f32>::zeroed(shape.width, shape.height, shape.channels)?;
    plan.run(&src.view(), &mut dst.view_mut())?;
    Ok(dst)
}

/// Runs `work` for every thread number at the same time. Returns the first error.
fn at_once(work: impl Fn(usize) -> Result<(), String> + Sync) -> Result<(), Failed> {
    let start = Barrier::new(THREADS);
    let results: Vec<_> = std::thread::scope(|scope| {
        let work = |thread| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(thread)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(work).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
            .collect()
    });
    results.into_iter().collect::<Result<(), _>>().map_err(Failed::from)
}

fn threads(device: Device, shared: bool) -> Result<(), Failed> {
    for filter in FILTERS {
        // Alone, on a plan that no other thread uses.
        let alone = plan(filter, device)?;
        let mut expected = Vec::new();
        for thread in 0..THREADS {
            for turn in 0..TURNS {
                expected.push(run(&alone, &picture(thread, turn)?)?);
            }
        }
        let one = plan(filter, device)?;
        at_once(|thread| {
            let fail = |error: Error| format!("{filter}, thread {thread}: {error}");
            for turn in 0..TURNS {
                let own = if shared { None } else { Some(plan(filter, device).map_err(fail)?) };
                let found = picture(thread, turn)
                    .and_then(|src| run(own.as_ref().unwrap_or(&one), &src))
                    .map_err(fail)?;
                if found.as_slice() != expected[thread * TURNS + turn].as_slice() {
                    return Err(format!(
                        "{filter} on {device}: thread {thread}, turn {turn} has another result"
                    ));
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Some threads panic while they use a plan, and drop values that use it too. The plan still works.
fn panics(device: Device) -> Result<(), Failed> {
    struct RunWhenDropped<'a>(&'a Plan, &'a Image<f32>);
    impl Drop for RunWhenDropped<'_> {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            run(self.0, self.1).expect("the plan works while its thread panics");
        }
    }

    let plan = plan("gaussian:sigma=1.5", device)?;
    let src = picture(3, 1)?;
    let expected = run(&plan, &src)?;
    at_once(|thread| {
        for _ in 0..TURNS {
            if thread % 2 == 0 {
                // Not `panic!`: its message would be printed.
                let result = catch_unwind(AssertUnwindSafe(|| {
                    let _last = RunWhenDropped(&plan, &src);
                    std::panic::resume_unwind(Box::new("on purpose"));
                }));
                let what = result
                    .err()
                    .and_then(|what| what.downcast_ref::<&str>().copied().map(str::to_owned));
                if what.as_deref() != Some("on purpose") {
                    return Err(format!("another panic came: {what:?}"));
                }
            } else if run(&plan, &src).map_err(|error| error.to_string())? != expected {
                return Err("another result beside panics".into());
            }
        }
        Ok(())
    })?;
    if run(&plan, &src)? == expected { Ok(()) } else { Err("another result after panics".into()) }
}

/// The outcome of a thread's job: an error unless the result was the expected one.
#[cfg(feature = "gpu")]
fn judged(filter: &str, thread: usize, expected: apron::Result<bool>) -> Result<(), String> {
    match expected {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("{filter}: thread {thread} has another result")),
        Err(error) => Err(format!("{filter}: thread {thread}: {error}")),
    }
}

/// One plan in many streams, with images in device memory and one source for all. Nothing waits
/// between launches.
#[cfg(feature = "gpu")]
fn streams() -> Result<(), Failed> {
    let gpu = apron::gpu::Gpu::open(0)?;
    for filter in FILTERS {
        let plan = plan(filter, Gpu::DEVICE)?;
        let picture = picture(5, 2)?;
        let expected = run(&plan, &picture)?;
        let src = gpu.upload(&picture.view())?;
        at_once(|thread| {
            let job = || -> apron::Result<bool> {
                let mut streams = [gpu.stream()?, gpu.stream()?];
                let mut images = [gpu.image(src.shape())?, gpu.image(src.shape())?];
                for _ in 0..TURNS {
                    for (stream, image) in streams.iter_mut().zip(&mut images) {
                        plan.run_on_device(&src, image, stream)?;
                    }
                }
                // One stream waits here, the other when it is dropped.
                streams[0].synchronize()?;
                drop(streams);
                Ok(images
                    .iter()
                    .map(|image| gpu.download(image))
                    .all(|found| found.is_ok_and(|found| found == expected)))
            };
            judged(filter, thread, job())
        })?;
    }
    Ok(())
}

/// Buffers and a stream that another library might own, given as pointers, strides and a handle.
/// The plan's work runs in stream order between earlier and later work, though no thread waits. The
/// foreign stream outlives the objects made from its handle.
#[cfg(feature = "gpu")]
fn foreign_stream() -> Result<(), Failed> {
    use apron::gpu::{DeviceView, DeviceViewMut};

    let gpu = apron::gpu::Gpu::open(0)?;
    let theirs = gpu.stream()?;
    for filter in FILTERS {
        let plan = plan(filter, Gpu::DEVICE)?;
        let picture = picture(5, 2)?;
        let expected = run(&plan, &picture)?;
        let uploaded = gpu.upload(&picture.view())?;
        for _ in 0..TURNS {
            let (mut from, to) = (gpu.image(picture.shape())?, gpu.image(picture.shape())?);
            let mut out = gpu.image(picture.shape())?;
            from.copy_from(&uploaded, &theirs)?;
            {
                let (read, written) =
                    ((from.format().scalar, from.strides()), (to.format().scalar, to.strides()));
                let (shape, rows) = (picture.shape(), 0..picture.shape().height);
                // SAFETY: `from` is an image of this shape and these strides, and lives until the
                // stream is synchronized.
                let src = unsafe {
                    DeviceView::from_raw(&gpu, from.address(), read, shape, 1, rows.clone())?
                };
                // SAFETY: as above, for `to`. Nothing else uses `to` before its copy in the same
                // stream.
                let mut dst = unsafe {
                    DeviceViewMut::from_raw(&gpu, to.address(), written, shape, 1, rows.clone())?
                };
                // SAFETY: `theirs` outlives `stream`.
                let mut stream = unsafe { gpu.stream_from_raw(theirs.handle()) };
                plan.run_region(&src, &mut dst, 0..shape.width, rows, &mut stream)?;
                out.copy_from(&to, &theirs)?;
            }
            theirs.synchronize()?;
            if gpu.download(&out)? != expected {
                return Err(format!("{filter}: another result in a stream by its handle").into());
            }
        }
    }
    Ok(())
}

/// Some threads record work while others make plans, allocate memory and filter. Each thread's
/// results are right.
#[cfg(feature = "gpu")]
fn recording() -> Result<(), Failed> {
    let gpu = apron::gpu::Gpu::open(0)?;
    for filter in FILTERS {
        let src = picture(5, 2)?;
        let expected = run(&plan(filter, Gpu::DEVICE)?, &src)?;
        at_once(|thread| {
            let job = || -> apron::Result<bool> {
                let mut same = true;
                for _ in 0..8 * TURNS {
                    // A separate plan, with taps to upload.
                    let plan = plan(filter, Gpu::DEVICE)?;
                    let found = if thread % 2 == 0 {
                        let mut recorded =
                            plan.record(gpu.upload(&src.view())?, gpu.image(src.shape())?)?;
                        let mut stream = gpu.stream()?;
                        recorded.replay(&mut stream)?;
                        stream.synchronize()?;
                        gpu.download(recorded.dst())?
                    } else {
                        run(&plan, &src)?
                    };
                    same &= found == expected;
                }
                Ok(same)
            };
            judged(filter, thread, job())
        })?;
    }
    Ok(())
}

/// Objects dropped in a thread that never used the GPU free their memory. Otherwise these images,
/// together half as large again as the GPU's memory, would not fit.
#[cfg(feature = "gpu")]
fn dropped_elsewhere() -> Result<(), Failed> {
    const SHARE: u64 = 16;
    let gpu = apron::gpu::Gpu::open(0)?;
    let width = 1 << 14;
    let height = (gpu.info().memory / SHARE / 4) as usize / width;
    for turn in 0..SHARE * 3 / 2 {
        let image = gpu
            .image(Shape { width, height, channels: 1 })
            .map_err(|error| format!("image {turn}: {error}"))?;
        std::thread::spawn(move || drop(image)).join().map_err(|_| "dropping an image panics")?;
    }
    Ok(())
}
