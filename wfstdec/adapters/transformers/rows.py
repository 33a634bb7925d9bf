"""Rows of `generate` as texts: a processor's input, and the states of its models.

`generate` reorders, repeats and drops rows between two calls without notice. States are
therefore found again by the tokens, of which they are a function; the state of a row
that was never seen is computed from its prompt on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from wfstdec.errors import OptionError, ShapeError
from wfstdec.lm import kernels
from wfstdec.lm.automaton import BackoffModel

_State = TypeVar("_State")


class TextRows(Generic[_State]):
    """Texts of the rows of one `generate`, after a prompt of `begin_index` tokens."""

    # No model steps on `neutral` tokens; `eos` end a text. `width` is the number of
    # rows of an utterance, from `keep`.

    def __init__(
        self, neutral: Collection[int], eos: Sequence[int], begin_index: int
    ) -> None:
        self.neutral = np.array(sorted({*neutral} - {*eos}), np.int64)
        self.eos = np.array(sorted(eos), np.int64)
        self._unmodelled = np.union1d(self.neutral, self.eos)
        self._columns: dict[int, np.ndarray] = {}
        self.width = 0
        self.begin(begin_index)

    def begin(self, begin_index: int) -> None:
        """Begin another text: nothing is known of it."""
        if not 0 <= begin_index == int(begin_index):
            raise OptionError(f"begin_index={begin_index!r}, expected 0 or more")
        self.begin_index = int(begin_index)
        self._keys: list[bytes] = []
        self._own: list[_State] = []
        self._known: list[dict[bytes, _State]] = []

    def tokens(self, input_ids: Any) -> np.ndarray:
        """The rows after the prompt, int64 [N, U]."""
        if hasattr(input_ids, "detach"):
            input_ids = input_ids.detach().cpu()
        ids = np.asarray(input_ids, np.int64)
        if ids.ndim != 2 or ids.shape[1] < self.begin_index:
            raise ShapeError(
                f"{ids.shape} tokens, expected begin_index={self.begin_index} or more"
            )
        return np.ascontiguousarray(ids[:, self.begin_index :])

    def parents(self, ids: np.ndarray) -> list[_State | None]:
        """The state of each row's text before its last token, or None."""
        # That of the same row comes first, then those of its utterance: equal texts in
        # two utterances cannot be distinguished otherwise.
        states: list[_State | None] = []
        for i, row in enumerate(ids):
            key = row[:-1].tobytes()
            group = i // self.width if self.width else 0
            known = self._known[group] if group < len(self._known) else {}
            if not len(row) or len(self._keys) != len(ids):
                states.append(None)
            elif self._keys[i] == key:
                states.append(self._own[i])
            else:
                states.append(known.get(key))
        return states

    def keep(self, ids: np.ndarray, states: list[_State], width: int) -> None:
        """Keep the state of each row; `width` rows are of one utterance."""
        self.width, self._own = width, states
        self._keys = [row.tobytes() for row in ids]
        self._known = [{} for _ in range(-(-len(ids) // width))]
        for i, (key, state) in enumerate(zip(self._keys, states, strict=True)):
            self._known[i // width].setdefault(key, state)

    def labels_of(self, row: np.ndarray) -> np.ndarray:
        """The tokens of a row that models step on, int32."""
        return row[~np.isin(row, self._unmodelled)].astype(np.int32)

    def is_silent(self, last: np.ndarray) -> np.ndarray:
        """Test for tokens that no model steps on, bool [N]."""
        return np.isin(last, self._unmodelled)

    def silent_columns(self, num_labels: int, size: int) -> np.ndarray:
        """Tokens of `size` that no model steps on; also those from `num_labels` on."""
        if size not in self._columns:
            unnamed = np.arange(min(num_labels, size), size)
            inside = self._unmodelled[self._unmodelled < size]
            self._columns[size] = np.union1d(inside, unnamed)
        return self._columns[size]

    def ends(self, size: int) -> np.ndarray:
        """The tokens that end a text, checked against `size` outputs."""
        if len(self.eos) and self.eos[-1] >= size:
            raise ShapeError(
                f"scores have V={size} columns, eos is {self.eos[-1]}, expected below"
            )
        return self.eos


def walk(model: BackoffModel, labels: np.ndarray) -> int:
    """The state after some labels, int32."""
    costs, start = np.empty(len(labels), np.float32), np.int32(model.start)
    return int(kernels.walk(model.automaton, 0, start, labels, costs))


def with_room(scores: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """A copy of scores, or None; the scores, float32 [N, V]; and the copy's numbers."""
    # Without a copy both arrays are zeros, for gains to be added by `with_gains`:
    # nothing is fetched from a device.
    is_tensor = hasattr(scores, "detach")
    on_host = is_tensor and scores.device.type == "cpu"
    if on_host and str(scores.dtype) == "torch.float32":
        own = scores.detach().contiguous()
        out = own.clone()
        return out, own.numpy(), out.numpy()
    if not is_tensor and scores.dtype == np.float32:
        own = np.ascontiguousarray(scores)
        out = own.copy()
        return out, own, out
    shape = tuple(int(size) for size in scores.shape)
    return None, np.zeros(shape, np.float32), np.zeros(shape, np.float32)


def with_gains(scores: Any, gains: np.ndarray) -> Any:
    """Scores and gains added up, as what scores are."""
    if hasattr(scores, "new_tensor"):
        return scores + scores.new_tensor(gains)
    return scores + gains.astype(scores.dtype)
