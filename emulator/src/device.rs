//! The device layer of `gpu-kernels/src/device` for the emulator. Every function calls the emulated
//! machine, which checks the call.
//!
//! Each function of `nvptx.rs` is here too, with the same contract. `#[track_caller]` lets a
//! finding name the kernel's line.

use crate::machine::{self, Pause, Via};

#[path = "../../gpu-kernels/src/device/taps.rs"]
mod taps;

pub(crate) use taps::*;

/// Declares kernel entries: plain functions, and a row for each in the table of kernels that can be
/// launched.
macro_rules! kernel {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$attribute])*
        unsafe fn $name($($argument: $type),*) {
            $crate::device::wait_for_kernels_ahead();
            // SAFETY: the emulator launches only kernels that the host's typed launchers launch.
            unsafe { $body }
        }

        inventory::submit! {
            $crate::machine::Entry {
                name: stringify!($name),
                parameters: &[$(size_of::<$type>()),*],
                run: {
                    unsafe fn run(mut parameters: $crate::machine::Parameters) {
                        // SAFETY: the launch passes what the entry takes.
                        unsafe {
                            $(let $argument: $type = parameters.next();)*
                            $name($($argument),*);
                        }
                    }
                    run
                },
            }
        }
    )*};
}

/// Directives for the assembler: `.maxntid` is checked against each launch.
macro_rules! directive {
    ($directive:literal) => {
        $crate::machine::directive($directive)
    };
}

/// By-value parameter number `index` of the kernel, for [`Parameter`].
macro_rules! parameter {
    ($kernel:ident, $index:literal, $argument:ident) => {
        $crate::device::Parameter::new(&$argument)
    };
}

/// Empty: the emulator finds entries by name, so it needs no lists.
macro_rules! host {
    ($($item:item)*) => {};
}

pub(crate) use {directive, host, kernel, parameter};

pub(crate) fn thread_x() -> i32 {
    machine::here().thread().0
}

pub(crate) fn thread_y() -> i32 {
    machine::here().thread().1
}

pub(crate) fn block_x() -> i32 {
    machine::here().block().0
}

pub(crate) fn block_y() -> i32 {
    machine::here().block().1
}

pub(crate) fn block_z() -> i32 {
    machine::here().block().2
}

pub(crate) fn block_width() -> i32 {
    machine::here().block_size().0
}

pub(crate) fn block_height() -> i32 {
    machine::here().block_size().1
}

pub(crate) fn grid_width() -> i32 {
    machine::here().grid_width()
}

pub(crate) fn grid_height() -> i32 {
    machine::here().grid_height()
}

#[track_caller]
pub(crate) unsafe fn barrier() {
    machine::here().wait(Pause::Block { flag: false });
}

#[track_caller]
pub(crate) unsafe fn barrier_or(flag: bool) -> bool {
    machine::here().wait(Pause::Block { flag })
}

#[track_caller]
pub(crate) fn warp_barrier() {
    machine::here().wait(Pause::Warp);
}

pub(crate) fn first_tap() -> usize {
    0
}

pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
    // `mul_add` calls the C library's, and that of mingw-w64 rounds several times.
    if cfg!(all(windows, target_env = "gnu")) { libm::fmaf(a, b, c) } else { a.mul_add(b, c) }
}

pub(crate) fn fma_in_place(a: f32, b: f32, c: f32) -> f32 {
    fma(a, b, c)
}

pub(crate) fn mul24(a: i32, b: i32) -> i32 {
    let low = |value: i32| i64::from(value << 8 >> 8);
    (low(a) * low(b)) as i32
}

pub(crate) fn opaque(value: i32) -> i32 {
    value
}

pub(crate) fn keep_rolled() {}

pub(crate) fn mul_wide(a: i32, b: i32) -> i64 {
    i64::from(a) * i64::from(b)
}

#[track_caller]
pub(crate) unsafe fn load(base: *const f32, index: usize) -> f32 {
    let [word] = machine::here().load(base.wrapping_add(index).addr(), Via::ReadOnly);
    f32::from_bits(word)
}

