//! The benchmark's problems.

use apron::{Family, Filter, Result};

/// One problem: an image of random pixels, a filter of random taps, and the families whose variants solve it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What `--filter-case` looks for.
    pub name: &'static str,
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Tap columns and rows.
    pub taps: usize,
    /// The families to run; of each, every variant that accepts the problem.
    pub families: &'static [Family],
}

const BOTH: &[Family] = &[Family::Direct, Family::Separable];

/// All cases: f32, one channel, [`apron::Border::Reflect101`].
pub const CASES: &[Case] = &[
    Case { name: "2048x1024-5x5", width: 2048, height: 1024, taps: 5, families: BOTH },
    Case { name: "4096x4096-17x17", width: 4096, height: 4096, taps: 17, families: BOTH },
    Case { name: "8192x8192-5x5", width: 8192, height: 8192, taps: 5, families: BOTH },
    Case { name: "8192x8192-17x17", width: 8192, height: 8192, taps: 17, families: &[Family::Separable] },
];

impl Case {
    /// The random filter: the product of a row and a column, so that every variant can run it.
    ///
    /// # Errors
    /// None for the cases there are.
    pub fn filter(&self) -> Result<Filter> {
        let mut random = fastrand::Rng::with_seed(self.taps as u64);
        let mut taps = || (0..self.taps).map(|_| random.f32() - 0.25).collect::<Vec<_>>();
        Filter::separable(&taps(), &taps())
    }

    /// The random pixels, from -1 to 1.
    pub fn pixels(&self) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(self.width as u64);
        (0..self.width * self.height).map(|_| 2.0 * random.f32() - 1.0).collect()
    }
}
