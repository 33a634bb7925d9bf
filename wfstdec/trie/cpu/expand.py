"""Expansion of an entry by its next token: in words, after words, in OOV words.

    source = Source(entry, i, *max_credits(search, scratch, entry))
    successor = Successor(token, state, node, ...)        # destination of a token
    emitted = begin(search, scratch, source, successor, emitted)
    emitted = step_inside(search, scratch, source, token, target, emitted)
    emitted = end_word(search, scratch, source, num_next, emitted)
    emitted = expand_oov(search, scratch, source, num_next, emitted)

OOV words and open words have their own nodes: without any, `search.has_oov` is false
and their code does not run.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy import float32, int32, int64, uint32, uint64

from wfstdec.boost.kernels import may_boost, most_credited, most_paid
from wfstdec.jit import inlined
from wfstdec.trie.cpu.nodes import (
    advance_of,
    credit_token,
    credit_word,
    exceeds,
    is_over,
    least_cost,
    lookahead_of,
    loosened,
    node_begun,
    num_word_ends,
    oov_begun,
    open_beginning,
    open_node_behind,
    pay_step,
    step_cost,
    step_token,
    token_of,
    within_beam,
    word_end,
)
from wfstdec.trie.lexicon_trie import find_child, find_text
from wfstdec.trie.search_space import Node

_TEXT_FACTOR = np.uint64(6364136223846793005)
_TEXT_STEP = np.uint64(1442695040888963407)
_INF = float32(np.inf)
_NO_COST = float32(0)


class OovCredit(NamedTuple):
    """Most that OOV and open words credit in a step of an entry."""

    inside: np.float32  # bonuses, where no word ends
    at_end: np.float32  # bonuses, where one does
    fall_inside: np.float32  # by how much costs may fall, scaled
    fall_at_end: np.float32


class Source(NamedTuple):
    """Entry to expand."""

    entry: Any
    position: int  # in the frontier
    # Upper bounds of credit from boosts, and of falls in cost not in `begin_credit`.
    most_inside: np.float32  # where no word ends
    most_at_end: np.float32  # where one does
    oov_credit: OovCredit  # part of OOV and open words


class Emitted(NamedTuple):
    """Candidates so far, -1 if they do not fit, and the bound of their costs."""

    num_candidates: int
    bound: np.float32


class Successor(NamedTuple):
    """Destination of a token, and its costs without those of source and acoustics."""

    token: int
    state: int
    node: int
    boost: int
    spelling: np.uint64
    lookahead_cost: np.float32
    pron: int  # the pronunciation that ends before the token, -1 for none
    graph_cost: np.float32  # unscaled, look-ahead included
    insertion: np.float32  # of the token and the word that ends
    boost_cost: np.float32
    label: int  # the word or token appended to the text, -1 for none
    repeated: bool  # whether it is the last token again, only possible after a blank


@inlined
def begin(search, scratch, source, successor, emitted):
    """Add the candidates of a token that begins, one per preceding phase."""
    # With "max" it is one phase: that of lower cost, and the blank where the token
    # repeats.
    params, entry, s = search.params, source.entry, successor
    count, bound = emitted.num_candidates, emitted.bound
    # One more stays free, for `record_frame`.
    if count + 3 > len(scratch.candidates):
        return Emitted(int64(-1), bound)
    for phase in range(2):
        nonblank = phase == 1
        # Without a blank in between, the same token again is a repeat in CTC.
        if nonblank and s.repeated:
            break
        if not params.sums and not s.repeated:
            # At equal costs from the blank, as in the reference.
            if (entry.nonblank_cost < entry.blank_cost) != nonblank:
                continue
        before = entry.nonblank_cost if nonblank else entry.blank_cost
        cost = float32(step_cost(params, before, s) + scratch.costs[s.token])
        # Only an early drop: the final bound is this one or a lower one.
        if cost <= bound:
            c = scratch.candidates[count]
            c.cost, c.lookahead_cost, c.source = cost, s.lookahead_cost, source.position
            c.state, c.node, c.boost = s.state, s.node, s.boost
            c.spelling = s.spelling
            c.token, c.pron = s.token, s.pron
            c.from_nonblank, c.to_nonblank = nonblank, True
            c.text = entry.text
            if params.by_text and s.label >= 0:
                c.text = text_with(entry.text, s.label)
            count += 1
            bound = min(bound, within_beam(params, cost))
    return Emitted(count, bound)


@inlined
def text_with(text, label):
    """Return the hash of a text with one more word or token, uint64."""
    return np.uint64(text * _TEXT_FACTOR + np.uint64(label) + _TEXT_STEP)


@inlined
def source_cost(entry, repeated):
    """Return the cost before a token; the last token again only follows a blank."""
    return entry.blank_cost if repeated else least_cost(entry)


@inlined
def end_word(search, scratch, source, num_next, emitted):
    """Add candidates after words of the node: a separator or another word begins."""
    space, params, entry = search.space, search.params, source.entry
    of_tokens, no_node = search.phrases.of_tokens, Node(int64(-1), uint64(0))
    # The words that end are priced once, with the first token that needs them: often no
    # token does.
    priced, credit, base = False, _NO_COST, least_cost(entry)
    num_words = num_word_ends(search, entry.node)
    for n in range(num_next):
        token, bound = scratch.next_tokens[n], emitted.bound
        if is_over(search, scratch, source, token, bound):
            break  # as are all later ones
        cost = float32(base + scratch.costs[token])
        if priced and exceeds(cost, credit, emitted.bound):
            break  # the same, with the words' known costs
        target, oov = Node(int64(0), uint64(0)), no_node
        if token != space.separator:
            # Another word may only begin here if no separator is required.
            if not space.separator_optional:
                continue
            target = node_begun(search, token)
            if search.has_oov:
                oov = oov_begun(search, token)
            if target.node < 0 and oov.node < 0:
                continue
        # Phrases of tokens also pay by the token, those of words only by the word.
        token_credit, token_state = credit_token(search.phrases, entry.boost, token)
        if of_tokens:
            most = float32(search.words.top_bonus + token_credit)
            most = float32(most + source.oov_credit.at_end)
            most = most_paid(entry.boost, most, params.instalment)
            most = float32(params.begin_credit + most)
            most = float32(most + source.oov_credit.fall_at_end)
            if exceeds(cost, most, emitted.bound):
                continue
        if not priced:
            # With the least cost of any word this token and all later ones are over the
            # bound: no word is priced.
            gain = float32(entry.lookahead_cost - space.word_floor)
            gain = float32(params.lm_scale * max(_NO_COST, gain))
            most = float32(float32(params.end_credit + gain) + source.most_at_end)
            if exceeds(cost, most, bound):
                break
            least_word = _price_words(search, scratch, entry, num_words)
            credit = float32(params.word_credit + source.most_at_end)
            base = float32(base + float32(params.lm_scale * least_word))
            priced = True
        repeated = token == token_of(search, entry.node)
        # The token begins after each of the words: in the lexicon, then in the list.
        for begun in (target, oov):
            node = begun.node
            if node < 0:
                continue
            advance = advance_of(search, node), advance_of(search, entry.node)
            for at in range(num_words):
                word, state = scratch.word_ends[at], scratch.word_ends[at].state
                # A word unknown to the model, without a cost of unknown words.
                if not word.cost < _INF:
                    continue
                worth, after = word.credit, uint32(word.boost)
                if of_tokens:
                    worth, after = float32(worth + token_credit), token_state
                bonus = float32(float32(word.bonus + advance[0]) - advance[1])
                worth = float32(worth + bonus)
                boost_cost, boost = pay_step(search, entry.boost, worth, after)
                lookahead = lookahead_of(search, scratch, state, 0, 0)
                graph = _graph_cost(word, lookahead, entry)
                if node > 0:
                    cost = source_cost(entry, repeated)
                    cost = float32(cost + float32(params.lm_scale * graph))
                    cost = float32(cost + scratch.costs[token])
                    worth = float32(params.word_credit - boost_cost)
                    worth = float32(worth + source.oov_credit.fall_at_end)
                    if exceeds(cost, worth, emitted.bound):
                        continue
                    lookahead = lookahead_of(search, scratch, state, node, 0)
                    graph = _graph_cost(word, lookahead, entry)
                successor = Successor(
                    token=token,
                    state=state,
                    node=node,
                    boost=boost,
                    spelling=begun.spelling,
                    lookahead_cost=lookahead,
                    pron=word.pron,
                    graph_cost=graph,
                    insertion=float32(params.token_insertion + params.word_insertion),
                    boost_cost=boost_cost,
                    label=word.label,
                    repeated=repeated,
                )
                emitted = begin(search, scratch, source, successor, emitted)
                if emitted.num_candidates < 0:
                    return emitted
    return emitted


@inlined
def _price_words(search, scratch, entry, num_words):
    """Fill costs and next states of the words of the entry's node; return the least."""
    least = _INF
    for at in range(num_words):
        end, word = word_end(search, scratch, entry, at), scratch.word_ends[at]
        word.cost, word.state, word.bonus = end.cost, end.state, end.bonus
        word.pron, word.label = end.pron, end.label
        word.credit, word.boost = credit_word(search, entry.boost, end.word)
        lookahead = lookahead_of(search, scratch, end.state, 0, 0)
        least = min(least, _graph_cost(word, lookahead, entry))
    return least


