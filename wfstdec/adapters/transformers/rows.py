"""Rows of `generate` as texts: what a processor is given, and what it knows of them.

    texts = TextRows(neutral, eos)
    ids = texts.tokens(input_ids)                 # int64 [N, U], behind the prompt
    before = texts.parents(ids)                   # kept of each row's text less a token
    state = texts.walked(automaton, ids[r])       # where nothing was
    texts.keep(ids, found)                        # for the next call

`generate` reorders, repeats and drops rows between two calls and tells nobody. So what
is kept is found again by the tokens themselves, and it is a function of them alone: a
row that was never seen is walked from its prompt on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from wfstdec.errors import OptionError, ShapeError
from wfstdec.lm import kernels
from wfstdec.lm.automaton import Automaton

_Found = TypeVar("_Found")


class TextRows(Generic[_Found]):
    """Texts of the rows of one `generate`, from a prompt on.

    Args:
        neutral: Tokens that say nothing: no model steps on them.
        eos: Tokens that end a text.
        begin_index: How many tokens the prompt has.

    Attributes:
        width: Rows of an utterance, where `keep` is told.
    """

    def __init__(
        self, neutral: Collection[int], eos: Sequence[int], begin_index: int
    ) -> None:
        self.neutral = np.array(sorted({*neutral} - {*eos}), np.int64)
        self.eos = np.array(sorted(eos), np.int64)
        self._silent = np.union1d(self.neutral, self.eos)
        self._columns: dict[int, np.ndarray] = {}
        self.width = 0
        self.begin(begin_index)

    def begin(self, begin_index: int) -> None:
        """Begin another text: the prompt has so many tokens, nothing is known."""
        if not 0 <= begin_index == int(begin_index):
            raise OptionError(f"begin_index={begin_index!r}, expected 0 or more")
        self.begin_index = int(begin_index)
        self._keys: list[bytes] = []
        self._own: list[_Found] = []
        self._found: list[dict[bytes, _Found]] = []

    def tokens(self, input_ids: Any) -> np.ndarray:
        """The rows behind the prompt, int64 [N, U].

        Raises:
            ShapeError: They are not rows, or shorter than the prompt.
        """
        ids = as_array(input_ids, np.int64)
        if ids.ndim != 2 or ids.shape[1] < self.begin_index:
            raise ShapeError(
                f"input_ids are {ids.shape}, expected [N, U] with U of "
                f"begin_index={self.begin_index} or more"
            )
        return np.ascontiguousarray(ids[:, self.begin_index :])

    def parents(self, ids: np.ndarray) -> list[_Found | None]:
        """Look up the state of each row's text before its last token, or None.

        That of the same row counts first, then those of its utterance: with equal
        texts in two utterances nothing else would tell them apart.
        """
        found: list[_Found | None] = []
        for i, row in enumerate(ids):
            key = row[:-1].tobytes()
            group = i // self.width if self.width else 0
            known = self._found[group] if group < len(self._found) else {}
            if not len(row) or len(self._keys) != len(ids):
                found.append(None)
            elif self._keys[i] == key:
                found.append(self._own[i])
            else:
                found.append(known.get(key))
        return found

    def keep(self, ids: np.ndarray, found: list[_Found], width: int) -> None:
        """Keep what was found of each row; `width` rows are of one utterance."""
        self.width, self._own = width, found
        self._keys = [row.tobytes() for row in ids]
        self._found = [{} for _ in range(-(-len(ids) // width))]
        for i, (key, one) in enumerate(zip(self._keys, found, strict=True)):
            self._found[i // width].setdefault(key, one)

    def said(self, row: np.ndarray) -> np.ndarray:
        """The tokens of a row that models step on, int32."""
        return row[~np.isin(row, self._silent)].astype(np.int32)

    def is_silent(self, last: np.ndarray) -> np.ndarray:
        """Tell the tokens that no model steps on, bool [N]."""
        return np.isin(last, self._silent)

    def silent_columns(self, num_labels: int, size: int) -> np.ndarray:
        """Tokens that say nothing, of `size`; those behind `num_labels` do not."""
        if size not in self._columns:
            unnamed = np.arange(min(num_labels, size), size)
            inside = self._silent[self._silent < size]
            self._columns[size] = np.union1d(inside, unnamed)
        return self._columns[size]

    def ends(self, size: int) -> np.ndarray:
        """The tokens that end a text; all are among `size` outputs.

        Raises:
            ShapeError: One is not.
        """
        if len(self.eos) and self.eos[-1] >= size:
            raise ShapeError(
                f"scores have V={size} columns, eos is {self.eos[-1]}, expected below"
            )
        return self.eos


def as_array(tensor: Any, dtype: Any) -> np.ndarray:
    """The numbers of a tensor, of torch or NumPy, on the host."""
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
        tensor = tensor.float() if np.dtype(dtype).kind == "f" else tensor
        tensor = tensor.numpy()
    return np.asarray(tensor, dtype)


def walk(automaton: Automaton, state: int, labels: np.ndarray) -> int:
    """The state after some labels."""
    costs = np.empty(len(labels), np.float32)
    return int(kernels.walk(automaton, 0, np.int32(state), labels, costs))


def step_all(
    automaton: Automaton, states: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Costs and next states of one label each, float32 [N] and int32 [N]."""
    labels = np.minimum(labels, np.iinfo(np.int32).max).astype(np.int32)
    costs, nextstates = np.empty(len(states), np.float32), np.empty_like(states)
    models = np.zeros_like(states)
    kernels.steps(automaton, models, states, labels, costs, nextstates)
    return costs, nextstates


def with_room(scores: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Scores, and a place to write others.

    Returns:
        A copy as what scores are, or None; the scores, float32 [N, V] on the host; and
        what the copy has, to be written. Without a copy both are zeros, for gains to be
        added by `with_gains`: nothing of what is on a device is fetched.
    """
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
