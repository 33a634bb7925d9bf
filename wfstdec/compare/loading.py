"""Loading what searches are made of, once, and measuring what that takes.

graph = measure_load(lambda: load_graph("graph.npz"))
graph.item, graph.load_s, graph.load_mb
make = trie_factory(tokens="tokens.txt", lexicon="lexicon.txt", lm="lm.arpa")
decoder = make(TrieOptions(beam=8.0))                  # shares what was loaded
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from wfstdec.autoregressive import need_torch
from wfstdec.compare.memory import resident_mb
from wfstdec.greedy.decoder import GreedyDecoder
from wfstdec.search.decoder import Decoder
from wfstdec.trie.decoder import TrieDecoder
from wfstdec.trie.options import TrieOptions

_Item = TypeVar("_Item")

DecoderFactory = Callable[[Any], Decoder]
"""Makes a decoder of one thread of its options."""

_LOADED: Mapping[str, Any] = {"blank": None, "unk_cost": None, "threads": 1}
"""Arguments of decoders of what was loaded: tables and models hold the others."""
_OPENED = {
    "transducer": ("transducers", "wfstdec.transducer.decoder"),
    "attention": ("attention decoders", "wfstdec.attention.decoder"),
}
"""Decoders that run their model: what needs torch, and the module that opens one."""


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


def trie_factory(**given: Any) -> DecoderFactory:
    """Load what tries are made of, once; the result makes a decoder of options.

    Args:
        **given: Arguments of `TrieDecoder` but for options and threads; a language
            model is mapped where it was saved by `NgramLM.save`.

    Raises:
        InputError: As `TrieDecoder`'s.
    """
    # Everything is read and checked here, once; decoders of other options share it.
    # Look-ahead depends on options, so that none is made yet.
    first = TrieDecoder(**given, options=TrieOptions(lookahead="none"))
    parts = {name: getattr(first, name) for name in ("tokens", "lexicon", "lm")}
    loaded = {**given, **parts, "words": first.words or None, **_LOADED}
    return lambda options: TrieDecoder(options=options, **loaded)


def greedy_factory(**given: Any) -> DecoderFactory:
    """Load what greedy decoding takes, once; the result makes a decoder of options.

    Args:
        **given: Arguments of `GreedyDecoder` but for options and threads.

    Raises:
        InputError: As `GreedyDecoder`'s.
    """
    first = GreedyDecoder(**given)
    loaded = {**given, "tokens": first.tokens, "lm": first.lm, **_LOADED}
    return lambda options: GreedyDecoder(options=options, **loaded)


def timed_factory(kind: str, **how: Any) -> tuple[DecoderFactory, Callable[[], float]]:
    """A factory of decoders that run their model and its encoder, which are timed.

    Args:
        kind: `"transducer"` or `"attention"`.
        **how: Arguments of `open_decoder` beside that kind of decoder.

    Returns:
        The factory, and CPU seconds of the models of all its decoders.

    Raises:
        BackendError: torch is not installed.
        InputError: As of `open_decoder`.
    """
    who, module = _OPENED[kind]
    need_torch(who)
    from wfstdec.autoregressive.model import TimedModel

    first = importlib.import_module(module).open_decoder(threads=1, **how)
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
