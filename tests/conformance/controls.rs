//! Negative controls: a stand-in with one fault goes through the same runner, which must catch it.
//! Without a fault the stand-in must pass: this proves that the fault is caught.

use apron::{Border, Error, Result, Shape, f16};
use conformance::problem::{Group, Problem, Window};
use conformance::runner::{self, Implementation, Ready, Source, Tally, Target};
use conformance::sample::{Kind, Sample};
use conformance::select::Selection;
use libtest_mimic::{Failed, Trial};
use oracle::{Denominator, Order, Padded, Whole, WholeTaps, fold, kept, scalar};

use crate::{direct, fourier, ladder, separable};

/// The fault of the stand-in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    // Of the direct family.
    OnePixelOneUlpOff,
    LastPixelNotWritten,
    HaloRowMissing,
    HaloColumnMissing,
    AxesSwapped,
    GridAxesSwapped,
    BorderOffByOne,
    ReflectionsSwapped,
    OnlyOneFold,
    ConstantIsZero,
    ConstantInsideRowsOnly,
    KeepIgnored,
    KeepOneTooFew,
    AnchorAlwaysInTheMiddle,
    AnchorsSwapped,
    Flipped,
    OneRowOfTapsTransposed,
    LastTapForgotten,
    NotFused,
    RightToLeft,
    ColumnByColumn,
    SubnormalsFlushed,
    ZeroTapsSkipped,
    Truncated,
    RoundedHalfUp,
    WrappedAround,
    NearTiesInF32,
    ChannelsSwapped,
    SourceStrideIgnored,
    GapWritten,
    GuardWritten,
    Fails,
    Declines,
    // Of the separable family.
    ColumnTapForgotten,
    RowAndColumnSwapped,
    BorderNotFiltered,
    MiddleInHalfPrecision,
    // Of the order of products too.
    DirectInstead,
    // Of the Fourier family.
    OnePixelTooFarOff,
    WrapsAround,
}

const DIRECT: [Fault; 33] = [
    Fault::OnePixelOneUlpOff,
    Fault::LastPixelNotWritten,
    Fault::HaloRowMissing,
    Fault::HaloColumnMissing,
    Fault::AxesSwapped,
    Fault::GridAxesSwapped,
    Fault::BorderOffByOne,
    Fault::ReflectionsSwapped,
    Fault::OnlyOneFold,
    Fault::ConstantIsZero,
    Fault::ConstantInsideRowsOnly,
    Fault::KeepIgnored,
    Fault::KeepOneTooFew,
    Fault::AnchorAlwaysInTheMiddle,
    Fault::AnchorsSwapped,
    Fault::Flipped,
    Fault::OneRowOfTapsTransposed,
    Fault::LastTapForgotten,
    Fault::NotFused,
    Fault::RightToLeft,
    Fault::ColumnByColumn,
    Fault::SubnormalsFlushed,
    Fault::ZeroTapsSkipped,
    Fault::Truncated,
    Fault::RoundedHalfUp,
    Fault::WrappedAround,
    Fault::NearTiesInF32,
    Fault::ChannelsSwapped,
    Fault::SourceStrideIgnored,
    Fault::GapWritten,
    Fault::GuardWritten,
    Fault::Fails,
    Fault::Declines,
];

const SEPARABLE: [Fault; 5] = [
    Fault::ColumnTapForgotten,
    Fault::RowAndColumnSwapped,
    Fault::BorderNotFiltered,
    Fault::MiddleInHalfPrecision,
    Fault::DirectInstead,
];

const PRODUCT: [Fault; 3] =
    [Fault::ColumnTapForgotten, Fault::RowAndColumnSwapped, Fault::DirectInstead];

const FOURIER: [Fault; 7] = [
    Fault::OnePixelTooFarOff,
    Fault::WrapsAround,
    Fault::LastPixelNotWritten,
    Fault::HaloColumnMissing,
    Fault::KeepIgnored,
    Fault::ConstantIsZero,
    Fault::NearTiesInF32,
];

