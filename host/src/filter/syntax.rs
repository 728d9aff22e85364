//! Filters as text.

use std::fmt;
use std::str::FromStr;

use super::parameters::{Given, Preset, brief, number, syntax};
use super::{Filter, Taps};
use crate::{Error, Gradient, Result};

/// The grammar of filters on the command line, in files and in messages. A [`Filter`] prints in the
/// grammar that it reads.
///
/// ```text
/// filter    = name [ ":" parameter { "," parameter } ] [ anchor ]
///           | "taps:" row { ";" row } [ anchor ]
///           | "separable:row=" row ",column=" row [ anchor ]
/// parameter = [ name "=" ] number   (the first one without a name: the preset's first parameter)
/// row       = number { " " number }
/// anchor    = "@" column "," row
/// number    = decimal [ "/" decimal ]
/// ```
///
/// | filter | example | meaning |
/// | --- | --- | --- |
/// | a preset | `gaussian:sigma=2,size=9`, `gaussian:2`, `gaussian:sigma-x=3,sigma-y=1` | name and parameters from [`Filter::PRESETS`] |
/// | any taps | `taps:0 1 0; 1 -4 1; 0 1 0` | read by [`Filter::parse_taps`] |
/// | a row and a column | `separable:row=1/4 1/2 1/4,column=-1 0 1` | the product of the two |
/// | another anchor | `box:size=4@1,1` | column and row of the cell on the output pixel |
///
/// ```
/// use apron::Filter;
///
/// let filter: Filter = "box:cols=3,rows=7".parse()?;
/// assert_eq!((filter.cols(), filter.rows()), (3, 7));
/// assert_eq!(filter.to_string(), "box:cols=3,rows=7");
///
/// let message = "box:width=3".parse::<Filter>().unwrap_err().to_string();
/// assert!(message.contains("size, radius, cols, rows"));
/// # Ok::<(), apron::Error>(())
/// ```
impl FromStr for Filter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let (what, anchor) = match text.rsplit_once('@') {
            Some((what, anchor)) => (what.trim_end(), Some(anchor)),
            None => (text, None),
        };
        let (name, rest) = match what.split_once(':') {
            Some((name, rest)) => (name.trim(), Some(rest)),
            None => (what, None),
        };
        let filter = match name {
            "taps" => Self::parse_taps(rest.unwrap_or_default())?,
            "separable" => separable(text, rest.unwrap_or_default())?,
            _ => preset(text, name, rest)?,
        };
        let Some(anchor) = anchor else { return Ok(filter) };
        let cell = anchor
            .split_once(',')
            .and_then(|(x, y)| Some((x.trim().parse().ok()?, y.trim().parse().ok()?)));
        let (x, y) = cell.ok_or_else(|| {
            syntax(
                text,
                format!(
                    "\"@{}\" is not an anchor: a column and a row from 0, as in @1,1",
                    brief(anchor)
                ),
            )
        })?;
        filter.anchored(x, y)
    }
}

/// Prints text that `FromStr` reads back as an equal filter.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.preset, &self.taps) {
            (Some(preset), _) => f.write_str(preset)?,
            (None, Taps::Dense { taps, .. }) => {
                f.write_str("taps:")?;
                for (index, row) in taps.chunks(self.cols).enumerate() {
                    f.write_str(if index == 0 { "" } else { "; " })?;
                    write_row(f, row)?;
                }
            }
            (None, Taps::Product(factors)) => {
                f.write_str("separable:row=")?;
                write_row(f, &factors.row)?;
                f.write_str(",column=")?;
                write_row(f, &factors.column)?;
            }
        }
        if self.anchor != (self.cols / 2, self.rows / 2) {
            write!(f, "@{},{}", self.anchor.0, self.anchor.1)?;
        }
        Ok(())
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, taps: &[f64]) -> fmt::Result {
    for (index, tap) in taps.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { " " })?;
        // The shortest decimal that reads back as the same f64; very small and very large taps in
        // scientific notation.
        if *tap == 0.0 || (1e-5..1e16).contains(&tap.abs()) {
            write!(f, "{tap}")?
        } else {
            write!(f, "{tap:e}")?
        }
    }
    Ok(())
}

impl Filter {
    /// Reads taps from text. Rows end at `;` or at the end of a line. Numbers are separated by
    /// blanks or a comma, and may be fractions. `#` starts a comment that ends with the line. Blank
    /// rows do not count.
    ///
    /// ```
    /// use apron::Filter;
    ///
    /// assert_eq!(Filter::parse_taps("0 1 0; 1 -4 1; 0 1 0")?, Filter::laplacian(4)?);
    /// let blur = Filter::parse_taps("
    ///     1/16, 2/16, 1/16   # binomial
    ///     2/16, 4/16, 2/16
    ///     1/16, 2/16, 1/16
    /// ")?;
    /// assert!(blur.is_separable());
    /// # Ok::<(), apron::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::FilterSyntax`] if a number cannot be read, if a row differs in length from the
    /// first, or if there are no taps; otherwise as [`Filter::from_taps_f64`].
    pub fn parse_taps(text: &str) -> Result<Self> {
        let (mut taps, mut cols, mut rows) = (Vec::new(), 0, 0);
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        for row in lines.flat_map(|line| line.split(';')).filter(|row| !row.trim().is_empty()) {
            let start = taps.len();
            read_row(text, row, &mut taps)?;
            let found = taps.len() - start;
            if rows == 0 {
                cols = found;
            } else if found != cols {
                let reason = format!("row {} has {found} taps, the first row has {cols}", rows + 1);
                return Err(syntax(text, reason));
            }
            rows += 1;
        }
        if rows == 0 {
            return Err(syntax(
                text,
                "there are no taps; rows end with \";\", as in \"0 1 0; 1 -4 1; 0 1 0\"",
            ));
        }
        Self::dense(cols, rows, taps)
    }
}

