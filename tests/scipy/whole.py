"""Bytes made of bytes by apron's definition, in Python's integers and by exact sums of SciPy.

The definition: taps are whole numbers over one divisor. A byte is the exact sum over the divisor,
rounded half to even and saturated. A mean's taps are counts. A product's row and column are each
whole numbers that add up to at most 2^37; the products of a sum share their powers of two. A
table's whole numbers add up to at most 2^53 / 255.
"""

import dataclasses

import numpy
from scipy import ndimage

FACTOR, TABLE = 1 << 37, (1 << 53) // 255


def scaled(value, power):
    """value * 2^power, rounded half to even."""
    above, below = float(value).as_integer_ratio()
    above, below = (above << power, below) if power >= 0 else (above, below << -power)
    whole, rest = divmod(above, below)
    return whole + (2 * rest > below or (2 * rest == below and whole % 2 == 1))


def exponent(value):
    """The greatest e with 2^e <= |value|."""
    above, below = abs(float(value)).as_integer_ratio()
    return above.bit_length() - below.bit_length()


def greatest_power(taps, limit):
    """The greatest power of two that keeps the sum of the scaled, rounded taps within the limit.

    None if all taps are 0.
    """
    taps = [float(tap) for tap in taps if tap]
    if not taps:
        return None
    power = limit.bit_length() + 1 - exponent(max(taps, key=abs))
    while sum(abs(scaled(tap, power)) for tap in taps) > limit:
        power -= 1
    return power


def mean(taps):
    """Counts and their divisor, if the taps are a mean; else None."""
    taps = [float(tap) for tap in taps]

    def counts(divisor):
        found = []
        for tap in taps:
            count = round(tap * divisor)
            if count / divisor != tap or abs(count) > 1 << 45:
                return None
            found.append(count)
        return found

    for divisor in range(1, (1 << 16) + 1):
        if found := counts(divisor):
            return found, divisor
    if any(tap != taps[0] for tap in taps):
        return None
    divisor = round(1 / abs(taps[0]))
    if divisor <= 1 << 45 and (found := counts(divisor)):
        return found, divisor
    for divisor in range(1, (1 << 16) + 1):
        count = round(taps[0] * divisor)
        if abs(count) <= 1 << 24 and float(numpy.float32(count / divisor)) == taps[0]:
            return [count] * len(taps), divisor
    return None


@dataclasses.dataclass
class Whole:
    """Numerators of a table or of products, and the divisor as a pair: numerator, denominator."""

    table: numpy.ndarray | None
    terms: list
    point: int
    divisor: tuple


def power_of_two(power):
    return (1 << power, 1) if power >= 0 else (1, 1 << -power)


def of_table(taps):
    taps = numpy.atleast_2d(taps)
    found = mean(taps.ravel())
    if found and sum(map(abs, found[0])) <= TABLE:
        return Whole(numpy.array(found[0], dtype=numpy.int64).reshape(taps.shape), [], 0, (found[1], 1))
    power = greatest_power(taps.ravel(), TABLE) or 0
    table = numpy.array([scaled(tap, power) for tap in taps.ravel()], dtype=numpy.int64)
    return Whole(table.reshape(taps.shape), [], 0, power_of_two(power))


def of_products(terms, point=0.0):
    """The taps of a sum of products of a row and a column, plus the pixel times `point`."""
    if point == 0.0 and len(terms) == 1:
        found = [mean(taps) for taps in terms[0]]
        if all(found) and all(sum(map(abs, counts)) <= FACTOR for counts, _ in found):
            (row, of_row), (column, of_column) = found
            if 255 * sum(map(abs, row)) * sum(map(abs, column)) <= 1 << 61 and of_row * of_column <= 1 << 61:
                return Whole(None, [(row, column)], 0, (of_row * of_column, 1))
    powers = []
    for axis in (0, 1):
        found = [greatest_power(term[axis], FACTOR) for term in terms]
        powers.append(min((power for power in found if power is not None), default=0))
    if point:
        powers[1] = min(powers[1], 73 - exponent(point) - powers[0])
    terms = [([scaled(tap, powers[0]) for tap in row], [scaled(tap, powers[1]) for tap in column]) for row, column in terms]
    return Whole(None, terms, scaled(point, sum(powers)), power_of_two(sum(powers)))


def byte(sums, divisor):
    """The bytes for sums of numerators, which are int64 or Python's integers."""
    above, below = divisor
    if sums.dtype == numpy.int64 and (below > 1 or above > 1 << 61):
        sums = sums.astype(object)
    sums = sums * below if below > 1 else sums
    whole = sums // above
    rest = 2 * (sums - whole * above)
    whole = whole + ((rest > above) | ((rest == above) & (whole % 2 == 1)))
    return numpy.clip(whole, 0, 255).astype(numpy.uint8)


def along(values, taps, axis, border, outside):
    """SciPy's sums of whole numbers along one axis, which are exact below 2^53."""
    keywords = {**border, "cval": float(outside)} if border["mode"] == "constant" else border
    sums = ndimage.correlate1d(values.astype(numpy.float64), numpy.array(taps, dtype=numpy.float64), axis=axis, **keywords)
    return sums.astype(numpy.int64)


def sums_of_plane(plane, whole, border):
    """Exact sums of numerators over one channel."""
    plane = plane.astype(numpy.float64)
    if whole.table is not None:
        return ndimage.correlate(plane, whole.table.astype(numpy.float64), output=numpy.float64, **border).astype(numpy.int64)
    total = plane.astype(numpy.int64).astype(object) * whole.point
    for row, column in whole.terms:
        middle = along(plane, row, 1, border, border.get("cval", 0))
        outside = int(border.get("cval", 0)) * sum(row)
        # Row sums of 45 bits times taps of 37: two parts of each, so that sums stay below 2^53.
        for taps, shift in (([tap >> 19 for tap in column], 19), ([tap & (1 << 19) - 1 for tap in column], 0)):
            for part, by, beyond in ((middle >> 23, 23, outside >> 23), (middle & (1 << 23) - 1, 0, outside & (1 << 23) - 1)):
                total = total + along(part, taps, 0, border, beyond).astype(object) * (1 << shift + by)
    return total


def taps_of(whole):
    """The numerators over the divisor, in f64."""
    above, below = whole.divisor
    if whole.table is not None:
        return whole.table.astype(numpy.float64) * below / above
    taps = sum(numpy.multiply.outer(numpy.array(column, float), numpy.array(row, float)) for row, column in whole.terms)
    taps[taps.shape[0] // 2, taps.shape[1] // 2] += whole.point
    return taps * below / above


def bytes_of(picture, whole, border):
    """apron's exact result for a picture of bytes."""
    planes = picture if picture.ndim == 3 else picture[..., None]
    results = [byte(sums_of_plane(plane, whole, border), whole.divisor) for plane in numpy.moveaxis(planes, 2, 0)]
    return numpy.stack(results, axis=2).reshape(picture.shape)
