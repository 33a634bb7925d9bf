"""wfstdec: WFST-centric decoding of CTC speech models.

Build or load a graph (`build_graph`, `load_graph`), or use a lexicon and a language
model directly; decode with `WfstDecoder`, `TrieDecoder` or `GreedyDecoder`; align known
texts with `ForcedAligner`. Subpackages:

    wfstdec.adapters    interfaces of pyctcdecode, torchaudio and Transformers
    wfstdec.audio       audio files as model input
    wfstdec.batch       batches of utterances, from files to files; .ray: on Ray
    wfstdec.doctor      examination of files to be decoded together
    wfstdec.compare     comparison and tuning of searches on your data
    wfstdec.io          log-probs, transcripts, boost files, results
    wfstdec.lattice     lattices: files, n-best, confidences, rescoring
    wfstdec.metrics     word error rates
    wfstdec.models      encoders: audio to log-probs
    wfstdec.recipes     the shipped recipe
    wfstdec.transcription   audio to words
    wfstdec.errors      exceptions

Only names in `__all__`, here and in these, are stable between versions.
"""

from wfstdec.lazy import names_of_stub

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
__all__ = ["__version__", *__all__]
