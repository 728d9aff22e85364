//! The Fourier family: within a stated distance of the oracle on every device, and with the direct
//! family's bits for pixels beyond the range of spectra.

use apron::{Border, Family};
use conformance::problem::{Group, Problem, Window};
use conformance::product::Gpu;
use conformance::sample::{Data, Kind};
use conformance::select::{self, Selection};
use conformance::suite;
use libtest_mimic::Trial;

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let trials = |name: &str, groups: fn(Selection) -> Vec<Group>| {
        suite::trials(&format!("fourier::{name}"), Family::Fourier, gpu, move || groups(selection))
    };
    [
        trials("exhaustive", exhaustive),
        trials("awkward", |selection| select::awkward(selection, windows(selection))),
        trials("stored", stored),
        trials("wild", wild),
        trials("holes", holes),
        trials("ties", ties),
        trials("parts", parts),
        trials("seams", seams),
        trials("long", |selection| select::long(selection, vec![Window::random(3, 3, 71)])),
        trials("turns", turns),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(crate) fn exhaustive(selection: Selection) -> Vec<Group> {
    select::exhaustive(selection, Window::random)
}

/// Windows that fill a part of a tile, all that a tile may hold, and slightly more: in one part, in
/// two and in many.
pub(crate) fn windows(selection: Selection) -> Vec<Window> {
    let sizes = [
        (2, 2),
        (17, 17),
        (33, 31),
        (48, 49),
        (51, 51),
        (64, 20),
        (20, 66),
        (96, 97),
        (101, 101),
        (300, 1),
        (1, 300),
        (131, 3),
        (3, 260),
    ];
    let sizes = sizes.into_iter().enumerate();
    let mut windows: Vec<_> =
        sizes.map(|(i, (cols, rows))| Window::random(cols, rows, 3000 + i as u64)).collect();
    windows.extend([
        Window::random(51, 51, 1).anchored(0, 0),
        Window::random(40, 52, 2).anchored(39, 51),
        Window::random(130, 97, 3).anchored(129, 0),
        Window::random(97, 9, 4).anchored(0, 8),
    ]);
    windows.extend(["gaussian:sigma=5", "motion:length=41,angle=30"].map(Window::preset));
    // A pair of large tiles takes seconds on the emulator: one window stands for all that need
    // them.
    let is_short = |window: &Window| {
        window.cols.max(window.rows) < 96 || (window.cols, window.rows) == (101, 101)
    };
    windows.retain(|window| selection != Selection::Emulated || is_short(window));
    windows
}

pub(crate) fn seams(selection: Selection) -> Vec<Group> {
    let windows = vec![
        Window::random(5, 5, 81),
        Window::random(17, 17, 82),
        Window::random(20, 9, 83).anchored(19, 0),
    ];
    select::seams(selection, windows, |window| {
        // The results of a tile of 128, across and down. Tiles go in pairs, side by side.
        let (across, down) = (129 - window.cols, 129 - window.rows);
        [vec![2 * across, 3 * across + 128], vec![down, 2 * down]]
    })
}

pub(crate) fn stored(selection: Selection) -> Vec<Group> {
    let windows = vec![
        Window::random(19, 23, 13),
        Window::random(51, 51, 16).anchored(3, 50),
        Window::random(9, 120, 17),
    ];
    select::stored(selection, windows)
}

pub(crate) fn wild(selection: Selection) -> Vec<Group> {
    let zeros =
        Window::dense("half of them zero", 3, 3, &[0.0, 1.0, 0.0, 1.0, -4.0, 1.0, 0.0, 1.0, 0.0]);
    let large = Window::dense("large", 2, 2, &[1e5, -3e5, 2e5, 1.0]);
    let windows = vec![zeros, large, Window::random(5, 5, 21), Window::random(36, 23, 22)];
    let mut groups = select::wild(selection, windows);
    // Tiles are computed in pairs: the infinity lies in the second tile of a pair, or in the first.
    for (i, width) in [200, 90].into_iter().enumerate() {
        let problems = vec![Problem::new(width, 30, select::seed(12, i)).data(Data::Lone)];
        groups.push(Group {
            window: Window::random(5, 5, 23),
            border: Border::Constant(2.5),
            problems,
        });
    }
    groups
}

/// Pictures with a few NaN and infinities. Taps have both signs and zeros, or one sign; some
/// windows have parts. Special pixels lie at the ends of tiles and beyond every border. Some border
/// constants are NaN or infinite.
pub(crate) fn holes(selection: Selection) -> Vec<Group> {
    let whole = |cols: usize, rows: usize| -> Window {
        let taps: Vec<f32> = (0..cols * rows).map(|i| (i * 7 % 11 % 3) as f32 - 1.0).collect();
        Window::dense("-1, 0 and 1", cols, rows, &taps)
    };
    let windows = [
        whole(3, 3),
        whole(9, 7).anchored(8, 0),
        Window::random(5, 5, 121).anchored(0, 4),
        Window::random(36, 23, 122),
        Window::preset("motion:length=41,angle=30"),
        whole(70, 20).anchored(3, 19),
        Window::random(100, 90, 123).anchored(99, 0),
        whole(1, 150),
        whole(150, 1),
    ];
    let outside = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Border::Constant);
    let mut groups = Vec::new();
    for (w, window) in windows.into_iter().enumerate() {
        for (b, border) in select::BORDERS.into_iter().chain(outside).enumerate() {
            let problems = (0..6).map(|i| {
                let problem =
                    Problem::new(61 + 19 * i, 140 - 17 * i, select::seed(14, groups.len() * 6 + i));
                let problem =
                    problem.data(if (w + b + i) % 2 == 0 { Data::Infinite } else { Data::Holes });
                match i {
                    1 => problem.stored(Kind::F32, Kind::F16).channels(2),
                    3 => problem.stored(Kind::F16, Kind::F32).gaps(3, 5),
                    4 => problem.stored(Kind::F16, Kind::F16).channels(3),
                    5 => problem.stored(Kind::F32, Kind::U8),
                    _ => problem,
                }
            });
            let problems = selection.cut(11, problems, groups.len());
            groups.push(Group { window: window.clone(), border, problems });
        }
    }
    // Several tiles on every device. Windows of several parts on the CPU too.
    let large = [
        (Window::random(5, 5, 124), 501, 401, Data::Holes),
        (whole(17, 19), 480, 300, Data::Infinite),
        (whole(1500, 2).anchored(1000, 1), 301, 9, Data::Infinite),
        (whole(2, 1500).anchored(0, 90), 9, 301, Data::Infinite),
    ];
    for (i, (window, width, height, data)) in large.into_iter().enumerate() {
        let problems = vec![Problem::new(width, height, select::seed(15, i)).data(data)];
        groups.push(Group { window, border: Border::Reflect101, problems });
    }
    groups
}

