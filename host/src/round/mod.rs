//! Correct rounding of 8-bit results.
//!
//! A byte is the exact sum of whole taps times bytes over a divisor, rounded half to even and
//! saturated to 0 to 255 ([`Whole`](crate::filter::whole::Whole)). Whole numbers have no order, so
//! 8-bit pictures are the same from every variant and device.
//!
//! It would be slow to compute every sum exactly. This is Ziv's strategy instead:
//!
//! 1. [`bound`]: how far a sum in f32, or by spectra in f64, may lie from the exact one.
//! 2. [`margin`]: whether a half-integer, where the result changes, lies within that distance. If
//!    none does, the sum decides the result. Otherwise the result is uncertain. This is the case
//!    for few results.
//! 3. [`resolve`]: the exact sum decides an uncertain result. Where many are uncertain, exact
//!    passes compute a whole part of the image (`host/src/cpu/exact.rs`).

mod bound;
mod margin;
mod resolve;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::OnceLock;

use crate::Filter;
use crate::filter::Fact;
use crate::simd::{Float, Isa, Lanes, Vector, Vectorized};

pub(crate) use bound::{
    Order, ROWS, column_block, products_loss, row_block, terms_loss, terms_together,
};
use margin::Margin;
pub(crate) use margin::{places, places_room};
pub(crate) use resolve::{Resolver, Scratch};

/// Whether sums by spectra in f64 can decide a byte.
pub(crate) fn spectra_decide(view: &Filter) -> bool {
    is_tame(view) && Margin::<f64>::new(bound::of_spectra_in_f64(view)).limit() > 0.0
}

/// The share of sums over bytes that are exact ties, but for roundings in f64, if sums are spread
/// evenly: where all taps are multiples of one number, so are the sums, and every so many of them
/// lies on a half. A single tap has 256 products, of which each is as frequent.
#[cfg(feature = "gpu")]
pub(crate) fn ties(view: &Filter) -> f64 {
    *view.fact::<Bounds>().ties.get_or_init(|| share_of_ties(view))
}

#[cfg(feature = "gpu")]
fn share_of_ties(filter: &Filter) -> f64 {
    if let (1, 1, Some([tap])) = (filter.cols(), filter.rows(), filter.dense_f64()) {
        let on_half = |byte: &u8| ((f64::from(*byte) * tap).fract().abs() - 0.5).abs() < 1e-4;
        return (0..=u8::MAX).filter(on_half).count() as f64 / 256.0;
    }
    let unit = filter.unit().unwrap_or(0.0);
    let halves = 0.5 / unit;
    // Taps of f32 are all multiples of a small power of two, which makes no difference.
    if unit > 1e-6 && (halves - halves.round()).abs() <= 1e-9 * halves {
        unit.min(1.0)
    } else {
        0.0
    }
}

/// Whether no sum over bytes is too great for an `i32`, and no row pass leaves the range of f32.
fn is_tame(view: &Filter) -> bool {
    let across = view.separated().map_or(0.0, |(row, _)| row.iter().map(|tap| tap.abs()).sum());
    let terms = view.sum().map_or(0.0, crate::filter::Sum::weight);
    view.weight().max(terms) * 255.0 < 1e9 && across * 255.0 < 1e37
}

/// The error bounds of a filter's sums over bytes: a fact of its view ([`ByteFilter`]), of which
/// each part is computed on first use.
///
/// [`ByteFilter`]: crate::filter::ByteFilter
#[derive(Debug, Default)]
struct Bounds {
    /// For each [`Order`].
    orders: [OnceLock<Bound>; Order::ALL.len()],
    #[cfg(feature = "gpu")]
    ties: OnceLock<f64>,
}

impl Fact for Bounds {
    fn of(_: &Filter) -> Self {
        Self::default()
    }
}

/// The bounds of sums over bytes in one order, compared with the exact sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) in_f32: f64,
    /// Of sums of the same row pass with a column pass in f64, where there is one.
    column: Option<f64>,
    /// See [`is_tame`].
    pub(crate) tame: bool,
}

