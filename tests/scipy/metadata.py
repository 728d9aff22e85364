#!/usr/bin/env python3
"""Tests apron's promise about metadata: the tool writes it again, or names it.

    python3 metadata.py --apron target/release/apron

It makes files with every chunk, tag and segment, and reads apron's output with its own parsers,
Pillow and tifffile. Exits with 1 if something is lost without a message, and if nothing was
compared.
"""

import io
import struct
import subprocess
import zlib

import numpy
import tifffile
from PIL import Image

from judge import Folder, check, main


class Tool(Folder):
    def run(self, source, target, *options, filter="identity"):
        """Returns the tool's message about metadata: at most one line."""
        (self / target).unlink(missing_ok=True)
        command = [self.path, "filter", self / source, self / target, "--filter", filter, "--device", "cpu", *options]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{source} to {target}: {done.stderr.strip()}")
        # tifffile leaves values after the last directory that no directory names.
        lines = done.stderr.splitlines(keepends=True)
        said = "".join(line for line in lines if "bytes after the picture" not in line)
        self.true(said.count("\n") <= 1, f"{source} to {target} in one line: {said}")
        return said

    def true(self, fact, what):
        self.count += 1
        if not fact:
            raise AssertionError(what)

    def same(self, found, expected, what):
        arrays = isinstance(expected, numpy.ndarray)
        self.true(numpy.array_equal(found, expected) if arrays else found == expected, f"{what}: {found!r} for {expected!r}")


# PNG


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def chunks(data):
    found, at = [], 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF><rdf:Description xmp:Rating="5"/></rdf:RDF></x:xmpmeta>'
# Every chunk of PNG's third edition and its extensions. True: the tool keeps it in a PNG.
ANCILLARY = [
    (b"gAMA", struct.pack(">I", 100000), True),
    (b"cHRM", struct.pack(">8I", 31270, 32900, 70800, 29200, 17000, 79700, 13100, 4600), True),
    (b"sRGB", b"\0", True),
    (b"cICP", bytes([9, 16, 0, 1]), True),
    (b"mDCV", bytes(range(24)), True),
    (b"cLLI", bytes(range(8)), True),
    (b"sBIT", b"\5\6\5", False),
    (b"hIST", bytes(6), False),
    (b"sPLT", b"p\0\x08" + bytes(6), False),
    (b"tIME", bytes([7, 234, 1, 2, 3, 4, 5]), False),
    (b"oFFs", struct.pack(">iiB", 3, 4, 0), True),
    (b"sCAL", b"\1" + b"0.5\0000.25", True),
    (b"pCAL", b"p\0" + struct.pack(">iiBB", 0, 255, 0, 2) + b"m\0000\0001", True),
    (b"sTER", b"\1", True),
    (b"dSIG", b"signed", False),
    (b"gIFg", b"\2\0\5", True),
    (b"gIFx", b"ImageMag1.0x", True),
    (b"tEXt", b"Title\0A title", True),
    (b"tEXt", b"Author\0Somebody", True),
    (b"zTXt", b"Comment\0\0" + zlib.compress(b"long " * 50), True),
    (b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(b"x"), False),
    (b"iTXt", b"Description\0\0\0de\0Beschreibung\0" + "äöü".encode(), True),
    (b"zxSx", b"safe to copy", True),
    (b"zxSX", b"not safe to copy", False),
]


