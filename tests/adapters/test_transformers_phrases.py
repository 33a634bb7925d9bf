"""The processor of phrases by itself: what is added, spelt, remembered and refused."""

import importlib.util
import math

import naive_attention
import naive_phrases
import numpy as np
import pytest

from wfstdec import PhraseOptions
from wfstdec.adapters.transformers import PhraseBoostLogitsProcessor
from wfstdec.boost.automatic import bonuses_of_lengths
from wfstdec.errors import BoostWarning, OptionError, ShapeError, TokenTableError
from wfstdec.text.tokens import written_ways

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
    pytest.skip("needs transformers and torch", allow_module_level=True)

import torch
from tiny_whisper import EOS, FIRST_TIME, LETTERS, SOT, letter_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

RULES = ("closed", "none")
SIZE = 10
SECOND = 2 + math.log(2)
"""What the second token of a phrase is worth."""


def processor(phrases, **more):
    more = {"options": PhraseOptions()} | more
    return PhraseBoostLogitsProcessor(phrases, letter_tokenizer(), **more)


def ids_of(*texts):
    return torch.tensor([[SOT, *map(int, text)] for text in texts])


def plain(num, size=SIZE):
    """Scores of which the first is the best."""
    return torch.eye(1, size).repeat(num, 1) * 0.5


def gains(boosts, *texts, scores=None):
    """Gains of rows after these texts; by default no end is the best."""
    scores = plain(len(texts)) if scores is None else scores
    return (boosts(ids_of(*texts), scores) - scores).numpy()