@inlined
def _graph_cost(word, lookahead, entry):
    """Return a word's cost; look-ahead moves from the entry to the next."""
    return float32(float32(word.cost + lookahead) - entry.lookahead_cost)


@inlined
def max_credits(search, scratch, entry):
    """Return the bounds of a `Source` on credit in its next step."""
    phrases, words, boost = search.phrases, search.words, uint32(entry.boost)
    inside, at_end, instalment = _NO_COST, _NO_COST, search.params.instalment
    oov_credit = OovCredit(_NO_COST, _NO_COST, _NO_COST, _NO_COST)
    if search.has_oov:
        oov_credit = _max_oov_credit(search, scratch, entry)
    if search.params.boosted:
        credited, worth = most_credited(phrases, boost), oov_credit.inside
        if phrases.of_tokens:
            worth = float32(worth + credited)
        inside = most_paid(boost, worth, instalment)
        if search.space.has_lexicon:
            worth = float32(words.top_bonus + credited)
            # No deferred credit, no active phrase, and no phrase begins with a word
            # that ends here.
            if boost == phrases.initial and not phrases.of_tokens:
                if _is_cold(search, entry.node):
                    worth = _NO_COST
            at_end = most_paid(boost, float32(worth + oov_credit.at_end), instalment)
    inside = float32(inside + oov_credit.fall_inside)
    return inside, float32(at_end + oov_credit.fall_at_end), oov_credit


