#!/usr/bin/env python3
"""Compares apron's frames of animations with a compositor written here, and with Pillow.

    python3 animations.py --apron target/release/apron

It writes GIF, PNG and WebP animations byte by byte: random parts at random places under every
disposal and blend mode. apron reads them into arrays. Exits with 1 if anything differs, and if
nothing was compared.
"""

import argparse
import io
import itertools
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy
from PIL import Image, ImageSequence

WIDTH, HEIGHT, FRAMES = 23, 17, 24
KEEP, CLEAR, RESTORE = range(3)
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


class Part:
    """Pixels of a frame (RGBA), their place, and their blend and disposal modes."""

    def __init__(self, x, y, pixels, over, disposal):
        self.x, self.y, self.pixels, self.over, self.disposal = x, y, pixels, over, disposal


def parts(rng, alphas, modes, step, greatest=255, whole=False):
    """Random parts, under every mode, then under random modes. PNG needs a whole first frame."""
    chosen = []
    for index in range(FRAMES):
        x, y = rng.integers(0, WIDTH // step) * step, rng.integers(0, HEIGHT // step) * step
        width, height = rng.integers(1, WIDTH - x + 1), rng.integers(1, HEIGHT - y + 1)
        if rng.random() < 0.2 or whole and index == 0:
            x, y, width, height = 0, 0, WIDTH, HEIGHT
        pixels = rng.integers(0, greatest + 1, (height, width, 4))
        pixels[..., 3] = rng.choice(alphas, (height, width))
        over, disposal = modes[rng.integers(len(modes))] if index >= len(modes) else modes[index]
        chosen.append(Part(int(x), int(y), pixels, over, disposal))
    return chosen


def composed(all_parts, greatest=255):
    """The composed frames: integers, rounded half up."""
    canvas = numpy.zeros((HEIGHT, WIDTH, 4), numpy.int64)
    shown = []
    for part in all_parts:
        height, width = part.pixels.shape[:2]
        place = (slice(part.y, part.y + height), slice(part.x, part.x + width))
        before = canvas[place].copy()
        above = part.pixels.astype(numpy.int64)
        if part.over:
            source, target = above[..., 3:] * greatest, before[..., 3:] * (greatest - above[..., 3:])
            total = numpy.maximum(source + target, 1)
            colours = (above[..., :3] * source + before[..., :3] * target + total // 2) // total
            alpha = (source + target + greatest // 2) // greatest
            canvas[place] = numpy.where(above[..., 3:] == 0, before, numpy.concatenate([colours, alpha], 2))
        else:
            canvas[place] = above
        shown.append(canvas.copy())
        if part.disposal == CLEAR:
            canvas[place] = 0
        elif part.disposal == RESTORE:
            canvas[place] = before
    return numpy.stack(shown)


def chunk(name, data, order=">"):
    if order == ">":
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def rows(pixels, interlaced):
    """A picture as PNG compresses it: rows, each with a filter of none."""
    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    data = b""
    for x, y, across, down in passes:
        part = pixels[y::down, x::across]
        if part.size:
            data += b"".join(b"\0" + row.tobytes() for row in part)
    return zlib.compress(data)


def apng(all_parts, colour, depth, interlaced=False, still=False):
    """`colour` is PNG's number of a colour type, which can hold the values of the parts."""
    kept = {0: [0], 2: [0, 1, 2], 4: [0, 3], 6: [0, 1, 2, 3]}[colour]
    kind = ">u2" if depth == 16 else "u1"
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, colour, 0, 0, int(interlaced))
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"acTL", struct.pack(">II", len(all_parts), 3))
    number = 0
    if still:
        file += chunk(b"IDAT", rows(numpy.full((HEIGHT, WIDTH, len(kept)), 7, kind), interlaced))
    for index, part in enumerate(all_parts):
        height, width = part.pixels.shape[:2]
        where = (number, width, height, part.x, part.y, index + 1, 50, part.disposal, int(part.over))
        file += chunk(b"fcTL", struct.pack(">IIIIIHHBB", *where))
        data = rows(part.pixels[..., kept].astype(kind), interlaced)
        number += 1
        if index == 0 and not still:
            file += chunk(b"IDAT", data)
        else:
            file += chunk(b"fdAT", struct.pack(">I", number) + data)
            number += 1
    return file + chunk(b"IEND", b"")


def lzw(indices):
    """GIF's compression for 3 bits. It restarts before codes grow."""
    bits, count, data = 0, 0, bytearray()
    for number, index in enumerate([*indices, 9]):
        for code in ([8] if number % 6 == 0 else []) + [int(index)]:
            bits |= code << count
            count += 4
            while count >= 8:
                data.append(bits & 255)
                bits, count = bits >> 8, count - 8
    data.append(bits)
    blocks = [bytes(data[at : at + 255]) for at in range(0, len(data), 255)]
    return b"\x03" + b"".join(bytes([len(block)]) + block for block in blocks) + b"\0"


PALETTE = numpy.array([[0, 0, 0], [255, 0, 0], [0, 255, 9], [3, 4, 255], [255, 255, 255], [9, 99, 199], [70, 60, 50], [1, 2, 3]])


def gif(all_parts):
    """Every frame names index 0 as transparent: else Pillow fills with the background's colour."""
    file = b"GIF89a" + struct.pack("<HHBBB", WIDTH, HEIGHT, 0b10100010, 2, 0) + PALETTE.astype("u1").tobytes()
    file += b"\x21\xff\x0bNETSCAPE2.0\x03\x01" + struct.pack("<H", 2) + b"\0"
    for index, part in enumerate(all_parts):
        height, width = part.pixels.shape[:2]
        file += struct.pack("<BBBBHBB", 0x21, 0xF9, 4, (part.disposal + 1) << 2 | 1, index + 3, 0, 0)
        file += struct.pack("<BHHHHB", 0x2C, part.x, part.y, width, height, 0) + lzw(part.indices.ravel())
    return file + b";"


def indexed(rng, all_parts):
    for part in all_parts:
        part.indices = rng.integers(0, 8, part.pixels.shape[:2])
        part.pixels[..., :3] = PALETTE[part.indices]
        part.pixels[..., 3] = numpy.where(part.indices == 0, 0, 255)
    return all_parts


def webp(all_parts, alpha=True, lossy=False):
    """Chunks by hand around bitstreams by Pillow. The red background must not show."""
    body = chunk(b"VP8X", struct.pack("<I", 0b10 | alpha << 4) + struct.pack("<II", WIDTH - 1, HEIGHT - 1)[:3] + struct.pack("<I", HEIGHT - 1)[:3], "<")
    body += chunk(b"ANIM", bytes([0, 0, 255, 255]) + struct.pack("<H", 3), "<")
    for index, part in enumerate(all_parts):
        still = io.BytesIO()
        picture = Image.fromarray(part.pixels.astype("u1"), "RGBA")
        picture.save(still, "webp", lossless=not lossy, exact=True, quality=100)
        bits = still.getvalue()[12:]
        if bits[:4] == b"VP8X":
            bits = bits[18:]
        if lossy:
            with Image.open(still) as decoded:
                part.pixels = numpy.array(decoded.convert("RGBA")).astype(int)
        height, width = part.pixels.shape[:2]
        numbers = (part.x // 2, part.y // 2, width - 1, height - 1, index + 30)
        header = b"".join(struct.pack("<I", number)[:3] for number in numbers)
        flags = bytes([(0 if part.over else 2) | (part.disposal == CLEAR)])
        body += chunk(b"ANMF", header + flags + bits, "<")
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def plain(frames):
    """Frames as RGBA, without the colours of transparent pixels."""
    frames = numpy.asarray(frames).astype(int)
    if frames.shape[-1] == 3:
        frames = numpy.concatenate([frames, numpy.full_like(frames[..., :1], 255)], -1)
    frames[frames[..., 3] == 0] = 0
    return frames


class Judge:
    def __init__(self, apron, folder):
        self.apron, self.folder, self.count = apron, folder, 0

    def shown(self, name, data):
        (self.folder / name).write_bytes(data)
        target = self.folder / f"{name}.npy"
        command = [self.apron, "filter", self.folder / name, target, "--filter", "identity", "--alpha", "keep", "--device", "cpu"]
        done = subprocess.run([*command, "--overwrite"], capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{name}: {done.stderr.strip()}")
        return numpy.load(target)

    def near(self, found, expected, what, allowed=0):
        self.count += 1
        if found.shape != expected.shape:
            raise AssertionError(f"{what}: {found.shape} for {expected.shape}")
        worst = numpy.abs(found - expected).reshape(len(found), -1).max(1)
        if worst.max() > allowed:
            raise AssertionError(f"{what}: the frames differ by {worst.tolist()}")

    def check(self, name, data, expected, pillow=0, allowed=0):
        found = self.shown(name, data)
        expected = plain(expected)
        greatest = 65535 if found.dtype == numpy.uint16 else 255
        if greatest == 65535:
            found = numpy.asarray(found).astype(int)
            found[found[..., 3] == 0] = 0
        else:
            found = plain(found)
        self.near(found, expected, f"{name} by hand", allowed)
        if pillow is None:
            return
        with Image.open(self.folder / name) as opened:
            theirs = plain([numpy.array(frame.convert("RGBA")) for frame in ImageSequence.Iterator(opened)])
        if pillow:
            # Colours of nearly transparent pixels are imprecise: compare them times alpha.
            found, theirs = (numpy.rint(it * (it[..., 3:] / 255)).astype(int) for it in (found, theirs))
        self.near(found, theirs, f"{name} by Pillow", pillow)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--apron", required=True, type=pathlib.Path, help="the command-line tool")
    apron = parser.parse_args().apron.resolve()
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(apron, pathlib.Path(folder))

        def attempt(*arguments, **options):
            try:
                judge.check(*arguments, **options)
            except Exception as wrong:
                failures.append(repr(wrong))

        every = list(itertools.product([False, True], [KEEP, CLEAR, RESTORE]))
        webps = list(itertools.product([False, True], [KEEP, CLEAR]))
        for seed in range(6):
            rng = numpy.random.default_rng(seed)
            # Full alpha and no alpha are exact in all libraries.
            for name, alphas in (("sharp", [0, 255]), ("opaque", [255]), ("soft", range(256))):
                still = seed % 3 == 0
                chosen = parts(rng, alphas, every, 1, whole=not still)
                attempt(f"{seed}-{name}.png", apng(chosen, 6, 8, seed % 2 == 1, still), composed(chosen), None)
                # libwebp rounds down with every part that it blends.
                chosen = parts(rng, alphas, webps, 2)
                attempt(f"{seed}-{name}.webp", webp(chosen), composed(chosen), 12 if name == "soft" else 0)
            # Pillow cannot read interlaced parts. It restores nothing after a blended part, and
            # blends alpha like a colour.
            chosen = parts(rng, [0, 255], [mode for mode in every if mode != (True, RESTORE)], 1, whole=True)
            attempt(f"{seed}-pillow.png", apng(chosen, 6, 8), composed(chosen))
            chosen = indexed(rng, parts(rng, [255], [(True, disposal) for disposal in (KEEP, CLEAR, RESTORE)], 1))
            attempt(f"{seed}.gif", gif(chosen), composed(chosen))
            # The decoder's colours of lossy parts are near those of libwebp. The composition is the
            # same.
            chosen = parts(rng, [0, 255], webps, 2)
            data = webp(chosen, lossy=True)
            attempt(f"{seed}-lossy.webp", data, composed(chosen), 20, 20)
            for colour in (0, 2, 4):
                chosen = parts(rng, [255] if colour < 4 else [0, 255], every, 1, whole=True)
                for part in chosen:
                    if colour != 2:
                        part.pixels[..., 1] = part.pixels[..., 2] = part.pixels[..., 0]
                attempt(f"{seed}-{colour}.png", apng(chosen, colour, 8, seed % 2 == 0), composed(chosen), None)
            chosen = parts(rng, range(0, 65536, 257), every, 1, 65535, True)
            attempt(f"{seed}-wide.png", apng(chosen, 6, 16, seed % 2 == 0), composed(chosen, 65535), None)
    print(f"{judge.count} comparisons of animations, {len(failures)} failed")
    if failures or not judge.count:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
