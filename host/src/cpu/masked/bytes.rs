//! Bytes made of bytes and a mask of bytes.
//!
//! Averages are quotients of exact sums, with the mask as alpha ([`weighted_bytes`]). Where every
//! pixel under the window is known, the result is the plain filter's byte:
//!
//! ```text
//! filter the image without the mask
//! for each band of rows:
//!     find the results with an unknown pixel under the window      by running counts
//!     copy what lies under them, with the mask as last channel
//!     compute quotients over the copy, and store those results
//! ```
//!
//! Sums over known pixels are the plain filter's, over an image in which unknown pixels are 0.

use std::ops::Range;

use gpu_kernels::border::REPLICATE;
use gpu_kernels::divisor::{Divisor, ratio};

use super::exact;
use super::sums::{self, Ordered, Orders};
use super::{Job, Known, Weighing};
use crate::cpu::share::share;
use crate::cpu::{Engine, weighted_bytes};
use crate::image::{Image, ImageViewMut, Pixel, Shape};
use crate::mask::{Coverage, Mask, Nan, Rule};
use crate::progress::{Report, Stage};
use crate::window::Window;
use crate::{Family, Result};

/// Rows of a band, unless the window has more.
const ROWS: usize = 64;

/// Columns that are found or left out together.
const COLUMNS: usize = 64;

impl Engine {
    pub(super) fn run_masked_bytes(
        &self,
        family: Family,
        job: &Job<'_, u8>,
        dst: &mut ImageViewMut<'_, u8>,
        coverage: &mut Coverage<'_>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        let (shape, rule) = (job.src.shape(), Rule::of(&self.taps.filter));
        let is_whole = match job.known.mask {
            Mask::Bytes(view) => {
                (0..shape.height).all(|y| view.row(y).iter().all(|&byte| byte == 0 || byte == 255))
            }
            _ => true,
        };
        let values = Weighing { family, rule, of_bytes: true };
        if rule != Rule::Sum {
            if coverage.weights.is_some() || coverage.known.is_some() {
                self.masked_values(values, job, dst, coverage, stage)?;
            }
            return self.averages(values, job, dst, stage);
        }
        if !is_whole {
            return self.sums_of_parts(values, job, dst, coverage, stage);
        }
        // Which results are known, and then the sums of bytes.
        let known = self.values_and_known(values, job, dst, coverage, stage)?;
        let mut seen = job.src.to_image()?;
        for (y, row) in seen.as_mut_slice().chunks_exact_mut(shape.row_len()).enumerate() {
            job.select(y, row);
        }
        let (src, to) = (seen.view().into(), &mut dst.reborrow().into());
        self.run(family, &src, to, job.filtered, stage)?;
        let unknown = u8::from_f32(job.known.unknown.result as f32);
        for (y, (known, out)) in
            known.as_slice().chunks_exact(shape.row_len()).zip(rows(dst)).enumerate()
        {
            for (out, _) in out.iter_mut().zip(known).filter(|(_, known)| **known == 0) {
                *out = unknown;
            }
            self.window().restore(&job.src, job.filtered, &(0..shape.width), y, out);
        }
        Ok(())
    }

    /// Sums in f32, with the coverage that is asked for. Returns which results are known.
    fn values_and_known<D: Pixel>(
        &self,
        weighing: Weighing,
        job: &Job<'_, u8>,
        dst: &mut ImageViewMut<'_, D>,
        coverage: &mut Coverage<'_>,
        stage: &Stage<'_>,
    ) -> Result<Image<u8>> {
        let Shape { width, height, channels } = job.src.shape();
        let mut known = Image::<u8>::zeroed(width, height, channels)?;
        let weights = coverage.weights.as_mut().map(ImageViewMut::reborrow);
        let mut both = Coverage { weights, known: Some(known.view_mut()) };
        self.masked_values(weighing, job, dst, &mut both, stage)?;
        if let Some(given) = &mut coverage.known {
            rows(given)
                .zip(known.as_slice().chunks_exact(width * channels))
                .for_each(|(out, known)| out.copy_from_slice(known));
        }
        Ok(known)
    }

