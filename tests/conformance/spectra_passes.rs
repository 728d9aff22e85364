//! The family of 1-D spectra: within a stated distance of the oracle on every device, and NaN and
//! infinities only in the results whose windows have them.

use apron::{Border, Family};
use conformance::problem::{Group, Problem, Window};
use conformance::product::Gpu;
use conformance::sample::{Data, Kind};
use conformance::select::{self, Selection};
use conformance::suite;
use libtest_mimic::Trial;

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let trials = |name: &str, groups: fn(Selection) -> Vec<Group>| {
        let name = format!("spectra_passes::{name}");
        suite::trials(&name, Family::SpectraPasses, gpu, move || groups(selection))
    };
    [
        trials("awkward", |selection| select::awkward(selection, windows(selection))),
        trials("stored", stored),
        trials("wild", wild),
        trials("holes", holes),
        trials("parts", parts),
        trials("seams", seams),
        trials("sums", sums),
        trials("long", long),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Windows for lines of every length, with anchors at both ends. Bytes need sums below some
/// hundreds.
fn windows(selection: Selection) -> Vec<Window> {
    let pairs = [(2, 2), (65, 3), (3, 130), (161, 161), (401, 1), (1, 401), (1100, 2), (2, 1100)];
    let mut windows: Vec<_> = pairs
        .into_iter()
        .enumerate()
        .map(|(i, (cols, rows))| match cols.max(rows) {
            0..=64 => Window::random_pair(cols, rows, 3400 + i as u64),
            _ => Window::blur_pair(cols, rows, 3400 + i as u64),
        })
        .collect();
    windows.extend([
        Window::blur_pair(129, 40, 3420).anchored(0, 39),
        Window::blur_pair(40, 600, 3421).anchored(39, 0),
        Window::preset("gaussian:sigma=20"),
    ]);
    // Lines of 4096 numbers take seconds on the emulator: one window stands for them.
    windows.retain(|window| {
        selection != Selection::Emulated
            || window.cols.max(window.rows) < 600
            || window.cols == 1100
    });
    windows
}

fn stored(selection: Selection) -> Vec<Group> {
    let windows =
        vec![Window::random_pair(19, 23, 3430), Window::blur_pair(300, 130, 3431).anchored(3, 129)];
    select::stored(selection, windows)
}

fn wild(selection: Selection) -> Vec<Group> {
    let windows = vec![Window::random_pair(5, 5, 3440), Window::random_pair(36, 23, 3441)];
    select::wild(selection, windows)
}

/// Pictures with NaN, infinities and border constants that are not finite.
fn holes(selection: Selection) -> Vec<Group> {
    let windows = [
        Window::random_pair(5, 5, 3450).anchored(0, 4),
        Window::random_pair(36, 23, 3451),
        Window::random_pair(150, 1, 3452),
        Window::random_pair(1, 150, 3453).anchored(0, 149),
    ];
    let outside = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Border::Constant);
    let mut groups = Vec::new();
    for (w, window) in windows.into_iter().enumerate() {
        for (b, border) in select::BORDERS.into_iter().chain(outside).enumerate() {
            let problems = (0..4).map(|i| {
                let seed = select::seed(16, groups.len() * 4 + i);
                let problem = Problem::new(61 + 19 * i, 140 - 17 * i, seed);
                let is_even = (w + b + i).is_multiple_of(2);
                let problem = problem.data(if is_even { Data::Infinite } else { Data::Holes });
                match i {
                    1 => problem.stored(Kind::F32, Kind::F16).channels(2),
                    2 => problem.stored(Kind::F16, Kind::F32).gaps(3, 5),
                    3 => problem.stored(Kind::F32, Kind::U8),
                    _ => problem,
                }
            });
            let problems = selection.cut(9, problems, groups.len());
            groups.push(Group { window: window.clone(), border, problems });
        }
    }
    groups
}

/// Windows in two parts and more, along each axis.
fn parts(selection: Selection) -> Vec<Group> {
    let sizes: &[_] = match selection {
        Selection::Emulated => &[(4100, 1), (1, 2100)],
        _ => &[(4100, 2), (2, 2100), (9000, 1), (1, 9000), (4500, 4500)],
    };
    let group = |(i, &(cols, rows)): (usize, &(usize, usize))| {
        let window = Window::random_pair(cols, rows, 3460 + i as u64).anchored(cols / 3, rows - 1);
        let border = select::BORDERS[i % select::BORDERS.len()];
        let problem = |number, width, height| {
            Problem::new(width, height, select::seed(17, 2 * i + number)).channels(1 + number)
        };
        let data = problem(1, 33, 20).data(Data::Holes);
        Group { window, border, problems: vec![problem(0, 70, 41), data] }
    };
    sizes.iter().enumerate().map(group).collect()
}

/// Pictures of several tiles, that end near the ends of tiles.
fn seams(selection: Selection) -> Vec<Group> {
    let mut windows = vec![Window::random_pair(100, 90, 3471)];
    if selection != Selection::Emulated {
        windows.push(Window::random_pair(5, 5, 3470));
    }
    select::seams(selection, windows, |window| {
        // The results of a line of 1024. Tiles of a row go in pairs.
        let (across, down) = (1025 - window.cols, 1025 - window.rows);
        [vec![across, 2 * across], vec![down]]
    })
}

/// Sums of two products, and of a product and the pixel.
fn sums(selection: Selection) -> Vec<Group> {
    let windows =
        vec![Window::preset("unsharp:sigma=9,amount=0.7"), Window::preset("dog:sigma=9,wider=20")];
    let mut groups = select::awkward(selection, windows.clone());
    groups.extend(select::stored(selection, windows));
    groups
}

fn long(selection: Selection) -> Vec<Group> {
    let mut windows = vec![Window::random_pair(9, 9, 3490)];
    if selection != Selection::Emulated {
        windows.push(Window::random_pair(130, 2, 3491));
    }
    select::long(selection, windows)
}
