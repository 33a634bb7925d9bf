"""Labels of a model as pyctcdecode reads them, by its normalisations.

    alphabet = Alphabet.build_alphabet(["<pad>", "|", "a", "b"])
    alphabet.labels                        # ['', ' ', 'a', 'b']
    alphabet.is_bpe                        # False: no label begins with '▁' or '##'

The blank is the empty label, put behind the others where no label is called like one.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection

import numpy as np

from wfstdec.adapters.pyctcdecode import records as k
from wfstdec.adapters.pyctcdecode.word_tree import code_points
from wfstdec.errors import TokenTableError
from wfstdec.jit import read_only

BPE_TOKEN = "▁"
UNK_TOKEN = "⁇"
UNK_BPE_TOKEN = "▁⁇▁"
SPECIAL_TOKEN_PTN = re.compile(r"^[<\[].+[>\]]$")
BLANK_TOKEN_PTN = re.compile(r"^[<\[]pad[>\]]$", re.IGNORECASE)
UNK_TOKEN_PTN = re.compile(r"^[<\[]unk[>\]]$", re.IGNORECASE)
"""Labels such as `<pad>` or `[UNK]`."""
_CONTINUES = "##"
_FEW = 0.8

_log = logging.getLogger("wfstdec.adapters")


class Alphabet:
    """The labels of a model's outputs.

    Args:
        labels: Normalised, one for each output; the blank is empty.
        is_bpe: Whether they are pieces, of which those that begin with '▁' start words.

    Attributes:
        is_bpe: The same.
    """

    def __init__(self, labels: list[str], is_bpe: bool) -> None:
        self._labels = list(labels)
        self.is_bpe = is_bpe

    @property
    def labels(self) -> list[str]:
        """A copy of the labels."""
        return list(self._labels)

    @classmethod
    def build_alphabet(cls, labels: list[str]) -> Alphabet:
        """Normalise labels: blank, space, unknown, and '##' for pieces.

        Raises:
            TokenTableError: A label comes twice, or pieces have a space.
        """
        labels = _checked(labels)
        is_bpe = any(label.startswith((_CONTINUES, BPE_TOKEN)) for label in labels)
        if is_bpe and any(" " in label for label in labels):
            found = next(label for label in labels if " " in label)
            raise TokenTableError(
                f"label {found!r} has a space, expected none among pieces (labels that "
                f"begin with {BPE_TOKEN!r} or {_CONTINUES!r} make them pieces)"
            )
        return cls((_as_pieces if is_bpe else _as_characters)(labels), is_bpe)

    def dumps(self) -> str:
        """The alphabet as JSON."""
        return json.dumps({"labels": self.labels, "is_bpe": self.is_bpe})

    @classmethod
    def loads(cls, s: str) -> Alphabet:
        """Read what `dumps` wrote, or pyctcdecode's.

        Raises:
            TokenTableError: It is nothing of the kind.
        """
        expected = '{"labels": [...], "is_bpe": ...}'
        try:
            found = json.loads(s)
        except ValueError as error:
            raise TokenTableError(
                f"alphabet is no JSON ({error}), expected {expected}"
            ) from None
        if not isinstance(found, dict) or set(found) != {"labels", "is_bpe"}:
            keys = sorted(found) if isinstance(found, dict) else found
            raise TokenTableError(f"alphabet has {keys!r}, expected {expected}")
        return cls(_checked(found["labels"]), bool(found["is_bpe"]))


def _checked(labels: object) -> list[str]:
    """Labels as a list."""
    if isinstance(labels, str) or not isinstance(labels, Collection):
        raise TokenTableError(f"labels {labels!r}, expected a list of strings")
    bad = [label for label in labels if not isinstance(label, str)]
    if bad:
        raise TokenTableError(f"label {bad[0]!r}, expected a string")
    found = list(labels)
    if len(set(found)) < len(found):
        twice = next(label for label in found if found.count(label) > 1)
        raise TokenTableError(f"label {twice!r} comes twice, expected different labels")
    return found


def _as_characters(labels: list[str]) -> list[str]:
    """Letters, and a space between words."""
    # As wav2vec 2.0 writes the space.
    if "|" in labels and " " not in labels:
        labels[labels.index("|")] = " "
    labels = ["" if BLANK_TOKEN_PTN.match(label) else label for label in labels]
    # As some models write the blank.
    if "_" in labels and "" not in labels:
        labels[labels.index("_")] = ""
    if "" not in labels:
        _log.info("no label is a blank: one is put behind the %d labels", len(labels))
        labels.append("")
    labels = [UNK_TOKEN if UNK_TOKEN_PTN.match(label) else label for label in labels]
    long = [label for label in labels if len(label) > 1]
    if long:
        _log.warning(
            "%d labels have more than one letter, such as %r, and none begins with %r "
            "as pieces do",
            *(len(long), long[0], BPE_TOKEN),
        )
    if " " not in labels:
        _log.warning("no label is a space: an utterance is one word")
    return labels


def _as_pieces(labels: list[str]) -> list[str]:
    """Pieces, '▁' before those that start words."""
    if any(label.startswith(_CONTINUES) for label in labels):
        labels = list(map(_from_hashes, labels))
    labels = ["" if BLANK_TOKEN_PTN.match(label) else label for label in labels]
    if "" not in labels:
        _log.info("no label is a blank: one is put behind the %d labels", len(labels))
        labels.append("")
    labels = [
        UNK_BPE_TOKEN if UNK_TOKEN_PTN.match(label) else label for label in labels
    ]
    if UNK_BPE_TOKEN not in labels:
        _log.warning("no label is unknown (%r, <unk>), expected one", UNK_BPE_TOKEN)
    return labels


def _from_hashes(label: str) -> str:
    """A piece of the kind whose continuations begin with '##'."""
    if label.startswith(_CONTINUES):
        return label.removeprefix(_CONTINUES)
    if SPECIAL_TOKEN_PTN.match(label) or label in ("", BPE_TOKEN, UNK_BPE_TOKEN):
        return label
    return BPE_TOKEN + label


def spelled_share(alphabet: Alphabet, unigrams: Collection[str]) -> float:
    """Share of words that have no character that labels lack; 1 for no words."""
    known = set("".join(alphabet.labels))
    spelled = sum(known.issuperset(word) for word in unigrams)
    return spelled / len(unigrams) if unigrams else 1.0


def verify_alphabet_coverage(alphabet: Alphabet, unigrams: Collection[str]) -> None:
    """Warn where labels can spell few of the words; the case of letters is named."""
    share = spelled_share(alphabet, unigrams)
    if share >= _FEW:
        return
    hint = ""
    for name, change in (("lower", str.lower), ("upper", str.upper)):
        if spelled_share(alphabet, list(map(change, unigrams))) > share:
            hint = f"; in {name} case it would be more"
    _log.warning(
        "unigrams and labels do not agree: labels can spell %.1f %% of %d unigrams%s",
        *(100 * share, len(unigrams), hint),
    )


def compile_tokens(alphabet: Alphabet) -> k.Tokens:
    """The alphabet as the kernels take it."""
    labels, is_bpe = alphabet.labels, alphabet.is_bpe
    first = {label: i for i, label in reversed(list(enumerate(labels)))}
    kind = [_kind(label, is_bpe) for label in labels]
    char_splits, chars = code_points(labels)
    # Of pieces with which a word begins, without its mark.
    words = [
        label.removeprefix(BPE_TOKEN).removesuffix(BPE_TOKEN) if is_bpe else ""
        for label in labels
    ]
    first_splits, first_chars = code_points(words)
    arrays = (
        np.array(kind, np.int8),
        np.array([first[label] for label in labels], np.int32),
        np.array([is_bpe and label.endswith(BPE_TOKEN) for label in labels], np.bool_),
        *(char_splits, chars, first_splits, first_chars),
    )
    return k.Tokens(*(read_only(array) for array in arrays))


def _kind(label: str, is_bpe: bool) -> int:
    if label == "":
        return k.BLANK
    if is_bpe:
        return k.STARTS if label.startswith(BPE_TOKEN) else k.INSIDE
    return k.SPACE if label == " " else k.INSIDE
