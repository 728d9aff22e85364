//! Faults of the machine in the middle of a job: no incomplete file appears under an output's name,
//! and an old file there is unchanged.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use crate::tool::{Bench, PICTURES, apron};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<(), Failed>| {
        Trial::test(format!("faults::{name}"), test).with_ignored_flag(!cfg!(target_os = "linux"))
    };
    vec![
        trial("killed_in_mid_write", || stopped("KILL")),
        trial("interrupted_in_mid_write", || stopped("INT")),
        trial("ended_in_mid_write", || stopped("TERM")),
        trial("disk_full", disk_full),
        trial("stdout_full", stdout_full),
        trial("output_is_a_device", output_is_a_device),
        trial("host_memory_exhausted", memory_exhausted),
        trial("one_bad_file_of_many", one_of_many),
    ]
}

const OLD: &[u8] = b"something that somebody needs";

/// A shell command, with the tool as `$0`.
fn shell(bench: &Bench, line: &str) -> Result<Command, Failed> {
    let mut command = Command::new("sh");
    command.args(["-c", line]).arg(apron()?).current_dir(bench.path());
    // The same number of threads and arenas everywhere, because the test limits address space.
    command.envs([("RAYON_NUM_THREADS", "2"), ("MALLOC_ARENA_MAX", "2")]);
    Ok(command)
}

/// The tool printed one line with these words, and its exit code was 1.
fn refused(output: &Output, words: &[&str]) -> Result<(), Failed> {
    let line = String::from_utf8_lossy(&output.stderr);
    let right =
        output.status.code() == Some(1) && line.lines().count() == 1 && line.starts_with("apron: ");
    if right && words.iter().all(|word| line.contains(word)) && !line.contains("panicked") {
        Ok(())
    } else {
        Err(format!("{}: {line}", output.status).into())
    }
}

/// The folder holds exactly these files.
fn files_are(bench: &Bench, names: &[&str]) -> Result<(), Failed> {
    let found: Vec<_> = bench.contents().into_keys().collect();
    let expected: Vec<_> = names.iter().map(|name| bench.path().join(name)).collect();
    if found == expected { Ok(()) } else { Err(format!("files: {found:?}").into()) }
}

fn is_unfinished(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".apron-"))
}

/// Starts a job that writes for a while, and waits until it writes.
fn writing(bench: &Bench) -> Result<Child, Failed> {
    let arguments = [
        "filter",
        "in.raw",
        "out.png",
        "--overwrite",
        "--raw",
        "7000x5000x3",
        "--filter",
        "identity",
        "--device",
        "cpu",
    ];
    let mut child = Command::new(apron()?)
        .args(arguments)
        .current_dir(bench.path())
        .stderr(Stdio::null())
        .spawn()?;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) {
        let mut files = std::fs::read_dir(bench.path())?.flatten();
        if files.any(|file| {
            is_unfinished(&file.path()) && file.metadata().is_ok_and(|found| found.len() > 0)
        }) {
            return Ok(child);
        }
        if child.try_wait()?.is_some() {
            return Err("it ended before it was seen to write".into());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let _ = child.kill();
    Err("it did not begin to write within a minute".into())
}

fn stopped(signal: &str) -> Result<(), Failed> {
    let bench = Bench::new();
    // Noise, so that a PNG of it takes time.
    let mut rng = fastrand::Rng::with_seed(5);
    let noise: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(7000 * 5000 * 3).collect();
    bench.put("in.raw", &noise);
    // On a busy machine the tool may have finished before the signal arrives.
    let mut ended: Result<(), Failed> = Err("it was never ended by a signal".into());
    for _ in 0..5 {
        bench.put("out.png", OLD);
        let mut child = writing(&bench)?;
        let sent =
            Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status()?;
        let status = child.wait()?;
        if sent.success() && by_signal(status) {
            ended = Ok(());
            break;
        }
        if !status.success() {
            return Err(format!("it was to be ended by a signal: {status}").into());
        }
    }
    ended?;
    if bench.get("out.png")? != OLD {
        return Err("the old file is not what it was".into());
    }
    // A killed process cannot clean up: its partial file has a name that says so.
    let left = std::fs::read_dir(bench.path())?
        .flatten()
        .filter(|file| is_unfinished(&file.path()))
        .count();
    if left > usize::from(signal == "KILL") {
        return Err(format!("{left} unfinished files are left").into());
    }
    bench.put("small.png", PICTURES[2].1);
    Ok(bench.succeed(&[
        "filter",
        "small.png",
        "out.png",
        "--overwrite",
        "--filter",
        "emboss",
        "--device",
        "cpu",
    ])?)
}

#[cfg(unix)]
fn by_signal(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status).is_some()
}

