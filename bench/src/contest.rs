//! A contest: all contenders filter the same problem. Each result is checked once; its memory is
//! poisoned before. Then all are timed round by round, so that a change of the clock or other load
//! affects all of them.
//!
//! A contender is a name, a requirement for its result, and a closure. On the CPU other libraries
//! may take part, as [`Rival`]s.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apron::gpu::{DeviceImage, Gpu, Stream};
use apron::{Border, Filter, Image, Plan};
use oracle::Order;
use rayon::prelude::*;

use crate::cases::Random;
use crate::check::{self, Against, Checked};
use crate::measure::{Bed, Rhythm, Turn, copy};

/// A source, a filter and a border.
#[derive(Clone, Copy)]
pub(crate) struct Problem<'a, P> {
    pub(crate) filter: &'a Filter,
    pub(crate) border: Border,
    pub(crate) src: &'a Image<P>,
}

/// The requirement for a result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Must {
    /// The same bits as all results in this order, and this checksum if it is known.
    Bits(Order, Option<u64>),
    /// Within the tolerance for spectra.
    Near,
    /// None here: the caller checks the result.
    Unjudged,
}

/// A contender.
pub(crate) struct Contender<Run> {
    pub(crate) name: String,
    pub(crate) must: Must,
    pub(crate) run: Run,
}

/// Filters one image on the device into another.
pub(crate) type OnDevice<'a> =
    Box<dyn FnMut(&DeviceImage, &mut DeviceImage, &mut Stream) -> apron::Result<()> + 'a>;

/// Filters one image on the host into another.
pub(crate) type OnHost<'a, P> = Box<dyn FnMut(&Image<P>, &mut Image<P>) -> apron::Result<()> + 'a>;

/// Another library that already has the problem. A library that fails leaves the contest, and the
/// others go on. The reason may be unknown.
pub(crate) trait Rival {
    /// Filters once, and compares.
    fn check(&mut self) -> Result<Agreement, Option<String>>;

    /// Filters for one turn, and returns the times.
    fn times(&mut self, turn: Turn) -> Result<Vec<Duration>, Option<String>>;
}

/// How a library's result compares.
#[derive(Clone, Debug)]
pub(crate) struct Agreement {
    /// The greatest difference; `None` if it is not finite.
    pub(crate) difference: Option<f64>,
    /// The number of values that differ, for integers.
    pub(crate) differ: Option<u64>,
    /// The library's border, if it is not the requested one, and other remarks.
    pub(crate) note: String,
}

/// All times.
pub(crate) struct Times {
    /// Of copies of the image.
    pub(crate) copies: Vec<Duration>,
    /// In the order in which they entered.
    pub(crate) entries: Vec<Entry>,
}

/// A contender's check and times.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) checked: Checked,
    pub(crate) times: Vec<Duration>,
    spent: Duration,
    /// Whether it failed after it was checked.
    gone: bool,
}

/// A contender's rounds end after this time and at least three rounds, or after three times this
/// time.
const BUDGET: Duration = Duration::from_millis(1200);

impl Must {
    /// The requirement for results in an order, or for spectra if there is no order.
    pub(crate) fn of(order: Option<Order>, sum: Option<u64>) -> Self {
        order.map_or(Self::Near, |order| Self::Bits(order, sum))
    }
}

impl Agreement {
    /// The outcome of the check.
    pub(crate) fn checked(self) -> Checked {
        let difference = Some(self.difference.unwrap_or(f64::INFINITY));
        Checked { difference, differ: self.differ, ..Checked::against(Against::Apron(self.note)) }
    }
}

impl Entry {
    fn new(name: String, checked: Checked) -> Self {
        Self { name, checked, times: Vec::new(), spent: Duration::ZERO, gone: false }
    }

    fn is_done(&self) -> bool {
        self.gone || (self.spent > BUDGET && (self.times.len() >= 3 || self.spent > 3 * BUDGET))
    }
}

/// Compares results with f64, with checksums, and with each other.
struct Judge<'a, P> {
    problem: Problem<'a, P>,
    /// The first result in each order, with its contender's name.
    firsts: Vec<(Order, String, Rc<Image<P>>)>,
}

