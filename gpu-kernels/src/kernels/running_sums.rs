//! Means of bytes by exact running sums: the time hardly depends on the window.
//!
//! Tiling: a block slides down a strip of the image, row by row, and keeps the sum under the window
//! of each result. For each column, the change is the entering pixel minus the leaving pixel.
//! Shared memory holds prefix sums of these changes along the strip. The difference of two prefix
//! sums is the change of one window's sum. Integers accumulate no rounding errors.
//!
//! Thread mapping: a row is one line of values, channels interleaved. A thread has [`VALUES`]
//! neighbouring columns and makes four results at a time. The grid's x axis counts strips in the
//! order of `tile/strip.rs`, its z axis images.
//!
//! - Near entries, for small windows: a block is one warp, and a ring in shared memory keeps the
//!   rows under the window. Integers are held in f32, in units of `2^-133` (see `tile/flat.rs`): a
//!   GPU adds f32 at twice the rate of integers, exactly up to 24 bits.
//! - Far entries, for all other windows: a block has more warps, as a strip needs columns beyond
//!   its results. Rows are loaded again when they leave. Integers are u32.
//!
//! Rounding: the exact quotient, half to even, by a multiplication ([`Mean`]). Limits: bytes to
//! bytes, no epilogue; taps of `1 / divisor`, at most `divisor` of them; `divisor` at most 2^23,
//! below 2^14 in near entries; the value outside the image is a byte. Copies at the border:
//! `keep.rs`.

use crate::abi::{Pass, Window};
use crate::border;
use crate::device::*;
use crate::pixel::joined;
use crate::tile::strip::edges_first;
use crate::tile::view::Source;
use crate::tile::whole::{self, is_whole};

/// Columns of a thread: a multiple of every channel count and of the 4 values of a word.
pub const VALUES: i32 = 12;
const V: usize = VALUES as usize;

/// Words of a thread's columns, and of its results. A lane's result words are `lane`, `lane + 32`,
/// ... of its warp.
const WORDS: usize = V / 4;
const OF_WARP: i32 = 32 * WORDS as i32;

/// The most warps of a block.
pub const MAX_WARPS: i32 = 16;

/// The most rows of a near entry's window.
pub const MAX_ROWS: i32 = 48;

/// Bytes of a row in the ring.
const ROW: i32 = 32 * VALUES;

/// The greatest divisor of near entries; [`FAR_DIVISOR`] is that of far entries.
pub const NEAR_DIVISOR: u32 = (1 << 14) - 1;
/// See [`NEAR_DIVISOR`].
pub const FAR_DIVISOR: u32 = 1 << 23;

/// The window, and how a sum of its pixels becomes a byte.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Mean {
    /// The window.
    pub window: Window,
    /// The divisor of a sum.
    pub divisor: u32,
    /// Multiplier of a sum plus half of the divisor: the byte is the product shifted right by
    /// `32 + shift`.
    pub inverse: u32,
    /// See [`Mean::inverse`].
    pub shift: u32,
    /// Whether a sum may be a tie that the multiplication rounds up, not to even.
    pub has_ties: u32,
    /// Multiplier that makes a near entry's f32 sum `2^-24` times the byte.
    pub scale: f32,
    /// Multiplier that makes `2^-24` times a byte a sum again, negated.
    pub back: f32,
    /// Half of the divisor, as a near entry's f32 sum.
    pub tie: f32,
}

impl Mean {
    /// `divisor` is 2 to [`FAR_DIVISOR`], and the window has at most `divisor` taps.
    pub fn new(window: Window, divisor: u32, is_near: bool) -> Self {
        // 2^shift < divisor <= 2^(shift + 1).
        let shift = (divisor - 1).ilog2();
        // The sum plus half of the divisor is below `256 * divisor`, and the inverse is too great
        // by less than 1. So the product is too great by less than `256 * divisor`. That is at most
        // `2^(32 + shift) / divisor`, the step of the quotients, as
        // `256 * divisor * divisor <= 2^31 * divisor <= 2^(32 + shift)`: no quotient is rounded up.
        let inverse = (1u64 << (32 + shift)).div_ceil(divisor.into()) as u32;
        // The reciprocal is rounded up, so every tie rounds up. The quotient of any other sum lies
        // at least `1 / (2 * divisor) > 2^-15` from a tie, and the product is less than 2^-15 too
        // great.
        let near = 1.0 / divisor as f32;
        let is_less = (near as f64) * (divisor as f64) < 1.0;
        let above = if is_less { f32::from_bits(near.to_bits() + 1) } else { near };
        let is_rounded = is_near && divisor.is_power_of_two();
        Self {
            window,
            divisor,
            inverse,
            shift,
            has_ties: (divisor.is_multiple_of(2) && !is_rounded) as u32,
            scale: above * UP,
            back: divisor as f32 / -UP,
            tie: 0.5 * divisor as f32 / UP * LEAST,
        }
    }