pub(crate) fn trials() -> Vec<Trial> {
    const ORDERS: [(Option<Order>, &[Fault]); 4] = [
        (Some(Order::Direct), &DIRECT),
        (Some(Order::Separable), &SEPARABLE),
        (Some(Order::Product), &PRODUCT),
        (None, &FOURIER),
    ];
    let named = |order: Option<Order>, what: &str| {
        format!("controls::{}::{what}", order.map_or("fourier", Order::name)).to_lowercase()
    };
    let honest = ORDERS.map(|(order, _)| {
        Trial::test(named(order, "honest"), move || {
            let stand_in = [StandIn { order, fault: Fault::None }];
            runner::run(&stand_in, &groups(order)).verdict(&stand_in)?;
            Ok(())
        })
    });
    let mut trials: Vec<_> = honest.into();
    for (order, faults) in ORDERS {
        let faulty =
            |&fault| Trial::test(named(order, &format!("{fault:?}")), move || caught(order, fault));
        trials.extend(faults.iter().map(faulty));
    }
    trials.push(Trial::test("controls::nothing_run_is_a_failure", nothing_run));
    trials.push(Trial::test("controls::a_failure_tells_where", told));
    trials.push(Trial::test("controls::a_failure_is_drawn", drawn));
    trials
}

/// A thin cut through the lists of an order.
fn groups(order: Option<Order>) -> Vec<Group> {
    let small = Selection::Small;
    match order {
        Some(Order::Separable) => {
            [separable::exhaustive(small), separable::wild(small), separable::stored(small)]
                .into_iter()
                .flatten()
                .collect()
        }
        Some(Order::Product) => ladder::product(),
        None => [fourier::exhaustive(small), fourier::stored(small), fourier::ties(small)]
            .into_iter()
            .flatten()
            .collect(),
        Some(Order::Direct) => [
            direct::exhaustive(small),
            direct::stored(small),
            direct::wild(small),
            direct::ties(small),
        ]
        .into_iter()
        .flatten()
        .collect(),
    }
}

fn caught(order: Option<Order>, fault: Fault) -> Result<(), Failed> {
    let stand_in = [StandIn { order, fault }];
    match runner::run(&stand_in, &groups(order)).verdict(&stand_in) {
        Err(_) => Ok(()),
        Ok(runs) => Err(format!("{fault:?} went through {runs} runs without being caught").into()),
    }
}

fn nothing_run() -> Result<(), Failed> {
    let stand_in = [StandIn { order: Some(Order::Direct), fault: Fault::None }];
    let passed = [
        runner::run(&stand_in, &[]).verdict(&stand_in).is_ok(),
        Tally::default().verdict::<StandIn>(&[]).is_ok(),
    ];
    if passed.contains(&true) { Err("a run of nothing passed".into()) } else { Ok(()) }
}

fn told() -> Result<(), Failed> {
    let stand_in = [StandIn { order: Some(Order::Direct), fault: Fault::OnePixelOneUlpOff }];
    let problem = Problem::new(31, 17, 0xABC).stored(Kind::U8, Kind::U16).channels(3).gaps(5, 2);
    let window = Window::random(4, 3, 1).anchored(0, 2);
    let group = Group { window, border: Border::Wrap, problems: vec![problem] };
    let told = runner::run(&stand_in, &[group]).verdict(&stand_in).expect_err("a pixel is wrong");
    let parts = [
        "OnePixelOneUlpOff on paper",
        "31x17x3 u8 -> u16",
        "strides 98 -> 95",
        "seed 0xabc",
        "window 4x3 (random) anchor (0, 2)",
        "border wrap",
        "pixel (15, 8) channel 1: expected ",
        "found ",
        "1 of 1581 values are wrong",
    ];
    match parts.iter().find(|&&part| !told.contains(part)) {
        Some(part) => Err(format!("\"{part}\" is missing in: {told}").into()),
        None => Ok(()),
    }
}

