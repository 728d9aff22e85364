//! The table of presets, which the text form, the messages and the help read.

use super::Filter;
use super::parameters::{Parameter, Preset};
use super::scaled;

const fn parameter(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, aliases: &[], meaning }
}

const SIZE: Parameter = parameter("size", "tap columns and rows");
const COLS: Parameter = parameter("cols", "tap columns, with rows instead of size");
const ROWS: Parameter = parameter("rows", "tap rows, with cols instead of size");
// Pillow calls sigma `radius`.
const SIGMA: Parameter =
    Parameter { aliases: &["radius"], ..parameter("sigma", "standard deviation in pixels") };
const SIGMA_X: Parameter =
    parameter("sigma-x", "standard deviation along rows, with sigma-y instead of sigma");
const SIGMA_Y: Parameter =
    parameter("sigma-y", "standard deviation along columns, with sigma-x instead of sigma");
const SOBEL_SIZE: Parameter = parameter("size", "odd, 3 to 31; 3 by default");

impl Filter {
    /// Every preset and its parameters: the table that the text form reads. A number without a name
    /// sets the first parameter: `gaussian:2`.
    ///
    /// | filter | example | parameters |
    /// | --- | --- | --- |
    /// | identity | `identity` | |
    /// | Gaussian blur | `gaussian:sigma=2`, `blur:2`, `gaussian:size=5`, `gaussian:sigma=2,size=9`, `gaussian:sigma-x=3,sigma-y=1` | `sigma`, or `sigma-x` and `sigma-y`; `size`, or `cols` and `rows` |
    /// | mean | `box:size=5`, `box:cols=3,rows=7` | `size`, or `radius`, or `cols` and `rows` |
    /// | sharpen | `sharpen`, `sharpen:amount=0.5` | `amount` |
    /// | unsharp mask | `unsharp:sigma=1,amount=1.5` | `sigma`, or `sigma-x` and `sigma-y`; `amount` |
    /// | derivatives | `sobel-x`, `sobel-y:size=5` | `size` |
    /// | | `scharr-x`, `scharr-y`, `prewitt-x`, `prewitt-y` | |
    /// | Laplacian | `laplacian`, `laplacian:neighbours=8` | `neighbours` |
    /// | Laplacian of Gaussian | `log:sigma=1.4` | `sigma` |
    /// | difference of Gaussians | `dog:sigma=1,wider=1.6` | `sigma`, `wider` |
    /// | relief | `emboss` | |
    /// | motion blur | `motion:length=15,angle=30` | `length`, `angle` |
    pub const PRESETS: &'static [Preset] = &[
        Preset {
            name: "identity",
            summary: "the input",
            aliases: &[],
            parameters: &[],
            needs: "",
            scaled: Some(|_, filter, _| Ok(filter.clone())),
            build: |_| Ok(Filter::identity()),
        },
        Preset {
            name: "gaussian",
            summary: "Gaussian blur; sigma sets the window, or the window sets sigma, if only one is given",
            aliases: &["blur"],
            parameters: &[SIGMA, SIGMA_X, SIGMA_Y, SIZE, COLS, ROWS],
            needs: "sigma, sigma-x and sigma-y, or size",
            scaled: Some(scaled::gaussian),
            build: |given| match (given.sigmas()?, given.window()?) {
                (Some((x, y)), None) if x == y => Filter::gaussian(x),
                (Some((x, y)), None) => Filter::gaussian_xy(x, y),
                (Some((x, y)), Some((cols, rows))) if x == y => {
                    Filter::gaussian_sized(x, cols, rows)
                }
                (Some((x, y)), Some((cols, rows))) => Filter::gaussian_xy_sized(x, y, cols, rows),
                (None, Some((cols, rows))) => Filter::gaussian_from_size(cols, rows),
                (None, None) => Err(given.missing()),
            },
        },
        Preset {
            name: "box",
            summary: "mean of the window",
            aliases: &[],
            parameters: &[
                SIZE,
                parameter("radius", "instead of size: size is 2 * radius + 1"),
                COLS,
                ROWS,
            ],
            needs: "size, or cols and rows",
            scaled: Some(scaled::mean),
            build: |given| {
                let (cols, rows) = given.window()?.ok_or_else(|| given.missing())?;
                Filter::box_filter(cols, rows)
            },
        },
        Preset {
            name: "sharpen",
            summary: "the image minus its Laplacian",
            aliases: &[],
            parameters: &[parameter("amount", "factor of the Laplacian; 1 by default")],
            needs: "",
            scaled: None,
            build: |given| Filter::sharpen(given.number("amount")?.unwrap_or(1.0)),
        },
        Preset {
            name: "unsharp",
            summary: "the image plus its difference from a Gaussian blur",
            aliases: &[],
            parameters: &[
                SIGMA,
                SIGMA_X,
                SIGMA_Y,
                parameter("amount", "factor of the difference; 1 by default"),
            ],
            needs: "sigma, or sigma-x and sigma-y",
            scaled: Some(scaled::unsharp),
            build: |given| {
                let amount = given.number("amount")?.unwrap_or(1.0);
                match given.sigmas()?.ok_or_else(|| given.missing())? {
                    (x, y) if x == y => Filter::unsharp(x, amount),
                    (x, y) => Filter::unsharp_xy(x, y, amount),
                }
            },
        },
        Preset {
            name: "sobel-x",
            summary: "derivative along x, smoothed along y",
            aliases: &[],
            parameters: &[SOBEL_SIZE],
            needs: "",
            scaled: None,
            build: |given| Filter::sobel_x_sized(given.whole("size")?.unwrap_or(3)),
        },
        Preset {
            name: "sobel-y",
            summary: "derivative along y, smoothed along x",
            aliases: &[],
            parameters: &[SOBEL_SIZE],
            needs: "",
            scaled: None,
            build: |given| Filter::sobel_y_sized(given.whole("size")?.unwrap_or(3)),
        },
        Preset {
            name: "scharr-x",
            summary: "derivative along x, smoothed by 3 10 3 along y",
            aliases: &[],
            parameters: &[],
            needs: "",
            scaled: None,
            build: |_| Ok(Filter::scharr_x()),
        },
        Preset {
            name: "scharr-y",
            summary: "derivative along y, smoothed by 3 10 3 along x",
            aliases: &[],
            parameters: &[],
            needs: "",
            scaled: None,
            build: |_| Ok(Filter::scharr_y()),
        },
        Preset {
            name: "prewitt-x",
            summary: "derivative along x, smoothed by 1 1 1 along y",
            aliases: &[],
            parameters: &[],
            needs: "",
            scaled: None,
            build: |_| Ok(Filter::prewitt_x()),
        },
        Preset {
            name: "prewitt-y",
            summary: "derivative along y, smoothed by 1 1 1 along x",
            aliases: &[],
            parameters: &[],
            needs: "",
            scaled: None,
            build: |_| Ok(Filter::prewitt_y()),
        },
        Preset {
            name: "laplacian",
            summary: "sum of the second derivatives",
            aliases: &[],
            parameters: &[Parameter {
                aliases: &["neighbors"],
                ..parameter("neighbours", "4 or 8; 4 by default")
            }],
            needs: "",
            scaled: None,
            build: |given| Filter::laplacian(given.whole("neighbours")?.unwrap_or(4)),
        },
        Preset {
            name: "log",
            summary: "Laplacian of Gaussian",
            aliases: &[],
            parameters: &[SIGMA],
            needs: "sigma",
            scaled: None,
            build: |given| Filter::laplacian_of_gaussian(given.needed("sigma")?),
        },
        Preset {
            name: "dog",
            summary: "difference of two Gaussians",
            aliases: &[],
            parameters: &[
                SIGMA,
                parameter(
                    "wider",
                    "standard deviation of the one that is subtracted; 1.6 times sigma by default",
                ),
            ],
            needs: "sigma",
            scaled: None,
            build: |given| {
                let sigma = given.needed("sigma")?;
                Filter::difference_of_gaussians(
                    sigma,
                    given.number("wider")?.unwrap_or(1.6 * sigma),
                )
            },
        },
        Preset {
            name: "emboss",
            summary: "relief lit from the upper left",
            aliases: &[],
            parameters: &[],
            needs: "",
            scaled: None,
            build: |_| Ok(Filter::emboss()),
        },
        Preset {
            name: "motion",
            summary: "mean along a line",
            aliases: &[],
            parameters: &[
                parameter("length", "pixels, 1 or more"),
                parameter("angle", "degrees, counter-clockwise from the x axis; 0 by default"),
            ],
            needs: "length",
            scaled: Some(scaled::motion),
            build: |given| {
                Filter::motion(given.needed("length")?, given.number("angle")?.unwrap_or(0.0))
            },
        },
    ];
}
