"""A language model over the tokens of a set, from what other utterances of it say.

    decoded, held_out = halves(speech)
    spelled = sentences(held_out.references.values(), lexicon, table.names, "<wb>")
    write_token_lm(spelled, tokens_without_blank, path)

For benchmarks of speed where no text and no tool that estimates models can be had. It
is a Witten-Bell model: an n-gram seen in a history h has the probability
(c(hw) + n(h) P(w | shorter h)) / (c(h) + n(h)), with n(h) different tokens seen behind
h; what was not seen backs off with the weight n(h) / (c(h) + n(h)).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.bench.data import SpeechSet
from wfstdec.text.files import atomic_write
from wfstdec.text.lexicon import Lexicon

ORDER = 6
_BEGIN, _END = "<s>", "</s>"
_NEVER = -99.0
"""What ARPA files say of a token that no history has behind it."""

Gram = tuple[str, ...]


def halves(speech: SpeechSet) -> tuple[SpeechSet, SpeechSet]:
    """Every other utterance, and those between: to decode, and to learn from."""
    names = list(speech.logprobs)
    return speech.take(names[::2]), speech.take(names[1::2] or names)


def sentences(
    references: Iterable[Sequence[str]],
    lexicon: Lexicon,
    names: Sequence[str],
    separator: str | None,
) -> list[list[str]]:
    """Spell references as tokens, a word by its first pronunciation.

    Args:
        references: Words of each.
        lexicon: Pronunciations; words that it lacks are left out.
        names: The token table's.
        separator: The token between words.
    """
    spelled: dict[str, list[str]] = {}
    for word, spelling in zip(lexicon.words, lexicon.pronunciations, strict=True):
        spelled.setdefault(word, [names[token] for token in spelling])
    between = [] if separator is None else [separator]
    found = []
    for words in references:
        known = [spelled[word] for word in words if word in spelled]
        found.append([token for one in known for token in (*one, *between)])
    return [tokens[: len(tokens) - len(between)] for tokens in found if tokens]


def write_token_lm(
    spelled: Sequence[Sequence[str]], tokens: Iterable[str], path: Path
) -> None:
    """Write a model of order `ORDER` as an ARPA file.

    Args:
        spelled: Sentences to count.
        tokens: All that there are but the blank; each gets a probability.
        path: The file.
    """
    behind: defaultdict[Gram, Counter[str]] = defaultdict(Counter)
    for sentence in spelled:
        marked = (_BEGIN, *sentence, _END)
        for end in range(1, len(marked)):
            for length in range(min(ORDER, end + 1)):
                behind[marked[end - length : end]][marked[end]] += 1
    everyone = [*tokens, _END]
    levels: list[dict[Gram, float]] = [{} for _ in range(ORDER)]
    seen, types = behind[()].total(), len(behind[()])
    for token in everyone:
        share = types / len(everyone)
        levels[0][(token,)] = (behind[()][token] + share) / (seen + types)
    for history in sorted(behind, key=lambda one: (len(one), one)):
        counts = behind[history] if history else Counter()
        n, total = len(counts), counts.total()
        for token, count in counts.items():
            shorter = levels[len(history) - 1][(*history[1:], token)]
            levels[len(history)][(*history, token)] = (count + n * shorter) / (
                total + n
            )
    levels[0][(_BEGIN,)] = 0.0
    lines = ["\\data\\"]
    lines += [f"ngram {n}={len(one)}" for n, one in enumerate(levels, 1) if one]
    for order, level in enumerate(levels, 1):
        lines += ["", f"\\{order}-grams:"] if level else []
        for gram, probability in sorted(level.items()):
            logprob = math.log10(probability) if probability else _NEVER
            line = f"{logprob:.6f}\t{' '.join(gram)}"
            if order < ORDER and gram in behind:
                n, total = len(behind[gram]), behind[gram].total()
                line += f"\t{math.log10(n / (n + total)):.6f}"
            lines.append(line)
    with atomic_write(path, "w") as file:
        file.write("\n".join([*lines, "", "\\end\\", ""]))
