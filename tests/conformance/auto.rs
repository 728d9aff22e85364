//! Plans that choose between the CPU and the GPU. Whatever they choose, results are right, and a
//! GPU's failure does no harm.
//!
//! Kernels run slowly in the emulator, and predictions are for a GPU. So a factor makes the CPU
//! seem slower where a test needs the GPU to be chosen.

use apron::{
    Border, Device, Filter, Gradient, Image, Pipeline, Plan, RowSink, RowSource, Scalar, Shape,
    Step, Work,
};
use conformance::product::Gpu;
use conformance::suite::gpu_trial;
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials(gpu: &Gpu) -> Vec<Trial> {
    vec![
        Trial::test("auto::without_a_loss_nothing_is_opened", small_jobs_stay),
        gpu_trial("auto::bytes_are_the_same::gpu", gpu, same_bytes),
        gpu_trial("auto::bits_are_the_same::gpu", gpu, same_bits),
        gpu_trial("auto::callers::gpu", gpu, callers),
        gpu_trial("auto::images::gpu", gpu, images),
    ]
}

type Outcome = Result<(), Failed>;

/// Factors that make the CPU seem slower, or faster, than anything.
const ALWAYS: f64 = 1e12;
const NEVER: f64 = 1e-12;

fn plan(step: impl Into<Step>, cpu_times: f64) -> apron::Result<Plan> {
    Plan::builder(step).border(Border::Reflect).cpu_times(cpu_times).build()
}

fn step() -> apron::Result<Step> {
    "gaussian:sigma=1.5".parse()
}

fn picture(width: usize, height: usize) -> apron::Result<Image<u8>> {
    Image::from_vec((0..width * height).map(|i| (i * 7919 % 251) as u8).collect(), width, height, 1)
}

/// The CPU's result.
fn expected(step: Step, picture: &Image<u8>) -> apron::Result<Image<u8>> {
    Plan::builder(step).border(Border::Reflect).device(Device::Cpu).build()?.filter(picture)
}

/// The predicted seconds of a call on the CPU, after some calls.
fn on_cpu(shape: Shape) -> Result<f64, Failed> {
    let (auto, src) = (plan(step()?, NEVER)?, picture(shape.width, shape.height)?);
    (0..5).try_for_each(|_| auto.filter(&src).map(|_: Image<u8>| ()))?;
    let time = plan(step()?, 1.0)?.estimate(&Work::one(shape, Scalar::U8)).cpu;
    Ok(time.ok_or("no time")?.as_secs_f64())
}

fn check(right: bool, what: impl Into<String>) -> Outcome {
    if right { Ok(()) } else { Err(what.into().into()) }
}

/// Small calls stay on the CPU, and make no call of the driver. A machine without a driver gives
/// the same results.
pub(crate) fn small_jobs_stay() -> Outcome {
    let (auto, src) = (plan(step()?, NEVER)?, picture(40, 30)?);
    let work = Work::one(src.shape(), Scalar::U8);
    let before = auto.estimate(&work);
    let expected = expected(step()?, &src)?;
    for _ in 0..100 {
        check(auto.filter(&src)? == expected, "another result")?;
        check(auto.ran_on() == Device::Cpu, "a small job went to the GPU")?;
    }
    let after = auto.estimate(&work);
    let opening = |estimate: &apron::CallEstimate| estimate.gpu.as_ref().map(|gpu| gpu.opening);
    check(
        after.device == Device::Cpu && opening(&before) == opening(&after),
        format!("{before:?}\n{after:?}"),
    )
}

