"""Bases of option dataclasses: field checks, shared defaults."""

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wfstdec.errors import OptionError

MAX_NATS = 1e6
"""Largest scale and number of nats; no sum of costs reaches infinity."""
MAX_COUNT = (1 << 31) - 1  # largest count: the largest number of states
MAX_OPEN_TOKENS = 1000  # longest open word, tokens
DEFAULT_LATTICE_BEAM = 8.0  # nats; at most the beam of the search


class CheckedOptions:
    """Field checks for option dataclasses; each raises `OptionError`."""

    def check(
        self,
        name: str,
        good: Callable[[Any], bool],
        expected: str,
        *,
        optional: bool = False,
    ) -> None:
        """Check a number; `None` is valid if `optional`."""
        value = getattr(self, name)
        if value is None and optional:
            return
        if not (isinstance(value, numbers.Real) and good(value)):
            raise OptionError(f"{name}={value!r}, expected {expected}")

    def check_width(self, name: str, *, optional: bool = False) -> None:
        """Check nats, 0 or more; infinity is allowed."""
        expected = f"a number of nats, 0 to {MAX_NATS:g}, "
        expected += "inf or None" if optional else "or inf"
        self.check(name, _is_width, expected, optional=optional)

    def check_scales(self, *names: str) -> None:
        """Check factors, 0 or more."""
        for name in names:
            self.check(name, is_between(0, MAX_NATS), f"0 to {MAX_NATS:g}")

    def check_nats(self, *names: str) -> None:
        """Check costs of either sign."""
        for name in names:
            expected = f"a number of nats, -{MAX_NATS:g} to {MAX_NATS:g}"
            self.check(name, lambda x: abs(x) <= MAX_NATS, expected)

    def check_probability(self, name: str) -> None:
        """Check a probability above 0, or `None`."""
        expected = "a probability above 0, at most 1, or None"
        self.check(name, lambda x: 0 < x <= 1, expected, optional=True)

    def check_count(self, name: str, *, optional: bool = False) -> None:
        """Check an integer, 1 or more, or `None` if `optional`."""
        expected = f"1 to {MAX_COUNT}" + (", or None" if optional else "")
        self.check(name, _is_count, expected, optional=optional)

    def check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        """Check that a value is one of `choices`."""
        if getattr(self, name) not in choices:
            known = ", ".join(map(repr, choices))
            raise OptionError(f"{name}={getattr(self, name)!r}, expected {known}")


class LatticeOptions(CheckedOptions):
    """Options of a search that records lattices: `beam` and `lattice_beam`."""

    beam: float
    lattice_beam: float | None

    @property
    def beam_of_lattice(self) -> float:
        """`lattice_beam` or its default."""
        given = self.lattice_beam
        return min(DEFAULT_LATTICE_BEAM, self.beam) if given is None else given

    def check_lattice_beam(self) -> None:
        """Check nats, at most the beam, or `None`."""
        expected = f"a number of nats, 0 to the beam ({self.beam!r}), or None"
        in_beam = is_between(0, self.beam)
        self.check("lattice_beam", in_beam, expected, optional=True)


@dataclass(frozen=True)
class OpenVocabulary(CheckedOptions):
    """Costs of open words, in nats: words in neither lexicon nor list.

        vocabulary = OpenVocabulary(word_cost=2.0, token_cost=0.5)
        decoder = TrieDecoder(..., open_vocabulary=vocabulary)
        graph = build_graph(..., open_vocabulary=vocabulary)

    An open word is any sequence of tokens other than the blank, the separator and marks
    such as `<unk>`. `lm_scale` multiplies its cost:

        graph cost = LM's cost of `<unk>` + word_cost + token_cost * tokens

    Attributes:
        word_cost: For each open word, in addition to the cost of `<unk>`; may be
            negative.
        token_cost: For each token of an open word, 0 or more.

    Raises:
        OptionError: A value is out of range.
    """

    word_cost: float
    token_cost: float

    def __post_init__(self) -> None:
        self.check_nats("word_cost")
        expected = f"a number of nats, 0 to {MAX_NATS:g}"
        self.check("token_cost", is_between(0, MAX_NATS), expected)


def is_between(low: float, high: float) -> Callable[[Any], bool]:
    """Return a predicate for a closed range."""
    return lambda x: low <= x <= high


def _is_count(x: Any) -> bool:
    return isinstance(x, numbers.Integral) and 1 <= int(x) <= MAX_COUNT


def _is_width(x: Any) -> bool:
    return 0 <= x <= MAX_NATS or x == math.inf
