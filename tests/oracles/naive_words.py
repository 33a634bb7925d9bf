"""The oracle of added and open words: all readings of tokens, by the definitions.

    case = random_case(rng, tokens="pieces")            # a `WordCase`
    texts = best_texts(case, "sum")                     # `Text`s, best first

A word is read by an entry of the lexicon, by a pronunciation that a list gives it, or
openly: by any tokens that spell something and that no entry of the lexicon has. Spelled
like a word of the lexicon it is that word; spelled like a word of the list it is none;
else it costs what `<unk>` does, an amount for the word and one for each token.
"""

import functools
from dataclasses import dataclass, field, replace

import naive_cases
import naive_lm
import naive_search
import naive_search_cases
from naive_open import text_of
from naive_search import PIECE_START, Case, Options, Reading

from wfstdec import BoostEntry, Boosts, OpenVocabulary

TOKENS = ("letters", "pieces", "phones", "joined_phones")
"""What tokens are; `joined_phones` have nothing between words."""
_PIECES = {"a": PIECE_START + "a", "b": "b", "c": PIECE_START, "d": "ab"}
_OPEN = "\0"
BOOSTS = ("no", "typed", "word_phrases", "token_phrases")
"""What is boosted in addition to added words."""


@dataclass(frozen=True)
class WordCase:
    """A case with a lexicon, or spelled, and more words.

    said: word -> the pronunciations that the list gives; bonuses of words and phrases
    are `case.boosts`. spelled: the lexicon of the case is made by the decoder.
    """

    case: Case
    tokens: str
    said: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    open_costs: tuple[float, float] | None = None
    spelled: bool = False

    @property
    def table(self):
        return naive_search_cases.word_table(self.case)

    @property
    def entries(self):
        return [entry for entry in self.case.entries if entry.word in self.table]


def open_text(case, tokens):
    """Spell tokens as text; None where they are no open word."""
    barred = {case.case.blank, case.case.separator}
    if not tokens or barred & set(tokens):
        return None
    spelled = case.tokens in ("letters", "pieces")
    return text_of(tokens, case.tokens if spelled else "phones")


def segments(case, tokens):
    """All ways to pronounce one word: word, known to the model, cost."""
    known = [(e.word, True, e.cost) for e in case.entries if e.tokens == tokens]
    found = list(known)
    new = [word for word in case.said if word not in case.table]
    for word, ways in case.said.items():
        if tokens in ways and word not in {one for one, _, _ in known}:
            found.append((word, word not in new, 0.0))
    text = open_text(case, tokens)
    if case.open_costs is not None and text is not None and not known:
        per_word, per_token = case.open_costs
        if text in case.table[1:]:
            found.append((text, True, 0.0))
        elif text not in new:
            cost = per_word + per_token * len(tokens)
            found.append((_OPEN + text, False, cost))
    return found


def readings(case, tokens):
    """All ways to read tokens: pieces (word or None, known, length), and the cost."""
    separator, optional = case.case.separator, case.case.separator_optional
    bound = separator is not None and not optional

    @functools.cache
    def parse(start, after_word):
        found = [((), 0.0)] if start == len(tokens) else []
        if start < len(tokens) and tokens[start] == separator:
            rest = parse(start + 1, False)
            found += [(((None, True, 1), *pieces), cost) for pieces, cost in rest]
        if after_word and bound:
            return found
        for end in range(start + 1, len(tokens) + 1):
            for word, known, cost in segments(case, tokens[start:end]):
                for pieces, more in parse(end, True):
                    piece = (word, known, end - start)
                    found.append(((piece, *pieces), cost + more))
        return found

    return parse(0, False)


def reader(case):
    """A function tokens -> `Reading`s, with all costs."""
    options, score = Options(**case.case.options), _scorer(case.case)
    booster = naive_search.booster(case.case)

    def read(tokens):
        found = []
        for pieces, cost in readings(case, tokens):
            spoken = [(word, known) for word, known, _ in pieces if word is not None]
            words = tuple(word for word, _ in spoken)
            graph = cost + score(tuple(spoken))
            insertion = options.word_insertion * len(words)
            insertion += options.token_insertion * len(tokens)
            boost = booster(words, tokens)
            text = tuple(word.removeprefix(_OPEN) for word in words)
            spans = tuple((word, length) for word, _, length in pieces)
            found.append(Reading(text, graph, insertion, boost, spans))
        return [one for one in found if one.graph < naive_lm.INF]

    return read


def _scorer(case):
    """The language model's cost of words, those it does not know being `<unk>`."""
    if case.arpa is None:
        return lambda spoken: 0.0
    ngrams = naive_lm.parse_arpa(case.arpa)
    exact = naive_lm.exact_scorer(ngrams, case.unk_cost)
    unknown = naive_lm.UNK if case.unk_cost is None else _OPEN

    @functools.cache
    def score(spoken):
        return exact(tuple(word if known else unknown for word, known in spoken))

    return score


def best_texts(case, merge):
    """Best texts, like `naive_search.best_texts`."""
    return naive_search.best_texts(case.case, merge, reader(case))


