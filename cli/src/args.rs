//! The command line as types.

use std::num::NonZero;
use std::path::PathBuf;

use apron::{
    Accuracy, Alpha, Border, Device, Filter, GpuModel, Light, Nan, Scalar, Shape, Step, Variant,
};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::channels::Chosen;
use crate::codec::options::{Reading, Writing};
use crate::failure::{Failure, Result};
use crate::formats::FileFormat;
use crate::light::Linear;
use crate::limits::amount;
use crate::scaling::Scaling;
use crate::taps_file;

/// Filters pictures and arrays by convolution, on an NVIDIA GPU or on the CPU.
#[derive(Debug, Parser)]
#[command(name = "apron", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Load the GPU kernels from this PTX file, compiled from this version's source by any compiler
    #[arg(long, value_name = "FILE", global = true, help_heading = "Running", display_order = 900)]
    pub(crate) ptx: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  apron filter photo.jpg blurred.png --filter gaussian:sigma=2
  apron filter photo.png edges.npy --taps \"0 1 0; 1 -4 1; 0 1 0\" --output-type f32
  apron filter photos/ sharp/ --filter unsharp:sigma=1.5,amount=0.8
  apron help filter
  apron filters
  apron info

Exit code: 0 on success, 1 if something failed, 2 if the command line is wrong.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Filter pictures, or arrays in .npy files
    Filter(Box<FilterArgs>),
    /// Show which variant would filter a picture of a given size, and why
    Plan(Box<PlanArgs>),
    /// List the named filters and their parameters
    Filters,
    /// Print the taps of a filter, for other programs
    Taps(Box<TapsArgs>),
    /// Show devices, kernels and variants
    Info,
    /// Print a shell completion script
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
    /// Print a manual page
    #[command(after_help = MAN_HELP)]
    Man {
        /// The command to describe [default: apron itself]
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
    },
}

const COMPLETIONS_HELP: &str = "\
Examples:
  apron completions bash > ~/.local/share/bash-completion/completions/apron
  apron completions zsh > ~/.zfunc/_apron        # a folder of $fpath
  apron completions fish > ~/.config/fish/completions/apron.fish";

const MAN_HELP: &str = "\
Examples:
  apron man filter | man -l -
  apron man > ~/.local/share/man/man1/apron.1";

#[derive(Debug, ClapArgs)]
#[command(after_help = FILTER_HELP, override_usage = FILTER_USAGE)]
pub(crate) struct FilterArgs {
    /// IN: pictures or folders of pictures to read, or - for standard input. OUT, the last one: the
    /// picture to write, or a folder, in which each picture keeps its name, or - for standard
    /// output
    #[arg(value_name = "IN.. OUT")]
    pub(crate) paths: Vec<PathBuf>,

    /// Replace OUT if it exists. Without this option, OUT is replaced only if it is also IN. Files
    /// in a folder OUT are always replaced
    #[arg(long, conflicts_with = "skip_existing", help_heading = "Files")]
    pub(crate) overwrite: bool,

    /// Skip pictures whose results exist already
    #[arg(long, help_heading = "Files")]
    pub(crate) skip_existing: bool,

