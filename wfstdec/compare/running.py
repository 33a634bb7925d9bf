"""Runs of comparisons: timing, peak memory, description of the machine.

with Peak() as peak:
    decode()
peak.growth_mb
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import gc
import hashlib
import logging
import os
import platform
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import wfstdec
from wfstdec.batch.decoding import LatticeReading
from wfstdec.compare.comparison import (
    Comparison,
    Outcome,
    PhraseCounter,
    Point,
    Search,
    Setting,
)
from wfstdec.compare.quality import OracleErrors, fewest_errors, lattice_errors
from wfstdec.compare.speech import Speech
from wfstdec.errors import FormatError, OptionError
from wfstdec.fst.tlg import peak_memory_gb
from wfstdec.io.boost_files import BoostFile
from wfstdec.metrics import score_texts
from wfstdec.text.files import PathLike

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


def _give_back() -> None:
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def _memory_bytes(name: str) -> float:
    """Return a line of the process's status, or the peak so far without one."""
    text = _STATUS.read_text() if _STATUS.exists() else ""
    line = re.search(rf"^{name}:\s*(\d+)", text, re.MULTILINE)
    return 1024.0 * int(line[1]) if line else 1e9 * peak_memory_gb()


def _reset_peak() -> bool:
    try:
        _CLEAR_REFS.write_text("5")
        return "VmHWM:" in _STATUS.read_text()
    except OSError:
        return False


IS_EXACT = _reset_peak()  # Whether the system lets the peak of memory be reset (Linux)


class Peak:
    """Growth of the resident set to its peak over a `with` block.

    Without `IS_EXACT` it is a lower bound: growth beyond all earlier peaks.
    """

    growth_mb: float = 0.0  # Megabytes (1e6 bytes), after the block

    def __enter__(self) -> Peak:
        _give_back()
        _reset_peak()
        self._before = _memory_bytes("VmHWM")
        return self

    def __exit__(self, *error: object) -> None:
        growth = _memory_bytes("VmHWM") - self._before
        self.growth_mb = round(max(0, growth) / 1e6, 2)


def resident_mb() -> float:
    """Return the resident set, megabytes, or its peak so far if unknown."""
    _give_back()  # first, so that freed memory does not count
    return _memory_bytes("VmRSS") / 1e6


PACKAGES = ("numpy", "numba", "llvmlite", "kaldifst", "kaldi_decoder")


def describe_machine() -> dict[str, Any]:
    """Return processor, usable cores, memory, Python and versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "wfstdec": wfstdec.__version__,
        **{name: _version(name) for name in PACKAGES},
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    first = info.read_text("utf-8").split("\n\n")[0] if info.exists() else ""
    facts = dict(re.findall(r"^(.+?)\s*:\s*(.*)$", first, re.MULTILINE))
    known = [n for n in ("cpu family", "model", "cache size") if n in facts]
    name = facts.get("model name", platform.processor())
    return ", ".join([name, *(f"{one} {facts[one]}" for one in known)])


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def fingerprint(path: PathLike) -> str:
    """Return 32 hex digits of a file's content, or of a folder's files and names."""
    whole = Path(path)
    try:
        if not whole.is_dir():
            return _digest(whole)
        files = sorted(file for file in whole.iterdir() if file.is_file())
        listed = "".join(f"{file.name}\t{_digest(file)}\n" for file in files)
    except OSError as error:
        raise FormatError(f"{path}: cannot read: {error.strerror}") from error
    return hashlib.blake2b(listed.encode(), digest_size=16).hexdigest()


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
    return digest.hexdigest()


WARM_UP = 2  # Number of utterances decoded before timing: the longest ones
TOLERANCE = 1e-3  # Relative; a total cost higher by more is a search error

_log = logging.getLogger("wfstdec.compare")


@dataclass(eq=False)
class _Candidate:
    search: Search
    setting: Setting
    list_name: str | None
    boosts: list[Any] | None
    outcomes: Sequence[Outcome] = ()
    cpu_s: list[float] = field(default_factory=list)
    model_s: list[float] = field(default_factory=list)
    memory_mb: float = 0.0
    kept: OracleErrors | None = None

    def decode(self, utterances: Sequence[np.ndarray]) -> None:
        by_length = sorted(range(len(utterances)), key=lambda i: -len(utterances[i]))
        # The longest: arrays grow, and kernels are compiled, before timing.
        few = [utterances[i] for i in by_length[:WARM_UP]]
        few_boosts = self.boosts and [self.boosts[i] for i in by_length[:WARM_UP]]
        if not self.outcomes:  # exclude memory of compilation
            ends = self.search.settings[0], self.search.settings[-1]
            another = ends[0] if self.setting != ends[0] else ends[1]
            self.search.prepare(another)(few, few_boosts)
        with Peak() as peak:
            decode = self.search.prepare(self.setting)
            decode(few, few_boosts)
            clock = self.search.clock
            begin, model_begin = time.process_time(), clock() if clock else 0.0
            outcomes = decode(utterances, self.boosts)
            self.cpu_s.append(round(time.process_time() - begin, 6))
            if clock:
                self.model_s.append(round(clock() - model_begin, 6))
        if not self.outcomes:
            self.outcomes, self.memory_mb = outcomes, peak.growth_mb

    def count_oracle_errors(self, speech: Speech, nbest: int) -> None:
        decoder = self.search.lattice_decoder(self.setting)
        if decoder is None:
            return
        of_lists, of_lattices, reading = 0, [], LatticeReading(nbest=nbest)
        for i, (name, x) in enumerate(speech.logprobs.items()):
            boosts = self.boosts and [self.boosts[i]]
            (lattice,) = decoder.decode_lattice([x], boosts=boosts)
            texts = [one.spaced_text.split() for one in reading(name, lattice)]
            given = speech.references[name], speech.normalizer
            of_lists += fewest_errors(texts, *given)
            if not lattice.words_are_tokens:
                of_lattices.append(lattice_errors(lattice, *given))
        words = sum(map(len, speech.references.values()))
        errors = sum(of_lattices) if of_lattices else None
        self.kept = OracleErrors(words, nbest, of_lists, errors)


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
        searches: Searches with their settings and distinct names.
        boosts: By name of the list, the boosts of each utterance for `compile_boosts`,
            or a `BoostFile`. Searches that take boosts run without any and with each
            list.
        phrases: Key phrases to score, words joined by spaces.
        repeats: Number of timings of every point.
        oracle: Also count oracle errors of n-best lists of this length and of lattices.

    Raises:
        OptionError: No searches or settings, two of one name, or `repeats` or `oracle`
            below 1.
        FormatError: No decoded word of the first search occurs in the references, but
            some would in another spelling.
    """
    _check(searches, repeats, oracle)
    utterances = list(speech.logprobs.values())
    candidates: list[_Candidate] = []
    for search in searches:
        for name, by_utterance in [(None, None), *(boosts or {}).items()]:
            if name is None or search.takes_boosts:
                given = _compiled(search, by_utterance, speech)
                series = (_Candidate(search, x, name, given) for x in search.settings)
                candidates += series
    compared = speech.normalizer.words
    counter = PhraseCounter(" ".join(compared(phrase.split())) for phrase in phrases)
    for turn in range(repeats):
        # Back and forth: a machine that slows down affects all equally.
        for one in candidates if turn % 2 == 0 else reversed(candidates):
            one.decode(utterances)
            if turn == 0:
                if one is candidates[0]:
                    speech.check_words(speech.words_of(one.outcomes))
                point = _point(one, candidates, speech, counter)
                figures = point.series, point.label, point.wer, point.rtfx
                _log.info("%s, %s: %%WER %.2f, RTFx %.0f", *figures)
    for one in candidates if oracle is not None else ():
        one.count_oracle_errors(speech, oracle or 1)
    points = [_point(one, candidates, speech, counter) for one in candidates]
    facts = {s.name: replace(s.facts, takes_boosts=s.takes_boosts) for s in searches}
    return Comparison(tuple(points), facts, _facts(speech, counter, repeats))


