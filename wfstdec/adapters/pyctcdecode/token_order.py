"""Order in which the tokens of a frame are visited: that of pyctcdecode.

It puts the tokens above its threshold, and the best one, into a set of Python, and goes
through that: in the order of CPython's table, which is not that of the tokens. Whose
frames a merged beam has depends on it, and so do ties. CPython 3.11 to 3.13 have the
same table; it is a specification here, whatever Python runs.

    count = visit_order(tokens, count, best, table, other)    # in place
"""

from __future__ import annotations

from numpy import int64

from wfstdec.jit import inlined, kernel, part

_PROBES, _SHIFT, _FIRST_SIZE = 9, 5, 8
_MANY = 50_000
_EMPTY = -1


def table_size(num_tokens: int) -> int:
    """Length of tables for sets of so many integers."""
    return max(_FIRST_SIZE, 1 << (4 * (num_tokens + 1)).bit_length())


@kernel
def visit_order(tokens, count, best, table, other):
    """The order of `set(tokens) | {best}`.

    Args:
        tokens: int32, increasing; the first `count` of them are replaced.
        count: How many.
        best: One of them or another one, for which there is room behind them.
        table: int32 [table_size(count)], scratch.
        other: int32 of this size, scratch.

    Returns:
        How many there are.
    """
    if count == 0:
        tokens[0] = best
        return int64(1)
    # CPython's sets go by hash and insertion, and grow at fixed loads; so ties are
    # broken there.
    size = _new_set(tokens, count, table, other)
    size, used = _copy_set(table, size, count, other), count
    if (used + 1) * 5 >= (size - 1) * 3:
        size = _resize(other, size, (used + 1) * 2, table)
        table, other = other, table
    at = _slot(other, size, int64(best))
    if other[at] == _EMPTY:
        other[at] = best
        used += 1
        if used * 5 >= (size - 1) * 3:
            size = _resize(other, size, _growth(used), table)
            table, other = other, table
    count = int64(0)
    for i in range(size):
        if other[i] != _EMPTY:
            tokens[count] = other[i]
            count += 1
    return count


@inlined
def _new_set(tokens, count, table, other):
    """`set(tokens)`: the size of its table."""
    size = int64(_FIRST_SIZE)
    for i in range(size):
        table[i] = _EMPTY
    for n in range(count):
        table[_slot(table, size, int64(tokens[n]))] = tokens[n]
        if (n + 1) * 5 >= (size - 1) * 3:
            size = _resize(table, size, _growth(n + 1), other)
            for i in range(size):
                table[i] = other[i]
    return size


@inlined
def _copy_set(table, size, used, other):
    """A copy of a set, as `|` makes it: the size of its table."""
    new_size = int64(_FIRST_SIZE)
    if used * 5 >= (new_size - 1) * 3:
        new_size = _fitting(used * 2)
    if new_size == size:
        for i in range(size):
            other[i] = table[i]
    else:
        _insert_all(table, size, other, new_size)
    return new_size


@inlined
def _resize(table, size, wanted, other):
    """Put a set into a table for more: the size of that."""
    new_size = _fitting(wanted)
    _insert_all(table, size, other, new_size)
    return new_size


@part
def _insert_all(table, size, other, new_size):
    for i in range(new_size):
        other[i] = _EMPTY
    for i in range(size):
        one = int64(table[i])
        if one != _EMPTY:
            other[_slot(other, new_size, one)] = one


@inlined
def _growth(used):
    return used * 2 if used > _MANY else used * 4


@inlined
def _fitting(wanted):
    """The least size of a table that is above a number."""
    size = int64(_FIRST_SIZE)
    while size <= wanted:
        size <<= 1
    return size


@inlined
def _slot(table, size, number):
    """Find the slot of a number in a table, or the empty one where it belongs."""
    mask, shifted, at = size - 1, number, number & (size - 1)
    while True:
        last = at + _PROBES if at + _PROBES <= mask else at
        for i in range(at, last + 1):
            if table[i] == number or table[i] == _EMPTY:
                return i
        shifted >>= _SHIFT
        at = (at * 5 + 1 + shifted) & mask
