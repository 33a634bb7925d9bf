"""Sum a model's tokens to those of a decoder: spellings, and what nobody needs.

    encoder = MappedTokens(model, read_tokens("tokens.txt"),
                           same={"ɡ": "g"}, rest="<other>")

A token of the same name stays, one in `same` is added to the one it names, and all
others are added to `rest`. `load_model` reads the same from a file, `model.json`, where
paths are those from its folder:

    {"model": "hama", "tokens": "tokens.txt", "same": {"ɡ": "g"}, "rest": "<other>"}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.errors import FormatError, OptionError, TokenTableError
from wfstdec.models.encoder import Encoder
from wfstdec.models.given import Given, read_json
from wfstdec.text.loading import load_tokens
from wfstdec.text.symbols import TokenTable

_KEYS: dict[str, Any] = {
    "model": str,
    "tokens": str,
    "blank": (str, int),
    "same": dict,
    "rest": str,
}
_NEEDED = ("model", "tokens")


class MappedTokens:
    """An `Encoder` whose log-probs are those of another, summed by token.

    Args:
        encoder: Of V tokens.
        tokens: The table of the decoder.
        same: Tokens of the model by the token of the decoder that they are.
        rest: The token of the decoder for all others; None: there are none.

    Raises:
        TokenTableError: A token of the model has no place, a token of the decoder is
            nobody's, or the blanks are not each other's.
        OptionError: `same` names what the model does not have.
    """

    def __init__(
        self,
        encoder: Encoder,
        tokens: TokenTable,
        *,
        same: Mapping[str, str] | None = None,
        rest: str | None = None,
    ) -> None:
        names, same = encoder.spec.tokens.names, dict(same or {})
        if missing := same.keys() - set(names):
            raise OptionError(
                f"same= has {sorted(missing)[0]!r}, expected tokens of the model"
            )
        self.encoder = encoder
        self.spec = replace(encoder.spec, tokens=tokens)
        targets = [same.get(n, n if n in tokens.ids else rest) for n in names]
        for name, target in zip(names, targets, strict=True):
            if target is None:
                raise TokenTableError(
                    f"token {name!r} of the model has no place among the decoder's, "
                    "expected same= or rest= to say which it is"
                )
        places = np.array([tokens.index(target) for target in targets if target])
        self._sources = [np.flatnonzero(places == i) for i in range(len(tokens))]
        for name, sources in zip(tokens.names, self._sources, strict=True):
            if not len(sources):
                raise TokenTableError(
                    f"token {name!r} is no token of the model, expected one each"
                )
        if list(self._sources[tokens.blank]) != [encoder.spec.blank]:
            raise TokenTableError(
                f"the blank {tokens.names[tokens.blank]!r} is not the model's "
                f"{names[encoder.spec.blank]!r}, expected same= to say that it is"
            )

    def encode(self, waveforms: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Implement `Encoder.encode`; rows are normalised again."""
        return [self._summed(rows) for rows in self.encoder.encode(waveforms)]

    def _summed(self, rows: np.ndarray) -> np.ndarray:
        found = np.empty((len(rows), len(self._sources)), np.float32)
        for token, sources in enumerate(self._sources):
            part = rows[:, sources]
            found[:, token] = part[:, 0]
            if len(sources) > 1:
                found[:, token] = np.logaddexp.reduce(part, axis=1)
        return found - np.logaddexp.reduce(found, axis=1, keepdims=True)


def read_mapped(
    path: Path, given: Given, load: Callable[[str, Given], Encoder]
) -> MappedTokens:
    """Read `model.json`: a model, and which of a decoder's tokens its own are.

    Args:
        path: The file.
        given: What the caller says; its tokens and blank are in place of the file's.
        load: Loads the model that the file names.

    Raises:
        FormatError: The file is damaged, or something is missing or unknown.
        TokenTableError, OptionError: As of `MappedTokens`.
        ModelError: As of `load_model`.
    """
    described = read_json(path)
    for key, value in described.items():
        if key not in _KEYS or not isinstance(value, _KEYS[key]):
            raise FormatError(
                f"{path}: found {key!r}: {value!r}, expected {', '.join(_KEYS)}"
            )
    if missing := [key for key in _NEEDED if key not in described]:
        raise FormatError(f"{path}: found no {missing[0]!r}, expected the name of one")
    beside = path.parent / described["model"]
    name = str(beside) if beside.exists() else described["model"]
    blank = described.get("blank") if given.blank is None else given.blank
    tokens = given.tokens or path.parent / described["tokens"]
    return MappedTokens(
        load(name, replace(given, tokens=None, blank=None)),
        load_tokens(tokens, blank),
        same=described.get("same"),
        rest=described.get("rest"),
    )
