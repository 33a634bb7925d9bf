"""Other decoders on our graphs, for benchmarks and comparisons.

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

import kaldi_decoder
import kaldifst
import numpy as np

from wfstdec.fst.openfst_binary import FstContent
from wfstdec.fst.openfst_io import write_fst
from wfstdec.graph import PackedGraph
from wfstdec.wfst.options import DecodeOptions


def scaled_fst(graph: PackedGraph, lm_scale: float) -> Any:
    """The graph as a `kaldifst.StdConstFst` whose costs are multiplied by a scale.

    Kaldi's decoder has no such scale. The float32 products are those that our search
    makes in every frame, so both see the same costs bit for bit.

    Args:
        graph: The graph; its unpacked arcs keep their order, epsilons first.
        lm_scale: Multiplies arc and final costs.
    """
    fst, scale = graph.unpack(), np.float32(lm_scale)
    scaled = replace(fst, cost=fst.cost * scale, final_cost=fst.final_cost * scale)
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
        ValueError: The options ask for something that it does not do.
    """

    def __init__(self, fst: Any, options: DecodeOptions) -> None:
        plain = DecodeOptions(
            beam=options.beam,
            max_active=options.max_active,
            min_active=options.min_active,
            lm_scale=options.lm_scale,
            beam_delta=options.beam_delta,
        )
        if options != plain:
            raise ValueError(f"{options!r}, expected pruning and lm_scale alone")
        config = kaldi_decoder.FasterDecoderOptions()
        config.beam = options.beam
        config.max_active = options.max_active or 2**31 - 1
        config.min_active = options.min_active
        if options.beam_delta is not None:
            config.beam_delta = options.beam_delta
        self._fst = fst  # the decoder holds a reference that Python does not see
        self._decoder = kaldi_decoder.FasterDecoder(fst, config)

    def decode(self, logprobs: np.ndarray) -> Any:
        """Decode float32 [T, V]; the best path as an FST, None where there is none."""
        self._decoder.decode(kaldi_decoder.DecodableCtc(logprobs))
        found, path = self._decoder.get_best_path()
        return path if found else None

    @property
    def reached_final(self) -> bool:
        """Whether the last utterance's best path ends in a final state."""
        return bool(self._decoder.reached_final())


def read_path(path: Any, words: Sequence[str]) -> tuple[tuple[str, ...], float]:
    """The words of a best path and its total cost, final cost included.

    No path has no words and costs `inf`.
    """
    if path is None:
        return (), math.inf
    linear, _, olabels, weight = kaldifst.get_linear_symbol_sequence(path)
    if not linear:
        raise ValueError("a best path that branches, expected a linear one")
    return tuple(words[label] for label in olabels), weight.value1 + weight.value2
