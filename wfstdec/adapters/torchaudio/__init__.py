"""CTC decoder with torchaudio's interface, without flashlight-text.

from wfstdec.adapters.torchaudio import ctc_decoder

decoder = ctc_decoder("lexicon.txt", "tokens.txt", lm="lm.arpa")
best = decoder(emissions)[0][0]              # a CTCHypothesis
best.words, best.score, best.tokens, best.timesteps
"""

from wfstdec.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
