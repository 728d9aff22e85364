//! The lists of problems that the suites solve.
//!
//! Every list is a pure function of its [`Selection`]. Seeds follow from the place in the list, so
//! every failure can be reproduced.

use std::collections::BTreeSet;

use apron::Border;

use crate::problem::{Group, Problem, Window};
use crate::sample::{Data, Kind};

/// How many of the problems to solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of them.
    Full,
    /// A thin cut through every list, for slow runs.
    Small,
    /// A denser one, for runs in the emulator.
    Emulated,
}

impl Selection {
    /// The selection that `APRON_CONFORMANCE` asks for: `small`, `emulated`, or `full` if it is not
    /// set.
    ///
    /// # Errors
    /// If it asks for something else.
    pub fn from_environment() -> Result<Self, String> {
        match std::env::var("APRON_CONFORMANCE").as_deref() {
            Err(_) | Ok("full") => Ok(Self::Full),
            Ok("small") => Ok(Self::Small),
            Ok("emulated") => Ok(Self::Emulated),
            Ok(other) => Err(format!("APRON_CONFORMANCE is \"{other}\": small, emulated or full")),
        }
    }

    /// The problems that the selection keeps: of a small selection one in `keep_one_in`.
    pub fn cut(
        self,
        keep_one_in: usize,
        problems: impl IntoIterator<Item = Problem>,
        offset: usize,
    ) -> Vec<Problem> {
        let step = match self {
            Self::Full => 1,
            Self::Small => keep_one_in,
            // About twice as many. The step is coprime to the lengths of the lists' cycles, so that
            // every value of a cycle occurs.
            Self::Emulated => (keep_one_in / 2..keep_one_in)
                .find(|step| [2, 3, 5, 17].iter().all(|factor| step % factor != 0))
                .unwrap_or(keep_one_in),
        };
        let keep = |i: usize| (i + offset).is_multiple_of(step);
        problems
            .into_iter()
            .enumerate()
            .filter(|&(i, _)| keep(i))
            .map(|(_, problem)| problem)
            .collect()
    }
}

/// All six rules. The constant is a byte, as pictures of bytes take no other.
pub const BORDERS: [Border; 6] = [
    Border::Constant(77.0),
    Border::Replicate,
    Border::Reflect,
    Border::Reflect101,
    Border::Wrap,
    Border::Keep,
];

/// Pairs of stored types other than f32 to f32, for lists that cycle through them.
const STORED: [(Kind, Kind); 8] = [
    (Kind::U8, Kind::U8),
    (Kind::U16, Kind::U16),
    (Kind::F16, Kind::F16),
    (Kind::U8, Kind::F32),
    (Kind::F32, Kind::U8),
    (Kind::U8, Kind::U8),
    (Kind::U16, Kind::F32),
    (Kind::F32, Kind::F16),
];