def png(colour, depth, more, late=()):
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    bits = samples * depth * 8
    rows = b"".join(b"\0" + bytes((3 * y + x) % (4 if colour == 3 else 256) for x in range(bits // 8)) for y in range(6))
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 6, depth, colour, 0, 0, 0))
    palette = chunk(b"PLTE", bytes(range(12)) * 1) if colour == 3 else b""
    early = b"".join(chunk(name, data) for name, data in more if name not in (b"bKGD", b"hIST"))
    after = b"".join(chunk(name, data) for name, data in more if name in (b"bKGD", b"hIST"))
    file += early + palette + after + chunk(b"IDAT", zlib.compress(rows))
    return file + b"".join(chunk(name, data) for name, data in late) + chunk(b"IEND", b"")


def told(tool, all_chunks, target, said, what):
    """Checks that every chunk is in the PNG or in the message."""
    found = chunks((tool / target).read_bytes()) if target.endswith("png") else []
    for name, data in all_chunks:
        named = name.decode() in said
        if data.startswith(b"XML:com.adobe.xmp") and not target.endswith("gif"):
            named = XMP in (tool / target).read_bytes() or "XMP" in said and target.endswith("bmp")
        tool.true((name, data) in found or named, f"{what}: {name} is neither written nor named: {said}")


@check
def png_chunks(tool):
    xmp = (b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP)
    background = {0: b"\0\7", 2: bytes(6), 3: b"\2", 4: b"\0\7", 6: b"\0\1\0\2\0\3"}
    for colour, depth in [(0, 1), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 2), (3, 8), (4, 8), (6, 8), (6, 16)]:
        sbit = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}[colour]
        more = [(name, data[:sbit] if name == b"sBIT" else data) for name, data, _ in ANCILLARY]
        more = [(name, (data + b"\5" * sbit)[:sbit] if name == b"sBIT" else data) for name, data in more]
        if colour != 3:
            more = [(name, data) for name, data in more if name != b"hIST"]
        more += [(b"bKGD", background[colour]), xmp]
        (tool / "in.png").write_bytes(png(colour, depth, more, [(b"tEXt", b"Late\0after the pixels")]))
        more.append((b"tEXt", b"Late\0after the pixels"))
        name = f"colour {colour} of {depth} bits"
        said = tool.run("in.png", "out.png")
        out = chunks((tool / "out.png").read_bytes())
        # A background may change its form.
        told(tool, [it for it in more if it[0] != b"bKGD"], "out.png", said, name)
        for kept, data in more:
            true = next((true for known, value, true in ANCILLARY if (known, value) == (kept, data)), None)
            if true is not None:
                tool.same((kept, data) in out, true, f"{name}: {kept} is written")
                tool.same(kept.decode() in said and true is False, not true, f"{name}: {kept} is named")
        expected = {(3, 2): b"\0\6\0\7\0\x08", (3, 8): b"\0\6\0\7\0\x08", (0, 1): b"\0\xff", (0, 4): b"\0\x77"}
        bkgd = [data for kept, data in out if kept == b"bKGD"]
        tool.same(bkgd, [expected.get((colour, depth), background[colour])], f"{name}: background")
        with Image.open(tool / "out.png") as found:
            found.load()
            tool.same(found.info["gamma"], 1.0, f"{name}: gamma")
            tool.same(found.info["Title"], "A title", f"{name}: title")
        for target in ("out.tif", "out.webp", "out.gif", "out.jpg", "out.bmp"):
            options = ["--output-type", "u8", "--scale", "full"] if depth == 16 and target != "out.tif" else []
            if target[4:] in ("gif", "bmp", "jpg") and colour in (0, 4, 6):
                continue
            said = tool.run("in.png", target, *options)
            told(tool, more, target, said, f"{name} to {target}")
        if depth == 8:
            said = tool.run("in.png", "wide.png", "--output-type", "u16", "--scale", "full")
            wide = [kept for kept, _ in chunks((tool / "wide.png").read_bytes())]
            for kept in (b"pCAL", b"bKGD"):
                tool.true(kept not in wide and kept.decode() in said, f"{name}, wider: {kept}, {said}")
            tool.true(b"gAMA" in wide, f"{name}, wider: gAMA")
    exif = b"II*\0\x08\0\0\0\1\0" + struct.pack("<HHIHH", 274, 3, 1, 6, 0) + bytes(4)
    (tool / "turned.png").write_bytes(png(2, 8, [*((n, d) for n, d, _ in ANCILLARY if n != b"hIST"), (b"eXIf", exif)]))
    said = tool.run("turned.png", "upright.png", "--auto-orient")
    upright = [kept for kept, _ in chunks((tool / "upright.png").read_bytes())]
    for kept in (b"oFFs", b"sCAL", b"sTER"):
        tool.true(kept not in upright and kept.decode() in said, f"upright: {kept}, {said}")


# TIFF

CODES = {1: "B", 2: "s", 3: "H", 4: "I", 5: "II", 6: "b", 7: "B", 8: "h", 9: "i", 10: "ii", 11: "f", 12: "d"}
# Tags that describe how pixels are stored: the writer sets them anew.
PIXELS = {256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 284, 288, 289, 292, 293, 317, 320, 322, 323, 324, 325}
PIXELS |= {326, 327, 328, 338, 339, 347, 529, 530, 531, *range(512, 522)}
META = {274, 282, 283, 296, 34665, 34675, 34853}
TEXTS = {269, 270, 271, 272, 305, 306, 315, 316, 33432}
# Tags that describe the original pixels.
STALE = {280, 281, 330, 340, 341, 34377, 37724, 50838, 50839}
GEO = {
    33550: (12, (0.5, 0.5, 0.0)),
    33922: (12, (0.0, 0.0, 0.0, 440720.0, 3751320.0, 0.0)),
    34264: (12, tuple(map(float, range(16)))),
    34735: (3, (1, 1, 0, 2, 1024, 0, 1, 1, 1025, 0, 1, 1)),
    34736: (12, (6378137.0, 298.25)),
    34737: (2, b"WGS 84 / UTM zone 11N|\0"),
    42113: (2, b"7\0"),
    42112: (2, b"<GDALMetadata>\n  <Item name=\"SCALE\">2</Item>\n</GDALMetadata>\n\0"),
    50844: (12, tuple(map(float, range(92)))),
}


