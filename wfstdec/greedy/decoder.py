"""Greedy decoding with a language model and boosts: no beam, one token at a time.

decoder = GreedyDecoder(tokens="tokens.txt", lm="bpe.arpa.gz",
                        options=GreedyOptions(lm_scale=0.3))
hyps = decoder.decode(logprobs)                        # or in chunks, by `start`

This is the two-stage rule of "TurboBias" (GPU-PB): only the acoustics decide where a
token begins; the language model and the boosts decide which one it is.

    label, last = blank, blank                         # of the previous frame
    for each frame, x its log-probs, the blank's minus blank_penalty:
        best = the most probable token; ties go to the lowest
        none is possible                               the search dies
        best is the blank                              label = blank
        best is label, or best is last and label is possible here
                                                       label continues: a repeat
        else a token begins: label = the v other than the blank and label with least
                finite cost (without one the search dies):
            cost(v) = (lm_scale * LM(v) + phrases(v)) + acoustic_scale * -x[v]
                ties go to best, then to the lowest; LM and phrases step by it
        last = best
    end: `</s>` in the state of the model, and the refund of an incomplete phrase

So neither can turn a blank into a token, or a token into a blank. The rule with `last`
is not in the paper: without it a token that stays the most probable begins again where
another one was chosen for its first frame, and both are output. On synthetic sets of
word pieces with a 3-gram at lm_scale 0.3 to 0.5 that gave 4 to 7 % more word errors.

Costs are float32 and added in this order. The alignment is the labels of all frames:
the acoustic cost is that of the label even where another token is more probable. The
rows of both models are computed only where a token begins, a few times per second.
"""

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.boost.compile import BoostCompiler
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.greedy.options import BACKENDS, GreedyOptions
from wfstdec.jit import inlined, kernel
from wfstdec.jit.handles import Handle, opened
from wfstdec.jit.records import WeakCache, longer, record
from wfstdec.jit.vectors import (
    STEP,
    count_from,
    equal,
    least_of,
    load,
    most,
    negative,
    select,
    splat,
    trailing,
)
from wfstdec.lm.automaton import NULL_AUTOMATON, Automaton
from wfstdec.lm.kernels import row as row_of
from wfstdec.lm.loading import AnyLM, lm_over, read_lm
from wfstdec.search.backend import make_backend
from wfstdec.search.decoder import Decoder
from wfstdec.search.logprobs import (
    Pricing,
    count_numbers,
    penalised,
    pricing_of,
    scaled,
    with_numbers_checked,
)
from wfstdec.search.paths.hypotheses import LmCosts, Reader
from wfstdec.search.paths.tokens import (
    PATH_END,
    PartialPath,
    Path,
    Paths,
    without_labels,
)
from wfstdec.search.paths.words import BARE, Cutter
from wfstdec.search.threads import (
    CallBudget,
    HostBackend,
    check,
    filled_up,
    stretch,
)
from wfstdec.text.lexicon import AUTO, TokensLike, load_tokens, separator_of
from wfstdec.text.vocabulary import Vocabulary


