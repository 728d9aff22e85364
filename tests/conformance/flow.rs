//! Pictures that go through a GPU in bands: every split gives the bytes of the whole picture in one
//! band.
//!
//! The whole picture is one band of the same variant on the same GPU, which the other tests compare
//! with the references. Bands have any height, under every border, also where a window is higher
//! than a band or than the picture. Tests use pinned and pageable memory, as little device memory
//! as possible, batches, and several GPUs.

use conformance::product::Gpu;
use conformance::select::Selection;
#[cfg(not(feature = "gpu"))]
use conformance::suite;
use conformance::suite::gpu_trial;
use libtest_mimic::{Failed, Trial};

const NAMES: [&str; 10] = [
    "splits",
    "tiles",
    "generated",
    "callers",
    "memory",
    "batch",
    "batch_errors",
    "feeders",
    "feeders_ended",
    "timeline",
];

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let trial = |name| gpu_trial(&format!("flow::{name}::gpu"), gpu, move || test(name, selection));
    NAMES.into_iter().map(trial).collect()
}

#[cfg(not(feature = "gpu"))]
fn test(_: &str, _: Selection) -> Result<(), Failed> {
    suite::no_gpu()
}

#[cfg(feature = "gpu")]
fn test(name: &str, selection: Selection) -> Result<(), Failed> {
    match name {
        "splits" => on_gpu::splits(selection),
        "tiles" => on_gpu::tiles(selection),
        "generated" => on_gpu::generated(selection),
        "callers" => on_gpu::callers(),
        "memory" => on_gpu::memory(),
        "batch" => on_gpu::batch(),
        "batch_errors" => on_gpu::batch_errors(),
        "feeders" => on_gpu::feeders(),
        "feeders_ended" => on_gpu::feeders_ended(),
        "timeline" => on_gpu::timeline(),
        _ => Err("no such test".into()),
    }
}

#[cfg(feature = "gpu")]
mod on_gpu {
    use std::ops::ControlFlow;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use apron::gpu::{HostImage, Span, Timeline, What};
    use apron::{
        Border, Device, Error, FlowOptions, Gpus, Image, ImageView, ImageViewMut, Plan,
        PlanBuilder, Result, Shape, Variant,
    };
    use conformance::problem::Window;
    use conformance::sample::{Data, Kind, Sample};
    use conformance::select::{BORDERS, seed};
    use fastrand::Rng;
    use rayon::prelude::*;

    use super::{Failed, Gpu, Selection};

    /// A picture in a slice, with gaps between its rows.
    struct Strided<P> {
        data: Vec<P>,
        shape: Shape,
        stride: usize,
    }

    impl<P: Sample> Strided<P> {
        fn new(shape: Shape, gap: usize, mut value: impl FnMut() -> P) -> Self {
            let stride = shape.row_len() + gap;
            let mut data = vec![P::POISON; stride * shape.height];
            for row in data.chunks_mut(stride) {
                row[..shape.row_len()].fill_with(&mut value);
            }
            Self { data, shape, stride }
        }

        fn random(shape: Shape, gap: usize, seed: u64) -> Self {
            let mut rng = Rng::with_seed(seed);
            Self::new(shape, gap, || P::random(&mut rng, Data::Random))
        }

        fn view(&self) -> Result<ImageView<'_, P>> {
            let Shape { width, height, channels } = self.shape;
            ImageView::with_stride(&self.data, width, height, channels, self.stride)
        }

