//! Presets: filters with a name. A new preset needs a constructor here, and in `table.rs` a row of
//! `Filter::PRESETS` and an example.

use std::f64::consts::PI;

use super::{Filter, Sum, check_extents};
use crate::{Error, Result};

/// A filter whose taps are constants in this file, so that construction cannot fail.
fn constant(filter: Result<Filter>) -> Filter {
    filter.expect("taps written in the source are legal")
}

impl Filter {
    /// One tap of 1: the output is the input.
    pub fn identity() -> Self {
        constant(Self::product(vec![1.0], vec![1.0])).called("identity")
    }

    /// A Gaussian of standard deviation `sigma`, in pixels, with SciPy's radius,
    /// `int(4 * sigma + 0.5)`. The taps sum to 1. A `sigma` below 0.125 gives the identity.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `sigma` is finite, above 0, and small enough for a window of at
    /// most [`Filter::MAX_EXTENT`] taps.
    pub fn gaussian(sigma: f64) -> Result<Self> {
        let taps = gaussian_taps(sigma, gaussian_size("sigma", sigma)?)?;
        Ok(Self::separable_f64(&taps, &taps)?.called(format!("gaussian:sigma={sigma}")))
    }

    /// A Gaussian with a standard deviation for each axis, in pixels: `sigma_x` along rows,
    /// `sigma_y` along columns. Each axis has its own radius, as in [`Filter::gaussian`].
    ///
    /// ```
    /// use apron::Filter;
    ///
    /// let wide = Filter::gaussian_xy(3.0, 1.0)?;
    /// assert_eq!((wide.cols(), wide.rows()), (25, 9));
    /// assert_eq!(wide.to_string(), "gaussian:sigma-x=3,sigma-y=1");
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Filter::gaussian`], for each of the two.
    pub fn gaussian_xy(sigma_x: f64, sigma_y: f64) -> Result<Self> {
        let row = gaussian_taps(sigma_x, gaussian_size("sigma-x", sigma_x)?)?;
        let column = gaussian_taps(sigma_y, gaussian_size("sigma-y", sigma_y)?)?;
        Ok(Self::product(row, column)?.called(format!("gaussian:{}", sigma_text(sigma_x, sigma_y))))
    }

    /// A Gaussian of standard deviation `sigma`, in pixels, in a window of `cols` by `rows` taps.
    /// The taps sum to 1.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `sigma` is finite and above 0 and the sizes are in
    /// `1..=MAX_EXTENT`.
    pub fn gaussian_sized(sigma: f64, cols: usize, rows: usize) -> Result<Self> {
        check_sigma("sigma", sigma)?;
        Self::gaussian_xy_sized(sigma, sigma, cols, rows)
    }

    /// A Gaussian with a standard deviation for each axis, in pixels, in a window of `cols` by
    /// `rows` taps. The taps sum to 1.
    ///
    /// # Errors
    /// As for [`Filter::gaussian_sized`], for each of the two.
    pub fn gaussian_xy_sized(sigma_x: f64, sigma_y: f64, cols: usize, rows: usize) -> Result<Self> {
        check_extents(cols, rows)?;
        check_sigma("sigma-x", sigma_x)?;
        check_sigma("sigma-y", sigma_y)?;
        let name = format!("gaussian:{},{}", sigma_text(sigma_x, sigma_y), size_text(cols, rows));
        Ok(Self::product(gaussian_taps(sigma_x, cols)?, gaussian_taps(sigma_y, rows)?)?
            .called(name))
    }

    /// A Gaussian in a window of `cols` by `rows` taps. The standard deviation of each axis is
    /// OpenCV's for that size, `0.3 * ((size - 1) / 2 - 1) + 0.8`. The taps sum to 1.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless the sizes are in `1..=MAX_EXTENT`.
    pub fn gaussian_from_size(cols: usize, rows: usize) -> Result<Self> {
        check_extents(cols, rows)?;
        let taps = |size| gaussian_taps(sigma_of_size(size), size);
        Ok(Self::product(taps(cols)?, taps(rows)?)?
            .called(format!("gaussian:{}", size_text(cols, rows))))
    }

    /// The mean over a window of `cols` by `rows` pixels.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless the sizes are in `1..=MAX_EXTENT`.
    pub fn box_filter(cols: usize, rows: usize) -> Result<Self> {
        check_extents(cols, rows)?;
        // A row of ones: the row pass rounds nothing, and every tap is 1 / (cols * rows), rounded
        // once.
        let row = filled(1.0, cols)?;
        let column = filled(1.0 / (cols as f64 * rows as f64), rows)?;
        Ok(Self::product(row, column)?.called(format!("box:{}", size_text(cols, rows))))
    }

    /// The mean over `2 * radius + 1` by `2 * radius + 1` pixels, taken `times` times, as one
    /// filter of `2 * radius * times + 1` taps a side. With 3 or more it is nearly a Gaussian, of
    /// the standard deviation `sqrt(times * radius * (radius + 1) / 3)`.
    ///
    /// The taps of an axis are whole numbers over `(2 * radius + 1)^times`: the coefficients of
    /// `(1 + x + .. + x^(2 * radius))^times`. Where that divisor is at most 65,536, bytes are the
    /// exact sums of these, rounded once.
    ///
    /// Pixels outside the image come from the image, not from the mean before. So with
    /// [`Border::Replicate`] and [`Border::Constant`], results nearer to an edge than
    /// `radius * times` differ from those of so many calls. With the borders that mirror or repeat
    /// the image, no result differs, but for the roundings between the calls.
    ///
    /// ```
    /// use apron::Filter;
    ///
    /// let blur = Filter::box_blur(1, 2)?;
    /// let taps = [1.0, 2.0, 3.0, 2.0, 1.0].map(|count| count / 9.0);
    /// assert_eq!(blur.separated(), Some((&taps[..], &taps[..])));
    /// assert_eq!(blur, "boxblur:radius=1,times=2".parse()?);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] unless the window has at most [`Filter::MAX_EXTENT`] taps a side and
    /// `times` is at least 1 and so small that the divisor fits 127 bits, as 80 does for a radius
    /// of 1 and 19 for 50; [`Error::HostMemory`] if there is not enough memory for the taps.
    ///
    /// [`Border::Constant`]: crate::Border::Constant
    /// [`Border::Replicate`]: crate::Border::Replicate
    pub fn box_blur(radius: usize, times: usize) -> Result<Self> {
        let (counts, divisor) = box_counts(radius, times)?;
        let mut taps = crate::memory::reserve(counts.len())?;
        taps.extend(counts.iter().map(|&count| count as f64 / divisor as f64));
        Ok(Self::separable_f64(&taps, &taps)?
            .called(format!("boxblur:radius={radius},times={times}")))
    }

