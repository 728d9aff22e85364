"""Other libraries' filters, timed on the benchmark's own images.

Reads one JSON request a line, answers each with one JSON line. `hello` is written first: the
libraries that were found, and those that are missing, with the reasons. Then
    {"do": "open", "case": {...}}              -> {"peers": [names that apply]}
    {"do": "check", "peer": name}              -> {"difference", "differ", "note"}
    {"do": "time", "peer": name, "how": {...}} -> {"us": [...]}
    {"do": "done", "peer": name}               -> {}
    {"do": "close"}                            -> {}
A library that fails to check or to time answers {"skip": reason}.
`how` is {"rounds": n} on the GPU. On the CPU, and from host memory to host memory, it is
{"lead": s, "span": s}, in seconds.

A case gives the taps, and names two raw files: the pixels and the expected result, both
images * height x width x channels. If a library has another border than the one asked for, results
are not compared in a frame where the border matters.

`--self-test` runs the CPU libraries and the protocol on a small image, against a plain definition.
"""

import argparse
import ctypes
import glob
import importlib
import json
import math
import os
import sys
import time

SPAN = 2e-3  # seconds that the runs of one measurement take together
LONG = 0.5  # seconds; on a GPU, runs that take longer are measured once


class Skip(Exception):
    """Why a library does not run a case."""


def library(name):
    try:
        return importlib.import_module(name)
    except Exception as error:  # a broken library counts as missing
        raise Skip(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else name}")


class Case:
    """A problem: pixels and expected result as arrays, taps, and the forms of the filter to run."""

    def __init__(self, np, spec):
        self.np = np
        self.width, self.height, self.channels = spec["width"], spec["height"], spec["channels"]
        self.images = spec.get("images", 1)
        types = {"u8": np.uint8, "u16": np.uint16, "f16": np.float16, "f32": np.float32}
        self.stored, self.target = spec["stored"], spec.get("target", spec["stored"])
        self.dtype, self.result = np.dtype(types[self.stored]), np.dtype(types[self.target])
        self.classes, self.sigma, self.l2 = spec["classes"], spec.get("sigma"), spec.get("l2_cache", 0)
        self.preset = spec.get("preset") or ""
        self.taps = np.array(spec["taps"], np.float64)
        self.row = None if spec["row"] is None else np.array(spec["row"], np.float64)
        self.column = None if spec["column"] is None else np.array(spec["column"], np.float64)
        shape = (self.images * self.height, self.width, self.channels)
        self.pixels = np.fromfile(spec["pixels"], self.dtype).reshape(shape)
        self.expected = np.fromfile(spec["expected"], self.result).reshape(shape)
        if self.channels == 1:
            self.pixels, self.expected = self.pixels[:, :, 0], self.expected[:, :, 0]

    @property
    def size(self):
        return self.taps.shape[0]

    def work(self, steps):
        return self.images * self.width * self.height * self.channels * steps

    def planes(self, array):
        """The channels as contiguous planes."""
        array = array if array.ndim == 3 else array[:, :, None]
        return self.np.ascontiguousarray(array.transpose(2, 0, 1))

    def difference(self, found, margin):
        """The greatest difference from the expected result; for integers, how many values differ.

        A frame of `margin` pixels is left out.
        """
        if found.shape != self.expected.shape:
            raise Skip(f"its result is {found.shape}, not {self.expected.shape}")
        integers = self.result.kind == "u"
        columns = slice(margin, self.width - margin)
        wide = self.np.int32 if integers else self.np.float32
        worst, differ = 0.0, 0
        for image in range(self.images):
            first = image * self.height
            # A few rows at a time: the differences of a gigapixel image would not fit in memory.
            for start in range(first + margin, first + self.height - margin, 512):
                part = (slice(start, min(start + 512, first + self.height - margin)), columns)
                gaps = self.np.abs(found[part].astype(wide) - self.expected[part].astype(wide))
                gap = gaps.max()
                worst = max(worst, float(gap) if gap == gap else math.inf)
                differ += int(self.np.count_nonzero(gaps)) if integers else 0
        return worst, differ if integers else None


# --- CPU ------------------------------------------------------------------------------------------


class CpuClock:
    """Wall-clock times of one turn, as with the Rust side's `Turn`: runs for `lead` seconds that do
    not count, then each run that begins within `span` seconds, at least one.

    The Rust side times its own runs between turns, so that other load affects both.
    """

    def times(self, run, case, lead, span):
        begin = time.perf_counter()
        while time.perf_counter() - begin < lead:
            run(0)
        begin, result = time.perf_counter(), []
        while not result or time.perf_counter() - begin < span:
            start = time.perf_counter()
            run(0)
            result.append((time.perf_counter() - start) * 1e6)
        return result


class CpuPeer:
    device = "cpu"
    border_note, margin = None, 0

    def clock(self):
        return CpuClock()


