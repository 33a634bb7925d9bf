"""Decode, time and score every search at every setting.

    comparison = run(speech, searches, boosts={"names": lists}, phrases=["new york"])

Speed: CPU seconds of this process (`time.process_time`) while one thread decodes all
utterances, log-probs in memory as float32, up to texts. Every point has its decoder
made anew and decodes a few utterances untimed first; what decoders have in common is
loaded, and code compiled, before. All points are timed `repeats`
times by turns, and back and forth, so that a machine that slows down for a while slows
down all alike; the fastest turn counts.
"""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wfstdec.compare.comparison import Comparison, Point
from wfstdec.compare.machine import describe_machine
from wfstdec.compare.memory import IS_EXACT, Peak
from wfstdec.compare.oracle import KeptErrors, kept_errors
from wfstdec.compare.phrase_scores import PhraseCounter
from wfstdec.compare.points import Outcome, Search, Setting
from wfstdec.compare.speech import Speech
from wfstdec.errors import OptionError
from wfstdec.io.boost_files import BoostFile
from wfstdec.metrics import score_texts

WARM_UP = 2
"""So many utterances are decoded before a timing: the longest, which need most."""
TOLERANCE = 1e-3
"""Relative; a total cost this far above another's is a search error."""

_log = logging.getLogger("wfstdec.compare")


@dataclass(eq=False)
class _Candidate:
    """A point under way: how to decode, and what was found and timed so far."""

    search: Search
    setting: Setting
    list_name: str | None
    boosts: list[Any] | None
    found: Sequence[Outcome] = ()
    cpu_s: list[float] = field(default_factory=list)
    model_s: list[float] = field(default_factory=list)
    memory_mb: float = 0.0
    kept: KeptErrors | None = None

    def decode(self, utterances: Sequence[np.ndarray]) -> None:
        """Decode all, keep what was found, and time it."""
        by_length = sorted(range(len(utterances)), key=lambda i: -len(utterances[i]))
        # The longest: arrays grow, and kernels are compiled, before the clock runs.
        few = [utterances[i] for i in by_length[:WARM_UP]]
        few_boosts = self.boosts and [self.boosts[i] for i in by_length[:WARM_UP]]
        if not self.found:  # what is compiled now is no part of the memory
            ends = self.search.settings[0], self.search.settings[-1]
            another = ends[0] if self.setting != ends[0] else ends[1]
            self.search.prepare(another)(few, few_boosts)
        with Peak() as peak:
            decode = self.search.prepare(self.setting)
            decode(few, few_boosts)
            clock = getattr(self.search, "clock", None)
            begin, model_begin = time.process_time(), clock() if clock else 0.0
            found = decode(utterances, self.boosts)
            self.cpu_s.append(time.process_time() - begin)
            if clock:
                self.model_s.append(clock() - model_begin)
        if not self.found:
            self.found, self.memory_mb = found, peak.growth_mb

    def look_at_lattices(self, speech: Speech, nbest: int) -> None:
        """Count the errors of the best of what the search keeps; untimed."""
        decoder = self.search.lattice_decoder(self.setting)
        if decoder is not None:
            said = [speech.references[name] for name in speech.logprobs]
            given = list(speech.logprobs.values()), said, nbest, self.boosts
            self.kept = kept_errors(decoder, *given, normalizer=speech.normalizer)


def run(
    speech: Speech,
    searches: Sequence[Search],
    *,
    boosts: Mapping[str, Mapping[str, Any] | BoostFile] | None = None,
    phrases: Iterable[str] = (),
    repeats: int = 3,
    oracle: int | None = None,
) -> Comparison:
    """Compare searches on the same utterances.

    Args:
        speech: The utterances.
        searches: Each with its settings; their names differ.
        boosts: By the name of a list, the boosts of each utterance, as the searches'
            `compile_boosts` takes them, or a `BoostFile`. Searches that take boosts run
            without any and with each list.
        phrases: Key phrases to score, words joined by spaces.
        repeats: Turns in which every point is timed.
        oracle: Also count the errors of the best of so many texts, and of the best path
            of lattices, of searches that keep some; None does not.

    Raises:
        OptionError: No searches or settings, two of one name, or `repeats` or `oracle`
            below 1.
        FormatError: No word that the first search finds is one of the references, and
            written otherwise some are.
        ShapeError, LogprobError, BoostError: As the decoders'.
    """
    _check(searches, repeats, oracle)
    utterances = list(speech.logprobs.values())
    lists: dict[str | None, Any] = {None: None}
    lists.update(boosts or {})
    candidates = [
        _Candidate(search, setting, name, given)
        for search in searches
        for name, by_utterance in lists.items()
        if name is None or search.takes_boosts
        for given in [_compiled(search, by_utterance, speech)]
        for setting in search.settings
    ]
    compared = speech.normalizer.words
    counter = PhraseCounter(" ".join(compared(phrase.split())) for phrase in phrases)
    for turn in range(repeats):
        # Back and forth: a machine that slows down is no one's disadvantage.
        for candidate in candidates if turn % 2 == 0 else reversed(candidates):
            candidate.decode(utterances)
            if turn == 0:
                if candidate is candidates[0]:
                    speech.check_heard(_heard(candidate, speech))
                told = _point(candidate, candidates, speech, counter)
                figures = told.series, told.label, told.wer, told.rtfx
                _log.info("%s, %s: %%WER %.2f, RTFx %.0f", *figures)
    for candidate in candidates if oracle is not None else ():
        candidate.look_at_lattices(speech, oracle or 1)
    points = [_point(one, candidates, speech, counter) for one in candidates]
    facts = {
        search.name: replace(search.facts, takes_boosts=search.takes_boosts)
        for search in searches
    }
    return Comparison(tuple(points), facts, _facts(speech, counter, repeats))


