//! Windows, problems, and groups of problems that share a plan.

use apron::{Border, Filter, Shape};
use fastrand::Rng;
use oracle::{Made, Products, Taps, Whole};

use crate::sample::{Data, Kind};

/// A filter under test: the product's filter, and facts about it that the tests know without it.
#[derive(Clone, Debug)]
pub struct Window {
    /// A description of the taps.
    pub name: String,
    /// Tap columns.
    pub cols: usize,
    /// Tap rows.
    pub rows: usize,
    /// Column and row of the anchor.
    pub anchor: (usize, usize),
    /// Taps, row by row. Empty if there are more than [`Window::LIMIT`]: such a window is tested
    /// with bytes alone.
    pub taps: Vec<f64>,
    /// The form in which the filter was given. It decides the results of bytes made of bytes.
    pub made: Made,
    /// The product's filter.
    pub filter: Filter,
}

impl Window {
    /// The most taps that [`Window::taps`] holds.
    pub const LIMIT: usize = 1 << 22;

    /// Random taps in -1 to 1.
    pub fn random(cols: usize, rows: usize, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let taps: Vec<f32> = (0..cols * rows).map(|_| 2.0 * rng.f32() - 1.0).collect();
        Self::dense("random", cols, rows, &taps)
    }

    /// Random taps with a sum of 1, whose magnitudes add up to about `weight`. Results of bytes
    /// have all values, and many are uncertain.
    pub fn random_of_weight(cols: usize, rows: usize, weight: f32, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let taps: Vec<f32> = (0..cols * rows).map(|_| 2.0 * rng.f32() - 1.0).collect();
        let (sizes, sum) =
            taps.iter().fold((0.0, 0.0), |(sizes, sum), tap| (sizes + tap.abs(), sum + tap));
        let scale = weight / sizes;
        let level = (1.0 - scale * sum) / taps.len() as f32;
        let taps: Vec<f32> = taps.iter().map(|tap| scale * tap + level).collect();
        Self::dense(format!("random of weight {weight}"), cols, rows, &taps)
    }

    /// Taps given row by row.
    ///
    /// # Panics
    /// If the product refuses them: every test's windows are legal.
    pub fn dense(name: impl Into<String>, cols: usize, rows: usize, taps: &[f32]) -> Self {
        let name = name.into();
        let filter = Filter::from_taps(cols, rows, taps)
            .unwrap_or_else(|e| panic!("{name} {cols}x{rows}: {e}"));
        let taps: Vec<f64> = taps.iter().map(|&tap| f64::from(tap)).collect();
        Self {
            name,
            cols,
            rows,
            anchor: (cols / 2, rows / 2),
            made: Made::Table(taps.clone()),
            taps,
            filter,
        }
    }

    /// Taps in f64, given row by row.
    ///
    /// # Panics
    /// If the product refuses them.
    pub fn table(name: impl Into<String>, cols: usize, rows: usize, taps: &[f64]) -> Self {
        let name = name.into();
        let filter = Filter::from_taps_f64(cols, rows, taps)
            .unwrap_or_else(|e| panic!("{name} {cols}x{rows}: {e}"));
        let taps = taps.to_vec();
        Self {
            name,
            cols,
            rows,
            anchor: (cols / 2, rows / 2),
            made: Made::Table(taps.clone()),
            taps,
            filter,
        }
    }

    /// The product of a row and a column in f64.
    ///
    /// # Panics
    /// If the product refuses them.
    pub fn product(name: impl Into<String>, row: &[f64], column: &[f64]) -> Self {
        let name = name.into();
        let (cols, rows) = (row.len(), column.len());
        let filter = Filter::separable_f64(row, column)
            .unwrap_or_else(|e| panic!("{name} {cols}x{rows}: {e}"));
        let rows_kept = if cols * rows <= Self::LIMIT { column } else { &[] };
        let taps = rows_kept.iter().flat_map(|&y| row.iter().map(move |&x| x * y)).collect();
        let made = Made::Product(row.to_vec(), column.to_vec());
        Self { name, cols, rows, anchor: (cols / 2, rows / 2), taps, made, filter }
    }

