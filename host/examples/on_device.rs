//! Runs two filters in sequence; the pixels stay in GPU memory in between:
//! `cargo run --release --example on_device`.

use apron::gpu::Gpu;
use apron::{Device, Filter, Image, Plan};

fn main() -> Result<(), apron::Error> {
    let gpu = match Gpu::open(0) {
        Err(apron::Error::NoGpu { reason }) => {
            println!("nothing to show without a GPU: {reason}");
            return Ok(());
        }
        other => other?,
    };
    let plan = |filter: &Filter| Plan::builder(filter).device(Device::Gpu(0)).build();
    let (blur, edges) = (plan(&Filter::gaussian(2.0)?)?, plan(&Filter::laplacian(8)?)?);

    let picture =
        Image::from_vec((0..640 * 480).map(|i| (i % 640 / 64) as f32).collect(), 640, 480, 1)?;
    let src = gpu.upload(&picture.view())?;
    let (mut blurred, mut found) = (gpu.image(src.shape())?, gpu.image(src.shape())?);
    let mut stream = gpu.stream()?;
    blur.run_on_device(&src, &mut blurred, &mut stream)?;
    edges.run_on_device(&blurred, &mut found, &mut stream)?;
    stream.synchronize()?;
    let found: Image<f32> = gpu.download(&found)?;
    println!(
        "{}: {:.3} at an edge, {:.3} between two",
        gpu.info().name,
        found.view().row(100)[63],
        found.view().row(100)[95]
    );
    Ok(())
}
