//! Runs over pictures in the host's memory.

use std::sync::atomic::{AtomicU64, Ordering};

use super::auto::Where;
use super::engines::On;
use super::place::{CallSize, run};
use super::processor::effort;
use super::ran::{Launched, Ran};
use super::{Channels, Plan, agree, pixels};
use crate::cpu;
#[cfg(feature = "gpu")]
use crate::gpu::flow::{self, Picture};
use crate::image::convert::{AsImage, AsImageMut};
use crate::image::stored::{StoredView, StoredViewMut};
use crate::image::{Image, ImageView, ImageViewMut, Pixel, Scalar, Shape};
use crate::problem::Place;
use crate::progress::{Call, Stage};
use crate::threads::{self, Effort};
use crate::{Error, Family, Result};

/// How many times as long as other direct sums those weighted by alpha take, about.
const WEIGHTED: f64 = 3.0;

impl Plan {
    /// Filters `src` into `dst`, channel by channel. The stored types may differ: `u8` into `f32`
    /// keeps the sign and the fraction of a derivative. On a GPU, the picture goes in bands of
    /// rows, of which some go up while others are filtered or come down; so it may be larger than
    /// the GPU's memory, and no byte of the result depends on the bands. Source and destination
    /// cannot overlap, by Rust's borrowing rules:
    ///
    /// ```compile_fail,E0502
    /// # use apron::{Filter, Image, Plan};
    /// # let plan = Plan::builder(Filter::gaussian(2.0)?).build()?;
    /// let mut image = Image::<u8>::zeroed(640, 480, 1)?;
    /// plan.run(&image.view(), &mut image.view_mut())?;
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`] if sizes differ; [`Error::Unsupported`] as for [`Plan::variant_for`];
    /// memory and driver errors. After an error the contents of `dst` are unspecified.
    pub fn run<S: AsImage + ?Sized, D: AsImageMut + ?Sized>(
        &self,
        src: &S,
        dst: &mut D,
    ) -> Result<()> {
        let src = src.as_image()?;
        self.run_channels(&src, &mut dst.as_image_mut()?, src.shape().channels)
    }

    /// Filters an image into a new one of the same stored type: [`Plan::run`] with a newly
    /// allocated destination.
    ///
    /// ```
    /// use apron::{Device, Filter, Image, ImageView, Plan};
    ///
    /// let plan = Plan::builder(Filter::sobel_x()).device(Device::Cpu).build()?;
    /// let ramp: Vec<f32> = (0..48).map(|i| (i % 8) as f32).collect();
    /// let slope: Image<f32> = plan.filter(&ImageView::new(&ramp, 8, 6, 1)?)?;
    /// assert_eq!(slope.view().row(3)[4], 8.0);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Plan::run`], and [`Error::HostMemory`] if there is no room for the result.
    #[must_use = "the filtered image is returned, not written back"]
    pub fn filter<S: AsImage + ?Sized>(&self, src: &S) -> Result<Image<S::Value>> {
        let src = src.as_image()?;
        let shape = src.shape();
        let mut dst = Image::zeroed(shape.width, shape.height, shape.channels)?;
        self.run(&src, &mut dst.view_mut())?;
        Ok(dst)
    }

    /// As [`Plan::run`], for the first `filtered` channels; the others, such as alpha, are copied.
    ///
    /// # Errors
    /// As [`Plan::run`]; [`Error::Parameter`] unless `filtered` is from 1 to the number of
    /// channels.
    pub fn run_channels<S: Pixel, D: Pixel>(
        &self,
        src: &ImageView<'_, S>,
        dst: &mut ImageViewMut<'_, D>,
        filtered: usize,
    ) -> Result<()> {
        let shape = src.shape();
        agree(shape, dst.shape())?;
        if !(1..=shape.channels).contains(&filtered) {
            return Err(Error::Parameter {
                name: "filtered",
                value: filtered.to_string(),
                expected: format!("from 1 to {}, the number of channels", shape.channels),
            });
        }
        self.run_as(Channels::First(filtered), (*src).into(), dst.reborrow().into())
    }

