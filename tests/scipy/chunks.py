"""Large TIFFs filtered from file to file in chunks. tifffile and Pillow write and read them.

Each is filtered in chunks and in one piece. Both results must have the same bytes, and the same
values when read by either library. Prints one line of JSON at the end.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np
import PIL.Image
import tifffile


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--apron", required=True)
    options = parser.parse_args()
    checked, failures = 0, []

    def apron(folder, source, result, above):
        arguments = [options.apron, "filter", source, result, "--filter", "gaussian:2", "--device", "cpu", "--verbose",
                     "--overwrite", "--chunk-above", above]
        run = subprocess.run(arguments, cwd=folder, capture_output=True, text=True)
        if run.returncode != 0:
            raise AssertionError(f"{source}: {run.stderr}")
        return run.stderr

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        random = np.random.default_rng(5)
        for dtype in ("uint8", "uint16", "float16", "float32"):
            for shape in ((90, 71), (90, 71, 3)):
                values = (random.random(shape) * 250).astype(dtype)
                colours = "rgb" if len(shape) == 3 else "minisblack"
                for kind, settings in {
                    "one strip": {},
                    "strips": {"rowsperstrip": 7},
                    "big": {"bigtiff": True, "rowsperstrip": 16},
                    "big endian": {"byteorder": ">"},
                    "big, big endian": {"bigtiff": True, "byteorder": ">", "rowsperstrip": 1},
                }.items():
                    told = f"{dtype} {shape} {kind}"
                    tifffile.imwrite(folder / "in.tif", values, photometric=colours, metadata=None, **settings)
                    for result in ("out.tif", "out.npy"):
                        if "in chunks" not in apron(folder, "in.tif", result, "0"):
                            failures.append(f"{told}: {result} was not made in chunks")
                        if "in chunks" in apron(folder, "in.tif", f"whole-{result}", "1G"):
                            failures.append(f"{told}: whole-{result} was made in chunks")
                        if (folder / result).read_bytes() != (folder / f"whole-{result}").read_bytes():
                            failures.append(f"{told}: {result} has other bytes than in one piece")
                        checked += 1
                    found = tifffile.imread(folder / "out.tif")
                    if found.dtype != values.dtype or not np.array_equal(found, np.load(folder / "out.npy")):
                        failures.append(f"{told}: tifffile reads other values from the TIFF than NumPy from the array")
                    # Pillow has no 16-bit floats, and no colours of 16 or 32 bits.
                    if dtype == "uint8" or dtype in ("uint16", "float32") and len(shape) == 2:
                        with PIL.Image.open(folder / "out.tif") as picture:
                            if not np.array_equal(np.asarray(picture), found):
                                failures.append(f"{told}: Pillow reads other values than tifffile")
                        checked += 1
                # An array becomes a TIFF.
                np.save(folder / "in.npy", values)
                if "in chunks" not in apron(folder, "in.npy", "of-array.tif", "0"):
                    failures.append(f"{dtype} {shape}: the array was not filtered in chunks")
                if not np.array_equal(tifffile.imread(folder / "of-array.tif"), found):
                    failures.append(f"{dtype} {shape}: an array gives another TIFF")
        # Written by Pillow, with a resolution that the tool must keep.
        picture = PIL.Image.fromarray((random.random((60, 50, 3)) * 255).astype("uint8"))
        picture.save(folder / "pillow.tif", dpi=(300, 300))
        for result, above in (("pillow-chunks.tif", "0"), ("pillow-whole.tif", "1G")):
            apron(folder, "pillow.tif", result, above)
        if (folder / "pillow-chunks.tif").read_bytes() != (folder / "pillow-whole.tif").read_bytes():
            failures.append("Pillow's TIFF: other bytes than in one piece")
        with PIL.Image.open(folder / "pillow-chunks.tif") as found:
            if tuple(round(float(value)) for value in found.info["dpi"]) != (300, 300):
                failures.append(f"the resolution became {found.info['dpi']}")
        # Files with compression, tiles or white as zero are read as a whole.
        grey = (random.random((64, 64)) * 255).astype("uint8")
        for kind, settings in {"deflate": {"compression": "zlib"}, "tiles": {"tile": (16, 16)},
                               "white is zero": {"photometric": "miniswhite"}}.items():
            try:
                tifffile.imwrite(folder / "other.tif", grey, metadata=None, **settings)
            except Exception:  # compression may need another package
                continue
            if "in chunks" in apron(folder, "other.tif", "other.npy", "0"):
                failures.append(f"{kind} was filtered in chunks")
            checked += 1
    for failure in failures:
        print(failure)
    print(json.dumps({"checked": checked, "failures": len(failures)}))
    return 1 if failures or checked < 100 else 0


if __name__ == "__main__":
    raise SystemExit(main())
