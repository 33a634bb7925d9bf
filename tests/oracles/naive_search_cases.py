"""Random small cases for the trie decoder's oracle, and what the library needs of them.

case = random_case(np.random.default_rng(17), kind="separator")
texts = naive_search.best_texts(case, "sum")
decoder = TrieDecoder(**decoder_arguments(case), options=TrieOptions(**case.options))
hyps = decoder.decode([case.logprobs], boosts=decoder_boosts(case, decoder.words))
"""

import io
import itertools
import warnings
from dataclasses import replace
from typing import Any

import naive_cases
import naive_lm
import numpy as np
from naive_phrases import Phrases
from naive_search import PIECE_START, Case

from wfstdec import (
    Boosts,
    Lexicon,
    PhraseCompiler,
    PhraseOptions,
    read_arpa,
    token_table,
)
from wfstdec.boost.phrases import by_lexicon, by_words
from wfstdec.errors import BoostWarning

WITH_LEXICON = ("none", "separator", "separator_optional")
"""Kinds of cases by what is between the words of the lexicon."""
WITHOUT_LEXICON = ("tokens", "tokens_separator", "pieces")
"""Kinds without one: tokens are words, are split at one of them, or at U+2581."""
KINDS = WITH_LEXICON + WITHOUT_LEXICON
BOOSTS = ("no", "words", "typed", "word_phrases", "token_phrases")
"""What is boosted; `typed` is words and phrases in one mapping."""
UNKNOWN_WORD = "unheard"
_PIECES = {"a": PIECE_START + "a", "b": "b", "c": PIECE_START, "d": "cd"}
_MOST_FRAMES = {3: 6, 4: 6, 5: 5}


def random_case(
    rng,
    *,
    kind=None,
    boosts=None,
    num_tokens=None,
    num_frames=None,
    easy_lm=False,
    plain=False,
):
    """Draw a case; easy_lm: no explicit n-gram costs more than back-off."""
    kind = kind or str(rng.choice(KINDS))
    num_tokens = num_tokens or int(rng.choice([3, 4, 4, 5]))
    if num_frames is None:
        fewer = int(rng.choice([0, 0, 0, 0, 1, 2, 3, 4, 5, 6]))
        num_frames = max(0, _MOST_FRAMES[num_tokens] - fewer)
    ties = bool(rng.random() < 0.3)
    fillers = "separator" if "separator" in kind else "none"
    tokens, blank, separator, letters = naive_cases.random_tokens(
        rng, num_tokens, fillers
    )
    if kind == "pieces":
        tokens = [_PIECES.get(token, token) for token in tokens]
        letters = [_PIECES[letter] for letter in letters]
    case = Case(tokens, blank, np.zeros((0, num_tokens)), separator=separator)
    words = [*letters, *filter(None, [separator])]
    if kind in WITH_LEXICON:
        lexicon, has_probs, words = _random_lexicon(rng, letters)
        optional = kind == "separator_optional"
        case = replace(case, lexicon=lexicon, lexicon_has_probs=has_probs)
        case = replace(case, separator_optional=optional)
    case = replace(case, **_random_lm(rng, words, ties=ties, easy=easy_lm))
    case = replace(case, **_random_boosts(rng, case, words, boosts))
    if not plain:
        case = replace(case, options=_random_options(rng, case))
    return replace(case, logprobs=_random_logprobs(rng, case, num_frames, ties=ties))


def _random_lexicon(rng, letters):
    while True:
        lexicon, has_probs, words = naive_cases.random_lexicon(rng, letters)
        if len(words) > 1:
            return lexicon, has_probs, words


def _random_options(rng, case):
    options = naive_cases.random_options(rng)
    options["token_insertion"] = float(rng.choice([0, 0, 0.75, -0.5]))
    if case.lexicon is None:
        del options["word_insertion"]
    return options


def _random_logprobs(rng, case, num_frames, *, ties):
    """Log-probs that often favour a sentence; some -inf, some rows of equals."""
    num_tokens = len(case.tokens)
    hint = _sentence_frames(rng, case, num_frames) if rng.random() < 0.8 else []
    x = naive_cases.random_logprobs(rng, num_frames, num_tokens, ties=ties, hint=hint)
    if rng.random() < 0.4:
        x *= 2  # surer of it, and no longer of sum 1
    if rng.random() < 0.1:
        x[rng.random(x.shape) < 0.4] = -np.inf
    if rng.random() < 0.2:
        x[rng.random(num_frames) < 0.5] = -np.log(np.float32(num_tokens))
    return x


