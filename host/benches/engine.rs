//! The CPU's engine through the public interface: `cargo bench -p apron --no-default-features`.
//!
//! One picture of 2048x2048 pixels for each stored type. `direct` has taps that are no product,
//! `separable` Gaussians, `box` equal ones. `APRON_ISA` forces an instruction set, and
//! `RAYON_NUM_THREADS` the number of threads.

use apron::{Device, Filter, Image, Pixel, Plan};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const SIDE: usize = 2048;

/// Values that no filter makes equal, the same in every run.
fn picture<P: Pixel>(channels: usize) -> Image<P> {
    let mut seed = 1u64;
    let values = (0..SIDE * SIDE * channels).map(|_| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        P::from_f32((seed >> 56) as f32)
    });
    Image::from_vec(values.collect(), SIDE, SIDE, channels).expect("a picture of this size")
}

fn direct(size: usize) -> Filter {
    let taps: Vec<f32> = (0..size * size)
        .map(|i| ((i * 7919 + 13) % 101) as f32 / (50 * size * size) as f32)
        .collect();
    Filter::from_taps(size, size, &taps).expect("taps")
}

fn gaussian(size: usize) -> Filter {
    let sigma = size as f64 / 6.0;
    let taps: Vec<f64> = (0..size)
        .map(|i| (-(i as f64 - (size / 2) as f64).powi(2) / (2.0 * sigma * sigma)).exp())
        .collect();
    let sum: f64 = taps.iter().sum();
    let taps: Vec<f64> = taps.iter().map(|tap| tap / sum).collect();
    Filter::separable_f64(&taps, &taps).expect("taps")
}

fn mean(size: usize) -> Filter {
    Filter::box_filter(size, size).expect("taps")
}

fn measure<P: Pixel>(c: &mut Criterion, name: &str, channels: usize, filter: fn(usize) -> Filter) {
    let src = picture::<P>(channels);
    let mut dst = Image::<P>::zeroed(SIDE, SIDE, channels).expect("a picture of this size");
    let mut group = c.benchmark_group(format!("{name} {}x{channels}", P::SCALAR));
    group.throughput(Throughput::Elements((SIDE * SIDE) as u64)).sample_size(20);
    for size in [3, 5, 7, 9, 17, 31] {
        let plan = Plan::builder(filter(size)).device(Device::Cpu).build().expect("a plan");
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| plan.run(&src.view(), &mut dst.view_mut()).expect("a result"));
        });
    }
    group.finish();
}

fn engine(c: &mut Criterion) {
    measure::<f32>(c, "direct", 1, direct);
    measure::<f32>(c, "separable", 1, gaussian);
    measure::<u8>(c, "direct", 1, direct);
    measure::<u8>(c, "separable", 1, gaussian);
    measure::<u8>(c, "box", 1, mean);
    measure::<u8>(c, "direct", 3, direct);
    measure::<u8>(c, "separable", 3, gaussian);
    measure::<u16>(c, "separable", 1, gaussian);
    measure::<apron::f16>(c, "separable", 1, gaussian);
}

criterion_group!(benches, engine);
criterion_main!(benches);
