"""kaldi-decoder's FasterDecoder on our graphs.

    fst = scaled_fst(graph, lm_scale=0.8)            # the graph as OpenFst has it
    peer = FasterDecoder(fst, options)
    words, cost = read_path(peer.decode(logprobs), graph.words)
    peer.reached_final

Needs the extra `peers`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.compare.peers.installed import import_peer, name_with_version
from wfstdec.compare.points import PeerInputs, Setting
from wfstdec.errors import OptionError
from wfstdec.fst.openfst_binary import FstContent
from wfstdec.fst.openfst_io import write_fst
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.symbols import EPSILON
from wfstdec.wfst.options import WfstOptions

_INSTALL = "pip install kaldi-decoder"
_BEAMS = (6.0, 8.0, 10.0, 13.0, 17.0)
_MAX_ACTIVE = 7000


def scaled_fst(graph: PackedGraph, lm_scale: float, word_insertion: float = 0.0) -> Any:
    """The graph as a `kaldifst.StdConstFst` whose costs are multiplied by a scale.

    Kaldi's decoder has no such scale. The float32 products are those that our search
    makes in every frame, so both see the same costs bit for bit.

    Args:
        graph: The graph; its unpacked arcs keep their order, epsilons first.
        lm_scale: Multiplies arc and final costs.
        word_insertion: Nats added to every arc that carries a word.
    """
    kaldifst = import_peer("kaldifst", _INSTALL)
    fst, scale = graph.unpack(), np.float32(lm_scale)
    cost = fst.cost * scale
    if word_insertion:
        cost = cost + np.float32(word_insertion) * (fst.olabel != EPSILON)
    scaled = replace(fst, cost=cost, final_cost=fst.final_cost * scale)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scaled.fst"
        write_fst(path, FstContent(scaled), "const")
        return kaldifst.StdConstFst.read(str(path))


class FasterDecoder:
    """kaldi-decoder's FasterDecoder; one object decodes any number of utterances.

    Args:
        fst: From `scaled_fst`.
        options: Its beam, max_active, min_active and, unless None, beam_delta are
            taken; None leaves Kaldi's own 0.5. `lm_scale` is in the FST.

    Raises:
        BackendError: kaldi-decoder is not installed.
        ValueError: The options ask for something that it does not do.
    """

    def __init__(self, fst: Any, options: WfstOptions) -> None:
        names = ("beam", "max_active", "min_active", "lm_scale", "beam_delta")
        plain = WfstOptions(**{name: getattr(options, name) for name in names})
        # What Kaldi cannot do must not be left out silently: a comparison would be of
        # two things.
        if options != plain:
            raise ValueError(f"{options!r}, expected pruning and lm_scale alone")
        self._kaldi = import_peer("kaldi_decoder", _INSTALL)
        config = self._kaldi.FasterDecoderOptions()
        config.beam = options.beam
        config.max_active = options.max_active or 2**31 - 1
        config.min_active = options.min_active
        if options.beam_delta is not None:
            config.beam_delta = options.beam_delta
        self._fst = fst  # the decoder holds a reference that Python does not see
        self._decoder = self._kaldi.FasterDecoder(fst, config)

    def decode(self, logprobs: np.ndarray) -> Any:
        """Decode float32 [T, V]; the best path as an FST, None where there is none."""
        self._decoder.decode(self._kaldi.DecodableCtc(logprobs))
        found, path = self._decoder.get_best_path()
        return path if found else None

    @property
    def reached_final(self) -> bool:
        """True where the last utterance's best path ends in a final state."""
        return bool(self._decoder.reached_final())


def read_path(path: Any, words: Sequence[str]) -> tuple[tuple[str, ...], float]:
    """The words of a best path and its total cost, final cost included.

    No path has no words and costs `inf`.
    """
    if path is None:
        return (), math.inf
    kaldifst = import_peer("kaldifst", _INSTALL)
    linear, _, olabels, weight = kaldifst.get_linear_symbol_sequence(path)
    if not linear:
        raise ValueError("a best path that branches, expected a linear one")
    return tuple(words[label] for label in olabels), weight.value1 + weight.value2


class KaldiPeer:
    """A `Peer`: Kaldi's search on the graph that ours goes through.

    Raises:
        BackendError: kaldi-decoder is not installed.
        OptionError: There is no graph.
    """

    def __init__(self, inputs: PeerInputs) -> None:
        import_peer("kaldi_decoder", _INSTALL)
        if inputs.graph is None:
            raise OptionError("kaldi-decoder without a graph, expected one")
        self.name = name_with_version("kaldi-decoder")
        self._words = inputs.graph.words
        self._fst = scaled_fst(inputs.graph, inputs.lm_scale, inputs.word_insertion)

    def settings(self) -> Sequence[Setting]:
        """Beams in nats, and the number of states that binds them."""
        return [{"beam": beam, "max_active": _MAX_ACTIVE} for beam in _BEAMS]

    def decode(
        self, utterances: Sequence[np.ndarray], setting: Setting
    ) -> Sequence[str]:
        """See `Peer`."""
        decoder = FasterDecoder(self._fst, WfstOptions(**setting))
        return [
            " ".join(read_path(decoder.decode(logprobs), self._words)[0])
            for logprobs in utterances
        ]
