//! SIMD on the CPU: the choice of an instruction set, and the vector operations that the engine
//! uses.

#![expect(
    clippy::needless_range_loop,
    reason = "an index says which register; iterators do not always leave them there"
)]

use std::ops::{Add, Mul, Sub};
use std::sync::OnceLock;

use crate::{Error, Result};

/// A set of vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// Instructions that every processor of the architecture has.
    Portable,
    /// AVX2, FMA, F16C, BMI1 and POPCNT: 16 registers of 8 floats.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512: 32 registers of 16 floats.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// Advanced SIMD: 32 registers of 4 floats.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

/// From the slowest to the fastest.
const NAMES: &[(&str, Isa)] = &[
    ("portable", Isa::Portable),
    #[cfg(target_arch = "x86_64")]
    ("avx2", Isa::Avx2),
    #[cfg(target_arch = "x86_64")]
    ("avx512", Isa::Avx512),
    #[cfg(target_arch = "aarch64")]
    ("neon", Isa::Neon),
];

impl Isa {
    /// The environment variable that forces a set instead of the fastest, for tests and
    /// measurements. All sets give the same bits.
    const VARIABLE: &str = "APRON_ISA";

    /// The set that the environment names, or the fastest that the processor has.
    pub(crate) fn chosen() -> Result<Self> {
        static FORCED: OnceLock<Option<String>> = OnceLock::new();
        let forced = FORCED.get_or_init(|| {
            std::env::var_os(Self::VARIABLE).map(|name| name.to_string_lossy().into_owned())
        });
        match forced {
            None => Ok(Self::fastest()),
            Some(name) => Self::named(name),
        }
    }

    pub(crate) fn fastest() -> Self {
        Self::present().last().map_or(Self::Portable, |&(_, isa)| isa)
    }

    pub(crate) fn named(name: &str) -> Result<Self> {
        Self::present().find(|(known, _)| *known == name).map(|&(_, isa)| isa).ok_or_else(|| {
            Error::Parameter {
                name: Self::VARIABLE,
                value: name.to_owned(),
                expected: format!(
                    "one of the instruction sets of this processor: {}",
                    Self::present().map(|&(name, _)| name).collect::<Vec<_>>().join(", ")
                ),
            }
        })
    }

    /// Every set that the processor supports.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::present().map(|&(_, isa)| isa)
    }

    fn present() -> impl DoubleEndedIterator<Item = &'static (&'static str, Self)> {
        NAMES.iter().filter(|(_, isa)| isa.is_present())
    }

    fn is_present(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_present()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
        }
    }

    /// Runs `work` with these instructions. An `Isa` other than the portable one comes only from
    /// [`Isa::present`], by [`Isa::chosen`], [`Isa::fastest`] or [`Isa::named`]. So the processor
    /// supports these instructions.
    #[inline]
    pub(crate) fn run<W: Vectorized>(self, work: W) -> W::Output {
        match self {
            Self::Portable => work.run::<[f32; 8], 1, 2>(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has the instructions: see this function's doc.
            Self::Avx2 => unsafe { x86::avx2(work) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Self::Avx512 => unsafe { x86::avx512(work) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Self::Neon => unsafe { arm::neon(work) },
        }
    }
}

/// Code that is compiled for each instruction set. Every implementation and every function it calls
/// is `#[inline(always)]`.
pub(crate) trait Vectorized {
    type Output;

    /// `V` is the number of adjacent vectors in registers for several rows of sums, `W` for one
    /// row.
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> Self::Output;
}

/// A vector of floats of one type.
///
/// # Safety
/// Its methods are called in a [`Vectorized`] only, so that the processor has the instructions.
pub(crate) unsafe trait Vector: Copy {
    type Float: Float;

    /// Floats per vector.
    const LEN: usize;

    /// A vector of `LEN` integers.
    type Ints: Copy;

    /// Vectors of integers that [`Vector::store_bytes`] stores together.
    const GROUP: usize;

    /// # Safety
    /// See the trait.
    unsafe fn splat(value: Self::Float) -> Self;
    /// # Safety
    /// `from` points to `LEN` floats.
    unsafe fn load(from: *const Self::Float) -> Self;
    /// Loads `V` adjacent vectors from `line`, starting at `offset`. AVX-512 combines each from two
    /// vectors at multiples of `LEN`, so that no load crosses a cache line.
    ///
    /// # Safety
    /// `line` points to `offset + (V + 1) * LEN` floats.
    #[inline(always)]
    unsafe fn load_shifted<const V: usize>(line: *const Self::Float, offset: usize) -> [Self; V] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut values = [Self::splat(Self::Float::default()); V];
            for v in 0..V {
                values[v] = Self::load(line.add(offset + v * Self::LEN));
            }
            values
        }
    }
    /// Prefetches a cache line; any address is allowed.
    #[inline(always)]
    fn prefetch(address: *const u8) {
        let _ = address;
    }
    /// # Safety
    /// `to` points to `LEN` floats.
    unsafe fn store(self, to: *mut Self::Float);
    /// `self * factor + sum`, rounded once.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self;
    /// # Safety
    /// See the trait.
    unsafe fn add(self, other: Self) -> Self;
    /// The nearest integers, half to even, of values below 2^31.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn nearest(self) -> Self::Ints;
    /// The value minus the nearest integer.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn rest(self, nearest: Self::Ints) -> Self;
    /// The maximum of `self` and `|other|`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn max_abs(self, other: Self) -> Self;
    /// A bit for each lane with `|self| >= limit`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn at_least(self, limit: Self) -> u32;
    /// Stores integers as bytes, saturated.
    ///
    /// # Safety
    /// `ints` has `GROUP` vectors, and `to` points to `GROUP * LEN` bytes.
    unsafe fn store_bytes(ints: &[Self::Ints], to: *mut u8);
}

