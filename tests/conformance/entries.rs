//! Launches every entry once, at a small awkward shape: partial tiles, windows that leave the
//! image, grids that end before it. `conformance sanitize` runs this list under compute-sanitizer.

#[cfg(feature = "gpu")]
use std::collections::BTreeSet;

use apron::Family;
#[cfg(feature = "gpu")]
use apron::{Border, Variant};
#[cfg(feature = "gpu")]
use conformance::problem::{Group, Problem, Window};
use conformance::product::Gpu;
#[cfg(feature = "gpu")]
use conformance::product::{OnDevice, Product};
#[cfg(feature = "gpu")]
use conformance::sample::{Data, Kind};
#[cfg(feature = "gpu")]
use conformance::select;
use conformance::suite;
use libtest_mimic::{Failed, Trial};
#[cfg(feature = "gpu")]
use studies::Study;

#[cfg(feature = "gpu")]
use crate::{arrays, each, ladder, light, masked, steps, table};

/// The prefix of these tests' names.
pub(crate) const NAME: &str = "entries::";

/// The number of these tests.
pub(crate) const COUNT: usize = 6;

pub(crate) fn trials(gpu: &Gpu) -> Vec<Trial> {
    let family = |name: &str, family| {
        let name = format!("{NAME}{name}::gpu");
        suite::gpu_trial(&name.clone(), gpu, move || of_family(&name, family))
    };
    let all: [_; COUNT] = [
        family("direct", Family::Direct),
        family("separable", Family::Separable),
        family("fourier", Family::Fourier),
        family("spectra_passes", Family::SpectraPasses),
        suite::gpu_trial(&format!("{NAME}shared::gpu"), gpu, shared),
        suite::gpu_trial(&format!("{NAME}studies::gpu"), gpu, of_studies),
    ];
    all.into()
}

#[cfg(not(feature = "gpu"))]
fn of_family(_: &str, _: Family) -> Result<(), Failed> {
    suite::no_gpu()
}

#[cfg(not(feature = "gpu"))]
fn shared() -> Result<(), Failed> {
    suite::no_gpu()
}

#[cfg(not(feature = "gpu"))]
fn of_studies() -> Result<(), Failed> {
    suite::no_gpu()
}

/// The number of taps for which an entry is compiled, from the last part of its name.
#[cfg(feature = "gpu")]
fn size_of(entry: &str) -> Option<usize> {
    entry.rsplit('_').next().and_then(|part| part.parse().ok())
}

/// One problem for each of a variant's entries, and more for the entries that take any window.
#[cfg(feature = "gpu")]
fn groups(variant: Variant) -> Vec<Group> {
    let window = |cols, rows| match variant.family() {
        Family::Separable => Window::random_pair(cols, rows, 4000 + cols as u64),
        _ => Window::random(cols, rows, 4000 + cols as u64),
    };
    let sizes: BTreeSet<usize> = variant.entries().filter_map(size_of).collect();
    // A block's tile or a warp's strip, and a little more. Then the windows for which no entry is
    // compiled.
    let (size, others): ((usize, usize), &[(usize, usize)]) = match variant {
        Variant::DirectNaive | Variant::DirectConstant => ((35, 29), &[(4, 3)]),
        Variant::DirectShared | Variant::DirectUnrolled => ((35, 29), &[(4, 3), (33, 32)]),
        Variant::DirectSliding | Variant::SeparableFused => ((131, 19), &[]),
        Variant::Separable => ((259, 67), &[(4, 6), (260, 2), (2, 260)]),
        Variant::SeparableTile => ((67, 35), &[]),
        // Pairs of tiles, a window in parts, and a window for large tiles.
        _ => ((251, 125), &[(5, 5), (100, 3), (100, 70)]),
    };
    let sized = sizes
        .iter()
        .filter(|_| variant.family() != Family::Fourier)
        .map(|&taps| window(taps, taps));
    let others = others.iter().map(|&(cols, rows)| window(cols, rows).anchored(0, rows - 1));
    // Lines, for the passes over rows and over columns.
    let lines = sizes.iter().chain(&[4, 300]).filter(|_| variant == Variant::DirectUnrolled);
    let lines = lines.flat_map(|&taps| [window(taps, 1), window(1, taps).anchored(0, taps / 3)]);
    let windows: Vec<_> = sized.chain(others).chain(lines).collect();
    let group = |(i, window): (usize, Window)| {
        // The first border copies pixels, by a kernel of its own.
        let border = [Border::Keep, Border::Reflect, Border::Constant(7.0), Border::Wrap][i % 4];
        let problem = Problem::new(size.0, size.1, select::seed(51, i)).gaps(0, i % 2);
        Group { window, border, problems: vec![problem] }
    };
    windows.into_iter().chain(sums(variant)).enumerate().map(group).collect()
}

