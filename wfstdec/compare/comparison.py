"""The outcome of a comparison: points, each with what was measured, and files of them.

comparison.front(None)                     # the points that none beats
comparison.save("comparison.json");  comparison = load_comparison(...)
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from wfstdec.compare.grids import label
from wfstdec.compare.oracle import KeptErrors
from wfstdec.compare.phrase_scores import PhraseScore
from wfstdec.compare.points import SearchFacts, Setting
from wfstdec.errors import FormatError
from wfstdec.metrics import Interval, WordErrors
from wfstdec.text.files import PathLike, atomic_write, read_lines

FORMAT, FORMAT_VERSION = "wfstdec.compare", 2

ONLY_SETTING = "only setting"
"""Name of a setting that has no options: the one of a search without widths."""


@dataclass(frozen=True)
class Point:
    """A search at one setting.

    Attributes:
        search: The name of the search.
        boosts: The name of the boost list, None for none.
        setting: What the point differs by from others of its search.
        errors: Word errors, over all utterances.
        phrases: How the key phrases were recognised; None where there are none.
        cpu_s: CPU seconds of one thread to decode all utterances, one for each turn.
        audio_s: Seconds of audio in them.
        search_errors: Share of the utterances whose total cost is above that of the
            search's widest setting, or that reached no final state while they do
            there; None where costs are not told, or there is but one setting.
        unfinished: Share of the utterances that reached no final state; likewise.
        memory_mb: Growth of the resident set to its peak, from before the decoder is
            made until all is decoded; see `memory.Peak`.
        model_s: CPU seconds of these in a model that the search runs itself, one for
            each turn; empty where log-probs were given.
        kept: Errors of the best of n-best lists and lattices; None where nobody asked,
            or the search keeps none.
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
    kept: KeptErrors | None = None
    wer_interval: Interval | None = None

    @property
    def wer(self) -> float:
        """Word errors per hundred reference words."""
        return 100.0 * self.errors.total / self.errors.reference_words

    @property
    def rtfx(self) -> float:
        """Seconds of audio per CPU second of one thread, in the fastest turn."""
        return self.audio_s / max(min(self.cpu_s), 1e-9)

    @property
    def series(self) -> str:
        """The search and its boost list: what tables and plots group by."""
        return self.search + (f" + {self.boosts}" if self.boosts else "")

    @property
    def label(self) -> str:
        """The setting in words."""
        return label(self.setting) or ONLY_SETTING


@dataclass(frozen=True)
class Comparison:
    """Searches side by side on the same utterances.

    Attributes:
        points: In the order of searches, boost lists and settings.
        searches: Facts about each search, by its name.
        facts: Date, machine, versions, what was decoded, fingerprints of the inputs.
    """

    points: tuple[Point, ...]
    searches: Mapping[str, SearchFacts]
    facts: Mapping[str, Any]

    @property
    def lists(self) -> list[str | None]:
        """The boost lists of the points, None for none, in their order."""
        return list(dict.fromkeys(point.boosts for point in self.points))

    def heading(self, point: Point) -> str:
        """The series of a point; says so where boosts were lost on its search."""
        named = any(self.lists) and not self.searches[point.search].takes_boosts
        return point.series + (" (takes no boosts)" if named else "")

    def front(self, boosts: str | None = None) -> list[Point]:
        """The Pareto front of the points of a boost list, the fastest first.

        A point is on it if no other is at least as fast and as accurate, and better
        in one of the two.
        """
        return pareto(point for point in self.points if point.boosts == boosts)

    def to_json(self) -> str:
        """Write as text; `from_json` gives an equal object."""
        content = {"format": FORMAT, "version": FORMAT_VERSION, **asdict(self)}
        return json.dumps(_plain(content), indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Comparison:
        """Read a comparison that `to_json` wrote.

        Raises:
            FormatError: Something else.
        """
        try:
            found = json.loads(text)
            if (found["format"], found["version"]) != (FORMAT, FORMAT_VERSION):
                raise ValueError(f"{found['format']} {found['version']}")
            return cls(
                tuple(_point(point) for point in found["points"]),
                {
                    name: SearchFacts(_setting(facts.pop("options")), **facts)
                    for name, facts in found["searches"].items()
                },
                found["facts"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(
                f"not a comparison ({type(error).__name__}: {error}), expected what "
                f"`wfstdec compare --json` wrote, version {FORMAT_VERSION}"
            ) from error

    def save(self, path: PathLike) -> None:
        """Write `to_json`, whole or not at all.

        Raises:
            FormatError: The file cannot be written.
        """
        with atomic_write(path, "w") as file:
            file.write(self.to_json())


def load_comparison(path: PathLike) -> Comparison:
    """Read what `Comparison.save` wrote.

    Raises:
        FormatError: The file cannot be read, or is something else.
    """
    text = "\n".join(read_lines(path))
    try:
        return Comparison.from_json(text)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def pareto(points: Iterable[Point]) -> list[Point]:
    """Points that no other beats in WER and RTFx, the fastest first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (-point.rtfx, point.wer)):
        if not front or point.wer < front[-1].wer:
            front.append(point)
    return front


def _point(found: dict[str, Any]) -> Point:
    later = {"model_s": (), "kept": None, "wer_interval": None}
    found = {**later, **found}  # older files are without
    values = {field.name: found.pop(field.name) for field in fields(Point)}
    # A newer version may have written it: fields that are not known are not dropped
    # silently.
    if found:
        raise ValueError(f"unknown {min(found)!r}")
    values["setting"] = _setting(values["setting"])
    values["errors"] = WordErrors(**values["errors"])
    for name, kind in {"phrases": PhraseScore, "kept": KeptErrors}.items():
        if values[name] is not None:
            values[name] = kind(**values[name])
    if values["wer_interval"] is not None:
        values["wer_interval"] = Interval(*values["wer_interval"])
    values |= {name: tuple(values[name]) for name in ("cpu_s", "model_s")}
    return Point(**values)


def _plain(value: Any) -> Any:
    """JSON knows no infinity: the text "inf" stands for it."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return "inf" if isinstance(value, float) and value == math.inf else value


def _setting(found: dict[str, Any]) -> Setting:
    return {key: math.inf if one == "inf" else one for key, one in found.items()}
