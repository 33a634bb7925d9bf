"""Streams of a known outcome: audio that carries log-probs, and what must come out."""

import numpy as np
from wav_files import wav_bytes

from tools.bench.row_encoder import audio_of_rows, rounded_rows
from wfstdec.server.stream import BoostsChanged, Finished, Words

SHIFT_S = 0.02


def long_rows(utterances, seconds, seed, blank=0, pause_s=0.8):
    """Utterances in a random order with pauses between, in steps of 1/16 nat."""
    rng = np.random.default_rng(seed)
    pause = np.full((round(pause_s / SHIFT_S), utterances[0].shape[1]), -24, np.float32)
    pause[:, blank] = 0
    parts, num = [], round(seconds / SHIFT_S)
    while sum(map(len, parts)) < num:
        parts += [rounded_rows(utterances[rng.integers(len(utterances))]), pause]
    return np.concatenate(parts)[:num]


def random_cuts(rng, size, num):
    """Draw `num` sizes, each 0 or more, that add up."""
    return np.diff([0, *sorted(rng.integers(0, size + 1, num - 1)), size])


def bytes_of(rows):
    """Rows as the bytes of linear16 at 16 kHz."""
    return audio_of_rows(rows).tobytes()


def wav_of(rows):
    return wav_bytes(np.frombuffer(bytes_of(rows), "<i2") / 32768)


class Events:
    """Takes the events of a stream, and puts its utterances together."""

    def __init__(self, boosts=None):
        self.events, self.utterances = [], []
        self.finished = None
        self.boosts = self._next = boosts
        self.lists = []  # that were asked for and are not in force
        self._words, self._end_s = (), 0.0

    def take(self, event):
        assert self.finished is None, "something came behind the end"
        self.events.append(event)
        if isinstance(event, BoostsChanged) and event.error is None:
            self._next = self.lists.pop(0)
            if event.from_now:
                self.boosts = self._next
        elif isinstance(event, Finished):
            self.finished = event
        elif isinstance(event, Words):
            self._take_words(event)

    def _take_words(self, event):
        assert event.start_s == self._end_s and event.end_s >= event.start_s
        if not event.is_final:
            assert not event.ends_utterance
            return
        self._words += event.words
        self._end_s = event.end_s
        if event.ends_utterance:
            self.utterances.append((event, self._words, self.boosts))
            self._words, self.boosts = (), self._next


def check_utterances(events, rows, decode):
    """Compare all utterances with `decode(rows, boosts)`, best first; count words."""
    first = num_words = 0
    for event, words, boosts in events.utterances:
        end = round(event.end_s / SHIFT_S)
        assert first <= end <= len(rows)
        if end > first:
            expected = decode(rows[first:end], boosts)
            assert [plain(h, 0) for h in event.hypotheses] == [
                plain(h, first) for h in expected
            ]
            shown = [(w.text, w.start_frame, w.end_frame) for w in words]
            assert shown == plain(expected[0], first)[1]
            assert all(w.start_s == round(w.start_frame * SHIFT_S, 6) for w in words)
        else:
            assert not words
        num_words += len(words)
        first = end
    assert first == len(rows)
    return num_words


def plain(hypothesis, first):
    """Cost, words and confidences, times moved by `first` frames."""
    words = [
        (w.text, w.start_frame + first, w.end_frame + first) for w in hypothesis.words
    ]
    return hypothesis.total_cost, words, [w.confidence for w in hypothesis.words]
