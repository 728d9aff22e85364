#!/usr/bin/env python3
"""Compares apron's extra samples after the colours with tifffile, OpenEXR, Pillow and OpenCV.

    python3 extra.py --apron target/release/apron

Every type of fourth sample (straight alpha, premultiplied alpha, a band, unspecified), from every
format that has it into every format, under the identity, an average, and two steps that are no
averages. Expected values come from SciPy in f64. Exits with 1 if anything differs, and if nothing
was compared.
"""

import itertools

import cv2
import numpy
import OpenEXR
import tifffile
from PIL import Image
from scipy import ndimage

import judge
from judge import check, main

# The texts of filters, their taps, and whether they are averages.
GAUSSIAN = numpy.exp(-numpy.arange(-4, 5) ** 2 / 2)
FILTERS = {
    "identity": (numpy.ones((1, 1)), True),
    "gaussian:1": (numpy.outer(GAUSSIAN, GAUSSIAN) / GAUSSIAN.sum() ** 2, True),
    "sobel-x": (numpy.outer([1, 2, 1], [-1, 0, 1]), False),
    "sharpen": (numpy.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]]), False),
}
CODES = {"band": None, "unspecified": 0, "premultiplied": 1, "straight": 2}


class Tool(judge.Tool):
    def near(self, found, expected, what, tolerance=0.0):
        """Integers are rounded half to even; `tolerance` is for near halves and for floats."""
        self.count += 1
        if found.shape != expected.shape:
            raise AssertionError(f"{what}: {found.shape} for {expected.shape}")
        worst = numpy.abs(found.astype(float) - expected).max()
        if not worst <= tolerance:
            at = numpy.unravel_index(numpy.abs(found.astype(float) - expected).argmax(), found.shape)
            raise AssertionError(f"{what}: {worst} off at {at}, {found[at]} for {expected[at]}")


def correlated(values, taps):
    return numpy.stack(
        [ndimage.correlate(values[..., at].astype(float), taps, mode="mirror") for at in range(values.shape[-1])], -1
    )


def expected(values, kind, text):
    """The result before rounding. The last sample has this type, also in the result."""
    taps, average = FILTERS[text]
    if kind in ("band", "unspecified"):
        return correlated(values, taps)
    if not average:
        return numpy.concatenate([correlated(values[..., :-1], taps), values[..., -1:].astype(float)], -1)
    if kind == "premultiplied":
        return correlated(values, taps)
    alpha = values[..., -1:].astype(float)
    weights = correlated(alpha, taps)
    sums = correlated(values[..., :-1] * alpha, taps)
    colours = numpy.divide(sums, weights, out=numpy.zeros_like(sums), where=weights != 0)
    return numpy.concatenate([colours, weights], -1)


def divided(values, white):
    """Straight colours from premultiplied colours."""
    alpha = values[..., -1:]
    colours = numpy.divide(values[..., :-1] * white, alpha, out=numpy.zeros_like(values[..., :-1]), where=alpha > 0)
    return numpy.concatenate([colours, alpha], -1)


def multiplied(values, white):
    return numpy.concatenate([values[..., :-1] * values[..., -1:] / white, values[..., -1:]], -1)


def rounded(values, dtype):
    if numpy.dtype(dtype).kind == "f":
        return values
    limits = numpy.iinfo(dtype)
    return numpy.clip(numpy.rint(values), limits.min, limits.max)


def tolerance(dtype, text):
    """A sum in f32 near a half may be rounded either way."""
    kind = numpy.dtype(dtype)
    if kind.kind == "f":
        return {2: 2e-3, 4: 3e-6}[kind.itemsize]
    return 0.0 if text == "identity" else 1.0


def white(dtype):
    return float(numpy.iinfo(dtype).max) if numpy.dtype(dtype).kind == "u" else 1.0


def picture(dtype, channels, seed=1):
    """Noise, with areas in which the last sample is 0, and others in which it is full."""
    rng = numpy.random.default_rng(seed)
    values = rng.random((19, 23, channels))
    values[:7, :9, -1] = 0
    values[9:, 14:, -1] = 1
    scaled = values * white(dtype)
    return numpy.rint(scaled).astype(dtype) if numpy.dtype(dtype).kind == "u" else scaled.astype(dtype)


