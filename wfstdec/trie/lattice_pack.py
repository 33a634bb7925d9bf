"""Lattices from records of a trie search.

The search is that of the best path (`nbest=1`, `merge="max"`). An entry in one of its
two phases is a state of the lattice, and all ends lead to one state more. The rule,
with costs before the best one of the frame is subtracted:

    recorded   a candidate of an entry in either phase (the search itself continues from
               the lower-cost one where both may do the same), if within the frame's
               cutoff and leads to an entry that survives (`beam_size`); and the ends
    excess     candidate - cost of the phase that it leads to, float32; of an end: its
               cost less that of the best end
    extra      of a state: the least of excess + extra(next state), float32
    kept       arcs with excess + extra(next state) <= lattice_beam

    graph      (word and pronunciation + look-ahead there) - look-ahead here: it cancels
               out along a path; the start's is on the arcs that leave it. Of an
               end: the last word and `</s>`, minus the entry's look-ahead, and only
               that if no sentence is whole
    boost      of an end: with the deferred credit and charges of boosts

States are sorted by (frame, place and phase, boost state). Places, (language model
state, node, spelling of an open word), are numbered in each lattice by their order, and
have two numbers, the blank's first; the end comes last. Arcs are numbered by their
destination, then in the order in which the search takes them: of equal ones the first
is on the best path.
"""

from typing import NamedTuple

import numpy as np

from wfstdec.lattice.arrays import (
    ARC,
    NO_GRAPH,
    OPEN,
    REPEATED,
    STATE,
    WORD,
    Lattice,
    LatticeScales,
    starts_token,
)
from wfstdec.search.paths.tokens import Path
from wfstdec.text.tokens import EPSILON
from wfstdec.text.vocabulary import Vocabulary
from wfstdec.trie.options import TrieOptions

END = -1
"""Common destination of all ends."""


class RecordedEntries(NamedTuple):
    """Entries of all frames, in any order; the first is the start."""

    frame: np.ndarray  # int32 [E], frames passed
    cost: np.ndarray  # float32 [E], relative to the best of its frame
    # [E], order of language model states at equal costs
    state: np.ndarray
    node: np.ndarray  # int32 [E], as in `Key`
    boost: np.ndarray  # int32 [E], as in `Key`
    spelling: np.ndarray  # uint64 [E], the same
    nonblank_first: np.ndarray  # bool [E], the search continues from that phase


class RecordedArcs(NamedTuple):
    """Kept arcs, in any order."""

    # int64 [M], twice the entry that each leaves, one more for nonblank
    state: np.ndarray
    nextstate: np.ndarray  # int64 [M], the same, or `END`
    ilabel: np.ndarray  # uint32 [M], with `REPEATED` for a repeated token
    # uint32 [M], the word that ends, `OPEN` for open words that have no id; of bare
    # tokens the ilabel of one that begins
    olabel: np.ndarray
    excess: np.ndarray  # float32 [M]
    graph_cost: np.ndarray  # float32 [M], before scales
    acoustic_cost: np.ndarray  # float32 [M], before scales
    boost_cost: np.ndarray  # float32 [M]


class RecordedFrames(NamedTuple):
    """Records of a search: its best path, entries, arcs between them."""

    path: Path
    entries: RecordedEntries
    arcs: RecordedArcs


def lattice_of(
    recorded: RecordedFrames,
    vocabulary: Vocabulary,
    options: TrieOptions,
    frame_shift_s: float,
    *,
    words_are_tokens: bool,
) -> Lattice:
    """Return the lattice of a search's records, numbered and sorted."""
    path, entries, given = recorded
    ends = 2 * len(entries.frame)
    nextstate = np.where(given.nextstate == END, ends, given.nextstate)
    used = np.unique(np.concatenate([given.state, nextstate]))
    states = _states(entries, used, path.num_frames)
    keys = (states["boost_state"], states["graph_state"], states["frame"])
    order = np.lexsort(keys)
    number = np.zeros(ends + 1, np.uint32)
    number[used[order]] = np.arange(len(used), dtype=np.uint32)
    to = number[nextstate]
    arcs = np.zeros(len(to), ARC)
    arcs["state"], arcs["nextstate"] = number[given.state], to
    arcs["olabel"] = label_of_word(vocabulary, given.olabel)
    has_word = arcs["olabel"] != EPSILON
    arcs["ilabel"] = given.ilabel | np.where(has_word, WORD, 0)
    for name in ("graph_cost", "acoustic_cost", "boost_cost", "excess"):
        arcs[name] = getattr(given, name)
    arcs["arc"][_in_order(entries, given, to)] = np.arange(len(arcs))
    scales = LatticeScales(
        options.acoustic_scale,
        options.lm_scale,
        options.word_insertion,
        options.token_insertion,
    )
    arcs["insertion_cost"] = scales.insertion_costs(
        has_word, starts_token(arcs["ilabel"], vocabulary.tokens)
    )
    died = path.died_at_frame
    return Lattice(
        states=states[order],
        arcs=arcs[np.lexsort((arcs["arc"], arcs["state"]))],
        vocabulary=vocabulary,
        scales=scales,
        lattice_beam=float(options.beam_of_lattice),
        search_cost=path.search_cost,
        reached_final=path.reached_final,
        num_frames=path.num_frames,
        died_at_frame=died if died >= 0 else None,
        frame_shift_s=frame_shift_s,
        info=NO_GRAPH,
        labels_at_word_end=True,
        words_are_tokens=words_are_tokens,
    )


def label_of_word(vocabulary: Vocabulary, words: np.ndarray) -> np.ndarray:
    """Turn word ids of a search into labels, `OPEN` into that of open words."""
    # In the vocabulary the label of open words follows the decoder's words, and OOV
    # words follow it.
    if vocabulary.open_word is None:
        return words
    opened = vocabulary.open_word.word
    labels = np.where(words >= opened, words + 1, words)
    return np.where(words == OPEN, opened, labels).astype(words.dtype)


def _states(entries: RecordedEntries, used: np.ndarray, num_frames: int) -> np.ndarray:
    states = np.zeros(len(used), STATE)
    entry, phase = used[:-1] >> 1, used[:-1] & 1
    keys = [entries.spelling[entry], entries.node[entry], entries.state[entry]]
    order = np.lexsort(keys)
    changes = np.zeros(len(entry), bool)
    for key in keys:
        changes[1:] |= key[order][1:] != key[order][:-1]
    place = np.empty(len(entry), np.int64)
    place[order] = np.cumsum(changes)
    states["frame"][:-1], states["frame"][-1] = entries.frame[entry], num_frames
    states["graph_state"][:-1] = 2 * place + phase
    states["graph_state"][-1] = 2 * (place.max() + 1)
    states["boost_state"][:-1] = entries.boost[entry]
    states["final_cost"][:-1] = states["final_excess"][:-1] = np.inf
    return states


def _in_order(
    entries: RecordedEntries, given: RecordedArcs, nextstate: np.ndarray
) -> np.ndarray:
    """Return arcs by destination, then as the search takes them, int64 [A]."""
    # By the source entry (its cost, then its key); a repeated token first; by the word
    # that ends; from the phase that the search continues from (at the end from blank)
    # before the other.
    entry, phase = given.state >> 1, given.state & 1
    first = np.where(given.nextstate == END, False, entries.nonblank_first[entry])
    begins = given.ilabel & REPEATED == 0
    of_entry = (entries.spelling, entries.boost, entries.node, entries.state)
    keys = [key[entry] for key in (*of_entry, entries.cost)]
    return np.lexsort([phase != first, given.olabel, begins, *keys, nextstate])
