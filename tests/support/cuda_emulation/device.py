"""A `Device` that is this machine's CPU: the kernels as they are, compiled by g++."""

import contextlib
import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
import threading
import weakref
from pathlib import Path

import numpy as np

from wfstdec.gpu.device import BlockShape, Budget
from wfstdec.gpu.logprobs import FLOAT16, FLOAT32, DeviceLogprobs
from wfstdec.search.logprobs import as_utterances
from wfstdec.wfst.gpu.layout import PROGRAM, SLOT_BYTES

HERE = Path(__file__).parent
FLAGS = (
    "-std=c++17 -O1 -g1 -Wall -Wextra -Werror -ffp-contract=off -fPIC -shared "
    "-fno-gnu-unique -pthread"
).split()
NAN = 0x7E00
"""A half that is none."""


_COMPILING = threading.Lock()


def compile_kernels(source=None, names=PROGRAM.kernels, flags=()):
    """A shared library of kernels, by default WFST's; compiled once for equal flags."""
    source = PROGRAM.source() if source is None else source
    entries = "".join(f"EMULATE({name})\n" for name in names)
    text, flags = f'#include "emulation.h"\n{source}\n{entries}', [*FLAGS, *flags]
    headers = [path.read_text() for path in sorted(HERE.glob("*.h"))]
    folder = Path(tempfile.gettempdir()) / f"wfstdec-emulation-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"{_digest(text, flags, headers)}.so"
    with _COMPILING:  # two threads decode parts of a batch
        if library.exists():
            return library
        # Parsing the headers is half of the work, and the same for all kernels.
        parsed = folder / _digest(flags, headers)
        parsed.mkdir(exist_ok=True)
        header = parsed / "emulation.h.gch"
        if not header.exists():
            words = ["-Wno-error", "-x", "c++-header", HERE / "emulation.h"]
            _build([*flags, *words], header)
        _build([*flags, f"-I{parsed}", f"-I{HERE}", "-x", "c++", "-"], library, text)
    return library


def _digest(*parts):
    return hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()


def _build(words, target, text=None):
    """Have g++ make a file; another process may be making it too."""
    part = target.with_suffix(f".{os.getpid()}")
    command = ["g++", *words, "-o", part]
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr[:4000]
    part.rename(target)


def in_16_bits(logprobs, kind=FLOAT16, padding=0):
    """`DeviceLogprobs` of FLOAT16 or cut BFLOAT16; rows have `padding` behind them."""
    if kind == FLOAT16:
        with np.errstate(over="ignore"):
            bits = logprobs.astype(np.float16).view(np.uint16)
    else:
        bits = (np.ascontiguousarray(logprobs).view(np.uint32) >> 16).astype("u2")
    return of_bits(np.pad(bits, [(0, 0), (0, padding)], constant_values=NAN), kind)


def in_32_bits(logprobs, padding=0):
    """Cast numbers to 32 bits each."""
    padded = np.pad(logprobs, [(0, 0), (0, padding)], constant_values=np.nan)
    return of_bits(padded, FLOAT32)


def of_bits(bits, kind):
    """`DeviceLogprobs` of numbers [T, V] as they are."""
    bits = np.ascontiguousarray(bits)
    return DeviceLogprobs(bits, bits.ctypes.data, kind, bits.shape[1], len(bits))


def as_given(logprobs, kind=FLOAT16):
    """Read such numbers, float32 [T, V], checked by `wfstdec.search.logprobs`."""
    bits = in_16_bits(logprobs, kind).buffer
    if kind == FLOAT16:
        given = bits.view(np.float16).astype(np.float32)
    else:
        given = (bits.astype(np.uint32) << 16).view(np.float32)
    return as_utterances([given], None, given.shape[1])[0]


@functools.cache
def load_library(path):
    return ctypes.CDLL(str(path))


@functools.cache
def load_program(program, macros):
    """The kernels of a program, compiled for so much."""
    return load_library(compile_kernels(program.source(macros), program.kernels))


