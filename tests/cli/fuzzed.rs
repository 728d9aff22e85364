//! The fuzz targets over their corpus, and over mutations of it from a seed. See `fuzz/`.

use std::panic::catch_unwind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use conformance::hostile::{TARGETS, Target, mutated};
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    // The tests may run on a machine without the source.
    let absent = !corpus().is_dir();
    let trial = |target: &'static Target| {
        Trial::test(format!("fuzzed::{}", target.name), || fuzzed(target)).with_ignored_flag(absent)
    };
    TARGETS.iter().map(trial).collect()
}

fn corpus() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus"))
}

/// Every file of the corpus, some accepted and some refused, and thousands of mutations.
fn fuzzed(target: &Target) -> Result<(), Failed> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(corpus().join(target.name))? {
        let path = entry?.path();
        files.push((path.display().to_string(), std::fs::read(path)?));
    }
    files.sort();
    let mut counts = [0, 0];
    for (name, bytes) in &files {
        let took = tried(target, bytes).map_err(|wrong| format!("{name}: {wrong}"))?;
        counts[usize::from(took)] += 1;
    }
    if counts.contains(&0) {
        return Err(format!(
            "of {} files {} were taken and {} refused",
            files.len(),
            counts[1],
            counts[0]
        )
        .into());
    }
    let mut rng = Rng::with_seed(11);
    let pick = |rng: &mut Rng| files[rng.usize(0..files.len())].1.clone();
    for number in 0..3000 {
        let (bytes, other) = (pick(&mut rng), pick(&mut rng));
        let bytes = mutated(&mut rng, &bytes, &other);
        let took = tried(target, &bytes)
            .map_err(|wrong| format!("change {number}: {wrong}: {}", bytes.escape_ascii()))?;
        counts[usize::from(took)] += 1;
    }
    println!("fuzzed::{}: {} taken, {} refused", target.name, counts[1], counts[0]);
    Ok(())
}

/// A panic is an error, and so is an input that takes seconds.
fn tried(target: &Target, bytes: &[u8]) -> Result<bool, String> {
    let started = Instant::now();
    let result = catch_unwind(|| (target.run)(bytes)).unwrap_or_else(|_| Err("it panicked".into()));
    if started.elapsed() > Duration::from_secs(10) {
        return Err(format!("it took {:.1} s", started.elapsed().as_secs_f64()));
    }
    result
}
