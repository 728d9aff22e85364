//! `kernel-builder new NAME`: creates a project with a kernel in Rust, which its build script
//! compiles and its program launches.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// The files of the project.
const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("../template/manifest.toml")),
    ("build.rs", include_str!("../template/build.rs")),
    ("kernels/src/lib.rs", include_str!("../template/lib.rs")),
    ("kernels/src/saxpy.rs", include_str!("../template/saxpy.rs")),
    ("src/main.rs", include_str!("../template/main.rs")),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["new", name] => create(name),
        _ => Err("usage: kernel-builder new NAME".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the project into a new folder of this name.
fn create(name: &str) -> Result<(), String> {
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(letters) {
        return Err(format!(
            "{name:?} is not a package name: use a letter, then letters, digits, - and _"
        ));
    }
    let folder = Path::new(name);
    if folder.exists() {
        return Err(format!("{name} exists already"));
    }
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    for (file, text) in FILES {
        let path = folder.join(file);
        let text = text.replace("NAME", name).replace("VERSION", &format!("{major}.{minor}"));
        let written =
            path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    println!("{name}: cargo run --manifest-path {name}/Cargo.toml");
    Ok(())
}
