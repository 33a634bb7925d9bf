from wfstdec.io.boost_files import BoostFile as BoostFile
from wfstdec.io.boost_files import read_boosts as read_boosts
from wfstdec.io.boost_files import read_phrase_weights as read_phrase_weights
from wfstdec.io.boost_files import read_phrases as read_phrases
from wfstdec.io.journal import Restart as Restart
from wfstdec.io.lattices import KaldiLatticeWriter as KaldiLatticeWriter
from wfstdec.io.lattices import graph_dot as graph_dot
from wfstdec.io.lattices import write_lattice_fst as write_lattice_fst
from wfstdec.io.logprobs import LogprobReader as LogprobReader
from wfstdec.io.logprobs import open_logprobs as open_logprobs
from wfstdec.io.outputs import open_output as open_output
from wfstdec.io.outputs import open_results as open_results
from wfstdec.io.results import FORMATS as FORMATS
from wfstdec.io.results import read_confidences as read_confidences
from wfstdec.io.results import read_text as read_text
from wfstdec.io.results import result_writer as result_writer
from wfstdec.io.results import write_text as write_text
from wfstdec.io.subtitles import SubtitleOptions as SubtitleOptions

__all__: list[str]