def write_tiff(path, values, colours, codes):
    """Writes these codes in ExtraSamples, or without codes renames tifffile's own tag."""
    photometric = "rgb" if colours == 3 else "minisblack"
    settings = {"extrasamples": codes} if codes else {}
    tifffile.imwrite(path, values, photometric=photometric, planarconfig="contig", metadata=None, **settings)
    if not codes and values.shape[-1] > colours:
        with tifffile.TiffFile(path) as file:
            place = file.pages[0].tags[338].offset
        with open(path, "r+b") as file:
            file.seek(place)
            file.write((339 + 64000).to_bytes(2, "little"))
        # Directories are sorted, so the entry moves to the end.
        resort(path)


def resort(path):
    with tifffile.TiffFile(path) as file:
        start, count = file.pages[0].offset, len(file.pages[0].tags)
    with open(path, "r+b") as file:
        file.seek(start + 2)
        entries = [file.read(12) for _ in range(count)]
        file.seek(start + 2)
        file.write(b"".join(sorted(entries, key=lambda entry: int.from_bytes(entry[:2], "little"))))


def read_tiff(path):
    """Values, the number of colours by the photometric tag, and the codes."""
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        tag = page.tags.get(338)
        values = page.asarray()
        codes = None if tag is None else tuple(numpy.ravel(tag.value).tolist())
        return (values if values.ndim == 3 else values[..., None]), {1: 1, 2: 3}[int(page.photometric)], codes


def write_exr(path, values):
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    with OpenEXR.File(header, {"RGBA": values}) as file:
        file.write(str(path))


def read_exr(path):
    with OpenEXR.File(str(path)) as file:
        return file.channels()["RGBA"].pixels


KINDS = ["band", "unspecified", "premultiplied", "straight"]


@check
def tiff_to_tiff(tool):
    """Every extra sample, after one and three colours, of every number type, keeps its tags."""
    for dtype, colours, kind in itertools.product(("u1", "u2", "f2", "f4"), (1, 3), KINDS):
        values = picture(dtype, colours + 1)
        codes = None if CODES[kind] is None else (CODES[kind],)
        write_tiff(tool / "in.tif", values, colours, codes)
        for text in FILTERS:
            what = f"{dtype}, {colours} and {kind}, {text}"
            said = tool.run("in.tif", "out.tif", text, "--quiet")
            tool.same(said, "", what)
            found, found_colours, found_codes = read_tiff(tool / "out.tif")
            tool.same((found.dtype, found_colours, found_codes), (values.dtype, colours, codes), what)
            exact = rounded(expected(values, kind, text), dtype)
            tool.near(found, exact, what, tolerance(dtype, text) * (8 if text in ("sharpen", "sobel-x") else 1))


