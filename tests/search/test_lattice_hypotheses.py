"""Hypotheses of lattices, of whichever decoder: what the decoder itself answers."""

import math

import naive_search_cases
import numpy as np
import pytest
from lattice_cases import logprobs_of, random_lattice_case

from wfstdec import (
    TrieDecoder,
    TrieOptions,
    WfstDecoder,
    lattice_hypotheses,
    token_table,
)
from wfstdec.errors import OptionError
from wfstdec.lattice import open_lattices, save_lattices

COSTS = ("total_cost", "graph_cost", "acoustic_cost", "insertion_cost", "boost_cost")
ROUNDING = 1e-3


def trie_case(seed, kind):
    """A decoder that prunes nothing, and log-probs."""
    rng = np.random.default_rng([seed, 23])
    case = naive_search_cases.random_case(rng, kind=kind, num_tokens=4, num_frames=5)
    free = {"beam": math.inf, "beam_size": 50_000, "lattice_beam": 3.0}
    options = TrieOptions(**{**case.options, **free, "nbest": 6})
    arguments = naive_search_cases.decoder_arguments(case)
    return TrieDecoder(**arguments, options=options, threads=1), case.logprobs


def assert_same(found, wanted):
    """Compare words, tokens and times; costs to rounding, as look-ahead cancels."""
    for name in ("words", "token_ids", "token_frames", "reached_final", "num_frames"):
        assert getattr(found, name) == getattr(wanted, name)
    for name in COSTS:
        one, other = getattr(found, name), getattr(wanted, name)
        assert one == pytest.approx(other, abs=ROUNDING)


def test_of_graphs_they_are_the_n_best_of_the_decoder(tmp_path):
    several = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        case, graph, options = random_lattice_case(rng, bounded=False, num_frames=4)
        decoder = WfstDecoder(graph, options, "cpu", threads=1).with_options(nbest=5)
        (lattice,) = decoder.decode_lattice([logprobs_of(case)])
        (wanted,) = decoder.decode_nbest([logprobs_of(case)])
        found = lattice_hypotheses(lattice, 5)
        assert found == wanted and found.is_exact == wanted.is_exact
        assert lattice_hypotheses(lattice) == wanted[:1]
        save_lattices(tmp_path / "some.lat", {"one": lattice})
        assert lattice_hypotheses(open_lattices(tmp_path / "some.lat")["one"], 5) == (
            wanted
        )
        several += len(wanted) > 1
    assert several > 5


@pytest.mark.parametrize("kind", naive_search_cases.KINDS)
def test_of_tries_the_texts_that_the_decoder_finds(kind, tmp_path):
    several = 0
    for seed in range(12):
        decoder, x = trie_case(seed, kind)
        if decoder.options.merge == "sum":
            continue
        (lattice,) = decoder.decode_lattice([x])
        found = lattice_hypotheses(lattice, 6)
        assert_same(found[0], decoder.decode([x])[0])
        assert lattice_hypotheses(lattice) == found[:1]
        (wanted,) = decoder.decode_nbest([x])
        by_text = {one.text: one.total_cost for one in wanted}
        limit = found[0].total_cost + lattice.lattice_beam - ROUNDING
        texts = [one.text for one in found]
        assert len(set(texts)) == len(texts)
        for text, cost in by_text.items():
            assert text in texts or cost > min(limit, found[-1].total_cost - ROUNDING)
        save_lattices(tmp_path / "some.lat", {"one": lattice})
        read = open_lattices(tmp_path / "some.lat")["one"]
        assert lattice_hypotheses(read, 6) == found
        several += len(found) > 1
    assert several > 2


def test_of_bare_tokens_a_text_stands_once():
    """Two ways to cut "ab" into pieces are one text, by the better way."""
    tokens = token_table(("<blank>", "▁a", "b", "▁ab"))
    decoder = TrieDecoder(tokens=tokens, options=TrieOptions(lattice_beam=6.0))
    x = np.log(np.array([[10, 50, 1, 39], [60, 1, 38, 1]], np.float32) / 100)
    (lattice,) = decoder.decode_lattice([x])
    found = lattice_hypotheses(lattice, 3)
    assert [one.text for one in found] == ["a", "ab", "abb"]
    assert found[1].token_ids == (3,)
    assert [word.text for word in found[1].words] == ["ab"]


def test_at_least_one_is_asked_for():
    decoder, x = trie_case(0, naive_search_cases.KINDS[0])
    (lattice,) = decoder.decode_lattice([x])
    with pytest.raises(OptionError, match="n=0"):
        lattice_hypotheses(lattice, 0)