class GreedyDecoder(Decoder[np.ndarray, Path]):
    """Greedy search on bare tokens, by the rule above.

    The result for an utterance depends only on its log-probs, the options, its boosts
    and the decoder's arguments. Without a language model and boosts it is plain greedy
    decoding. Its costs are those of its alignment, by the formula of `GreedyOptions`;
    boosts are phrases of tokens.

    Args:
        tokens: The V output units of the acoustic model: a file, names in order,
            `{name: token}`, a tokenizer or a table; see `token_table`.
        lm: An ARPA file over tokens, a folder of `NgramLM.save`, `read_arpa`'s result
            or an `NgramLM`; None for no language model.
        options: Scales and penalties.
        backend: `"cpu"` or `"auto"`, the CPU.
        separator: The token between words. `"auto"` is `|` for tokens of a Hugging Face
            model, otherwise none; without one, words are split at the mark U+2581 of
            word pieces.
        blank: The blank by name or index; None detects it.
        unk_cost: Nats for tokens that an ARPA model lacks; None scores them as `<unk>`
            if the model has it, and otherwise never chooses them.
        frame_shift_s: Seconds per frame of log-probs.
        threads: Number of threads; `None` uses one per processor.

    Attributes:
        lm: The language model, or None.

    Raises:
        InputError: One of its subclasses, for an error in a file or an option.
        BackendError: The backend is unknown.
    """

    options: GreedyOptions

    def __init__(
        self,
        *,
        tokens: TokensLike,
        lm: AnyLM | None = None,
        options: GreedyOptions | None = None,
        backend: str = "auto",
        separator: str | None = AUTO,
        blank: int | str | None = None,
        unk_cost: float | None = None,
        frame_shift_s: float = 0.02,
        threads: int | None = None,
    ) -> None:
        table = load_tokens(tokens, blank)
        between = separator_of(separator, table)
        self.vocabulary = Vocabulary.of(table, separator=between)
        self.lm = None if lm is None else lm_over(read_lm(lm), self.tokens, unk_cost)
        self._automaton = NULL_AUTOMATON if self.lm is None else self.lm.automaton
        self._cutter = Cutter(BARE, self.vocabulary)
        searched = self._automaton, len(self.tokens), self.tokens.blank
        super().__init__(
            options or GreedyOptions(),
            make_backend(BACKENDS, backend, searched),
            BoostCompiler((), {}, len(self.tokens)),
            frame_shift_s=frame_shift_s,
            threads=threads,
        )

    def _repr_of_model(self) -> str:
        return f"{super()._repr_of_model()}, lm={self.lm!r}"

    def _models(self) -> tuple[str, ...]:
        return () if self.lm is None else (self.lm.fingerprint,)

    def _reader(self, boosts: CompiledBoosts) -> Reader[Path]:
        insertion, names = self.options.token_insertion, self.tokens.names
        account = LmCosts(self.options, self._automaton, insertion)
        return Reader(self._cutter, account, names, self.frame_shift_s, boosts)


PROGRESS = record(
    "i8 label last lm_state boost_state frames died_at_frame tokens lm_row boost_row",
    "f8 acoustic cost",
)
"""Progress of a search: the label and the most probable token of the last frame, the
states of both models, frames passed, the frame without survivors or -1, number of
tokens, the states of the cached rows or -1, and costs: the unscaled acoustic one and
the total."""
NO_TOKEN = -1
"""No token can begin."""


class Search(NamedTuple):
    """Tables and options of a search; read-only."""

    blank: int
    lm: Automaton
    phrases: Automaton
    pricing: Pricing
    lm_scale: np.float32
    token_insertion: float
    has_models: bool  # whether there are phrases or a language model


class UtteranceState(NamedTuple):
    """Utterances in progress, their tokens concatenated; rows of the models [V]."""

    progress: np.ndarray  # PROGRESS [B]
    tokens: np.ndarray  # int32 [N, 3], the token, its first frame, one after its last
    lm_cost: np.ndarray  # float32
    boost_cost: np.ndarray
    lm_next: np.ndarray  # int32
    boost_next: np.ndarray


def _new_state(
    search: Search, num_tokens: int, count: int = 1, room: int = 0
) -> UtteranceState:
    progress = np.zeros(count, PROGRESS)
    progress["label"] = progress["last"] = search.blank
    progress["lm_state"] = search.lm.model_start[0]
    progress["boost_state"] = search.phrases.model_start[0]
    for name in ("died_at_frame", "lm_row", "boost_row"):
        progress[name] = -1
    costs = np.empty((2, num_tokens), np.float32)
    states = np.empty((2, num_tokens), np.int32)
    return UtteranceState(progress, np.empty((room, 3), np.int32), *costs, *states)