def search_errors(found: Sequence[Outcome], widest: Sequence[Outcome]) -> float | None:
    """Return the share of utterances with search errors relative to a wider search.

    In these its total cost is higher by more than `TOLERANCE` (relative, of 1 nat at
    least), or only the wider one reached a final state. None without costs.
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
    """Return the share without a final state; None if unknown."""
    reached = [one.reached_final for one in found]
    return None if None in reached else reached.count(False) / len(reached)


def _compiled(
    search: Search, boosts: Mapping[str, Any] | BoostFile | None, speech: Speech
) -> list[Any] | None:
    if boosts is None:
        return None
    of = boosts.of if isinstance(boosts, BoostFile) else boosts.get
    return list(search.compile_boosts([of(utterance) for utterance in speech.logprobs]))


def _check(searches: Sequence[Search], repeats: int, oracle: int | None) -> None:
    for name, value in (("repeats", repeats), ("oracle", oracle)):
        if value is not None and value < 1:
            raise OptionError(f"{name}={value!r}, expected 1 or more")
    if not searches or not all(search.settings for search in searches):
        num = len(searches)
        raise OptionError(f"{num} searches, expected at least one, each with settings")
    for name, count in Counter(search.name for search in searches).items():
        if count > 1:
            raise OptionError(f"two searches called {name!r}, expected other names")


def _point(
    one: _Candidate,
    candidates: Sequence[_Candidate],
    speech: Speech,
    counter: PhraseCounter,
) -> Point:
    """Return the point of a candidate, relative to the widest one."""
    series = one.search, one.list_name
    siblings = [x.outcomes for x in candidates if (x.search, x.list_name) == series]
    # Settings go from narrow to wide: the last one's costs are the most exact.
    widest = siblings[-1] if len(siblings) > 1 else ()
    hypotheses = speech.words_of(one.outcomes)
    score = score_texts(speech.references, hypotheses)
    return Point(
        search=one.search.name,
        boosts=one.list_name,
        setting=dict(one.setting),
        errors=score.errors,
        phrases=counter.score(speech.references, hypotheses) if counter else None,
        cpu_s=tuple(one.cpu_s),
        audio_s=round(speech.audio_s, 3),
        search_errors=search_errors(one.outcomes, widest) if widest else None,
        unfinished=unfinished(one.outcomes),
        memory_mb=one.memory_mb,
        model_s=tuple(one.model_s),
        kept=one.kept,
        wer_interval=score.interval,
    )


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
        "clock": "CPU seconds of one thread, the fastest repetition",
        "memory": "growth of the resident set" + ("" if IS_EXACT else ", at least"),
        "speech": speech.fingerprint,
    }