    /// The product of a row and a column of random taps in -1 to 1.
    pub fn random_pair(cols: usize, rows: usize, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut taps = |len| -> Vec<f32> { (0..len).map(|_| 2.0 * rng.f32() - 1.0).collect() };
        let (row, column) = (taps(cols), taps(rows));
        Self::pair("random pair", &row, &column)
    }

    /// The product of a row and a column.
    ///
    /// # Panics
    /// If the product refuses them.
    pub fn pair(name: impl Into<String>, row: &[f32], column: &[f32]) -> Self {
        let name = name.into();
        let (cols, rows) = (row.len(), column.len());
        let filter =
            Filter::separable(row, column).unwrap_or_else(|e| panic!("{name} {cols}x{rows}: {e}"));
        // Exact: two f32 multiply into an f64 without rounding.
        let taps = column
            .iter()
            .flat_map(|&y| row.iter().map(move |&x| f64::from(x) * f64::from(y)))
            .collect();
        let wide = |taps: &[f32]| taps.iter().map(|&tap| f64::from(tap)).collect();
        let made = Made::Product(wide(row), wide(column));
        Self { name, cols, rows, anchor: (cols / 2, rows / 2), taps, made, filter }
    }

    /// The sum of two products of random taps, given as a table. The product must find the two.
    ///
    /// # Panics
    /// If it does not.
    pub fn random_sum(cols: usize, rows: usize, seed: u64) -> Self {
        let pairs = [0, 1].map(|term| Self::random_pair(cols, rows, seed + 1000 * term));
        let taps: Vec<f32> =
            pairs[0].taps.iter().zip(&pairs[1].taps).map(|(a, b)| (a + b) as f32).collect();
        let window = Self::dense("random sum", cols, rows, &taps);
        assert!(window.filter.summed().is_some(), "{cols}x{rows}: no sum was found");
        window
    }

    /// Random taps that are not negative, with a sum of about 1: bytes seldom saturate.
    pub fn blur(cols: usize, rows: usize, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let taps: Vec<f32> =
            (0..cols * rows).map(|_| 2.0 * rng.f32() / (cols * rows) as f32).collect();
        Self::dense("random blur", cols, rows, &taps)
    }

    /// The product of a row and a column that are each like [`Window::blur`].
    pub fn blur_pair(cols: usize, rows: usize, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut taps =
            |len: usize| -> Vec<f32> { (0..len).map(|_| 2.0 * rng.f32() / len as f32).collect() };
        let (row, column) = (taps(cols), taps(rows));
        Self::pair("random pair of blurs", &row, &column)
    }

    /// A filter in the product's notation, with the product's taps.
    ///
    /// # Panics
    /// If the product refuses it.
    pub fn preset(text: &str) -> Self {
        let filter: Filter = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        let (cols, rows) = (filter.cols(), filter.rows());
        let kept = if cols * rows <= Self::LIMIT { cols * rows } else { 0 };
        let taps = (0..kept).map(|i| filter.tap(i / cols, i % cols)).collect();
        let made = Made::of(&filter);
        Self { name: text.to_owned(), cols, rows, anchor: filter.anchor(), taps, made, filter }
    }

    /// The same window with its anchor elsewhere.
    ///
    /// # Panics
    /// If the product refuses it.
    pub fn anchored(mut self, x: usize, y: usize) -> Self {
        self.filter = self
            .filter
            .anchored(x, y)
            .unwrap_or_else(|e| panic!("{} at ({x}, {y}): {e}", self.name));
        self.anchor = (x, y);
        self
    }

    /// The same window rotated by 180 degrees.
    pub fn flipped(mut self) -> Self {
        self.filter = self.filter.flipped();
        self.taps.reverse();
        match &mut self.made {
            Made::Table(taps) => taps.reverse(),
            Made::Product(row, column) => [row, column].into_iter().for_each(|taps| taps.reverse()),
            // The presets that are sums are symmetric.
            Made::Sum { .. } => {}
        }
        self.anchor = self.filter.anchor();
        self
    }

