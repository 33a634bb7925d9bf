"""From what a search found to what the user gets: paths, and costs kept apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.lm import kernels
from wfstdec.lm.ngram import NgramLM
from wfstdec.search.costs import CostAccount, insertion_cost
from wfstdec.search.paths.token_path import NO_PRON, TokenPath
from wfstdec.search.paths.words import Counted
from wfstdec.transducer.beam import Beam
from wfstdec.transducer.fusion import Fusion
from wfstdec.transducer.options import TransducerOptions


class TransducerResult(NamedTuple):
    """The hypotheses of an utterance, best first; at least one."""

    paths: tuple[TokenPath, ...]


class TransducerAccount(NamedTuple):
    """Counts the costs of paths, as `TransducerOptions` says.

    Alignments are added up, and blanks may be weighed by language models: so the
    acoustic cost is what is left of the total.

    Attributes:
        options: Scales and penalties.
        lms: Language models and their weights.
    """

    options: TransducerOptions
    lms: Sequence[tuple[NgramLM, float]]

    def of(
        self, path: TokenPath, counted: Counted, boosts: CompiledBoosts
    ) -> CostAccount:
        """The account of a path."""
        options, tokens = self.options, path.token
        graph = sum(
            weight * _lm_cost(lm, tokens, path.reached_final) for lm, weight in self.lms
        )
        return CostAccount.of_total(
            options,
            total=path.search_cost,
            graph=float(graph),
            insertion=insertion_cost(options.token_insertion, len(tokens)),
            boost=boosts.cost((), tokens),
        )


def _lm_cost(lm: NgramLM, labels: np.ndarray, complete: bool) -> float:
    """The cost of some tokens, `</s>` where the end was accepted."""
    costs = np.empty(len(labels), np.float32)
    labels = np.ascontiguousarray(labels, np.int32)
    state = kernels.walk(lm.automaton, 0, lm.automaton.model_start[0], labels, costs)
    final = float(lm.automaton.final_cost[state]) if complete else 0.0
    return float(costs.sum(dtype=np.float64)) + final


def rows_of(beam: Beam, utterance: int, hypothesis: int) -> np.ndarray:
    """The tokens of a hypothesis as `TokenPath` has them, int32 [N, 4]."""
    count = int(beam.length[utterance, hypothesis])
    row = utterance * beam.score.shape[1] + hypothesis
    rows = np.full((count, 4), NO_PRON, np.int32)
    rows[:, :3] = beam.rows[row, :count].cpu().numpy()
    return rows


def path_of(
    rows: np.ndarray, total: float, complete: bool, num_frames: int
) -> TokenPath:
    """The path of a hypothesis that lived to the end."""
    return TokenPath(
        rows, NO_PRON, float("nan"), -total + 0.0, complete, num_frames, -1
    )


def dead_path(num_frames: int, frame: int) -> TokenPath:
    """The path where no hypothesis survived: nothing was said."""
    rows = np.zeros((0, 4), np.int32)
    cost = float("inf")
    return TokenPath(rows, NO_PRON, float("nan"), cost, False, num_frames, frame)


def finals(
    beam: Beam, fusion: Fusion, options: TransducerOptions
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores with the end, rank by rank: what is left to do after the last frame.

    Returns:
        Totals float64 [B, K], best first, the hypotheses in this order int64 [B, K],
        and whether each may end, bool [B, K]. Where none may end, all count without it.
    """
    ends = fusion.final(beam.fusion, beam.score.numel()).view(beam.score.shape)
    with_end = beam.score + ends
    may_end = with_end > -float("inf")
    total = torch.where(may_end.any(1, keepdim=True), with_end, beam.score)
    length = beam.before + beam.length + 1
    rank = total / length if options.length_norm else total
    order = torch.sort(rank, dim=1, descending=True, stable=True)[1]
    return total.gather(1, order), order, may_end.gather(1, order)