def test_steps_by_hand():
    """a b: one nat for a, the rest for b; refunded by all else, and by the end."""
    boosts = processor({"ab": 1.0}, end_rule="none")
    first = gains(boosts, "")[0]
    assert first == pytest.approx([1, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    second = gains(boosts, "0")[0]
    refund = [-1, -1, -1]
    assert second == pytest.approx([0, SECOND, *refund, 0, 0, 0, 0, 0], abs=1e-4)
    assert gains(boosts, "01")[0] == pytest.approx(first)


def test_marks_say_nothing_inside_a_phrase_too():
    boosts = processor({"ab": 1.0}, end_rule="none")
    found = gains(boosts, f"0{FIRST_TIME}{FIRST_TIME + 1}")[0]
    assert found == pytest.approx(gains(boosts, "0")[0])
    assert not found[FIRST_TIME:].any()


def test_outputs_that_the_tokenizer_does_not_name_say_nothing():
    boosts = processor({"ab": 1.0}, end_rule="none")
    scores = plain(1, SIZE + 3)
    found = (boosts(ids_of("0"), scores) - scores).numpy()[0]
    assert found[:SIZE] == pytest.approx(gains(boosts, "0")[0])
    assert not found[SIZE:].any()


def test_a_text_of_the_prompt_counts_only_where_it_is_not_told():
    """Whisper gives it by `set_begin_index`."""
    boosts = processor({"ab": 1.0}, end_rule="none")
    assert gains(boosts, "0")[0, 1] == pytest.approx(SECOND, abs=1e-4)
    boosts.set_begin_index(2)
    assert gains(boosts, "0")[0] == pytest.approx(gains(boosts, "3")[0])
    informed = processor({"ab": 1.0}, end_rule="none", begin_index=2)
    assert gains(informed, "0")[0, 0] == 1


def test_the_closed_rule_by_hand():
    """The scores prefer the end: the next token pays back, then nothing is credited."""
    boosts = processor({"abc": 1.0})
    prefers_end = torch.zeros(1, SIZE)
    prefers_end[0, EOS] = 1.0
    assert gains(boosts, "")[0, 0] == 1
    found = gains(boosts, "0", scores=prefers_end)[0]
    assert found == pytest.approx(np.full(SIZE, -1.0))
    assert not gains(boosts, "01").any()
    assert not gains(boosts, "010").any()
    assert gains(processor({"abc": 1.0}), "010")[0, 1] > 1  # never seen: open


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.share(keep=4)
def test_every_step_is_that_of_the_definition(seed, rule):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 4, size=rng.integers(1, 5))
    phrases = {
        "".join(rng.choice(list(LETTERS), length)): float(rng.uniform(-1, 2))
        for length in lengths
    }
    options = {"uniform": True} if seed % 3 == 0 else {"c0": 0.5, "beta": 1.5}
    spelt = {text: [tuple(text)] for text in phrases}
    credits = naive_attention.Credits(
        naive_phrases.Phrases(phrases, "token", options, spellings=spelt),
        dict(enumerate(LETTERS)),
    )
    boosts = processor(phrases, end_rule=rule, options=PhraseOptions(**options))
    scores = torch.zeros(1, SIZE)
    scores[0, 0] = 1.0  # no end is the best
    for _ in range(20):
        text = tuple(rng.integers(0, 4, size=rng.integers(6)).tolist())
        found = gains(boosts, text, scores=scores)[0]
        expected = [credits.gain(text, token) for token in range(4)]
        end = -credits.paid_ahead(text)
        assert found[: EOS + 1] == pytest.approx([*expected, end], abs=1e-4)


@pytest.mark.parametrize("rule", RULES)
def test_rows_may_be_reordered_repeated_and_dropped(rule):
    """States are found by tokens: in any order the same as along each text."""
    rng = np.random.default_rng(3)
    phrases = {"ab": 1.0, "bcd": 0.7, "da": -1.0}

    def scores_of(texts):
        return torch.stack(
            [
                torch.from_numpy(
                    np.random.default_rng([7, *map(int, text)]).normal(size=SIZE)
                ).float()
                for text in texts
            ]
        )

    beams = processor(phrases, end_rule=rule)
    texts = ["", "", "", ""]
    for _ in range(6):
        found = gains(beams, *texts, scores=scores_of(texts))
        for text, row in zip(texts, found, strict=True):
            alone = processor(phrases, end_rule=rule)
            for n in range(len(text) + 1):
                expected = gains(alone, text[:n], scores=scores_of([text[:n]]))
            assert row == pytest.approx(expected[0], abs=1e-5)
        parents = rng.choice(texts, 4)
        texts = [f"{parent}{rng.integers(4)}" for parent in parents]
    assert rule != "closed" or not found.all()


def test_equal_texts_of_two_utterances_are_told_apart():
    """Row 0's utterance prefers its end, row 1's does not; then both change places."""
    boosts = processor({"bc": 1.0})
    at_start = torch.tensor([[0.0, 1.0], [0.0, 1.0], [3.0, 0.0], [3.0, 0.0]])
    at_start = torch.cat([at_start, torch.zeros(4, SIZE - 2)], 1)
    gains(boosts, "", "", "", "", scores=at_start)
    scores = plain(4)
    scores[0, EOS] = 2.0
    gains(boosts, "0", "3", "3", "0", scores=scores)
    found = gains(boosts, "31", "01", "01", "31")
    assert found[0, 2] > 2 and not found[1].any()
    assert found[2, 2] > 2 and found[3, 2] > 2


def test_half_paid_boosts_are_refunded_at_the_length_that_is_told():
    for given in ({"max_length": 3}, {"max_new_tokens": 2, "begin_index": 1}):
        boosts = processor({"ab": 1.0, "abc": 1.0}, end_rule="none", **given)
        last = gains(boosts, "0")[0]
        assert last[:4] == pytest.approx([-1, SECOND, -1, -1], abs=1e-4)
        whole = 1 + SECOND
        assert gains(boosts, "1")[0, 0] == 0  # a phrase begun in vain
        earlier = gains(boosts, "")[0]
        assert earlier[0] + last[1] == pytest.approx(whole, abs=1e-4)


def test_no_tokens_at_all_are_a_text_too():
    """Flax processors once saw empty sequences (transformers#29635)."""
    boosts = processor({"ab": 1.0})
    ids = torch.zeros(2, 0, dtype=torch.int64)
    found = boosts(ids, plain(2)).numpy()
    assert found[:, 0] == pytest.approx([1.5, 1.5])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_scores_of_any_type(dtype):
    boosts = processor({"ab": 1.0}, end_rule="none")
    scores = torch.zeros(1, SIZE, dtype=dtype)
    found = boosts(ids_of("0"), scores)
    assert found.dtype == dtype
    assert found[0, 1].item() == pytest.approx(SECOND, rel=1e-2)
    assert not scores.any()


def test_arrays_do_as_well_as_tensors():
    for rule in RULES:
        boosts, again = (processor({"ab": 1.0}, end_rule=rule) for _ in range(2))
        scores = plain(1).numpy()
        found = boosts(ids_of("0").numpy(), scores) - scores
        assert found == pytest.approx(gains(again, "0"))


@pytest.fixture(scope="module")
def pieces():
    """Byte-level pieces, which cut " new" otherwise than "new", as Whisper's do."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = ["new york is new", "New York and new york", "the new Bartley"] * 20
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>"
    )


@pytest.mark.parametrize(
    "text", [" new york", "new york", " New York", "NEW YORK", " is new york now"]
)
def test_a_phrase_counts_however_it_is_cut(pieces, text):
    """With a space before it or without, in capitals or not; once each time."""
    boosts = PhraseBoostLogitsProcessor(
        ["new york"], pieces, end_rule="none", options=PhraseOptions()
    )
    ids = pieces(text)["input_ids"]
    size = len(pieces)
    total = sum(
        boosts(torch.tensor([ids[:n]]), torch.zeros(1, size))[0, token]
        for n, token in enumerate([*ids, pieces.eos_token_id])
    )
    spelt = {tuple(pieces(way)["input_ids"]) for way in written_ways("new york")}
    longest = max(map(len, naive_phrases.minimal(spelt)))
    assert float(total) == pytest.approx(PhraseOptions().base(longest)[-1], abs=1e-3)


def test_special_tokens_spell_nothing():
    """A list must not speak to the model in its own marks."""
    with pytest.warns(BoostWarning, match="2 boosted phrases cannot be spelt"):
        boosts = processor(["<|0.02|>", "<|endoftext|>", "ab"])
    assert gains(boosts, "")[0].nonzero()[0].tolist() == [0]


def test_variants_are_the_users():
    boosts = processor(["ab"], variants=lambda text: [text[::-1]], end_rule="none")
    assert gains(boosts, "")[0].nonzero()[0].tolist() == [1]


def test_compiled_phrases_are_taken():
    first = processor({"ab": 1.0})
    again = processor(first.lists[0])
    assert again.lists == first.lists
    assert "3 states" not in repr(first) and "2 states" in repr(first)
    other = PhraseBoostLogitsProcessor(
        ["ab"], letter_tokenizer(), options=PhraseOptions(c0=3.0)
    )
    assert gains(other, "")[0, 0] == 3


def test_none_and_empty_lists_add_nothing():
    for phrases in (None, {}, [], [None], [[], {}]):
        boosts = processor(phrases)
        rows = len(boosts.lists)
        assert not gains(boosts, *[""] * rows).any()


def test_what_does_not_fit_is_refused():
    with pytest.raises(OptionError, match="end_rule='open', expected"):
        processor(["ab"], end_rule="open")
    with pytest.raises(OptionError, match="both max_length and max_new_tokens"):
        processor(["ab"], max_length=3, max_new_tokens=3)
    with pytest.raises(TokenTableError, match="int has no get_vocab"):
        PhraseBoostLogitsProcessor(["ab"], 3)
    with pytest.raises(OptionError, match="begin_index=-1"):
        processor(["ab"], begin_index=-1)
    with pytest.raises(ShapeError, match="begin_index=4 or more"):
        gains(processor(["ab"], begin_index=4), "0")
    with pytest.raises(ShapeError, match="V=3 columns, eos is 4"):
        processor(["ab"])(ids_of(""), torch.zeros(1, 3))
    with pytest.raises(ShapeError, match="V=2 columns, the tokenizer spells"):
        processor({"acd": 1.0}, eos=1, end_rule="none")(ids_of(""), torch.zeros(1, 2))


def test_phrases_without_weights_have_amounts_of_the_list():
    boosts = PhraseBoostLogitsProcessor(["ab", "bcd"], letter_tokenizer())
    (compiled,) = boosts.lists
    assert compiled.amounts == pytest.approx(
        bonuses_of_lengths(compiled.num_labels, {"ab": 2, "bcd": 3}), abs=1e-4
    )
