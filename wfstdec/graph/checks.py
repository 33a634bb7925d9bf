"""Checks of the invariants of a packed graph, which kernels trust.

All checks are single passes, so that a graph of millions of arcs loads in well under a
second. Errors name the state or arc and the expected value.
"""

from typing import Any

import numpy as np

from wfstdec.errors import GraphError
from wfstdec.graph.arcs import (
    ARC,
    CARRIES_WORD,
    LABEL_MASK,
    LEADS_TO_EPSILON,
    NO_STATE,
    TOPOLOGIES,
    FstArrays,
    GraphInfo,
    OovExits,
)
from wfstdec.jit import jit
from wfstdec.text.tokens import EPSILON_WORD
from wfstdec.text.vocabulary import KINDS, OPEN_WORD, Vocabulary

MAX_STATES = MAX_ARCS = 1 << 30
"""States and arcs have 31-bit indices: one bit marks epsilon arcs in a tie."""
LEAST_COST = np.float32(-1e20)
"""Lower bound of costs, so that no sum of costs reaches minus infinity."""


def check_fst(
    fst: FstArrays,
    repeat: np.ndarray | None = None,
    num_tokens: int = 2**31 - 1,
    num_words: int = 2**31,
) -> None:
    """Check an FST from outside, before any kernel indexes its arrays."""
    states, arcs = fst.num_states, fst.num_arcs
    if states == 0:
        raise GraphError("the graph has no states, expected at least a start state")
    if states > MAX_STATES or arcs > MAX_ARCS:
        raise GraphError(
            f"the graph has {states} states and {arcs} arcs, expected at most "
            f"{MAX_STATES} of each"
        )
    # Sizes before contents, which index other arrays.
    columns = {name: getattr(fst, name) for name in ("olabel", "nextstate", "cost")}
    for name, column in (columns | {"repeat": repeat}).items():
        if column is not None and len(column) != arcs:
            found = f"{len(column)} values in {name!r}, {arcs} in 'ilabel'"
            raise GraphError(f"{found}, expected one per arc")
    check_splits("row splits", fst.state_arc_splits, states, arcs)
    if not 0 <= fst.start < states:
        raise GraphError(f"start state {fst.start}, expected one of {states} states")
    _check_arcs("ilabel", fst.ilabel, num_tokens)
    _check_arcs("olabel", fst.olabel, num_words - 1)
    _check_arcs("nextstate", fst.nextstate, states - 1)
    _check_costs("arc", "cost", fst.cost, "for no arc")
    _check_costs("state", "final cost", fst.final_cost, "where it is not final")


def _check_costs(place: str, name: str, costs: np.ndarray, inf: str | None) -> None:
    """Check costs, which may be infinite if `inf` names the meaning of that."""
    good = costs >= LEAST_COST
    bad = np.flatnonzero(~(good if inf else good & (costs < np.inf)))
    if len(bad):
        raise GraphError(
            f"{place} {bad[0]}: {name} {costs[bad[0]]}, expected {LEAST_COST:g} or "
            f"more, {f'or inf {inf}' if inf else 'and finite'}"
        )


def check_splits(name: str, splits: np.ndarray, rows: int, values: int) -> None:
    """Check that splits partition values into rows."""
    if len(splits) != rows + 1:
        raise GraphError(f"{len(splits)} {name} for {rows} rows, expected one more")
    if splits[0] != 0 or splits[-1] != values or (splits[1:] < splits[:-1]).any():
        raise GraphError(f"{name} do not cover {values} values in order")


def check_range(name: str, values: np.ndarray, low: int, top: int) -> None:
    """Check that values lie in low..top."""
    bad = values[(values < low) | (values > top)]
    if len(bad):
        raise GraphError(f"{name} {bad[0]}, expected {low} to {top}")


def check_vocabulary(vocabulary: Vocabulary) -> None:
    """Check that tokens, words and pronunciations are consistent."""
    words, prons = vocabulary.words, vocabulary.pronunciations
    blank, last_token = vocabulary.tokens.blank, len(vocabulary.tokens) - 1
    if not 0 <= blank <= last_token:
        raise GraphError(f"blank {blank}, expected 0 to {last_token}")
    if words[:1] != (EPSILON_WORD,):
        raise GraphError(f"word 0 is {words[:1]}, expected {EPSILON_WORD!r}")
    for i, word in enumerate(words):
        # A graph's file joins words by newlines.
        if "\n" in word or not word:
            raise GraphError(f"word {i} is {word!r}, expected some text in one line")
    check_splits("pronunciation splits", prons.splits, len(prons), len(prons.tokens))
    check_range("filler", np.array(vocabulary.separators, np.int64), 0, last_token)
    check_range("token of a pronunciation", prons.tokens, 0, last_token)
    check_range("word of a pronunciation", prons.word, 1, len(words) - 1)
    _check_open_word(vocabulary)
    # Pronunciations of a word are looked up as a slice, by bisection.
    if (prons.word[1:] < prons.word[:-1]).any():
        raise GraphError("pronunciations are out of order, expected them by word")
    if len(prons.cost) != len(prons) or not (np.abs(prons.cost) <= -LEAST_COST).all():
        raise GraphError(
            f"costs of pronunciations {prons.cost}, expected {len(prons)} finite ones"
        )


