"""What takes part in a comparison, and what is measured of it.

A `Search` is one of ours, with all its settings; a `Peer` is somebody else's decoder,
which gives texts and no costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from wfstdec.graph import PackedGraph
from wfstdec.lexicon import Lexicon
from wfstdec.symbols import TokenTable

Setting = Mapping[str, Any]
"""Options by name: numbers, strings, truth values or None."""


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


@dataclass(frozen=True, eq=False)
class PeerInputs:
    """What a peer can be made of; what is None was not given.

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