fn read_row(text: &str, row: &str, taps: &mut Vec<f64>) -> Result<()> {
    let row = row.trim();
    // Some programs write a comma at the end of a row.
    let row = row.strip_suffix(',').unwrap_or(row);
    for cell in row.split(',') {
        let before = taps.len();
        for tap in cell.split_whitespace() {
            taps.push(number(text, tap)?);
        }
        if taps.len() == before {
            return Err(syntax(text, format!("a tap is missing at a comma in \"{}\"", brief(row))));
        }
    }
    Ok(())
}

fn separable(text: &str, rest: &str) -> Result<Filter> {
    let expected =
        || syntax(text, "a row and a column are needed, as in separable:row=1 2 1,column=-1 0 1");
    let (row, column) = rest
        .trim()
        .strip_prefix("row=")
        .and_then(|rest| rest.split_once(",column="))
        .ok_or_else(expected)?;
    let read = |row: &str| {
        let mut taps = Vec::new();
        read_row(text, row, &mut taps).map(|()| taps)
    };
    Filter::product(read(row)?, read(column)?)
}

fn find(name: &str) -> Option<&'static Preset> {
    Filter::PRESETS.iter().find(|preset| preset.name == name || preset.aliases.contains(&name))
}

/// The preset that a filter's own text names, and its parameters.
pub(super) fn read_again(text: &str) -> Result<Option<(&'static Preset, Given<'_>)>> {
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) => (name, Some(rest)),
        None => (text, None),
    };
    find(name).map(|preset| Ok((preset, Given::read(text, preset, rest)?))).transpose()
}

