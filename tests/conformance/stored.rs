//! Pictures in device memory in their stored types: values of 8, 16 and 32 bits, one to five
//! channels interleaved or in planes, rows that begin at any address. Source and destination may
//! have different types.
//!
//! Bytes made of bytes must equal `oracle::bytes`. All other results must have the bits of
//! `oracle::scalar`, converted once: see the table in `bounds.rs`. Only results may be written.
//!
//! The gaps of a problem choose the layouts of its source and destination: see [`on_gpu::layouts`].

use conformance::product::Gpu;
use conformance::select::Selection;
#[cfg(not(feature = "gpu"))]
use conformance::suite;
use conformance::suite::gpu_trial;
use libtest_mimic::{Failed, Trial};

#[cfg(feature = "gpu")]
pub(crate) use self::on_gpu::solve;
#[cfg(feature = "gpu")]
use self::on_gpu::test;

/// The tests' names.
const NAMES: [&str; 22] = [
    "layouts",
    "strips",
    "constants",
    "images",
    "parts",
    "bands",
    "batches",
    "matrix",
    "separable_matrix",
    "running_sums",
    "spectra_passes",
    "padded",
    "resolved",
    "sums",
    "alpha",
    "ties",
    "frequent_ties",
    "uncertain",
    "wide",
    "overlap",
    "alignment",
    "odd_places",
];

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let trial =
        |name| gpu_trial(&format!("stored::{name}::gpu"), gpu, move || test(name, selection));
    NAMES.into_iter().map(trial).collect()
}

#[cfg(not(feature = "gpu"))]
fn test(_: &str, _: Selection) -> Result<(), Failed> {
    suite::no_gpu()
}

#[cfg(feature = "gpu")]
mod on_gpu {
    use std::ops::Range;

    use apron::gpu::{DeviceImage, DeviceView, DeviceViewMut, Stream, Strides};
    use apron::{
        Border, Device, Error, Image, ImageView, ImageViewMut, Plan, Scalar, Shape, Variant,
    };
    use conformance::problem::{Group, Problem, Window};
    use conformance::product::{self, Product};
    use conformance::runner::{self, Implementation, Ready, Source, Tally, Target};
    use conformance::sample::{Data, Kind, Sample};
    use conformance::select::{BORDERS, seed};
    use conformance::suite;
    use fastrand::Rng;
    use oracle::Order;
    use rayon::prelude::*;

    use super::{Failed, Gpu, Selection};
    use crate::regions::{CHANNEL, IMAGE, Layout, PIXEL, ROW, needed};

    pub(super) fn test(name: &str, selection: Selection) -> Result<(), Failed> {
        match name {
            "layouts" => check(name, &every(), Way::Whole, &every_layout(selection)),
            "strips" => check(name, &SLIDING, Way::Whole, &strips(selection)),
            "constants" => {
                // Border constants that bytes cannot hold: variants for bytes alone refuse them.
                let others: Vec<_> = every()
                    .into_iter()
                    .filter(|variant| !variant.is_some_and(Variant::takes_only_bytes))
                    .collect();
                check(name, &others, Way::Whole, &constants(selection))
            }
            "images" => check(name, &every(), Way::Images, &thin(selection, 61)),
            "parts" => check(name, &every(), Way::Parts, &thin(selection, 62)),
            "bands" => check(name, &every(), Way::Bands, &thin(selection, 63)),
            "batches" => check(name, &every(), Way::Batch, &thin(selection, 64)),
            "matrix" => bytes_alone(name, selection, Variant::Matrix, of_matrices()),
            "separable_matrix" => {
                bytes_alone(name, selection, Variant::SeparableMatrix, of_pairs())
            }
            "running_sums" => bytes_alone(name, selection, Variant::RunningSums, means()),
            "spectra_passes" => spectra_passes(name, selection),
            "padded" => padded(name, selection),
            "resolved" => resolved(name, selection),
            "sums" => sums(name, selection),
            "alpha" => alpha(selection),
            "ties" => rounded(name, &ties(selection)),
            "frequent_ties" => frequent_ties(name, selection),
            "uncertain" => rounded(name, &uncertain(selection)),
            "wide" => launching(&["passes_rows", "passes_columns", "passes_verdict"], || {
                rounded(name, &wide(selection))
            }),
            "overlap" => overlap(),
            "alignment" => alignment(),
            "odd_places" => odd_places(),
            _ => Err("no such test".into()),
        }
    }

    /// The variants that slide.
    const SLIDING: [Option<Variant>; 2] =
        [Some(Variant::DirectSliding), Some(Variant::SeparableFused)];

    /// Every variant except running sums, which take only means and have a test of their own. Then
    /// the plan's choice.
    fn every() -> Vec<Option<Variant>> {
        Variant::all()
            .filter(|&variant| variant != Variant::RunningSums)
            .map(Some)
            .chain([None])
            .collect()
    }

    fn check(
        name: &str,
        variants: &[Option<Variant>],
        way: Way,
        groups: &[Group],
    ) -> Result<(), Failed> {
        let (open, named): (Vec<_>, Vec<_>) = variants
            .iter()
            .map(|&variant| Stored { variant, way })
            .partition(|stored| stored.variant.is_none());
        suite::check(&format!("stored::{name}"), &named, groups)?;
        if open.is_empty() {
            return Ok(());
        }
        let known = |group: &Group| {
            let mut group = group.clone();
            group.problems.retain(|problem| is_known(&group.window, problem));
            group
        };
        suite::check(
            &format!("stored::{name}, chosen"),
            &open,
            &groups.iter().map(known).collect::<Vec<_>>(),
        )
    }

    /// Whether the test knows the order of sums of the plan's choice, or does not need it. Under a
    /// separable window the order may depend on how pixels are stored. Bytes made of bytes are the
    /// same in any order.
    fn is_known(window: &Window, problem: &Problem) -> bool {
        window.products().is_none() || (problem.input, problem.output) == (Kind::U8, Kind::U8)
    }

    /// Solves generated problems. The numbers in `turns` choose the `Way` and the two layouts.
    pub(crate) fn solve(
        products: &[Product],
        mut group: Group,
        turns: [usize; 3],
        tally: Tally,
    ) -> Tally {
        let way = [Way::Whole, Way::Parts, Way::Images, Way::Bands, Way::Batch][turns[0] % 5];
        group
            .problems
            .iter_mut()
            .for_each(|problem| problem.gaps = (turns[1] % LAYOUTS, turns[2] % LAYOUTS));
        let is_known = group.problems.iter().all(|problem| is_known(&group.window, problem));
        let variants = products
            .iter()
            .map(|product| product.variant)
            .filter(|variant| is_known || variant.is_some());
        let stored: Vec<_> = variants.map(|variant| Stored { variant, way }).collect();
        runner::run_into(tally, &stored, std::slice::from_ref(&group))
    }

    fn scalar(kind: Kind) -> Scalar {
        match kind {
            Kind::U8 => Scalar::U8,
            Kind::U16 => Scalar::U16,
            Kind::F16 => Scalar::F16,
            Kind::F32 => Scalar::F32,
        }
    }

    /// How many layouts there are.
    const LAYOUTS: usize = 15;

    /// The layouts for `rows` rows of `images` images of a shape, with values of `size` bytes.
    fn layouts(shape: Shape, rows: usize, images: usize, size: usize) -> [Layout; LAYOUTS] {
        let Shape { width, channels, .. } = shape;
        let planar = |name, start, [row, channel, image]: [usize; 3], backwards: &[usize]| {
            let order = [
                (PIXEL, width, row),
                (ROW, rows, channel),
                (CHANNEL, channels, image),
                (IMAGE, images, 0),
            ];
            Layout::new(name, start, order, backwards)
        };
        let interleaved = |name, lead, [pixel, row, image]: [usize; 3], backwards: &[usize]| {
            let order = [
                (CHANNEL, channels, pixel),
                (PIXEL, width, row),
                (ROW, rows, image),
                (IMAGE, images, 0),
            ];
            Layout::new(name, (lead, 1), order, backwards)
        };
        // Values to add to `values` so that their size is a multiple of `bytes`.
        let lacks =
            |values: usize, bytes: usize| (values * size).next_multiple_of(bytes) / size - values;
        let row = width * channels;
        let packed = interleaved("NHWC, up to the last byte", 0, [0, 0, 0], &[]);
        // Allocations are multiples of 128 bytes. With this lead the last value ends one of them.
        let lead = lacks(packed.len - 3, 128);
        [
            interleaved("NHWC, rows at multiples of 128 bytes", 0, [0, lacks(row, 128), 0], &[]),
            interleaved("NHWC, packed", 0, [0, 0, 0], &[]),
            planar("NCHW, rows at multiples of 128 bytes", (0, 1), [lacks(width, 128), 0, 0], &[]),
            interleaved("NHWC, a value off", 1, [0, lacks(row, 16), 0], &[]),
            interleaved(
                "NHWC, rows an odd number of values apart",
                0,
                [0, lacks(row, 128) + 1, 3],
                &[],
            ),
            planar("NCHW, packed", (0, 1), [0, 0, 0], &[]),
            interleaved("NHWC, rows backwards", 16, [0, lacks(row, 64), 0], &[ROW]),
            interleaved("NHWC, rows at multiples of 4 bytes", 4, [0, lacks(row, 4), 0], &[]),
            planar(
                "NCHW, rows an odd number of values apart",
                (3, 1),
                [lacks(width, 16) + 1, 1, 0],
                &[],
            ),
            Layout { first: lead, len: lead + packed.len - 3, ..packed },
            planar(
                "NCHW, rows and images backwards",
                (1, 1),
                [lacks(width, 16), 0, 4],
                &[ROW, IMAGE],
            ),
            interleaved("NHWC, a value between pixels", 0, [1, 3, 0], &[]),
            interleaved("NHWC, channels backwards", 2, [0, lacks(row, 16), 0], &[CHANNEL]),
            interleaved("NHWC, pixels backwards", 2, [0, lacks(row, 16), 5], &[PIXEL]),
            planar("NCHW, values between pixels", (5, 2), [3, 1, 2], &[]),
        ]
    }

