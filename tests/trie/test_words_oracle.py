"""Added words and open words against an oracle that tries every reading."""

import functools
import math

import naive_search
import naive_words
import numpy as np
import pytest
from oracle_cases import close_to, words_of
from trie_searches import SWEPT

from wfstdec import TrieDecoder, TrieOptions

pytestmark = pytest.mark.usefixtures("quiet")
UNBOUNDED = {"beam": math.inf, "beam_size": 50_000, "token_top_k": None}
LOOKAHEADS = ("ngram", "unigram", "none")
MERGES = ("max", "sum")


@functools.cache
def drawn(seed, tokens, merge, **fixed):
    rng = np.random.default_rng([seed, naive_words.TOKENS.index(tokens)])
    made = naive_words.random_case(rng, tokens=tokens, **fixed)
    return made, naive_words.best_texts(made, merge)


def decoder_of(made, backend, **options):
    decoder = TrieDecoder(
        **naive_words.decoder_arguments(made),
        options=TrieOptions(**made.case.options | UNBOUNDED | options),
        backend=backend,
        threads=1,
    )
    if made.open_costs is not None:
        kind = made.tokens.removeprefix("joined_")
        assert decoder.open_spelling.kind == kind
    return decoder


def decode(made, backend, **options):
    decoder = decoder_of(made, backend, **options)
    boosts = naive_words.decoder_boosts(made)
    (hyps,) = decoder.decode_nbest([made.case.logprobs], boosts=boosts)
    (hyp,) = decoder.decode([made.case.logprobs], boosts=boosts)
    assert hyp == hyps[0]
    return hyps


def assert_consistent(made, hyp, merge):
    """The parts add up, and tokens, words, times and costs are one sentence."""
    case = made.case
    parts = hyp.acoustic_cost, hyp.graph_cost, hyp.insertion_cost, hyp.boost_cost
    if merge == "max" or case.options.get("acoustic_scale") != 0:
        total = naive_search.total(case, naive_search.Parts(*parts))
        assert hyp.total_cost == pytest.approx(total, rel=1e-9, abs=1e-9)
    tokens = tuple(case.tokens[token] for token in hyp.token_ids)
    frames = [(word.start_frame, word.end_frame) for word in hyp.words]
    assert any(
        reading.words == words_of(hyp)
        and parts[1:] == close_to((reading.graph, reading.insertion, reading.boost))
        and word_frames(reading, hyp) == frames
        for reading in naive_words.reader(made)(tokens)
    )


def word_frames(reading, hyp):
    found, at = [], 0
    for word, length in reading.pieces:
        if word is not None:
            starts, ends = hyp.token_frames
            found.append((starts[at], ends[at + length - 1]))
        at += length
    return found


def assert_best(made, hyp, texts, merge):
    assert hyp.reached_final == bool(texts)
    if texts:
        assert hyp.total_cost == close_to(texts[0].cost)
        most = texts[0].cost + 1e-4 + 1e-5 * abs(texts[0].cost)
        assert words_of(hyp) in {t.text for t in texts if t.cost <= most}
        assert_consistent(made, hyp, merge)


@pytest.mark.parametrize("backend", SWEPT)
@pytest.mark.parametrize("tokens", naive_words.TOKENS)
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.share(keep=2)
def test_all_texts_each_once(merge, tokens, backend):
    several = 0
    for i in range(40, 60):
        made, texts = drawn(i, tokens, merge)
        if not texts:
            continue
        hyps = decode(made, backend, merge=merge, nbest=10_000)
        found = {words_of(hyp): hyp.total_cost for hyp in hyps}
        assert len(found) == len(hyps)
        assert found == close_to({text.text: text.cost for text in texts})
        for hyp in hyps:
            assert_consistent(made, hyp, merge)
        several += len(hyps) > 2
    assert several > 4


@pytest.mark.parametrize("backend", SWEPT)
@pytest.mark.parametrize("fixed", ["any", "listed", "opened", *naive_words.BOOSTS[1:]])
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.share(keep=4)
def test_nothing_pruned(merge, fixed, backend):
    arguments = {
        "any": {},
        "listed": {"listed": True, "opened": False, "boosts": "no"},
        "opened": {"listed": False, "opened": True, "boosts": "no"},
    }.get(fixed, {"listed": True, "boosts": fixed})
    added = 0
    for i in range(60, 90):
        tokens = naive_words.TOKENS[i % 4]
        made, texts = drawn(i, tokens, merge, **arguments)
        (hyp, *_) = decode(made, backend, merge=merge, lookahead=LOOKAHEADS[i % 3])
        assert_best(made, hyp, texts, merge)
        added += any(word not in made.table for word in words_of(hyp))
    assert added > 2
