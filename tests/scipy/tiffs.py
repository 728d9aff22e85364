#!/usr/bin/env python3
"""Compares apron's reading of TIFFs of many compressions, palettes and bits with Pillow and tifffile.

    python3 tiffs.py --apron target/release/apron

Pillow's libtiff, or tifffile with data that other libraries compressed, writes the inputs. The
identity reads them, and Pillow or the original values tell what is right. Then PGM, PPM, PAM and
PFM are compared with OpenCV and with the formats' texts. Exits with 1 if anything differs, and if
nothing was compared.
"""

import io
import itertools
import lzma
import subprocess

import cv2
import numpy
import tifffile
from PIL import Image, features

import judge
from judge import check, main


class Tool(judge.Tool):
    def run(self, source, target, *options):
        return super().run(source, target, "identity", *options)

    def read(self, source, *options):
        """The tool's values of a picture."""
        self.run(source, "read.npy", "--quiet", *options)
        return numpy.load(self / "read.npy")

    def near(self, found, expected, what, tolerance=0):
        self.count += 1
        if (found.shape, found.dtype) != (expected.shape, expected.dtype):
            raise AssertionError(f"{what}: {found.shape} {found.dtype} for {expected.shape} {expected.dtype}")
        worst = numpy.abs(found.astype(float) - expected.astype(float)).max()
        if not worst <= tolerance:
            raise AssertionError(f"{what}: {worst} off")


def smooth(channels=3, seed=1):
    noise = numpy.random.default_rng(seed).integers(0, 256, (61, 83, channels), dtype=numpy.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 2).reshape(61, 83, channels)


def pictures():
    rgb = smooth()
    wide = rgb.astype(numpy.uint16) * 257 + 3
    return {
        "bits": Image.fromarray(rgb).convert("1"),
        "grey": Image.fromarray(rgb[..., 0]),
        "wide": Image.fromarray(wide[..., 0]),
        "float": Image.fromarray(rgb[..., 0].astype("f4") / 7),
        "rgb": Image.fromarray(rgb),
        "rgba": Image.fromarray(numpy.dstack([rgb, rgb[..., :1]])),
        "cmyk": Image.fromarray(smooth(4), "CMYK"),
        "palette": Image.fromarray(rgb).quantize(200),
    }


def values(picture):
    if picture.mode == "P":
        return numpy.array(picture.convert("RGB"))
    if picture.mode == "1":
        return numpy.array(picture.convert("L"))
    return numpy.array(picture)


@check
def compressions(tool):
    """Everything that Pillow's libtiff writes, in one strip and in several, whole and as a page."""
    for (name, picture), method in itertools.product(
        pictures().items(), ("raw", "zstd", "lzma", "tiff_lzw", "tiff_adobe_deflate", "packbits", "group4")
    ):
        if method == "group4" and name != "bits":
            continue
        for size in (None, 2000):
            strips = {} if size is None else {"strip_size": size}
            picture.save(tool / "in.tif", compression=method, **strips)
            what = f"{name}, {method}, {size}"
            target = "out.tif" if name == "cmyk" else "out.npy"
            tool.same(tool.run("in.tif", target), "", what)
            if name == "cmyk":
                with Image.open(tool / "out.tif") as found:
                    tool.same(found.mode, "CMYK", what)
                    tool.near(numpy.array(found), values(picture), what)
            else:
                tool.near(numpy.load(tool / "out.npy"), values(picture), what)
    first, *others = [picture for name, picture in pictures().items() if name != "cmyk"]
    for method in ("zstd", "lzma"):
        first.save(tool / "in.tif", compression=method, save_all=True, append_images=others)
        tool.same(tool.run("in.tif", "out.tif"), "", f"pages, {method}")
        with tifffile.TiffFile(tool / "out.tif") as file:
            tool.same(len(file.pages), 1 + len(others), "pages")
            for number, (page, picture) in enumerate(zip(file.pages, [first, *others])):
                tool.near(page.asarray(), values(picture), f"page {number}, {method}")
        tool.near(tool.read("in.tif", "--page", "3"), values(others[1]), f"page 3, {method}")


def encoded(array, method):
    """One strip or tile, by another library than tifffile's."""
    file = io.BytesIO()
    if method == "lzma":
        return lzma.compress(array.tobytes())
    Image.fromarray(array).save(file, method, **({"lossless": True, "exact": True} if method == "webp" else {"quality": 100, "subsampling": 0}))
    return file.getvalue()


