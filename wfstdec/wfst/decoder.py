"""The decoder that users hold: a graph, options, and a backend.

    decoder = WfstDecoder(graph, WfstOptions(beam=13.0))
    hyps = decoder.decode(logprobs)

As audio comes in: `decoder.sessions()`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wfstdec.boost.automatic import DefaultBonuses
from wfstdec.boost.compile import BoostCompiler, BoostsLike, CompiledBoosts
from wfstdec.boost.oov import G2pLike, Pronouncer
from wfstdec.errors import BackendError
from wfstdec.graph.packed import PackedGraph
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.nbest import nbest_paths
from wfstdec.search.backends import AUTO, make_backend
from wfstdec.search.contract import BatchBackend
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.lattices import LatticeDecoder
from wfstdec.search.paths.hypotheses import GraphAccount, HypothesisBatch, PathReader
from wfstdec.search.paths.label_path import BestPath
from wfstdec.search.paths.lattice import NbestList, hypotheses_of
from wfstdec.search.paths.partial import PartialReader
from wfstdec.search.phrases import Vocabulary
from wfstdec.wfst.added import Readings, check_added
from wfstdec.wfst.backend_choice import (
    BACKENDS,
    CPU,
    AutoBackend,
    BackendChoice,
    Batch,
    batch_of,
)
from wfstdec.wfst.lattice_pack import (
    Recorded,
    SettlingSearch,
    lattice_of,
    segment_lattice,
)
from wfstdec.wfst.options import WfstOptions
from wfstdec.wfst.phrase_labels import check_phrases


class WfstDecoder(LatticeDecoder[np.ndarray, BestPath]):
    """Token-passing beam search on a decoding graph.

    The result for an utterance depends on the graph, its log-probs, the options and
    its boosts alone: not on the batch, padding, chunks, threads or backend.

    Args:
        graph: From `build_graph`, `load_graph` or a conversion.
        options: Search options.
        backend: `"cpu"`, `"cuda"` (tested in emulation, not yet on a GPU),
            `"reference"` (plain Python, slow), or `"auto"`: what `choose_backend` says
            for each batch, and the CPU for sessions.
        frame_shift_s: Seconds per frame of log-probs.
        threads: Utterances decoded side by side; `None` takes one per processor.
        g2p: How words of boost lists are said that neither the graph nor the list has
            pronunciations for: a function of the word, a lexicon or its file, or
            `"spelling"`; `None` spells them where all words of the graph are said as
            they are spelt.

    Raises:
        BackendError: The backend is unknown or not installed.
        OptionError: `frame_shift_s`, `threads` or `g2p` is out of range.
    """

    options: WfstOptions

    def __init__(
        self,
        graph: PackedGraph,
        options: WfstOptions | None = None,
        backend: str = "auto",
        *,
        frame_shift_s: float = 0.02,
        threads: int | None = None,
        g2p: G2pLike = None,
    ) -> None:
        super().__init__(
            options or WfstOptions(),
            make_backend(BACKENDS, backend, graph),
            BoostCompiler(
                graph.words,
                graph.word_ids,
                len(graph.tokens),
                lambda: _default_bonuses(graph),
                _pronouncer(graph, g2p),
            ),
            num_tokens=len(graph.tokens),
            frame_shift_s=frame_shift_s,
            threads=threads,
        )
        self.graph = graph
        self._readings = Readings(graph.tables)
        self._auto = AutoBackend(graph, self.threads) if backend == AUTO else None
        self.last_choice: BackendChoice | None = None

    def decode(
        self, logprobs: Any, lengths: Any = None, boosts: BoostsLike | Sequence = None
    ) -> list[Hypothesis]:
        """As `Decoder.decode`; `"auto"` leaves what it took in `last_choice`."""
        if self._auto is None:
            return super().decode(logprobs, lengths, boosts)
        if not isinstance(logprobs, list | tuple) and not hasattr(logprobs, "shape"):
            logprobs = list(logprobs)
        batch = batch_of(logprobs, lengths)
        choice = self._auto.choose(batch, self.options.beam)
        self.last_choice = choice
        if choice.backend == CPU:
            return super().decode(logprobs, lengths, boosts)
        other = copy.copy(self)
        other._auto, other._backend = None, self._auto.cuda()
        return other.decode(logprobs, lengths, boosts)

    def decode_nbest(
        self, logprobs: Any, lengths: Any = None, boosts: BoostsLike | Sequence = None
    ) -> list[list[Hypothesis]]:
        """The `nbest` best texts of each utterance's lattice, best first.

        The first is what `decode` gives, bit for bit. Each list is an `NbestList`,
        whose `is_exact` says whether none is missing. Texts that cost more than the
        best one and `lattice_beam` are left out.

        Raises:
            WfstdecError: As `decode`.
        """
        utterances = self._utterances(logprobs, lengths)
        compiled = self._compiled(boosts, len(utterances))
        self._check_boosts(compiled)
        return self._recorded(utterances, compiled, self._nbest_of)

    def choose_backend(
        self,
        num_utterances: int,
        num_frames: int,
        *,
        longest: int | None = None,
        on_gpu: bool = False,
    ) -> BackendChoice:
        """The backend that `"auto"` takes for a batch, and why; decodes nothing.

        The CPU until a GPU has passed the tests on this machine (`pytest -m gpu`); then
        for batches no larger than its threads, and where it is predicted to be quicker.

        Args:
            num_utterances: Utterances of the batch.
            num_frames: Frames of all of them.
            longest: Frames of the longest; `None` where all are as long.
            on_gpu: Whether their log-probs are on the GPU.

        Raises:
            BackendError: The decoder was made with a backend by name.
        """
        if self._auto is None:
            raise BackendError(
                "this decoder has a backend by name, expected backend='auto' for a "
                "choice"
            )
        most = longest or -(-num_frames // max(1, num_utterances))
        num_bytes = 4 * num_frames * len(self.graph.tokens)
        batch = Batch(num_utterances, num_frames, most, num_bytes, on_gpu)
        return self._auto.choose(batch, self.options.beam)

    @property
    def vocabulary(self) -> Vocabulary:
        """What the tables of the graph have."""
        tables = self.graph.tables
        known = len(tables.fillers) == 1  # of several, none is the separator
        return Vocabulary(
            tables.tokens,
            tables.words,
            tables.pronunciations.lexicon(tables.words),
            separator=tables.fillers[0] if known else None,
            separator_optional=known and not tables.separated,
        )

    def memory_plan(
        self, num_utterances: int, num_frames: int | None = None
    ) -> dict[str, int]:
        """What a batch takes on the device, in bytes, before anything grows.

        A batch that takes more than there is goes in parts.

        Args:
            num_utterances: Utterances of a batch.
            num_frames: Frames of each; `None` where they come in chunks.

        Returns:
            `"graph"` (once), `"scratch"` (kept for the next batch), `"utterances"`,
            `"logprobs"` (where they come from the host), `"total"`, and `"limit"`,
            which all work on the device stays under.

        Raises:
            BackendError: The backend is not on a device with memory of its own.
        """
        if not isinstance(self._backend, BatchBackend):
            raise BackendError(
                "this backend works in the host's memory, expected 'cuda' for a plan"
            )
        return self._backend.memory_plan(num_utterances, num_frames)

    def _check_nbest(self) -> None:
        self._lattice_reader()

    def _settled(
        self, search: SettlingSearch, boosts: CompiledBoosts, min_frames: int
    ) -> list[Lattice]:
        self._lattice_reader()  # raises where there is none
        tables, _ = self._readings.of(boosts.added)
        made = self.graph, self.options
        shift, found = self.frame_shift_s, search.settle(min_frames)
        return [segment_lattice(*made, one, shift, tables) for one in found]

    def _lattice(self, recorded: Recorded, boosts: CompiledBoosts) -> Lattice:
        tables, _ = self._readings.of(boosts.added)
        shift = self.frame_shift_s
        return lattice_of(self.graph, self.options, recorded, shift, tables)

    def _finish_nbest(self, search: Any, boosts: CompiledBoosts) -> NbestList:
        return self._nbest_of(search.record(), boosts)

    def _nbest_of(self, recorded: Recorded, boosts: CompiledBoosts) -> NbestList:
        lattice = self._lattice(recorded, boosts)
        found = nbest_paths(lattice, int(self.options.nbest))
        credited = None if lattice.first_frame else boosts  # those of all that was said
        return hypotheses_of(lattice, found, credited, self._reader(boosts))

    def _partial_reader(self, boosts: CompiledBoosts) -> PartialReader:
        return PartialReader(self._reader(boosts).cutter, self.frame_shift_s)

    def _check_boosts(self, boosts: list[CompiledBoosts]) -> None:
        for i, one in enumerate(boosts):
            if one.phrases is not None:
                check_phrases(self.graph, one.phrases, i)
            if one.added is not None:
                check_added(self.graph, i)

    def _read(
        self, results: list[BestPath], boosts: list[CompiledBoosts]
    ) -> list[Hypothesis]:
        places: dict[int, list[int]] = {}  # those with the same added words together
        for i, one in enumerate(boosts):
            places.setdefault(id(one.added), []).append(i)
        read: dict[int, Hypothesis] = {}
        for group in places.values():
            batch = self._batch_of(
                [results[i] for i in group], [boosts[i] for i in group]
            )
            for at, i in enumerate(group):
                read[i] = self._hypothesis(results[i], boosts[i], (batch, at))
        return [read[i] for i in range(len(results))]

    def _batch_of(
        self, paths: list[BestPath], boosts: list[CompiledBoosts]
    ) -> HypothesisBatch:
        """Of paths with the same added words."""
        return HypothesisBatch(self._reader(boosts[0]), paths, boosts)

    def _reader(self, boosts: CompiledBoosts) -> PathReader:
        tables, aligner = self._readings.of(boosts.added)
        account = GraphAccount(self.options)
        return PathReader(aligner, account, tables.tokens.names, self.frame_shift_s)

    def _hypothesis(
        self,
        path: BestPath,
        boosts: CompiledBoosts,
        place: tuple[HypothesisBatch, int] | None = None,
    ) -> Hypothesis:
        """Of a path; `place`: where it stands among those that are read together."""
        batch, i = place or (self._batch_of([path], [boosts]), 0)
        return batch.hypothesis(i)


def _pronouncer(graph: PackedGraph, g2p: G2pLike) -> Pronouncer | str:
    """How added words are said, or why a graph cannot add any."""
    tables = graph.tables
    if graph.calls is None:
        return (
            "the graph cannot add words, expected one of `wfstdec build` with an ARPA "
            "model that has <unk>, or with unk_cost: build it again"
        )
    return Pronouncer(
        tables.tokens,
        lambda: tables.pronunciations.lexicon(tables.words),
        tables.fillers,
        g2p,
    )


def _default_bonuses(graph: PackedGraph) -> DefaultBonuses:
    """What bonuses the words of a graph get in a list without numbers."""
    tables = graph.tables
    lexicon = tables.pronunciations.lexicon(tables.words)
    unk_cost = math.inf if graph.calls is None else graph.calls.word_cost
    return DefaultBonuses(tables.words, lexicon, tables.word_cost, unk_cost)
