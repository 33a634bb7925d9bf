"""Words that the graph does not have: against an oracle, and graphs that have them."""

import naive
import naive_cases
import numpy as np
import pytest
from naive_added import random_added_case, solve_added
from oracle_cases import (  # noqa: F401 (one is a fixture)
    assert_best,
    graph_by_files,
    quiet,
)

import wfstdec
from wfstdec import BoostEntry

UNBOUNDED = {"beam": np.inf, "max_active": None}


def boosts_of(case, listed):
    """A list as users give it."""
    boosts = dict(case.boosts)
    for word, _, bonus in listed:
        said = [one.tokens for one in listed if one.word == word]
        boosts[word] = BoostEntry(word, said, bonus)
    return boosts


def decoder_of(case, graph, backend="cpu", **options):
    options = wfstdec.WfstOptions(**case.options | UNBOUNDED | options)
    return wfstdec.WfstDecoder(graph, options, backend, threads=1)


@pytest.mark.parametrize("topology", naive.TOPOLOGIES)
@pytest.mark.parametrize("fillers", naive_cases.FILLERS)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_random_cases(topology, fillers, backend, tmp_path):
    said = 0
    for i in range(20):
        rng = np.random.default_rng([i, len(topology), len(fillers)])
        case, listed = random_added_case(rng, topology=topology, fillers=fillers)
        best, graph = solve_added(case, listed), graph_by_files(case, tmp_path)
        decoder = decoder_of(case, graph, backend)
        (hyp,) = decoder.decode([case.logprobs], boosts=boosts_of(case, listed))
        assert_best(hyp, best)
        said += any(word.text not in graph.word_ids for word in hyp.words)
    assert said > 2
