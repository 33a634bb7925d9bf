"""The decoder that users hold: a graph, options, and a backend.

    decoder = WfstDecoder(graph, WfstOptions(beam=13.0))
    hyps = decoder.decode(logprobs)

As audio comes in: `decoder.sessions()`.
"""

from __future__ import annotations

import numpy as np

from wfstdec.boost.boosts import BoostCompiler, CompiledBoosts
from wfstdec.boost.defaults import DefaultBonuses
from wfstdec.errors import BackendError
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.backends import make_backend
from wfstdec.search.contract import BatchBackend
from wfstdec.search.costs import CostAccount, insertion_cost
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.search.phrases import Vocabulary
from wfstdec.text.symbols import token_of
from wfstdec.wfst.alignment import Aligner
from wfstdec.wfst.backends import BACKENDS
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
            `"reference"` (plain Python, slow), or `"auto"`, which is the CPU.
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
            ),
            num_tokens=len(graph.tokens),
            frame_shift_s=frame_shift_s,
            threads=threads,
        )
        self.graph = graph
        self._aligner = Aligner(graph)

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

    def _hypothesis(self, path: BestPath, boosts: CompiledBoosts) -> Hypothesis:
        options, shift, read = self.options, self.frame_shift_s, path.said
        frames = self._aligner.word_frames(read, path.reached_final)
        ids, tokens = read.word.tolist(), token_of(read.ilabel).tolist()
        costs = CostAccount.of_path(
            options,
            graph=read.graph_cost + path.final_cost,
            acoustic=read.acoustic_cost,
            insertion=insertion_cost(options.word_insertion, len(ids)),
            boost=boosts.cost(ids, tokens),
        )
        texts = map(self.graph.words.__getitem__, ids)
        times, frames = (frames * shift).T.tolist(), frames.T.tolist()
        return Hypothesis(
            words=tuple(map(Word, texts, *times, *frames)),
            token_ids=tuple(tokens),
            token_frames=(tuple(read.start.tolist()), tuple(read.end.tolist())),
            token_names=self.graph.tokens.names,
            frame_shift_s=shift,
            **costs._asdict(),
            reached_final=path.reached_final,
            num_frames=path.num_frames,
            died_at_frame=path.died_at_frame if path.died_at_frame >= 0 else None,
        )


def _default_bonuses(graph: PackedGraph) -> DefaultBonuses:
    """What bonuses the words of a graph get in a list without numbers."""
    tables = graph.tables
    lexicon = tables.pronunciations.lexicon(tables.words)
    return DefaultBonuses(tables.words, lexicon, tables.word_cost)
