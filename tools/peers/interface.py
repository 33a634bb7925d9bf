"""Decoders of others: what they are made of, and as a `Search` of a comparison.

A `Peer` gives texts and no costs, a `ScoredPeer` the total of each text too.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import numpy as np

from wfstdec.compare.comparison import Decode, Outcome, Search, SearchFacts, Setting
from wfstdec.errors import needs
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.lexicon import Lexicon
from wfstdec.text.tokens import TokenTable


class Peer(Protocol):
    """Somebody else's decoder."""

    name: str  # What tables and plots call it, its version included

    def settings(self) -> Sequence[Setting]:
        """The settings to try, the narrowest first, the widest last."""

    def decode(
        self, utterances: Sequence[np.ndarray], setting: Setting
    ) -> Sequence[str]:
        """The words of each utterance (float32 [T, V]), joined by single spaces.

        One thread. The first call of a setting has one or two utterances and is not
        timed: what the setting needs can be built then, and kept.
        """


class ScoredPeer(ABC):
    """A `Peer` that gives the total of each text by its own account."""

    @abstractmethod
    def decode_scored(
        self, utterances: Sequence[np.ndarray], setting: Setting
    ) -> list[tuple[str, float]]:
        """The words of each utterance and their total in nats; `-inf` for no result."""

    def decode(
        self, utterances: Sequence[np.ndarray], setting: Setting
    ) -> Sequence[str]:
        """The words of each utterance; see `Peer.decode`."""
        return [text for text, _ in self.decode_scored(utterances, setting)]


@dataclass(frozen=True, eq=False)
class PeerInputs:
    """Inputs that a peer can be built from; None was not given.

    Attributes:
        tokens: The token table.
        graph: For peers that search a graph.
        lexicon: For peers with a lexicon.
        arpa: Path of the n-gram model, plain or gzip: over words with a lexicon, else
            over tokens.
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
inputs lack what it needs or ask for what it cannot do."""


class PeerSearch(Search):
    """A peer as a `Search`; options that all its settings share are facts."""

    takes_boosts = False

    def __init__(self, peer: Peer) -> None:
        self.peer, self.name = peer, peer.name
        first, *others = settings = peer.settings()
        common = {
            name: value
            for name, value in first.items()
            if others and all(other.get(name) == value for other in others)
        }
        self.facts = SearchFacts(common)
        self.settings = [
            {name: value for name, value in setting.items() if name not in common}
            for setting in settings
        ]

    def prepare(self, setting: Setting) -> Decode:
        """See `Search.prepare`; it was loaded when it was made."""
        whole = {**self.facts.options, **setting}
        return lambda utterances, _: [
            Outcome(text) for text in self.peer.decode(utterances, whole)
        ]


def import_peer(module: str, install: str) -> Any:
    """Import a module that need not be there."""
    with needs(f"{module.partition('.')[0]} cannot be imported", f"; {install}"):
        return importlib.import_module(module)


def name_with_version(package: str) -> str:
    """The name of a package, with its version where that is known."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package
