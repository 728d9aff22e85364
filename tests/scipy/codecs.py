#!/usr/bin/env python3
"""Compares apron's reading and writing of pictures with Pillow, tifffile and OpenCV.

    python3 codecs.py --apron target/release/apron

apron filters files that these libraries write with the identity, and they read its output: pixels,
frames, pages, delays, profiles, Exif data, resolutions, orientations. Exits with 1 if anything
differs, and if nothing was compared.
"""

import subprocess

import cv2
import numpy
import tifffile
from PIL import ExifTags, Image, ImageCms, ImageOps, ImageSequence

from judge import Folder, check, main


class Tool(Folder):
    def run(self, source, target, *options):
        """Returns the tool's stderr."""
        (self / target).unlink(missing_ok=True)
        command = [self.path, "filter", self / source, self / target, "--filter", "identity", "--device", "cpu"]
        done = subprocess.run([*command, *options], capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{source} to {target}: {done.stderr.strip()}")
        return done.stderr

    def fails(self, source, target, *options):
        command = [self.path, "filter", self / source, self / target, "--filter", "identity", "--device", "cpu"]
        done = subprocess.run([*command, *options], capture_output=True, text=True)
        self.same(done.returncode, 1, f"{source}, {done.stderr}")
        self.same((self / target).exists(), False, f"{target} after a failure")
        return done.stderr

    def same(self, found, expected, what):
        self.count += 1
        if isinstance(expected, numpy.ndarray):
            found = numpy.asarray(found)
            if found.shape != expected.shape or found.dtype != expected.dtype:
                raise AssertionError(f"{what}: {found.shape} {found.dtype} for {expected.shape} {expected.dtype}")
            if not numpy.array_equal(found, expected, equal_nan=expected.dtype.kind == "f"):
                raise AssertionError(f"{what}: {(found != expected).sum()} of {found.size} values differ")
        elif found != expected:
            raise AssertionError(f"{what}: {found!r} for {expected!r}")


def smooth(shape, seed=1):
    noise = numpy.random.default_rng(seed).integers(0, 256, shape, dtype=numpy.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 2.5)


def frames():
    pictures = []
    for index in range(5):
        picture = numpy.zeros((40, 60, 3), numpy.uint8)
        picture[..., 0] = index * 40
        picture[index * 5 : index * 5 + 8, 10:30] = (255, 200, 10)
        pictures.append(picture)
    return pictures


DELAYS = [50, 60, 70, 80, 90]


@check
def animations(tool):
    pictures = frames()
    first, *others = map(Image.fromarray, pictures)
    kinds = {"gif": {}, "png": {}, "webp": {"lossless": True, "exact": True}}
    # Pillow's number for GIF counts repetitions after the first run. For PNG and WebP it counts all
    # runs.
    again = {"gif": 3, "png": 4, "webp": 4}
    for kind, options in kinds.items():
        first.save(tool / f"a.{kind}", save_all=True, append_images=others, duration=DELAYS, loop=again[kind], **options)
        for target in kinds:
            name = f"{kind}-to.{target}"
            said = tool.run(f"a.{kind}", name)
            tool.same(said, "", name)
            with Image.open(tool / name) as found:
                tool.same(found.n_frames, 5, name)
                tool.same(found.info["loop"], again[target], name)
                for index, frame in enumerate(ImageSequence.Iterator(found)):
                    frame.load()
                    tool.same(round(found.info["duration"]), DELAYS[index], f"{name}, frame {index}")
                    tool.same(numpy.array(frame.convert("RGB")), pictures[index], f"{name}, frame {index}")
        tool.run(f"a.{kind}", f"{kind}.npy", "--quiet")
        tool.same(numpy.load(tool / f"{kind}.npy"), numpy.stack(pictures), f"{kind} as an array")
        said = tool.run(f"a.{kind}", "one.jpg", "--page", "3", "--quality", "100")
        with Image.open(tool / "one.jpg") as found:
            worst = numpy.abs(numpy.array(found).astype(int) - pictures[2]).max()
            tool.same(worst < 30, True, f"frame 3 of {kind} differs by {worst}")
        tool.same("5 frames" in tool.fails(f"a.{kind}", f"{kind}.jpg"), True, "frames in a JPEG")


@check
def transparent_frames(tool):
    pictures = []
    for index in range(3):
        picture = numpy.zeros((20, 30, 4), numpy.uint8)
        picture[index * 5 : index * 5 + 6, 4:20] = (250, 100, 30, 255)
        pictures.append(picture)
    first, *others = map(Image.fromarray, pictures)
    first.save(tool / "t.png", save_all=True, append_images=others, duration=50, disposal=1)
    for target in ("png", "webp", "gif"):
        tool.run("t.png", f"t-to.{target}")
        with Image.open(tool / f"t-to.{target}") as found:
            for index, frame in enumerate(ImageSequence.Iterator(found)):
                frame = numpy.array(frame.convert("RGBA"))
                tool.same(frame[..., 3], pictures[index][..., 3], f"alpha of frame {index} of {target}")


@check
def pages(tool):
    shapes = [((20, 30), numpy.uint8), ((25, 31, 3), numpy.uint16), ((7, 9), numpy.float32)]
    kept = []
    with tifffile.TiffWriter(tool / "pages.tif") as out:
        for seed, (shape, kind) in enumerate(shapes):
            page = (numpy.random.default_rng(seed).random(shape) * 200).astype(kind)
            kept.append(page)
            out.write(page, photometric="rgb" if page.ndim == 3 else "minisblack")
    tool.run("pages.tif", "pages-out.tif")
    with tifffile.TiffFile(tool / "pages-out.tif") as found:
        tool.same(len(found.pages), 3, "pages")
        for index, page in enumerate(found.pages):
            tool.same(page.asarray(), kept[index], f"page {index}")
    tool.run("pages.tif", "page2.png", "--page", "2")
    tool.same(cv2.imread(str(tool / "page2.png"), cv2.IMREAD_UNCHANGED)[..., ::-1], kept[1], "page 2")


@check
def tiff_types(tool):
    rng = numpy.random.default_rng(4)
    for kind in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"):
        for channels in (1, 3):
            shape = (37, 53) if channels == 1 else (37, 53, 3)
            picture = (rng.random(shape) * 200 - (100 if kind[0] != "u" else 0)).astype(kind)
            for compression, name in (("none", "NONE"), ("deflate", "ADOBE_DEFLATE"), ("packbits", "PACKBITS")):
                photometric = "rgb" if channels == 3 else "minisblack"
                what = f"{kind}, {channels} channels, {compression}"
                options = {"compression": "zlib" if compression == "deflate" else None}
                if compression == "deflate" and kind in ("u1", "u2", "i2"):
                    options["predictor"] = True
                tifffile.imwrite(tool / "in.tif", picture, photometric=photometric, **options)
                tool.same(tool.run("in.tif", "out.tif", "--compression", compression), "", what)
                with tifffile.TiffFile(tool / "out.tif") as found:
                    tool.same(found.pages[0].asarray(), picture, what)
                    tool.same(found.pages[0].compression.name, name, what)
                tool.run("in.tif", "out.npy")
                tool.same(numpy.load(tool / "out.npy"), picture, what)


@check
def tiff_layouts(tool):
    rgb = smooth((37, 53, 3))
    tifffile.imwrite(tool / "planar.tif", numpy.moveaxis(rgb, 2, 0), photometric="rgb", planarconfig="separate")
    tifffile.imwrite(tool / "tiles.tif", rgb, photometric="rgb", tile=(16, 32))
    tifffile.imwrite(tool / "big.tif", rgb, photometric="rgb", bigtiff=True, byteorder=">")
    for name in ("planar", "tiles", "big"):
        tool.run(f"{name}.tif", f"{name}.npy")
        tool.same(numpy.load(tool / f"{name}.npy"), rgb, name)
    bits = Image.fromarray(rgb).convert("1")
    bits.save(tool / "bits.tif")
    tool.run("bits.tif", "bits.npy")
    tool.same(numpy.load(tool / "bits.npy"), numpy.array(bits.convert("L")), "bits")
    for compression, name in (("lzw", "tiff_lzw"), ("deflate", "tiff_adobe_deflate"), ("packbits", "packbits")):
        tool.run("tiles.tif", "compressed.tif", "--compression", compression)
        with Image.open(tool / "compressed.tif") as found:
            tool.same(found.info["compression"], name, "compression")
            tool.same(numpy.array(found), rgb, compression)
        found.save(tool / "theirs.tif", compression=name)
        tool.run("theirs.tif", "theirs.npy")
        tool.same(numpy.load(tool / "theirs.npy"), rgb, compression)
    rgba = numpy.dstack([rgb, smooth((37, 53), 2)])
    Image.fromarray(rgba).save(tool / "rgba.png")
    tool.run("rgba.png", "rgba.tif")
    with tifffile.TiffFile(tool / "rgba.tif") as found:
        tool.same(found.pages[0].asarray(), rgba, "RGBA")
        tool.same([int(kind) for kind in found.pages[0].extrasamples], [2], "ExtraSamples")


def camera():
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    exif[ExifTags.Base.Make] = "Maker"
    exif[ExifTags.Base.Copyright] = "All of us"
    inner = exif.get_ifd(ExifTags.IFD.Exif)
    inner[ExifTags.Base.DateTimeOriginal] = "2026:01:02 03:04:05"
    inner[ExifTags.Base.ExposureTime] = 0.25
    inner[ExifTags.Base.MakerNote] = b"a secret of the maker"
    exif.get_ifd(ExifTags.IFD.GPSInfo).update({1: "N", 2: (48.0, 51.0, 29.5)})
    return exif


@check
def metadata(tool):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    picture = Image.fromarray(smooth((40, 60, 3)))
    kinds = ("jpg", "png", "tif", "webp")
    for kind in kinds:
        options = {"exif": camera(), "icc_profile": profile, "dpi": (300, 150)}
        if kind == "webp":
            options.update(lossless=True)
        if kind == "tif":
            # Pillow writes no Exif directory there.
            (tool / "m.tif").write_bytes((tool / "m-jpg-to.tif").read_bytes())
        else:
            picture.save(tool / f"m.{kind}", **options)
        for target in kinds:
            name = f"m-{kind}-to.{target}"
            # WebP holds the resolution only in Exif data, and Pillow does not write it there.
            said = tool.run(f"m.{kind}", name)
            left = "left out, as it may describe the picture before filtering: the camera maker's notes\n"
            tool.same(said == "" if kind == "tif" else said.endswith(left) and said.count(";") == 0, True, said)
            with Image.open(tool / name) as found:
                tool.same(found.info.get("icc_profile"), profile, f"{name}: profile")
                exif = found.getexif()
                tool.same(exif.get(ExifTags.Base.Orientation), 6, f"{name}: orientation")
                tool.same(exif.get(ExifTags.Base.Make), "Maker", f"{name}: maker")
                tool.same(exif.get(ExifTags.Base.Copyright), "All of us", f"{name}: copyright")
                inner = exif.get_ifd(ExifTags.IFD.Exif)
                tool.same(inner.get(ExifTags.Base.DateTimeOriginal), "2026:01:02 03:04:05", f"{name}: date")
                tool.same(float(inner.get(ExifTags.Base.ExposureTime)), 0.25, f"{name}: exposure")
                tool.same(ExifTags.Base.MakerNote in inner, False, f"{name}: maker's notes")
                tool.same(exif.get_ifd(ExifTags.IFD.GPSInfo).get(1), "N", f"{name}: GPS")
                if "webp" not in (kind, target):
                    dpi = tuple(round(float(value)) for value in found.info["dpi"])
                    tool.same(dpi, (300, 150), f"{name}: resolution")
            name = f"u-{kind}-to.{target}"
            tool.run(f"m.{kind}", name, "--auto-orient")
            with Image.open(tool / name) as found, Image.open(tool / f"m.{kind}") as source:
                upright = ImageOps.exif_transpose(source)
                tool.same(found.size, upright.size, f"{name}: size")
                tool.same(found.getexif().get(ExifTags.Base.Orientation) in (None, 1), True, f"{name}: orientation")
                if target != "jpg":
                    tool.same(numpy.array(found), numpy.array(upright), f"{name}: pixels")
    said = tool.run("m.jpg", "m.qoi")
    for word in ("profile", "orientation", "Exif", "resolution"):
        tool.same(word in said, True, f"the note on QOI says {word}")
    tool.same(said.count("\n"), 1, "lines of the note on QOI")


@check
def jpegs(tool):
    picture = smooth((83, 131, 3))
    grey = picture[..., 0].copy()
    cv2.imwrite(str(tool / "j.png"), picture)
    cv2.imwrite(str(tool / "g.png"), grey)
    codes = {"420": 2, "422": 1, "444": 0}
    for name, code in codes.items():
        for progressive in (False, True):
            Image.fromarray(picture).save(tool / "j.jpg", quality=88, subsampling=code, progressive=progressive)
            tool.run("j.jpg", "j.npy")
            with Image.open(tool / "j.jpg") as found:
                tool.same(numpy.load(tool / "j.npy"), numpy.array(found), f"{name}, progressive: {progressive}")
            # As the input, unless an option says otherwise.
            tool.run("j.jpg", "again.jpg", "--quality", "95")
            with Image.open(tool / "again.jpg") as found:
                first = found.layer[0]
                tool.same((first[1], first[2]), {"420": (2, 2), "422": (2, 1), "444": (1, 1)}[name], name)
        for quality in (50, 95):
            tool.run("j.png", "ours.jpg", "--quality", str(quality), "--subsampling", name)
            Image.fromarray(picture[..., ::-1]).save(tool / "theirs.jpg", quality=quality, subsampling=code)
            with Image.open(tool / "ours.jpg") as ours, Image.open(tool / "theirs.jpg") as theirs:
                worst = numpy.abs(numpy.array(ours).astype(int) - numpy.array(theirs)).max()
                tool.same(worst <= 2, True, f"{name} at {quality} differs by {worst}")
    tool.run("g.png", "g.jpg")
    tool.same(cv2.imread(str(tool / "g.jpg"), cv2.IMREAD_UNCHANGED).ndim, 2, "a grey JPEG")
    Image.fromarray(picture).convert("CMYK").save(tool / "cmyk.jpg", quality=95)
    tool.run("cmyk.jpg", "cmyk.npy")
    tool.same(numpy.load(tool / "cmyk.npy").shape, picture.shape, "CMYK")


@check
def cut_off(tool):
    picture = smooth((200, 300, 3))
    cv2.imwrite(str(tool / "c.png"), picture)
    cv2.imwrite(str(tool / "c.jpg"), picture, [cv2.IMWRITE_JPEG_QUALITY, 95])
    Image.fromarray(picture).save(tool / "c.tif")
    Image.fromarray(picture).save(tool / "c.webp", lossless=True)
    for kind in ("png", "jpg", "tif", "webp"):
        data = (tool / f"c.{kind}").read_bytes()
        (tool / f"cut.{kind}").write_bytes(data[: len(data) // 3])
        said = tool.fails(f"cut.{kind}", "never.npy")
        # The decoder of WebP calls every fault a corrupt bitstream.
        tool.same("cut off" in said or kind == "webp", True, f"{kind}: {said}")
        if kind in ("png", "jpg"):
            said = tool.run(f"cut.{kind}", f"part-{kind}.npy", "--lenient")
            tool.same(said.count("\n") == 1 and "only a part" in said, True, f"{kind}: {said}")
            part, whole = numpy.load(tool / f"part-{kind}.npy"), picture[..., ::-1]
            worst = numpy.abs(part[:40].astype(int) - whole[:40]).max()
            tool.same(worst <= (0 if kind == "png" else 20), True, f"{kind}: the upper rows differ by {worst}")
            tool.same((part[-20:] == whole[-20:]).all(), False, f"{kind}: the lower rows are there")


@check
def arrays(tool):
    rng = numpy.random.default_rng(9)
    for kind in ("f8", "i1", "i2", "i4", "i8", "u4", "u8", "?"):
        array = rng.integers(0, 2, (11, 13)).astype(kind) if kind == "?" else (rng.random((11, 13)) * 120).astype(kind)
        for order in ("<", ">"):
            numpy.save(tool / "a.npy", array.astype(array.dtype.newbyteorder(order)))
            tool.same(tool.run("a.npy", "b.npy"), "", kind)
            tool.same(numpy.load(tool / "b.npy"), array, kind)
    numpy.save(tool / "many.npy", rng.random((11, 13, 7)).astype("f4"))
    tool.run("many.npy", "many-out.npy", "--axes", "yxc")
    tool.same(numpy.load(tool / "many-out.npy"), numpy.load(tool / "many.npy"), "seven channels")
    stack = rng.integers(0, 255, (5, 11, 13), dtype=numpy.uint16)
    numpy.save(tool / "stack.npy", stack)
    tool.run("stack.npy", "stack-out.npy", "--axes", "zyx")
    tool.same(numpy.load(tool / "stack-out.npy"), stack, "a stack")
    tool.run("stack.npy", "stack.tif", "--axes", "zyx")
    tool.same(tifffile.imread(tool / "stack.tif"), stack, "a stack as pages")
    tool.same("--axes zyx" in tool.fails("stack.npy", "never.npy"), True, "a stack or channels")


@check
def raw(tool):
    rng = numpy.random.default_rng(10)
    for kind in ("u1", "u2", "f4"):
        array = (rng.random((11, 13, 2)) * 250).astype(kind)
        (tool / "in.raw").write_bytes(array.tobytes())
        name = {"u1": "u8", "u2": "u16", "f4": "f32"}[kind]
        tool.run("in.raw", "out.npy", "--raw", f"13x11x2:{name}")
        tool.same(numpy.load(tool / "out.npy"), array, f"raw {name}")
        tool.run("out.npy", "out.raw")
        tool.same((tool / "out.raw").read_bytes(), array.tobytes(), f"raw {name}")


if __name__ == "__main__":
    main(__doc__, Tool, "files")
