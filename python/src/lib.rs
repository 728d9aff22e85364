//! apron for Python: the extension module `apron._apron`. The package around it, in `apron/`, is Python.

mod array;
mod ndimage;
mod passes;

use pyo3::prelude::*;

#[pymodule]
mod _apron {
    #[pymodule_export]
    use crate::ndimage::{correlate, correlate1d, uniform_filter1d};
}
