//! Other Rust libraries, linked in with feature `peers`: imageproc, libblur and image.

use std::rc::Rc;
use std::time::Duration;

use apron::{Filter, Image};

use crate::cases::{Case, Class, Random};
use crate::check;
use crate::contest::{Agreement, Rival};
use crate::measure::Turn;

/// A pixel type that the libraries know.
pub(crate) trait Linked: Random {
    /// The libraries' filters for a case.
    fn libraries(case: &Case, filter: &Filter, src: &Image<Self>) -> Vec<Library<Self>>;
}

/// One library's filter, and its result.
pub(crate) struct Library<P> {
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    /// The border that it uses, if not the requested one.
    note: &'static str,
    result: Vec<P>,
    run: Call<P>,
}

/// Filters into the vector given.
type Call<P> = Box<dyn FnMut(&mut Vec<P>) -> Result<(), String>>;

impl<P: Random> Library<P> {
    /// Filters once.
    fn run(&mut self) -> Result<(), String> {
        (self.run)(&mut self.result)
    }

    /// Compares the result with the expected one. If the border differs, a frame of `margin` pixels
    /// is left out.
    fn compare(&self, expected: &Image<P>, margin: usize) -> Agreement {
        let shape = expected.shape();
        let inner = |pixels: &[P], margin: usize| {
            let rows = pixels
                .chunks(shape.width * shape.channels)
                .take(shape.height - margin)
                .skip(margin);
            let inner: Vec<P> = rows
                .flat_map(|row| &row[margin * shape.channels..row.len() - margin * shape.channels])
                .copied()
                .collect();
            Image::from_vec(
                inner,
                shape.width - 2 * margin,
                shape.height - 2 * margin,
                shape.channels,
            )
        };
        let difference =
            |margin| match (inner(&self.result, margin), inner(expected.as_slice(), margin)) {
                (Ok(found), Ok(expected)) => check::difference(&found, &expected),
                _ => f64::INFINITY,
            };
        let (whole, inside) = (difference(0), difference(margin));
        let (difference, note) = match self.note {
            "" if whole > 8.0 * inside => (inside, "another border than requested"),
            "" => (whole, ""),
            note => (inside, note),
        };
        Agreement {
            difference: Some(difference).filter(|gap| gap.is_finite()),
            differ: None,
            note: note.to_owned(),
        }
    }
}

/// A library in a contest, compared with our result. If its border differs, a frame of `margin`
/// pixels is left out.
pub(crate) struct Beside<P> {
    pub(crate) library: Library<P>,
    pub(crate) expected: Rc<Image<P>>,
    pub(crate) margin: usize,
}

impl<P: Random> Rival for Beside<P> {
    fn check(&mut self) -> Result<Agreement, Option<String>> {
        self.library.run().map_err(Some)?;
        Ok(self.library.compare(&self.expected, self.margin))
    }

    fn times(&mut self, turn: Turn) -> Result<Vec<Duration>, Option<String>> {
        turn.times(|| self.library.run()).map_err(Some)
    }
}

/// The linked libraries' filters, for a case.
pub(crate) fn linked<P: Linked>(case: &Case, filter: &Filter, src: &Image<P>) -> Vec<Library<P>> {
    P::libraries(case, filter, src)
}

#[cfg(not(feature = "peers"))]
impl<P: Random> Linked for P {
    fn libraries(_: &Case, _: &Filter, _: &Image<Self>) -> Vec<Library<Self>> {
        Vec::new()
    }
}

#[cfg(feature = "peers")]
mod libraries {
    use image::imageops::{GaussianBlurParameters, blur_advanced};
    use image::{ImageBuffer, Luma, Pixel, Primitive, Rgb};
    use imageproc::definitions::Clamp;
    use imageproc::filter::{filter_clamped_parallel, separable_filter};
    use imageproc::kernel::Kernel;
    use imageproc::map::WithChannel;
    use libblur::{
        BlurImage, BlurImageMut, EdgeMode, FastBlurChannels, KernelShape, Scalar, ThreadingPolicy,
        filter_1d_exact, filter_2d,
    };

    use super::{Call, Case, Class, Filter, Image, Library, Linked};
    use crate::cases::{Form, Random};

    const REPLICATES: &str = "replicated edges";

    /// The most multiply-adds for imageproc's window; more would take many seconds.
    const IMAGEPROC_WORK: usize = 1 << 32;

    fn dense(filter: &Filter) -> Vec<f32> {
        let cells =
            (0..filter.rows()).flat_map(|row| (0..filter.cols()).map(move |col| (row, col)));
        cells.map(|(row, col)| filter.tap(row, col) as f32).collect()
    }

    /// The row and the column, in cases of class [`Class::Pair`].
    fn pair(case: &Case, filter: &Filter) -> Option<(Vec<f32>, Vec<f32>)> {
        let round = |taps: &[f64]| taps.iter().map(|&tap| tap as f32).collect();
        filter
            .separated()
            .filter(|_| case.form.class() == Class::Pair)
            .map(|(row, column)| (round(row), round(column)))
    }

    /// A library's filter, its result not yet computed.
    fn library<P: Random>(
        name: &'static str,
        class: Class,
        note: &'static str,
        case: &Case,
        run: Call<P>,
    ) -> Library<P> {
        Library { name, class, note, result: vec![P::default(); case.values()], run }
    }

