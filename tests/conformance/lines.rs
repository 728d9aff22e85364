//! A search for the greatest error of row and column passes by 1-D spectra in f32.
//!
//! [`apron::Variant::SpectraPasses`] rests on a measured bound, for taps t along lines of N
//! numbers. Two lines of bytes less 128 form one complex line. The error of a pass is at most the
//! sum of three terms: `(9 + 0.4 sqrt(N)) sqrt(sum t^2)` root mean squares of a tile's numbers, 14
//! of its sums, and 5 times its greatest sum. The unit is half a unit in the last place of 1. The
//! search breeds pictures for one result. It also computes pictures that are aligned with the
//! roundings of the kernels' constants: the taps' spectrum and twiddle factors.

use conformance::product::Gpu;
use conformance::select::Selection;
use conformance::suite::gpu_trial;
use libtest_mimic::Trial;

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let kinds = [("bred", false), ("constants", true)];
    let mut trials: Vec<_> = kinds
        .map(|(name, aligned)| {
            gpu_trial(&format!("worst::lines_{name}::gpu"), gpu, move || search(selection, aligned))
        })
        .into();
    // The CPU takes minutes for these.
    if selection == Selection::Full {
        trials.push(gpu_trial("lines::large::gpu", gpu, large));
    }
    trials
}

#[cfg(not(feature = "gpu"))]
fn search(_: Selection, _: bool) -> Result<(), libtest_mimic::Failed> {
    conformance::suite::no_gpu()
}

#[cfg(not(feature = "gpu"))]
fn large() -> Result<(), libtest_mimic::Failed> {
    conformance::suite::no_gpu()
}

#[cfg(feature = "gpu")]
use on_gpu::{large, search};

#[cfg(feature = "gpu")]
mod on_gpu {
    use apron::gpu::Gpu;
    use apron::{Border, Device, Filter, Image, ImageView, Plan, Scalar, Variant};
    use conformance::select::Selection;
    use fastrand::Rng;
    use libtest_mimic::Failed;
    use rayon::prelude::*;

    use crate::worst::{Complex, change, conjugate, start, times};

    /// Taps along a line, and the length of the transform.
    struct Taps {
        name: &'static str,
        taps: Vec<f64>,
        size: usize,
        parts: usize,
    }

    fn windows(columns: bool) -> Vec<Taps> {
        let bell = |sigma: f64| {
            let reach = (4.0 * sigma + 0.5) as i32;
            let taps: Vec<f64> = (-reach..=reach)
                .map(|i| (-f64::from(i * i) / (2.0 * sigma * sigma)).exp())
                .collect();
            let sum: f64 = taps.iter().sum();
            taps.into_iter().map(|tap| tap / sum).collect::<Vec<_>>()
        };
        let random = |count: usize| {
            let mut rng = Rng::with_seed(11);
            (0..count).map(|_| (rng.f64() - 0.3) / 50.0).collect::<Vec<_>>()
        };
        let lone = |count: usize| {
            (0..count).map(|i| f64::from(u8::from(i == count / 2))).collect::<Vec<_>>()
        };
        let large = if columns { 2048 } else { 4096 };
        vec![
            Taps { name: "Gaussian, 81", taps: bell(10.0), size: 1024, parts: 1 },
            Taps { name: "one of 61", taps: lone(61), size: 1024, parts: 1 },
            Taps { name: "random, 401", taps: random(401), size: 2048, parts: 1 },
            Taps { name: "Gaussian, 801", taps: bell(100.0), size: large, parts: 1 },
            Taps {
                name: "one of 3501",
                taps: lone(3501),
                size: large,
                parts: if columns { 4 } else { 2 },
            },
        ]
    }

    impl Taps {
        /// Pixels of a line: those of one tile, or of several if the window has several parts.
        fn length(&self) -> usize {
            if self.parts > 1 { 4096 } else { self.size }
        }

