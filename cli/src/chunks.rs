//! Filters large pictures from file to file in chunks of rows, so that they need not fit in memory:
//! `.npy`, files without a header and uncompressed TIFF. These files hold rows in memory order.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use apron::{Error, Extra, Image, Pixel, Plan, RowSource, Scalar, Shape, with_pixels};
use image::metadata::Orientation;

use crate::args::FilterArgs;
use crate::codec::options::{Compression, Raw, Reading, Writing};
use crate::codec::{self, Described, Strips, TakeRows};
use crate::extra;
use crate::failure::{Failure, Result};
use crate::formats::FileFormat;
use crate::meta::Meta;
use crate::notes::Note;
use crate::picture::{Picture, Pixels};
use crate::scaling::{is_integer, is_wild};
use crate::{masks, npy, replace, stream};

/// A picture whose rows can be read one by one.
pub(crate) struct Array {
    path: PathBuf,
    file: File,
    /// The byte offset of each strip, and the rows of a strip; the last may have fewer.
    strips: Vec<u64>,
    strip_rows: usize,
    pub(crate) shape: Shape,
    pub(crate) scalar: Scalar,
    /// Whether the byte order differs from this machine's.
    pub(crate) swapped: bool,
    /// Whether the channels have an axis of their own.
    pub(crate) channel_axis: bool,
    /// The meaning of each channel after the colours; none of them is alpha.
    pub(crate) extras: Vec<Extra>,
    /// The metadata of a TIFF.
    pub(crate) meta: Meta,
    /// Whether values read so far include any that a filter may turn into NaN.
    nan: bool,
}

impl Array {
    /// Opens a file that is larger than `--chunk-above` and can be filtered in chunks. Returns
    /// `None` for anything else: the codecs read it or report the error.
    pub(crate) fn open(path: &Path, args: &FilterArgs) -> Option<Self> {
        let reading = &args.reading;
        let whole = reading.page.is_some() || reading.lenient || args.mask.is_some();
        if whole || stream::is_stream(path) {
            return None;
        }
        // Opening a pipe here would leave its writer without a reader when this function closes it.
        let found = fs::metadata(path).ok()?;
        if !found.is_file() || found.len() <= args.chunk_above {
            return None;
        }
        let mut file = File::open(path).ok()?;
        let (path, meta, nan) = (path.to_owned(), Meta::default(), false);
        let (start, array) = match reading.raw {
            Some(Raw { shape, scalar }) => {
                let (channel_axis, strip_rows) = (shape.channels > 1, shape.height);
                let (extras, swapped) = (extra::of_array(shape.channels), false);
                let strips = vec![0];
                (
                    0,
                    Self {
                        path,
                        file,
                        strips,
                        strip_rows,
                        shape,
                        scalar,
                        swapped,
                        channel_axis,
                        extras,
                        meta,
                        nan,
                    },
                )
            }
            None => {
                let Some(npy::Rows { shape, scalar, swapped, channel_axis }) =
                    npy::rows(&mut file, reading.axes)
                else {
                    let array = Self::of_tiff(path, file, reading)?;
                    return Some(array).filter(|array| !masks::has_nodata(args, &array.meta));
                };
                let (start, strip_rows) = (file.stream_position().ok()?, shape.height);
                let (strips, extras) = (vec![start], extra::of_array(shape.channels));
                (
                    start,
                    Self {
                        path,
                        file,
                        strips,
                        strip_rows,
                        shape,
                        scalar,
                        swapped,
                        channel_axis,
                        extras,
                        meta,
                        nan,
                    },
                )
            }
        };
        let bytes = array.row_bytes().checked_mul(array.shape.height as u64)?;
        let end = start.checked_add(bytes)?;
        // Any data may follow an array's values. Without a header, only the file's length can be
        // checked.
        (end == found.len() || end < found.len() && reading.raw.is_none()).then_some(array)
    }

    fn of_tiff(path: PathBuf, file: File, reading: &Reading) -> Option<Self> {
        let Strips { shape, scalar, swapped, offsets: strips, rows: strip_rows, extras, meta } =
            codec::tiff_strips(&file)?;
        // Rotation needs pixels of the whole picture.
        let turns = meta.orientation != Orientation::NoTransforms && reading.auto_orient;
        let channel_axis = shape.channels > 1;
        let nan = false;
        let array = Self {
            path,
            file,
            strips,
            strip_rows,
            shape,
            scalar,
            swapped,
            channel_axis,
            extras,
            meta,
            nan,
        };
        (!turns).then_some(array)
    }

