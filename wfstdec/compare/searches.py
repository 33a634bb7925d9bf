"""Our searches, and peers, as a comparison takes them.

graph = measured(lambda: load_graph("graph.npz"))
searches = wfst_searches(graph, DecodeOptions(lm_scale=0.8), {"beam": [8, 13]})
searches.append(PeerSearch(peer))
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from wfstdec.arpa import ArpaModel
from wfstdec.beam.decoder import BeamDecoder
from wfstdec.beam.options import BeamOptions
from wfstdec.compare.grids import Grid, split_grid
from wfstdec.compare.memory import resident_mb
from wfstdec.compare.points import Decode, Found, Peer, SearchFacts, Setting
from wfstdec.decoder import Decoder
from wfstdec.graph import PackedGraph
from wfstdec.lexicon import Lexicon
from wfstdec.lm.ngram import NgramLM
from wfstdec.symbols import TokenTable
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import DecodeOptions

_Item = TypeVar("_Item")


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


def measured(load: Callable[[], _Item]) -> Loaded[_Item]:
    """Load something and measure what that takes."""
    before, begin = resident_mb(), time.perf_counter()
    item = load()
    load_s = time.perf_counter() - begin
    return Loaded(item, round(load_s, 3), round(resident_mb() - before, 1))


@dataclass(frozen=True, eq=False)
class OurSearch:
    """One of our decoders with some settings; a `Search`.

    Attributes:
        name: What tables and plots call it.
        settings: The narrowest first, the widest last.
        base: Options that a setting changes, a dataclass.
        make: Makes a decoder of one thread of options.
        facts: What holds at all settings.
        takes_boosts: Always.
    """

    name: str
    settings: Sequence[Setting]
    base: Any
    make: Callable[[Any], Decoder]
    facts: SearchFacts = field(default_factory=SearchFacts)
    takes_boosts: bool = True

    def prepare(self, setting: Setting) -> Decode:
        """Make a decoder; see `Search.prepare`."""
        decoder = self.make(replace(self.base, **setting))

        def decode(
            utterances: Sequence[np.ndarray], boosts: Sequence[Any] | None
        ) -> list[Found]:
            return list(map(Found.of, decoder.decode(utterances, boosts=boosts)))

        return decode


@dataclass(frozen=True, eq=False)
class PeerSearch:
    """A peer as a `Search`."""

    peer: Peer
    takes_boosts: bool = False

    @property
    def name(self) -> str:
        """The peer's."""
        return self.peer.name

    @property
    def settings(self) -> Sequence[Setting]:
        """The peer's, without what they have in common."""
        common = self.facts.options
        return [
            {name: value for name, value in setting.items() if name not in common}
            for setting in self.peer.settings()
        ]

    @property
    def facts(self) -> SearchFacts:
        """What all settings of the peer have in common; nothing, if there is one."""
        first, *others = self.peer.settings()
        return SearchFacts(
            {
                name: value
                for name, value in first.items()
                if others and all(other.get(name) == value for other in others)
            }
        )

    def prepare(self, setting: Setting) -> Decode:
        """See `Search.prepare`; it was loaded when it was made."""
        whole = {**self.facts.options, **setting}

        def decode(
            utterances: Sequence[np.ndarray], _: Sequence[Any] | None
        ) -> list[Found]:
            return [Found(text) for text in self.peer.decode(utterances, whole)]

        return decode


def wfst_searches(
    graph: PackedGraph | Loaded[PackedGraph],
    base: DecodeOptions,
    grid: Grid,
    *,
    frame_shift_s: float = 0.02,
    backend: str = "auto",
) -> list[OurSearch]:
    """The WFST decoder on a graph, over a grid of `DecodeOptions`.

    Raises:
        OptionError: A value of the grid is out of range.
    """
    loaded = graph if isinstance(graph, Loaded) else Loaded(graph)
    shift = frame_shift_s

    def make(options: DecodeOptions) -> Decoder:
        return WfstDecoder(
            loaded.item, options, backend, frame_shift_s=shift, threads=1
        )

    inputs = {"graph": loaded.item.fingerprint}
    facts = SearchFacts({}, loaded.load_s, loaded.load_mb, inputs)
    return our_searches("WFST", base, grid, make, facts)


def trie_maker(
    *,
    tokens: str | os.PathLike[str] | TokenTable,
    lexicon: str | os.PathLike[str] | Lexicon | None = None,
    lm: str | os.PathLike[str] | ArpaModel | NgramLM | None = None,
    frame_shift_s: float = 0.02,
    backend: str = "auto",
    **others: Any,
) -> Callable[[BeamOptions], Decoder]:
    """Load what tries are made of, once; the result makes a decoder of options.

    Args:
        tokens: As `BeamDecoder` takes them, and what follows too.
        lexicon: A file or object; None decodes tokens.
        lm: An n-gram model of words, or of tokens without a lexicon.
        frame_shift_s: Seconds per frame.
        backend: Its name.
        **others: Its other arguments, but for options and threads.

    Raises:
        InputError: As `BeamDecoder`'s.
    """
    first = BeamDecoder(
        tokens=tokens,
        lexicon=lexicon,
        lm=lm,
        options=BeamOptions(lookahead="none"),
        frame_shift_s=frame_shift_s,
        backend=backend,
        **others,
    )
    parts: dict[str, Any] = {**others, "words": first.words or None, "blank": None}

    def make(options: BeamOptions) -> BeamDecoder:
        return BeamDecoder(
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


def trie_searches(
    make: Callable[[BeamOptions], Decoder] | Loaded[Callable[[BeamOptions], Decoder]],
    base: BeamOptions,
    grid: Grid,
    *,
    inputs: Mapping[str, str] | None = None,
) -> list[OurSearch]:
    """The trie beam decoder, over a grid of `BeamOptions`.

    Args:
        make: From `trie_maker`.
        base: Options that the grid changes.
        grid: Values of options by name.
        inputs: Fingerprints of what was loaded, by name.

    Raises:
        OptionError: A value of the grid is out of range.
    """
    loaded = make if isinstance(make, Loaded) else Loaded(make)
    facts = SearchFacts({}, loaded.load_s, loaded.load_mb, inputs or {})
    return our_searches("trie", base, grid, loaded.item, facts)


def our_searches(
    name: str,
    base: Any,
    grid: Grid,
    make: Callable[[Any], Decoder],
    facts: SearchFacts,
) -> list[OurSearch]:
    """A search for each combination of the options that are no widths.

    Args:
        name: What they are called; the options of its own follow.
        base: The options that the grid changes.
        grid: Values of options by name.
        make: Makes a decoder of one thread of options.
        facts: Of what was loaded; the options are filled in.

    Raises:
        OptionError: A value of the grid is out of range.
    """
    searches = []
    for part in split_grid(grid):
        changed = replace(base, **part.options)
        for setting in part.settings:
            replace(changed, **setting)  # checks the values before anything runs
        called = ", ".join(filter(None, (name, part.label)))
        known = replace(facts, options=asdict(changed))
        searches.append(OurSearch(called, part.settings, changed, make, known))
    return searches


def boosts_by_utterance(
    boosts: Mapping[str, Any] | None, utterances: Sequence[str]
) -> list[Any] | None:
    """The boosts of each utterance in order; None for no list at all."""
    return None if boosts is None else [boosts.get(u) for u in utterances]
