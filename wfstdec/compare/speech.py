"""Utterances of a comparison.

speech = read_speech("dev.npz", "dev.txt", limit=100)
speech = encode_speech(load_model("whisper"), recordings, "dev.txt")
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.audio.reading import AudioLike
from wfstdec.compare.comparison import Outcome
from wfstdec.errors import OptionError, ShapeError
from wfstdec.io.logprobs import open_logprobs
from wfstdec.io.results import read_text
from wfstdec.models.encoder import encode_recording
from wfstdec.text.files import PathLike
from wfstdec.text.normalize import AS_IT_STANDS, Normalizer, Pairing, check_words

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Speech:
    """Utterances with references.

    Attributes:
        logprobs: Natural log-probs [T, V] of each utterance, or frames [T, D] for other
            decoders.
        references: Words of each utterance, normalised.
        frame_shift_s: Seconds per frame.
        normalizer: Rules for comparing words.
        seconds: Seconds of all recordings; None: of the log-probs.

    Raises:
        ShapeError: Utterances of log-probs and references differ, or there are none.
    """

    logprobs: Mapping[str, np.ndarray]
    references: Mapping[str, Sequence[str]]
    frame_shift_s: float = 0.02
    normalizer: Normalizer = AS_IT_STANDS
    seconds: float | None = None

    def __post_init__(self) -> None:
        differ = self.logprobs.keys() ^ self.references.keys()
        if differ or not self.logprobs:
            named = f"; on one side only: {min(differ)!r}" if differ else ""
            raise ShapeError(
                f"log-probs of {len(self.logprobs)} utterances and references of "
                f"{len(self.references)}, expected the same, at least one{named}"
            )

    @property
    def audio_s(self) -> float:
        """Seconds of all utterances."""
        if self.seconds is not None:
            return self.seconds
        return sum(map(len, self.logprobs.values())) * self.frame_shift_s

    def words_of(self, outcomes: Iterable[Outcome]) -> dict[str, tuple[str, ...]]:
        """Return the normalised words of outcomes, one for each utterance."""
        pairs = zip(self.logprobs, outcomes, strict=True)
        return {name: self.normalizer.words(one.text.split()) for name, one in pairs}

    def check_words(self, hypotheses: Mapping[str, Sequence[str]]) -> None:
        """Raise if decoded words are spelled differently from the references."""
        expected = chain.from_iterable(self.references.values())
        decoded = chain.from_iterable(hypotheses.values())
        names = "the references", "decoded words"
        check_words(expected, decoded, self.normalizer, names)

    @property
    def fingerprint(self) -> str:
        """32 hex digits of the names, log-probs and references."""
        digest = hashlib.blake2b(digest_size=16)
        for utterance, logprobs in self.logprobs.items():
            words = " ".join(self.references[utterance])
            head = f"{utterance}\t{words}\t{logprobs.dtype.str}{logprobs.shape}\n"
            digest.update(head.encode())
            digest.update(np.ascontiguousarray(logprobs).view(np.uint8).data)
        return digest.hexdigest()


def read_speech(
    logprobs: PathLike,
    references: PathLike,
    *,
    limit: int | None = None,
    frame_shift_s: float = 0.02,
    normalizer: Normalizer = AS_IT_STANDS,
) -> Speech:
    """Read utterances with both log-probs and a reference, as float32.

    Logs the number of utterances with only one of them, and examples.

    Args:
        logprobs: Argument of `open_logprobs`.
        references: `utterance words...` lines.
        limit: Number of utterances, evenly spread; None for all.
        frame_shift_s: Seconds per frame.
        normalizer: Rules for comparing words.

    Raises:
        FormatError: A file cannot be read, or they have no utterance in common; shows
            how ids differ.
        ShapeError: An array has not two axes.
        OptionError: The limit is below 1.
    """
    words, others = _words_of(references, limit), []
    arrays: dict[str, np.ndarray] = {}
    for utterance, array in open_logprobs(logprobs):
        if utterance in words:
            arrays[utterance] = np.ascontiguousarray(array, np.float32)
        else:
            others.append(utterance)
    _check_pairs(words, [*arrays, *others], references, Path(logprobs).name)
    given = {name: arrays[name] for name in evenly_spaced(list(arrays), limit)}
    texts = normalizer.texts({name: words[name] for name in given})
    return Speech(given, texts, frame_shift_s, normalizer)


def encode_speech(
    model: Any,
    recordings: Mapping[str, AudioLike],
    references: PathLike,
    *,
    limit: int | None = None,
    normalizer: Normalizer = AS_IT_STANDS,
) -> Speech:
    """Encode the recordings that have a reference, to frames or log-probs.

    Args:
        model: Result of `wfstdec.load_model`; a CTC model returns log-probs.
        recordings: Audio of whole utterances by the ids of references.
        references: As in `read_speech`.
        limit: Likewise.
        normalizer: Likewise.

    Raises:
        AudioError: A recording cannot be read, or is too long for the model. Others as
            in `read_speech`.
    """
    words = _words_of(references, limit)
    _check_pairs(words, list(recordings), references, "the recordings")
    found = [name for name in recordings if name in words]
    frames: dict[str, np.ndarray] = {}
    all_seconds = 0.0
    for name in evenly_spaced(found, limit):
        frames[name], seconds = encode_recording(model, name, recordings[name])
        all_seconds += seconds
    texts = normalizer.texts({name: words[name] for name in frames})
    return Speech(frames, texts, model.spec.frame_shift_s, normalizer, all_seconds)


def _words_of(references: PathLike, limit: int | None) -> dict[str, tuple[str, ...]]:
    if limit is not None and limit < 1:
        raise OptionError(f"limit={limit!r}, expected 1 or more, or None")
    return read_text(references)


def _check_pairs(
    words: Mapping[str, Sequence[str]], found: list[str], path: PathLike, name: str
) -> None:
    pairing = Pairing.of(words, found, (Path(path).name, name))
    pairing.check()
    if pairing.message:
        _log.warning("%s", pairing.message)


def evenly_spaced(items: list[str], limit: int | None) -> list[str]:
    """Return at most `limit` of the items, evenly spaced; all of them for None."""
    if limit is None or limit >= len(items):
        return items
    return [items[int((i + 0.5) * len(items) / limit)] for i in range(limit)]
