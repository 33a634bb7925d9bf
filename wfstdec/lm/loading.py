"""Loading of language models: ARPA, KenLM, a saved folder, a user's object.

KenLM's trie format is read without the module `kenlm`. The probing format has hashes
instead of n-grams, which cannot be listed: it is scored on demand.
"""

import math
import os
from collections.abc import Container, Iterable, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import Any

from wfstdec.errors import BackendError, OptionError
from wfstdec.lm.ngram import NgramLM, load_lm
from wfstdec.lm.on_demand import UNK, OnDemandLM, UserLM
from wfstdec.text.arpa import ArpaModel, read_arpa
from wfstdec.text.files import reading
from wfstdec.text.kenlm import check_probing, read_kenlm_header, read_kenlm_words
from wfstdec.text.lexicon import (
    AUTO,
    LexiconLike,
    TokensLike,
    load_lexicon,
    load_tokens,
    sayable,
    separator_of,
    word_table,
)
from wfstdec.text.tokens import TokenTable

_NATS = -math.log(10)


class KenlmModel:
    """Model scored by `kenlm`, in nats.

    Args:
        path: A KenLM binary, or an ARPA file.
        model: Its `kenlm.Model`, if open.

    Attributes:
        least_cost: Lower bound of costs: back-offs above 1 may give probabilities above
            1.
        vocabulary: All its words, if the file has them.

    Raises:
        BackendError: `kenlm` is not installed.
        FormatError: It cannot be read.
    """

    least_cost = -1.0

    def __init__(self, path: str | os.PathLike[str], model: Any = None) -> None:
        self.path = os.fspath(path)
        try:
            import kenlm
        except ImportError:
            raise BackendError(
                f"{self.path}: a KenLM binary that only KenLM can score, expected the "
                "module kenlm: pip install kenlm; or build the trie format "
                "(build_binary trie), which is read without it"
            ) from None
        # Clear errors before KenLM's, which reads out of bounds in a damaged file.
        header = None if model is not None else read_kenlm_header(path)
        if header is not None and header.kind == "probing":
            check_probing(path, header)
        config = kenlm.Config()
        config.show_progress = False
        with reading(self.path, "model of KenLM"):
            self._model = kenlm.Model(self.path, config) if model is None else model
        self.order, self._new_state = int(self._model.order), kenlm.State

    def __repr__(self) -> str:
        return f"KenlmModel({self.path!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    @property
    def words(self) -> Container[str]:
        """Known words, and `<unk>`."""
        return self

    def __contains__(self, word: object) -> bool:
        return word == UNK or word in self._model

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """All words, `<unk>` first, from the end of the file."""
        return read_kenlm_words(self.path)

    def start(self) -> Any:
        """Return the state after `<s>`."""
        state = self._new_state()
        self._model.BeginSentenceWrite(state)
        return state

    def empty(self) -> Any:
        """Return the state of the empty history."""
        state = self._new_state()
        self._model.NullContextWrite(state)
        return state

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        """Return the cost of a word, and the next state."""
        after = self._new_state()
        return _NATS * self._model.BaseScore(state, word, after), after

    def finish(self, state: Any) -> float:
        """Return the cost of `</s>`."""
        return _NATS * self._model.BaseScore(state, "</s>", self._new_state())


AnyLM = str | os.PathLike[str] | ArpaModel | NgramLM | UserLM | OnDemandLM
"""An ARPA file, a KenLM binary, a folder of `NgramLM.save`, or an object."""
TakenLM = ArpaModel | NgramLM | UserLM | OnDemandLM  # Loaded language models


def read_lm(lm: AnyLM) -> ArpaModel | NgramLM:
    """Read a file or map a saved folder; KenLM binaries of the trie format only."""
    if isinstance(lm, str | os.PathLike):
        return load_lm(lm) if Path(lm).is_dir() else read_arpa(lm)
    found = read_any_lm(lm)
    if not isinstance(found, ArpaModel | NgramLM):
        raise OptionError(
            f"a language model of the class {type(found).__name__!r}, expected one of "
            "n-grams: only the trie decoder queries models"
        )
    return found


def read_any_lm(lm: AnyLM) -> TakenLM:
    """Load a model, possibly without listed n-grams, to be queried on demand."""
    if isinstance(lm, str | os.PathLike):
        header = None if Path(lm).is_dir() else read_kenlm_header(lm)
        return read_lm(lm) if header is None or header.is_trie else KenlmModel(lm)
    if isinstance(lm, ArpaModel | NgramLM | UserLM | OnDemandLM):
        return lm
    raise OptionError(
        f"lm={lm!r}, expected a file, a folder of NgramLM.save, or an object with the "
        "methods start, score and finish"
    )


