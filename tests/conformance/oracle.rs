//! The oracle and the tests' own conversions, against values worked out by hand.

use apron::{Border, f16};
use conformance::problem::Window;
use conformance::sample::Sample;
use conformance::select::BORDERS;
use libtest_mimic::{Failed, Trial};
use oracle::{correlate, fold, kept};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("oracle::borders", borders),
        Trial::test("oracle::kept", keeps),
        Trial::test("oracle::correlation", correlation),
        Trial::test("oracle::rounding", rounding),
        Trial::test("oracle::half_precision", half_precision),
    ]
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), Failed> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, found {found:?}").into())
    }
}

/// The diagrams in the documentation of `Border`, extended beyond one image on each side.
fn borders() -> Result<(), Failed> {
    let row = |border, letters: &str| -> String {
        let n = letters.len();
        let letter = |i| fold(border, i, n).map_or('.', |at| char::from(letters.as_bytes()[at]));
        (-2 * n as i64 - 1..3 * n as i64 + 1).map(letter).collect()
    };
    equal("constant", row(Border::Constant(1.0), "abc"), ".......abc.......".into())?;
    equal("replicate", row(Border::Replicate, "abc"), "aaaaaaaabcccccccc".into())?;
    equal("reflect", row(Border::Reflect, "abc"), "aabccbaabccbaabcc".into())?;
    equal("reflect101", row(Border::Reflect101, "abc"), "bcbabcbabcbabcbab".into())?;
    equal("wrap", row(Border::Wrap, "abc"), "cabcabcabcabcabca".into())?;
    equal("reflect of one", row(Border::Reflect, "a"), "aaaaaaa".into())?;
    equal("reflect101 of one", row(Border::Reflect101, "a"), "aaaaaaa".into())?;
    equal("reflect101 of two", row(Border::Reflect101, "ab"), "babababababab"[..12].into())
}

fn keeps() -> Result<(), Failed> {
    let row = |anchor, len, extent| -> String {
        (0..extent).map(|x| if kept(x, anchor, len, extent) { 'k' } else { '.' }).collect()
    };
    equal("three in the middle", row(1, 3, 5), "k...k".into())?;
    equal("four, anchor right of the middle", row(2, 4, 6), "kk...k".into())?;
    equal("anchor at the first", row(0, 3, 5), "...kk".into())?;
    equal("anchor at the last", row(2, 3, 5), "kk...".into())?;
    equal("as wide as the image", row(1, 3, 3), "k.k".into())?;
    equal("wider than the image", row(1, 4, 3), "kkk".into())?;
    equal("one tap", row(0, 1, 3), "...".into())
}

/// A 3x2 picture under taps that the digits of a result distinguish.
fn correlation() -> Result<(), Failed> {
    let plane = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let window = Window::dense("digits", 2, 2, &[1.0, 10.0, 100.0, 1000.0]);
    // The anchor of 2x2 is its last cell, so each window ends at the pixel itself.
    let found = |border| correlate(&plane, (3, 2), window.as_taps(), border);
    equal(
        "constant",
        found(Border::Constant(0.0)),
        vec![1000.0, 2100.0, 3200.0, 4010.0, 5421.0, 6532.0],
    )?;
    equal(
        "constant 7",
        found(Border::Constant(7.0)),
        vec![1777.0, 2177.0, 3277.0, 4717.0, 5421.0, 6532.0],
    )?;
    equal(
        "replicate",
        found(Border::Replicate),
        vec![1111.0, 2121.0, 3232.0, 4411.0, 5421.0, 6532.0],
    )?;
    equal(
        "reflect101",
        found(Border::Reflect101),
        vec![1245.0, 2154.0, 3265.0, 4512.0, 5421.0, 6532.0],
    )?;
    equal("wrap", found(Border::Wrap), vec![1346.0, 2154.0, 3265.0, 4613.0, 5421.0, 6532.0])?;
    equal("keep", found(Border::Keep), vec![1.0, 2.0, 3.0, 4.0, 5421.0, 6532.0])?;
    let first = window.anchored(0, 0);
    let found = correlate(&plane, (3, 2), first.as_taps(), Border::Replicate);
    equal("anchor at the first cell", found, vec![5421.0, 6532.0, 6633.0, 5454.0, 6565.0, 6666.0])?;
    let wide = Window::dense("digits", 3, 1, &[1.0, 10.0, 100.0]);
    for border in BORDERS {
        let found = correlate(&plane, (3, 2), wide.as_taps(), border)[1];
        equal("inside, no border matters", found, 321.0)?;
    }
    Ok(())
}

fn rounding() -> Result<(), Failed> {
    for (value, expected) in [
        (0.5, 0),
        (1.5, 2),
        (2.5, 2),
        (2.500001, 3),
        (254.5, 254),
        (255.5, 255),
        (1e9, 255),
        (-0.6, 0),
        (-1e9, 0),
    ] {
        equal(&format!("{value}"), u8::nearest(value), expected)?;
    }
    equal("NaN", u8::nearest(f64::NAN), 0)?;
    equal("infinity", (u8::nearest(f64::INFINITY), u8::nearest(f64::NEG_INFINITY)), (255, 0))?;
    equal(
        "u16",
        (u16::nearest(65534.5), u16::nearest(65535.5), u16::nearest(0.5)),
        (65534, 65535, 0),
    )
}

/// Every half-precision value converts to itself. A value between two goes to the nearer one.
fn half_precision() -> Result<(), Failed> {
    let value = |bits| Sample::value(f16::from_bits(bits));
    equal("one", value(0x3C00), 1.0)?;
    equal("greatest", value(0x7BFF), 65504.0)?;
    equal("least normal", value(0x0400), 2f64.powi(-14))?;
    equal("least subnormal", value(0x8001), -(2f64.powi(-24)))?;
    for sign in [0, 0x8000] {
        for bits in 0..0x7C00 {
            let (here, next) = (value(sign | bits), value(sign | (bits + 1)));
            equal("a stored value", <f16 as Sample>::nearest(here).to_bits(), sign | bits)?;
            // Beyond the greatest value, the next power of two would follow.
            let next = if next.is_finite() { next } else { 65536f64.copysign(here) };
            let middle = (here + next) / 2.0;
            let even = bits + bits % 2;
            equal("a tie", <f16 as Sample>::nearest(middle).to_bits(), sign | even)?;
            let (low, high) = (here + (middle - here) * 0.999, middle + (next - middle) * 0.001);
            equal("below a tie", <f16 as Sample>::nearest(low).to_bits(), sign | bits)?;
            equal("above a tie", <f16 as Sample>::nearest(high).to_bits(), sign | (bits + 1))?;
        }
    }
    equal("NaN", <f16 as Sample>::nearest(f64::NAN).is_nan(), true)
}