@check
def tiffs_of_many_bands(tool):
    """Any number of bands, with and without a tag, with alpha among them, in every compression."""
    cases = [
        (1, 4, (0, 0, 0)), (1, 4, None), (1, 2, (0,)), (1, 2, None), (1, 7, (0,) * 6), (1, 13, None), (3, 5, (0, 0)),
        (3, 6, None), (3, 5, (0, 2)), (3, 5, (2, 0)), (3, 6, (0, 1, 0)), (1, 3, (0, 0)), (1, 3, (1, 0)), (3, 40, (0,) * 37),
    ]  # fmt: skip
    for (colours, channels, codes), dtype in itertools.product(cases, ("u1", "u2", "f4")):
        values = picture(dtype, channels, seed=channels)
        write_tiff(tool / "in.tif", values, colours, codes)
        alpha = next((at for at, code in enumerate(codes or ()) if code in (1, 2)), None)
        kind = {None: "band", 1: "premultiplied", 2: "straight"}[None if alpha is None else codes[alpha]]
        for text, compression in itertools.product(FILTERS, ("none", "deflate", "lzw", "packbits")):
            if compression != "none" and text != "identity":
                continue
            what = f"{dtype}, {channels} samples, {codes}, {text}, {compression}"
            tool.same(tool.run("in.tif", "out.tif", text, "--quiet", "--compression", compression), "", what)
            if compression == "lzw":
                # tifffile needs another library for it.
                tool.run("out.tif", "plain.tif", "identity", "--alpha", "filter")
            found, found_colours, found_codes = read_tiff(tool / ("plain.tif" if compression == "lzw" else "out.tif"))
            tool.same((found.dtype, found_colours, found_codes), (values.dtype, colours, codes), what)
            if alpha is None:
                exact = expected(values, kind, text)
            else:
                at = colours + alpha
                order = [*range(at), *range(at + 1, channels), at]
                exact = numpy.empty(values.shape)
                exact[..., order] = expected(values[..., order], kind, text)
            slack = tolerance(dtype, text) * (8 if text in ("sharpen", "sobel-x") else 1)
            tool.near(found, rounded(exact, dtype), what, slack)
    # Planes of samples, tiles, big-endian values, and BigTIFF.
    values = picture("u2", 5)
    for settings in ({"planarconfig": "separate"}, {"tile": (16, 16)}, {"byteorder": ">"}, {"bigtiff": True}):
        data = numpy.moveaxis(values, -1, 0) if "planarconfig" in settings else values
        options = {"planarconfig": "contig", **settings}
        tifffile.imwrite(tool / "in.tif", data, photometric="rgb", extrasamples=(0, 0), metadata=None, **options)
        tool.same(tool.run("in.tif", "out.tif"), "", f"{settings}")
        found, colours, codes = read_tiff(tool / "out.tif")
        tool.same((colours, codes), (3, (0, 0)), f"{settings}")
        tool.near(found, values.astype(float), f"{settings}")


@check
def bands_in_pages(tool):
    """A page with bands does not change the pages before and after it."""
    pages = [picture("u1", 3, 1), picture("u1", 5, 2), picture("u1", 4, 3), picture("u1", 3, 4)]
    with tifffile.TiffWriter(tool / "pages.tif") as out:
        for page in pages:
            extra = {3: {}, 4: {"extrasamples": (2,)}, 5: {"extrasamples": (0, 0)}}[page.shape[-1]]
            out.write(page, photometric="rgb", metadata=None, **extra)
    tool.same(tool.run("pages.tif", "out.tif"), "", "pages")
    with tifffile.TiffFile(tool / "out.tif") as file:
        tool.same(len(file.pages), 4, "pages")
        for index, page in enumerate(file.pages):
            kept = expected(pages[index], "straight", "identity") if index == 2 else pages[index]
            tool.near(page.asarray(), kept.astype(float), f"page {index}")
    tool.run("pages.tif", "one.tif", "identity", "--page", "2")
    tool.near(read_tiff(tool / "one.tif")[0], pages[1].astype(float), "page 2 alone")


@check
def premultiplied_and_straight(tool):
    """From a TIFF with either form of alpha into formats with either, and into arrays."""
    for dtype, colours, kind in itertools.product(("u1", "u2"), (1, 3), ("premultiplied", "straight")):
        values = picture(dtype, colours + 1)
        write_tiff(tool / "in.tif", values, colours, (CODES[kind],))
        for text in FILTERS:
            exact = expected(values, kind, text)
            straight = divided(exact, white(dtype)) if kind == "premultiplied" else exact
            slack = tolerance(dtype, text) * (8 if text in ("sharpen", "sobel-x") else 1)
            for target in ("png", "webp", "qoi", "tga", "bmp", "pam", "ff"):
                held = {"png": True, "pam": dtype == "u1" or colours == 3, "ff": dtype == "u2" and colours == 3}
                eight = dtype == "u1" and (colours == 3 or target in ("webp", "tga"))
                if not held.get(target, eight and target != "ff"):
                    continue
                what = f"{dtype}, {colours} and {kind}, {text}, {target}"
                tool.run("in.tif", f"out.{target}", text, "--quiet")
                # The tool reads its own output, as other programs do not read all of these. OpenCV
                # reads the PNG below.
                tool.run(f"out.{target}", "back.npy", "identity", "--alpha", "filter")
                found = numpy.load(tool / "back.npy")
                if found.shape[-1] != colours + 1:
                    found = numpy.concatenate([found[..., :colours], found[..., -1:]], -1)
                tool.near(found, rounded(straight, dtype), what, slack)
                if target == "png" and colours == 3:
                    theirs = cv2.imread(str(tool / "out.png"), cv2.IMREAD_UNCHANGED)[..., [2, 1, 0, 3]]
                    tool.near(theirs, found.astype(float), f"{what}, OpenCV")
            said = tool.run("in.tif", "out.npy", text)
            tool.near(numpy.load(tool / "out.npy"), rounded(exact, dtype), f"{kind}, {text}, npy", slack)
            tool.same("multiplied by alpha" in said, kind == "premultiplied", f"npy: {said}")
            # OpenEXR has f32, and its colours are premultiplied.
            if colours == 3:
                tool.run("in.tif", "out.exr", text, "--output-type", "f32", "--scale", "full", "--quiet")
                found = read_exr(tool / "out.exr")
                exact = exact if kind == "premultiplied" else multiplied(exact, white(dtype))
                tool.near(found, exact / white(dtype), f"{dtype}, {kind}, {text}, exr", 4e-6)


