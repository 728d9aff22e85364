//! The family of a filter: the order of its sums, and so the bits of its results.
//!
//! Bytes made of bytes are correctly rounded whatever the order, so every family may make them, and
//! times choose. For all other types the filter alone decides, on every device and for every size
//! of picture:
//!
//! | filter | family |
//! | --- | --- |
//! | a row or a column of taps, or up to 9 taps | direct |
//! | others that separate | separable |
//! | sums of products with up to 66 taps in a row and a column together | separable |
//! | others of up to 17x17 taps | direct |
//! | others | Fourier |
//!
//! A plan may say what errors are relative to. `Accuracy::Window` excludes spectra.
//! `Accuracy::Range` gives filters that separate, and sums of two products, the family of 1-D
//! spectra if a row or a column has at least 72 taps.
//!
//! Where spectra would leave the range of f32, the filter keeps to the separable or the direct
//! family. No kernel skips taps of 0, so a motion blur counts as the box around its line.

use crate::problem::Problem;
use crate::{Accuracy, Family, Why, spectrum};

/// The most taps of a filter that separates for which one pass over all of them is as fast as two.
const ONE_BY_ONE: usize = 9;

/// The most taps of a row and a column together for which a sum of products goes by passes: 33x33,
/// the largest that one kernel takes on a GPU. Beyond, spectra are 2.6 times as fast on an H200
/// (41x41 and 65x65 taps), while a CPU takes 1.3 to 1.6 times as long by them.
const SUMMED_TAPS: usize = 66;

/// The most taps that are taken one by one. From 18x18 on spectra are faster: 10 times on an H200,
/// 1.3 times on a CPU.
const DIRECT_TAPS: usize = 17 * 17;

/// The least taps of a row or a column from which 1-D spectra are faster than passes on a GPU.
const LINE_TAPS: usize = 72;

impl Problem {
    /// The family whose bits the results have, and why; `None` for bytes made of bytes, which have
    /// the same bits in every family.
    ///
    /// Of the problem it reads the filter, the types and the accuracy: never the size, the device
    /// or a time.
    pub(crate) fn family(&self) -> Option<(Family, &'static str)> {
        if self.rounding.is_some() {
            return None;
        }
        let (cols, rows) = (self.cols, self.rows);
        let (taps, is_line) = (cols.saturating_mul(rows), cols.min(rows) == 1);
        let has_spectra = spectrum::has_room(cols, rows, self.weight).is_ok();
        if let Some(family) = self.family_for_accuracy() {
            return Some(family);
        }
        Some(match self.sum {
            Some(_) if cols + rows <= SUMMED_TAPS => (
                Family::Separable,
                "on every device, such a sum of separable filters runs as row and column passes",
            ),
            None if is_line => {
                (Family::Direct, "on every device, a single row or column of taps runs as one pass")
            }
            None if self.separable && taps <= ONE_BY_ONE => {
                (Family::Direct, "on every device, up to 9 taps are summed one by one")
            }
            None if self.separable => (
                Family::Separable,
                "on every device, separable filters of more than 9 taps run as two passes",
            ),
            None if taps <= DIRECT_TAPS => (
                Family::Direct,
                "on every device, up to 17x17 taps that are not separable are summed one by one",
            ),
            _ if has_spectra => (
                Family::Fourier,
                "on every device, filters of so many taps run as Fourier transforms",
            ),
            Some(_) => (
                Family::Separable,
                "the sum of |tap| is too small or too large for Fourier transforms",
            ),
            None => (
                Family::Direct,
                "the sum of |tap| is too small or too large for Fourier transforms",
            ),
        })
    }

    /// The family that the plan's accuracy requires, if any, and why.
    fn family_for_accuracy(&self) -> Option<(Family, &'static str)> {
        match self.accuracy? {
            Accuracy::Range if self.has_lines && self.cols.max(self.rows) >= LINE_TAPS => Some((
                Family::SpectraPasses,
                "with errors of the range, rows or columns of 72 or more taps run as 1-D Fourier transforms",
            )),
            Accuracy::Window if self.sum.is_some() => Some((
                Family::Separable,
                "with errors of the window, sums of separable filters run as row and column passes",
            )),
            Accuracy::Window if !self.separable => Some((
                Family::Direct,
                "with errors of the window, filters that are not separable are summed one by one",
            )),
            _ => None,
        }
    }

