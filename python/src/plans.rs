//! The class `Plans`: a plan for each image of a batch.

use apron::{Pixel, gpu::Gpu, with_pixels};
use pyo3::prelude::*;

use crate::array::Axes;
use crate::device::{Foreign, enqueue_plans};
use crate::filter::error;
use crate::layout::Layout;
use crate::plan::Plan;
use crate::threads::without_lock;

/// A plan for each image of a batch, all for the same device. Arrays have images, rows, columns and
/// channels, all of which are filtered.
#[pyclass(frozen, module = "apron", name = "_Plans")]
pub(crate) struct Plans {
    plans: apron::Plans,
}

#[pymethods]
impl Plans {
    #[new]
    fn new(plans: Vec<PyRef<'_, Plan>>) -> PyResult<Self> {
        let plans = plans.iter().map(|plan| plan.plan.clone());
        Ok(Self { plans: apron::Plans::new(plans).map_err(error)? })
    }

    /// The device that the plans run on.
    #[getter]
    fn device(&self) -> String {
        self.plans.device().to_string()
    }

    /// Filters from one array in host memory into another. False if the arrays need a conversion or
    /// a copy.
    #[pyo3(signature = (source, target))]
    fn filter_at(&self, py: Python<'_>, source: Foreign, target: Foreign) -> PyResult<bool> {
        let of = |array| Layout::of_foreign(array, Axes::Many);
        let (Some(source), Some(target)) = (of(&source)?, of(&target)?) else { return Ok(false) };
        let is_direct = target.scalar == source.scalar || target.scalar == apron::Scalar::F32;
        let is_apart = target.is_apart() && !source.overlaps(&target);
        if !is_direct || !is_apart || !target.is_like(&source) {
            return Ok(false);
        }
        let run: fn(&apron::Plans, &Layout, &Layout) -> apron::Result<()> = with_pixels!(source.scalar, S => {
            if target.scalar == source.scalar { run::<S, S> } else { run::<S, f32> }
        });
        without_lock(py, || run(&self.plans, &source, &target))?.map_err(error)?;
        Ok(true)
    }

    /// Filters from one array of another library into another in a GPU's memory, in a stream of
    /// theirs. Without a stream, filters in one of apron's and waits for it.
    #[pyo3(signature = (device, source, target, stream, owner))]
    fn enqueue(
        &self,
        py: Python<'_>,
        device: u32,
        source: Foreign,
        target: Foreign,
        stream: Option<u64>,
        owner: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let gpu = Gpu::open(device).map_err(error)?;
        enqueue_plans(py, &self.plans, &gpu, (&source, &target), (stream, owner))
    }
}

fn run<S: Pixel, D: Pixel>(
    plans: &apron::Plans,
    source: &Layout,
    target: &Layout,
) -> apron::Result<()> {
    // SAFETY: Python's caller keeps the arrays alive, which share no byte, and promises that no
    // other thread writes to them meanwhile, as for every function of NumPy that releases the lock.
    // The target's pictures share no byte, not even between their rows.
    let pictures = unsafe { source.pictures_with::<S, D>(target) };
    plans.run(&mut pictures.collect::<apron::Result<Vec<_>>>()?)
}
