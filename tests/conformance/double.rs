//! Plans and pipelines in f64: every type of number under every border, against sums in twice f64's
//! precision and against plain loops in the stated order.

use apron::{
    Alpha, Border, Device, Error, Extra, Filter, Gradient, Image, ImageView, ImageViewMut, Number,
    Pipeline, Plan, Shape, Step, Variant, f16,
};
use conformance::select::BORDERS;
use libtest_mimic::{Failed, Trial};

/// Filters that reach every branch of the code.
const FILTERS: &[&str] = &[
    "identity",
    "laplacian",
    "laplacian:neighbours=8",
    "sobel-x",
    "sobel-y:size=7",
    "gaussian:sigma=1.5",
    "gaussian:sigma=3",
    "box:size=2",
    "box:cols=1,rows=6",
    "box:size=9",
    "unsharp:sigma=2,amount=0.7",
    "log:sigma=2",
    "dog:sigma=1.5",
    "motion:length=9,angle=30",
    "emboss",
    "taps:0.1 -2.5 3; 7 0 1e-3",
    "taps:1 2 3 4 5 6 7",
];

pub(crate) fn trials() -> Vec<Trial> {
    let types = [
        Trial::test("double::types::u8", types::<u8>),
        Trial::test("double::types::i8", types::<i8>),
        Trial::test("double::types::u16", types::<u16>),
        Trial::test("double::types::i16", types::<i16>),
        Trial::test("double::types::u32", types::<u32>),
        Trial::test("double::types::i32", types::<i32>),
        Trial::test("double::types::u64", types::<u64>),
        Trial::test("double::types::i64", types::<i64>),
        Trial::test("double::types::f16", types::<f16>),
        Trial::test("double::types::f32", types::<f32>),
        Trial::test("double::types::f64", types::<f64>),
    ];
    let others = [
        Trial::test("double::order", order),
        Trial::test("double::whole_numbers", whole_numbers),
        Trial::test("double::ties", ties),
        Trial::test("double::parabola", parabola),
        Trial::test("double::products", products),
        Trial::test("double::large", large),
        Trial::test("double::gradients", gradients),
        Trial::test("double::pipelines", pipelines),
        Trial::test("double::alpha", alpha),
        Trial::test("double::special_values", special_values),
        Trial::test("double::refused", refused),
    ];
    types.into_iter().chain(others).collect()
}

fn fail(text: impl Into<String>) -> Result<(), Failed> {
    Err(text.into().into())
}

fn plan(step: impl Into<Step>, border: Border) -> Result<Plan, Error> {
    Plan::builder(step).border(border).device(Device::Cpu).build()
}

/// The filters as they are, then each with an anchor in a corner and flipped.
fn filters() -> Result<Vec<Filter>, Error> {
    let mut all: Vec<Filter> = FILTERS.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    for (at, text) in FILTERS.iter().enumerate() {
        let filter: Filter = text.parse()?;
        let corner = [(0, 0), (filter.cols() - 1, 0), (0, filter.rows() - 1)][at % 3];
        all.push(filter.anchored(corner.0, corner.1)?.flipped());
    }
    Ok(all)
}

/// The element that replaces an outside index, folded back step by step; `None` where a constant
/// does.
fn inside(index: isize, extent: usize, border: Border) -> Option<usize> {
    let (mut index, end) = (index, extent as isize);
    while !(0..end).contains(&index) {
        index = match border {
            Border::Constant(_) | Border::None => return None,
            Border::Replicate | Border::Keep => index.clamp(0, end - 1),
            Border::Reflect if index < 0 => -1 - index,
            Border::Reflect => 2 * end - 1 - index,
            Border::Reflect101 if end == 1 => 0,
            Border::Reflect101 if index < 0 => -index,
            Border::Reflect101 => 2 * end - 2 - index,
            Border::Wrap if index < 0 => index + end,
            Border::Wrap => index - end,
        };
    }
    Some(index as usize)
}

/// A plane of values.
#[derive(Clone)]
struct Plane {
    width: usize,
    height: usize,
    values: Vec<f64>,
}

impl Plane {
    /// One channel of interleaved values.
    fn of(values: &[f64], shape: Shape, channel: usize) -> Self {
        let values = values.iter().skip(channel).step_by(shape.channels).copied().collect();
        Self { width: shape.width, height: shape.height, values }
    }

