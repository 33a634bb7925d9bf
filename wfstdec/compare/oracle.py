"""Oracle word error rates: of the best that a search kept, lattices and n-best lists.

lattice_errors(lattice, ["hello", "world"])
oracle(references, open_lattices("dev.lat"), lattice_errors).wer
oracle(references, read_lists("hyp.jsonl"), fewest_errors).wer
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from wfstdec.errors import LatticeError
from wfstdec.jit import jit
from wfstdec.lattice.arrays import Lattice
from wfstdec.metrics import count_errors
from wfstdec.text.files import PathLike, read_lines, reading
from wfstdec.text.normalize import AS_IT_STANDS, Normalizer


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


def fewest_errors(
    texts: Iterable[Sequence[str]],
    reference: Sequence[str],
    normalizer: Normalizer = AS_IT_STANDS,
) -> int:
    """Count the word errors of the best text of a list, each in words."""
    counts = (count_errors(reference, normalizer.words(text)) for text in texts)
    return min(one.total for one in counts)


def oracle(
    references: Mapping[str, Sequence[str]],
    kept: Mapping[str, Any],
    errors: Callable[[Any, Sequence[str], Normalizer], int],
    normalizer: Normalizer = AS_IT_STANDS,
) -> Oracle:
    """Oracle errors of what was kept: by `lattice_errors` or `fewest_errors`."""
    total = sum(
        errors(kept[name], words, normalizer) if name in kept else len(words)
        for name, words in references.items()
    )
    return Oracle(total, sum(map(len, references.values())))


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
