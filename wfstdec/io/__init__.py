"""Files in and out: log-probs, transcripts, boost files, results, drawings.

for utterance, logprobs in open_logprobs("dev.npz"): ...    # or .ark, .scp, a folder
boosts = read_boosts("words.txt")
references = read_text("dev.txt")
"""

from wfstdec.io.boost_files import (
    BoostFile,
    read_boosts,
    read_phrase_weights,
    read_phrases,
)
from wfstdec.io.journal import Restart
from wfstdec.io.lattices import (
    KaldiLatticeWriter,
    graph_dot,
    kaldi_lattice,
    lattice_dot,
    read_kaldi_lattices,
    write_lattice_fst,
)
from wfstdec.io.logprobs import LogprobReader, open_logprobs
from wfstdec.io.outputs import open_output, open_results
from wfstdec.io.results import FORMATS, NBEST_FORMATS, result_writer
from wfstdec.io.subtitles import SubtitleOptions
from wfstdec.io.text import read_confidences, read_text, write_text

__all__ = [
    "FORMATS",
    "NBEST_FORMATS",
    "BoostFile",
    "KaldiLatticeWriter",
    "LogprobReader",
    "Restart",
    "SubtitleOptions",
    "graph_dot",
    "kaldi_lattice",
    "lattice_dot",
    "open_logprobs",
    "open_output",
    "open_results",
    "read_boosts",
    "read_confidences",
    "read_kaldi_lattices",
    "read_phrase_weights",
    "read_phrases",
    "read_text",
    "result_writer",
    "write_lattice_fst",
    "write_text",
]