        fn view_mut(&mut self) -> Result<ImageViewMut<'_, P>> {
            let Shape { width, height, channels } = self.shape;
            ImageViewMut::with_stride(&mut self.data, width, height, channels, self.stride)
        }

        fn bits(&self) -> Vec<u32> {
            self.data.iter().map(|value| value.bits()).collect()
        }
    }

    /// A filter of a picture, and the bands of the picture.
    #[derive(Clone, Copy, Debug)]
    struct Case<'w> {
        window: &'w Window,
        border: Border,
        variant: Option<Variant>,
        shape: Shape,
        stored: (Kind, Kind),
        filtered: usize,
        seed: u64,
    }

    impl Case<'_> {
        fn told(&self) -> String {
            let Self { window, border, variant, shape, stored, filtered, seed } = self;
            let variant = variant.map_or("the chosen variant", Variant::name);
            let (from, to) = stored;
            format!(
                "{variant}: {shape} {from} to {to}, {filtered} channels filtered, seed {seed}, {window}, border {border}"
            )
        }

        fn builder(&self) -> PlanBuilder {
            Plan::builder(&self.window.filter)
                .border(self.border)
                .device(Gpu::DEVICE)
                .variant(self.variant)
        }

        /// Compares bands of each of these heights with one band. Returns the number of
        /// comparisons, or `None` if the variant declines.
        fn check(&self, heights: &[usize], pinned: bool) -> Result<Option<usize>, Failed> {
            let found = match self.stored {
                (Kind::U8, Kind::U8) => self.typed::<u8, u8>(heights, pinned),
                (Kind::U8, Kind::F32) => self.typed::<u8, f32>(heights, pinned),
                (Kind::U16, Kind::U16) => self.typed::<u16, u16>(heights, pinned),
                (Kind::F16, Kind::F16) => self.typed::<apron::f16, apron::f16>(heights, pinned),
                (Kind::F32, Kind::U8) => self.typed::<f32, u8>(heights, pinned),
                _ => self.typed::<f32, f32>(heights, pinned),
            };
            found.map_err(|failed| {
                format!("{}: {}", self.told(), failed.message().unwrap_or_default()).into()
            })
        }

        fn typed<S: Sample, D: Sample>(
            &self,
            heights: &[usize],
            pinned: bool,
        ) -> Result<Option<usize>, Failed> {
            let src = Strided::<S>::random(self.shape, self.seed as usize % 5, self.seed);
            let copied = FlowOptions { in_place: Some(false), ..FlowOptions::default() };
            let whole = self.builder().band_rows(self.shape.height).flow(copied);
            let whole = match whole.build() {
                Err(Error::Unsupported { .. }) => return Ok(None),
                plan => plan?,
            };
            let target = || Strided::<D>::new(self.shape, self.seed as usize % 3, || D::POISON);
            let run = |plan: &Plan, dst: &mut Strided<D>| {
                plan.run_channels(&src.view()?, &mut dst.view_mut()?, self.filtered)
            };
            let mut expected = target();
            match run(&whole, &mut expected) {
                Err(Error::Unsupported { .. }) => return Ok(None),
                outcome => outcome?,
            }
            let ways = if shares_memory()? { &[false, true][..] } else { &[false] };
            for (&rows, &in_place) in
                heights.iter().flat_map(|rows| ways.iter().map(move |way| (rows, way)))
            {
                let options = FlowOptions { in_place: Some(in_place), ..FlowOptions::default() };
                let plan = self.builder().band_rows(rows).flow(options).build()?;
                let told =
                    format!("bands of {rows} rows{}", if in_place { " in place" } else { "" });
                // The second run uses the same lanes, which still hold data of the first.
                for turn in 0..2 {
                    let mut found = target();
                    run(&plan, &mut found)?;
                    same(&found.bits(), &expected.bits(), expected.stride)
                        .map_err(|wrong| format!("{told}, turn {turn}: {wrong}"))?;
                }
                if pinned {
                    self.check_pinned(&plan, &src, &expected)
                        .map_err(|wrong| format!("pinned, {told}: {wrong}"))?;
                }
            }
            Ok(Some(heights.len()))
        }

        fn check_pinned<S: Sample, D: Sample>(
            &self,
            plan: &Plan,
            src: &Strided<S>,
            expected: &Strided<D>,
        ) -> Result<(), String> {
            let told = |error: Error| error.to_string();
            let gpu = apron::gpu::Gpu::open(0).map_err(told)?;
            let mut pinned = HostImage::<S>::zeroed(&gpu, self.shape).map_err(told)?;
            let row = self.shape.row_len();
            for (y, out) in pinned.as_mut_slice().chunks_mut(row).enumerate() {
                out.copy_from_slice(&src.data[y * src.stride..][..row]);
            }
            let mut found = HostImage::<D>::zeroed(&gpu, self.shape).map_err(told)?;
            found.as_mut_slice().fill(D::OTHER_POISON);
            plan.run_channels(&pinned.view(), &mut found.view_mut(), self.filtered)
                .map_err(told)?;
            let bits: Vec<u32> = found.as_slice().iter().map(|value| value.bits()).collect();
            let rows = expected.data.chunks(expected.stride);
            let right: Vec<u32> =
                rows.flat_map(|line| line[..row].iter().map(|value| value.bits())).collect();
            same(&bits, &right, row)
        }
    }

    /// Whether kernels reach memory that the host uses too: on every GPU, and on the emulator if it
    /// is set so.
    fn shares_memory() -> Result<bool> {
        let gpu = apron::gpu::Gpu::open(0)?;
        Ok(gpu.info().integrated || !gpu.info().name.starts_with("emulated"))
    }

    fn same(found: &[u32], right: &[u32], stride: usize) -> Result<(), String> {
        let wrong = found.iter().zip(right).filter(|(found, right)| found != right).count();
        match found.iter().zip(right).position(|(found, right)| found != right) {
            None => Ok(()),
            Some(at) => Err(format!(
                "{wrong} values are wrong, the first at value {} of row {}: bits {:#x}, not {:#x}",
                at % stride,
                at / stride,
                found[at],
                right[at]
            )),
        }
    }

    const STORED: [(Kind, Kind); 6] = [
        (Kind::U8, Kind::U8),
        (Kind::F32, Kind::F32),
        (Kind::U16, Kind::U16),
        (Kind::F16, Kind::F16),
        (Kind::U8, Kind::F32),
        (Kind::F32, Kind::U8),
    ];

    /// Checks every case that some variant takes; fails if one of the variants took none.
    fn check_all(
        name: &str,
        cases: &[(Case<'_>, Vec<usize>)],
        variants: &[Option<Variant>],
    ) -> Result<(), Failed> {
        let started = std::time::Instant::now();
        let counts: Vec<AtomicUsize> = variants.iter().map(|_| AtomicUsize::new(0)).collect();
        cases.par_iter().enumerate().try_for_each(|(number, (case, heights))| {
            for (&variant, count) in variants.iter().zip(&counts) {
                let case = Case { variant, ..*case };
                if let Some(runs) = case.check(heights, number % 3 == 0)? {
                    count.fetch_add(runs, Ordering::Relaxed);
                }
            }
            Ok::<(), Failed>(())
        })?;
        let runs = counts.iter().map(|count| count.load(Ordering::Relaxed));
        if let Some(none) =
            runs.clone().zip(variants).find_map(|(runs, variant)| (runs == 0).then_some(variant))
        {
            return Err(format!("{none:?} split nothing").into());
        }
        println!(
            "flow::{name}: {} splits in {:.1} s",
            runs.sum::<usize>(),
            started.elapsed().as_secs_f64()
        );
        Ok(())
    }

    fn all_variants() -> Vec<Option<Variant>> {
        conformance::product::variants(Gpu::DEVICE).into_iter().map(Some).chain([None]).collect()
    }

    /// Whether a selection has window `i` of `windows` with border `j`. Each selection has every
    /// border.
    fn is_kept(selection: Selection, i: usize, j: usize, windows: usize) -> bool {
        match selection {
            Selection::Full => true,
            Selection::Emulated => (i + j).is_multiple_of(2),
            Selection::Small => j % windows == i,
        }
    }

    /// Every variant under every border, in bands from one row to nearly all rows.
    pub(super) fn splits(selection: Selection) -> Result<(), Failed> {
        let windows = [
            Window::random_pair(3, 3, 71),
            Window::blur_pair(5, 5, 72),
            Window::random(5, 9, 73).anchored(1, 8),
            // Higher than bands, then higher than the picture.
            Window::blur_pair(7, 33, 74),
            Window::random(2, 75, 75).anchored(0, 3),
        ];
        let mut cases = Vec::new();
        for (i, window) in windows.iter().enumerate() {
            for (j, &border) in BORDERS.iter().enumerate() {
                let number = BORDERS.len() * i + j;
                if !is_kept(selection, i, j, windows.len()) {
                    continue;
                }
                let channels = 1 + (i + j) % 4;
                let shape = Shape { width: 21 + 5 * i, height: 41 + 3 * j, channels };
                let filtered = if channels == 4 { 3 } else { channels };
                let stored = STORED[number % STORED.len()];
                let case = Case {
                    window,
                    border,
                    variant: None,
                    shape,
                    stored,
                    filtered,
                    seed: seed(81, number),
                };
                cases.push((case, vec![2 + number % 6, 30]));
            }
        }
        check_all("splits", &cases, &all_variants())
    }

    /// Pictures with several rows of spectral tiles, and windows of one and of several parts: bands
    /// begin on the grid of tiles.
    pub(super) fn tiles(selection: Selection) -> Result<(), Failed> {
        let windows = [
            Window::random(21, 40, 76),
            Window::random(5, 150, 77).anchored(4, 130),
            Window::blur(19, 31, 78),
        ];
        let mut cases = Vec::new();
        for (i, window) in windows.iter().enumerate() {
            for (j, &border) in BORDERS.iter().enumerate() {
                let number = BORDERS.len() * i + j;
                if !is_kept(selection, i, j, windows.len()) {
                    continue;
                }
                let shape = Shape { width: 33, height: 270 + 11 * j, channels: 1 + number % 2 };
                let stored = STORED[(number + 1) % STORED.len()];
                let filtered = shape.channels;
                let case = Case {
                    window,
                    border,
                    variant: None,
                    shape,
                    stored,
                    filtered,
                    seed: seed(82, number),
                };
                cases.push((case, vec![1, 120]));
            }
        }
        check_all("tiles", &cases, &[Some(Variant::Fourier), None])?;
        // Lines of 1024 numbers along columns.
        let window = &Window::random_pair(3, 130, 79).anchored(0, 100);
        let case = |(j, &border): (usize, &Border)| {
            let shape = Shape { width: 3, height: 1300 + j, channels: 1 };
            let (stored, filtered) = (STORED[1 + j % (STORED.len() - 1)], shape.channels);
            let (variant, seed) = (None, seed(84, j));
            (Case { window, border, variant, shape, stored, filtered, seed }, vec![1])
        };
        // Each takes seconds on the emulator.
        let step = if selection == Selection::Emulated { 2 } else { 1 };
        let cases: Vec<_> = BORDERS.iter().enumerate().step_by(step).map(case).collect();
        check_all("lines", &cases, &[Some(Variant::SpectraPasses)])
    }

    /// Random windows, anchors, sizes, types and heights of bands.
    pub(super) fn generated(selection: Selection) -> Result<(), Failed> {
        let count = if selection == Selection::Full { 200 } else { 24 };
        let problems: Vec<_> = (0..count)
            .map(|number| {
                let mut rng = Rng::with_seed(seed(83, number));
                let (cols, rows) = (
                    rng.usize(1..=12),
                    [rng.usize(1..=12), rng.usize(1..=90)][usize::from(number % 4 == 0)],
                );
                let window = match number % 3 {
                    0 => Window::random(cols, rows, rng.u64(..)),
                    1 => Window::random_pair(cols, rows, rng.u64(..)),
                    _ => Window::blur_pair(rows.min(17) | 1, rows.min(17) | 1, rng.u64(..)),
                };
                let anchored = number % 2 == 0;
                let (cols, rows) = (window.cols, window.rows);
                let window = if anchored {
                    window.anchored(rng.usize(0..cols), rng.usize(0..rows))
                } else {
                    window
                };
                (window, rng)
            })
            .collect();
        let cases: Vec<_> = problems
            .iter()
            .enumerate()
            .map(|(number, (window, rng))| {
                let mut rng = rng.clone();
                let channels = rng.usize(1..=4);
                let shape = Shape { width: rng.usize(1..=70), height: rng.usize(2..=90), channels };
                let stored = STORED[rng.usize(0..STORED.len())];
                let (border, filtered) = (BORDERS[rng.usize(0..6)], rng.usize(1..=channels));
                let case = Case {
                    window,
                    border,
                    variant: None,
                    shape,
                    stored,
                    filtered,
                    seed: seed(84, number),
                };
                (case, vec![rng.usize(1..=shape.height), rng.usize(1..=8)])
            })
            .collect();
        check_all("generated", &cases, &[None, Some(Variant::DirectNaive)])
    }

    /// Bands large enough that threads copy them together. Several callers use one plan at once,
    /// and two of them are threads of the pool that copies.
    pub(super) fn callers() -> Result<(), Failed> {
        let window = Window::blur(1, 3, 79);
        let builder = || Plan::builder(&window.filter).border(Border::Wrap);
        // Together they need less than the 4 MiB of the smallest device.
        let (plan, cpu) = (
            builder().device(Gpu::DEVICE).band_rows(600).memory(800 << 10).build()?,
            builder().device(Device::Cpu).build()?,
        );
        let shape = Shape { width: 1024, height: 1090, channels: 1 };
        let call = |number: usize| -> Result<(), Failed> {
            let src = Strided::<u8>::random(shape, 0, seed(87, number));
            let run = |plan: &Plan| {
                let mut dst = Strided::<u8>::new(shape, 0, || 0x5A);
                plan.run(&src.view()?, &mut dst.view_mut()?).map(|()| dst.bits())
            };
            let (found, expected) = (run(&plan)?, run(&cpu)?);
            Ok(same(&found, &expected, shape.width)
                .map_err(|wrong| format!("caller {number}: {wrong}"))?)
        };
        let outcomes = std::thread::scope(|scope| {
            let outside: Vec<_> = (0..2).map(|number| scope.spawn(move || call(number))).collect();
            let (two, three) = rayon::join(|| call(2), || call(3));
            let outside = outside
                .into_iter()
                .map(|caller| caller.join().unwrap_or_else(|_| Err("a caller panicked".into())));
            outside.chain([two, three]).collect::<Vec<_>>()
        });
        outcomes.into_iter().collect()
    }

    /// A limit on the GPU's memory changes no byte. A limit that is too low is refused, and the
    /// error names the least that suffices.
    pub(super) fn memory() -> Result<(), Failed> {
        let shape = Shape { width: 101, height: 140, channels: 3 };
        let mut bounded = 0;
        for (number, filter) in ["gaussian:sigma=1", "motion:length=5,angle=30"].iter().enumerate()
        {
            let window = Window::preset(filter);
            for border in [Border::Reflect101, Border::Wrap] {
                let src = Strided::<u8>::random(shape, 0, seed(85, number));
                let filter = |memory: u64| -> Result<Vec<u8>> {
                    let plan = Plan::builder(&window.filter)
                        .border(border)
                        .device(Gpu::DEVICE)
                        .memory(memory)
                        .build()?;
                    let mut dst = Strided::<u8>::new(shape, 0, || 0x5A);
                    plan.run(&src.view()?, &mut dst.view_mut()?)?;
                    Ok(dst.data)
                };
                let expected = filter(u64::MAX)?;
                for memory in [1 << 20, 300 << 10, 100 << 10] {
                    match filter(memory) {
                        Ok(found) if found == expected => bounded += 1,
                        Ok(_) => {
                            return Err(
                                format!("{}, {memory} bytes: another result", window.name).into()
                            );
                        }
                        Err(Error::Parameter { name: "memory", value, expected }) => {
                            let needed = expected
                                .split(' ')
                                .find_map(|word| word.parse::<u64>().ok())
                                .unwrap_or(0);
                            if value != memory.to_string()
                                || needed <= memory
                                || filter(needed).is_err()
                            {
                                return Err(format!("memory is {value}: {expected}").into());
                            }
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                let refused = filter(1000);
                if !matches!(refused, Err(Error::Parameter { name: "memory", .. })) {
                    return Err(format!("{}: 1000 bytes: {refused:?}", window.name).into());
                }
            }
        }
        if bounded < 6 { Err(format!("only {bounded} runs were bounded").into()) } else { Ok(()) }
    }

    /// Pictures of many sizes, some of them equal.
    fn pictures(count: usize) -> Vec<Strided<u8>> {
        let picture = |number: usize| {
            let (width, height) = (20 + 13 * (number / 2 % 5), 15 + 9 * (number % 7));
            let shape = Shape { width, height, channels: [1, 3, 4][number % 3] };
            Strided::random(shape, number % 2, seed(86, number))
        };
        (0..count).map(picture).collect()
    }

    fn batches(plan: &Plan, sources: &[Strided<u8>]) -> (Result<()>, Vec<Strided<u8>>) {
        let mut targets: Vec<_> =
            sources.iter().map(|src| Strided::new(src.shape, 1, || 0x5A)).collect();
        let views =
            sources.iter().zip(&mut targets).map(|(src, dst)| Ok((src.view()?, dst.view_mut()?)));
        let outcome =
            views.collect::<Result<Vec<_>>>().and_then(|mut views| plan.run_batch(&mut views));
        (outcome, targets)
    }

    /// A batch gives the results of its pictures one by one, whole and in bands, on one GPU and on
    /// all.
    pub(super) fn batch() -> Result<(), Failed> {
        let sources = pictures(11);
        for filter in ["gaussian:sigma=1", "motion:length=5,angle=30"] {
            let window = Window::preset(filter);
            let builder = || Plan::builder(&window.filter).border(Border::Wrap);
            let alone = builder().device(Gpu::DEVICE).build()?;
            let expected = sources.iter().map(|src| {
                let mut dst = Strided::<u8>::new(src.shape, 1, || 0x5A);
                alone.run(&src.view()?, &mut dst.view_mut()?).map(|()| dst)
            });
            let expected: Vec<_> = expected.collect::<Result<_>>()?;
            for (name, plan, turns) in [
                ("whole", builder().device(Gpu::DEVICE).build()?, 1),
                ("bands", builder().device(Gpu::DEVICE).band_rows(9).build()?, 2),
                (
                    "GPUs of a list",
                    builder()
                        .device(Device::Gpus(Gpus::new(0..apron::gpu::Gpu::count()?)?))
                        .build()?,
                    1,
                ),
                ("all GPUs", builder().device(Device::AllGpus).build()?, 1),
                ("bands on all GPUs", builder().device(Device::AllGpus).band_rows(9).build()?, 1),
            ] {
                for turn in 0..turns {
                    let (outcome, found) = batches(&plan, &sources);
                    outcome?;
                    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
                        same(&found.bits(), &expected.bits(), expected.stride).map_err(
                            |wrong| {
                                format!("{filter}, {name}, turn {turn}, picture {number}: {wrong}")
                            },
                        )?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The error of a batch names the first unfinished picture. All before it are finished.
    pub(super) fn batch_errors() -> Result<(), Failed> {
        let window = Window::preset("gaussian:sigma=1");
        for device in [Gpu::DEVICE, Device::Cpu] {
            let plan = Plan::builder(&window.filter).device(device).build()?;
            let sources = pictures(5);
            for bad in [0, 2, 4] {
                let mut targets: Vec<_> = sources
                    .iter()
                    .map(|src| {
                        Image::<u8>::zeroed(src.shape.width, src.shape.height, src.shape.channels)
                    })
                    .collect::<Result<_>>()?;
                let shape = targets[bad].shape();
                targets[bad] = Image::zeroed(shape.width + 1, shape.height, shape.channels)?;
                let views = sources
                    .iter()
                    .zip(&mut targets)
                    .map(|(src, dst)| Ok((src.view()?, dst.view_mut())));
                let mut views = views.collect::<Result<Vec<_>>>()?;
                match plan.run_batch(&mut views) {
                    Err(Error::InBatch { picture, error })
                        if picture == bad && matches!(*error, Error::Mismatch { .. }) => {}
                    other => return Err(format!("picture {bad} is wrong: {other:?}").into()),
                }
                drop(views);
                for (number, (src, found)) in sources.iter().zip(&targets).enumerate().take(bad) {
                    let mut expected =
                        Image::zeroed(src.shape.width, src.shape.height, src.shape.channels)?;
                    plan.run(&src.view()?, &mut expected.view_mut())?;
                    if *found != expected {
                        return Err(
                            format!("picture {number}, before the wrong one, is not done").into()
                        );
                    }
                }
            }
        }
        Ok(())
    }

    /// Settings for runs with several feeders, and with many or few lanes.
    fn crews() -> impl Iterator<Item = FlowOptions> {
        let crews = [
            (2, 4, None, None),
            (3, 7, Some(1), Some(64)),
            (2, 1, Some(2), None),
            (1, 2, Some(3), Some(1 << 20)),
        ];
        crews.into_iter().map(|(feeders, lanes, deep, share)| FlowOptions {
            feeders: Some(feeders),
            lanes: Some(lanes),
            deep,
            share,
            ..FlowOptions::default()
        })
    }

    /// Several threads feed each GPU from one queue. A batch gives the results of its pictures one
    /// by one, from pageable and pinned memory, and for several callers at once.
    pub(super) fn feeders() -> Result<(), Failed> {
        let sources = pictures(13);
        let window = Window::preset("gaussian:sigma=1");
        let builder = || Plan::builder(&window.filter).border(Border::Reflect101);
        let (outcome, expected) = batches(&builder().device(Gpu::DEVICE).build()?, &sources);
        outcome?;
        let gpu = apron::gpu::Gpu::open(0)?;
        for options in crews() {
            for device in [Gpu::DEVICE, Device::AllGpus] {
                let plan = builder().device(device).band_rows(9).flow(options.clone()).build()?;
                let told = format!("{options:?} on {device}");
                let check = |number: usize, found: &[u32]| {
                    let row = expected[number].shape.row_len();
                    let rows = expected[number].data.chunks(expected[number].stride);
                    let right: Vec<u32> = rows
                        .flat_map(|line| line[..row].iter().map(|&value| value.into()))
                        .collect();
                    same(found, &right, row)
                        .map_err(|wrong| format!("{told}, picture {number}: {wrong}"))
                };
                let call = || -> Result<(), Failed> {
                    let (outcome, found) = batches(&plan, &sources);
                    outcome?;
                    for (number, found) in found.iter().enumerate() {
                        let rows = found.data.chunks(found.stride);
                        let bits = rows
                            .flat_map(|line| &line[..found.shape.row_len()])
                            .map(|&value| value.into());
                        check(number, &bits.collect::<Vec<_>>())?;
                    }
                    Ok(())
                };
                let (one, other) = rayon::join(call, call);
                one.and(other)?;
                let pinned = sources.iter().map(|src| {
                    let mut image = HostImage::<u8>::zeroed(&gpu, src.shape)?;
                    let rows =
                        src.data.chunks(src.stride).flat_map(|line| &line[..src.shape.row_len()]);
                    image.as_mut_slice().iter_mut().zip(rows).for_each(|(to, from)| *to = *from);
                    Ok((image, HostImage::<u8>::zeroed(&gpu, src.shape)?))
                });
                let mut pinned: Vec<_> = pinned.collect::<Result<_>>()?;
                let mut views: Vec<_> =
                    pinned.iter_mut().map(|(src, dst)| (src.view(), dst.view_mut())).collect();
                plan.run_batch(&mut views)?;
                for (number, (_, found)) in pinned.iter().enumerate() {
                    let bits: Vec<u32> =
                        found.as_slice().iter().map(|&value| value.into()).collect();
                    check(number, &bits).map_err(|wrong| format!("pinned: {wrong}"))?;
                }
            }
        }
        Ok(())
    }

    /// A caller ends a run of several feeders. It gets no report after that, finished pictures are
    /// right, and the plan still works.
    pub(super) fn feeders_ended() -> Result<(), Failed> {
        let sources = pictures(13);
        let window = Window::preset("gaussian:sigma=1");
        let (outcome, expected) =
            batches(&Plan::builder(&window.filter).device(Gpu::DEVICE).build()?, &sources);
        outcome?;
        for options in crews() {
            let (left, late) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (counter, after) = (left.clone(), late.clone());
            let report = move |_| match counter.load(Ordering::Relaxed) {
                0 => {
                    after.fetch_add(1, Ordering::Relaxed);
                    ControlFlow::Break(())
                }
                more => {
                    counter.store(more - 1, Ordering::Relaxed);
                    ControlFlow::Continue(())
                }
            };
            let builder = Plan::builder(&window.filter).device(Device::AllGpus).band_rows(9);
            let plan = builder.flow(options).progress(report).build()?;
            for after in [0, 3, 11] {
                left.store(after, Ordering::Relaxed);
                late.store(0, Ordering::Relaxed);
                let (outcome, found) = batches(&plan, &sources);
                let done = match outcome {
                    Err(Error::InBatch { picture, error })
                        if matches!(*error, Error::Cancelled { .. }) =>
                    {
                        picture
                    }
                    // A picture that finishes after its successor sends no report, so there may be
                    // fewer reports than pictures; the first report is always sent.
                    Ok(()) if after > 0 && late.load(Ordering::Relaxed) == 0 => sources.len(),
                    other => return Err(format!("ended after {after}: {other:?}").into()),
                };
                for (number, (found, expected)) in
                    found.iter().zip(&expected).enumerate().take(done)
                {
                    same(&found.bits(), &expected.bits(), expected.stride).map_err(|wrong| {
                        format!("ended after {after}, picture {number}: {wrong}")
                    })?;
                }
                // Each feeder may have been about to send a report.
                let feeders = 3 * apron::gpu::Gpu::count()? as usize;
                if late.load(Ordering::Relaxed) > feeders {
                    return Err(format!("ended after {after}: told {late:?} times more").into());
                }
            }
            left.store(usize::MAX, Ordering::Relaxed);
            batches(&plan, &sources).0?;
        }
        Ok(())
    }

    /// A timeline has every band's steps in order, and the bands of a lane one after the other.
    pub(super) fn timeline() -> Result<(), Failed> {
        let sources = pictures(5);
        let window = Window::preset("gaussian:sigma=1");
        let timeline = Timeline::default();
        let options = FlowOptions {
            feeders: Some(2),
            lanes: Some(4),
            timeline: Some(timeline.clone()),
            ..FlowOptions::default()
        };
        let plan = Plan::builder(&window.filter)
            .device(Device::AllGpus)
            .band_rows(9)
            .flow(options)
            .build()?;
        batches(&plan, &sources).0?;
        let mut spans = timeline.take();
        if !timeline.take().is_empty() {
            return Err("spans come twice".into());
        }
        let bands: usize = sources.iter().map(|src| src.shape.height.div_ceil(9)).sum();
        if spans.len() != 5 * bands {
            return Err(format!("{} spans of {bands} bands", spans.len()).into());
        }
        spans.sort_by_key(|span| (span.picture, span.rows.start, span.what));
        let all = [What::Stage, What::Upload, What::Kernel, What::Download, What::Drain];
        for band in spans.chunks(all.len()) {
            let what: Vec<_> = band.iter().map(|span| span.what).collect();
            let place = |span: &Span| (span.gpu, span.lane, span.picture, span.rows.clone());
            let together = band.iter().all(|span| place(span) == place(&band[0]));
            // Host and device have their own clocks, about a microsecond apart.
            let ordered = band.iter().all(|span| span.start <= span.end)
                && band[1..4].windows(2).all(|pair| pair[0].end <= pair[1].start)
                && band[0].end.as_secs_f64() <= band[1].end.as_secs_f64() + 1e-4
                && band[3].end.as_secs_f64() <= band[4].end.as_secs_f64() + 1e-4;
            if what != all || !together || !ordered {
                return Err(format!("a band's spans: {band:?}").into());
            }
        }
        let mut uploads: Vec<_> =
            spans.chunks(all.len()).map(|band| (&band[1], &band[3])).collect();
        uploads.sort_by_key(|(upload, _)| (upload.gpu, upload.lane, upload.start));
        for pair in uploads.windows(2) {
            let ((before, download), (upload, _)) = (pair[0], pair[1]);
            if (before.gpu, before.lane) == (upload.gpu, upload.lane) && download.end > upload.start
            {
                return Err(
                    format!("two bands in a lane at once: {download:?} and {upload:?}").into()
                );
            }
        }
        Ok(())
    }
}
