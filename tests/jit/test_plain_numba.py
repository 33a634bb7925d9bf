"""Kernels that numba alone compiles, where its internals are not what ours use."""

import numpy as np
import pytest
from numba.core import config
from processes import python

from wfstdec import WfstDecoder, warm_up

pytestmark = pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
BREAK = {
    "missing": """
from numba.core import analysis
del analysis.must_use_alloca
""",
    "refused": """
from numba.core.codegen import CPUCodegen
found = CPUCodegen._pass_builder
def builder(self, **options):
    if sys._getframe(1).f_globals["__name__"].startswith("wfstdec"):
        raise AttributeError("no _pass_builder")
    return found(self, **options)
CPUCodegen._pass_builder = builder
""",
}
"""Internals that only numba itself has: not there, or an error while it compiles."""
RUN = """
import sys, warnings
import numpy as np
import numba
{broken}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    {run}
assert all("numba alone" in str(one.message) for one in caught), caught
print(len(caught))
"""
KERNELS = """
    from typing import NamedTuple
    from wfstdec.jit import inlined, jit, kernel, part

    class Arrays(NamedTuple):
        values: np.ndarray
        scale: float

    @inlined
    def at(given, i):
        return given.values[i] * given.scale

    @part
    def through(given, i):
        return at(given, i) + 1

    @kernel
    def total(given):
        result = 0.0
        for i in range(len(given.values)):
            result += through(given, i)
        return result

    @jit
    def counted(given):
        return given.values * total(given)

    given = Arrays(np.arange(1.0, 4.0), 0.1)
    print(total(given), *counted(given))
    print(float(total.py_func(given)), *counted.py_func(given))
"""
DECODE = """
    import wfstdec
    decoder = wfstdec.WfstDecoder(wfstdec.load_graph({graph!r}))
    [one] = decoder.decode([np.load({logprobs!r})])
    print(one.text, repr(one.total_cost))
"""


def run(how, program, **names):
    """What a child prints whose numba is broken; the number of warnings."""
    lines = program.strip().format(**names)
    done = python("-c", RUN.format(broken=BREAK[how], run=lines))
    assert done.returncode == 0, done.stderr
    *printed, warned = done.stdout.splitlines()
    return printed, int(warned)


@pytest.mark.parametrize("how", list(BREAK))
def test_kernels_give_the_same_with_one_warning(how):
    (compiled, interpreted), warned = run(how, KERNELS)
    assert (compiled, warned) == (interpreted, 1)


@pytest.mark.share
def test_a_decode_gives_the_same_with_one_warning(tmp_path, monkeypatch):
    graph = warm_up._graph(topology="minimal")
    graph.save(tmp_path / "graph.npz")
    np.save(tmp_path / "logprobs.npy", warm_up._logprobs())
    [one] = WfstDecoder(graph).decode([warm_up._logprobs()])
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    files = {"graph": tmp_path / "graph.npz", "logprobs": tmp_path / "logprobs.npy"}
    printed, warned = run("missing", DECODE, **{k: str(v) for k, v in files.items()})
    assert (printed, warned) == ([f"{one.text} {one.total_cost!r}"], 1)
