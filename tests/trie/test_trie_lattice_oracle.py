"""Lattices of the trie decoder against oracles that try every path."""

import math

import naive_search
import naive_search_cases
import naive_trie_lattice
import naive_words
import numpy as np
import pytest
from reference_backends import HOST_BACKENDS
from trie_lattices import alignment_on, near_paths, pieces_on
from trie_searches import SWEPT

from wfstdec import TrieDecoder, TrieOptions
from wfstdec.lattice import posteriors, word_confidences
from wfstdec.lattice.arrays import check_lattice
from wfstdec.search.paths.lattice import hypotheses_of, nbest_texts

pytestmark = [
    pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning"),
    pytest.mark.usefixtures("quiet"),
]
FREE = {"beam": math.inf, "beam_size": 50_000}
LOOKAHEADS = ("ngram", "unigram", "none")
ROUNDING = 1e-3
WITH_WORDS = tuple(f"words of {tokens}" for tokens in naive_words.TOKENS)
"""Cases with added and open words."""
KINDS = (*naive_search_cases.KINDS, *WITH_WORDS)
ORACLE = {}
"""All paths by (seed, kind): the same for every backend."""


def drawn(seed, kind, backend, **options):
    """A case, what reads its tokens, a decoder and the boosts; nothing is pruned."""
    rng = np.random.default_rng([seed, 11, KINDS.index(kind)])
    if kind in WITH_WORDS:
        made = naive_words.random_case(rng, tokens=kind.removeprefix("words of "))
        case, read = made.case, naive_words.reader(made)
        arguments = naive_words.decoder_arguments(made)
        boosts = naive_words.decoder_boosts(made)
    else:
        frames = [0, 1, 2, 3, 4, 5, 5, 5][seed % 8]
        case = naive_search_cases.random_case(
            rng, kind=kind, num_tokens=3 + seed % 2, num_frames=frames
        )
        read = naive_search.reader(case)
        arguments = naive_search_cases.decoder_arguments(case)
        boosts = None
    options = {"lookahead": LOOKAHEADS[seed % 3], **FREE, **options}
    options["lattice_beam"] = float(rng.choice([0.25, 1.0, 2.5, 4.0]))
    decoder = TrieDecoder(
        **arguments,
        options=TrieOptions(**case.options | options),
        backend=backend,
        threads=1,
    )
    if kind not in WITH_WORDS:
        boosts = naive_search_cases.decoder_boosts(case, decoder.words)
    return case, read, decoder, boosts


def key_of(case, lattice, arcs):
    """A path as the oracles write it."""
    alignment = alignment_on(lattice, arcs)
    if case.lexicon is None and lattice.vocabulary.open_word is None:
        tokens = naive_search.collapse(alignment, lattice.tokens.blank)
        return alignment, tuple((case.tokens[token], 1) for token in tokens)
    return alignment, pieces_on(lattice, arcs)


def assert_same_paths(case, lattice, expected):
    """Paths within the beam are the oracle's, and each arc is on one of them."""
    beam, best = lattice.lattice_beam, expected[0].cost
    assert lattice.search_cost == pytest.approx(best, abs=ROUNDING)
    paths = near_paths(lattice, beam + ROUNDING)
    found = {key_of(case, lattice, arcs): excess for arcs, excess in paths}
    assert len(found) == len(paths)
    costs = {(a, _shown(p)): cost - best for a, p, cost in expected}
    for key, excess in found.items():
        assert excess == pytest.approx(costs[key], abs=ROUNDING)
    missing = {key for key in costs if costs[key] <= beam - ROUNDING} - set(found)
    assert not missing
    on_paths = {arc for arcs, _ in paths for arc in arcs}
    assert on_paths == set(range(lattice.num_arcs))


def _shown(pieces):
    """Open words as the library calls them."""
    return tuple((word and word.removeprefix("\0"), n) for word, n in pieces)


@pytest.mark.parametrize("backend", SWEPT)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.share(keep=6)
def test_the_paths_are_those_of_the_oracle(kind, backend):
    several = 0
    for seed in range(16 if kind in WITH_WORDS else 24):
        case, read, decoder, boosts = drawn(seed, kind, backend)
        (lattice,) = decoder.decode_lattice([case.logprobs], boosts=boosts)
        check_lattice(lattice)
        if (seed, kind) not in ORACLE:
            ORACLE[seed, kind] = naive_trie_lattice.every_path(case, read)
        expected = ORACLE[seed, kind]
        assert lattice.reached_final == bool(expected)
        if expected:
            assert_same_paths(case, lattice, expected)
            several += lattice.num_arcs > len(case.logprobs) + 2
    assert several > 2


