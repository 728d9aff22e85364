//! Filters over linear light beside the plain filter, bytes:
//! `cargo bench -p apron --no-default-features --bench light`.
//!
//! Pictures of 2048x2048 pixels of 3 channels: noise of all bytes, noise of the 20 darkest, and a
//! ramp. Each row has the plain filter's time in milliseconds and the time over light as a multiple
//! of it. Both alternate, and the least time of each counts. Arguments choose rows by their names.

use std::time::Instant;

use apron::{Device, Filter, Image, Light, Plan, Result};

const SIDE: usize = 2048;

/// Calls of each kind, of which the least time counts.
const ROUNDS: usize = 12;

const FILTERS: [&str; 6] = [
    "gaussian:0.5",
    "gaussian:2",
    "gaussian:5",
    "gaussian:20",
    "unsharp:sigma=2,amount=0.8",
    "motion:length=41,angle=30",
];

/// A picture by its name.
fn picture(name: &str) -> Result<Image<u8>> {
    let noise = |i: usize| (i as u32).wrapping_mul(0x9e37_79b1).rotate_left(9) >> 5;
    let value = |i: usize| match name {
        "noise" => noise(i) as u8,
        "dark" => (noise(i) % 20) as u8,
        _ => (i % (3 * SIDE) / 24) as u8,
    };
    Image::from_vec((0..SIDE * SIDE * 3).map(value).collect(), SIDE, SIDE, 3)
}

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    println!("| picture, filter | plain, ms | linear light |");
    println!("| --- | ---: | ---: |");
    for name in ["noise", "dark", "ramp"] {
        let src = picture(name)?;
        let mut dst = Image::<u8>::zeroed(SIDE, SIDE, 3)?;
        for text in FILTERS {
            let row = format!("{name}, `{text}`");
            if !wanted.iter().all(|word| row.contains(word)) {
                continue;
            }
            let filter: Filter = text.parse()?;
            let plan = |light| Plan::builder(&filter).light(light).device(Device::Cpu).build();
            let plans = [plan(Light::Stored)?, plan(Light::Linear)?];
            let mut best = [f64::INFINITY; 2];
            for _ in 0..ROUNDS {
                for (plan, best) in plans.iter().zip(&mut best) {
                    let start = Instant::now();
                    plan.run(&src, &mut dst)?;
                    *best = best.min(start.elapsed().as_secs_f64() * 1e3);
                }
            }
            println!("| {row} | {:.1} | {:.2} |", best[0], best[1] / best[0]);
        }
    }
    Ok(())
}
