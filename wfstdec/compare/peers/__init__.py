"""Other people's decoders, for comparisons; each only where it is installed.

peer = PEERS["flashlight"](inputs)          # `PeerInputs`
peer.decode(utterances, peer.settings()[0])
available_peers(inputs)                     # those that can be made of the inputs

flashlight       flashlight-text: a lexicon's trie, or tokens alone
pyctcdecode      words over pieces or characters; no pronunciations
kaldi-decoder    FasterDecoder on the graph
nemo             NeMo's batched search: tokens, no lexicon
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from importlib import import_module

from wfstdec.compare.points import MakePeer, Peer, PeerInputs
from wfstdec.errors import BackendError, OptionError

_log = logging.getLogger(__name__)


def _made(module: str, name: str, inputs: PeerInputs) -> Peer:
    """Make a peer; its module, and what it imports, is imported now."""
    return getattr(import_module(f"{__name__}.{module}"), name)(inputs)


PEERS: Mapping[str, MakePeer] = {
    "flashlight": partial(_made, "flashlight", "FlashlightPeer"),
    "pyctcdecode": partial(_made, "pyctcdecode", "PyctcdecodePeer"),
    "kaldi-decoder": partial(_made, "kaldi", "KaldiPeer"),
    "nemo": partial(_made, "nemo", "NemoPeer"),
}
"""Makers of the peers, by the name that options call them. Comparisons count the CPU
seconds of one thread: peers on a GPU are left to `tools/peers`."""


def available_peers(inputs: PeerInputs) -> list[Peer]:
    """The peers that are installed and can be made of the inputs.

    Why the others are missing is logged.
    """
    made: list[Peer] = []
    for name, make in PEERS.items():
        try:
            made.append(make(inputs))
        except (BackendError, OptionError) as error:
            _log.info("without the peer %s: %s", name, error)
    return made
