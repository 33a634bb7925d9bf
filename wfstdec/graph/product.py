"""Graphs as a product of T and rows of LG, for files and searches.

    product = product_of(arcs, splits, blank, V)  # None for other graphs
    arcs, splits = compose(product)               # T o LG, bit for bit

For each state s of LG, T o LG has one state "after a blank", and one for each token i
that may precede it. With `normal` all of them have the arcs of s, the latter except
those of i: equal tokens are separated by a blank. With `compact` only the state after a
blank, a hub, has them, and an epsilon arc leads there from each token. The arcs of s
are therefore stored once, as a row, and each state has its row, its token and its
epsilon arcs.

The structure is inferred from arcs and their repeat flags, which `from_openfst` infers
for graphs of other tools. `minimal` and `-selfless` graphs are not products.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy import float32, int64, uint32

from wfstdec.errors import GraphError
from wfstdec.graph.arcs import ARC, LABEL_MASK, LEADS_TO_EPSILON, REPEAT
from wfstdec.graph.checks import check_range, check_splits
from wfstdec.jit import inlined, jit, read_only
from wfstdec.text.tokens import ilabel_of

AFTER_BLANK, IN_TOKEN, NO_BLANK, TO_HUB = range(4)
"""Kinds of states: after a blank, which leads to itself; others, whose blank leads to
that of their row; those of a row without a blank; in a token, from which an epsilon arc
leads to the state after a blank.
"""
_NONE = -1
_STEP = 4096  # Number of states composed at a time for comparison


class Product(NamedTuple):
    """Rows of LG, and the states of T o LG."""

    kind: np.ndarray  # uint8 [S]
    token: np.ndarray  # int32 [S]: ilabel of the previous token, 0 for none
    row: np.ndarray  # int32 [S]
    num_epsilons: np.ndarray  # uint32 [S], without those to hubs
    epsilons: np.ndarray  # ARC [E], by state
    row_splits: np.ndarray  # uint32 [R + 1]
    arcs: np.ndarray  # ARC [A], by row, in the order of a packed graph
    blank: int  # its ilabel

    @property
    def state_of_row(self) -> np.ndarray:
        """State of each row that has all of its arcs, int64 [R]."""
        state = np.zeros(len(self.row_splits) - 1, np.int64)
        has_row = np.flatnonzero((self.kind == AFTER_BLANK) | (self.kind == NO_BLANK))
        state[self.row[has_row]] = has_row
        return state

    @property
    def has_hubs(self) -> bool:
        """Whether tokens lead to hubs: only then may the start be one."""
        return bool(self.kind[0] == AFTER_BLANK)

    def path_arcs(self, num_tokens: int) -> np.ndarray:
        """Return all arcs of paths: of rows, epsilon arcs, those of T."""
        # ARC [A + E + V + 1]: the array that `arcs` and `epsilons` are views of.
        whole = self.arcs.base
        length = len(self.arcs) + len(self.epsilons) + num_tokens + 1
        if whole is not None and whole is self.epsilons.base and len(whole) == length:
            return whole
        return _joined(self.arcs, self.epsilons, self.blank, num_tokens)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return arrays of a graph file by name, in the smallest integer types."""
        parts = {f"lg_{name}": getattr(self, name) for name in self._fields[:-1]}
        for name, array in parts.items():
            if array.dtype != ARC:
                most = int(array.max(initial=0))
                parts[name] = array.astype(np.min_scalar_type(most))
        return parts


def _joined(
    arcs: np.ndarray, epsilons: np.ndarray, blank: int, num_tokens: int
) -> np.ndarray:
    """Join arcs of rows, epsilon arcs and those of T in one array."""
    of_t = np.zeros(num_tokens + 1, ARC)
    label = ilabel_of(np.arange(num_tokens)).astype(np.uint32)
    of_t["ilabel"] = np.append(label | np.uint32(REPEAT), blank)
    whole = np.empty(len(arcs) + len(epsilons) + len(of_t), ARC)
    # Copied as bytes: NumPy copies records field by field, 15 times slower.
    parts = [part.view(f"V{ARC.itemsize}") for part in (arcs, epsilons, of_t)]
    np.concatenate(parts, out=whole.view(parts[0].dtype))
    return read_only(whole)


