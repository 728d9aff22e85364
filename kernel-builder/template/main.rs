//! Launches the kernel of `kernels/src/saxpy.rs` on the first GPU.

use std::ffi::c_void;

use apron::Image;
use apron::gpu::{Gpu, Grid, Tier};

static KERNELS: &[Tier] = include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

fn main() -> Result<(), apron::Error> {
    let gpu = Gpu::open(0)?;
    let saxpy = gpu.load(KERNELS, "saxpy")?;

    // Memory of the GPU comes as images: here rows of floats.
    let n = 1000u32;
    let row = |value: &dyn Fn(u32) -> f32| Image::from_vec((0..n).map(value).collect(), n as usize, 1, 1);
    let x = gpu.upload(&row(&|i| i as f32)?.view())?;
    let y = gpu.upload(&row(&|_| 0.5)?.view())?;

    let (a, x_at, y_at) = (2.0f32, x.address(), y.address());
    let arguments: [*const c_void; 4] =
        [(&raw const n).cast(), (&raw const a).cast(), (&raw const x_at).cast(), (&raw const y_at).cast()];
    let grid = Grid { blocks: (n.div_ceil(256), 1, 1), block: (256, 1, 1), shared: 0 };
    let mut stream = gpu.stream()?;
    // SAFETY: these are the kernel's parameters; both rows have `n` floats and live until the
    // stream is synchronized.
    unsafe { stream.launch(&saxpy, grid, &arguments)? };
    stream.synchronize()?;

    let result: Image<f32> = gpu.download(&y)?;
    let right = (0..n).all(|i| result.as_slice()[i as usize] == 2.0 * i as f32 + 0.5);
    println!("{}: {} sums are {}", gpu.info().name, n, if right { "right" } else { "wrong" });
    Ok(())
}
