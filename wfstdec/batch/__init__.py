"""Batch decoding and alignment, from files to files.

    print(batch.decode_file(decoder, "dev.npz", "dev.hyp"))          # a `Summary`
    print(batch.align_file(aligner, "dev.npz", "dev.txt", "dev.ctm"))

    lists = batch.BoostLists(read_boosts("words.txt"))
    for utterance, [best] in batch.decode_all(decoder, pairs, lists): ...

    summary = batch.decode_file(..., restart=Restart(resume=True))  # after Ctrl-C
    for error in summary.failures: print(error.utterance, error.message)

Only one batch is in memory. Utterances with a fault are skipped and named; results
before an error are kept.
"""

from wfstdec.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
