"""Oracle word error rates: of the best that a search kept, lattices and n-best lists.

lattice_errors(lattice, ["hello", "world"])
lattice_oracle(references, open_lattices("dev.lat")).wer
list_oracle(references, read_lists("hyp.jsonl")).wer
kept_errors(decoder, utterances, references, 10).lattice_wer
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from wfstdec.batch.lattices import LatticeReading
from wfstdec.errors import LatticeError
from wfstdec.jit import jit
from wfstdec.lattice.arrays import Lattice
from wfstdec.metrics import count_errors
from wfstdec.search.decoder import Decoder
from wfstdec.text.files import PathLike, read_lines, reading
from wfstdec.text.normalize import AS_IT_STANDS, Normalizer

_Kept = TypeVar("_Kept")


class Oracle(NamedTuple):
    """The errors of the best of what was kept."""

    errors: int  # Sum of the fewest of each utterance; all words where nothing was kept
    words: int  # Of the references

    @property
    def wer(self) -> float:
        """Percent; 0 where there are no words."""
        return 100 * self.errors / self.words if self.words else 0.0


@dataclass(frozen=True)
class OracleErrors:
    """The errors of the best of what a decoder keeps of some utterances."""

    words: int  # Of the references
    nbest: int  # How long lists were, at most
    of_lists: int  # Sum of the fewest word errors of each list
    of_lattices: int | None  # The same of lattices; None for bare tokens

    @property
    def list_wer(self) -> float:
        """Percent."""
        return Oracle(self.of_lists, self.words).wer

    @property
    def lattice_wer(self) -> float | None:
        """Percent."""
        errors = self.of_lattices
        return None if errors is None else Oracle(errors, self.words).wer


def oracle_errors(
    decoder: Decoder,
    utterances: Sequence[np.ndarray],
    references: Sequence[Sequence[str]],
    nbest: int,
    boosts: Sequence[Any] | None = None,
    *,
    normalizer: Normalizer = AS_IT_STANDS,
) -> OracleErrors:
    """Decode lattices, one at a time, and count the fewest errors in each."""
    of_lists = of_lattices = 0
    has_words, reading = True, LatticeReading(nbest=nbest)
    for i, (x, reference) in enumerate(zip(utterances, references, strict=True)):
        given = None if boosts is None else [boosts[i]]
        (lattice,) = decoder.decode_lattice([x], boosts=given)
        texts = [normalizer.words(one.text.split()) for one in reading("", lattice)]
        of_lists += min(count_errors(reference, text).total for text in texts)
        has_words = not lattice.words_are_tokens
        if has_words:
            of_lattices += lattice_errors(lattice, reference, normalizer)
    words = sum(map(len, references))
    return OracleErrors(words, nbest, of_lists, of_lattices if has_words else None)


def lattice_errors(
    lattice: Lattice, reference: Sequence[str], normalizer: Normalizer = AS_IT_STANDS
) -> int:
    """Count the fewest word errors of any path of a lattice, exactly."""
    if lattice.words_are_tokens:
        raise LatticeError(
            "is one of bare tokens, whose words are not known, expected a lattice of a "
            "search with a lexicon or a graph"
        )
    # Words that count as one have one label; 0 stands for none.
    labels, place = np.unique(lattice.arcs["olabel"], return_inverse=True)
    ids: dict[str, int] = {}
    compared = np.zeros(len(labels), np.int64)
    for i, label in enumerate(labels.tolist()):
        parts = normalizer.word(lattice.words[label]) if label else ()
        if len(parts) > 1:
            raise LatticeError(
                f"word {lattice.words[label]!r} of a lattice becomes {len(parts)} "
                f"words by {normalizer.flag}, expected one or none; take --ignore-case"
            )
        compared[i] = ids.setdefault(parts[0], label) if parts else 0
    text = np.array([ids.get(word, -1) for word in reference], np.int64)
    splits, into = lattice.arcs_into
    may_end = lattice.states["final_excess"] < np.inf
    state, olabel = lattice.arcs["state"].astype(np.int64), compared[place]
    return int(_least_errors(lattice.order, splits, into, state, olabel, may_end, text))


def lattice_oracle(
    references: Mapping[str, Sequence[str]],
    lattices: Mapping[str, Lattice],
    normalizer: Normalizer = AS_IT_STANDS,
) -> Oracle:
    """Oracle errors of lattices: the best path of each, whatever it costs."""
    return _oracle(references, lattices, partial(lattice_errors, normalizer=normalizer))


def list_oracle(
    references: Mapping[str, Sequence[str]],
    lists: Mapping[str, Sequence[Sequence[str]]],
    normalizer: Normalizer = AS_IT_STANDS,
) -> Oracle:
    """Oracle errors of n-best lists, each of texts in words."""

    def fewest(texts: Sequence[Sequence[str]], reference: Sequence[str]) -> int:
        return min(
            count_errors(reference, normalizer.words(text)).total for text in texts
        )

    return _oracle(references, lists, fewest)


def read_lists(path: PathLike) -> dict[str, list[list[str]]]:
    """The texts of the n-best lists that `wfstdec decode --format jsonl` wrote."""
    lists = {}
    for number, line in enumerate(read_lines(path), 1):
        writer = "one of `wfstdec decode --format jsonl`"
        with reading(f"{path}:{number}", f"line {line[:60]!r}", writer):
            found = json.loads(line)
            texts = [one["text"].split() for one in found.get("nbest") or [found]]
            lists[found["id"]] = texts
    return lists


def _oracle(
    references: Mapping[str, Sequence[str]],
    kept: Mapping[str, _Kept],
    fewest: Callable[[_Kept, Sequence[str]], int],
) -> Oracle:
    errors = sum(
        fewest(kept[name], words) if name in kept else len(words)
        for name, words in references.items()
    )
    return Oracle(errors, sum(map(len, references.values())))


@jit
def _least_errors(order, splits, into, source, olabel, may_end, text):
    """Fewest errors of a path to a final state, by state and position in the text."""
    size = len(text)
    none = 1 << 30
    errors = np.full((len(order), size + 1), none, np.int64)
    for q in range(size + 1):
        errors[0, q] = q
    best = none
    for state in order:
        row = errors[state]
        for p in range(splits[state], splits[state + 1]):
            before, word = errors[source[into[p]]], olabel[into[p]]
            for q in range(size + 1):
                if word == 0:
                    row[q] = min(row[q], before[q])
                    continue
                row[q] = min(row[q], before[q] + 1)
                if q > 0:
                    row[q] = min(row[q], before[q - 1] + int(word != text[q - 1]))
        # Deletions, once all arcs into the state have been looked at.
        for q in range(size):
            row[q + 1] = min(row[q + 1], row[q] + 1)
        if may_end[state]:
            best = min(best, row[size])
    return best