    /// The image minus `amount` times its Laplacian with 4 neighbours. An `amount` of 1 gives the
    /// usual `0 -1 0; -1 5 -1; 0 -1 0`.
    ///
    /// # Errors
    /// [`Error::Parameter`] if `amount` is not finite.
    pub fn sharpen(amount: f64) -> Result<Self> {
        check_amount(amount)?;
        let (side, middle) = (-amount, 1.0 + 4.0 * amount);
        let taps = [0.0, side, 0.0, side, middle, side, 0.0, side, 0.0];
        Ok(Self::from_taps_f64(3, 3, &taps)?.called(format!("sharpen:amount={amount}")))
    }

    /// Unsharp mask: the image plus `amount` times the difference between the image and its
    /// Gaussian blur of standard deviation `sigma`, in pixels.
    ///
    /// # Errors
    /// [`Error::Parameter`] as for [`Filter::gaussian`], and if `amount` is not finite;
    /// [`Error::HostMemory`] if there is not enough memory for the taps.
    pub fn unsharp(sigma: f64, amount: f64) -> Result<Self> {
        check_amount(amount)?;
        let gaussian = gaussian_taps(sigma, gaussian_size("sigma", sigma)?)?;
        let filter = unsharp_by(gaussian.clone(), gaussian, amount)?;
        Ok(filter.called(format!("unsharp:sigma={sigma},amount={amount}")))
    }