/// A vector of f32, with the types and operations of its instruction set.
///
/// # Safety
/// As for [`Vector`].
pub(crate) unsafe trait Lanes: Vector<Float = f32> {
    /// A vector of f64 in a register of the same size.
    type Wide: Vector<Float = f64>;

    /// A vector of unsigned 16-bit integers.
    type Words: Words;

    /// A vector of 32-bit integers, as many as floats.
    type Pairs: Pairs;

    /// Whether the instruction set has a fused multiply-add.
    const FUSES: bool = true;

    /// Signed integers, rounded to f32.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn of_ints(ints: Self::Pairs) -> Self;

    /// Converts bytes to a vector of f64, one for each lane.
    ///
    /// # Safety
    /// `from` points to `Wide::LEN` bytes.
    #[inline(always)]
    unsafe fn widen_bytes(from: *const u8) -> Self::Wide {
        let mut values = [0.0; 8];
        // SAFETY: the caller's promise; no vector of f64 has more than 8 lanes.
        unsafe {
            for lane in 0..Self::Wide::LEN {
                values[lane] = f64::from(*from.add(lane));
            }
            Self::Wide::load(values.as_ptr())
        }
    }

    /// Two weighted sums over 16 columns of bytes, one for each of the two sets of weights. The
    /// bytes at `middle` are multiplied by `weights[0]`. The bytes at both pointers of `beside[k]`
    /// are added, then multiplied by `weights[k + 1]`. `None` where the instruction set has no such
    /// multiply-add.
    ///
    /// # Safety
    /// Each pointer points to 16 bytes. No sum of two products and no total overflows 32 bits.
    #[inline(always)]
    unsafe fn weigh<const K: usize>(
        middle: *const u8,
        beside: &[[*const u8; 2]; K],
        weights: &[[[i16; 16]; 2]],
    ) -> Option<[u32; 2]> {
        let _ = (middle, beside, weights);
        None
    }
}

/// A vector of unsigned 16-bit integers, or of bytes. The low byte of integer `i` is byte `2 * i`,
/// the high byte is byte `2 * i + 1`.
///
/// # Safety
/// As for [`Vector`].
pub(crate) unsafe trait Words: Copy {
    /// Integers per vector, at most 32.
    const LEN: usize;

    /// # Safety
    /// See the trait.
    unsafe fn splat(value: u16) -> Self;
    /// # Safety
    /// `from` points to `LEN` integers.
    unsafe fn load(from: *const u16) -> Self;
    /// # Safety
    /// `to` points to `LEN` integers.
    unsafe fn store(self, to: *mut u16);
    /// # Safety
    /// `from` points to `2 * LEN` bytes.
    unsafe fn load_bytes(from: *const u8) -> Self;
    /// # Safety
    /// `to` points to `2 * LEN` bytes.
    unsafe fn store_bytes(self, to: *mut u8);
    /// The sum, modulo 2^16.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn add(self, other: Self) -> Self;
    /// Half of the sum, rounded half up.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn average(self, other: Self) -> Self;
    /// The product divided by 2^16, rounded down.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn high_product(self, other: Self) -> Self;
    /// The product, modulo 2^16.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn low_product(self, other: Self) -> Self;
    /// The difference, modulo 2^16.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn subtract(self, other: Self) -> Self;
    /// The minimum.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn least(self, other: Self) -> Self;
    /// The bytes at even positions, times 256.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn even(self) -> Self;
    /// The bytes at odd positions, times 256.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn odd(self) -> Self;
    /// The high bytes: those of `self` at even positions, those of `odd` at odd positions.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn upper_bytes(self, odd: Self) -> Self;
    /// The low bytes: those of `self` at even positions, those of `odd` at odd positions.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn lower_bytes(self, odd: Self) -> Self;
    /// A bit for each byte that is at most the byte of `limit`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn bytes_at_most(self, limit: Self) -> u64;
}

/// A vector of signed 32-bit integers, or of pairs of signed 16-bit integers.
///
/// # Safety
/// As for [`Vector`].
pub(crate) unsafe trait Pairs: Copy {
    /// Whether the processor has an instruction for [`Pairs::dot`].
    fn fuses() -> bool {
        false
    }
    /// # Safety
    /// See the trait.
    unsafe fn splat(value: u32) -> Self;
    /// # Safety
    /// `from` points to one vector of integers.
    unsafe fn load(from: *const u32) -> Self;
    /// # Safety
    /// `to` points to one vector of integers.
    unsafe fn store(self, to: *mut u32);
    /// `sum` plus both products of each pair, modulo 2^32. With `FUSED`, one instruction does all.
    ///
    /// # Safety
    /// See the trait, and the processor has that instruction.
    unsafe fn dot<const FUSED: bool>(self, other: Self, sum: Self) -> Self;
}

/// A floating-point type that the engine computes in.
pub(crate) trait Float:
    Copy
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Send
    + Sync
    + std::fmt::Debug
{
    /// A vector of this type, where `L` is the vector of f32.
    type Vector<L: Lanes>: Vector<Float = Self>;

    /// The nearest value.
    fn of(value: f64) -> Self;
    /// A value that is at most `bound` and close to it.
    fn below(bound: f64) -> Self;
    /// The values as f32, if this type is f32.
    fn as_floats(values: &mut [Self]) -> Option<&mut [f32]>;
    /// The nearest integer in 0 to 255, half to even; NaN becomes 0.
    fn byte(self) -> u8;
    /// The distance from the value, clamped to 0 to 255, to the nearest integer; NaN stays NaN.
    fn distance(self) -> Self;
    fn is_finite(self) -> bool;
    fn to_f32(self) -> f32;
}

