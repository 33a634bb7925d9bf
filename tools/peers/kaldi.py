"""Kaldi's search on our graphs: FasterDecoder of kaldi-decoder.

search = KaldiSearch(graph, lm_scale=0.8)          # pip install kaldi-decoder
run(speech, [*searches, search])
"""

import importlib
import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.compare.comparison import Decode, Outcome, Search, SearchFacts, Setting
from wfstdec.errors import needs
from wfstdec.fst.openfst import FstContent, write_fst
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.tokens import EPSILON
from wfstdec.wfst.options import WfstOptions

_BEAMS = (6.0, 8.0, 10.0, 13.0, 17.0)
_MAX_ACTIVE = 7000


def _module(name: str) -> Any:
    with needs(f"{name} cannot be imported", "; pip install kaldi-decoder"):
        return importlib.import_module(name)


def scaled_fst(graph: PackedGraph, lm_scale: float, word_insertion: float = 0.0) -> Any:
    """Return the graph as a `kaldifst.StdConstFst` with scaled costs."""
    # Kaldi's decoder has no such scale. The float32 products equal those of our search
    # in every frame, bit for bit.
    fst, scale = graph.unpack(), np.float32(lm_scale)
    cost = fst.cost * scale
    if word_insertion:
        cost = cost + np.float32(word_insertion) * (fst.olabel != EPSILON)
    scaled = replace(fst, cost=cost, final_cost=fst.final_cost * scale)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scaled.fst"
        write_fst(path, FstContent(scaled), "const")
        return _module("kaldifst").StdConstFst.read(str(path))


class FasterDecoder:
    """kaldi-decoder's FasterDecoder, for any number of utterances."""

    # A `beam_delta` of None keeps Kaldi's 0.5. `lm_scale` is in the FST.

    def __init__(self, fst: Any, options: WfstOptions) -> None:
        names = ("beam", "max_active", "lm_scale", "beam_delta")
        plain = WfstOptions(**{name: getattr(options, name) for name in names})
        # Unsupported options must not be ignored: the comparison would be invalid.
        if options != plain:
            raise ValueError(f"{options!r}, expected pruning and lm_scale alone")
        self._kaldi = _module("kaldi_decoder")
        config = self._kaldi.FasterDecoderOptions()
        config.beam = options.beam
        config.max_active = options.max_active or 2**31 - 1
        config.min_active = 0
        if options.beam_delta is not None:
            config.beam_delta = options.beam_delta
        self._fst = fst  # the decoder holds a reference that Python does not see
        self._decoder = self._kaldi.FasterDecoder(fst, config)

    def decode(self, logprobs: np.ndarray) -> Any:
        """Decode float32 [T, V]; return the best path as an FST, or None."""
        self._decoder.decode(self._kaldi.DecodableCtc(logprobs))
        found, path = self._decoder.get_best_path()
        return path if found else None

    @property
    def reached_final(self) -> bool:
        """Return whether the last utterance's best path ends in a final state."""
        return bool(self._decoder.reached_final())


def read_path(path: Any, words: Sequence[str]) -> tuple[tuple[str, ...], float]:
    """Return the words of a best path and its total cost, final cost included."""
    # Without a path the result is no words and `inf`.
    if path is None:
        return (), math.inf
    linear, _, olabels, weight = _module("kaldifst").get_linear_symbol_sequence(path)
    if not linear:
        raise ValueError("a best path that branches, expected a linear one")
    return tuple(words[label] for label in olabels), weight.value1 + weight.value2


class KaldiSearch(Search):
    """Search by Kaldi's decoder at several beams, without boosts.

    Raises:
        BackendError: kaldi-decoder is not installed.
    """

    takes_boosts = False

    def __init__(
        self, graph: PackedGraph, lm_scale: float = 1.0, word_insertion: float = 0.0
    ) -> None:
        _module("kaldi_decoder")
        self.name = f"kaldi-decoder {version('kaldi-decoder')}"
        self.facts = SearchFacts({"max_active": _MAX_ACTIVE})
        self.settings = [{"beam": beam} for beam in _BEAMS]
        self._words = graph.words
        self._fst = scaled_fst(graph, lm_scale, word_insertion)

    def prepare(self, setting: Setting) -> Decode:
        """See `Search.prepare`."""
        options = WfstOptions(**{**self.facts.options, **setting})
        decoder = FasterDecoder(self._fst, options)
        return lambda utterances, _: [
            Outcome(" ".join(read_path(decoder.decode(logprobs), self._words)[0]))
            for logprobs in utterances
        ]
