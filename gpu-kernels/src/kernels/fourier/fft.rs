//! Fourier transforms of 4, 8, 16 and 32 complex numbers in registers.

use crate::device::fma;

/// A complex number.
#[derive(Clone, Copy)]
pub(crate) struct Complex {
    pub(crate) re: f32,
    pub(crate) im: f32,
}

pub(crate) const ZERO: Complex = Complex { re: 0.0, im: 0.0 };

impl Complex {
    #[inline(always)]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }

    #[inline(always)]
    pub(crate) fn minus(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }

    #[inline(always)]
    pub(crate) fn times(self, other: Self) -> Self {
        Self {
            re: fma(self.re, other.re, -(self.im * other.im)),
            im: fma(self.re, other.im, self.im * other.re),
        }
    }

    /// The product with the other's conjugate.
    #[inline(always)]
    pub(crate) fn times_conjugate(self, other: Self) -> Self {
        self.times(Self { re: other.re, im: -other.im })
    }

    /// The product with the twiddle factor of a quarter: forward, -i; inverse, i.
    #[inline(always)]
    pub(crate) fn quarter<const INVERSE: bool>(self) -> Self {
        if INVERSE {
            Self { re: -self.im, im: self.re }
        } else {
            Self { re: self.im, im: -self.re }
        }
    }

    /// The product with the twiddle factor `cos - i sin`; inverse, with its conjugate.
    #[inline(always)]
    pub(crate) fn twiddled<const INVERSE: bool>(self, cos: f32, sin: f32) -> Self {
        self.times(Self { re: cos, im: if INVERSE { sin } else { -sin } })
    }
}

/// A transform of 4, in order.
#[inline(always)]
fn four<const INVERSE: bool>([a, b, c, d]: [Complex; 4]) -> [Complex; 4] {
    let (even, odd) = (a.plus(c), b.plus(d));
    let (difference, quarter) = (a.minus(c), b.minus(d).quarter::<INVERSE>());
    [even.plus(odd), difference.plus(quarter), even.minus(odd), difference.minus(quarter)]
}

/// A transform of 8, in order: 4 of 2, twiddle factors, then 2 of 4.
#[inline(always)]
pub(crate) fn eight<const INVERSE: bool>(x: [Complex; 8]) -> [Complex; 8] {
    const HALF: f32 = core::f32::consts::FRAC_1_SQRT_2;
    let even =
        four::<INVERSE>([x[0].plus(x[4]), x[1].plus(x[5]), x[2].plus(x[6]), x[3].plus(x[7])]);
    let odd = four::<INVERSE>([
        x[0].minus(x[4]),
        x[1].minus(x[5]).twiddled::<INVERSE>(HALF, HALF),
        x[2].minus(x[6]).quarter::<INVERSE>(),
        x[3].minus(x[7]).twiddled::<INVERSE>(-HALF, HALF),
    ]);
    [even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3]]
}

/// A transform of 16, in order: 4 of 4, twiddle factors, then 4 of 4.
#[inline(always)]
fn sixteen<const INVERSE: bool>(x: [Complex; 16]) -> [Complex; 16] {
    // Cosines of k / 16 of a full circle, for k from 0 to 9.
    const C: [f32; 10] = [
        1.0,
        0.923_879_5,
        core::f32::consts::FRAC_1_SQRT_2,
        0.382_683_43,
        0.0,
        -0.382_683_43,
        -core::f32::consts::FRAC_1_SQRT_2,
        -0.923_879_5,
        -1.0,
        -0.923_879_5,
    ];
    const S: [f32; 10] = [0.0, C[3], C[2], C[1], 1.0, C[1], C[2], C[3], 0.0, -C[3]];
    let mut parts = [ZERO; 16];
    // One column of the 4 x 4. A macro, not a loop: rust-cuda's compiler does not unroll a loop,
    // and would keep the cosines in memory.
    macro_rules! column {
        ($n:literal) => {
            let line = four::<INVERSE>([x[$n], x[$n + 4], x[$n + 8], x[$n + 12]]);
            let mut k = 0;
            while k < 4 {
                parts[4 * k + $n] = match $n * k {
                    0 => line[k],
                    4 => line[k].quarter::<INVERSE>(),
                    angle => line[k].twiddled::<INVERSE>(C[angle], S[angle]),
                };
                k += 1;
            }
        };
    }
    column!(0);
    column!(1);
    column!(2);
    column!(3);
    let mut y = [ZERO; 16];
    let mut k = 0;
    while k < 4 {
        let line =
            four::<INVERSE>([parts[4 * k], parts[4 * k + 1], parts[4 * k + 2], parts[4 * k + 3]]);
        let mut n = 0;
        while n < 4 {
            y[k + 4 * n] = line[n];
            n += 1;
        }
        k += 1;
    }
    y
}

