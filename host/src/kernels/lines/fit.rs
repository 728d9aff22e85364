//! How a row or a column of taps is computed by 1-D spectra: the length of lines, the parts of the
//! window, and the spectra themselves. The filter alone decides.

#[cfg(feature = "gpu")]
use gpu_kernels::kernels::fourier::lines::FACTOR_OF;
use gpu_kernels::kernels::fourier::lines::{COLUMNS, LineKernel, ROWS};

use crate::problem::machine::{Curve, interpolated};

/// How taps along a line are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    pub(super) kernel: &'static LineKernel,
    /// Taps of a part of the window, and how many parts there are.
    pub(super) part: usize,
    pub(super) parts: usize,
    /// Microseconds for a million results of whole tiles.
    time: f64,
}

impl Fit {
    /// For rows, each term by itself. Times are microseconds for a million numbers transformed and
    /// transformed back, by the length of a line (8192x8192 f32, an H200).
    pub(super) fn of_rows(taps: usize) -> Self {
        const TIMES: Curve = &[(1024.0, 2.4), (2048.0, 2.65), (4096.0, 3.05)];
        Self::fastest((taps, 1), &ROWS, TIMES, false)
    }

    /// For the columns of so many terms, likewise. A sum of products has a kernel of its own.
    pub(super) fn of_columns(taps: usize, terms: usize, is_sum: bool) -> Self {
        const TIMES: Curve = &[(1024.0, 2.85), (2048.0, 3.25)];
        Self::fastest((taps, terms), &COLUMNS, TIMES, is_sum)
    }

    fn fastest(
        (taps, terms): (usize, usize),
        kernels: &'static [LineKernel],
        times: Curve,
        is_sum: bool,
    ) -> Self {
        /// With fewer results in a tile, a whole window takes longer than one in parts.
        const LEAST_RESULTS: usize = 64;
        let fits = kernels.iter().flat_map(|kernel| {
            let longest = kernel.size - LEAST_RESULTS;
            let least = taps.div_ceil(longest);
            let fewest = if is_sum { 1 } else { 2 };
            let parts = if kernel.in_parts { least.max(fewest)..=4 * least + 8 } else { 1..=1 };
            let takes = kernel.in_parts || least == 1 && !is_sum;
            parts.filter(move |_| takes).map(move |parts| {
                let part = taps.div_ceil(parts);
                // Each part of each term is transformed, and their sum is transformed back.
                let work = kernel.size as f64 / (kernel.size + 1 - part) as f64
                    * (1 + terms * parts) as f64
                    / 2.0;
                Self {
                    kernel,
                    part,
                    parts: taps.div_ceil(part),
                    time: work * interpolated(times, kernel.size as f64),
                }
            })
        });
        fits.min_by(|a, b| a.time.total_cmp(&b.time))
            .expect("a kernel in parts takes any number of taps")
    }

    /// The error bound of a tile's sums, in units of half a last place of 1: how many root mean
    /// squares of the complex numbers that the tile begins with, how many of its sums, and how many
    /// times its greatest sum.
    ///
    /// It has four parts for taps t, and lines of N numbers:
    /// - Roundings of the forward transform. The 2-norm of their error grows with the number of
    ///   butterflies on the way, `log2 N`, and with the line's norm (Higham, Accuracy and Stability
    ///   of Numerical Algorithms, section 24.1). They spread over all frequencies, and the taps
    ///   leave the part `sqrt(sum t^2)` of them.
    /// - Roundings of constants, the taps' spectrum and the factors. They spread likewise, but a
    ///   picture may be aligned with them: at most `sqrt(N)` times the norm of the taps for the
    ///   spectrum, of which 0.4 are allowed.
    /// - Roundings of the inverse transform, relative to the norm of the sums.
    /// - Roundings of its last butterflies, which are relative to the sum itself where few are
    ///   great.
    ///
    /// A result has its share of an error: what is proved takes all roundings for one direction,
    /// and is a hundred times as much as what is seen. A search in runs, waves, noise of two values
    /// and single pixels, for N from 1024 to 4096, found at most 0.55 of this bound. The searches
    /// `worst::lines_bred` and `worst::lines_constants` hold these bounds.
    pub(super) fn units(&self, taps: &[f64]) -> [f64; 3] {
        const OF_INPUT: [f64; 2] = [9.0, 0.4];
        const OF_OUTPUT: f64 = 14.0;
        const OF_GREATEST: f64 = 5.0;
        let norm = taps.iter().map(|tap| tap * tap).sum::<f64>().sqrt();
        // Each part beyond the first adds a rounding.
        let parts = self.parts as f64;
        [
            (OF_INPUT[0] + OF_INPUT[1] * (self.kernel.size as f64).sqrt()) * norm,
            OF_OUTPUT + parts - 1.0,
            OF_GREATEST,
        ]
    }

    /// Microseconds for a million results of lines of so many, whose tiles go `together`: the last
    /// ones take as long as any.
    pub(super) fn time_over(&self, results: usize, together: usize) -> f64 {
        let step = together * self.step();
        self.time * (results.div_ceil(step) * step) as f64 / results as f64
    }

    /// Results of a tile.
    pub(super) fn step(&self) -> usize {
        self.kernel.size + 1 - self.part
    }

    /// Factors, the spectra of each term's parts, and the taps, as the kernel reads them.
    #[cfg(feature = "gpu")]
    pub(super) fn numbers(&self, terms: &[&[f64]]) -> crate::Result<Vec<f32>> {
        use rustfft::num_complex::Complex;

        let (size, threads) = (self.kernel.size, self.kernel.size / 16);
        let factors = |elements: usize, circle: usize| {
            let factor = move |k: usize, t: usize| {
                let turn = (k * t % circle) as f64 / circle as f64;
                Complex::from_polar(1.0, -std::f64::consts::TAU * turn)
            };
            FACTOR_OF.into_iter().flat_map(move |k| (0..elements).map(move |t| factor(k, t)))
        };
        let mut numbers: Vec<Complex<f64>> =
            crate::memory::reserve(6 * (threads + 16) + terms.len() * self.parts * size)?;
        numbers.extend(factors(threads, size).chain(factors(size / 256, threads)));
        for part in terms.iter().flat_map(|taps| taps.chunks(self.part)) {
            let spectrum = crate::spectrum::of_taps((size, 1), (part.len(), 1), |x, _| part[x])?;
            let places = (0..16).flat_map(|n| (0..threads).map(move |t| (n, t)));
            numbers.extend(places.map(|(n, t)| spectrum[self.kernel.frequency(n, t)]));
        }
        let spectra = numbers.iter().flat_map(|number| [number.re, number.im]);
        let taps = terms.iter().flat_map(|taps| taps.iter().copied());
        Ok(spectra.chain(taps).map(|number| number as f32).collect())
    }

    /// How many tiles results from one to before another lie in.
    #[cfg(feature = "gpu")]
    pub(super) fn tiles(&self, start: i32, end: i32) -> u32 {
        let step = self.step() as u32;
        (end as u32).div_ceil(step) - start as u32 / step
    }
}
