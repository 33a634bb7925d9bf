"""Registers, spills and shared memory of the CUDA kernels; no GPU is needed.

python tools/kernel_resources.py [sm_90 ...]       # pip install 'wfstdec[nvrtc]'
"""

import re
import sys
from typing import NamedTuple

from wfstdec.wfst.cuda import COMPILE_OPTIONS
from wfstdec.wfst.device_layout import kernel_source

TARGETS = ("sm_75", "sm_80", "sm_90", "sm_100")
_KERNEL = re.compile(
    r"entry function '(?P<name>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?:[^\n]*?(?P<shared>\d+) bytes smem)?",
    re.DOTALL,
)


class Resources(NamedTuple):
    """What a kernel takes of a multiprocessor."""

    registers: int  # per thread
    spilled: int  # bytes per thread, of the stack, stored and loaded
    shared: int  # bytes per block, without the table


def compile_for(target, source=None):
    """Compile by NVRTC, as CuPy does: (PTX, log).

    Raises:
        RuntimeError: The source does not compile; holds the log.
    """
    from cuda.bindings import nvrtc

    text = (source or kernel_source()).encode()
    options = [f"--gpu-architecture={target}", *COMPILE_OPTIONS]
    options.append("--ptxas-options=-v")
    _, program = nvrtc.nvrtcCreateProgram(text, b"search.cu", 0, [], [])
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


def main(targets):
    """Print a line per target and kernel."""
    for target in targets:
        for name, kernel in resources(compile_for(target)[1]).items():
            print(f"{target:8}{name:16}", end="")
            print(
                f"{kernel.registers:4} registers {kernel.spilled:6} bytes spilled",
                end="",
            )
            print(f"{kernel.shared:8} bytes shared")


if __name__ == "__main__":
    main(sys.argv[1:] or TARGETS)
