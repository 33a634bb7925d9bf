"""N-gram language models in `generate`, next to a model of Transformers.

lm = NgramLogitsProcessor("tokens.arpa", processor, weight=0.3)
model.generate(**inputs, num_beams=5, logits_processor=[lm])
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from wfstdec.adapters.transformers.rows import TextRows, walk, with_gains, with_room
from wfstdec.errors import OptionError
from wfstdec.lm import kernels
from wfstdec.lm.loading import AnyLM, lm_over, read_lm
from wfstdec.text.tokens import ends_of, neutral_of, token_table_of


class NgramLogitsProcessor:
    """Adds `-weight * cost` of an n-gram model over tokens to every score.

        total of a text = model + weight * (ln P(its tokens) + ln P(</s>))

    Costs are by true back-off, `</s>` at `eos`. Special tokens and timestamps cost
    nothing and leave the history as it is. Rows may be reordered between calls.

    Args:
        lm: An ARPA file or an `NgramLM` over the names of the tokens
            (`token_table_of`).
        tokenizer: Of Transformers, or a processor that has one.
        weight: Below 0 it subtracts a model of the training text; impossible tokens
            stay impossible.
        eos: The token or tokens that end a text; None takes the tokenizer's.
        neutral: Tokens that the model skips; None takes the tokenizer's (`neutral_of`).
        begin_index: Tokens of a prompt that is no part of the text. Special tokens
            need not be counted, and Whisper's `generate` sets it by itself.
        unk_cost: As of `NgramLM.from_arpa`.

    Raises:
        InputError: One of its subclasses, for arguments that do not fit.
    """

    def __init__(
        self,
        lm: AnyLM,
        tokenizer: Any,
        weight: float = 1.0,
        *,
        eos: int | Iterable[int] | None = None,
        neutral: Collection[int] | None = None,
        begin_index: int = 0,
        unk_cost: float | None = None,
    ) -> None:
        if not abs(weight) < float("inf"):
            raise OptionError(f"weight={weight!r}, expected a number")
        self.weight = float(weight)
        self.lm = lm_over(read_lm(lm), token_table_of(tokenizer), unk_cost)
        marks = neutral_of(tokenizer) if neutral is None else neutral
        ends = ends_of(eos, tokenizer)
        self._rows: TextRows[int] = TextRows(marks, ends, begin_index)
        self._kept: tuple[np.ndarray, np.ndarray] | None = None

    def __repr__(self) -> str:
        """Show the model and its weight."""
        return f"NgramLogitsProcessor({self.lm!r}, weight={self.weight!r})"

    def set_begin_index(self, begin_index: int) -> None:
        """Begin a text after a prompt; Whisper's `generate` calls it."""
        self._rows.begin(begin_index)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Scores [N, V] with the model's; tokens so far are [N, U]."""
        rows = self._rows
        ids = rows.tokens(input_ids)
        states = self._states(ids)
        rows.keep(ids, states.tolist(), len(ids) or 1)
        size = int(scores.shape[1])
        costs, nextstates = self._buffers(len(ids), size)
        models = np.zeros_like(states)
        kernels.rows(self.lm.automaton, models, states, costs, nextstates)
        costs[:, rows.silent_columns(self.lm.num_labels - 1, size)] = 0
        costs[:, rows.ends(size)] = self.lm.automaton.final_cost[states][:, None]
        gains = weighted_gains(costs, self.weight)
        out, _, written = with_room(scores)
        written += gains
        return out if out is not None else with_gains(scores, written)

    def _buffers(self, num: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Arrays [num, size] for costs and next states, kept from call to call."""
        # New ones would be new pages each time: 5 of 12 ms at 40 rows of 51,865.
        if self._kept is None or self._kept[0].shape != (num, size):
            shape = num, size
            self._kept = np.empty(shape, np.float32), np.empty(shape, np.int32)
        return self._kept

    def _states(self, ids: np.ndarray) -> np.ndarray:
        """The states after rows, int32 [N]; one step on from those that are known."""
        rows = self._rows
        before = [
            walk(self.lm, rows.labels_of(row[:-1])) if known is None else known
            for row, known in zip(ids, rows.parents(ids), strict=True)
        ]
        states = np.array(before, np.int32)
        if not ids.shape[1]:
            return states
        _, after = self.lm.step_batch(states, ids[:, -1])
        return np.where(rows.is_silent(ids[:, -1]), states, after)


def weighted_gains(costs: np.ndarray, weight: float) -> np.ndarray:
    """Costs times a weight, off the scores, in place; `inf` is impossible always."""
    if weight == 0:
        costs[:] = 0
        return costs
    impossible = np.isposinf(costs) if weight < 0 else None
    costs *= np.float32(-weight)
    if impossible is not None:
        costs[impossible] = -np.inf
    return costs
