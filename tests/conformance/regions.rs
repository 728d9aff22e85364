//! Launches that write a part of an image, read a band of one, or use any layout that strides can
//! describe. The results equal those of the whole image in packed planes, and nothing else is
//! written.
//!
//! The direct and the separable family must have the bits of `oracle::scalar`. The Fourier kernel
//! must repeat the bits of its own result for the whole image, where its tiles begin at the same
//! places. Elsewhere its results may differ by twice its bound.

use std::ops::Range;

use apron::{Border, Shape};
#[cfg(feature = "gpu")]
use apron::{Error, Variant};
use conformance::problem::Window;
use conformance::product::Gpu;
use conformance::sample::Sample;
#[cfg(feature = "gpu")]
use conformance::select::BORDERS;
use conformance::select::Selection;
#[cfg(not(feature = "gpu"))]
use conformance::suite;
use conformance::suite::gpu_trial;
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};
#[cfg(feature = "gpu")]
use on_gpu::{bands, epilogue, kept_channel, layouts, many_planes, rectangles};
use oracle::Order;

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let trial = |name: &str, test: fn(Selection) -> Result<(), Failed>| {
        gpu_trial(&format!("regions::{name}::gpu"), gpu, move || test(selection))
    };
    let mut trials = vec![
        trial("rectangles", rectangles),
        trial("bands", bands),
        trial("layouts", layouts),
        trial("epilogue", epilogue),
        trial("many_planes", many_planes),
        trial("kept_channel", kept_channel),
    ];
    trials.extend(FAULTS.iter().map(|&fault| {
        let name = match fault {
            Fault::None => "regions::honest".to_owned(),
            _ => format!("regions::catches::{fault:?}").to_lowercase(),
        };
        Trial::test(name, move || caught(fault))
    }));
    trials
}

#[cfg(not(feature = "gpu"))]
fn no_gpu(_: Selection) -> Result<(), Failed> {
    suite::no_gpu()
}

#[cfg(not(feature = "gpu"))]
use no_gpu as bands;
#[cfg(not(feature = "gpu"))]
use no_gpu as epilogue;
#[cfg(not(feature = "gpu"))]
use no_gpu as kept_channel;
#[cfg(not(feature = "gpu"))]
use no_gpu as layouts;
#[cfg(not(feature = "gpu"))]
use no_gpu as many_planes;
#[cfg(not(feature = "gpu"))]
use no_gpu as rectangles;

/// Images as planes without gaps, one image after the other.
struct Batch {
    shape: Shape,
    images: usize,
    planes: Vec<Vec<f32>>,
}

impl Batch {
    fn random(width: usize, height: usize, channels: usize, images: usize, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let planes = (0..images * channels)
            .map(|_| (0..width * height).map(|_| 2.0 * rng.f32() - 1.0).collect());
        Self { shape: Shape { width, height, channels }, images, planes: planes.collect() }
    }

    /// The same images with other planes.
    fn with(&self, planes: Vec<Vec<f32>>) -> Self {
        Self { shape: self.shape, images: self.images, planes }
    }

    fn size(&self) -> (usize, usize) {
        (self.shape.width, self.shape.height)
    }

    /// The result of an order for each plane.
    fn filtered(&self, order: Order, window: &Window, border: Border) -> Self {
        let filter = |plane: &Vec<f32>| {
            order.filter(plane, self.size(), window.as_taps(), window.products().as_ref(), border)
        };
        self.with(self.planes.iter().map(filter).collect())
    }
}

/// The layout of a batch in a buffer of floats.
#[cfg_attr(
    not(feature = "gpu"),
    allow(dead_code, reason = "without a GPU the checks alone are tested")
)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    /// Values from one image, channel, row and pixel to the next; here values are floats.
    pub(crate) strides: [isize; 4],
    /// The value at which the first row in the buffer begins, in the first channel of the first
    /// image.
    pub(crate) first: usize,
    /// The number of values in the buffer.
    pub(crate) len: usize,
}

/// The axes of a batch, as indices of [`Layout::strides`].
pub(crate) const IMAGE: usize = 0;
pub(crate) const CHANNEL: usize = 1;
pub(crate) const ROW: usize = 2;
pub(crate) const PIXEL: usize = 3;

