"""The probe: known answers in emulation, each found wrong where a fault is planted."""

import ctypes
import functools
import json
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from cuda_emulation.device import EmulatedDevice, compile_kernels, load_library
from processes import ROOT, on_stand_in

from tools.gpu import OK_STATUS, UNFIT_STATUS, kernel_resources, log_add, probe_program
from tools.gpu.assumptions import ASSUMPTIONS
from tools.gpu.probe_program import PROBE, Machine

MOST_SHARED = 227 * 1024
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")

SUBNORMAL = "subnormal numbers, no fma, IEEE division"
PLANTS = (
    ("a record by value", "given.third", "given.third >> 1"),
    ("a record by value", "given.second", "given.second * 1.0e30f"),
    (
        "all shared memory that a block may have",
        "i * FACTOR",
        "i < 56 * 1024 ? i * FACTOR : 0u",
        "words[i] = ",
    ),
    (
        "64-bit atomicMin",
        "task.keys[i]",
        "task.keys[i] & 0xffffffffull",
        "atomicMin(&least[i % LEASTS], ",
    ),
    (
        "64-bit compare-and-swap",
        "atomicCAS(&table[slot], EMPTY, key)",
        "EMPTY",
        "there = ",
    ),
    ("ld.relaxed.cta", "peek(wide)", "peek(wide) ^ 1", "u64 w = "),
    ("ld.relaxed.cta", "peek(narrow)", "peek(narrow) + step % 3", "u32 n = "),
    ("ld.global.nc.v4", "quad.d", "quad.a"),
    (
        "shuffles and sums over a block",
        "__shfl_xor_sync(WHOLE_WARP, mine, 1)",
        "__shfl_xor_sync(WHOLE_WARP, mine, 2)",
    ),
    ("shuffles and sums over a block", "mine & 1", "mine & 2", "WHOLE_WARP, "),
    (SUBNORMAL, "a * b + c", "__builtin_fmaf(a, b, c)"),
    (SUBNORMAL, "a / b", "a * (1.0f / b)"),
    (
        SUBNORMAL,
        "a * b",
        "fabsf(a * b) < 1.17549435e-38f ? 0.0f : a * b",
        "found[3 * n + i] = __float_as_uint(",
    ),
    ("float16", "from_half(i)", "i & 0x7c00 ? from_half(i) : 0.0f"),
    (
        "redux.sync",
        "__reduce_min_sync(WHOLE_WARP, mine)",
        "__reduce_add_sync(WHOLE_WARP, mine)",
    ),
    ("log_add, 2^20 inputs", "(1.0f + r * p)", "__builtin_fmaf(r, p, 1.0f)"),
)
"""An assumption, an expression of the kernels, what a device would make of it where the
assumption does not hold, and what is before it where there are several."""


@functools.cache
def library():
    """The kernels with all plants in; `plant` chooses one."""
    source = PROBE.source()
    for i, (_, right, wrong, *rest) in enumerate(PLANTS):
        before = "".join(rest)
        assert source.count(before + right) == 1, right
        either = f"{before}(planted == {i} ? ({wrong}) : ({right}))"
        source = source.replace(before + right, either)
    head = 'static int planted = -1;\nextern "C" void plant(int which) '
    return compile_kernels(head + "{ planted = which; }\n" + source, PROBE.kernels)


def machine(planted=None, capability=90, **options):
    """The emulation, with a plant or none."""
    which = -1 if planted is None else planted
    load_library(library()).plant(ctypes.c_int(which))
    return Machine(
        lambda threads: EmulatedDevice(threads, library=library(), **options),
        MOST_SHARED,
        capability,
    )


def wrong_ones(machine):
    """Complaints of all assumptions that do not hold, by name."""
    found = {one.name: one.check(machine) for one in ASSUMPTIONS}
    return {name: wrong for name, wrong in found.items() if wrong is not None}


@needs_compiler
@pytest.mark.parametrize("preempt", [0, 7])
def test_all_assumptions_hold_in_emulation(preempt):
    assert wrong_ones(machine(preempt=preempt)) == {}


@needs_compiler
@pytest.mark.parametrize("planted", range(len(PLANTS)))
@pytest.mark.share(keep=2)
def test_an_assumption_that_does_not_hold_is_found(planted):
    name = PLANTS[planted][0]
    found = wrong_ones(machine(planted))
    assert set(found) == {name} and "expected 0x" in found[name]


