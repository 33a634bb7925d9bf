"""Added words and open words: what they may credit, and where their tokens lead.

They stand beside the lexicon's trie: `search.beside` is false where there are none, and
nothing of this runs.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int32, int64, uint64

from wfstdec.jit import inlined
from wfstdec.trie.cpu.begin import Beside, Successor, begin, source_cost
from wfstdec.trie.cpu.boost_steps import step_token
from wfstdec.trie.cpu.bounds import exceeds, least_cost, loosened, running_bound
from wfstdec.trie.cpu.places import (
    Place,
    added_begun,
    advance_of,
    lookahead_of,
    open_beginning,
    place_begun,
    place_behind,
    token_of,
    word_end,
)
from wfstdec.trie.lexicon_trie import find_child
from wfstdec.trie.texts import find_text

_INF = float32(np.inf)
_NOWHERE = int64(-1)
_ZERO = float32(0)


@inlined
def most_beside(search, entry):
    """What added and open words may credit in a step of an entry, at most."""
    space, added, scales = search.space, search.added, search.scales
    rise, fall, at_end, gain = _ZERO, _ZERO, _ZERO, _ZERO
    if added.num_nodes > 0:
        rise = float32(min(added.best_bonus[0], scales.credit_cap))
        fall = float32(scales.lm_scale * added.fall)
    node = int64(entry.node)
    if node == 0:
        return Beside(rise, _ZERO, fall, _ZERO)
    if search.first_added <= node < search.first_open:
        best = added.best_bonus[node - search.first_added]
        at_end = max(_ZERO, float32(best - advance_of(search, node)))
    if space.separator_optional:
        at_end, gain = float32(at_end + rise), fall
    if space.open.is_open and _is_spelled_word(search, entry):
        end = word_end(search, entry, int64(0))
        lower = float32(entry.lookahead_cost - end.cost)
        if lower > _ZERO:
            gain = float32(gain + float32(scales.lm_scale * lower))
    return Beside(_ZERO, at_end, _ZERO, gain)


@inlined
def _is_spelled_word(search, entry):
    """Whether an open word that ends at an entry is a word of the table."""
    opened, node = search.space.open, int64(entry.node)
    if node < search.first_added:
        splits = search.space.trie.node_pron_splits
        return splits[node] == splits[node + 1] and opened.node_word[node] >= 0
    if node < search.first_open:
        return False
    return find_text(opened.words, uint64(entry.spelling)) >= 0


@inlined
def walk_beside(search, work, source, num_next, emitted):
    """Tokens inside added and open words, or that begin one, and no word ends."""
    scales, entry = search.scales, source.entry
    credit = float32(scales.inside_credit + source.most_inside)
    limit = loosened(running_bound(scales, emitted.least_cost), credit)
    length, text = open_beginning(search, entry)
    node, base = int64(entry.node), least_cost(entry)
    if node != 0 and length == 0 and node < search.first_added:
        return emitted  # in a word that no open word begins like
    for n in range(num_next):
        token = work.next_tokens[n]
        if float32(base + work.costs[token]) > limit:
            break
        place = Place(_NOWHERE, uint64(0))
        if node == 0:
            emitted = _go_beside(
                search, work, source, token, added_begun(search, token), emitted
            )
            if search.space.root_child[token] < 0:
                place = place_begun(search, token)
        elif search.first_added <= node < search.first_open:
            at = node - search.first_added
            child = find_child(search.added.trie, at, token)
            if child >= 0:
                place = Place(search.first_added + child, uint64(0))
        elif search.space.open.extends[token]:
            if node >= search.first_added or _leaves(search, work, source, token):
                place = place_behind(search, length, text, token)
        if emitted.num_candidates >= 0:
            emitted = _go_beside(search, work, source, token, place, emitted)
        if emitted.num_candidates < 0:
            break
    return emitted


@inlined
def _leaves(search, work, source, token):
    """Whether a token leads from a node of the trie to none."""
    return find_child(search.space.trie, int64(source.entry.node), token) < 0


@inlined
def _go_beside(search, work, source, token, place, emitted):
    """A token begins and no word ends; it leads beside the trie, if anywhere."""
    scales, entry, node = search.scales, source.entry, place.node
    if node < 0:
        return emitted
    repeated = token == token_of(search, entry.node)
    lookahead = lookahead_of(search, work, entry.state, node)
    graph = float32(lookahead - entry.lookahead_cost)
    if not graph < _INF:
        return emitted
    cost = float32(source_cost(entry, repeated) + work.costs[token])
    cost = float32(cost + float32(scales.lm_scale * graph))
    credit = float32(scales.inside_credit + source.most_inside)
    if exceeds(scales, cost, credit, emitted.least_cost):
        return emitted
    bonus = float32(advance_of(search, node) - advance_of(search, entry.node))
    boost_cost, boost = step_token(search, entry.boost, token, bonus)
    successor = Successor(
        token=token,
        state=entry.state,
        node=node,
        boost=boost,
        spelling=place.spelling,
        lookahead_cost=lookahead,
        pron=int32(-1),
        graph_cost=graph,
        insertion=scales.token_insertion,
        boost_cost=boost_cost,
        label=int64(-1),
        repeated=repeated,
    )
    return begin(search, work, source, successor, emitted)