        /// The bound of a result of the first tile of two lines, in units of half a unit in the
        /// last place of 128.
        fn bound(&self, lines: &[u8]) -> f64 {
            let (size, length) = (self.size, self.length());
            let [weight, norm] =
                [1, 2].map(|power| self.taps.iter().map(|tap| tap.abs().powi(power)).sum::<f64>());
            let pixel = |line: usize, at: usize| {
                if at < length { f64::from(lines[line * length + at]) - 128.0 } else { -128.0 }
            };
            let part = self.taps.len().div_ceil(self.parts);
            let (mut before, mut behind, mut greatest) = (0.0, 0.0, 0.0f64);
            for line in 0..2 {
                let mut sums = vec![0.0; size];
                for (number, taps) in self.taps.chunks(part).enumerate() {
                    let numbers: Vec<f64> =
                        (0..size).map(|n| pixel(line, number * part + n)).collect();
                    before += numbers.iter().map(|number| number * number).sum::<f64>();
                    for (c, tap) in taps.iter().enumerate() {
                        let (wrapped, first) = numbers.split_at(c);
                        sums.iter_mut()
                            .zip(first.iter().chain(wrapped))
                            .for_each(|(sum, number)| *sum += tap * number);
                    }
                }
                behind += sums.iter().map(|sum| sum * sum).sum::<f64>();
                greatest = sums.iter().fold(greatest, |greatest, sum| greatest.max(sum.abs()));
            }
            let [before, behind] = [before, behind].map(|squares| (squares / size as f64).sqrt());
            let of_input = (9.0 + 0.4 * (size as f64).sqrt()) * norm.sqrt();
            let own = of_input * before + (13.0 + self.parts as f64) * behind + 5.0 * greatest;
            // The pass in the other direction has one tap of 1. Its two lines have two numbers that
            // are not 0.
            let other = 7.3 * weight;
            // The product of 128 and the taps is rounded, and so is its sum with the rest.
            own / 128.0 + other + 2.0 * weight + 2.01
        }

        /// The bound that [`Variant::SpectraPasses`] states for types other than bytes. The pass in
        /// the other direction has one tap.
        fn bound_of_floats(&self) -> f64 {
            let [weight, norm] =
                [1, 2].map(|power| self.taps.iter().map(|tap| tap.abs().powi(power)).sum::<f64>());
            let units = 25.0 + 25.0 * (norm.sqrt() / weight + 1.0) + self.parts as f64;
            units * f64::from(f32::EPSILON) * weight * 255.0
        }

        /// The exact sum at a place of the first of two lines.
        fn exact(&self, lines: &[u8], place: usize) -> f64 {
            self.taps
                .iter()
                .zip(&lines[place..self.length()])
                .map(|(tap, &pixel)| tap * f64::from(pixel))
                .sum()
        }
    }