    fn at(&self, x: isize, y: isize, border: Border) -> f64 {
        let outside = if let Border::Constant(value) = border { value } else { 0.0 };
        match (inside(x, self.width, border), inside(y, self.height, border)) {
            (Some(x), Some(y)) => self.values[y * self.width + x],
            _ => outside,
        }
    }

    /// Whether the window at a pixel leaves the image.
    fn leaves(&self, filter: &Filter, x: usize, y: usize) -> bool {
        let outside = |at: usize, anchor: usize, window: usize, extent: usize| {
            at < anchor || at + window - anchor > extent
        };
        outside(x, filter.anchor().0, filter.cols(), self.width)
            || outside(y, filter.anchor().1, filter.rows(), self.height)
    }

    /// Each tap and the pixel under it, row by row.
    fn under(&self, filter: &Filter, border: Border, x: usize, y: usize) -> Vec<(f64, f64)> {
        let (left, top) =
            (x as isize - filter.anchor().0 as isize, y as isize - filter.anchor().1 as isize);
        let places =
            (0..filter.rows()).flat_map(|row| (0..filter.cols()).map(move |col| (row, col)));
        places
            .map(|(row, col)| {
                (filter.tap(row, col), self.at(left + col as isize, top + row as isize, border))
            })
            .collect()
    }
}

/// A sum of products in twice the precision, and the sum of their magnitudes.
fn exact(pairs: &[(f64, f64)]) -> (f64, f64, f64) {
    let (mut high, mut low, mut size) = (0.0f64, 0.0f64, 0.0);
    for &(tap, value) in pairs {
        let product = tap * value;
        let rest = tap.mul_add(value, -product);
        let sum = high + product;
        let part = sum - high;
        low += (high - (sum - part)) + (product - part) + rest;
        high = sum;
        size += product.abs();
    }
    let sum = high + low;
    (sum, low - (sum - high), size)
}

/// How far a result may be from the sum, in units of the sum of the products' magnitudes. The
/// documentation states this bound.
fn bound(filter: &Filter) -> f64 {
    (filter.cols() * filter.rows() + 8).max(filter.cols() + filter.rows() + 8) as f64 * f64::EPSILON
        / 2.0
}

/// Values of a type: small ones, its limits, and the greatest that f64 holds exactly.
fn values<N: Number>(count: usize, seed: u64) -> Vec<N> {
    let mut random = fastrand::Rng::with_seed(seed);
    let end = 9_007_199_254_740_992.0f64;
    let ends = [f64::INFINITY, f64::NEG_INFINITY].map(|end| N::from_f64(end).to_f64());
    let (least, greatest) =
        if N::IS_INTEGER { (ends[1].max(-end), ends[0].min(end)) } else { (-1e4, 1e4) };
    let value = |random: &mut fastrand::Rng| match random.u8(0..4) {
        0 => random.f64() * 100.0,
        1 => greatest - (random.f64() * 3.0).floor(),
        2 => least + (random.f64() * 3.0).floor(),
        _ => least + random.f64() * (greatest - least),
    };
    (0..count).map(|_| N::from_f64(value(&mut random))).collect()
}

/// Filters values with gaps between rows into a picture with other gaps.
fn filtered<S: Number, D: Number>(
    plan: &Plan,
    values: &[S],
    shape: Shape,
    gap: usize,
) -> Result<Vec<D>, Failed> {
    let (row, stride) = (shape.row_len(), shape.row_len() + gap);
    let mut spread = vec![S::from_f64(77.0); stride * shape.height];
    spread
        .chunks_mut(stride)
        .zip(values.chunks(row))
        .for_each(|(to, from)| to[..row].copy_from_slice(from));
    let untouched = D::from_f64(55.0);
    let mut results = vec![untouched; (stride + 1) * shape.height];
    let Shape { width, height, channels } = shape;
    let src = ImageView::with_stride(&spread, width, height, channels, stride)?;
    plan.run_f64(
        &src,
        &mut ImageViewMut::with_stride(&mut results, width, height, channels, stride + 1)?,
    )?;
    if results
        .chunks(stride + 1)
        .any(|row| row[shape.row_len()..].iter().any(|&value| value != untouched))
    {
        return Err("what lies between rows was written".into());
    }
    Ok(results.chunks(stride + 1).flat_map(|results| &results[..row]).copied().collect())
}