    /// The byte nearest to the quotient of a sum, half to even, by integers.
    #[inline(always)]
    pub const fn byte(&self, sum: u32) -> u32 {
        let moved = sum.wrapping_add(self.divisor / 2);
        let byte = ((moved as u64 * self.inverse as u64) >> 32) as u32 >> self.shift;
        let is_tie = self.has_ties != 0 && moved == self.divisor.wrapping_mul(byte);
        if is_tie { byte & !1 } else { byte }
    }

    /// [`Mean::byte`] in f32, for a sum times `2^-133`. The byte is in the lowest bits.
    #[inline(always)]
    pub fn byte_of_f32(&self, sum: f32, fma: impl Fn(f32, f32, f32) -> f32) -> u32 {
        /// From 0.5 to 1, f32 has steps of `2^-24`: adding 0.75 to a result leaves its byte in the
        /// lowest bits, rounded half to even.
        const SHIFT: f32 = 0.75;
        let shifted = fma(sum, self.scale, SHIFT);
        // The exact remainder of the sum. A tie that was rounded up leaves minus half of the
        // divisor.
        let is_tie = self.has_ties != 0 && fma(shifted - SHIFT, self.back, sum) <= -self.tie;
        if is_tie { shifted.to_bits() & !1 } else { shifted.to_bits() }
    }
}

/// Factor from an input byte, held as `2^-133` times its value, to a result, `2^-24` times. `LEAST`
/// is the result of byte value 1.
const UP: f32 = f32::from_bits((127 + 109) << 23);
const LEAST: f32 = f32::from_bits((127 - 24) << 23);

/// Words of results in a strip of a block of `warps`. The window reaches `reach` values beyond a
/// result.
pub const fn words(warps: i32, reach: i32) -> i32 {
    // A strip begins up to three values left of the first value that it needs.
    (32 * warps * VALUES - reach - 3) / 4
}

/// Bytes of shared memory of a block of `warps`. The ring has `slots` rows, 0 in far entries.
pub const fn shared_bytes(warps: i32, reach: i32, slots: i32) -> u32 {
    (4 * Layout::of(warps, reach).ring + ROW * slots) as u32
}

/// Offsets in shared memory, in words. The first `4 * MAX_WARPS` words hold the warps' sums.
#[derive(Clone, Copy)]
struct Layout {
    /// Positions in the row of each thread's values, for threads that load value by value.
    numbers: i32,
    /// Prefix sums, in four arrays by column modulo 4: lanes that load four columns each avoid bank
    /// conflicts.
    sums: i32,
    /// Words of one of the four arrays.
    apart: i32,
    /// Words after the arrays, loaded by lanes without results.
    behind: i32,
    /// The ring of near entries.
    ring: i32,
}

impl Layout {
    const fn of(warps: i32, reach: i32) -> Self {
        let (numbers, columns) = (4 * MAX_WARPS, 32 * warps * VALUES);
        let sums = numbers + columns;
        // One word more in each array for the sums left of the first column, which are 0.
        let apart = columns / 4 + 1;
        let behind = sums + 4 * apart;
        Self { numbers, sums, apart, behind, ring: behind + reach / 4 + 4 }
    }

    /// Clears the sums left of the first column and the words after the last.
    ///
    /// # Safety
    /// The whole block calls this before its first barrier.
    #[inline(always)]
    unsafe fn clear(&self, warps: i32) {
        let (shared, thread) = (Shared::dynamic(), 32 * thread_y() + thread_x());
        // SAFETY: as the caller promised; each place is one thread's.
        unsafe {
            if thread < 4 {
                shared.store(self.sums + self.apart * thread, 0.0);
            }
            let mut at = opaque(self.behind + thread);
            while at < self.ring {
                shared.store(at, 0.0);
                at += 32 * warps;
            }
        }
    }
}

/// An integer type for sums.
trait Number: Copy {
    const ZERO: Self;

    /// Byte `i` of a word.
    fn of_byte(word: u32, i: usize) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    /// Adds `other` if `is_said`.
    fn plus_if(self, is_said: bool, other: Self) -> Self;
    fn bits(self) -> u32;
    fn from_bits(bits: u32) -> Self;