impl Bound {
    /// Of a filter's view.
    pub(crate) fn of(view: &Filter, order: Order) -> Self {
        *view.fact::<Bounds>().orders[order as usize].get_or_init(|| Self {
            in_f32: bound::of_sums(view, order),
            column: bound::of_row_pass(view, order),
            tame: is_tame(view),
        })
    }

    /// The share of sums that are uncertain if they are spread evenly.
    pub(crate) fn share(self) -> f64 {
        if self.tame { (2.0 * self.in_f32).min(1.0) } else { 1.0 }
    }

    /// The part of uncertain results that a column pass in f64 on the CPU leaves so, where there is
    /// one.
    pub(crate) fn left(self) -> Option<f64> {
        self.column.map(|column| part_left(column, self.in_f32))
    }
}

/// The distance from an integer from which on a sum in f32 is uncertain on a GPU; `None` if none
/// ever is.
#[cfg(feature = "gpu")]
pub(crate) fn limit(error: f64, tame: bool) -> Option<f32> {
    let limit = Margin::<f32>::new(error).limit();
    match error {
        0.0 if tame => None,
        // Every sum is uncertain where one may not be a number.
        _ if !tame || limit.is_nan() => Some(-1.0),
        _ => Some(limit),
    }
}

/// The part of uncertain results that sums with a smaller error leave so; all of them, if there is
/// no error.
fn part_left(error: f64, before: f64) -> f64 {
    (error / before).min(1.0)
}

/// Number of pixels that are tested together.
pub(crate) const CHUNK: usize = 64;

/// Rounds sums in f32, or in f64, that a filter made of an 8-bit image.
pub(crate) struct Rounder<'a, E> {
    resolver: &'a Resolver<'a>,
    margin: Margin<E>,
    order: Order,
    /// See [`is_tame`].
    tame: bool,
    /// For sums of the same row pass with a column pass in f64.
    column: Option<Margin<f64>>,
}

impl<'a> Rounder<'a, f32> {
    /// For f32 sums in this order.
    pub(crate) fn in_f32(resolver: &'a Resolver<'a>, order: Order) -> Self {
        let Bound { in_f32, column, tame } = Bound::of(&resolver.of_bytes.filter, order);
        Self { resolver, margin: Margin::new(in_f32), order, tame, column: column.map(Margin::new) }
    }
}

impl<'a> Rounder<'a, f64> {
    /// For sums by spectra in f64.
    pub(crate) fn by_spectra(resolver: &'a Resolver<'a>) -> Self {
        let view = &resolver.of_bytes.filter;
        let margin = Margin::new(bound::of_spectra_in_f64(view));
        Self { resolver, margin, order: Order::LargeSpectra, tame: is_tame(view), column: None }
    }
}

