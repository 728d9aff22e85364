//! A window of one tap over bytes: each byte's result is looked up in a table of 256, or is a
//! product in 16 bits where such products give the same table.

use super::bands::band;
use super::cost::{Cost, ROW, direct, in_tiles, rectangles};
use super::method::{Call, Method};
use super::share::share;
use crate::image::{ImageView, ImageViewMut};
use crate::progress::Stage;
use crate::round::Resolver;
use crate::simd::{Isa, Lanes, Vectorized, Words};
use crate::{Result, Variant};

/// One tap, looked up in a table.
pub(super) static TABLE: Method = Method {
    variant: Variant::DirectNaive,
    why: "a single tap on u8 images is a lookup in a table of 256 results",
    takes: |request| request.forms.cols * request.forms.rows == 1,
    cost: |problem, threads| Cost {
        nanoseconds: in_tiles(problem, 64) * direct(1) + ROW * problem.height as f64,
        jobs: rectangles(problem, threads).0,
    },
    run: |call| {
        let Call { isa, byte_filter, bytes, src, dst, filtered, stage, .. } = call;
        let results = Resolver::of_single_pixels(byte_filter);
        Table::new(results, bytes.taps.filter.tap(0, 0)).run(isa, src, (dst, filtered), stage)
    },
};

/// The results of all bytes.
struct Table {
    results: [u8; 256],
    product: Option<Product>,
}

/// Numbers with which `((256 * byte * factor >> 16) + bias) >> 8` is each byte's result.
#[derive(Clone, Copy)]
struct Product {
    factor: u16,
    bias: u16,
}

impl Table {
    /// The results of a tap.
    fn new(results: [u8; 256], tap: f64) -> Self {
        Self { results, product: Product::new(&results, tap) }
    }

    /// Replaces the bytes of the first `filtered` channels by their results, and copies the others.
    fn run(
        &self,
        isa: Isa,
        src: &ImageView<'_, u8>,
        (dst, filtered): (&mut ImageViewMut<'_, u8>, usize),
        stage: &Stage<'_>,
    ) -> Result<()> {
        let (height, channels) = (src.shape().height, src.shape().channels);
        let band = band(height, 1, 1, stage.cut_for());
        share(stage, dst.bands_mut(band).enumerate(), |(): &mut (), (index, rows)| {
            for (y, out) in (index * band..).zip(rows) {
                let row = &src.row(y)[..out.len()];
                if filtered == channels {
                    let product = |product| isa.run(Row { product, row, out });
                    let done = self.product.map_or(0, product);
                    let left = out[done..].iter_mut().zip(&row[done..]);
                    left.for_each(|(out, &byte)| *out = self.results[usize::from(byte)]);
                    continue;
                }
                for (out, pixel) in out.chunks_exact_mut(channels).zip(row.chunks_exact(channels)) {
                    out.copy_from_slice(pixel);
                    out[..filtered]
                        .iter_mut()
                        .for_each(|byte| *byte = self.results[usize::from(*byte)]);
                }
            }
            Ok(())
        })
    }
}

impl Product {
    /// Those of a table, for a tap of 0 to 1: none if a result lies too near to a half for 16 bits.
    fn new(results: &[u8; 256], tap: f64) -> Option<Self> {
        let nearest = (tap * 65536.0).round();
        (-1..=1).find_map(|off| {
            let factor = nearest + f64::from(off);
            let factor =
                if (0.0..=65535.0).contains(&factor) { factor as u16 } else { return None };
            let (mut least, mut most) = (0, i32::from(u16::MAX));
            for (byte, &result) in (0..).zip(results) {
                let product = ((256 * byte * u32::from(factor)) >> 16) as i32;
                least = least.max(256 * i32::from(result) - product);
                most = most.min(256 * i32::from(result) + 255 - product);
            }
            (least <= most).then_some(Self { factor, bias: least as u16 })
        })
    }
}

/// The products of a row's bytes.
struct Row<'a> {
    product: Product,
    row: &'a [u8],
    out: &'a mut [u8],
}

impl Vectorized for Row<'_> {
    /// How many are computed: whole vectors.
    type Output = usize;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> usize {
        let Self { product, row, out } = self;
        let len = 2 * L::Words::LEN;
        let mut done = 0;
        // SAFETY: this is a `Vectorized`; so many bytes are there.
        unsafe {
            let (factor, bias) = (L::Words::splat(product.factor), L::Words::splat(product.bias));
            while done + len <= row.len().min(out.len()) {
                let bytes = L::Words::load_bytes(row.as_ptr().add(done));
                let [even, odd] = [bytes.even(), bytes.odd()];
                let even = even.high_product(factor).add(bias);
                even.upper_bytes(odd.high_product(factor).add(bias))
                    .store_bytes(out.as_mut_ptr().add(done));
                done += len;
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_the_tables() {
        let row: Vec<u8> = (0..=255).rev().chain(0..=255).chain(0..=8).collect();
        let mut have_products = 0;
        for tap in [0.0, 0.026, 0.1, 0.25, 0.3337, 0.5, 0.77, 0.9999, 1.0, 1.5, -0.5, f64::NAN] {
            let results = std::array::from_fn(|byte| (byte as f64 * tap).round_ties_even() as u8);
            let table = Table::new(results, tap);
            have_products += usize::from(table.product.is_some());
            for (isa, product) in
                Isa::all().flat_map(|isa| table.product.map(|product| (isa, product)))
            {
                let mut out = vec![0; row.len()];
                let done = isa.run(Row { product, row: &row, out: &mut out });
                assert!(done > 256, "{isa:?}");
                let expected = row[..done].iter().map(|&byte| results[usize::from(byte)]);
                assert!(out[..done].iter().copied().eq(expected), "{tap}, {isa:?}");
            }
        }
        assert!(have_products >= 5, "{have_products} taps have products");
    }
}