/// A failure leaves a picture and a list of the worst pixels, under the names at the end of its
/// message.
fn drawn() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let window = Window::random(3, 3, 1);
    let shapes =
        [(Fault::OnePixelOneUlpOff, (31, 17), 1), (Fault::LastPixelNotWritten, (1500, 2), 1)];
    for (fault, (width, height), wrong) in shapes {
        let stand_in = [StandIn { order: Some(Order::Direct), fault }];
        let problems = vec![Problem::new(width, height, 0xABC)];
        let group = Group { window: window.clone(), border: Border::Wrap, problems };
        let tally =
            runner::run_into(Tally::reporting(Some(folder.path().to_owned())), &stand_in, &[group]);
        let told = tally.verdict(&stand_in).expect_err("a pixel is wrong");
        let (_, path) =
            told.rsplit_once("drawn in ").ok_or_else(|| format!("nothing is drawn: {told}"))?;
        let stem = path.trim_end_matches(".{png,json}");
        let picture = image::open(format!("{stem}.png"))?.into_rgb8();
        let coloured: Vec<_> =
            picture.enumerate_pixels().filter(|(.., pixel)| pixel.0 != [0, 0, 0]).collect();
        // As large as the picture, or as the drawn part, which ends at the picture's edge.
        let (at_x, at_y) = if width < 1024 { (width / 2, height / 2) } else { (1023, height - 1) };
        let size = (width.min(1024) as u32, height as u32);
        let place = coloured.first().map(|&(x, y, _)| (x as usize, y as usize));
        if picture.dimensions() != size || coloured.len() != wrong || place != Some((at_x, at_y)) {
            return Err(format!("{:?}, coloured: {coloured:?}", picture.dimensions()).into());
        }
        let list: serde_json::Value =
            serde_json::from_slice(&std::fs::read(format!("{stem}.json"))?)?;
        let worst = &list["worst"][0];
        let right = list["wrong"] == wrong
            && list["implementation"] == format!("{fault:?} on paper")
            && worst["never_written"] == (fault == Fault::LastPixelNotWritten)
            && worst["expected_bits"] != worst["found_bits"]
            && list["problem"].as_str().is_some_and(|problem| problem.contains("seed 0xabc"));
        if !right {
            return Err(format!("{list:#}").into());
        }
    }
    if std::fs::read_dir(folder.path())?.count() == 4 {
        Ok(())
    } else {
        Err("more than two reports are there".into())
    }
}

/// Filters pixel by pixel, with a fault.
#[derive(Clone, Copy)]
struct StandIn {
    order: Option<Order>,
    fault: Fault,
}

struct Prepared {
    stand_in: StandIn,
    window: Window,
    border: Border,
}

impl Implementation for StandIn {
    type Ready = Prepared;

    fn name(&self) -> String {
        format!("{:?} on paper", self.fault)
    }

    fn must_take(&self, _: &Window, _: Border) -> bool {
        true
    }

    fn prepare(&self, window: &Window, border: Border) -> Result<Prepared> {
        if self.fault == Fault::Declines && window.cols == 5 {
            return Err(Error::Unsupported { variant: "stand-in", reason: "five columns".into() });
        }
        Ok(Prepared { stand_in: *self, window: window.clone(), border })
    }
}

/// The tile of the stand-in, for faults at its edge.
const TILE: (usize, usize) = (32, 8);

impl Ready for Prepared {
    fn order(&self, _: Shape) -> Result<Option<Order>> {
        Ok(self.stand_in.order)
    }