    /// Sums of pixels that are known in part: by sums in f32, and exactly where these leave a byte
    /// open.
    fn sums_of_parts(
        &self,
        weighing: Weighing,
        job: &Job<'_, u8>,
        dst: &mut ImageViewMut<'_, u8>,
        coverage: &mut Coverage<'_>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        let (shape, window, filter) = (job.src.shape(), self.window(), &self.taps.filter);
        let family = match weighing.family {
            Family::Fourier => Family::Separable,
            family => family,
        };
        let weighing = Weighing { family, ..weighing };
        let mut values = Image::<f32>::zeroed(shape.width, shape.height, shape.channels)?;
        let to = &mut values.view_mut();
        let known = self.values_and_known(weighing, job, to, coverage, stage)?;
        // A rounding for each tap, for the products and for the factors of taps.
        let roundings = (filter.cols() * filter.rows() + 8) as f64;
        let error = (255.0 * filter.weight() * roundings) as f32 * (f32::EPSILON / 2.0);
        let whole = &filter.byte_filter()?.whole;
        let divisor = Divisor::from(whole.divisor);
        let row_len = shape.row_len();
        let lines = values.as_slice().chunks_exact(row_len);
        let lines = lines.zip(known.as_slice().chunks_exact(row_len));
        for (y, (out, (values, known))) in rows(dst).zip(lines).enumerate() {
            for (at, (out, (&value, &known))) in
                out.iter_mut().zip(values.iter().zip(known)).enumerate()
            {
                *out = u8::from_f32(value);
                let is_open = u8::from_f32(value - error) != u8::from_f32(value + error);
                if is_open && known != 0 {
                    let place = (at / shape.channels, y, at % shape.channels);
                    let pair = |row: usize, col: usize| job.pair(&window, place, (row, col));
                    let [sum, _] = exact::sums(whole, (window.cols, window.rows), pair);
                    *out = divisor.byte_of_parts(sum, 255) as u8;
                }
            }
            window.restore(&job.src, job.filtered, &(0..shape.width), y, out);
        }
        Ok(())
    }

    /// Averages, and other quotients.
    fn averages(
        &self,
        Weighing { family, rule, .. }: Weighing,
        job: &Job<'_, u8>,
        dst: &mut ImageViewMut<'_, u8>,
        stage: &Stage<'_>,
    ) -> Result<()> {
        let (window, shape) = (self.window(), job.src.shape());
        self.run(family, &job.src.into(), &mut dst.reborrow().into(), job.filtered, stage)?;
        let none = job.known.outside() == 0.0;
        let rows = (0..shape.height).map(|y| job.is_known(y)).collect();
        let estimate = match rule {
            Rule::Average if family != Family::Fourier => {
                let taps = Ordered::new(self.isa, &self.taps, family)?;
                Some(Orders { rule, taps, magnitudes: None })
            }
            _ => None,
        };
        let call = Quotients { engine: self, job, window, none, rows, estimate };
        let band = ROWS.max(2 * window.rows).min(shape.height);
        let bands = dst.bands_mut(band).enumerate();
        share(stage, bands, |memory: &mut Memory, (number, mut rows)| {
            call.band(memory, number * band, &mut rows)?;
            for (y, out) in (number * band..).zip(rows) {
                if job.known.unknown.nan == Nan::Fill {
                    job.keep_known(&(0..shape.width), y, &mut memory.own, out, None);
                }
                window.restore(&job.src, job.filtered, &(0..shape.width), y, out);
            }
            Ok(())
        })
    }
}

/// All rows of an image.
fn rows<'a>(view: &'a mut ImageViewMut<'_, u8>) -> impl Iterator<Item = &'a mut [u8]> {
    view.bands_mut(usize::MAX).flatten()
}

