//! `cargo xtask ptx`: compiles the kernels for every tier, and lists the registers and spills of
//! each entry.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use kernel_builder::ptxas::Usage;
use kernel_builder::{KernelBuilder, Module, TIERS, module, ptxas};

use crate::{print, root, rust_cuda};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The compiler: rustc's own NVPTX backend, or rust-cuda's, which needs more tools: see
    /// rust-cuda/README.md.
    #[arg(long, value_enum, default_value_t)]
    compiler: Compiler,
    /// Compile for these architectures only, such as sm_90.
    #[arg(long, value_name = "ARCH")]
    arch: Vec<String>,
    /// Compile with checks for overflow and debug assertions, and with little optimisation.
    #[arg(long)]
    debug: bool,
    /// Also write the module of apron's own kernels to this file, for `apron --ptx`; needs one
    /// --arch.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Fail if the compiler warns, if ptxas is missing, if an entry spills registers to memory or
    /// has a stack frame, if it computes in f64 though bytes are whole numbers, or if it needs
    /// clearly more registers than gpu-kernels/registers.txt or studies/registers.txt lists.
    #[arg(long)]
    strict: bool,
    /// Write the registers that each entry needs to those two files.
    #[arg(long, conflicts_with_all = ["debug", "strict", "arch", "compiler"])]
    write: bool,
}

/// Compilers of the same source.
#[derive(Clone, Copy, Debug, Default, PartialEq, clap::ValueEnum)]
enum Compiler {
    #[default]
    Rustc,
    RustCuda,
}

/// A crate of kernels.
#[derive(Clone, Copy, Debug)]
struct Set {
    package: &'static str,
    folder: &'static str,
    /// Further folders of its source.
    with: &'static [&'static str],
    /// The committed list: entry, tier, registers of a thread.
    list: &'static str,
}

/// apron's own kernels, and the studies'.
const SETS: [Set; 2] = [
    Set {
        package: "gpu-kernels",
        folder: "gpu-kernels",
        with: &[],
        list: "gpu-kernels/registers.txt",
    },
    Set {
        package: "study-kernels",
        folder: "studies/kernels",
        with: &["gpu-kernels/src"],
        list: "studies/registers.txt",
    },
];

/// By how many registers an entry may exceed the list: compilers of other versions differ a little.
const SLACK: u32 = 8;

/// Entries that may spill: how their names begin, and bytes of spill stores and loads together.
/// They may have a stack frame for these bytes. Limits on registers make room for more warps.
/// Unless the list below says otherwise, the spills are in code for the image's edges.
///
/// Times on an H200 in us, 8192x8192 u8 unless noted:
///
/// | kernel | no limit | with the limit |
/// | --- | ---: | ---: |
/// | 3x3 | 160 | 144 |
/// | three channels, 5x5 | 927 | 641 |
/// | three channels, 7x7 | 1325 | 1087 |
/// | three channels, fused 5 | 848 | 467 |
/// | three channels, fused 17 | 1327 | 1229 |
/// | three channels, fused 33 | 3893 | 3286 |
/// | `gradient_8bit`, u8 to f32; without the limit half as many pixels a lane | 228 | 171 |
/// | `separable_columns_`, f32, 17 taps | 459 | 429 |
///
/// Lower limits, which spill more, are slower again. For rows of bytes in memory order (`_flat_`),
/// kernels alone:
///
/// | kernel | a limit without spills | a limit with spills |
/// | --- | ---: | ---: |
/// | 5x5 | 111 | 101 |
/// | three channels, 3x3 | 162 | 154 |
/// | three channels, fused 7 | 253 | 237 |
/// | three channels, 7x7 | 687 | 663 |
/// | four channels, 7x7 | 947 | 914 |
///
/// - `matrix_` spills a few registers around its loop over tiles, none in the loop over taps.
/// - `gradient_flat_c4` spills 32 bytes.
/// - Kernels for 16 bits spill for small windows on compute capability 7.5, and for fused 7 and 9.
/// - `separable_columns_` spills in code for edges and epilogues, so that twice as many warps run.
/// - `fourier_stored_` and `fourier_bytes_64` spill values that are the same for all rows of a
///   tile.
/// - `separable_matrix_` spills in code for edges and once for each 16 rows, most on compute
///   capability 7.5 with de-interleaved channels.
/// - `passes_` and `separable_tile_` spill on compute capability 7.5 alone.
/// - `fourier_large_rows_bytes` spills on compute capability 7.5. Its limit leaves room for three
///   blocks on a multiprocessor instead of two: 35 us instead of 40.
/// - `spectra_1024_` and others spill values that are the same for all numbers of a thread, so that
///   twice as many warps run.
/// - `running_sums_far` spills a few registers, as does `running_sums_near_c2` on compute
///   capability 7.5.
///
/// Entries without two times above were measured only with their spills.
const SPILLS: [(&str, u32); 23] = [
    ("fused_flat_", 280),
    ("fused_u16_", 64),
    ("fused_f16_", 64),
    ("sliding_8bit_", 320),
    ("fused_8bit_", 320),
    ("sliding_flat_", 240),
    ("sliding_u16_", 48),
    ("sliding_f16_", 48),
    ("gradient_flat_", 32),
    ("gradient_8bit", 200),
    ("passes_", 192),
    ("fourier_stored_", 160),
    ("fourier_bytes_64", 28),
    ("fourier_large_rows_bytes", 48),
    ("matrix_", 64),
    ("separable_matrix_", 180),
    ("separable_columns_", 276),
    ("separable_rows_", 8),
    ("separable_tile_each", 312),
    ("separable_tile_", 16),
    ("spectra_", 360),
    ("running_sums_far", 68),
    ("running_sums_near_c2", 8),
];