def _sentence_frames(rng, case, num_frames):
    """A token per frame of a random sentence that is cut off at the end."""
    frames: list[int] = []
    letters = [token for token in case.tokens if token != case.blank]
    spelt = [entry.tokens for entry in case.entries] or [(token,) for token in letters]
    after = () if case.lexicon is None or case.separator is None else (case.separator,)
    while len(frames) < num_frames:
        spoken = spelt[rng.integers(len(spelt))]
        if not (case.separator_optional and rng.random() < 0.5):
            spoken += after
        for token in map(case.tokens.index, spoken):
            if frames[-1:] == [token] or rng.random() < 0.1:
                frames.append(case.tokens.index(case.blank))
            frames += [token] * int(rng.choice([1, 2], p=[0.85, 0.15]))
    return frames[:num_frames]


def _random_lm(rng, words, *, ties, easy):
    if easy:
        arpa = easy_arpa(rng, words)
    elif rng.random() < 0.15:
        return {}
    else:
        arpa, _ = naive_cases.random_arpa(rng, words, ties=ties)
    unk_cost = float(rng.choice([0.5, 4.0])) if rng.random() < 0.4 else None
    return {"arpa": arpa, "unk_cost": unk_cost}


def easy_arpa(rng, words):
    """ARPA text where taking an explicit n-gram never costs more than backing off.

    An n-gram costs less than backing off to its suffix would, by more than its own
    back-off costs: nor does the next step from the shorter history make up for it.
    """
    known = [word for word in words if rng.random() < 0.8] or list(words[:1])
    sections = [{(word,): rng.uniform(-3, -2.1) for word in (*known, "</s>")}]
    sections[0][("<s>",)] = -99.0
    backoff: dict[naive_lm.Words, float] = {}
    for _ in range(int(rng.integers(0, 3))):
        section = {}
        for history, word in itertools.product(sections[-1], (*known, "</s>")):
            shorter = sections[-1].get((*history[1:], word))
            if history[-1] != "</s>" and shorter is not None and rng.random() < 0.6:
                back = backoff.setdefault(history, -rng.uniform(0, 0.5))
                section[(*history, word)] = back + shorter + rng.uniform(0.55, 1)
        if not section:
            break
        sections.append(section)
    text = "\\data\\\n"
    text += "".join(f"ngram {n}={len(s)}\n" for n, s in enumerate(sections, 1))
    for n, section in enumerate(sections, 1):
        rows = []
        for gram, value in section.items():
            last = f"\t{backoff[gram]:.5f}" if gram in backoff else ""
            rows.append(f"{value:.5f}\t{' '.join(gram)}{last}\n")
        text += f"\n\\{n}-grams:\n{''.join(rows)}"
    return f"{text}\n\\end\\\n"


def _random_boosts(rng, case, words, kind):
    """Arguments for a case: `boosts`, `phrases`, both or none."""
    if kind is None:
        kind = str(rng.choice(BOOSTS))
    if case.lexicon is None:
        if kind == "no":
            return {}
        return {"phrases": random_token_phrases(rng, case, words)}
    if kind == "typed":
        texts = [_random_phrase(rng, words, 1) for _ in range(rng.integers(1, 4))]
        texts += [_random_phrase(rng, words, 3) for _ in range(rng.integers(1, 4))]
        return {"boosts": {text: _random_bonus(rng) for text in texts}}
    made: dict[str, Any] = {}
    if kind == "words" or kind != "no" and rng.random() < 0.3:
        made["boosts"] = {w: _random_bonus(rng) for w in words if rng.random() < 0.5}
    if kind == "word_phrases":
        made["phrases"] = random_word_phrases(rng, case, words)
    if kind == "token_phrases":
        made["phrases"] = random_token_phrases(rng, case, words)
    return made


def _random_bonus(rng):
    return float(rng.choice([0.5, 2.0, 3.7, -1.0]))


def _random_phrase(rng, words, most):
    return " ".join(rng.choice(words, size=rng.integers(1, most + 1)))


def _random_weights(rng, words):
    """Phrases of one to three words, now and then an unknown one."""
    texts = [_random_phrase(rng, words, 3) for _ in range(rng.integers(1, 5))]
    if rng.random() < 0.1:
        texts.append(f"{words[0]} {UNKNOWN_WORD}")
    return {text: float(rng.choice([1, 1, 0.5, 2, -1])) for text in texts}


