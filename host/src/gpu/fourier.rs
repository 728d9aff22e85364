//! Launches the Fourier family, `gpu-kernels/src/fourier.rs`.

use gpu_kernels::abi::{FourierEntry, FourierParts, Frame, Window};
use rustfft::num_complex::Complex;

use super::device::Gpu;
use super::engine::{Grid, TapSet, argument};
use super::memory::Memory;
use super::sliding::{keep_edges, without_keep};
use super::stream::Stream;
use crate::spectrum::Part;
use crate::{Error, Filter, Result, spectrum, tuning};

/// A window cut into parts, for the largest tile that the device has room for.
pub(super) struct Plan {
    kernel: &'static FourierEntry,
    parts: FourierParts,
    /// The kernel's table of turns, then the spectrum of each part.
    spectra: Memory,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} for {}", self.parts, self.kernel.entry)
    }
}

/// Cuts the window into parts that a tile has room for, and transforms each.
pub(super) fn plan(gpu: &Gpu, filter: &Filter, window: &Window) -> Result<Plan> {
    let kernel = tuning::fourier(gpu.info().shared_memory)
        .ok_or_else(|| Error::Unsupported { variant: "fourier", reason: "too little shared memory".into() })?;
    let size = kernel.size as usize;
    let parts: Vec<Part> = spectrum::parts(filter, kernel.size).collect();
    let mut numbers = crate::memory::zeroed::<Complex<f32>>(size + parts.len() * size * size)?;
    let narrow = |value: Complex<f64>| Complex::new(value.re as f32, value.im as f32);
    let (turns, spectra) = numbers.split_at_mut(size);
    for (at, turn) in turns.iter_mut().enumerate() {
        let angle = -std::f64::consts::TAU * ((at % 8) * (at / 8)) as f64 / size as f64;
        *turn = narrow(Complex::from_polar(1.0, angle));
    }
    for (part, spectrum) in parts.iter().zip(spectra.chunks_mut(size * size)) {
        for (at, value) in part.spectrum(filter, size)?.into_iter().enumerate() {
            spectrum[kernel.place(at % size, at / size)] = narrow(value);
        }
    }
    let numbers: Vec<f32> = numbers.iter().flat_map(|number| [number.re, number.im]).collect();
    let spectra = gpu.holding(&numbers, "uploading spectra")?;
    let (cols, rows) = parts.first().map_or((1, 1), |part| (part.cols as i32, part.rows as i32));
    let (count, beside) = (parts.len() as i32, (window.cols + cols - 1) / cols);
    let greatest = spectrum::greatest_pixel(filter.weight());
    let parts = FourierParts { window: *window, cols, rows, count, beside, greatest, across: 0 };
    Ok(Plan { kernel, parts, spectra })
}

/// Puts the kernel into the stream; then, if the border says so, the one that copies the pixels to keep.
pub(super) fn launch(
    plan: &Plan,
    frame: Frame,
    planes: usize,
    window: Window,
    taps: &TapSet,
    stream: &mut Stream,
) -> Result<()> {
    let FourierEntry { entry, size, block, shared } = *plan.kernel;
    let slots = stream.gpu.resident_blocks(entry, block.0 * block.1, shared)?;
    let across = (frame.width as u32).div_ceil(2 * (size + 1 - plan.parts.cols) as u32);
    let down = (frame.height as u32).div_ceil((size + 1 - plan.parts.rows) as u32);
    let blocks = (u64::from(across) * u64::from(down)).min((slots / planes as u64).max(1)) as u32;
    let parts = FourierParts { across: across as i32, ..plan.parts };
    let (spectra, taps) = (plan.spectra.pointer(), taps.pointer());
    let grid = Grid { blocks: (blocks, 1), block, shared };
    let arguments = [argument(&parts), argument(&spectra), argument(&taps)];
    // SAFETY: the kernel takes the frame, the window with its parts, their spectra and the whole window's taps; any number of
    // blocks will do.
    unsafe { grid.launch(entry, without_keep(frame), planes, &arguments, stream)? };
    keep_edges(frame, planes, window, stream)
}
