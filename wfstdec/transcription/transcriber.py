"""Transcriber of audio by a model and a decoder, running in parallel.

    transcriber = wfstdec.Transcriber(model, decoder)
    transcriber("talk.mp3").text
    for transcript in transcriber.run([Recording("a", "a.wav"), ...]): ...

    stream = transcriber.stream()                  # live audio
    for samples in microphone:                     # float32 [n], at the model's rate
        for final in stream.send(samples): final.hypothesis.text
        stream.partial.text                        # words after the last final
    for final in stream.finish(): ...

Threads read and encode, the caller's thread decodes. The words of a piece are
bit-identical to those of encoding and decoding it alone. A stream has final words at
each endpoint. Without a streaming encoder, partial words come from windows, and an
utterance is encoded again as a whole.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from wfstdec.audio.reading import AudioLike
from wfstdec.audio.samples import AudioNote
from wfstdec.batch.decoding import ReadLattice, rating, reading_and_keeping, search_all
from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import InputError, OptionError
from wfstdec.lattice.arrays import Lattice
from wfstdec.models.encoder import Encoder
from wfstdec.search.decoder import Decoder
from wfstdec.search.endpoints import DEFAULT_RULES, EndpointRule
from wfstdec.search.hypothesis import Hypothesis, Partial
from wfstdec.transcription.encoding import (
    AudioOptions,
    Encoded,
    Encoding,
    Ended,
    Part,
    Recording,
)
from wfstdec.transcription.pauses import first_pass
from wfstdec.transcription.pieces import (
    CutOptions,
    Piece,
    PieceCutter,
    join,
    join_nbest,
)

STREAM_CUTS = CutOptions(
    rules=DEFAULT_RULES, window_s=0.4, left_s=4.0, right_s=0.4, look_s=0.1
)
"""Tuned for latency; `replace(STREAM_CUTS, rules=[...])` changes a part."""
_BATCH_PARTS = 32
_BATCH_S = 1.0  # Size of a batch in parts, and longest wait in seconds for more


@dataclass(frozen=True)
class Transcript:
    """Words of a recording, by pieces."""

    name: str  # Name of the recording
    # First frame of each piece, and its hypotheses, best first
    pieces: tuple[tuple[int, list[Hypothesis]], ...] = ()
    audio_s: float = 0.0  # Seconds of audio
    notes: tuple[AudioNote, ...] = ()  # Conversions and problems of the audio
    error: InputError | None = None  # Error, if there are no words

    @cached_property
    def hypothesis(self) -> Hypothesis:
        """Best of `hypotheses`."""
        return self.hypotheses(1)[0]

    def hypotheses(self, n: int) -> list[Hypothesis]:
        """Return the n best hypotheses of all pieces, with the times of the recording.

        Raises:
            InputError: The `error`.
        """
        if self.error is not None:
            raise self.error
        return join_nbest(self.pieces, n)


class Transcriber:
    """Transcriber of recordings of any length.

    Args:
        model: Result of `wfstdec.load_model`, or any `Encoder`.
        decoder: Decoder with the model's tokens and frame shift.
        cuts: Options of cutting long recordings.
        audio: Options of reading recordings.
        workers: Pieces encoded in parallel; None is one per processor.
        nbest: Whether pieces have all hypotheses of the decoder's options.
        lattices: Function from a piece's lattice to hypotheses, such as
            `wfstdec.batch.LatticeReading`.

    Attributes:
        decode_s: Seconds in the decoder, without the first pass.
        keep: Called with name and lattice of each piece, if any.

    Raises:
        OptionError: The decoder has other tokens or another frame shift.
    """

    def __init__(
        self,
        model: Encoder,
        decoder: Decoder,
        *,
        cuts: CutOptions | None = None,
        audio: AudioOptions | None = None,
        workers: int | None = None,
        nbest: bool = False,
        lattices: ReadLattice | None = None,
    ) -> None:
        check_fit(model, decoder)
        self.model, self.decoder = model, decoder
        self.cuts, self.audio = cuts or CutOptions(), audio or AudioOptions()
        rows = nbest or lattices is not None
        how = self.cuts, self.audio
        self._encoding = Encoding(model, decoder, *how, workers=workers, rows=rows)
        self._nbest, self._lattices = nbest, lattices
        self.decode_s = 0.0
        self.keep: Callable[[str, Lattice], Any] | None = None

    @property
    def encode_s(self) -> float:
        """Seconds of all encoder workers."""
        return self._encoding.encode_s

    def __call__(self, audio: AudioLike, boosts: BoostsLike = None) -> Hypothesis:
        """Transcribe one recording: a path, bytes, an open file, or samples [N]."""
        [transcript] = self.run([Recording("audio", audio, boosts)])
        return transcript.hypothesis

    def run(
        self,
        recordings: Iterable[Recording],
        *,
        on_audio: Callable[[float], Any] | None = None,
        on_piece: Callable[[int, list[Hypothesis]], Any] | None = None,
    ) -> Iterator[Transcript]:
        """Transcribe recordings, and yield transcripts in order.

        Args:
            recordings: Recordings in any number, read lazily.
            on_audio: Called with the seconds of audio of each decoded piece. Its
                exceptions end the run.
            on_piece: Called with the first frame of each piece, and its hypotheses.

        Yields:
            A transcript of each; a failed one has its `error`.
        """
        pieces: list[tuple[int, list[Hypothesis]]] = []
        error: InputError | None = None
        # Closed at once: an error here would keep the threads alive in its frames.
        with contextlib.closing(self._encoding.run(recordings)) as parts:
            for part, found in self._decoded(parts):
                if isinstance(part, Ended):
                    error = error or part.error
                    done = tuple(pieces) if error is None else ()
                    about = part.audio_s, part.notes, error
                    yield Transcript(part.recording.name, done, *about)
                    pieces, error = [], None
                    continue
                found = self._read(part, found)
                if on_audio is not None:
                    on_audio(len(part.piece.waveform) / self.model.spec.sample_rate)
                if isinstance(found, InputError):
                    error = error or found
                    continue
                pieces.append((part.piece.start_frame, found))
                if on_piece is not None:
                    on_piece(part.piece.start_frame, found)

    def stream(
        self, boosts: BoostsLike = None, *, cuts: CutOptions = STREAM_CUTS
    ) -> Stream:
        """Return a stream of audio, whose utterances end by the rules of `cuts`."""
        return Stream(self.model, self.decoder, cuts, boosts)

    def _decoded(self, parts: Iterable[Part]) -> Iterator[tuple[Part, Any]]:
        for batch in _batches(parts):
            pieces = [part for part in batch if isinstance(part, Encoded)]
            began = time.perf_counter()
            found = iter(self._decode(pieces))
            self.decode_s += time.perf_counter() - began
            # In the order of pieces: other parts have no result.
            for part in batch:
                yield part, next(found) if isinstance(part, Encoded) else None

    def _decode(self, pieces: Sequence[Encoded]) -> list[Any]:
        todo = [piece for piece in pieces if piece.logprobs is not None]
        logprobs = [piece.logprobs for piece in todo]
        boosts = [piece.recording.boosts for piece in todo]
        record = self._lattices is not None
        try:
            rest = iter(search_all(self.decoder, logprobs, boosts, self._nbest, record))
        except InputError as error:
            if len(pieces) > 1:  # retry one by one
                return [self._decode([piece])[0] for piece in pieces]
            error.utterance = None
            return [error]
        # One pass has its hypothesis already.
        return [
            [piece.piece.first_pass] if piece.logprobs is None else next(rest)
            for piece in pieces
        ]

    def _read(self, piece: Encoded, found: Any) -> Any:
        """Return the hypotheses of a lattice, which the reader may also write."""
        read = reading_and_keeping(self._lattices, self.keep)
        if read is None or isinstance(found, InputError) or piece.logprobs is None:
            return found
        try:
            read = rating(read, piece.logprobs, self.decoder.tokens.blank)
            return read(self._name(piece), found)
        except InputError as error:
            return error

    def _name(self, piece: Encoded) -> str:
        """Return a piece's name: with hundredths of seconds, as in Kaldi's segments."""
        name, part = piece.recording.name, piece.piece
        if part.rule is None and not part.start_frame:  # all of the audio
            return name
        spec = self.model.spec
        begin_s = part.start_frame * spec.frame_shift_s
        end_s = begin_s + len(part.waveform) / spec.sample_rate
        return f"{name}-{round(100 * begin_s):07d}-{round(100 * end_s):07d}"


def check_fit(model: Encoder, decoder: Decoder) -> None:
    """Raise unless a decoder has the tokens and frames of a model."""
    spec, tokens = model.spec, decoder.vocabulary.tokens
    if decoder.family != spec.family:
        what = f"a {type(decoder).__name__} for a model of the family {spec.family!r}"
        raise OptionError(f"{what}, expected a decoder of that")
    names, theirs = tokens.names, spec.tokens.names
    if names != theirs or tokens.blank != spec.tokens.blank:
        # The first differing token is more informative than two sizes.
        pairs = enumerate(itertools.zip_longest(names, theirs))
        what = f"the blank is {tokens.blank} and {spec.tokens.blank}"
        if found := next(((i, a, b) for i, (a, b) in pairs if a != b), None):
            what = f"token {found[0]} is {found[1]!r} and {found[2]!r}"
        sizes = f"a decoder of {len(names)} tokens for a model of {len(theirs)}"
        raise OptionError(f"{sizes}: {what}, expected the model's table")
    ours, shift_s = decoder.frame_shift_s, spec.frame_shift_s
    if not math.isclose(ours, shift_s, rel_tol=1e-6):
        what = f"frame_shift_s={ours:g} for a model with {shift_s:g}"
        raise OptionError(f"a decoder with {what}, expected the model's")


def _batches(parts: Iterable[Part]) -> Iterator[list[Part]]:
    # The clock is read when a part arrives: waiting parts go with the next one.
    batch: list[Part] = []
    began = time.monotonic()
    for part in parts:
        batch.append(part)
        waited = time.monotonic() - began
        if len(batch) >= _BATCH_PARTS or waited >= _BATCH_S:
            yield batch
            batch, began = [], time.monotonic()
    if batch:
        yield batch


@dataclass(frozen=True)
class Final:
    """Words that no longer change."""

    hypothesis: Hypothesis  # Hypothesis with the times of the stream
    rule: EndpointRule | None  # Rule that ended the utterance; None at the stream's end


class Stream:
    """Stream of audio from `Transcriber.stream`, used by one thread at a time."""

    def __init__(
        self, model: Encoder, decoder: Decoder, cuts: CutOptions, boosts: BoostsLike
    ) -> None:
        self._model, self._decoder, self._boosts = model, decoder, boosts
        self._encoder, sessions = first_pass(model, decoder, cuts)
        self._state = self._encoder.start()
        how: Any = {"boosts": boosts, "one_pass": self._encoder is model}
        self._cutter = PieceCutter(sessions, cuts, model.spec, **how)

    @property
    def partial(self) -> Partial:
        """Words after the last final; times are relative to its end."""
        return self._cutter.partial

    def send(self, samples: np.ndarray) -> list[Final]:
        """Add audio, float32 [n]; return the utterances that end.

        Raises:
            ShapeError, ModelError: As in `Encoder.encode`.
        """
        return self._take(samples, last=False)

    def finish(self) -> list[Final]:
        """End the stream; return the remaining words."""
        finals = self._take(np.empty(0, np.float32), last=True)
        piece = self._cutter.end()
        return finals + ([self._final(piece)] if piece is not None else [])

    def close(self) -> None:
        """Abort the stream."""
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
