"""The hash table of pairs: as a dict says."""

import numpy as np

from wfstdec.jit.hashing import slot_of_pair


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
