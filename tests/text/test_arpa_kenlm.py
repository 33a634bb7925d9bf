"""KenLM as the oracle of the ARPA reader: both score the same sentences alike.

What is read is written into dicts and scored by the tests' own back-off scorer, so
that nothing of the library but the reader takes part.
"""

from pathlib import Path

import naive_cases
import naive_lm
import numpy as np
import pytest
from arpa_texts import REFUSED, TRIGRAMS, random_sentences

from wfstdec import read_arpa
from wfstdec.text.arpa import ArpaModel

LN10 = np.log(10)
REAL = Path(__file__).parents[3] / "shared/data/lm/lm_books.3g_pruned.arpa.gz"


def as_naive(model: ArpaModel) -> naive_lm.Ngrams:
    """The model as the oracle's dicts of tuples of words."""
    cost, backoff = {}, {}
    for table in model.ngrams:
        grams = [tuple(model.words[w] for w in row) for row in table.words.tolist()]
        cost |= zip(grams, table.cost.tolist(), strict=True)
        backoff |= zip(grams, table.backoff.tolist(), strict=True)
    return naive_lm.Ngrams(model.order, cost, backoff)


def assert_kenlm_agrees(path, sentences):
    kenlm = pytest.importorskip("kenlm")
    peer = kenlm.Model(str(path))
    lm = as_naive(read_arpa(path))
    assert peer.order == lm.order
    score = naive_lm.exact_scorer(lm, unk_cost=100 * LN10, map_unknown=True)
    for sentence in sentences:
        expected = -peer.score(" ".join(sentence)) * LN10
        assert score(sentence) == pytest.approx(expected, rel=1e-6), sentence


@pytest.mark.peers
def test_kenlm_agrees_on_a_model_by_hand(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(TRIGRAMS)
    rng = np.random.default_rng(0)
    words = ["the", "cat", "sat", "dog", "<unk>"]
    assert_kenlm_agrees(
        path, [("the", "cat", "sat"), *random_sentences(rng, words, 300)]
    )


@pytest.mark.peers
@pytest.mark.parametrize(
    ("order", "pruned_suffixes"), [(2, False), (3, False), (4, False), (3, True)]
)
def test_kenlm_agrees_on_random_models(tmp_path, order, pruned_suffixes):
    rng = np.random.default_rng(order)
    path = tmp_path / "lm.arpa"
    words = [*naive_cases.WORD_NAMES, *naive_cases.LM_ONLY_NAMES, "never"]
    agreed = 0
    for _ in range(60):
        text, _ = naive_cases.random_arpa(
            rng, words[:5], order=order, pruned_suffixes=pruned_suffixes
        )
        path.write_text(text, encoding="utf-8")
        try:
            assert_kenlm_agrees(path, random_sentences(rng, words, 20))
            agreed += 1
        except OSError as error:  # its table has no room where many suffixes are gone
            assert pruned_suffixes and "Avoid pruning n-grams" in str(error)
    assert agreed >= (15 if pruned_suffixes else 60)


@pytest.mark.peers
@pytest.mark.skipif(not REAL.exists(), reason="no data beside the checkout")
def test_kenlm_agrees_on_a_real_model():
    rng = np.random.default_rng(1)
    model = read_arpa(REAL)
    assert [len(table) for table in model.ngrams] == [29536, 158474, 72949]
    # Sentences that n-grams of all orders match: chains of overlapping trigrams.
    trigrams = model.ngrams[2].words
    text = [
        model.words[w] for w in trigrams[rng.integers(len(trigrams), size=400)].flat
    ]
    text = [word for word in text if word not in ("<s>", "</s>")]
    sentences = [tuple(text[i : i + 15]) for i in range(0, len(text), 15)]
    sentences += random_sentences(rng, [*model.words[3:2000], "zyzzyva"], 200)
    assert_kenlm_agrees(REAL, sentences)


@pytest.mark.peers
@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_kenlm_refuses_is_read(tmp_path, text):
    kenlm = pytest.importorskip("kenlm")
    path = tmp_path / "lm.arpa"
    path.write_text(text)
    with pytest.raises(OSError, match="Cannot read model"):
        kenlm.Model(str(path))
    read, expected = as_naive(read_arpa(path)), naive_lm.parse_arpa(text)
    sentences = random_sentences(
        np.random.default_rng(4), ["a", "the", "cat", "sat"], 50
    )
    for sentence in sentences:
        score = naive_lm.exact_scorer(read, 7.0)(sentence)
        assert score == pytest.approx(
            naive_lm.exact_scorer(expected, 7.0)(sentence), rel=1e-6, abs=1e-3
        )
