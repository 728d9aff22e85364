//! The tool on pipes.

use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;

use crate::tool::{self, Bench, apron};

/// Starts the tool with a pipe for each of its standard streams.
pub(crate) fn started(bench: &Bench, arguments: &[&str]) -> Result<Child, Failed> {
    let mut command = Command::new(apron()?);
    command.args(arguments).current_dir(bench.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(tool::started(|| command.spawn())?)
}

/// Runs the tool with these bytes on its standard input, which a thread writes.
pub(crate) fn piped(bench: &Bench, arguments: &[&str], input: &[u8]) -> Result<Output, Failed> {
    let mut child = started(bench, arguments)?;
    let mut stdin = child.stdin.take().expect("it was asked for");
    let input = input.to_vec();
    // A tool that refuses its arguments or its input reads no more of it.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output()?;
    feeder.join().map_err(|_| "the feeder panicked")?;
    Ok(output)
}

/// The result of work on another thread, within 30 seconds.
pub(crate) fn in_time<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failed> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver
        .recv_timeout(Duration::from_secs(30))
        .map_err(|_| format!("{what}: nothing within 30 s").into())
}

/// A stream that repeats one frame.
#[derive(Clone, Copy)]
pub(crate) struct Repeated<'a> {
    /// What is sent once, and as many bytes are answered.
    pub(crate) header: &'a [u8],
    pub(crate) frame: &'a [u8],
    /// Bytes of a frame's result.
    pub(crate) result: usize,
    /// The most time that the results may take.
    pub(crate) limit: Duration,
}

/// The tool's peak memory, in KiB, when the last of so many results has arrived.
pub(crate) fn peak(
    bench: &Bench,
    arguments: &[&str],
    stream: Repeated<'_>,
    frames: usize,
) -> Result<u64, Failed> {
    let Repeated { header, frame, result, limit } = stream;
    let mut child = started(bench, arguments)?;
    let (mut stdin, mut stdout) = (
        child.stdin.take().expect("it was asked for"),
        child.stdout.take().expect("it was asked for"),
    );
    let (first, frame) = (header.to_vec(), frame.to_vec());
    let feeder = std::thread::spawn(move || {
        stdin.write_all(&first)?;
        (0..frames).try_for_each(|_| stdin.write_all(&frame)).map(|()| stdin)
    });
    stdout.read_exact(&mut vec![0; header.len()])?;
    let mut result = vec![0; result];
    let start = Instant::now();
    for _ in 0..frames {
        stdout.read_exact(&mut result)?;
        if start.elapsed() > limit {
            return Err("too slow to be measured".into());
        }
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    drop(feeder.join().map_err(|_| "the feeder panicked")??);
    if !child.wait()?.success() {
        return Err("it failed".into());
    }
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse().map_err(|_| "no number")?)
}