    fn run<S: Sample, D: Sample>(
        &self,
        shape: Shape,
        src: Source<'_, S>,
        dst: Target<'_, D>,
    ) -> Result<()> {
        let fault = self.stand_in.fault;
        let Shape { width, height, channels } = shape;
        if fault == Fault::Fails && width == 5 {
            return Err(Error::Driver { call: "a launch", message: "it failed".into() });
        }
        let stride = if fault == Fault::SourceStrideIgnored { shape.row_len() } else { src.stride };
        let plane = |channel: usize| -> Vec<f64> {
            let at = |i: usize| i / width * stride + i % width * channels + channel;
            (0..width * height).map(|i| src.data[at(i)].value()).collect()
        };
        let bytes = (S::KIND, D::KIND) == (Kind::U8, Kind::U8);
        if bytes && !oracle::takes_bytes(self.border) {
            let expected = "a byte, or results in f32".into();
            return Err(Error::Parameter {
                name: "border",
                value: self.border.to_string(),
                expected,
            });
        }
        let whole = (bytes && fault != Fault::NearTiesInF32).then(|| numerators(&self.window));
        let results: Vec<Vec<f64>> = (0..channels)
            .map(|channel| {
                plane(if fault == Fault::ChannelsSwapped {
                    channels - 1 - channel
                } else {
                    channel
                })
            })
            .map(|plane| match self.stand_in.order {
                Some(Order::Separable | Order::Product) if !bytes => {
                    self.separable(&plane, (width, height))
                }
                _ => self.direct(&plane, (width, height), whole.as_ref()),
            })
            .collect();

        for y in 0..height {
            for i in 0..shape.row_len() {
                let (x, channel) = (i / channels, i % channels);
                let missing = match fault {
                    Fault::LastPixelNotWritten => (x, y) == (width - 1, height - 1),
                    Fault::GridAxesSwapped => x >= height || y >= width,
                    _ => false,
                };
                if missing {
                    continue;
                }
                let value = results[channel][y * width + x];
                let middle = (x, y, channel) == (width / 2, height / 2, channels / 2);
                let value = match fault {
                    // A few times the error of spectra in f32.
                    Fault::OnePixelTooFarOff if middle => {
                        value + 2e-6 * self.scale(&src.data[..shape.row_len()])
                    }
                    // The value that an inverse transform one pixel too short would give.
                    Fault::WrapsAround if x + 1 == width && width > 1 => {
                        results[channel][y * width]
                    }
                    _ => value,
                };
                let stored = if fault == Fault::OnePixelOneUlpOff && middle {
                    let right = D::nearest(value);
                    let step = if D::KIND.is_integer() {
                        1.0
                    } else {
                        value.abs() * f64::from(f32::EPSILON)
                    };
                    D::nearest(right.value() + if right.value() > 0.0 { -step } else { step })
                } else {
                    store(fault, value)
                };
                dst.buffer[dst.start + y * dst.stride + i] = stored;
            }
            if fault == Fault::GapWritten && dst.stride > shape.row_len() {
                dst.buffer[dst.start + y * dst.stride + shape.row_len()] = D::nearest(0.0);
            }
        }
        if fault == Fault::GuardWritten {
            dst.buffer[dst.start - 1] = D::nearest(0.0);
        }
        Ok(())
    }
}

/// Converts a result, with one of the faults of conversion, or none.
fn store<D: Sample>(fault: Fault, value: f64) -> D {
    let range = if D::KIND == Kind::U8 { 256.0 } else { 65536.0 };
    match fault {
        _ if !D::KIND.is_integer() => D::nearest(value),
        Fault::Truncated => D::nearest(value.trunc()),
        Fault::RoundedHalfUp => D::nearest((value + 0.5).floor()),
        Fault::WrappedAround => D::nearest(value.round_ties_even().rem_euclid(range)),
        _ => D::nearest(value),
    }
}

/// The whole-number taps one by one, and the denominator of their sums.
fn numerators(window: &Window) -> (Vec<i128>, Denominator) {
    let Whole { taps, denominator, .. } = window.whole();
    let (cols, middle) = (window.cols, window.rows / 2 * window.cols + window.cols / 2);
    let taps = match taps {
        WholeTaps::Table(taps) => taps.into_iter().map(i128::from).collect(),
        WholeTaps::Products(terms, point) => {
            let of = |i: usize| {
                let start = if i == middle { point } else { 0 };
                let product = |(row, column): &(Vec<i64>, Vec<i64>)| {
                    i128::from(row[i % cols]) * i128::from(column[i / cols])
                };
                start + terms.iter().map(product).sum::<i128>()
            };
            (0..cols * window.rows).map(of).collect()
        }
    };
    (taps, denominator)
}