/// Sums for the entries of a variant that add several products.
#[cfg(feature = "gpu")]
fn sums(variant: Variant) -> Vec<Window> {
    let of_two = |size: usize| Window::random_sum(size, size, 4200 + size as u64);
    // A Gaussian of this sigma has a window of this size.
    let masked =
        |size: usize| Window::preset(&format!("unsharp:sigma={}", (size / 2) as f64 / 4.0));
    match variant {
        Variant::Separable => {
            vec![
                Window::random_sum(9, 200, 4200).anchored(0, 199),
                Window::preset("unsharp:sigma=9"),
            ]
        }
        Variant::SeparableFused => {
            let sizes_of = |part: &'static str| {
                variant.entries().filter(move |entry| entry.contains(part)).filter_map(size_of)
            };
            sizes_of("_two_").map(of_two).chain(sizes_of("_point_").map(masked)).collect()
        }
        _ => Vec::new(),
    }
}

/// A problem for each type of stored pixels in the Fourier family's entries. Some tiles lie inside
/// the image.
#[cfg(feature = "gpu")]
fn spectra() -> Vec<Group> {
    let kinds = [
        (Kind::U8, Kind::U8),
        (Kind::U8, Kind::F32),
        (Kind::U16, Kind::U16),
        (Kind::F16, Kind::F16),
        (Kind::F32, Kind::U8),
    ];
    let group = |(i, (input, result)): (usize, (Kind, Kind))| {
        let problem = Problem::new(640, 150, select::seed(58, i))
            .channels(1 + 2 * (i % 2))
            .stored(input, result);
        Group {
            window: Window::blur(19, 21, 4300 + i as u64),
            border: select::BORDERS[i],
            problems: vec![problem],
        }
    };
    // Large tiles. The types of the results cycle.
    let large = |(i, (input, _)): (usize, (Kind, Kind))| {
        let (_, result) = kinds[(i + 1) % kinds.len()];
        let problem = Problem::new(2100, 5, select::seed(59, i)).stored(input, result);
        Group {
            window: Window::blur(120, 100, 4400 + i as u64),
            border: select::BORDERS[i],
            problems: vec![problem],
        }
    };
    let kinds = || kinds.into_iter().enumerate();
    kinds().map(group).chain(kinds().map(large)).chain(of_bytes()).chain(halves()).collect()
}

/// Bytes for which large tiles take most columns, and small or stacked tiles the rest; with and
/// without a centre tap that outweighs all others.
#[cfg(feature = "gpu")]
fn of_bytes() -> impl Iterator<Item = Group> {
    select::BORDERS.into_iter().enumerate().map(|(i, border)| {
        let (window, height) = match i % 3 {
            0 => (Window::blur(120, 100, 4500 + i as u64), 5),
            1 => (Window::blur(100, 140, 4500 + i as u64), 5),
            _ => (Window::preset("unsharp:sigma=16,amount=1.5"), 3),
        };
        let problem = Problem::new(2100, height, select::seed(60, i)).stored(Kind::U8, Kind::U8);
        Group { window, border, problems: vec![problem] }
    })
}

