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
from cuda_emulation.device import EmulatedDevice

from wfstdec.gpu.device import Grid


class Array(np.ndarray):
    """An array of CuPy, as far as it goes."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)

    def get(self):
        return np.array(self)

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

    def __init__(self, ptr):
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


class Kernel:
    shared_size_bytes = 5800
    attributes: ClassVar[dict] = {"num_regs": 62, "local_size_bytes": 0}
    max_dynamic_shared_size_bytes = None
    preferred_shared_memory_carveout = None
    launched: ClassVar[list] = []

    def __init__(self, name, macros=()):
        self.name, self.macros = name, macros

    def __call__(self, grid, block, arguments, *, shared_mem):
        assert shared_mem <= (self.max_dynamic_shared_size_bytes or 0)
        Kernel.launched.append((self.name, current_stream().ptr))
        (record,) = arguments  # CuPy takes a record of NumPy by value
        assert type(record) is np.ndarray and record.shape == (1,)
        grid = Grid(self.name, *grid, shared_mem, self.macros)
        EmulatedDevice(*block).launch(grid, record)


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
        if "search_chunk" not in self.programs[program]:
            raise NVRTCError("NVRTC_ERROR_COMPILATION (6)")
        self.compiled.append(options)

    def getCUBIN(self, program):
        return b"machine code of " + self.programs[program].encode()

    def getPTX(self, program):
        return b"PTX of " + self.programs[program].encode()

    def getProgramLog(self, program):
        return "search.cu(1): error: wrong"

    def destroyProgram(self, program):
        del self.programs[program]


def raw_module(path):
    with open(path, "rb") as file:
        found = file.read().decode()
    assert found.startswith(("machine code of ", "PTX of "))
    head = found.partition("#line")[0]
    macros = [(name, int(value)) for name, value in re.findall(r"(\w+) (\d+)\n", head)]
    get_function = functools.partial(Kernel, macros=tuple(macros))
    return types.SimpleNamespace(get_function=get_function)


def stand_in(num_devices=1, free=1 << 30, pool_limit=0):
    """A module."""

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
