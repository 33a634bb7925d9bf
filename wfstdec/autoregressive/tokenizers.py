"""How a model cuts text into its tokens, so that phrases are cut as it was trained.

    model.tokenizer = SentencePieceFile("bpe.model")       # found beside a model's file
    cut = cutter(model.tokenizer, table)                   # text to names, or None

A model that was trained on pieces says them as its tokenizer cuts them, and hardly ever
otherwise: a phrase in fewer pieces than that is boosted in vain.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from wfstdec.errors import OptionError
from wfstdec.text.files import PathLike
from wfstdec.text.lexicon import is_mark, load_sentencepiece
from wfstdec.text.symbols import TokenTable

_BESIDE = ("bpe.model", "tokenizer.model")
"""What a SentencePiece model is called where there is one for a model."""
_METHODS = ("encode_as_pieces", "tokenize", "text_to_tokens")
"""What cuts text into names: of SentencePiece, of Transformers, of NeMo."""

_log = logging.getLogger("wfstdec.boost")


class SentencePieceFile:
    """A SentencePiece model, read when text is first cut.

    Args:
        path: The `.model` file.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = os.fspath(path)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path."""
        return type(self), (self.path,)

    @property
    def pieces(self) -> set[str]:
        """All that it cuts text into."""
        size = self._model.get_piece_size()
        return {self._model.id_to_piece(i) for i in range(size)}

    def __call__(self, text: str) -> list[str]:
        """The names of a text's pieces."""
        return self._model.encode(text, out_type=str)

    @cached_property
    def _model(self) -> Any:
        return load_sentencepiece(self.path)


def tokenizer_beside(path: PathLike) -> SentencePieceFile | None:
    """The SentencePiece model in a file's folder: `bpe.model`, `tokenizer.model`."""
    folder = Path(path).parent
    for name in _BESIDE:
        if (folder / name).is_file():
            return SentencePieceFile(folder / name)
    return None


def cutter(tokenizer: Any, tokens: TokenTable) -> Callable[[str], Sequence[str]] | None:
    """Make what cuts text into names of tokens; None where a file of pieces is no use.

    Args:
        tokenizer: Any callable, or an object of SentencePiece, Transformers or NeMo.
        tokens: The table that the names are to be in.

    Raises:
        OptionError: It cuts no text.
        FormatError: A file is no SentencePiece model.
    """
    if isinstance(tokenizer, SentencePieceFile):
        return tokenizer if _is_usable(tokenizer, tokens) else None
    for name in _METHODS:
        if hasattr(tokenizer, name):
            return getattr(tokenizer, name)
    if not callable(tokenizer):
        raise OptionError(
            f"the model's tokenizer is a {type(tokenizer).__name__}, expected a "
            f"function from text to names of tokens, or one with {_METHODS[0]}"
        )
    return tokenizer


def _is_usable(file: SentencePieceFile, tokens: TokenTable) -> bool:
    """Tell whether it can be read here and has all tokens; warns where not."""
    advice = "phrases are cut into as few pieces as can be, not as the model cuts them"
    if importlib.util.find_spec("sentencepiece") is None:
        how = "pip install sentencepiece"
        _log.warning("%s needs sentencepiece (%s): %s", file.path, how, advice)
        return False
    names = {name for i, name in enumerate(tokens.names) if i != tokens.blank}
    lacking = sorted(name for name in names - file.pieces if not is_mark(name))
    if lacking:
        text = "%s has no piece %r, which is a token of the model: %s"
        _log.warning(text, file.path, lacking[0], advice)
    return not lacking
