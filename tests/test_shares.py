"""Shares of the tests: each is in one, a commit chooses one, failures name theirs."""

import subprocess
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


def test_cases_that_are_kept_have_all_values(folder):
    default = ids_of(folder, "--share", "none")
    kept = [i.partition("[")[2] for i in default if "over_backends" in i]
    kept = [i.rstrip("]").split("-") for i in kept if "cuda" not in i]
    assert len(kept) == 3
    assert {topology for topology, _ in kept} == {"normal", "compact", "eesen"}
    assert {backend for _, backend in kept} == {"reference", "cpu"}


def test_what_is_named_runs_whatever_share_it_is_in(folder):
    name = "test_cases.py::test_all_in_shares[7]"
    assert ids_of(folder, name) == {name}
    assert ids_of(folder, name, "--share", "none") == set()


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


def test_the_commit_chooses(folder):
    result = folder.runpytest("--collect-only")
    seed = shares.seed_of(shares.ROOT)
    share = int(seed, 16) % 10
    result.stdout.fnmatch_lines([f"share {share} of 10, seed {seed}; *"])


@pytest.mark.parametrize("flag", ["10", "-1", "one"])
def test_a_share_that_is_none(folder, flag):
    result = folder.runpytest(f"--share={flag}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--share*invalid*"])


def test_tests_of_a_gpu_run_whole(folder):
    result = folder.runpytest("-m", "gpu")
    result.stdout.fnmatch_lines(["share: all, by -m gpu"])


def test_seeds_follow_commits_or_else_sources(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "a.py").write_text("1")
    of_sources = shares.seed_of(tmp_path)
    (tmp_path / "tests" / "a.py").write_text("2")
    assert shares.seed_of(tmp_path) != of_sources
    git = ["git", "-C", tmp_path, "-c", "user.name=n", "-c", "user.email=n@n"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    told = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    assert shares.seed_of(tmp_path) == told.stdout[:12]
    (tmp_path / "wfstdec").mkdir()
    assert shares.seed_of(tmp_path / "wfstdec") != told.stdout[:12]  # a folder of it


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
