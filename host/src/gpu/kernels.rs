//! The kernels that the build embedded: PTX, one module for each entry, in tiers of compute capability; and, if ptxas was
//! there, machine code for common GPUs.

/// The kernels compiled for one compute capability and those above it.
#[derive(Debug)]
pub(crate) struct Tier {
    /// 10 * major + minor.
    pub(crate) arch: u32,
    /// The compiler and its version.
    pub(crate) compiler: &'static str,
    /// Each entry's name and its PTX module, by name.
    pub(crate) entries: &'static [(&'static str, &'static str)],
    /// Machine code of all entries, by the compute capability that it was assembled for.
    pub(crate) machine_code: &'static [(u32, &'static [u8])],
}

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// The highest tier that a device of capability `arch` can run.
pub(super) fn best(arch: u32) -> Option<&'static Tier> {
    TIERS.iter().filter(|tier| tier.arch <= arch).max_by_key(|tier| tier.arch)
}

/// The lowest capability that any tier runs on.
pub(super) fn lowest() -> u32 {
    TIERS.iter().map(|tier| tier.arch).min().unwrap_or(0)
}

impl Tier {
    /// Machine code for a device of capability `arch`: that for its own or an older one with the same major number.
    pub(super) fn machine_code(&self, arch: u32) -> Option<&'static [u8]> {
        let runs = |machine: u32| machine / 10 == arch / 10 && machine <= arch;
        let code = self.machine_code.iter().filter(|&&(machine, _)| runs(machine)).max_by_key(|&&(machine, _)| machine);
        code.map(|&(_, code)| code)
    }

    /// The PTX module of an entry.
    pub(super) fn ptx(&self, entry: &str) -> Option<&'static str> {
        self.entries.iter().find(|(name, _)| *name == entry).map(|(_, ptx)| *ptx)
    }
}

/// One tier of the kernels embedded in this build.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EmbeddedTier {
    /// The lowest compute capability it runs on, as 10 * major + minor.
    pub arch: u32,
    /// The compiler that made it.
    pub compiler: &'static str,
    tier: &'static Tier,
}

impl EmbeddedTier {
    /// The compute capabilities that this build has machine code for as well.
    pub fn machine_code(&self) -> impl Iterator<Item = u32> {
        self.tier.machine_code.iter().map(|&(arch, _)| arch)
    }

    /// The names of its kernel entries, and the PTX module of each.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.tier.entries.iter().copied()
    }
}

/// The tiers embedded in this build.
pub fn embedded() -> impl Iterator<Item = EmbeddedTier> {
    TIERS.iter().map(|tier| EmbeddedTier { arch: tier.arch, compiler: tier.compiler, tier })
}
