"""Transcription of recordings of any length by a model and a decoder."""

from wfstdec.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
