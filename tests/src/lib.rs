//! Compares every variant of apron on the GPU, every family on the CPU, and every study with the
//! package `oracle`, which shares no code with apron.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`bounds`] | the table of tolerances, with the reason for each |
//! | [`sample`] | stored types with conversions of their own, random values, poison |
//! | [`problem`], [`select`] | windows and pictures, and the lists of them that the suites solve |
//! | [`runner`], [`suite`] | solve problems, check every pixel and every gap, count, report |
//! | [`product`] | the product: variants on the GPU, families on the CPU |
//! | [`study`] | the studies on the CPU and the GPU |
//! | [`report`] | pictures of failures |
//! | [`hostile`] | targets for a fuzzer |
//! | [`built`] | the tool and the emulator, which tests start |
//!
//! The test binary `conformance` has one file for each family of kernels, and these:
//! - `plan.rs`: the choices of a plan. `cpu.rs`: the CPU's engine.
//! - `table.rs`: compares the variant table with the PTX.
//! - `generated.rs`: problems from a seed. `huge.rs`: images beyond 32 bits.
//! - `regions.rs`: parts of images, and layouts. `concurrency.rs`: threads and streams.
//! - `entries.rs`: launches every entry.
//! - `oracle.rs` and `controls.rs`: test the tests.
//! - `emulated.rs`: runs the GPU's tests on a driver in software, with faults injected: see
//!   `docs/reliability.md`.
//! - `sanitize.rs`: runs `entries.rs`, or all of the GPU's tests, under compute-sanitizer.
//!
//! The binary `cli` tests the command-line tool with broken files and failing machines, and
//! compares it with SciPy where Python has it. The binary `memory` makes allocations fail.
//!
//! Environment:
//! - `APRON_REQUIRE_GPU=1`: a missing GPU fails the GPU's tests; otherwise they are skipped,
//!   counted as ignored.
//! - `APRON_CONFORMANCE=small`: a thin selection of the problems on a single thread, for runs under
//!   compute-sanitizer, which `conformance sanitize` starts. It keeps every variant, border, window
//!   size and stored type, but not every combination. `emulated`: a denser cut, for the emulator.
//! - `APRON_GENERATED`: how many problems are generated; `APRON_SEED`: the first batch's seed. A
//!   failure names both.
//! - `APRON_REPORTS`: the folder for pictures of failures, none if it is empty: see [`report`].
//! - `COMPUTE_SANITIZER`: the tool that `conformance sanitize` runs the GPU's tests under.
//! - `APRON_DRIVER`: the library to load as the GPU's driver. `APRON_EMULATOR`: the emulated
//!   device, and the faults to inject: `emulator/src/settings.rs` has the list. `emulated.rs` sets
//!   both.
//! - `APRON_GRID_ROWS`: the most rows of blocks in a grid, if less than the GPU takes. Kernels then
//!   use their grid-stride loops on small images too. `sanitize.rs` and `emulated.rs` set it.
//! - `APRON_PTX`: a PTX file, such as another compiler's, whose kernels are tested instead of the
//!   embedded ones.
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
