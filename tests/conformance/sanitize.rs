//! `conformance sanitize` runs every entry once under compute-sanitizer (`entries.rs`), or all of
//! the GPU's tests. Each test is a process of its own, with many at a time on each GPU. A finding
//! is a failure, and so is a tool that has seen no kernel. `cargo xtask sanitize` calls this
//! command; without cargo, the test program does the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use libtest_mimic::{Failed, Trial};

use crate::entries;

/// The argument that selects this command.
pub(crate) const COMMAND: &str = "sanitize";

const HELP: &str = "\
Runs every entry of the GPU's kernels once under compute-sanitizer, at a small awkward shape, and each variant on
images of every layout: the tests entries::* and regions::layouts::gpu.

  --all           all of the GPU's tests instead, with the selection that APRON_CONFORMANCE names (small unless set)
  --tool NAME     memcheck, racecheck, initcheck or synccheck; may be repeated [default: all four]
  --filter TEXT   of all of the GPU's tests those with this in their names; may be repeated
  --jobs N        processes at a time [default: one for each core, at most 16 for each GPU]

Exit code: 0 where nothing was found, or where there is no GPU or no compute-sanitizer, which it says; else 1.
COMPUTE_SANITIZER names the tool where it is neither on the PATH nor in the toolkit's usual folder.";

/// The tests that run by default: each entry once, and the longer code paths for pixels that are
/// not contiguous.
const SHORT: [&str; 2] = [entries::NAME, "regions::layouts::gpu"];

const TOOLS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];

/// The exit status that compute-sanitizer is told to return for findings. Its default is 0.
const FOUND: i32 = 9;

struct Options {
    tools: Vec<String>,
    filters: Vec<String>,
    jobs: Option<usize>,
}

impl Options {
    fn parse(words: &[String]) -> Result<Option<Self>, String> {
        let mut options = Self { tools: Vec::new(), filters: Vec::new(), jobs: None };
        let mut all = false;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--all" => all = true,
                "--tool" => options.tools.push(value()?),
                "--filter" => options.filters.push(value()?),
                "--jobs" => {
                    let text = value()?;
                    let jobs = text.parse().ok().filter(|&jobs| jobs > 0);
                    options.jobs = Some(jobs.ok_or(format!("--jobs {text}: a number from 1"))?);
                }
                other => {
                    return Err(format!(
                        "{other} is not known; there are --all, --tool, --filter and --jobs"
                    ));
                }
            }
        }
        if let Some(tool) = options.tools.iter().find(|tool| !TOOLS.contains(&tool.as_str())) {
            return Err(format!("--tool {tool}: there are {}", TOOLS.join(", ")));
        }
        if options.filters.is_empty() && !all {
            options.filters = SHORT.map(str::to_owned).into();
        }
        if options.tools.is_empty() {
            options.tools = TOOLS.map(str::to_owned).into();
        }
        Ok(Some(options))
    }
}