    /// The byte of a sum, in the lowest bits.
    fn byte(self, mean: &Mean) -> u32;
}

impl Number for f32 {
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn of_byte(word: u32, i: usize) -> Self {
        // The byte moves to bits 16 to 23: `2^-133` times its value.
        f32::from_bits(match i {
            0 => permute::<0x4044>(word, 0),
            1 => permute::<0x4144>(word, 0),
            2 => permute::<0x4244>(word, 0),
            _ => permute::<0x4344>(word, 0),
        })
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }

    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self - other
    }

    #[inline(always)]
    fn plus_if(self, is_said: bool, other: Self) -> Self {
        fma(other, if is_said { 1.0 } else { 0.0 }, self)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.to_bits()
    }

    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        f32::from_bits(bits)
    }

    #[inline(always)]
    fn byte(self, mean: &Mean) -> u32 {
        mean.byte_of_f32(self, fma)
    }
}

impl Number for u32 {
    const ZERO: Self = 0;

    #[inline(always)]
    fn of_byte(word: u32, i: usize) -> Self {
        match i {
            0 => permute::<0x4440>(word, 0),
            1 => permute::<0x4441>(word, 0),
            2 => permute::<0x4442>(word, 0),
            _ => permute::<0x4443>(word, 0),
        }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }

    #[inline(always)]
    fn plus_if(self, is_said: bool, other: Self) -> Self {
        self.wrapping_add(if is_said { other } else { 0 })
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self
    }

    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        bits
    }

    #[inline(always)]
    fn byte(self, mean: &Mean) -> u32 {
        mean.byte(self)
    }
}

/// Declares and lists the entries
/// `name: channels, is_near, number type, most registers of a thread`.
macro_rules! running_sums {
    ($($name:ident: $c:literal, $near:literal, $number:ident, $limit:literal;)*) => {
        kernel! {$(
            fn $name(pass: Pass, mean: Mean, filtered: i32, rows: i32) {
                directive!($limit);
                slide::<$c, $near, $number>(&pass, &mean, filtered, rows)
            }
        )*}

        host! {
            /// The entries.
            pub const ENTRIES: &[RunningSums] = &[$(RunningSums { entry: $name, channels: $c, is_near: $near }),*];
        }
    };
}

running_sums! {
    running_sums_near_c1: 1, true, f32, ".maxnreg 88";
    running_sums_near_c2: 2, true, f32, ".maxnreg 80";
    running_sums_near_c3: 3, true, f32, ".maxnreg 80";
    running_sums_near_c4: 4, true, f32, ".maxnreg 80";
    running_sums_far_c1: 1, false, u32, ".maxnreg 96";
    running_sums_far_c2: 2, false, u32, ".maxnreg 96";
    running_sums_far_c3: 3, false, u32, ".maxnreg 96";
    running_sums_far_c4: 4, false, u32, ".maxnreg 96";
}

host! {
    /// An entry. Arguments: the pass, the mean, the number of filtered channels of a pixel, the
    /// rows of a strip.
    #[derive(Clone, Copy, Debug)]
    pub struct RunningSums {
        /// The entry to launch.
        pub entry: crate::entry::Entry<(Pass, Mean, i32, i32)>,
        /// Channels of a pixel.
        pub channels: usize,
        /// Whether this is a near entry.
        pub is_near: bool,
    }
}