@pytest.mark.parametrize("backend", HOST_BACKENDS)
@pytest.mark.parametrize("lexicon", ["ab a b\n", None])
@pytest.mark.parametrize("p", [0.3, 0.6])
def test_a_token_begins_after_the_phase_that_costs_more(p, lexicon, backend):
    """A planted fault that let it cost what it does after the other was not found."""
    case = naive_search_cases.hand("a-b", "-ab", lexicon=lexicon)
    case.logprobs[1] = np.log([p, 0.9 - p, 0.1])
    decoder = TrieDecoder(
        **naive_search_cases.decoder_arguments(case),
        options=TrieOptions(**FREE, lattice_beam=4.0),
        backend=backend,
        threads=1,
    )
    (lattice,) = decoder.decode_lattice([case.logprobs])
    paths = naive_trie_lattice.every_path(case, naive_search.reader(case))
    best, second = (path.alignment for path in paths[:2])
    assert {best, second} == {(1, 0, 2), (1, 1, 2)} and (best[1] == 0) == (p > 0.5)
    assert_same_paths(case, lattice, paths)


@pytest.mark.parametrize("backend", SWEPT)
def test_a_pruned_search_keeps_what_the_oracle_says(backend):
    """With no model and no look-ahead, what is dropped follows from a few rules."""
    rng = np.random.default_rng(5)
    several = unfinished = bounded = 0
    for seed in range(300):
        kind = naive_search_cases.WITH_LEXICON[seed % 3]
        frames = int(rng.integers(1, 6))
        case = naive_search_cases.random_case(
            rng, kind=kind, boosts="no", num_tokens=4, num_frames=frames
        )
        case.options.pop("blank_penalty", None)
        case = type(case)(**{**vars(case), "arpa": None, "unk_cost": None})
        beam, size = float(rng.choice([0.5, 1, 2, 4])), int(rng.choice([1, 2, 3, 50]))
        noise = rng.uniform(0, 1e-3, case.logprobs.shape)  # nothing is equal
        case.logprobs[:] = (case.logprobs - noise).astype(np.float32)
        options = {"beam": beam, "beam_size": size, "lookahead": "none"}
        options["lattice_beam"] = beam * float(rng.choice([0.25, 0.5, 1]))
        decoder = TrieDecoder(
            **naive_search_cases.decoder_arguments(case),
            options=TrieOptions(**case.options | options),
            backend=backend,
            threads=1,
        )
        (lattice,) = decoder.decode_lattice([case.logprobs])
        expected = naive_trie_lattice.pruned_paths(case, beam, size)
        if expected is None:
            continue
        paths, complete, covered = expected
        assert (lattice.reached_final, lattice.num_frames) == (complete, covered)
        paths.sort(key=lambda path: path.cost)
        assert_same_paths(case, lattice, paths)
        several += len(paths) > 3
        unfinished += not complete
        bounded += size < 4
    assert several > 40 and unfinished > 5 and bounded > 50


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.share(keep=4)
def test_n_best_texts_costs_and_posteriors(kind):
    """Texts within the beam are those of `decode_nbest`; a frame's arcs sum to one."""
    lists = 0
    for seed in range(24):
        case, _, decoder, boosts = drawn(seed, kind, "cpu")
        given = {"boosts": boosts}
        (lattice,) = decoder.decode_lattice([case.logprobs], **given)
        for scale in (0.3, 1.0):
            found = posteriors(lattice, scale)
            frames = lattice.states["frame"][lattice.arcs["nextstate"]]
            takes = ~lattice.is_epsilon
            mass = np.bincount(frames[takes], found.arc[takes])
            assert mass[1:] == pytest.approx(1.0, abs=1e-6)
            assert found.end.sum() == pytest.approx(1.0, abs=1e-6)
        sure = word_confidences(lattice).confidences
        assert all(0 <= one <= 1 for one in sure)
        (best,) = decoder.decode([case.logprobs], **given)
        nbest = nbest_texts(lattice, 20)
        hypotheses = hypotheses_of(lattice, nbest)
        assert_same_hypothesis(hypotheses[0], best)
        if kind in WITH_WORDS:
            continue  # of open words the labels do not tell texts apart
        (wanted,) = decoder.with_options(nbest=20).decode_nbest(
            [case.logprobs], **given
        )
        limit = wanted[0].total_cost + lattice.lattice_beam
        within = [one for one in wanted if one.total_cost <= limit - ROUNDING]
        assert nbest.is_exact or len(within) > 19
        texts = {one.text: one.total_cost for one in hypotheses}
        last = hypotheses[-1].total_cost if len(hypotheses) == 20 else np.inf
        for one in within:
            if one.total_cost > last - ROUNDING:
                continue  # of equal costs any may be the last
            assert texts[one.text] == pytest.approx(one.total_cost, abs=ROUNDING)
        assert len(texts) == len(hypotheses) <= len(wanted)
        lists += len(within) > 2
    assert lists > 1 or kind in WITH_WORDS


def assert_same_hypothesis(one, other):
    """Compare words, tokens and times; costs to rounding."""
    for name in ("words", "token_ids", "token_frames", "reached_final", "num_frames"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("total", "graph", "acoustic", "insertion", "boost"):
        costs = getattr(one, f"{name}_cost"), getattr(other, f"{name}_cost")
        assert costs[0] == pytest.approx(costs[1], abs=ROUNDING)
