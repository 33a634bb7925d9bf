"""The oracle of rescoring: what texts cost under another model, by trying everything.

    best = solve_rescored(case, arpa, options=...)     # a naive.Best; its table has all

All alignments are read as words of the lexicon that the first model has, and then the
second model prices them: by true back-off, as KenLM does. Nothing of the first one's
costs is in the answer. Words of a list are `<unk>` to the model, unless the lexicon has
them; open words always are.

`path_cost` is the same for one path: its tokens and words as they come.
"""

import math
from collections.abc import Mapping, Sequence

import naive
import naive_lm
import numpy as np

OPEN = "<open>"
_MARK, _OPEN = "+", "\0"
_INF = math.inf


def solve_rescored(case, arpa, unk_cost, options, listed=(), opened=()):
    """The oracle's answer; open words are `OPEN`; listed: words of a list."""
    usable, boosts = case.usable_words, dict(case.boosts)
    entries = naive.parse_lexicon(case.lexicon, case.lexicon_has_probs)
    lexicon = [entry for entry in entries if entry.word in usable]
    for word, tokens, bonus in listed:
        boosts[word + _MARK] = bonus
        lexicon.append(naive.Entry(word + _MARK, tokens))
    lexicon += [naive.Entry(_OPEN + w, tokens, cost) for w, tokens, cost in opened]
    score = naive_lm.exact_scorer(naive_lm.parse_arpa(arpa), unk_cost, unk_cost is None)
    fillers = naive.Fillers(
        case.separator, case.separator_optional, case.silence, case.silence_prob
    )

    def price(words):
        known = [word.removesuffix(_MARK) for word in words]
        return score(tuple(word if word in usable else _OPEN for word in known))

    best = naive.best(
        case.logprobs,
        tokens=case.tokens,
        blank=case.blank,
        lexicon=lexicon,
        sentence_cost=price,
        topology=case.topology,
        fillers=fillers,
        options=naive.Options(**{**case.options, **options}),
        boosts=boosts,
        phrase_cost=case.phrases.coster(lexicon, fillers) if case.phrases else None,
    )
    table: dict = {}
    for words, cost in best.table.items():
        text = tuple(OPEN if w[0] == _OPEN else w.removesuffix(_MARK) for w in words)
        table[text] = min(cost, table.get(text, _INF))
    return best._replace(table=table)


def table_of(case):
    entries = naive.parse_lexicon(case.lexicon, case.lexicon_has_probs)
    return [w for w in dict(entries_by_word(entries)) if w in case.usable_words]


def entries_by_word(entries):
    return [(entry.word, entry) for entry in entries]


Said = Mapping[int, Sequence[tuple[tuple[int, ...], float]]]


def path_cost(steps, prons, fillers, complete):
    """Cost of a path's pronunciations; complete: the last word is whole if possible."""
    tokens: tuple[int, ...] = ()
    words: tuple[int, ...] = ()
    cost, lost = 0.0, False
    for token, word in steps:
        tokens += () if token is None else (token,)
        words += () if word is None else (word,)
        if not lost:
            found = min(_begun(tokens, words, prons, fillers), default=_INF)
            lost, cost = not found < _INF, found if found < _INF else cost
        if lost and word is not None:
            cost += _least(word, prons)
    if complete and not lost:
        whole = min(_whole(tokens, words, prons, fillers), default=_INF)
        return whole if whole < _INF else cost
    return cost


def _least(word, prons):
    return min((cost for _, cost in prons.get(word, ())), default=0.0)


def _whole(tokens, words, prons, fillers):
    """Costs of all ways to cut tokens into words, with fillers between."""
    if not tokens and not words:
        yield 0.0
    if tokens and tokens[0] in fillers:
        yield from _whole(tokens[1:], words, prons, fillers)
    for one, cost in prons.get(words[0], ()) if words else ():
        if tokens[: len(one)] == one:
            for rest in _whole(tokens[len(one) :], words[1:], prons, fillers):
                yield cost + rest


def _begun(tokens, words, prons, fillers):
    """Cost where more may follow: words without tokens, or tokens without words."""
    if not words:
        while tokens and tokens[0] in fillers:
            yield 0.0
            tokens = tokens[1:]
        yield 0.0
        return
    if not tokens:
        yield sum(_least(word, prons) for word in words)
        return
    if tokens[0] in fillers:
        yield from _begun(tokens[1:], words, prons, fillers)
    waiting = sum(_least(word, prons) for word in words[1:])
    for one, cost in prons.get(words[0], ()):
        if tokens[: len(one)] == one:
            for rest in _begun(tokens[len(one) :], words[1:], prons, fillers):
                yield cost + rest
        elif one[: len(tokens)] == tokens:
            yield cost + waiting


def pronunciations_in(tables):
    """List a graph's pronunciations as `path_cost` takes them."""
    prons, found = tables.pronunciations, {}
    for i, word in enumerate(np.asarray(prons.word).tolist()):
        tokens = prons.tokens[prons.splits[i] : prons.splits[i + 1]].tolist()
        found.setdefault(word, []).append((tuple(tokens), float(prons.cost[i])))
    return found
