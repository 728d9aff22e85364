//! Other libraries, run by a Python program that stays open and answers one request at a time
//! (`peers.py`).
//!
//! If a library ends the program, or does not answer, the program is started again without it.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use apron::{Filter, Image, Scalar, Shape};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cases::{Case, Class, Form, Random};
use crate::contest::{Agreement, Rival};
use crate::measure::Turn;

const PROGRAM: &str = include_str!("peers.py");

/// The longest wait for one answer. The first use of a library may compile its kernels.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the peers run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum On {
    /// On the CPU, with this many threads.
    Cpu(usize),
    /// On the GPU of this number, with a level-2 cache of this many bytes.
    Gpu(u32, u64),
    /// From host memory to host memory: on the GPU of this number, or on the CPU with this many
    /// threads.
    Host(u32, usize),
}

/// A problem for the libraries.
pub(crate) struct Posed<'a> {
    /// Pictures, one below the other.
    pub(crate) images: usize,
    pub(crate) shape: Shape,
    pub(crate) stored: Scalar,
    pub(crate) target: Scalar,
    pub(crate) classes: &'a [Class],
    pub(crate) filter: &'a Filter,
    pub(crate) sigma: Option<f64>,
    /// The filter as text, if it has one.
    pub(crate) preset: Option<&'a str>,
    pub(crate) pixels: &'a [u8],
    pub(crate) expected: &'a [u8],
}

/// The libraries that were found.
#[derive(Debug)]
pub(crate) struct Peers {
    on: On,
    folder: TempDir,
    talk: Option<Talk>,
    /// The libraries.
    pub(crate) found: Vec<Found>,
    /// Names of missing libraries, with the reasons.
    pub(crate) missing: Vec<(String, String)>,
    without: Vec<String>,
    case: Option<Value>,
}

/// One filter function of a library.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) class: String,
}

/// A library as a rival in a contest on the CPU.
pub(crate) struct Taker<'a, 'b> {
    pub(crate) peers: &'a RefCell<&'b mut Peers>,
    pub(crate) name: String,
}

impl Rival for Taker<'_, '_> {
    fn check(&mut self) -> Result<Agreement, Option<String>> {
        self.peers.borrow_mut().check(&self.name)
    }

    fn times(&mut self, turn: Turn) -> Result<Vec<Duration>, Option<String>> {
        self.peers.borrow_mut().take_turn(&self.name, turn)
    }
}

#[derive(Debug)]
struct Talk {
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<String>,
}

#[derive(Deserialize)]
struct Hello {
    peers: Vec<Found>,
    missing: Vec<Missing>,
}

#[derive(Deserialize)]
struct Missing {
    name: String,
    reason: String,
}

/// The outcome of a request to one library.
enum Answer {
    Got(Value),
    Skipped(Option<String>),
}

