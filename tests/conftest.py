"""Where peers are required, none of their tests may be skipped.

A test that is given the backend "cuda" is marked `gpu`, and skipped without one; where
WFSTDEC_REQUIRE_GPU is set and no device can be made, no test runs. Every test has a
time limit.
"""

import faulthandler
import gc
import importlib.util
import logging
import os
import signal
import threading

import pytest
import reference_backends  # noqa: F401 (plain Python, as backends of tests alone)
from _pytest.faulthandler import fault_handler_stderr_fd_key

from wfstdec.errors import BackendError
from wfstdec.gpu import cupy_device as cuda
from wfstdec.wfst.gpu.layout import PLAIN, PROGRAM

pytest_plugins = ("shares", "spread")
PEERS = ("kaldi_decoder", "kenlm", "pynini", "flashlight")
REQUIRED = bool(os.environ.get("WFSTDEC_REQUIRE_PEERS"))
TEST_S, GPU_TEST_S = 600.0, 120.0
"""Seconds that a test may take, compiling included; on a GPU."""


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Limit the time of a test."""
    on_gpu = item.get_closest_marker("gpu") and cuda.is_available()
    # No signal reaches a process that waits for a kernel: the process has to end.
    stderr = item.config.stash.get(fault_handler_stderr_fd_key, 2)
    limit = GPU_TEST_S if on_gpu else TEST_S
    faulthandler.dump_traceback_later(limit, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


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
    """Collections skip what is there now: benchmarks ask for many, and it stays."""
    gc.collect()
    gc.freeze()
