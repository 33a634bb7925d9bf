"""Hypotheses returned to the user: words with times, and costs."""

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from wfstdec.errors import OptionError, ShapeError
from wfstdec.text.display import html_table, join_words, short

NO_CUTOFF = np.float32(np.finfo(np.float32).max)
"""Cutoff that keeps every finite cost; infinite costs are above it."""


class CostAccount(NamedTuple):
    """Costs of a path, nats, added in float64; attributes are those of `Hypothesis`.

    total_cost = acoustic_scale * acoustic_cost
                 + ((lm_scale * graph_cost + insertion_cost) + boost_cost)
    """

    total_cost: float
    graph_cost: float
    acoustic_cost: float
    insertion_cost: float
    boost_cost: float

    @classmethod
    def of_path(
        cls,
        options: Any,
        *,
        graph: float,
        acoustic: float,
        insertion: float,
        boost: float,
    ) -> Self:
        """Return a path's account; `options` have the scales, the sums are unscaled."""
        rest = options.lm_scale * graph + insertion + boost
        total = options.acoustic_scale * acoustic + rest
        return cls(total, graph, acoustic, insertion, boost)

    @classmethod
    def of_total(cls, options: Any, *, total: float, **others: float) -> Self:
        """Return the account of summed alignments, the rest as acoustic cost."""
        known = cls.of_path(options, acoustic=0.0, **others)
        scale = options.acoustic_scale
        acoustic = (total - known.total_cost) / scale if scale else 0.0
        return known._replace(total_cost=total, acoustic_cost=acoustic)


def insertion_cost(cost: float, count: int) -> float:
    """Return the cost of `count` words or tokens at `cost` each; never -0.0."""
    return float(cost * count) + 0.0


SECONDS_DIGITS = 6
"""Seconds are rounded to microseconds: frame * shift may be 0.6000000000000001."""


def seconds(frame: int, frame_shift_s: float, offset_s: float = 0.0) -> float:
    """Return the time of a frame in seconds, from `offset_s` on."""
    return round(frame * frame_shift_s + offset_s, SECONDS_DIGITS)


class Word(NamedTuple):
    """A word of a hypothesis.

    Attributes:
        text: The word as in the word table.
        start_s: Start of its first token in seconds, rounded to the microsecond.
        end_s: End of its last token in seconds, rounded to the microsecond.
        start_frame: The first frame of its first token.
        end_frame: One after the last frame of its last token.
        confidence: The probability that it is correct, 0 to 1, among the decoder's
            outputs; None if not requested.
        acoustic_confidence: How close its tokens are to the model's own most probable
            ones, 0 to 1 (`wfstdec.search.nearness`): low where the audio has another
            word. CTC only, with `confidence`; otherwise None.
    """

    text: str
    start_s: float
    end_s: float
    start_frame: int
    end_frame: int
    confidence: float | None = None
    acoustic_confidence: float | None = None


CONFIDENCES = "confidence", "acoustic_confidence"


class Token(Word):
    """Token of a hypothesis; fields as in `Word`."""

    __slots__ = ()


def words_as_dicts(words: tuple[Word, ...]) -> list[dict[str, Any]]:
    """Return words for JSON: text, times in seconds, confidences if any."""
    dicts = []
    for word in words:
        start, end = (
            round(float(x), SECONDS_DIGITS) for x in (word.start_s, word.end_s)
        )
        timed: dict[str, Any] = {"word": word.text, "start_s": start, "end_s": end}
        for name in CONFIDENCES:
            if (value := getattr(word, name)) is not None:
                timed[name] = round(float(value), 6)
        dicts.append(timed)
    return dicts


class HasWords:
    """Base of classes with words: their text, and a table for notebooks."""

    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        """The words, with spaces where their script uses them."""
        return join_words(word.text for word in self.words)

    @property
    def spaced_text(self) -> str:
        """The words separated by spaces in any script, for word comparisons."""
        text = self.text  # computed without words where possible
        return text if text.isascii() else " ".join(word.text for word in self.words)

    def to_srt(self, options: Any = None) -> str:
        """Return SubRip subtitles; `options` are `wfstdec.io.SubtitleOptions`."""
        subtitles = importlib.import_module("wfstdec.io.subtitles")  # it imports us
        return str(subtitles.srt_text(self.words, options))

    def _repr_html_(self) -> str:
        has_confidences = any(word.confidence is not None for word in self.words)
        rows = []
        for word in self.words:
            sure = "" if word.confidence is None else f"{word.confidence:.2f}"
            cells = [word.text, f"{word.start_s:.2f}", f"{word.end_s:.2f}"]
            rows.append([*cells, sure] if has_confidences else cells)
        header = ["word", "start_s", "end_s", *(["confidence"] * has_confidences)]
        return html_table(rows, header, caption=self.text)


