//! The exact sum of a single result, and the byte that it makes.
//!
//! Numerators are whole numbers ([`Whole`](crate::filter::whole::Whole)), so sums have no order.
//! All partial sums over a table lie below 2^53: exact in f64. Of a product of a row and a column,
//! the sums of columns lie below 2^45, exact in f64 too; their sum, each times a tap of the row,
//! takes 128 bits.

use std::ops::Range;
use std::sync::OnceLock;

use gpu_kernels::border::copies;

use crate::Border;
use crate::filter::ByteFilter;
use crate::filter::whole::WholeTaps;
use crate::image::ImageView;
use crate::simd::{Isa, Lanes, Vector, Vectorized};
use crate::window::Window;

/// Values that are summed together: a multiple of any vectors.
const LANES: usize = 64;

/// Rows that are summed together: so many pages the processor finds at once.
const BLOCK: usize = 32;

/// Computes single results of an 8-bit image.
pub(crate) struct Resolver<'a> {
    src: ImageView<'a, u8>,
    /// The channels that are filtered.
    filtered: usize,
    pub(super) of_bytes: &'a ByteFilter,
    window: Window,
    outside: u8,
    /// Numerators in f64 of each term's column, one after the other.
    columns: OnceLock<Vec<f64>>,
    /// Those of a table.
    spread: OnceLock<Spread>,
}

/// A thread's memory.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(super) memory: super::Memory,
    /// A row's uncertain results.
    pub(super) uncertain: Vec<usize>,
    /// A row of one channel's results.
    pub(super) bytes: Vec<u8>,
    /// The row of results that `under` is for.
    y: Option<usize>,
    /// The tap rows that lie on rows of the image, and those rows.
    under: Vec<(usize, usize)>,
    /// The sums of columns.
    sums: Vec<f64>,
}

/// A result: its column, row and channel.
type Place = (usize, usize, usize);

impl<'a> Resolver<'a> {
    /// For the first `filtered` channels of `src`.
    pub(crate) fn new(
        src: ImageView<'a, u8>,
        filtered: usize,
        of_bytes: &'a ByteFilter,
        border: Border,
    ) -> Self {
        let window = Window::new(&of_bytes.filter, border);
        Self {
            src,
            filtered,
            of_bytes,
            window,
            outside: window.border_value as u8,
            columns: OnceLock::new(),
            spread: OnceLock::new(),
        }
    }

    /// The results of a window of one tap, for each value.
    pub(crate) fn of_single_pixels(of_bytes: &ByteFilter) -> [u8; 256] {
        let numerator = match &of_bytes.whole.taps {
            WholeTaps::Table(taps) => taps.iter().map(|&tap| i128::from(tap)).sum(),
            WholeTaps::Products { terms, point, .. } => {
                let products =
                    terms.iter().map(|(row, column)| i128::from(row[0]) * i128::from(column[0]));
                products.sum::<i128>() + point
            }
        };
        std::array::from_fn(|value| of_bytes.whole.divisor.byte(numerator * value as i128))
    }

    pub(super) fn channels(&self) -> usize {
        self.src.shape().channels
    }

    /// The byte at element `at` of a part of row `y` that begins at column `x`; `None` in a channel
    /// that is not filtered.
    pub(super) fn byte(
        &self,
        isa: Isa,
        (x, y): (usize, usize),
        at: usize,
        scratch: &mut Scratch,
    ) -> Option<u8> {
        let (shape, window) = (self.src.shape(), &self.window);
        let (x, channel) = (x + at / shape.channels, at % shape.channels);
        if channel >= self.filtered {
            return None;
        }
        if copies(window.border)
            && (window.leaves_columns(x, shape.width) || window.leaves_rows(y, shape.height))
        {
            return Some(self.src.row(y)[x * shape.channels + channel]);
        }
        if scratch.y != Some(y) {
            scratch.y = Some(y);
            let row = |row| window.row(y, row, shape.height).map(|source| (row, source));
            scratch.under.clear();
            scratch.under.extend((0..window.rows).filter_map(row));
        }
        let place = (x, y, channel);
        let sum = match &self.of_bytes.whole.taps {
            WholeTaps::Table(taps) => self.table(isa, taps, place, scratch).into(),
            WholeTaps::Products { terms, point, .. } => {
                let number = terms.iter().enumerate();
                let products = number.map(|(term, (row, column))| {
                    self.product(isa, term, (row, column), place, scratch)
                });
                products.sum::<i128>()
                    + if *point == 0 { 0 } else { point * i128::from(self.middle(place)) }
            }
        };
        Some(self.of_bytes.whole.divisor.byte(sum))
    }

    /// The pixel under the middle of the window.
    fn middle(&self, (x, y, channel): Place) -> u8 {
        let (shape, window) = (self.src.shape(), &self.window);
        let row = window.row(y, window.rows / 2, shape.height).map(|row| self.src.row(row));
        let pixel = row.zip(window.column(x, window.cols / 2, shape.width));
        pixel.map_or(self.outside, |(row, x)| row[x * shape.channels + channel])
    }

