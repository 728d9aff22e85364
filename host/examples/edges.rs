//! The steepness of an image at each pixel, as grey:
//! `cargo run --release --example edges in.jpg out.png`.
//!
//! Derivatives may be negative, so the results of 8-bit pixels are f32.

use std::error::Error;

use apron::{Border, Filter, Image, Plan};
use image::{GrayImage, Luma};

fn main() -> Result<(), Box<dyn Error>> {
    let [from, to] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: edges INPUT OUTPUT".into());
    };
    let picture = image::open(from)?.into_luma8();
    let (width, height) = picture.dimensions();

    let derivative = |filter: &Filter| -> Result<Image<f32>, apron::Error> {
        let plan = Plan::builder(filter).border(Border::Replicate).build()?;
        let mut slopes = Image::zeroed(width as usize, height as usize, 1)?;
        plan.run(&picture, &mut slopes)?;
        Ok(slopes)
    };
    let (x, y) = (derivative(&Filter::sobel_x())?, derivative(&Filter::sobel_y())?);

    let mut slopes = x.as_slice().iter().zip(y.as_slice()).map(|(x, y)| x.hypot(*y));
    let steepness =
        GrayImage::from_fn(width, height, |_, _| Luma([slopes.next().unwrap_or(0.0) as u8]));
    steepness.save(to)?;
    Ok(())
}
