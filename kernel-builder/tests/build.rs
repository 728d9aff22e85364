//! Small crates of kernels, compiled as by a build script.

use std::fs;
use std::path::Path;
use std::thread;

use kernel_builder::{Error, KernelBuilder, Report, ptxas};

const HEADER: &str = "
#![no_std]
#![feature(abi_ptx, stdarch_nvptx)]
use core::arch::nvptx::_thread_idx_x;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe { core::arch::nvptx::trap() }
}
";

const KERNELS: &str = "
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn double(data: *mut i32) {
    let cell = unsafe { &mut *data.add(_thread_idx_x() as usize) };
    *cell = *cell * 2;
}

#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn checked(data: *mut i32, values: *const [i32; 4]) {
    unsafe { *data = (&*values)[_thread_idx_x() as usize] };
}
";

/// A crate with this source, in a folder whose name differs from other tests'.
fn krate(folder: &Path, source: &str) -> KernelBuilder {
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("src/lib.rs"), format!("{HEADER}{source}")).unwrap();
    KernelBuilder::new(folder)
}

fn read(report: &Report, entry: &str) -> String {
    let entry =
        report.entries.iter().find(|found| found.name == entry).expect("the entry is there");
    fs::read_to_string(&entry.path).unwrap()
}

#[test]
fn tiers_are_built_side_by_side_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let builder = krate(&folder.path().join("tiers"), KERNELS);
    let build = |arch: &str| builder.clone().arch(arch).build().unwrap();
    let reports = thread::scope(|scope| {
        ["sm_75", "sm_90", "sm_90"]
            .map(|arch| scope.spawn(move || build(arch)))
            .map(|thread| thread.join().unwrap())
    });
    for (report, arch) in reports.iter().zip(["sm_75", "sm_90", "sm_90"]) {
        let names: Vec<_> = report.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["checked", "double"]);
        assert!(report.compiler.starts_with("rustc 1."));
        let double = read(report, "double");
        assert!(double.contains(&format!(".target {arch}\n")), "{double}");
        assert!(
            double.contains(".entry double(") && !double.contains(".entry checked("),
            "{double}"
        );
    }
    let written = |report: &Report| fs::metadata(&report.module).unwrap().modified().unwrap();
    let before = written(&reports[1]);
    assert_eq!(written(&build("sm_90")), before);
}

#[test]
fn what_is_used_of_core_is_part_of_the_module() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.ptx");
    let builder = krate(&folder.path().join("core-use"), KERNELS).arch("sm_90").copy_to(&copy);
    for (release, overflow_is_checked) in [(true, false), (false, true)] {
        let report = builder.clone().release(release).build().unwrap();
        assert_eq!(fs::read(&copy).unwrap(), fs::read(&report.module).unwrap());
        // An index out of range panics, in a function of `core`.
        let checked = read(&report, "checked");
        assert!(checked.contains("trap") && !checked.contains(".extern .func"), "{checked}");
        assert_eq!(read(&report, "double").contains("mul_overflow"), overflow_is_checked);
        for entry in &report.entries {
            if let Some(usage) = ptxas::check(&entry.path, "sm_90").unwrap() {
                assert_eq!(usage.len(), 1);
                assert_eq!(usage[0].entry, entry.name);
                assert!(usage[0].registers > 0);
            }
        }
    }
}

#[test]
fn the_language_version_can_be_raised() {
    let folder = tempfile::tempdir().unwrap();
    let builder = krate(&folder.path().join("version"), KERNELS).arch("sm_90");
    let version = |report: Report| {
        let ptx = fs::read_to_string(report.module).unwrap();
        ptx.lines().find_map(|line| line.strip_prefix(".version ").map(str::to_owned)).unwrap()
    };
    assert_eq!(version(builder.clone().ptx_isa(83).build().unwrap()), "8.3");
    assert_ne!(version(builder.build().unwrap()), "8.3");
}

