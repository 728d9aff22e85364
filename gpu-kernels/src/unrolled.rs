//! A loop over a row of taps whose number is known at run time.

/// Calls `each` with 0 to `count - 1`: eight calls in turn, then what is left over as four, two and one. Left to itself, the
/// compiler takes the rest one by one, each with a loop's cost, and most taps of a small window are such a rest.
#[inline(always)]
pub(crate) fn by_eights(count: i32, mut each: impl FnMut(i32)) {
    let mut four = |i| {
        each(i);
        each(i + 1);
        each(i + 2);
        each(i + 3);
    };
    let mut i = 0;
    while i + 8 <= count {
        four(i);
        four(i + 4);
        i += 8;
    }
    if count & 4 != 0 {
        four(i);
        i += 4;
    }
    if count & 2 != 0 {
        each(i);
        each(i + 1);
        i += 2;
    }
    if count & 1 != 0 {
        each(i);
    }
}
