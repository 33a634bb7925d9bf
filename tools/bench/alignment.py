"""Alignment of known texts: time, memory, agreement with the decoder, misfits found.

    python -m tools.bench.alignment --output run.json
    python -m tools.bench.alignment --profile small          # a smoke test

Utterances all of whose words the lexicon has, with their references:

    beams      CPU seconds per hour of audio at each beam, and how many utterances come
               out as with `exact=True`, which is timed too
    decoder    of words that the decoder gets right: how many of their boundaries are
               where the alignment has them, within 0, 1 and 2 frames
    long       recordings of utterances one after the other, up to an hour: graph, time,
               and what the process takes more of memory, the log-probs in a file
    misfits    one word of each text changed, put in, or left out at random: how often
               that place is reported; and what is reported of texts as they are
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench.cases import Case, default_case
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.report import Row
from tools.bench.timing import Turns
from wfstdec.align.aligner import ForcedAligner
from wfstdec.align.alignment import Alignment
from wfstdec.align.options import AlignOptions
from wfstdec.compare.running import Peak
from wfstdec.metrics import GAP, align
from wfstdec.text.lexicon import Lexicon, read_lexicon
from wfstdec.wfst.options import WfstOptions

PROFILES = profiles(beams=[60.0], minutes=[0.5, 1.0])
EXACT_MINUTES = 30.0
"""Recordings up to so long are aligned with `exact=True` too, to compare."""
KINDS = ("changed", "put in", "left out")
Texts = Mapping[str, Sequence[str]]


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--lm", help="of the decoder: a name in the data, or an ARPA file")
    add("--beams", nargs="+", type=float, default=[20.0, 60.0])
    add("--minutes", nargs="+", type=float, default=[7.5, 15.0, 30.0, 60.0])
    return parse(parser, argv, PROFILES)


def whole_lexicon(case: Case) -> Lexicon:
    """All words of a case's recipe."""
    path, separator = case.speech.recipe.lexicon, case.separator
    return read_lexicon(path, case.tokens, separator=separator)


def make_aligner(case: Case) -> ForcedAligner:
    """An aligner for the whole lexicon."""
    return ForcedAligner(
        case.tokens,
        whole_lexicon(case),
        separator=case.separator,
        options=AlignOptions(),
        frame_shift_s=case.speech.frame_shift_s,
    )


def align_all(
    aligner: ForcedAligner, logprobs: Mapping[str, np.ndarray], texts: Texts
) -> dict[str, Alignment]:
    return {name: aligner.align(logprobs[name], texts[name]) for name in texts}


def measure_beams(case: Case, args: argparse.Namespace) -> tuple[list[Row], Any]:
    """A row for each beam, and the exact alignments."""
    speech, aligner = case.speech, make_aligner(case)
    hours = speech.audio_s / 3600
    ways = {f"beam {b:g}": aligner.with_options(beam=b) for b in args.beams}
    ways["exact"] = aligner.with_options(exact=True)
    first = next(iter(speech.logprobs))
    aligner.align(speech.logprobs[first], speech.references[first])  # compiles
    turns = Turns(
        {
            name: partial(align_all, way, speech.logprobs, speech.references)
            for name, way in ways.items()
        }
    )
    found = turns.take()
    turns.repeat(args.repeats - 1)
    exact = found["exact"]
    rows = [
        {
            "kind": "beams",
            "options": name,
            "cpu_s": [round(s, 3) for s in turns.seconds[name]],
            "cpu_s_per_hour": round(min(turns.seconds[name]) / hours, 2),
            "utterances": len(one),
            "words": sum(len(a.words) for a in one.values()),
            "reached_end": sum(a.reached_end for a in one.values()),
            "proved_exact": sum(a.exact for a in one.values()),
            "as_exact": sum(one[u].words == exact[u].words for u in one),
        }
        for name, one in found.items()
    ]
    return rows, exact


def measure_decoder(case: Case, aligned: Mapping[str, Alignment]) -> Row:
    """How far the decoder's boundaries of right words are from the alignment's."""
    decoder = case.wfst_decoder(WfstOptions(lm_scale=case.lm_scale))
    hypotheses = dict(zip(aligned, decoder.decode(case.utterances), strict=True))
    apart: list[int] = []
    for name, alignment in aligned.items():
        ours, theirs = iter(alignment.words), iter(hypotheses[name].words)
        said = [word.text for word in alignment.words]
        heard = [word.text for word in hypotheses[name].words]
        for left, right in align(said, heard):
            one = None if left == GAP else next(ours)
            other = None if right == GAP else next(theirs)
            if one is not None and other is not None and one.text == other.text:
                apart.append(abs(one.start_frame - other.start_frame))
                apart.append(abs(one.end_frame - other.end_frame))
    frames = np.array(apart)
    return {
        "kind": "decoder",
        "right_words": len(apart) // 2,
        "boundaries": len(apart),
        **{
            f"within_{n}_frames": round(float((frames <= n).mean()), 5)
            for n in (0, 1, 2, 5)
        },
        "mean_frames_apart": round(float(frames.mean()), 4),
    }


