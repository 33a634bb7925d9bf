"""Utterances through a decoder's sessions side by side, all of them chunk by chunk."""


class Lockstep:
    """Sessions that are opened, advanced and closed together."""

    def __init__(self, decoder, n, boosts=None):
        each = boosts if isinstance(boosts, list | tuple) else [boosts] * n
        self._sessions = decoder.sessions()
        self._names = [self._sessions.open(one) for one in each]

    def advance(self, logprobs, lengths=None):
        """A chunk of each; `lengths` says how much of it there is."""
        ends = [None] * len(self._names) if lengths is None else lengths
        chunks = [x[:end] for x, end in zip(logprobs, ends, strict=True)]
        self._sessions.advance(dict(zip(self._names, chunks, strict=True)))

    def finish(self):
        return [self._sessions.close(name) for name in self._names]
