"""A stand-in for CuPy, and for torch on a GPU, whose kernels run in the emulation."""

import contextlib
import ctypes
import functools
import re
import threading
import time
import types
from typing import ClassVar

import numpy as np
from cuda_emulation.device import EmulatedDevice, compile_kernels

from wfstdec.gpu.device import Grid


class Array(np.ndarray):
    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)

    def get(self, out=None):
        if out is not None:
            out[...] = self
        return np.array(self) if out is None else out

    def set(self, array):
        self[...] = array

    @property
    def device(self):
        return types.SimpleNamespace(id=getattr(self, "gpu", 0))

    def __dlpack_device__(self):
        return (2, 0)


class Lengths:
    """An array of CuPy that is no array of NumPy."""

    __cuda_array_interface__: ClassVar[dict] = {}

    def __init__(self, array):
        self._array = np.array(array)

    def get(self):
        return self._array


class Tensor:
    """A tensor of torch on a GPU, as far as it goes."""

    is_cuda = True
    device = "cuda:0"

    def __init__(self, array, dtype):
        self.array, self.dtype, self.ndim = array, f"torch.{dtype}", array.ndim

    def detach(self):
        return self

    def view(self, dtype):
        assert dtype == "int16"
        return Tensor(self.array.view(np.int16), dtype)

    def __dlpack_device__(self):
        return (2, 0)

    def __getitem__(self, i):
        return Tensor(self.array[i], self.dtype.removeprefix("torch."))


class Stream:
    """A stream; in its context it is the current one of the thread."""

    local = threading.local()

    def __init__(self, ptr=0, non_blocking=False):
        self.ptr = ptr

    @staticmethod
    def from_external(other):
        version, pointer = other.__cuda_stream__()
        assert version == 0
        return Stream(pointer)

    def __enter__(self):
        Stream.local.__dict__.setdefault("current", []).append(self)

    def __exit__(self, *_):
        Stream.local.current.pop()

    def synchronize(self):
        pass


Stream.null = Stream(0)


def current_stream():
    current = getattr(Stream.local, "current", [])
    return current[-1] if current else Stream.null


UNASKED = 48 * 1024
"""Shared memory that a block may have without asking for it."""


class Kernel:
    """A kernel; `library` has it where it is none of the WFST search."""

    attributes: ClassVar[dict] = {"num_regs": 62, "local_size_bytes": 0}
    max_dynamic_shared_size_bytes = None
    preferred_shared_memory_carveout = None
    launched: ClassVar[list] = []

    def __init__(self, name, macros=(), library=None):
        self.name, self.macros, self.library = name, macros, library
        self.shared_size_bytes = 5800 if name == "search_chunk" else 0

    def __call__(self, grid, block, arguments, *, shared_mem):
        assert shared_mem <= (self.max_dynamic_shared_size_bytes or UNASKED)
        (record,) = arguments  # CuPy takes a record of NumPy by value
        assert type(record) is np.ndarray and record.shape == (1,)
        Kernel.launched.append((self.name, current_stream().ptr))
        device = EmulatedDevice(*block, library=self.library)
        launch = Grid(self.name, *grid, shared_mem)._replace(macros=self.macros)
        device.launch(launch, record)


class CudaDriverError(RuntimeError):
    pass


class CudaRuntimeError(RuntimeError):
    pass


def array_of(value, dtype=None):
    return np.array(value, dtype).view(Array)


def from_dlpack(array):
    """Without a copy."""
    given = array.array if isinstance(array, Tensor) else array
    return given.view(Array)


class CudaDevice(contextlib.nullcontext):
    id = 0
    compute_capability = "90"
    attributes: ClassVar[dict] = {
        "MaxRegistersPerMultiprocessor": 65536,
        "MaxThreadsPerMultiProcessor": 2048,
        "MultiProcessorCount": 3,
        "MaxBlocksPerMultiprocessor": 24,
        "MaxSharedMemoryPerMultiprocessor": 100 * 1024,
        "MaxSharedMemoryPerBlockOptin": 99 * 1024,
        "ReservedSharedMemoryPerBlock": 1024,
        "ClockRate": 1_000_000,
    }

    def __init__(self, number=0):
        assert number == 0
        super().__init__()

    def synchronize(self):
        pass


class Event:
    def record(self):
        self.s = time.perf_counter()

    def synchronize(self):
        pass


class NVRTCError(RuntimeError):
    pass


