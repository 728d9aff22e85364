//! The command-line tool, run as users run it. See the crate's documentation for the environment
//! variables.

mod bad_input;
mod chunks;
mod codecs;
mod documents;
mod faults;
mod files;
mod frames;
mod fuzzed;
#[cfg(feature = "gpu")]
mod kernels;
mod light;
mod masks;
mod pipes;
mod places;
mod plan;
mod scipy;
mod steps;
mod tool;
mod values;
mod video;
mod volume;
mod wide;

use std::process::ExitCode;

use conformance::product::Gpu;
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let gpu = Gpu::probe();
    let python = scipy::probe();
    let judges = codecs::probe();
    let of_extra = codecs::probe_extra();
    let ffmpeg = video::probe();
    #[cfg(feature = "gpu")]
    let kernels = kernels::trials(&gpu);
    #[cfg(not(feature = "gpu"))]
    let kernels = Vec::new();
    let trials: Vec<_> = [
        kernels,
        files::trials(),
        frames::trials(),
        steps::trials(),
        bad_input::trials(),
        chunks::trials(&chunks::probe()),
        codecs::trials(&judges, &of_extra),
        documents::trials(),
        faults::trials(),
        fuzzed::trials(),
        light::trials(&of_extra),
        masks::trials(&of_extra),
        places::trials(),
        values::trials(),
        video::trials(&ffmpeg),
        volume::trials(),
        wide::trials(&judges),
        plan::trials(&gpu),
        scipy::trials(&python, &gpu),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !arguments.list {
        if let Gpu::Missing(reason) = &gpu {
            println!("GPU: SKIP ({reason}), 3 tests");
        }
        if let Err(reason) = &python {
            println!("SciPy: SKIP ({reason}), 2 tests");
        }
        if let Err(reason) = &judges {
            println!("Pillow, tifffile, OpenCV: SKIP ({reason}), 5 tests");
        }
        if let Err(reason) = &of_extra {
            println!("OpenEXR: SKIP ({reason}), 2 tests");
        }
        if let Err(reason) = &ffmpeg {
            println!("ffmpeg: SKIP ({reason}), 2 tests");
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
