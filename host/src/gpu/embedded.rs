//! The kernels that the build embedded: PTX, one module for each entry, in tiers of compute
//! capability; and, if ptxas was installed, machine code for common GPUs. Neighbouring entries are
//! compressed together. Also kernels from a PTX file, which replace them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use kernel_builder::{Module, Tier, module};

use crate::{Error, Result};

static TIERS: &[Tier] = include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// The highest of some tiers for a device of this compute capability with a driver for this version
/// of CUDA; or why there is none.
pub(super) fn best(
    tiers: &'static [Tier],
    capability: (u32, u32),
    driver: (u32, u32),
) -> Result<&'static Tier, String> {
    let arch = 10 * capability.0 + capability.1;
    let fitting = || tiers.iter().filter(|tier| tier.arch <= arch);
    if let Some(tier) = fitting().filter(|tier| cuda(tier) <= driver).max_by_key(|tier| tier.arch) {
        return Ok(tier);
    }
    let version = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    Err(match fitting().map(cuda).min() {
        Some(needed) => format!(
            "its driver is for CUDA {}, the kernels need one for {} or newer; update the NVIDIA driver",
            version(driver),
            version(needed)
        ),
        None => {
            let lowest = tiers.iter().map(|tier| tier.arch).min().unwrap_or(0);
            let needed = version((lowest / 10, lowest % 10));
            format!(
                "it has compute capability {}, the kernels need {needed} or more",
                version(capability)
            )
        }
    })
}

/// The first version of CUDA whose drivers know a version of the PTX language.
fn cuda_for(ptx: (u32, u32)) -> (u32, u32) {
    match ptx {
        (6, minor @ 0..=2) => (9, minor),
        (6, minor) => (10, minor - 3),
        // CUDA 12.6 brought none.
        (8, minor @ 6..) => (12, minor + 1),
        (major, minor) => (major + 4, minor),
    }
}

/// The first version of CUDA whose drivers know a tier's PTX.
fn cuda(tier: &Tier) -> (u32, u32) {
    cuda_for(tier.version)
}

/// The tiers embedded in this build.
pub fn embedded() -> &'static [Tier] {
    TIERS
}

/// Kernels to take instead of those embedded, as [`use_kernels`] says: made by another compiler, or
/// by the same one in another way.
#[derive(Debug, Hash)]
pub struct Kernels {
    path: PathBuf,
    arch: u32,
    compiler: String,
    entries: BTreeMap<&'static str, String>,
}

impl Kernels {
    /// Reads a PTX file. It stays in memory until the process ends, as kernels do that were loaded.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read, [`Error::Kernels`] if it is not PTX, has none of this
    /// build's entries, or has one whose parameters are not those that this build passes.
    pub fn read(path: &Path) -> Result<&'static Self> {
        let text = fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let kernels = Self::parse(path, &String::from_utf8_lossy(&text));
        let kernels = kernels.map_err(|reason| Error::Kernels { path: path.to_owned(), reason })?;
        Ok(Box::leak(Box::new(kernels)))
    }

    /// The embedded PTX of a tier, as if from a file: so that the driver compiles it even where
    /// there is machine code.
    ///
    /// # Errors
    /// [`Error::Kernels`] if it cannot be unpacked: the build has gone wrong then.
    pub fn embedded(tier: &Tier) -> Result<&'static Self> {
        let path = PathBuf::from("this build");
        let entries = tier.entries.iter().map(|entry| Ok((entry.name, entry.ptx()?))).collect();
        let entries = match entries {
            Ok(entries) => entries,
            Err(reason) => return Err(Error::Kernels { path, reason }),
        };
        let compiler = tier.compiler.to_owned();
        Ok(Box::leak(Box::new(Self { path, arch: tier.arch, compiler, entries })))
    }

    fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let module = Module::read(text)?;
        let digits: String = module.arch.chars().filter(char::is_ascii_digit).collect();
        let arch = digits.parse().map_err(|_| {
            format!("its .target is {}, which is not of the form sm_90", module.arch)
        })?;
        let known = TIERS.first().map_or(&[][..], |tier| tier.entries);
        let mut entries = BTreeMap::new();
        for (name, ptx) in module.entries {
            let Some(own) = known.iter().find(|own| own.name == name) else { continue };
            let found = module::parameters(&ptx);
            if found.as_deref() != Some(own.parameters) {
                return Err(format!(
                    "entry {name} has parameters of {:?} bytes, this build passes {:?}; compile it from this build's source",
                    found.unwrap_or_default(),
                    own.parameters
                ));
            }
            entries.insert(own.name, ptx);
        }
        if entries.is_empty() {
            return Err(format!("it has none of this build's {} entries", known.len()));
        }
        Ok(Self { path: path.to_owned(), arch, compiler: module.compiler, entries })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The compiler that made them, as far as the file tells.
    pub fn compiler(&self) -> &str {
        &self.compiler
    }

    /// The lowest compute capability they run on, as 10 * major + minor.
    pub fn arch(&self) -> u32 {
        self.arch
    }

    /// This build's entries that are there, and the PTX module of each.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.entries.iter().map(|(&name, ptx)| (name, ptx.as_str()))
    }

    /// This build's entries that are not there, and so are taken from those embedded.
    pub fn missing(&self) -> impl Iterator<Item = &'static str> {
        let known = TIERS.first().map_or(&[][..], |tier| tier.entries);
        known.iter().map(|entry| entry.name).filter(|name| !self.entries.contains_key(name))
    }

    /// The PTX module of an entry.
    pub(super) fn ptx(&self, entry: &str) -> Option<&str> {
        self.entries.get(entry).map(String::as_str)
    }
}