#[cfg_attr(
    not(feature = "gpu"),
    allow(dead_code, reason = "without a GPU the checks alone are tested")
)]
impl Layout {
    /// `order` names the axes from the innermost on, each with its extent and a number of free
    /// values behind it. `step` is the stride of the first axis. `backwards` names axes that run
    /// from the last element to the first.
    pub(crate) fn new(
        name: &'static str,
        (lead, step): (usize, usize),
        order: [(usize, usize, usize); 4],
        backwards: &[usize],
    ) -> Self {
        let mut strides = [0; 4];
        let (mut reach, mut first) = (step, lead);
        for (axis, extent, gap) in order {
            strides[axis] = reach as isize;
            if backwards.contains(&axis) {
                strides[axis] = -strides[axis];
                first += (extent - 1) * reach;
            }
            reach = reach * extent + gap;
        }
        Self { name, strides, first, len: lead + reach + 3 }
    }

    /// Every layout for this shape and this number of rows and images. Sliding kernels read the
    /// first.
    fn all(Shape { width, channels, .. }: Shape, rows: usize, images: usize) -> Vec<Self> {
        let planar = |name, start, [row, channel, image]: [usize; 3], backwards: &[usize]| {
            let order = [
                (PIXEL, width, row),
                (ROW, rows, channel),
                (CHANNEL, channels, image),
                (IMAGE, images, 0),
            ];
            Self::new(name, start, order, backwards)
        };
        let interleaved = |name, lead, [pixel, row, image]: [usize; 3], backwards: &[usize]| {
            let order = [
                (CHANNEL, channels, pixel),
                (PIXEL, width, row),
                (ROW, rows, image),
                (IMAGE, images, 0),
            ];
            Self::new(name, (lead, 1), order, backwards)
        };
        // Rows at multiples of 16 bytes.
        let row = width.next_multiple_of(4) - width + 4;
        vec![
            planar("NCHW, aligned", (8, 1), [row, 8, 12], &[]),
            interleaved("NHWC", 0, [0, 0, 0], &[]),
            planar("NCHW, 4 bytes off", (1, 1), [row, 8, 12], &[]),
            planar("NCHW, rows backwards", (4, 1), [row, 0, 4], &[ROW]),
            interleaved("NHWC, rows backwards, with gaps", 3, [2, 5, 7], &[ROW]),
            planar("NCHW, odd rows", (4, 1), [row + 1, 3, 5], &[]),
            planar("NCHW, gaps between pixels", (5, 2), [3, 1, 2], &[]),
            interleaved("NHWC, channels and pixels backwards", 2, [1, 1, 0], &[CHANNEL, PIXEL]),
            planar("NCHW, images and channels backwards", (0, 1), [row, 4, 4], &[IMAGE, CHANNEL]),
        ]
    }

    fn aligned(shape: Shape, rows: usize, images: usize) -> Self {
        Self::all(shape, rows, images)[0]
    }

    /// The index of the value at a place, whose row is counted from the first row in the buffer.
    pub(crate) fn at(&self, place: [usize; 4]) -> usize {
        let floats =
            self.strides.iter().zip(place).map(|(stride, number)| stride * number as isize).sum();
        self.first.wrapping_add_signed(floats)
    }

    /// Writes some rows and columns of a batch to their places; `there` are the rows in the buffer.
    fn put(
        &self,
        buffer: &mut [f32],
        batch: &Batch,
        there: &Range<usize>,
        part: (&Range<usize>, &Range<usize>),
    ) {
        let Shape { width, channels, .. } = batch.shape;
        for (number, plane) in batch.planes.iter().enumerate() {
            for y in part.1.clone() {
                for x in part.0.clone() {
                    let place = [number / channels, number % channels, y - there.start, x];
                    buffer[self.at(place)] = plane[y * width + x];
                }
            }
        }
    }

    /// A buffer with some rows of a batch, and poison elsewhere.
    fn with_rows(&self, batch: &Batch, there: &Range<usize>) -> Vec<f32> {
        let mut buffer = vec![f32::POISON; self.len];
        self.put(&mut buffer, batch, there, (&(0..batch.shape.width), there));
        buffer
    }