    /// Whether the problem's results may come from this family.
    ///
    /// # Errors
    /// Why they have another family's bits.
    pub(crate) fn may_be(&self, family: Family) -> Result<(), Why> {
        match self.family() {
            Some((other, why)) if other != family => Err(why.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Device, Plan};
    use crate::image::{Scalar, Shape};
    use crate::problem::Place;
    use crate::problem::machine::Machine;
    use crate::{Accuracy, Border, Family, Filter, GpuModel};

    /// Presets of sizes where families change.
    const SIZES: &[&str] = &[
        "gaussian:sigma=0.6",
        "gaussian:sigma=30",
        "gaussian:sigma=1,cols=9,rows=2",
        "box:cols=15,rows=1",
        "box:cols=4,rows=3",
        "box:size=101",
        "unsharp:sigma=0.5",
        "unsharp:sigma=2",
        "unsharp:sigma=8",
        "unsharp:sigma=9",
        "log:sigma=1",
        "log:sigma=4",
        "log:sigma=6",
        "dog:sigma=1,wider=2",
        "dog:sigma=3,wider=5",
        "motion:length=9,angle=0",
        "motion:length=9,angle=30",
        "motion:length=40,angle=30",
        "motion:length=301,angle=90",
    ];

    /// Taps that no row and column make, of which so many of each hundred are not 0.
    fn scattered(cols: usize, rows: usize, percent: usize) -> Filter {
        let tap = |i: usize| {
            if i * 37 % 100 < percent { (i * 7919 % 251) as f32 * 0.01 - 1.0 } else { 0.0 }
        };
        Filter::from_taps(cols, rows, &(0..cols * rows).map(tap).collect::<Vec<_>>()).unwrap()
    }

    fn filters() -> Vec<Filter> {
        let line = |count: usize| (0..count).map(|i| 0.01 + (i * i % 7) as f32).collect::<Vec<_>>();
        let texts = Filter::EXAMPLES.iter().chain(SIZES);
        let mut filters: Vec<_> = texts.map(|text| text.parse().unwrap()).collect();
        for (cols, rows) in [
            (1, 1),
            (1, 2),
            (7, 1),
            (1, 25),
            (401, 1),
            (2, 2),
            (3, 3),
            (2, 5),
            (4, 4),
            (5, 5),
            (13, 9),
            (17, 17),
            (18, 17),
            (2, 145),
            (35, 21),
            (45, 45),
            (3, 301),
        ] {
            filters.extend([100, 20].map(|percent| scattered(cols, rows, percent)));
            filters.push(Filter::separable(&line(cols), &line(rows)).unwrap());
        }
        filters.push(Filter::from_taps(19, 19, &[1e35; 361]).unwrap());
        filters.push(scattered(5, 5, 100).anchored(0, 4).unwrap());
        filters
    }

    /// Plans that nobody told a variant choose one of the same family on every device and for every
    /// size.
    #[test]
    fn the_filter_alone_decides() {
        let mut places = GpuModel::ALL.map(|model| Place::Gpu(Machine::of(&model))).to_vec();
        places.extend([1, 2, 16, 128].map(|threads| Place::Cpu { threads }));
        let all = || Scalar::ALL.iter().copied();
        let types = all().flat_map(|source| all().map(move |target| (source, target)));
        let types: Vec<_> = types.filter(|&types| types != (Scalar::U8, Scalar::U8)).collect();
        let sizes =
            [(1, 1), (1, 40), (7, 5), (30, 30), (40, 40), (300, 200), (1920, 1080), (16384, 16384)];
        let borders = [Border::Reflect101, Border::Constant(0.5), Border::Wrap, Border::Keep];
        let accuracies = [None, Some(Accuracy::Window), Some(Accuracy::Range)];
        let mut seen = [0; 4];
        let filters = filters();
        let each = accuracies.into_iter().flat_map(|accuracy| {
            filters.iter().enumerate().map(move |(number, filter)| (number, filter, accuracy))
        });
        for (number, filter, accuracy) in each {
            let plan = Plan::builder(filter)
                .border(borders[number % 4])
                .accuracy(accuracy)
                .device(Device::Cpu)
                .build()
                .unwrap();
            let mut found = None;
            for (at, (width, height)) in sizes.into_iter().enumerate() {
                // Each type with some sizes and channels.
                for (&kinds, channels) in types
                    .iter()
                    .zip([1, 3, 4, 2].into_iter().cycle())
                    .skip((number + at) % 3)
                    .step_by(3)
                {
                    for &place in &places {
                        let problem = plan.problem_for(
                            Shape { width, height, channels },
                            channels,
                            kinds,
                            place,
                        );
                        let first = problem.candidates().swap_remove(0);
                        let family = first.variant.family();
                        let what = format!(
                            "{}x{} {filter}: {} for {width}x{height}x{channels} {kinds:?} on {place:?}",
                            filter.cols(),
                            filter.rows(),
                            first.variant
                        );
                        assert!(first.declined.is_none(), "{what}: {:?}", first.declined);
                        assert_eq!(*found.get_or_insert(family), family, "{what}");
                        if place.is_cpu() {
                            assert_eq!(problem.choose_on_cpu(), first.variant, "{what}");
                        }
                    }
                }
            }
            seen[found.unwrap() as usize] += 1;
        }
        assert!(seen.iter().all(|&count| count > 1), "{seen:?}");
    }

    /// Where spectra would leave the range of f32, and where that matters.
    #[test]
    fn limits_are_where_they_are_said_to_be() {
        let family = |filter: Filter, source, target| {
            let plan = Plan::builder(filter).device(Device::Cpu).build().unwrap();
            let shape = Shape { width: 640, height: 480, channels: 1 };
            let problem = plan.problem_for(shape, 1, (source, target), Place::Gpu(Machine::H200));
            problem.family().map(|(family, _)| family)
        };
        let f32s = |filter| family(filter, Scalar::F32, Scalar::F32);
        assert_eq!(f32s(scattered(17, 17, 100)), Some(Family::Direct));
        assert_eq!(f32s(scattered(18, 17, 100)), Some(Family::Fourier));
        assert_eq!(
            f32s(Filter::separable(&[1.0, 2.0, 1.0], &[1.0, 3.0, 1.0]).unwrap()),
            Some(Family::Direct)
        );
        assert_eq!(
            f32s(Filter::separable(&[1.0, 2.0], &[1.0, 3.0, 1.0, 3.0, 1.0]).unwrap()),
            Some(Family::Separable)
        );
        assert_eq!(f32s(Filter::separable(&[1.0; 100], &[2.0]).unwrap()), Some(Family::Direct));
        assert_eq!(f32s(Filter::unsharp(4.0, 1.0).unwrap()), Some(Family::Separable));
        assert_eq!(f32s(Filter::unsharp(5.0, 1.0).unwrap()), Some(Family::Fourier));
        assert_eq!(f32s(Filter::laplacian_of_gaussian(4.0).unwrap()), Some(Family::Separable));
        assert_eq!(f32s(Filter::laplacian_of_gaussian(5.0).unwrap()), Some(Family::Fourier));
        // Beyond what spectra can hold.
        let taps: Vec<f32> = (0..361).map(|i| 1e30 * (i * i % 17) as f32).collect();
        assert_eq!(f32s(Filter::from_taps(19, 19, &taps).unwrap()), Some(Family::Direct));
        // Bytes made of bytes are the same from every family; what becomes of them else is not.
        assert_eq!(family(Filter::gaussian(2.0).unwrap(), Scalar::U8, Scalar::U8), None);
        assert_eq!(
            family(Filter::gaussian(2.0).unwrap(), Scalar::U8, Scalar::F32),
            Some(Family::Separable)
        );
        assert_eq!(
            family(Filter::gaussian(2.0).unwrap(), Scalar::F32, Scalar::U8),
            Some(Family::Separable)
        );
    }

    /// What a plan's accuracy changes.
    #[test]
    fn accuracy_decides_between_spectra_and_sums() {
        let family = |filter: Filter, accuracy: Option<Accuracy>, source| {
            let plan =
                Plan::builder(filter).accuracy(accuracy).device(Device::Cpu).build().unwrap();
            let shape = Shape { width: 640, height: 480, channels: 1 };
            let problem = plan.problem_for(shape, 1, (source, source), Place::Gpu(Machine::H200));
            problem.family().map(|(family, _)| family)
        };
        let [window, range] = [Accuracy::Window, Accuracy::Range].map(Some);
        let (f32s, blur) = (Scalar::F32, |sigma| Filter::gaussian(sigma).unwrap());
        assert_eq!(family(blur(20.0), None, f32s), Some(Family::Separable));
        assert_eq!(family(blur(20.0), window, f32s), Some(Family::Separable));
        assert_eq!(family(blur(20.0), range, f32s), Some(Family::SpectraPasses));
        assert_eq!(family(blur(20.0), range, Scalar::U16), Some(Family::SpectraPasses));
        assert_eq!(family(blur(20.0), range, Scalar::U8), None);
        // 71 and 73 taps.
        assert_eq!(
            family(Filter::gaussian_sized(8.0, 71, 71).unwrap(), range, f32s),
            Some(Family::Separable)
        );
        assert_eq!(
            family(Filter::gaussian_sized(8.0, 73, 73).unwrap(), range, f32s),
            Some(Family::SpectraPasses)
        );
        let unsharp = |sigma| Filter::unsharp(sigma, 1.0).unwrap();
        assert_eq!(family(unsharp(9.0), None, f32s), Some(Family::Fourier));
        assert_eq!(family(unsharp(9.0), window, f32s), Some(Family::Separable));
        assert_eq!(family(unsharp(9.0), range, f32s), Some(Family::SpectraPasses));
        assert_eq!(family(scattered(35, 21, 100), window, f32s), Some(Family::Direct));
        assert_eq!(family(scattered(35, 21, 100), range, f32s), Some(Family::Fourier));
    }

    /// Every GPU has room for spectra: one with the least shared memory that the drivers' documents
    /// name.
    #[test]
    fn every_gpu_has_room_for_spectra() {
        let machine = Machine::of(&GpuModel { shared_memory: 48 << 10, ..GpuModel::H200 });
        let plan = Plan::builder(scattered(35, 21, 100)).device(Device::Cpu).build().unwrap();
        let shape = Shape { width: 640, height: 480, channels: 1 };
        let problem = plan.problem_for(shape, 1, (Scalar::F32, Scalar::F32), Place::Gpu(machine));
        assert_eq!(problem.candidates()[0].variant.family(), Family::Fourier);
    }
}
