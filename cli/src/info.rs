//! The output of `apron info` and `apron filters`.

use std::io::{self, Write};

use apron::{Filter, Gradient, Need, Variant};

/// Devices, kernels and variants.
pub(crate) fn info(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "apron {}\n\nDevices", env!("CARGO_PKG_VERSION"))?;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    writeln!(out, "  cpu    {threads} threads")?;
    gpus(out)?;
    writeln!(out, "\nVariants (on the CPU, all variants of a family run the same code)")?;
    for variant in Variant::all() {
        let family = format!("{:?}", variant.family()).to_lowercase();
        writeln!(out, "  {variant:<16} {family:<10} {}", variant.summary())?;
    }
    Ok(())
}

#[cfg(feature = "gpu")]
fn gpus(out: &mut dyn Write) -> io::Result<()> {
    use apron::gpu::{Gpu, embedded, kernels_in_use};

    match Gpu::count() {
        Ok(count) => {
            for ordinal in 0..count {
                match Gpu::open(ordinal) {
                    Ok(gpu) => {
                        let info = gpu.info();
                        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
                        writeln!(
                            out,
                            "  gpu:{ordinal}  {}: compute capability {}.{}, {} multiprocessors, {:.1} GiB memory, runs sm_{}",
                            info.name,
                            info.capability.0,
                            info.capability.1,
                            info.multiprocessors,
                            gib(info.memory),
                            gpu.tier(),
                        )?;
                        if ordinal == count - 1 {
                            writeln!(
                                out,
                                "  NVIDIA driver for CUDA {}.{}",
                                info.driver.0, info.driver.1
                            )?;
                        }
                    }
                    Err(error) => writeln!(out, "  gpu:{ordinal}  cannot be used: {error}")?,
                }
            }
            writeln!(out, "  auto   is cpu or gpu:0, whichever is faster for each call")?;
        }
        Err(error) => no_gpu(out, &error)?,
    }
    writeln!(out, "\nKernels in this build, as PTX")?;
    for tier in embedded() {
        let packed: usize = tier.groups.iter().map(|group| group.ptx.compressed.len()).sum();
        let bytes: usize = tier.groups.iter().flat_map(|group| group.ptx.lengths).sum();
        let (count, packed, bytes) =
            (tier.entries.len(), packed.div_ceil(1024), bytes.div_ceil(1024));
        write!(
            out,
            "  sm_{:<4} {count} entries, {bytes} KiB, compressed to {packed}, by {}",
            tier.arch, tier.compiler
        )?;
        let machines: Vec<_> = tier.machines().map(|arch| format!("sm_{arch}")).collect();
        if !machines.is_empty() {
            write!(out, "; machine code for {}", machines.join(", "))?;
        }
        writeln!(out)?;
    }
    if let Some(kernels) = kernels_in_use() {
        let (count, bytes) = kernels
            .entries()
            .fold((0, 0), |(count, bytes), (_, ptx)| (count + 1, bytes + ptx.len()));
        let (path, arch, compiler) = (kernels.path().display(), kernels.arch(), kernels.compiler());
        writeln!(out, "\nKernels taken from {path}")?;
        writeln!(
            out,
            "  sm_{arch:<4} {count} entries, {} KiB, by {compiler}",
            bytes.div_ceil(1024)
        )?;
        let missing: Vec<_> = kernels.missing().collect();
        if !missing.is_empty() {
            writeln!(out, "  not in the file, so taken from this build: {}", missing.join(" "))?;
        }
    }
    Ok(())
}

#[cfg(not(feature = "gpu"))]
fn gpus(out: &mut dyn Write) -> io::Result<()> {
    no_gpu(
        out,
        &apron::Error::NoGpu { reason: "this build has no GPU support (feature \"gpu\")".into() },
    )
}

fn no_gpu(out: &mut dyn Write, error: &apron::Error) -> io::Result<()> {
    writeln!(out, "  no GPU: {}\n  auto   is cpu", why_no_gpu(error))
}

/// The reason alone, without advice.
pub(crate) fn why_no_gpu(error: &apron::Error) -> String {
    match error {
        apron::Error::NoGpu { reason } => reason.clone(),
        error => error.to_string(),
    }
}

/// Every filter that has a name.
pub(crate) fn filters(out: &mut dyn Write) -> io::Result<()> {
    let also = |aliases: &[&str]| match aliases {
        [] => String::new(),
        aliases => format!(" (also: {})", aliases.join(", ")),
    };
    for preset in Filter::PRESETS {
        write!(out, "{:<12} {}{}", preset.name, preset.summary, also(preset.aliases))?;
        match preset.needs {
            "" => writeln!(out)?,
            needs => writeln!(out, "; needs {needs}")?,
        }
        for parameter in preset.parameters {
            let required = if parameter.name == preset.needs { "required: " } else { "" };
            let default = match parameter.need {
                Need::Default(value) => format!("; {value} by default"),
                _ => String::new(),
            };
            writeln!(
                out,
                "  {:<10} {required}{}{default}{}",
                parameter.name,
                parameter.meaning,
                also(parameter.aliases)
            )?;
        }
    }
    for (name, summary) in Gradient::NAMES {
        writeln!(out, "{name:<13} {summary}")?;
    }
    writeln!(
        out,
        "{:<12} any taps, row by row, as in \"taps:0 1 0; 1 -4 1; 0 1 0\"\n\
         {:<12} a row and a column, as in \"separable:row=1 2 1,column=-1 0 1\"\n\n\
         Parameters follow a colon, with commas between them: gaussian:sigma=2,size=9 or gaussian:sigma-x=3,sigma-y=1. The name\n\
         of the first may be left out: gaussian:2. A column and a row after an @ choose the tap that lies on the output pixel, instead of\n\
         the middle one: box:size=4@1,1",
        "taps", "separable"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_names_every_variant() {
        let mut text = Vec::new();
        info(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for variant in Variant::all() {
            assert!(text.contains(variant.name()));
        }
        assert!(text.contains("cpu"));
    }

    #[test]
    fn filters_names_every_preset_and_parameter() {
        let mut text = Vec::new();
        filters(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for preset in Filter::PRESETS {
            assert!(
                text.contains(preset.name)
                    && preset.parameters.iter().all(|it| text.contains(it.name))
            );
            assert!(
                preset.aliases.iter().all(|alias| text.contains(alias))
                    && text.contains(preset.needs)
            );
        }
        assert!(Gradient::NAMES.iter().all(|(name, _)| text.contains(name)));
        for example in [
            "taps:0 1 0; 1 -4 1; 0 1 0",
            "separable:row=1 2 1,column=-1 0 1",
            "gaussian:sigma=2,size=9",
            "gaussian:sigma-x=3,sigma-y=1",
            "gaussian:2",
            "box:size=4@1,1",
        ] {
            assert!(text.contains(example) && example.parse::<Filter>().is_ok());
        }
    }
}
