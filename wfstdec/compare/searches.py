"""Our searches, and peers, as a comparison takes them.

graph = measure_load(lambda: load_graph("graph.npz"))
searches = wfst_searches(graph, WfstOptions(lm_scale=0.8), {"beam": [8, 13]})
searches += trie_searches(trie_factory(tokens=..., lm=...), TrieOptions(), {})
searches += greedy_searches(greedy_factory(tokens=..., lm=...), GreedyOptions(), {})
searches.append(PeerSearch(peer))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from wfstdec.checks.looking import UTTERANCES
from wfstdec.compare.grids import Grid, GridPart, combinations, split_grid
from wfstdec.compare.loading import DecoderFactory, Loaded
from wfstdec.compare.points import Decode, Outcome, Peer, SearchFacts, Setting
from wfstdec.graph.packed import PackedGraph
from wfstdec.greedy.options import GreedyOptions
from wfstdec.search.decoder import Decoder
from wfstdec.trie.options import TrieOptions
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions


@dataclass(frozen=True, eq=False)
class DecoderSearch:
    """Decoder of ours with some settings; a `Search`.

    Attributes:
        name: What tables and plots call it.
        settings: The narrowest first, the widest last.
        base: Options that a setting changes, a dataclass.
        make: Makes a decoder of one thread of options.
        facts: What holds at all settings.
        compile: Makes of the boosts of an utterance what such a decoder takes; None
            where it takes them as they are.
        has_widths: Whether settings differ by how much is searched alone. Else no
            costs are told, which then cannot be compared.
        tunable: The options worth tuning: those that change what is said.
        takes_boosts: Always.
        clock: Tells the CPU seconds so far in a model that the search runs itself;
            None where log-probs are all it takes.
    """

    name: str
    settings: Sequence[Setting]
    base: Any
    make: DecoderFactory
    facts: SearchFacts = field(default_factory=SearchFacts)
    compile: Callable[[Decoder, Any], Any] | None = None
    has_widths: bool = True
    tunable: tuple[str, ...] = ("lm_scale", "word_insertion")
    takes_boosts: bool = True
    clock: Callable[[], float] | None = None

    def compile_boosts(self, boosts: Sequence[Any]) -> Sequence[Any]:
        """Compile boosts; see `Search.compile_boosts`."""
        if self.compile is None:
            return boosts
        decoder = self.make(replace(self.base, **self.settings[0]))
        lists = {id(one): one for one in boosts}
        compiled = {key: self.compile(decoder, one) for key, one in lists.items()}
        return [compiled[id(one)] for one in boosts]

    def prepare(self, setting: Setting) -> Decode:
        """Make a decoder; see `Search.prepare`."""
        decoder = self.make(replace(self.base, **setting))
        not_looked_at = [decoder]

        def decode(
            utterances: Sequence[np.ndarray], boosts: Sequence[Any] | None
        ) -> list[Outcome]:
            while not_looked_at:  # a comparison decodes a few before it times
                pairs = ((str(i), one) for i, one in enumerate(utterances[:UTTERANCES]))
                list(not_looked_at.pop().looked_at(pairs))  # which warns
            found = list(map(Outcome.of, decoder.decode(utterances, boosts=boosts)))
            if self.has_widths:
                return found
            return [one._replace(total_cost=None) for one in found]

        return decode

    def lattice_decoder(self, setting: Setting) -> Decoder | None:
        """See `Search.lattice_decoder`; a sum over alignments has no lattice."""
        decoder = self.make(replace(self.base, **setting))
        is_sum = getattr(decoder.options, "merge", None) == "sum"
        return decoder if decoder.records_lattices and not is_sum else None


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
        """Facts that all settings of the peer share; none, if there is but one."""
        first, *others = self.peer.settings()
        return SearchFacts(
            {
                name: value
                for name, value in first.items()
                if others and all(other.get(name) == value for other in others)
            }
        )

    def compile_boosts(self, boosts: Sequence[Any]) -> Sequence[Any]:
        """Leave boosts as they are: nothing takes them."""
        return boosts

    def prepare(self, setting: Setting) -> Decode:
        """See `Search.prepare`; it was loaded when it was made."""
        whole = {**self.facts.options, **setting}

        def decode(
            utterances: Sequence[np.ndarray], _: Sequence[Any] | None
        ) -> list[Outcome]:
            return [Outcome(text) for text in self.peer.decode(utterances, whole)]

        return decode

    def lattice_decoder(self, _: Setting) -> None:
        """Peers give texts alone."""


def wfst_searches(
    graph: PackedGraph | Loaded[PackedGraph],
    base: WfstOptions,
    grid: Grid,
    *,
    frame_shift_s: float = 0.02,
    backend: str = "auto",
) -> list[DecoderSearch]:
    """The WFST decoder on a graph, over a grid of `WfstOptions`.

    Raises:
        OptionError: A value of the grid is out of range.
    """
    loaded = graph if isinstance(graph, Loaded) else Loaded(graph)
    how: Any = {"backend": backend, "frame_shift_s": frame_shift_s, "threads": 1}

    def make(options: WfstOptions) -> Decoder:
        return WfstDecoder(loaded.item, options, **how)

    factory: Loaded[DecoderFactory]
    factory = Loaded(make, loaded.load_s, loaded.load_mb)
    inputs = {"graph": loaded.item.fingerprint}
    return grid_searches("WFST", factory, base, grid, inputs)


def trie_searches(
    make: DecoderFactory | Loaded[DecoderFactory],
    base: TrieOptions,
    grid: Grid,
    *,
    inputs: Mapping[str, str] | None = None,
) -> list[DecoderSearch]:
    """The trie decoder, over a grid of `TrieOptions`.

    Args:
        make: From `trie_factory`, alone or measured.
        base: Options that the grid changes.
        grid: Values of options by name.
        inputs: Fingerprints of what was loaded, by name.

    Raises:
        OptionError: A value of the grid is out of range.
    """
    return grid_searches("trie", make, base, grid, inputs)


def greedy_searches(
    make: DecoderFactory | Loaded[DecoderFactory],
    base: GreedyOptions,
    grid: Grid,
    *,
    inputs: Mapping[str, str] | None = None,
) -> list[DecoderSearch]:
    """The greedy decoder over a grid of `GreedyOptions`, which has no widths.

    Args:
        make: From `greedy_factory`, alone or measured.
        base: Options that the grid changes.
        grid: Values of options by name.
        inputs: Fingerprints of what was loaded, by name.

    Raises:
        OptionError: A value of the grid is out of range.
    """
    parts = [GridPart("", {}, combinations(grid))]
    searches = _searches("greedy", make, base, parts, inputs)
    return [replace(search, has_widths=False) for search in searches]


def grid_searches(
    name: str,
    make: DecoderFactory | Loaded[DecoderFactory],
    base: Any,
    grid: Grid,
    inputs: Mapping[str, str] | None = None,
) -> list[DecoderSearch]:
    """A search for each combination of the options that are no widths.

    Args:
        name: What they are called; the options of its own follow.
        make: Makes a decoder of one thread of options.
        base: The options that the grid changes.
        grid: Values of options by name.
        inputs: Fingerprints of what was loaded, by name.

    Raises:
        OptionError: A value of the grid is out of range.
    """
    return _searches(name, make, base, split_grid(grid), inputs)


def _searches(
    name: str, make: Any, base: Any, parts: Sequence[GridPart], inputs: Any
) -> list[DecoderSearch]:
    """A search for each part of a grid."""
    loaded, searches = make if isinstance(make, Loaded) else Loaded(make), []
    for part in parts:
        changed = replace(base, **part.options)
        for setting in part.settings:
            replace(changed, **setting)  # checks the values before anything runs
        called = ", ".join(filter(None, (name, part.label)))
        taken = loaded.load_s, loaded.load_mb
        facts = SearchFacts(asdict(changed), *taken, inputs or {})
        made = DecoderSearch(called, part.settings, changed, loaded.item, facts)
        searches.append(made)
    return searches
