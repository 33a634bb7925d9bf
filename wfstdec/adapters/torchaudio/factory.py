"""`ctc_decoder`: files and options to a decoder."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple, NoReturn

import numpy as np

from wfstdec.adapters.torchaudio.decoder import CTCDecoder
from wfstdec.adapters.torchaudio.lexicon import (
    Names,
    Spellings,
    arc_gains,
    arc_kinds,
    read_names,
    read_spellings,
    score_trie,
    spelt_entries,
    word_names,
)
from wfstdec.adapters.torchaudio.models import (
    AutomatonModel,
    Model,
    OwnModel,
    file_model,
)
from wfstdec.adapters.torchaudio.records import Rules
from wfstdec.errors import BackendError, OptionError, ShapeError
from wfstdec.jit import read_only
from wfstdec.lm.automaton import NULL_AUTOMATON
from wfstdec.trie.lexicon_trie import empty_trie

File = str | os.PathLike[str]


class _Inputs(NamedTuple):
    """Inputs of a decoder, read.

    Attributes:
        tokens: The tokens.
        lexicon: The spellings, None without a lexicon.
        labels: Of the language model: words, or tokens.
        model: The language model.
    """

    tokens: Names
    lexicon: Spellings | None
    labels: Names
    model: Model


def ctc_decoder(
    lexicon: File | None,
    tokens: File | Sequence[str],
    lm: File | Any | None = None,
    lm_dict: File | None = None,
    nbest: int = 1,
    beam_size: int = 50,
    beam_size_token: int | None = None,
    beam_threshold: float = 50,
    lm_weight: float = 2,
    word_score: float = 0,
    unk_score: float = float("-inf"),
    sil_score: float = 0,
    log_add: bool = False,
    blank_token: str = "-",
    sil_token: str = "|",
    unk_word: str = "<unk>",
    *,
    threads: int = 1,
) -> CTCDecoder:
    """Make a decoder; all but `threads` is torchaudio's.

    Args:
        lexicon: A file of words and their tokens; None decodes tokens.
        tokens: A file with a token on each line, or the tokens.
        lm: A language model of KenLM's over the lexicon's words or over tokens, an
            object like a `CTCDecoderLM`, or None.
        lm_dict: A file with the labels of the language model, one on each line; None
            takes the words of the lexicon, or the tokens.
        nbest: How many hypotheses are given, at most.
        beam_size: How many live on after each frame.
        beam_size_token: How many tokens are looked at in a frame; None for all.
        beam_threshold: How far below the best a hypothesis may be.
        lm_weight: Of the language model's scores (KenLM's are log10).
        word_score: Added for each word.
        unk_score: Added for each unknown word; -inf for none.
        sil_score: Added for each frame of silence.
        log_add: Whether alignments are summed; else the best one counts.
        blank_token: The blank.
        sil_token: What stands between words.
        unk_word: The label that stands for unknown words.
        threads: Utterances decoded side by side; one where `lm` is an object.

    Raises:
        FormatError: A file cannot be read.
        TokenTableError: A list is malformed, or lacks the blank or `sil_token`.
        LexiconError: A malformed line, an unknown token, words not in `lm_dict`.
        ArpaError: A malformed language model.
        ShapeError: `lm_dict` has fewer labels than there are tokens.
        OptionError: An option is out of its range.
    """
    _at_least(nbest=nbest, beam_size=beam_size, threads=threads)
    inputs = _read(lexicon, tokens, lm, lm_dict)
    table = inputs.tokens
    scores = {
        "lm_weight": lm_weight,
        "word_score": word_score,
        "unk_score": unk_score,
        "sil_score": sil_score,
    }
    for name, value in scores.items():
        scores[name] = _number(name, value, -math.inf if name == "unk_score" else None)
    most_tokens = beam_size_token or len(table)
    _at_least(beam_size_token=most_tokens)
    unk = -1  # where nobody says a label of unknown words
    if inputs.lexicon is not None and unk_score != -math.inf:
        unk = inputs.labels.index(unk_word, "unk_word")
    rules = Rules(
        automaton=inputs.model.automaton,
        asked=inputs.model.asked,
        log_add=bool(log_add),
        beam_size=int(beam_size),
        beam_size_token=int(most_tokens),
        beam_threshold=_number("beam_threshold", beam_threshold, math.inf),
        blank=table.index(blank_token, "blank_token"),
        sil=table.index(sil_token, "sil_token"),
        **_searched(inputs, scores, unk),
    )
    words = () if inputs.lexicon is None else inputs.labels.names
    return CTCDecoder(
        rules, inputs.model, table, words, nbest=int(nbest), threads=int(threads)
    )


def download_pretrained_files(model: str) -> NoReturn:
    """Not here: this library downloads nothing.

    Raises:
        BackendError: Always.
    """
    raise BackendError(
        f"download_pretrained_files({model!r}) is not in wfstdec, which downloads "
        "nothing, expected files; fetch them once with torchaudio and give their paths"
    )


def _read(
    lexicon: File | None,
    tokens: File | Sequence[str],
    lm: File | Any | None,
    lm_dict: File | None,
) -> _Inputs:
    """Read what a decoder is made of."""
    table = read_names(tokens, "tokens")
    spellings = read_spellings(lexicon) if lexicon else None
    if lm_dict is not None:
        if not isinstance(lm_dict, str | os.PathLike):
            raise OptionError(f"lm_dict={lm_dict!r}, expected a file, or None")
        labels = read_names(lm_dict, "labels of lm_dict")
    else:
        labels = table if spellings is None else word_names(spellings)
    if lm is None:
        # Flashlight's `ZeroLM`.
        return _Inputs(table, spellings, labels, AutomatonModel(NULL_AUTOMATON, 0))
    if isinstance(lm, str | os.PathLike):
        if spellings is None and len(labels) < len(table):
            raise ShapeError(
                f"lm_dict has {len(labels)} entries, expected one for each of the "
                f"{len(table)} tokens, in their order"
            )
        return _Inputs(table, spellings, labels, file_model(lm, labels))
    lacking = [
        name
        for name in ("start", "score", "finish")
        if not callable(getattr(lm, name, None))
    ]
    if lacking:
        raise OptionError(
            f"lm is a {type(lm).__name__} without {lacking[0]}(), expected a file, a "
            "CTCDecoderLM, or None"
        )
    return _Inputs(table, spellings, labels, OwnModel(lm))


def _searched(inputs: _Inputs, scores: Mapping[str, float], unk: int) -> dict[str, Any]:
    """The fields of `Rules` with what is searched, and the scores."""
    bounds = inputs.model.bounds(len(inputs.labels))
    label_gain = np.full(len(bounds), math.inf)
    if scores["lm_weight"] >= 0:
        # 0 times infinity would be NaN.
        known = np.isfinite(bounds) if scores["lm_weight"] == 0 else slice(None)
        label_gain[known] = scores["lm_weight"] * bounds[known]
    if inputs.lexicon is None:
        trie, node_score = empty_trie(), np.zeros(1, np.float32)
    else:
        entries = spelt_entries(inputs.lexicon, inputs.labels, inputs.tokens)
        words = sorted({word for _, word, _ in entries})
        first = inputs.model.first_scores(words).tolist()
        trie, node_score = score_trie(entries, dict(zip(words, first, strict=True)))
    unk_gain = label_gain[unk] + scores["unk_score"] if unk >= 0 else -math.inf
    gains = arc_gains(trie, label_gain + scores["word_score"], unk_gain)
    return {
        "trie": trie,
        "node_score": read_only(node_score),
        "arc_kind": read_only(arc_kinds(trie)),
        "arc_gain": read_only(gains),
        "label_gain": read_only(label_gain),
        "has_lexicon": inputs.lexicon is not None,
        "unk": unk,
        **scores,
    }


def _at_least(**counts: int) -> None:
    """Raise `OptionError` for what is no count."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise OptionError(f"{name}={value!r}, expected 1 or more")


def _number(name: str, value: Any, infinite: float | None = None) -> float:
    """A number as the kernels take it; raise `OptionError` for what is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) and number != infinite:
        raise OptionError(f"{name}={value!r}, expected a number")
    return number
