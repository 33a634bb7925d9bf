"""Whether a machine can run the CUDA backend: versions, limits, one search.

python tools/gpu_check.py         # exit status 1 where the search is not the CPU's
"""

import importlib
import sys
import time
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from wfstdec import WfstDecoder, recipes
from wfstdec.gpu import cupy_device as cuda
from wfstdec.wfst.gpu.layout import PROGRAM, SLOT_BYTES

PACKAGES = ("numpy", "numba", "cupy-cuda13x", "cupy-cuda12x", "torch", "kaldifst")
PEER = "riva.asrlib.decoder.python_decoder"


def installed(package):
    """A version, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def describe_device():
    """Print what the search makes of the current device."""
    cupy = importlib.import_module("cupy")
    runtime, device = cupy.cuda.runtime, cupy.cuda.Device()
    found = runtime.getDeviceProperties(device.id)
    driver, library = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    print(f"{found['name'].decode()}, compute capability {device.compute_capability}")
    print(f"driver for CUDA {driver}, CUDA {library}, NVRTC", end=" ")
    print(cupy.cuda.nvrtc.getVersion())
    begin = time.perf_counter()
    search = cuda.CupyDevice(PROGRAM)
    print(f"kernels after {time.perf_counter() - begin:.1f} s")
    kernel = search._kernels["search_chunk"]
    print(kernel.attributes)
    print(
        f"{search.num_blocks} blocks, "
        f"{search.shared_bytes // SLOT_BYTES} slots in shared memory",
        end=", ",
    )
    print(f"{search.budget.limit >> 20} MiB for all decoders")


def compare_a_search():
    """Whether the demo's first utterances come out as on the CPU."""
    recipe = recipes.find_recipe(None)
    graph = recipes.build_or_load(recipe, "normal")
    with np.load(recipe / "logprobs.npz") as file:
        batch = [file[name].astype(np.float32) for name in file.files[:4]]
    answers = []
    for backend in ("cpu", "cuda"):
        decoder = WfstDecoder(graph, recipes.OPTIONS, backend)
        for _ in range(2):  # the first one compiles
            begin = time.perf_counter()
            hypotheses = decoder.decode(batch)
            seconds = time.perf_counter() - begin
        answers.append(hypotheses)
        print(f"{backend}: {seconds * 1e3:.1f} ms, {hypotheses[0].text!r}")
    return answers[0] == answers[1]


def main():
    """Print all of it."""
    print(sys.version.split()[0], {name: installed(name) for name in PACKAGES})
    try:
        importlib.import_module(PEER)
        print("riva-asrlib-decoder", installed("riva-asrlib-decoder"))
    except ImportError as error:
        print(f"no riva-asrlib-decoder: {error}")
    describe_device()
    same = compare_a_search()
    print("the same as on the CPU" if same else "NOT THE SAME AS ON THE CPU")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
