//! The processor's vectors: the choice of an instruction set, and the operations that the engine uses.

#![expect(
    clippy::needless_range_loop,
    reason = "an index says which register; iterators do not always leave them there"
)]

use std::sync::OnceLock;

use crate::{Error, Result};

/// A set of vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// Instructions that every processor of the architecture has.
    Portable,
    /// AVX2 and FMA: 16 registers of 8 floats.
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
    /// The environment variable that names the set to use instead of the fastest; for tests and measurements, as all
    /// give the same bits.
    const VARIABLE: &str = "APRON_ISA";

    /// The set that the environment names, or the fastest that the processor has.
    pub(crate) fn chosen() -> Result<Self> {
        static FORCED: OnceLock<Option<String>> = OnceLock::new();
        let forced =
            FORCED.get_or_init(|| std::env::var_os(Self::VARIABLE).map(|name| name.to_string_lossy().into_owned()));
        match forced {
            None => Ok(Self::fastest()),
            Some(name) => Self::named(name),
        }
    }

    pub(crate) fn fastest() -> Self {
        Self::present().last().map_or(Self::Portable, |&(_, isa)| isa)
    }

    fn named(name: &str) -> Result<Self> {
        Self::present().find(|(known, _)| *known == name).map(|&(_, isa)| isa).ok_or_else(|| Error::Parameter {
            name: Self::VARIABLE,
            value: name.to_owned(),
            expected: format!(
                "this processor has {}",
                Self::present().map(|&(name, _)| name).collect::<Vec<_>>().join(", ")
            ),
        })
    }

    fn present() -> impl DoubleEndedIterator<Item = &'static (&'static str, Self)> {
        NAMES.iter().filter(|(_, isa)| isa.is_present())
    }

    fn is_present(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
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

    /// Runs some work with these instructions. An `Isa` other than the portable one exists only where the processor has
    /// it: [`Isa::chosen`] and [`Isa::fastest`] are the only ways to get one.
    #[inline]
    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            Self::Portable => work.run::<[f32; 8], 1, 2>(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has the instructions, see above.
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

/// Code that is compiled for each instruction set. Every implementation is `#[inline(always)]`, and so is all that it calls.
pub(crate) trait Work {
    type Output;

    /// The registers hold `V` adjacent vectors for several rows of sums, or `W` for a single row.
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> Self::Output;
}

/// A vector of f32.
///
/// # Safety
/// Its methods are called in a [`Work`] only, so that the processor has the instructions.
pub(crate) unsafe trait Lanes: Copy {
    /// Floats in it.
    const LEN: usize;

    /// A vector of as many integers.
    type Ints: Copy;

    /// Vectors of integers that are stored together.
    const GROUP: usize;

    /// # Safety
    /// See the trait.
    unsafe fn splat(value: f32) -> Self;
    /// # Safety
    /// `from` points to `LEN` floats.
    unsafe fn load(from: *const f32) -> Self;
    /// Loads adjacent vectors of a line, starting at `offset`. Where it is faster, combines them from vectors at multiples of `LEN`,
    /// which lie in one cache line each.
    ///
    /// # Safety
    /// `line` points to `offset + (V + 1) * LEN` floats.
    #[inline(always)]
    unsafe fn load_shifted<const V: usize>(line: *const f32, offset: usize) -> [Self; V] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut values = [Self::splat(0.0); V];
            for v in 0..V {
                values[v] = Self::load(line.add(offset + v * Self::LEN));
            }
            values
        }
    }
    /// Fetches a cache line that is needed soon, if there is such an address.
    #[inline(always)]
    fn prefetch(address: *const u8) {
        let _ = address;
    }
    /// # Safety
    /// `to` points to `LEN` floats.
    unsafe fn store(self, to: *mut f32);
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
    /// The difference between a value and the nearest integer.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn rest(self, nearest: Self::Ints) -> Self;
    /// The greater of `self` and of `other`'s magnitude.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn max_abs(self, other: Self) -> Self;
    /// A bit for each lane whose magnitude is at least `limit`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn at_least(self, limit: Self) -> u32;
    /// Adds each byte times its factor to its sum.
    ///
    /// # Safety
    /// See the trait.
    #[inline(always)]
    unsafe fn add_products(sums: &mut [f64; 16], factors: &[f64; 16], bytes: &[u8; 16]) {
        for lane in 0..16 {
            sums[lane] += factors[lane] * f64::from(bytes[lane]);
        }
    }
    /// Stores integers as bytes, saturated.
    ///
    /// # Safety
    /// There are `GROUP` vectors, and `to` points to as many times `LEN` bytes.
    unsafe fn store_bytes(ints: &[Self::Ints], to: *mut u8);
}

/// Declares methods of [`Lanes`] by intrinsics.
macro_rules! methods {
    ($(fn $name:ident($($args:tt)*) -> $result:ty $body:block)*) => {
        $(
            #[inline(always)]
            #[allow(unused_unsafe, reason = "plain Rust needs none")]
            unsafe fn $name($($args)*) -> $result {
                // SAFETY: what is called here needs what the caller promises.
                unsafe { $body }
            }
        )*
    };
}

