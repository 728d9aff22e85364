//! Calls of a plan with a mask.

use apron::{Coverage, ImageViewMut, Mask, Pixel, Scalar, with_pixels};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::array::{self, Axes};
use crate::filter::error;
use crate::layout::Layout;
use crate::plan::{Plan, scalar};
use crate::threads::without_lock;

/// Arrays of rows, columns and channels, in C's order and of this machine's bytes. No two of those
/// that are written share a byte with another.
pub(crate) struct Arrays<'a, 'py> {
    pub(crate) image: &'a Bound<'py, PyUntypedArray>,
    /// uint8 or float32.
    pub(crate) mask: Option<&'a Bound<'py, PyUntypedArray>>,
    pub(crate) result: &'a Bound<'py, PyUntypedArray>,
    /// float32.
    pub(crate) weights: Option<&'a Bound<'py, PyUntypedArray>>,
    /// uint8.
    pub(crate) known: Option<&'a Bound<'py, PyUntypedArray>>,
}

impl Plan {
    /// Filters the known pixels of an image.
    pub(crate) fn masked(&self, py: Python<'_>, arrays: &Arrays<'_, '_>) -> PyResult<()> {
        let layout = |array: &Bound<'_, PyUntypedArray>| -> PyResult<Layout> {
            let kind =
                scalar(&array.dtype()).map(|scalar| Layout::of(array, scalar, Axes::One(-1)));
            kind.transpose()?.flatten().ok_or_else(|| {
                PyTypeError::new_err("an array is not in C's order, or of another type")
            })
        };
        let of = |array: Option<&Bound<'_, PyUntypedArray>>| array.map(layout).transpose();
        let (mask, weights, known) = (of(arrays.mask)?, of(arrays.weights)?, of(arrays.known)?);
        let beside = Beside { mask, weights, known };
        let types = (scalar(&arrays.image.dtype()), scalar(&arrays.result.dtype()));
        if let (Some(from), Some(to)) = types
            && (from == to || to == Scalar::F32)
        {
            let (source, target) = (layout(arrays.image)?, layout(arrays.result)?);
            let run: fn(&apron::Plan, &Layout, &Layout, &Beside) -> apron::Result<()> = with_pixels!(from, S => {
                if from == to { run::<S, S> } else { run::<S, f32> }
            });
            return without_lock(py, || run(&self.plan, &source, &target, &beside))?.map_err(error);
        }
        let kind = |array: &Bound<'_, PyUntypedArray>| {
            array::number(&array.dtype())
                .ok_or_else(|| PyTypeError::new_err("an array is of another type"))
        };
        let of = |array, kind| array::pictures(array, kind, Axes::One(-1));
        let source = of(arrays.image, kind(arrays.image)?)?.swap_remove(0);
        let target = of(arrays.result, kind(arrays.result)?)?.swap_remove(0);
        // SAFETY: NumPy's shapes, strides and types describe memory that the arrays keep alive. The
        // caller promises that they share no byte, and that no other thread writes to them.
        let run = || unsafe {
            let (mask, coverage) = beside.views()?;
            self.plan.run_masked_arrays(&source, mask, &target, coverage)
        };
        without_lock(py, run)?.map_err(error)
    }
}

/// The arrays beside the image and the result.
struct Beside {
    mask: Option<Layout>,
    weights: Option<Layout>,
    known: Option<Layout>,
}

impl Beside {
    /// # Safety
    /// As for [`Plan::masked`].
    unsafe fn views<'a>(&self) -> apron::Result<(Mask<'a>, Coverage<'a>)> {
        // SAFETY: the caller's promise; the types are those of the layouts.
        unsafe {
            let mask = match &self.mask {
                None => Mask::All,
                Some(mask) if mask.scalar == Scalar::U8 => mask.view::<u8>(0, 0)?.into(),
                Some(mask) => mask.view::<f32>(0, 0)?.into(),
            };
            let weights =
                self.weights.as_ref().map(|weights| weights.view_mut(0, 0)).transpose()?;
            let known = self.known.as_ref().map(|known| known.view_mut(0, 0)).transpose()?;
            Ok((mask, Coverage { weights, known }))
        }
    }
}

fn run<S: Pixel, D: Pixel>(
    plan: &apron::Plan,
    source: &Layout,
    target: &Layout,
    beside: &Beside,
) -> apron::Result<()> {
    // SAFETY: as in [`Plan::masked`].
    unsafe {
        let (mask, coverage) = beside.views()?;
        let mut dst: ImageViewMut<'_, D> = target.view_mut(0, 0)?;
        plan.run_masked_with(&source.view::<S>(0, 0)?, mask, &mut dst, coverage)
    }
}
