fn main() -> Result<(), Box<dyn std::error::Error>> {
    let picture = image::open("in.png")?;
    let blurred = apron::filter(&picture, &apron::Filter::gaussian(2.0)?)?;
    blurred.save("out.png")?;
    Ok(())
}
