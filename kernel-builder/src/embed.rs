//! For build scripts: a crate of kernels compiled for every tier, as a table that the program embeds.

use std::path::{Path, PathBuf};
use std::{env, fs};

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;

use crate::{Error, KernelBuilder, MACHINES, Result, TIERS, at, module};

/// The level that makes the least of PTX; above it are only slower ones.
const LEVEL: u8 = 10;

/// The kernels of a crate compiled for one compute capability and those above it: a row of the table that [`embed`] writes.
#[derive(Debug, Hash)]
pub struct Tier {
    /// The lowest compute capability they run on, as 10 * major + minor.
    pub arch: u32,
    /// The compiler and its version.
    pub compiler: &'static str,
    /// The version of the PTX language they are in: major and minor.
    pub version: (u32, u32),
    /// The entries, by name.
    pub entries: &'static [Kernel],
    /// Machine code of all entries, by the compute capability that it was assembled for.
    pub machine_code: &'static [(u32, Packed)],
}

impl Tier {
    /// An entry, by its name.
    pub fn entry(&self, name: &str) -> Option<&'static Kernel> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

/// An entry of a [`Tier`], with a PTX module of its own.
#[derive(Debug, Hash)]
pub struct Kernel {
    /// The entry's name.
    pub name: &'static str,
    /// The bytes of each of its parameters.
    pub parameters: &'static [usize],
    /// Its PTX module.
    pub module: Packed,
}

impl Kernel {
    /// The PTX module, unpacked anew.
    ///
    /// # Errors
    /// As [`Packed::unpack`], and if it is not text: the table was not written by [`embed`] then.
    pub fn ptx(&self) -> Result<String, String> {
        let ptx = self.module.unpack().map_err(|reason| format!("{}: {reason}", self.name))?;
        String::from_utf8(ptx).map_err(|error| format!("{}: its PTX is not text: {error}", self.name))
    }
}

/// Bytes that were compressed when the program was built.
#[derive(Debug, Hash)]
pub struct Packed {
    /// How many they are.
    pub length: usize,
    /// What they were compressed to: a raw stream of DEFLATE.
    pub deflated: &'static [u8],
}

impl Packed {
    /// The bytes.
    ///
    /// # Errors
    /// If these are not [`Packed::length`] bytes that were compressed: the table was not written by [`embed`] then.
    pub fn unpack(&self) -> Result<Vec<u8>, String> {
        let bytes = decompress_to_vec_with_limit(self.deflated, self.length);
        let bytes = bytes.map_err(|error| format!("cannot be unpacked: {error}"))?;
        if bytes.len() != self.length {
            return Err(format!("unpacks to {} bytes in place of {}", bytes.len(), self.length));
        }
        Ok(bytes)
    }
}

/// Compiles the kernels of `builder` for all [`TIERS`], assembles them for all [`MACHINES`] where ptxas is there, and writes
/// `kernels.rs` into cargo's `OUT_DIR`: an expression of type `&'static [Tier]`. Tells cargo what the table depends on.
///
/// ```ignore
/// static TIERS: &[kernel_builder::Tier] = include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
/// ```
///
/// # Errors
/// If the kernels cannot be compiled, if a file cannot be written, or if it is not cargo that runs this.
pub fn embed(builder: &KernelBuilder) -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: cargo runs this")?);
    let mut table = String::from("&[\n");
    // The tiers at once: each is a single thread's work.
    let tiers = std::thread::scope(|scope| {
        let out = &out;
        TIERS
            .map(|arch| scope.spawn(move || row(builder, arch, out)))
            .map(|tier| tier.join().map_err(|_| "the kernel builder panicked"))
    });
    for tier in tiers {
        let (row, inputs) = tier??;
        table.push_str(&row);
        for input in inputs {
            println!("cargo:rerun-if-changed={}", input.display());
        }
    }
    table.push_str("]\n");
    fs::write(out.join("kernels.rs"), table)?;
    // A file that is added changes its folder.
    for folder in builder.sources() {
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    Ok(())
}

/// A tier's row of the table, and the files that it depends on. What the row embeds goes into a folder of `out`.
fn row(builder: &KernelBuilder, arch: u32, out: &Path) -> Result<(String, Vec<PathBuf>)> {
    let report = for_tier(builder, arch).build()?;
    let folder = out.join(&report.arch);
    // A new folder: entries that are no more must not stay.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(at(&folder))?;
    let unusable = |reason: &str| Error::Ptx { arch: report.arch.clone(), reason: reason.to_owned() };

    let mut version = None;
    let mut entries = String::new();
    for entry in &report.entries {
        let ptx = fs::read_to_string(&entry.path).map_err(at(&entry.path))?;
        version = version.or_else(|| module::version(&ptx));
        let parameters = module::parameters(&ptx);
        let parameters =
            parameters.ok_or_else(|| unusable(&format!("{}: its parameters are not plain", entry.name)))?;
        let packed = pack(out, &format!("{}/{}.ptx", report.arch, entry.name), ptx.as_bytes())?;
        let name = &entry.name;
        entries += &format!(
            "            ::kernel_builder::Kernel {{ name: {name:?}, parameters: &{parameters:?}, module: {packed} }},\n"
        );
    }
    let version = version.ok_or_else(|| unusable("it names no .version"))?;
    let mut machine_code = String::new();
    for (machine, path) in &report.machine_code {
        let code = fs::read(path).map_err(at(path))?;
        let packed = pack(out, &format!("{}/{machine}.cubin", report.arch), &code)?;
        machine_code += &format!("            ({}, {packed}),\n", machine.trim_start_matches("sm_"));
    }
    let row = format!(
        "    ::kernel_builder::Tier {{
        arch: {arch},
        compiler: {:?},
        version: {version:?},
        entries: &[\n{entries}        ],
        machine_code: &[\n{machine_code}        ],
    }},\n",
        report.compiler
    );
    Ok((row, report.inputs))
}

