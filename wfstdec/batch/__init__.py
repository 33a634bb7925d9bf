"""Decoding and alignment of many utterances: from files, in batches, to files.

    from wfstdec import batch

    print(batch.decode_file(decoder, "dev.npz", "dev.hyp"))          # a `Summary`

    lists = batch.BoostLists(read_boosts("words.txt"))
    for utterance, [best] in batch.decode_all(decoder, pairs, lists): ...

    print(batch.align_file(aligner, "dev.npz", "dev.txt", "dev.ctm"))

`decode_file` reads, decodes and writes; `decode_all` decodes whatever gives pairs of an
utterance id and its log-probs. Both keep one batch in memory and no more.
"""

from wfstdec.batch.aligning import AlignmentSummary, align_all, align_file
from wfstdec.batch.decoding import BoostLists, batches, decode_all, decode_file
from wfstdec.batch.lattices import LatticeReading, rescore_file
from wfstdec.batch.summary import Summary

__all__ = [
    "AlignmentSummary",
    "BoostLists",
    "LatticeReading",
    "Summary",
    "align_all",
    "align_file",
    "batches",
    "decode_all",
    "decode_file",
    "rescore_file",
]