impl<E: Float> Rounder<'_, E> {
    /// The order of the sums that it takes.
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// The share of results that are uncertain if sums are spread evenly.
    pub(crate) fn share(&self) -> f64 {
        if self.tame { (2.0 * self.margin.error()).min(1.0) } else { 1.0 }
    }

    /// The part of uncertain results that a column pass in f64 over the row pass's results leaves
    /// so, if that can be.
    pub(crate) fn left_by_columns(&self) -> Option<f64> {
        self.column.map(|column| part_left(column.error(), self.margin.error()))
    }

    /// The distance from an integer at which a sum is uncertain; `None` if a sum may be NaN, or too
    /// great for an `i32`.
    pub(crate) fn limit(&self) -> Option<E> {
        let limit = self.margin.limit();
        (limit > E::default() && self.tame).then_some(limit)
    }

    /// Whether the sum of the row pass's results in f64 decides the result; stores it then.
    pub(crate) fn decides(&self, sum: impl FnOnce() -> f64, out: &mut u8) -> bool {
        let Some(sum) = self
            .column
            .map(|margin| (margin, sum()))
            .filter(|(margin, sum)| !margin.is_within(*sum))
        else {
            return false;
        };
        *out = sum.1.byte();
        true
    }

    /// Stores the interleaved sums of a part of row `y`, from column `x` on. Says how many were
    /// uncertain.
    pub(crate) fn store_part(
        &self,
        isa: Isa,
        sums: &[E],
        part: (usize, usize),
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> usize {
        let mut uncertain = std::mem::take(&mut scratch.uncertain);
        uncertain.clear();
        uncertain.extend(self.round(isa, sums, out, &mut scratch.memory));
        self.resolve(isa, part, &uncertain, out, scratch);
        let count = uncertain.len();
        scratch.uncertain = uncertain;
        count
    }

    /// Stores the sums of one channel of a part of a row to its places among the others' elements;
    /// `uncertain` become the elements that [`Rounder::resolve`] is to decide.
    pub(crate) fn store_channel(
        &self,
        isa: Isa,
        sums: &[E],
        (out, channel): (&mut [u8], usize),
        scratch: &mut Scratch,
        uncertain: &mut Vec<usize>,
    ) {
        let channels = self.resolver.channels();
        let sums = &sums[..sums.len().min(out.len() / channels)];
        let Scratch { memory, bytes, .. } = scratch;
        bytes.resize(sums.len(), 0);
        uncertain.clear();
        uncertain.extend(self.round(isa, sums, bytes, memory).map(|at| at * channels + channel));
        out[channel..]
            .iter_mut()
            .step_by(channels)
            .zip(bytes)
            .for_each(|(out, &mut byte)| *out = byte);
    }

    /// Rounds a row; returns the uncertain results, in ascending order.
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
        let found =
            isa.run(Round { margin: &self.margin, limit: self.limit(), sums, out, masks, places });
        places[..found].iter().map(|&at| at as usize)
    }

    /// Stores the correct results at these elements of a part of row `y` that begins at column `x`.
    pub(crate) fn resolve(
        &self,
        isa: Isa,
        part: (usize, usize),
        uncertain: &[usize],
        out: &mut [u8],
        scratch: &mut Scratch,
    ) {
        for &at in uncertain {
            if let Some(byte) = self.resolver.byte(isa, part, at, scratch) {
                out[at] = byte;
            }
        }
    }
}

/// Rounds a row; notes the uncertain results.
struct Round<'a, E> {
    margin: &'a Margin<E>,
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

impl<E: Float> Vectorized for Round<'_, E> {
    /// How many places there are.
    type Output = usize;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> usize {
        let Self { margin, limit, sums, out, masks, places } = self;
        let whole = if limit.is_some() { sums.len() / CHUNK } else { 0 };
        let ((sums, rest), (out, out_rest)) =
            (sums.split_at(whole * CHUNK), out.split_at_mut(whole * CHUNK));
        let (of_whole, of_rest) = masks.split_at_mut(whole);
        let chunks = sums.as_chunks().0.iter().zip(out.as_chunks_mut().0);
        for (mask, (sums, out)) in of_whole.iter_mut().zip(chunks) {
            // SAFETY: this is in `Vectorized::run`; no sum is 2^31 or more, or NaN, where there is
            // a limit.
            *mask =
                limit.map_or(0, |limit| unsafe { round_chunk::<E::Vector<L>>(sums, limit, out) });
        }
        for (mask, (sums, out)) in
            of_rest.iter_mut().zip(rest.chunks(CHUNK).zip(out_rest.chunks_mut(CHUNK)))
        {
            let any = margin.round(sums, out);
            let bit = |(i, &sum): (usize, &E)| u64::from(any && margin.is_within(sum)) << i;
            *mask = sums.iter().enumerate().map(bit).sum();
        }
        self::places(masks, CHUNK, places)
    }
}

/// Rounds [`CHUNK`] sums, of which none is 2^31 or more, or NaN. A bit for each that is so far from
/// an integer or further.
///
/// # Safety
/// The processor has the vectors.
#[inline(always)]
pub(crate) unsafe fn round_chunk<L: Vector>(
    sums: &[L::Float; CHUNK],
    limit: L::Float,
    out: &mut [u8; CHUNK],
) -> u64 {
    const {
        assert!(
            CHUNK == u64::BITS as usize && CHUNK.is_multiple_of(L::GROUP * L::LEN) && L::GROUP <= 4
        )
    };
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
