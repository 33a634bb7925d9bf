"""Building graphs, stage by stage, against the bare calls of kaldifst.

    python -m tools.bench.build                              # takes minutes
    python -m tools.bench.build --lms lm_books.3g_pruned --lexicon ipa
    python -m tools.bench.build --lms en-us.3g --lexicon cmudict --output run.json
    python -m tools.bench.build --lms --synthetic 200000 10000000   # words, n-grams

Each build runs in a process of its own, for its peak memory. "bare" reads the same L, G
and T from OpenFst files, then sorts, composes, determinizes, minimizes and composes in
kaldifst alone, and writes the TLG: no text is read, nothing is checked or packed. The
graphs are compared, too: where sentences cost differently, the exit status is 1. Random
models are built by us alone.
"""

from __future__ import annotations

import argparse
import io
import logging
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import kaldifst
import numpy as np

import wfstdec
from tools.bench import data
from tools.bench.command import Run, bare_parser, exit_with, in_own_process
from tools.bench.report import Columns, Row, figure, format_table, text_figure
from wfstdec import recipes
from wfstdec.fst.arrays import LabelSpace
from wfstdec.fst.grammar import build_grammar
from wfstdec.fst.lexicon_fst import Fillers, build_lexicon_fst, mark_lexicon
from wfstdec.fst.openfst import FstContent, read_fst, write_fst
from wfstdec.fst.operations import ROUNDING
from wfstdec.fst.tlg import peak_memory_gb
from wfstdec.fst.topology import TOPOLOGIES, build_topology
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.arpa import ArpaModel, read_arpa
from wfstdec.text.lexicon import Lexicon, read_lexicon
from wfstdec.text.tokens import EPSILON_WORD, read_tokens, token_table
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

SEPARATOR = "<wb>"
SENTENCES = 100
TOLERANCE = 1e-4
COLUMNS: Columns = {
    "by": text_figure("by"),
    "stage": text_figure("stage"),
    "states": figure("states", ",d"),
    "arcs": figure("arcs", ",d"),
    "s": figure("seconds", ".2f"),
    "CPU s": figure("cpu_seconds", ".2f"),
    "GB": figure("peak_memory_gb", ".2f"),
}
LEXICONS = {"ipa": "lexicon/lexicon_ipa.txt", "cmudict": "lexicon/cmudict.dict"}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = bare_parser(__doc__)
    add = parser.add_argument
    add("--lms", nargs="*", default=["lm_books.3g", "en-us.3g"])
    add("--synthetic", nargs=2, type=int, help="words and n-grams of a random model")
    add("--lexicon", choices=LEXICONS, help="default: cmudict for en-us, else ipa")
    add("--topology", choices=TOPOLOGIES, default="normal")
    add("--data", type=Path, help="default: ../shared/data")
    add("--output", type=Path, help="write all figures as JSON")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    run = Run("tools.bench.build", args)
    compiling_s = round(in_own_process(compile_kernels), 1)
    print(f"kernels compiled, or read from their cache: {compiling_s} s")
    in_own_process(first_text)  # compiles
    seconds = in_own_process(first_text)
    print(f"first text of the demo's files, CPU s: {seconds[0]}, again {seconds[1]}")
    rows = []
    for lm in args.lms:
        name = args.lexicon or ("cmudict" if lm.startswith("en-us") else "ipa")
        folder = data.find_data(args.data)
        rows.append(compare_builds(lm, name, args.topology, folder))
    if args.synthetic:
        rows.append(build_synthetic(*args.synthetic, args.topology))
    run.write(rows, compiling_s=compiling_s, first_text_cpu_s=seconds)
    differences = [row.get("largest_cost_difference", 0.0) for row in rows]
    return 0 if all(one < TOLERANCE for one in differences) else 1


def first_text() -> list[float]:
    """CPU seconds from files to a text: of the process's first decoder, and again."""
    recipe, seconds = recipes.find_recipe(), []
    with np.load(recipe / "logprobs.npz") as file:
        logprobs = file[file.files[0]]
    for _ in range(2):
        began = time.process_time()
        inputs = recipes.inputs_of(recipe)
        decoder = WfstDecoder(**inputs, options=recipes.OPTIONS, threads=1)
        assert decoder.decode([logprobs])[0].text
        seconds.append(round(time.process_time() - began, 2))
    return seconds


