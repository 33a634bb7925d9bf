"""Arcs of the packed graph behind the links of a lattice."""

import numpy as np
from numpy import int64, uint32

from wfstdec.graph.arcs import LABEL_MASK, NO_ARCS, REPEAT
from wfstdec.graph.overlay import Overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import inlined, jit
from wfstdec.search.paths.traceback import NONE
from wfstdec.text.tokens import EPSILON, ilabel_of
from wfstdec.wfst.rows import RowArrays

_LABEL, _REPEAT = uint32(LABEL_MASK), uint32(REPEAT)
_FIRST = uint32(ilabel_of(0))
_NO_SPLITS = np.zeros(1, np.uint32)


def packed_arcs(
    graph: PackedGraph,
    overlay: Overlay | None,
    laid: RowArrays,
    links: np.ndarray,
    graph_state: np.ndarray,
) -> np.ndarray:
    """Numbers of arcs in the packed graph, overlays behind it, uint32 [M].

    `links`: LINK [M]. `graph_state`: uint32 [N], of the states that links join.
    """
    of_overlay = NO_ARCS, _NO_SPLITS
    if overlay is not None:
        of_overlay = overlay.arcs, overlay.state_arc_splits
    of_graph = graph.arcs, graph.state_arc_splits
    hubs = bool(laid.has_hubs)
    return _packed(
        *(of_graph, of_overlay, laid.path_arcs, hubs, laid.blank_label),
        *(links, graph_state),
    )


@inlined
def _same(one, other):
    """Tell whether two arcs are the same but for the states that they leave."""
    same = one.olabel == other.olabel and one.nextstate == other.nextstate
    label = _LABEL | _REPEAT
    return (
        same and one.ilabel & label == other.ilabel & label and one.cost == other.cost
    )


@inlined
def _find(arcs, begin, end, wanted, skip, in_order):
    """Position of an arc among those of a state; `skip`: equal ones before it."""
    label, low, high = wanted.ilabel & _LABEL, begin, end if in_order else begin
    while low < high:
        middle = (low + high) // 2
        if arcs[middle].ilabel & _LABEL < label:
            low = middle + 1
        else:
            high = middle
    while not _same(arcs[low], wanted) or skip > 0:
        skip -= int64(_same(arcs[low], wanted))
        low += 1
    return low


@jit
def _packed(of_graph, of_overlay, path_arcs, hubs, blank, links, graph_state):
    """Fill in `packed_arcs`: the arcs of a row are copied to each state that has it."""
    (arcs, splits), (added, added_splits) = of_graph, of_overlay
    numbers, first_state = np.empty(len(links), np.uint32), len(splits) - 1
    one = path_arcs[:1].copy()
    for i in range(len(links)):
        link, skip, wanted = links[i], int64(0), one[0]
        a, position = int64(link.arc), int64(link.position)
        if position == 0:
            wanted.olabel, wanted.cost = uint32(0), np.float32(0)
            wanted.nextstate = graph_state[int64(link.nextstate)]
            wanted.ilabel = blank
            if link.arc != uint32(NONE):
                wanted.ilabel = uint32(link.arc + _FIRST) | _REPEAT
            elif hubs and link.state % uint32(2) == uint32(1):
                wanted.ilabel = uint32(EPSILON)
        elif a < len(path_arcs):
            for other in range(a - position + 1, a):
                skip += int64(_same(path_arcs[other], path_arcs[a]))
            one[0] = path_arcs[a]
        else:
            a -= len(path_arcs)
            if a < int64(added_splits[0]):  # an exit
                numbers[i] = uint32(len(arcs) + a)
                continue
            for other in range(a - position + 1, a):
                skip += int64(_same(added[other], added[a]))
            one[0] = added[a]
        state = int64(graph_state[int64(link.state)])
        if state < first_state:
            begin, end = int64(splits[state]), int64(splits[state + 1])
            numbers[i] = _find(arcs, begin, end, wanted, skip, True)
        else:
            begin = int64(added_splits[state - first_state])
            numbers[i] = len(arcs) + _find(added, begin, begin, wanted, skip, False)
    return numbers
