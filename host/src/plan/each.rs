//! A plan for each image of a batch.

#[cfg(feature = "gpu")]
use std::collections::HashMap;
use std::sync::Arc;
#[cfg(feature = "gpu")]
use std::sync::{Mutex, PoisonError};

use super::engines::On;
use super::{Channels, Device, Plan, agree};
#[cfg(feature = "gpu")]
use crate::gpu::each::Products;
#[cfg(feature = "gpu")]
use crate::gpu::engine::{Engine, Part};
#[cfg(feature = "gpu")]
use crate::gpu::{DeviceView, DeviceViewMut, Stream};
use crate::image::{ImageView, ImageViewMut, Pixel, Scalar};
#[cfg(feature = "gpu")]
use crate::mask::Nan;
#[cfg(feature = "gpu")]
use crate::problem::{Place, machine::Machine};
use crate::threads::{self, Effort};
#[cfg(feature = "gpu")]
use crate::{Border, Family, Filter};
use crate::{Error, Result, Shape};

/// Threads of a call for pictures that go to a GPU: one uploads while others download.
const TO_GPU: usize = 3;

/// Values of an image on a GPU from which a launch for it alone, by the kernel that its plan would
/// choose, is faster than its share of a launch for all. On an H200, 2048x2048 f32 takes 21 and 25
/// us.
#[cfg(feature = "gpu")]
const LARGE: usize = 3 << 20;

/// Nanoseconds to find out whether a filter shares launches with others.
#[cfg(feature = "gpu")]
const PRODUCT: f64 = 2e4;

/// A plan for each image of a batch, such as a blur of another sigma for each. Every image gets the
/// result of its own plan.
///
/// On a GPU, images in its memory whose filters are products of a row and a column go in a few
/// launches for all, whatever the sizes of their windows, unless images have more than three
/// million values, or the border is `keep` or `none`. Others are filtered one by one.
///
/// ```
/// use apron::{Device, Filter, Image, Plan, Plans};
///
/// let of = |sigma| Plan::builder(Filter::gaussian(sigma)?).device(Device::Cpu).build();
/// let plans = Plans::new([of(1.0)?, of(2.5)?])?;
/// let images = [
///     Image::from_vec(vec![7u8; 640 * 480], 640, 480, 1)?,
///     Image::from_vec(vec![9u8; 35], 7, 5, 1)?,
/// ];
/// let mut results = [Image::<u8>::zeroed(640, 480, 1)?, Image::<u8>::zeroed(7, 5, 1)?];
/// let [first, second] = &mut results;
/// plans.run(&mut [
///     (images[0].view(), first.view_mut()),
///     (images[1].view(), second.view_mut()),
/// ])?;
/// assert_eq!(results, images);
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Debug)]
pub struct Plans {
    plans: Vec<Arc<Plan>>,
    #[cfg(feature = "gpu")]
    tables: Mutex<HashMap<Key, Arc<Table>>>,
}

/// What a table is for: a GPU's number, and for bytes made of bytes the channels side by side.
#[cfg(feature = "gpu")]
type Key = (u32, Option<usize>);

/// The products of those images that are filtered together.
#[cfg(feature = "gpu")]
#[derive(Debug)]
struct Table {
    /// For each image its product's number, if it has one.
    numbers: Vec<Option<usize>>,
    products: Option<Products>,
}

impl Plans {
    /// For as many images as there are plans.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no plan, or if two are for different devices.
    pub fn new<P: Into<Arc<Plan>>>(plans: impl IntoIterator<Item = P>) -> Result<Self> {
        let plans: Vec<Arc<Plan>> = plans.into_iter().map(Into::into).collect();
        let wrong = |value: String, expected: &str| {
            Err(Error::Parameter { name: "plans", value, expected: expected.to_owned() })
        };
        let Some(first) = plans.first() else {
            return wrong("none".to_owned(), "at least one plan");
        };
        let device = |plan: &Arc<Plan>| plan.device();
        if let Some(other) = plans.iter().map(device).find(|&other| other != first.device()) {
            let value = format!("plans on {} and on {other}", first.device());
            return wrong(value, "plans on the same device");
        }
        Ok(Self {
            plans,
            #[cfg(feature = "gpu")]
            tables: Mutex::default(),
        })
    }

    /// The plans.
    pub fn plans(&self) -> &[Arc<Plan>] {
        &self.plans
    }

    /// The device that the plans run on.
    pub fn device(&self) -> Device {
        self.plans[0].device()
    }

    /// Filters each picture by its plan. With twice as many pictures as plans, or three times, and
    /// so on, so many neighbours share a plan: the planes of an image, for example. Pictures may
    /// differ in size. On the CPU, small ones are filtered side by side, each on one thread.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the number of pictures is not a multiple of that of plans;
    /// [`Error::InBatch`] names the first picture that could not be filtered, and says why, as
    /// [`Plan::run`] would. The pictures before it are done; what the destinations of the others
    /// hold is unspecified.
    pub fn run<S: Pixel, D: Pixel>(
        &self,
        pictures: &mut [(ImageView<'_, S>, ImageViewMut<'_, D>)],
    ) -> Result<()> {
        let each = self.shares(pictures.len())?;
        let in_batch = |(picture, error)| Error::InBatch { picture, error: Box::new(error) };
        let kinds = (S::SCALAR, D::SCALAR);
        let mut efforts = Vec::with_capacity(pictures.len());
        for (number, (src, dst)) in pictures.iter().enumerate() {
            let plan = &self.plans[number / each];
            let effort = agree(src.shape(), dst.shape())
                .and_then(|()| plan.check_kinds(kinds))
                .and_then(|()| plan.effort_of_call(src.shape(), kinds));
            efforts.push(effort.map_err(|error| in_batch((number, error)))?);
        }
        let threads = match efforts.iter().copied().collect::<Option<Vec<_>>>() {
            Some(efforts) => threads::across(efforts.into_iter()),
            None => TO_GPU.min(pictures.len()),
        };
        threads::try_for_each(threads, pictures.iter_mut().enumerate(), |(number, (src, dst))| {
            self.plans[number / each].run(&*src, dst)
        })
        .map_err(in_batch)
    }

