//! The GPU's tests on the emulator. This program runs again as a process of its own, with a driver
//! in software.
//!
//! `emulated::suite` must find no error and launch every kernel, `emulated::chooses` those that a
//! plan chooses on each model of GPU that has a name. `emulated::small` runs all tests on the
//! smallest models, if asked to. `emulated::catches` must find an injected fault, and name it and
//! its place. `emulated::survives` makes the driver fail in the middle of a job.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use apron::GpuModel;
use conformance::built;
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    #[cfg(feature = "gpu")]
    if let Some(scenario) = std::env::var_os("APRON_SCENARIO") {
        return survival::scenarios(&scenario.to_string_lossy());
    }
    let present = cfg!(feature = "gpu") && built::no_emulator().is_none();
    let mut trials = vec![Trial::test("emulated::suite", suite)];
    let catches = CONTROLS.iter().map(|control| {
        let name = control.sabotage.replace([':', '-', '=', ','], "_");
        let stepping = if control.grid_rows.is_some() { "_stepping" } else { "" };
        let mut parts = control.test.split("::");
        let mut family = parts.next().unwrap_or_default().to_owned();
        if family == "stored" {
            // The tests of this family launch kernels that have little in common.
            family = format!("{family}_{}", parts.next().unwrap_or_default());
        }
        Trial::test(format!("emulated::catches::{name}{stepping}::{family}"), || caught(control))
    });
    trials.extend(catches);
    let chooses = GpuModel::ALL
        .map(|gpu| Trial::test(format!("emulated::chooses::{gpu}"), move || chooses(&gpu)));
    trials.extend(chooses);
    #[cfg(feature = "gpu")]
    trials.extend(survival::trials());
    let mut trials: Vec<_> =
        trials.into_iter().map(|trial| trial.with_ignored_flag(!present)).collect();
    let is_small = |gpu: &GpuModel| SMALL.contains(&gpu.name);
    trials.extend(GpuModel::ALL.into_iter().filter(is_small).map(|gpu| {
        let name = format!("emulated::small::{gpu}");
        Trial::test(name, move || whole(&gpu)).with_ignored_flag(true)
    }));
    trials
}

/// GPUs with little memory of each kind, for tests that take minutes each.
pub(crate) const SMALL: [&str; 4] = ["t4", "rtx-3060", "rtx-4060", "orin"];

/// This program on the emulator.
fn emulated(settings: &str) -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    command.env("APRON_DRIVER", built::emulator()?).env("APRON_EMULATOR", settings);
    command.env("APRON_REQUIRE_GPU", "1").env("APRON_CONFORMANCE", "emulated");
    // Sabotaged runs fail on purpose: no reports.
    command.env("APRON_REPORTS", "");
    Ok(command)
}

/// All output of a program.
fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The most useful lines of a failed run: the emulator's, and those from the first failure on.
fn essence(output: &Output) -> String {
    let text = text(output);
    let of_emulator = text.lines().filter(|line| line.starts_with("emulator:"));
    let failures = text.lines().skip_while(|line| *line != "failures:").skip(1);
    let lines: Vec<_> = of_emulator.chain(failures).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { text } else { lines[..lines.len().min(12)].join("\n") }
}

/// The tests of the GPU that run in processes of their own; the remaining tests share one.
const PARTS: [&str; 5] = ["generated::", "direct::", "separable::", "stored::", "fourier::"];