class OpenCv(CpuPeer):
    def __init__(self, options):
        self.cv = library("cv2")
        self.np = library("numpy")
        self.cv.setNumThreads(options.threads)
        self.version = f"OpenCV {self.cv.__version__}, {self.cv.getNumThreads()} threads"

    def prepare(self, case):
        cv, dst = self.cv, self.np.empty_like(case.pixels)
        border = cv.BORDER_REFLECT_101
        run = self.call(case, dst, border)

        def once(_):
            if run() is not dst:
                raise Skip("it did not write into the image it was given")

        return once, lambda: dst


class OpenCvFilter(OpenCv):
    name, form = "OpenCV filter2D", "dense"

    def call(self, case, dst, border):
        taps = case.taps.astype(self.np.float32)
        return lambda: self.cv.filter2D(case.pixels, -1, taps, dst, borderType=border)


class OpenCvSeparable(OpenCv):
    name, form = "OpenCV sepFilter2D", "pair"

    def call(self, case, dst, border):
        if case.sigma is not None:
            raise Skip(None)
        row, column = case.row.astype(self.np.float32), case.column.astype(self.np.float32)
        return lambda: self.cv.sepFilter2D(case.pixels, -1, row, column, dst, borderType=border)


class OpenCvGaussian(OpenCv):
    name, form = "OpenCV GaussianBlur", "pair"

    def call(self, case, dst, border):
        if case.sigma is None:
            raise Skip(None)
        size = (case.size, case.size)
        return lambda: self.cv.GaussianBlur(case.pixels, size, case.sigma, dst, case.sigma, border)


class SciPy(CpuPeer):
    def __init__(self, options):
        self.ndimage = library("scipy.ndimage")
        self.np = library("numpy")
        self.version = f"SciPy {library('scipy').__version__}, one thread, f32 only: it does not round"

    def prepare(self, case):
        if case.dtype != self.np.float32 or case.channels != 1:
            raise Skip(None)
        if case.work(self.steps(case)) > 1 << 30:
            raise Skip("it would take many seconds")
        dst = self.np.empty_like(case.pixels)
        run = self.call(case, dst)
        return lambda _: run(), lambda: dst


class SciPyCorrelate(SciPy):
    name, form = "SciPy correlate", "dense"

    def steps(self, case):
        return case.size ** 2

    def call(self, case, dst):
        return lambda: self.ndimage.correlate(case.pixels, case.taps, output=dst, mode="mirror")


class SciPySeparable(SciPy):
    name, form = "SciPy correlate1d twice", "pair"

    def steps(self, case):
        return 2 * case.size

    def call(self, case, dst):
        between = self.np.empty_like(dst)

        def run():
            self.ndimage.correlate1d(case.pixels, case.row, 1, output=between, mode="mirror")
            self.ndimage.correlate1d(between, case.column, 0, output=dst, mode="mirror")

        return run


# --- GPU ------------------------------------------------------------------------------------------


class TorchDevice:
    """Memory and events through PyTorch."""

    def __init__(self, ordinal):
        self.torch = library("torch")
        if not self.torch.cuda.is_available():
            raise Skip("this PyTorch finds no GPU")
        self.torch.cuda.set_device(ordinal)
        self.torch.backends.cuda.matmul.allow_tf32 = False
        self.torch.backends.cudnn.allow_tf32 = False
        self.torch.backends.cudnn.benchmark = True
        properties = self.torch.cuda.get_device_properties(ordinal)
        self.ordinal = ordinal
        self.multiprocessors = properties.multi_processor_count
        self.capability = (properties.major, properties.minor)
        self.name = properties.name
        self.ballast = self.torch.empty(1 << 27, dtype=self.torch.float32, device="cuda")

    def upload(self, array):
        return self.torch.from_numpy(array).cuda()

    def like(self, array):
        return self.torch.empty_like(array)

    def download(self, array):
        return array.cpu().numpy()

    def pointer(self, array):
        return array.data_ptr()

    def load(self):
        self.ballast.zero_()

    def mark(self):
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def since(self, start, end):
        end.synchronize()
        return start.elapsed_time(end) * 1e-3

    def synchronize(self):
        self.torch.cuda.synchronize()

    def free(self):
        self.torch.cuda.empty_cache()


class CupyDevice:
    """Memory and events through CuPy."""

    def __init__(self, ordinal):
        self.cupy = library("cupy")
        if self.cupy.cuda.runtime.getDeviceCount() <= ordinal:
            raise Skip("this CuPy finds no such GPU")
        self.cupy.cuda.Device(ordinal).use()
        properties = self.cupy.cuda.runtime.getDeviceProperties(ordinal)
        self.ordinal = ordinal
        self.multiprocessors = properties["multiProcessorCount"]
        self.capability = (properties["major"], properties["minor"])
        self.name = properties["name"].decode()
        self.ballast = self.cupy.empty(1 << 27, self.cupy.float32)

    def upload(self, array):
        return self.cupy.asarray(array)

    def like(self, array):
        return self.cupy.empty_like(array)

    def download(self, array):
        return array.get()

    def pointer(self, array):
        return array.data.ptr

    def load(self):
        self.ballast.fill(0)

    def mark(self):
        event = self.cupy.cuda.Event()
        event.record()
        return event

    def since(self, start, end):
        end.synchronize()
        return self.cupy.cuda.get_elapsed_time(start, end) * 1e-3

    def synchronize(self):
        self.cupy.cuda.Device().synchronize()

    def free(self):
        self.cupy.get_default_memory_pool().free_all_blocks()