impl Job<'_, u8> {
    /// Makes the unknown pixels of row `y` zeros.
    fn select(&self, y: usize, row: &mut [u8]) {
        let Mask::Bytes(view) = self.known.mask else { return };
        let per_byte = self.src.shape().channels / view.shape().channels;
        for (pixels, _) in
            row.chunks_exact_mut(per_byte).zip(view.row(y)).filter(|(_, byte)| **byte == 0)
        {
            pixels.fill(0);
        }
    }

    /// Whether a row's mask says that all is known.
    fn is_known(&self, y: usize) -> bool {
        match &self.known.mask {
            Mask::Bytes(view) => view.row(y).iter().fold(255, |all, byte| all & byte) == 255,
            _ => true,
        }
    }

    /// A row of the mask's bytes, and its channels; `None` if all is known.
    fn mask_row(&self, y: usize) -> Option<(&[u8], usize)> {
        match &self.known.mask {
            Mask::Bytes(view) => Some((view.row(y), view.shape().channels)),
            _ => None,
        }
    }

    /// The product of a pixel and its weight, and the weight, under a cell of the window over
    /// column `x` and row `y`.
    fn pair(
        &self,
        window: &Window,
        (x, y, channel): (usize, usize, usize),
        (row, col): (usize, usize),
    ) -> [i64; 2] {
        let Shape { width, height, channels } = self.src.shape();
        let [value, weight] = match window.row(y, row, height).zip(window.column(x, col, width)) {
            Some((y, x)) => {
                let bytes = self.bytes((x, y));
                let weight = bytes[channel * bytes.len() / channels];
                [self.src.row(y)[x * channels + channel], weight]
            }
            None if self.known.outside() == 0.0 => [0, 0],
            None => [window.border_value as u8, 255],
        };
        [i64::from(value) * i64::from(weight), i64::from(weight)]
    }

    /// The bytes of a mask for a pixel.
    fn bytes(&self, (x, y): (usize, usize)) -> &[u8] {
        match &self.known.mask {
            Mask::Bytes(view) => {
                let channels = view.shape().channels;
                &view.row(y)[x * channels..][..channels]
            }
            _ => &[255],
        }
    }
}

/// A thread's memory.
#[derive(Default)]
struct Memory {
    own: Vec<f32>,
    /// For each column under the windows of a row, how many unknown pixels lie there.
    counts: Vec<u32>,
    /// For each result of a band, whether an unknown pixel is under its window.
    touched: Vec<bool>,
}

/// A call under way.
struct Quotients<'a> {
    engine: &'a Engine,
    job: &'a Job<'a, u8>,
    window: Window,
    /// Whether nothing is known outside the image.
    none: bool,
    /// Whether all pixels of a row are known.
    rows: Vec<bool>,
    /// Sums in f32 that decide nearly all results.
    estimate: Option<Orders<'a>>,
}