def tiff(tags, order="<", big=False, shape=(6, 8), value=7, photometric=1, samples=1, kind="u1"):
    """A TIFF of one strip. `tags` maps numbers to a type and a value: a tuple or a text."""
    pixels = (numpy.arange(shape[0] * shape[1] * samples) % 200 + value).astype(numpy.dtype(kind).newbyteorder(order))
    bits, form = pixels.itemsize * 8, {"u": 1, "i": 2, "f": 3}[pixels.dtype.kind]
    start = 16 if big else 8
    data = pixels.tobytes()
    all_tags = {
        256: (3, (shape[1],)), 257: (3, (shape[0],)), 258: (3, (bits,) * samples), 259: (3, (1,)), 262: (3, (photometric,)),
        273: (4, (start,)), 277: (3, (samples,)), 278: (3, (shape[0],)), 279: (4, (len(data),)), 339: (3, (form,) * samples),
    } | tags
    room, count = (8, "Q") if big else (4, "I")
    body = bytearray(data + b"\0" * (len(data) % 2))
    entries = b""
    for number, (code, values) in sorted(all_tags.items()):
        form = CODES[code]
        raw = values if isinstance(values, bytes) else struct.pack(order + form[0] * len(values), *values)
        length = len(raw) if code in (1, 2, 6, 7) else len(values) // len(form)
        if len(raw) > room:
            place = struct.pack(order + count, start + len(body))
            body += raw + b"\0" * (len(raw) % 2)
        else:
            place = raw.ljust(room, b"\0")
        entries += struct.pack(order + "HH" + count, number, code, length) + place
    mark = b"II" if order == "<" else b"MM"
    if big:
        head = mark + struct.pack(order + "HHHQ", 43, 8, 0, start + len(body))
        return head + bytes(body) + struct.pack(order + "Q", len(all_tags)) + entries + bytes(8)
    head = mark + struct.pack(order + "HI", 42, start + len(body))
    return head + bytes(body) + struct.pack(order + "H", len(all_tags)) + entries + bytes(4)


def directory(path):
    """The types and values of the first page's tags."""
    data = path.read_bytes()
    order = "<" if data[:2] == b"II" else ">"
    (at,) = struct.unpack(order + "I", data[4:8])
    (length,) = struct.unpack(order + "H", data[at : at + 2])
    found = {}
    for index in range(length):
        entry = data[at + 2 + 12 * index :][:12]
        number, code, items = struct.unpack(order + "HHI", entry[:8])
        form = CODES[code] * items if code != 2 else f"{items}s"
        size = struct.calcsize(order + form)
        place = struct.unpack(order + "I", entry[8:])[0]
        raw = entry[8 : 8 + size] if size <= 4 else data[place : place + size]
        values = struct.unpack(order + form, raw)
        found[number] = (code, raw if code in (1, 2, 7) else values)
    return found


def every_tag(rng):
    """A value for each tag that tifffile knows, and for some unknown tags."""
    numbers = {code for code, _ in tifffile.TIFF.TAGS.items() if code <= 65535} | {40000, 65000, 65535}
    tags = {}
    for number in sorted(numbers - PIXELS - META):
        code = 2 if number in TEXTS else int(rng.choice([2, 3, 4, 11, 12]))
        if number in (318, 319):
            code = 5
        if number in range(40091, 40096) or number in (700, 33723):
            code = 1
        text = f"the text of {number}\0".encode()
        values = {1: text, 2: text, 5: (number, 65535) * 2}
        tags[number] = (code, values.get(code, (number % 99 + 1, 3, 2)))
    return tags


@check
def tiff_tags(tool):
    for seed in range(4):
        order, big = "<>"[seed % 2], seed >= 2
        tags = every_tag(numpy.random.default_rng(seed)) | {254: (4, (1,))}
        (tool / "in.tif").write_bytes(tiff(tags, order, big))
        said = tool.run("in.tif", "out.tif")
        found = directory(tool / "out.tif")
        for number, value in tags.items():
            written = number in found and found[number][1] == value[1]
            tool.true(written or str(number) in said, f"{order} {big}: {number} is neither written nor named")
        for number in STALE:
            tool.true(number not in found and str(number) in said, f"{number} is written: {said}")
        for number in TEXTS | {318, 319, 285, 297, 33723, 700}:
            tool.true(number in found, f"{number} is not written")
        said = tool.run("in.tif", "out.png")
        for number in set(tags) - TEXTS - {318, 319, 18246, 18249, 700, *range(40091, 40096)}:
            tool.true(str(number) in said, f"{number} is lost on the way to PNG")