    /// Checks a buffer that held poison: a part of its rows must equal `expected` within `allowed`,
    /// and the rest must be unchanged.
    fn check(
        &self,
        found: &[f32],
        expected: &Batch,
        there: &Range<usize>,
        part: (&Range<usize>, &Range<usize>),
        allowed: f64,
    ) -> Result<(), String> {
        let mut right = vec![f32::POISON; self.len];
        self.put(&mut right, expected, there, part);
        let same = |found: f32, right: f32| {
            let near = (f64::from(found) - f64::from(right)).abs() <= allowed;
            found.to_bits() == right.to_bits() || !right.is_poison() && near && allowed > 0.0
        };
        let wrong = |&at: &usize| !same(found[at], right[at]);
        let count = (0..self.len).filter(wrong).count();
        let Some(at) = (0..self.len).find(wrong) else { return Ok(()) };
        let (found, right) = (found[at], right[at]);
        let what = match (right.is_poison(), found.is_poison()) {
            (true, _) => "written beside the results".to_owned(),
            (_, true) => "never written".to_owned(),
            _ => format!("{right:e} expected, {found:e} found"),
        };
        Err(format!("{count} values are wrong; float {at} of {self:?}: {what}"))
    }
}

/// Small, wide, tall and even windows, with anchors outside the middle; some are separable. Each
/// variant takes some of them.
#[cfg(feature = "gpu")]
fn windows(selection: Selection) -> Vec<Window> {
    let mut windows = vec![
        Window::random_pair(3, 3, 1),
        Window::random_pair(5, 5, 2).anchored(2, 4),
        Window::random_pair(4, 6, 3).anchored(0, 5),
        Window::random(9, 4, 4).anchored(8, 0),
        Window::random_pair(33, 2, 5).anchored(20, 0),
        Window::random_pair(2, 21, 6).anchored(1, 3),
    ];
    if selection == Selection::Full {
        windows.extend([
            Window::random(17, 17, 7).anchored(8, 2),
            Window::random_pair(65, 65, 8).anchored(32, 10),
            Window::random(33, 33, 9).anchored(0, 32),
            Window::random_pair(300, 270, 10).anchored(100, 30),
        ]);
    }
    windows
}

/// The fault of a stand-in for a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    OneUlp,
    RowTooMany,
    ColumnTooFew,
    GapWritten,
    BorderOfTheRegion,
    RegionAtTheOrigin,
    ChannelsSwapped,
    ImagesSwapped,
    RowsForwards,
    OffsetBeforeScale,
    KeptPixelsScaled,
}

const FAULTS: [Fault; 12] = [
    Fault::None,
    Fault::OneUlp,
    Fault::RowTooMany,
    Fault::ColumnTooFew,
    Fault::GapWritten,
    Fault::BorderOfTheRegion,
    Fault::RegionAtTheOrigin,
    Fault::ChannelsSwapped,
    Fault::ImagesSwapped,
    Fault::RowsForwards,
    Fault::OffsetBeforeScale,
    Fault::KeptPixelsScaled,
];

/// `|sum * scale + offset|`, or the same without the absolute value.
#[derive(Clone, Copy, Debug)]
struct Scaling {
    scale: f32,
    offset: f32,
    absolute: bool,
}

impl Scaling {
    fn of(self, sum: f32) -> f32 {
        let value = sum.mul_add(self.scale, self.offset);
        if self.absolute { value.abs() } else { value }
    }

    /// Applies the scaling to all results except the border's copies.
    fn on(self, results: &Batch, window: &Window, border: Border) -> Batch {
        let (width, height) = results.size();
        let copied = |i: usize| {
            let across = oracle::kept(i % width, window.anchor.0, window.cols, width);
            border == Border::Keep
                && (across || oracle::kept(i / width, window.anchor.1, window.rows, height))
        };
        let scaled = |plane: &Vec<f32>| {
            let one = |(i, &sum): (usize, &f32)| if copied(i) { sum } else { self.of(sum) };
            plane.iter().enumerate().map(one).collect()
        };
        results.with(results.planes.iter().map(scaled).collect())
    }
}

