"""Paths through lattices as hypotheses: tokens, words, times.

    hyps = lattice_hypotheses(lattice, 10)            # also of a lattice from a file

    reader = SegmentReader(posterior_scale=0.5)       # of a session's segments
    for lattice in sessions.settled_lattices(session):
        words += reader.read(lattice)
    words += reader.read(sessions.close_lattice(session), is_last=True)

Labels of graph lattices are anywhere within their words. Other lattices have labels at
word ends, and their costs are those on the arcs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import uint32

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.errors import LatticeError, OptionError
from wfstdec.graph.arcs import ARC, NO_ARCS
from wfstdec.jit import read_only
from wfstdec.lattice.arrays import REPEATED, Lattice, starts_token, tokens_of
from wfstdec.lattice.mbr import word_confidences
from wfstdec.lattice.nbest import NbestPaths, nbest_paths
from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.search.paths.hypotheses import GraphCosts, Reader
from wfstdec.search.paths.tokens import PATH_END, SPELLINGS_PER_TEXT, Paths, PathTokens
from wfstdec.search.paths.traceback import STEP, History, Rule, read_paths
from wfstdec.search.paths.words import BARE, BEGINNING, ENDS, Cutter, aligner_of
from wfstdec.text.tokens import EPSILON, ilabel_of


class NbestList(list[Hypothesis]):
    """Hypotheses of different texts, best first.

    Attributes:
        is_exact: Whether no better text is missing; false if the search was stopped.
    """

    def __init__(self, hypotheses: Iterable[Hypothesis], is_exact: bool) -> None:
        super().__init__(hypotheses)
        self.is_exact = is_exact


def lattice_hypotheses(lattice: Lattice, n: int = 1) -> NbestList:
    """Return the best texts of a lattice with words, times and costs in nats.

    Args:
        lattice: Of any decoder, rescored, from a file, or a session's segment.
        n: The number of different texts, 1 or more.

    Returns:
        At most `n` hypotheses within the lattice's beam, best first; `is_exact` is True
        if none is missing.

    Raises:
        OptionError: `n` is below 1.
    """
    if n < 1:
        raise OptionError(f"n={n!r}, expected 1 or more")
    return hypotheses_of(lattice, nbest_texts(lattice, n))


def nbest_texts(lattice: Lattice, n: int) -> NbestPaths:
    """Return `nbest_paths`; for bare tokens the best path of each text."""
    if n == 1 or not lattice.words_are_tokens:
        return nbest_paths(lattice, n)
    found = nbest_paths(lattice, SPELLINGS_PER_TEXT * n)
    cutter = word_ends(lattice)
    cut = cutter.cut(_paths(lattice, found))
    first: dict[str, int] = {}
    for i in range(len(found.arcs)):
        first.setdefault(" ".join(cutter.read(cut, i)[0]), i)
    kept = list(first.values())[:n]
    arcs, excess = [found.arcs[i] for i in kept], [found.excess[i] for i in kept]
    is_all = len(found.arcs) < SPELLINGS_PER_TEXT * n
    return NbestPaths(arcs, excess, found.is_exact and (is_all or len(kept) == n))


def hypotheses_of(
    lattice: Lattice,
    found: NbestPaths,
    boosts: CompiledBoosts | None = None,
    reader: Reader | None = None,
) -> NbestList:
    """Return hypotheses of lattice paths; `boosts` None: costs are those on arcs."""
    reader = reader or reader_of(lattice)
    credited: list[Any] = [boosts] * len(found.arcs)
    if boosts is None:
        credited = [_CostsOnArcs.of(lattice, arcs) for arcs in found.arcs]
    made = reader.read(_paths(lattice, found), credited)
    return NbestList(made, found.is_exact)


def reader_of(lattice: Lattice) -> Reader:
    """Return the reader of a lattice's paths; it holds no reference to the lattice."""
    at_ends, names = lattice.labels_at_word_end, lattice.tokens.names
    cutter = word_ends(lattice) if at_ends else aligner_of(lattice.vocabulary)
    account = GraphCosts(lattice.scales, on_arcs=at_ends)
    return Reader(cutter, account, names, lattice.frame_shift_s, None)


def rule_of_lattice(lattice: Lattice) -> Rule:
    """Return the rule for paths of positions in `Lattice.arcs`."""
    arcs = np.empty(lattice.num_arcs, ARC)
    for name in ("ilabel", "olabel", "nextstate"):
        arcs[name] = lattice.arcs[name]
    arcs["cost"] = lattice.arcs["graph_cost"]
    blank = uint32(ilabel_of(lattice.tokens.blank))
    return Rule(read_only(arcs), blank, lattice.info.marks_repeats, read_only(NO_ARCS))


def tokens_on(lattice: Lattice, arcs: np.ndarray) -> PathTokens:
    """Return tokens and labels of a path with labels at word ends."""
    on_path = lattice.arcs[arcs]
    ilabel = on_path["ilabel"]
    begins = starts_token(ilabel, lattice.tokens)
    frames = lattice.states["frame"][on_path["nextstate"]]
    before = np.cumsum(begins) - begins  # tokens begun before each arc
    start = frames[begins] - 1
    end = start + 1
    continues = ilabel & REPEATED != 0
    np.maximum.at(end, before[continues] - 1, frames[continues])
    labelled = on_path["olabel"] != EPSILON
    return PathTokens(
        token=tokens_of(ilabel[begins]),
        start=start,
        end=end,
        label=on_path["olabel"][labelled].astype(np.int32),
        label_token=before[labelled].astype(np.int32),
        label_frame=frames[labelled],
    )


def word_ends(lattice: Lattice) -> Cutter:
    """Return the cutter of paths with labels at word ends."""
    return Cutter(BARE if lattice.words_are_tokens else ENDS, lattice.vocabulary)


