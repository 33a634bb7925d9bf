"""Runs the kernels without the JIT, and compares them with the specification.

    python tests/support/interpreted.py 0 30    # these cases; prints "30 cases agree"

Python then checks what compiled code does not: array bounds, and numbers that are none.
It stands for what only a compiler can do: instructions, and the fields of records as
attributes.
"""

# ruff: noqa: E402 (what is imported late is changed or chosen before)
import ctypes
import dataclasses
import functools
import io
import logging
import os
import sys
import tempfile
import warnings

os.environ["NUMBA_DISABLE_JIT"] = "1"

import numpy as np
from packed_models import pack_models

import wfstdec.jit


class Record(np.record):
    """A record whose fields are attributes, also those called like a method."""

    def __getattribute__(self, name):
        fields = np.void.__getattribute__(self, "dtype").names
        return self[name] if name in fields else super().__getattribute__(name)

    def __setattr__(self, name, value):
        self[name] = value


def as_records(value):
    """Arrays of records as arrays whose elements have attributes."""
    if isinstance(value, np.ndarray) and value.dtype.names:
        return value.view(np.dtype((Record, value.dtype)))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(as_records, value))
    return value


def interpreted(function):
    """In the place of the decorators of `wfstdec.jit`."""

    @functools.wraps(function)
    def call(*arguments, **named):
        return as_records(function(*map(as_records, arguments), **named))

    return call


for name in ("empty", "zeros"):  # kernels make arrays of records too
    setattr(np, name, interpreted(getattr(np, name)))
for name in ("jit", "kernel", "part", "inlined"):
    setattr(wfstdec.jit, name, interpreted)

from wfstdec.jit import vectors

vectors.prefetch = lambda array, index: None
vectors.count_bits = lambda value: np.uint64(int(value).bit_count())

from vectors_in_python import use_arrays

from wfstdec.jit import handles, vectors

handles.opened = lambda handle: handle and as_records(handle.value)


def float_rows(words):
    """In the place of `handles.float_rows`."""
    address, *shape = map(int, words[:3])
    pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(pointer, shape)


handles.float_rows = float_rows
by_address = {}  # the handles, of which none is dropped
make_handle = handles.Handle.__init__


def remember_handle(handle, value):
    """In the place of `Handle.__init__`."""
    make_handle(handle, value)
    by_address[handle.address] = handle


handles.Handle.__init__ = remember_handle
handles.at_address = lambda _, address: by_address.get(int(address))

use_arrays(vectors)

import lm_reference
import naive_cases
import naive_ctc_decoder
import naive_greedy
import naive_search_cases
import naive_trie
import naive_words
from added_cases import random_added_boosts, random_calls_product, random_calls_search
from ctc_decoder_cases import random_case as random_ctc_case
from ctc_decoder_cases import random_options as random_ctc_options
from lattice_searches import bits as lattice_bits
from own_models import WholeText
from random_graphs import (
    random_boosts,
    random_compiled,
    random_graph,
    random_logprobs,
    random_options,
    random_phrases,
)
from reference_backends import HOST_BACKENDS
from wfst_reference_backend import ReferenceBackend
from wfst_searches import bits, decoded

from wfstdec import (
    Boosts,
    GreedyDecoder,
    GreedyOptions,
    NgramLM,
    PhraseCompiler,
    PhraseOptions,
    TrieDecoder,
    TrieOptions,
    WfstDecoder,
    read_arpa,
    token_table,
)
from wfstdec.adapters.torchaudio import ctc_decoder
from wfstdec.adapters.torchaudio import search as ctc_search
from wfstdec.errors import BoostWarning, LogprobWarning
from wfstdec.greedy.options import BACKENDS as GREEDY_BACKENDS
from wfstdec.lm import kernels
from wfstdec.search.threads import CallBudget
from wfstdec.trie.cpu.backend import CpuBackend as TrieCpuBackend
from wfstdec.trie.lexicon_trie import build_trie, find_child
from wfstdec.trie.lookahead import build_lookahead, potential
from wfstdec.wfst.cpu import recording
from wfstdec.wfst.cpu.backend import CpuBackend

ctc_search.FIRST_CANDIDATES = recording.FEW_NODES = 1


