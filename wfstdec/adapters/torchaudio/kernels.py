"""Flashlight's beam search in numba: `LexiconDecoder` and `LexiconFreeDecoder`.

    frames = advance(rules, scratch, utterance, emissions, first)  # how many are done
    num_final = end(rules, scratch, utterance, finish_states, finish_scores)

A hypothesis is a history of words (or tokens), a node of the lexicon, the token of its
last frame, and whether that was a blank. In a frame of `row` it may

    begin a node below        + row[n] + lm_weight * (best word below - that before)
    end a word                + row[n] + lm_weight * (word - best below) + word_score
    end an unknown word       the same with unk_score, where no word ends
    stay                      + row[its token]; between words row[sil]; not after blank
    say nothing               + row[blank]

with `sil_score` for each frame of `sil` but a blank. The best `beam_size` within
`beam_threshold` live on. Scores are float64, added in the order written here.

Where ways into one hypothesis are not summed, what cannot be among the best is dropped
as soon as that is known; this changes nothing. Ties go to the better parent, then the
lower token, word and node.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import float32, float64, int32, int64, uint64

import wfstdec.adapters.torchaudio.records as k
from wfstdec.adapters.torchaudio.candidates import (
    add,
    begin_frame,
    choose,
    clear,
    kth_best,
    raise_cut,
)
from wfstdec.jit import inlined, kernel, part
from wfstdec.jit.hashing import hash_of
from wfstdec.lm.kernels import step

_LOG10_OF_NATS = -1 / math.log(10)
FINISH = -1
"""The label of the end of an utterance, where somebody else's model is asked."""


@kernel
def advance(rules, scratch, utterance, emissions, first):
    """Search the frames from `first`; the frame where it stopped, why in `STATUS`.

    Args:
        rules: What is searched.
        scratch: Scratch.
        utterance: The utterance.
        emissions: float32 [T, V].
        first: The frame to begin with.
    """
    for t in range(first, len(emissions)):
        begin_frame(rules, scratch)
        _try_frame(rules, scratch, utterance, emissions[t])
        if scratch.counts[k.STATUS] == k.DONE:
            _settle(rules, scratch, utterance)
        clear(scratch)
        if scratch.counts[k.STATUS] != k.DONE:
            return t
    return len(emissions)


@kernel
def end(rules, scratch, utterance, finish_state, finish_score):
    """Replace the beam by the utterance's hypotheses, the best first.

    Args:
        rules: What is searched.
        scratch: Scratch.
        utterance: The utterance.
        finish_state: int32 [K], where the end leads each hypothesis of the beam.
        finish_score: float32 [K], log10.
    """
    begin_frame(rules, scratch)
    count, beam = utterance.counts[k.BEAM_SIZE], utterance.beam
    whole = False
    for i in range(count):
        # Hypotheses inside a word count only where none is between words.
        whole = whole or beam[i].node == 0
    for i in range(count):
        h = beam[i]
        if h.node == 0 or not whole:
            score = h.score + rules.lm_weight * float64(finish_score[i])
            state = finish_state[i]
            add(rules, scratch, score, state, -1, h.node, rules.sil, -1, i, False)
    if scratch.counts[k.STATUS] == k.DONE:
        _settle(rules, scratch, utterance)
    clear(scratch)


@kernel
def trace_back(trace, index, tokens, words):
    """The tokens and words of a path, int32 [F] each, -1 where no word ended."""
    for position in range(len(tokens) - 1, -1, -1):
        tokens[position], words[position] = trace[index].token, trace[index].word
        index = trace[index].previous


@kernel
def insert_arcs(utterance):
    """Put the arcs into slots that are empty."""
    for arc in range(utterance.counts[k.NUM_ARCS]):
        state, label = utterance.arc_of[arc, 0], utterance.arc_of[arc, 1]
        slot, _ = _find_arc(utterance, state, label)
        utterance.arc_slots[slot] = arc


@inlined
def _find_arc(utterance, state, label):
    """The slot of an arc, and the arc that is there or -1."""
    mask = uint64(len(utterance.arc_slots) - 1)
    slot = hash_of(state, label, 0) & mask
    while True:
        arc = int64(utterance.arc_slots[slot])
        if arc < 0:
            return slot, arc
        if utterance.arc_of[arc, 0] == state and utterance.arc_of[arc, 1] == label:
            return slot, arc
        slot = (slot + uint64(1)) & mask


