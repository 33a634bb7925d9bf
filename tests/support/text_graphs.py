"""Small graphs as text, so that a test can show the whole of what it decodes on.

One arc per line: `state nextstate token word cost`, with `-` for no token or no word,
and `token'` for an arc that repeats its token. One final state per line: `state cost`.

    graph = text_graph('''
        0 0 _ - 0
        0 1 a A 0.5
        1 1 a' - 0
        1 0
    ''', tokens="_ a b")
"""

import numpy as np

from wfstdec import PackedGraph, token_table
from wfstdec.graph.arcs import FstArrays, GraphInfo
from wfstdec.text.tokens import EPSILON, ilabel_of
from wfstdec.text.vocabulary import Pronunciations, Vocabulary


def text_graph(text, marks_repeats=True, **vocabulary):
    """A packed graph; see `text_tables` for the tables, state 0 is the start."""
    fst, repeat, words = text_fst(text, vocabulary.get("tokens", "_ a b"))
    vocabulary = text_tables(words=words, **vocabulary)
    info = GraphInfo(marks_repeats=marks_repeats)
    return PackedGraph.pack(fst, repeat, vocabulary, info)


def text_fst(text, tokens="_ a b"):
    """The arcs of the text, in its order within a state; repeats; words, sorted."""
    rows = [line.split() for line in text.strip().splitlines()]
    arcs = sorted((row for row in rows if len(row) == 5), key=lambda row: int(row[0]))
    finals = {int(row[0]): float(row[1]) for row in rows if len(row) == 2}
    words = ["<eps>", *sorted({row[3] for row in arcs} - {"-"})]
    names, state = tokens.split(), np.array([int(row[0]) for row in arcs], int)
    ilabel = [
        EPSILON if row[2] == "-" else ilabel_of(names.index(row[2].rstrip("'")))
        for row in arcs
    ]
    num_states = 1 + max([*finals, *state.tolist(), *(int(row[1]) for row in arcs)])
    fst = FstArrays(
        start=0,
        final_cost=np.array(
            [finals.get(s, np.inf) for s in range(num_states)], np.float32
        ),
        state_arc_splits=np.searchsorted(state, np.arange(num_states + 1)),
        ilabel=np.array(ilabel, np.int32),
        olabel=np.array([words.index(row[3].replace("-", "<eps>")) for row in arcs]),
        nextstate=np.array([int(row[1]) for row in arcs], np.int32),
        cost=np.array([float(row[4]) for row in arcs], np.float32),
    )
    return fst, np.array([row[2].endswith("'") for row in arcs], bool), words


def text_tables(*, tokens="_ a b", words=("<eps>",), said=(), costs=None, fillers=""):
    """A vocabulary; `said` holds `word token...` lines, of words that may be unused."""
    table = token_table(tokens.split())
    entries = [line.split() for line in said]
    words = [*words, *sorted({word for word, *_ in entries} - set(words))]
    pronunciations = [
        (words.index(word), tuple(table.index(token) for token in pronunciation))
        for word, *pronunciation in entries
    ]
    return Vocabulary(
        tokens=table,
        words=tuple(words),
        entries=Pronunciations.from_lists(pronunciations, costs),
        separators=tuple(table.index(token) for token in fillers.split()),
    )