@check
def openexr(tool):
    values = picture("f4", 4, seed=5)
    write_exr(tool / "in.exr", values)
    for text in FILTERS:
        exact = expected(values, "premultiplied", text)
        tool.same(tool.run("in.exr", "out.exr", text), "", text)
        found = read_exr(tool / "out.exr")
        tool.near(found, exact, f"exr, {text}", 0.0 if text == "identity" else 4e-6)
        tool.same(tool.run("in.exr", "out.tif", text), "", text)
        found, colours, codes = read_tiff(tool / "out.tif")
        tool.same((found.dtype.name, colours, codes), ("float32", 3, (1,)), f"exr to tif, {text}")
        tool.near(found, exact, f"exr to tif, {text}", 0.0 if text == "identity" else 4e-6)
        for dtype, name in (("u1", "u8"), ("u2", "u16")):
            said = tool.run("in.exr", "out.png", text, "--output-type", name, "--scale", "full")
            found = cv2.imread(str(tool / "out.png"), cv2.IMREAD_UNCHANGED)[..., [2, 1, 0, 3]]
            straight = divided(exact, 1.0) * white(dtype)
            tool.near(found, rounded(straight, dtype), f"exr to png, {name}, {text}", 1.0)
            # A colour with alpha 0 is a glow, which a PNG cannot hold.
            tool.same("glow" in said and said.count("\n") == 1, True, f"{text}: {said!r}")
    # A glow, and a soft edge.
    glow = numpy.zeros((9, 9, 4), "f4")
    glow[4, 4] = (0.5, 0.5, 0.5, 0)
    write_exr(tool / "glow.exr", glow)
    tool.run("glow.exr", "same.exr")
    tool.near(read_exr(tool / "same.exr"), glow.astype(float), "a glow")
    edge = numpy.zeros((9, 9, 4), "f4")
    edge[:, 5:] = (1, 0, 0, 1)
    edge[:, 4] = (0.5, 0, 0, 0.5)
    write_exr(tool / "edge.exr", edge)
    tool.run("edge.exr", "soft.exr", "gaussian:2")
    row, wide = numpy.array([0, 0, 0, 0, 0.5, 1, 1, 1, 1.0]), numpy.exp(-numpy.arange(-8, 9) ** 2 / 8)
    exact = ndimage.correlate(row, wide / wide.sum(), mode="mirror")
    for channel in (0, 3):
        tool.near(read_exr(tool / "soft.exr")[4, :, channel], exact, "a soft edge", 1e-6)
    # Division by alpha does not change opaque pixels.
    opaque = picture("f4", 4, seed=6)
    opaque[..., 3] = 1
    write_exr(tool / "in.exr", opaque)
    tool.same(tool.run("in.exr", "out.png", "identity", "--output-type", "u8", "--scale", "full"), "", "opaque")
    found = cv2.imread(str(tool / "out.png"), cv2.IMREAD_UNCHANGED)[..., [2, 1, 0, 3]]
    tool.near(found, rounded(opaque.astype(float) * 255, "u1"), "opaque")