    /// The element under the first tap of a row, if all of the row lies in the image.
    fn first(&self, (x, _, channel): Place) -> Option<usize> {
        let left = x.checked_sub(self.window.anchor_x)?;
        (left + self.window.cols <= self.src.shape().width)
            .then_some(left * self.channels() + channel)
    }

    /// The element under a tap of a row; `None` outside.
    fn element(&self, (x, _, channel): Place, col: usize) -> Option<usize> {
        self.window.column(x, col, self.src.shape().width).map(|x| x * self.channels() + channel)
    }

    /// The sum over a table.
    fn table(&self, isa: Isa, taps: &[i64], place: Place, scratch: &Scratch) -> i64 {
        let (cols, row_len) = (self.window.cols, self.src.shape().row_len());
        let (lies_in, len) = (scratch.under.len() == self.window.rows, self.spread_len());
        let fits = |first: &usize| lies_in && len <= row_len && first + len <= row_len + LANES;
        if let Some(first) = self.first(place).filter(fits) {
            let spread = self.spread.get_or_init(|| self.spread(taps));
            if !spread.taps.is_empty() {
                // What would be read beyond the row is read before the window, where taps are zero.
                let before = (first + len).saturating_sub(row_len);
                let (first, skip) = (first - before, LANES - before);
                return isa.run(Table {
                    resolver: self,
                    first,
                    under: &scratch.under,
                    spread,
                    skip,
                    len,
                }) as i64;
            }
        }
        let mut under = scratch.under.iter().copied().peekable();
        let mut sum = 0;
        for (number, taps) in taps.chunks_exact(cols).enumerate() {
            let row =
                under.next_if(|&(row, _)| row == number).map(|(_, source)| self.src.row(source));
            let pixel =
                |col| row.zip(self.element(place, col)).map_or(self.outside, |(row, at)| row[at]);
            sum +=
                taps.iter().enumerate().map(|(col, &tap)| tap * i64::from(pixel(col))).sum::<i64>();
        }
        sum
    }

    /// The elements that a row of taps covers in whole vectors.
    fn spread_len(&self) -> usize {
        (self.window.cols * self.channels()).next_multiple_of(LANES)
    }

    /// No taps if they would take too much memory.
    fn spread(&self, taps: &[i64]) -> Spread {
        /// Values, of eight bytes.
        const LIMIT: usize = 1 << 24;
        let pitch = LANES + self.spread_len();
        let all = pitch.saturating_mul(self.window.rows);
        let mut spread: Vec<f64> =
            if all > LIMIT { Vec::new() } else { crate::memory::zeroed(all).unwrap_or_default() };
        let mut filled = Vec::new();
        for (spread, taps) in
            spread.chunks_exact_mut(pitch).zip(taps.chunks_exact(self.window.cols))
        {
            let places = spread[LANES..].iter_mut().step_by(self.channels());
            places.zip(taps).for_each(|(place, &tap)| *place = tap as f64);
            let is_some = |tap: &f64| *tap != 0.0;
            let first = spread.iter().position(is_some).unwrap_or(pitch);
            filled.push(first..spread.iter().rposition(is_some).map_or(first, |last| last + 1));
        }
        Spread { taps: spread, filled }
    }

    /// The sum of a term: sums of columns, each times a tap of the row.
    fn product(
        &self,
        isa: Isa,
        term: usize,
        (row, column): (&[i64], &[i64]),
        place: Place,
        Scratch { under, sums, .. }: &mut Scratch,
    ) -> i128 {
        let (rows, row_len) = (self.window.rows, self.src.shape().row_len());
        let first = self.first(place);
        let element = |col: usize| match first {
            Some(first) => Some(first + col * self.channels()),
            None => self.element(place, col),
        };
        let elements = || (0..row.len()).filter_map(element);
        // Where no column lies in the image, any serves.
        let (least, last) = match first {
            Some(first) => (first, first + (row.len() - 1) * self.channels()),
            None => (elements().min().unwrap_or(0), elements().max().unwrap_or(0)),
        };
        let len = (last + 1 - least).next_multiple_of(LANES).min(row_len);
        let least = least.min(row_len - len);
        let columns = self.columns.get_or_init(|| self.columns());
        sums.clear();
        sums.resize(len, 0.0);
        isa.run(Columns {
            resolver: self,
            first: least,
            under,
            taps: &columns[term * rows..][..rows],
            sums,
        });

        let weight: i64 = column.iter().sum();
        let above_or_below = weight - under.iter().map(|&(row, _)| column[row]).sum::<i64>();
        let (beside, more) =
            [weight, above_or_below].map(|weight| weight * i64::from(self.outside)).into();
        let sum = |col| element(col).map_or(beside, |at| sums[at - least] as i64 + more);
        row.iter().enumerate().map(|(col, &tap)| i128::from(tap) * i128::from(sum(col))).sum()
    }

