"""Attention models that are tables over utterances and texts; and their oracles' rows.

model = TableAttention(rng, num_letters=2, longest=3)
frames = model.frames(utterance, length)     # [T, 2]: the utterance, the frame
rows = model.rows(utterance)                 # {text: log-probs}
"""

import itertools

import numpy as np
import torch


class TableAttention:
    """Letters, then the end, then marks that say nothing; random log-probs.

    Texts are numbered as heaps are: the child of i by token v is i * V + v + 1. The
    prompt must come as the model says, and rows of the state know their utterance.
    """

    def __init__(self, rng, num_letters=2, num_marks=0, longest=3, **sizes):
        self.tokens = [chr(ord("a") + v) for v in range(num_letters)]
        self.tokens += ["</s>", *(f"<|{i}|>" for i in range(num_marks))]
        self.eos, self.longest = num_letters, longest
        self.neutral = frozenset(range(num_letters + 1, len(self.tokens)))
        self.prompt = sizes.get("prompt", (num_letters,))
        self.num_utterances = sizes.get("num_utterances", 1)
        self.dtype = sizes.get("dtype", torch.float64)
        size = len(self.tokens)
        nodes = sum(size**i for i in range(longest + 1))
        logits = rng.normal(size=(self.num_utterances, nodes, size))
        logits = torch.from_numpy(logits * sizes.get("temperature", 1.5))
        self.table = torch.log_softmax(logits, -1).to(self.dtype)

    def frames(self, utterance=0, length=3):
        rows = [[utterance, t] for t in range(length)]
        return torch.tensor(rows, dtype=torch.float64).view(length, 2)

    def limit(self, num_frames):
        return min(self.longest, num_frames)

    def start(self, frames, lengths, prompts):
        assert (lengths > 0).all() and prompts.shape[1] == len(self.prompt)
        utterance = frames[:, 0, 0].long()
        node = torch.zeros_like(utterance)
        return {"utterance": utterance, "node": node}, self.table[utterance, node]

    def step(self, labels, state):
        assert ((labels >= 0) & (labels < len(self.tokens))).all()
        node = state["node"] * len(self.tokens) + labels + 1
        node = node.clamp(max=self.table.shape[1] - 1)
        return self.table[state["utterance"], node], state | {"node": node}

    def take(self, state, rows):
        return {name: one[rows] for name, one in state.items()}

    def rows(self, utterance=0, longest=None):
        """Log-probs after each text of up to `longest` tokens, for the oracle."""
        size, found = len(self.tokens), {}
        letters = [t for t in range(size) if t != self.eos]
        longest = self.longest if longest is None else longest
        for length in range(longest + 1):
            for text in itertools.product(letters, repeat=length):
                node = 0
                for token in text:
                    node = node * size + token + 1
                found[text] = self.table[utterance, node].double().numpy()
        return found


def random_model(rng, **sizes):
    """A small one; with marks by chance."""
    num_letters = int(rng.integers(1, 4))
    num_marks = int(rng.integers(0, 2))
    longest = 4 if num_letters + num_marks < 3 else 3
    return TableAttention(
        np.random.default_rng(rng), num_letters, num_marks, longest, **sizes
    )
