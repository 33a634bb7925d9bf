"""Kernels as one text, and a search of another kind on the shared headers."""

import configparser
import shutil
from pathlib import Path

import numpy as np
import pytest
from cuda_emulation.device import EmulatedDevice, compile_kernels

from tools.gpu import kernel_resources
from wfstdec.gpu.compiling import Program, join_includes
from wfstdec.gpu.device import Grid, launch, upload
from wfstdec.gpu.records import KERNELS, read_struct
from wfstdec.trie.gpu.layout import program as trie_program
from wfstdec.wfst.gpu.layout import PROGRAM

ROOT = Path(__file__).parents[2]
SELECT = """#include "boosts.cuh"
#include "logprobs.cuh"
#include "select.cuh"
struct SelectTask {
    const u64* keys;  // [count]
    u64* least;       // [2]: the n-th least, and the m-th
    u32 count, n, m;
};
extern "C" __global__ void select_least(const __grid_constant__ SelectTask task) {
    __shared__ BlockMemory memory;
    const u64 found = nth_least(
        memory, task.count, task.n, [&](u32 i) { return task.keys[i]; });
    const u64 other = nth_least(
        memory, task.count, task.m, [&](u32 i) { return task.keys[i]; });
    if (threadIdx.x == 5) task.least[0] = found;
    if (threadIdx.x == blockDim.x - 1) task.least[1] = other;
}
"""


@pytest.fixture
def program(tmp_path):
    """The kernel above."""
    path = tmp_path / "select.cu"
    path.write_text(SELECT)
    structs = {"SelectTask": read_struct(path, "SelectTask")}
    return Program(
        "select.cu",
        tmp_path,
        kernels=("select_least",),
        own_bytes=6 * 1024,
        shared_bytes=lambda room: 0,
        structs=structs,
        constants={},
    )


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
@pytest.mark.parametrize("threads", [32, 128])
def test_another_search_on_the_shared_headers(program, threads):
    library = compile_kernels(program.source(), program.kernels)
    rng = np.random.default_rng(threads)
    for count in (1, 2, 31, 300, 2000):
        keys = rng.integers(0, 1 << 40, count).astype(np.uint64) << np.uint64(20)
        keys[:: 1 + count // 7] = np.uint64(2**64 - 1)  # not selected from
        candidates = np.sort(keys[keys != np.uint64(2**64 - 1)])
        for n in {1, len(candidates) // 2, len(candidates)} - {0}:
            if len(candidates) == 0:
                continue
            device = EmulatedDevice(threads, preempt=9, library=library)
            task = np.zeros(1, program.structs["SelectTask"])
            buffer = upload(device, keys)
            task["keys"] = device.address(buffer)
            m = len(candidates) + 1 - n
            task["count"], task["n"], task["m"] = count, n, m
            grid = Grid("select_least", 1)
            back = launch(device, grid, task, {"least": np.zeros(2, np.uint64)})
            for k, found in zip((n, m), back["least"], strict=True):
                assert np.count_nonzero(candidates <= found) >= k
                assert found >> np.uint64(32) == candidates[k - 1] >> np.uint64(32)


@pytest.mark.nvrtc
def test_nvrtc_compiles_it(program):
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the extra `nvrtc`")
    _, log = kernel_resources.compile_for("sm_90", program.source())
    kernels = kernel_resources.resources(log)
    assert set(kernels) == {"select_least"}
    assert "warning" not in log


def test_every_header_is_put_in_once():
    used = set()
    for program in (PROGRAM, trie_program(32)):
        lines = program.source().splitlines()
        shared, own = set(KERNELS.iterdir()), set(program.folder.iterdir())
        for path in shared | own:
            times = lines.count(f'#line 1 "{path.name}"')
            assert times == 1 or (times == 0 and path in shared), path
            used |= {path} if times else set()
        assert not [line for line in lines if line.startswith("#include")]
        assert len({path.name for path in shared | own}) == len(shared | own), (
            "a name stands for one file"
        )
    assert set(KERNELS.iterdir()) <= used


@pytest.mark.parametrize("path", sorted(KERNELS.iterdir()), ids=lambda path: path.name)
def test_the_shared_headers_include_no_search(path):
    join_includes(path.name, KERNELS)


def test_a_wheel_has_all_kernel_files():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    shipped = {
        path
        for package, patterns in settings["options.package_data"].items()
        for pattern in patterns.split()
        for path in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    assert shipped >= {*ROOT.glob("wfstdec/**/*.cu"), *ROOT.glob("wfstdec/**/*.cuh")}
