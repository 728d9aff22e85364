//! Every object with a driver handle, without the crate cust: memory, streams, events, kernels,
//! graphs, and their errors.

use apron::gpu::{Gpu, HostImage};
use apron::{Border, Device, Error, Filter, Image, Plan, Shape};

fn main() -> Result<(), Error> {
    let gpu = Gpu::open(0)?;
    let info = gpu.info();
    assert!(!info.name.is_empty() && info.memory > 0 && info.multiprocessors > 0 && info.shared_memory >= 48 << 10);
    let (free, total) = gpu.memory()?;
    assert!(free <= total && total == info.memory, "{free} of {total}");

    let shape = Shape { width: 61, height: 37, channels: 3 };
    let bytes: Vec<u8> = (0..61 * 37 * 3u32).map(|i| (i * i / 7 % 251) as u8).collect();
    let floats: Vec<f32> = bytes.iter().map(|&byte| f32::from(byte) / 3.0).collect();
    let bytes = Image::from_vec(bytes, 61, 37, 3)?;
    let floats = Image::from_vec(floats, 61, 37, 3)?;
    // Taps by value, taps in a buffer, two passes, spectra.
    for text in ["sobel-x", "gaussian:sigma=1.5", "gaussian:sigma=6", "motion:length=9,angle=30", "log:sigma=5"] {
        let filter: Filter = text.parse()?;
        let plan = |device| Plan::builder(&filter).border(Border::Reflect).device(device).build();
        let (cpu, device) = (plan(Device::Cpu)?, plan(Device::Gpu(0))?);
        assert_eq!(device.filter(&bytes)?, cpu.filter(&bytes)?, "{text}");
        let (found, expected) = (device.filter(&floats)?, cpu.filter(&floats)?);
        for (found, expected) in found.as_slice().iter().zip(expected.as_slice()) {
            assert!((found - expected).abs() < 1e-3, "{text}: {found}, expected {expected}");
        }
    }

    // A recorded graph, replayed between two marks.
    let filter = Filter::gaussian(2.0)?;
    let plan = Plan::builder(&filter).device(Device::Gpu(0)).build()?;
    let mut stream = gpu.stream()?;
    let mut recorded = plan.record(gpu.upload(&floats.view())?, gpu.image(shape)?)?;
    let start = stream.mark()?;
    recorded.replay(&mut stream)?;
    recorded.replay(&mut stream)?;
    let _elapsed = stream.mark()?.since(&start)?;
    assert_eq!(gpu.download(recorded.dst())?, plan.filter(&floats)?);

    // Pinned memory, in a batch.
    let mut frames = Vec::new();
    for _ in 0..5 {
        let (mut src, dst) = (HostImage::<u8>::zeroed(&gpu, shape)?, HostImage::<u8>::zeroed(&gpu, shape)?);
        src.as_mut_slice().copy_from_slice(bytes.as_slice());
        frames.push((src, dst));
    }
    let mut batch: Vec<_> = frames.iter_mut().map(|(src, dst)| (src.view(), dst.view_mut())).collect();
    plan.run_batch(&mut batch)?;
    let expected = Plan::builder(&filter).device(Device::Cpu).build()?.filter(&bytes)?;
    assert!(frames.iter().all(|(_, dst)| dst.as_slice() == expected.as_slice()));

    // More than the device has.
    let huge = Shape { width: 1 << 29, height: 1 << 19, channels: 1 };
    match gpu.image(huge) {
        Err(Error::DeviceMemory { needed, total, .. }) => assert!(needed > total),
        other => panic!("{other:?}"),
    }
    println!("ok");
    Ok(())
}
