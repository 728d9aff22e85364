//! Images in a GPU's memory of which a mask says what is known.

use std::ops::Range;

use gpu_kernels::abi::Plane;

use super::engine::{Engine, within};
use super::view::{DeviceView, DeviceViewMut, View};
use crate::image::Scalar;
use crate::kernels::known::Knows;
use crate::mask::{Unknown, check_shape};
use crate::plan::agree;
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
    /// [`Error::Mismatch`] if the coverage has another shape than the image; [`Error::Parameter`]
    /// if the mask does not fit it, if either is on another GPU, of another type or lacks rows, or
    /// if there are several images.
    pub(crate) fn knows(
        &self,
        unknown: Unknown,
        src: &DeviceView<'_>,
        mask: Option<&DeviceView<'_>>,
        coverage: &DeviceCoverage<'_>,
        rows: &Range<usize>,
    ) -> Result<Knows> {
        let image = src.parts.shape;
        let beside = |view: &View| -> Result<Plane> {
            self.gpu().same("what lies beside the image", &view.gpu)?;
            if (src.parts.images, view.images) != (1, 1) {
                let value = src.parts.images.max(view.images).to_string();
                let expected = "1 with a mask: filter images one by one".to_owned();
                return Err(Error::Parameter { name: "images", value, expected });
            }
            Ok(view.plane_from(0, view.shape.channels))
        };
        let of_type = |view: &View, name: &'static str, types: &[Scalar]| {
            if types.contains(&view.scalar) {
                return Ok(());
            }
            let names: Vec<_> = types.iter().map(ToString::to_string).collect();
            let (value, expected) = (view.scalar.to_string(), names.join(" or "));
            Err(Error::Parameter { name, value, expected })
        };
        let mask = mask.map(|view| -> Result<(Plane, u32)> {
            let view = &view.parts;
            check_shape(view.shape, image)?;
            of_type(view, "the mask's type", &[Scalar::U8, Scalar::F32])?;
            let mode = self.border().code().0;
            let read = rows_read(mode, self.reach(), rows.clone(), image.height);
            within("the range of the mask's rows needed", &read, &view.there())?;
            Ok((beside(view)?, view.shape.channels as u32))
        });
        let to = |view: &Option<DeviceViewMut<'_>>, name, scalar| -> Result<Option<Plane>> {
            let Some(DeviceViewMut { parts: view, .. }) = view else { return Ok(None) };
            agree(image, view.shape)?;
            of_type(view, name, &[scalar])?;
            within("the range of the coverage's rows", rows, &view.there())?;
            beside(view).map(Some)
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
