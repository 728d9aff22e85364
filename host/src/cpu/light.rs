//! Filters over light: values are decoded as lines are loaded, and sums encoded as they are stored.
//!
//! ```text
//! for each rectangle of results, as in bands:
//!     lines: stored values, decoded; colours times alpha where it weighs them
//!     sums in f32, in the order of the filter's family
//!     colours over alpha; encoded; to pixels
//!     bytes of bytes: the exact sum of each that the error in f32 leaves uncertain
//! ```

use super::Engine;
use super::bands;
use super::fourier;
use super::frame::Frame;
use super::run::Run;
use super::taps::{Bytes, Taps};
use crate::filter::ByteFilter;
use crate::filter::whole::WholeTaps;
use crate::image::stored::{StoredView, StoredViewMut};
use crate::image::{Image, ImageView, ImageViewMut, Pixel, Scalar, Shape};
use crate::light::bytes::Bytes as ByteLight;
use crate::light::error::{self, Made};
use crate::light::smooth::Smooth;
use crate::light::{Tables, white};
use crate::progress::Stage;
use crate::round::{CHUNK, Order, column_block, round_chunk, row_block};
use crate::simd::{Isa, Lanes, Vectorized};
use crate::window::Window;
use crate::{Family, Result, Variant, spectrum, with_pixels};

/// How the values of a frame are decoded, and its sums encoded.
pub(super) struct Light<'a> {
    tables: &'a Tables,
    /// Whether pixels are bytes.
    of_bytes: bool,
    white: f32,
    /// Whether the last channel is alpha, and weighs the others.
    weighted: bool,
    /// What makes bytes of bytes exact.
    exact: Option<Exact<'a>>,
}

/// What decides a byte: how far its sum may be off, and else the exact sum.
struct Exact<'a> {
    filter: &'a ByteFilter,
    window: Window,
    src: ImageView<'a, u8>,
    /// The order of the sums.
    order: Order,
    /// The error of a sum: relative to it, and to the greatest value that it is made of.
    relative: f32,
    absolute: f32,
    /// The light outside the picture.
    outside: f32,
}

