"""Examine tokens, lexicon, language model, log-probs and references together."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wfstdec.checks.inputs import blank_doubt
from wfstdec.checks.rows import RowKind
from wfstdec.checks.token_counts import called_separator
from wfstdec.doctor.findings import Finding, Report, Status, examples, percent
from wfstdec.doctor.model_output import ModelOutput
from wfstdec.errors import InputError, LexiconError, TokenTableError
from wfstdec.io.logprobs import open_logprobs
from wfstdec.io.results import read_text
from wfstdec.text.arpa import read_arpa
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

WORDS_PER_S = 2.7
"""Words per second of read speech, its pauses included."""
LIKELY_RATES = 1.3, 4.6
"""Words per second that people say."""
FRAME_SHIFTS_S = (0.01, 0.02, 0.03, 0.04, 0.06, 0.08)
"""Frames that models have."""
RARE_BLANK = 0.1
"""A blank that wins less of the frames is one to look at."""
OFTEN = 0.02
"""A token in no word with at least this share of the spoken tokens is reported."""
PAIRS = (("lexicon", "LM"), ("references", "lexicon"), ("references", "LM"))
"""What goes into what: words of the first that the second lacks are lost."""
CASED = 0.9
"""A share of the words that is as good as all."""
FOLDED = 0.05
"""What a coverage gains without case, where case is what it lacks."""
FINE, DOUBTFUL = 0.3, 0.6
"""Error rates of models that fit, and of those that may."""


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
    """Examine files that are to be decoded together; no graph is built.

    Args:
        tokens: The token table of the acoustic model.
        logprobs: As `wfstdec.io.open_logprobs` takes them; the first 200 utterances
            are looked at.
        lexicon: Words and their tokens; None where words are spelled with the tokens.
        lm: An ARPA file or a KenLM binary.
        ref: What was said, `utterance words...` lines.
        blank: The blank by name or index; None to recognise it.
        separator: The token between words; None to find it.
        frame_shift_s: Seconds per frame; None takes 0.02, and guesses.

    Returns:
        Findings and command lines. A file that cannot be read is a finding too.
    """
    paths = {
        "--tokens": tokens,
        "--logprobs": logprobs,
        "--lexicon": lexicon,
        "--lm": lm,
        "--ref": ref,
    }
    given = {f: os.fspath(path) for f, path in paths.items() if path is not None}
    return _Examination(given, blank, separator, frame_shift_s).report()


@dataclass
class _Examination:
    """An examination under way; what cannot be read is left out after that."""

    paths: Mapping[str, str]  # The files by flag
    named_blank: int | str | None  # What the user knows; or None
    named_separator: str | None
    named_shift_s: float | None
    tokens: TokenTable = field(init=False)
    output: ModelOutput = field(init=False)
    findings: list[Finding] = field(default_factory=list)  # So far
    # How often each word is in what there is of `PAIRS`
    words: dict[str, Counter[str]] = field(default_factory=dict)
    between: list[int] = field(default_factory=list)  # The tokens between words
    lexicon: Lexicon | None = None  # What was read, or None
    # The words of utterances
    references: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # What is to be given beside files, as it was found
    flags: dict[str, str] = field(default_factory=dict)

    def report(self) -> Report:
        """Look at everything, each after what it needs."""
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
        """What a file has; None where there is none, or it cannot be read."""
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
            # A table that does not name its blank can still be read: frames tell which
            # token it is.
            self.flags["--blank"] = "0"  # unless another one wins frames
            try:
                self.tokens = read_tokens(path, 0)
            except TokenTableError:
                return False
            return True
        self._add("tokens", "ok", f"{len(self.tokens)} in {path}")
        if self.named_blank is not None:
            self.flags["--blank"] = str(self.named_blank)
        return True

    def _read_output(self) -> bool:
        """The log-probs: whether V fits, and what rows sum to."""
        num_tokens = len(self.tokens)
        output = self._read(
            "log-probs",
            "--logprobs",
            lambda path: ModelOutput.of(open_logprobs(path), num_tokens),
        )
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
            text = f"{output.transposed} of {utterances} come as [V, T], expected "
            text += "[T, V]; transpose them"
        elif not num_frames:
            text = "no frames, expected some"
        else:
            text = f"{num_frames:,} frames of {utterances} looked at, V={num_tokens}"
            status = "ok"
        self._add("log-probs", status, text)
        if not num_frames:
            return False
        for kind, _ in output.kinds.most_common():
            if kind != RowKind.LOGPROBS:
                self._add("row sums", "wrong", kind.doubt.removeprefix("logprobs: "))
                return True
        if output.kinds:
            low, high = (math.exp(x) for x in output.sums)
            text = f"exp of a row sums to {low:.3f} to {high:.3f}"
            self._add("row sums", "ok", text)
        else:
            self._add("row sums", "look", "too few frames to tell")
        return True

    def _check_blank(self) -> None:
        """Say what share of the frames the blank wins; take the one that should be."""
        tokens, counts = self.tokens, self.output.counts
        if self.named_separator in tokens.ids:
            self.between = [tokens.ids[self.named_separator or ""]]
        other = counts.likely_blank(tokens.blank, self.between)
        if other is not None:
            doubt = blank_doubt(tokens, other).removeprefix("logprobs: ")
            self._add("blank", "wrong", doubt)
            self.flags["--blank"] = str(other)
            self.tokens = token_table(tokens.names, other)
            return
        share = counts.frame_share(tokens.blank)
        text = f"{tokens.names[tokens.blank]!r}, token {tokens.blank}, wins "
        text += f"{percent(share)} of the frames"
        if share >= RARE_BLANK:
            self._add("blank", "ok", text)
        else:
            text += "; long frames, or another token (--blank)?"
            self._add("blank", "look", text)

    def _read_lexicon(self) -> None:
        path, separator = self.paths.get("--lexicon"), None
        if path is None:
            return
        if self.between:
            separator = self.between[0]
        try:
            self.lexicon = read_lexicon(path, self.tokens, separator=separator)
        except LexiconError as error:
            self._add("lexicon", "wrong", self._lacking_tokens(path) or error)
        except InputError as error:
            self._add("lexicon", "wrong", error)

    def _lacking_tokens(self, path: str) -> str:
        """All tokens of a lexicon that the table lacks."""
        lacking: Counter[str] = Counter()
        num_entries = num_bad = 0
        for names in _spelt(path):
            # Counted once an entry: how many entries are concerned is what tells.
            bad = dict.fromkeys(n for n in names if n not in self.tokens.ids)
            num_entries, num_bad = num_entries + 1, num_bad + bool(bad)
            lacking.update(bad.keys())
        if not lacking:
            return ""
        named = examples(repr(name) for name, _ in lacking.most_common())
        return (
            f"{num_bad:,} of {num_entries:,} entries use {len(lacking)} tokens that "
            f"the token table lacks: {named}; is it of another model? Its first tokens "
            f"are {examples(map(repr, self.tokens.names))}"
        )

    def _used_tokens(self) -> set[int]:
        """The tokens of the lexicon's words."""
        entries = self.lexicon.pronunciations if self.lexicon else ()
        return {token for spelt in entries for token in spelt}

    def _check_separator(self) -> None:
        """Say whether words are separated by a token."""
        names, blank = self.tokens.names, self.tokens.blank
        named, counts = self.named_separator, self.output.counts
        if named is not None and not self.between:
            self._add("separator", "wrong", self.tokens.lacks(named))
            return
        if self.lexicon is None and "--lexicon" in self.paths:
            return
        if self.between:
            [token] = self.between
            share = counts.run_share(token, blank)
            text = f"{names[token]!r} is {percent(share)} of the spoken tokens"
            if share >= OFTEN:
                self._add("separator", "ok", text)
            else:
                self._add("separator", "look", f"{text}; is it the one?")
        else:
            where = ""
            if self.lexicon is None:  # only names tell separators from other tokens
                called = [t for t, name in enumerate(names) if called_separator(name)]
                found = [
                    token
                    for token in called
                    if token != blank and counts.run_share(token, blank) >= OFTEN
                ]
            else:
                found = counts.unused_tokens(names, blank, self._used_tokens())
                where = " and no word has it"
            if not found:
                text = "none: no token is said often between words"
                self._add("separator", "ok", text)
                return
            token, won = found[0], percent(counts.run_share(found[0], blank))
            text = f"{names[token]!r} is {won} of the spoken tokens{where}"
            text += f"; --separator {names[token]!r}"
            self._add("separator", "look", text)
        self.between, self.flags["--separator"] = [token], names[token]

    def _check_lexicon(self) -> None:
        """Say how many words there are, and which tokens no word has."""
        lexicon, tokens, counts = self.lexicon, self.tokens, self.output.counts
        if lexicon is None:
            return
        known = {*self._used_tokens(), *self.between, tokens.blank}
        shares = {
            token: counts.run_share(token, tokens.blank)
            for token in range(len(tokens))
            if token not in known
        }
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
        """Say whether seconds per frame give a rate at which people speak."""
        counts, shift_s = self.output.counts, self.named_shift_s or 0.02
        num_words, num_frames = 0, counts.num_frames
        if self.references:
            num_words = sum(map(len, self.references.values()))
            num_frames = sum(self.output.frames[u] for u in self.references)
        elif self.between:  # nearly as many as words
            num_words = int(counts.runs[self.between[0]])
        text = f"{shift_s:g} s" + ("" if self.named_shift_s else " (the default)")
        status: Status = "look"
        if not num_words or not num_frames:
            text += "; without words nothing tells whether that is so"
        else:
            per_frame = num_words / num_frames
            low, high = LIKELY_RATES
            text += f" gives {per_frame / shift_s:.1f} words a second"
            if low <= per_frame / shift_s <= high:
                status = "ok"
            else:
                text += f", people say {low:g} to {high:g}"
                # By ratio: twice as fast is as far off as half as fast.
                best = min(
                    FRAME_SHIFTS_S,
                    key=lambda s: abs(math.log(per_frame / s / WORDS_PER_S)),
                )
                if best != shift_s:
                    shift_s = best
                    rate = per_frame / best
                    text += f"; --frame-shift {best:g} gives {rate:.1f}"
        self._add("frame shift", status, text)
        if shift_s != 0.02:
            self.flags["--frame-shift"] = f"{shift_s:g}"

    def _check_case(self) -> None:
        """Say what case words are in, and whether that is why they differ."""
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
        text = ", ".join(f"{name} {case_of(some)}" for name, some in words.items())
        if differ:
            text += f"; {'; '.join(differ)}: write them in one case"
        self._add("case", worst, text)

    def _check_coverage(self) -> None:
        """Say what share of some words others have, with the words that they lack."""
        for one, other in PAIRS:
            if not (one in self.words and other in self.words):
                continue
            is_text, known = one == "references", self.words[other]
            counts = Counter(
                {w: n for w, n in self.words[one].items() if w not in MARKS}
            )
            missing = Counter({w: n for w, n in counts.items() if w not in known})
            share = 1 - missing.total() / max(counts.total(), 1)
            limits = (0.95, 0.8) if is_text else (0.6, 0.1)
            unit = "running words" if is_text else "words"
            text = f"has {percent(share)} of {counts.total():,} {unit} of the {one}"
            if missing:
                often = missing.most_common() if is_text else missing.items()
                named = (
                    f"{w!r}" + (f" ({n} times)" if n > 1 else "") for w, n in often
                )
                text += f"; {len(missing):,} it lacks: {examples(named)}"
            self._add(f"{one} in {other}", _graded(share, *limits), text)

    def _count_token_errors(self) -> None:
        """Say the greedy token error rate, of utterances that can be counted."""
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
        counted = [
            token_errors(self.references[utterance], path, ways)
            for utterance, path in self.output.texts([tokens.blank, *self.between])
            if utterance in self.references
            and all(word in ways for word in self.references[utterance])
        ]
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
            text += "; are tokens, lexicon, references and log-probs of one model and "
            text += "task?"
        self._add("greedy token errors", status, text)

    def _commands(self) -> list[str]:
        """Command lines: to build, to decode, and to tune or to score."""
        score = [f"wfstdec score {self._line('--ref')} --hyp hyp.txt"]
        if "--ref" not in self.paths:
            score = []
        # A graph needs both; without them another decoder takes what there is.
        if not {"--lexicon", "--lm"} <= self.paths.keys():
            decoder = "trie" if "--lexicon" in self.paths else "greedy"
            given = self._line("--tokens", "--lexicon", "--lm", "--separator")
            more = self._line("--blank", "--logprobs", "--frame-shift")
            decode = f"wfstdec decode --decoder {decoder} {given} {more}"
            return [f"{decode} --output hyp.txt", *score]
        given = self._line("--tokens", "--blank", "--lexicon", "--lm", "--separator")
        more = self._line("--logprobs", "--frame-shift")
        tune = f"wfstdec tune --graph graph.npz {self._line('--logprobs', '--ref')}"
        return [
            f"wfstdec build {given} --output graph.npz",
            *([tune] if "--ref" in self.paths else []),
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
    """The case of most words: lower, UPPER, or mixed; none of some scripts."""
    cased = [word for word in words if word.lower() != word.upper()]
    if not cased:
        return "without case"
    if sum(map(str.islower, cased)) >= CASED * len(cased):
        return "lower case"
    if sum(map(str.isupper, cased)) >= CASED * len(cased):
        return "UPPER CASE"
    return "mixed case"


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


def token_errors(
    words: Sequence[str],
    path: Sequence[int],
    ways: Mapping[str, Sequence[Pronunciation]],
) -> tuple[int, int]:
    """Errors of the tokens of a path against words, and the tokens of these."""
    tokens, places = np.array(path, np.int64), np.arange(len(path) + 1)

    def after(row: np.ndarray, spelt: Pronunciation) -> np.ndarray:
        for token in spelt:
            left_out = row + 1
            left_out[1:] = np.minimum(left_out[1:], row[:-1] + (tokens != token))
            # Tokens too many: the least of what is before, and one for each since then.
            row = np.minimum.accumulate(left_out - places) + places
        return row

    row = places  # errors to here, by tokens of the path so far
    for word in words:
        row = np.minimum.reduce([after(row, spelt) for spelt in ways[word]])
    return int(row[-1]), sum(len(ways[word][0]) for word in words)
