#!/usr/bin/env python3
"""Compares apron's OpenEXR files, of any parts, layers and channels, with OpenEXR and SciPy.

    python3 exr.py --apron target/release/apron

OpenEXR writes the inputs and reads the results: names, types, windows, tiles or scan lines,
compression, attributes and values. Expected values come from SciPy in f64. Exits with 1 if anything
differs, and if nothing was compared.
"""

import itertools

import Imath
import numpy
import OpenEXR
import tifffile
from scipy import ndimage

import judge
from judge import check, main

GAUSSIAN = numpy.exp(-numpy.arange(-4, 5) ** 2 / 2)
TAPS = {
    "identity": numpy.ones((1, 1)),
    "gaussian:1": numpy.outer(GAUSSIAN, GAUSSIAN) / GAUSSIAN.sum() ** 2,
    "sharpen": numpy.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]]),
}
LOSSLESS = ["NO", "RLE", "ZIPS", "ZIP", "PIZ"]
LOSSY = ["PXR24", "B44", "B44A", "DWAA", "DWAB"]


class Tool(judge.Tool):
    FAILURES = (1, 2)

    def near(self, found, expected, what, tolerance=0.0):
        self.count += 1
        if found.shape != expected.shape:
            raise AssertionError(f"{what}: {found.shape} for {expected.shape}")
        off = numpy.abs(found.astype(float) - expected)
        if not off.max() <= tolerance:
            at = numpy.unravel_index(off.argmax(), off.shape)
            raise AssertionError(f"{what}: {off.max()} off at {at}, {found[at]} for {expected[at]}")


def correlated(values, text):
    return ndimage.correlate(values.astype(float), TAPS[text], mode="mirror")


def slack(dtype, text, largest=1.0):
    """A sum is rounded to f32, and to f16 once."""
    bits = {"float16": 11, "float32": 22, "uint32": 40}[numpy.dtype(dtype).name]
    return 0.0 if text == "identity" else max(largest * 6 * 2.0**-bits, 0.5 if dtype == numpy.uint32 else 0)


def plane(dtype, shape=(37, 53), seed=1):
    values = numpy.random.default_rng(seed).random(shape)
    return (values * 4000000000).astype(dtype) if numpy.dtype(dtype).kind == "u" else values.astype(dtype)


def layers(shape=(37, 53)):
    """The channels of a renderer's file: colours, two layers with alpha, depth, vectors, numbers."""
    kinds = {"R": "f2", "G": "f2", "B": "f2", "A": "f2", "Z": "f4", "id": "u4", "N.X": "f4", "N.Y": "f4", "N.Z": "f4"}
    kinds |= {f"diffuse.{name}": "f2" for name in "RGB"}
    kinds |= {f"light.key.{name}": "f4" for name in "RGBA"}
    kinds |= {"half.A": "f2", "half.R": "f4", "half.G": "f4", "half.B": "f4", "odd.R": "f4", "odd.A": "f2"}
    return {name: plane(kind, shape, seed) for seed, (name, kind) in enumerate(kinds.items())}


def write(path, channels, **header):
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage, **header}
    # The library replaces the arrays of a dict.
    with OpenEXR.File(header, dict(channels)) as file:
        file.write(str(path))


def read(path):
    """The header and the channels of each part."""
    with OpenEXR.File(str(path), separate_channels=True) as file:
        return [
            (dict(part.header), {name: channel.pixels for name, channel in part.channels.items()}) for part in file.parts
        ]


def told(header):
    """A header as text, without what the library adds."""
    kept = {name: value for name, value in header.items() if name not in ("channels", "chunkCount", "chromaticities")}

    def text(value):
        if isinstance(value, OpenEXR.TileDescription):
            return f"{value.xSize}x{value.ySize} {value.mode} {value.roundingMode}"
        return numpy.array2string(value) if isinstance(value, numpy.ndarray) else str(value)

    return {name: text(value) if not isinstance(value, tuple) else str([text(it) for it in value]) for name, value in kept.items()}


