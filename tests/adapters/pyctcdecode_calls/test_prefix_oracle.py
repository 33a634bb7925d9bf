"""The prefix search against all alignments: scores and n-best, nothing pruned."""

import functools
import math
from pathlib import Path

import naive_prefix
import numpy as np
import pytest
from arpa_texts import arpa_of
from prefix_cases import NOTHING_PRUNED, random_case

from wfstdec.adapters.pyctcdecode import build_ctcdecoder

pytestmark = pytest.mark.usefixtures("quiet")
HAND = arpa_of(
    "-99 <s> -0.5; -0.5 a -0.25; -1 b; -2 <unk>; -0.75 </s>",
    "-0.125 <s> a; -0.25 a </s>",
)
LM = {"alpha": 0.5, "beta": 1.5, "unk_score_offset": -3.0, "lm_score_boundary": True}
LN10 = math.log(10)


def sure(text, labels):
    """Logits of a model that is quite sure of these labels, one a frame."""
    x = np.full((len(text), len(labels)), -8.0)
    for frame, label in enumerate(text):
        x[frame, labels.index(label)] = 0.0
    return x


def cut_to(case, cells):
    return case._replace(logits=case.logits[: int(math.log(cells, len(case.labels)))])


def test_a_sentence_by_hand(tmp_path):
    (tmp_path / "hand.arpa").write_text(HAND, "utf-8")
    labels = ["", " ", "a", "b"]
    decoder = build_ctcdecoder(labels, str(tmp_path / "hand.arpa"), **LM)
    text, state, words, logit_score, lm_score = decoder.decode_beams(
        sure(["a", "", " ", "b"], labels)
    )[0]
    assert (text, words) == ("a b", [("a", (0, 1)), ("b", (3, 4))])
    assert logit_score == pytest.approx(0, abs=0.01)
    # p(a | <s>), p(b | a) by the back-off of a, p(</s> | b) with none
    lm = 0.5 * -LN10 * (0.125 + (0.25 + 1) + 0.75) + 2 * 1.5
    assert lm_score - logit_score == pytest.approx(lm, abs=1e-5)
    again = decoder.decode_beams(sure(["a"], labels), lm_start_state=state)
    lm = 0.5 * -LN10 * (0.5 + 0.25) + 1.5  # behind b, which is no history
    assert again[0][4] - again[0][3] == pytest.approx(lm, abs=1e-5)


def test_pieces_with_marks_on_both_sides_by_hand():
    labels = ["", "▁a", "b", "▁⁇▁", "▁"]
    decoder = build_ctcdecoder(labels)
    for spoken, text, words in (
        (["▁a", "b", "", "▁⁇▁", "b"], "ab ⁇ b", [(0, 2), (3, 4), (4, 5)]),
        (["▁", "", "b", "b", "▁a"], "b a", [(2, 4), (4, 5)]),
    ):
        found = decoder.decode_beams(sure(spoken, labels))[0]
        assert found[0] == text
        assert [frames for _, frames in found[2]] == words


@pytest.mark.parametrize("part", range(4))
def test_all_texts_and_scores(part, tmp_path):
    for seed in range(30 * part, 30 * part + 30):
        case = cut_to(random_case(seed, tmp_path), 1500)
        arpa = None if case.arpa is None else Path(case.arpa).read_text("utf-8")
        expected = naive_prefix.all_texts(case, arpa)
        decoder = build_ctcdecoder(case.labels, case.arpa, case.unigrams, **case.lm)
        options = case.options | NOTHING_PRUNED | {"prune_history": False}
        found = decoder.decode_beams(case.logits, **options)
        assert len(found) == len(expected)
        scores = {text: (logit, total) for text, _, _, logit, total in found}
        for text, logit, total in expected:
            assert scores[text] == pytest.approx((logit, total), abs=1e-3)
        totals = [beam[4] for beam in found]
        assert totals == sorted(totals, reverse=True)


def test_a_state_goes_on_where_the_last_part_ended(tmp_path):
    """Two parts are scored as one sentence, each with an end of its own."""
    for seed in range(300, 330):
        case = cut_to(random_case(seed, tmp_path), 500)
        if case.arpa is None:
            continue
        build = functools.partial(
            build_ctcdecoder, case.labels, case.arpa, case.unigrams
        )
        model = build(**case.lm)._language_model
        decoder = build(**case.lm)
        options = case.options | NOTHING_PRUNED | {"prune_history": False}
        options |= {"hotwords": None}
        for text, state, _, _, _ in decoder.decode_beams(case.logits, **options)[:3]:
            before = model.get_start_state()
            for word in text.split():
                _, before = model.score(before, word)
            assert before == state
            found = decoder.decode_beams(case.logits, **options, lm_start_state=state)
            for other, _, _, logit, total in found[:5]:
                expected, at = 0.0, state
                for word in other.split():
                    score, at = model.score(at, word)
                    expected += score
                expected += model.score_end(at)
                assert total - logit == pytest.approx(expected, abs=1e-4)
