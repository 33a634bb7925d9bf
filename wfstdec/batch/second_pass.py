"""Second pass: rescoring of texts of lattices by another model of the audio.

reading = SecondPass(nbest=1, model=load_model("whisper"), recordings=recordings)
rescore_file("x.lat", "hyp.txt", reading=reading)
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from wfstdec.attention.rescoring import Rescored, rescore, spelling_of
from wfstdec.audio.reading import AudioLike
from wfstdec.batch.decoding import LatticeReading
from wfstdec.errors import InputError, OptionError
from wfstdec.lattice.arrays import Lattice
from wfstdec.models.encoder import encode_recording
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.transducer.forward import TextModel

_PIECE = re.compile(r"(.+)-(\d{7,})-(\d{7,})")
"""Name of a piece: recording, start and end in hundredths of a second."""


@dataclass(frozen=True, kw_only=True)
class SecondPass(LatticeReading):
    """Reader of lattices that sorts the best texts by a model's costs as well.

        total = total_cost of the first pass + weight * cost of the model

    Raises:
        OptionError: The model is a CTC model, or cannot spell text.
    """

    model: Any  # A `SpeechModel`
    # Audio by utterance; lattices of pieces are named by their recording
    recordings: Mapping[str, AudioLike] = field(repr=False)
    weight: float = 0.5
    num_texts: int = 16  # Number of texts read from a lattice

    def __post_init__(self) -> None:
        family = getattr(getattr(self.model, "spec", None), "family", None)
        if family not in ("attention", "transducer"):
            expected = "expected 'attention' or 'transducer'"
            raise OptionError(f"a model of the family {family!r}, {expected}")
        _ = self._spell

    @cached_property
    def _net(self) -> Any:
        net = self.model.net
        return TextModel(net) if self.model.spec.family == "transducer" else net

    @cached_property
    def _spell(self) -> Any:
        return spelling_of(self._net)

    def __call__(
        self, utterance: str, lattice: Lattice | list[Hypothesis]
    ) -> list[Hypothesis]:
        """Return the hypotheses of a lattice, best first, with first-pass costs."""
        texts = LatticeReading(nbest=self.num_texts)(utterance, lattice)
        better = self.rescored(utterance, texts)
        return [one.hypothesis for one in better[: self.nbest]]

    def rescored(self, utterance: str, texts: list[Hypothesis]) -> list[Rescored]:
        """Return hypotheses of the first pass with the model's costs, best first."""
        frames = self._frames(utterance)
        limit = getattr(self._net, "limit", lambda _: math.inf)(len(frames))

        def spell(text: str) -> Any:
            tokens = self._spell(text)
            return tokens if tokens is not None and len(tokens) < limit else None

        [found] = rescore(self._net, [frames], [texts], weight=self.weight, spell=spell)
        return found

    def _frames(self, utterance: str) -> Any:
        rate, name, span = self.model.spec.sample_rate, utterance, slice(None)
        if name not in self.recordings and (piece := _PIECE.fullmatch(name)):
            name, *ends = piece.groups()
            first, end = (round(int(one) * rate / 100) for one in ends)
            span = slice(first, end)
        if name not in self.recordings:
            raise InputError(f"no recording {name!r}, expected one for each lattice")
        audio = self.recordings[name]
        return encode_recording(self.model, utterance, audio, span)[0]