#[cfg(not(unix))]
fn by_signal(status: ExitStatus) -> bool {
    !status.success()
}

/// A limit on the file's size, so that writing fails as on a full disk.
fn disk_full() -> Result<(), Failed> {
    for (output, format) in
        [("out.png", ""), ("out.npy", ""), ("taps.npy", ""), ("new.jpg", "--quality 100")]
    {
        let bench = Bench::new();
        bench.put("in.png", PICTURES[0].1);
        let command = match output {
            "taps.npy" => {
                "taps --filter motion:length=301,angle=45 --out taps.npy --overwrite".to_owned()
            }
            _ => format!(
                "filter in.png {output} --overwrite --filter identity --device cpu {format}"
            ),
        };
        let old = output != "new.jpg";
        if old {
            bench.put(output, OLD);
        }
        // The limit is in blocks of 512 bytes. Without the trap the system would end the process.
        let output_of =
            shell(&bench, &format!("trap '' XFSZ; ulimit -f 40; exec \"$0\" {command}"))?
                .output()?;
        refused(&output_of, &[output, "too large"])?;
        files_are(&bench, &["in.png", output][..if old { 2 } else { 1 }])?;
        if old && bench.get(output)? != OLD {
            return Err(format!("{output} is not what it was").into());
        }
    }
    Ok(())
}

/// Text output to a full device.
fn stdout_full() -> Result<(), Failed> {
    let bench = Bench::new();
    for command in ["taps --filter sobel-x", "info", "filters"] {
        refused(
            &shell(&bench, &format!("exec \"$0\" {command} >/dev/full"))?.output()?,
            &["stdout", "space"],
        )?;
    }
    Ok(())
}

/// An output that is not a regular file is not replaced.
fn output_is_a_device() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("in.png", PICTURES[2].1);
    for device in ["/dev/full", "/dev/null"] {
        let output = bench.run(&[
            "filter", "in.png", device, "--format", "png", "--filter", "emboss", "--device", "cpu",
        ])?;
        refused(&output, &[device, "not a regular file"])?;
        if Path::new(device).is_file() {
            return Err(format!("{device} is a file now").into());
        }
    }
    files_are(&bench, &["in.png"])
}

/// An input and an output of a third of a gigabyte each, with less address space than that.
fn memory_exhausted() -> Result<(), Failed> {
    let bench = Bench::new();
    std::fs::File::create(bench.path().join("in.raw"))?.set_len(9000 * 9000 * 4)?;
    bench.put("out.npy", OLD);
    let job = "filter in.raw out.npy --overwrite --raw 9000x9000x4 --filter identity --device cpu";
    for kibibytes in [250_000, 550_000] {
        let output =
            shell(&bench, &format!("ulimit -v {kibibytes}; exec \"$0\" {job}"))?.output()?;
        refused(&output, &["memory"])
            .map_err(|error| format!("{kibibytes} KiB: {}", error.message().unwrap_or_default()))?;
        files_are(&bench, &["in.raw", "out.npy"])?;
        if bench.get("out.npy")? != OLD {
            return Err("the old file is not what it was".into());
        }
    }
    Ok(())
}

/// Of many pictures, the bad one fails and the others are filtered.
fn one_of_many() -> Result<(), Failed> {
    let bench = Bench::new();
    bench.put("a.png", PICTURES[2].1);
    bench.put("b.png", &PICTURES[2].1[..3000]);
    bench.put("c.png", PICTURES[0].1);
    std::fs::create_dir(bench.path().join("out"))?;
    let output = bench.run(&[
        "filter", "a.png", "b.png", "c.png", "out", "--filter", "emboss", "--device", "cpu", "-q",
    ])?;
    let line = String::from_utf8_lossy(&output.stderr);
    if output.status.code() != Some(1)
        || !line.contains("b.png")
        || line.contains("a.png")
        || line.contains("c.png")
    {
        return Err(format!("{}: {line}", output.status).into());
    }
    files_are(&bench, &["a.png", "b.png", "c.png", "out", "out/a.png", "out/c.png"])
}
