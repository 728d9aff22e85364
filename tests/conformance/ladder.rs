//! The studies of `docs/ladder.md`. Each takes only the windows and borders of its document, so
//! each has its own lists.

use std::mem::discriminant;

use apron::Border;
#[cfg(feature = "gpu")]
use conformance::problem::Problem;
use conformance::problem::{Group, Window};
use conformance::product::Gpu;
use conformance::select::{self, Selection};
use conformance::suite;
use libtest_mimic::Trial;
use oracle::Order;
use studies::Study;

/// Studies that share problems; at least one of them takes each problem.
struct Set {
    name: &'static str,
    studies: &'static [Study],
    windows: fn() -> Vec<Window>,
    borders: &'static [Border],
    /// Whether images have only one channel.
    single: bool,
    /// Whether sources with channels interleaved row by row are filtered too.
    by_rows: bool,
}

const CONSTANT: Border = Border::Constant(0.0);
const MIRRORS: &[Border] =
    &[CONSTANT, Border::Replicate, Border::Reflect, Border::Reflect101, Border::Wrap];

const SETS: &[Set] = &[
    Set {
        name: "blog-aprons",
        studies: &[Study::DirectNaive, Study::DirectConstant],
        windows: blog,
        borders: MIRRORS,
        single: false,
        by_rows: false,
    },
    Set {
        name: "blog",
        studies: &[Study::BlogShared, Study::BlogUnrolled],
        windows: blog,
        borders: MIRRORS,
        single: false,
        by_rows: false,
    },
    Set {
        name: "class",
        studies: &[Study::ClassNaive, Study::ClassShared, Study::ClassMul24],
        windows: class,
        borders: &[CONSTANT],
        single: false,
        by_rows: false,
    },
    Set {
        name: "class-passes",
        studies: &[Study::ClassConflicts, Study::ClassSeparable, Study::ClassSteps],
        windows: class,
        borders: &[CONSTANT],
        single: false,
        by_rows: false,
    },
    Set {
        name: "paper",
        studies: &[Study::PaperSeparable, Study::PaperLooped],
        windows: paper,
        borders: &[CONSTANT],
        single: false,
        by_rows: false,
    },
    Set {
        name: "paper-texture",
        studies: &[Study::PaperTexture],
        windows: paper,
        borders: &[CONSTANT, Border::Replicate],
        single: true,
        by_rows: false,
    },
    Set {
        name: "paper-threads",
        studies: &[Study::PaperIdle, Study::PaperHalfIdle, Study::PaperBusy],
        windows: idle,
        borders: &[CONSTANT],
        single: false,
        by_rows: false,
    },
    Set {
        name: "strip",
        studies: &[Study::StripUntiled, Study::StripTiled],
        windows: strip,
        borders: &[Border::Keep],
        single: false,
        by_rows: true,
    },
    Set {
        name: "line",
        studies: &[
            Study::LineNaive,
            Study::LineConstant,
            Study::LineShared,
            Study::LineGhost,
            Study::LineVector,
        ],
        windows: line,
        borders: &[CONSTANT],
        single: false,
        by_rows: false,
    },
];

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let list = |set: &'static Set| {
        let trials = suite::trials_of_studies(
            &format!("ladder::{}", set.name),
            set.studies,
            gpu,
            move || groups(set, selection),
        );
        trials.into_iter().filter(|trial| set.by_rows || !trial.name().ends_with("gpu-rows"))
    };
    SETS.iter().flat_map(list).collect()
}

/// The windows of all sets.
pub(crate) fn windows() -> Vec<Window> {
    SETS.iter().flat_map(|set| (set.windows)()).collect()
}

/// A thin cut through the lists of the studies whose order of sums is that of products.
pub(crate) fn product() -> Vec<Group> {
    let of_order = |set: &&Set| set.studies.iter().all(|study| study.order() == Order::Product);
    SETS.iter().filter(of_order).flat_map(|set| groups(set, Selection::Small)).collect()
}

/// Small images, awkward images, and pixels that are NaN or infinite, under the set's borders.
fn groups(set: &Set, selection: Selection) -> Vec<Group> {
    let windows = (set.windows)();
    let mut groups = select::tiny(selection, windows.clone());
    groups.extend(select::awkward(selection, windows.clone()));
    groups.extend(select::wild(selection, windows.into_iter().step_by(3).collect()));
    groups.retain(|group| {
        set.borders.iter().any(|border| discriminant(border) == discriminant(&group.border))
    });
    if set.single {
        groups
            .iter_mut()
            .flat_map(|group| &mut group.problems)
            .for_each(|problem| problem.shape.channels = 1);
    }
    groups
}

/// For each set, its studies and one problem for each window. Each entry meets one problem.
#[cfg(feature = "gpu")]
pub(crate) fn of_entries() -> Vec<(&'static [Study], Vec<Group>)> {
    let of_set = |set: &Set| {
        let (width, height) = match set.name {
            "line" => (1031, 3),
            "class-passes" | "paper" | "paper-texture" => (131, 67),
            _ => (35, 19),
        };
        let group = |(i, window)| {
            let problems = vec![Problem::new(width, height, select::seed(52, i))];
            Group { window, border: set.borders[i % set.borders.len()], problems }
        };
        (set.studies, (set.windows)().into_iter().enumerate().map(group).collect())
    };
    SETS.iter().map(of_set).collect()
}

fn blog() -> Vec<Window> {
    let sizes = [(5, 5), (3, 3), (1, 1), (4, 7), (31, 31), (33, 2)];
    let mut windows: Vec<_> =
        sizes.map(|(cols, rows)| Window::random(cols, rows, 3100 + cols as u64)).into();
    windows.extend([
        Window::random(5, 5, 3101).anchored(0, 4),
        Window::preset("gaussian:sigma=1,size=5"),
    ]);
    windows
}

fn class() -> Vec<Window> {
    let gaussian = Window::preset("gaussian:sigma=3,size=17");
    vec![Window::random_pair(17, 17, 3200), gaussian, Window::random_pair(17, 17, 3201)]
}

fn paper() -> Vec<Window> {
    let sizes = (3..=33).step_by(2).map(|size| Window::random_pair(size, size, 3300 + size as u64));
    sizes.chain(["sobel-x", "gaussian:sigma=3,size=17"].map(Window::preset)).collect()
}

fn idle() -> Vec<Window> {
    let sizes = [(17, 17), (3, 3), (1, 1), (8, 5), (31, 31), (2, 33)];
    let mut windows: Vec<_> =
        sizes.map(|(cols, rows)| Window::random(cols, rows, 3400 + cols as u64)).into();
    windows.push(Window::random(9, 4, 3401).anchored(8, 0));
    windows
}

fn strip() -> Vec<Window> {
    let sizes = (3..=33).step_by(2).map(|size| Window::random(size, size, 3500 + size as u64));
    sizes.chain([Window::preset("box:size=7")]).collect()
}

fn line() -> Vec<Window> {
    vec![Window::random(5, 1, 3600), Window::dense("binomial", 5, 1, &[1.0, 4.0, 6.0, 4.0, 1.0])]
}
