#!/usr/bin/env python3
"""Compares `apron filter` on files of f64 and wide integers with NumPy in long double.

    python3 wide.py --apron target/release/apron

Every type of .npy and TIFF that kernels do not take, by filters, borders, scalings and pipelines of
steps. Needs NumPy and tifffile. Exits with 1 if anything differs, and if nothing was compared.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy
import tifffile

KINDS = ("i1", "i2", "i4", "i8", "u4", "u8", "f8")
BORDERS = {
    "constant:0.1": ("constant", {"constant_values": numpy.longdouble("0.1")}),
    "replicate": ("edge", {}),
    "reflect": ("symmetric", {}),
    "reflect101": ("reflect", {}),
    "wrap": ("wrap", {}),
}
TAPS = {
    "laplacian": [[0, 1, 0], [1, -4, 1], [0, 1, 0]],
    "taps:0.1 -2.5 3; 7 0 1e-3": [[0.1, -2.5, 3], [7, 0, 1e-3]],
    "box:size=5": [[1 / 25] * 5] * 5,
    "sobel-y": [[-1, -2, -1], [0, 0, 0], [1, 2, 1]],
}


def correlate(image, taps, border):
    """The sums in long double, and the sum of the products' magnitudes."""
    taps = numpy.array(taps, numpy.longdouble)
    rows, cols = taps.shape
    ends = ((rows // 2, rows - 1 - rows // 2), (cols // 2, cols - 1 - cols // 2), (0, 0))
    mode, more = BORDERS[border]
    padded = numpy.pad(image.astype(numpy.longdouble), ends, mode, **more)
    height, width = image.shape[:2]
    parts = [taps[r, c] * padded[r : r + height, c : c + width] for r in range(rows) for c in range(cols)]
    return sum(parts), float(sum(abs(part) for part in parts).max())


def check(found, sums, slack, kind, what):
    if kind == "f8":
        good = (numpy.abs(found - sums) <= slack).all()
    else:
        limits = numpy.iinfo(kind)
        low, high = (numpy.clip(numpy.rint(sums + end), limits.min, limits.max) for end in (-slack, slack))
        good = (low <= found).all() and (found <= high).all()
    if found.dtype != numpy.dtype(kind) or not good:
        sys.exit(f"{what}: {found.dtype}, up to {numpy.abs(found - sums).max()} off")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--apron", required=True)
    apron = parser.parse_args().apron
    folder = pathlib.Path(tempfile.mkdtemp())
    random, compared = numpy.random.default_rng(1), 0

    def run(image, suffix, *arguments, quiet=True):
        """Filters the picture with the tool, in files with this suffix."""
        source, target = folder / f"in{suffix}", folder / f"out{suffix}"
        if suffix == ".npy":
            numpy.save(source, image)
        else:
            tifffile.imwrite(source, image, photometric="rgb" if image.shape[2] == 3 else "minisblack")
        command = [apron, "filter", source, target, "--overwrite", "--device", "cpu", *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or done.stderr and quiet and "negative" not in done.stderr:
            sys.exit(f"{arguments}: {done.stderr}")
        return numpy.load(target) if suffix == ".npy" else tifffile.imread(target).reshape(image.shape)

    for kind in KINDS:
        for number, border in enumerate(BORDERS):
            if kind == "f8":
                image = 4.6e6 + random.random((17, 23, 3))
            else:
                limits = numpy.iinfo(kind)
                ends = max(limits.min, -(2**53)), min(limits.max, 2**53)
                image = random.integers(*ends, (17, 23, 3), kind, endpoint=True)
            for text, taps in TAPS.items():
                sums, size = correlate(image, taps, border)
                slack = (sum(map(len, taps)) + 8) * 2.0**-53 * size
                for suffix in (".npy", ".tif"):
                    found = run(image, suffix, "--filter", text, "--border", border)
                    check(found, sums, slack, kind, f"{kind}, {text}, {border}, {suffix}")
                    compared += 1
            # Two steps without rounding between them, then the absolute value and an offset.
            first, before = correlate(image, TAPS["laplacian"], border)
            second, size = correlate(first.astype("f8"), TAPS["box:size=5"], border)
            slack = 2.0**-53 * (17 * before + 33 * size)
            arguments = ["--filter", "laplacian", "--filter", "box:size=5", "--border", border]
            check(run(image, ".npy", *arguments), second, slack, kind, f"{kind}: steps, {border}")
            arguments = [*arguments, "--abs", "--offset", "0.25"]
            found = run(image, (".npy", ".tif")[number % 2], *arguments)
            check(found, abs(second) + 0.25, 2 * slack, kind, f"{kind}: abs and offset, {border}")
            # To other types: scaled in f64 and rounded once.
            sums, size = correlate(image, TAPS["box:size=5"], border)
            low, high = float(sums.min()), float(sums.max())
            shown = run(image, ".npy", "--filter", "box:size=5", "--border", border, "--normalize", "--output-type", "u8")
            wanted = (sums - low) / (high - low) * 255
            check(shown, wanted, 255 * 64 * 2.0**-53 * size / (high - low) + 1e-9, "u1", f"{kind}: normalize, {border}")
            scale = f"{low!r}..{high!r}"
            shown = run(image, ".npy", "--filter", "box:size=5", "--border", border, "--scale", scale, "--output-type", "u16")
            check(shown, wanted * 257, 65535 * 64 * 2.0**-53 * size / (high - low) + 1e-9, "u2", f"{kind}: scale, {border}")
            single = run(image, ".npy", "--filter", "box:size=5", "--border", border, "--output-type", "f32")
            if single.dtype != "f4" or (numpy.abs(single - sums) > 2.0**-24 * size * 1.01).any():
                sys.exit(f"{kind}: into f32, {border}")
            compared += 5
    z = 4600000 + 0.01 * numpy.arange(50.0) ** 2 * numpy.ones((40, 1))
    found = run(z[..., None], ".npy", "--filter", "laplacian")
    if numpy.abs(found[1:-1, 1:-1] - 0.02).max() > 1e-8:
        sys.exit("the parabola")
    print(f"{compared} files are as NumPy computes them")


main()
