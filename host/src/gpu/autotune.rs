//! Autotuning: measures the fastest kernel, and remembers it in a file for later programs.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{env, fs};

use super::device::Gpu;
use super::embedded;
use super::engine::{Engine, Part};
use crate::image::{Layout, Scalar, Shape};
use crate::kernels::prepared::Prepared;
use crate::problem::Problem;
use crate::{Result, Variant};

/// Variants that are predicted to take longer than the best one by more than this are not measured.
const HOPELESS: u32 = 4;

/// The measurements of one GPU.
#[derive(Debug)]
pub(crate) struct Tuned {
    /// Lines of the file begin with it: build, GPU and driver. Lines of others are left alone.
    device: String,
    found: Mutex<HashMap<String, Variant>>,
}

impl Tuned {
    /// The measurements of earlier programs. Files that cannot be read, and lines that cannot be
    /// parsed, are ignored.
    pub(crate) fn new(gpu: &Gpu) -> Self {
        let info = gpu.info();
        let mut build = DefaultHasher::new();
        (env!("CARGO_PKG_VERSION"), gpu.tier()).hash(&mut build);
        embedded::embedded().hash(&mut build);
        embedded::kernels_in_use().hash(&mut build);
        let device = format!(
            "{:016x} {} {}.{}",
            build.finish(),
            info.name.replace(' ', "-"),
            info.driver.0,
            info.driver.1
        );
        let bytes = file().and_then(|path| fs::read(path).ok()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let found = text.lines().filter_map(|line| {
            let (key, variant) = line.strip_prefix(&device)?.trim_start().rsplit_once(' ')?;
            Some((key.to_owned(), variant.parse().ok()?))
        });
        Self { found: Mutex::new(found.collect()), device }
    }

    /// The fastest kernel for a problem: as found before, or measured now. If it cannot be
    /// measured, for want of memory say, or because its source is laid out in an unusual way, the
    /// one that the tables have.
    ///
    /// # Errors
    /// None: the naive kernel runs every problem.
    pub(crate) fn fastest(&self, problem: &Problem, engine: &Engine) -> Result<Prepared> {
        let is_usual = problem.source_is_aligned && problem.side_by_side == 1;
        if problem.source == Scalar::F32 && !is_usual {
            return problem.choose_kernel();
        }
        let Problem { width, height, planes, cols, rows, anchor_x, separable, border, .. } =
            problem;
        let Problem { source, target, side_by_side, .. } = problem;
        let border = border.code().0;
        let family =
            problem.family().map_or_else(|| "any".to_owned(), |(family, _)| format!("{family:?}"));
        let key = format!(
            "{width}x{height}x{planes} {source}x{side_by_side}>{target} {cols}x{rows}@{anchor_x} {separable} {family} {border}"
        );
        let known = self.found.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        // Another build's kernels may have had other limits.
        if let Some(prepared) = known.and_then(|variant| problem.prepare_allowed(variant)) {
            return Ok(prepared);
        }
        match measure(problem, engine) {
            Ok(prepared) => {
                if let Some(variant) = prepared.variant() {
                    self.found
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(key.clone(), variant);
                    keep(&format!("{} {key} {variant}\n", self.device));
                }
                Ok(prepared)
            }
            Err(_) => problem.choose_kernel(),
        }
    }
}

/// Runs each candidate a few times on an image of the problem's shape.
fn measure(problem: &Problem, engine: &Engine) -> Result<Prepared> {
    let gpu = engine.gpu();
    let shape = Shape { width: problem.width, height: problem.height, channels: problem.planes };
    let layout =
        if problem.side_by_side == problem.planes { Layout::Interleaved } else { Layout::Planar };
    let mut src = gpu.image_of(shape, problem.source, layout)?;
    let (mut dst, mut stream) = (gpu.image_of(shape, problem.target, layout)?, gpu.stream()?);
    src.fill(0.5, &stream)?;
    let candidates = problem.candidates();
    let limit = candidates
        .first()
        .and_then(|best| best.predicted)
        .unwrap_or(Duration::MAX)
        .saturating_mul(HOPELESS);
    let mut fastest = (Duration::MAX, problem.choose_kernel()?);
    for candidate in
        candidates.iter().filter(|candidate| candidate.predicted.is_some_and(|time| time <= limit))
    {
        let prepared = problem.prepare(candidate.variant)?;
        let mut best = Duration::MAX;
        for round in 0..6 {
            let start = stream.mark()?;
            engine.enqueue(
                &prepared,
                &src.view(),
                &mut dst.view_mut(),
                &Part::whole(shape),
                &mut stream,
            )?;
            let time = stream.mark()?.since(&start)?;
            // The first run loads the kernel.
            if round > 0 {
                best = best.min(time);
            }
        }
        if best < fastest.0 {
            fastest = (best, prepared);
        }
    }
    Ok(fastest.1)
}

/// Adds a line to the file. A failure costs only time, so it is not an error.
fn keep(line: &str) {
    let Some(path) = file() else { return };
    let _ = path.parent().map_or(Ok(()), fs::create_dir_all);
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    // One call for a short line: lines of programs that run at once do not mix.
    let _ = file.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()));
}

fn file() -> Option<PathBuf> {
    let folder = env::var_os("APRON_CACHE").map(PathBuf::from);
    let folder =
        folder.or_else(|| Some(env::var_os("XDG_CACHE_HOME").map(PathBuf::from)?.join("apron")));
    let folder = folder.or_else(|| Some(env::home_dir()?.join(".cache/apron")));
    folder.filter(|folder| !folder.as_os_str().is_empty()).map(|folder| folder.join("tuned"))
}