def any_lm_over(
    lm: TakenLM, labels: TokenTable | Sequence[str], unk_cost: float | None = None
) -> NgramLM | OnDemandLM:
    """Return a model over labels, possibly a user's own, queried on demand."""
    if isinstance(lm, ArpaModel | NgramLM):
        return lm_over(lm, labels, unk_cost)
    if unk_cost is not None:
        raise OptionError(
            f"unk_cost={unk_cost!r} with a language model whose n-grams cannot be "
            "listed, expected None: it scores '<unk>'"
        )
    if isinstance(lm, OnDemandLM):
        same = OnDemandLM(lm.model, labels)
        return lm if same.labels == lm.labels else same
    return OnDemandLM(lm, labels)


def lm_over(
    lm: ArpaModel | NgramLM,
    labels: TokenTable | Sequence[str],
    unk_cost: float | None = None,
) -> NgramLM:
    """Return the model over the labels of a decoder."""
    if isinstance(lm, ArpaModel):
        return NgramLM.from_arpa(lm, labels, unk_cost=unk_cost)
    unit = "token" if isinstance(labels, TokenTable) else "word"
    table = labels if isinstance(labels, TokenTable) else tuple(labels)
    # Sizes first: models from files may not know their labels.
    if (lm.unit, lm.num_labels) != (unit, len(table)):
        raise OptionError(
            f"a language model over {lm.num_labels} {lm.unit}s, expected one over the "
            f"{len(table)} {unit}s of this decoder"
        )
    if lm.labels is not None and lm.labels != table:
        names: Any = [getattr(one, "names", one) for one in (lm.labels, table)]
        differ = (
            f"number {i} is {a!r} there and {b!r} here"
            for i, (a, b) in enumerate(zip(*names, strict=True))
            if a != b
        )
        raise OptionError(
            f"a language model over other {unit}s ({next(differ, 'another blank')}), "
            f"expected one over the {unit}s of this decoder"
        )
    if unk_cost is not None:
        raise OptionError(
            f"unk_cost={unk_cost!r} with a built language model, "
            "expected None: give it when the model is built"
        )
    return lm


def listed_words(lm: TakenLM | None) -> Sequence[str] | None:
    """Return the words of a model over words, None if unknown."""
    if isinstance(lm, OnDemandLM):
        return listed_words(lm.model)
    if isinstance(lm, NgramLM):
        return None if isinstance(lm.labels, TokenTable) else lm.labels
    if isinstance(lm, KenlmModel):
        return lm.vocabulary
    words = getattr(lm, "words", None)
    if isinstance(words, Set):  # in an order that does not depend on hashes
        return sorted(words)
    return tuple(words) if isinstance(words, Iterable) else None


def build_lm(
    arpa: str | os.PathLike[str],
    *,
    tokens: TokensLike | None = None,
    lexicon: LexiconLike | None = None,
    words: Sequence[str] | None = None,
    blank: int | str | None = None,
    separator: str | None = AUTO,
    unk_cost: float | None = None,
    nemo_tokens: bool = False,
) -> NgramLM:
    """Build a language model for decoders to share; `NgramLM.save` writes it.

    Args:
        arpa: An ARPA file, plain or gzip, or a KenLM binary of the trie format.
        tokens: Token table; the model is over tokens, unless there is a lexicon.
        lexicon: The model is over its words that the file has.
        words: Word table instead of both; `words[0]` is `<eps>`.
        blank: Blank by name or index; None to recognise it.
        separator: Token between words, as in decoders.
        unk_cost: Nats for labels that the file lacks; None drops words, and scores
            tokens as `<unk>` if the file has it.
        nemo_tokens: The words of the file are characters that encode tokens.

    Raises:
        OptionError: Neither tokens nor words, or both.
        InputError: One of its subclasses, for an invalid file.
    """
    if (words is None) == (tokens is None):
        found = "neither words nor" if words is None else "both words and"
        raise OptionError(f"{found} tokens, expected one of them")
    model = read_arpa(arpa)
    labels: TokenTable | Sequence[str] | None = words
    if labels is None:
        labels = table = load_tokens(tokens, blank)
        if lexicon is not None:
            between = separator_of(separator, table, lexicon=lexicon)
            entries = load_lexicon(lexicon, table, between)
            labels = word_table(sayable(entries, model.index, unk_cost))
    return NgramLM.from_arpa(model, labels, unk_cost=unk_cost, nemo_tokens=nemo_tokens)