#[track_caller]
pub(crate) unsafe fn load2(base: *const f32, index: usize) -> [f32; 2] {
    machine::here().load(base.wrapping_add(index).addr(), Via::ReadOnly).map(f32::from_bits)
}

#[track_caller]
pub(crate) unsafe fn reload(base: *const f32, index: usize) -> f32 {
    let [word] = machine::here().load(base.wrapping_add(index).addr(), Via::Plain);
    f32::from_bits(word)
}

#[track_caller]
pub(crate) unsafe fn reload2(base: *const f32, index: usize) -> [f32; 2] {
    machine::here().load(base.wrapping_add(index).addr(), Via::Plain).map(f32::from_bits)
}

#[track_caller]
pub(crate) unsafe fn store(base: *mut f32, index: usize, value: f32) {
    machine::here().store(base.wrapping_add(index).addr(), [value.to_bits()]);
}

#[track_caller]
pub(crate) unsafe fn store_run<const PX: usize>(base: *mut f32, index: usize, values: [f32; PX]) {
    machine::here().store(base.wrapping_add(index).addr(), values.map(f32::to_bits));
}

#[track_caller]
pub(crate) unsafe fn load_u8(at: u64) -> u32 {
    machine::here().load_part::<1>(at as usize, Via::ReadOnly)
}

pub(crate) unsafe fn load_u8_if(there: bool, at: u64) -> u32 {
    // SAFETY: as the caller promised if `there` is true.
    if there { unsafe { load_u8(at) } } else { 0 }
}

#[track_caller]
pub(crate) unsafe fn load_u16(at: u64) -> u32 {
    machine::here().load_part::<2>(at as usize, Via::ReadOnly)
}

#[track_caller]
pub(crate) unsafe fn load_words<const N: usize>(at: u64) -> [u32; N] {
    const { assert!(N == 1 || N == 2 || N == 4) }
    machine::here().load(at as usize, Via::ReadOnly)
}

#[track_caller]
pub(crate) unsafe fn load_f64(at: u64) -> f64 {
    wide(machine::here().load(at as usize, Via::ReadOnly))
}

#[track_caller]
pub(crate) unsafe fn reload_word(at: u64) -> u32 {
    let [word] = machine::here().load(at as usize, Via::Plain);
    word
}

#[track_caller]
pub(crate) unsafe fn reload_small<const BYTES: usize>(at: u64) -> u32 {
    machine::here().load_part::<BYTES>(at as usize, Via::Plain)
}

#[track_caller]
pub(crate) unsafe fn atomic_add(at: u64, value: u32) -> u32 {
    machine::here().add(at as usize, value)
}

#[track_caller]
pub(crate) unsafe fn store_u8(at: u64, value: u32) {
    machine::here().store_part::<1>(at as usize, value);
}

#[track_caller]
pub(crate) unsafe fn store_u16(at: u64, value: u32) {
    machine::here().store_part::<2>(at as usize, value);
}

#[track_caller]
pub(crate) unsafe fn store_words<const N: usize>(at: u64, words: [u32; N]) {
    const { assert!(N == 1 || N == 2 || N == 4) }
    machine::here().store(at as usize, words);
}

#[track_caller]
pub(crate) unsafe fn stream_words<const N: usize>(at: u64, words: [u32; N]) {
    const { assert!(N == 1 || N == 4) }
    machine::here().store(at as usize, words);
}

#[track_caller]
pub(crate) unsafe fn exchange(word: u32, apart: u32) -> u32 {
    machine::here().exchanged(word, apart)
}

#[track_caller]
pub(crate) unsafe fn ballot(yes: bool) -> u32 {
    machine::here().ballot(yes)
}

#[track_caller]
pub(crate) unsafe fn mma(sums: [i32; 4], a: [u32; 4], b: [u32; 2]) -> [i32; 4] {
    machine::here().product(sums, a, b, |a, b| i32::from(a) * i32::from(b as i8))
}

