"""Times of `apron.ndimage` over volumes of float32, beside CuPy's, or SciPy's without a GPU.

    python examples/volumes.py 256 256 256

prints a table in Markdown, in milliseconds. Arrays stay in the GPU's memory.
"""

import argparse
import importlib.util
import time

import numpy as np

from apron import ndimage


def milliseconds(run, wait, seconds):
    """The least mean time of a call, in rounds of so many seconds about."""
    run()
    wait()
    start = time.perf_counter()
    run()
    wait()
    calls = max(1, int(seconds / (time.perf_counter() - start)))
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        wait()
        best = min(best, (time.perf_counter() - start) / calls)
    return 1e3 * best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("extents", nargs="+", type=int)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a round")
    arguments = parser.parse_args()
    if importlib.util.find_spec("cupy"):
        import cupy as library
        import cupyx.scipy.ndimage as theirs

        wait = library.cuda.Device().synchronize
    else:
        import numpy as library
        import scipy.ndimage as theirs

        def wait():
            pass

    volume = library.asarray(np.random.default_rng(0).random(arguments.extents, np.float32))
    result = library.empty_like(volume)

    def measure(run):
        return f"{milliseconds(run, wait, arguments.seconds):.3f}"

    print(f"copy: {measure(lambda: library.copyto(result, volume))} ms\n")
    print(f"| | f32 | f64 | {theirs.__name__} |\n| --- | ---: | ---: | ---: |")
    for name, argument in (("gaussian_filter", 2), ("uniform_filter", 9)):
        times = []
        for sums in ("f32", "f64"):
            with ndimage.precision(sums):
                times.append(measure(lambda: getattr(ndimage, name)(volume, argument, output=result)))
        times.append(measure(lambda: getattr(theirs, name)(volume, argument, output=result)))
        print(f"| `{name}(volume, {argument})` | {' | '.join(times)} |", flush=True)


if __name__ == "__main__":
    main()
