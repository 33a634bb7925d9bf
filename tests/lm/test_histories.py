"""Histories: a model by hand, its prefixes and targets, what is added and left out."""

import io
import logging

import numpy as np
import pytest
from arpa_texts import arpa_of

from wfstdec import read_arpa
from wfstdec.errors import ArpaError
from wfstdec.lm.histories import NO_LABEL, build_histories

# `b a` is not listed and begins `b a b`; nothing begins with `a b`.
ARPA = arpa_of(
    "-99 <s> -0.5; -1 </s>; -0.25 a -0.125; -2 b -0.75",
    "-0.75 <s> a; -1.5 a b -0.375; -0.0625 a </s>",
    "-0.5 b a b",
)
LN10 = np.log(10)
LABELS = {"a": 0, "b": 1, "<s>": 2, "</s>": 3}


def histories_of(text, labels=LABELS):
    model = read_arpa(io.StringIO(text))
    of_word = [labels.get(word, NO_LABEL) for word in model.words]
    return build_histories(model, np.array(of_word, np.int32), num_labels=2)


def names_of(histories):
    """The n-gram of each node, as in `b a b`."""
    trie, words = histories.trie, {i: word for word, i in LABELS.items()}
    names = {0: ""}
    for node in trie.by_depth()[1:].tolist():
        parent, label = names[int(trie.parent[node])], words[int(trie.label[node])]
        names[node] = f"{parent} {label}".strip()
    return [names[node] for node in range(trie.num_nodes)]


def test_a_prefix_that_is_not_listed_is_added(caplog):
    with caplog.at_level(logging.INFO, "wfstdec.lm"):
        histories = histories_of(ARPA)
    names = names_of(histories)
    assert names[-1] == "b a" and len(names) == 1 + 4 + 3 + 1 + 1
    assert "1 histories are not listed themselves: added" in caplog.text
    assert histories.cost[-1] == pytest.approx((0.75 + 0.25) * LN10)
    assert histories.backoff[-1] == 0


def test_kinds_of_n_grams():
    histories = histories_of(ARPA)
    names = np.array(names_of(histories))
    assert set(names[histories.prefixes()]) == {"", "<s>", "a", "b", "b a"}
    assert set(names[histories.is_end]) == {"</s>", "a </s>"}
    assert set(names[histories.predicting()]) == {
        *("a", "b", "<s> a", "a b", "b a b", "b a")
    }


def test_targets_are_the_longest_suffixes_that_are_states():
    histories = histories_of(ARPA)
    names = names_of(histories)
    target, backoff = histories.targets(histories.prefixes())
    found = {
        name: (names[target[node]], backoff[node] / LN10)
        for node, name in enumerate(names)
    }
    assert found["b a"] == ("b a", 0)
    assert found["a b"] == ("b", pytest.approx(0.375))
    assert found["b a b"] == ("b", pytest.approx(0.375))  # over `a b`
    assert found["<s> a"] == ("a", 0)


def test_what_is_left_out_is_counted(caplog):
    text = ARPA.replace("ngram 2=3", "ngram 2=4").replace("-1.5\ta b", "-1\ta <s>\n&")
    text = text.replace("&", "-1.5\ta b")
    with caplog.at_level(logging.INFO, "wfstdec.lm"):
        histories = histories_of(text, {"a": 0})
    assert set(names_of(histories)) == {"", "<s>", "</s>", "a", "<s> a", "a </s>"}
    assert "3 n-grams have words outside the vocabulary: left out" in caplog.text
    assert "1 n-grams have <s> or </s> in their middle: left out" in caplog.text


@pytest.mark.parametrize("mark", ["<s>", "</s>"])
def test_a_model_without_sentence_marks(mark):
    text = "\\data\\\nngram 1=2\n\n\\1-grams:\n-1 MARK\n-1 a\n\n\\end\\\n"
    other = {"<s>": "</s>", "</s>": "<s>"}[mark]
    with pytest.raises(ArpaError, match=f"the model has no {mark}, expected <s> and"):
        histories_of(text.replace("MARK", other))
