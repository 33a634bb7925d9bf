"""Building graphs, stage by stage, against the bare calls of kaldifst.

    python tools/bench_build.py                              # takes minutes
    python tools/bench_build.py --lms lm_books.3g_pruned --lexicon ipa
    python tools/bench_build.py --lms en-us.3g --lexicon cmudict --output run.json

Each build runs in a process of its own, for its peak memory. "bare" reads the same L, G
and T from OpenFst files, then sorts, composes, determinizes, minimizes and composes in
kaldifst alone, and writes the TLG: no text is read, nothing is checked or packed. The
graphs are compared, too: where sentences cost differently, the exit status is 1.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import multiprocessing
import re
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import bench_data
import kaldifst
import numpy as np

import wfstdec
from wfstdec.fst.grammar_fst import build_grammar
from wfstdec.fst.labels import LabelSpace
from wfstdec.fst.lexicon_fst import Fillers, build_lexicon_fst, mark_lexicon
from wfstdec.fst.minimize import ROUNDING
from wfstdec.fst.openfst_binary import FstContent
from wfstdec.fst.openfst_io import read_fst, write_fst
from wfstdec.fst.stages import peak_memory_gb
from wfstdec.fst.topology import TOPOLOGIES, build_topology
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.arpa import ArpaModel, read_arpa
from wfstdec.text.atomic import atomic_write
from wfstdec.text.lexicon import Lexicon, read_lexicon
from wfstdec.text.symbols import EPSILON_WORD, read_tokens, token_table
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

SEPARATOR = "<wb>"
SENTENCES = 100
TOLERANCE = 1e-4
LEXICONS = {"ipa": "lexicon/lexicon_ipa.txt", "cmudict": "lexicon/cmudict.dict"}
PHONES = dict(
    pair.split("=")
    for pair in """
    AA=ɑ AE=æ AH0=ə AH=ʌ AO=ɔ AW=aʊ AY=aɪ B=b CH=t͡ʃ D=d DH=ð EH=ɛ ER=ɝ EY=eɪ F=f G=g
    HH=h IH=ɪ IY=i JH=d͡ʒ K=k L=l M=m N=n NG=ŋ OW=oʊ OY=ɔɪ P=p R=ɹ S=s SH=ʃ T=t TH=θ
    UH=ʊ UW=u V=v W=w Y=j Z=z ZH=ʒ
    """.split()
)
"""cmudict's phones, without stress where it does not matter, as tokens."""
Figures = dict[str, Any]


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--lms", nargs="+", default=["lm_books.3g", "en-us.3g"])
    add("--lexicon", choices=LEXICONS, help="default: cmudict for en-us, else ipa")
    add("--topology", choices=TOPOLOGIES, default="normal")
    add("--data", type=Path, help="default: ../shared/data")
    add("--output", type=Path, help="write all figures as JSON")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    data = bench_data.find_data(args.data)
    run: Figures = {"machine": bench_data.describe_machine(), "builds": []}
    run["compiling_seconds"] = round(in_own_process(compile_kernels), 1)
    print(f"kernels compiled, or read from their cache: {run['compiling_seconds']} s")
    alike = True
    for lm in args.lms:
        lexicon = args.lexicon or ("cmudict" if lm.startswith("en-us") else "ipa")
        case = {
            "lm": lm,
            "lexicon": lexicon,
            "topology": args.topology,
            "arpa": bench_data.find_lm(lm, data),
            "tokens": data / "tokens.txt",
        }
        with tempfile.TemporaryDirectory() as folder:
            case["path"] = lexicon_file(data / LEXICONS[lexicon], Path(folder))
            in_own_process(write_parts, case, Path(folder))
            ours = in_own_process(build_ours, case, Path(folder))
            bare = in_own_process(build_bare, Path(folder))
            difference = in_own_process(largest_difference, case, Path(folder))
        report(case, ours, bare)
        print(f"  costs of {SENTENCES} sentences differ by {difference:.1e} at most")
        alike &= difference < TOLERANCE
        names = {key: case[key] for key in ("lm", "lexicon", "topology")}
        figures = {"ours": ours, "bare": bare, "largest_cost_difference": difference}
        run["builds"].append(names | figures)
    if args.output:
        with atomic_write(args.output, "w") as file:
            json.dump(run, file, indent=1, ensure_ascii=False)
            file.write("\n")
    return 0 if alike else 1


