//! The same filter at another scale: for an image of fewer or more pixels, such as a video's
//! chroma.
//!
//! A cell at the distance x from the output pixel moves to the distance x times the factor:
//!
//! - a Gaussian's standard deviation is multiplied by the factor of its axis;
//! - a mean covers the same stretch. Cells that the stretch covers in part weigh that part;
//! - a mean that is taken several times is scaled as one, and then taken as many times;
//! - a motion's line is scaled along both axes.

use super::parameters::Given;
use super::presets::{normalise, sigma_of_size, sin_cos_degrees};
use super::{Filter, syntax};
use crate::{Error, Result};

impl Filter {
    /// The same filter for the same image at another resolution: all lengths times `across` along
    /// rows and times `down` along columns. `None` for filters without lengths to scale: taps,
    /// derivatives, small fixed windows such as [`Filter::sharpen`], and filters with an anchor of
    /// their own. Factors of 1 return every filter as it is.
    ///
    /// Chroma of 4:2:0 video has half the columns and half the rows of luma:
    ///
    /// ```
    /// use apron::Filter;
    ///
    /// let chroma = Filter::gaussian(2.0)?.at_scale(0.5, 0.5)?;
    /// assert_eq!(chroma, Some(Filter::gaussian(1.0)?));
    /// // A mean of 5 pixels covers 2.5 of the larger ones.
    /// let chroma = Filter::box_filter(5, 1)?.at_scale(0.5, 1.0)?;
    /// assert_eq!(chroma, Some(Filter::separable_f64(&[0.3, 0.4, 0.3], &[1.0])?));
    /// assert_eq!(Filter::sobel_x().at_scale(0.5, 0.5)?, None);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] unless both factors are finite and above 0, or if the window exceeds
    /// [`Filter::MAX_EXTENT`]; [`Error::HostMemory`] if there is not enough memory for the taps.
    pub fn at_scale(&self, across: f64, down: f64) -> Result<Option<Self>> {
        for (name, factor) in [("across", across), ("down", down)] {
            if !(factor > 0.0 && factor.is_finite()) {
                let expected = "a factor above 0".to_owned();
                return Err(Error::Parameter { name, value: factor.to_string(), expected });
            }
        }
        if (across, down) == (1.0, 1.0) {
            return Ok(Some(self.clone()));
        }
        let Some(text) = &self.preset else { return Ok(None) };
        if self.anchor != (self.cols / 2, self.rows / 2) {
            return Ok(None);
        }
        let Some((preset, given)) = syntax::read_again(text)? else { return Ok(None) };
        preset.scaled.map(|scaled| scaled(&given, self, (across, down))).transpose()
    }
}

pub(super) fn gaussian(
    given: &Given<'_>,
    filter: &Filter,
    (across, down): (f64, f64),
) -> Result<Filter> {
    let (cols, rows) = (filter.cols, filter.rows);
    let sigmas = given.sigmas()?;
    if let (Some((x, y)), None) = (sigmas, given.window()?) {
        return Filter::gaussian_xy(x * across, y * down);
    }
    let (x, y) = sigmas.unwrap_or((sigma_of_size(cols), sigma_of_size(rows)));
    Filter::product(gaussian_axis(x, cols, across)?, gaussian_axis(y, rows, down)?)
}

/// A Gaussian in a window of `size` taps, scaled. The result has an odd number of taps.
fn gaussian_axis(sigma: f64, size: usize, factor: f64) -> Result<Vec<f64>> {
    let radius = reach((size / 2) as f64 * factor)?;
    // The Gaussian's middle, from the cell on the output pixel: an even window has it between two.
    let middle = ((size - 1) as f64 / 2.0 - (size / 2) as f64) * factor;
    taps(radius, |cell| {
        let x = (cell - middle) / (sigma * factor);
        (-0.5 * x * x).exp()
    })
}

pub(super) fn mean(_: &Given<'_>, filter: &Filter, (across, down): (f64, f64)) -> Result<Filter> {
    Filter::product(mean_axis(filter.cols, across)?, mean_axis(filter.rows, down)?)
}