impl Engine {
    /// As [`Engine::run`], over the light that the values stand for. If `weighted`, the last
    /// channel is alpha, weighs the others, and all are filtered.
    pub(crate) fn run_light(
        &self,
        family: Family,
        (tables, weighted): (&Tables, bool),
        src: &StoredView<'_>,
        (dst, filtered): (&mut StoredViewMut<'_>, usize),
        stage: &Stage<'_>,
    ) -> Result<Variant> {
        // Errors of spectra are relative to white: too great for quotients where alpha is small.
        let family = match family {
            Family::Fourier if weighted => Family::Direct,
            family => family,
        };
        let (source, target) = (src.scalar(), dst.scalar());
        let white = white(source, target);
        let mut light =
            Light { tables, of_bytes: source == Scalar::U8, white, weighted, exact: None };
        let mut taps = &self.taps;
        if (source, target) == (Scalar::U8, Scalar::U8) {
            let filter = self.taps.filter.byte_filter()?;
            let window = self.window();
            taps = &self.bytes.get_or_init(|| Bytes::new(filter, &window)).taps;
            light.exact =
                Some(Exact::new(family, (filter, window), src.typed(), (tables.bytes(), weighted)));
        }
        with_pixels!(source, S => with_pixels!(target, D => {
            let images = (&src.typed::<S>(), &mut dst.typed::<D>());
            self.light_of((family, taps), light, images, filtered, stage)
        }))
    }

    fn light_of<S: Pixel, D: Pixel>(
        &self,
        (family, taps): (Family, &Taps),
        light: Light<'_>,
        (src, dst): (&ImageView<'_, S>, &mut ImageViewMut<'_, D>),
        filtered: usize,
        stage: &Stage<'_>,
    ) -> Result<Variant> {
        if family == Family::Fourier {
            self.light_by_spectra(taps, &light, (src, dst), filtered, stage)?;
            return Ok(Variant::Fourier);
        }
        let (variant, terms) = taps.ordered(family)?;
        let frame = Frame::new(self.isa, self.window(), src, dst, filtered);
        let frame = Frame { light: Some(light), ..frame };
        bands::run(&Run::new(&frame, &terms, None), None, stage)?;
        Ok(variant)
    }

    /// The whole picture is decoded, so that spectra read it as any other.
    fn light_by_spectra<S: Pixel, D: Pixel>(
        &self,
        taps: &Taps,
        light: &Light<'_>,
        (src, dst): (&ImageView<'_, S>, &mut ImageViewMut<'_, D>),
        filtered: usize,
        stage: &Stage<'_>,
    ) -> Result<()> {
        let Shape { width, height, channels } = src.shape();
        let (mut from, mut to) = (
            Image::<f32>::zeroed(width, height, channels)?,
            Image::<f32>::zeroed(width, height, channels)?,
        );
        for (y, row) in from.as_mut_slice().chunks_exact_mut(width * channels).enumerate() {
            S::widen(src.row(y), row);
            light.decode(self.isa, channels, row);
        }
        let mut outside = [self.window().border_value];
        light.decode(self.isa, 0, &mut outside);
        // Results are compared with pixels when both are stored values.
        let window = Window { border_value: outside[0], least_change: 0.0, ..self.window() };
        let spectra = taps.spectra.of(&taps.filter, width)?;
        let results = (&mut to.view_mut(), filtered);
        fourier::run(
            self.isa,
            (&window, taps.dense()?),
            &spectra,
            None,
            &from.view(),
            results,
            stage,
        )?;
        let greatest = light.greatest(self.isa, from.as_slice());
        let rows = to.as_mut_slice().chunks_exact_mut(width * channels);
        for (y, (sums, out)) in rows.zip(dst.bands_mut(1).flatten()).enumerate() {
            light.store(self.isa, channels, ((0, y), greatest), sums, out);
            self.window().restore(src, filtered, &(0..width), y, out);
        }
        Ok(())
    }
}

impl Light<'_> {
    /// The order of the sums, where bytes of bytes leave it free.
    pub(super) fn order(&self) -> Option<Order> {
        self.exact.as_ref().map(|exact| exact.order)
    }

    /// What each value is decoded to, if that depends on the value alone and it is a byte.
    pub(super) fn table(&self) -> Option<&[f32; 256]> {
        (self.of_bytes && !self.weighted).then(|| &self.tables.bytes().light)
    }

    /// Decodes pixels of so many channels.
    pub(super) fn decode(&self, isa: Isa, channels: usize, values: &mut [f32]) {
        let weighted = if self.weighted { channels } else { 0 };
        if self.of_bytes {
            let light = &self.tables.bytes().light;
            isa.run(DecodeBytes { light, weighted, values });
        } else {
            let decode = &self.tables.smooth().decode;
            isa.run(Decode { decode, white: self.white, weighted, values });
        }
    }

    /// The greatest of decoded values, if errors are relative to it.
    pub(super) fn greatest(&self, isa: Isa, values: &[f32]) -> f32 {
        match self.exact.as_ref().filter(|exact| exact.relative == 0.0) {
            Some(exact) => isa.run(Most(values)).max(exact.outside),
            None => 0.0,
        }
    }