const SHAPES: [Shape; 5] = [
    Shape { width: 13, height: 11, channels: 1 },
    Shape { width: 41, height: 3, channels: 3 },
    Shape { width: 1, height: 17, channels: 2 },
    Shape { width: 70, height: 2, channels: 4 },
    Shape { width: 5, height: 40, channels: 5 },
];

/// Every filter and border, from this type to itself and to others.
fn types<S: Number>() -> Result<(), Failed> {
    let mut number = 0;
    for filter in filters()? {
        for border in BORDERS.into_iter().chain([Border::Constant(0.1)]) {
            let shape = SHAPES[number % SHAPES.len()];
            let values = values::<S>(shape.row_len() * shape.height, number as u64);
            let plan = plan(&filter, border)?;
            check::<S, S>(&plan, &filter, border, &values, shape, number)?;
            match number % 11 {
                0 => check::<S, u8>(&plan, &filter, border, &values, shape, number)?,
                1 => check::<S, i8>(&plan, &filter, border, &values, shape, number)?,
                2 => check::<S, u16>(&plan, &filter, border, &values, shape, number)?,
                3 => check::<S, i16>(&plan, &filter, border, &values, shape, number)?,
                4 => check::<S, u32>(&plan, &filter, border, &values, shape, number)?,
                5 => check::<S, i32>(&plan, &filter, border, &values, shape, number)?,
                6 => check::<S, u64>(&plan, &filter, border, &values, shape, number)?,
                7 => check::<S, i64>(&plan, &filter, border, &values, shape, number)?,
                8 => check::<S, f16>(&plan, &filter, border, &values, shape, number)?,
                9 => check::<S, f32>(&plan, &filter, border, &values, shape, number)?,
                _ => check::<S, f64>(&plan, &filter, border, &values, shape, number)?,
            }
            number += 1;
        }
    }
    Ok(())
}

fn check<S: Number, D: Number>(
    plan: &Plan,
    filter: &Filter,
    border: Border,
    values: &[S],
    shape: Shape,
    number: usize,
) -> Result<(), Failed> {
    let found: Vec<D> = filtered(plan, values, shape, number % 3)?;
    let wide: Vec<f64> = values.iter().map(|value| value.to_f64()).collect();
    for channel in 0..shape.channels {
        let plane = Plane::of(&wide, shape, channel);
        for (at, &value) in plane.values.iter().enumerate() {
            let (x, y) = (at % shape.width, at / shape.width);
            let found = found[at * shape.channels + channel];
            let (sum, rest, size) = exact(&plane.under(filter, border, x, y));
            let error = size * bound(filter);
            let (low, high) = if border == Border::Keep && plane.leaves(filter, x, y) {
                (D::from_f64(value), D::from_f64(value))
            } else {
                (D::from_f64(sum + (rest - error)), D::from_f64(sum + (rest + error)))
            };
            if !(low.to_f64() <= found.to_f64() && found.to_f64() <= high.to_f64()) {
                return fail(format!(
                    "{filter}, {border}, {} to {}, {shape}: {found:?} at {x},{y}, channel {channel}: from {low:?} to {high:?} expected",
                    S::NAME,
                    D::NAME
                ));
            }
        }
    }
    Ok(())
}

