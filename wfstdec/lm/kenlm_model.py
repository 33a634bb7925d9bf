"""KenLM binaries of the probing format: scored by the `kenlm` module, on demand.

    lm = KenlmModel("lm.bin")                  # a `UserLM`
    decoder = TrieDecoder(tokens=tokens, lexicon=lexicon, lm=lm, options=options)

The format keeps hashes in the place of n-grams, so that these cannot be listed. The
trie format can be, and is read without the module: `read_lm`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Container
from functools import cached_property
from typing import Any

from wfstdec.errors import BackendError, FormatError
from wfstdec.lm.user import UNK
from wfstdec.text.kenlm_binary import read_kenlm_header, read_kenlm_words

_NATS = -math.log(10)


class KenlmModel:
    """A model that `kenlm` scores; costs are what KenLM says, in nats.

    Args:
        path: A KenLM binary, or an ARPA file.

    Attributes:
        least_cost: No word costs less: a model whose back-offs are above 1 may give
            probabilities that are.
        vocabulary: All its words, where the file has them.

    Raises:
        BackendError: `kenlm` is not installed.
        FormatError: It cannot be read.
    """

    least_cost = -1.0

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            import kenlm
        except ImportError:
            raise BackendError(
                f"{os.fspath(path)}: a KenLM binary that only KenLM can score, "
                "expected the module kenlm: pip install kenlm; or build the trie "
                "format (build_binary trie), which is read without it"
            ) from None
        self.path = os.fspath(path)
        read_kenlm_header(path)  # clear errors before KenLM's
        config = kenlm.Config()
        config.show_progress = False
        try:
            self._model = kenlm.Model(self.path, config)
        except (OSError, RuntimeError) as error:
            raise FormatError(
                f"{self.path}: KenLM cannot read it ({error}), expected a whole file"
            ) from None
        self._new_state = kenlm.State

    def __repr__(self) -> str:
        """Name its file."""
        return f"KenlmModel({self.path!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path: the file is read where the copy is made."""
        return type(self), (self.path,)

    @property
    def words(self) -> Container[str]:
        """The words that it knows, and `<unk>`."""
        return self

    def __contains__(self, word: object) -> bool:
        """Tell whether a word is known; the module lists none."""
        return word == UNK or word in self._model

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """All its words, `<unk>` first, from the end of the file."""
        return read_kenlm_words(self.path)

    def start(self) -> Any:
        """The state behind `<s>`."""
        state = self._new_state()
        self._model.BeginSentenceWrite(state)
        return state

    def empty(self) -> Any:
        """The state where nothing was said."""
        state = self._new_state()
        self._model.NullContextWrite(state)
        return state

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        """The cost of a word, and the state behind it."""
        after = self._new_state()
        return _NATS * self._model.BaseScore(state, word, after), after

    def finish(self, state: Any) -> float:
        """The cost of `</s>`."""
        return _NATS * self._model.BaseScore(state, "</s>", self._new_state())