def parts_of(
    arcs: np.ndarray, epsilons: np.ndarray, blank: int, num_tokens: int
) -> dict[str, np.ndarray]:
    """Join arcs in the array of path arcs; return its parts by name."""
    whole, behind = _joined(arcs, epsilons, blank, num_tokens), len(arcs)
    return {"arcs": whole[:behind], "epsilons": whole[behind:][: len(epsilons)]}


def product_from(arrays: dict[str, np.ndarray], blank: int, num_tokens: int) -> Product:
    """Read a product from a file's arrays, validated for `compose`."""
    kinds: list[Any] = [np.uint8, np.int32, np.int32, np.uint32, ARC, np.uint32, ARC]
    parts: list[np.ndarray] = []
    for name, kind in zip(Product._fields[:-1], kinds, strict=True):
        array = arrays[f"lg_{name}"]
        is_right = array.dtype == ARC if kind == ARC else array.dtype.kind == "u"
        if not is_right or array.ndim != 1:
            raise GraphError(
                f"array 'lg_{name}' is {array.dtype} with {array.ndim} axes, expected "
                f"{'arcs' if kind == ARC else 'unsigned integers'} with one"
            )
        if kind != ARC and array.max(initial=0) > np.iinfo(kind).max:
            raise GraphError(f"array 'lg_{name}' has {array.max()}")
        parts.append(read_only(array.astype(kind, copy=False)))
    named: Any = dict(zip(Product._fields, parts, strict=False))
    named |= parts_of(named["arcs"], named["epsilons"], blank, num_tokens)
    product = Product(**named, blank=blank)
    num_states, num_rows = len(product.kind), len(product.row_splits) - 1
    if not len(product.token) == len(product.row) == num_states > 0:
        raise GraphError(f"{len(product.token)} tokens of {num_states} states")
    check_range("row of a state", product.row, 0, num_rows - 1)
    check_range("kind of a state", product.kind, 0, TO_HUB)
    check_range("token before a state", product.token, 0, LABEL_MASK)
    check_range("nextstate of LG", product.arcs["nextstate"], 0, num_states - 1)
    check_range("nextstate of LG", product.epsilons["nextstate"], 0, num_states - 1)
    check_splits("splits of rows", product.row_splits, num_rows, len(product.arcs))
    splits = np.concatenate([[0], np.cumsum(product.num_epsilons, dtype=np.int64)])
    check_splits("epsilon arcs", splits, num_states, len(product.epsilons))
    has_row = product.row[(product.kind == AFTER_BLANK) | (product.kind == NO_BLANK)]
    of_row = np.bincount(has_row, minlength=num_rows)
    if not (of_row == 1).all() or not _is_complete(product):
        raise GraphError("inconsistent rows of LG and states of T")
    return product


