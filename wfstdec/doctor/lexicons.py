"""Examine whether lexicon, tokens and the output of a model fit each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from wfstdec.checks.token_counts import TokenCounts, called_separator
from wfstdec.doctor.report import Finding, Status, examples, percent
from wfstdec.errors import LexiconError
from wfstdec.text.files import read_lines
from wfstdec.text.lexicon import MARKS, Lexicon, Pronunciation
from wfstdec.text.tokens import TokenTable

SAID_OFTEN = 0.02
"""A token without a word that is this share of what is said is one to look at."""


def unread_finding(path: str, tokens: TokenTable, error: LexiconError) -> Finding:
    """Say why a lexicon cannot be read, with all its tokens that the table lacks."""
    lacking: Counter[str] = Counter()
    num_entries = num_bad = 0
    for names in _spelt(path):
        # Counted once an entry: how many entries are concerned is what tells.
        bad = list(dict.fromkeys(name for name in names if name not in tokens.ids))
        num_entries, num_bad = num_entries + 1, num_bad + bool(bad)
        lacking.update(bad)
    if not lacking:
        return Finding("lexicon", "wrong", str(error))
    named = examples(repr(name) for name, _ in lacking.most_common())
    text = (
        f"{num_bad:,} of {num_entries:,} entries use {len(lacking)} tokens that the "
        f"token table lacks: {named}; is it of another model? Its first tokens are "
        f"{examples(repr(name) for name in tokens.names)}"
    )
    return Finding("lexicon", "wrong", text)


def lexicon_finding(
    lexicon: Lexicon,
    tokens: TokenTable,
    between: Collection[int],
    counts: TokenCounts,
) -> Finding:
    """Say how many words there are, and which tokens no word has."""
    used = {token for way in lexicon.pronunciations for token in way}
    idle = [
        token
        for token in range(len(tokens))
        if token not in used and token not in between and token != tokens.blank
    ]
    text = f"{len(set(lexicon.words)):,} words, {len(lexicon):,} pronunciations"
    if not idle:
        return Finding("lexicon", "ok", f"{text}; all tokens are in some")
    shares = {token: counts.run_share(token, tokens.blank) for token in idle}
    # What is said often first: that is where words get lost.
    idle.sort(key=lambda token: -shares[token])
    named = examples(
        f"{tokens.names[token]!r} ({percent(shares[token])} of what is said)"
        for token in idle
    )
    often = any(share >= SAID_OFTEN for share in shares.values())
    text += f"; tokens that no word has: {named}"
    return Finding("lexicon", "look" if often else "ok", text)


def separator_finding(
    tokens: TokenTable,
    counts: TokenCounts,
    given: int | None,
    used: Collection[int] | None,
) -> tuple[Finding, int | None]:
    """Say whether words are separated by a token.

    `used`: the tokens of words; None without a lexicon.
    """
    name, names, blank = "separator", tokens.names, tokens.blank
    if given is not None:
        share = counts.run_share(given, blank)
        text = f"{names[given]!r} is {percent(share)} of what is said"
        if share < SAID_OFTEN:
            text += "; is it the one?"
        return Finding(name, "ok" if share >= SAID_OFTEN else "look", text), given
    # Without a lexicon only the name tells a separator from any frequent token.
    if used is None:
        called = [t for t, n in enumerate(names) if called_separator(n) and t != blank]
        found = [t for t in called if counts.run_share(t, blank) >= SAID_OFTEN]
    else:
        found = counts.unused_tokens(names, blank, used)
    if not found:
        return Finding(name, "ok", "none: no token is said often between words"), None
    token = found[0]
    won = percent(counts.run_share(token, blank))
    where = "" if used is None else " and no word has it"
    text = f"{names[token]!r} is {won} of what is said{where}"
    return Finding(name, "look", f"{text}; --separator {names[token]!r}"), token


def _spelt(path: str) -> Iterator[list[str]]:
    """The names of tokens in each entry, a probability left out."""
    for line in read_lines(path):
        fields = line.split()
        if fields and not line.startswith((";;;", "# ")):
            yield fields[1:] if not _is_number(fields[1:2]) else fields[2:]


def _is_number(fields: list[str]) -> bool:
    try:
        return bool(fields) and 0 < float(fields[0]) <= 1
    except ValueError:
        return False


PAIRS = (("lexicon", "LM"), ("references", "lexicon"), ("references", "LM"))
"""What goes into what: words of the first that the second lacks are lost."""
CASED = 0.9
"""A share of the words that is as good as all."""
FOLDED = 0.05
"""What a coverage gains without case, where case is what it lacks."""
FINE, DOUBTFUL = 0.3, 0.6
"""Error rates of models that fit, and of those that may."""

Ways = Mapping[str, Sequence[Pronunciation]]


def case_findings(words: Mapping[str, Collection[str]]) -> list[Finding]:
    """Say what case words are in, and whether that is why they differ."""
    counts = {name: set(some) - MARKS for name, some in words.items()}
    counts = {name: some for name, some in counts.items() if some}
    if len(counts) < 2:
        return []
    cases = {name: case_of(some) for name, some in counts.items()}
    worst: Status = "ok"
    differ = []
    for one, other in PAIRS:
        if not (one in counts and other in counts):
            continue
        exact = _share(counts[one], counts[other])
        folded = _share(_folded(counts[one]), _folded(counts[other]))
        if folded - exact >= FOLDED:
            worst = "wrong" if exact < folded / 2 else worst
            worst = "look" if worst == "ok" else worst
            differ.append(
                f"{percent(exact)} of {one} in {other}, {percent(folded)} without case"
            )
    text = ", ".join(f"{name} {case}" for name, case in cases.items())
    if differ:
        text += f"; {'; '.join(differ)}: write them in one case"
    return [Finding("case", worst, text)]


def case_of(words: Iterable[str]) -> str:
    """The case of most words: lower, UPPER, or mixed; none of some scripts."""
    cased = [word for word in words if word.lower() != word.upper()]
    if not cased:
        return "without case"
    if sum(map(str.islower, cased)) >= CASED * len(cased):
        return "lower case"
    if sum(map(str.isupper, cased)) >= CASED * len(cased):
        return "UPPER CASE"
    return "mixed case"


def coverage_finding(
    one: str, words: Mapping[str, int], other: str, known: Collection[str]
) -> Finding:
    """Say what share of some words others have, with the words that they lack."""
    counts = Counter({word: n for word, n in words.items() if word not in MARKS})
    missing = Counter({word: n for word, n in counts.items() if word not in known})
    share = 1 - missing.total() / max(counts.total(), 1)
    ok, look = (0.95, 0.8) if one == "references" else (0.6, 0.1)
    status: Status = "ok" if share >= ok else "look" if share >= look else "wrong"
    running = "running words" if one == "references" else "words"
    text = f"has {percent(share)} of {counts.total():,} {running} of the {one}"
    if missing:
        often = missing.most_common() if one == "references" else missing.items()
        named = (f"{w!r}" + (f" ({n} times)" if n > 1 else "") for w, n in often)
        text += f"; {len(missing):,} it lacks: {examples(named)}"
    return Finding(f"{one} in {other}", status, text)


def token_errors(
    words: Sequence[str], counts: Sequence[int], ways: Ways
) -> tuple[int, int] | None:
    """Count the errors of what was said against words."""
    if not all(word in ways for word in words):
        return None
    tokens = np.array(counts, np.int64)
    row = np.arange(len(counts) + 1)  # errors to here, by tokens of `counts` so far
    for word in words:
        row = np.minimum.reduce([_after(row, way, tokens) for way in ways[word]])
    return int(row[-1]), sum(len(ways[word][0]) for word in words)


def _after(row: np.ndarray, way: Pronunciation, counts: np.ndarray) -> np.ndarray:
    """Errors after the tokens of a pronunciation more."""
    places = np.arange(len(row))
    for token in way:
        left_out = row + 1
        left_out[1:] = np.minimum(left_out[1:], row[:-1] + (counts != token))
        # Tokens too many: the least of what is before, and one for each since then.
        row = np.minimum.accumulate(left_out - places) + places
    return row


def error_findings(
    counts: Iterable[tuple[str, Sequence[int]]],
    references: Mapping[str, Sequence[str]],
    lexicon: Lexicon,
) -> list[Finding]:
    """Say the greedy token error rate; nothing where no utterance can be counted."""
    ways: dict[str, list[Pronunciation]] = defaultdict(list)
    for word, tokens in zip(lexicon.words, lexicon.pronunciations, strict=True):
        ways[word].append(tokens)
    found = [
        token_errors(references[utterance], tokens, ways)
        for utterance, tokens in counts
        if utterance in references
    ]
    counted = [one for one in found if one is not None]
    total = sum(tokens for _, tokens in counted)
    if not total:
        return []
    rate = sum(errors for errors, _ in counted) / total
    status: Status = "ok" if rate < FINE else "look" if rate < DOUBTFUL else "wrong"
    text = (
        f"{percent(rate)} of {total:,} tokens of the references, by the nearest "
        f"pronunciation, in the {len(counted)} utterances whose words all have some"
    )
    if status != "ok":
        text += "; are tokens, lexicon, references and log-probs of one model and task?"
    return [Finding("greedy token errors", status, text)]


def _folded(words: Iterable[str]) -> set[str]:
    return {word.casefold() for word in words}


def _share(words: Collection[str], known: Collection[str]) -> float:
    return sum(word in known for word in words) / len(words)