def lengthened(case: Case, minutes: float) -> tuple[np.ndarray, list[str]]:
    """Utterances one after the other, again from the first where they run out."""
    speech = case.speech
    frames = int(minutes * 60 / speech.frame_shift_s)
    parts: list[np.ndarray] = []
    words: list[str] = []
    for name in cycle(speech.logprobs):
        if sum(map(len, parts)) >= frames:
            break
        parts.append(speech.logprobs[name])
        words += speech.references[name]
    return np.concatenate(parts), words


def measure_long(case: Case, minutes: float) -> Row:
    """Measure one recording, its log-probs in a file that is mapped."""
    aligner = make_aligner(case)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        whole, words = lengthened(case, minutes)
        np.save(path, whole)
        del whole
        logprobs = np.load(path, mmap_mode="r")
        audio_s = len(logprobs) * case.speech.frame_shift_s
        row: Row = {
            "kind": "long",
            "minutes": round(audio_s / 60, 2),
            "words": len(words),
            "logprobs_mb": round(logprobs.nbytes / 1e6, 1),
        }
        transcript = aligner._transcriber.transcript(words)  # looks words up
        began = time.process_time()
        graph = aligner._graph(transcript)
        graph_s = round(time.process_time() - began, 3)
        row |= {"states": graph.num_states, "graph_cpu_s": graph_s}
        with Peak() as peak:
            began = time.process_time()
            alignment = aligner.align(logprobs, words)
            taken = time.process_time() - began
        row |= {
            "cpu_s": round(taken, 2),
            "cpu_s_per_hour": round(taken / audio_s * 3600, 2),
            "peak_more_mb": round(peak.growth_mb, 1),
            "reached_end": alignment.reached_end,
            "proved_exact": alignment.exact,
            "excess": round(alignment.excess, 2),
        }
        if minutes <= EXACT_MINUTES:
            exact = aligner.with_options(exact=True).align(logprobs, words)
            row["as_exact"] = exact.exact and exact.words == alignment.words
        return row


def spoil(
    words: Sequence[str], kind: str, vocabulary: Sequence[str], rng: Any
) -> tuple[list[str], int]:
    """A text with one word changed, put in or left out; the place of it."""
    at, other = int(rng.integers(len(words))), str(rng.choice(vocabulary))
    while other == words[at]:
        other = str(rng.choice(vocabulary))
    new = {"changed": [other], "put in": [other, words[at]], "left out": []}[kind]
    return [*words[:at], *new, *words[at + 1 :]], at


def is_reported(alignment: Alignment, kind: str, at: int) -> bool:
    """Tell whether a misfit names the place."""
    for misfit in alignment.misfits:
        if kind == "left out" and misfit.kind == "speech" and misfit.first_word == at:
            return True
        if kind != "left out" and misfit.first_word <= at < misfit.end_word:
            return True
    return False


def measure_misfits(case: Case, aligned: Mapping[str, Alignment]) -> Iterator[Row]:
    """How often spoilt places are reported, and what of texts as they are."""
    speech, aligner = case.speech, make_aligner(case)
    rng = np.random.default_rng(0)
    vocabulary = sorted({w for words in speech.references.values() for w in words})
    weak = [m for a in aligned.values() for m in a.misfits if m.kind == "weak"]
    between = [m for a in aligned.values() for m in a.misfits if m.kind == "speech"]
    words = sum(len(a.words) for a in aligned.values())
    yield {
        "kind": "misfits",
        "text": "as it is",
        "words": words,
        "weak_words": sum(m.end_word - m.first_word for m in weak),
        "places_between": len(between),
    }
    for kind in KINDS:
        found = total = 0
        for name, said in speech.references.items():
            if len(said) < 2:
                continue
            text, at = spoil(said, kind, vocabulary, rng)
            alignment = aligner.align(speech.logprobs[name], text)
            found += is_reported(alignment, kind, at)
            total += 1
        row: Row = {"kind": "misfits", "text": f"a word {kind}", "texts": total}
        yield row | {"reported": found, "share": round(found / total, 4)}


def measure(case: Case, args: argparse.Namespace) -> Iterator[Row]:
    """Rows of all kinds."""
    rows, exact = measure_beams(case, args)
    yield from rows
    yield measure_decoder(case, exact)
    yield from (measure_long(case, minutes) for minutes in args.minutes)
    yield from measure_misfits(case, exact)


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    run, case = Run("tools.bench.alignment", args), default_case(args)
    known, said = set(whole_lexicon(case).words), case.speech.references
    sayable = [name for name, words in said.items() if known.issuperset(words)]
    print(f"{len(sayable)} of {len(said)} utterances have known words alone")
    case = replace(case, speech=case.speech.take(sayable))
    return run.finish(measure(case, args), case=case.headline())


if __name__ == "__main__":
    exit_with(main)