class GpuClock:
    """Times between events. Enough other work comes before the first event for the host to put in
    all runs before the GPU reaches them. The runs rotate through more buffers than the level-2
    cache holds."""

    def __init__(self, device, pairs):
        self.device, self.pairs = device, pairs

    def one_pass(self, run):
        for i in range(self.pairs):
            run(i)

    def times(self, run, case, rounds):
        device = self.device
        self.one_pass(run)
        device.synchronize()
        began, start = time.perf_counter(), device.mark()
        self.one_pass(run)
        host = time.perf_counter() - began
        one = max(device.since(start, device.mark()), 1e-7)
        start = device.mark()
        device.load()
        ballast = max(device.since(start, device.mark()), 1e-7)
        passes = min(max(math.ceil(SPAN / one), 1), 32)
        loads = 1 + min(int(2 * passes * host / ballast), 2000)
        result = []
        for _ in range(1 if one > LONG else rounds):
            for _ in range(loads):
                device.load()
            start = device.mark()
            for _ in range(passes):
                self.one_pass(run)
            result.append(device.since(start, device.mark()) * 1e6 / (passes * self.pairs))
        return result


class GpuPeer:
    device = "gpu"
    border_note, margin = None, 0

    def __init__(self, options):
        self.options = options
        self.np = library("numpy")
        self.memory = self.open(options.ordinal)
        self.version = self.describe()

    def pairs(self, case):
        each = 8 * case.work(1)
        return max(2, math.ceil(2 * case.l2 / each))

    def clock(self):
        return GpuClock(self.memory, self.count)

    def prepare(self, case):
        if (case.stored, case.target, case.images) != ("f32", "f32", 1):
            raise Skip(None)
        self.count = self.pairs(case)
        first = self.memory.upload(case.planes(case.pixels))
        sources = [first]
        for _ in range(1, self.count):
            copy = self.memory.like(first)
            copy[...] = first
            sources.append(copy)
        results = [None] * self.count
        run = self.call(case, sources, results)

        def fetch():
            self.memory.synchronize()
            planes = self.memory.download(results[0]).transpose(1, 2, 0)
            return planes[:, :, 0] if case.channels == 1 else planes

        return run, fetch


DEVICES = {}


def shared_device(kind, ordinal):
    if kind not in DEVICES:
        DEVICES[kind] = kind(ordinal)
    return DEVICES[kind]


class Torch(GpuPeer):
    def open(self, ordinal):
        return shared_device(TorchDevice, ordinal)


class CuDnn(Torch):
    name, form = "cuDNN conv2d", "dense"
    border_note = "zero edges"

    def describe(self):
        torch = self.memory.torch
        if not torch.backends.cudnn.is_available():
            raise Skip("this PyTorch has no cuDNN")
        return f"cuDNN {torch.backends.cudnn.version()} through PyTorch {torch.__version__}, no TF32"

    def call(self, case, sources, results):
        torch = self.memory.torch
        self.margin = case.size // 2
        taps = self.memory.upload(case.taps.astype(self.np.float32)[None, None])
        half = case.size // 2

        def run(i):
            with torch.no_grad():
                results[i] = torch.nn.functional.conv2d(sources[i].unsqueeze(1), taps, padding=half).squeeze(1)

        return run


class CuDnnPair(CuDnn):
    name, form = "cuDNN conv2d twice", "pair"

    def call(self, case, sources, results):
        torch = self.memory.torch
        self.margin = case.size // 2
        # Trying all of its algorithms takes minutes.
        torch.backends.cudnn.benchmark = case.size <= 33
        row = self.memory.upload(case.row.astype(self.np.float32)[None, None, None, :])
        column = self.memory.upload(case.column.astype(self.np.float32)[None, None, :, None])
        half = case.size // 2

        def run(i):
            with torch.no_grad():
                between = torch.nn.functional.conv2d(sources[i].unsqueeze(1), row, padding=(0, half))
                results[i] = torch.nn.functional.conv2d(between, column, padding=(half, 0)).squeeze(1)

        return run


