//! The pictures of the book, drawn with results of the library.

use std::fmt::Write;

use apron::{Border, Device, Error, Filter, Image, Plan};

/// Names and contents of all pictures.
///
/// # Errors
/// None that depends on anything but the library.
pub fn all() -> Result<Vec<(&'static str, String)>, Error> {
    Ok(vec![
        ("borders.svg", borders()?),
        ("rounding.svg", rounding()),
        ("sliding.svg", sliding()),
        ("two-passes.svg", two_passes()),
        ("tiles.svg", tiles()),
    ])
}

const DARK: &str = "#1b4965";
const LIGHT: &str = "#bee9e8";
const WARM: &str = "#e07a5f";

/// A drawing under construction.
struct Svg {
    width: u32,
    height: u32,
    body: String,
}

impl Svg {
    fn new(width: u32, height: u32) -> Self {
        Self { width, height, body: String::new() }
    }

    fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), fill: &str, stroke: &str) {
        let _ = writeln!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{w:.1}" height="{h:.1}" fill="{fill}" stroke="{stroke}"/>"#
        );
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, fill: &str, text: &str) {
        let _ = writeln!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" fill="{fill}">{text}</text>"#
        );
    }

    fn line(&mut self, (x, y): (f64, f64), (to_x, to_y): (f64, f64), stroke: &str) {
        let _ = writeln!(
            self.body,
            r#"<line x1="{x:.1}" y1="{y:.1}" x2="{to_x:.1}" y2="{to_y:.1}" stroke="{stroke}"/>"#
        );
    }

    fn done(self) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"14\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n{body}</svg>\n"
        )
    }
}

/// What the library takes for pixels left and right of a row of five, border by border. A filter
/// with one tap of 1, at the far end of its window, brings each of them into the result.
fn borders() -> Result<String, Error> {
    const OUTSIDE: usize = 7;
    const CELL: f64 = 34.0;
    let row = [1.0f32, 2.0, 3.0, 4.0, 5.0];
    let borders = [
        Border::Constant(0.0),
        Border::Replicate,
        Border::Reflect,
        Border::Reflect101,
        Border::Wrap,
        Border::Keep,
    ];
    let mut svg = Svg::new(840, 330);
    for (line, border) in borders.into_iter().enumerate() {
        let y = 20.0 + 50.0 * line as f64;
        svg.text((20.0, y + 22.0), "start", "black", &border.to_string());
        for at in -(OUTSIDE as isize)..(row.len() + OUTSIDE) as isize {
            let inside = usize::try_from(at).ok().filter(|&at| at < row.len());
            let value = match inside {
                Some(at) => Some(row[at]),
                // Such a border has no pixels outside: the input is copied where the window leaves
                // the image.
                None if border == Border::Keep => None,
                None => Some(outside(&row, border, at)?),
            };
            let x = 160.0 + CELL * (at + OUTSIDE as isize) as f64;
            let (fill, ink) = if inside.is_some() { (DARK, "white") } else { (LIGHT, "black") };
            if let Some(value) = value {
                svg.rect((x, y), (CELL - 4.0, CELL - 4.0), fill, "none");
                svg.text((x + CELL / 2.0 - 2.0, y + 20.0), "middle", ink, &value.to_string());
            } else {
                svg.rect((x, y), (CELL - 4.0, CELL - 4.0), "none", "#cccccc");
            }
        }
    }
    Ok(svg.done())
}

/// The pixel `at` of a row, beyond its ends, as a result of the library.
fn outside(row: &[f32], border: Border, at: isize) -> Result<f32, Error> {
    // From the first pixel to the left, or from the last one to the right.
    let (from, distance) =
        if at < 0 { (0, at.unsigned_abs()) } else { (row.len() - 1, at as usize + 1 - row.len()) };
    let mut taps = vec![0.0; distance + 1];
    let (anchor, tap) = if at < 0 { (distance, 0) } else { (0, distance) };
    taps[tap] = 1.0;
    let filter = Filter::from_taps(taps.len(), 1, &taps)?.anchored(anchor, 0)?;
    let plan = Plan::builder(&filter).border(border).device(Device::Cpu).build()?;
    let result = plan.filter(&Image::from_vec(row.to_vec(), row.len(), 1, 1)?)?;
    Ok(result.as_slice()[from])
}