@check
def georeference(tool):
    for kind in ("u1", "u2", "f4"):
        for order, big in (("<", False), (">", True)):
            (tool / "geo.tif").write_bytes(tiff(GEO, order, big, kind=kind))
            said = tool.run("geo.tif", "out.tif")
            tool.same(said, "", f"{kind}: nothing is lost")
            found = directory(tool / "out.tif")
            for number, value in GEO.items():
                tool.same(found.get(number), value, f"{kind}: {number}")
            with tifffile.TiffFile(tool / "out.tif") as out:
                tool.same(out.geotiff_metadata["ModelPixelScale"], [0.5, 0.5, 0.0], "tifffile's scale")
                tool.same(out.pages[0].nodata, 7, "tifffile's nodata")
            said = tool.run("geo.tif", "out.png", "--output-type", "u8", "--scale", "none")
            for number in GEO:
                tool.true(str(number) in said, f"{number} is lost on the way to PNG: {said}")
    said = tool.run("geo.tif", "other.tif", "--output-type", "u8", "--scale", "none")
    found = directory(tool / "other.tif")
    for number in (42112, 42113):
        tool.true(number not in found and str(number) in said, f"{number} of floats beside bytes: {said}")
    tool.same(found[33550], GEO[33550], "the place stays")
    (tool / "turned.tif").write_bytes(tiff(GEO | {274: (3, (6,))}))
    said = tool.run("turned.tif", "upright.tif", "--auto-orient")
    found = directory(tool / "upright.tif")
    for number in set(GEO) - {42112, 42113}:
        tool.true(number not in found and str(number) in said, f"{number} of turned pixels: {said}")
    statistics = b'<GDALMetadata>\n<Item name="STATISTICS_MEAN">1</Item>\n<Item name="SCALE">2</Item>\n</GDALMetadata>\0'
    (tool / "stat.tif").write_bytes(tiff({42112: (2, statistics)}))
    said = tool.run("stat.tif", "out.tif")
    kept = directory(tool / "out.tif")[42112][1]
    tool.true(b"SCALE" in kept and b"STATISTICS" not in kept and "statistics" in said, f"statistics: {said}")


@check
def large_files(tool):
    """Chunks keep the same metadata as a file in one piece."""
    tags = GEO | {340: (3, (0,)), 270: (2, b"A field\0"), 305: (2, b"by hand\0"), 330: (4, (8,))}
    for target, options in (("tif", []), ("tif", ["--output-type", "f32"]), ("npy", [])):
        (tool / "in.tif").write_bytes(tiff(tags | {282: (5, (4, 1)), 283: (5, (4, 1)), 296: (3, (1,))}, shape=(60, 80)))
        notes = [tool.run("in.tif", f"out.{target}", *options, "--chunk-above", above) for above in ("0", "1G")]
        files = []
        for above in ("0", "1G"):
            tool.run("in.tif", f"out.{target}", *options, "--chunk-above", above)
            files.append((tool / f"out.{target}").read_bytes())
        tool.same(*notes, f"notes of {target} {options}")
        tool.true(files[0] == files[1], f"{target} {options}: other files")
        tool.same("340" in notes[0] and "330" in notes[0], target == "tif", f"{target}: {notes[0]}")


@check
def sub_images(tool):
    picture = numpy.arange(64 * 64, dtype="u2").reshape(64, 64)
    with tifffile.TiffWriter(tool / "pyramid.tif") as out:
        out.write(picture, subifds=2, tile=(32, 32))
        out.write(picture[::2, ::2], subfiletype=1, tile=(16, 16))
        out.write(picture[::4, ::4], subfiletype=1, tile=(16, 16))
    said = tool.run("pyramid.tif", "out.tif")
    tool.true("330 (SubIFDs)" in said, said)
    with tifffile.TiffFile(tool / "out.tif") as found:
        tool.same(len(found.pages), 1, "pages")
        tool.true(330 not in found.pages[0].tags, "a place in another file")
        tool.same(found.pages[0].asarray(), picture, "pixels")