def in_own_process(function: Any, *arguments: Any) -> Any:
    """What the function returns, from a fresh process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def compile_kernels() -> float:
    """Build a toy: the first build on a machine compiles, the others need not."""
    began = time.perf_counter()
    tokens = token_table(["<blank>", "a"])
    lexicon = Lexicon(("a",), ((1,),), np.zeros(1, np.float32))
    text = "\\data\\\nngram 1=3\n\\1-grams:\n-9 <s>\n-1 </s>\n-1 a\n\\end\\\n"
    arpa = read_arpa(io.StringIO(text))
    wfstdec.build_graph(tokens=tokens, lexicon=lexicon, arpa=arpa)
    return time.perf_counter() - began


def lexicon_file(path: Path, folder: Path) -> Path:
    """The lexicon, in tokens of the model; cmudict's phones are renamed."""
    if path.suffix != ".dict":
        return path
    converted = folder / "lexicon.txt"
    with open(path, encoding="utf-8") as source, open(converted, "w") as target:
        for line in source:
            word, *phones = line.split("#")[0].split()
            tokens = [PHONES.get(p) or PHONES[p.rstrip("012")] for p in phones]
            word = re.sub(r"\(\d+\)$", "", word)  # alternates: word(2)
            target.write(f"{word}\t{' '.join(tokens)}\n")
    return converted


def write_parts(case: Figures, folder: Path) -> None:
    """L, G and T as files, for the bare calls."""
    tokens, model = read_tokens(case["tokens"]), read_arpa(case["arpa"])
    lexicon = read_lexicon(case["path"], tokens, separator=SEPARATOR)
    lexicon, _ = lexicon.restrict(model.index)
    fillers = Fillers(separator=tokens.index(SEPARATOR))
    marked = mark_lexicon(lexicon, fillers, tokens)
    words = (EPSILON_WORD, *dict.fromkeys(lexicon.words))
    labels = LabelSpace(tokens, words, marked.num_disambig)
    parts = {
        "L": build_lexicon_fst(marked, labels),
        "G": build_grammar(model, labels),
        "T": build_topology(case["topology"], labels),
    }
    for name, fst in parts.items():
        write_fst(folder / f"{name}.fst", FstContent(fst), "vector")


def build_ours(case: Figures, folder: Path) -> Figures:
    """A whole build, from text to `graph.npz`, as users run it."""
    stages: list[Figures] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if hasattr(record, "stage"):
                keys = ("stage", "states", "arcs", "seconds", "peak_memory_gb")
                stages.append({key: getattr(record, key) for key in keys})

    logger = logging.getLogger("wfstdec.build")
    logger.setLevel(logging.INFO)
    logger.addHandler(Collect())
    began = time.process_time()
    graph = wfstdec.build_graph(
        tokens=case["tokens"],
        lexicon=case["path"],
        arpa=case["arpa"],
        topology=case["topology"],
        separator=SEPARATOR,
    )
    graph.save(folder / "graph.npz")
    return rounded(stages, time.process_time() - began)


def build_bare(folder: Path) -> Figures:
    """The same by kaldifst's own calls, from files to a file."""
    stages: list[Figures] = []
    last = time.perf_counter(), time.process_time()
    cpu_seconds = 0.0

    def done(stage: str, fst: Any = None) -> None:
        nonlocal last, cpu_seconds
        seconds = time.perf_counter() - last[0]
        cpu_seconds += time.process_time() - last[1]
        states = arcs = None
        if fst is not None:
            states = fst.num_states
            arcs = sum(fst.num_arcs(state) for state in range(states))
        figures = {"stage": stage, "states": states, "arcs": arcs, "seconds": seconds}
        stages.append(figures | {"peak_memory_gb": peak_memory_gb()})
        last = time.perf_counter(), time.process_time()  # but for counting arcs

    read = kaldifst.StdVectorFst.read
    left, right, t = (read(str(folder / f"{name}.fst")) for name in "LGT")
    done("read")
    kaldifst.arcsort(left, sort_type="olabel")
    kaldifst.arcsort(right, sort_type="ilabel")
    lg = kaldifst.compose(left, right)
    done("L o G", lg)
    kaldifst.determinize_star(lg, use_log=True)
    done("det(L o G)", lg)
    kaldifst.minimize_encoded(lg, delta=ROUNDING)
    done("min(det(L o G))", lg)
    kaldifst.arcsort(lg, sort_type="ilabel")
    kaldifst.arcsort(t, sort_type="olabel")
    tlg = kaldifst.compose(t, lg)
    done("T o LG", tlg)
    kaldifst.StdConstFst(tlg).write(str(folder / "TLG.fst"))
    done("write")
    return rounded(stages, cpu_seconds)


