"""Times of calls from Python, compared with SciPy, OpenCV, CuPy and PyTorch where they are installed.

    pip install scipy opencv-python-headless
    python benchmark.py

Each time is the shortest of several measurements and includes the work. "1x1" shows the overhead of
a call.
"""

import argparse
import importlib
import time

import numpy as np

import apron
from apron import Filter, Plan, cv, ndimage


def present(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


SCIPY, OPENCV, CUPY, TORCH = (present(name) for name in ("scipy.ndimage", "cv2", "cupy", "torch"))


def least(run, seconds, wait=lambda: None):
    """The least time of a call, in microseconds."""
    run()
    wait()
    start = time.perf_counter()
    run()
    wait()
    count = max(1, int(2e-3 / max(time.perf_counter() - start, 1e-7)))
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(count):
            run()
        wait()
        best = min(best, (time.perf_counter() - start) / count)
    return best * 1e6


def row(name, *cells):
    print(f"| {name} | " + " | ".join(cells) + " |")


def table(title, *heads):
    print(f"\n{title}\n")
    row("case", *heads)
    row("---", *["---:"] * len(heads))


def overhead(seconds):
    table("Small images on the CPU, us", "1x1", "64x64", "64x64 with `out`", "rival, 64x64")
    for dtype, filter, rival in (
        ("u1", Filter.identity(), None),
        ("u1", Filter.gaussian(1.0), OPENCV and (lambda image: OPENCV.GaussianBlur(image, (9, 9), 1.0))),
        ("f4", Filter.gaussian(1.0), OPENCV and (lambda image: OPENCV.GaussianBlur(image, (9, 9), 1.0))),
        ("f4", Filter.box(3), OPENCV and (lambda image: OPENCV.blur(image, (3, 3)))),
    ):
        plan = Plan(filter, device="cpu")
        image, pixel = np.ones((64, 64), dtype), np.ones((1, 1), dtype)
        out = np.empty_like(image)
        times = (least(run, seconds) for run in (lambda: plan(pixel), lambda: plan(image), lambda: plan(image, out)))
        beside = f"OpenCV {least(lambda: rival(image), seconds):.1f}" if rival else ""
        row(f"{np.dtype(dtype)} {filter}", *(f"{time:.1f}" for time in times), beside)


def throughput(seconds, side):
    random = np.random.default_rng(0)
    kinds = [(shape, np.dtype(dtype)) for shape in ((side, side), (side // 2, side, 3)) for dtype in ("u1", "f4")]
    images = {f"{shape} {dtype}": (random.random(shape) * 255).astype(dtype) for shape, dtype in kinds}
    table("Images on the CPU, ms", "apron", "OpenCV", "ratio")
    calls = {
        "filter2D 5x5": lambda m, image: m.filter2D(image, -1, np.arange(25.0).reshape(5, 5) / 300),
        "GaussianBlur sigma 2": lambda m, image: m.GaussianBlur(image, (17, 17), 2.0),
        "Sobel to 32F": lambda m, image: m.Sobel(image, 5, 1, 0),
        "blur 9x9": lambda m, image: m.blur(image, (9, 9)),
    }
    for name, call in calls.items():
        for kind, image in images.items():
            ours = least(lambda: call(cv, image), seconds) / 1e3
            theirs = least(lambda: call(OPENCV, image), seconds) / 1e3 if OPENCV else float("nan")
            row(f"{name}, {kind}", f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}")
    table("The same results as SciPy's, ms", "apron", "SciPy", "ratio")
    calls = {
        "gaussian_filter sigma 2": lambda m, image: m.gaussian_filter(image, 2.0, axes=(0, 1)),
        "uniform_filter 9": lambda m, image: m.uniform_filter(image, 9, axes=(0, 1)),
        "correlate 5x5": lambda m, image: m.correlate(image, np.arange(25.0).reshape(5, 5) / 300, axes=(0, 1)),
        "laplace": lambda m, image: m.laplace(image, axes=(0, 1)),
    }
    for name, call in calls.items():
        for kind, image in images.items():
            ours = least(lambda: call(ndimage, image), seconds) / 1e3
            theirs = least(lambda: call(SCIPY, image), seconds) / 1e3 if SCIPY else float("nan")
            row(f"{name}, {kind}", f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}")


def device(seconds):
    """Device arrays: a small one for the call, a large one for the work."""
    plan = Plan(Filter.gaussian(2.0), device="gpu")
    libraries = {}
    if CUPY:
        libraries["CuPy"] = CUPY.asarray, CUPY.cuda.Device().synchronize
    if TORCH and TORCH.cuda.is_available():
        libraries["PyTorch"] = (lambda image: TORCH.from_numpy(image).cuda()), TORCH.cuda.synchronize
    table("Device arrays, us", "64x64 f32", "8192x8192 f32", "the library itself, 8192x8192")
    for name, (make, wait) in libraries.items():
        small, large = make(np.ones((64, 64), np.float32)), make(np.ones((8192, 8192), np.float32))
        if name == "CuPy":
            theirs = importlib.import_module("cupyx.scipy.ndimage")
            itself = lambda: theirs.gaussian_filter(large, 2.0)  # noqa: E731
        else:
            taps = TORCH.from_numpy(Filter.gaussian(2.0).taps[8:9].astype(np.float32)).cuda()
            taps = (taps / taps.sum())[None, None]
            pad, convolve = TORCH.nn.functional.pad, TORCH.nn.functional.conv2d

            def itself():
                padded = pad(large[None, None], (8, 8, 8, 8), mode="reflect")
                convolve(convolve(padded, taps), taps.transpose(2, 3))

        times = (least(run, seconds, wait) for run in (lambda: plan(small), lambda: plan(large), itself))
        row(name, *(f"{time:.1f}" for time in times))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="how long each case is measured")
    parser.add_argument("--side", type=int, default=2048, help="width of the large images on the CPU")
    arguments = parser.parse_args()
    seconds = arguments.seconds
    print(f"apron {apron.__version__}, NumPy {np.__version__}")
    overhead(seconds)
    throughput(seconds, arguments.side)
    if Plan("identity").device.startswith("gpu"):
        device(seconds)
    else:
        print("\nno GPU")


if __name__ == "__main__":
    main()
