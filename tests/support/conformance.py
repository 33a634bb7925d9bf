"""The table of the conformance suite: decoders, backends, features; what a cell draws.

cell = Cell("trie", "cpu", "phrases")
drawn = draw(cell, np.random.default_rng(3))
decoder = drawn.make(threads=2)
found = read(cell, decoder, drawn.utterances, boosts=drawn.boosts)

Here, and nowhere in the promises, is what users cannot set: a device in emulation,
and how much room a search has at first.
"""

import dataclasses
import fnmatch
import functools
import io
import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import added_cases
import naive
import naive_cases
import naive_open
import naive_search_cases
import naive_words
import numpy as np
from arpa_texts import BIGRAMS
from cuda_emulation.device import EmulatedDevice
from lattice_searches import bits as bits_of_arrays
from oracle_cases import graph_by_files
from own_models import Batched, Wrapped
from random_graphs import (
    foreign_product,
    phrases_of_graph,
    random_boosts,
    random_graph,
    random_logprobs,
    random_options,
    random_product,
)
from trie_devices import emulated, in_blocks_of

import wfstdec
from wfstdec import BoostEntry, Boosts, Decoder, OpenVocabulary
from wfstdec.errors import BoostError, OptionError
from wfstdec.greedy.options import BACKENDS as GREEDY_BACKENDS
from wfstdec.trie.cpu.backend import CpuBackend as TrieBackend
from wfstdec.trie.gpu.layout import MAX_BEAM_SIZE
from wfstdec.trie.options import BACKENDS as TRIE_BACKENDS
from wfstdec.wfst.cpu.backend import CpuBackend as WfstBackend
from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.options import BACKENDS as WFST_BACKENDS

EMULATED, TORCH = "emulated", "torch"
DECODERS = {
    "wfst": [*(name for name in WFST_BACKENDS if name != "cuda"), EMULATED],
    "trie": [*(name for name in TRIE_BACKENDS if name != "cuda"), EMULATED],
    "greedy": [*GREEDY_BACKENDS],
    "transducer": ["cpu", TORCH],
    "attention": [TORCH],
}
"""Decoders and their backends; of a real GPU see `tests/gpu/test_on_gpu.py`."""
FEATURES = ("words", "phrases", "oov", "open", "model", "nbest", "lattices")
"""Boosted words and phrases, OOV words and open ones, a language model (of the user
where the search asks for one), and what else than the best hypothesis is read."""


class Cell(NamedTuple):
    """A decoder with a backend, and what is asked of it."""

    decoder: str
    backend: str
    feature: str


class Drawn(NamedTuple):
    """The decoder's maker, utterances, lists or None, and lists in another order."""

    make: Callable[..., Decoder]
    utterances: list
    boosts: list
    turned: list


HOLES = {
    # promise, decoder, backend, feature: why not, and what the library says
    ("*", "greedy", "*", "words"): ("a list is one of phrases", None),
    ("*", "greedy", "*", "oov"): ("it has no words", BoostError),
    ("*", "greedy", "*", "open"): ("no word is open where none is closed", None),
    ("*", "greedy", "*", "nbest"): ("it finds the best alone", OptionError),
    ("*", "greedy", "*", "lattices"): ("it finds the best alone", OptionError),
    ("*", "transducer", "*", "words"): ("a list is one of phrases", None),
    ("*", "transducer", "*", "oov"): ("it has no words", BoostError),
    ("*", "transducer", "*", "open"): ("no word is open where none is closed", None),
    ("*", "transducer", "*", "lattices"): ("texts are no lattice", OptionError),
    ("*", "attention", "*", "words"): ("a list is one of phrases", None),
    ("*", "attention", "*", "oov"): ("it has no words", BoostError),
    ("*", "attention", "*", "open"): ("no word is open where none is closed", None),
    ("*", "attention", "*", "lattices"): ("texts are no lattice", OptionError),
    ("*", "wfst", "*", "model"): ("its model is in the graph", None),
    ("chunks", "attention", "*", "*"): ("it looks at whole utterances", OptionError),
    ("partials", "attention", "*", "*"): ("it looks at whole utterances", OptionError),
    ("chunks", "wfst", EMULATED, "lattices"): ("it keeps none in sessions", None),
    ("chunks", "wfst", EMULATED, "nbest"): ("it keeps no lattices in sessions", None),
    ("partials", "wfst", EMULATED, "lattices"): ("it keeps none in sessions", None),
    ("partials", "wfst", EMULATED, "nbest"): ("it keeps no lattices there", None),
    ("partials", "*", "reference", "*"): ("it is the specification", None),
    ("specification", "*", "reference", "*"): ("it is the specification", None),
    ("specification", "transducer", "*", "*"): ("see its oracle", None),
    ("specification", "attention", "*", "*"): ("see its oracle", None),
    ("segments", "*", "*", "[!l]*"): ("a lattice is cut, and nothing else", None),
    ("segments", "trie", "*", "*"): ("its lattices come whole", None),
    ("segments", "wfst", EMULATED, "*"): ("it keeps no lattices in sessions", None),
    ("partials", "transducer", "*", "*"): ("its oracle has no partial results", None),
    ("growth", "*", "reference", "*"): ("Python has no room to begin with", None),
    ("growth", "greedy", "*", "*"): ("its arrays are as long as the chunk", None),
    ("growth", "transducer", "*", "*"): ("see what_is_forgotten_changes_nothing", None),
    ("growth", "attention", "*", "*"): ("torch makes its arrays as they come", None),
    ("pickling", "wfst", EMULATED, "*"): ("a device's memory stays there", None),
    ("*", "trie", EMULATED, "oov"): ("no second trie on a device", None),
    ("*", "trie", EMULATED, "open"): ("no open words on a device", None),
    ("*", "trie", EMULATED, "model"): ("a device asks no model of the user", None),
    ("*", "trie", EMULATED, "lattices"): ("it keeps none", OptionError),
    ("pickling", "trie", EMULATED, "*"): ("a device's memory stays there", None),
    ("users_threads", "trie", EMULATED, "*"): ("see test_on_gpu", None),
    ("users_threads", "*", "reference", "*"): ("plain Python, shared nowhere", None),
    ("users_threads", "wfst", EMULATED, "*"): ("see test_on_gpu", None),
}
"""Cells without a case, by patterns: why, and the error of who asks all the same."""


