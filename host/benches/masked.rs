//! Filters over known pixels beside the plain filter:
//! `cargo bench -p apron --no-default-features --bench masked`.
//!
//! Pictures of 2048x2048 pixels of noise, and masks of 0 and 255 whose discs of unknown pixels
//! cover a share of the picture. Each row has the plain filter's time in milliseconds, and other
//! times as multiples of it: masks with 0 %, 1 % and 30 % unknown, and border `none` without a
//! mask. All calls of a row alternate, and the least time of each counts. Arguments choose rows by
//! their names: `-- u8 box` measures those that contain both. `APRON_ISA` forces an instruction
//! set, and `RAYON_NUM_THREADS` the number of threads.

use std::time::Instant;

use apron::{Border, Device, Filter, Image, Mask, Pixel, Plan, Result};

const SIDE: usize = 2048;

/// Calls of each kind, of which the least time counts.
const ROUNDS: usize = 12;

/// Percentages of unknown pixels.
const SHARES: [usize; 3] = [0, 1, 30];

/// A generator that repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

fn noise<P: Pixel>(channels: usize) -> Result<Image<P>> {
    let mut random = Random(1);
    let values = (0..SIDE * SIDE * channels).map(|_| P::from_f32(random.below(256) as f32));
    Image::from_vec(values.collect(), SIDE, SIDE, channels)
}

/// Discs of unknown pixels, of radius 3 to 40.
fn mask(percent: usize) -> Result<Image<u8>> {
    let mut random = Random(2);
    let mut mask = vec![255u8; SIDE * SIDE];
    let mut left = (SIDE * SIDE * percent / 100) as isize;
    while left > 0 {
        let (x, y) = (random.below(SIDE) as isize, random.below(SIDE) as isize);
        let radius = 3 + random.below(38) as isize;
        for dy in -radius..=radius {
            for dx in -radius..=radius {
                let (x, y) = (x + dx, y + dy);
                let inside = 0..SIDE as isize;
                if dx * dx + dy * dy > radius * radius
                    || !inside.contains(&x)
                    || !inside.contains(&y)
                {
                    continue;
                }
                let byte = &mut mask[y as usize * SIDE + x as usize];
                left -= isize::from(*byte != 0);
                *byte = 0;
            }
        }
    }
    Image::from_vec(mask, SIDE, SIDE, 1)
}

fn filters() -> Result<Vec<(&'static str, Filter)>> {
    let mut random = Random(3);
    let taps: Vec<f64> = (0..81).map(|_| (1 + random.below(1000)) as f64).collect();
    let sum: f64 = taps.iter().sum();
    let taps: Vec<f64> = taps.iter().map(|tap| tap / sum).collect();
    Ok(vec![
        ("gaussian:2", "gaussian:2".parse()?),
        ("gaussian:5", "gaussian:5".parse()?),
        ("box:15", "box:size=15".parse()?),
        ("sobel-x", "sobel-x".parse()?),
        ("random 9x9", Filter::from_taps_f64(9, 9, &taps)?),
    ])
}

/// Milliseconds of a call.
fn time(call: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    call()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn measure<P: Pixel>(channels: usize, masks: &[Image<u8>], wanted: &[String]) -> Result<()> {
    let src = noise::<P>(channels)?;
    let mut dst = Image::<P>::zeroed(SIDE, SIDE, channels)?;
    for (text, filter) in filters()? {
        let name = format!("{} {channels} {text}", P::SCALAR);
        if !wanted.iter().all(|word| name.contains(word)) {
            continue;
        }
        let plan = |border| Plan::builder(&filter).border(border).device(Device::Cpu).build();
        let (plain, none) = (plan(Border::Reflect101)?, plan(Border::None)?);
        let mut best = [f64::INFINITY; 2 + SHARES.len()];
        for _ in 0..ROUNDS {
            let mut least = |at: usize, time: f64| best[at] = best[at].min(time);
            least(0, time(|| plain.run(&src, &mut dst))?);
            for (at, mask) in masks.iter().enumerate() {
                least(1 + at, time(|| plain.run_masked(&src, mask, &mut dst))?);
            }
            least(1 + masks.len(), time(|| none.run_masked(&src, Mask::All, &mut dst))?);
        }
        let times = best[1..].iter().map(|time| format!(" {:.2} |", time / best[0]));
        println!("| {name} | {:.2} |{}", best[0], times.collect::<String>());
    }
    Ok(())
}

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let masks = SHARES.map(mask).into_iter().collect::<Result<Vec<_>>>()?;
    println!("| picture, filter | plain, ms | 0 % | 1 % | 30 % | none |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for channels in [1, 3] {
        measure::<u8>(channels, &masks, &wanted)?;
        measure::<u16>(channels, &masks, &wanted)?;
        measure::<f32>(channels, &masks, &wanted)?;
    }
    Ok(())
}
