"""Transducers that are tables over frames and prefixes: models, and oracles of them."""

import numpy as np
import torch


class TableTransducer:
    """Log-probs by utterance, frame and prefix, all random.

    Prefixes are numbered as heaps are: the child of i by token v is i * V + v + 1.
    After `longest` tokens nothing but the blank is possible. Frames are [T, 2]: the
    utterance and the frame.
    """

    def __init__(self, rng, num_tokens=2, durations=(), longest=3, **sizes):
        self.blank = sizes.get("blank", num_tokens)
        self.durations = tuple(durations)
        self.longest, self.num_tokens = longest, num_tokens
        self.tokens = [chr(ord("a") + v) for v in range(num_tokens)]
        self.num_utterances = sizes.get("num_utterances", 1)
        self.num_frames = sizes.get("num_frames", 3)
        self.dtype = sizes.get("dtype", torch.float64)
        nodes = sum(num_tokens**i for i in range(longest + 1))
        shape = self.num_utterances, self.num_frames, nodes
        temperature = sizes.get("temperature", 1.5)
        self.table = self._random(rng, (*shape, num_tokens + 1), temperature)
        inner = nodes - num_tokens**longest
        self.table[:, :, inner:] = -torch.inf
        self.table[:, :, inner:, self.blank] = 0.0
        if self.durations:
            self.lasts = self._random(rng, (*shape, len(self.durations)), 1.0)

    def _random(self, rng, shape, temperature):
        logits = torch.from_numpy(rng.normal(size=shape) * temperature)
        return torch.log_softmax(logits, -1).to(self.dtype)

    def frames(self, utterance=0, length=None):
        """Frames that the search takes for an utterance, float64 [T, 2]."""
        length = self.num_frames if length is None else length
        rows = [[utterance, t] for t in range(length)]
        return torch.tensor(rows, dtype=torch.float64).view(length, 2)

    def start(self, num):
        nodes = torch.zeros(num, dtype=torch.int64)
        return {"node": nodes}, nodes.double()[:, None]

    def predict(self, labels, state):
        assert ((labels >= 0) & (labels < self.num_tokens)).all()
        nodes = state["node"] * self.num_tokens + labels + 1
        nodes = nodes.clamp(max=self.table.shape[2] - 1)  # of what no search keeps
        return nodes.double()[:, None], {"node": nodes}

    def join(self, frames, g):
        at = frames.long()[:, 0], frames.long()[:, 1]
        node = g.long()[:, 0].clamp(max=self.table.shape[2] - 1)
        if not self.durations:
            return self.table[(*at, node)]
        return self.table[(*at, node)], self.lasts[(*at, node)]

    def joint(self, utterance=0):
        """The oracle's view of an utterance."""

        def at(t, prefix):
            node = 0
            for token in prefix:
                node = node * self.num_tokens + token + 1
            row = self.table[utterance, t, node].tolist()
            blank = row.pop(self.blank)
            if not self.durations:
                return row, blank, None
            return row, blank, self.lasts[utterance, t, node].tolist()

        return at


def random_transducer(rng, durations=None, **sizes):
    """A small one; RNN-T or TDT by chance."""
    num_tokens = int(rng.integers(1, 4))
    if durations is None:
        kinds = [(), (), (0, 1), (0, 1, 2), (1, 2), (2, 0, 1), (0, 1, 2, 4), (0, 3)]
        durations = kinds[rng.integers(len(kinds))]
    longest = 3 if num_tokens < 3 else 2
    num_frames = int(rng.integers(1, 4))
    blank = int(rng.integers(num_tokens + 1))
    sizes = {"num_frames": num_frames, "longest": longest, "blank": blank} | sizes
    return TableTransducer(np.random.default_rng(rng), num_tokens, durations, **sizes)


def transducer_of(rows, tokens="ab", durations=(), lasts=None):
    """A table by frame and prefix, the blank last; other prefixes have blanks alone."""
    longest = max(len(prefix) for row in rows for prefix in row) + 1
    sizes = {"num_frames": len(rows), "longest": longest}
    model = TableTransducer(
        np.random.default_rng(0), len(tokens), durations, blank=len(tokens), **sizes
    )
    model.tokens = list(tokens)
    model.table[:] = -torch.inf
    model.table[..., -1] = 0.0
    for t, row in enumerate(rows):
        for prefix, probs in row.items():
            model.table[0, t, node_of(prefix, tokens)] = torch.tensor(
                probs, dtype=torch.float64
            ).log()
    for t, row in enumerate(lasts or []):
        for prefix, probs in row.items():
            model.lasts[0, t, node_of(prefix, tokens)] = torch.tensor(
                probs, dtype=torch.float64
            ).log()
    return model


def node_of(prefix, tokens):
    node = 0
    for token in prefix:
        node = node * len(tokens) + tokens.index(token) + 1
    return node


def texts_of(hyps):
    """Text to total in nats, higher is better, of an n-best list."""
    found = {"".join(token.text for token in hyp.tokens): hyp for hyp in hyps}
    assert len(found) == len(hyps), "a text twice"
    return {text: -hyp.total_cost for text, hyp in found.items()}
