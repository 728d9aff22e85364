//! Correct rounding of 8-bit results.
//!
//! A result is correctly rounded if it is the integer nearest to the filter's sum in f64, half to even, saturated to 0 to
//! 255: what SciPy's `correlate` gives in f64. So 8-bit pictures are the same from every variant and device.
//!
//! It would be slow to compute every sum in f64. This is Ziv's strategy instead:
//!
//! 1. [`bound`]: how far a sum in f32 may lie from the one in f64.
//! 2. [`doubt`]: whether a half-integer, where the result changes, lies within that distance. If none does, the sum in f32
//!    decides. This is the case for nearly all results.
//! 3. [`settle`]: for the other results, a sum in f64 decides, in the fastest order; and where even the order of the f64 sum could
//!    change the result, the sum in the order that defines it. Where many sums in f32 are in doubt, all are computed in f64 from the
//!    start, by the same code.
//!
//! "The sum in f64" must be one number even if it is a tie: each product and each sum is rounded to f64, row by row,
//! left to right. That could take hours for a separable filter of more than 65536 taps. There it means two passes: along
//! the rows, then along the columns, in ascending order.

mod bound;
mod doubt;
mod settle;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use gpu_kernels::border::CONSTANT;

use crate::cpu::Ways;
use crate::simd::{Float, Isa, Lanes, Vector, Work};
use crate::window::Window;
use crate::{Border, Filter};

pub(crate) use bound::{Order, column_block, products_loss, row_block, terms_loss, terms_together};
use doubt::Doubt;
pub(crate) use doubt::{places, places_room};
pub(crate) use settle::MAX_WINDOW;
#[cfg(feature = "gpu")]
pub(crate) use settle::sums_of_white;
pub(crate) use settle::{Scratch, Settler, TOGETHER};

/// What the time to round bytes made of bytes depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rounding {
    /// By which code the CPU makes them.
    pub(crate) on_cpu: Ways,
    /// Whether its taps add up to 1.
    pub(crate) keeps_levels: bool,
    /// Of the sums by spectra in f32, the share in doubt, if they can decide on the CPU.
    pub(crate) by_spectra: Option<f64>,
    /// For each [`Order`], the share of f32 sums in doubt if they are spread evenly.
    shares: [f64; Order::ALL.len()],
    /// The part of them that a column pass in f64 on the CPU leaves in doubt, where there is one.
    left: [Option<f64>; Order::ALL.len()],
}

impl Rounding {
    pub(crate) fn new(filter: &Filter, border: Border) -> Self {
        /// The most taps that are gone through one by one, and where passes are faster anyway.
        const MOST: (usize, usize) = (1 << 24, 1 << 12);
        let most = if filter.is_separable() { MOST.1 } else { MOST.0 };
        let window = Window::new(filter, border);
        let share = |order: Order| {
            let one_by_one = matches!(order, Order::TapByTap | Order::ByRows);
            let (error, _, tame) = match one_by_one && filter.cols() * filter.rows() > most {
                true => (1.0, 0.0, true),
                false => errors(filter, &window, order),
            };
            if tame { (2.0 * error).min(1.0) } else { 1.0 }
        };
        let shares = Order::ALL.map(share);
        Self {
            on_cpu: Ways::new(filter, &window),
            keeps_levels: (filter.sum_of_taps() - 1.0).abs() < 1e-6,
            by_spectra: by_spectra(shares[Order::LargeSpectra as usize], &window),
            shares,
            left: Order::ALL.map(|order| {
                let column = bound::of_row_pass(filter, order, greatest(&window), f64::from(window.border_value))?;
                Some(part_left(column, 0.5 * shares[order as usize]))
            }),
        }
    }

    /// The part of results in doubt in this order that a column pass in f64 on the CPU leaves so, where there is one.
    pub(crate) fn left(&self, order: Order) -> Option<f64> {
        self.left[order as usize]
    }

    /// The share of f32 sums in this order that are in doubt if they are spread evenly.
    pub(crate) fn share(&self, order: Order) -> f64 {
        self.shares[order as usize]
    }
}

