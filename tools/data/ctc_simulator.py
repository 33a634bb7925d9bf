"""Simulated log-probs of a CTC model over SentencePiece pieces.

    simulator = Simulator(pieces, frequency, Acoustics(noise=1.0), seed=1)
    logprobs = simulator.utterance(spellings, difficulty, index)    # float16 [T, V]

Token 0 is the blank and token `1 + i` is piece i. A spoken piece is a peak: its odds
against the blank, in nats, are the parabola

    L(t) = height * (1 - ((t - centre) / width)^2) - weakness

above 0 for one to three frames, with skirts in which blank and piece compete, as they
do in real posteriors. Within a peak, a piece k has these odds against the spoken piece:

    spread * (gauss + frequency_bias * (z_k - z_spoken))
        - contrast * distance(spoken, k)

where z is the log frequency, standardised: pieces of similar spelling are mistaken for
each other, and frequent ones win more often. `spread` and `weakness` grow with the
noise, with a factor of the utterance and one of the word: errors come in clusters.
Everything else is a background of a few nats of variation, correlated from frame to
frame and between pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tools.data.piece_distance import piece_distances

BLANK = 0
FIRST_PIECE = 1
FLOOR = -24.0
"""Nothing is less likely, as in the real set."""
COARSE = -8.0, 16.0
"""Below this many nats, values are multiples of a 16th (they compress better)."""
CEILING = -5.0
"""The background never rises above this, relative to the best of the frame."""


@dataclass(frozen=True)
class Acoustics:
    """Properties of simulated speech and model; lengths in frames, odds in nats.

    Attributes:
        noise: 0 makes no errors; 0.85 about as many as the real set has.
        frames_per_letter: Speech rate; 1.75 frames of 40 ms are 14 letters a second.
        rate_spread: Standard deviation of an utterance's log speech rate.
        pause: Probability of a pause before a word.
        pause_frames: Its mean length; also that of the silence at both ends.
        width: Range of half the width of a peak.
        height: Range of a peak's odds against the blank.
        contrast: Odds for each unit of spelling distance.
        spread: Standard deviation of the odds of competitors at noise 1.
        frequency_bias: Share of the spread that follows the pieces' log frequency.
        weakness: Loss of height for each nat of spread, times half a Gaussian.
        temper: Above noise 1 the odds within a peak are divided by this power of it: a
            model that errs more is less sure, and the truth stays near the top.
        utterance_spread: Standard deviation of an utterance's log difficulty.
        word_spread: The same for a word.
        worst: The largest spread; without it some words are past all recognition.
        insertions: False peaks for each spoken piece, most of them below the blank.
        insertion_height: Mean height of false peaks, and its standard deviation at
            noise 1.
        background: Mean of pieces that nothing speaks for, against the best.
        background_spread: Standard deviations: of a piece's own level, of what varies
            slowly and for many pieces together, and of the rest.
        persistence: Correlation of the slow part from frame to frame.
        factors: Its number of dimensions.
        wrinkle: Standard deviation of a frame's own noise within a peak.
    """

    noise: float = 1.0
    frames_per_letter: float = 1.4
    rate_spread: float = 0.12
    pause: float = 0.05
    pause_frames: float = 7.0
    width: tuple[float, float] = (0.6, 1.3)
    height: tuple[float, float] = (8.0, 14.0)
    contrast: float = 18.0
    spread: float = 2.6
    frequency_bias: float = 0.5
    weakness: float = 0.85
    temper: float = 0.75
    utterance_spread: float = 0.35
    word_spread: float = 1.0
    worst: float = 7.0
    insertions: float = 0.4
    insertion_height: tuple[float, float] = (-8.0, 4.0)
    background: float = -15.5
    background_spread: tuple[float, float, float] = (1.3, 1.6, 1.2)
    persistence: float = 0.8
    factors: int = 12
    wrinkle: float = 0.3


@dataclass(frozen=True)
class Peak:
    """Peak of an utterance: see the formula on top."""

    token: int
    centre: float
    width: float
    height: float
    weakness: float
    spread: float


class Simulator:
    """Makes log-probs; utterance i is the same whatever else is made.

    Args:
        pieces: Names of the pieces; those like `<unk>` are never emitted.
        frequency: [len(pieces)] how often each is used, for the competitors' bias.
        acoustics: See there.
        seed: Of everything random.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        frequency: np.ndarray,
        acoustics: Acoustics,
        seed: int,
    ) -> None:
        self.acoustics = acoustics
        self.seed = seed
        self.letters = [1] + [len(piece) for piece in pieces]
        usual = np.log(frequency + 1.0)
        self.usual = (usual - usual.mean()) / max(float(usual.std()), 1e-6)
        self.distances = piece_distances(pieces)
        loadings = np.random.default_rng([seed, 0]).normal(
            size=(acoustics.factors, len(pieces))
        )
        loadings *= np.exp(-np.arange(acoustics.factors) / 4.0)[:, None]
        self.loadings = loadings / np.sqrt((loadings**2).sum(0))

    def utterance(
        self,
        spellings: Sequence[Sequence[int]],
        difficulty: Sequence[float],
        index: int,
    ) -> np.ndarray:
        """Log-probs float16 [T, V] of some words.

        Args:
            spellings: Tokens of each word.
            difficulty: Factor of the noise for each word; 1 is usual.
            index: Number of the utterance.
        """
        rng = np.random.default_rng([self.seed, 1, index])
        peaks, num_frames = self._peaks(spellings, difficulty, rng)
        odds = np.zeros((num_frames, 1 + len(self.usual)))
        odds[:, FIRST_PIECE:] = FLOOR
        top = np.zeros(num_frames)
        for peak in peaks + self._false_peaks(peaks, num_frames, rng):
            self._add(odds, top, peak, rng)
        background = self._background(num_frames, rng) + top[:, None]
        np.maximum(odds[:, FIRST_PIECE:], background, out=odds[:, FIRST_PIECE:])
        return _finish(odds)

    def _peaks(
        self,
        spellings: Sequence[Sequence[int]],
        difficulty: Sequence[float],
        rng: np.random.Generator,
    ) -> tuple[list[Peak], int]:
        """The spoken peaks, and the number of frames."""
        a = self.acoustics
        rate = a.frames_per_letter * np.exp(rng.normal(0.0, a.rate_spread))
        mood = a.noise * np.exp(rng.normal(0.0, a.utterance_spread))
        at = 1.0 + rng.gamma(4.0, a.pause_frames / 4.0)
        peaks: list[Peak] = []
        for spelling, hard in zip(spellings, difficulty, strict=True):
            spread = a.spread * mood * hard * np.exp(rng.normal(0.0, a.word_spread))
            spread = min(spread, a.worst)
            if rng.random() < a.pause:
                at += rng.exponential(a.pause_frames)
            for token in spelling:
                width, height = rng.uniform(*a.width), rng.uniform(*a.height)
                weakness = a.weakness * spread * abs(rng.normal())
                at += self.letters[token] * rate * rng.gamma(6.0, 1.0 / 6.0)
                if peaks:  # clear of the one before, with a blank after its like
                    before = peaks[-1]
                    apart = float(before.token == token)
                    at = max(at, before.centre + before.width + width + apart)
                peaks.append(Peak(token, at, width, height, weakness, spread))
        return peaks, int(at + 3.0 + rng.gamma(4.0, a.pause_frames / 4.0))

    def _false_peaks(
        self, peaks: list[Peak], num_frames: int, rng: np.random.Generator
    ) -> list[Peak]:
        """Peaks where nothing is said, of frequent pieces; none without noise."""
        a = self.acoustics
        if a.noise == 0.0:
            return []
        chance = np.exp(self.usual) * np.isfinite(self.distances.diagonal())
        count = rng.binomial(len(peaks), a.insertions)
        tokens = FIRST_PIECE + rng.choice(len(chance), count, p=chance / chance.sum())
        sharp = a.height[0]
        level, spread = a.insertion_height
        heights = level + np.sqrt(a.noise) * spread * np.abs(rng.normal(size=count))
        places = rng.uniform(0.0, num_frames - 1.0, count)
        return [
            Peak(int(token), place, 0.8, sharp, sharp - height, 1.0)
            for token, place, height in zip(tokens, places, heights, strict=True)
        ]

    def _add(
        self, odds: np.ndarray, top: np.ndarray, peak: Peak, rng: np.random.Generator
    ) -> None:
        """Put a peak into the odds [T, V]; raise the best of its frames, `top` [T]."""
        a = self.acoustics
        spoken = peak.token - FIRST_PIECE
        noise = rng.normal(size=len(self.usual))
        noise += a.frequency_bias * (self.usual - self.usual[spoken])
        noise[spoken] = 0.0
        share = peak.spread * noise - a.contrast * self.distances[spoken]
        share /= max(1.0, a.noise) ** a.temper
        share -= np.logaddexp.reduce(share)
        reach = 2.0 * peak.width
        frames = np.arange(
            max(0, int(np.ceil(peak.centre - reach))),
            min(len(odds), int(peak.centre + reach) + 1),
        )
        level = peak.height * (1.0 - ((frames - peak.centre) / peak.width) ** 2)
        level -= peak.weakness
        wrinkle = rng.normal(0.0, a.wrinkle, (len(frames), len(share)))
        own = level[:, None] + share + min(1.0, a.noise) * wrinkle
        odds[frames, FIRST_PIECE:] = np.maximum(odds[frames, FIRST_PIECE:], own)
        top[frames] = np.maximum(top[frames], level)

    def _background(self, num_frames: int, rng: np.random.Generator) -> np.ndarray:
        """Odds [T, V - 1] of pieces that nothing speaks for."""
        a = self.acoustics
        own, slow, rest = a.background_spread
        steps = rng.normal(size=(num_frames, a.factors))
        for t in range(1, num_frames):
            fresh = np.sqrt(1.0 - a.persistence**2)
            steps[t] = a.persistence * steps[t - 1] + fresh * steps[t]
        level = a.background + own * self.usual
        noise = rng.standard_normal((num_frames, len(level)), np.float32)
        return np.minimum(
            level + slow * (steps @ self.loadings) + rest * noise, CEILING
        )


def _finish(odds: np.ndarray) -> np.ndarray:
    """Normalise the rows, floor them, and round them to float16."""
    odds -= odds.max(1, keepdims=True)
    odds -= np.log(np.exp(odds).sum(1, keepdims=True))
    below, steps = COARSE
    rounded = np.where(odds < below, np.rint(odds * steps) / steps, odds)
    return np.maximum(rounded, FLOOR).astype(np.float16)