    /// The plan, and the means to measure a result's error.
    struct Measure<'a> {
        taps: &'a Taps,
        columns: bool,
        plan: Plan,
        gpu: Gpu,
    }

    impl<'a> Measure<'a> {
        fn new(taps: &'a Taps, columns: bool) -> Result<Self, Failed> {
            let filter = match columns {
                true => Filter::separable_f64(&[1.0], &taps.taps)?,
                false => Filter::separable_f64(&taps.taps, &[1.0])?,
            };
            let plan = Plan::builder(filter.anchored(0, 0)?)
                .variant(Variant::SpectraPasses)
                .device(Device::Gpu(0))
                .border(Border::Constant(0.0))
                .build()?;
            Ok(Self { taps, columns, plan, gpu: Gpu::open(0)? })
        }

        /// The error of the result at a place of the first line, as a share of the bound. An
        /// epilogue maps errors within the bound to the range of bytes.
        fn error(&self, lines: &[u8], place: usize) -> Result<f64, Failed> {
            let unit = 128.0 * f64::from(f32::EPSILON) / 2.0;
            let (exact, bound) = (self.taps.exact(lines, place), self.taps.bound(lines) * unit);
            let length = self.taps.length();
            let turned: Vec<u8> =
                (0..length).flat_map(|at| [lines[at], lines[at + length]]).collect();
            let picture = match self.columns {
                true => ImageView::new(&turned, 2, length, 1)?,
                false => ImageView::new(lines, length, 2, 1)?,
            };
            let mut stream = self.gpu.stream()?;
            let source = self.gpu.upload_stored(&picture)?;
            let mut bytes =
                self.gpu.image_of(picture.shape(), Scalar::U8, source.format().layout)?;
            let scale = (100.0 / bound) as f32;
            let offset = (128.0 - f64::from(scale) * exact) as f32;
            self.plan.run_with_epilogue(
                &source.view(),
                &mut bytes.view_mut(),
                (scale, offset, false),
                &mut stream,
            )?;
            stream.synchronize()?;
            let at = if self.columns { 2 * place } else { place };
            let byte = self.gpu.download_stored::<u8>(&bytes)?.as_slice()[at];
            if byte == 0 || byte == 255 {
                return Err(format!("{}: further than {bound} from {exact}", self.taps.name).into());
            }
            let of_bytes =
                ((f64::from(byte) - f64::from(offset)) / f64::from(scale) - exact).abs() / bound;
            let mut values =
                Image::<f32>::zeroed(picture.shape().width, picture.shape().height, 1)?;
            self.plan.run(&picture, &mut values.view_mut())?;
            let of_floats = (f64::from(values.as_slice()[at]) - exact).abs();
            Ok(of_bytes.max(of_floats / self.taps.bound_of_floats()))
        }
    }

    /// Large pictures of noise, by wide Gaussians and an unsharp mask, must equal the CPU's byte
    /// for byte. Prints their times.
    pub(super) fn large() -> Result<(), Failed> {
        const SIDE: usize = 8192;
        const ROUNDS: u32 = 10;
        let mut rng = Rng::with_seed(3);
        let picture: Vec<u8> = (0..SIDE * SIDE).map(|_| rng.u8(..)).collect();
        let view = ImageView::new(&picture, SIDE, SIDE, 1)?;
        let gpu = Gpu::open(0)?;
        let source = gpu.upload_stored(&view)?;
        let mut bytes = gpu.image_of(view.shape(), Scalar::U8, source.format().layout)?;
        for text in [
            "gaussian:sigma=10",
            "gaussian:sigma=20",
            "gaussian:sigma=50",
            "gaussian:sigma=100",
            "unsharp:sigma=20",
            "gaussian:sigma=1000",
        ] {
            let filter: Filter = text.parse()?;
            let plan =
                |device| Plan::builder(filter.clone()).device(device).border(Border::Reflect101);
            let on_gpu = plan(Device::Gpu(0)).variant(Variant::SpectraPasses).build()?;
            let mut stream = gpu.stream()?;
            let mut times = [0.0; 2];
            // With an epilogue, results are rounded from f32: this times both passes alone. Then
            // with the uncertain results.
            for (alone, time) in [true, false].into_iter().zip(&mut times) {
                let mut start = stream.mark()?;
                for round in 0..=ROUNDS {
                    match alone {
                        true => {
                            let epilogue = (1.0, 0.25, false);
                            on_gpu.run_with_epilogue(
                                &source.view(),
                                &mut bytes.view_mut(),
                                epilogue,
                                &mut stream,
                            )?;
                        }
                        false => on_gpu.run_on_device(&source, &mut bytes, &mut stream)?,
                    }
                    // The first run computes spectra and allocates scratch memory.
                    start = if round == 0 { stream.mark()? } else { start };
                }
                *time = 1e6 * (stream.mark()?.since(&start)? / ROUNDS).as_secs_f64();
            }
            println!(
                "lines, {text}: {:.0} us alone, {:.0} us for {SIDE}x{SIDE} u8",
                times[0], times[1]
            );
            let found = gpu.download_stored::<u8>(&bytes)?;
            let mut expected = apron::Image::<u8>::zeroed(SIDE, SIDE, 1)?;
            plan(Device::Cpu).build()?.run(&view, &mut expected.view_mut())?;
            let differ =
                found.as_slice().iter().zip(expected.as_slice()).filter(|(a, b)| a != b).count();
            if differ > 0 {
                return Err(format!("{text}: {differ} bytes differ from the CPU's").into());
            }
        }
        Ok(())
    }

    /// Breeds pictures, or computes those that are aligned with the roundings of constants.
    pub(super) fn search(selection: Selection, aligned: bool) -> Result<(), Failed> {
        let (pictures, turns, most) = match selection {
            Selection::Full => (24, 40, usize::MAX),
            Selection::Small => (16, 10, usize::MAX),
            Selection::Emulated => (1, 1, 1),
        };
        for (columns, taps) in [false, true].into_iter().flat_map(|columns| {
            windows(columns).into_iter().take(most).map(move |taps| (columns, taps))
        }) {
            let measure = Measure::new(&taps, columns)?;
            // The results of a tile of one part; for several parts, those of the first tile.
            let results = taps.size + 1 - taps.taps.len().div_ceil(taps.parts);
            let places = [0, results / 2, results - 1]
                .map(|place| place.min(taps.length() - taps.taps.len()));
            let mut worst: f64 = 0.0;
            for place in places.into_iter().take(most) {
                let found = match aligned {
                    true if taps.parts > 1 => continue,
                    true => measure.error(&constants(&taps, place), place)?,
                    false => breed(&measure, place, pictures, turns)?,
                };
                worst = worst.max(found);
            }
            let direction = if columns { "columns" } else { "rows" };
            println!("worst of lines, {direction}: {}: {worst:.2} of the bound", taps.name);
            if worst > 1.0 {
                return Err(format!("{direction}, {}: {worst} of the bound", taps.name).into());
            }
        }
        Ok(())
    }

    /// The greatest error at a place after `turns` iterations.
    fn breed(
        measure: &Measure<'_>,
        place: usize,
        pictures: usize,
        turns: usize,
    ) -> Result<f64, Failed> {
        let size = (measure.taps.length(), 2);
        let mut herd: Vec<Vec<u8>> = (0..pictures)
            .map(|i| if i % 2 == 0 { runs(i, size.0) } else { start(i, size) })
            .collect();
        let mut errors =
            herd.iter().map(|lines| measure.error(lines, place)).collect::<Result<Vec<_>, _>>()?;
        for turn in 0..turns {
            for i in 0..pictures {
                let changed = change(&herd, i, turn, size);
                let error = measure.error(&changed, place)?;
                if error > errors[i] {
                    (herd[i], errors[i]) = (changed, error);
                }
            }
        }
        Ok(errors.into_iter().fold(0.0, f64::max))
    }

    /// Lines of 0 and 255 in long runs, which have the greatest errors under smooth taps.
    fn runs(number: usize, length: usize) -> Vec<u8> {
        let mut rng = Rng::with_seed(number as u64 + 100);
        let mut value = 0;
        let mut next = |_| {
            if rng.usize(..250) == 0 {
                value = 255 - value;
            }
            value
        };
        (0..2 * length).map(&mut next).collect()
    }

    /// Two lines that are 255 where the roundings of constants raise the result at a place, and 0
    /// elsewhere.
    fn constants(taps: &Taps, place: usize) -> Vec<u8> {
        let size = taps.size;
        let exact = |n: usize, k: usize| turn(n * k % size, size);
        let spectrum: Vec<Complex> = (0..size)
            .map(|k| {
                let add = |sum: Complex, (n, &tap): (usize, &f64)| {
                    let (re, im) = conjugate(exact(n, k));
                    (sum.0 + tap * re / size as f64, sum.1 + tap * im / size as f64)
                };
                taps.taps.iter().enumerate().fold((0.0, 0.0), add)
            })
            .collect();
        let back: Vec<_> = spectrum
            .iter()
            .enumerate()
            .map(|(k, &factor)| {
                let rounded = times(narrow(factor), conjugate(coefficient(size, place, k)));
                (rounded, times(factor, conjugate(exact(place, k))))
            })
            .collect();
        let length = taps.length();
        let mut lines = vec![0; 2 * length];
        let error = |n: usize| {
            let add = |sum: Complex, (k, &(rounded, factor)): (usize, &(Complex, Complex))| {
                let (a, b) = (times(rounded, coefficient(size, n, k)), times(factor, exact(n, k)));
                (sum.0 + a.0 - b.0, sum.1 + a.1 - b.1)
            };
            back.iter().enumerate().fold((0.0, 0.0), add)
        };
        let errors: Vec<Complex> = (0..size).into_par_iter().map(error).collect();
        for (n, (re, im)) in errors.into_iter().enumerate() {
            // The second line is the imaginary part.
            (lines[n], lines[length + n]) =
                (if re > 0.0 { 255 } else { 0 }, if im < 0.0 { 255 } else { 0 });
        }
        lines
    }

    /// `exp(-2 pi i turn / circle)`.
    fn turn(turn: usize, circle: usize) -> Complex {
        let (sin, cos) =
            (-std::f64::consts::TAU * (turn % circle) as f64 / circle as f64).sin_cos();
        (cos, sin)
    }

    /// A constant, rounded as in a kernel.
    fn narrow((re, im): Complex) -> Complex {
        (f64::from(re as f32), f64::from(im as f32))
    }

    /// The factor of a kernel for element `n` and frequency `k`: the product of its constants.
    fn coefficient(size: usize, n: usize, k: usize) -> Complex {
        let radix = size / 256;
        let threads = 16 * radix;
        let (t, m) = (n % threads, n / threads);
        let (k1, rest) = (k % 16, k / 16);
        let (u, m2, k2, k3) = (t % radix, t / radix, rest % 16, rest / 16);
        // A factor is the product of two rounded factors.
        let factor = |element: usize, k: usize, circle: usize| {
            let one = |k: usize| narrow(turn(element * k, circle));
            times(one(k / 4 * 4), one(k % 4))
        };
        let sixteen = |m: usize, k: usize| {
            let first = times(turn(4 * (m / 4) * (k % 4), 16), narrow(turn(m % 4 * (k % 4), 16)));
            times(first, turn(4 * (m % 4) * (k / 4), 16))
        };
        let last = match radix {
            4 => turn(u * k3, 4),
            8 => {
                let odd = if k3 % 2 == 1 { narrow(turn(u % 4, 8)) } else { (1.0, 0.0) };
                times(odd, times(turn(4 * (u / 4) * k3, 8), turn(2 * (u % 4) * (k3 / 2), 8)))
            }
            _ => sixteen(u, k3),
        };
        let outer = times(sixteen(m, k1), factor(t, k1, size));
        times(outer, times(times(sixteen(m2, k2), factor(u, k2, threads)), last))
    }
}
