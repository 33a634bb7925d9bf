"""The options of the trie search as its kernels take them."""

from __future__ import annotations

import math

import numpy as np

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.boost.instalments import instalment_size
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.search.acoustics import pricing_of
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.trie.added_trie import credit_cap
from wfstdec.trie.cpu import records as k
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.space import SearchSpace

NO_LIMIT = 1 << 40


def scales_of(
    options: TrieOptions, space: SearchSpace, boosts: CompiledBoosts
) -> k.Scales:
    """The options as the kernels take them."""
    top_k = options.token_top_k
    inside = max(0.0, -options.token_insertion)
    begin = inside + max(0.0, -options.word_insertion)
    end, word = begin, begin if np.isfinite(space.max_word_gain) else math.inf
    if options.lm_scale > 0:
        begin += options.lm_scale * float(space.max_word_gain)
    return k.Scales(
        beam=min(np.float32(options.beam), NO_CUTOFF),
        beam_size=options.beam_size,
        token_top_k=NO_LIMIT if top_k is None else top_k,
        sums=options.merge == "sum",
        by_text=options.merge == "sum" or options.nbest > 1,
        nbest=options.nbest,
        pricing=pricing_of(options),
        lm_scale=np.float32(options.lm_scale),
        word_insertion=np.float32(options.word_insertion),
        token_insertion=np.float32(options.token_insertion),
        begin_credit=np.float32(begin),
        inside_credit=np.float32(inside),
        word_credit=np.float32(word),
        end_credit=np.float32(end),
        boosted=bool(boosts),
        credit_cap=credit_cap(space, options.lm_scale),
        num_labels=_num_words(boosts.phrases),
        has_words=bool(boosts.words),
        instalment=instalment_size(options.beam),
    )


def _num_words(phrases: PhraseBoosts | None) -> int:
    """Phrases know the word ids below it."""
    if phrases is None or phrases.unit != "word":
        return NO_LIMIT
    return phrases.num_labels
