"""Logits processors of `generate`: phrase boosts and n-gram models.

    names = PhraseBoostLogitsProcessor(["new york", "bartley"], processor)
    model.generate(**inputs, num_beams=5, length_penalty=0.0, early_stopping="never",
                   logits_processor=[names])
    lm = NgramLogitsProcessor("tokens.arpa", processor, weight=0.3)
    model.generate(**inputs, num_beams=5, logits_processor=[lm])

`generate` reorders, repeats and drops rows between two calls without notice. States are
therefore looked up by tokens, of which they are a function; the state of an unknown row
is computed from its prompt on.

A finished text gets `boost`, the sum over the phrases in it, in addition to the model's
score: `wfstdec.boost.phrases` defines the bonus of each, and why the amounts of the
steps sum to it. In a row with boost state n

    a token     - its cost in n                              phi(n): partial credit
    an end      - phi(n)
    a mark      nothing: the state is kept               timestamps, languages

Rules for the end, which is a token that competes with boosted ones:

    closed   once a text continues where an end scores best, its phrases
             close: that token costs phi(n), and later ones earn nothing
    none     they stay open

`closed` depends on earlier scores of a row. They are kept from call to call, by the
row's tokens and utterance; an unknown row counts as open.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, get_args

import numpy as np

from wfstdec.boost.automatic import bonuses_of_lengths
from wfstdec.boost.compile import PhraseCompiler
from wfstdec.boost.lists import is_one_list
from wfstdec.boost.phrases import PhraseBoosts, PhraseOptions
from wfstdec.boost.tables import (
    CLOSED,
    CLOSING,
    OPEN,
    EndRule,
    RowStates,
    credit_rows,
)
from wfstdec.errors import BoostError, OptionError, ShapeError
from wfstdec.lm import kernels
from wfstdec.lm.automaton import BackoffModel
from wfstdec.lm.loading import AnyLM, lm_over, read_lm
from wfstdec.text.tokens import (
    IdSpeller,
    ends_of,
    ids_of,
    neutral_of,
    token_table_of,
    written_ways,
)

Phrases = Mapping[str, float] | Sequence[str] | PhraseBoosts | None
"""Phrases with or without weights, or compiled ones, or none."""

_ALIKE = 1e-2  # Scores of one utterance's rows at the prompt differ by rounding alone
_State = TypeVar("_State")


class TextRows(Generic[_State]):
    """Texts of the rows of one `generate`, after a prompt of `begin_index` tokens."""

    # Models skip `neutral` tokens; `eos` tokens end a text. `width` is the number of
    # rows of an utterance, set by `keep`.

    def __init__(
        self, neutral: Collection[int], eos: Sequence[int], begin_index: int
    ) -> None:
        self.neutral = np.array(sorted({*neutral} - {*eos}), np.int64)
        self.eos = np.array(sorted(eos), np.int64)
        self._unmodelled = np.union1d(self.neutral, self.eos)
        self._columns: dict[int, np.ndarray] = {}
        self.width = 0
        self.begin(begin_index)

    def begin(self, begin_index: int) -> None:
        """Begin a new text and forget all rows."""
        if not 0 <= begin_index == int(begin_index):
            raise OptionError(f"begin_index={begin_index!r}, expected 0 or more")
        self.begin_index = int(begin_index)
        self._keys: list[bytes] = []  # of the rows of the last call
        self._own: list[_State] = []
        self._known: list[dict[bytes, _State]] = []  # by key, of each utterance

    def tokens(self, input_ids: Any) -> np.ndarray:
        """Return the rows after the prompt, int64 [N, U]."""
        if hasattr(input_ids, "detach"):
            input_ids = input_ids.detach().cpu()
        ids = np.asarray(input_ids, np.int64)
        first = self.begin_index
        if ids.ndim != 2 or ids.shape[1] < first:
            expected = f"begin_index={first} or more"
            raise ShapeError(f"{ids.shape} tokens, expected {expected}")
        return np.ascontiguousarray(ids[:, first:])

    def parents(self, ids: np.ndarray) -> list[_State | None]:
        """Return the state of each row before its last token, or None."""
        # States of the same row come first, then those of its utterance: equal texts in
        # two utterances cannot be distinguished otherwise.
        states: list[_State | None] = []
        for i, row in enumerate(ids):
            key = row[:-1].tobytes()
            group = i // self.width if self.width else 0
            known = self._known[group] if group < len(self._known) else {}
            if not len(row) or len(self._keys) != len(ids):
                states.append(None)
            elif self._keys[i] == key:
                states.append(self._own[i])
            else:
                states.append(known.get(key))
        return states

    def keep(self, ids: np.ndarray, states: list[_State], width: int) -> None:
        """Keep the state of each row; `width` rows are of one utterance."""
        self.width, self._own = width, states
        self._keys = [row.tobytes() for row in ids]
        self._known = [{} for _ in range(-(-len(ids) // width))]
        for i, (key, state) in enumerate(zip(self._keys, states, strict=True)):
            self._known[i // width].setdefault(key, state)

    def labels_of(self, row: np.ndarray) -> np.ndarray:
        """Return the tokens of a row that advance models, int32."""
        return row[~np.isin(row, self._unmodelled)].astype(np.int32)

    def is_silent(self, last: np.ndarray) -> np.ndarray:
        """Return whether tokens are skipped by models, bool [N]."""
        return np.isin(last, self._unmodelled)

    def silent_columns(self, num_labels: int, size: int) -> np.ndarray:
        """Return tokens below `size` that models skip, or from `num_labels` on."""
        if size not in self._columns:
            unnamed = np.arange(min(num_labels, size), size)
            inside = self._unmodelled[self._unmodelled < size]
            self._columns[size] = np.union1d(inside, unnamed)
        return self._columns[size]

    def ends(self, size: int) -> np.ndarray:
        """Return the tokens that end a text, validated against `size` outputs."""
        if len(self.eos) and (eos := self.eos[-1]) >= size:
            raise ShapeError(f"scores have V={size} columns, eos is {eos}")
        return self.eos


def walk(model: BackoffModel, labels: np.ndarray) -> int:
    """Return the state after some labels."""
    costs, start = np.empty(len(labels), np.float32), np.int32(model.start)
    return int(kernels.walk(model.automaton, 0, start, labels, costs))


def with_room(scores: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return a copy or None; the scores, float32 [N, V]; and the copy's data."""
    # Without a copy both arrays are zeros, for gains to be added by `with_gains`:
    # nothing is fetched from a device.
    is_tensor = hasattr(scores, "detach")
    on_host = is_tensor and scores.device.type == "cpu"
    if on_host and str(scores.dtype) == "torch.float32":
        own = scores.detach().contiguous()
        out = own.clone()
        return out, own.numpy(), out.numpy()
    if not is_tensor and scores.dtype == np.float32:
        own = np.ascontiguousarray(scores)
        out = own.copy()
        return out, own, out
    zeros = np.zeros((2, *scores.shape), np.float32)
    return None, zeros[0], zeros[1]