fn preset(text: &str, name: &str, rest: Option<&str>) -> Result<Filter> {
    let Some(preset) = find(name) else {
        let names: Vec<_> = Filter::PRESETS.iter().map(|preset| preset.name).collect();
        let gradients: Vec<_> = Gradient::NAMES.iter().map(|&(name, _)| name).collect();
        let reason = match gradients.contains(&name) {
            true => format!("{name} is a gradient, which has no taps, and no parameters"),
            false => format!(
                "no filter is called \"{}\"; the filters are {}, taps, separable, and the gradients {}",
                brief(name),
                names.join(", "),
                gradients.join(", ")
            ),
        };
        return Err(syntax(text, reason));
    };
    (preset.build)(&Given::read(text, preset, rest)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::reads_back;
    use super::*;

    fn refused(text: &str) -> String {
        let message = text.parse::<Filter>().expect_err(text).to_string();
        assert!(!message.contains('\n'), "{message:?}");
        message
    }

    #[test]
    fn taps_and_anchors_read_back_as_they_print() {
        for text in [
            "taps:0 1 0; 1 -4 1; 0 1 0",
            "taps:1/3 1e-300 -2.5e20",
            "separable:row=1 2 1,column=1/3 -0.1",
            "box:size=4@0,3",
            "taps:1 2@0,0",
            " sobel-x @ 2,0 ",
        ] {
            reads_back(text);
        }
    }

    #[test]
    fn messages_say_what_there_is() {
        let unknown = refused("blurr:sigma=2");
        for preset in Filter::PRESETS {
            assert!(unknown.contains(preset.name), "{unknown}");
        }
        for (text, expected) in [
            ("", "no filter is called \"\""),
            ("gaussian", "sigma, sigma-x and sigma-y, or size"),
            ("gaussian:", "name=value"),
            ("gaussian:sgima=2", "sigma, sigma-x, sigma-y, size, cols, rows"),
            ("gaussian:sigma-x=2", "sigma-x and sigma-y"),
            ("gaussian:sigma-y=2,size=3", "sigma-x and sigma-y"),
            ("gaussian:2,sigma-x=2,sigma-y=3", "sigma alone"),
            (
                "gaussian:sigma-x=2,sigma-y=0",
                "sigma-y is 0, but must be a number of pixels above 0; one below 0.125",
            ),
            ("gaussian:sigma-x=1e30,sigma-y=1", "sigma-x is 1"),
            ("gaussian:sigma-x=-1,sigma-y=1,size=3", "sigma-x is -1"),
            ("dog:sigma=1,wider=-1", "wider is -1"),
            ("gaussian:sigma=2,sigma=3", "twice"),
            ("gaussian:2,sigma=3", "twice"),
            ("gaussian:radius=2,sigma=3", "twice"),
            ("gaussian:sigma=2,9", "name=value"),
            ("gaussian:two", "\"two\" is not a finite number"),
            ("emboss:3", "name=value"),
            ("box:size=5,radius=2", "size alone"),
            ("gaussian:sigma=-1", "above 0"),
            ("gaussian:sigma=0", "above 0"),
            ("gaussian:sigma=nan", "not a finite number"),
            ("gaussian:sigma=1e30", "at most"),
            ("gaussian:sigma=1/0", "not a finite number"),
            ("gaussian:sigma=2,size=0", "1 to 536870912"),
            ("gaussian:size=600000000", "1 to 536870912"),
            ("gaussian:size=5.5", "whole number"),
            ("box:size=5,cols=3", "size alone"),
            ("box:cols=3", "size alone"),
            ("box", "size, or cols and rows"),
            ("emboss:size=3", "no parameters"),
            ("sobel-x:size=4", "odd number from 3 to 31"),
            ("sobel-x:size=33", "odd number from 3 to 31"),
            ("laplacian:neighbours=6", "neighbours is 6, but must be 4 or 8"),
            ("log:sigma=0.4", "at least 0.5"),
            ("motion:length=0", "from 1"),
            ("motion:length=5,angle=1e999", "not a finite number"),
            ("unsharp:sigma=1,amount=1e39", "magnitude at most"),
            ("taps", "no taps"),
            ("taps:;;", "no taps"),
            ("taps:1 2; 3", "row 2 has 1 taps"),
            ("taps:1 2,,3", "missing at a comma"),
            ("taps:1 x", "\"x\""),
            ("taps:1 inf", "\"inf\""),
            ("taps:1 1e39", "row 0, column 1"),
            ("separable:row=1 2", "row and a column"),
            ("separable:row=,column=1", "missing"),
            ("separable:row=1e30,column=1e30", "magnitude at most"),
            ("box:size=3@3,0", "from 0,0 to 2,2"),
            ("box:size=3@1", "column and a row"),
            ("box:size=3@-1,0", "column and a row"),
        ] {
            let message = refused(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
        let long = refused(&format!("taps:{}", "1\n2 3\n".repeat(100_000)));
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn names_of_other_programs_are_read() {
        for (text, same) in [
            ("gaussian:2", "gaussian:sigma=2"),
            ("gaussian: 2 , size=9", "gaussian:sigma=2,size=9"),
            ("blur:radius=1.5", "gaussian:sigma=1.5"),
            ("gaussian:sigma-y=1,sigma-x=3", "gaussian:sigma-x=3,sigma-y=1"),
            ("blur:sigma-x=2,sigma-y=2", "gaussian:sigma=2"),
            ("box:5", "box:size=5"),
            ("box:radius=2", "box:size=5"),
            ("unsharp:radius=1,amount=0.5", "unsharp:sigma=1,amount=0.5"),
            ("laplacian:neighbors=8", "laplacian:neighbours=8"),
            ("laplacian:8@0,0", "laplacian:neighbours=8@0,0"),
            ("sobel-x:5", "sobel-x:size=5"),
        ] {
            let filter: Filter = text.parse().unwrap();
            assert_eq!(
                (filter.to_string().as_str(), &filter),
                (same, &same.parse().unwrap()),
                "{text}"
            );
        }
    }

    #[test]
    fn taps_may_be_written_as_people_write_them() {
        let expected = Filter::from_taps(3, 2, &[0.0, 0.25, -1.0, 2.0, 0.5, 3.0]).unwrap();
        for text in [
            "0 1/4 -1; 2 .5 3",
            "0,1/4,-1\n2,5e-1,3\n",
            "# a comment; with a row\r\n 0, 0.25, -1, # and another\r\n\r\n\t2 0.5,3 ;;",
        ] {
            assert_eq!(Filter::parse_taps(text).unwrap(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", tail in "[a-z0-9 .,;:=/@#+-]*", name in 0usize..Filter::PRESETS.len()) {
            for text in [text.clone(), tail.clone(), format!("{}:{tail}", Filter::PRESETS[name].name), format!("taps:{tail}")] {
                if let Ok(filter) = text.parse::<Filter>() {
                    prop_assert_eq!(filter.to_string().parse::<Filter>().unwrap(), filter);
                }
                let _ = Filter::parse_taps(&text);
            }
        }

        #[test]
        fn any_taps_read_back_as_they_print(
            cols in 1usize..6, rows in 1usize..6, taps in proptest::collection::vec(any::<f32>(), 25),
            anchor in (0usize..6, 0usize..6), product: bool,
        ) {
            let filter = match product {
                true => Filter::separable(&taps[..cols], &taps[cols..cols + rows]),
                false => Filter::from_taps(cols, rows, &taps[..cols * rows]),
            };
            if let Ok(filter) = filter {
                let filter = filter.anchored(anchor.0 % cols, anchor.1 % rows).unwrap();
                prop_assert_eq!(filter.to_string().parse::<Filter>().unwrap(), filter);
            }
        }
    }
}
