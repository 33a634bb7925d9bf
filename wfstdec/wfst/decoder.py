"""The decoder that users hold: a graph, options, and a backend.

    decoder = WfstDecoder(graph, WfstOptions(beam=13.0))
    hyps = decoder.decode(logprobs)

As audio comes in: `decoder.sessions()`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from wfstdec.boost.automatic import DefaultBonuses
from wfstdec.boost.compile import BoostCompiler
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.g2p import G2pLike
from wfstdec.boost.lists import BoostsLike
from wfstdec.boost.pronouncer import Pronouncer
from wfstdec.checks.looking import Heard
from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.graph.packed import PackedGraph, load_graph
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.nbest import nbest_paths
from wfstdec.search.backend_choice import (
    CPU,
    AutoBackend,
    BackendChoice,
    Batch,
    batch_of,
    chooser,
)
from wfstdec.search.backends import AUTO, make_backend
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.paths.found import FoundReader
from wfstdec.search.paths.hypotheses import GraphAccount, PathReader
from wfstdec.search.paths.label_path import BestPath
from wfstdec.search.paths.lattice import NbestList, hypotheses_of
from wfstdec.search.paths.word_cut import aligner_of
from wfstdec.text.symbols import ilabel_of
from wfstdec.text.vocabulary import Vocabulary
from wfstdec.wfst.backend_choice import BACKENDS, ROOM, pace_of
from wfstdec.wfst.boost_support import check_added, check_phrases
from wfstdec.wfst.lattice_pack import (
    Recorded,
    Segment,
    lattice_of,
    segment_lattice,
)
from wfstdec.wfst.options import WfstOptions


class WfstDecoder(Decoder[np.ndarray, BestPath | Recorded]):
    """Token-passing beam search on a decoding graph.

    The result for an utterance depends on the graph, its log-probs, the options and
    its boosts alone: not on the batch, padding, chunks, threads or backend.

    Args:
        graph: From `build_graph`, `load_graph` or a conversion; or its file.
        options: Search options.
        backend: `"cpu"`, `"cuda"` (tested in emulation, not yet on a GPU),
            `"reference"` (plain Python, slow), or `"auto"`: what `choose_backend` says
            for each batch, and the CPU for sessions and n-best.
        frame_shift_s: Seconds per frame of log-probs.
        threads: Utterances decoded side by side; `None` takes one per processor.
        g2p: How words of boost lists are said that neither the graph nor the list has
            pronunciations for: a `G2p` or its source, such as a function of the word,
            a lexicon's file or `"hama"`; `None` spells them where most words of the
            graph are said as they are spelt.

    Attributes:
        last_choice: What `"auto"` chose for the last batch, and why; None before.

    Raises:
        BackendError: The backend is unknown or not installed.
        OptionError: `frame_shift_s`, `threads` or `g2p` is out of range.
        FormatError, GraphError: As of `load_graph`.
    """

    options: WfstOptions
    _nbest_from = "lattice"

    def __init__(
        self,
        graph: PackedGraph | str | os.PathLike[str],
        options: WfstOptions | None = None,
        backend: str = "auto",
        *,
        frame_shift_s: float = 0.02,
        threads: int | None = None,
        g2p: G2pLike | None = None,
    ) -> None:
        if isinstance(graph, str | os.PathLike):
            graph = load_graph(graph)
        super().__init__(
            options or WfstOptions(),
            make_backend(BACKENDS, backend, graph),
            BoostCompiler(
                graph.words,
                graph.word_ids,
                len(graph.tokens),
                partial(_default_bonuses, graph),
                _pronouncer(graph, g2p),
            ),
            num_tokens=len(graph.tokens),
            frame_shift_s=frame_shift_s,
            threads=threads,
        )
        self.graph = graph
        self._auto = None
        if backend == AUTO:
            self._auto = AutoBackend(graph, self.threads, ROOM)
        self.last_choice: BackendChoice | None = None

    def _taken(self, logprobs: Any, lengths: Any) -> tuple[Any, Any]:
        """Choose the backend of a batch; `"auto"` leaves it in `last_choice`."""
        if self._auto is None:
            return self._backend, logprobs
        if not isinstance(logprobs, list | tuple) and not hasattr(logprobs, "shape"):
            logprobs = list(logprobs)
        batch = batch_of(logprobs, lengths)
        choice = self._auto.choose(
            batch, self.options, partial(pace_of, self.options.beam)
        )
        self.last_choice = choice
        backend = self._backend if choice.backend == CPU else self._auto.cuda()
        return backend, logprobs

    def _heard(self) -> Heard:
        """The tokens that it makes something of: those of arcs, without a lexicon."""
        heard = super()._heard()
        if heard.words is not None or self.vocabulary.open_word is not None:
            return heard
        ilabels = self.graph.arcs["ilabel"] & np.uint32(LABEL_MASK)
        counts = np.bincount(ilabels)[ilabel_of(0) :]  # by token
        return replace(heard, words=frozenset(np.flatnonzero(counts).tolist()))

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
        return super().decode_nbest(logprobs, lengths, boosts)

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
        auto = chooser(self._auto)
        most = longest or -(-num_frames // max(1, num_utterances))
        num_bytes = 4 * num_frames * len(self.graph.tokens)
        batch = Batch(num_utterances, num_frames, most, num_bytes, on_gpu)
        return auto.choose(batch, self.options, partial(pace_of, self.options.beam))

    @property
    def vocabulary(self) -> Vocabulary:
        """Tokens, words and pronunciations of the graph."""
        return self.graph.vocabulary

    def _repr_of_model(self) -> str:
        return repr(self.graph)

    def _models(self) -> tuple[str, ...]:
        return (self.graph.fingerprint,)

    def _reader(self, boosts: CompiledBoosts) -> WfstReader:
        vocabulary = self.vocabulary.with_oov(boosts.added)
        names, shift = vocabulary.tokens.names, self.frame_shift_s
        account = GraphAccount(self.options)
        paths = PathReader(aligner_of(vocabulary), account, names, shift)
        made = self.graph, self.options, vocabulary
        return WfstReader(paths, boosts, *made)

    def _check_boosts(self, boosts: list[CompiledBoosts]) -> None:
        for i, one in enumerate(boosts):
            if one.phrases is not None:
                check_phrases(self.graph, one.phrases, i)
            if one.added is not None:
                check_added(self.graph, i)


class WfstReader(FoundReader[BestPath | Recorded]):
    """Reads what searches of a graph found; see `FoundReader`."""

    def __init__(
        self,
        paths: PathReader,
        boosts: CompiledBoosts,
        graph: PackedGraph,
        options: WfstOptions,
        vocabulary: Vocabulary,
    ) -> None:
        super().__init__(paths, boosts)
        self._searched = graph, options
        self._read_as = paths.frame_shift_s, vocabulary

    def best(self, found: BestPath | Recorded) -> BestPath:
        """Find the best path."""
        return found.best if isinstance(found, Recorded) else found

    def nbest(self, found: Recorded, num: int | None) -> NbestList:
        """Read the best texts of the lattice."""
        assert num is not None
        lattice = self.lattice(found)
        paths = nbest_paths(lattice, int(num))
        credited = None if lattice.first_frame else self._boosts  # of all that was said
        return hypotheses_of(lattice, paths, credited, self._paths)

    def lattice(self, found: Recorded) -> Lattice:
        """Read the lattice."""
        return lattice_of(*self._searched, found, *self._read_as)

    def segments(self, settled: Sequence[Segment]) -> list[Lattice]:
        """Read the lattices of segments."""
        return [
            segment_lattice(*self._searched, one, *self._read_as) for one in settled
        ]


def _pronouncer(graph: PackedGraph, g2p: G2pLike | None) -> Pronouncer | str:
    """How added words are said, or why a graph cannot add any."""
    vocabulary = graph.vocabulary
    if graph.calls is None:
        return (
            "the graph cannot add words, expected one of `wfstdec build` with an ARPA "
            "model that has <unk>, or with unk_cost: build it again"
        )
    lexicon = partial(vocabulary.pronunciations.lexicon, graph.words)
    return Pronouncer(vocabulary.tokens, lexicon, vocabulary.separators, g2p)


def _default_bonuses(graph: PackedGraph) -> DefaultBonuses:
    """Bonuses of a graph's words in a list without numbers."""
    lexicon = graph.vocabulary.pronunciations.lexicon(graph.words)
    unk_cost = math.inf if graph.calls is None else graph.calls.word_cost
    return DefaultBonuses(graph.words, lexicon, graph.info.word_cost, unk_cost)