@pytest.mark.nvrtc
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_120"])
@pytest.mark.share(keep=1)
def test_the_kernels_compile_and_are_what_they_ask_for(target):
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the extra `nvrtc`")
    ptx, log = kernel_resources.compile_for(target, PROBE.source())
    assert "warning" not in log
    kernels = kernel_resources.resources(log)
    assert set(kernels) == set(PROBE.kernels)
    assert all(kernel.spilled == 0 for kernel in kernels.values())
    assert kernels["fill_shared"].shared == 0, "it asks for all there is"
    assert not re.search(r"\bfma\.|\.ftz\b", ptx)

    def body(name):
        return kernel_resources.body_of(ptx, name)

    # Through pointers whose memory the compiler does not know: no `.shared`, `.global`.
    assert re.search(r"\batom\.(?!shared|global)[\w.]*min\.u64", body("least_keys"))
    assert re.search(r"\batom\.(?!shared|global)[\w.]*cas\.b64", body("claim_slots"))
    for wide in ("u32", "u64"):
        assert f"ld.relaxed.cta.{wide}" in body("peek_at_words")
    assert "ld.global.nc.v4" in body("read_quads")
    assert ("redux.sync" in body("reduce")) == (target != "sm_75")
    assert "div.rn.f32" in body("calculate")
    source = probe_program.SEARCH.source(probe_program.PLAIN)
    ptx, _ = kernel_resources.compile_for(target, source)
    assert all(f".entry {name}(" in ptx for name in probe_program.SEARCH.kernels)


def test_log_add_has_the_bits_that_are_kept():
    a, b = log_add.inputs()
    found = log_add.log_add(a, b)
    assert found.dtype == np.float32
    assert log_add.digest(found) == log_add.KEPT
    finite = np.isfinite(a) & np.isfinite(b)
    a, b, found = (x[finite].astype(np.float64) for x in (a, b, found))
    exact = -np.logaddexp(-a, -b)
    assert np.abs(found - exact).max() < 1.2e-7 + np.spacing(np.float32(80)) / 2
    x = np.abs(a - b).astype(np.float32)
    gain = log_add.log_one_plus(x) - np.log1p(np.exp(-x.astype(np.float64)))
    assert np.abs(gain).max() < 1.2e-7


def run(tmp_path, fault, until=None):
    """The probe's (exit status, lines by name, output); it is killed at `until`."""
    environment = on_stand_in(fault, CUPY_CACHE_DIR=str(tmp_path / "kernels"))
    output = tmp_path / "probe.jsonl"
    words = sys.executable, "-m", "tools.gpu.probe", "--output", output
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    printed = ""
    with subprocess.Popen(words, cwd=ROOT, env=environment, **both) as process:
        for line in process.stdout:
            printed += line
            if until is not None and until in line:
                process.kill()
    status = process.returncode
    lines = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    return status, {line["name"]: line for line in lines}, printed


@needs_compiler
def test_all_lines_come_home(tmp_path):
    status, lines, printed = run(tmp_path, "")
    assert status == OK_STATUS, printed
    assert "a stand-in" in lines["device"]["told"] and lines["device"]["limits"]
    loads = [name for name in lines if name.startswith("loads ")]
    assert len(loads) == 6 and all(lines[name]["ok"] for name in loads)
    order = list(lines)
    assert order[7:] == [*(one.name for one in ASSUMPTIONS), "gate"]
    assert lines["gate"]["told"] == "open; kernels are loaded by the file"
    assert len(printed.splitlines()) == len(lines)


@needs_compiler
@pytest.mark.parametrize(
    ("fault", "expected", "last", "beginning"),
    [
        ("no device", UNFIT_STATUS, "gate", "SHUT: backend 'cuda' finds no usable GPU"),
        ("no files", OK_STATUS, "gate", "open; kernels are loaded by its bytes"),
        ("no loads", UNFIT_STATUS, "gate", "SHUT: "),
        ("no halves", UNFIT_STATUS, "gate", "SHUT: the search cannot run"),
    ],
)
@pytest.mark.share(keep=1)
def test_a_device_that_is_no_good(tmp_path, fault, expected, last, beginning):
    status, lines, printed = run(tmp_path, fault)
    assert status == expected, printed
    assert list(lines)[-1] == last and lines["gate"]["told"].startswith(beginning)
    assert "Traceback" not in printed
    by_file = lines.get("loads search by the file")
    if by_file is not None:
        assert by_file["ok"] == (fault == "no halves")
    if fault == "no halves":
        assert "words differ" in lines["float16"]["told"] and not lines["float16"]["ok"]


@needs_compiler
@pytest.mark.share
def test_what_came_before_a_hang_is_home(tmp_path):
    status, lines, printed = run(tmp_path, "no sums", until="an endless kernel")
    assert status == -signal.SIGKILL and "an endless kernel" in printed
    assert lines["float16"]["ok"] and not {"log_add, 2^20 inputs", "gate"} & {*lines}
