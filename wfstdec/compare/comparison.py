"""Searches of a comparison, its points, and its table.

A `Search` is a decoder with all its settings; it returns an `Outcome` per utterance.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from wfstdec.compare.quality import OracleErrors
from wfstdec.metrics import Interval, WordErrors
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.text.files import PathLike, atomic_write, read_lines, reading

Setting = Mapping[str, Any]  # Options by name: numbers, strings, booleans or None


def label(setting: Setting) -> str:
    """Return `beam 8, max_active 2000`."""
    return ", ".join(
        f"{name} {x:g}" if isinstance(x, float) else f"{name} {str(x).lower()}"
        for name, x in setting.items()
    )


class Outcome(NamedTuple):
    """Text and cost of an utterance by a search."""

    text: str  # The words, joined by single spaces
    # Minimised cost, nats; None if unknown
    total_cost: float | None = None
    # Whether the path reached a final state; None if unknown
    reached_final: bool | None = None

    @classmethod
    def of(cls, hypothesis: Hypothesis) -> Outcome:
        """Return the outcome of a hypothesis."""
        cost, reached = float(hypothesis.total_cost), bool(hypothesis.reached_final)
        return cls(hypothesis.spaced_text, cost, reached)


Decode = Callable[[Sequence[np.ndarray], Sequence[Any] | None], Sequence[Outcome]]
"""Function from log-probs, float32 [T, V] each, and boosts by utterance or None."""


@dataclass(frozen=True)
class SearchFacts:
    """Facts of a search that hold for all its settings."""

    # All options by name; settings change some
    options: Setting = field(default_factory=dict)
    # Wall seconds to load the shared parts; None if unknown
    load_s: float | None = None
    # Growth of the resident set by loading; excluded from `Point.memory_mb`
    load_mb: float | None = None
    # Fingerprints of loaded files, by name
    inputs: Mapping[str, str] = field(default_factory=dict)
    takes_boosts: bool = True  # Whether it also ran with the boost lists


class Search(ABC):
    """Decoder with all the settings to run."""

    name: str  # in tables and plots
    # narrowest first; search errors are relative to the last
    settings: Sequence[Setting]
    facts = SearchFacts()  # valid for all settings
    takes_boosts = True
    clock: Callable[[], float] | None = None  # CPU seconds so far in its own model

    def compile_boosts(self, boosts: Sequence[Any]) -> Sequence[Any]:
        """Return the boosts of each utterance for `Decode`; not timed."""
        return boosts

    @abstractmethod
    def prepare(self, setting: Setting) -> Decode:
        """Return a decoder that runs in one thread."""

    def lattice_decoder(self, setting: Setting) -> Decoder | None:
        """Return a decoder of a setting for lattices; None if it has none."""
        return None


@dataclass(frozen=True)
class PhraseScore:
    """Occurrences of phrases in references and hypotheses."""

    hits: int  # Occurrences in both
    in_references: int
    in_hypotheses: int

    @property
    def precision(self) -> float | None:
        """Hits among the occurrences in the hypotheses; None without any."""
        return self.hits / self.in_hypotheses if self.in_hypotheses else None

    @property
    def recall(self) -> float | None:
        """Hits among the occurrences in the references; None without any."""
        return self.hits / self.in_references if self.in_references else None

    @property
    def f_score(self) -> float | None:
        """Harmonic mean of precision and recall; None without occurrences."""
        whole = self.in_references + self.in_hypotheses
        return 2 * self.hits / whole if whole else None


class PhraseCounter:
    """Counter of phrases in texts; its time does not depend on the list's length."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self._by_length: dict[int, set[tuple[str, ...]]] = defaultdict(set)
        for phrase in phrases:
            words = tuple(phrase.split())
            if words:
                self._by_length[len(words)].add(words)

    def __len__(self) -> int:
        return sum(map(len, self._by_length.values()))

    def count(self, words: Sequence[str]) -> Counter[tuple[str, ...]]:
        """Return the phrases in a text, with their counts."""
        text, found = tuple(words), Counter[tuple[str, ...]]()
        for length, known in self._by_length.items():
            starts = range(len(text) - length + 1)
            found.update(x for i in starts if (x := text[i : i + length]) in known)
        return found

    def score(
        self,
        references: Mapping[str, Sequence[str]],
        hypotheses: Mapping[str, Sequence[str]],
    ) -> PhraseScore:
        """Score the hypotheses of all utterances of the references."""
        counts = np.zeros(3, np.int64)
        for utterance, reference in references.items():
            expected = self.count(reference)
            decoded = self.count(hypotheses.get(utterance, ()))
            several = expected & decoded, expected, decoded
            counts += [one.total() for one in several]
        return PhraseScore(*counts.tolist())


FORMAT, FORMAT_VERSION = "wfstdec.compare", 2

ONLY_SETTING = "only setting"
"""Name of the setting without options, of a search without widths."""


