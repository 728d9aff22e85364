//! The table of presets. The text form, the messages, the tool's help and Python's constructors
//! read it.

use super::Filter;
use super::parameters::{Given, Need, Parameter, Preset};
use super::scaled;
use crate::Result;

const fn preset(
    name: &'static str,
    summary: &'static str,
    parameters: &'static [Parameter],
    build: fn(&Given<'_>) -> Result<Filter>,
) -> Preset {
    let needs = match parameters {
        [Parameter { name, need: Need::Required, .. }, ..] => name,
        _ => "",
    };
    Preset { name, full_name: name, summary, aliases: &[], parameters, needs, scaled: None, build }
}

const fn number(name: &'static str, meaning: &'static str, need: Need) -> Parameter {
    Parameter { name, aliases: &[], meaning, need, is_whole: false, axes: None }
}

const fn whole(name: &'static str, meaning: &'static str, need: Need) -> Parameter {
    Parameter { is_whole: true, ..number(name, meaning, need) }
}

const SIZE: Parameter = Parameter {
    axes: Some(["cols", "rows"]),
    ..whole("size", "tap columns and rows", Need::Required)
};
const COLS: Parameter = whole("cols", "tap columns, with rows instead of size", Need::Instead);
const ROWS: Parameter = whole("rows", "tap rows, with cols instead of size", Need::Instead);
const RADIUS: Parameter = whole("radius", "instead of size: size is 2 * radius + 1", Need::Instead);
// Pillow calls sigma `radius`.
const SIGMA: Parameter = Parameter {
    aliases: &["radius"],
    ..number("sigma", "standard deviation in pixels", Need::Required)
};
const SIGMAS: Parameter = Parameter { axes: Some(["sigma-x", "sigma-y"]), ..SIGMA };
const SIGMA_X: Parameter = number(
    "sigma-x",
    "standard deviation along rows, with sigma-y instead of sigma",
    Need::Instead,
);
const SIGMA_Y: Parameter = number(
    "sigma-y",
    "standard deviation along columns, with sigma-x instead of sigma",
    Need::Instead,
);
const SOBEL_SIZE: Parameter =
    whole("size", "odd, 3 to 31; the taps are OpenCV's", Need::Default("3"));

impl Filter {
    /// Every preset and its parameters: the table that the text form reads. A number without a name
    /// sets the first parameter: `gaussian:2`.
    ///
    /// | filter | example | parameters |
    /// | --- | --- | --- |
    /// | identity | `identity` | |
    /// | Gaussian blur | `gaussian:sigma=2`, `blur:2`, `gaussian:size=5`, `gaussian:sigma=2,size=9`, `gaussian:sigma-x=3,sigma-y=1` | `sigma`, or `sigma-x` and `sigma-y`; `size`, or `cols` and `rows` |
    /// | mean | `box:size=5`, `box:cols=3,rows=7` | `size`, or `radius`, or `cols` and `rows` |
    /// | mean, several times | `boxblur:radius=5`, `boxblur:radius=5,times=3` | `radius`, `times` |
    /// | sharpen | `sharpen`, `sharpen:amount=0.5` | `amount` |
    /// | unsharp mask | `unsharp:sigma=1,amount=1.5` | `sigma`, or `sigma-x` and `sigma-y`; `amount`; `threshold` |
    /// | derivatives | `sobel-x`, `sobel-y:size=5` | `size` |
    /// | | `scharr-x`, `scharr-y`, `prewitt-x`, `prewitt-y` | |
    /// | Laplacian | `laplacian`, `laplacian:neighbours=8` | `neighbours` |
    /// | Laplacian of Gaussian | `log:sigma=1.4` | `sigma` |
    /// | difference of Gaussians | `dog:sigma=1,wider=1.6` | `sigma`, `wider` |
    /// | relief | `emboss` | |
    /// | motion blur | `motion:length=15,angle=30` | `length`, `angle` |
    pub const PRESETS: &'static [Preset] = &[
        Preset {
            scaled: Some(|_, filter, _| Ok(filter.clone())),
            ..preset("identity", "the input", &[], |_| Ok(Filter::identity()))
        },
        Preset {
            aliases: &["blur"],
            needs: "sigma, sigma-x and sigma-y, or size",
            scaled: Some(scaled::gaussian),
            ..preset(
                "gaussian",
                "Gaussian blur; sigma sets the window, or the window sets sigma, if only one is given",
                &[
                    Parameter { need: Need::Optional, ..SIGMAS },
                    SIGMA_X,
                    SIGMA_Y,
                    Parameter { need: Need::Optional, ..SIZE },
                    COLS,
                    ROWS,
                ],
                |given| match (given.sigmas()?, given.window()?) {
                    (Some((x, y)), None) if x == y => Filter::gaussian(x),
                    (Some((x, y)), None) => Filter::gaussian_xy(x, y),
                    (Some((x, y)), Some((cols, rows))) if x == y => {
                        Filter::gaussian_sized(x, cols, rows)
                    }
                    (Some((x, y)), Some((cols, rows))) => {
                        Filter::gaussian_xy_sized(x, y, cols, rows)
                    }
                    (None, Some((cols, rows))) => Filter::gaussian_from_size(cols, rows),
                    (None, None) => Err(given.missing()),
                },
            )
        },
        Preset {
            needs: "size, or cols and rows",
            scaled: Some(scaled::mean),
            ..preset("box", "mean of the window", &[SIZE, RADIUS, COLS, ROWS], |given| {
                let (cols, rows) = given.window()?.ok_or_else(|| given.missing())?;
                Filter::box_filter(cols, rows)
            })
        },
        Preset {
            scaled: Some(scaled::box_blur),
            ..preset(
                "boxblur",
                "mean of the window, taken several times, as one filter; nearly a Gaussian",
                &[
                    whole("radius", "the mean has 2 * radius + 1 columns and rows", Need::Required),
                    whole("times", "how many times the mean is taken", Need::Default("3")),
                ],
                |given| {
                    Filter::box_blur(given.needed_whole("radius")?, given.needed_whole("times")?)
                },
            )
        },
        preset(
            "sharpen",
            "the image minus its Laplacian",
            &[number("amount", "factor of the Laplacian", Need::Default("1.0"))],
            |given| Filter::sharpen(given.needed("amount")?),
        ),
        Preset {
            needs: "sigma, or sigma-x and sigma-y",
            scaled: Some(scaled::unsharp),
            ..preset(
                "unsharp",
                "the image plus its difference from a Gaussian blur",
                &[
                    SIGMAS,
                    SIGMA_X,
                    SIGMA_Y,
                    number("amount", "factor of the difference", Need::Default("1.0")),
                    number("threshold", "least difference that is sharpened", Need::Default("0.0")),
                ],
                |given| {
                    let (x, y) = given.sigmas()?.ok_or_else(|| given.missing())?;
                    Filter::unsharp_above(x, y, given.needed("amount")?, given.needed("threshold")?)
                },
            )
        },
        preset("sobel-x", "derivative along x, smoothed along y", &[SOBEL_SIZE], |given| {
            Filter::sobel_x_sized(given.needed_whole("size")?)
        }),
        preset("sobel-y", "derivative along y, smoothed along x", &[SOBEL_SIZE], |given| {
            Filter::sobel_y_sized(given.needed_whole("size")?)
        }),
        preset("scharr-x", "derivative along x, smoothed by 3 10 3 along y", &[], |_| {
            Ok(Filter::scharr_x())
        }),
        preset("scharr-y", "derivative along y, smoothed by 3 10 3 along x", &[], |_| {
            Ok(Filter::scharr_y())
        }),
        preset("prewitt-x", "derivative along x, smoothed by 1 1 1 along y", &[], |_| {
            Ok(Filter::prewitt_x())
        }),
        preset("prewitt-y", "derivative along y, smoothed by 1 1 1 along x", &[], |_| {
            Ok(Filter::prewitt_y())
        }),
        preset(
            "laplacian",
            "sum of the second derivatives",
            &[Parameter {
                aliases: &["neighbors"],
                ..whole("neighbours", "4 or 8", Need::Default("4"))
            }],
            |given| Filter::laplacian(given.needed_whole("neighbours")?),
        ),
        Preset {
            full_name: "laplacian-of-gaussian",
            ..preset(
                "log",
                "Laplacian of Gaussian; a flat image gives 0",
                &[Parameter { meaning: "standard deviation in pixels, at least 0.5", ..SIGMA }],
                |given| Filter::laplacian_of_gaussian(given.needed("sigma")?),
            )
        },
        Preset {
            full_name: "difference-of-gaussians",
            ..preset(
                "dog",
                "difference of two Gaussians",
                &[
                    SIGMA,
                    number(
                        "wider",
                        "standard deviation of the one that is subtracted; 1.6 times sigma by default",
                        Need::Optional,
                    ),
                ],
                |given| {
                    let sigma = given.needed("sigma")?;
                    let wider = given.number("wider")?.unwrap_or(1.6 * sigma);
                    Filter::difference_of_gaussians(sigma, wider)
                },
            )
        },
        preset("emboss", "relief lit from the upper left", &[], |_| Ok(Filter::emboss())),
        Preset {
            scaled: Some(scaled::motion),
            ..preset(
                "motion",
                "mean along a line",
                &[
                    number("length", "pixels, 1 or more", Need::Required),
                    number(
                        "angle",
                        "degrees, counter-clockwise from the x axis",
                        Need::Default("0.0"),
                    ),
                ],
                |given| Filter::motion(given.needed("length")?, given.needed("angle")?),
            )
        },
    ];

    /// Texts of every preset, for tests.
    #[cfg(test)]
    pub(crate) const EXAMPLES: &'static [&'static str] = &[
        "identity",
        "gaussian:sigma=2",
        "gaussian:size=5",
        "gaussian:sigma=2,size=9",
        "gaussian:sigma=0.3,cols=4,rows=7",
        "gaussian:sigma-x=3,sigma-y=1",
        "gaussian:sigma-x=0.5,sigma-y=2,cols=5,rows=8",
        "gaussian:cols=3,rows=8",
        "box:size=5",
        "box:cols=3,rows=7",
        "boxblur:radius=5,times=3",
        "boxblur:radius=2,times=1",
        "sharpen",
        "sharpen:amount=-0.25",
        "unsharp:sigma=1,amount=1.5",
        "unsharp:sigma=0.01",
        "unsharp:sigma-x=1,sigma-y=2,amount=0.5",
        "unsharp:sigma=1.5,amount=0.8,threshold=3",
        "sobel-x",
        "sobel-y",
        "sobel-x:size=7",
        "scharr-x",
        "scharr-y",
        "prewitt-x",
        "prewitt-y",
        "laplacian",
        "laplacian:neighbours=8",
        "log:sigma=1.4",
        "dog:sigma=1.4,wider=2",
        "emboss",
        "motion:length=15,angle=30",
        "motion:length=2.5",
    ];
}
