"""Times of the tokens of a known text: the best CTC alignment, exact.

spans = token_spans(logprobs, columns, blank)      # int32 [N, 2], or None

A text found by attention has no times of its own; those of the best alignment of CTC
over the same tokens are what forced alignment gives, and cost T * N steps.
"""

from __future__ import annotations

import numpy as np

from wfstdec.jit import kernel


def token_spans(
    logprobs: np.ndarray, columns: np.ndarray, blank: int
) -> np.ndarray | None:
    """First frames of tokens, and the frames behind their last; int32 [N, 2].

    Of equally good alignments the one whose tokens end late counts.

    Args:
        logprobs: float32 [T, C].
        columns: int64 [N], the columns of the tokens.
        blank: Its column.

    Returns:
        The spans; None where the text cannot be said in these frames.
    """
    spans = np.zeros((len(columns), 2), np.int32)
    states = 2 * len(columns) + 1
    scores = np.full((2, states), -np.inf)
    step = np.zeros((len(logprobs), states), np.int8)
    columns = np.ascontiguousarray(columns, np.int64)
    return spans if _align(logprobs, columns, blank, scores, step, spans) else None


@kernel
def _align(logprobs, columns, blank, scores, step, spans):
    """Fill in the spans; tells whether there is an alignment.

    State 2 * i + 1 is token i, even ones are the blanks around them.

    Args:
        logprobs: float32 [T, C].
        columns: int64 [N].
        blank: The column of the blank.
        scores: float64 [2, 2 * N + 1], -inf.
        step: int8 [T, 2 * N + 1], how many states an alignment went on by.
        spans: int32 [N, 2], to be filled in.
    """
    num_frames, num_states = step.shape
    now, after = scores[0], scores[1]
    for t in range(num_frames):
        for state in range(num_states):
            at = columns[state // 2] if state % 2 else blank
            # Ties go to staying, then to the lesser step.
            best, by = now[state], 0
            if t == 0:
                best = 0.0 if state < 2 else -np.inf
            else:
                if state > 0 and now[state - 1] > best:
                    best, by = now[state - 1], 1
                # Past a blank, where two tokens differ.
                skips = state % 2 == 1 and state > 1
                if skips and columns[state // 2] != columns[state // 2 - 1]:
                    if now[state - 2] > best:
                        best, by = now[state - 2], 2
            after[state] = best + logprobs[t, at]
            step[t, state] = by
        for state in range(num_states):
            now[state] = after[state]
    state = num_states - 1
    # The last token, or the blank behind it.
    if num_states > 1 and now[state - 1] >= now[state]:
        state -= 1
    if num_frames == 0 or now[state] == -np.inf:
        return num_frames == 0 and len(columns) == 0
    for t in range(num_frames - 1, -1, -1):
        if state % 2:
            i = state // 2
            spans[i, 0] = t
            if spans[i, 1] == 0:
                spans[i, 1] = t + 1
        state -= step[t, state]
    return True