@check
def imagej(tool):
    stack = numpy.arange(3 * 20 * 30, dtype="u2").reshape(3, 20, 30)
    for resolution in ((4.0, 4.0), (12.5, 0.001), (1234567 / 1000000, 3.0)):
        metadata = {"axes": "ZYX", "unit": "um", "spacing": 0.5, "min": 0.0, "max": 99.0}
        tifffile.imwrite(tool / "j.tif", stack, imagej=True, resolution=resolution, metadata=metadata)
        with tifffile.TiffFile(tool / "j.tif") as source:
            pairs = [source.pages[0].tags[number].value for number in (282, 283)]
            tool.same(source.pages[0].tags[296].value, 1, "ImageJ's unit")
        said = tool.run("j.tif", "out.tif")
        tool.true("min and max" in said, f"the range is not named: {said}")
        with tifffile.TiffFile(tool / "out.tif") as found:
            page = found.pages[0]
            for number, (num, denom) in zip((282, 283), pairs):
                ours = page.tags[number].value
                tool.true(abs(ours[0] / ours[1] / (num / denom) - 1) < 1e-9, f"{ours} for {num}/{denom}")
            tool.same(page.tags[296].value, 1, "unit")
            told = found.imagej_metadata
            tool.same((told["unit"], told["spacing"], told["images"]), ("um", 0.5, 3), "ImageJ's words")
            tool.true("min" not in told and "max" not in told, "a range of other pixels")
            tool.same(found.asarray(), stack, "pixels")
    tool.run("j.tif", "one.tif", "--page", "2")
    with tifffile.TiffFile(tool / "one.tif") as found:
        tool.true("images" not in found.imagej_metadata, "one page of three")
        tool.same(found.asarray(), stack[1], "one page")
    # PNG and JPEG hold whole-number resolutions. Others go to Exif data, if there is any.
    for resolution, whole in (((4.0, 4.0), True), ((0.25, 0.25), False)):
        picture = stack[0].astype("u1")
        tifffile.imwrite(tool / "k.tif", picture, imagej=True, resolution=resolution, metadata={"unit": "um"})
        for target in ("k.png", "k.jpg"):
            said = tool.run("k.tif", target)
            with Image.open(tool / target) as found:
                written = whole or float(found.getexif().get(282, 0)) == 0.25
            tool.same("the resolution" in said, not written, f"{target}: {said}")


# JPEG


def segments(data):
    found, at = [], 2
    while data[at + 1] != 0xDA:
        (length,) = struct.unpack(">H", data[at + 2 : at + 4])
        found.append((data[at + 1], data[at + 4 : at + 2 + length]))
        at += 2 + length
    return found


@check
def jpeg_segments(tool):
    picture = io.BytesIO()
    Image.fromarray((numpy.arange(40 * 50 * 3) % 251).astype("u1").reshape(40, 50, 3)).save(picture, "jpeg", quality=95)
    data = picture.getvalue()
    iptc = b"\x1c\x02\x78\0\5hello"

    def resource(number, value):
        return b"8BIM" + struct.pack(">HBBI", number, 0, 0, len(value)) + value + b"\0" * (len(value) % 2)

    photoshop = b"Photoshop 3.0\0"
    # Marker, data, and words of which the message has one; None if the segment is written again.
    more = [
        (0xFE, b"a comment \xe4", None),
        (0xFE, b"another", None),
        (0xE0, b"JFXX\0\x10thumbnail", "APP0 (JFXX)"),
        (0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP, None),
        (0xE1, b"http://ns.adobe.com/xmp/extension/\0" + bytes(40) + b"more", "extended XMP"),
        (0xE2, b"MPF\0II*\0", "APP2 (MPF)"),
        (0xE2, b"FPXR\0", "APP2 (FPXR)"),
        (0xED, photoshop + resource(0x0404, iptc), None),
        (0xED, photoshop + resource(0x040C, b"thumbnail"), "APP13 (Photoshop)"),
        (0xEC, b"Ducky\0\1", "APP12 (Ducky)"),
    ]
    more += [(code, b"Own\0" + bytes([code]), f"APP{code - 0xE0} (Own)") for code in range(0xE3, 0xF0) if code != 0xEE]
    inserted = b"".join(b"\xff" + bytes([code]) + struct.pack(">H", len(body) + 2) + body for code, body, _ in more)
    (tool / "in.jpg").write_bytes(data[:20] + inserted + data[20:])
    said = tool.run("in.jpg", "out.jpg")
    found = segments((tool / "out.jpg").read_bytes())
    for code, body, words in more:
        if words:
            tool.true(words in said and (code, body) not in found, f"{words} is not named: {said}")
        elif code == 0xED:
            tool.true(any(iptc in other for _, other in found), "IPTC data")
        else:
            tool.true((code, body) in found, f"{code:x} {body} is not written")
    for target in ("out.png", "out.tif", "out.webp"):
        said = tool.run("in.jpg", target)
        tool.true(XMP in (tool / target).read_bytes(), f"XMP data in {target}")
        tool.true("COM" in said, f"comments to {target}: {said}")
        tool.true("IPTC" in said or target == "out.tif", f"IPTC to {target}: {said}")
        for words in (words for _, _, words in more if words):
            tool.true(words in said, f"{words} to {target}: {said}")
        # Then from that file to another JPEG.
        said = tool.run(target, "on.jpg")
        tool.same(said, "", f"{target} to JPEG")
        tool.true(XMP in (tool / "on.jpg").read_bytes(), f"XMP data from {target}")
    tool.same(directory(tool / "out.tif")[33723][1], iptc, "IPTC data in TIFF")
    large = b"http://ns.adobe.com/xap/1.0/\0" + XMP.replace(b"5", b"xmpGImg:image thumbnail")
    (tool / "in.jpg").write_bytes(data[:20] + b"\xff\xe1" + struct.pack(">H", len(large) + 2) + large + data[20:])
    said = tool.run("in.jpg", "out.jpg")
    tool.true("XMP" in said and b"xmpGImg" not in (tool / "out.jpg").read_bytes(), f"a thumbnail in XMP: {said}")
    # Pixels that are not square.
    (tool / "in.jpg").write_bytes(data[:13] + struct.pack(">BHH", 0, 2, 1) + data[18:])
    for target in ("out.jpg", "out.png", "out.tif"):
        tool.same(tool.run("in.jpg", target), "", f"the shape of pixels in {target}")
    with Image.open(tool / "out.jpg") as found:
        tool.same(found.info["jfif_density"], (2, 1), "the shape of pixels")
    tool.same([directory(tool / "out.tif")[number][1] for number in (282, 283, 296)], [(2, 1), (1, 1), (1,)], "in TIFF")