/// Filters a strip from top to bottom.
///
/// # Safety
/// `pass` describes allocated memory and keeps the limits above. A block has one warp if NEAR, else
/// up to [`MAX_WARPS`], in y. The grid has one block in x for each strip. The block has
/// [`shared_bytes`] of shared memory, with `window.rows` slots if NEAR.
#[inline(always)]
unsafe fn slide<const C: usize, const NEAR: bool, N: Number>(
    pass: &Pass,
    mean: &Mean,
    filtered: i32,
    rows: i32,
) {
    const { assert!(C > 0 && C <= 4 && V.is_multiple_of(C)) }
    let warps = if NEAR { 1 } else { block_height() };
    let strip = Strip::new::<C>(pass, mean, warps, rows);
    let layout = Layout::of(warps, strip.reach);
    // Rows of a window above its last row.
    let above = mean.window.rows - 1;
    // SAFETY: as the caller promised, for all that follows. The block passes a barrier between a
    // thread's stores and other threads' loads of them.
    unsafe {
        let input = Input::<C>::new(pass, &layout, (warps, above), &strip);
        let output = Output::<C>::new(pass, filtered, strip);
        let windows = Windows::new::<C>(&layout, &strip);
        let mut ring = Ring::new(mean, &layout);
        layout.clear(warps);
        let mut columns = columns_above::<C, NEAR, N>(&input, &mut ring, strip.first, above);
        let mut sums = [[N::ZERO; 4]; WORDS];
        sum_up::<C, NEAR, N>(&layout, &columns);
        windows.add(&mut sums);
        let mut feed = Feed::new(&input, strip.first, above);
        let mut entering = input.load(feed.last, feed.at_last);
        let mut leaving = [0; WORDS];
        let mut y = strip.top;
        loop {
            let (new, old) = (entering, leaving);
            let is_last = y + 1 >= strip.bottom;
            if is_last {
                let_next_kernel_begin();
            } else {
                entering = feed.enter::<NEAR>();
                if !NEAR {
                    leaving = feed.leave();
                }
            }
            if NEAR {
                ring.put(&new);
            }
            let mut i = 0;
            while i < V {
                columns[i] = N::of_byte(new[i / 4], i % 4).minus(N::of_byte(old[i / 4], i % 4));
                i += 1;
            }
            sum_up::<C, NEAR, N>(&layout, &columns);
            windows.add(&mut sums);
            output.write(mean, &sums, y);
            if NEAR {
                leaving = ring.take();
            }
            if is_last {
                break;
            }
            y += 1;
        }
    }
}

/// Rows that are loaded together before the first result.
const AT_ONCE: usize = 6;

/// The sums of a thread's columns over `above` rows from row `first` on. NEAR: puts the rows in the
/// ring, too.
///
/// # Safety
/// As for [`slide`].
#[inline(always)]
unsafe fn columns_above<const C: usize, const NEAR: bool, N: Number>(
    input: &Input<'_, C>,
    ring: &mut Ring,
    first: i32,
    above: i32,
) -> [N; V] {
    let mut columns = [N::ZERO; V];
    let mut row = opaque(0);
    // SAFETY: as the caller promised.
    unsafe {
        while row < above {
            // Several rows load together, to hide memory latency.
            let mut words = [[0; WORDS]; AT_ONCE];
            let mut n = 0;
            while n < AT_ONCE {
                if row + (n as i32) < above {
                    let y = first + row + n as i32;
                    words[n] = input.load(y, input.at(y));
                }
                n += 1;
            }
            n = 0;
            while n < AT_ONCE {
                if NEAR && row + (n as i32) < above {
                    ring.put(&words[n]);
                }
                // Rows past `above` are 0.
                let mut i = 0;
                while i < V {
                    columns[i] = columns[i].plus(N::of_byte(words[n][i / 4], i % 4));
                    i += 1;
                }
                n += 1;
            }
            row += AT_ONCE as i32;
        }
    }
    columns
}

/// Rows between a prefetch into the L2 cache and the load of that row.
const AHEAD: i32 = 6;

/// A thread's loads of the rows that enter the windows and of those that leave.
struct Feed<'a, const C: usize> {
    input: &'a Input<'a, C>,
    /// The row that entered last, and the next one to leave.
    last: i32,
    first: i32,
    /// The addresses of the thread's words in these rows.
    at_last: u64,
    at_first: u64,
    /// Bytes from a row to the next.
    below: u64,
    /// Rows before this one have a row [`AHEAD`] rows below them to prefetch.
    far: i32,
}

impl<'a, const C: usize> Feed<'a, C> {
    /// For windows that begin at row `first` and have `above` more rows.
    #[inline(always)]
    fn new(input: &'a Input<'a, C>, first: i32, above: i32) -> Self {
        let (last, plane) = (first + above, input.source.plane());
        let (at_last, at_first) = (input.at(last), input.at(first));
        let (below, far) = (plane.row as u64, plane.end_row - AHEAD);
        Self { input, last, first, at_last, at_first, below, far }
    }

    /// Goes on to the next row that enters, and loads it.
    ///
    /// # Safety
    /// As for [`slide`].
    #[inline(always)]
    unsafe fn enter<const NEAR: bool>(&mut self) -> [u32; WORDS] {
        self.last += 1;
        self.at_last = self.at_last.wrapping_add(self.below);
        // SAFETY: as the caller promised.
        let words = unsafe { self.input.load(self.last, self.at_last) };
        if NEAR && self.last < self.far && self.input.is_simple() {
            prefetch(self.at_last.wrapping_add(self.below.wrapping_mul(AHEAD as u64)));
        }
        words
    }

