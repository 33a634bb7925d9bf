"""Shares of the tests: each is in one, a commit chooses one, failures name theirs."""

from pathlib import Path
from typing import NamedTuple

import pytest
import shares
import spread

CASES = """
import pytest

@pytest.mark.parametrize("i", range(200))
@pytest.mark.share
def test_all_in_shares(i):
    assert i != 7

@pytest.mark.parametrize("i", range(50))
@pytest.mark.share(keep=3)
def test_three_kept(i):
    pass

def test_default():
    pass

@pytest.mark.parametrize("backend", ["reference", "cpu", "cuda"])
@pytest.mark.parametrize("topology", ["normal", "compact", "eesen"])
@pytest.mark.share(keep=3)
def test_over_backends(topology, backend):
    pass

@pytest.mark.parametrize(
    "machine", ["source", pytest.param("ptx", marks=pytest.mark.share)]
)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.share(keep=2)
def test_a_value_that_is_marked(seed, machine):
    pass
"""


@pytest.fixture
def folder(pytester):
    pytester.makepyfile(test_cases=CASES)
    pytester.makeini(
        "[pytest]\naddopts = -p shares -p no:xdist --strict-markers\nmarkers = gpu"
    )
    return pytester


def ids_of(folder, *options):
    found = folder.inline_run("--collect-only", *options)
    return {call.item.nodeid for call in found.getcalls("pytest_itemcollected")} - {
        item.nodeid
        for call in found.getcalls("pytest_deselected")
        for item in call.items
    }


def test_each_test_is_in_one_share_and_the_rest_in_all(folder):
    default = ids_of(folder, "--share", "none")
    assert len(default) == 1 + 3 + 3 + 3 + 2  # what a GPU runs is in no share
    whole = ids_of(folder, "--share", "all")
    assert len(whole) == 251 + 9 + 12
    assert not [name for name in default if "ptx" in name]
    each = [ids_of(folder, "--share", str(i)) for i in range(shares.SHARES)]
    assert set.union(*each) == whole
    assert sum(len(ids - default) for ids in each) == len(whole - default)
    assert all(10 < len(ids - default) < 45 for ids in each)
    assert all(default < ids for ids in each)


def test_a_failure_names_its_share_and_how_to_repeat_it(folder):
    nodeid = "test_cases.py::test_all_in_shares[7]"
    share = shares.digest_of(nodeid) % shares.SHARES
    result = folder.runpytest("--share", str(share))
    result.stdout.fnmatch_lines(
        [
            f"share {share} of 10, seed *",
            f"to repeat it: bash tools/test.sh --share {share} '{nodeid}'",
            f"share {share} of 10, seed *; to repeat it: *--share {share}",
        ]
    )
    result = folder.runpytest("--share", str((share + 1) % 10))
    assert result.ret == 0


def test_workers_begin_with_the_longest_files_and_then_apart():
    """Each of several workers has a part of its own, in turn."""

    class Item(NamedTuple):
        path: Path
        number: int

    names = [f"a/test_{name}.py" for name in "abcde"] + [spread.LONGEST[0]]
    items = [Item(spread.TESTS / name, i) for name in names for i in range(2)]
    ordered = spread.spread(items, 2)
    stems = [item.path.stem.removeprefix("test_") for item in ordered]
    assert stems == "ray ray a a d d b b e e c c".split()
    assert sorted(ordered) == sorted(items)
    assert spread.spread([], 3) == []


@pytest.mark.parametrize("name", spread.LONGEST)
def test_the_longest_files_are_there(name):
    assert (spread.TESTS / name).is_file()
