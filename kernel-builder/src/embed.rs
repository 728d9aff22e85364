//! For build scripts: compiles a crate of kernels for every tier and writes a table that the
//! program embeds.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::ScopedJoinHandle;
use std::{env, fs};

use lzma_rust2::{LzmaOptions, LzmaReader, LzmaWriter};

use crate::{Error, KernelBuilder, MACHINES, Result, TIERS, at, module, ptxas};

/// Bytes of PTX to compress together. A larger group compresses better, because neighbouring
/// entries are similar. But unpacking an entry also unpacks all entries before it in the group.
const GROUP: usize = 1 << 20;

/// LZMA's model for PTX: it predicts a byte from bits of the previous byte.
const TEXT: Model = Model { lc: 3, lp: 0, pb: 0 };

/// LZMA's model for machine code: it predicts a byte from its place in a 16-byte instruction.
const CODE: Model = Model { lc: 0, lp: 2, pb: 4 };

/// The kernels of a crate compiled for one compute capability and those above it: a row of the
/// table that [`embed`] writes.
#[derive(Debug, Hash)]
pub struct Tier {
    /// The lowest compute capability that runs them, as 10 * major + minor.
    pub arch: u32,
    /// The compiler and its version.
    pub compiler: &'static str,
    /// Their version of the PTX language: major and minor.
    pub version: (u32, u32),
    /// The entries, by name.
    pub entries: &'static [Kernel],
    /// The compressed modules of the entries.
    pub groups: &'static [Group],
}

impl Tier {
    /// An entry, by its name.
    pub fn entry(&self, name: &str) -> Option<&'static Kernel> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// The compute capabilities that its entries were assembled for, as 10 * major + minor.
    pub fn machines(&self) -> impl Iterator<Item = u32> {
        self.groups
            .iter()
            .take(1)
            .flat_map(|group| group.machine_code.iter().map(|&(machine, _)| machine))
    }
}

/// An entry of a [`Tier`], with a PTX module of its own.
#[derive(Debug, Hash)]
pub struct Kernel {
    /// The entry's name.
    pub name: &'static str,
    /// Bytes of each parameter.
    pub parameters: &'static [usize],
    /// The group that holds it.
    pub group: &'static Group,
    /// Its place in the group.
    pub index: usize,
}

impl Kernel {
    /// The entry's PTX module; unpacked at each call.
    ///
    /// # Errors
    /// As [`Packed::unpack`], and if the result is not text. [`embed`] did not write the table
    /// then.
    pub fn ptx(&self) -> Result<String, String> {
        let ptx = self.unpack(&self.group.ptx)?;
        String::from_utf8(ptx)
            .map_err(|error| format!("{}: its PTX is not text: {error}", self.name))
    }

    /// Machine code for a device of compute capability `arch`; unpacked at each call. It is code
    /// for that architecture or an older one with the same major number. `None` if the build made
    /// none.
    ///
    /// # Errors
    /// As [`Packed::unpack`].
    pub fn machine_code(&self, arch: u32) -> Result<Option<Vec<u8>>, String> {
        let all = self.group.machine_code;
        let best = machine_for(all.iter().map(|&(machine, _)| machine), arch);
        let code = all.iter().find(|(machine, _)| Some(*machine) == best);
        code.map(|(_, code)| self.unpack(code)).transpose()
    }

    fn unpack(&self, from: &Packed) -> Result<Vec<u8>, String> {
        from.unpack(self.index).map_err(|reason| format!("{}: {reason}", self.name))
    }
}

/// Neighbouring entries of a [`Tier`].
#[derive(Debug, Hash)]
pub struct Group {
    /// Their PTX modules.
    pub ptx: Packed,
    /// Their machine code, by the compute capability of its target.
    pub machine_code: &'static [(u32, Packed)],
}

/// Strings of bytes, compressed together when the program was built.
#[derive(Debug, Hash)]
pub struct Packed {
    /// The length of each string.
    pub lengths: &'static [usize],
    /// The strings as LZMA, with its header.
    pub compressed: &'static [u8],
}