def confidences_of(
    lattice: Lattice, arcs: np.ndarray | None = None, scale: float = 1.0
) -> Sequence[float]:
    """Return word confidences of a path or the best; bare tokens: the least."""
    arcs = lattice.best_arcs() if arcs is None else arcs
    sure = word_confidences(lattice, scale, arcs).confidences
    if not lattice.words_are_tokens:
        return sure
    return [min(sure[a:b]) for _, a, b in words_on(lattice, arcs)]


def words_on(lattice: Lattice, arcs: np.ndarray) -> list[tuple[str, int, int]]:
    """Return the words of a path with labels at word ends, and their tokens."""
    cutter = word_ends(lattice)
    words = cutter.cut(_paths(lattice, NbestPaths([arcs], [0.0], is_exact=True)))
    texts, at = cutter.read(words, 0)
    rows = words.rows[at]
    tokens = rows["first_token"].tolist(), rows["last_token"].tolist()
    return list(zip(texts, *tokens, strict=True))


class SegmentReader:
    """Reads consecutive segments of one session, with confidences.

    A segment may end within a word. The word gets the confidence of the segment with
    its label, and is returned once the segments have its last token.

    Args:
        posterior_scale: Multiplies all costs before they become probabilities.
    """

    def __init__(self, posterior_scale: float = 1.0) -> None:
        self._scale = posterior_scale
        self._cut = BEGINNING  # after the returned words
        self._sure: list[float] = []  # of the words not yet returned
        self._started: tuple[Cutter, History] | None = None
        self._next_frame = 0

    def read(self, lattice: Lattice, *, is_last: bool = False) -> tuple[Word, ...]:
        """Return newly settled words of the best path.

        Args:
            lattice: The next segment.
            is_last: Whether the session ends with it; all remaining words are returned.

        Returns:
            Words with times within the session, and confidences.

        Raises:
            LatticeError: The segment does not begin where the previous one ended.
            OptionError: The scale is negative or infinite.
        """
        aligner, history = self._of(lattice)
        arcs = lattice.best_arcs()
        self._sure += word_confidences(lattice, self._scale, arcs).confidences
        acoustic = lattice.arcs["acoustic_cost"][arcs]
        history.go_on(rule_of_lattice(lattice), arcs, acoustic)
        self._next_frame = lattice.first_frame + lattice.num_frames
        since = self._cut.tokens, self._cut.labels
        look = history.look(0, since, 0, 0.0)
        if is_last:  # cut everything together
            look = look._replace(num_whole=0, num_labels=since[1])
        words, self._cut, others, _ = aligner.partial(
            look,
            self._cut,
            lattice.frame_shift_s,
            complete=is_last and lattice.reached_final,
        )
        if is_last:
            words = others
        sure, self._sure = self._sure[: len(words)], self._sure[len(words) :]
        pairs = zip(words, sure, strict=True)
        return tuple(word._replace(confidence=one) for word, one in pairs)

    def _of(self, lattice: Lattice) -> tuple[Cutter, History]:
        first = lattice.first_frame
        if self._started is None:
            history = History(rule_of_lattice(lattice), first)
            self._started = aligner_of(lattice.vocabulary), history
        elif first != self._next_frame:
            raise LatticeError(
                f"a segment that begins at frame {first}, expected one from "
                f"{self._next_frame} on: all of a session's, in order"
            )
        return self._started


class _CostsOnArcs(NamedTuple):
    """Summed costs on a path's arcs and at its end, in place of boosts."""

    insertion: float
    boost: float

    @classmethod
    def of(cls, lattice: Lattice, arcs: np.ndarray) -> _CostsOnArcs:
        on_path, end = lattice.arcs[arcs], lattice.states[_end_of(lattice, arcs)]
        boost = _total(on_path, "boost_cost") + float(end["final_boost_cost"])
        return cls(_total(on_path, "insertion_cost"), boost + 0.0)

    def cost(self, _words: Sequence[int], _tokens: Sequence[int]) -> float:
        return self.boost


def _paths(lattice: Lattice, found: NbestPaths) -> Paths:
    ends = np.zeros(len(found.arcs), PATH_END)
    last = [_end_of(lattice, arcs) for arcs in found.arcs]
    ends["graph_cost"] = lattice.states["final_cost"][last]
    ends["search_cost"] = lattice.search_cost + np.array(found.excess)
    ends["reached_final"] = lattice.reached_final
    died = -1 if lattice.died_at_frame is None else lattice.died_at_frame
    ends["num_frames"], ends["died_at_frame"] = lattice.num_frames, died
    if lattice.labels_at_word_end:
        for end, arcs in zip(ends, found.arcs, strict=True):
            end["graph_cost"] += _total(lattice.arcs[arcs], "graph_cost")
            end["acoustic_cost"] = _total(lattice.arcs[arcs], "acoustic_cost")
        return Paths.of_tokens([tokens_on(lattice, arcs) for arcs in found.arcs], ends)
    ends["count"] = list(map(len, found.arcs))
    ends["first"] = np.cumsum(ends["count"]) - ends["count"]
    steps = np.empty(ends["count"].sum(), STEP)
    steps["arc"][:] = [arc for arcs in found.arcs for arc in arcs[::-1].tolist()]
    steps["acoustic"] = lattice.arcs["acoustic_cost"][steps["arc"]]
    return read_paths(rule_of_lattice(lattice), steps, ends, lattice.first_frame)


def _end_of(lattice: Lattice, arcs: np.ndarray) -> int:
    return int(lattice.arcs["nextstate"][arcs[-1]]) if len(arcs) else 0


def _total(on_path: np.ndarray, name: str) -> float:
    return float(on_path[name].sum(dtype=np.float64)) + 0.0
