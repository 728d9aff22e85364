//! Filters: taps with an anchor, what is known about them, and how they are made from names and text.

mod factor;
mod preset;
mod presets;
mod syntax;
mod taps;
mod text;

pub(crate) use factor::lowest_bit;
pub use preset::{Parameter, Preset};
pub use taps::Filter;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn dense(filter: &Filter) -> Vec<f64> {
        (0..filter.rows()).flat_map(|row| (0..filter.cols()).map(move |col| filter.tap(row, col))).collect()
    }

    #[test]
    fn taps_are_checked() {
        for (cols, rows, len) in [(0, 3, 0), (3, 0, 0), (0, 0, 0), (usize::MAX, 2, 2), (2, Filter::MAX_EXTENT + 1, 2)] {
            let error = Filter::from_taps(cols, rows, &vec![1.0; len]).unwrap_err();
            assert!(matches!(error, Error::Parameter { .. }), "{error}");
        }
        for (cols, rows, len) in [(3, 3, 8), (3, 3, 10), (Filter::MAX_EXTENT, Filter::MAX_EXTENT, 1)] {
            let error = Filter::from_taps(cols, rows, &vec![1.0; len]).unwrap_err();
            assert!(matches!(error, Error::TapCount { found, .. } if found == len), "{error}");
        }
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let message = Filter::from_taps(2, 2, &[1.0, 1.0, bad, 1.0]).unwrap_err().to_string();
            assert!(message.contains("row 1, column 0"), "{message}");
            assert!(Filter::separable(&[1.0, bad], &[1.0]).is_err());
            assert!(Filter::separable(&[1.0], &[bad]).is_err());
        }
        assert!(Filter::from_taps_f64(1, 1, &[1e39]).is_err());
        assert!(Filter::from_taps_f64(1, 1, &[f64::from(f32::MAX)]).is_ok());
        assert!(Filter::separable(&[], &[1.0]).is_err());
        assert!(Filter::separable(&[1.0], &[]).is_err());
        assert!(Filter::separable(&[1e20, 0.0], &[1e20]).is_err());
    }

    #[test]
    fn anchors_are_cells_of_the_window() {
        let filter = Filter::box_filter(4, 3).unwrap();
        assert_eq!(filter.anchor(), (2, 1));
        assert_eq!(filter.clone().anchored(0, 2).unwrap().anchor(), (0, 2));
        assert_eq!(filter.clone().anchored(3, 0).unwrap().flipped().anchor(), (0, 2));
        assert!(filter.clone().anchored(4, 0).is_err());
        assert!(filter.anchored(0, 3).is_err());
    }

    #[test]
    fn flipping_turns_taps_and_anchor() {
        let whole = Filter::from_taps(3, 2, &[1., 2., 3., 4., 5., 7.]).unwrap();
        assert!(!whole.is_separable());
        let flipped = whole.clone().flipped();
        assert_eq!(dense(&flipped), [7., 5., 4., 3., 2., 1.]);
        assert_eq!(flipped.anchor(), (1, 0));
        assert_eq!(flipped.flipped(), whole);
        let product = Filter::from_taps(3, 2, &[1., 2., 3., 2., 4., 6.]).unwrap();
        assert!(product.is_separable());
        let flipped = product.flipped();
        assert_eq!(dense(&flipped), [6., 4., 2., 3., 2., 1.]);
        assert_eq!(flipped.separated(), Some((&[3., 2., 1.][..], &[2., 1.][..])));
    }

    #[test]
    fn long_factors_need_no_product() {
        let taps = vec![1e-4f32; 200_000];
        let filter = Filter::separable(&taps, &taps).unwrap();
        assert_eq!((filter.cols(), filter.rows()), (200_000, 200_000));
        assert!(filter.is_separable());
        assert_eq!(filter.flipped().anchor(), (99_999, 99_999));
    }

    #[test]
    fn presets_have_the_taps_of_the_field() {
        let taps = |text: &str| dense(&text.parse().unwrap());
        assert_eq!(taps("sobel-x"), [-1., 0., 1., -2., 0., 2., -1., 0., 1.]);
        assert_eq!(taps("sobel-y"), [-1., -2., -1., 0., 0., 0., 1., 2., 1.]);
        // OpenCV's getDerivKernels(1, 0, 5).
        let sobel: Filter = "sobel-x:size=5".parse().unwrap();
        assert_eq!(sobel.separated(), Some((&[-1., -2., 0., 2., 1.][..], &[1., 4., 6., 4., 1.][..])));
        assert_eq!(taps("scharr-y"), [-3., -10., -3., 0., 0., 0., 3., 10., 3.]);
        assert_eq!(taps("prewitt-x"), [-1., 0., 1., -1., 0., 1., -1., 0., 1.]);
        assert_eq!(taps("laplacian"), [0., 1., 0., 1., -4., 1., 0., 1., 0.]);
        assert_eq!(taps("sharpen"), [0., -1., 0., -1., 5., -1., 0., -1., 0.]);
        assert_eq!(taps("box:cols=2,rows=3"), [1.0 / 6.0; 6]);
        assert_eq!(taps("motion:length=5"), [0.2; 5]);
        assert_eq!(taps("motion:length=1,angle=77"), [1.0]);
        let upright: Filter = "motion:length=5,angle=-90".parse().unwrap();
        assert_eq!((upright.cols(), upright.rows()), (1, 5));
        // Upwards to the right: bright at the upper right corner and the lower left one.
        let slanted: Filter = "motion:length=9,angle=45".parse().unwrap();
        assert_eq!((slanted.cols(), slanted.rows()), (7, 7));
        assert!(slanted.tap(1, 5) > 0.05 && slanted.tap(5, 1) > 0.05);
        assert_eq!((slanted.tap(1, 1), slanted.tap(5, 5)), (0.0, 0.0));
        let sum = |text: &str| taps(text).iter().sum::<f64>();
        for text in ["gaussian:sigma=3", "gaussian:size=8", "unsharp:sigma=2,amount=3", "motion:length=12.3,angle=17"] {
            assert!((sum(text) - 1.0).abs() < 1e-12, "{text}");
        }
        for sigma in ["0.5", "1", "1.4", "5"] {
            assert!(sum(&format!("log:sigma={sigma}")).abs() < 1e-12);
        }
    }

    #[test]
    fn gaussians_are_those_of_scipy_and_opencv() {
        // scipy.ndimage.gaussian_filter's weights for sigma 1, from the middle.
        let gaussian = Filter::gaussian(1.0).unwrap();
        let (row, _) = gaussian.separated().unwrap();
        let expected = [3.9894346935609776e-01, 2.4197144565660073e-01, 5.3991127420704415e-02, 4.4318616200312655e-03];
        assert_eq!(row.len(), 9);
        for (found, expected) in row[4..].iter().zip(expected) {
            assert!((found - expected).abs() < 1e-15, "{found} {expected}");
        }
        // cv2.getGaussianKernel(5, 0): sigma 1.1.
        let sized = Filter::gaussian_from_size(5, 1).unwrap();
        let expected = [0.070766371332, 0.244460398912, 0.369546459514];
        for (found, expected) in sized.separated().unwrap().0.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-11, "{found} {expected}");
        }
        for sigma in [1e-300, 1e-3, 0.12] {
            assert_eq!(dense(&Filter::gaussian(sigma).unwrap()), [1.0]);
            let sized = dense(&Filter::gaussian_sized(sigma, 3, 1).unwrap());
            assert!(sized[1] > 0.999 && sized.iter().all(|tap| tap.is_finite()), "{sized:?}");
        }
        assert_eq!(dense(&Filter::gaussian_sized(1e-200, 4, 1).unwrap()), [0.0, 0.5, 0.5, 0.0]);
        for sigma in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e30] {
            assert!(Filter::gaussian(sigma).is_err());
            assert!(Filter::unsharp(sigma, 1.0).is_err());
            assert!(Filter::laplacian_of_gaussian(sigma).is_err());
            assert!(sigma == 1e30 || Filter::gaussian_sized(sigma, 3, 3).is_err());
        }
    }
}
