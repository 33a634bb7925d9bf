"""The options of the search: defaults, and what is out of range."""

import contextlib
import dataclasses
import math
import re

import numpy as np
import pytest
from text_graphs import text_graph

from wfstdec import OpenVocabulary, WfstDecoder, WfstOptions
from wfstdec.errors import BackendError, OptionError
from wfstdec.search.backend import make_backend
from wfstdec.wfst.options import BACKENDS

INF, NAN = math.inf, math.nan


def test_defaults():
    assert dataclasses.asdict(WfstOptions()) == {
        "beam": 13.0,
        "max_active": 7000,
        "acoustic_scale": 1.0,
        "lm_scale": 1.0,
        "word_insertion": 0.0,
        "blank_penalty": 0.0,
        "boost_scale": 1.0,
        "blank_skip_threshold": None,
        "beam_delta": None,
        "lattice_beam": None,
        "nbest": 1,
    }


def test_options_stay_as_they_are():
    with pytest.raises(dataclasses.FrozenInstanceError):
        WfstOptions().beam = 3
    assert WfstOptions(beam=2) == WfstOptions(beam=2.0)
    assert len({WfstOptions(), WfstOptions(), WfstOptions(beam=1)}) == 2


GOOD = {
    "beam": [0, 0.5, 1e6, INF, np.float32(3), np.int64(3)],
    "max_active": [1, 2**31 - 1, None, np.int32(5), np.uint64(5)],
    "acoustic_scale": [0, 1e-30, 1e6],
    "lm_scale": [0, 1e-30, 1e6],
    "word_insertion": [-1e6, 0, 1e6],
    "blank_penalty": [-1e6, 0, 1e6],
    "boost_scale": [0, 0.5, 1e6],
    "blank_skip_threshold": [1e-300, 0.5, 1, None],
    "beam_delta": [0, 1e6, INF, None],
    "lattice_beam": [0, 0.5, 13, np.float32(3), None],
    "nbest": [1, 2**31 - 1, np.int64(3)],
}
BAD = {
    "beam": ([-1e-9, -INF, NAN, 1e7, None, "3", [3]], "a number of nats, 0 to"),
    "max_active": ([0, -1, 2.5, 3.0, INF, 2**31, 2**70, "3"], "1 to 2147483647, or"),
    "acoustic_scale": ([-0.1, NAN, INF, 1e39, None, "1"], "0 to 1e+06"),
    "lm_scale": ([-0.1, NAN, INF, 1e39, None, "1"], "0 to 1e+06"),
    "word_insertion": ([NAN, INF, -INF, 1e39, None], "a number of nats, -1e+06 to"),
    "blank_penalty": ([NAN, INF, -INF, -1e39, None], "a number of nats, -1e+06 to"),
    "blank_skip_threshold": ([0, -0.5, 1.001, NAN, "0.9"], "a probability above 0"),
    "beam_delta": ([-1, NAN, 1e7, "1"], "a number of nats, 0 to 1e+06, inf or None"),
    "lattice_beam": ([-1, NAN, 13.5, INF], "a number of nats, 0 to the beam (13.0)"),
    "nbest": ([0, 2.5, None], "1 to 2147483647"),
}


def installed():
    for name in BACKENDS:
        with contextlib.suppress(BackendError):
            make_backend(BACKENDS, name, text_graph("0 0"))
            yield name


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in GOOD for value in GOOD[name]]
)
def test_the_ends_of_every_range_decode_on_every_backend(name, value):
    """Without a warning of NumPy about what does not fit."""
    options = WfstOptions(**{name: value})
    text = "0 0 _ - 0\n0 1 a A 1\n1 1 a' - 0\n1 0 - - 0.5\n1 2 b B -2\n2 0 _ - 0\n0 0"
    x = np.log(np.random.default_rng(0).dirichlet([1, 1, 1], (2, 6))).astype(np.float32)
    hyps = []
    with np.errstate(all="raise"):
        for backend in installed():
            decoder = WfstDecoder(text_graph(text), options, backend, threads=1)
            hyps.append(decoder.decode(x, boosts={"A": 0.25}))
    assert all(found == hyps[0] for found in hyps)
    assert all(math.isfinite(hyp.total_cost) for hyp in hyps[0])


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in BAD for value in BAD[name][0]]
)
def test_what_is_out_of_range(name, value):
    with pytest.raises(OptionError) as error:
        WfstOptions(**{name: value})
    assert str(error.value).startswith(f"{name}={value!r}, expected {BAD[name][1]}")


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ((NAN, 0), "word_cost=nan, expected a number of nats, -1e+06 to 1e+06"),
        ((0, -0.5), "token_cost=-0.5, expected a number of nats, 0 to 1e+06"),
        ((0, "1"), "token_cost='1', expected a number of nats, 0 to 1e+06"),
    ],
)
def test_open_words_that_have_no_price(costs, message):
    with pytest.raises(OptionError, match=re.escape(message)):
        OpenVocabulary(*costs)


@pytest.mark.parametrize("value", [0, -0.02, NAN, INF])
def test_frame_shifts_that_are_none(value):
    message = f"frame_shift_s={value!r}, expected seconds, above 0"
    with pytest.raises(OptionError, match=message):
        WfstDecoder(text_graph("0 0"), frame_shift_s=value)


@pytest.mark.parametrize("value", [0, -1])
def test_threads_that_are_none(value):
    message = f"threads={value}, expected 1 or more, or None"
    with pytest.raises(OptionError, match=message):
        WfstDecoder(text_graph("0 0"), threads=value)
