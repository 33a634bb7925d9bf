"""The oracle of open words in a graph: all spellings, as words of the lexicon.

    case = random_open_case(rng)                 # an `OpenCase`
    best = solve_open(case)

Each sequence of tokens that may be a word is one, at the cost of `<unk>` and that of
its spelling; also one that an entry of the lexicon has.
"""

import itertools
from dataclasses import dataclass, replace

import naive
from naive_added import Listed, random_added_case, solve_added
from naive_cases import Case, random_arpa, random_logprobs

KINDS = ("phones", "letters", "pieces")
START = "\u2581"
_PIECES = {"a": START + "a", "b": "b", "c": START, "d": "ab"}


@dataclass(frozen=True)
class OpenCase:
    """A case, a list of words, what the tokens are, and what open words cost."""

    case: Case
    listed: list[Listed]
    kind: str
    costs: tuple[float, float]


def random_open_case(rng, kind=None, **drawn):
    """Draw a case of one of KINDS; pieces have no separator."""
    fillers = str(drawn.pop("fillers", "none"))
    kind = kind or str(rng.choice(KINDS))
    if kind == "pieces" and fillers.startswith("separator"):
        fillers = "none"
    drawn = {"num_frames": int(rng.choice([0, 2, 3, 4, 5])), "num_tokens": 5} | drawn
    case, listed = random_added_case(rng, fillers=fillers, **drawn)
    if kind != "phones":
        case = _spelled(rng, case, kind)
        listed = []
    costs = float(rng.choice([0, 1.5, -3.0])), float(rng.choice([0, 0.4, 1.3]))
    return OpenCase(case, listed, kind, costs)


def _spelled(rng, case, kind):
    """Draw a lexicon of words that are spelled by their tokens."""
    names = _PIECES if kind == "pieces" else {}
    case = replace(case, tokens=[names.get(token, token) for token in case.tokens])
    usable = [t for t in case.tokens if t in _usable(case)]
    spellings = []
    while len(spellings) < 3:
        spelt = tuple(rng.choice(usable, size=rng.integers(1, 4)).tolist())
        if text_of(spelt, kind) is not None:
            spellings.append(spelt)
    entries = {(text_of(spelt, kind), spelt): None for spelt in spellings}
    words = list(dict.fromkeys(word for word, _ in entries))
    lexicon = "".join(f"{word} {' '.join(spelt)}\n" for word, spelt in entries)
    arpa, _ = random_arpa(rng, words)
    if case.unk_cost is None:
        case = replace(case, unk_cost=4.0)
    return replace(
        case,
        lexicon=lexicon,
        lexicon_has_probs=False,
        arpa=arpa,
        boosts={},
        logprobs=_frames(rng, case, kind),
    )


def _frames(rng, case, kind):
    size, usable = len(case.logprobs), sorted(_usable(case))
    hint: list[int] = []
    while len(hint) < size:
        spelt = tuple(rng.choice(usable, size=rng.integers(1, 5)).tolist())
        if text_of(spelt, kind) is not None:
            end = rng.choice([case.blank, case.separator or case.blank])
            hint += [case.tokens.index(token) for token in (*spelt, str(end))]
    return random_logprobs(rng, size, len(case.tokens), hint=hint[:size])


def _usable(case):
    return set(case.tokens) - {case.blank, case.separator, case.silence}


def text_of(tokens, kind):
    if kind == "phones":
        return f"<{' '.join(tokens)}>"
    text = "".join(tokens)
    if kind == "letters":
        return text
    if text.count(START) != 1 or text[0] != START or text == START:
        return None
    return text[1:]


def spellings(opened):
    """All words of as many tokens as there are frames."""
    usable = [t for t in opened.case.tokens if t in _usable(opened.case)]
    word_cost, token_cost = opened.costs
    found = []
    for length in range(1, len(opened.case.logprobs) + 1):
        for tokens in itertools.product(usable, repeat=length):
            text = text_of(tokens, opened.kind)
            if text is not None:
                cost = word_cost + token_cost * length
                found.append(naive.Entry(text, tokens, cost))
    return found


def solve_open(opened):
    return solve_added(opened.case, opened.listed, spellings(opened))