def largest_difference(case: Figures, folder: Path) -> float:
    """The largest relative difference of costs between both TLGs, over sentences.

    A sentence is made of the words of random n-grams, said in tokens one frame each
    with blanks between them; nothing else has any probability.
    """
    ours = wfstdec.load_graph(folder / "graph.npz")
    fst = read_fst(folder / "TLG.fst").fst
    ilabel, repeat = LabelSpace(ours.tokens, ours.words).split_repeats(fst.ilabel)
    bare = PackedGraph.pack(replace(fst, ilabel=ilabel), repeat, ours.tables)
    rng = np.random.default_rng(0)
    model = read_arpa(case["arpa"])
    batch = [said(ours, model, rng) for _ in range(SENTENCES)]
    options = WfstOptions(beam=np.inf, max_active=None)
    costs = [
        [h.graph_cost for h in WfstDecoder(graph, options, backend="cpu").decode(batch)]
        for graph in (ours, bare)
    ]
    assert np.isfinite(costs).all()
    return float((np.abs(np.subtract(*costs)) / np.abs(costs[1])).max())


def said(graph: PackedGraph, model: ArpaModel, rng: np.random.Generator) -> np.ndarray:
    """Log-probs of a sentence of about ten words."""
    ngrams = model.ngrams[-1].words
    drawn = [model.words[w] for w in ngrams[rng.integers(len(ngrams), size=4)].flat]
    ids = [graph.word_ids[word] for word in drawn if word in graph.word_ids]
    table = graph.tables.pronunciations
    frames = []
    for word in ids:
        row = rng.integers(table.word_splits[word], table.word_splits[word + 1])
        tokens = table.tokens[table.splits[row] : table.splits[row + 1]].tolist()
        for token in (*tokens, graph.tokens.index(SEPARATOR)):
            frames += [token, graph.tokens.blank]
    x = np.full((len(frames), len(graph.tokens)), -np.inf, np.float32)
    x[np.arange(len(frames)), frames] = 0.0
    return x


def rounded(stages: list[Figures], cpu_seconds: float) -> Figures:
    for figures in stages:
        for key in ("seconds", "peak_memory_gb"):
            figures[key] = round(figures[key], 3)
    return {
        "stages": stages,
        "seconds": round(sum(figures["seconds"] for figures in stages), 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "peak_memory_gb": round(peak_memory_gb(), 2),
    }


def report(case: Figures, ours: Figures, bare: Figures) -> None:
    """Print both."""
    print(f"{case['lm']} with {case['lexicon']}, {case['topology']}:")
    for name, build in (("ours", ours), ("bare", bare)):
        for figures in build["stages"]:
            size = f"{figures['states'] or '':>10} {figures['arcs'] or '':>10}"
            memory = f"{figures['peak_memory_gb']:6.2f} GB"
            spent = f"{figures['seconds']:8.2f} s"
            print(f"  {name} {figures['stage']:16} {size} {spent}{memory}")
    for name, build in (("ours", ours), ("bare", bare)):
        print(
            f"  {name} {build['seconds']} s ({build['cpu_seconds']} s of CPU), "
            f"{build['peak_memory_gb']} GB"
        )
    print(f"  ratio of CPU seconds {ours['cpu_seconds'] / bare['cpu_seconds']:.2f}")


if __name__ == "__main__":
    sys.exit(main())
