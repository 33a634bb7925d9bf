"""Statistics of CTC posteriors whose truth is known: what do they look like?

    figures = describe(pairs, blank)         # pairs of (logprobs [T, V], Sausage)
    print(table({"real": figures, "synthetic": other}))

The truth is aligned to the frames (Viterbi over the CTC states of all pronunciations),
so that real and simulated sets are measured by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import kaldialign
import numpy as np

from tools.data.forced_alignment import Sausage, force_align


def spans(values: np.ndarray) -> list[tuple[int, int, int]]:
    """Runs of equal values: (value, start frame, end frame)."""
    edges = np.flatnonzero(np.diff(values)) + 1
    starts = [0, *edges.tolist()]
    stops = [*edges.tolist(), len(values)]
    return [(int(values[a]), a, b) for a, b in zip(starts, stops, strict=True)]


def greedy_tokens(logprobs: np.ndarray, blank: int) -> list[int]:
    """The best token of each frame, repeats merged, blanks dropped."""
    return [token for token, _, _ in spans(logprobs.argmax(1)) if token != blank]


def describe(
    pairs: Iterable[tuple[np.ndarray, Sausage]], blank: int
) -> dict[str, float]:
    """Figures by name; those in percent end in %.

    Args:
        pairs: Log-probs [T, V] and the CTC states of what was said.
        blank: The blank's token.
    """
    rows, truths, errors, count = [], [], 0, 0
    for logprobs, states in pairs:
        logprobs = logprobs.astype(np.float32)
        path = force_align(logprobs, states)
        said = [
            (states.tokens[state], start, stop)
            for state, start, stop in spans(path)
            if states.tokens[state] != blank
        ]
        truths.append(_truth(logprobs, said))
        reference = [str(token) for token, _, _ in said]
        guess = [str(token) for token in greedy_tokens(logprobs, blank)]
        errors += kaldialign.edit_distance(reference, guess)["total"]
        count += len(reference)
        rows.append(logprobs)
    figures = {"greedy token error rate %": 100.0 * errors / count}
    figures |= _frame_figures(np.concatenate(rows), blank)
    figures["frame to frame correlation of the background"] = float(
        np.mean([_persistence(logprobs) for logprobs in rows])
    )
    return figures | _truth_figures(np.concatenate(truths))


def _truth(logprobs: np.ndarray, said: list[tuple[int, int, int]]) -> np.ndarray:
    """Rank (0 best) and gap to the best of each said token, at its best frame."""
    found = []
    for token, start, stop in said:
        frame = start + int(logprobs[start:stop, token].argmax())
        own = logprobs[frame, token]
        rank = (logprobs[frame] > own).sum()
        found.append((rank, logprobs[frame].max() - own))
    return np.array(found, np.float64).reshape(-1, 2)


def _truth_figures(truths: np.ndarray) -> dict[str, float]:
    rank, gap = truths.T
    missed = rank > 0
    figures = {"truth is not the best token %": 100.0 * missed.mean()}
    if missed.any():
        figures |= {
            "  then it is the runner-up %": 100.0 * (rank[missed] == 1).mean(),
            "  then it is third to fifth %": 100.0
            * ((rank[missed] > 1) & (rank[missed] < 5)).mean(),
            "  then it lacks, median, nats": float(np.median(gap[missed])),
            "  then it lacks, 90th percentile, nats": float(
                np.quantile(gap[missed], 0.9)
            ),
        }
    return figures


def _frame_figures(rows: np.ndarray, blank: int) -> dict[str, float]:
    best = rows.argmax(1)
    lengths = [stop - start for token, start, stop in spans(best) if token != blank]
    figures = {
        "blank frames %": 100.0 * (best == blank).mean(),
        "peaks of 1 frame %": 100.0 * np.mean(np.equal(lengths, 1)),
        "peaks of 2 frames %": 100.0 * np.mean(np.equal(lengths, 2)),
        "peaks of 3 frames %": 100.0 * np.mean(np.equal(lengths, 3)),
    }
    for name, chosen in ("blank", best == blank), ("peak", best != blank):
        part = rows[chosen]
        top = part.max(1)
        entropy = -(np.exp(part) * part).sum(1)
        ranked = np.sort(part, axis=1)[:, ::-1]
        figures |= {
            f"{name} frames: entropy, nats": float(entropy.mean()),
            f"{name} frames: mean of 1 - p %": 100.0 * float((1 - np.exp(top)).mean()),
            f"{name} frames: p > 0.99 %": 100.0 * float((top > np.log(0.99)).mean()),
            f"{name} frames: p > 0.9 %": 100.0 * float((top > np.log(0.9)).mean()),
            f"{name} frames: mean of 2nd best": float(ranked[:, 1].mean()),
            f"{name} frames: mean of 3rd best": float(ranked[:, 2].mean()),
            f"{name} frames: mean of 6th best": float(ranked[:, 5].mean()),
            f"{name} frames: median": float(np.median(part)),
            f"{name} frames: spread behind": float(ranked[:, 5:].std(1).mean()),
        }
    return figures


def _persistence(logprobs: np.ndarray) -> float:
    """Correlation of a token's log-probs with those one frame before."""
    around = logprobs - logprobs.mean(0)
    return float((around[1:] * around[:-1]).mean() / (around * around).mean())


def table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """Figures side by side, one line each."""
    names = list(dict.fromkeys(name for own in columns.values() for name in own))
    width = max(map(len, names))
    lines = [" " * width + "".join(f"{title:>12}" for title in columns)]
    for name in names:
        cells = [own.get(name) for own in columns.values()]
        shown = "".join(" " * 12 if c is None else f"{c:12.2f}" for c in cells)
        lines.append(f"{name:<{width}}{shown}")
    return "\n".join(lines)
