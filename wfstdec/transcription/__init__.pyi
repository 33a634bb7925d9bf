from wfstdec.transcription.encoding import AudioOptions as AudioOptions
from wfstdec.transcription.encoding import Recording as Recording
from wfstdec.transcription.files import find_recordings as find_recordings
from wfstdec.transcription.files import transcribe_files as transcribe_files
from wfstdec.transcription.pieces import CutOptions as CutOptions
from wfstdec.transcription.transcriber import STREAM_CUTS as STREAM_CUTS
from wfstdec.transcription.transcriber import Final as Final
from wfstdec.transcription.transcriber import Stream as Stream
from wfstdec.transcription.transcriber import Transcriber as Transcriber
from wfstdec.transcription.transcriber import Transcript as Transcript

__all__: list[str]
