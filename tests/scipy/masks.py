#!/usr/bin/env python3
"""Compares `apron filter` over known pixels with SciPy's sums in f64.

    python3 masks.py --apron target/release/apron

Masks as PNG, TIFF and .npy, NaN in .npy, TIFF and EXR, nodata of GeoTIFF, and the border none.
"""

import subprocess

import numpy
import OpenEXR
import scipy.ndimage
import tifffile
from PIL import Image

import judge
from judge import check

class Tool(judge.Folder):
    def filter(self, source, target, *options):
        command = [self.path, "filter", self / source, self / target, "--device", "cpu", "--quiet", *options]
        subprocess.run(command, check=True, capture_output=True)

    def same(self, found, right, error):
        assert found.shape == right.shape, (found.shape, right.shape)
        assert (numpy.isnan(found) == numpy.isnan(right)).all(), "unknown results"
        off = numpy.nanmax(numpy.abs(found - right))
        assert off <= error, f"{off} off"
        self.count += found.size


#: A Gaussian of sigma 1.5, with 13 taps.
ROW = numpy.exp(-0.5 * (numpy.arange(-6, 7) / 1.5) ** 2)
ROW /= ROW.sum()


def sums(image, mode):
    """The sums under a Gaussian; outside under "constant" there is 0."""
    for axis in (1, 0):
        image = scipy.ndimage.correlate1d(image, ROW, axis, mode=mode)
    return image


def blurred(values, weights, mode="mirror"):
    """A blur of the known pixels, in f64; NaN where none is. Under "constant" none is outside."""
    weights = numpy.where(numpy.isnan(values), 0, weights).astype(float)
    products = numpy.where(weights == 0, 0, weights * numpy.nan_to_num(values))
    above, below = sums(products, mode), sums(weights, mode)
    with numpy.errstate(all="ignore"):
        return numpy.where(below > 0, above / below, numpy.nan)


def image(seed, shape=(40, 53)):
    rng = numpy.random.default_rng(seed)
    return rng.normal(100, 20, shape), rng.random(shape[:2]) < 0.6


GAUSSIAN = ("--filter", "gaussian:sigma=1.5,size=13")


@check
def nan_in_arrays(tool):
    for kind, error in (("f4", 1e-3), ("f8", 1e-9), ("f2", 0.2)):
        values, known = image(1)
        values = numpy.where(known, values, numpy.nan).astype(kind)
        values[:20, :25] = numpy.nan
        numpy.save(tool / "in.npy", values)
        wide = values.astype(float)
        for mode, border in (("mirror", "reflect101"), ("constant", "none"), ("nearest", "replicate")):
            tool.filter("in.npy", f"{kind}{mode}.npy", *GAUSSIAN, "--nan", "ignore", "--border", border)
            right = blurred(wide, numpy.ones(wide.shape), mode)
            tool.same(numpy.load(tool / f"{kind}{mode}.npy"), right, error)
        tool.filter("in.npy", f"{kind}fill.npy", *GAUSSIAN, "--nan", "fill", "--unknown", "-9")
        found = numpy.load(tool / f"{kind}fill.npy")
        right = numpy.where(numpy.isnan(wide), blurred(wide, numpy.ones(wide.shape)), wide)
        tool.same(found, numpy.where(numpy.isnan(right), -9, right), error)


@check
def masks_of_pictures(tool):
    values, known = image(2, (40, 53, 3))
    pixels = numpy.clip(values, 0, 255).astype("u1")
    Image.fromarray(pixels).save(tool / "in.png")
    mask = numpy.where(known, 255, 0).astype("u1")
    mask[:16, :16] = 0
    Image.fromarray(mask).save(tool / "mask.png")
    tifffile.imwrite(tool / "mask.tif", mask)
    numpy.save(tool / "bool.npy", mask != 0)
    right = numpy.stack([blurred(pixels[..., c].astype(float), mask / 255) for c in range(3)], 2)
    right = numpy.nan_to_num(right)
    for name in ("mask.png", "mask.tif", "bool.npy"):
        tool.filter("in.png", f"{name}.png", *GAUSSIAN, "--mask", tool / name)
        found = numpy.asarray(Image.open(tool / f"{name}.png")).astype(float)
        tool.same(found, right, 0.5 + 1e-4)
    grey = numpy.where(known, 255, 64).astype("u1")
    Image.fromarray(grey).save(tool / "grey.png")
    tool.filter("in.png", "grey.out.png", *GAUSSIAN, "--mask", tool / "grey.png")
    right = numpy.stack([blurred(pixels[..., c].astype(float), grey / 255) for c in range(3)], 2)
    tool.same(numpy.asarray(Image.open(tool / "grey.out.png")).astype(float), right, 0.5 + 1e-6)
    # With a picture of its own size, the mask of ones changes nothing.
    Image.fromarray(numpy.full(mask.shape, 255, "u1")).save(tool / "ones.png")
    tool.filter("in.png", "masked.png", *GAUSSIAN, "--mask", tool / "ones.png")
    tool.filter("in.png", "plain.png", *GAUSSIAN)
    assert (numpy.asarray(Image.open(tool / "masked.png")) == numpy.asarray(Image.open(tool / "plain.png"))).all()


