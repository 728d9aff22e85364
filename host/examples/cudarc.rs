//! Filters memory of `cudarc`, in its stream and without a copy. The tensors of `candle` on a GPU
//! hold such slices: `cargo run --release --example cudarc`.

use apron::gpu::{DeviceView, DeviceViewMut, Gpu, Strides};
use apron::{Device, Filter, Plan, Scalar, Shape};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut};

/// Filters images of one plane each, one after the other in memory.
fn filter(
    plan: &Plan,
    from: &CudaSlice<f32>,
    to: &mut CudaSlice<f32>,
    (images, height, width): (usize, usize, usize),
    stream: &CudaStream,
) -> Result<(), apron::Error> {
    assert!(from.len() == images * height * width && to.len() == from.len());
    let gpu = Gpu::open(stream.context().ordinal() as u32)?;
    let shape = Shape { width, height, channels: 1 };
    let row = 4 * width as i64;
    let strides = Strides { row, pixel: 4, channel: 0, image: height as i64 * row };
    let kind = (Scalar::F32, strides);
    // cudarc makes the stream wait for earlier work with the slices, until these are dropped.
    let ((from, _read), (to, _written)) = (from.device_ptr(stream), to.device_ptr_mut(stream));
    // SAFETY: the slices have a value for each pixel, they are not the same, and cudarc frees them
    // in stream order. The stream outlives this function.
    unsafe {
        let src = DeviceView::from_raw(&gpu, from, kind, shape, images, 0..height)?;
        let mut dst = DeviceViewMut::from_raw(&gpu, to, kind, shape, images, 0..height)?;
        let mut stream = gpu.stream_from_raw(stream.cu_stream().cast());
        plan.run_region(&src, &mut dst, 0..width, 0..height, &mut stream)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Err(error) = Gpu::open(0) {
        println!("nothing to show without a GPU: {error}");
        return Ok(());
    }
    // SAFETY: this looks for the driver's library, and loads it.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        println!("nothing to show: cudarc finds no driver");
        return Ok(());
    }
    let plan = Plan::builder(Filter::gaussian(2.0)?).device(Device::Gpu(0)).build()?;
    let stream = CudaContext::new(0)?.new_stream()?;
    let (images, height, width) = (3, 40, 60);
    let pixels: Vec<f32> = (0..images * height * width).map(|at| (at % 17) as f32).collect();
    let from = stream.clone_htod(&pixels)?;
    let mut to = stream.alloc_zeros(pixels.len())?;
    filter(&plan, &from, &mut to, (images, height, width), &stream)?;
    let found = stream.clone_dtoh(&to)?;

    let host = Plan::builder(Filter::gaussian(2.0)?).device(Device::Cpu).build()?;
    for (pixels, found) in pixels.chunks(height * width).zip(found.chunks(height * width)) {
        let right = host.filter(&apron::ImageView::new(pixels, width, height, 1)?)?;
        assert_eq!(right.as_slice(), found);
    }
    println!("{images} images of {height}x{width} in cudarc's memory: as on the CPU");
    Ok(())
}
