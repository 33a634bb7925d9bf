"""OOV exits of a graph: where a search leaves it for OOV words, and where it returns.

    exits     states in which such a word may begin, each with the token before it
    returns   the state behind such a word, by its last token

A word of tokens `k1 ... kn` goes on arcs from a state with an exit, at the cost of the
exit, to the state of `returns[kn]`; the arcs are those of an overlay. Exits are "calls"
in graph files, in errors and in `PackedGraph.calls`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wfstdec.errors import GraphError
from wfstdec.graph.checks import check_array, check_range

NO_STATE = -1
"""Number that stands for no state."""


@dataclass(frozen=True, eq=False)
class OovExits:
    """OOV exits of a graph, and the states to which they return.

    Attributes:
        state: int32 [C], the states with exits, ascending.
        last: int32 [C], the ilabel of the token that a word here follows directly, so
            that it cannot begin with the same one; 0 for none.
        cost: float32 [C], nats: what the language model asks, as the graph has it here.
        returns: int32 [V + 1], the state behind a word, by the ilabel of its last
            token; -1 for labels that end no word.
        word_cost: What the language model asks for such a word, nats.
    """

    state: np.ndarray
    last: np.ndarray
    cost: np.ndarray
    returns: np.ndarray
    word_cost: float

    def __len__(self) -> int:
        return len(self.state)

    def __repr__(self) -> str:
        """Show the number of states with OOV exits, and their costs."""
        return f"OovExits(in {len(self):,} states, word_cost={self.word_cost:g})"

    def check(self, num_states: int, num_tokens: int) -> None:
        """Check states, labels and costs against the size of a graph.

        Raises:
            GraphError: A state, label or cost is out of range, or out of order.
        """
        # Kernels find the exit of a state by bisection.
        if not (np.diff(self.state) > 0).all():
            raise GraphError("states with calls are out of order, expected them sorted")
        sizes = len(self.last), len(self.cost), len(self.returns)
        if sizes != (len(self), len(self), num_tokens + 1):
            raise GraphError(
                f"calls with {sizes} labels, costs and returns, expected "
                f"{(len(self), len(self), num_tokens + 1)}"
            )
        check_range("state with a call", self.state, 0, num_states - 1)
        check_range("label before a call", self.last, 0, num_tokens)
        check_range("state to return to", self.returns, NO_STATE, num_states - 1)
        if not np.isfinite([*self.cost, self.word_cost]).all():
            raise GraphError(f"costs of calls {self.cost}, expected finite numbers")

    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays of a graph file by name."""
        return {
            "call_state": self.state,
            "call_last": self.last,
            "call_cost": self.cost,
            "call_returns": self.returns,
            "call_word_cost": np.array([self.word_cost]),
        }


def exits_from(arrays: dict[str, np.ndarray]) -> OovExits | None:
    """Take the OOV exits of a file, not checked yet; None where it has none.

    Raises:
        KeyError, TypeError, ValueError: A part is missing or damaged.
        GraphError: A part is of the wrong type.
    """
    if "call_state" not in arrays:
        return None
    names = ("call_state", "call_last", "call_cost", "call_returns")
    for name in names:
        kind = np.float32 if name == "call_cost" else np.int32
        check_array(name, arrays[name], np.dtype(kind))
    word_cost = float(arrays["call_word_cost"][0])
    state, last, cost, returns = (arrays[name] for name in names)
    return OovExits(state, last, cost, returns, word_cost)
