"""Peers that say what their answers are worth.

text, score = peer.decode_scored(utterances, setting)[0]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from wfstdec.compare.points import Setting


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