def _random_amounts(rng):
    options: dict[str, Any] = {
        "c0": float(rng.choice([1, 0.3, 2])),
        "beta": float(rng.choice([2, 1, 0])),
        "uniform": bool(rng.random() < 0.3),
        "weights_are_totals": bool(rng.random() < 0.2),
    }
    return options


def random_word_phrases(rng, case, words):
    weights, known = _random_weights(rng, words), word_table(case)
    spellings = {
        text: [tuple(text.split())] if set(text.split()) <= set(known) else []
        for text in weights
    }
    options = _random_amounts(rng)
    return Phrases(weights, "word", options, spellings)


def random_token_phrases(rng, case, words):
    """Phrases of words of the lexicon; without one they are tokens."""
    weights = _random_weights(rng, words)
    bounded = case.lexicon is not None and case.separator is not None
    bounded = bounded and bool(rng.random() < 0.7)
    options = _random_amounts(rng)
    if case.lexicon is not None:
        boundary = case.separator if bounded else None
        return Phrases(weights, "token", options, boundary=boundary)
    spellings = {}
    for text in weights:
        others = [text] if rng.random() < 0.7 else [text, _random_phrase(rng, words, 3)]
        spellings[text] = [tuple(t.split()) for t in others if UNKNOWN_WORD not in t]
    return Phrases(weights, "token", options, spellings)


def decoder_arguments(case):
    table = token_table(case.tokens, case.blank)
    arguments: dict[str, Any] = {"tokens": table}
    if case.arpa is not None:
        arguments["lm"] = read_arpa(io.StringIO(case.arpa))
        arguments["unk_cost"] = case.unk_cost
    if case.lexicon is not None:
        arguments["lexicon"] = library_lexicon(case, table)
        arguments["separator_optional"] = case.separator_optional
    return arguments | {"separator": case.separator}


def word_table(case):
    """The words that a decoder has: of the lexicon those that the model can score."""
    words = dict.fromkeys(entry.word for entry in case.entries)
    if case.arpa is not None and case.unk_cost is None:
        known = naive_lm.parse_arpa(case.arpa).cost
        words = {word: None for word in words if (word,) in known}
    return ("<eps>", *words)


def library_lexicon(case, table):
    words, names, costs = zip(*case.entries, strict=True)
    pronunciations = tuple(tuple(map(table.index, tokens)) for tokens in names)
    return Lexicon(words, pronunciations, np.array(costs, np.float32))


def decoder_boosts(case, words):
    """Boosts as decoders take them; `words` is their word table."""
    if case.phrases is None:
        return case.boosts or None
    table = token_table(case.tokens, case.blank)
    phrases, boundary = case.phrases, case.phrases.boundary
    compiler = PhraseCompiler(
        _speller(case, words, table),
        words if phrases.unit == "word" else table,
        PhraseOptions(**phrases.options),
        boundary=None if boundary is None else table.index(boundary),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoostWarning)  # an unknown word
        compiled = compiler.compile(phrases.weights)
    return Boosts(case.boosts, compiled) if case.boosts else compiled


def _speller(case, words, table):
    """The library's own, or without a lexicon the case's spellings."""
    assert case.phrases is not None
    if case.phrases.unit == "word":
        return by_words({word: i for i, word in enumerate(words) if i})
    if case.lexicon is not None:
        return by_lexicon(
            library_lexicon(case, table),
            separator=None if case.separator is None else table.index(case.separator),
            separator_optional=case.separator_optional,
        )
    spellings = case.phrases.spellings
    return lambda texts: [
        [tuple(map(table.index, spelt)) for spelt in spellings[text]] for text in texts
    ]


LEXICON = "see s e e\nsea s e a\n"


def says(text, tokens, p=0.97):
    """Log-probs of frames that are probably the characters of a text."""
    x = np.full((len(text), len(tokens)), (1 - p) / (len(tokens) - 1))
    x[np.arange(len(text)), [tokens.index(c) for c in text]] = p
    return np.log(x).astype(np.float32)


def hand(text, tokens="-seaxy", **fields):
    """A case in which the frames are probably those of a text."""
    return Case(list(tokens), "-", says(text, list(tokens)), **fields)
