//! Prints the PTX that the build script has made of the package named.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    let ptx: &[u8] = match std::env::args().nth(1).as_deref() {
        Some("gpu-kernels") => include_bytes!(concat!(env!("OUT_DIR"), "/gpu-kernels.ptx")),
        Some("study-kernels") => include_bytes!(concat!(env!("OUT_DIR"), "/study-kernels.ptx")),
        other => {
            let told = format!("{other:?}: name gpu-kernels or study-kernels");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, told));
        }
    };
    io::stdout().write_all(ptx)
}
