"""Options of a model that a caller gives, beside what its files say.

given = Given(sample_rate=16000)
given.table(folder / "vocab.txt", place)      # the caller's tokens, or the model's
given.rate(None, place)                       # 16000, or an error naming the flag
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wfstdec.errors import FormatError, ModelError
from wfstdec.models.encoder import EncoderSpec
from wfstdec.text.files import PathLike
from wfstdec.text.loading import load_tokens
from wfstdec.text.symbols import TokenTable, token_table

TOKEN_FILES = ("tokens.txt", "units.txt", "vocab.txt", "vocab.json")
"""Where exports keep their tokens, beside the model."""


@dataclass(frozen=True)
class Given:
    """Options of `load_model`; None is left to the model.

    Attributes:
        tokens: The token table of the model's outputs, or its file.
        blank: CTC's blank, by name or index.
        frame_shift_s: Seconds from a frame to the next.
        sample_rate: Samples a second.
        logits: Whether the outputs are still to be normalised.
        threads: Of onnxruntime.
        max_batch: Utterances at once.
    """

    tokens: PathLike | TokenTable | None = None
    blank: int | str | None = None
    frame_shift_s: float | None = None
    sample_rate: int | None = None
    logits: bool | None = None
    threads: int = 1
    max_batch: int = 1

    def table(
        self,
        own: PathLike | Sequence[str] | None,
        place: str,
        blank: int | str | None = None,
    ) -> TokenTable:
        """The caller's tokens or the model's, as a file or names; `blank` is its own.

        Raises:
            ModelError: Neither has any.
            TokenTableError, FormatError: As of `read_tokens`.
        """
        blank = self.blank if self.blank is not None else blank
        tokens = self.tokens if self.tokens is not None else own
        if tokens is None:
            raise ModelError(
                f"{place}: found no tokens, none of {' '.join(TOKEN_FILES)} is beside "
                "it; expected tokens= (--tokens)"
            )
        if isinstance(tokens, str | os.PathLike | TokenTable):
            return load_tokens(tokens, blank)
        return token_table(tokens, blank)

    def rate(self, own: int | None, place: str) -> int:
        """Samples a second, or an error.

        Raises:
            ModelError: Nobody says so.
        """
        expected = "sample_rate= (--sample-rate), most often 16000"
        rate = self.sample_rate or own
        return int(_known(rate, place, "which sample rate it hears", expected))

    def shift(self, own: float | None, place: str) -> float:
        """Seconds from a frame to the next, or an error.

        Raises:
            ModelError: Nobody says so.
        """
        expected = "frame_shift_s= (--frame-shift), in seconds"
        shift = self.frame_shift_s or own
        return float(_known(shift, place, "how long a frame is", expected))

    def spec(self, tokens: TokenTable, shift: float, rate: int) -> EncoderSpec:
        """The three with this `max_batch`."""
        return EncoderSpec(tokens, shift, rate, self.max_batch)


def tokens_beside(folder: Path) -> Path | None:
    """The first of `TOKEN_FILES` that a folder has."""
    return next((folder / n for n in TOKEN_FILES if (folder / n).is_file()), None)


def read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object, or an empty one where there is no such file.

    Raises:
        FormatError: The file is damaged, or holds something else.
    """
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: cannot read ({error}), expected JSON") from error
    if not isinstance(found, dict):
        raise FormatError(f"{path}: found a {type(found).__name__}, expected an object")
    return found


def _known(number: float | None, place: str, what: str, expected: str) -> float:
    if number is None:
        raise ModelError(f"{place}: says nowhere {what}, expected {expected}")
    return number
