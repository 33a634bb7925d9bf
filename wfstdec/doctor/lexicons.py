"""Find what does not fit between a lexicon, the tokens, and what the model says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from wfstdec.checks.said import Said, called_separator
from wfstdec.doctor.report import Finding, examples, percent
from wfstdec.errors import LexiconError
from wfstdec.text.files import read_lines
from wfstdec.text.lexicon import Lexicon
from wfstdec.text.symbols import TokenTable

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
    said: Said,
) -> Finding:
    """Say how many words there are, and which tokens no word has."""
    heard = {token for way in lexicon.pronunciations for token in way}
    idle = [
        token
        for token in range(len(tokens))
        if token not in heard and token not in between and token != tokens.blank
    ]
    text = f"{len(set(lexicon.words)):,} words, {len(lexicon):,} pronunciations"
    if not idle:
        return Finding("lexicon", "ok", f"{text}; all tokens are in some")
    shares = {token: said.run_share(token, tokens.blank) for token in idle}
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
    tokens: TokenTable, said: Said, given: int | None, heard: Collection[int] | None
) -> tuple[Finding, int | None]:
    """Say whether words are separated by a token.

    Args:
        tokens: The tokens.
        said: What is said.
        given: The separator that the user names.
        heard: The tokens of words; None without a lexicon.

    Returns:
        The finding, and the token between words to take.
    """
    name, names, blank = "separator", tokens.names, tokens.blank
    if given is not None:
        share = said.run_share(given, blank)
        text = f"{names[given]!r} is {percent(share)} of what is said"
        if share < SAID_OFTEN:
            text += "; is it the one?"
        return Finding(name, "ok" if share >= SAID_OFTEN else "look", text), given
    # Without a lexicon only the name tells a separator from any frequent token.
    if heard is None:
        called = [t for t, n in enumerate(names) if called_separator(n) and t != blank]
        found = [t for t in called if said.run_share(t, blank) >= SAID_OFTEN]
    else:
        found = said.unheard(names, blank, heard)
    if not found:
        return Finding(name, "ok", "none: no token is said often between words"), None
    token = found[0]
    won = percent(said.run_share(token, blank))
    where = "" if heard is None else " and no word has it"
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
