"""The published rule of forced alignment with CTC, for a token sequence that is given.

As `torchaudio.functional.forced_align` documents it: the most probable path among all
that become the targets when repeats are merged and blanks taken out. Between two equal
targets there must be a blank. All states of all frames are kept: nothing is pruned.
"""

import numpy as np


def forced_align(logprobs, targets, blank):
    """The label of each frame, int [T], and the path's log-prob; None if impossible."""
    labels = [blank]
    for token in targets:
        labels += [token, blank]
    num_frames, num_states = len(logprobs), len(labels)
    best = np.full((num_frames, num_states), -np.inf)
    source = np.zeros((num_frames, num_states), int)
    best[0, :2] = [logprobs[0, label] for label in labels[:2]]
    for t in range(1, num_frames):
        for s, label in enumerate(labels):
            reach = [best[t - 1, s]]
            if s >= 1:
                reach.append(best[t - 1, s - 1])
            if s >= 2 and label not in (blank, labels[s - 2]):
                reach.append(best[t - 1, s - 2])
            source[t, s] = s - int(np.argmax(reach))
            best[t, s] = max(reach) + logprobs[t, label]
    state = num_states - 1 - int(num_states > 1 and best[-1, -2] > best[-1, -1])
    if best[-1, state] == -np.inf:
        return None
    path = []
    total = best[-1, state]
    for t in range(num_frames - 1, -1, -1):
        path.append(labels[state])
        state = source[t, state]
    return np.array(path[::-1]), total
