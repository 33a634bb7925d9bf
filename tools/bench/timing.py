"""Times by turns: a machine that slows down for a while slows all down alike.

turns = Turns({"ours": ours, "theirs": theirs})      # CPU seconds of this process
answers = turns.take()                               # what the first turn returned
turns.repeat(4)
turns.seconds["ours"]                                # five of them
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from typing import Any


class Turns:
    """Times functions one after the other, again and again.

    Args:
        functions: What is timed, by name.
        clock: Gives seconds.

    Attributes:
        seconds: Of each function, turn by turn.
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[[], Any]],
        clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._functions, self._clock = functions, clock
        self._order = list(functions)
        self.seconds: dict[str, list[float]] = {name: [] for name in functions}

    def take(self, slow: float = math.inf) -> dict[str, Any]:
        """Take a turn, in the last one's opposite order; what was returned, by name.

        Args:
            slow: Who took longer than these seconds takes part in two turns at most.
        """
        returned = {}
        for name in self._order:
            taken = self.seconds[name]
            if len(taken) > 1 and taken[0] > slow:
                continue
            gc.collect()
            begin = self._clock()
            returned[name] = self._functions[name]()
            taken.append(self._clock() - begin)
        self._order.reverse()
        return returned

    def repeat(self, turns: int, slow: float = math.inf) -> None:
        """Repeat turns, of which only the times are kept."""
        for _ in range(turns):
            self.take(slow)


def fastest(function: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """The least seconds on the wall of some calls, and what the last one returned."""
    turns = Turns({"it": function}, time.perf_counter)
    for _ in range(repeats):
        returned = turns.take()["it"]
    return min(turns.seconds["it"]), returned