def build_synthetic(num_words: int, num_ngrams: int, topology: str) -> Row:
    """Build a graph of a random lexicon and a random 3-gram."""
    names = {"lm": f"{num_ngrams} n-grams", "lexicon": f"{num_words} words"}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        case = {**names, "topology": topology}
        case |= in_own_process(write_synthetic, num_words, num_ngrams, folder)
        ours = in_own_process(build_ours, case, folder)
    report(case, ours)
    return names | {"topology": topology, "ours": ours}


def write_synthetic(num_words: int, num_ngrams: int, folder: Path) -> Row:
    """Write words of 3 to 11 random phones; n-grams whose words have ranks as Zipf's.

    A trigram joins two bigrams; there are as many of each.
    """
    rng, tokens = np.random.default_rng(0), read_tokens(data.RECIPE / "tokens.txt")
    others = tokens.blank, tokens.index(SEPARATOR)
    phones = [n for token, n in enumerate(tokens.names) if token not in others]
    words = ["<s>", "</s>", "<unk>", *(f"w{i}" for i in range(num_words))]
    with (folder / "lexicon.txt").open("w") as file:
        for word in words[3:]:
            file.write(f"{word} {' '.join(rng.choice(phones, rng.integers(3, 12)))}\n")
    half = (num_ngrams - len(words)) // 2

    def some(first: np.ndarray, second: np.ndarray, size: int) -> np.ndarray:
        """`size` different pairs, sorted."""
        pairs = np.unique(first * len(words) + second)
        kept = np.sort(rng.choice(pairs, size, replace=False))
        return np.stack(np.divmod(kept, len(words)), axis=1)

    ranks = (num_words ** rng.random((2, 4 * half))).astype(np.int64)
    bigrams = some(*(ranks + 2), half)
    splits = np.searchsorted(bigrams[:, 0], np.arange(len(words) + 1))
    history = rng.integers(half, size=3 * half)
    follows = bigrams[history, 1]
    lengths = splits[follows + 1] - splits[follows]
    history, follows, lengths = (x[lengths > 0] for x in (history, follows, lengths))
    at = splits[follows] + (rng.random(len(lengths)) * lengths).astype(np.int64)
    trigrams = some(history, bigrams[at, 1], half)
    trigrams = np.column_stack([bigrams[trigrams[:, 0]], trigrams[:, 1]])
    tables = [np.arange(len(words))[:, None], bigrams, trigrams]
    with (folder / "lm.arpa").open("w") as file:
        file.write("\\data\\\n")
        file.writelines(f"ngram {n}={len(t)}\n" for n, t in enumerate(tables, 1))
        for n, table in enumerate(tables, 1):
            file.write(f"\n\\{n}-grams:\n")
            costs = rng.uniform(0.1, 6.0, len(table)).round(4).tolist()
            texts = (" ".join([words[w] for w in row]) for row in table.tolist())
            file.writelines(
                f"-{c}\t{text}\t-0.3\n" for c, text in zip(costs, texts, strict=True)
            )
        file.write("\n\\end\\\n")
    parts = {"tokens": data.RECIPE / "tokens.txt", "path": folder / "lexicon.txt"}
    return {**parts, "arpa": folder / "lm.arpa"}


def compare_builds(lm: str, lexicon: str, topology: str, source: Path) -> Row:
    """Build the same graph in both ways, and compare what it costs to say sentences."""
    names = {"lm": lm, "lexicon": lexicon, "topology": topology}
    arpa, tokens = data.find_lm(lm, source), source / "tokens.txt"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = lexicon_file(source / LEXICONS[lexicon], folder)
        case = {**names, "arpa": arpa, "tokens": tokens, "path": path}
        in_own_process(write_parts, case, folder)
        ours = in_own_process(build_ours, case, folder)
        bare = in_own_process(build_bare, folder)
        difference = in_own_process(largest_difference, case, folder)
    report(names, ours, bare)
    print(f"  costs of {SENTENCES} sentences differ by {difference:.1e} at most")
    return names | {"ours": ours, "bare": bare, "largest_cost_difference": difference}


def compile_kernels() -> float:
    """Build a toy: the first build on a machine compiles, the others need not."""
    began = time.perf_counter()
    tokens = token_table(["<blank>", "a"])
    lexicon = Lexicon(("a",), ((1,),), np.zeros(1, np.float32))
    text = "\\data\\\nngram 1=3\n\\1-grams:\n-9 <s>\n-1 </s>\n-1 a\n\\end\\\n"
    arpa = read_arpa(io.StringIO(text))
    wfstdec.build_graph(tokens=tokens, lexicon=lexicon, lm=arpa)
    return time.perf_counter() - began


