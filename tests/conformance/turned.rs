//! Bytes do not depend on an order of sums. A mirrored, transposed or rotated picture under the
//! same transform of the filter gives the transformed result, byte for byte. This holds for every
//! variant, and for pictures filtered whole or in parts. It also holds for colours weighted by
//! alpha, which are compared with the oracle too.

use std::ops::Range;

use apron::{Alpha, Border, Device, Error, Filter, Image, Plan, Shape, Variant};
use conformance::problem::Window;
use conformance::product::{Gpu, Product};
use conformance::runner::Implementation;
use conformance::sample::Data;
use conformance::select::{BORDERS, Selection, seed};
use conformance::suite::gpu_trial;
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};
use oracle::Made;

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    vec![
        Trial::test("turned::bytes::cpu", move || bytes(Device::Cpu, selection, false)),
        gpu_trial("turned::bytes::gpu", gpu, move || bytes(Gpu::DEVICE, selection, false)),
        Trial::test("turned::weighted::cpu", move || bytes(Device::Cpu, selection, true)),
        gpu_trial("turned::weighted::gpu", gpu, move || bytes(Gpu::DEVICE, selection, true)),
    ]
}

/// A transform of a picture or a window: swaps columns and rows or not, then reverses either or
/// not.
#[derive(Clone, Copy, Debug)]
struct Turn {
    name: &'static str,
    transposes: bool,
    mirrors: (bool, bool),
}

const TURNS: [Turn; 5] = [
    Turn { name: "mirrored in x", transposes: false, mirrors: (true, false) },
    Turn { name: "mirrored in y", transposes: false, mirrors: (false, true) },
    Turn { name: "transposed", transposes: true, mirrors: (false, false) },
    Turn { name: "turned by 90 degrees", transposes: true, mirrors: (true, false) },
    Turn { name: "turned by 270 degrees", transposes: true, mirrors: (false, true) },
];

impl Turn {
    fn size(self, (width, height): (usize, usize)) -> (usize, usize) {
        if self.transposes { (height, width) } else { (width, height) }
    }

    /// The new place of a cell, in a grid of this size.
    fn place(self, (x, y): (usize, usize), size: (usize, usize)) -> (usize, usize) {
        let ((x, y), (width, height)) =
            if self.transposes { ((y, x), self.size(size)) } else { ((x, y), size) };
        (
            if self.mirrors.0 { width - 1 - x } else { x },
            if self.mirrors.1 { height - 1 - y } else { y },
        )
    }

    /// Cells of `channels` values each, row by row.
    fn cells<T: Copy>(self, values: &[T], size: (usize, usize), channels: usize) -> Vec<T> {
        let mut turned = values.to_vec();
        for (i, cell) in values.chunks(channels).enumerate() {
            let (x, y) = self.place((i % size.0, i / size.0), size);
            turned[(y * self.size(size).0 + x) * channels..][..channels].copy_from_slice(cell);
        }
        turned
    }

    fn factors(self, row: &[f64], column: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (row, column) = if self.transposes { (column, row) } else { (row, column) };
        let mirrored = |taps: &[f64], is_mirrored: bool| {
            let mut taps = taps.to_vec();
            if is_mirrored {
                taps.reverse();
            }
            taps
        };
        (mirrored(row, self.mirrors.0), mirrored(column, self.mirrors.1))
    }

    fn window(self, window: &Window) -> Window {
        let size = (window.cols, window.rows);
        let (cols, rows) = self.size(size);
        let turned = match &window.made {
            Made::Table(taps) => Window::table(self.name, cols, rows, &self.cells(taps, size, 1)),
            Made::Product(row, column) => {
                let (row, column) = self.factors(row, column);
                Window::product(self.name, &row, &column)
            }
            // Unsharp masks, Laplacians and differences of Gaussians are symmetric under every
            // transform.
            Made::Sum { .. } => window.clone(),
        };
        let (x, y) = self.place(window.anchor, size);
        turned.anchored(x, y)
    }
}