    /// A window of the same form and size whose taps are not negative and sum to 1. For a sum, a
    /// soft mask of a size of its own.
    pub fn average(&self) -> Self {
        let even = |taps: &[f64]| -> Vec<f64> {
            let greatest = taps.iter().fold(0.0, |greatest: f64, tap| greatest.max(tap.abs()));
            let sizes =
                taps.iter().map(|tap| if greatest > 0.0 { tap.abs() / greatest } else { 1.0 });
            let sum: f64 = sizes.clone().sum();
            sizes.map(|size| size / sum).collect()
        };
        let name = format!("average, {}", self.name);
        let window = match &self.made {
            Made::Table(taps) => Self::table(name, self.cols, self.rows, &even(taps)),
            Made::Product(row, column) => Self::product(name, &even(row), &even(column)),
            Made::Sum { .. } => return Self::preset("unsharp:sigma=1.5,amount=-0.6"),
        };
        window.anchored(self.anchor.0, self.anchor.1)
    }

    /// The window as the oracle takes it.
    pub fn as_taps(&self) -> Taps<'_> {
        Taps { cols: self.cols, rows: self.rows, anchor: self.anchor, values: &self.taps }
    }

    /// The whole-number taps that define bytes made of bytes.
    pub fn whole(&self) -> Whole {
        Whole::new((self.cols, self.rows), self.anchor, &self.made)
    }

    /// The products by which the filter is computed, if it is separable or a sum of separable
    /// filters.
    pub fn products(&self) -> Option<Products<'_>> {
        Products::of(&self.filter)
    }

    /// The distances of the product's factors from the taps, summed over the window. Zero if the
    /// filter was given as factors.
    pub fn split_error(&self) -> f64 {
        let Some(Products { centre, terms }) = self.products() else { return 0.0 };
        let place = self.anchor.1 * self.cols + self.anchor.0;
        let product = |i: usize| {
            let start = if i == place { centre } else { 0.0 };
            terms
                .iter()
                .fold(start, |sum, (row, column)| sum + row[i % self.cols] * column[i / self.cols])
        };
        self.taps.iter().enumerate().map(|(i, tap)| (tap - product(i)).abs()).sum()
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (x, y) = self.anchor;
        write!(f, "window {}x{} ({}) anchor ({x}, {y})", self.cols, self.rows, self.name)
    }
}

/// One picture to filter, and how it is stored. Its pixels follow from the seed.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Width, height and channels.
    pub shape: Shape,
    /// Elements between the rows of the source and of the destination.
    pub gaps: (usize, usize),
    /// Stored type of the source.
    pub input: Kind,
    /// Stored type of the destination.
    pub output: Kind,
    /// How the pixels are generated.
    pub data: Data,
    /// The seed of the pixels.
    pub seed: u64,
}

impl Problem {
    /// A single channel of random f32 without gaps between rows.
    pub fn new(width: usize, height: usize, seed: u64) -> Self {
        Self {
            shape: Shape { width, height, channels: 1 },
            gaps: (0, 0),
            input: Kind::F32,
            output: Kind::F32,
            data: Data::Random,
            seed,
        }
    }

    /// The same with other stored types.
    pub fn stored(self, input: Kind, output: Kind) -> Self {
        Self { input, output, ..self }
    }

    /// The same with this number of channels.
    pub fn channels(self, channels: usize) -> Self {
        Self { shape: Shape { channels, ..self.shape }, ..self }
    }

    /// The same with these gaps, in elements, between the rows of source and destination.
    pub fn gaps(self, src: usize, dst: usize) -> Self {
        Self { gaps: (src, dst), ..self }
    }

    /// The same with other pixels.
    pub fn data(self, data: Data) -> Self {
        Self { data, ..self }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { shape, gaps, input, output, data, seed } = self;
        let (src, dst) = (shape.row_len() + gaps.0, shape.row_len() + gaps.1);
        write!(
            f,
            "{shape} {input} -> {output}, strides {src} -> {dst}, {data:?} pixels of seed {seed:#x}"
        )
    }
}

/// Problems that one plan solves, one after the other.
#[derive(Clone, Debug)]
pub struct Group {
    /// The filter.
    pub window: Window,
    /// The border.
    pub border: Border,
    /// The pictures.
    pub problems: Vec<Problem>,
}