def _paths(search: Search, state: UtteranceState) -> Paths:
    now = state.progress
    ends, splits = np.zeros(len(now), PATH_END), np.zeros(len(now) + 1, np.int64)
    last = search.lm.final_cost[now["lm_state"]]
    complete = (now["died_at_frame"] < 0) & (last < np.inf)
    end = search.lm_scale * np.where(complete, last, np.float32(0))
    refund = search.phrases.final_cost[now["boost_state"]].astype(np.float64)
    ends["acoustic_cost"], ends["search_cost"] = (
        now["acoustic"],
        now["cost"] + end + refund,
    )
    ends["reached_final"], ends["num_frames"] = complete, now["frames"]
    ends["died_at_frame"] = now["died_at_frame"]
    now["tokens"].cumsum(out=splits[1:])
    tokens = without_labels(state.tokens[: splits[-1]].T.copy())
    return Paths(ends, tokens, splits, np.zeros_like(splits))


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(self, search: Handle[Search], num_tokens: int) -> None:
        self.search = search
        self.utterance = Handle(_new_state(search.value, num_tokens))

    def advance(self, logprobs: np.ndarray) -> None:
        """Search a chunk, float32 [T, V], C order."""
        utterance = self.utterance.value
        needed = int(utterance.progress["tokens"][0]) + len(logprobs)
        if needed > len(utterance.tokens):
            tokens = longer(utterance.tokens, 2 * needed)
            self.utterance = Handle(utterance._replace(tokens=tokens))
        advance(self.search, self.utterance, logprobs)

    def finish(self) -> Path:
        """End the utterance."""
        return _paths(self.search.value, self.utterance.value)[0]

    def look(self, since: tuple[int, int] = (0, 0)) -> PartialPath:
        """Return the partial result; only the last token may continue."""
        progress, end = self.utterance.value.progress[0], self.finish()
        count = len(end.tokens.token)
        continues = count > 0 and progress["label"] != self.search.value.blank
        cost = end.search_cost - float(progress["cost"])
        return PartialPath(
            end.tokens.part(slice(since[0], None), slice(0)),
            max(0, count - continues - since[0]),
            num_labels=0,
            num_frames=end.num_frames,
            final_cost=cost if end.reached_final else math.inf,
        )


