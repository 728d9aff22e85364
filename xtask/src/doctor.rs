//! `cargo xtask doctor`: what this machine has, what it lacks, and how to install it.

use std::ffi::{c_char, c_int, c_uint};
use std::fmt::Write;
use std::process::{Command, ExitCode};

use anyhow::Result;
use kernel_builder::{compiler, ptxas};

use crate::{print, root, rust_cuda};

/// How necessary a thing is.
#[derive(Clone, Copy, PartialEq)]
enum Need {
    /// Nothing builds without it.
    Build,
    /// Without it everything runs, on the CPU.
    Gpu,
    /// Only some tools use it.
    Optional,
}

/// One line of the answer: what was found, or what to do.
struct Finding {
    what: &'static str,
    need: Need,
    found: Result<String, String>,
    remedy: String,
}

pub(crate) fn run() -> Result<ExitCode> {
    let driver = driver();
    let findings = [
        Finding {
            what: "Rust toolchain",
            need: Need::Build,
            found: version("rustc", &["--version"]).and_then(|rustc| {
                let cargo = version("cargo", &["--version"])?;
                Ok(format!("{rustc}; {cargo}"))
            }),
            remedy: "install rustup from https://rustup.rs; it takes the version from rust-toolchain.toml".into(),
        },
        Finding {
            what: "linker",
            need: Need::Build,
            found: version("cc", &["--version"]),
            remedy: "install a C compiler; on Debian: apt-get install gcc libc6-dev".into(),
        },
        Finding {
            what: "kernel compiler",
            need: Need::Build,
            found: compiler::find()
                .map(|compiler| format!("{}, {}", compiler.version, compiler.rustc.display()))
                .map_err(|error| match error {
                    kernel_builder::Error::NoCompiler { tried } => tried.join("; "),
                    other => other.to_string(),
                }),
            remedy: format!("the build tries these by itself: {}", compiler::REMEDIES.join(", or ")),
        },
        Finding {
            what: "NVIDIA driver",
            need: Need::Gpu,
            found: driver
                .as_ref()
                .map(|driver| format!("CUDA {}.{}", driver.version.0, driver.version.1))
                .map_err(Clone::clone),
            remedy: "install NVIDIA's driver for this GPU; the CUDA toolkit is not needed".into(),
        },
        Finding {
            what: "GPU",
            need: Need::Gpu,
            found: match &driver {
                Ok(driver) if driver.devices.is_empty() => Err("the driver finds none".into()),
                Ok(driver) => Ok(driver.devices.join(", ")),
                Err(_) => Err("unknown without the driver".into()),
            },
            remedy: "in a container, pass the GPU in; check with nvidia-smi".into(),
        },
        Finding {
            what: "ptxas",
            need: Need::Optional,
            found: ptxas::find().map(|path| path.display().to_string()).ok_or_else(|| "for cargo xtask ptx".into()),
            remedy: ptxas::REMEDIES.join(", or "),
        },
        Finding {
            what: "rust-cuda's compiler",
            need: Need::Optional,
            found: rust_cuda::prerequisites()
                .map(|cuda| format!("all that it needs, with {}", cuda.display()))
                .map_err(|_| "for cargo xtask ptx --compiler rust-cuda, which says what it lacks".into()),
            remedy: "see rust-cuda/README.md; nothing else needs it".into(),
        },
        python("numpy"),
        python("scipy"),
        python("cv2"),
        python("cupy"),
        python("torch"),
    ];

    let mut text = String::new();
    let mut builds = true;
    let mut gpu = true;
    for Finding { what, need, found, remedy } in &findings {
        match found {
            Ok(found) => writeln!(text, "ok       {what}: {found}")?,
            Err(why) => {
                let mark = if *need == Need::Optional { "absent " } else { "MISSING" };
                writeln!(text, "{mark}  {what}: {why}\n         -> {remedy}")?;
                builds &= *need != Need::Build;
                gpu &= *need != Need::Gpu;
            }
        }
    }
    let device = if gpu { "GPU and the CPU" } else { "CPU" };
    match builds {
        true => writeln!(text, "\napron builds here and runs on the {device}.")?,
        false => writeln!(text, "\napron does not build here until what is missing is there.")?,
    }
    print(&text)?;
    Ok(if builds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The first line that a program prints, started in the workspace: rustup's proxies choose the
/// toolchain by folder.
fn version(program: &str, arguments: &[&str]) -> Result<String, String> {
    let result = Command::new(program).args(arguments).current_dir(root()).output();
    let result = result.map_err(|error| format!("{program} cannot be started ({error})"))?;
    let text = if result.status.success() { result.stdout } else { result.stderr };
    let line = String::from_utf8_lossy(&text).lines().next().unwrap_or_default().trim().to_owned();
    if result.status.success() { Ok(line) } else { Err(line) }
}

/// A Python package for comparisons of results or times.
fn python(package: &'static str) -> Finding {
    let show = format!("import {package}; print({package}.__version__)");
    let found = version("python3", &["-c", &show]).map_err(|_| "to compare with".into());
    let name = if package == "cv2" { "opencv-python-headless" } else { package };
    let name = if package == "cupy" { "cupy-cuda13x" } else { name };
    Finding { what: package, need: Need::Optional, found, remedy: format!("pip install {name}") }
}

/// The driver's devices.
struct Driver {
    version: (c_int, c_int),
    devices: Vec<String>,
}

fn driver() -> Result<Driver, String> {
    const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
    type Init = unsafe extern "C" fn(c_uint) -> c_uint;
    type Number = unsafe extern "C" fn(*mut c_int) -> c_uint;
    type Name = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_uint;
    type Attribute = unsafe extern "C" fn(*mut c_int, c_uint, c_int) -> c_uint;
    const MAJOR: c_uint = 75;
    const MINOR: c_uint = 76;

    let unusable = |error: libloading::Error| match std::error::Error::source(&error) {
        Some(cause) => format!("{LIBRARY} cannot be used ({cause})"),
        None => format!("{LIBRARY} cannot be used ({error})"),
    };
    // SAFETY: the driver's library may be loaded at any time; each function has the signature that
    // NVIDIA documents for this name, and gets pointers to locals of the size it is told.
    unsafe {
        let library = libloading::Library::new(LIBRARY).map_err(unusable)?;
        let mut version = 0;
        library.get::<Number>(b"cuDriverGetVersion").map_err(unusable)?(&mut version);
        let version = (version / 1000, version % 1000 / 10);
        let status = library.get::<Init>(b"cuInit").map_err(unusable)?(0);
        // 100 is CUDA_ERROR_NO_DEVICE.
        if status == 100 {
            return Ok(Driver { version, devices: Vec::new() });
        }
        if status != 0 {
            return Err(format!("{LIBRARY} is there but does not start (error {status})"));
        }
        let mut count = 0;
        library.get::<Number>(b"cuDeviceGetCount").map_err(unusable)?(&mut count);
        let name = library.get::<Name>(b"cuDeviceGetName").map_err(unusable)?;
        let attribute = library.get::<Attribute>(b"cuDeviceGetAttribute").map_err(unusable)?;
        let devices = (0..count).map(|device| {
            let mut text = [0u8; 256];
            // The last byte stays zero.
            name(text.as_mut_ptr().cast(), text.len() as c_int - 1, device);
            let (mut major, mut minor) = (0, 0);
            attribute(&mut major, MAJOR, device);
            attribute(&mut minor, MINOR, device);
            let text: Vec<u8> = text.into_iter().take_while(|&byte| byte != 0).collect();
            format!("{} ({major}.{minor})", String::from_utf8_lossy(&text))
        });
        Ok(Driver { version, devices: devices.collect() })
    }
}
