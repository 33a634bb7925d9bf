"""Audio to words: a model's log-probs, a decoder's words, recordings of any length."""

from wfstdec.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
