"""Filters a Zarr image that is larger than a worker's memory, with several processes, and compares
the result with one machine's.

python dask_zarr.py                          # 40000x40000 bytes, 4 workers of 1 GiB
python dask_zarr.py --kill                   # one of which is killed in the middle
python dask_zarr.py --gpus 2 --workers 2     # one worker a GPU
"""

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import zarr
from dask.distributed import Client, LocalCluster, WorkerPlugin, progress

import apron
import apron.dask


def noise(block_info):
    """A block of a picture: waves and noise, the same each time."""
    (rows, columns) = block_info[None]["array-location"]
    y, x = np.ogrid[slice(*rows), slice(*columns)]
    waves = 96 + 64 * np.sin(y / 97, dtype=np.float32) * np.cos(x / 61, dtype=np.float32)
    random = np.random.default_rng((rows[0], columns[0])).integers(0, 64, waves.shape, np.uint8)
    return waves.astype(np.uint8) + random


class OneGpu(WorkerPlugin):
    """Shows each worker one GPU, round robin; also a worker that replaces a killed one."""

    def __init__(self, gpus):
        self.gpus = gpus

    def setup(self, worker):
        os.environ["CUDA_VISIBLE_DEVICES"] = str(worker.name % self.gpus)


def wait(client, future, kill, folder, blocks, quiet):
    """Waits for the result; kills a worker once a quarter of the result is written."""
    if not quiet:
        progress(future)
    while kill and not future.done():
        written = sum(len(files) for _, _, files in os.walk(folder))
        if written > blocks // 4:
            pid = next(iter(client.run(os.getpid).values()))
            os.kill(pid, signal.SIGKILL)
            print(f"a worker was killed after {written} of {blocks} blocks")
            break
        time.sleep(0.02)
    future.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs=2, default=(40000, 40000), help="rows and columns")
    parser.add_argument("--block", type=int, default=2000, help="rows and columns of a block")
    parser.add_argument("--filter", default="gaussian:sigma=2")
    parser.add_argument("--border", default="reflect101")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gpus", type=int, default=0, help="number of GPUs, one for each worker")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--memory", default="1GiB", help="memory limit of a worker")
    parser.add_argument("--folder", type=Path, help="folder for the two images [default: a temporary folder]")
    parser.add_argument("--kill", action="store_true", help="kill a worker during the run")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        source, target = folder / "source.zarr", folder / "target.zarr"
        # Each worker holds the neighbours of one block, so none needs to spill to disk.
        dask.config.set({"distributed.worker.memory.spill": False, "distributed.worker.memory.target": False})
        with (
            LocalCluster(
                n_workers=arguments.workers, threads_per_worker=1, memory_limit=arguments.memory, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            if arguments.gpus:
                arguments.device = "gpu"
                client.register_plugin(OneGpu(arguments.gpus))
            shape, block = tuple(arguments.size), arguments.block
            chunks = da.core.normalize_chunks(block, shape)
            picture = da.map_blocks(noise, chunks=chunks, dtype=np.uint8, meta=np.empty((0, 0), np.uint8))
            for path in (source, target):
                zarr.create_array(path, shape=shape, chunks=(block, block), dtype="u1", compressors=None)
            da.store(picture, zarr.open_array(source), lock=False)
            print(f"{shape[0]}x{shape[1]} bytes in {len(chunks[0]) * len(chunks[1])} blocks")

            start = time.perf_counter()
            image = da.from_zarr(source)
            filtered = apron.dask.filter(image, arguments.filter, arguments.border, arguments.device)
            stored = da.store(filtered, zarr.open_array(target), lock=False, compute=False)
            future = client.compute(stored)
            wait(client, future, arguments.kill, target, len(chunks[0]) * len(chunks[1]), arguments.quiet)
            print(f"{arguments.workers} workers of {arguments.memory}: {time.perf_counter() - start:.2f} s")

        plan = apron.Plan(arguments.filter, arguments.border, arguments.device)
        whole = plan(zarr.open_array(source)[:])
        same = np.array_equal(whole, zarr.open_array(target)[:])
        print(f"equal to one machine's result: {same}")
        return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