pub(super) fn box_blur(
    given: &Given<'_>,
    _: &Filter,
    (across, down): (f64, f64),
) -> Result<Filter> {
    let size = 2 * given.needed_whole("radius")? + 1;
    let times = given.needed_whole("times")?;
    let axis = |factor: f64| repeated(&mean_axis(size, factor)?, times);
    Filter::product(axis(across)?, axis(down)?)
}

/// The taps of an axis, applied `times` times.
fn repeated(taps: &[f64], times: usize) -> Result<Vec<f64>> {
    let mut all = vec![1.0];
    for _ in 0..times {
        let mut product = crate::memory::zeroed(all.len() + taps.len() - 1)?;
        for (at, tap) in all.iter().enumerate() {
            product[at..].iter_mut().zip(taps).for_each(|(to, part)| *to += tap * part);
        }
        all = product;
    }
    Ok(all)
}

/// The share of each cell in a mean of `size` cells, scaled. The result has an odd number of taps.
fn mean_axis(size: usize, factor: f64) -> Result<Vec<f64>> {
    let (first, last) = ((size / 2) as f64, (size - 1 - size / 2) as f64);
    let (start, end) = (-(first + 0.5) * factor, (last + 0.5) * factor);
    let radius = reach((first + 0.5) * factor - 0.5)?;
    taps(radius, |cell| ((cell + 0.5).min(end) - (cell - 0.5).max(start)).max(0.0))
}

pub(super) fn unsharp(given: &Given<'_>, _: &Filter, (across, down): (f64, f64)) -> Result<Filter> {
    let (x, y) = given.sigmas()?.ok_or_else(|| given.missing())?;
    let (amount, threshold) = (given.needed("amount")?, given.needed("threshold")?);
    Filter::unsharp_above(x * across, y * down, amount, threshold)
}

pub(super) fn motion(given: &Given<'_>, _: &Filter, (across, down): (f64, f64)) -> Result<Filter> {
    let (length, angle) = (given.needed("length")?, given.needed("angle")?);
    let (sin, cos) = sin_cos_degrees(angle);
    let (x, y) = (cos * across, sin * down);
    // An axis stays an axis, without rounding.
    let keeps = across == down || sin == 0.0 || cos == 0.0;
    let turned = if keeps { angle } else { y.atan2(x).to_degrees() };
    Filter::motion((length * x.hypot(y)).max(1.0), turned)
}

/// The number of cells beside the middle one that a window with this reach has.
fn reach(cells: f64) -> Result<usize> {
    let greatest = ((Filter::MAX_EXTENT - 1) / 2) as f64;
    // A mean within one cell reaches no other.
    let cells = cells.ceil().max(0.0);
    if cells <= greatest {
        return Ok(cells as usize);
    }
    let expected = format!("at most {greatest}");
    Err(Error::Parameter { name: "the scaled radius", value: cells.to_string(), expected })
}