/// The entries that may compute in f64, which most GPUs have at 1/64 of the rate of f32. `weighted`
/// weights colours of other types than u8 by alpha, and the sums over arrays are SciPy's. All other
/// entries need no f64: 8-bit results are computed in whole numbers.
const IN_F64: [&str; 6] = [
    "array_converted",
    "array_in_order",
    "array_joined",
    "array_paired",
    "array_running",
    "weighted",
];

/// Whether an entry has an instruction on f64.
fn is_in_f64(ptx: &str) -> bool {
    let instruction = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with('@'));
        words.next().is_some_and(|word| !word.starts_with('.') && word.contains(".f64"))
    };
    ptx.lines().any(instruction)
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let archs = match options.arch.as_slice() {
        [] => TIERS.map(|tier| format!("sm_{tier}")).to_vec(),
        archs => archs.to_vec(),
    };
    if options.out.is_some() && archs.len() != 1 {
        bail!("--out writes one module: name its architecture, such as --arch sm_90");
    }
    if options.compiler == Compiler::RustCuda {
        if options.debug {
            bail!("--debug works with --compiler rustc only");
        }
        // Missing tools are reported before anything is compiled.
        rust_cuda::prerequisites()?;
    }
    let assembler = ptxas::find();
    match &assembler {
        Some(path) => print(&format!("ptxas: {}\n", path.display()))?,
        None => print(&format!(
            "ptxas: not found, so registers and spills are unknown; {}\n",
            ptxas::REMEDIES.join(", or ")
        ))?,
    }
    let mut faults = Vec::new();
    if options.strict && assembler.is_none() {
        faults.push("ptxas is missing".to_owned());
    }
    for set in SETS {
        let mut registers = BTreeMap::new();
        // Each architecture is a single thread's work, for the compiler and for ptxas.
        let made: Vec<Result<(Compiled, Option<Vec<Usage>>)>> = std::thread::scope(|scope| {
            let make = |arch: &String| -> Result<(Compiled, Option<Vec<Usage>>)> {
                let compiled = match options.compiler {
                    Compiler::Rustc => Compiled::by_rustc(set, arch, !options.debug)?,
                    Compiler::RustCuda => Compiled::by_rust_cuda(set, arch)?,
                };
                let usages = ptxas::check(&compiled.path, arch)?;
                Ok((compiled, usages))
            };
            let threads: Vec<_> =
                archs.iter().map(|arch| scope.spawn(move || make(arch))).collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended
                .map(|made| made.unwrap_or_else(|_| bail!("the compiler's thread panicked")))
                .collect()
        });
        for (arch, made) in archs.iter().zip(made) {
            let (compiled, usages) = made?;
            let Compiled { module, path, warnings } = &compiled;
            let mut text = format!(
                "\n{}, {arch}, {}: {} entries",
                set.package,
                module.compiler,
                module.entries.len()
            );
            writeln!(text, ", {}", path.display())?;
            if !warnings.is_empty() {
                writeln!(text, "{warnings}")?;
                faults.push(format!("{}, {arch}: the compiler warns", set.package));
            }
            if options.compiler == Compiler::RustCuda {
                let has = |entry: &str| module.entries.iter().any(|(name, _)| name == entry);
                let absent =
                    set.listed()?.into_keys().filter(|(entry, tier)| tier == arch && !has(entry));
                faults.extend(absent.map(|(entry, _)| format!("{entry} for {arch} is not there")));
            }
            list((&compiled, usages), arch, &mut text, &mut faults, &mut registers)?;
            if set.package == "gpu-kernels" {
                let breaks =
                    |(name, ptx): &&(String, String)| !IN_F64.contains(&&**name) && is_in_f64(ptx);
                faults.extend(
                    module
                        .entries
                        .iter()
                        .filter(breaks)
                        .map(|(name, _)| format!("{name} for {arch} computes in f64")),
                );
            }
            print(&text)?;
            if let (Some(out), "gpu-kernels") = (&options.out, set.package) {
                std::fs::write(out, &module.text).with_context(|| out.display().to_string())?;
            }
        }
        if options.write {
            let lines: String = registers
                .iter()
                .map(|((entry, arch), count)| format!("{entry} {arch} {count}\n"))
                .collect();
            std::fs::write(root().join(set.list), lines).context(set.list)?;
        } else if options.compiler == Compiler::Rustc && !options.debug && !registers.is_empty() {
            set.compare(&registers, &archs, &mut faults)?;
        }
    }
    if options.strict && !faults.is_empty() {
        bail!("{}", faults.join("; "));
    }
    Ok(ExitCode::SUCCESS)
}