@check
def exif(tool):
    """Entries left out of Exif data are named: they may show the original picture."""
    picture = Image.fromarray((numpy.arange(40 * 50 * 3) % 251).astype("u1").reshape(40, 50, 3))
    data = Image.Exif()
    data[271], data[0xC4A5], data[318] = "Maker", b"print", (0.31, 0.33)
    data.get_ifd(0x8769).update({0x927C: b"a secret", 36867: "2026:01:02 03:04:05"})
    for kind in ("jpg", "png", "webp"):
        picture.save(tool / f"in.{kind}", exif=data)
        for target in ("out.jpg", "out.png", "out.tif", "out.webp"):
            said = tool.run(f"in.{kind}", target)
            tool.true("maker's notes" in said and "0xc4a5" in said, f"{kind} to {target}: {said}")
            with Image.open(tool / target) as found:
                kept = found.getexif()
                tool.same((kept[271], float(kept[318][0])), ("Maker", 0.31), f"{kind} to {target}")
                tool.true(b"a secret" not in (tool / target).read_bytes(), "the maker's notes")


@check
def large_texts(tool):
    """Data too large for a JPEG segment is named. The picture is still written."""
    text = b"words " * 20000 + b"\0"
    (tool / "in.tif").write_bytes(tiff({270: (2, text), 33723: (7, text), 700: (1, text), 34118: (2, text * 20)}))
    tool.same(tool.run("in.tif", "out.tif"), "", "TIFF has no such limit")
    found = directory(tool / "out.tif")
    tool.same([found[number][1] for number in (270, 33723, 700, 34118)], [text, text, text, text * 20], "texts")
    said = tool.run("in.tif", "out.jpg")
    for words in ("Exif", "XMP", "IPTC", "34118"):
        tool.true(words in said, f"{words}: {said}")