impl Packed {
    /// String number `index`. Later strings are not unpacked.
    ///
    /// # Errors
    /// If the data has fewer bytes than [`Packed::lengths`] states. [`embed`] did not write the
    /// table then.
    pub fn unpack(&self, index: usize) -> Result<Vec<u8>, String> {
        let length = *self
            .lengths
            .get(index)
            .ok_or_else(|| format!("is not one of {}", self.lengths.len()))?;
        let before: usize = self.lengths[..index].iter().sum();
        let read = || {
            let mut reader = LzmaReader::new_mem_limit(self.compressed, u32::MAX, None)?;
            io::copy(&mut reader.by_ref().take(before as u64), &mut io::sink())?;
            let mut bytes = vec![0; length];
            reader.read_exact(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|error: io::Error| format!("cannot be unpacked: {error}"))
    }
}

/// File name of the table that [`embed`] and [`pack`] write beside the compressed kernels.
const TABLE: &str = "kernels.rs";

/// The environment variable that says for which GPUs [`embed`] builds: `all`, `native` for those of
/// this machine, or compute capabilities. `all` if it is not set.
const GPUS: &str = "APRON_GPUS";

/// Compiles the kernels of `builder` for all [`TIERS`], and assembles them for all [`MACHINES`] if
/// ptxas is installed. With `APRON_GPUS=native` in the environment, compiles only the lowest tier
/// and the tiers of this machine's GPUs, and assembles for these GPUs alone, each its own code.
/// With `APRON_GPUS=75,89`, does the same for GPUs of compute capability 7.5 and 8.9. Writes
/// `kernels.rs` into cargo's `OUT_DIR`: an expression of type `&'static [Tier]`. Tells cargo the
/// inputs of the table.
///
/// If the folder of [`KernelBuilder::packed`] exists, copies its table instead and compiles
/// nothing.
///
/// ```ignore
/// static TIERS: &[kernel_builder::Tier] = include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
/// ```
///
/// # Errors
/// If the kernels cannot be compiled, if a file cannot be written, if cargo does not run this
/// program, or if `APRON_GPUS` has another value.
pub fn embed(builder: &KernelBuilder) -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: cargo runs this")?);
    if let Some(packed) = builder.packed.as_ref().filter(|packed| packed.join(TABLE).is_file()) {
        println!("cargo:rerun-if-changed={}", packed.display());
        return Ok(copy_files(packed, &out)?);
    }
    println!("cargo:rerun-if-env-changed={GPUS}");
    let (tiers, machines) = match env::var(GPUS).as_deref() {
        Err(env::VarError::NotPresent) | Ok("all") => (TIERS.to_vec(), MACHINES.to_vec()),
        Ok("native") => serving(&gpus()),
        given => {
            let numbers = given.ok().and_then(capabilities);
            let expected = "all, native, or compute capabilities such as 75,89";
            serving(&numbers.ok_or_else(|| format!("{GPUS} is {given:?}: {expected} is needed"))?)
        }
    };
    for input in write_table(builder, &tiers, &machines, &out)? {
        println!("cargo:rerun-if-changed={}", input.display());
    }
    // A new file changes its folder.
    for folder in builder.sources() {
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    // Machine code depends on the presence of ptxas. PATH is not watched: it differs between
    // editors and shells, and each would rebuild the kernels after the other.
    match ptxas::find() {
        Some(program) => println!("cargo:rerun-if-changed={}", program.display()),
        None => ptxas::VARIABLES
            .iter()
            .for_each(|variable| println!("cargo:rerun-if-env-changed={variable}")),
    }
    Ok(())
}

/// Writes the table of [`embed`] into a new folder, with PTX only: for [`KernelBuilder::packed`],
/// in a package whose dependents need no compiler for kernels.
///
/// # Errors
/// If the kernels cannot be compiled, or if a file cannot be written.
pub fn pack(builder: &KernelBuilder, folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    fs::create_dir_all(folder).map_err(at(folder))?;
    write_table(builder, &TIERS, &[], folder)?;
    Ok(())
}

/// The compute capabilities of this machine's GPUs, as 10 * major + minor, which `nvidia-smi`
/// tells. None without NVIDIA's driver.
pub fn gpus() -> Vec<u32> {
    let ask = ["--query-gpu=compute_cap", "--format=csv,noheader"];
    let Ok(found) = Command::new("nvidia-smi").args(ask).output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    text.lines().filter_map(|line| line.trim().replace('.', "").parse().ok()).collect()
}

/// Compute capabilities that kernels are compiled for, as 10 * major + minor.
fn capabilities(text: &str) -> Option<Vec<u32>> {
    let number = |word: &str| word.parse().ok().filter(|&number| number >= TIERS[0]);
    text.split(',').map(number).collect()
}

/// The tiers and machines that serve these GPUs. The lowest tier, which every GPU runs, is always
/// among them. Each GPU gets machine code of its own.
fn serving(gpus: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let tiers = TIERS.into_iter().filter(|&tier| {
        tier == TIERS[0] || gpus.iter().any(|&gpu| tier_for(&TIERS, gpu) == Some(tier))
    });
    let machines = gpus.iter().copied().filter(|&gpu| gpu >= TIERS[0]);
    (tiers.collect(), machines.collect::<BTreeSet<_>>().into_iter().collect())
}

/// The tier that serves a compute capability.
fn tier_for(tiers: &[u32], arch: u32) -> Option<u32> {
    tiers.iter().copied().filter(|&tier| tier <= arch).max()
}

/// The machine whose code a device of this compute capability runs best: its own, or an older one
/// with the same major number. An integrated GPU runs no code but its own.
fn machine_for(machines: impl Iterator<Item = u32>, arch: u32) -> Option<u32> {
    /// Xavier, Orin, Thor.
    const INTEGRATED: [u32; 3] = [72, 87, 101];
    let runs = |machine: &u32| match INTEGRATED.contains(&arch) {
        true => *machine == arch,
        false => machine / 10 == arch / 10 && *machine <= arch,
    };
    machines.filter(runs).max()
}

/// Writes the table and its files into a folder; returns the input files.
fn write_table(
    builder: &KernelBuilder,
    tiers: &[u32],
    machines: &[u32],
    out: &Path,
) -> Result<Vec<PathBuf>, Box<dyn std::error::Error>> {
    let (mut statics, mut table) = (String::from("{\n"), String::from("    &[\n"));
    let mut all = Vec::new();
    // Builds the tiers in parallel, because each uses a single thread.
    let rows = std::thread::scope(|scope| {
        let build =
            |&arch| scope.spawn(move || row(&for_tier(builder, arch, tiers, machines), arch, out));
        let running: Vec<_> = tiers.iter().map(build).collect();
        let end =
            |tier: ScopedJoinHandle<'_, _>| tier.join().map_err(|_| "the kernel builder panicked");
        running.into_iter().map(end).collect::<Vec<_>>()
    });
    for row in rows {
        let (groups, row, inputs) = row??;
        statics.push_str(&groups);
        table.push_str(&row);
        all.extend(inputs);
    }
    let path = out.join(TABLE);
    fs::write(&path, format!("{statics}{table}    ]\n}}\n")).map_err(at(&path))?;
    Ok(all)
}

/// Copies a folder, with its folders.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(at(to))?;
    for entry in fs::read_dir(from).map_err(at(from))? {
        let entry = entry.map_err(at(from))?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_files(&from, &to)?;
        } else {
            fs::copy(&from, &to).map_err(at(&from))?;
        }
    }
    Ok(())
}

