"""Parameters of a call of the decoder, checked, and of the kernels, made of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from wfstdec.adapters.pyctcdecode import records as k
from wfstdec.adapters.pyctcdecode.language_model import (
    LanguageModel,
    MultiLanguageModel,
)
from wfstdec.adapters.pyctcdecode.ngrams import NgramScorer
from wfstdec.adapters.pyctcdecode.search import AskedModel
from wfstdec.adapters.pyctcdecode.word_tree import NO_HOTWORDS, WordTree
from wfstdec.errors import OptionError
from wfstdec.jit import read_only
from wfstdec.lm.automaton import NULL_AUTOMATON

_NOTHING = read_only(np.zeros(0, np.bool_))
_OWN_METHODS = ("score", "score_partial_token", "get_start_state")


class Limits(NamedTuple):
    """Limits of the search in a call; see `BeamSearchDecoderCTC.decode_beams`."""

    beam_width: int
    beam_prune_logp: float
    token_min_logp: float
    prune_history: bool
    hotwords: Iterable[str] | None
    hotword_weight: float


class Own(NamedTuple):
    """Facts of a decoder that are of all its calls."""

    tokens: k.Tokens
    is_bpe: bool
    faithful: bool


def check_limits(limits: Limits) -> None:
    """Raise where a number is out of range.

    Raises:
        OptionError: It is.
    """
    width = limits.beam_width
    if not isinstance(width, int | np.integer) or width < 1:
        raise OptionError(f"beam_width={width!r}, expected 1 or more")
    if not limits.beam_prune_logp <= 0:
        raise OptionError(
            f"beam_prune_logp={limits.beam_prune_logp!r}, expected nats, 0 or below"
        )
    if np.isnan(limits.token_min_logp):
        raise OptionError(f"token_min_logp={limits.token_min_logp!r}, expected nats")
    if not np.isfinite(limits.hotword_weight):  # infinity times no hotword is NaN
        raise OptionError(f"hotword_weight={limits.hotword_weight!r}, expected nats")


def make_search(
    model: Any, limits: Limits, start: Any, hotwords: WordTree, own: Own
) -> tuple[k.Search, AskedModel | None]:
    """Make what the kernels search with, and the model that the host asks for them.

    Args:
        model: The language model, or None.
        limits: What the call says.
        start: The state to begin in; None for the model's own.
        hotwords: Their tree.
        own: The decoder.

    Raises:
        OptionError: A number is out of range, or a state of another model.
    """
    check_limits(limits)
    if isinstance(model, LanguageModel | MultiLanguageModel):
        model.check_usable()
    scorer = compiled_scorer(model)
    asks = model is not None and scorer is None
    if start is None and model is not None:
        start = model.get_start_state()
    search = k.Search(
        tokens=own.tokens,
        params=_params(model, limits, asks, own),
        automaton=NULL_AUTOMATON if scorer is None else scorer.lm.automaton,
        vocabulary=NO_HOTWORDS if scorer is None else model.tree,
        is_listed=_NOTHING if scorer is None else model.is_listed,
        hotwords=hotwords,
        start_state=0 if scorer is None else scorer.check(start).state,
    )
    return search, AskedModel(model, start, own.faithful) if asks else None


def compiled_scorer(model: Any) -> NgramScorer | None:
    """The arrays of a model whose scores the kernels make; None of any other."""
    if not isinstance(model, LanguageModel) or any(
        getattr(type(model), name) is not getattr(LanguageModel, name)
        for name in _OWN_METHODS
    ):
        return None
    return model.scorer if isinstance(model.scorer, NgramScorer) else None


def _params(model: Any, limits: Limits, asks: bool, own: Own) -> k.SearchParams:
    compiled = model is not None and not asks
    return k.SearchParams(
        beam_width=limits.beam_width,
        beam_prune_logp=float(limits.beam_prune_logp),
        prunes_history=bool(limits.prune_history),
        history=1 if model is None else max(1, model.order - 1),
        alpha=float(model.alpha) if compiled else 0.0,
        beta=float(model.beta) if compiled else 0.0,
        unk_offset=float(model.unk_score_offset) if compiled else 0.0,
        hotword_weight=float(limits.hotword_weight),
        has_lm=model is not None,
        asks=asks,
        boundary=compiled and bool(model.score_boundary),
        is_bpe=own.is_bpe,
        faithful=own.faithful,
    )
