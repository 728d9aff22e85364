#!/usr/bin/env python3
"""Compares `apron filter` with SciPy's ndimage.correlate on the same taps.

    python3 compare.py --apron target/release/apron --pictures assets [--device cpu]
    python3 compare.py --apron target/release/apron --bytes [--device gpu:0]

8-bit results must be SciPy's in float64, rounded half to even and saturated, in every pixel. Float results, which travel
as .npy, must lie within 1e-5 of the picture's range. Needs NumPy and SciPy; where Pillow is there, apron's reading of the
pictures is held to it. Exits with 1 if anything differs, and if nothing was compared.

With --bytes: 43 filters, gradients, wide Gaussians and random windows up to 101x101 among them, by six borders, on arrays of bytes with
one, three and four channels: noise, a gradient, flat parts and saturated ones.
"""

import argparse
import concurrent.futures
import itertools
import pathlib
import subprocess
import sys
import tempfile

import numpy
from scipy import ndimage

TOLERANCE = 1e-5

# apron's name, and SciPy's keywords.
BORDERS = {
    "reflect101": {"mode": "mirror"},
    "reflect": {"mode": "reflect"},
    "replicate": {"mode": "nearest"},
    "wrap": {"mode": "wrap"},
    "constant:37.5": {"mode": "constant", "cval": 37.5},
}


def text_of(taps):
    """Taps as apron reads them; repr gives digits that read back as the same float64."""
    return "; ".join(" ".join(repr(float(tap)) for tap in row) for row in taps)


class Gradient:
    """The magnitude of SciPy's two derivatives, in float64; it stands where taps do."""

    shape = (3, 3)

    def __init__(self, derivative):
        self.derivative = derivative

    def __call__(self, plane, border):
        if border["mode"] == "constant":
            # Between its two passes SciPy takes the constant for what lies outside again, where the first pass gives something else.
            return self(numpy.pad(plane, 2, constant_values=border["cval"]), {"mode": "nearest"})[2:-2, 2:-2]
        return numpy.hypot(*(self.derivative(plane, axis=axis, output=numpy.float64, **border) for axis in (0, 1)))


def scharr(plane, axis, **keywords):
    """SciPy has none."""
    smooth = ndimage.correlate1d(plane, [3, 10, 3], axis=1 - axis, **keywords)
    return ndimage.correlate1d(smooth, [-1, 0, 1], axis=axis, **keywords)


GRADIENTS = {"sobel": Gradient(ndimage.sobel), "prewitt": Gradient(ndimage.prewitt), "scharr": Gradient(scharr)}


def filters(run, folder):
    """Name, apron's arguments, and the taps as float64."""
    for name, gradient in GRADIENTS.items():
        yield name, ["--filter", name], gradient
    rng = numpy.random.default_rng(20240607)
    own = {
        "random 5x3": rng.uniform(-1, 1, (3, 5)),
        "random 4x6": rng.uniform(-1, 1, (6, 4)),
        "random 11x11": rng.uniform(-0.2, 0.2, (11, 11)),
        "corner of 4x4": numpy.pad([[0.5]], ((0, 3), (3, 0))),
        "mean 6x6": numpy.full((6, 6), 1 / 36),
    }
    for name, taps in own.items():
        yield name, ["--taps", text_of(taps)], taps
    for name in ["sobel-x", "laplacian", "gaussian:sigma=1.2", "unsharp:sigma=0.8,amount=1.5", "box:size=4"]:
        path = folder / "taps.npy"
        run("taps", "--filter", name, "--out", path, "--overwrite")
        yield name, ["--filter", name], numpy.load(path)