@dataclass(frozen=True)
class Point:
    """Measurements of a search at one setting.

    Attributes:
        search: Name of the search.
        boosts: Name of the boost list, None for none.
        setting: Options in which the points of a search differ.
        errors: Word errors over all utterances.
        phrases: Scores of the key phrases, if any.
        cpu_s: CPU seconds of one thread to decode all utterances, by repetition.
        audio_s: Seconds of audio in them.
        search_errors: Share of utterances whose total cost is above that of the
            search's widest setting, or that miss a final state reached by it; None
            without costs, or for a single setting.
        unfinished: Share of the utterances without a final state; None if unknown.
        memory_mb: Growth of the resident set to its peak, while the decoder is built
            and runs.
        model_s: CPU seconds of `cpu_s` in the search's model.
        kept: Oracle errors of n-best lists and lattices; None where not requested.
        wer_interval: 95 % interval of the WER, percent, see `wfstdec.metrics`; None
            for fewer than two utterances, or without any error.
    """

    search: str
    boosts: str | None
    setting: Setting
    errors: WordErrors
    phrases: PhraseScore | None
    cpu_s: tuple[float, ...]
    audio_s: float
    search_errors: float | None
    unfinished: float | None
    memory_mb: float
    model_s: tuple[float, ...] = ()
    kept: OracleErrors | None = None
    wer_interval: Interval | None = None

    @property
    def wer(self) -> float:
        """Word errors per hundred reference words."""
        return self.errors.rate

    @property
    def rtfx(self) -> float:
        """Seconds of audio per CPU second of one thread, in the fastest repetition."""
        return self.audio_s / max(min(self.cpu_s), 1e-9)

    @property
    def series(self) -> str:
        """Search and boost list: the group in tables and plots."""
        return self.search + (f" + {self.boosts}" if self.boosts else "")

    @property
    def label(self) -> str:
        """Setting as text."""
        return label(self.setting) or ONLY_SETTING


@dataclass(frozen=True)
class Comparison:
    """Measurements of searches on the same utterances.

    Attributes:
        points: In the order of searches, boost lists and settings.
        searches: Facts of each search, by name.
        facts: Date, machine, versions, data and fingerprints of the inputs.
    """

    points: tuple[Point, ...]
    searches: Mapping[str, SearchFacts]
    facts: Mapping[str, Any]

    @property
    def lists(self) -> list[str | None]:
        """Boost lists of the points in order, None for none."""
        return list(dict.fromkeys(point.boosts for point in self.points))

    def heading(self, point: Point) -> str:
        """Return the series of a point, with a note if its search takes no boosts."""
        named = any(self.lists) and not self.searches[point.search].takes_boosts
        return point.series + (" (takes no boosts)" if named else "")

    def front(self, boosts: str | None = None) -> list[Point]:
        """Return the Pareto front of the points of a boost list, fastest first.

        A point is on it if no other is at least as fast and accurate, and better in
        one.
        """
        return pareto(point for point in self.points if point.boosts == boosts)

    def save(self, path: PathLike) -> None:
        """Write JSON atomically; `load_comparison` returns an equal object.

        Raises:
            FormatError: The file cannot be written.
        """
        content = {"format": FORMAT, "version": FORMAT_VERSION, **asdict(self)}
        # JSON has no infinity: the text "inf" represents it.
        plain = json.loads(json.dumps(content), parse_constant={"Infinity": "inf"}.get)
        with atomic_write(path, "w") as file:
            file.write(json.dumps(plain, indent=1, allow_nan=False) + "\n")


def load_comparison(path: PathLike) -> Comparison:
    """Read the output of `Comparison.save`.

    Raises:
        FormatError: The file cannot be read, or has another format.
    """
    wrote = f"what `wfstdec compare --json` wrote, version {FORMAT_VERSION}"
    with reading(path, "comparison", wrote):
        found = json.loads("\n".join(read_lines(path)))
        if (found["format"], found["version"]) != (FORMAT, FORMAT_VERSION):
            raise ValueError(f"{found['format']} {found['version']}")
        searches = found["searches"].items()
        facts = {name: SearchFacts(**_read(one)) for name, one in searches}
        points = tuple(Point(**_read(point)) for point in found["points"])
        return Comparison(points, facts, found["facts"])