/// A tier's groups, its row of the table, and its input files. The embedded files go into a folder
/// of `out`.
fn row(builder: &KernelBuilder, arch: u32, out: &Path) -> Result<(String, String, Vec<PathBuf>)> {
    let report = builder.build()?;
    let folder = out.join(&report.arch);
    // A new folder, because files of removed entries must not stay.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(at(&folder))?;
    // Compression takes a minute of one core, and cargo embeds the kernels once for each set of
    // features. So it is kept beside the kernels.
    let mut hasher = DefaultHasher::new();
    include_str!("embed.rs").hash(&mut hasher);
    let kept = report.module.with_file_name(format!("packed-{:016x}", hasher.finish()));
    fs::create_dir_all(&kept).map_err(at(&kept))?;
    let unusable =
        |reason: &str| Error::Ptx { arch: report.arch.clone(), reason: reason.to_owned() };
    let modules =
        report.entries.iter().map(|entry| fs::read_to_string(&entry.path).map_err(at(&entry.path)));
    let modules = modules.collect::<Result<Vec<_>>>()?;
    let version = modules
        .first()
        .and_then(|ptx| module::version(ptx))
        .ok_or_else(|| unusable("it names no .version"))?;

    let name = format!("SM_{arch}");
    let (mut entries, mut groups) = (String::new(), String::new());
    let places = places(&modules);
    for (group, place) in places.iter().enumerate() {
        let texts = &modules[place.clone()];
        for (index, (entry, ptx)) in report.entries[place.clone()].iter().zip(texts).enumerate() {
            let entry = &entry.name;
            let parameters = module::parameters(ptx);
            let parameters = parameters.ok_or_else(|| {
                unusable(&format!("{entry}: its parameters are not scalars or arrays"))
            })?;
            let _ = writeln!(
                entries,
                "            ::kernel_builder::Kernel {{ name: {entry:?}, parameters: &{parameters:?}, \
                 group: &{name}[{group}], index: {index} }},"
            );
        }
        let texts: Vec<_> = texts.iter().map(String::as_bytes).collect();
        let ptx = store(&kept, &folder, &format!("{group}.ptx"), &texts, TEXT)?;
        let mut machine_code = String::new();
        for (machine, files) in &report.machine_code {
            let codes = files[place.clone()].iter().map(|file| fs::read(file).map_err(at(file)));
            let codes = codes.collect::<Result<Vec<_>>>()?;
            let codes: Vec<_> = codes.iter().map(Vec::as_slice).collect();
            let packed = store(&kept, &folder, &format!("{group}.{machine}"), &codes, CODE)?;
            let _ = write!(machine_code, "({}, {packed}), ", machine.trim_start_matches("sm_"));
        }
        let _ = writeln!(
            groups,
            "        ::kernel_builder::Group {{ ptx: {ptx}, machine_code: &[{machine_code}] }},"
        );
    }
    let groups = format!(
        "    static {name}: [::kernel_builder::Group; {}] = [\n{groups}    ];\n",
        places.len()
    );
    let row = format!(
        "        ::kernel_builder::Tier {{
            arch: {arch},
            compiler: {:?},
            version: {version:?},
            entries: &[\n{entries}            ],
            groups: &{name},
        }},\n",
        report.compiler
    );
    Ok((groups, row, report.inputs))
}