    /// How many pictures share a plan.
    fn shares(&self, pictures: usize) -> Result<usize> {
        let plans = self.plans.len();
        if pictures.is_multiple_of(plans) {
            return Ok((pictures / plans).max(1));
        }
        Err(Error::Parameter {
            name: "pictures",
            value: pictures.to_string(),
            expected: format!("a multiple of {plans}, the number of plans"),
        })
    }

    /// Filters a batch of images on the device, each by its plan. The work is put into `stream` and
    /// may not have finished when the function returns. All channels are filtered.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless there are as many images as plans; otherwise as
    /// [`Plan::run_region`].
    #[cfg(feature = "gpu")]
    pub fn run_on_device(
        &self,
        src: &DeviceView<'_>,
        dst: &mut DeviceViewMut<'_>,
        stream: &mut Stream,
    ) -> Result<()> {
        if src.images() != self.plans.len() {
            let expected = format!("{}, one for each plan", self.plans.len());
            let value = src.images().to_string();
            return Err(Error::Parameter { name: "images", value, expected });
        }
        let kinds = (src.scalar(), dst.scalar());
        self.plans.iter().try_for_each(|plan| plan.check_kinds(kinds))?;
        let first = &self.plans[0];
        let gpus = first.gpus_of(src.gpu())?;
        let engine = gpus.engine_of(src.gpu());
        engine.enter_with((src, dst), stream)?;
        let Shape { width, height, channels } = src.shape();
        let bytes = (kinds == (Scalar::U8, Scalar::U8)).then(|| src.side_by_side());
        let table = self.table(engine, bytes)?;
        let products = table.products.as_ref().filter(|_| width * height * channels < LARGE);
        let mut image = 0;
        while image < table.numbers.len() {
            let Some((number, products)) = table.numbers[image].zip(products) else {
                let (src, mut dst) = (src.image(image), dst.image(image));
                let part = Part::whole(src.shape());
                self.plans[image].run_part(&src, &mut dst, &part, stream)?;
                image += 1;
                continue;
            };
            let count = table.numbers[image..].iter().take_while(|number| number.is_some()).count();
            products.enqueue((src, dst), (image, count), number, stream)?;
            image += count;
        }
        Ok(())
    }

    /// The products on an engine's GPU: for values, or for bytes of images with so many channels
    /// side by side.
    #[cfg(feature = "gpu")]
    fn table(&self, engine: &Engine, bytes: Option<usize>) -> Result<Arc<Table>> {
        let key = (engine.gpu().info().ordinal, bytes);
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.get(&key) {
            return Ok(table.clone());
        }
        // What is found here, a filter keeps.
        let effort = Effort::of_work(PRODUCT * self.plans.len() as f64);
        let find = |plan: &Arc<Plan>| plan.product(engine, bytes).map(|_| ());
        threads::try_for_each(effort.threads_now(), self.plans.iter(), find)
            .map_err(|(_, error)| error)?;
        let border = self.plans[0].border;
        let (mut numbers, mut filters) = (Vec::with_capacity(self.plans.len()), Vec::new());
        for plan in &self.plans {
            let product = plan.product(engine, bytes)?.filter(|_| plan.border == border);
            numbers.push(product.map(|_| filters.len()));
            filters.extend(product);
        }
        let products = match filters.is_empty() {
            true => None,
            false => Some(Products::new(engine.gpu(), &filters, border, bytes)?),
        };
        let table = Arc::new(Table { numbers, products });
        tables.insert(key, table.clone());
        Ok(table)
    }
}

impl Plan {
    /// What a call for a picture takes on the CPU; `None` if it may run on a GPU.
    fn effort_of_call(&self, shape: Shape, kinds: (Scalar, Scalar)) -> Result<Option<Effort>> {
        let (Device::Cpu, On::Cpu(engine)) = (self.device(), self.on(super::auto::Where::Cpu)?)
        else {
            return Ok(None);
        };
        let family = self.family_on_cpu(engine, shape, shape.channels, kinds)?;
        Ok(Some(self.effort(family, Channels::First(shape.channels), shape, kinds)))
    }

    /// The filter, if a GPU's passes over a batch with products for each image make this plan's
    /// results: bytes of images with so many channels side by side, or values that are added up in
    /// f32.
    #[cfg(feature = "gpu")]
    fn product(&self, engine: &Engine, bytes: Option<usize>) -> Result<Option<&Filter>> {
        let is_plain = self.gradient.is_none()
            && self.variant.is_none()
            && !self.is_light()
            && self.unknown.nan == Nan::Spread
            && !matches!(self.border, Border::None | Border::Keep)
            && self.filter.least_change() == 0.0;
        let is_product = is_plain
            && match bytes {
                Some(channels) => {
                    Products::takes_bytes(engine.gpu(), (&self.filter, self.border), channels)?
                }
                None => {
                    // The filter and the accuracy alone decide, not the picture.
                    let shape = Shape { width: 1, height: 1, channels: 1 };
                    let problem = self.problem(shape, Place::Gpu(Machine::H200));
                    self.filter.is_separable()
                        && matches!(problem.family(), Some((Family::Separable, _)))
                }
            };
        Ok(is_product.then_some(&self.filter))
    }
}
