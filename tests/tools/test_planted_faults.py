"""The list of faults that are planted: each has its place, and tests that are there."""

import ast
from pathlib import Path

import pytest

from tools.planted_faults import read_faults

ROOT = Path(__file__).parents[2]
FAULTS = read_faults()
OF_CUDA = read_faults(ROOT / "tools" / "gpu" / "planted_faults.toml")


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