/// Whole-number taps and pixels give the exact whole number, computed in i128 without rounding,
/// then saturated.
fn whole_numbers() -> Result<(), Failed> {
    fn check<N: Number + TryFrom<i128> + Into<i128>>(least: N, greatest: N) -> Result<(), Failed> {
        let shape = Shape { width: 23, height: 19, channels: 2 };
        let texts = [
            "laplacian",
            "sobel-y:size=7",
            "taps:3 -2 1; 5 0 -7; 1 1 1",
            "taps:1000003",
            "taps:1 4 6 4 1",
            "identity",
        ];
        for (number, text) in texts.into_iter().enumerate() {
            let filter: Filter = text.parse()?;
            // The pixels have as many bits as the sums leave room for.
            let weight: f64 = (0..filter.rows() * filter.cols())
                .map(|i| filter.tap(i / filter.cols(), i % filter.cols()).abs())
                .sum();
            let most = (2f64.powi(53) / weight) as i128;
            let mut random = fastrand::Rng::with_seed(number as u64);
            let ends = (least.into().max(-most), greatest.into().min(most));
            let whole: Vec<i128> =
                (0..shape.row_len() * shape.height).map(|_| random.i128(ends.0..=ends.1)).collect();
            let values: Vec<N> =
                whole.iter().filter_map(|&value| N::try_from(value).ok()).collect();
            for border in [Border::Constant(-7.0), Border::Wrap, Border::Reflect] {
                let found: Vec<N> = filtered(&plan(&filter, border)?, &values, shape, 0)?;
                let wide: Vec<f64> = whole.iter().map(|&value| value as f64).collect();
                for (at, found) in found.into_iter().enumerate() {
                    let (pixel, channel) = (at / shape.channels, at % shape.channels);
                    let plane = Plane::of(&wide, shape, channel);
                    let under =
                        plane.under(&filter, border, pixel % shape.width, pixel / shape.width);
                    let sum: i128 =
                        under.iter().map(|&(tap, value)| tap as i128 * value as i128).sum();
                    let expected = sum.clamp(least.into(), greatest.into());
                    if found.into() != expected {
                        return fail(format!(
                            "{text}, {border}, {}: {found:?} where {expected} is right",
                            N::NAME
                        ));
                    }
                }
            }
        }
        Ok(())
    }
    check(i8::MIN, i8::MAX)?;
    check(i16::MIN, i16::MAX)?;
    check(i32::MIN, i32::MAX)?;
    check(i64::MIN, i64::MAX)?;
    check(u8::MIN, u8::MAX)?;
    check(u16::MIN, u16::MAX)?;
    check(u32::MIN, u32::MAX)?;
    check(u64::MIN, u64::MAX)
}

/// Halves are rounded to even, for both signs.
fn ties() -> Result<(), Failed> {
    let plan = plan(&"taps:0.5".parse::<Filter>()?, Border::Wrap)?;
    let shape = Shape { width: 9, height: 1, channels: 1 };
    let found: Vec<i32> = filtered(&plan, &[-7, -5, -3, -1, 0, 1, 3, 5, 7], shape, 0)?;
    let large: Vec<i64> = filtered(
        &plan,
        &[(1 << 52) + 1, (1 << 52) + 3, -(1 << 52) - 1, 1 << 53, 0, 0, 0, 0, 0i64],
        shape,
        0,
    )?;
    let ends = [1 << 51, (1 << 51) + 2, -(1 << 51), 1 << 52];
    if (&found[..], &large[..4]) == (&[-4, -2, -2, 0, 0, 0, 2, 2, 4], &ends) {
        Ok(())
    } else {
        fail(format!("{found:?} and {large:?}"))
    }
}

/// Second differences of hundredths on values of millions.
fn parabola() -> Result<(), Failed> {
    let shape = Shape { width: 50, height: 40, channels: 1 };
    let values: Vec<f64> = (0..shape.width * shape.height)
        .map(|i| 4_600_000.0 + 0.01 * (i % shape.width) as f64 * (i % shape.width) as f64)
        .collect();
    let found: Vec<f64> =
        filtered(&plan(Filter::laplacian(4)?, Border::Reflect101)?, &values, shape, 0)?;
    let inner = (1..39).flat_map(|y| (1..49).map(move |x| (x, y)));
    match inner.map(|(x, y)| found[y * shape.width + x]).find(|value| (value - 0.02).abs() > 1e-8) {
        Some(value) => fail(format!("{value} where 0.02 is right")),
        None => Ok(()),
    }
}

/// The bits are those of plain loops in the stated order, whatever the number of threads.
fn order() -> Result<(), Failed> {
    let shape = Shape { width: 140, height: 130, channels: 2 };
    let values = values::<f64>(shape.row_len() * shape.height, 5);
    for filter in filters()? {
        let by_products = products_of(&filter);
        for border in [Border::Reflect101, Border::Constant(0.1)] {
            let plan = plan(&filter, border)?;
            let found: Vec<f64> = filtered(&plan, &values, shape, 0)?;
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
                if pool.install(|| filtered::<f64, f64>(&plan, &values, shape, 2))? != found {
                    return fail(format!("{filter}: {threads} threads differ"));
                }
            }
            for channel in 0..shape.channels {
                let plane = Plane::of(&values, shape, channel);
                let expected = in_order(&plane, &filter, border, by_products.as_ref());
                let found = found.iter().skip(channel).step_by(shape.channels);
                if let Some(at) =
                    found.zip(&expected).position(|(found, expected)| found != expected)
                {
                    return fail(format!("{filter}, {border}: pixel {at} of channel {channel}"));
                }
            }
        }
    }
    Ok(())
}

