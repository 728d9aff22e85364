#!/usr/bin/env python3
"""Compares `apron filter` with SciPy's ndimage.correlate on the same taps.

    python3 compare.py --apron target/release/apron --pictures assets [--device cpu]
    python3 compare.py --apron target/release/apron --bytes [--device gpu:0]

8-bit results must equal those of the filter's whole-number taps (whole.py) exactly. For tables
these are SciPy's own sums in float64, which are exact. The script also sums the float taps with
SciPy in float64, rounds half to even and saturates. This gives the same byte, unless a sum is so
near to a half that the rounding of taps or sums decides. Such bytes are counted and listed. Float
results, passed as .npy, must lie within 1e-5 of the picture's range. Needs NumPy and SciPy. With
Pillow, the script also compares apron's reading of the pictures with Pillow's. Exits with 1 if
anything differs, and if nothing was compared.

With --bytes: 44 filters by six borders, on arrays of bytes with one, three and four channels:
noise, a gradient, flat parts and saturated parts. The filters include gradients, wide Gaussians and
random windows up to 101x101.
"""

import argparse
import concurrent.futures
import itertools
import pathlib
import subprocess
import sys
import tempfile

import numpy
import whole
from scipy import ndimage

TOLERANCE = 1e-5

# apron's name of a border, and SciPy's keywords for it.
BORDERS = {
    "reflect101": {"mode": "mirror"},
    "reflect": {"mode": "reflect"},
    "replicate": {"mode": "nearest"},
    "wrap": {"mode": "wrap"},
    "constant:37": {"mode": "constant", "cval": 37},
}


def text_of(taps):
    """Taps as apron reads them; repr gives digits that read back as the same float64."""
    return "; ".join(" ".join(repr(float(tap)) for tap in row) for row in taps)


class Gradient:
    """The magnitude of SciPy's two derivatives, in float64. It replaces taps."""

    shape = (3, 3)

    def __init__(self, derivative):
        self.derivative = derivative

    def __call__(self, plane, border):
        if border["mode"] == "constant":
            # In its second pass SciPy takes the constant for pixels outside again, although the
            # first pass gives another value there.
            return self(numpy.pad(plane, 2, constant_values=border["cval"]), {"mode": "nearest"})[2:-2, 2:-2]
        return numpy.hypot(*(self.derivative(plane, axis=axis, output=numpy.float64, **border) for axis in (0, 1)))


def scharr(plane, axis, **keywords):
    """SciPy has no Scharr derivative."""
    smooth = ndimage.correlate1d(plane, [3, 10, 3], axis=1 - axis, **keywords)
    return ndimage.correlate1d(smooth, [-1, 0, 1], axis=axis, **keywords)


GRADIENTS = {"sobel": Gradient(ndimage.sobel), "prewitt": Gradient(ndimage.prewitt), "scharr": Gradient(scharr)}


def filters(run, folder):
    """Yields each filter's name, apron's arguments, and the taps as float64."""
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


def whole_taps(run, folder, name, options, taps):
    """The whole-number taps of a filter, by its form; None if its factors are unknown here."""
    if isinstance(taps, Gradient) or name.startswith("log:"):
        return None
    kind, _, rest = name.partition(":")
    given = dict(part.split("=") for part in rest.split(",") if "=" in part)
    if kind == "box":
        size = taps.shape[0]
        return whole.of_products([(numpy.ones(size), numpy.full(size, 1 / size**2))])
    if kind in ("gaussian", "unsharp"):
        path = folder / "row.npy"
        row = f"gaussian:sigma={given['sigma']},cols={taps.shape[1]},rows=1"
        run("taps", "--filter", row, "--out", path, "--overwrite")
        row = numpy.load(path).ravel()
        amount = float(given.get("amount", 0))
        return whole.of_products([(row, row)]) if kind == "gaussian" else whole.of_products([(row, row * -amount)], 1 + amount)
    return whole.of_table(taps)