/// A transform of 32, in order: 2 of 16, twiddle factors, then 16 of 2.
#[inline(always)]
fn thirty_two<const INVERSE: bool>(x: [Complex; 32]) -> [Complex; 32] {
    // Cosines of k / 32 of a full circle, for k from 0 to 15. The sine of k is the cosine of the
    // distance between k and 8.
    const C: [f32; 16] = [
        1.0,
        0.980_785_25,
        0.923_879_5,
        0.831_469_6,
        core::f32::consts::FRAC_1_SQRT_2,
        0.555_570_24,
        0.382_683_43,
        0.195_090_32,
        0.0,
        -0.195_090_32,
        -0.382_683_43,
        -0.555_570_24,
        -core::f32::consts::FRAC_1_SQRT_2,
        -0.831_469_6,
        -0.923_879_5,
        -0.980_785_25,
    ];
    let (mut even, mut odd) = ([ZERO; 16], [ZERO; 16]);
    let mut i = 0;
    while i < 16 {
        (even[i], odd[i]) = (x[2 * i], x[2 * i + 1]);
        i += 1;
    }
    let (even, odd) = (sixteen::<INVERSE>(even), sixteen::<INVERSE>(odd));
    let mut y = [ZERO; 32];
    // Two frequencies. A macro, not a loop: see `sixteen`.
    macro_rules! butterfly {
        ($($k:literal)*) => {$(
            let turned = match $k {
                0 => odd[$k],
                8 => odd[$k].quarter::<INVERSE>(),
                angle => odd[$k].twiddled::<INVERSE>(C[angle], C[8usize.abs_diff(angle)]),
            };
            (y[$k], y[$k + 16]) = (even[$k].plus(turned), even[$k].minus(turned));
        )*};
    }
    butterfly!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    y
}

/// A transform of M numbers, in order. M is 4, 8, 16 or 32.
#[inline(always)]
pub(crate) fn within<const M: usize, const INVERSE: bool>(x: [Complex; M]) -> [Complex; M] {
    match M {
        32 => resized(thirty_two::<INVERSE>(resized(x))),
        16 => resized(sixteen::<INVERSE>(resized(x))),
        4 => resized(four::<INVERSE>(resized(x))),
        _ => resized(eight::<INVERSE>(resized(x))),
    }
}

/// Multiplies number `m` of M with `exp(i pi m / (2 M))`, or with its conjugate: the part of a
/// folded line's twist (see `mod.rs`) that does not depend on the lane.
#[inline(always)]
pub(crate) fn twisted<const M: usize, const INVERSE: bool>(mut x: [Complex; M]) -> [Complex; M] {
    // Cosines of k / 128 of a full circle, for k from 0 to 32. The sine of k is the cosine of
    // `32 - k`.
    const C: [f32; 33] = [
        1.0,
        0.998_795_45,
        0.995_184_7,
        0.989_176_5,
        0.980_785_25,
        0.970_031_26,
        0.956_940_35,
        0.941_544_06,
        0.923_879_5,
        0.903_989_3,
        0.881_921_3,
        0.857_728_6,
        0.831_469_6,
        0.803_207_5,
        0.773_010_43,
        0.740_951_1,
        core::f32::consts::FRAC_1_SQRT_2,
        0.671_559,
        0.634_393_3,
        0.595_699_3,
        0.555_570_24,
        0.514_102_76,
        0.471_396_74,
        0.427_555_08,
        0.382_683_43,
        0.336_889_86,
        0.290_284_66,
        0.242_980_18,
        0.195_090_32,
        0.146_730_47,
        0.098_017_14,
        0.049_067_676,
        0.0,
    ];
    // A macro, not a loop: see `sixteen`.
    macro_rules! turn {
        ($($m:literal)*) => {$(
            if $m < M {
                let angle = $m * (32 / M);
                // The twist has the opposite sign of the twiddle factors.
                x[$m] = x[$m].twiddled::<INVERSE>(C[angle], -C[32 - angle]);
            }
        )*};
    }
    turn!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    x
}

/// The same numbers in an array of another size.
#[inline(always)]
fn resized<const A: usize, const B: usize>(x: [Complex; A]) -> [Complex; B] {
    let mut y = [ZERO; B];
    let mut i = 0;
    while i < A && i < B {
        y[i] = x[i];
        i += 1;
    }
    y
}