/// The tap added at the pixel, then rows and columns.
type Products = (f64, Vec<(Vec<f64>, Vec<f64>)>);

/// The products by which a filter is computed, according to the documentation.
fn products_of(filter: &Filter) -> Option<Products> {
    let one = filter.separated().map(|(row, column)| (0.0, vec![(row.to_vec(), column.to_vec())]));
    let (point, terms) =
        one.or_else(|| filter.summed().map(|(point, terms)| (point, terms.to_vec())))?;
    let worth = 2 * terms.len() * (filter.cols() + filter.rows()) < filter.cols() * filter.rows();
    worth.then_some((point, terms))
}

fn in_order(
    plane: &Plane,
    filter: &Filter,
    border: Border,
    products: Option<&Products>,
) -> Vec<f64> {
    let places = || (0..plane.height).flat_map(|y| (0..plane.width).map(move |x| (x, y)));
    let add = |sum: f64, (tap, value): (f64, f64)| sum + tap * value;
    let Some((point, terms)) = products else {
        return places()
            .map(|(x, y)| plane.under(filter, border, x, y).into_iter().fold(0.0, add))
            .collect();
    };
    let mut sums: Vec<f64> = Vec::new();
    for (row, column) in terms {
        let (left, top) = (filter.anchor().0 as isize, filter.anchor().1 as isize);
        let along = |x: usize, y: isize| {
            let values =
                (0..row.len()).map(|col| plane.at(x as isize - left + col as isize, y, border));
            row.iter().copied().zip(values).fold(0.0, add)
        };
        let lines = |x: usize, y: usize| {
            let down = (0..column.len()).map(|at| along(x, y as isize - top + at as isize));
            column.iter().copied().zip(down).fold(0.0, add)
        };
        let term = places().map(|(x, y)| lines(x, y));
        sums = if sums.is_empty() {
            term.collect()
        } else {
            sums.iter().zip(term).map(|(sum, term)| sum + term).collect()
        };
    }
    if *point != 0.0 {
        sums.iter_mut().zip(&plane.values).for_each(|(sum, value)| *sum += point * value);
    }
    sums
}

/// Taps that are a product in f32, but not in f64, are summed one by one.
fn products() -> Result<(), Failed> {
    let blur = Filter::gaussian(1.5)?;
    let size = blur.cols();
    let mut taps: Vec<f64> = (0..size * size).map(|i| blur.tap(i / size, i % size)).collect();
    taps[3] += 1e-9;
    let filter = Filter::from_taps_f64(size, size, &taps)?;
    if !filter.is_separable() {
        return fail("f32 sees no product either: the test tests nothing");
    }
    let shape = Shape { width: 40, height: 30, channels: 1 };
    let values: Vec<f64> = values::<f64>(shape.width * shape.height, 9);
    for border in BORDERS {
        check::<f64, f64>(&plan(&filter, border)?, &filter, border, &values, shape, 0)?;
    }
    Ok(())
}