class DeviceFault(Exception):
    """Error of a device that fails."""


class EmulatedDevice:
    """Blocks of `threads` fibers.

    Args:
        threads: threads of a block, a multiple of 32; or of several kinds of blocks.
        num_blocks: blocks of a launch, at most; of each kind.
        os_threads: how many threads of the operating system share them.
        preempt: a thread yields at about one in `preempt` atomics; 0: never.
        seed: which schedule.
        memory_limit: bytes that all work may take.
        shared_slots: of the WFST search's table in a block's shared memory.
        library: from `compile_kernels`, in place of kernels compiled for each launch.
        program: the kernels.
        shared_bytes: of a block's shared memory, in place of `shared_slots`.

    Attributes:
        launches: the names of the kernels that ran.
        grids: of every launch.
        fail_after: the device fails after this number of launches; None: it does not.
    """

    def __init__(
        self,
        threads=32,
        num_blocks=2,
        *,
        os_threads=1,
        preempt=0,
        seed=1,
        memory_limit=1 << 40,
        shared_slots=64,
        library=None,
        program=PROGRAM,
        shared_bytes=None,
    ):
        shared = shared_slots * SLOT_BYTES if shared_bytes is None else shared_bytes
        self.shape = BlockShape(threads, num_blocks, shared)
        self.os_threads, self.preempt, self.seed = os_threads, preempt, seed
        self.budget, self.second_stream = Budget(memory_limit), None
        self.failures, self.fail_after = (DeviceFault,), None
        self.launches, self.grids, self._sources = [], [], []
        self._library, self._program = library, program

    def empty(self, count, dtype):
        """Filled with a pattern: nothing may depend on what memory held before."""
        buffer = np.empty(count, dtype)
        buffer.view(np.uint8)[:] = 0xA5
        return buffer

    def on_stream(self, stream):
        return contextlib.nullcontext()

    def wait(self):
        """Copies from the host end here at the latest: their sources must be there."""
        sources, self._sources = self._sources, []
        gone = sum(source() is None for source in sources)
        assert not gone, f"{gone} arrays were gone before their copy ended"

    def write(self, target, array):
        if array.size:
            self._sources.append(weakref.ref(array))
        flat = np.ascontiguousarray(array).reshape(-1)
        target.view(np.uint8)[: flat.nbytes] = flat.view(np.uint8)

    def download(self, buffer, dtype):
        self.wait()
        assert buffer.dtype == dtype
        return np.array(buffer)

    @contextlib.contextmanager
    def downloaded(self, buffer, dtype):
        """Overwrite the array that was returned: a caller that kept it fails."""
        found = self.download(buffer, dtype)
        yield found
        found.view(np.uint8)[:] = 0xA5

    def staging(self, num_bytes):
        """Spoil what a copy left there: nothing may depend on it."""
        memory = np.full(num_bytes + 1, 0xA5, np.uint8)
        return contextlib.nullcontext(memory)

    def copy(self, target, source, num_bytes):
        ctypes.memmove(target, source, num_bytes)

    def address(self, buffer):
        assert buffer.flags.c_contiguous
        return buffer.ctypes.data

    def load(self, macros):
        """The kernels, compiled for so much."""
        if self._library:
            return load_library(self._library)
        return load_program(self._program, macros)

    def launch(self, grid, argument):
        self.launches.append(grid.kernel)
        if self.fail_after is not None and len(self.launches) > self.fail_after:
            raise DeviceFault("an illegal memory access was encountered")
        self.grids.append(grid)
        run = getattr(self.load(grid.macros), f"emulate_{grid.kernel}")
        run.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 3, ctypes.c_int]
        run.argtypes += [ctypes.c_uint] * 2
        run.restype = None
        run(
            argument.ctypes.data,
            grid.num_blocks,
            grid.threads or self.shape.threads,
            grid.shared_bytes,
            self.os_threads,
            self.preempt,
            self.seed,
        )