@jit
def _is_complete(product):
    """Return whether states are of one topology, and arcs lead to valid states."""
    kind, token, row = product.kind, product.token, product.row
    num_rows, hubs = len(product.row_splits) - 1, kind[0] == AFTER_BLANK
    entered, own = np.full(num_rows, hubs), np.full(num_rows, _NONE, np.int32)
    for s in range(len(kind)):
        if kind[s] == NO_BLANK:
            own[row[s]] = token[s]
    e = 0
    for s in range(len(kind)):
        is_hub, fits = kind[s] == AFTER_BLANK, token[s] == 0
        if not is_hub:
            entered[row[s]] = True
            # A row without a blank has one state: blanks of others would lead there.
            fits = kind[s] == NO_BLANK or (kind[s] == IN_TOKEN and own[row[s]] == _NONE)
            if hubs:
                fits = kind[s] == TO_HUB and token[s] > 0
        if not fits:
            return False
        first, e = e, e + product.num_epsilons[s]
        for one in product.epsilons[first:e]:
            d = one.nextstate
            fits = is_hub == hubs == (kind[d] == AFTER_BLANK) and token[s] == token[d]
            if not fits or one.ilabel & uint32(LABEL_MASK | REPEAT):
                return False
    for r in range(num_rows):
        for one in product.arcs[product.row_splits[r] : product.row_splits[r + 1]]:
            label, d = int64(one.ilabel & uint32(LABEL_MASK | REPEAT)), one.nextstate
            fits = label == token[d] and label > 0 and label != product.blank
            leads = kind[d] != AFTER_BLANK and (kind[d] == TO_HUB) == hubs
            if not (fits and leads and label != own[r]):
                return False
    return bool(entered.all())