impl<'a, P: Random> Judge<'a, P> {
    fn new(problem: Problem<'a, P>) -> Self {
        Self { problem, firsts: Vec::new() }
    }

    fn check(&mut self, name: &str, must: Must, found: &Rc<Image<P>>) -> Result<Checked> {
        let Problem { filter, border, src } = self.problem;
        let first = |order| self.firsts.iter().find(|(known, ..)| *known == order);
        let against = match must {
            Must::Unjudged => return Ok(Checked::default()),
            Must::Near => {
                let bound = check::tolerance(filter, src);
                if let Some((_, _, direct)) = first(Order::Direct) {
                    let difference = Some(check::near(found, direct, bound)?);
                    return Ok(Checked { difference, ..Checked::against(Against::Direct) });
                }
                check::spots(filter, border, src, found, bound)?;
                Against::F64
            }
            Must::Bits(order, sum) => {
                if let Some((_, name, first)) = first(order) {
                    check::same(found, first)?;
                    Against::First(name.clone())
                } else {
                    check::spots(filter, border, src, found, 0.0)?;
                    if let Some(sum) = sum {
                        let found = check::sum(found);
                        ensure!(
                            found == sum,
                            "wrong result: its checksum is {found:#018x}, it should be {sum:#018x}"
                        );
                    }
                    self.firsts.push((order, name.to_owned(), Rc::clone(found)));
                    if sum.is_some() { Against::F64AndSum } else { Against::F64 }
                }
            }
        };
        Ok(Checked { checksum: Some(check::sum(found)), ..Checked::against(against) })
    }
}

/// A contest on a GPU.
pub(crate) struct OnGpu<'a> {
    gpu: &'a Gpu,
    src: DeviceImage,
    track: Track<'a>,
    judge: Judge<'a, f32>,
}

/// Contenders that were checked, and the images in a GPU's memory on which they are timed.
pub(crate) struct Track<'a> {
    bed: Bed,
    /// The images whose copy is timed, if not those of `bed`.
    copies: Option<Bed>,
    entries: Vec<(OnDevice<'a>, Rhythm, Entry)>,
}

impl<'a> OnGpu<'a> {
    /// `src` is the problem's source on the device.
    pub(crate) fn new(gpu: &'a Gpu, problem: Problem<'a, f32>, src: DeviceImage) -> Result<Self> {
        let track = Track::new(Bed::new(gpu, &src)?, None);
        Ok(Self { gpu, src, track, judge: Judge::new(problem) })
    }

    /// Runs the contender once, checks its result, and returns it.
    ///
    /// # Errors
    /// If it fails, or if the result is wrong.
    pub(crate) fn enter(&mut self, contender: Contender<OnDevice<'a>>) -> Result<Rc<Image<f32>>> {
        let Contender { name, must, mut run } = contender;
        let mut enter = || -> Result<_> {
            let found = Rc::new(self.once(&mut run)?);
            let checked = self.judge.check(&name, must, &found)?;
            Ok((found, checked))
        };
        let (found, checked) = enter().with_context(|| name.clone())?;
        self.track.enter(name, checked, run)?;
        Ok(found)
    }

    /// Enters a plan's recorded work, whose replay must give the same bits as the plan.
    ///
    /// # Errors
    /// If it fails, or gives other bits.
    pub(crate) fn enter_replayed(&mut self, name: String, plan: &Plan) -> Result<()> {
        let mut enter = || -> Result<_> {
            let expected =
                self.once(&mut |src, dst, stream| plan.run_on_device(src, dst, stream))?;
            let mut replays = self.track.bed.recorded(self.gpu, plan)?;
            let rhythm = self.track.bed.rhythm(|_, _, stream| replays.next(stream))?;
            check::same(&self.gpu.download(replays.result())?, &expected)?;
            Ok((replays, rhythm))
        };
        let (mut replays, rhythm) = enter().with_context(|| name.clone())?;
        let run: OnDevice<'a> = Box::new(move |_, _, stream| replays.next(stream));
        self.track.entries.push((
            run,
            rhythm,
            Entry::new(name, Checked::against(Against::NotRecorded)),
        ));
        Ok(())
    }