@inlined
def _new_arc(utterance, slot, state, label, score, nextstate):
    """An arc into a slot that is free."""
    arc = utterance.counts[k.NUM_ARCS]
    utterance.counts[k.NUM_ARCS] = arc + 1
    utterance.arc_slots[slot] = arc
    utterance.arc_of[arc, 0], utterance.arc_of[arc, 1] = state, label
    utterance.arc_score[arc], utterance.arc_next[arc] = score, nextstate


@inlined
def _try_frame(rules, scratch, utterance, row):
    """List the candidates of a frame; only `scratch` and arcs to be asked change."""
    counts, beam = utterance.counts, utterance.beam
    # Room for the whole frame, or it is not begun.
    if counts[k.TRACE_SIZE] + rules.beam_size > len(utterance.trace):
        scratch.counts[k.STATUS] = k.MORE_TRACE
        return
    if counts[k.NUM_ARCS] + rules.beam_size > len(utterance.arc_next):
        scratch.counts[k.STATUS] = k.MORE_ARCS
        return
    _allow(rules, scratch, row)
    for i in range(counts[k.BEAM_SIZE]):
        _stay(rules, scratch, beam[i], i, row)
    raise_cut(rules, scratch)
    count = 0
    if not rules.has_lexicon:
        # Tokens with which the best hypothesis may go on: no other can with others.
        for n in range(len(row)):
            hope = beam[0].score + float64(row[n]) + max(rules.sil_score, 0.0)
            hope += rules.label_gain[n]
            is_allowed = scratch.allowed[n] and n != rules.blank
            if is_allowed and not hope < scratch.limits[k.CUT]:
                scratch.tokens[count] = n
                count += 1
    for i in range(counts[k.BEAM_SIZE]):
        if rules.has_lexicon:
            _go_on_in_lexicon(rules, scratch, utterance, i, row)
        else:
            _go_on_in_tokens(rules, scratch, utterance, i, row, count)
        if scratch.counts[k.STATUS] == k.MORE_CANDIDATES:
            return
    # All questions of a frame are asked at once, and the frame is done again.
    if counts[k.ANSWERED] < counts[k.NUM_ARCS] and rules.asked:
        scratch.counts[k.STATUS] = k.MISSED


@inlined
def _allow(rules, scratch, row):
    """The tokens looked at: the `beam_size_token` best, of equal ones the lower."""
    allowed, most = scratch.allowed, rules.beam_size_token
    if most >= len(row):
        allowed[:] = True
        return
    for n in range(len(row)):
        scratch.values[n] = row[n]
    least = kth_best(scratch.values, len(row), most)
    left = most
    for n in range(len(row)):
        allowed[n] = row[n] > least
        left -= allowed[n]
    for n in range(len(row)):
        # Ties at the limit: the lower tokens, as many as have room.
        if row[n] == least and left > 0:
            allowed[n] = True
            left -= 1


@inlined
def _stay(rules, scratch, h, i, row):
    """Hold the token, or the silence between words; or say nothing.

    Without a lexicon that is so where these are among the tokens looked at.
    """
    between = rules.has_lexicon and h.node == 0
    held = int64(rules.sil) if between else int64(h.token)
    for blank in (False, True):
        n = int64(rules.blank) if blank else held
        if rules.has_lexicon:
            # Behind a blank the token would begin anew.
            stays = blank or between or not h.blank
            silent = not blank and n == rules.sil
        else:
            stays = blank or not (h.blank or n == rules.blank)
            stays = stays and scratch.allowed[n]
            silent = n == rules.sil
        if stays:
            score = h.score + float64(row[n])
            if silent:
                score += rules.sil_score
            add(rules, scratch, score, h.lm, -1, h.node, n, -1, i, blank)


@inlined
def _extend(rules, scratch, utterance, i, score, above, label, n, word):
    """Let the language model score a label, and go back to the root."""
    weight, h = rules.lm_weight, utterance.beam[i]
    slot, arc = _find_arc(utterance, h.lm, label)
    if arc >= 0:
        lm_score, state, label = utterance.arc_score[arc], utterance.arc_next[arc], -1
        lm = int64(state)
    elif rules.asked:
        if utterance.counts[k.NUM_ARCS] == len(utterance.arc_next):
            scratch.counts[k.STATUS] = k.MORE_ARCS
        else:
            _new_arc(utterance, slot, h.lm, label, float32(0), -1)
        lm_score, state, lm = float32(0), int32(-1), int64(-1)
    else:
        cost, state = step(rules.automaton, 0, utterance.lm_state[h.lm], label + 1)
        lm_score = float32(float64(cost) * _LOG10_OF_NATS)
        # The state is entered where the candidate is kept: most are not.
        lm = int64(h.lm)
    if lm < 0:  # not answered yet
        return
    total = score[0] + weight * float64(lm_score - above) + score[1]
    at = add(rules, scratch, total, lm, label, 0, n, word, i, False)
    if at >= 0:
        c = scratch.candidates[at]
        c.lm_score, c.lm_state = lm_score, state