/// A quotient in multiples of a half, plus a quarter if it lies between two: so it stays on its
/// side of a half.
fn quotient(sum: i128, denominator: Denominator) -> f64 {
    let (twice, step) = match denominator {
        Denominator::Count(count) => (2 * sum, i128::from(count)),
        Denominator::Power(power @ 0..=100) => (2 * sum, 1 << power),
        Denominator::Power(power) => return sum as f64 * 2f64.powi(-power),
    };
    let rest = twice.rem_euclid(step);
    0.5 * twice.div_euclid(step) as f64 + if rest > 0 { 0.25 } else { 0.0 }
}

impl Prepared {
    /// `sum |tap|` times the greatest magnitude of some pixels.
    fn scale<S: Sample>(&self, pixels: &[S]) -> f64 {
        let weight: f64 = self.window.taps.iter().map(|tap| tap.abs()).sum();
        weight * pixels.iter().fold(0.0, |greatest, pixel| f64::max(greatest, pixel.value().abs()))
    }

    /// The place of the pixel for column or row `i`, with one of the border's faults, or none.
    fn find(&self, i: i64, n: usize) -> Option<usize> {
        let last = n as i64 - 1;
        let outside = !(0..=last).contains(&i);
        let border = match (self.stand_in.fault, self.border) {
            (Fault::ReflectionsSwapped, Border::Reflect) => Border::Reflect101,
            (Fault::ReflectionsSwapped, Border::Reflect101) => Border::Reflect,
            (_, border) => border,
        };
        match self.stand_in.fault {
            Fault::BorderOffByOne if i == last + 1 && n > 1 => {
                Some(fold(border, i, n)?.saturating_sub(1))
            }
            Fault::OnlyOneFold if border == Border::Reflect101 && outside => {
                Some((if i < 0 { -i } else { 2 * last - i }).clamp(0, last) as usize)
            }
            _ => fold(border, i, n),
        }
    }

    /// The tap for a cell, if any, with one of the taps' faults, or none.
    fn tap(&self, row: usize, col: usize) -> Option<usize> {
        let Window { cols, rows, .. } = &self.window;
        let last = cols * rows - 1;
        match self.stand_in.fault {
            Fault::AxesSwapped => Some((col * rows + row).min(last)),
            Fault::Flipped => Some(last - (row * cols + col)),
            Fault::OneRowOfTapsTransposed if row == rows / 2 => Some(row * cols + cols - 1 - col),
            Fault::LastTapForgotten if row * cols + col == last && last > 0 => None,
            _ => Some(row * cols + col),
        }
    }

    /// By whole-number taps if they are given, else in f32.
    fn direct(
        &self,
        plane: &[f64],
        (width, height): (usize, usize),
        whole: Option<&(Vec<i128>, Denominator)>,
    ) -> Vec<f64> {
        let fault = self.stand_in.fault;
        let Window { cols, rows, anchor, .. } = self.window;
        let anchor = match fault {
            Fault::AnchorAlwaysInTheMiddle => (cols / 2, rows / 2),
            Fault::AnchorsSwapped => (anchor.1.min(cols - 1), anchor.0.min(rows - 1)),
            _ => anchor,
        };
        let constant = match (fault, self.border) {
            (Fault::ConstantIsZero, _) => 0.0,
            (_, Border::Constant(value)) => f64::from(value as f32),
            _ => 0.0,
        };
        let mut cells: Vec<(usize, usize)> =
            (0..cols * rows).map(|i| (i / cols, i % cols)).collect();
        match fault {
            Fault::RightToLeft => cells.sort_by_key(|&(row, col)| (row, cols - col)),
            Fault::ColumnByColumn => cells.sort_by_key(|&(row, col)| (col, row)),
            _ => {}
        }
        let keeps = |x: usize, y: usize| {
            let one_less = usize::from(fault == Fault::KeepOneTooFew);
            self.border == Border::Keep
                && fault != Fault::KeepIgnored
                && (kept(x, anchor.0, cols, width + one_less) || kept(y, anchor.1, rows, height))
        };
        let pixel = |x: usize, y: usize| -> f64 {
            if keeps(x, y) {
                return plane[y * width + x];
            }
            // The last row and column that the pixel's tile would load.
            let edge =
                (x / TILE.0 * TILE.0 + TILE.0 + cols - 2, y / TILE.1 * TILE.1 + TILE.1 + rows - 2);
            let (mut exact, mut sum) = (0i128, 0.0f32);
            for &(row, col) in &cells {
                let source_x = self.find((x + col) as i64 - anchor.0 as i64, width);
                let source_y = self.find((y + row) as i64 - anchor.1 as i64, height);
                let value = match (source_x, source_y) {
                    _ if fault == Fault::HaloRowMissing && y + row == edge.1 => 0.0,
                    _ if fault == Fault::HaloColumnMissing && x + col == edge.0 => 0.0,
                    (Some(x), Some(y)) => plane[y * width + x],
                    (Some(_), None) if fault == Fault::ConstantInsideRowsOnly => 0.0,
                    _ => constant,
                };
                let place = self.tap(row, col);
                let tap = place.map_or(0.0, |place| self.window.taps[place]);
                if fault == Fault::ZeroTapsSkipped && tap == 0.0 {
                    continue;
                }
                if let (Some((taps, _)), Some(place)) = (whole, place) {
                    exact += taps[place] * value as i128;
                }
                let (tap, value) = (tap as f32, value as f32);
                sum = if fault == Fault::NotFused {
                    tap * value + sum
                } else {
                    tap.mul_add(value, sum)
                };
                if fault == Fault::SubnormalsFlushed && sum.is_subnormal() {
                    sum = 0.0;
                }
            }
            whole.map_or(sum.into(), |&(_, denominator)| quotient(exact, denominator))
        };
        (0..width * height).map(|i| pixel(i % width, i / width)).collect()
    }