def search_errors(found: Sequence[Outcome], widest: Sequence[Outcome]) -> float | None:
    """The share of utterances in which a search missed what a wider one found.

    That is: its total cost is higher by more than `TOLERANCE` (relative, of 1 nat at
    least), or it reached no final state. Utterances in which the wider one reached
    none count as right. None where a search does not tell its costs.
    """
    wrong = 0
    for one, best in zip(found, widest, strict=True):
        if one.total_cost is None or best.total_cost is None:
            return None
        slack = TOLERANCE * max(1.0, abs(best.total_cost))
        above = one.total_cost > best.total_cost + slack
        wrong += bool(best.reached_final) and (above or not one.reached_final)
    return wrong / len(found)


def unfinished(found: Sequence[Outcome]) -> float | None:
    """The share that reached no final state; None where a search does not tell."""
    if any(one.reached_final is None for one in found):
        return None
    return sum(not one.reached_final for one in found) / len(found)


def _compiled(
    search: Search, boosts: Mapping[str, Any] | BoostFile | None, speech: Speech
) -> list[Any] | None:
    """The boosts of each utterance in order; None for no list at all."""
    if boosts is None:
        return None
    of = boosts.of if isinstance(boosts, BoostFile) else boosts.get
    return list(search.compile_boosts([of(utterance) for utterance in speech.logprobs]))


def _check(searches: Sequence[Search], repeats: int, oracle: int | None) -> None:
    names = [search.name for search in searches]
    for name, value in (("repeats", repeats), ("oracle", oracle)):
        if value is not None and value < 1:
            raise OptionError(f"{name}={value!r}, expected 1 or more")
    if not names or not all(search.settings for search in searches):
        raise OptionError(
            f"{len(names)} searches, expected at least one, each with settings"
        )
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"two searches called {name!r}, expected other names")


def _point(
    one: _Candidate,
    candidates: Sequence[_Candidate],
    speech: Speech,
    counter: PhraseCounter,
) -> Point:
    """Make the point of a candidate; its siblings end with the widest."""
    siblings = [
        other.found
        for other in candidates
        # Settings go from narrow to wide: the last one's costs are the nearest to
        # exact.
        if (other.search, other.list_name) == (one.search, one.list_name)
    ]
    widest = siblings[-1] if len(siblings) > 1 else ()
    hypotheses = _heard(one, speech)
    score = score_texts(speech.references, hypotheses)
    return Point(
        search=one.search.name,
        boosts=one.list_name,
        setting=dict(one.setting),
        errors=score.errors,
        phrases=counter.score(speech.references, hypotheses) if counter else None,
        cpu_s=tuple(round(seconds, 6) for seconds in one.cpu_s),
        audio_s=round(speech.audio_s, 3),
        search_errors=search_errors(one.found, widest) if widest else None,
        unfinished=unfinished(one.found),
        memory_mb=one.memory_mb,
        model_s=tuple(round(seconds, 6) for seconds in one.model_s),
        kept=one.kept,
        wer_interval=score.interval,
    )


def _heard(one: _Candidate, speech: Speech) -> dict[str, tuple[str, ...]]:
    return speech.words_of(found.text for found in one.found)


def _facts(speech: Speech, counter: PhraseCounter, repeats: int) -> dict[str, Any]:
    return {
        "date": datetime.date.today().isoformat(),
        "machine": describe_machine(),
        "utterances": len(speech.logprobs),
        "audio_s": round(speech.audio_s, 3),
        "reference_words": sum(map(len, speech.references.values())),
        "words_compared": speech.normalizer.flag or "as they are written",
        "key_phrases": len(counter),
        "repeats": repeats,
        "clock": "CPU seconds of one thread, the fastest turn",
        "memory": "growth of the resident set" + ("" if IS_EXACT else ", at least"),
        "speech": speech.fingerprint,
    }