def lexicon_file(path: Path, folder: Path) -> Path:
    """The lexicon, in tokens of the model; cmudict's phones are renamed."""
    if path.suffix != ".dict":
        return path
    converted = folder / "lexicon.txt"
    entries = data.read_cmudict(path)
    lines = (f"{word}\t{' '.join(tokens)}\n" for word, tokens in entries)
    converted.write_text("".join(lines), "utf-8")
    return converted


def write_parts(case: Row, folder: Path) -> None:
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


def build_ours(case: Row, folder: Path) -> Row:
    """A whole build, from text to `graph.npz`, as users run it."""
    stages: list[Row] = []

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
        lm=case["arpa"],
        topology=case["topology"],
        separator=SEPARATOR,
    )
    graph.save(folder / "graph.npz")
    return rounded(stages, time.process_time() - began)


def build_bare(folder: Path) -> Row:
    """Build the graph by kaldifst's own calls, from files to a file."""
    stages: list[Row] = []
    last = time.perf_counter(), time.process_time()
    cpu_seconds = 0.0

    def done(stage: str, fst: Any = None) -> None:
        nonlocal last, cpu_seconds
        row: Row = {"stage": stage, "seconds": time.perf_counter() - last[0]}
        cpu_seconds += time.process_time() - last[1]
        row |= {"states": None, "arcs": None, "peak_memory_gb": peak_memory_gb()}
        if fst is not None:
            row["states"] = fst.num_states
            row["arcs"] = sum(map(fst.num_arcs, range(fst.num_states)))
        stages.append(row)
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


def largest_difference(case: Row, folder: Path) -> float:
    """The largest relative difference of costs between both TLGs, over sentences.

    A sentence is made of the words of random n-grams, spelled by tokens one frame each
    with blanks between them; nothing else has any probability.
    """
    ours = wfstdec.load_graph(folder / "graph.npz")
    fst = read_fst(folder / "TLG.fst").fst
    ilabel, repeat = LabelSpace(ours.tokens, ours.words).split_repeats(fst.ilabel)
    bare = PackedGraph.pack(
        replace(fst, ilabel=ilabel), repeat, ours.vocabulary, ours.info
    )
    rng = np.random.default_rng(0)
    model = read_arpa(case["arpa"])
    batch = [draw(ours, model, rng) for _ in range(SENTENCES)]
    options = WfstOptions(beam=np.inf, max_active=None)
    costs = [
        [h.graph_cost for h in WfstDecoder(graph, options, backend="cpu").decode(batch)]
        for graph in (ours, bare)
    ]
    assert np.isfinite(costs).all()
    return float((np.abs(np.subtract(*costs)) / np.abs(costs[1])).max())


def draw(graph: PackedGraph, model: ArpaModel, rng: np.random.Generator) -> np.ndarray:
    """Log-probs of a sentence of about ten words."""
    ngrams = model.ngrams[-1].words
    drawn = [model.words[w] for w in ngrams[rng.integers(len(ngrams), size=4)].flat]
    ids = [graph.word_ids[word] for word in drawn if word in graph.word_ids]
    table = graph.vocabulary.pronunciations
    frames = []
    for word in ids:
        row = rng.integers(table.word_splits[word], table.word_splits[word + 1])
        tokens = table.tokens[table.splits[row] : table.splits[row + 1]].tolist()
        for token in (*tokens, graph.tokens.index(SEPARATOR)):
            frames += [token, graph.tokens.blank]
    x = np.full((len(frames), len(graph.tokens)), -np.inf, np.float32)
    x[np.arange(len(frames)), frames] = 0.0
    return x


def rounded(stages: list[Row], cpu_seconds: float) -> Row:
    for figures in stages:
        for key in ("seconds", "peak_memory_gb"):
            figures[key] = round(figures[key], 3)
    return {
        "stages": stages,
        "seconds": round(sum(figures["seconds"] for figures in stages), 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "peak_memory_gb": round(peak_memory_gb(), 2),
    }


def report(names: Row, ours: Row, bare: Row | None = None) -> None:
    """Print one build or both."""
    print(f"{names['lm']} with {names['lexicon']}, {names['topology']}:")
    rows = [
        {"by": name, **stage}
        for name, build in (("ours", ours), ("bare", bare or {"stages": []}))
        for stage in (*build["stages"], {"stage": "all", **build})
    ]
    print(format_table(COLUMNS, rows if bare else rows[:-1]))
    if bare:
        ratio = ours["cpu_seconds"] / bare["cpu_seconds"]
        print(f"  ratio of CPU seconds {ratio:.2f}")


if __name__ == "__main__":
    exit_with(main)
