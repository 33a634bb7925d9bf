"""Graphs stored as rows of LG with their topology, against T o LG: files, time, memory.

    python -m tools.bench.rows --parts storage --output run.json

A language model `en-us*` is one for cmudict: its words are said in the set's tokens,
phones or pieces. Each figure is of a process of its own, which loads a file and lays it
out for the CPU's search, the least of some; what is decoded afterwards must be the same
in all, or nothing is told, exit status 1.

    packed      a file of T o LG (version 4), searched as it is: before rows
    composed    the same, taken apart into rows of LG
    rows        a file of rows of LG (version 5)
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.bench import data
from tools.bench.build import LEXICONS, lexicon_file
from tools.bench.cases import Inputs, load_set
from tools.bench.clocks import digest_of
from tools.bench.command import in_own_process
from tools.bench.data import Recipe
from tools.bench.report import Row
from wfstdec.fst.build_log import peak_memory_gb
from wfstdec.graph import file as packed_file
from wfstdec.graph.packed import load_graph
from wfstdec.text.symbols import read_tokens
from wfstdec.wfst.cpu.backend import CpuBackend
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

WAYS = "packed", "composed", "rows"
UTTERANCES, BEAM = 3, 10.0
"""How many utterances are decoded for a comparison, and with which beam."""
EN_US = "en-us"


class PackedBackend(CpuBackend):
    """A backend that searches every graph as it is packed."""

    on_rows = None


def measure_storage(speech: str, lm: str, topology: str, args: Any) -> Row:
    """Store a graph both ways and load it in three; megabytes and CPU seconds.

    Raises:
        SystemExit: What is decoded differs.
    """
    inputs = replace(Inputs.of(args), limit=UTTERANCES)
    row: Row = {"case": f"{speech}:{lm}", "topology": topology, "kind": "storage"}
    files, stored = in_own_process(store, speech, lm, topology, inputs)
    row |= stored
    answers = set()
    for way in WAYS:
        runs = [
            in_own_process(lay_out, way, files[way], speech, inputs)
            for _ in range(args.repeats)
        ]
        answers |= {answer for _, _, answer in runs}
        row[f"{way}_s"] = min(seconds for seconds, _, _ in runs)
        row[f"{way}_peak_mb"] = min(peak for _, peak, _ in runs)
    if len(answers) > 1:
        raise SystemExit(f"{row['case']}: different results")
    return row


def store(
    speech: str, lm: str, topology: str, inputs: Inputs
) -> tuple[dict[str, Path], Row]:
    """Build a graph if there is none, and write it both ways; files, and figures."""
    recipe = load_set(speech, inputs).recipe
    if lm.startswith(EN_US):
        recipe = with_cmudict(recipe, inputs)
    arpa = data.find_lm(lm, inputs.data)
    # Of a graph with arcs of its own: one that is loaded need not be taken apart.
    graph = replace(data.build_or_load(recipe, arpa, topology, inputs.cache))
    folder = inputs.cache / "storage"
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{recipe.name}-{lm}-{topology}"
    composed, rows = folder / f"{stem}-composed.npz", folder / f"{stem}-rows.npz"
    began = time.process_time()
    packed_file.write_arrays(composed, graph._arrays(), graph.fingerprint)
    between = time.process_time()
    graph = replace(graph)  # its fingerprint is made once more
    graph.save(rows)
    ended = time.process_time()
    product = graph.product
    assert product is not None
    return {"packed": composed, "composed": composed, "rows": rows}, {
        "tokens": len(graph.tokens),
        "words": len(graph.words) - 1,
        "states": graph.num_states,
        "arcs": graph.num_arcs,
        "rows": len(product.row_splits) - 1,
        "row_arcs": len(product.arcs),
        "composed_file_mb": round(composed.stat().st_size / 1e6, 1),
        "rows_file_mb": round(rows.stat().st_size / 1e6, 1),
        "composed_write_s": round(between - began, 2),
        "rows_write_s": round(ended - between, 2),
    }


def lay_out(
    way: str, path: Path, speech: str, inputs: Inputs
) -> tuple[float, int, str]:
    """Load a graph and lay it out: CPU seconds, peak megabytes; then decode a little.

    What is decoded comes as a digest.
    """
    began = time.process_time()
    graph = load_graph(path)
    if way == "packed":
        backend: CpuBackend = PackedBackend(graph)
        _ = backend.arrays
    else:
        backend = CpuBackend(graph)
        assert backend.on_rows is not None
    seconds = round(time.process_time() - began, 2)
    peak = round(1000 * peak_memory_gb())
    decoder = WfstDecoder(graph, WfstOptions(beam=BEAM), "cpu", threads=1)
    decoder._backend = backend
    utterances = list(load_set(speech, inputs).logprobs.values())
    return seconds, peak, digest_of(decoder.decode(utterances))


def with_cmudict(recipe: Recipe, inputs: Inputs) -> Recipe:
    """The words of cmudict in a recipe's tokens: phones, or pieces of SentencePiece."""
    name = f"{recipe.name}-cmudict"
    folder = inputs.cache / name
    folder.mkdir(parents=True, exist_ok=True)
    lexicon = lexicon_file(inputs.data / LEXICONS["cmudict"], folder)
    model = recipe.lexicon.parent / "bpe.model"
    if model.exists():
        from sentencepiece import SentencePieceProcessor  # an extra of tools

        pieces = SentencePieceProcessor(model_file=str(model))
        lines = lexicon.read_text("utf-8").splitlines()
        words = list(dict.fromkeys(line.split("\t")[0] for line in lines))
        # Letters that the model has not seen, of `a.` and the like, are no tokens.
        known = set(read_tokens(recipe.tokens).names)
        said = zip(words, pieces.encode(words, out_type=str), strict=True)
        text = "".join(f"{w}\t{' '.join(p)}\n" for w, p in said if known.issuperset(p))
        lexicon.write_text(text, "utf-8")
    return replace(recipe, name=name, lexicon=lexicon)
