#!/usr/bin/env python3
"""Compares `apron filter --linear` with SciPy's sums of light in f64.

    python3 light.py --apron target/release/apron

Bytes by the thresholds between them, 16 bits and floats by errors; curves of colour profiles and of
PNG's chunks; colours weighted by alpha; and what is refused.
"""

import struct

import numpy
import scipy.ndimage
import tifffile
from PIL import Image, PngImagePlugin

import judge
from judge import check


def srgb(x):
    return numpy.where(x <= 0.04045, x / 12.92, ((numpy.maximum(x, 0) + 0.055) / 1.055) ** 2.4)


def of_srgb(y):
    return numpy.where(y <= 0.0031308, y * 12.92, 1.055 * numpy.maximum(y, 1e-30) ** (1 / 2.4) - 0.055)


def power(gamma):
    return lambda x: numpy.maximum(x, 0.0) ** gamma


def pq(x):
    m1, m2, c1, c2, c3 = 2610 / 16384, 2523 / 32, 3424 / 4096, 2413 / 128, 2392 / 128
    root = numpy.asarray(x, float) ** (1 / m2)
    return (numpy.maximum(root - c1, 0) / (c2 - c3 * root)) ** (1 / m1)


def gaussian(sigma):
    reach = numpy.arange(-int(4 * sigma + 0.5), int(4 * sigma + 0.5) + 1)
    row = numpy.exp(-0.5 * (reach / sigma) ** 2)
    return row / row.sum()


ROW = gaussian(1.5)


def blurred(light):
    for axis in (0, 1):
        light = scipy.ndimage.correlate1d(light, ROW, axis, mode="mirror")
    return light


def sharpened(light):
    return 1.8 * light - 0.8 * blurred(light)


#: The tool's filter and its sums.
BLUR = f"gaussian:sigma=1.5,size={len(ROW)}", blurred
SHARPEN = "unsharp:sigma=1.5,amount=0.8", sharpened


def bytes_of(light, decode):
    """A byte is the number of thresholds that its sum reaches. Also which are near a threshold."""
    thresholds = numpy.round(2**24 * decode((numpy.arange(255) + 0.5) / 255)) / 2**24
    found = numpy.searchsorted(thresholds, light, side="right")
    near = numpy.abs(light[..., None] - thresholds).min(-1) <= 1e-9
    return found, near


def decoded(image, decode):
    return numpy.round(2**24 * decode(image / 255.0)) / 2**24


def noise(seed, shape, levels=256):
    return numpy.random.default_rng(seed).integers(0, levels, shape).astype(numpy.uint8)


class Tool(judge.Tool):
    def filter(self, source, target, text, *options):
        self.run(source, target, text, "--quiet", *options)

    def bytes(self, source, image, decode, filters=(BLUR, SHARPEN), options=("--linear",)):
        """Filters a picture of bytes and compares every byte."""
        for text, sums in filters:
            self.filter(source, "out.png", text, *options)
            found = numpy.asarray(Image.open(self / "out.png"))
            right, near = bytes_of(sums(decoded(image, decode)), decode)
            wrong = (found != right) & ~near
            assert not wrong.any(), f"{source}, {text}: {wrong.sum()} bytes of {wrong.size} differ"
            assert near.mean() < 1e-3, "too many are near a threshold"
            self.count += found.size


@check
def black_and_white(tool):
    rows, columns = numpy.indices((30, 40))
    Image.fromarray((255 * ((rows + columns) % 2)).astype(numpy.uint8)).save(tool / "in.png")
    for options, right in ((("--linear",), 188), ((), 128)):
        tool.filter("in.png", "out.png", "box:2", *options)
        found = numpy.asarray(Image.open(tool / "out.png"))
        tool.same(set(found.ravel().tolist()), {right}, options)


@check
def colours_and_grey(tool):
    for seed, shape, levels in ((1, (60, 71, 3), 256), (2, (50, 40), 256), (3, (64, 64, 3), 20)):
        image = noise(seed, shape, levels)
        Image.fromarray(image).save(tool / "in.png")
        tool.bytes("in.png", image, srgb)
        tool.bytes("in.png", image, power(2.2), options=("--linear=gamma=2.2",))


