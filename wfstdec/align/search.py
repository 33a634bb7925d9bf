"""The cheapest path through the graph of a text, in bounded memory.

    found = search(graph, log_probs, options)
    found.hypothesis, found.excess, found.exact

The decoder's own search, with chunks of frames, so that of an hour only what was said
is kept. It has a beam around the path; whether something cheaper can have been lost
follows from what the frames cost at least:

    excess = total - sum over frames of the cost of the most probable token

A path is never further than its own excess from the frame's best partial path, since
what comes after costs no less than the most probable tokens. So with a beam of the
excess of any path the cheapest of all is found (up to the rounding of float32 sums).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from wfstdec.align.options import AlignOptions
from wfstdec.errors import LogprobError
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.logprobs import MAX_LOGPROB, as_utterances, bad_logprob
from wfstdec.search.options import MAX_NATS
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

_log = logging.getLogger("wfstdec.align")

CHUNK = 1000
"""Frames that are priced at a time."""
WIDER = 4.0
"""Factor by which the beam grows if no path reaches the end."""
WIDENED_AT_MOST = 4
SMALL = 50_000_000
"""Frames times states: with less, the first wider beam is none at all."""
_SLACK = 1.0  # nats, far over the rounding of the sums


class LogProbs:
    """Log-probs of one utterance, read in chunks; a star's column is added.

    `array`: [T, V], anything that NumPy can slice: a memory-mapped file too.
    `star_cost`: nats by which a further token is less probable than the best of the
    frame; None where there is no such token.
    """

    def __init__(
        self, array: np.ndarray, num_tokens: int, star_cost: float | None = None
    ) -> None:
        self._array, self._num_tokens = array, num_tokens
        self._star_cost = star_cost
        self.num_frames = len(array)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Chunks, float32 [up to `CHUNK`, V or V + 1]."""
        for first in range(0, max(1, self.num_frames), CHUNK):
            part = self._array[first : first + CHUNK]
            try:
                [chunk] = as_utterances([part], None, self._num_tokens)
            except LogprobError:
                part = np.asarray(part, np.float32)
                bad = np.flatnonzero(~(part <= MAX_LOGPROB).all(axis=1))[0]
                raise bad_logprob(0, first + int(bad), part[bad]) from None
            if self._star_cost is not None:
                best = chunk.max(axis=1, keepdims=True)
                star = best - np.float32(self._star_cost)
                chunk = np.concatenate([chunk, star], axis=1)
            yield chunk


class Found(NamedTuple):
    """Result of a search.

    Attributes:
        hypothesis: The cheapest path; its words are places in the text.
        excess: Its total less what the most probable token of each frame costs.
        exact: Whether it is proved that no path is cheaper; False where none reaches
            the end of the text.
    """

    hypothesis: Hypothesis
    excess: float
    exact: bool


def search(
    graph: PackedGraph,
    logprobs: LogProbs,
    options: AlignOptions,
    *,
    frame_shift_s: float,
    backend: str = "cpu",
) -> Found:
    """Find the cheapest path; a wider beam where none reaches the end of the text."""
    decoder = WfstDecoder(
        graph,
        WfstOptions(beam=options.beam, max_active=None),
        backend,
        frame_shift_s=frame_shift_s,
        threads=1,
    )
    decoder._input_check.enabled = False  # the aligner's input is checked by it
    # No path of any text costs less than the best token of each frame.
    least = math.fsum(-chunk.max(axis=1).sum(dtype=np.float64) for chunk in logprobs)
    beam, hypothesis = options.beam, _one_pass(decoder, logprobs, options.beam)
    for _ in range(WIDENED_AT_MOST):
        if hypothesis.reached_final or beam == math.inf:
            break
        # Trying wider beams would take longer than looking at all.
        if logprobs.num_frames * graph.num_states <= SMALL:
            beam = math.inf
        else:
            beam = min(max(1.0, beam) * WIDER, MAX_NATS)
        _log.info("no path reaches the end of the text: again with beam %g", beam)
        hypothesis = _one_pass(decoder, logprobs, beam)
    excess = hypothesis.total_cost - least
    # The proof's premise: nothing but log-probs makes a path cheaper.
    least_of_all = min(graph.arcs["cost"].min(initial=0.0), graph.final_cost.min())
    provable = least_of_all >= 0.0 and hypothesis.reached_final
    # A path that was pruned had, somewhere, cost more than the beam above the best one
    # there. None can be cheaper than what was found once the beam covers its whole
    # excess.
    if options.exact and provable and excess + _SLACK > beam:
        beam = min(excess + _SLACK, MAX_NATS)
        hypothesis = _one_pass(decoder, logprobs, beam)
        excess = hypothesis.total_cost - least
    exact = provable and excess + _SLACK <= beam
    exact = hypothesis.reached_final and (exact or beam == math.inf)
    return Found(hypothesis, excess, exact)


def _one_pass(decoder: WfstDecoder, logprobs: LogProbs, beam: float) -> Hypothesis:
    sessions = decoder.with_options(beam=beam).sessions()
    one = sessions.open()
    for chunk in logprobs:
        sessions.advance({one: chunk})
    return sessions.close(one)
