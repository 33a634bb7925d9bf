"""Which utterances are searched in one call."""

import numpy as np
import pytest
from wfst_searches import NO_BOOSTS

from wfstdec.search.threads import GROUP, groups_of


@pytest.mark.parametrize("threads", [1, 2])
def test_utterances_of_one_list_are_grouped(threads):
    """Whatever their order; no more at a time than leaves work for every thread."""
    lengths = np.random.default_rng(8).integers(0, 20, 60).tolist()
    lists = [object() for _ in range(3)]
    groups = groups_of(lengths, [lists[i % 3] for i in range(60)], threads, GROUP)
    enough = sum(lengths) / (4 * threads)
    for group in groups:
        assert len({i % 3 for i in group}) == 1
        assert len(group) == 1 or sum(lengths[i] for i in group) <= enough
    assert sorted(i for group in groups for i in group) == list(range(60))
    assert len(groups) < 20 and max(map(len, groups)) <= GROUP


def test_long_utterances_among_short_ones_are_alone():
    """Sixteen of half a minute in one group would keep one thread, and no other."""
    lengths = [1500] * 16 + [50] * 112
    groups = groups_of(lengths, [NO_BOOSTS] * 128, threads=2, most=GROUP)
    assert sorted(i for group in groups for i in group) == list(range(128))
    assert max(sum(lengths[i] for i in group) for group in groups) <= sum(lengths) / 8
    assert max(map(len, groups)) == GROUP
