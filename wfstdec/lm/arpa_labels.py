"""Which label each word of an ARPA file has: by its name, or as NeMo writes tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from wfstdec.errors import ArpaError
from wfstdec.lm.histories import NO_LABEL
from wfstdec.text.arpa import ArpaModel
from wfstdec.text.symbols import EPSILON, TokenTable

NEMO_OFFSET = 100
"""NeMo writes token t as the character `chr(t + 100)`."""

_log = logging.getLogger("wfstdec.lm")


class ArpaLabels(NamedTuple):
    """How the W words of a file and the L labels of a table go together.

    Attributes:
        of_word: int32 [W], the label of each word of the file, `NO_LABEL` where it
            has none. Those of `<s>`, `</s>` and `<unk>` mean nothing.
        impossible: bool [L], labels that nothing predicts: epsilon, blank, marks.
    """

    of_word: np.ndarray
    impossible: np.ndarray

    @property
    def unk(self) -> int:
        """The label of `<unk>`: L, one beyond the table."""
        return len(self.impossible)


def labels_by_name(model: ArpaModel, table: Sequence[str] | TokenTable) -> ArpaLabels:
    """Labels of words that are called as they are in the table.

    Raises:
        ArpaError: None of the tokens of a table is a word of the model.
    """
    is_tokens = isinstance(table, TokenTable)
    names = list(table.names if isinstance(table, TokenTable) else table)
    impossible = np.isin(names, ["<s>", "</s>"])
    impossible[table.blank if isinstance(table, TokenTable) else EPSILON] = True
    ids = {name: i for i, name in enumerate(names) if not impossible[i]}
    of_word = [ids.get(word, NO_LABEL) for word in model.words]
    if is_tokens:
        _check_tokens(model, ids)
    marks = {model.bos, model.eos, model.unk}
    missing = sum(
        label == NO_LABEL and position not in marks
        for position, label in enumerate(of_word)
    )
    if missing:
        what = "tokens" if is_tokens else "words"
        _log.info(
            "%d words of the model are none of the %d %s", missing, len(ids), what
        )
    return ArpaLabels(np.array(of_word, np.int32), impossible)


def _check_tokens(model: ArpaModel, names: Iterable[str]) -> None:
    """Most often it is the wrong file if tokens are not in it."""
    unk = None if model.unk is None else model.words[model.unk]
    wanted = {name for name in names if name != unk}
    lacking = sorted(wanted - set(model.words))
    if lacking and len(lacking) == len(wanted):
        raise ArpaError(
            f"none of the {len(wanted)} tokens, such as {lacking[0]!r}, is a word of "
            "the model, expected some; a model over words needs a lexicon, one of "
            "NeMo's nemo_tokens (wfstdec build-lm --nemo-tokens)"
        )
    if lacking:
        _log.warning(
            "%d of %d tokens are not in the language model, such as %s",
            *(len(lacking), len(wanted), ", ".join(map(repr, lacking[:3]))),
        )


def labels_by_nemo(model: ArpaModel, table: TokenTable) -> ArpaLabels:
    """Labels of words that are the characters of token + 100.

    Raises:
        ArpaError: A word is no such character.
    """
    impossible = np.zeros(len(table), bool)
    impossible[table.blank] = True
    marks = {model.bos, model.eos, model.unk}
    of_word = []
    for position, word in enumerate(model.words):
        token = ord(word) - NEMO_OFFSET if len(word) == 1 else -1
        if position in marks:
            token = NO_LABEL
        elif not 0 <= token < len(table):
            raise ArpaError(
                f"word {word!r}, expected the character of token + {NEMO_OFFSET}, with "
                f"V={len(table)} tokens; leave nemo_tokens out if words are tokens"
            )
        of_word.append(token)
    return ArpaLabels(np.array(of_word, np.int32), impossible)
