//! Every variant on the GPU and every family on the CPU against the oracle. See the crate's
//! documentation for the environment variables.

mod accuracy;
mod arrays;
mod auto;
mod axes;
mod concurrency;
mod controls;
mod cpu;
mod devices;
mod direct;
mod double;
mod each;
mod emulated;
mod entries;
mod flow;
mod fourier;
mod generated;
mod huge;
mod ladder;
mod light;
mod lines;
mod masked;
mod oracle;
mod plan;
mod recipes;
mod regions;
mod same;
mod sanitize;
mod separable;
mod spectra_passes;
mod steps;
mod stored;
mod streamed;
mod table;
mod turned;
mod worst;

use std::process::ExitCode;

use conformance::product::Gpu;
use conformance::select::Selection;
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if let Some((first, words)) = words.split_first()
        && first == sanitize::COMMAND
    {
        return sanitize::main(words);
    }
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
        // Each launching thread needs a stack for every thread of a block.
        Selection::Emulated => {
            std::thread::available_parallelism().map_or(1, |threads| threads.get().min(8))
        }
    };
    if threads > 0 {
        arguments.test_threads.get_or_insert(threads);
        if let Err(error) = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
            eprintln!("{threads} threads cannot be had: {error}");
            return ExitCode::FAILURE;
        }
    }
    if std::env::var_os("APRON_SCENARIO").is_some() {
        // A scenario must not open the GPU first.
        return libtest_mimic::run(&arguments, emulated::trials()).exit_code();
    }
    let gpu = Gpu::probe();
    let trials = [
        // The longest tests start first, and the others fill the remaining threads.
        worst::trials(selection, &gpu),
        lines::trials(selection, &gpu),
        generated::trials(selection, &gpu),
        huge::trials(selection, &gpu),
        oracle::trials(),
        controls::trials(),
        table::trials(),
        accuracy::trials(selection, &gpu),
        direct::trials(selection, &gpu),
        separable::trials(selection, &gpu),
        fourier::trials(selection, &gpu),
        spectra_passes::trials(selection, &gpu),
        flow::trials(selection, &gpu),
        ladder::trials(selection, &gpu),
        plan::trials(selection, &gpu),
        auto::trials(&gpu),
        same::trials(selection, &gpu),
        regions::trials(selection, &gpu),
        stored::trials(selection, &gpu),
        steps::trials(selection, &gpu),
        streamed::trials(selection, &gpu),
        turned::trials(selection, &gpu),
        arrays::trials(selection, &gpu),
        light::trials(selection, &gpu),
        axes::trials(selection, &gpu),
        each::trials(selection, &gpu),
        entries::trials(&gpu),
        cpu::trials(selection),
        double::trials(),
        masked::trials(selection, &gpu),
        concurrency::trials(selection, &gpu),
        devices::trials(&gpu),
        sanitize::trials(),
        emulated::trials(),
    ]
    .into_iter()
    .flatten();
    let trials: Vec<_> = trials.collect();
    if !arguments.list {
        match &gpu {
            Gpu::Ready => {
                println!("GPU: {}", Gpu::DEVICE);
                let several = |trial: &&Trial| {
                    trial.has_ignored_flag() && trial.name().starts_with("devices::")
                };
                let skipped = trials.iter().filter(several).count();
                if skipped > 0 {
                    println!("GPUS: SKIP (there is one, two are needed), {skipped} tests");
                }
            }
            Gpu::Broken(reason) => println!("GPU: FAILED ({reason})"),
            Gpu::Missing(reason) => {
                let on_gpu =
                    |trial: &&Trial| trial.has_ignored_flag() && trial.name().contains("gpu");
                let skipped = trials.iter().filter(on_gpu).count();
                println!("GPU: SKIP ({reason}), {skipped} tests");
            }
        }
    }
    if !arguments.list
        && let Some(reason) = conformance::built::no_emulator()
    {
        let on_emulator = |trial: &&Trial| {
            let name = trial.name();
            trial.has_ignored_flag()
                && (name.starts_with("emulated::") || name.starts_with("sanitize::"))
        };
        println!("EMULATOR: SKIP ({reason}), {} tests", trials.iter().filter(on_emulator).count());
    } else if !arguments.list && !arguments.ignored && !arguments.include_ignored {
        let count = emulated::SMALL.len();
        println!("SMALL GPUS: SKIP (they take minutes: --ignored emulated::small), {count} tests");
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    #[cfg(feature = "gpu")]
    if let Gpu::Ready = &gpu
        && !arguments.list
    {
        sanitize::tell_kernels();
    }
    conclusion.exit_code()
}