def with_gains(scores: Any, gains: np.ndarray) -> Any:
    """Return scores plus gains, in the type of the scores."""
    if hasattr(scores, "new_tensor"):
        return scores + scores.new_tensor(gains)
    return scores + gains.astype(scores.dtype)


class NgramLogitsProcessor:
    """Logits processor that adds `-weight * cost` of an n-gram model over tokens.

        total of a text = model + weight * (ln P(its tokens) + ln P(</s>))

    Costs are by true back-off, `</s>` at `eos`. Special tokens and timestamps cost
    nothing and keep the history. Rows may be reordered between calls.

    Args:
        lm: An ARPA file or an `NgramLM` over the names of the tokens
            (`token_table_of`).
        tokenizer: Of Transformers, or a processor that has one.
        weight: Below 0 the model is subtracted (that of the training text, for
            example); impossible tokens remain impossible.
        eos: The token or tokens that end a text; None takes the tokenizer's.
        neutral: Tokens that the model skips; None takes the tokenizer's (`neutral_of`).
        begin_index: Number of prompt tokens that are not text. Special tokens need not
            be counted; Whisper's `generate` sets it.
        unk_cost: As of `NgramLM.from_arpa`.

    Raises:
        InputError: One of its subclasses, for invalid arguments.
    """

    def __init__(
        self,
        lm: AnyLM,
        tokenizer: Any,
        weight: float = 1.0,
        *,
        eos: int | Iterable[int] | None = None,
        neutral: Collection[int] | None = None,
        begin_index: int = 0,
        unk_cost: float | None = None,
    ) -> None:
        if not abs(weight) < float("inf"):
            raise OptionError(f"weight={weight!r}, expected a number")
        self.weight = float(weight)
        self.lm = lm_over(read_lm(lm), token_table_of(tokenizer), unk_cost)
        marks = neutral_of(tokenizer) if neutral is None else neutral
        ends = ends_of(eos, tokenizer)
        self._rows: TextRows[int] = TextRows(marks, ends, begin_index)
        self._kept: tuple[np.ndarray, np.ndarray] | None = None

    def __repr__(self) -> str:
        return f"NgramLogitsProcessor({self.lm!r}, weight={self.weight!r})"

    def set_begin_index(self, begin_index: int) -> None:
        """Begin a text after a prompt; Whisper's `generate` calls it."""
        self._rows.begin(begin_index)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return scores [N, V] plus the model's, for tokens [N, U]."""
        rows = self._rows
        ids = rows.tokens(input_ids)
        states = self._states(ids)
        rows.keep(ids, states.tolist(), len(ids) or 1)
        size = int(scores.shape[1])
        costs, nextstates = self._buffers(len(ids), size)
        models = np.zeros_like(states)
        kernels.rows(self.lm.automaton, models, states, costs, nextstates)
        costs[:, rows.silent_columns(self.lm.num_labels - 1, size)] = 0
        costs[:, rows.ends(size)] = self.lm.automaton.final_cost[states][:, None]
        gains = weighted_gains(costs, self.weight)
        out, _, written = with_room(scores)
        written += gains
        return out if out is not None else with_gains(scores, written)

    def _buffers(self, num: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return arrays [num, size] for costs and next states, kept between calls."""
        # Fresh arrays would be new pages each time: 5 of 12 ms at 40 rows of 51,865.
        if self._kept is None or self._kept[0].shape != (num, size):
            shape = num, size
            self._kept = np.empty(shape, np.float32), np.empty(shape, np.int32)
        return self._kept

    def _states(self, ids: np.ndarray) -> np.ndarray:
        rows = self._rows
        before = [
            walk(self.lm, rows.labels_of(row[:-1])) if known is None else known
            for row, known in zip(ids, rows.parents(ids), strict=True)
        ]
        states = np.array(before, np.int32)
        if not ids.shape[1]:
            return states
        _, after = self.lm.step_batch(states, ids[:, -1])
        return np.where(rows.is_silent(ids[:, -1]), states, after)


def weighted_gains(costs: np.ndarray, weight: float) -> np.ndarray:
    """Return `-weight * costs`, in place; `inf` is always impossible."""
    if weight == 0:
        costs[:] = 0
        return costs
    costs *= np.float32(-weight)
    if weight < 0:
        costs[np.isposinf(costs)] = -np.inf
    return costs


class Text(NamedTuple):
    """State of the phrases after a row's text."""

    state: int  # of the phrases, after its last token
    mode: int = OPEN  # `CLOSING`: closed for all continuations; `CLOSED`


class PhraseBoostLogitsProcessor:
    """Logits processor that boosts phrases; see the module's docstring.

    Rows may be reordered, repeated and dropped between calls. Greedy search, beams and
    sampling all work: the boosts do not depend on whether scores are normalised. By
    default `generate` divides totals by their length and stops early, which invalidates
    boosts: use `length_penalty=0.0` and `early_stopping="never"`.

    Args:
        phrases: For all utterances: phrases with weights (below 0 is a penalty), or a
            sequence of phrases, whose bonuses follow from the list. Or a sequence of
            such lists, one for each utterance of a batch. A processor then serves one
            call of `generate` of short audio, since Whisper drops finished utterances.
        tokenizer: Of Transformers, or a processor that has one.
        options: Bonuses of phrases by their weights (1 without one); None: one nat for
            each token of a phrase with a weight.
        eos: Token or tokens that end a text; None takes the tokenizer's.
        end_rule: `"closed"` or `"none"`.
        neutral: Tokens without text; None takes the tokenizer's.
        begin_index: Number of prompt tokens that are not text. Special tokens need not
            be counted; Whisper's `generate` sets it.
        max_length: That of `generate`: a text cut off there refunds the credit of an
            incomplete phrase.
        max_new_tokens: The same, counted from the prompt; instead of `max_length`.
        variants: Spelling variants of phrases.

    Raises:
        InputError: One of its subclasses, for invalid arguments.

    Warns:
        BoostWarning: Phrases that the tokenizer cannot spell; names them.
    """

    def __init__(
        self,
        phrases: Phrases | Sequence[Phrases],
        tokenizer: Any,
        *,
        options: PhraseOptions | None = None,
        eos: int | Iterable[int] | None = None,
        end_rule: EndRule = "closed",
        neutral: Collection[int] | None = None,
        begin_index: int = 0,
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        variants: Callable[[str], Iterable[str]] = written_ways,
    ) -> None:
        if end_rule not in get_args(EndRule):
            raise OptionError(f"end_rule={end_rule!r}, expected {get_args(EndRule)}")
        if max_length is not None and max_new_tokens is not None:
            raise OptionError("both max_length and max_new_tokens, expected one")
        self.end_rule: EndRule = end_rule
        self._max_length, self._max_new_tokens = max_length, max_new_tokens
        marks = neutral_of(tokenizer) if neutral is None else frozenset(neutral)
        ends = ends_of(eos, tokenizer)
        table = token_table_of(tokenizer)
        self._num_named = len(table) - 1
        cut = ids_of(tokenizer)
        speller = IdSpeller(cut, barred=marks.union(ends), variants=variants)
        usual = PhraseOptions(uniform=True)
        rule = partial(bonuses_of_lengths, len(table)) if options is None else None
        compiler = PhraseCompiler(speller, table, options or usual, defaults=rule)
        is_none = isinstance(phrases, Sequence) and not len(phrases)
        self._is_for_all = is_none or is_one_list(phrases)
        lists: Any = [phrases] if self._is_for_all else phrases
        self.lists = tuple(_compiled(one, compiler) for one in lists)
        self._num_begun, self._num_rows = 0, 0
        self._rows: TextRows[Text] = TextRows(marks, ends, begin_index)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.lists[:3]))
        more = f" and {len(self.lists) - 3} more" if len(self.lists) > 3 else ""
        return f"PhraseBoostLogitsProcessor({shown}{more}, end_rule={self.end_rule!r})"

    def set_begin_index(self, begin_index: int) -> None:
        """Begin a text after a prompt; Whisper's `generate` calls it.

        Raises:
            OptionError: Called twice with a list for each utterance: the remaining
                utterances are unknown then.
        """
        self._num_begun += 1
        if not self._is_for_all and self._num_begun > 1:
            raise OptionError(
                "a list for each utterance in a second piece of audio or call of "
                "generate: Whisper does not say which it drops; expected one list for "
                "all, or pieces of at most 30 s and a processor for each call"
            )
        self._rows.begin(begin_index)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return scores [N, V] with the boosts, for tokens [N, U]."""
        per_list = self._rows_per_list(len(scores))
        ids = self._rows.tokens(input_ids)
        before = self._rows.parents(ids)
        blocks = [slice(one, one + per_list) for one in range(0, len(ids), per_list)]
        texts: list[Text] = []
        for boosts, block in zip(self.lists, blocks, strict=True):
            texts += _texts_of(self._rows, boosts, ids[block], before[block])
        if self.end_rule == "closed":
            # Rows in which an end scores best.
            ends = scores[:, self._rows.ends(int(scores.shape[1])).tolist()]
            of_ends, of_all = (
                one.amax(1) if hasattr(one, "amax") else one.max(1)
                for one in (ends, scores)
            )
            ended = (of_ends >= of_all).tolist()
            texts = [
                one._replace(mode=CLOSING) if is_end and one.mode == OPEN else one
                for one, is_end in zip(texts, ended, strict=True)
            ]
        self._rows.keep(ids, texts, self._width(scores, per_list, before))
        # Whether `generate` cuts texts off after the next token.
        longest = self._max_length
        if self._max_new_tokens is not None:
            longest = self._rows.begin_index + self._max_new_tokens
        is_last = longest is not None and int(input_ids.shape[1]) + 1 >= longest
        out, own, written = with_room(scores)
        for boosts, block in zip(self.lists, blocks, strict=True):
            states = self._states(boosts, texts[block], own.shape[1])
            rows = states, own[block], written[block]
            credit_rows(boosts.automaton, *rows, is_last)
        return out if out is not None else with_gains(scores, written)

    def _rows_per_list(self, num_rows: int) -> int:
        if num_rows % (num := len(self.lists)) or not num_rows:
            raise ShapeError(f"{num_rows} rows of scores, expected a multiple of {num}")
        if not self._is_for_all and self._num_rows not in (0, num_rows):
            raise ShapeError(
                f"{num_rows} rows of scores after {self._num_rows}, with a list for "
                "each utterance: whose are gone? expected as many, or one list for all"
            )
        self._num_rows = num_rows
        return num_rows // len(self.lists)

    def _width(self, scores: Any, per_list: int, before: Sequence[Text | None]) -> int:
        """Return the rows of an utterance: without text they have equal scores."""
        if not self._is_for_all:
            return per_list
        if self.end_rule != "closed":
            return len(scores)
        if any(known is not None for known in before):
            return self._rows.width
        whole = [n for n in range(len(scores), 1, -1) if len(scores) % n == 0]
        return next((n for n in whole if _are_alike(scores, n)), 1)

    def _states(
        self, boosts: PhraseBoosts, texts: Sequence[Text], size: int
    ) -> RowStates:
        labels = boosts.automaton.arc_label
        if len(labels) and (last := labels.max()) >= size:
            what = f"scores have V={size} columns, the tokenizer spells by token {last}"
            raise ShapeError(f"{what}: another model's")
        states, modes = zip(*texts, strict=True)
        return RowStates(
            row=np.arange(len(texts)),
            state=np.array(states, np.int32),
            mode=np.array(modes, np.int8),
            silent=self._rows.silent_columns(self._num_named, size),
            ends=self._rows.ends(size),
        )


def _compiled(phrases: Any, compiler: PhraseCompiler) -> PhraseBoosts:
    if not isinstance(phrases, PhraseBoosts):
        return compiler.compile({} if phrases is None else phrases)
    given, size = f"{phrases.num_labels} {phrases.unit}s", compiler.num_labels
    if given != (expected := f"{size} tokens"):
        raise BoostError(f"phrases over {given}, expected {expected}")
    return phrases


def _texts_of(
    rows: TextRows, boosts: PhraseBoosts, ids: np.ndarray, before: Sequence[Text | None]
) -> list[Text]:
    """Return the states of some rows: one step from known ones, or from the start."""
    parents = [
        _walked(rows, boosts, row[:-1]) if known is None else known
        for row, known in zip(ids, before, strict=True)
    ]
    if not ids.shape[1]:
        return parents
    states = np.array([one.state for one in parents], np.int32)
    _, after = boosts.step_batch(states, ids[:, -1])
    after = np.where(rows.is_silent(ids[:, -1]), states, after)
    modes = (OPEN if one.mode == OPEN else CLOSED for one in parents)
    return [Text(int(s), mode) for s, mode in zip(after, modes, strict=True)]


def _walked(rows: TextRows, boosts: PhraseBoosts, row: np.ndarray) -> Text:
    labels = rows.labels_of(row)
    before = Text(walk(boosts, labels[:-1]))
    return _texts_of(rows, boosts, labels[None, -1:], [before])[0]


def _are_alike(scores: Any, width: int) -> bool:
    """Return whether each `width` rows have equal scores, up to rounding."""
    groups = scores.reshape(-1, width, scores.shape[1])
    first, others = groups[:, :1], groups[:, 1:]
    is_close = getattr(first, "isclose", partial(np.isclose, first))
    return bool(is_close(others, rtol=_ALIKE, atol=_ALIKE).all())
