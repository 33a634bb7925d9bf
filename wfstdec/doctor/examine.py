"""Examine tokens, lexicon, language model, log-probs and references together."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wfstdec.checks.token_counts import TokenCounts
from wfstdec.doctor.findings import (
    PAIRS,
    Finding,
    ModelOutput,
    Report,
    Status,
    blank_finding,
    case_findings,
    coverage_finding,
    error_findings,
    frame_shift_finding,
    lexicon_finding,
    rows_finding,
    separator_finding,
    shape_finding,
    unread_finding,
)
from wfstdec.errors import InputError, LexiconError, TokenTableError
from wfstdec.io.logprobs import open_logprobs
from wfstdec.io.text import read_text
from wfstdec.text.arpa import read_arpa
from wfstdec.text.lexicon import Lexicon, read_lexicon, spellable_words
from wfstdec.text.tokens import TokenTable, read_tokens, token_table

Path = str | os.PathLike[str]


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
    named_separator: str | None  # What the user knows; or None
    named_shift_s: float | None  # What the user knows; or None
    findings: list[Finding] = field(default_factory=list)  # So far
    # How often each word is in what there is of `PAIRS`
    words: dict[str, Counter[str]] = field(default_factory=dict)
    between: list[int] = field(default_factory=list)  # The tokens between words
    lexicon: Lexicon | None = None  # What was read, or None
    # The words of utterances
    references: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shift_s: float = 0.02  # Seconds per frame that fit
    # What is to be given beside files, as it was found
    flags: dict[str, str] = field(default_factory=dict)

    def report(self) -> Report:
        """Look at everything, each after what it needs."""
        tokens = self._read_tokens()
        output = None if tokens is None else self._read_output(tokens)
        if tokens is not None and output is not None:
            tokens = self._find_blank(tokens, output)
            self._read_lexicon(tokens)
            self._find_separator(tokens, output.counts)
            self._read_model()
            self._read_references(output)
            self._find_frame_shift(output)
            self._compare_words()
            self._count_token_errors(tokens, output)
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

    def _read_tokens(self) -> TokenTable | None:
        path = self.paths["--tokens"]
        try:
            tokens = read_tokens(path, self.named_blank)
        except InputError as error:
            self._add("tokens", "wrong", error)
            if not isinstance(error, TokenTableError):
                return None
            # A table that does not name its blank can still be read: frames tell which
            # token it is.
            self.flags["--blank"] = "0"  # unless another one wins frames
            try:
                return read_tokens(path, 0)
            except TokenTableError:
                return None
        self._add("tokens", "ok", f"{len(tokens)} in {path}")
        if self.named_blank is not None:
            self.flags["--blank"] = str(self.named_blank)
        return tokens

    def _read_output(self, tokens: TokenTable) -> ModelOutput | None:
        output = self._read(
            "log-probs",
            "--logprobs",
            lambda path: ModelOutput.of(open_logprobs(path), len(tokens)),
        )
        if output is None:
            return None
        self.findings.append(shape_finding(output, tokens))
        if not output.counts.num_frames:
            return None
        self.findings.append(rows_finding(output))
        return output

    def _find_blank(self, tokens: TokenTable, output: ModelOutput) -> TokenTable:
        """The tokens, with the blank as it should be."""
        if self.named_separator in tokens.ids:
            self.between = [tokens.ids[self.named_separator or ""]]
        other = output.counts.likely_blank(tokens.blank, self.between)
        self.findings.append(blank_finding(output, tokens, other))
        if other is None:
            return tokens
        self.flags["--blank"] = str(other)
        return token_table(tokens.names, other)

    def _read_lexicon(self, tokens: TokenTable) -> None:
        path = self.paths.get("--lexicon")
        if path is None:
            return
        separator = self.between[0] if self.between else None
        try:
            self.lexicon = read_lexicon(path, tokens, separator=separator)
        except LexiconError as error:
            self.findings.append(unread_finding(path, tokens, error))
        except InputError as error:
            self._add("lexicon", "wrong", error)

    def _find_separator(self, tokens: TokenTable, counts: TokenCounts) -> None:
        used, named = None, self.named_separator
        if self.lexicon is not None:
            used = {token for way in self.lexicon.pronunciations for token in way}
        if named is not None and not self.between:
            self._add("separator", "wrong", tokens.lacks(named))
        elif self.lexicon is not None or "--lexicon" not in self.paths:
            given = self.between[0] if self.between else None
            finding, found = separator_finding(tokens, counts, given, used)
            self.findings.append(finding)
            if found is not None:
                self.between = [found]
                self.flags["--separator"] = tokens.names[found]
        if self.lexicon is not None:
            finding = lexicon_finding(self.lexicon, tokens, self.between, counts)
            self.findings.append(finding)
            self.words["lexicon"] = Counter(dict.fromkeys(self.lexicon.words, 1))

    def _read_model(self) -> None:
        model = self._read("language model", "--lm", read_arpa)
        if model is None:
            return
        found = f"{len(model.words):,} words, order {model.order}"
        self._add("language model", "ok", found)
        self.words["LM"] = Counter(model.words)

    def _read_references(self, output: ModelOutput) -> None:
        texts = self._read("references", "--ref", read_text)
        if texts is None:
            return
        self.references = {u: words for u, words in texts.items() if u in output.runs}
        count, num = len(self.references), len(output.runs)
        text = f"of {count} of the {num} utterances examined"
        if count < num:
            first, other = next(iter(texts)), next(iter(output.runs))
            text += f"; ids are as {first!r} there, as {other!r} in the log-probs"
        status: Status = "ok" if count == num else "look" if count else "wrong"
        self._add("references", status, text)
        if any(texts.values()):
            counts = (word for words in texts.values() for word in words)
            self.words["references"] = Counter(counts)

    def _find_frame_shift(self, output: ModelOutput) -> None:
        num_words, num_frames = 0, output.counts.num_frames
        if self.references:
            num_words = sum(map(len, self.references.values()))
            num_frames = sum(output.frames[u] for u in self.references)
        elif self.between:  # nearly as many as words
            num_words = int(output.counts.runs[self.between[0]])
        finding, shift_s = frame_shift_finding(
            num_words, num_frames, self.named_shift_s
        )
        self.findings.append(finding)
        if shift_s != 0.02:
            self.flags["--frame-shift"] = f"{shift_s:g}"

    def _compare_words(self) -> None:
        self.findings += case_findings(self.words)
        for one, other in PAIRS:
            if one in self.words and other in self.words:
                found = coverage_finding(one, self.words[one], other, self.words[other])
                self.findings.append(found)

    def _count_token_errors(self, tokens: TokenTable, output: ModelOutput) -> None:
        lexicon = self.lexicon
        if lexicon is None:
            if "--lexicon" in self.paths:
                return
            separator = self.between[0] if self.between else None
            words = {word for counts in self.references.values() for word in counts}
            lexicon, _ = spellable_words(words, tokens, separator=separator)
        counts = output.texts(without=[tokens.blank, *self.between])
        self.findings += error_findings(counts, self.references, lexicon)

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
