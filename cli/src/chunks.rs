//! Large arrays from file to file in chunks of rows, so that they need not fit in memory: `.npy` and files without a header, whose rows
//! lie in the file as they lie in memory.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use apron::{Error, Pixel, Plan, RowSource, Scalar, Shape, f16};

use crate::args::FilterArgs;
use crate::failure::{Failure, Result};
use crate::formats::FileFormat;
use crate::{npy, replace, stream};

/// A picture whose rows can be read one by one.
pub(crate) struct Array {
    path: PathBuf,
    file: File,
    /// Where the first row begins.
    start: u64,
    pub(crate) shape: Shape,
    pub(crate) scalar: Scalar,
    /// Whether the byte order differs from this machine's.
    pub(crate) swapped: bool,
    /// Whether an axis of its own has the channels.
    pub(crate) channel_axis: bool,
}

impl Array {
    /// The array in a file, if it is larger than `--chunk-above` and can be filtered so; anything else is `None`, for the codecs to read or
    /// to complain about.
    pub(crate) fn open(path: &Path, args: &FilterArgs) -> Option<Self> {
        let reading = &args.reading;
        if stream::is_stream(path) || reading.page.is_some() || reading.lenient {
            return None;
        }
        let mut file = File::open(path).ok()?;
        let found = file.metadata().ok()?;
        if !found.is_file() || found.len() <= args.chunk_above {
            return None;
        }
        let path = path.to_owned();
        let array = match reading.raw {
            Some(raw) => {
                let channel_axis = raw.shape.channels > 1;
                Self { path, file, start: 0, shape: raw.shape, scalar: raw.scalar, swapped: false, channel_axis }
            }
            None => {
                let npy::Rows { shape, scalar, swapped, channel_axis } = npy::rows(&mut file, reading.axes)?;
                Self { start: file.stream_position().ok()?, path, file, shape, scalar, swapped, channel_axis }
            }
        };
        let bytes = array.row_bytes().checked_mul(array.shape.height as u64)?;
        (array.start + bytes == found.len()).then_some(array)
    }

    fn row_bytes(&self) -> u64 {
        (self.shape.row_len() * self.scalar.bytes()) as u64
    }

    /// Whether a format takes rows as they come.
    pub(crate) fn goes_into(format: &FileFormat) -> bool {
        matches!(format.name(), "npy" | "raw")
    }

    /// Filters every channel into a file of that format.
    pub(crate) fn filter(self, plan: &Plan, target: Scalar, path: &Path, format: &FileFormat) -> Result {
        match target {
            Scalar::U8 => self.from::<u8>(plan, path, format),
            Scalar::U16 => self.from::<u16>(plan, path, format),
            Scalar::F16 => self.from::<f16>(plan, path, format),
            _ => self.from::<f32>(plan, path, format),
        }
    }

    fn from<D: Pixel>(self, plan: &Plan, path: &Path, format: &FileFormat) -> Result {
        match self.scalar {
            Scalar::U8 => self.run::<u8, D>(plan, path, format),
            Scalar::U16 => self.run::<u16, D>(plan, path, format),
            Scalar::F16 => self.run::<f16, D>(plan, path, format),
            _ => self.run::<f32, D>(plan, path, format),
        }
    }

    fn run<S: Pixel, D: Pixel>(mut self, plan: &Plan, output: &Path, format: &FileFormat) -> Result {
        let fail = |error: io::Error| Failure::at(output, error);
        let (shape, input) = (self.shape, self.path.clone());
        replace::replace(output, |out| {
            if format.name() == "npy" {
                npy::write_rows_header(out, D::SCALAR, shape, self.channel_axis).map_err(fail)?;
            }
            let mut sink = |_: Range<usize>, values: &[D]| out.write_all(bytemuck::cast_slice(values));
            plan.run_streamed::<S, D>(shape, &mut self, &mut sink).map_err(|error| match error {
                Error::Rows { what: "written", error, .. } => fail(error),
                other => Failure::at(&input, other),
            })
        })
    }
}

impl<P: Pixel> RowSource<P> for Array {
    fn read(&mut self, rows: Range<usize>, into: &mut [P]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.start + rows.start as u64 * self.row_bytes()))?;
        let bytes = bytemuck::cast_slice_mut::<P, u8>(into);
        self.file.read_exact(bytes)?;
        if self.swapped {
            bytes.chunks_exact_mut(size_of::<P>()).for_each(<[u8]>::reverse);
        }
        Ok(())
    }

    fn goes_back(&self) -> bool {
        true
    }
}
