"""Count the costs of paths of tokens by a language model over their words or tokens."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.lm.automaton import Automaton
from wfstdec.lm.null import NULL_AUTOMATON
from wfstdec.lm.on_demand import LazyLM, LmArrays, LmQueries
from wfstdec.lm.on_demand_table import UNKNOWN
from wfstdec.search.costs import CostAccount, Scales, insertion_cost
from wfstdec.search.paths.token_path import TokenPath
from wfstdec.search.paths.words import Counted


class LmAccount(NamedTuple):
    """Counts the costs of paths of tokens, by a language model over words or tokens.

    Where alignments were summed, what is left of the total is acoustic.

    Attributes:
        scales: Options that scale costs.
        automaton: The language model; `lm.null` without one.
        token_insertion: What each token costs.
        word_insertion: What each word costs; None where the model is over tokens.
    """

    scales: Scales
    automaton: Automaton | LazyLM
    token_insertion: float
    word_insertion: float | None = None

    def of(
        self, path: TokenPath, counted: Counted, boosts: CompiledBoosts
    ) -> CostAccount:
        """The account of a path."""
        labels = path.token
        insertion = insertion_cost(self.token_insertion, len(labels))
        if self.word_insertion is not None:
            # Word 0 is one that nobody listed, spelled by tokens.
            labels = np.array([word or UNKNOWN for word in counted.words], np.int32)
            insertion += insertion_cost(self.word_insertion, len(labels))
        costs = {
            "graph": self._lm_cost(path, labels, boosts) + counted.pron_cost,
            "insertion": insertion,
            "boost": boosts.cost(counted.words, path.token),
        }
        # Sums over alignments have no acoustic cost of their own: it is what is left.
        if math.isnan(path.acoustic):
            return CostAccount.of_total(self.scales, total=path.search_cost, **costs)
        return CostAccount.of_path(self.scales, acoustic=path.acoustic, **costs)

    def _lm_cost(
        self, path: TokenPath, labels: np.ndarray, boosts: CompiledBoosts
    ) -> float:
        """The model's cost of words or tokens, `</s>` where the end was accepted."""
        if self.automaton is NULL_AUTOMATON:
            return 0.0
        added = boosts.added.words if boosts.added is not None else ()
        with LmArrays(self.automaton, added) as lm:
            return LmQueries(lm).total(labels, complete=path.reached_final)