    /// Filters a picture of the destination's shape.
    pub(super) fn run_as(
        &self,
        channels: Channels,
        src: StoredView<'_>,
        mut dst: StoredViewMut<'_>,
    ) -> Result<()> {
        let kinds = (src.scalar(), dst.scalar());
        let job = CallSize::of(kinds, &[(src.is_pinned(), dst.is_pinned(), src.shape())]);
        let call = self.report.call(pixels(src.shape()));
        run(&[(self, channels)], &job, |place, launched| {
            self.run_at((place, &launched[0]), channels, &src, &mut dst, &call)
        })
    }

    /// As [`Plan::run_as`], on the CPU or on the plan's GPUs.
    pub(crate) fn run_at(
        &self,
        (place, launched): (Where, &Launched),
        channels: Channels,
        src: &StoredView<'_>,
        dst: &mut StoredViewMut<'_>,
        call: &Call<'_>,
    ) -> Result<()> {
        self.check_kinds((src.scalar(), dst.scalar()))?;
        let shape = src.shape();
        let stage = call.stage(0, pixels(shape));
        match self.on(place)? {
            On::Cpu(engine) => {
                let kinds = (src.scalar(), dst.scalar());
                let family = match channels {
                    Channels::Weighted if !self.is_light() => Family::Direct,
                    _ => self.family_on_cpu(engine, shape, channels.of(shape), kinds)?,
                };
                self.run_on_cpu((engine, launched), family, channels, src, dst, stage)?;
            }
            #[cfg(feature = "gpu")]
            On::Gpu(gpus) => {
                let step = self.step_on((gpus, launched), channels, dst.scalar(), None);
                let picture = Picture::new(*src, dst.reborrow(), channels.filtered());
                flow::run((&[step], &gpus.idle), &mut [picture], &stage)
                    .map_err(|(_, error)| error)?;
            }
        }
        call.reach(pixels(shape))
    }

    pub(super) fn run_on_cpu(
        &self,
        (engine, launched): (&cpu::Engine, &Launched),
        family: Family,
        channels: Channels,
        src: &StoredView<'_>,
        dst: &mut StoredViewMut<'_>,
        stage: Stage<'_>,
    ) -> Result<()> {
        let effort = self.effort(family, channels, src.shape(), (src.scalar(), dst.scalar()));
        let stage = &stage.on(effort.threads_now());
        if let Some(tables) = &self.light {
            let on = (engine, &**tables);
            let ran = self.run_light_on_cpu(on, family, channels, src, dst, stage)?;
            launched.note(ran);
            return Ok(());
        }
        if self.is_masked(src.scalar()) {
            let ran = self.run_known_on_cpu(engine, family, channels, src, dst, stage)?;
            launched.note(ran);
            return Ok(());
        }
        let ran = match (channels, self.gradient) {
            (Channels::Weighted, _) => engine.run_weighted(src, dst, stage).map(|()| Ran::Weighted),
            (Channels::First(filtered), Some(gradient)) => {
                engine.run_gradient(gradient, src, dst, filtered, stage).map(|()| Ran::Gradient)
            }
            (Channels::First(filtered), None) => {
                engine.run(family, src, dst, filtered, stage).map(Ran::Variant)
            }
        }?;
        launched.note(ran);
        Ok(())
    }