/// Bytes whose last columns take half a small folded tile, so one tile computes them for two rows
/// of tiles. Pictures have three such rows, two, or no other columns.
#[cfg(feature = "gpu")]
fn halves() -> impl Iterator<Item = Group> {
    select::BORDERS.into_iter().enumerate().map(|(i, border)| {
        // A tile has 226 columns and 98 rows of results.
        let (width, height) = [(280, 210), (250, 120), (70, 150)][i % 3];
        let problem = Problem::new(width, height, select::seed(61, i)).stored(Kind::U8, Kind::U8);
        Group { window: Window::blur(31, 31, 4600 + i as u64), border, problems: vec![problem] }
    })
}

/// For each entry of a variant for interleaved channels of f32, a problem with strips or tiles
/// inside the image and at each of its edges, and one narrower than a strip.
#[cfg(feature = "gpu")]
fn interleaved(variant: Variant) -> Vec<Group> {
    let window = |size: usize| match variant.family() {
        Family::Separable => Window::random_pair(size, size, 4700 + size as u64),
        _ => Window::random(size, size, 4700 + size as u64),
    };
    let group = |(i, (channels, window)): (usize, (usize, Window))| {
        let problem = |number: usize, width: usize| {
            Problem::new(width, 19 + 40 * number, select::seed(62, 2 * i + number))
                .channels(channels)
        };
        Group {
            window,
            border: select::BORDERS[i % select::BORDERS.len()],
            problems: vec![problem(0, 31), problem(1, 1200 / channels)],
        }
    };
    let of = |channels: usize| {
        let part = format!("_f32_c{channels}_");
        let entries = variant.entries().filter(move |entry| entry.contains(&part));
        entries.filter_map(size_of).map(move |size| (channels, window(size)))
    };
    // Row passes for any number of taps.
    let passes = |channels: usize| match variant {
        Variant::Separable => vec![
            (channels, Window::random_pair(5 + channels, 40, 4800)),
            (channels, Window::random_pair(300, 17, 4801).anchored(channels, 3)),
            (channels, Window::random_sum(21, 6, 4802)),
        ],
        Variant::DirectUnrolled => vec![
            (channels, Window::random(40 + channels, 1, 4803)),
            (channels, Window::random(1, 17, 4804).anchored(0, channels)),
        ],
        _ => Vec::new(),
    };
    let passes = (2..=4).flat_map(passes);
    of(3).chain(of(4)).chain(passes).enumerate().map(group).collect()
}

/// For a variant with entries for stored pixels, two problems for each size: one in 8 bits, one in
/// 16 bits, alternately integers and half floats. One to four channels cycle, and so do the types
/// of the results. Some pairs of types have entries of their own (equal types, and bytes to f32).
/// These pairs get a problem for each number of channels instead.
#[cfg(feature = "gpu")]
fn stored(variant: Variant) -> Vec<Group> {
    const RESULTS: [Kind; 5] = [Kind::U8, Kind::F32, Kind::U16, Kind::U8, Kind::F16];
    let sizes_of = |part: &str| -> BTreeSet<usize> {
        variant.entries().filter(|entry| entry.contains(part)).filter_map(size_of).collect()
    };
    let own = [(Kind::U8, Kind::U8, "_flat_"), (Kind::U8, Kind::F32, "_floats_")];
    let own =
        own.into_iter().chain([(Kind::U16, Kind::U16, "_u16_"), (Kind::F16, Kind::F16, "_f16_")]);
    let own: Vec<_> = own.map(|(input, result, part)| (input, result, sizes_of(part))).collect();
    let group = |(i, size): (usize, usize)| {
        let window = match variant.family() {
            // With larger taps, exact passes would make bytes of bytes.
            Family::Separable => Window::blur_pair(size, size, 4100 + size as u64),
            _ => Window::blur(size, size, 4100 + size as u64),
        };
        let border = select::BORDERS[i % select::BORDERS.len()];
        let problem = |n: usize, input: Kind| {
            let problem =
                Problem::new(131, 19, select::seed(53, 2 * i + n)).channels(1 + (i + n) % 4);
            let is_own = |result: &Kind| {
                own.iter().any(|(from, to, sizes)| {
                    (*from, *to) == (input, *result) && sizes.contains(&size)
                })
            };
            let mut results = RESULTS.into_iter().cycle().skip(i + n);
            let result = results
                .find(|result| !is_own(result))
                .expect("No input has entries of its own for each result");
            problem.stored(input, result).gaps(n, i % 2)
        };
        let halves = if i.is_multiple_of(2) { Kind::U16 } else { Kind::F16 };
        let mixed = Group {
            window: window.clone(),
            border,
            problems: vec![problem(0, Kind::U8), problem(1, halves)],
        };
        // Strips inside the image and at each of its edges. Constants outside are whole numbers.
        let border = if let Border::Constant(_) = border { Border::Constant(7.0) } else { border };
        let problem = |(channels, input, result): (usize, Kind, Kind)| {
            let problem = Problem::new(1200 / channels, 70, select::seed(55, 4 * i + channels))
                .channels(channels);
            problem.stored(input, result)
        };
        let own = own.iter().filter(|(.., sizes)| sizes.contains(&size));
        let problems: Vec<_> = own
            .flat_map(|&(input, result, _)| {
                [1, 3, 4].map(|channels| problem((channels, input, result)))
            })
            .collect();
        if problems.is_empty() {
            return vec![mixed];
        }
        vec![mixed, Group { window, border, problems }]
    };
    sizes_of("bit_").into_iter().enumerate().flat_map(group).collect()
}