def write(path, chunks, shape, method, ratio=None, **settings):
    """A TIFF of strips or tiles that are compressed already. tifffile knows lzma without a library."""
    tifffile.imwrite(path, iter(chunks), shape=shape, dtype="u1", compression="lzma", metadata=None, **settings)
    if method != "lzma":
        with tifffile.TiffFile(path, mode="r+b") as file:
            file.pages[0].tags["Compression"].overwrite({"webp": 50001, "jpeg": 7}[method])
    if ratio:
        with tifffile.TiffFile(path, mode="r+b") as file:
            file.pages[0].tags["YCbCrSubSampling"].overwrite(ratio)


@check
def layouts(tool):
    """Tiles, planes, byte orders, BigTIFF and predictors, with LZMA, WebP and JPEG."""
    rgb = smooth()
    padded = numpy.zeros((64, 96, 3), numpy.uint8)
    padded[:61, :83] = rgb
    tiles = [padded[y : y + 32, x : x + 32].copy() for y in (0, 32) for x in (0, 32, 64)]
    rows = [rgb[y : y + 16] for y in range(0, 61, 16)]
    for method, big, order in itertools.product(("lzma", "webp", "jpeg"), (False, True), "<>"):
        exact = {"lzma": 0, "webp": 0, "jpeg": 4}[method]
        for name, chunks, options in (("tiles", tiles, {"tile": (32, 32)}), ("strips", rows, {"rowsperstrip": 16})):
            data = [encoded(chunk, method) for chunk in chunks]
            # Pillow's JPEG holds luma and chroma.
            photometric = "ycbcr" if method == "jpeg" else "rgb"
            settings = {"bigtiff": big, "byteorder": order, "photometric": photometric, **options}
            write(tool / "in.tif", data, rgb.shape, method, **settings)
            tool.near(tool.read("in.tif"), rgb, f"{method}, {name}, big {big}, {order}", exact)
    planes = iter([encoded(rgb[y : y + 16, :, at].copy(), "lzma") for at in range(3) for y in range(0, 61, 16)])
    tifffile.imwrite(tool / "in.tif", planes, shape=(3, 61, 83), dtype="u1", photometric="rgb", planarconfig="separate",
                     compression="lzma", rowsperstrip=16, metadata=None)  # fmt: skip
    tool.near(tool.read("in.tif"), rgb, "planes")
    wide = smooth().astype(numpy.uint16) * 200
    for kind in ("<u2", ">u2"):
        differences = numpy.concatenate([wide[:, :1], numpy.diff(wide, axis=1)], 1).astype(kind)
        tifffile.imwrite(tool / "in.tif", iter([encoded(differences, "lzma")]), shape=wide.shape, dtype=kind, byteorder=kind[0],
                         photometric="rgb", compression="lzma", metadata=None)  # fmt: skip
        insert(tool / "in.tif", 317, 2, kind[0])
        tool.near(tool.read("in.tif"), wide, f"a predictor, {kind}")


def insert(path, tag, value, order):
    """Renames the Software tag, which tifffile writes, to a short one."""
    with tifffile.TiffFile(path) as file:
        place = file.pages[0].tags["Software"].offset
        start, count = file.pages[0].offset, len(file.pages[0].tags)
    small = {"<": "little", ">": "big"}[order]
    entry = tag.to_bytes(2, small) + (3).to_bytes(2, small) + (1).to_bytes(4, small) + value.to_bytes(2, small) + b"\0\0"
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(entry)
        file.seek(start + 2)
        entries = sorted((file.read(12) for _ in range(count)), key=lambda it: int.from_bytes(it[:2], small))
        file.seek(start + 2)
        file.write(b"".join(entries))


@check
def luma_and_chroma(tool):
    """JPEG in a TIFF, as libtiff's own tools write it: luma and chroma, with and without sharing."""
    rgb = smooth()
    for sampling in (0, 1, 2):
        file = io.BytesIO()
        Image.fromarray(rgb).save(file, "jpeg", quality=95, subsampling=sampling)
        ratio = [(1, 1), (2, 1), (2, 2)][sampling]
        write(tool / "in.tif", [file.getvalue()], rgb.shape, "jpeg", ratio, photometric="ycbcr")
        with Image.open(tool / "in.tif") as theirs:
            expected = numpy.array(theirs.convert("RGB"))
        # Decoders scale chroma in slightly different ways.
        tool.near(tool.read("in.tif"), expected, f"JPEG, {sampling}", 3 if sampling == 0 else 12)
        tool.same(tool.run("in.tif", "out.tif"), "", "no note")
    pixels = numpy.array(Image.fromarray(rgb).convert("YCbCr"))
    for method in ("lzma", None):
        data = iter([encoded(pixels, "lzma")]) if method else pixels
        tifffile.imwrite(tool / "in.tif", data, shape=rgb.shape, dtype="u1", photometric="ycbcr", compression=method,
                         subsampling=(1, 1), metadata=None)  # fmt: skip
        tool.near(tool.read("in.tif"), numpy.array(Image.fromarray(pixels, "YCbCr").convert("RGB")), f"YCbCr, {method}", 1)