/// Runs the command with the arguments after its name.
pub(crate) fn main(words: &[String]) -> ExitCode {
    let options = match Options::parse(words) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("sanitize: {error}");
            return ExitCode::from(2);
        }
    };
    let required = std::env::var_os("APRON_REQUIRE_GPU").is_some_and(|value| value == "1");
    let Some(sanitizer) = sanitizer() else {
        println!(
            "SANITIZE: SKIP (no compute-sanitizer; it comes with the CUDA toolkit, COMPUTE_SANITIZER may name it)"
        );
        return if required { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    };
    let workers = workers(options.jobs);
    match tests(&options.filters, &workers[0]) {
        Ok(tests) if tests.is_empty() => {
            println!("SANITIZE: SKIP (no GPU, or no test of that name)");
            if required { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Ok(tests) => {
            let clean = check(&sanitizer, &options.tools, &tests, &workers);
            if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("sanitize: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The path of compute-sanitizer.
fn sanitizer() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("COMPUTE_SANITIZER") {
        return Some(path.into());
    }
    let name = format!("compute-sanitizer{}", std::env::consts::EXE_SUFFIX);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let toolkits = ["/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin"]
        .map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(toolkits)
        .map(|folder| folder.join(&name))
        .find(|path| path.is_file())
}

/// For each process that may run at a time, its GPU, as `CUDA_VISIBLE_DEVICES` names it.
fn workers(jobs: Option<usize>) -> Vec<String> {
    #[cfg(feature = "gpu")]
    let count = apron::gpu::Gpu::count().unwrap_or(1);
    #[cfg(not(feature = "gpu"))]
    let count = 1;
    let gpus: Vec<String> = match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(visible) => visible.split(',').map(|gpu| gpu.trim().to_owned()).collect(),
        Err(_) => (0..count).map(|gpu| gpu.to_string()).collect(),
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let jobs = jobs.unwrap_or(cores.min(16 * gpus.len()));
    gpus.into_iter().cycle().take(jobs).collect()
}

fn program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| error.to_string())
}

/// Sets the small selection, with grids so short that kernels use their grid-stride loops, unless
/// the environment sets others.
fn in_small_selection(command: &mut Command) -> &mut Command {
    for (name, value) in [("APRON_CONFORMANCE", "small"), ("APRON_GRID_ROWS", "3")] {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    command
}

/// The tests that run on this GPU alone; empty if there is no GPU.
fn tests(filters: &[String], gpu: &str) -> Result<Vec<String>, String> {
    let list = |ignored: bool| -> Result<BTreeSet<String>, String> {
        let mut command = Command::new(program()?);
        command.args(["--list", "--format", "terse"]).args(ignored.then_some("--ignored"));
        command.env("CUDA_VISIBLE_DEVICES", gpu);
        let output =
            in_small_selection(&mut command).output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let on_gpu = |name: &&str| name.split("::").skip(1).any(|part| part.starts_with("gpu"));
        Ok(text
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .filter(on_gpu)
            .map(str::to_owned)
            .collect())
    };
    let ignored = list(true)?;
    let wanted = |name: &String| {
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    };
    Ok(list(false)?.into_iter().filter(|name| !ignored.contains(name) && wanted(name)).collect())
}

/// Results so far of the tests under one tool.
#[derive(Default)]
struct Tally {
    /// The number of launches of each kernel.
    launches: BTreeMap<String, u64>,
    failed: usize,
}

/// Runs every test under every tool, and prints each result at once, so that an interrupted run
/// shows its progress. Returns whether all passed.
fn check(sanitizer: &Path, tools: &[String], tests: &[String], workers: &[String]) -> bool {
    let started = Instant::now();
    let (mut queue, others): (Vec<_>, Vec<_>) = (0..tools.len())
        .flat_map(|tool| tests.iter().map(move |test| (tool, test)))
        // These take longest, so they start first.
        .partition(|(_, test)| test.starts_with("fourier::") || test.ends_with("studies::gpu"));
    queue.extend(others);
    let next = AtomicUsize::new(0);
    let tallies: Vec<Mutex<Tally>> = tools.iter().map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for gpu in workers.iter().take(queue.len()) {
            let (queue, next, tallies) = (&queue, &next, &tallies);
            scope.spawn(move || {
                while let Some(&(tool, test)) = queue.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (name, started) = (&tools[tool], Instant::now());
                    let outcome = one(sanitizer, name, test, gpu);
                    let took = started.elapsed().as_secs_f64();
                    let mut tally = tallies[tool].lock().expect("no thread panics with it");
                    match outcome {
                        Ok(launches) => {
                            println!("{name}: {test}: clean, {}, {took:.1} s", counted(&launches));
                            for (entry, count) in launches {
                                *tally.launches.entry(entry).or_default() += count;
                            }
                        }
                        Err(failure) => {
                            println!("{name}: {test}: FAILED, {took:.1} s\n{failure}");
                            tally.failed += 1;
                        }
                    }
                }
            });
        }
    });
    let took = started.elapsed().as_secs_f64();
    let tallies = tallies.into_iter().map(|tally| tally.into_inner().unwrap_or_default());
    let verdicts = tools.iter().zip(tallies).map(|(tool, Tally { launches, failed })| {
        let clean = failed == 0 && !launches.is_empty();
        let verdict = if clean { "clean" } else { "FAILED" };
        let launches = counted(&launches);
        println!("SANITIZE {tool}: {verdict}; {} tests, {failed} of them failed; {launches}; {took:.0} s", tests.len());
        clean
    });
    verdicts.fold(true, |all, clean| all & clean)
}

fn counted(launches: &BTreeMap<String, u64>) -> String {
    format!("{} kernels in {} launches", launches.len(), launches.values().sum::<u64>())
}

/// Runs one test as a process of its own. Returns its kernels and their numbers of launches, or the
/// findings.
fn one(
    sanitizer: &Path,
    tool: &str,
    test: &str,
    gpu: &str,
) -> Result<BTreeMap<String, u64>, String> {
    let mut command = Command::new(sanitizer);
    command.args(["--tool", tool, "--error-exitcode", &FOUND.to_string()]);
    command.arg(program()?).args(["--exact", test]).env("CUDA_VISIBLE_DEVICES", gpu);
    command.env("APRON_REQUIRE_GPU", "1").env("APRON_REPORTS", "");
    let output = in_small_selection(&mut command).output().map_err(|error| error.to_string())?;
    judge(&output)
}

fn judge(output: &Output) -> Result<BTreeMap<String, u64>, String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let passed = text.contains("test result: ok. 1 passed");
    if output.status.success() && passed {
        return Ok(kernels(&text));
    }
    let why = match output.status.code() {
        Some(FOUND) => "findings",
        _ if !passed => "the test did not pass",
        _ => "it did not end well",
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).take(60).collect();
    Err(format!("{why} ({})\n{}", output.status, lines.join("\n")))
}