/// Runs every test of the GPU on a device with asynchronous copies and room for the largest tiles,
/// where grids end after five rows of blocks. Then runs fewer tests on a device without either,
/// which copies no rows 100 bytes apart and whose grids have one row. Together they launch every
/// kernel that a variant may launch. The tests of bands run on two devices with little memory, and
/// on one that shares the host's.
fn suite() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (old, narrow) = (folder.path().join("old"), folder.path().join("narrow"));
    let started = std::time::Instant::now();
    // The device runs the work of other streams first.
    let flow = |launches: &Path, settings: &str, tests: &[&str]| {
        run(launches, &format!("{settings},order=others-first,"), |command| {
            command.args(tests).env("APRON_CONFORMANCE", "small").env("APRON_GRID_ROWS", "2")
        })
    };
    // So little memory that pictures go in bands.
    let in_bands = || flow(&narrow, "devices=2,memory=4MiB", &["flow::"]);
    let in_place = || {
        let tests = ["flow::", "--skip", "flow::tiles", "--skip", "flow::feeders"];
        flow(&folder.path().join("integrated"), "integrated=1,memory=64MiB", &tests)
    };
    let part = |number: usize| {
        let others = || PARTS.iter().chain(&["flow::"]).flat_map(|name| ["--skip", name]);
        let words: Vec<&str> = match PARTS.get(number) {
            Some(name) => vec![name, "--skip", "cpu"],
            None => ["::gpu"].into_iter().chain(others()).collect(),
        };
        run(&folder.path().join(number.to_string()), "devices=2,", |command| {
            command.args(words).args(["--skip", "emulated"]).env("APRON_GRID_ROWS", "5")
        })
    };
    // In processes of their own, because a device of the emulator runs one kernel at a time.
    std::thread::scope(|scope| {
        let part = &part;
        let parts = (0..=PARTS.len()).map(|number| scope.spawn(move || part(number)));
        let bands = [scope.spawn(in_bands), scope.spawn(in_place)];
        let runs: Vec<_> = bands.into_iter().chain(parts).collect();
        runs.into_iter()
            .try_for_each(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let mut launched = String::new();
    for number in 0..=PARTS.len() {
        launched += &std::fs::read_to_string(folder.path().join(number.to_string()))?;
    }
    for test in ["awkward::gpu-memory", "entries::fourier::gpu"] {
        run(&old, "arch=75,multiprocessors=1,pitch=100,", |command| {
            command.args([test]).env("APRON_CONFORMANCE", "small").env("APRON_GRID_ROWS", "1")
        })?;
        launched += &std::fs::read_to_string(&old)?;
    }
    let launched: BTreeSet<&str> = launched.lines().collect();
    let of_studies = studies::Study::all().flat_map(studies::Study::entries);
    let own = apron::Variant::all().flat_map(apron::Variant::entries);
    #[cfg(feature = "gpu")]
    let own = own.chain(crate::table::SHARED);
    let all = own.chain(of_studies);
    let missing: BTreeSet<_> = all.filter(|entry| !launched.contains(entry)).collect();
    println!("emulated: {} kernels in {:.1} s", launched.len(), started.elapsed().as_secs_f64());
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("never launched in the emulator: {missing:?}").into())
    }
}

/// The tests of `what` pass on this model of GPU.
fn on_model(gpu: &GpuModel, what: &[&str], selection: &str) -> Result<(), Failed> {
    let GpuModel { capability: (major, minor), multiprocessors, shared_memory, .. } = gpu;
    // A Jetson's GPU.
    let integrated = u32::from((*major, *minor) == (8, 7));
    let settings = format!(
        "arch={major}{minor},multiprocessors={multiprocessors},shared={shared_memory},\
         clock={:.0},bandwidth={:.0},cache={},memory=4GiB,integrated={integrated},",
        gpu.clock / 1e6,
        gpu.bandwidth / 1e9,
        gpu.l2_cache,
    );
    let folder = tempfile::tempdir()?;
    Ok(run(&folder.path().join("launches"), &settings, |command| {
        command.args(what).env("APRON_CONFORMANCE", selection)
    })?)
}

/// What a plan chooses on this model of GPU is launched there, and right.
fn chooses(gpu: &GpuModel) -> Result<(), Failed> {
    on_model(gpu, &["plan::choice::gpu"], "small")
}

/// All of the emulator's selection on this model of GPU.
fn whole(gpu: &GpuModel) -> Result<(), Failed> {
    on_model(gpu, &["::gpu", "--skip", "emulated", "--skip", "devices::"], "emulated")
}

