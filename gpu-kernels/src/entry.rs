//! Entries for the host: names with the types of the arguments that a launch must pass.
//!
//! The macro `kernel!` declares an entry for the GPU, and on the host a constant of the same name
//! and of type [`Entry`]. So a launch with wrong argument types does not compile.

use core::marker::PhantomData;

use crate::abi::Taps;

/// An entry that takes the arguments of the tuple `A`, by value and in this order.
pub struct Entry<A> {
    name: &'static str,
    arguments: PhantomData<fn(A)>,
}

/// An entry that takes a number of taps by value after the arguments of the tuple `A`. Entries of
/// one table have [`Taps`] of different lengths.
pub struct TapsEntry<A> {
    name: &'static str,
    taps: usize,
    arguments: PhantomData<fn(A)>,
}

impl<A> Entry<A> {
    /// The entry with this name. Only the macro `kernel!` calls this, with the right `A`.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, arguments: PhantomData }
    }

    /// Its name in PTX.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<A, B, const N: usize> Entry<(A, B, Taps<N>)> {
    /// The same entry, for a table of entries with different numbers of taps.
    pub const fn with_taps(self) -> TapsEntry<(A, B)> {
        TapsEntry { name: self.name, taps: N, arguments: PhantomData }
    }
}

impl<A, B, C, const N: usize> Entry<(A, B, C, Taps<N>)> {
    /// The same entry, for a table of entries with different numbers of taps.
    pub const fn with_taps(self) -> TapsEntry<(A, B, C)> {
        TapsEntry { name: self.name, taps: N, arguments: PhantomData }
    }
}

impl<A, B, C, D, const N: usize> Entry<(A, B, C, D, Taps<N>)> {
    /// The same entry, for a table of entries with different numbers of taps.
    pub const fn with_taps(self) -> TapsEntry<(A, B, C, D)> {
        TapsEntry { name: self.name, taps: N, arguments: PhantomData }
    }
}

impl<A> TapsEntry<A> {
    /// Its name in PTX.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Number of taps that it takes.
    pub const fn taps(&self) -> usize {
        self.taps
    }
}

impl<A> Clone for Entry<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Entry<A> {}

impl<A> Clone for TapsEntry<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for TapsEntry<A> {}

impl<A> core::fmt::Debug for Entry<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}

impl<A> core::fmt::Debug for TapsEntry<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}