    /// Add TEXT to the name of each result, before its extension. Then OUT may be omitted: each
    /// result is written next to its picture
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = suffix, help_heading = "Files")]
    pub(crate) suffix: Option<String>,

    /// Also read subfolders; OUT gets the same subfolders
    #[arg(long, help_heading = "Files")]
    pub(crate) recursive: bool,

    /// Read a file as a stream of pictures in one format, one after the other, as on a pipe, and
    /// write the results in the same way. With --raw, frames without a header follow one another
    #[arg(long, help_heading = "Files")]
    pub(crate) frames: bool,

    #[command(flatten)]
    pub(crate) choice: Choice,

    /// Keep values in f32 between filters [default: each result is rounded to the picture's type]
    #[arg(long, help_heading = "Filter")]
    pub(crate) in_f32: bool,

    /// How to treat alpha: premultiply (weight colours by alpha), premultiplied (colours are
    /// already multiplied by alpha), keep (copy alpha), filter (filter alpha like a colour), drop,
    /// flatten=COLOUR (lay the picture on white, black, grey or #rrggbb) or auto. For taps that are
    /// not negative and sum to 1, auto is premultiply or premultiplied, as the file says; for all
    /// others, it is keep. Bands that are not alpha are filtered, unless a mode is given
    #[arg(long, value_name = "MODE", default_value_t, help_heading = "Filter")]
    pub(crate) alpha: Alpha,

    /// Filter only these channels and copy the others: the names in an exr, or of its layers or
    /// parts; R, G, B, Y (grey), C, M, K, A (alpha) or numbers from 1 elsewhere. A format without
    /// names gets the chosen channels of an exr
    #[arg(long, value_name = "NAME,..", help_heading = "Filter")]
    pub(crate) channels: Option<Chosen>,

    #[arg(
        long,
        value_name = "CURVE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "file",
        help = format!("Filter the light that values stand for: decode values, filter, and encode. CURVE is file (a \
            colour profile, or what the format or a PNG says, or else srgb), {}", Light::NAMES),
        help_heading = "Filter"
    )]
    pub(crate) linear: Option<Linear>,

    #[arg(
        long,
        help = format!("Rule for pixels outside the picture: {}", Border::NAMES),
        default_value_t,
        allow_hyphen_values = true,
        help_heading = "Filter"
    )]
    pub(crate) border: Border,

    /// Filter along the slices of a stack, too: an array with --axes zyx, or the pages of a TIFF.
    /// By the column of the filter's taps, or of another filter where slices lie further apart
    #[arg(long, value_name = "NAME[:K=V,..]", num_args = 0..=1, require_equals = true, help_heading = "Filter")]
    pub(crate) volume: Option<Option<Step>>,

    /// Picture of the known pixels, as large as IN: 0 is unknown, the greatest integer or 1 is
    /// known, and values between weigh. Results come from the known pixels alone. It is grey, or
    /// has IN's channels
    #[arg(long, value_name = "FILE", help_heading = "Filter")]
    pub(crate) mask: Option<PathBuf>,

    /// How to treat NaN, and a TIFF's nodata value: spread (NaN spreads, nodata is a number),
    /// ignore (both are unknown, and results come from the known pixels alone) or fill (likewise,
    /// but known pixels are copied)
    #[arg(long, value_name = "MODE", default_value_t, help_heading = "Filter")]
    pub(crate) nan: Nan,

    /// Result where no pixel under the taps is known [default: a TIFF's nodata value, or NaN, which
    /// is 0 in integers]
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true, help_heading = "Filter")]
    pub(crate) unknown: Option<f64>,

    /// Where to run: cpu, gpu:N, gpu:N,M, gpu:all or auto (the CPU or the first GPU, whichever is
    /// faster for the picture)
    #[arg(long, default_value_t, help_heading = "Running")]
    pub(crate) device: Device,

    /// Above this many bytes, filter a file in chunks of rows, so that it need not fit in memory.
    /// For arrays (.npy), files without a header and uncompressed TIFFs; K, M, G and T are powers
    /// of 1024
    #[arg(long, value_name = "N", default_value = "512M", value_parser = amount, help_heading = "Running")]
    pub(crate) chunk_above: u64,

    /// Most bytes of GPU memory for each picture; larger pictures are filtered in bands of rows; K,
    /// M, G and T are powers of 1024 [default: all free GPU memory]
    #[arg(long, value_name = "N", value_parser = amount, help_heading = "Running")]
    pub(crate) gpu_memory: Option<u64>,

    /// Variant (GPU algorithm) to run; "apron info" lists them [default: the fastest for the size,
    /// of the filter's family]
    #[arg(long, help_heading = "Running")]
    pub(crate) variant: Option<Variant>,

    /// What the errors of sums may be relative to: "window", the pixels under the window, or
    /// "range", the greatest pixels around, which makes wide blurs on a GPU faster [default:
    /// window, except for large filters that are not separable]
    #[arg(long, conflicts_with = "variant", help_heading = "Running")]
    pub(crate) accuracy: Option<Accuracy>,

    /// Measure the variants once for each new picture size on this GPU, and remember the fastest
    #[arg(long, conflicts_with = "variant", help_heading = "Running")]
    pub(crate) autotune: bool,

    /// Pixel type to write [default: the input's]
    #[arg(long, value_name = "TYPE", value_parser = scalars(), help_heading = "Values")]
    pub(crate) output_type: Option<Scalar>,

    #[command(flatten)]
    pub(crate) scaling: Scaling,

    #[command(flatten)]
    pub(crate) reading: Reading,

    /// Format to write, as a file extension; needed for standard output, unless IN is y4m [default:
    /// as OUT; in a folder, as the input]
    #[arg(long, value_name = "EXT", value_parser = FileFormat::from_extension, help_heading = "Files")]
    pub(crate) format: Option<&'static FileFormat>,

    #[command(flatten)]
    pub(crate) writing: Writing,

    /// Pictures to filter at the same time [default: one for each core and each free GiB of memory,
    /// at most 32]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Running")]
    pub(crate) jobs: Option<u16>,

    /// Show no progress bar and no notes; failures are still reported
    #[arg(long, short, help_heading = "Running")]
    pub(crate) quiet: bool,

    /// Report for each picture which variant ran, where, and how long it took
    #[arg(long, short, conflicts_with = "quiet", help_heading = "Running")]
    pub(crate) verbose: bool,

    /// Report the progress of a stream of frames after each frame: its number and the frames per
    /// second. On a terminal it stays on one line
    #[arg(long, conflicts_with_all = ["quiet", "verbose"], help_heading = "Running")]
    pub(crate) every_frame: bool,
}

