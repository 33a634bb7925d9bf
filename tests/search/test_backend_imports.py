"""Choosing a backend imports that one alone; each in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

sys_path = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "support")]
SCRIPT = f"""
import sys
sys.path[:0] = {sys_path!r}
from text_graphs import text_graph
from wfstdec.wfst.decoder import WfstDecoder
decoder = WfstDecoder(text_graph("0 0 a A 1\\n0 0"), backend=sys.argv[1])
print(*sorted(sys.modules), sep="\\n")
"""


@pytest.mark.parametrize("backend", ["auto", "cpu"])
def test_the_cpu_knows_no_gpu(backend):
    command = [sys.executable, "-c", SCRIPT, backend]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    modules = done.stdout.split()
    assert "wfstdec.wfst.cpu.frame" in modules
    names = [name.split(".") for name in modules]
    ours = [parts for parts in names if parts[0] == "wfstdec"]
    assert not [parts for parts in ours if any("gpu" in part for part in parts)]
    assert not {"cupy", "torch"} & {parts[0] for parts in names}
