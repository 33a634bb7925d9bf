"""The trie decoder and the WFST decoder on the same files: one language, two searches.

Their language models differ in one thing: in a graph back-off is an epsilon arc, which
may be taken although there is an explicit n-gram. Where that is never cheaper both must
agree; elsewhere the WFST decoder's best costs as much or less.
"""

import math

import naive_search_cases
import numpy as np
import pytest
from trie_searches import SWEPT

import wfstdec
from wfstdec import TrieDecoder, TrieOptions

pytestmark = [
    pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning"),
    pytest.mark.usefixtures("quiet"),
]

LOOKAHEADS = ("ngram", "unigram", "none")


def case_of(seed, num_frames=None, **fixed):
    """A case with a lexicon and a model, and no more than both decoders know."""
    rng = np.random.default_rng([seed, len(fixed)])
    kind = naive_search_cases.WITH_LEXICON[seed % 3]
    while True:
        case = naive_search_cases.random_case(
            rng, kind=kind, num_frames=num_frames, **fixed
        )
        if case.arpa is not None:
            case.options.pop("token_insertion", None)
            return case


def both(case, backend, lookahead):
    """The two best texts of the trie decoder, and the WFST decoder's hypothesis."""
    trie = TrieDecoder(
        **naive_search_cases.decoder_arguments(case),
        options=TrieOptions(
            **case.options,
            beam=math.inf,
            beam_size=50_000,
            lookahead=lookahead,
            nbest=2,
        ),
        backend=backend,
        threads=1,
    )
    graph = wfstdec.build_graph(
        **naive_search_cases.graph_arguments(case), topology="normal", minimize=False
    )
    options = wfstdec.WfstOptions(**case.options, beam=math.inf, max_active=None)
    wfst = wfstdec.WfstDecoder(graph, options, "cpu", threads=1)
    assert trie.words == graph.words
    boosts = naive_search_cases.decoder_boosts(case, graph.words)
    (texts,) = trie.decode_nbest([case.logprobs], boosts=boosts)
    (hyp,) = wfst.decode([case.logprobs], boosts=boosts)
    return texts, hyp


def words_of(hyp):
    return [word.text for word in hyp.words]


def close_to(cost):
    return pytest.approx(cost, rel=1e-5, abs=2e-4)


@pytest.mark.parametrize("backend", SWEPT)
@pytest.mark.parametrize("boosts", naive_search_cases.BOOSTS)
@pytest.mark.share(keep=2)
def test_they_agree_where_backing_off_never_pays(boosts, backend):
    same = several = boosted = 0
    for i in range(36):
        frames = 5 + i % 8
        case = case_of(i, frames, boosts=boosts, easy_lm=True)
        texts, hyp = both(case, backend, LOOKAHEADS[i // 3 % 3])
        assert texts[0].reached_final == hyp.reached_final
        if not hyp.reached_final:
            continue
        assert texts[0].total_cost == close_to(hyp.total_cost)
        is_tie = len(texts) > 1 and texts[1].total_cost < texts[0].total_cost + 1e-3
        if not is_tie:
            assert words_of(texts[0]) == words_of(hyp)
            same += 1
        several += len(hyp.words) > 1
        boosted += hyp.boost_cost != 0
    assert same > 20 and several > 8, (same, several)
    assert boosted > 5 or boosts == "no"


@pytest.mark.parametrize("backend", SWEPT)
@pytest.mark.share(keep=1)
def test_the_wfst_decoder_costs_as_much_or_less(backend):
    less = 0
    for i in range(60):
        case = case_of(i, 4 + i % 9)
        texts, hyp = both(case, backend, LOOKAHEADS[i // 3 % 3])
        assert texts[0].reached_final == hyp.reached_final
        if hyp.reached_final:
            most = texts[0].total_cost
            assert hyp.total_cost <= most + 2e-4 + 1e-5 * abs(most)
            less += hyp.total_cost < most - 1e-3
    assert less > 3