class CpuBackend(HostBackend):
    """Greedy search on the CPU, with a language model, V and the blank."""

    can = frozenset()
    checks_numbers = True
    search: type[Any] = CpuSearch

    def __init__(self, searched: tuple[Automaton, int, int]) -> None:
        super().__init__(searched[1], searched)
        self._kept: WeakCache[CompiledBoosts, dict[GreedyOptions, Handle[Search]]]
        self._kept = WeakCache(lambda _: {})

    def _search(self, options: GreedyOptions, boosts: CompiledBoosts) -> Handle[Search]:
        kept, (lm, _, blank) = self._kept.of(boosts), self._searched
        search = kept.get(options)
        if search is None:
            phrases = boosts.phrases
            search = Handle(
                Search(
                    blank=blank,
                    lm=lm,
                    phrases=NULL_AUTOMATON if phrases is None else phrases.automaton,
                    pricing=pricing_of(options),
                    lm_scale=np.float32(options.lm_scale),
                    token_insertion=float(options.token_insertion),
                    has_models=phrases is not None or lm is not NULL_AUTOMATON,
                )
            )
            kept.clear()
            kept[options] = search
        return search

    def start(
        self, options: GreedyOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> Any:
        """Begin an utterance."""
        assert not record
        return self.search(self._search(options, boosts), self._num_tokens)

    def decode_group(
        self,
        utterances: Sequence[np.ndarray],
        options: GreedyOptions,
        boosts: CompiledBoosts,
        pace: CallBudget,
        names: Sequence[int] = (),
    ) -> Paths:
        """Decode whole utterances with the same boosts, as `HostBackend`."""
        search, num = self._search(options, boosts), len(utterances)
        room = sum(map(len, utterances))
        state = Handle(_new_state(search.value, self._num_tokens, num, room))
        given, at, behind, cut = filled_up(utterances), np.zeros(3, np.int64), 0, 0
        names = names or range(num)
        tokens = state.value.progress["tokens"]
        while behind < num or cut:
            now, behind, cut, frames = stretch(given, num, at, pace.frames)
            began = time.perf_counter()
            while not advance_group(search, state, now, behind, at):
                i = int(at[0])
                checked = with_numbers_checked(given[i], names[i])
                given = *given[:i], checked, *given[i + 1 :]
                now = *now[:i], checked[: len(now[i])], *now[i + 1 :]
            pace.note(frames, time.perf_counter() - began)
            if cut:  # not ended: the next call continues
                at[:] = behind - 1, cut, at[2] - tokens[behind - 1]
            check()
        return _paths(search.value, state.value)


@kernel
def advance_group(search, state, utterances, num, at):
    """Search utterances one after another; False if the next has invalid numbers.

    `at`: int64 [3], the utterance and frame to resume at, and the tokens before them.
    """
    search, state = opened(search), opened(state)
    for i in range(at[0], num):
        rows = utterances[i]
        good, masked = count_numbers(rows[at[1] :])
        if good < rows[at[1] :].size or masked:
            return False
        one = UtteranceState(
            *(state.progress[i : i + 1], state.tokens[at[2] :]),
            *(state.lm_cost, state.boost_cost, state.lm_next, state.boost_next),
        )
        _advance(search, one, rows, at[1])
        at[0], at[1], at[2] = i + 1, 0, at[2] + state.progress[i].tokens
    return True


@kernel
def advance(search, utterance, logprobs):
    """Search a chunk of an utterance."""
    _advance(opened(search), opened(utterance), logprobs, 0)


@inlined
def _advance(search, utterance, logprobs, first):
    now, tokens = utterance.progress[0], utterance.tokens
    for t in range(first, len(logprobs)):
        if now.died_at_frame >= 0:
            return
        row = logprobs[t]
        frame, label = now.frames, now.label
        of_blank = penalised(search.pricing, row[search.blank])
        best = _best(search, row, of_blank)
        begins = False
        if best == search.blank:
            label = best
        elif best >= 0 and best != label:
            # If the models replaced the previous frame's best token, that token begins
            # nothing now: the chosen one continues, if it is possible.
            if best != now.last or not row[label] > -np.inf:
                label, begins = best, True
                if search.has_models:
                    label = _choose(search, utterance, row, best)
                else:
                    now.cost += search.token_insertion
        if best < 0 or label < 0:
            now.died_at_frame = frame
            return
        unscaled = float32(-(of_blank if label == search.blank else row[label]))
        now.acoustic += np.float64(unscaled)
        now.cost += np.float64(scaled(search.pricing, unscaled))
        if begins:
            tokens[now.tokens, 0], tokens[now.tokens, 1] = label, frame
            now.tokens += 1
        if label != search.blank:
            tokens[now.tokens - 1, 2] = frame + 1
        now.label, now.last, now.frames = label, best, frame + 1


@inlined
def _best(search, row, of_blank):
    """Return the most probable token, ties go to the first; -1 if none is possible."""
    best, top, width = np.int64(-1), float32(-np.inf), uint64(len(row))
    if width < STEP:
        for v in range(len(row)):
            x = of_blank if v == search.blank else row[v]
            if x > top:
                best, top = np.int64(v), x
        return best
    last, v = width - STEP, uint64(0)
    tops = _sixteen(search, row, of_blank, last)  # overlaps the previous part
    while v < last:
        tops = most(tops, _sixteen(search, row, of_blank, v))
        v += STEP
    top, v = -least_of(negative(tops)), uint64(0)
    if not top > -np.inf:
        return best
    while True:
        at = min(v, last)
        found = uint64(equal(_sixteen(search, row, of_blank, at), splat(top)))
        if found != uint64(0):
            return np.int64(at + trailing(found))
        v += STEP


@inlined
def _sixteen(search, row, of_blank, at):
    """Return log-probs of sixteen tokens; `of_blank` is the blank's."""
    is_blank = equal(count_from(uint32(at)), splat(uint32(search.blank)))
    return select(is_blank, splat(of_blank), load(row, at))


@inlined
def _choose(search, utterance, row, best):
    """Return the token that begins, or -1; step the models by it."""
    now = utterance.progress[0]
    lm_cost, boost_cost = utterance.lm_cost, utterance.boost_cost
    # A row needs a walk over all histories: cached while the state is the same.
    if now.lm_row != now.lm_state:
        now.lm_row = now.lm_state
        row_of(search.lm, 0, now.lm_row, lm_cost, utterance.lm_next)
    if now.boost_row != now.boost_state:
        now.boost_row = now.boost_state
        row_of(search.phrases, 0, now.boost_row, boost_cost, utterance.boost_next)
    least, chosen, paid = float32(np.inf), np.int64(NO_TOKEN), float32(0)
    # The best token first, so that it wins ties; its second turn changes nothing.
    for i in range(-1, len(row)):
        v = best if i < 0 else i
        impossible = not row[v] > -np.inf or not lm_cost[v] < np.inf
        if v == search.blank or v == now.label or impossible:
            continue
        extra = float32(float32(search.lm_scale * lm_cost[v]) + boost_cost[v])
        cost = float32(extra + scaled(search.pricing, float32(-row[v])))
        if cost < least:
            least, chosen, paid = cost, np.int64(v), extra
    if chosen >= 0:
        now.lm_state = utterance.lm_next[chosen]
        now.boost_state = utterance.boost_next[chosen]
        now.cost += np.float64(paid) + search.token_insertion
    return chosen