    /// Loads the next row that leaves.
    ///
    /// # Safety
    /// As for [`slide`].
    #[inline(always)]
    unsafe fn leave(&mut self) -> [u32; WORDS] {
        // SAFETY: as the caller promised.
        let words = unsafe { self.input.load(self.first, self.at_first) };
        self.first += 1;
        self.at_first = self.at_first.wrapping_add(self.below);
        words
    }
}

/// A block's part of the region. Numbers of values count from the start of a row.
#[derive(Clone, Copy)]
struct Strip {
    /// The first result's number: a multiple of four.
    x: i32,
    /// Words of results.
    words: i32,
    /// The number of the first column.
    left: i32,
    /// The first result's window begins `skew` values right of `left`; its last column is `reach`
    /// values further.
    skew: i32,
    reach: i32,
    /// The first row of results, and the end of the rows.
    top: i32,
    bottom: i32,
    /// The first input row.
    first: i32,
}

impl Strip {
    #[inline(always)]
    fn new<const C: usize>(pass: &Pass, mean: &Mean, warps: i32, rows: i32) -> Self {
        let (region, window, channels) = (&pass.region, &mean.window, C as i32);
        let reach = (window.cols - 1) * channels;
        let words = words(warps, reach);
        let begin = (region.x0 * channels) & !3;
        // `checked`, so that no panic is compiled in; there are strips.
        let divided = |count: i32, by: i32| {
            ((count + by - 1) as u32).checked_div(by as u32).unwrap_or(0) as i32
        };
        let across = divided(region.x1 * channels - begin, 4 * words);
        let (column, line) = edges_first(block_x(), across, divided(region.y1 - region.y0, rows));
        let x = begin + 4 * words * column;
        let needed = x - window.anchor_x * channels;
        let top = region.y0 + rows * line;
        let bottom = if region.y1 - top < rows { region.y1 } else { top + rows };
        let left = needed & !3;
        Self {
            x,
            words,
            left,
            skew: needed - left,
            reach,
            top,
            bottom,
            first: top - window.anchor_y,
        }
    }
}

/// A thread's columns of the input rows of a strip.
struct Input<'a, const C: usize> {
    source: Source<'a>,
    /// The number of its first value in a row.
    first: i32,
    /// How the thread loads its values.
    way: Way,
    /// Whether memory has all rows that the strip needs.
    has_rows: bool,
    /// For [`Way::Each`]: the shared-memory word that holds the row position of the first value,
    /// and the distance in words to the next position.
    numbers: (i32, i32),
}

/// How a thread loads its values of a row.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Not at all: no result needs them.
    Idle,
    /// As words of the row.
    Words,
    /// Value by value.
    Each,
}

/// Flag in a row position: the border replaces this value with the value outside the image. A row
/// has at most 2^30 values, so the bit is free.
const OUTSIDE: u32 = 1 << 31;

impl<'a, const C: usize> Input<'a, C> {
    /// # Safety
    /// As for [`slide`].
    #[inline(always)]
    unsafe fn new(
        pass: &'a Pass,
        layout: &Layout,
        (warps, above): (i32, i32),
        strip: &Strip,
    ) -> Self {
        let (channels, thread) = (C as i32, 32 * thread_y() + thread_x());
        let source = Source::of_channel(&pass.src, pass, block_z() * channels);
        let first = strip.left + VALUES * thread;
        let (end, last) = (pass.region.x1 * channels, strip.x + 4 * strip.words);
        let needed = (if last < end { last } else { end }) - strip.x + strip.skew + strip.reach;
        let is_inside = first >= 0 && first + VALUES <= pass.width * channels;
        let way = if VALUES * thread >= needed {
            Way::Idle
        } else if is_inside && is_whole::<3>(&pass.src, channels, source.origin()) {
            Way::Words
        } else {
            Way::Each
        };
        let numbers = (layout.numbers + thread, 32 * warps);
        if way == Way::Each {
            // An offset makes the pixel number positive, so that the division rounds down.
            let beside = pass.width + 4 * MAX_WARPS * 32 * VALUES;
            let mut i = opaque(0);
            while i < VALUES {
                let shifted = (first + i).wrapping_add(channels.wrapping_mul(beside)) as u32;
                let pixel = shifted / C as u32;
                let channel = shifted - C as u32 * pixel;
                let column =
                    border::resolve(pass.border, (pixel as i32).wrapping_sub(beside), pass.width);
                let (column, outside) = if column < 0 { (0, OUTSIDE) } else { (column, 0) };
                let number = channels as u32 * column as u32 + channel;
                // SAFETY: only this thread uses the place.
                unsafe {
                    Shared::dynamic()
                        .store(numbers.0 + numbers.1 * i, f32::from_bits(number | outside))
                };
                i = opaque(i + 1);
            }
        }
        let has_rows = source.has_rows(strip.first, strip.bottom + strip.first - strip.top + above);
        Self { source, first, way, has_rows, numbers }
    }

