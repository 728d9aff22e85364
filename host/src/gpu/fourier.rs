//! Launches the Fourier family, `gpu-kernels/src/fourier.rs`: once for each part of the window.

use cust::memory::DeviceBuffer;
use gpu_kernels::abi::{FourierEntry, FourierPiece, Frame, Window};
use gpu_kernels::border::{KEEP, REPLICATE};
use rustfft::num_complex::Complex;

use super::device::Gpu;
use super::engine::{Grid, TapSet, argument};
use super::sliding::keep_edges;
use super::stream::Stream;
use crate::{Error, Filter, Result, spectrum, tuning};

/// A window cut into parts, for the largest tile that the device has room for.
#[derive(Debug)]
pub(super) struct Plan {
    kernel: &'static FourierEntry,
    parts: Vec<Part>,
}

/// A part of the window, with its spectrum on the device.
struct Part {
    piece: FourierPiece,
    spectrum: DeviceBuffer<f32>,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.piece)
    }
}

/// Cuts the window into parts that a tile has room for, and transforms each.
pub(super) fn plan(gpu: &Gpu, filter: &Filter, window: &Window) -> Result<Plan> {
    gpu.enter()?;
    let kernel = tuning::fourier(gpu.info().shared_memory)
        .ok_or_else(|| Error::Unsupported { variant: "fourier", reason: "too little shared memory".into() })?;
    let greatest = spectrum::greatest_pixel(filter.weight());
    let mut parts = Vec::new();
    for (top, rows) in tuning::fourier_parts(window.rows, kernel.size) {
        for (left, cols) in tuning::fourier_parts(window.cols, kernel.size) {
            let part = Window { cols, rows, anchor_x: window.anchor_x - left, anchor_y: window.anchor_y - top };
            let (first, adds) = (top * window.cols + left, i32::from(!parts.is_empty()));
            let numbers = numbers(kernel, filter, (left as usize, top as usize), (cols as usize, rows as usize))?;
            let spectrum =
                DeviceBuffer::from_slice(&numbers).map_err(|error| gpu.error("uploading a spectrum", error))?;
            let piece = FourierPiece { window: part, first, pitch: window.cols, greatest, across: 0, adds };
            parts.push(Part { piece, spectrum });
        }
    }
    Ok(Plan { kernel, parts })
}

/// The kernel's table of turns, then the spectrum of the filter's taps from column and row `corner` on, in its order.
fn numbers(kernel: &FourierEntry, filter: &Filter, corner: (usize, usize), window: (usize, usize)) -> Result<Vec<f32>> {
    let size = kernel.size as usize;
    let mut numbers = crate::memory::zeroed::<Complex<f64>>(size + size * size)?;
    for (at, turn) in numbers[..size].iter_mut().enumerate() {
        let angle = -std::f64::consts::TAU * ((at % 8) * (at / 8)) as f64 / size as f64;
        *turn = Complex::from_polar(1.0, angle);
    }
    let taps = |x: usize, y: usize| filter.tap(corner.1 + y, corner.0 + x);
    for (at, value) in spectrum::of_taps(size, window, taps)?.into_iter().enumerate() {
        numbers[size + kernel.place(at % size, at / size)] = value;
    }
    Ok(numbers.iter().flat_map(|number| [number.re as f32, number.im as f32]).collect())
}

/// Puts every part into the stream; then, if the border says so, the kernel that copies the pixels to keep.
pub(super) fn launch(
    plan: &Plan,
    frame: Frame,
    planes: usize,
    window: Window,
    taps: &TapSet,
    stream: &mut Stream,
) -> Result<()> {
    let keep = frame.border == KEEP;
    let inner = Frame { border: if keep { REPLICATE } else { frame.border }, ..frame };
    let FourierEntry { entry, size, block, shared } = *plan.kernel;
    let slots = stream.gpu.resident_blocks(entry, block.0 * block.1, shared)?;
    for Part { piece, spectrum } in &plan.parts {
        let across = (frame.width as u32).div_ceil(2 * (size + 1 - piece.window.cols) as u32);
        let down = (frame.height as u32).div_ceil((size + 1 - piece.window.rows) as u32);
        let pairs = u64::from(across) * u64::from(down);
        let blocks = pairs.min((slots / planes as u64).max(1)) as u32;
        let piece = FourierPiece { across: across as i32, ..*piece };
        let spectrum = spectrum.as_device_ptr().as_raw();
        let taps = taps.pointer();
        let grid = Grid { blocks: (blocks, 1), block, shared };
        // SAFETY: the kernel takes the frame, a part of the window, its spectrum and the whole window's taps; any number
        // of blocks will do. Parts that add come after the one that does not, in the same stream.
        unsafe {
            let arguments = [argument(&piece), argument(&spectrum), argument(&taps)];
            grid.launch(entry, inner, planes, &arguments, stream)?;
        }
    }
    if keep { keep_edges(frame, planes, window, stream) } else { Ok(()) }
}