    fn imageproc<P, C>(case: &Case, filter: &Filter, picture: ImageBuffer<P, Vec<C>>) -> Library<C>
    where
        P: Pixel<Subpixel = C> + WithChannel<C, Pixel = P> + Send + Sync + 'static,
        C: Random + Primitive + Into<f32> + Clamp<f32>,
        f32: From<C>,
    {
        match pair(case, filter) {
            Some((row, column)) => {
                let run = move |out: &mut Vec<C>| {
                    *out = separable_filter(&picture, &row, &column).into_raw();
                    Ok(())
                };
                library("imageproc separable_filter", Class::Pair, REPLICATES, case, Box::new(run))
            }
            None => {
                let (taps, size) = (dense(filter), case.taps as u32);
                let work = case.values() * taps.len();
                let run = move |out: &mut Vec<C>| {
                    if work > IMAGEPROC_WORK {
                        return Err("it would take many seconds".to_owned());
                    }
                    let kernel = Kernel::new(&taps, size, size);
                    *out = filter_clamped_parallel::<P, f32, C>(&picture, kernel).into_raw();
                    Ok(())
                };
                library("imageproc filter_parallel", Class::Dense, REPLICATES, case, Box::new(run))
            }
        }
    }

    fn image<P: Pixel<Subpixel = u8> + 'static>(
        case: &Case,
        picture: ImageBuffer<P, Vec<u8>>,
    ) -> Library<u8> {
        // It derives the same sigma from the number of taps.
        let parameters = GaussianBlurParameters::new_from_kernel_size(case.taps as f32);
        let run = move |out: &mut Vec<u8>| {
            *out = blur_advanced(&picture, parameters).into_raw();
            Ok(())
        };
        library("image blur_advanced", Class::Pair, REPLICATES, case, Box::new(run))
    }

    /// A macro, because libblur's functions are bound to traits that it does not export: they
    /// cannot be called by generic code.
    macro_rules! libblur {
        ($case:expr, $filter:expr, $src:expr, $value:ty) => {{
            let case = $case;
            let colour = case.channels == 3;
            let channels =
                if colour { FastBlurChannels::Channels3 } else { FastBlurChannels::Plane };
            let (width, height) = (case.width as u32, case.height as u32);
            let pixels = $src.as_slice().to_vec();
            let (border, constant, threads) =
                (EdgeMode::Reflect101.as_2d(), Scalar::default(), ThreadingPolicy::Adaptive);
            match pair(case, $filter) {
                Some((row, column)) => {
                    let run = move |out: &mut Vec<$value>| {
                        let src = BlurImage::borrow(&pixels, width, height, channels);
                        let mut dst = BlurImageMut::borrow(out, width, height, channels);
                        let filter = if colour {
                            filter_1d_exact::<$value, f32, 3>
                        } else {
                            filter_1d_exact::<$value, f32, 1>
                        };
                        filter(&src, &mut dst, &row, &column, border, constant, threads)
                            .map_err(|error| error.to_string())
                    };
                    library("libblur filter_1d_exact", Class::Pair, "", case, Box::new(run))
                }
                None => {
                    let (taps, shape) = (dense($filter), KernelShape::new(case.taps, case.taps));
                    let run = move |out: &mut Vec<$value>| {
                        let src = BlurImage::borrow(&pixels, width, height, channels);
                        let mut dst = BlurImageMut::borrow(out, width, height, channels);
                        filter_2d::<$value, f32>(
                            &src, &mut dst, &taps, shape, border, constant, threads,
                        )
                        .map_err(|error| error.to_string())
                    };
                    library("libblur filter_2d", Class::Dense, "", case, Box::new(run))
                }
            }
        }};
    }

    /// A copy of the pixels, as an image of the crate image.
    fn picture<P: Pixel<Subpixel = C>, C: Random + Primitive>(
        src: &Image<C>,
    ) -> Option<ImageBuffer<P, Vec<C>>> {
        let shape = src.shape();
        ImageBuffer::from_raw(shape.width as u32, shape.height as u32, src.as_slice().to_vec())
    }

    impl Linked for u8 {
        fn libraries(case: &Case, filter: &Filter, src: &Image<Self>) -> Vec<Library<Self>> {
            let gaussian = case.form == Form::Gaussian;
            let mut libraries = vec![libblur!(case, filter, src, u8)];
            match case.channels {
                1 => {
                    libraries.extend(
                        picture::<Luma<u8>, _>(src).map(|picture| imageproc(case, filter, picture)),
                    );
                    libraries.extend(
                        picture::<Luma<u8>, _>(src)
                            .filter(|_| gaussian)
                            .map(|picture| image(case, picture)),
                    );
                }
                _ => {
                    libraries.extend(
                        picture::<Rgb<u8>, _>(src).map(|picture| imageproc(case, filter, picture)),
                    );
                    libraries.extend(
                        picture::<Rgb<u8>, _>(src)
                            .filter(|_| gaussian)
                            .map(|picture| image(case, picture)),
                    );
                }
            }
            libraries
        }
    }

    impl Linked for f32 {
        fn libraries(case: &Case, filter: &Filter, src: &Image<Self>) -> Vec<Library<Self>> {
            if case.channels != 1 {
                return Vec::new();
            }
            let mut libraries = vec![libblur!(case, filter, src, f32)];
            libraries.extend(
                picture::<Luma<f32>, _>(src).map(|picture| imageproc(case, filter, picture)),
            );
            libraries
        }
    }
}
