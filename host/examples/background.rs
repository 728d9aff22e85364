//! Subtracts the background from an image of stars: `cargo run --release --example background`.
//!
//! Camera counts are 16-bit integers. Without the background, half of them are below zero, so
//! results are f32. One filter does both: a single tap of 1, minus a wide mean.

use apron::{Border, Filter, Image, Plan};

fn main() -> Result<(), apron::Error> {
    // A sky that is brighter to the right, with a star in the middle.
    let (width, height) = (320, 200);
    let mut sky: Vec<u16> = (0..width * height).map(|i| 1000 + (i % width) as u16).collect();
    sky[100 * width + 160] += 5000;
    let sky = Image::from_vec(sky, width, height, 1)?;

    let size = 51;
    let mut taps = vec![-1.0 / (size * size) as f64; size * size];
    taps[size / 2 * size + size / 2] += 1.0;
    let filter = Filter::from_taps_f64(size, size, &taps)?;
    let plan = Plan::builder(&filter).border(Border::Reflect).build()?;

    let mut stars = Image::<f32>::zeroed(width, height, 1)?;
    plan.run(&sky, &mut stars)?;
    let (view, middle) = (stars.view(), (160, 100));
    println!(
        "{}: the star {:.1}, the sky beside it {:.1}",
        plan.ran_on(),
        view.row(middle.1)[middle.0],
        view.row(20)[160]
    );
    Ok(())
}