    /// One result.
    fn once(
        &self,
        run: &mut impl FnMut(&DeviceImage, &mut DeviceImage, &mut Stream) -> apron::Result<()>,
    ) -> Result<Image<f32>> {
        let mut stream = self.gpu.stream()?;
        let mut dst = self.gpu.image_like(&self.src)?;
        // Memory from the driver may still hold another run's correct result.
        dst.fill(f32::NAN, &stream)?;
        run(&self.src, &mut dst, &mut stream)?;
        stream.synchronize()?;
        Ok(self.gpu.download(&dst)?)
    }

    /// Times all contenders and the copy, and frees the device's memory.
    ///
    /// # Errors
    /// If one fails.
    pub(crate) fn time(self, rounds: usize) -> Result<Times> {
        self.track.time(rounds)
    }
}

impl<'a> Track<'a> {
    pub(crate) fn new(bed: Bed, copies: Option<Bed>) -> Self {
        Self { bed, copies, entries: Vec::new() }
    }

    /// Enters a contender whose result was checked.
    ///
    /// # Errors
    /// If it fails.
    pub(crate) fn enter(
        &mut self,
        name: String,
        checked: Checked,
        mut run: OnDevice<'a>,
    ) -> Result<()> {
        let rhythm = self.bed.rhythm(&mut run).with_context(|| name.clone())?;
        self.entries.push((run, rhythm, Entry::new(name, checked)));
        Ok(())
    }

    /// As [`OnGpu::time`].
    ///
    /// # Errors
    /// If one fails.
    pub(crate) fn time(mut self, rounds: usize) -> Result<Times> {
        let rhythm = self.copies.as_mut().unwrap_or(&mut self.bed).rhythm(copy)?;
        let mut copies = Vec::new();
        for _ in 0..rounds {
            copies.push(self.copies.as_mut().unwrap_or(&mut self.bed).time(rhythm, copy)?);
            for (run, rhythm, entry) in
                self.entries.iter_mut().filter(|(.., entry)| !entry.is_done())
            {
                let start = Instant::now();
                entry.times.push(self.bed.time(*rhythm, &mut *run)?);
                entry.spent += start.elapsed();
            }
        }
        Ok(Times { copies, entries: self.entries.into_iter().map(|(.., entry)| entry).collect() })
    }
}

/// A contest on the CPU.
pub(crate) struct OnCpu<'a, P> {
    judge: Judge<'a, P>,
    dst: Image<P>,
    turn: fn(Option<Duration>) -> Turn,
    copies: Vec<Duration>,
    entries: Vec<(Runner<'a, P>, Entry)>,
}

