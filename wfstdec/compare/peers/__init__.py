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

from wfstdec.compare.points import MakePeer, Peer, PeerInputs
from wfstdec.errors import BackendError, OptionError

_log = logging.getLogger(__name__)


def _flashlight(inputs: PeerInputs) -> Peer:
    from wfstdec.compare.peers.flashlight import FlashlightPeer

    return FlashlightPeer(inputs)


def _pyctcdecode(inputs: PeerInputs) -> Peer:
    from wfstdec.compare.peers.pyctcdecode import PyctcdecodePeer

    return PyctcdecodePeer(inputs)


def _kaldi_decoder(inputs: PeerInputs) -> Peer:
    from wfstdec.compare.peers.kaldi import KaldiPeer

    return KaldiPeer(inputs)


def _nemo(inputs: PeerInputs) -> Peer:
    from wfstdec.compare.peers.nemo import NemoPeer

    return NemoPeer(inputs)


PEERS: Mapping[str, MakePeer] = {
    "flashlight": _flashlight,
    "pyctcdecode": _pyctcdecode,
    "kaldi-decoder": _kaldi_decoder,
    "nemo": _nemo,
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