@check
def inks(tool):
    rng = numpy.random.default_rng(7)
    smooth = numpy.add.outer(numpy.arange(40) * 3, numpy.arange(56) * 2)[..., None] + numpy.array([0, 20, 9, 3])
    picture = smooth.astype("u1")
    profile = bytes(12) + b"prtrCMYKLab " + bytes(104) + rng.bytes(200000)
    profile = struct.pack(">I", len(profile)) + profile[4:]
    Image.fromarray(picture, "CMYK").save(tool / "in.tif", icc_profile=profile)
    Image.fromarray(picture, "CMYK").save(tool / "in.jpg", icc_profile=profile, quality=100, subsampling=0)
    for code in (0, 1, 2):
        Image.fromarray(picture, "CMYK").save(tool / f"sub{code}.jpg", icc_profile=profile, quality=98, subsampling=code)
        tool.run(f"sub{code}.jpg", "sub.tif")
        with Image.open(tool / "sub.tif") as ours, Image.open(tool / f"sub{code}.jpg") as theirs:
            # Decoders scale subsampled inks in slightly different ways.
            worst = numpy.abs(numpy.array(ours).astype(int) - numpy.array(theirs)).max()
            tool.true(worst <= (3 if code else 0), f"a JPEG of inks, {code}, differs by {worst}")
    wide = tiff({34675: (7, profile), 332: (3, (1,)), 336: (3, (0, 65535))}, photometric=5, samples=4, kind="u2")
    (tool / "wide.tif").write_bytes(wide)
    for source in ("in.tif", "in.jpg"):
        for target in ("out.tif", "out.jpg"):
            tool.same(tool.run(source, target, "--quality", "100") if target == "out.jpg" else tool.run(source, target), "", source)
            with Image.open(tool / target) as found, Image.open(tool / source) as before:
                tool.same((found.mode, found.info.get("icc_profile") == profile), ("CMYK", True), f"{source} to {target}")
                worst = numpy.abs(numpy.array(found).astype(int) - numpy.array(before)).max()
                tool.true(worst <= (3 if target == "out.jpg" else 0), f"{source} to {target} differs by {worst}")
    tool.same(tool.run("wide.tif", "out.tif"), "", "16 bits")
    found = directory(tool / "out.tif")
    tool.same([found[number] for number in (262, 332, 336)], [(3, (5,)), (3, (1,)), (3, (0, 65535))], "inks of 16 bits")
    tool.same(tifffile.imread(tool / "out.tif"), tifffile.imread(tool / "wide.tif"), "inks of 16 bits")
    said = tool.run("wide.tif", "out.jpg", "--output-type", "u8", "--scale", "full")
    tool.true("336" in said, f"a range of 16 bits: {said}")
    # Each ink is filtered by itself.
    tool.run("in.tif", "soft.tif", filter="gaussian:2")
    soft = tifffile.imread(tool / "soft.tif")
    for ink in range(4):
        numpy.save(tool / "one.npy", picture[..., ink])
        tool.run("one.npy", "one-soft.npy", filter="gaussian:2")
        tool.same(soft[..., ink], numpy.load(tool / "one-soft.npy"), f"ink {ink}")
    for source in ("in.tif", "in.jpg"):
        for target in ("out.png", "out.webp", "out.bmp"):
            said = tool.run(source, target)
            tool.true("which became RGB" in said and "profile of CMYK" in said, f"{source} to {target}: {said}")
            with Image.open(tool / target) as found, Image.open(tool / source) as before:
                worst = numpy.abs(numpy.array(found.convert("RGB")).astype(int) - numpy.array(before.convert("RGB"))).max()
                tool.true(worst <= 2, f"{source} to {target} differs by {worst}")


# WebP and GIF


@check
def webp_chunks(tool):
    pictures = [Image.new("RGB", (8, 6), (number * 40, 2, 3)) for number in range(3)]
    for frames in (1, 3):
        pictures[0].save(tool / "in.webp", lossless=True, xmp=XMP, save_all=frames > 1, append_images=pictures[1:frames])
        data = (tool / "in.webp").read_bytes() + b"own " + struct.pack("<I", 3) + b"abc\0"
        (tool / "in.webp").write_bytes(data[:4] + struct.pack("<I", len(data) - 8) + data[8:])
        for target in ("out.webp", "out.png", "out.tif"):
            said = tool.run("in.webp", target)
            tool.true("the WebP chunk own" in said, f"{frames} to {target}: {said}")
            tool.true(XMP in (tool / target).read_bytes(), f"{frames} to {target}: XMP")
            with Image.open(tool / target) as found:
                tool.same(found.n_frames, frames, f"{frames} to {target}")
        said = tool.run("in.webp", "out.gif")
        tool.true("XMP" in said, f"{frames} to GIF: {said}")


@check
def gif_blocks(tool):
    picture = io.BytesIO()
    Image.fromarray((numpy.arange(48) % 7 * 30).astype("u1").reshape(6, 8)).save(picture, "gif")
    data = picture.getvalue()
    at = 13 + 3 * 2 ** ((data[10] & 7) + 1)
    blocks = b"\x21\xfe\x05hello\x06 world\0" + b"\x21\xff\x0bOWNWRITER10\x02ab\0" + b"\x21\x01\x0c" + bytes(12) + b"\1x\0"
    (tool / "in.gif").write_bytes(data[:12] + b"\x31" + data[13:at] + blocks + data[at:])
    said = tool.run("in.gif", "out.gif")
    for words in ("OWNWRITER10", "plain text", "not square"):
        tool.true(words in said, f"{words}: {said}")
    with Image.open(tool / "out.gif") as found:
        tool.same(found.info["comment"], b"hello world", "comment")
    tool.true("comment" in tool.run("in.gif", "out.png"), "a comment to PNG")


# Simple formats


