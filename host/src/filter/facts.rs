//! A cache of values that depend on a filter alone, keyed by type.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A value with its type.
type Fact = (TypeId, Arc<dyn Any + Send + Sync>);

/// At most one value of each type. Clones share the cache.
#[derive(Clone, Default)]
pub(super) struct Facts(Arc<Mutex<Vec<Fact>>>);

impl Facts {
    /// The value of type `T`, computed by `make` if there is none. `make` may ask for values of
    /// other types. Threads that ask for the same value concurrently may each compute it, but all
    /// get the same one.
    pub(super) fn get<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        if let Some(found) = self.find() {
            return found;
        }
        let made: Arc<T> = Arc::new(make());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = find_in(&all) {
            return found;
        }
        all.push((TypeId::of::<T>(), made.clone()));
        made
    }

    fn find<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        find_in(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn find_in<T: Send + Sync + 'static>(all: &[Fact]) -> Option<Arc<T>> {
    let (_, value) = all.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
    value.clone().downcast().ok()
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts").finish_non_exhaustive()
    }
}
