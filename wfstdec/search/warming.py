"""Running a decoder once in each way, so that its kernels are there when they count.

A kernel is compiled, or loaded, when it is first called with arrays of its types: in a
server that would be in the midst of a session. One word through each way is enough.
A `Decoder` imports this module: here its type is `Any`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from wfstdec.boost.lists import BoostEntry, BoostsLike
from wfstdec.errors import InputError
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.threads import SESSION_LATTICES
from wfstdec.text.vocabulary import Vocabulary

_OTHERS = np.float32(-12.0)
"""The log-prob of what is not said."""


def run_each_way(
    decoder: Any, boosts: BoostsLike, *, lattices: bool, sessions: bool
) -> None:
    """Decode a word without boosts and with them, whole and in chunks.

    `boosts`: A list as those to come; None makes up one of each kind.
    """
    lattices = lattices and decoder.records_lattices
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of words that are made up
        _run(decoder, None, lattices, sessions)
        if boosts is not None:
            _run(decoder, boosts, lattices, sessions)
            return
        for kind in _kinds(decoder):
            with contextlib.suppress(InputError):  # a search that has none of the kind
                _run(decoder, kind(), lattices, sessions)


def _run(decoder: Any, boosts: BoostsLike, lattices: bool, sessions: bool) -> None:
    """Decode a word with one list, in all ways that are asked for."""
    rows = one_word(decoder.vocabulary, decoder.num_tokens)
    _read(decoder.decode([rows], boosts=[boosts]))
    if lattices:
        decoder.decode_lattice([rows], boosts=[boosts])
    if decoder._nbest_from == "search" or (lattices and decoder.nbest_of_lattices):
        _read(decoder.decode_nbest([rows], boosts=[boosts])[0])
    keeps = lattices and SESSION_LATTICES in decoder._backend.can
    for with_lattices in [False, *[True] * keeps] if sessions else []:
        under_way = decoder.sessions(lattices=with_lattices)
        one = under_way.open(boosts)
        under_way.advance({one: rows})
        under_way.partial(one)
        if with_lattices:
            under_way.close_lattice(one)
        else:
            _read([under_way.close(one)])


def _read(hypotheses: Iterable[Hypothesis]) -> None:
    """Ask for words and costs: they are made when they are asked for."""
    for one in hypotheses:
        _ = one.text, one.total_cost


def one_word(vocabulary: Vocabulary, num_tokens: int) -> np.ndarray:
    """Log-probs in which a word is said, so that there are words to read."""
    prons, blank = vocabulary.pronunciations, vocabulary.tokens.blank
    tokens = prons.tokens[: prons.splits[1]].tolist() if len(prons.splits) > 1 else []
    between = list(vocabulary.separators[:1])
    spoken = [blank]
    for token in (*between, *tokens, *between):
        spoken += [token, blank]
    rows = np.full((len(spoken), num_tokens), _OTHERS, np.float32)
    rows[np.arange(len(spoken)), spoken] = -0.01
    return rows


def _kinds(decoder: Any) -> Iterator[Callable[[], BoostsLike]]:
    """Lists of words with numbers and without, of phrases, and of OOV words."""
    vocabulary = decoder.vocabulary
    words = list(vocabulary.words[1:3])
    if not words:
        return
    yield lambda: dict.fromkeys(words, 1.0)
    yield lambda: words
    yield lambda: decoder.phrase_compiler().compile({" ".join(words): 1.0})
    apart = (vocabulary.tokens.blank, *vocabulary.separators)
    names = [n for i, n in enumerate(vocabulary.tokens.names) if i not in apart]
    yield lambda: [BoostEntry("\N{FIRE}", [names[:2]], 1.0)]
