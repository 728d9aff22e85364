//! apron for Python: the extension module `apron._apron`. The package in `package/apron` wraps it
//! in Python.

mod array;
mod device;
mod dlpack;
mod filter;
mod layout;
mod masked;
mod ndimage;
mod number;
mod plan;
mod plans;
mod presets;
mod threads;

use pyo3::prelude::*;

#[pymodule]
mod _apron {
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        presets::add_to(&module.py().get_type::<Filter>())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    #[pymodule_export]
    use crate::device::{DeviceArray, enqueue_foreign, enqueue_lent, enqueue_masked, synchronize};
    #[pymodule_export]
    use crate::filter::Filter;
    #[pymodule_export]
    use crate::ndimage::{convert, correlate, correlate1d, join, overlap, uniform_filter1d};
    #[pymodule_export]
    use crate::plan::Plan;
    #[pymodule_export]
    use crate::plans::Plans;
    #[pymodule_export]
    use crate::threads::after_fork;
}