/// Whether sums by spectra in f64 can decide a byte.
pub(crate) fn spectra_decide(filter: &Filter, window: &Window) -> bool {
    let Bound { in_f64, tame, .. } = Bound::new(filter, window, Order::LargeSpectra);
    tame && Doubt::<f64>::new(in_f64).limit() > 0.0
}

/// This share of sums by spectra in f32 that are in doubt, if they can decide on the CPU: not if all are, or if what lies outside is no byte.
pub(crate) fn by_spectra(share: f64, window: &Window) -> Option<f64> {
    Some(share).filter(|&share| share < 1.0 && window.is_all_bytes())
}

/// The share of sums over bytes that are exact ties, but for roundings in f64, if sums are spread evenly: where all taps are multiples of
/// one number, so are the sums, and every so many of them lies on a half. A single tap has 256 products, of which each is as frequent.
pub(crate) fn ties(filter: &Filter) -> f64 {
    if let (1, 1, Some([tap])) = (filter.cols(), filter.rows(), filter.dense_f64()) {
        let on_half = |byte: &u8| ((f64::from(*byte) * tap).fract().abs() - 0.5).abs() < 1e-4;
        return (0..=u8::MAX).filter(on_half).count() as f64 / 256.0;
    }
    let unit = filter.unit().unwrap_or(0.0);
    let halves = 0.5 / unit;
    // Taps of f32 are all multiples of a small power of two, which makes no difference.
    if unit > 1e-6 && (halves - halves.round()).abs() <= 1e-9 * halves { unit.min(1.0) } else { 0.0 }
}

/// The error bound of f32 sums and the greatest difference between f64 sums in two orders, both 0 if nothing is rounded; and whether no
/// sum is NaN, or too great for an `i32`.
pub(crate) fn errors(filter: &Filter, window: &Window, order: Order) -> (f64, f64, bool) {
    let outside = f64::from(window.border_value);
    let greatest = greatest(window);
    let reordering = bound::of_reordering(filter, greatest);
    let error = bound::of_sums(filter, order, greatest, outside);
    let error = if error == 0.0 { 0.0 } else { error + reordering };
    // The row pass alone may leave the range of f32.
    let across = filter.separated().map_or(0.0, |(row, _)| row.iter().map(|tap| tap.abs()).sum());
    let terms = filter.sum().map_or(0.0, crate::filter::Sum::weight);
    let tame = filter.weight().max(terms) * greatest < 1e9 && across * greatest < 1e37 && !outside.is_nan();
    (error, reordering, tame)
}

/// The error bounds of a filter's sums under one border, computed when they are first needed.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    /// For each [`Order`].
    orders: [OnceLock<Bound>; Order::ALL.len()],
    /// The greatest difference between f64 sums in two orders.
    reordering: OnceLock<f64>,
}

/// The bounds of sums in one order.
#[derive(Clone, Copy, Debug)]
struct Bound {
    in_f32: f64,
    in_f64: f64,
    /// Of sums of the same row pass with a column pass in f64.
    column: Option<f64>,
    /// No sum is NaN, or too great for an `i32`.
    tame: bool,
}

impl Bound {
    fn new(filter: &Filter, window: &Window, order: Order) -> Self {
        let (in_f32, reordering, tame) = errors(filter, window, order);
        let greatest = greatest(window);
        let in_f64 = reordering + bound::in_f64(filter, order) * greatest;
        // The sum over the exact taps is compared here, as for sums in f64.
        let column =
            bound::of_row_pass(filter, order, greatest, f64::from(window.border_value)).map(|error| error + reordering);
        Self { in_f32, in_f64, column, tame }
    }
}

/// The distance from an integer from which on a sum in f32 is in doubt on a GPU; `None` if none ever is.
#[cfg(feature = "gpu")]
pub(crate) fn limit(error: f64, tame: bool) -> Option<f32> {
    let limit = Doubt::<f32>::new(error).limit();
    match error {
        0.0 if tame => None,
        // Every sum is in doubt where one may not be a number.
        _ if !tame || limit.is_nan() => Some(-1.0),
        _ => Some(limit),
    }
}