    /// Values of a batch on the device, and their layout.
    struct Memory {
        bytes: DeviceImage,
        kind: Kind,
        size: usize,
        layout: Layout,
        shape: Shape,
        images: usize,
        there: Range<usize>,
    }

    impl Memory {
        /// Holds the bits that `value` returns for each image, channel, row and column.
        fn new<P: Sample>(
            gpu: &apron::gpu::Gpu,
            turn: usize,
            (shape, images): (Shape, usize),
            there: Range<usize>,
            value: impl Fn([usize; 4]) -> u32,
        ) -> apron::Result<Self> {
            let size = size_of::<P>();
            let layout = layouts(shape, there.len(), images, size)[turn % LAYOUTS];
            // The gaps hold NaN in float types, and the greatest value in integer types.
            let mut bytes = vec![0xff; size * layout.len];
            for place @ [image, channel, y, x] in places(shape, images, &there, &(0..shape.width)) {
                let at = layout.at([image, channel, y - there.start, x]);
                bytes[size * at..][..size].copy_from_slice(&value(place).to_le_bytes()[..size]);
            }
            let bytes = gpu.upload_stored(&ImageView::new(&bytes, bytes.len(), 1, 1)?)?;
            Ok(Self { bytes, kind: P::KIND, size, layout, shape, images, there })
        }

        fn raw(&self) -> (u64, (Scalar, Strides)) {
            let [image, channel, row, pixel] =
                self.layout.strides.map(|values| (self.size as isize * values) as i64);
            let address = self.bytes.address() + (self.size * self.layout.first) as u64;
            (address, (scalar(self.kind), Strides { row, pixel: pixel as i32, channel, image }))
        }

        fn view(&self) -> apron::Result<DeviceView<'_>> {
            let (address, kind) = self.raw();
            // SAFETY: all places of the layout lie in the memory, which the view borrows. Whoever
            // uses the view waits for the stream before the memory is freed.
            unsafe {
                DeviceView::from_raw(
                    self.bytes.gpu(),
                    address,
                    kind,
                    self.shape,
                    self.images,
                    self.there.clone(),
                )
            }
        }