/// The kernels for one architecture.
struct Compiled {
    module: Module,
    path: PathBuf,
    /// The compiler's warnings.
    warnings: String,
}

impl Compiled {
    fn by_rustc(set: Set, arch: &str, release: bool) -> Result<Self> {
        let builder = KernelBuilder::new(root().join(set.folder)).arch(arch).release(release);
        let report = set
            .with
            .iter()
            .fold(builder, |builder, folder| builder.with(root().join(folder)))
            .build()?;
        let text = std::fs::read_to_string(&report.module)
            .with_context(|| report.module.display().to_string())?;
        let module = Module::read(&text).map_err(anyhow::Error::msg)?;
        Ok(Self { module, path: report.module, warnings: report.warnings })
    }

    fn by_rust_cuda(set: Set, arch: &str) -> Result<Self> {
        let module = rust_cuda::compile(set.package, arch)?;
        let path = root().join("rust-cuda/target").join(format!("{}-{arch}.ptx", set.package));
        std::fs::write(&path, &module.text).with_context(|| path.display().to_string())?;
        Ok(Self { module, path, warnings: String::new() })
    }
}

/// Registers by entry and architecture.
type Registers = BTreeMap<(String, String), u32>;

impl Set {
    /// The committed list.
    fn listed(self) -> Result<Registers> {
        let text = std::fs::read_to_string(root().join(self.list)).context(self.list)?;
        let listed: Option<Registers> = text
            .lines()
            .map(|line| {
                let mut words = line.split_whitespace();
                Some((
                    (words.next()?.to_owned(), words.next()?.to_owned()),
                    words.next()?.parse().ok()?,
                ))
            })
            .collect();
        listed.with_context(|| {
            format!("{}: a line is not an entry, an architecture and a number", self.list)
        })
    }

    /// Compares the registers with the committed list.
    fn compare(self, found: &Registers, archs: &[String], faults: &mut Vec<String>) -> Result<()> {
        let (list, listed) = (self.list, self.listed()?);
        for ((entry, arch), count) in found {
            match listed.get(&(entry.clone(), arch.clone())) {
                None => faults.push(format!(
                    "{entry} for {arch} is not in {list}; `cargo xtask ptx --write` renews it"
                )),
                Some(listed) if *count > listed + SLACK => {
                    faults.push(format!(
                        "{entry} for {arch} needs {count} registers, {list} has {listed}"
                    ));
                }
                Some(_) => {}
            }
        }
        let gone = listed.keys().filter(|key| archs.contains(&key.1) && !found.contains_key(*key));
        faults.extend(
            gone.map(|(entry, arch)| format!("{entry} for {arch} is in {list} and nowhere else")),
        );
        Ok(())
    }
}

/// Adds a line for each entry of a tier; records its registers, and the entries that use local
/// memory.
fn list(
    (compiled, usages): (&Compiled, Option<Vec<Usage>>),
    arch: &str,
    text: &mut String,
    faults: &mut Vec<String>,
    registers: &mut Registers,
) -> Result<()> {
    let entries = &compiled.module.entries;
    let Some(usages) = usages else {
        for (name, _) in entries {
            writeln!(text, "{name}")?;
        }
        return Ok(());
    };
    let wide = entries.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    writeln!(
        text,
        "{:wide$} {:>9} {:>6} {:>6} {:>6} {:>9} {:>12}",
        "entry", "registers", "stack", "spills", "shared", "PTX bytes", "instructions"
    )?;
    for (name, ptx) in entries {
        let Some(usage) = usages.iter().find(|usage| usage.entry == *name) else {
            bail!("ptxas does not list entry {name}");
        };
        registers.insert((name.clone(), arch.to_owned()), usage.registers);
        let spills = usage.spill_stores + usage.spill_loads;
        let may_spill = SPILLS
            .iter()
            .find(|(prefix, _)| name.starts_with(prefix))
            .map_or(0, |&(_, bytes)| bytes);
        if spills > may_spill {
            faults.push(format!("{name} for {arch} spills {spills} bytes"));
        } else if usage.stack > 0 && may_spill == 0 {
            faults.push(format!("{name} for {arch} has a stack frame of {} bytes", usage.stack));
        }
        writeln!(
            text,
            "{name:wide$} {:>9} {:>6} {spills:>6} {:>6} {:>9} {:>12}",
            usage.registers,
            usage.stack,
            usage.shared,
            ptx.len(),
            module::instructions(ptx)
        )?;
    }
    Ok(())
}