/// Every function of plans and pipelines gives the same bytes on each device.
fn same_bytes() -> Outcome {
    let src = picture(90, 60)?;
    let shape = src.shape();
    for text in [
        "gaussian:sigma=1.5",
        "sobel",
        "unsharp:sigma=2",
        "box:size=15",
        "motion:length=41,angle=70",
    ] {
        let mut found = Vec::new();
        for (cpu_times, device) in [(NEVER, Device::Cpu), (ALWAYS, Device::Gpu(0))] {
            let auto = plan(text.parse::<Step>()?, cpu_times)?;
            let mut results = vec![auto.filter(&src)?];
            check(
                auto.ran_on() == device,
                format!("{text} ran on {}, not {device}", auto.ran_on()),
            )?;
            let mut batch = vec![Image::<u8>::zeroed(90, 60, 1)?, Image::<u8>::zeroed(90, 60, 1)?];
            auto.run_batch(
                &mut batch.iter_mut().map(|dst| (src.view(), dst.view_mut())).collect::<Vec<_>>(),
            )?;
            check(auto.ran_on() == device, format!("{text}: a batch on {}", auto.ran_on()))?;
            results.extend(batch);
            let (mut source, mut rows) = (Rows(&src), Taken(Vec::new()));
            auto.run_streamed::<u8, u8>(shape, &mut source, &mut rows)?;
            check(auto.ran_on() == device, format!("{text}: rows on {}", auto.ran_on()))?;
            results.push(Image::from_vec(rows.0, shape.width, shape.height, 1)?);
            let pipeline = Pipeline::new(vec![auto, plan(Gradient::scharr(), cpu_times)?])?;
            let mut chained = Image::zeroed(shape.width, shape.height, 1)?;
            pipeline.run(&src.view(), &mut chained.view_mut())?;
            let ran_on = pipeline.plans()[0].ran_on();
            check(
                ran_on == device && pipeline.device() == Device::Auto,
                format!("{text}: a pipeline on {ran_on}"),
            )?;
            results.push(chained);
            found.push(results);
        }
        check(found[0] == found[1], format!("{text}: bytes differ"))?;
        check(found[0][0] == expected(text.parse()?, &src)?, format!("{text}: a wrong result"))?;
    }
    Ok(())
}

/// Small windows on floats and on 16-bit integers give the same bits on each device, although each
/// device has another fastest order of sums.
fn same_bits() -> Outcome {
    let floats =
        picture(90, 60)?.as_slice().iter().map(|&value| f32::from(value) * 0.37 - 20.0).collect();
    let floats = Image::from_vec(floats, 30, 60, 3)?;
    let words = Image::from_vec((0..5400).map(|i| (i * 7919 % 65521) as u16).collect(), 90, 60, 1)?;
    let thin: Vec<f32> = (0..17).map(|i| 0.01 + 0.003 * i as f32).collect();
    let dense: Vec<f32> = (0..13 * 9).map(|i| (i * 31 % 17) as f32 * 0.001).collect();
    for filter in [
        Filter::from_taps(1, 10, &thin[..10])?,
        Filter::from_taps(17, 1, &thin)?,
        Filter::separable(&thin[..3], &thin[..11])?,
        Filter::separable(&thin[..12], &thin[..2])?,
        Filter::from_taps(13, 9, &dense)?,
        Filter::gaussian(2.0)?,
    ] {
        let on = |cpu_times| -> Result<_, Failed> {
            let auto = plan(&filter, cpu_times)?;
            let (floats, words) = (auto.filter(&floats)?, auto.filter(&words)?);
            let bits: Vec<u32> =
                floats.as_slice().iter().map(|value: &f32| value.to_bits()).collect();
            Ok((bits, words, auto.ran_on()))
        };
        let (on_cpu, on_gpu) = (on(NEVER)?, on(ALWAYS)?);
        check(
            on_cpu.2 == Device::Cpu && on_gpu.2 == Device::Gpu(0),
            format!("{filter}: not where it should run"),
        )?;
        check(on_cpu.0 == on_gpu.0 && on_cpu.1 == on_gpu.1, format!("{filter}: bits differ"))?;
    }
    Ok(())
}

/// A picture's rows.
struct Rows<'a>(&'a Image<u8>);

impl RowSource<u8> for Rows<'_> {
    fn read(&mut self, rows: std::ops::Range<usize>, into: &mut [u8]) -> std::io::Result<()> {
        let width = self.0.shape().width;
        into.copy_from_slice(&self.0.as_slice()[rows.start * width..rows.end * width]);
        Ok(())
    }
}

/// Rows of results.
struct Taken(Vec<u8>);

impl RowSink<u8> for Taken {
    fn write(&mut self, _: std::ops::Range<usize>, from: &[u8]) -> std::io::Result<()> {
        self.0.extend_from_slice(from);
        Ok(())
    }
}

