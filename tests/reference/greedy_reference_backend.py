"""The greedy search in plain Python: the specification for every backend."""

from __future__ import annotations

import math

import lm_reference
import numpy as np
from pricing_reference import price_frame

from wfstdec.greedy.decoder import NO_TOKEN, CpuBackend, CpuSearch
from wfstdec.jit.handles import Handle
from wfstdec.jit.records import longer
from wfstdec.search.threads import HostBackend

F = np.float32


class ReferenceSearch(CpuSearch):
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def advance(self, logprobs):
        utterance = self.utterance.value
        tokens = longer(utterance.tokens, len(utterance.tokens) + len(logprobs))
        self.utterance = Handle(utterance._replace(tokens=tokens))
        for row in logprobs:
            if utterance.progress["died_at_frame"][0] >= 0:
                return
            self._frame(row)

    def _frame(self, logprobs):
        now, blank = (
            self.utterance.value.progress.view(np.recarray)[0],
            self.search.value.blank,
        )
        unscaled, costs = price_frame(logprobs, self.search.value.pricing, blank)
        best = min(range(len(unscaled)), key=lambda v: (unscaled[v], v))
        # The label by acoustics alone, and whether a token begins.
        held = best == now.last and costs[now.label] < np.inf
        begins = best not in (blank, now.label) and not held
        label = now.label if best != blank and not begins else best
        if begins and costs[best] < np.inf:
            label = self._choose(best, costs)
        if label == NO_TOKEN or not costs[label] < np.inf:
            now.died_at_frame = now.frames
            return
        now.acoustic += float(unscaled[label])
        now.cost += float(costs[label])
        if begins:
            self.utterance.value.tokens[now.tokens, :2] = label, now.frames
            now.tokens += 1
        if label != blank:
            self.utterance.value.tokens[now.tokens - 1, 2] = now.frames + 1
        now.label, now.last = label, best
        now.frames += 1

    def _choose(self, best, costs):
        """The token that begins, -1 where none can; the models step by it."""
        search, now = (
            self.search.value,
            self.utterance.value.progress.view(np.recarray)[0],
        )
        least, chosen, after, paid = F(np.inf), NO_TOKEN, (0, 0), F(0)
        for v in [best, *range(len(costs))]:
            if v in (search.blank, now.label) or not costs[v] < np.inf:
                continue
            lm_cost, lm_state = lm_reference.step(search.lm, 0, now.lm_state, v)
            if not lm_cost < math.inf:
                continue
            phrase = lm_reference.step(search.phrases, 0, now.boost_state, v)
            extra = F(F(search.lm_scale * lm_cost) + phrase[0])
            cost = F(extra + costs[v])
            if cost < least:
                least, chosen, paid = cost, v, extra
                after = lm_state, phrase[1]
        if chosen != NO_TOKEN:
            now.lm_state, now.boost_state = after
            now.cost += float(paid) + search.token_insertion
        return chosen


class ReferenceBackend(CpuBackend):
    search, decode_group = ReferenceSearch, HostBackend.decode_group
    checks_numbers = False
