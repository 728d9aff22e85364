//! Resolves bytes that estimates leave uncertain, by exact sums of whole numbers; launches
//! `gpu-kernels/src/kernels/resolve.rs`.

use gpu_kernels::abi::{Pass, Window};
use gpu_kernels::divisor::Divisor;
use gpu_kernels::kernels::resolve::{
    BLOCKS, COLUMN_BYTES, COLUMN_DIGITS, LEAST_BLOCKS, Near, PART, Products, ROW_PADDING, SHARED,
    TABLE_DIGITS, Team, resolve_products, resolve_table,
};

use super::prepared::PassJob;
use crate::Result;
use crate::filter::whole::{self, Whole, WholeTaps};
use crate::gpu::{launch::Grid, stream::Stream};

/// Resolves the results in the list of the job's pass, whose channels are those that are filtered.
pub(crate) fn launch(job: &PassJob<'_>, stream: &mut Stream) -> Result<()> {
    let grid = |team: Team| grid(&job.pass, job.planes, team);
    let (pass, window, planes) = (job.pass, job.window, job.planes as i32);
    let Numerators { address, divisor, products } = numerators(job)?;
    let of_table = Team::new(fours(window.cols), window.rows);
    // SAFETY: the kernels take so many of these blocks; the pass has a list, and describes
    // allocated memory.
    unsafe {
        match products {
            Some((products, near)) => {
                // Without a table, words of memory begin up to three columns before the window.
                let team = match near.taps {
                    0 => team_of_products(&window),
                    _ => of_table,
                };
                stream.enqueue(
                    resolve_products,
                    grid(team),
                    &(pass, window, products, near, divisor, team, planes),
                )
            }
            None => stream.enqueue(
                resolve_table,
                grid(of_table),
                &(pass, window, address, divisor, of_table, planes),
            ),
        }
    }
}

/// The team of a result by a product of a row and a column that has no table of sums: each thread
/// takes four columns and four rows.
pub(crate) fn team_of_products(window: &Window) -> Team {
    Team::new(fours(window.cols + 3), fours(window.rows))
}

/// Groups of four.
fn fours(count: i32) -> i32 {
    (count + 3) / 4
}

/// The grid of a kernel that resolves results of so many planes, each by a team.
pub(crate) fn grid(pass: &Pass, planes: u32, team: Team) -> Grid {
    let (width, height) = team.block();
    Grid { blocks: (blocks(pass, planes), 1, 1), block: (width, height, 1), shared: SHARED }
}

/// The whole numbers that define bytes, in the GPU's memory.
fn numerators(job: &PassJob<'_>) -> Result<Numerators> {
    let size = (job.window.cols as usize, job.window.rows as usize);
    let make = || Numerators::new(&job.taps.given().byte_filter()?.whole, size);
    let (address, numerators) = job.taps.table(("numerators", 0), make)?;
    Ok(numerators.at(address))
}

/// The blocks of a launch: about one for each uncertain result of a small picture.
fn blocks(pass: &Pass, planes: u32) -> u32 {
    /// Results of which hardly more than one is uncertain.
    const RESULTS: u64 = 64;
    let region = &pass.region;
    let pixels =
        (region.x1 - region.x0) as u64 * (region.y1 - region.y0) as u64 * u64::from(planes);
    (pixels / RESULTS).next_power_of_two().clamp(LEAST_BLOCKS as u64, BLOCKS as u64) as u32
}

/// A filter's taps in whole numbers, in the GPU's memory.
#[derive(Clone, Copy, Debug)]
struct Numerators {
    address: u64,
    divisor: Divisor,
    /// Where they are no table.
    products: Option<(Products, Near)>,
}