@check
def chunks_of_png(tool):
    image = noise(4, (40, 50, 3))
    chunks = {
        "gama.png": [(b"gAMA", struct.pack(">I", 55556))],
        "srgb.png": [(b"gAMA", struct.pack(">I", 100000)), (b"sRGB", b"\0")],
        "cicp.png": [(b"sRGB", b"\0"), (b"cICP", bytes([9, 16, 0, 1]))],
        "light.png": [(b"cICP", bytes([1, 8, 0, 1]))],
    }
    for name, list_of_chunks in chunks.items():
        info = PngImagePlugin.PngInfo()
        for kind, data in list_of_chunks:
            info.add(kind, data)
        Image.fromarray(image).save(tool / name, pnginfo=info)
    tool.bytes("gama.png", image, power(100000 / 55556))
    tool.bytes("srgb.png", image, srgb)
    tool.bytes("cicp.png", image, pq)
    for options in ((), ("--linear",)):
        tool.filter("light.png", f"out{len(options)}.png", BLUR[0], *options)
    out = [numpy.asarray(Image.open(tool / f"out{n}.png")) for n in (0, 1)]
    tool.same((out[0] == out[1]).all(), True, "values that are light")


def profile(curve):
    """A colour profile with one curve for red, green and blue."""
    xyz = lambda *values: b"XYZ \0\0\0\0" + b"".join(struct.pack(">i", round(65536 * value)) for value in values)
    text = b"desc\0\0\0\0" + struct.pack(">I", 5) + b"test\0" + bytes(78)
    tags = {
        b"desc": text, b"wtpt": xyz(0.9642, 1, 0.8249), b"cprt": b"text\0\0\0\0none\0",
        b"rXYZ": xyz(0.4361, 0.2225, 0.0139), b"gXYZ": xyz(0.3851, 0.7169, 0.0971), b"bXYZ": xyz(0.1431, 0.0606, 0.7141),
        b"rTRC": curve, b"gTRC": curve, b"bTRC": curve,
    }
    table, data, start = b"", b"", 128 + 4 + 12 * len(tags)
    for name, value in tags.items():
        table += name + struct.pack(">II", start + len(data), len(value))
        data += value + bytes(-len(value) % 4)
    head = struct.pack(">I", start + len(data)) + bytes(4) + b"\x04\x30\0\0mntrRGB XYZ "
    head += struct.pack(">6H", 2026, 1, 1, 0, 0, 0) + b"acsp" + bytes(28)
    head += struct.pack(">3i", 63190, 65536, 54061)
    return head + bytes(128 - len(head)) + struct.pack(">I", len(tags)) + table + data


@check
def colour_profiles(tool):
    image = noise(5, (45, 35, 3))
    fixed = lambda value: struct.pack(">i", round(65536 * value))
    table = numpy.round(65535 * numpy.linspace(0, 1, 1024) ** 1.8).astype(int)
    curves = {
        "power": (b"para\0\0\0\0\0\0\0\0" + fixed(1.8), power(round(65536 * 1.8) / 65536)),
        "fixed": (b"curv\0\0\0\0" + struct.pack(">IH", 1, 563), power(563 / 256)),
        "table": (
            b"curv\0\0\0\0" + struct.pack(">I", 1024) + b"".join(struct.pack(">H", int(y)) for y in table),
            lambda x: numpy.interp(x, numpy.linspace(0, 1, 1024), table / 65535),
        ),
    }
    for name, (curve, decode) in curves.items():
        Image.fromarray(image).save(tool / f"{name}.png", icc_profile=profile(curve))
        # The reader of profiles keeps numbers in f32: sums within 1e-7 of a threshold may differ.
        tool.filter(f"{name}.png", "out.png", BLUR[0], "--linear")
        found = numpy.asarray(Image.open(tool / "out.png")).astype(int)
        light = blurred(decoded(image, decode))
        right, _ = bytes_of(light, decode)
        tool.same(numpy.abs(found - right).max() <= 1, True, name)
        tool.same((found != right).mean() <= 1e-4, True, f"{name}: {(found != right).mean()}")
        # The profile is kept.
        tool.same("icc_profile" in Image.open(tool / "out.png").info, True, name)


