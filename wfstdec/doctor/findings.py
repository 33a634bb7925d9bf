"""Findings on the output of a model, a lexicon and words, and their page."""

from __future__ import annotations

import contextlib
import itertools
import math
import textwrap
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from wfstdec.checks.inputs import blank_doubt
from wfstdec.checks.rows import MOST_ROWS, RowKind, kind_of, row_sums, spread
from wfstdec.checks.token_counts import TokenCounts, called_separator
from wfstdec.errors import LexiconError
from wfstdec.text.files import read_lines
from wfstdec.text.lexicon import MARKS, Lexicon, Pronunciation
from wfstdec.text.tokens import TokenTable

Status = Literal["ok", "look", "wrong"]

_WIDTH = 88


@dataclass(frozen=True)
class Finding:
    """Something that was looked at."""

    name: str  # What it is about
    status: Status  # `"ok"`; `"look"`, where only the user can tell; `"wrong"`
    text: str  # The fault, and its remedy


@dataclass(frozen=True)
class Report:
    """Findings, in the order of the page that `str()` gives."""

    findings: tuple[Finding, ...]  # All of them
    # Command lines to take, with the flags that were found
    commands: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Finding:
        """The finding of this name."""
        return {one.name: one for one in reversed(self.findings)}[name]

    @property
    def is_wrong(self) -> bool:
        """Tell whether anything is wrong."""
        return any(finding.status == "wrong" for finding in self.findings)

    def __str__(self) -> str:
        width = max(len(finding.name) for finding in self.findings)
        lines = []
        for finding in self.findings:
            head = f"{finding.name:{width}}  {finding.status:5}  "
            lines += textwrap.wrap(
                head + finding.text, _WIDTH, subsequent_indent=" " * len(head)
            )
        if self.commands:
            first = "mend what is wrong, then" if self.is_wrong else "take"
            lines += ["", f"{first}:", *(f"  {line}" for line in self.commands)]
        return "\n".join(lines)


def percent(share: float) -> str:
    """A share for people: `69 %`, `2.6 %`."""
    return f"{100 * share:.{0 if share >= 0.1 or not share else 1}f} %"


def examples(names: Iterable[object], most: int = 5) -> str:
    """The first few of these, and whether there are more."""
    listed = list(map(str, names))
    return ", ".join(listed[:most]) + (", ..." if len(listed) > most else "")


UTTERANCES = 200
"""Utterances that are examined."""
WORDS_PER_S = 2.7
"""Words per second of read speech, its pauses included."""
LIKELY_RATES = 1.3, 4.6
"""Words per second that people say."""
FRAME_SHIFTS_S = (0.01, 0.02, 0.03, 0.04, 0.06, 0.08)
"""Frames that models have."""
RARE_BLANK = 0.1
"""A blank that wins less of the frames is one to look at."""

Pairs = Iterable[tuple[str, np.ndarray]]


