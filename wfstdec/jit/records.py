"""Record types, object pools for threads, and weak caches.

ENTRY = record("f4 cost lookahead_cost", "i4 state node")
scratches = Pool(make_scratch, fits=has_room)
overlays = WeakCache(make_overlay)

Pools and caches may be used by any number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np


def record(*declarations: str, align: bool = False) -> np.dtype:
    """Return the type of a record; a declaration is a type and its fields."""
    # Such as `"f4 cost lookahead_cost"`; numbers are little-endian.
    lines = map(str.split, declarations)
    fields = [(name, f"<{kind}") for kind, *names in lines for name in names]
    return np.dtype(fields, align=align)


def longer(array: np.ndarray, size: int) -> np.ndarray:
    """Return a copy with `size` rows; new ones are 0."""
    copy = np.zeros((size, *array.shape[1:]), array.dtype)
    copy[: len(array)] = array
    return copy


_Item = TypeVar("_Item")
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_NOTHING = object()  # in place of a missing value, since None is valid


class Pool(Generic[_Item]):
    """Pool from which every thread borrows one object at a time."""

    # `fits`: predicate of a kept object and the needs; None if all fit. `peers`: a
    # pool of objects borrowed at the same time: this one then keeps no more than that,
    # and at least one. None keeps all returned ones.

    def __init__(
        self,
        make: Callable[..., _Item],
        *,
        fits: Callable[..., bool] | None = None,
        peers: Pool[Any] | None = None,
    ) -> None:
        self._make, self._fits, self._peers = make, fits, peers
        self._lock = threading.Lock()
        self._kept: list[_Item] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Pool, self._make, fits=self._fits, peers=self._peers), ()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, *needs: Any) -> _Item:
        """Borrow a kept or a new one, until it is given back."""
        with self._lock:
            while self._kept:
                item = self._kept.pop()
                if self._fits is None or self._fits(item, *needs):
                    return item
        return self._make(*needs)

    def give(self, item: _Item) -> None:
        """Return one, unless there are enough."""
        with self._lock:
            if self._peers is None or len(self._kept) < max(1, len(self._peers)):
                self._kept.append(item)


class WeakCache(Generic[_Key, _Value]):
    """Values computed once per key, and dropped with it."""

    def __init__(self, make: Callable[[_Key], _Value]) -> None:
        self._make = make
        self._making, self._lock = threading.Lock(), threading.Lock()
        self._made: WeakKeyDictionary[_Key, _Value] = WeakKeyDictionary()

    def of(self, key: _Key) -> _Value:
        """Look up the value of a key; compute it at the first call."""
        found = self._known(key)
        if found is _NOTHING:
            with self._making:
                found = self._known(key)
                if found is _NOTHING:
                    found = self._make(key)
                    with self._lock:
                        self._made[key] = found
        return found

    def _known(self, key: _Key) -> Any:
        with self._lock:
            return self._made.get(key, _NOTHING)