def random_case(rng, *, tokens=None, listed=None, opened=None, boosts=None):
    """Draw a case; listed: with words and pronunciations; opened: with open words."""
    tokens = tokens or str(rng.choice(TOKENS))
    if opened is None:
        opened = listed is False or bool(rng.random() < 0.6)
    if listed is None:
        listed = not opened or bool(rng.random() < 0.6)
    kind = "none"
    if tokens in ("letters", "phones"):
        kind = str(rng.choice(["separator", "separator_optional"]))
    drawn = boosts if boosts is not None else str(rng.choice(BOOSTS))
    num_tokens = 4 if tokens == "joined_phones" else int(rng.choice([4, 5]))
    case = naive_search_cases.random_case(
        rng,
        kind=kind,
        boosts="no",
        num_tokens=num_tokens,
        num_frames=int(rng.integers(1, 6)),
    )
    names = [t for t in case.tokens if t not in (case.blank, case.separator)]
    spelled = tokens in ("letters", "pieces")
    if tokens == "pieces":
        renamed = {name: _PIECES[name] for name in names}
        case = replace(case, tokens=[renamed.get(t, t) for t in case.tokens])
        names = [renamed[name] for name in names]
    if spelled:
        case = _spelled(rng, case, names, tokens)
    if case.arpa is not None and case.unk_cost is None and not _has_unk(case):
        case = replace(case, unk_cost=float(rng.choice([0.5, 4.0])))
    made = WordCase(case, tokens)
    if opened:
        costs = float(rng.choice([0, 1.5, -0.7])), float(rng.choice([0, 0.4, 1.3]))
        made = replace(made, open_costs=costs)
    if listed:
        made = _listed(rng, made, names)
    return _boosted(rng, made, drawn)


def _has_unk(case):
    cost = naive_lm.parse_arpa(case.arpa or "").cost
    return cost.get((naive_lm.UNK,), naive_lm.INF) < naive_lm.INF


def _spelled(rng, case, names, tokens):
    """Draw a lexicon of words that are spelled by their tokens."""
    entries = {}
    for _ in range(int(rng.integers(1, 5))):
        spelt = _random_spelling(rng, names, tokens)
        word = "".join(spelt).removeprefix(PIECE_START)
        entries[(word, spelt)] = None
    words = list(dict.fromkeys(word for word, _ in entries))
    lexicon = "".join(f"{word} {' '.join(spelt)}\n" for word, spelt in entries)
    case = replace(case, lexicon=lexicon, lexicon_has_probs=False)
    if case.arpa is None:
        return case
    arpa, _ = naive_cases.random_arpa(rng, words, ties=bool(rng.random() < 0.3))
    return replace(case, arpa=arpa)


def _random_spelling(rng, names, tokens):
    while True:
        spelt = tuple(rng.choice(names, size=rng.integers(1, 4)).tolist())
        if tokens != "pieces" or text_of(spelt, tokens) is not None:
            return spelt


def _listed(rng, made, names):
    """With a list of added words, and of further pronunciations."""
    known = [word for word in made.table[1:] if word != "<unk>"]
    spelled = made.tokens in ("letters", "pieces")
    said: dict[str, list[tuple[str, ...]]] = {}
    for number in range(int(rng.integers(1, 5))):
        ways = [
            _random_spelling(rng, names, made.tokens)
            for _ in range(int(rng.choice([1, 1, 2])))
        ]
        word = f"new{number}"
        if spelled and rng.random() < 0.7:
            word = "".join(ways[0]).removeprefix(PIECE_START)
        if known and rng.random() < 0.25:
            word = str(rng.choice(known))
        if word in made.table and word not in known:
            continue
        has = {e.tokens for e in made.case.entries if e.word == word}
        ways = [way for way in dict.fromkeys(ways) if way not in has]
        if ways:
            said[word] = list(dict.fromkeys([*said.get(word, ()), *ways]))
    return replace(made, said=said)


def _boosted(rng, made, kind):
    boosts = {word: float(rng.choice([0.0, 0.5, 2.0, 6.0, -1.0])) for word in made.said}
    words = [*made.table[1:], *(word for word in made.said if word not in made.table)]
    if kind == "typed" and words:
        for _ in range(int(rng.integers(1, 4))):
            size = int(rng.integers(1, 4))
            text = " ".join(rng.choice(words, size=size))
            boosts[text] = float(rng.choice([0.5, 2.0, 3.7, -1.0]))
    case = replace(made.case, boosts=boosts)
    if kind == "word_phrases":
        drawn = naive_search_cases.random_word_phrases(rng, case, [*made.table[1:]])
        case = replace(case, phrases=drawn)
    if kind == "token_phrases":
        drawn = naive_search_cases.random_token_phrases(rng, case, [*made.table[1:]])
        case = replace(case, phrases=drawn)
    return replace(made, case=case)


def decoder_arguments(made):
    arguments = naive_search_cases.decoder_arguments(made.case)
    if made.open_costs is not None:
        arguments["open_vocabulary"] = OpenVocabulary(*made.open_costs)
    return arguments


def boost_list(made):
    entries = [
        BoostEntry(text, made.said.get(text, ()), bonus)
        for text, bonus in made.case.boosts.items()
    ]
    return entries or None


def decoder_boosts(made):
    phrases, alone = None, replace(made.case, boosts={})
    if made.case.phrases is not None:
        phrases = naive_search_cases.decoder_boosts(alone, made.table)
    return Boosts(boost_list(made) or {}, phrases)