@inlined
def _max_oov_credit(search, scratch, entry):
    space, oov, params = search.space, search.oov, search.params
    rise, fall, at_end, gain = _NO_COST, _NO_COST, _NO_COST, _NO_COST
    if oov.num_nodes > 0:
        # An OOV word's bonus is credited in advance, with its first token.
        rise = float32(min(oov.best_bonus[0], params.credit_cap))
        fall = float32(params.lm_scale * oov.fall)
    node = int64(entry.node)
    if node == 0:
        return OovCredit(rise, _NO_COST, fall, _NO_COST)
    if search.first_oov <= node < search.first_open:
        best = oov.best_bonus[node - search.first_oov]
        at_end = max(_NO_COST, float32(best - advance_of(search, node)))
    if space.separator_optional:
        at_end, gain = float32(at_end + rise), fall
    if space.open.is_open and _is_spelled_word(search, entry):
        end = word_end(search, scratch, entry, int64(0))
        lower = float32(entry.lookahead_cost - end.cost)
        if lower > _NO_COST:
            gain = float32(gain + float32(params.lm_scale * lower))
    return OovCredit(_NO_COST, at_end, _NO_COST, gain)


@inlined
def _is_spelled_word(search, entry):
    """Return whether an open word that ends at an entry is a word of the table."""
    opened, node = search.space.open, int64(entry.node)
    if node < search.first_oov:
        splits = search.space.trie.node_pron_splits
        return splits[node] == splits[node + 1] and opened.node_word[node] >= 0
    if node < search.first_open:
        return False
    return find_text(opened.words, uint64(entry.spelling)) >= 0