def check_info(info: GraphInfo, vocabulary: Vocabulary) -> None:
    """Check that the facts of a graph are consistent with its vocabulary."""
    if info.topology not in ("", *TOPOLOGIES):
        raise GraphError(f"topology {info.topology!r}, expected one of {TOPOLOGIES}")
    costs, words = info.word_cost, len(vocabulary.words)
    if len(costs) not in (0, words) or np.isnan(costs).any():
        raise GraphError(f"{len(costs)} costs of words, expected {words} numbers or 0")
    silence, num_fillers = info.silence_prob, len(vocabulary.separators)
    if silence is not None and not (0 < silence < 1 and num_fillers == 1):
        raise GraphError(
            f"silence of probability {silence!r} and {num_fillers} fillers, "
            "expected one above 0 and below 1, and one filler"
        )


def check_exits(exits: OovExits, num_states: int, num_tokens: int) -> None:
    """Check the OOV exits of a graph against its size."""
    # Kernels look up the exit of a state by bisection.
    if not (np.diff(exits.state) > 0).all():
        raise GraphError("states with OOV exits are out of order, expected them sorted")
    sizes = len(exits.last), len(exits.cost), len(exits.return_state)
    expected = len(exits), len(exits), num_tokens + 1
    if sizes != expected:
        found = f"OOV exits with {sizes} labels, costs and returns"
        raise GraphError(f"{found}, expected {expected}")
    check_range("state with an OOV exit", exits.state, 0, num_states - 1)
    check_range("label before an OOV exit", exits.last, 0, num_tokens)
    check_range("state to return to", exits.return_state, NO_STATE, num_states - 1)
    if not np.isfinite([*exits.cost, exits.word_cost]).all():
        raise GraphError(f"costs of OOV exits {exits.cost}, expected finite numbers")


def _check_open_word(vocabulary: Vocabulary) -> None:
    if vocabulary.open_word is None:
        return
    word, kind, token_cost, word_cost = vocabulary.open_word
    words = vocabulary.words
    if not 0 < word < len(words) or words[word] != OPEN_WORD:
        raise GraphError(f"open words have label {word}, expected {OPEN_WORD!r}'s")
    if kind not in KINDS:
        raise GraphError(f"open words of {kind!r}, expected one of {KINDS}")
    if not 0 <= token_cost <= -LEAST_COST:
        raise GraphError(f"tokens of open words cost {token_cost}, expected 0 or more")
    if word_cost is not None and not abs(word_cost) <= -LEAST_COST:
        raise GraphError(f"open words cost {word_cost}, expected a finite number")


def _check_arcs(name: str, values: np.ndarray, top: int) -> None:
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, top)
    if low >= 0 and high <= top:
        return
    bad = low if low < 0 else high
    arc = int(np.flatnonzero(values == bad)[0])
    hint = {
        "ilabel": f"; the token table has {top} tokens, blank included",
        "olabel": f"; the word table has {top} words besides <eps>",
    }.get(name, "")
    raise GraphError(f"arc {arc}: {name} {bad}, expected 0 to {top}{hint}")


_DTYPES: dict[str, Any] = {
    "arcs": ARC,
    "state_arc_splits": np.uint32,
    "final_cost": np.float32,
    **dict.fromkeys(("call_cost", "pronunciation_cost"), np.float32),
    **dict.fromkeys(("call_state", "call_last", "call_returns"), np.int32),
    **{f"pronunciation_{name}": np.int32 for name in ("word", "splits", "tokens")},
}


def check_dtypes(arrays: dict[str, np.ndarray]) -> None:
    """Check the types and axes of a file's arrays; `product.py` checks rows of LG."""
    for name in _DTYPES.keys() & arrays.keys():
        array, expected = arrays[name], np.dtype(_DTYPES[name])
        if array.dtype != expected or array.ndim != 1:
            raise GraphError(
                f"array {name!r} is {array.dtype} with {array.ndim} axes, expected "
                f"{expected} with one"
            )


