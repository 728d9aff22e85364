//! Every variant on every device against the oracle. See the crate's documentation for the environment it minds.

mod controls;
mod cpu;
mod direct;
mod emulated;
mod fourier;
mod ladder;
mod oracle;
mod plan;
mod separable;
mod table;

use std::process::ExitCode;

use conformance::product::Gpu;
use conformance::select::Selection;
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let selection = match Selection::from_environment() {
        Ok(selection) => selection,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let threads = match selection {
        Selection::Full => 0,
        // compute-sanitizer loses track of launches that come from many threads.
        Selection::Small => 1,
        // Each thread that launches has a stack for every thread of a block.
        Selection::Emulated => std::thread::available_parallelism().map_or(1, |threads| threads.get().min(8)),
    };
    if threads > 0 {
        arguments.test_threads.get_or_insert(threads);
        if let Err(error) = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
            eprintln!("{threads} threads cannot be had: {error}");
            return ExitCode::FAILURE;
        }
    }
    let gpu = Gpu::probe();
    let trials = [
        oracle::trials(),
        controls::trials(),
        table::trials(),
        direct::trials(selection, &gpu),
        separable::trials(selection, &gpu),
        fourier::trials(selection, &gpu),
        ladder::trials(selection, &gpu),
        plan::trials(selection, &gpu),
        cpu::trials(selection),
        emulated::trials(),
    ]
    .into_iter()
    .flatten();
    let trials: Vec<_> = trials.collect();
    if !arguments.list {
        match &gpu {
            Gpu::Ready => println!("GPU: {}", Gpu::DEVICE),
            Gpu::Broken(reason) => println!("GPU: FAILED ({reason})"),
            Gpu::Missing(reason) => {
                let skipped = trials.iter().filter(|trial| trial.has_ignored_flag()).count();
                println!("GPU: SKIP ({reason}), {skipped} tests");
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
