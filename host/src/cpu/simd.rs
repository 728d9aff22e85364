//! The processor's vectors: which instruction set there is, and the four operations that the engine needs of it.

use std::sync::OnceLock;

use crate::{Error, Result};

/// A set of vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// What every processor of the architecture has.
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
    /// The environment variable that names the set to use in place of the fastest; for tests and measurements, as all
    /// give the same bits.
    const VARIABLE: &str = "APRON_ISA";

    /// The set that the environment asks for, or the fastest that the processor has.
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

    /// Does some work with these instructions. An `Isa` other than the portable one exists only where the processor has
    /// it: [`Isa::chosen`] and [`Isa::fastest`] are the only ways to get one.
    #[inline]
    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            Self::Portable => work.run::<[f32; 8], 1, 2>(),
            // SAFETY (both): the processor has the instructions, see above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::avx2(work) },
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { x86::avx512(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Self::Neon => unsafe { arm::neon(work) },
        }
    }
}

/// Something to be compiled for each instruction set. Every implementation is `#[inline(always)]`, as is all that it calls.
pub(crate) trait Work {
    type Output;

    /// `V` vectors side by side are what the registers hold for several rows of sums, `W` those for a single row.
    fn run<L: Lanes, const V: usize, const W: usize>(self) -> Self::Output;
}

/// A vector of f32.
///
/// # Safety
/// Its methods are called in a [`Work`] only, so that the processor has the instructions.
pub(crate) unsafe trait Lanes: Copy {
    /// Floats in it.
    const LEN: usize;

    /// # Safety
    /// See the trait.
    unsafe fn splat(value: f32) -> Self;
    /// # Safety
    /// `from` points to `LEN` floats.
    unsafe fn load(from: *const f32) -> Self;
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
}

// SAFETY: no special instruction is used.
unsafe impl Lanes for [f32; 8] {
    const LEN: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        [value; 8]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise; an array of floats is aligned as a float.
        unsafe { from.cast::<Self>().read() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { to.cast::<Self>().write(self) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, mut sum: Self) -> Self {
        for lane in 0..8 {
            sum[lane] = self[lane].mul_add(factor[lane], sum[lane]);
        }
        sum
    }
    #[inline(always)]
    unsafe fn add(mut self, other: Self) -> Self {
        for lane in 0..8 {
            self[lane] += other[lane];
        }
        self
    }
}

/// A vector type of the processor, from its intrinsics.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! lanes {
    ($vector:ty, $len:literal, $splat:ident, $load:ident, $store:ident, $add:ident, |$a:ident, $b:ident, $sum:ident| $fma:expr) => {
        // SAFETY: the methods' contracts are the intrinsics'.
        unsafe impl Lanes for $vector {
            const LEN: usize = $len;

            #[inline(always)]
            unsafe fn splat(value: f32) -> Self {
                // SAFETY: the caller's promise, here and below.
                unsafe { $splat(value) }
            }
            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self {
                // SAFETY: as above.
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: as above.
                unsafe { $store(to, self) }
            }
            #[inline(always)]
            unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
                let ($a, $b, $sum) = (self, factor, sum);
                // SAFETY: as above.
                unsafe { $fma }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $add(self, other) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Lanes, Work};

    lanes!(__m256, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_add_ps, |a, b, sum| {
        _mm256_fmadd_ps(a, b, sum)
    });
    lanes!(__m512, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_add_ps, |a, b, sum| {
        _mm512_fmadd_ps(a, b, sum)
    });

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn avx2<W: Work>(work: W) -> W::Output {
        work.run::<__m256, 2, 8>()
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    pub(super) fn avx512<W: Work>(work: W) -> W::Output {
        work.run::<__m512, 4, 8>()
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::{Lanes, Work};

    lanes!(float32x4_t, 4, vdupq_n_f32, vld1q_f32, vst1q_f32, vaddq_f32, |a, b, sum| vfmaq_f32(sum, a, b));

    #[target_feature(enable = "neon")]
    pub(super) fn neon<W: Work>(work: W) -> W::Output {
        work.run::<float32x4_t, 4, 8>()
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
