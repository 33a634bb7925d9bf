"""Registers, spills and shared memory of the CUDA kernels; no GPU is needed.

python -m tools.gpu.kernel_resources [sm_90 ...]       # pip install '.[nvrtc]'
"""

import argparse
import re
from itertools import product
from typing import NamedTuple

from wfstdec.gpu.compiling import COMPILE_OPTIONS
from wfstdec.gpu.cupy_device import free_shared
from wfstdec.wfst.gpu.layout import PLAIN, PROGRAM, SLOT_BYTES, table_bytes

KIB = 1024
SHARED_MEMORY = {
    "sm_75": (64, 64, 0),
    "sm_80": (164, 163, 1),
    "sm_90": (228, 227, 1),
    "sm_100": (228, 227, 1),
}
"""KiB of a multiprocessor, of a block at most, and that each block loses (the CUDA
programming guide's table of compute capabilities)."""
TARGETS = tuple(SHARED_MEMORY)
VARIANTS = {"all": (), "plain": PLAIN.macros}
"""What kernels are compiled for: everything, and what is asked for most."""
_KERNEL = re.compile(
    r"entry function '(?P<name>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?:[^\n]*?(?P<shared>\d+) bytes smem)?",
    re.DOTALL,
)


class Resources(NamedTuple):
    """Resources of a multiprocessor that a kernel takes."""

    registers: int  # per thread
    spilled: int  # bytes per thread, of the stack, stored and loaded
    shared: int  # bytes per block, without the table


def compile_for(target, source=None):
    """Compile by NVRTC, as CuPy does: (PTX, log).

    Raises:
        RuntimeError: The source does not compile; holds the log.
    """
    from cuda.bindings import nvrtc

    text = (source or PROGRAM.source()).encode()
    options = [f"--gpu-architecture={target}", *COMPILE_OPTIONS]
    options.append("--ptxas-options=-v")
    _, program = nvrtc.nvrtcCreateProgram(text, PROGRAM.file.encode(), 0, [], [])
    (result,) = nvrtc.nvrtcCompileProgram(
        program, len(options), [option.encode() for option in options]
    )
    log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"{target}: {log.decode()}")
    ptx = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.decode(), log.decode()


def resources(log):
    """Kernel to `Resources`, from a log."""
    return {
        found["name"]: Resources(
            int(found["registers"]),
            int(found["stack"]) + int(found["stores"]) + int(found["loads"]),
            int(found["shared"] or 0),
        )
        for found in _KERNEL.finditer(log)
    }


def body_of(ptx, name):
    """A kernel in PTX."""
    _, _, body = ptx.partition(f".entry {name}(")
    return body.partition(".entry ")[0]


def table_slots(target, taken):
    """(slots of the table in shared memory, bytes of a block with it)."""
    whole, most, reserved = (KIB * kib for kib in SHARED_MEMORY[target])
    limits = {
        "MaxSharedMemoryPerMultiprocessor": whole,
        "MaxSharedMemoryPerBlockOptin": most,
        "ReservedSharedMemoryPerBlock": reserved,
    }
    table = table_bytes(free_shared(limits, taken))
    return table // SLOT_BYTES, reserved + taken + table


def main(targets):
    """Print a line per target, variant and kernel."""
    for target, (variant, macros) in product(targets, VARIANTS.items()):
        ptx, log = compile_for(target, PROGRAM.source(macros))
        for name, kernel in resources(log).items():
            size = len(re.findall(r";$", body_of(ptx, name), re.MULTILINE))
            print(
                f"{target:8}{variant:7}{name:14}{size:6} PTX instructions"
                f"{kernel.registers:4} registers{kernel.spilled:6} bytes spilled"
                f"{kernel.shared:7} bytes shared",
                end="",
            )
            if name == "search_chunk":
                slots, block = table_slots(target, PROGRAM.own_bytes)
                print(f", {block} with a table of {slots} slots", end="")
            print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=TARGETS, help="such as sm_90")
    main(parser.parse_args().targets)
