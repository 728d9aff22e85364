"""Makes a picture of each filter, and a sheet of them all.

pip install pillow
python gallery.py ../../assets/astronaut.png gallery/
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import apron
from apron import Filter, Plan, cv, ndimage


def as_picture(values):
    """Values of either sign as grey around 128."""
    scale = 127 / max(np.percentile(np.abs(values), 99), 1e-6)
    return np.clip(128 + values * scale, 0, 255).astype(np.uint8)


def gallery(image):
    """Names and pictures."""

    def run(filter, **options):
        return Plan(filter, **options)(image)

    def derivative(filter):
        return as_picture(Plan(filter, border="replicate")(image, dtype=np.float32))

    grey = image.mean(axis=2, dtype=np.float32)
    yield "original", image
    yield "Gaussian, sigma 3", run(Filter.gaussian(3.0))
    yield "box, 15x15", run(Filter.box(15))
    yield "motion, 25 pixels, 30 degrees", run(Filter.motion(25, 30))
    yield "sharpened", run(Filter.sharpen())
    yield "unsharp mask", run(Filter.unsharp(3.0, 1.5))
    yield "embossed", run(Filter.emboss())
    yield "Sobel along x", derivative(Filter.sobel_x())
    yield "Laplacian of Gaussian", derivative(Filter.laplacian_of_gaussian(2.0))
    yield "taps by hand", run(Filter.from_taps(np.eye(9) / 9))
    yield "ndimage: gradient magnitude", as_picture(ndimage.gaussian_gradient_magnitude(grey, 1.5))
    yield "cv: Scharr along y", as_picture(cv.Scharr(grey, -1, 0, 1))


def volume():
    """Names and pictures of the middle slice of a volume: balls in noise."""
    rng = np.random.default_rng(1)
    z, y, x = np.mgrid[-1:1:48j, -1:1:256j, -1:1:256j].astype(np.float32)
    values = np.zeros_like(z)
    for ball in rng.uniform(-0.8, 0.8, (40, 3)):
        values[(z - ball[0]) ** 2 + (y - ball[1]) ** 2 + (x - ball[2]) ** 2 < 0.03] = 1.0

    def shown(values):
        return np.clip(values[24] * 160 + 48, 0, 255).astype(np.uint8)

    values += rng.normal(0, 0.6, z.shape).astype(np.float32)
    blurred = ndimage.gaussian_filter(values, 2)
    yield "volume: a slice", shown(values)
    yield "Gaussian between slices", shown(ndimage.gaussian_filter(values, 2, axes=0))
    yield "Gaussian along 3 axes", shown(blurred)
    yield "gradient magnitude along 3 axes", shown(5 * ndimage.gaussian_gradient_magnitude(values, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    image = np.asarray(Image.open(arguments.picture).convert("RGB"))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    pictures = [(name, Image.fromarray(values).convert("RGB")) for name, values in [*gallery(image), *volume()]]
    width, label, columns = 320, 20, 4
    height = width * image.shape[0] // image.shape[1]
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * width, rows * (height + label)), "white")
    draw = ImageDraw.Draw(sheet)
    for at, (name, picture) in enumerate(pictures):
        picture.save(arguments.folder / f"{at:02} {name}.png".replace(" ", "-").replace(",", "").replace(":", ""))
        x, y = at % columns * width, at // columns * (height + label)
        sheet.paste(picture.resize((width, height)), (x, y + label))
        draw.text((x + 4, y + 4), name, fill="black")
    sheet.save(arguments.folder / "sheet.png")
    print(
        f"{len(pictures)} pictures and sheet.png in {arguments.folder}, filtered on {Plan('identity').device}; apron {apron.__version__}"
    )


if __name__ == "__main__":
    main()
