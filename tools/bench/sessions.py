"""Sessions: time per round of chunks, memory, and how early words come out.

    python -m tools.bench.sessions                          # a quarter of an hour
    python -m tools.bench.sessions --decoder trie --counts 256
    python -m tools.bench.sessions --profile small          # a smoke test

Three things are measured, each after the closed sessions gave what `decode` gives:

    latency  one session at a time, a chunk at a time, a look after each: how long after
             its end a word is shown, until it is settled, and how often words that were
             shown change afterwards
    rounds   many sessions in the midst of an utterance: the wall time of one `advance`
             of all of them, and the memory that each takes
    long     one session through an hour of frames that are nearly all blank, and one
             through an hour of speech: memory, words, how many of them are settled

The clock of latencies is the audio's: decoding takes no time there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, pairwise
from statistics import mean, median
from typing import Any

import numpy as np

from tools.bench.cases import Case, default_case
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.report import Row
from wfstdec.compare.running import resident_mb
from wfstdec.search.hypothesis import Hypothesis, Partial
from wfstdec.search.sessions import SessionId, Sessions
from wfstdec.trie.decoder import TrieDecoder
from wfstdec.trie.options import TrieOptions
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

PROFILES = profiles(utterances=6, counts=[8], minutes=0.5, beams=[8.0])
Decoder = WfstDecoder | TrieDecoder
BLANK_LOGPROB, OTHER_LOGPROB, NOISE = -0.01, -12.0, 2.0
"""What frames of silence are made of, nats."""
LOOK_S = 5.0
"""In long sessions, seconds from look to look."""


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--lm", help="a name in the data, or an ARPA file")
    add("--decoder", choices=("wfst", "trie"), default="wfst")
    add("--beams", nargs="+", type=float, default=[8.0, 13.0])
    add("--chunk-ms", nargs="+", type=float, default=[400.0, 100.0])
    add("--counts", nargs="+", type=int, default=[1, 256, 1000], help="of sessions")
    add("--minutes", type=float, default=60.0, help="of silence, and of speech")
    add("--threads", type=int, help="default: one for each processor")
    return parse(parser, argv, PROFILES)


def make_decoder(case: Case, beam: float, args: argparse.Namespace) -> Decoder:
    """Make the decoder that is measured."""
    if args.decoder == "wfst":
        options = WfstOptions(beam=beam, lm_scale=case.lm_scale)
        return case.wfst_decoder(options, args.threads)
    trie_options = TrieOptions(beam=beam, lm_scale=case.lm_scale)
    return case.trie_decoder(trie_options, args.threads)


# -------------------------------------------------------------------------- latency
def follow(
    decoder: Decoder, logprobs: np.ndarray, size: int
) -> tuple[list[Partial], Hypothesis]:
    """Collect partials of a session after each chunk, and the end."""
    sessions, seen = decoder.sessions(), []
    session = sessions.open()
    for first in range(0, len(logprobs), size):
        sessions.advance({session: logprobs[first : first + size]})
        seen.append(sessions.partial(session))
    return seen, sessions.close(session)


def measure_latency(
    decoder: Decoder, utterances: Sequence[np.ndarray], size: int
) -> Row:
    """Seconds from a word's end until it is shown and settled, and what changed.

    A word is shown when the partial result has it at its place; it is the one of the
    final result that counts. Words that show only at the end are left out, and counted.
    """
    shift = decoder.frame_shift_s
    shown, settled, only_in_the_end, changed, words = [], [], 0, 0, 0
    for logprobs, expected in zip(utterances, decoder.decode(utterances), strict=True):
        seen, hypothesis = follow(decoder, logprobs, size)
        if hypothesis != expected:
            raise AssertionError("a session's result is not that of the whole")
        texts = [[word.text for word in partial.words] for partial in seen]
        for before, after in pairwise(texts):
            known = range(len(before))
            changed += sum(i >= len(after) or before[i] != after[i] for i in known)
        words += len(expected.words)
        for i, word in enumerate(expected.words):
            end = word.end_frame * shift
            at = [p.num_frames for p in seen if i < p.num_settled]
            settled.append((at[0] if at else len(logprobs)) * shift - end)
            has = [len(t) > i and t[i] == word.text for t in texts]
            if True in has:
                shown.append(seen[has.index(True)].num_frames * shift - end)
            else:
                only_in_the_end += 1
    return {
        "words": words,
        "only_in_the_end": only_in_the_end,
        "shown_after_s": _spread(shown),
        "settled_after_s": _spread(settled),
        "changes_per_word": round(changed / max(words, 1), 4),
    }


def _spread(values: Sequence[float]) -> Row:
    if not values:
        return {}
    tails = {f"p{q}": round(float(np.percentile(values, q)), 3) for q in (50, 90, 99)}
    return {"mean": round(mean(values), 3), **tails}


# --------------------------------------------------------------------------- rounds
def measure_rounds(
    decoder: Decoder,
    utterances: Sequence[np.ndarray],
    size: int,
    count: int,
    rounds: int,
) -> Row:
    """The wall time of `advance` with a chunk for each session.

    Sessions begin in different places of long audio and stay open through all rounds.
    """
    audio = np.concatenate(utterances)
    places = np.linspace(0, len(audio), count, endpoint=False).astype(int)
    sessions = decoder.sessions()
    before = resident_mb()
    names = [sessions.open() for _ in range(count)]

    def chunks() -> dict[Any, np.ndarray]:
        nonlocal places
        rows = (places[:, None] + np.arange(size)) % len(audio)
        places = places + size
        return dict(zip(names, audio[rows], strict=True))

    for _ in range(3):
        sessions.advance(chunks())
    seconds, looks = [], []
    for _ in range(rounds):
        one = chunks()
        began = time.perf_counter()
        sessions.advance(one)
        seconds.append(time.perf_counter() - began)
    for name in names[:50]:
        began = time.perf_counter()
        sessions.partial(name)
        looks.append(time.perf_counter() - began)
    memory = resident_mb() - before
    for name in names:
        sessions.close(name)
    return {
        "sessions": count,
        "round_ms": round(1e3 * median(seconds), 2),
        "rounds_ms": [round(1e3 * one, 2) for one in seconds],
        "ms_per_chunk": round(1e3 * median(seconds) / count, 4),
        "partial_ms": round(1e3 * median(looks), 4),
        "mb_per_session": round(memory / count, 3),
    }


# ------------------------------------------------------------------- long sessions
def measure_long(
    decoder: Decoder, utterances: Sequence[np.ndarray], blank: int, minutes: float
) -> Iterator[Row]:
    """A session through silence and one through speech, with a look every 5 s."""
    rng, size = np.random.default_rng(0), round(1 / decoder.frame_shift_s)
    num_tokens = decoder.num_tokens

    def silence() -> np.ndarray:
        frames = rng.normal(OTHER_LOGPROB, NOISE, (size, num_tokens))
        frames[:, blank] = BLANK_LOGPROB
        return frames.astype(np.float32)

    speech = cycle(
        chunk
        for one in utterances
        for chunk in np.split(one, range(size, len(one), size))
    )
    for name, source in (("silence", silence), ("speech", lambda: next(speech))):
        sessions = decoder.sessions()
        session = sessions.open()
        sessions.advance({session: utterances[0]})
        began = time.process_time()
        after = go_through(sessions, session, source, minutes, decoder.frame_shift_s)
        used = round(time.process_time() - began, 1)
        sessions.close(session)
        yield {"what": name, "minutes": minutes, "cpu_s": used, "at": after}


def go_through(
    sessions: Sessions,
    session: SessionId,
    source: Callable[[], np.ndarray],
    minutes: float,
    shift: float,
) -> Row:
    """Measure a session after 1, 10, 50 and 100 % of `minutes`."""
    after, frames, looked = {}, 0, 0
    total = round(60 * minutes / shift)
    marks = [total * part // 100 for part in (1, 10, 50, 100)]
    while frames < total:
        chunk = source()
        sessions.advance({session: chunk})
        frames += len(chunk)
        if (frames - looked) * shift >= LOOK_S or frames >= marks[0]:
            partial, looked = sessions.partial(session), frames
        while marks and frames >= marks[0]:
            after[f"{round(marks.pop(0) * shift / 60, 2)} min"] = {
                "resident_mb": round(resident_mb(), 1),
                "words": len(partial.words),
                "settled": partial.num_settled,
                "timed": partial.num_timed,
            }
    return after


def measure(case: Case, args: argparse.Namespace) -> Iterator[Row]:
    """Rows of all three kinds, beam by beam."""
    utterances, shift = case.utterances, case.speech.frame_shift_s
    for beam in args.beams:
        decoder = make_decoder(case, beam, args)
        print(f"{args.decoder}, beam {beam:g}, {decoder.threads} threads", flush=True)
        for ms in args.chunk_ms:
            size, where = round(ms / 1e3 / shift), {"beam": beam, "chunk_ms": ms}
            latency = measure_latency(decoder, utterances, size)
            yield {"kind": "latency", **where, **latency}
            for count in args.counts:
                row = measure_rounds(decoder, utterances, size, count, args.repeats)
                yield {"kind": "round", **where, **row}
        blank = case.tokens.blank
        for row in measure_long(decoder, utterances, blank, args.minutes):
            yield {"kind": "long", "beam": beam, **row}


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    run, case = Run("tools.bench.sessions", args), default_case(args)
    print(case.headline(), flush=True)
    return run.finish(measure(case, args))


if __name__ == "__main__":
    exit_with(main)
