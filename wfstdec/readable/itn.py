"""Inverse text normalisation: spoken words to written text, with exact ranges.

    grammar = load_itn("en")                  # or "en:all", "rules.far", "rules.fst"
    grammar("i paid three hundred dollars".split())
    # [Segment(0, 1, 'i', None), Segment(1, 2, 'paid', None),
    #  Segment(2, 5, '$300', 'MONEY')]
    segments, num_settled = grammar.partial(words)       # words of a stream so far

A range grammar is a transducer over UTF-8 bytes from words, separated by one space, to
written text. An output label above 255 is a mark, not text: its name in the table of
output symbols is the class of the range. A class with the suffix `:all` is used by
"en:all" only; the class COPY copies the words of its range.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wfstdec.errors import FormatError, GrammarError
from wfstdec.fst.arrays import least_final_costs
from wfstdec.fst.far import read_far
from wfstdec.fst.openfst import FstContent, Symbols, read_fst
from wfstdec.fst.operations import part_of
from wfstdec.jit.records import Pool
from wfstdec.readable.itn_kernels import (
    Transducer,
    best_partition,
    new_active,
    pack,
    reaches_final_without_output,
    whole_output,
)
from wfstdec.text.files import PathLike, reading

MAX_WORDS = 32  # Words of the longest range: a sum with cents takes up to 30
RANGE_RULE, REWRITE_RULES = "ITN", "rewrite"
"""Name of the rule for ranges in a FAR; prefix of the rules for whole sentences."""
_SHIPPED = Path(__file__).parent / "data"
_ALL, _COPY, _MOST_BYTE = ":all", "COPY", 255
_JOINT = "\0"  # Replacement of spaces within a segment
_ACTIVE = Pool(new_active, fits=lambda active, size: len(active.slot) >= size)
"""Scratch memory for all grammars, one for each thread."""


class Segment(NamedTuple):
    """Words `first` to `last` (0-based, half-open) and their written text."""

    first: int
    last: int
    text: str
    kind: str | None  # NUM, ORD, MONEY, ...; None for copied words


@dataclass(frozen=True, eq=False)
class ItnGrammar:
    """Range grammar, rewrites of whole sentences, or both; see `load_itn`."""

    ranges: Transducer | None
    rewrites: tuple[Transducer, ...] = ()  # Applied in this order
    kinds: Symbols = field(default_factory=dict)  # Names of marks by output label
    max_words: int = MAX_WORDS  # Words of the longest range

    def __call__(self, words: Sequence[str]) -> list[Segment]:
        """Partition words into copied words and written ranges.

        Args:
            words: Words without spaces; they match by their casefolded form.

        Returns:
            Segments that cover all words in order: the partition of least cost. The
                cost of a range is that of its path in the grammar less 1 per word, that
                of a copied word is 0. Ties go to the longer range at the first
                difference. Rewrites of the sentence follow; the changed words between
                words common to input and output are one segment. Without common words
                the whole sentence is one segment.
        """
        segments, _ = self._range_segments(words, len(words))
        for rewrite in self.rewrites:
            segments = self._rewritten(rewrite, segments)
        return segments

    def partial(
        self, words: Sequence[str], num_settled: int | None = None
    ) -> tuple[list[Segment], int]:
        """Return segments of the words so far, and the number of settled words.

        Words after the first `num_settled` (None: all) may change, and more may come.
        These do not change the segments of the settled words, and another segment
        begins after them: `grammar(words[settled:])` continues the list. Rewrites of
        sentences may change any word; a grammar with such rules settles none.
        """
        if self.rewrites:
            return self(words), 0
        known = len(words) if num_settled is None else num_settled
        return self._range_segments(words, known)

    def _range_segments(
        self, words: Sequence[str], num_known: int
    ) -> tuple[list[Segment], int]:
        if not words or self.ranges is None:
            copied = [Segment(i, i + 1, word, None) for i, word in enumerate(words)]
            return copied, num_known
        text = " ".join(words).casefold()
        if text.count(" ") != len(words) - 1:  # Words of other sources; none match.
            text = " ".join(word.replace(" ", "_") for word in words).casefold()
        given = self.ranges, text, self.max_words, num_known
        ends, outputs, settled = _run(best_partition, *given)
        segments: list[Segment] = []
        first = 0
        for last, labels in zip(ends, outputs, strict=True):
            kind, written = self._read(labels) if len(labels) else (_COPY, "")
            if kind == _COPY:
                segments += [
                    Segment(i, i + 1, words[i], None) for i in range(first, last)
                ]
            else:
                segments.append(Segment(first, last, written, kind))
            first = last
        return segments, settled

    def _read(self, labels: np.ndarray) -> tuple[str | None, str]:
        """Return the class and the text of output labels."""
        is_byte = labels <= _MOST_BYTE
        written = labels[is_byte].astype(np.uint8).tobytes().decode(errors="replace")
        for mark in labels[~is_byte].tolist():
            if mark in self.kinds:
                return self.kinds[mark].removesuffix(_ALL), written
        return _kind_of(written), written

    def _rewritten(self, rewrite: Transducer, given: list[Segment]) -> list[Segment]:
        """Return segments after a rewrite of their text, aligned by common words."""
        if not given:
            return given
        labels = _run(whole_output, rewrite, " ".join(one.text for one in given))
        if labels is None:
            return given
        _, text = self._read(labels)
        for one in given:  # The words of a segment are compared as one.
            text = text.replace(one.text, one.text.replace(" ", _JOINT))
        before, after = [one.text.replace(" ", _JOINT) for one in given], text.split()
        segments: list[Segment] = []
        begin: list[str] = []  # Words inserted before all segments
        changes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        for tag, i, i_end, j, j_end in changes:
            stretch, words = given[i:i_end], after[j:j_end]
            if tag == "equal":
                segments += stretch
                continue
            if tag != "replace" and segments:
                # Deleted or inserted words join the previous segment, if there is one.
                stretch = [segments.pop(), *stretch]
                words = [stretch[0].text, *words]
            elif tag != "replace":
                begin = words
                continue
            segments.append(_joined(stretch, words))
        if not segments:
            return [_joined(given, after)]
        if begin or segments[0].first:
            segments[0] = _joined([given[0], segments[0]], [*begin, segments[0].text])
        return segments


def load_itn(source: PathLike = "en") -> ItnGrammar:
    """Load a grammar set for inverse text normalisation.

    Args:
        source: `"en"`, the shipped English grammar; `"en:all"`, which also writes
            single cardinals from zero to nine; an OpenFst file; or a FAR, whose rule
            `ITN`, or only rule, is the range grammar, and whose rules `rewrite*`
            rewrite whole sentences, in alphabetical order.

    Raises:
        FormatError: A file is not an FST or FAR, or a FAR lacks these rules.
        GrammarError: A rule is not over bytes, accepts the empty string, deletes words
            without output, or has a negative cycle without input.
    """
    place = os.fspath(source)
    language = place.removesuffix(_ALL)
    shipped = _SHIPPED / f"{language}.itn.fst.gz"
    if language.isalpha() and shipped.exists():
        rules = {RANGE_RULE: read_fst(shipped)}
    elif place.endswith(".far"):
        rules = read_far(source)
    else:
        rules = {RANGE_RULE: read_fst(source)}
    rewrites = sorted(name for name in rules if name.startswith(REWRITE_RULES))
    only = set(rules) if len(rules) == 1 else {RANGE_RULE}
    ranges = next((name for name in rules if name in only - {*rewrites}), None)
    if ranges is None and not rewrites:
        raise FormatError(
            f"{place}: has the rules {', '.join(sorted(rules)) or '(none)'}, expected "
            f"{RANGE_RULE!r}, a single rule, or '{REWRITE_RULES}*'"
        )
    return ItnGrammar(
        _packed(rules[ranges], f"{place}: rule {ranges!r}", place) if ranges else None,
        tuple(_packed(rules[r], f"{place}: rule {r!r}") for r in rewrites),
        (rules[ranges].osymbols or {}) if ranges else {},
    )


def _packed(content: FstContent, place: str, source: str | None = None) -> Transducer:
    """Validate and pack a rule; `source` is set for a range grammar."""
    fst = content.fst
    if fst.num_arcs and not 0 <= fst.ilabel.min() <= fst.ilabel.max() <= _MOST_BYTE:
        raise GrammarError(
            f"{place}: has the input label {fst.ilabel.max()}, expected bytes; compile "
            "it with pynini's token_type='byte'"
        )
    if source is not None and not source.endswith(_ALL):
        marks = [i for i, n in (content.osymbols or {}).items() if n.endswith(_ALL)]
        kept = ~np.isin(fst.olabel, marks)
        fst = part_of(fst, np.ones(fst.num_states, bool), kept)
    with reading(place, "rule"):
        least_empty = least_final_costs(fst, 0)[fst.start]
    packed = pack(fst)
    if source is not None and least_empty < np.inf:
        raise GrammarError(f"{place}: accepts the empty string, expected words")
    if source is not None and reaches_final_without_output(packed):
        raise GrammarError(f"{place}: deletes words, expected output for all input")
    return packed


def _joined(segments: list[Segment], words: list[str]) -> Segment:
    text = " ".join(words).replace(_JOINT, " ")
    return Segment(segments[0].first, segments[-1].last, text, _kind_of(text))


def _kind_of(text: str) -> str | None:
    return "NUM" if any(map(str.isdigit, text)) else None


def _run(kernel: Callable[..., Any], fst: Transducer, text: str, *options: int) -> Any:
    active = _ACTIVE.take(len(fst.final_cost))
    try:
        return kernel(fst, active, np.frombuffer(text.encode(), np.uint8), *options)
    finally:
        _ACTIVE.give(active)
