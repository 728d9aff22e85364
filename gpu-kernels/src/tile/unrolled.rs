//! A loop over a row of taps whose number is known at run time.

/// Calls `each` with 0 to `count - 1`: STEP (a power of two) calls at a time, then the remainder in
/// groups of half as many, and so on down to one. Otherwise the compiler handles the remainder one
/// by one, each with a loop's cost. Most taps of a small window are in that remainder.
#[inline(always)]
pub(crate) fn by<const STEP: i32>(count: i32, mut each: impl FnMut(i32)) {
    let mut in_turn = |first: i32, calls: i32| {
        let mut i = 0;
        while i < calls {
            each(first + i);
            i += 1;
        }
    };
    let mut i = 0;
    while i + STEP <= count {
        in_turn(i, STEP);
        i += STEP;
    }
    let mut rest = STEP / 2;
    while rest > 0 {
        if count & rest != 0 {
            in_turn(i, rest);
            i += rest;
        }
        rest /= 2;
    }
}