    /// The address of the thread's words in row `y`, if memory has that row.
    #[inline(always)]
    fn at(&self, y: i32) -> u64 {
        self.source.row_inside(y).at(0).wrapping_add(self.first as i64 as u64)
    }

    /// Whether the thread loads words of rows that memory has, so that their addresses suffice.
    #[inline(always)]
    fn is_simple(&self) -> bool {
        self.has_rows && self.way == Way::Words
    }

    /// Loads the thread's values of row `y`, whose words are at `at`.
    ///
    /// # Safety
    /// As for [`slide`].
    #[inline(always)]
    unsafe fn load(&self, y: i32, at: u64) -> [u32; WORDS] {
        if self.is_simple() {
            // SAFETY: the words are there.
            return unsafe { Self::words(at) };
        }
        // `opaque` keeps the compiler from computing this slow path's values ahead.
        let row = self.source.row(opaque(y));
        let outside = self.source.pass.outside as u32;
        if !row.is_inside() {
            return [outside * 0x0101_0101; WORDS];
        }
        let mut words = [0; WORDS];
        // SAFETY: the values are there.
        unsafe {
            if self.way == Way::Words {
                words = Self::words(row.at(0).wrapping_add(self.first as i64 as u64));
            } else if self.way == Way::Each {
                let mut bytes = [0; V];
                let mut i = 0;
                while i < V {
                    let found =
                        Shared::dynamic().load_word(self.numbers.0 + self.numbers.1 * i as i32);
                    let number = (found & !OUTSIDE) as i32;
                    // Interleaved channels have their pixels side by side; pixels of a single
                    // channel may have any stride.
                    let at =
                        if C == 1 { row.at(number) } else { row.at(0).wrapping_add(number as u64) };
                    let byte = load_u8(at);
                    bytes[i] = if found & OUTSIDE != 0 { outside } else { byte };
                    i += 1;
                }
                let mut w = 0;
                while w < WORDS {
                    words[w] = bytes[4 * w]
                        | bytes[4 * w + 1] << 8
                        | bytes[4 * w + 2] << 16
                        | bytes[4 * w + 3] << 24;
                    w += 1;
                }
            }
        }
        words
    }

    /// # Safety
    /// The words are there.
    #[inline(always)]
    unsafe fn words(at: u64) -> [u32; WORDS] {
        let (mut words, mut w) = ([0; WORDS], 0);
        while w < WORDS {
            // SAFETY: as the caller promised.
            [words[w]] = unsafe { load_words(at.wrapping_add(4 * w as u64)) };
            w += 1;
        }
        words
    }
}

/// Stores the prefix sum of every column, by channel, in shared memory. The sums may overflow:
/// their differences are right.
///
/// # Safety
/// As for [`slide`]; the whole block calls this.
#[inline(always)]
unsafe fn sum_up<const C: usize, const NEAR: bool, N: Number>(layout: &Layout, columns: &[N; V]) {
    let (shared, lane, warp) = (Shared::dynamic(), thread_x(), thread_y());
    let mut sums = *columns;
    let mut i = C;
    while i < V {
        sums[i] = sums[i].plus(sums[i - C]);
        i += 1;
    }
    // SAFETY: the whole warp is here.
    let (mut before, all) = unsafe { of_lanes::<C, N>(&sums) };
    // SAFETY: only one thread stores to each place. The block passes a barrier between a store and
    // the loads of other threads, and between these loads and the next store.
    unsafe {
        if NEAR {
            warp_barrier();
        } else {
            if lane == 0 {
                let mut c = 0;
                while c < C {
                    shared.store(4 * warp + c as i32, f32::from_bits(all[c].bits()));
                    c += 1;
                }
            }
            barrier();
            let mut other = opaque(0);
            while other < warp {
                let mut c = 0;
                while c < C {
                    before[c] =
                        before[c].plus(N::from_bits(shared.load_word(4 * other + c as i32)));
                    c += 1;
                }
                other += 1;
            }
        }
        let mut i = 0;
        while i < V {
            let place = layout.sums + layout.apart * (i as i32 % 4) + 1 + i as i32 / 4;
            let sum = sums[i].plus(before[i % C]).bits();
            shared.store(place + WORDS as i32 * (32 * warp + lane), f32::from_bits(sum));
            i += 1;
        }
        if NEAR {
            warp_barrier();
        } else {
            barrier();
        }
    }
}