@check
def palettes(tool):
    rng = numpy.random.default_rng(5)
    for bits in (1, 2, 4, 8):
        levels = rng.integers(0, 1 << bits, (31, 45), dtype=numpy.uint8)
        for name, colours in (
            ("bytes", rng.integers(0, 256, (3, 1 << bits)) * 257),
            ("high bytes", rng.integers(0, 256, (3, 1 << bits)) * 256),
            ("words", rng.integers(0, 65536, (3, 1 << bits))),
        ):
            colours = colours.astype(numpy.uint16)
            colours[:, :1] = 0x1200 if name == "high bytes" else 0x1234 if name == "words" else 0x1212
            packed(tool / "in.tif", levels[..., None], bits, 3, colours)
            expected = numpy.moveaxis(colours[:, levels], 0, -1)
            expected = expected if name == "words" else (expected >> 8).astype(numpy.uint8)
            tool.near(tool.read("in.tif"), expected, f"{bits} bits, {name}")
            if bits == 8 and name != "words":
                with Image.open(tool / "in.tif") as theirs:
                    tool.near(tool.read("in.tif"), numpy.array(theirs.convert("RGB")), f"{name}, Pillow")
            tool.same(tool.run("in.tif", "out.tif"), "", f"{bits} bits, {name}")
            with tifffile.TiffFile(tool / "out.tif") as file:
                page = file.pages[0]
                tool.same((int(page.photometric), 320 in page.tags), (2, False), "RGB")
                tool.near(page.asarray(), expected, "RGB")
    packed(tool / "in.tif", levels[..., None], 8, 3, colours[:, :100])
    tool.same("palette" in tool.fails("in.tif", "never.npy"), True, "a short palette")


def packed(path, samples, bits, photometric, colours=None, extra=(), order="<", rows=None, compression=1, reverse=False):
    """Writes a TIFF of samples of any bits, row by row."""
    height, width, channels = samples.shape
    flat = samples.reshape(height, -1).astype(numpy.uint32)
    all_bits = (flat[..., None] >> numpy.arange(bits - 1, -1, -1)) & 1
    lines = numpy.packbits(all_bits.reshape(height, -1).astype(numpy.uint8), axis=1, bitorder="little" if reverse else "big")
    rows = rows or height
    pack = (lambda data: lzma.compress(data)) if compression == 34925 else (lambda data: data)
    strips = [pack(lines[y : y + rows].tobytes()) for y in range(0, height, rows)]
    word = {"<": "little", ">": "big"}[order]

    def numbers(values, size):
        return b"".join(int(value).to_bytes(size, word) for value in values)

    tags = {256: (4, [width]), 257: (4, [height]), 258: (3, [bits] * channels), 259: (3, [compression]), 262: (3, [photometric]),
            273: (4, [0] * len(strips)), 277: (3, [channels]), 278: (4, [rows]), 279: (4, [len(strip) for strip in strips])}  # fmt: skip
    tags |= {320: (3, colours.ravel())} if colours is not None else {}
    tags |= {338: (3, list(extra))} if extra else {}
    tags |= {266: (3, [2])} if reverse else {}
    at = 8 + 2 + 12 * len(tags) + 4
    for data in (False, True):
        place, body, entries = at, b"", b""
        offsets = []
        for strip in strips:
            offsets.append(place)
            body, place = body + strip, place + len(strip)
        tags[273] = (4, offsets)
        for number, (kind, values) in sorted(tags.items()):
            value = numbers(values, {3: 2, 4: 4}[kind])
            if len(value) > 4:
                body, value, place = body + value, numbers([place], 4), place + len(value)
            entries += numbers([number, kind], 2) + numbers([len(values)], 4) + value.ljust(4, b"\0")
    head = (b"II" if order == "<" else b"MM") + numbers([42], 2) + numbers([8], 4)
    path.write_bytes(head + numbers([len(tags)], 2) + entries + numbers([0], 4) + body)