def check_queries(rng):
    """A language model and phrases, built and asked without the JIT."""
    words = [*naive_cases.WORD_NAMES[:3], "oov"]
    text, _ = naive_cases.random_arpa(rng, words[:3])
    lm = NgramLM.from_arpa(read_arpa(io.StringIO(text)), ("<eps>", *words))
    spellings = [[tuple(rng.integers(0, 3, rng.integers(1, 5)).tolist())] for _ in "ab"]
    options = PhraseOptions()
    boosts = PhraseCompiler(lambda _: spellings, "12345", options).compile(["a", "b"])
    both = pack_models([lm, boosts])
    costs, nextstates = np.zeros(5, np.float32), np.zeros(5, np.int32)
    for model, first, count in (
        (0, 0, lm.num_states),
        (1, lm.num_states, boosts.num_states),
    ):
        for state in range(first, first + count):
            expected = lm_reference.row(both.automaton, model, state, 5)
            kernels.row(both.automaton, model, state, costs, nextstates)
            assert np.array_equal(expected, (costs, nextstates))
            found = [kernels.step(both.automaton, model, state, v) for v in range(5)]
            assert np.array_equal(expected, np.transpose(found))


def check_lookahead(rng):
    """A trie and its look-ahead, built and asked without the JIT."""
    entries, ids, lm, *_ = naive_trie.random_case(rng)
    spoken = naive_trie.pronunciations(entries, ids)
    trie = build_trie(naive_trie.lexicon_of(entries), ids)
    ahead = build_lookahead(lm, trie, "ngram")
    nodes = naive_trie.nodes(spoken)
    for number, node in enumerate(nodes):
        above = nodes.index(node[:-1])
        assert not node or find_child(trie, above, node[-1]) == number
        for state in range(lm.num_states):
            expected = naive_trie.phi(lm.automaton, spoken, state, node)
            assert potential(ahead, state, number) == expected


def check_greedy(rng):
    """Greedy decoding by all backends without the JIT."""
    case = naive_greedy.random_case(rng)
    tokens = token_table(case.tokens, case.blank)
    lm = None
    if case.arpa:
        lm = NgramLM.from_arpa(read_arpa(io.StringIO(case.arpa)), tokens)
    spellings = [[(0, 1)], [(1, 1, 0)]]
    boosts = PhraseCompiler(lambda _: spellings, tokens).compile(["a", "b"])
    options = GreedyOptions(**case.options)
    expected, found = (
        GreedyDecoder(tokens=tokens, lm=lm, options=options, backend=backend).decode(
            [case.logprobs] * 2, boosts=[boosts, None]
        )
        for backend in GREEDY_BACKENDS
    )
    assert found == expected