    fn row_bytes(&self) -> u64 {
        (self.shape.row_len() * self.scalar.bytes()) as u64
    }

    /// Whether the format can be written row by row, with all of the file's metadata.
    pub(crate) fn goes_into(&self, format: &FileFormat, writing: &Writing) -> bool {
        match format.name() {
            "npy" | "raw" => self.meta.orientation == Orientation::NoTransforms,
            "tif" => matches!(writing.compression, None | Some(Compression::None)),
            _ => false,
        }
    }

    /// Filters every channel into a file of this format. Returns notes on metadata that the file
    /// cannot hold.
    pub(crate) fn filter(
        mut self,
        plan: &Plan,
        target: Scalar,
        path: &Path,
        format: &FileFormat,
    ) -> Result<Vec<Note>> {
        if target != self.scalar {
            self.meta.values_changed();
        }
        // A picture of one pixel with the same metadata has the same losses as the large one.
        let pixel = Image::<u8>::zeroed(1, 1, self.shape.channels)
            .map_err(|error| Failure::at(&self.path, error))?;
        let lost = format
            .loses(&Picture { meta: self.meta.clone(), ..Picture::new(Pixels::U8(pixel)) }.into());
        let nans = with_pixels!(self.scalar, S => with_pixels!(target, D => {
            self.run::<S, D>(plan, path, format)?
        }));
        Ok(lost.map(Note::Text).into_iter().chain(nans).collect())
    }

    /// Returns the number of NaN results, if the type has no NaN and there are any.
    fn run<S: Pixel, D: Pixel>(
        mut self,
        plan: &Plan,
        output: &Path,
        format: &FileFormat,
    ) -> Result<Option<Note>> {
        let fail = |error: io::Error| Failure::at(output, error);
        let (shape, input, meta, extras) =
            (self.shape, self.path.clone(), self.meta.clone(), self.extras.clone());
        let channel_axis = self.channel_axis;
        let mut filter = |take: &mut TakeRows<'_>| {
            let mut sink = |_: Range<usize>, values: &[D]| take(bytemuck::cast_slice(values));
            plan.run_streamed::<S, D>(shape, &mut self, &mut sink).map_err(|error| match error {
                Error::Rows { what: "written", error, .. } => fail(error),
                other => Failure::at(&input, other),
            })
        };
        replace::replace(output, |out| {
            if format.name() == "tif" {
                let described = Described { shape, extras: &extras, meta: &meta };
                return codec::write_tiff_rows(out, (described, D::SCALAR), &fail, &mut filter);
            }
            if format.name() == "npy" {
                npy::write_rows_header(out, D::SCALAR, shape, channel_axis).map_err(fail)?;
            }
            filter(&mut |bytes| out.write_all(bytes))
        })?;
        if !self.nan || !is_integer(D::SCALAR) {
            return Ok(None);
        }
        // Integers do not show NaN, so a second pass counts them, unless the input cannot cause
        // any.
        let mut found = 0;
        let mut sink = |_: Range<usize>, sums: &[f32]| {
            found += sums.iter().filter(|sum| sum.is_nan()).count() as u64;
            Ok(())
        };
        plan.run_streamed::<S, f32>(shape, &mut self, &mut sink)
            .map_err(|error| Failure::at(&input, error))?;
        let total = (shape.row_len() * shape.height) as u64;
        Ok((found > 0).then_some(Note::Nan { count: found, total }))
    }
}

impl<P: Pixel> RowSource<P> for Array {
    fn read(&mut self, rows: Range<usize>, into: &mut [P]) -> io::Result<()> {
        let bytes = bytemuck::cast_slice_mut::<P, u8>(into);
        let (mut next, mut rest) = (rows.start, &mut *bytes);
        while next < rows.end {
            let (strip, skipped) = (next / self.strip_rows, next % self.strip_rows);
            let here = (self.strip_rows - skipped).min(rows.end - next);
            let (part, others) = rest.split_at_mut(here * self.row_bytes() as usize);
            self.file
                .seek(SeekFrom::Start(self.strips[strip] + skipped as u64 * self.row_bytes()))?;
            self.file.read_exact(part)?;
            (next, rest) = (next + here, others);
        }
        if self.swapped {
            bytes.chunks_exact_mut(size_of::<P>()).for_each(<[u8]>::reverse);
        }
        self.nan =
            self.nan || P::SCALAR.greatest().is_none() && into.iter().any(|&value| is_wild(value));
        Ok(())
    }

    fn goes_back(&self) -> bool {
        true
    }
}
