"""Where peers are required, none of their tests may be skipped."""

import importlib.util
import os

import pytest

PEERS = ("kaldi_decoder", "kenlm", "pynini")
REQUIRED = bool(os.environ.get("WFSTDEC_REQUIRE_PEERS"))


def pytest_configure(config):
    missing = [name for name in PEERS if importlib.util.find_spec(name) is None]
    if REQUIRED and missing:
        raise pytest.UsageError(f"the peers {missing} are required and not installed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if REQUIRED and report.skipped and item.get_closest_marker("peers"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but peers are required"
    return report
