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
from wfstdec.greedy.options import GreedyOptions
from wfstdec.lm.loading import AnyLM
from wfstdec.search.decoder import Decoder
from wfstdec.text.lexicon import Lexicon
from wfstdec.text.symbols import TokenTable
from wfstdec.trie.decoder import TrieDecoder
from wfstdec.trie.options import TrieOptions

_Item = TypeVar("_Item")

DecoderFactory = Callable[[Any], Decoder]
"""Makes a decoder of one thread of its options."""

_LOADED: Mapping[str, None] = {"blank": None, "unk_cost": None}
"""Arguments that the token table and the language model hold once they are loaded."""


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
    first = TrieDecoder(
        tokens=tokens,
        lexicon=lexicon,
        lm=lm,
        options=TrieOptions(lookahead="none"),
        frame_shift_s=frame_shift_s,
        backend=backend,
        **others,
    )
    parts: dict[str, Any] = {**others, "words": first.words or None, **_LOADED}

    def make(options: TrieOptions) -> TrieDecoder:
        return TrieDecoder(
            tokens=first.tokens,
            lexicon=first.lexicon,
            lm=first.lm,
            options=options,
            frame_shift_s=frame_shift_s,
            backend=backend,
            threads=1,
            **parts,
        )

    return make


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
    common: dict[str, Any] = {"frame_shift_s": frame_shift_s, "backend": backend}
    first = GreedyDecoder(tokens=tokens, lm=lm, **common, **others)
    common |= {
        **others,
        **_LOADED,
        "tokens": first.tokens,
        "lm": first.lm,
        "threads": 1,
    }

    def make(options: GreedyOptions) -> GreedyDecoder:
        return GreedyDecoder(options=options, **common)

    return make


def transducer_factory(
    *,
    model: str | os.PathLike[str],
    head: str | None = None,
    lm: AnyLM | None = None,
    frame_shift_s: float = 0.02,
    **others: Any,
) -> tuple[DecoderFactory, Callable[[], float]]:
    """Load a transducer, once; makes decoders, and tells the model's CPU seconds.

    Args:
        model: A saved net, or a folder of an ONNX export.
        head: Of a net with several; None for the first.
        lm: An n-gram model of its tokens.
        frame_shift_s: Seconds per frame of features.
        **others: Other arguments of `TransducerDecoder`.

    Raises:
        BackendError: torch is not installed.
        InputError: As `TransducerDecoder`'s.
    """
    need_torch()
    from wfstdec.transducer.decoder import TransducerDecoder
    from wfstdec.transducer.loading import open_decoder

    first = open_decoder(
        *(model,), head=head, lm=lm, frame_shift_s=frame_shift_s, threads=1, **others
    )
    return _timed_factory(TransducerDecoder, first)


def attention_factory(
    *,
    model: str | os.PathLike[str],
    lm: AnyLM | None = None,
    frame_shift_s: float = 0.02,
    **others: Any,
) -> tuple[DecoderFactory, Callable[[], float]]:
    """Load an attention decoder, once; makes others, and tells its model's CPU seconds.

    Args:
        model: As of `load_attention`.
        lm: An n-gram model of its tokens.
        frame_shift_s: Seconds per frame of features.
        **others: Other arguments of `AttentionDecoder`.

    Raises:
        BackendError: torch is not installed.
        InputError: As `AttentionDecoder`'s.
    """
    need_torch("attention decoders")
    from wfstdec.attention.decoder import AttentionDecoder, open_decoder

    first = open_decoder(model, lm=lm, frame_shift_s=frame_shift_s, threads=1, **others)
    return _timed_factory(AttentionDecoder, first)


def _timed_factory(
    kind: Callable[..., Decoder], first: Any
) -> tuple[DecoderFactory, Callable[[], float]]:
    """Decoders of features like the first, whose models measure themselves."""
    from wfstdec.autoregressive.model import TimedModel

    timed: Any = TimedModel(first.model)
    separator = first.separator
    name = None if separator is None else first.tokens.names[separator]

    def make(options: Any) -> Decoder:
        return kind(
            timed,
            lm=list(first.lms),
            options=options,
            separator=name,
            input="features",
            frame_shift_s=first.frame_shift_s,
        )

    return make, lambda: timed.cpu_s