fn windows() -> Vec<Window> {
    let preset = Window::preset;
    let mut rng = Rng::with_seed(93);
    let mut taps = |count: usize| -> Vec<f64> {
        (0..count).map(|_| (2.0 * rng.f64() - 0.7) / count as f64).collect()
    };
    // Sums near a half whose last bits depend on the order in f64.
    let sixths =
        [1.0, 2.0, 3.0, -1.0, 4.0, 2.0, 1.0, 5.0, 1.0, 3.0, 2.0, 1.0].map(|tap| tap / 24.0);
    vec![
        Window::table("random in f64", 5, 4, &taps(20)).anchored(0, 3),
        Window::table("random in f64", 19, 17, &taps(323)),
        Window::table("random in f64", 37, 1, &taps(37)),
        Window::table("sixths", 4, 3, &sixths).anchored(3, 1),
        Window::table("a mean", 6, 6, &[1.0 / 36.0; 36]),
        Window::dense("nearly a mean", 6, 6, &[0.027_777_78; 36]),
        Window::dense("a mean in f32", 6, 6, &[1.0 / 36.0; 36]),
        Window::table("halves", 3, 2, &[0.5, -0.5, 1.0, 0.5, -1.0, 0.5]),
        Window::random(33, 41, 94).anchored(30, 2),
        Window::product("random factors", &taps(7), &taps(12)).anchored(6, 0),
        Window::product("long factors", &taps(90), &taps(141)),
        Window::random_pair(21, 21, 95),
        preset("gaussian:1.3"),
        preset("gaussian:sigma-x=4,sigma-y=0.8"),
        preset("gaussian:12"),
        preset("box:size=6"),
        preset("box:cols=20,rows=14"),
        preset("box:cols=3,rows=50"),
        preset("unsharp:sigma=1.5,amount=0.7"),
        preset("unsharp:sigma=6,amount=3"),
        preset("log:1.5"),
        preset("log:5"),
        preset("dog:1"),
        preset("dog:4"),
        preset("sobel-y"),
        preset("motion:length=9,angle=30"),
    ]
}

/// A picture of bytes, and its name.
fn picture(number: usize, Shape { width, height, channels }: Shape) -> (String, Vec<u8>) {
    let looks = [
        Data::Random,
        Data::Two(100, 101),
        Data::Checker(1),
        Data::Extremes,
        Data::Dither,
        Data::Gradient,
    ];
    let mut rng = Rng::with_seed(seed(94, number));
    let mut byte = |x: usize, y: usize, channel: usize, look: Data| {
        let random = |rng: &mut Rng| <u8 as conformance::sample::Sample>::random(rng, look);
        look.placed((x, y), channel).unwrap_or_else(|| random(&mut rng))
    };
    let places = (0..width * height * channels)
        .map(|i| (i / channels % width, i / channels / width, i % channels));
    match looks.get(number % (looks.len() + 1)) {
        Some(&look) => {
            (format!("{look:?}"), places.map(|(x, y, channel)| byte(x, y, channel, look)).collect())
        }
        None => ("stripes".to_owned(), places.map(|(x, ..)| 100 + (x / 2 % 2) as u8).collect()),
    }
}

/// Makes runs of pixels transparent or opaque, so that whole windows are transparent or opaque.
fn with_runs_of_alpha(src: &mut [u8], number: usize, channels: usize) {
    let mut rng = Rng::with_seed(seed(96, number));
    let mut alpha = None;
    for (x, pixel) in src.chunks_exact_mut(channels).enumerate() {
        if x % 29 == 0 {
            alpha = [Some(0), Some(255), None][rng.usize(0..3)];
        }
        pixel[channels - 1] = alpha.unwrap_or(pixel[channels - 1]);
    }
}

/// A picture, and a plan with a variant for it.
struct Job<'a> {
    product: Product,
    /// Whether the last channel is alpha, and weights the colours.
    weighted: bool,
    window: &'a Window,
    border: Border,
    shape: Shape,
    src: &'a [u8],
}

