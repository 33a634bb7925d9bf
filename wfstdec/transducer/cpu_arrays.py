"""Arrays of the CPU searches, predictor rows, and the joiner.

A text is a node of a tree, identified by its parent and its last token: two hypotheses
have the same text if and only if their nodes are equal. A trace is a node of another
tree: a token, its frame and the frame after. A text with several alignments has several
traces. Both trees begin with a root per utterance, the empty text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.jit.records import longer, record
from wfstdec.transducer.beam import LEAST_ROWS, Beam, Source
from wfstdec.transducer.model import leaves, tree_map
from wfstdec.transducer.pricing import NO_ROWS, Pricer, in_floats, normalized

NONE = -1
"""No node, no slot, no token: the blank."""


HYPOTHESIS = record("f8 score", "i8 frame run text trace")
"""Score in nats, -inf if dead; the next frame; tokens since the last frame advance; its
nodes in the trees of texts and of traces."""
TEXT = record("i8 parent token depth slot")
"""Parent, -1 of a root; last token; number of tokens; slot of the predictor's output,
-1 without one."""
TRACE = record("i8 parent", "i4 token frame after", align=True)
SPAN = record("i8 first come at", "? is_ended", align=True)
"""An utterance's index of the first kept frame; number of frames so far; last frame
at which hypotheses may be open, -1 for none; whether the utterance is complete."""
CANDIDATE = record("f8 score merged total", "i8 label frame text best")
"""`text` is a node, or below -1 a new text; for the first of equal ones `total` is
their sum and `best` the best of them."""


class Store(NamedTuple):
    """Data of the kernels of ALSD++ and AES++: K hypotheses of B utterances."""

    width: int  # K
    hyps: np.ndarray  # HYPOTHESIS [B * K]
    span: np.ndarray  # SPAN [B]
    texts: np.ndarray  # TEXT [N], parents precede their children
    traces: np.ndarray  # TRACE [N], likewise
    table: np.ndarray  # int64 [2^n], hash table of texts, -1 where free
    used: np.ndarray  # int64 [2], number of texts and traces
    rows: np.ndarray  # int64 [B * K], the open hypotheses
    candidates: np.ndarray  # CANDIDATE [K * W], of an utterance
    slots: np.ndarray  # int64 [2^n], hash table of candidates
    kept: np.ndarray  # HYPOTHESIS [K], next ones of an utterance


def store_of(beam: Beam, source: Source, room: int, wide: int) -> Store:
    """Lay out a beam: `room` more nodes, `wide` candidates of each hypothesis."""
    num, width = beam.score.shape
    hyps, span = np.zeros(num * width, HYPOTHESIS), np.zeros(num, SPAN)
    for name in ("score", "frame", "run"):
        hyps[name] = as_array(getattr(beam, name)).ravel()
    for name in ("first", "come", "is_ended"):
        span[name] = as_array(getattr(source, name))
    # Empty texts first, also in free places.
    size = num + int(beam.length.sum()) + room
    texts, traces = np.zeros(size, TEXT), np.zeros(size, TRACE)
    for name in ("parent", "token", "slot"):
        texts[name] = NONE
    candidates = np.zeros(width * wide, CANDIDATE)
    return Store(
        *(width, hyps, span, texts, traces),
        table=np.full(_table_size(2 * size), NONE),
        used=np.full(2, num),
        rows=np.empty(num * width, np.int64),
        candidates=candidates,
        slots=np.full(_table_size(len(candidates)), NONE),
        kept=np.zeros(width, HYPOTHESIS),
    )


def _table_size(count: int) -> int:
    return 1 << max((2 * count - 1).bit_length(), 2)


class JoinerLogprobs(NamedTuple):
    """Joiner outputs for N rows; absent parts have no rows; dtype T."""

    logprobs: np.ndarray  # T [N, V + 1]
    spoke: np.ndarray  # T [N], logsumexp of the tokens, if blanks are scored
    gains: np.ndarray  # float32 [N, V + 1], of late fusion
    lasts: np.ndarray  # T [N, D], of durations
    # T [N, E], of the durations that a blank may have, normalised again
    blank_lasts: np.ndarray
    weights: np.ndarray  # T [4], L of scored blanks, token insertion, 1 + L, -inf


class Steps(NamedTuple):
    """Symbols that may be taken, and their frames."""

    blank: np.ndarray  # int64 [1], the blank's column
    of_token: np.ndarray  # int64 [D], frames by the position of a duration
    of_blank: np.ndarray  # int64 [E]


class Choices(NamedTuple):
    """W symbols for each of N hypotheses; the blank's come first."""

    gain: np.ndarray  # float64 [N, W], -inf without a symbol
    label: np.ndarray  # int64 [N, W], a token, or -1 for the blank
    step: np.ndarray  # int64 [N, W], frames
    value: np.ndarray  # float64 [W], scratch
    order: np.ndarray  # int64 [W, 2], scratch


