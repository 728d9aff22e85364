//! Holds every variant of apron on the GPU, every family on the CPU, and every study, to the
//! package `oracle`, which shares no code with apron.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`bounds`] | the table of tolerances, and why each is what it is |
//! | [`sample`] | stored types with conversions of their own, random values, poison |
//! | [`problem`], [`select`] | what is filtered with what |
//! | [`runner`], [`suite`] | solve problems, check every pixel and what lies between, count, report |
//! | [`product`] | the product: variants on the GPU, families on the CPU |
//! | [`study`] | the studies on the CPU and the GPU |
//! | [`report`] | pictures of what went wrong |
//! | [`hostile`] | targets for a fuzzer |
//! | [`built`] | the tool and the emulator, which tests run |
//!
//! The test binary `conformance` has one file for each family of kernels, `plan.rs` for what a plan
//! chooses, `cpu.rs` for the CPU's engine, `table.rs`, which compares the variant table with the
//! PTX, `generated.rs` for problems from a seed, `huge.rs` for images beyond 32 bits, `regions.rs`
//! for parts of images and layouts, `entries.rs`, which launches every entry, `concurrency.rs`,
//! `oracle.rs` and `controls.rs`, which test the tests, and `emulated.rs`, which runs the GPU's
//! tests on a driver in software, faults included: see `docs/reliability.md`. `sanitize.rs` runs
//! `entries.rs`, or all of the GPU's tests, under compute-sanitizer. The binary `cli` tests the
//! command-line tool, with files that are broken and machines that fail, and compares it with SciPy
//! where Python has it. `memory` denies memory.
//!
//! Environment:
//! - `APRON_REQUIRE_GPU=1`: a missing GPU fails the GPU's tests; otherwise they are skipped,
//!   counted as ignored.
//! - `APRON_CONFORMANCE=small`: a thin selection of the problems on a single thread, for runs under
//!   compute-sanitizer, which `conformance sanitize` starts. It keeps every variant, border, window
//!   size and stored type, but not every combination. `emulated`: a denser cut, for the emulator.
//! - `APRON_GENERATED`: how many problems are generated; `APRON_SEED`: the first batch's seed. A
//!   failure names both.
//! - `APRON_REPORTS`: the folder for pictures of what failed, none if it is empty: see [`report`].
//! - `COMPUTE_SANITIZER`: the tool that `conformance sanitize` runs the GPU's tests under.
//! - `APRON_DRIVER`: the library to load as the GPU's driver. `APRON_EMULATOR`: the emulated
//!   device, and the faults to inject: `emulator/src/settings.rs` has the list. `emulated.rs` sets
//!   both.
//! - `APRON_GRID_ROWS`: how many rows of blocks a grid may have, if less than the GPU takes: then
//!   kernels use their grid-stride loops on small images too. `sanitize.rs` and `emulated.rs` set
//!   it.
//! - `APRON_PTX`: a PTX file whose kernels are tested instead of the embedded ones, such as another
//!   compiler's.
//! - `APRON_BIN`: the command-line tool to test, if it is not in the tests' folder.
//! - `APRON_ISA`: the instruction set that the CPU's engine uses: portable, avx2, avx512, neon.
//!   `cpu::forced` sets it.
//! - `PYTHON`: the Python that has NumPy and SciPy, if it is not `python3`.

pub mod bounds;
pub mod built;
pub mod hostile;
pub mod problem;
pub mod product;
pub mod report;
pub mod runner;
pub mod sample;
pub mod select;
pub mod study;
pub mod suite;
