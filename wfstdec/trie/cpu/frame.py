"""Frames of one utterance in the trie search.

The specification is `tests/reference/trie_reference.py`; results are bit-identical:

    for each frame:   price    the acoustic cost of each token
                      expand   blanks and repeats; tokens that may begin; candidates
                               within a running bound   (`expand.py`)
                      merge    one entry for each key   (`merge.py`)
                      choose   the best entries
                      settle   their trace; subtract the best cost

Most entries of most frames only take a blank or repeat their last token: they are
changed in place, and only tokens that begin become candidates.

The running bound drops only candidates that the final one drops. Before the language
model is queried, source and acoustics alone are compared with it: inside a word the
look-ahead never falls, and at its end it falls by at most `max_word_gain`.
"""

import numpy as np
from numpy import float32, int32, int64, uint64

from wfstdec.jit import inlined, part
from wfstdec.jit.sorting import index_of, key_of, sort_few_keys
from wfstdec.jit.vectors import (
    STEP,
    at_most,
    bits_below,
    count_bits,
    load,
    lowest_bit,
    splat,
    trailing,
)
from wfstdec.lm.kernels import step, unanswered
from wfstdec.search.hypothesis import NO_CUTOFF
from wfstdec.search.logprobs import price
from wfstdec.trie.cpu import arrays
from wfstdec.trie.cpu.expand import (
    Emitted,
    Source,
    Successor,
    begin,
    end_word,
    expand_oov,
    max_credits,
    source_cost,
    step_inside,
)
from wfstdec.trie.cpu.lattice_kernels import record_frame
from wfstdec.trie.cpu.merge import choose, merge, settle
from wfstdec.trie.cpu.nodes import (
    exceeds,
    is_over,
    least_cost,
    loosened,
    num_word_ends,
    step_token,
    token_of,
    within_beam,
)
from wfstdec.trie.lexicon_trie import find_child
from wfstdec.trie.search_space import Node

FEW_KEYS = 64
"""Up to this number, tokens are sorted by counting."""
_INF = float32(np.inf)
_ONE = uint64(1)
_NO_BIT = uint64(0)
_LOW_BITS = uint64(63)
FEW_TOKENS = 64
"""Up to this number all are followed."""
TRY_BEST_ABOVE = 12
"""Above this number the best token is followed first, for a better bound."""
_NO_COST = float32(0)


@part
def advance(search, scratch, utterance, record, logprobs, first):
    """Advance the frontier by the frames of a chunk from `first` on."""
    # Returns (status, frame): OK and T, or the array to grow and the frame to repeat.
    space, params = search.space, search.params
    num_frames = logprobs.shape[0]
    counts = utterance.counts
    for frame in range(first, num_frames):
        # A search without survivors is unchanged by later chunks.
        if counts[arrays.DIED] >= 0:
            break
        row = logprobs[frame]
        price(params.pricing, space.blank, row, scratch.unscaled, scratch.costs)
        frontier = utterance.frontier[: counts[arrays.FRONTIER]]
        emitted = expand(search, scratch, frontier)
        # The utterance is unchanged until `settle`: the caller enlarges the array, or
        # queries the model, and the frame is repeated from its start.
        if emitted.num_candidates < 0:
            return arrays.GROW_CANDIDATES, frame
        if unanswered(space.automaton):
            return arrays.ASK_MODEL, frame
        # The running bound was at least this one: candidates between the two are
        # dropped by `merge`, as in the reference.
        cutoff = emitted.bound
        num_merged = merge(search, scratch, frontier, emitted.num_candidates, cutoff)
        if num_merged == 0:
            counts[arrays.DIED] = counts[arrays.FRAMES]
            break
        num_entries, cutoff = choose(search, scratch, num_merged, cutoff)
        if num_entries > len(utterance.frontier):
            return arrays.GROW_FRONTIER, frame
        # Each entry adds at most one node per phase.
        if counts[arrays.TRACE] + 2 * num_entries > len(utterance.trace):
            return arrays.GROW_TRACE, frame
        # Before `settle`, which overwrites the source frontier of the candidates.
        if record is not None:
            sizes = num_entries, emitted.num_candidates
            if not record_frame(search, scratch, utterance, record, sizes, cutoff):
                return arrays.GROW_LATTICE, frame
        counts[arrays.ACTIVE] += counts[arrays.FRONTIER]
        counts[arrays.CANDIDATES] += emitted.num_candidates
        settle(search, scratch, utterance, num_entries)
        counts[arrays.FRAMES] += 1
    return arrays.OK, num_frames


