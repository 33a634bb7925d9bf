"""Readers and writers of files: log-probs, transcripts, boosts, results, drawings.

For example:

    for utterance, logprobs in open_logprobs("dev.npz"): ...  # or .ark, .scp, a folder
    boosts = read_boosts("words.txt")
    references = read_text("dev.txt")
"""

from wfstdec.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