/// From each lane's sums by channel, at the end of `sums`: the sums of the lanes before this one,
/// and of all lanes.
///
/// # Safety
/// The whole warp calls this.
#[inline(always)]
unsafe fn of_lanes<const C: usize, N: Number>(sums: &[N; V]) -> ([N; C], [N; C]) {
    // `all` are the sums of the group of `apart` lanes.
    let (mut before, mut all) = ([N::ZERO; C], [N::ZERO; C]);
    let mut c = 0;
    while c < C {
        all[c] = sums[V - C + c];
        c += 1;
    }
    let mut apart = 1;
    while apart < 32 {
        let mut c = 0;
        while c < C {
            // SAFETY: as the caller promised.
            let others = N::from_bits(unsafe { exchange(all[c].bits(), apart) });
            before[c] = before[c].plus_if(thread_x() as u32 & apart != 0, others);
            all[c] = all[c].plus(others);
            c += 1;
        }
        apart *= 2;
    }
    (before, all)
}

/// Shared-memory words of the prefix sums at the start and the end of the windows of a thread's
/// first four results. The next four results' words lie 32 further.
struct Windows {
    from: [i32; 4],
    to: [i32; 4],
}

impl Windows {
    #[inline(always)]
    fn new<const C: usize>(layout: &Layout, strip: &Strip) -> Self {
        // Column 0 follows the four zeros left of it.
        let place = |column: i32| {
            let word = OF_WARP * thread_y() + thread_x();
            layout.sums + layout.apart * (column & 3) + (column >> 2) + word
        };
        let first = strip.skew + 4;
        Self {
            from: [0, 1, 2, 3].map(|i| place(first - C as i32 + i)),
            to: [0, 1, 2, 3].map(|i| place(first + strip.reach + i)),
        }
    }

    /// Adds the change of each window to the thread's sums.
    ///
    /// # Safety
    /// Shared memory holds the prefix sums of the columns.
    #[inline(always)]
    unsafe fn add<N: Number>(&self, sums: &mut [[N; 4]; WORDS]) {
        let mut n = 0;
        while n < WORDS {
            let mut i = 0;
            while i < 4 {
                let place = |first: i32| {
                    // SAFETY: as the caller promised.
                    N::from_bits(unsafe { Shared::dynamic().load_word(first + 32 * n as i32) })
                };
                sums[n][i] = sums[n][i].plus(place(self.to[i])).minus(place(self.from[i]));
                i += 1;
            }
            n += 1;
        }
    }
}

/// The results of a strip.
struct Output<'a, const C: usize> {
    pass: &'a Pass,
    filtered: i32,
    strip: Strip,
    /// The address of value 0 in row 0.
    origin: u64,
    /// One bit for each of this thread's words: whether the word has results, and whether one store
    /// writes the whole word.
    there: u32,
    whole: u32,
    /// Whether the store copies the last of four channels from the source.
    copies: bool,
}

impl<'a, const C: usize> Output<'a, C> {
    #[inline(always)]
    fn new(pass: &'a Pass, filtered: i32, strip: Strip) -> Self {
        let (z, channels) = (block_z() * C as i32, C as i32);
        let origin = pass.dst.origin(z, &pass.channels);
        let copies = C == 4
            && filtered == 3
            && is_whole::<3>(&pass.src, channels, pass.src.origin(z, &pass.channels));
        let takes_words =
            is_whole::<3>(&pass.dst, channels, origin) && (copies || filtered == channels);
        let (first, end) = (pass.region.x0 * channels, pass.region.x1 * channels);
        let (mut there, mut whole) = (0, 0);
        let mut n = 0;
        while n < WORDS {
            let beside = word_place(n as i32);
            let value = strip.x + beside;
            if beside < 4 * strip.words {
                there |= 1 << n;
                whole |= if takes_words && value >= first && value + 4 <= end { 1 << n } else { 0 };
            }
            n += 1;
        }
        Self { pass, filtered, strip, origin, there, whole, copies }
    }

