"""A second pass: the totals are the oracle's for given texts."""

import math

import numpy as np
import pytest
import torch
from table_attention import TableAttention
from table_transducers import TableTransducer

from wfstdec.attention.decoder import AttentionDecoder
from wfstdec.attention.options import AttentionOptions
from wfstdec.attention.rescoring import rescore, text_costs
from wfstdec.attention.torch_model import AttentionNet, AttentionSizes, TorchAttention
from wfstdec.errors import OptionError, ShapeError
from wfstdec.transducer.decoder import TransducerDecoder


def spell(text):
    return [ord(word) - ord("a") for word in text.split()]


def first_pass(seed):
    """n-best lists of transducers, two utterances."""
    model = TableTransducer(np.random.default_rng(seed), 2, num_utterances=2, longest=3)
    frames = [model.frames(i) for i in range(2)]
    return TransducerDecoder(model).decode_nbest(frames)


@pytest.mark.parametrize("seed", range(8))
def test_totals_are_those_of_the_definition(seed):
    lists = first_pass(seed)
    model = TableAttention(np.random.default_rng(seed), 2, num_utterances=2)
    frames = [model.frames(i, 5) for i in range(2)]
    found = rescore(model, frames, lists, weight=0.7, spell=spell, first_weight=0.5)
    for i, (before, after) in enumerate(zip(lists, found, strict=True)):
        rows = model.rows(i)
        assert {id(one.hypothesis) for one in after} == set(map(id, before))
        for one in after:
            ends = (*spell(one.hypothesis.text), model.eos)
            cost = -sum(rows[ends[:n]][token] for n, token in enumerate(ends))
            assert one.attention_cost == pytest.approx(cost, abs=1e-5)
            total = 0.5 * one.hypothesis.total_cost + 0.7 * cost
            assert one.total_cost == pytest.approx(total, abs=1e-5)
        totals = [one.total_cost for one in after]
        assert totals == sorted(totals)


def test_with_weight_0_the_order_stays_and_without_a_spelling_a_text_is_last():
    lists = first_pass(0)
    model = TableAttention(np.random.default_rng(0), 2, num_utterances=2)
    frames = [model.frames(i, 5) for i in range(2)]
    same = rescore(model, frames, lists, weight=0.0, spell=spell)
    assert [[one.hypothesis for one in some] for some in same] == lists
    best = lists[0][0].text
    found = rescore(
        model,
        frames,
        lists,
        weight=0.1,
        spell=lambda text: None if text == best else spell(text),
    )
    assert found[0][-1].hypothesis.text == best
    assert found[0][-1].attention_cost == math.inf


def test_a_model_that_reads_from_right_to_left():
    model = TableAttention(np.random.default_rng(1), 2)
    frames = [model.frames(0, 5)]
    lists = [first_pass(1)[0]]
    found = rescore(model, frames, lists, weight=1.0, spell=spell, reverse=True)
    for one in found[0]:
        turned = [spell(one.hypothesis.text)[::-1]]
        assert one.attention_cost == text_costs(model, frames[0], turned)[0]


def test_the_search_rescored_by_its_own_model_says_the_same():
    """Teacher forcing in one call, or step by step."""
    torch.manual_seed(0)
    net = AttentionNet(AttentionSizes(6, 16, 5, heads=2, layers=2, positions=12))
    model = TorchAttention(net, [*"abcde", "</s>"], 5)
    frames = torch.randn(6, 5)
    (texts,) = AttentionDecoder(
        model, options=AttentionOptions(beam_size=9, token_insertion=-0.5)
    ).texts([frames])
    spelt = [text.token_ids for text in texts]
    expected = pytest.approx([text.attention_cost for text in texts], abs=1e-4)
    assert text_costs(model, frames, spelt) == expected
    model.score = None
    assert text_costs(model, frames, spelt) == expected
    assert len({len(text) for text in spelt}) > 1


def test_what_does_not_fit_is_refused():
    model = TableAttention(np.random.default_rng(0), 2)
    with pytest.raises(OptionError, match="weight=nan"):
        rescore(model, [], [], weight=math.nan, spell=spell)
    with pytest.raises(ShapeError, match="0 utterances, expected 1 as lists"):
        rescore(model, [], [[]], weight=1.0, spell=spell)
    with pytest.raises(ShapeError, match="token 9, expected 0 to 2"):
        text_costs(model, model.frames(), [[9]])
    assert text_costs(model, model.frames(), []) == []