    /// [`Filter::unsharp`] with a standard deviation for each axis, in pixels: `sigma_x` along
    /// rows, `sigma_y` along columns.
    ///
    /// # Errors
    /// As for [`Filter::unsharp`], for each of the two.
    pub fn unsharp_xy(sigma_x: f64, sigma_y: f64, amount: f64) -> Result<Self> {
        check_amount(amount)?;
        let row = gaussian_taps(sigma_x, gaussian_size("sigma-x", sigma_x)?)?;
        let column = gaussian_taps(sigma_y, gaussian_size("sigma-y", sigma_y)?)?;
        let name = format!("unsharp:{},amount={amount}", sigma_text(sigma_x, sigma_y));
        Ok(unsharp_by(row, column, amount)?.called(name))
    }

    /// [`Filter::unsharp_xy`] that leaves noise alone: where the picture differs from its blur by
    /// less than `threshold`, in the units of the pixels, results are the pixels themselves.
    ///
    /// A result is `p + amount (p - blur)`, so its distance from the pixel decides: where the
    /// result, as it is stored, differs from the pixel by less than `|amount| threshold`, it
    /// becomes the pixel. Photoshop counts its threshold in levels of 8 bits, as this does for u8.
    /// ImageMagick's is a part of white, of twice the difference: 3 here is `0.0235` there
    /// (`2 * 3 / 255`).
    ///
    /// ```
    /// use apron::{Border, Device, Filter, Image, Plan};
    ///
    /// let sharpen = Filter::unsharp_above(1.0, 1.0, 1.0, 4.0)?;
    /// let plan = Plan::builder(&sharpen).device(Device::Cpu).build()?;
    /// // Noise of 2, and an edge of 100.
    /// let row = vec![50u8, 52, 50, 52, 50, 52, 150, 152, 150, 152, 150, 152];
    /// let sharp = plan.filter(&Image::from_vec(row, 12, 1, 1)?)?;
    /// assert_eq!(sharp.as_slice()[..3], [50, 52, 50]);
    /// assert!(sharp.as_slice()[5] < 40 && sharp.as_slice()[6] > 160);
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Filter::unsharp_xy`], and [`Error::Parameter`] if the threshold is negative or not
    /// finite.
    pub fn unsharp_above(sigma_x: f64, sigma_y: f64, amount: f64, threshold: f64) -> Result<Self> {
        if !(0.0..f64::INFINITY).contains(&threshold) {
            let expected = "a finite number of at least 0".to_owned();
            let value = threshold.to_string();
            return Err(Error::Parameter { name: "threshold", value, expected });
        }
        let filter = Self::unsharp_xy(sigma_x, sigma_y, amount)?;
        if threshold == 0.0 {
            return Ok(filter);
        }
        let sigma = sigma_text(sigma_x, sigma_y);
        let name = format!("unsharp:{sigma},amount={amount},threshold={threshold}");
        Ok(Self { least_change: (amount * threshold).abs(), ..filter.called(name) })
    }

    /// Derivative along x: `-1 0 1` smoothed by `1 2 1` along y.
    pub fn sobel_x() -> Self {
        constant(Self::sobel_x_sized(3))
    }

    /// Derivative along y: `-1 0 1` smoothed by `1 2 1` along x.
    pub fn sobel_y() -> Self {
        constant(Self::sobel_y_sized(3))
    }

    /// [`Filter::sobel_x`] with `size` by `size` taps: those of OpenCV's `getDerivKernels`, not
    /// normalised.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `size` is odd, from 3 to 31.
    pub fn sobel_x_sized(size: usize) -> Result<Self> {
        let (derivative, smoothing) = sobel_taps(size)?;
        Ok(Self::product(derivative, smoothing)?.called(sobel_name("sobel-x", size)))
    }

    /// [`Filter::sobel_y`] of another size; see [`Filter::sobel_x_sized`].
    ///
    /// # Errors
    /// As for [`Filter::sobel_x_sized`].
    pub fn sobel_y_sized(size: usize) -> Result<Self> {
        let (derivative, smoothing) = sobel_taps(size)?;
        Ok(Self::product(smoothing, derivative)?.called(sobel_name("sobel-y", size)))
    }

    /// Derivative along x: `-1 0 1` smoothed by `3 10 3` along y.
    pub fn scharr_x() -> Self {
        constant(Self::product(vec![-1.0, 0.0, 1.0], vec![3.0, 10.0, 3.0])).called("scharr-x")
    }

    /// Derivative along y: `-1 0 1` smoothed by `3 10 3` along x.
    pub fn scharr_y() -> Self {
        constant(Self::product(vec![3.0, 10.0, 3.0], vec![-1.0, 0.0, 1.0])).called("scharr-y")
    }

    /// Derivative along x: `-1 0 1` smoothed by `1 1 1` along y.
    pub fn prewitt_x() -> Self {
        constant(Self::product(vec![-1.0, 0.0, 1.0], vec![1.0; 3])).called("prewitt-x")
    }

    /// Derivative along y: `-1 0 1` smoothed by `1 1 1` along x.
    pub fn prewitt_y() -> Self {
        constant(Self::product(vec![1.0; 3], vec![-1.0, 0.0, 1.0])).called("prewitt-y")
    }

    /// Sum of the second derivatives: `0 1 0; 1 -4 1; 0 1 0` with 4 neighbours,
    /// `1 1 1; 1 -8 1; 1 1 1` with 8.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `neighbours` is 4 or 8.
    pub fn laplacian(neighbours: usize) -> Result<Self> {
        let corner = match neighbours {
            4 => 0.0,
            8 => 1.0,
            _ => {
                return Err(Error::Parameter {
                    name: "neighbours",
                    value: neighbours.to_string(),
                    expected: "4 or 8".to_owned(),
                });
            }
        };
        let taps = [corner, 1.0, corner, 1.0, -(neighbours as f64), 1.0, corner, 1.0, corner];
        Ok(Self::from_taps_f64(3, 3, &taps)?.called(format!("laplacian:neighbours={neighbours}")))
    }

    /// Laplacian of a Gaussian of standard deviation `sigma`, in pixels, with SciPy's radius,
    /// `int(4 * sigma + 0.5)`.
    ///
    /// Equals SciPy's `gaussian_laplace`, except that the sum of the truncated second derivative is
    /// subtracted, so that a flat image gives 0.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `sigma` is at least 0.5 and small enough for
    /// [`Filter::MAX_EXTENT`]. Below 0.5 the window has too few samples for a Laplacian.
    /// [`Error::HostMemory`] if there is not enough memory for the taps.
    pub fn laplacian_of_gaussian(sigma: f64) -> Result<Self> {
        if sigma < 0.5 {
            return Err(bad_sigma("sigma", sigma, "at least 0.5 for a Laplacian of Gaussian"));
        }
        let size = gaussian_size("sigma", sigma)?;
        let gaussian = gaussian_taps(sigma, size)?;
        let variance = sigma * sigma;
        let mut second = crate::memory::reserve(size)?;
        second.extend(gaussian.iter().enumerate().map(|(index, tap)| {
            let x = index as f64 - (size / 2) as f64;
            tap * (x * x / variance - 1.0) / variance
        }));
        let rest: f64 = second.iter().sum();
        second.iter_mut().zip(&gaussian).for_each(|(tap, weight)| *tap -= rest * weight);
        let taps = outer_sum(&[(&second, &gaussian), (&gaussian, &second)])?;
        let sum = Sum {
            point: 0.0,
            terms: vec![(second.clone(), gaussian.clone()), (gaussian, second)],
            is_given: true,
        };
        Ok(Self { sum: Some(sum), ..Self::dense(size, size, taps)? }
            .called(format!("log:sigma={sigma}")))
    }

    /// Difference of Gaussians: the Gaussian of standard deviation `sigma` minus the Gaussian of
    /// standard deviation `wider`, in pixels. Both have the window of the wider one, with SciPy's
    /// radius, `int(4 * sigma + 0.5)`. A flat image gives 0.
    ///
    /// # Errors
    /// [`Error::Parameter`] as for [`Filter::gaussian`], for each of the two; [`Error::HostMemory`]
    /// if there is not enough memory for the taps.
    pub fn difference_of_gaussians(sigma: f64, wider: f64) -> Result<Self> {
        let size = gaussian_size("sigma", sigma)?.max(gaussian_size("wider", wider)?);
        let (narrow, wide) = (gaussian_taps(sigma, size)?, gaussian_taps(wider, size)?);
        let mut minus = crate::memory::reserve(size)?;
        minus.extend(wide.iter().map(|tap| -tap));
        let taps = outer_sum(&[(&narrow, &narrow), (&wide, &minus)])?;
        let sum = Sum {
            point: 0.0,
            terms: vec![(narrow.clone(), narrow), (wide, minus)],
            is_given: true,
        };
        Ok(Self { sum: Some(sum), ..Self::dense(size, size, taps)? }
            .called(format!("dog:sigma={sigma},wider={wider}")))
    }

    /// Relief lit from the upper left: `-2 -1 0; -1 1 1; 0 1 2`.
    pub fn emboss() -> Self {
        constant(Self::from_taps_f64(3, 3, &[-2.0, -1.0, 0.0, -1.0, 1.0, 1.0, 0.0, 1.0, 2.0]))
            .called("emboss")
    }

    /// Motion blur: the mean along a line through the pixel, `length` pixels long. `angle` is in
    /// degrees, counter-clockwise from the x axis. A tap falls off linearly with its distance from
    /// the line.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `length` is at least 1 and small enough for
    /// [`Filter::MAX_EXTENT`] and `angle` is finite; [`Error::HostMemory`] if there is not enough
    /// memory for the taps.
    pub fn motion(length: f64, angle: f64) -> Result<Self> {
        let longest = (Self::MAX_EXTENT - 1) as f64;
        if !(1.0..=longest).contains(&length) {
            return Err(Error::Parameter {
                name: "length",
                value: length.to_string(),
                expected: format!("a number of pixels from 1 to {longest}"),
            });
        }
        if !angle.is_finite() {
            return Err(Error::Parameter {
                name: "angle",
                value: angle.to_string(),
                expected: "a finite number of degrees".to_owned(),
            });
        }
        let half = (length - 1.0) / 2.0;
        let (sin, cos) = sin_cos_degrees(angle);
        let reach = |extent: f64| extent.abs().ceil() as usize;
        let (reach_x, reach_y) = (reach(half * cos), reach(half * sin));
        let (cols, rows) = (2 * reach_x + 1, 2 * reach_y + 1);
        let mut taps = crate::memory::reserve(cols.saturating_mul(rows))?;
        for row in 0..rows {
            // Rows count downwards, angles upwards.
            let y = reach_y as f64 - row as f64;
            taps.extend((0..cols).map(|col| {
                let x = col as f64 - reach_x as f64;
                let along = (x * cos + y * sin).clamp(-half, half);
                let distance = (x - along * cos).hypot(y - along * sin);
                (1.0 - distance).max(0.0)
            }));
        }
        normalise(&mut taps);
        Ok(Self::dense(cols, rows, taps)?.called(format!("motion:length={length},angle={angle}")))
    }

    fn called(mut self, preset: impl Into<String>) -> Self {
        self.preset = Some(preset.into());
        self
    }
}

/// The number of taps of a Gaussian with SciPy's radius for `sigma`. Errors call the parameter
/// `name`.
fn gaussian_size(name: &'static str, sigma: f64) -> Result<usize> {
    check_sigma(name, sigma)?;
    let radius = (4.0 * sigma + 0.5).floor();
    let greatest = (Filter::MAX_EXTENT - 1) / 2;
    if radius > greatest as f64 {
        let expected =
            format!("at most {}, for a window of {} taps", greatest / 4, Filter::MAX_EXTENT);
        return Err(bad_sigma(name, sigma, &expected));
    }
    Ok(2 * radius as usize + 1)
}

/// The pixel plus `amount` times its difference from the blur by this row and column, both of an
/// odd number of taps.
fn unsharp_by(row: Vec<f64>, mut column: Vec<f64>, amount: f64) -> Result<Filter> {
    let (cols, rows) = (row.len(), column.len());
    let mut taps = outer_sum(&[(&row, &column)])?;
    taps.iter_mut().for_each(|tap| *tap *= -amount);
    taps[rows / 2 * cols + cols / 2] += 1.0 + amount;
    column.iter_mut().for_each(|tap| *tap *= -amount);
    let sum = Sum { point: 1.0 + amount, terms: vec![(row, column)], is_given: true };
    Ok(Filter { sum: Some(sum), ..Filter::dense(cols, rows, taps)? })
}

fn check_sigma(name: &'static str, sigma: f64) -> Result<()> {
    if sigma > 0.0 && sigma.is_finite() {
        return Ok(());
    }
    let expected = match name {
        "sigma" => "a number of pixels above 0; to derive it from the window, give the size alone",
        _ => "a number of pixels above 0; one below 0.125 does not blur its axis",
    };
    Err(bad_sigma(name, sigma, expected))
}

fn bad_sigma(name: &'static str, sigma: f64, expected: &str) -> Error {
    Error::Parameter { name, value: sigma.to_string(), expected: expected.to_owned() }
}

fn check_amount(amount: f64) -> Result<()> {
    if amount.is_finite() {
        return Ok(());
    }
    Err(Error::Parameter {
        name: "amount",
        value: amount.to_string(),
        expected: "a finite number".to_owned(),
    })
}

/// The standard deviation of a Gaussian that is given by its window alone: OpenCV's.
pub(super) fn sigma_of_size(size: usize) -> f64 {
    0.3 * ((size as f64 - 1.0) * 0.5 - 1.0) + 0.8
}

/// Samples of a Gaussian, centred on `size` cells; they sum to 1.
fn gaussian_taps(sigma: f64, size: usize) -> Result<Vec<f64>> {
    let middle = (size - 1) as f64 / 2.0;
    let mut taps = crate::memory::reserve(size)?;
    taps.extend((0..size).map(|index| {
        // Divide before squaring: the square of a tiny sigma underflows to 0.
        let x = (index as f64 - middle) / sigma;
        (-0.5 * x * x).exp()
    }));
    if taps[size / 2] == 0.0 {
        // An even window has no centre cell. For a tiny sigma all samples underflow to 0: the limit
        // is equal taps in the two middle cells.
        taps[size / 2 - 1..=size / 2].fill(1.0);
    }
    normalise(&mut taps);
    Ok(taps)
}

pub(super) fn normalise(taps: &mut [f64]) {
    let sum: f64 = taps.iter().sum();
    taps.iter_mut().for_each(|tap| *tap /= sum);
}

fn filled(tap: f64, len: usize) -> Result<Vec<f64>> {
    let mut taps = crate::memory::reserve(len)?;
    taps.resize(len, tap);
    Ok(taps)
}

/// The numerators and the divisor of the taps of a mean over `2 * radius + 1` cells, taken `times`
/// times.
fn box_counts(radius: usize, times: usize) -> Result<(Vec<u128>, u128)> {
    /// Bits of the greatest divisor. Sums of numerators are at most as great.
    const BITS: u32 = 127;
    let greatest = (Filter::MAX_EXTENT - 1) / 2;
    let wrong = |name, value: usize, expected| Error::Parameter {
        name,
        value: value.to_string(),
        expected,
    };
    if radius > greatest {
        let expected = format!("at most {greatest}, for a window of {} taps", Filter::MAX_EXTENT);
        return Err(wrong("radius", radius, expected));
    }
    let width = 2 * radius + 1;
    // A radius of 0 has no greatest number: it gets that of 1.
    let powers = std::iter::successors(Some(1u128), |power| {
        power.checked_mul(width.max(3) as u128).filter(|power| power.ilog2() < BITS)
    });
    let most = (powers.count() - 1).min(greatest.checked_div(radius).unwrap_or(usize::MAX));
    if !(1..=most).contains(&times) {
        let expected = format!("1 to {most} for a radius of {radius}");
        return Err(wrong("times", times, expected));
    }
    let mut counts = vec![1u128];
    for _ in 0..times {
        let len = counts.len() + width - 1;
        let mut sums = crate::memory::reserve(len)?;
        let mut sum = 0;
        sums.extend((0..len).map(|at| {
            sum += counts.get(at).copied().unwrap_or(0);
            sum -= at.checked_sub(width).map_or(0, |left| counts[left]);
            sum
        }));
        counts = sums;
    }
    Ok((counts, (width as u128).pow(times as u32)))
}

/// The sum of the outer products of rows and columns, all of one size, row by row.
fn outer_sum(terms: &[(&[f64], &[f64])]) -> Result<Vec<f64>> {
    let (cols, rows) = (terms[0].0.len(), terms[0].1.len());
    let mut taps = crate::memory::reserve(cols.saturating_mul(rows))?;
    for r in 0..rows {
        taps.extend(
            (0..cols).map(|c| terms.iter().map(|(row, column)| row[c] * column[r]).sum::<f64>()),
        );
    }
    Ok(taps)
}

/// The derivative and the smoothing taps of a Sobel filter: binomial coefficients and their
/// differences.
fn sobel_taps(size: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    if size.is_multiple_of(2) || !(3..=31).contains(&size) {
        return Err(Error::Parameter {
            name: "size",
            value: size.to_string(),
            expected: "an odd number from 3 to 31 for a Sobel filter".to_owned(),
        });
    }
    let times = |taps: &[f64], a: f64, b: f64| -> Vec<f64> {
        let mut product = vec![0.0; taps.len() + 1];
        for (index, tap) in taps.iter().enumerate() {
            product[index] += a * tap;
            product[index + 1] += b * tap;
        }
        product
    };
    let binomial = (0..size - 2).fold(vec![1.0], |taps, _| times(&taps, 1.0, 1.0));
    Ok((times(&binomial, -1.0, 1.0), times(&binomial, 1.0, 1.0)))
}

fn sobel_name(name: &str, size: usize) -> String {
    if size == 3 { name.to_owned() } else { format!("{name}:size={size}") }
}

fn sigma_text(x: f64, y: f64) -> String {
    if x == y { format!("sigma={x}") } else { format!("sigma-x={x},sigma-y={y}") }
}

fn size_text(cols: usize, rows: usize) -> String {
    if cols == rows { format!("size={cols}") } else { format!("cols={cols},rows={rows}") }
}

/// Sine and cosine of an angle in degrees, exact for multiples of 90 degrees.
pub(super) fn sin_cos_degrees(angle: f64) -> (f64, f64) {
    let turn = angle.rem_euclid(360.0);
    if turn % 90.0 == 0.0 {
        [(0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)][(turn / 90.0) as usize % 4]
    } else {
        (turn * (PI / 180.0)).sin_cos()
    }
}

#[cfg(test)]
mod tests {
    use super::super::reads_back;
    use super::*;

    fn dense(filter: &Filter) -> Vec<f64> {
        (0..filter.rows())
            .flat_map(|row| (0..filter.cols()).map(move |col| filter.tap(row, col)))
            .collect()
    }

    #[test]
    fn every_preset_reads_back_as_it_prints() {
        Filter::EXAMPLES.iter().copied().for_each(reads_back);
        for preset in Filter::PRESETS {
            assert!(
                Filter::EXAMPLES.iter().any(|text| text.starts_with(preset.name)),
                "{} is not among them",
                preset.name
            );
        }
    }

    /// Against products of polynomials, and the moments of a mean.
    #[test]
    fn box_blurs_are_repeated_means() {
        for (radius, times) in [(0, 80), (1, 1), (1, 2), (1, 80), (2, 4), (5, 3), (50, 19)] {
            let side = vec![1.0 / (2 * radius + 1) as f64; 2 * radius + 1];
            let mut expected = vec![1.0];
            for _ in 0..times {
                let mut product = vec![0.0; expected.len() + 2 * radius];
                for (at, tap) in expected.iter().enumerate() {
                    product[at..].iter_mut().zip(&side).for_each(|(to, part)| *to += tap * part);
                }
                expected = product;
            }
            let filter = Filter::box_blur(radius, times).unwrap();
            let (row, column) = filter.separated().unwrap();
            assert_eq!((row, row.len()), (column, 2 * radius * times + 1));
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b.abs();
            assert!(
                row.iter().zip(&expected).all(|(&tap, &expected)| near(tap, expected)),
                "{radius} {times}"
            );
            let middle = (row.len() / 2) as f64;
            let at = |index: usize| index as f64 - middle;
            let variance: f64 =
                row.iter().enumerate().map(|(index, tap)| tap * at(index) * at(index)).sum();
            assert!(near(variance, (times * radius * (radius + 1)) as f64 / 3.0));
        }
        for (radius, times, words) in [
            (5, 0, ["times", "1 to 36"]),
            (5, 37, ["times", "1 to 36"]),
            (0, 81, ["times", "1 to 80"]),
            (Filter::MAX_EXTENT / 2 - 1, 2, ["times", "1 to 1 "]),
            (usize::MAX, 1, ["radius", "at most"]),
        ] {
            let message = Filter::box_blur(radius, times).unwrap_err().to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
    }

    #[test]
    fn presets_have_the_taps_of_the_field() {
        let taps = |text: &str| dense(&text.parse().unwrap());
        assert_eq!(taps("sobel-x"), [-1., 0., 1., -2., 0., 2., -1., 0., 1.]);
        assert_eq!(taps("sobel-y"), [-1., -2., -1., 0., 0., 0., 1., 2., 1.]);
        // OpenCV's getDerivKernels(1, 0, 5).
        let sobel: Filter = "sobel-x:size=5".parse().unwrap();
        assert_eq!(
            sobel.separated(),
            Some((&[-1., -2., 0., 2., 1.][..], &[1., 4., 6., 4., 1.][..]))
        );
        assert_eq!(taps("scharr-y"), [-3., -10., -3., 0., 0., 0., 3., 10., 3.]);
        assert_eq!(taps("prewitt-x"), [-1., 0., 1., -1., 0., 1., -1., 0., 1.]);
        assert_eq!(taps("laplacian"), [0., 1., 0., 1., -4., 1., 0., 1., 0.]);
        assert_eq!(taps("sharpen"), [0., -1., 0., -1., 5., -1., 0., -1., 0.]);
        assert_eq!(taps("box:cols=2,rows=3"), [1.0 / 6.0; 6]);
        assert_eq!(taps("motion:length=5"), [0.2; 5]);
        assert_eq!(taps("motion:length=1,angle=77"), [1.0]);
        let upright: Filter = "motion:length=5,angle=-90".parse().unwrap();
        assert_eq!((upright.cols(), upright.rows()), (1, 5));
        // A line to the upper right: the upper right and lower left corners are bright.
        let slanted: Filter = "motion:length=9,angle=45".parse().unwrap();
        assert_eq!((slanted.cols(), slanted.rows()), (7, 7));
        assert!(slanted.tap(1, 5) > 0.05 && slanted.tap(5, 1) > 0.05);
        assert_eq!((slanted.tap(1, 1), slanted.tap(5, 5)), (0.0, 0.0));
        let sum = |text: &str| taps(text).iter().sum::<f64>();
        for text in [
            "gaussian:sigma=3",
            "boxblur:5",
            "gaussian:size=8",
            "unsharp:sigma=2,amount=3",
            "motion:length=12.3,angle=17",
        ] {
            assert!((sum(text) - 1.0).abs() < 1e-12, "{text}");
        }
        for sigma in ["0.5", "1", "1.4", "5"] {
            assert!(sum(&format!("log:sigma={sigma}")).abs() < 1e-12);
        }
    }

    #[test]
    fn gaussians_are_those_of_scipy_and_opencv() {
        // SciPy's `gaussian_filter` weights for sigma 1, from the centre.
        let gaussian = Filter::gaussian(1.0).unwrap();
        let (row, _) = gaussian.separated().unwrap();
        let expected = [
            3.9894346935609776e-01,
            2.4197144565660073e-01,
            5.3991127420704415e-02,
            4.4318616200312655e-03,
        ];
        assert_eq!(row.len(), 9);
        for (found, expected) in row[4..].iter().zip(expected) {
            assert!((found - expected).abs() < 1e-15, "{found} {expected}");
        }
        let (wide, rows) = (Filter::gaussian_xy(3.0, 1.0).unwrap(), Filter::gaussian(3.0).unwrap());
        assert_eq!(wide.separated(), Some((rows.separated().unwrap().0, row)));
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