static IN_USE: RwLock<Option<&'static Kernels>> = RwLock::new(None);

/// From now on, every GPU of this process takes the kernels given where they have an entry, and the
/// embedded ones where they do not; with `None`, the embedded ones alone. Work that is
/// [recorded](super::Recorded) keeps those it has.
pub fn use_kernels(kernels: Option<&'static Kernels>) {
    *IN_USE.write().unwrap_or_else(PoisonError::into_inner) = kernels;
}

/// The kernels that [`use_kernels`] was given last.
pub fn kernels_in_use() -> Option<&'static Kernels> {
    *IN_USE.read().unwrap_or_else(PoisonError::into_inner)
}

/// The kernels in use, if they have this entry.
pub(super) fn instead_of(entry: &str) -> Option<&'static Kernels> {
    kernels_in_use().filter(|kernels| kernels.ptx(entry).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Kernels, String> {
        Kernels::parse(Path::new("file.ptx"), text)
    }

    #[test]
    fn a_build_reads_its_own_kernels() {
        for tier in embedded() {
            let all = Kernels::embedded(tier).unwrap();
            assert_eq!((all.missing().count(), all.entries().count()), (0, tier.entries.len()));
            for (name, ptx) in all.entries() {
                let one = parse(ptx).unwrap();
                assert_eq!(one.arch(), tier.arch);
                assert!(
                    one.ptx(name).is_some_and(|found| module::instructions(found) > 5),
                    "{name}"
                );
                assert_eq!(one.missing().count(), tier.entries.len() - 1);
                assert!(module::parameters(ptx).is_some_and(|sizes| !sizes.is_empty()), "{name}");
            }
        }
    }

    #[test]
    fn a_device_gets_the_highest_tier_that_its_driver_knows() {
        const fn tier(arch: u32, version: (u32, u32)) -> Tier {
            Tier { arch, compiler: "rustc", version, entries: &[], groups: &[] }
        }
        static TIERS: [Tier; 2] = [tier(75, (6, 5)), tier(90, (7, 8))];
        assert_eq!(best(&TIERS, (9, 0), (13, 0)).unwrap().arch, 90);
        assert_eq!(best(&TIERS, (8, 9), (13, 0)).unwrap().arch, 75);
        assert_eq!(best(&TIERS, (9, 0), (11, 7)).unwrap().arch, 75);
        let reason = best(&TIERS, (9, 0), (9, 2)).unwrap_err();
        assert!(reason.contains("CUDA 9.2") && reason.contains("10.2 or newer"), "{reason}");
        let reason = best(&TIERS, (6, 1), (13, 0)).unwrap_err();
        assert!(
            reason.contains("compute capability 6.1") && reason.contains("7.5 or more"),
            "{reason}"
        );
        let versions = [
            ((6, 3), (10, 0)),
            ((7, 8), (11, 8)),
            ((8, 5), (12, 5)),
            ((8, 7), (12, 8)),
            ((9, 0), (13, 0)),
        ];
        assert!(versions.into_iter().all(|(ptx, cuda)| cuda_for(ptx) == cuda));
    }

    #[test]
    fn a_file_that_does_not_fit_says_why() {
        let name = "keep_edges";
        let own = TIERS[0].entry(name).unwrap();
        let ptx = &own.ptx().unwrap();
        let [size, second] = *own.parameters else { panic!("{:?}", own.parameters) };
        let less = size - 4;
        let other =
            format!("parameters of [{less}, {second}] bytes, this build passes [{size}, {second}]");
        let cut = ptx.rfind("ret;").unwrap();
        let cases = [
            ("", "not PTX"),
            (&ptx[..cut], "middle of a statement"),
            (&ptx.replace(name, "other"), "none of this build's"),
            (&ptx.replace(&format!("[{size}]"), &format!("[{less}]")), &other),
            (&ptx.replace(".target sm_75", ".target sm_x"), "sm_x"),
        ];
        for (text, words) in cases {
            let reason = parse(text).unwrap_err();
            assert!(reason.contains(words), "{reason}");
        }
        assert!(parse(ptx).is_ok());
    }
}
