"""Examination of tokens, lexicon, language model, log-probs and references."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import shlex
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from wfstdec.checks.inputs import Pairs, TokenCounts, blank_doubt, called_separator
from wfstdec.checks.rows import MOST_ROWS, RowKind, kind_of, row_sums, spread
from wfstdec.errors import InputError, LexiconError, TokenTableError
from wfstdec.io.logprobs import open_logprobs
from wfstdec.io.results import read_text
from wfstdec.lazy import checked_types
from wfstdec.metrics import GAP, align
from wfstdec.text.arpa import read_arpa
from wfstdec.text.display import examples
from wfstdec.text.files import read_lines
from wfstdec.text.lexicon import (
    MARKS,
    Lexicon,
    Pronunciation,
    read_lexicon,
    spellable_words,
)
from wfstdec.text.tokens import TokenTable, read_tokens, token_table

Path = str | os.PathLike[str]
Status = Literal["ok", "look", "wrong"]

UTTERANCES = 200  # Number of examined utterances
WORDS_PER_S = 2.7  # Words per second of read speech, including pauses
LIKELY_RATES = 1.5, 4.6  # Likely range of words per second
FRAME_SHIFTS_S = (0.01, 0.02, 0.03, 0.04, 0.06, 0.08)  # Frame shifts of known models
RARE_BLANK = 0.1  # A blank that wins less of the frames is suspicious
OFTEN = 0.02  # A token in no word with at least this share of the tokens is reported
PAIRS = (("lexicon", "LM"), ("references", "lexicon"), ("references", "LM"))
"""Pairs of vocabularies: words of the first that the second lacks are lost."""
CASED = 0.9  # Share of words that decides their case
FOLDED = 0.05  # Gain in coverage that shows a difference in case
FINE, DOUBTFUL = 0.3, 0.6  # Error rates of models that fit, and of those that may
_SEEN, _MOVED = 8, 0.6
"""Occurrences of a token in the references at least, and the share of them at which
another column replaces it.
"""
_WIDTH = 88


@dataclass(frozen=True)
class Finding:
    """Result of one test."""

    name: str  # Subject
    status: Status  # `"ok"`; `"look"`, which needs the user's judgement; `"wrong"`
    text: str  # Fault and remedy


@dataclass(frozen=True)
class Report:
    """Findings, in the order of the page of `str()`."""

    findings: tuple[Finding, ...]  # All findings
    # Suggested command lines with suitable flags
    commands: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Finding:
        return {one.name: one for one in reversed(self.findings)}[name]

    @property
    def is_wrong(self) -> bool:
        """Whether anything is wrong."""
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
            first = "fix what is wrong, then" if self.is_wrong else "take"
            lines += ["", f"{first}:", *(f"  {line}" for line in self.commands)]
        return "\n".join(lines)


def percent(share: float) -> str:
    """Return a share as text: `69 %`, `2.6 %`."""
    return f"{100 * share:.{0 if share >= 0.1 or not share else 1}f} %"


@checked_types
def examine(
    *,
    tokens: Path,
    logprobs: Path,
    lexicon: Path | None = None,
    lm: Path | None = None,
    ref: Path | None = None,
    blank: int | str | None = None,
    separator: str | None = None,
    frame_shift_s: float | None = None,
) -> Report:
    """Examine files to be decoded together, without building a graph.

    Args:
        tokens: Token table of the acoustic model.
        logprobs: Argument of `wfstdec.io.open_logprobs`; the first 200 utterances are
            examined.
        lexicon: Words and their tokens; None if tokens spell the words.
        lm: An ARPA file or a KenLM binary.
        ref: References, `utterance words...` lines.
        blank: Blank by name or index; None to recognise it.
        separator: Token between words; None to detect it.
        frame_shift_s: Seconds per frame; None tries 0.02, then others.

    Returns:
        Findings and command lines. Unreadable files are findings.
    """
    paths = {"--tokens": tokens, "--logprobs": logprobs, "--lexicon": lexicon}
    paths |= {"--lm": lm, "--ref": ref}
    given = {f: os.fspath(path) for f, path in paths.items() if path is not None}
    return _Examination(given, blank, separator, frame_shift_s).report()


@dataclass
class ModelOutput:
    """Best tokens in the frames of some utterances."""

    counts: TokenCounts
    # Tokens of each utterance's runs, including blanks, int64
    runs: dict[str, np.ndarray] = field(default_factory=dict)
    frames: dict[str, int] = field(default_factory=dict)  # Of each utterance
    kinds: Counter[RowKind] = field(default_factory=Counter)  # Of utterances
    # Least and largest ln of the sum of exp(x) of rows
    sums: tuple[float, float] = (math.inf, -math.inf)
    # Shapes of arrays without V columns
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    transposed: int = 0  # Utterances given as [V, T]

    @classmethod
    def of(cls, logprobs: Pairs, num_tokens: int) -> ModelOutput:
        """Examine the first utterances; their log-probs are [T, V]."""
        output = cls(TokenCounts(num_tokens))
        for utterance, array in itertools.islice(logprobs, UTTERANCES):
            # Examined nevertheless: all problems are reported at once.
            if array.shape[1] != num_tokens and array.shape[0] == num_tokens:
                output.transposed += 1
                array = array.T
            if array.shape[1] != num_tokens:
                output.shapes.append(array.shape)
                continue
            kind = kind_of(array)
            if kind is not None:
                output.kinds[kind] += 1
                (low, high), sums = output.sums, row_sums(spread(array, MOST_ROWS))
                output.sums = min(low, float(sums.min())), max(high, float(sums.max()))
            if kind == RowKind.TRANSPOSED:  # a square, with as many frames as tokens
                array = array.T
            output.runs[utterance] = output.counts.add(array)
            output.frames[utterance] = len(array)
        return output

    def texts(self, without: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
        """Yield the tokens of each utterance's greedy path, without some of them."""
        for utterance, runs in self.runs.items():
            yield utterance, runs[~np.isin(runs, without)].tolist()