def correlate(picture, taps, border):
    """SciPy's answer in float64, channel by channel."""
    planes = picture.astype(numpy.float64)
    planes = planes if planes.ndim == 3 else planes[..., None]
    if isinstance(taps, Gradient):
        results = [taps(plane, border) for plane in numpy.moveaxis(planes, 2, 0)]
        return numpy.stack(results, axis=2).reshape(picture.shape)
    row, column = taps.sum(axis=0), taps.sum(axis=1)
    if taps.size > 1000 and numpy.allclose(numpy.outer(column, row), taps * taps.sum(), rtol=1e-12, atol=0):
        # Two passes: taps one by one would take hours.
        def one(plane):
            across = ndimage.correlate1d(plane, row / taps.sum(), axis=1, output=numpy.float64, **border)
            return ndimage.correlate1d(across, column, axis=0, output=numpy.float64, **border)
    else:
        def one(plane):
            return ndimage.correlate(plane, taps, output=numpy.float64, **border)
    results = [one(plane) for plane in numpy.moveaxis(planes, 2, 0)]
    return numpy.stack(results, axis=2).reshape(picture.shape)


def wide_filters(run, folder):
    """The 43 filters of --bytes: name, apron's arguments, and the taps as float64."""
    for name, gradient in GRADIENTS.items():
        yield name, ["--filter", name], gradient
    rng = numpy.random.default_rng(20261122)
    names = [f"gaussian:sigma={sigma}" for sigma in (0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 20, 30, 50, 70, 100)]
    names += [f"box:size={size}" for size in (2, 3, 5, 9, 15, 31, 64, 101)]
    names += ["sobel-x", "sobel-y", "scharr-x", "laplacian", "log:sigma=2", "emboss", "sharpen", "motion:length=9"]
    names += ["unsharp:sigma=2,amount=1.5", "unsharp:sigma=12,amount=0.4"]
    for name in names:
        path = folder / "taps.npy"
        run("taps", "--filter", name, "--out", path, "--overwrite")
        yield name, ["--filter", name], numpy.atleast_2d(numpy.load(path))
    for number, (rows, cols) in enumerate([(3, 3), (5, 5), (7, 7), (4, 9), (17, 17), (33, 33), (51, 21), (101, 101)]):
        taps = rng.uniform(-0.3, 1, (rows, cols))
        taps /= taps.sum()
        path = folder / f"random-{number}.npy"
        numpy.save(path, taps)
        yield f"random {cols}x{rows}", ["--taps-file", path], taps