/// The check finds a fault in a stand-in, and accepts a stand-in without one.
fn caught(fault: Fault) -> Result<(), Failed> {
    let batch = Batch::random(19, 13, 3, 2, 1);
    let (window, border) = (Window::random(4, 3, 2).anchored(1, 2), Border::Keep);
    let (columns, rows, there) = (0..14, 1..11, 0..12);
    let scaling = Scaling { scale: -1.5, offset: 0.25, absolute: true };
    let layout = Layout::all(batch.shape, there.len(), batch.images)[4];
    let sums = batch.filtered(Order::Direct, &window, border);
    let right = scaling.on(&sums, &window, border);

    let mut made = right.with(right.planes.clone());
    let (mut wide, mut high, mut stood) = (columns.clone(), rows.clone(), layout);
    let at = rows.start * 19 + columns.start + 1;
    match fault {
        Fault::None | Fault::GapWritten => {}
        Fault::OneUlp => made.planes[4][at] = f32::from_bits(made.planes[4][at].to_bits() + 1),
        Fault::RowTooMany => high.end += 1,
        Fault::ColumnTooFew => wide.end -= 1,
        Fault::BorderOfTheRegion => {
            // The border rule is applied to the region, as if it were the image.
            let cut = |plane: &Vec<f32>| {
                rows.clone().flat_map(|y| plane[y * 19..][columns.clone()].to_vec()).collect()
            };
            let shape = Shape { width: columns.len(), height: rows.len(), channels: 3 };
            let small = Batch { shape, images: 2, planes: batch.planes.iter().map(cut).collect() };
            let small =
                scaling.on(&small.filtered(Order::Direct, &window, border), &window, border);
            for (plane, small) in made.planes.iter_mut().zip(&small.planes) {
                for (row, y) in small.chunks(columns.len()).zip(rows.clone()) {
                    plane[y * 19..][columns.clone()].copy_from_slice(row);
                }
            }
        }
        Fault::RegionAtTheOrigin => made.planes.iter_mut().for_each(|plane| plane.rotate_left(at)),
        Fault::ChannelsSwapped => made.planes.swap(0, 2),
        Fault::ImagesSwapped => made.planes.swap(1, 4),
        Fault::RowsForwards => {
            stood.first = stood.at([0, 0, there.len() - 1, 0]);
            stood.strides[ROW] = -stood.strides[ROW];
        }
        Fault::OffsetBeforeScale => {
            let wrong = Scaling { offset: scaling.offset * scaling.scale, ..scaling };
            made = wrong.on(&sums, &window, border);
        }
        Fault::KeptPixelsScaled => made = scaling.on(&sums, &window, Border::Reflect),
    }
    let mut buffer = vec![f32::POISON; layout.len];
    stood.put(&mut buffer, &made, &there, (&wide, &high));
    if fault == Fault::GapWritten {
        buffer[layout.at([1, 2, 0, 0]) + 1] = 0.0;
    }
    let outcome = layout.check(&buffer, &right, &there, (&columns, &rows), 0.0);
    match (fault, outcome) {
        (Fault::None, outcome) => Ok(outcome?),
        (_, Err(_)) => Ok(()),
        (fault, Ok(())) => Err(format!("{fault:?} was not caught").into()),
    }
}

/// The rows that results in some rows read.
#[cfg(feature = "gpu")]
pub(crate) fn needed(
    window: &Window,
    border: Border,
    rows: &Range<usize>,
    height: usize,
) -> Range<usize> {
    let reached = rows.clone().flat_map(|y| {
        (0..window.rows).filter_map(move |row| {
            oracle::fold(border, (y + row) as i64 - window.anchor.1 as i64, height)
        })
    });
    let reached: Vec<usize> = reached.collect();
    reached.iter().copied().min().unwrap_or(0)..reached.iter().copied().max().unwrap_or(0) + 1
}

#[cfg(feature = "gpu")]
mod on_gpu {
    use apron::gpu::{DeviceImage, DeviceView, DeviceViewMut, Stream, Strides};
    use apron::{Alpha, Device, Image, Plan};
    use conformance::bounds::bound;
    use conformance::product::{self, Product};
    use conformance::runner::Implementation;
    use rayon::prelude::*;

    use super::*;