    /// Stores the sums of a part of row `y`, from column `x` on, of values up to the greatest.
    pub(super) fn store<D: Pixel>(
        &self,
        isa: Isa,
        channels: usize,
        ((x, y), greatest): ((usize, usize), f32),
        sums: &mut [f32],
        out: &mut [D],
    ) {
        let weighted = if self.weighted { channels } else { 0 };
        match (&self.exact, D::bytes_mut(out)) {
            (Some(exact), Some(out)) => {
                let light = self.tables.bytes();
                // What underflows is less.
                let bounds = (exact.relative, exact.absolute * greatest + 1e-30);
                let mut uncertain = Vec::new();
                let sums = &*sums;
                isa.run(EncodeBytes {
                    light,
                    weighted,
                    bounds,
                    sums,
                    out,
                    uncertain: &mut uncertain,
                });
                for at in uncertain {
                    out[at] =
                        exact.byte(light, self.weighted, (x + at / channels, y), at % channels);
                }
            }
            _ => {
                let encode = &self.tables.smooth().encode;
                let white = self.white;
                // Light of bytes has alpha in their units, and so have sums.
                let alpha = if self.of_bytes { 1.0 } else { white };
                isa.run(Encode { encode, white, weighted, alpha, sums });
                D::narrow(sums, out);
            }
        }
    }
}

impl<'a> Exact<'a> {
    fn new(
        family: Family,
        (filter, window): (&'a ByteFilter, Window),
        src: ImageView<'a, u8>,
        (light, weighted): (&ByteLight, bool),
    ) -> Self {
        let outside = light.light[usize::from(window.border_value as u8)];
        let view = &filter.filter;
        let (passes, terms) = (view.separated().is_some(), view.sum().map(|sum| sum.terms.len()));
        let (cols, rows) = (view.cols(), view.rows());
        // A sum of blocks has a rounding for each tap of a block and for each block.
        let steps = |taps: usize, block: usize| taps.min(block) + taps.div_ceil(block);
        let (across, down) = (steps(cols, row_block(cols)), steps(rows, column_block(rows)));
        let (order, steps) = match (family, terms) {
            (Family::Separable | Family::SpectraPasses, Some(terms)) => {
                (Order::Terms, across + terms * rows.min(down + 1))
            }
            (Family::Separable | Family::SpectraPasses, None) if passes => {
                (Order::BlockPasses, across + down)
            }
            _ => (Order::ByRows, cols + rows),
        };
        let made = match family {
            Family::Fourier => Made::BySpectra { side: spectrum::greatest_side() },
            _ => Made::InSteps(steps),
        };
        let (relative, absolute) = error::of_sums(view, made, weighted);
        Self { filter, window, src, order, relative, absolute, outside }
    }

    /// The byte of one result.
    fn byte(&self, light: &ByteLight, weighted: bool, at: (usize, usize), channel: usize) -> u8 {
        let divisor = self.filter.whole.divisor;
        let alpha = self.src.shape().channels - 1;
        if !weighted {
            return light
                .of_whole(divisor.floor(self.sum(at, |pixel| light.whole(pixel[channel]))));
        }
        let below = self.sum(at, |pixel| pixel[alpha].into());
        if channel == alpha {
            return divisor.byte(below);
        }
        let sum = self.sum(at, |pixel| light.whole(pixel[channel]) * i64::from(pixel[alpha]));
        if below == 0 { 0 } else { light.of_whole(sum.div_euclid(below)) }
    }

    /// The exact sum of whole taps times what is made of each pixel, below 2^32.
    ///
    /// Both halves of 16 bits are summed by themselves: with the taps of a table, or of a column,
    /// below 2^61.
    fn sum(&self, (x, y): (usize, usize), of: impl Fn(&[u8]) -> i64) -> i128 {
        let (Shape { width, height, channels }, window) = (self.src.shape(), &self.window);
        let outside = of(&vec![window.border_value as u8; channels]);
        let columns: Vec<_> = (0..window.cols).map(|col| window.column(x, col, width)).collect();
        let value = |row: Option<&[u8]>, column: Option<usize>| match (row, column) {
            (Some(row), Some(column)) => of(&row[column * channels..][..channels]),
            _ => outside,
        };
        let halves = |value: i64| [value >> 16, value & 0xffff];
        let row = |row: usize| window.row(y, row, height).map(|row| self.src.row(row));
        let whole = |[high, low]: [i128; 2]| (high << 16) + low;
        match &self.filter.whole.taps {
            WholeTaps::Table(taps) => {
                let mut sums = [0i64; 2];
                for (number, taps) in taps.chunks_exact(window.cols).enumerate() {
                    let row = row(number);
                    for (&tap, &column) in taps.iter().zip(&columns) {
                        let [high, low] = halves(value(row, column));
                        sums = [sums[0] + tap * high, sums[1] + tap * low];
                    }
                }
                whole(sums.map(i128::from))
            }
            WholeTaps::Products { terms, point, .. } => {
                let middle = (row(window.rows / 2), columns[window.cols / 2]);
                let mut sum =
                    if *point == 0 { 0 } else { point * i128::from(value(middle.0, middle.1)) };
                let mut values = vec![0; window.cols];
                // For each term the sums of columns.
                let mut sums = vec![[0i64; 2]; window.cols * terms.len()];
                for number in 0..window.rows {
                    let row = row(number);
                    for (value_of, &column) in values.iter_mut().zip(&columns) {
                        *value_of = value(row, column);
                    }
                    for (sums, (_, down)) in sums.chunks_exact_mut(window.cols).zip(terms) {
                        for ([high, low], &value) in sums.iter_mut().zip(&values) {
                            *high += down[number] * (value >> 16);
                            *low += down[number] * (value & 0xffff);
                        }
                    }
                }
                for (sums, (across, _)) in sums.chunks_exact(window.cols).zip(terms) {
                    let products = sums.iter().zip(across);
                    sum += products
                        .map(|(sums, &tap)| i128::from(tap) * whole(sums.map(i128::from)))
                        .sum::<i128>();
                }
                sum
            }
        }
    }
}

/// The greatest of numbers that are not negative.
struct Most<'a>(&'a [f32]);

