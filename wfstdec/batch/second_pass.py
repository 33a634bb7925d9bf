"""A second pass: the texts of lattices in the order of an attention model.

reading = SecondPass(nbest=1, model=load_model("whisper"), recordings=recordings)
rescore_file("x.lat", "hyp.txt", reading=reading)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from wfstdec.attention.rescoring import rescore, spelling_of
from wfstdec.audio.reading import AudioLike, read_audio
from wfstdec.batch.decoding import LatticeReading
from wfstdec.errors import InputError, OptionError
from wfstdec.lattice.arrays import Lattice
from wfstdec.search.hypothesis import Hypothesis

_PIECE = re.compile(r"(.+)-(\d{7,})-(\d{7,})")
"""The name of a piece: of its recording, begin and end in hundredths of a second."""


@dataclass(frozen=True, kw_only=True)
class SecondPass(LatticeReading):
    """Reads the best texts of a lattice, and sorts them by a model's costs too.

        total = total_cost of the first pass + weight * cost of the model

    Raises:
        OptionError: The model is no attention model, or cannot spell text.
    """

    model: Any  # A `SpeechModel` of the family "attention"
    # By the names of utterances; lattices of pieces have that of their recording
    recordings: Mapping[str, AudioLike] = field(repr=False)
    weight: float = 0.5
    num_texts: int = 16  # That are read from a lattice

    def __post_init__(self) -> None:
        family = getattr(getattr(self.model, "spec", None), "family", None)
        if family != "attention":
            raise OptionError(f"a model of the family {family!r}, expected 'attention'")
        _ = self._spell

    @cached_property
    def _spell(self) -> Any:
        return spelling_of(self.model.net)

    def __call__(
        self, utterance: str, lattice: Lattice | list[Hypothesis]
    ) -> list[Hypothesis]:
        """The hypotheses of a lattice, best first; their costs are the first pass's."""
        texts = LatticeReading(nbest=self.num_texts)(utterance, lattice)
        frames = self.model.encode([self._waveform(utterance)])
        limit = self.model.net.limit(len(frames[0]))

        def spell(text: str) -> Any:
            tokens = self._spell(text)
            return tokens if tokens is not None and len(tokens) < limit else None

        how: Any = {"weight": self.weight, "spell": spell}
        [better] = rescore(self.model.net, frames, [texts], **how)
        return [one.hypothesis for one in better[: self.nbest]]

    def _waveform(self, utterance: str) -> Any:
        """Samples of an utterance: of a recording, or of a piece of it."""
        rate, name, span = self.model.spec.sample_rate, utterance, slice(None)
        if name not in self.recordings and (piece := _PIECE.fullmatch(name)):
            name, *ends = piece.groups()
            first, end = (round(int(one) * rate / 100) for one in ends)
            span = slice(first, end)
        if name not in self.recordings:
            raise InputError(f"no recording {name!r}, expected one for each lattice")
        return read_audio(self.recordings[name], rate).waveform[span]