#[track_caller]
pub(crate) unsafe fn mma_signed(sums: [i32; 4], a: [u32; 4], b: [u32; 2]) -> [i32; 4] {
    machine::here().product(sums, a, b, |a, b| i32::from(a as i8) * i32::from(b))
}

/// The number with these two halves, the lower one first.
fn wide([low, high]: [u32; 2]) -> f64 {
    f64::from_bits(u64::from(high) << 32 | u64::from(low))
}

pub(crate) fn permute<const SELECTOR: u32>(a: u32, b: u32) -> u32 {
    // A digit of 8 or more would replicate a sign bit, which no kernel uses.
    const { assert!(SELECTOR & !0x7777 == 0) }
    permute_by(a, b, SELECTOR)
}

pub(crate) fn permute_by(a: u32, b: u32, selector: u32) -> u32 {
    let both = u64::from(b) << 32 | u64::from(a);
    u32::from_le_bytes([0, 4, 8, 12].map(|digit| (both >> (8 * (selector >> digit & 7))) as u8))
}

pub(crate) fn funnel(low: u32, high: u32, bits: u32) -> u32 {
    ((u64::from(high) << 32 | u64::from(low)) >> (bits & 31)) as u32
}

pub(crate) fn dot(bytes: u32, signed: u32, sum: i32) -> i32 {
    let pairs = bytes.to_le_bytes().into_iter().zip(signed.to_le_bytes());
    pairs.fold(sum, |sum, (byte, signed)| {
        sum.wrapping_add(i32::from(byte) * i32::from(signed as i8))
    })
}

/// Has no visible effect.
pub(crate) fn prefetch(_: u64) {}

pub(crate) fn pack_bytes(high: i32, low: i32, above: u32) -> u32 {
    let byte = |value: i32| value.clamp(0, 255) as u32;
    above << 16 | byte(high) << 8 | byte(low)
}

pub(crate) fn pack_halves(high: i32, low: i32) -> u32 {
    let half = |value: i32| value.clamp(0, 65535) as u32;
    half(high) << 16 | half(low)
}

pub(crate) fn half_to_f32(bits: u32) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15 & 1, bits >> 10 & 31, bits & 0x3ff);
    let size = match (exponent, fraction) {
        (0, _) => fraction as f32 * (-24f32).exp2(),
        (31, 0) => f32::INFINITY,
        // The GPU has a single NaN, without a sign.
        (31, _) => return f32::from_bits(0x7fff_ffff),
        _ => f32::from_bits((exponent + 127 - 15) << 23 | fraction << 13),
    };
    if sign == 0 { size } else { -size }
}

pub(crate) fn f32_to_half(value: f32) -> u32 {
    let (sign, size) = (value.to_bits() >> 31 << 15, value.abs());
    if size.is_nan() {
        return 0x7fff;
    }
    // From here on the nearest number is infinity.
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    // Numbers below 2^-14 are multiples of 2^-24; a carry makes the smallest normal number.
    if size < (-14f32).exp2() {
        return sign | (size * 24f32.exp2()).round_ties_even() as u32;
    }
    let bits = size.to_bits();
    // Drops 13 bits of the fraction; a carry goes into the exponent.
    sign | (((bits + 0xfff + (bits >> 13 & 1)) >> 13) - ((127 - 15) << 10))
}

pub(crate) fn f32_to_halves(high: f32, low: f32) -> u32 {
    f32_to_half(high) << 16 | f32_to_half(low)
}

pub(crate) fn rounded(four: [f32; 4]) -> ([u32; 2], u32) {
    let halves = four.map(|number| f32_to_half(number.max(0.0)));
    (
        [halves[1] << 16 | halves[0], halves[3] << 16 | halves[2]],
        u32::from_le_bytes(halves.map(|half| half.min(255) as u8)),
    )
}

pub(crate) fn sqrt(value: f32) -> f32 {
    value.sqrt()
}

/// Off by as much as the GPU's result may be.
pub(crate) fn sqrt_near(value: f32) -> f32 {
    value.sqrt().next_down().max(0.0)
}