def check_trie_search(i):
    """The trie search without the JIT, in arrays that are too small at first."""
    kind = naive_search_cases.KINDS[i % len(naive_search_cases.KINDS)]
    case = naive_search_cases.random_case(np.random.default_rng(i), kind=kind)
    options = TrieOptions(
        **case.options,
        beam=4.0,
        beam_size=4,
        merge=("max", "sum")[i // 2 % 2],
        nbest=1 + i % 2,
    )
    arguments = naive_search_cases.decoder_arguments(case)
    decoders = [
        TrieDecoder(**arguments, options=options, backend=b) for b in HOST_BACKENDS
    ]
    space = decoders[1]._backend.space
    decoders[1]._backend = TrieCpuBackend(space, first_capacity=1)
    boosts = naive_search_cases.decoder_boosts(case, decoders[0].words)
    batch = [case.logprobs, case.logprobs[:0]]
    expected, found = (d.decode_nbest(batch, boosts=boosts) for d in decoders)
    assert found == expected, i


def check_oov(rng):
    """Searches with added words without the JIT, in arrays that are too small."""
    graph, options, x, boosts = random_calls_search(rng)
    expected, found = (
        one.start(options, boosts)
        for one in (ReferenceBackend(graph), CpuBackend(graph, first_capacity=1))
    )
    for search in (expected, found):
        search.advance(x)
    assert bits(found.finish()) == bits(expected.finish())


def check_rows(rng):
    """A search on rows without the JIT, in arrays that are too small at first."""
    graph, options = random_calls_product(rng), random_options(rng)
    batch = [random_logprobs(rng, t, len(graph.tokens)) for t in (0, 2, 5)]
    if rng.random() < 0.5:
        boosts = random_added_boosts(rng, graph)
    else:
        boosts = random_compiled(rng, graph, options)
    backend = CpuBackend(graph, first_capacity=1)
    found = backend.decode_group(batch, options, boosts, CallBudget())
    expected = decoded(ReferenceBackend(graph), options, batch, [boosts] * 3)
    assert list(map(bits, found)) == expected
    under_way = [backend.start(options, boosts) for _ in batch]
    for half in range(2):
        for search, x in zip(under_way, batch, strict=True):
            search.advance(x[:2] if half == 0 else x[2:])
            search.look()
    assert [bits(search.finish()) for search in under_way] == expected


def check_lattices(rng):
    """Lattices whole and of sessions without the JIT, pruned after each look."""
    graph, options = random_calls_product(rng), random_options(rng)
    options = dataclasses.replace(options, lattice_beam=options.beam / 2)
    batch = [random_logprobs(rng, t, len(graph.tokens)) for t in (0, 2, 8)]
    boosts = random_boosts(rng, graph)
    decoders = [WfstDecoder(graph, options, b) for b in ("reference", "cpu")]
    decoders[1]._backend = CpuBackend(graph, first_capacity=1)
    expected, found = (
        list(map(lattice_bits, d.decode_lattice(batch, boosts=boosts)))
        for d in decoders
    )
    assert found == expected
    sessions = decoders[1].sessions(lattices=True)
    for i, x in enumerate(batch):
        sessions.open(boosts, session=i)
        sessions.advance({i: x[:1]})
        sessions.partial(i)
        sessions.advance({i: x[1:]})
        assert lattice_bits(sessions.close_lattice(i)) == expected[i]


def check_trie_words(i):
    """Check the trie's kernels with added and open words."""
    made = naive_words.random_case(np.random.default_rng(i))
    options = TrieOptions(
        **made.case.options, beam=6.0, beam_size=6, merge=("max", "sum")[i % 2]
    )
    arguments = naive_words.decoder_arguments(made)
    expected, found = (
        TrieDecoder(**arguments, options=options, backend=backend).decode_nbest(
            [made.case.logprobs], boosts=[naive_words.decoder_boosts(made)]
        )
        for backend in HOST_BACKENDS
    )
    assert found == expected, i


def check_ctc_decoder(i):
    """torchaudio's search without the JIT, in arrays that are too small at first."""
    kind = {"with_lexicon": i % 2 == 0, "with_lm": i % 4 < 2}
    options = random_ctc_options(i) | {"unk_score": -np.inf, "nbest": 1}
    with tempfile.TemporaryDirectory() as folder:
        arguments, emissions = random_ctc_case(i, folder, **kind)
        emissions = emissions[:3]
        case = naive_ctc_decoder.case_of(arguments, emissions.tolist(), options)
        best = naive_ctc_decoder.sentences(case)[0][1]
        ((found,),) = ctc_decoder(**arguments, **options)(emissions[None])
        assert abs(found.score - best) < 1e-3, i
        narrow = options | {"beam_size": 2, "beam_size_token": 3}
        ((found,),) = ctc_decoder(**arguments, **narrow)(emissions[None])
        if not (kind["with_lexicon"] or options["log_add"]):  # else it may be half said
            assert found.score <= best + 1e-3, i


def check_own_models(i):
    """The trie search that asks a user's model, without the JIT."""
    case = naive_search_cases.random_case(np.random.default_rng(i), kind="separator")
    arguments = naive_search_cases.decoder_arguments(case)
    arguments = {k: v for k, v in arguments.items() if k not in ("lm", "unk_cost")}
    options = TrieOptions(**case.options, beam=5.0, beam_size=5, lookahead="unigram")
    expected, found = (
        TrieDecoder(
            **arguments, lm=WholeText(i), options=options, backend=backend
        ).decode_nbest([case.logprobs] * 2)
        for backend in HOST_BACKENDS
    )
    assert found == expected, i


def main(first, num_cases):
    """Decode random batches by both backends; ask models."""
    for i in range(first, first + num_cases):
        check_queries(np.random.default_rng(i))
        check_lookahead(np.random.default_rng(i))
        check_greedy(np.random.default_rng(i))
        check_trie_search(i)
        check_oov(np.random.default_rng([i, 1]))
        check_trie_words(i)
        check_ctc_decoder(i)
        check_own_models(i)
        check_rows(np.random.default_rng(i))
        check_lattices(np.random.default_rng(i))
        rng = np.random.default_rng(i)
        graph, options = random_graph(rng), random_options(rng)
        batch = [random_logprobs(rng, t, len(graph.tokens)) for t in (0, 2, 5)]
        boosts = [
            Boosts(random_boosts(rng, graph) or {}, random_phrases(rng, graph)),
            random_boosts(rng, graph),
            random_phrases(rng, graph),
        ]
        decoders = [WfstDecoder(graph, options, b) for b in ("reference", "cpu")]
        decoders[1]._backend = CpuBackend(graph, first_capacity=2)
        expected, found = (d.decode(batch, boosts=boosts) for d in decoders)
        assert found == expected, i
    print(f"{num_cases} cases agree")


if __name__ == "__main__":
    logging.getLogger("wfstdec").setLevel(logging.ERROR)  # words are dropped on purpose
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", BoostWarning)
    warnings.simplefilter("ignore", LogprobWarning)
    warnings.filterwarnings("ignore", "overflow")  # hashes wrap, large costs are inf
    warnings.filterwarnings("ignore", "invalid value .* multiply")  # 0 * inf, put right
    warnings.filterwarnings("ignore", "invalid value .* subtract")  # inf - inf
    main(int(sys.argv[1]), int(sys.argv[2]))
