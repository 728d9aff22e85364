//! The documents that the studies come from: their published times, and the problems that are
//! measured here in their place.

use apron::{Border, Filter, Result, Variant};
use oracle::Order;
use studies::Study;

use crate::cases::Form;

/// What a step runs: a document's kernel, or one of apron's own variants.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernel {
    Study(Study),
    Apron(Variant),
}

impl Kernel {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Study(study) => study.name(),
            Self::Apron(variant) => variant.name(),
        }
    }

    /// The order of its sums, if it has one. Kernels of one order give the same bits.
    pub(crate) fn order(self) -> Option<Order> {
        match self {
            Self::Study(study) => Some(study.order()),
            Self::Apron(variant) => Order::of(variant.family()),
        }
    }

    /// Multiply-adds for each value.
    pub(crate) fn steps(self, filter: &Filter) -> usize {
        if self.order() == Some(Order::Separable) {
            filter.cols() + filter.rows()
        } else {
            filter.cols() * filter.rows()
        }
    }
}

/// One document.
pub(crate) struct Source {
    /// Its name for `--source`.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// The GPU of its figures, if the document names one.
    pub(crate) device: &'static str,
    /// Remarks on the tables.
    pub(crate) notes: &'static [&'static str],
    pub(crate) tables: Vec<Table>,
    pub(crate) sweeps: Vec<Sweep>,
}

/// An image and a filter.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) channels: usize,
    /// Whether channels alternate row by row.
    pub(crate) by_rows: bool,
    pub(crate) taps: Taps,
    pub(crate) border: Border,
    /// Whether results are compared with the oracle's as a whole.
    pub(crate) reference: bool,
}

/// The filter of a scene.
#[derive(Clone, Copy)]
pub(crate) enum Taps {
    /// A square window with this many rows, in one of the benchmark's forms.
    Square(Form, usize),
    /// This many random taps in one row.
    Line(usize),
    /// One of apron's filters, by its name.
    Named(&'static str),
}

/// Steps over one scene.
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) scene: Scene,
    pub(crate) steps: Vec<Step>,
}

/// One kernel, and the document's time for it.
pub(crate) struct Step {
    pub(crate) label: &'static str,
    pub(crate) kernel: Kernel,
    pub(crate) block: Option<(u32, u32)>,
    pub(crate) published_us: Option<f64>,
}