/// Implements [`Float`]. A number in 0 to 255 plus `$shift` is rounded to an integer, half to even,
/// and the lowest byte of the sum's bits is that integer.
macro_rules! float {
    ($float:ty, $vector:ty, $shift:expr, $below:expr, $as_floats:expr) => {
        impl Float for $float {
            type Vector<L: Lanes> = $vector;

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as Self
            }

            fn below(bound: f64) -> Self {
                $below(bound)
            }

            #[inline(always)]
            fn as_floats(values: &mut [Self]) -> Option<&mut [f32]> {
                $as_floats(values)
            }

            #[inline(always)]
            fn byte(self) -> u8 {
                (self.max(0.0).min(255.0) + $shift).to_bits() as u8
            }

            #[inline(always)]
            fn distance(self) -> Self {
                (self.clamp(0.0, 255.0) - ((self.max(0.0).min(255.0) + $shift) - $shift)).abs()
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                self.abs() <= Self::MAX
            }

            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }
        }
    };
}

float!(
    f32,
    L,
    8_388_608.0,
    |bound| if f64::from(bound as f32) > bound { (bound as f32).next_down() } else { bound as f32 },
    Some
);
// `f64::next_down`, because the bound itself is rounded.
float!(f64, L::Wide, 4_503_599_627_370_496.0, f64::next_down, |_| None);

/// Declares methods of the vector traits by intrinsics.
macro_rules! methods {
    ($(fn $name:ident($($args:tt)*) -> $result:ty $body:block)*) => {
        $(
            #[inline(always)]
            #[allow(unused_unsafe, reason = "plain Rust needs none")]
            unsafe fn $name($($args)*) -> $result {
                // SAFETY: the body needs only the promises that the caller of this method makes.
                unsafe { $body }
            }
        )*
    };
}

// SAFETY: no special instructions are used. An array of floats has the alignment of a float.
unsafe impl Lanes for [f32; 8] {
    type Wide = [f64; 4];
    type Words = [u16; 16];
    type Pairs = [u32; 8];

    const FUSES: bool = false;

    methods! {
        fn of_ints(ints: [u32; 8]) -> Self { ints.map(|value| value as i32 as f32) }
    }
}

// SAFETY: as above.
unsafe impl<const N: usize> Pairs for [u32; N] {
    methods! {
        fn splat(value: u32) -> Self { [value; N] }
        fn load(from: *const u32) -> Self { from.cast::<Self>().read() }
        fn store(self, to: *mut u32) -> () { to.cast::<Self>().write(self) }
    }

    #[inline(always)]
    unsafe fn dot<const FUSED: bool>(self, other: Self, sum: Self) -> Self {
        let [low, high] = [|pair: u32| i32::from(pair as i16), |pair: u32| pair as i32 >> 16];
        each(|i| {
            let both = low(self[i]) * low(other[i]) + high(self[i]) * high(other[i]);
            sum[i].wrapping_add(both as u32)
        })
    }
}

// SAFETY: as above.
unsafe impl Words for [u16; 16] {
    const LEN: usize = 16;

    methods! {
        fn splat(value: u16) -> Self { [value; 16] }
        fn load(from: *const u16) -> Self { from.cast::<Self>().read() }
        fn store(self, to: *mut u16) -> () { to.cast::<Self>().write(self) }
        fn load_bytes(from: *const u8) -> Self { from.cast::<Self>().read_unaligned().map(u16::from_le) }
        fn store_bytes(self, to: *mut u8) -> () { to.cast::<Self>().write_unaligned(self.map(u16::to_le)) }
        fn add(self, other: Self) -> Self { each(|i| self[i].wrapping_add(other[i])) }
        fn average(self, other: Self) -> Self { each(|i| ((u32::from(self[i]) + u32::from(other[i]) + 1) >> 1) as u16) }
        fn high_product(self, other: Self) -> Self { each(|i| ((u32::from(self[i]) * u32::from(other[i])) >> 16) as u16) }
        fn low_product(self, other: Self) -> Self { each(|i| self[i].wrapping_mul(other[i])) }
        fn subtract(self, other: Self) -> Self { each(|i| self[i].wrapping_sub(other[i])) }
        fn least(self, other: Self) -> Self { each(|i| self[i].min(other[i])) }
        fn even(self) -> Self { each(|i| self[i] << 8) }
        fn odd(self) -> Self { each(|i| self[i] & 0xff00) }
        fn upper_bytes(self, odd: Self) -> Self { each(|i| (self[i] >> 8) | (odd[i] & 0xff00)) }
        fn lower_bytes(self, odd: Self) -> Self { each(|i| (self[i] & 0xff) | (odd[i] << 8)) }
        fn bytes_at_most(self, limit: Self) -> u64 {
            (0..16).fold(0, |bits, i| {
                let [even, odd] = self[i].to_le_bytes();
                let [even_limit, odd_limit] = limit[i].to_le_bytes();
                bits | u64::from(even <= even_limit) << (2 * i) | u64::from(odd <= odd_limit) << (2 * i + 1)
            })
        }
    }
}

