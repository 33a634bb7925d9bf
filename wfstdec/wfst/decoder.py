"""The decoder that users hold: a graph, options, and a backend.

decoder = WfstDecoder(graph, DecodeOptions(beam=13.0))
hyps = decoder.decode(logprobs)                        # or, as audio comes in:

search = decoder.start(len(logprobs))
search.advance(logprobs)                               # any number of chunks
hyps = search.finish()
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from wfstdec.boost.words import WordBoosts, compile_word_boosts
from wfstdec.errors import (
    BoostError,
    BoostWarning,
    InputError,
    OptionError,
    ShapeError,
)
from wfstdec.graph import PackedGraph
from wfstdec.hypothesis import Hypothesis, Word
from wfstdec.inputs import as_utterances
from wfstdec.wfst.alignment import Aligner
from wfstdec.wfst.backends import Batch, BatchBackend, Search, make_backend
from wfstdec.wfst.options import DecodeOptions
from wfstdec.wfst.path import BestPath

Boosts = Mapping[str, float] | Sequence[Mapping[str, float] | None] | None
_Item = TypeVar("_Item")


class WfstDecoder:
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

    def __init__(
        self,
        graph: PackedGraph,
        options: DecodeOptions | None = None,
        backend: str = "auto",
        *,
        frame_shift_s: float = 0.02,
        threads: int | None = None,
    ) -> None:
        if not (math.isfinite(frame_shift_s) and frame_shift_s > 0):
            raise OptionError(
                f"frame_shift_s={frame_shift_s!r}, expected seconds, above 0"
            )
        if threads is not None and threads < 1:
            raise OptionError(f"threads={threads!r}, expected 1 or more, or None")
        self.graph = graph
        self.options = options or DecodeOptions()
        self.frame_shift_s = frame_shift_s
        self.threads = threads or len(os.sched_getaffinity(0))
        self._backend = make_backend(backend, graph)
        self._aligner = Aligner(graph)

    def decode(
        self, logprobs: Any, lengths: Any = None, boosts: Boosts = None
    ) -> list[Hypothesis]:
        """Decode whole utterances: start, advance and finish in a row.

        Args:
            logprobs: [B, T, V] array or a sequence of [T, V] arrays, natural log,
                NumPy or torch, float16 or wider; `-inf` is an impossible token.
            lengths: [B] frames of each utterance; `None` for all.
            boosts: Word to bonus in nats (above 0 favours) for all utterances, or a
                sequence with one such mapping or `None` per utterance.

        Raises:
            ShapeError: Axes, V, lengths or the number of boosts are wrong.
            LogprobError: NaN or +inf.
            BoostError: A boost is no word with a finite number.

        Warns:
            BoostWarning: Boosted words are not in the graph; names them.
        """
        utterances = self._utterances(logprobs, lengths)
        compiled = self._compile(boosts, len(utterances))
        if isinstance(self._backend, BatchBackend):
            paths = self._backend.decode_batch(utterances, self.options, compiled)
            return list(map(self._hypothesis, paths, compiled))

        def decode_one(i: int) -> Hypothesis:
            search = self._backend.start(self.options, compiled[i])
            search.advance(utterances[i])
            return self._hypothesis(search.finish(), compiled[i])

        longest_first = sorted(
            range(len(utterances)), key=lambda i: -len(utterances[i])
        )
        hypotheses = self._map(decode_one, longest_first)
        by_utterance = dict(zip(longest_first, hypotheses, strict=True))
        return [by_utterance[i] for i in range(len(utterances))]

    def start(self, n: int, boosts: Boosts = None) -> Decoding:
        """Begin `n` utterances that come in chunks; arguments as in `decode`."""
        compiled = self._compile(boosts, n)
        if isinstance(self._backend, BatchBackend):
            batch = self._backend.start_batch(self.options, compiled)
        else:
            searches = [self._backend.start(self.options, one) for one in compiled]
            batch = _SearchesInThreads(self, searches)
        return Decoding(self, batch, compiled)

    def _utterances(self, logprobs: Any, lengths: Any) -> list[Any]:
        """Checked arrays, where the backend wants them."""
        if isinstance(self._backend, BatchBackend):
            place = self._backend.as_utterances
        else:
            place = as_utterances
        return place(logprobs, lengths, len(self.graph.tokens))

    def _map(self, function: Callable[[int], _Item], items: list[int]) -> list[_Item]:
        """Call for every item, in threads where that helps; results in order."""
        if self.threads == 1 or len(items) < 2:
            return [function(item) for item in items]
        with ThreadPoolExecutor(min(self.threads, len(items))) as pool:
            return list(pool.map(function, items))

    def _compile(self, boosts: Boosts, n: int) -> list[WordBoosts]:
        """One compiled list per utterance; equal mappings are compiled once."""
        if boosts is None or isinstance(boosts, Mapping):
            lists: list[Mapping[str, float] | None] = [boosts] * n
        elif isinstance(boosts, Sequence) and not isinstance(boosts, str):
            lists = list(boosts)
        else:
            raise BoostError(
                f"boosts is a {type(boosts).__name__}, expected a mapping from word to "
                "bonus, or a sequence of them"
            )
        if len(lists) != n:
            raise ShapeError(
                f"{len(lists)} boost lists, expected {n}, one per utterance"
            )
        done: dict[int, tuple[WordBoosts, list[str]]] = {}
        for i, one in enumerate(lists):
            if one is not None and not isinstance(one, Mapping):
                raise BoostError(
                    f"boosts of utterance {i} is a {type(one).__name__}, expected a "
                    "mapping from word to bonus, or None"
                )
            if id(one) not in done:
                done[id(one)] = compile_word_boosts(one, self.graph.word_ids)
        unknown = sorted({word for _, words in done.values() for word in words})
        if unknown:
            shown = ", ".join(map(repr, unknown[:10]))
            more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
            warnings.warn(
                f"{len(unknown)} boosted words are not in the graph and have no "
                f"effect: {shown}{more}",
                BoostWarning,
                stacklevel=3,
            )
        return [done[id(one)][0] for one in lists]

    def _hypothesis(self, path: BestPath, boosts: WordBoosts) -> Hypothesis:
        options = self.options
        read = self._aligner.tokens(path.arcs, path.acoustic)
        frames = self._aligner.word_frames(read, path.reached_final)
        shift = self.frame_shift_s
        ids = read.word.tolist()
        boost_cost = 0.0 - sum(boosts.bonus(word) for word in ids) if boosts else 0.0
        graph_cost = read.graph_cost + path.final_cost
        insertion_cost = float(options.word_insertion * len(ids)) + 0.0  # no -0.0
        total = options.acoustic_scale * read.acoustic_cost
        total += options.lm_scale * graph_cost + insertion_cost + boost_cost
        texts = map(self.graph.words.__getitem__, ids)
        times, frames = (frames * shift).T.tolist(), frames.T.tolist()
        return Hypothesis(
            words=tuple(map(Word, texts, *times, *frames)),
            token_ids=tuple(read.token.tolist()),
            token_frames=(tuple(read.start.tolist()), tuple(read.end.tolist())),
            token_names=self.graph.tokens.names,
            frame_shift_s=shift,
            total_cost=total,
            graph_cost=graph_cost,
            acoustic_cost=read.acoustic_cost,
            insertion_cost=insertion_cost,
            boost_cost=boost_cost,
            reached_final=path.reached_final,
            num_frames=path.num_frames,
            died_at_frame=path.died_at_frame if path.died_at_frame >= 0 else None,
        )


class _SearchesInThreads:
    """Searches of one utterance each as one batch."""

    def __init__(self, decoder: WfstDecoder, searches: list[Search]) -> None:
        self._decoder, self._searches = decoder, searches

    def advance(self, chunks: Sequence[Any]) -> None:
        self._decoder._map(
            lambda i: self._searches[i].advance(chunks[i]), list(range(len(chunks)))
        )

    def finish(self) -> list[BestPath]:
        return [search.finish() for search in self._searches]


class Decoding:
    """Utterances that come in chunks; made by `WfstDecoder.start`."""

    def __init__(
        self, decoder: WfstDecoder, batch: Batch, boosts: list[WordBoosts]
    ) -> None:
        self._decoder = decoder
        self._batch = batch
        self._boosts = boosts
        self._finished = False

    def advance(self, logprobs: Any, lengths: Any = None) -> None:
        """Pass every utterance through its next chunk.

        Args:
            logprobs: [B, T, V] array or a sequence of B arrays [T, V], as in
                `WfstDecoder.decode`; an utterance that has ended gets no frames.
            lengths: [B] frames of each chunk; `None` for all.

        Raises:
            ShapeError, LogprobError: As in `WfstDecoder.decode`; no utterance moved.
            InputError: The utterances were finished.
        """
        self._check_under_way()
        chunks = self._decoder._utterances(logprobs, lengths)
        if len(chunks) != len(self._boosts):
            raise ShapeError(
                f"chunks of {len(chunks)} utterances, expected {len(self._boosts)}"
            )
        self._batch.advance(chunks)

    def finish(self) -> list[Hypothesis]:
        """End all utterances; the object cannot be used afterwards.

        Raises:
            InputError: The utterances were finished before.
        """
        self._check_under_way()
        self._finished = True
        paths = self._batch.finish()
        return list(map(self._decoder._hypothesis, paths, self._boosts))

    def _check_under_way(self) -> None:
        if self._finished:
            raise InputError(
                "this search was finished, expected one that is under way; start "
                "another"
            )
