"""Endpoints: the rules by hand, and real speech cut into its utterances."""

import math

import numpy as np
import pytest
from real_speech import RECIPE, speech_graph

from wfstdec import Endpointer, EndpointRule, Partial, WfstDecoder
from wfstdec.errors import OptionError
from wfstdec.recipes import OPTIONS
from wfstdec.search.endpoints import Signal


def partial(frames, silent, final_cost=0.0):
    return Partial((), 0, 0, frames, silent, final_cost)


@pytest.mark.parametrize(
    "given, rule",
    [
        (partial(100, 24), None),
        (partial(100, 25), 1),
        (partial(100, 25, 2.5), None),
        (partial(100, 50, 2.5), 2),
        (partial(100, 99, 8.5), None),
        (partial(200, 100, math.inf), 3),
        (partial(249, 249), None),  # no word was found
        (partial(250, 250, math.inf), 0),
        (partial(999, 0, math.inf), None),
        (partial(1000, 0, math.inf), 4),
    ],
)
def test_the_default_rules(given, rule):
    endpointer = Endpointer(0.02)
    expected = None if rule is None else endpointer.rules[rule]
    assert endpointer.ended(given) is expected


def silence(frames, num_tokens, blank):
    """Log-probs that are nearly all blank."""
    x = np.full((frames, num_tokens), -12.0, np.float32)
    x[:, blank] = -0.01
    return x


def test_real_speech_is_cut_into_its_utterances():
    """With more than a second of silence behind each, in chunks of 0.1 s."""
    graph = speech_graph("normal")
    decoder = WfstDecoder(graph, OPTIONS, threads=1)
    with np.load(RECIPE / "logprobs.npz") as file:
        utterances = [file[name].astype(np.float32) for name in file.files[:12]]
    pause = silence(60, len(graph.tokens), graph.tokens.blank)
    stream = np.concatenate([part for x in utterances for part in (x, pause)])
    endpointer = Endpointer(decoder.frame_shift_s, (EndpointRule(silence_s=1.0),))
    sessions = decoder.sessions()
    one, found = sessions.open(), []
    for first in range(0, len(stream), 5):
        sessions.advance({one: stream[first : first + 5]})
        if endpointer.ended(sessions.partial(one)):
            found.append(sessions.close(one).text)
            one = sessions.open()
    whole = [hypothesis.text for hypothesis in decoder.decode(utterances)]
    assert " ".join(found) == " ".join(whole)
    assert len(found) == len(whole)


def test_options():
    for wrong in ({"silence_s": -1}, {"length_s": math.inf}, {"max_final_cost": -1}):
        with pytest.raises(OptionError, match="expected"):
            EndpointRule(**wrong)
    with pytest.warns(UserWarning, match="=0.15, expected 0.2 or more") as warned:
        EndpointRule(silence_s=0.15)
    assert warned[0].filename == __file__
    assert Signal(silence_s=0.01).silence_s == 0.01  # without a warning
    with pytest.raises(OptionError, match="no rules"):
        Endpointer(0.02, ())
    with pytest.raises(OptionError, match="frame_shift_s=0"):
        Endpointer(0)