/// Implements [`Vector`] for arrays.
macro_rules! portable {
    ($float:ty, $len:expr, $mul_add:expr) => {
        // SAFETY: as above.
        unsafe impl Vector for [$float; $len] {
            type Float = $float;
            const LEN: usize = $len;
            type Ints = Self;
            const GROUP: usize = 1;

            methods! {
                fn splat(value: $float) -> Self { [value; $len] }
                fn load(from: *const $float) -> Self { from.cast::<Self>().read() }
                fn store(self, to: *mut $float) -> () { to.cast::<Self>().write(self) }
                fn mul_add(self, factor: Self, sum: Self) -> Self { each(|i| $mul_add(self[i], factor[i], sum[i])) }
                fn add(self, other: Self) -> Self { each(|i| self[i] + other[i]) }
                fn nearest(self) -> Self { each(|i| self[i].round_ties_even()) }
                fn rest(self, nearest: Self) -> Self { each(|i| self[i] - nearest[i]) }
                fn max_abs(self, other: Self) -> Self { each(|i| self[i].max(other[i].abs())) }
                fn at_least(self, limit: Self) -> u32 { (0..$len).map(|i| u32::from(self[i].abs() >= limit[i]) << i).sum() }
                fn store_bytes(ints: &[Self], to: *mut u8) -> () {
                    to.cast::<[u8; $len]>().write(ints[0].map(|value| value as u8))
                }
            }
        }
    };
}

portable!(f32, 8, f32::mul_add);

/// The C library's `fmaf`, which `f32::mul_add` calls outside code for FMA instructions. That of
/// mingw-w64 rounds several times, so this one takes its place.
#[cfg(all(windows, target_env = "gnu"))]
// SAFETY: the name is C's, and so are the signature and the result.
#[unsafe(no_mangle)]
extern "C" fn fmaf(value: f32, factor: f32, sum: f32) -> f32 {
    libm::fmaf(value, factor, sum)
}

// No result depends on whether an f64 sum is fused. Without an FMA instruction a fused multiply-add
// takes 100 times as long.
portable!(f64, 4, |value: f64, factor, sum| value * factor + sum);