@inlined
def _is_cold(search, node):
    if search.has_oov:  # an open word may end at any node
        if node >= search.first_oov:
            return False
        splits = search.space.trie.node_pron_splits
        if splits[node] == splits[node + 1]:
            return False
    return not may_boost(search.words, node)


@inlined
def expand_oov(search, scratch, source, num_next, emitted):
    """Add candidates within OOV and open words, where no word ends."""
    space, params, entry = search.space, search.params, source.entry
    credit = float32(params.inside_credit + source.most_inside)
    limit = loosened(emitted.bound, credit)
    length, text = open_beginning(search, entry)
    node, base = int64(entry.node), least_cost(entry)
    if node != 0 and length == 0 and node < search.first_oov:
        return emitted  # in a word whose beginning no open word shares
    for n in range(num_next):
        token = scratch.next_tokens[n]
        if float32(base + scratch.costs[token]) > limit:
            break
        target = Node(int64(-1), uint64(0))
        if node == 0:
            oov = oov_begun(search, token)
            emitted = step_inside(search, scratch, source, token, oov, emitted)
            if space.root_child[token] < 0:
                target = node_begun(search, token)
        elif search.first_oov <= node < search.first_open:
            at = node - search.first_oov
            child = find_child(search.oov.trie, at, token)
            if child >= 0:
                target = Node(search.first_oov + child, uint64(0))
        elif space.open.extends[token]:
            # Leaves the trie if no word of the lexicon continues with this token.
            if node >= search.first_oov or find_child(space.trie, node, token) < 0:
                target = open_node_behind(search, length, text, token)
        if emitted.num_candidates >= 0:
            emitted = step_inside(search, scratch, source, token, target, emitted)
        if emitted.num_candidates < 0:
            break
    return emitted


@inlined
def step_inside(search, scratch, source, token, target, emitted):
    """Add a token where no word ends; `target` is its destination, if any."""
    params, entry, node = search.params, source.entry, target.node
    if node < 0:
        return emitted
    repeated = token == token_of(search, entry.node)
    cost = float32(source_cost(entry, repeated) + scratch.costs[token])
    boost_cost, boost, credit = _NO_COST, entry.boost, params.inside_credit
    if params.boosted:
        bonus = float32(advance_of(search, node) - advance_of(search, entry.node))
        boost_cost, boost = step_token(search, entry.boost, token, bonus)
        credit = float32(credit - boost_cost)
    # Inside a word look-ahead never falls: without it the cost is no higher. It may
    # fall where an OOV word begins.
    credit = float32(credit + source.oov_credit.fall_inside)
    if exceeds(cost, credit, emitted.bound):
        return emitted
    lookahead = entry.lookahead_cost
    if node > 0:
        lookahead = lookahead_of(search, scratch, entry.state, node, entry.node)
    successor = Successor(
        token=token,
        state=entry.state,
        node=node,
        boost=boost,
        spelling=target.spelling,
        lookahead_cost=lookahead,
        pron=int32(-1),
        graph_cost=float32(lookahead - entry.lookahead_cost),
        insertion=params.token_insertion,
        boost_cost=boost_cost,
        label=int64(-1),
        repeated=repeated,
    )
    return begin(search, scratch, source, successor, emitted)