@inlined
def _go_on_in_lexicon(rules, scratch, utterance, i, row):
    """Begin the nodes below that of hypothesis `i`, and end the words there."""
    h, trie, limits = utterance.beam[i], rules.trie, scratch.limits
    node = int64(h.node)
    above = float32(0) if node == 0 else rules.node_score[node]
    unknowns = rules.unk_score > -np.inf
    weight, inner_gain = rules.lm_weight, np.inf
    if weight >= 0:
        # Inside a word look-ahead gains nothing: below a node no word scores more than
        # the best one under it.
        inner_gain = weight * float64(rules.node_score[0]) if node == 0 else 0.0
    hoped = weight * float64(above)
    for arc in range(trie.node_child_splits[node], trie.node_child_splits[node + 1]):
        n, kind = int64(trie.child_token[arc]), rules.arc_kind[arc]
        if not scratch.allowed[n]:
            continue
        score = h.score + float64(row[n])
        if n == rules.sil:
            score += rules.sil_score
        repeats = n == h.token
        goes_on = kind & k.GOES_ON and (h.blank or not repeats)
        if goes_on and not score + inner_gain < limits[k.CUT]:
            child = int64(trie.child_node[arc])
            total = score + weight * float64(rules.node_score[child] - above)
            add(rules, scratch, total, h.lm, -1, child, n, -1, i, False)
        known = kind & k.ENDS
        # No word that ends here can gain enough: the model is not asked.
        if score + rules.arc_gain[arc] - hoped < limits[k.CUT]:
            continue
        bonus = rules.word_score if known else rules.unk_score
        first, last = int64(-1), int64(0)
        if known:
            child = int64(trie.child_node[arc])
            first, last = trie.node_pron_splits[child], trie.node_pron_splits[child + 1]
        if (known and (node > 0 or not repeats)) or (unknowns and not known):
            for pron in range(first, last):
                word = int64(trie.pron_word[pron]) if known else int64(rules.unk)
                _extend(
                    rules, scratch, utterance, i, (score, bonus), above, word, n, word
                )


@inlined
def _go_on_in_tokens(rules, scratch, utterance, i, row, count):
    """Begin each token but that which hypothesis `i` holds."""
    h = utterance.beam[i]
    for at in range(count):
        n = int64(scratch.tokens[at])
        score = h.score + float64(row[n])
        if n == rules.sil:
            score += rules.sil_score
        if n != h.token and not score + rules.label_gain[n] < scratch.limits[k.CUT]:
            _extend(rules, scratch, utterance, i, (score, 0.0), float32(0), n, n, -1)


@part
def _settle(rules, scratch, utterance):
    """The best candidates become the beam, with new states and traces."""
    count = choose(rules, scratch)
    counts = utterance.counts
    for rank in range(count):
        c = scratch.candidates[scratch.order[rank]]
        if c.label >= 0:
            slot, arc = _find_arc(utterance, c.lm, c.label)
            if arc < 0:
                state = counts[k.NUM_STATES]
                counts[k.NUM_STATES] = state + 1
                utterance.lm_state[state] = c.lm_state
                arc = counts[k.NUM_ARCS]
                _new_arc(utterance, slot, c.lm, c.label, c.lm_score, state)
            c.lm = utterance.arc_next[arc]
        place = counts[k.TRACE_SIZE] + rank
        entry = utterance.trace[place]
        entry.previous = utterance.beam[c.parent].trace
        entry.token, entry.word = c.token, c.word
    for rank in range(count):
        c, h = scratch.candidates[scratch.order[rank]], utterance.beam[rank]
        # Only now: candidates name parents in the old beam.
        h.score, h.lm, h.node = c.score, c.lm, c.node
        h.token, h.blank = c.token, c.blank
        h.trace = counts[k.TRACE_SIZE] + rank
    counts[k.TRACE_SIZE] += count
    counts[k.BEAM_SIZE] = count
