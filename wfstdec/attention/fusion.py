"""Language models and boosts of a batch, as gains on rows of log-probs.

    fusion = Fusion(lms, lists, options, silent, eos)
    at = fusion.start(num_rows)                       # states of all terms
    fused = fusion.fused(logprobs, at, utterance)     # what a beam is chosen by
    at = fusion.stepped(at, labels, utterance)

In NumPy arrays, by the kernels of `lm` and `boost`; the model may be on any device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from wfstdec.attention.options import AttentionOptions
from wfstdec.boost.phrases import PhraseBoosts, nothing_said
from wfstdec.boost.score_rows import CLOSED, CLOSING, OPEN, RowStates, credit_rows
from wfstdec.lm import kernels
from wfstdec.lm.ngram import NgramLM


class States(NamedTuple):
    """States of all terms, in rows.

    Attributes:
        lm: int32 [M, N], of each language model.
        phrase: int32 [N], of the row's list.
        is_closed: bool [N], the phrases of the row are over.
        will_close: bool [N], they are for all that goes on from it.
        ends_phrase: bool [N], the last token ended a phrase.
    """

    lm: np.ndarray
    phrase: np.ndarray
    is_closed: np.ndarray
    will_close: np.ndarray
    ends_phrase: np.ndarray

    def taken(self, rows: np.ndarray) -> States:
        """The states of these rows, int64 [N]."""
        lm, *others = self
        return States(lm[:, rows], *(one[rows] for one in others))


class Fusion:
    """The terms of a batch of utterances.

    Args:
        lms: Language models and their weights, scaled.
        lists: The phrases of each utterance.
        options: Of the search.
        silent: Tokens that say nothing, the end among them, sorted.
        eos: The end.
    """

    def __init__(
        self,
        lms: Sequence[tuple[NgramLM, float]],
        lists: Sequence[PhraseBoosts | None],
        options: AttentionOptions,
        silent: np.ndarray,
        eos: int,
    ) -> None:
        self.lms = [(lm, weight) for lm, weight in lms if weight]
        self.options, self.silent, self.eos = options, silent, eos
        none = nothing_said()
        different = {id(one): one for one in lists if one is not None}
        self.lists = [none, *different.values()]
        numbers = {key: i + 1 for i, key in enumerate(different)}
        self._list_of = np.array([numbers.get(id(one), 0) for one in lists], np.int64)
        is_given = options.end_rule == "compensated" and bool(different)
        self._end_score = np.float32(options.final_eos_score if is_given else -1)

    def start(self, num: int) -> States:
        """The states before `num` utterances, a row each."""
        lm = [np.full(num, lm.start, np.int32) for lm, _ in self.lms]
        starts = np.array([one.start for one in self.lists], np.int32)
        no = np.zeros(num, bool)
        phrase = starts[self._list_of[:num]]
        return States(np.array(lm).reshape(-1, num), phrase, no, no, no)

    def fused(
        self, logprobs: np.ndarray, at: States, utterance: np.ndarray
    ) -> tuple[np.ndarray, States]:
        """Log-probs with all that is added but CTC, and the states with `will_close`.

        Args:
            logprobs: float32 [N, V].
            at: Of N rows.
            utterance: int64 [N], whose rows they are.

        Returns:
            float32 [N, V], in place of what may be the same array; and the states.
        """
        fused = logprobs
        # The model's part beside CTC; what it thinks impossible stays so.
        if self.options.ctc_weight:
            part = np.float32(1 - self.options.ctc_weight)
            possible = logprobs > -np.inf
            fused = np.where(possible, np.where(possible, logprobs, 0) * part, logprobs)
        if self.options.token_insertion:
            paid = fused - np.float32(self.options.token_insertion)
            paid[:, self.silent] = fused[:, self.silent]
            fused = paid
        for (lm, weight), states in zip(self.lms, at.lm, strict=True):
            fused = fused + self._lm_gains(lm, weight, states, logprobs.shape[1])
        if len(self.lists) == 1:
            return fused, at
        if self.options.end_rule == "closed":
            prefers = logprobs[:, self.eos] >= logprobs.max(1)
            at = at._replace(will_close=at.is_closed | prefers)
        return self._credited(fused, at, utterance), at

    def _lm_gains(
        self, lm: NgramLM, weight: float, states: np.ndarray, size: int
    ) -> np.ndarray:
        """Gains by a language model, float32 [N, size]; `inf` is impossible always."""
        costs = np.empty((len(states), size), np.float32)
        nextstates = np.empty((len(states), size), np.int32)
        models = np.zeros_like(states)
        kernels.rows(lm.automaton, models, states, costs, nextstates)
        costs[:, self.silent] = 0
        costs[:, self.eos] = lm.automaton.final_cost[states]
        gains = costs * np.float32(-weight)
        if weight < 0:
            gains[np.isposinf(costs)] = -np.inf
        return gains

    def _credited(
        self, scores: np.ndarray, at: States, utterance: np.ndarray
    ) -> np.ndarray:
        out = scores.copy()
        modes = np.where(at.will_close, CLOSING, OPEN)
        modes = np.where(at.is_closed, CLOSED, modes).astype(np.int8)
        ends = np.array([self.eos])
        for boosts, rows in self._rows_of_lists(utterance):
            states = RowStates(
                row=rows,
                state=at.phrase[rows],
                mode=modes[rows],
                ends_phrase=at.ends_phrase[rows],
                silent=self.silent,
                ends=ends,
            )
            given = boosts.automaton, states, scores, out
            credit_rows(*given, False, self._end_score)
        return out

    def _rows_of_lists(
        self, utterance: np.ndarray, counts: np.ndarray | bool = True
    ) -> Iterator[tuple[PhraseBoosts, np.ndarray]]:
        """Yield each list, and which rows have it, of those that count."""
        which = np.where(counts, self._list_of[utterance], 0)
        for number, boosts in enumerate(self.lists):
            rows = np.flatnonzero(which == number)
            if number and len(rows):
                yield boosts, rows

    def stepped(self, at: States, labels: np.ndarray, utterance: np.ndarray) -> States:
        """The states after one token each, int64 [N]."""
        labels = labels.astype(np.int32)
        is_silent = np.isin(labels, self.silent)
        lm = at.lm.copy()
        for (model, _), states in zip(self.lms, lm, strict=True):
            _, after = _steps(model, states, labels)
            states[:] = np.where(is_silent, states, after)
        phrase, ended = at.phrase.copy(), at.ends_phrase.copy()
        for boosts, rows in self._rows_of_lists(utterance, ~is_silent):
            paid = boosts.automaton.final_cost
            before = phrase[rows]
            costs, after = _steps(boosts, before, labels[rows])
            phrase[rows] = after
            # What a step pays beyond the change of credit is a phrase that is complete.
            ended[rows] = paid[before] - paid[after] - costs > 0
        closed = at.is_closed | at.will_close
        return States(lm, phrase, closed, np.zeros_like(closed), ended)

    def paid_ahead(self, at: States, utterance: np.ndarray) -> np.ndarray:
        """Credit of phrases that are half said, float64 [N]."""
        found = np.zeros(len(at.phrase))
        for boosts, rows in self._rows_of_lists(utterance, ~at.is_closed):
            found[rows] = boosts.automaton.final_cost[at.phrase[rows]]
        return found

    def margin(self, utterance: int) -> float:
        """Margin that a text may still gain: the dearest phrase, and at the end.

        Infinite where language models may favour tokens.
        """
        if any(weight < 0 for _, weight in self.lms):
            return np.inf
        a = self.lists[self._list_of[utterance]].automaton
        if not len(a.arc_cost):
            dearest = most = 0.0
        else:  # of the ends of phrases, and of steps
            source = np.repeat(
                np.arange(len(a.final_cost)), np.diff(a.state_arc_splits)
            )
            gains = -a.arc_cost
            dearest = max(0.0, float((a.final_cost[source] + gains).max()))
            most = max(0.0, float(gains.max()))
        if self.options.end_rule == "compensated" and self._end_score >= 0:
            dearest += most + float(self._end_score)
        return dearest


def _steps(
    model: NgramLM | PhraseBoosts, states: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    costs, after = np.empty(len(states), np.float32), np.empty(len(states), np.int32)
    models = np.zeros(len(states), np.int32)
    kernels.steps(
        model.automaton, models, np.ascontiguousarray(states), labels, costs, after
    )
    return costs, after