@check
def modes(tool):
    """Each mode over each type of sample: the command line overrides the file."""
    ground = {"black": 0.0, "white": 255.0}
    for colours, kind, text in itertools.product((1, 3), KINDS, ("gaussian:1", "sobel-x")):
        values = picture("u1", colours + 1)
        codes = None if CODES[kind] is None else (CODES[kind],)
        write_tiff(tool / "in.tif", values, colours, codes)
        taps, average = FILTERS[text]
        plain, alpha = correlated(values, taps), values[..., -1:].astype(float)
        kept = numpy.concatenate([plain[..., :-1], alpha], -1)
        results = {
            "auto": (expected(values, kind, text), codes),
            "keep": (kept, codes),
            "filter": (plain, codes),
            "drop": (plain[..., :-1], ()),
            "premultiplied": (expected(values, "premultiplied", text), (1,)),
        }
        if average:
            results["premultiply"] = (expected(values, "straight", text), (2,))
        for name, value in ground.items():
            weight = 255.0 if kind == "premultiplied" else alpha
            laid = rounded((values[..., :-1] * weight + value * (255 - alpha)) / 255, "u1")
            results[f"flatten={name}"] = (correlated(laid, taps), ())
        for mode, (exact, result_codes) in results.items():
            what = f"{colours} and {kind}, {text}, {mode}"
            tool.same(tool.run("in.tif", "out.tif", text, "--quiet", "--alpha", mode), "", what)
            found, found_colours, found_codes = read_tiff(tool / "out.tif")
            tool.same((found_colours, found_codes), (colours, result_codes or None), what)
            tool.near(found, rounded(exact, "u1"), what, 1.0)
        if not average:
            said = tool.call("in.tif", "never.tif", text, "--alpha", "premultiply")
            tool.same((said.returncode, "sum to 1" in said.stderr), (1, True), f"{kind}: {said.stderr}")


@check
def formats_that_have_no_bands(tool):
    """Formats whose fourth channel is alpha refuse a fourth band. The error names a remedy."""
    for colours, codes in ((3, None), (3, (0, 0)), (1, (0, 0, 0)), (1, None)):
        channels = 2 if colours == 1 and codes is None else colours + len(codes or (0,))
        values = picture("u1", channels)
        write_tiff(tool / "in.tif", values, colours, codes)
        for target in ("png", "webp", "tga", "bmp", "gif", "qoi", "pam", "jpg"):
            said = tool.fails("in.tif", f"out.{target}")
            tool.same("write" in said and "tif" in said, True, f"{target}: {said}")
        if codes is None:
            tool.same("--alpha drop" in tool.fails("in.tif", "out.png"), True, "the way out")
            tool.run("in.tif", "out.png", "identity", "--alpha", "drop")
            found = numpy.array(Image.open(tool / "out.png")).reshape(19, 23, colours)
            tool.near(found, values[..., :-1].astype(float), "the band is left out")
            tool.run("in.tif", "out.png", "identity", "--alpha", "premultiply")
            tool.same(Image.open(tool / "out.png").mode, "RGBA" if colours == 3 else "LA", "said to be alpha")
        tool.run("in.tif", "out.npy")
        tool.near(numpy.load(tool / "out.npy"), values.astype(float), "as an array")
    # An array has no tags: its last channel becomes alpha if the format has nothing else, and the
    # tool says so.
    for channels, mode in ((2, "LA"), (4, "RGBA")):
        values = picture("u1", channels)
        numpy.save(tool / "a.npy", values)
        said = tool.run("a.npy", "a.png")
        tool.same((said.count("\n"), "alpha" in said), (1, True), said)
        with Image.open(tool / "a.png") as found:
            tool.same(found.mode, mode, "an array as PNG")
            tool.near(numpy.array(found), values.astype(float), "an array as PNG")
        tool.same(tool.run("a.npy", "a.tif"), "", "an array as TIFF")
        found, colours, codes = read_tiff(tool / "a.tif")
        tool.same((colours, codes), (channels - 1, (0,)), "an array as TIFF")
        tool.run("a.npy", "b.npy", "gaussian:1")
        exact = expected(values, "unspecified", "gaussian:1")
        tool.near(numpy.load(tool / "b.npy"), rounded(exact, "u1"), "an array", 1.0)
        tool.run("a.npy", "b.npy", "gaussian:1", "--alpha", "premultiply")
        exact = expected(values, "straight", "gaussian:1")
        tool.near(numpy.load(tool / "b.npy"), rounded(exact, "u1"), "an array with alpha", 1.0)