impl Job<'_> {
    fn plan(&self, filter: &Filter, rows: Option<usize>) -> apron::Result<Plan> {
        let builder = Plan::builder(filter).border(self.border).device(self.product.device);
        let builder = builder.variant(self.product.variant);
        rows.into_iter().fold(builder, |builder, rows| builder.band_rows(rows)).build()
    }

    /// The whole picture; `None` if the variant declines it.
    fn whole(&self) -> apron::Result<Option<Vec<u8>>> {
        let Shape { width, height, channels } = self.shape;
        let mut dst = Image::<u8>::zeroed(width, height, channels)?;
        let src = apron::ImageView::new(self.src, width, height, channels)?;
        let run = |plan: Plan| match self.weighted {
            true => plan.run_with_alpha(&src, &mut dst.view_mut(), Alpha::Premultiply),
            false => plan.run(&src, &mut dst.view_mut()),
        };
        match self.plan(&self.window.filter, None).and_then(run) {
            Ok(()) => Ok(Some(dst.into_vec())),
            Err(Error::Unsupported { .. }) if !self.product.must_take(self.window, self.border) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The same in bands of a few rows. Bands are streamed, unless colours are weighted.
    fn in_bands(&self, rows: usize) -> apron::Result<Vec<u8>> {
        let Shape { width, height, channels } = self.shape;
        if self.weighted {
            let mut dst = Image::<u8>::zeroed(width, height, channels)?;
            let src = apron::ImageView::new(self.src, width, height, channels)?;
            let plan = self.plan(&self.window.filter, Some(rows))?;
            plan.run_with_alpha(&src, &mut dst.view_mut(), Alpha::Premultiply)?;
            return Ok(dst.into_vec());
        }
        let row = self.shape.row_len();
        let mut found = Vec::new();
        let mut source = Rows(self.src, row);
        let mut sink = |_: Range<usize>, from: &[u8]| {
            found.extend_from_slice(from);
            Ok(())
        };
        self.plan(&self.window.filter, Some(rows))?.run_streamed(
            self.shape,
            &mut source,
            &mut sink,
        )?;
        Ok(found)
    }

    /// The same as four rectangles in device memory.
    #[cfg(feature = "gpu")]
    fn in_regions(&self) -> apron::Result<Vec<u8>> {
        let Shape { width, height, channels } = self.shape;
        let gpu = apron::gpu::Gpu::open(0)?;
        let mut stream = gpu.stream()?;
        let src = gpu.upload_stored(&apron::ImageView::new(self.src, width, height, channels)?)?;
        let mut dst = gpu.image_of(self.shape, apron::Scalar::U8, apron::Layout::Interleaved)?;
        let plan = self.plan(&self.window.filter, None)?;
        let (x, y) = (width / 3, height / 2);
        for columns in [0..x, x..width] {
            for rows in [0..y, y..height] {
                if !columns.is_empty() && !rows.is_empty() {
                    let (src, mut dst, columns) = (src.view(), dst.view_mut(), columns.clone());
                    match self.weighted {
                        true => {
                            let how = (Alpha::Premultiply, &mut stream);
                            plan.run_region_with_alpha(&src, &mut dst, columns, rows, how)?;
                        }
                        false => plan.run_region(&src, &mut dst, columns, rows, &mut stream)?,
                    }
                }
            }
        }
        stream.synchronize()?;
        Ok(gpu.download_stored::<u8>(&dst)?.into_vec())
    }
}

/// A picture in memory, as a source of any rows.
struct Rows<'a>(&'a [u8], usize);

impl apron::RowSource<u8> for Rows<'_> {
    fn read(&mut self, rows: Range<usize>, into: &mut [u8]) -> std::io::Result<()> {
        into.copy_from_slice(&self.0[self.1 * rows.start..self.1 * rows.end]);
        Ok(())
    }

    fn goes_back(&self) -> bool {
        true
    }
}

/// Every variant that makes bytes of bytes, and the plan's choice.
fn products(device: Device) -> Vec<Product> {
    let variants: Vec<_> = match device {
        Device::Cpu => conformance::product::variants(device),
        _ => Variant::all().collect(),
    };
    let of = |variant| Product { variant, device };
    [None].into_iter().chain(variants.into_iter().map(Some)).map(of).collect()
}