impl Peers {
    /// Starts Python, if there is one.
    pub(crate) fn start(on: On) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("apron-peers-")
            .tempdir()
            .context("making a temporary folder")?;
        std::fs::write(folder.path().join("peers.py"), PROGRAM).context("writing peers.py")?;
        let mut peers = Self {
            on,
            folder,
            talk: None,
            found: Vec::new(),
            missing: Vec::new(),
            without: Vec::new(),
            case: None,
        };
        peers.restart();
        Ok(peers)
    }

    fn restart(&mut self) {
        self.talk = None;
        match Talk::start(self.on, &self.folder, &self.without).and_then(|mut talk| {
            let hello = talk.receive()?;
            Ok((talk, serde_json::from_value::<Hello>(hello)?))
        }) {
            Ok((talk, hello)) => {
                self.talk = Some(talk);
                self.found = hello.peers;
                self.missing =
                    hello.missing.into_iter().map(|peer| (peer.name, peer.reason)).collect();
            }
            Err(error) => {
                self.found.clear();
                self.missing =
                    vec![("python3".to_owned(), format!("{error:#}{}", self.last_words()))];
            }
        }
    }

    /// The last line that the program wrote before it ended.
    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        text.lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .map_or_else(String::new, |line| format!(": {line}"))
    }

    /// Gives a case to the libraries, its filter in the classes named. Returns the libraries that
    /// accept it.
    pub(crate) fn open<S: Random, D: Random>(
        &mut self,
        case: &Case,
        classes: &[Class],
        filter: &Filter,
        src: &Image<S>,
        expected: &Image<D>,
    ) -> Result<Vec<Found>> {
        self.pose(&Posed {
            images: case.images,
            shape: case.shape(),
            stored: S::SCALAR,
            target: D::SCALAR,
            classes,
            filter,
            sigma: (case.form == Form::Gaussian).then(|| case.sigma()),
            preset: None,
            pixels: bytemuck::cast_slice(src.as_slice()),
            expected: bytemuck::cast_slice(expected.as_slice()),
        })
    }

    /// Gives a problem to the libraries. Returns the libraries that accept it.
    pub(crate) fn pose(&mut self, problem: &Posed<'_>) -> Result<Vec<Found>> {
        if self.talk.is_none() {
            return Ok(Vec::new());
        }
        let path = |name: &str, bytes: &[u8]| -> Result<PathBuf> {
            let path = self.folder.path().join(name);
            std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
            Ok(path)
        };
        let filter = problem.filter;
        let taps: Vec<Vec<f64>> = (0..filter.rows())
            .map(|r| (0..filter.cols()).map(|c| filter.tap(r, c)).collect())
            .collect();
        let pair = filter.separated();
        self.case = Some(json!({
            "images": problem.images,
            "width": problem.shape.width,
            "height": problem.shape.height,
            "channels": problem.shape.channels,
            "stored": problem.stored.to_string(),
            "target": problem.target.to_string(),
            "classes": problem.classes.iter().map(|class| class.name()).collect::<Vec<_>>(),
            "taps": taps,
            "row": pair.map(|(row, _)| row),
            "column": pair.map(|(_, column)| column),
            "sigma": problem.sigma,
            "preset": problem.preset,
            "l2_cache": if let On::Gpu(_, bytes) = self.on { bytes } else { 0 },
            "pixels": path("pixels", problem.pixels)?,
            "expected": path("expected", problem.expected)?,
        }));
        Ok(self.reopen())
    }

    fn reopen(&mut self) -> Vec<Found> {
        let (Some(talk), Some(case)) = (&mut self.talk, &self.case) else { return Vec::new() };
        let names = talk.ask(&json!({"do": "open", "case": case})).ok();
        let names: Vec<String> = names
            .and_then(|mut answer| serde_json::from_value(answer["peers"].take()).ok())
            .unwrap_or_default();
        self.found.iter().filter(|peer| names.contains(&peer.name)).cloned().collect()
    }

    /// Lets a library filter the case once, and compares.
    pub(crate) fn check(&mut self, peer: &str) -> Result<Agreement, Option<String>> {
        match self.request(peer, &json!({"do": "check", "peer": peer})) {
            Answer::Got(answer) => Ok(Agreement {
                difference: answer["difference"].as_f64(),
                differ: answer["differ"].as_u64(),
                note: answer["note"].as_str().unwrap_or_default().to_owned(),
            }),
            Answer::Skipped(reason) => Err(reason),
        }
    }

    /// Times on the GPU of a library that was checked.
    pub(crate) fn time(
        &mut self,
        peer: &str,
        rounds: usize,
    ) -> Result<Vec<Duration>, Option<String>> {
        self.times(peer, json!({"rounds": rounds}))
    }

    /// Times on the CPU of a library that was checked.
    pub(crate) fn take_turn(
        &mut self,
        peer: &str,
        turn: Turn,
    ) -> Result<Vec<Duration>, Option<String>> {
        self.times(peer, json!({"lead": turn.lead.as_secs_f64(), "span": turn.span.as_secs_f64()}))
    }

    fn times(&mut self, peer: &str, how: Value) -> Result<Vec<Duration>, Option<String>> {
        match self.request(peer, &json!({"do": "time", "peer": peer, "how": how})) {
            Answer::Got(answer) => {
                let times = answer["us"].as_array().map_or(&[][..], Vec::as_slice);
                let times: Vec<_> = times
                    .iter()
                    .filter_map(|us| Duration::try_from_secs_f64(us.as_f64()? / 1e6).ok())
                    .filter(|time| !time.is_zero())
                    .collect();
                if times.is_empty() {
                    Err(Some("no times came back".to_owned()))
                } else {
                    Ok(times)
                }
            }
            Answer::Skipped(reason) => Err(reason),
        }
    }

    /// Frees the memory of a library's case.
    pub(crate) fn done(&mut self, peer: &str) {
        let _ = self.request(peer, &json!({"do": "done", "peer": peer}));
    }

    fn request(&mut self, peer: &str, request: &Value) -> Answer {
        let Some(talk) = &mut self.talk else {
            return Answer::Skipped(Some("python3 has ended".to_owned()));
        };
        match talk.ask(request) {
            Ok(answer) => match answer.get("skip") {
                Some(reason) => Answer::Skipped(reason.as_str().map(str::to_owned)),
                None => Answer::Got(answer),
            },
            Err(error) => {
                let reason = format!("{error:#}{}", self.last_words());
                self.without.push(peer.to_owned());
                self.restart();
                self.reopen();
                Answer::Skipped(Some(reason))
            }
        }
    }
}