@check
def sixteen_bits(tool):
    image = numpy.random.default_rng(6).integers(0, 65536, (40, 45, 3)).astype(numpy.uint16)
    tifffile.imwrite(tool / "in.tif", image, photometric="rgb")
    for text, sums in (BLUR, SHARPEN):
        tool.filter("in.tif", "out.tif", text, "--linear")
        found = tifffile.imread(tool / "out.tif").astype(float)
        right = numpy.clip(65535 * of_srgb(sums(srgb(image / 65535))), 0, 65535)
        off = numpy.abs(found - right).max()
        tool.same(off <= 0.55, True, f"{text}: {off}")


@check
def floats(tool):
    image = numpy.random.default_rng(7).random((40, 45, 3)).astype(numpy.float32)
    image[3:9, 4:20] *= 1e-3
    image[20:25, 4:20] *= 50
    numpy.save(tool / "in.npy", image)
    tool.filter("in.npy", "out.npy", BLUR[0], "--linear")
    found = numpy.load(tool / "out.npy").astype(float)
    right = of_srgb(blurred(srgb(image.astype(float))))
    off = (numpy.abs(found - right) / right).max()
    tool.same(off <= 3e-6, True, off)
    # Floats made of bytes keep their scale.
    Image.fromarray(noise(8, (30, 40))).save(tool / "in.png")
    tool.filter("in.png", "out.npy", BLUR[0], "--linear", "--output-type", "f32")
    found = numpy.load(tool / "out.npy").squeeze()
    right = 255 * of_srgb(blurred(srgb(noise(8, (30, 40)) / 255)))
    tool.same(numpy.abs(found - right).max() <= 2e-3, True, "floats of bytes")


@check
def alpha(tool):
    image = noise(9, (50, 40, 4))
    image[10:30, 5:25, 3] = 0
    Image.fromarray(image).save(tool / "in.png")
    tool.filter("in.png", "out.png", BLUR[0], "--linear")
    found = numpy.asarray(Image.open(tool / "out.png")).astype(int)
    alpha = image[..., 3].astype(float)
    below = blurred(alpha)
    light = numpy.stack([blurred(decoded(image[..., c], srgb) * alpha) for c in range(3)], -1)
    light = numpy.where(below[..., None] > 0, light / numpy.maximum(below[..., None], 1e-30), 0)
    right, near = bytes_of(light, srgb)
    # Sums of alpha alone are exact in the tool; here those next to nothing are noise.
    near |= (below < 1e-9)[..., None]
    wrong = (found[..., :3] != right) & ~near
    tool.same(int(wrong.sum()), 0, "colours")
    tool.same(bool((numpy.abs(found[..., 3] - below) <= 0.5 + 1e-9).all()), True, "alpha")


@check
def formats_of_light(tool):
    image = numpy.random.default_rng(10).random((20, 30, 3)).astype(numpy.float32)
    numpy.save(tool / "in.npy", image)
    for name in ("in.exr", "in.pfm"):
        tool.filter("in.npy", name, "identity")
        for options in ((), ("--linear",)):
            tool.filter(name, f"out{len(options)}.npy", BLUR[0], *options)
        out = [numpy.load(tool / f"out{n}.npy") for n in (0, 1)]
        tool.same((out[0] == out[1]).all(), True, name)


@check
def what_is_refused(tool):
    Image.fromarray(noise(11, (9, 9, 4))).save(tool / "in.png")
    Image.fromarray(noise(11, (9, 9, 4)), "CMYK").save(tool / "in.jpg")
    tool.FAILURES = (1, 2)
    for source, target, options, text in (
        ("in.png", "out.png", ("--linear", "--alpha", "filter"), "premultiply, keep, drop"),
        ("in.png", "out.png", ("--linear=bright",), "srgb), bt709"),
        ("in.png", "out.png", ("--linear", "--border", "none"), "another border"),
        ("in.png", "out.png", ("--linear", "--mask", "in.png"), "--mask"),
        ("in.jpg", "out.jpg", ("--linear",), "CMYK"),
    ):
        done = tool.call(source, target, "gaussian:1", *options)
        tool.same(done.returncode in (1, 2), True, f"{options}: {done.returncode}")
        tool.same(text in done.stderr, True, f"{options}: {done.stderr}")
        tool.same((tool / target).exists(), False, options)
    done = tool.call("in.png", "out.png", "sobel", "--linear")
    tool.same("filter in linear light" in done.stderr, True, done.stderr)


if __name__ == "__main__":
    judge.main(__doc__, Tool, "linear light")