def pareto(points: Iterable[Point]) -> list[Point]:
    """Return the points that no other dominates in WER and RTFx, fastest first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (-point.rtfx, point.wer)):
        if not front or point.wer < front[-1].wer:
            front.append(point)
    return front


def _setting(found: dict[str, Any]) -> Setting:
    return {key: math.inf if one == "inf" else one for key, one in found.items()}


_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "options": _setting,
    "setting": _setting,
    "errors": lambda one: WordErrors(**one),
    "phrases": lambda one: PhraseScore(**one),
    "kept": lambda one: OracleErrors(**one),
    "wer_interval": lambda one: Interval(*one),
    "cpu_s": tuple,
    "model_s": tuple,
}


def _read(found: dict[str, Any]) -> dict[str, Any]:
    for name in found.keys() & _KINDS:
        if found[name] is not None:
            found[name] = _KINDS[name](found[name])
    return found


NONE = "-"  # Placeholder of missing figures

COLUMNS: Mapping[str, tuple[str, Callable[[Point], str]]] = {
    "setting": ("", lambda p: p.label),
    "WER %": ("", lambda p: f"{p.wer:.2f}"),
    "95 %": ("", lambda p: str(p.wer_interval or NONE)),
    "ins/del/sub": ("", lambda p: "/".join(map(str, astuple(p.errors)[:3]))),
    "RTFx": ("", lambda p: f"{p.rtfx:,.0f}"),
    "search errors %": ("", lambda p: _percent(p.search_errors)),
    "unfinished %": ("", lambda p: _percent(p.unfinished)),
    "MB": ("", lambda p: f"{p.memory_mb:,.0f}"),
    "phrases: P %": ("phrases", lambda p: _phrases(p, "precision")),
    "R %": ("phrases", lambda p: _phrases(p, "recall")),
    "F %": ("phrases", lambda p: _phrases(p, "f_score")),
    "best of list %": ("kept", lambda p: _wer(p, "list_wer")),
    "of lattice %": ("kept", lambda p: _wer(p, "lattice_wer")),
    "model s": ("model_s", lambda p: f"{_model_s(p):.2f}" if p.model_s else NONE),
    "search s": ("model_s", lambda p: f"{min(p.cpu_s) - _model_s(p):.2f}"),
}
"""Columns: the field that a point must have, and its cells."""


def table(comparison: Comparison) -> str:
    """Return a table by search and boost list; `*` marks the Pareto front."""
    points = comparison.points
    columns = {
        name: cell
        for name, (needed, cell) in COLUMNS.items()
        if not needed or any(getattr(point, needed) for point in points)
    }
    fronts = {id(one) for name in comparison.lists for one in comparison.front(name)}
    rows = [["", *columns]]
    for series, several in groupby(points, comparison.heading):
        rows.append([series])
        for point in several:
            setting, *others = [cell(point) for cell in columns.values()]
            mark = " *" if id(point) in fronts else ""
            rows.append(["", setting + mark, *others])
    facts = comparison.facts
    headline = (
        f"{facts['utterances']} utterances, {facts['audio_s'] / 60:.1f} min of audio, "
        f"{facts['reference_words']:,} words; {facts['machine']['cpu'].split(',')[0]}, "
        f"{facts['date']}"
    )
    return "\n".join([headline, "", *_lines(rows), "", *_notes(comparison)])


def _percent(share: float | None) -> str:
    return NONE if share is None else f"{100 * share:.1f}"


def _phrases(point: Point, name: str) -> str:
    return _percent(getattr(point.phrases, name, None))


def _wer(point: Point, name: str) -> str:
    percent = getattr(point.kept, name, None)
    return NONE if percent is None else f"{percent:.2f}"


def _model_s(point: Point) -> float:
    fastest = point.cpu_s.index(min(point.cpu_s))
    return point.model_s[fastest] if point.model_s else 0.0


def _lines(rows: Sequence[Sequence[str]]) -> list[str]:
    full = [row for row in rows if len(row) > 1]
    first, *widths = [max(map(len, column)) for column in zip(*full, strict=True)][1:]
    lines = []
    for heading, *row in rows:
        if row:
            cells = map(str.rjust, row[1:], widths)
            heading = "  " + "  ".join([row[0].ljust(first), *cells]).rstrip()
        lines.append(heading)
    return lines


def _notes(comparison: Comparison) -> list[str]:
    facts = comparison.facts
    loads: dict[str, list[str]] = {}
    for name, one in comparison.searches.items():
        if one.load_mb is not None and one.load_s is not None:
            taken = f"{one.load_mb:,.0f} MB in {one.load_s:.1f} s"
            loads.setdefault(taken, []).append(name)
    sizes = sorted({point.kept.nbest for point in comparison.points if point.kept})
    listed = [f"{' and '.join(names)} {taken}" for taken, names in loads.items()]
    return [
        f"RTFx: seconds of audio per CPU second of one thread, best of "
        f"{facts['repeats']} alternated runs. Search errors: total",
        "cost above that of the widest setting of the same search. MB: growth of the "
        "resident set while",
        "the decoder is made and decodes. *: no point is faster and as accurate. 95 %: "
        "bootstrap over",
        "utterances; searches on the same ones differ less by chance than these show.",
        *([f"Loaded before: {'; '.join(listed)}."] if listed else []),
        *(
            f"Best of list, of lattice: the WER of the best of {size} texts, and of "
            "the best path that was kept."
            for size in sizes
        ),
    ]