/// The range of modules in each group.
fn places(modules: &[String]) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, ptx) in modules.iter().enumerate() {
        if index > start && bytes + ptx.len() > GROUP {
            groups.push(start..index);
            (start, bytes) = (index, 0);
        }
        bytes += ptx.len();
    }
    groups.push(start..modules.len());
    groups
}

/// LZMA's parameters: bits of the previous byte (`lc`) and of the position (`lp`, `pb`) that
/// predict a byte.
#[derive(Clone, Copy)]
struct Model {
    lc: u32,
    lp: u32,
    pb: u32,
}

/// Strings of bytes, compressed as one.
fn compress(strings: &[&[u8]], model: Model) -> io::Result<Vec<u8>> {
    let length: usize = strings.iter().map(|string| string.len()).sum();
    let mut options = LzmaOptions::with_preset(9);
    // No larger than the data, because the unpacker allocates the whole dictionary.
    options.dict_size = (length as u32).max(lzma_rust2::DICT_SIZE_MIN);
    (options.lc, options.lp, options.pb) = (model.lc, model.lp, model.pb);
    let mut writer = LzmaWriter::new_use_header(Vec::new(), &options, Some(length as u64))?;
    for string in strings {
        writer.write_all(string)?;
    }
    writer.finish()
}

/// Compresses strings of bytes into a file of `folder`, or copies the one that is `kept`. Returns
/// the source text of the [`Packed`] that embeds it.
fn store(
    kept: &Path,
    folder: &Path,
    file: &str,
    strings: &[&[u8]],
    model: Model,
) -> Result<String> {
    let (kept, path) = (kept.join(file), folder.join(file));
    if !kept.is_file() {
        // The name appears when the file is complete, also for builds that run at once.
        let part = kept.with_added_extension(std::process::id().to_string());
        fs::write(&part, compress(strings, model).map_err(at(&kept))?).map_err(at(&part))?;
        fs::rename(&part, &kept).map_err(at(&kept))?;
    }
    fs::copy(&kept, &path).map_err(at(&path))?;
    let lengths: Vec<_> = strings.iter().map(|string| string.len()).collect();
    let arch = folder.file_name().unwrap_or_default().to_string_lossy();
    Ok(format!(
        "::kernel_builder::Packed {{ lengths: &{lengths:?}, compressed: include_bytes!(concat!(env!(\"OUT_DIR\"), {:?})) }}",
        format!("/{arch}/{file}")
    ))
}