/// Pictures of several tiles, windows larger than a tile, and windows larger than the picture.
fn large() -> Result<(), Failed> {
    let cases = [
        ("gaussian:sigma=40", Shape { width: 700, height: 300, channels: 1 }),
        ("gaussian:sigma=5", Shape { width: 2500, height: 40, channels: 1 }),
        ("motion:length=40,angle=30", Shape { width: 300, height: 120, channels: 3 }),
        ("box:cols=1,rows=900", Shape { width: 70, height: 50, channels: 4 }),
        ("box:cols=900,rows=1", Shape { width: 50, height: 70, channels: 3 }),
        ("motion:length=61,angle=75", Shape { width: 20, height: 400, channels: 2 }),
    ];
    for (number, (text, shape)) in cases.into_iter().enumerate() {
        let filter: Filter = text.parse()?;
        let values = values::<i32>(shape.row_len() * shape.height, number as u64);
        let border = BORDERS[number % BORDERS.len()];
        let found: Vec<f64> = filtered(&plan(&filter, border)?, &values, shape, 1)?;
        let wide: Vec<f64> = values.iter().map(|value| value.to_f64()).collect();
        let mut random = fastrand::Rng::with_seed(number as u64);
        for _ in 0..200 {
            let (x, y, channel) = (
                random.usize(0..shape.width),
                random.usize(0..shape.height),
                random.usize(0..shape.channels),
            );
            let plane = Plane::of(&wide, shape, channel);
            let found = found[(y * shape.width + x) * shape.channels + channel];
            let (sum, _, size) = exact(&plane.under(&filter, border, x, y));
            let kept = border == Border::Keep && plane.leaves(&filter, x, y);
            let expected = if kept { plane.values[y * shape.width + x] } else { sum };
            if (found - expected).abs() > size * bound(&filter) {
                return fail(format!(
                    "{text}, {border}: {found} at {x},{y}, channel {channel}; {expected} is right"
                ));
            }
        }
    }
    Ok(())
}

/// Magnitudes and angles of both derivatives. The centre pixel does not affect them.
fn gradients() -> Result<(), Failed> {
    let shape = Shape { width: 31, height: 22, channels: 2 };
    let mut values = values::<f64>(shape.row_len() * shape.height, 3);
    // Flat parts have no slope.
    values[200..500].fill(3.5);
    let pairs = [
        ("sobel", "sobel-x", "sobel-y"),
        ("scharr", "scharr-x", "scharr-y"),
        ("prewitt", "prewitt-x", "prewitt-y"),
    ];
    for (name, across, down) in pairs {
        let gradient: Gradient = name.parse()?;
        for border in BORDERS {
            let run = |step: Step| filtered::<f64, f64>(&plan(step, border)?, &values, shape, 1);
            let (dx, dy) = (run(across.parse()?)?, run(down.parse()?)?);
            let (sizes, angles) = (run(gradient.into())?, run(gradient.angle().into())?);
            let plane = Plane::of(&values, shape, 0);
            let window: Filter = across.parse()?;
            for at in 0..sizes.len() {
                let pixel = at / shape.channels;
                if border == Border::Keep
                    && plane.leaves(&window, pixel % shape.width, pixel / shape.width)
                {
                    if (sizes[at], angles[at]) != (values[at], values[at]) {
                        return fail(format!("{name}: value {at} is not kept"));
                    }
                    continue;
                }
                let size = dx[at].hypot(dy[at]);
                let slack = 1e-9 + 1e-12 * size;
                let turn = (angles[at].cos() * size - dx[at])
                    .abs()
                    .max((angles[at].sin() * size - dy[at]).abs());
                let flat = size == 0.0 && angles[at] != 0.0;
                if (sizes[at] - size).abs() > slack || turn > slack || flat {
                    return fail(format!(
                        "{name}, {border}: {} and {} of {}, {}",
                        sizes[at], angles[at], dx[at], dy[at]
                    ));
                }
            }
        }
    }
    let mut hole = vec![1.0; 25];
    hole[12] = f64::NAN;
    let around: Vec<f64> = filtered(
        &plan(Gradient::sobel(), Border::Wrap)?,
        &hole,
        Shape { width: 5, height: 5, channels: 1 },
        0,
    )?;
    if around[12] == 0.0 && around[11].is_nan() { Ok(()) } else { fail("the middle takes part") }
}

/// Intermediate values are not rounded. The last step rounds once.
fn pipelines() -> Result<(), Failed> {
    let shape = Shape { width: 33, height: 21, channels: 2 };
    let texts = ["gaussian:sigma=1.5", "sobel", "taps:0.3 0.4 0.3"];
    let plans = || {
        texts
            .iter()
            .map(|text| plan(text.parse::<Step>()?, Border::Reflect))
            .collect::<Result<Vec<_>, _>>()
    };
    let values = values::<i16>(shape.row_len() * shape.height, 8);
    let Shape { width, height, channels } = shape;
    let src = ImageView::new(&values, width, height, channels)?;
    let pipeline = Pipeline::new(plans()?)?;
    let (mut whole, mut wide) = (
        Image::<i16>::zeroed(width, height, channels)?,
        Image::<f64>::zeroed(width, height, channels)?,
    );
    pipeline.run_f64(&src, &mut whole.view_mut())?;
    pipeline.run_f64(&src, &mut wide.view_mut())?;
    let mut expected: Vec<f64> = values.iter().map(|&value| value.into()).collect();
    for plan in &plans()? {
        expected = filtered(plan, &expected, shape, 0)?;
    }
    let rounded: Vec<_> = expected.iter().map(|&value| i16::from_f64(value)).collect();
    if wide.as_slice() == expected && whole.as_slice() == rounded {
        Ok(())
    } else {
        fail("steps one by one differ")
    }
}