    /// All terms' columns.
    fn columns(&self) -> Vec<f64> {
        match &self.of_bytes.whole.taps {
            WholeTaps::Products { terms, .. } => {
                terms.iter().flat_map(|(_, column)| column).map(|&tap| tap as f64).collect()
            }
            WholeTaps::Table(_) => Vec::new(),
        }
    }
}

/// Rows of a table's taps, as they lie on an interleaved row of pixels: with zeros on the other
/// channels, and [`LANES`] zeros before each row.
struct Spread {
    taps: Vec<f64>,
    /// The part of each row outside which all are 0: rows of a line at an angle are mostly zeros.
    filled: Vec<Range<usize>>,
}

/// The sum over a table whose window lies in the image.
struct Table<'a> {
    resolver: &'a Resolver<'a>,
    /// The element that is read first, and how many from there on.
    first: usize,
    len: usize,
    under: &'a [(usize, usize)],
    spread: &'a Spread,
    /// How many taps of each row are skipped.
    skip: usize,
}

impl Vectorized for Table<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> f64 {
        let Self {
            resolver: Resolver { src, .. },
            first,
            len,
            under,
            spread: Spread { taps, filled },
            skip,
        } = self;
        let pitch = LANES + len;
        assert!(
            under.len() * pitch <= taps.len()
                && skip <= LANES
                && first + len <= src.shape().row_len()
        );
        const { assert!(LANES.is_multiple_of(W * L::Wide::LEN)) };
        let mut all = [0.0; LANES];
        // SAFETY: this is in `Vectorized::run`; rows of pixels and of taps are long enough, as is
        // asserted, and so is the array.
        unsafe {
            for ((under, taps), filled) in
                under.chunks(BLOCK).zip(taps.chunks(BLOCK * pitch)).zip(filled.chunks(BLOCK))
            {
                for at in (0..len).step_by(W * L::Wide::LEN) {
                    let mut sums = [L::Wide::splat(0.0); W];
                    for ((&(_, row), taps), filled) in
                        under.iter().zip(taps.chunks_exact(pitch)).zip(filled)
                    {
                        if skip + at >= filled.end || skip + at + W * L::Wide::LEN <= filled.start {
                            continue;
                        }
                        let (bytes, taps) =
                            (src.row(row).as_ptr().add(first + at), taps.as_ptr().add(skip + at));
                        for (v, sum) in sums.iter_mut().enumerate() {
                            let values = L::widen_bytes(bytes.add(v * L::Wide::LEN));
                            *sum = values.mul_add(L::Wide::load(taps.add(v * L::Wide::LEN)), *sum);
                        }
                    }
                    for (v, sum) in sums.iter().enumerate() {
                        let place = all.as_mut_ptr().add(v * L::Wide::LEN);
                        L::Wide::load(place).add(*sum).store(place);
                    }
                }
            }
        }
        all.iter().sum()
    }
}

/// Sums of columns.
struct Columns<'a> {
    resolver: &'a Resolver<'a>,
    /// The first element.
    first: usize,
    under: &'a [(usize, usize)],
    taps: &'a [f64],
    sums: &'a mut [f64],
}

impl Vectorized for Columns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { resolver: Resolver { src, .. }, first, under, taps, sums } = self;
        assert!(first + sums.len() <= src.shape().row_len());
        let whole = sums.len() / (W * L::Wide::LEN) * (W * L::Wide::LEN);
        for under in under.chunks(BLOCK) {
            for at in (0..whole).step_by(W * L::Wide::LEN) {
                // SAFETY: this is in `Vectorized::run`; rows are long enough, as is asserted, and
                // so are the sums.
                unsafe {
                    let place = sums.as_mut_ptr().add(at);
                    let mut vectors = [L::Wide::splat(0.0); W];
                    for (v, sum) in vectors.iter_mut().enumerate() {
                        *sum = L::Wide::load(place.add(v * L::Wide::LEN));
                    }
                    for &(tap, row) in under {
                        let (tap, bytes) =
                            (L::Wide::splat(taps[tap]), src.row(row).as_ptr().add(first + at));
                        for (v, sum) in vectors.iter_mut().enumerate() {
                            *sum = L::widen_bytes(bytes.add(v * L::Wide::LEN)).mul_add(tap, *sum);
                        }
                    }
                    for (v, sum) in vectors.iter().enumerate() {
                        sum.store(place.add(v * L::Wide::LEN));
                    }
                }
            }
            for &(tap, row) in under {
                let values = &src.row(row)[first + whole..];
                let rest = sums[whole..].iter_mut().zip(values);
                rest.for_each(|(sum, &value)| *sum += taps[tap] * f64::from(value));
            }
        }
    }
}