/// A seed for problem `index` of list `list`.
pub fn seed(list: u64, index: usize) -> u64 {
    (list << 32 | index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16
}

/// Puts the anchor in the middle, in each corner or elsewhere: `turn` cycles through these.
fn turn_anchor(window: Window, turn: usize) -> Window {
    let (cols, rows) = (window.cols, window.rows);
    match turn % 8 {
        1 => window.anchored(0, 0),
        2 => window.anchored(cols - 1, 0),
        3 => window.anchored(0, rows - 1),
        4 => window.anchored(cols - 1, rows - 1),
        5 => window.anchored((cols - 1) / 2, rows / 3),
        6 => window.anchored(cols / 2, rows - 1),
        _ => window,
    }
}

/// Every image up to 6x6 with every window up to 7x7 under every border; each once in f32 and once
/// in another type, with one to four channels.
pub fn exhaustive(selection: Selection, window: fn(usize, usize, u64) -> Window) -> Vec<Group> {
    let mut groups = Vec::new();
    for rows in 1..=7 {
        for cols in 1..=7 {
            for border in BORDERS {
                let number = groups.len();
                let window = turn_anchor(window(cols, rows, seed(1, number)), number);
                let sizes = (0..36).map(|i| (1 + i % 6, 1 + i / 6));
                let problems = sizes.enumerate().flat_map(|(i, (width, height))| {
                    let turn = number + i;
                    let plain = Problem::new(width, height, seed(2, turn));
                    let (input, output) = STORED[turn % STORED.len()];
                    let stored = plain
                        .clone()
                        .stored(input, output)
                        .channels(1 + turn % 4)
                        .gaps(turn % 3, turn % 5);
                    [plain, stored]
                });
                // 47 is coprime to the lengths of the cycles, and each group has more problems than
                // that.
                let problems = selection.cut(47, problems, number * 5);
                groups.push(Group { window, border, problems });
            }
        }
    }
    groups
}

/// Every image up to 6x6 with each of the windows under every border; each once in f32, and every
/// other once in another type.
pub fn tiny(selection: Selection, windows: Vec<Window>) -> Vec<Group> {
    let mut groups = Vec::new();
    for window in windows {
        for border in BORDERS {
            let number = groups.len();
            let problems = (0..36).flat_map(|i| {
                let turn = number + i;
                let plain = Problem::new(1 + i % 6, 1 + i / 6, seed(11, number * 36 + i));
                let (input, output) = STORED[turn % STORED.len()];
                let stored = plain
                    .clone()
                    .stored(input, output)
                    .channels(1 + turn % 4)
                    .gaps(turn % 3, turn % 5);
                std::iter::once(plain).chain(turn.is_multiple_of(2).then_some(stored))
            });
            groups.push(Group {
                window: window.clone(),
                border,
                problems: selection.cut(11, problems, number),
            });
        }
    }
    groups
}

/// Sizes that meet tile and warp borders at odd places: primes, single rows and columns, and just
/// around a tile.
const SIZES: [(usize, usize); 16] = [
    (31, 17),
    (97, 61),
    (1, 300),
    (300, 1),
    (32, 8),
    (33, 9),
    (257, 129),
    (64, 64),
    (2, 2),
    (131, 3),
    (3, 131),
    (1021, 509),
    (7, 5),
    (509, 257),
    (65, 127),
    (1000, 37),
];

/// Larger windows over `SIZES` under every border. A window meets every size for which it needs
/// less than 4 Mi multiplications. A full selection adds sizes up to 192 Mi, under a third of the
/// borders each.
pub fn awkward(selection: Selection, windows: Vec<Window>) -> Vec<Group> {
    let mut groups = Vec::new();
    for (w, window) in windows.into_iter().enumerate() {
        // Counted through all borders, so that each window keeps some of its problems in a small
        // selection.
        let mut number = 0;
        for (b, border) in BORDERS.into_iter().enumerate() {
            let work =
                |&(width, height): &(usize, usize)| width * height * window.cols * window.rows;
            let sizes = SIZES.iter().enumerate().filter(|&(i, size)| match work(size) {
                work if work < 4 << 20 => true,
                work if work < 192 << 20 => {
                    selection == Selection::Full && (i + w + b).is_multiple_of(3)
                }
                _ => false,
            });
            let problems = sizes.map(|(i, &(width, height))| {
                let turn = w + b + i;
                let plain = Problem::new(width, height, seed(3, groups.len() * SIZES.len() + i));
                let plain = plain.gaps(turn % 4, turn % 3);
                if turn.is_multiple_of(3) {
                    let (input, output) = STORED[turn / 3 % STORED.len()];
                    plain.stored(input, output)
                } else {
                    plain
                }
            });
            let all: Vec<_> = problems.collect();
            let count = all.len();
            let problems = selection.cut(23, all, number + w);
            number += count;
            groups.push(Group { window: window.clone(), border, problems });
        }
    }
    groups
}

/// Every pair of stored types with one to four channels, with gaps between rows, on a picture of a
/// few tiles.
pub fn stored(selection: Selection, windows: Vec<Window>) -> Vec<Group> {
    let mut groups = Vec::new();
    for (w, window) in windows.into_iter().enumerate() {
        for border in [BORDERS[w % 6], BORDERS[(w + 1) % 6]] {
            let mut problems = Vec::new();
            for channels in 1..=4 {
                for input in Kind::ALL {
                    for output in Kind::ALL {
                        let turn = groups.len() + problems.len();
                        let data =
                            if turn.is_multiple_of(5) { Data::Extremes } else { Data::Random };
                        let problem = Problem::new(47, 23, seed(4, turn))
                            .stored(input, output)
                            .channels(channels);
                        problems.push(problem.gaps(1 + turn % 7, turn % 6).data(data));
                    }
                }
            }
            let problems = selection.cut(44, problems, groups.len());
            groups.push(Group { window: window.clone(), border, problems });
        }
    }
    groups
}

/// Pictures with NaN, infinities and numbers too small or too large, some under taps that are zero.
pub fn wild(selection: Selection, windows: Vec<Window>) -> Vec<Group> {
    let mut groups = Vec::new();
    for window in windows {
        for border in BORDERS {
            let problems = (0..12).map(|i| {
                let problem = Problem::new(40 + i, 19, seed(5, groups.len() * 12 + i));
                let problem = problem.data(if i % 3 == 2 { Data::Tiny } else { Data::Wild });
                match i {
                    3 | 8 => problem.stored(Kind::F32, Kind::F16),
                    4 | 10 => problem.stored(Kind::F16, Kind::F16).channels(3),
                    6 => problem.stored(Kind::F32, Kind::U8),
                    7 => problem.stored(Kind::F16, Kind::U16),
                    _ => problem,
                }
            });
            let problems = selection.cut(9, problems, groups.len());
            groups.push(Group { window: window.clone(), border, problems });
        }
        for outside in [f64::NAN, f64::INFINITY, 3e38] {
            let plain = Problem::new(11, 9, seed(10, groups.len()));
            let problems =
                vec![plain.clone().stored(Kind::U8, Kind::U8), plain.stored(Kind::F32, Kind::F32)];
            groups.push(Group {
                window: window.clone(),
                border: Border::Constant(outside),
                problems,
            });
        }
    }
    groups
}

/// 8-bit pictures under taps that make sums end in a half.
pub fn ties(selection: Selection, windows: Vec<Window>) -> Vec<Group> {
    let mut groups = Vec::new();
    for window in windows {
        for border in BORDERS {
            let problems = (0..10).map(|i| {
                let problem = Problem::new(61 + 3 * i, 29 + i, seed(6, groups.len() * 10 + i));
                let problem = problem.stored(Kind::U8, Kind::U8).channels(1 + i % 4).gaps(i, 2 * i);
                match i {
                    3 | 8 => problem.stored(Kind::U8, Kind::F32),
                    7 => problem.data(Data::Extremes),
                    _ => problem,
                }
            });
            let problems = selection.cut(12, problems, groups.len());
            groups.push(Group { window: window.clone(), border, problems });
        }
    }
    groups
}

/// Where tiles and strips of the direct and the separable kernels end, for [`seams`].
pub fn tile_ends(_: &Window) -> [Vec<usize>; 2] {
    [vec![64, 512], vec![64, 128]]
}

/// Images that end within two pixels of the end of a tile, with or without its apron. Only these
/// show an error in a tile that crosses the image's edge by a pixel. `ends` are the columns and the
/// rows at which tiles end, without a window.
pub fn seams(
    selection: Selection,
    windows: Vec<Window>,
    ends: fn(&Window) -> [Vec<usize>; 2],
) -> Vec<Group> {
    let mut groups = Vec::new();
    for (w, window) in windows.into_iter().enumerate() {
        let [columns, rows] = ends(&window);
        let around = |ends: Vec<usize>, len: usize, anchor: usize| -> BTreeSet<usize> {
            let aprons = [0, len - 1, len - 1 - anchor]
                .map(|apron| (apron, 0))
                .into_iter()
                .chain([(0, anchor)]);
            let ends = ends
                .into_iter()
                .flat_map(|end| aprons.clone().map(move |(more, less)| end + more - less));
            ends.flat_map(|end| end - 2..end + 2).collect()
        };
        // Large enough along the other axis that some tiles lie inside.
        let (across, down) = (70 + 2 * window.cols, 23 + 2 * window.rows);
        let widths =
            around(columns, window.cols, window.anchor.0).into_iter().map(|width| (width, down));
        let heights =
            around(rows, window.rows, window.anchor.1).into_iter().map(|height| (across, height));
        let sizes: Vec<_> = widths.chain(heights).collect();
        for border in [BORDERS[w % 6], BORDERS[(w + 3) % 6]] {
            let problem = |(i, &(width, height))| {
                Problem::new(width, height, seed(13, groups.len() * 100 + i))
            };
            let problems: Vec<_> = sizes.iter().enumerate().map(problem).collect();
            // Slow runs keep more problems of small windows.
            let keep_one_in = if window.cols * window.rows <= 25 { 12 } else { 48 };
            let problems = selection.cut(keep_one_in, problems, groups.len());
            groups.push(Group { window: window.clone(), border, problems });
        }
    }
    groups
}

/// Images that need more than the 65,535 blocks that a grid takes along one axis, for any block
/// height. A small window needs three times as many. Slow runs have shorter grids
/// (`APRON_GRID_ROWS`) and smaller images.
pub fn long(selection: Selection, windows: Vec<Window>) -> Vec<Group> {
    let border = |i: usize| BORDERS[(i + 3) % 6];
    let groups = windows.into_iter().enumerate().map(|(i, window)| {
        let times = if window.cols * window.rows <= 9 { 3 } else { 1 };
        let sizes = match selection {
            Selection::Full => {
                vec![(1, 65535 * 8 + 13), (1, times * 65535 * 64 + 13), (65535 * 32 + 7, 2)]
            }
            // Three iterations of a grid of five strips with 512 rows, the highest strips.
            Selection::Small | Selection::Emulated => vec![(1, 3 * 5 * 512 + 37), (99 * 32 + 7, 2)],
        };
        let problem =
            |(list, (width, height)): (u64, _)| Problem::new(width, height, seed(list, i));
        Group { window, border: border(i), problems: (7..).zip(sizes).map(problem).collect() }
    });
    groups.collect()
}

/// Windows and images for which each loop over chunks of taps, parts of a window or tiles takes
/// three iterations and a partial one. A pair is a window and its problems; each goes under a
/// reflection and under another border.
pub fn turns(pairs: Vec<(Window, Vec<Problem>)>) -> Vec<Group> {
    let groups = pairs.into_iter().enumerate().flat_map(|(w, (window, problems))| {
        let borders = [[Border::Reflect, Border::Reflect101][w % 2], BORDERS[[0, 4, 1, 5][w % 4]]];
        borders.map(|border| Group { window: window.clone(), border, problems: problems.clone() })
    });
    groups.collect()
}