/// Writes bytes into a file of `out`, compressed, and returns the [`Packed`] that embeds it.
fn pack(out: &Path, file: &str, bytes: &[u8]) -> Result<String> {
    let path = out.join(file);
    fs::write(&path, compress_to_vec(bytes, LEVEL)).map_err(at(&path))?;
    Ok(format!(
        "::kernel_builder::Packed {{ length: {}, deflated: include_bytes!(concat!(env!(\"OUT_DIR\"), {:?})) }}",
        bytes.len(),
        format!("/{file}")
    ))
}

/// Compiles for one tier, and assembles for the machines that run no higher one.
fn for_tier(builder: &KernelBuilder, tier: u32) -> KernelBuilder {
    let best = |machine: &u32| TIERS.iter().filter(|&tier| tier <= machine).max() == Some(&tier);
    let builder = builder.clone().arch(format!("sm_{tier}"));
    let machines = MACHINES.iter().filter(|machine| best(machine));
    machines.fold(builder, |builder, machine| builder.assemble(format!("sm_{machine}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked() {
        for bytes in [&b""[..], b".version 9.0", &[7; 100_000]] {
            let deflated = compress_to_vec(bytes, LEVEL).leak();
            assert_eq!(Packed { length: bytes.len(), deflated }.unpack().unwrap(), bytes);
        }
    }

    #[test]
    fn other_bytes_are_an_error() {
        let deflated = &*compress_to_vec(b".version 9.0 .target sm_90", LEVEL).leak();
        let cases = [(26, &deflated[..9]), (26, &[]), (26, b"no such stream"), (25, deflated), (27, deflated)];
        for (length, deflated) in cases {
            assert!(Packed { length, deflated }.unpack().is_err(), "{length} {deflated:?}");
        }
        let deflated = compress_to_vec(&[0xff; 4], LEVEL).leak();
        let kernel = Kernel { name: "first", parameters: &[], module: Packed { length: 4, deflated } };
        assert!(kernel.ptx().unwrap_err().contains("first"));
    }
}
