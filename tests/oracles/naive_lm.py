"""The oracle's language model: ARPA text as two dicts, sentences scored by recursion.

`parse_arpa` -> `Ngrams` -> `exact_scorer` (true back-off) or `epsilon_scorer` (back-off
is open before every word) -> a function words -> cost in nats, with `<s>` and `</s>`.
"""

import functools
import math
from typing import NamedTuple

INF = math.inf
BOS, EOS, UNK = "<s>", "</s>", "<unk>"
Words = tuple[str, ...]


class Ngrams(NamedTuple):
    """An ARPA file: n-gram -> cost, n-gram -> back-off cost where it has one."""

    order: int
    cost: dict[Words, float]
    backoff: dict[Words, float]


def parse_arpa(text):
    """Read well-formed ARPA text; log10 probabilities become nats."""
    order, cost, backoff = 0, {}, {}
    for line in text.splitlines():
        fields = line.split()
        if line.startswith("\\") and line.strip().endswith("-grams:"):
            order = int(line[1 : line.index("-")])
        elif order and fields and not line.startswith("\\"):
            ngram = tuple(fields[1 : order + 1])
            cost[ngram] = -float(fields[0]) * math.log(10)
            if len(fields) > order + 1:
                backoff[ngram] = -float(fields[order + 1]) * math.log(10)
    return Ngrams(order, cost, backoff)


def exact_word_coster(lm, unk_cost=None):
    """A function history, word -> cost by true back-off, as the `kenlm` module scores.

    Each word (and `</s>` at the end) is scored by the longest n-gram that ends in
    it; back-offs of all longer histories are added, a missing one is 0. unk_cost: cost
    of a word outside the model in place of a unigram; None: such a word is impossible.
    """

    def word_cost(history, word):
        total = 0.0
        for length in range(min(len(history), lm.order - 1), -1, -1):
            context = history[len(history) - length :]
            if (*context, word) in lm.cost:
                return total + lm.cost[(*context, word)]
            total += lm.backoff.get(context, 0.0)
        return INF if unk_cost is None or word == EOS else total + unk_cost

    return word_cost


def exact_scorer(lm, unk_cost=None, map_unknown=False):
    """Sum `exact_word_coster`; map_unknown: other words are `<unk>`, as in kenlm."""
    word_cost = exact_word_coster(lm, unk_cost)

    def sentence_cost(words):
        if BOS in words or EOS in words:
            return INF
        if map_unknown:
            words = tuple(w if (w,) in lm.cost else UNK for w in words)
        full = (BOS, *words, EOS)
        return sum(word_cost(full[:i], full[i]) for i in range(1, len(full)))

    return sentence_cost


def epsilon_scorer(lm, unk_cost=None, oov=None):
    """Sentence cost when back-off is a choice that is open before every word.

    The least over all ways to score the sentence, where each step either uses the
    explicit n-gram (history, word), or pays back-off(history) and continues with the
    longest known context among the proper suffixes of the history, even though an
    explicit n-gram exists. After n-gram (h, w) the history is the longest suffix of
    h + w that is a known context. Known contexts are the empty one, every n-gram
    below the highest order, and every proper prefix of an n-gram. The sentence starts
    in the history `<s>` (empty if unknown) and ends by scoring `</s>` in the same way.

    Args:
        lm: the parsed model.
        unk_cost: cost of a word outside the model, taken at the empty history and
            leading back to it; None: such a word is impossible.
        added: words and what they cost at the empty history, to which they lead back,
            whatever the model says.
    """
    oov = oov or {}
    contexts = {g for g in lm.cost if len(g) < lm.order}
    contexts |= {g[:k] for g in lm.cost for k in range(len(g))} | {()}

    def longest_context(words):
        return next(c for i in range(len(words) + 1) if (c := words[i:]) in contexts)

    @functools.cache
    def least(history, rest):
        if not rest:
            return 0.0
        word, ways = rest[0], [INF]
        ngram = (*history, word)
        if ngram in lm.cost:
            ways.append(lm.cost[ngram] + least(longest_context(ngram), rest[1:]))
        if history:
            pay = lm.backoff.get(history, 0.0)
            ways.append(pay + least(longest_context(history[1:]), rest))
        elif word in oov:
            ways.append(oov[word] + least((), rest[1:]))
        elif (word,) not in lm.cost and unk_cost is not None and word != EOS:
            ways.append(unk_cost + least((), rest[1:]))
        return min(ways)

    def sentence_cost(words):
        if BOS in words or EOS in words:
            return INF
        return least(longest_context((BOS,)), (*words, EOS))

    return sentence_cost
