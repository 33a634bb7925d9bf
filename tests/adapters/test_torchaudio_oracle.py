"""torchaudio's decoder against all alignments of short utterances."""

import naive_ctc_decoder
import numpy as np
import pytest
from ctc_decoder_cases import random_case, random_options

from wfstdec.adapters.torchaudio import ctc_decoder

SEEDS = range(12)
FRAMES = 5


@pytest.mark.parametrize("log_add", [False, True])
@pytest.mark.parametrize("with_lm", [False, True])
@pytest.mark.parametrize("with_lexicon", [False, True])
def test_sentences_and_scores_are_those_of_all_alignments(
    with_lexicon, with_lm, log_add, tmp_path
):
    checked = 0
    for seed in SEEDS:
        arguments, emissions = random_case(
            seed, tmp_path, with_lexicon=with_lexicon, with_lm=with_lm
        )
        emissions = emissions[:FRAMES]
        options = random_options(seed) | {"log_add": log_add, "unk_score": -np.inf}
        found = ctc_decoder(**arguments, **options)(emissions[None])[0]
        case = naive_ctc_decoder.case_of(arguments, emissions.tolist(), options)
        expected = naive_ctc_decoder.sentences(case)
        scores = dict(expected)
        assert len(found) == min(options["nbest"], len(expected))
        for hypothesis, (_, score) in zip(found, expected, strict=False):
            assert hypothesis.score == pytest.approx(score, abs=1e-3)
            spoken = tuple(hypothesis.words)
            if not with_lexicon:
                spoken = emitted(hypothesis, len(emissions))
            assert scores[spoken] == pytest.approx(hypothesis.score, abs=1e-3)
            checked += 1
    assert checked > 2 * len(SEEDS)


def emitted(hypothesis, num_frames):
    """The tokens but the silence before the first and that behind the last frame."""
    tokens, timesteps = hypothesis.tokens.tolist(), hypothesis.timesteps.tolist()
    pairs = list(zip(tokens, timesteps, strict=True))[1:]
    return tuple(token for token, at in pairs if at <= num_frames)