class Nvrtc:
    """A compiler; `compiled` has the options of every program."""

    NVRTCError = NVRTCError

    def __init__(self):
        self.compiled, self.programs = [], {}

    def getVersion(self):
        return (13, 0)

    def getSupportedArchs(self):
        return (75, 80, 90)

    def createProgram(self, source, name, headers, include_names):
        self.programs[7] = source
        return 7

    def compileProgram(self, program, options):
        if "__global__" not in self.programs[program]:
            raise NVRTCError("NVRTC_ERROR_COMPILATION (6)")
        self.compiled.append(options)

    def getCUBIN(self, program):
        """Machine code as CuPy has it: without its last byte."""
        return (b"machine code of " + self.programs[program].encode() + b"\0")[:-1]

    def getPTX(self, program):
        return b"PTX of " + self.programs[program].encode()

    def getProgramLog(self, program):
        return "search.cu(1): error: wrong"

    def destroyProgram(self, program):
        del self.programs[program]


def raw_module(path):
    """Load a file like the driver: machine code that is cut off is none."""
    with open(path, "rb") as file:
        content = file.read()
    if not content.startswith(b"PTX") and not content.endswith(b"\0"):
        raise CudaDriverError(
            "CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid"
        )
    return types.SimpleNamespace(get_function=functions_of(content))


class Module:
    """A module that is loaded from memory, where a NUL follows."""

    def load(self, content):
        self.get_function = functions_of(content, InModule)


def functions_of(content, kind=Kernel):
    """Maker of kernels by name, of what a compiler made."""
    found = content.decode().rstrip("\0")
    assert found.startswith(("machine code of ", "PTX of "))
    if "search_chunk" in found:
        head = found.partition("#line")[0]
        macros = re.findall(r"(\w+) (\d+)\n", head)
        macros = tuple((name, int(value)) for name, value in macros)
        return functools.partial(kind, macros=macros)
    source = found.partition(" of ")[2]
    bounds = r"(?:__launch_bounds__\([^)]*\)\s+)?"
    names = tuple(re.findall(rf'extern "C" __global__ void {bounds}(\w+)', source))
    return functools.partial(kind, library=compile_kernels(source, names))


class InModule(Kernel):
    """A function of a module: it has no attributes but by the driver."""

    ptr = property(lambda self: self)


ATTRIBUTES = (
    *("max_threads_per_block", "shared_size_bytes", "const_size_bytes"),
    *("local_size_bytes", "num_regs", "ptx_version", "binary_version"),
    *("max_dynamic_shared_size_bytes", "preferred_shared_memory_carveout"),
)


def get_attribute(name, function):
    return getattr(function, name, None) or function.attributes.get(name, 0)


driver = types.SimpleNamespace(
    CUDADriverError=CudaDriverError,
    funcGetAttribute=get_attribute,
    funcSetAttribute=setattr,
    **{f"CU_FUNC_ATTRIBUTE_{name.upper()}": name for name in ATTRIBUTES},
)


def stand_in(num_devices=1, free=1 << 30, pool_limit=0):
    def get_device_count():
        if num_devices is None:
            raise CudaRuntimeError("cudaErrorInsufficientDriver: too old")
        return num_devices

    runtime = types.SimpleNamespace(
        getDeviceCount=get_device_count,
        CUDARuntimeError=CudaRuntimeError,
        memGetInfo=lambda: (free, 2 * free),
        getDeviceProperties=lambda _: {
            "name": b"a stand-in",
            "multiProcessorCount": 3,
            "major": 9,
            "minor": 0,
            "totalGlobalMem": 2 * free,
            "l2CacheSize": 1 << 20,
        },
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
        memcpyHostToDevice=1,
        memcpyDeviceToHost=2,
        memcpyDeviceToDevice=3,
        memcpyAsync=lambda to, source, count, kind, stream: ctypes.memmove(
            to, source, count
        ),
    )
    pool = types.SimpleNamespace(
        free_bytes=lambda: 1 << 20,
        used_bytes=lambda: 1 << 10,
        get_limit=lambda: pool_limit,
        free_all_blocks=lambda: None,
    )
    return types.SimpleNamespace(
        __version__="0",
        uint8=np.uint8,
        zeros=lambda count, dtype: array_of(np.zeros(1024, dtype)),
        empty_like=lambda array: np.empty_like(array),
        copyto=np.copyto,
        RawModule=raw_module,
        asarray=array_of,
        ascontiguousarray=lambda x: np.ascontiguousarray(x).view(Array),
        empty=lambda count, dtype: array_of(np.full(count, 0xA5, dtype)),
        from_dlpack=from_dlpack,
        get_default_memory_pool=lambda: pool,
        cuda=types.SimpleNamespace(
            runtime=runtime,
            driver=driver,
            function=types.SimpleNamespace(Module=Module),
            nvrtc=Nvrtc(),
            memory=types.SimpleNamespace(OutOfMemoryError=MemoryError),
            Device=CudaDevice,
            Event=Event,
            get_elapsed_time=lambda start, end: 1e3 * (end.s - start.s),
            Stream=Stream,
            get_current_stream=current_stream,
            alloc_pinned_memory=bytearray,
        ),
    )