/// Colours weighted by alpha, copied alpha, and alpha that is removed.
fn alpha() -> Result<(), Failed> {
    let shape = Shape { width: 29, height: 18, channels: 4 };
    let Shape { width, height, channels } = shape;
    let mut random = fastrand::Rng::with_seed(1);
    let values: Vec<f64> = (0..shape.row_len() * height)
        .map(|i| if i % 7 == 3 { 0.0 } else { random.f64() })
        .collect();
    let src = Image::from_vec(values.clone(), width, height, channels)?;
    for text in ["box:size=3", "gaussian:sigma=2", "taps:0.25 0.5 0.25"] {
        let filter: Filter = text.parse()?;
        for border in BORDERS.into_iter().chain([Border::Constant(0.3)]) {
            let pipeline = Pipeline::new(vec![plan(&filter, border)?])?;
            let run = |alpha: Alpha| -> Result<Vec<f64>, Failed> {
                let mut dst = Image::zeroed(width, height, alpha.channels(channels))?;
                pipeline.run_f64_with_extra(
                    &src.view(),
                    &mut dst.view_mut(),
                    Extra::Straight,
                    alpha,
                )?;
                Ok(dst.into_vec())
            };
            let (weighted, kept, dropped) =
                (run(Alpha::Premultiply)?, run(Alpha::Keep)?, run(Alpha::Drop)?);
            let plain: Vec<f64> = filtered(&pipeline.plans()[0], &values, shape, 0)?;
            let planes: Vec<_> =
                (0..channels).map(|channel| Plane::of(&values, shape, channel)).collect();
            for at in 0..values.len() {
                let (pixel, channel) = (at / channels, at % channels);
                let (x, y) = (pixel % width, pixel / width);
                let under = |channel: usize| planes[channel].under(&filter, border, x, y);
                let weight: f64 = under(3).iter().map(|(tap, alpha)| tap * alpha).sum();
                let colour: f64 = under(channel)
                    .iter()
                    .zip(under(3))
                    .map(|((tap, value), (_, a))| tap * value * a)
                    .sum();
                let average = if weight == 0.0 { 0.0 } else { colour / weight };
                let is_kept = border == Border::Keep && planes[0].leaves(&filter, x, y);
                let expected = match channel {
                    _ if is_kept => values[at],
                    3 => weight,
                    _ => average,
                };
                let colours = if channel < 3 { plain[at] } else { values[at] };
                let same = (weighted[at] - expected).abs() < 1e-10 * (1.0 + expected.abs())
                    && kept[at] == colours;
                if !same || channel < 3 && dropped[pixel * 3 + channel] != plain[at] {
                    return fail(format!(
                        "{text}, {border}: {} at {x},{y}, channel {channel}; {expected}",
                        weighted[at]
                    ));
                }
            }
        }
    }
    // A transparent pixel's colour does not affect results.
    let filter: Filter = "box:cols=3,rows=1".parse()?;
    let pipeline = Pipeline::new(vec![plan(filter, Border::Replicate)?])?;
    let src = Image::from_vec(vec![5e15, 0.0, 1.0, 1.0, 1.0, 1.0], 3, 1, 2)?;
    let mut dst = Image::<f64>::zeroed(3, 1, 2)?;
    pipeline.run_f64_with_extra(&src.view(), &mut dst.view_mut(), Extra::Straight, Alpha::Auto)?;
    if (dst.as_slice()[2] - 1.0).abs() < 1e-15 {
        Ok(())
    } else {
        fail(format!("{:?}", dst.as_slice()))
    }
}

