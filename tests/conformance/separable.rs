//! The separable family: the bits of two plain loops on every device, within a stated distance of
//! the oracle.

use apron::Family;
use conformance::problem::{Group, Problem, Window};
use conformance::product::Gpu;
use conformance::select::{self, Selection};
use conformance::suite;
use libtest_mimic::Trial;

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let trials = |name: &str, groups: fn(Selection) -> Vec<Group>| {
        suite::trials(&format!("separable::{name}"), Family::Separable, gpu, move || {
            groups(selection)
        })
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
        trials("runs", runs),
        trials("sums", sums),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(crate) fn long(selection: Selection) -> Vec<Group> {
    select::long(
        selection,
        vec![
            Window::random_pair(3, 3, 71),
            Window::random_pair(2, 17, 72),
            Window::random_pair(9, 9, 73).anchored(4, 8),
        ],
    )
}

/// Passes take 256 taps at a time. These windows need four and five iterations in the row, the
/// column or both, over images smaller and larger than the window.
pub(crate) fn turns(selection: Selection) -> Vec<Group> {
    let problems = |sizes: &[(usize, usize)], list: u64| -> Vec<Problem> {
        let number =
            |(i, &(width, height)): (usize, &_)| Problem::new(width, height, select::seed(list, i));
        sizes.iter().enumerate().map(number).collect()
    };
    let both: &[_] =
        if selection == Selection::Full { &[(23, 11), (791, 3), (3, 1037)] } else { &[(23, 11)] };
    let pairs = [
        (Window::random_pair(777, 1, 91), problems(&[(40, 23), (1100, 5)], 21)),
        (Window::random_pair(1, 777, 92), problems(&[(40, 23), (5, 1100)], 22)),
        (Window::random_pair(1025, 1, 93).anchored(7, 0), problems(&[(291, 9), (2057, 2)], 23)),
        (Window::random_pair(1, 1025, 94).anchored(0, 1000), problems(&[(33, 70), (2, 2057)], 24)),
        (Window::random_pair(777, 1025, 95).anchored(700, 512), problems(both, 25)),
        // Strips side by side and one above the other.
        (
            Window::random_pair(9, 9, 96).anchored(4, 7),
            problems(&[(3 * 512 + 37, 29), (101, 3 * 64 + 11)], 26),
        ),
    ];
    select::turns(pairs.into())
}

/// Numbers of taps around the steps of passes for any number: 1, 4, 16, 32 and 256 taps at a time.
/// The images have several tiles in each direction.
pub(crate) fn runs(selection: Selection) -> Vec<Group> {
    let taps: Vec<usize> = match selection {
        Selection::Full => {
            (2..=52).chain([63, 64, 66, 81, 127, 128, 130, 255]).chain(256..=262).collect()
        }
        _ => vec![2, 10, 15, 16, 20, 23, 34, 49, 67, 130, 261],
    };
    let group = |(i, (cols, rows)): (usize, (usize, usize))| {
        let window = Window::random_pair(cols, rows, 9500 + i as u64);
        let of = |(n, (width, height)): (usize, (usize, usize))| {
            let problem = Problem::new(width, height, select::seed(29, 4 * i + n));
            problem.channels(1 + (i + n) % 3).gaps(n, i % 2)
        };
        let problems = [(277, 131), (530, 19), (33, 300)].into_iter().enumerate().map(of).collect();
        Group { window, border: select::BORDERS[i % select::BORDERS.len()], problems }
    };
    let unequal = taps.iter().copied().zip(taps.iter().copied().rev());
    let equal = [(13, 13), (80, 80), (300, 300), (35, 35)];
    let every = equal.into_iter().chain(unequal).enumerate();
    let step = if selection == Selection::Emulated { 3 } else { 1 };
    every.step_by(step).map(group).collect()
}

pub(crate) fn exhaustive(selection: Selection) -> Vec<Group> {
    select::exhaustive(selection, Window::random_pair)
}

/// Filters that are a product plus a centre tap, or two products. They have every number of taps
/// with a compiled kernel, and some without. The columns of two terms go 64 taps at a time, here in
/// up to five iterations.
pub(crate) fn sums(selection: Selection) -> Vec<Group> {
    let presets = [
        "unsharp:sigma=0.8",
        "unsharp:sigma=2,amount=-0.75",
        "unsharp:sigma=8",
        "unsharp:sigma=12",
        "log:sigma=2",
        "log:sigma=12",
        "dog:sigma=1,wider=5",
    ];
    // The first is for the variant that takes no sums.
    let mut windows = vec![Window::random_pair(15, 15, 6105)];
    windows.extend(presets.map(Window::preset));
    windows
        .extend((9..=35).step_by(2).map(|size| Window::random_sum(size, size, 6000 + size as u64)));
    windows.extend(
        (2..=17).map(|reach| Window::preset(&format!("unsharp:sigma={}", f64::from(reach) / 4.0))),
    );
    windows.extend([
        Window::random_sum(21, 13, 6100).anchored(3, 12),
        Window::random_sum(17, 17, 6101).anchored(8, 0),
        Window::random_sum(17, 17, 6102).anchored(0, 8),
        Window::random_sum(9, 301, 6103).anchored(4, 280),
        Window::random_sum(301, 10, 6104),
        Window::preset("unsharp:sigma=2").flipped(),
    ]);
    let group = |(i, window): (usize, Window)| {
        let border = select::BORDERS[i % select::BORDERS.len()];
        let of = |(n, (width, height)): (usize, (usize, usize))| {
            let problem = Problem::new(width, height, select::seed(27, 4 * i + n));
            problem.channels(1 + (i + n) % 3).gaps(n, i % 2)
        };
        let problems = [(143, 37), (70, 71), (133, 9)].into_iter().enumerate().map(of).collect();
        Group { window, border, problems }
    };
    let every = windows.into_iter().enumerate();
    let step = if selection == Selection::Emulated { 5 } else { 1 };
    every.step_by(step).map(group).collect()
}

pub(crate) fn seams(selection: Selection) -> Vec<Group> {
    let windows = vec![
        Window::random_pair(3, 3, 81),
        Window::random_pair(5, 5, 82),
        Window::random_pair(4, 6, 83).anchored(0, 5),
        Window::random_pair(9, 9, 84),
        Window::random_pair(17, 17, 85),
        Window::random_pair(35, 35, 86),
    ];
    select::seams(selection, windows, select::tile_ends)
}

/// Every number of taps with a compiled kernel, its neighbours, and long and unequal pairs.
pub(crate) fn windows() -> Vec<Window> {
    let equal = [1, 2, 4, 6, 16].into_iter().chain((3..=67).step_by(2)).map(|size| (size, size));
    let unequal = [
        (3, 17),
        (17, 3),
        (51, 1),
        (1, 51),
        (2, 40),
        (40, 2),
        (301, 1),
        (1, 301),
        (301, 5),
        (64, 63),
    ];
    let sizes = equal.chain(unequal).enumerate();
    let mut windows: Vec<_> =
        sizes.map(|(i, (cols, rows))| Window::random_pair(cols, rows, 2000 + i as u64)).collect();
    windows.extend([
        Window::random_pair(5, 5, 1).anchored(0, 0),
        Window::random_pair(9, 9, 2).anchored(8, 8),
        Window::random_pair(15, 15, 6).anchored(7, 0),
        Window::random_pair(45, 45, 7).anchored(22, 44),
        Window::random_pair(17, 7, 3).anchored(16, 0),
        Window::random_pair(51, 33, 4).anchored(0, 32),
        Window::random_pair(301, 301, 5).anchored(300, 0),
    ]);
    windows.extend(
        ["gaussian:sigma=1.5", "gaussian:sigma=12", "sobel-x", "sobel-y", "box:size=9"]
            .map(Window::preset),
    );
    windows.extend(found());
    windows
}

/// Rounded products that are given as tables, and must be detected.
fn found() -> impl Iterator<Item = Window> {
    let product = |cols: usize, rows: usize, scale: f64, seed: u64| {
        let taps: Vec<f32> = Window::random_pair(cols, rows, seed)
            .taps
            .iter()
            .map(|tap| (tap * scale) as f32)
            .collect();
        Window::dense(format!("rounded product, scale {scale:e}"), cols, rows, &taps)
    };
    [
        product(5, 5, 1.0, 41),
        product(9, 4, 1e6, 42),
        product(3, 17, 1e-3, 43),
        product(7, 7, 1e-25, 44),
        product(7, 7, 1e25, 45),
        product(5, 5, 1e-33, 46),
        Window::dense(
            "binomial",
            5,
            3,
            &[1., 4., 6., 4., 1., 2., 8., 12., 8., 2., 1., 4., 6., 4., 1.],
        ),
    ]
    .into_iter()
}

/// One pair of factors for each kernel that differs in more than its size.
pub(crate) fn stored(selection: Selection) -> Vec<Group> {
    let windows = vec![
        Window::random_pair(3, 3, 11),
        Window::random_pair(17, 17, 12),
        Window::random_pair(4, 51, 13).anchored(3, 0),
        Window::random_pair(70, 2, 14),
    ];
    select::stored(selection, windows)
}

pub(crate) fn wild(selection: Selection) -> Vec<Group> {
    let windows = vec![
        Window::pair("zeros", &[0.0, 1.0, 0.0], &[1.0, 0.0, 2.0, 0.0]),
        Window::pair("all zero", &[0.0, 0.0, -0.0], &[1.0, 3.0]),
        Window::pair("huge", &[1e30, -2e30, 1e20], &[1e8, 1.0]),
        Window::pair("tiny", &[1e-20, 1e-30, -1e-25], &[1e-10, 1e-20, 1.0]),
        Window::random_pair(5, 5, 21),
        Window::random_pair(6, 13, 22),
    ];
    select::wild(selection, windows)
}

pub(crate) fn ties(selection: Selection) -> Vec<Group> {
    let mean = |cols: usize, rows: usize| {
        Window::pair("mean", &vec![1.0 / cols as f32; cols], &vec![1.0 / rows as f32; rows])
    };
    let windows = vec![
        mean(2, 2),
        mean(4, 4),
        mean(6, 6),
        mean(10, 10),
        mean(12, 1),
        Window::preset("box:size=6"),
        Window::preset("gaussian:sigma=2"),
        Window::pair("quarters", &[0.25, -0.5, 0.75], &[1.5, 0.5, 2.0]),
        Window::pair("tenths", &[0.1, -0.2, 0.3, 0.5], &[0.4, 0.2, 0.6]),
        // Out of range for the kernels that scale taps.
        Window::pair("a large row", &[1e6, -7e5, 2e6], &[1e-7, 3e-7, 2e-7]),
        Window::pair("large", &[1000.1, -2000.3, 999.7], &[77.7, 33.3, -111.0]),
        Window::dense("a mean given whole", 6, 6, &[1.0 / 36.0; 36]),
        Window::random_pair(3, 3, 31),
        Window::random_pair(17, 17, 32),
    ];
    select::ties(selection, windows)
}
