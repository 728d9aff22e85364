//! Holds every variant of apron, on every device, to an oracle that shares no code with it.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`oracle`] | the definition of a result, in f64, with a border rule of its own |
//! | [`scalar`] | one plain f32 loop for each family, whose bits every variant of it must give |
//! | [`bounds`] | the table of tolerances, and why each is what it is |
//! | [`sample`] | stored types with conversions of their own, random values, poison |
//! | [`problem`], [`select`] | what is filtered with what |
//! | [`runner`], [`suite`] | solve problems, check every pixel and what lies between, count, report |
//! | [`product`] | the product's variants on the CPU and the GPU |
//! | [`built`] | the tool and the emulator, which tests run |
//!
//! The test binary `conformance` has one file for each family of kernels, `plan.rs` for what a plan chooses, `cpu.rs` for the CPU's engine, `table.rs`,
//! which compares the variant table with the PTX, `oracle.rs` and `controls.rs`, which test the tests, and `emulated.rs`,
//! which runs the GPU's tests on a driver in software, faults included: see `docs/reliability.md`. The binary `cli` tests
//! the command-line tool, and compares it with SciPy where Python has it.
//!
//! Environment:
//! - `APRON_REQUIRE_GPU=1`: a missing GPU fails the GPU's tests; otherwise they are skipped, counted as ignored.
//! - `APRON_CONFORMANCE=small`: a thin selection of the problems on a single thread, for runs under compute-sanitizer:
//!   `compute-sanitizer --tool racecheck --error-exitcode 9 ./conformance gpu`. It keeps every variant, border, window
//!   size and stored type, but not every combination. `emulated`: a denser cut, for the emulator.
//! - `APRON_DRIVER`: the library to load as the GPU's driver. `APRON_EMULATOR`: what the emulator is to be like, and what is to
//!   go wrong with it: `emulator/src/settings.rs` has the list. `emulated.rs` sets both.
//! - `APRON_PTX`: a PTX file whose kernels are tested in the place of the embedded ones, as another compiler's.
//! - `APRON_BIN`: the command-line tool to test, where it does not lie beside the tests.
//! - `APRON_ISA`: the instruction set that the CPU's engine uses: portable, avx2, avx512, neon. `cpu::forced` sets it.
//! - `PYTHON`: the Python that has NumPy and SciPy, if it is not `python3`.

pub mod bounds;
pub mod built;
pub mod oracle;
pub mod problem;
pub mod product;
pub mod runner;
pub mod sample;
pub mod scalar;
pub mod select;
pub mod suite;