def hole_of(promise: str, cell: Cell) -> tuple | None:
    """The pattern of a cell that has no case, or None."""
    for pattern in HOLES:
        if all(map(fnmatch.fnmatch, (promise, *cell), pattern)):
            return pattern
    return None


def cells() -> list[Cell]:
    return [
        Cell(decoder, backend, feature)
        for decoder, backends in DECODERS.items()
        for backend in backends
        for feature in FEATURES
    ]


# ------------------------------------------------------------------------ what is read
def fields(hypothesis: Any) -> tuple:
    """All of a hypothesis, in a form that tells bits apart."""
    return repr(hypothesis), hypothesis.token_ids, hypothesis.token_frames


def bits(lattice: Any) -> tuple:
    """All of a lattice and its words, in a form that tells bits apart."""
    return *bits_of_arrays(lattice), tuple(lattice.words)


def read(cell: Cell, decoder: Decoder, *given: Any, **more: Any) -> list:
    """Read each utterance as a cell asks for it, in a form that tells bits apart."""
    if cell.feature == "lattices":
        return list(map(bits, decoder.decode_lattice(*given, **more)))
    if cell.feature == "nbest":
        lists = decoder.decode_nbest(*given, **more)
        return [list(map(fields, hyps)) for hyps in lists]
    return list(map(fields, decoder.decode(*given, **more)))


def sessions_of(cell: Cell, decoder: Decoder) -> Any:
    """Sessions that keep what the cell asks for."""
    recorded = cell.feature == "lattices"
    recorded |= cell.feature == "nbest" and cell.decoder == "wfst"
    return decoder.sessions(lattices=recorded)


def close(cell: Cell, sessions: Any, name: Any) -> Any:
    if cell.feature == "lattices":
        return bits(sessions.close_lattice(name))
    if cell.feature == "nbest":
        return list(map(fields, sessions.close_nbest(name)))
    return fields(sessions.close(name))


# ----------------------------------------------------------------------- what is drawn
def draw(cell: Cell, rng: np.random.Generator) -> Drawn:
    if cell.backend == EMULATED and not shutil.which("g++"):
        import pytest

        pytest.skip("needs g++")
    return DRAW[cell.decoder](cell, rng)


def adds_words(cell, rng):
    """Tell if lists have words that the decoder lacks: reading these takes the list."""
    if cell.feature in ("nbest", "lattices"):
        return rng.random() < 0.5
    return cell.feature in ("oov", "open")


def with_homophones(entries):
    """The entries, and words of equal pronunciation and cost: they tie."""
    pronounced = [entry for entry in entries if entry.pronunciations]
    return [
        *entries,
        *(dataclasses.replace(entry, text=f"{entry.text}-too") for entry in pronounced),
    ]


