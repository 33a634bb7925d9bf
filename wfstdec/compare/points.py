"""Protocols of what takes part in a comparison, and what it gives.

A `Search` is a decoder with all its settings; it gives `Outcome` for each utterance. A
`Peer` is somebody else's decoder, which gives texts and no costs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from wfstdec.graph.packed import PackedGraph
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.text.lexicon import Lexicon
from wfstdec.text.symbols import TokenTable

Setting = Mapping[str, Any]
"""Options by name: numbers, strings, truth values or None."""


class Outcome(NamedTuple):
    """Text of an utterance that a search found, and its cost.

    Attributes:
        text: The words, joined by single spaces.
        total_cost: What the search made least, nats; None where it does not tell.
        reached_final: Whether the path is a whole one; None where it does not tell.
    """

    text: str
    total_cost: float | None = None
    reached_final: bool | None = None

    @classmethod
    def of(cls, hypothesis: Hypothesis) -> Outcome:
        """Make a point of one of our hypotheses."""
        reached = bool(hypothesis.reached_final)
        return cls(hypothesis.text, float(hypothesis.total_cost), reached)


Decode = Callable[[Sequence[np.ndarray], Sequence[Any] | None], Sequence[Outcome]]
"""Decodes log-probs, float32 [T, V] each, with boosts of each utterance or None."""


@dataclass(frozen=True)
class SearchFacts:
    """Facts of a search that hold at all its settings.

    Attributes:
        options: All options by name; settings change some.
        load_s: Seconds on the wall to load what the settings share; None if unknown.
        load_mb: What that added to the resident set; no part of `Point.memory_mb`.
        inputs: Fingerprints of what was loaded, by name.
        takes_boosts: Whether it ran with the boost lists too.
    """

    options: Setting = field(default_factory=dict)
    load_s: float | None = None
    load_mb: float | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    takes_boosts: bool = True


class Search(Protocol):
    """A decoder with all the settings that are to be tried."""

    @property
    def name(self) -> str:
        """Name in tables and plots."""

    @property
    def settings(self) -> Sequence[Setting]:
        """The narrowest first; search errors are counted against the last."""

    @property
    def takes_boosts(self) -> bool:
        """True where it can be given boosts."""

    @property
    def facts(self) -> SearchFacts:
        """Facts that hold at all settings."""

    def compile_boosts(self, boosts: Sequence[Any]) -> Sequence[Any]:
        """The boosts of each utterance as `Decode` takes them; called untimed."""

    def prepare(self, setting: Setting) -> Decode:
        """Make a decoder that runs in one thread."""

    def lattice_decoder(self, setting: Setting) -> Decoder | None:
        """Make the decoder of a setting for lattices; None where it keeps none."""


class Peer(Protocol):
    """Somebody else's decoder; made by a function of `wfstdec.compare.peers`.

    Attributes:
        name: What tables and plots call it, its version included.
    """

    name: str

    def settings(self) -> Sequence[Setting]:
        """The settings to try, the narrowest first, the widest last."""

    def decode(
        self, utterances: Sequence[np.ndarray], setting: Setting
    ) -> Sequence[str]:
        """The words of each utterance, joined by single spaces.

        One thread. It is called with an utterance or two before it is timed, so what
        it builds for a setting may be kept until it gets another one.

        Args:
            utterances: Log-probs float32 [T, V] each, contiguous.
            setting: One of `settings()`.
        """


class ScoredPeer(ABC):
    """A `Peer` that gives the total of each text by its own account."""

    @abstractmethod
    def decode_scored(
        self, utterances: Sequence[np.ndarray], setting: Setting
    ) -> list[tuple[str, float]]:
        """The words of each utterance and their total in nats, higher is better.

        Nothing found has no words and `-inf`. For the arguments see `Peer.decode`.
        """

    def decode(
        self, utterances: Sequence[np.ndarray], setting: Setting
    ) -> Sequence[str]:
        """The words of each utterance; see `Peer.decode`."""
        return [text for text, _ in self.decode_scored(utterances, setting)]


@dataclass(frozen=True, eq=False)
class PeerInputs:
    """Inputs that a peer can be made of; None was not given.

    Attributes:
        tokens: The token table.
        graph: For peers that search a graph.
        lexicon: For peers that walk a lexicon.
        arpa: The path of the n-gram model, plain or gzip: over words where there is a
            lexicon, else over tokens.
        separator: The token between words.
        lm_scale: Multiplies the costs of the language model, nats.
        word_insertion: Nats for every word, above 0 penalises.
    """

    tokens: TokenTable
    graph: PackedGraph | None = None
    lexicon: Lexicon | None = None
    arpa: str | None = None
    separator: str | None = None
    lm_scale: float = 1.0
    word_insertion: float = 0.0


MakePeer = Callable[[PeerInputs], Peer]
"""Makes a peer; `BackendError` where it is not installed, `OptionError` where the
inputs lack what it needs or ask for what it cannot do. `peers.PEERS` lists them."""