def smooth(least):
    """Lengths from `least` to an eighth more whose only prime factors are 2, 3, 5 and 7: the three
    with the most factors of 2, and the shortest."""
    found = []
    for n in range(least, least + least // 8 + 2):
        rest, twos = n, 0
        while rest % 2 == 0:
            rest, twos = rest // 2, twos + 1
        for prime in (3, 5, 7):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            found.append((twos, n))
    by_twos = [n for _, n in sorted(found, key=lambda pair: (-pair[0], pair[1]))[:3]]
    return sorted(set(by_twos + [min(n for _, n in found)]))


class CuFft(Torch):
    name, form = "cuFFT", "any"
    border_note = "zero edges"

    def describe(self):
        return f"cuFFT through PyTorch {self.memory.torch.__version__}"

    def call(self, case, sources, results):
        if case.size < 17:
            raise Skip(None)
        torch, half = self.memory.torch, case.size // 2
        self.margin = half
        rows, columns = smooth(case.height + case.size - 1), smooth(case.width + case.size - 1)
        taps = self.memory.upload(case.taps.astype(self.np.float32))
        best = None
        for i in range(max(len(rows), len(columns))):
            shape = (rows[min(i, len(rows) - 1)], columns[min(i, len(columns) - 1)])
            # The middle tap moves to the origin; correlation takes the spectrum's conjugate.
            window = torch.zeros(shape, device="cuda")
            window[:case.size, :case.size] = taps
            spectrum = torch.fft.rfft2(window.roll((-half, -half), (0, 1))).conj().resolve_conj()

            def run(i, shape=shape, spectrum=spectrum):
                with torch.no_grad():
                    product = torch.fft.rfft2(sources[i], s=shape)
                    product *= spectrum
                    results[i] = torch.fft.irfft2(product, s=shape)[:, :case.height, :case.width]

            took = sorted(GpuClock(self.memory, self.count).times(run, case, 3))[1]
            if best is None or took < best[0]:
                best = (took, shape, run)
        self.chosen = f"padded to {best[1][1]}x{best[1][0]}"
        return best[2]


class Cupy(GpuPeer):
    def open(self, ordinal):
        self.ndimage = library("cupyx.scipy.ndimage")
        return shared_device(CupyDevice, ordinal)

    def describe(self):
        return f"CuPy {self.memory.cupy.__version__}"


class CupyCorrelate(Cupy):
    name, form = "CuPy correlate", "dense"

    def call(self, case, sources, results):
        if case.size > 33 and case.work(1) > 1 << 24:
            raise Skip("it would take many seconds")
        taps = self.memory.upload(case.taps.astype(self.np.float32))
        results[:] = [self.memory.like(source) for source in sources]

        def run(i):
            for plane, out in zip(sources[i], results[i]):
                self.ndimage.correlate(plane, taps, output=out, mode="mirror")

        return run


class CupySeparable(Cupy):
    name, form = "CuPy correlate1d twice", "pair"

    def call(self, case, sources, results):
        row = self.memory.upload(case.row.astype(self.np.float32))
        column = self.memory.upload(case.column.astype(self.np.float32))
        results[:] = [self.memory.like(source) for source in sources]
        between = self.memory.like(sources[0])

        def run(i):
            for plane, middle, out in zip(sources[i], between, results[i]):
                self.ndimage.correlate1d(plane, row, 1, output=middle, mode="mirror")
                self.ndimage.correlate1d(middle, column, 0, output=out, mode="mirror")

        return run


class Size(ctypes.Structure):
    _fields_ = [("width", ctypes.c_int), ("height", ctypes.c_int)]


class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_int)]


class StreamContext(ctypes.Structure):
    """NppStreamContext of nppdefs.h, NPP 12 and 13."""

    _fields_ = [
        ("stream", ctypes.c_void_p),
        ("device", ctypes.c_int),
        ("multiprocessors", ctypes.c_int),
        ("threads_per_multiprocessor", ctypes.c_int),
        ("threads_per_block", ctypes.c_int),
        ("shared_memory_per_block", ctypes.c_size_t),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("stream_flags", ctypes.c_uint),
        ("reserved", ctypes.c_int),
    ]


PITCH = 512  # rows begin at multiples of this many bytes, as in NPP's own allocations
REPLICATE = 2  # NPP_BORDER_REPLICATE, the one border that all of its filters have


def npp_library(stem):
    folders = [""]
    for pattern in ("/usr/local/cuda*/lib64/", "/usr/local/cuda*/targets/*/lib/", "/usr/lib/x86_64-linux-gnu/"):
        folders += sorted(glob.glob(pattern), reverse=True)
    for root in sys.path:
        folders += glob.glob(os.path.join(root, "nvidia", "cu1*", "lib", "")) + glob.glob(os.path.join(root, "nvidia", "npp", "lib", ""))
    failure = None
    for folder in folders:
        for ending in ("so.13", "so.12", "so"):
            path = f"{folder}lib{stem}.{ending}"
            if folder and not os.path.exists(path):
                continue
            try:
                return ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
            except OSError as error:
                failure = failure or str(error)
    raise Skip(f"lib{stem} was not found: {failure}")


