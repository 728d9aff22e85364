//! Problems: the size, filter and machine that a kernel is prepared for.

pub(crate) mod machine;
pub(crate) mod model;
pub(crate) mod rounding;

use std::ops::Range;

use gpu_kernels::border;

use machine::Machine;
use rounding::Rounding;

use crate::whole::window::Digits;
use crate::{Accuracy, Border, Scalar, Why};

/// Everything that the choice of a variant depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Problem {
    /// Columns to compute.
    pub(crate) width: usize,
    /// Rows to compute.
    pub(crate) height: usize,
    /// Planes: channels of all images.
    pub(crate) planes: usize,
    /// The type of the source's values.
    pub(crate) source: Scalar,
    /// The type of the results.
    pub(crate) target: Scalar,
    /// How many channels of the source are side by side in memory, pixel after pixel: 1 if each is
    /// a plane.
    pub(crate) side_by_side: usize,
    /// Tap columns.
    pub(crate) cols: usize,
    /// Tap rows.
    pub(crate) rows: usize,
    /// The anchor's column.
    pub(crate) anchor_x: usize,
    /// The rule for pixels outside the image.
    pub(crate) border: Border,
    /// `sum |tap|`.
    pub(crate) weight: f64,
    /// Whether spectra for bytes leave out the anchor's tap, which outweighs all others.
    pub(crate) point: bool,
    /// Whether the filter is the product of a row and a column.
    pub(crate) separable: bool,
    /// Whether the filter is a product of a row and a column, or a sum of two, whose 1-D spectra
    /// fit f32.
    pub(crate) has_lines: bool,
    /// What errors of sums may be relative to, if the plan says so.
    pub(crate) accuracy: Option<Accuracy>,
    /// The taps as whole numbers, as far as they have such forms, and if results are bytes of sums
    /// as they are.
    pub(crate) numbers: Numbers,
    /// Whether the source is of f32, its pixels adjacent in memory, its rows at multiples of 16
    /// bytes and less than 2 GiB apart. Interleaved channels are so in the destination, too, and
    /// all of them are filtered.
    pub(crate) source_is_aligned: bool,
    /// How many products of a row and a column add up to the filter, and whether its pixel's own
    /// tap is apart from them, where the filter is computed so.
    pub(crate) sum: Option<(usize, bool)>,
    /// What it takes to round bytes made of bytes: for predicted times, and for the choice among
    /// families.
    pub(crate) rounding: Option<Rounding>,
    /// Where it runs.
    pub(crate) place: Place,
}

/// What a GPU's kernels depend on of a filter's taps as whole numbers, as far as they have such
/// forms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Numbers {
    /// All taps of the window.
    pub(crate) window: Option<Digits>,
    /// Products of a row and a column, whose digits are three: the share of uncertain results.
    pub(crate) terms: Option<f64>,
    /// The divisor of a mean that running sums take: see `kernels/running_sums.rs`.
    pub(crate) mean: Option<u32>,
    /// The share of uncertain results beyond which exact passes are faster: see
    /// `kernels/passes.rs`.
    pub(crate) few: Option<f64>,
    /// How far a sum by passes of 1-D spectra may be off: see
    /// `kernels/lines/errors.rs`.
    pub(crate) lines: Option<f64>,
}

/// Where a problem is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    Cpu { threads: usize },
    Gpu(Machine),
}

impl Place {
    pub(crate) fn is_cpu(&self) -> bool {
        matches!(self, Self::Cpu { .. })
    }

    /// The GPU that a kernel is prepared for; none is prepared for the CPU.
    pub(crate) fn machine(&self) -> &Machine {
        let Self::Gpu(machine) = self else { unreachable!("a kernel was prepared for the CPU") };
        machine
    }
}

impl Problem {
    /// How many products of a row and a column a GPU adds up: one if the filter separates.
    pub(crate) fn terms(&self) -> Result<usize, Why> {
        match self.sum {
            None if self.separable => Ok(1),
            Some((terms, _)) => Ok(terms),
            _ => Err(Why::NOT_SEPARABLE),
        }
    }