def compose(
    product: Product, *, reduced: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return T o LG: `ARC` [A'] and uint32 [S + 1]."""
    splits = arc_splits(product, reduced=reduced)
    (arcs,) = composed(product, splits, len(product.kind), reduced)
    return arcs, splits.astype(np.uint32)


def composed(
    product: Product, splits: np.ndarray, step: int = _STEP, reduced: bool = False
) -> Iterator[np.ndarray]:
    """Yield the arcs of T o LG, for `step` states at a time."""
    has_epsilons = (product.num_epsilons > 0) | (product.kind == TO_HUB)
    before = np.concatenate([[0], np.cumsum(product.num_epsilons, dtype=np.int64)])
    rows = product.state_of_row, splits, before, has_epsilons
    for first in range(0, len(product.kind), step):
        end = min(first + step, len(product.kind))
        arcs = np.empty(splits[end] - splits[first], ARC)
        _compose(product, rows, first, end, arcs, reduced)
        yield arcs


def arc_splits(product: Product, *, reduced: bool = False) -> np.ndarray:
    """Return the row of each state of T o LG, int64 [S + 1], without its arcs."""
    counts = _arcs_of_states(product, reduced)
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


@inlined
def _leaves_by_row(product, s, reduced):
    """Return whether a state has the arcs of its row."""
    kind = product.kind[s]
    return kind == AFTER_BLANK or kind == NO_BLANK or (kind == IN_TOKEN and not reduced)


@jit
def _arcs_of_states(product, reduced):
    counts = np.zeros(len(product.kind), np.int64)
    for s in range(len(counts)):
        token, row = uint32(product.token[s]), product.row[s]
        counts[s] = product.num_epsilons[s] + uint32(product.kind[s] != NO_BLANK)
        counts[s] += int64(token != uint32(0))  # the repeat
        if _leaves_by_row(product, s, reduced):
            for a in range(product.row_splits[row], product.row_splits[row + 1]):
                label = product.arcs[a].ilabel & uint32(LABEL_MASK)
                counts[s] += int64(label != token)
    return counts


@jit
def _compose(product, rows, first, end, arcs, reduced):
    """Write the arcs of states `first` to `end`: in each row by (label, repeats)."""
    state_of_row, splits, epsilon_splits, has_epsilons = rows
    blank = uint32(product.blank)
    for s in range(first, end):
        i, token, row = (
            splits[s] - splits[first],
            uint32(product.token[s]),
            product.row[s],
        )
        kind, after = product.kind[s], state_of_row[row]
        for e in range(epsilon_splits[s], epsilon_splits[s + 1]):
            arcs[i] = product.epsilons[e]
            i += 1
        own = uint32(LEADS_TO_EPSILON) if has_epsilons[s] else uint32(0)
        behind = uint32(LEADS_TO_EPSILON) if has_epsilons[after] else uint32(0)
        if kind == TO_HUB:
            i = _put(arcs, i, behind, after)
        blank_is_due = kind != NO_BLANK and kind != TO_HUB
        repeat_is_due = token != uint32(0)
        a, last = product.row_splits[row], product.row_splits[row + 1]
        if not _leaves_by_row(product, s, reduced):
            a = last
        while a < last or blank_is_due or repeat_is_due:
            label = uint32(LABEL_MASK)
            if a < last:
                label = product.arcs[a].ilabel & uint32(LABEL_MASK)
                if label == token:
                    a += 1
                    continue
            if (
                blank_is_due
                and blank <= label
                and not (repeat_is_due and token < blank)
            ):
                i = _put(arcs, i, blank | behind, after)
                blank_is_due = False
            elif repeat_is_due and token <= label:
                i = _put(arcs, i, token | uint32(REPEAT) | own, s)
                repeat_is_due = False
            else:
                arcs[i] = product.arcs[a]
                i, a = i + 1, a + 1


@inlined
def _put(arcs, i, ilabel, nextstate):
    """Write an arc without cost and word; return the number of the next."""
    arcs[i].ilabel, arcs[i].olabel = ilabel, uint32(0)
    arcs[i].nextstate, arcs[i].cost = uint32(nextstate), float32(0)
    return i + 1


def product_of(
    arcs: np.ndarray, splits: np.ndarray, blank: int, num_tokens: int
) -> Product | None:
    """Decompose a packed graph; return None if it is not such a product."""
    splits, num_states = splits.astype(np.int64), len(splits) - 1
    label = arcs["ilabel"] & np.uint32(LABEL_MASK)
    repeats = arcs["ilabel"] & np.uint32(REPEAT) != 0
    token, after = np.zeros(num_states, np.int32), np.full(num_states, _NONE, np.int64)
    token[_sources(splits, repeats)] = label[repeats]
    of_blank = (label == blank) & ~repeats
    after[_sources(splits, of_blank)] = arcs["nextstate"][of_blank]
    to_itself = after == np.arange(num_states)
    if to_itself[0]:  # the start is a hub
        kind = np.where(to_itself, AFTER_BLANK, TO_HUB).astype(np.uint8)
        inner = (label == 0) & ~np.repeat(to_itself, np.diff(splits))
        after[_sources(splits, inner)] = arcs["nextstate"][inner]
    else:
        kind = np.where(after == _NONE, NO_BLANK, IN_TOKEN).astype(np.uint8)
        kind[to_itself] = AFTER_BLANK
    has_row = (kind == AFTER_BLANK) | (kind == NO_BLANK)
    # Rows are numbered in the order of the states that have their arcs.
    row = np.cumsum(has_row, dtype=np.int32) - np.int32(1)
    row = np.where(has_row, row, row[after]).astype(np.int32)
    lengths = np.diff(splits)
    is_epsilon = (label == 0) & np.repeat(kind != TO_HUB, lengths)
    of_row = np.repeat(has_row, lengths) & (label != 0) & (label != blank) & ~repeats
    ends = np.cumsum(np.concatenate([[0], of_row]))[splits[1:][has_row]]
    epsilons = np.concatenate([[0], np.cumsum(is_epsilon)])
    product = Product(
        kind=read_only(kind),
        token=read_only(token),
        row=read_only(row),
        num_epsilons=read_only(np.diff(epsilons[splits]).astype(np.uint32)),
        row_splits=read_only(np.concatenate([[0], ends]).astype(np.uint32)),
        **parts_of(arcs[of_row], arcs[is_epsilon], blank, num_tokens),
        blank=blank,
    )
    # The inference is correct if it yields the same arcs again.
    if row.min() < 0 or not _is_complete(product):
        return None
    if not np.array_equal(arc_splits(product), splits):
        return None
    made, at = composed(product, splits), 0
    for part in made:
        if part.tobytes() != arcs[at : at + len(part)].tobytes():
            return None
        at += len(part)
    return product


def _sources(splits: np.ndarray, arcs: np.ndarray) -> np.ndarray:
    return np.searchsorted(splits, np.flatnonzero(arcs), "right") - 1