@inlined
def expand(search, scratch, frontier):
    """Write the candidates of all entries: the tokens that begin."""
    # A token may begin if it is within the bound from a phase of cost 0: no phase costs
    # less after re-basing (with "sum" it need not be that of the first entry). Such
    # tokens are computed once for all entries.
    space, params, top = search.space, search.params, _NO_COST
    # Largest credit in the next step of any entry. Without a list, as in most
    # utterances, none of this is in the loop.
    if params.boosted or search.has_oov:
        for i in range(len(frontier)):
            inside, at_end, _ = max_credits(search, scratch, frontier[i])
            top = max(top, max(inside, at_end))
    credit = float32(params.begin_credit + top)
    # Entries in which no token begins are candidates too and start the bound.
    least, most, blank = _INF, _NO_COST, scratch.costs[space.blank]
    for i in range(len(frontier)):
        entry, again = frontier[i], _INF
        if entry.nonblank_cost < _INF:
            again = scratch.costs[token_of(search, entry.node)]
            again = float32(entry.nonblank_cost + again)
        scratch.again_costs[i] = again
        stays = min(again, float32(least_cost(entry) + blank))
        least, most = min(least, stays), max(most, stays)
    emitted = Emitted(int64(0), within_beam(params, least))
    # These are different entries: if there are `beam_size`, costs above all of them are
    # dropped.
    if not params.by_text and len(frontier) == params.beam_size:
        emitted = Emitted(int64(0), min(emitted.bound, most))
    bound = loosened(emitted.bound, credit)
    count = find_tokens(space.blank, bound, scratch)
    # With many tokens the best one is followed first, from the first entry alone: it is
    # inexpensive, and its candidates give a better bound.
    tries_best = count > uint64(TRY_BEST_ABOVE)
    # Expansion is a large part of the kernel and inlined once.
    for tries in range(2 if tries_best else 1):
        if tries_best and tries == 0:
            best = _NO_BIT
            for i in range(_ONE, count):
                if scratch.found_costs[i] < scratch.found_costs[best]:
                    best = i
            scratch.next_tokens[0] = scratch.found_tokens[best]
            num_next, num_sources = int64(1), int64(1)
        else:
            if tries_best:
                bound = loosened(emitted.bound, credit)
                kept = _NO_BIT
                for i in range(count):
                    token = scratch.found_tokens[i]
                    scratch.found_tokens[kept] = token
                    scratch.found_costs[kept] = scratch.found_costs[i]
                    kept += uint64(scratch.costs[token] <= bound)
                count = kept
            num_next = sort_tokens(params, count, scratch)
            num_sources = int64(len(frontier))
        bits = _NO_BIT
        for i in range(num_next):
            token = scratch.next_tokens[i]
            cost = scratch.costs[token]
            scratch.next_costs[token], scratch.ranked_costs[i] = cost, cost
            bits |= _ONE << (uint64(token) & _LOW_BITS)
            scratch.ranked_bits[i + 1] = bits
        emitted = _emit(
            search, scratch, frontier[:num_sources], num_next, emitted.bound
        )
        # Reset `next_costs` to `inf`; most of the V are untouched.
        for n in range(num_next):
            scratch.next_costs[scratch.next_tokens[n]] = _INF
    return emitted


