"""wfstdec: WFST-centric decoding of CTC speech models.

Build or load a graph (`build_graph`, `load_graph`), or take a lexicon and a language
model as they are; decode with `WfstDecoder`, `TrieDecoder` or `GreedyDecoder`; find
when the words of a known text were said with `ForcedAligner`. Beside them stand

    wfstdec.adapters    other people's interfaces: pyctcdecode
    wfstdec.audio       audio files as a model hears them
    wfstdec.batch       many utterances: from files, in batches, to files; .ray: on Ray
    wfstdec.doctor      what is wrong with files that are to be decoded together
    wfstdec.compare     searches side by side on one's own data; tuning
    wfstdec.io          log-probs, transcripts, boost files, results
    wfstdec.lattice     lattices: files, n-best, confidences, rescoring
    wfstdec.metrics     word error rates
    wfstdec.models      encoders: audio to log-probs
    wfstdec.recipes     the shipped recipe
    wfstdec.transcription   audio to words
    wfstdec.errors      what is raised

What is not in `__all__`, here or in one of these, may change from version to version.
"""

from wfstdec.lazy import names_of_stub

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
__all__ = ["__version__", *__all__]