/// A NaN under a window gives NaN, whatever the tap. Infinities keep their sign. Zeros keep their
/// sign under an identity.
fn special_values() -> Result<(), Failed> {
    let shape = Shape { width: 9, height: 7, channels: 1 };
    for text in ["laplacian", "gaussian:sigma=3", "unsharp:sigma=2,amount=0.7"] {
        let filter: Filter = text.parse()?;
        let mut values = vec![1.0; 63];
        values[31] = f64::NAN;
        let found: Vec<f64> = filtered(&plan(&filter, Border::Replicate)?, &values, shape, 0)?;
        let plane = Plane::of(&values, shape, 0);
        for (at, found) in found.iter().enumerate() {
            let under = plane.under(&filter, Border::Replicate, at % 9, at / 9);
            if found.is_nan() != under.iter().any(|(_, value)| value.is_nan()) {
                return fail(format!("{text}: {found} at {at}"));
            }
        }
        values[31] = f64::INFINITY;
        let found: Vec<f64> = filtered(&plan(&filter, Border::Replicate)?, &values, shape, 0)?;
        let centre = filter.tap(filter.anchor().1, filter.anchor().0);
        // In a sum of products, infinities of both signs may meet.
        if filter.summed().is_none() && found[31] != f64::INFINITY.copysign(centre) {
            return fail(format!("{text}: {} of an infinity", found[31]));
        }
        let whole: Vec<i32> =
            filtered(&plan("identity".parse::<Filter>()?, Border::Wrap)?, &values, shape, 0)?;
        if whole[31] != i32::MAX {
            return fail("an infinity is not saturated");
        }
    }
    let zeros: Vec<f64> = filtered(
        &plan("identity".parse::<Filter>()?, Border::Wrap)?,
        &[-0.0, 0.0],
        Shape { width: 2, height: 1, channels: 1 },
        0,
    )?;
    if zeros[0].is_sign_negative() && zeros[1].is_sign_positive() {
        Ok(())
    } else {
        fail("a zero lost its sign")
    }
}

/// Impossible requests are refused. The error names the value, the limit and a remedy.
fn refused() -> Result<(), Failed> {
    let says = |result: Result<(), Error>, words: &[&str]| match result {
        Ok(()) => fail(format!("{words:?}: nothing was said")),
        Err(error) if words.iter().all(|word| error.to_string().contains(word)) => Ok(()),
        Err(error) => fail(format!("{error}: {words:?} are missing")),
    };
    let blur = plan(Filter::gaussian(1.0)?, Border::Wrap)?;
    for beyond in [(1i64 << 53) + 1, -(1 << 53) - 1, i64::MIN, i64::MAX] {
        let mut values = vec![7i64; 60 * 50 * 3];
        values[(31 * 60 + 17) * 3 + 2] = beyond;
        let src = ImageView::new(&values, 60, 50, 3)?;
        let result = blur.run_f64(&src, &mut Image::<i64>::zeroed(60, 50, 3)?.view_mut());
        let words =
            [&*beyond.to_string(), "row 31, column 17, channel 2", "9007199254740992", "convert"];
        says(result, &words)?;
    }
    let src = Image::<f64>::zeroed(8, 6, 1)?;
    says(
        blur.run_f64(&src.view(), &mut Image::<f64>::zeroed(8, 7, 1)?.view_mut()),
        &["8x6x1", "8x7x1"],
    )?;
    let angles = plan(Gradient::sobel().angle(), Border::Wrap)?;
    says(
        angles.run_f64(&src.view(), &mut Image::<i32>::zeroed(8, 6, 1)?.view_mut()),
        &["i32", "f64"],
    )?;
    angles.run_f64(&src.view(), &mut Image::<f16>::zeroed(8, 6, 1)?.view_mut())?;
    for variant in [Variant::Fourier, Variant::Matrix] {
        let plan =
            Plan::builder(Filter::gaussian(1.0)?).device(Device::Cpu).variant(variant).build()?;
        let result = plan.run_f64(&src.view(), &mut Image::<f64>::zeroed(8, 6, 1)?.view_mut());
        says(result, &[variant.name(), "f64", "leave the variant out"])?;
    }
    let single = Pipeline::new(vec![blur])?;
    let mut dst = Image::<f64>::zeroed(8, 6, 1)?;
    let result =
        single.run_f64_with_extra(&src.view(), &mut dst.view_mut(), Extra::Straight, Alpha::Keep);
    says(result, &["number of channels", "at least 2"])
}
