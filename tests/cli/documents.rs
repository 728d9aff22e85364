//! The commands in `README.md` and `cli/README.md`, run unchanged.

use std::process::{Command, Output};

use libtest_mimic::{Failed, Trial};

use crate::tool::{Bench, PICTURES, apron, npy};

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("README.md", include_str!("../../README.md"), 3),
        ("cli/README.md", include_str!("../../cli/README.md"), 25),
    ]
    .map(|(name, text, least)| {
        // Windows has no shell that takes these lines.
        Trial::test(format!("documents::{name}"), move || commands(text, least))
            .with_ignored_flag(cfg!(windows))
    })
    .into()
}

/// The inputs of the commands. The tool makes the files from these lines.
const INPUTS: &str = "
apron filter assets/astronaut.png photo.png --filter identity
apron filter assets/astronaut.png photo.jpg --filter identity
apron filter assets/moon.png field.npy --output-type f32 --filter identity
apron filter volume.npy document.tif --axes zyx --filter identity
apron filter logo.npy logo.png --filter identity
cat logo.png logo.png logo.png | apron filter - anim.gif --filter identity
mkdir -p photos/inner scans
apron filter heat.npy dem.tif --filter identity
cp photo.png mask.png
apron filter assets/moon.png scans/a.tif --filter identity
cp scans/a.tif scans/b.tif
cp photo.png in.png
cp photo.png page1.png
cp photo.png page2.png
cp photo.jpg photos/a.jpg
cp photo.png photos/b.png
cp photo.jpg photos/inner/c.jpg";

fn commands(text: &str, least: usize) -> Result<(), Failed> {
    let bench = Bench::new();
    std::fs::create_dir(bench.path().join("assets"))?;
    for (name, contents) in PICTURES {
        bench.put(&format!("assets/{name}"), contents);
    }
    bench.put("volume.npy", &npy("|u1", "(3, 20, 30)", &[7; 1800]));
    bench.put(
        "logo.npy",
        &npy("|u1", "(8, 12, 4)", &(0..=255).cycle().take(384).collect::<Vec<u8>>()),
    );
    bench.put("render.exr", include_bytes!("../../fuzz/corpus/picture/layers.exr"));
    let heat = |i: usize| if i.is_multiple_of(7) { f32::NAN } else { i as f32 };
    let heat: Vec<u8> = (0..600).flat_map(|i| heat(i).to_le_bytes()).collect();
    bench.put("heat.npy", &npy("<f4", "(20, 30)", &heat));
    bench.put("in.rgb", &vec![90; 2 * 1920 * 1080 * 3]);
    let frame = [90; 64 * 48 * 3 / 2];
    bench.put("in.y4m", &[b"YUV4MPEG2 W64 H48\nFRAME\n", &frame[..]].concat());
    for line in INPUTS.lines().filter(|line| !line.is_empty()) {
        succeed(&bench, line)?;
    }
    let mut run = 0;
    for line in shown(text) {
        succeed(&bench, line)?;
        run += 1;
    }
    if run < least {
        Err(format!("{run} commands were found, {least} at least were expected").into())
    } else {
        Ok(())
    }
}

/// The lines of a text's code blocks that run the tool, without their comments.
fn shown(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.split("```text\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let lines = blocks.flat_map(|(block, _)| block.lines());
    let lines = lines.map(|line| line.split_once(" #").map_or(line, |(command, _)| command).trim());
    // Videos need another program, and PTX files need a build.
    lines.filter(|line| {
        line.split(' ').any(|word| word == "apron")
            && !line.contains("ffmpeg")
            && !line.contains("--ptx")
    })
}

pub(crate) fn succeed(bench: &Bench, line: &str) -> Result<(), Failed> {
    let Output { status, stderr, .. } = shell(bench, line)?;
    let said = String::from_utf8_lossy(&stderr);
    if status.success() { Ok(()) } else { Err(format!("{line}: {status}, {said}").into()) }
}

/// Runs a line in a shell whose search path has the tool.
fn shell(bench: &Bench, line: &str) -> Result<Output, Failed> {
    let tool = apron()?.canonicalize()?;
    let folder = tool.parent().ok_or("the tool is in no folder")?.as_os_str();
    let mut path = folder.to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    Ok(Command::new("bash")
        .args(["-o", "pipefail", "-c", line])
        .current_dir(bench.path())
        .env("PATH", path)
        .output()?)
}
