"""The decoder that users hold: a graph, options, and a backend.

    decoder = WfstDecoder(graph, WfstOptions(beam=13.0))
    hyps = decoder.decode(logprobs)

As audio comes in: `decoder.sessions()`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from wfstdec.boost.boosts import BoostCompiler, BoostsLike, CompiledBoosts
from wfstdec.boost.defaults import DefaultBonuses
from wfstdec.errors import BackendError
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.backends import AUTO, make_backend
from wfstdec.search.contract import BatchBackend
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.phrases import Vocabulary
from wfstdec.wfst.alignment import Aligner
from wfstdec.wfst.backends import BACKENDS
from wfstdec.wfst.choice import CPU, AutoBackend, BackendChoice, Batch, batch_of
from wfstdec.wfst.hypotheses import HypothesisBatch, Reader
from wfstdec.wfst.options import WfstOptions
from wfstdec.wfst.partial import PartialReader
from wfstdec.wfst.path import BestPath
from wfstdec.wfst.phrase_labels import check_phrases


class WfstDecoder(Decoder[np.ndarray, BestPath]):
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

    Raises:
        BackendError: The backend is unknown or not installed.
        OptionError: `frame_shift_s` or `threads` is out of range.
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
    ) -> None:
        super().__init__(
            options or WfstOptions(),
            make_backend(BACKENDS, backend, graph),
            BoostCompiler(
                graph.words,
                graph.word_ids,
                len(graph.tokens),
                lambda: _default_bonuses(graph),
                "this search cannot add words",
            ),
            num_tokens=len(graph.tokens),
            frame_shift_s=frame_shift_s,
            threads=threads,
        )
        self.graph = graph
        self._aligner = Aligner(graph)
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
        choice = self._auto.choose(batch_of(logprobs, lengths), self.options.beam)
        self.last_choice = choice
        if choice.backend == CPU:
            return super().decode(logprobs, lengths, boosts)
        other = copy.copy(self)
        other._auto, other._backend = None, self._auto.cuda()
        return other.decode(logprobs, lengths, boosts)

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

    def _partial_reader(self) -> PartialReader:
        return PartialReader(self._aligner, self.graph.words, self.frame_shift_s)

    def _check_boosts(self, boosts: list[CompiledBoosts]) -> None:
        for i, one in enumerate(boosts):
            if one.phrases is not None:
                check_phrases(self.graph, one.phrases, i)

    def _read(
        self, results: list[BestPath], boosts: list[CompiledBoosts]
    ) -> list[Hypothesis]:
        batch = self._batch_of(results, boosts)
        return [
            self._hypothesis(path, one, (batch, i))
            for i, (path, one) in enumerate(zip(results, boosts, strict=True))
        ]

    def _batch_of(
        self, paths: list[BestPath], boosts: list[CompiledBoosts]
    ) -> HypothesisBatch:
        options, shift = self.options, self.frame_shift_s
        return HypothesisBatch(
            Reader(self.graph, self._aligner, options, shift), paths, boosts
        )

    def _hypothesis(
        self,
        path: BestPath,
        boosts: CompiledBoosts,
        place: tuple[HypothesisBatch, int] | None = None,
    ) -> Hypothesis:
        """Of a path; `place`: where it stands among those that are read together."""
        batch, i = place or (self._batch_of([path], [boosts]), 0)
        return batch.hypothesis(i)


def _default_bonuses(graph: PackedGraph) -> DefaultBonuses:
    """What bonuses the words of a graph get in a list without numbers."""
    tables = graph.tables
    lexicon = tables.pronunciations.lexicon(tables.words)
    return DefaultBonuses(tables.words, lexicon, tables.word_cost)
