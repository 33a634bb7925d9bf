"""Audio that comes in as it is spoken: words so far, and final ones at each endpoint.

    stream = transcriber.stream()
    for samples in microphone:                     # float32 [n], at the model's rate
        for final in stream.send(samples):
            final.hypothesis.text
        stream.partial.text                        # of what is not final
    for final in stream.finish(): ...

Two passes where an encoder does not stream: windows make the words so far, and each
utterance is encoded whole at its endpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wfstdec.boost.lists import BoostsLike
from wfstdec.models.encoder import Encoder
from wfstdec.search.decoder import Decoder
from wfstdec.search.endpoints import DEFAULT_RULES, EndpointRule
from wfstdec.search.hypothesis import Hypothesis, Partial
from wfstdec.transcription.joining import join
from wfstdec.transcription.pieces import CutOptions, Piece, PieceCutter

STREAM_CUTS = CutOptions(
    rules=DEFAULT_RULES, window_s=0.4, left_s=4.0, right_s=0.4, look_s=0.1
)
"""Of what people wait for; `replace(STREAM_CUTS, rules=[...])` changes a part."""


@dataclass(frozen=True)
class Final:
    """Words that no longer change.

    Attributes:
        hypothesis: With the times of the stream.
        rule: What ended the utterance; None at the end of the stream.
    """

    hypothesis: Hypothesis
    rule: EndpointRule | None


class Stream:
    """Stream of audio; made by `Transcriber.stream`, used by one thread at a time.

    Args:
        model: Any encoder.
        decoder: Over its tokens.
        cuts: Where utterances end, and the windows of an encoder that does not stream.
        boosts: As `Sessions.open` takes them.
    """

    def __init__(
        self, model: Encoder, decoder: Decoder, cuts: CutOptions, boosts: BoostsLike
    ) -> None:
        self._model, self._decoder, self._boosts = model, decoder, boosts
        self._encoder = cuts.chunked(model)
        self._state = self._encoder.start()
        self._cutter = PieceCutter(
            decoder.sessions(),
            cuts,
            model.spec,
            boosts=boosts,
            one_pass=self._encoder is model,
        )

    @property
    def partial(self) -> Partial:
        """The words so far behind the last final; times from where that ended."""
        return self._cutter.partial

    def send(self, samples: np.ndarray) -> list[Final]:
        """Take audio, float32 [n]; utterances that it ends.

        Raises:
            ShapeError, ModelError: As `Encoder.encode`.
        """
        return self._take(samples, last=False)

    def finish(self) -> list[Final]:
        """End the stream; what was not final yet."""
        finals = self._take(np.empty(0, np.float32), last=True)
        piece = self._cutter.end()
        return finals + ([self._final(piece)] if piece is not None else [])

    def close(self) -> None:
        """Give up the stream, wherever it is."""
        self._cutter.close()

    def _take(self, samples: np.ndarray, *, last: bool) -> list[Final]:
        self._cutter.push_audio(samples)
        self._cutter.push_rows(self._encoder.step([self._state], [samples], [last])[0])
        return [self._final(piece) for piece in self._cutter.search()]

    def _final(self, piece: Piece) -> Final:
        found = piece.first_pass
        if found is None:
            logprobs = self._model.encode([piece.waveform])
            [found] = self._decoder.decode(logprobs, boosts=[self._boosts])
        return Final(join([(piece.start_frame, found)]), piece.rule)