@check
def every_channel(tool):
    """A renderer's file, under each filter: names and types stay, each channel is filtered."""
    channels = layers()
    write(tool / "in.exr", channels)
    for text in TAPS:
        tool.same(tool.run("in.exr", "out.exr", text), "", text)
        (_, found), = read(tool / "out.exr")
        tool.same(sorted(found), sorted(channels), text)
        for name, values in channels.items():
            tool.same(found[name].dtype, values.dtype, f"{name}, {text}")
            # Alpha of a layer with colours is copied where the filter is no average.
            copied = text == "sharpen" and name in ("A", "light.key.A", "half.A")
            exact = values.astype(float) if copied else correlated(values, text)
            if values.dtype.kind == "u":
                exact = numpy.clip(exact, 0, 2**32 - 1)
            tool.near(found[name], exact, f"{name}, {text}", slack(values.dtype, text, numpy.abs(exact).max()))


@check
def layouts(tool):
    """Compression, tiles or scan lines, line order, windows and attributes stay as they are."""
    channels = layers()
    header = {
        "displayWindow": ((-10, -20), (199, 99)),
        "dataWindow": ((-3, 5), (49, 41)),
        "pixelAspectRatio": 1.5,
        "owner": "somebody",
        "comments": "a text with several words",
        "whiteLuminance": 80.0,
        "expTime": 0.25,
        "myNumber": 42,
        "myText": "mine",
        "myVector": numpy.array([1, 2, 3], "f4"),
        "timeCode": OpenEXR.TimeCode(1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    }
    kinds = [{"type": OpenEXR.scanlineimage}, {"type": OpenEXR.scanlineimage, "lineOrder": OpenEXR.DECREASING_Y}]
    kinds += [{"type": OpenEXR.tiledimage, "tiles": OpenEXR.TileDescription()}]
    for kind, compression in itertools.product(kinds, LOSSLESS + LOSSY):
        what = f"{compression}, {kind}"
        if "tiles" in kind:
            kind["tiles"].xSize, kind["tiles"].ySize = 16, 24
        mine = {"compression": getattr(OpenEXR, f"{compression}_COMPRESSION"), **kind}
        some = {name: values for name, values in channels.items() if compression not in LOSSY or values.dtype != "u4"}
        write(tool / "in.exr", some, **header, **mine)
        tool.same(tool.run("in.exr", "out.exr"), "", what)
        (before, given), = read(tool / "in.exr")
        (after, found), = read(tool / "out.exr")
        tool.same(told(after), told(before), what)
        for name, values in given.items():
            tool.same(found[name].dtype, values.dtype, f"{what}, {name}")
            lossy = {"PXR24": 2e-5, "B44": 0.05, "B44A": 0.05, "DWAA": 0.2, "DWAB": 0.2}.get(compression, 0.0)
            tool.near(found[name], values.astype(float), f"{what}, {name}", lossy)


@check
def parts(tool):
    """Parts of several sizes, types and layouts."""
    sizes = {"left": (37, 53), "right": (20, 31), "depth": (64, 48)}
    tiles = OpenEXR.TileDescription()
    tiles.xSize, tiles.ySize = 32, 32
    given = []
    for seed, (name, shape) in enumerate(sizes.items()):
        names = ["Z"] if name == "depth" else ["R", "G", "B", "A", "glow.R"]
        header = {"compression": OpenEXR.PIZ_COMPRESSION, "type": OpenEXR.scanlineimage, "view": name}
        header["displayWindow"] = ((0, 0), (99, 79))
        if name == "right":
            header |= {"type": OpenEXR.tiledimage, "tiles": tiles, "compression": OpenEXR.ZIPS_COMPRESSION}
        dtype = "f4" if name == "depth" else "f2"
        channels = {it: plane(dtype, shape, 10 * seed + at) for at, it in enumerate(names)}
        given.append(OpenEXR.Part(header, channels, name))
    with OpenEXR.File(given) as file:
        file.write(str(tool / "in.exr"))
    for text in TAPS:
        tool.same(tool.run("in.exr", "out.exr", text), "", text)
        before, after = read(tool / "in.exr"), read(tool / "out.exr")
        tool.same([told(header) for header, _ in after], [told(header) for header, _ in before], "headers")
        for (header, values), (_, found) in zip(before, after):
            tool.same(sorted(found), sorted(values), header["name"])
            for name in values:
                copied = text == "sharpen" and name == "A"
                exact = values[name].astype(float) if copied else correlated(values[name], text)
                what = f"{header['name']}, {name}, {text}"
                tool.near(found[name], exact, what, slack(values[name].dtype, text, numpy.abs(exact).max()))
    cases = {
        "left": {("left", name) for name in ("R", "G", "B", "A", "glow.R")},
        "glow": {("left", "glow.R"), ("right", "glow.R")},
        "right.glow.R,Z": {("right", "glow.R"), ("depth", "Z")},
        "left.R,left.G": {("left", "R"), ("left", "G")},
    }
    before = read(tool / "in.exr")
    for names, filtered in cases.items():
        tool.same(tool.run("in.exr", "out.exr", "gaussian:1", "--channels", names), "", names)
        for (header, values), (_, found) in zip(before, read(tool / "out.exr")):
            for name in values:
                chosen = (header["name"], name) in filtered
                exact = correlated(values[name], "gaussian:1") if chosen else values[name].astype(float)
                near = slack(values[name].dtype, "gaussian:1") if chosen else 0.0
                tool.near(found[name], exact, f"{names}: {header['name']}, {name}", near)
    tool.run("in.exr", "depth.npy", "identity", "--channels", "depth")
    tool.near(numpy.load(tool / "depth.npy"), before[2][1]["Z"].astype(float), "the depth alone")


@check
def some_channels(tool):
    """`--channels` filters channels, layers, and leaves the others bit by bit."""
    channels = layers()
    write(tool / "in.exr", channels)
    cases = {
        "R,G,B": {"R", "G", "B"},
        "G": {"G"},
        "Z": {"Z"},
        "diffuse": {"diffuse.R", "diffuse.G", "diffuse.B"},
        "light.key": {f"light.key.{name}" for name in "RGBA"},
        "light": {f"light.key.{name}" for name in "RGBA"},
        "N.X, id": {"N.X", "id"},
        "half.A,half.G": {"half.A", "half.G"},
    }
    for (names, filtered), text in itertools.product(cases.items(), TAPS):
        tool.same(tool.run("in.exr", "out.exr", text, "--channels", names), "", names)
        (_, found), = read(tool / "out.exr")
        tool.same(sorted(found), sorted(channels), names)
        for name, values in channels.items():
            tool.same(found[name].dtype, values.dtype, f"{names}: {name}")
            if name not in filtered:
                tool.same(found[name].tobytes() == values.tobytes(), True, f"{names}: {name} is copied")
                continue
            copied = text == "sharpen" and name in ("light.key.A", "half.A")
            exact = values.astype(float) if copied else correlated(values, text)
            exact = numpy.clip(exact, 0, 2**32 - 1) if values.dtype.kind == "u" else exact
            tool.near(found[name], exact, f"{names}: {name}, {text}", slack(values.dtype, text, numpy.abs(exact).max()))
    said = tool.fails("in.exr", "never.exr", "--channels", "R,nonesuch")
    tool.same("nonesuch" in said and "diffuse.B" in said, True, said)


@check
def types_on_request(tool):
    channels = layers()
    write(tool / "in.exr", channels)
    tool.run("in.exr", "out.exr", "gaussian:1", "--output-type", "f32")
    (_, found), = read(tool / "out.exr")
    for name, values in channels.items():
        tool.same(found[name].dtype.name, "float32", name)
        exact = correlated(values, "gaussian:1")
        tool.near(found[name], exact, name, numpy.abs(exact).max() * 2.0**-21)
    tool.run("in.exr", "out.exr", "identity", "--output-type", "f16", "--channels", "light.key")
    (_, found), = read(tool / "out.exr")
    tool.same({name: values.dtype.name for name, values in found.items() if values.dtype != channels[name].dtype},
              {f"light.key.{name}": "float16" for name in "RGBA"}, "one layer as half")  # fmt: skip
    # Alpha that is left out takes its channel with it.
    tool.run("in.exr", "out.exr", "identity", "--alpha", "drop")
    (_, found), = read(tool / "out.exr")
    tool.same(sorted(set(channels) - set(found)), ["A", "half.A", "light.key.A"], "alpha left out")


@check
def other_formats(tool):
    """A format without names gets the main picture, or the chosen channels, and the tool says so."""
    channels = layers()
    write(tool / "in.exr", channels)
    rgba = numpy.stack([channels[name] for name in "RGBA"], -1)
    said = tool.run("in.exr", "out.tif")
    tool.same(said.count("\n") == 1 and "diffuse.R" in said and "--channels" in said, True, said)
    with tifffile.TiffFile(tool / "out.tif") as file:
        tool.same((file.pages[0].dtype.name, [int(it) for it in file.pages[0].extrasamples]), ("float16", [1]), "tif")
        tool.near(file.pages[0].asarray(), rgba.astype(float), "tif")
    tool.run("in.exr", "out.hdr", "identity", "--alpha", "drop")
    for names, count in (("Z", 1), ("N", 3), ("diffuse", 3), ("N.X,N.Y", 2), ("diffuse.G", 1), ("R,G,B,Z", 4), ("id", 1)):
        tool.run("in.exr", "out.npy", "gaussian:1", "--channels", names, "--quiet")
        found = numpy.load(tool / "out.npy")
        found = found if found.ndim == 3 else found[..., None]
        tool.same(found.shape[-1], count, names)
        order = [it for name in names.split(",") for it in sorted(channels) if it == name or it.startswith(name + ".")]
        order = sorted(order, key=lambda it: "RGB".find(it[-1]) if it[-1] in "RGB" else 9)
        for at, name in enumerate(order):
            exact = correlated(channels[name], "gaussian:1")
            near = slack(channels[name].dtype, "gaussian:1", numpy.abs(exact).max())
            tool.near(found[..., at], exact, f"{names}: {name}", near)
    tool.same("--channels" in tool.fails("in.exr", "out.npy", "--channels", "id,Z"), True, "two types")
    write(tool / "two.exr", {"U": plane("f4"), "V": plane("f4")})
    tool.same("U and V" in tool.fails("two.exr", "out.png"), True, "no colours")
    # New files: grey, colours, and alpha.
    for count, names in ((1, ["Y"]), (2, ["A", "Y"]), (3, ["B", "G", "R"]), (4, ["A", "B", "G", "R"])):
        for dtype in ("f2", "f4", "u4"):
            values = numpy.stack([plane(dtype, seed=at) for at in range(count)], -1)
            numpy.save(tool / "in.npy", values if count > 1 else values[..., 0])
            tool.run("in.npy", "out.exr")
            (_, found), = read(tool / "out.exr")
            tool.same(sorted(found), names, f"{count} channels")
            for at, name in enumerate({1: "Y", 2: "YA", 3: "RGB", 4: "RGBA"}[count]):
                tool.same(found[name].dtype, values.dtype, name)
                tool.near(found[name], values[..., at].astype(float), name)


@check
def refused(tool):
    values = plane("f4", (40, 60))
    header = OpenEXR.Header(60, 40)
    kind = Imath.PixelType(Imath.PixelType.FLOAT)
    header["channels"] = {"Y": Imath.Channel(kind), "BY": Imath.Channel(kind, 2, 2)}
    file = OpenEXR.OutputFile(str(tool / "chroma.exr"), header)
    file.writePixels({"Y": values.tobytes(), "BY": values[::2, ::2].tobytes()})
    file.close()
    tool.same("fewer samples" in tool.fails("chroma.exr", "never.exr"), True, "chroma")
    deep = numpy.empty((4, 5), object)
    for at in numpy.ndindex(deep.shape):
        deep[at] = numpy.arange(at[0] + 1, dtype="f4")
    with OpenEXR.File({"type": OpenEXR.deepscanline, "compression": OpenEXR.ZIPS_COMPRESSION}, {"Z": deep}) as file:
        file.write(str(tool / "deep.exr"))
    tool.same("deep" in tool.fails("deep.exr", "never.exr"), True, "deep")
    write(tool / "in.exr", layers())
    data = (tool / "in.exr").read_bytes()
    for length in (0, 5, 100, 700, len(data) // 2, len(data) - 1):
        (tool / "cut.exr").write_bytes(data[:length])
        tool.fails("cut.exr", "never.exr")
    (tool / "cut.exr").write_bytes(data[: len(data) // 2])
    said = tool.run("cut.exr", "part.exr", "identity", "--lenient")
    (_, found), = read(tool / "part.exr")
    tool.same("only a part" in said, True, said)
    tool.near(found["R"][:16], layers()["R"][:16].astype(float), "a part")
    tool.same("--max-bytes" in tool.fails("in.exr", "never.exr", "--max-bytes", "50K"), True, "a limit")


@check
def channels_of_other_formats(tool):
    """`--channels` by letters and numbers, in TIFFs of any number of bands, in PNG, JPEG and npy."""
    rng = numpy.random.default_rng(3)
    for count, extra in ((3, ()), (7, (0,) * 4), (4, (2,)), (5, (0, 2))):
        values = rng.integers(0, 65536, (37, 53, count), dtype=numpy.uint16)
        options = {"extrasamples": extra} if extra else {}
        tifffile.imwrite(tool / "in.tif", values, photometric="rgb", planarconfig="contig", **options)
        cases = {"R,G,B": {0, 1, 2}, "G": {1}, "2": {1}, f"{count}": {count - 1}, f"B,{count}": {2, count - 1}}
        cases |= {"A": {3 + extra.index(2)}} if 2 in extra else {}
        for names, filtered in cases.items():
            tool.same(tool.run("in.tif", "out.tif", "gaussian:1", "--channels", names), "", f"{count}: {names}")
            with tifffile.TiffFile(tool / "out.tif") as file:
                found = file.pages[0].asarray()
                tool.same([int(it) for it in file.pages[0].extrasamples], list(extra), names)
            for at in range(count):
                if at not in filtered:
                    tool.same((found[..., at] == values[..., at]).all(), True, f"{names}: {at} is copied")
                    continue
                if names == f"B,{count}" and 2 in extra and extra.index(2) + 3 == count - 1:
                    # Alpha is among the chosen channels: it weights the colour.
                    continue
                exact = numpy.rint(correlated(values[..., at], "gaussian:1"))
                tool.near(found[..., at], exact, f"{count}, {names}: {at}", 1.0)
        tool.same("R, G and B" in tool.fails("in.tif", "never.tif", "--channels", "X") or count > 3, True, "X")
    said = tool.fails("in.tif", "never.tif", "--channels", "R", "--output-type", "f32")
    tool.same("--output-type" in said, True, said)
    numpy.save(tool / "in.npy", values[..., :3])
    tool.run("in.npy", "out.npy", "gaussian:1", "--channels", "3")
    tool.same((numpy.load(tool / "out.npy")[..., :2] == values[..., :2]).all(), True, "an array")
    said = tool.fails("in.npy", "never.y4m", "--channels", "3")
    tool.same("--channels" in said, True, said)


if __name__ == "__main__":
    main(__doc__, Tool, "OpenEXR files")