@check
def straight_formats(tool):
    """Formats with straight alpha, written by Pillow: alpha weights the colours."""
    for kind, dtype in itertools.product(("png", "webp", "tga"), ("u1",)):
        values = picture(dtype, 4, seed=8)
        Image.fromarray(values, "RGBA").save(tool / f"s.{kind}", **({"lossless": True, "exact": True} if kind == "webp" else {}))
        for text in FILTERS:
            exact = expected(values, "straight", text)
            for target in ("png", "webp", "tga", "tif"):
                tool.run(f"s.{kind}", f"out.{target}", text, "--quiet")
                tool.run(f"out.{target}", "back.npy", "identity", "--alpha", "filter")
                found = numpy.load(tool / "back.npy")
                tool.near(found, rounded(exact, dtype), f"{kind} to {target}, {text}", 0.0 if text == "identity" else 1.0)
            tool.same(read_tiff(tool / "out.tif")[2], (2,), f"{kind} to tif")


@check
def tga_attributes(tool):
    """A TGA's extension area gives the type of alpha. Pillow writes none."""
    values = picture("u1", 4, seed=9)
    Image.fromarray(values, "RGBA").save(tool / "plain.tga")
    plain = (tool / "plain.tga").read_bytes()
    tool.same(plain[-18:], b"TRUEVISION-XFILE.\0", "Pillow's footer")
    for attributes, kind in ((0, "straight"), (1, "unspecified"), (2, "unspecified"), (3, "straight"), (4, "premultiplied")):
        area = (495).to_bytes(2, "little") + bytes(492) + bytes([attributes])
        place = len(plain) - 26
        footer = place.to_bytes(4, "little") + plain[-22:]
        (tool / "in.tga").write_bytes(plain[:-26] + area + footer)
        for text in FILTERS:
            tool.same(tool.run("in.tga", "out.tif", text, "--quiet"), "", f"tga, {attributes}")
            found, _, codes = read_tiff(tool / "out.tif")
            tool.same(codes, (CODES[kind],), f"tga, {attributes}")
            tool.near(found, rounded(expected(values, kind, text), "u1"), f"tga, {attributes}, {text}", tolerance("u1", text))


@check
def large_files_in_chunks(tool):
    """Bands are filtered in chunks; alpha goes through memory. The files are the same."""
    for colours, codes in ((3, (0,)), (3, None), (1, (0, 0, 0, 0)), (3, (2,)), (3, (1,))):
        values = picture("u2", colours + len(codes or (0,)))
        write_tiff(tool / "in.tif", values, colours, codes)
        chunked = tool.run("in.tif", "chunks.tif", "gaussian:1", "--chunk-above", "0", "--verbose")
        whole = tool.run("in.tif", "whole.tif", "gaussian:1", "--verbose")
        alpha = codes in ((1,), (2,))
        tool.same(("in chunks" in chunked, "in chunks" in whole), (not alpha, False), f"{codes}")
        tool.same((tool / "chunks.tif").read_bytes() == (tool / "whole.tif").read_bytes(), True, f"bytes of {codes}")
        tool.same(read_tiff(tool / "chunks.tif")[1:], (colours, codes), f"tags of {codes}")
    # A mode for the last channel needs the whole picture.
    numpy.save(tool / "a.npy", picture("u1", 4))
    said = tool.run("a.npy", "b.npy", "gaussian:1", "--chunk-above", "0", "--verbose", "--alpha", "premultiply")
    tool.same("in chunks" in said, False, "a mode")


if __name__ == "__main__":
    main(__doc__, Tool, "extra samples")
