"""Defects of public implementations of this search, each by a case of its own."""

import math

import numpy as np
import pytest
import torch
from table_attention import TableAttention

from wfstdec import AttentionDecoder, AttentionOptions, PhraseOptions
from wfstdec.attention.torch_model import AttentionNet, AttentionSizes, TorchAttention


def table(after, letters="ab", longest=4):
    """A model written down: {text: {letter or "": probability}}, no others."""
    model = TableAttention(np.random.default_rng(0), len(letters), longest=longest)
    model.tokens[: len(letters)] = letters
    model.table[:] = -torch.inf
    model.table[..., model.eos] = 0.0
    for text, row in after.items():
        node = 0
        for letter in text:
            node = node * len(model.tokens) + letters.index(letter) + 1
        model.table[:, node] = -torch.inf
        for letter, probability in row.items():
            token = letters.index(letter) if letter else model.eos
            model.table[:, node, token] = math.log(probability)
    return model


def texts(model, boosts=None, frames=None, **options):
    """Text to total, higher is better, in the order of the list."""
    decoder = AttentionDecoder(model, options=AttentionOptions(**options))
    compiled = (
        decoder.phrase_compiler(PhraseOptions()).compile(boosts) if boosts else None
    )
    frames = [model.frames(0, 9)] if frames is None else frames
    (found,) = decoder.texts(frames, boosts=compiled)
    names = model.tokens
    return {"".join(names[t] for t in one.token_ids): -one.total_cost for one in found}


def test_one_finished_text_of_k_does_not_keep_the_search_going():
    """NeMo has no early stop while one of K runs."""
    steps = []
    model = TableAttention(np.random.default_rng(0), 2, longest=8)
    model.table[..., model.eos] = 2.0
    model.table = torch.log_softmax(model.table, -1)
    step = model.step

    def counted(labels, state):
        steps.append(len(labels))
        return step(labels, state)

    model.step = counted
    texts(model, beam_size=2)
    assert len(steps) < 5


def test_a_model_in_training_mode_is_decoded_without_dropout_and_stays_so():
    """NeMo's generator leaves models in training mode, whatever they were in."""
    torch.manual_seed(0)
    net = AttentionNet(AttentionSizes(4, 16, 5, heads=2, layers=1), dropout=0.5)
    model = TorchAttention(net.train(), [*"abc", "</s>"], 3)
    decoder = AttentionDecoder(model, options=AttentionOptions(token_insertion=-2.0))
    frames = [torch.randn(6, 5)]
    found = decoder.texts(frames)
    assert decoder.texts(frames) == found and found[0][0].token_ids
    assert not any(part.training for part in net.modules())


def test_what_the_bound_of_generate_loses_is_found():
    """The case of the processors' tests: a phrase lifts a text that looked lost."""
    after = {"": {"": 0.9, "a": 0.05, "b": 0.05}, "a": {"": 0.9, "a": 0.05, "b": 0.05}}
    after |= {"aa": {"b": 0.9, "a": 0.1}, "aab": {"c": 0.9, "a": 0.1}}
    after |= {"aabc": {"d": 0.9, "a": 0.1}, "aabcd": {"": 1.0}}
    model = table(after, letters="abcd", longest=6)
    given = {"beam_size": 2, "end_rule": "none"}
    assert next(iter(texts(model, {"bcd": 2.0}, **given, stop="bound"))) == "aabcd"
    assert next(iter(texts(model, {"bcd": 2.0}, **given, stop="full"))) == ""


@pytest.mark.parametrize("width", [1, 3, 8])
def test_boosts_on_silence_say_nothing(width):
    """Elsewhere a listed word comes again and again in speechless audio."""
    rng = np.random.default_rng(0)
    letters = list("abcdefgh")
    phrases = {"".join(rng.choice(letters, 3)): 3.0 for _ in range(100)}
    for seed in range(10):
        model = TableAttention(np.random.default_rng(seed), 8, longest=4)
        model.table[..., model.eos] += 6.0
        model.table = torch.log_softmax(model.table, -1)
        assert next(iter(texts(model, beam_size=width))) == ""
        assert next(iter(texts(model, phrases, beam_size=width))) == ""
    loud = texts(model, phrases, beam_size=width, end_rule="none")
    assert (next(iter(loud)) != "") == (width > 1)


class Cycle:
    """It writes its letters in turn, again and again, and may end after each."""

    def __init__(self, letters):
        self.tokens = [*letters, "</s>"]
        self.eos, self.neutral = len(letters), frozenset()
        self.prompt = (self.eos,)

    def rows(self, last):
        size = len(self.tokens)
        rows = torch.full((len(last), size), -torch.inf)
        rows[:, self.eos] = math.log(0.1)
        following = torch.where(last >= size - 2, 0, last + 1)
        rows[torch.arange(len(last)), following] = math.log(0.9)
        return rows

    def start(self, frames, lengths, prompts):
        return prompts[:, -1], self.rows(prompts[:, -1])

    def step(self, labels, state):
        return self.rows(labels), labels

    def take(self, state, rows):
        return state[rows]

    def limit(self, num_frames):
        return num_frames


@pytest.mark.parametrize(
    ("letters", "phrase", "count"),
    [("abc", "a", 2), ("abcd", "bc", 2), ("abcdefghijklmnopqrstuvwxyz", "a", 3)],
)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_phrases_that_loop_are_credited_no_more(letters, phrase, count, beam_size):
    """Whisper repeated boosted words to the limit of tokens."""
    decoder = AttentionDecoder(
        Cycle(letters), options=AttentionOptions(beam_size=beam_size, stop="never")
    )
    boosts = decoder.phrase_compiler(
        PhraseOptions(weights_are_totals=True), boundary=None
    ).compile({phrase: 8.0})
    (hyp,) = decoder.decode([torch.zeros(200, 2)], boosts=boosts)
    assert hyp.boost_cost == -8.0 * count
    if beam_size > 1:
        assert hyp.text.replace(" ", "").count(phrase) == count