/// Times of some kernels over a series of scenes or block shapes.
pub(crate) struct Sweep {
    /// The name in files.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// The quantity on the x axis.
    pub(crate) axis: &'static str,
    /// Whether the rate is drawn rather than the time.
    pub(crate) rate: bool,
    pub(crate) kernels: Vec<(&'static str, Kernel)>,
    pub(crate) points: Vec<Point>,
}

pub(crate) struct Point {
    pub(crate) label: String,
    pub(crate) scene: Scene,
    pub(crate) block: Option<(u32, u32)>,
}

impl Taps {
    pub(crate) fn filter(self) -> Result<Filter> {
        match self {
            Self::Square(form, taps) => form.filter(taps, false),
            Self::Line(taps) => {
                let mut random = fastrand::Rng::with_seed(taps as u64);
                Filter::from_taps(
                    taps,
                    1,
                    &(0..taps).map(|_| random.f32() - 0.25).collect::<Vec<_>>(),
                )
            }
            Self::Named(name) => name.parse(),
        }
    }
}

impl std::fmt::Display for Taps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Square(_, taps) => write!(f, "{taps}x{taps}"),
            Self::Line(taps) => write!(f, "{taps}x1"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl Scene {
    fn new(width: usize, height: usize, taps: Taps, border: Border) -> Self {
        Self { width, height, channels: 1, by_rows: false, taps, border, reference: false }
    }

    /// A smaller scene of the same type, for the CPU.
    pub(crate) fn small(&self) -> Self {
        let (across, down) = match (self.height, self.channels) {
            (1, _) => (64, 1),
            (_, 1) => (8, 8),
            _ => (16, 16),
        };
        Self { width: self.width / across, height: self.height / down, ..self.clone() }
    }

    /// Width, height, and channels if there are several.
    pub(crate) fn size(&self) -> String {
        let channels =
            if self.channels == 1 { String::new() } else { format!("x{}", self.channels) };
        format!("{}x{}{channels}", self.width, self.height)
    }
}

const fn step(label: &'static str, kernel: Kernel) -> Step {
    Step { label, kernel, block: None, published_us: None }
}

const fn published(label: &'static str, kernel: Kernel, us: f64) -> Step {
    Step { label, kernel, block: None, published_us: Some(us) }
}

/// All documents.
pub(crate) fn sources() -> Vec<Source> {
    vec![blog(), class(), paper(), strip(), line()]
}

const ZERO: Border = Border::Constant(0.0);

fn blog() -> Source {
    let scene = Scene::new(2048, 1024, Taps::Square(Form::Product, 5), Border::Reflect101);
    let in_16x16 = |step: Step| Step { block: Some((16, 16)), ..step };
    let blocks =
        [(16, 16), (32, 8), (8, 32), (64, 4), (128, 2), (256, 1), (32, 4), (32, 16), (32, 32)];
    Source {
        name: "blog",
        title: "A blog's ladder: 5x5, four steps",
        device: "GeForce RTX 3070",
        notes: &[
            "Its mirror repeats the edge pixel at the high side (reflect) and not at the low side (reflect101); here \
                  both sides are reflect101.",
        ],
        tables: vec![Table {
            title: "Steps, blocks of 16x16".into(),
            scene: scene.clone(),
            steps: vec![
                in_16x16(published("naive", Kernel::Study(Study::DirectNaive), 185.0)),
                in_16x16(published("constant memory", Kernel::Study(Study::DirectConstant), 155.0)),
                in_16x16(published("shared memory", Kernel::Study(Study::BlogShared), 116.0)),
                in_16x16(published(
                    "size known to the compiler",
                    Kernel::Study(Study::BlogUnrolled),
                    81.0,
                )),
                step("apron, tile", Kernel::Apron(Variant::DirectUnrolled)),
                step("apron, sliding window", Kernel::Apron(Variant::DirectSliding)),
                step("apron, sliding pair", Kernel::Apron(Variant::SeparableFused)),
            ],
        }],
        sweeps: vec![Sweep {
            name: "blocks",
            title: "Block shapes, which the blog leaves open",
            axis: "threads across x down",
            rate: false,
            kernels: vec![
                ("naive", Kernel::Study(Study::DirectNaive)),
                ("constant memory", Kernel::Study(Study::DirectConstant)),
                ("shared memory", Kernel::Study(Study::BlogShared)),
                ("size known", Kernel::Study(Study::BlogUnrolled)),
            ],
            points: blocks
                .map(|(x, y)| Point {
                    label: format!("{x}x{y}"),
                    scene: scene.clone(),
                    block: Some((x, y)),
                })
                .into(),
        }],
    }
}

fn class() -> Source {
    // Milliseconds, in the order of the steps.
    let table = |size: usize, ms: [f64; 8]| {
        let [naive, shared, mul24, separated, rearranged, texture, separable, looped] =
            ms.map(|ms| 1e3 * ms);
        Table {
            title: format!("Steps, theirs with {size}x{size}"),
            scene: Scene::new(size, size, Taps::Square(Form::Gaussian, 17), ZERO),
            steps: vec![
                published("0: naive", Kernel::Study(Study::ClassNaive), naive),
                published("1: shared memory", Kernel::Study(Study::ClassShared), shared),
                published("1: with 24-bit multiplication", Kernel::Study(Study::ClassMul24), mul24),
                published("2: separated", Kernel::Study(Study::ClassConflicts), separated),
                published(
                    "3: shared memory rearranged",
                    Kernel::Study(Study::ClassSeparable),
                    rearranged,
                ),
                published(
                    "4: NVIDIA's texture sample",
                    Kernel::Study(Study::PaperTexture),
                    texture,
                ),
                published(
                    "4: NVIDIA's separable sample",
                    Kernel::Study(Study::PaperSeparable),
                    separable,
                ),
                published("4: the same, not unrolled", Kernel::Study(Study::PaperLooped), looped),
                step("4: eight results a thread", Kernel::Study(Study::ClassSteps)),
                step("apron, sliding window", Kernel::Apron(Variant::DirectSliding)),
                step("apron, sliding pair", Kernel::Apron(Variant::SeparableFused)),
            ],
        }
    };
    Source {
        name: "class",
        title: "A class project of 2008: 17x17, from naive to NVIDIA's samples",
        device: "GeForce 8600M GT",
        notes: &[
            "Its pictures have three channels, filtered one after the other; it does not say whether its times are of one. \
             Here they are of one.",
            "Its time for the naive kernel at 4096x4096 is ten times what the other sizes suggest; it stands as printed.",
            "Without 24-bit multiplication, NVIDIA's separable sample took 23.35, 78.36 and 302.81 ms there.",
        ],
        tables: vec![
            table(1024, [1749.08, 672.02, 657.59, 116.37, 28.99, 21.25, 14.16, 14.16]),
            table(2048, [6773.38, 2421.99, 2325.86, 373.64, 118.35, 75.45, 58.36, 58.36]),
            table(4096, [282_668.84, 9457.56, 9301.09, 1492.99, 369.90, 301.12, 227.51, 227.51]),
        ],
        sweeps: Vec::new(),
    }
}

fn paper() -> Source {
    let scene =
        |size: usize, taps: Taps| Scene { reference: true, ..Scene::new(size, size, taps, ZERO) };
    let gaussian = |radius: usize| Taps::Square(Form::Gaussian, 2 * radius + 1);
    let threads = |radius: usize, steps: Vec<Step>| Table {
        title: format!("Idle threads (Figures 5 to 7), radius {radius}"),
        scene: scene(2048, Taps::Square(Form::Product, 2 * radius + 1)),
        steps,
    };
    Source {
        name: "paper",
        title: "NVIDIA's white paper: a separable filter in two passes",
        device: "no table of times",
        notes: &[
            "It says that unrolling gains a factor of 2 and more, and that textures are more than two times slower over a \
             significant range of radii (Figure 13). It names no image size.",
            "One thread for each pixel of the tile of its Figure 5 (radius 16) would be 2304 threads; a block has 1024 at \
             most, so radius 8 stands for it. With radius 15, taps still fit in a launch's parameters.",
        ],
        tables: vec![
            Table {
                title: "Gaussian, radius 8".into(),
                scene: scene(4096, gaussian(8)),
                steps: vec![
                    step("two passes", Kernel::Study(Study::PaperLooped)),
                    step("unrolled", Kernel::Study(Study::PaperSeparable)),
                    step("through textures", Kernel::Study(Study::PaperTexture)),
                    step("eight results a thread", Kernel::Study(Study::ClassSteps)),
                    step("apron, two passes", Kernel::Apron(Variant::Separable)),
                    step("apron, sliding pair", Kernel::Apron(Variant::SeparableFused)),
                ],
            },
            threads(
                8,
                vec![
                    step("32x32 threads, a quarter busy", Kernel::Study(Study::PaperIdle)),
                    step("16x32 threads, half busy", Kernel::Study(Study::PaperHalfIdle)),
                    step("16x16 threads, all busy", Kernel::Study(Study::PaperBusy)),
                    step("apron, sliding window", Kernel::Apron(Variant::DirectSliding)),
                ],
            ),
            threads(
                15,
                vec![
                    step("16x46 threads, a third busy", Kernel::Study(Study::PaperHalfIdle)),
                    step("16x16 threads, all busy", Kernel::Study(Study::PaperBusy)),
                    step("apron, tile", Kernel::Apron(Variant::DirectUnrolled)),
                ],
            ),
            Table {
                title: "Sobel".into(),
                scene: scene(4096, Taps::Named("sobel-x")),
                steps: vec![
                    step("nine taps at once", Kernel::Study(Study::BlogShared)),
                    step("as a row and a column", Kernel::Study(Study::PaperSeparable)),
                    step("apron, sliding window", Kernel::Apron(Variant::DirectSliding)),
                ],
            },
        ],
        sweeps: vec![Sweep {
            name: "paper-radius",
            title: "Both passes over radius (Figure 13)",
            axis: "radius",
            rate: true,
            kernels: vec![
                ("separable", Kernel::Study(Study::PaperSeparable)),
                ("not unrolled", Kernel::Study(Study::PaperLooped)),
                ("texture", Kernel::Study(Study::PaperTexture)),
                ("apron, sliding pair", Kernel::Apron(Variant::SeparableFused)),
            ],
            points: (1..=16)
                .map(|radius| Point {
                    label: radius.to_string(),
                    scene: Scene { reference: false, ..scene(4096, gaussian(radius)) },
                    block: None,
                })
                .collect(),
        }],
    }
}

fn strip() -> Source {
    let scene = |taps: usize| Scene {
        channels: 3,
        by_rows: true,
        ..Scene::new(5200, 6500, Taps::Square(Form::Gaussian, taps), Border::Keep)
    };
    Source {
        name: "strip",
        title: "Tiled against untiled: a blur of three channels, row by row",
        device: "a GPU it does not name",
        notes: &[
            "Blocks have 16x16 threads; it does not say which its have. It finds that the tile does not help below \
                  11x11. Rows follow one another without gaps, as there.",
        ],
        tables: vec![Table {
            title: "Filter 7x7".into(),
            scene: scene(7),
            steps: vec![
                published("gauss_gpu", Kernel::Study(Study::StripUntiled), 8820.0),
                published("gauss_gpu_tiles", Kernel::Study(Study::StripTiled), 9570.0),
                step("apron, sliding window", Kernel::Apron(Variant::DirectSliding)),
                step("apron, sliding pair", Kernel::Apron(Variant::SeparableFused)),
            ],
        }],
        sweeps: vec![Sweep {
            name: "strip-radius",
            title: "Tiled against untiled over radius",
            axis: "radius",
            rate: false,
            kernels: vec![
                ("untiled", Kernel::Study(Study::StripUntiled)),
                ("tiled", Kernel::Study(Study::StripTiled)),
                ("apron, sliding pair", Kernel::Apron(Variant::SeparableFused)),
            ],
            points: (1..=16)
                .map(|radius| Point {
                    label: radius.to_string(),
                    scene: scene(2 * radius + 1),
                    block: None,
                })
                .collect(),
        }],
    }
}

fn line() -> Source {
    Source {
        name: "line",
        title: "One dimension: 5 taps along 16 million values",
        device: "no times",
        notes: &[
            "It names no size; its listings have 5 taps and tiles of 4 for 12 values. Tiles have 256 here.",
        ],
        tables: vec![Table {
            title: "5 taps".into(),
            scene: Scene::new(1 << 24, 1, Taps::Line(5), ZERO),
            steps: vec![
                step("naive", Kernel::Study(Study::LineNaive)),
                step("constant memory", Kernel::Study(Study::LineConstant)),
                step("shared memory, else global", Kernel::Study(Study::LineShared)),
                step("ghost cells in shared memory", Kernel::Study(Study::LineGhost)),
                step("vector loads, four results", Kernel::Study(Study::LineVector)),
            ],
        }],
        sweeps: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_study_is_measured() {
        let sources = sources();
        let tables =
            sources.iter().flat_map(|source| &source.tables).flat_map(|table| &table.steps);
        let measured: BTreeSet<_> = tables.map(|step| step.kernel.name()).collect();
        for study in Study::all() {
            assert!(measured.contains(study.name()), "{study}");
        }
    }

    #[test]
    fn names_differ_and_filters_are_good() {
        let sources = sources();
        let names: BTreeSet<_> = sources.iter().map(|source| source.name).collect();
        assert_eq!(names.len(), sources.len());
        let scenes = sources.iter().flat_map(|source| {
            let of_sweeps =
                source.sweeps.iter().flat_map(|sweep| &sweep.points).map(|point| &point.scene);
            source.tables.iter().map(|table| &table.scene).chain(of_sweeps)
        });
        for scene in scenes {
            scene.taps.filter().unwrap();
        }
    }

    #[test]
    fn published_speed_ups_are_those_that_the_documents_state() {
        // "more than twice as fast" after four steps, "x2.8" for shared memory, "x57 speed-up
        // overall (in resolution 2048)".
        let ratio = |source: usize, table: usize, from: usize, to: usize| {
            let steps = &sources()[source].tables[table].steps;
            steps[from].published_us.unwrap() / steps[to].published_us.unwrap()
        };
        assert!(ratio(0, 0, 0, 3) > 2.0);
        assert_eq!(format!("{:.1}", ratio(1, 1, 0, 1)), "2.8");
        assert_eq!(format!("{:.0}", ratio(1, 1, 0, 4)), "57");
    }
}