    /// Whether bytes are made of bytes, which are correctly rounded whatever the family.
    pub(crate) fn makes_bytes(&self) -> bool {
        (self.source, self.target) == (Scalar::U8, Scalar::U8)
    }

    /// Millions of results.
    pub(crate) fn millions(&self) -> f64 {
        self.width as f64 * self.height as f64 * self.planes as f64 / 1e6
    }

    /// Bytes that are read and written for a result, by a kernel that touches each pixel once.
    pub(crate) fn bytes(&self) -> f64 {
        (self.source.bytes() + self.target.bytes()) as f64
    }

    /// The same for a row pass and a column pass, with f32 between them.
    pub(crate) fn bytes_of_passes(&self) -> f64 {
        self.bytes() + (2 * size_of::<f32>()) as f64
    }

    /// How many taps there are.
    pub(crate) fn taps(&self) -> f64 {
        self.cols as f64 * self.rows as f64
    }

    /// How many taps a row and a column have together.
    pub(crate) fn pair_taps(&self) -> f64 {
        (self.cols + self.rows) as f64
    }

    /// The bytes as a u32, if a block can have so much shared memory.
    pub(crate) fn fits_shared_memory(&self, bytes: usize, what: &str) -> Result<u32, Why> {
        let most = self.place.machine().shared_memory;
        match u32::try_from(bytes) {
            Ok(fitting) if bytes <= most => Ok(fitting),
            _ => Err(format!(
                "{what} for {}x{} taps would need {bytes} bytes of shared memory, a block has {most}",
                self.cols, self.rows
            )
            .into()),
        }
    }
}

/// The rows that results in `rows` of an image of `height` rows read, for a window of `len` rows
/// with its anchor at row `anchor`: from the first to the last of them.
pub(crate) fn rows_read(
    border: u32,
    (anchor, len): (usize, usize),
    rows: Range<usize>,
    height: usize,
) -> Range<usize> {
    let first = rows.start as i64 - anchor as i64;
    // The row after the last one, counted without a border.
    let end = rows.end as i64 - anchor as i64 + len as i64 - 1;
    let inside = first.max(0) as usize..end.min(height as i64) as usize;
    let above = (-first).max(0) as usize;
    let below = (end - height as i64).max(0) as usize;
    if border == border::CONSTANT || above == 0 && below == 0 {
        return inside;
    }
    if border != border::REPLICATE && !border::copies(border) && above.max(below) >= height {
        return 0..height;
    }
    // Within one image's height of the edge, the rule maps rows monotonically, so both ends
    // suffice.
    let found = |y: i64| border::resolve(border, y as i32, height as i32) as usize;
    let mut read = inside;
    let mut take = |y: i64| read = read.start.min(found(y))..read.end.max(found(y) + 1);
    if above > 0 {
        take(-1);
        take(first.max(-(height as i64)));
    }
    if below > 0 {
        take(height as i64);
        take((end - 1).min(2 * height as i64 - 1));
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_read_are_those_that_the_rule_finds() {
        for mode in border::ALL {
            for height in 1..8usize {
                for len in 1..12usize {
                    for anchor in 0..len {
                        for start in 0..height {
                            for end in start + 1..=height {
                                let found: Vec<i32> = (start..end)
                                    .flat_map(|y| {
                                        (0..len).map(move |row| (y + row) as i32 - anchor as i32)
                                    })
                                    .map(|y| border::resolve(mode, y, height as i32))
                                    .filter(|&y| y >= 0)
                                    .collect();
                                let (least, most) =
                                    (*found.iter().min().unwrap(), *found.iter().max().unwrap());
                                let expected = least as usize..most as usize + 1;
                                let read = rows_read(mode, (anchor, len), start..end, height);
                                assert_eq!(
                                    read, expected,
                                    "{mode}: {len} rows at {anchor}, {start}..{end} of {height}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}