    /// As [`Plan::run`], for many pictures, whose sizes may differ. On a GPU, while one is
    /// uploaded, others are filtered and downloaded. On the CPU, small ones are filtered side by
    /// side, each on one thread.
    ///
    /// ```
    /// use apron::{Device, Filter, Image, Plan};
    ///
    /// let plan = Plan::builder(Filter::gaussian(2.0)?).device(Device::Cpu).build()?;
    /// let large = Image::from_vec(vec![7u8; 640 * 480], 640, 480, 1)?;
    /// let small = Image::from_vec(vec![9u8; 35], 7, 5, 1)?;
    /// let mut large_out = Image::<u8>::zeroed(640, 480, 1)?;
    /// let mut small_out = Image::<u8>::zeroed(7, 5, 1)?;
    /// plan.run_batch(&mut [
    ///     (large.view(), large_out.view_mut()),
    ///     (small.view(), small_out.view_mut()),
    /// ])?;
    /// assert_eq!((large_out, small_out), (large, small));
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InBatch`] names the first picture that could not be filtered, and says why, as
    /// [`Plan::run`] would. The pictures before it are done; what the destinations of the others
    /// hold is unspecified.
    pub fn run_batch<S: Pixel, D: Pixel>(
        &self,
        pictures: &mut [(ImageView<'_, S>, ImageViewMut<'_, D>)],
    ) -> Result<()> {
        let mut pictures: Vec<_> =
            pictures.iter_mut().map(|(src, dst)| ((*src).into(), dst.reborrow().into())).collect();
        self.run_all((S::SCALAR, D::SCALAR), &mut pictures)
    }

    /// Filters pictures, all of the same types.
    fn run_all(
        &self,
        kinds: (Scalar, Scalar),
        pictures: &mut [(StoredView<'_>, StoredViewMut<'_>)],
    ) -> Result<()> {
        let in_batch = |(picture, error)| Error::InBatch { picture, error: Box::new(error) };
        let wrong = pictures.iter().enumerate().find_map(|(number, (src, dst))| {
            let error = agree(src.shape(), dst.shape()).err()?;
            Some((number, error))
        });
        let right = wrong.as_ref().map_or(pictures.len(), |&(number, _)| number);
        let all = pictures[..right].iter().map(|(src, _)| pixels(src.shape())).sum();
        let call = self.report.call(all);
        self.check_kinds(kinds).map_err(|error| in_batch((0, error)))?;
        let seen: Vec<_> = pictures[..right]
            .iter()
            .map(|(src, dst)| (src.is_pinned(), dst.is_pinned(), src.shape()))
            .collect();
        // Each picture says how many of its channels are filtered.
        let channels = Channels::First(seen.first().map_or(1, |&(.., shape)| shape.channels));
        run(&[(self, channels)], &CallSize::of(kinds, &seen), |place, launched| {
            match self.on(place)? {
                On::Cpu(engine) => self
                    .run_all_on_cpu((engine, &launched[0]), kinds, &mut pictures[..right], &call)
                    .map_err(in_batch),
                #[cfg(feature = "gpu")]
                On::Gpu(gpus) => {
                    let pictures = pictures[..right].iter_mut();
                    let mut pictures: Vec<_> = pictures
                        .map(|(src, dst)| Picture::new(*src, dst.reborrow(), src.shape().channels))
                        .collect();
                    let step =
                        self.step_on((gpus, &launched[0]), Channels::First(1), kinds.1, None);
                    flow::run((&[step], &gpus.idle), &mut pictures, &call.stage(0, all))
                        .map_err(in_batch)
                }
            }
        })?;
        call.reach(all).map_err(|error| in_batch((right.saturating_sub(1), error)))?;
        wrong.map_or(Ok(()), |wrong| Err(in_batch(wrong)))
    }

    /// Filters pictures on the CPU: small ones side by side, each on one thread.
    ///
    /// # Errors
    /// The first picture that failed, and its error.
    fn run_all_on_cpu(
        &self,
        (engine, launched): (&cpu::Engine, &Launched),
        kinds: (Scalar, Scalar),
        pictures: &mut [(StoredView<'_>, StoredViewMut<'_>)],
        call: &Call<'_>,
    ) -> Result<(), (usize, Error)> {
        let mut jobs = Vec::with_capacity(pictures.len());
        let mut refused = Ok(());
        for (number, (src, dst)) in pictures.iter_mut().enumerate() {
            let shape = src.shape();
            match self.family_on_cpu(engine, shape, shape.channels, kinds) {
                Ok(family) => jobs.push((family, src, dst)),
                Err(error) => {
                    refused = Err((number, error));
                    break;
                }
            }
        }
        let efforts = jobs.iter().map(|(family, src, _)| {
            let shape = src.shape();
            self.effort(*family, Channels::First(shape.channels), shape, kinds)
        });
        let threads = threads::across(efforts);
        let finished = AtomicU64::new(0);
        threads::try_for_each(threads, jobs.into_iter(), |(family, src, dst)| {
            let (shape, pixels) = (src.shape(), pixels(src.shape()));
            // Pictures side by side are reported when they are finished.
            let within = if threads > 1 { 0 } else { pixels };
            let stage = call.stage(finished.load(Ordering::Relaxed), within);
            let channels = Channels::First(shape.channels);
            self.run_on_cpu((engine, launched), family, channels, src, dst, stage)?;
            call.reach(finished.fetch_add(pixels, Ordering::Relaxed) + pixels)
        })?;
        refused
    }

    /// What a picture takes on the CPU.
    pub(super) fn effort(
        &self,
        family: Family,
        channels: Channels,
        shape: Shape,
        kinds: (Scalar, Scalar),
    ) -> Effort {
        let times = match channels {
            Channels::Weighted if !self.is_light() => WEIGHTED,
            _ => 1.0,
        };
        let place = Place::Cpu { threads: 1 };
        let problem = self.problem_for(shape, channels.of(shape), self.summed(kinds), place);
        let effort = effort(&problem, family);
        let times = times * self.times_masked(kinds.0) * self.times_light();
        Effort { nanoseconds: times * effort.nanoseconds, ..effort }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::{Arc, Mutex};

    use crate::{Border, Device, Error, Filter, Image, Plan, Progress};

    /// Small pictures on four threads have the results of single calls, in f32 and in f64, and
    /// their pixels are counted as they are finished.
    #[test]
    fn pictures_side_by_side_are_as_alone() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = {
            let told = told.clone();
            move |progress: Progress| {
                told.lock().unwrap().push((progress.done, progress.total));
                ControlFlow::Continue(())
            }
        };
        let filter = Filter::gaussian(2.0).unwrap();
        let builder = Plan::builder(&filter).border(Border::Wrap).device(Device::Cpu);
        let plan = builder.clone().progress(tell).build().unwrap();
        let alone = builder.build().unwrap();
        let value = |number: usize, at: usize| ((number * 7919 + at * 31) % 251) as f32;
        let sources: Vec<Image<f32>> = (0..40)
            .map(|number| {
                let (width, height) = (50 + number, 60 - number);
                let values = (0..width * height * 3).map(|at| value(number, at)).collect();
                Image::from_vec(values, width, height, 3).unwrap()
            })
            .collect();
        let mut results = sources.clone();
        let mut batch: Vec<_> = sources
            .iter()
            .zip(&mut results)
            .map(|(src, dst)| (src.view(), dst.view_mut()))
            .collect();
        let doubled = |image: &Image<f32>| {
            let values = image.as_slice().iter().map(|&value| f64::from(value)).collect();
            let shape = image.shape();
            Image::<f64>::from_vec(values, shape.width, shape.height, 3).unwrap()
        };
        let doubles: Vec<_> = sources.iter().map(doubled).collect();
        let mut of_doubles = doubles.clone();
        let mut batch_f64: Vec<_> = doubles
            .iter()
            .zip(&mut of_doubles)
            .map(|(src, dst)| (src.view(), dst.view_mut()))
            .collect();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
        pool.install(|| {
            plan.run_batch(&mut batch).unwrap();
            alone.run_f64_batch(&mut batch_f64).unwrap();
        });
        for number in 0..sources.len() {
            assert_eq!(results[number], alone.filter(&sources[number]).unwrap(), "{number}");
            let mut expected = doubles[number].clone();
            alone.run_f64(&doubles[number].view(), &mut expected.view_mut()).unwrap();
            assert_eq!(of_doubles[number], expected, "{number}");
        }
        let told = told.lock().unwrap();
        let all: usize = sources.iter().map(|image| image.as_slice().len() / 3).sum();
        assert_eq!(told.last(), Some(&(all as u64, all as u64)));
        assert!(told.is_sorted() && told.len() > 20, "{told:?}");
    }

    #[test]
    fn a_batch_names_the_picture_that_failed() {
        let plan =
            Plan::builder(Filter::box_filter(3, 3).unwrap()).device(Device::Cpu).build().unwrap();
        let source = Image::from_vec(vec![9.0f64; 20], 5, 4, 1).unwrap();
        let large = Image::from_vec(vec![i64::MAX; 20], 5, 4, 1).unwrap();
        let mut results = vec![source.clone(); 3];
        let mut narrow = Image::<f64>::zeroed(4, 4, 1).unwrap();
        let [one, two, three] = &mut results[..] else { unreachable!() };
        let mut batch = [
            (source.view(), one.view_mut()),
            (source.view(), narrow.view_mut()),
            (source.view(), two.view_mut()),
        ];
        let error = plan.run_f64_batch(&mut batch).unwrap_err();
        assert!(matches!(error, Error::InBatch { picture: 1, .. }), "{error}");
        let mut batch = [(large.view(), three.view_mut())];
        let error = plan.run_f64_batch(&mut batch).unwrap_err();
        assert!(matches!(error, Error::InBatch { picture: 0, .. }), "{error}");
        assert!(error.to_string().contains("row 0, column 0"), "{error}");
    }
}