// SAFETY: no special instruction is used; an array of floats has a float's alignment.
unsafe impl Lanes for [f32; 8] {
    const LEN: usize = 8;
    type Ints = [f32; 8];
    const GROUP: usize = 1;

    methods! {
        fn splat(value: f32) -> Self { [value; 8] }
        fn load(from: *const f32) -> Self { from.cast::<Self>().read() }
        fn store(self, to: *mut f32) -> () { to.cast::<Self>().write(self) }
        fn mul_add(self, factor: Self, sum: Self) -> Self { each(|i| self[i].mul_add(factor[i], sum[i])) }
        fn add(self, other: Self) -> Self { each(|i| self[i] + other[i]) }
        fn nearest(self) -> Self { each(|i| self[i].round_ties_even()) }
        fn rest(self, nearest: Self) -> Self { each(|i| self[i] - nearest[i]) }
        fn max_abs(self, other: Self) -> Self { each(|i| self[i].max(other[i].abs())) }
        fn at_least(self, limit: Self) -> u32 { (0..8).map(|i| u32::from(self[i].abs() >= limit[i]) << i).sum() }
        fn store_bytes(ints: &[Self], to: *mut u8) -> () { to.cast::<[u8; 8]>().write(ints[0].map(|value| value as u8)) }
    }
}

#[inline(always)]
fn each(lane: impl Fn(usize) -> f32) -> [f32; 8] {
    std::array::from_fn(lane)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Lanes, Work};

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn avx2<W: Work>(work: W) -> W::Output {
        work.run::<__m256, 2, 8>()
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    pub(super) fn avx512<W: Work>(work: W) -> W::Output {
        work.run::<__m512, 4, 8>()
    }

    // SAFETY: the methods' contracts are the intrinsics'.
    unsafe impl Lanes for __m256 {
        const LEN: usize = 8;
        type Ints = __m256i;
        const GROUP: usize = 2;

        #[inline(always)]
        fn prefetch(address: *const u8) {
            // SAFETY: no address faults, and nothing changes that a program could see.
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
            fn add_products(sums: &mut [f64; 16], factors: &[f64; 16], bytes: &[u8; 16]) -> () {
                for lane in [0, 4, 8, 12] {
                    let bytes = _mm_cvtepu8_epi32(_mm_loadu_si32(bytes.as_ptr().add(lane).cast()));
                    let sums = sums.as_mut_ptr().add(lane);
                    let factors = _mm256_loadu_pd(factors.as_ptr().add(lane));
                    _mm256_storeu_pd(sums, _mm256_fmadd_pd(factors, _mm256_cvtepi32_pd(bytes), _mm256_loadu_pd(sums)))
                }
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
        const LEN: usize = 16;
        type Ints = __m512i;
        const GROUP: usize = 4;

        #[inline(always)]
        fn prefetch(address: *const u8) {
            // SAFETY: no address faults, and nothing changes that a program could see.
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
            // 2: the greater one; 8: clear the sign.
            fn max_abs(self, other: Self) -> Self { _mm512_range_ps::<0b10_11>(self, other) }
            fn at_least(self, limit: Self) -> u32 {
                u32::from(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(_mm512_abs_ps(self), limit))
            }
            fn add_products(sums: &mut [f64; 16], factors: &[f64; 16], bytes: &[u8; 16]) -> () {
                for lane in [0, 8] {
                    let bytes = _mm256_cvtepu8_epi32(_mm_loadu_si64(bytes.as_ptr().add(lane)));
                    let sums = sums.as_mut_ptr().add(lane);
                    let factors = _mm512_loadu_pd(factors.as_ptr().add(lane));
                    _mm512_storeu_pd(sums, _mm512_fmadd_pd(factors, _mm512_cvtepi32_pd(bytes), _mm512_loadu_pd(sums)))
                }
            }
            fn store_bytes(ints: &[__m512i], to: *mut u8) -> () {
                // Both packs work on each quarter separately, which leaves the bytes of each vector in four places.
                let low = _mm512_packs_epi32(ints[0], ints[1]);
                let high = _mm512_packs_epi32(ints[2], ints[3]);
                let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
                let bytes = _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
                _mm512_storeu_si512(to.cast(), bytes)
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::{Lanes, Work};

    #[target_feature(enable = "neon")]
    pub(super) fn neon<W: Work>(work: W) -> W::Output {
        work.run::<float32x4_t, 4, 8>()
    }

    // SAFETY: the methods' contracts are the intrinsics'.
    unsafe impl Lanes for float32x4_t {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_set_is_refused_by_name() {
        let error = Isa::named("sse9").unwrap_err().to_string();
        assert!(error.contains("sse9") && error.contains("portable"), "{error}");
        for &(name, isa) in Isa::present() {
            assert_eq!(Isa::named(name).unwrap(), isa);
        }
    }
}
