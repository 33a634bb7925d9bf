"""G: small models by hand, every sentence against the oracle and KenLM, errors."""

import itertools
import logging

import naive_cases
import naive_lm
import numpy as np
import pytest
from arpa_texts import arpa_of
from fst_tools import grammar_of, outputs_of, rows_of, sentence_cost, without

from wfstdec.errors import ArpaError
from wfstdec.fst.grammar import read_grammar

SMALL = arpa_of(
    "-99 <s> -0.5; -1 </s>; -0.25 a -0.125; -2 b",
    "-0.75 <s> a -0.25; -1.5 a b; -0.0625 a </s>",
    "-0.5 <s> a b",
)
KALDI = arpa_of(
    "-5.234679 a -3.3; -3.456783 b; 0.0000000 <s> -2.5; -4.333333 </s>",
    "-1.45678 a b -3.23; -1.30490 <s> a -4.2",
    "-0.34958 <s> a b; -0.23940 a b </s>",
)
LN10 = np.log(10)


def test_a_trigram_model_by_hand():
    """States: 0 empty, 1 `<s>`, 2 `a`, 3 `<s> a`; none continues b or `a b`."""
    fst, _ = grammar_of(SMALL)
    names = {0: "-", 1: "a", 2: "b", 3: "#0"}
    log10 = {
        "0 2 a a": 0.25,
        "0 0 b b": 2,
        "1 3 a a": 0.75,
        "1 0 #0 -": 0.5,
        "2 0 b b": 1.5,
        "2 0 #0 -": 0.125,
        "3 0 b b": 0.5,
        "3 2 #0 -": 0.25,
        "0": 1,
        "1": 0.5 + 1,  # final over the back-off
        "2": 0.0625,
        "3": 0.25 + 0.0625,
    }
    found = dict(row.rsplit(" ", 1) for row in rows_of(fst, names, names))
    assert {row: float(cost) for row, cost in found.items()} == pytest.approx(
        {row: cost * LN10 for row, cost in log10.items()}
    )
    assert fst.start == 1


def test_kaldis_sentences():
    fst, labels = grammar_of(KALDI)
    assert sentence_cost(fst, labels, "bbba") == pytest.approx(59.2649, abs=2e-4)
    assert sentence_cost(fst, labels, "ab") == pytest.approx(4.36082, abs=1e-5)


def test_ngrams_below_their_backoff_path_are_counted(caplog):
    caplog.set_level(logging.INFO, logger="wfstdec.build")
    grammar_of(SMALL)
    assert "back-off path" not in caplog.text
    # 'a b' backs off at 0.125 + 2, and is listed at 2.5.
    grammar_of(SMALL.replace("-1.5", "-2.5"))
    assert "1 of 8 n-grams are less probable than their back-off path" in caplog.text


def test_ending_never_needs_a_backoff():
    """The final costs are those after the cheapest back-offs."""
    fst, labels = grammar_of(SMALL)
    for words in ("", "a", "b", "ab", "aa", "abab"):
        ids = tuple(labels.words.index(word) for word in words)
        cost = sentence_cost(fst, labels, words)
        found = outputs_of(fst, (labels.backoff_word, *ids))  # none behind the words
        others = outputs_of(fst, ids)
        backed = without(fst, [labels.backoff_word])
        assert cost == outputs_of(backed, ids)[ids]
        assert cost <= min([*found.values(), *others.values()], default=np.inf)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.share(keep=12)
def test_every_sentence_costs_what_the_oracle_says(seed):
    rng = np.random.default_rng(seed)
    words = list("abc")[: rng.integers(1, 4)]
    text, known = naive_cases.random_arpa(rng, words, order=int(rng.integers(1, 5)))
    unk_cost = [None, 1.5][seed % 2]
    fst, labels = grammar_of(text, " ".join(words), unk_cost)
    model = naive_lm.parse_arpa(text)
    least = naive_lm.epsilon_scorer(model, unk_cost)
    exact = naive_lm.exact_scorer(model, unk_cost)
    for length in range(5):
        for sentence in itertools.product(words, repeat=length):
            cost = sentence_cost(fst, labels, sentence)
            assert cost == pytest.approx(least(sentence), rel=1e-5, abs=1e-5)
            assert cost <= exact(sentence) + 1e-4


def test_an_n_gram_whose_history_is_not_listed():
    """`b a` is not listed and `b a b` is: it counts all the same, as in the formula."""
    text = SMALL.replace("ngram 3=1", "ngram 3=2").replace(
        "-0.5\t<s> a b", "-0.5\t<s> a b\n-0.03125\tb a b"
    )
    text = text.replace("-2\tb", "-2\tb\t-0.375")
    fst, labels = grammar_of(text)
    exact = naive_lm.exact_scorer(naive_lm.parse_arpa(text))
    for sentence in ("bab", "abab", "babab", "ba", "baa"):
        cost = sentence_cost(fst, labels, sentence)
        assert cost == pytest.approx(exact(tuple(sentence)), rel=1e-6), sentence


def test_n_grams_outside_the_lexicon_are_counted(caplog):
    with caplog.at_level(logging.INFO, "wfstdec.lm"):
        fst, labels = grammar_of(SMALL, words="a")
    assert "3 n-grams have words outside the vocabulary: left out" in caplog.text
    assert sentence_cost(fst, labels, "a") == pytest.approx(
        (0.5 + 0.25 + 0.0625) * LN10
    )


def test_sentence_marks_in_the_middle_are_left_out(caplog):
    text = SMALL.replace("ngram 2=3", "ngram 2=5")
    text = text.replace("-1.5\ta b", "-1.5\ta b\n-1\ta <s>\n-1\t</s> a")
    fst, _ = grammar_of(text)
    assert "2 n-grams have <s> or </s> in their middle: left out" in caplog.text
    assert fst.num_arcs == grammar_of(SMALL)[0].num_arcs


def test_impossible_n_grams_have_no_arcs():
    fst, labels = grammar_of(SMALL.replace("-2\tb", "-inf\tb"))
    assert sentence_cost(fst, labels, "b") == np.inf
    assert sentence_cost(fst, labels, "ab") < np.inf


def test_a_model_whose_sentences_never_end():
    text = SMALL.replace("-1\t</s>", "-inf\t</s>").replace("-0.0625\ta", "-inf\ta")
    with pytest.raises(ArpaError, match="</s> has probability 0 everywhere"):
        grammar_of(text)


@pytest.mark.parametrize("line", ["0 1 cd 0.5", "0 1 3 0.5"])
def test_words_of_a_text_grammar_are_those_of_the_table(tmp_path, line):
    (tmp_path / "g.txt").write_text(f"{line}\n1\n")
    (tmp_path / "words.txt").write_text("<eps> 0\nab 1\nba 2\ncd 3\n")
    found = read_grammar(tmp_path / "g.txt", tmp_path / "words.txt")
    assert [found.words[i] for i in found.fst.ilabel] == ["cd"]