/// For each tensor-core entry a window of its number of digits and its width.
#[cfg(feature = "gpu")]
fn matrices() -> Vec<Group> {
    // Taps of one digit and of two, which binary fractions hold, and of three, which no binary
    // fraction holds.
    let taps = |digits: u32, count: usize| -> Vec<f32> {
        let tap = |i: usize| match digits {
            1 => (i as f32 % 7.0 - 3.0) / 64.0,
            2 => ((37 * i % 601) as f32 - 300.0) / 4096.0,
            _ => (i as f32 % 7.0 - 3.0) / 99.0,
        };
        (0..count).map(tap).collect()
    };
    // Two and three halves of 16 bytes; five rows of two, which have an entry of their own; three
    // and four channels, split by channel.
    let windows = [(13, 3, 1), (25, 3, 1), (5, 5, 1), (9, 3, 3), (17, 3, 4)];
    let group = |(i, (digits, (cols, rows, channels))): (usize, (u32, (usize, usize, usize)))| {
        let window = Window::dense("fractions", cols, rows, &taps(digits, rows * cols));
        let problem = Problem::new(147, 19, select::seed(56, i))
            .channels(channels)
            .stored(Kind::U8, Kind::U8);
        let border = select::BORDERS[1 + i % 5];
        Group { window, border, problems: vec![problem.gaps(i % 2, i % 3)] }
    };
    (1..=3)
        .flat_map(|digits| windows.map(|window| (digits, window)))
        .enumerate()
        .map(group)
        .collect()
}

/// For each tensor-core entry for a row and a column, a window of its height, with few or many
/// bytes in a row. Then windows that are sums of two products.
#[cfg(feature = "gpu")]
fn pairs() -> Vec<Group> {
    #[rustfmt::skip]
    const WINDOWS: [(usize, usize, usize); 9] = [
        (17, 17, 1), (17, 17, 3), (17, 17, 4), (81, 13, 3), (40, 13, 4), (33, 33, 1), (33, 32, 3), (9, 65, 2), (97, 97, 1),
    ];
    let pair = |(i, &(cols, rows, channels)): (usize, &(usize, usize, usize))| {
        (channels, Window::blur_pair(cols, rows, 4200 + i as u64))
    };
    let sums = [
        (1, "log:sigma=2"),
        (3, "log:sigma=2"),
        (4, "log:sigma=2"),
        (1, "dog:sigma=2"),
        (3, "dog:sigma=2"),
        (1, "dog:sigma=4"),
        (3, "dog:sigma=1,wider=12"),
        (4, "dog:sigma=2"),
    ];
    let sums = sums.map(|(channels, text)| (channels, Window::preset(text)));
    let group = |(i, (channels, window)): (usize, (usize, Window))| {
        let problem = Problem::new(147, 37, select::seed(57, i))
            .channels(channels)
            .stored(Kind::U8, Kind::U8);
        let border = select::BORDERS[1 + i % 5];
        Group { window, border, problems: vec![problem.gaps(i % 2, i % 3)] }
    };
    WINDOWS.iter().enumerate().map(pair).chain(sums).enumerate().map(group).collect()
}