/// As [`errors`], of f32 sums of a GPU over the terms of a sum, of which each is a row pass and a column pass.
#[cfg(feature = "gpu")]
pub(crate) fn errors_of_terms(filter: &Filter, sum: &crate::filter::Sum, window: &Window) -> (f64, f64, bool) {
    let (_, reordering, tame) = errors(filter, window, Order::TapByTap);
    let greatest = greatest(window);
    (reordering + bound::of_terms_in_f32(filter, sum, greatest), reordering, tame)
}

/// The part of results in doubt that sums with a smaller error leave so; all of them, if there is no error.
fn part_left(error: f64, before: f64) -> f64 {
    (error / before).min(1.0)
}

/// The greatest difference between f64 sums over bytes in two orders.
pub(crate) fn reordering(filter: &Filter) -> f64 {
    bound::of_reordering(filter, 255.0)
}

/// How far the f64 sum that defines a byte may lie from the exact one, over bytes alone.
#[cfg(feature = "gpu")]
pub(crate) fn definition(filter: &Filter) -> f64 {
    bound::of_definition(filter, 255.0)
}

/// The greatest magnitude of a pixel under a window.
fn greatest(window: &Window) -> f64 {
    if window.border == CONSTANT { f64::from(window.border_value).abs().max(255.0) } else { 255.0 }
}

/// Number of pixels that are tested together.
const CHUNK: usize = 64;

/// Rounds sums in f32, or in f64, that a filter made of an 8-bit image.
pub(crate) struct Rounder<'a, E> {
    settler: &'a Settler<'a>,
    doubt: Doubt<E>,
    order: Order,
    /// No sum is NaN, or too great for an `i32`.
    tame: bool,
    /// What settles a result in doubt: a sum in f64, or at once the one that defines it.
    by_definition: bool,
    /// For sums of the same row pass with a column pass in f64.
    column: Option<Doubt<f64>>,
}

impl<'a> Rounder<'a, f32> {
    /// For f32 sums in this order.
    pub(crate) fn in_f32(settler: &'a Settler<'a>, order: Order) -> Self {
        let Bound { in_f32, column, tame, .. } = settler.bound(order);
        let (doubt, column) = (Doubt::new(in_f32), column.filter(|_| !settler.meets_ties()).map(Doubt::new));
        Self { settler, doubt, order, tame, by_definition: false, column }
    }
}

impl<'a> Rounder<'a, f64> {
    /// For f64 sums in this order.
    pub(crate) fn in_f64(settler: &'a Settler<'a>, order: Order) -> Self {
        let Bound { in_f64, tame, .. } = settler.bound(order);
        Self { settler, doubt: Doubt::new(in_f64), order, tame, by_definition: true, column: None }
    }
}

/// What else is known of a result in doubt.
pub(crate) enum Finer {
    Nothing,
    /// A sum in f64, within what the order of such a sum could change.
    Sum(f64),
    /// The correct one.
    Byte(u8),
}

