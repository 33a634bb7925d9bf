"""Contestants of `tools.bench.trie`: our decoders and the peers, at settings.

for one in contestants(case, ["flashlight"]):
    answers = one.run(case.utterances)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tools.bench.cases import Case
from tools.peers.ctc import PEERS
from tools.peers.interface import Peer, ScoredPeer
from wfstdec.compare.comparison import Outcome, Setting
from wfstdec.compare.tuning import combinations, parse_grid
from wfstdec.errors import BackendError, OptionError
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.trie.options import TrieOptions
from wfstdec.wfst.options import WfstOptions

TRIE, WFST = "trie", "WFST"
MANY_TOKENS = 200
"""From this number on Flashlight is also given a choice of tokens per frame."""

Answer = Hypothesis | Outcome
"""Our hypotheses tell more than a text and a cost."""


@dataclass(frozen=True, eq=False)
class Contestant:
    """A decoder at a setting.

    Attributes:
        decoder: What tables call it.
        setting: Options by name.
        run: Decodes utterances in one thread.
    """

    decoder: str
    setting: Setting
    run: Callable[[Sequence[np.ndarray]], Sequence[Answer]]

    @property
    def name(self) -> str:
        """The decoder and its setting, in a line."""
        values = ", ".join(f"{k} {v}" for k, v in self.setting.items() if v is not None)
        return f"{self.decoder}: {values}"


def settings(text: str) -> list[Setting]:
    """Options that go together: `beam:beam_size=5.0:16,6.0:32` are two settings."""
    return combinations(parse_grid([text], text.partition("=")[0].split(":")))


TRIE_WORDS = settings(
    "beam:beam_size:merge=5.0:16:max,6.0:16:max,7.0:16:max,7.0:32:max,8.0:32:max,"
    "8.0:48:max,9.0:48:max,9.0:64:max,10.0:64:max,10.0:96:max,11.0:96:max,"
    "12.0:128:max,5.0:16:sum,6.0:16:sum,8.0:32:sum,9.0:64:sum,12.0:128:sum,"
    "14.0:256:max,14.0:256:sum,16.0:1024:max,20.0:4096:max"
)
TRIE_TOKENS = settings(
    "beam:beam_size:token_top_k=3.0:4:none,4.0:8:8,6.0:8:8,6.0:8:none,10.0:16:none,"
    "14.0:64:32,20.0:256:32"
)
WFST_WORDS = settings(
    "beam:max_active=6.0:7000,8.0:7000,10.0:7000,13.0:7000,17.0:20000"
)
_FLASHLIGHT = "beam_size:beam_threshold:beam_size_token="
FLASHLIGHT_WORDS = settings(
    f"{_FLASHLIGHT}20:20.0:10,50:20.0:10,50:50.0:none,200:15.0:10,200:50.0:none,"
    "500:15.0:10,1000:20.0:10"
)
FLASHLIGHT_PIECES = settings(
    f"{_FLASHLIGHT}20:20.0:16,50:20.0:16,50:25.0:100,200:20.0:16,200:25.0:100,"
    "500:20.0:16"
)
FLASHLIGHT_TOKENS = settings(
    f"{_FLASHLIGHT}8:10.0:16,16:20.0:16,50:20.0:16,200:20.0:32"
)


def contestants(case: Case, peers: Sequence[str]) -> list[Contestant]:
    """Ours, then the peers of these names that can take part.

    Why others cannot is printed.
    """
    trie = case.trie_decoder(TrieOptions(lm_scale=case.lm_scale))
    found = [
        Contestant(TRIE, setting, trie.with_options(**setting).decode)
        for setting in (TRIE_WORDS if case.lexicon else TRIE_TOKENS)
    ]
    for setting in WFST_WORDS if case.graph else ():
        options = WfstOptions(lm_scale=case.lm_scale, **setting)
        found.append(Contestant(WFST, setting, case.wfst_decoder(options).decode))
    for_flashlight = FLASHLIGHT_TOKENS
    if case.lexicon is not None:
        many = len(case.tokens) >= MANY_TOKENS
        for_flashlight = FLASHLIGHT_PIECES if many else FLASHLIGHT_WORDS
    for name in peers:
        wanted = for_flashlight if name == "flashlight" else None
        found += peer_contestants(case, name, wanted)
    return found


def peer_contestants(
    case: Case, name: str, settings: Sequence[Setting] | None
) -> list[Contestant]:
    """A peer at settings, or at its own; none, and why, where it cannot take part."""
    try:
        peer = PEERS[name](case.peer_inputs())
    except (BackendError, OptionError) as error:
        print(f"  without {name}: {error}", flush=True)
        return []
    return [
        Contestant(peer.name, setting, partial(_decode, peer, setting))
        for setting in settings or peer.settings()
    ]


def _decode(
    peer: Peer, setting: Setting, utterances: Sequence[np.ndarray]
) -> list[Outcome]:
    if isinstance(peer, ScoredPeer):
        scored = peer.decode_scored(utterances, setting)
        return [Outcome(text, -score) for text, score in scored]
    return list(map(Outcome, peer.decode(utterances, setting)))