/// Sums in f32 with the distance that they may be from the true ones: those near a half are
/// uncertain.
fn rounding() -> String {
    let mut svg = Svg::new(840, 190);
    let place = |value: f64| 60.0 + 240.0 * (value - 41.0);
    svg.line((40.0, 110.0), (800.0, 110.0), "black");
    for value in 41..=44 {
        let x = place(f64::from(value));
        svg.line((x, 104.0), (x, 116.0), "black");
        svg.text((x, 140.0), "middle", "black", &value.to_string());
    }
    for half in [41.5, 42.5, 43.5] {
        svg.rect((place(half) - 14.0, 60.0), (28.0, 50.0), LIGHT, "none");
        svg.text((place(half), 50.0), "middle", "black", &half.to_string());
    }
    for (sum, doubt) in [(41.17, false), (42.08, false), (42.53, true), (43.8, false)] {
        let (x, colour) = (place(sum), if doubt { WARM } else { DARK });
        svg.line((x - 9.0, 92.0), (x + 9.0, 92.0), colour);
        svg.rect((x - 3.0, 89.0), (6.0, 6.0), colour, "none");
        let rounded = if doubt { "again, exactly".to_owned() } else { format!("{sum:.0}") };
        svg.text((x, 80.0), "middle", colour, &rounded);
    }
    svg.text(
        (420.0, 174.0),
        "middle",
        "black",
        "sums in f32, each with its greatest error; light: nearer to a half than that",
    );
    svg.done()
}

/// A warp walks down a strip: each lane keeps the sums of the rows whose windows have begun.
fn sliding() -> String {
    const CELL: f64 = 26.0;
    let mut svg = Svg::new(840, 300);
    for y in 0..9 {
        for x in 0..12 {
            let read = y == 5;
            let fill = if read {
                WARM
            } else if (3..=7).contains(&y) && x == 5 {
                LIGHT
            } else {
                "white"
            };
            svg.rect(
                (40.0 + CELL * x as f64, 24.0 + CELL * y as f64),
                (CELL, CELL),
                fill,
                "#999999",
            );
        }
    }
    svg.text((40.0, 284.0), "start", "black", "a strip of the image; the row that is read now");
    for (slot, row) in (3..=7).enumerate() {
        let y = 40.0 + 40.0 * slot as f64;
        svg.rect((470.0, y), (150.0, 30.0), if row == 3 { DARK } else { LIGHT }, "none");
        let ink = if row == 3 { "white" } else { "black" };
        svg.text((545.0, y + 20.0), "middle", ink, &format!("sum of row {row}"));
        svg.text((636.0, y + 20.0), "start", "black", &format!("+ tap row {} x pixels", 7 - row));
    }
    svg.text(
        (470.0, 284.0),
        "start",
        "black",
        "a lane's registers; row 3 is complete, and is written",
    );
    svg.done()
}

/// A window that is a column times a row.
fn two_passes() -> String {
    const CELL: f64 = 24.0;
    let mut svg = Svg::new(840, 210);
    let mut grid = |left: f64, cols: usize, rows: usize, fill: &str| {
        let top = 90.0 - CELL * rows as f64 / 2.0;
        for (x, y) in (0..rows).flat_map(|y| (0..cols).map(move |x| (x, y))) {
            svg.rect(
                (left + CELL * x as f64, top + CELL * y as f64),
                (CELL, CELL),
                fill,
                "#999999",
            );
        }
    };
    grid(40.0, 7, 7, LIGHT);
    grid(330.0, 7, 1, WARM);
    grid(600.0, 1, 7, DARK);
    svg.text((124.0, 200.0), "middle", "black", "7 x 7 = 49 taps");
    svg.text((270.0, 95.0), "middle", "black", "=");
    svg.text((414.0, 200.0), "middle", "black", "a row of 7");
    svg.text((550.0, 95.0), "middle", "black", "then");
    svg.text((612.0, 200.0), "middle", "black", "a column of 7");
    svg.text((740.0, 95.0), "middle", "black", "14 taps");
    svg.done()
}

/// Tiles of spectra overlap by the window's reach.
fn tiles() -> String {
    let mut svg = Svg::new(840, 230);
    for (index, x) in [60.0, 220.0, 380.0].into_iter().enumerate() {
        let y = 30.0 + 8.0 * index as f64;
        svg.rect((x, y), (220.0, 130.0), "none", DARK);
        svg.rect((x + 30.0, y + 25.0), (160.0, 80.0), LIGHT, WARM);
        svg.text(
            (x + 110.0, y + 70.0),
            "middle",
            "black",
            &format!("results of tile {}", index + 1),
        );
    }
    svg.text(
        (60.0, 216.0),
        "start",
        "black",
        "each tile reads a ring of pixels more than it writes: as wide as the window reaches",
    );
    svg.done()
}