enum Runner<'a, P> {
    Filter(OnHost<'a, P>),
    Rival(Box<dyn Rival + 'a>),
}

impl<'a, P: Random> OnCpu<'a, P> {
    /// `turn` computes a contender's next turn from its last time. The copy is timed here.
    pub(crate) fn new(problem: Problem<'a, P>, turn: fn(Option<Duration>) -> Turn) -> Result<Self> {
        let shape = problem.src.shape();
        let mut dst = vec![P::default(); problem.src.as_slice().len()];
        let copies = turn(None).times(|| {
            let parts = dst.par_chunks_mut(1 << 16).zip(problem.src.as_slice().par_chunks(1 << 16));
            parts.for_each(|(to, from)| to.copy_from_slice(from));
            anyhow::Ok(())
        })?;
        let dst = Image::from_vec(dst, shape.width, shape.height, shape.channels)?;
        Ok(Self { judge: Judge::new(problem), dst, turn, copies, entries: Vec::new() })
    }

    /// Runs the contender once, checks its result, and returns it.
    ///
    /// # Errors
    /// If it fails, or if the result is wrong.
    pub(crate) fn enter(&mut self, contender: Contender<OnHost<'a, P>>) -> Result<Rc<Image<P>>> {
        let Contender { name, must, mut run } = contender;
        let src = self.judge.problem.src;
        let mut enter = || -> Result<_> {
            let shape = src.shape();
            let poison = vec![P::POISON; src.as_slice().len()];
            let mut found = Image::from_vec(poison, shape.width, shape.height, shape.channels)?;
            run(src, &mut found)?;
            let found = Rc::new(found);
            let checked = self.judge.check(&name, must, &found)?;
            Ok((found, checked))
        };
        let (found, checked) = enter().with_context(|| name.clone())?;
        self.entries.push((Runner::Filter(run), Entry::new(name, checked)));
        Ok(found)
    }

    /// Lets a library filter once, checks its result, and enters it.
    ///
    /// # Errors
    /// Why it does not take part, if that is known.
    pub(crate) fn enter_rival(
        &mut self,
        name: String,
        mut rival: impl Rival + 'a,
    ) -> Result<(), Option<String>> {
        let checked = rival.check()?.checked();
        self.entries.push((Runner::Rival(Box::new(rival)), Entry::new(name, checked)));
        Ok(())
    }

    /// Times all contenders. Calls `stopped` for each library that failed, with the reason.
    ///
    /// # Errors
    /// If one of our variants fails.
    pub(crate) fn time(
        mut self,
        rounds: usize,
        mut stopped: impl FnMut(&str, Option<String>),
    ) -> Result<Times> {
        let src = self.judge.problem.src;
        for _ in 0..rounds {
            for (runner, entry) in self.entries.iter_mut().filter(|(_, entry)| !entry.is_done()) {
                let turn = (self.turn)(entry.times.last().copied());
                let times = match runner {
                    Runner::Filter(run) => Ok(turn.times(|| run(src, &mut self.dst))?),
                    Runner::Rival(rival) => rival.times(turn),
                };
                match times {
                    Ok(times) => {
                        entry.spent += times.iter().sum::<Duration>();
                        entry.times.extend(times);
                    }
                    Err(why) => {
                        entry.gone = true;
                        stopped(&entry.name, why);
                    }
                }
            }
        }
        Ok(Times {
            copies: self.copies,
            entries: self.entries.into_iter().map(|(_, entry)| entry).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use apron::{Device, Variant};

    use super::*;

    const BITS: Must = Must::Bits(Order::Direct, None);

    fn filter() -> Filter {
        Filter::from_taps(3, 3, &[0.1, -0.2, 0.3, 0.4, 0.5, -0.6, 0.7, 0.8, 0.9]).unwrap()
    }

    fn source(width: usize, height: usize) -> Image<f32> {
        let mut random = fastrand::Rng::with_seed(1);
        let pixels = (0..width * height).map(|_| f32::random(&mut random)).collect();
        Image::from_vec(pixels, width, height, 1).unwrap()
    }

    /// A library that agrees, and then fails.
    struct Failing;

    impl Rival for Failing {
        fn check(&mut self) -> Result<Agreement, Option<String>> {
            Ok(Agreement { difference: Some(0.5), differ: None, note: "another border".to_owned() })
        }

        fn times(&mut self, _: Turn) -> Result<Vec<Duration>, Option<String>> {
            Err(Some("it ended".to_owned()))
        }
    }

    #[test]
    fn right_results_are_timed_and_wrong_ones_do_not_enter() {
        let (filter, src) = (filter(), source(40, 30));
        let plan = Plan::builder(&filter)
            .device(Device::Cpu)
            .variant(Variant::DirectNaive)
            .build()
            .unwrap();
        let plan = &plan;
        let problem = Problem { filter: &filter, border: Border::default(), src: &src };
        let mut contest = OnCpu::new(problem, |_| Turn::SHORT).unwrap();
        let contender = |name: &str, must: Must, wrong: f32| Contender {
            name: name.to_owned(),
            must,
            run: Box::new(move |src: &Image<f32>, dst: &mut Image<f32>| {
                plan.run(&src.view(), &mut dst.view_mut())?;
                let (shape, mut pixels) = (dst.shape(), dst.as_slice().to_vec());
                pixels[77] += wrong;
                *dst = Image::from_vec(pixels, shape.width, shape.height, shape.channels)?;
                Ok(())
            }) as OnHost<'_, f32>,
        };
        let first = contest.enter(contender("first", BITS, 0.0)).unwrap();
        let sum = check::sum(&first);
        contest.enter(contender("second", BITS, 0.0)).unwrap();
        contest.enter(contender("near", Must::Near, 1e-6)).unwrap();
        contest.enter(contender("anything", Must::Unjudged, 1.0)).unwrap();
        contest.enter_rival("rival".to_owned(), Failing).unwrap();
        for (must, wrong) in [(BITS, 1e-6), (Must::Near, 1e-3)] {
            let error = contest.enter(contender("wrong", must, wrong)).map(|_| ()).unwrap_err();
            assert!(format!("{error:#}").starts_with("wrong: wrong result"), "{error:#}");
        }
        let run: OnHost<'_, f32> = Box::new(|_, _| Ok(()));
        assert!(contest.enter(Contender { name: "idle".to_owned(), must: BITS, run }).is_err());

        let mut stopped = Vec::new();
        let times = contest.time(3, |name, why| stopped.push((name.to_owned(), why))).unwrap();
        assert_eq!(stopped, [("rival".to_owned(), Some("it ended".to_owned()))]);
        let told: Vec<_> = times
            .entries
            .iter()
            .map(|entry| (entry.checked.against.to_string(), entry.times.is_empty()))
            .collect();
        let expected =
            [("f64", false), ("first, all bits", false), ("direct", false), ("-", false)];
        let expected = expected.into_iter().chain([("apron (another border)", true)]);
        assert_eq!(
            told,
            expected.map(|(text, empty)| (text.to_owned(), empty)).collect::<Vec<_>>()
        );
        assert_eq!(times.entries[0].checked.checksum, Some(sum));
        assert!(!times.copies.is_empty());
    }

    #[test]
    fn a_first_result_is_held_to_f64_and_to_its_checksum() {
        let (filter, src) = (filter(), source(40, 30));
        let plan = Plan::builder(&filter).device(Device::Cpu).border(Border::Wrap).build().unwrap();
        let enter = |border: Border, sum: Option<u64>| {
            let problem = Problem { filter: &filter, border, src: &src };
            let run: OnHost<'_, f32> =
                Box::new(|src, dst| plan.run(&src.view(), &mut dst.view_mut()));
            let contender =
                Contender { name: "one".to_owned(), must: Must::Bits(Order::Direct, sum), run };
            OnCpu::new(problem, |_| Turn::SHORT)
                .unwrap()
                .enter(contender)
                .map(|found| check::sum(&found))
        };
        let sum = enter(Border::Wrap, None).unwrap();
        assert_eq!(enter(Border::Wrap, Some(sum)).unwrap(), sum);
        assert!(
            enter(Border::Wrap, Some(sum ^ 1))
                .unwrap_err()
                .root_cause()
                .to_string()
                .contains("checksum")
        );
        assert!(enter(Border::Reflect, None).is_err());
    }

    #[test]
    fn a_gpu_times_what_is_right_and_refuses_what_is_not_written() {
        let Ok(gpu) = Gpu::open(0) else {
            println!("skipped: no GPU");
            return;
        };
        let (filter, src) = (filter(), source(256, 128));
        let variants = [Variant::DirectNaive, Variant::DirectShared];
        let build = |variant| {
            Plan::builder(&filter).device(Device::Gpu(0)).variant(variant).build().unwrap()
        };
        let plans = variants.map(build);
        let problem = Problem { filter: &filter, border: Border::default(), src: &src };
        let mut contest = OnGpu::new(&gpu, problem, gpu.upload(&src.view()).unwrap()).unwrap();
        let run: OnDevice<'_> = Box::new(|_, _, _| Ok(()));
        assert!(contest.enter(Contender { name: "idle".to_owned(), must: BITS, run }).is_err());
        for plan in &plans {
            let run: OnDevice<'_> =
                Box::new(|src, dst, stream| plan.run_on_device(src, dst, stream));
            contest.enter(Contender { name: "a plan".to_owned(), must: BITS, run }).unwrap();
        }
        contest.enter_replayed("replayed".to_owned(), &plans[0]).unwrap();
        let times = contest.time(2).unwrap();
        let told: Vec<_> =
            times.entries.iter().map(|entry| entry.checked.against.to_string()).collect();
        assert_eq!(told, ["f64", "a plan, all bits", "the same, not recorded, all bits"]);
        assert!(
            times.entries.iter().all(|entry| entry.times.len() == 2) && times.copies.len() == 2
        );
    }
}