@dataclass
class _Examination:
    """Examination in progress; unreadable inputs are skipped afterwards."""

    paths: Mapping[str, str]  # Files by flag
    named_blank: int | str | None  # Blank given by the user, or None
    named_separator: str | None
    named_shift_s: float | None
    tokens: TokenTable = field(init=False)
    output: ModelOutput = field(init=False)
    findings: list[Finding] = field(default_factory=list)  # So far
    # Word counts of the vocabularies in `PAIRS`
    words: dict[str, Counter[str]] = field(default_factory=dict)
    between: list[int] = field(default_factory=list)  # Tokens between words
    lexicon: Lexicon | None = None  # Parsed, or None
    # Words of utterances
    references: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Detected arguments in addition to files
    flags: dict[str, str] = field(default_factory=dict)

    def report(self) -> Report:
        """Run all tests, in order of dependency."""
        if self._read_tokens() and self._read_output():
            self._check_blank()
            self._read_lexicon()
            self._check_separator()
            self._check_lexicon()
            self._read_model()
            self._read_references()
            self._check_frame_shift()
            self._check_case()
            self._check_coverage()
            self._count_token_errors()
        return Report(tuple(self.findings), tuple(self._commands()))

    def _add(self, name: str, status: Status, text: object) -> None:
        self.findings.append(Finding(name, status, str(text)))

    def _read(self, name: str, flag: str, read: Callable[[str], Any]) -> Any:
        """Read a file; return None without one, or if it is unreadable."""
        if flag in self.paths:
            try:
                return read(self.paths[flag])
            except InputError as error:
                self._add(name, "wrong", error)
        return None

    def _read_tokens(self) -> bool:
        path = self.paths["--tokens"]
        try:
            self.tokens = read_tokens(path, self.named_blank)
        except InputError as error:
            self._add("tokens", "wrong", error)
            if not isinstance(error, TokenTableError):
                return False
            # A table that does not name its blank is readable: frames determine the
            # token.
            with contextlib.suppress(TokenTableError):
                self.tokens = read_tokens(path, 0)
                self.flags["--blank"] = self.tokens.flag(
                    0
                )  # unless another wins frames
                return True
            return False
        self._add("tokens", "ok", f"{len(self.tokens)} in {path}")
        if self.named_blank is not None:
            self.flags["--blank"] = str(self.named_blank)
        return True

    def _read_output(self) -> bool:
        num_tokens = len(self.tokens)

        def read(path: str) -> ModelOutput:
            return ModelOutput.of(open_logprobs(path), num_tokens)

        output = self._read("log-probs", "--logprobs", read)
        if output is None:
            return False
        self.output, num_frames = output, output.counts.num_frames
        status: Status = "wrong"
        utterances = f"{len(output.runs)} utterances"
        if output.shapes:
            shape, hint = output.shapes[0], "; of another model?"
            if shape[1] == num_tokens + 1:
                hint = f"; the blank comes last and has no name? --blank {num_tokens}"
            text = f"shape {shape}, expected V={num_tokens} as of the tokens{hint}"
        elif output.transposed:
            text = f"{output.transposed} of {utterances} come as [V, T], transpose them"
        elif not num_frames:
            text = "no frames, expected some"
        else:
            text = f"{num_frames:,} frames of {utterances} examined, V={num_tokens}"
            status = "ok"
        self._add("log-probs", status, text)
        if not num_frames:
            return False
        for kind, _ in output.kinds.most_common():
            if kind != RowKind.LOGPROBS:
                self._add("row sums", "wrong", kind.doubt.removeprefix("logprobs: "))
                return True
        low, high = (math.exp(x) for x in output.sums)
        text = f"exp of a row sums to {low:.3f} to {high:.3f}"
        if not output.kinds:
            text = "too few frames to decide"
        self._add("row sums", "ok" if output.kinds else "look", text)
        return True

    def _check_blank(self) -> None:
        tokens, counts = self.tokens, self.output.counts
        if self.named_separator in tokens.ids:
            self.between = [tokens.ids[self.named_separator or ""]]
        other = counts.likely_blank(tokens.blank, self.between)
        if other is not None:
            doubt = blank_doubt(tokens, other).removeprefix("logprobs: ")
            self._add("blank", "wrong", doubt)
            self.flags["--blank"] = tokens.flag(other)
            self.tokens = token_table(tokens.names, other)
            return
        share = counts.frame_share(tokens.blank)
        text = f"{tokens.names[tokens.blank]!r}, token {tokens.blank}, wins "
        text += f"{percent(share)} of the frames"
        text += "" if share >= RARE_BLANK else "; another token (--blank)?"
        self._add("blank", "ok" if share >= RARE_BLANK else "look", text)

    def _read_lexicon(self) -> None:
        path = self.paths.get("--lexicon")
        if path is None:
            return
        separator = self.between[0] if self.between else None
        try:
            self.lexicon = read_lexicon(path, self.tokens, separator=separator)
        except LexiconError as error:
            self._add("lexicon", "wrong", self._lacking_tokens(path) or error)
        except InputError as error:
            self._add("lexicon", "wrong", error)

    def _lacking_tokens(self, path: str) -> str:
        """Return a description of a lexicon's tokens that the table lacks."""
        lacking: Counter[str] = Counter()
        num_entries = num_bad = 0
        for names in _spelt(path):
            # Counted once per entry: the number of affected entries matters.
            bad = dict.fromkeys(n for n in names if n not in self.tokens.ids)
            num_entries, num_bad = num_entries + 1, num_bad + bool(bad)
            lacking.update(bad.keys())
        if not lacking:
            return ""
        named = examples(repr(name) for name, _ in lacking.most_common())
        return (
            f"{num_bad:,} of {num_entries:,} entries use {len(lacking)} tokens that "
            f"the token table lacks: {named}; of another model? It begins with "
            f"{examples(map(repr, self.tokens.names))}"
        )

    def _used_tokens(self) -> set[int]:
        entries = self.lexicon.pronunciations if self.lexicon else ()
        return {token for spelt in entries for token in spelt}

    def _check_separator(self) -> None:
        names, blank = self.tokens.names, self.tokens.blank
        named, counts = self.named_separator, self.output.counts
        if named is not None and not self.between:
            self._add("separator", "wrong", self.tokens.lacks(named))
            return
        if self.lexicon is None and "--lexicon" in self.paths:
            return
        hint = "; is it the one?"
        if not self.between:
            found, hint = counts.unused_tokens(names, blank, self._used_tokens()), ""
            # only names distinguish separators from other tokens
            if self.lexicon is None:
                called = (t for t, name in enumerate(names) if called_separator(name))
                found = [t for t in called if t != blank]
                found = [t for t in found if counts.run_share(t, blank) >= OFTEN]
            if not found:
                self._add("separator", "ok", "none: no token is often between words")
                return
            self.between = found[:1]
            hint = "" if self.lexicon is None else " and no word has it"
            hint += f"; --separator {names[found[0]]!r}"
        [token] = self.between
        share = counts.run_share(token, blank)
        is_fine = named is not None and share >= OFTEN
        text = f"{names[token]!r} is {percent(share)} of the spoken tokens"
        status: Status = "ok" if is_fine else "look"
        self._add("separator", status, text if is_fine else text + hint)
        self.flags["--separator"] = names[token]

    def _check_lexicon(self) -> None:
        lexicon, tokens, counts = self.lexicon, self.tokens, self.output.counts
        if lexicon is None:
            return
        known = {*self._used_tokens(), *self.between, tokens.blank}
        others = sorted(set(range(len(tokens))) - known)
        shares = {token: counts.run_share(token, tokens.blank) for token in others}
        self.words["lexicon"] = Counter(dict.fromkeys(lexicon.words, 1))
        text = f"{len(set(lexicon.words)):,} words, {len(lexicon):,} pronunciations"
        if not shares:
            self._add("lexicon", "ok", f"{text}; all tokens are in some")
            return
        # The most frequent first: words get lost there.
        named = examples(
            f"{tokens.names[token]!r} ({percent(shares[token])} of the spoken tokens)"
            for token in sorted(shares, key=lambda token: -shares[token])
        )
        often = any(share >= OFTEN for share in shares.values())
        text += f"; tokens that no word has: {named}"
        self._add("lexicon", "look" if often else "ok", text)

    def _read_model(self) -> None:
        model = self._read("language model", "--lm", read_arpa)
        if model is None:
            return
        found = f"{len(model.words):,} words, order {model.order}"
        self._add("language model", "ok", found)
        self.words["LM"] = Counter(model.words)

    def _read_references(self) -> None:
        texts, runs = self._read("references", "--ref", read_text), self.output.runs
        if texts is None:
            return
        self.references = {u: words for u, words in texts.items() if u in runs}
        count, num = len(self.references), len(runs)
        text = f"of {count} of the {num} utterances examined"
        if count < num:
            first, other = next(iter(texts)), next(iter(runs))
            text += f"; ids are as {first!r} there, as {other!r} in the log-probs"
        self._add("references", _graded(count, num, 1), text)
        if any(texts.values()):
            counts = (word for words in texts.values() for word in words)
            self.words["references"] = Counter(counts)

    def _check_frame_shift(self) -> None:
        counts, shift_s = self.output.counts, self.named_shift_s or 0.02
        num_words, num_frames = 0, counts.num_frames
        if self.references:
            num_words = sum(map(len, self.references.values()))
            num_frames = sum(map(self.output.frames.__getitem__, self.references))
        elif self.between:  # nearly as many as words
            num_words = int(counts.runs[self.between[0]])
        text = f"{shift_s:g} s" + ("" if self.named_shift_s else " (the default)")
        status: Status = "look"
        if not num_words or not num_frames:
            text += "; without words this cannot be verified"
        else:
            per_frame = num_words / num_frames
            low, high = LIKELY_RATES
            text += f" gives {per_frame / shift_s:.1f} words a second"
            if low <= per_frame / shift_s <= high:
                status = "ok"
            else:
                text += f", speech has {low:g} to {high:g}"
                # By ratio: twice as fast is as far off as half as fast.
                likely = per_frame / WORDS_PER_S
                best = min(FRAME_SHIFTS_S, key=lambda s: abs(math.log(likely / s)))
                if best != shift_s:
                    shift_s = best
                    text += f"; --frame-shift {best:g} gives {per_frame / best:.1f}"
        self._add("frame shift", status, text)
        if shift_s != 0.02:
            self.flags["--frame-shift"] = f"{shift_s:g}"

    def _check_case(self) -> None:
        """Report the case of words, and whether they differ because of it."""
        words = {name: set(some) - MARKS for name, some in self.words.items()}
        words = {name: some for name, some in words.items() if some}
        if len(words) < 2:
            return
        folded = {name: set(map(str.casefold, some)) for name, some in words.items()}
        worst: Status = "ok"
        differ = []
        for one, other in PAIRS:
            if one in words and other in words:
                exact = _share(words[one], words[other])
                without = _share(folded[one], folded[other])
                if without - exact >= FOLDED:
                    is_wrong = worst == "wrong" or exact < without / 2
                    worst = "wrong" if is_wrong else "look"
                    shares = f"{percent(exact)} of {one} in {other}"
                    differ.append(f"{shares}, {percent(without)} without case")
        text = ", ".join(f"{whose} {case_of(some)}" for whose, some in words.items())
        if differ:
            text += f"; {'; '.join(differ)}: write them in one case"
        self._add("case", worst, text)

    def _check_coverage(self) -> None:
        for one, other in PAIRS:
            if not (one in self.words and other in self.words):
                continue
            is_text, known = one == "references", self.words[other]
            counts = Counter(self.words[one])
            for mark in MARKS:
                del counts[mark]
            missing = Counter({w: n for w, n in counts.items() if w not in known})
            share = 1 - missing.total() / max(counts.total(), 1)
            limits = (0.95, 0.8) if is_text else (0.6, 0.1)
            unit = "running words" if is_text else "words"
            text = f"has {percent(share)} of {counts.total():,} {unit} of the {one}"
            if missing:
                often = missing.most_common() if is_text else missing.items()
                named = (f"{w!r}" + f" ({n} times)" * (n > 1) for w, n in often)
                text += f"; {len(missing):,} it lacks: {examples(named)}"
            self._add(f"{one} in {other}", _graded(share, *limits), text)

    def _count_token_errors(self) -> None:
        lexicon, tokens = self.lexicon, self.tokens
        if lexicon is None:
            if "--lexicon" in self.paths:
                return
            separator = self.between[0] if self.between else None
            words = {word for text in self.references.values() for word in text}
            lexicon, _ = spellable_words(words, tokens, separator=separator)
        ways: dict[str, list[Pronunciation]] = defaultdict(list)
        for word, spelt in zip(lexicon.words, lexicon.pronunciations, strict=True):
            ways[word].append(spelt)
        given = {u: t for u, t in self.references.items() if ways.keys() >= set(t)}
        texts = self.output.texts([tokens.blank, *self.between])
        pairs = [(given[u], path) for u, path in texts if u in given]
        counted = [token_errors(words, path, ways) for words, path in pairs]
        self._check_order(
            ([t for word in words for t in ways[word][0]], path)
            for words, path in pairs
        )
        total = sum(count for _, count in counted)
        if not total:
            return
        rate = sum(errors for errors, _ in counted) / total
        status: Status = "ok" if rate < FINE else "look" if rate < DOUBTFUL else "wrong"
        text = (
            f"{percent(rate)} of {total:,} tokens of the references, by the nearest "
            f"pronunciation, in the {len(counted)} utterances whose words all have some"
        )
        if status != "ok":
            text += "; are all files of one model and task?"
        self._add("greedy token errors", status, text)

    def _check_order(self, pairs: Iterable[tuple[list[int], list[int]]]) -> None:
        """Detect tokens that are nearly always recognised as one other token."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for both in pairs:
            for token, other in align(*(list(map(str, one)) for one in both)):
                found[token][other] += 1
        moved = []
        for token, others in sorted(found.items()):
            [(other, count), *_] = others.most_common(1)
            total = others.total()
            # Acoustic confusions involve several tokens.
            if token != other and GAP not in (token, other) and total >= _SEEN:
                if count > _MOVED * total:
                    numbers = int(token), int(other)
                    names = [repr(self.tokens.names[one]) for one in numbers]
                    share = percent(count / total)
                    moved.append(f"{names[0]} as {names[1]} ({share})")
        if moved:
            text = f"the model emits {', '.join(moved[:4])}: the tokens are in another "
            self._add("token order", "wrong", text + "order than its columns")

    def _commands(self) -> list[str]:
        tune, score = [], []
        if "--ref" in self.paths:
            speech = self._line("--logprobs", "--ref")
            tune = [f"wfstdec tune --graph graph.npz {speech}"]
            score = [f"wfstdec score {self._line('--ref')} --hyp hyp.txt"]
        # A graph needs both; without them another decoder takes the rest.
        if not {"--lexicon", "--lm"} <= self.paths.keys():
            decoder = "trie" if "--lexicon" in self.paths else "greedy"
            given = self._line("--tokens", "--lexicon", "--lm", "--separator")
            more = self._line("--blank", "--logprobs", "--frame-shift")
            decode = f"wfstdec decode --decoder {decoder} {given} {more}"
            return [f"{decode} --output hyp.txt", *score]
        given = self._line("--tokens", "--blank", "--lexicon", "--lm", "--separator")
        more = self._line("--logprobs", "--frame-shift")
        return [
            f"wfstdec build {given} --output graph.npz",
            *tune,
            f"wfstdec decode --graph graph.npz {more} --output hyp.txt",
            *score,
        ]

    def _line(self, *flags: str) -> str:
        given = {**self.paths, **self.flags}
        return shlex.join(x for f in flags if f in given for x in (f, given[f]))


def _graded(share: float, ok: float, look: float) -> Status:
    return "ok" if share >= ok else "look" if share >= look else "wrong"


def _share(words: Collection[str], known: Collection[str]) -> float:
    return sum(word in known for word in words) / len(words)


def case_of(words: Iterable[str]) -> str:
    """Return the case of most words: lower, UPPER, mixed, or none for some scripts."""
    cased = [word for word in words if word.lower() != word.upper()]
    if not cased:
        return "without case"
    if sum(map(str.islower, cased)) >= CASED * len(cased):
        return "lower case"
    if sum(map(str.isupper, cased)) >= CASED * len(cased):
        return "UPPER CASE"
    return "mixed case"


def _spelt(path: str) -> Iterator[list[str]]:
    for line in read_lines(path):
        fields = line.split()[1:]
        if not line.strip() or line.startswith((";;;", "# ")):
            continue
        with contextlib.suppress(ValueError):
            if fields and 0 < float(fields[0]) <= 1:
                del fields[0]
        yield fields


def token_errors(
    words: Sequence[str],
    path: Sequence[int],
    ways: Mapping[str, Sequence[Pronunciation]],
) -> tuple[int, int]:
    """Return token errors of a path against words, and the number of tokens."""
    tokens, places = np.array(path, np.int64), np.arange(len(path) + 1)

    def after(row: np.ndarray, spelt: Pronunciation) -> np.ndarray:
        for token in spelt:
            left_out = row + 1
            left_out[1:] = np.minimum(left_out[1:], row[:-1] + (tokens != token))
            # Insertions: the least of the previous cells, plus one each.
            row = np.minimum.accumulate(left_out - places) + places
        return row

    row = places  # errors to here, by tokens of the path so far
    for word in words:
        row = np.minimum.reduce([after(row, spelt) for spelt in ways[word]])
    return int(row[-1]), sum(len(ways[word][0]) for word in words)