impl Quotients<'_> {
    /// Whether all pixels under a line of the windows are known.
    fn is_clean(&self, line: usize) -> bool {
        let Shape { width, height, .. } = self.job.src.shape();
        let leaves =
            self.window.leaves_columns(0, width) || self.window.leaves_columns(width - 1, width);
        match self.window.row(line, 0, height) {
            Some(y) => self.rows[y] && !(self.none && leaves),
            None => !self.none,
        }
    }

    /// Computes the results of a band that begins at row `top`, where a pixel is unknown.
    fn band(&self, memory: &mut Memory, top: usize, rows: &mut [&mut [u8]]) -> Result<()> {
        if (top..top + rows.len() + self.window.rows - 1).all(|line| self.is_clean(line)) {
            return Ok(());
        }
        let channels = self.job.src.shape().channels;
        // A mask with one channel weighs all colours of a copy.
        let together = channels / self.job.known.mask.channels().unwrap_or(1);
        for channel in (0..channels).step_by(together) {
            self.channels(memory, channel..channel + together, top, rows)?;
        }
        Ok(())
    }

    /// The same, of some channels, whose pixels are known together.
    fn channels(
        &self,
        memory: &mut Memory,
        channels: Range<usize>,
        top: usize,
        rows: &mut [&mut [u8]],
    ) -> Result<()> {
        let width = self.job.src.shape().width;
        self.touch(memory, channels.start, top, rows.len());
        let is_touched = |block: usize| {
            let columns = block * COLUMNS..width.min((block + 1) * COLUMNS);
            memory.touched.chunks_exact(width).any(|row| row[columns.clone()].contains(&true))
        };
        let blocks: Vec<bool> = (0..width.div_ceil(COLUMNS)).map(is_touched).collect();
        // Margins cost as much as results, so blocks less than a window apart are taken together.
        let gap = self.window.cols.div_ceil(COLUMNS);
        let mut block = 0;
        while let Some(first) = (block..blocks.len()).find(|&block| blocks[block]) {
            let mut end = first + 1;
            while let Some(next) = (end..blocks.len().min(end + gap)).find(|&next| blocks[next]) {
                end = next + 1;
            }
            let columns = first * COLUMNS..width.min(end * COLUMNS);
            self.part(memory, (columns, channels.clone()), top, rows)?;
            block = end;
        }
        Ok(())
    }

    /// Finds the touched results of some rows, of a channel.
    fn touch(&self, memory: &mut Memory, channel: usize, top: usize, rows: usize) {
        let (window, Shape { width, height, channels }) = (&self.window, self.job.src.shape());
        let under: Vec<_> =
            (0..width + window.cols - 1).map(|at| window.column(at, 0, width)).collect();
        memory.counts.clear();
        memory.counts.resize(under.len(), 0);
        memory.touched.clear();
        let add = |line: usize, with: fn(u32, u32) -> u32, counts: &mut [u32]| {
            if self.is_clean(line) {
                return;
            }
            let row = window.row(line, 0, height).map(|y| self.job.mask_row(y));
            for (count, &column) in counts.iter_mut().zip(&under) {
                let is_unknown = match row.zip(column) {
                    Some((Some((row, n)), x)) => row[x * n + channel * n / channels] != 255,
                    Some((None, _)) => false,
                    None => self.none,
                };
                *count = with(*count, is_unknown.into());
            }
        };
        for y in top..top + rows {
            match y == top {
                true => (y..y + window.rows)
                    .for_each(|line| add(line, u32::wrapping_add, &mut memory.counts)),
                false => {
                    add(y - 1, u32::wrapping_sub, &mut memory.counts);
                    add(y + window.rows - 1, u32::wrapping_add, &mut memory.counts);
                }
            }
            let is_set = |count: u32| u32::from(count != 0);
            let counts = &memory.counts;
            let mut sum: u32 = counts[..window.cols - 1].iter().map(|&count| is_set(count)).sum();
            for x in 0..width {
                sum += is_set(counts[x + window.cols - 1]);
                memory.touched.push(sum != 0);
                sum -= is_set(counts[x]);
            }
        }
    }

    /// Computes the touched results in some columns, of some channels.
    fn part(
        &self,
        memory: &Memory,
        (columns, part): (Range<usize>, Range<usize>),
        top: usize,
        rows: &mut [&mut [u8]],
    ) -> Result<()> {
        let Shape { width, channels, .. } = self.job.src.shape();
        let in_row = |row: usize| &memory.touched[row * width..][columns.clone()];
        let has = |row: &usize| in_row(*row).contains(&true);
        let (Some(first), Some(last)) = ((0..rows.len()).find(has), (0..rows.len()).rfind(has))
        else {
            return Ok(());
        };
        let found = self.quotients(&columns, (top + first, last - first + 1), part.clone())?;
        let Shape { width: wide, channels: many, .. } = found.shape();
        for (row, out) in rows.iter_mut().enumerate().take(last + 1).skip(first) {
            let line = row - first + self.window.anchor_y;
            let from = &found.as_slice()[(line * wide + self.window.anchor_x) * many..];
            let out = &mut out[columns.start * channels..columns.end * channels];
            let pixels = out.chunks_exact_mut(channels).zip(from.chunks_exact(many));
            for ((out, from), _) in pixels.zip(in_row(row)).filter(|(_, touched)| **touched) {
                out[part.clone()].copy_from_slice(&from[..many - 1]);
            }
        }
        Ok(())
    }

    /// The quotients over a copy of what lies under the windows of some results, of some channels.
    fn quotients(
        &self,
        columns: &Range<usize>,
        (top, rows): (usize, usize),
        part: Range<usize>,
    ) -> Result<Image<u8>> {
        let (window, Shape { width, height, channels }) = (&self.window, self.job.src.shape());
        let (wide, high) = (columns.len() + window.cols - 1, rows + window.rows - 1);
        let many = part.len() + 1;
        let mut copy = Image::<u8>::zeroed(wide, high, many)?;
        let of_mask = self.job.known.mask.channels().unwrap_or(1);
        let outside = (window.border_value as u8, if self.none { 0 } else { 255 });
        for (line, out) in copy.as_mut_slice().chunks_exact_mut(wide * many).enumerate() {
            let row = window.row(top + line, 0, height);
            for (at, out) in out.chunks_exact_mut(many).enumerate() {
                match row.zip(window.column(columns.start + at, 0, width)) {
                    Some((y, x)) => {
                        let pixel = &self.job.src.row(y)[x * channels..][part.clone()];
                        out[..many - 1].copy_from_slice(pixel);
                        out[many - 1] = self.job.bytes((x, y))[part.start * of_mask / channels];
                    }
                    None => {
                        out[..many - 1].fill(outside.0);
                        out[many - 1] = outside.1;
                    }
                }
            }
        }
        if let Some(orders) = &self.estimate
            && let Some(found) = self.estimated(orders, &copy)?
        {
            return Ok(found);
        }
        let mut found = Image::zeroed(wide, high, many)?;
        let whole = &self.engine.taps.filter.byte_filter()?.whole;
        let empty = u8::from_f32(self.job.known.unknown.result as f32);
        let over_copy = Window { border: REPLICATE, ..self.window };
        let report = Report::default();
        let call = report.call(0);
        let (from, to) = (copy.view(), &mut found.view_mut());
        let stage = call.stage(0, 0);
        weighted_bytes::run(self.engine.isa, (whole, empty), &over_copy, &from, to, &stage)?;
        Ok(found)
    }

    /// The quotients over a copy, by sums in f32; exact where these do not decide. `None` if that
    /// is so of many results.
    fn estimated(&self, orders: &Orders<'_>, copy: &Image<u8>) -> Result<Option<Image<u8>>> {
        let Shape { width, height, channels } = copy.shape();
        let split = |from: usize, to: usize| -> Result<Image<u8>> {
            let mut image = Image::zeroed(width, height, to - from)?;
            let pixels = image.as_mut_slice().chunks_exact_mut(to - from);
            for (out, pixel) in pixels.zip(copy.as_slice().chunks_exact(channels)) {
                out.copy_from_slice(&pixel[from..to]);
            }
            Ok(image)
        };
        let (pixels, mask) = (split(0, channels - 1)?, split(channels - 1, channels)?);
        let known = Known { mask: (&mask).into(), ..*self.job.known };
        let job = Job { known: &known, src: pixels.view(), filtered: channels - 1 };
        let (mut values, mut weights) = (
            Image::<f32>::zeroed(width, height, channels - 1)?,
            Image::zeroed(width, height, channels - 1)?,
        );
        let window = Window { border: REPLICATE, ..self.window };
        let report = Report::default();
        let call = report.call(0);
        let mut coverage = Coverage { weights: Some(weights.view_mut()), known: None };
        let to = &mut values.view_mut();
        sums::run((self.engine.isa, window), orders, &job, to, &mut coverage, &call.stage(0, 0))?;

        let whole = &self.engine.taps.filter.byte_filter()?.whole;
        let (cells, copy) = ((window.cols, window.rows), copy.view());
        let empty = u8::from_f32(self.job.known.unknown.result as f32);
        // Each sum is off by a rounding for each tap and each product, and so is its divisor.
        let error = 255.0 * 2.0 * (orders.taps.taps() + 8) as f32 * (f32::EPSILON / 2.0);
        let least = LITTLE * orders.taps.ones();
        let mut found = Image::<u8>::zeroed(width, height, channels)?;
        let mut left = width * height / MANY;
        let (anchor_x, anchor_y) = (window.anchor_x, window.anchor_y);
        let few = channels - 1;
        for y in anchor_y..anchor_y + height + 1 - window.rows {
            let row = y * width + anchor_x..(y + 1) * width + anchor_x + 1 - window.cols;
            let part = row.start * few..row.end * few;
            let sums = values.as_slice()[part.clone()].iter().zip(&weights.as_slice()[part]);
            let out = &mut found.as_mut_slice()[row.start * channels..row.end * channels];
            let out = out.chunks_exact_mut(channels).flat_map(|pixel| &mut pixel[..few]);
            for (at, (out, (&value, &weight))) in out.zip(sums).enumerate() {
                // A conversion, as `floor` is a call on some processors.
                let rest = (value - (value as i32) as f32 - 0.5).abs();
                if weight == 0.0 {
                    // No tap is negative, so none of a known pixel is greater than 0.
                    *out = empty;
                } else if weight > least && rest > error {
                    *out = u8::from_f32(value);
                } else if left == 0 {
                    return Ok(None);
                } else {
                    left -= 1;
                    let pair = |row: usize, col: usize| {
                        let pixel = &copy.row(y - anchor_y + row)[(at / few + col) * channels..];
                        let weight = i64::from(pixel[few]);
                        [i64::from(pixel[at % few]) * weight, weight]
                    };
                    let [sum, below] = exact::sums(whole, cells, pair);
                    *out = if below == 0 { empty } else { ratio(sum, below) as u8 };
                }
            }
        }
        Ok(Some(found))
    }
}

/// Results with at most this part of the taps' weight are exact sums: roundings of whole taps may
/// count.
const LITTLE: f32 = 1.0 / 64.0;

/// Of so many results, one may be summed exactly; else all are.
const MANY: usize = 16;
