"""What a run over many utterances comes to: how many, how fast, which did not end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from wfstdec.search.hypothesis import Hypothesis

_NAMED_AT_MOST = 5


@dataclass
class Summary:
    """Counts of a run; `str()` is a line for a person.

    Attributes:
        frame_shift_s: Seconds per frame of what was decoded.
        num_utterances: Decoded utterances.
        num_frames: Their frames.
        decode_s: Seconds on the wall in the decoder, without reading, writing and
            compiling kernels.
        unfinished: The utterances that did not reach a final state.
    """

    frame_shift_s: float
    num_utterances: int = 0
    num_frames: int = 0
    decode_s: float = 0.0
    unfinished: list[str] = field(default_factory=list)

    def add(
        self,
        batch: Sequence[tuple[str, np.ndarray]],
        hypotheses: Sequence[Sequence[Hypothesis]],
        seconds: float,
    ) -> None:
        """Count a decoded batch.

        Args:
            batch: Ids and log-probs, [T, V].
            hypotheses: Of each utterance, best first.
            seconds: What the decoder took.
        """
        self.num_utterances += len(batch)
        self.num_frames += sum(len(logprobs) for _, logprobs in batch)
        self.decode_s += seconds
        for (utterance, _), [best, *_] in zip(batch, hypotheses, strict=True):
            if not best.reached_final:
                self.unfinished.append(utterance)

    @property
    def audio_s(self) -> float:
        """Seconds of audio."""
        return self.num_frames * self.frame_shift_s

    @property
    def rtfx(self) -> float:
        """Seconds of audio per second on the wall; 0 where nothing was decoded."""
        return self.audio_s / self.decode_s if self.decode_s else 0.0

    def __str__(self) -> str:
        text = (
            f"decoded {self.num_utterances} utterances, {self.audio_s:.1f} s of audio "
            f"in {self.decode_s:.2f} s (RTFx {self.rtfx:.0f})"
        )
        if not self.unfinished:
            return text + "; all reached a final state"
        named = " ".join(self.unfinished[:_NAMED_AT_MOST])
        more = " ..." if len(self.unfinished) > _NAMED_AT_MOST else ""
        count = len(self.unfinished)
        return f"{text}; {count} did not reach a final state: {named}{more}"