    /// An interleaved image of f32 whose last channel is kept, under a window for each variant with
    /// kernels for interleaved channels: the CPU's bits.
    pub(super) fn kept_channel(_: Selection) -> Result<(), Failed> {
        let gpu = apron::gpu::Gpu::open(0)?;
        let mut stream = gpu.stream()?;
        for channels in [2, 4] {
            let (width, height) = (300 / channels, 23);
            let mut rng = Rng::with_seed(57);
            let pixels = (0..width * height * channels).map(|_| rng.f32()).collect();
            let image = Image::from_vec(pixels, width, height, channels)?;
            let src = gpu.upload_stored(&image.view())?;
            for window in [
                Window::random(5, 5, 4900),
                Window::random_pair(9, 9, 4901),
                Window::random_pair(40, 7, 4902),
                Window::random(33, 1, 4903),
            ] {
                let mut expected = Image::zeroed(width, height, channels)?;
                Plan::builder(&window.filter).device(Device::Cpu).build()?.run_with_alpha(
                    &image.view(),
                    &mut expected.view_mut(),
                    Alpha::Keep,
                )?;
                let mut dst =
                    gpu.image_of(image.shape(), apron::Scalar::F32, apron::Layout::Interleaved)?;
                let plan = Plan::builder(&window.filter).device(product::Gpu::DEVICE).build()?;
                plan.run_region_with_alpha(
                    &src.view(),
                    &mut dst.view_mut(),
                    0..width,
                    0..height,
                    (Alpha::Keep, &mut stream),
                )?;
                stream.synchronize()?;
                if gpu.download_stored::<f32>(&dst)? != expected {
                    return Err(format!("{}, {channels} channels: differs", window.name).into());
                }
            }
        }
        Ok(())
    }

    /// Floats on the device, and the layout of a batch among them.
    struct Buffer {
        floats: DeviceImage,
        layout: Layout,
        shape: Shape,
        images: usize,
        there: Range<usize>,
    }

    impl Buffer {
        fn new(
            gpu: &apron::gpu::Gpu,
            layout: Layout,
            batch: &Batch,
            there: &Range<usize>,
            floats: Vec<f32>,
        ) -> apron::Result<Self> {
            let len = floats.len();
            let floats = gpu.upload(&Image::from_vec(floats, len, 1, 1)?.view())?;
            Ok(Self {
                floats,
                layout,
                shape: batch.shape,
                images: batch.images,
                there: there.clone(),
            })
        }

        /// A buffer with these rows of a batch.
        fn source(
            gpu: &apron::gpu::Gpu,
            layout: Layout,
            batch: &Batch,
            there: &Range<usize>,
        ) -> apron::Result<Self> {
            Self::new(gpu, layout, batch, there, layout.with_rows(batch, there))
        }

        /// A buffer for these rows of results.
        fn target(
            gpu: &apron::gpu::Gpu,
            layout: Layout,
            batch: &Batch,
            there: &Range<usize>,
        ) -> apron::Result<Self> {
            Self::new(gpu, layout, batch, there, vec![f32::POISON; layout.len])
        }

        fn raw(&self) -> (u64, Strides) {
            let [image, channel, row, pixel] = self.layout.strides.map(|floats| 4 * floats as i64);
            let address = self.floats.address() + 4 * self.layout.first as u64;
            (address, Strides { row, pixel: pixel as i32, channel, image })
        }

        fn view(&self) -> apron::Result<DeviceView<'_>> {
            let (address, strides) = self.raw();
            // SAFETY: all places of the layout lie in the buffer, which the view borrows. Whoever
            // uses the view waits for the stream before the buffer is freed.
            unsafe {
                DeviceView::from_raw(
                    self.floats.gpu(),
                    address,
                    (apron::Scalar::F32, strides),
                    self.shape,
                    self.images,
                    self.there.clone(),
                )
            }
        }

