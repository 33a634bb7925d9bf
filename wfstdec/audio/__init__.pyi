from wfstdec.audio.reading import Audio as Audio
from wfstdec.audio.reading import AudioReader as AudioReader
from wfstdec.audio.reading import open_audio as open_audio
from wfstdec.audio.reading import read_audio as read_audio
from wfstdec.audio.samples import AudioNote as AudioNote
from wfstdec.audio.samples import ResampleStream as ResampleStream