impl Vectorized for Most<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> f32 {
        // As integers, which compare in vectors.
        f32::from_bits(self.0.iter().fold(0, |most, value| most.max(value.to_bits())))
    }
}

/// Decodes bytes in place. Of each `weighted` channels, unless that is 0, the last is alpha.
struct DecodeBytes<'a> {
    light: &'a [f32; 256],
    weighted: usize,
    values: &'a mut [f32],
}

impl Vectorized for DecodeBytes<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { light, weighted, values } = self;
        let decode = |value: f32| light[usize::from(value as u8)];
        each(values, weighted, decode, |alpha| alpha);
    }
}

/// Decodes other values in place, as [`DecodeBytes`].
struct Decode<'a> {
    decode: &'a Smooth,
    white: f32,
    weighted: usize,
    values: &'a mut [f32],
}

impl Vectorized for Decode<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { decode, white, weighted, values } = self;
        each(values, weighted, |value| decode.of(value / white), |alpha| alpha / white);
    }
}

/// Decodes values, or colours, which are then multiplied by alpha.
#[inline(always)]
fn each(
    values: &mut [f32],
    weighted: usize,
    decode: impl Fn(f32) -> f32,
    alpha: impl Fn(f32) -> f32,
) {
    if weighted == 0 {
        return values.iter_mut().for_each(|value| *value = decode(*value));
    }
    for pixel in values.chunks_exact_mut(weighted) {
        let Some((last, colours)) = pixel.split_last_mut() else { return };
        *last = alpha(*last);
        colours.iter_mut().for_each(|colour| *colour = decode(*colour) * *last);
    }
}

/// Encodes sums in place, and divides those of colours by alpha's, which is a part of `alpha`.
struct Encode<'a> {
    encode: &'a Smooth,
    white: f32,
    weighted: usize,
    alpha: f32,
    sums: &'a mut [f32],
}

impl Vectorized for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { encode, white, weighted, alpha, sums } = self;
        if weighted == 0 {
            return sums.iter_mut().for_each(|sum| *sum = white * encode.of(*sum));
        }
        for pixel in sums.chunks_exact_mut(weighted) {
            let Some((last, colours)) = pixel.split_last_mut() else { return };
            for colour in colours {
                *colour = if *last == 0.0 { 0.0 } else { white * encode.of(*colour / *last) };
            }
            *last *= alpha;
        }
    }
}

