"""n-best lists in the order that a user's function makes of them."""

import math

import numpy as np
import pytest
from text_graphs import text_graph

from wfstdec import WfstDecoder, WfstOptions, rescore_texts
from wfstdec.errors import OptionError, ShapeError

GRAPH = "0 1 a A 1\n0 1 a B 1.5\n0 1 a C 3\n1 0.5"
LOG_PROBS = {"A": -4.0, "B": -1.0, "C": -1.0}


def lists():
    options = WfstOptions(nbest=5, word_insertion=0.25)
    decoder = WfstDecoder(text_graph(GRAPH), options, "cpu")
    return decoder.decode_nbest([np.log(np.full((1, 3), 1 / 3, np.float32))] * 2)


def test_the_order_and_the_costs_of_a_function():
    asked = []

    def log_probs(texts):
        asked.append(texts)
        return [LOG_PROBS[text] for text in texts]

    found = rescore_texts(lists(), log_probs, lm_scale=2.0)
    assert asked == [["A", "B", "C"]]
    assert [[hyp.text for hyp in hyps] for hyps in found] == [["B", "C", "A"]] * 2
    assert [hyp.graph_cost for hyp in found[0]] == [1, 1, 4]
    totals = [hyp.total_cost for hyp in found[0]]
    assert totals == pytest.approx([math.log(3) + 2 * g + 0.25 for g in (1, 1, 4)])
    kept = rescore_texts(lists(), log_probs, graph_weight=3.0)
    assert [hyp.text for hyp in kept[0]] == ["B", "A", "C"]
    assert [hyp.graph_cost for hyp in kept[0]] == [7.0, 8.5, 11.5]


def test_what_a_function_must_not_give():
    with pytest.raises(ShapeError, match="gave 1 numbers"):
        rescore_texts(lists(), lambda texts: [0.0])
    with pytest.raises(ShapeError, match="NaN among them"):
        rescore_texts(lists(), lambda texts: [math.nan] * len(texts))
    with pytest.raises(OptionError, match="lm_scale=inf"):
        rescore_texts(lists(), lambda texts: [0.0] * 3, lm_scale=math.inf)