@inlined
def _emit(search, scratch, frontier, num_next, bound):
    emitted = Emitted(int64(0), bound)
    if num_next == 0:
        return emitted
    for i in range(len(frontier)):
        credits = max_credits(search, scratch, frontier[i])
        source = Source(frontier[i], i, *credits)
        # If the best token is over the bound, all are.
        best = scratch.next_tokens[0]
        if is_over(search, scratch, source, best, emitted.bound):
            continue
        if search.space.has_lexicon:
            emitted = _walk_trie(search, scratch, source, num_next, emitted)
        else:
            emitted = _any_token(search, scratch, source, num_next, emitted)
        if emitted.num_candidates < 0:
            return emitted
    return emitted


@inlined
def _any_token(search, scratch, source, num_next, emitted):
    space, params, entry = search.space, search.params, source.entry
    last_token = space.node_token[entry.node]
    for n in range(num_next):
        token = scratch.next_tokens[n]
        if is_over(search, scratch, source, token, emitted.bound):
            break  # as are all later ones
        repeated = token == last_token
        # Boosts are computed before the model is queried, which takes longer.
        boost_cost, boost = _NO_COST, entry.boost
        if params.boosted:
            boost_cost, boost = step_token(search, entry.boost, token, _NO_COST)
            credit = float32(params.begin_credit - boost_cost)
            cost = float32(source_cost(entry, repeated) + scratch.costs[token])
            if exceeds(cost, credit, emitted.bound):
                continue
        graph_cost, state = step(space.automaton, 0, entry.state, token)
        successor = Successor(
            token=token,
            state=state,
            node=token,
            boost=boost,
            spelling=uint64(0),
            lookahead_cost=_NO_COST,
            pron=int32(-1),
            graph_cost=float32(graph_cost),
            insertion=params.token_insertion,
            boost_cost=boost_cost,
            label=int64(token),
            repeated=repeated,
        )
        emitted = begin(search, scratch, source, successor, emitted)
        if emitted.num_candidates < 0:
            break
    return emitted


@inlined
def _walk_trie(search, scratch, source, num_next, emitted):
    """Add tokens within words; tokens that end words; separators between words."""
    params, entry = search.params, source.entry
    credit = float32(params.inside_credit + source.most_inside)
    limit = loosened(emitted.bound, credit)
    # Nodes from `first_oov` on are outside the trie, which has no children there.
    if not search.has_oov or entry.node < search.first_oov:
        for n in range(_find_inside(search.space, scratch, entry, limit, num_next)):
            token = scratch.inside_tokens[n]
            target = Node(int64(scratch.inside_nodes[n]), uint64(0))
            emitted = step_inside(search, scratch, source, token, target, emitted)
            if emitted.num_candidates < 0:
                return emitted
    if search.has_oov:
        emitted = expand_oov(search, scratch, source, num_next, emitted)
        if emitted.num_candidates < 0:
            return emitted
    if entry.node != 0 and num_word_ends(search, entry.node) > 0:
        emitted = end_word(search, scratch, source, num_next, emitted)
    return emitted


@inlined
def _find_inside(space, scratch, entry, limit, num_next):
    """Fill `inside_tokens` and `inside_nodes` within a limit; return how many."""
    trie, node, separator = space.trie, int64(entry.node), space.separator
    first = int64(trie.node_child_splits[node])
    base, near, count = least_cost(entry), int64(0), int64(0)
    # Tokens are sorted by cost: those within the entry's limit come first.
    while near < num_next and float32(base + scratch.ranked_costs[near]) <= limit:
        near += 1
    children = trie.node_child_bits[node]
    bits = children & scratch.ranked_bits[near]
    # Most entries have no child by any of these; their children are then not read.
    if space.num_tokens <= 64:
        while bits != _NO_BIT:
            bit = lowest_bit(bits)
            bits ^= bit
            # The first child follows its parent: saves one read from a large array.
            at, child = first + int64(bits_below(children, bit)), node + 1
            if at > first:
                child = int64(trie.child_node[at])
            scratch.inside_tokens[count] = count_bits(bit - _ONE)
            scratch.inside_nodes[count] = child
            count += 1
    elif bits != _NO_BIT:
        # Tokens share bits: iterate over the children, or, if these are many, over the
        # tokens.
        last = int64(trie.node_child_splits[node + 1])
        if last - first <= 2 * near:
            # Branch-free: always written, counted if within the limit.
            for at in range(first, last):
                token = trie.child_token[at]
                cost = float32(base + scratch.next_costs[token])
                scratch.inside_tokens[count] = token
                scratch.inside_nodes[count] = trie.child_node[at]
                count += int64(cost <= limit and cost < _INF)
        else:
            for n in range(near):
                token = scratch.next_tokens[n]
                if node == 0:
                    child = int64(space.root_child[token])
                else:
                    child = find_child(trie, node, token)
                scratch.inside_tokens[count] = token
                scratch.inside_nodes[count] = child
                count += int64(child >= 0)
    # A separator between words stays at the root, which is not its own child.
    if node == 0 and separator >= 0 and scratch.next_costs[separator] < _INF:
        scratch.inside_tokens[count] = separator
        scratch.inside_nodes[count] = 0
        count += 1
    return count