pub(crate) fn mul_f64(a: f64, b: f64) -> f64 {
    a * b
}

pub(crate) fn add_f64(a: f64, b: f64) -> f64 {
    a + b
}

pub(crate) fn fma_f64(a: f64, b: f64, c: f64) -> f64 {
    // As `fma`.
    if cfg!(all(windows, target_env = "gnu")) { libm::fma(a, b, c) } else { a.mul_add(b, c) }
}

pub(crate) fn sqrt_f64(value: f64) -> f64 {
    value.sqrt()
}

pub(crate) fn wait_for_kernels_ahead() {
    machine::here().wait_for_kernels_ahead();
}

/// Does nothing: here the next kernel runs after this one has ended.
pub(crate) fn let_next_kernel_begin() {}

#[track_caller]
pub(crate) fn copies_commit() {
    machine::here().copies_commit();
}

#[track_caller]
pub(crate) fn copies_wait<const N: i32>() {
    machine::here().copies_wait(N as usize);
}

/// The block's dynamic shared memory from an element on, as an array of f32.
#[derive(Clone, Copy)]
pub(crate) struct Shared(i32);

impl Shared {
    pub(crate) fn dynamic() -> Self {
        Self(0)
    }

    pub(crate) fn in_register(self) -> Self {
        self
    }

    pub(crate) fn after(self, first: i32) -> Self {
        Self(self.0 + first)
    }

    #[track_caller]
    pub(crate) unsafe fn load(self, index: i32) -> f32 {
        let [word] = machine::here().load_shared(self.0 + index);
        f32::from_bits(word)
    }

    #[track_caller]
    pub(crate) unsafe fn load2(self, index: i32) -> [f32; 2] {
        machine::here().load_shared(self.0 + index).map(f32::from_bits)
    }

    #[track_caller]
    pub(crate) unsafe fn load4(self, index: i32) -> [f32; 4] {
        machine::here().load_shared(self.0 + index).map(f32::from_bits)
    }

    #[track_caller]
    pub(crate) unsafe fn load_word(self, index: i32) -> u32 {
        let [word] = machine::here().load_shared(self.0 + index);
        word
    }

    #[track_caller]
    pub(crate) unsafe fn load_matrices(self, byte: i32) -> [u32; 4] {
        machine::here().matrices(4 * self.0 + byte)
    }

    #[track_caller]
    pub(crate) unsafe fn copy4(self, index: i32, from: *const f32) {
        machine::here().copy::<4>(self.0 + index, from.addr());
    }

    #[track_caller]
    pub(crate) unsafe fn copy1(self, index: i32, from: *const f32) {
        machine::here().copy::<1>(self.0 + index, from.addr());
    }

    #[track_caller]
    pub(crate) unsafe fn store(self, index: i32, value: f32) {
        machine::here().store_shared(self.0 + index, [value.to_bits()]);
    }

    #[track_caller]
    pub(crate) unsafe fn store2(self, index: i32, values: [f32; 2]) {
        machine::here().store_shared(self.0 + index, values.map(f32::to_bits));
    }

    #[track_caller]
    pub(crate) unsafe fn store4(self, index: i32, values: [f32; 4]) {
        machine::here().store_shared(self.0 + index, values.map(f32::to_bits));
    }

    #[track_caller]
    pub(crate) unsafe fn store_u8(self, byte: i32, value: u32) {
        machine::here().store_shared_part::<1>(4 * self.0 + byte, value);
    }

    #[track_caller]
    pub(crate) unsafe fn store_u16(self, byte: i32, value: u32) {
        machine::here().store_shared_part::<2>(4 * self.0 + byte, value);
    }
}

/// A by-value array parameter of the kernel; the macro `parameter!` makes it.
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    first: *const f32,
    len: usize,
}

impl Parameter {
    pub(crate) fn new<T>(value: &T) -> Self {
        Self { first: (&raw const *value).cast(), len: size_of::<T>() / 4 }
    }