/// Means by running sums, with windows for one warp and for several, for each number of channels.
#[cfg(feature = "gpu")]
fn means() -> Vec<Group> {
    let group = |i: usize| {
        let problem = Problem::new(147, 37, select::seed(58, i))
            .channels(1 + i % 4)
            .stored(Kind::U8, Kind::U8);
        let window =
            Window::preset(if i < 4 { "box:cols=6,rows=4" } else { "box:cols=50,rows=52" });
        Group {
            window,
            border: select::BORDERS[1 + i % 5],
            problems: vec![problem.gaps(i % 2, i % 3)],
        }
    };
    (0..8).map(group).collect()
}

/// For each entry of 1-D spectra along rows and along columns, a window of its length, in one part
/// and in several; bytes, and other types.
#[cfg(feature = "gpu")]
fn lines() -> Vec<Group> {
    const WINDOWS: [(usize, usize); 5] = [(41, 37), (501, 33), (1801, 5), (4111, 3), (3, 2201)];
    let of_types = |problem: Problem| {
        vec![problem.clone().stored(Kind::U8, Kind::U8), problem.stored(Kind::U16, Kind::F32)]
    };
    let group = |(i, (cols, rows)): (usize, (usize, usize))| {
        let problem =
            Problem::new(147, 37, select::seed(59, i)).channels(1 + i % 4).gaps(i % 2, i % 3);
        let window = match i {
            1 => Window::preset("gaussian:sigma-x=40,sigma-y=100"),
            _ => Window::blur_pair(cols, rows, 4300 + i as u64),
        };
        Group { window, border: select::BORDERS[1 + i % 5], problems: of_types(problem) }
    };
    let of_sum = |(i, text): (usize, &str)| {
        let problem = Problem::new(147, 37, select::seed(60, i)).channels(1 + i).gaps(i, 2 * i);
        Group {
            window: Window::preset(text),
            border: select::BORDERS[1 + i],
            problems: of_types(problem),
        }
    };
    let sums = ["unsharp:sigma=9", "dog:sigma=4,wider=9"].into_iter().enumerate().map(of_sum);
    WINDOWS.into_iter().enumerate().map(group).chain(sums).collect()
}

#[cfg(feature = "gpu")]
fn of_family(name: &str, family: Family) -> Result<(), Failed> {
    let variants = || Variant::all().filter(|variant| variant.family() == family);
    for variant in variants() {
        let stored = match variant {
            Variant::Matrix => matrices(),
            Variant::SeparableMatrix => pairs(),
            Variant::RunningSums => means(),
            Variant::SpectraPasses => lines(),
            _ => {
                suite::check(
                    &format!("{name}, {variant}"),
                    &[OnDevice { variant, interleaved: false }],
                    &groups(variant),
                )?;
                let interleaved = interleaved(variant);
                if !interleaved.is_empty() {
                    suite::check(
                        &format!("{name}, {variant}, interleaved"),
                        &[OnDevice { variant, interleaved: true }],
                        &interleaved,
                    )?;
                }
                if variant == Variant::Fourier { spectra() } else { stored(variant) }
            }
        };
        if !stored.is_empty() {
            let product = Product { variant: Some(variant), device: Gpu::DEVICE };
            suite::check(&format!("{name}, {variant}, stored"), &[product], &stored)?;
        }
    }
    launched(variants().flat_map(Variant::entries))
}