/// A run that must find no error. It writes the kernels that it launches to a file.
fn run(
    launches: &Path,
    settings: &str,
    arguments: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<(), String> {
    let mut command = emulated(&format!("{settings}launches={}", launches.display()))?;
    let output = arguments(&mut command).output().map_err(|error| error.to_string())?;
    let text = text(&output);
    let ran = text.contains("test result: ok.") && !text.contains(" 0 passed");
    if output.status.success() && ran { Ok(()) } else { Err(essence(&output)) }
}

/// A sabotaged device, and the expected failure.
struct Control {
    sabotage: &'static str,
    /// The limit on a grid's rows of blocks, if any.
    grid_rows: Option<&'static str>,
    /// The test to run.
    test: &'static str,
    /// The kernel or variant that the failure must name, and the words that it must contain.
    who: &'static str,
    what: &'static str,
}

#[rustfmt::skip]
const CONTROLS: &[Control] = &[
    Control { sabotage: "missing-barrier:1", grid_rows: None, test: "direct::exhaustive::gpu", who: "kernel direct_shared", what: "of shared memory, which nothing wrote" },
    Control { sabotage: "missing-barrier:2", grid_rows: Some("1"), test: "direct::awkward::gpu", who: "kernel direct_", what: "of shared memory in a race" },
    Control { sabotage: "missing-barrier:2", grid_rows: None, test: "direct::exhaustive::gpu", who: "kernel sliding_", what: "of shared memory, which nothing wrote" },
    Control { sabotage: "missing-barrier:1", grid_rows: None, test: "separable::exhaustive::gpu", who: "kernel separable_rows", what: "of shared memory, which nothing wrote" },
    Control { sabotage: "missing-barrier:2", grid_rows: Some("1"), test: "separable::awkward::gpu", who: "kernel separable_rows", what: "of shared memory in a race" },
    Control { sabotage: "missing-barrier:2", grid_rows: None, test: "separable::exhaustive::gpu", who: "kernel fused_", what: "of shared memory, which nothing wrote" },
    Control { sabotage: "missing-barrier:2", grid_rows: None, test: "fourier::exhaustive::gpu", who: "kernel fourier_128", what: "of shared memory in a race" },
    Control { sabotage: "halo-row", grid_rows: None, test: "entries::direct::gpu", who: "kernel direct_shared", what: "of shared memory, which nothing wrote" },
    Control { sabotage: "halo-row,kernels=separable_rows", grid_rows: None, test: "separable::exhaustive::gpu", who: "kernel separable_rows", what: "of shared memory, which nothing wrote" },
    Control { sabotage: "halo-row,kernels=separable_columns", grid_rows: None, test: "separable::exhaustive::gpu", who: "kernel separable_columns", what: "of shared memory, which nothing wrote" },
    Control { sabotage: "one-pixel", grid_rows: None, test: "direct::exhaustive::gpu", who: "direct-naive on gpu:0", what: "values are wrong" },
    Control { sabotage: "one-pixel", grid_rows: None, test: "separable::exhaustive::gpu", who: "separable on gpu:0", what: "values are wrong" },
    Control { sabotage: "grid-axes", grid_rows: None, test: "direct::awkward::gpu-memory", who: "direct-naive in device memory", what: "never written" },
    Control { sabotage: "grid-axes", grid_rows: None, test: "separable::awkward::gpu-memory", who: "kernel separable_columns", what: "memory that nothing wrote" },
    Control { sabotage: "grid-axes", grid_rows: None, test: "fourier::awkward::gpu-memory", who: "fourier in device memory", what: "found NaN" },
    Control { sabotage: "border", grid_rows: None, test: "direct::exhaustive::gpu", who: "direct-naive on gpu:0", what: "border reflect" },
    Control { sabotage: "border", grid_rows: None, test: "separable::exhaustive::gpu", who: "separable on gpu:0", what: "border reflect" },
    Control { sabotage: "border", grid_rows: None, test: "fourier::exhaustive::gpu", who: "fourier on gpu:0", what: "border reflect" },
    Control { sabotage: "no-end,limit=3", grid_rows: None, test: "direct::exhaustive::gpu", who: "kernel direct_", what: "does not end" },
    Control { sabotage: "one-pixel", grid_rows: None, test: "generated::problems::gpu", who: "on gpu:0", what: "values are wrong" },
    Control { sabotage: "border", grid_rows: None, test: "generated::padded::gpu", who: "on gpu:0", what: "padded beforehand" },
    Control { sabotage: "one-pixel", grid_rows: None, test: "regions::rectangles::gpu", who: "on gpu:0", what: "values are wrong" },
    Control { sabotage: "border", grid_rows: None, test: "regions::bands::gpu", who: "on gpu:0", what: "border reflect" },
    Control { sabotage: "grid-axes", grid_rows: None, test: "regions::layouts::gpu", who: "on gpu:0", what: "never written" },
    Control { sabotage: "missing-barrier:1,kernels=sliding_8bit", grid_rows: None, test: "stored::strips::gpu", who: "kernel sliding_8bit_", what: "of shared memory in a race" },
    Control { sabotage: "missing-barrier:2,kernels=sliding_8bit", grid_rows: None, test: "stored::strips::gpu", who: "kernel sliding_8bit_", what: "of shared memory in a race" },
    Control { sabotage: "halo-row,kernels=sliding_8bit", grid_rows: None, test: "stored::strips::gpu", who: "kernel sliding_8bit_", what: "of shared memory, which nothing wrote" },
    Control { sabotage: "missing-barrier:1", grid_rows: None, test: "stored::uncertain::gpu", who: "kernel resolve", what: "of shared memory in a race" },
    Control { sabotage: "missing-barrier:1,kernels=passes_rows", grid_rows: None, test: "stored::wide::gpu", who: "kernel passes_rows", what: "of shared memory, which nothing wrote" },
    Control { sabotage: "halo-row,kernels=passes_rows", grid_rows: None, test: "stored::wide::gpu", who: "kernel passes_rows", what: "of shared memory, which nothing wrote" },
    Control { sabotage: "no-end,limit=3,kernels=passes_rows", grid_rows: None, test: "stored::wide::gpu", who: "kernel passes_rows", what: "does not end" },
    Control { sabotage: "grid-axes,kernels=passes_columns", grid_rows: None, test: "stored::wide::gpu", who: "on gpu:0", what: "values are wrong" },
    Control { sabotage: "one-pixel", grid_rows: None, test: "stored::strips::gpu", who: "direct-sliding on gpu:0", what: "values are wrong" },
    Control { sabotage: "one-pixel", grid_rows: None, test: "stored::ties::gpu", who: "on gpu:0", what: "values are wrong" },
    Control { sabotage: "border", grid_rows: None, test: "stored::bands::gpu", who: "on gpu:0", what: "border reflect" },
    Control { sabotage: "grid-axes", grid_rows: None, test: "stored::layouts::gpu", who: "on gpu:0", what: "never written" },
    Control { sabotage: "missing-barrier:1", grid_rows: None, test: "stored::matrix::gpu", who: "kernel matrix_", what: "of shared memory in a race" },
    Control { sabotage: "missing-barrier:2,kernels=matrix", grid_rows: None, test: "stored::matrix::gpu", who: "kernel matrix_", what: "of shared memory in a race" },
    Control { sabotage: "missing-barrier:2,kernels=resolve_table", grid_rows: None, test: "stored::padded::gpu", who: "kernel resolve_table", what: "of shared memory, which nothing wrote" },
    Control { sabotage: "one-pixel", grid_rows: None, test: "stored::matrix::gpu", who: "matrix on gpu:0", what: "values are wrong" },
    Control { sabotage: "border", grid_rows: None, test: "stored::matrix::gpu", who: "matrix on gpu:0", what: "border reflect" },
    Control { sabotage: "missing-barrier:1", grid_rows: None, test: "stored::separable_matrix::gpu", who: "kernel separable_matrix_", what: "of shared memory in a race" },
    Control { sabotage: "missing-barrier:2", grid_rows: None, test: "stored::separable_matrix::gpu", who: "kernel separable_matrix_", what: "of shared memory in a race" },
    Control { sabotage: "one-pixel", grid_rows: None, test: "stored::separable_matrix::gpu", who: "separable-matrix on gpu:0", what: "values are wrong" },
    Control { sabotage: "border", grid_rows: None, test: "stored::separable_matrix::gpu", who: "separable-matrix on gpu:0", what: "border reflect" },
    Control { sabotage: "missing-barrier:1,kernels=running_sums_far", grid_rows: None, test: "stored::running_sums::gpu", who: "kernel running_sums_far", what: "of shared memory in a race" },
    Control { sabotage: "missing-barrier:4,kernels=running_sums_far", grid_rows: None, test: "stored::running_sums::gpu", who: "kernel running_sums_far", what: "of shared memory in a race" },
    Control { sabotage: "missing-barrier:3,kernels=running_sums_near", grid_rows: None, test: "stored::running_sums::gpu", who: "kernel running_sums_near", what: "of shared memory in a race" },
    Control { sabotage: "missing-barrier:5,kernels=running_sums_near", grid_rows: None, test: "stored::running_sums::gpu", who: "kernel running_sums_near", what: "of shared memory in a race" },
    Control { sabotage: "one-pixel", grid_rows: None, test: "stored::running_sums::gpu", who: "running-sums on gpu:0", what: "values are wrong" },
    Control { sabotage: "border", grid_rows: None, test: "stored::running_sums::gpu", who: "running-sums on gpu:0", what: "border reflect" },
    Control { sabotage: "one-pixel", grid_rows: None, test: "stored::padded::gpu", who: "fourier on gpu:0", what: "values are wrong" },
    Control { sabotage: "one-pixel", grid_rows: None, test: "steps::gradient::gpu", who: "on gpu:0", what: "values are wrong" },
    Control { sabotage: "border", grid_rows: None, test: "steps::gradient::gpu", who: "on gpu:0", what: "border reflect" },
    Control { sabotage: "missing-barrier:2", grid_rows: None, test: "steps::gradient::gpu", who: "kernel gradient", what: "of shared memory in a race" },
    Control { sabotage: "one-pixel", grid_rows: None, test: "steps::weighted::gpu", who: "on gpu:0", what: "values are wrong" },
    Control { sabotage: "border", grid_rows: None, test: "steps::weighted::gpu", who: "on gpu:0", what: "border reflect" },
    Control { sabotage: "missing-wait:3", grid_rows: None, test: "flow::tiles::gpu", who: "bands of 1 rows, turn 0", what: "values are wrong" },
    Control { sabotage: "missing-wait:8", grid_rows: None, test: "flow::tiles::gpu", who: "bands of 1 rows, turn 1", what: "values are wrong" },
    Control { sabotage: "missing-wait:11", grid_rows: None, test: "flow::tiles::gpu", who: "pinned, bands of 1 rows", what: "values are wrong" },
    Control { sabotage: "missing-wait:60,integrated=1", grid_rows: None, test: "flow::splits::gpu", who: "in place, turn", what: "values are wrong" },
    Control { sabotage: "missing-wait:8", grid_rows: None, test: "flow::batch::gpu", who: "whole, turn 0, picture", what: "values are wrong" },
    Control { sabotage: "one-pixel", grid_rows: None, test: "flow::splits::gpu", who: "bands of", what: "values are wrong" },
];

/// A run on a sabotaged device fails, and names the fault.
fn caught(&Control { sabotage, grid_rows, test, who, what }: &Control) -> Result<(), Failed> {
    let mut command = emulated(&format!("sabotage={sabotage}"))?;
    if let Some(rows) = grid_rows {
        command.env("APRON_GRID_ROWS", rows);
    }
    let output = command.args(["--exact", test]).env("APRON_CONFORMANCE", "small").output()?;
    if output.status.success() {
        return Err(format!("{sabotage} went through {test} without being caught").into());
    }
    if text(&output).lines().any(|line| line.contains(who) && line.contains(what)) {
        Ok(())
    } else {
        Err(format!("no line has \"{who}\" and \"{what}\":\n{}", essence(&output)).into())
    }
}

/// A driver that fails in the middle of a job: the job's error, the memory that it leaves
/// allocated, and whether the next job works.
#[cfg(feature = "gpu")]
mod survival {
    use apron::gpu::Gpu;
    use apron::{Border, Device, Error, Filter, FlowOptions, Image, Plan, Result, Variant};
    use libtest_mimic::{Failed, Trial};

    use super::{emulated, essence, text};
    use crate::auto::{self, scenarios as choice};

    /// A job on a faulty device.
    struct Scenario {
        name: &'static str,
        settings: &'static str,
        run: fn() -> Result<(), Failed>,
    }

    const SCENARIOS: &[Scenario] = &[
        Scenario { name: "memory_exhausted", settings: "memory=64KiB", run: too_large },
        Scenario {
            name: "larger_than_memory",
            settings: "memory=256KiB",
            run: || goes_on(|| job(1000, 900)),
        },
        // Source, intermediate image, destination. The taps are parameters of the launch, and
        // allocate nothing.
        Scenario {
            name: "allocation_1_fails",
            settings: "fail=cuMemAlloc_v2:1:2",
            run: || goes_on(small),
        },
        Scenario {
            name: "allocation_2_fails",
            settings: "fail=cuMemAlloc_v2:2:2",
            run: || goes_on(small),
        },
        Scenario {
            name: "allocation_3_fails",
            settings: "fail=cuMemAlloc_v2:3:2",
            run: || goes_on(small),
        },
        // In the third lane, while two bands are in flight.
        Scenario {
            name: "exhausted_in_mid_run",
            settings: "memory=256KiB,fail=cuMemAlloc_v2:8:2",
            run: || goes_on(|| job(300, 400)),
        },
        // Some pictures are finished, others in flight.
        Scenario {
            name: "lost_in_mid_batch",
            settings: "fail=cuStreamSynchronize:6:719",
            run: || half_a_batch(Device::Gpu(0), FlowOptions::default(), 1),
        },
        // Two feeders for each of two GPUs. One GPU is lost; the other finishes its part.
        Scenario {
            name: "lost_beside_another",
            settings: "devices=2,order=others-first,fail=cuStreamSynchronize:6:719",
            run: || {
                half_a_batch(
                    Device::AllGpus,
                    FlowOptions { feeders: Some(2), ..FlowOptions::default() },
                    0,
                )
            },
        },
        Scenario {
            name: "exhausted_beside_another",
            settings: "devices=2,fail=cuMemAlloc_v2:9:2",
            run: || whole_batch(FlowOptions { feeders: Some(2), ..FlowOptions::default() }),
        },
        Scenario {
            name: "pinned_allocation_fails",
            settings: "fail=cuMemAllocHost_v2:2:2",
            run: no_host_memory,
        },
        Scenario {
            name: "launch_refused",
            settings: "fail=cuLaunchKernelEx:1:701",
            run: || once("too many resources requested for launch"),
        },
        Scenario {
            name: "second_launch_refused",
            settings: "fail=cuLaunchKernelEx:2:701",
            run: || once("too many resources requested for launch"),
        },
        Scenario {
            name: "stream_refused",
            settings: "fail=cuStreamCreateWithPriority:1:304",
            run: || once("error 304"),
        },
        Scenario {
            name: "launch_fails",
            settings: "fail=cuStreamSynchronize:1:719",
            run: || for_good("unspecified launch failure"),
        },
        Scenario {
            name: "illegal_address",
            settings: "fail=cuStreamSynchronize:1:700",
            run: || for_good("an illegal memory access was encountered"),
        },
        Scenario {
            name: "device_lost",
            settings: "fail=cuMemcpy2DAsync_v2:2:214",
            run: || for_good("uncorrectable ECC error encountered"),
        },
        // A copy would fail.
        Scenario {
            name: "integrated",
            settings: "integrated=1,memory=256KiB,fail=cuMemcpy2DAsync_v2:1:999",
            run: || Ok(job(1000, 900)?),
        },
        Scenario { name: "dropped_elsewhere", settings: "", run: dropped_elsewhere },
        Scenario { name: "auto_opens_at_once", settings: "", run: choice::opens_at_once },
        Scenario {
            name: "auto_opens_in_background",
            settings: "opening=500",
            run: choice::opens_in_background,
        },
        Scenario { name: "auto_by_many", settings: "opening=50", run: auto::callers },
        Scenario {
            name: "auto_ends_while_it_opens",
            settings: "opening=1500",
            run: choice::ends_while_it_opens,
        },
        Scenario {
            name: "auto_cannot_open",
            settings: "fail=cuDevicePrimaryCtxRetain:1:46",
            run: || choice::cannot_be_opened("opening the GPU"),
        },
        Scenario {
            name: "auto_cannot_open_at_once",
            settings: "fail=cuDevicePrimaryCtxRetain:1:46",
            run: || choice::cannot_be_opened_at_once("opening the GPU"),
        },
        Scenario { name: "auto_lost", settings: "fail=cuLaunchKernelEx:1:719", run: choice::lost },
        Scenario {
            name: "auto_refused_once",
            settings: "fail=cuLaunchKernelEx:1:701",
            run: choice::refused_once,
        },
        Scenario { name: "auto_too_large", settings: "memory=192KiB", run: choice::too_large },
        Scenario { name: "no_device", settings: "devices=0", run: || absent("finds no device") },
        Scenario {
            name: "driver_too_old",
            settings: "driver=9.2",
            run: || absent("need one for 10.2 or newer"),
        },
        Scenario { name: "old_driver", settings: "driver=11.2", run: || Ok(small()?) },
        Scenario {
            name: "device_too_old",
            settings: "arch=61",
            run: || absent("compute capability 6.1"),
        },
    ];

    /// Each scenario, as a process of its own.
    pub(super) fn trials() -> impl Iterator<Item = Trial> {
        SCENARIOS.iter().map(|&Scenario { name, settings, .. }| {
            Trial::test(format!("emulated::survives::{name}"), move || {
                let output = emulated(settings)?
                    .env("APRON_SCENARIO", name)
                    .args(["--exact", name])
                    .output()?;
                let passed = output.status.success() && text(&output).contains("ok. 1 passed");
                if passed { Ok(()) } else { Err(essence(&output).into()) }
            })
        })
    }

    /// The tests that a scenario's process runs.
    pub(super) fn scenarios(name: &str) -> Vec<Trial> {
        let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name);
        scenario.map(|scenario| Trial::test(scenario.name, scenario.run)).into_iter().collect()
    }

    /// Filters an image on the device, and checks the result.
    fn job(width: usize, height: usize) -> Result<()> {
        let filter: Filter = Filter::separable(&[0.25, 0.5, 0.3], &[0.125, -1.0, 0.5])?;
        let data = (0..width * height).map(|i| (i * 7919 % 1021) as f32).collect();
        let src = Image::from_vec(data, width, height, 1)?;
        let on = |device| -> Result<Image<f32>> {
            let plan = Plan::builder(&filter)
                .border(Border::Wrap)
                .device(device)
                .variant(Variant::Separable)
                .build()?;
            let mut dst = Image::<f32>::zeroed(width, height, 1)?;
            plan.run(&src.view(), &mut dst.view_mut())?;
            Ok(dst)
        };
        let found = on(Device::Gpu(0))?;
        assert!(found.as_slice() == on(Device::Cpu)?.as_slice(), "a wrong result");
        Ok(())
    }

    const SMALL: (usize, usize) = (70, 50);

    fn small() -> Result<()> {
        job(SMALL.0, SMALL.1)
    }

    /// The first job fails with such an error, the memory in use stays the same, and the next job
    /// works.
    fn recovers(failing: fn() -> Result<()>, right: impl Fn(&Error) -> bool) -> Result<(), Failed> {
        let gpu = Gpu::open(0)?;
        let free = gpu.memory()?.0;
        match failing() {
            Err(error) if right(&error) => println!("said: {error}"),
            other => return Err(format!("the failing job: {other:?}").into()),
        }
        let left = gpu.memory()?.0;
        if left != free {
            return Err(format!("{} bytes are still in use", free.abs_diff(left)).into());
        }
        small()?;
        let left = gpu.memory()?.0;
        if left == free {
            Ok(())
        } else {
            Err(format!("{} bytes leaked", free.abs_diff(left)).into())
        }
    }

    /// A single row of the image is too large.
    fn too_large() -> Result<(), Failed> {
        let right = |error: &Error| match *error {
            Error::DeviceMemory { needed, free, total } => needed > free && total == 64 << 10,
            _ => false,
        };
        recovers(|| job(40_000, 5), right)
    }

    /// Memory is exhausted, but the job succeeds in smaller bands.
    fn goes_on(working: fn() -> Result<()>) -> Result<(), Failed> {
        let gpu = Gpu::open(0)?;
        let free = gpu.memory()?.0;
        working()?;
        small()?;
        let left = gpu.memory()?.0;
        if left == free {
            Ok(())
        } else {
            Err(format!("{} bytes leaked", free.abs_diff(left)).into())
        }
    }

    /// Filters six pictures with a plan for these devices. Returns the outcome, and the number of
    /// leading pictures that are right.
    fn six(device: Device, flow: FlowOptions) -> Result<(Result<()>, usize)> {
        let picture = |number: usize| {
            Image::from_vec((0..3500).map(|i| ((i * 31 + number) % 251) as u8).collect(), 70, 50, 1)
        };
        let sources = (0..6).map(picture).collect::<Result<Vec<_>>>()?;
        let zeroed = || Image::<u8>::zeroed(70, 50, 1);
        let filter: Filter = "gaussian:sigma=1".parse()?;
        let mut targets = (0..6).map(|_| zeroed()).collect::<Result<Vec<_>>>()?;
        let plan = Plan::builder(&filter)
            .device(device)
            .variant(Variant::DirectNaive)
            .flow(flow)
            .build()?;
        let mut views: Vec<_> = sources
            .iter()
            .zip(&mut targets)
            .map(|(src, dst)| (src.view(), dst.view_mut()))
            .collect();
        let outcome = plan.run_batch(&mut views);
        drop(views);
        let cpu = Plan::builder(&filter).device(Device::Cpu).build()?;
        let mut right = 0;
        for (src, found) in sources.iter().zip(&targets) {
            let mut expected = zeroed()?;
            cpu.run(&src.view(), &mut expected.view_mut())?;
            if *found != expected {
                break;
            }
            right += 1;
        }
        Ok((outcome, right))
    }

    /// The device is lost in the middle of a batch, after at least `least` pictures. The error
    /// names the first unfinished picture, and all before it are right.
    fn half_a_batch(device: Device, flow: FlowOptions, least: usize) -> Result<(), Failed> {
        let (outcome, right) = six(device, flow)?;
        match outcome {
            Err(Error::InBatch { picture, error })
                if says(&error, "unspecified launch failure") =>
            {
                let middle = (least..6).contains(&picture);
                let told = format!("picture {picture} of six failed, {right} are right");
                if middle && right >= picture { Ok(()) } else { Err(told.into()) }
            }
            other => Err(format!("{other:?}").into()),
        }
    }

    /// A GPU's memory is exhausted in the middle of a batch that it shares with another GPU. The
    /// batch succeeds.
    fn whole_batch(flow: FlowOptions) -> Result<(), Failed> {
        let (outcome, right) = six(Device::AllGpus, flow)?;
        outcome?;
        if right == 6 { Ok(()) } else { Err(format!("{right} of six pictures are right").into()) }
    }

    /// All objects of a job are dropped in a thread that never used the GPU.
    fn dropped_elsewhere() -> Result<(), Failed> {
        let gpu = Gpu::open(0)?;
        let things = || -> Result<_> {
            let src = Image::from_vec(vec![0.5f32; 70 * 50], 70, 50, 1)?;
            let mut plans = Vec::new();
            for (filter, variant) in [
                ("gaussian:sigma=2", Some(Variant::Separable)),
                ("motion:length=41,angle=70", Some(Variant::Fourier)),
                ("laplacian", None),
            ] {
                let filter: Filter = filter.parse()?;
                let builder =
                    Plan::builder(&filter).border(Border::Constant(0.0)).device(Device::Gpu(0));
                let plan = builder.variant(variant).build()?;
                plan.run(&src.view(), &mut Image::<f32>::zeroed(70, 50, 1)?.view_mut())?;
                plans.push(plan);
            }
            let recorded = plans[0].record(gpu.upload(&src.view())?, gpu.image(src.shape())?)?;
            let mut stream = gpu.stream()?;
            let texture = studies::Study::PaperTexture;
            let mut texture =
                texture.plan(&"gaussian:sigma=2".parse()?, Border::Constant(0.0), &gpu, None)?;
            texture.run_on_device(
                &gpu.upload(&src.view())?,
                &mut gpu.image(src.shape())?,
                &mut stream,
            )?;
            let mark = stream.mark()?;
            Ok((plans, recorded, texture, mark, stream))
        };
        let free = gpu.memory()?.0;
        let things = things()?;
        let used = free - gpu.memory()?.0;
        std::thread::spawn(move || drop(things)).join().map_err(|_| "dropping panics")?;
        match free - gpu.memory()?.0 {
            0 if used > 0 => Ok(()),
            left => Err(format!("of {used} bytes {left} are still in use").into()),
        }
    }

    fn no_host_memory() -> Result<(), Failed> {
        recovers(
            small,
            |error| matches!(error, Error::HostMemory { bytes } if *bytes == 4 * SMALL.0 * SMALL.1),
        )
    }

    fn says(error: &Error, words: &str) -> bool {
        matches!(error, Error::Driver { message, .. } if message.contains(words))
    }

    fn once(words: &str) -> Result<(), Failed> {
        recovers(small, |error| says(error, words))
    }

    /// The context is dead: every later job fails with this error, and none runs on another device.
    fn for_good(words: &str) -> Result<(), Failed> {
        once_and_again(words)?;
        match Gpu::open(0)?.memory() {
            Err(error) if says(&error, words) => Ok(()),
            other => Err(format!("a dead context tells of its memory: {other:?}").into()),
        }
    }

    fn once_and_again(words: &str) -> Result<(), Failed> {
        for turn in 1..=3 {
            match small() {
                Err(error) if says(&error, words) => println!("said: {error}"),
                other => return Err(format!("job {turn}: {other:?}").into()),
            }
        }
        Ok(())
    }

    /// No GPU is usable. A plan for a GPU fails with the reason; a plan that may choose runs on the
    /// CPU.
    fn absent(words: &str) -> Result<(), Failed> {
        match small() {
            Err(Error::NoGpu { reason }) if reason.contains(words) => println!("said: {reason}"),
            other => return Err(format!("{other:?}").into()),
        }
        choice::cannot_be_opened(words)?;
        choice::cannot_be_opened_at_once(words)
    }
}
