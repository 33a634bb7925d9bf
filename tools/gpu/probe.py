"""Probe of a GPU in 20 s: does it do what our kernels take for granted?

    python -m tools.gpu.probe --output probe.jsonl       # on the machine

No numba, no graph. Each line is printed and written to the file before the next step,
so that the file of a GPU that hangs has all earlier results.

1. Loads: our kernels from the file, from memory and as PTX, with their attributes.
2. Assumptions: a small kernel each, whose answer is known (`tools.gpu.assumptions`).

The exit status is 0 if everything holds, 5 if the search cannot run, 1 if only an
assumption fails that no search needs yet.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.gpu import OK_STATUS, UNFIT_STATUS, WRONG_STATUS
from tools.gpu.assumptions import ASSUMPTIONS, Assumption
from tools.gpu.probe_program import PLAIN, PROBE, SEARCH, Machine
from wfstdec.errors import BackendError
from wfstdec.gpu.compiling import WAYS, load_by
from wfstdec.gpu.cupy_device import CupyDevice, load_cupy

PROGRAMS = {"probe": (PROBE, ()), "search": (SEARCH, PLAIN)}


class Lines:
    """Findings, a line each, brought home as they come.

    Args:
        output: A file, one JSON record to a line; None: what is printed is all.
    """

    def __init__(self, output: Path | None) -> None:
        self._output, self._begin = output, time.monotonic()
        if output is not None:
            output.unlink(missing_ok=True)

    def add(self, name: str, told: str, **more: Any) -> None:
        """Print a line and write it; it has left this process when this returns."""
        seconds = round(time.monotonic() - self._begin, 1)
        print(f"{seconds:5.1f} s  {name}: {told}", flush=True)
        if self._output is None:
            return
        record = {"name": name, "told": told, "at_s": seconds, **more}
        with self._output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())


def make_device(threads: int) -> CupyDevice:
    """The current device, for blocks of `threads` threads of the probe."""
    return CupyDevice(PROBE, threads)


def describe(cupy: Any, lines: Lines) -> dict[str, int]:
    """Tell which device it is; returns its limits."""
    runtime, device = cupy.cuda.runtime, cupy.cuda.Device()
    found = runtime.getDeviceProperties(device.id)
    limits = dict(device.attributes)
    lines.add(
        "device",
        f"{found['name'].decode()}, compute capability {device.compute_capability}, "
        f"driver {runtime.driverGetVersion()}, CuPy {cupy.__version__}, "
        f"NVRTC {cupy.cuda.nvrtc.getVersion()}, "
        f"{limits['MaxSharedMemoryPerBlockOptin']} bytes of shared memory for a block",
        limits={name: int(value) for name, value in limits.items()},
    )
    return limits


def try_loads(cupy: Any, lines: Lines) -> bool:
    """Load both programs in every way; whether each loads in one of them."""
    loaded = set()
    for (name, (program, macros)), way in (
        (one, way) for one in PROGRAMS.items() for way in WAYS
    ):
        title = f"loads {name} by {way}"
        try:
            kernels = load_by(cupy, program, way, macros)
            attributes = {key: one.attributes for key, one in kernels.items()}
        except Exception as error:  # whatever it is, the other ways are tried
            lines.add(title, f"NO: {_told(error)}", ok=False)
            continue
        loaded.add(name)
        first = program.kernels[0]
        lines.add(title, f"{first} {attributes[first]}", ok=True, attributes=attributes)
    return loaded == set(PROGRAMS)


def check_assumptions(
    machine: Machine, lines: Lines, assumptions: Iterable[Assumption] = ASSUMPTIONS
) -> int:
    """Check all of them, whatever one comes to: the exit status so far."""
    status = OK_STATUS
    for one in assumptions:
        try:
            wrong = one.check(machine)
        except Exception as error:  # the others are asked all the same
            wrong = _told(error)
        ok = wrong is None
        needs = "the search needs it" if one.needed else "no search needs it yet"
        lines.add(
            one.name, "as it should be" if ok else f"NO ({needs}): {wrong}", ok=ok
        )
        if not ok:
            status = max(status, UNFIT_STATUS if one.needed else WRONG_STATUS)
    return status


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:500]


def main(argv: list[str] | None = None) -> int:
    """Run both parts; a failed load ends the probe."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="for the lines, as JSON")
    args = parser.parse_args(argv)
    lines = Lines(args.output)
    try:
        cupy = load_cupy()
        limits = describe(cupy, lines)
        fit = try_loads(cupy, lines)
        most_shared = limits["MaxSharedMemoryPerBlockOptin"]
        capability = int(cupy.cuda.Device().compute_capability)
        machine = Machine(make_device, most_shared, capability)
        way = machine.device(32).way if fit else "none"
    except BackendError as error:
        lines.add("gate", f"SHUT: {error}", ok=False)
        return UNFIT_STATUS
    status = check_assumptions(machine, lines) if fit else UNFIT_STATUS
    if status == UNFIT_STATUS:
        lines.add("gate", "SHUT: the search cannot run on this device", ok=False)
        return status
    lines.add("gate", f"open; kernels are loaded by {way}", ok=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
