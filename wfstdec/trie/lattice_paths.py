"""Paths through lattices of trie searches, read as hypotheses; no decoder is needed.

    found = nbest_texts(lattice, 10)
    hyps = hypotheses_of(lattice, found)
    sure = of_words(lattice, found.arcs[0], word_confidences(lattice).confidences)

Words stand where they end (`lattice/labels.py`), so that their tokens are those since
the word before. Costs are what stands on the arcs: look-ahead cancels out, to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.labels import REPEATED, starts_token, tokens_of
from wfstdec.lattice.nbest import NbestPaths, nbest_paths
from wfstdec.search.costs import CostAccount
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.text.symbols import EPSILON
from wfstdec.trie.readings import Span, pieces, timed
from wfstdec.trie.traceback import SPELLINGS_PER_TEXT


class Said(NamedTuple):
    """What a path says.

    Attributes:
        rows: int32 [N, 3], of each token: it, its first frame, one behind its last.
        texts: The words, of which empty ones are no words.
        spans: The tokens of each.
    """

    rows: np.ndarray
    texts: list[str]
    spans: list[Span]


def nbest_texts(lattice: Lattice, n: int) -> NbestPaths:
    """As `nbest_paths`; of bare tokens that spell a text in several ways, the best."""
    if n == 1 or not lattice.words_are_tokens:
        return nbest_paths(lattice, n)
    found = nbest_paths(lattice, SPELLINGS_PER_TEXT * n)
    first: dict[str, int] = {}
    for i, arcs in enumerate(found.arcs):
        first.setdefault(" ".join(filter(None, said_on(lattice, arcs).texts)), i)
    kept = list(first.values())[:n]
    paths, excess = [found.arcs[i] for i in kept], [found.excess[i] for i in kept]
    is_all = len(found.arcs) < SPELLINGS_PER_TEXT * n
    return NbestPaths(paths, excess, found.is_exact and (is_all or len(kept) == n))


def hypotheses_of(lattice: Lattice, found: NbestPaths) -> list[Hypothesis]:
    """The hypotheses of paths through a lattice."""
    return [_hypothesis(lattice, arcs) for arcs in found.arcs]


def of_words(
    lattice: Lattice, arcs: np.ndarray, confidences: Sequence[float]
) -> list[float]:
    """The confidences of a path's words; of bare tokens the least of each word's.

    Args:
        lattice: What it goes through.
        arcs: The path.
        confidences: Of its labels, as `word_confidences` gives them.
    """
    if not lattice.words_are_tokens:
        return list(confidences)
    said = said_on(lattice, arcs)
    words = zip(said.texts, said.spans, strict=True)
    return [min(confidences[a:b]) for text, (a, b) in words if text]


def said_on(lattice: Lattice, arcs: np.ndarray) -> Said:
    """The tokens and words of a path, given by positions in `Lattice.arcs`."""
    tables, on_path = lattice.tables, lattice.arcs[arcs]
    ilabel = on_path["ilabel"]
    begins = starts_token(ilabel, lattice.tokens)
    frames = lattice.states["frame"][on_path["nextstate"]]
    before = np.cumsum(begins) - begins  # tokens that had begun before each arc
    rows = np.zeros((int(begins.sum()), 3), np.int32)
    rows[:, 0] = tokens_of(ilabel[begins])
    rows[:, 1] = frames[begins] - 1
    rows[:, 2] = rows[:, 1] + 1
    goes_on = ilabel & REPEATED != 0
    np.maximum.at(rows[:, 2], before[goes_on] - 1, frames[goes_on])
    tokens = rows[:, 0].tolist()
    if lattice.words_are_tokens:
        separator = tables.separators[0] if tables.separators else None
        texts, spans, _ = pieces(tokens, tables.tokens.names, separator)
        return Said(rows, texts, spans)
    said = on_path["olabel"] != EPSILON
    labels, stops = on_path["olabel"][said].tolist(), before[said].tolist()
    spans, end = [], 0
    for stop in stops:
        while tokens[end] in tables.separators:
            end += 1
        spans.append((end, stop))
        end = stop
    words = zip(labels, spans, strict=True)
    return Said(rows, [_text(lattice, w, tokens[a:b]) for w, (a, b) in words], spans)


def _text(lattice: Lattice, word: int, tokens: list[int]) -> str:
    """What a word is called; open words by their tokens."""
    opened, spelling = lattice.tables.open_word, lattice.tables.open_spelling
    if opened is not None and spelling is not None and word == opened.word:
        return spelling.text(tokens)
    return lattice.words[word]


def _hypothesis(lattice: Lattice, arcs: np.ndarray) -> Hypothesis:
    said, shift = said_on(lattice, arcs), lattice.frame_shift_s
    return Hypothesis(
        words=tuple(timed(said.texts, said.spans, said.rows, shift)),
        token_ids=tuple(said.rows[:, 0].tolist()),
        token_frames=(tuple(said.rows[:, 1].tolist()), tuple(said.rows[:, 2].tolist())),
        token_names=lattice.tokens.names,
        frame_shift_s=shift,
        **_account(lattice, arcs)._asdict(),
        reached_final=lattice.reached_final,
        num_frames=lattice.num_frames,
        died_at_frame=lattice.died_at_frame,
    )


def _account(lattice: Lattice, arcs: np.ndarray) -> CostAccount:
    """What stands on the arcs of a path and at its end, added up."""
    on_path = lattice.arcs[arcs]
    end = lattice.states[on_path["nextstate"][-1] if len(arcs) else 0]

    def total(name: str) -> float:
        return float(on_path[name].sum(dtype=np.float64)) + 0.0

    return CostAccount.of_path(
        lattice.scales,
        graph=total("graph_cost") + float(end["final_cost"]),
        acoustic=total("acoustic_cost"),
        insertion=total("insertion_cost"),
        boost=total("boost_cost") + float(end["final_boost_cost"]),
    )