#[inline(always)]
fn each<T, const N: usize>(lane: impl Fn(usize) -> T) -> [T; N] {
    std::array::from_fn(lane)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::*;

    use super::{Lanes, Pairs, Vector, Vectorized, Words};

    #[target_feature(enable = "avx2,fma,f16c,bmi1,popcnt")]
    pub(super) fn avx2<W: Vectorized>(work: W) -> W::Output {
        work.run::<__m256, 2, 8>()
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,popcnt")]
    pub(super) fn avx512<W: Vectorized>(work: W) -> W::Output {
        work.run::<__m512, 4, 8>()
    }

    /// [`Lanes::weigh`] by AVX2.
    ///
    /// # Safety
    /// As for [`Lanes::weigh`].
    #[inline(always)]
    unsafe fn weigh_256<const K: usize>(
        middle: *const u8,
        beside: &[[*const u8; 2]; K],
        weights: &[[[i16; 16]; 2]],
    ) -> [u32; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [_mm256_setzero_si256(); 2];
            let mut bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(middle.cast()));
            for k in 0..=K {
                if k > 0 {
                    let [above, below] = beside[k - 1];
                    let above = _mm256_cvtepu8_epi16(_mm_loadu_si128(above.cast()));
                    bytes = _mm256_add_epi16(
                        above,
                        _mm256_cvtepu8_epi16(_mm_loadu_si128(below.cast())),
                    );
                }
                for i in 0..2 {
                    let weights = _mm256_loadu_si256(weights[k][i].as_ptr().cast());
                    sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(bytes, weights));
                }
            }
            let both = _mm256_hadd_epi32(sums[0], sums[1]);
            let both =
                _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both));
            let both = _mm_cvtsi128_si64(_mm_hadd_epi32(both, both)) as u64;
            [both as u32, (both >> 32) as u32]
        }
    }

    // SAFETY: the methods' contracts are the intrinsics'.
    unsafe impl Lanes for __m256 {
        type Wide = __m256d;
        type Words = __m256i;
        type Pairs = __m256i;

        methods! {
            fn of_ints(ints: __m256i) -> Self { _mm256_cvtepi32_ps(ints) }
            fn widen_bytes(from: *const u8) -> __m256d {
                _mm256_cvtepi32_pd(_mm_cvtepu8_epi32(_mm_loadu_si32(from)))
            }
        }

        #[inline(always)]
        unsafe fn weigh<const K: usize>(
            middle: *const u8,
            beside: &[[*const u8; 2]; K],
            weights: &[[[i16; 16]; 2]],
        ) -> Option<[u32; 2]> {
            // SAFETY: the caller's promise.
            Some(unsafe { weigh_256(middle, beside, weights) })
        }
    }

    // SAFETY: as above.
    unsafe impl Vector for __m256 {
        type Float = f32;
        const LEN: usize = 8;
        type Ints = __m256i;
        const GROUP: usize = 2;

        #[inline(always)]
        fn prefetch(address: *const u8) {
            // SAFETY: a prefetch never faults and changes nothing that a program can observe.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
        }

        methods! {
            fn splat(value: f32) -> Self { _mm256_set1_ps(value) }
            fn load(from: *const f32) -> Self { _mm256_loadu_ps(from) }
            fn store(self, to: *mut f32) -> () { _mm256_storeu_ps(to, self) }
            fn mul_add(self, factor: Self, sum: Self) -> Self { _mm256_fmadd_ps(self, factor, sum) }
            fn add(self, other: Self) -> Self { _mm256_add_ps(self, other) }
            fn nearest(self) -> __m256i { _mm256_cvtps_epi32(self) }
            fn rest(self, nearest: __m256i) -> Self { _mm256_sub_ps(self, _mm256_cvtepi32_ps(nearest)) }
            fn max_abs(self, other: Self) -> Self { _mm256_max_ps(self, _mm256_andnot_ps(_mm256_set1_ps(-0.0), other)) }
            fn at_least(self, limit: Self) -> u32 {
                let size = _mm256_andnot_ps(_mm256_set1_ps(-0.0), self);
                _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(size, limit)) as u32
            }
            fn store_bytes(ints: &[__m256i], to: *mut u8) -> () {
                let words = _mm256_packs_epi32(ints[0], ints[1]);
                let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
                let bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
                _mm_storeu_si128(to.cast(), bytes)
            }
        }
    }

    // SAFETY: as above.
    unsafe impl Lanes for __m512 {
        type Wide = __m512d;
        type Words = __m512i;
        type Pairs = __m512i;

        methods! {
            fn of_ints(ints: __m512i) -> Self { _mm512_cvtepi32_ps(ints) }
            fn widen_bytes(from: *const u8) -> __m512d {
                _mm512_cvtepu64_pd(_mm512_cvtepu8_epi64(_mm_loadu_si64(from)))
            }
        }

        #[inline(always)]
        unsafe fn weigh<const K: usize>(
            middle: *const u8,
            beside: &[[*const u8; 2]; K],
            weights: &[[[i16; 16]; 2]],
        ) -> Option<[u32; 2]> {
            // SAFETY: the caller's promise.
            Some(unsafe { weigh_256(middle, beside, weights) })
        }
    }

    // SAFETY: as above.
    unsafe impl Vector for __m512 {
        type Float = f32;
        const LEN: usize = 16;
        type Ints = __m512i;
        const GROUP: usize = 4;

        #[inline(always)]
        fn prefetch(address: *const u8) {
            // SAFETY: a prefetch never faults and changes nothing that a program can observe.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
        }

        #[inline(always)]
        unsafe fn load_shifted<const V: usize>(line: *const f32, offset: usize) -> [Self; V] {
            // SAFETY: the caller's promise.
            unsafe {
                let line = line.add(offset / 16 * 16);
                let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
                let lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32((offset % 16) as i32));
                let mut values = [_mm512_setzero_ps(); V];
                let mut low = _mm512_loadu_ps(line);
                for v in 0..V {
                    let high = _mm512_loadu_ps(line.add((v + 1) * 16));
                    values[v] = _mm512_permutex2var_ps(low, lanes, high);
                    low = high;
                }
                values
            }
        }

        methods! {
            fn splat(value: f32) -> Self { _mm512_set1_ps(value) }
            fn load(from: *const f32) -> Self { _mm512_loadu_ps(from) }
            fn store(self, to: *mut f32) -> () { _mm512_storeu_ps(to, self) }
            fn mul_add(self, factor: Self, sum: Self) -> Self { _mm512_fmadd_ps(self, factor, sum) }
            fn add(self, other: Self) -> Self { _mm512_add_ps(self, other) }
            fn nearest(self) -> __m512i { _mm512_cvtps_epi32(self) }
            fn rest(self, _: __m512i) -> Self { _mm512_reduce_ps::<0>(self) }
            // 0b11: the greater magnitude; 0b10: clear the sign.
            fn max_abs(self, other: Self) -> Self { _mm512_range_ps::<0b10_11>(self, other) }
            fn at_least(self, limit: Self) -> u32 {
                u32::from(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(_mm512_abs_ps(self), limit))
            }
            fn store_bytes(ints: &[__m512i], to: *mut u8) -> () {
                // Both packs work within each 128-bit lane, so that the bytes of each vector end up
                // in four places.
                let low = _mm512_packs_epi32(ints[0], ints[1]);
                let high = _mm512_packs_epi32(ints[2], ints[3]);
                let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
                let bytes = _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
                _mm512_storeu_si512(to.cast(), bytes)
            }
        }
    }

    // SAFETY: as above.
    unsafe impl Vector for __m256d {
        type Float = f64;
        const LEN: usize = 4;
        type Ints = __m128i;
        const GROUP: usize = 2;

        methods! {
            fn splat(value: f64) -> Self { _mm256_set1_pd(value) }
            fn load(from: *const f64) -> Self { _mm256_loadu_pd(from) }
            fn store(self, to: *mut f64) -> () { _mm256_storeu_pd(to, self) }
            fn mul_add(self, factor: Self, sum: Self) -> Self { _mm256_fmadd_pd(self, factor, sum) }
            fn add(self, other: Self) -> Self { _mm256_add_pd(self, other) }
            fn nearest(self) -> __m128i { _mm256_cvtpd_epi32(self) }
            fn rest(self, nearest: __m128i) -> Self { _mm256_sub_pd(self, _mm256_cvtepi32_pd(nearest)) }
            fn max_abs(self, other: Self) -> Self { _mm256_max_pd(self, _mm256_andnot_pd(_mm256_set1_pd(-0.0), other)) }
            fn at_least(self, limit: Self) -> u32 {
                let size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), self);
                _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_GE_OQ>(size, limit)) as u32
            }
            fn store_bytes(ints: &[__m128i], to: *mut u8) -> () {
                let words = _mm_packs_epi32(ints[0], ints[1]);
                _mm_storel_epi64(to.cast(), _mm_packus_epi16(words, words))
            }
        }
    }

    // SAFETY: as above.
    unsafe impl Vector for __m512d {
        type Float = f64;
        const LEN: usize = 8;
        type Ints = __m256i;
        const GROUP: usize = 2;

        #[inline(always)]
        unsafe fn load_shifted<const V: usize>(line: *const f64, offset: usize) -> [Self; V] {
            // SAFETY: the caller's promise.
            unsafe {
                let line = line.add(offset / 8 * 8);
                let lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
                let lanes = _mm512_add_epi64(lanes, _mm512_set1_epi64((offset % 8) as i64));
                let mut values = [_mm512_setzero_pd(); V];
                let mut low = _mm512_loadu_pd(line);
                for v in 0..V {
                    let high = _mm512_loadu_pd(line.add((v + 1) * 8));
                    values[v] = _mm512_permutex2var_pd(low, lanes, high);
                    low = high;
                }
                values
            }
        }

        methods! {
            fn splat(value: f64) -> Self { _mm512_set1_pd(value) }
            fn load(from: *const f64) -> Self { _mm512_loadu_pd(from) }
            fn store(self, to: *mut f64) -> () { _mm512_storeu_pd(to, self) }
            fn mul_add(self, factor: Self, sum: Self) -> Self { _mm512_fmadd_pd(self, factor, sum) }
            fn add(self, other: Self) -> Self { _mm512_add_pd(self, other) }
            fn nearest(self) -> __m256i { _mm512_cvtpd_epi32(self) }
            fn rest(self, _: __m256i) -> Self { _mm512_reduce_pd::<0>(self) }
            // As for __m512.
            fn max_abs(self, other: Self) -> Self { _mm512_range_pd::<0b10_11>(self, other) }
            fn at_least(self, limit: Self) -> u32 {
                u32::from(_mm512_cmp_pd_mask::<_CMP_GE_OQ>(_mm512_abs_pd(self), limit))
            }
            fn store_bytes(ints: &[__m256i], to: *mut u8) -> () {
                let ints = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(ints[0]), ints[1]);
                _mm_storeu_si128(to.cast(), _mm512_cvtusepi32_epi8(_mm512_max_epi32(ints, _mm512_setzero_si512())))
            }
        }
    }

    /// Defines functions as one instruction each, result first. The compiler treats the intrinsics
    /// as several operations on wider integers. Where an operand is loop-invariant or has known
    /// bits, the compiler moves or drops some of these operations, and the single instruction is
    /// lost.
    macro_rules! instructions {
        ($($name:ident: $instruction:literal, $vector:ty, $register:ident, $features:literal;)*) => {
            $(
                #[inline]
                #[target_feature(enable = $features)]
                fn $name(a: $vector, b: $vector) -> $vector {
                    let result;
                    // SAFETY: the instruction reads and writes registers only.
                    unsafe {
                        asm!(concat!($instruction, " {}, {}, {}"), lateout($register) result, in($register) a,
                            in($register) b, options(pure, nomem, nostack, preserves_flags));
                    }
                    result
                }
            )*
        };
    }

    instructions! {
        high_product_256: "vpmulhuw", __m256i, ymm_reg, "avx2";
        average_256: "vpavgw", __m256i, ymm_reg, "avx2";
        high_product_512: "vpmulhuw", __m512i, zmm_reg, "avx512f,avx512bw";
        average_512: "vpavgw", __m512i, zmm_reg, "avx512f,avx512bw";
    }

    // SAFETY: as above.
    unsafe impl Pairs for __m256i {
        methods! {
            fn splat(value: u32) -> Self { _mm256_set1_epi32(value as i32) }
            fn load(from: *const u32) -> Self { _mm256_loadu_si256(from.cast()) }
            fn store(self, to: *mut u32) -> () { _mm256_storeu_si256(to.cast(), self) }
        }

        #[inline(always)]
        unsafe fn dot<const FUSED: bool>(self, other: Self, sum: Self) -> Self {
            // SAFETY: the caller's promise.
            unsafe { _mm256_add_epi32(sum, _mm256_madd_epi16(self, other)) }
        }
    }

    // SAFETY: as above.
    unsafe impl Pairs for __m512i {
        fn fuses() -> bool {
            is_x86_feature_detected!("avx512vnni")
        }

        methods! {
            fn splat(value: u32) -> Self { _mm512_set1_epi32(value as i32) }
            fn load(from: *const u32) -> Self { _mm512_loadu_si512(from.cast()) }
            fn store(self, to: *mut u32) -> () { _mm512_storeu_si512(to.cast(), self) }
        }

        #[inline(always)]
        unsafe fn dot<const FUSED: bool>(self, other: Self, sum: Self) -> Self {
            // SAFETY: the caller's promise.
            unsafe {
                match FUSED {
                    true => fused_dot_512(self, other, sum),
                    false => _mm512_add_epi32(sum, _mm512_madd_epi16(self, other)),
                }
            }
        }
    }

    /// `vpdpwssd` by inline assembly: the intrinsic cannot be inlined into code that is compiled
    /// without `avx512vnni`.
    ///
    /// # Safety
    /// The processor has AVX-512 VNNI.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn fused_dot_512(a: __m512i, b: __m512i, sum: __m512i) -> __m512i {
        let mut result = sum;
        // SAFETY: the instruction reads and writes registers only.
        unsafe {
            asm!("vpdpwssd {}, {}, {}", inlateout(zmm_reg) result, in(zmm_reg) a, in(zmm_reg) b,
                options(pure, nomem, nostack, preserves_flags));
        }
        result
    }

    // SAFETY: as above.
    unsafe impl Words for __m256i {
        const LEN: usize = 16;

        methods! {
            fn splat(value: u16) -> Self { _mm256_set1_epi16(value as i16) }
            fn load(from: *const u16) -> Self { _mm256_loadu_si256(from.cast()) }
            fn store(self, to: *mut u16) -> () { _mm256_storeu_si256(to.cast(), self) }
            fn load_bytes(from: *const u8) -> Self { _mm256_loadu_si256(from.cast()) }
            fn store_bytes(self, to: *mut u8) -> () { _mm256_storeu_si256(to.cast(), self) }
            fn add(self, other: Self) -> Self { _mm256_add_epi16(self, other) }
            fn average(self, other: Self) -> Self { average_256(self, other) }
            fn high_product(self, other: Self) -> Self { high_product_256(self, other) }
            fn low_product(self, other: Self) -> Self { _mm256_mullo_epi16(self, other) }
            fn subtract(self, other: Self) -> Self { _mm256_sub_epi16(self, other) }
            fn least(self, other: Self) -> Self { _mm256_min_epu16(self, other) }
            fn even(self) -> Self { _mm256_slli_epi16::<8>(self) }
            fn odd(self) -> Self { _mm256_and_si256(self, _mm256_set1_epi16(!0xff)) }
            fn upper_bytes(self, odd: Self) -> Self { _mm256_or_si256(_mm256_srli_epi16::<8>(self), Words::odd(odd)) }
            fn lower_bytes(self, odd: Self) -> Self {
                _mm256_or_si256(_mm256_and_si256(self, _mm256_set1_epi16(0xff)), Words::even(odd))
            }
            fn bytes_at_most(self, limit: Self) -> u64 {
                u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(self, limit), self)) as u32)
            }
        }
    }

    // SAFETY: as above.
    unsafe impl Words for __m512i {
        const LEN: usize = 32;

        methods! {
            fn splat(value: u16) -> Self { _mm512_set1_epi16(value as i16) }
            fn load(from: *const u16) -> Self { _mm512_loadu_si512(from.cast()) }
            fn store(self, to: *mut u16) -> () { _mm512_storeu_si512(to.cast(), self) }
            fn load_bytes(from: *const u8) -> Self { _mm512_loadu_si512(from.cast()) }
            fn store_bytes(self, to: *mut u8) -> () { _mm512_storeu_si512(to.cast(), self) }
            fn add(self, other: Self) -> Self { _mm512_add_epi16(self, other) }
            fn average(self, other: Self) -> Self { average_512(self, other) }
            fn high_product(self, other: Self) -> Self { high_product_512(self, other) }
            fn low_product(self, other: Self) -> Self { _mm512_mullo_epi16(self, other) }
            fn subtract(self, other: Self) -> Self { _mm512_sub_epi16(self, other) }
            fn least(self, other: Self) -> Self { _mm512_min_epu16(self, other) }
            fn even(self) -> Self { _mm512_slli_epi16::<8>(self) }
            fn odd(self) -> Self { _mm512_and_si512(self, _mm512_set1_epi16(!0xff)) }
            fn upper_bytes(self, odd: Self) -> Self { _mm512_or_si512(_mm512_srli_epi16::<8>(self), Words::odd(odd)) }
            fn lower_bytes(self, odd: Self) -> Self {
                _mm512_or_si512(_mm512_and_si512(self, _mm512_set1_epi16(0xff)), Words::even(odd))
            }
            fn bytes_at_most(self, limit: Self) -> u64 { _mm512_cmple_epu8_mask(self, limit) }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::{Lanes, Vector, Vectorized, Words};

    #[target_feature(enable = "neon")]
    pub(super) fn neon<W: Vectorized>(work: W) -> W::Output {
        work.run::<float32x4_t, 4, 8>()
    }

    // SAFETY: the methods' contracts are the intrinsics'.
    unsafe impl Lanes for float32x4_t {
        type Wide = float64x2_t;
        type Words = uint16x8_t;
        type Pairs = [u32; 4];

        methods! {
            fn of_ints(ints: [u32; 4]) -> Self { vcvtq_f32_s32(vreinterpretq_s32_u32(vld1q_u32(ints.as_ptr()))) }
        }
    }

    // SAFETY: as above.
    unsafe impl Vector for float32x4_t {
        type Float = f32;
        const LEN: usize = 4;
        type Ints = int32x4_t;
        const GROUP: usize = 4;

        methods! {
            fn splat(value: f32) -> Self { vdupq_n_f32(value) }
            fn load(from: *const f32) -> Self { vld1q_f32(from) }
            fn store(self, to: *mut f32) -> () { vst1q_f32(to, self) }
            fn mul_add(self, factor: Self, sum: Self) -> Self { vfmaq_f32(sum, self, factor) }
            fn add(self, other: Self) -> Self { vaddq_f32(self, other) }
            fn nearest(self) -> int32x4_t { vcvtnq_s32_f32(self) }
            fn rest(self, nearest: int32x4_t) -> Self { vsubq_f32(self, vcvtq_f32_s32(nearest)) }
            fn max_abs(self, other: Self) -> Self { vmaxq_f32(self, vabsq_f32(other)) }
            fn at_least(self, limit: Self) -> u32 {
                let bits = vld1q_u32([1, 2, 4, 8].as_ptr());
                vaddvq_u32(vandq_u32(vcageq_f32(self, limit), bits))
            }
            fn store_bytes(ints: &[int32x4_t], to: *mut u8) -> () {
                let low = vcombine_s16(vqmovn_s32(ints[0]), vqmovn_s32(ints[1]));
                let high = vcombine_s16(vqmovn_s32(ints[2]), vqmovn_s32(ints[3]));
                vst1q_u8(to, vcombine_u8(vqmovun_s16(low), vqmovun_s16(high)))
            }
        }
    }

    // SAFETY: as above.
    unsafe impl Vector for float64x2_t {
        type Float = f64;
        const LEN: usize = 2;
        type Ints = int64x2_t;
        const GROUP: usize = 4;

        methods! {
            fn splat(value: f64) -> Self { vdupq_n_f64(value) }
            fn load(from: *const f64) -> Self { vld1q_f64(from) }
            fn store(self, to: *mut f64) -> () { vst1q_f64(to, self) }
            fn mul_add(self, factor: Self, sum: Self) -> Self { vfmaq_f64(sum, self, factor) }
            fn add(self, other: Self) -> Self { vaddq_f64(self, other) }
            fn nearest(self) -> int64x2_t { vcvtnq_s64_f64(self) }
            fn rest(self, nearest: int64x2_t) -> Self { vsubq_f64(self, vcvtq_f64_s64(nearest)) }
            fn max_abs(self, other: Self) -> Self { vmaxq_f64(self, vabsq_f64(other)) }
            fn at_least(self, limit: Self) -> u32 {
                let bits = vld1q_u64([1, 2].as_ptr());
                vaddvq_u64(vandq_u64(vcageq_f64(self, limit), bits)) as u32
            }
            fn store_bytes(ints: &[int64x2_t], to: *mut u8) -> () {
                let low = vcombine_s32(vqmovn_s64(ints[0]), vqmovn_s64(ints[1]));
                let high = vcombine_s32(vqmovn_s64(ints[2]), vqmovn_s64(ints[3]));
                vst1_u8(to, vqmovun_s16(vcombine_s16(vqmovn_s32(low), vqmovn_s32(high))))
            }
        }
    }

    // SAFETY: as above.
    unsafe impl Words for uint16x8_t {
        const LEN: usize = 8;

        methods! {
            fn splat(value: u16) -> Self { vdupq_n_u16(value) }
            fn load(from: *const u16) -> Self { vld1q_u16(from) }
            fn store(self, to: *mut u16) -> () { vst1q_u16(to, self) }
            fn load_bytes(from: *const u8) -> Self { vreinterpretq_u16_u8(vld1q_u8(from)) }
            fn store_bytes(self, to: *mut u8) -> () { vst1q_u8(to, vreinterpretq_u8_u16(self)) }
            fn add(self, other: Self) -> Self { vaddq_u16(self, other) }
            fn average(self, other: Self) -> Self { vrhaddq_u16(self, other) }
            fn high_product(self, other: Self) -> Self {
                let low = vmull_u16(vget_low_u16(self), vget_low_u16(other));
                let high = vmull_high_u16(self, other);
                vuzp2q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high))
            }
            fn low_product(self, other: Self) -> Self { vmulq_u16(self, other) }
            fn subtract(self, other: Self) -> Self { vsubq_u16(self, other) }
            fn least(self, other: Self) -> Self { vminq_u16(self, other) }
            fn even(self) -> Self { vshlq_n_u16::<8>(self) }
            fn odd(self) -> Self { vandq_u16(self, vdupq_n_u16(0xff00)) }
            fn upper_bytes(self, odd: Self) -> Self { vorrq_u16(vshrq_n_u16::<8>(self), Words::odd(odd)) }
            fn lower_bytes(self, odd: Self) -> Self {
                vorrq_u16(vandq_u16(self, vdupq_n_u16(0xff)), Words::even(odd))
            }
            fn bytes_at_most(self, limit: Self) -> u64 {
                let less = vcleq_u8(vreinterpretq_u8_u16(self), vreinterpretq_u8_u16(limit));
                let bits = vandq_u8(less, vld1q_u8([1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128].as_ptr()));
                u64::from(vaddv_u8(vget_low_u8(bits))) | u64::from(vaddv_u8(vget_high_u8(bits))) << 8
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of an exact product and a number, rounded once: in f64 to odd, then to nearest.
    fn rounded_once(value: f32, factor: f32, sum: f32) -> f32 {
        let (product, sum) = (f64::from(value) * f64::from(factor), f64::from(sum));
        let total = product + sum;
        let added = total - product;
        let error = (product - (total - added)) + (sum - added);
        let odd = match total.to_bits() & 1 {
            0 if error > 0.0 => total.next_up(),
            0 if error < 0.0 => total.next_down(),
            _ => total,
        };
        odd as f32
    }

    #[test]
    fn portable_sums_are_rounded_once() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 32) as u32
        };
        for _ in 0..100_000 {
            // Any sign and fraction; sums are 2^-30 to 2^30 times the product. Few bits make ties.
            let [value, factor, sum] = [0, 0, random() as i32 % 30].map(|power| {
                let keep = if random() % 2 == 0 { u32::MAX } else { 0xffff_0000 };
                f32::from_bits((random() & 0x807f_ffff & keep) | (127 << 23)) * 2f32.powi(power)
            });
            let result = value.mul_add(factor, sum);
            assert_eq!(result, rounded_once(value, factor, sum), "{value} * {factor} + {sum}");
        }
    }

    #[test]
    fn an_unknown_set_is_refused_by_name() {
        let error = Isa::named("sse9").unwrap_err().to_string();
        assert!(error.contains("sse9") && error.contains("portable"), "{error}");
        for &(name, isa) in Isa::present() {
            assert_eq!(Isa::named(name).unwrap(), isa);
        }
    }
}
