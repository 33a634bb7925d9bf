"""Inverse text normalisation: spoken words to written text, with exact ranges.

    grammar = load_itn("en")                  # or "en:all", "rules.far", "rules.fst"
    grammar("i paid three hundred dollars".split())
    # [Segment(0, 1, 'i', None), Segment(1, 2, 'paid', None),
    #  Segment(2, 5, '$300', 'MONEY')]
    segments, num_settled = grammar.partial(words)       # words of a stream so far

A range grammar is a transducer over UTF-8 bytes from words with one space between them
to written text. An output label above 255 is a mark: it is not text, and its name in
the table of output symbols is the class of the range. A class with `:all` behind its
name is used by "en:all" only; the class COPY copies the words of its range.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wfstdec.errors import FormatError, GrammarError
from wfstdec.fst.arrays import least_final_costs
from wfstdec.fst.far import read_far
from wfstdec.fst.openfst import FstContent, Symbols, read_fst
from wfstdec.graph.arcs import FstArrays
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

MAX_WORDS = 32
"""Words of the longest range: a sum with cents takes up to 30."""
RANGE_RULE, REWRITE_RULES = "ITN", "rewrite"
"""Name of the rule for ranges in a FAR; prefix of the rules for whole sentences."""
_SHIPPED = Path(__file__).parent / "data"
_ALL, _COPY, _MOST_BYTE = ":all", "COPY", 255
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
    """A range grammar, rewrites of whole sentences, or both; see `load_itn`."""

    ranges: Transducer | None
    rewrites: tuple[Transducer, ...] = ()  # Applied in this order
    kinds: Symbols = field(default_factory=dict)  # Names of marks by output label
    max_words: int = MAX_WORDS  # Words of the longest range

    def __call__(self, words: Sequence[str]) -> list[Segment]:
        """Partition words into copied words and written ranges.

        Args:
            words: Words without spaces; they match by their casefolded form.

        Returns:
            Segments that cover all words in order. Of all partitions the one of least
            cost: a range costs its path in the grammar less 1 per word, a copied word
            0. A tie is won by the longer range at the first difference. Rewrites of
            the sentence follow; a stretch of words that one changes, between words
            that input and output have in common, is one segment. The whole sentence
            is one segment if they have none in common.
        """
        segments, _ = self._range_segments(words)
        for rewrite in self.rewrites:
            segments = self._rewritten(rewrite, segments)
        return segments

    def partial(self, words: Sequence[str]) -> tuple[list[Segment], int]:
        """Segments of the words so far, and how many first words are settled.

        No further word changes the segments of settled words, and a segment of others
        begins behind them: `grammar(words[settled:])` continues the list. Rewrites of
        sentences may change any word; a grammar with such rules settles none.
        """
        if self.rewrites:
            return self(words), 0
        return self._range_segments(words)

    def _range_segments(self, words: Sequence[str]) -> tuple[list[Segment], int]:
        if not words or self.ranges is None:
            return list(_copies(words, 0, len(words))), len(words)
        text = " ".join(words).casefold()
        if text.count(" ") != len(words) - 1:  # Not words of a decoder; none match.
            text = " ".join(word.replace(" ", "_") for word in words).casefold()
        found = _run(best_partition, self.ranges, text, self.max_words)
        ends, splits, output, settled = found
        segments: list[Segment] = []
        first = begin = 0
        labels = output.tolist()
        for last, end in zip(ends.tolist(), splits[1:].tolist(), strict=True):
            kind, written = self._read(labels[begin:end])
            if begin == end or kind == _COPY:
                segments += _copies(words, first, last)
            else:
                segments.append(Segment(first, last, written, kind))
            first, begin = last, end
        return segments, settled

    def _read(self, labels: list[int]) -> tuple[str | None, str]:
        """The class and the text of output labels."""
        marks = [label for label in labels if label > _MOST_BYTE]
        written = bytes(b for b in labels if b <= _MOST_BYTE).decode(errors="replace")
        if marks and marks[-1] in self.kinds:
            return self.kinds[marks[-1]].removesuffix(_ALL), written
        return _kind_of(written), written

    def _rewritten(self, rewrite: Transducer, given: list[Segment]) -> list[Segment]:
        """Segments after a rewrite of their text; times by common words."""
        before = [word for one in given for word in one.text.split()]
        if not before:
            return given
        labels = _run(whole_output, rewrite, " ".join(before))
        if labels is None:
            return given
        after = self._read(labels.tolist())[1].split()
        return _changed(given, after, _common(before, after))


def load_itn(source: PathLike = "en") -> ItnGrammar:
    """Load a grammar set for inverse text normalisation.

    Args:
        source: `"en"`, the shipped English grammar; `"en:all"`, which also writes
            single cardinals from zero to nine; an OpenFst file; or a FAR, whose rule
            `ITN`, or only rule, is the range grammar, and whose rules `rewrite*` are
            rewrites of whole sentences, applied in alphabetical order.

    Raises:
        FormatError: A file that is no FST or FAR, or a FAR without these rules.
        GrammarError: A rule that is not over bytes, accepts the empty string, deletes
            words without output, or has a negative cycle without input.
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
    """Validate and pack a rule; `source` is given for a range grammar."""
    fst = content.fst
    if fst.num_arcs and not 0 <= fst.ilabel.min() <= fst.ilabel.max() <= _MOST_BYTE:
        raise GrammarError(
            f"{place}: has the input label {fst.ilabel.max()}, expected bytes; compile "
            "it with pynini's token_type='byte'"
        )
    if source is not None and not source.endswith(_ALL):
        marks = [i for i, n in (content.osymbols or {}).items() if n.endswith(_ALL)]
        fst = _without(fst, marks)
    with reading(place, "rule"):
        least_empty = least_final_costs(fst, 0)[fst.start]
    packed = pack(fst)
    if source is not None and least_empty < np.inf:
        raise GrammarError(f"{place}: accepts the empty string, expected words")
    if source is not None and reaches_final_without_output(packed):
        raise GrammarError(f"{place}: deletes words, expected output for all input")
    return packed