/// A crate includes a file of another folder. It is compiled again when that file changes, and only
/// then.
#[test]
fn a_further_folder_is_a_part_of_the_crate() {
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared");
    fs::create_dir_all(&shared).unwrap();
    let write = |factor: i32| {
        fs::write(shared.join("factor.rs"), format!("pub const FACTOR: i32 = {factor};")).unwrap()
    };
    write(3);
    let source = KERNELS.replace("*cell * 2", "*cell * factor::FACTOR");
    let source = format!("#[path = \"../../shared/factor.rs\"] mod factor; {source}");
    let builder = krate(&folder.path().join("with"), &source).with(&shared);
    let build = || {
        let report = builder.build().unwrap();
        assert!(
            report.inputs.iter().any(|input| input.ends_with("factor.rs")),
            "{:?}",
            report.inputs
        );
        (fs::metadata(&report.module).unwrap().modified().unwrap(), report.module)
    };
    let first = build();
    assert_eq!(build(), first);
    write(5);
    assert_ne!(build().1, first.1);
    write(3);
    assert_eq!(build(), first);
}

#[test]
fn a_change_is_compiled_and_a_fault_reported() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("change");
    let before = krate(&place, "").build();
    assert!(matches!(before, Err(Error::Ptx { .. })), "{before:?}");
    let fault = krate(&place, "fn wrong() -> u32 { \"text\" }").build();
    let Err(Error::Compile { log, .. }) = &fault else { panic!("{fault:?}") };
    assert!(log.contains("mismatched types"), "{log}");
    let after = krate(&place, &KERNELS.replace("double", "renamed")).build().unwrap();
    assert_eq!(after.entries[1].name, "renamed");
    assert!(
        krate(&place, &format!("{KERNELS} fn unused() {{}}"))
            .build()
            .unwrap()
            .warnings
            .contains("unused")
    );
    assert!(matches!(KernelBuilder::new(place.join("missing")).build(), Err(Error::Io { .. })));
}

/// The crate `device`: functions that a kernel calls become instructions of its own PTX.
#[test]
fn kernels_may_ask_for_device_functions() {
    let folder = tempfile::tempdir().unwrap();
    let krate = folder.path().join("with-device");
    fs::create_dir_all(krate.join("src")).unwrap();
    let source = "
        #![no_std]
        #![feature(abi_ptx)]
        extern crate device;
        use device::{Shared, barrier, block_x, kernel, load, load2, load4, mma, reload, store, store4, thread_x};

        kernel! {
            /// Swaps neighbours through shared memory.
            fn swap(from: *const f32, to: *mut f32) {
                let (i, tile) = (thread_x(), Shared::dynamic());
                let [a, b] = load2(from, 2 * i as usize);
                tile.store(2 * i, b);
                tile.store(2 * i + 1, a);
                barrier();
                let [.., last] = tile.load4::<f32>(0);
                store(to, block_x() as usize, tile.load::<f32>(i) + last + reload(to, 0));
            }

            /// The product of two matrices of bytes, by one warp.
            fn product(a: *const u32, b: *const u32, to: *mut i32) {
                let i = thread_x() as usize;
                store4(to, 4 * i, mma([0; 4], load4(a, 4 * i), [load(b, i), load(b, i + 32)]));
            }
        }";
    fs::write(krate.join("src/lib.rs"), source).unwrap();
    let report = KernelBuilder::new(&krate).device().arch("sm_90").build().unwrap();
    let swap = read(&report, "swap");
    let expected = [
        "ld.global.nc.v2.b32",
        "ld.global.b32",
        "st.shared.b32",
        "bar.sync",
        "ld.shared.v4.b32",
        "st.global.b32",
    ];
    for part in
        expected.iter().chain(&[".extern .shared .align 16 .b8 dynamic_shared[]", "%ctaid.x"])
    {
        assert!(swap.contains(part), "no {part} in\n{swap}");
    }
    assert!(!swap.contains("call") && report.warnings.is_empty(), "{}\n{swap}", report.warnings);
    let product = read(&report, "product");
    for part in ["mma.sync.aligned.m16n8k32", "ld.global.nc.v4.b32", "st.global.v4.b32"] {
        assert!(product.contains(part), "no {part} in\n{product}");
    }
    // Devices without this instruction multiply in quarters.
    let older = KernelBuilder::new(&krate).device().arch("sm_75").build().unwrap();
    assert_eq!(read(&older, "product").matches("mma.sync.aligned.m8n8k16").count(), 4);
    for (report, arch) in [(&report, "sm_90"), (&older, "sm_75")] {
        for entry in &report.entries {
            if let Some(usage) = ptxas::check(&entry.path, arch).unwrap() {
                assert_eq!(usage[0].entry, entry.name);
            }
        }
    }
    // Without `device()`, the crate is missing.
    assert!(matches!(KernelBuilder::new(&krate).arch("sm_90").build(), Err(Error::Compile { .. })));
}
