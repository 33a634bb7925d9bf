"""Check of a machine for the CUDA backends: versions, limits, one search of each.

python -m tools.gpu.check versions   # and limits, and what kernels take
python -m tools.gpu.check search     # exit status 1 where a search is not the CPU's
python -m tools.gpu.check trie       # likewise, of the trie
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench.gpu_device import Gpu
from tools.gpu.kernel_resources import VARIANTS
from wfstdec import (
    TrieDecoder,
    TrieOptions,
    WfstDecoder,
    build_graph,
    read_tokens,
    recipes,
)
from wfstdec.gpu.cupy_device import CupyDevice
from wfstdec.trie.gpu.backend import device_of
from wfstdec.trie.gpu.layout import form_for
from wfstdec.wfst.gpu.layout import PLAIN, PROGRAM, SLOT_BYTES

PACKAGES = ("numpy", "numba", "cupy-cuda13x", "cupy-cuda12x", "torch", "kaldifst")
PEERS = ("riva-asrlib-decoder", "nemo-toolkit")
UTTERANCES = 4
TRIE_OPTIONS = (
    TrieOptions(beam=8.0, beam_size=32, lm_scale=0.8),
    TrieOptions(beam=12.0, beam_size=128, lm_scale=0.8, merge="sum", nbest=4),
)
"""Searches of the trie: in a warp, and in four with sums and texts."""


def describe_device() -> None:
    """Print what the search makes of the current device."""
    print(Gpu().describe())
    print("NVRTC", importlib.import_module("cupy").cuda.nvrtc.getVersion())
    begin = time.perf_counter()
    device = CupyDevice(PROGRAM)
    seconds = time.perf_counter() - begin
    print(f"kernels for everything after {seconds:.1f} s, loaded by {device.way}")
    for name, macros in VARIANTS.items():
        for kernel, found in device.kernels(macros).items():
            print(f"{name}, {kernel}: {found.attributes}")
    shape = device.shape
    print(
        f"{shape.num_blocks} blocks of {shape.threads} threads, "
        f"{shape.shared_bytes // SLOT_BYTES} slots in shared memory"
    )
    print(f"{device.budget.limit >> 20} MiB for all decoders")


def compare_a_search() -> bool:
    """Compare the demo's first utterances with those of the CPU.

    The device is made first: without it there is no graph to be built.
    """
    device = CupyDevice(PROGRAM, macros=PLAIN.macros)
    print(f"kernels are loaded by {device.way}", flush=True)
    recipe = recipes.find_recipe()
    graph = build_graph(**recipes.inputs_of(recipe))
    batch = _utterances(recipe)
    return _same_on_both(
        lambda backend: WfstDecoder(graph, recipes.OPTIONS, backend).decode, batch
    )


def _same_on_both(make: Callable[[str], Callable[..., Any]], batch: Any) -> bool:
    """Compare what both find in a batch: `make` gives what decodes on a backend."""
    answers = []
    for backend in ("cpu", "cuda"):
        decode = make(backend)
        decode(batch)  # compiles
        begin = time.perf_counter()
        answers.append(decode(batch))
        seconds = time.perf_counter() - begin
        best = answers[-1][0]
        best = best[0] if isinstance(best, list) else best
        print(f"{backend}: {seconds * 1e3:.1f} ms, {best.text!r}", flush=True)
    return answers[0] == answers[1]


def compare_trie_searches() -> bool:
    """Compare the demo's first utterances by the trie with those of the CPU.

    The device is made first: without it no look-ahead is to be computed.
    """
    for options in TRIE_OPTIONS:
        form = form_for(options.beam_size, 1025)
        device = device_of(form)
        blocks = device.shape
        print(f"{form}: {blocks}, loaded by {device.way}", flush=True)
    recipe, same = recipes.find_recipe(), True
    batch = _utterances(recipe)
    make = partial(
        TrieDecoder,
        tokens=read_tokens(recipe / "tokens.txt"),
        lexicon=recipe / "lexicon.txt.gz",
        lm=recipe / "lm.arpa.gz",
        separator="<wb>",
    )
    for options in TRIE_OPTIONS:
        of_backend = partial(make, options=options)
        same &= _same_on_both(
            lambda backend, made=of_backend: made(backend=backend).decode_nbest, batch
        )
    return same


def _utterances(recipe: Path) -> list[np.ndarray]:
    """The demo's first utterances, float32 [T, V]."""
    with np.load(recipe / "logprobs.npz") as file:
        return [file[name].astype(np.float32) for name in file.files[:UTTERANCES]]


SEARCHES = {"search": compare_a_search, "trie": compare_trie_searches}


def main(argv: list[str] | None = None) -> int:
    """Print what is asked for, or all of it."""
    asked = (sys.argv[1:] if argv is None else argv) or ["versions", *SEARCHES]
    if "versions" in asked:
        installed = {one.name: one.version for one in distributions()}
        versions = {name: installed.get(name) for name in (*PACKAGES, *PEERS)}
        print(sys.version.split()[0], versions, flush=True)
        describe_device()
    status = 0
    for name, compare in SEARCHES.items():
        if name in asked:
            same = compare()
            print("the same as on the CPU" if same else "NOT THE SAME AS ON THE CPU")
            status |= 0 if same else 1
    return status


if __name__ == "__main__":
    sys.exit(main())
