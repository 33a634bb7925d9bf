"""Our searches, and peers, as a comparison takes them.

graph = measured(lambda: load_graph("graph.npz"))
searches = wfst_searches(graph, WfstOptions(lm_scale=0.8), {"beam": [8, 13]})
searches += trie_searches(trie_maker(tokens=..., lm=...), TrieOptions(), {})
searches += greedy_searches(greedy_maker(tokens=..., lm=...), GreedyOptions(), {})
searches.append(PeerSearch(peer))
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from wfstdec.compare.grids import Grid, settings_of, split_grid
from wfstdec.compare.memory import resident_mb
from wfstdec.compare.points import Decode, Found, Peer, SearchFacts, Setting
from wfstdec.graph.packed import PackedGraph
from wfstdec.greedy.decoder import GreedyDecoder
from wfstdec.greedy.options import GreedyOptions
from wfstdec.lm.sources import AnyLM
from wfstdec.search.decoder import Decoder
from wfstdec.text.lexicon import Lexicon
from wfstdec.text.symbols import TokenTable
from wfstdec.trie.decoder import TrieDecoder
from wfstdec.trie.options import TrieOptions
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

_Item = TypeVar("_Item")
Maker = Callable[[Any], Decoder]
"""Makes a decoder of one thread of its options."""


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


def _distinct(objects: Sequence[Any]) -> list[Any]:
    return list({id(one): one for one in objects}.values())


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
        compile: Makes of the boosts of an utterance what such a decoder takes; None
            where it takes them as they are.
        has_widths: Whether settings differ by how much is searched alone. Else nothing
            is said of costs, which then cannot be compared.
        takes_boosts: Always.
    """

    name: str
    settings: Sequence[Setting]
    base: Any
    make: Maker
    facts: SearchFacts = field(default_factory=SearchFacts)
    compile: Callable[[Decoder, Any], Any] | None = None
    has_widths: bool = True
    takes_boosts: bool = True

    def compile_boosts(self, boosts: Sequence[Any]) -> Sequence[Any]:
        """Compile boosts; see `Search.compile_boosts`."""
        if self.compile is None:
            return boosts
        decoder = self.make(replace(self.base, **self.settings[0]))
        compiled = {id(one): self.compile(decoder, one) for one in _distinct(boosts)}
        return [compiled[id(one)] for one in boosts]

    def prepare(self, setting: Setting) -> Decode:
        """Make a decoder; see `Search.prepare`."""
        decoder = self.make(replace(self.base, **setting))

        def decode(
            utterances: Sequence[np.ndarray], boosts: Sequence[Any] | None
        ) -> list[Found]:
            found = map(Found.of, decoder.decode(utterances, boosts=boosts))
            if self.has_widths:
                return list(found)
            return [one._replace(total_cost=None) for one in found]

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

    def compile_boosts(self, boosts: Sequence[Any]) -> Sequence[Any]:
        """As they are: nothing takes them."""
        return boosts

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
    base: WfstOptions,
    grid: Grid,
    *,
    frame_shift_s: float = 0.02,
    backend: str = "auto",
) -> list[OurSearch]:
    """The WFST decoder on a graph, over a grid of `WfstOptions`.

    Raises:
        OptionError: A value of the grid is out of range.
    """
    loaded = graph if isinstance(graph, Loaded) else Loaded(graph)
    shift = frame_shift_s

    def make(options: WfstOptions) -> Decoder:
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
    lm: AnyLM | None = None,
    frame_shift_s: float = 0.02,
    backend: str = "auto",
    **others: Any,
) -> Maker:
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
    first = TrieDecoder(
        tokens=tokens,
        lexicon=lexicon,
        lm=lm,
        options=TrieOptions(lookahead="none"),
        frame_shift_s=frame_shift_s,
        backend=backend,
        **others,
    )
    parts: dict[str, Any] = {**others, "words": first.words or None, **_DONE}

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


def greedy_maker(
    *,
    tokens: str | os.PathLike[str] | TokenTable,
    lm: AnyLM | None = None,
    frame_shift_s: float = 0.02,
    backend: str = "auto",
    **others: Any,
) -> Maker:
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
    common |= {**others, **_DONE, "tokens": first.tokens, "lm": first.lm, "threads": 1}

    def make(options: GreedyOptions) -> GreedyDecoder:
        return GreedyDecoder(options=options, **common)

    return make


_DONE: Mapping[str, None] = {"blank": None, "unk_cost": None}
"""What is in the token table and the language model once these are loaded."""


def trie_searches(
    make: Maker | Loaded[Maker],
    base: TrieOptions,
    grid: Grid,
    *,
    inputs: Mapping[str, str] | None = None,
) -> list[OurSearch]:
    """The trie decoder, over a grid of `TrieOptions`.

    Args:
        make: From `trie_maker`.
        base: Options that the grid changes.
        grid: Values of options by name.
        inputs: Fingerprints of what was loaded, by name.

    Raises:
        OptionError: A value of the grid is out of range.
    """
    maker, facts = _loaded(make, base, inputs)
    return our_searches("trie", base, grid, maker, facts)


def greedy_searches(
    make: Maker | Loaded[Maker],
    base: GreedyOptions,
    grid: Grid,
    *,
    inputs: Mapping[str, str] | None = None,
) -> list[OurSearch]:
    """The greedy decoder over a grid of `GreedyOptions`, which has no widths.

    Args:
        make: From `greedy_maker`.
        base: Options that the grid changes.
        grid: Values of options by name.
        inputs: Fingerprints of what was loaded, by name.

    Raises:
        OptionError: A value of the grid is out of range.
    """
    settings = list(settings_of(grid))
    for setting in settings:
        replace(base, **setting)  # checks the values before anything runs
    maker, facts = _loaded(make, base, inputs)
    return [OurSearch("greedy", settings, base, maker, facts, has_widths=False)]


def _loaded(
    make: Maker | Loaded[Maker], base: Any, inputs: Mapping[str, str] | None
) -> tuple[Maker, SearchFacts]:
    loaded = make if isinstance(make, Loaded) else Loaded(make)
    known = inputs or {}
    return loaded.item, SearchFacts(asdict(base), loaded.load_s, loaded.load_mb, known)


def our_searches(
    name: str,
    base: Any,
    grid: Grid,
    make: Maker,
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
