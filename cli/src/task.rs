//! What is done to every picture of a run of the tool.

use std::fs;
use std::sync::{Arc, Mutex};

use apron::{Light, Pipeline, Step};
use indicatif::ProgressBar;

use crate::args::FilterArgs;
use crate::failure::{Failure, Result};
use crate::formats::FileFormat;
use crate::jobs::Job;
use crate::masks::MaskImage;
use crate::notes::Notes;
use crate::volume::Volume;
use crate::{replace, stream};

/// The work on every picture.
pub(crate) struct Task<'a> {
    pub(crate) args: &'a FilterArgs,
    pub(crate) steps: &'a [Step],
    /// The pipeline for pictures that do not say what their values stand for.
    pub(crate) pipeline: &'a Arc<Pipeline>,
    /// Those for others, once there was one.
    pub(crate) lights: Mutex<Vec<(Light, Arc<Pipeline>)>>,
    /// Which pixels of every picture are known.
    pub(crate) mask: Option<MaskImage>,
    /// The pass along the slices of volumes.
    pub(crate) volume: Option<Volume>,
    /// Whether the last filter is a derivative: results below 0 are as likely as above 0.
    pub(crate) differs: bool,
    /// Whether the last step computes angles.
    pub(crate) is_angle: bool,
    pub(crate) bar: &'a ProgressBar,
    /// The notes for the user.
    pub(crate) notes: Mutex<Notes>,
    /// Threads for each stream of frames.
    pub(crate) frames_at_once: usize,
}

impl Task<'_> {
    /// The format to write, or `None` if the result exists and is to be skipped. Fails early if the
    /// output cannot be written.
    pub(crate) fn format(&self, job: &Job) -> Result<Option<&'static FileFormat>> {
        let Job { output, in_folder, .. } = job;
        let found =
            fs::metadata(output).is_ok_and(|found| found.is_file()) && !stream::is_stream(output);
        if found && self.args.skip_existing {
            return Ok(None);
        }
        if found && !in_folder && !self.args.overwrite && !job.is_in_place() {
            return Err(Failure::at(output, "exists already; --overwrite replaces it"));
        }
        replace::check(output, *in_folder)?;
        match self.args.format {
            Some(format) => Ok(Some(format)),
            None if stream::is_stream(output) => Err(Failure::usage(
                "standard output has no extension: name its format, as in --format png",
            )),
            None => FileFormat::from_path(output).map(Some),
        }
    }
}