@dataclass
class ModelOutput:
    """Tokens that win in the frames of some utterances."""

    counts: TokenCounts
    # The tokens of each utterance's runs, blanks too, int64
    runs: dict[str, np.ndarray] = field(default_factory=dict)
    frames: dict[str, int] = field(default_factory=dict)  # Of each utterance
    kinds: Counter[RowKind] = field(default_factory=Counter)  # Of utterances
    # The least and the largest ln of the sum of exp(x) of rows
    sums: tuple[float, float] = (math.inf, -math.inf)
    # Shapes of arrays that have not V columns
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    transposed: int = 0  # Utterances that came as [V, T]

    @classmethod
    def of(cls, logprobs: Pairs, num_tokens: int) -> ModelOutput:
        """Examine the first utterances; their log-probs are [T, V]."""
        output = cls(TokenCounts(num_tokens))
        for utterance, array in itertools.islice(logprobs, UTTERANCES):
            output._add(utterance, array)
        return output

    def _add(self, utterance: str, array: np.ndarray) -> None:
        num_tokens = len(self.counts.frames)
        # Examined nevertheless: all that is wrong is reported at once.
        if array.shape[1] != num_tokens and array.shape[0] == num_tokens:
            self.transposed += 1
            array = array.T
        if array.shape[1] != num_tokens:
            self.shapes.append(array.shape)
            return
        kind = kind_of(array)
        if kind is not None:
            self.kinds[kind] += 1
            sums = row_sums(spread(array, MOST_ROWS))
            low, high = self.sums
            self.sums = min(low, float(sums.min())), max(high, float(sums.max()))
        if kind == RowKind.TRANSPOSED:  # a square, of as many frames as tokens
            array = array.T
        self.runs[utterance] = self.counts.add(array)
        self.frames[utterance] = len(array)

    def texts(self, without: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
        """The tokens of each utterance's greedy path, but for some of them."""
        for utterance, runs in self.runs.items():
            yield utterance, runs[~np.isin(runs, without)].tolist()


def shape_finding(output: ModelOutput, tokens: TokenTable) -> Finding:
    """Say how many utterances there are, and whether V fits."""
    name, num_tokens = "log-probs", len(tokens)
    if output.shapes:
        found = output.shapes[0]
        hint = "; of another model?"
        if found[1] == num_tokens + 1:
            hint = f"; the blank comes last and has no name? --blank {num_tokens}"
        text = f"shape {found}, expected V={num_tokens} as of the tokens{hint}"
        return Finding(name, "wrong", text)
    if output.transposed:
        count = f"{output.transposed} of {len(output.runs)} utterances"
        text = f"{count} come as [V, T], expected [T, V]; transpose them"
        return Finding(name, "wrong", text)
    if not output.counts.num_frames:
        return Finding(name, "wrong", "no frames, expected some")
    frames = f"{output.counts.num_frames:,} frames of {len(output.runs)} utterances"
    return Finding(name, "ok", f"{frames} looked at, V={num_tokens}")


def rows_finding(output: ModelOutput) -> Finding:
    """Say what rows sum to."""
    name = "row sums"
    wrong = [kind for kind, _ in output.kinds.most_common() if kind != RowKind.LOGPROBS]
    if wrong:
        return Finding(name, "wrong", wrong[0].doubt.removeprefix("logprobs: "))
    if not output.kinds:
        return Finding(name, "look", "too few frames to tell")
    low, high = (math.exp(x) for x in output.sums)
    return Finding(name, "ok", f"exp of a row sums to {low:.3f} to {high:.3f}")


def blank_finding(
    output: ModelOutput, tokens: TokenTable, other: int | None
) -> Finding:
    """Say what share of the frames the blank wins."""
    name, counts, blank = "blank", output.counts, tokens.blank
    if other is not None:
        doubt = blank_doubt(tokens, other).removeprefix("logprobs: ")
        return Finding(name, "wrong", doubt)
    share = counts.frame_share(blank)
    text = (
        f"{tokens.names[blank]!r}, token {blank}, wins {percent(share)} of the frames"
    )
    if share >= RARE_BLANK:
        return Finding(name, "ok", text)
    return Finding(name, "look", f"{text}; long frames, or another token (--blank)?")


def frame_shift_finding(
    num_words: int, num_frames: int, given_s: float | None
) -> tuple[Finding, float]:
    """Say whether seconds per frame (None: 0.02) give a rate at which people speak."""
    name, shift_s = "frame shift", given_s or 0.02
    taken = f"{shift_s:g} s" + ("" if given_s else " (the default)")
    if not num_words or not num_frames:
        text = f"{taken}; without words nothing tells whether that is so"
        return Finding(name, "look", text), shift_s
    per_frame = num_words / num_frames
    text = f"{taken} gives {per_frame / shift_s:.1f} words a second"
    low, high = LIKELY_RATES
    if low <= per_frame / shift_s <= high:
        return Finding(name, "ok", text), shift_s
    # By ratio: twice as fast is as far off as half as fast.
    best = min(FRAME_SHIFTS_S, key=lambda s: abs(math.log(per_frame / s / WORDS_PER_S)))
    rate = f"people say {low:g} to {high:g}"
    if best == shift_s:
        return Finding(name, "look", f"{text}, {rate}"), shift_s
    guess = f"--frame-shift {best:g} gives {per_frame / best:.1f}"
    return Finding(name, "look", f"{text}, {rate}; {guess}"), best


OFTEN = 0.02
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
    lexicon: Lexicon, tokens: TokenTable, between: Collection[int], counts: TokenCounts
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
    often = any(share >= OFTEN for share in shares.values())
    text += f"; tokens that no word has: {named}"
    return Finding("lexicon", "look" if often else "ok", text)


def separator_finding(
    tokens: TokenTable,
    counts: TokenCounts,
    given: int | None,
    used: Collection[int] | None,
) -> tuple[Finding, int | None]:
    """Say whether words, of the tokens `used`, are separated by a token."""
    name, names, blank = "separator", tokens.names, tokens.blank
    if given is not None:
        share = counts.run_share(given, blank)
        text = f"{names[given]!r} is {percent(share)} of what is said"
        if share < OFTEN:
            text += "; is it the one?"
        return Finding(name, "ok" if share >= OFTEN else "look", text), given
    # Without a lexicon only the name tells a separator from any frequent token.
    if used is None:
        called = [t for t, n in enumerate(names) if called_separator(n) and t != blank]
        found = [t for t in called if counts.run_share(t, blank) >= OFTEN]
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
        fields = line.split()[1:]
        if not line.strip() or line.startswith((";;;", "# ")):
            continue
        with contextlib.suppress(ValueError):
            if fields and 0 < float(fields[0]) <= 1:
                del fields[0]
        yield fields


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
        folded = _share(
            *({word.casefold() for word in counts[name]} for name in (one, other))
        )
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


def _share(words: Collection[str], known: Collection[str]) -> float:
    return sum(word in known for word in words) / len(words)