impl Numerators {
    /// Of a filter: the words to upload, and their layout as if they began at address 0.
    fn new(whole: &Whole, (cols, rows): (usize, usize)) -> Result<(Vec<u32>, Self)> {
        let table = |numerators: &[i64], by: whole::Divisor| {
            Ok((
                table_words(numerators, cols)?,
                Self { address: 0, divisor: by.into(), products: None },
            ))
        };
        let (terms, point) = match &whole.taps {
            WholeTaps::Table(numerators) => return table(numerators, whole.divisor),
            WholeTaps::Products { terms, point, .. } => (terms, *point),
        };
        let near = RoundedTable::near(whole, (cols, rows))?;
        if let Some(RoundedTable { numerators, divisor, error: 0 }) = &near {
            return table(numerators, *divisor);
        }
        let each = term_words((cols, rows));
        let mut words = crate::memory::reserve(terms.len() * each)?;
        terms.iter().for_each(|(row, column)| push_term(&mut words, row, column));
        if let Some(near) = &near {
            words.extend(table_words(&near.numerators, cols)?);
        }
        let products = Products {
            taps: 0,
            apart: 4 * each as i64,
            point: [(point >> PART) as i64, (point & ((1 << PART) - 1)) as i64],
            terms: terms.len() as i32,
            unused: 0,
        };
        let taps = 4 * (terms.len() * each) as u64;
        let near = match near {
            Some(RoundedTable { divisor: by, error, .. }) => {
                Near { taps, error, divisor: by.into() }
            }
            None => Near { taps: 0, error: 0, divisor: Divisor::number(1) },
        };
        Ok((
            words,
            Self { address: 0, divisor: whole.divisor.into(), products: Some((products, near)) },
        ))
    }

    /// The same with the words at an address.
    fn at(self, address: u64) -> Self {
        let moved = |(products, near): (Products, Near)| {
            let taps = if near.taps == 0 { 0 } else { near.taps + address };
            (Products { taps: products.taps + address, ..products }, Near { taps, ..near })
        };
        Self { address, products: self.products.map(moved), ..self }
    }
}

/// The taps of products as a table, rounded if necessary.
struct RoundedTable {
    numerators: Vec<i64>,
    divisor: whole::Divisor,
    /// How far a sum over bytes may be off, in numerators.
    error: i64,
}

impl RoundedTable {
    /// For small windows: in larger ones sums over products take less time, by calculation.
    fn near(whole: &Whole, (cols, rows): (usize, usize)) -> Result<Option<Self>> {
        const MAX_TAPS: usize = 65 * 65;
        /// The greatest `sum |tap|` before the taps are rounded, as a power of two: below that of a
        /// table.
        const SUM: u32 = 44;
        let WholeTaps::Products { terms, point, .. } = &whole.taps else { return Ok(None) };
        if cols * rows > MAX_TAPS {
            return Ok(None);
        }
        let mut taps: Vec<i128> = crate::memory::zeroed(cols * rows)?;
        for (row, column) in terms {
            for (taps, &down) in taps.chunks_exact_mut(cols).zip(column) {
                taps.iter_mut()
                    .zip(row)
                    .for_each(|(tap, &across)| *tap += i128::from(across) * i128::from(down));
            }
        }
        taps[rows / 2 * cols + cols / 2] += point;
        let sum: u128 = taps.iter().map(|tap| tap.unsigned_abs()).sum();
        let cut = (sum.max(1).ilog2() + 1).saturating_sub(SUM);
        let divisor = match whole.divisor {
            divisor if cut == 0 => divisor,
            whole::Divisor::PowerOfTwo(shift) => whole::Divisor::PowerOfTwo(shift - cut as i32),
            whole::Divisor::Number(_) => return Ok(None),
        };
        let half = (1i128 << cut) >> 1;
        let rounded = |tap: i128| (tap + half) >> cut;
        let lost: u128 = taps.iter().map(|&tap| (tap - (rounded(tap) << cut)).unsigned_abs()).sum();
        let error = (255 * lost).div_ceil(1 << cut) as i64;
        Ok(Some(Self {
            numerators: taps.iter().map(|&tap| rounded(tap) as i64).collect(),
            divisor,
            error,
        }))
    }
}

/// The lowest digits of a number to the base 256, from -128 to 127 each.
fn digits<const N: usize>(mut number: i64) -> [u8; N] {
    std::array::from_fn(|_| {
        let low = number as i8;
        number = (number - i64::from(low)) >> 8;
        low.cast_unsigned()
    })
}

