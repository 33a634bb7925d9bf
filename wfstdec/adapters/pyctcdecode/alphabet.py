"""Labels of a model, normalised as in pyctcdecode, and the defaults of version 0.5.0.

    alphabet = Alphabet.build_alphabet(["<pad>", "|", "a", "b"])
    alphabet.labels                        # ['', ' ', 'a', 'b']
    alphabet.is_bpe                        # False: no label begins with '▁' or '##'
    tokens = compile_tokens(alphabet)      # for the kernels

The blank is the empty label, appended where no label is a blank.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from wfstdec.errors import TokenTableError
from wfstdec.jit import read_only

DEFAULT_ALPHA = 0.5
DEFAULT_BETA = 1.5
DEFAULT_UNK_LOGP_OFFSET = -10.0
DEFAULT_BEAM_WIDTH = 100
DEFAULT_HOTWORD_WEIGHT = 10.0
DEFAULT_PRUNE_LOGP = -10.0
DEFAULT_PRUNE_BEAMS = False
DEFAULT_MIN_TOKEN_LOGP = -5.0
DEFAULT_SCORE_LM_BOUNDARY = True
AVG_TOKEN_LEN = 6  # unknown partial words cost more from this length on
MIN_TOKEN_CLIP_P = 1e-15  # floor of a token's probability
LOG_BASE_CHANGE_FACTOR = 1.0 / math.log10(math.e)  # nats in a unit of log10

BPE_TOKEN = "▁"
UNK_TOKEN = "⁇"
UNK_BPE_TOKEN = "▁⁇▁"
SPECIAL_TOKEN_PTN = re.compile(r"^[<\[].+[>\]]$")
BLANK_TOKEN_PTN = re.compile(r"^[<\[]pad[>\]]$", re.IGNORECASE)
UNK_TOKEN_PTN = re.compile(r"^[<\[]unk[>\]]$", re.IGNORECASE)
_CONTINUES = "##"
CLOSED = 0  # character of a part after which a new word begins; in no label
_MIN_COVERAGE = 0.8

BLANK, SPACE, STARTS, INSIDE = range(4)
"""Kinds of tokens: the blank, a space between words, a piece that starts a word,
others.
"""

_log = logging.getLogger("wfstdec.adapters")


class Alphabet:
    """Normalised labels; pieces (`is_bpe`) that begin with '▁' start words."""

    def __init__(self, labels: list[str], is_bpe: bool) -> None:
        self._labels = list(labels)
        self.is_bpe = is_bpe

    @property
    def labels(self) -> list[str]:
        """Copy of the labels."""
        return list(self._labels)

    @classmethod
    def build_alphabet(cls, labels: list[str]) -> Alphabet:
        """Normalise labels: blank, space, unknown, and '##' for pieces."""
        labels = _checked(labels)
        is_bpe = any(label.startswith((_CONTINUES, BPE_TOKEN)) for label in labels)
        spaced = [label for label in labels if " " in label]
        if is_bpe and spaced:
            raise TokenTableError(
                f"label {spaced[0]!r} has a space, expected none among pieces (labels "
                f"that begin with {BPE_TOKEN!r} or {_CONTINUES!r} make them pieces)"
            )
        return cls((_as_pieces if is_bpe else _as_characters)(labels), is_bpe)

    def dumps(self) -> str:
        """Return the alphabet as JSON."""
        return json.dumps({"labels": self.labels, "is_bpe": self.is_bpe})

    @classmethod
    def loads(cls, s: str) -> Alphabet:
        """Parse the output of `dumps`, of this class or of pyctcdecode."""
        expected = '{"labels": [...], "is_bpe": ...}'
        try:
            fields = json.loads(s)
        except ValueError as error:
            raise TokenTableError(
                f"alphabet is no JSON ({error}), expected {expected}"
            ) from None
        if not isinstance(fields, dict) or set(fields) != {"labels", "is_bpe"}:
            keys = sorted(fields) if isinstance(fields, dict) else fields
            raise TokenTableError(f"alphabet has {keys!r}, expected {expected}")
        return cls(_checked(fields["labels"]), bool(fields["is_bpe"]))


def _checked(labels: object) -> list[str]:
    if isinstance(labels, str) or not isinstance(labels, Collection):
        raise TokenTableError(f"labels {labels!r}, expected a list of strings")
    checked = list(labels)
    for label in checked:
        if not isinstance(label, str):
            raise TokenTableError(f"label {label!r}, expected a string")
    if len(set(checked)) < len(checked):
        twice = next(label for label in checked if checked.count(label) > 1)
        raise TokenTableError(f"label {twice!r} comes twice, expected different labels")
    return checked


def _with_marks(labels: list[str], unk: str) -> list[str]:
    labels = ["" if BLANK_TOKEN_PTN.match(label) else label for label in labels]
    if unk == UNK_TOKEN and "_" in labels and "" not in labels:
        labels[labels.index("_")] = ""  # the blank of some letter models
    if "" not in labels:
        _log.info("no label is a blank: one is appended to the %d labels", len(labels))
        labels.append("")
    return [unk if UNK_TOKEN_PTN.match(label) else label for label in labels]


def _as_characters(labels: list[str]) -> list[str]:
    if "|" in labels and " " not in labels:
        labels[labels.index("|")] = " "  # the space of wav2vec 2.0
    labels = _with_marks(labels, UNK_TOKEN)
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
    if any(label.startswith(_CONTINUES) for label in labels):
        labels = list(map(_from_hashes, labels))
    labels = _with_marks(labels, UNK_BPE_TOKEN)
    if UNK_BPE_TOKEN not in labels:
        _log.warning("no label is unknown (%r, <unk>), expected one", UNK_BPE_TOKEN)
    return labels


def _from_hashes(label: str) -> str:
    """Return a piece of an alphabet whose continuations begin with '##'."""
    if label.startswith(_CONTINUES):
        return label.removeprefix(_CONTINUES)
    if SPECIAL_TOKEN_PTN.match(label) or label in ("", BPE_TOKEN, UNK_BPE_TOKEN):
        return label
    return BPE_TOKEN + label


def verify_alphabet_coverage(alphabet: Alphabet, unigrams: Collection[str]) -> None:
    """Warn if labels can spell few of the words, and if the other case fits better."""
    known = set("".join(alphabet.labels))

    def coverage(words: Collection[str]) -> float:
        return sum(map(known.issuperset, words)) / len(words) if words else 1.0

    share = coverage(unigrams)
    if share < _MIN_COVERAGE:
        hint = ""
        for name, change in (("lower", str.lower), ("upper", str.upper)):
            if coverage(list(map(change, unigrams))) > share:
                hint = f"; in {name} case it would be more"
        _log.warning(
            "unigrams and labels do not agree: labels can spell %.1f %% of %d "
            "unigrams%s",
            *(100 * share, len(unigrams), hint),
        )


class Tokens(NamedTuple):
    """Alphabet for the kernels, V labels."""

    kind: np.ndarray  # int8 [V]
    alias: np.ndarray  # int32 [V], the first token with the same label
    closes: np.ndarray  # bool [V], whether a new word must begin after it
    char_splits: np.ndarray  # int64 [V + 1], int32: the label inside a word
    chars: np.ndarray
    first_splits: np.ndarray  # the same for a label that begins a word
    first_chars: np.ndarray


def compile_tokens(alphabet: Alphabet, faithful: bool) -> Tokens:
    """Return the alphabet for the kernels."""
    labels, is_bpe = alphabet.labels, alphabet.is_bpe
    first = {label: i for i, label in reversed(list(enumerate(labels)))}
    # The word-begin mark of a piece is not a part of the word.
    words = [label.removeprefix(BPE_TOKEN).removesuffix(BPE_TOKEN) for label in labels]
    closes = [is_bpe and label.endswith(BPE_TOKEN) for label in labels]
    if not faithful:
        pairs = zip(words, closes, strict=True)
        words = [word + chr(CLOSED) * (end and word != "") for word, end in pairs]
    kinds = {"": BLANK, " ": INSIDE if is_bpe else SPACE}
    begins = STARTS if is_bpe else INSIDE
    kind = [
        kinds.get(label, begins if label.startswith(BPE_TOKEN) else INSIDE)
        for label in labels
    ]
    arrays = (
        np.array(kind, np.int8),
        np.array([first[label] for label in labels], np.int32),
        np.array(closes, np.bool_),
        *code_points(labels),
        *code_points(words if is_bpe else [""] * len(labels)),
    )
    return Tokens(*(read_only(array) for array in arrays))


def code_points(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return splits of texts, int64 [N + 1], and the code points of all, int32."""
    splits = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=splits[1:])
    joined = "".join(texts).encode("utf-32-le", "surrogatepass")
    return splits, np.frombuffer(joined, np.int32)