        fn view_mut(&mut self) -> apron::Result<DeviceViewMut<'_>> {
            let (address, strides) = self.raw();
            // SAFETY: as in `view`. No two places of the layout coincide, and the view borrows the
            // buffer exclusively.
            unsafe {
                DeviceViewMut::from_raw(
                    self.floats.gpu(),
                    address,
                    (apron::Scalar::F32, strides),
                    self.shape,
                    self.images,
                    self.there.clone(),
                )
            }
        }

        fn download(&self) -> apron::Result<Vec<f32>> {
            Ok(self.floats.gpu().download(&self.floats)?.as_slice().to_vec())
        }
    }

    /// A variant with a window and a border.
    struct Case<'a> {
        window: &'a Window,
        border: Border,
        variant: Variant,
        plan: Plan,
        gpu: apron::gpu::Gpu,
    }

    impl Case<'_> {
        fn told(&self) -> String {
            format!("{} on gpu:0, {}, border {}", self.variant, self.window, self.border)
        }

        fn order(&self) -> Option<Order> {
            Order::of(self.variant.family())
        }

        /// The results of the whole images: by the oracle, or by the Fourier kernel itself.
        fn whole(&self, batch: &Batch) -> apron::Result<Batch> {
            if let Some(order) = self.order() {
                return Ok(batch.filtered(order, self.window, self.border));
            }
            let Shape { width, height, .. } = batch.shape;
            let filter = |plane: &Vec<f32>| {
                let mut result = Image::<f32>::zeroed(width, height, 1)?;
                self.plan.run(
                    &Image::from_vec(plane.clone(), width, height, 1)?.view(),
                    &mut result.view_mut(),
                )?;
                Ok(result.as_slice().to_vec())
            };
            Ok(batch.with(batch.planes.iter().map(filter).collect::<apron::Result<_>>()?))
        }

        /// How far results may lie from those of the whole image. `moved` says that the region
        /// begins elsewhere, and with it the Fourier kernel's tiles.
        fn allowed(&self, moved: bool) -> f64 {
            let greatest = match self.border {
                Border::Constant(value) => value.abs().max(1.0),
                _ => 1.0,
            };
            if moved && self.order().is_none() {
                2.0 * bound(None, self.window, greatest)
            } else {
                0.0
            }
        }

        fn stream(&self) -> apron::Result<Stream> {
            self.gpu.stream()
        }
    }

    /// Runs `test` for every variant with each window and border that it takes.
    fn each(
        name: &str,
        windows: &[Window],
        borders: &[Border],
        test: impl Fn(&Case<'_>, usize) -> Result<usize, Failed> + Sync,
    ) -> Result<(), Failed> {
        let started = std::time::Instant::now();
        let gpu = apron::gpu::Gpu::open(0)?;
        let all: Vec<_> = windows
            .iter()
            .flat_map(|window| borders.iter().map(move |&border| (window, border)))
            .collect();
        let counted = all.par_iter().enumerate().map(|(number, &(window, border))| {
            let mut counts = Vec::new();
            for variant in product::variants(Gpu::DEVICE) {
                let product = Product { variant: Some(variant), device: Gpu::DEVICE };
                if product.must_take(window, border) {
                    let case = Case {
                        window,
                        border,
                        variant,
                        plan: product.prepare(window, border)?,
                        gpu: gpu.clone(),
                    };
                    let runs = test(&case, number).map_err(|failed| {
                        Failed::from(format!(
                            "{}: {}",
                            case.told(),
                            failed.message().unwrap_or_default()
                        ))
                    })?;
                    counts.push((variant, runs));
                }
            }
            Ok(counts)
        });
        let counts = counted.collect::<Result<Vec<_>, Failed>>()?.concat();
        for variant in product::variants(Gpu::DEVICE) {
            if !counts.iter().any(|&(counted, runs)| counted == variant && runs > 0) {
                return Err(format!("{variant} solved nothing").into());
            }
        }
        let runs: usize = counts.iter().map(|(_, runs)| runs).sum();
        println!("{name}: {runs} runs in {:.1} s", started.elapsed().as_secs_f64());
        Ok(())
    }

    /// A random range of at most `most` elements within `0..extent`.
    fn some(rng: &mut Rng, extent: usize, most: usize) -> Range<usize> {
        let len = rng.usize(1..=most.min(extent));
        let start = rng.usize(0..=extent - len);
        start..start + len
    }

    /// Any rectangle of results equals that part of the whole image's, and nothing is written
    /// beside it.
    pub(super) fn rectangles(selection: Selection) -> Result<(), Failed> {
        let count = if selection == Selection::Full { 6 } else { 2 };
        let batch = Batch::random(301, 141, 1, 1, 11);
        let all = 0..141;
        let layout = Layout::aligned(batch.shape, 141, 1);
        each("regions::rectangles", &windows(selection), &BORDERS, |case, number| {
            let whole = case.whole(&batch)?;
            let src = Buffer::source(&case.gpu, layout, &batch, &all)?;
            let mut rng = Rng::with_seed(100 + number as u64);
            let mut stream = case.stream()?;
            for turn in 0..count {
                let (mut columns, mut rows) = (some(&mut rng, 301, 150), some(&mut rng, 141, 70));
                match (number + turn) % 5 {
                    0 => (columns, rows) = (0..columns.end, 0..rows.end.min(80)),
                    1 => columns = columns.start..301.min(columns.start + 131),
                    2 => rows = rows.start..141.min(rows.start + 67),
                    3 if turn > 1 => {
                        (columns, rows) =
                            (columns.start..columns.start + 1, rows.start..rows.start + 1)
                    }
                    _ => {}
                }
                let mut dst = Buffer::target(&case.gpu, layout, &batch, &all)?;
                let part = (columns.clone(), rows.clone());
                case.plan.run_region(
                    &src.view()?,
                    &mut dst.view_mut()?,
                    part.0,
                    part.1,
                    &mut stream,
                )?;
                stream.synchronize()?;
                let allowed = case.allowed((columns.start, rows.start) != (0, 0));
                layout
                    .check(&dst.download()?, &whole, &all, (&columns, &rows), allowed)
                    .map_err(|wrong| format!("columns {columns:?}, rows {rows:?}: {wrong}"))?;
            }
            Ok(count)
        })
    }

    /// Bands read only the rows that they need, and write into a buffer of the band alone.
    pub(super) fn bands(selection: Selection) -> Result<(), Failed> {
        let count = if selection == Selection::Full { 5 } else { 2 };
        const WIDTH: usize = 135;
        const HEIGHT: usize = 97;
        let batch = Batch::random(WIDTH, HEIGHT, 2, 1, 12);
        each("regions::bands", &windows(selection), &BORDERS, |case, number| {
            let whole = case.whole(&batch)?;
            let image = Buffer::source(
                &case.gpu,
                Layout::aligned(batch.shape, HEIGHT, 1),
                &batch,
                &(0..HEIGHT),
            )?;
            let mut rng = Rng::with_seed(200 + number as u64);
            let mut stream = case.stream()?;
            for turn in 0..count {
                let rows = match (number + turn) % 4 {
                    0 => 0..rng.usize(1..40),
                    1 => HEIGHT - rng.usize(1..40)..HEIGHT,
                    _ => some(&mut rng, HEIGHT, 40),
                };
                let there = needed(case.window, case.border, &rows, HEIGHT);
                let layout = Layout::aligned(batch.shape, there.len(), 1);
                let only = Buffer::source(&case.gpu, layout, &batch, &there)?;
                let source = |there: Range<usize>| {
                    // In turn from the whole image and from a buffer without other rows.
                    let view = if turn % 2 == 0 { only.view() } else { image.view() };
                    view.and_then(|view| view.rows(there))
                };
                let room = rows.start..HEIGHT.min(rows.end + turn);
                let into = Layout::aligned(batch.shape, room.len(), 1);
                let mut dst = Buffer::target(&case.gpu, into, &batch, &room)?;
                let mut run = |src: &DeviceView<'_>, rows: &Range<usize>| {
                    let (columns, rows) = (0..WIDTH, rows.clone());
                    case.plan.run_region(src, &mut dst.view_mut()?, columns, rows, &mut stream)
                };
                // Too few rows, to read or to write: the call is refused.
                let mut short =
                    vec![(there.clone(), rows.start..room.end + 1), (there.clone(), 0..0)];
                if there.len() > 1 {
                    short.push((there.start + 1..there.end, rows.clone()));
                    short.push((there.start..there.end - 1, rows.clone()));
                }
                for (there, rows) in short {
                    let outcome = run(&source(there.clone())?, &rows);
                    if !matches!(outcome, Err(Error::Parameter { .. })) {
                        return Err(format!(
                            "rows {rows:?} from {there:?} of {HEIGHT}: {outcome:?}"
                        )
                        .into());
                    }
                }
                run(&source(there.clone())?, &rows)?;
                stream.synchronize()?;
                into.check(
                    &dst.download()?,
                    &whole,
                    &room,
                    (&(0..WIDTH), &rows),
                    case.allowed(true),
                )
                .map_err(|wrong| format!("rows {rows:?} of {HEIGHT} from {there:?}: {wrong}"))?;
            }
            Ok(count)
        })
    }

    /// Batches from each layout into others. Sliding kernels decline sources that are not aligned.
    pub(super) fn layouts(selection: Selection) -> Result<(), Failed> {
        let borders: &[Border] = if selection == Selection::Full {
            &BORDERS
        } else {
            &[Border::Reflect101, Border::Keep]
        };
        let windows = &windows(selection)[..5];
        each("regions::layouts", windows, borders, |case, number| {
            let channels = 1 + number % 4;
            let batch = Batch::random(45, 21, channels, 3, 300 + number as u64);
            let whole = case.whole(&batch)?;
            let (there, layouts) = (0..21, Layout::all(batch.shape, 21, 3));
            let mut stream = case.stream()?;
            let mut runs = 0;
            for (i, &from) in layouts.iter().enumerate() {
                let to = layouts[(i + 1 + number) % layouts.len()];
                let src = Buffer::source(&case.gpu, from, &batch, &there)?;
                let mut dst = Buffer::target(&case.gpu, to, &batch, &there)?;
                let outcome = case.plan.run_region(
                    &src.view()?,
                    &mut dst.view_mut()?,
                    0..45,
                    0..21,
                    &mut stream,
                );
                let slides =
                    matches!(case.variant, Variant::DirectSliding | Variant::SeparableFused);
                match outcome {
                    Ok(()) => {
                        stream.synchronize()?;
                        to.check(&dst.download()?, &whole, &there, (&(0..45), &there), 0.0)
                            .map_err(|wrong| {
                                format!("{channels} channels from {}: {wrong}", from.name)
                            })?;
                        runs += 1;
                    }
                    Err(Error::Unsupported { .. }) if slides && i > 0 => {}
                    Err(error) => {
                        return Err(
                            format!("{channels} channels from {}: {error}", from.name).into()
                        );
                    }
                }
            }
            Ok(runs)
        })
    }

    /// Sums are scaled, offset, and made absolute. The border's copies stay unchanged.
    pub(super) fn epilogue(selection: Selection) -> Result<(), Failed> {
        let mut windows = windows(selection);
        // The Fourier kernel takes these windows in parts, and separable passes take them in
        // chunks.
        windows
            .extend([Window::random(150, 3, 21).anchored(20, 1), Window::random_pair(5, 270, 22)]);
        let borders: &[Border] = if selection == Selection::Full {
            &BORDERS
        } else {
            &[Border::Constant(-7.25), Border::Wrap, Border::Keep]
        };
        let scalings = [
            Scaling { scale: -1.7, offset: 0.3, absolute: true },
            Scaling { scale: 0.625, offset: -11.5, absolute: false },
            Scaling { scale: 1.0, offset: 0.0, absolute: true },
        ];
        let (width, height) = (161, 37);
        let batch = Batch::random(width, height, 1, 1, 13);
        let (there, layout) = (0..height, Layout::aligned(batch.shape, height, 1));
        each("regions::epilogue", &windows, borders, |case, number| {
            let whole = case.whole(&batch)?;
            let src = Buffer::source(&case.gpu, layout, &batch, &there)?;
            let mut dst = Buffer::target(&case.gpu, layout, &batch, &there)?;
            let mut stream = case.stream()?;
            let scaling = scalings[number % scalings.len()];
            let Scaling { scale, offset, absolute } = scaling;
            case.plan.run_with_epilogue(
                &src.view()?,
                &mut dst.view_mut()?,
                (scale, offset, absolute),
                &mut stream,
            )?;
            stream.synchronize()?;
            let expected = scaling.on(&whole, case.window, case.border);
            layout
                .check(&dst.download()?, &expected, &there, (&(0..width), &there), 0.0)
                .map_err(|wrong| format!("{scaling:?}: {wrong}"))?;
            Ok(1)
        })
    }

    /// More planes than a grid's z axis takes: three full launches and a partial one.
    pub(super) fn many_planes(_: Selection) -> Result<(), Failed> {
        let gpu = apron::gpu::Gpu::open(0)?;
        let window = Window::random(2, 1, 31);
        let product = Product { variant: Some(Variant::DirectNaive), device: Gpu::DEVICE };
        for (channels, images) in [(1, 3 * 65_535 + 7), (4, 3 * 16_383 + 5)] {
            let batch = Batch::random(2, 1, channels, images, 14);
            let layouts = Layout::all(batch.shape, 1, images);
            let (from, to) = (layouts[1], layouts[5]);
            let src = Buffer::source(&gpu, from, &batch, &(0..1))?;
            let mut dst = Buffer::target(&gpu, to, &batch, &(0..1))?;
            let mut stream = gpu.stream()?;
            let plan = product.prepare(&window, Border::Wrap)?;
            plan.run_region(&src.view()?, &mut dst.view_mut()?, 0..2, 0..1, &mut stream)?;
            stream.synchronize()?;
            let expected = batch.filtered(Order::Direct, &window, Border::Wrap);
            to.check(&dst.download()?, &expected, &(0..1), (&(0..2), &(0..1)), 0.0)
                .map_err(|wrong| format!("{images} images of {channels} channels: {wrong}"))?;
        }
        Ok(())
    }
}
