"""Language models as users bring them, for tests of searches that ask them."""

import zlib

import numpy as np

from wfstdec.lm.kernels import UNKNOWN


class Wrapped:
    """An `NgramLM` asked word by word, noted in `asked`; states are its own."""

    least_cost = -100.0

    def __init__(self, lm):
        names = lm.labels if isinstance(lm.labels, tuple) else lm.labels.names
        self._lm, self._ids = lm, {name: i for i, name in enumerate(names)}
        self._ids["<unk>"] = UNKNOWN
        self.asked = []

    def start(self):
        return self._lm.start

    def empty(self):
        return int(np.flatnonzero(self._lm.automaton.backoff_state < 0)[0])

    def score(self, state, word):
        self.asked.append((state, word))
        label = self._ids.get(word, UNKNOWN)
        return self._lm.step(state, label)

    def finish(self, state):
        self.asked.append((state, "</s>"))
        return self._lm.final(state)


class Batched(Wrapped):
    """Model asked many at a time, with states whose order says nothing."""

    def __init__(self, lm):
        super().__init__(lm)
        self.sizes = []

    def start(self):
        return f"<{super().start()}>"

    def empty(self):
        return f"<{super().empty()}>"

    def score(self, state, word):
        raise AssertionError("score_batch takes its place")

    def score_batch(self, states, words):
        self.sizes.append(len(states))
        pairs = zip(states, words, strict=True)
        found = [super(Batched, self).score(int(s[1:-1]), word) for s, word in pairs]
        return [(cost, f"<{after}>") for cost, after in found]

    def finish_batch(self, states):
        self.sizes.append(len(states))
        return [super(Batched, self).finish(int(state[1:-1])) for state in states]


class WholeText:
    """Costs that depend on the whole text so far; some words are impossible."""

    def __init__(self, seed=0):
        self._seed = seed

    def start(self):
        return ()

    def score(self, state, word):
        cost = self._number(*state, word)
        return (np.inf if cost > 4.8 else cost), (*state, word)

    def finish(self, state):
        return self._number(*state, "</s>")

    def _number(self, *texts):
        found = zlib.crc32(" ".join((str(self._seed), *texts)).encode())
        return found % 1000 / 200

    def total(self, words):
        state, costs = self.start(), []
        for word in words:
            cost, state = self.score(state, word)
            costs.append(cost)
        return sum(costs) + self.finish(state)


class ById(WholeText):
    """Model with states that only identity tells apart."""

    class State:
        def __init__(self, words):
            self.words = words

    def start(self):
        return self.State(())

    def score(self, state, word):
        cost, words = super().score(state.words, word)
        return cost, self.State(words)

    def finish(self, state):
        return super().finish(state.words)
