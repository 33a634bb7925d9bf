"""Where peers are required, none of their tests may be skipped.

A test that is given the backend "cuda" is marked `gpu`, and skipped without one; where
WFSTDEC_REQUIRE_GPU is set and no device can be made, no test runs.
"""

import gc
import importlib.util
import logging
import os
import signal
import threading

import pytest

from wfstdec.errors import BackendError
from wfstdec.gpu import cupy_device as cuda
from wfstdec.gpu.verified import record_pass
from wfstdec.trie.gpu.layout import PROGRAM as TRIE_PROGRAM
from wfstdec.wfst.gpu.layout import PLAIN, PROGRAM

pytest_plugins = ("shares", "spread", "pytester")
PEERS = ("kaldi_decoder", "kenlm", "pynini", "flashlight")
REQUIRED = bool(os.environ.get("WFSTDEC_REQUIRE_PEERS"))


def pytest_configure(config):
    # A shell ignores Ctrl-C for what it runs in the background, tests of Ctrl-C too.
    if threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    missing = [name for name in PEERS if importlib.util.find_spec(name) is None]
    if REQUIRED and missing:
        raise pytest.UsageError(f"the peers {missing} are required and not installed")
    if os.environ.get("WFSTDEC_REQUIRE_GPU"):
        try:
            cuda.CupyDevice(PROGRAM, macros=PLAIN.macros)
        except BackendError as error:
            raise pytest.UsageError(f"a GPU is required: {error}") from None


def pytest_collection_modifyitems(items):
    no_gpu = pytest.mark.skip(reason="needs an NVIDIA GPU and CuPy")
    for item in items:
        given = getattr(item, "callspec", None)
        if given is not None and "cuda" in map(str, given.params.values()):
            item.add_marker("gpu")
        if item.get_closest_marker("gpu") and not cuda.is_available():
            item.add_marker(no_gpu)


def pytest_sessionfinish(session, exitstatus):
    """Tests of the GPU, all of them and nothing failed: `"auto"` may take it."""
    asked = session.config.option.markexpr == "gpu"
    whole = not session.config.option.keyword and session.testscollected > 0
    if asked and whole and exitstatus == 0 and cuda.is_available():
        record_pass(PROGRAM)
        record_pass(TRIE_PROGRAM)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    marked = any(map(item.get_closest_marker, ("peers", "nvrtc", "notebook")))
    if REQUIRED and report.skipped and marked:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but peers are required"
    return report


@pytest.fixture
def quiet(caplog):
    """The library says how many words are dropped; here they are dropped on purpose."""
    for name in ("wfstdec", None):
        caplog.set_level(logging.ERROR, logger=name)


@pytest.fixture(autouse=True, scope="module")
def settled_heap():
    """Collections do not look again at what is there: benchmarks ask for many.

    What is there now and in a cycle later is never freed.
    """
    gc.collect()
    gc.freeze()