impl Talk {
    fn start(on: On, folder: &TempDir, without: &[String]) -> Result<Self> {
        let log = std::fs::File::create(folder.path().join("log")).context("writing a log")?;
        let mut command = Command::new("python3");
        command.arg("-u").arg(folder.path().join("peers.py"));
        match on {
            On::Cpu(threads) => {
                command.args(["--device", "cpu", "--threads", &threads.to_string()])
            }
            On::Gpu(ordinal, _) => {
                command.args(["--device", "gpu", "--ordinal", &ordinal.to_string()])
            }
            On::Host(ordinal, threads) => {
                let (ordinal, threads) = (ordinal.to_string(), threads.to_string());
                command.args(["--device", "host", "--ordinal", &ordinal, "--threads", &threads])
            }
        };
        command.args(without.iter().flat_map(|name| ["--without", name]));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("starting python3")?;
        let (stdin, stdout) =
            child.stdin.take().zip(child.stdout.take()).context("python3 has no pipes")?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, stdin, answers })
    }

    fn ask(&mut self, request: &Value) -> Result<Value> {
        writeln!(self.stdin, "{request}").context("python3 has ended")?;
        self.stdin.flush().context("python3 has ended")?;
        self.receive()
    }

    fn receive(&mut self) -> Result<Value> {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(line) => serde_json::from_str(&line).context("an answer that is no JSON"),
            Err(RecvTimeoutError::Timeout) => {
                anyhow::bail!("no answer in {} s", PATIENCE.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => match self.child.wait() {
                Ok(status) => anyhow::bail!("python3 ended, {status}"),
                Err(error) => Err(error).context("python3 ended"),
            },
        }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // The program may hang in a library, so it is killed. Errors mean that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use apron::{Device, Plan};

    use super::*;
    use crate::cases::cases;

    /// A small image with a case's filter, and its result.
    fn problem(name: &str) -> (Case, Filter, Image<f32>, Image<f32>) {
        let mut case = cases().into_iter().find(|case| case.name() == name).unwrap();
        (case.width, case.height) = (67, 41);
        let filter = case.filter().unwrap();
        let src = Image::from_vec(case.pixels(), case.width, case.height, 1).unwrap();
        let dst = Plan::builder(&filter)
            .device(Device::Cpu)
            .build()
            .unwrap()
            .filter(&src.view())
            .unwrap();
        (case, filter, src, dst)
    }

    #[test]
    fn installed_libraries_agree_and_a_wrong_result_shows() {
        let mut peers = Peers::start(On::Cpu(1)).unwrap();
        assert!(!(peers.found.is_empty() && peers.missing.is_empty()));
        for name in ["f32-random-5x5", "f32-product-9x9"] {
            let (case, filter, src, dst) = problem(name);
            let mut pixels = dst.as_slice().to_vec();
            pixels[1000] += 1.0;
            let wrong = Image::from_vec(pixels, 67, 41, 1).unwrap();
            for (expected, least, most) in [(&dst, 0.0, 1e-5), (&wrong, 0.9, 1.1)] {
                for peer in
                    peers.open(&case, &[case.form.class()], &filter, &src, expected).unwrap()
                {
                    let Ok(found) = peers.check(&peer.name) else { continue };
                    let difference = found.difference.unwrap();
                    assert!((least..=most).contains(&difference), "{}: {difference}", peer.name);
                    let turn = Turn { lead: Duration::ZERO, span: Duration::from_millis(1) };
                    assert!(!peers.take_turn(&peer.name, turn).unwrap().is_empty());
                    peers.done(&peer.name);
                }
            }
        }
    }

    #[test]
    fn a_program_that_ends_is_started_again_without_its_library() {
        let mut peers = Peers::start(On::Cpu(1)).unwrap();
        let (case, filter, src, dst) = problem("f32-random-5x5");
        let Some(first) =
            peers.open(&case, &[Class::Dense], &filter, &src, &dst).unwrap().first().cloned()
        else {
            println!("skipped: no library is installed");
            return;
        };
        peers.talk.as_mut().unwrap().child.kill().unwrap();
        let reason = peers.check(&first.name).unwrap_err().unwrap();
        assert!(reason.contains("python3"), "{reason}");
        assert!(peers.missing.iter().any(|(name, _)| *name == first.name));
        assert!(peers.found.iter().all(|peer| peer.name != first.name));
    }
}
