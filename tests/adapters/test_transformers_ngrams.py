"""The processor of n-gram models by itself; `generate` with it is in its own file."""

import importlib.util
import io

import naive_cases
import naive_lm
import numpy as np
import pytest
from arpa_texts import arpa_of

from wfstdec import NgramLM
from wfstdec.adapters.transformers import NgramLogitsProcessor, token_table_of
from wfstdec.errors import OptionError

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
    pytest.skip("needs transformers and torch", allow_module_level=True)

import torch
from tiny_whisper import EOS, FIRST_TIME, LETTERS, SOT, letter_tokenizer

SIZE = 10


def case(seed, weight=0.7, unk_cost=2.5, **more):
    rng = np.random.default_rng(seed)
    text = naive_cases.random_arpa(rng, list(LETTERS))[0]
    lm = NgramLM.from_arpa(
        io.StringIO(text), token_table_of(letter_tokenizer()), unk_cost=unk_cost
    )
    coster = naive_lm.exact_word_coster(naive_lm.parse_arpa(text), unk_cost)
    return NgramLogitsProcessor(lm, letter_tokenizer(), weight, **more), coster


def gains(processor, *texts):
    ids = torch.tensor([[SOT, *text] for text in texts])
    return processor(ids, torch.zeros(len(texts), SIZE)).numpy()


def expected(coster, text, weight=0.7):
    history = ("<s>", *(LETTERS[t] for t in text if t < EOS))
    words = [*LETTERS, "</s>"]
    return [-weight * coster(history, word) for word in words] + [0.0] * 5


@pytest.mark.parametrize("seed", range(10))
def test_rows_have_the_costs_of_the_definition_in_any_order(seed):
    """Rows that were seen continue from there; others are walked: the same."""
    rng = np.random.default_rng(seed)
    processor, coster = case(seed)
    texts = [(), (), (), ()]
    for step in range(6):
        found = gains(processor, *texts)
        for text, row in zip(texts, found, strict=True):
            assert row == pytest.approx(expected(coster, text), rel=1e-5, abs=1e-5)
        if step == 3:  # rows that are new
            texts = [tuple(rng.integers(0, 4, size=4).tolist()) for _ in texts]
        picked = rng.integers(len(texts), size=4)
        texts = [(*texts[i], int(rng.integers(4))) for i in picked]


def test_marks_say_nothing_and_the_history_goes_on():
    processor, coster = case(1)
    found = gains(processor, (0, FIRST_TIME, 1, FIRST_TIME + 1))[0]
    assert found == pytest.approx(expected(coster, (0, 1)), rel=1e-5)


def test_a_prompt_is_no_part_of_the_text():
    processor, coster = case(2)
    processor.set_begin_index(3)
    found = gains(processor, (0, 1, 2))[0]
    assert found == pytest.approx(expected(coster, (2,)), rel=1e-5)
    processor.set_begin_index(1)
    found = gains(processor, (0, 1, 2))[0]
    assert found == pytest.approx(expected(coster, (0, 1, 2)), rel=1e-5)


ONLY_A = arpa_of("-99 <s>; -0.5 </s>; -0.25 a")


@pytest.mark.parametrize("weight", [-0.5, 0.0, 0.5])
def test_what_is_impossible_stays_so_at_any_weight_but_zero(weight):
    lm = NgramLM.from_arpa(io.StringIO(ONLY_A), token_table_of(letter_tokenizer()))
    found = gains(NgramLogitsProcessor(lm, letter_tokenizer(), weight), ())[0]
    impossible = -np.inf if weight else 0.0
    nats = -0.25 * np.log(10) * weight, -0.5 * np.log(10) * weight
    assert found[:5] == pytest.approx([nats[0], *[impossible] * 3, nats[1]])
    assert not found[5:].any()


def test_a_file_and_what_does_not_fit(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(ONLY_A)
    processor = NgramLogitsProcessor(path, letter_tokenizer(), unk_cost=1.0)
    assert gains(processor, ())[0, 1] == -1
    assert "weight=1.0" in repr(processor)
    with pytest.raises(OptionError, match="weight=nan"):
        NgramLogitsProcessor(path, letter_tokenizer(), float("nan"))
    other = NgramLM.from_arpa(path, ("<eps>", "a"))
    with pytest.raises(OptionError, match="over 2 words, expected one over the 11"):
        NgramLogitsProcessor(other, letter_tokenizer())
