"""Graph of a text, T o (L o G), and its best path.

    G    0 -w1:1-> 1 -w2:2-> 2 ... n            and, where options allow,
         i -skip:-> i + 1                       a word left out
         i -star:n+1-> i                        speech that is not in the text
    L    the pronunciations of these words, separators or silences between them;
         -:skip-> where a sentence may end; the star is a word of one token

Words are output as their position in the text, so that equal words differ. L is not
marked and LG not determinized: with so few paths duplicates do no harm.

The search is the decoder's, with chunks of frames, so that memory is bounded. Its beam
may lose the best path; a lower bound shows whether that is possible:

    excess = total - sum over frames of the cost of the most probable token

A path is never further than its own excess from the frame's best partial path, since
the rest costs no less than the most probable tokens. So a beam equal to the excess of
any path is sufficient for the best path (up to the rounding of float32 sums).
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wfstdec.align.alignment import AlignOptions
from wfstdec.errors import LogprobError
from wfstdec.fst.arrays import Arcs, LabelSpace, arcs_of, fst_of
from wfstdec.fst.lexicon_fst import Fillers, MarkedLexicon, build_lexicon_fst
from wfstdec.fst.operations import compose
from wfstdec.fst.topology import compose_topology
from wfstdec.graph.arcs import FstArrays, GraphInfo
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.logprobs import MAX_LOGPROB, as_utterances, bad_logprob
from wfstdec.search.options import MAX_NATS
from wfstdec.text.lexicon import Lexicon, Pronunciation
from wfstdec.text.tokens import EPSILON, EPSILON_WORD, TokenTable
from wfstdec.text.vocabulary import Pronunciations, Vocabulary
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

_log = logging.getLogger("wfstdec.align")

STAR = "<star>"
"""Speech that is not in the text: a word, and its single token, the last of all."""
_STAR, _SKIP, _NOTHING = "\nstar", "\nskip", "\nnothing"  # cannot be words of a text
CHUNK = 1000
"""Frames per priced chunk."""
WIDER = 4.0
"""Factor by which the beam grows if no path reaches the end."""
WIDENED_AT_MOST = 4
SMALL = 50_000_000
"""Frames times states: with less, the first wider beam is infinite."""
_SLACK = 1.0  # nats, far over the rounding of the sums

WeightedPronunciations = tuple[tuple[Pronunciation, float], ...]
"""Pronunciations of a word and their costs, nats."""


class Transcript(NamedTuple):
    """The words of a text."""

    words: tuple[str, ...]
    entries: tuple[WeightedPronunciations, ...]  # pronunciations of each word
    wildcards: frozenset[int] = frozenset()  # positions of words that are any speech

    def least_frames(self, between: int) -> int:
        """Return the frames that the text needs, `between` of them between words."""
        # A frame for each token, and one for the blank between two equal ones.
        least: dict[int | None, int] = {None: 0}  # by the last token
        for prons in self.entries:
            before, least = least, {}
            for units, _ in prons:
                own = len(units) + sum(a == b for a, b in pairwise(units))
                for last, count in before.items():
                    more = 0 if last is None else between or int(last == units[0])
                    known = least.get(units[-1], count + more + own)
                    least[units[-1]] = min(known, count + more + own)
        return min(least.values())


def text_graph(
    transcript: Transcript,
    tokens: TokenTable,
    fillers: Fillers,
    topology: str,
    options: AlignOptions,
    star: int | None,
) -> PackedGraph:
    """Compile a text; word `i` of the graph, from 1 on, is position `i` of the text."""
    by_word = dict(zip(transcript.words, transcript.entries, strict=True))
    rows: list[tuple[str, Pronunciation, float]] = [
        (word, *entry) for word, entries in by_word.items() for entry in entries
    ]
    if star is not None and options.insert_cost is not None:
        rows.append((_STAR, (star,), 0.0))
    if not rows:  # gives L a word, which G does not use
        unit = next(t for t in range(len(tokens)) if t != tokens.blank)
        rows.append((_NOTHING, (unit,), 0.0))
    words, pronunciations, costs = zip(*rows, strict=True)
    lexicon = Lexicon(words, pronunciations, np.array(costs, np.float32))
    used = {t for tokens_ in pronunciations for t in tokens_} | set(fillers.tokens)
    words = tuple(dict.fromkeys((EPSILON_WORD, *words, _SKIP)))
    labels = LabelSpace(tokens, words, used=frozenset(used))
    marked = MarkedLexicon(lexicon, fillers, np.zeros(len(lexicon), np.int32), 0)
    l_fst = build_lexicon_fst(marked, labels)
    if options.skip_cost is not None:
        arc_state = l_fst.arc_state()
        arcs = Arcs(arc_state, l_fst.ilabel, l_fst.olabel, l_fst.nextstate, l_fst.cost)
        # Ends and beginnings of sentences.
        ends = np.flatnonzero(l_fst.final_cost < np.inf)
        skips = arcs_of(ends, EPSILON, words.index(_SKIP), ends)
        l_fst = fst_of([arcs, skips], l_fst.start, l_fst.final_cost)
    lg = compose(l_fst, _g_fst(transcript.words, words, options))
    tlg = compose_topology(topology, lg, labels)
    ilabel, repeat = labels.split_repeats(tlg.ilabel)
    # A word that occurs twice is two words: each position has its own times.
    prons = list(transcript.entries)
    if star is not None:
        prons.append((((star,), 0.0),))
    vocabulary = Vocabulary(
        tokens=tokens,
        words=(EPSILON_WORD, *map(str, range(len(transcript.words))), STAR),
        entries=Pronunciations.from_lists(
            [(i + 1, units) for i, ways in enumerate(prons) for units, _ in ways],
            [cost for ways in prons for _, cost in ways],
        ),
        separators=fillers.tokens,
        separated=fillers.ends_words,
    )
    info = GraphInfo(topology, marks_repeats=True)
    return PackedGraph.pack(replace(tlg, ilabel=ilabel), repeat, vocabulary, info)


def _g_fst(
    text: tuple[str, ...], words: tuple[str, ...], options: AlignOptions
) -> FstArrays:
    ids = {word: i for i, word in enumerate(words)}
    n = len(text)
    place = np.arange(n)
    label = np.array([ids[word] for word in text], np.int32)
    parts = [arcs_of(place, label, place + 1, place + 1)]
    if options.skip_cost is not None:
        parts.append(arcs_of(place, ids[_SKIP], EPSILON, place + 1, options.skip_cost))
    if options.insert_cost is not None:
        every = np.arange(n + 1)
        parts.append(arcs_of(every, ids[_STAR], n + 1, every, options.insert_cost))
    return fst_of(parts, 0, np.where(np.arange(n + 1) == n, 0.0, np.inf))


class LogProbs:
    """Log-probs [T, V] of one utterance, read in chunks; adds a star's column."""

    # `star_cost`: nats by which the star is less probable than the frame's best token.

    def __init__(
        self, array: np.ndarray, num_tokens: int, star_cost: float | None = None
    ) -> None:
        self._array, self._num_tokens = array, num_tokens
        self._star_cost = star_cost
        self.num_frames = len(array)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield chunks, float32 [up to `CHUNK`, V or V + 1]."""
        for first in range(0, max(1, self.num_frames), CHUNK):
            part = self._array[first : first + CHUNK]
            try:
                [chunk] = as_utterances([part], None, self._num_tokens)
            except LogprobError:
                part = np.asarray(part, np.float32)
                bad = np.flatnonzero(~(part <= MAX_LOGPROB).all(axis=1))[0]
                raise bad_logprob(0, first + int(bad), part[bad]) from None
            if self._star_cost is not None:
                best = chunk.max(axis=1, keepdims=True)
                star = best - np.float32(self._star_cost)
                chunk = np.concatenate([chunk, star], axis=1)
            yield chunk


class Found(NamedTuple):
    """Result of a search."""

    hypothesis: Hypothesis  # best path; its words are positions in the text
    excess: float  # its total minus the cost of the most probable token of each frame
    exact: bool  # whether it is proved best, and reaches the end of the text


def search(
    graph: PackedGraph,
    logprobs: LogProbs,
    options: AlignOptions,
    frame_shift_s: float,
    backend: str,
) -> Found:
    """Return the best path; widens the beam until the end of the text is reached."""
    given = graph, WfstOptions(beam=options.beam, max_active=None), backend
    decoder = WfstDecoder(*given, frame_shift_s=frame_shift_s, threads=1)
    decoder._input_check.enabled = False  # the aligner checks its input
    # No path of any text costs less than the best token of each frame.
    least = math.fsum(-chunk.max(axis=1).sum(dtype=np.float64) for chunk in logprobs)
    beam, hypothesis = options.beam, _one_pass(decoder, logprobs, options.beam)
    for _ in range(WIDENED_AT_MOST):
        if hypothesis.reached_final or beam == math.inf:
            break
        # Wider beams would take longer than an unpruned search.
        if logprobs.num_frames * graph.num_states <= SMALL:
            beam = math.inf
        else:
            beam = min(max(1.0, beam) * WIDER, MAX_NATS)
        _log.info("no path reaches the end of the text: again with beam %g", beam)
        hypothesis = _one_pass(decoder, logprobs, beam)
    excess = hypothesis.total_cost - least
    # Premise of the proof: only log-probs reduce the cost of a path.
    least_of_all = min(graph.arcs["cost"].min(initial=0.0), graph.final_cost.min())
    provable = least_of_all >= 0.0 and hypothesis.reached_final
    # A pruned path was, in some frame, more than the beam above the best one. None can
    # have a lower cost than the result once the beam covers its whole excess.
    if options.exact and provable and excess + _SLACK > beam:
        beam = min(excess + _SLACK, MAX_NATS)
        hypothesis = _one_pass(decoder, logprobs, beam)
        excess = hypothesis.total_cost - least
    exact = provable and excess + _SLACK <= beam
    exact = hypothesis.reached_final and (exact or beam == math.inf)
    return Found(hypothesis, excess, exact)


def _one_pass(decoder: WfstDecoder, logprobs: LogProbs, beam: float) -> Hypothesis:
    sessions = decoder.with_options(beam=beam).sessions()
    one = sessions.open()
    for chunk in logprobs:
        sessions.advance({one: chunk})
    return sessions.close(one)