/// The builder for one of the tiers, which assembles for the machines that run no higher one.
fn for_tier(builder: &KernelBuilder, tier: u32, tiers: &[u32], machines: &[u32]) -> KernelBuilder {
    let builder = builder.clone().arch(format!("sm_{tier}"));
    let machines = machines.iter().filter(|&&machine| tier_for(tiers, machine) == Some(tier));
    machines.fold(builder, |builder, machine| builder.assemble(format!("sm_{machine}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(strings: &[&[u8]], model: Model) -> Packed {
        let lengths: Vec<_> = strings.iter().map(|string| string.len()).collect();
        Packed { lengths: lengths.leak(), compressed: compress(strings, model).unwrap().leak() }
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        let strings = [&b".version 9.0"[..], b"", &[7; 100_000], b"the last"];
        for model in [TEXT, CODE] {
            let packed = packed(&strings, model);
            for (index, string) in strings.iter().enumerate() {
                assert_eq!(packed.unpack(index).unwrap(), *string);
            }
            assert!(packed.unpack(strings.len()).is_err());
        }
        assert_eq!(packed(&[b""], TEXT).unpack(0).unwrap(), b"");
    }

    #[test]
    fn other_bytes_are_an_error() {
        let whole = packed(&[b".version 9.0 .target sm_90"], TEXT).compressed;
        for (length, compressed) in
            [(26, &whole[..20]), (26, &[]), (26, b"no such stream"), (27, whole)]
        {
            let packed = Packed { lengths: vec![length].leak(), compressed };
            assert!(packed.unpack(0).is_err(), "{length} {compressed:?}");
        }
        let group = Group { ptx: packed(&[&[0xff; 4]], TEXT), machine_code: &[] };
        let kernel =
            Kernel { name: "first", parameters: &[], group: Box::leak(Box::new(group)), index: 0 };
        assert!(kernel.ptx().unwrap_err().contains("first"));
    }

    #[test]
    fn machine_code_runs_on_its_own_and_on_later_minor_numbers() {
        let code = [
            (80, packed(&[b"80"], CODE)),
            (86, packed(&[b"86"], CODE)),
            (90, packed(&[b"90"], CODE)),
        ];
        let group = Group { ptx: packed(&[b""], TEXT), machine_code: Box::leak(Box::new(code)) };
        let kernel =
            Kernel { name: "first", parameters: &[], group: Box::leak(Box::new(group)), index: 0 };
        let found =
            |arch| kernel.machine_code(arch).unwrap().map(|code| String::from_utf8(code).unwrap());
        let cases = [
            (75, None),
            (80, Some("80")),
            (86, Some("86")),
            (87, None),
            (89, Some("86")),
            (90, Some("90")),
            (100, None),
        ];
        for (arch, code) in cases {
            assert_eq!(found(arch).as_deref(), code, "{arch}");
        }
    }

    #[test]
    fn a_native_build_serves_the_gpus_that_are_there() {
        for (gpus, tiers, machines) in [
            (&[][..], &[75][..], &[][..]),
            (&[61], &[75], &[]),
            (&[75], &[75], &[75]),
            (&[89, 86, 89], &[75], &[86, 89]),
            (&[90], &[75, 90], &[90]),
            (&[80, 120], &[75, 90], &[80, 120]),
        ] {
            assert_eq!(serving(gpus), (tiers.to_vec(), machines.to_vec()), "{gpus:?}");
        }
        assert_eq!(capabilities("75,120"), Some(vec![75, 120]));
        for wrong in ["", "75,", "8.9", "61", "sm_90", "75 89"] {
            assert_eq!(capabilities(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn groups_hold_all_modules_in_order() {
        let modules = [10, GROUP, 5, GROUP - 5, 1, 2].map(|bytes| " ".repeat(bytes));
        assert_eq!(places(&modules), [0..1, 1..2, 2..4, 4..6]);
    }
}
