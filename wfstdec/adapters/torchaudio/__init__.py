"""torchaudio's CTC decoder: the same calls and answers, without flashlight-text.

from wfstdec.adapters.torchaudio import ctc_decoder

decoder = ctc_decoder("lexicon.txt", "tokens.txt", lm="lm.arpa")
best = decoder(emissions)[0][0]              # a CTCHypothesis
best.words, best.score, best.tokens, best.timesteps
"""

from wfstdec.adapters.torchaudio.decoder import (
    CTCDecoder,
    CTCHypothesis,
    ctc_decoder,
    download_pretrained_files,
)
from wfstdec.adapters.torchaudio.models import CTCDecoderLM, CTCDecoderLMState

__all__ = [
    "CTCDecoder",
    "CTCDecoderLM",
    "CTCDecoderLMState",
    "CTCHypothesis",
    "ctc_decoder",
    "download_pretrained_files",
]