/// `weight` of each cell, by its distance from the middle one. The taps sum to 1.
fn taps(radius: usize, weight: impl Fn(f64) -> f64) -> Result<Vec<f64>> {
    let mut taps = crate::memory::reserve(2 * radius + 1)?;
    taps.extend((0..=2 * radius).map(|index| weight(index as f64 - radius as f64)));
    // The samples of a tiny sigma underflow to 0.
    if taps.iter().all(|&tap| tap == 0.0) {
        taps[radius] = 1.0;
    }
    normalise(&mut taps);
    Ok(taps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(text: &str, across: f64, down: f64) -> Option<Filter> {
        text.parse::<Filter>().unwrap().at_scale(across, down).unwrap()
    }

    #[test]
    fn lengths_are_scaled() {
        for (text, (across, down), expected) in [
            ("identity", (0.5, 0.5), "identity"),
            ("gaussian:2", (0.5, 0.5), "gaussian:1"),
            ("gaussian:2", (0.5, 1.0), "gaussian:sigma-x=1,sigma-y=2"),
            ("gaussian:sigma-x=3,sigma-y=1", (0.25, 1.0), "gaussian:sigma-x=0.75,sigma-y=1"),
            ("gaussian:sigma=2,size=9", (0.5, 0.5), "gaussian:sigma=1,size=5"),
            ("gaussian:sigma=2,size=7", (0.5, 0.5), "gaussian:sigma=1,size=5"),
            ("gaussian:size=5", (0.5, 1.0), "gaussian:sigma-x=0.55,sigma-y=1.1,cols=3,rows=5"),
            ("box:size=5", (0.5, 0.5), "separable:row=.3 .4 .3,column=.3 .4 .3"),
            ("box:size=4", (0.5, 0.5), "separable:row=3/8 1/2 1/8,column=3/8 1/2 1/8"),
            (
                "box:size=3",
                (1.0, 2.0),
                "separable:row=1/3 1/3 1/3,column=1/12 1/6 1/6 1/6 1/6 1/6 1/12",
            ),
            ("box:size=1", (0.5, 0.5), "separable:row=1,column=1"),
            (
                "boxblur:radius=2,times=2",
                (0.5, 1.0),
                "separable:row=.09 .24 .34 .24 .09,column=1/25 2/25 3/25 4/25 5/25 4/25 3/25 2/25 1/25",
            ),
            ("unsharp:sigma=2,amount=0.5", (0.5, 0.5), "unsharp:sigma=1,amount=0.5"),
            ("unsharp:sigma=2", (0.5, 1.0), "unsharp:sigma-x=1,sigma-y=2"),
            ("motion:length=15,angle=30", (0.5, 0.5), "motion:length=7.5,angle=30"),
            ("motion:length=15,angle=90", (0.5, 1.0), "motion:length=15,angle=90"),
            ("motion:length=1", (0.5, 0.5), "motion:length=1"),
            (
                "motion:length=20,angle=45",
                (0.5, 1.0),
                "motion:length=15.811388300841896,angle=63.43494882292201",
            ),
        ] {
            let (found, expected) =
                (scaled(text, across, down).unwrap(), expected.parse::<Filter>().unwrap());
            assert_eq!((found.cols(), found.rows()), (expected.cols(), expected.rows()), "{text}");
            for (row, col) in (0..found.rows()).flat_map(|r| (0..found.cols()).map(move |c| (r, c)))
            {
                let (found, expected) = (found.tap(row, col), expected.tap(row, col));
                assert!((found - expected).abs() < 1e-12, "{text}: {found} {expected}");
            }
        }
    }

    /// The middle of an even window lies half a pixel before the output pixel, at any scale.
    #[test]
    fn even_windows_keep_their_shift() {
        for text in ["box:size=8", "gaussian:sigma=3,size=32"] {
            let filter = scaled(text, 0.5, 1.0).unwrap();
            let (row, _) = filter.separated().unwrap();
            let at = |cell: usize| cell as f64 - (row.len() / 2) as f64;
            let mean: f64 = row.iter().enumerate().map(|(cell, tap)| tap * at(cell)).sum();
            assert!((mean + 0.25).abs() < 1e-5, "{text}: {mean}");
        }
    }

    #[test]
    fn filters_without_lengths_have_no_scale() {
        for text in [
            "sharpen",
            "sobel-x:size=5",
            "laplacian",
            "log:sigma=2",
            "dog:sigma=2",
            "emboss",
            "taps:1/4 1/2 1/4",
            "gaussian:2@0,0",
        ] {
            assert_eq!(scaled(text, 0.5, 0.5), None, "{text}");
            assert_eq!(scaled(text, 1.0, 1.0), Some(text.parse().unwrap()));
        }
    }

    #[test]
    fn factors_are_checked() {
        let filter = Filter::gaussian(2.0).unwrap();
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e30] {
            assert!(filter.at_scale(factor, 1.0).is_err() && filter.at_scale(1.0, factor).is_err());
        }
        assert!(scaled("gaussian:sigma=1e-300,size=4", 0.5, 0.5).is_some());
        assert!(Filter::box_filter(3, 3).unwrap().at_scale(1e30, 1.0).is_err());
    }
}