const FILTER_USAGE: &str = "\
apron filter [OPTIONS] <IN>... <OUT>
       apron filter [OPTIONS] --suffix <TEXT> <IN>...";

const FILTER_HELP: &str = "\
Files: IN may be a file, a folder of pictures, a pipe, or - for standard input. OUT may be a file, a folder, or - for
standard output, with --format. Several pictures need a folder as OUT, or --suffix. A folder OUT that does not exist is
created; for a single picture, its name must end in /. A file is written under a temporary name and renamed when it is
complete: OUT may be IN, and a failure leaves no partial file. If one of several pictures fails, the others are still
filtered.

Pipes: pictures in one format that follow one another on a pipe, or in a file with --frames, are frames. Each is filtered and
written as it arrives. Their number has no limit, and their sizes may differ. tif and tga cannot follow one another; raw
frames need --raw and --frames. A damaged frame is an error; the frames before it are written. --page applies to each frame.
In other files, the tool does not read data after the picture, and prints a note.

Values: integers are rounded half to even, and values outside the type's range are clipped. The tool prints a note if a
derivative loses its negative half, and how many NaN became 0. --abs, --scale or --normalize, and --offset are applied to
each value in this order, before rounding. --output-type f32 keeps sign and fraction.

Formats: png jpg tif webp bmp gif qoi tga pgm ppm pam pfm ff hdr exr npy raw y4m. All frames of an animation (gif, png, webp),
pages of a tif and slices of an array are filtered and written; --page selects one. The colour profile, Exif and XMP data, the
resolution, the orientation, PNG chunks and TIFF tags are kept where the format can hold them; a note names the rest.
Metadata that may describe the picture before filtering is left out and named: thumbnails, the maker's notes, statistics.
CMYK stays CMYK in tif and jpg. A file that is cut off is refused; --lenient keeps its readable part. The limits on size
guard against files that decode to more than memory holds; files filtered in chunks (--chunk-above) have none.
The file says what a fourth sample is: straight alpha (png, webp, gif), alpha by which the colours are already multiplied
(exr, tif), or another band (tif), which is filtered like the colours and stays a band. Colours are converted to the output
format's type of alpha; a format without room for a band refuses it. Arrays do not say what their channels are: all are
filtered, unless --alpha is given.
All parts, layers and channels of an exr are filtered and written under their names, in their types; --channels filters some
and copies the others. Formats without names get R, G, B and A, or the chosen channels; a note names the rest.
Arrays (.npy) are height x width, or with channels last, or with slices first; --axes says which where the shape does not.
Their values may have any type but complex, either byte order, and C or Fortran order; every channel is filtered. Values
other than u8, u16, f16 or f32 are filtered in f64, on the CPU, and written to .npy and tif in their own type; i64 and u64
values beyond 2^53 are refused.
Unknown pixels: with --mask, with --nan ignore or fill, and with --border none, a result is the sum of taps times known
pixels, divided by the sum of the taps on known pixels if all taps sum to 1 (blurs, sharpening), else the plain sum
(derivatives). Weights of a mask multiply the taps. Bytes are exact; other results are sums in f32, rounded once. --mask and
nodata are for a single --filter, run on the CPU, and copy alpha unless --alpha filter is given.
Files without a header are read with --raw; every channel is filtered. The format raw writes such files.

