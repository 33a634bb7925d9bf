"""Other people's decoders, for comparisons; each only where it is installed.

peer = PEERS["flashlight"](inputs)          # `PeerInputs`
peer.decode(utterances, peer.settings()[0])
available_peers(inputs)                     # those that can be made of the inputs

flashlight       flashlight-text: a lexicon's trie, or tokens alone
pyctcdecode      words over pieces or characters; no pronunciations
kaldi-decoder    FasterDecoder on the graph
nemo             NeMo's batched search: tokens, no lexicon
riva             Kaldi's decoder for NVIDIA GPUs on the graph; not among `PEERS`
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from wfstdec.compare.points import MakePeer, Peer, PeerInputs
from wfstdec.errors import BackendError, OptionError

_log = logging.getLogger(__name__)


def flashlight(inputs: PeerInputs) -> Peer:
    """flashlight-text; see `peers.flashlight`."""
    from wfstdec.compare.peers.flashlight import FlashlightPeer

    return FlashlightPeer(inputs)


def pyctcdecode(inputs: PeerInputs) -> Peer:
    """pyctcdecode; see `peers.pyctcdecode`."""
    from wfstdec.compare.peers.pyctcdecode import PyctcdecodePeer

    return PyctcdecodePeer(inputs)


def kaldi_decoder(inputs: PeerInputs) -> Peer:
    """kaldi-decoder; see `peers.kaldi`."""
    from wfstdec.compare.peers.kaldi import KaldiPeer

    return KaldiPeer(inputs)


def nemo(inputs: PeerInputs) -> Peer:
    """NeMo's batched search; see `peers.nemo`."""
    from wfstdec.compare.peers.nemo import NemoPeer

    return NemoPeer(inputs)


def riva(inputs: PeerInputs) -> Peer:
    """riva-asrlib-decoder, on a GPU; see `peers.riva`."""
    from wfstdec.compare.peers.riva import RivaPeer

    return RivaPeer(inputs)


PEERS: Mapping[str, MakePeer] = {
    "flashlight": flashlight,
    "pyctcdecode": pyctcdecode,
    "kaldi-decoder": kaldi_decoder,
    "nemo": nemo,
}
"""What makes each peer, by the name that options call it: those that run on the CPU,
since comparisons count the CPU seconds of one thread."""


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
