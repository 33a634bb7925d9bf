"""Sound that says its own tokens: a model that anyone can check, for `transcribe`.

A frame is 320 samples of the value `token / 8`; `logprobs` reads it back. How sure it
is depends on the length of the audio, so that no window passes for a whole piece.
"""

import numpy as np
from cli_files import TOKENS
from wav_files import wav_bytes

from wfstdec import token_table
from wfstdec.models import EncoderSpec
from wfstdec.models.encoder import BatchEncoder, one_by_one

FRAME = 320
RATE = 16000
WORDS = {"ab": "a b", "cab": "c a b", "c": "c"}


def logprobs(waveform):
    """Log-probs [T, 5], nearly all on the token that a frame says."""
    frames = waveform[: len(waveform) // FRAME * FRAME].reshape(-1, FRAME)
    best = np.rint(8 * frames.mean(axis=1)).astype(int)
    rest = 0.008 + 0.002 * (len(waveform) % 9973) / 9973
    rows = np.full((len(best), len(TOKENS)), np.log(rest), np.float32)
    rows[np.arange(len(best)), best] = np.log(1 - 4 * rest)
    return rows


def spoken(words, pauses=()):
    """Sound of words, and some frames of blanks behind each."""
    tokens = []
    for i, word in enumerate(words):
        for token in WORDS[word].split():
            tokens += [TOKENS.index(token)] * 2 + [0]
        tokens += [TOKENS.index("<wb>")] * 2
        tokens += [0] * (pauses[i % len(pauses)] if len(pauses) else 2)
    return np.repeat(np.array(tokens, np.float32) / 8, FRAME)


def speech(seconds, seed=0):
    """Words and the sound of them, at least so long; pauses of 0.04 to 1.5 s."""
    random = np.random.default_rng(seed)
    words = random.choice(list(WORDS), int(6 * seconds)).tolist()
    pauses = np.where(random.random(len(words)) < 0.2, 75, 2)
    pauses = random.integers(2, pauses + 1)
    pauses[-1] = 20
    ends = np.cumsum(
        [
            3 * len(WORDS[word].split()) + 2 + n
            for word, n in zip(words, pauses, strict=True)
        ]
    )
    size = 1 + int(np.searchsorted(ends, seconds * RATE / FRAME))
    return words[:size], spoken(words[:size], pauses[:size])


def write_wav(path, sound):
    path.write_bytes(wav_bytes(sound))
    return path


class SpokenEncoder(BatchEncoder):
    """The model; notes the lengths of what it is given."""

    def __init__(self):
        spec = EncoderSpec(token_table(TOKENS), frame_shift_s=0.02, sample_rate=RATE)
        super().__init__(spec, one_by_one(logprobs))
        self.lengths = []

    def encode(self, waveforms):
        self.lengths += map(len, waveforms)
        return super().encode(waveforms)


class SpokenStream(SpokenEncoder):
    """Spoken text as it comes in: frames of what is there."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def start(self):
        return [np.empty(0, np.float32)]

    def step(self, states, chunks, last):
        found = []
        for state, chunk in zip(states, chunks, strict=True):
            audio = np.concatenate([state[0], chunk])
            size = len(audio) // FRAME * FRAME
            found.append(logprobs(audio[:0]))
            if size:  # frame by frame: how it was cut must not show
                pieces = audio[:size].reshape(-1, FRAME)
                found[-1] = np.concatenate([logprobs(piece) for piece in pieces])
            state[0] = audio[size:]
            self.rows.append(found[-1])
        return found