def compare_bytes(run, device, folder):
    """As --bytes says; returns the number of comparisons and the failures."""
    rng = numpy.random.default_rng(3)
    arrays = {}
    for channels in (1, 3, 4):
        array = rng.integers(0, 256, (120, 168, channels), dtype=numpy.uint8)
        array[:50, :60] = numpy.arange(60, dtype=numpy.uint8)[None, :, None] * 4
        array[60:, 100:] = 128
        array[60:90, :50] = 255
        array[90:, :50] = 0
        arrays[channels] = array if channels > 1 else array[..., 0]
        numpy.save(folder / f"c{channels}.npy", arrays[channels])
    borders = {**BORDERS, "constant:37.5": {"mode": "constant", "cval": 37.5}, "keep": {"mode": "nearest"}}

    def compare(job):
        number, ((name, options, taps), border) = job
        out = folder / f"out-{number}"
        out.mkdir()
        sources = [folder / f"c{channels}.npy" for channels in arrays]
        run("filter", *sources, out, "--device", device, "--quiet", "--border", border, *options)
        wrong = []
        for channels, array in arrays.items():
            expected = numpy.clip(numpy.rint(correlate(array, taps, borders[border])), 0, 255).astype(numpy.uint8)
            if border == "keep":
                rows, cols = taps.shape
                top, left = rows // 2, cols // 2
                bottom, right = array.shape[0] - (rows - 1 - top), array.shape[1] - (cols - 1 - left)
                kept = array.copy()
                if top < bottom and left < right:
                    kept[top:bottom, left:right] = expected[top:bottom, left:right]
                expected = kept
            found = numpy.load(out / f"c{channels}.npy")
            if found.dtype != numpy.uint8 or not numpy.array_equal(found, expected):
                wrong.append(f"{name}, {border}, {channels} channels: {(found != expected).sum()} of {found.size} differ")
        return wrong

    jobs = list(enumerate(itertools.product(wide_filters(run, folder), borders)))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        failures = list(itertools.chain(*pool.map(compare, jobs)))
    return len(jobs) * len(arrays), failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--apron", required=True, type=pathlib.Path, help="the command-line tool")
    parser.add_argument("--pictures", type=pathlib.Path, help="folder of 8-bit pictures")
    parser.add_argument("--bytes", action="store_true", help="43 filters on arrays of bytes")
    parser.add_argument("--device", default="cpu", help="as apron's --device")
    parser.add_argument("--quick", action="store_true", help="three borders and every third filter")
    arguments = parser.parse_args()

    def run(*command):
        done = subprocess.run([arguments.apron, *command], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"apron {' '.join(map(str, command))}: {done.stderr.strip()}")

    def filtered(source, target, options):
        run("filter", source, target, "--device", arguments.device, "--quiet", *options)
        return numpy.load(target)

    if arguments.bytes == (arguments.pictures is not None):
        parser.error("give --pictures or --bytes")
    if arguments.bytes:
        with tempfile.TemporaryDirectory() as folder:
            count, failures = compare_bytes(run, arguments.device, pathlib.Path(folder))
        print(f"{count} comparisons of bytes, {len(failures)} failed")
        raise SystemExit("\n".join(failures[:20]) if failures else 0)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        known = list(filters(run, folder))
        pictures = {}
        for path in sorted(arguments.pictures.iterdir()):
            if path.suffix not in (".png", ".jpg"):
                continue
            pixels = filtered(path, folder / f"{path.stem}.npy", ["--filter", "identity"])
            check_reading(path, pixels)
            # Not whole numbers, so that a float result cannot be right by having been rounded.
            noise = numpy.random.default_rng(7).random(pixels.shape)
            floats = (pixels + noise).astype(numpy.float32)
            numpy.save(folder / f"{path.stem}-float.npy", floats)
            pictures[path] = pixels, floats

        def compare(number, path, the_filter, border):
            name, options, taps = the_filter
            pixels, floats = pictures[path]
            options = [*options, "--border", border]
            what = f"{path.name}, {name}, {border}"

            expected = numpy.clip(numpy.rint(correlate(pixels, taps, BORDERS[border])), 0, 255).astype(numpy.uint8)
            found = filtered(path, folder / f"{number}-bytes.npy", options)
            wrong = numpy.argwhere(found != expected)
            if found.dtype != numpy.uint8 or len(wrong):
                first = tuple(wrong[0]) if len(wrong) else None
                return f"{what}: {len(wrong)} of {found.size} 8-bit values differ, first {first}: {found[first]} for {expected[first]}"

            expected = correlate(floats, taps, BORDERS[border])
            found = filtered(folder / f"{path.stem}-float.npy", folder / f"{number}-float.npy", options)
            allowed = TOLERANCE * numpy.ptp(floats)
            difference = numpy.abs(found - expected).max()
            if found.dtype != numpy.float32 or not difference <= allowed:
                return f"{what}: float results differ by {difference:g}, {allowed:g} allowed"
            print(f"{what}: 8-bit equal, float within {difference / allowed * TOLERANCE:.1e}", flush=True)
            return None

        borders = list(BORDERS)
        if arguments.quick:
            known, borders = known[::3], borders[::2]
        jobs = list(itertools.product(pictures, known, borders))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            results = list(pool.map(lambda job: compare(job[0], *job[1]), enumerate(jobs)))
        failures = [result for result in results if result]
        print(f"{len(results)} comparisons, {len(failures)} failed")
        if failures or not results:
            raise SystemExit("\n".join(failures[:10]) or "nothing was compared")


def check_reading(path, pixels):
    """Holds apron's decoder to Pillow's where there is one; JPEG decoders may differ in the last bit."""
    try:
        from PIL import Image
    except ImportError:
        return
    difference = numpy.abs(numpy.asarray(Image.open(path)).astype(int) - pixels)
    limit = 0 if path.suffix == ".png" else 4
    if difference.max() > limit:
        raise SystemExit(f"{path.name}: apron reads it otherwise than Pillow, by up to {difference.max()}")


if __name__ == "__main__":
    sys.exit(main())