/// Entries that no variant owns: gradients; colours weighted by alpha; interleaved f32 that become
/// planes; uncertain bytes that are resolved; bytes of wide separable windows by exact passes.
#[cfg(feature = "gpu")]
fn shared() -> Result<(), Failed> {
    let one = |window, border, problem| Group { window, border, problems: vec![problem] };
    let bytes = |width, height, i| {
        Problem::new(width, height, select::seed(54, i)).stored(Kind::U8, Kind::U8)
    };
    let groups = [
        one(
            Window::random(4, 3, 4200),
            Border::Reflect,
            Problem::new(35, 19, select::seed(54, 0)).channels(3),
        ),
        // One thread resolves a result by itself, or a warp does, or a block takes several.
        one(Window::random(5, 5, 4201), Border::Keep, bytes(61, 23, 1).channels(3)),
        one(Window::random(15, 10, 4202), Border::Wrap, bytes(61, 23, 2).channels(4)),
        one(Window::random(24, 23, 4205), Border::Reflect101, bytes(61, 23, 8).channels(3)),
        one(Window::preset("box:cols=12,rows=10"), Border::Reflect, bytes(61, 23, 5).channels(3)),
        one(
            Window::preset("box:cols=70,rows=60"),
            Border::Wrap,
            bytes(61, 23, 9).data(Data::Extremes),
        ),
    ];
    let passes = [
        one(Window::random_pair(65, 67, 4203), Border::Reflect101, bytes(67, 35, 3).channels(2)),
        one(
            Window::random_pair(257, 259, 4204).anchored(7, 250),
            Border::Constant(3.0),
            bytes(9, 7, 4).channels(3),
        ),
        one(Window::preset("unsharp:sigma=9"), Border::Wrap, bytes(67, 70, 6).channels(2)),
        one(
            Window::preset("dog:sigma=1,wider=9"),
            Border::Constant(3.0),
            bytes(67, 70, 7).channels(3),
        ),
    ];
    // Spectra that leave many results uncertain.
    let heavy = Window::random_of_weight(24, 24, 28.0, 4206);
    let spectra = [one(heavy, Border::Wrap, bytes(260, 180, 10).channels(3))];
    // Means with ties where rows may repeat.
    let counted = [one(
        Window::preset("box:cols=70,rows=60"),
        Border::Wrap,
        bytes(61, 23, 11).data(Data::Extremes),
    )];
    let groups = [
        (Variant::DirectNaive, &groups[..]),
        (Variant::Separable, &passes),
        (Variant::Fourier, &spectra),
        (Variant::RunningSums, &counted),
    ];
    for (variant, groups) in groups {
        let product = Product { variant: Some(variant), device: Gpu::DEVICE };
        suite::check(&format!("{NAME}shared, {variant}"), &[product], groups)?;
    }
    steps::launch_entries()?;
    arrays::launch_entries()?;
    light::launch_entries()?;
    each::launch_entries()?;
    masked::launch_entries()?;
    launched(table::SHARED.into_iter())
}

#[cfg(feature = "gpu")]
fn of_studies() -> Result<(), Failed> {
    for (studies, groups) in ladder::of_entries() {
        let on_device: Vec<_> = studies
            .iter()
            .map(|&study| conformance::study::OnDevice { study, by_rows: false })
            .collect();
        suite::check(&format!("{NAME}studies, {}", studies[0]), &on_device, &groups)?;
    }
    launched(Study::all().flat_map(Study::entries))
}

/// Fails unless this process has launched all of these entries.
#[cfg(feature = "gpu")]
fn launched(entries: impl Iterator<Item = &'static str>) -> Result<(), Failed> {
    // Of each pair, a device launches the one that fits its shared memory; the larger name stands
    // for both.
    let one = |entry| match entry {
        "fourier_64" => "fourier_128",
        "fourier_stored_64" => "fourier_stored_128",
        "fourier_bytes_64" => "fourier_bytes_128",
        entry => entry,
    };
    let launches = apron::gpu::Gpu::open(0)?.launches();
    // A block without room for tiles of 128 has no room for columns of large tiles.
    let is_small = launches.iter().any(|(entry, _)| *entry == "fourier_64");
    let entries = entries.filter(|entry| !(is_small && entry.starts_with("fourier_large_")));
    let launched: BTreeSet<_> = launches.into_iter().map(|(entry, _)| one(entry)).collect();
    let missing: BTreeSet<_> = entries.map(one).filter(|entry| !launched.contains(entry)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("never launched: {missing:?}").into()) }
}
