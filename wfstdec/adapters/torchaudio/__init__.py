"""torchaudio's CTC decoder: the same calls and answers, without flashlight-text.

    from wfstdec.adapters.torchaudio import ctc_decoder

    decoder = ctc_decoder("lexicon.txt", "tokens.txt", lm="lm.arpa")
    best = decoder(emissions)[0][0]              # a CTCHypothesis
    best.words, best.score, best.tokens, best.timesteps

`docs/torchaudio.md` says what differs.
"""

from wfstdec.adapters.torchaudio.custom_lm import CTCDecoderLM, CTCDecoderLMState
from wfstdec.adapters.torchaudio.decoder import CTCDecoder, CTCHypothesis
from wfstdec.adapters.torchaudio.factory import (
    ctc_decoder,
    download_pretrained_files,
)

__all__ = [
    "CTCDecoder",
    "CTCDecoderLM",
    "CTCDecoderLMState",
    "CTCHypothesis",
    "ctc_decoder",
    "download_pretrained_files",
]