def _without(fst: FstArrays, olabels: list[int]) -> FstArrays:
    """The FST without the arcs that have some output labels."""
    keep = ~np.isin(fst.olabel, olabels)
    kept = np.concatenate([[0], np.cumsum(keep)])
    columns = {
        n: getattr(fst, n)[keep] for n in ("ilabel", "olabel", "nextstate", "cost")
    }
    return replace(fst, state_arc_splits=kept[fst.state_arc_splits], **columns)


def _copies(words: Sequence[str], first: int, last: int) -> Iterator[Segment]:
    return (Segment(i, i + 1, words[i], None) for i in range(first, last))


def _kind_of(text: str) -> str | None:
    return "NUM" if any(map(str.isdigit, text)) else None


def _common(before: list[str], after: list[str]) -> dict[int, int]:
    """The longest common subsequence: positions in `after` by those in `before`."""
    rows, columns = len(before), len(after)
    length = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            same = before[i] == after[j]
            longer = max(length[i + 1][j], length[i][j + 1])
            length[i][j] = length[i + 1][j + 1] + 1 if same else longer
    pairs, i, j = {}, 0, 0
    while i < rows and j < columns:
        if before[i] == after[j]:
            pairs[i], i, j = j, i + 1, j + 1
        elif length[i + 1][j] >= length[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _changed(
    given: list[Segment], after: list[str], common: dict[int, int]
) -> list[Segment]:
    """Join the segments between those whose words are all in common."""
    kept, begin = [], 0  # Segments that stay: (index, its words in `after`).
    for index, segment in enumerate(given):
        end = begin + len(segment.text.split())
        places = [common.get(i, -1) for i in range(begin, end)]
        if places[0] >= 0 and places == list(range(places[0], places[0] + len(places))):
            kept.append((index, places[0], places[-1] + 1))
        begin = end
    segments: list[Segment] = []
    segment_at = word_at = 0
    for index, first_word, last_word in [*kept, (len(given), len(after), len(after))]:
        stretch, words = given[segment_at:index], after[word_at:first_word]
        if bool(stretch) != bool(words):
            # Words deleted or inserted join the segment before, else the one behind.
            if segments:
                stretch = [segments.pop(), *stretch]
                words = [stretch[0].text, *words]
            elif index < len(given):
                continue
        if stretch:
            text = " ".join(words)
            ends = stretch[0].first, stretch[-1].last
            segments.append(Segment(*ends, text, _kind_of(text)))
        if index < len(given):
            segments.append(given[index])
        segment_at, word_at = index + 1, last_word
    return segments


def _run(kernel: Callable[..., Any], fst: Transducer, text: str, *options: int) -> Any:
    active = _ACTIVE.take(len(fst.final_cost))
    try:
        return kernel(fst, active, np.frombuffer(text.encode(), np.uint8), *options)
    finally:
        _ACTIVE.give(active)