    /// Writes row `y`.
    ///
    /// # Safety
    /// As for [`slide`].
    #[inline(always)]
    unsafe fn write<N: Number>(&self, mean: &Mean, sums: &[[N; 4]; WORDS], y: i32) {
        let Self { pass, strip, .. } = self;
        let row = self.origin.wrapping_add((y as i64 * pass.dst.row + strip.x as i64) as u64);
        let mut words = [0; WORDS];
        let mut n = 0;
        while n < WORDS {
            words[n] = joined(sums[n].map(|sum| sum.byte(mean)));
            if self.whole >> n & 1 != 0 {
                let beside = word_place(n as i32);
                // SAFETY: the word lies in the region.
                unsafe {
                    let word = if self.copies {
                        whole::with_copied(pass, C as i32, words[n], (strip.x + beside, y))
                    } else {
                        words[n]
                    };
                    store_words(row.wrapping_add(beside as u64), [word]);
                }
            }
            n += 1;
        }
        if self.there != self.whole {
            // SAFETY: as the caller promised.
            unsafe { self.write_partial(&words, y) };
        }
    }

    /// Writes results of words that no single store writes, where they lie in the region.
    ///
    /// # Safety
    /// As for [`Output::write`].
    #[inline(always)]
    unsafe fn write_partial(&self, words: &[u32; WORDS], y: i32) {
        let left = self.there & !self.whole;
        let mut number = opaque(0);
        while number < VALUES {
            keep_rolled();
            // Registers cannot be indexed at run time, so selects pick the word.
            let mut word = words[0];
            let mut n = 1;
            while n < WORDS {
                word = if number >> 2 == n as i32 { words[n] } else { word };
                n += 1;
            }
            if left >> (number >> 2) & 1 != 0 {
                let value = self.strip.x + word_place(number >> 2) + (number & 3);
                // SAFETY: as the caller promised.
                unsafe { self.write_one(value, y, word >> (8 * (number & 3))) };
            }
            number = opaque(number + 1);
        }
    }

    /// Writes a result, if it lies in the region.
    ///
    /// # Safety
    /// As for [`Output::write`].
    #[inline(always)]
    unsafe fn write_one(&self, value: i32, y: i32, byte: u32) {
        let place = (value, y, block_z());
        // SAFETY: as the caller promised.
        unsafe { whole::write_values::<1>(self.pass, (C as i32, self.filtered), place, |_| byte) };
    }
}

/// The first result of word `n` of the thread, counted from the strip's first result.
#[inline(always)]
fn word_place(n: i32) -> i32 {
    4 * (OF_WARP * thread_y() + thread_x() + 32 * n)
}

/// The rows under the window in a near entry. Each thread stores and loads only its own words.
struct Ring {
    /// The first byte in shared memory.
    begin: i32,
    slots: i32,
    /// The slot for the next entering row, and the slot of the next leaving row, the window's
    /// first.
    next: i32,
    oldest: i32,
}

impl Ring {
    #[inline(always)]
    fn new(mean: &Mean, layout: &Layout) -> Self {
        Self { begin: 4 * layout.ring, slots: mean.window.rows, next: 0, oldest: 0 }
    }

    /// The first of the thread's words in a slot.
    #[inline(always)]
    fn place(&self, slot: i32) -> i32 {
        (self.begin + ROW * slot) / 4 + WORDS as i32 * thread_x()
    }

    #[inline(always)]
    fn behind(&self, slot: i32) -> i32 {
        if slot + 1 >= self.slots { 0 } else { slot + 1 }
    }

    /// Adds the entering row.
    ///
    /// # Safety
    /// The ring has a free slot.
    #[inline(always)]
    unsafe fn put(&mut self, words: &[u32; WORDS]) {
        let place = self.place(self.next);
        let mut w = 0;
        while w < WORDS {
            // SAFETY: as the caller promised.
            unsafe { Shared::dynamic().store(place + w as i32, f32::from_bits(words[w])) };
            w += 1;
        }
        self.next = self.behind(self.next);
    }

    /// Removes the leaving row.
    ///
    /// # Safety
    /// The ring has a row.
    #[inline(always)]
    unsafe fn take(&mut self) -> [u32; WORDS] {
        let place = self.place(self.oldest);
        let mut words = [0; WORDS];
        let mut w = 0;
        while w < WORDS {
            // SAFETY: as the caller promised.
            words[w] = unsafe { Shared::dynamic().load_word(place + w as i32) };
            w += 1;
        }
        self.oldest = self.behind(self.oldest);
        words
    }
}