class Npp(GpuPeer):
    border_note = "replicated edges"

    def open(self, ordinal):
        try:
            memory = shared_device(TorchDevice, ordinal)
        except Skip:
            memory = shared_device(CupyDevice, ordinal)
        self.core = npp_library("nppc")
        self.filters = npp_library("nppif")
        self.context = StreamContext(
            None, ordinal, memory.multiprocessors, 2048, 1024, 48 << 10, memory.capability[0], memory.capability[1], 0, 0
        )
        return memory

    def describe(self):
        try:
            version = self.core.nppGetLibVersion
            version.restype = ctypes.POINTER(ctypes.c_int * 3)
            return "NPP " + ".".join(str(part) for part in version().contents)
        except Exception:
            return "NPP"

    def function(self, name, *arguments):
        """An entry of NPP. Its arguments: source, step, size, offset, destination, step, region,
        `arguments`, border, context."""
        try:
            entry = getattr(self.filters, name)
        except AttributeError:
            raise Skip(f"this NPP has no {name}")
        pointer, integer = ctypes.c_void_p, ctypes.c_int
        entry.argtypes = [pointer, integer, Size, Point, pointer, integer, Size, *arguments, integer, StreamContext]
        entry.restype = integer
        return entry

    def is_planar(self, case):
        """Whether channels are planes, as ours are in f32. Otherwise they are interleaved."""
        return (case.stored, case.target, case.images) == ("f32", "f32", 1)

    def prepare(self, case):
        if self.is_planar(case):
            return super().prepare(case)
        rows, row = case.images * case.height, case.width * case.channels * case.dtype.itemsize
        step = -(-row // PITCH) * PITCH
        self.count = max(2, math.ceil(2 * case.l2 / (2 * rows * step)))
        pitched = self.np.zeros((rows, step), self.np.uint8)
        pitched[:, :row] = case.pixels.reshape(rows, -1).view(self.np.uint8)
        first = self.memory.upload(pitched)
        sources = [first]
        for _ in range(1, self.count):
            copy = self.memory.like(first)
            copy[...] = first
            sources.append(copy)
        results = [None] * self.count
        run = self.call(case, sources, results)
        return run, lambda: self.fetch(case, results)

    def fetch(self, case, results):
        """The first result, in the shape of the expected one."""
        self.memory.synchronize()
        found = self.memory.download(results[0])
        if self.is_planar(case):
            found = found.transpose(1, 2, 0)
        else:
            row = case.width * case.channels * case.result.itemsize
            found = self.np.ascontiguousarray(found[:, :row]).view(case.result).reshape(len(found), case.width, case.channels)
        return found[:, :, 0] if case.channels == 1 else found

    def planes(self, case, source, dst):
        """Pointers to source and result of each plane, or of each picture."""
        planar = self.is_planar(case)
        each = 4 * case.width * case.height if planar else case.height * source.shape[1]
        for i in range(case.channels if planar else case.images):
            yield self.memory.pointer(source) + i * each, self.memory.pointer(dst) + i * each

    def format(self, case):
        """The end of NPP's function names for the pixel type and the channels."""
        if case.target != case.stored:
            raise Skip(None)
        kind = {"u8": "8u", "u16": "16u", "f16": "16f", "f32": "32f"}[case.stored]
        return f"{kind}_C{1 if self.is_planar(case) else case.channels}R_Ctx"

    def taps_format(self, case):
        """As `format`, for f32 taps: the name has their type if the pixels have another one."""
        return f"{'' if case.stored == 'f32' else '32f'}_{self.format(case)}"

    def check_status(self, status):
        if status < 0:
            raise Skip(f"NPP status {status}")

    def buffers(self, case, sources, results):
        self.margin = case.size // 2
        results[:] = [self.memory.like(source) for source in sources]
        step = 4 * case.width if self.is_planar(case) else int(sources[0].shape[1])
        return step, Size(case.width, case.height), Point(0, 0)

    def turned(self, case, make, results):
        """NPP reverses some taps: returns the run whose result is closer to the expected one."""
        best = None
        for turn in (False, True):
            run = make(turn)
            run(0)
            gap = case.difference(self.fetch(case, results), self.margin)[0]
            if best is None or gap < best[0]:
                best = (gap, run)
        return best[1]


class NppFilter(Npp):
    name, form = "NPP FilterBorder", "dense"

    def call(self, case, sources, results):
        entry = self.function(f"nppiFilterBorder{self.taps_format(case)}", ctypes.c_void_p, Size, Point)
        step, size, origin = self.buffers(case, sources, results)
        half = case.size // 2

        def make(turn):
            values = case.taps[::-1, ::-1] if turn else case.taps
            taps = self.memory.upload(self.np.ascontiguousarray(values, self.np.float32))

            def run(i):
                for source, dst in self.planes(case, sources[i], results[i]):
                    self.check_status(entry(source, step, size, origin, dst, step, size, self.memory.pointer(taps),
                                            Size(case.size, case.size), Point(half, half), REPLICATE, self.context))

            return run

        return self.turned(case, make, results)


class NppPair(Npp):
    name, form = "NPP FilterRowBorder, ColumnBorder", "pair"

    def call(self, case, sources, results):
        own, ending = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int), self.taps_format(case)
        rows = self.function(f"nppiFilterRowBorder{ending}", *own)
        columns = self.function(f"nppiFilterColumnBorder{ending}", *own)
        step, size, origin = self.buffers(case, sources, results)
        between = self.memory.like(sources[0])
        half = case.size // 2
        self.border_note = Npp.border_note + (", rounded twice" if case.dtype.kind == "u" else "")

        def make(turn):
            order = -1 if turn else 1
            row = self.memory.upload(self.np.ascontiguousarray(case.row[::order], self.np.float32))
            column = self.memory.upload(self.np.ascontiguousarray(case.column[::order], self.np.float32))

            def run(i):
                firsts = self.planes(case, sources[i], between)
                seconds = self.planes(case, between, results[i])
                for (source, middle), (_, dst) in zip(firsts, seconds):
                    self.check_status(rows(source, step, size, origin, middle, step, size, self.memory.pointer(row),
                                           case.size, half, REPLICATE, self.context))
                    self.check_status(columns(middle, step, size, origin, dst, step, size, self.memory.pointer(column),
                                              case.size, half, REPLICATE, self.context))

            return run

        return self.turned(case, make, results)


