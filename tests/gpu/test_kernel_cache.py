"""How the kernels are compiled for a GPU and kept: `wfstdec/gpu/compiling.py`."""

import dataclasses
import struct

import pytest
from cupy_stand_in import CudaDriverError, stand_in

from wfstdec.errors import BackendError
from wfstdec.gpu import compiling
from wfstdec.gpu.compiling import compile_kernels, load_kernels, target_of
from wfstdec.wfst.gpu.layout import PROGRAM


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Where CuPy keeps its kernels; not made yet."""
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "of" / "cupy"))
    return tmp_path / "of" / "cupy"


def test_kernels_are_compiled_once(folder):
    module = stand_in()
    kernels, way = load_kernels(module, PROGRAM)
    assert way == compiling.FILE
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


@pytest.mark.parametrize("refused", [0, 1, 2, 3])
def test_what_a_driver_does_not_load_is_loaded_in_another_way(folder, refused):
    module = stand_in()

    def refuse(*_, **__):
        raise CudaDriverError("CUDA_ERROR_INVALID_IMAGE")

    class Refusing(module.cuda.function.Module):
        def load(self, content):
            if refused == 3 or content.startswith(b"machine code"):
                refuse()
            super().load(content)

    if refused > 0:
        module.RawModule = refuse
    if refused > 1:
        module.cuda.function.Module = Refusing
    if refused == 3:
        message = r"the file: CUDA_ERROR_.*; its bytes: CUDA_ERROR_.*; PTX: CUDA_ERROR_"
        with pytest.raises(BackendError, match=message):
            load_kernels(module, PROGRAM)
        return
    kernels, way = load_kernels(module, PROGRAM)
    assert way == compiling.WAYS[refused]
    search = kernels["search_chunk"]
    assert search.shared_size_bytes == 5800 and search.attributes["num_regs"] == 62
    search.max_dynamic_shared_size_bytes = 60_000
    search.preferred_shared_memory_carveout = 70
    assert search.max_dynamic_shared_size_bytes == 60_000
    assert search.preferred_shared_memory_carveout == 70
    targets = [options[0][-5:] for options in module.cuda.nvrtc.compiled]
    assert targets == (["sm_90", "te_90"] if refused == 2 else ["sm_90"])


def test_a_folder_that_cannot_be_made_is_no_obstacle(folder):
    folder.parent.write_text("a file")
    module = stand_in()
    assert set(load_kernels(module, PROGRAM).kernels) == set(PROGRAM.kernels)
    assert module.cuda.nvrtc.compiled and not folder.exists()


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


def assert_whole(machine_code):
    """An ELF file (64 bits) that has all of its program headers."""
    assert machine_code[:5] == b"\x7fELF\x02"
    (begin,) = struct.unpack_from("<Q", machine_code, 32)
    size, count = struct.unpack_from("<HH", machine_code, 54)
    assert count > 0 and begin + count * size <= len(machine_code)


@pytest.mark.nvrtc
def test_cupy_itself_compiles_without_a_gpu():
    """CuPy has the function that is called, and takes the options."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the extra `nvrtc`")
    cupy = pytest.importorskip("cupy", reason="needs the extra `nvrtc`")
    known = cupy.cuda.nvrtc.getSupportedArchs()
    newest = target_of(max(known), known)
    source, file = PROGRAM.source(), PROGRAM.file
    assert_whole(compile_kernels(cupy, source, newest, file))
    ptx = compile_kernels(cupy, source, newest.replace("sm", "compute"), file)
    assert all(name.encode() in ptx for name in PROGRAM.kernels)
    assert b".ftz" not in ptx and b"fma." not in ptx
    with pytest.raises(BackendError, match=r"search\.cu\(1\): error"):
        compile_kernels(cupy, "int x = ;", newest, file)
