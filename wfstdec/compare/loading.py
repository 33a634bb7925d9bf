"""Loading what searches are made of, once, and measuring what that takes.

graph = measure_load(lambda: load_graph("graph.npz"))
graph.item, graph.load_s, graph.load_mb
make = trie_factory(tokens="tokens.txt", lexicon="lexicon.txt", lm="lm.arpa")
decoder = make(TrieOptions(beam=8.0))                  # shares what was loaded
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from wfstdec.autoregressive import need_torch
from wfstdec.compare.memory import resident_mb
from wfstdec.greedy.decoder import GreedyDecoder
from wfstdec.lm.loading import AnyLM
from wfstdec.search.decoder import Decoder
from wfstdec.text.lexicon import Lexicon
from wfstdec.text.symbols import TokenTable
from wfstdec.trie.decoder import TrieDecoder
from wfstdec.trie.options import TrieOptions

_Item = TypeVar("_Item")

DecoderFactory = Callable[[Any], Decoder]
"""Makes a decoder of one thread of its options."""

_LOADED: Mapping[str, Any] = {"blank": None, "unk_cost": None, "threads": 1}
"""Arguments of decoders of what was loaded: tables and models hold the others."""


@dataclass(frozen=True, eq=False)
class Loaded(Generic[_Item]):
    """Something that a search needs, and what loading it took.

    Attributes:
        item: What was loaded.
        load_s: Seconds on the wall, compiling included; None if unknown.
        load_mb: What that added to the resident set, megabytes; None if unknown.
    """

    item: _Item
    load_s: float | None = None
    load_mb: float | None = None


def measure_load(load: Callable[[], _Item]) -> Loaded[_Item]:
    """Load something and measure what that takes."""
    before, begin = resident_mb(), time.perf_counter()
    item = load()
    load_s = time.perf_counter() - begin
    return Loaded(item, round(load_s, 3), round(resident_mb() - before, 1))


def trie_factory(
    *,
    tokens: str | os.PathLike[str] | TokenTable,
    lexicon: str | os.PathLike[str] | Lexicon | None = None,
    lm: AnyLM | None = None,
    frame_shift_s: float = 0.02,
    backend: str = "auto",
    **others: Any,
) -> DecoderFactory:
    """Load what tries are made of, once; the result makes a decoder of options.

    Args:
        tokens: As `TrieDecoder` takes them, and what follows too.
        lexicon: A file or object; None decodes tokens.
        lm: An n-gram model of words, or of tokens without a lexicon; mapped where it
            was saved by `NgramLM.save`.
        frame_shift_s: Seconds per frame.
        backend: Its name.
        **others: Its other arguments, but for options and threads.

    Raises:
        InputError: As `TrieDecoder`'s.
    """
    # Everything is read and checked here, once; decoders of other options share it.
    # Look-ahead depends on options, so that none is made yet.
    common = {"frame_shift_s": frame_shift_s, "backend": backend, **others}
    files: dict[str, Any] = {"tokens": tokens, "lexicon": lexicon, "lm": lm}
    first = TrieDecoder(**files, **common, options=TrieOptions(lookahead="none"))
    loaded = {name: getattr(first, name) for name in files}
    loaded |= {"words": first.words or None, **_LOADED}
    return lambda options: TrieDecoder(options=options, **{**common, **loaded})


def greedy_factory(
    *,
    tokens: str | os.PathLike[str] | TokenTable,
    lm: AnyLM | None = None,
    frame_shift_s: float = 0.02,
    backend: str = "auto",
    **others: Any,
) -> DecoderFactory:
    """Load what greedy decoding takes, once; the result makes a decoder of options.

    Args:
        tokens: As `GreedyDecoder` takes them, and what follows too.
        lm: An n-gram model of tokens.
        frame_shift_s: Seconds per frame.
        backend: Its name.
        **others: Its other arguments, but for options and threads.

    Raises:
        InputError: As `GreedyDecoder`'s.
    """
    common = {"frame_shift_s": frame_shift_s, "backend": backend, **others}
    first = GreedyDecoder(tokens=tokens, lm=lm, **common)
    loaded = {"tokens": first.tokens, "lm": first.lm, **_LOADED}
    return lambda options: GreedyDecoder(options=options, **{**common, **loaded})


def transducer_factory(**how: Any) -> tuple[DecoderFactory, Callable[[], float]]:
    """A factory of transducer decoders with encoders, and a clock of their models.

    Args:
        **how: Arguments of `wfstdec.transducer.loading.open_decoder`.

    Returns:
        The factory, and CPU seconds of the models of all its decoders.

    Raises:
        BackendError: torch is not installed.
        InputError: As of `open_decoder`.
    """
    need_torch()
    from wfstdec.transducer.loading import open_decoder

    return _timed_factory(open_decoder(threads=1, **how))


def attention_factory(**how: Any) -> tuple[DecoderFactory, Callable[[], float]]:
    """A factory of attention decoders with encoders; as `transducer_factory`.

    Args:
        **how: Arguments of `wfstdec.attention.decoder.open_decoder`.

    Raises:
        BackendError: torch is not installed.
        InputError: As of `open_decoder`.
    """
    need_torch("attention decoders")
    from wfstdec.attention.decoder import open_decoder

    return _timed_factory(open_decoder(threads=1, **how))


def _timed_factory(first: Any) -> tuple[DecoderFactory, Callable[[], float]]:
    """Decoders of features like the first, whose models measure themselves."""
    from wfstdec.autoregressive.model import TimedModel

    timed: Any = TimedModel(first.model)
    separator = first.separator
    name = None if separator is None else first.tokens.names[separator]

    def make(options: Any) -> Decoder:
        return type(first)(
            timed,
            lm=list(first.lms),
            options=options,
            separator=name,
            input="features",
            frame_shift_s=first.frame_shift_s,
        )

    return make, lambda: timed.cpu_s
