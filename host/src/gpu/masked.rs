//! Images in a GPU's memory of which a mask says what is known.

use std::ops::Range;

use gpu_kernels::abi::Plane;

use super::engine::Engine;
use super::view::{DeviceView, DeviceViewMut, View};
use crate::image::Scalar;
use crate::kernels::known::Knows;
use crate::mask::Unknown;
use crate::problem::rows_read;
use crate::{Error, Result};

/// What [`Plan::run_region_masked`](crate::Plan::run_region_masked) writes beside the results, if
/// it is given: [`Coverage`](crate::Coverage) in a GPU's memory. Both have the image's shape.
#[derive(Debug, Default)]
pub struct DeviceCoverage<'a> {
    /// `sum(w m)`, in f32.
    pub weights: Option<DeviceViewMut<'a>>,
    /// Bytes: 255 where a result comes from known pixels, and 0 where no pixel is known.
    pub known: Option<DeviceViewMut<'a>>,
}

impl Engine {
    /// What a call knows of one image, whose results in these rows are computed.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the mask or the coverage does not fit the image;
    /// [`Error::Parameter`] if it is on another GPU, of another type or lacks rows, or if there are
    /// several images.
    pub(crate) fn knows(
        &self,
        unknown: Unknown,
        src: &DeviceView<'_>,
        mask: Option<&DeviceView<'_>>,
        coverage: &DeviceCoverage<'_>,
        rows: &Range<usize>,
    ) -> Result<Knows> {
        let beside = |view: &View, is_wider: bool| -> Result<Plane> {
            self.gpu().same("what lies beside the image", &view.gpu)?;
            let (image, own) = (src.parts.shape, view.shape);
            let fits = (own.width, own.height) == (image.width, image.height)
                && (own.channels == image.channels || is_wider && own.channels == 1);
            if !fits {
                return Err(Error::Mismatch { src: image.to_string(), dst: own.to_string() });
            }
            if (src.parts.images, view.images) != (1, 1) {
                let value = src.parts.images.max(view.images).to_string();
                let expected = "1 with a mask: filter images one by one".to_owned();
                return Err(Error::Parameter { name: "images", value, expected });
            }
            Ok(view.plane_from(0, own.channels))
        };
        let of_type = |view: &View, name: &'static str, types: &[Scalar]| {
            if types.contains(&view.scalar) {
                return Ok(());
            }
            let names: Vec<_> = types.iter().map(ToString::to_string).collect();
            let (value, expected) = (view.scalar.to_string(), names.join(" or "));
            Err(Error::Parameter { name, value, expected })
        };
        let has = |view: &View, name: &'static str, rows: &Range<usize>| {
            let there = view.there();
            if there.start <= rows.start && rows.end <= there.end {
                return Ok(());
            }
            let (value, expected) = (format!("{there:?}"), format!("at least {rows:?}"));
            Err(Error::Parameter { name, value, expected })
        };
        let mask = mask.map(|view| -> Result<(Plane, u32)> {
            let plane = beside(&view.parts, true)?;
            of_type(&view.parts, "the mask's type", &[Scalar::U8, Scalar::F32])?;
            let height = src.parts.shape.height;
            let read = rows_read(self.border().code().0, self.reach(), rows.clone(), height);
            has(&view.parts, "the mask's rows", &read)?;
            Ok((plane, view.parts.shape.channels as u32))
        });
        let to = |view: &Option<DeviceViewMut<'_>>, name, scalar| -> Result<Option<Plane>> {
            let Some(view) = view else { return Ok(None) };
            of_type(&view.parts, name, &[scalar])?;
            has(&view.parts, "the rows of the coverage", rows)?;
            beside(&view.parts, false).map(Some)
        };
        Ok(Knows {
            unknown,
            border: self.border(),
            mask: mask.transpose()?,
            to: [
                to(&coverage.weights, "the type of the weights", Scalar::F32)?,
                to(&coverage.known, "the type of what says which results are known", Scalar::U8)?,
            ],
        })
    }
}
