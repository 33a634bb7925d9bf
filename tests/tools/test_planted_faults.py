"""The list of faults that are planted: each has its place, and tests that are there."""

import ast
from pathlib import Path

import pytest

from tools.planted_faults import Fault, read_faults

ROOT = Path(__file__).parents[2]
FAULTS = read_faults()
OF_CUDA = read_faults(ROOT / "tools" / "gpu" / "planted_faults.toml")
ROOMS = {
    *("wfst/cpu", "wfst/gpu", "trie", "trie/cpu", "greedy", "transducer", "align"),
    *("boost", "lm", "text", "fst", "graph", "lattice", "search", "search/paths"),
    *("gpu", "jit", "adapters", "attention"),
}
"""All rooms that compute."""


def test_thirty_faults_over_all_rooms_that_compute():
    assert len(FAULTS) >= 30
    assert {fault.room for fault in FAULTS} == ROOMS
    assert len({fault.what for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        assert fault.file.startswith(f"wfstdec/{fault.room}/"), fault.what


def test_thirty_faults_of_the_cuda_kernels():
    assert len(OF_CUDA) >= 30
    assert len({fault.what for fault in OF_CUDA}) == len(OF_CUDA)
    files = {fault.file for fault in OF_CUDA}
    for room in ("gpu", "wfst/gpu", "trie/gpu"):
        kernels = (ROOT / "wfstdec" / room / "kernels").iterdir()
        paths = {path.relative_to(ROOT).as_posix() for path in kernels}
        assert len(files & paths) >= len(paths) / 2, room
        files -= paths
    assert not files


@pytest.mark.parametrize("fault", FAULTS + OF_CUDA, ids=lambda fault: fault.what)
def test_a_fault_has_its_place_and_leaves_a_program(fault):
    text = (ROOT / fault.file).read_text("utf-8")
    planted = fault.plant(text)
    assert planted != text
    if fault.file.endswith(".py"):
        assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(text))
    for test in fault.tests:
        path, _, name = test.partition("[")[0].partition("::")
        assert (ROOT / path).exists(), test
        assert not name or f"def {name}(" in (ROOT / path).read_text("utf-8"), test


@pytest.mark.parametrize("text", ["nothing", "cost + cost + "])
def test_a_place_that_is_not_there_once(text):
    fault = Fault("lm", "x", "wfstdec/lm/x.py", "cost + ", "cost - ", [])
    with pytest.raises(ValueError, match="is not there once"):
        fault.plant(text)
