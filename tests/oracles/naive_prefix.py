"""The oracle of the prefix search: all alignments, one after the other.

`all_texts` enumerates them, collapses each to words, and sums those of one text; the
language model scores whole sentences, by the oracle's recursion. Nothing is pruned,
no beam is ever kept.
"""

import itertools
import math

import naive_lm
import numpy as np

WORD_START = "▁"
UNKNOWN = {"<unk>": "▁⁇▁"}
FLOOR = math.log(1e-15)


def collapse(path, labels):
    """The words of tokens, one a frame: first collapsed, then joined."""
    found = [token for token, _ in itertools.groupby(path)]
    found = [labels[token] for token in found if labels[token]]
    if not any(label.startswith(WORD_START) for label in labels):
        return tuple("".join(found).split())
    words = [""]
    is_closed = False
    for label in found:
        label = UNKNOWN.get(label, label)
        if label.startswith(WORD_START) or is_closed:
            words.append("")
        is_closed = label.endswith(WORD_START)
        words[-1] += label.strip(WORD_START)
    return tuple(filter(None, words))


def logprobs_of(logits):
    """Log-softmax, no less than ln(1e-15)."""
    x = logits.astype(np.float64)
    return np.maximum(x - np.logaddexp.reduce(x, axis=1, keepdims=True), FLOOR)


def sentence_score(words, arpa, unigrams, lm):
    """Score of a sentence: log-probs times alpha, and a reward for each word."""
    model = naive_lm.parse_arpa(arpa)
    has_unk = ("<unk>",) in model.cost
    unk_cost = None if has_unk else 100 * math.log(10)
    cost_of = naive_lm.exact_word_coster(model, unk_cost)
    known = {ngram[0] for ngram in model.cost if len(ngram) == 1}
    listed = known if unigrams is None else known & set(unigrams)
    history = ("<s>",) if lm["lm_score_boundary"] else ()
    logp = 0.0
    for word in words:
        name = word if word in known or not has_unk else "<unk>"
        logp -= cost_of(history, name)
        if word not in listed:
            logp += lm["unk_score_offset"] * math.log(10)
        # A word that is scored without `<unk>` leaves no history.
        history = (*history, name) if name in known else ()
    if lm["lm_score_boundary"]:
        logp -= cost_of(history, "</s>")
    return lm["alpha"] * logp + lm["beta"] * len(words)


def all_texts(case, arpa):
    """(text, logit score, whole score) of all texts, best first."""
    logprobs, sums = logprobs_of(case.logits), {}
    for path in itertools.product(range(len(case.labels)), repeat=len(logprobs)):
        words = collapse(path, case.labels)
        logp = sum(row[token] for row, token in zip(logprobs, path, strict=True))
        sums[words] = np.logaddexp(sums.get(words, -np.inf), logp)
    hot = {
        word for phrase in case.options.get("hotwords", ()) for word in phrase.split()
    }
    found = []
    for words, logp in sums.items():
        total = logp + case.options.get("hotword_weight", 10.0) * sum(
            word in hot for word in words
        )
        if arpa is not None:
            total += sentence_score(words, arpa, case.unigrams, case.lm)
        found.append((" ".join(words), logp, total))
    return sorted(found, key=lambda text: -text[2])