def as_array(part: Tensor) -> np.ndarray:
    """Return a tensor's numbers in the layout that kernels are compiled for."""
    return np.ascontiguousarray(part.numpy())


_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Rows:
    """Predictor outputs and states of fusion, with capacity for `size` rows."""

    def __init__(self, joiner: Joiner, beam: Beam, at: np.ndarray, size: int) -> None:
        def widened(part: Tensor) -> Tensor:
            wide = part.new_empty(size, *part.shape[1:])
            wide[: len(at)] = part[torch.from_numpy(at)]
            return wide

        self._joiner = joiner
        self._g, self._state = tree_map(widened, (beam.g, beam.state))
        self._parts = [self._g, *leaves(self._state)]
        self._numbers = [_numbers(part) for part in self._parts]
        self._fusion = [longer(as_array(one)[at], size) for one in beam.fusion]

    def g_at(self, at: np.ndarray) -> Tensor:
        """Return the outputs at int64 [M]."""
        return self._taken(0, at)

    def states_at(self, at: np.ndarray) -> list[np.ndarray]:
        """Return the states of fusion."""
        return [states[at] for states in self._fusion]

    def fields(self, at: np.ndarray) -> dict[str, Any]:
        """Return the rows as fields of a beam."""
        fusion = tuple(map(torch.from_numpy, self.states_at(at)))
        return {"g": self.g_at(at), "state": self._state_at(at), "fusion": fusion}

    def advance(
        self,
        sources: np.ndarray,
        labels: np.ndarray,
        to: np.ndarray | slice,
        num: int,
        *,
        predict: bool = True,
    ) -> None:
        """Fill `num` rows `to` by one label from `sources`."""
        # Without `predict` only the models of fusion are queried.
        if not num:
            return
        fusion = self._joiner.fusion
        _, after = fusion.step(self.states_at(sources[:num]), labels[:num])
        for old, new in zip(self._fusion, after, strict=True):
            old[to] = new
        if predict:
            # With fewer rows, products may be rounded differently.
            padded = max(num, LEAST_ROWS)
            sources[num:padded], labels[num:padded] = sources[0], labels[0]
            state = self._state_at(sources[:padded])
            found = self._joiner.predict(labels[:padded], state)
            parts = zip(self._parts, self._numbers, leaves(found), strict=True)
            for kept, numbers, new in parts:
                numbers[to] = _numbers(new.to(kept.dtype))[:num]

    def _state_at(self, at: np.ndarray) -> Any:
        place = iter(range(1, len(self._parts)))
        return tree_map(lambda _: self._taken(next(place), at), self._state)

    def _taken(self, place: int, at: np.ndarray) -> Tensor:
        found = torch.from_numpy(self._numbers[place].take(at, 0))
        return found.view(self._parts[place].dtype)


def _numbers(part: Tensor) -> np.ndarray:
    return part.contiguous().view(_SAME_SIZE[part.element_size()]).numpy()


class Joiner:
    """The model, language models and boosts of a batch."""

    def __init__(self, pricer: Pricer) -> None:
        self._model, self.fusion, self._pricer = pricer.model, pricer.fusion, pricer
        steps = pricer.token_steps.numpy(), pricer.blank_steps.numpy()
        self.steps = Steps(np.array([pricer.blank]), *steps)
        self.num_labels = pricer.num_labels
        self.num_durations, self.longest = pricer.num_durations, pricer.longest
        self.zero = NONE if pricer.zero is None else pricer.zero

    def predict(self, labels: np.ndarray, state: Any) -> tuple[Tensor, Any]:
        """Step the predictor by one token; labels int64 [N] of V + 1."""
        tokens = labels - (labels > self._pricer.blank)
        return self._model.predict(torch.from_numpy(tokens), state)

    def prices(
        self, frames: Tensor, g: Tensor, states: list[np.ndarray] | None
    ) -> JoinerLogprobs:
        """Join rows."""
        pricer, blank_lasts = self._pricer, None
        logprobs, lasts = in_floats(self._model.join(frames, g))
        if lasts is not None:
            lasts = lasts.to(logprobs.dtype)
            blank_lasts = normalized(lasts[:, pricer.takes_time])
        numbers = logprobs.numpy()
        weight, paid = pricer.blank_weight, pricer.options.token_insertion
        weights = np.array([weight, paid, 1 + weight, -np.inf], numbers.dtype)
        none = NO_ROWS.astype(numbers.dtype)
        spoke = none.ravel()
        if weight:
            tokens = logprobs.masked_fill(pricer.is_blank, -torch.inf)
            spoke = torch.logsumexp(tokens, 1).numpy()
        gains = self.fusion.rows(states) if states is not None else None
        return JoinerLogprobs(
            logprobs=np.ascontiguousarray(numbers),
            spoke=spoke,
            gains=NO_ROWS if gains is None else gains,
            lasts=none if lasts is None else np.ascontiguousarray(lasts.numpy()),
            blank_lasts=none if blank_lasts is None else blank_lasts.numpy(),
            weights=weights,
        )