def slack(taps, exact):
    """The greatest difference of sums over bytes between float64 taps and whole-number taps."""
    weight = numpy.abs(taps).sum()
    roundings = (taps.size if taps.size <= 1000 else 4 * sum(taps.shape)) + 8
    if exact is None:
        # Factors of 37 bits, and two products.
        lost = 2 * sum(taps.shape) * 2.0**-37
    else:
        lost = numpy.abs(whole.taps_of(exact) - taps).sum() + weight * 2.0**-52
    return 255 * (lost + roundings * 2.0**-53 * weight)


class Judge:
    """Compares bytes with the definition. Counts those that SciPy rounds otherwise."""

    def __init__(self):
        self.near, self.all, self.told = 0, 0, []

    def __call__(self, what, found, picture, taps, exact, border, kept=None):
        """The error in `found`, or None; `kept` are the pixels that are copied."""
        if found.dtype != numpy.uint8:
            return f"{what}: {found.dtype} instead of bytes"
        own = correlate(picture, taps, border)
        rounded = numpy.clip(numpy.rint(own), 0, 255).astype(numpy.uint8)
        right = rounded if exact is None else whole.bytes_of(picture, exact, border)
        if kept is not None:
            right, rounded = numpy.where(kept, picture, right), numpy.where(kept, picture, rounded)
        differ = rounded != found
        if isinstance(taps, Gradient):
            return f"{what}: {differ.sum()} of {found.size} differ" if differ.any() else None
        if exact is not None and not numpy.array_equal(found, right):
            wrong = numpy.argwhere(found != right)
            first = tuple(wrong[0])
            return f"{what}: {len(wrong)} of {found.size} bytes are not those of whole taps, first {first}: {found[first]} for {right[first]}"
        far = differ & (numpy.abs(own - numpy.floor(own) - 0.5) > slack(taps, exact))
        if far.any():
            return f"{what}: {far.sum()} of {found.size} bytes differ where SciPy's sums are no halves"
        self.all += found.size
        if differ.any():
            self.near += int(differ.sum())
            self.told.append(f"{what}: {differ.sum()} of {found.size} bytes, all at halves")
        return None

    def tell(self):
        for line in self.told:
            print(f"  {line}")
        print(f"{self.near} of {self.all} bytes are others by SciPy's float64 on the filter's own taps, all at halves")


def correlate(picture, taps, border):
    """SciPy's result in float64, channel by channel."""
    planes = picture.astype(numpy.float64)
    planes = planes if planes.ndim == 3 else planes[..., None]
    if isinstance(taps, Gradient):
        results = [taps(plane, border) for plane in numpy.moveaxis(planes, 2, 0)]
        return numpy.stack(results, axis=2).reshape(picture.shape)
    row, column = taps.sum(axis=0), taps.sum(axis=1)
    if taps.size > 1000 and numpy.allclose(numpy.outer(column, row), taps * taps.sum(), rtol=1e-12, atol=0):
        # Two passes: sums tap by tap would take hours.
        def one(plane):
            across = ndimage.correlate1d(plane, row / taps.sum(), axis=1, output=numpy.float64, **border)
            return ndimage.correlate1d(across, column, axis=0, output=numpy.float64, **border)
    else:
        def one(plane):
            return ndimage.correlate(plane, taps, output=numpy.float64, **border)
    results = [one(plane) for plane in numpy.moveaxis(planes, 2, 0)]
    return numpy.stack(results, axis=2).reshape(picture.shape)


def wide_filters(run, folder):
    """The 44 filters of --bytes: name, apron's arguments, and the taps as float64."""
    for name, gradient in GRADIENTS.items():
        yield name, ["--filter", name], gradient
    rng = numpy.random.default_rng(20261122)
    names = [f"gaussian:sigma={sigma}" for sigma in (0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 20, 30, 50, 70, 100)]
    names += [f"box:size={size}" for size in (2, 3, 5, 9, 15, 31, 64, 101)]
    names += ["sobel-x", "sobel-y", "scharr-x", "laplacian", "log:sigma=2", "emboss", "sharpen", "motion:length=9"]
    names += ["boxblur:radius=5,times=3", "unsharp:sigma=2,amount=1.5", "unsharp:sigma=12,amount=0.4"]
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