def draw_wfst(cell, rng):
    """Graphs of any kind, T o LG among them, which are searched on rows."""
    options = random_options(rng)
    if adds_words(cell, rng):
        of_files = cell.feature == "open" or rng.random() < 0.5
        graph, lists = (graph_with_words if of_files else graph_with_exits)(cell, rng)
    else:
        kinds = random_product, random_graph, foreign_product
        kind = kinds[int(rng.choice(3, p=[0.4, 0.4, 0.2]))]
        graph = kind(rng)
        lists = [wfst_lists(cell, rng, graph) for _ in range(3)]
        lists.append(lists[0])
    if cell.feature in ("nbest", "lattices"):
        beam = float(rng.choice([0, 0.5, 1])) * min(options.beam, 20.0)
        # Where sounds or words cost nothing, millions of texts tie: seconds a list.
        scales = options.acoustic_scale or 0.3, options.lm_scale or 0.3
        options = dataclasses.replace(
            options,
            acoustic_scale=scales[0],
            lm_scale=scales[1],
            lattice_beam=beam,
            nbest=3,
        )
    utterances = [
        random_logprobs(rng, int(t), len(graph.tokens)) for t in rng.integers(0, 25, 4)
    ]
    make = functools.partial(
        make_wfst, cell, graph, options, int(rng.integers(1 << 30))
    )
    return Drawn(make, utterances, *map(list, zip(*lists, strict=True)))


