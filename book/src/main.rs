//! Draws the pictures of the book: `cargo run -p apron-book` writes them to `book/text/pictures`.

use std::path::Path;
use std::{fs, io};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("text/pictures");
    for (name, svg) in apron_book::pictures::all()? {
        let path = folder.join(name);
        fs::write(&path, svg)
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        println!("{}", path.display());
    }
    Ok(())
}