impl<E: Float> Rounder<'_, E> {
    /// The order of the sums that it takes.
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// The share of results that are in doubt if sums are spread evenly.
    pub(crate) fn share(&self) -> f64 {
        if self.tame { (2.0 * self.doubt.error()).min(1.0) } else { 1.0 }
    }

    /// The part of results in doubt that a column pass in f64 over the row pass's results leaves so, if that can be.
    pub(crate) fn left_by_columns(&self) -> Option<f64> {
        self.column.map(|column| part_left(column.error(), self.doubt.error()))
    }

    /// The distance from an integer at which a sum is in doubt; `None` if a sum may be NaN, or too great for an
    /// `i32`.
    pub(crate) fn limit(&self) -> Option<E> {
        let limit = self.doubt.limit();
        (limit > E::default() && self.tame).then_some(limit)
    }

    /// Whether the sum of the row pass's results in f64 decides the result; stores it then.
    pub(crate) fn decides(&self, sum: impl FnOnce() -> f64, out: &mut u8) -> bool {
        let Some(sum) = self.column.map(|doubt| (doubt, sum())).filter(|(doubt, sum)| !doubt.about(*sum)) else {
            return false;
        };
        *out = sum.1.byte();
        true
    }

    /// The byte where so many pixels under a window of equal taps are 255 and the others are 0, if that is known at once.
    pub(crate) fn of_white(&self, count: u32) -> Option<u8> {
        self.settler.of_white(count as usize).map(Float::byte)
    }

    /// Stores the interleaved sums of a part of row `y`, from column `x` on. `finer` may know more of a result in doubt.
    pub(crate) fn store_part(
        &self,
        isa: Isa,
        sums: &[E],
        (x, y): (usize, usize),
        out: &mut [u8],
        scratch: &mut Scratch,
        finer: impl Fn(usize) -> Finer,
    ) -> usize {
        let mut doubts = std::mem::take(&mut scratch.doubts);
        doubts.clear();
        let mut is_tie = true;
        for at in self.round(isa, sums, out, &mut scratch.memory) {
            match finer(at) {
                Finer::Byte(byte) => out[at] = byte,
                Finer::Sum(sum) if self.settler.settles(sum) => out[at] = sum.byte(),
                finer => {
                    is_tie &= matches!(finer, Finer::Sum(_));
                    doubts.push(at);
                }
            }
        }
        let settled = doubts.len();
        self.settle_all(isa, (x, y), is_tie, &doubts, out, scratch);
        scratch.doubts = doubts;
        settled
    }

    /// Stores the sums of one channel of a part of a row to its places among the others' elements; `doubts` become those that
    /// [`Rounder::decide`] is to decide.
    pub(crate) fn store_channel(
        &self,
        isa: Isa,
        sums: &[E],
        (out, channel): (&mut [u8], usize),
        scratch: &mut Scratch,
        doubts: &mut Vec<usize>,
    ) {
        let channels = self.settler.channels();
        let sums = &sums[..sums.len().min(out.len() / channels)];
        let Scratch { memory, bytes, .. } = scratch;
        bytes.resize(sums.len(), 0);
        doubts.clear();
        doubts.extend(self.round(isa, sums, bytes, memory));
        out[channel..].iter_mut().step_by(channels).zip(bytes).for_each(|(out, &mut byte)| *out = byte);
    }

    /// Stores the correct result of a channel at this place of a part of row `y` that begins at column `x`. There may be a sum in f64, within
    /// what its order could change.
    pub(crate) fn decide(
        &self,
        isa: Isa,
        part: (usize, usize),
        (at, channel): (usize, usize),
        sum: Option<f64>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) {
        let at = at * self.settler.channels() + channel;
        match sum {
            Some(sum) if self.settler.settles(sum) => out[at] = sum.byte(),
            sum => self.settle(isa, part, at, self.by_definition || sum.is_some(), out, scratch),
        }
    }

    /// Rounds a row; returns the results in doubt, in ascending order.
    fn round<'s>(
        &self,
        isa: Isa,
        sums: &[E],
        out: &mut [u8],
        Memory { masks, places }: &'s mut Memory,
    ) -> impl Iterator<Item = usize> + use<'s, E> {
        masks.resize(sums.len().div_ceil(CHUNK), 0);
        if places.len() < places_room(sums.len()) {
            places.resize(places_room(sums.len()), 0);
        }
        let found = isa.run(Round { doubt: &self.doubt, limit: self.limit(), sums, out, masks, places });
        places[..found].iter().map(|&at| at as usize)
    }

    /// Stores the correct results at these elements of a part of row `y` that begins at column `x`; they ascend. They may all be known to be so
    /// near a half that only the sums that define them can tell.
    pub(crate) fn settle_all(
        &self,
        isa: Isa,
        part: (usize, usize),
        are_ties: bool,
        doubts: &[usize],
        out: &mut [u8],
        scratch: &mut Scratch,
    ) {
        self.settler.together(isa, part, (are_ties, doubts), out, scratch, |at, out, scratch| {
            self.settle(isa, part, at, self.by_definition || are_ties, out, scratch);
        });
    }

    /// Computes and stores the correct result at element `at` of a part of row `y` that begins at column `x`: at once by the sum that defines
    /// it, or first by a faster one.
    fn settle(
        &self,
        isa: Isa,
        (x, y): (usize, usize),
        at: usize,
        by_definition: bool,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) {
        if let Some(result) = self.settler.settled(isa, (x, y), at, by_definition, scratch) {
            out[at] = result.byte();
        }
    }
}

