"""The oracle where lists add words, and pronunciations: they are words of its lexicon.

Inside, a word with a pronunciation of a list has a name of its own, since its cost is
not that of the same word of the lexicon: `<unk>` of the model, or `unk_cost`; or, of a
word that the lexicon has, its unigram. It is scored in the empty history, and leads
back to it.
"""

from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

import naive
import naive_lm
from naive_cases import LM_ONLY_NAMES, random_case

NEW_NAMES = ("neu", "ab", *LM_ONLY_NAMES)
_MARK = "+"
_OPEN = "\0"


class Listed(NamedTuple):
    """A word of a list with its pronunciation, in token names."""

    word: str
    tokens: tuple[str, ...]
    bonus: float


def random_added_case(rng, **drawn):
    """A case whose model says what unknown words cost, and a list."""
    case = random_case(rng, **drawn)
    if case.unk_cost is None and "<unk>" not in case.arpa:
        case = replace(case, unk_cost=float(rng.choice([0.5, 4.0])))
    entries = naive.parse_lexicon(case.lexicon, case.lexicon_has_probs)
    fillers = {case.blank, case.separator, case.silence}
    letters = [token for token in case.tokens if token not in fillers]
    words = [*NEW_NAMES, *sorted(case.usable_words)]
    bonuses = {word: float(rng.choice([0, 1.5, 6, 30, -1])) for word in NEW_NAMES}
    known = {(entry.word, entry.tokens) for entry in entries}
    listed = {}
    for _ in range(rng.integers(1, 6)):
        word = str(rng.choice(words))
        tokens = tuple(rng.choice(letters, size=rng.choice([1, 2, 3])).tolist())
        if listed and rng.random() < 0.3:
            before = [*listed][rng.integers(len(listed))][1]
            tokens = (before, (*before, tokens[0]))[rng.integers(2)]
        if (word, tokens) not in known:
            bonus = bonuses.get(word, case.boosts.get(word, 0.0))
            listed[word, tokens] = Listed(word, tokens, bonus)
    return case, list(listed.values())


def solve_added(case, listed, opened=()):
    """The oracle's answer; opened: pronunciations of words that all else lacks."""
    lm = naive_lm.parse_arpa(case.arpa)
    lexicon = naive.parse_lexicon(case.lexicon, case.lexicon_has_probs)
    unknown = lm.cost.get(("<unk>",), case.unk_cost)
    costs, boosts = {}, dict(case.boosts)
    for word, tokens, bonus in listed:
        name = word + _MARK
        costs[name] = unknown
        if word in case.usable_words:
            costs[name] = lm.cost.get((word,), case.unk_cost)
        boosts[name] = bonus
        lexicon.append(naive.Entry(name, tokens))
    for word, tokens, cost in opened:
        costs[_OPEN + word] = unknown
        lexicon.append(naive.Entry(_OPEN + word, tokens, cost))
    best = naive.best(
        case.logprobs,
        tokens=case.tokens,
        blank=case.blank,
        lexicon=lexicon,
        sentence_cost=naive_lm.epsilon_scorer(lm, case.unk_cost, costs),
        topology=case.topology,
        fillers=naive.Fillers(
            case.separator, case.separator_optional, case.silence, case.silence_prob
        ),
        options=naive.Options(**case.options),
        boosts=boosts,
    )
    ties: dict = defaultdict(set)
    for words, times in best.ties.items():
        ties[_texts(words)] |= times
    table: dict = {}
    for words, cost in best.table.items():
        table[_texts(words)] = min(cost, table.get(_texts(words), cost))
    return naive.Best(best.cost, dict(ties), table)


def _texts(words):
    return tuple(word.removesuffix(_MARK).removeprefix(_OPEN) for word in words)
