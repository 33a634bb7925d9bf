"""The plain reading of ALSD++ with a narrow beam, one utterance, without fusion.

    alsd(joint, num_frames, beam_size=2, durations=(0, 1, 2)) -> {text: total}

Lists of (text, frame, tokens in this frame, total), nats, higher is better. Of each,
the best K of all (token, duration) and the blank with every duration that moves; the
same text at the same frame is one; the best K remain, until all are at the end.
"""

from __future__ import annotations

from naive_transducer import logsumexp, symbols

PLAIN = {"lm_weight": 0.0, "blank_scored": False, "insertion": 0.0}


def ways_on(joint, hypothesis, beam_size, durations, max_symbols):
    """Yield (token or None, frames, nats) of what may follow a hypothesis."""
    text, frame, run, _ = hypothesis
    found = list(symbols(joint, frame, text, durations=durations, **PLAIN))
    yield from (way for way in found if way[0] is None)
    if run < max_symbols:
        spoken = [way for way in found if way[0] is not None]
        yield from sorted(spoken, key=lambda way: -way[2])[:beam_size]


def alsd(joint, num_frames, *, beam_size, durations=(), merge="sum", max_symbols=10):
    beam = [((), 0, 0, 0.0)]
    while any(frame < num_frames for _, frame, _, _ in beam):
        found = {}
        for one in beam:
            text, frame, run, total = one
            if frame == num_frames:
                found.setdefault((text, frame), []).append((total, run))
                continue
            for token, d, nats in ways_on(
                joint, one, beam_size, durations, max_symbols
            ):
                longer = text if token is None else (*text, token)
                after = min(frame + d, num_frames)
                new_run = 0 if after > frame else run + 1
                found.setdefault((longer, after), []).append((total + nats, new_run))
        add = logsumexp if merge == "sum" else max
        merged = [
            (text, frame, max(same)[1], add([total for total, _ in same]))
            for (text, frame), same in found.items()
        ]
        beam = sorted(merged, key=lambda one: -one[3])[:beam_size]
        beam = [one for one in beam if one[3] > -float("inf")]
    return {text: total for text, _, _, total in beam}