@check
def bits(tool):
    """Samples of 2 to 15 bits, of any channels, which keep white white."""
    rng = numpy.random.default_rng(6)
    for depth, channels, order in itertools.product((2, 3, 5, 6, 7, 9, 10, 12, 14, 15), (1, 3, 4, 5), "<>"):
        samples = rng.integers(0, 1 << depth, (31, 45, channels))
        samples[0, :2] = [[0], [(1 << depth) - 1]]
        photometric = 1 if channels == 1 else 2
        extra = {4: (2,), 5: (0, 0)}.get(channels, ())
        white, dtype = (255, numpy.uint8) if depth < 8 else (65535, numpy.uint16)
        expected = numpy.rint(samples * (white / ((1 << depth) - 1))).astype(dtype)
        for options in ({}, {"rows": 7}, {"rows": 7, "compression": 34925}, {"reverse": True}):
            if options.get("reverse") and depth == 2 and channels == 1:
                continue
            packed(tool / "in.tif", samples, depth, photometric, extra=extra, order=order, **options)
            what = f"{depth} bits, {channels} channels, {order}, {options}"
            found = tool.read("in.tif", "--alpha", "filter")
            tool.near(found.reshape(expected.shape), expected, what)
        said = tool.run("in.tif", "out.tif", "--alpha", "filter")
        tool.same(f"{depth} bits became" in said or depth == 2 and channels == 1, True, said)
        with tifffile.TiffFile(tool / "out.tif") as file:
            tool.near(file.pages[0].asarray().reshape(expected.shape), expected, f"{depth} bits as tif")
            tool.same([int(it) for it in file.pages[0].extrasamples], list(extra), "extra samples")
    samples = rng.integers(0, 4096, (31, 44, 1))
    packed(tool / "in.tif", samples, 12, 1)
    with Image.open(tool / "in.tif") as theirs:
        tool.near(numpy.array(theirs).astype(numpy.int64)[..., None], samples, "Pillow's 12 bits")
    packed(tool / "in.tif", samples, 12, 0)
    expected = numpy.rint((4095 - samples[..., 0]) * (65535 / 4095)).astype(numpy.uint16)
    tool.near(tool.read("in.tif"), expected, "white is zero")


