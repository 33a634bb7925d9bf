"""Order of test files where several workers share them: a plugin of pytest.

The longest files come first, so that no worker ends long after the others. Of the rest
each worker begins in another part: neighbours, which need the same kernels, do not run
at the same time, when both workers would compile them.
"""

import itertools
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LONGEST = (
    "batch/test_ray.py",
    "conformance/test_conformance.py",
    "lattice/test_bounded_lattices.py",
    "test_pages.py",
    "trie/test_words_oracle.py",
    "test_readme.py",
)
"""Files of some minutes with nothing compiled, or with single tests as long."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):
        items[:] = spread(items, config.workerinput["workercount"])


def spread(items, num_workers):
    """Items file by file: the longest, then one of each worker's part in turn."""
    of_file = {}
    for item in items:
        of_file.setdefault(item.path, []).append(item)
    first = [of_file.pop(TESTS / name, []) for name in LONGEST]
    rest = list(of_file.values())
    size = -(-len(rest) // num_workers) or 1
    parts = [rest[begin : begin + size] for begin in range(0, len(rest), size)]
    turns = itertools.zip_longest(*parts, fillvalue=())
    return [*itertools.chain(*first), *itertools.chain(*itertools.chain(*turns))]
