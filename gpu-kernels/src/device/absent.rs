//! The device layer on the host, where there is no device: kernels are type-checked with it and
//! never called.
//!
//! Each function of `nvptx.rs` and `mma.rs` is here too, with the same signature and contract.

/// Declares kernel entries: a constant for each, with its name and the types of its arguments.
macro_rules! kernel {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$attribute])*
        ///
        /// The entry, for the host to launch.
        #[allow(non_upper_case_globals, reason = "it is named as in PTX")]
        pub const $name: $crate::entry::Entry<($($type,)*)> = {
            // Type-checked here; compiled only for the GPU.
            #[allow(dead_code)]
            unsafe fn body($($argument: $type),*) {
                // SAFETY: never called.
                unsafe { $body }
            }
            $crate::entry::Entry::new(stringify!($name))
        };
    )*};
}

/// Items of a kernel's file for the host only: lists of its entries.
macro_rules! host {
    ($($item:item)*) => {
        $($item)*
    };
}

macro_rules! directive {
    ($directive:literal) => {};
}

macro_rules! parameter {
    ($kernel:ident, $index:literal, $argument:ident) => {{
        let _ = &$argument;
        $crate::device::Parameter(())
    }};
}

pub(crate) use {directive, host, kernel, parameter};

/// Declares functions that are never called.
macro_rules! absent {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        pub(crate) fn $name($(_: $type),*) $(-> $result)? {
            unreachable!("kernels run on a GPU")
        }
    )*};
}

/// As [`absent`], for unsafe functions, and after `self;` for methods.
macro_rules! absent_unsafe {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        pub(crate) unsafe fn $name($(_: $type),*) $(-> $result)? {
            unreachable!("kernels run on a GPU")
        }
    )*};
    (self; $(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        pub(crate) unsafe fn $name(self $(, _: $type)*) $(-> $result)? {
            unreachable!("kernels run on a GPU")
        }
    )*};
}

absent! {
    fn thread_x() -> i32;
    fn thread_y() -> i32;
    fn block_x() -> i32;
    fn block_y() -> i32;
    fn block_z() -> i32;
    fn block_width() -> i32;
    fn block_height() -> i32;
    fn grid_width() -> i32;
    fn grid_height() -> i32;
    fn warp_barrier();
    fn let_next_kernel_begin();
    fn first_tap() -> usize;
    fn fma(a: f32, b: f32, c: f32) -> f32;
    fn fma_in_place(a: f32, b: f32, c: f32) -> f32;
    fn opaque(value: i32) -> i32;
    fn keep_rolled();
    fn mul_wide(a: i32, b: i32) -> i64;
    fn copies_commit();
    fn funnel(low: u32, high: u32, bits: u32) -> u32;
    fn dot(bytes: u32, signed: u32, sum: i32) -> i32;
    fn prefetch(at: u64);
    fn permute_by(a: u32, b: u32, selector: u32) -> u32;
    fn pack_bytes(high: i32, low: i32, above: u32) -> u32;
    fn pack_halves(high: i32, low: i32) -> u32;
    fn half_to_f32(bits: u32) -> f32;
    fn f32_to_half(value: f32) -> u32;
    fn f32_to_halves(high: f32, low: f32) -> u32;
    fn rounded(four: [f32; 4]) -> ([u32; 2], u32);
    fn sqrt(value: f32) -> f32;
    fn sqrt_near(value: f32) -> f32;
    fn mul_f64(a: f64, b: f64) -> f64;
    fn add_f64(a: f64, b: f64) -> f64;
    fn fma_f64(a: f64, b: f64, c: f64) -> f64;
    fn sqrt_f64(value: f64) -> f64;
}

pub(crate) fn permute<const SELECTOR: u32>(_: u32, _: u32) -> u32 {
    unreachable!("kernels run on a GPU")
}

pub(crate) fn copies_wait<const N: i32>() {
    unreachable!("kernels run on a GPU")
}

absent_unsafe! {
    fn barrier();
    fn barrier_or(flag: bool) -> bool;
    fn load(base: *const f32, index: usize) -> f32;
    fn load2(base: *const f32, index: usize) -> [f32; 2];
    fn reload(base: *const f32, index: usize) -> f32;
    fn reload2(base: *const f32, index: usize) -> [f32; 2];
    fn store(base: *mut f32, index: usize, value: f32);
    fn load_u8(at: u64) -> u32;
    fn load_u8_if(there: bool, at: u64) -> u32;
    fn load_u16(at: u64) -> u32;
    fn load_f64(at: u64) -> f64;
    fn reload_word(at: u64) -> u32;
    fn exchange(word: u32, apart: u32) -> u32;
    fn ballot(yes: bool) -> u32;
    fn atomic_add(at: u64, value: u32) -> u32;
    fn store_u8(at: u64, value: u32);
    fn store_u16(at: u64, value: u32);
    fn mma(sums: [i32; 4], a: [u32; 4], b: [u32; 2]) -> [i32; 4];
    fn mma_signed(sums: [i32; 4], a: [u32; 4], b: [u32; 2]) -> [i32; 4];
}

pub(crate) unsafe fn reload_small<const BYTES: usize>(_: u64) -> u32 {
    unreachable!("kernels run on a GPU")
}

pub(crate) unsafe fn load_words<const N: usize>(_: u64) -> [u32; N] {
    unreachable!("kernels run on a GPU")
}

pub(crate) unsafe fn store_words<const N: usize>(_: u64, _: [u32; N]) {
    unreachable!("kernels run on a GPU")
}

pub(crate) unsafe fn stream_words<const N: usize>(_: u64, _: [u32; N]) {
    unreachable!("kernels run on a GPU")
}

pub(crate) unsafe fn store_run<const PX: usize>(_: *mut f32, _: usize, _: [f32; PX]) {
    unreachable!("kernels run on a GPU")
}

#[derive(Clone, Copy)]
pub(crate) struct Shared(());

impl Shared {
    pub(crate) fn dynamic() -> Self {
        Self(())
    }

    pub(crate) fn in_register(self) -> Self {
        self
    }

    pub(crate) fn after(self, _: i32) -> Self {
        self
    }

    absent_unsafe! {
        self;
        fn load(index: i32) -> f32;
        fn load2(index: i32) -> [f32; 2];
        fn load4(index: i32) -> [f32; 4];
        fn copy4(index: i32, from: *const f32);
        fn copy1(index: i32, from: *const f32);
        fn store(index: i32, value: f32);
        fn store2(index: i32, values: [f32; 2]);
        fn store4(index: i32, values: [f32; 4]);
        fn store_u8(byte: i32, value: u32);
        fn store_u16(byte: i32, value: u32);
        fn load_word(index: i32) -> u32;
        fn load_matrices(byte: i32) -> [u32; 4];
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Parameter(pub(crate) ());

impl Parameter {
    pub(crate) fn advanced(self, _: usize) -> Self {
        self
    }

    absent_unsafe! {
        self;
        fn load(index: usize) -> f32;
    }
}