@inlined
def find_tokens(blank, bound, scratch):
    """Fill `found_tokens` and `found_costs` up to a bound; return how many."""
    costs, unscaled, blank = scratch.costs, scratch.unscaled, uint64(blank)
    bound, count, num_tokens = min(bound, NO_CUTOFF), _NO_BIT, uint64(len(unscaled))
    if num_tokens <= uint64(FEW_TOKENS):
        # No branch depends on the costs, so that none is mispredicted.
        for v in range(num_tokens):
            scratch.found_tokens[count], scratch.found_costs[count] = v, unscaled[v]
            count += uint64(costs[v] <= bound) & uint64(v != blank)
        return count
    # Compares sixteen at once: of many tokens most are over the bound.
    limit, first = splat(bound), _NO_BIT
    while first < num_tokens:
        near = uint64(at_most(load(costs, first), limit))
        while near != _NO_BIT:
            v = first + trailing(near)
            near &= near - _ONE
            scratch.found_tokens[count], scratch.found_costs[count] = v, unscaled[v]
            count += uint64(v != blank)
        first += STEP
    return count


@inlined
def sort_tokens(params, count, scratch):
    """Fill `next_tokens` with the best found tokens, in order; return how many."""
    keys, num_found = scratch.keys, int64(count)
    if num_found <= FEW_KEYS and 2 * num_found <= len(keys):
        for i in range(num_found):
            keys[i] = _key_of(scratch, i)
        sort_few_keys(keys, num_found)
    else:
        _bucket_sort(scratch, num_found)
    num_next = min(num_found, params.token_top_k)
    for i in range(num_next):
        scratch.next_tokens[i] = index_of(keys[i])
    return num_next


@inlined
def _key_of(scratch, i):
    """Return the key of a token; adding 0 turns -0.0 into 0.0: keys compare bits."""
    cost = float32(scratch.found_costs[i] + _NO_COST)
    return key_of(cost, scratch.found_tokens[i])


@inlined
def _bucket_sort(scratch, count):
    # For 200 tokens quicksort took 6 us longer.
    costs, ends, keys = scratch.found_costs, scratch.range_ends, scratch.keys
    least, most = costs[0], costs[0]
    for i in range(1, count):
        least, most = min(least, costs[i]), max(most, costs[i])
    scale = _NO_COST
    if most > least:
        scale = float32(arrays.NUM_RANGES - 1) / float32(most - least)
    ends[:] = 0
    for i in range(count):
        ends[int64(float32(costs[i] - least) * scale)] += 1
    end = int32(0)
    for at in range(arrays.NUM_RANGES):
        end += ends[at]
        ends[at] = end
    for i in range(count - 1, -1, -1):
        at = int64(float32(costs[i] - least) * scale)
        ends[at] -= 1
        keys[ends[at]] = _key_of(scratch, i)
    for i in range(count):
        key, at = keys[i], i
        while at > 0 and keys[at - 1] > key:
            keys[at] = keys[at - 1]
            at -= 1
        keys[at] = key