    pub(crate) fn advanced(self, count: usize) -> Self {
        Self { first: self.first.wrapping_add(count), len: self.len.saturating_sub(count) }
    }

    #[track_caller]
    pub(crate) unsafe fn load(self, index: usize) -> f32 {
        if index >= self.len {
            machine::here()
                .fault(format!("reads tap {index} of a parameter that holds {}", self.len));
        }
        // SAFETY: inside the parameter, which the kernel holds.
        unsafe { *self.first.add(index) }
    }
}

/// A texture object over one plane of f32 pixels: the address of the emulated driver's object.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Texture(u64);

impl Texture {
    #[track_caller]
    pub(crate) unsafe fn fetch(self, x: f32, y: f32) -> f32 {
        // SAFETY: the driver made the texture and keeps it until the host destroys it, which
        // happens only when the stream is done.
        let texture = unsafe { &*(self.0 as usize as *const crate::texture::Texture) };
        match texture.at(x, y) {
            Ok(address) => {
                let [word] = machine::here().load(address, Via::ReadOnly);
                f32::from_bits(word)
            }
            Err(outside) => outside,
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn halves() {
        for bits in 0..1 << 16 {
            let (value, expected) = (half_to_f32(bits), f16::from_bits(bits as u16).to_f32());
            assert!(
                value.to_bits() == expected.to_bits() || value.is_nan() && expected.is_nan(),
                "{bits:#x}: {value}"
            );
            assert_eq!(half_to_f32(bits | 0xabcd_0000).to_bits(), value.to_bits());
        }
        // Each half-precision number, the midpoint of each two, and the f32 neighbours of both.
        let halves = (0..=u16::MAX).map(|bits| f16::from_bits(bits).to_f32().to_bits());
        let between = (0..=u16::MAX)
            .map(|bits| f16::from_bits(bits).to_f32().to_bits().wrapping_add(1 << 12));
        let small = (0..1 << 12).map(|i| (i as f32 * (-26f32).exp2()).to_bits());
        let spread = (0..1 << 20).map(|i: u32| i.wrapping_mul(0x9E37_79B1));
        for bits in halves
            .chain(between)
            .chain(small)
            .chain(spread)
            .flat_map(|bits| bits.wrapping_sub(1)..=bits.saturating_add(1))
        {
            let value = f32::from_bits(bits);
            let expected =
                if value.is_nan() { 0x7fff } else { u32::from(f16::from_f32(value).to_bits()) };
            assert_eq!(f32_to_half(value), expected, "{value:e}");
        }
    }

    /// Rounding by subnormal numbers of f16 equals rounding to integers.
    #[test]
    fn rounded_to_integers() {
        let sums = (-4000..4200).flat_map(|i| {
            let sum = i as f32 / 4.0;
            [sum.next_down(), sum, sum.next_up()]
        });
        for sum in sums.chain([1e4, 1e6, -1e6]) {
            let number = sum * (-24f32).exp2();
            let (halves, bytes) = rounded([number, 0.0, number, (-24f32).exp2()]);
            let expected = sum.round_ties_even().max(0.0);
            if expected <= 1024.0 {
                assert_eq!(halves[0], expected as u32, "{sum}");
            }
            let byte = expected.min(255.0) as u32;
            assert_eq!(bytes, byte | byte << 16 | 1 << 24, "{sum}");
        }
    }

    #[test]
    fn permuted() {
        let (a, b) = (0x4433_2211, 0x8877_6655);
        assert_eq!(permute::<0x3210>(a, b), a);
        assert_eq!(permute::<0x7654>(a, b), b);
        assert_eq!(permute::<0x0246>(a, b), 0x1133_5577);
        assert_eq!(permute::<0x6050>(a, b), 0x7711_6611);
        assert_eq!([0, 8, 24, 32].map(|bits| funnel(a, b, bits)), [a, 0x5544_3322, 0x7766_5544, a]);
        assert_eq!(dot(0x0102_03ff, 0x02ff_007f, -5), 0xff * 0x7f - 2 + 2 - 5);
    }
}