class NppGauss(Npp):
    name, form = "NPP FilterGaussAdvancedBorder", "pair"

    def call(self, case, sources, results):
        if case.size > 65 and case.work(1) > 1 << 24:
            raise Skip("it would take many seconds")
        entry = self.function(f"nppiFilterGaussAdvancedBorder_{self.format(case)}", ctypes.c_int, ctypes.c_void_p)
        step, size, origin = self.buffers(case, sources, results)
        taps = self.memory.upload(self.np.ascontiguousarray(case.row, self.np.float32))
        one = "one set of taps for both passes: another filter"
        self.border_note = one if case.sigma is None else Npp.border_note

        def run(i):
            for source, dst in self.planes(case, sources[i], results[i]):
                self.check_status(entry(source, step, size, origin, dst, step, size, case.size, self.memory.pointer(taps),
                                        REPLICATE, self.context))

        return run


class NppSigned(Npp):
    """NPP has signed results of bytes only as 16-bit integers: half of the bytes of our f32."""

    name, form = "NPP FilterBorder 8u16s", "pair"
    border_note = "replicated edges, results of 16 bits"

    def call(self, case, sources, results):
        if (case.stored, case.target, case.channels, case.images) != ("u8", "f32", 1, 1):
            raise Skip(None)
        entry = self.function("nppiFilterBorder32f_8u16s_C1R_Ctx", ctypes.c_void_p, Size, Point)
        step, size, origin = self.buffers(case, sources, results)
        wide = self.np.zeros((case.height, 2 * step), self.np.uint8)
        results[:] = [self.memory.upload(wide) for _ in sources]
        half = case.size // 2

        def make(turn):
            values = case.taps[::-1, ::-1] if turn else case.taps
            taps = self.memory.upload(self.np.ascontiguousarray(values, self.np.float32))

            def run(i):
                self.check_status(entry(self.memory.pointer(sources[i]), step, size, origin, self.memory.pointer(results[i]),
                                        2 * step, size, self.memory.pointer(taps), Size(case.size, case.size),
                                        Point(half, half), REPLICATE, self.context))

            return run

        return self.turned(case, make, results)

    def fetch(self, case, results):
        self.memory.synchronize()
        return self.memory.download(results[0]).view(self.np.int16)[:, :case.width].astype(case.result)


class CvCuda(Torch):
    """The only filter of CV-CUDA that takes whole tensors and has the taps of a case."""

    name, form = "CV-CUDA gaussian", "pair"

    def describe(self):
        self.cv = library("cvcuda")
        return f"CV-CUDA {getattr(self.cv, '__version__', '')}".strip()

    def prepare(self, case):
        if case.sigma is None or case.target != case.stored:
            raise Skip(None)
        torch, cv = self.memory.torch, self.cv
        shape = (case.images, case.height, case.width, case.channels)
        self.count = max(2, math.ceil(2 * case.l2 / (2 * case.pixels.nbytes)))
        first = self.memory.upload(case.pixels.reshape(shape))
        buffers = [(first if i == 0 else first.clone(), torch.empty_like(first)) for i in range(self.count)]
        tensors = [tuple(cv.as_tensor(part, "NHWC") for part in pair) for pair in buffers]
        torch.cuda.synchronize()

        def run(i):
            source, dst = tensors[i]
            # PyTorch's stream, whose events measure the time.
            cv.gaussian_into(dst, source, (case.size, case.size), (case.sigma, case.sigma), cv.Border.REFLECT101,
                             stream=cv.Stream.default)

        def fetch():
            self.memory.synchronize()
            return self.memory.download(buffers[0][1]).reshape(case.expected.shape)

        return run, fetch


# --- from host memory to host memory --------------------------------------------------------------


class HostPeer(CpuPeer):
    """Filters the pictures of a case, which are one below the other in the file, as a user of the
    library does: one call for each picture, or one for all."""

    device, form = "host", "any"

    def pictures(self, case):
        return case.pixels.reshape(case.images, case.height, case.width, case.channels)


