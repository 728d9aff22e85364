//! The direct family: all variants on all devices give the bits of one plain loop.

use apron::Family;
use conformance::problem::{Group, Problem, Window};
use conformance::product::Gpu;
use conformance::select::{self, Selection};
use conformance::suite;
use libtest_mimic::Trial;

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let trials = |name: &str, groups: fn(Selection) -> Vec<Group>| {
        suite::trials(&format!("direct::{name}"), Family::Direct, gpu, move || groups(selection))
    };
    [
        trials("exhaustive", exhaustive),
        trials("awkward", |selection| select::awkward(selection, windows())),
        trials("stored", stored),
        trials("wild", wild),
        trials("ties", ties),
        trials("seams", seams),
        trials("long", long),
        trials("turns", turns),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(crate) fn long(selection: Selection) -> Vec<Group> {
    select::long(
        selection,
        vec![
            Window::random(3, 3, 71),
            Window::random(2, 5, 72),
            Window::random(9, 9, 73).anchored(4, 8),
        ],
    )
}

/// Three tiles and strips and a partial one, across and down.
pub(crate) fn turns(_: Selection) -> Vec<Group> {
    let windows = [
        Window::random(3, 3, 91),
        Window::random(9, 9, 92).anchored(4, 0),
        Window::random(17, 17, 93),
        Window::random(41, 37, 94).anchored(0, 36),
        Window::random(51, 51, 95),
    ];
    let pairs = windows.into_iter().enumerate().map(|(i, window)| {
        let wide = if window.cols < 10 { (3 * 512 + 37, 29) } else { (3 * 32 + 5, 3 * 8 + 5) };
        let sizes = [wide, (101, if window.cols < 20 { 3 * 64 + 11 } else { 3 * 8 + 3 })];
        let problem =
            |(n, (width, height))| Problem::new(width, height, select::seed(31 + i as u64, n));
        (window, sizes.into_iter().enumerate().map(problem).collect())
    });
    select::turns(pairs.collect())
}

pub(crate) fn exhaustive(selection: Selection) -> Vec<Group> {
    select::exhaustive(selection, Window::random)
}

pub(crate) fn seams(selection: Selection) -> Vec<Group> {
    let windows = vec![
        Window::random(3, 3, 81),
        Window::random(5, 5, 82),
        Window::random(9, 9, 83),
        Window::random(4, 6, 84).anchored(0, 5),
        Window::random(17, 17, 85),
    ];
    select::seams(selection, windows, select::tile_ends)
}

/// Every size with a compiled kernel, its neighbours, and shapes without a suitable kernel.
pub(crate) fn windows() -> Vec<Window> {
    let square =
        [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 13, 15, 17, 19, 21, 31, 33, 51].map(|size| (size, size));
    let oblong = [
        (5, 3),
        (3, 5),
        (1, 9),
        (9, 1),
        (6, 4),
        (17, 1),
        (1, 17),
        (31, 33),
        (301, 1),
        (1, 301),
        (12, 40),
    ];
    let sizes = square.into_iter().chain(oblong).enumerate();
    let mut windows: Vec<_> =
        sizes.map(|(i, (cols, rows))| Window::random(cols, rows, 1000 + i as u64)).collect();
    windows.extend([
        Window::random(5, 5, 1).anchored(0, 0),
        Window::random(5, 5, 2).anchored(4, 4),
        Window::random(9, 7, 3).anchored(8, 0),
        Window::random(9, 9, 7).anchored(4, 0),
        Window::random(13, 13, 8).anchored(6, 12),
        Window::random(17, 17, 4).anchored(0, 16),
        Window::random(31, 31, 5).anchored(30, 30),
        Window::random(40, 36, 6).anchored(39, 35),
    ]);
    windows.extend(presets());
    windows
}

/// Common filters.
fn presets() -> impl Iterator<Item = Window> {
    ["gaussian:sigma=1.5", "sobel-x", "box:size=5", "sharpen", "laplacian", "emboss"]
        .into_iter()
        .map(Window::preset)
}

/// One window for each kernel that differs in more than its size.
pub(crate) fn stored(selection: Selection) -> Vec<Group> {
    let windows = vec![
        Window::random(3, 3, 11),
        Window::random(5, 5, 12),
        Window::random(4, 6, 13),
        Window::random(13, 13, 14).anchored(0, 12),
        Window::random(33, 33, 15),
        Window::random(51, 51, 16),
    ];
    select::stored(selection, windows)
}

pub(crate) fn wild(selection: Selection) -> Vec<Group> {
    let zeros =
        Window::dense("half of them zero", 3, 3, &[0.0, 1.0, 0.0, 1.0, -4.0, 1.0, 0.0, 1.0, 0.0]);
    let nothing = Window::dense("all zero", 3, 2, &[0.0, -0.0, 0.0, 0.0, 0.0, -0.0]);
    let huge = Window::dense("huge", 2, 2, &[1e38, -3e38, 2e38, 1.0]);
    let tiny = Window::dense("tiny", 5, 1, &[1e-40, 1e-30, -1e-38, 3e-45, 1e-20]);
    let windows =
        vec![zeros, nothing, huge, tiny, Window::random(5, 5, 21), Window::random(6, 3, 22)];
    select::wild(selection, windows)
}

pub(crate) fn ties(selection: Selection) -> Vec<Group> {
    let mean = |cols: usize, rows: usize| {
        Window::dense("mean", cols, rows, &vec![1.0 / (cols * rows) as f32; cols * rows])
    };
    let quarters = [0.25, -0.5, 0.75, 1.25, 0.5, -1.75, 2.25, 0.5, -0.75];
    let windows = vec![
        mean(2, 2),
        mean(4, 4),
        mean(6, 6),
        mean(10, 10),
        mean(12, 1),
        Window::preset("box:size=6"),
        Window::preset("unsharp:sigma=1,amount=0.7"),
        Window::dense("a half", 1, 1, &[0.5]),
        Window::dense("quarters", 3, 3, &quarters),
        Window::dense("tenths", 3, 3, &quarters.map(|tap| tap / 2.5)),
        Window::dense("large", 3, 3, &quarters.map(|tap| tap * 333_333.3)),
        Window::random(3, 3, 31),
        Window::random(7, 7, 32),
    ];
    select::ties(selection, windows)
}