/// Bytes of sums, as [`Encode`]; notes those that the error leaves uncertain.
struct EncodeBytes<'a> {
    light: &'a ByteLight,
    weighted: usize,
    /// The error relative to the sum, and in parts of white.
    bounds: (f32, f32),
    sums: &'a [f32],
    out: &'a mut [u8],
    uncertain: &'a mut Vec<usize>,
}

impl Vectorized for EncodeBytes<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes, const V: usize, const W: usize>(self) {
        let Self { light, weighted, bounds, sums, out, uncertain } = self;
        let mut one = |at: usize, sum: f32, out: &mut u8| match light.certain(sum, bounds) {
            Some(byte) => *out = byte,
            None => uncertain.push(at),
        };
        if weighted == 0 {
            let margin = light.power.map(|power| (power, power.margin(bounds)));
            let Some((power, margin)) = margin.filter(|&(_, margin)| margin < 0.25) else {
                return sums
                    .iter()
                    .zip(out)
                    .enumerate()
                    .for_each(|(at, (&sum, out))| one(at, sum, out));
            };
            for (number, (sums, out)) in sums.chunks(CHUNK).zip(out.chunks_mut(CHUNK)).enumerate() {
                let (mut near, mut bytes) = ([0.0; CHUNK], [0; CHUNK]);
                near.iter_mut().zip(sums).for_each(|(near, &sum)| *near = power.of(sum));
                // SAFETY: this is in `Vectorized::run`, and numbers are between -1 and 256.
                let mut mask = unsafe { round_chunk::<L>(&near, 0.5 - margin, &mut bytes) };
                out.copy_from_slice(&bytes[..out.len()]);
                while mask != 0 {
                    let at = mask.trailing_zeros() as usize;
                    mask &= mask - 1;
                    if at < out.len() {
                        one(number * CHUNK + at, sums[at], &mut out[at]);
                    }
                }
            }
            return;
        }
        let pixels = sums.chunks_exact(weighted).zip(out.chunks_exact_mut(weighted)).enumerate();
        for (pixel, (sums, out)) in pixels {
            let (first, alpha) = (pixel * weighted, sums[weighted - 1]);
            for (channel, out) in out[..weighted - 1].iter_mut().enumerate() {
                // Whole taps of averages are 0 or at least 2^-76: no sum underflows.
                let quotient = if alpha == 0.0 { 0.0 } else { sums[channel] / alpha };
                one(first + channel, quotient, out);
            }
            let alphas =
                [1.0 - bounds.0, 1.0 + bounds.0].map(|factor| u8::from_f32(factor * alpha));
            // NaN is uncertain.
            out[weighted - 1] = alphas[0];
            if alphas[0] != alphas[1] {
                one(first + weighted - 1, f32::NAN, &mut out[weighted - 1]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::light::Transfer;
    use crate::progress::Report;
    use crate::{Border, Filter};

    /// The byte of a result, from taps and light in 128 bits.
    fn byte(
        filter: &Filter,
        window: &Window,
        light: &ByteLight,
        (src, weighted): (&ImageView<'_, u8>, bool),
        (x, y, channel): (usize, usize, usize),
    ) -> u8 {
        let Shape { width, height, channels } = src.shape();
        let whole = &filter.byte_filter().unwrap().whole;
        let numerator = |row: usize, col: usize| match &whole.taps {
            WholeTaps::Table(taps) => i128::from(taps[row * window.cols + col]),
            WholeTaps::Products { terms, point, .. } => {
                let is_middle = (row, col) == (window.rows / 2, window.cols / 2);
                let products = terms
                    .iter()
                    .map(|(across, down)| i128::from(across[col]) * i128::from(down[row]));
                products.sum::<i128>() + if is_middle { *point } else { 0 }
            }
        };
        let (mut sum, mut below) = (0, 0);
        for (row, col) in
            (0..window.rows).flat_map(|row| (0..window.cols).map(move |col| (row, col)))
        {
            let found = window.row(y, row, height).zip(window.column(x, col, width));
            let value = |channel: usize| {
                found.map_or(window.border_value as u8, |(y, x)| src.row(y)[x * channels + channel])
            };
            let alpha = if weighted { i128::from(value(channels - 1)) } else { 1 };
            sum += numerator(row, col) * alpha * i128::from(light.whole(value(channel)));
            below += numerator(row, col) * alpha;
        }
        match weighted {
            false => light.of_whole(whole.divisor.floor(sum)),
            true if channel + 1 == channels => whole.divisor.byte(below),
            true if below == 0 => 0,
            true => light.of_whole(sum.div_euclid(below)),
        }
    }

    /// Every instruction set gives the exact bytes.
    #[test]
    fn bytes_are_exact() {
        let (width, height) = (67, 23);
        // Noise; dark noise, where steps are small; black and white; mostly transparent.
        let noise = |i: usize| ((i as u32).wrapping_mul(0x9e37_79b1).rotate_left(9) >> 5) as u8;
        let pictures: [&dyn Fn(usize) -> u8; 4] =
            [&noise, &|i| noise(i) % 12, &|i| 255 * ((i / 4 + i / 332 + i % 4) % 2) as u8, &|i| {
                if i % 4 == 3 { 85 * (noise(i / 160) % 4) } else { noise(i) }
            }];
        let filters = [
            "gaussian:2",
            "gaussian:sigma=12",
            "box:cols=2,rows=6",
            "unsharp:sigma=2,amount=0.8",
            "motion:length=9,angle=30",
            "motion:length=30,angle=45",
            "taps:0.5 0.5",
            "laplacian:8",
        ];
        let borders = [Border::Reflect101, Border::Constant(200.0), Border::Wrap, Border::Keep];
        for (number, text) in filters.into_iter().enumerate() {
            let (filter, border): (Filter, _) = (text.parse().unwrap(), borders[number % 4]);
            for (transfer, picture) in
                [Transfer::srgb(), Transfer::gamma(2.2).unwrap(), Transfer::pq()]
                    .into_iter()
                    .flat_map(|transfer| pictures.map(|picture| (transfer.clone(), picture)))
            {
                let tables = Tables::new(transfer);
                let pixels: Vec<u8> = (0..width * height * 4).map(picture).collect();
                let src = ImageView::new(&pixels, width, height, 4).unwrap();
                let families = [Family::Direct, Family::Separable, Family::Fourier];
                for (isa, weighted) in Isa::all().flat_map(|isa| [(isa, false), (isa, true)]) {
                    if weighted && !filter.is_average() {
                        continue;
                    }
                    let engine = Engine { isa, ..Engine::new(&filter, border).unwrap() };
                    for family in families {
                        let mut dst = Image::<u8>::zeroed(width, height, 4).unwrap();
                        let (report, mut view) = (Report::default(), dst.view_mut());
                        let call = report.call(0);
                        let to = &mut view.reborrow().into();
                        engine
                            .run_light(
                                family,
                                (&tables, weighted),
                                &src.into(),
                                (to, 4),
                                &call.stage(0, 0),
                            )
                            .unwrap();
                        // Some of them: each takes a while.
                        let places = (0..4 * width * height).step_by(if filter.cols() > 20 {
                            211
                        } else {
                            37
                        });
                        for at in places {
                            let place = (at / 4 % width, at / 4 / width, at % 4);
                            let leaves = engine.window().leaves_columns(place.0, width)
                                || engine.window().leaves_rows(place.1, height);
                            let right = match border == Border::Keep && leaves {
                                true => pixels[at],
                                false => byte(
                                    &filter,
                                    &engine.window(),
                                    tables.bytes(),
                                    (&src, weighted),
                                    place,
                                ),
                            };
                            assert_eq!(
                                dst.as_slice()[at],
                                right,
                                "{text}, {border}, {isa:?}, {family:?}, {weighted}, {place:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}