/// Many threads use one plan while it changes its device.
pub(crate) fn callers() -> Outcome {
    let src = picture(64, 48)?;
    let expected = expected(step()?, &src)?;
    // Some calls lose too little time to open a GPU.
    let auto = plan(step()?, 0.03 / on_cpu(src.shape())?)?;
    std::thread::scope(|scope| {
        let work = || -> Outcome {
            for _ in 0..20 {
                check(auto.filter(&src)? == expected, "another result")?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panics")?)
    })
}

/// Images on a GPU are filtered on that GPU, by a plan that would otherwise never choose it.
#[cfg(feature = "gpu")]
fn images() -> Outcome {
    let auto = plan(step()?, NEVER)?;
    let src = Image::from_vec(
        picture(64, 48)?.as_slice().iter().map(|&value| f32::from(value)).collect(),
        64,
        48,
        1,
    )?;
    for ordinal in 0..apron::gpu::Gpu::count()?.min(2) {
        let gpu = apron::gpu::Gpu::open(ordinal)?;
        let expected: Image<f32> = Plan::builder(step()?)
            .border(Border::Reflect)
            .device(Device::Gpu(ordinal))
            .build()?
            .filter(&src)?;
        let (from, mut to, mut stream) =
            (gpu.upload(&src.view())?, gpu.image(src.shape())?, gpu.stream()?);
        auto.run_on_device(&from, &mut to, &mut stream)?;
        stream.synchronize()?;
        check(gpu.download(&to)? == expected, format!("another result on GPU {ordinal}"))?;
        let mut recorded = auto.record(from, gpu.image(src.shape())?)?;
        recorded.replay(&mut stream)?;
        stream.synchronize()?;
        check(
            gpu.download(recorded.dst())? == expected,
            format!("another recorded result on GPU {ordinal}"),
        )?;
    }
    Ok(())
}

#[cfg(not(feature = "gpu"))]
use conformance::suite::no_gpu as images;

/// Scenarios that run as processes of their own, on the emulator.
#[cfg(feature = "gpu")]
pub(crate) mod scenarios {
    use std::time::{Duration, Instant};

    use super::*;

    fn opening(plan: &Plan, shape: Shape) -> Duration {
        let estimate = plan.estimate(&Work::one(shape, Scalar::U8));
        estimate.gpu.map_or(Duration::ZERO, |gpu| gpu.opening)
    }

    /// A plan for which a call loses about this many seconds on the CPU.
    fn losing(seconds: f64, shape: Shape) -> Result<Plan, Failed> {
        Ok(plan(step()?, seconds / on_cpu(shape)?)?)
    }

    /// Small jobs open no device. A job that is large enough goes to the GPU at once.
    pub(crate) fn opens_at_once() -> Outcome {
        small_jobs_stay()?;
        let src = picture(64, 48)?;
        let auto = plan(step()?, ALWAYS)?;
        check(opening(&auto, src.shape()) > Duration::from_millis(100), "opened for nothing")?;
        check(auto.filter(&src)? == expected(step()?, &src)?, "another result")?;
        check(
            auto.ran_on() == Device::Gpu(0) && auto.device() == Device::Auto,
            "the GPU was not used",
        )?;
        check(
            opening(&auto, src.shape()) == Duration::ZERO && auto.fallback().is_none(),
            "it is not open",
        )
    }

    /// The first calls run on the CPU. Once they have lost enough time, the GPU is opened while
    /// calls go on, and then used.
    pub(crate) fn opens_in_background() -> Outcome {
        let src = picture(64, 48)?;
        let (auto, expected) = (losing(0.03, src.shape())?, expected(step()?, &src)?);
        let mut meanwhile = 0;
        let start = Instant::now();
        for call in 0.. {
            check(auto.filter(&src)? == expected, format!("call {call}: another result"))?;
            if auto.ran_on() == Device::Gpu(0) {
                check(
                    call >= 2 && meanwhile >= 2,
                    format!("call {call}, {meanwhile} of them while it was opened"),
                )?;
                return Ok(());
            }
            let why = auto.estimate(&Work::one(src.shape(), Scalar::U8)).why;
            meanwhile += usize::from(why.contains("being opened"));
            check(start.elapsed() < Duration::from_secs(60), format!("never used: {why}"))?;
        }
        Ok(())
    }

    /// A thread is still opening the GPU when the process ends: the emulator reports an error in
    /// this case.
    pub(crate) fn ends_while_it_opens() -> Outcome {
        let src = picture(64, 48)?;
        let auto = losing(0.05, src.shape())?;
        let start = Instant::now();
        while !auto.estimate(&Work::one(src.shape(), Scalar::U8)).why.contains("being opened") {
            auto.filter::<Image<u8>>(&src)?;
            check(start.elapsed() < Duration::from_secs(60), "it is never opened")?;
        }
        // By then the thread is in the driver.
        std::thread::sleep(Duration::from_millis(100));
        let why = auto.estimate(&Work::one(src.shape(), Scalar::U8)).why;
        check(why.contains("being opened"), why)
    }

    /// A GPU that cannot be opened, at once or in the background: jobs run on the CPU, and the
    /// reason is recorded.
    pub(crate) fn cannot_be_opened(words: &str) -> Outcome {
        let src = picture(64, 48)?;
        let expected = expected(step()?, &src)?;
        let auto = losing(0.1, src.shape())?;
        let start = Instant::now();
        while auto.fallback().is_none() {
            check(
                auto.filter(&src)? == expected && auto.ran_on() == Device::Cpu,
                "another result",
            )?;
            check(start.elapsed() < Duration::from_secs(60), "it is never opened")?;
        }
        let said = auto.fallback().map(ToString::to_string).unwrap_or_default();
        check(said.contains(words) && auto.device() == Device::Cpu, format!("said: {said}"))?;
        let other = plan(step()?, ALWAYS)?;
        check(other.filter(&src)? == expected && other.ran_on() == Device::Cpu, "another result")?;
        let pipeline = Pipeline::new(vec![auto, other])?;
        pipeline.run(&src.view(), &mut Image::<u8>::zeroed(64, 48, 1)?.view_mut())?;
        check(pipeline.device() == Device::Cpu, "a pipeline on something else")
    }

    /// The same for a single job that is large enough for the GPU.
    pub(crate) fn cannot_be_opened_at_once(words: &str) -> Outcome {
        let src = picture(64, 48)?;
        let auto = plan(step()?, ALWAYS)?;
        check(auto.filter(&src)? == expected(step()?, &src)?, "another result")?;
        let said = auto.fallback().map(ToString::to_string).unwrap_or_default();
        check(said.contains(words) && auto.ran_on() == Device::Cpu, format!("said: {said}"))
    }

    /// The call that loses the GPU returns an error. Later calls use the CPU, and give the reason.
    pub(crate) fn lost() -> Outcome {
        let src = picture(64, 48)?;
        let auto = plan(step()?, ALWAYS)?;
        match auto.filter(&src) {
            Err(apron::Error::Driver { message, .. })
                if message.contains("unspecified launch failure") => {}
            other => return Err(format!("{other:?}").into()),
        }
        for auto in [auto, plan(step()?, ALWAYS)?] {
            check(auto.filter(&src)? == expected(step()?, &src)?, "another result")?;
            let said = auto.fallback().map(ToString::to_string).unwrap_or_default();
            let right = said.contains("unspecified launch failure") && auto.ran_on() == Device::Cpu;
            check(right && auto.device() == Device::Cpu, format!("said: {said}"))?;
        }
        Ok(())
    }

    /// A launch is refused, but the GPU still works: the call returns an error, and the next call
    /// uses the GPU.
    pub(crate) fn refused_once() -> Outcome {
        let src = picture(64, 48)?;
        let auto = plan(step()?, ALWAYS)?;
        let first = auto.filter::<Image<u8>>(&src);
        check(matches!(first, Err(apron::Error::Driver { .. })), format!("{first:?}"))?;
        check(auto.filter(&src)? == expected(step()?, &src)?, "another result")?;
        check(auto.ran_on() == Device::Gpu(0) && auto.fallback().is_none(), "the GPU was given up")
    }

    /// The GPU has no room for one row, so the CPU does the job. A job that fits goes to the GPU.
    pub(crate) fn too_large() -> Outcome {
        let auto = plan(Filter::separable(&[0.25, 0.5, 0.3], &[0.5, 0.25, 0.5])?, ALWAYS)?;
        for (width, height, device) in [(40_000, 5, Device::Cpu), (64, 48, Device::Gpu(0))] {
            let src = picture(width, height)?;
            let expected = Plan::builder(Filter::separable(&[0.25, 0.5, 0.3], &[0.5, 0.25, 0.5])?);
            let expected =
                expected.border(Border::Reflect).device(Device::Cpu).build()?.filter(&src)?;
            check(auto.filter(&src)? == expected, format!("{width}x{height}: another result"))?;
            check(auto.ran_on() == device, format!("{width}x{height} on {}", auto.ran_on()))?;
        }
        Ok(())
    }
}
