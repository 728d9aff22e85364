//! Several GPUs in one process: every result equals that of the first GPU, and a GPU refuses the
//! objects of another.

use conformance::product::Gpu;
#[cfg(not(feature = "gpu"))]
use conformance::suite::no_gpu;
use libtest_mimic::Trial;

pub(crate) fn trials(gpu: &Gpu) -> Vec<Trial> {
    #[cfg(feature = "gpu")]
    let (tests, enough) = (several::TESTS, several::count() > 1);
    #[cfg(not(feature = "gpu"))]
    let (tests, enough) = (&[("at_once", no_gpu as Test), ("kept_apart", no_gpu)], false);
    let trial = |&(name, test): &(&str, Test)| {
        let name = format!("devices::{name}::gpu");
        let trial = conformance::suite::gpu_trial(&name, gpu, test);
        // One GPU is enough for all other tests.
        if matches!(gpu, Gpu::Ready) && !enough { trial.with_ignored_flag(true) } else { trial }
    };
    tests.iter().map(trial).collect()
}

type Test = fn() -> Result<(), libtest_mimic::Failed>;

#[cfg(feature = "gpu")]
mod several {
    use apron::gpu::Gpu;
    use apron::{Device, Error, Result};
    use libtest_mimic::Failed;

    use super::Test;
    use crate::concurrency::{FILTERS, picture, plan, run};

    pub(super) const TESTS: &[(&str, Test)] = &[("at_once", at_once), ("kept_apart", kept_apart)];

    pub(super) fn count() -> u32 {
        Gpu::count().unwrap_or(0)
    }

    /// Each thread goes from one GPU to the next, and all start on different GPUs. They filter
    /// images on the host and on the device, and launch work on all GPUs before they wait for any.
    fn at_once() -> Result<(), Failed> {
        let gpus: Vec<_> = (0..count()).map(Gpu::open).collect::<Result<_>>()?;
        let src = picture(5, 2)?;
        for filter in FILTERS {
            let expected = run(&plan(filter, Device::Gpu(0))?, &src)?;
            let plans: Vec<_> =
                (0..count()).map(|gpu| plan(filter, Device::Gpu(gpu))).collect::<Result<_>>()?;
            let turns = |first: usize| -> Result<bool> {
                let mut same = true;
                let around = || (0..2 * gpus.len()).map(|turn| (first + turn) % gpus.len());
                let mut under_way = Vec::new();
                for at in around() {
                    same &= run(&plans[at], &src)? == expected;
                    let mut stream = gpus[at].stream()?;
                    let (from, mut to) =
                        (gpus[at].upload(&src.view())?, gpus[at].image(src.shape())?);
                    plans[at].run_on_device(&from, &mut to, &mut stream)?;
                    under_way.push((at, from, to, stream));
                }
                for (at, _, to, stream) in &under_way {
                    stream.synchronize()?;
                    same &= gpus[*at].download(to)? == expected;
                }
                Ok(same)
            };
            let results: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..gpus.len()).map(|first| scope.spawn(move || turns(first))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(false))).collect()
            });
            for (first, same) in results.into_iter().enumerate() {
                if !same? {
                    return Err(format!(
                        "{filter}: another result in the thread that began on GPU {first}"
                    )
                    .into());
                }
            }
        }
        Ok(())
    }

    /// Plans, images, streams, marks and recorded work of two GPUs do not mix: the error names both
    /// GPUs, and nothing runs.
    fn kept_apart() -> Result<(), Failed> {
        let (here, there) = (Gpu::open(0)?, Gpu::open(1)?);
        let (plan, picture) = (plan(FILTERS[0], Device::Gpu(0))?, picture(5, 2)?);
        let shape = picture.shape();
        let expected = run(&plan, &picture)?;
        let src = here.upload(&picture.view())?;
        let (mut dst, mut stream) = (here.image(shape)?, here.stream()?);
        plan.run_on_device(&src, &mut dst, &mut stream)?;
        let mut foreign_stream = there.stream()?;
        let foreign = there.upload(&picture.view())?;
        let mut foreign_dst = there.image(shape)?;
        let mut recorded = plan.record(here.upload(&picture.view())?, here.image(shape)?)?;

        let refused = [
            ("source", plan.run_on_device(&foreign, &mut dst, &mut stream)),
            ("destination", plan.run_on_device(&src, &mut foreign_dst, &mut stream)),
            ("stream", plan.run_on_device(&src, &mut dst, &mut foreign_stream)),
            (
                "recorded",
                plan.record(there.upload(&picture.view())?, there.image(shape)?).map(|_| ()),
            ),
            ("replay", recorded.replay(&mut foreign_stream)),
            ("image to copy", dst.copy_from(&foreign, &stream)),
            ("stream of a copy", dst.copy_from(&src, &foreign_stream)),
            ("stream of a fill", dst.fill(0.5, &foreign_stream)),
            ("upload", here.upload_into(&picture.view(), &mut foreign_dst)),
            ("download", here.download(&foreign).map(|_| ())),
            ("mark", stream.mark()?.since(&foreign_stream.mark()?).map(|_| ())),
        ];
        for (what, outcome) in refused {
            let named = |error: &Error| {
                let (text, wrong) = (error.to_string(), matches!(error, Error::Parameter { .. }));
                wrong && text.contains("GPU 0") && text.contains("GPU 1")
            };
            if !outcome.as_ref().is_err_and(named) {
                return Err(format!("{what}: {outcome:?}").into());
            }
        }
        // The refused calls changed nothing.
        stream.synchronize()?;
        recorded.replay(&mut stream)?;
        stream.synchronize()?;
        let unharmed = here.download(&dst)? == expected
            && here.download(recorded.dst())? == expected
            && there.download(&foreign)? == picture;
        if unharmed { Ok(()) } else { Err("a result was spoilt by what was refused".into()) }
    }
}