class HostOpenCv(HostPeer):
    name = "OpenCV taps"

    def __init__(self, options):
        self.cv, self.np = library("cv2"), library("numpy")
        self.cv.setNumThreads(options.threads)
        self.version = f"OpenCV {self.cv.__version__}, {self.cv.getNumThreads()} threads"

    def prepare(self, case):
        if case.work(case.size if case.row is None else 1) > 1 << 36:
            raise Skip("it would take many seconds")
        pictures = self.pictures(case)
        results = self.np.empty_like(pictures)
        once = self.call(case)

        def run(_):
            for picture, result in zip(pictures, results):
                once(picture, result)

        return run, lambda: results.reshape(case.expected.shape)

    def call(self, case):
        cv, border = self.cv, self.cv.BORDER_REFLECT_101
        if case.row is None:
            taps = case.taps.astype(self.np.float32)
            return lambda src, dst: cv.filter2D(src, -1, taps, dst, borderType=border)
        row, column = case.row.astype(self.np.float32), case.column.astype(self.np.float32)
        return lambda src, dst: cv.sepFilter2D(src, -1, row, column, dst, borderType=border)


class HostOpenCvOwn(HostOpenCv):
    """OpenCV's own function for the filter, where it has one."""

    name = "OpenCV GaussianBlur, blur, Sobel"

    def call(self, case):
        cv, border = self.cv, self.cv.BORDER_REFLECT_101
        if case.preset.startswith("gaussian") and case.sigma:
            size = (case.taps.shape[1], case.taps.shape[0])
            return lambda src, dst: cv.GaussianBlur(src, size, case.sigma, dst, case.sigma, border)
        if case.preset.startswith("box"):
            size = (case.taps.shape[1], case.taps.shape[0])
            return lambda src, dst: cv.blur(src, size, dst, (-1, -1), border)
        if case.preset == "sobel-x":
            return lambda src, dst: cv.Sobel(src, -1, 1, 0, dst, ksize=3, borderType=border)
        raise Skip(None)


