//! Which filter each plane of a video gets.
//!
//! Luma gets the filter itself. Chroma has fewer samples, so the lengths of its filter are
//! shorter. Chroma that a filter would tint is copied: chroma of grey is the middle of its range,
//! which only taps that sum to 1 keep.

use apron::{Alpha, Border, Filter, Light, Pipeline, Step};

use super::header::{Header, Part, Plane};
use crate::args::FilterArgs;
use crate::failure::{Failure, Result};
use crate::steps;
use crate::task::Task;

/// The filters of a video's planes. `None` stands for a copy.
pub(super) struct Filters<'a> {
    luma: &'a Pipeline,
    chroma: Option<Pipeline>,
    alpha: Option<&'a Pipeline>,
}

impl<'a> Filters<'a> {
    /// The filters, and notes for the user.
    pub(super) fn of(task: &Task<'a>, header: &Header) -> Result<(Self, Vec<String>)> {
        let mut notes = Vec::new();
        if header.interlaced {
            notes.push(
                "the video is interlaced, and both fields of a frame are filtered as one picture, \
                 which mixes two moments; ffmpeg's -vf bwdif makes it progressive"
                    .to_owned(),
            );
        }
        if task.differs {
            notes.push("negative results became 0, as y4m holds no sign".to_owned());
        }
        let chroma = match header.sampling.chroma {
            Some((across, down)) => {
                let (kept, left_out) =
                    of_chroma(task.steps, (1.0 / across as f64, 1.0 / down as f64))?;
                if !left_out.is_empty() {
                    notes.push(format!(
                        "only luma is filtered by {}, for which chroma has no taps; ffmpeg's \
                         -pix_fmt gray leaves chroma out",
                        left_out.join(", ")
                    ));
                }
                let border = outside(task.args.border, header.sampling.bits);
                let pipeline =
                    |steps| steps::pipeline(steps, border, (task.args, Light::Stored), None);
                Some(kept).filter(|steps| !steps.is_empty()).map(pipeline).transpose()?
            }
            None => None,
        };
        let alpha = header.sampling.alpha && filters_alpha(task.args)?;
        if header.sampling.alpha && !alpha {
            notes.push("alpha is copied; --alpha filter filters it".to_owned());
        }
        let alpha = alpha.then_some(&**task.pipeline);
        Ok((Self { luma: task.pipeline, chroma, alpha }, notes))
    }

    /// The filter of a plane; `None` if it is copied.
    pub(super) fn of_plane(&self, plane: &Plane) -> Option<&Pipeline> {
        match plane.part {
            Part::Luma => Some(self.luma),
            Part::Chroma => self.chroma.as_ref(),
            Part::Alpha => self.alpha,
        }
    }
}

/// The steps for chroma, whose samples are `across` and `down` times as many as luma's, and the
/// names of those that have none.
fn of_chroma(steps: &[Step], (across, down): (f64, f64)) -> Result<(Vec<Step>, Vec<String>)> {
    let (mut kept, mut left_out) = (Vec::new(), Vec::new());
    for step in steps {
        let scaled = match step {
            Step::Filter(filter) => filter.at_scale(across, down)?.filter(keeps_levels),
            _ => None,
        };
        match scaled {
            Some(filter) => kept.push(Step::Filter(filter)),
            None => left_out.push(brief(&step.to_string())),
        }
    }
    Ok((kept, left_out))
}

/// Whether the taps sum to 1, so that flat areas keep their value.
fn keeps_levels(filter: &Filter) -> bool {
    let taps =
        (0..filter.rows()).flat_map(|row| (0..filter.cols()).map(move |col| filter.tap(row, col)));
    let (sum, weight) = taps.fold((0.0, 0.0), |(sum, weight), tap| (sum + tap, weight + tap.abs()));
    (sum - 1.0).abs() <= 1e-6 * weight
}

/// A filter's name. Taps have many numbers.
fn brief(name: &str) -> String {
    if name.len() <= 40 { name.to_owned() } else { "these taps".to_owned() }
}

/// The border of chroma: a constant is a grey of that luma.
fn outside(border: Border, bits: u32) -> Border {
    match border {
        Border::Constant(_) => Border::Constant(f64::from(1u32 << (bits - 1))),
        other => other,
    }
}

/// Whether the filter is for alpha too.
fn filters_alpha(args: &FilterArgs) -> Result<bool> {
    match args.alpha {
        Alpha::Auto | Alpha::Keep => Ok(false),
        Alpha::Filter => Ok(true),
        other => Err(Failure::usage(format!(
            "--alpha {other} is not for y4m: --alpha keep copies alpha, --alpha filter filters it, \
             and ffmpeg's -pix_fmt yuv444p leaves it out"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chroma(texts: &[&str], scale: (f64, f64)) -> (Vec<String>, Vec<String>) {
        let steps: Vec<Step> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let (kept, left_out) = of_chroma(&steps, scale).unwrap();
        (kept.iter().map(Step::to_string).collect(), left_out)
    }

    #[test]
    fn chroma_has_shorter_lengths() {
        let half = (0.5, 0.5);
        assert_eq!(chroma(&["gaussian:2"], half), (vec!["gaussian:sigma=1".into()], vec![]));
        assert_eq!(chroma(&["unsharp:2"], (0.5, 1.0)).0, ["unsharp:sigma-x=1,sigma-y=2,amount=1"]);
        assert_eq!(
            chroma(&["gaussian:2", "sharpen", "sobel"], half),
            (vec!["gaussian:sigma=1".into()], vec!["sharpen:amount=1".into(), "sobel".into()])
        );
        // Chroma with luma's samples needs no lengths, only levels.
        let (kept, left_out) = chroma(&["sharpen", "sobel-x", "taps:1/2 1/2"], (1.0, 1.0));
        assert_eq!((kept.len(), &left_out[..]), (2, &["sobel-x".to_owned()][..]));
        let taps = format!("taps:{}", "1 ".repeat(50));
        assert_eq!(chroma(&[&taps], half).1, ["these taps"]);
    }

    #[test]
    fn outside_chroma_is_grey() {
        assert_eq!(outside(Border::Constant(16.0), 10), Border::Constant(512.0));
        assert_eq!(outside(Border::Replicate, 10), Border::Replicate);
    }
}
