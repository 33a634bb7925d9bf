"""Comparison of searches on your data: WER, speed, search errors, memory.

For example:

    from wfstdec import compare

    speech = compare.read_speech("dev.npz", "dev.txt")
    models = compare.Models(graph="graph.npz", tokens="tokens.txt", lm="lm.arpa", ...)
    searches = models.wfst_searches(WfstOptions(lm_scale=0.8), {"beam": [8.0, 13.0]})
    searches += models.trie_searches(TrieOptions(lm_scale=0.8), {"beam_size": [16, 32]})
    comparison = compare.run(speech, searches)
    print(compare.table(comparison))
    compare.plot(comparison, "dev.svg")
    compare.tune(searches[0].prepare, speech).best
"""

from wfstdec.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
