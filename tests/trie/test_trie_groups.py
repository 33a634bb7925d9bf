"""Whole utterances, a few in one call: what the specification finds one by one."""

import numpy as np
import pytest
from trie_reference_backend import ReferenceBackend
from trie_searches import bits, draw

from wfstdec import TrieDecoder, TrieOptions, spelling_lexicon, token_table
from wfstdec.search.threads import CallBudget
from wfstdec.trie.cpu import arrays, search
from wfstdec.trie.cpu.backend import CpuBackend
from wfstdec.trie.cpu.search import CpuSearch

pytestmark = [
    pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning"),
    pytest.mark.usefixtures("quiet"),
]


class Short(CallBudget):
    """A pace of so few frames a call that most utterances are cut."""

    def __init__(self, frames):
        self.frames = frames

    def note(self, frames, seconds):
        pass


def one_by_one(decoder, compiled, batch):
    backend, found = ReferenceBackend(decoder._space), []
    for logprobs in batch:
        search = backend.start(decoder.options, compiled)
        search.advance(logprobs)
        found.append(bits(search.finish()))
    return found


def together(backend, decoder, compiled, batch, pace):
    inputs = backend.inputs_of(decoder.options, compiled)
    found = CpuSearch(backend.memory, inputs).decode(batch, pace, range(len(batch)))
    return list(map(bits, found))


@pytest.mark.parametrize("merge", ["max", "sum"])
def test_a_trace_that_is_settled_within_a_group(monkeypatch, merge):
    """Long utterances of a short trace; room for one token at first."""
    monkeypatch.setattr(search, "FRAMES_PER_ROW", 1 << 30)
    rng, case, decoder, boosts = draw(1, "pieces")
    decoder = decoder.with_options(
        beam=8.0, beam_size=6, merge=merge, nbest=2, token_top_k=None
    )
    (compiled,) = decoder._boosts.compile(boosts, 1)
    x = case.logprobs.astype(np.float32)
    batch = [x[rng.integers(0, len(x), n)] for n in (40, 3, 90, 0, 60)]
    backend = CpuBackend(decoder._space, first_capacity=1)
    grown, grow = [], CpuSearch._grow
    monkeypatch.setattr(CpuSearch, "_grow", lambda *a: grown.append(a[1]) or grow(*a))
    found = together(backend, decoder, compiled, batch, Short(7))
    assert found == one_by_one(decoder, compiled, batch)
    assert {arrays.GROW_TRACE, arrays.GROW_ROWS, arrays.GROW_CANDIDATES} <= set(grown)


class Refuses:
    """A model of one cost for all words, which fails at one of them."""

    def __init__(self, word):
        self._word = word

    def start(self):
        return ()

    def score(self, state, word):
        if word == self._word:
            raise ValueError("no such thing")
        return 1.0, (*state, word)

    def finish(self, state):
        return 0.0


def test_a_model_that_fails_names_the_utterance_and_leaves_others_alone():
    tokens = token_table(["<blank>", "|", "a", "b"])
    words = ["a", "b"]

    def said(text):
        x = np.full((2 * len(text), 4), -9.0)
        x[::2, 0] = x[range(1, len(x), 2), [tokens.names.index(c) for c in text]] = 0
        return x - np.logaddexp.reduce(x, axis=1, keepdims=True)

    def made(model):
        return TrieDecoder(
            tokens=tokens,
            lexicon=spelling_lexicon(words, tokens, separator="|"),
            lm=model,
            options=TrieOptions(beam=3.0, beam_size=4, lookahead="none"),
            separator="|",
            threads=1,
        )

    batch = [said("a|a"), said("a|a|a"), said("a|b"), said("a")]
    decoder = made(Refuses("b"))
    with pytest.raises(ValueError, match="no such thing") as caught:
        decoder.decode(batch)
    assert caught.value.__notes__ == ["wfstdec: utterance 2"]
    others = [batch[i] for i in (0, 1, 3)]
    assert [h.text for h in decoder.decode(others)] == ["a a", "a a a", "a"]
