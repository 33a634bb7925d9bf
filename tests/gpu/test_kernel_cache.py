"""How the kernels are compiled for a GPU and kept: `wfstdec/gpu/compiling.py`."""

import dataclasses
import os

import pytest
from cupy_stand_in import stand_in

from wfstdec.errors import BackendError
from wfstdec.gpu.compiling import compile_kernels, load_kernels, target_of
from wfstdec.wfst.gpu.layout import PROGRAM


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Where CuPy keeps its kernels; not made yet."""
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "of" / "cupy"))
    return tmp_path / "of" / "cupy"


def test_kernels_are_compiled_once(folder):
    module = stand_in()
    kernels = load_kernels(module, PROGRAM)
    assert {name: kernel.name for name, kernel in kernels.items()} == {
        name: name for name in PROGRAM.kernels
    }
    load_kernels(module, PROGRAM)
    (options,) = module.cuda.nvrtc.compiled
    assert options[0] == "--gpu-architecture=sm_90"
    assert {"--fmad=false", "--ftz=false"} <= set(options)
    (kept,) = folder.iterdir()
    assert kept.suffix == ".cubin"
    changed = dataclasses.replace(PROGRAM, constants={"NONE": 1})
    load_kernels(module, changed)
    assert len(module.cuda.nvrtc.compiled) == len(list(folder.iterdir())) == 2


def test_a_folder_that_cannot_be_made_is_no_obstacle(folder):
    folder.parent.write_text("a file")
    module = stand_in()
    assert set(load_kernels(module, PROGRAM)) == set(PROGRAM.kernels)
    assert module.cuda.nvrtc.compiled and not folder.exists()


def test_the_folder_is_cupys_own_where_none_is_named(folder, monkeypatch, tmp_path):
    monkeypatch.delenv("CUPY_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    load_kernels(stand_in(), PROGRAM)
    assert len(os.listdir(tmp_path / ".cupy" / "kernel_cache")) == 1


@pytest.mark.parametrize(
    ("capability", "target"),
    [(75, "sm_75"), (90, "sm_90"), (86, "compute_80"), (120, "compute_90")],
)
def test_what_to_compile_for(capability, target):
    assert target_of(capability, (80, 75, 90)) == target


def test_a_gpu_that_is_too_old_is_told():
    message = r"compute capability 7\.0, expected at least 7\.5, what this CUDA"
    with pytest.raises(BackendError, match=message):
        target_of(70, (75, 80, 90))


def test_what_does_not_compile_shows_the_compilers_log():
    module = stand_in()
    message = r"kernels for sm_90: .* \(6\): search\.cu\(1\): error: wrong"
    with pytest.raises(BackendError, match=message):
        compile_kernels(module, "int x = ;", "sm_90", "search.cu")
    assert module.cuda.nvrtc.programs == {}


@pytest.mark.nvrtc
def test_cupy_itself_compiles_without_a_gpu():
    """What is called is there, and takes the options."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the extra `nvrtc`")
    cupy = pytest.importorskip("cupy", reason="needs the extra `nvrtc`")
    known = cupy.cuda.nvrtc.getSupportedArchs()
    newest = target_of(max(known), known)
    source, file = PROGRAM.source(), PROGRAM.file
    assert compile_kernels(cupy, source, newest, file)[:4] == b"\x7fELF"
    ptx = compile_kernels(cupy, source, newest.replace("sm", "compute"), file)
    assert all(name.encode() in ptx for name in PROGRAM.kernels)
    assert b".ftz" not in ptx and b"fma." not in ptx
    with pytest.raises(BackendError, match=r"search\.cu\(1\): error"):
        compile_kernels(cupy, "int x = ;", newest, file)
