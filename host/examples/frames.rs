//! Filters many frames with one plan, in batches: `cargo run --release --example frames`.
//!
//! While a GPU filters one frame of a batch, the next frame uploads and the previous one downloads.

use std::time::Instant;

use apron::{Filter, ImageView, ImageViewMut, Plan};

const WIDTH: usize = 1280;
const HEIGHT: usize = 720;

fn main() -> Result<(), apron::Error> {
    let plan = Plan::builder(Filter::gaussian(1.5)?).build()?;
    // Frames as from a decoder: pixels of three bytes.
    let frames: Vec<Vec<[u8; 3]>> =
        (0..8).map(|frame| vec![[frame, 2 * frame, 255]; WIDTH * HEIGHT]).collect();
    let mut results = vec![vec![[0u8; 3]; WIDTH * HEIGHT]; frames.len()];

    let start = Instant::now();
    let mut batch = Vec::new();
    for (frame, result) in frames.iter().zip(&mut results) {
        let src = ImageView::from_pixels(frame, WIDTH, HEIGHT)?;
        batch.push((src, ImageViewMut::from_pixels(result, WIDTH, HEIGHT)?));
    }
    plan.run_batch(&mut batch)?;
    println!("{}: {} frames in {:.1?}", plan.ran_on(), frames.len(), start.elapsed());
    assert_eq!(results[7][0], [7, 14, 255]);
    Ok(())
}