def make_wfst(cell, graph, options, seed, *, backend=None, threads=1, tight=False):
    backend = backend or cell.backend
    name = "cpu" if backend == EMULATED else backend
    decoder = wfstdec.WfstDecoder(graph, options, name, threads=threads)
    if backend == EMULATED:
        device = EmulatedDevice(
            [32, 64, 128][seed % 3],
            preempt=[0, 4][seed // 3 % 2],
            seed=seed,
            shared_slots=[0, 16, 512][seed // 6 % 3],
        )
        decoder._backend = DeviceBackend(graph, device, 2 if tight else 64)
    elif tight:
        decoder._backend = WfstBackend(graph, first_capacity=2)
    return decoder


def wfst_lists(cell, rng, graph):
    """A list of words, or with phrases; and the same turned."""
    words = random_boosts(rng, graph)
    backwards = words and dict(reversed(words.items()))
    if cell.feature == "words" or rng.random() < 0.3:
        return words, backwards
    compile_them, texts = phrases_of_graph(rng, graph)
    turned = dict(reversed(texts.items()))
    return (
        Boosts(words or {}, compile_them(texts)),
        Boosts(backwards or {}, compile_them(turned)),
    )


def graph_with_words(cell, rng):
    """A graph of files that can be left for other words; lists of OOV words."""
    with tempfile.TemporaryDirectory() as name:
        if cell.feature == "open":
            opened = naive_open.random_open_case(
                rng,
                topology=str(rng.choice(naive.TOPOLOGIES)),
                fillers=str(rng.choice(naive_cases.FILLERS)),
            )
            case, listed = opened.case, opened.listed
            more = {"open_vocabulary": OpenVocabulary(*opened.costs)}
        else:
            topology = str(rng.choice(naive.TOPOLOGIES))
            case, listed = added_cases.random_added_case(rng, topology=topology)
            more = {}
        graph = graph_by_files(case, Path(name), **more)
    boosts = added_cases.boosts_of(case, listed)
    some = dict(sorted(boosts.items())[-1:])
    entries = [one for one in boosts.values() if isinstance(one, BoostEntry)]
    boosts |= {entry.text: entry for entry in with_homophones(entries)}
    if rng.random() < 0.5:
        boosts = added_cases.with_phrases(rng, case, boosts)
    if rng.random() < 0.5:  # these get automatic numbers
        boosts = {
            text: one if isinstance(one, BoostEntry) else None
            for text, one in boosts.items()
        }
    turned = {text: turned_entry(one) for text, one in reversed(boosts.items())}
    both = boosts, turned
    return graph, [both, (None, None), (some, some), both]


def graph_with_exits(cell, rng):
    """A random graph that can be left anywhere for OOV words, which are compiled."""
    kinds = added_cases.random_calls_product, added_cases.random_calls_graph
    kind = kinds[int(rng.integers(2))]
    graph = kind(rng)
    while not len(graph.oov_exits):  # the specification knows no empty overlay
        graph = kind(rng)
    first, second = (added_cases.random_added_boosts(rng, graph) for _ in range(2))
    return graph, [(one, one) for one in (first, None, second, first)]


def turned_entry(given):
    """An entry with its pronunciations backwards; numbers stay."""
    if not isinstance(given, BoostEntry):
        return given
    return BoostEntry(given.text, given.pronunciations[::-1], given.bonus)


def draw_trie(cell, rng):
    """Lexicons and bare tokens, narrow beams and wide, with OOV and open words."""
    # No words are added on a device: see `HOLES`.
    if adds_words(cell, rng) and cell.backend != EMULATED:
        some = {"opened": True} if cell.feature == "open" else {"listed": True}
        made = naive_words.random_case(rng, **some)
        case, arguments = made.case, naive_words.decoder_arguments(made)
        boosts = naive_words.decoder_boosts(made)
        entries = with_homophones(list(boosts.words))
        lists = Boosts(entries, boosts.phrases), turned_words(made, entries)
        some = Boosts(entries[-1:]), Boosts(entries[-1:])
    else:
        case = trie_case(cell, rng)
        arguments = naive_search_cases.decoder_arguments(case)
        words = naive_search_cases.word_table(case)
        lists = [
            naive_search_cases.decoder_boosts(one, words if case.lexicon else ())
            for one in (case, turned_case(case))
        ]
        some = None, None
    changed = {
        "beam": float(rng.choice([0, 0.5, 2, 6, math.inf])),
        "beam_size": int(rng.choice([1, 2, 5, 1000])),
        "token_top_k": [None, 1, 2][int(rng.integers(3))],
        "merge": str(rng.choice(["max", "sum"])),
        "nbest": int(rng.choice([1, 3, 50])) if cell.feature == "nbest" else 1,
        "lookahead": str(rng.choice(["ngram", "unigram", "none"])),
        "blank_skip_threshold": [None, 0.5, 1.0][int(rng.integers(3))],
    }
    if cell.feature == "lattices":
        changed["merge"] = "max"
    if cell.backend == EMULATED:
        changed["beam_size"] = min(changed["beam_size"], MAX_BEAM_SIZE)
    if cell.feature == "model":
        changed["lookahead"] = str(rng.choice(["unigram", "none"]))
        kind = Batched if rng.random() < 0.5 else Wrapped
        arguments = with_own_model(arguments, kind)
    options = wfstdec.TrieOptions(**case.options | changed)
    num_tokens = len(case.tokens)
    others = [random_logprobs(rng, int(t), num_tokens) for t in rng.integers(0, 12, 3)]
    seed = int(rng.integers(1 << 30))
    make = functools.partial(make_trie, cell, arguments, options, seed)
    each = [lists, (None, None), some, lists]
    utterances = [case.logprobs.astype(np.float32), *others]
    return Drawn(make, utterances, *map(list, zip(*each, strict=True)))


def trie_case(cell, rng):
    """A case that boosts what the cell is about."""
    if cell.feature == "words":
        kind = str(rng.choice(naive_search_cases.WITH_LEXICON))
        boosts = str(rng.choice(["words", "typed"]))
        return naive_search_cases.random_case(rng, kind=kind, boosts=boosts)
    if cell.feature == "phrases":
        boosts = str(rng.choice(["word_phrases", "token_phrases"]))
        return naive_search_cases.random_case(rng, boosts=boosts)
    case = naive_search_cases.random_case(rng)
    while cell.feature == "model" and case.arpa is None:
        case = naive_search_cases.random_case(rng)
    return case


def turned_case(case):
    turned = dataclasses.replace(
        case, boosts=dict(reversed((case.boosts or {}).items()))
    )
    if case.phrases is None:
        return turned
    weights = dict(reversed(case.phrases.weights.items()))
    phrases = dataclasses.replace(case.phrases, weights=weights)
    return dataclasses.replace(turned, phrases=phrases)


def turned_words(made, entries):
    """Turn the entries of a case, and its phrases, into another order."""
    phrases = naive_words.decoder_boosts(
        dataclasses.replace(made, case=turned_case(made.case))
    ).phrases
    return Boosts(list(map(turned_entry, reversed(entries))), phrases)


def with_own_model(arguments, kind):
    """Replace a decoder's model by one that is asked."""
    decoder = wfstdec.TrieDecoder(**arguments)
    asking = {k: v for k, v in arguments.items() if k not in ("lm", "unk_cost")}
    if decoder.words:
        asking["words"] = decoder.words
    return asking | {"lm": functools.partial(kind, decoder.lm)}


def make_trie(cell, arguments, options, seed, *, backend=None, threads=1, tight=False):
    backend = backend or cell.backend
    if cell.feature == "model":
        arguments = arguments | {"lm": arguments["lm"]()}
    decoder = wfstdec.TrieDecoder(
        **arguments,
        options=options,
        backend="cpu" if backend == EMULATED else backend,
        threads=threads,
    )
    if backend == EMULATED:
        decoder._backend = emulated(
            decoder._space,
            shared=bool(seed % 2),
            first_entries=1 if tight else 64,
            form_for=in_blocks_of([32, 64, 128][seed % 3]),
            preempt=[0, 5][seed // 6 % 2],
            seed=seed,
        )
    elif tight:
        decoder._backend = TrieBackend(decoder._space, 1)
    return decoder


def draw_greedy(cell, rng):
    """Bare tokens, with phrases of them or a language model."""
    case = naive_search_cases.random_case(rng, kind="tokens_separator")
    while cell.feature == "model" and case.arpa is None:
        case = naive_search_cases.random_case(rng, kind="tokens_separator")
    arguments = naive_search_cases.decoder_arguments(case)
    if cell.feature != "model":
        arguments = {k: v for k, v in arguments.items() if k not in ("lm", "unk_cost")}
    options = wfstdec.GreedyOptions(
        blank_penalty=float(rng.choice([0.0, 0.5, 2.0])),
        acoustic_scale=float(rng.choice([1.0, 0.3])),
    )
    letters = [
        name for i, name in enumerate(case.tokens) if i != arguments["tokens"].blank
    ]
    texts = random_texts(rng, letters)
    num_tokens = len(case.tokens)
    utterances = [
        random_logprobs(rng, int(t), num_tokens) for t in rng.integers(0, 16, 4)
    ]

    def make(*, backend=None, threads=1):
        return wfstdec.GreedyDecoder(
            **arguments,
            options=options,
            backend=backend or cell.backend,
            threads=threads,
        )

    return Drawn(make, utterances, *phrase_lists(make(), texts))


def random_texts(rng, letters):
    """Phrases of letters that often overlap, and what they are worth."""
    return {
        "".join(rng.choice(letters, rng.integers(1, 4))): float(rng.choice([1, 5, -1]))
        for _ in range(4)
    }


def phrase_lists(decoder, texts):
    """Compiled phrases of tokens for two of four utterances; and turned."""
    found = []
    for one in (texts, dict(reversed(texts.items()))):
        compiled = decoder.phrase_compiler().compile(one)
        found.append([compiled, None, None, compiled])
    return found


def draw_transducer(cell, rng):
    """RNN-T and TDT, of each strategy, with a language model by chance."""
    from table_transducers import TableTransducer

    durations = [(), (0, 1, 2), (1, 2)][rng.integers(3)]
    sizes = {"num_utterances": 4, "num_frames": 7, "longest": 4}
    model = TableTransducer(rng, 3, durations, **sizes)
    options = wfstdec.TransducerOptions(
        strategy=str(rng.choice(["greedy", "alsd", "aes"])),
        beam_size=int(rng.integers(1, 5)),
        merge=str(rng.choice(["sum", "max"])),
    )
    lm = own_bigrams() if cell.feature == "model" or rng.random() < 0.3 else None

    def make(*, backend=None, threads=1):
        decoder = wfstdec.TransducerDecoder(
            model, lm=lm, options=options, batch_size=max(2, 4 // threads)
        )
        decoder._backend.dense = (backend or cell.backend) == TORCH
        return decoder

    return drawn_from_table(rng, make, model, [7, 2, 0, 4])


def draw_attention(cell, rng):
    """Tables, with a language model by chance."""
    from table_attention import TableAttention

    model = TableAttention(rng, 3, longest=4, num_utterances=4)
    options = wfstdec.AttentionOptions(beam_size=int(rng.integers(1, 5)))
    lm = own_bigrams() if cell.feature == "model" or rng.random() < 0.3 else None

    def make(*, backend=None, threads=1):
        return wfstdec.AttentionDecoder(
            model, lm=lm, options=options, batch_size=max(2, 4 // threads), unk_cost=2.0
        )

    return drawn_from_table(rng, make, model, [0, 1, 2, 6])


def drawn_from_table(rng, make, model, lengths):
    """Frames of a model that is a table, and phrases of its letters."""
    each = enumerate(rng.permutation(lengths).tolist())
    utterances = [model.frames(u, n).numpy() for u, n in each]
    return Drawn(
        make, utterances, *phrase_lists(make(), random_texts(rng, list("abc")))
    )


def own_bigrams():
    """A language model over the letters a, b and c, with its weight."""
    return [(wfstdec.read_arpa(io.StringIO(BIGRAMS)), 0.5)]


DRAW = {
    "wfst": draw_wfst,
    "trie": draw_trie,
    "greedy": draw_greedy,
    "transducer": draw_transducer,
    "attention": draw_attention,
}