@check
def headers(tool):
    rgb = (numpy.arange(6 * 8 * 3) % 251).astype("u1").reshape(6, 8, 3)
    for words, data in (
        ("comment", b"P5\n# made by hand\n8 6\n255\n" + rgb[..., 0].tobytes()),
        ("comment", b"P6 8 6 # so\n255\n" + rgb.tobytes()),
        ("comment", b"P2\n8 6\n#x\n255\n" + b" 35" * 48),
        ("comment", b"P7\n#x\nWIDTH 8\nHEIGHT 6\nDEPTH 3\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\n" + rgb.tobytes()),
        ("", b"P6\n8 6\n255\n" + b"#" * (6 * 8 * 3)),
    ):
        (tool / "in.pnm").write_bytes(data)
        said = tool.run("in.pnm", "out.png")
        tool.same(words in said and bool(said), bool(words), f"{data[:20]}: {said}")
    lines = b"#?RADIANCE\n# by hand\nFORMAT=32-bit_rle_rgbe\nEXPOSURE=2.5\nPRIMARIES=0.64 0.33 0.3 0.6 0.15 0.06 0.3 0.3\nSOFTWARE=x\n\n"
    (tool / "in.hdr").write_bytes(lines + b"-Y 6 +X 4\n" + bytes([100, 90, 80, 129]) * 24)
    said = tool.run("in.hdr", "out.hdr")
    for words in ("comment", "EXPOSURE", "PRIMARIES", "SOFTWARE"):
        tool.true(words in said, f"{words}: {said}")
    Image.fromarray(rgb).save(tool / "in.tga", id_section=b"hello")
    tool.true("image ID" in tool.run("in.tga", "out.tga"), "a TGA's ID")
    numpy.save(tool / "plain.npy", rgb)
    tool.run("plain.npy", "in.qoi")
    data = bytearray((tool / "in.qoi").read_bytes())
    tool.same(tool.run("in.qoi", "out.png"), "", "QOI")
    data[13] = 1
    (tool / "in.qoi").write_bytes(data)
    tool.true("linear" in tool.run("in.qoi", "out.png"), "QOI of linear values")
    for dpi in ((72, 144), (300, 300)):
        Image.fromarray(rgb).save(tool / "in.bmp", dpi=dpi)
        for target in ("out.bmp", "out.png", "out.jpg", "out.tif"):
            tool.same(tool.run("in.bmp", target), "", f"BMP to {target}")
            with Image.open(tool / target) as found:
                tool.same(tuple(round(float(value)) for value in found.info["dpi"]), dpi, f"BMP to {target}")
    fourth = bytearray((tool / "in.bmp").read_bytes())
    endpoints = struct.pack("<IIIII", 0xFF0000, 0xFF00, 0xFF, 0, 0) + struct.pack("<12I", *range(1, 13))
    head = struct.pack("<I", 108) + bytes(fourth[18:54]) + endpoints
    start = 14 + len(head)
    body = b"BM" + struct.pack("<IHHI", start + len(fourth) - 54, 0, 0, start) + head + bytes(fourth[54:])
    (tool / "in.bmp").write_bytes(body)
    tool.true("primaries and gamma" in tool.run("in.bmp", "out.png"), "a BMP's primaries")
    array = rgb.astype("f4")
    numpy.save(tool / "plain.npy", array)
    tool.run("plain.npy", "in.exr")
    tool.same(tool.run("in.exr", "out.exr"), "", "EXR")
    data = (tool / "in.exr").read_bytes()
    own = b"".join(
        name + b"\0" + kind + b"\0" + struct.pack("<I", len(value)) + value
        for name, kind, value in (
            (b"chromaticities", b"chromaticities", struct.pack("<8f", *range(8))),
            (b"owner", b"string", b"somebody"),
            (b"whiteLuminance", b"float", struct.pack("<f", 100)),
        )
    )
    # After the attributes come a byte of 0 and a table of the offsets of lines, which change.
    at = 8
    while data[at]:
        kind = data.index(b"\0", at) + 1
        size = data.index(b"\0", kind) + 1
        at = size + 4 + struct.unpack("<I", data[size : size + 4])[0]
    count = (struct.unpack("<Q", data[at + 1 : at + 9])[0] - at - 1) // 8
    table = struct.unpack(f"<{count}Q", data[at + 1 : at + 1 + 8 * count])
    moved = struct.pack(f"<{count}Q", *(place + len(own) for place in table))
    (tool / "in.exr").write_bytes(data[:at] + own + b"\0" + moved + data[at + 1 + 8 * count :])
    said = tool.run("in.exr", "out.tif")
    tool.same(tool.run("in.exr", "out.exr"), "", "EXR attributes")
    for words in ("chromaticities", "owner", "whiteLuminance"):
        tool.true(words in said, f"{words} to TIFF: {said}")
        tool.true(words.encode() in (tool / "out.exr").read_bytes(), f"{words} to EXR")


if __name__ == "__main__":
    main(__doc__, Tool, "metadata")