        fn view_mut(&mut self) -> apron::Result<DeviceViewMut<'_>> {
            let (address, kind) = self.raw();
            // SAFETY: as in `view`. No two places of the layout coincide, and the view borrows the
            // memory exclusively.
            unsafe {
                DeviceViewMut::from_raw(
                    self.bytes.gpu(),
                    address,
                    kind,
                    self.shape,
                    self.images,
                    self.there.clone(),
                )
            }
        }

        fn download(&self) -> apron::Result<Vec<u8>> {
            Ok(self.bytes.gpu().download_stored::<u8>(&self.bytes)?.as_slice().to_vec())
        }

        /// Where the value of a place begins, in bytes.
        fn at(&self, [image, channel, y, x]: [usize; 4]) -> usize {
            self.size * self.layout.at([image, channel, y - self.there.start, x])
        }

        fn bits(&self, bytes: &[u8], place: [usize; 4]) -> u32 {
            let mut word = [0; 4];
            word[..self.size].copy_from_slice(&bytes[self.at(place)..][..self.size]);
            u32::from_le_bytes(word)
        }

        /// Fails if a byte outside the given part of each image changed.
        fn only_in(
            &self,
            before: &[u8],
            after: &[u8],
            columns: &Range<usize>,
            rows: &Range<usize>,
        ) -> apron::Result<()> {
            let mut rest = after.to_vec();
            for place in places(self.shape, self.images, rows, columns) {
                let at = self.at(place);
                rest[at..][..self.size].copy_from_slice(&before[at..][..self.size]);
            }
            match rest.iter().zip(before).position(|(after, before)| after != before) {
                None => Ok(()),
                Some(byte) => Err(wrong(format!(
                    "byte {byte} of {:?} was written, beside columns {columns:?} of rows {rows:?}",
                    self.layout
                ))),
            }
        }
    }

    /// Each image, channel, row and column.
    fn places(
        shape: Shape,
        images: usize,
        rows: &Range<usize>,
        columns: &Range<usize>,
    ) -> impl Iterator<Item = [usize; 4]> {
        let (rows, columns) = (rows.clone(), columns.clone());
        (0..images * shape.channels).flat_map(move |plane| {
            let columns = columns.clone();
            rows.clone().flat_map(move |y| {
                columns.clone().map(move |x| [plane / shape.channels, plane % shape.channels, y, x])
            })
        })
    }

    fn wrong(message: String) -> Error {
        Error::Driver { call: "filtering", message }
    }

    /// The pieces in which a picture is filtered.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Way {
        Whole,
        /// Between images whose layout the library chooses.
        Images,
        /// One rectangle after the other.
        Parts,
        /// One band of rows after the other. The source memory holds only the rows that the band
        /// needs, the destination only the band.
        Bands,
        /// As one of three images.
        Batch,
    }

    /// A variant, or the plan's choice, on stored pixels in device memory.
    #[derive(Clone, Copy, Debug)]
    struct Stored {
        variant: Option<Variant>,
        way: Way,
    }

    impl Stored {
        fn product(self) -> Product {
            Product { variant: self.variant, device: Gpu::DEVICE }
        }
    }

    impl Implementation for Stored {
        type Ready = Waiting;

        fn name(&self) -> String {
            format!("{}, {:?}", self.product().name(), self.way)
        }

        fn must_take(&self, window: &Window, border: Border) -> bool {
            self.product().must_take(window, border)
        }

        fn prepare(&self, window: &Window, border: Border) -> apron::Result<Waiting> {
            let instead = match self.variant {
                Some(Variant::DirectSliding | Variant::Matrix) => Some(Variant::DirectNaive),
                Some(
                    Variant::SeparableFused
                    | Variant::SeparableMatrix
                    | Variant::RunningSums
                    | Variant::SpectraPasses,
                ) => Some(Variant::Separable),
                _ => None,
            };
            let instead =
                instead.map(|variant| Product { variant: Some(variant), device: Gpu::DEVICE });
            Ok(Waiting {
                plan: self.product().prepare(window, border)?,
                instead: instead.map(|product| product.prepare(window, border)).transpose()?,
                window: window.clone(),
                border,
                stored: *self,
                gpu: apron::gpu::Gpu::open(0)?,
            })
        }
    }

    /// The prepared form of [`Stored`].
    struct Waiting {
        plan: Plan,
        /// A variant with the same order of sums, for pictures that `plan` may decline.
        instead: Option<Plan>,
        window: Window,
        border: Border,
        stored: Stored,
        gpu: apron::gpu::Gpu,
    }

    impl Ready for Waiting {
        fn order(&self, shape: Shape) -> apron::Result<Option<Order>> {
            let family = self.plan.variant_for(shape)?.family();
            // See `is_known`.
            let open = self.stored.variant.is_none() && self.window.products().is_some();
            Ok(if open { None } else { Order::of(family) })
        }

        fn is_of_range(&self, shape: Shape) -> bool {
            self.plan.is_of_range(shape)
        }

        fn run<S: Sample, D: Sample>(
            &self,
            shape: Shape,
            src: Source<'_, S>,
            dst: Target<'_, D>,
        ) -> apron::Result<()> {
            let Shape { width, height, channels } = shape;
            if self.stored.way == Way::Images {
                return self.between_images(shape, src, dst);
            }
            let turns = (src.stride - shape.row_len(), dst.stride - shape.row_len());
            let images = if self.stored.way == Way::Batch { 3 } else { 1 };
            let number = (turns.0 + turns.1) % images;
            let bands = if self.stored.way == Way::Bands {
                cut(height, 3)
            } else {
                std::iter::once(0..height).collect()
            };
            let mut stream = self.gpu.stream()?;
            for band in bands {
                let there = match self.stored.way {
                    Way::Bands => needed(&self.window, self.border, &band, height),
                    _ => 0..height,
                };
                // The other images hold the picture rotated by 180 degrees.
                let from = Memory::new::<S>(
                    &self.gpu,
                    turns.0,
                    (shape, images),
                    there,
                    |[image, channel, y, x]| {
                        let (x, y) =
                            if image == number { (x, y) } else { (width - 1 - x, height - 1 - y) };
                        src.data[y * src.stride + x * channels + channel].bits()
                    },
                )?;
                let at = |y: usize, x: usize, channel: usize| {
                    dst.start + y * dst.stride + x * channels + channel
                };
                let mut to = Memory::new::<D>(
                    &self.gpu,
                    turns.1,
                    (shape, images),
                    band.clone(),
                    |[image, channel, y, x]| {
                        if image == number {
                            dst.buffer[at(y, x, channel)].bits()
                        } else {
                            D::POISON.bits()
                        }
                    },
                )?;
                let parts = match self.stored.way {
                    Way::Parts => cut(height, 2)
                        .into_iter()
                        .flat_map(|rows| {
                            cut(width, 3).into_iter().map(move |columns| (columns, rows.clone()))
                        })
                        .collect(),
                    _ => vec![(0..width, band.clone())],
                };
                let mut found = to.download()?;
                for (columns, rows) in parts {
                    let before = found;
                    self.filter(&from, &mut to, (&columns, &rows), &mut stream)?;
                    stream.synchronize()?;
                    found = to.download()?;
                    to.only_in(&before, &found, &columns, &rows)?;
                }
                for [_, channel, y, x] in places(shape, 1, &band, &(0..width)) {
                    let of = |image: usize| D::of_bits(to.bits(&found, [image, channel, y, x]));
                    dst.buffer[at(y, x, channel)] = of(number);
                    if images == 3 && !of((number + 1) % 3).same(of((number + 2) % 3)) {
                        let place = format!("({x}, {y}), channel {channel}");
                        return Err(wrong(format!(
                            "two images of a batch of three are the same, but not at {place}"
                        )));
                    }
                }
            }
            Ok(())
        }
    }

    impl Waiting {
        /// Whether the variant may decline pictures of this type and number of channels.
        fn may_decline(&self, source: Kind, channels: usize) -> bool {
            source == Kind::F32
                || channels > 4
                || self.stored.variant.is_some_and(Variant::takes_only_bytes)
        }

        /// Filters a part of all images.
        fn filter(
            &self,
            from: &Memory,
            to: &mut Memory,
            (columns, rows): (&Range<usize>, &Range<usize>),
            stream: &mut Stream,
        ) -> apron::Result<()> {
            let mut run = |plan: &Plan| {
                plan.run_region(
                    &from.view()?,
                    &mut to.view_mut()?,
                    columns.clone(),
                    rows.clone(),
                    stream,
                )
            };
            let may_decline = self.may_decline(from.kind, from.shape.channels);
            match (run(&self.plan), &self.instead) {
                (Err(Error::Unsupported { .. }), Some(instead)) if may_decline => run(instead),
                (outcome, _) => outcome,
            }
        }

        fn between_images<S: Sample, D: Sample>(
            &self,
            shape: Shape,
            src: Source<'_, S>,
            dst: Target<'_, D>,
        ) -> apron::Result<()> {
            const FILL: f32 = 165.0;
            let Shape { width, height, channels } = shape;
            let mut stream = self.gpu.stream()?;
            let from = self.gpu.upload_stored(&ImageView::with_stride(
                src.data, width, height, channels, src.stride,
            )?)?;
            let mut to = self.gpu.image_of(shape, scalar(D::KIND), apron::Layout::Interleaved)?;
            to.fill(FILL, &stream)?;
            let may_decline = self.may_decline(S::KIND, channels);
            match (self.plan.run_on_device(&from, &mut to, &mut stream), &self.instead) {
                (Err(Error::Unsupported { .. }), Some(instead)) if may_decline => {
                    instead.run_on_device(&from, &mut to, &mut stream)?;
                }
                (outcome, _) => outcome?,
            }
            stream.synchronize()?;
            if let Some(place) = self.gpu.spoilt_padding(&to, FILL)? {
                return Err(wrong(format!(
                    "it wrote outside the image: channel, row, value {place:?}"
                )));
            }
            let found = self.gpu.download_stored::<D>(&to)?;
            for (y, row) in found.as_slice().chunks(shape.row_len()).enumerate() {
                dst.buffer[dst.start + y * dst.stride..][..row.len()].copy_from_slice(row);
            }
            Ok(())
        }
    }

    /// Up to `count` ranges that make up `0..extent` and meet at odd places.
    fn cut(extent: usize, count: usize) -> Vec<Range<usize>> {
        let mut ends: Vec<_> =
            (1..count).map(|i| (extent * i / count) | 1).filter(|&end| end < extent).collect();
        ends.dedup();
        ends.push(extent);
        let mut start = 0;
        ends.into_iter().map(|end| std::mem::replace(&mut start, end)..end).collect()
    }

    /// Types of source and destination: `turn` goes through every pair.
    fn kinds(turn: usize) -> (Kind, Kind) {
        // Bytes to bytes more often.
        match turn % 20 {
            16.. => (Kind::U8, Kind::U8),
            turn => (Kind::ALL[turn % 4], Kind::ALL[turn / 4]),
        }
    }

    /// Windows for every kernel of stored pixels and for the general kernels.
    fn windows() -> Vec<Window> {
        vec![
            Window::blur(3, 3, 1),
            Window::blur_pair(5, 5, 2).anchored(2, 0),
            Window::blur(5, 4, 3).anchored(0, 3),
            Window::random(9, 9, 4).anchored(4, 8),
            Window::blur_pair(7, 7, 5),
            Window::blur(17, 17, 6),
            Window::blur_pair(23, 23, 7),
            Window::blur_pair(2, 30, 8).anchored(1, 20),
        ]
    }

    /// Widths around the ends of strips, pictures smaller than a window, and tall pictures.
    const SIZES: [(usize, usize); 17] = [
        (1, 1),
        (3, 2),
        (127, 5),
        (128, 4),
        (129, 6),
        (255, 3),
        (256, 5),
        (257, 4),
        (131, 37),
        (5, 1),
        (2, 90),
        (520, 3),
        (16, 16),
        (41, 23),
        (126, 2),
        (254, 3),
        (258, 2),
    ];

    /// Every window under every border.
    fn every_layout(selection: Selection) -> Vec<Group> {
        around(selection, 60, (windows(), &BORDERS), 40, 113)
    }

    /// The same windows and borders with fewer problems.
    fn thin(selection: Selection, list: u64) -> Vec<Group> {
        around(selection, list, (windows(), &BORDERS), 10, 53)
    }

    /// Border constants that no byte equals.
    fn constants(selection: Selection) -> Vec<Group> {
        let borders = [-3.5, 300.25, f64::NAN, 1e9, f64::INFINITY, 255.5].map(Border::Constant);
        let windows = windows().into_iter().filter(|window| window.rows != 23).collect();
        around(selection, 65, (windows, &borders), 10, 53)
    }

    /// `count` problems for each window under each border. Types, channels, sizes and layouts
    /// cycle. A small selection keeps one problem in `keep_one_in`, which is coprime to the lengths
    /// of these cycles.
    fn around(
        selection: Selection,
        list: u64,
        (windows, borders): (Vec<Window>, &[Border]),
        count: usize,
        keep_one_in: usize,
    ) -> Vec<Group> {
        let mut groups = Vec::new();
        let mut number = list as usize;
        for window in windows {
            for &border in borders {
                let problem = |turn: usize| {
                    let (width, height) = SIZES[turn % SIZES.len()];
                    let (input, output) = kinds(turn * 7);
                    let problem =
                        Problem::new(width, height, seed(list, turn)).stored(input, output);
                    let data = if turn.is_multiple_of(11) { Data::Extremes } else { Data::Random };
                    problem
                        .channels(1 + turn % 5)
                        .gaps(turn * 4 % LAYOUTS, (turn * 7 + 3) % LAYOUTS)
                        .data(data)
                };
                let problems =
                    selection.cut(keep_one_in, (number..number + count).map(problem), number);
                number += count;
                groups.push(Group { window: window.clone(), border, problems });
            }
        }
        groups
    }

    /// Pictures that end near the end of a strip, across and down, mostly in layouts that kernels
    /// copy by vectors.
    fn strips(selection: Selection) -> Vec<Group> {
        const USUAL: [usize; 7] = [0, 1, 0, 3, 4, 0, 9];
        let windows = [
            Window::blur(3, 3, 11),
            Window::blur(5, 5, 12).anchored(2, 4),
            Window::blur(9, 9, 13),
            Window::blur_pair(3, 3, 14),
            Window::blur_pair(7, 7, 15).anchored(3, 0),
            Window::blur_pair(17, 17, 16),
            Window::blur_pair(25, 25, 17),
        ];
        let ends = [64, 128, 256, 512].into_iter().flat_map(|end| end - 3..end + 4);
        let wide = ends.enumerate().map(|(i, width)| (width, 1 + i % 4));
        let sizes: Vec<_> =
            wide.chain([(20, 31), (20, 64), (21, 65), (20, 127), (22, 131), (7, 300)]).collect();
        let mut groups = Vec::new();
        let mut number = 0;
        for (w, window) in windows.into_iter().enumerate() {
            for border in [BORDERS[w % 6], BORDERS[(w + 2) % 6]] {
                let problem = |turn: usize| {
                    let (width, height) = sizes[turn % sizes.len()];
                    let input = [Kind::U8, Kind::U16, Kind::U8, Kind::F16][turn % 4];
                    // Equal types of source and destination have entries of their own.
                    let output = match turn % 3 {
                        0 => input,
                        _ => [Kind::U8, Kind::U8, Kind::F32, Kind::U16, Kind::F16][turn % 5],
                    };
                    let problem = Problem::new(width, height, seed(66, turn)).stored(input, output);
                    // The number of channels and the source type cycle with different periods.
                    problem
                        .channels(1 + (turn + turn / 4) % 4)
                        .gaps(USUAL[turn % 7], USUAL[(turn + 2) % 7])
                };
                let problems = selection.cut(61, (number..number + 72).map(problem), number);
                number += 72;
                groups.push(Group { window: window.clone(), border, problems });
            }
        }
        groups
    }

    /// Windows for each case of the tensor-core kernels: taps of one, two and three digits; one
    /// half of 16 bytes, many, and an odd number of them; rows of shared memory of both widths;
    /// anchors at each byte of a word.
    fn of_matrices() -> Vec<Window> {
        let quarters = [0.25, -0.5, 0.75, 1.25, 0.5, -1.75, 2.25, 0.5, -0.75];
        let tiny: Vec<f32> = (0..15).map(|i| 1.3e-9 * (i as f32 - 6.5)).collect();
        vec![
            Window::blur(3, 3, 401),
            Window::preset("sobel-x:size=5"),
            Window::dense("a half", 1, 1, &[0.5]),
            Window::dense("quarters", 3, 3, &quarters),
            Window::blur(5, 5, 402),
            Window::dense("thousands", 5, 3, &[1000.0, -999.0, 0.5, 17.25, -18.0].repeat(3)),
            Window::blur(7, 7, 403),
            Window::preset("box:size=9"),
            Window::blur(9, 9, 404).anchored(0, 8),
            Window::random(13, 11, 405).anchored(5, 0),
            Window::blur(17, 17, 406),
            Window::blur_pair(17, 16, 407).anchored(15, 3),
            Window::blur(25, 25, 408),
            Window::blur(33, 33, 409),
            Window::blur(40, 3, 410).anchored(39, 1),
            Window::blur(2, 90, 411).anchored(1, 0),
            Window::preset("sharpen"),
            Window::dense("nothing", 2, 2, &[0.0; 4]),
            Window::dense("tiny", 5, 3, &tiny),
            Window::dense("large", 3, 3, &quarters.map(|tap| tap * 777.7)),
            Window::blur(1, 19, 412),
            Window::dense("long binary fractions", 2, 2, &[0.333_333_34, 0.166_666_67, 0.25, 0.25]),
        ]
    }

    /// The same for a row and a column of taps: two, three, five and seven blocks of 16 rows, with
    /// the last block full or with one row; one step and many along a row; a filter that is a
    /// product within its tolerance.
    fn of_pairs() -> Vec<Window> {
        vec![
            Window::blur_pair(3, 3, 421),
            Window::preset("gaussian:sigma=2"),
            Window::blur_pair(17, 17, 422),
            Window::blur_pair(1, 18, 423),
            Window::blur_pair(18, 1, 424).anchored(17, 0),
            Window::random_pair(5, 9, 425),
            Window::preset("gaussian:sigma=0.7"),
            Window::blur_pair(33, 33, 426).anchored(0, 32),
            Window::blur_pair(2, 34, 427),
            Window::blur_pair(40, 65, 428).anchored(39, 1),
            Window::preset("box:cols=7,rows=66"),
            Window::preset("box:size=10"),
            Window::blur_pair(97, 97, 429),
            Window::blur_pair(2, 301, 432).anchored(1, 300),
            Window::blur_pair(101, 13, 433),
            Window::blur_pair(81, 5, 434).anchored(0, 4),
            Window::preset("gaussian:sigma=8"),
            Window::random_pair(16, 16, 430).anchored(3, 15),
            Window::blur_pair(1, 1, 431),
            Window::preset("taps:0.125 -0.25 0.7"),
            Window::preset("unsharp:sigma=2"),
            Window::preset("unsharp:sigma=0.8,amount=-2.25"),
            Window::preset("unsharp:sigma=7,amount=0.3"),
            Window::preset("unsharp:sigma=12"),
            // Two products: one block of rows and several, even and odd numbers of steps.
            Window::preset("log:sigma=1.5"),
            Window::preset("dog:sigma=2"),
            Window::preset("log:sigma=5"),
            Window::preset("dog:sigma=1,wider=12"),
        ]
    }

    /// Filters that are sums of products, on every type. Exact passes make bytes of bytes.
    fn sums(name: &str, selection: Selection) -> Result<(), Failed> {
        let windows =
            ["unsharp:sigma=2", "log:sigma=1.5", "unsharp:sigma=9", "dog:sigma=1,wider=9"]
                .map(Window::preset);
        let groups = around(selection, 70, (windows.into(), &BORDERS), 12, 31);
        for way in [Way::Whole, Way::Parts, Way::Bands, Way::Batch] {
            check(name, &[Some(Variant::Separable)], way, &groups)?;
        }
        Ok(())
    }

    /// Means of pictures with two values, where one result in eight is a tie.
    fn frequent_ties(name: &str, selection: Selection) -> Result<(), Failed> {
        let sizes: &[(usize, usize)] =
            if selection == Selection::Full { &[(720, 500), (1900, 1100)] } else { &[(720, 500)] };
        let problem = |(i, &(width, height)): (usize, &(usize, usize))| {
            Problem::new(width, height, seed(72, i)).stored(Kind::U8, Kind::U8).data(Data::Extremes)
        };
        let problems = sizes.iter().enumerate().map(problem).collect();
        let window = Window::preset("box:cols=12,rows=10").anchored(0, 9);
        check(
            name,
            &[None, Some(Variant::DirectNaive)],
            Way::Whole,
            &[Group { window, border: Border::Wrap, problems }],
        )
    }

    /// 1-D spectra: windows of one part and of several, from one tap on, and pictures of several
    /// tiles.
    fn spectra_passes(name: &str, selection: Selection) -> Result<(), Failed> {
        let windows = vec![
            Window::blur_pair(33, 33, 461).anchored(0, 32),
            Window::preset("gaussian:sigma=8"),
            Window::blur_pair(1, 1, 462),
            Window::blur_pair(300, 1, 463).anchored(299, 0),
            Window::preset("box:cols=1,rows=70"),
            Window::random_pair(6, 11, 464).anchored(3, 10),
            Window::preset("gaussian:sigma-x=40,sigma-y=3"),
            Window::blur_pair(2, 2201, 465).anchored(1, 2200),
            Window::blur_pair(3301, 3, 466).anchored(17, 0),
            Window::blur_pair(5003, 2, 467),
            Window::preset("unsharp:sigma=7,amount=0.3"),
            Window::preset("log:sigma=5"),
            Window::preset("dog:sigma=2"),
        ];
        bytes_alone(name, selection, Variant::SpectraPasses, windows)?;
        // A tile has 992 results for 33 taps, and 1148 or more for 901 taps.
        let problem = |width, height, turn| {
            let problem = Problem::new(width, height, seed(68, turn)).stored(Kind::U8, Kind::U8);
            problem.channels([1, 3, 1, 2][turn % 4]).gaps(turn % LAYOUTS, turn / 2 % LAYOUTS)
        };
        let group = |window, border, problem| Group { window, border, problems: vec![problem] };
        let large = [
            group(Window::blur_pair(33, 3, 468), BORDERS[1], problem(2003, 7, 0)),
            group(Window::blur_pair(5, 33, 469), BORDERS[3], problem(9, 2003, 1)),
            group(Window::blur_pair(901, 2, 470), BORDERS[4], problem(2603, 5, 2)),
            group(Window::blur_pair(2, 901, 471), BORDERS[5], problem(7, 2603, 3)),
        ];
        let ways = match selection {
            Selection::Full => &[Way::Whole, Way::Parts, Way::Bands][..],
            _ => &[Way::Bands],
        };
        ways.iter().try_for_each(|&way| check(name, &[Some(Variant::SpectraPasses)], way, &large))
    }

    /// Windows for running sums: of a warp and of several, with ties and without.
    fn means() -> Vec<Window> {
        vec![
            Window::preset("box:size=2"),
            Window::preset("box:size=3"),
            Window::preset("box:size=6"),
            Window::preset("box:cols=5,rows=4").anchored(0, 3),
            Window::preset("box:cols=12,rows=10").anchored(11, 0),
            Window::preset("box:cols=20,rows=21"),
            Window::preset("box:cols=1,rows=8"),
            Window::preset("box:cols=8,rows=1"),
            Window::preset("box:cols=37,rows=48"),
            Window::preset("box:size=49"),
            Window::preset("box:cols=66,rows=7").anchored(65, 3),
            Window::preset("box:size=101"),
            Window::preset("box:cols=128,rows=2").anchored(3, 0),
            Window::preset("box:cols=250,rows=3"),
            Window::preset("box:cols=2,rows=301").anchored(1, 300),
            Window::preset("box:cols=130,rows=66"),
            Window::preset("box:cols=40,rows=30"),
            Window::preset("box:cols=64,rows=62").anchored(63, 0),
        ]
    }

    /// Bytes to bytes by kernels that make nothing else. Pictures around the size of a tile go
    /// whole, in parts, in bands and in batches, some with copied channels. Fails if the variant's
    /// kernels were not launched.
    fn bytes_alone(
        name: &str,
        selection: Selection,
        variant: Variant,
        windows: Vec<Window>,
    ) -> Result<(), Failed> {
        const SIZES: [(usize, usize); 9] = [
            (131, 97),
            (1, 1),
            (64, 193),
            (128, 96),
            (300, 20),
            (127, 95),
            (5, 200),
            (129, 98),
            (43, 7),
        ];
        const CONSTANT: [Border; 2] = [Border::Constant(0.0), Border::Constant(255.0)];
        // Layouts that allow whole vectors are more frequent than the others.
        const USUAL: [usize; 9] = [0, 2, 0, 1, 0, 6, 3, 0, 11];
        // Constants of 0 and 255 replace the first border.
        let borders: Vec<_> = BORDERS.into_iter().skip(1).chain(CONSTANT).collect();
        let keep_one_in = if selection == Selection::Full { 1 } else { 9 };
        let mut number = 0;
        let mut ways = [const { Vec::new() }; 4];
        for (w, window) in windows.into_iter().enumerate() {
            // The most channels for which rows of shared memory have room.
            let most = match variant {
                Variant::RunningSums | Variant::SpectraPasses => 4,
                _ => (128 / window.cols).min(4),
            };
            for (b, &border) in borders.iter().enumerate() {
                let problem = |turn: usize| {
                    let (width, height) = SIZES[turn % SIZES.len()];
                    let problem =
                        Problem::new(width, height, seed(69, turn)).stored(Kind::U8, Kind::U8);
                    let data = if turn.is_multiple_of(7) { Data::Extremes } else { Data::Random };
                    problem
                        .channels(1 + turn % most)
                        .gaps(USUAL[turn % 9], USUAL[(turn / 2 + 4) % 9])
                        .data(data)
                };
                number += 1;
                if (w + b) % keep_one_in == 0 {
                    let problems = (2 * number..2 * number + 2).map(problem).collect();
                    ways[(w + b / 2) % 4].push(Group { window: window.clone(), border, problems });
                }
            }
        }
        let prefix = match variant {
            Variant::SpectraPasses => "spectra_".to_owned(),
            _ => format!("{}_", variant.name().replace('-', "_")),
        };
        launching(&[&prefix], || {
            check_all(name, &[Some(variant)], &ways)?;
            let [.., mut groups] = ways;
            // Keep the windows that leave room for a second channel, the one to copy.
            groups.retain(|group| group.window.cols <= 64);
            for (i, group) in groups.iter_mut().enumerate() {
                let most = (128 / group.window.cols).min(4);
                for (n, problem) in group.problems.iter_mut().enumerate() {
                    problem.shape.channels = [4, 2, 4, 3][(2 * i + n) % 4].min(most);
                }
            }
            suite::check(&format!("{name}, alpha"), &[Alpha(variant)], &groups)
        })
    }

    /// Checks the groups of each way.
    fn check_all(
        name: &str,
        variants: &[Option<Variant>],
        ways: &[Vec<Group>; 4],
    ) -> Result<(), Failed> {
        let kinds = [Way::Whole, Way::Parts, Way::Bands, Way::Batch];
        kinds.into_iter().zip(ways).try_for_each(|(way, groups)| check(name, variants, way, groups))
    }

    /// Runs the checks, and fails unless they launch each of these entries. A name that ends with
    /// `_` stands for all entries with that prefix.
    fn launching(
        entries: &[&str],
        checks: impl FnOnce() -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let launched = |name: &str| -> apron::Result<u64> {
            let is_meant =
                |entry: &str| entry == name || name.ends_with('_') && entry.starts_with(name);
            let launches = apron::gpu::Gpu::open(0)?.launches().into_iter();
            Ok(launches.filter(|(entry, _)| is_meant(entry)).map(|(_, count)| count).sum())
        };
        let before =
            entries.iter().map(|name| launched(name)).collect::<apron::Result<Vec<_>>>()?;
        checks()?;
        for (name, before) in entries.iter().zip(before) {
            if launched(name)? == before {
                return Err(format!("{name} was not launched").into());
            }
        }
        Ok(())
    }

    /// Bytes by spectra under large windows. Their taps' magnitudes have so large a sum that many
    /// results are uncertain.
    fn padded(name: &str, selection: Selection) -> Result<(), Failed> {
        const SIZES: [(usize, usize); 5] = [(90, 70), (131, 97), (64, 193), (300, 40), (97, 131)];
        const WINDOWS: [(usize, usize, usize, usize); 5] =
            [(24, 24, 11, 13), (33, 18, 0, 17), (25, 23, 24, 0), (48, 30, 20, 7), (130, 9, 64, 4)];
        let window = |&(cols, rows, x, y): &(usize, usize, usize, usize)| {
            Window::random_of_weight(cols, rows, 28.0, seed(70, cols)).anchored(x, y)
        };
        let borders: Vec<_> =
            BORDERS.into_iter().chain([Border::Constant(0.0), Border::Constant(255.0)]).collect();
        let keep_one_in = if selection == Selection::Full { 1 } else { 9 };
        let (mut ways, mut number) = ([const { Vec::new() }; 4], 0);
        // The centre tap of the last window outweighs all others, and the spectra leave it out.
        let windows =
            WINDOWS.iter().map(window).chain([Window::preset("unsharp:sigma=12,amount=20")]);
        for (w, window) in windows.enumerate() {
            for (b, &border) in
                borders.iter().enumerate().filter(|(b, _)| (w + w / 5 + b) % keep_one_in == 0)
            {
                let turn = 3 * w + b;
                let (width, height) =
                    if w < WINDOWS.len() { SIZES[turn % SIZES.len()] } else { (260, 180) };
                let problem =
                    Problem::new(width, height, seed(71, turn)).stored(Kind::U8, Kind::U8);
                let data = [Data::Extremes, Data::Random, Data::Repeated, Data::Repeated][turn % 4];
                let problem = problem
                    .channels(1 + (w + 2 * b) % 4)
                    .gaps([0, 2, 5, 0][turn % 4], turn % 3)
                    .data(data);
                ways[number % 4].push(Group {
                    window: window.clone(),
                    border,
                    problems: vec![problem],
                });
                number += 1;
            }
        }
        // A larger window over rows that repeat: of two results of the same pixels, spectra may
        // leave only one uncertain.
        let problem =
            Problem::new(250, 300, seed(71, 99)).stored(Kind::U8, Kind::U8).data(Data::Repeated);
        let window = Window::random_of_weight(182, 181, 28.0, seed(70, 182)).anchored(13, 150);
        ways[0].push(Group { window, border: Border::Replicate, problems: vec![problem] });
        // Rows repeat under these windows, and many results are uncertain.
        let borders = [Border::Replicate, Border::Keep, Border::Constant(9.0), Border::Wrap];
        for (way, border) in borders.into_iter().enumerate() {
            let problem = Problem::new(170, 210, seed(71, 100 + way))
                .stored(Kind::U8, Kind::U8)
                .data(Data::Repeated);
            let window = Window::random_of_weight(99, 24, 100.0, seed(70, 183 + way))
                .anchored(40, [0, 12, 23, 5][way]);
            ways[way].push(Group {
                window,
                border,
                problems: vec![problem.channels([3, 1, 2, 4][way])],
            });
        }
        // Without room for tiles of 128, integer passes make the last window's bytes.
        let has_room = apron::gpu::Gpu::open(0)?.info().shared_memory > 64 << 10;
        let resolving = ["resolve_table", "resolve_products"];
        launching(&resolving[..1 + usize::from(has_room)], || {
            check_all(name, &[Some(Variant::Fourier)], &ways)
        })
    }

    /// Bytes that estimates leave uncertain, in every layout: the kernels that resolve them, and
    /// running sums, which resolve them in place.
    fn resolved(name: &str, selection: Selection) -> Result<(), Failed> {
        let binomial = [1.0, 6.0, 15.0, 20.0, 15.0, 6.0, 1.0].map(|tap: f32| tap / 64.0);
        let half = |size: usize| {
            Window::dense("half a mean", size, size, &vec![0.5 / (size * size) as f32; size * size])
        };
        let constants = [Border::Constant(255.0), Border::Constant(9.0)];
        let windows = [
            // Few taps.
            (Window::blur(5, 4, 81), BORDERS[1]),
            (Window::blur(24, 22, 82), constants[0]),
            // Ties.
            (Window::pair("binomial", &binomial, &binomial), BORDERS[2]),
            (Window::pair("binomial", &binomial, &binomial).anchored(6, 0), constants[0]),
            (half(6), constants[1]),
            (half(17), constants[0]),
            (half(16), BORDERS[4]),
            (Window::preset("box:cols=40,rows=30").anchored(39, 0), BORDERS[5]),
            // Many taps.
            (Window::random_of_weight(40, 34, 28.0, 83), constants[1]),
            (Window::random_of_weight(24, 24, 28.0, 84).anchored(0, 20), BORDERS[3]),
            // A product that no table holds exactly.
            (Window::preset("gaussian:sigma=1"), BORDERS[3]),
            // Resolved in place, by the near and the far entries.
            (Window::preset("box:size=6"), BORDERS[2]),
            (Window::preset("box:cols=12,rows=10").anchored(11, 0), BORDERS[4]),
            (Window::preset("box:cols=66,rows=7").anchored(0, 6), BORDERS[3]),
        ];
        const SIZES: [(usize, usize); 4] = [(131, 67), (64, 70), (43, 37), (97, 60)];
        let mut ways = [const { Vec::new() }; 4];
        let mut number = 0;
        for (window, border) in windows {
            let problem = |turn: usize| {
                let (width, height) = SIZES[turn % SIZES.len()];
                let data = [Data::Random, Data::Extremes, Data::Repeated][turn % 3];
                let problem = Problem::new(width, height, seed(72, turn))
                    .stored(Kind::U8, Kind::U8)
                    .data(data);
                problem.channels(1 + turn % 5).gaps(turn % LAYOUTS, (turn * 7 + 3) % LAYOUTS)
            };
            for way in &mut ways {
                let problems = selection.cut(16, (number..number + LAYOUTS).map(problem), number);
                way.push(Group { window: window.clone(), border, problems });
                number += LAYOUTS + 1;
            }
        }
        // About half of the sums end in a half.
        let mut halves = [0.0; 100];
        for (at, tap) in [(3, 0.5), (27, 0.5), (61, -0.5), (98, 0.5)] {
            halves[at] = tap;
        }
        let window = Window::dense("halves", 10, 10, &halves).anchored(9, 2);
        let problem = |turn: usize| {
            let problem =
                Problem::new(320, 120, seed(72, turn)).stored(Kind::U8, Kind::U8).channels(3);
            problem.gaps((turn + 13) % LAYOUTS, turn)
        };
        let problems = selection.cut(20, (0..LAYOUTS).map(problem), 0);
        ways[0].push(Group { window, border: Border::Reflect, problems });
        let entries =
            ["resolve_table", "resolve_products", "running_sums_near_", "running_sums_far_"];
        let variants =
            [Variant::DirectShared, Variant::Fourier, Variant::Separable, Variant::RunningSums];
        let variants: Vec<_> = variants.into_iter().map(Some).chain([None]).collect();
        launching(&entries, || check_all(name, &variants, &ways))
    }

    /// Copies the last channels of a picture in host memory, and filters the others.
    #[derive(Clone, Copy, Debug)]
    struct Alpha(Variant);

    impl Alpha {
        fn product(self) -> Product {
            Product { variant: Some(self.0), device: Gpu::DEVICE }
        }
    }

    impl Implementation for Alpha {
        type Ready = Opaque;

        fn name(&self) -> String {
            format!("{}, alpha copied", self.product().name())
        }

        fn must_take(&self, window: &Window, border: Border) -> bool {
            self.product().must_take(window, border)
        }

        fn prepare(&self, window: &Window, border: Border) -> apron::Result<Opaque> {
            Ok(Opaque(self.product().prepare(window, border)?))
        }
    }

    /// The prepared form of [`Alpha`].
    struct Opaque(Plan);

    impl Ready for Opaque {
        fn order(&self, shape: Shape) -> apron::Result<Option<Order>> {
            self.0.order(shape)
        }

        fn is_of_range(&self, shape: Shape) -> bool {
            self.0.is_of_range(shape)
        }

        /// Filters all channels, then again with some of them copied. The copies must equal the
        /// source. The second run's filtered channels replace those of the first.
        fn run<S: Sample, D: Sample>(
            &self,
            shape: Shape,
            src: Source<'_, S>,
            dst: Target<'_, D>,
        ) -> apron::Result<()> {
            let Shape { width, height, channels } = shape;
            let Target { buffer, start, stride } = dst;
            Ready::run(&self.0, shape, src, Target { buffer: &mut *buffer, start, stride })?;
            let filtered = 1 + (src.stride + stride) % (channels - 1);
            let rows = stride * height;
            let mut found = vec![D::POISON; rows];
            let picture = ImageView::with_stride(src.data, width, height, channels, src.stride)?;
            let mut target =
                ImageViewMut::with_stride(&mut found, width, height, channels, stride)?;
            self.0.run_channels(&picture, &mut target, filtered)?;
            for (at, &value) in found.iter().enumerate() {
                let (y, x, channel) = (at / stride, at % stride / channels, at % stride % channels);
                if x >= width || channel < filtered {
                    buffer[start + at] = value;
                    continue;
                }
                let right = D::nearest(src.data[y * src.stride + x * channels + channel].value());
                if !value.same(right) {
                    return Err(wrong(format!(
                        "channel {channel} of ({x}, {y}) is {value:?}, not a copy: {right:?}"
                    )));
                }
            }
            Ok(())
        }
    }

    /// Two to four channels, the last of which are alpha.
    fn alpha(selection: Selection) -> Result<(), Failed> {
        let implementations: Vec<_> =
            product::variants(Gpu::DEVICE).into_iter().map(Alpha).collect();
        let mut groups = thin(selection, 67);
        for (i, problem) in groups.iter_mut().flat_map(|group| &mut group.problems).enumerate() {
            problem.shape.channels = [4, 2, 4, 3][i % 4];
        }
        suite::check("stored::alpha", &implementations, &groups)
    }

    /// The content of a picture of bytes.
    #[derive(Clone, Copy, Debug)]
    enum Look {
        Random,
        /// One value everywhere.
        Flat(u8),
        Gradient,
        /// The least and the greatest value only.
        Saturated,
        /// The same two in squares with sides of this many pixels: results of wide windows are
        /// uncertain everywhere.
        Checker(usize),
    }

    impl Look {
        fn picture(self, Shape { width, height, channels }: Shape, seed: u64) -> Vec<u8> {
            let mut rng = Rng::with_seed(seed);
            let mut value = |i: usize| match self {
                Self::Random => rng.u8(..),
                Self::Flat(value) => value,
                Self::Gradient => {
                    (i / channels % width + i / channels / width + 85 * (i % channels)) as u8
                }
                Self::Saturated => [0, 255][rng.usize(0..2)],
                Self::Checker(size) => [0, 255][(i / channels % width / size
                    + i / channels / width / size
                    + i % channels)
                    % 2],
            };
            (0..width * height * channels).map(&mut value).collect()
        }
    }

    /// Pictures of bytes that go through one stream one after the other, with each of the variants.
    #[derive(Clone, Debug)]
    struct Bytes {
        window: Window,
        border: Border,
        shape: Shape,
        looks: [Look; 2],
        variants: Vec<Option<Variant>>,
    }

    impl Bytes {
        fn right(&self, picture: &[u8]) -> Vec<u8> {
            oracle::bytes_of_image(picture, self.shape, &self.window.whole(), self.border)
        }

        fn same(&self, what: &str, look: Look, found: &[u8], right: &[u8]) -> Result<(), String> {
            let Some(at) = found.iter().zip(right).position(|(found, right)| found != right) else {
                return Ok(());
            };
            let Shape { width, channels, .. } = self.shape;
            let (x, y, channel) = (at / channels % width, at / channels / width, at % channels);
            let count = found.iter().zip(right).filter(|(found, right)| found != right).count();
            Err(format!(
                "{what}, {look:?} picture of {}, {}, border {}: ({x}, {y}), channel {channel}: {} expected, {} found; {count} values are wrong",
                self.shape, self.window, self.border, right[at], found[at]
            ))
        }

        /// Returns the number of filtered pictures.
        fn check(&self, number: usize) -> Result<usize, Failed> {
            let Shape { width, height, channels } = self.shape;
            let pictures =
                [0, 1].map(|i| self.looks[i].picture(self.shape, seed(68, 2 * number + i)));
            let right = [0, 1].map(|i| self.right(&pictures[i]));
            let plan = Plan::builder(&self.window.filter)
                .border(self.border)
                .device(Device::Cpu)
                .build()?;
            for (i, picture) in pictures.iter().enumerate() {
                let mut found = Image::<u8>::zeroed(width, height, channels)?;
                plan.run(
                    &ImageView::new(picture, width, height, channels)?,
                    &mut found.view_mut(),
                )?;
                self.same("the CPU", self.looks[i], found.as_slice(), &right[i])?;
            }
            let gpu = apron::gpu::Gpu::open(0)?;
            // All runs share the stream's work list of uncertain results.
            let mut stream = gpu.stream()?;
            let sources = [0, 1].map(|i| {
                gpu.upload_stored(&ImageView::new(&pictures[i], width, height, channels)?)
            });
            let [first, second] = sources;
            let sources = [first?, second?];
            let mut runs = 0;
            for &variant in &self.variants {
                let product = Product { variant, device: Gpu::DEVICE };
                let plan = match product.prepare(&self.window, self.border) {
                    Ok(plan) => plan,
                    Err(Error::Unsupported { .. })
                        if !product.must_take(&self.window, self.border) =>
                    {
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
                let mut results = Vec::new();
                for i in [0, 1, 0] {
                    let mut to =
                        gpu.image_of(self.shape, Scalar::U8, apron::Layout::Interleaved)?;
                    to.fill(165.0, &stream)?;
                    let may_decline = SLIDING.contains(&variant) && channels > 4;
                    match plan.run_on_device(&sources[i], &mut to, &mut stream) {
                        Ok(()) => results.push((i, to)),
                        Err(Error::Unsupported { .. })
                            if may_decline || !product.must_take(&self.window, self.border) => {}
                        Err(error) => return Err(format!("{}: {error}", product.name()).into()),
                    }
                }
                stream.synchronize()?;
                for (turn, (i, to)) in results.into_iter().enumerate() {
                    let what = format!("{}, run {turn} of its stream", product.name());
                    self.same(
                        &what,
                        self.looks[i],
                        gpu.download_stored::<u8>(&to)?.as_slice(),
                        &right[i],
                    )?;
                    if let Some(place) = gpu.spoilt_padding(&to, 165.0)? {
                        return Err(
                            format!("{what}: it wrote outside the image, at {place:?}").into()
                        );
                    }
                    runs += 1;
                }
            }
            Ok(runs)
        }
    }

    /// Bytes to bytes, on the CPU and with every variant, against the oracle.
    fn rounded(name: &str, cases: &[Bytes]) -> Result<(), Failed> {
        let started = std::time::Instant::now();
        let runs = cases.par_iter().enumerate().map(|(number, case)| case.check(number));
        let runs: usize = runs.collect::<Result<Vec<_>, Failed>>()?.iter().sum();
        println!(
            "stored::{name}: {} cases, {runs} runs in {:.1} s",
            cases.len(),
            started.elapsed().as_secs_f64()
        );
        if runs > cases.len() { Ok(()) } else { Err("too few runs".into()) }
    }

    const fn shape(width: usize, height: usize, channels: usize) -> Shape {
        Shape { width, height, channels }
    }

    /// Sums that end in a half, or nearly.
    fn ties(selection: Selection) -> Vec<Bytes> {
        let mean = |cols: usize, rows: usize, of: f32| {
            Window::pair("a mean", &vec![of / cols as f32; cols], &vec![1.0 / rows as f32; rows])
        };
        let binomial = [1.0, 6.0, 15.0, 20.0, 15.0, 6.0, 1.0].map(|tap: f32| tap / 64.0);
        let odd = |taps: [f32; 9]| Window::dense("eighths", 3, 3, &taps.map(|tap| tap / 8.0));
        let windows = [
            Window::preset("box:size=6"),
            mean(7, 3, 1.0),
            mean(3, 3, 0.5),
            mean(4, 2, 1.5),
            Window::pair("binomial", &binomial, &binomial),
            odd([1.0, -3.0, 5.0, 1.0, 7.0, 1.0, -1.0, 3.0, 2.0]),
            Window::dense("a half", 1, 1, &[0.5]),
            Window::dense("a mean given whole", 6, 6, &[1.0 / 36.0; 36]),
            Window::dense("half a mean given whole", 7, 7, &[0.5 / 49.0; 49]),
            mean(17, 17, 0.5),
            Window::dense("tenths", 3, 3, &[0.1, -0.2, 0.3, 0.5, 0.4, -0.7, 0.9, 0.2, -0.3]),
            mean(31, 10, 1.0),
        ];
        let looks = [
            [Look::Random, Look::Gradient],
            [Look::Flat(127), Look::Random],
            [Look::Gradient, Look::Saturated],
            [Look::Saturated, Look::Flat(1)],
            [Look::Flat(255), Look::Gradient],
        ];
        let shapes = [
            shape(61, 23, 3),
            shape(131, 9, 1),
            shape(40, 31, 4),
            shape(29, 17, 2),
            shape(23, 9, 5),
        ];
        let of_window = |(w, window): (usize, Window)| {
            let turns = if selection == Selection::Full { 0..30 } else { w * 7..w * 7 + 1 };
            let case = move |turn: usize| Bytes {
                window: window.clone(),
                border: BORDERS[(turn + w) % 6],
                shape: shapes[turn % 5],
                looks: looks[(turn + turn / 5) % 5],
                variants: every(),
            };
            turns.map(case).collect::<Vec<_>>()
        };
        windows.into_iter().enumerate().flat_map(of_window).collect()
    }

    /// The work list overflows with uncertain results; in some pictures all results are uncertain.
    fn uncertain(selection: Selection) -> Vec<Bytes> {
        let half = |size: usize| vec![0.5 / (size * size) as f32; size * size];
        let ties = Window::dense("half a mean", 5, 5, &half(5));
        let pair = Window::pair("half a mean", &[0.1; 5], &[0.2; 5]);
        let large =
            Window::dense("large", 3, 3, &[3e6, -7e6, 1.3e6, 3.7e6, 2e6, -4e6, 1e6, 5e5, -5.1e5]);
        let huge = Window::pair("huge", &[1e20, -3e20, 2e20], &[1e17, 3e17, -4e17]);
        let (flat, odd) = ([Look::Flat(127), Look::Random], [Look::Random, Look::Flat(255)]);
        let white = Border::Constant(255.0);
        let shape = [shape(61, 23, 3), shape(37, 19, 4), shape(131, 40, 1), shape(300, 5, 2)];
        let mut cases = vec![
            (ties.clone(), Border::Replicate, shape[0], flat),
            (pair.clone(), Border::Wrap, shape[1], flat),
            (large.clone(), Border::Reflect, shape[0], odd),
            (large.clone(), Border::Constant(3.0), shape[3], flat),
            (huge.clone(), Border::Keep, shape[1], odd),
            (ties.clone(), white, shape[1], flat),
            (pair.clone(), white, shape[0], odd),
            (Window::blur(12, 11, 71), white, shape[0], odd),
            // A block resolves several of these results. Some of their windows leave the image,
            // others do not.
            (Window::blur(24, 22, 77), white, shape[0], odd),
            (Window::blur(24, 22, 77), Border::Reflect, shape[2], [Look::Random, Look::Gradient]),
            (Window::preset("box:cols=40,rows=30"), Border::Constant(200.0), shape[2], odd),
        ];
        if selection == Selection::Full {
            for (i, window) in [ties, pair, large, huge].into_iter().enumerate() {
                for (j, border) in BORDERS.into_iter().chain([white]).enumerate() {
                    cases.push((
                        window.clone(),
                        border,
                        shape[(i + j) % 4],
                        if j % 2 == 0 { flat } else { odd },
                    ));
                }
            }
        }
        let case = |(turn, (window, border, shape, looks))| {
            // Every third variant in slow runs.
            let is_due = |&(i, _): &(usize, _)| selection == Selection::Full || (i + turn) % 3 == 0;
            let variants = every().into_iter().enumerate().filter(is_due);
            let variants = variants.map(|(_, variant)| variant).collect();
            Bytes { window, border, shape, looks, variants }
        };
        cases.into_iter().enumerate().map(case).collect()
    }

    /// Wide windows, some with more than 65536 taps.
    fn wide(selection: Selection) -> Vec<Bytes> {
        let mean = |cols: usize, rows: usize| {
            Window::pair("a mean", &vec![1.0 / cols as f32; cols], &vec![1.0 / rows as f32; rows])
        };
        let tiny = |halves: usize| {
            let mut taps = vec![1e-15; 300];
            taps[..halves].fill(1.0 / halves as f32);
            taps
        };
        let edge = Window::pair("two halves and tiny taps", &tiny(2), &tiny(1)).anchored(1, 0);
        let preset = Window::preset;
        let (some, flat) = ([Look::Random, Look::Gradient], [Look::Flat(255), Look::Saturated]);
        let small = vec![
            (preset("gaussian:sigma=20"), Border::Reflect101, shape(37, 21, 3), some),
            (preset("box:size=101"), Border::Constant(3.0), shape(23, 19, 1), flat),
            (mean(301, 221), Border::Replicate, shape(9, 11, 2), some),
            (mean(262, 256).anchored(3, 250), Border::Constant(200.0), shape(35, 3, 1), flat),
            (Window::random(53, 49, 72), Border::Wrap, shape(19, 7, 1), some),
            // On a flat picture every sum of the first column differs from a half only by the tiny
            // taps. These are 1/1100 of the results of one picture, and 1/100 of the other.
            (
                edge.clone(),
                Border::Constant(78.0),
                shape(1100, 2, 1),
                [Look::Flat(77), Look::Random],
            ),
            (edge, Border::Constant(78.0), shape(100, 3, 2), [Look::Flat(77), Look::Flat(76)]),
            // Longer than the sums that exact passes accumulate before they carry.
            (Window::random_pair(8300, 7, 76), Border::Reflect, shape(23, 5, 1), some),
            // Too many results are uncertain: exact passes compute all of them after the estimate.
            (
                preset("gaussian:sigma=5"),
                Border::Reflect101,
                shape(150, 131, 1),
                [Look::Checker(1), Look::Checker(2)],
            ),
            (
                preset("unsharp:sigma=5"),
                Border::Replicate,
                shape(70, 60, 3),
                [Look::Checker(1), Look::Checker(16)],
            ),
            (
                preset("dog:sigma=3,wider=6"),
                Border::Keep,
                shape(90, 71, 4),
                [Look::Checker(1), Look::Random],
            ),
            (
                preset("gaussian:sigma=4").anchored(0, 30),
                Border::Constant(9.0),
                shape(131, 50, 2),
                [Look::Checker(1), Look::Random],
            ),
        ];
        let mut cases = small;
        if selection == Selection::Full {
            let long = Window::random_pair(7, 8300, 77).anchored(3, 8000);
            cases.push((long, Border::Wrap, shape(9, 30, 1), some));
            for (i, border) in BORDERS.into_iter().chain([Border::Constant(255.0)]).enumerate() {
                let looks = [some, flat][i % 2];
                cases.extend([
                    (preset("gaussian:sigma=20"), border, shape(211, 190, 1 + i % 4), looks),
                    (preset("gaussian:sigma=60"), border, shape(67, 41, 1), looks),
                    (preset("box:size=101"), border, shape(150, 113, 3), looks),
                    (mean(301, 221), border, shape(40, 20, 2), looks),
                    (Window::blur(101, 101, 73), border, shape(47, 31, 2), looks),
                    (Window::random(101, 64, 74).anchored(100, 0), border, shape(33, 70, 1), looks),
                    (Window::random_pair(33, 95, 75), border, shape(35, 97, 4), looks),
                    (mean(260, 260).anchored(200, 7), border, shape(263, 261, 1), looks),
                ]);
            }
        }
        let variants = match selection {
            Selection::Full => every(),
            _ => vec![Some(Variant::Separable), Some(Variant::Fourier), None],
        };
        let case = |(window, border, shape, looks)| Bytes {
            window,
            border,
            shape,
            looks,
            variants: variants.clone(),
        };
        cases.into_iter().map(case).collect()
    }

    /// Views with bytes in common are refused before anything is written. Views that interleave
    /// without common bytes are not.
    fn overlap() -> Result<(), Failed> {
        const PITCH: i64 = 256;
        let gpu = apron::gpu::Gpu::open(0)?;
        let shape = shape(40, 9, 3);
        let window = Window::blur(3, 3, 81);
        let plan =
            Product { variant: None, device: Gpu::DEVICE }.prepare(&window, Border::Reflect)?;
        let planes = |row: i64, channel: i64| Strides { row, pixel: 1, channel, image: 0 };
        let pixels = |row: i64| Strides { row, pixel: 3, channel: 1, image: 0 };
        // Where source and destination begin, their strides, and whether they have bytes in common.
        let cases = [
            ("one place", (0, pixels(PITCH)), (0, pixels(PITCH)), true),
            ("a row further down", (0, pixels(PITCH)), (PITCH, pixels(PITCH)), true),
            ("the last row", (0, pixels(PITCH)), (8 * PITCH, pixels(PITCH)), true),
            ("behind the last row", (0, pixels(PITCH)), (9 * PITCH, pixels(PITCH)), false),
            ("before the first row", (9 * PITCH, pixels(PITCH)), (0, pixels(PITCH)), false),
            ("the last byte", (0, pixels(PITCH)), (8 * PITCH + 119, pixels(PITCH)), true),
            ("behind the last byte", (0, pixels(PITCH)), (8 * PITCH + 120, pixels(PITCH)), false),
            ("columns beside columns", (0, pixels(PITCH)), (120, pixels(PITCH)), false),
            ("columns before columns", (136, pixels(PITCH)), (0, pixels(PITCH)), false),
            ("one column in common", (0, pixels(PITCH)), (119, pixels(PITCH)), true),
            (
                "around the end of a row",
                (100, pixels(PITCH)),
                (2 * PITCH - 19, pixels(PITCH)),
                true,
            ),
            (
                "around the end of a row, just before",
                (100, pixels(PITCH)),
                (2 * PITCH - 20, pixels(PITCH)),
                false,
            ),
            ("up to the next row", (100, pixels(PITCH)), (PITCH - 36, pixels(PITCH)), false),
            ("backwards", (0, pixels(PITCH)), (8 * PITCH, pixels(-PITCH)), true),
            ("backwards beside", (0, pixels(PITCH)), (8 * PITCH + 128, pixels(-PITCH)), false),
            ("every other row", (0, pixels(2 * PITCH)), (PITCH, pixels(2 * PITCH)), false),
            ("rows of other strides", (0, pixels(2 * PITCH)), (PITCH, pixels(PITCH)), true),
            ("planes that take turns", (0, planes(PITCH, 80)), (40, planes(PITCH, 80)), true),
            ("planes beside planes", (0, planes(PITCH, 40)), (120, planes(PITCH, 40)), false),
            ("planes behind planes", (0, planes(40, 360)), (1080, planes(40, 360)), false),
            ("a plane in common", (0, planes(40, 360)), (720, planes(40, 360)), true),
        ];
        let mut rng = Rng::with_seed(82);
        for (what, (from, source), (to, target), common) in cases {
            let bytes: Vec<u8> = (0..19 * PITCH).map(|_| rng.u8(..)).collect();
            let memory = gpu.upload_stored(&ImageView::new(&bytes, bytes.len(), 1, 1)?)?;
            let mut stream = gpu.stream()?;
            let outcome = {
                let at = |offset: i64| memory.address().wrapping_add(offset as u64);
                // SAFETY: all places that the views describe lie in the memory, which lives until
                // the stream is done. Where the views overlap, nothing is launched.
                let (src, mut dst) = unsafe {
                    let view =
                        DeviceView::from_raw(&gpu, at(from), (Scalar::U8, source), shape, 1, 0..9)?;
                    (
                        view,
                        DeviceViewMut::from_raw(
                            &gpu,
                            at(to),
                            (Scalar::U8, target),
                            shape,
                            1,
                            0..9,
                        )?,
                    )
                };
                plan.run_region(&src, &mut dst, 0..40, 0..9, &mut stream)
            };
            stream.synchronize()?;
            let place = |start: i64, strides: &Strides, [_, channel, y, x]: [usize; 4]| {
                let offset = y as i64 * strides.row
                    + x as i64 * i64::from(strides.pixel)
                    + channel as i64 * strides.channel;
                (start + offset) as usize
            };
            let mut right = bytes.clone();
            match outcome {
                Err(Error::Parameter { name: "the destination", .. }) if common => {}
                Ok(()) if !common => {
                    for channel in 0..3 {
                        let all = || {
                            places(shape, 1, &(0..9), &(0..40)).filter(|place| place[1] == channel)
                        };
                        let plane: Vec<u8> =
                            all().map(|at| bytes[place(from, &source, at)]).collect();
                        let results =
                            oracle::bytes(&plane, (40, 9), &window.whole(), Border::Reflect);
                        all()
                            .zip(results)
                            .for_each(|(at, result)| right[place(to, &target, at)] = result);
                    }
                }
                outcome => return Err(format!("{what}: {outcome:?}").into()),
            }
            if gpu.download_stored::<u8>(&memory)?.as_slice() != right {
                return Err(format!("{what}: the memory is not as it must be").into());
            }
        }
        Ok(())
    }

    /// Addresses and strides that are not multiples of a value's size are refused. The error names
    /// the value and the limit.
    fn alignment() -> Result<(), Failed> {
        let gpu = apron::gpu::Gpu::open(0)?;
        let memory = gpu.image_of(shape(64, 64, 1), Scalar::F32, apron::Layout::Planar)?;
        let base = memory.address();
        let packed = |size: i64| Strides {
            row: 64 * size,
            pixel: size as i32,
            channel: 9 * size,
            image: 81 * size,
        };
        for kind in Kind::ALL {
            let size = [Scalar::U8, Scalar::U16, Scalar::F16, Scalar::F32]
                .into_iter()
                .zip([1i64, 2, 2, 4])
                .find_map(|(other, size)| (other == scalar(kind)).then_some(size))
                .unwrap_or(1);
            let view = |address: u64, strides: Strides| {
                // SAFETY: the view is not used.
                unsafe {
                    DeviceView::from_raw(
                        &gpu,
                        address,
                        (scalar(kind), strides),
                        shape(3, 3, 1),
                        1,
                        0..3,
                    )
                }
            };
            view(base + size as u64, packed(size))?;
            for (apart, is_taken) in
                [(1 << 23, true), (-(1 << 23), true), ((1 << 23) + 4, false), (i32::MIN, false)]
            {
                match view(base, Strides { pixel: apart, ..packed(size) }) {
                    Ok(_) if is_taken => {}
                    Err(Error::Parameter { name: "the layout", .. }) if !is_taken => {}
                    outcome => {
                        return Err(
                            format!("{kind}, pixels {apart} bytes apart: {outcome:?}").into()
                        );
                    }
                }
            }
            for off in (1..size).chain([size + 1]).filter(|off| off % size != 0) {
                let strides = packed(size);
                for (address, strides) in [
                    (base + off as u64, strides),
                    (base, Strides { row: strides.row + off, ..strides }),
                    (base, Strides { row: -strides.row - off, ..strides }),
                    (base, Strides { pixel: strides.pixel + off as i32, ..strides }),
                    (base, Strides { channel: off, ..strides }),
                    (base, Strides { image: off, ..strides }),
                ] {
                    let told = match view(address, strides) {
                        Err(error @ Error::Parameter { name: "the layout", .. }) => {
                            error.to_string()
                        }
                        outcome => {
                            return Err(format!(
                                "{kind} at {address:#x}, {strides:?}: {outcome:?}"
                            )
                            .into());
                        }
                    };
                    for part in [
                        format!("{address:#x}"),
                        format!("{strides:?}"),
                        format!("multiples of the {size} bytes of"),
                    ] {
                        if !told.contains(&part) {
                            return Err(format!("\"{told}\" does not say \"{part}\"").into());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Bytes at places that whole vectors do not fit. Rows begin at multiples of 64 bytes, but
    /// planes (the channels of an image, or images) an odd number of bytes apart. Or results begin
    /// at column 4, where a lane has eight.
    fn odd_places() -> Result<(), Failed> {
        const W: usize = 600;
        const H: usize = 20;
        const ROW: usize = 640;
        let gpu = apron::gpu::Gpu::open(0)?;
        let mut rng = Rng::with_seed(61);
        let bytes: Vec<u8> = (0..3 * (ROW * H + 1)).map(|_| rng.u8(..)).collect();
        let from = gpu.upload_stored(&ImageView::new(&bytes, bytes.len(), 1, 1)?)?;
        let places = [(1, 0), (0, 4), (1, 4)]
            .into_iter()
            .flat_map(|place| [(place, (3, 1)), (place, (1, 3))]);
        let cases = places.flat_map(|place| {
            [Border::Replicate, Border::Constant(7.0)].map(|border| (place, border))
        });
        for (filter, (((gap, first), (channels, images)), border)) in
            cases.flat_map(|case| ["sharpen", "gaussian:size=5"].map(|filter| (filter, case)))
        {
            let plane = ROW * H + gap;
            let on = |device| {
                Plan::builder(filter.parse::<apron::Filter>()?)
                    .border(border)
                    .device(device)
                    .build()
            };
            let to =
                gpu.upload_stored(&ImageView::new(&vec![0u8; bytes.len()], bytes.len(), 1, 1)?)?;
            let strides =
                Strides { row: ROW as i64, pixel: 1, channel: plane as i64, image: plane as i64 };
            let format = (Scalar::U8, strides);
            let mut stream = gpu.stream()?;
            // SAFETY: both images have these bytes, and live until the stream is synchronized.
            unsafe {
                let src = DeviceView::from_raw(
                    &gpu,
                    from.address(),
                    format,
                    shape(W, H, channels),
                    images,
                    0..H,
                )?;
                let mut dst = DeviceViewMut::from_raw(
                    &gpu,
                    to.address(),
                    format,
                    shape(W, H, channels),
                    images,
                    0..H,
                )?;
                on(Device::Gpu(0))?.run_region(&src, &mut dst, first..W - 2, 0..H, &mut stream)?;
            }
            stream.synchronize()?;
            let found: Image<u8> = gpu.download_stored(&to)?;
            for number in 0..3 {
                let row_of = |all: &[u8], y: usize| all[number * plane + y * ROW..][..W].to_vec();
                let pixels = (0..H).flat_map(|y| row_of(&bytes, y)).collect();
                let mut expected = Image::<u8>::zeroed(W, H, 1)?;
                on(Device::Cpu)?
                    .run(&Image::from_vec(pixels, W, H, 1)?.view(), &mut expected.view_mut())?;
                for y in 0..H {
                    let row = row_of(found.view().row(0), y);
                    if row[first..W - 2] != expected.view().row(y)[first..W - 2] {
                        let what = format!(
                            "{filter}, border {border}, {channels} channels, {images} images, {gap} bytes between"
                        );
                        return Err(format!(
                            "{what}, from column {first}: plane {number}, row {y} is wrong"
                        )
                        .into());
                    }
                }
            }
        }
        Ok(())
    }
}