/// Rounds a row; notes the results in doubt.
struct Round<'a, E> {
    doubt: &'a Doubt<E>,
    /// See [`Rounder::limit`].
    limit: Option<E>,
    sums: &'a [E],
    out: &'a mut [u8],
    /// For each chunk, a bit for each of its results.
    masks: &'a mut [u64],
    /// The places of all bits.
    places: &'a mut [u32],
}

/// What a thread keeps to round rows.
#[derive(Default)]
struct Memory {
    masks: Vec<u64>,
    places: Vec<u32>,
}

impl<E: Float> Work for Round<'_, E> {
    /// How many places there are.
    type Output = usize;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> usize {
        let Self { doubt, limit, sums, out, masks, places } = self;
        let whole = if limit.is_some() { sums.len() / CHUNK } else { 0 };
        let ((sums, rest), (out, out_rest)) = (sums.split_at(whole * CHUNK), out.split_at_mut(whole * CHUNK));
        let (of_whole, of_rest) = masks.split_at_mut(whole);
        let chunks = sums.as_chunks().0.iter().zip(out.as_chunks_mut().0);
        for (mask, (sums, out)) in of_whole.iter_mut().zip(chunks) {
            // SAFETY: this is in a `Work`; no sum is 2^31 or more, or NaN, where there is a limit.
            *mask = limit.map_or(0, |limit| unsafe { round_chunk::<E::Vector<L>>(sums, limit, out) });
        }
        for (mask, (sums, out)) in of_rest.iter_mut().zip(rest.chunks(CHUNK).zip(out_rest.chunks_mut(CHUNK))) {
            let any = doubt.round(sums, out);
            let about = |(i, &sum): (usize, &E)| u64::from(any && doubt.about(sum)) << i;
            *mask = sums.iter().enumerate().map(about).sum();
        }
        self::places(masks, CHUNK, places)
    }
}

/// Rounds [`CHUNK`] sums, of which none is 2^31 or more, or NaN. A bit for each that is so far from an integer or further.
///
/// # Safety
/// The processor has the vectors.
#[inline(always)]
unsafe fn round_chunk<L: Vector>(sums: &[L::Float; CHUNK], limit: L::Float, out: &mut [u8; CHUNK]) -> u64 {
    const { assert!(CHUNK == u64::BITS as usize && CHUNK.is_multiple_of(L::GROUP * L::LEN) && L::GROUP <= 4) };
    // SAFETY: the caller's promise; groups of vectors are parts of both.
    unsafe {
        let limit = L::splat(limit);
        let mut mask = 0;
        for at in (0..CHUNK).step_by(L::GROUP * L::LEN) {
            let mut ints = [limit.nearest(); 4];
            for (v, ints) in ints[..L::GROUP].iter_mut().enumerate() {
                let values = L::load(sums.as_ptr().add(at + v * L::LEN));
                *ints = values.nearest();
                mask |= u64::from(values.rest(*ints).at_least(limit)) << (at + v * L::LEN);
            }
            L::store_bytes(&ints[..L::GROUP], out.as_mut_ptr().add(at));
        }
        mask
    }
}

/// Whether f32 decides every byte of a gradient's magnitude of bytes, with this value outside the image: whole numbers and their sums are
/// exact (`gpu-kernels/src/kernels/gradient.rs`).
pub(crate) fn gradient_is_exact(outside: f32) -> bool {
    /// Times 16, the greatest sum of weights, it is below 2^24.
    const GREATEST: f32 = 524_288.0;
    outside.fract() == 0.0 && outside.abs() <= GREATEST
}
