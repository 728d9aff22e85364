//! The method of products of spectra: bytes of sums in f32 where few are uncertain, else in f64.

use super::cost::{Cost, results};
use super::fourier::{self, Finer};
use super::method::{Call, Method};
use crate::problem::Problem;
use crate::round::{Order, Rounder};
use crate::spectrum::{self, Precision, Tile};
use crate::{Family, Result, Variant};

pub(super) static SPECTRA: Method = Method {
    variant: Variant::Fourier,
    why: "so many taps on u8 images run as Fourier transforms",
    takes: |request| request.family == Family::Fourier && request.forms.spectra,
    cost,
    run,
};

/// Pairs of tiles, each transformed, multiplied and transformed back.
fn cost(problem: &Problem, _: usize) -> Cost {
    let (cols, rows) = (problem.cols as i32, problem.rows as i32);
    let share = problem.rounding.and_then(|rounding| rounding.by_spectra());
    let precision = match problem.rounding {
        Some(_) => Precision::of_bytes((cols, rows), problem.width as i32, share),
        None => Precision::Single,
    };
    let tile = Tile::new(precision, (cols, rows), problem.width as i32);
    let longest = |taps, size| spectrum::cut(taps, size).next().map_or(1, |(_, part)| part);
    let inside = |taps, size| (size + 1 - longest(taps, size)) as usize;
    let parts = spectrum::cut(cols, tile.width).count() * spectrum::cut(rows, tile.height).count();
    let beside = problem.width.div_ceil(2 * inside(cols, tile.width));
    let jobs = problem.height.div_ceil(inside(rows, tile.height)) * beside;
    let resolving = match (precision, share) {
        (Precision::Single, Some(share)) => {
            share * spectrum::resolving(problem.cols, problem.rows) * results(problem)
        }
        _ => 0.0,
    };
    let pairs = (jobs * problem.planes * parts) as f64;
    Cost { nanoseconds: pairs * tile.time(precision) + resolving, jobs }
}

fn run(call: Call<'_, '_, '_>) -> Result<()> {
    let Call { isa, window, bytes, resolver, src, dst, filtered, stage, .. } = call;
    let (width, filter) = (src.shape().width, &bytes.taps.filter);
    let in_f64 = Rounder::by_spectra(resolver);
    let in_f32 = Rounder::in_f32(resolver, Order::LargeSpectra);
    let share = Some(in_f32.share()).filter(|&share| share < 1.0);
    let size = (window.cols as i32, window.rows as i32);
    let results = (dst, filtered);
    if Precision::of_bytes(size, width as i32, share) == Precision::Double {
        let spectra = bytes.spectra_in_f64.of(filter, width)?;
        let rounders = Some((&in_f64, None));
        return fourier::run(isa, (&window, &[]), &spectra, rounders, src, results, stage);
    }
    let spectra = bytes.taps.spectra.of(filter, width)?;
    let again = || bytes.spectra_in_f64.like(filter, &spectra);
    let finer = Some(Finer { spectra: &again, rounder: &in_f64 });
    fourier::run(isa, (&window, &[]), &spectra, Some((&in_f32, finer)), src, results, stage)
}
