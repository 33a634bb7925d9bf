"""The hash table of pairs: as a dict says."""

import numpy as np

from wfstdec.jit.arrays import first_equal, slot_of_pair


def test_pairs_are_found_as_in_a_dict():
    rng = np.random.default_rng(0)
    found = {}
    pairs = np.zeros((256, 2), np.int32)
    slots = np.full(512, -1, np.int32)
    for first, second in rng.integers(0, 16, (2000, 2)).tolist():
        number = found.setdefault((first, second), len(found))
        slot = slot_of_pair(slots, pairs, first, second)
        assert slots[slot] == (number if number < (slots >= 0).sum() else -1)
        pairs[number], slots[slot] = (first, second), number
    assert len(found) > 250 and (slots >= 0).sum() == len(found)


def test_large_numbers_and_a_table_that_is_nearly_full():
    top = 2**31 - 1
    pairs = np.array([(top, top), (top, 0), (0, top)], np.int32)
    slots = np.full(4, -1, np.int32)
    for number, (first, second) in enumerate(pairs.tolist()):
        slots[slot_of_pair(slots, pairs, first, second)] = number
    for number, (first, second) in enumerate(pairs.tolist()):
        assert slots[slot_of_pair(slots, pairs, first, second)] == number
    assert slots[slot_of_pair(slots, pairs, 1, 1)] == -1


def test_equal_nodes_are_those_with_equal_ways_to_the_root():
    merged = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(0, 400))
        previous = np.array([rng.integers(-1, i) for i in range(count)], np.int32)
        says = np.zeros((4, count), np.int32)
        says[seed % 4] = rng.integers(-1, 2, count)
        ways, firsts = [], {}
        for i in range(count):
            before = ways[previous[i]] if previous[i] >= 0 else ()
            ways.append((*before, tuple(says[:, i].tolist())))
            firsts.setdefault(ways[i], i)
        expected = [firsts[way] for way in ways]
        follows = [-1 if p < 0 else expected[p] for p in previous.tolist()]
        found = first_equal(previous, *says)
        assert found.tolist() == expected
        assert previous.tolist() == follows
        merged += len(ways) - len(firsts)
    assert merged > 500