/// Windows in parts along each axis and both, on every device, with pixels beyond the range of
/// spectra. The parts of a result must form one sum, in the order of the taps.
pub(crate) fn parts(selection: Selection) -> Vec<Group> {
    let sizes = [(87, 1), (1, 87), (150, 3), (3, 150), (100, 90), (700, 2), (2, 700)];
    let sizes =
        sizes.into_iter().filter(|&(_, rows)| selection != Selection::Emulated || rows < 700);
    let mut groups = Vec::new();
    for (i, (cols, rows)) in sizes.enumerate() {
        let window = Window::random(cols, rows, 3100 + i as u64);
        let problem =
            |width, height, number| Problem::new(width, height, select::seed(13, 8 * i + number));
        // Sums that overflow, and sums with pixels that only spectra cannot take.
        let outside = |number| vec![problem(23, 17, number), problem(87, 1, number + 1)];
        let inside = vec![
            problem(23, 17, 4).data(Data::Wild),
            problem(150, 140, 5).data(Data::Lone).channels(2),
        ];
        let all = [
            (Border::Constant(3e38), outside(0)),
            (Border::Constant(5e36), outside(2)),
            (Border::Reflect, inside),
        ];
        for (border, problems) in all {
            let problems = selection.cut(4, problems, groups.len());
            groups.push(Group { window: window.clone(), border, problems });
        }
    }
    groups
}

/// Windows in three parts and more across, down and both: on a GPU, and on the CPU, where tiles are
/// larger. Also more than three tiles for each block that a device runs at a time.
pub(crate) fn turns(selection: Selection) -> Vec<Group> {
    let problem = |width, height, list| vec![Problem::new(width, height, select::seed(list, 0))];
    let many = match selection {
        // As many channels as possible: the blocks are divided among them.
        Selection::Full => Problem::new(2050, 1510, select::seed(41, 0)).channels(4),
        Selection::Small | Selection::Emulated => Problem::new(501, 401, select::seed(41, 0)),
    };
    let pairs = [
        (Window::random(5, 5, 91), vec![many]),
        (Window::random(290, 2, 92), problem(301, 9, 42)),
        (Window::random(2, 290, 93), problem(9, 301, 43)),
        (Window::random(1500, 2, 95).anchored(1000, 1), problem(301, 9, 45)),
        (Window::random(2, 1500, 96).anchored(0, 90), problem(9, 301, 46)),
        (Window::random(230, 215, 94).anchored(200, 7), problem(61, 50, 44)),
    ];
    select::turns(pairs.into())
}

pub(crate) fn ties(selection: Selection) -> Vec<Group> {
    let mean = |cols: usize, rows: usize| {
        Window::dense("mean", cols, rows, &vec![1.0 / (cols * rows) as f32; cols * rows])
    };
    let windows = vec![
        mean(2, 2),
        mean(6, 6),
        mean(20, 20),
        Window::preset("unsharp:sigma=1,amount=0.7"),
        Window::dense("quarters", 3, 3, &[0.25, -0.5, 0.75, 1.25, 0.5, -1.75, 2.25, 0.5, -0.75]),
        Window::random(7, 7, 32),
        Window::random(27, 35, 33),
    ];
    select::ties(selection, windows)
}
