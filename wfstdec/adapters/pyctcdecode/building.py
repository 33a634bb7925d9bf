"""A decoder from labels and files: `build_ctcdecoder`."""

from __future__ import annotations

import os
from collections.abc import Collection

from wfstdec.adapters.pyctcdecode.alphabet import Alphabet, verify_alphabet_coverage
from wfstdec.adapters.pyctcdecode.constants import (
    DEFAULT_ALPHA,
    DEFAULT_BETA,
    DEFAULT_SCORE_LM_BOUNDARY,
    DEFAULT_UNK_LOGP_OFFSET,
)
from wfstdec.adapters.pyctcdecode.decoder import BeamSearchDecoderCTC
from wfstdec.adapters.pyctcdecode.language_model import LanguageModel
from wfstdec.adapters.pyctcdecode.ngrams import open_scorer, unigrams_of


def build_ctcdecoder(
    labels: list[str],
    kenlm_model_path: str | os.PathLike[str] | None = None,
    unigrams: Collection[str] | None = None,
    alpha: float = DEFAULT_ALPHA,
    beta: float = DEFAULT_BETA,
    unk_score_offset: float = DEFAULT_UNK_LOGP_OFFSET,
    lm_score_boundary: bool = DEFAULT_SCORE_LM_BOUNDARY,
    *,
    threads: int | None = None,
    faithful: bool = False,
) -> BeamSearchDecoderCTC:
    """Make a decoder.

    Args:
        labels: One for each output of the model; see `Alphabet.build_alphabet`.
        kenlm_model_path: An ARPA file, plain or gzip, or a KenLM binary; None decodes
            without a language model.
        unigrams: The words that are known; None takes those of an ARPA file.
        alpha: Weight of the language model.
        beta: Reward of a word, nats.
        unk_score_offset: Added to the log10-prob of unknown words.
        lm_score_boundary: Whether utterances begin with `<s>` and end with `</s>`.
        threads: Utterances of a batch side by side; None for one per processor.
        faithful: Whether what is wrong in 0.5.0 is done as there.

    Raises:
        TokenTableError: Labels that are none.
        InputError: The language model is damaged or cannot be read.
        OptionError: A parameter is out of range.

    Warns (by logging):
        Where labels can spell few of the unigrams.
    """
    alphabet = Alphabet.build_alphabet(labels)
    scorer = None if kenlm_model_path is None else open_scorer(kenlm_model_path)
    if unigrams is None and scorer is not None:
        unigrams = unigrams_of(scorer, faithful)
    if unigrams is not None:
        verify_alphabet_coverage(alphabet, unigrams)
    language_model = None
    if scorer is not None:
        language_model = LanguageModel(
            scorer,
            unigrams,
            alpha=alpha,
            beta=beta,
            unk_score_offset=unk_score_offset,
            score_boundary=lm_score_boundary,
        )
    return BeamSearchDecoderCTC(
        alphabet, language_model, threads=threads, faithful=faithful
    )
