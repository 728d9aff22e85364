//! Host allocations that fail as errors.

use crate::{Error, Result};

/// An empty vector with room for `len` elements.
pub(crate) fn reserve<T>(len: usize) -> Result<Vec<T>> {
    let mut data = Vec::new();
    data.try_reserve_exact(len).map_err(|_| Error::HostMemory { bytes: len.saturating_mul(size_of::<T>()) })?;
    Ok(data)
}

/// `len` zeros.
pub(crate) fn zeroed<T: Clone + Default>(len: usize) -> Result<Vec<T>> {
    let mut data = reserve(len)?;
    data.resize(len, T::default());
    Ok(data)
}
