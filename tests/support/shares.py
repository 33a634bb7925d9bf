"""The tests marked `share` run in ten shares, one with each commit: a plugin of pytest.

    @pytest.mark.share             # all of a test's cases are in shares
    @pytest.mark.share(keep=4)     # but for four of them, which always run: such that
                                   # they have as many values of parameters as can be
    pytest.param(x, marks=pytest.mark.share)          # all cases with that value are

    --share 3      that share; `all` of them; `none`; or as the commit's hash says
    path::test     what is named runs, whatever share it is in, where none is asked for

A test's share, and which of its cases are kept, follow from its name alone. Everything
else is the default run: oracles, promises, and what is named after a bug.
"""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

SHARES = 12
ROOT = Path(__file__).parents[2]
BY_COMMIT, ALL, NONE = "commit", "all", "none"


def pytest_addoption(parser):
    parser.addoption(
        "--share",
        default=BY_COMMIT,
        type=share_of_flag,
        metavar=f"0..{SHARES - 1}|all|none",
        help="of the tests marked `share`; by default as the commit's hash says",
    )


def share_of_flag(text):
    """A number, ALL, NONE or BY_COMMIT."""
    if text in (ALL, NONE, BY_COMMIT):
        return text
    if text.isdigit() and int(text) < SHARES:
        return int(text)
    raise ValueError  # the parser says what was expected


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        f"share(keep=0): runs in one of {SHARES} shares, one with each commit; `keep` "
        "of its cases always run",
    )
    share, seed = config.getoption("--share"), "--share"
    if config.option.markexpr == "gpu":
        share, seed = ALL, "-m gpu"  # what a GPU has passed, it has passed whole
    if share == BY_COMMIT:
        seed = seed_of(ROOT)
        share = int(seed, 16) % SHARES
    config.stash[_CHOSEN] = share, seed


_CHOSEN = pytest.StashKey[tuple]()
"""The share that runs, and what chose it."""
_SHARED = pytest.StashKey[bool]()
"""Of an item: it is in a share."""


def seed_of(root):
    """The hash of the commit, or of the sources where git does not know them."""
    words = ["git", "-C", root, "rev-parse", "--show-toplevel", "HEAD"]
    try:
        output = subprocess.run(words, capture_output=True, text=True, check=True)
        top, commit = output.stdout.split()
        if Path(top) == root:
            return commit[:12]
    except (OSError, ValueError, subprocess.CalledProcessError):
        pass
    digest = hashlib.blake2b(digest_size=6)
    for folder in ("tests", "wfstdec"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def digest_of(name):
    """A number for the name of a test, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave out what is in another share."""
    of_test = {}
    for item in items:
        of_gpu = "cuda" in (value for _, value in values(item))
        if item.get_closest_marker("share") and not of_gpu:
            of_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in of_test.values():
        marks = (mark for item in cases for mark in item.iter_markers("share"))
        keep = max(mark.kwargs.get("keep", 0) for mark in marks)
        cases.sort(key=lambda item: digest_of(item.nodeid))
        # A value that is itself marked is in shares, whatever its test keeps.
        kept = most_different([one for one in cases if not is_value_marked(one)], keep)
        for item in cases:
            item.stash[_SHARED] = item not in kept
    share, _ = config.stash[_CHOSEN]
    named = []
    if config.getoption("--share") == BY_COMMIT:
        named = [os.path.normpath(arg) for arg in config.args if "::" in arg]
    if share != ALL:
        left_out = [
            item
            for item in items
            if item.stash.get(_SHARED, False)
            and digest_of(item.nodeid) % SHARES != share
            and not any(item.nodeid.startswith(name) for name in named)
        ]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            dropped = set(left_out)
            items[:] = [item for item in items if item not in dropped]


def is_value_marked(item):
    """Tell whether it is a value of a parameter that puts a case into shares."""
    marks = getattr(getattr(item, "callspec", None), "marks", ())
    return any(mark.name == "share" for mark in marks)


def values(item):
    """Names and values of the parameters of a case."""
    given = getattr(item, "callspec", None)
    return {(name, str(value)) for name, value in given.params.items()} if given else ()


def most_different(cases, number):
    """Choose cases, each with as many values as it can that those before lack."""
    kept, seen, left = [], set(), {item: set(values(item)) for item in cases}
    while left and len(kept) < number:
        best = max(left, key=lambda item: len(left[item] - seen))
        seen |= left.pop(best)
        kept.append(best)
    return kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure of a share says which, and how to repeat it."""
    report = yield
    if report.failed and item.stash.get(_SHARED, False):
        _, seed = item.config.stash[_CHOSEN]
        share = digest_of(item.nodeid) % SHARES
        text = f"share {share} of {SHARES}, seed {seed}\n{how_to_repeat(share)}"
        report.sections.append(("share", f"{text} '{item.nodeid}'"))
    return report


def how_to_repeat(share):
    return f"to repeat it: bash tools/test.sh --share {share}"


def pytest_terminal_summary(terminalreporter, config):
    """Name the share that ran, at the end."""
    share, seed = config.stash[_CHOSEN]
    if share in (ALL, NONE):
        text = f"share: {share}, by {seed}"
    else:
        text = f"share {share} of {SHARES}, seed {seed}; {how_to_repeat(share)}"
    terminalreporter.write_line(text)