@check
def derivatives_are_plain_sums(tool):
    values, known = image(3)
    numpy.save(tool / "in.npy", values.astype("f4"))
    numpy.save(tool / "mask.npy", known.astype("f4"))
    tool.filter("in.npy", "out.npy", "--filter", "sobel-x", "--mask", tool / "mask.npy", "--unknown", "7")
    taps = numpy.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    above = scipy.ndimage.correlate(numpy.where(known, values, 0), taps, mode="mirror")
    size = scipy.ndimage.correlate(known.astype(float), abs(taps), mode="mirror")
    tool.same(numpy.load(tool / "out.npy"), numpy.where(size > 0, above, 7), 1e-3)


@check
def nodata_of_tiff(tool):
    values, known = image(4)
    for kind, error in (("f4", 1e-3), ("i2", 0.5 + 1e-9), ("f8", 1e-9)):
        pixels = numpy.where(known, values, -9999).astype(kind)
        pixels[:18, :18] = -9999
        tags = [(42113, "s", 0, "-9999", True)]
        tifffile.imwrite(tool / "in.tif", pixels, extratags=tags)
        tool.filter("in.tif", f"{kind}.tif", *GAUSSIAN, "--nan", "ignore", "--border", "none")
        with tifffile.TiffFile(tool / f"{kind}.tif") as file:
            found, tag = file.asarray(), file.pages[0].tags[42113].value
        wide = numpy.where(pixels == -9999, numpy.nan, pixels.astype(float))
        right = blurred(wide, numpy.ones(wide.shape), "constant")
        tool.same(found.astype(float), numpy.where(numpy.isnan(right), -9999, right), error)
        assert tag.strip("\0 ") == "-9999" and (found[:11, :11] == -9999).all(), tag
        # Without the option, nodata is a number as any other.
        tool.filter("in.tif", f"{kind}.plain.tif", *GAUSSIAN)
        assert tifffile.imread(tool / f"{kind}.plain.tif").min() < -9000


@check
def nan_in_exr(tool):
    values, known = image(5, (40, 53, 3))
    pixels = numpy.where(known[..., None], values, numpy.nan).astype("f4")
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    with OpenEXR.File(header, {"RGB": pixels}) as file:
        file.write(str(tool / "in.exr"))
    tool.filter("in.exr", "out.exr", *GAUSSIAN, "--nan", "ignore", "--border", "none")
    with OpenEXR.File(str(tool / "out.exr")) as file:
        found = file.channels()["RGB"].pixels
    wide = pixels.astype(float)
    right = numpy.stack([blurred(wide[..., c], numpy.ones(known.shape), "constant") for c in range(3)], 2)
    tool.same(found, right, 1e-3)


@check
def refused(tool):
    values, _ = image(6)
    numpy.save(tool / "in.npy", values.astype("f4"))
    numpy.save(tool / "small.npy", numpy.ones((3, 3), "f4"))
    numpy.save(tool / "negative.npy", -numpy.ones(values.shape, "f4"))
    for options, said in (
        (["--mask", tool / "small.npy"], "53x40x1"),
        (["--mask", tool / "negative.npy"], "at least 0"),
        (["--mask", tool / "none.npy"], "none.npy"),
        (["--nan", "skip"], "spread, ignore, fill"),
    ):
        command = [tool.path, "filter", tool / "in.npy", tool / "out.npy", *GAUSSIAN, *options]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode and said in run.stderr and not (tool / "out.npy").exists(), run.stderr
        tool.count += 1


if __name__ == "__main__":
    judge.main(__doc__, Tool, "results")