def check_rows(
    arcs: np.ndarray, splits: np.ndarray, final_cost: np.ndarray, vocabulary: Vocabulary
) -> np.ndarray:
    """Check rows, labels, flags, costs; return epsilon counts, uint32 [S]."""
    states = len(final_cost)
    if states == 0:
        raise GraphError("the graph has no states, expected at least a start state")
    check_splits("row splits", splits, states, len(arcs))
    _check_costs("state", "final cost", final_cost, "where it is not final")
    num_tokens, num_words = len(vocabulary.tokens), len(vocabulary.words)
    counts, arc, problem = _scan_rows(arcs, splits, num_tokens, num_words)
    if problem == 1:
        _check_arcs("ilabel", arcs["ilabel"] & np.uint32(LABEL_MASK), num_tokens)
        _check_arcs("olabel", arcs["olabel"], num_words - 1)
        _check_arcs("nextstate", arcs["nextstate"], states - 1)
        _check_costs("arc", "cost", arcs["cost"], None)
    if problem:
        order = "it is out of order: rows are sorted by label, epsilons first"
        flags = "its flags do not match the arc"
        raise GraphError(f"arc {arc}: {order if problem == 2 else flags}")
    return counts


@jit
def _scan_rows(arcs, splits, num_tokens, num_words):
    """Return epsilon counts; a bad arc; 1, 2, 3 (values, order, flags) or 0."""
    num_states = len(splits) - 1
    counts = np.zeros(num_states, np.uint32)
    for s in range(num_states):
        before = np.uint32(0)
        for a in range(splits[s], splits[s + 1]):
            one, label = arcs[a], arcs[a].ilabel & np.uint32(LABEL_MASK)
            fits = label <= num_tokens and one.olabel < num_words
            fits = fits and one.nextstate < num_states
            if not (fits and LEAST_COST <= one.cost < np.inf):  # false for NaN
                return counts, np.int64(a), 1
            # Rows are sorted by label, and for equal ones a repeating arc is last:
            # kernels look up labels in them.
            key = label << np.uint32(1) | one.ilabel >> np.uint32(31)
            if key < before:
                return counts, np.int64(a), 2
            before = key
            counts[s] += np.uint32(label == 0)
    for a in range(len(arcs)):
        ilabel, to_epsilon = arcs[a].ilabel, counts[arcs[a].nextstate] > 0
        word = ilabel & np.uint32(CARRIES_WORD) != 0
        epsilon = ilabel & np.uint32(LEADS_TO_EPSILON) != 0
        if word != (arcs[a].olabel != 0) or epsilon != to_epsilon:
            return counts, np.int64(a), 3
    return counts, np.int64(-1), 0


def epsilon_ranks(
    arcs: np.ndarray, splits: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Rank states by the longest epsilon chain into them, int32 [S]."""
    rank, stuck = _rank(arcs, splits, counts)
    if stuck >= 0:
        raise GraphError(
            f"the epsilon arcs form a cycle (state {stuck} lies on it or after it), "
            "expected none: a search would not end; remove it, for a grammar of your "
            "own with OpenFst's rmepsilon"
        )
    return rank


@jit
def _rank(arcs, splits, counts):
    """Sort topologically over epsilon arcs (Kahn); return ranks, and a state or -1."""
    num_states = len(counts)
    rank = np.zeros(num_states, np.int32)
    waiting = np.zeros(num_states, np.int32)
    members = 0
    for s in range(num_states):
        for a in range(splits[s], splits[s] + counts[s]):
            waiting[arcs[a].nextstate] += 1
    queue = np.empty(num_states, np.int64)
    for s in range(num_states):
        if waiting[s] == 0:
            queue[members] = s
            members += 1
    done = 0
    while done < members:
        s = queue[done]
        done += 1
        for a in range(splits[s], splits[s] + counts[s]):
            d = arcs[a].nextstate
            # The longest path, not the first: the closure of a frame follows ranks in
            # order, after all sources of a state.
            rank[d] = max(rank[d], rank[s] + 1)
            waiting[d] -= 1
            if waiting[d] == 0:
                queue[members] = d
                members += 1
    # States left with incoming arcs are on a cycle, or after one.
    if members == num_states:
        return rank, -1
    for s in range(num_states):
        if waiting[s] > 0:
            return rank, s
    return rank, -1


def check_reachable(
    arcs: np.ndarray, splits: np.ndarray, final_cost: np.ndarray
) -> None:
    """Check that a final state can be reached from the start."""
    if not _reaches_final(arcs, splits, final_cost):
        finals = int(np.isfinite(final_cost).sum())
        raise GraphError(
            f"none of the {finals} final states can be reached from the start, "
            "expected at least one"
        )


@jit
def _reaches_final(arcs, splits, final_cost):
    seen = np.zeros(len(final_cost), np.bool_)
    stack = np.empty(len(final_cost), np.int64)
    stack[0], top = 0, 1
    seen[0] = True
    while top > 0:
        top -= 1
        s = stack[top]
        if final_cost[s] < np.inf:
            return True
        for a in range(splits[s], splits[s + 1]):
            d = arcs[a].nextstate
            if not seen[d]:
                seen[d] = True
                stack[top] = d
                top += 1
    return False