    fn separable(&self, plane: &[f64], size: (usize, usize)) -> Vec<f64> {
        let fault = self.stand_in.fault;
        let (window, border) = (&self.window, self.border);
        let plane: Vec<f32> = plane.iter().map(|&value| value as f32).collect();
        let (row, column) = window.filter.separated().expect("the lists hold pairs");
        let (mut row, mut column) = (row.to_vec(), column.to_vec());
        match fault {
            Fault::ColumnTapForgotten if column.len() > 1 => column[window.rows - 1] = 0.0,
            Fault::RowAndColumnSwapped if window.rows == window.cols => {
                std::mem::swap(&mut row, &mut column)
            }
            _ => {}
        }
        let result = match fault {
            Fault::DirectInstead => scalar::direct(&plane, size, window.as_taps(), border),
            Fault::BorderNotFiltered | Fault::MiddleInHalfPrecision => {
                self.two_passes(&plane, size, &row, &column)
            }
            _ if self.stand_in.order == Some(Order::Product) => {
                scalar::product(&plane, size, window.as_taps(), (&row, &column), border)
            }
            _ => scalar::separable(&plane, size, window.as_taps(), (&row, &column), border),
        };
        result.into_iter().map(f64::from).collect()
    }

    /// Both passes, with a fault between them.
    fn two_passes(
        &self,
        plane: &[f32],
        (width, height): (usize, usize),
        row: &[f64],
        column: &[f64],
    ) -> Vec<f32> {
        let constant = if let Border::Constant(value) = self.border { value as f32 } else { 0.0 };
        let padded =
            Padded::new(plane, (width, height), self.window.as_taps(), self.border, constant);
        let middle = |x: usize, y: usize| -> f32 {
            let outside = self.find(y as i64 - self.window.anchor.1 as i64, height).is_none();
            if outside && self.stand_in.fault == Fault::BorderNotFiltered {
                return constant;
            }
            let values = &padded.data[y * padded.width + x..];
            let sum = row
                .iter()
                .zip(values)
                .fold(0.0, |sum, (&tap, &value)| (tap as f32).mul_add(value, sum));
            if self.stand_in.fault == Fault::MiddleInHalfPrecision {
                f16::from_f32(sum).to_f32()
            } else {
                sum
            }
        };
        let pixel = |x: usize, y: usize| -> f32 {
            let cells = column.iter().enumerate();
            cells.fold(0.0, |sum, (row, &tap)| (tap as f32).mul_add(middle(x, y + row), sum))
        };
        (0..width * height).map(|i| pixel(i % width, i / width)).collect()
    }
}
