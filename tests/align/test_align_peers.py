"""Alignment against torchaudio's, where that is installed.

Log-probs are continuous: with ties torchaudio 2.11 was seen to find worse paths.
"""

import numpy as np
import pytest

from wfstdec import ForcedAligner, token_table

TOKENS = token_table(["<blank>", "a", "b", "c", "d"])


def test_the_frames_are_those_of_torchaudio():
    torch = pytest.importorskip("torch")
    align = pytest.importorskip("torchaudio.functional").forced_align
    rng = np.random.default_rng(1)
    aligner = ForcedAligner(TOKENS)
    for _ in range(200):
        length, targets = (
            int(rng.integers(1, 60)),
            rng.integers(1, 5, rng.integers(1, 14)),
        )
        x = np.log(rng.dirichlet(np.ones(5) / 2, length) + 1e-9).astype(np.float32)
        alignment = aligner.align(x, ["".join("-abcd"[token] for token in targets)])
        needed = len(targets) + int((targets[1:] == targets[:-1]).sum())
        assert alignment.reached_end == (length >= needed)
        if alignment.reached_end:
            spoken = np.zeros(length, int)
            for token in alignment.tokens:
                spoken[token.start_frame : token.end_frame] = TOKENS.ids[token.text]
            given = torch.tensor(x)[None], torch.tensor(targets[None])
            np.testing.assert_array_equal(spoken, align(*given, blank=0)[0][0].numpy())
