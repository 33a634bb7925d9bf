"""The oracle of torchaudio's decoder: every alignment of a short utterance.

    score = sum of emissions + sil_score * frames of silence
            + lm_weight * log10 of the words or tokens, the end included
            + word_score * words

An alignment is a token for each frame. With a lexicon whose spellings end in silence it
says a sentence if its tokens, repeats and blanks left out, are spellings one behind the
other with any amount of silence between; the utterance begins in silence. Without one
it says all its tokens, but the silence that it begins with. A sentence has the score of
its best alignment, or the log of the sum of all.
"""

import itertools
import math
from pathlib import Path
from typing import NamedTuple

import naive_lm


class Case(NamedTuple):
    """Input of a decoding, and its options; without a lexicon tokens are decoded."""

    emissions: list
    blank: int
    sil: int
    lexicon: list | None
    arpa: str | None
    names: list
    options: dict


def case_of(arguments, emissions, options):
    tokens, lexicon, arpa = arguments["tokens"], arguments["lexicon"], arguments["lm"]
    entries = None
    if lexicon is not None:
        lines = map(str.split, Path(lexicon).read_text("utf-8").splitlines())
        entries = [(word, [tokens.index(n) for n in spelt]) for word, *spelt in lines]
    return Case(
        emissions=emissions,
        blank=tokens.index("-"),
        sil=tokens.index("|"),
        lexicon=entries,
        arpa=Path(arpa).read_text("utf-8") if arpa else None,
        names=tokens,
        options=options,
    )


def sentences(case):
    num_tokens = len(case.names)
    scores = {}
    for tokens in itertools.product(range(num_tokens), repeat=len(case.emissions)):
        collapsed = spoken(tokens, case)
        ways = [collapsed] if case.lexicon is None else list(segmented(collapsed, case))
        if not ways:
            continue
        score = sum(row[n] for row, n in zip(case.emissions, tokens, strict=True))
        score += case.options["sil_score"] * tokens.count(case.sil)
        for words in ways:
            scores.setdefault(words, []).append(score)
    cost = lm_coster(case)
    total = {
        words: joined(found, case.options["log_add"])
        + case.options["lm_weight"] * cost(words)
        + case.options["word_score"] * (len(words) if case.lexicon else 0)
        for words, found in scores.items()
    }
    return sorted(total.items(), key=lambda item: -item[1])


def spoken(tokens, case):
    """The tokens without repeats and blanks, and without silence held at the start."""
    runs = [token for token, _ in itertools.groupby([case.sil, *tokens])]
    return tuple(token for token in runs[1:] if token != case.blank)


def segmented(left, case):
    """All ways to read tokens as words with silence between, as word tuples."""
    if not left:
        yield ()
        return
    if left[0] == case.sil:
        yield from segmented(left[1:], case)
    for word, spelling in case.lexicon:
        if left[: len(spelling)] == tuple(spelling):
            for rest in segmented(left[len(spelling) :], case):
                yield (word, *rest)


def joined(scores, log_add):
    """The best score, or the log of the sum."""
    best = max(scores)
    if not log_add:
        return best
    return best + math.log(sum(math.exp(score - best) for score in scores))


def lm_coster(case):
    """The log10 of a sentence, `</s>` included."""
    if case.arpa is None:
        return lambda words: 0.0
    ngrams = naive_lm.parse_arpa(case.arpa)
    if ("<unk>",) not in ngrams.cost:  # as KenLM has it
        ngrams.cost["<unk>",] = 100 * math.log(10)
    cost = naive_lm.exact_scorer(ngrams, map_unknown=True)

    def log10(words):
        if case.lexicon is None:
            words = tuple(case.names[token] for token in words)
        return -cost(words) / math.log(10)

    return log10
