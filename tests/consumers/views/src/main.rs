//! The CPU engine alone, on a slice of pixels.

use apron::{Filter, Image, ImageView, Plan};

fn main() -> Result<(), apron::Error> {
    let pixels: Vec<[u8; 3]> = (0..12).map(|i| [i, 2 * i, 200]).collect();
    let mut slopes = Image::<f32>::zeroed(4, 3, 3)?;
    Plan::builder(Filter::sobel_x()).build()?.run(&ImageView::from_pixels(&pixels, 4, 3)?, &mut slopes)?;
    assert_eq!(slopes.view().row(1)[3..6], [8.0, 16.0, 0.0]);
    println!("ok");
    Ok(())
}
