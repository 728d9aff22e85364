//! Blurs an image: `cargo run --release --example blur in.jpg out.png 2.5`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let [from, to, sigma] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: blur INPUT OUTPUT SIGMA".into());
    };
    let filter = apron::Filter::gaussian(sigma.parse()?)?;
    let picture = image::open(from)?;
    apron::filter(&picture, &filter)?.save(to)?;
    Ok(())
}