/// A table's taps: for each four columns of a row, a word of each digit.
fn table_words(numerators: &[i64], cols: usize) -> Result<Vec<u32>> {
    let mut words =
        crate::memory::reserve(numerators.len() / cols * cols.div_ceil(4) * TABLE_DIGITS)?;
    for four in numerators.chunks_exact(cols).flat_map(|row| row.chunks(4)) {
        words.extend(words_of::<TABLE_DIGITS>(four));
    }
    Ok(words)
}

/// For each digit, those of up to four numbers.
fn words_of<const N: usize>(four: &[i64]) -> [u32; N] {
    let mut words = [[0; 4]; N];
    for (at, &number) in four.iter().enumerate() {
        for (word, digit) in words.iter_mut().zip(digits::<N>(number)) {
            word[at] = digit;
        }
    }
    words.map(u32::from_le_bytes)
}

/// Words of a product of a row and a column: a multiple of four, so that each product's begin at 16
/// bytes.
fn term_words((cols, rows): (usize, usize)) -> usize {
    let row = 2 * (ROW_PADDING.0 + cols + ROW_PADDING.1);
    (COLUMN_BYTES / 4 * rows.div_ceil(4) + row).next_multiple_of(4)
}

/// A column's digits, and the row's taps, between zeros.
pub(crate) fn push_term(words: &mut Vec<u32>, row: &[i64], column: &[i64]) {
    let start = words.len();
    for four in column.chunks(4) {
        words.extend(words_of::<COLUMN_DIGITS>(four));
        words.extend([0; COLUMN_BYTES / 4 - COLUMN_DIGITS]);
    }
    words.extend([0; 2 * ROW_PADDING.0]);
    words.extend(row.iter().flat_map(|&tap| [tap as u32, (tap >> 32) as u32]));
    words.resize(start + term_words((row.len(), column.len())), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_the_number() {
        for number in [
            0,
            1,
            -1,
            127,
            128,
            -128,
            -129,
            1 << 37,
            -(1 << 37),
            (1 << 45) + 12_345,
            -(1 << 45) - 777,
        ] {
            let sum = |digits: &[u8]| -> i64 {
                digits
                    .iter()
                    .rev()
                    .fold(0, |sum, &digit| 256 * sum + i64::from(digit.cast_signed()))
            };
            assert_eq!(sum(&digits::<TABLE_DIGITS>(number)), number);
            if number.abs() <= 1 << 37 {
                assert_eq!(sum(&digits::<COLUMN_DIGITS>(number)), number);
            }
        }
    }

    /// Kernels and the CPU make the same bytes of sums: near every half, where rounding turns, and
    /// far away.
    #[test]
    fn kernels_divide_as_the_definition_does() {
        let numbers =
            [1, 2, 3, 6, 36, 65_535, 65_536, 160_801, (1 << 61) / 255].map(whole::Divisor::Number);
        let powers = (-10..128).chain([-1000, 400]).map(whole::Divisor::PowerOfTwo);
        for of in powers.chain(numbers) {
            let most: i128 = match of {
                whole::Divisor::Number(_) => 1 << 61,
                whole::Divisor::PowerOfTwo(_) => 1 << 84,
            };
            for halves in (0..520).chain([-3, -1, 1 << 20]) {
                for beside in [-(1i128 << 70), -257, -1, 0, 1, 255, 1 << 40] {
                    let half = match of {
                        whole::Divisor::Number(number) => halves * i128::from(number) / 2,
                        whole::Divisor::PowerOfTwo(shift) => halves << (shift - 1).clamp(0, 70),
                    };
                    let sum = half + beside;
                    if sum.abs() <= most {
                        let (high, low) = ((sum >> 64) as i64, sum as u64);
                        let byte = Divisor::from(of).byte(high, low) as u8;
                        assert_eq!(byte, of.byte(sum), "{sum} over {of:?}");
                    }
                }
            }
        }
    }
}