fn bytes(device: Device, selection: Selection, weighted: bool) -> Result<(), Failed> {
    const SIZES: [(usize, usize); 7] =
        [(61, 37), (7, 90), (1, 23), (128, 5), (19, 19), (150, 133), (33, 64)];
    /// A number of multiplications that takes seconds on the emulator.
    const MUCH: usize = 1 << 23;
    let (mut number, mut runs) = (0, 0);
    for window in windows() {
        let window = if weighted { window.average() } else { window };
        for border in BORDERS {
            number += 1;
            let is_due = match selection {
                Selection::Full => true,
                Selection::Emulated => number % 29 == 0,
                Selection::Small => number % 47 == 0,
            };
            if !is_due {
                continue;
            }
            let (width, height) = match (SIZES[number % SIZES.len()], selection) {
                ((150, _), Selection::Emulated | Selection::Small) => (70, 53),
                (size, _) => size,
            };
            let shape = Shape { width, height, channels: [1, 3, 4, 2][number % 4] };
            let shape = if weighted {
                Shape { channels: [2, 4, 4, 5][number % 4], ..shape }
            } else {
                shape
            };
            let (name, mut src) = picture(number, shape);
            if weighted {
                with_runs_of_alpha(&mut src, number, shape.channels);
            }
            let work = width * height * shape.channels * window.cols * window.rows;
            let is_due = |product: &Product| {
                let is_direct = product
                    .variant
                    .is_some_and(|variant| variant.family() == apron::Family::Direct);
                // Kernels for weighted colours sum tap by tap.
                let is_direct = is_direct || weighted && device != Device::Cpu;
                selection == Selection::Full || work <= MUCH || !is_direct
            };
            // Colours are weighted by one algorithm only.
            let ways = if weighted { 1 } else { usize::MAX };
            for product in products(device).into_iter().take(ways).filter(is_due) {
                let whole =
                    Job { product, weighted, window: &window, border, shape, src: &src }.whole()?;
                let Some(right) = whole else { continue };
                if weighted
                    && right
                        != oracle::bytes_weighted_by_alpha(&src, shape, &window.whole(), border)
                {
                    return Err(format!(
                        "{}: {name} picture of {shape}, {window}, border {border}",
                        product.name()
                    )
                    .into());
                }
                let turns = if selection == Selection::Full {
                    &TURNS[..]
                } else {
                    &TURNS[number % 5..][..1]
                };
                for turn in turns {
                    let (width, height) = turn.size((shape.width, shape.height));
                    let turned = (turn.window(&window), Shape { width, height, ..shape });
                    let cells = |values: &[u8]| {
                        turn.cells(values, (shape.width, shape.height), shape.channels)
                    };
                    let (src, right) = (cells(&src), cells(&right));
                    let job = Job {
                        product,
                        weighted,
                        window: &turned.0,
                        border,
                        shape: turned.1,
                        src: &src,
                    };
                    let what = format!(
                        "{}: {name} picture of {shape}, {window}, border {border}, {}",
                        product.name(),
                        turn.name
                    );
                    let same = |how: &str, found: &[u8]| -> Result<(), Failed> {
                        let wrong = found
                            .iter()
                            .zip(&right)
                            .filter(|(found, right)| found != right)
                            .count();
                        if wrong == 0 && found.len() == right.len() {
                            return Ok(());
                        }
                        Err(format!("{what}, {how}: {wrong} of {} bytes are others", right.len())
                            .into())
                    };
                    // A variant may decline the transposed window.
                    let Some(found) = job.whole()? else { continue };
                    same("whole", &found)?;
                    same("in bands", &job.in_bands(1 + number % 9)?)?;
                    #[cfg(feature = "gpu")]
                    if device != Device::Cpu {
                        same("in regions", &job.in_regions()?)?;
                    }
                    runs += 1;
                }
            }
        }
    }
    let what = if weighted { "weighted" } else { "bytes" };
    println!("turned::{what}: {runs} turned pictures on {device}");
    if runs == 0 { Err("nothing was turned".into()) } else { Ok(()) }
}
