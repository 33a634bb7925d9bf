"""What every decoder does around its search: batches, threads, boosts, chunks.

    hyps = decoder.decode(logprobs)                    # whole utterances, or

    sessions = decoder.sessions()                      # as they come in:
    one = sessions.open()
    sessions.advance({one: chunk})                     # any number of chunks
    hyp = sessions.close(one)

The two give the same hypotheses.
"""

from __future__ import annotations

import copy
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar

from wfstdec.boost.compile import BoostCompiler, CompiledBoosts, PhraseCompiler
from wfstdec.boost.lists import BoostsLike
from wfstdec.boost.phrase_compilers import phrase_compiler
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.errors import DeviceError, OptionError, naming
from wfstdec.lattice.arrays import Lattice
from wfstdec.lm.automaton import Unit
from wfstdec.search.contract import Backend, BatchBackend, GroupBackend
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.logprobs import as_utterances
from wfstdec.search.sessions import Sessions
from wfstdec.text.vocabulary import Vocabulary

_Given = TypeVar("_Given")
_Item = TypeVar("_Item")
_Chunk = TypeVar("_Chunk")
_Result = TypeVar("_Result")


class Decoder(ABC, Generic[_Chunk, _Result]):
    """A search with options and a backend; see `WfstDecoder` and `TrieDecoder`.

    Args:
        options: Search options of the decoder's kind.
        backend: What `options` and boosts go to.
        boosts: Compiles what users give.
        num_tokens: V.
        frame_shift_s: Seconds per frame of log-probs.
        threads: Utterances decoded side by side; `None` takes one per processor.

    Raises:
        OptionError: `frame_shift_s` or `threads` is out of range.
    """

    def __init__(
        self,
        options: Any,
        backend: Backend[_Chunk, _Result] | BatchBackend[_Chunk, _Result],
        boosts: BoostCompiler,
        *,
        num_tokens: int,
        frame_shift_s: float,
        threads: int | None,
    ) -> None:
        if not (math.isfinite(frame_shift_s) and frame_shift_s > 0):
            raise OptionError(
                f"frame_shift_s={frame_shift_s!r}, expected seconds, above 0"
            )
        if threads is not None and threads < 1:
            raise OptionError(f"threads={threads!r}, expected 1 or more, or None")
        self.options = options
        self.frame_shift_s = frame_shift_s
        self.threads = threads or len(os.sched_getaffinity(0))
        self._backend = backend
        self._boosts = boosts
        self._num_tokens = num_tokens

    @property
    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """What it can say: tokens, words, and what stands between them."""

    @abstractmethod
    def _hypothesis(self, result: _Result, boosts: CompiledBoosts) -> Hypothesis:
        """What the user gets of a finished search."""

    @property
    def num_tokens(self) -> int:
        """V, the blank included."""
        return self._num_tokens

    @property
    def input_frame_shift_s(self) -> float:
        """Seconds per frame of what is given to `decode`."""
        return self.frame_shift_s

    def with_options(self, **changes: Any) -> Self:
        """The same decoder with some options changed; shares all its arrays.

        Raises:
            OptionError: A value is out of range, or fixed where a decoder is made.
        """
        other = copy.copy(self)
        other.options = replace(self.options, **changes)
        return other

    def _compiled(self, boosts: Any, n: int) -> list[CompiledBoosts]:
        """What searches take of n utterances' boosts."""
        return self._boosts.compile(boosts, n, float(self.options.boost_scale))

    def _check_boosts(self, boosts: list[CompiledBoosts]) -> None:
        """Raise where the search cannot do these boosts."""

    def decode(
        self, logprobs: Any, lengths: Any = None, boosts: BoostsLike | Sequence = None
    ) -> list[Hypothesis]:
        """Decode whole utterances: start, advance and finish in a row.

        Args:
            logprobs: [B, T, V] array or a sequence of [T, V] arrays, natural log,
                NumPy or torch, float16 or wider; `-inf` is an impossible token.
            lengths: [B] frames of each utterance; `None` for all.
            boosts: For all utterances, or a sequence with one for each: word to bonus
                in nats (above 0 favours), words and phrases without (their bonuses
                follow from the list), compiled phrases, `Boosts`, or `None`. A
                sequence of strings is one list, for all utterances.

        Raises:
            ShapeError: Axes, V, lengths or the number of boosts are wrong.
            LogprobError: NaN or +inf.
            BoostError: A boost is no word with a finite number, or does not fit.
                All three have the position of the utterance as `utterance`.
            DeviceError: A device failed: names the utterances that were not done, and
                has the hypotheses of those that were.

        Warns:
            BoostWarning: Boosted words are unknown; names them.
        """
        utterances = self._utterances(logprobs, lengths)
        compiled = self._compiled(boosts, len(utterances))
        return self._read(self._search(utterances, compiled), compiled)

    def decode_nbest(
        self, logprobs: Any, lengths: Any = None, boosts: BoostsLike | Sequence = None
    ) -> list[list[Hypothesis]]:
        """Several hypotheses of each utterance, best first; arguments as in `decode`.

        Raises:
            OptionError: This kind of decoder finds only the best.
        """
        self._check_nbest()
        utterances = self._utterances(logprobs, lengths)
        compiled = self._compiled(boosts, len(utterances))
        return list(map(self._nbest, self._search(utterances, compiled), compiled))

    def decode_lattice(
        self, logprobs: Any, lengths: Any = None, boosts: BoostsLike | Sequence = None
    ) -> list[Lattice]:
        """The lattice of each utterance; arguments as in `decode`.

        Raises:
            OptionError: This kind of decoder records none.
        """
        raise OptionError(
            f"{type(self).__name__} records no lattices, expected a WfstDecoder or a "
            "TrieDecoder"
        )

    def phrase_compiler(
        self,
        options: PhraseOptions | None = None,
        *,
        unit: Unit | None = None,
        boundary: str | None = None,
        sentencepiece_model: str | os.PathLike[str] | None = None,
    ) -> PhraseCompiler:
        """Make a compiler of phrases to boost; the result goes with `boosts`.

            compiler = decoder.phrase_compiler(unit="token")
            decoder.decode(logprobs, boosts=compiler.compile(["new york"]))

        Args:
            options: What a phrase is worth.
            unit: Whether phrases are credited by `"word"` or by `"token"`; `None` is
                by word where the decoder has words.
            boundary: The token that stands between words wherever one ends: phrases
                of tokens then count as whole words only. `None` is the separator,
                unless it may be left out.
            sentencepiece_model: What cuts phrases into pieces where no lexicon does;
                `None` takes as few pieces as there can be.

        Raises:
            OptionError: By words, without any; a boundary for phrases of words; a
                SentencePiece model where there is a lexicon.
            BackendError: Such a model, and sentencepiece is not installed.
            TokenTableError: The boundary is not a token.
        """
        return phrase_compiler(
            self.vocabulary,
            options,
            unit=unit,
            boundary=boundary,
            sentencepiece_model=sentencepiece_model,
        )

    def sessions(self) -> Sessions:
        """Utterances that come in chunks, and that join and leave at any time."""
        return Sessions(self)

    def _open(self, boosts: BoostsLike) -> tuple[Any, CompiledBoosts]:
        """Begin one utterance: its search, and its boosts, compiled."""
        compiled = self._compiled([boosts], 1)
        self._check_boosts(compiled)
        return self._backend.start(self.options, compiled[0]), compiled[0]

    @abstractmethod
    def _partial_reader(self, boosts: CompiledBoosts) -> Any:
        """What reads `Search.look()` of one session: `read(look) -> Partial`."""

    def _check_nbest(self) -> None:
        """Raise where there are no n-best lists.

        Raises:
            OptionError: This kind of decoder finds only the best.
        """
        raise OptionError(
            f"{type(self).__name__} finds only the best hypothesis, expected a decoder "
            "with n-best lists, such as TrieDecoder"
        )

    def _lattice_reader(self) -> Callable[[Any, CompiledBoosts], Lattice]:
        """What ends the search of a session that records; its lattice.

        Raises:
            OptionError: This kind of decoder has none.
        """
        raise OptionError(
            f"{type(self).__name__} records no lattices, expected a WfstDecoder or a "
            "TrieDecoder"
        )

    def _settled(
        self, search: Any, boosts: CompiledBoosts, min_frames: int
    ) -> list[Lattice]:
        """The settled segments of a session that records.

        Raises:
            OptionError: This kind of decoder has none.
        """
        raise OptionError(
            f"{type(self).__name__} hands out no settled lattices, expected a "
            "WfstDecoder"
        )

    def _nbest(self, result: _Result, boosts: CompiledBoosts) -> list[Hypothesis]:
        """The hypotheses of a finished search, best first."""
        return [self._hypothesis(result, boosts)]

    def _finish_nbest(self, search: Any, boosts: CompiledBoosts) -> list[Hypothesis]:
        """End one search; its hypotheses, best first."""
        return self._nbest(search.finish(), boosts)

    def _read(
        self, results: list[_Result], boosts: list[CompiledBoosts]
    ) -> list[Hypothesis]:
        return list(map(self._hypothesis, results, boosts))

    def _search(
        self, utterances: Sequence[Any], boosts: list[CompiledBoosts]
    ) -> list[_Result]:
        """The result for each utterance."""
        self._check_boosts(boosts)
        backend = self._backend
        if isinstance(backend, BatchBackend):
            try:
                return backend.decode_batch(utterances, self.options, boosts)
            except DeviceError as error:
                done = list(error.done)
                given = [boosts[i] for i in done]
                read = self._read([error.done[i] for i in done], given)
                error.done = dict(zip(done, read, strict=True))
                raise

        if isinstance(backend, GroupBackend):
            return self._of_groups(backend, utterances, boosts)

        def decode_one(i: int) -> _Result:
            with naming(i):
                search = backend.start(self.options, boosts[i])
                search.advance(utterances[i])
                return search.finish()

        return self._of_each(utterances, decode_one)

    def _of_groups(
        self,
        backend: GroupBackend[_Chunk, _Result],
        utterances: Sequence[Any],
        boosts: list[CompiledBoosts],
    ) -> list[_Result]:
        """The result for each utterance: those of the same boosts a few at a time."""
        groups = _groups(
            list(map(len, utterances)), boosts, self.threads, backend.group_size
        )

        def decode_some(group: list[int]) -> list[_Result]:
            some = [utterances[i] for i in group]
            with naming(group[0]):
                return backend.decode_group(some, self.options, boosts[group[0]])

        found: dict[int, _Result] = {}
        for group, some in zip(groups, self._map(decode_some, groups), strict=True):
            found.update(zip(group, some, strict=True))
        return [found[i] for i in range(len(utterances))]

    def _of_each(
        self, utterances: Sequence[Any], function: Callable[[int], _Item]
    ) -> list[_Item]:
        """Call for the position of every utterance, the longest first."""
        longest_first = sorted(
            range(len(utterances)), key=lambda i: -len(utterances[i])
        )
        results = self._map(function, longest_first)
        by_utterance = dict(zip(longest_first, results, strict=True))
        return [by_utterance[i] for i in range(len(utterances))]

    def _utterances(self, logprobs: Any, lengths: Any) -> Sequence[Any]:
        """One checked array per utterance, where the backend wants them.

        Decoders that search something other than log-probs have their own.
        """
        if isinstance(self._backend, BatchBackend):
            return self._backend.as_utterances(logprobs, lengths, self._num_tokens)
        return as_utterances(logprobs, lengths, self._num_tokens)

    def _map(
        self, function: Callable[[_Given], _Item], items: Sequence[_Given]
    ) -> list[_Item]:
        """Call for every item, in threads where that helps; results in order."""
        others = min(self.threads, len(items)) - 1
        if others < 1:
            return [function(item) for item in items]
        results: dict[int, _Item] = {}
        left = iter(range(len(items)))  # all threads take from it, the next one each

        def work() -> None:
            for at in left:
                results[at] = function(items[at])

        with ThreadPoolExecutor(others) as pool:
            done = [pool.submit(work) for _ in range(others)]
            work()
            for one in done:
                one.result()
        return [results[at] for at in range(len(items))]


def _groups(
    lengths: list[int], boosts: list[CompiledBoosts], threads: int, most: int
) -> list[list[int]]:
    """Utterances of the same boosts together, so that every thread has a few groups."""
    enough = sum(lengths) / (4 * threads)
    groups: list[list[int]] = []
    begun: dict[int, tuple[list[int], int]] = {}  # by what boosts are: with its frames
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        key = id(boosts[i])
        group, frames = begun.get(key, ([], 0))
        if group and (len(group) == most or frames + lengths[i] > enough):
            group, frames = [], 0
        if not group:
            groups.append(group)
        group.append(i)
        begun[key] = group, frames + lengths[i]
    return groups