/// The prefix of the line that [`tell_kernels`] prints.
const KERNELS: &str = "GPU kernels launched:";

/// Prints the kernels that this process launched, and how often.
#[cfg(feature = "gpu")]
pub(crate) fn tell_kernels() {
    if let Ok(gpu) = apron::gpu::Gpu::open(0) {
        let launches: Vec<_> =
            gpu.launches().iter().map(|(entry, launches)| format!("{entry} {launches}")).collect();
        println!("{KERNELS} {}", launches.join(", "));
    }
}

fn kernels(text: &str) -> BTreeMap<String, u64> {
    let list = text.lines().find_map(|line| line.strip_prefix(KERNELS)).unwrap_or_default();
    let kernel = |part: &str| {
        part.trim()
            .split_once(' ')
            .and_then(|(entry, count)| Some((entry.to_owned(), count.parse().ok()?)))
    };
    list.split(',').filter_map(kernel).collect()
}

/// Tests of this command, with the emulator as the GPU and a stand-in for compute-sanitizer.
pub(crate) fn trials() -> Vec<Trial> {
    let present = cfg!(all(unix, feature = "gpu")) && conformance::built::no_emulator().is_none();
    // The command lists only tests for a GPU, and these names do not say `gpu`.
    let trial_of = |name: &str,
                    filter: &'static [&'static str],
                    script: &'static str,
                    right: fn(&str, bool) -> bool| {
        Trial::test(format!("sanitize::{name}"), move || stand_in(filter, script, right))
            .with_ignored_flag(!present)
    };
    let trial = |name: &str, script: &'static str, right: fn(&str, bool) -> bool| {
        trial_of(name, &["--filter", "direct::ties::gpu-memory"], script, right)
    };
    vec![
        trial_of("launches_every_entry", &[], "shift 4; exec \"$@\"", |text, passed| {
            let tests = entries::COUNT + 1;
            let verdict = format!("SANITIZE racecheck: clean; {tests} tests, 0 of them failed;");
            passed && text.contains(&verdict)
        }),
        trial("counts_kernels", "shift 4; exec \"$@\"", |text, passed| {
            passed
                && text.contains("SANITIZE racecheck: clean; 1 tests, 0 of them failed;")
                && !text.contains("; 0 kernels")
        }),
        trial("fails_on_findings", "shift 4; \"$@\"; exit 9", |text, passed| {
            !passed && text.contains("findings") && text.contains("SANITIZE racecheck: FAILED")
        }),
        trial("fails_if_nothing_ran", "shift 4; \"$@\" | grep -v kernels", |text, passed| {
            !passed
                && text.contains("SANITIZE racecheck: FAILED; 1 tests, 0 of them failed; 0 kernels")
        }),
        trial("fails_if_the_test_fails", "shift 4; \"$@\" --exact nothing", |text, passed| {
            !passed && text.contains("the test did not pass")
        }),
        Trial::test("sanitize::is_skipped_without_a_gpu", || {
            let output = Command::new(program()?)
                .args([COMMAND, "--tool", "racecheck"])
                .envs([
                    ("COMPUTE_SANITIZER", "true"),
                    ("APRON_DRIVER", "/none"),
                    ("APRON_REQUIRE_GPU", "0"),
                ])
                .output()?;
            let text = String::from_utf8_lossy(&output.stdout);
            let skipped = output.status.success() && text.contains("SANITIZE: SKIP");
            if skipped { Ok(()) } else { Err(text.into_owned().into()) }
        }),
    ]
}

/// Runs the command with a script in place of compute-sanitizer. The script gets the sanitizer's
/// four arguments, then the program's.
fn stand_in(filter: &[&str], script: &str, right: fn(&str, bool) -> bool) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("stand-in");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
    #[cfg(unix)]
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let output = Command::new(program()?)
        .args([COMMAND, "--tool", "racecheck"])
        .args(filter)
        .env("COMPUTE_SANITIZER", &path)
        .env("APRON_DRIVER", conformance::built::emulator()?)
        .env("APRON_CONFORMANCE", "small")
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    if right(&text, output.status.success()) {
        Ok(())
    } else {
        Err(format!("{}: {text}", output.status).into())
    }
}