Video: y4m (YUV4MPEG2) is read and written frame by frame, as ffmpeg's -f yuv4mpegpipe: 420, 411, 422, 444 and mono, of 8 to
16 bits. Each plane is filtered by itself. The lengths of gaussian, box, boxblur, unsharp and motion are scaled to chroma's
samples; other filters are for luma alone, unless chroma has luma's samples. Parameters of the stream and of frames are kept.
A y4m stream on standard input stays y4m on standard output. --every-frame shows how far a stream is.

Examples:
  apron filter photo.jpg blurred.png --filter gaussian:sigma=2
  apron filter photo.png photo.png --filter sharpen --border replicate
  apron filter *.jpg --suffix -soft --filter gaussian:2
  apron filter photos/ soft/ --recursive --skip-existing --filter gaussian:2
  apron filter scans/*.tif out/ --filter unsharp:sigma=1.5,amount=0.8 --format png
  apron filter - - --format png --filter sharpen < in.png > out.png
  cat page*.png | apron filter - - --format jpg --filter sharpen > pages.mjpeg
  apron filter photo.png edges.png --filter gaussian:1 --filter sobel
  apron filter logo.png soft.jpg --filter gaussian:3 --alpha flatten=white
  apron filter photo.png edges.png --filter sobel-x --offset 128
  apron filter scan16.tif small.jpg --filter identity --output-type u8 --quality 85
  apron filter field.npy shown.png --filter gaussian:2 --normalize --output-type u8
  apron filter field.npy dx.npy --filter sobel-x --output-type f32 --border constant:0
  apron filter photo.png out.tif --taps-file psf.npy --convolve --device gpu:0 --verbose
  apron filter anim.gif frame3.png --page 3 --filter sharpen
  apron filter render.exr soft.exr --channels diffuse --filter gaussian:2
  apron filter heat.npy full.npy --filter gaussian:3 --nan fill
  apron filter dem.tif smooth.tif --filter gaussian:2 --nan ignore --border none
  apron filter photo.png out.png --filter gaussian:8 --mask mask.png
  apron filter volume.npy smooth.npy --axes zyx --filter gaussian:2 --volume=gaussian:1
  ffmpeg -i in.mp4 -f yuv4mpegpipe - | apron filter - - --filter gaussian:2 | ffmpeg -i - out.mp4
  apron filter hubble.raw blurred.raw --raw 1024x1024x3 --filter gaussian:sigma=3,size=17";

#[derive(Debug, ClapArgs)]
#[command(after_help = PLAN_HELP)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) choice: Choice,

    /// Width and height of the picture, and its channels if there are several
    #[arg(long, value_name = "WxH[xC]", value_parser = shape)]
    pub(crate) size: Shape,

    /// Where to run: cpu, gpu:N, gpu:N,M, gpu:all or auto (the CPU or the first GPU, whichever is
    /// faster for the picture)
    #[arg(long, default_value_t)]
    pub(crate) device: Device,

    /// Type of the picture's values
    #[arg(long = "type", value_name = "TYPE", default_value = "u8", value_parser = scalars())]
    pub(crate) scalar: Scalar,

    /// Pixel type of the result [default: the picture's]
    #[arg(long, value_name = "TYPE", value_parser = scalars())]
    pub(crate) output_type: Option<Scalar>,

    /// What the errors of sums may be relative to: window or range; see "apron help filter"
    #[arg(long)]
    pub(crate) accuracy: Option<Accuracy>,

    /// Number of pictures in the batch
    #[arg(long, value_name = "N", default_value_t = NonZero::<u32>::MIN)]
    pub(crate) pictures: NonZero<u32>,

    /// The pictures are in pinned (page-locked) memory, which a GPU copies directly, without
    /// staging buffers
    #[arg(long)]
    pub(crate) pinned: bool,

    /// Plan for this model of GPU, which need not be here: its times are calculated
    #[arg(long, value_name = "NAME", value_parser = gpus(), conflicts_with_all = ["device", "autotune"])]
    pub(crate) gpu: Option<GpuModel>,

    /// Measure the candidates on this GPU now, and remember the fastest
    #[arg(long)]
    pub(crate) autotune: bool,
}

const PLAN_HELP: &str = "\
The variants' times were measured on an H200, or on two processor cores with AVX-512, and are scaled to the picture's size.
For another GPU, an H200's times are scaled by the rates of memory and arithmetic; the last column says which sets the time.
They exclude copies: the pixels are in the device's memory. With --device auto, the default, the lines before the variants
compare both devices, from host memory to host memory. Most parts of the GPU's time overlap, so the total is less than their
sum. --type and --output-type apply to all times, --pictures and --pinned only to this comparison.

Examples:
  apron plan --filter gaussian:sigma=2 --size 1920x1080x3
  apron plan --filter gaussian:sigma=2 --size 1920x1080x3 --pictures 200 --pinned
  apron plan --taps-file psf.npy --size 8192x8192 --gpu rtx-4060";

#[derive(Debug, ClapArgs)]
#[command(after_help = TAPS_HELP)]
pub(crate) struct TapsArgs {
    #[command(flatten)]
    pub(crate) choice: Choice,

    /// File to write: an array of f8 if its name ends in .npy, else text [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long, requires = "out")]
    pub(crate) overwrite: bool,
}

const TAPS_HELP: &str = "\
Text has one line for each row; \"apron filter --taps-file\" reads it back.

Examples:
  apron taps --filter sobel-x
  apron taps --filter gaussian:sigma=2 --out gaussian.npy";

/// Which filter to use.
#[derive(Debug, ClapArgs)]
pub(crate) struct Choice {
    #[command(flatten)]
    source: Source,

    /// Column and row, from 0, of the tap that lies on the output pixel [default: the middle]
    #[arg(long, value_name = "X,Y", allow_hyphen_values = true, value_parser = anchor, help_heading = "Filter")]
    anchor: Option<(usize, usize)>,

    /// Rotate the filter by 180 degrees: true convolution, as SciPy's convolve [default:
    /// correlation]
    #[arg(long, help_heading = "Filter")]
    convolve: bool,
}

#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = false)]
struct Source {
    /// Filter by name, as in gaussian:sigma=2; "apron filters" lists them. Given several times,
    /// filters run in order
    #[arg(long, short, value_name = "NAME[:K=V,..]", help_heading = "Filter")]
    filter: Vec<Step>,

    /// Taps row by row, as in "0 1 0; 1 -4 1; 0 1 0"
    #[arg(long, value_name = "TAPS", allow_hyphen_values = true, value_parser = Filter::parse_taps, help_heading = "Filter")]
    taps: Option<Filter>,

    /// File of taps: text with one line for each row, or a .npy array of one or two dimensions
    #[arg(long, value_name = "FILE", help_heading = "Filter")]
    taps_file: Option<PathBuf>,
}

impl Choice {
    /// The chosen filters, in order, with their anchor, flipped for convolution.
    pub(crate) fn steps(&self) -> Result<Vec<Step>> {
        let steps = match &self.source {
            Source { taps: Some(filter), .. } => vec![filter.into()],
            Source { taps_file: Some(path), .. } => vec![taps_file::read(path)?.into()],
            Source { filter, .. } => filter.clone(),
        };
        if steps.is_empty() {
            return Err(Failure::usage("one of --filter, --taps and --taps-file is needed"));
        }
        if self.anchor.is_some() && steps.len() > 1 {
            let message = "--anchor is for a single filter: give each its own after an @, as in box:size=4@1,1";
            return Err(Failure::usage(message));
        }
        let placed = |step: Step| match step {
            Step::Filter(mut filter) => {
                if let Some((x, y)) = self.anchor {
                    filter =
                        filter.anchored(x, y).map_err(|error| Failure::usage(error.to_string()))?;
                }
                Ok(Step::Filter(if self.convolve { filter.flipped() } else { filter }))
            }
            Step::Gradient(gradient) if self.anchor.is_some() || self.convolve => {
                let message =
                    format!("{gradient} is a gradient: leave --anchor and --convolve out");
                Err(Failure::usage(message))
            }
            gradient => Ok(gradient),
        };
        steps.into_iter().map(placed).collect()
    }

    /// The chosen filter, for commands that take a single one.
    pub(crate) fn filter(&self) -> Result<Filter> {
        let one = "one filter is needed here, by a single --filter, --taps or --taps-file";
        match <[Step; 1]>::try_from(self.steps()?) {
            Ok([Step::Filter(filter)]) => Ok(filter),
            Ok([Step::Gradient(gradient)]) => {
                Err(Failure::usage(format!("{gradient} is a gradient, which has no taps: {one}")))
            }
            Err(_) => Err(Failure::usage(one)),
        }
    }
}

/// A parser of pixel types, which also lists them in the help.
fn scalars() -> impl TypedValueParser<Value = Scalar> {
    PossibleValuesParser::new(Scalar::ALL.iter().map(|scalar| scalar.name()))
        .try_map(|name| name.parse::<Scalar>())
}

/// A parser of GPUs' names, which also lists them in the help.
fn gpus() -> impl TypedValueParser<Value = GpuModel> {
    PossibleValuesParser::new(GpuModel::ALL.map(|model| model.name))
        .try_map(|name| name.parse::<GpuModel>())
}

fn anchor(text: &str) -> Result<(usize, usize), &'static str> {
    text.split_once(',')
        .and_then(|(x, y)| Some((x.trim().parse().ok()?, y.trim().parse().ok()?)))
        .ok_or("a column and a row of the filter are needed, counted from 0, as in 1,1")
}

fn suffix(text: &str) -> Result<String, &'static str> {
    match text {
        "" => Err("a text is needed, as in -blurred"),
        _ if text.contains(std::path::is_separator) => {
            Err("a part of a file name is needed, as in -blurred, not of a path")
        }
        _ => Ok(text.to_owned()),
    }
}

fn shape(text: &str) -> Result<Shape, &'static str> {
    let numbers: Option<Vec<usize>> = text.split('x').map(|number| number.parse().ok()).collect();
    let numbers =
        numbers.filter(|numbers| numbers.iter().all(|number| (1..=1 << 29).contains(number)));
    match numbers.as_deref() {
        Some(&[width, height]) => Ok(Shape { width, height, channels: 1 }),
        Some(&[width, height, channels @ 1..=4]) => Ok(Shape { width, height, channels }),
        _ => Err(
            "a width and a height are needed, and 1 to 4 channels, as in 1920x1080 or 1920x1080x3",
        ),
    }
}

/// clap's message, as one line.
pub(crate) fn usage(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "no command given; \"apron --help\" lists them".to_owned();
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n");
    let what = paragraphs.next().unwrap_or_default().trim_start_matches("error: ").trim_end();
    let tip = paragraphs.find_map(|paragraph| paragraph.trim_start().strip_prefix("tip: "));
    match tip {
        Some(tip) => format!("{what}; {tip}"),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &[&str]) -> Result<Box<FilterArgs>, String> {
        let args = ["apron", "filter"].iter().chain(line);
        match Args::try_parse_from(args) {
            Ok(Args { command: Command::Filter(args), .. }) => Ok(args),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(usage(&error)),
        }
    }

    #[test]
    fn clap_finds_no_fault() {
        Args::command().debug_assert();
    }

    #[test]
    fn help_has_no_long_lines() {
        for command in [Args::command(), FilterArgs::augment_args(clap::Command::new("filter"))] {
            let help = command.clone().render_help().to_string();
            assert!(help.contains("Examples:"));
        }
        for line in
            [EXAMPLES, FILTER_HELP, PLAN_HELP, TAPS_HELP].iter().flat_map(|help| help.lines())
        {
            assert!(line.len() <= 130, "{line}");
        }
    }

    #[test]
    fn defaults() {
        let args = parse(&["in.png", "out.png", "--filter", "gaussian:sigma=2"]).unwrap();
        assert_eq!(args.paths, ["in.png", "out.png"].map(PathBuf::from));
        assert_eq!(args.border, Border::Reflect101);
        assert_eq!(args.device, Device::Auto);
        assert_eq!((args.variant, args.output_type), (None, None));
        assert_eq!(
            (args.reading.limits.max_pixels, args.reading.limits.max_bytes),
            (1 << 28, 2 << 30)
        );
        assert_eq!(args.choice.filter().unwrap(), Filter::gaussian(2.0).unwrap());
    }

    #[test]
    fn filters_run_in_order() {
        let args = parse(&[
            "a",
            "b",
            "-f",
            "gaussian:sigma=1",
            "--filter",
            "scharr",
            "-f",
            "sharpen",
            "--in-f32",
        ])
        .unwrap();
        let names: Vec<_> = args.choice.steps().unwrap().iter().map(Step::to_string).collect();
        assert_eq!(
            (names, args.in_f32),
            (vec!["gaussian:sigma=1".into(), "scharr".into(), "sharpen:amount=1".into()], true)
        );
        let one = args.choice.filter().unwrap_err();
        assert!(one.code == 2 && one.message.contains("one filter"), "{}", one.message);
    }

    #[test]
    fn alpha_is_weighted_where_it_can_be() {
        assert_eq!(parse(&["a", "b", "-f", "emboss"]).unwrap().alpha, Alpha::Auto);
        let args = parse(&["a", "b", "-f", "emboss", "--alpha", "flatten=#ffffff"]).unwrap();
        assert_eq!(args.alpha, Alpha::Flatten([1.0; 3]));
    }

    #[test]
    fn what_gradients_and_chains_do_not_take_is_refused() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["-f", "sobel", "--convolve"], &["sobel", "--convolve"]),
            (&["-f", "sobel", "--anchor", "1,1"], &["sobel", "--anchor"]),
            (&["-f", "box:size=3", "-f", "box:size=5", "--anchor", "1,1"], &["--anchor", "@"]),
        ];
        for (line, words) in cases {
            let failure =
                parse(&[&["a", "b"], *line].concat()).unwrap().choice.steps().unwrap_err();
            assert!(
                failure.code == 2 && words.iter().all(|word| failure.message.contains(word)),
                "{}",
                failure.message
            );
        }
        let gradient = parse(&["a", "b", "-f", "prewitt"]).unwrap().choice.filter().unwrap_err();
        assert!(gradient.message.contains("no taps"), "{}", gradient.message);
    }

    #[test]
    fn several_inputs() {
        let args = parse(&["a.png", "b.png", "c.png", "out", "--filter", "emboss"]).unwrap();
        assert_eq!(args.paths, ["a.png", "b.png", "c.png", "out"].map(PathBuf::from));
    }

    #[test]
    fn taps_may_begin_with_a_minus() {
        let args = parse(&["a", "b", "--taps", "-1 0 1", "--border", "constant:-2.5"]).unwrap();
        assert_eq!(
            args.choice.filter().unwrap(),
            Filter::from_taps(3, 1, &[-1.0, 0.0, 1.0]).unwrap()
        );
        assert_eq!(args.border, Border::Constant(-2.5));
    }

    #[test]
    fn anchor_is_set_before_the_filter_is_turned() {
        let args =
            parse(&["a", "b", "--taps", "1 2 3; 4 5 6", "--anchor", "0,1", "--convolve"]).unwrap();
        let filter = args.choice.filter().unwrap();
        assert_eq!((filter.tap(0, 0), filter.anchor()), (6.0, (2, 0)));
    }

    #[test]
    fn nonsense_is_one_line_that_names_it() {
        let cases: &[(&[&str], &[&str])] = &[
            (&[], &["required", "--filter"]),
            (&["a.png", "b.png"], &["required", "--filter"]),
            (&["a", "b", "--filter", "gaussian:sigma=-1"], &["sigma", "-1"]),
            (&["a", "b", "--filter", "nonesuch"], &["nonesuch", "gaussian", "scharr-angle"]),
            (
                &["a", "b", "--filter", "emboss", "--alpha", "blend"],
                &["blend", "premultiply", "flatten=COLOUR"],
            ),
            (&["a", "b", "--taps", "1 2; 3"], &["row 2"]),
            (&["a", "b", "--taps", "1 2 x"], &["x"]),
            (&["a", "b", "--filter", "emboss", "--taps", "1"], &["--taps", "cannot be used"]),
            (&["a", "b", "--filter", "emboss", "--border", "reflex"], &["reflex", "reflect101"]),
            (&["a", "b", "--filter", "emboss", "--device", "tpu"], &["tpu", "auto"]),
            (&["a", "b", "--filter", "emboss", "--variant", "fast"], &["fast", "direct-naive"]),
            (&["a", "b", "--filter", "emboss", "--output-type", "i8"], &["i8", "u16"]),
            (&["a", "b", "--filter", "emboss", "--format", "docx"], &["docx", "png"]),
            (&["a", "b", "--filter", "emboss", "--anchor", "1"], &["1,1"]),
            (
                &["a", "b", "--filter", "emboss", "--anchor", "-1,0"],
                &["-1,0", "--anchor", "from 0"],
            ),
            (&["a", "b", "--filter", "emboss", "--suffix", "a/b"], &["--suffix", "file name"]),
            (&["a", "b", "--filter", "emboss", "--scale", "half"], &["half", "0..4095"]),
            (&["a", "b", "--filter", "emboss", "--offset", "much"], &["much", "128"]),
            (
                &["a", "b", "--filter", "emboss", "--scale", "full", "--normalize"],
                &["--scale", "--normalize"],
            ),
            (
                &["a", "b", "--filter", "emboss", "--overwrite", "--skip-existing"],
                &["--overwrite", "--skip-existing"],
            ),
            (&["a", "b", "--filter", "emboss", "--max-bytes", "1.5G"], &["1.5G", "512M"]),
            (&["a", "b", "--filter", "emboss", "--max-bytes", "99999999999T"], &["512M"]),
            (&["a", "b", "--filter", "emboss", "--jobs", "0"], &["0"]),
            (&["a", "b", "--filter", "emboss", "--quality", "101"], &["101"]),
            (&["a", "b", "--filter", "emboss", "--bordr", "wrap"], &["--bordr", "--border"]),
            (&["a", "b", "--filter", "emboss", "-q", "-v"], &["--quiet"]),
            (
                &["a", "b", "--filter", "emboss", "-v", "--every-frame"],
                &["--verbose", "--every-frame"],
            ),
        ];
        for (line, words) in cases {
            let message = crate::output::one_line(&parse(line).unwrap_err());
            for word in *words {
                assert!(message.contains(word), "{line:?}: {message:?} lacks {word:?}");
            }
            assert!(!message.contains("Usage:") && !message.contains("error:"), "{message}");
        }
    }

    #[test]
    fn an_anchor_outside_is_a_usage_failure() {
        let args = parse(&["a", "b", "--filter", "emboss", "--anchor", "3,0"]).unwrap();
        let failure = args.choice.filter().unwrap_err();
        assert_eq!(failure.code, 2);
    }
}