class HostTorch(HostPeer):
    """Uploads, converts, filters by conv2d, converts and downloads. A filter that separates takes
    two conv2d."""

    border_note = "zero edges"
    pinned = False

    def __init__(self, options):
        self.np, self.memory = library("numpy"), shared_device(TorchDevice, options.ordinal)
        torch = self.memory.torch
        self.version = f"PyTorch {torch.__version__}, no TF32"

    def prepare(self, case):
        torch = self.memory.torch
        if case.row is None and case.size > 33:
            raise Skip("it would take many seconds")
        pictures = torch.from_numpy(self.pictures(case))
        results = torch.empty_like(pictures)
        if self.pinned:
            pictures, results = pictures.pin_memory(), results.pin_memory()
        self.margin = case.size // 2
        whole = case.dtype.kind == "u"
        passes = [case.taps[None, None]] if case.row is None else [case.row[None, None, None, :], case.column[None, None, :, None]]
        passes = [self.memory.upload(taps.astype(self.np.float32)) for taps in passes]

        def run(_):
            with torch.no_grad():
                for picture, result in zip(pictures, results):
                    # Planes of f32: conv2d takes no bytes.
                    planes = picture.to("cuda", non_blocking=self.pinned).permute(2, 0, 1).unsqueeze(1).float()
                    for taps in passes:
                        planes = torch.nn.functional.conv2d(planes, taps, padding=(taps.shape[2] // 2, taps.shape[3] // 2))
                    if whole:
                        planes = planes.round_().clamp_(0, 255).to(picture.dtype)
                    result.copy_(planes.squeeze(1).permute(1, 2, 0).contiguous(), non_blocking=self.pinned)
                torch.cuda.synchronize()

        return run, lambda: results.numpy().reshape(case.expected.shape)


class HostTorchPinned(HostTorch):
    name, pinned = "PyTorch conv2d, pinned", True


class HostTorchPageable(HostTorch):
    name = "PyTorch conv2d, pageable"


PEERS = [
    HostOpenCv, HostOpenCvOwn, HostTorchPinned, HostTorchPageable,
    OpenCvFilter, OpenCvSeparable, OpenCvGaussian, SciPyCorrelate, SciPySeparable,
    NppFilter, NppPair, NppGauss, NppSigned, CuDnn, CuDnnPair, CuFft, CupyCorrelate, CupySeparable, CvCuda,
]


# --- protocol -------------------------------------------------------------------------------------


class Session:
    def __init__(self, options):
        self.options, self.case, self.runs = options, None, {}
        self.peers, self.missing = {}, []
        for kind in PEERS:
            if kind.device != options.device:
                continue
            if kind.name in options.without:
                self.missing.append({"name": kind.name, "reason": "it ended the program that ran it"})
                continue
            try:
                self.peers[kind.name] = kind(options)
            except Skip as skip:
                self.missing.append({"name": kind.name, "reason": str(skip)})
            except Exception as error:
                self.missing.append({"name": kind.name, "reason": describe(error)})

    def hello(self):
        peers = [{"name": name, "version": peer.version, "class": peer.form} for name, peer in self.peers.items()]
        return {"peers": peers, "missing": self.missing}

    def answer(self, request):
        return getattr(self, "do_" + request["do"])(request)

    def do_open(self, request):
        self.do_close(request)
        self.case = Case(library("numpy"), request["case"])
        return {"peers": [name for name, peer in self.peers.items() if peer.form == "any" or peer.form in self.case.classes]}

    def do_check(self, request):
        peer = self.peers[request["peer"]]
        try:
            run, fetch = peer.prepare(self.case)
            run(0)
            difference, differ = self.case.difference(fetch(), peer.margin)
        except Skip as skip:
            return {"skip": skip.args[0] and str(skip)}
        except Exception as error:
            return {"skip": describe(error)}
        self.runs[peer.name] = run
        note = ", ".join(note for note in (getattr(peer, "chosen", None), peer.border_note) if note)
        return {"difference": difference if math.isfinite(difference) else None, "differ": differ, "note": note}

    def do_time(self, request):
        peer = self.peers[request["peer"]]
        try:
            run = self.runs[peer.name]
            return {"us": peer.clock().times(run, self.case, **request["how"])}
        except Exception as error:
            return {"skip": describe(error)}

    def do_done(self, request):
        """Frees the memory of one peer."""
        self.runs.pop(request["peer"], None)
        for device in DEVICES.values():
            device.free()
        return {}

    def do_close(self, _request):
        self.case, self.runs = None, {}
        for device in DEVICES.values():
            device.free()
        return {}


def describe(error):
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"


def serve(options, requests, reply):
    session = Session(options)
    reply(session.hello())
    for line in requests:
        if line.strip():
            reply(session.answer(json.loads(line)))


# --- self-test ------------------------------------------------------------------------------------


def self_test(options):
    """Compares the libraries on the CPU with the definition, through the protocol."""
    import tempfile

    np = library("numpy")
    random = np.random.default_rng(1)
    failures = checked = 0
    with tempfile.TemporaryDirectory() as folder:
        for stored, channels, pair, sigma in [("f32", 1, False, None), ("f32", 1, True, None), ("f32", 3, True, None),
                                              ("u8", 1, False, None), ("u8", 3, False, None), ("u8", 3, True, 1.1)]:
            row, column = random.random(5) / 2.5, random.random(5) / 2.5
            if sigma:
                row = column = np.exp(-np.arange(-2, 3) ** 2 / (2 * sigma ** 2))
                row = column = row / row.sum()
            taps = np.outer(column, row) if pair else random.random((5, 5)) / 12.5
            dtype = np.uint8 if stored == "u8" else np.float32
            pixels = (random.random((41, 67, channels)) * (255 if stored == "u8" else 1)).astype(dtype)
            padded = np.pad(pixels.astype(np.float64), ((2, 2), (2, 2), (0, 0)), mode="reflect")
            expected = sum(taps[r, c] * padded[r:r + 41, c:c + 67] for r in range(5) for c in range(5))
            if stored == "u8":
                expected = np.clip(np.rint(expected), 0, 255)
            paths = [os.path.join(folder, name) for name in ("pixels", "expected")]
            pixels.tofile(paths[0])
            expected.astype(dtype).tofile(paths[1])
            case = {"width": 67, "height": 41, "channels": channels, "stored": stored, "classes": ["dense", "pair"][pair:],
                    "taps": taps.tolist(), "row": row.tolist() if pair else None,
                    "column": column.tolist() if pair else None, "sigma": sigma,
                    "pixels": paths[0], "expected": paths[1]}
            answers = []
            session = Session(options)
            names = session.answer({"do": "open", "case": case})["peers"]
            for name in names:
                found = session.answer({"do": "check", "peer": name})
                if "skip" in found:
                    continue
                checked += 1
                # OpenCV's 8-bit Gaussian is a fixed-point approximation.
                bound = 1 if stored == "u8" else 1e-5
                times = session.answer({"do": "time", "peer": name, "how": {"lead": 0.001, "span": 0.001}})["us"]
                if found["difference"] is None or not found["difference"] <= bound or not times or min(times) <= 0:
                    failures += 1
                    print(f"{name}, {stored} x{channels}: {found}, {times}", file=sys.stderr)
                answers.append(name)
    for least, lengths in [(8242, (8320, 8448)), (2098, (2304,))]:
        if not all(n >= least for n in smooth(least)) or not any(n in lengths or n % 64 == 0 for n in smooth(least)):
            failures += 1
            print(f"smooth({least}): {smooth(least)}", file=sys.stderr)
    if ctypes.sizeof(StreamContext) != 48:
        failures += 1
        print(f"NppStreamContext has {ctypes.sizeof(StreamContext)} bytes", file=sys.stderr)
    print(json.dumps({"checked": checked, "failures": failures}))
    return 1 if failures or not checked else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "gpu", "host"], default="cpu")
    parser.add_argument("--ordinal", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        sys.exit(self_test(options))
    # Answers go to standard output, prints of the libraries to standard error.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(answer):
        channel.write(json.dumps(answer) + "\n")
        channel.flush()

    serve(options, sys.stdin, reply)


if __name__ == "__main__":
    main()
