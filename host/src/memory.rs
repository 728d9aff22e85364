//! Host allocations that return an error when they fail, and values that are computed on first use.

use std::sync::OnceLock;

use crate::{Error, Result};

/// An empty vector with capacity for `len` elements.
pub(crate) fn reserve<T>(len: usize) -> Result<Vec<T>> {
    let mut data = Vec::new();
    data.try_reserve_exact(len)
        .map_err(|_| Error::HostMemory { bytes: len.saturating_mul(size_of::<T>()) })?;
    Ok(data)
}

/// `len` default values: zeros for numbers.
pub(crate) fn zeroed<T: Clone + Default>(len: usize) -> Result<Vec<T>> {
    let mut data = reserve(len)?;
    data.resize(len, T::default());
    Ok(data)
}

/// The cell's value, computed by `make` if the cell is empty.
pub(crate) fn once<T>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    match cell.get() {
        Some(value) => Ok(value),
        None => make().map(|value| cell.get_or_init(|| value)),
    }
}
