"""Language models as users give them: a file, a saved folder, or an object.

lm = read_lm("bpe.arpa.gz")                      # or what `NgramLM.save` wrote
model = lm_over(lm, tokens)                      # an NgramLM over these labels
model = build_lm("lm.arpa.gz", tokens="tokens.txt", lexicon="lexicon.txt")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence, Set
from pathlib import Path

from wfstdec.errors import OptionError
from wfstdec.lm.kenlm_model import KenlmModel
from wfstdec.lm.ngram import NgramLM, load_lm
from wfstdec.lm.on_demand import LazyLM
from wfstdec.lm.user import UserLM
from wfstdec.text.arpa import ArpaModel, read_arpa
from wfstdec.text.kenlm_binary import read_kenlm_header
from wfstdec.text.lexicon import Lexicon
from wfstdec.text.loading import (
    AUTO,
    TokensLike,
    load_lexicon,
    load_tokens,
    sayable,
    separator_of,
    word_table,
)
from wfstdec.text.symbols import TokenTable

AnyLM = str | os.PathLike[str] | ArpaModel | NgramLM | UserLM | LazyLM
"""An ARPA file, a KenLM binary, a folder that `NgramLM.save` wrote, or an object."""
TakenLM = ArpaModel | NgramLM | UserLM | LazyLM
"""Language models that need no file read any more."""


def read_lm(lm: AnyLM) -> ArpaModel | NgramLM:
    """Read a file or map a saved folder; n-gram models stay as they are.

    KenLM binaries must be of the trie format: others cannot be listed.

    Raises:
        ArpaError: A malformed file.
        FormatError: It cannot be read, or the folder is no language model.
        OptionError: A user's own model.
    """
    if isinstance(lm, str | os.PathLike):
        return load_lm(lm) if Path(lm).is_dir() else read_arpa(lm)
    found = read_any_lm(lm)
    if not isinstance(found, ArpaModel | NgramLM):
        raise OptionError(
            f"a language model of the class {type(found).__name__!r}, expected one of "
            "n-grams: models that are asked as a search goes are for the trie decoder"
        )
    return found


def read_any_lm(lm: AnyLM) -> TakenLM:
    """Read a model, also one without n-grams to list, which is asked later.

    Raises:
        ArpaError: A malformed file.
        FormatError: It cannot be read, or the folder is no language model.
        OptionError: It is no language model.
        BackendError: A KenLM binary of the probing format, and no `kenlm`.
    """
    if isinstance(lm, str | os.PathLike):
        if not Path(lm).is_dir():
            header = read_kenlm_header(lm)
            if header is not None and not header.is_trie:
                return KenlmModel(lm)
        return read_lm(lm)
    if isinstance(lm, ArpaModel | NgramLM | UserLM | LazyLM):
        return lm
    raise OptionError(
        f"lm={lm!r}, expected a file, a folder of NgramLM.save, or an object with the "
        "methods start, score and finish"
    )


def any_lm_over(
    lm: TakenLM,
    labels: TokenTable | Sequence[str],
    unk_cost: float | None = None,
) -> NgramLM | LazyLM:
    """Lay a model out over labels, also a user's own, asked as a search goes.

    Raises:
        ArpaError: As `NgramLM.from_arpa`.
        OptionError: As `lm_over`; `unk_cost` with a model of the user's.
    """
    if isinstance(lm, ArpaModel | NgramLM):
        return lm_over(lm, labels, unk_cost)
    if unk_cost is not None:
        raise OptionError(
            f"unk_cost={unk_cost!r} with a language model whose n-grams cannot be "
            "listed, expected None: it says itself what '<unk>' costs"
        )
    if isinstance(lm, LazyLM):
        same = LazyLM(lm.model, labels)
        return lm if same.labels == lm.labels else same
    return LazyLM(lm, labels)


def lm_over(
    lm: ArpaModel | NgramLM,
    labels: TokenTable | Sequence[str],
    unk_cost: float | None = None,
) -> NgramLM:
    """The model over the labels of a decoder.

    Args:
        lm: An ARPA model, or one that was made for these labels.
        labels: A token table, or a word table.
        unk_cost: As in `NgramLM.from_arpa`; not with a model that is made already.

    Raises:
        ArpaError: As `NgramLM.from_arpa`.
        OptionError: The model is over other labels, or `unk_cost` comes too late.
    """
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
        raise OptionError(
            f"a language model over other {unit}s ({_difference(lm.labels, table)}), "
            f"expected one over the {unit}s of this decoder"
        )
    if unk_cost is not None:
        raise OptionError(
            f"unk_cost={unk_cost!r} with a language model that is made already, "
            "expected None: give it where the model is made"
        )
    return lm


def listed_words(lm: TakenLM | None) -> Sequence[str] | None:
    """The words of a model over words, None where they are not known."""
    if isinstance(lm, LazyLM):
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
    lexicon: str | os.PathLike[str] | Lexicon | None = None,
    words: Sequence[str] | None = None,
    blank: int | str | None = None,
    separator: str | None = AUTO,
    unk_cost: float | None = None,
    nemo_tokens: bool = False,
) -> NgramLM:
    """Make a language model for decoders to share; `NgramLM.save` keeps it.

    Args:
        arpa: An ARPA file, plain or gzip, or a KenLM binary of the trie format.
        tokens: The token table; the model is over tokens, unless there is a lexicon.
        lexicon: The model is over its words, those that the file has.
        words: In place of both: a word table, such as a graph's; `words[0]` is
            `<eps>`.
        blank: The blank by name or index; None to recognise it.
        separator: The token between words, which a lexicon leaves out; `"auto"` as for
            decoders.
        unk_cost: Nats for labels that the file lacks; None drops words, and scores
            tokens as `<unk>` where the file has it.
        nemo_tokens: The words of the file are characters that stand for tokens.

    Raises:
        OptionError: Neither tokens nor words, or both.
        InputError: One of its subclasses, for what is wrong with a file.
    """
    if (words is None) == (tokens is None):
        found = "neither words nor" if words is None else "both words and"
        raise OptionError(f"{found} tokens, expected one of them")
    model = read_arpa(arpa)
    labels: TokenTable | Sequence[str]
    if words is not None:
        labels = words
    else:
        assert tokens is not None
        labels = table = load_tokens(tokens, blank)
        if lexicon is not None:
            between = separator_of(separator, table, lexicon=lexicon)
            entries = load_lexicon(lexicon, table, between)
            labels = word_table(sayable(entries, model.index, unk_cost))
    return NgramLM.from_arpa(model, labels, unk_cost=unk_cost, nemo_tokens=nemo_tokens)


def _difference(
    there: TokenTable | tuple[str, ...], here: TokenTable | tuple[str, ...]
) -> str:
    """The first thing that differs between two tables of one size."""
    if isinstance(there, TokenTable) and isinstance(here, TokenTable):
        if there.names == here.names:
            return f"its blank is {there.names[there.blank]!r}"
        there, here = there.names, here.names
    assert isinstance(there, tuple) and isinstance(here, tuple)
    i = next(i for i, name in enumerate(there) if name != here[i])
    return f"number {i} is {there[i]!r} there and {here[i]!r} here"