def refuses(apron, device, folder):
    """A constant that is no byte must be refused, with a remedy. Returns the error, or None."""
    source, out = folder / "c1.npy", folder / "refused.npy"
    command = [apron, "filter", source, out, "--device", device, "--filter", "box:size=3", "--border", "constant:37.5"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0 or out.exists() or "37.5" not in done.stderr or "--output-type f32" not in done.stderr:
        return f"constant:37.5 for bytes: exit code {done.returncode}, {done.stderr.strip()!r}"
    done = subprocess.run([*command, "--output-type", "f32"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"constant:37.5 into f32: {done.stderr.strip()!r}"


def compare_bytes(run, apron, device, folder):
    """Runs --bytes. Returns the number of comparisons and the failures."""
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
    borders = {**BORDERS, "keep": {"mode": "nearest"}}

    def compare(job):
        number, ((name, options, taps, exact), border) = job
        out = folder / f"out-{number}"
        out.mkdir()
        sources = [folder / f"c{channels}.npy" for channels in arrays]
        run("filter", *sources, out, "--device", device, "--quiet", "--border", border, *options)
        wrong = []
        for channels, array in arrays.items():
            kept = None
            if border == "keep":
                rows, cols = taps.shape
                top, left = rows // 2, cols // 2
                bottom, right = array.shape[0] - (rows - 1 - top), array.shape[1] - (cols - 1 - left)
                kept = numpy.ones(array.shape, bool)
                if top < bottom and left < right:
                    kept[top:bottom, left:right] = False
            found = numpy.load(out / f"c{channels}.npy")
            told = judge(f"{name}, {border}, {channels} channels", found, array, taps, exact, borders[border], kept)
            if told:
                wrong.append(told)
        return wrong

    judge = Judge()
    known = [(*known, whole_taps(run, folder, *known)) for known in wide_filters(run, folder)]
    jobs = list(enumerate(itertools.product(known, borders)))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        failures = list(itertools.chain(*pool.map(compare, jobs)))
    if told := refuses(apron, device, folder):
        failures.append(told)
    judge.tell()
    return len(jobs) * len(arrays), failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--apron", required=True, type=pathlib.Path, help="the command-line tool")
    parser.add_argument("--pictures", type=pathlib.Path, help="folder of 8-bit pictures")
    parser.add_argument("--bytes", action="store_true", help="44 filters on arrays of bytes")
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
            count, failures = compare_bytes(run, arguments.apron, arguments.device, pathlib.Path(folder))
        print(f"{count} comparisons of bytes, {len(failures)} failed")
        raise SystemExit("\n".join(failures[:20]) if failures else 0)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        judge = Judge()
        known = [(*known, whole_taps(run, folder, *known)) for known in filters(run, folder)]
        pictures = {}
        for path in sorted(arguments.pictures.iterdir()):
            if path.suffix not in (".png", ".jpg"):
                continue
            pixels = filtered(path, folder / f"{path.stem}.npy", ["--filter", "identity"])
            check_reading(path, pixels)
            # Fractions, so that a rounded float result is wrong.
            noise = numpy.random.default_rng(7).random(pixels.shape)
            floats = (pixels + noise).astype(numpy.float32)
            numpy.save(folder / f"{path.stem}-float.npy", floats)
            pictures[path] = pixels, floats

        def compare(number, path, the_filter, border):
            name, options, taps, exact = the_filter
            pixels, floats = pictures[path]
            options = [*options, "--border", border]
            what = f"{path.name}, {name}, {border}"

            found = filtered(path, folder / f"{number}-bytes.npy", options)
            if told := judge(what, found, pixels, taps, exact, BORDERS[border]):
                return told

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
        judge.tell()
        print(f"{len(results)} comparisons, {len(failures)} failed")
        if failures or not results:
            raise SystemExit("\n".join(failures[:10]) or "nothing was compared")


def check_reading(path, pixels):
    """Compares apron's decoder with Pillow's. JPEG decoders may differ by up to 4."""
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