@check
def inks_and_more(tool):
    """CMYK with spot colours or alpha: every sample is kept."""
    rng = numpy.random.default_rng(7)
    for dtype, extra in itertools.product(("u1", "u2"), ((0,), (2,), (0, 0, 0))):
        samples = rng.integers(1, 256, (31, 45, 4 + len(extra))).astype(dtype)
        tifffile.imwrite(tool / "in.tif", samples, photometric="separated", planarconfig="contig", extrasamples=extra, metadata=None)
        tool.same(tool.run("in.tif", "out.tif", "--alpha", "filter"), "", f"{dtype}, {extra}")
        with tifffile.TiffFile(tool / "out.tif") as file:
            page = file.pages[0]
            tool.same((int(page.photometric), [int(it) for it in page.extrasamples]), (5, list(extra)), f"{dtype}, {extra}")
            tool.near(page.asarray(), samples, f"{dtype}, {extra}")
        found = tool.read("in.tif", "--alpha", "filter")
        tool.near(found[..., 3:], samples[..., 4:], "the samples after the inks")
        white = int(numpy.iinfo(dtype).max)
        inks = samples[..., :4].astype(numpy.int64)
        rgb = ((white - inks[..., :3]) * (white - inks[..., 3:]) + white // 2) // white
        tool.near(found[..., :3], rgb.astype(dtype), "inks as RGB")
        if dtype == "u1":
            tool.same("write tif" in tool.fails("in.tif", "never.jpg"), True, "a JPEG")


@check
def damaged(tool):
    for method in ("zstd", "lzma"):
        pictures()["rgb"].save(tool / "whole.tif", compression=method, strip_size=4000)
        data = bytearray((tool / "whole.tif").read_bytes())
        with tifffile.TiffFile(tool / "whole.tif") as file:
            place, length = file.pages[0].dataoffsets[2], file.pages[0].databytecounts[2]
            rows = file.pages[0].rowsperstrip
        data[place + length // 2 : place + length] = bytes(length - length // 2)
        (tool / "in.tif").write_bytes(data)
        tool.same("--lenient" in tool.fails("in.tif", "never.npy"), True, method)
        said = tool.run("in.tif", "part.npy", "--lenient")
        tool.same("only a part" in said, True, said)
        found = numpy.load(tool / "part.npy")
        tool.near(found[: 2 * rows], smooth()[: 2 * rows], f"{method}, the strips before")
        tool.near(found[3 * rows :], smooth()[3 * rows :], f"{method}, the strips after")
        said = tool.fails("whole.tif", "never.npy", "--max-bytes", "10K")
        tool.same("--max-bytes" in said, True, said)
    Image.fromarray(smooth()).convert("L").convert("1").save(tool / "fax.tif", compression="group3")
    tool.same("cannot be read" in tool.fails("fax.tif", "never.npy"), True, "fax")


@check
def netpbm(tool):
    """PGM, PPM and PAM of 8 and 16 bits, and PFM, read by OpenCV."""
    rng = numpy.random.default_rng(8)
    for dtype, channels in itertools.product(("u1", "u2"), (1, 2, 3, 4)):
        samples = rng.integers(0, numpy.iinfo(dtype).max + 1, (31, 45, channels)).astype(dtype)
        numpy.save(tool / "in.npy", samples if channels > 1 else samples[..., 0])
        for kind in ("pgm", "ppm", "pnm", "pam"):
            if kind != "pam" and channels not in {"pgm": (1,), "ppm": (3,), "pnm": (1, 3)}[kind]:
                continue
            tool.run("in.npy", f"out.{kind}", "--alpha", "filter", "--quiet")
            data = (tool / f"out.{kind}").read_bytes()
            tool.same(data.endswith(samples.astype(samples.dtype.newbyteorder(">")).tobytes()), True, f"{kind}, {dtype}")
            tool.same(data[:2], {"pam": b"P7"}.get(kind, b"P5" if channels == 1 else b"P6"), kind)
            if kind != "pam" or channels != 2:
                theirs = cv2.imread(str(tool / f"out.{kind}"), cv2.IMREAD_UNCHANGED).reshape(31, 45, -1)
                theirs = theirs[..., {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[channels]]
                # OpenCV takes the channels of a PAM as they are.
                theirs = samples if kind == "pam" else theirs
                tool.near(theirs, samples, f"{kind}, {dtype}, {channels}, OpenCV")
            tool.near(tool.read(f"out.{kind}", "--alpha", "filter").reshape(samples.shape), samples, f"{kind}, again")
    for channels in (1, 3):
        samples = rng.normal(size=(31, 45, channels)).astype("f4")
        numpy.save(tool / "in.npy", samples if channels > 1 else samples[..., 0])
        tool.same(tool.run("in.npy", "out.pfm"), "", "PFM")
        order = [0] if channels == 1 else [2, 1, 0]
        theirs = cv2.imread(str(tool / "out.pfm"), cv2.IMREAD_UNCHANGED).reshape(31, 45, channels)
        tool.near(theirs[..., order], samples, f"PFM of {channels}, OpenCV")
        cv2.imwrite(str(tool / "theirs.pfm"), samples[..., order])
        tool.near(tool.read("theirs.pfm").reshape(samples.shape), samples, f"OpenCV's PFM of {channels}")
        letter = b"F" if channels == 3 else b"f"
        body = samples[::-1].astype(">f4").tobytes()
        (tool / "big.pfm").write_bytes(b"P" + letter + b"\n45 31\n1.0\n" + body)
        tool.near(tool.read("big.pfm").reshape(samples.shape), samples, f"a big-endian PFM of {channels}")
        (tool / "scaled.pfm").write_bytes(b"P" + letter + b"\n45 31\n2.5\n" + body)
        tool.same("scale of its values, 2.5" in tool.run("scaled.pfm", "out.npy", "--format", "npy") + tool.run("scaled.pfm", "out.tif"), True, "a scale")
        (tool / "cut.pfm").write_bytes((tool / "big.pfm").read_bytes()[:1000])
        tool.same("cut off" in tool.fails("cut.pfm", "never.npy"), True, "a PFM that is cut off")
        frames = (tool / "big.pfm").read_bytes() + (tool / "out.pfm").read_bytes()
        command = [tool.path, "filter", "-", "-", "--format", "pfm", "--filter", "identity", "--device", "cpu"]
        done = subprocess.run(command, input=frames, capture_output=True)
        tool.same((done.returncode, done.stdout == 2 * (tool / "out.pfm").read_bytes()), (0, True), done.stderr)
    for text in (b"PF\n0 3\n-1\n", b"PF\n3 -3\n-1\n", b"PF\n3 3\n0\n" + bytes(200), b"Pf\n3 3\nnan\n" + bytes(200), b"PF\n9999999 9999999\n-1\n"):
        (tool / "bad.pfm").write_bytes(text)
        tool.fails("bad.pfm", "never.npy")


if __name__ == "__main__":
    assert features.check("libtiff")
    main(__doc__, Tool, "TIFFs and portable maps")