@dataclass(frozen=True)
class Hypothesis(HasWords):
    """The best path of one utterance.

        total_cost = acoustic_scale * acoustic_cost + lm_scale * graph_cost
                     + insertion_cost + boost_cost

    Costs are in nats, lower is better, added in float64 along the path. A decoder may
    compute attributes on first access.

    Attributes:
        words: In order.
        token_ids: The tokens, blanks left out, in order.
        token_frames: The first frame of each and one after its last, two tuples.
        token_names: The token table's names.
        frame_shift_s: Seconds per frame.
        total_cost: The cost that the search minimized.
        graph_cost: Arcs and final cost, before `lm_scale`.
        acoustic_cost: Negated log-probs, before `acoustic_scale`.
        insertion_cost: `word_insertion` times the number of words.
        boost_cost: Minus the credited boosts.
        reached_final: Whether the path ends in a final state; otherwise it is the best
            incomplete path.
        num_frames: Frames decoded.
        died_at_frame: The frame at which no path survived, or None.
        offset_s: Seconds before its first frame; all times include them.
    """

    words: tuple[Word, ...]
    token_ids: tuple[int, ...] = field(repr=False)
    token_frames: tuple[tuple[int, ...], tuple[int, ...]] = field(repr=False)
    token_names: tuple[str, ...] = field(repr=False)
    frame_shift_s: float
    total_cost: float
    graph_cost: float
    acoustic_cost: float
    insertion_cost: float
    boost_cost: float
    reached_final: bool
    num_frames: int
    died_at_frame: int | None = None
    offset_s: float = 0.0

    @classmethod
    def on_demand(cls, batch: Any, path: int) -> Self:
        """Return the hypothesis of a path whose attributes a `PathBatch` computes."""
        hypothesis = object.__new__(cls)
        hypothesis.__dict__["_source"] = batch, path
        return hypothesis

    @property
    def text(self) -> str:
        """The words, joined by spaces."""
        source = self.__dict__.get("_source")
        if source is not None and "words" not in self.__dict__:
            batch, path = source
            return batch.text(path)
        return super().text

    def __getattr__(self, name: str) -> Any:
        known = self.__dict__
        source = known.get("_source")
        if source is not None and name in self.__dataclass_fields__:
            batch, path = source
            known |= batch.fields(path, name)  # two threads compute the same values
            if self.__dataclass_fields__.keys() <= known.keys():
                known.pop("_source", None)
        if name in known:
            return known[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        for name in self.__dataclass_fields__:
            getattr(self, name)
        return dict(self.__dict__)

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens with their times, in order."""
        shift, offset = self.frame_shift_s, self.offset_s
        return tuple(
            Token(
                self.token_names[token],
                seconds(start, shift, offset),
                seconds(end, shift, offset),
                *(start, end),
            )
            for token, start, end in zip(
                self.token_ids, *self.token_frames, strict=True
            )
        )

    @property
    def duration_s(self) -> float:
        """Duration in seconds."""
        return seconds(self.num_frames, self.frame_shift_s)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict of Python's own types for `json.dumps`, as in JSON lines.

        Words are dicts of `word`, `start_s`, `end_s` and, if requested, `confidence`;
        infinite costs become None.
        """
        costs = {name: getattr(self, name) for name in CostAccount._fields}
        return {
            "text": self.text,
            "words": words_as_dicts(self.words),
            **{one: float(x) if math.isfinite(x) else None for one, x in costs.items()},
            "reached_final": bool(self.reached_final),
            "num_frames": int(self.num_frames),
            "died_at_frame": self.died_at_frame,
        }

    def with_confidences(self, confidences: Sequence[float]) -> Self:
        """Return a copy with a confidence for each word."""
        pairs = zip(self.words, confidences, strict=True)
        words = tuple(word._replace(confidence=float(sure)) for word, sure in pairs)
        return replace(self, words=words)

    def with_posteriors(self, others: Sequence[Self], scale: float = 1.0) -> Self:
        """Return a copy whose word confidences are n-best posterior probabilities.

        `others`: its n-best list. `scale`: multiplies costs.
        """
        costs = scale * np.array([one.total_cost for one in others])
        weights = np.exp(costs.min() - costs)
        words = [word.text for word in self.words]
        sure = np.zeros(len(words))
        for weight, one in zip(weights / weights.sum(), others, strict=True):
            theirs = [word.text for word in one.words]
            blocks = SequenceMatcher(None, words, theirs, autojunk=False)
            for first, _, size in blocks.get_matching_blocks():
                sure[first : first + size] += weight
        return self.with_confidences(np.minimum(sure, 1.0).tolist())

    def later_by(self, offset_s: float) -> Self:
        """Return a copy with all times later by `offset_s`; frames are unchanged."""
        words = tuple(word_later_by(word, offset_s) for word in self.words)
        return replace(self, words=words, offset_s=self.offset_s + offset_s)

    def __repr__(self) -> str:
        ended = "" if self.reached_final else ", reached_final=False"
        return (
            f"{type(self).__name__}({short(self.text)}, {len(self.words)} words, "
            f"{self.duration_s:g} s, total_cost={self.total_cost:g}{ended})"
        )


def word_later_by(word: Word, offset_s: float) -> Word:
    """Return a word with its times later by `offset_s`."""
    start, end = word.start_s + offset_s, word.end_s + offset_s
    return word._replace(
        start_s=round(start, SECONDS_DIGITS), end_s=round(end, SECONDS_DIGITS)
    )


@dataclass(frozen=True)
class Partial(HasWords):
    """Partial result of a session: the best hypothesis so far.

    Attributes:
        words: In order; the last one may be incomplete.
        num_settled: Number of first words that can no longer change.
        num_timed: Number of them whose times can no longer change.
        num_frames: Frames decoded.
        silent_frames: Frames since the end of the last word token; all before the
            first.
        final_cost: Cost of ending now relative to continuing, nats; `inf` if no path
            can end now.
    """

    words: tuple[Word, ...]
    num_settled: int
    num_timed: int
    num_frames: int
    silent_frames: int
    final_cost: float

    def __repr__(self) -> str:
        settled = f"{self.num_settled} of {len(self.words)} words settled"
        return f"Partial({short(self.text)}, {settled}, {self.num_frames} frames)"

    @property
    def settled_text(self) -> str:
        """Text of the settled words."""
        return join_words(word.text for word in self.words[: self.num_settled])


def rescore_texts(
    lists: Sequence[Sequence[Hypothesis]],
    log_probs: Callable[[list[str]], Sequence[float]],
    *,
    lm_scale: float = 1.0,
    graph_weight: float = 0.0,
    acoustic_scale: float = 1.0,
) -> list[list[Hypothesis]]:
    """Reorder n-best lists by new totals; ties keep their order.

        graph_cost = -log_prob + graph_weight * the old graph_cost
        total_cost = acoustic_scale * acoustic_cost + lm_scale * graph_cost
                     + insertion_cost + boost_cost

    Args:
        lists: Hypotheses of each utterance, as from `decode_nbest`.
        log_probs: Natural log-probabilities of texts; called once with all different
            texts.
        lm_scale: Multiplies the new graph cost.
        graph_weight: Weight of the old graph cost.
        acoustic_scale: That of the search.

    Raises:
        OptionError: A scale or weight is not a finite number.
        ShapeError: Another number of log-probabilities than texts, or NaN.
    """
    for name, value in (
        ("lm_scale", lm_scale),
        ("graph_weight", graph_weight),
        ("acoustic_scale", acoustic_scale),
    ):
        if not math.isfinite(value):
            raise OptionError(f"{name}={value!r}, expected a finite number")
    texts = list(dict.fromkeys(hyp.text for hyps in lists for hyp in hyps))
    found = [float(value) for value in log_probs(texts)]
    if len(found) != len(texts) or any(map(math.isnan, found)):
        raise ShapeError(
            f"log_probs gave {len(found)} numbers, NaN among them or not, expected "
            f"{len(texts)} log-probabilities, one for each text"
        )
    known = dict(zip(texts, found, strict=True))

    def priced(hyp: Hypothesis) -> Hypothesis:
        graph = -known[hyp.text]
        if graph_weight:
            graph += graph_weight * hyp.graph_cost
        rest = lm_scale * graph + hyp.insertion_cost + hyp.boost_cost
        total = acoustic_scale * hyp.acoustic_cost + rest
        return replace(hyp, graph_cost=graph, total_cost=total)

    return [sorted(map(priced, hyps), key=lambda hyp: hyp.total_cost) for hyps in lists]
